//! What must never be seen, by whoever looks from outside.

/// Which promise is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Oracle {
    /// A named check of the code itself halts or degrades a pump although nothing has gone wrong that it is for.
    FalseAlarm,
    /// A job changes along an edge that there is not.
    IllegalEdge,
    /// Something is recorded of a lease by one who does not hold it, or that is not dead.
    FencePassed,
    /// A job fails more often than its policy allows, or is tried again at its ceiling.
    Ceiling,
    /// Something other than a failure or a lapse counts as one.
    FailureMiscounted,
    /// A cancel request that stands is passed over.
    CancelForgotten,
    /// A handler runs twice for one attempt.
    EffectTwice,
    /// Two handlers of one job run, and neither has been asked to end.
    Overlap,
    /// A handler begins although its lease is dead, or its pump stops.
    BeginsTooLate,
    /// An attempt is over its time limit, and is not asked to end.
    LimitIgnored,
    /// A pump holds more than it has workers for.
    Overrun,
    /// Something is reported that no handler has returned.
    Invented,
    /// What a handler returned is not recorded, although its lease was never lost.
    OutcomeLost,
    /// A lease is given up that is alive, and nothing has gone wrong that could hide that.
    GivenUpAlive,
    /// One end of an attempt is decided twice.
    DecidedTwice,
    /// A driver asks for two things at once that exclude each other, or for more after its end.
    Protocol,
    /// A cycle does not end, or the driver is woken for nothing.
    Spins,
    /// Jobs are left although every fault has stopped.
    NotDrained,
    /// A clean stop does not end.
    StopHangs,
    /// A clean stop leaves leases behind.
    StopLeavesLeases,
}

/// A broken promise.
#[derive(Debug, Clone)]
pub(super) struct Finding {
    pub(super) oracle: Oracle,
    pub(super) detail: String,
}

impl Finding {
    pub(super) fn new(oracle: Oracle, detail: impl Into<String>) -> Self {
        Self { oracle, detail: detail.into() }
    }
}

/// `Err` with the finding unless `holds`.
pub(super) fn check(
    holds: bool,
    oracle: Oracle,
    detail: impl FnOnce() -> String,
) -> Result<(), Finding> {
    if holds { Ok(()) } else { Err(Finding::new(oracle, detail())) }
}
