//! How jobs with parents are born, and what releases them.

use super::Fixture;
use super::desk::{Desk, LEASE, SECOND, accepts, ids, lease_of, outcome, quota, reap, retry, row};
use super::family::{child, follower, member};
use crate::store::{
    CancelAnswer, Claim, Due, JobRow, Outcome, ParentRule, Rejection, RequeueAnswer,
};
use crate::{JobId, JobState, WorkerId};
use std::time::Duration;

const RULES: [ParentRule; 2] = [ParentRule::OnSuccess, ParentRule::OnAnyTerminal];

pub(super) fn a_job_whose_parent_lives_waits_for_it(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (waiting, running) = (desk.lone(), desk.lone());
    desk.grab(running);
    let awaiting = desk.child(&[waiting]);
    for parent in [waiting, running, awaiting] {
        for rule in RULES {
            let id = desk.add(&member(&[parent], rule));
            let stored = desk.job(id);
            assert_eq!((stored.state, stored.parent_rule), (JobState::AwaitingParent, rule));
            assert_eq!((stored.attempt, stored.failures, stored.finished_at), (0, 0, None));
            assert_eq!(desk.gates(id), [parent]);
        }
    }
}

pub(super) fn a_job_that_waits_for_its_parent_cannot_be_claimed(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = desk.lone();
    desk.add(&JobRow { parents: vec![parent], ..row() });
    desk.wait(SECOND * 3600);
    assert!(desk.take(WorkerId::new(), 9).is_empty());
}

pub(super) fn a_job_that_waits_for_its_parent_promises_no_due_time(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = desk.lone();
    desk.add(&JobRow { parents: vec![parent], due: Due::In(SECOND), ..row() });
    let (plan, accepted) = ([quota("default", 1)], [accepts("work", 1)]);
    let claim = Claim::new(WorkerId::new(), 1, &plan, &accepted, SECOND);
    let claimed = desk.claim(&claim);
    assert_eq!((claimed.next_due, claimed.withheld), (None, false));
}

pub(super) fn a_job_whose_parent_has_succeeded_waits_for_nothing(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = desk.lone();
    desk.succeed(parent);
    for rule in RULES {
        let id = desk.add(&member(&[parent], rule));
        assert_eq!(desk.state(id), JobState::Scheduled);
        assert!(desk.gates(id).is_empty());
        desk.succeed(id);
    }
}

/// A job that ended so.
fn ended(desk: &mut Desk, how: Outcome) -> JobId {
    let id = desk.lone();
    desk.finish(id, how);
    id
}

const FAILURES: [Outcome; 3] = [Outcome::DeadLettered, Outcome::Quarantined, Outcome::Cancelled];

pub(super) fn a_job_whose_parent_has_failed_is_born_cancelled(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for how in FAILURES {
        let parent = ended(&mut desk, how);
        desk.wait(SECOND);
        let id = desk.child(&[parent]);
        let stored = desk.job(id);
        assert_eq!((stored.state, stored.finished_at), (JobState::Cancelled, Some(desk.now())));
        assert_eq!((stored.attempt, stored.failures), (0, 0));
        assert!(!stored.cancel_requested, "nobody has asked for it");
        assert!(desk.is_out_of_reach(id));
    }
}

pub(super) fn a_follower_of_a_parent_that_failed_waits_for_nothing(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for how in FAILURES {
        let parent = ended(&mut desk, how);
        let id = desk.follower(&[parent]);
        assert_eq!(desk.state(id), JobState::Scheduled);
        desk.succeed(id);
    }
}

pub(super) fn of_ended_and_living_parents_the_living_ones_are_waited_for(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (done, live) = (ended(&mut desk, Outcome::Succeeded), desk.lone());
    for rule in RULES {
        let id = desk.add(&member(&[done, live], rule));
        assert_eq!(desk.state(id), JobState::AwaitingParent);
        assert_eq!(desk.gates(id), [live]);
    }
    let failed = ended(&mut desk, Outcome::DeadLettered);
    let id = desk.follower(&[failed, live]);
    assert_eq!((desk.state(id), desk.gates(id)), (JobState::AwaitingParent, vec![live]));
}

pub(super) fn one_failed_parent_among_living_ones_is_enough_to_be_born_cancelled(
    fixture: &Fixture,
) {
    let mut desk = Desk::open(fixture);
    let failed = ended(&mut desk, Outcome::Quarantined);
    let (done, live) = (ended(&mut desk, Outcome::Succeeded), desk.lone());
    for parents in [[failed, live, done], [live, done, failed]] {
        let id = desk.child(&parents);
        assert_eq!(desk.state(id), JobState::Cancelled);
        assert!(desk.gates(id).is_empty(), "what has ended waits for nothing");
        assert_eq!(desk.parents(id).len(), 3, "its parents are known all the same");
    }
    desk.succeed(live);
}

pub(super) fn a_job_whose_parent_was_born_cancelled_is_born_so_itself(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let failed = ended(&mut desk, Outcome::DeadLettered);
    let first = child(&[failed]);
    let second = child(&[first.id]);
    let third = follower(&[second.id]);
    desk.accept(&[first.clone(), second.clone(), third.clone()]);
    assert_eq!(desk.state(first.id), JobState::Cancelled);
    assert_eq!(desk.state(second.id), JobState::Cancelled);
    assert_eq!(desk.state(third.id), JobState::Scheduled, "any end is enough for it");
}

pub(super) fn a_parent_can_come_earlier_in_the_same_call(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let first = child(&[]);
    let (left, right) = (child(&[first.id]), child(&[first.id]));
    let last = child(&[left.id, right.id]);
    let all = [first.clone(), left.clone(), right.clone(), last.clone()];
    assert_eq!(desk.accept(&all), [true; 4]);
    assert_eq!(desk.state(first.id), JobState::Scheduled);
    for row in &all[1..] {
        assert_eq!(desk.state(row.id), JobState::AwaitingParent);
        assert_eq!(desk.gates(row.id), row.parents);
    }
    for row in &all {
        desk.succeed(row.id);
    }
}

pub(super) fn a_parent_that_comes_later_in_the_same_call_is_unknown(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = child(&[]);
    let early = child(&[parent.id]);
    let refused = desk.refuse(&[early.clone(), parent.clone()]);
    assert_eq!(refused, (0, Rejection::UnknownParent { parent: parent.id }));
    assert!(desk.find(early.id).is_none() && desk.find(parent.id).is_none(), "a part was stored");
}

pub(super) fn an_unknown_parent_fails_the_whole_call(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (known, unknown) = (desk.lone(), JobId::new());
    let all = [child(&[]), child(&[known]), child(&[known, unknown]), child(&[unknown])];
    assert_eq!(desk.refuse(&all), (2, Rejection::UnknownParent { parent: unknown }));
    assert!(all.iter().all(|row| desk.find(row.id).is_none()), "a part was stored");
    desk.succeed(known);
}

pub(super) fn a_job_cannot_be_its_own_parent(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let known = desk.lone();
    let id = JobId::new();
    let own = JobRow { parents: vec![known, id], ..JobRow::new(id, "work") };
    assert_eq!(desk.refuse_one(&own), Rejection::OwnParent { id });
}

pub(super) fn parents_are_counted_once_against_their_bound(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let limit = fixture.store().bounds().parents_max;
    let mut parents: Vec<_> = (0..limit).map(|_| desk.lone()).collect();
    let mut twice = parents.clone();
    twice.extend_from_slice(&parents);
    let id = desk.child(&twice);
    assert_eq!(desk.gates(id), parents);
    parents.push(desk.lone());
    let count = limit + 1;
    assert_eq!(desk.refuse_one(&child(&parents)), Rejection::TooManyParents { count, limit });
}

pub(super) fn a_parent_named_twice_releases_its_child_by_one_end(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (one, two) = (desk.lone(), desk.lone());
    let id = desk.child(&[two, one, two, two]);
    assert_eq!(desk.gates(id), [two, one], "the first place counts");
    desk.succeed(two);
    assert_eq!(desk.state(id), JobState::AwaitingParent);
    desk.succeed(one);
    assert_eq!(desk.state(id), JobState::Scheduled);
}

pub(super) fn an_id_that_exists_keeps_the_parents_it_has(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (one, other) = (desk.lone(), desk.lone());
    let given = child(&[one]);
    desk.add(&given);
    let again = JobRow { parents: vec![other], parent_rule: ParentRule::OnAnyTerminal, ..given };
    assert_eq!(desk.accept(std::slice::from_ref(&again)), [false]);
    assert_eq!(desk.gates(again.id), [one]);
    let lost = JobRow { parents: vec![JobId::new()], ..again };
    assert_eq!(desk.accept(std::slice::from_ref(&lost)), [false], "they are not looked at");
    assert_eq!(desk.job(lost.id).parent_rule, ParentRule::OnSuccess);
}

pub(super) fn an_id_that_exists_without_parents_gets_none_later(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (parent, id) = (desk.lone(), desk.lone());
    let again = JobRow { id, ..child(&[parent]) };
    assert_eq!(desk.accept(std::slice::from_ref(&again)), [false]);
    assert!(desk.parents(id).is_empty());
    desk.succeed(id);
}

pub(super) fn of_an_id_twice_in_one_call_the_first_has_its_parents(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (one, other) = (desk.lone(), desk.lone());
    let first = child(&[one]);
    let second = JobRow { parents: vec![other], ..first.clone() };
    assert_eq!(desk.accept(&[first.clone(), second]), [true, false]);
    assert_eq!(desk.gates(first.id), [one]);
    assert_eq!(desk.parents(first.id).len(), 1);
}

pub(super) fn the_last_of_its_parents_releases_a_job(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parents = [desk.lone(), desk.lone(), desk.lone()];
    let id = desk.child(&parents);
    for (parent, left) in [(1, vec![parents[0], parents[2]]), (2, vec![parents[0]])] {
        desk.succeed(parents[parent]);
        assert_eq!((desk.state(id), desk.gates(id)), (JobState::AwaitingParent, left));
    }
    desk.succeed(parents[0]);
    assert_eq!((desk.state(id), desk.gates(id)), (JobState::Scheduled, vec![]));
}

pub(super) fn a_released_job_is_claimable_at_once_and_due_at_its_release(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = desk.lone();
    let id = desk.child(&[parent]);
    let born = desk.job(id);
    assert_eq!(born.due_at, desk.now(), "its own due time is that of its enqueue");
    desk.wait(SECOND);
    desk.succeed(parent);
    assert_eq!(desk.job(id).due_at, desk.now());
    assert_eq!(desk.job(id).created_at, born.created_at);
    assert_eq!(desk.grab(id).attempt, 1);
}

pub(super) fn a_released_job_is_ordered_by_its_release(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = desk.lone();
    let id = desk.add(&JobRow { parents: vec![parent], ..row() });
    desk.wait(SECOND);
    let earlier = desk.add(&row());
    desk.wait(SECOND);
    desk.succeed(parent);
    desk.wait(SECOND);
    let later = desk.add(&row());
    assert_eq!(ids(&desk.take(WorkerId::new(), 9)), [earlier, id, later]);
}

pub(super) fn a_delay_of_its_own_counts_from_the_enqueue_and_holds_after_the_release(
    fixture: &Fixture,
) {
    let mut desk = Desk::open(fixture);
    let (early, late) = (desk.lone(), desk.lone());
    let due = desk.now() + SECOND * 10;
    let delayed = |parent| JobRow { due: Due::In(SECOND * 10), ..child(&[parent]) };
    let (first, second) = (desk.add(&delayed(early)), desk.add(&delayed(late)));
    desk.wait(SECOND * 4);
    desk.succeed(early);
    assert_eq!((desk.state(first), desk.job(first).due_at), (JobState::Scheduled, due));
    assert!(desk.is_out_of_reach(first));
    desk.wait(SECOND * 6);
    desk.grab(first);
    desk.wait(SECOND);
    desk.succeed(late);
    assert_eq!(desk.job(second).due_at, desk.now(), "its delay has passed meanwhile");
    desk.grab(second);
}

pub(super) fn a_parent_that_is_to_run_again_releases_nothing(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = desk.lone();
    let (strict, any) = (desk.child(&[parent]), desk.follower(&[parent]));
    for how in [Outcome::Snooze { after: Duration::ZERO }, retry(Duration::ZERO)] {
        desk.finish(parent, how);
        assert_eq!(desk.state(strict), JobState::AwaitingParent);
        assert_eq!(desk.state(any), JobState::AwaitingParent);
    }
    let job = desk.grab(parent);
    let worker = job.owner.expect("a claimed job has an owner");
    assert_eq!(desk.hand_back(worker, &[lease_of(&job)]), [true]);
    let again = desk.grab(parent);
    assert_eq!(desk.revoke(again.owner.expect("an owner"), 9).jobs, [parent]);
    assert_eq!((desk.gates(strict), desk.gates(any)), (vec![parent], vec![parent]));
    desk.succeed(parent);
    assert_eq!(desk.state(strict), JobState::Scheduled);
    assert_eq!(desk.state(any), JobState::Scheduled);
}

pub(super) fn a_stale_end_of_a_parent_releases_nothing(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = desk.lone();
    let id = desk.child(&[parent]);
    let job = desk.grab(parent);
    desk.wait(LEASE);
    desk.settle(&outcome(&job, Outcome::Succeeded));
    assert_eq!(desk.state(id), JobState::AwaitingParent);
    desk.settle(&reap(&job, retry(Duration::ZERO)));
    desk.settle(&outcome(&job, Outcome::DeadLettered));
    assert_eq!((desk.state(id), desk.gates(id)), (JobState::AwaitingParent, vec![parent]));
}

pub(super) fn a_waiting_job_is_cancelled_with_its_gates(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = desk.lone();
    let id = desk.child(&[parent]);
    desk.wait(SECOND);
    assert_eq!(desk.cancel(id), CancelAnswer::Cancelled);
    let stored = desk.job(id);
    assert_eq!((stored.state, stored.finished_at), (JobState::Cancelled, Some(desk.now())));
    assert!(desk.gates(id).is_empty());
    desk.wait(SECOND);
    desk.succeed(parent);
    assert_eq!(desk.job(id), stored, "its parent's end is nothing to it any more");
}

pub(super) fn a_waiting_job_cannot_be_requeued(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = desk.lone();
    let id = desk.child(&[parent]);
    assert_eq!(desk.requeue(id), RequeueAnswer::IllegalState(JobState::AwaitingParent));
    assert_eq!(desk.gates(id), [parent]);
}

pub(super) fn a_requeued_parent_brings_no_cancelled_child_back(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = desk.lone();
    let (strict, any) = (desk.child(&[parent]), desk.follower(&[parent]));
    desk.fail(parent);
    assert_eq!(desk.requeue(parent), RequeueAnswer::Requeued);
    let (cancelled, released) = (desk.job(strict), desk.job(any));
    assert_eq!(cancelled.state, JobState::Cancelled);
    assert_eq!(released.state, JobState::Scheduled);
    desk.wait(SECOND);
    desk.succeed(parent);
    assert_eq!((desk.job(strict), desk.job(any)), (cancelled, released));
}

pub(super) fn a_requeued_parent_is_waited_for_by_those_who_come_later(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = desk.lone();
    desk.fail(parent);
    desk.requeue(parent);
    let id = desk.child(&[parent]);
    assert_eq!((desk.state(id), desk.gates(id)), (JobState::AwaitingParent, vec![parent]));
    desk.succeed(parent);
    assert_eq!(desk.state(id), JobState::Scheduled);
}

pub(super) fn a_thousand_jobs_with_parents_come_in_by_one_call(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut all = vec![row()];
    for index in 1..1000_usize {
        let parents = [all[index - 1].id, all[index / 2].id];
        all.push(JobRow { parents: parents.to_vec(), ..row() });
    }
    assert_eq!(desk.accept(&all), [true; 1000]);
    assert_eq!(desk.count("default", JobState::AwaitingParent), 999);
    assert_eq!(desk.gates(all[500].id), [all[499].id, all[250].id]);
}
