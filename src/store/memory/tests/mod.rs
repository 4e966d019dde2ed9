//! What only this room can be made to do: meet a state that contradicts itself.

use super::enqueue::Birth;
use super::index::Keys;
use super::state::{Change, Life, State, Trouble};
use super::{Corrupt, MemoryStore};
use crate::invariant::InvariantTrigger;
use crate::store::{
    Accepts, Bounds, Claim, Claimed, EnqueueAnswer, FaultClass, JobRow, LeaseRef, Outcome,
    OutcomeRow, QueueQuota, Receipt, Rejection, Session, Store, StoreError, TransitionBy, classify,
};
use crate::{JobId, JobState, Timestamp, WorkerId};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

mod latch;
mod observing;
mod operations;
mod random;
mod scheduling;
mod upkeep;

const NOW: Timestamp = Timestamp::from_micros(1_000_000);

fn store() -> MemoryStore {
    MemoryStore::with_clock(|| NOW)
}

fn add(store: &MemoryStore) -> JobId {
    let row = JobRow::new(JobId::new(), "work");
    store.open_session().unwrap().enqueue(std::slice::from_ref(&row)).unwrap();
    row.id
}

fn claim(store: &MemoryStore) -> Result<Claimed, StoreError> {
    let plan = [QueueQuota { queue: "default".to_owned(), quota: 10 }];
    let accepts = [Accepts { wire_name: "work".to_owned(), version_max: 1 }];
    let claim = Claim::new(WorkerId::new(), 10, &plan, &accepts, Duration::from_secs(30));
    store.open_session().unwrap().claim(&claim)
}

/// A birth without parents.
fn born() -> Birth {
    Birth { life: Life::born(NOW), parents: Vec::new(), gates: Vec::new() }
}

fn open(store: &MemoryStore) -> Box<dyn Session> {
    store.open_session().unwrap()
}

fn child_of(parents: &[JobId]) -> JobRow {
    JobRow { parents: parents.to_vec(), ..JobRow::new(JobId::new(), "work") }
}

fn enqueue(store: &MemoryStore, rows: &[JobRow]) {
    let answer = open(store).enqueue(rows).unwrap();
    assert!(matches!(answer, EnqueueAnswer::Accepted { .. }), "{answer:?}");
}

fn state(store: &MemoryStore, job: JobId) -> JobState {
    open(store).job(job).unwrap().unwrap().state
}

/// Changes what is stored behind the store's back.
fn change<R>(store: &MemoryStore, change: impl FnOnce(&mut State) -> R) -> R {
    store.inner.state.lock().change(|all| Ok(change(all))).unwrap()
}

/// Gives a job another state without telling the indexes.
fn tamper(store: &MemoryStore, job: JobId, state: JobState) {
    change(store, |all| {
        let slot = all.by_id[&job];
        all.jobs[slot].as_mut().unwrap().life.state = state;
    });
}

fn assert_halts<T: fmt::Debug>(answer: Result<T, StoreError>, trigger: InvariantTrigger) {
    assert_eq!(answer.unwrap_err().trigger(), Some(trigger));
}

fn assert_corrupt(store: &MemoryStore) {
    let error = store.open_session().unwrap().now().unwrap_err();
    assert_eq!(error.downcast_ref(), Some(&Corrupt));
    assert_eq!(classify(&error, store.fault_classifier()), FaultClass::Fatal);
}

#[test]
fn a_panic_while_a_change_is_written_leaves_the_store_corrupt_for_every_clone() {
    let store = store();
    add(&store);
    let clone = store.clone();
    let caught = catch_unwind(AssertUnwindSafe(|| {
        store.write(|_, _| Ok(()), |_, (), _| -> Result<(), Trouble> { panic!("cut short") })
    }));
    assert!(caught.is_err());
    assert_corrupt(&store);
    assert_corrupt(&clone);
    assert_eq!(claim(&store).unwrap_err().downcast_ref(), Some(&Corrupt));
}

#[test]
fn a_panic_while_a_change_is_planned_leaves_the_store_as_it_was() {
    let store = store();
    let job = add(&store);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        store.write(
            |_, _| -> Result<(), Trouble> { panic!("nothing was written") },
            |_, (), _| Ok(()),
        )
    }));
    assert!(caught.is_err());
    assert_eq!(claim(&store).unwrap().jobs[0].id, job);
}

#[test]
fn a_leased_job_that_is_indexed_as_waiting_is_not_eligible() {
    let store = store();
    let job = add(&store);
    tamper(&store, job, JobState::Leased);
    let error = claim(&store).unwrap_err();
    assert_eq!(error.trigger(), Some(InvariantTrigger::ClaimedRowNotEligible));
    // It was found by planning: nothing was written, and the rest of the store goes on.
    add(&store);
}

#[test]
fn a_terminal_job_that_is_indexed_as_waiting_is_not_handed_out() {
    let store = store();
    let job = add(&store);
    tamper(&store, job, JobState::Succeeded);
    let error = claim(&store).unwrap_err();
    assert_eq!(error.trigger(), Some(InvariantTrigger::ClaimedJobTerminal));
}

#[test]
fn an_index_entry_without_its_job_is_a_guaranteed_row_absent() {
    let store = store();
    add(&store);
    store.inner.state.lock().change(|all| Ok(all.jobs.pop())).unwrap();
    let error = claim(&store).unwrap_err();
    assert_eq!(error.trigger(), Some(InvariantTrigger::GuaranteedRowAbsent));
}

#[test]
fn a_write_that_misses_an_index_entry_is_noticed_and_the_store_is_corrupt_afterwards() {
    let store = store();
    let job = add(&store);
    let held = claim(&store).unwrap().jobs.remove(0);
    let owner = held.owner.unwrap();
    store
        .inner
        .state
        .lock()
        .change(|all| {
            let slot = all.by_id[&job];
            let job = all.jobs[slot].as_ref().unwrap();
            assert!(all.index.leave(job.place, &job.keys, (held.id, slot), &job.life));
            Ok(())
        })
        .unwrap();
    let receipt = Receipt { pump: owner, sequence: 1 };
    let row = OutcomeRow::new(job, 1, owner, receipt, Outcome::Succeeded);
    let error = store.open_session().unwrap().report(&[row]).unwrap_err();
    assert_eq!(error.trigger(), Some(InvariantTrigger::UnexpectedAffectedRowCount));
    assert_corrupt(&store);
}

#[test]
fn a_write_to_a_job_that_is_not_there_is_noticed() {
    let store = store();
    let job = add(&store);
    let answer = store.write(
        |state, _| Ok(state.life(job)),
        |state, life, moment| {
            let (slot, life) = life.unwrap();
            state.jobs.clear();
            state.apply(slot, Change::to(life, TransitionBy::Holder), moment).map(drop)
        },
    );
    assert_eq!(answer.unwrap_err().trigger(), Some(InvariantTrigger::GuaranteedRowAbsent));
}

#[test]
fn an_index_entry_that_names_another_job_is_a_guaranteed_row_absent() {
    let store = store();
    add(&store);
    add(&store);
    store
        .inner
        .state
        .lock()
        .change(|all| {
            all.jobs.swap(0, 1);
            Ok(())
        })
        .unwrap();
    let error = claim(&store).unwrap_err();
    assert_eq!(error.trigger(), Some(InvariantTrigger::GuaranteedRowAbsent));
}

#[test]
fn an_ended_job_that_is_indexed_as_leased_is_not_told_as_lapsed() {
    let store = store();
    let job = add(&store);
    let plan = [QueueQuota { queue: "default".to_owned(), quota: 1 }];
    let accepts = [Accepts { wire_name: "work".to_owned(), version_max: 1 }];
    let lapses_at_once = Claim::new(WorkerId::new(), 1, &plan, &accepts, Duration::ZERO);
    let mut session = store.open_session().unwrap();
    session.claim(&lapses_at_once).unwrap();
    let queues = ["default".to_owned()];
    assert_eq!(session.find_lapsed(&queues, 9).unwrap().jobs.len(), 1);
    tamper(&store, job, JobState::Succeeded);
    let error = session.find_lapsed(&queues, 9).unwrap_err();
    assert_eq!(error.trigger(), Some(InvariantTrigger::GuaranteedRowAbsent));
}

/// What a write answers which finds the place that it wants in an index taken.
fn assert_unexpected(store: &MemoryStore, written: Result<(), StoreError>) {
    let trigger = written.unwrap_err().trigger();
    assert_eq!(trigger, Some(InvariantTrigger::UnexpectedAffectedRowCount));
    assert_corrupt(store);
}

#[test]
fn a_change_into_an_index_that_names_the_job_already_is_noticed() {
    let store = store();
    let job = add(&store);
    let written = store.write(
        |state, _| Ok(state.life(job)),
        |state, found, moment| {
            let (slot, life) = found.unwrap();
            let hold = Some((WorkerId::new(), NOW));
            let leased = Life { state: JobState::Leased, hold, ..life };
            let (place, keys) = state.slot(slot).map(|job| (job.place, job.keys.clone()))?;
            assert!(state.index.enter(place, &keys, (job, slot), &leased));
            state.apply(slot, Change::to(leased, TransitionBy::Claim), moment).map(drop)
        },
    );
    assert_unexpected(&store, written);
}

#[test]
fn a_new_job_under_an_id_that_is_taken_is_noticed() {
    let store = store();
    let row = JobRow::new(JobId::new(), "work");
    let written = store.write(
        |_, _| Ok(()),
        |state, (), moment| {
            state.insert(&row, born(), moment)?;
            state.insert(&row, born(), moment)
        },
    );
    assert_unexpected(&store, written);
}

#[test]
fn a_new_job_that_an_index_names_already_is_noticed() {
    let store = store();
    let row = JobRow::new(JobId::new(), "work");
    let written = store.write(
        |_, _| Ok(()),
        |state, (), moment| {
            let place = state.index.place(&row.queue, &row.wire_name, row.version);
            let next = (row.id, state.jobs.len());
            assert!(state.index.enter(place, &Keys::default(), next, &Life::born(NOW)));
            state.insert(&row, born(), moment)
        },
    );
    assert_unexpected(&store, written);
}

#[test]
fn a_worker_that_holds_nothing_leaves_nothing_behind() {
    let store = store();
    add(&store);
    let held = claim(&store).unwrap().jobs.remove(0);
    let owner = held.owner.unwrap();
    let lease = LeaseRef { job: held.id, attempt: held.attempt };
    let mut session = store.open_session().unwrap();
    assert_eq!(session.hand_back(owner, &[lease]).unwrap().rows, [true]);
    assert!(session.held_by(owner).unwrap().leases.is_empty());
    assert!(store.inner.state.lock().intact().unwrap().index.has_no_holder());
}

#[test]
fn the_bounds_given_are_the_bounds_enforced() {
    let bounds = Bounds { payload_bytes_max: 1, ..Bounds::default() };
    let store = MemoryStore::builder().clock(|| NOW).bounds(bounds.clone()).build();
    assert_eq!(*store.bounds(), bounds);
    let row = JobRow::new(JobId::new(), "work");
    let answer = store.open_session().unwrap().enqueue(&[row]).unwrap();
    let reason = Rejection::PayloadTooLarge { bytes: 2, limit: 1 };
    assert_eq!(answer, EnqueueAnswer::Rejected { index: 0, reason });
}
