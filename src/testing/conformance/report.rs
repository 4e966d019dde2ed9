//! How attempts end.

use super::Fixture;
use super::desk::{Desk, LEASE, SECOND, TICK, outcome, retry, rows};
use crate::store::{Body, ClaimedJob, Outcome, OutcomeRow, RowReport};
use crate::{JobState, Timestamp, WorkerId};
use std::time::Duration;

pub(super) fn a_success_ends_the_job_and_keeps_its_output(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    desk.wait(SECOND);
    let output = Some(Body::new(br#"{ "path":"\u0000" }"#.to_vec()));
    let row = OutcomeRow { output: output.clone(), ..outcome(&job, Outcome::Succeeded) };
    assert_eq!(desk.settle(&row), RowReport::Applied(JobState::Succeeded));
    let stored = desk.job(job.id);
    assert_eq!((stored.state, stored.finished_at), (JobState::Succeeded, Some(desk.now())));
    assert_eq!((stored.owner, stored.expiry), (None, None));
    assert_eq!((stored.attempt, stored.failures), (1, 0));
    assert_eq!(stored.output, output);
    assert_eq!(stored.failure_detail, None);
}

pub(super) fn an_output_of_exactly_the_bound_is_kept(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let limit = fixture.store().bounds().output_bytes_max;
    let output = Body::new(format!("\"{}\"", "y".repeat(limit - 2)).into_bytes());
    let job = desk.hold(WorkerId::new());
    desk.settle(&OutcomeRow { output: Some(output.clone()), ..outcome(&job, Outcome::Succeeded) });
    assert_eq!(desk.job(job.id).output, Some(output));
}

pub(super) fn an_output_is_kept_with_a_success_only(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let others = [
        Outcome::DeadLettered,
        Outcome::Quarantined,
        Outcome::Cancelled,
        Outcome::Snooze { after: SECOND },
        retry(SECOND),
    ];
    for other in others {
        let job = desk.hold(WorkerId::new());
        let row = OutcomeRow { output: Some(Body::new(b"1".to_vec())), ..outcome(&job, other) };
        desk.settle(&row);
        assert_eq!(desk.job(job.id).output, None, "{other:?}");
    }
}

pub(super) fn a_retry_is_due_after_its_delay_and_counts_a_failure(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    let reported = desk.wait(SECOND);
    let delay = Duration::from_micros(5_000_001);
    assert_eq!(desk.settle(&outcome(&job, retry(delay))), RowReport::Applied(JobState::Scheduled));
    let stored = desk.job(job.id);
    assert_eq!((stored.state, stored.due_at), (JobState::Scheduled, reported + delay));
    assert_eq!((stored.attempt, stored.failures), (1, 1));
    assert_eq!((stored.owner, stored.expiry, stored.finished_at), (None, None, None));
    desk.wait(delay - TICK);
    assert!(desk.take(WorkerId::new(), 1).is_empty());
    desk.wait(TICK);
    let again = desk.take_one(WorkerId::new());
    assert_eq!((again.id, again.attempt, again.failures), (job.id, 2, 1));
}

pub(super) fn a_snooze_is_due_after_its_delay_without_a_failure(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    let row = outcome(&job, Outcome::Snooze { after: SECOND });
    assert_eq!(desk.settle(&row), RowReport::Applied(JobState::Scheduled));
    let stored = desk.job(job.id);
    assert_eq!((stored.due_at, stored.failures), (desk.now() + SECOND, 0));
    desk.wait(SECOND);
    assert_eq!(desk.take_one(WorkerId::new()).attempt, 2);
}

pub(super) fn a_delay_beyond_what_is_storable_is_cut_to_it(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    desk.settle(&outcome(&job, Outcome::Snooze { after: Duration::MAX }));
    let due = desk.job(job.id).due_at;
    assert!(due > desk.now() + Duration::from_secs(1000 * 366 * 86_400), "{due}");
    assert!(due <= Timestamp::MAX);
}

#[track_caller]
fn ends_for_good(desk: &mut Desk, how: Outcome, state: JobState, failures: u32) {
    let job = desk.hold(WorkerId::new());
    desk.wait(SECOND);
    assert_eq!(desk.settle(&outcome(&job, how)), RowReport::Applied(state));
    let stored = desk.job(job.id);
    assert_eq!((stored.state, stored.finished_at), (state, Some(desk.now())));
    assert_eq!((stored.attempt, stored.failures), (1, failures));
    assert_eq!((stored.owner, stored.expiry), (None, None));
    assert!(desk.take(WorkerId::new(), 1).is_empty());
}

pub(super) fn a_dead_letter_ends_the_job_and_counts_a_failure(fixture: &Fixture) {
    let desk = &mut Desk::open(fixture);
    ends_for_good(desk, Outcome::DeadLettered, JobState::DeadLettered, 1);
}

pub(super) fn a_quarantine_ends_the_job_without_a_failure(fixture: &Fixture) {
    ends_for_good(&mut Desk::open(fixture), Outcome::Quarantined, JobState::Quarantined, 0);
}

pub(super) fn a_cancel_ends_the_job_without_a_failure(fixture: &Fixture) {
    ends_for_good(&mut Desk::open(fixture), Outcome::Cancelled, JobState::Cancelled, 0);
}

pub(super) fn a_detail_stays_until_another_replaces_it(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let mut job = desk.hold(worker);
    let mut id = job.id;
    for (given, expected) in [(Some("first"), "first"), (None, "first"), (Some("second"), "second")]
    {
        let detail = given.map(ToOwned::to_owned);
        desk.settle(&OutcomeRow { detail, ..outcome(&job, retry(Duration::ZERO)) });
        assert_eq!(desk.job(id).failure_detail.as_deref(), Some(expected));
        job = desk.take_one(worker);
        id = job.id;
        assert_eq!(desk.job(id).failure_detail.as_deref(), Some(expected));
    }
    desk.settle(&outcome(&job, Outcome::Succeeded));
    assert_eq!(desk.job(id).failure_detail.as_deref(), Some("second"));
}

pub(super) fn a_detail_is_kept_character_by_character(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let limit = fixture.store().bounds().failure_detail_bytes_max;
    let odd = "it's \"$1\"; DROP TABLE jobs; --\n\t\\ \u{fffd} été 日本語 \u{1f921} {}%s NULL ";
    let long = "é".repeat(limit / 2);
    for text in [odd, &long, ""] {
        let job = desk.hold(WorkerId::new());
        let detail = Some(text.to_owned());
        desk.settle(&OutcomeRow { detail: detail.clone(), ..outcome(&job, Outcome::DeadLettered) });
        assert_eq!(desk.job(job.id).failure_detail, detail);
    }
}

pub(super) fn an_empty_report_is_answered_with_nothing(fixture: &Fixture) {
    assert!(Desk::open(fixture).report(&[]).is_empty());
}

/// Everything that can be said of an end, row by row, in one call.
pub(super) fn a_batch_of_every_outcome_is_written_row_by_row(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.accept(&rows(6));
    let jobs = desk.take(WorkerId::new(), 6);
    let outcomes = [
        retry(SECOND),
        Outcome::Succeeded,
        Outcome::Cancelled,
        Outcome::Snooze { after: SECOND * 2 },
        Outcome::Quarantined,
        Outcome::DeadLettered,
    ];
    let batch: Vec<_> = jobs
        .iter()
        .zip(outcomes)
        .rev()
        .map(|(job, how)| OutcomeRow {
            output: Some(Body::new(format!("\"{how:?}\"").into_bytes())),
            detail: how.is_failure().then(|| format!("{how:?}")),
            ..outcome(job, how)
        })
        .collect();
    let answers = desk.report(&batch);
    for (row, answer) in batch.iter().zip(answers) {
        let state = row.outcome.state(false);
        assert_eq!(answer, RowReport::Applied(state));
        let stored = desk.job(row.job);
        assert_eq!(stored.state, state);
        assert_eq!(stored.failures, u32::from(row.outcome.is_failure()));
        assert_eq!(stored.finished_at, state.is_terminal().then_some(desk.now()));
        assert_eq!(stored.failure_detail, row.detail);
        let output = row.output.clone().filter(|_| state == JobState::Succeeded);
        assert_eq!(stored.output, output);
        if let Some(delay) = row.outcome.delay() {
            assert_eq!(stored.due_at, desk.now() + delay);
        }
    }
}

pub(super) fn a_thousand_outcomes_are_written_by_one_call(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.accept(&rows(1000));
    let jobs = desk.take(WorkerId::new(), 1000);
    let succeeded = |job: &ClaimedJob| outcome(job, Outcome::Succeeded);
    let batch: Vec<_> = jobs.iter().rev().map(succeeded).collect();
    assert_eq!(desk.report(&batch), [RowReport::Applied(JobState::Succeeded); 1000]);
    assert_eq!(desk.report(&batch), [RowReport::AlreadyApplied(JobState::Succeeded); 1000]);
    assert_eq!(desk.counts(), [("default".to_owned(), JobState::Succeeded, 1000)]);
}

#[track_caller]
fn ends_under_a_cancel_request(desk: &mut Desk, how: Outcome, state: JobState, failures: u32) {
    let job = desk.hold(WorkerId::new());
    desk.cancel(job.id);
    desk.wait(SECOND);
    assert_eq!(desk.settle(&outcome(&job, how)), RowReport::Applied(state), "{how:?}");
    let stored = desk.job(job.id);
    assert_eq!((stored.state, stored.failures), (state, failures), "{how:?}");
    assert_eq!(stored.finished_at, Some(desk.now()));
}

pub(super) fn under_a_cancel_request_what_would_run_again_or_fail_is_cancelled(fixture: &Fixture) {
    let desk = &mut Desk::open(fixture);
    ends_under_a_cancel_request(desk, retry(SECOND), JobState::Cancelled, 1);
    ends_under_a_cancel_request(desk, Outcome::DeadLettered, JobState::Cancelled, 1);
    let snooze = Outcome::Snooze { after: SECOND };
    ends_under_a_cancel_request(desk, snooze, JobState::Cancelled, 0);
    desk.wait(LEASE);
    assert!(desk.take(WorkerId::new(), 9).is_empty());
}

pub(super) fn under_a_cancel_request_any_other_end_stays_what_it_is(fixture: &Fixture) {
    let desk = &mut Desk::open(fixture);
    ends_under_a_cancel_request(desk, Outcome::Succeeded, JobState::Succeeded, 0);
    ends_under_a_cancel_request(desk, Outcome::Quarantined, JobState::Quarantined, 0);
    ends_under_a_cancel_request(desk, Outcome::Cancelled, JobState::Cancelled, 0);
}
