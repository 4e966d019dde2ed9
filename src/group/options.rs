//! How a group is set up, and what is refused.

use crate::kernel::text::{NameFault, check_name};
use crate::{DispatchPolicy, Prefetch, Retention, RetryPolicy};
use std::fmt;
#[cfg(feature = "testing")]
use std::sync::Arc;
use std::time::Duration;

/// What a Worker Group is to be. Setters never fail: all that is wrong is told at once by
/// [`Self::validate`] and by [`spawn_group`](crate::spawn_group).
///
/// ```
/// use backwave::{DispatchPolicy, GroupOptions};
/// use std::time::Duration;
///
/// let options = GroupOptions::new("mail")
///     .dispatch(DispatchPolicy::strict(["urgent", "bulk"]))
///     .workers(4)
///     .lease(Duration::from_secs(30));
/// assert!(options.validate().is_ok());
/// let refused = GroupOptions::new("mail").workers(0).lease(Duration::ZERO).validate().unwrap_err();
/// assert_eq!(refused.faults().len(), 2);
/// ```
#[derive(Clone)]
#[must_use = "options do nothing until a group is spawned with them"]
pub struct GroupOptions {
    pub(super) name: String,
    pub(super) dispatch: Option<DispatchPolicy>,
    pub(super) workers: u32,
    pub(super) pumps: u32,
    pub(super) lease: Duration,
    pub(super) poll_min: Duration,
    pub(super) poll_max: Duration,
    pub(super) maintenance: Duration,
    pub(super) retention: Retention,
    pub(super) retry: RetryPolicy,
    pub(super) prefetch: Prefetch,
    pub(super) patience: Duration,
    pub(super) shutdown_budget: Duration,
    pub(super) host_shutdown_timeout: Duration,
    /// A bug of the driver's, which the oracles must find.
    #[cfg(test)]
    pub(super) planted: Option<crate::kernel::driver::planted::Bug>,
    #[cfg(feature = "testing")]
    pub(super) ticker_probe: Option<Arc<dyn Fn() + Send + Sync>>,
    #[cfg(feature = "testing")]
    pub(super) worker_probe: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl GroupOptions {
    /// A group of that name with the defaults: 20 workers on one pump, the queues of the registered
    /// jobs with equal weights, a lease of 60 s, a poll each second that slows down to 5 s when idle,
    /// 10 failures per job, 5 s for a clean stop.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            dispatch: None,
            workers: 20,
            pumps: 1,
            lease: Duration::from_secs(60),
            poll_min: Duration::from_secs(1),
            poll_max: Duration::from_secs(5),
            maintenance: Duration::from_secs(5),
            retention: Retention::default(),
            retry: RetryPolicy::default(),
            prefetch: Prefetch::Auto,
            patience: Duration::from_secs(10),
            shutdown_budget: Duration::from_secs(5),
            host_shutdown_timeout: Duration::from_secs(30),
            #[cfg(test)]
            planted: None,
            #[cfg(feature = "testing")]
            ticker_probe: None,
            #[cfg(feature = "testing")]
            worker_probe: None,
        }
    }

    /// From which queues, and how they share the workers. Default: the queues of the registered jobs,
    /// with equal weights. A policy that leaves one of them out is logged (2007).
    pub fn dispatch(mut self, policy: DispatchPolicy) -> Self {
        self.dispatch = Some(policy);
        self
    }

    /// Handlers that run at the same time, per pump; each has a thread. Default 20, 1 to 1000.
    pub fn workers(mut self, workers: u32) -> Self {
        self.workers = workers;
        self
    }

    /// Pumps, each with a thread, a session and workers of its own. Default 1, at most 64.
    pub fn pumps(mut self, pumps: u32) -> Self {
        self.pumps = pumps;
        self
    }

    /// How long a worker holds a job without renewing. It is renewed three times as often. Shorter
    /// means that the work of a dead process is inherited sooner, and more writes. Default 60 s, 5 s to
    /// a day.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How often an idle pump looks for work: at first each `min`, slowing down to each `max`.
    /// Default 1 s to 5 s. Work enqueued in this process, and known due times, do not wait for it.
    pub fn poll_interval(mut self, min: Duration, max: Duration) -> Self {
        (self.poll_min, self.poll_max) = (min, max);
        self
    }

    /// How often dead leases are looked for, and what has been kept long enough is taken away. Default 5 s.
    pub fn maintenance_interval(mut self, interval: Duration) -> Self {
        self.maintenance = interval;
        self
    }

    /// How long what has ended is kept. Default: 24 h for Succeeded and Cancelled jobs, 14 days for
    /// Dead-Lettered and Quarantined ones. Every group on a store purges by its own policy: the shortest wins.
    ///
    /// ```
    /// use backwave::{GroupOptions, Retention};
    /// use std::time::Duration;
    ///
    /// let week = Duration::from_secs(7 * 86_400);
    /// let options = GroupOptions::new("mail").retention(Retention::default().succeeded(week));
    /// assert!(options.validate().is_ok());
    /// ```
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// The retry policy of jobs that bring none. Default: 10 failures, see [`RetryPolicy`].
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// Whether a pump may hold short jobs beyond its free workers. Default [`Prefetch::Auto`].
    pub fn prefetch(mut self, prefetch: Prefetch) -> Self {
        self.prefetch = prefetch;
        self
    }

    /// How long a handler may ignore its token before a fresh thread takes its place, up to as many as
    /// there are workers. Default 10 s.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// How long a clean stop waits for running handlers before it hands their jobs back. Default 5 s; what
    /// is more than four fifths of the [host's own limit](Self::host_shutdown_timeout) is cut to that.
    /// Zero: nothing is waited for or handed back, and the leases lapse.
    pub fn shutdown_budget(mut self, budget: Duration) -> Self {
        self.shutdown_budget = budget;
        self
    }

    /// How long the host itself has to stop (what its supervisor grants). Default 30 s.
    pub fn host_shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.host_shutdown_timeout = timeout;
        self
    }

    /// Runs on the ticker thread at every poll tick: a test that panics in it sees what a dead ticker
    /// does.
    #[cfg(feature = "testing")]
    pub fn ticker_probe(mut self, probe: impl Fn() + Send + Sync + 'static) -> Self {
        self.ticker_probe = Some(Arc::new(probe));
        self
    }

    /// Runs on each worker thread as it begins: a test that panics in it sees what a worker that vanishes
    /// does.
    #[cfg(feature = "testing")]
    pub fn worker_probe(mut self, probe: impl Fn() + Send + Sync + 'static) -> Self {
        self.worker_probe = Some(Arc::new(probe));
        self
    }

    #[cfg(all(test, feature = "testing"))]
    pub(crate) fn planted(mut self, bug: Option<crate::kernel::driver::planted::Bug>) -> Self {
        self.planted = bug;
        self
    }

    /// The shutdown budget as it holds: within what the host grants, with some of that to spare.
    pub(super) fn budget(&self) -> Duration {
        self.shutdown_budget.min(self.host_shutdown_timeout / 5 * 4)
    }

    pub(super) fn heartbeat(&self) -> Duration {
        self.lease / 3
    }

    /// Checks everything.
    ///
    /// # Errors
    /// All faults at once.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let mut faults = Vec::new();
        if let Err(fault) = check_name(&self.name, NAME_BYTES_MAX) {
            faults.push(OptionsFault::Name { name: self.name.chars().take(64).collect(), fault });
        }
        check_count("workers", self.workers, 1000, &mut faults);
        check_count("pumps", self.pumps, 64, &mut faults);
        check_span("lease", self.lease, LEASE_MIN, DAY, &mut faults);
        check_span("poll_interval min", self.poll_min, POLL_MIN, DAY, &mut faults);
        check_span("poll_interval max", self.poll_max, self.poll_min, DAY, &mut faults);
        check_span("maintenance_interval", self.maintenance, POLL_MIN, DAY, &mut faults);
        check_span("patience", self.patience, POLL_MIN, DAY, &mut faults);
        if let Some(policy) = &self.dispatch {
            check_dispatch(policy, &mut faults);
        }
        OptionsError::unless_none(faults)
    }

    /// The calls of a store must not take so long that a lease runs out between two renewals.
    pub(super) fn check_call_timeout(&self, timeout: Option<Duration>) -> Result<(), OptionsError> {
        let Some(timeout) = timeout else { return Ok(()) };
        let needed = self.heartbeat() + timeout * 2;
        if needed < self.lease {
            return Ok(());
        }
        let fault = OptionsFault::LeaseTooShort { lease: self.lease, timeout, needed };
        Err(OptionsError { faults: vec![fault] })
    }
}

impl fmt::Debug for GroupOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupOptions")
            .field("name", &self.name)
            .field("dispatch", &self.dispatch)
            .field("workers", &self.workers)
            .field("pumps", &self.pumps)
            .field("lease", &self.lease)
            .field("retry", &self.retry)
            .finish_non_exhaustive()
    }
}

/// What is wrong with the options of a group or of observers: everything, not only the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionsError {
    faults: Vec<OptionsFault>,
}

impl OptionsError {
    pub(crate) fn unless_none(faults: Vec<OptionsFault>) -> Result<(), Self> {
        if faults.is_empty() { Ok(()) } else { Err(Self { faults }) }
    }

    /// Every fault.
    #[must_use]
    pub fn faults(&self) -> &[OptionsFault] {
        &self.faults
    }
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the options are refused: ")?;
        for (index, fault) in self.faults.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for OptionsError {}

/// One thing that is wrong with the options of a group or of an observer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsFault {
    /// The group's name cannot be used.
    #[error("the group name {name:?} cannot be used: {fault}")]
    Name {
        /// The name, cut to 64 characters.
        name: String,
        /// What is wrong with it.
        fault: NameFault,
    },
    /// A number is out of its range.
    #[error("{option} is {value}, and must be between 1 and {max}")]
    Count {
        /// Which option.
        option: &'static str,
        /// What it was set to.
        value: u32,
        /// The most it may be.
        max: u32,
    },
    /// A span of time is out of its range.
    #[error("{option} is {value:?}, and must be between {min:?} and {max:?}")]
    Span {
        /// Which option.
        option: &'static str,
        /// What it was set to.
        value: Duration,
        /// The least it may be.
        min: Duration,
        /// The most it may be.
        max: Duration,
    },
    /// An observer's name cannot be used.
    #[error("the observer name {name:?} cannot be used: {fault}")]
    ObserverName {
        /// The name, cut to 64 characters.
        name: String,
        /// What is wrong with it.
        fault: NameFault,
    },
    /// The dispatch policy has no queue.
    #[error("the dispatch policy has no queue")]
    NoQueue,
    /// A queue name cannot be used.
    #[error("the queue name {name:?} cannot be used: {fault}")]
    QueueName {
        /// The name, cut to 64 characters.
        name: String,
        /// What is wrong with it.
        fault: NameFault,
    },
    /// A queue is in the dispatch policy twice.
    #[error("the queue {name:?} is in the dispatch policy twice")]
    DuplicateQueue {
        /// The queue.
        name: String,
    },
    /// A queue's weight is zero, or the weights are too large to add up.
    #[error("the weight of queue {name:?} is {weight}, and must be between 1 and {max}")]
    Weight {
        /// The queue.
        name: String,
        /// Its weight.
        weight: u32,
        /// The most it may be.
        max: u32,
    },
    /// The lease is too short for the store's calls.
    #[error(
        "a lease of {lease:?} is too short for a store whose calls may take {timeout:?}: a third of it and two calls ({needed:?}) must pass within it; lengthen the lease, or shorten the store's call timeout"
    )]
    LeaseTooShort {
        /// The lease.
        lease: Duration,
        /// How long a call of the store may take.
        timeout: Duration,
        /// What must be less than the lease.
        needed: Duration,
    },
}

pub(crate) fn check_count(
    option: &'static str,
    value: u32,
    max: u32,
    faults: &mut Vec<OptionsFault>,
) {
    if value == 0 || value > max {
        faults.push(OptionsFault::Count { option, value, max });
    }
}

pub(crate) fn check_span(
    option: &'static str,
    value: Duration,
    min: Duration,
    max: Duration,
    faults: &mut Vec<OptionsFault>,
) {
    if value < min || value > max {
        faults.push(OptionsFault::Span { option, value, min, max });
    }
}

fn check_dispatch(policy: &DispatchPolicy, faults: &mut Vec<OptionsFault>) {
    let queues: Vec<&str> = policy.queues().collect();
    if queues.is_empty() {
        faults.push(OptionsFault::NoQueue);
    }
    for (index, queue) in queues.iter().enumerate() {
        let name = || queue.chars().take(64).collect();
        if let Err(fault) = check_name(queue, NAME_BYTES_MAX) {
            faults.push(OptionsFault::QueueName { name: name(), fault });
        }
        if queues[..index].contains(queue) {
            faults.push(OptionsFault::DuplicateQueue { name: name() });
        }
    }
    if let DispatchPolicy::Weighted(weights) = policy {
        for (name, weight) in weights.iter().filter(|(_, w)| *w == 0 || *w > WEIGHT_MAX) {
            let fault =
                OptionsFault::Weight { name: name.clone(), weight: *weight, max: WEIGHT_MAX };
            faults.push(fault);
        }
    }
}

pub(crate) const NAME_BYTES_MAX: usize = 128;
pub(crate) const LEASE_MIN: Duration = Duration::from_secs(5);
pub(crate) const POLL_MIN: Duration = Duration::from_millis(1);
pub(crate) const DAY: Duration = Duration::from_secs(86_400);
const WEIGHT_MAX: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(options: &GroupOptions) -> Vec<String> {
        let error = options.validate().expect_err("the options are wrong");
        error.faults().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_fault_is_told_at_once_with_value_and_limit() {
        let options = GroupOptions::new("")
            .workers(1001)
            .pumps(0)
            .lease(Duration::from_secs(1))
            .poll_interval(Duration::ZERO, Duration::ZERO)
            .dispatch(DispatchPolicy::weighted([("a", 0), ("a", 1)]));
        let faults = faults(&options).join("\n");
        for part in [
            "the group name \"\" cannot be used: it is empty",
            "workers is 1001, and must be between 1 and 1000",
            "pumps is 0",
            "lease is 1s, and must be between 5s and 86400s",
            "poll_interval min is 0ns",
            "the queue \"a\" is in the dispatch policy twice",
            "the weight of queue \"a\" is 0",
        ] {
            assert!(faults.contains(part), "{part} is missing in:\n{faults}");
        }
    }

    #[test]
    fn the_budget_of_a_stop_is_cut_to_four_fifths_of_the_hosts_limit() {
        let budget = |options: GroupOptions| {
            assert!(options.validate().is_ok());
            options.budget()
        };
        let options = || GroupOptions::new("g");
        assert_eq!(budget(options()), Duration::from_secs(5));
        assert_eq!(budget(options().shutdown_budget(Duration::MAX)), Duration::from_secs(24));
        let short = options().host_shutdown_timeout(Duration::from_secs(1));
        assert_eq!(budget(short), Duration::from_millis(800));
        assert_eq!(budget(options().shutdown_budget(Duration::ZERO)), Duration::ZERO);
        let endless = options().host_shutdown_timeout(Duration::MAX);
        assert_eq!(budget(endless), Duration::from_secs(5));
    }

    #[test]
    fn a_policy_without_queues_is_refused() {
        let none: [&str; 0] = [];
        let options = GroupOptions::new("g").dispatch(DispatchPolicy::strict(none));
        assert_eq!(faults(&options), ["the dispatch policy has no queue"]);
    }

    #[test]
    fn a_lease_that_two_slow_calls_outlast_is_refused() {
        let options = GroupOptions::new("g").lease(Duration::from_secs(30));
        assert!(options.check_call_timeout(Some(Duration::from_secs(9))).is_ok());
        assert!(options.check_call_timeout(Some(Duration::from_secs(10))).is_err());
        assert!(options.check_call_timeout(None).is_ok());
    }
}
