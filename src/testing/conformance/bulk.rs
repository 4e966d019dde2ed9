//! Changes of many jobs by one call.

use super::Fixture;
use super::desk::{ACTOR, Desk, SECOND, outcome, retry, row, rows};
use crate::store::{AuditAction, AuditFilter, BulkChange, JobFilter, JobRow, Outcome};
use crate::{JobId, JobState, WorkerId};
use std::time::Duration;

fn all() -> JobFilter {
    JobFilter::new()
}

/// One job in each state: Scheduled, AwaitingParent, Leased, Succeeded, Cancelled, Dead-Lettered,
/// Quarantined.
fn one_of_each(desk: &mut Desk) -> [JobId; 7] {
    let ends =
        [Outcome::Succeeded, Outcome::Cancelled, Outcome::DeadLettered, Outcome::Quarantined];
    let [done, cancelled, dead, strange] = ends.map(|how| desk.end(how).id);
    let leased = desk.hold(WorkerId::new()).id;
    let waiting = desk.add(&row());
    let awaiting = desk.add(&JobRow { parents: vec![leased], ..row() });
    [waiting, awaiting, leased, done, cancelled, dead, strange]
}

pub(super) fn a_bulk_cancel_reaches_what_lives_and_nothing_else(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let [waiting, awaiting, leased, ended @ ..] = one_of_each(&mut desk);
    let before = ended.map(|id| desk.job(id));
    desk.wait(SECOND);
    let answer = desk.bulk(BulkChange::Cancel, &all(), None, 200);
    assert_eq!((answer.changed, answer.next), (3, None));
    for id in [waiting, awaiting] {
        let stored = desk.job(id);
        assert_eq!((stored.state, stored.finished_at), (JobState::Cancelled, Some(desk.now())));
    }
    let stored = desk.job(leased);
    assert_eq!((stored.state, stored.cancel_requested), (JobState::Leased, true));
    assert_eq!(ended.map(|id| desk.job(id)), before);
}

pub(super) fn a_job_cancelled_in_bulk_is_as_one_cancelled_singly(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let jobs = [row(), row(), row(), row()];
    desk.accept(&jobs);
    desk.cancel(jobs[0].id);
    let awaiting = [desk.child(&[jobs[2].id]), desk.child(&[jobs[2].id])];
    let below = desk.child(&[awaiting[1]]);
    desk.cancel(awaiting[0]);
    desk.bulk(BulkChange::Cancel, &all().state(JobState::AwaitingParent), None, 1);
    desk.bulk(BulkChange::Cancel, &all().state(JobState::Scheduled), None, 1);
    for id in [jobs[0].id, jobs[1].id, awaiting[0], awaiting[1]] {
        let stored = desk.job(id);
        assert_eq!((stored.state, stored.cancel_requested), (JobState::Cancelled, true));
    }
    let stored = desk.job(below);
    assert_eq!((stored.state, stored.cancel_requested), (JobState::Cancelled, false));
    assert_eq!(desk.state(jobs[2].id), JobState::Scheduled);
}

pub(super) fn a_bulk_requeue_reaches_what_failed_and_nothing_else(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let [waiting, awaiting, leased, done, cancelled, dead, strange] = one_of_each(&mut desk);
    let others = [waiting, awaiting, leased, done, cancelled];
    let before = others.map(|id| desk.job(id));
    desk.wait(SECOND);
    let answer = desk.bulk(BulkChange::Requeue, &all(), None, 200);
    assert_eq!((answer.changed, answer.next), (2, None));
    for id in [dead, strange] {
        let stored = desk.job(id);
        assert_eq!((stored.state, stored.due_at), (JobState::Scheduled, desk.now()));
        assert_eq!((stored.attempt, stored.failures, stored.finished_at), (1, 0, None));
    }
    assert_eq!(others.map(|id| desk.job(id)), before);
}

pub(super) fn a_bulk_requeue_forgets_cancel_requests(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    desk.cancel(job.id);
    desk.settle(&outcome(&job, Outcome::Quarantined));
    assert_eq!(desk.bulk(BulkChange::Requeue, &all(), None, 9).changed, 1);
    assert!(!desk.job(job.id).cancel_requested);
    let again = desk.take_one(WorkerId::new());
    desk.settle(&outcome(&again, retry(Duration::ZERO)));
    assert_eq!(desk.state(job.id), JobState::Scheduled);
}

pub(super) fn a_cancel_request_that_stands_is_passed_over(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let jobs = [desk.hold(WorkerId::new()), desk.hold(WorkerId::new())];
    desk.cancel(jobs[0].id);
    assert_eq!(desk.bulk_all(BulkChange::Cancel, &all(), 1), 1);
    assert!(desk.job(jobs[1].id).cancel_requested);
    assert_eq!(desk.bulk_all(BulkChange::Cancel, &all(), 1), 0);
}

pub(super) fn each_condition_of_a_filter_narrows_a_bulk(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let start = desk.now();
    let plain = desk.add(&row());
    let mail = desk.add(&JobRow { queue: "mail".to_owned(), ..row() });
    let named = desk.add(&JobRow { wire_name: "resize".to_owned(), ..row() });
    let tagged = desk.add(&JobRow { tags: vec!["x".to_owned(), "y".to_owned()], ..row() });
    let parent = desk.child(&[mail]);
    desk.wait(SECOND);
    let late = desk.add(&row());
    let mut cancelled = |filter: JobFilter, id: JobId| {
        assert_eq!(desk.bulk(BulkChange::Cancel, &filter, None, 200).changed, 1, "{filter:?}");
        assert_eq!(desk.state(id), JobState::Cancelled, "{filter:?}");
    };
    cancelled(all().state(JobState::AwaitingParent), parent);
    cancelled(all().queue("mail"), mail);
    cancelled(all().wire_name("resize"), named);
    cancelled(all().tag("y"), tagged);
    cancelled(all().created_from(start + SECOND), late);
    cancelled(all().created_before(start + SECOND).queue("default"), plain);
    assert_eq!(desk.bulk(BulkChange::Cancel, &all(), None, 200).changed, 0);
}

pub(super) fn a_bulk_requeue_can_ask_for_when_they_ended(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let early = desk.end(Outcome::DeadLettered).id;
    desk.wait(SECOND);
    let middle = desk.now();
    let late = desk.end(Outcome::DeadLettered).id;
    let filter = all().finished_before(middle);
    assert_eq!(desk.bulk(BulkChange::Requeue, &filter, None, 9).changed, 1);
    assert_eq!(
        (desk.state(early), desk.state(late)),
        (JobState::Scheduled, JobState::DeadLettered)
    );
    let filter = all().finished_from(middle);
    assert_eq!(desk.bulk(BulkChange::Requeue, &filter, None, 9).changed, 1);
    assert_eq!(desk.state(late), JobState::Scheduled);
}

pub(super) fn a_state_that_cannot_be_changed_so_matches_nothing(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    one_of_each(&mut desk);
    for state in [JobState::Succeeded, JobState::DeadLettered] {
        assert_eq!(desk.bulk(BulkChange::Cancel, &all().state(state), None, 9).changed, 0);
    }
    for state in [JobState::Scheduled, JobState::Cancelled] {
        assert_eq!(desk.bulk(BulkChange::Requeue, &all().state(state), None, 9).changed, 0);
    }
    let both = all().state(JobState::Scheduled).state(JobState::DeadLettered);
    assert_eq!(desk.bulk(BulkChange::Cancel, &both, None, 9).changed, 1);
}

pub(super) fn pages_go_by_ascending_id_to_the_end(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let jobs = rows(7);
    desk.accept(&jobs);
    let (mut after, mut changed) = (None, 0);
    for expected in [3, 3, 1] {
        let page = desk.bulk(BulkChange::Cancel, &all(), after, 3);
        assert_eq!(page.changed, expected);
        changed += page.changed as usize;
        let (done, left) = jobs.split_at(changed);
        assert!(done.iter().all(|job| desk.state(job.id) == JobState::Cancelled));
        assert!(left.iter().all(|job| desk.state(job.id) == JobState::Scheduled));
        assert_eq!(page.next, (expected == 3).then(|| jobs[changed - 1].id));
        after = page.next;
    }
}

pub(super) fn a_bulk_begins_beyond_its_cursor(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let jobs = rows(3);
    desk.accept(&jobs);
    let answer = desk.bulk(BulkChange::Cancel, &all(), Some(jobs[0].id), 9);
    assert_eq!(answer.changed, 2);
    assert_eq!(desk.state(jobs[0].id), JobState::Scheduled);
    assert_eq!(desk.bulk(BulkChange::Cancel, &all(), Some(jobs[2].id), 9).changed, 0);
}

pub(super) fn what_comes_in_meanwhile_does_not_disturb_the_pages(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let jobs = rows(5);
    desk.accept(&[jobs[0].clone(), jobs[2].clone(), jobs[4].clone()]);
    let first = desk.bulk(BulkChange::Cancel, &all(), None, 2);
    assert_eq!(first.next, Some(jobs[2].id));
    desk.accept(&[jobs[1].clone(), jobs[3].clone()]);
    assert_eq!(desk.bulk(BulkChange::Cancel, &all(), first.next, 9).changed, 2);
    assert_eq!(desk.state(jobs[1].id), JobState::Scheduled, "it lies behind the cursor");
}

pub(super) fn a_bulk_is_audited_job_by_job(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let running = desk.hold(WorkerId::new()).id;
    let waiting = desk.add(&JobRow { queue: "mail".to_owned(), ..row() });
    desk.wait(SECOND);
    desk.bulk(BulkChange::Cancel, &all(), None, 9);
    for (id, queue) in [(running, "default"), (waiting, "mail")] {
        let told = desk.audit(&AuditFilter { job: Some(id), ..AuditFilter::default() });
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].action, told[0].queue.as_str()), (AuditAction::Cancel, queue));
        assert_eq!((told[0].actor.as_str(), told[0].at), (ACTOR, desk.now()));
    }
    let dead = desk.end(Outcome::DeadLettered).id;
    desk.bulk(BulkChange::Requeue, &all(), None, 9);
    assert_eq!(desk.deeds()[0], (AuditAction::Requeue, Some(dead)));
    assert_eq!(desk.deeds().len(), 3);
}

pub(super) fn two_hundred_are_changed_by_one_call(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.accept(&rows(450));
    let page = desk.bulk(BulkChange::Cancel, &all(), None, 200);
    assert_eq!(page.changed, 200);
    assert_eq!(desk.count("default", JobState::Cancelled), 200);
    let mut after = page.next;
    for expected in [200, 50] {
        let page = desk.bulk(BulkChange::Cancel, &all(), after, 200);
        assert_eq!(page.changed, expected);
        after = page.next;
    }
    assert_eq!(after, None);
}
