//! A report and a claim as one.

use super::Fixture;
use super::desk::{Desk, LEASE, SECOND, accepts, ids, outcome, quota, retry, row, rows};
use crate::store::{Claim, ClaimedJob, Exchanged, Outcome, OutcomeRow, RowReport, StaleReason};
use crate::{JobId, JobState, WorkerId};
use std::time::Duration;

#[track_caller]
fn exchange(desk: &mut Desk, rows: &[OutcomeRow], worker: WorkerId, total: u32) -> Exchanged {
    let (plan, accepted) = ([quota("default", total)], [accepts("work", 1)]);
    desk.exchange(rows, &Claim::new(worker, total, &plan, &accepted, LEASE))
}

pub(super) fn an_exchange_reports_and_claims(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let first = desk.hold(worker);
    let next = desk.add(&row());
    let done = outcome(&first, Outcome::Succeeded);
    let exchanged = exchange(&mut desk, &[done], worker, 5);
    assert_eq!(exchanged.reported.rows, [RowReport::Applied(JobState::Succeeded)]);
    assert_eq!(ids(&exchanged.claimed.jobs), [next]);
    assert_eq!(desk.state(first.id), JobState::Succeeded);
    let stored = desk.job(next);
    assert_eq!((stored.state, stored.owner), (JobState::Leased, Some(worker)));
}

pub(super) fn the_claim_sees_what_the_report_wrote(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    let again = outcome(&job, retry(Duration::ZERO));
    let exchanged = exchange(&mut desk, &[again], worker, 5);
    assert_eq!(exchanged.reported.rows, [RowReport::Applied(JobState::Scheduled)]);
    let claimed = &exchanged.claimed.jobs[0];
    assert_eq!((claimed.id, claimed.attempt, claimed.failures), (job.id, 2, 1));
}

pub(super) fn stale_rows_do_not_keep_the_claim(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    let next = desk.add(&row());
    let gone = OutcomeRow { job: JobId::new(), ..outcome(&job, Outcome::Succeeded) };
    let exchanged = exchange(&mut desk, &[gone], worker, 5);
    assert_eq!(exchanged.reported.rows, [RowReport::Stale(StaleReason::Gone)]);
    assert_eq!(ids(&exchanged.claimed.jobs), [next]);
}

pub(super) fn an_exchange_without_rows_is_a_claim(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let id = desk.add(&row());
    let exchanged = exchange(&mut desk, &[], WorkerId::new(), 1);
    assert!(exchanged.reported.rows.is_empty());
    assert_eq!(ids(&exchanged.claimed.jobs), [id]);
}

pub(super) fn an_exchange_that_asks_for_nothing_is_a_report(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    desk.add(&row());
    let done = outcome(&job, Outcome::Succeeded);
    let exchanged = exchange(&mut desk, &[done], worker, 0);
    assert_eq!(exchanged.reported.rows, [RowReport::Applied(JobState::Succeeded)]);
    assert!(exchanged.claimed.jobs.is_empty());
}

pub(super) fn an_exchange_repeated_after_a_lost_answer_applies_once(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    desk.accept(&rows(2));
    let failed = [outcome(&job, retry(SECOND))];
    exchange(&mut desk, &failed, worker, 1);
    let second = exchange(&mut desk, &failed, worker, 1);
    assert_eq!(second.reported.rows, [RowReport::AlreadyApplied(JobState::Scheduled)]);
    assert_eq!(desk.job(job.id).failures, 1);
    assert_eq!(desk.held(worker).len(), 2, "what the lost answer handed out is held");
}

pub(super) fn an_exchange_tells_what_a_claim_tells(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    let snoozed = outcome(&job, Outcome::Snooze { after: SECOND });
    let exchanged = exchange(&mut desk, &[snoozed], worker, 5);
    assert!(exchanged.claimed.jobs.is_empty());
    assert_eq!(exchanged.claimed.next_due, Some(desk.now() + SECOND));
}

pub(super) fn five_hundred_are_reported_and_claimed_by_one_call(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    desk.accept(&rows(1000));
    let jobs = desk.take(worker, 500);
    let succeeded = |job: &ClaimedJob| outcome(job, Outcome::Succeeded);
    let batch: Vec<_> = jobs.iter().map(succeeded).collect();
    let exchanged = exchange(&mut desk, &batch, worker, 500);
    assert_eq!(exchanged.reported.rows, [RowReport::Applied(JobState::Succeeded); 500]);
    assert_eq!(exchanged.claimed.jobs.len(), 500);
    let expected = [
        ("default".to_owned(), JobState::Leased, 500),
        ("default".to_owned(), JobState::Succeeded, 500),
    ];
    assert_eq!(desk.counts(), expected);
}
