//! What the pumps of a group tell whoever waits for the group: that they have ended, that they are idle.

use super::planted::slips;
use crate::stage::point;
use crate::{HaltState, JobId};
use parking_lot::{Condvar, Mutex};
use std::time::Instant;

/// How a pump came to its end.
#[derive(Debug, Clone)]
pub(crate) enum PumpEnd {
    /// After a clean stop.
    Stopped { handed_back: usize, still_running: Vec<JobId> },
    /// On a fault that is not shown to be transient.
    Halted(HaltState),
}

pub(crate) struct Board {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    ends: Vec<Option<PumpEnd>>,
    /// Per pump, the number of the last question whether it is idle that it answered with yes.
    idle: Vec<u64>,
    /// Per pump, how many jobs it has taken.
    taken: Vec<u64>,
    probes: u64,
}

impl Board {
    pub(crate) fn new(pumps: usize) -> Self {
        Self {
            state: Mutex::new(State {
                ends: vec![None; pumps],
                idle: vec![0; pumps],
                taken: vec![0; pumps],
                probes: 0,
            }),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn ended(&self, pump: usize, end: PumpEnd) {
        point();
        if let Some(slot) = self.state.lock().ends.get_mut(pump) {
            slot.get_or_insert(end);
        }
        self.changed.notify_all();
    }

    pub(crate) fn idle(&self, pump: usize, probe: u64, taken: u64) {
        {
            let mut state = self.state.lock();
            if let Some(slot) = state.idle.get_mut(pump) {
                *slot = probe;
            }
            if let Some(slot) = state.taken.get_mut(pump) {
                *slot = taken;
            }
        }
        self.changed.notify_all();
    }

    /// A number for a question to all pumps.
    pub(crate) fn next_probe(&self) -> u64 {
        let mut state = self.state.lock();
        state.probes += 1;
        state.probes
    }

    /// Blocks until every pump that has not ended has said that it is idle; then how many jobs they
    /// have taken in all. `None` when the time is up first, or a pump has halted.
    pub(crate) fn wait_idle(&self, probe: u64, deadline: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        loop {
            if state.ends.iter().any(|end| matches!(end, Some(PumpEnd::Halted(_)))) {
                return None;
            }
            let idle = state
                .ends
                .iter()
                .zip(&state.idle)
                .all(|(end, idle)| end.is_some() || *idle >= probe);
            if idle {
                return Some(state.taken.iter().sum());
            }
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return None;
            }
        }
    }

    /// Blocks until every pump has ended, or until the deadline. What is known then.
    pub(crate) fn wait_ended(&self, deadline: Option<Instant>) -> Vec<Option<PumpEnd>> {
        let mut state = self.state.lock();
        while state.ends.iter().any(Option::is_none) {
            match deadline {
                None => self.changed.wait(&mut state),
                Some(deadline) => {
                    if self.changed.wait_until(&mut state, deadline).timed_out() {
                        break;
                    }
                }
            }
        }
        state.ends.clone()
    }

    pub(crate) fn ends(&self) -> Vec<Option<PumpEnd>> {
        let mut state = self.state.lock();
        let is_whole = state.ends.iter().all(Option::is_some);
        if slips!(EndsTaken) && is_whole {
            return state.ends.iter_mut().map(Option::take).collect();
        }
        state.ends.clone()
    }
}
