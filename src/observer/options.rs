//! How an observer works.

use super::ObserverStart;
use crate::RetryPolicy;
use crate::group::options::{
    DAY, LEASE_MIN, NAME_BYTES_MAX, OptionsFault, POLL_MIN, check_count, check_span,
};
use crate::kernel::observer::Config;
use crate::kernel::text::check_name;
use crate::store::UPKEEP_MAX;
use std::time::Duration;

/// How an observer works. Setters never fail; what is wrong is told by
/// [`spawn_observers`](crate::spawn_observers), all at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "options do nothing by themselves"]
pub struct ObserverOptions {
    pub(super) start: ObserverStart,
    pub(super) timeout: Duration,
    lease: Duration,
    batch: u32,
    poll: Duration,
    retry: RetryPolicy,
}

impl ObserverOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self {
            start: ObserverStart::Now,
            timeout: Duration::from_secs(30),
            lease: Duration::from_secs(30),
            batch: 100,
            poll: Duration::from_secs(1),
            retry: RetryPolicy::default(),
        }
    }

    /// Where it begins, if the store does not know it yet. Default: with what is written from now on.
    pub const fn start(mut self, start: ObserverStart) -> Self {
        self.start = start;
        self
    }

    /// How long the cursor is held without a sign of life. Shorter means that another node takes over sooner, and
    /// more writes. It is renewed three times as often, also while a callback is slow; where a call of the
    /// store takes longer than two thirds of it, what was delivered meanwhile is delivered again. Default
    /// 30 s, 5 s to a day.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// So many transitions are read at a time, and so many deliveries at most are written together: what a crash
    /// repeats at most. Default 100, 1 to 5,000.
    pub const fn batch(mut self, batch: u32) -> Self {
        self.batch = batch;
        self
    }

    /// How often an idle observer looks for more, and one that stands by for the cursor. What this process
    /// writes does not wait for it. Default 1 s.
    pub const fn poll_interval(mut self, interval: Duration) -> Self {
        self.poll = interval;
        self
    }

    /// When a failed delivery is tried again, and at how many failures it is parked. Until then the transitions
    /// behind it wait. Default: 10 failures, see [`RetryPolicy`].
    pub const fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// How long a callback may take. One that takes longer is a failed delivery; its thread is left behind, and
    /// ends when the callback returns. Default 30 s.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    pub(super) const fn driver_config(&self) -> Config {
        Config { batch: self.batch, lease: self.lease, poll: self.poll, retry: self.retry }
    }

    pub(super) fn check(&self, name: &str, faults: &mut Vec<OptionsFault>) {
        if let Err(fault) = check_name(name, NAME_BYTES_MAX) {
            let name = name.chars().take(64).collect();
            faults.push(OptionsFault::ObserverName { name, fault });
        }
        check_span("lease", self.lease, LEASE_MIN, DAY, faults);
        check_count("batch", self.batch, UPKEEP_MAX, faults);
        check_span("poll_interval", self.poll, POLL_MIN, DAY, faults);
        check_span("timeout", self.timeout, POLL_MIN, DAY, faults);
    }
}

impl Default for ObserverOptions {
    fn default() -> Self {
        Self::new()
    }
}
