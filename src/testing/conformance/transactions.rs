//! Enqueueing inside a transaction of the caller's own.

use super::desk::{Desk, SECOND, ids};
use super::{CallersTransaction, Ending, Fixture};
use crate::store::{Outcome, ParentRule};
use crate::{EnqueueError, Enqueued, JobId, JobState, NewJob, WorkerId};

fn work() -> NewJob {
    NewJob::raw("work", "{}").queue("default")
}

fn enqueue(tx: &mut dyn CallersTransaction, job: NewJob) -> Result<Enqueued, EnqueueError> {
    let mut enqueued = tx.enqueue(vec![job])?;
    assert_eq!(enqueued.len(), 1, "one answer per job");
    Ok(enqueued.remove(0))
}

#[track_caller]
fn add(tx: &mut dyn CallersTransaction, job: NewJob) -> JobId {
    let enqueued = enqueue(tx, job).expect("accepted");
    assert!(enqueued.is_new, "the job is new");
    enqueued.id
}

pub(super) fn what_was_enqueued_is_there_once_it_is_committed(fixture: &Fixture) {
    let mut added = None;
    fixture.transact(|tx| {
        added = Some(add(tx, work().tag("urgent")));
        Ending::Commit
    });
    let mut desk = Desk::open(fixture);
    let job = desk.take_one(WorkerId::new());
    assert_eq!((Some(job.id), job.tags), (added, vec!["urgent".to_owned()]));
}

pub(super) fn what_was_rolled_back_never_was(fixture: &Fixture) {
    let mut added = None;
    fixture.transact(|tx| {
        added = Some(add(tx, work()));
        Ending::RollBack
    });
    let mut desk = Desk::open(fixture);
    assert_eq!(desk.find(added.expect("it was enqueued")), None);
    assert_eq!((desk.take(WorkerId::new(), 9).len(), desk.counts()), (0, vec![]));
}

pub(super) fn nobody_sees_it_before_the_commit(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    fixture.transact(|tx| {
        let added = add(tx, work());
        assert_eq!((desk.find(added), desk.counts()), (None, vec![]));
        Ending::Commit
    });
    assert_eq!(desk.take(WorkerId::new(), 9).len(), 1);
}

pub(super) fn a_refused_job_leaves_the_transaction_as_it_was(fixture: &Fixture) {
    let limit = fixture.store().bounds().queue_bytes_max;
    fixture.transact(|tx| {
        add(tx, work());
        for refused in [work().parent(JobId::new()), work().queue("q".repeat(limit + 1))] {
            match enqueue(tx, refused) {
                Err(EnqueueError::Rejected { index: 0, .. }) => {}
                other => panic!("not refused: {other:?}"),
            }
        }
        add(tx, work());
        Ending::Commit
    });
    assert_eq!(Desk::open(fixture).take(WorkerId::new(), 9).len(), 2);
}

pub(super) fn an_id_that_exists_is_told_as_not_new_and_left_alone(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let stored = desk.add(&super::desk::row());
    fixture.transact(|tx| {
        let again = enqueue(tx, work().id(stored).tag("other")).expect("accepted");
        assert_eq!((again.id, again.is_new), (stored, false));
        Ending::Commit
    });
    assert_eq!(desk.job(stored).tags, Vec::<String>::new());
}

pub(super) fn an_id_of_the_same_transaction_is_told_as_not_new(fixture: &Fixture) {
    fixture.transact(|tx| {
        let id = add(tx, work());
        assert!(!enqueue(tx, work().id(id)).expect("accepted").is_new);
        Ending::Commit
    });
    assert_eq!(Desk::open(fixture).take(WorkerId::new(), 9).len(), 1);
}

pub(super) fn a_dependent_finds_the_parent_that_its_own_transaction_brought(fixture: &Fixture) {
    let mut family = None;
    fixture.transact(|tx| {
        let parent = add(tx, work());
        family = Some((parent, add(tx, work().parent(parent))));
        Ending::Commit
    });
    let (parent, child) = family.expect("both were enqueued");
    let mut desk = Desk::open(fixture);
    assert_eq!(desk.state(child), JobState::AwaitingParent);
    desk.finish(parent, Outcome::Succeeded);
    assert_eq!(ids(&desk.take(WorkerId::new(), 9)), [child]);
}

pub(super) fn a_dependent_of_a_parent_that_has_ended_is_decided_at_once(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (good, bad) = (desk.lone(), desk.lone());
    desk.finish(good, Outcome::Succeeded);
    desk.finish(bad, Outcome::DeadLettered);
    let mut born = Vec::new();
    fixture.transact(|tx| {
        born.push(add(tx, work().parent(good)));
        born.push(add(tx, work().parent(bad)));
        born.push(add(tx, work().parent(bad).parent_rule(ParentRule::OnAnyTerminal)));
        Ending::Commit
    });
    let states: Vec<_> = born.into_iter().map(|id| desk.state(id)).collect();
    assert_eq!(states, [JobState::Scheduled, JobState::Cancelled, JobState::Scheduled]);
}

pub(super) fn a_rolled_back_dependent_leaves_no_edge(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = desk.lone();
    let mut child = None;
    fixture.transact(|tx| {
        child = Some(add(tx, work().parent(parent)));
        Ending::RollBack
    });
    let child = child.expect("it was enqueued");
    // An edge that was left would be one to nobody.
    desk.finish(parent, Outcome::Succeeded);
    assert_eq!((desk.find(child), desk.parents(child)), (None, vec![]));
    assert_eq!(desk.purge(super::office::nothing_kept()), 1, "nobody holds the parent");
}

pub(super) fn many_jobs_of_one_transaction_come_and_go_together(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for (ending, expected) in [(Ending::RollBack, 0), (Ending::Commit, 50)] {
        fixture.transact(|tx| {
            for place in 0..50 {
                add(tx, work().delay(SECOND * place));
            }
            ending
        });
        desk.wait(SECOND * 100);
        assert_eq!(desk.take(WorkerId::new(), 99).len(), expected);
    }
}

pub(super) fn one_refused_job_of_several_leaves_none_of_them_and_the_rest_stands(
    fixture: &Fixture,
) {
    fixture.transact(|tx| {
        let kept = add(tx, work());
        let refused = tx.enqueue(vec![work(), work().parent(kept), work().parent(JobId::new())]);
        assert!(matches!(refused, Err(EnqueueError::Rejected { index: 2, .. })), "{refused:?}");
        assert_eq!(tx.enqueue(Vec::new()).expect("nothing to do").len(), 0);
        Ending::Commit
    });
    let mut desk = Desk::open(fixture);
    assert_eq!(desk.take(WorkerId::new(), 9).len(), 1);
    assert_eq!(desk.counts().len(), 1, "only what is leased");
}
