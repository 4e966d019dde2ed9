//! What the end of a parent does to its dependents, whoever wrote it.

use super::Fixture;
use super::desk::{Desk, SECOND, accepts, ids, outcome, quota, row};
use super::family::{Way, child, member};
use crate::store::{
    BulkChange, CancelAnswer, Claim, JobFilter, JobRow, Outcome, ParentRule, RowReport,
};
use crate::{JobId, JobState, WorkerId};

/// A parent ends in that way: a dependent of either rule, and of each a dependent.
#[track_caller]
fn ends(fixture: &Fixture, way: Way) {
    let mut desk = Desk::open(fixture);
    let parent = desk.lone();
    let (strict, any) = (desk.child(&[parent]), desk.follower(&[parent]));
    let (below, beyond) = (desk.child(&[strict]), desk.follower(&[strict]));
    desk.wait(SECOND);
    desk.end_by(parent, way);
    assert_eq!(desk.job(parent).finished_at, Some(desk.now()));
    assert_eq!((desk.state(any), desk.job(any).due_at), (JobState::Scheduled, desk.now()));
    if way == Way::Succeeded {
        assert_eq!(desk.state(strict), JobState::Scheduled);
        assert_eq!(desk.state(below), JobState::AwaitingParent);
        assert_eq!(desk.state(beyond), JobState::AwaitingParent);
        return;
    }
    for cancelled in [strict, below] {
        let stored = desk.job(cancelled);
        assert_eq!((stored.state, stored.finished_at), (JobState::Cancelled, Some(desk.now())));
        assert_eq!((stored.attempt, stored.failures), (0, 0));
        assert!(!stored.cancel_requested, "nobody has asked for it");
        assert!(desk.gates(cancelled).is_empty());
    }
    assert_eq!(desk.state(beyond), JobState::Scheduled, "any end is enough for it");
}

pub(super) fn a_success_releases_dependents_of_either_rule(fixture: &Fixture) {
    ends(fixture, Way::Succeeded);
}

pub(super) fn a_dead_letter_cancels_strict_dependents_and_releases_others(fixture: &Fixture) {
    ends(fixture, Way::DeadLettered);
}

pub(super) fn a_reapers_dead_letter_does_the_same(fixture: &Fixture) {
    ends(fixture, Way::DeadLetteredByTheReaper);
}

pub(super) fn a_quarantine_does_the_same(fixture: &Fixture) {
    ends(fixture, Way::Quarantined);
}

pub(super) fn giving_way_to_a_cancel_does_the_same(fixture: &Fixture) {
    ends(fixture, Way::CalledOff);
}

pub(super) fn a_cancel_of_a_waiting_parent_does_the_same(fixture: &Fixture) {
    ends(fixture, Way::CancelledWaiting);
}

pub(super) fn a_bulk_cancel_of_a_waiting_parent_does_the_same(fixture: &Fixture) {
    ends(fixture, Way::CancelledInBulk);
}

pub(super) fn a_retry_under_a_cancel_request_does_the_same(fixture: &Fixture) {
    ends(fixture, Way::Retried);
}

pub(super) fn a_lapse_under_a_cancel_request_does_the_same(fixture: &Fixture) {
    ends(fixture, Way::Lapsed);
}

pub(super) fn a_hand_back_under_a_cancel_request_does_the_same(fixture: &Fixture) {
    ends(fixture, Way::HandedBack);
}

pub(super) fn a_revoke_under_a_cancel_request_does_the_same(fixture: &Fixture) {
    ends(fixture, Way::Revoked);
}

pub(super) fn a_cancel_of_a_parent_that_awaits_its_own_does_the_same(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let top = desk.lone();
    let parent = desk.child(&[top]);
    let (strict, any) = (desk.child(&[parent]), desk.follower(&[parent]));
    assert_eq!(desk.cancel(parent), CancelAnswer::Cancelled);
    assert_eq!(desk.state(strict), JobState::Cancelled);
    assert_eq!(desk.state(any), JobState::Scheduled);
    assert_eq!(desk.state(top), JobState::Scheduled, "nothing goes upward");
}

pub(super) fn a_cancel_request_on_a_running_parent_changes_nothing_yet(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = desk.lone();
    let (strict, any) = (desk.child(&[parent]), desk.follower(&[parent]));
    let job = desk.grab(parent);
    assert_eq!(desk.cancel(parent), CancelAnswer::Requested);
    assert_eq!(desk.state(strict), JobState::AwaitingParent);
    assert_eq!(desk.state(any), JobState::AwaitingParent);
    desk.settle(&outcome(&job, Outcome::Succeeded));
    assert_eq!(desk.state(strict), JobState::Scheduled, "it has succeeded in spite of it");
}

pub(super) fn an_exchange_releases_and_claims_in_one(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = desk.lone();
    let id = desk.add(&JobRow { parents: vec![parent], ..row() });
    let job = desk.grab(parent);
    let (plan, accepted) = ([quota("default", 5)], [accepts("work", 1)]);
    let worker = WorkerId::new();
    let claim = Claim::new(worker, 5, &plan, &accepted, SECOND);
    let exchanged = desk.exchange(&[outcome(&job, Outcome::Succeeded)], &claim);
    assert_eq!(ids(&exchanged.claimed.jobs), [id]);
    assert_eq!(desk.state(id), JobState::Leased);
}

pub(super) fn a_dependent_of_several_is_cancelled_by_the_first_that_fails(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parents = [desk.lone(), desk.lone(), desk.lone()];
    let id = desk.child(&parents);
    desk.succeed(parents[0]);
    desk.fail(parents[1]);
    let stored = desk.job(id);
    assert_eq!(stored.state, JobState::Cancelled);
    assert!(desk.gates(id).is_empty(), "all of its gates have gone");
    desk.wait(SECOND);
    desk.succeed(parents[2]);
    assert_eq!(desk.job(id), stored);
}

pub(super) fn a_follower_of_several_waits_for_the_last_of_them(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parents = [desk.lone(), desk.lone(), desk.lone()];
    let id = desk.follower(&parents);
    desk.fail(parents[1]);
    assert_eq!(desk.cancel(parents[0]), CancelAnswer::Cancelled);
    assert_eq!(desk.gates(id), [parents[2]]);
    desk.succeed(parents[2]);
    assert_eq!(desk.state(id), JobState::Scheduled);
}

/// A chain below `top`, each dependent on the one before.
fn chain(desk: &mut Desk, top: JobId, rules: &[ParentRule]) -> Vec<JobId> {
    let mut last = top;
    let link = |rule: &ParentRule| {
        let row = member(&[last], *rule);
        last = row.id;
        row
    };
    let rows: Vec<_> = rules.iter().map(link).collect();
    desk.accept(&rows);
    rows.iter().map(|row| row.id).collect()
}

pub(super) fn a_failure_cancels_a_long_chain_at_once(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let top = desk.lone();
    let links = chain(&mut desk, top, &[ParentRule::OnSuccess; 60]);
    desk.fail(top);
    for link in links {
        let stored = desk.job(link);
        assert_eq!((stored.state, stored.finished_at), (JobState::Cancelled, Some(desk.now())));
    }
}

pub(super) fn a_chain_is_released_link_by_link(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let top = desk.lone();
    let links = chain(&mut desk, top, &[ParentRule::OnSuccess; 5]);
    desk.succeed(top);
    for (index, link) in links.iter().enumerate() {
        assert_eq!(desk.state(*link), JobState::Scheduled);
        for below in &links[index + 1..] {
            assert_eq!(desk.state(*below), JobState::AwaitingParent);
        }
        desk.succeed(*link);
    }
}

pub(super) fn a_cascade_ends_at_the_first_follower(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let top = desk.lone();
    let rules = [ParentRule::OnSuccess, ParentRule::OnAnyTerminal, ParentRule::OnSuccess];
    let links = chain(&mut desk, top, &rules);
    desk.fail(top);
    let states = [JobState::Cancelled, JobState::Scheduled, JobState::AwaitingParent];
    assert_eq!(links.iter().map(|link| desk.state(*link)).collect::<Vec<_>>(), states);
    desk.succeed(links[1]);
    assert_eq!(desk.state(links[2]), JobState::Scheduled);
}

pub(super) fn a_chain_of_followers_runs_whatever_its_links_come_to(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let top = desk.lone();
    let links = chain(&mut desk, top, &[ParentRule::OnAnyTerminal; 4]);
    desk.fail(top);
    desk.finish(links[0], Outcome::Quarantined);
    desk.finish(links[1], Outcome::Cancelled);
    assert_eq!(desk.cancel(links[2]), CancelAnswer::Cancelled);
    assert_eq!(desk.state(links[3]), JobState::Scheduled);
}

/// A top, two in the middle, and one below that depends on both.
fn diamond(desk: &mut Desk) -> [JobId; 4] {
    let top = desk.lone();
    let (left, right) = (desk.child(&[top]), desk.child(&[top]));
    [top, left, right, desk.child(&[left, right])]
}

pub(super) fn the_bottom_of_a_diamond_waits_for_both_sides(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let [top, left, right, bottom] = diamond(&mut desk);
    desk.succeed(top);
    desk.succeed(right);
    assert_eq!((desk.state(bottom), desk.gates(bottom)), (JobState::AwaitingParent, vec![left]));
    desk.succeed(left);
    desk.succeed(bottom);
}

pub(super) fn a_failure_on_one_side_of_a_diamond_cancels_its_bottom(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let [top, left, right, bottom] = diamond(&mut desk);
    desk.succeed(top);
    desk.fail(left);
    assert_eq!(desk.state(bottom), JobState::Cancelled);
    desk.succeed(right);
    assert_eq!(desk.state(bottom), JobState::Cancelled);
}

pub(super) fn a_failure_at_the_top_of_a_diamond_cancels_all_of_it(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let [top, left, right, bottom] = diamond(&mut desk);
    let (aside, after) = (desk.lone(), desk.follower(&[left, right, bottom]));
    let both = desk.child(&[aside, bottom]);
    desk.fail(top);
    for id in [left, right, bottom, both] {
        assert_eq!(desk.state(id), JobState::Cancelled);
        assert!(desk.gates(id).is_empty());
    }
    assert_eq!(desk.state(after), JobState::Scheduled, "all three have ended by one write");
    assert_eq!(desk.state(aside), JobState::Scheduled);
}

/// Two parents end by one report: `hows` in the order of the rows.
fn end_both(desk: &mut Desk, parents: [JobId; 2], hows: [Outcome; 2]) {
    let jobs = parents.map(|parent| desk.grab(parent));
    let rows = [outcome(&jobs[0], hows[0]), outcome(&jobs[1], hows[1])];
    assert_eq!(desk.report(&rows), hows.map(|how| RowReport::Applied(how.state(false))));
}

pub(super) fn two_parents_that_succeed_in_one_batch_release_a_dependent(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (one, two, other) = (desk.lone(), desk.lone(), desk.lone());
    let (id, more) = (desk.child(&[one, two]), desk.child(&[one, two, other]));
    end_both(&mut desk, [two, one], [Outcome::Succeeded; 2]);
    assert_eq!(desk.state(id), JobState::Scheduled);
    assert_eq!((desk.state(more), desk.gates(more)), (JobState::AwaitingParent, vec![other]));
}

pub(super) fn of_two_parents_in_one_batch_one_failure_cancels_a_dependent(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for hows in [
        [Outcome::Succeeded, Outcome::DeadLettered],
        [Outcome::DeadLettered, Outcome::Succeeded],
        [Outcome::DeadLettered, Outcome::Quarantined],
    ] {
        let (one, two) = (desk.lone(), desk.lone());
        let (strict, any) = (desk.child(&[one, two]), desk.follower(&[one, two]));
        end_both(&mut desk, [one, two], hows);
        assert_eq!(desk.state(strict), JobState::Cancelled, "{hows:?}");
        assert_eq!(desk.state(any), JobState::Scheduled, "{hows:?}");
    }
}

pub(super) fn a_parent_and_its_own_dependents_parent_end_in_one_batch(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (first, other) = (desk.lone(), desk.lone());
    let middle = desk.child(&[first]);
    let last = desk.follower(&[middle, other]);
    end_both(&mut desk, [other, first], [Outcome::Succeeded, Outcome::DeadLettered]);
    assert_eq!(desk.state(middle), JobState::Cancelled);
    assert_eq!(desk.state(last), JobState::Scheduled);
}

pub(super) fn an_end_that_was_applied_already_does_nothing_twice(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = desk.lone();
    let id = desk.child(&[parent]);
    let row = outcome(&desk.grab(parent), Outcome::Succeeded);
    desk.settle(&row);
    desk.grab(id);
    assert_eq!(desk.settle(&row), RowReport::AlreadyApplied(JobState::Succeeded));
    assert_eq!(desk.state(id), JobState::Leased);
}

pub(super) fn parents_and_dependents_cancelled_by_one_bulk_all_end(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let top = JobRow { queue: "tree".to_owned(), ..child(&[]) };
    let middle = JobRow { queue: "tree".to_owned(), ..child(&[top.id]) };
    let bottom = JobRow { queue: "tree".to_owned(), ..child(&[middle.id, top.id]) };
    desk.accept(&[top.clone(), middle.clone(), bottom.clone()]);
    let after = desk.follower(&[bottom.id]);
    let filter = JobFilter::new().queue("tree");
    desk.bulk_all(BulkChange::Cancel, &filter, 200);
    for row in [&top, &middle, &bottom] {
        assert_eq!(desk.state(row.id), JobState::Cancelled);
        assert!(desk.gates(row.id).is_empty());
    }
    assert_eq!(desk.state(after), JobState::Scheduled);
}
