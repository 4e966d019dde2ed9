//! Dependents: who waits for whom, and what becomes of them as their parents end.
//!
//! - A gate stands exactly between a dependent that is AwaitingParent and each parent that holds it back;
//!   it goes as it is resolved. Who depended on whom (lineage) is kept with the dependent for life.
//! - Ends are carried on breadth first, at most [`GATES_MAX`](crate::store::GATES_MAX) gates a call. A parent with more leaves a
//!   note, which upkeep works off.

use super::draft::{Draft, Plan, cancelled};
use super::state::{Change, Life, Moment, State, Trouble};
use crate::invariant::InvariantTrigger;
use crate::kernel::latch::Gate;
use crate::store::TransitionBy;
use crate::{JobId, JobState};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Latches {
    /// By parent, the dependents that it holds back.
    gates: BTreeMap<JobId, BTreeSet<JobId>>,
    /// How many jobs name a job as their parent.
    children: BTreeMap<JobId, usize>,
    /// Parents that ended and have left gates for later.
    notes: BTreeSet<JobId>,
}

impl Latches {
    pub(super) fn is_closed(&self, parent: JobId, child: JobId) -> bool {
        self.gates.get(&parent).is_some_and(|children| children.contains(&child))
    }

    /// The dependents that a parent holds back, ascending.
    fn held_back(&self, parent: JobId) -> impl Iterator<Item = JobId> + '_ {
        self.gates.get(&parent).into_iter().flatten().copied()
    }

    /// Whether the gate was open.
    #[must_use]
    pub(super) fn close(&mut self, parent: JobId, child: JobId) -> bool {
        self.gates.entry(parent).or_default().insert(child)
    }

    /// Whether the gate was closed.
    #[must_use]
    pub(super) fn open(&mut self, parent: JobId, child: JobId) -> bool {
        let Some(children) = self.gates.get_mut(&parent) else {
            return false;
        };
        let was_closed = children.remove(&child);
        if children.is_empty() {
            self.gates.remove(&parent);
        }
        was_closed
    }

    pub(super) fn is_parent(&self, job: JobId) -> bool {
        self.children.contains_key(&job)
    }

    pub(super) fn add_child(&mut self, parent: JobId) {
        *self.children.entry(parent).or_default() += 1;
    }

    /// Whether there was one.
    #[must_use]
    pub(super) fn remove_child(&mut self, parent: JobId) -> bool {
        let Some(count) = self.children.get_mut(&parent) else {
            return false;
        };
        *count -= 1;
        if *count == 0 {
            self.children.remove(&parent);
        }
        true
    }

    pub(super) const fn notes(&self) -> &BTreeSet<JobId> {
        &self.notes
    }

    pub(super) fn strike(&mut self, parent: JobId) {
        self.notes.remove(&parent);
    }

    pub(super) fn note(&mut self, parent: JobId) {
        self.notes.insert(parent);
    }
}

/// Carries the ends that a draft holds on to their dependents, and theirs to theirs.
pub(super) fn resolve(draft: &mut Draft<'_>) -> Result<(), Trouble> {
    let latches = &draft.state.latches;
    while let Some(parent) = draft.next_ended() {
        let (_, life) = draft.life(parent).ok_or_else(|| missing(parent))?;
        for child in latches.held_back(parent) {
            if !draft.is_closed(parent, child) {
                continue;
            }
            if draft.budget == 0 {
                draft.note(parent);
                break;
            }
            draft.budget -= 1;
            turn(draft, (parent, life.state), child)?;
        }
    }
    Ok(())
}

/// Does to one dependent what its parent's end means for it.
fn turn(
    draft: &mut Draft<'_>,
    (parent, ended): (JobId, JobState),
    child: JobId,
) -> Result<(), Trouble> {
    let (slot, life) = draft.life(child).ok_or_else(|| dangling(parent, child))?;
    if life.state != JobState::AwaitingParent {
        return Err(not_waiting(parent, child, life.state));
    }
    let job = draft.state.slot(slot)?;
    match job.parent_rule.gate(ended) {
        // Not asked of a parent that lives.
        Gate::Closed => {}
        Gate::Failed => {
            let next = cancelled(life, draft.moment);
            draft.write(slot, Change::to(next, TransitionBy::Parent))?;
        }
        Gate::Open => {
            draft.open(parent, child);
            if draft.closed(job).next().is_none() {
                let due_at = life.due_at.max(draft.moment.at);
                let next = Life { state: JobState::Scheduled, due_at, ..life };
                draft.write(slot, Change::to(next, TransitionBy::Parent))?;
                draft.release(slot);
            }
        }
    }
    Ok(())
}

/// What one call works off of the gates that were left for later.
pub(super) struct WorkedOff {
    pub(super) resolved: u32,
    pub(super) more: bool,
}

/// Decides what becomes of at most `max` gates that were left for later.
pub(super) fn work_off(
    state: &State,
    max: u32,
    moment: Moment,
) -> Result<(Plan, WorkedOff), Trouble> {
    let mut draft = Draft::new(state, moment);
    draft.budget = max;
    for parent in state.latches.notes().iter().copied().take(max as usize) {
        if draft.budget == 0 {
            break;
        }
        draft.strike(parent);
        let (_, life) = draft.life(parent).ok_or_else(|| missing(parent))?;
        // One that was requeued meanwhile keeps its gates: its next end resolves them.
        if life.state.is_terminal() {
            draft.carry_on(parent);
            resolve(&mut draft)?;
        }
    }
    let worked_off = WorkedOff { resolved: max - draft.budget, more: draft.leaves_a_note() };
    Ok((draft.finish()?, worked_off))
}

pub(super) fn missing(parent: JobId) -> Trouble {
    let message = format!("the parent {parent} is known, and not among the jobs");
    Trouble::Breach(InvariantTrigger::ParentJobMissingFromBatch, message)
}

fn dangling(parent: JobId, child: JobId) -> Trouble {
    let message = format!("a gate of job {parent} names job {child}, which is not there");
    Trouble::Breach(InvariantTrigger::DanglingGatingEdge, message)
}

fn not_waiting(parent: JobId, child: JobId, found: JobState) -> Trouble {
    let message = format!("a gate of job {parent} names job {child}, which is {found}");
    Trouble::Breach(InvariantTrigger::DanglingGatingEdge, message)
}
