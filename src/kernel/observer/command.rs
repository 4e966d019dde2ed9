//! What an observer's driver hears, and what it asks its shell to do.

use crate::Timestamp;
use crate::invariant::InvariantTrigger;
use crate::store::{CursorStale, Observation, Observed, Parking, Resolved};
use std::time::Duration;

/// What has happened.
#[derive(Debug)]
pub(crate) enum Event {
    /// Time has passed.
    Due,
    /// Somebody says that transitions were written.
    Hinted,
    Observed(Observed),
    ObserveFailed {
        in_doubt: bool,
    },
    /// How a delivery ended.
    Delivered {
        delivery: u64,
        ending: Ending,
    },
    /// A callback that had been left behind has ended.
    CameBack,
    Resolved(Resolved),
    ResolveFailed {
        in_doubt: bool,
    },
    /// The cursor was given up, or the call failed.
    Released,
    /// A clean stop was asked for.
    StopRequested,
    /// The callback that still runs is waited for no longer.
    StopDeadline,
}

/// How a delivery ended, as its thread saw it.
#[derive(Debug)]
pub(crate) enum Ending {
    Ok,
    /// What went wrong, cleaned and within its bound.
    Failed(String),
    /// It takes too long, and its thread is left behind.
    TimedOut(String),
}

/// One thing to do. Requests to the store are answered by exactly one event each.
#[derive(Debug)]
pub(crate) enum Command {
    /// Answered by `Observed` or `ObserveFailed`.
    Observe,
    /// Answered by `Resolved` or `ResolveFailed`.
    Resolve(Resolution),
    /// Answered by `Released`.
    Release { epoch: u64 },
    /// Answered by `Delivered`.
    Deliver { delivery: u64, observation: Box<Observation> },
    /// For the log and the counters.
    Note(Note),
    /// The clean stop is complete.
    Stopped,
}

/// A write of the cursor; the shell adds whose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resolution {
    pub(crate) epoch: u64,
    pub(crate) round: u64,
    pub(crate) until: Option<u64>,
    pub(crate) parked: Vec<Parking>,
    pub(crate) failing: Option<(u64, u32, Duration)>,
    pub(crate) delivered_again: Vec<u64>,
}

/// A fact for the log, told after it has become one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Note {
    /// The cursor is held here, and was not before.
    Taken {
        epoch: u64,
    },
    HoldLost(Lost),
    /// The cursor begins anew, and why.
    Reset(String),
    Delivered,
    Failed {
        position: u64,
        failures: u32,
        due: Timestamp,
        detail: String,
    },
    /// Written, not only decided.
    Parked {
        position: u64,
        failures: u32,
        detail: String,
    },
    LeftBehind {
        position: u64,
        count: u32,
    },
    /// An invariant that degrades.
    Degraded {
        trigger: InvariantTrigger,
        detail: String,
    },
}

/// How a hold came to be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// A write was refused.
    Refused(CursorStale),
    /// It was found in the hands of another.
    Elsewhere,
    /// Another had it in between.
    Between,
}

impl Lost {
    pub(crate) const fn describe(self) -> &'static str {
        match self {
            Self::Refused(CursorStale::Lapsed) => "it had expired when the cursor was to be moved",
            Self::Refused(CursorStale::Taken) | Self::Elsewhere => "another node has taken it",
            Self::Refused(CursorStale::Gone) => "an operator has removed the observer",
            Self::Refused(CursorStale::Regressed) => "the cursor would have moved backward",
            Self::Between => "another node has had it in between",
        }
    }
}
