//! Bugs to be found: each bends what passes between a driver, its shell and the store, as a bug in one of them
//! would.

/// A bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plant {
    // -- of the store
    /// The fence does not look at attempt and owner.
    FenceWithoutAttempt,
    /// The fence lets a holder write whose lease has lapsed.
    HolderAfterExpiry,
    /// Live leases are taken for dead ones, and settled.
    ReapWithoutExpiryCheck,
    /// A claim hands out what is leased already.
    DoubleClaim,
    /// A hand-back counts as a failure.
    HandBackCostsAFailure,
    // -- of the shell
    /// A claim that failed is never told of.
    SlotForgotten,
    /// Of an exchange only the report is told.
    HalfAnExchange,
    /// A report whose answer was lost is taken for written.
    OutcomeDropped,
    /// A claim whose answer was lost is taken for one that was not made.
    DoubtForgotten,
    /// A claim asks for one job more than there is room for.
    OneTooMany,
    /// A renewal's answer lacks its last row.
    ShortRenewal,
    /// What is handed back is not.
    HandBackForgotten,
    /// Maintenance ticks do not arrive.
    NoMaintenance,
    /// A handler's end is looked up by its job, not by its execution.
    ResultByJob,
    /// A withdrawal takes back also what has begun.
    BegunWithdrawn,
    /// Tokens neither keep a deadline nor fire.
    DeafToken,
    /// Handlers see that a stop was asked for before the pump does.
    StopHeardLate,
    /// A task is given to two workers.
    GivenTwice,
    /// That a handler has begun is not heard, and so its time limit does not run.
    BeginUnheard,
    /// What waits for a worker is never taken back.
    NothingWithdrawn,
    // -- of the driver
    /// Each try of a report is a decision of its own.
    FreshReceipts,
    /// A lapse is retried beyond the ceiling.
    LapseBeyondCeiling,
}
