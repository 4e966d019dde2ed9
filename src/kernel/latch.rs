//! The latch: what holds a dependent back until its parents have ended.
//!
//! Written once for the adapters that decide in Rust; the Postgres functions say the same in SQL, and
//! the contract's clauses hold the two together.

use super::state::JobState;
use crate::JobId;

/// Which ends of its parents release a dependent. Fixed when it is enqueued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize)]
#[non_exhaustive]
pub enum ParentRule {
    /// Every parent must succeed; one that ends otherwise cancels the dependent.
    #[default]
    OnSuccess,
    /// Every parent must have ended, however it did.
    OnAnyTerminal,
}

/// What one parent's state does to the latch of a dependent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Gate {
    /// The parent lives: the dependent waits for it.
    Closed,
    /// The parent holds it back no longer.
    Open,
    /// The dependent can never run: it is Cancelled.
    Failed,
}

impl ParentRule {
    const ALL: [Self; 2] = [Self::OnSuccess, Self::OnAnyTerminal];

    /// The number under which stores keep it; never reused.
    #[must_use]
    pub const fn code(self) -> i16 {
        match self {
            Self::OnSuccess => 0,
            Self::OnAnyTerminal => 1,
        }
    }

    /// The rule stored under `code`, if there is one.
    #[must_use]
    pub fn from_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| i64::from(rule.code()) == code)
    }

    /// What a parent in `state` does to the latch of a dependent with this rule.
    ///
    /// ```
    /// use backwave::{JobState, ParentRule, store::Gate};
    ///
    /// assert_eq!(ParentRule::OnSuccess.gate(JobState::Leased), Gate::Closed);
    /// assert_eq!(ParentRule::OnSuccess.gate(JobState::Cancelled), Gate::Failed);
    /// assert_eq!(ParentRule::OnAnyTerminal.gate(JobState::Cancelled), Gate::Open);
    /// ```
    #[must_use]
    pub const fn gate(self, state: JobState) -> Gate {
        match (self, state) {
            (_, JobState::Scheduled | JobState::AwaitingParent | JobState::Leased) => Gate::Closed,
            (_, JobState::Succeeded) | (Self::OnAnyTerminal, _) => Gate::Open,
            (Self::OnSuccess, _) => Gate::Failed,
        }
    }

    /// In which state a dependent is born whose parents, each once, are in these states, and which of them hold it
    /// back.
    pub(crate) fn birth(
        self,
        parents: impl IntoIterator<Item = (JobId, JobState)>,
    ) -> (JobState, Vec<JobId>) {
        let mut gates = Vec::new();
        let mut is_failed = false;
        for (parent, state) in parents {
            match self.gate(state) {
                Gate::Closed => gates.push(parent),
                Gate::Open => {}
                Gate::Failed => is_failed = true,
            }
        }
        if is_failed {
            return (JobState::Cancelled, Vec::new());
        }
        let state = if gates.is_empty() { JobState::Scheduled } else { JobState::AwaitingParent };
        (state, gates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_lead_back_to_their_rule() {
        for rule in ParentRule::ALL {
            assert_eq!(ParentRule::from_code(i64::from(rule.code())), Some(rule));
        }
        assert_eq!(ParentRule::from_code(2), None);
    }

    #[test]
    fn a_dependent_waits_for_those_that_live_unless_one_has_failed_it() {
        let ids = [JobId::new(), JobId::new()];
        let born = |states: [JobState; 2]| ParentRule::OnSuccess.birth(ids.into_iter().zip(states));
        let (done, lives, failed) = (JobState::Succeeded, JobState::Leased, JobState::DeadLettered);
        assert_eq!(born([done, done]), (JobState::Scheduled, Vec::new()));
        assert_eq!(born([done, lives]), (JobState::AwaitingParent, vec![ids[1]]));
        assert_eq!(born([lives, failed]), (JobState::Cancelled, Vec::new()));
    }

    #[test]
    fn only_a_parent_that_lives_holds_a_dependent_back() {
        for state in JobState::ALL {
            for rule in ParentRule::ALL {
                let closed = rule.gate(state) == Gate::Closed;
                assert_eq!(closed, !state.is_terminal(), "{rule:?} {state}");
            }
            let fails = ParentRule::OnSuccess.gate(state) == Gate::Failed;
            assert_eq!(fails, state.is_terminal() && state != JobState::Succeeded, "{state}");
            assert_ne!(ParentRule::OnAnyTerminal.gate(state), Gate::Failed, "{state}");
        }
    }
}
