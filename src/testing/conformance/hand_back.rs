//! How leases are given back unfinished.

use super::Fixture;
use super::desk::{Desk, LEASE, SECOND, TICK, ids, lease_of, outcome, retry, row, rows};
use crate::store::{Due, JobRow, LeaseRef, Outcome, RowReport, StaleReason};
use crate::{JobId, JobState, WorkerId};
use std::time::Duration;

pub(super) fn a_job_given_back_waits_as_if_it_had_not_been_taken(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let id = desk.add(&JobRow { due: Due::At(desk.now().saturating_sub(SECOND)), ..row() });
    let before = desk.job(id);
    let job = desk.take_one(worker);
    desk.wait(SECOND);
    assert_eq!(desk.hand_back(worker, &[lease_of(&job)]), [true]);
    let stored = desk.job(id);
    assert_eq!((stored.state, stored.failures), (JobState::Scheduled, 0));
    assert_eq!(stored.attempt, 1, "the attempt is not given back");
    assert_eq!(stored.due_at, before.due_at, "a due time that has passed stays");
    assert_eq!((stored.owner, stored.expiry, stored.finished_at), (None, None, None));
}

pub(super) fn a_job_given_back_keeps_its_place_in_the_queue(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    desk.add(&row());
    let first = desk.take_one(worker);
    desk.wait(SECOND);
    let second = desk.add(&row());
    desk.wait(SECOND);
    desk.hand_back(worker, &[lease_of(&first)]);
    assert_eq!(ids(&desk.take(worker, 9)), [first.id, second]);
}

pub(super) fn a_due_time_that_has_not_passed_becomes_now(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    // The store's clock steps back behind the due time.
    let now = desk.now().saturating_sub(SECOND);
    fixture.clock().set(now);
    assert_eq!(desk.hand_back(worker, &[lease_of(&job)]), [true]);
    assert_eq!(desk.job(job.id).due_at, now);
    assert_eq!(desk.take_one(worker).attempt, 2);
}

pub(super) fn failures_are_kept(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    desk.settle(&outcome(&job, retry(Duration::ZERO)));
    let again = desk.take_one(worker);
    desk.hand_back(worker, &[lease_of(&again)]);
    let third = desk.take_one(worker);
    assert_eq!((third.attempt, third.failures), (3, 1));
}

pub(super) fn a_dead_lease_cannot_be_given_back(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    desk.wait(LEASE - TICK);
    let before = desk.job(job.id);
    desk.wait(TICK);
    assert_eq!(desk.hand_back(worker, &[lease_of(&job)]), [false]);
    assert_eq!(desk.job(job.id), before);
}

pub(super) fn giving_back_twice_changes_nothing(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    assert_eq!(desk.hand_back(worker, &[lease_of(&job)]), [true]);
    let before = desk.job(job.id);
    desk.wait(SECOND);
    assert_eq!(desk.hand_back(worker, &[lease_of(&job)]), [false]);
    assert_eq!(desk.job(job.id), before);
}

pub(super) fn a_lease_named_twice_is_given_back_once(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    let answers = desk.hand_back(worker, &[lease_of(&job); 2]);
    assert!(answers[0], "the first row gives it back");
    assert_eq!(desk.state(job.id), JobState::Scheduled);
}

pub(super) fn only_the_holder_of_that_attempt_gives_back(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    let lease = lease_of(&job);
    assert_eq!(desk.hand_back(WorkerId::new(), &[lease]), [false]);
    assert_eq!(desk.hand_back(worker, &[LeaseRef { attempt: 2, ..lease }]), [false]);
    assert_eq!(desk.hand_back(worker, &[LeaseRef { job: JobId::new(), ..lease }]), [false]);
    assert_eq!(desk.state(job.id), JobState::Leased);
}

pub(super) fn an_earlier_attempt_gives_nothing_back(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    desk.hand_back(worker, &[lease_of(&job)]);
    desk.take_one(worker);
    assert_eq!(desk.hand_back(worker, &[lease_of(&job)]), [false]);
    assert_eq!(desk.state(job.id), JobState::Leased);
}

pub(super) fn under_a_cancel_request_it_becomes_cancelled(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    desk.cancel(job.id);
    desk.wait(SECOND);
    assert_eq!(desk.hand_back(worker, &[lease_of(&job)]), [true]);
    let stored = desk.job(job.id);
    assert_eq!((stored.state, stored.finished_at), (JobState::Cancelled, Some(desk.now())));
    assert_eq!((stored.failures, stored.owner, stored.expiry), (0, None, None));
}

pub(super) fn a_report_after_a_hand_back_is_stale(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    desk.hand_back(worker, &[lease_of(&job)]);
    desk.take_one(WorkerId::new());
    let late = outcome(&job, Outcome::Succeeded);
    assert_eq!(desk.settle(&late), RowReport::Stale(StaleReason::Unknown));
    assert_eq!(desk.state(job.id), JobState::Leased);
}

pub(super) fn a_mixed_hand_back_answers_row_by_row(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    desk.accept(&rows(3));
    let jobs = desk.take(worker, 3);
    desk.settle(&outcome(&jobs[1], Outcome::Succeeded));
    let mut leases: Vec<_> = jobs.iter().rev().map(lease_of).collect();
    leases.push(LeaseRef { job: JobId::new(), attempt: 1 });
    assert_eq!(desk.hand_back(worker, &leases), [true, false, true, false]);
    assert!(desk.hand_back(worker, &[]).is_empty());
}

pub(super) fn a_thousand_leases_are_given_back_by_one_call(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    desk.accept(&rows(1000));
    let leases: Vec<_> = desk.take(worker, 1000).iter().map(lease_of).collect();
    assert_eq!(desk.hand_back(worker, &leases), [true; 1000]);
    assert_eq!(desk.counts(), [("default".to_owned(), JobState::Scheduled, 1000)]);
}
