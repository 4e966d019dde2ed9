//! What a purge leaves behind, and what it does when the state contradicts itself.

use super::{
    NOW, add, assert_corrupt, assert_halts, change, child_of, claim, enqueue, open, state, store,
};
use crate::JobState;
use crate::invariant::InvariantTrigger;
use crate::store::memory::MemoryStore;
use crate::store::{
    Announcement, HistoryPolicy, Outcome, OutcomeRow, Purge, Receipt, Retention, RowReport,
};
use std::time::Duration;

/// What ended goes with the next purge.
fn nothing_kept() -> Purge {
    let zero = Some(Duration::ZERO);
    let retention = Retention {
        succeeded: zero,
        cancelled: zero,
        dead_lettered: zero,
        quarantined: zero,
        audit: zero,
        transitions_per_job: 64,
        unobserved: zero,
    };
    Purge::new(retention, 100)
}

fn purge(store: &MemoryStore) -> u32 {
    open(store).purge(&nothing_kept()).unwrap().jobs
}

#[test]
fn what_is_purged_leaves_nothing_behind_and_its_slot_is_used_again() {
    let store = store().with_history(HistoryPolicy::WithFailureDetail);
    let parent = add(&store);
    let rows = [child_of(&[parent]), child_of(&[parent])];
    enqueue(&store, &rows);
    let held = claim(&store).unwrap().jobs.remove(0);
    let owner = held.owner.unwrap();
    let receipt = Receipt { pump: owner, sequence: 1 };
    let row = OutcomeRow::new(parent, held.attempt, owner, receipt, Outcome::Quarantined);
    let reported = open(&store).report(&[row]).unwrap();
    assert_eq!(reported.rows, [RowReport::Applied(JobState::Quarantined)]);
    assert_eq!((purge(&store), purge(&store), purge(&store)), (2, 1, 0));
    change(&store, |all| {
        assert!(all.by_id.is_empty() && all.jobs.iter().all(Option::is_none));
        assert_eq!(all.log.beyond(0).count(), 0);
        assert!(!all.latches.is_parent(parent));
        assert!(all.index.set_aside().is_empty() && all.index.counts().is_empty());
    });
    for _ in 0..4 {
        add(&store);
    }
    assert_eq!(change(&store, |all| all.jobs.len()), 4, "three were free");
    assert_eq!(claim(&store).unwrap().jobs.len(), 4);
}

#[test]
fn a_purge_that_misses_an_index_entry_is_noticed_and_the_store_is_corrupt_afterwards() {
    let store = store();
    let job = add(&store);
    open(&store).request_cancel("ada", job).unwrap();
    change(&store, |all| {
        let slot = all.by_id.remove(&job);
        assert_eq!(slot, Some(0));
    });
    let purged = open(&store).purge(&nothing_kept());
    assert_halts(purged, InvariantTrigger::UnexpectedAffectedRowCount);
    assert_corrupt(&store);
}

#[test]
fn a_purge_of_a_job_that_its_parent_does_not_count_is_noticed() {
    let store = store();
    let parent = add(&store);
    let child = child_of(&[parent]);
    enqueue(&store, std::slice::from_ref(&child));
    open(&store).request_cancel("ada", child.id).unwrap();
    change(&store, |all| assert!(all.latches.remove_child(parent)));
    let purged = open(&store).purge(&nothing_kept());
    assert_halts(purged, InvariantTrigger::UnexpectedAffectedRowCount);
    assert_corrupt(&store);
}

#[test]
fn a_transition_of_a_job_that_is_not_there_is_found_before_anything_is_taken_away() {
    let store = store().with_history(HistoryPolicy::Transitions);
    let (ended, lost) = (add(&store), add(&store));
    open(&store).request_cancel("ada", ended).unwrap();
    change(&store, |all| all.by_id.remove(&lost));
    let purged = open(&store).purge(&nothing_kept());
    assert_halts(purged, InvariantTrigger::GuaranteedRowAbsent);
    assert_eq!(state(&store, ended), JobState::Cancelled);
    assert_eq!(open(&store).history(ended).unwrap().len(), 2);
}

#[test]
fn a_trim_of_what_the_log_does_not_know_is_noticed() {
    let store = store().with_history(HistoryPolicy::Transitions);
    let job = add(&store);
    claim(&store).unwrap();
    change(&store, |all| {
        all.jobs[0].as_mut().unwrap().history[0].position = 99;
    });
    let retention = Retention { transitions_per_job: 1, ..Retention::forever() };
    let purged = open(&store).purge(&Purge::new(retention, 100));
    assert_halts(purged, InvariantTrigger::UnexpectedAffectedRowCount);
    assert_corrupt(&store);
    assert!(open(&store).job(job).is_err());
}

#[test]
fn a_note_in_the_backlog_goes_with_its_parent() {
    let store = store();
    let parent = add(&store);
    open(&store).request_cancel("ada", parent).unwrap();
    change(&store, |all| all.latches.note(parent));
    assert_eq!(purge(&store), 1);
    let worked_off = open(&store).work_off_latches(10).unwrap();
    assert_eq!((worked_off.resolved, worked_off.more), (0, false));
}

#[test]
fn pumps_are_told_in_order_of_group_and_then_of_worker() {
    let store = store();
    let workers = [(); 3].map(|()| crate::WorkerId::new());
    for (worker, group) in workers.into_iter().zip(["b", "a", "b"]) {
        let announcement = Announcement::new(worker, group.to_owned(), "host".to_owned(), 1);
        assert_eq!(open(&store).announce(&announcement).unwrap(), NOW);
    }
    let pumps = open(&store).pumps().unwrap();
    let told: Vec<_> = pumps.iter().map(|pump| pump.announcement.worker).collect();
    assert_eq!(told, [workers[1], workers[0], workers[2]]);
}
