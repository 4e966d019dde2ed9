//! How what has ended goes, and what stays.

use super::Fixture;
use super::desk::{Desk, LEASE, SECOND, TICK, outcome, retry, row, rows};
use super::family::child;
use super::office::nothing_kept;
use crate::store::{
    AuditFilter, Body, CancelAnswer, HistoryPolicy, JobFilter, JobRow, Outcome, OutcomeRow,
    PurgeCursor, Rejection, RequeueAnswer, Retention, RowReport, StaleReason,
};
use crate::{JobId, JobState, WorkerId};
use std::time::Duration;

const KEEP: Duration = Duration::from_secs(60);

/// A job that ended so is kept for a minute, to the microsecond, and no other state's time counts.
#[track_caller]
fn is_kept_for_its_time(fixture: &Fixture, how: Outcome, retention: Retention) {
    let mut desk = Desk::open(fixture);
    let others =
        [Outcome::Succeeded, Outcome::Cancelled, Outcome::DeadLettered, Outcome::Quarantined];
    let others: Vec<_> =
        others.into_iter().filter(|other| *other != how).map(|how| desk.end(how).id).collect();
    let id = desk.end(how).id;
    desk.wait(KEEP - TICK);
    assert_eq!(desk.purge(retention), 0);
    desk.wait(TICK);
    assert_eq!(desk.purge(retention), 1);
    assert!(desk.find(id).is_none());
    desk.wait(KEEP * 100);
    assert_eq!(desk.purge(retention), 0, "the others are kept for ever");
    assert!(others.iter().all(|id| desk.find(*id).is_some()));
}

pub(super) fn a_succeeded_job_is_kept_for_its_time(fixture: &Fixture) {
    let retention = Retention { succeeded: Some(KEEP), ..Retention::forever() };
    is_kept_for_its_time(fixture, Outcome::Succeeded, retention);
}

pub(super) fn a_cancelled_job_is_kept_for_its_time(fixture: &Fixture) {
    let retention = Retention { cancelled: Some(KEEP), ..Retention::forever() };
    is_kept_for_its_time(fixture, Outcome::Cancelled, retention);
}

pub(super) fn a_dead_lettered_job_is_kept_for_its_time(fixture: &Fixture) {
    let retention = Retention { dead_lettered: Some(KEEP), ..Retention::forever() };
    is_kept_for_its_time(fixture, Outcome::DeadLettered, retention);
}

pub(super) fn a_quarantined_job_is_kept_for_its_time(fixture: &Fixture) {
    let retention = Retention { quarantined: Some(KEEP), ..Retention::forever() };
    is_kept_for_its_time(fixture, Outcome::Quarantined, retention);
}

pub(super) fn kept_for_ever_is_for_ever(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let ends =
        [Outcome::Succeeded, Outcome::Cancelled, Outcome::DeadLettered, Outcome::Quarantined];
    let ended = ends.map(|how| desk.end(how).id);
    desk.wait(Duration::from_secs(86_400 * 365 * 100));
    assert_eq!(desk.purge(Retention::forever()), 0);
    assert!(ended.iter().all(|id| desk.find(*id).is_some()));
}

pub(super) fn a_time_of_zero_lets_the_next_purge_take_them(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for how in [Outcome::Succeeded, Outcome::Cancelled, Outcome::DeadLettered, Outcome::Quarantined]
    {
        desk.end(how);
    }
    assert_eq!(desk.purge(nothing_kept()), 4);
    assert!(desk.counts().is_empty());
}

pub(super) fn a_job_that_lives_is_never_taken(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let retried = desk.hold(WorkerId::new());
    desk.settle(&outcome(&retried, retry(Duration::from_secs(86_400 * 400))));
    let requeued = desk.end(Outcome::DeadLettered).id;
    desk.wait(SECOND);
    assert_eq!(desk.requeue(requeued), RequeueAnswer::Requeued);
    let held = desk.take_one(WorkerId::new());
    assert_eq!(held.id, requeued);
    let waiting = desk.add(&row());
    let awaiting = desk.child(&[waiting]);
    desk.wait(Duration::from_secs(86_400 * 365));
    assert_eq!(desk.purge(nothing_kept()), 0);
    for id in [retried.id, requeued, waiting, awaiting] {
        assert!(desk.find(id).is_some());
    }
}

pub(super) fn a_requeued_job_is_kept_from_its_last_end_on(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let id = desk.end(Outcome::DeadLettered).id;
    desk.wait(KEEP / 2);
    desk.requeue(id);
    let job = desk.take_one(WorkerId::new());
    desk.settle(&outcome(&job, Outcome::DeadLettered));
    desk.wait(KEEP / 2);
    let retention = Retention { dead_lettered: Some(KEEP), ..Retention::forever() };
    assert_eq!(desk.purge(retention), 0);
    desk.wait(KEEP / 2);
    assert_eq!(desk.purge(retention), 1);
}

pub(super) fn a_parent_is_kept_while_its_dependent_is(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = desk.lone();
    let id = desk.child(&[parent]);
    desk.succeed(parent);
    desk.wait(KEEP);
    assert_eq!(desk.purge(nothing_kept()), 0, "its dependent lives");
    assert_eq!(desk.parents(id)[0].id, parent);
    desk.fail(id);
    let strict = Retention { dead_lettered: None, ..nothing_kept() };
    assert_eq!(desk.purge(strict), 0, "its dependent is kept");
    assert_eq!(desk.purge(nothing_kept()), 2, "both go, the dependent first");
    assert!(desk.find(parent).is_none() && desk.find(id).is_none());
}

pub(super) fn a_chain_goes_from_its_end(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut line = vec![desk.lone()];
    for _ in 0..5 {
        let last = line[line.len() - 1];
        line.push(desk.child(&[last]));
    }
    desk.cancel(line[0]);
    let spare = desk.lone();
    desk.succeed(spare);
    assert_eq!(desk.purge(nothing_kept()), 7);
    assert!(desk.counts().is_empty());
}

pub(super) fn a_dependent_that_is_kept_keeps_all_its_ancestors(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let top = desk.lone();
    let middle = desk.child(&[top]);
    let bottom = desk.child(&[middle]);
    desk.succeed(top);
    desk.succeed(middle);
    assert_eq!(desk.purge(nothing_kept()), 0);
    assert!(desk.ancestor(bottom, top).is_some());
}

pub(super) fn a_child_born_cancelled_keeps_its_parent_too(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = desk.lone();
    desk.fail(parent);
    let id = desk.child(&[parent]);
    let cancelled_kept = Retention { cancelled: None, ..nothing_kept() };
    assert_eq!(desk.purge(cancelled_kept), 0);
    assert_eq!(desk.parents(id)[0].id, parent);
    assert_eq!(desk.purge(nothing_kept()), 2);
}

pub(super) fn what_hangs_on_a_job_goes_with_it(fixture: &Fixture) {
    let mut desk = Desk::with_history(fixture, HistoryPolicy::WithFailureDetail);
    let parent = desk.lone();
    let given = JobRow { tags: vec!["x".to_owned()], ..child(&[parent]) };
    desk.add(&given);
    desk.succeed(parent);
    let job = desk.grab(given.id);
    let output = Some(Body::new(b"1".to_vec()));
    desk.settle(&OutcomeRow { output, ..outcome(&job, Outcome::Succeeded) });
    assert_eq!(desk.matching(&JobFilter::new().tag("x")), [given.id]);
    assert_eq!(desk.purge(nothing_kept()), 2);
    assert!(desk.history(given.id).is_empty() && desk.history(parent).is_empty());
    assert!(desk.parents(given.id).is_empty());
    assert!(desk.ancestor(given.id, parent).is_none());
    assert!(desk.matching(&JobFilter::new().tag("x")).is_empty());
}

pub(super) fn a_purged_id_can_be_enqueued_anew(fixture: &Fixture) {
    let mut desk = Desk::with_history(fixture, HistoryPolicy::Transitions);
    let parent = desk.lone();
    let given = child(&[parent]);
    desk.add(&given);
    desk.cancel(parent);
    desk.purge(nothing_kept());
    desk.wait(SECOND);
    let other = desk.lone();
    let again = JobRow { parents: vec![other], tags: vec!["new".to_owned()], ..given };
    assert_eq!(desk.accept(std::slice::from_ref(&again)), [true]);
    let stored = desk.job(again.id);
    assert_eq!((stored.state, stored.attempt), (JobState::AwaitingParent, 0));
    assert_eq!((stored.created_at, stored.finished_at), (desk.now(), None));
    assert_eq!(desk.history(again.id).len(), 1, "nothing of the old one is left");
    let told: Vec<_> = desk.parents(again.id).iter().map(|parent| parent.id).collect();
    assert_eq!(told, [other]);
    desk.succeed(other);
    desk.succeed(again.id);
}

pub(super) fn a_purged_job_is_gone_for_everybody(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.end(Outcome::DeadLettered);
    desk.purge(nothing_kept());
    assert_eq!(desk.cancel(job.id), CancelAnswer::NotFound);
    assert_eq!(desk.requeue(job.id), RequeueAnswer::NotFound);
    let late = desk.settle(&outcome(&job, Outcome::Succeeded));
    assert_eq!(late, RowReport::Stale(StaleReason::Gone));
    let child = child(&[job.id]);
    assert_eq!(desk.refuse_one(&child), Rejection::UnknownParent { parent: job.id });
}

pub(super) fn a_page_bounds_how_many_go_and_says_that_more_may(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.accept(&rows(25));
    let jobs = desk.take(WorkerId::new(), 25);
    let batch: Vec<_> = jobs.iter().map(|job| outcome(job, Outcome::Succeeded)).collect();
    desk.report(&batch);
    let mut cursor = PurgeCursor::default();
    for (jobs, more) in [(10, true), (10, true), (5, false)] {
        let purged = desk.purge_page(nothing_kept(), 10, cursor);
        assert_eq!((purged.jobs, purged.more), (jobs, more));
        cursor = purged.cursor;
    }
    assert!(desk.counts().is_empty());
}

pub(super) fn what_may_not_go_does_not_keep_the_rest(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    // Twelve ended parents of dependents that live lie before what may go.
    let parents: Vec<_> = (0..12).map(|_| desk.lone()).collect();
    for parent in &parents {
        desk.child(&[*parent]);
        desk.succeed(*parent);
    }
    desk.wait(SECOND);
    let free: Vec<_> = (0..7).map(|_| desk.end(Outcome::Succeeded).id).collect();
    let (mut cursor, mut gone) = (PurgeCursor::default(), 0);
    for _ in 0..50 {
        let purged = desk.purge_page(nothing_kept(), 5, cursor);
        (cursor, gone) = (purged.cursor, gone + purged.jobs);
        if !purged.more {
            break;
        }
    }
    assert_eq!(gone, 7, "one round looks at all of them");
    assert!(free.iter().all(|id| desk.find(*id).is_none()));
    assert!(parents.iter().all(|id| desk.find(*id).is_some()));
}

pub(super) fn the_cursor_walks_over_every_state(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let ends =
        [Outcome::Quarantined, Outcome::Cancelled, Outcome::DeadLettered, Outcome::Succeeded];
    for how in ends.into_iter().cycle().take(20) {
        desk.end(how);
        desk.wait(TICK);
    }
    let (mut cursor, mut gone) = (PurgeCursor::default(), 0);
    for _ in 0..20 {
        let purged = desk.purge_page(nothing_kept(), 3, cursor);
        (cursor, gone) = (purged.cursor, gone + purged.jobs);
        if !purged.more {
            break;
        }
    }
    assert_eq!(gone, 20);
    assert_eq!(cursor, PurgeCursor::default(), "a round that ends begins anew");
}

pub(super) fn nothing_to_take_is_answered_with_nothing(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let purged = desk.purge_page(Retention::default(), 500, PurgeCursor::default());
    assert_eq!((purged.jobs, purged.more), (0, false));
}

pub(super) fn a_purge_takes_no_claimable_job_and_no_lease_along(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let held = desk.hold(worker);
    for _ in 0..5 {
        desk.end(Outcome::Succeeded);
    }
    let waiting = desk.add(&row());
    assert_eq!(desk.purge(nothing_kept()), 5);
    assert_eq!(desk.held(worker).len(), 1);
    assert_eq!(desk.take_one(worker).id, waiting);
    desk.wait(LEASE);
    assert_eq!(desk.lapsed(&["default"], 9).len(), 2);
    assert_eq!(desk.state(held.id), JobState::Leased);
}

/// So many changes of one job's state.
fn live_long(desk: &mut Desk, claims: u32) -> JobId {
    let id = desk.lone();
    for _ in 0..claims {
        desk.finish(id, Outcome::Snooze { after: Duration::ZERO });
    }
    id
}

fn trimmed_to(transitions_per_job: u32) -> Retention {
    Retention { transitions_per_job, ..Retention::forever() }
}

/// Purges until a page says that there is no more, a few times over.
fn trim(desk: &mut Desk, transitions_per_job: u32, max: u32) {
    let mut cursor = PurgeCursor::default();
    for _ in 0..40 {
        let purged = desk.purge_page(trimmed_to(transitions_per_job), max, cursor);
        assert!(purged.cursor.trimmed >= cursor.trimmed || !purged.more, "it does not go back");
        cursor = purged.cursor;
    }
}

pub(super) fn of_a_long_life_the_newest_transitions_are_kept(fixture: &Fixture) {
    let mut desk = Desk::with_history(fixture, HistoryPolicy::Transitions);
    let (long, short) = (live_long(&mut desk, 20), live_long(&mut desk, 2));
    let (all, few) = (desk.history(long), desk.history(short));
    assert_eq!((all.len(), few.len()), (41, 5));
    trim(&mut desk, 8, 500);
    assert_eq!(desk.history(long), all[33..]);
    assert_eq!(desk.history(short), few, "it has not had so many");
}

pub(super) fn trimming_goes_on_page_by_page(fixture: &Fixture) {
    let mut desk = Desk::with_history(fixture, HistoryPolicy::Transitions);
    let (one, two) = (live_long(&mut desk, 10), live_long(&mut desk, 10));
    let (all_one, all_two) = (desk.history(one), desk.history(two));
    trim(&mut desk, 5, 7);
    assert_eq!(desk.history(one), all_one[16..]);
    assert_eq!(desk.history(two), all_two[16..]);
}

pub(super) fn positions_never_come_back_after_a_purge(fixture: &Fixture) {
    let mut desk = Desk::with_history(fixture, HistoryPolicy::Transitions);
    let id = live_long(&mut desk, 3);
    desk.cancel(id);
    let last = desk.last_step(id).position;
    assert_eq!(desk.purge(nothing_kept()), 1);
    let next = desk.lone();
    assert!(desk.last_step(next).position > last);
}

pub(super) fn audit_records_are_kept_for_their_time(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let early = desk.lone();
    desk.cancel(early);
    desk.wait(SECOND);
    desk.pause("mail");
    let newest = desk.audit(&AuditFilter::default())[0].clone();
    desk.wait(KEEP - SECOND);
    let retention = Retention { audit: Some(KEEP), ..Retention::forever() };
    desk.purge(retention);
    assert_eq!(desk.audit(&AuditFilter::default()), std::slice::from_ref(&newest));
    assert!(desk.find(early).is_some(), "its job is kept all the same");
    desk.purge(Retention::forever());
    assert_eq!(desk.audit(&AuditFilter::default()), [newest]);
    desk.wait(SECOND);
    desk.purge(retention);
    assert!(desk.audit(&AuditFilter::default()).is_empty());
    assert_eq!(desk.queues().len(), 1, "how a queue is set is never purged");
}
