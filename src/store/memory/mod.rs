//! Jobs in memory: for tests, for development, and as the reference that the other adapters are
//! compared with.
//!
//! Everything lies behind one lock. What the room keeps:
//!
//! - **Plan, then apply.** A change is computed whole from a state that is only read (cascades, gates,
//!   audit records and all), and then written with moves that cannot fail. A flag is up while it is
//!   written; a panic in between leaves it up, and from then on every call is answered with [`Corrupt`].
//! - **The hot path and upkeep have an index each way in**: by id, waiting by (due, id) per queue, wire
//!   name and version, leased by expiry per queue, held per worker, ended by end per state. Finding goes
//!   along the ids, but for Dead-Lettered and Quarantined jobs, which have an index of their own.
//! - **What nobody uses costs nothing**: jobs without parents meet an empty map of gates, queues that were
//!   never set an empty map of settings, and without a history policy or an observer no transition is made.
//! - **Deterministic.** Ordered maps only; the same calls at the same times give the same answers.
//! - **Nothing of the host's runs under the lock**: no log line, no metric, no `Drop` of a user's
//!   value. A violated invariant leaves the lock as plain data and is counted after it; who waits for
//!   released jobs is woken after it.

mod audit;
mod claim;
mod cursors;
mod draft;
mod enqueue;
mod family;
mod find;
#[cfg(test)]
mod fork;
mod history;
mod index;
mod latch;
mod observing;
mod operate;
mod operations;
mod pumps;
mod purge;
mod queues;
mod reads;
mod schedules;
mod scheduling;
mod session;
mod settle;
mod state;
#[cfg(test)]
mod tests;
mod upkeep;
mod waiting;

#[cfg(test)]
pub(crate) use fork::Seen;

use super::{Bounds, HistoryPolicy, Hub, Session, Store, StoreClock, StoreError};
use crate::Timestamp;
use crate::invariant::halt;
use parking_lot::Mutex;
use session::MemorySession;
use state::{Guarded, Moment, State, Trouble};
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

/// A store in the memory of this process. Clones are the same store.
///
/// What it holds is gone with its last clone.
///
/// ```
/// use backwave::store::{Admission, EnqueueAnswer, JobRow, Store};
/// use backwave::{JobId, MemoryStore};
///
/// let store = MemoryStore::new();
/// let job = JobRow::new(JobId::new(), "greet");
/// let answer = store.open_session().unwrap().enqueue(std::slice::from_ref(&job)).unwrap();
/// assert!(matches!(answer, EnqueueAnswer::Accepted { jobs, .. } if jobs == [Admission::New]));
///
/// let record = store.clone().open_session().unwrap().job(job.id).unwrap();
/// assert_eq!(record.unwrap().wire_name, "greet");
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    inner: Arc<Inner>,
    history: HistoryPolicy,
}

struct Inner {
    state: Mutex<Guarded>,
    clock: Box<dyn StoreClock>,
    bounds: Bounds,
    hub: Hub,
}

impl MemoryStore {
    /// An empty store that judges by the host's wall clock, with the default bounds.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// An empty store that judges by `clock`, with the default bounds.
    ///
    /// ```
    /// use backwave::store::Store;
    /// use backwave::{MemoryStore, Timestamp};
    ///
    /// let store = MemoryStore::with_clock(|| Timestamp::EPOCH);
    /// assert_eq!(store.open_session().unwrap().now().unwrap(), Timestamp::EPOCH);
    /// ```
    #[must_use]
    pub fn with_clock(clock: impl StoreClock) -> Self {
        Self::builder().clock(clock).build()
    }

    /// A store to be furnished.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder {
            clock: Box::new(wall_clock),
            bounds: Bounds::default(),
            history: HistoryPolicy::default(),
        }
    }

    /// The same store by a handle under which that much of a job's life is kept: what is written through it and
    /// its clones, not through others.
    ///
    /// ```
    /// use backwave::store::{HistoryPolicy, JobRow, Store};
    /// use backwave::{JobId, JobState, MemoryStore};
    ///
    /// let store = MemoryStore::new().with_history(HistoryPolicy::Transitions);
    /// let mut session = store.open_session().unwrap();
    /// let job = JobRow::new(JobId::new(), "greet");
    /// session.enqueue(std::slice::from_ref(&job)).unwrap();
    /// assert_eq!(session.history(job.id).unwrap()[0].to, JobState::Scheduled);
    /// ```
    #[must_use]
    pub fn with_history(self, policy: HistoryPolicy) -> Self {
        Self { history: policy, ..self }
    }

    /// Reads the state at one instant.
    fn read<R>(
        &self,
        look: impl FnOnce(&State, Timestamp) -> Result<R, Trouble>,
    ) -> Result<R, StoreError> {
        let guarded = self.inner.state.lock();
        let answer = guarded.intact().and_then(|state| look(state, self.inner.clock.now()));
        drop(guarded);
        answer.map_err(StoreError::from)
    }

    /// Changes the state at one instant: `plan` only reads, `apply` writes what was planned.
    fn write<P, R>(
        &self,
        plan: impl FnOnce(&State, Moment) -> Result<P, Trouble>,
        apply: impl FnOnce(&mut State, P, Moment) -> Result<R, Trouble>,
    ) -> Result<R, StoreError> {
        let mut guarded = self.inner.state.lock();
        let answer = guarded.intact().and_then(|state| {
            let history = state.history_under(self.history);
            let moment = Moment { at: self.inner.clock.now(), history };
            Ok((plan(state, moment)?, moment))
        });
        let answer = answer
            .and_then(|(planned, moment)| guarded.change(|state| apply(state, planned, moment)));
        drop(guarded);
        answer.map_err(StoreError::from)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("bounds", &self.inner.bounds)
            .field("history", &self.history)
            .finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    fn open_session(&self) -> Result<Box<dyn Session>, StoreError> {
        Ok(Box::new(MemorySession(self.clone())))
    }

    fn hub(&self) -> &Hub {
        &self.inner.hub
    }

    fn bounds(&self) -> &Bounds {
        &self.inner.bounds
    }
}

/// Furnishes a [`MemoryStore`].
#[must_use = "a builder makes a store only when it is built"]
pub struct MemoryStoreBuilder {
    clock: Box<dyn StoreClock>,
    bounds: Bounds,
    history: HistoryPolicy,
}

impl MemoryStoreBuilder {
    /// The clock to judge by. Default: the host's wall clock. It is read under the store's lock, so
    /// it must not call the store.
    pub fn clock(mut self, clock: impl StoreClock) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// The limits to enforce. Default: [`Bounds::default`].
    pub fn bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// How much of a job's life to keep. Costs memory for each change of a job's state, until the job is
    /// purged or its history trimmed. Default: [`HistoryPolicy::Off`].
    pub fn history(mut self, policy: HistoryPolicy) -> Self {
        self.history = policy;
        self
    }

    /// The store, empty.
    #[must_use]
    pub fn build(self) -> MemoryStore {
        let inner = Inner {
            state: Mutex::default(),
            clock: self.clock,
            bounds: self.bounds,
            hub: Hub::new(),
        };
        MemoryStore { inner: Arc::new(inner), history: self.history }
    }
}

impl fmt::Debug for MemoryStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStoreBuilder")
            .field("bounds", &self.bounds)
            .field("history", &self.history)
            .finish_non_exhaustive()
    }
}

/// The fault of a store whose state a panic left half changed. Not transient: no later call can
/// know what is true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a change to the memory store was cut short, and what it holds cannot be trusted")]
pub struct Corrupt;

impl From<Trouble> for StoreError {
    /// Called outside of the lock: a violation is counted here, which may run the host's recorder.
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Corrupt => Self::new(Corrupt),
            Trouble::Breach(trigger, message) => halt(trigger, message).into(),
        }
    }
}

fn wall_clock() -> Timestamp {
    SystemTime::now().into()
}
