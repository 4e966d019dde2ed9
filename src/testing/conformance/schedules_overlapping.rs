//! Schedules that allow no overlap: in which state their last job keeps the next tick from being minted.

use super::Fixture;
use super::desk::{Desk, LEASE, outcome, retry, row};
use super::office::nothing_kept;
use super::schedules_desk::{
    MINUTE, NEW, NOT_NEW, OWNER, alone, minted, moved, schedule, with_schedule,
};
use crate::store::{
    CancelAnswer, Due, JobRow, MintRow, Minting, Outcome, RequeueAnswer, ScheduleRecord, SkipReason,
};
use crate::{JobId, JobState, WorkerId};
use std::time::Duration;

/// A schedule whose last job is this one.
#[track_caller]
fn with_last(fixture: &Fixture, job: &JobRow) -> (Desk, JobId) {
    let (mut desk, _) = with_schedule(fixture);
    let id = desk.mint_now("s", job);
    desk.wait(MINUTE);
    (desk, id)
}

/// Asks for the tick of now, while the last job lives or does not.
#[track_caller]
fn tick(desk: &mut Desk) -> Minting {
    let record = desk.schedule("s");
    desk.mint_one(&alone(&record, desk.now(), &row()))
}

/// Asks for the tick of now, which must be skipped, and leave the rest as it was.
#[track_caller]
fn skip(desk: &mut Desk) {
    let (before, counts) = (desk.schedule("s"), desk.counts());
    assert_eq!(tick(desk), Minting::Overlapped);
    let now = desk.now();
    let expected = ScheduleRecord {
        revision: before.revision + 1,
        cursor: now,
        look_at: Some(now + MINUTE),
        next_tick: Some(now + MINUTE),
        skipped: before.skipped + 1,
        last_skip: Some((now, SkipReason::Overlap)),
        ..before
    };
    assert_eq!(desk.schedule("s"), expected);
    assert_eq!(desk.counts(), counts);
}

pub(super) fn the_first_tick_overlaps_with_nothing(fixture: &Fixture) {
    let (mut desk, _) = with_schedule(fixture);
    assert_eq!(tick(&mut desk), NEW);
}

pub(super) fn a_tick_is_skipped_while_the_last_job_waits(fixture: &Fixture) {
    let (mut desk, _) = with_last(fixture, &row());
    skip(&mut desk);
    desk.wait(MINUTE);
    skip(&mut desk);
    assert_eq!(desk.schedule("s").skipped, 2);
}

pub(super) fn a_tick_is_skipped_while_the_last_job_is_not_due(fixture: &Fixture) {
    let later = JobRow { due: Due::In(MINUTE * 60), ..row() };
    let (mut desk, _) = with_last(fixture, &later);
    skip(&mut desk);
}

pub(super) fn a_tick_is_skipped_while_the_last_job_runs(fixture: &Fixture) {
    let (mut desk, id) = with_last(fixture, &row());
    assert_eq!(desk.take_one(WorkerId::new()).id, id);
    skip(&mut desk);
}

pub(super) fn a_tick_is_skipped_while_a_dead_lease_is_not_settled(fixture: &Fixture) {
    let (mut desk, _) = with_last(fixture, &row());
    desk.take_one(WorkerId::new());
    desk.wait(LEASE * 2);
    skip(&mut desk);
    // The lapse ends it, and the next tick is minted.
    let lapsed = desk.lapsed(&["default"], 9).remove(0);
    let receipt = crate::store::Receipt { pump: WorkerId::new(), sequence: 1 };
    let (owner, end) = (lapsed.owner, Outcome::DeadLettered);
    let reap = crate::store::OutcomeRow::new(lapsed.id, lapsed.attempt, owner, receipt, end);
    desk.settle(&crate::store::OutcomeRow { mode: crate::store::Mode::Reap, ..reap });
    desk.wait(MINUTE);
    assert_eq!(tick(&mut desk), NEW);
}

pub(super) fn a_tick_is_skipped_while_the_last_job_awaits_its_parent(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = desk.lone();
    let child = JobRow { parents: vec![parent], ..row() };
    let (mut desk, id) = with_last(fixture, &child);
    assert_eq!(desk.state(id), JobState::AwaitingParent);
    skip(&mut desk);
}

pub(super) fn a_tick_is_skipped_while_the_last_job_waits_for_its_next_attempt(fixture: &Fixture) {
    let (mut desk, _) = with_last(fixture, &row());
    let job = desk.take_one(WorkerId::new());
    desk.settle(&outcome(&job, retry(Duration::from_secs(3600))));
    skip(&mut desk);
}

pub(super) fn a_tick_is_skipped_while_a_cancel_is_only_asked_for(fixture: &Fixture) {
    let (mut desk, id) = with_last(fixture, &row());
    desk.take_one(WorkerId::new());
    assert_eq!(desk.cancel(id), CancelAnswer::Requested);
    skip(&mut desk);
}

pub(super) fn a_tick_is_skipped_while_the_last_jobs_queue_is_paused(fixture: &Fixture) {
    let (mut desk, _) = with_last(fixture, &row());
    desk.pause("default");
    skip(&mut desk);
}

pub(super) fn each_end_of_the_last_job_lets_the_next_tick_mint(fixture: &Fixture) {
    let (mut desk, _) = with_schedule(fixture);
    for end in [Outcome::Succeeded, Outcome::DeadLettered, Outcome::Quarantined, Outcome::Cancelled]
    {
        assert_eq!(tick(&mut desk), NEW, "before {end:?}");
        let job = desk.take_one(WorkerId::new());
        desk.settle(&outcome(&job, end));
        desk.wait(MINUTE);
    }
    assert_eq!(tick(&mut desk), NEW);
    let last = desk.schedule("s").last_job.expect("it was minted");
    assert_eq!(desk.cancel(last), CancelAnswer::Cancelled);
    desk.wait(MINUTE);
    assert_eq!(tick(&mut desk), NEW, "after an operator's cancel");
    assert_eq!(desk.schedule("s").skipped, 0);
}

pub(super) fn a_last_job_that_was_purged_overlaps_with_nothing(fixture: &Fixture) {
    let (mut desk, id) = with_last(fixture, &row());
    desk.cancel(id);
    assert_eq!(desk.purge(nothing_kept()), 1);
    assert_eq!(desk.schedule("s").last_job, Some(id), "it is remembered");
    assert_eq!(tick(&mut desk), NEW);
}

pub(super) fn a_last_job_that_was_requeued_overlaps_again(fixture: &Fixture) {
    let (mut desk, id) = with_last(fixture, &row());
    let job = desk.take_one(WorkerId::new());
    desk.settle(&outcome(&job, Outcome::DeadLettered));
    assert_eq!(desk.requeue(id), RequeueAnswer::Requeued);
    skip(&mut desk);
}

pub(super) fn only_the_last_job_overlaps(fixture: &Fixture) {
    let (mut desk, first) = with_last(fixture, &row());
    let last = desk.mint_now("s", &row());
    desk.cancel(last);
    desk.wait(MINUTE);
    assert_eq!(desk.state(first), JobState::Scheduled);
    assert_eq!(tick(&mut desk), NEW);
}

pub(super) fn a_triggered_job_overlaps_with_nothing(fixture: &Fixture) {
    let (mut desk, _) = with_schedule(fixture);
    let change = crate::store::ScheduleChange::Trigger(Box::new(row()));
    assert!(desk.change_schedule("s", change));
    assert_eq!(tick(&mut desk), NEW);
}

pub(super) fn overlap_is_allowed_where_it_is_not_forbidden(fixture: &Fixture) {
    let (mut desk, _) = with_last(fixture, &row());
    desk.mint_now("s", &row());
    assert_eq!(desk.counts(), [("default".to_owned(), JobState::Scheduled, 2)]);
    assert_eq!(desk.schedule("s").skipped, 0);
}

pub(super) fn a_decision_without_a_job_cannot_overlap(fixture: &Fixture) {
    let (mut desk, _) = with_last(fixture, &row());
    let record = desk.schedule("s");
    let row = MintRow { no_overlap: true, ..moved(&record, desk.now()) };
    assert_eq!(desk.mint_one(&row), NOT_NEW);
    assert_eq!(desk.schedule("s").skipped, 0);
}

pub(super) fn what_was_missed_is_counted_beside_an_overlap(fixture: &Fixture) {
    let (mut desk, _) = with_last(fixture, &row());
    let (record, now) = (desk.schedule("s"), desk.wait(MINUTE * 5));
    let missed = Some((4, now.saturating_sub(MINUTE)));
    let row = MintRow { missed, ..alone(&record, now, &row()) };
    assert_eq!(desk.mint_one(&row), Minting::Overlapped);
    let after = desk.schedule("s");
    let last_skip = Some((now, SkipReason::Overlap));
    assert_eq!((after.skipped, after.last_skip), (5, last_skip), "the newest is told");
}

pub(super) fn an_overlap_writes_the_rest_of_the_decision(fixture: &Fixture) {
    let (mut desk, id) = with_last(fixture, &row());
    let (record, now) = (desk.schedule("s"), desk.now());
    let error = Some("half of it".to_owned());
    let row = MintRow { look_at: None, next_tick: None, error, ..alone(&record, now, &row()) };
    assert_eq!(desk.mint_one(&row), Minting::Overlapped);
    let after = desk.schedule("s");
    assert_eq!((after.look_at, after.next_tick), (None, None));
    assert_eq!(after.error, Some(("half of it".to_owned(), now)));
    assert_eq!((after.last_job, after.last_tick), (Some(id), record.last_tick));
}

pub(super) fn a_tick_that_was_minted_already_is_no_overlap(fixture: &Fixture) {
    let (mut desk, _) = with_schedule(fixture);
    let (at, job) = (desk.now(), row());
    let record = desk.schedule("s");
    desk.mint_one(&minted(&record, at, &job));
    let record = desk.schedule("s");
    assert_eq!(desk.mint_one(&alone(&record, at, &job)), NOT_NEW);
    assert_eq!(desk.schedule("s").skipped, 0);
}

pub(super) fn a_schedule_that_starts_anew_has_no_last_job(fixture: &Fixture) {
    let (mut desk, _) = with_last(fixture, &row());
    desk.declare_whole(OWNER, &[]);
    desk.declare_whole(OWNER, &[schedule("s")]);
    assert_eq!(tick(&mut desk), NEW);
}
