//! A run as data: what is enqueued, on which machines, and what goes wrong. The same plan is the same run.

use crate::testing::StoreCall;
use crate::testing::link::CallFault;
use serde::{Deserialize, Serialize};

/// Everything that decides a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Decides the order of what happens at one time, latencies, ids, and how long handlers take.
    pub(crate) seed: u64,
    pub(crate) level: Level,
    /// Until then things go wrong; from then on they must come to rest.
    pub(crate) ends_ms: u64,
    pub(crate) nodes: Vec<NodePlan>,
    /// Whether queues are served in order, rather than by weight.
    pub(crate) strict: bool,
    pub(crate) queues: Vec<QueuePlan>,
    pub(crate) jobs: Vec<JobPlan>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) schedules: Vec<SchedulePlan>,
    pub(crate) faults: Vec<Fault>,
}

/// What may go wrong in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Handlers only. Everything ends soon, and no lease ever lapses.
    Calm,
    /// Everything, and it heals: in the end all work is done.
    Healing,
    /// What breaks need not heal: nothing wrong happens, but work may be left.
    Broken,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodePlan {
    pub(crate) workers: u32,
    pub(crate) drift_ppm: i64,
    pub(crate) wall_ahead_ms: i64,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub(crate) pumps: u32,
    /// Whether its pumps take more than they have threads for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) prefetches: bool,
}

const fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
const fn is_one(number: &u32) -> bool {
    *number == 1
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QueuePlan {
    pub(crate) limit: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key_limit: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobPlan {
    /// Names it within the plan; parents have smaller numbers.
    pub(crate) n: u32,
    pub(crate) at_ms: u64,
    pub(crate) queue: usize,
    pub(crate) delay_ms: u64,
    pub(crate) failures_max: u32,
    pub(crate) retry_ms: u64,
    pub(crate) timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) parents: Vec<u32>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) on_any_end: bool,
    /// Its unique key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unique: Option<u32>,
    /// Its concurrency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<u32>,
}

/// From here on jobs are numbered that schedules mint: all of one schedule's have one number.
pub(crate) const SCHEDULED: u32 = 1_000_000;

/// A recurring schedule: an interval, counted from the epoch, until the plan ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SchedulePlan {
    /// Names it within the plan.
    pub(crate) n: u32,
    pub(crate) at_ms: u64,
    pub(crate) every_s: u64,
    pub(crate) queue: usize,
    pub(crate) no_overlap: bool,
    /// What was missed is made up for by one job, however late; else it is skipped after so long.
    pub(crate) grace_s: Option<u64>,
}

/// One thing that goes wrong, named by what it acts on: taking one away leaves the meaning of the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub(crate) enum Fault {
    /// The nth call of its kind by a node.
    Call {
        node: usize,
        call: CallKind,
        nth: u64,
        fault: CallFault,
    },
    Crash {
        node: usize,
        at_ms: u64,
        down_ms: Option<u64>,
    },
    /// Nothing gets through between node and store; the node runs on, and believes what it believed.
    Isolate {
        node: usize,
        at_ms: u64,
        for_ms: Option<u64>,
    },
    /// The node gets no time; with `suspends`, its clock stands still as well.
    Pause {
        node: usize,
        at_ms: u64,
        for_ms: u64,
        suspends: bool,
    },
    /// A clean stop, and a start some time after it.
    Stop {
        node: usize,
        at_ms: u64,
        back_ms: Option<u64>,
    },
    /// The nth hint on its way to a node.
    Hint {
        node: usize,
        nth: u64,
        fault: HintFault,
    },
    /// What the handler of that job does in that attempt, other than succeeding soon.
    Handler {
        job: u32,
        attempt: u32,
        does: Act,
    },
    /// What becomes of the first try to enqueue that job. Its client tries again under the same id.
    Enqueue {
        job: u32,
        fault: EnqueueFault,
    },
    Operator {
        at_ms: u64,
        order: Order,
    },
    /// The store's clock steps.
    StoreClock {
        at_ms: u64,
        by_ms: i64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CallKind {
    OpenSession,
    Claim,
    Report,
    Exchange,
    Renew,
    FindLapsed,
    HeldBy,
    HandBack,
    DueSchedules,
    Mint,
}

impl CallKind {
    /// What any node calls.
    pub(crate) const USUAL: [Self; 8] = [
        Self::OpenSession,
        Self::Claim,
        Self::Report,
        Self::Exchange,
        Self::Renew,
        Self::FindLapsed,
        Self::HeldBy,
        Self::HandBack,
    ];

    pub(crate) fn of(call: StoreCall) -> Option<Self> {
        Some(match call {
            StoreCall::OpenSession => Self::OpenSession,
            StoreCall::Claim => Self::Claim,
            StoreCall::Report => Self::Report,
            StoreCall::Exchange => Self::Exchange,
            StoreCall::Renew => Self::Renew,
            StoreCall::FindLapsed => Self::FindLapsed,
            StoreCall::HeldBy => Self::HeldBy,
            StoreCall::HandBack => Self::HandBack,
            StoreCall::DueSchedules => Self::DueSchedules,
            StoreCall::Mint => Self::Mint,
            _ => return None,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EnqueueFault {
    /// It does not arrive.
    LostBefore,
    /// It is carried out, and the client does not hear of it.
    LostAfter,
    /// It is carried out so much later, after the client has tried again.
    Late { ms: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HintFault {
    Lost,
    Doubled,
    Late { ms: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Act {
    Fail,
    Panic,
    Discard,
    CallOff,
    Snooze {
        ms: u64,
    },
    RetryIn {
        ms: u64,
    },
    /// Takes so long, and gives way when it is asked to.
    Slow {
        ms: u64,
    },
    /// Takes so long, whatever it is asked.
    Deaf {
        ms: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    Cancel { job: u32 },
    Requeue { job: u32 },
    Hold { queue: usize, for_ms: u64 },
    Limit { queue: usize, limit: u32, for_ms: u64 },
    KeyLimit { queue: usize, limit: u32, for_ms: u64 },
    Revoke { node: usize },
    PauseSchedule { schedule: u32, for_ms: u64 },
    TriggerSchedule { schedule: u32 },
    RemoveSchedule { schedule: u32 },
}

impl Plan {
    /// As JSON, to be kept and replayed.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// From JSON.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn from_json(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    /// How many jobs and faults it has.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        (self.jobs.len(), self.faults.len())
    }
}
