//! What is kept of a job's life, where the store is told to keep it.

use super::Fixture;
use super::desk::{Desk, LEASE, SECOND, accepts, lease_of, outcome, quota, reap, retry, row, rows};
use super::family::Way;
use super::office::Step;
use crate::store::{
    BulkChange, Claim, HistoryPolicy, JobFilter, JobRow, Outcome, OutcomeRow, TransitionBy,
};
use crate::{JobId, JobState, WorkerId};
use std::time::Duration;

const BORN: Step = (None, JobState::Scheduled, TransitionBy::Enqueue);
const CLAIMED: Step = (Some(JobState::Scheduled), JobState::Leased, TransitionBy::Claim);

#[track_caller]
fn kept(fixture: &Fixture) -> Desk {
    Desk::with_history(fixture, HistoryPolicy::Transitions)
}

/// The end of an attempt.
const fn ended(state: JobState, by: TransitionBy) -> Step {
    (Some(JobState::Leased), state, by)
}

pub(super) fn by_default_nothing_is_kept(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.end(Outcome::DeadLettered);
    desk.requeue(job.id);
    assert!(desk.history(job.id).is_empty());
}

pub(super) fn a_job_that_is_not_there_has_no_history(fixture: &Fixture) {
    assert!(kept(fixture).history(JobId::new()).is_empty());
}

pub(super) fn a_birth_is_kept(fixture: &Fixture) {
    let mut desk = kept(fixture);
    let id = desk.add(&row());
    let told = desk.history(id);
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].from, told[0].to, told[0].by), BORN);
    assert_eq!((told[0].at, told[0].attempt), (desk.now(), 0));
    assert_eq!((told[0].worker, &told[0].detail), (None, &None));
}

pub(super) fn a_birth_tells_the_state_that_its_parents_gave_it(fixture: &Fixture) {
    let mut desk = kept(fixture);
    let (live, dead) = (desk.lone(), desk.lone());
    desk.fail(dead);
    let born = |state| vec![(None, state, TransitionBy::Enqueue)];
    let awaiting = desk.child(&[live]);
    assert_eq!(desk.story(awaiting), born(JobState::AwaitingParent));
    let cancelled = desk.child(&[dead]);
    assert_eq!(desk.story(cancelled), born(JobState::Cancelled));
}

pub(super) fn a_job_that_was_not_new_is_born_once(fixture: &Fixture) {
    let mut desk = kept(fixture);
    let row = row();
    desk.accept(&[row.clone(), row.clone()]);
    desk.accept(std::slice::from_ref(&row));
    assert_eq!(desk.story(row.id), [BORN]);
}

pub(super) fn a_claim_is_kept_with_its_worker_and_attempt(fixture: &Fixture) {
    let mut desk = kept(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    let told = desk.last_step(job.id);
    assert_eq!((told.from, told.to, told.by), CLAIMED);
    assert_eq!((told.attempt, told.worker, told.at), (1, Some(worker), desk.now()));
}

pub(super) fn every_outcome_is_kept_with_the_worker_that_reported_it(fixture: &Fixture) {
    let mut desk = kept(fixture);
    let outcomes = [
        Outcome::Succeeded,
        Outcome::DeadLettered,
        Outcome::Quarantined,
        Outcome::Cancelled,
        retry(SECOND),
        Outcome::Snooze { after: SECOND },
    ];
    for how in outcomes {
        let worker = WorkerId::new();
        let job = desk.hold(worker);
        desk.wait(Duration::from_micros(7));
        desk.settle(&outcome(&job, how));
        let told = desk.last_step(job.id);
        let expected = ended(how.state(false), TransitionBy::Holder);
        assert_eq!((told.from, told.to, told.by), expected);
        assert_eq!((told.attempt, told.worker, told.at), (1, Some(worker), desk.now()));
    }
}

pub(super) fn a_reapers_end_names_the_worker_that_lost_the_lease(fixture: &Fixture) {
    let mut desk = kept(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    desk.wait(LEASE);
    desk.settle(&reap(&job, retry(Duration::ZERO)));
    let told = desk.last_step(job.id);
    assert_eq!((told.from, told.to, told.by), ended(JobState::Scheduled, TransitionBy::Reaper));
    assert_eq!(told.worker, Some(worker));
}

pub(super) fn a_hand_back_is_kept(fixture: &Fixture) {
    let mut desk = kept(fixture);
    let worker = WorkerId::new();
    let (one, two) = (desk.hold(worker), desk.hold(worker));
    desk.cancel(two.id);
    desk.hand_back(worker, &[lease_of(&one), lease_of(&two)]);
    for (job, state) in [(one, JobState::Scheduled), (two, JobState::Cancelled)] {
        let told = desk.last_step(job.id);
        assert_eq!((told.from, told.to, told.by), ended(state, TransitionBy::HandBack));
        assert_eq!((told.worker, told.attempt), (Some(worker), 1));
    }
}

pub(super) fn a_revoke_is_kept_as_an_operators(fixture: &Fixture) {
    let mut desk = kept(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    desk.revoke(worker, 9);
    let told = desk.last_step(job.id);
    assert_eq!((told.from, told.to, told.by), ended(JobState::Scheduled, TransitionBy::Operator));
    assert_eq!(told.worker, Some(worker));
}

pub(super) fn a_cancel_and_a_requeue_are_kept_as_an_operators(fixture: &Fixture) {
    let mut desk = kept(fixture);
    let id = desk.lone();
    desk.fail(id);
    desk.requeue(id);
    let (dead, scheduled) = (Some(JobState::DeadLettered), Some(JobState::Scheduled));
    let told = desk.last_step(id);
    assert_eq!((told.from, told.to, told.by), (dead, JobState::Scheduled, TransitionBy::Operator));
    assert_eq!((told.attempt, told.worker), (1, None));
    desk.cancel(id);
    let told = desk.last_step(id);
    assert_eq!(
        (told.from, told.to, told.by),
        (scheduled, JobState::Cancelled, TransitionBy::Operator)
    );
    assert_eq!(desk.history(id).len(), 5);
}

pub(super) fn what_a_bulk_changes_is_kept(fixture: &Fixture) {
    let mut desk = kept(fixture);
    let (waiting, dead) = (desk.lone(), desk.lone());
    desk.fail(dead);
    let all = JobFilter::new();
    desk.bulk(BulkChange::Requeue, &all, None, 9);
    let told = desk.last_step(dead);
    assert_eq!((told.to, told.by), (JobState::Scheduled, TransitionBy::Operator));
    desk.bulk(BulkChange::Cancel, &all, None, 9);
    for id in [waiting, dead] {
        let told = desk.last_step(id);
        assert_eq!((told.from, told.to), (Some(JobState::Scheduled), JobState::Cancelled));
        assert_eq!(told.by, TransitionBy::Operator);
    }
}

pub(super) fn a_renewal_and_a_standing_cancel_request_are_no_transitions(fixture: &Fixture) {
    let mut desk = kept(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    desk.cancel(job.id);
    desk.renew(worker, &[lease_of(&job)]);
    assert_eq!(desk.story(job.id), [BORN, CLAIMED]);
}

pub(super) fn what_was_stale_leaves_no_transition(fixture: &Fixture) {
    let mut desk = kept(fixture);
    let job = desk.hold(WorkerId::new());
    let row = outcome(&job, Outcome::Succeeded);
    desk.settle(&row);
    desk.settle(&row);
    desk.settle(&outcome(&job, Outcome::DeadLettered));
    let done = ended(JobState::Succeeded, TransitionBy::Holder);
    assert_eq!(desk.story(job.id), [BORN, CLAIMED, done]);
}

pub(super) fn a_release_and_a_cascade_are_kept_as_the_parents(fixture: &Fixture) {
    let mut desk = kept(fixture);
    for way in [Way::Succeeded, Way::DeadLettered, Way::CancelledWaiting, Way::HandedBack] {
        let parent = desk.lone();
        let (strict, any) = (desk.child(&[parent]), desk.follower(&[parent]));
        let below = desk.child(&[strict]);
        desk.end_by(parent, way);
        let mut expected = vec![(any, JobState::Scheduled)];
        if way == Way::Succeeded {
            expected.push((strict, JobState::Scheduled));
        } else {
            expected.extend([(strict, JobState::Cancelled), (below, JobState::Cancelled)]);
        }
        for (id, state) in expected {
            let told = desk.last_step(id);
            assert_eq!((told.from, told.to), (Some(JobState::AwaitingParent), state));
            assert_eq!((told.by, told.worker), (TransitionBy::Parent, None), "{way:?}");
            assert_eq!((told.attempt, told.at), (0, desk.now()));
        }
    }
}

pub(super) fn what_is_worked_off_later_is_kept_like_the_rest(fixture: &Fixture) {
    let mut desk = kept(fixture);
    let parent = desk.lone();
    let dependents: Vec<_> =
        (0..1_001).map(|_| JobRow { parents: vec![parent], ..row() }).collect();
    desk.accept(&dependents);
    desk.succeed(parent);
    desk.work_off_all(5_000);
    for row in [&dependents[0], &dependents[1_000]] {
        let born = (None, JobState::AwaitingParent, TransitionBy::Enqueue);
        let released = (Some(JobState::AwaitingParent), JobState::Scheduled, TransitionBy::Parent);
        assert_eq!(desk.story(row.id), [born, released]);
    }
}

pub(super) fn an_outcome_turned_into_a_cancel_is_told_as_it_was_written(fixture: &Fixture) {
    let mut desk = kept(fixture);
    let job = desk.hold(WorkerId::new());
    desk.cancel(job.id);
    desk.settle(&outcome(&job, retry(SECOND)));
    let told = desk.last_step(job.id);
    assert_eq!((told.to, told.by), (JobState::Cancelled, TransitionBy::Holder));
}

fn fail_with_detail(desk: &mut Desk) -> JobId {
    let job = desk.hold(WorkerId::new());
    let detail = Some("no space left".to_owned());
    desk.settle(&OutcomeRow { detail, ..outcome(&job, Outcome::DeadLettered) });
    job.id
}

pub(super) fn what_went_wrong_is_kept_where_the_policy_says_so(fixture: &Fixture) {
    let mut desk = Desk::with_history(fixture, HistoryPolicy::WithFailureDetail);
    let id = fail_with_detail(&mut desk);
    assert_eq!(desk.last_step(id).detail.as_deref(), Some("no space left"));
    desk.requeue(id);
    assert_eq!(desk.last_step(id).detail, None, "nothing went wrong in that");
    let job = desk.take_one(WorkerId::new());
    assert_eq!(desk.last_step(id).detail, None);
    desk.settle(&outcome(&job, Outcome::Succeeded));
    assert_eq!(desk.last_step(id).detail, None, "an end without a detail has none");
    assert_eq!(desk.history(id)[2].detail.as_deref(), Some("no space left"));
}

pub(super) fn what_went_wrong_is_not_kept_by_the_smaller_policy(fixture: &Fixture) {
    let mut desk = kept(fixture);
    let id = fail_with_detail(&mut desk);
    assert_eq!(desk.last_step(id).detail, None);
    assert_eq!(desk.job(id).failure_detail.as_deref(), Some("no space left"));
}

pub(super) fn a_life_is_told_in_the_order_in_which_it_was_lived(fixture: &Fixture) {
    let mut desk = kept(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    desk.settle(&outcome(&job, retry(Duration::ZERO)));
    let again = desk.take_one(worker);
    desk.hand_back(worker, &[lease_of(&again)]);
    let third = desk.take_one(worker);
    desk.wait(LEASE);
    desk.settle(&reap(&third, Outcome::DeadLettered));
    let expected = [
        BORN,
        CLAIMED,
        ended(JobState::Scheduled, TransitionBy::Holder),
        CLAIMED,
        ended(JobState::Scheduled, TransitionBy::HandBack),
        CLAIMED,
        ended(JobState::DeadLettered, TransitionBy::Reaper),
    ];
    assert_eq!(desk.story(job.id), expected);
    let told = desk.history(job.id);
    assert!(told.windows(2).all(|pair| pair[0].position < pair[1].position));
    let attempts: Vec<_> = told.iter().map(|step| step.attempt).collect();
    assert_eq!(attempts, [0, 1, 1, 2, 2, 3, 3]);
}

pub(super) fn an_exchange_is_kept_end_before_claim(fixture: &Fixture) {
    let mut desk = kept(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    let (plan, accepted) = ([quota("default", 1)], [accepts("work", 1)]);
    let claim = Claim::new(worker, 1, &plan, &accepted, LEASE);
    desk.exchange(&[outcome(&job, retry(Duration::ZERO))], &claim);
    let retried = ended(JobState::Scheduled, TransitionBy::Holder);
    assert_eq!(desk.story(job.id), [BORN, CLAIMED, retried, CLAIMED]);
}

pub(super) fn histories_of_different_jobs_are_kept_apart(fixture: &Fixture) {
    let mut desk = kept(fixture);
    let jobs = rows(3);
    desk.accept(&jobs);
    desk.take(WorkerId::new(), 2);
    assert_eq!(desk.story(jobs[0].id), [BORN, CLAIMED]);
    assert_eq!(desk.story(jobs[1].id), [BORN, CLAIMED]);
    assert_eq!(desk.story(jobs[2].id), [BORN]);
}
