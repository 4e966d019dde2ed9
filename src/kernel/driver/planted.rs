//! Bugs that tests plant in a driver, to see that they are found. Outside of this crate's own tests there is
//! no such bug: the question is answered with no as the code is compiled.

/// Whether a driver has a bug.
macro_rules! planted {
    ($config:expr, $bug:ident) => {{
        #[cfg(test)]
        let is_planted = $config.planted == Some($crate::kernel::driver::planted::Bug::$bug);
        #[cfg(not(test))]
        let is_planted = false;
        is_planted
    }};
}
pub(super) use planted;

#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    /// An outcome whose report is in doubt is dropped.
    OutcomeDropped,
    /// A repeated outcome gets a new receipt.
    ReceiptRenewed,
    /// After a lost claim nobody asks what is held.
    NoQuestion,
    /// No lease is renewed.
    NoRenewal,
    /// A failed claim is not released.
    ClaimLeaked,
    /// A stop goes on claiming.
    ClaimsWhileStopping,
    /// A stop keeps its leases.
    StopKeepsLeases,
    /// One failure more than the ceiling.
    CeilingOffByOne,
    /// A lapse costs no failure.
    LapseIsFree,
    /// What runs does not count against the pool.
    RoomIgnoresRunning,
    /// No time limit is kept.
    NoTimeLimit,
    /// The last job of a claim is overlooked.
    ClaimedJobOverlooked,
    /// Dead leases are not looked for.
    NoLapseSearch,
    /// What runs is taken for left over, and handed back.
    RunningIsUnknown,
    /// Who gives way to a stop has failed.
    GivingWayIsFailure,
    /// Nobody tells a handler of a cancel request.
    CancelUnheard,
    /// A claimed job is executed twice.
    ExecutedTwice,
    /// Nothing is claimed without a hint.
    NoPolls,
    /// A stop waits for its handlers for ever.
    StopWaitsForEver,
}

#[cfg(test)]
impl Bug {
    #[cfg(feature = "testing")]
    pub(crate) const ALL: [Self; 19] = [
        Self::OutcomeDropped,
        Self::ReceiptRenewed,
        Self::NoQuestion,
        Self::NoRenewal,
        Self::ClaimLeaked,
        Self::ClaimsWhileStopping,
        Self::StopKeepsLeases,
        Self::CeilingOffByOne,
        Self::LapseIsFree,
        Self::RoomIgnoresRunning,
        Self::NoTimeLimit,
        Self::ClaimedJobOverlooked,
        Self::NoLapseSearch,
        Self::RunningIsUnknown,
        Self::GivingWayIsFailure,
        Self::CancelUnheard,
        Self::ExecutedTwice,
        Self::NoPolls,
        Self::StopWaitsForEver,
    ];
}

/// Spoils outcomes that are about to be reported again.
#[cfg(test)]
pub(super) fn spoil_repeat(
    config: &super::DriverConfig,
    mut rows: Vec<crate::store::OutcomeRow>,
    in_doubt: bool,
) -> Vec<crate::store::OutcomeRow> {
    if config.planted == Some(Bug::OutcomeDropped) && in_doubt {
        rows.clear();
    }
    if config.planted == Some(Bug::ReceiptRenewed) {
        rows.iter_mut().for_each(|row| row.receipt.sequence += 1 << 32);
    }
    rows
}
