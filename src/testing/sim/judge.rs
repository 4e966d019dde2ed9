//! The oracles: they see every deed of the store and every run of a handler, keep a history of their own, and
//! know nothing of how store and driver come to what they do.

mod deeds;
mod ends;
mod keys;
mod runs;
mod schedules;

use super::coverage::Coverage;
use super::plan::Plan;
use crate::store::{JobRow, Receipt, Session, Store};
use crate::testing::link::{Caller, Deed, Watch};
use crate::testing::world::{ProcessId, World};
use crate::{CancelReason, JobId, JobState, MemoryStore, RetryPolicy, Timestamp, WorkerId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Which oracle saw it.
    pub oracle: &'static str,
    /// What it saw.
    pub detail: String,
    /// When, by the store's clock.
    pub at: Timestamp,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] at {}: {}", self.oracle, self.at, self.detail)
    }
}

/// Clones are the same judge.
#[derive(Clone)]
pub(super) struct Judge(Arc<Parts>);

struct Parts {
    world: World,
    /// The store itself, whatever stands between it and the nodes.
    store: MemoryStore,
    case: Mutex<Case>,
}

/// Everything that the oracles know.
pub(super) struct Case {
    now: Timestamp,
    /// The latest that the store's clock has shown: it may have stepped back since.
    latest: Timestamp,
    jobs: BTreeMap<JobId, Known>,
    children: BTreeMap<JobId, Vec<JobId>>,
    queues: BTreeMap<String, QueueKnown>,
    schedules: BTreeMap<String, schedules::ScheduleKnown>,
    processes: BTreeMap<ProcessId, Process>,
    nodes: Vec<Node>,
    /// When the store's clock stepped last.
    stepped_at: Option<Timestamp>,
    touched: BTreeSet<JobId>,
    findings: Vec<Finding>,
    log: Option<Vec<String>>,
    coverage: Coverage,
    runs: u64,
}

/// A job as the oracles believe it to be.
struct Known {
    n: u32,
    row: JobRow,
    /// The parents whose end has opened their gates. What opens stays open, also where the parent lives again.
    opened: BTreeSet<JobId>,
    state: JobState,
    attempt: u32,
    failures: u32,
    due: Timestamp,
    hold: Option<Hold>,
    cancel: bool,
    /// When an operator asked for it to end while it ran.
    cancel_at: Option<Timestamp>,
    receipt: Option<Receipt>,
    settled: BTreeSet<u32>,
    attempts: BTreeMap<u32, Attempt>,
}

#[derive(Clone, Copy)]
struct Hold {
    worker: WorkerId,
    expiry: Timestamp,
    process: ProcessId,
    node: usize,
    since: Timestamp,
}

/// One attempt, from its claim on.
struct Attempt {
    process: ProcessId,
    /// Its claim was sent after the stop of its process was asked for: it must not begin.
    barred: bool,
    began: Option<Timestamp>,
    ran: Option<Ran>,
    /// Under which its holder first reported it.
    receipt: Option<Receipt>,
}

/// How a handler's run ended, as its own code saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ran {
    Succeeded,
    Failed,
    /// Failed, with a delay of its own.
    Postponed,
    Discarded,
    CalledOff,
    Snoozed,
    /// It was asked to end, and did.
    GaveWay(CancelReason),
}

#[derive(Default)]
struct QueueKnown {
    is_paused: bool,
    limit: Option<u32>,
    key_limit: Option<u32>,
}

#[derive(Default)]
struct Process {
    node: usize,
    workers: BTreeSet<WorkerId>,
    stop_asked: Option<i64>,
    /// It has crashed, stopped or halted.
    ended: bool,
}

#[derive(Default)]
struct Node {
    workers: u32,
    /// A pump may hold more than its threads run.
    prefetches: bool,
    /// Something was wrong with it then, last.
    troubled_at: Option<Timestamp>,
    /// A call of it failed then, last: it must live with that, but may be late.
    failed_at: Option<Timestamp>,
    /// It is cut off, or gets no time.
    is_troubled: bool,
}

impl Judge {
    pub(super) fn new(plan: &Plan, world: World, store: MemoryStore, keeps_log: bool) -> Self {
        let nodes = plan.nodes.iter().map(|node| Node {
            workers: node.workers,
            prefetches: node.prefetches,
            ..Node::default()
        });
        let case = Case {
            now: world.now(),
            latest: world.now(),
            jobs: BTreeMap::new(),
            children: BTreeMap::new(),
            queues: BTreeMap::new(),
            schedules: schedules::of_plan(plan),
            processes: BTreeMap::new(),
            nodes: nodes.collect(),
            stepped_at: None,
            touched: BTreeSet::new(),
            findings: Vec::new(),
            log: keeps_log.then(Vec::new),
            coverage: Coverage::default(),
            runs: 0,
        };
        Self(Arc::new(Parts { world, store, case: Mutex::new(case) }))
    }

    /// Looks at the case, and at what the store keeps of the jobs that it touches.
    fn hear<R>(&self, look: impl FnOnce(&mut Case) -> R) -> R {
        let mut case = self.0.case.lock();
        case.now = self.0.world.now();
        case.latest = case.latest.max(case.now);
        let answer = look(&mut case);
        if !case.touched.is_empty()
            && let Ok(mut session) = self.0.store.open_session()
        {
            case.compare(session.as_mut());
        }
        answer
    }

    /// Whether a job was stored.
    pub(super) fn knows(&self, job: JobId) -> bool {
        self.0.case.lock().jobs.contains_key(&job)
    }

    pub(super) fn has_found(&self) -> bool {
        !self.0.case.lock().findings.is_empty()
    }

    pub(super) fn take_findings(&self) -> Vec<Finding> {
        std::mem::take(&mut self.0.case.lock().findings)
    }

    pub(super) fn take_log(&self) -> Vec<String> {
        self.0.case.lock().log.take().unwrap_or_default()
    }

    pub(super) fn coverage(&self) -> Coverage {
        self.0.case.lock().coverage.clone()
    }

    /// The pumps of a node that have claimed, of all of its processes.
    pub(super) fn workers_of(&self, node: usize) -> Vec<WorkerId> {
        let case = self.0.case.lock();
        let processes = case.processes.values().filter(|process| process.node == node);
        processes.flat_map(|process| process.workers.iter().copied()).collect()
    }

    /// How many handlers have begun.
    pub(super) fn runs(&self) -> u64 {
        self.0.case.lock().runs
    }

    pub(super) fn situation(&self, name: &'static str) {
        self.hear(|case| case.coverage.met(name));
    }

    pub(super) fn started(&self, process: ProcessId, node: usize) {
        self.hear(|case| {
            case.say(|| format!("node {node} starts"));
            case.processes.insert(process, Process { node, ..Process::default() });
        });
    }

    pub(super) fn stop_asked(&self, process: ProcessId, elapsed: i64) {
        self.hear(|case| {
            let node = case.processes.entry(process).or_default();
            node.stop_asked = Some(elapsed);
        });
    }

    /// Something is wrong with a node from now on, or at this moment.
    pub(super) fn trouble(&self, node: usize, lasts: bool) {
        self.hear(|case| {
            let now = case.now;
            if let Some(node) = case.nodes.get_mut(node) {
                node.troubled_at = Some(now);
                node.is_troubled = lasts;
            }
        });
    }

    /// What was wrong with a node is over, if something was.
    pub(super) fn healed(&self, node: usize) {
        let was_troubled = self.0.case.lock().nodes.get(node).is_some_and(|node| node.is_troubled);
        if was_troubled {
            self.trouble(node, false);
        }
    }

    /// Something that was wrong with a node until this moment, or that may go wrong until then.
    pub(super) fn trouble_until(&self, node: usize, until: Timestamp) {
        self.hear(|case| {
            if let Some(node) = case.nodes.get_mut(node) {
                node.troubled_at = node.troubled_at.max(Some(until));
            }
        });
    }

    /// A call of a node failed.
    pub(super) fn call_failed(&self, node: usize) {
        self.hear(|case| {
            let now = case.now;
            if let Some(node) = case.nodes.get_mut(node) {
                node.failed_at = Some(now);
            }
        });
    }

    pub(super) fn store_clock_stepped(&self) {
        self.hear(|case| {
            let now = case.now;
            case.stepped_at = Some(now);
            case.say(|| "the store's clock steps".to_owned());
        });
    }
}

impl Watch for Judge {
    fn saw(&self, caller: Caller, deed: &Deed<'_>) {
        self.hear(|case| case.judge(caller, deed));
    }
}

impl Case {
    fn find(&mut self, oracle: &'static str, detail: String) {
        self.say(|| format!("FINDING [{oracle}] {detail}"));
        // What follows from a first finding says little.
        if self.findings.len() < 3 {
            self.findings.push(Finding { oracle, detail, at: self.now });
        }
    }

    fn say(&mut self, line: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(log) = &mut self.log {
            log.push(format!("{now} {}", line()));
        }
    }

    fn name(&self, id: JobId) -> String {
        self.jobs.get(&id).map_or_else(|| id.to_string(), |job| format!("job {}", job.n))
    }

    /// Whether nothing was wrong around a node for so long before `since`, nor after.
    fn is_untroubled(&self, node: usize, since: Timestamp) -> bool {
        let calm = since.saturating_sub(AFTERMATH);
        let quiet = |at: Option<Timestamp>| at.is_none_or(|at| at < calm);
        quiet(self.stepped_at)
            && self.nodes.get(node).is_some_and(|node| !node.is_troubled && quiet(node.troubled_at))
    }

    /// The same, and no call of it failed either.
    fn is_unharmed(&self, node: usize, since: Timestamp) -> bool {
        let calm = since.saturating_sub(AFTERMATH);
        let node_known = self.nodes.get(node);
        self.is_untroubled(node, since)
            && node_known.is_some_and(|node| node.failed_at.is_none_or(|at| at < calm))
    }

    /// Holds what the store keeps against what its answers have said.
    fn compare(&mut self, session: &mut dyn Session) {
        for id in std::mem::take(&mut self.touched) {
            let Ok(record) = session.job(id) else { continue };
            let Some(known) = self.jobs.get(&id) else { continue };
            let Some(record) = record else {
                let detail = format!("{} is not in the store any more", self.name(id));
                self.find("no job is lost", detail);
                continue;
            };
            let hold = known.hold.map(|hold| (hold.worker, hold.expiry));
            let theirs = (record.state, record.attempt, record.failures, record.due_at);
            let ours = (known.state, known.attempt, known.failures, known.due);
            let their_hold = record.owner.zip(record.expiry);
            if theirs != ours || hold != their_hold || record.cancel_requested != known.cancel {
                let detail = format!(
                    "{} is {theirs:?} held {their_hold:?}, cancel {}, and its history says {ours:?} held {hold:?}, cancel {}",
                    self.name(id),
                    record.cancel_requested,
                    known.cancel
                );
                self.find("the store keeps what it has answered", detail);
            }
        }
    }
}

impl Known {
    fn policy(&self) -> RetryPolicy {
        self.row.retry.unwrap_or_default()
    }

    fn is_held(&self, worker: WorkerId, attempt: u32) -> bool {
        self.attempt == attempt && self.hold.is_some_and(|hold| hold.worker == worker)
    }

    fn is_held_live(&self, worker: WorkerId, attempt: u32, now: Timestamp) -> bool {
        self.is_held(worker, attempt) && self.hold.is_some_and(|hold| hold.expiry > now)
    }
}

/// For so long what went wrong may still have consequences: a lost claim is asked after until then.
const AFTERMATH: std::time::Duration = std::time::Duration::from_secs(14);
