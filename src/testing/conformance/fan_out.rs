//! More dependents than one write resolves.

use super::Fixture;
use super::desk::{Desk, SECOND, outcome, row};
use super::family::child;
use super::office::nothing_kept;
use crate::store::{
    BulkChange, JobFilter, JobRow, LatchesWorkedOff, Outcome, ParentRule, RequeueAnswer,
};
use crate::{JobId, JobState};

/// So many gates are resolved by one write.
const AT_ONCE: u64 = 1_000;

/// Enqueues a parent and `count` dependents in the queue `default`.
fn fan(desk: &mut Desk, count: usize, parent_rule: ParentRule) -> JobId {
    let parent = desk.lone();
    let dependent = |_| JobRow { parents: vec![parent], parent_rule, ..row() };
    let rows: Vec<_> = (0..count).map(dependent).collect();
    for part in rows.chunks(1_000) {
        desk.accept(part);
    }
    parent
}

#[track_caller]
fn waiting(desk: &mut Desk) -> u64 {
    desk.count("default", JobState::AwaitingParent)
}

#[track_caller]
fn released(desk: &mut Desk) -> u64 {
    desk.count("default", JobState::Scheduled)
}

pub(super) fn a_thousand_dependents_are_released_by_the_write_itself(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = fan(&mut desk, 1_000, ParentRule::OnSuccess);
    desk.succeed(parent);
    assert_eq!((released(&mut desk), waiting(&mut desk)), (1_000, 0));
    let LatchesWorkedOff { resolved, more, .. } = desk.work_off(100);
    assert_eq!((resolved, more), (0, false), "nothing was left");
}

pub(super) fn what_is_over_a_thousand_is_left_and_worked_off(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = fan(&mut desk, 1_500, ParentRule::OnSuccess);
    desk.succeed(parent);
    assert_eq!((released(&mut desk), waiting(&mut desk)), (AT_ONCE, 500));
    desk.wait(SECOND);
    let LatchesWorkedOff { resolved, more, .. } = desk.work_off(300);
    assert_eq!((resolved, more), (300, true));
    assert_eq!((released(&mut desk), waiting(&mut desk)), (1_300, 200));
    let LatchesWorkedOff { resolved, more, .. } = desk.work_off(5_000);
    assert_eq!((resolved, more), (200, false));
    assert_eq!((released(&mut desk), waiting(&mut desk)), (1_500, 0));
    assert_eq!(desk.work_off(5_000).resolved, 0);
}

pub(super) fn what_is_left_by_a_failure_is_cancelled_later(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = fan(&mut desk, 1_200, ParentRule::OnSuccess);
    desk.fail(parent);
    assert_eq!(desk.count("default", JobState::Cancelled), AT_ONCE);
    desk.wait(SECOND);
    assert_eq!(desk.work_off_all(150), 200);
    assert_eq!(desk.count("default", JobState::Cancelled), 1_200);
}

pub(super) fn what_an_operators_cancel_leaves_is_worked_off_too(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = fan(&mut desk, 1_100, ParentRule::OnAnyTerminal);
    desk.cancel(parent);
    assert_eq!((released(&mut desk), waiting(&mut desk)), (AT_ONCE, 100));
    desk.work_off_all(5_000);
    assert_eq!((released(&mut desk), waiting(&mut desk)), (1_100, 0));
}

pub(super) fn the_bound_counts_all_parents_of_one_batch(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parents =
        [fan(&mut desk, 600, ParentRule::OnSuccess), fan(&mut desk, 600, ParentRule::OnSuccess)];
    let jobs = parents.map(|parent| desk.grab(parent));
    desk.report(&jobs.map(|job| outcome(&job, Outcome::Succeeded)));
    assert_eq!((released(&mut desk), waiting(&mut desk)), (AT_ONCE, 200));
    assert_eq!(desk.work_off_all(5_000), 200);
    assert_eq!(released(&mut desk), 1_200);
}

pub(super) fn a_cascade_that_is_left_goes_on_where_it_stopped(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let top = desk.lone();
    // 40 children of the top, each with 40 of its own: 1,640 gates.
    let children: Vec<_> = (0..40).map(|_| child(&[top])).collect();
    desk.accept(&children);
    for parent in &children {
        let dependent = |_| JobRow { parents: vec![parent.id], ..row() };
        desk.accept(&(0..40).map(dependent).collect::<Vec<_>>());
    }
    desk.fail(top);
    for parent in &children {
        assert_eq!(desk.state(parent.id), JobState::Cancelled, "breadth comes first");
    }
    assert_eq!(waiting(&mut desk), 1_640 - AT_ONCE);
    desk.work_off_all(250);
    assert_eq!((desk.count("default", JobState::Cancelled), waiting(&mut desk)), (1_600, 0));
}

pub(super) fn a_job_that_waits_for_a_parent_worked_off_later_waits_for_its_others(
    fixture: &Fixture,
) {
    let mut desk = Desk::open(fixture);
    let (other, parent) = (desk.lone(), fan(&mut desk, 1_000, ParentRule::OnSuccess));
    let rows: Vec<_> = (0..50).map(|_| JobRow { parents: vec![parent, other], ..row() }).collect();
    desk.accept(&rows);
    desk.succeed(parent);
    desk.work_off_all(5_000);
    assert_eq!((released(&mut desk), waiting(&mut desk)), (1_000, 50));
    desk.succeed(other);
    assert_eq!((released(&mut desk), waiting(&mut desk)), (1_050, 0));
}

pub(super) fn a_parent_requeued_meanwhile_holds_what_is_left_again(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = fan(&mut desk, 1_200, ParentRule::OnSuccess);
    desk.fail(parent);
    assert_eq!(desk.requeue(parent), RequeueAnswer::Requeued);
    let LatchesWorkedOff { resolved, more, .. } = desk.work_off(5_000);
    assert_eq!((resolved, more), (0, false), "a parent that lives resolves nothing");
    assert_eq!(waiting(&mut desk), 200);
    desk.succeed(parent);
    desk.work_off_all(5_000);
    assert_eq!(desk.count("default", JobState::Cancelled), AT_ONCE);
    assert_eq!((released(&mut desk), waiting(&mut desk)), (200, 0));
}

pub(super) fn what_is_left_of_a_parent_can_be_cancelled_by_hand(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = fan(&mut desk, 1_050, ParentRule::OnSuccess);
    desk.succeed(parent);
    let filter = JobFilter::new().state(JobState::AwaitingParent);
    assert_eq!(desk.bulk_all(BulkChange::Cancel, &filter, 200), 50);
    assert_eq!(desk.work_off_all(5_000), 0, "their gates have gone with them");
    assert_eq!((released(&mut desk), waiting(&mut desk)), (AT_ONCE, 0));
}

pub(super) fn a_parent_that_left_gates_is_not_purged(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = fan(&mut desk, 1_100, ParentRule::OnSuccess);
    desk.succeed(parent);
    assert_eq!(desk.purge(nothing_kept()), 0);
    assert_eq!(desk.work_off_all(5_000), 100);
    assert_eq!((released(&mut desk), waiting(&mut desk)), (1_100, 0));
}

pub(super) fn nothing_is_worked_off_where_nothing_was_left(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = desk.lone();
    let id = desk.child(&[parent]);
    let LatchesWorkedOff { resolved, more, .. } = desk.work_off(100);
    assert_eq!((resolved, more, desk.state(id)), (0, false, JobState::AwaitingParent));
}
