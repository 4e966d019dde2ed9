//! What the latch does to a state that contradicts itself, and where one call stops.

use super::{
    NOW, add, assert_corrupt, assert_halts, change, child_of, claim, enqueue, open, state, store,
};
use crate::invariant::InvariantTrigger;
use crate::store::memory::MemoryStore;
use crate::store::{
    Accepts, AuditFilter, CancelAnswer, Claim, Due, JobRow, Outcome, OutcomeRow, ParentRule,
    QueueQuota, Receipt, Store, Wake,
};
use crate::{JobId, JobState};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn a_gate_that_names_no_job_is_found_before_anything_is_written() {
    let store = store();
    let parent = add(&store);
    change(&store, |all| assert!(all.latches.close(parent, JobId::new())));
    let cancelled = open(&store).request_cancel("ada", parent);
    assert_halts(cancelled, InvariantTrigger::DanglingGatingEdge);
    assert_eq!(state(&store, parent), JobState::Scheduled);
    assert_eq!(open(&store).audit(&AuditFilter::default()).unwrap(), []);
}

#[test]
fn a_gate_of_a_job_that_does_not_wait_for_parents_is_found_too() {
    let store = store();
    let (parent, other) = (add(&store), add(&store));
    change(&store, |all| assert!(all.latches.close(parent, other)));
    let cancelled = open(&store).request_cancel("ada", parent);
    assert_halts(cancelled, InvariantTrigger::DanglingGatingEdge);
    assert_eq!(state(&store, other), JobState::Scheduled);
}

#[test]
fn a_parent_that_is_known_by_its_id_only_is_missing_from_the_batch() {
    let store = store();
    let parent = add(&store);
    change(&store, |all| drop(all.jobs.pop()));
    let enqueued = open(&store).enqueue(&[child_of(&[parent])]);
    assert_halts(enqueued, InvariantTrigger::ParentJobMissingFromBatch);
}

#[test]
fn a_note_of_a_parent_that_is_not_there_is_noticed() {
    let store = store();
    change(&store, |all| all.latches.note(JobId::new()));
    let worked_off = open(&store).work_off_latches(10);
    assert_halts(worked_off, InvariantTrigger::ParentJobMissingFromBatch);
}

#[test]
fn a_gate_that_is_closed_twice_is_noticed() {
    let store = store();
    let parent = add(&store);
    let row = child_of(&[parent]);
    change(&store, |all| assert!(all.latches.close(parent, row.id)));
    assert_halts(open(&store).enqueue(&[row]), InvariantTrigger::UnexpectedAffectedRowCount);
    assert_corrupt(&store);
}

#[test]
fn a_job_that_ends_leaves_no_gate_behind() {
    let store = store();
    let parents = [add(&store), add(&store)];
    let row = child_of(&parents);
    enqueue(&store, std::slice::from_ref(&row));
    assert_eq!(open(&store).request_cancel("ada", row.id).unwrap(), CancelAnswer::Cancelled);
    let guarded = store.inner.state.lock();
    for parent in parents {
        assert!(!guarded.intact().unwrap().latches.is_closed(parent, row.id));
    }
}

#[test]
fn a_chain_longer_than_one_call_resolves_is_worked_off_without_a_gap() {
    const LENGTH: usize = 2_500;
    let store = store();
    let first = add(&store);
    let mut rows: Vec<JobRow> = Vec::new();
    for _ in 0..LENGTH {
        let parent = rows.last().map_or(first, |row| row.id);
        rows.push(child_of(&[parent]));
    }
    enqueue(&store, &rows);
    open(&store).request_cancel("ada", first).unwrap();
    let ended = || rows.iter().take_while(|row| state(&store, row.id) == JobState::Cancelled);
    assert_eq!(ended().count(), 1_000);
    let worked_off = open(&store).work_off_latches(1_400).unwrap();
    assert_eq!((worked_off.resolved, worked_off.more), (1_400, true));
    assert_eq!(ended().count(), 2_400);
    let worked_off = open(&store).work_off_latches(1_400).unwrap();
    assert_eq!((worked_off.resolved, worked_off.more), (100, false));
    assert_eq!(ended().count(), LENGTH);
}

/// Looks into the store as it hears of work, which a call under the store's lock could not.
struct Looking {
    store: MemoryStore,
    heard: Mutex<Vec<(String, Duration, usize)>>,
}

impl Wake for Looking {
    fn wake(&self, queue: &str, due_in: Duration) {
        let queues = open(&self.store).counts().unwrap().len();
        self.heard.lock().push((queue.to_owned(), due_in, queues));
    }
}

#[test]
fn a_released_job_that_the_same_exchange_takes_wakes_nobody() {
    let store = store();
    let parent = add(&store);
    let child = child_of(&[parent]);
    enqueue(&store, std::slice::from_ref(&child));
    let held = claim(&store).unwrap().jobs.remove(0);
    let owner = held.owner.unwrap();
    let looking = Arc::new(Looking { store: store.clone(), heard: Mutex::default() });
    let _subscription = store.hub().subscribe(looking.clone());
    let receipt = Receipt { pump: owner, sequence: 1 };
    let row = OutcomeRow::new(parent, held.attempt, owner, receipt, Outcome::Succeeded);
    let plan = [QueueQuota { queue: "default".to_owned(), quota: 1 }];
    let accepts = [Accepts { wire_name: "work".to_owned(), version_max: 1 }];
    let next = Claim::new(owner, 1, &plan, &accepts, Duration::from_secs(30));
    let exchanged = open(&store).exchange(&[row], &next).unwrap();
    assert_eq!(exchanged.claimed.jobs[0].id, child.id);
    assert_eq!(*looking.heard.lock(), []);
}

#[test]
fn who_hears_of_a_released_job_may_look_into_the_store() {
    let store = store();
    let parent = add(&store);
    let mut row = child_of(&[parent]);
    row.parent_rule = ParentRule::OnAnyTerminal;
    row.due = Due::At(NOW + Duration::from_secs(5));
    row.queue = "late".to_owned();
    enqueue(&store, &[row]);
    let looking = Arc::new(Looking { store: store.clone(), heard: Mutex::default() });
    let _subscription = store.hub().subscribe(looking.clone());
    open(&store).request_cancel("ada", parent).unwrap();
    assert_eq!(*looking.heard.lock(), [("late".to_owned(), Duration::from_secs(5), 2)]);
}
