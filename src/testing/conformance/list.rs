//! The names of all clauses, by topic: what makes them lists, and tests.

use super::Clause;

/// One list, from which both a constant and a macro are made. The `$` is passed in so that the inner macro can
/// have arguments of its own.
macro_rules! clauses {
    (
        $(#[$list_doc:meta])* $list:ident;
        $(#[$macro_doc:meta])* $tests:ident;
        $dollar:tt $($topic:ident: [$($clause:ident,)+])+
    ) => {
        $(#[$list_doc])*
        pub const $list: &[Clause] = &[$($(Clause {
            name: concat!(stringify!($topic), "::", stringify!($clause)),
            run: super::$topic::$clause,
        },)+)+];

        $(#[$macro_doc])*
        #[macro_export]
        macro_rules! $tests {
            ($dollar fixture:ident) => {
                $(mod $topic {
                    $(#[test]
                    fn $clause() {
                        let name = concat!(stringify!($topic), "::", stringify!($clause));
                        $dollar crate::testing::conformance::run(name, &super::$dollar fixture());
                    })+
                })+
            };
        }
    };
}

clauses! {
    /// Every clause that holds for any store.
    CLAUSES;
    /// Makes each clause of the Storage Contract a `#[test]`, in a module per topic. Takes the name of a
    /// function without arguments that gives a fresh [`Fixture`](crate::testing::conformance::Fixture).
    conformance_tests;
    $
    enqueue: [
        a_job_due_now_is_claimable_at_once,
        a_stored_job_reads_back_as_it_was_given,
        an_empty_call_is_accepted,
        one_refused_job_fails_the_whole_call_and_is_named,
        the_first_of_several_refused_jobs_is_named,
        an_id_that_exists_is_left_as_it_was_and_told_as_not_new,
        of_an_id_twice_in_one_call_the_first_is_stored,
        a_call_repeated_after_a_lost_answer_adds_only_what_is_missing,
        an_id_of_a_job_that_ended_does_not_run_again,
        a_refused_job_is_refused_also_when_its_id_exists,
        payload_bytes_come_back_exactly,
        a_payload_without_a_byte_comes_back_without_one,
        a_payload_of_exactly_the_bound_is_stored_and_one_byte_more_is_refused,
        odd_names_are_kept_byte_by_byte_and_can_be_claimed,
        names_of_exactly_the_bound_are_stored_and_longer_ones_refused,
        names_that_cannot_be_used_are_refused_with_their_fault,
        names_that_only_look_alike_are_different,
        a_relative_due_time_counts_from_the_store_clock,
        an_absolute_due_time_is_kept_also_when_it_has_passed,
        a_due_time_that_cannot_be_stored_is_refused,
        a_version_outside_of_what_is_storable_is_refused,
        a_time_limit_of_zero_is_refused_and_a_long_one_kept,
        tags_are_kept_in_order_up_to_their_bound,
        a_thousand_jobs_come_in_by_one_call,
    ]
    claim: [
        jobs_come_in_order_of_due_time_and_then_of_id,
        ids_are_ordered_as_bytes,
        a_job_is_due_at_its_instant_and_not_before,
        a_job_that_is_not_due_stays_when_the_clock_steps_back,
        no_more_than_the_total_are_taken,
        a_total_of_nothing_is_answered_with_nothing,
        without_spill_each_queue_gives_no_more_than_its_quota,
        with_spill_a_second_pass_fills_up_in_order_of_the_plan,
        a_quota_of_nothing_can_be_filled_by_the_second_pass,
        the_first_pass_stops_at_the_total,
        a_strict_plan_empties_its_queues_in_order,
        a_queue_that_is_not_planned_or_not_known_gives_nothing,
        a_queue_planned_twice_never_gives_a_job_twice,
        within_a_queue_the_order_holds_over_both_passes,
        only_accepted_wire_names_are_taken,
        a_claim_that_accepts_nothing_takes_nothing,
        a_version_beyond_what_is_accepted_is_left,
        a_wire_name_accepted_twice_gives_each_job_once,
        many_jobs_that_are_not_accepted_do_not_hide_the_one_that_is,
        the_byte_bound_ends_a_claim_and_says_so,
        one_job_is_handed_out_however_large_it_is,
        the_byte_bound_counts_over_all_queues,
        nothing_is_said_to_be_withheld_when_all_was_taken,
        a_claimed_job_carries_everything_it_was_given,
        a_claim_is_written_to_the_job,
        a_leased_job_is_given_to_nobody_else,
        a_lapsed_job_is_not_claimable_before_it_is_settled,
        the_attempt_grows_by_one_at_each_claim_and_never_goes_back,
        the_next_due_time_is_told_of_what_could_be_taken,
        the_next_due_time_is_not_told_when_the_total_was_found,
        a_thousand_jobs_are_taken_by_one_call,
    ]
    report: [
        a_success_ends_the_job_and_keeps_its_output,
        an_output_of_exactly_the_bound_is_kept,
        an_output_is_kept_with_a_success_only,
        a_retry_is_due_after_its_delay_and_counts_a_failure,
        a_snooze_is_due_after_its_delay_without_a_failure,
        a_delay_beyond_what_is_storable_is_cut_to_it,
        a_dead_letter_ends_the_job_and_counts_a_failure,
        a_quarantine_ends_the_job_without_a_failure,
        a_cancel_ends_the_job_without_a_failure,
        a_detail_stays_until_another_replaces_it,
        a_detail_is_kept_character_by_character,
        an_empty_report_is_answered_with_nothing,
        a_batch_of_every_outcome_is_written_row_by_row,
        a_thousand_outcomes_are_written_by_one_call,
        under_a_cancel_request_what_would_run_again_or_fail_is_cancelled,
        under_a_cancel_request_any_other_end_stays_what_it_is,
    ]
    fence: [
        how_an_earlier_attempt_ended_explains_nothing,
        a_receipt_is_forgotten_when_a_later_attempt_is_given_back,
        a_lease_is_live_to_the_last_microsecond,
        a_lease_is_dead_at_its_expiry_instant,
        only_its_owner_ends_an_attempt,
        only_the_attempt_that_runs_is_ended,
        a_job_that_waits_cannot_be_ended,
        a_job_that_is_not_there_is_gone,
        an_attempt_that_was_reaped_is_stale_and_says_so,
        the_same_receipt_again_is_already_applied,
        the_same_receipt_is_known_long_after_the_lease,
        another_receipt_for_an_attempt_that_ended_is_stale,
        receipts_are_told_apart_by_pump_and_by_number,
        a_receipt_outlives_a_requeue,
        stale_rows_do_not_keep_the_others_of_their_batch,
        a_job_twice_in_one_batch_is_ended_once,
    ]
    exchange: [
        an_exchange_reports_and_claims,
        the_claim_sees_what_the_report_wrote,
        stale_rows_do_not_keep_the_claim,
        an_exchange_without_rows_is_a_claim,
        an_exchange_that_asks_for_nothing_is_a_report,
        an_exchange_repeated_after_a_lost_answer_applies_once,
        an_exchange_tells_what_a_claim_tells,
        five_hundred_are_reported_and_claimed_by_one_call,
    ]
    lease: [
        an_earlier_attempt_renews_nothing,
        a_renewal_counts_from_the_store_time,
        a_renewed_lease_outlives_its_first_expiry,
        a_lease_cannot_be_renewed_at_its_expiry_instant,
        only_the_holder_of_that_attempt_renews,
        what_has_ended_or_was_given_back_is_lost,
        a_renewal_tells_of_a_cancel_request,
        a_mixed_renewal_answers_row_by_row,
        a_lease_named_twice_is_answered_twice,
        an_empty_renewal_is_answered_with_nothing,
        a_thousand_leases_are_renewed_by_one_call,
        held_by_tells_every_lease_of_a_worker_by_ascending_id,
        held_by_tells_dead_leases_until_they_are_settled,
        held_by_forgets_what_ended_and_what_was_given_back,
    ]
    reap: [
        a_lease_is_found_at_its_expiry_instant_and_not_before,
        a_found_lease_carries_what_decides_its_end,
        the_longest_dead_is_found_first_and_no_more_than_asked_for,
        only_the_queues_asked_for_are_searched,
        finding_changes_nothing,
        a_wire_name_that_nobody_knows_lapses_like_any_other,
        a_reaper_settles_a_dead_lease,
        a_reaper_dead_letters_a_dead_lease,
        a_reaper_cannot_settle_a_live_lease,
        a_reaper_with_an_old_page_does_not_kill_a_lease_renewed_since,
        a_reaper_needs_that_owner_and_that_attempt,
        the_second_of_two_reapers_is_stale,
        a_reaper_finds_the_cancel_request_standing,
        holders_and_reapers_rows_can_share_a_batch,
        a_thousand_dead_leases_are_found_and_settled,
    ]
    hand_back: [
        a_job_given_back_waits_as_if_it_had_not_been_taken,
        a_job_given_back_keeps_its_place_in_the_queue,
        a_due_time_that_has_not_passed_becomes_now,
        failures_are_kept,
        a_dead_lease_cannot_be_given_back,
        giving_back_twice_changes_nothing,
        a_lease_named_twice_is_given_back_once,
        only_the_holder_of_that_attempt_gives_back,
        an_earlier_attempt_gives_nothing_back,
        under_a_cancel_request_it_becomes_cancelled,
        a_report_after_a_hand_back_is_stale,
        a_mixed_hand_back_answers_row_by_row,
        a_thousand_leases_are_given_back_by_one_call,
    ]
    operations: [
        a_waiting_job_is_cancelled_at_once,
        a_leased_job_is_marked_and_goes_on,
        a_lapsed_job_is_marked_like_a_leased_one,
        a_job_that_ended_is_not_cancelled,
        an_operator_is_told_that_a_job_is_not_there,
        a_requeue_begins_anew_but_for_the_attempt,
        a_requeue_forgets_a_cancel_request,
        only_dead_lettered_and_quarantined_jobs_are_requeued,
        a_second_requeue_finds_the_job_waiting,
    ]
    reads: [
        the_time_told_is_the_store_clock,
        a_job_that_is_not_there_is_not_found,
        an_empty_store_counts_nothing,
        counts_follow_every_change_of_state,
        counts_are_ordered_by_the_bytes_of_the_queue_and_by_state,
        what_one_session_writes_another_reads,
        another_handle_opens_the_same_data,
    ]
    races: [
        one_job_is_claimed_by_one_of_eight_threads,
        claimers_share_a_queue_without_a_job_twice_or_left,
        claims_over_two_queues_in_opposite_orders_all_succeed,
        an_id_enqueued_by_eight_threads_is_new_to_one,
        enqueues_that_share_ids_in_opposite_orders_all_succeed,
        a_report_sent_by_four_threads_is_applied_once,
        ends_of_the_same_jobs_in_opposite_orders_are_written_once,
        a_lapsed_job_is_settled_by_one_of_two_reapers,
        an_attempt_is_ended_by_its_holder_or_by_the_reaper,
        a_lease_is_renewed_or_reaped_and_never_both,
        a_lease_is_given_back_or_reported_and_never_both,
        a_job_is_cancelled_before_or_requested_after_its_claim,
        a_job_is_requeued_by_one_of_eight_threads,
        exchanges_of_four_threads_end_every_job_once,
    ]
    dependents: [
        a_job_whose_parent_lives_waits_for_it,
        a_job_that_waits_for_its_parent_cannot_be_claimed,
        a_job_that_waits_for_its_parent_promises_no_due_time,
        a_job_whose_parent_has_succeeded_waits_for_nothing,
        a_job_whose_parent_has_failed_is_born_cancelled,
        a_follower_of_a_parent_that_failed_waits_for_nothing,
        of_ended_and_living_parents_the_living_ones_are_waited_for,
        one_failed_parent_among_living_ones_is_enough_to_be_born_cancelled,
        a_job_whose_parent_was_born_cancelled_is_born_so_itself,
        a_parent_can_come_earlier_in_the_same_call,
        a_parent_that_comes_later_in_the_same_call_is_unknown,
        an_unknown_parent_fails_the_whole_call,
        a_job_cannot_be_its_own_parent,
        parents_are_counted_once_against_their_bound,
        a_parent_named_twice_releases_its_child_by_one_end,
        an_id_that_exists_keeps_the_parents_it_has,
        an_id_that_exists_without_parents_gets_none_later,
        of_an_id_twice_in_one_call_the_first_has_its_parents,
        the_last_of_its_parents_releases_a_job,
        a_released_job_is_claimable_at_once_and_due_at_its_release,
        a_released_job_is_ordered_by_its_release,
        a_delay_of_its_own_counts_from_the_enqueue_and_holds_after_the_release,
        a_parent_that_is_to_run_again_releases_nothing,
        a_stale_end_of_a_parent_releases_nothing,
        a_waiting_job_is_cancelled_with_its_gates,
        a_waiting_job_cannot_be_requeued,
        a_requeued_parent_brings_no_cancelled_child_back,
        a_requeued_parent_is_waited_for_by_those_who_come_later,
        a_thousand_jobs_with_parents_come_in_by_one_call,
    ]
    cascades: [
        a_success_releases_dependents_of_either_rule,
        a_dead_letter_cancels_strict_dependents_and_releases_others,
        a_reapers_dead_letter_does_the_same,
        a_quarantine_does_the_same,
        giving_way_to_a_cancel_does_the_same,
        a_cancel_of_a_waiting_parent_does_the_same,
        a_bulk_cancel_of_a_waiting_parent_does_the_same,
        a_retry_under_a_cancel_request_does_the_same,
        a_lapse_under_a_cancel_request_does_the_same,
        a_hand_back_under_a_cancel_request_does_the_same,
        a_revoke_under_a_cancel_request_does_the_same,
        a_cancel_of_a_parent_that_awaits_its_own_does_the_same,
        a_cancel_request_on_a_running_parent_changes_nothing_yet,
        an_exchange_releases_and_claims_in_one,
        a_dependent_of_several_is_cancelled_by_the_first_that_fails,
        a_follower_of_several_waits_for_the_last_of_them,
        a_failure_cancels_a_long_chain_at_once,
        a_chain_is_released_link_by_link,
        a_cascade_ends_at_the_first_follower,
        a_chain_of_followers_runs_whatever_its_links_come_to,
        the_bottom_of_a_diamond_waits_for_both_sides,
        a_failure_on_one_side_of_a_diamond_cancels_its_bottom,
        a_failure_at_the_top_of_a_diamond_cancels_all_of_it,
        two_parents_that_succeed_in_one_batch_release_a_dependent,
        of_two_parents_in_one_batch_one_failure_cancels_a_dependent,
        a_parent_and_its_own_dependents_parent_end_in_one_batch,
        an_end_that_was_applied_already_does_nothing_twice,
        parents_and_dependents_cancelled_by_one_bulk_all_end,
    ]
    fan_out: [
        a_thousand_dependents_are_released_by_the_write_itself,
        what_is_over_a_thousand_is_left_and_worked_off,
        what_is_left_by_a_failure_is_cancelled_later,
        what_an_operators_cancel_leaves_is_worked_off_too,
        the_bound_counts_all_parents_of_one_batch,
        a_cascade_that_is_left_goes_on_where_it_stopped,
        a_job_that_waits_for_a_parent_worked_off_later_waits_for_its_others,
        a_parent_requeued_meanwhile_holds_what_is_left_again,
        what_is_left_of_a_parent_can_be_cancelled_by_hand,
        a_parent_that_left_gates_is_not_purged,
        nothing_is_worked_off_where_nothing_was_left,
    ]
    lineage: [
        parents_are_told_in_their_order,
        a_parent_is_told_as_it_stands,
        a_parents_output_is_told,
        a_parent_gates_until_it_ends_and_never_again,
        a_job_without_parents_and_one_that_is_not_there_have_none,
        an_ancestor_is_told_from_any_distance,
        an_ancestor_is_found_over_every_path,
        strangers_dependents_and_the_job_itself_are_no_ancestors,
        lineage_outlives_every_end,
    ]
    limits: [
        one_claim_takes_no_more_than_the_limit,
        several_claims_take_no_more_than_the_limit_together,
        the_limit_holds_for_every_handle_on_the_data,
        the_limit_holds_over_both_passes_of_a_claim,
        the_limit_holds_for_a_queue_planned_twice,
        each_queue_has_a_limit_of_its_own,
        what_a_limit_withholds_is_taken_from_elsewhere,
        what_a_limit_withholds_is_told,
        a_limit_that_keeps_nothing_back_withholds_nothing,
        a_dead_lease_holds_its_slot_until_it_is_settled,
        a_success_frees_its_slot,
        a_retry_frees_its_slot,
        a_snooze_frees_its_slot,
        a_dead_letter_frees_its_slot,
        a_quarantine_frees_its_slot,
        a_cancel_frees_its_slot,
        a_hand_back_frees_its_slot,
        a_revoke_frees_its_slots,
        a_cancel_request_frees_no_slot,
        a_stale_report_frees_no_slot,
        an_exchange_can_use_the_slot_that_it_frees,
        a_first_limit_counts_what_runs_already,
        a_lowered_limit_stops_nothing_that_runs,
        a_raised_limit_lets_more_run,
        a_limit_of_zero_lets_nothing_begin,
        a_limit_that_was_taken_away_holds_no_longer,
        a_limit_of_a_queue_without_jobs_is_kept_for_them,
        a_limit_holds_in_its_own_queue_only,
        a_limit_is_answered_with_how_the_queue_is_set,
        queues_are_told_as_they_are_set_by_name,
        a_limit_is_exact_over_a_long_run,
    ]
    pausing: [
        a_paused_queue_gives_nothing_and_says_so,
        a_paused_queue_with_nothing_to_give_withholds_nothing,
        the_next_due_time_of_a_paused_queue_is_not_told,
        a_resumed_queue_gives_what_has_waited,
        other_queues_go_on,
        what_runs_in_a_paused_queue_goes_on_and_ends,
        a_paused_queue_takes_jobs_in_and_lets_them_be_cancelled,
        a_dependent_is_released_into_a_paused_queue,
        lapses_in_a_paused_queue_are_found,
        pausing_twice_changes_something_once,
        a_pause_and_a_limit_are_kept_apart,
        a_pause_holds_for_every_session_and_handle,
        an_exchange_takes_nothing_from_a_paused_queue,
        odd_queue_names_are_set_byte_by_byte,
    ]
    audits: [
        a_cancel_is_audited_with_its_job_and_its_queue,
        a_cancel_request_is_audited_once,
        a_requeue_is_audited,
        what_has_no_effect_is_not_audited,
        each_change_of_a_queue_is_audited_with_what_was_set,
        a_cascade_is_audited_by_what_was_done_only,
        records_come_newest_first_and_page_by_page,
        records_are_found_by_job_queue_and_actor,
        an_actor_is_cleaned_and_cut,
        a_revoke_takes_the_leases_of_one_worker,
        a_revoke_takes_dead_leases_too,
        a_revoked_job_whose_due_time_has_not_passed_is_due_now,
        what_the_holder_reports_after_a_revoke_is_stale_and_says_so,
        a_receipt_from_before_a_revoke_is_forgotten,
        a_revoke_under_a_cancel_request_cancels,
        a_revoke_goes_page_by_page_by_ascending_id,
        a_revoke_is_audited_job_by_job,
        an_audit_outlives_its_job,
    ]
    bulk: [
        a_bulk_cancel_reaches_what_lives_and_nothing_else,
        a_job_cancelled_in_bulk_is_as_one_cancelled_singly,
        a_bulk_requeue_reaches_what_failed_and_nothing_else,
        a_bulk_requeue_forgets_cancel_requests,
        a_cancel_request_that_stands_is_passed_over,
        each_condition_of_a_filter_narrows_a_bulk,
        a_bulk_requeue_can_ask_for_when_they_ended,
        a_state_that_cannot_be_changed_so_matches_nothing,
        pages_go_by_ascending_id_to_the_end,
        a_bulk_begins_beyond_its_cursor,
        what_comes_in_meanwhile_does_not_disturb_the_pages,
        a_bulk_is_audited_job_by_job,
        two_hundred_are_changed_by_one_call,
    ]
    history: [
        by_default_nothing_is_kept,
        a_job_that_is_not_there_has_no_history,
        a_birth_is_kept,
        a_birth_tells_the_state_that_its_parents_gave_it,
        a_job_that_was_not_new_is_born_once,
        a_claim_is_kept_with_its_worker_and_attempt,
        every_outcome_is_kept_with_the_worker_that_reported_it,
        a_reapers_end_names_the_worker_that_lost_the_lease,
        a_hand_back_is_kept,
        a_revoke_is_kept_as_an_operators,
        a_cancel_and_a_requeue_are_kept_as_an_operators,
        what_a_bulk_changes_is_kept,
        a_renewal_and_a_standing_cancel_request_are_no_transitions,
        what_was_stale_leaves_no_transition,
        a_release_and_a_cascade_are_kept_as_the_parents,
        what_is_worked_off_later_is_kept_like_the_rest,
        an_outcome_turned_into_a_cancel_is_told_as_it_was_written,
        what_went_wrong_is_kept_where_the_policy_says_so,
        what_went_wrong_is_not_kept_by_the_smaller_policy,
        a_life_is_told_in_the_order_in_which_it_was_lived,
        an_exchange_is_kept_end_before_claim,
        histories_of_different_jobs_are_kept_apart,
    ]
    retention: [
        a_succeeded_job_is_kept_for_its_time,
        a_cancelled_job_is_kept_for_its_time,
        a_dead_lettered_job_is_kept_for_its_time,
        a_quarantined_job_is_kept_for_its_time,
        kept_for_ever_is_for_ever,
        a_time_of_zero_lets_the_next_purge_take_them,
        a_job_that_lives_is_never_taken,
        a_requeued_job_is_kept_from_its_last_end_on,
        a_parent_is_kept_while_its_dependent_is,
        a_chain_goes_from_its_end,
        a_dependent_that_is_kept_keeps_all_its_ancestors,
        a_child_born_cancelled_keeps_its_parent_too,
        what_hangs_on_a_job_goes_with_it,
        a_purged_id_can_be_enqueued_anew,
        a_purged_job_is_gone_for_everybody,
        a_page_bounds_how_many_go_and_says_that_more_may,
        what_may_not_go_does_not_keep_the_rest,
        the_cursor_walks_over_every_state,
        nothing_to_take_is_answered_with_nothing,
        a_purge_takes_no_claimable_job_and_no_lease_along,
        of_a_long_life_the_newest_transitions_are_kept,
        trimming_goes_on_page_by_page,
        positions_never_come_back_after_a_purge,
        audit_records_are_kept_for_their_time,
    ]
    finding: [
        an_empty_filter_finds_every_job,
        a_job_found_is_the_whole_job,
        jobs_are_found_by_each_state,
        jobs_are_found_by_queue_and_wire_name,
        tags_are_found_exactly,
        odd_tags_queues_and_names_are_found_byte_by_byte,
        a_tag_given_twice_finds_its_job_once,
        jobs_are_found_by_when_they_were_accepted,
        jobs_are_found_by_when_they_ended,
        every_condition_must_hold,
        pages_go_up_by_id_and_down_again,
        a_page_that_is_not_full_is_the_last,
        pages_of_a_filter_pass_over_what_does_not_match,
        a_limit_outside_of_its_bounds_is_the_nearer_of_them,
        a_job_behind_the_cursor_is_not_found_again,
    ]
    counting: [
        counts_follow_every_outcome,
        counts_follow_reapers_hand_backs_and_revokes,
        counts_follow_operators,
        counts_follow_bulk_changes,
        counts_follow_births_releases_and_cascades,
        counts_follow_a_refused_and_a_repeated_call,
        counts_follow_a_repeated_and_a_stale_report,
        counts_follow_a_purge,
        counts_come_back_after_an_id_was_used_anew,
        counts_are_the_same_through_every_handle,
        counts_of_thousands_that_ended_are_exact,
    ]
    pumps: [
        nobody_is_there_before_somebody_is_announced,
        a_pump_is_told_as_it_announced_itself,
        a_pump_is_seen_at_its_last_word_and_has_started_at_its_first,
        a_pump_that_tells_something_new_is_told_so,
        a_halt_is_told_with_its_cause,
        a_pump_can_be_announced_as_halted_at_once,
        a_halt_is_kept_when_the_pump_is_announced_again,
        a_pump_that_stopped_cleanly_is_gone,
        a_pump_announced_after_it_was_gone_has_started_anew,
        a_halted_pump_cannot_be_withdrawn,
        pumps_are_ordered_by_group_and_worker,
        a_pump_not_seen_for_a_week_is_purged,
        an_announcement_decides_nothing_about_leases,
    ]
    waking: [
        a_released_dependent_wakes_its_queue,
        an_exchange_wakes_the_queue_of_what_it_released,
        what_is_worked_off_later_wakes_its_queue,
        a_resumed_queue_is_woken,
        a_queue_whose_limit_was_raised_is_woken,
        the_queues_of_revoked_leases_are_woken,
        a_dependent_that_goes_on_waiting_wakes_nobody,
    ]
    contests: [
        a_first_limit_comes_wholly_before_or_wholly_after_a_claim,
        claimers_of_a_limited_queue_never_pass_its_limit,
        a_pause_comes_wholly_before_or_wholly_after_a_claim,
        changes_of_one_queue_from_two_sides_are_both_kept,
        a_parents_success_leaves_no_orphan,
        a_parents_failure_leaves_no_orphan,
        a_parents_failure_leaves_no_follower_behind,
        a_parents_cancel_leaves_no_orphan,
        two_parents_that_end_at_once_release_their_dependents,
        cascades_that_cross_each_other_both_come_through,
        a_dependents_own_cancel_meets_its_release,
        what_is_left_is_worked_off_by_two_at_once,
        two_purges_take_each_job_once,
        a_purge_and_a_childs_enqueue_leave_no_child_without_its_parent,
        a_bulk_cancel_and_reports_leave_no_job_that_runs_again,
        two_bulk_changes_change_each_job_once,
        a_revoke_and_a_report_never_both_take_effect,
        announcements_of_many_pumps_are_all_kept,
        a_requeue_and_a_childs_enqueue_agree_on_the_parent,
    ]
}

clauses! {
    /// The clauses for a store that can enqueue inside a transaction of its caller's own.
    TRANSACTION_CLAUSES;
    /// As [`conformance_tests!`](crate::conformance_tests), for the clauses of a store that can enqueue inside a
    /// transaction of its caller's own. The fixture tells [how](crate::testing::conformance::Fixture::transactions).
    transaction_conformance_tests;
    $
    transactions: [
        what_was_enqueued_is_there_once_it_is_committed,
        what_was_rolled_back_never_was,
        nobody_sees_it_before_the_commit,
        a_refused_job_leaves_the_transaction_as_it_was,
        an_id_that_exists_is_told_as_not_new_and_left_alone,
        an_id_of_the_same_transaction_is_told_as_not_new,
        a_dependent_finds_the_parent_that_its_own_transaction_brought,
        a_dependent_of_a_parent_that_has_ended_is_decided_at_once,
        a_rolled_back_dependent_leaves_no_edge,
        many_jobs_of_one_transaction_come_and_go_together,
        one_refused_job_of_several_leaves_none_of_them_and_the_rest_stands,
    ]
}

clauses! {
    /// The clauses for a store whose operations consist of statements, between which it may crash.
    CRASH_CLAUSES;
    /// As [`conformance_tests!`](crate::conformance_tests), for the clauses of a store whose operations consist of
    /// statements. The fixture tells how to [crash](crate::testing::conformance::Fixture::crashes) between two.
    crash_conformance_tests;
    $
    crashes: [
        an_enqueue_is_whole_or_never_was,
        a_claim_is_whole_or_never_was,
        a_report_is_whole_or_never_was,
        an_exchange_is_whole_or_never_was,
        a_renewal_is_whole_or_never_was,
        a_hand_back_is_whole_or_never_was,
        a_cancel_is_whole_or_never_was,
        a_requeue_is_whole_or_never_was,
        a_bulk_cancel_is_whole_or_never_was,
        a_bulk_requeue_is_whole_or_never_was,
        a_change_of_a_queue_is_whole_or_never_was,
        a_revoke_is_whole_or_never_was,
        a_purge_is_whole_or_never_was,
        gates_worked_off_later_are_whole_or_never_were,
        an_announcement_is_whole_or_never_was,
    ]
}
