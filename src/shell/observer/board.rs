//! What the pumps of a set of observers show of themselves.

use crate::HaltState;
use parking_lot::{Condvar, Mutex};
use std::time::Instant;

/// How far one pump has come.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress {
    pub(crate) delivered: u64,
    pub(crate) failed: u64,
    pub(crate) parked: u64,
    pub(crate) last_failure: Option<String>,
    pub(crate) left_behind: u32,
    pub(crate) is_holding: bool,
    /// That it holds the cursor and has nothing in hand: it wakes only to look whether there is more.
    #[cfg(feature = "testing")]
    pub(crate) is_resting: bool,
    /// That it has ended, and by which fault.
    pub(crate) ended: Option<Option<HaltState>>,
}

pub(crate) struct Board {
    pumps: Mutex<Vec<Progress>>,
    changed: Condvar,
}

impl Board {
    pub(crate) fn new(pumps: usize) -> Self {
        Self { pumps: Mutex::new(vec![Progress::default(); pumps]), changed: Condvar::new() }
    }

    pub(crate) fn update(&self, pump: usize, change: impl FnOnce(&mut Progress)) {
        if let Some(progress) = self.pumps.lock().get_mut(pump) {
            change(progress);
        }
    }

    pub(crate) fn ended(&self, pump: usize, fault: Option<HaltState>) {
        self.update(pump, |progress| {
            progress.ended.get_or_insert(fault);
        });
        self.changed.notify_all();
    }

    pub(crate) fn all(&self) -> Vec<Progress> {
        self.pumps.lock().clone()
    }

    /// Blocks until every pump has ended, or until the deadline. What is known then.
    pub(crate) fn wait_ended(&self, deadline: Option<Instant>) -> Vec<Progress> {
        let mut pumps = self.pumps.lock();
        while pumps.iter().any(|progress| progress.ended.is_none()) {
            match deadline {
                None => self.changed.wait(&mut pumps),
                Some(deadline) => {
                    if self.changed.wait_until(&mut pumps, deadline).timed_out() {
                        break;
                    }
                }
            }
        }
        pumps.clone()
    }
}
