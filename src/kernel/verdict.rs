//! In what ways an attempt may end, as plain words.

use std::time::Duration;

/// Why an attempt was asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum CancelReason {
    /// The group stops. After a fail-stop nothing is reported; in a clean stop the job is handed back.
    #[error("the group stops")]
    GroupStopping,
    /// An operator asked for it. A handler that gives way ends Cancelled.
    #[error("an operator asked for it")]
    OperatorRequest,
    /// The lease is lost or can no longer be proven; whatever the handler returns is not recorded.
    #[error("the lease is lost")]
    LeaseLost,
    /// The attempt has taken longer than its limit. A handler that gives way has failed.
    #[error("the time limit of the attempt has passed")]
    TimedOut,
}

/// What is to become of a job whose attempt did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// A failure; the retry policy decides when it runs again, and whether.
    Retry,
    /// A failure; tried again after this time instead of the policy's, Dead-Lettered at the ceiling.
    RetryIn(Duration),
    /// A failure for good: Dead-Lettered now.
    Discard,
    /// No failure: tried again after this time.
    Snooze(Duration),
    /// No failure: Cancelled.
    Cancel,
    /// The handler gave way to a cancellation or a stop. What becomes of the job is settled by the
    /// reason of the attempt's token.
    GaveWay(CancelReason),
}
