//! What the lock guards: the jobs, their indexes, and the flag that says whether they agree.

use super::audit::Audit;
use super::cursors::Cursors;
use super::draft::Plan;
use super::enqueue::Birth;
use super::history::Log;
use super::index::{Index, Keys, Named, Place, PlaceName};
use super::latch::Latches;
use super::pumps::Pumps;
use super::queues::Settings;
use super::schedules::Schedules;
use crate::invariant::InvariantTrigger;
use crate::kernel::latch::ParentRule;
use crate::store::{
    Body, HistoryPolicy, Hub, JobRecord, JobRow, LeaseView, Settlement, Tick, Transition,
    TransitionBy,
};
use crate::{JobId, JobState, RetryPolicy, Timestamp, WorkerId};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// What a call is made under: its one instant, and the policy of the handle it came through, raised where
/// observers want transitions.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    pub(super) at: Timestamp,
    pub(super) history: HistoryPolicy,
}

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
    #[cfg(test)]
    pub(super) const fn of(state: State) -> Self {
        Self { state, half_changed: false }
    }

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
#[cfg_attr(test, derive(Clone))]
pub(super) struct State {
    /// Every job has a slot as long as it is kept, by which the indexes find it without a search.
    pub(super) jobs: Vec<Option<Job>>,
    /// Slots whose job was taken away.
    free: Vec<Slot>,
    pub(super) by_id: BTreeMap<JobId, Slot>,
    pub(super) index: Index,
    pub(super) latches: Latches,
    pub(super) log: Log,
    pub(super) cursors: Cursors,
    pub(super) audit: Audit,
    pub(super) settings: Settings,
    pub(super) pumps: Pumps,
    pub(super) schedules: Schedules,
}

/// A job's place in the list of jobs.
pub(super) type Slot = usize;

/// A job. What never changes, and its [`Life`].
#[cfg_attr(test, derive(Clone))]
pub(super) struct Job {
    pub(super) id: JobId,
    /// Names its queue, wire name and version.
    pub(super) place: Place,
    pub(super) payload: Body,
    pub(super) created_at: Timestamp,
    pub(super) retry: Option<RetryPolicy>,
    pub(super) timeout: Option<Duration>,
    pub(super) tags: Vec<String>,
    /// Those it was enqueued with, whatever has become of them.
    pub(super) parents: Vec<JobId>,
    pub(super) parent_rule: ParentRule,
    /// The tick of a schedule that it was minted for.
    pub(super) tick: Option<Tick>,
    pub(super) keys: Keys,
    pub(super) life: Life,
    pub(super) output: Option<Body>,
    pub(super) detail: Option<String>,
    /// Oldest first.
    pub(super) history: VecDeque<Transition>,
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
    /// Whose hand it is, if the state changes.
    pub(super) by: TransitionBy,
    /// Set where it is there.
    pub(super) output: Option<Body>,
    /// Replaces the last one where it is there.
    pub(super) detail: Option<String>,
}

impl Change {
    pub(super) const fn to(life: Life, by: TransitionBy) -> Self {
        Self { life, by, output: None, detail: None }
    }
}

impl Job {
    /// The transition of that position, if it is one of its own and kept.
    pub(super) fn transition(&self, position: u64) -> Option<&Transition> {
        let found = self.history.binary_search_by_key(&position, |transition| transition.position);
        self.history.get(found.ok()?)
    }
}

impl State {
    /// What is kept of a job's life under a policy: transitions at least, as long as there are observers.
    pub(super) fn history_under(&self, policy: HistoryPolicy) -> HistoryPolicy {
        match policy {
            HistoryPolicy::Off if !self.cursors.is_empty() => HistoryPolicy::Transitions,
            policy => policy,
        }
    }

    /// The slot and the life of a job, if there is one of that id.
    pub(super) fn life(&self, id: JobId) -> Option<(Slot, Life)> {
        let slot = *self.by_id.get(&id)?;
        self.at(slot).map(|job| (slot, job.life))
    }

    /// The job of that id, if there is one.
    pub(super) fn find(&self, id: JobId) -> Option<&Job> {
        self.at(*self.by_id.get(&id)?)
    }

    /// The job that the log names.
    pub(super) fn logged(&self, id: JobId) -> Result<(Slot, &Job), Trouble> {
        let found = self.by_id.get(&id).and_then(|slot| Some((*slot, self.at(*slot)?)));
        found.ok_or_else(|| absent(id))
    }

    fn at(&self, slot: Slot) -> Option<&Job> {
        self.jobs.get(slot)?.as_ref()
    }

    /// The job that was found in a slot before.
    pub(super) fn slot(&self, slot: Slot) -> Result<&Job, Trouble> {
        self.at(slot).ok_or_else(|| no_job(slot))
    }

    /// The job that an index names.
    pub(super) fn indexed(&self, (id, slot): Named) -> Result<&Job, Trouble> {
        self.at(slot).filter(|job| job.id == id).ok_or_else(|| absent(id))
    }

    /// Adds a job whose id was found to be free.
    pub(super) fn insert(
        &mut self,
        row: &JobRow,
        birth: Birth,
        moment: Moment,
    ) -> Result<(), Trouble> {
        let Birth { life, parents, gates } = birth;
        let place = self.index.place(&row.queue, &row.wire_name, row.version);
        let mut all_new = true;
        for parent in &parents {
            self.latches.add_child(*parent);
        }
        for parent in gates {
            all_new &= self.latches.close(parent, row.id);
        }
        let mut job = Job {
            id: row.id,
            place,
            payload: row.payload.clone(),
            created_at: moment.at,
            retry: row.retry,
            timeout: row.timeout,
            tags: row.tags.clone(),
            parents,
            tick: row.tick.clone(),
            parent_rule: row.parent_rule,
            keys: Keys::of(row),
            life,
            output: None,
            detail: None,
            history: VecDeque::new(),
        };
        self.log.note(&mut job, None, TransitionBy::Enqueue, None, moment);
        let slot = self.free.last().copied().unwrap_or(self.jobs.len());
        all_new &= self.index.enter(place, &job.keys, (row.id, slot), &life);
        self.put(job);
        all_new &= self.by_id.insert(row.id, slot).is_none();
        if all_new { Ok(()) } else { Err(unexpected(row.id)) }
    }

    fn put(&mut self, job: Job) {
        match self.free.pop() {
            Some(slot) => self.jobs[slot] = Some(job),
            None => self.jobs.push(Some(job)),
        }
    }

    /// Takes a job away, with all that hangs on it.
    pub(super) fn remove(&mut self, slot: Slot) -> Result<(), Trouble> {
        let mut job = self.jobs.get_mut(slot).and_then(Option::take).ok_or_else(|| no_job(slot))?;
        self.free.push(slot);
        let mut all_there = self.index.leave(job.place, &job.keys, (job.id, slot), &job.life);
        all_there &= self.by_id.remove(&job.id) == Some(slot);
        for parent in &job.parents {
            all_there &= self.latches.remove_child(*parent);
        }
        let transitions = job.history.len();
        all_there &= self.log.forget(&mut job, transitions);
        self.latches.strike(job.id);
        if all_there { Ok(()) } else { Err(unexpected(job.id)) }
    }

    /// Takes the oldest `count` transitions of a job away.
    pub(super) fn trim(&mut self, slot: Slot, count: usize) -> Result<(), Trouble> {
        let job = self.jobs.get_mut(slot).and_then(Option::as_mut).ok_or_else(|| no_job(slot))?;
        if self.log.forget(job, count) { Ok(()) } else { Err(unexpected(job.id)) }
    }

    /// Writes one planned change, and gives back the job as it stands, what its place is called,
    /// and the life it had before.
    pub(super) fn apply(
        &mut self,
        slot: Slot,
        change: Change,
        moment: Moment,
    ) -> Result<(&Job, PlaceName<'_>, Life), Trouble> {
        let job = self.jobs.get_mut(slot).and_then(Option::as_mut).ok_or_else(|| no_job(slot))?;
        let named = (job.id, slot);
        let before = std::mem::replace(&mut job.life, change.life);
        let left = self.index.leave(job.place, &job.keys, named, &before);
        let entered = self.index.enter(job.place, &job.keys, named, &job.life);
        if !left || !entered {
            return Err(unexpected(job.id));
        }
        self.log.note(job, Some(before), change.by, change.detail.as_deref(), moment);
        if change.output.is_some() {
            job.output = change.output;
        }
        if change.detail.is_some() {
            job.detail = change.detail;
        }
        Ok((job, self.index.name(job.place), before))
    }

    /// Writes a plan, and gives back which jobs it has released.
    pub(super) fn carry_out(&mut self, plan: Plan, moment: Moment) -> Result<Vec<Slot>, Trouble> {
        for (parent, child) in plan.opened {
            if !self.latches.open(parent, child) {
                return Err(unexpected(child));
            }
        }
        for parent in plan.struck {
            self.latches.strike(parent);
        }
        for parent in plan.noted {
            self.latches.note(parent);
        }
        for (slot, change) in plan.changes {
            self.apply(slot, change, moment)?;
        }
        for record in plan.audit {
            self.audit.push(record);
        }
        Ok(plan.released)
    }

    /// Which queues to wake for the jobs of `released` that are still there to claim.
    pub(super) fn wakes(&self, released: &[Slot], now: Timestamp) -> Wakes {
        let mut wakes = Wakes::default();
        let jobs = released.iter().filter_map(|slot| self.at(*slot));
        for job in jobs.filter(|job| job.life.state == JobState::Scheduled) {
            wakes.add(self.index.name(job.place).queue, job.life.due_at.since(now));
        }
        wakes
    }

    /// What is kept of how a job came to where it is, oldest first.
    pub(super) fn history(&self, id: JobId) -> Vec<Transition> {
        self.find(id).map_or_else(Vec::new, |job| job.history.iter().cloned().collect())
    }

    /// A job, whole.
    pub(super) fn record(&self, id: JobId) -> Option<JobRecord> {
        self.find(id).map(|job| self.whole(job))
    }

    /// The same of a job that was found before.
    pub(super) fn whole(&self, job: &Job) -> JobRecord {
        let name = self.index.name(job.place);
        JobRecord {
            id: job.id,
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
            parent_rule: job.parent_rule,
            tick: job.tick.clone(),
            unique_key: job.keys.unique.as_deref().map(str::to_owned),
            concurrency_key: job.keys.concurrency.as_deref().map(str::to_owned),
        }
    }
}

/// Which queues have something new to claim, and how soon.
#[derive(Default)]
pub(super) struct Wakes(BTreeMap<String, Duration>);

impl Wakes {
    fn add(&mut self, queue: &str, due_in: Duration) {
        match self.0.get_mut(queue) {
            Some(soonest) => *soonest = due_in.min(*soonest),
            None => drop(self.0.insert(queue.to_owned(), due_in)),
        }
    }

    /// Tells them. Outside of the lock: who hears of it is the host's.
    pub(super) fn send(&self, hub: &Hub) {
        for (queue, due_in) in &self.0 {
            hub.wake(queue, *due_in);
        }
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
