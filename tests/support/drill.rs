//! What tests of faults run: one job type, and a ledger of what its handlers did.

use backwave::{GroupOptions, Job, JobContext, JobId, JobResult, NewJob, Registry, RetryPolicy};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longer than anything that works takes; reached only where something is broken.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// A job that takes a while and leaves its mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drill {
    pub number: u32,
    pub millis: u64,
}

impl Job for Drill {
    const WIRE_NAME: &'static str = "drill";
}

/// Which attempts of which jobs have run to their end.
#[derive(Default)]
pub struct Ledger {
    runs: Mutex<HashMap<JobId, Vec<u32>>>,
}

impl Ledger {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// A handler of [`Drill`] that notes what it does here.
    pub fn registry(self: &Arc<Self>) -> Registry {
        Registry::new().handle_with(self, Self::run)
    }

    fn run(&self, ctx: &JobContext, job: Drill) -> JobResult {
        if job.millis > 0 {
            ctx.sleep(Duration::from_millis(job.millis))?;
        }
        self.note(ctx);
        Ok(())
    }

    /// Notes the attempt.
    pub fn note(&self, ctx: &JobContext) {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.entry(ctx.job_id()).or_default().push(ctx.attempt());
    }

    /// The attempts of that job that have run to their end.
    pub fn attempts(&self, job: JobId) -> Vec<u32> {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.get(&job).cloned().unwrap_or_default()
    }

    /// How many jobs have run to their end at least once.
    pub fn jobs(&self) -> usize {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// How many attempts have run to their end.
    pub fn total(&self) -> usize {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.values().map(Vec::len).sum()
    }
}

/// `count` jobs with ids known beforehand.
pub fn drills(count: u32, millis: u64) -> Vec<NewJob> {
    (0..count).map(|number| drill(number, millis)).collect()
}

/// One job, with an id of the caller's.
pub fn drill(number: u32, millis: u64) -> NewJob {
    NewJob::new(&Drill { number, millis }).id(JobId::new())
}

/// Options of a group that looks for work and for dead leases all the time, with the shortest lease.
pub fn quick(name: &str) -> GroupOptions {
    GroupOptions::new(name)
        .workers(4)
        .lease(Duration::from_secs(5))
        .poll_interval(Duration::from_millis(10), Duration::from_millis(50))
        .maintenance_interval(Duration::from_millis(100))
        .retry(RetryPolicy::new(5).fixed(Duration::from_millis(1)).jitter_percent(0))
}

/// Looks again and again until it holds. For what nothing can be waited for.
///
/// # Panics
/// When it does not hold in time.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "it never came true that {what}");
        // Sleeps between looks at what gives no sign when it changes.
        std::thread::sleep(Duration::from_millis(5));
    }
    began.elapsed()
}

/// Numbers that look random and are the same in every run.
pub struct Dice(u64);

impl Dice {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`.
    pub fn roll(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// No invariant of this crate has been violated in this process, not even one that only degrades.
pub fn assert_no_alarm() {
    use backwave::invariant::{InvariantAction, InvariantTrigger, halts, violations};
    for trigger in InvariantTrigger::ALL {
        for action in [InvariantAction::Halt, InvariantAction::Degrade] {
            assert_eq!(violations(*trigger, action), 0, "{trigger} {action:?}");
        }
        assert_eq!(halts(Some(*trigger)), 0, "{trigger}");
    }
    assert_eq!(halts(None), 0, "a pump halted on a fault without a name");
}
