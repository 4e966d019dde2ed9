//! How leases are kept, and who holds what.

use super::Fixture;
use super::desk::{Desk, LEASE, SECOND, TICK, lease_of, outcome, reap, retry, row, rows};
use crate::store::{LeaseRef, Outcome, Renewed, RowReport};
use crate::{JobId, JobState, Timestamp, WorkerId};

const fn renewed(expiry: Timestamp) -> Renewed {
    Renewed::Renewed { expiry, cancel_requested: false }
}

pub(super) fn a_renewal_counts_from_the_store_time(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    let expiry = desk.wait(SECOND * 10) + LEASE;
    assert_eq!(desk.renew(worker, &[lease_of(&job)]), [renewed(expiry)]);
    let stored = desk.job(job.id);
    assert_eq!((stored.expiry, stored.owner, stored.attempt), (Some(expiry), Some(worker), 1));
}

pub(super) fn a_renewed_lease_outlives_its_first_expiry(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    desk.wait(LEASE - TICK);
    desk.renew(worker, &[lease_of(&job)]);
    desk.wait(LEASE - TICK);
    assert!(desk.lapsed(&["default"], 9).is_empty());
    let row = outcome(&job, Outcome::Succeeded);
    assert_eq!(desk.settle(&row), RowReport::Applied(JobState::Succeeded));
}

pub(super) fn a_lease_cannot_be_renewed_at_its_expiry_instant(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    desk.wait(LEASE);
    assert_eq!(desk.renew(worker, &[lease_of(&job)]), [Renewed::Lost]);
    assert_eq!(desk.job(job.id).expiry, Some(job.expiry));
}

pub(super) fn only_the_holder_of_that_attempt_renews(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    let lease = lease_of(&job);
    assert_eq!(desk.renew(WorkerId::new(), &[lease]), [Renewed::Lost]);
    assert_eq!(desk.renew(worker, &[LeaseRef { attempt: 2, ..lease }]), [Renewed::Lost]);
    assert_eq!(desk.renew(worker, &[LeaseRef { job: JobId::new(), ..lease }]), [Renewed::Lost]);
    assert_eq!(desk.job(job.id).expiry, Some(job.expiry));
}

pub(super) fn an_earlier_attempt_renews_nothing(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    desk.hand_back(worker, &[lease_of(&job)]);
    let again = desk.take_one(worker);
    desk.wait(SECOND);
    assert_eq!(desk.renew(worker, &[lease_of(&job)]), [Renewed::Lost]);
    assert_eq!(desk.job(job.id).expiry, Some(again.expiry));
}

pub(super) fn what_has_ended_or_was_given_back_is_lost(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    desk.accept(&rows(2));
    let jobs = desk.take(worker, 2);
    desk.settle(&outcome(&jobs[0], Outcome::Succeeded));
    desk.hand_back(worker, &[lease_of(&jobs[1])]);
    let leases = [lease_of(&jobs[0]), lease_of(&jobs[1])];
    assert_eq!(desk.renew(worker, &leases), [Renewed::Lost; 2]);
}

pub(super) fn a_renewal_tells_of_a_cancel_request(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    desk.cancel(job.id);
    let told = Renewed::Renewed { expiry: desk.now() + LEASE, cancel_requested: true };
    assert_eq!(desk.renew(worker, &[lease_of(&job)]), [told]);
    assert_eq!(desk.renew(worker, &[lease_of(&job)]), [told], "and tells it again");
}

pub(super) fn a_mixed_renewal_answers_row_by_row(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    desk.accept(&rows(4));
    let jobs = desk.take(worker, 4);
    desk.settle(&outcome(&jobs[1], Outcome::Succeeded));
    desk.cancel(jobs[2].id);
    let expiry = desk.wait(SECOND) + LEASE;
    let mut leases: Vec<_> = jobs.iter().map(lease_of).collect();
    leases.reverse();
    leases.push(LeaseRef { job: JobId::new(), attempt: 1 });
    let expected = [
        renewed(expiry),
        Renewed::Renewed { expiry, cancel_requested: true },
        Renewed::Lost,
        renewed(expiry),
        Renewed::Lost,
    ];
    assert_eq!(desk.renew(worker, &leases), expected);
}

pub(super) fn a_lease_named_twice_is_answered_twice(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    let expiry = desk.wait(SECOND) + LEASE;
    assert_eq!(desk.renew(worker, &[lease_of(&job); 2]), [renewed(expiry); 2]);
}

pub(super) fn an_empty_renewal_is_answered_with_nothing(fixture: &Fixture) {
    assert!(Desk::open(fixture).renew(WorkerId::new(), &[]).is_empty());
}

pub(super) fn a_thousand_leases_are_renewed_by_one_call(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    desk.accept(&rows(1000));
    let leases: Vec<_> = desk.take(worker, 1000).iter().map(lease_of).collect();
    let expiry = desk.wait(SECOND) + LEASE;
    assert_eq!(desk.renew(worker, &leases), [renewed(expiry); 1000]);
}

pub(super) fn held_by_tells_every_lease_of_a_worker_by_ascending_id(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (worker, other) = (WorkerId::new(), WorkerId::new());
    let mut jobs = rows(4);
    jobs.reverse();
    desk.accept(&jobs);
    let mut mine = desk.take(worker, 3);
    desk.take(other, 1);
    mine.sort_by_key(|job| job.id);
    desk.wait(SECOND);
    desk.renew(worker, &[lease_of(&mine[1])]);
    let late = desk.now() + LEASE;
    let expiries = [mine[0].expiry, late, mine[2].expiry];
    let expected: Vec<_> = mine.iter().map(lease_of).zip(expiries).collect();
    assert_eq!(desk.held(worker), expected);
    assert_eq!(desk.held(other).len(), 1);
    assert!(desk.held(WorkerId::new()).is_empty());
}

pub(super) fn held_by_tells_dead_leases_until_they_are_settled(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    desk.wait(LEASE * 2);
    assert_eq!(desk.held(worker), [(lease_of(&job), job.expiry)]);
    desk.settle(&reap(&job, retry(SECOND)));
    assert!(desk.held(worker).is_empty());
}

pub(super) fn held_by_forgets_what_ended_and_what_was_given_back(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    desk.accept(&[row(), row(), row()]);
    let jobs = desk.take(worker, 3);
    desk.settle(&outcome(&jobs[0], Outcome::Cancelled));
    desk.hand_back(worker, &[lease_of(&jobs[1])]);
    assert_eq!(desk.held(worker), [(lease_of(&jobs[2]), jobs[2].expiry)]);
}
