//! Taking due jobs.

use super::index::{Accepted, Named, PlaceName};
use super::state::{Change, Job, Life, Moment, Slot, State, Trouble};
use super::waiting::Waiting;
use crate::invariant::InvariantTrigger;
use crate::store::{Claim, Claimed, ClaimedJob, QueueQuota, TransitionBy};
use crate::{JobState, Timestamp};
use std::collections::BTreeMap;

/// What a claim will take.
pub(super) struct Picked {
    jobs: Vec<(Slot, Life)>,
    withheld: bool,
    next_due: Option<Timestamp>,
}

/// Decides what `claim` takes.
pub(super) fn plan(state: &State, claim: &Claim<'_>, moment: Moment) -> Result<Picked, Trouble> {
    let mut picker = Picker::new(state, claim, moment.at);
    let total = claim.total as usize;
    if total > 0 {
        picker.pass(|quota| quota.quota as usize)?;
        if claim.spill {
            picker.pass(|_| total)?;
        }
    }
    Ok(picker.finish())
}

/// Writes what was decided, and answers with what the jobs are now.
pub(super) fn apply(state: &mut State, picked: Picked, moment: Moment) -> Result<Claimed, Trouble> {
    let mut jobs = Vec::with_capacity(picked.jobs.len());
    for (slot, life) in picked.jobs {
        let change = Change::to(life, TransitionBy::Claim);
        let (job, name, before) = state.apply(slot, change, moment)?;
        jobs.push(handed_out(job, &name, before));
    }
    Ok(Claimed::new(jobs, moment.at).withheld(picked.withheld).next_due(picked.next_due))
}

/// A queue, as far as a claim has come with it.
struct Source<'a> {
    waiting: Waiting<'a>,
    /// How many more its settings let the claim take.
    room: u64,
    is_paused: bool,
}

struct Picker<'a> {
    state: &'a State,
    claim: &'a Claim<'a>,
    now: Timestamp,
    /// Of each planned queue that has lanes, what was not taken yet. A queue that is planned twice, and
    /// the second pass, go on where the last visit ended.
    queues: BTreeMap<usize, Source<'a>>,
    picked: Vec<(Slot, Life)>,
    bytes: u64,
    /// A pause or a limit kept back what was due.
    held_back: bool,
    /// A job did not fit into the byte bound: the claim ends there, so that what is taken is a
    /// beginning of the order and no large job is overtaken for ever.
    full: bool,
}

impl<'a> Picker<'a> {
    fn new(state: &'a State, claim: &'a Claim<'a>, now: Timestamp) -> Self {
        let accepted = Accepted::new(claim.accepts);
        let queues = claim.plan.iter().filter_map(|quota| {
            let number = state.index.queue(&quota.queue)?;
            let key_limit = state.settings.key_limit(&quota.queue);
            let waiting = state.index.waiting(number, &accepted, key_limit);
            let room = state.settings.room(&quota.queue, || state.index.leased_count(number));
            let is_paused = state.settings.is_paused(&quota.queue);
            Some((number, Source { waiting, room, is_paused }))
        });
        Self {
            state,
            claim,
            now,
            queues: queues.collect(),
            picked: Vec::new(),
            bytes: 0,
            held_back: false,
            full: false,
        }
    }

    /// Visits the queues in order of the plan, taking at most `quota` from each.
    fn pass(&mut self, quota: impl Fn(&QueueQuota) -> usize) -> Result<(), Trouble> {
        for planned in self.claim.plan {
            let room = (self.claim.total as usize).saturating_sub(self.picked.len());
            self.take(planned, room.min(quota(planned)))?;
        }
        Ok(())
    }

    fn take(&mut self, planned: &QueueQuota, count: usize) -> Result<(), Trouble> {
        let number = self.state.index.queue(&planned.queue);
        let Some(source) = number.and_then(|number| self.queues.get_mut(&number)) else {
            return Ok(());
        };
        for _ in 0..count {
            let next = source.waiting.peek();
            let Some((_, id, slot)) = next.filter(|(due, ..)| *due <= self.now) else {
                break;
            };
            if source.room == 0 {
                self.held_back = true;
                break;
            }
            let job = eligible(self.state, (id, slot))?;
            let bytes = self.bytes.saturating_add(job.payload.as_bytes().len() as u64);
            self.full |= !self.picked.is_empty() && bytes > self.claim.bytes_max;
            if self.full {
                break;
            }
            self.bytes = bytes;
            self.picked.push((slot, leased(job.life, self.claim, self.now)));
            source.waiting.take();
            source.room -= 1;
        }
        Ok(())
    }

    fn finish(mut self) -> Picked {
        let (mut withheld, mut next_due) = (self.full || self.held_back, None);
        if self.picked.len() < self.claim.total as usize {
            let now = self.now;
            withheld |= self.queues.values_mut().any(|source| source.waiting.is_held_back(now));
            // What a pause keeps back is not to be had when it is due.
            let open = self.queues.values().filter(|source| !source.is_paused);
            next_due = open.filter_map(|source| source.waiting.next_due(now)).min();
        }
        Picked { jobs: self.picked, withheld, next_due }
    }
}

/// The job that the index of waiting jobs names, which must be waiting.
fn eligible(state: &State, named: Named) -> Result<&Job, Trouble> {
    let job = state.indexed(named)?;
    let found = job.life.state;
    if found == JobState::Scheduled {
        return Ok(job);
    }
    let trigger = if found.is_terminal() {
        InvariantTrigger::ClaimedJobTerminal
    } else {
        InvariantTrigger::ClaimedRowNotEligible
    };
    Err(Trouble::Breach(trigger, format!("job {} is indexed as waiting and is {found}", job.id)))
}

fn leased(life: Life, claim: &Claim<'_>, now: Timestamp) -> Life {
    Life {
        state: JobState::Leased,
        attempt: life.attempt.saturating_add(1),
        hold: Some((claim.worker, now + claim.lease)),
        ..life
    }
}

/// A job as the write left it.
fn handed_out(job: &Job, name: &PlaceName<'_>, before: Life) -> ClaimedJob {
    ClaimedJob {
        id: job.id,
        attempt: job.life.attempt,
        failures: job.life.failures,
        wire_name: name.wire_name.to_owned(),
        version: name.version,
        queue: name.queue.to_owned(),
        payload: job.payload.clone(),
        due_at: job.life.due_at,
        retry: job.retry,
        timeout: job.timeout,
        tags: job.tags.clone(),
        tick: job.tick.clone(),
        state_before: before.state,
        state: job.life.state,
        owner: job.life.hold.map(|(owner, _)| owner),
        expiry: job.life.hold.map_or(Timestamp::MIN, |(_, expiry)| expiry),
    }
}
