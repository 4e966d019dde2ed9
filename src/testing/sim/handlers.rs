//! The handler of simulated jobs: it does what the plan says, and tells the oracles what it has done.

use super::judge::{Judge, Ran};
use super::plan::{Act, Fault, Plan};
use crate::testing::mix;
use crate::testing::world::{ProcessId, pass};
use crate::{CancelReason, Job, JobContext, JobError, JobResult, Registry};
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

/// A job: its number in the plan.
#[derive(serde::Serialize, serde::Deserialize)]
pub(super) struct Work(u32);

impl Job for Work {
    const WIRE_NAME: &'static str = "work";
}

/// What handlers need to know.
pub(super) struct Script {
    seed: u64,
    acts: BTreeMap<(u32, u32), Act>,
    limits: BTreeMap<u32, u64>,
    judge: Judge,
}

impl Script {
    pub(super) fn new(plan: &Plan, judge: Judge) -> Self {
        let acts = plan.faults.iter().filter_map(|fault| match fault {
            Fault::Handler { job, attempt, does } => Some(((*job, *attempt), *does)),
            _ => None,
        });
        let limits = plan.jobs.iter().filter_map(|job| Some((job.n, job.timeout_ms?)));
        Self { seed: plan.seed, acts: acts.collect(), limits: limits.collect(), judge }
    }

    /// The handlers of one process.
    pub(super) fn registry(self: &Arc<Self>, process: ProcessId) -> Registry {
        let script = Arc::clone(self);
        Registry::new().handle(move |context, work: Work| script.run(process, context, work.0))
    }

    fn run(&self, process: ProcessId, context: &JobContext, n: u32) -> JobResult {
        let (job, attempt) = (context.job_id(), context.attempt());
        self.judge.began(process, job, attempt);
        let does = self.acts.get(&(n, attempt)).copied();
        let (mut ran, result) = self.act(context, n, does);
        let limit = self.limits.get(&n).copied();
        // Once its time is up, whatever else it says counts as a failure.
        if ran != Ran::Succeeded && context.token().reason() == Some(CancelReason::TimedOut) {
            ran = Ran::Failed;
        }
        let listens = !matches!(does, Some(Act::Deaf { .. }));
        self.judge.ran(job, attempt, ran, listens, limit);
        if does == Some(Act::Panic) {
            resume_unwind(Box::new("the handler panics"));
        }
        result
    }

    fn act(&self, context: &JobContext, n: u32, does: Option<Act>) -> (Ran, JobResult) {
        let usual = mix(self.seed ^ mix(u64::from(n) << 8 ^ u64::from(context.attempt())));
        // Half of the jobs take no time at all.
        let usual = if usual.is_multiple_of(2) { 0 } else { (usual >> 8) % 300 };
        let listening = |ms: u64| match context.sleep(Duration::from_millis(ms)) {
            Ok(()) => (Ran::Succeeded, Ok(())),
            Err(cancelled) => (Ran::GaveWay(cancelled.reason), Err(JobError::from(cancelled))),
        };
        match does {
            None => listening(usual),
            Some(Act::Slow { ms }) => listening(ms),
            Some(Act::Deaf { ms }) => {
                pass(ms as i64 * 1000);
                (Ran::Succeeded, Ok(()))
            }
            Some(Act::Fail) => (Ran::Failed, Err("it fails".into())),
            Some(Act::Panic) => (Ran::Failed, Ok(())),
            Some(Act::Discard) => (Ran::Discarded, Err(JobError::discard("it is of no use"))),
            Some(Act::CallOff) => (Ran::CalledOff, Err(JobError::cancel("there is nothing to do"))),
            Some(Act::Snooze { ms }) => {
                (Ran::Snoozed, Err(JobError::snooze(Duration::from_millis(ms))))
            }
            Some(Act::RetryIn { ms }) => {
                let delay = Duration::from_millis(ms);
                (Ran::Postponed, Err(JobError::retry_in(delay, "later")))
            }
        }
    }
}
