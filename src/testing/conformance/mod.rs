//! The clauses of the Storage Contract: written once, run over every store.
//!
//! A [`Clause`] is a sentence that holds for a store, and a function that panics where it does not. A
//! [`Fixture`] gives it a fresh store on a [`VirtualClock`]. [`conformance_tests!`](crate::conformance_tests)
//! makes each clause a `#[test]` of its own:
//!
//! ```
//! use backwave::MemoryStore;
//! use backwave::testing::{VirtualClock, conformance::Fixture};
//!
//! fn fixture() -> Fixture {
//!     let clock = VirtualClock::new();
//!     let store = MemoryStore::with_clock(clock.clone());
//!     Fixture::new(clock, move || store.clone())
//! }
//!
//! backwave::conformance_tests!(fixture);
//! # backwave::testing::conformance::run("enqueue::a_job_due_now_is_claimable_at_once", &fixture());
//! ```
//!
//! The clauses know a store by its contract only. They hold it to answers and to what can be read back, never to
//! how it keeps its rows.

mod claim;
mod desk;
mod enqueue;
mod exchange;
mod fence;
mod hand_back;
mod lease;
mod operations;
mod races;
mod reads;
mod reap;
mod report;

use super::VirtualClock;
use crate::store::Store;
use std::any::Any;
use std::fmt;

/// One sentence of the contract.
#[derive(Clone, Copy)]
pub struct Clause {
    /// Its topic and what it says, as a path.
    pub name: &'static str,
    /// Panics where it does not hold.
    pub run: fn(&Fixture),
}

impl fmt::Debug for Clause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clause").field(&self.name).finish()
    }
}

/// What a clause works on: an empty store of its own, judging by a virtual clock.
pub struct Fixture {
    clock: VirtualClock,
    store: Box<dyn Store>,
    reopen: Box<dyn Fn() -> Box<dyn Store> + Send + Sync>,
    /// Dropped after the store and its sessions.
    _keep: Vec<Box<dyn Any + Send + Sync>>,
}

impl Fixture {
    /// A fixture whose `open` gives a handle to the same, at first empty, data every time, judging by
    /// `clock`.
    pub fn new<S: Store>(
        clock: VirtualClock,
        open: impl Fn() -> S + Send + Sync + 'static,
    ) -> Self {
        let reopen = move || -> Box<dyn Store> { Box::new(open()) };
        Self { clock, store: reopen(), reopen: Box::new(reopen), _keep: Vec::new() }
    }

    /// Keeps `guard` until the store is dropped: a folder, a schema to take away.
    #[must_use]
    pub fn keeping(mut self, guard: impl Any + Send + Sync) -> Self {
        self._keep.push(Box::new(guard));
        self
    }

    /// The clock the store judges by.
    #[must_use]
    pub const fn clock(&self) -> &VirtualClock {
        &self.clock
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    /// Another handle on the same data, opened as another process would.
    #[must_use]
    pub fn reopen(&self) -> Box<dyn Store> {
        (self.reopen)()
    }
}

impl fmt::Debug for Fixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fixture").field("clock", &self.clock).finish_non_exhaustive()
    }
}

/// Runs the clause of that name.
///
/// # Panics
/// When the clause does not hold, or when there is none of that name.
pub fn run(name: &str, fixture: &Fixture) {
    let clause = CLAUSES.iter().find(|clause| clause.name == name);
    let clause = clause.unwrap_or_else(|| panic!("there is no clause {name:?}"));
    (clause.run)(fixture);
}

/// One list, from which both [`CLAUSES`] and `conformance_tests!` are made. The `$` is passed in so
/// that the inner macro can have arguments of its own.
macro_rules! clauses {
    ($dollar:tt $($topic:ident: [$($clause:ident,)+])+) => {
        /// Every clause.
        pub const CLAUSES: &[Clause] = &[$($(Clause {
            name: concat!(stringify!($topic), "::", stringify!($clause)),
            run: $topic::$clause,
        },)+)+];

        /// Makes each clause of the Storage Contract a `#[test]`, in a module per topic. Takes the name
        /// of a function without arguments that gives a fresh
        /// [`Fixture`](crate::testing::conformance::Fixture).
        #[macro_export]
        macro_rules! conformance_tests {
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

clauses! { $
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
        how_an_earlier_attempt_ended_explains_nothing,
        a_receipt_is_forgotten_when_a_later_attempt_is_given_back,
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
        a_renewal_counts_from_the_store_time,
        a_renewed_lease_outlives_its_first_expiry,
        a_lease_cannot_be_renewed_at_its_expiry_instant,
        only_the_holder_of_that_attempt_renews,
        an_earlier_attempt_renews_nothing,
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
}
