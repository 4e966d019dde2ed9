//! Requests and answers of what can be read.

use super::{AuditRecord, Body};
use crate::kernel::state::JobState;
use crate::{JobId, Timestamp, WorkerId};

/// Which jobs: every condition that is set must hold.
///
/// ```
/// use backwave::JobState;
/// use backwave::store::JobFilter;
///
/// let dead = JobFilter::new().state(JobState::DeadLettered).queue("mail").tag("urgent");
/// assert_eq!(dead.queue.as_deref(), Some("mail"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct JobFilter {
    /// In one of these states; any, where it is empty.
    pub states: Vec<JobState>,
    /// In this queue.
    pub queue: Option<String>,
    /// Of this wire name.
    pub wire_name: Option<String>,
    /// With this tag.
    pub tag: Option<String>,
    /// The job that holds this unique key. What has ended holds none, so one job at most.
    pub unique_key: Option<String>,
    /// With this concurrency key. Found by an index among those that are Leased, with a queue.
    pub concurrency_key: Option<String>,
    /// Accepted at this instant or later.
    pub created_from: Option<Timestamp>,
    /// Accepted before this instant.
    pub created_before: Option<Timestamp>,
    /// Ended at this instant or later.
    pub finished_from: Option<Timestamp>,
    /// Ended before this instant.
    pub finished_before: Option<Timestamp>,
}

impl JobFilter {
    /// Every job.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a state: a job may be in any of those added.
    #[must_use]
    pub fn state(mut self, state: JobState) -> Self {
        self.states.push(state);
        self
    }

    /// Of this queue only.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Of this wire name only.
    #[must_use]
    pub fn wire_name(mut self, wire_name: impl Into<String>) -> Self {
        self.wire_name = Some(wire_name.into());
        self
    }

    /// With this tag only.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = Some(tag.into());
        self
    }

    /// The job that holds this unique key only: one that lives, at most.
    #[must_use]
    pub fn unique_key(mut self, key: impl Into<String>) -> Self {
        self.unique_key = Some(key.into());
        self
    }

    /// With this concurrency key only.
    #[must_use]
    pub fn concurrency_key(mut self, key: impl Into<String>) -> Self {
        self.concurrency_key = Some(key.into());
        self
    }

    /// Accepted at `from` or later.
    #[must_use]
    pub fn created_from(mut self, from: impl Into<Timestamp>) -> Self {
        self.created_from = Some(from.into());
        self
    }

    /// Accepted before `before`.
    #[must_use]
    pub fn created_before(mut self, before: impl Into<Timestamp>) -> Self {
        self.created_before = Some(before.into());
        self
    }

    /// Ended at `from` or later.
    #[must_use]
    pub fn finished_from(mut self, from: impl Into<Timestamp>) -> Self {
        self.finished_from = Some(from.into());
        self
    }

    /// Ended before `before`.
    #[must_use]
    pub fn finished_before(mut self, before: impl Into<Timestamp>) -> Self {
        self.finished_before = Some(before.into());
        self
    }
}

/// The most jobs in one page.
pub const PAGE_MAX: u32 = 200;

/// Which part of the jobs that a filter matches, in order of their ids. Ids of this crate's making
/// ascend with the time at which they were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page {
    /// Beyond this job, in the direction of the page.
    pub after: Option<JobId>,
    /// At most so many, from 1 to [`PAGE_MAX`]; what lies outside is taken as the nearer of the two.
    pub limit: u32,
    /// Descending ids rather than ascending ones.
    pub newest_first: bool,
}

impl Page {
    /// The first `limit` jobs, oldest first.
    #[must_use]
    pub const fn new(limit: u32) -> Self {
        Self { after: None, limit, newest_first: false }
    }

    /// Newest first.
    #[must_use]
    pub const fn newest_first(mut self) -> Self {
        self.newest_first = true;
        self
    }

    /// Beyond `job`: what [`Found::next`](super::Found::next) of the page before said.
    #[must_use]
    pub const fn after(mut self, job: Option<JobId>) -> Self {
        self.after = job;
        self
    }

    /// The limit that applies.
    #[must_use]
    pub const fn bounded_limit(self) -> u32 {
        match self.limit {
            0 => 1,
            limit if limit > PAGE_MAX => PAGE_MAX,
            limit => limit,
        }
    }
}

/// A page of jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// The jobs, in the order of the page.
    pub jobs: Vec<super::JobRecord>,
    /// Where to go on, if more may match: the last job looked at.
    pub next: Option<JobId>,
}

impl Found {
    /// A page.
    #[must_use]
    pub const fn new(jobs: Vec<super::JobRecord>, next: Option<JobId>) -> Self {
        Self { jobs, next }
    }
}

/// A job that another depends or depended on, as its dependents may see it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParentRecord {
    /// Its identity.
    pub id: JobId,
    /// What names its handler.
    pub wire_name: String,
    /// Where it is in its life.
    pub state: JobState,
    /// Whether it holds the dependent back still.
    pub is_gating: bool,
    /// JSON text, when it succeeded with one.
    pub output: Option<Body>,
    /// What went wrong last.
    pub failure_detail: Option<String>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

impl ParentRecord {
    /// A parent of that name in that state, with nothing to show.
    #[must_use]
    pub const fn new(id: JobId, wire_name: String, state: JobState) -> Self {
        Self {
            id,
            wire_name,
            state,
            is_gating: false,
            output: None,
            failure_detail: None,
            finished_at: None,
        }
    }
}

/// How much of a job's life a store keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum HistoryPolicy {
    /// Nothing beyond the job itself.
    #[default]
    Off,
    /// Each change of state.
    Transitions,
    /// Each change of state, with what went wrong.
    WithFailureDetail,
}

/// Whose hand changed a job's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransitionBy {
    /// Its holder.
    Holder,
    /// A reaper: its lease had lapsed.
    Reaper,
    /// Its holder, giving it back unfinished.
    HandBack,
    /// An operator.
    Operator,
    /// A client: the job was born.
    Enqueue,
    /// A claim.
    Claim,
    /// The latch: its parents ended.
    Parent,
}

impl TransitionBy {
    const ALL: [Self; 7] = [
        Self::Holder,
        Self::Reaper,
        Self::HandBack,
        Self::Operator,
        Self::Enqueue,
        Self::Claim,
        Self::Parent,
    ];

    /// The number under which stores keep it; never reused. The first four are those of
    /// [`SettledBy`](crate::store::SettledBy).
    #[must_use]
    pub const fn code(self) -> i16 {
        match self {
            Self::Holder => 1,
            Self::Reaper => 2,
            Self::HandBack => 3,
            Self::Operator => 4,
            Self::Enqueue => 5,
            Self::Claim => 6,
            Self::Parent => 7,
        }
    }

    /// The member stored under `code`, if there is one.
    #[must_use]
    pub fn from_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|by| i64::from(by.code()) == code)
    }
}

/// One change of a job's state. A renewal is none; a cancel request that only stands is none.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transition {
    /// Its place in the store's log. Later ones of one job have higher numbers.
    pub position: u64,
    /// When, by the store's clock.
    pub at: Timestamp,
    /// The state before; none for a birth.
    pub from: Option<JobState>,
    /// The state after.
    pub to: JobState,
    /// The job's attempt after it.
    pub attempt: u32,
    /// Whose hand.
    pub by: TransitionBy,
    /// The holder that took or lost the lease, where it is about one.
    pub worker: Option<WorkerId>,
    /// What went wrong, where the policy keeps it.
    pub detail: Option<String>,
}

impl Transition {
    /// A change of state without holder and detail.
    #[must_use]
    pub const fn new(
        position: u64,
        at: Timestamp,
        from: Option<JobState>,
        to: JobState,
        attempt: u32,
        by: TransitionBy,
    ) -> Self {
        Self { position, at, from, to, attempt, by, worker: None, detail: None }
    }
}

/// Which audit records: every condition that is set must hold. Newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct AuditFilter {
    /// About this job.
    pub job: Option<JobId>,
    /// About this queue.
    pub queue: Option<String>,
    /// In this name.
    pub actor: Option<String>,
    /// Before this position: the last of the page before.
    pub before: Option<u64>,
    /// At most so many, from 1 to [`PAGE_MAX`].
    pub limit: Option<u32>,
}

/// A page of audit records, newest first.
pub type AuditPage = Vec<AuditRecord>;
