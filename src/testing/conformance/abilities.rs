//! The names of the clauses for what not every store can do.

use super::Clause;

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
        a_declaration_is_whole_or_never_was,
        a_mint_is_whole_or_never_was,
        what_an_operator_does_with_a_schedule_is_whole_or_never_was,
        what_an_observer_resolves_is_whole_or_never_was,
    ]
}
