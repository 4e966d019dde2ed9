//! What is not written, and why: the holder's fence and the receipts.

use super::Fixture;
use super::desk::{Desk, LEASE, TICK, lease_of, outcome, reap, retry, rows};
use crate::store::{Outcome, OutcomeRow, RowReport, StaleReason};
use crate::{JobId, JobState, WorkerId};
use std::time::Duration;

const fn stale(reason: StaleReason) -> RowReport {
    RowReport::Stale(reason)
}

pub(super) fn a_lease_is_live_to_the_last_microsecond(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    desk.wait(LEASE - TICK);
    let row = outcome(&job, Outcome::Succeeded);
    assert_eq!(desk.settle(&row), RowReport::Applied(JobState::Succeeded));
}

pub(super) fn a_lease_is_dead_at_its_expiry_instant(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    desk.wait(LEASE);
    assert_eq!(desk.now(), job.expiry);
    let before = desk.job(job.id);
    assert_eq!(desk.settle(&outcome(&job, Outcome::Succeeded)), stale(StaleReason::Lapsed));
    assert_eq!(desk.job(job.id), before);
}

pub(super) fn only_its_owner_ends_an_attempt(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    let other = OutcomeRow { owner: WorkerId::new(), ..outcome(&job, Outcome::Succeeded) };
    assert_eq!(desk.settle(&other), stale(StaleReason::Unknown));
    assert_eq!(desk.state(job.id), JobState::Leased);
}

pub(super) fn only_the_attempt_that_runs_is_ended(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    for attempt in [0, 2] {
        let other = OutcomeRow { attempt, ..outcome(&job, Outcome::Succeeded) };
        assert_eq!(desk.settle(&other), stale(StaleReason::Unknown));
    }
    assert_eq!(desk.state(job.id), JobState::Leased);
}

pub(super) fn a_job_that_waits_cannot_be_ended(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    desk.hand_back(worker, &[lease_of(&job)]);
    assert_eq!(desk.settle(&outcome(&job, Outcome::Succeeded)), stale(StaleReason::Unknown));
    assert_eq!(desk.state(job.id), JobState::Scheduled);
}

pub(super) fn a_job_that_is_not_there_is_gone(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    let row = OutcomeRow { job: JobId::new(), ..outcome(&job, Outcome::Succeeded) };
    assert_eq!(desk.settle(&row), stale(StaleReason::Gone));
}

pub(super) fn an_attempt_that_was_reaped_is_stale_and_says_so(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    desk.wait(LEASE);
    desk.settle(&reap(&job, retry(Duration::ZERO)));
    let late = outcome(&job, Outcome::Succeeded);
    assert_eq!(desk.settle(&late), stale(StaleReason::Reaped));
    let again = desk.take_one(WorkerId::new());
    assert_eq!(desk.settle(&late), stale(StaleReason::Reaped), "also while it runs again");
    desk.settle(&outcome(&again, Outcome::DeadLettered));
    assert_eq!(desk.settle(&late), stale(StaleReason::Reaped), "also after a later attempt ended");
    assert_eq!(desk.state(job.id), JobState::DeadLettered);
}

pub(super) fn the_same_receipt_again_is_already_applied(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    let row = outcome(&job, retry(Duration::ZERO));
    assert_eq!(desk.settle(&row), RowReport::Applied(JobState::Scheduled));
    let before = desk.job(job.id);
    desk.wait(TICK);
    assert_eq!(desk.settle(&row), RowReport::AlreadyApplied(JobState::Scheduled));
    assert_eq!(desk.job(job.id), before, "nothing was written twice");
    let again = desk.take_one(worker);
    assert_eq!(desk.settle(&row), RowReport::AlreadyApplied(JobState::Leased));
    desk.settle(&outcome(&again, Outcome::Succeeded));
    assert_eq!(desk.settle(&row), stale(StaleReason::Reaped), "a later settlement took its place");
}

pub(super) fn the_same_receipt_is_known_long_after_the_lease(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    let row = outcome(&job, Outcome::Succeeded);
    desk.settle(&row);
    desk.wait(LEASE * 100);
    assert_eq!(desk.settle(&row), RowReport::AlreadyApplied(JobState::Succeeded));
}

pub(super) fn another_receipt_for_an_attempt_that_ended_is_stale(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.end(Outcome::Succeeded);
    let other = outcome(&job, Outcome::DeadLettered);
    assert_eq!(desk.settle(&other), stale(StaleReason::Unknown));
    assert_eq!(desk.state(job.id), JobState::Succeeded);
}

pub(super) fn receipts_are_told_apart_by_pump_and_by_number(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    let mut row = outcome(&job, Outcome::Succeeded);
    row.receipt.sequence = i64::MAX as u64;
    desk.settle(&row);
    let mut other = row.clone();
    other.receipt.sequence -= 1;
    assert_eq!(desk.settle(&other), stale(StaleReason::Unknown));
    let mut other = row.clone();
    other.receipt.pump = WorkerId::new();
    assert_eq!(desk.settle(&other), stale(StaleReason::Unknown));
    assert_eq!(desk.settle(&row), RowReport::AlreadyApplied(JobState::Succeeded));
}

pub(super) fn a_receipt_outlives_a_requeue(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    let row = outcome(&job, Outcome::DeadLettered);
    desk.settle(&row);
    desk.requeue(job.id);
    assert_eq!(desk.settle(&row), RowReport::AlreadyApplied(JobState::Scheduled));
}

pub(super) fn how_an_earlier_attempt_ended_explains_nothing(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    desk.wait(LEASE);
    desk.settle(&reap(&job, retry(Duration::ZERO)));
    let again = desk.take_one(WorkerId::new());
    let other = OutcomeRow { owner: WorkerId::new(), ..outcome(&again, Outcome::Succeeded) };
    assert_eq!(desk.settle(&other), stale(StaleReason::Unknown));
    assert_eq!(desk.state(job.id), JobState::Leased);
}

pub(super) fn a_receipt_is_forgotten_when_a_later_attempt_is_given_back(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    let row = outcome(&job, retry(Duration::ZERO));
    desk.settle(&row);
    let again = desk.take_one(worker);
    desk.hand_back(worker, &[lease_of(&again)]);
    assert_eq!(desk.settle(&row), stale(StaleReason::Reaped));
}

pub(super) fn stale_rows_do_not_keep_the_others_of_their_batch(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.accept(&rows(5));
    let jobs = desk.take(WorkerId::new(), 5);
    let mut batch: Vec<_> = jobs.iter().map(|job| outcome(job, Outcome::Succeeded)).collect();
    desk.settle(&batch[1]);
    batch[0].owner = WorkerId::new();
    batch[3].job = JobId::new();
    let applied = RowReport::Applied(JobState::Succeeded);
    let expected = [
        stale(StaleReason::Unknown),
        RowReport::AlreadyApplied(JobState::Succeeded),
        applied,
        stale(StaleReason::Gone),
        applied,
    ];
    assert_eq!(desk.report(&batch), expected);
    assert_eq!(desk.state(jobs[0].id), JobState::Leased);
    assert_eq!(desk.state(jobs[3].id), JobState::Leased);
}

pub(super) fn a_job_twice_in_one_batch_is_ended_once(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    let row = outcome(&job, retry(Duration::ZERO));
    let answers = desk.report(&[row.clone(), row]);
    assert_eq!(answers[0], RowReport::Applied(JobState::Scheduled));
    assert_eq!(answers[1], RowReport::AlreadyApplied(JobState::Scheduled));
    assert_eq!(desk.job(job.id).failures, 1);
}
