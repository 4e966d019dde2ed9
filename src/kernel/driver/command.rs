//! What a driver asks its shell to do.

use super::ExecutionId;
use crate::invariant::InvariantTrigger;
use crate::store::{
    ClaimedJob, LeaseRef, MintRow, OutcomeRow, Purge, QueueQuota, SkipReason, StaleReason,
};
use crate::{CancelReason, JobId, JobState, Timestamp};
use std::time::Duration;

/// A claim to make; the shell adds who asks and what it accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClaimAsk {
    pub(crate) total: u32,
    pub(crate) plan: Vec<QueueQuota>,
}

/// One thing to do. Requests to the store are answered by exactly one event each.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) enum Command {
    /// Answered by `Claimed` or `ClaimFailed`.
    Claim(ClaimAsk),
    /// Answered by `Reported` or `ReportFailed`, which give the rows back.
    Report { rows: Vec<OutcomeRow> },
    /// Answered for both halves: first the report, then the claim.
    Exchange { rows: Vec<OutcomeRow>, ask: ClaimAsk },
    /// Answered by `Renewed` or `RenewFailed`.
    Renew { leases: Vec<LeaseRef> },
    /// Answered by `LapsedFound` or `FindLapsedFailed`.
    FindLapsed { max: u32 },
    /// Answered by `HeldFound` or `FindHeldFailed`.
    FindHeld,
    /// Answered by `HandedBack` or `HandBackFailed`.
    HandBack { leases: Vec<LeaseRef> },
    /// Answered by `SchedulesLookedAt` or `SchedulesFailed`.
    LookAtSchedules { max: u32 },
    /// Answered by `Minted` or `SchedulesFailed`.
    Mint { rows: Vec<MintRow> },
    /// Answered by `Purged` or `UpkeepFailed`.
    Purge(Purge),
    /// Answered by `LatchesWorkedOff` or `UpkeepFailed`.
    WorkOffLatches { max: u32 },
    /// Answered by `Announced` or `UpkeepFailed`.
    Announce,
    /// Give it to a worker.
    Execute { execution: ExecutionId, job: Box<ClaimedJob> },
    /// Its lease was prolonged.
    Prolong { execution: ExecutionId, expiry: Timestamp },
    /// Fire its token.
    Cancel { execution: ExecutionId, reason: CancelReason },
    /// If no worker has begun it, do not begin it, and answer `Finished` with `NotStarted`.
    Withdraw { execution: ExecutionId },
    /// Its handler ignores its token: start a fresh thread in the place of the one it keeps.
    ReplaceWorker { execution: ExecutionId },
    /// For the log.
    Note(Note),
    /// The clean stop is complete.
    Stopped,
}

/// A fact for the log, told after it has become one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Note {
    LeaseAcquired {
        job: JobId,
        attempt: u32,
        expiry: Timestamp,
    },
    AttemptEnded {
        job: JobId,
        attempt: u32,
        state: JobState,
    },
    WillRetry {
        job: JobId,
        attempt: u32,
        failures: u32,
        due: Timestamp,
    },
    DeadLettered {
        job: JobId,
        attempt: u32,
        failures: u32,
        lapsed: bool,
    },
    Quarantined {
        job: JobId,
        attempt: u32,
    },
    LeaseLost {
        job: JobId,
        attempt: u32,
        why: Lost,
    },
    LapsedSettled {
        count: usize,
    },
    TokenIgnored {
        job: JobId,
        attempt: u32,
        age: Duration,
    },
    BudgetExhausted {
        jobs: Vec<JobId>,
    },
    TickMinted {
        schedule: String,
        job: JobId,
    },
    TicksSkipped {
        schedule: String,
        count: u64,
        reason: SkipReason,
    },
    ScheduleFailed {
        schedule: String,
        error: String,
    },
    /// An invariant that degrades.
    Degraded {
        trigger: InvariantTrigger,
        detail: String,
    },
}

/// How an attempt came to be abandoned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// A renewal said so.
    NotRenewed,
    /// Its expiry has passed without a renewal.
    Expired,
    /// The claim's answer came after the lease had passed.
    LateClaim,
    /// Its outcome was refused.
    Refused(StaleReason),
}

impl Lost {
    pub(crate) const fn describe(self) -> &'static str {
        match self {
            Self::NotRenewed => "the store says that it is not held any more",
            Self::Expired => "it expired before it could be renewed",
            Self::LateClaim => "it had expired when the claim was answered",
            Self::Refused(StaleReason::Lapsed) => "it had expired when the outcome was reported",
            Self::Refused(StaleReason::Reaped) => "another node had settled the attempt",
            Self::Refused(StaleReason::Revoked) => "an operator had revoked it",
            Self::Refused(StaleReason::Gone) => "the job does not exist any more",
            Self::Refused(StaleReason::Unknown) => {
                "the outcome was refused without a reason in the record"
            }
        }
    }
}
