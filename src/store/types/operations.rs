//! Requests and answers of what an operator causes.

use crate::kernel::state::JobState;
use crate::{JobId, Timestamp};

/// The answer to a cancel request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CancelAnswer {
    /// It was waiting and is Cancelled now.
    Cancelled,
    /// It is running; its holder will hear of it. Also when the request stood already.
    Requested,
    /// It has ended already, in this state.
    Ended(JobState),
    /// There is no such job.
    NotFound,
}

/// The answer to a requeue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RequeueAnswer {
    /// It is Scheduled again.
    Requeued,
    /// It is in a state that no requeue leads out of.
    IllegalState(JobState),
    /// Another job that lives holds its unique key.
    KeyHeld {
        /// The job that holds it.
        by: JobId,
    },
    /// There is no such job.
    NotFound,
}

/// What is done to each job that a filter matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BulkChange {
    /// As [`Operations::request_cancel`](crate::store::Operations::request_cancel).
    Cancel,
    /// As [`Operations::requeue`](crate::store::Operations::requeue).
    Requeue,
}

impl BulkChange {
    /// The states in which a job can be changed so; jobs in others are passed over.
    #[must_use]
    pub const fn from_states(self) -> &'static [JobState] {
        match self {
            Self::Cancel => &[JobState::Scheduled, JobState::AwaitingParent, JobState::Leased],
            Self::Requeue => &[JobState::DeadLettered, JobState::Quarantined],
        }
    }
}

/// The answer to one page of a bulk change.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BulkAnswer {
    /// How many jobs this page changed, a cancel request newly standing included.
    pub changed: u32,
    /// Where to go on, if more may match: the last job looked at.
    pub next: Option<JobId>,
    /// The store's time.
    pub store_time: Timestamp,
}

impl BulkAnswer {
    /// An answer.
    #[must_use]
    pub const fn new(changed: u32, next: Option<JobId>, store_time: Timestamp) -> Self {
        Self { changed, next, store_time }
    }
}

/// What an operator changes of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QueueChange {
    /// No claim takes anything from it any more. What runs goes on.
    Pause,
    /// Claims take from it again.
    Resume,
    /// At most so many of its jobs are Leased at any time, in the whole fleet; `None` takes the limit
    /// away. Lowering it stops nothing that runs.
    Limit(Option<u32>),
    /// At most so many of its jobs with one concurrency key are Leased at any time, in the whole fleet;
    /// `None` makes it one again. Lowering it stops nothing that runs.
    KeyLimit(Option<u32>),
}

/// How many jobs with one concurrency key may be Leased in a queue that is not set otherwise: a key that
/// limits nothing would be a trap.
pub const KEY_LIMIT: u32 = 1;

/// How a queue is set.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueSettings {
    /// The queue.
    pub queue: String,
    /// Whether claims pass it over.
    pub is_paused: bool,
    /// At most so many of its jobs are Leased at any time, in the whole fleet.
    pub concurrency_limit: Option<u32>,
    /// At most so many of its jobs with one concurrency key are Leased at any time, in the whole fleet; one
    /// where it is not set.
    pub concurrency_limit_per_key: Option<u32>,
}

impl QueueSettings {
    /// A queue that is not paused and has no limits.
    #[must_use]
    pub const fn new(queue: String) -> Self {
        Self { queue, is_paused: false, concurrency_limit: None, concurrency_limit_per_key: None }
    }

    /// How many jobs with one concurrency key may be Leased: what is set, or one.
    #[must_use]
    pub fn key_limit(&self) -> u32 {
        self.concurrency_limit_per_key.unwrap_or(KEY_LIMIT)
    }

    /// Applies a change; whether it made a difference.
    pub fn apply(&mut self, change: QueueChange) -> bool {
        let facts =
            |set: &Self| (set.is_paused, set.concurrency_limit, set.concurrency_limit_per_key);
        let before = facts(self);
        match change {
            QueueChange::Pause => self.is_paused = true,
            QueueChange::Resume => self.is_paused = false,
            QueueChange::Limit(limit) => self.concurrency_limit = limit,
            QueueChange::KeyLimit(limit) => self.concurrency_limit_per_key = limit,
        }
        before != facts(self)
    }
}

/// The answer to a change of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueAnswer {
    /// How the queue is set now.
    pub settings: QueueSettings,
    /// Whether it was set otherwise before.
    pub changed: bool,
    /// The store's time.
    pub store_time: Timestamp,
}

impl QueueAnswer {
    /// An answer.
    #[must_use]
    pub const fn new(settings: QueueSettings, changed: bool, store_time: Timestamp) -> Self {
        Self { settings, changed, store_time }
    }
}

/// The answer to one page of taking a worker's leases away.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Revoked {
    /// The jobs taken away, by ascending id.
    pub jobs: Vec<JobId>,
    /// Whether the worker may hold more.
    pub more: bool,
    /// The store's time.
    pub store_time: Timestamp,
}

impl Revoked {
    /// An answer.
    #[must_use]
    pub const fn new(jobs: Vec<JobId>, more: bool, store_time: Timestamp) -> Self {
        Self { jobs, more, store_time }
    }
}

/// What an operator did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AuditAction {
    /// Cancelled a waiting job, or asked for a running one to be cancelled.
    Cancel,
    /// Requeued a job.
    Requeue,
    /// Took a lease away.
    Revoke,
    /// Paused a queue.
    Pause,
    /// Resumed a queue.
    Resume,
    /// Set a queue's limit, or took it away.
    Limit(Option<u32>),
    /// Paused a schedule.
    PauseSchedule,
    /// Resumed a schedule.
    ResumeSchedule,
    /// Removed a schedule.
    RemoveSchedule,
    /// Minted a job of a schedule beside its ticks.
    TriggerSchedule,
    /// Had parked deliveries of an observer tried again.
    Redeliver,
    /// Forgot parked deliveries of an observer.
    Discard,
    /// Removed an observer.
    RemoveObserver,
    /// Set a queue's limit per concurrency key, or took it away.
    KeyLimit(Option<u32>),
}

impl AuditAction {
    /// The number under which stores keep its kind; never reused. The limit stands beside it.
    #[must_use]
    pub const fn code(self) -> i16 {
        match self {
            Self::Cancel => 1,
            Self::Requeue => 2,
            Self::Revoke => 3,
            Self::Pause => 4,
            Self::Resume => 5,
            Self::Limit(_) => 6,
            Self::PauseSchedule => 8,
            Self::ResumeSchedule => 9,
            Self::RemoveSchedule => 10,
            Self::TriggerSchedule => 11,
            Self::Redeliver => 12,
            Self::Discard => 13,
            Self::RemoveObserver => 14,
            Self::KeyLimit(_) => 7,
        }
    }

    /// The action stored under `code` with that limit, if there is one.
    #[must_use]
    pub const fn from_code(code: i64, limit: Option<u32>) -> Option<Self> {
        Some(match code {
            1 => Self::Cancel,
            2 => Self::Requeue,
            3 => Self::Revoke,
            4 => Self::Pause,
            5 => Self::Resume,
            6 => Self::Limit(limit),
            8 => Self::PauseSchedule,
            9 => Self::ResumeSchedule,
            10 => Self::RemoveSchedule,
            11 => Self::TriggerSchedule,
            12 => Self::Redeliver,
            13 => Self::Discard,
            14 => Self::RemoveObserver,
            7 => Self::KeyLimit(limit),
            _ => return None,
        })
    }

    /// The action that a change of a queue is.
    #[must_use]
    pub const fn of_queue(change: QueueChange) -> Self {
        match change {
            QueueChange::Pause => Self::Pause,
            QueueChange::Resume => Self::Resume,
            QueueChange::Limit(limit) => Self::Limit(limit),
            QueueChange::KeyLimit(limit) => Self::KeyLimit(limit),
        }
    }
}

/// One action of an operator's that had an effect, written in its own transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditRecord {
    /// Its place: later ones have higher numbers.
    pub position: u64,
    /// When, by the store's clock.
    pub at: Timestamp,
    /// In whose name.
    pub actor: String,
    /// What.
    pub action: AuditAction,
    /// The job it was done to.
    pub job: Option<JobId>,
    /// The queue it was done to, or the job's. Empty, where it is about neither.
    pub queue: String,
    /// The schedule or the observer it was done to.
    pub subject: Option<String>,
}

impl AuditRecord {
    /// A record.
    #[must_use]
    pub const fn new(
        position: u64,
        at: Timestamp,
        actor: String,
        action: AuditAction,
        job: Option<JobId>,
        queue: String,
    ) -> Self {
        Self { position, at, actor, action, job, queue, subject: None }
    }

    /// Says which schedule or observer it was done to.
    #[must_use]
    pub fn about(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }
}
