//! Stores that part ways: a copy of what a store holds, for a search that tries every next step.

use super::state::{Guarded, Life};
use super::{Inner, MemoryStore};
use crate::store::{Hub, Settlement, StoreClock};
use crate::{JobId, JobState, Timestamp, WorkerId};
use parking_lot::Mutex;
use std::sync::Arc;

/// What can change of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    pub(crate) id: JobId,
    pub(crate) state: JobState,
    pub(crate) attempt: u32,
    pub(crate) failures: u32,
    pub(crate) due_at: Timestamp,
    pub(crate) hold: Option<(WorkerId, Timestamp)>,
    pub(crate) cancel_requested: bool,
    pub(crate) settled: Option<Settlement>,
}

impl MemoryStore {
    /// A store of its own that holds what this one holds now.
    pub(crate) fn fork(&self, clock: impl StoreClock) -> Self {
        let inner = Inner {
            state: Mutex::new(self.inner.state.lock().fork()),
            clock: Box::new(clock),
            bounds: self.inner.bounds.clone(),
            hub: Hub::new(),
        };
        Self { inner: Arc::new(inner), history: self.history }
    }

    /// Every job, ascending.
    pub(crate) fn look(&self) -> Vec<Seen> {
        let guarded = self.inner.state.lock();
        let state = guarded.intact().expect("no change was cut short");
        let lives = state.by_id.keys().filter_map(|id| Some((*id, state.life(*id)?.1)));
        lives.map(|(id, life)| seen(id, &life)).collect()
    }
}

impl Guarded {
    fn fork(&self) -> Self {
        Self::of(self.intact().expect("no change was cut short").clone())
    }
}

const fn seen(id: JobId, life: &Life) -> Seen {
    Seen {
        id,
        state: life.state,
        attempt: life.attempt,
        failures: life.failures,
        due_at: life.due_at,
        hold: life.hold,
        cancel_requested: life.cancel_requested,
        settled: life.settled,
    }
}
