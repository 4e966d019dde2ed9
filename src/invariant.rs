//! Always-on assertions: named checks that run in release builds, and the two verbs they act by.
//!
//! A check that fails either *halts* (a value of [`InvariantViolation`] that travels as an error until
//! it stops the one Worker Group that saw it, or comes back to the client's caller) or *degrades*
//! (is logged and counted, and the operation goes on). Both count as they act, so that no site can do
//! half: see [`violations`].
//!
//! The trigger is the violation's [`source`](std::error::Error::source), so that it is found in every
//! error chain, also where a wrapper hides the outer type.

use std::cell::Cell;
use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! triggers {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// Names one always-on assertion. Its identity is its name, never a number; match on the name
        /// in logs and metrics. New members can appear in later versions.
        ///
        /// ```
        /// use backwave::invariant::InvariantTrigger;
        ///
        /// let trigger: InvariantTrigger = "ClaimBatchOverrun".parse().unwrap();
        /// assert_eq!(trigger, InvariantTrigger::ClaimBatchOverrun);
        /// assert_eq!(trigger.to_string(), "ClaimBatchOverrun");
        /// ```
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum InvariantTrigger {
            $($(#[$doc])* $name,)+
        }

        impl InvariantTrigger {
            /// Every trigger of this version.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }
        }
    };
}

triggers! {
    /// A report was answered with another number of rows than it was given. Halts.
    OutcomeBatchCountMismatch,
    /// A renewal or a hand-back was answered with another number of rows than it was given. Halts.
    HeartbeatBatchCountMismatch,
    /// A claim handed out a job that is already terminal. Halts.
    ClaimedJobTerminal,
    /// A claim returned more jobs than it was bound to. Halts.
    ClaimBatchOverrun,
    /// A claimed row is not leased to the claimer. Halts.
    ClaimedRowNotLeasedToWorker,
    /// A claim handed out what it must not: a job in a state that its own predicate excludes, one that
    /// is twice in the answer or runs here under this very attempt, or one that no handler is for. Halts.
    ClaimedRowNotEligible,
    /// A report was stale although the pump believed its lease live by more than the allowance for
    /// clock skew. Degrades.
    OutcomeFenceRejected,
    /// The same for an observer's report. Degrades.
    ObserverReportFenceRejected,
    /// An observer's cursor was asked to move backward. Degrades.
    ObserverCursorRegressed,
    /// A write to locked rows touched another number of rows, or an enqueue was answered with another
    /// number of rows than it was given. Halts; degrades on the observer path.
    UnexpectedAffectedRowCount,
    /// No row where this very transaction made or ensured one. Halts; degrades on the observer path.
    GuaranteedRowAbsent,
    /// A gate between two jobs names a dependent that does not exist, or one that does not wait. Halts.
    DanglingGatingEdge,
    /// A parent whose end is carried on to its dependents is absent from the set that was read under the
    /// lock. Halts. In SQLite no row can show it, since parent and gate come from one look at one table:
    /// only a view in that table's place does.
    ParentJobMissingFromBatch,
    /// The store did not know a member of a graph as the parent of another, although it comes before it in the
    /// same call. Comes back to the client's caller.
    WorkflowMemberEnqueueRejected,
    /// A stored number is no member of its enum, or a stored retry policy is none. Halts.
    UndefinedEnumValueStored,
    /// A serialising lock said that it was not taken. Halts. In Postgres that of a migration, which is not
    /// held although the server has answered; in SQLite that of a writer, which nothing in a file can
    /// bring about: only an engine that breaks its word does. The memory store's lock cannot fail.
    ApplicationLockNotAcquired,
    /// The settings of a limited queue were gone where they were to be held, or what was written to them
    /// did not read back. Halts. In SQLite a claim's two looks are at one snapshot: there only a view in the
    /// table's place shows it to a claim. The memory store's settings are under its one lock, and it has
    /// no such check.
    QueueConfigLockNotAcquired,
    /// A count of leased rows came back null. Halts. In SQLite no schema can bring that about: a count is
    /// never null there, and the check guards against an engine that is not one. The memory store counts
    /// by itself, and has no such check.
    LeasedCountAggregateNull,
}

impl fmt::Display for InvariantTrigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Error for InvariantTrigger {}

/// A text that names no trigger of this version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no such invariant trigger: {text:?}")]
pub struct ParseTriggerError {
    text: String,
}

impl FromStr for InvariantTrigger {
    type Err = ParseTriggerError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .iter()
            .copied()
            .find(|trigger| trigger.name() == text)
            .ok_or_else(|| ParseTriggerError { text: text.chars().take(64).collect() })
    }
}

/// A violated invariant: what was found, and which named check found it.
///
/// The message describes the failure and does not repeat the trigger; the trigger is the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvariantViolation {
    trigger: InvariantTrigger,
    message: String,
}

impl InvariantViolation {
    /// Which named check was violated.
    #[must_use]
    pub const fn trigger(&self) -> InvariantTrigger {
        self.trigger
    }

    /// What was found.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for InvariantViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an invariant does not hold: {}", self.message)
    }
}

impl Error for InvariantViolation {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.trigger)
    }
}

/// What a failed check did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InvariantAction {
    /// It stopped the pump that saw it, or failed the client's call.
    Halt,
    /// It was logged and counted, and the operation went on.
    Degrade,
}

impl InvariantAction {
    /// Its name, as the tag `backwave.invariant.action` carries it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Halt => "Halt",
            Self::Degrade => "Degrade",
        }
    }
}

/// Counts a violation that halts and makes the error that carries it. Adapters of third parties call
/// it too: a violation exists only counted.
///
/// On the thread of an observer pump it counts as degraded: such a pump ends, and nothing halts.
#[must_use]
pub fn halt(trigger: InvariantTrigger, message: impl Into<String>) -> InvariantViolation {
    let degrades = ON_OBSERVER_PATH.get();
    count(trigger, if degrades { InvariantAction::Degrade } else { InvariantAction::Halt });
    InvariantViolation { trigger, message: message.into() }
}

thread_local! {
    static ON_OBSERVER_PATH: Cell<bool> = const { Cell::new(false) };
}

/// Says that what is violated on this thread from now on degrades.
pub(crate) fn enter_observer_path() {
    ON_OBSERVER_PATH.set(true);
}

/// Counts and logs a violation after which the operation goes on: 2003 inside a Worker Group, 1601
/// outside of one.
pub fn degrade(trigger: InvariantTrigger, group: Option<&str>, detail: &str) {
    count(trigger, InvariantAction::Degrade);
    crate::telemetry::invariant_degraded(trigger, group, detail);
}

/// How often `trigger` has been violated with `action` in this process: the counter
/// `backwave.invariant.violations`.
///
/// ```
/// use backwave::invariant::{InvariantAction, InvariantTrigger, halt, violations};
///
/// let before = violations(InvariantTrigger::ClaimBatchOverrun, InvariantAction::Halt);
/// let violation = halt(InvariantTrigger::ClaimBatchOverrun, "3 jobs for 2");
/// assert_eq!(violation.to_string(), "an invariant does not hold: 3 jobs for 2");
/// assert!(violations(InvariantTrigger::ClaimBatchOverrun, InvariantAction::Halt) > before);
/// ```
#[must_use]
pub fn violations(trigger: InvariantTrigger, action: InvariantAction) -> u64 {
    COUNTS[slot(trigger, action)].load(Ordering::Relaxed)
}

/// How often a pump of this process has halted on `trigger`, `None` standing for halts that no named
/// check raised: the counter `backwave.group.halts`.
#[must_use]
pub fn halts(trigger: Option<InvariantTrigger>) -> u64 {
    HALTS[trigger.map_or(InvariantTrigger::ALL.len(), |trigger| trigger as usize)]
        .load(Ordering::Relaxed)
}

pub(crate) fn count_halt(trigger: Option<InvariantTrigger>) {
    HALTS[trigger.map_or(InvariantTrigger::ALL.len(), |trigger| trigger as usize)]
        .fetch_add(1, Ordering::Relaxed);
    crate::telemetry::count_halt(
        trigger.map_or(crate::telemetry::UNCLASSIFIED, InvariantTrigger::name),
    );
}

/// The trigger in an error's source chain, the error itself included.
#[must_use]
pub fn find_trigger(error: &(dyn Error + 'static)) -> Option<InvariantTrigger> {
    let mut next = Some(error);
    // A chain that loops would be a bug of its author; it must not hang the worker that looks.
    for _ in 0..64 {
        let error = next?;
        if let Some(trigger) = error.downcast_ref::<InvariantTrigger>() {
            return Some(*trigger);
        }
        if let Some(store) = error.downcast_ref::<crate::store::StoreError>() {
            return store.trigger();
        }
        next = error.source();
    }
    None
}

fn count(trigger: InvariantTrigger, action: InvariantAction) {
    COUNTS[slot(trigger, action)].fetch_add(1, Ordering::Relaxed);
    crate::telemetry::count_violation(trigger, action);
}

const fn slot(trigger: InvariantTrigger, action: InvariantAction) -> usize {
    trigger as usize * 2 + action as usize
}

static HALTS: [AtomicU64; InvariantTrigger::ALL.len() + 1] =
    [const { AtomicU64::new(0) }; InvariantTrigger::ALL.len() + 1];
static COUNTS: [AtomicU64; InvariantTrigger::ALL.len() * 2] =
    [const { AtomicU64::new(0) }; InvariantTrigger::ALL.len() * 2];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreError;

    #[test]
    fn every_trigger_reads_back_from_its_name() {
        for trigger in InvariantTrigger::ALL {
            assert_eq!(trigger.to_string().parse(), Ok(*trigger));
        }
        assert!("NoSuchTrigger".parse::<InvariantTrigger>().is_err());
    }

    #[test]
    fn a_message_does_not_repeat_its_trigger() {
        let violation = halt(InvariantTrigger::GuaranteedRowAbsent, "the version row is gone");
        assert!(!violation.to_string().contains("GuaranteedRowAbsent"));
        let chain = anyhow::Error::from(violation);
        assert_eq!(
            format!("{chain:#}"),
            "an invariant does not hold: the version row is gone: GuaranteedRowAbsent"
        );
    }

    #[test]
    fn what_is_violated_on_the_observer_path_counts_as_degraded() {
        // Raised by no other unit test.
        let trigger = InvariantTrigger::ObserverReportFenceRejected;
        let counted =
            || [InvariantAction::Halt, InvariantAction::Degrade].map(|a| violations(trigger, a));
        let before = counted();
        let thread = std::thread::spawn(move || {
            enter_observer_path();
            halt(trigger, "it was refused")
        });
        assert_eq!(thread.join().expect("it ends").trigger(), trigger);
        assert_eq!(counted(), [before[0], before[1] + 1]);
    }

    #[test]
    fn a_trigger_is_found_behind_wrappers_that_hide_the_violation() {
        let violation = halt(InvariantTrigger::ClaimBatchOverrun, "3 for 2");
        let boxed: Box<dyn Error + Send + Sync> = anyhow::Error::from(violation).into();
        assert_eq!(find_trigger(boxed.as_ref()), Some(InvariantTrigger::ClaimBatchOverrun));
        assert_eq!(find_trigger(&fmt::Error), None);
        // A store error does not name the fault itself among its sources.
        let bare = StoreError::new(InvariantTrigger::GuaranteedRowAbsent);
        assert_eq!(find_trigger(&bare), Some(InvariantTrigger::GuaranteedRowAbsent));
    }
}
