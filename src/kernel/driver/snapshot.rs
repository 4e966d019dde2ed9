//! A driver's state as one number, for a search that must know a state again.
//!
//! What never changes is left out (the configuration), and so is what cannot matter: how long attempts took
//! while nothing is ever held beyond the free workers.

use super::{Driver, Prefetch};
use std::hash::{Hash, Hasher};
use std::time::Duration;

impl Driver {
    /// As if it had seen many attempts that each took so long.
    pub(crate) fn accustom(&mut self, took: Duration) {
        (0..200).for_each(|_| self.appetite.finished(took));
    }
}

impl Hash for Driver {
    /// To be called between two events, when no command waits to be taken.
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Named one by one, so that a field that is added is thought of here.
        let Self {
            config,
            dispatcher,
            commands,
            executions,
            holders,
            next_execution,
            time_outs,
            asked,
            outcomes,
            pace,
            appetite,
            lapses,
            hand_backs,
            renewal,
            upkeep,
            replaced_count,
            stopping,
            // No world has any yet.
            schedules: _,
        } = self;
        assert!(commands.is_empty(), "taken at a time when commands wait: {commands:?}");
        (dispatcher, executions, holders, next_execution, time_outs, asked).hash(state);
        (outcomes, pace, lapses, hand_backs, renewal, upkeep, replaced_count, stopping).hash(state);
        if config.prefetch != Prefetch::Off {
            appetite.hash(state);
        }
    }
}
