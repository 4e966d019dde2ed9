//! The states of a job and the edges between them: one table that everything asks.

use std::fmt;
use std::str::FromStr;

/// Where a job is in its life. Stored as [`Self::code`], shown by its name.
///
/// ```text
/// enqueue -+-> Scheduled -- claim --> Leased --+--> Succeeded
///          |      ^   ^                 |      +--> Cancelled
///          |      |   +- retry, lapse, -+      +--> DeadLettered --+ requeue (operator)
///          |      |      snooze, hand-back     +--> Quarantined ---+ -> Scheduled, failures = 0
///          |      +---- latch opens
///          +-> AwaitingParent -- parent failed, or operator --> Cancelled
/// ```
///
/// Scheduled also becomes Cancelled, by an operator, at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[non_exhaustive]
pub enum JobState {
    /// Waits for its due time, or is due and waits for a worker.
    Scheduled,
    /// Waits until the jobs it depends on have ended.
    AwaitingParent,
    /// Held by a worker until its lease expires.
    Leased,
    /// Ended: its handler returned `Ok`.
    Succeeded,
    /// Ended: it ran and kept failing, or its handler gave it up.
    DeadLettered,
    /// Ended: it cannot be routed or decoded.
    Quarantined,
    /// Ended: an operator or its handler called it off.
    Cancelled,
}

impl JobState {
    /// Every state, in order of its code.
    pub const ALL: [Self; 7] = [
        Self::Scheduled,
        Self::AwaitingParent,
        Self::Leased,
        Self::Succeeded,
        Self::DeadLettered,
        Self::Quarantined,
        Self::Cancelled,
    ];

    /// The number under which stores keep it; never reused.
    #[must_use]
    pub const fn code(self) -> i16 {
        match self {
            Self::Scheduled => 0,
            Self::AwaitingParent => 1,
            Self::Leased => 2,
            Self::Succeeded => 3,
            Self::DeadLettered => 4,
            Self::Quarantined => 5,
            Self::Cancelled => 6,
        }
    }

    /// The state stored under `code`, if there is one.
    #[must_use]
    pub fn from_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|state| i64::from(state.code()) == code)
    }

    /// Its name, as in this documentation.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scheduled => "Scheduled",
            Self::AwaitingParent => "AwaitingParent",
            Self::Leased => "Leased",
            Self::Succeeded => "Succeeded",
            Self::DeadLettered => "DeadLettered",
            Self::Quarantined => "Quarantined",
            Self::Cancelled => "Cancelled",
        }
    }

    /// Whether the job has ended. Only an operator's requeue leads out of such a state.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::DeadLettered | Self::Quarantined | Self::Cancelled)
    }

    /// Whether an edge leads from this state to `next`. Leased to Leased is a renewal, no edge.
    ///
    /// ```
    /// use backwave::JobState;
    ///
    /// assert!(JobState::Leased.can_become(JobState::Succeeded));
    /// assert!(!JobState::Succeeded.can_become(JobState::Scheduled));
    /// ```
    #[must_use]
    pub const fn can_become(self, next: Self) -> bool {
        use JobState::{
            AwaitingParent, Cancelled, DeadLettered, Leased, Quarantined, Scheduled, Succeeded,
        };
        match self {
            Scheduled => matches!(next, Leased | Cancelled),
            AwaitingParent => matches!(next, Scheduled | Cancelled),
            Leased => {
                matches!(next, Scheduled | Succeeded | DeadLettered | Quarantined | Cancelled)
            }
            DeadLettered | Quarantined => matches!(next, Scheduled),
            Succeeded | Cancelled => false,
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that names no state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no such job state: {text:?}")]
pub struct ParseJobStateError {
    text: String,
}

impl FromStr for JobState {
    type Err = ParseJobStateError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|state| state.name() == text)
            .ok_or_else(|| ParseJobStateError { text: text.chars().take(64).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_lead_back_to_their_state() {
        for (index, state) in JobState::ALL.into_iter().enumerate() {
            assert_eq!(state.code() as usize, index);
            assert_eq!(JobState::from_code(i64::from(state.code())), Some(state));
            assert_eq!(state.name().parse(), Ok(state));
        }
        assert_eq!(JobState::from_code(7), None);
        assert_eq!(JobState::from_code(-1), None);
    }

    #[test]
    fn only_a_requeue_leads_out_of_a_terminal_state() {
        for from in JobState::ALL.into_iter().filter(|s| s.is_terminal()) {
            for to in JobState::ALL {
                let requeue = matches!(from, JobState::DeadLettered | JobState::Quarantined)
                    && to == JobState::Scheduled;
                assert_eq!(from.can_become(to), requeue, "{from} -> {to}");
            }
        }
    }

    #[test]
    fn a_claim_is_the_only_edge_into_leased() {
        for from in JobState::ALL {
            assert_eq!(from.can_become(JobState::Leased), from == JobState::Scheduled);
        }
    }
}
