//! That an operation which meets a contradiction changes nothing, and that each handle keeps what it is
//! made to keep.

use super::{add, assert_halts, change, child_of, claim, enqueue, open, state, store, tamper};
use crate::invariant::InvariantTrigger;
use crate::store::{
    AuditFilter, BulkChange, HistoryPolicy, JobFilter, Outcome, OutcomeRow, Page, QueueChange,
    Receipt, TransitionBy,
};
use crate::{JobId, JobState};

#[test]
fn a_bulk_change_that_meets_a_dangling_gate_changes_none_of_its_jobs() {
    let store = store();
    let jobs = [add(&store), add(&store), add(&store)];
    change(&store, |all| assert!(all.latches.close(jobs[2], JobId::new())));
    let changed =
        open(&store).change_matching("ada", BulkChange::Cancel, &JobFilter::new(), None, 10);
    assert_halts(changed, InvariantTrigger::DanglingGatingEdge);
    assert!(jobs.iter().all(|job| state(&store, *job) == JobState::Scheduled));
    assert_eq!(open(&store).audit(&AuditFilter::default()).unwrap(), []);
}

#[test]
fn a_report_whose_cascade_meets_a_dangling_gate_ends_none_of_its_jobs() {
    let store = store();
    let (plain, parent) = (add(&store), add(&store));
    let child = child_of(&[parent]);
    enqueue(&store, std::slice::from_ref(&child));
    let grandchild = JobId::new();
    change(&store, |all| assert!(all.latches.close(child.id, grandchild)));
    let held = claim(&store).unwrap().jobs;
    let rows = held.iter().zip(1..).map(|(job, sequence)| {
        let owner = job.owner.unwrap();
        let receipt = Receipt { pump: owner, sequence };
        OutcomeRow::new(job.id, job.attempt, owner, receipt, Outcome::DeadLettered)
    });
    let reported = open(&store).report(&rows.collect::<Vec<_>>());
    assert_halts(reported, InvariantTrigger::DanglingGatingEdge);
    assert_eq!(state(&store, plain), JobState::Leased);
    assert_eq!(state(&store, parent), JobState::Leased);
    assert_eq!(state(&store, child.id), JobState::AwaitingParent);
}

#[test]
fn a_job_that_is_indexed_as_held_and_is_not_leased_is_not_revoked() {
    let store = store();
    let (job, other) = (add(&store), add(&store));
    let held = claim(&store).unwrap().jobs;
    assert_eq!(held.len(), 2);
    tamper(&store, other, JobState::Succeeded);
    let revoked = open(&store).revoke("ada", held[0].owner.unwrap(), 10);
    assert_halts(revoked, InvariantTrigger::GuaranteedRowAbsent);
    assert_eq!(state(&store, job), JobState::Leased);
}

#[test]
fn a_dead_letter_that_is_indexed_and_not_there_is_noticed() {
    let store = store();
    add(&store);
    let held = claim(&store).unwrap().jobs.remove(0);
    let owner = held.owner.unwrap();
    let receipt = Receipt { pump: owner, sequence: 1 };
    let row = OutcomeRow::new(held.id, held.attempt, owner, receipt, Outcome::DeadLettered);
    open(&store).report(&[row]).unwrap();
    let dead = JobFilter::new().state(JobState::DeadLettered);
    assert_eq!(open(&store).find(&dead, &Page::new(9)).unwrap().jobs.len(), 1);
    change(&store, |all| all.jobs.pop());
    let trigger = InvariantTrigger::GuaranteedRowAbsent;
    assert_halts(open(&store).find(&dead, &Page::new(9)), trigger);
    let requeued = open(&store).change_matching("ada", BulkChange::Requeue, &dead, None, 9);
    assert_halts(requeued, trigger);
}

#[test]
fn a_change_that_makes_no_difference_to_a_queue_is_not_kept() {
    let store = store();
    let answer = open(&store).change_queue("ada", "mail", QueueChange::Resume).unwrap();
    assert!(!answer.changed);
    assert_eq!(open(&store).queues().unwrap(), []);
}

#[test]
fn each_handle_keeps_history_by_its_own_policy() {
    let quiet = store();
    let telling = quiet.clone().with_history(HistoryPolicy::Transitions);
    let (unseen, seen) = (add(&quiet), add(&telling));
    assert_eq!(claim(&telling.clone()).unwrap().jobs.len(), 2);
    let told = |job| {
        let history = open(&quiet).history(job).unwrap();
        history.iter().map(|transition| transition.by).collect::<Vec<_>>()
    };
    assert_eq!(told(unseen), [TransitionBy::Claim]);
    assert_eq!(told(seen), [TransitionBy::Enqueue, TransitionBy::Claim]);
}
