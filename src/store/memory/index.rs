//! The ways in: where a job is found by what it is, not by looking at all of them.
//!
//! A job has a [`Place`] for life: its queue, and in there the lane of its wire name and version. A
//! claim merges the lanes it accepts, so that jobs which it does not accept cost it nothing; jobs with a
//! concurrency key stand apart by it, so that those of a key without a slot cost it nothing either. A job is in the indexes of its state: in its lane while it is Scheduled, in its queue's leased set and
//! its holder's while it is Leased, among the ended of its state once it has ended, and among those set
//! aside if an operator has to look after it. AwaitingParent it is in none. A unique key leads to its job
//! exactly as long as that lives.

use super::state::{Life, Slot};
use super::waiting::Waiting;
use crate::store::{Accepts, JobRow, QueueCount};
use crate::{JobId, JobState, Timestamp, WorkerId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, btree_set};
use std::ops::Bound;
use std::sync::Arc;

/// A job in an order of times: told apart by its id, found by its slot.
pub(super) type Entry = (Timestamp, JobId, Slot);
pub(super) type Ordered = BTreeSet<Entry>;
/// A key, held in memory once for a job and the indexes it is in.
pub(super) type Key = Arc<str>;

#[derive(Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Index {
    by_name: BTreeMap<String, usize>,
    /// Places are numbers into this list and into each queue's lanes; none is ever taken out.
    queues: Vec<Queue>,
    held: BTreeMap<WorkerId, BTreeMap<JobId, Slot>>,
    /// Per terminal state, by its code: by end.
    ended: [Ordered; JobState::ALL.len()],
    /// Dead-Lettered and Quarantined jobs: few, and looked for among many.
    set_aside: BTreeMap<JobId, Slot>,
    /// Who holds a unique key: a job that lives.
    holders: BTreeMap<Key, Named>,
}

/// The keys of a job, for life.
#[derive(Clone, Default)]
pub(super) struct Keys {
    pub(super) unique: Option<Key>,
    pub(super) concurrency: Option<Key>,
}

impl Keys {
    pub(super) fn is_concurrent(&self, key: &str) -> bool {
        self.concurrency.as_deref() == Some(key)
    }

    pub(super) fn of(row: &JobRow) -> Self {
        let shared = |key: &Option<String>| key.as_deref().map(Key::from);
        Self { unique: shared(&row.unique_key), concurrency: shared(&row.concurrency_key) }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Place {
    queue: usize,
    lane: usize,
}

/// A job, by both of its names.
pub(super) type Named = (JobId, Slot);

/// What a place stands for.
pub(super) struct PlaceName<'a> {
    pub(super) queue: &'a str,
    pub(super) wire_name: &'a str,
    pub(super) version: u32,
}

#[cfg_attr(test, derive(Clone))]
struct Queue {
    name: String,
    by_name: BTreeMap<String, BTreeMap<u32, usize>>,
    lanes: Vec<Lane>,
    /// By expiry.
    leased: Ordered,
    /// How many jobs with a concurrency key are leased.
    leased_keys: BTreeMap<Key, u64>,
    /// How many jobs are in each state, by its code.
    counts: [u64; JobState::ALL.len()],
}

#[cfg_attr(test, derive(Clone))]
struct Lane {
    wire_name: String,
    version: u32,
    /// By due time.
    waiting: Ordered,
    /// The same of those with a concurrency key, by key. None is empty.
    keyed: BTreeMap<Key, Ordered>,
}

impl Index {
    /// The place of a queue, wire name and version, made where there is none yet.
    pub(super) fn place(&mut self, queue: &str, wire_name: &str, version: u32) -> Place {
        let number = match self.by_name.get(queue) {
            Some(number) => *number,
            None => self.add_queue(queue),
        };
        Place { queue: number, lane: self.queues[number].lane(wire_name, version) }
    }

    fn add_queue(&mut self, name: &str) -> usize {
        let number = self.queues.len();
        self.queues.push(Queue {
            name: name.to_owned(),
            by_name: BTreeMap::new(),
            lanes: Vec::new(),
            leased: Ordered::new(),
            leased_keys: BTreeMap::new(),
            counts: [0; JobState::ALL.len()],
        });
        self.by_name.insert(name.to_owned(), number);
        number
    }

    /// What `place` stands for.
    pub(super) fn name(&self, place: Place) -> PlaceName<'_> {
        let queue = &self.queues[place.queue];
        let lane = &queue.lanes[place.lane];
        PlaceName { queue: &queue.name, wire_name: &lane.wire_name, version: lane.version }
    }

    /// Enters a job by the life it has now. Whether exactly that was new everywhere.
    #[must_use]
    pub(super) fn enter(
        &mut self,
        place: Place,
        keys: &Keys,
        (id, slot): Named,
        life: &Life,
    ) -> bool {
        let queue = &mut self.queues[place.queue];
        queue.counts[code(life.state)] += 1;
        let is_new = match (life.state, life.hold) {
            (JobState::Scheduled, None) => {
                queue.lanes[place.lane].add(keys, (life.due_at, id, slot))
            }
            (JobState::Leased, Some((owner, expiry))) => {
                queue.add_leased(keys);
                queue.leased.insert((expiry, id, slot))
                    & self.held.entry(owner).or_default().insert(id, slot).is_none()
            }
            (JobState::AwaitingParent, None) => true,
            (state, None) if state.is_terminal() => self.enter_ended((id, slot), life),
            _ => false,
        };
        match &keys.unique {
            Some(key) if !life.state.is_terminal() => {
                is_new & self.holders.insert(Key::clone(key), (id, slot)).is_none()
            }
            _ => is_new,
        }
    }

    fn enter_ended(&mut self, (id, slot): Named, life: &Life) -> bool {
        let Some(finished_at) = life.finished_at else {
            return false;
        };
        let aside = Self::sets_aside(life.state);
        self.ended[code(life.state)].insert((finished_at, id, slot))
            & (!aside || self.set_aside.insert(id, slot).is_none())
    }

    /// Takes a job out by the life it had. Whether exactly that was there everywhere.
    #[must_use]
    pub(super) fn leave(
        &mut self,
        place: Place,
        keys: &Keys,
        (id, slot): Named,
        life: &Life,
    ) -> bool {
        let queue = &mut self.queues[place.queue];
        let count = &mut queue.counts[code(life.state)];
        let Some(fewer) = count.checked_sub(1) else {
            return false;
        };
        *count = fewer;
        let was_there = match (life.state, life.hold) {
            (JobState::Scheduled, None) => {
                queue.lanes[place.lane].remove(keys, (life.due_at, id, slot))
            }
            (JobState::Leased, Some((owner, expiry))) => {
                queue.remove_leased(keys)
                    & queue.leased.remove(&(expiry, id, slot))
                    & self.release(owner, id)
            }
            (JobState::AwaitingParent, None) => true,
            (state, None) if state.is_terminal() => self.leave_ended((id, slot), life),
            _ => false,
        };
        match &keys.unique {
            Some(key) if !life.state.is_terminal() => {
                was_there & (self.holders.remove(key) == Some((id, slot)))
            }
            _ => was_there,
        }
    }

    fn leave_ended(&mut self, (id, slot): Named, life: &Life) -> bool {
        let Some(finished_at) = life.finished_at else {
            return false;
        };
        let aside = Self::sets_aside(life.state);
        self.ended[code(life.state)].remove(&(finished_at, id, slot))
            & (!aside || self.set_aside.remove(&id).is_some())
    }

    fn release(&mut self, owner: WorkerId, id: JobId) -> bool {
        let Some(jobs) = self.held.get_mut(&owner) else {
            return false;
        };
        let removed = jobs.remove(&id).is_some();
        // Worker ids are not used again: an empty set would stay for ever.
        if jobs.is_empty() {
            self.held.remove(&owner);
        }
        removed
    }

    /// The number of a queue, if it ever had a job.
    pub(super) fn queue(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// How many jobs of a queue are leased, by live leases and dead ones.
    pub(super) fn leased_count(&self, queue: usize) -> u64 {
        self.queues[queue].counts[code(JobState::Leased)]
    }

    /// The waiting jobs of a queue that `accepts` lets through, in order of (due, id), of each concurrency key
    /// only as many as `key_limit` leaves room for.
    pub(super) fn waiting<'a>(
        &'a self,
        queue: usize,
        accepts: &Accepted<'_>,
        key_limit: u32,
    ) -> Waiting<'a> {
        let queue = &self.queues[queue];
        let lanes =
            accepts.0.iter().filter_map(|(name, max)| Some((queue.by_name.get(*name)?, max)));
        let lanes = lanes.flat_map(|(versions, max)| versions.range(..=max));
        let mut waiting = Waiting::default();
        for (_, lane) in lanes {
            let lane = &queue.lanes[*lane];
            waiting.add(&lane.waiting);
            for (key, jobs) in &lane.keyed {
                let room = || u64::from(key_limit).saturating_sub(queue.leased_of(key));
                waiting.add_keyed(key, jobs, room);
            }
        }
        waiting
    }

    /// The job that holds a unique key.
    pub(super) fn holder(&self, key: &str) -> Option<Named> {
        self.holders.get(key).copied()
    }

    /// The leased jobs of these queues, in order of (expiry, id).
    pub(super) fn leased(&self, queues: &[String]) -> Merged<'_> {
        let numbers: BTreeSet<_> = queues.iter().filter_map(|name| self.queue(name)).collect();
        Merged::new(numbers.into_iter().map(|number| self.queues[number].leased.iter()))
    }

    /// The jobs leased to a worker, ascending.
    pub(super) fn held(&self, worker: WorkerId) -> impl Iterator<Item = Named> + '_ {
        self.held.get(&worker).into_iter().flatten().map(|(id, slot)| (*id, *slot))
    }

    /// Whether a job in `state` is one that an operator has to look after.
    pub(super) const fn sets_aside(state: JobState) -> bool {
        matches!(state, JobState::DeadLettered | JobState::Quarantined)
    }

    /// The jobs that an operator has to look after.
    pub(super) const fn set_aside(&self) -> &BTreeMap<JobId, Slot> {
        &self.set_aside
    }

    /// The jobs that ended in `state` after the one that `after` names, in order of (end, id).
    pub(super) fn ended(
        &self,
        state: JobState,
        after: Option<(Timestamp, JobId)>,
    ) -> impl Iterator<Item = Entry> + '_ {
        let after = after.map(|(end, id)| (end, id, Slot::MAX));
        let beyond = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.ended[code(state)].range((beyond, Bound::Unbounded)).copied()
    }

    #[cfg(test)]
    pub(super) fn has_no_holder(&self) -> bool {
        self.held.is_empty()
    }

    /// How many jobs each queue has in each state.
    pub(super) fn counts(&self) -> Vec<QueueCount> {
        let queues = self.by_name.values().map(|number| &self.queues[*number]);
        let counts = queues.flat_map(|queue| {
            let counts = JobState::ALL.into_iter().map(|state| (state, queue.counts[code(state)]));
            counts
                .filter(|(_, count)| *count > 0)
                .map(|(state, count)| QueueCount::new(queue.name.clone(), state, count))
        });
        counts.collect()
    }
}

impl Lane {
    fn add(&mut self, keys: &Keys, entry: Entry) -> bool {
        match &keys.concurrency {
            None => self.waiting.insert(entry),
            Some(key) => self.keyed.entry(Key::clone(key)).or_default().insert(entry),
        }
    }

    fn remove(&mut self, keys: &Keys, entry: Entry) -> bool {
        let Some(key) = &keys.concurrency else { return self.waiting.remove(&entry) };
        let Some(jobs) = self.keyed.get_mut(key) else { return false };
        let removed = jobs.remove(&entry);
        if jobs.is_empty() {
            self.keyed.remove(key);
        }
        removed
    }
}

impl Queue {
    fn leased_of(&self, key: &str) -> u64 {
        self.leased_keys.get(key).copied().unwrap_or(0)
    }

    fn add_leased(&mut self, keys: &Keys) {
        if let Some(key) = &keys.concurrency {
            *self.leased_keys.entry(Key::clone(key)).or_default() += 1;
        }
    }

    /// Whether it was counted.
    fn remove_leased(&mut self, keys: &Keys) -> bool {
        let Some(key) = &keys.concurrency else { return true };
        let Some(count) = self.leased_keys.get_mut(key) else { return false };
        *count -= 1;
        if *count == 0 {
            self.leased_keys.remove(key);
        }
        true
    }

    fn lane(&mut self, wire_name: &str, version: u32) -> usize {
        let known = self.by_name.get(wire_name).and_then(|versions| versions.get(&version));
        if let Some(number) = known {
            return *number;
        }
        let number = self.lanes.len();
        self.lanes.push(Lane {
            wire_name: wire_name.to_owned(),
            version,
            waiting: Ordered::new(),
            keyed: BTreeMap::new(),
        });
        self.by_name.entry(wire_name.to_owned()).or_default().insert(version, number);
        number
    }
}

/// What a claim accepts: per wire name, the highest version. A name given twice counts once, or its
/// lane would be merged with itself.
pub(super) struct Accepted<'a>(BTreeMap<&'a str, u32>);

impl<'a> Accepted<'a> {
    pub(super) fn new(accepts: &'a [Accepts]) -> Self {
        let mut highest = BTreeMap::new();
        for accept in accepts {
            let version = highest.entry(accept.wire_name.as_str()).or_insert(accept.version_max);
            *version = accept.version_max.max(*version);
        }
        Self(highest)
    }
}

/// Several ordered sets, read as one.
pub(super) struct Merged<'a> {
    sources: Vec<btree_set::Iter<'a, Entry>>,
    heads: BinaryHeap<Reverse<(Entry, usize)>>,
}

impl<'a> Merged<'a> {
    fn new(sources: impl Iterator<Item = btree_set::Iter<'a, Entry>>) -> Self {
        let mut sources: Vec<_> = sources.collect();
        let heads = sources.iter_mut().enumerate();
        let heads = heads.filter_map(|(number, source)| Some(Reverse((*source.next()?, number))));
        Self { heads: heads.collect(), sources }
    }
}

impl Iterator for Merged<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Self::Item> {
        let mut top = self.heads.peek_mut()?;
        let Reverse((head, number)) = *top;
        match self.sources[number].next() {
            Some(next) => *top = Reverse((*next, number)),
            None => drop(std::collections::binary_heap::PeekMut::pop(top)),
        }
        Some(head)
    }
}

const fn code(state: JobState) -> usize {
    state.code() as usize
}
