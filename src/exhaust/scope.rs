//! How large a world is searched, and what may go wrong in it.

use super::plant::Plant;
use std::time::Duration;

/// A world to be searched. Whatever may happen in it may happen at any moment, so each budget multiplies it.
#[derive(Debug, Clone)]
pub(super) struct Scope {
    pub(super) name: &'static str,
    pub(super) nodes: usize,
    pub(super) workers: u32,
    /// Pumps may hold as many jobs again as they have workers.
    pub(super) prefetch: bool,
    /// The nodes are pumps of one group: they are asked to stop one after the other, and crash together.
    pub(super) one_group: bool,
    pub(super) jobs: u8,
    /// The second job depends on the first.
    pub(super) dependent: bool,
    /// So often a second may pass.
    pub(super) seconds: u8,
    pub(super) lease: Duration,
    /// At so many failures a job is dead-lettered.
    pub(super) failures_max: u32,
    /// How long an attempt may take.
    pub(super) time_limit: Option<Duration>,
    /// Handlers may fail.
    pub(super) handlers_fail: bool,
    /// Between the moment in which the store carries a call out and the moment in which the node hears of
    /// it, other things may happen.
    pub(super) slow_answers: bool,
    /// Calls that fail without having been carried out.
    pub(super) refusals: u8,
    /// Calls that are carried out, and whose answer is lost.
    pub(super) losses: u8,
    /// Calls whose answer is lost, and which are carried out later, or never.
    pub(super) delays: u8,
    pub(super) crashes: u8,
    pub(super) stops: u8,
    /// How long a clean stop may take; none hands nothing back.
    pub(super) stop_budget: Duration,
    pub(super) cancels: u8,
    /// What is wrong with the code.
    pub(super) plant: Option<Plant>,
}

impl Scope {
    /// Two nodes with a worker each, two jobs of two tries, and nothing that goes wrong.
    pub(super) const fn new(name: &'static str, seconds: u8) -> Self {
        Self {
            name,
            nodes: 2,
            workers: 1,
            prefetch: false,
            one_group: false,
            jobs: 2,
            dependent: false,
            seconds,
            lease: Duration::from_secs(2),
            failures_max: 2,
            time_limit: None,
            handlers_fail: false,
            slow_answers: false,
            refusals: 0,
            losses: 0,
            delays: 0,
            crashes: 0,
            stops: 0,
            stop_budget: Duration::from_secs(2),
            cancels: 0,
            plant: None,
        }
    }
}
