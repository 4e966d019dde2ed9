//! Requests and answers of the Storage Contract.
//!
//! Requests are read by adapters; answers are made by them, hence the constructors.

mod enqueue;
mod observing;
mod operations;
mod reads;
mod scheduling;
mod upkeep;

pub use enqueue::*;
pub use observing::*;
pub use operations::*;
pub use reads::*;
pub use scheduling::*;
pub use upkeep::*;

use crate::kernel::latch::ParentRule;
use crate::kernel::state::JobState;
use crate::{JobId, RetryPolicy, Timestamp, WorkerId};
use std::fmt;
use std::time::Duration;

/// The bytes of a payload or an output: JSON text, shown by `Debug` as its length only, so that no
/// log line or error prints what the user stored.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Body(Vec<u8>);

impl Body {
    /// From the bytes of a JSON text.
    #[must_use]
    pub const fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Decodes what a job left behind, if it did.
    pub(crate) fn decode_output<T: serde::de::DeserializeOwned>(
        output: Option<&Self>,
    ) -> Result<T, crate::DecodeError> {
        match output {
            Some(body) => crate::DecodeError::wrap(serde_json::from_slice(body.as_bytes())),
            None => Err(crate::DecodeError::absent()),
        }
    }

    /// The bytes, owned.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Body({} bytes)", self.0.len())
    }
}

/// So many jobs from that queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueQuota {
    /// The queue.
    pub queue: String,
    /// At most so many in the first pass.
    pub quota: u32,
}

/// A wire name that a group has a handler for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepts {
    /// The wire name.
    pub wire_name: String,
    /// Payload versions 1 to this one can be decoded.
    pub version_max: u32,
}

/// A request for due jobs.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Claim<'a> {
    /// Who will hold them.
    pub worker: WorkerId,
    /// At most so many in all. 0 asks for nothing and is answered with nothing.
    pub total: u32,
    /// From where, in order.
    pub plan: &'a [QueueQuota],
    /// Whether a second pass over the plan fills up to `total`.
    pub spill: bool,
    /// What may be taken.
    pub accepts: &'a [Accepts],
    /// At most so many bytes of payload, one job always allowed.
    pub bytes_max: u64,
    /// For how long.
    pub lease: Duration,
}

impl<'a> Claim<'a> {
    /// A claim that spills, with the default bound of 8 MiB of payloads.
    #[must_use]
    pub const fn new(
        worker: WorkerId,
        total: u32,
        plan: &'a [QueueQuota],
        accepts: &'a [Accepts],
        lease: Duration,
    ) -> Self {
        Self { worker, total, plan, spill: true, accepts, bytes_max: 8 << 20, lease }
    }
}

/// A job handed out by a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClaimedJob {
    /// Its identity.
    pub id: JobId,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// How many attempts failed or lapsed before.
    pub failures: u32,
    /// What names its handler.
    pub wire_name: String,
    /// The version of its payload's shape.
    pub version: u32,
    /// The queue it came from.
    pub queue: String,
    /// JSON text.
    pub payload: Body,
    /// When it was due.
    pub due_at: Timestamp,
    /// Its own retry policy.
    pub retry: Option<RetryPolicy>,
    /// How long this attempt may take.
    pub timeout: Option<Duration>,
    /// Its labels.
    pub tags: Vec<String>,
    /// The tick of a schedule that it was minted for.
    pub tick: Option<Tick>,
    /// The state the claim found it in, read under its lock.
    pub state_before: JobState,
    /// The state it has now, read back from the write.
    pub state: JobState,
    /// The holder it has now, read back from the write.
    pub owner: Option<WorkerId>,
    /// When its lease ends.
    pub expiry: Timestamp,
}

impl ClaimedJob {
    /// A leased job with the given identity; the other fields are the defaults of [`JobRow::new`].
    #[must_use]
    pub fn new(
        id: JobId,
        attempt: u32,
        wire_name: String,
        owner: WorkerId,
        expiry: Timestamp,
    ) -> Self {
        Self {
            id,
            attempt,
            failures: 0,
            wire_name,
            version: 1,
            queue: "default".to_owned(),
            payload: Body::new(b"{}".to_vec()),
            due_at: Timestamp::EPOCH,
            retry: None,
            timeout: None,
            tags: Vec::new(),
            tick: None,
            state_before: JobState::Scheduled,
            state: JobState::Leased,
            owner: Some(owner),
            expiry,
        }
    }
}

/// The answer to a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claimed {
    /// The jobs, in the order of the plan, and of (due, id) within a queue and pass.
    pub jobs: Vec<ClaimedJob>,
    /// Whether something due and acceptable was left because of a bound other than `total` (the byte
    /// bound, a limit of the queue or of a key, a pause).
    pub withheld: bool,
    /// The earliest due time after the store's time of an acceptable job in a planned queue that is not paused, told
    /// when fewer than `total` were found. What is due already and was not taken is not meant: `withheld` says so. What is due and kept back by its concurrency key is not told.
    pub next_due: Option<Timestamp>,
    /// The store's time.
    pub store_time: Timestamp,
}

impl Claimed {
    /// An answer with these jobs.
    #[must_use]
    pub const fn new(jobs: Vec<ClaimedJob>, store_time: Timestamp) -> Self {
        Self { jobs, withheld: false, next_due: None, store_time }
    }

    /// Says that something was withheld.
    #[must_use]
    pub const fn withheld(mut self, withheld: bool) -> Self {
        self.withheld = withheld;
        self
    }

    /// Says when the next job is due.
    #[must_use]
    pub const fn next_due(mut self, next_due: Option<Timestamp>) -> Self {
        self.next_due = next_due;
        self
    }
}

/// Whose hand writes an outcome, and so which predicate is its fence. Complete on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The holder: Leased, this owner, this attempt, `expiry > now`.
    Holder,
    /// A reaper settling a dead lease: Leased, that owner, that attempt, `expiry <= now`.
    Reap,
}

/// Names one decision to write, kept through every repeat of it. The job keeps the receipt of its last
/// settlement, so that a repeat after a lost answer is told from a stale one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Receipt {
    /// The pump that decided.
    pub pump: WorkerId,
    /// Its number there.
    pub sequence: u64,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// Succeeded.
    Succeeded,
    /// Failed; Scheduled again so long after the write. Counts a failure.
    Retry {
        /// The delay, from the store's time at the write.
        after: Duration,
    },
    /// Scheduled again so long after the write, without a failure.
    Snooze {
        /// The delay, from the store's time at the write.
        after: Duration,
    },
    /// Failed for good: Dead-Lettered. Counts a failure.
    DeadLettered,
    /// Not routable or not decodable: Quarantined. No failure: nothing ran.
    Quarantined,
    /// Called off: Cancelled. No failure.
    Cancelled,
}

impl Outcome {
    /// The state it leads to, `cancel_requested` saying whether a cancel request stands.
    #[must_use]
    pub const fn state(self, cancel_requested: bool) -> JobState {
        match self {
            Self::Succeeded => JobState::Succeeded,
            Self::Quarantined => JobState::Quarantined,
            Self::Cancelled => JobState::Cancelled,
            Self::Retry { .. } | Self::Snooze { .. } | Self::DeadLettered if cancel_requested => {
                JobState::Cancelled
            }
            Self::Retry { .. } | Self::Snooze { .. } => JobState::Scheduled,
            Self::DeadLettered => JobState::DeadLettered,
        }
    }

    /// Whether it counts as a failure, whatever a cancel request makes of its state.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::Retry { .. } | Self::DeadLettered)
    }

    /// The delay after which the job is due again, where it is to run again.
    #[must_use]
    pub const fn delay(self) -> Option<Duration> {
        match self {
            Self::Retry { after } | Self::Snooze { after } => Some(after),
            _ => None,
        }
    }
}

/// One attempt's end, to be written once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct OutcomeRow {
    /// The job.
    pub job: JobId,
    /// The attempt that ended.
    pub attempt: u32,
    /// Who held it.
    pub owner: WorkerId,
    /// Whose hand writes.
    pub mode: Mode,
    /// Names this write.
    pub receipt: Receipt,
    /// How it ended.
    pub outcome: Outcome,
    /// The output, kept with Succeeded only.
    pub output: Option<Body>,
    /// What went wrong, cleaned and within its bound. Replaces the job's last detail when there is one.
    pub detail: Option<String>,
}

impl OutcomeRow {
    /// A row of the holder's, without output or detail.
    #[must_use]
    pub const fn new(
        job: JobId,
        attempt: u32,
        owner: WorkerId,
        receipt: Receipt,
        outcome: Outcome,
    ) -> Self {
        Self {
            job,
            attempt,
            owner,
            mode: Mode::Holder,
            receipt,
            outcome,
            output: None,
            detail: None,
        }
    }
}

/// What became of one row of a report. Complete on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowReport {
    /// Written now; the job is in this state.
    Applied(JobState),
    /// Written before, by this very receipt: the answer was lost, not the write. The state the job
    /// has now.
    AlreadyApplied(JobState),
    /// Not written.
    Stale(StaleReason),
}

/// Why an outcome was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StaleReason {
    /// The lease is still this holder's and dead; nobody has settled it yet. To a reaper: the lease
    /// has been renewed since.
    Lapsed,
    /// The lease lapsed, and somebody settled it; or a later attempt has begun since.
    Reaped,
    /// An operator took it away.
    Revoked,
    /// There is no such job any more.
    Gone,
    /// None of these: the record shows no reason why the lease should not be held.
    Unknown,
}

/// The answer to a report, one entry per row.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reported {
    /// In the order of the rows.
    pub rows: Vec<RowReport>,
    /// The store's time.
    pub store_time: Timestamp,
}

impl Reported {
    /// An answer.
    #[must_use]
    pub const fn new(rows: Vec<RowReport>, store_time: Timestamp) -> Self {
        Self { rows, store_time }
    }
}

/// The answer to an exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exchanged {
    /// Of the report.
    pub reported: Reported,
    /// Of the claim.
    pub claimed: Claimed,
}

impl Exchanged {
    /// An answer.
    #[must_use]
    pub const fn new(reported: Reported, claimed: Claimed) -> Self {
        Self { reported, claimed }
    }
}

/// Names one hold on a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseRef {
    /// The job.
    pub job: JobId,
    /// The attempt.
    pub attempt: u32,
}

/// What became of one lease of a renewal. Complete on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Renewed {
    /// Prolonged.
    Renewed {
        /// Until when.
        expiry: Timestamp,
        /// Whether an operator has asked for the job to be cancelled.
        cancel_requested: bool,
    },
    /// Not held any more.
    Lost,
}

/// The answer to a renewal, one entry per row.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Renewal {
    /// In the order of the rows.
    pub rows: Vec<Renewed>,
    /// The store's time.
    pub store_time: Timestamp,
}

impl Renewal {
    /// An answer.
    #[must_use]
    pub const fn new(rows: Vec<Renewed>, store_time: Timestamp) -> Self {
        Self { rows, store_time }
    }
}

/// A job whose lease is dead and not settled.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LapsedJob {
    /// The job.
    pub id: JobId,
    /// The attempt that lapsed.
    pub attempt: u32,
    /// Who held it.
    pub owner: WorkerId,
    /// When its lease ended.
    pub expiry: Timestamp,
    /// How many attempts failed or lapsed before this one.
    pub failures: u32,
    /// Its own retry policy.
    pub retry: Option<RetryPolicy>,
    /// What names its handler.
    pub wire_name: String,
    /// Its queue.
    pub queue: String,
}

impl LapsedJob {
    /// A lapsed job without failures or a policy of its own.
    #[must_use]
    pub fn new(id: JobId, attempt: u32, owner: WorkerId, expiry: Timestamp) -> Self {
        Self {
            id,
            attempt,
            owner,
            expiry,
            failures: 0,
            retry: None,
            wire_name: String::new(),
            queue: String::new(),
        }
    }
}

/// The answer to a search for dead leases.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lapsed {
    /// The longest dead first.
    pub jobs: Vec<LapsedJob>,
    /// The store's time.
    pub store_time: Timestamp,
}

impl Lapsed {
    /// An answer.
    #[must_use]
    pub const fn new(jobs: Vec<LapsedJob>, store_time: Timestamp) -> Self {
        Self { jobs, store_time }
    }
}

/// The answer to the question what a worker holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Held {
    /// Every job leased to it, by ascending id, with the expiry of its lease.
    pub leases: Vec<(LeaseRef, Timestamp)>,
    /// The store's time.
    pub store_time: Timestamp,
}

impl Held {
    /// An answer.
    #[must_use]
    pub const fn new(leases: Vec<(LeaseRef, Timestamp)>, store_time: Timestamp) -> Self {
        Self { leases, store_time }
    }
}

/// The answer to a hand-back, one entry per row.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandedBack {
    /// Whether the lease was given back by this call.
    pub rows: Vec<bool>,
    /// The store's time.
    pub store_time: Timestamp,
}

impl HandedBack {
    /// An answer.
    #[must_use]
    pub const fn new(rows: Vec<bool>, store_time: Timestamp) -> Self {
        Self { rows, store_time }
    }
}

/// A job as it stands in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobRecord {
    /// Its identity.
    pub id: JobId,
    /// What names its handler.
    pub wire_name: String,
    /// The version of its payload's shape.
    pub version: u32,
    /// Its queue.
    pub queue: String,
    /// JSON text.
    pub payload: Body,
    /// Where it is in its life.
    pub state: JobState,
    /// The number of the last attempt; 0 before the first.
    pub attempt: u32,
    /// How many attempts failed or lapsed since the enqueue or the last requeue.
    pub failures: u32,
    /// When it is or was due.
    pub due_at: Timestamp,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it reached its terminal state.
    pub finished_at: Option<Timestamp>,
    /// Its own retry policy.
    pub retry: Option<RetryPolicy>,
    /// How long one attempt may take.
    pub timeout: Option<Duration>,
    /// Its labels.
    pub tags: Vec<String>,
    /// Its holder, when it is Leased.
    pub owner: Option<WorkerId>,
    /// When its lease ends, when it is Leased.
    pub expiry: Option<Timestamp>,
    /// Whether an operator has asked for it to be cancelled.
    pub cancel_requested: bool,
    /// JSON text, when it succeeded with one.
    pub output: Option<Body>,
    /// What went wrong last.
    pub failure_detail: Option<String>,
    /// Which ends of its parents release it; of no meaning without parents.
    pub parent_rule: ParentRule,
    /// The tick of a schedule that it was minted for.
    pub tick: Option<Tick>,
    /// Of the jobs with this key at most one lives; this one holds it as long as it lives.
    pub unique_key: Option<String>,
    /// Of the jobs of its queue with this key only so many run at a time.
    pub concurrency_key: Option<String>,
}

impl JobRecord {
    /// A record of a Scheduled job as [`JobRow`] asked for it.
    #[must_use]
    pub fn new(row: &JobRow, now: Timestamp) -> Self {
        Self {
            id: row.id,
            wire_name: row.wire_name.clone(),
            version: row.version,
            queue: row.queue.clone(),
            payload: row.payload.clone(),
            state: JobState::Scheduled,
            attempt: 0,
            failures: 0,
            due_at: row.due.resolve(now),
            created_at: now,
            finished_at: None,
            retry: row.retry,
            timeout: row.timeout,
            tags: row.tags.clone(),
            owner: None,
            expiry: None,
            cancel_requested: false,
            output: None,
            failure_detail: None,
            parent_rule: row.parent_rule,
            tick: row.tick.clone(),
            unique_key: row.unique_key.clone(),
            concurrency_key: row.concurrency_key.clone(),
        }
    }

    /// Decodes the output.
    ///
    /// ```
    /// # use backwave::{JobId, Timestamp, store::{Body, JobRecord, JobRow}};
    /// let mut record = JobRecord::new(&JobRow::new(JobId::new(), "resize"), Timestamp::EPOCH);
    /// assert!(record.output::<u32>().is_err());
    /// record.output = Some(Body::new(b"512".to_vec()));
    /// assert_eq!(record.output::<u32>().unwrap(), 512);
    /// ```
    ///
    /// # Errors
    /// When there is no output, or it does not decode as `T`.
    pub fn output<T: serde::de::DeserializeOwned>(&self) -> Result<T, crate::DecodeError> {
        Body::decode_output(self.output.as_ref())
    }
}

/// How many jobs a queue has in a state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct QueueCount {
    /// The queue.
    pub queue: String,
    /// The state.
    pub state: JobState,
    /// How many.
    pub count: u64,
}

impl QueueCount {
    /// A count.
    #[must_use]
    pub const fn new(queue: String, state: JobState, count: u64) -> Self {
        Self { queue, state, count }
    }
}
