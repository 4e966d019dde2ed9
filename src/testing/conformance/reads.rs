//! What can be read, by whom.

use super::Fixture;
use super::desk::{Desk, SECOND, accepts, outcome, quota, retry, row, rows};
use crate::store::{Claim, JobRow, Outcome};
use crate::{JobId, JobState, WorkerId};

pub(super) fn the_time_told_is_the_store_clock(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    assert_eq!(desk.store_time(), desk.now());
    let later = desk.wait(SECOND);
    assert_eq!(desk.store_time(), later);
    fixture.clock().set(later.saturating_sub(SECOND * 5));
    assert_eq!(desk.store_time(), desk.now());
}

pub(super) fn a_job_that_is_not_there_is_not_found(fixture: &Fixture) {
    assert!(Desk::open(fixture).find(JobId::new()).is_none());
}

pub(super) fn an_empty_store_counts_nothing(fixture: &Fixture) {
    assert!(Desk::open(fixture).counts().is_empty());
}

pub(super) fn counts_follow_every_change_of_state(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let one = |state| vec![("default".to_owned(), state, 1)];
    let id = desk.add(&row());
    assert_eq!(desk.counts(), one(JobState::Scheduled));
    let job = desk.take_one(WorkerId::new());
    assert_eq!(desk.counts(), one(JobState::Leased));
    desk.settle(&outcome(&job, retry(std::time::Duration::ZERO)));
    assert_eq!(desk.counts(), one(JobState::Scheduled));
    let job = desk.take_one(WorkerId::new());
    desk.settle(&outcome(&job, Outcome::DeadLettered));
    assert_eq!(desk.counts(), one(JobState::DeadLettered));
    desk.requeue(id);
    assert_eq!(desk.counts(), one(JobState::Scheduled));
    desk.cancel(id);
    assert_eq!(desk.counts(), one(JobState::Cancelled));
}

pub(super) fn counts_are_ordered_by_the_bytes_of_the_queue_and_by_state(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for queue in ["é", "a b", "a", "Z", "ab", "_"] {
        let jobs: Vec<_> =
            rows(2).into_iter().map(|job| JobRow { queue: queue.to_owned(), ..job }).collect();
        desk.accept(&jobs);
    }
    let (plan, accepted) = ([quota("a", 1)], [accepts("work", 1)]);
    desk.claim(&Claim { spill: false, ..Claim::new(WorkerId::new(), 1, &plan, &accepted, SECOND) });
    let waiting = |queue: &str, count| (queue.to_owned(), JobState::Scheduled, count);
    let expected = [
        waiting("Z", 2),
        waiting("_", 2),
        waiting("a", 1),
        ("a".to_owned(), JobState::Leased, 1),
        waiting("a b", 2),
        waiting("ab", 2),
        waiting("é", 2),
    ];
    assert_eq!(desk.counts(), expected);
}

pub(super) fn what_one_session_writes_another_reads(fixture: &Fixture) {
    let (mut one, mut other) = (Desk::open(fixture), Desk::open(fixture));
    let id = one.add(&row());
    assert_eq!(other.state(id), JobState::Scheduled);
    let job = other.take_one(WorkerId::new());
    assert_eq!(one.state(id), JobState::Leased);
    one.settle(&outcome(&job, Outcome::Succeeded));
    assert_eq!(other.state(id), JobState::Succeeded);
}

pub(super) fn another_handle_opens_the_same_data(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let id = desk.add(&row());
    let second = fixture.reopen();
    assert_eq!(second.bounds(), fixture.store().bounds());
    let mut other = Desk::at(second.as_ref(), fixture.clock());
    assert_eq!(other.job(id), desk.job(id));
    let job = other.take_one(WorkerId::new());
    drop(other);
    drop(second);
    assert_eq!(desk.job(id).owner, job.owner);
}
