//! What an operator causes.

use super::Fixture;
use super::desk::{Desk, LEASE, SECOND, outcome, retry, row};
use crate::store::{CancelAnswer, Due, JobRow, Outcome, OutcomeRow, RequeueAnswer};
use crate::{JobId, JobState, WorkerId};

pub(super) fn a_waiting_job_is_cancelled_at_once(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for due in [Due::Now, Due::In(SECOND * 60)] {
        let id = desk.add(&JobRow { due, ..row() });
        desk.wait(SECOND);
        assert_eq!(desk.cancel(id), CancelAnswer::Cancelled);
        let stored = desk.job(id);
        assert_eq!((stored.state, stored.finished_at), (JobState::Cancelled, Some(desk.now())));
        assert_eq!((stored.attempt, stored.failures), (0, 0));
        assert!(stored.cancel_requested, "an operator has asked for it");
    }
    desk.wait(SECOND * 120);
    assert!(desk.take(WorkerId::new(), 9).is_empty());
}

pub(super) fn a_leased_job_is_marked_and_goes_on(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    assert!(!desk.job(job.id).cancel_requested);
    assert_eq!(desk.cancel(job.id), CancelAnswer::Requested);
    let stored = desk.job(job.id);
    assert_eq!((stored.state, stored.cancel_requested), (JobState::Leased, true));
    assert_eq!((stored.owner, stored.expiry), (job.owner, Some(job.expiry)));
    assert_eq!(desk.cancel(job.id), CancelAnswer::Requested, "also when it stood already");
}

pub(super) fn a_lapsed_job_is_marked_like_a_leased_one(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    desk.wait(LEASE);
    assert_eq!(desk.cancel(job.id), CancelAnswer::Requested);
}

pub(super) fn a_job_that_ended_is_not_cancelled(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let ends =
        [Outcome::Succeeded, Outcome::DeadLettered, Outcome::Quarantined, Outcome::Cancelled];
    for how in ends {
        let job = desk.end(how);
        let before = desk.job(job.id);
        desk.wait(SECOND);
        assert_eq!(desk.cancel(job.id), CancelAnswer::Ended(how.state(false)));
        assert_eq!(desk.job(job.id), before);
    }
}

pub(super) fn an_operator_is_told_that_a_job_is_not_there(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    assert_eq!(desk.cancel(JobId::new()), CancelAnswer::NotFound);
    assert_eq!(desk.requeue(JobId::new()), RequeueAnswer::NotFound);
}

pub(super) fn a_requeue_begins_anew_but_for_the_attempt(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for how in [Outcome::DeadLettered, Outcome::Quarantined] {
        let first = desk.hold(WorkerId::new());
        desk.settle(&outcome(&first, retry(std::time::Duration::ZERO)));
        let job = desk.take_one(WorkerId::new());
        let detail = Some("why".to_owned());
        desk.settle(&OutcomeRow { detail, ..outcome(&job, how) });
        let before = desk.job(job.id);
        desk.wait(SECOND);
        assert_eq!(desk.requeue(job.id), RequeueAnswer::Requeued);
        let stored = desk.job(job.id);
        assert_eq!((stored.state, stored.due_at), (JobState::Scheduled, desk.now()));
        assert_eq!((stored.attempt, stored.failures), (2, 0));
        assert_eq!((stored.finished_at, stored.cancel_requested), (None, false));
        assert_eq!(stored.payload, before.payload);
        let again = desk.take_one(WorkerId::new());
        assert_eq!((again.id, again.attempt, again.failures), (job.id, 3, 0));
    }
}

pub(super) fn a_requeue_forgets_a_cancel_request(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    desk.cancel(job.id);
    desk.settle(&outcome(&job, Outcome::Quarantined));
    assert_eq!(desk.requeue(job.id), RequeueAnswer::Requeued);
    assert!(!desk.job(job.id).cancel_requested);
    let again = desk.take_one(WorkerId::new());
    desk.settle(&outcome(&again, retry(SECOND)));
    assert_eq!(desk.state(job.id), JobState::Scheduled);
}

pub(super) fn only_dead_lettered_and_quarantined_jobs_are_requeued(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let succeeded = desk.end(Outcome::Succeeded).id;
    let cancelled = desk.end(Outcome::Cancelled).id;
    let leased = desk.hold(WorkerId::new()).id;
    let scheduled = desk.add(&row());
    let all = [
        (succeeded, JobState::Succeeded),
        (cancelled, JobState::Cancelled),
        (leased, JobState::Leased),
        (scheduled, JobState::Scheduled),
    ];
    for (id, state) in all {
        let before = desk.job(id);
        assert_eq!(desk.requeue(id), RequeueAnswer::IllegalState(state));
        assert_eq!(desk.job(id), before);
    }
}

pub(super) fn a_second_requeue_finds_the_job_waiting(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.end(Outcome::DeadLettered);
    assert_eq!(desk.requeue(job.id), RequeueAnswer::Requeued);
    assert_eq!(desk.requeue(job.id), RequeueAnswer::IllegalState(JobState::Scheduled));
}
