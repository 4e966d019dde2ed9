//! The fence: the one predicate behind which an attempt's end is written.
//!
//! Written once for the adapters that decide in Rust; the Postgres functions say the same in SQL, and
//! the contract tests hold the two together.

use super::{LeaseRef, Mode, OutcomeRow, Receipt, RowReport, StaleReason};
use crate::kernel::state::JobState;
use crate::{Timestamp, WorkerId};

/// Who ended the last attempt of a job. Stored with the job as [`Self::code`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SettledBy {
    /// Its holder.
    Holder,
    /// A reaper: its lease had lapsed.
    Reaper,
    /// Its holder, giving it back unfinished.
    HandBack,
    /// An operator.
    Operator,
}

impl SettledBy {
    const ALL: [Self; 4] = [Self::Holder, Self::Reaper, Self::HandBack, Self::Operator];

    /// The number under which stores keep it; never reused. 0 is "nobody yet".
    #[must_use]
    pub const fn code(self) -> i16 {
        match self {
            Self::Holder => 1,
            Self::Reaper => 2,
            Self::HandBack => 3,
            Self::Operator => 4,
        }
    }

    /// The member stored under `code`, if there is one.
    #[must_use]
    pub fn from_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|by| i64::from(by.code()) == code)
    }
}

/// How the last attempt of a job was settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Settlement {
    /// Which attempt.
    pub attempt: u32,
    /// By whom.
    pub by: SettledBy,
    /// The receipt of the write, if it was an outcome.
    pub receipt: Option<Receipt>,
}

/// What the fence looks at: a job's row, read under its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseView {
    /// Its state.
    pub state: JobState,
    /// The number of its last attempt.
    pub attempt: u32,
    /// Its holder, when it is Leased.
    pub owner: Option<WorkerId>,
    /// When its lease ends, when it is Leased.
    pub expiry: Option<Timestamp>,
    /// How its last settled attempt ended.
    pub settled: Option<Settlement>,
}

impl LeaseView {
    /// Whether `worker` holds a live lease for exactly this attempt. Dead at its expiry instant.
    #[must_use]
    pub fn is_held(&self, worker: WorkerId, lease: LeaseRef, now: Timestamp) -> bool {
        self.is_leased_to(worker, lease.attempt) && self.expiry.is_some_and(|expiry| expiry > now)
    }

    fn is_leased_to(&self, worker: WorkerId, attempt: u32) -> bool {
        self.state == JobState::Leased && self.attempt == attempt && self.owner == Some(worker)
    }
}

/// Why a row of a report is not applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// This very receipt was applied before.
    AlreadyApplied,
    /// Somebody else settled the attempt, or its lease is dead.
    Stale(StaleReason),
}

impl Refusal {
    /// The entry of the answer, for a job that is in `state` now.
    #[must_use]
    pub const fn answer(self, state: JobState) -> RowReport {
        match self {
            Self::AlreadyApplied => RowReport::AlreadyApplied(state),
            Self::Stale(reason) => RowReport::Stale(reason),
        }
    }
}

/// Judges one row of a report against the job's row, read under its lock at store time `now`.
///
/// # Errors
/// Why it must not be applied.
pub fn judge(view: &LeaseView, row: &OutcomeRow, now: Timestamp) -> Result<(), Refusal> {
    let leased = view.is_leased_to(row.owner, row.attempt);
    let live = view.expiry.is_some_and(|expiry| expiry > now);
    let holds = match row.mode {
        Mode::Holder => leased && live,
        Mode::Reap => leased && !live,
    };
    if holds {
        return Ok(());
    }
    if view.settled.is_some_and(|settled| settled.receipt == Some(row.receipt)) {
        return Err(Refusal::AlreadyApplied);
    }
    Err(Refusal::Stale(if leased { StaleReason::Lapsed } else { reason(view, row.attempt) }))
}

/// Why an attempt is not leased to its holder any more.
fn reason(view: &LeaseView, attempt: u32) -> StaleReason {
    match view.settled {
        Some(settled) if settled.attempt == attempt => match settled.by {
            SettledBy::Reaper => StaleReason::Reaped,
            SettledBy::Operator => StaleReason::Revoked,
            // Its own hand wrote another end than this: nothing in the record explains the row.
            SettledBy::Holder | SettledBy::HandBack => StaleReason::Unknown,
        },
        // A later attempt was settled already, so this one was settled before it was claimed again.
        Some(settled) if settled.attempt > attempt => StaleReason::Reaped,
        _ => StaleReason::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JobId;
    use crate::store::Outcome;

    const NOW: Timestamp = Timestamp::from_micros(1_000_000);

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    fn view(owner: WorkerId, attempt: u32, expiry: Timestamp) -> LeaseView {
        LeaseView {
            state: JobState::Leased,
            attempt,
            owner: Some(owner),
            expiry: Some(expiry),
            settled: None,
        }
    }

    fn row(owner: WorkerId, attempt: u32, mode: Mode) -> OutcomeRow {
        let receipt = Receipt { pump: owner, sequence: 1 };
        let mut row = OutcomeRow::new(JobId::new(), attempt, owner, receipt, Outcome::Succeeded);
        row.mode = mode;
        row
    }

    #[test]
    fn a_lease_is_dead_at_its_expiry_instant() {
        let me = WorkerId::new();
        let stale = Err(Refusal::Stale(StaleReason::Lapsed));
        let holder = row(me, 1, Mode::Holder);
        assert_eq!(judge(&view(me, 1, at(1_000_001)), &holder, NOW), Ok(()));
        assert_eq!(judge(&view(me, 1, NOW), &holder, NOW), stale);
        let reaper = row(me, 1, Mode::Reap);
        assert_eq!(judge(&view(me, 1, at(1_000_001)), &reaper, NOW), stale);
        assert_eq!(judge(&view(me, 1, NOW), &reaper, NOW), Ok(()));
    }

    #[test]
    fn another_attempt_or_owner_does_not_pass() {
        let me = WorkerId::new();
        let live = at(2_000_000);
        let unknown = Err(Refusal::Stale(StaleReason::Unknown));
        assert_eq!(judge(&view(me, 2, live), &row(me, 1, Mode::Holder), NOW), unknown);
        assert_eq!(judge(&view(WorkerId::new(), 1, live), &row(me, 1, Mode::Holder), NOW), unknown);
    }

    #[test]
    fn only_a_leased_job_is_held_whatever_else_its_row_says() {
        let me = WorkerId::new();
        for state in JobState::ALL.into_iter().filter(|state| *state != JobState::Leased) {
            let view = LeaseView { state, ..view(me, 1, at(2_000_000)) };
            let lease = LeaseRef { job: JobId::new(), attempt: 1 };
            assert!(!view.is_held(me, lease, NOW), "{state}");
            let unknown = Err(Refusal::Stale(StaleReason::Unknown));
            assert_eq!(judge(&view, &row(me, 1, Mode::Holder), NOW), unknown, "{state}");
            assert_eq!(judge(&view, &row(me, 1, Mode::Reap), at(3_000_000)), unknown, "{state}");
        }
    }

    #[test]
    fn the_record_tells_why() {
        let me = WorkerId::new();
        let report = row(me, 1, Mode::Holder);
        let settled = |attempt, by, receipt| {
            let mut view = view(WorkerId::new(), attempt + 1, at(2_000_000));
            view.settled = Some(Settlement { attempt, by, receipt });
            judge(&view, &report, NOW)
        };
        let stale = |reason| Err(Refusal::Stale(reason));
        assert_eq!(settled(1, SettledBy::Reaper, None), stale(StaleReason::Reaped));
        assert_eq!(settled(3, SettledBy::Holder, None), stale(StaleReason::Reaped));
        assert_eq!(settled(1, SettledBy::Operator, None), stale(StaleReason::Revoked));
        assert_eq!(settled(1, SettledBy::Holder, None), stale(StaleReason::Unknown));
        assert_eq!(
            settled(1, SettledBy::Holder, Some(report.receipt)),
            Err(Refusal::AlreadyApplied)
        );
    }
}
