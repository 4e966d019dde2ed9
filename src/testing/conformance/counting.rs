//! Counts that follow every change.

use super::Fixture;
use super::desk::{Desk, LEASE, SECOND, lease_of, outcome, reap, retry, row, rows};
use super::office::nothing_kept;
use crate::store::{BulkChange, JobFilter, JobRow, Outcome, Page, Retention};
use crate::{JobState, WorkerId};
use std::collections::BTreeMap;
use std::time::Duration;

/// The counts are what one finds by looking at every job.
#[track_caller]
fn counted(desk: &mut Desk) {
    let mut expected: BTreeMap<(String, i16), (JobState, u64)> = BTreeMap::new();
    let page = desk.page(&JobFilter::new(), &Page::new(200));
    assert_eq!(page.next, None, "there are few jobs");
    for job in page.jobs {
        expected.entry((job.queue, job.state.code())).or_insert((job.state, 0)).1 += 1;
    }
    let expected: Vec<_> =
        expected.into_iter().map(|((queue, _), (state, count))| (queue, state, count)).collect();
    assert_eq!(desk.counts(), expected);
}

pub(super) fn counts_follow_every_outcome(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let outcomes = [
        Outcome::Succeeded,
        Outcome::DeadLettered,
        Outcome::Quarantined,
        Outcome::Cancelled,
        retry(SECOND),
        Outcome::Snooze { after: SECOND },
    ];
    for how in outcomes {
        let job = desk.hold(WorkerId::new());
        counted(&mut desk);
        desk.settle(&outcome(&job, how));
        counted(&mut desk);
    }
}

pub(super) fn counts_follow_reapers_hand_backs_and_revokes(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let jobs = [desk.hold(worker), desk.hold(worker), desk.hold(worker)];
    desk.wait(LEASE);
    desk.settle(&reap(&jobs[0], Outcome::DeadLettered));
    desk.settle(&reap(&jobs[1], retry(Duration::ZERO)));
    counted(&mut desk);
    let again = desk.take_one(worker);
    desk.hand_back(worker, &[lease_of(&again)]);
    counted(&mut desk);
    desk.revoke(worker, 9);
    counted(&mut desk);
    assert_eq!(desk.count("default", JobState::Scheduled), 2);
}

pub(super) fn counts_follow_operators(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let dead = desk.end(Outcome::DeadLettered).id;
    let strange = desk.end(Outcome::Quarantined).id;
    desk.requeue(dead);
    counted(&mut desk);
    desk.cancel(dead);
    counted(&mut desk);
    desk.requeue(strange);
    counted(&mut desk);
    let job = desk.take_one(WorkerId::new());
    desk.cancel(job.id);
    counted(&mut desk);
    desk.settle(&outcome(&job, retry(SECOND)));
    counted(&mut desk);
    assert_eq!(desk.count("default", JobState::Cancelled), 2);
}

pub(super) fn counts_follow_bulk_changes(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for index in 0..12 {
        desk.add(&JobRow { queue: ["a", "b", "c"][index % 3].to_owned(), ..row() });
        desk.end(if index % 2 == 0 { Outcome::DeadLettered } else { Outcome::Quarantined });
    }
    desk.bulk_all(BulkChange::Requeue, &JobFilter::new(), 5);
    counted(&mut desk);
    assert_eq!(desk.count("default", JobState::Scheduled), 12);
    desk.bulk_all(BulkChange::Cancel, &JobFilter::new().queue("b"), 3);
    counted(&mut desk);
    desk.bulk_all(BulkChange::Cancel, &JobFilter::new(), 5);
    counted(&mut desk);
    assert_eq!(desk.count("default", JobState::Cancelled), 12);
}

pub(super) fn counts_follow_births_releases_and_cascades(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (good, bad) = (desk.lone(), desk.lone());
    for parent in [good, bad] {
        let child = desk.child(&[parent]);
        desk.follower(&[parent]);
        desk.child(&[child]);
        desk.add(&JobRow { parents: vec![parent], ..row() });
    }
    counted(&mut desk);
    desk.succeed(good);
    counted(&mut desk);
    desk.fail(bad);
    counted(&mut desk);
    desk.child(&[bad]);
    desk.follower(&[bad]);
    counted(&mut desk);
}

pub(super) fn counts_follow_a_refused_and_a_repeated_call(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let good = row();
    desk.refuse(&[good.clone(), JobRow { version: 0, ..row() }]);
    counted(&mut desk);
    desk.accept(&[good.clone(), good.clone()]);
    desk.accept(&[good]);
    counted(&mut desk);
}

pub(super) fn counts_follow_a_repeated_and_a_stale_report(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    let ended = outcome(&job, Outcome::Succeeded);
    desk.report(&[ended.clone(), ended.clone()]);
    counted(&mut desk);
    desk.settle(&ended);
    desk.settle(&outcome(&job, Outcome::DeadLettered));
    counted(&mut desk);
}

pub(super) fn counts_follow_a_purge(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let ends =
        [Outcome::Succeeded, Outcome::Cancelled, Outcome::DeadLettered, Outcome::Quarantined];
    for how in ends {
        desk.end(how);
        desk.end(how);
    }
    let parent = desk.lone();
    desk.child(&[parent]);
    desk.succeed(parent);
    let succeeded = Retention { succeeded: Some(Duration::ZERO), ..Retention::forever() };
    assert_eq!(desk.purge(succeeded), 2);
    counted(&mut desk);
    assert_eq!(desk.purge(nothing_kept()), 6);
    counted(&mut desk);
    desk.purge(nothing_kept());
    counted(&mut desk);
    desk.end(Outcome::Succeeded);
    counted(&mut desk);
}

pub(super) fn counts_come_back_after_an_id_was_used_anew(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let given = row();
    for _ in 0..3 {
        desk.add(&given);
        desk.cancel(given.id);
        counted(&mut desk);
        desk.purge(nothing_kept());
        assert!(desk.counts().is_empty());
    }
}

pub(super) fn counts_are_the_same_through_every_handle(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.end(Outcome::Succeeded);
    desk.accept(&rows(3));
    let second = fixture.reopen();
    let mut other = Desk::at(second.as_ref(), fixture.clock());
    assert_eq!(other.counts(), desk.counts());
    other.bulk(BulkChange::Cancel, &JobFilter::new(), None, 2);
    assert_eq!(other.counts(), desk.counts());
    counted(&mut desk);
}

pub(super) fn counts_of_thousands_that_ended_are_exact(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for _ in 0..3 {
        desk.accept(&rows(1_000));
        let jobs = desk.take(WorkerId::new(), 1_000);
        let ended = jobs.iter().enumerate().map(|(index, job)| {
            let how = if index % 4 == 0 { Outcome::DeadLettered } else { Outcome::Succeeded };
            outcome(job, how)
        });
        desk.report(&ended.collect::<Vec<_>>());
    }
    let count = |state, count| ("default".to_owned(), state, count);
    let expected = [count(JobState::Succeeded, 2_250), count(JobState::DeadLettered, 750)];
    let mut told = desk.counts();
    told.sort_by_key(|(.., count)| std::cmp::Reverse(*count));
    assert_eq!(told, expected);
}
