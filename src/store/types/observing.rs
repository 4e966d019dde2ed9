//! Requests and answers of the observers' side: cursors over the log of transitions.

use super::Transition;
use crate::kernel::state::JobState;
use crate::{JobId, Timestamp, WorkerId};
use std::time::Duration;

/// Which transitions an observer is told of: each list that is not empty must hold the transition's own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TransitionFilter {
    /// The states led to.
    pub states: Vec<JobState>,
    /// The wire names of the jobs.
    pub wire_names: Vec<String>,
    /// The queues of the jobs.
    pub queues: Vec<String>,
}

impl TransitionFilter {
    /// Every transition.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a state led to.
    #[must_use]
    pub fn state(mut self, state: JobState) -> Self {
        self.states.push(state);
        self
    }

    /// Adds a wire name.
    #[must_use]
    pub fn wire_name(mut self, wire_name: impl Into<String>) -> Self {
        self.wire_names.push(wire_name.into());
        self
    }

    /// Adds a queue.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queues.push(queue.into());
        self
    }

    /// Whether a transition of a job of that wire name and queue is told.
    #[must_use]
    pub fn matches(&self, to: JobState, wire_name: &str, queue: &str) -> bool {
        (self.states.is_empty() || self.states.contains(&to))
            && (self.wire_names.is_empty() || self.wire_names.iter().any(|name| name == wire_name))
            && (self.queues.is_empty() || self.queues.iter().any(|name| name == queue))
    }
}

/// Where an observer begins that the store does not know yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ObserverStart {
    /// With what is written from its registration on.
    #[default]
    Now,
    /// With the oldest transition that is kept.
    Oldest,
}

/// Asks for an observer's cursor, and for what lies beyond it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Observe<'a> {
    /// The observer's stable name.
    pub observer: &'a str,
    /// Who asks.
    pub worker: WorkerId,
    /// What it is told of.
    pub filter: &'a TransitionFilter,
    /// Where it begins, if the store does not know it.
    pub start: ObserverStart,
    /// For how long the cursor is held.
    pub lease: Duration,
    /// At most so many transitions, from 1 to [`UPKEEP_MAX`](crate::store::UPKEEP_MAX).
    pub max: u32,
}

impl<'a> Observe<'a> {
    /// From now on, everything, at most 100 at a time.
    #[must_use]
    pub const fn new(
        observer: &'a str,
        worker: WorkerId,
        filter: &'a TransitionFilter,
        lease: Duration,
    ) -> Self {
        Self { observer, worker, filter, start: ObserverStart::Now, lease, max: 100 }
    }
}

/// A transition with what an observer wants to know of its job.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Observation {
    /// The job.
    pub job: JobId,
    /// What names its handler.
    pub wire_name: String,
    /// Its queue.
    pub queue: String,
    /// What became of it.
    pub transition: Transition,
}

impl Observation {
    /// An observation.
    #[must_use]
    pub const fn new(job: JobId, wire_name: String, queue: String, transition: Transition) -> Self {
        Self { job, wire_name, queue, transition }
    }
}

/// A hold on an observer's cursor. The epoch grows by one with each change of holder and never goes back, so
/// (observer, epoch) is never held twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CursorLease {
    /// Which hold.
    pub epoch: u64,
    /// When it ends.
    pub expiry: Timestamp,
}

/// What the first delivery beyond the cursor has been through, kept with the cursor, so that a new holder
/// does not begin to count anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Failing {
    /// The position of its transition.
    pub position: u64,
    /// How many times it failed.
    pub failures: u32,
    /// When it is due again.
    pub due_at: Timestamp,
}

/// The answer to an [`Observe`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Observed {
    /// The cursor is held by who asked.
    Held {
        /// The hold.
        lease: CursorLease,
        /// Which pass over the log these positions belong to; told back with a [`Resolve`].
        round: u64,
        /// What lies beyond the cursor, in the order of delivery.
        batch: Vec<Observation>,
        /// What the first of them has been through.
        failing: Option<Failing>,
        /// Parked deliveries that an operator wants tried again, the oldest first, at most `max`.
        again: Vec<Observation>,
        /// Whether more lies beyond: asking again after resolving these finds more at once.
        more: bool,
        /// The cursor could not go on where it was, and begins anew with the oldest transition kept: why.
        reset: Option<String>,
        /// The store's time.
        store_time: Timestamp,
    },
    /// Somebody else holds it.
    Elsewhere {
        /// Until then, if it is not renewed.
        until: Timestamp,
        /// The store's time.
        store_time: Timestamp,
    },
}

/// A delivery that was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parking {
    /// What was to be told.
    pub observation: Observation,
    /// How many times it failed.
    pub failures: u32,
    /// What went wrong last, cleaned and within its bound.
    pub detail: String,
}

impl Parking {
    /// A delivery given up.
    #[must_use]
    pub const fn new(observation: Observation, failures: u32, detail: String) -> Self {
        Self { observation, failures, detail }
    }
}

/// Moves an observer's cursor on, in one write, fenced on (observer, worker, epoch, a live hold).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resolve<'a> {
    /// The observer.
    pub observer: &'a str,
    /// Who holds its cursor.
    pub worker: WorkerId,
    /// Under which hold.
    pub epoch: u64,
    /// The pass that the positions belong to.
    pub round: u64,
    /// Every transition of the batch up to this position is delivered or parked. None leaves the cursor.
    pub until: Option<u64>,
    /// The deliveries given up, each up to `until` or one of those tried again.
    pub parked: Vec<Parking>,
    /// The first delivery beyond `until` has failed so many times and is due so long after the write.
    pub failing: Option<(u64, u32, Duration)>,
    /// Positions of parked deliveries that were tried again and have succeeded.
    pub delivered_again: Vec<u64>,
    /// The hold is prolonged to store time + this.
    pub lease: Duration,
}

impl<'a> Resolve<'a> {
    /// Moves nothing, and renews the hold.
    #[must_use]
    pub const fn new(
        observer: &'a str,
        worker: WorkerId,
        epoch: u64,
        round: u64,
        lease: Duration,
    ) -> Self {
        Self {
            observer,
            worker,
            epoch,
            round,
            until: None,
            parked: Vec::new(),
            failing: None,
            delivered_again: Vec::new(),
            lease,
        }
    }
}

/// Why a [`Resolve`] was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CursorStale {
    /// The hold is still this one and dead; nobody has taken the cursor since.
    Lapsed,
    /// Somebody else has taken it.
    Taken,
    /// An operator has removed the observer.
    Gone,
    /// It asks the cursor to move backward, or in a pass that is over. Nothing was written.
    Regressed,
}

/// The answer to a [`Resolve`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Resolved {
    /// Written; the hold lasts until then.
    Applied {
        /// The new end of the hold.
        expiry: Timestamp,
        /// The store's time.
        store_time: Timestamp,
    },
    /// Not written.
    Stale {
        /// Why.
        reason: CursorStale,
        /// The store's time.
        store_time: Timestamp,
    },
}

/// An observer as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ObserverRecord {
    /// Its stable name.
    pub observer: String,
    /// When it was registered.
    pub registered_at: Timestamp,
    /// Who holds its cursor, or held it last.
    pub worker: Option<WorkerId>,
    /// The last hold's number.
    pub epoch: u64,
    /// When the last hold ends or ended.
    pub expiry: Option<Timestamp>,
    /// When the oldest transition was written that it has not passed, of those kept; none, if it has passed
    /// all. The difference from the store's time is its lag.
    pub behind_since: Option<Timestamp>,
    /// How many deliveries are parked.
    pub parked: u64,
    /// What the first delivery beyond the cursor has been through.
    pub failing: Option<Failing>,
}

impl ObserverRecord {
    /// An observer that has passed everything and parked nothing.
    #[must_use]
    pub const fn new(observer: String, registered_at: Timestamp) -> Self {
        Self {
            observer,
            registered_at,
            worker: None,
            epoch: 0,
            expiry: None,
            behind_since: None,
            parked: 0,
            failing: None,
        }
    }
}

/// A parked delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParkedDelivery {
    /// What was given up.
    pub parking: Parking,
    /// When.
    pub parked_at: Timestamp,
    /// Whether an operator wants it tried again.
    pub is_wanted_again: bool,
}

impl ParkedDelivery {
    /// A delivery parked then.
    #[must_use]
    pub const fn new(parking: Parking, parked_at: Timestamp) -> Self {
        Self { parking, parked_at, is_wanted_again: false }
    }
}

/// What an operator does with parked deliveries, or with an observer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ObserverChange {
    /// The parked delivery of this position, or each of them, is tried again.
    Redeliver(Option<u64>),
    /// The parked delivery of this position, or each of them, is forgotten.
    Discard(Option<u64>),
    /// The observer is forgotten, with its cursor and what it has parked. One that runs registers anew.
    Remove,
}
