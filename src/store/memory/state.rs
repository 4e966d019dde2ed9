//! What the lock guards: the jobs, their indexes, and the flag that says whether they agree.

use super::index::{Index, Named, Place, PlaceName};
use crate::invariant::InvariantTrigger;
use crate::store::{Body, JobRecord, JobRow, LeaseView, Settlement};
use crate::{JobId, JobState, RetryPolicy, Timestamp, WorkerId};
use std::collections::BTreeMap;
use std::time::Duration;

/// Why an operation was given up, as plain data: nothing may be counted or logged under the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// An earlier change was cut short.
    Corrupt,
    /// An invariant does not hold.
    Breach(InvariantTrigger, String),
}

/// The state, and whether a change to it was begun and not ended.
#[derive(Default)]
pub(super) struct Guarded {
    state: State,
    half_changed: bool,
}

impl Guarded {
    /// The state, unless a change to it was cut short.
    pub(super) const fn intact(&self) -> Result<&State, Trouble> {
        if self.half_changed { Err(Trouble::Corrupt) } else { Ok(&self.state) }
    }

    /// Writes a planned change. The flag stays up when `apply` panics, and also when it finds that
    /// jobs and indexes disagree: what it had written by then is no whole change.
    pub(super) fn change<R>(
        &mut self,
        apply: impl FnOnce(&mut State) -> Result<R, Trouble>,
    ) -> Result<R, Trouble> {
        self.half_changed = true;
        let answer = apply(&mut self.state)?;
        self.half_changed = false;
        Ok(answer)
    }
}

#[derive(Default)]
pub(super) struct State {
    /// Every job has a slot for life, by which the indexes find it without a search.
    pub(super) jobs: Vec<Job>,
    pub(super) by_id: BTreeMap<JobId, Slot>,
    pub(super) index: Index,
}

/// A job's place in the list of jobs.
pub(super) type Slot = usize;

/// A job. What never changes, and its [`Life`].
pub(super) struct Job {
    pub(super) id: JobId,
    /// Names its queue, wire name and version.
    pub(super) place: Place,
    pub(super) payload: Body,
    pub(super) created_at: Timestamp,
    pub(super) retry: Option<RetryPolicy>,
    pub(super) timeout: Option<Duration>,
    pub(super) tags: Vec<String>,
    pub(super) life: Life,
    pub(super) output: Option<Body>,
    pub(super) detail: Option<String>,
}

/// What changes in a job, small enough to be copied into a plan.
#[derive(Clone, Copy)]
pub(super) struct Life {
    pub(super) state: JobState,
    pub(super) attempt: u32,
    pub(super) failures: u32,
    pub(super) due_at: Timestamp,
    pub(super) finished_at: Option<Timestamp>,
    /// Owner and expiry: there exactly while the state is Leased.
    pub(super) hold: Option<(WorkerId, Timestamp)>,
    pub(super) cancel_requested: bool,
    pub(super) settled: Option<Settlement>,
}

impl Life {
    pub(super) const fn born(due_at: Timestamp) -> Self {
        Self {
            state: JobState::Scheduled,
            attempt: 0,
            failures: 0,
            due_at,
            finished_at: None,
            hold: None,
            cancel_requested: false,
            settled: None,
        }
    }

    /// What the fence looks at.
    pub(super) fn view(&self) -> LeaseView {
        LeaseView {
            state: self.state,
            attempt: self.attempt,
            owner: self.hold.map(|(owner, _)| owner),
            expiry: self.hold.map(|(_, expiry)| expiry),
            settled: self.settled,
        }
    }
}

/// What a plan wants written to one job.
pub(super) struct Change {
    pub(super) life: Life,
    /// Set where it is there.
    pub(super) output: Option<Body>,
    /// Replaces the last one where it is there.
    pub(super) detail: Option<String>,
}

impl Change {
    pub(super) const fn to(life: Life) -> Self {
        Self { life, output: None, detail: None }
    }
}

impl State {
    /// The slot and the life of a job, if there is one of that id.
    pub(super) fn life(&self, id: JobId) -> Option<(Slot, Life)> {
        let slot = *self.by_id.get(&id)?;
        self.jobs.get(slot).map(|job| (slot, job.life))
    }

    /// The job that an index names.
    pub(super) fn indexed(&self, (id, slot): Named) -> Result<&Job, Trouble> {
        self.jobs.get(slot).filter(|job| job.id == id).ok_or_else(|| absent(id))
    }

    /// Adds a job whose id was found to be free.
    pub(super) fn insert(&mut self, row: &JobRow, now: Timestamp) -> Result<(), Trouble> {
        let life = Life::born(row.due.resolve(now));
        let place = self.index.place(&row.queue, &row.wire_name, row.version);
        let slot = self.jobs.len();
        let job = Job {
            id: row.id,
            place,
            payload: row.payload.clone(),
            created_at: now,
            retry: row.retry,
            timeout: row.timeout,
            tags: row.tags.clone(),
            life,
            output: None,
            detail: None,
        };
        self.jobs.push(job);
        let entered = self.index.enter(place, (row.id, slot), &life);
        if self.by_id.insert(row.id, slot).is_some() || !entered {
            return Err(unexpected(row.id));
        }
        Ok(())
    }

    /// Writes one planned change, and gives back the job as it stands, what its place is called,
    /// and the life it had before.
    pub(super) fn apply(
        &mut self,
        slot: Slot,
        change: Change,
    ) -> Result<(&Job, PlaceName<'_>, Life), Trouble> {
        let job = self.jobs.get_mut(slot).ok_or_else(|| no_job(slot))?;
        let named = (job.id, slot);
        let before = std::mem::replace(&mut job.life, change.life);
        let left = self.index.leave(job.place, named, &before);
        let entered = self.index.enter(job.place, named, &job.life);
        if !left || !entered {
            return Err(unexpected(job.id));
        }
        if change.output.is_some() {
            job.output = change.output;
        }
        if change.detail.is_some() {
            job.detail = change.detail;
        }
        Ok((job, self.index.name(job.place), before))
    }

    /// Writes a plan.
    pub(super) fn apply_all(
        &mut self,
        plan: impl IntoIterator<Item = (Slot, Change)>,
    ) -> Result<(), Trouble> {
        plan.into_iter().try_for_each(|(slot, change)| self.apply(slot, change).map(drop))
    }

    /// A job, whole.
    pub(super) fn record(&self, id: JobId) -> Option<JobRecord> {
        let job = self.jobs.get(*self.by_id.get(&id)?)?;
        let name = self.index.name(job.place);
        Some(JobRecord {
            id,
            wire_name: name.wire_name.to_owned(),
            version: name.version,
            queue: name.queue.to_owned(),
            payload: job.payload.clone(),
            state: job.life.state,
            attempt: job.life.attempt,
            failures: job.life.failures,
            due_at: job.life.due_at,
            created_at: job.created_at,
            finished_at: job.life.finished_at,
            retry: job.retry,
            timeout: job.timeout,
            tags: job.tags.clone(),
            owner: job.life.hold.map(|(owner, _)| owner),
            expiry: job.life.hold.map(|(_, expiry)| expiry),
            cancel_requested: job.life.cancel_requested,
            output: job.output.clone(),
            failure_detail: job.detail.clone(),
            parent_rule: Default::default(),
        })
    }
}

fn absent(id: JobId) -> Trouble {
    let message = format!("an index names job {id}, which is not there");
    Trouble::Breach(InvariantTrigger::GuaranteedRowAbsent, message)
}

fn no_job(slot: Slot) -> Trouble {
    let message = format!("a plan names the job in slot {slot}, which is not there");
    Trouble::Breach(InvariantTrigger::GuaranteedRowAbsent, message)
}

fn unexpected(id: JobId) -> Trouble {
    let message = format!("a write to job {id} did not move exactly one entry of each index");
    Trouble::Breach(InvariantTrigger::UnexpectedAffectedRowCount, message)
}
