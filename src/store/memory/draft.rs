//! What one call decides, before any of it is written.
//!
//! A [`Draft`] is the state as it is, with what the call has decided so far laid over it: a job that is
//! named twice is judged the second time as the first left it. What comes out is a [`Plan`], complete
//! down to the gates, the audit records and the cascade, which is then written without another decision.

use super::audit;
use super::latch;
use super::state::{Change, Job, Life, Moment, Slot, State, Trouble};
use crate::store::{AuditAction, AuditRecord, GATES_MAX, LeaseRef};
use crate::{JobId, JobState, WorkerId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What is to be written.
#[derive(Default)]
pub(super) struct Plan {
    /// In this order.
    pub(super) changes: Vec<(Slot, Change)>,
    /// Gates that are open from now on, or that go with their dependent.
    pub(super) opened: BTreeSet<Gating>,
    /// Notes of parents that are worked off. Taken out before `noted` goes in.
    pub(super) struck: BTreeSet<JobId>,
    /// Parents that leave gates for later.
    pub(super) noted: BTreeSet<JobId>,
    pub(super) audit: Vec<AuditRecord>,
    /// Jobs made claimable that the caller of the call cannot know of.
    pub(super) released: Vec<Slot>,
}

/// A parent, and the dependent that it holds back.
pub(super) type Gating = (JobId, JobId);

pub(super) struct Draft<'a> {
    pub(super) state: &'a State,
    pub(super) moment: Moment,
    /// How many gates may still be resolved.
    pub(super) budget: u32,
    plan: Plan,
    /// The last change of each job.
    latest: BTreeMap<Slot, Life>,
    /// Jobs that end by this call and whose dependents were not looked at yet.
    ended: VecDeque<JobId>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(state: &'a State, moment: Moment) -> Self {
        Self {
            state,
            moment,
            budget: GATES_MAX,
            plan: Plan::default(),
            latest: BTreeMap::new(),
            ended: VecDeque::new(),
        }
    }

    /// The slot and the life of a job, as this call has left it.
    pub(super) fn life(&self, id: JobId) -> Option<(Slot, Life)> {
        let (slot, life) = self.state.life(id)?;
        Some((slot, self.latest.get(&slot).copied().unwrap_or(life)))
    }

    /// The same of a job that `worker` holds a live lease on.
    pub(super) fn held(&self, worker: WorkerId, row: LeaseRef) -> Option<(Slot, Life)> {
        self.life(row.job).filter(|(_, life)| life.view().is_held(worker, row, self.moment.at))
    }

    /// The job that holds the unique key of the one in `slot`, if there is a key and such a job.
    pub(super) fn key_holder(&self, slot: Slot) -> Result<Option<JobId>, Trouble> {
        let key = self.state.slot(slot)?.keys.unique.as_ref();
        Ok(key.and_then(|key| self.state.index.holder(key)).map(|(id, _)| id))
    }

    /// Decides a change of a job that lives. One that ends by it takes its own gates with it, and is
    /// remembered as a parent.
    pub(super) fn write(&mut self, slot: Slot, change: Change) -> Result<(), Trouble> {
        let after = change.life;
        if after.state.is_terminal() {
            let job = self.state.slot(slot)?;
            for parent in self.closed(job).collect::<Vec<_>>() {
                self.open(parent, job.id);
            }
            self.carry_on(job.id);
        }
        self.latest.insert(slot, after);
        self.plan.changes.push((slot, change));
        Ok(())
    }

    /// Says that a change made a job claimable that nobody waits for.
    pub(super) fn release(&mut self, slot: Slot) {
        self.plan.released.push(slot);
    }

    pub(super) fn audit(
        &mut self,
        actor: &str,
        action: AuditAction,
        slot: Slot,
    ) -> Result<(), Trouble> {
        let job = self.state.slot(slot)?;
        let queue = self.state.index.name(job.place).queue;
        let position = self.state.audit.next() + self.plan.audit.len() as u64;
        let at = self.moment.at;
        self.plan.audit.push(audit::record(position, at, actor, action, Some(job.id), queue));
        Ok(())
    }

    // -- the latch

    /// The parents that still hold a job back.
    pub(super) fn closed<'b>(&'b self, job: &'b Job) -> impl Iterator<Item = JobId> + 'b {
        job.parents.iter().copied().filter(|parent| self.is_closed(*parent, job.id))
    }

    pub(super) fn is_closed(&self, parent: JobId, child: JobId) -> bool {
        self.state.latches.is_closed(parent, child) && !self.plan.opened.contains(&(parent, child))
    }

    pub(super) fn open(&mut self, parent: JobId, child: JobId) {
        self.plan.opened.insert((parent, child));
    }

    /// The next job whose end its dependents have not heard of.
    pub(super) fn next_ended(&mut self) -> Option<JobId> {
        self.ended.pop_front()
    }

    /// Leaves the gates of `parent` for later.
    pub(super) fn note(&mut self, parent: JobId) {
        self.plan.noted.insert(parent);
    }

    /// Takes away the note that `parent` left.
    pub(super) fn strike(&mut self, parent: JobId) {
        self.plan.struck.insert(parent);
    }

    /// Lets the dependents of a job that has ended hear of it.
    pub(super) fn carry_on(&mut self, parent: JobId) {
        self.ended.push_back(parent);
    }

    /// Whether gates are left for later once this is written.
    pub(super) fn leaves_a_note(&self) -> bool {
        self.state.latches.notes().len() > self.plan.struck.len() || !self.plan.noted.is_empty()
    }

    /// Carries every end on to its dependents. The plan is whole then.
    pub(super) fn finish(mut self) -> Result<Plan, Trouble> {
        latch::resolve(&mut self)?;
        Ok(self.plan)
    }
}

/// The life of a dependent that can never run.
pub(super) const fn cancelled(life: Life, moment: Moment) -> Life {
    Life { state: JobState::Cancelled, finished_at: Some(moment.at), ..life }
}
