//! How dead leases are found and settled.

use super::Fixture;
use super::desk::{
    Desk, LEASE, SECOND, TICK, accepts, lease_of, outcome, quota, reap, retry, row, rows,
};
use crate::store::{Claim, JobRow, LapsedJob, Outcome, OutcomeRow, RowReport, StaleReason};
use crate::{JobId, JobState, RetryPolicy, WorkerId};
use std::time::Duration;

fn found(lapsed: &[LapsedJob]) -> Vec<JobId> {
    lapsed.iter().map(|job| job.id).collect()
}

pub(super) fn a_lease_is_found_at_its_expiry_instant_and_not_before(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    desk.wait(LEASE - TICK);
    assert!(desk.lapsed(&["default"], 9).is_empty());
    desk.wait(TICK);
    assert_eq!(found(&desk.lapsed(&["default"], 9)), [job.id]);
}

pub(super) fn a_found_lease_carries_what_decides_its_end(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let retry_policy = Some(RetryPolicy::new(4).fixed(SECOND));
    let id = desk.add(&JobRow { retry: retry_policy, ..row() });
    let first = desk.take_one(worker);
    desk.settle(&outcome(&first, retry(Duration::ZERO)));
    let second = desk.take_one(worker);
    desk.wait(LEASE * 2);
    let lapsed = desk.lapsed(&["default"], 9).remove(0);
    assert_eq!((lapsed.id, lapsed.attempt, lapsed.failures), (id, 2, 1));
    assert_eq!((lapsed.owner, lapsed.expiry), (worker, second.expiry));
    assert_eq!(lapsed.retry, retry_policy);
    assert_eq!((lapsed.wire_name.as_str(), lapsed.queue.as_str()), ("work", "default"));
}

pub(super) fn the_longest_dead_is_found_first_and_no_more_than_asked_for(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let jobs: Vec<_> = (0..4)
        .map(|_| {
            let job = desk.hold(worker);
            desk.wait(SECOND);
            job.id
        })
        .collect();
    // The first is renewed, and so lapses last.
    let first = desk.held(worker)[0].0;
    desk.renew(worker, &[first]);
    desk.wait(LEASE);
    assert_eq!(found(&desk.lapsed(&["default"], 2)), jobs[1..3]);
    assert_eq!(found(&desk.lapsed(&["default"], 9)), [jobs[1], jobs[2], jobs[3], jobs[0]]);
    assert!(desk.lapsed(&["default"], 0).is_empty());
}

pub(super) fn only_the_queues_asked_for_are_searched(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let jobs: Vec<_> =
        ["a", "b", "it's"].map(|queue| JobRow { queue: queue.to_owned(), ..row() }).into();
    desk.accept(&jobs);
    let plan = [quota("a", 1), quota("b", 1), quota("it's", 1)];
    let accepted = [accepts("work", 1)];
    desk.claim(&Claim::new(WorkerId::new(), 3, &plan, &accepted, LEASE));
    desk.wait(LEASE);
    assert_eq!(found(&desk.lapsed(&["b"], 9)), [jobs[1].id]);
    assert_eq!(found(&desk.lapsed(&["it's", "a", "nobody"], 9)), [jobs[0].id, jobs[2].id]);
    assert_eq!(found(&desk.lapsed(&["b", "b"], 9)), [jobs[1].id]);
    assert!(desk.lapsed(&[], 9).is_empty());
}

pub(super) fn finding_changes_nothing(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    desk.wait(LEASE);
    let before = desk.job(job.id);
    let first = desk.lapsed(&["default"], 9);
    assert_eq!(desk.lapsed(&["default"], 9), first);
    assert_eq!(desk.job(job.id), before);
}

pub(super) fn a_wire_name_that_nobody_knows_lapses_like_any_other(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let id = desk.add(&JobRow { wire_name: "of another release".to_owned(), ..row() });
    let (plan, accepted) = ([quota("default", 1)], [accepts("of another release", 1)]);
    desk.claim(&Claim::new(WorkerId::new(), 1, &plan, &accepted, LEASE));
    desk.wait(LEASE);
    assert_eq!(found(&desk.lapsed(&["default"], 9)), [id]);
}

pub(super) fn a_reaper_settles_a_dead_lease(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    desk.wait(LEASE);
    let row =
        OutcomeRow { detail: Some("the lease lapsed".to_owned()), ..reap(&job, retry(SECOND)) };
    assert_eq!(desk.settle(&row), RowReport::Applied(JobState::Scheduled));
    let stored = desk.job(job.id);
    assert_eq!((stored.state, stored.due_at), (JobState::Scheduled, desk.now() + SECOND));
    assert_eq!((stored.attempt, stored.failures), (1, 1));
    assert_eq!((stored.owner, stored.expiry), (None, None));
    assert_eq!(stored.failure_detail.as_deref(), Some("the lease lapsed"));
    assert!(desk.lapsed(&["default"], 9).is_empty());
}

pub(super) fn a_reaper_dead_letters_a_dead_lease(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    desk.wait(LEASE);
    let row = reap(&job, Outcome::DeadLettered);
    assert_eq!(desk.settle(&row), RowReport::Applied(JobState::DeadLettered));
    assert_eq!(desk.job(job.id).finished_at, Some(desk.now()));
}

pub(super) fn a_reaper_cannot_settle_a_live_lease(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    desk.wait(LEASE - TICK);
    let row = reap(&job, Outcome::DeadLettered);
    assert_eq!(desk.settle(&row), RowReport::Stale(StaleReason::Lapsed));
    assert_eq!(desk.state(job.id), JobState::Leased);
}

pub(super) fn a_reaper_with_an_old_page_does_not_kill_a_lease_renewed_since(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    desk.wait(LEASE);
    let late = reap(&job, Outcome::DeadLettered);
    fixture.clock().set(job.expiry.saturating_sub(SECOND));
    desk.renew(worker, &[lease_of(&job)]);
    fixture.clock().set(job.expiry);
    assert_eq!(desk.settle(&late), RowReport::Stale(StaleReason::Lapsed));
    assert_eq!(desk.state(job.id), JobState::Leased);
}

pub(super) fn a_reaper_needs_that_owner_and_that_attempt(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    desk.wait(LEASE);
    let row = reap(&job, retry(SECOND));
    let unknown = RowReport::Stale(StaleReason::Unknown);
    assert_eq!(desk.settle(&OutcomeRow { owner: WorkerId::new(), ..row.clone() }), unknown);
    assert_eq!(desk.settle(&OutcomeRow { attempt: 2, ..row }), unknown);
    assert_eq!(desk.state(job.id), JobState::Leased);
}

pub(super) fn the_second_of_two_reapers_is_stale(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    desk.wait(LEASE);
    let first = reap(&job, retry(SECOND));
    desk.settle(&first);
    let second = reap(&job, retry(SECOND));
    assert_eq!(desk.settle(&second), RowReport::Stale(StaleReason::Reaped));
    assert_eq!(desk.settle(&first), RowReport::AlreadyApplied(JobState::Scheduled));
    assert_eq!(desk.job(job.id).failures, 1);
}

pub(super) fn a_reaper_finds_the_cancel_request_standing(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    desk.cancel(job.id);
    desk.wait(LEASE);
    let row = reap(&job, retry(SECOND));
    assert_eq!(desk.settle(&row), RowReport::Applied(JobState::Cancelled));
    assert_eq!(desk.job(job.id).failures, 1);
}

pub(super) fn holders_and_reapers_rows_can_share_a_batch(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let dead = desk.hold(worker);
    desk.wait(LEASE);
    let live = desk.hold(worker);
    let batch = [
        reap(&live, Outcome::DeadLettered),
        reap(&dead, Outcome::DeadLettered),
        outcome(&live, Outcome::Succeeded),
    ];
    // One job stands in two rows here: the first is refused and must not keep the last.
    let expected = [
        RowReport::Stale(StaleReason::Lapsed),
        RowReport::Applied(JobState::DeadLettered),
        RowReport::Applied(JobState::Succeeded),
    ];
    assert_eq!(desk.report(&batch), expected);
}

pub(super) fn a_thousand_dead_leases_are_found_and_settled(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.accept(&rows(1000));
    let jobs = desk.take(WorkerId::new(), 1000);
    desk.wait(LEASE);
    assert_eq!(desk.lapsed(&["default"], 1000).len(), 1000);
    let batch: Vec<_> = jobs.iter().map(|job| reap(job, retry(SECOND))).collect();
    assert_eq!(desk.report(&batch), [RowReport::Applied(JobState::Scheduled); 1000]);
    assert!(desk.lapsed(&["default"], 1000).is_empty());
}
