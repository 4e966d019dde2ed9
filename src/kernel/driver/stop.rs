//! The clean stop, and handlers that do not end when they are asked to.

use super::command::{Command, Note};
use super::planted::planted;
use super::{Driver, ExecutionId, Renewal};
use crate::{CancelReason, Timestamp};

#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(super) struct Stopping {
    /// Whether leases are given back; else they are left to lapse.
    hand_back: bool,
    /// The budget has passed.
    over: bool,
    /// The last question about leases of a claim whose answer was lost was put.
    asked_last: bool,
    /// `Stopped` was said.
    said: bool,
}

impl Stopping {
    pub(super) const fn hands_back(&self) -> bool {
        self.hand_back
    }
}

impl Driver {
    pub(super) fn on_stop_requested(&mut self, hand_back: bool) {
        if self.stopping.is_some() {
            return;
        }
        self.stopping = Some(Stopping { hand_back, over: false, asked_last: false, said: false });
        // What no worker has begun goes back at once; what has begun ignores the withdrawal.
        let live = self.executions.iter().filter(|(_, execution)| !execution.abandoned);
        let live: Vec<ExecutionId> = live.map(|(id, _)| *id).collect();
        for execution in live {
            self.push(Command::Withdraw { execution });
        }
    }

    pub(super) fn on_grace_ended(&mut self, now: Timestamp) {
        let all: Vec<ExecutionId> = self.executions.keys().copied().collect();
        for id in all {
            self.fire(id, CancelReason::GroupStopping, now);
        }
    }

    pub(super) fn on_drain_deadline(&mut self, now: Timestamp) {
        self.on_grace_ended(now);
        if planted!(self.config, StopWaitsForEver) {
            return;
        }
        let Some(stopping) = self.stopping.as_mut() else { return };
        stopping.over = true;
        let hand_back = stopping.hand_back;
        let running: Vec<ExecutionId> = self.holders.values().copied().collect();
        let mut jobs = Vec::new();
        for id in running {
            let Some(lease) = self.abandon(id) else { continue };
            jobs.push(lease.job);
            if hand_back {
                self.hand_backs.add(lease);
            }
        }
        if !jobs.is_empty() {
            self.note(Note::BudgetExhausted { jobs });
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopping.as_ref().is_some_and(|stopping| stopping.said)
    }

    /// Reached when no other request is due: the last question, or the end.
    pub(super) fn next_stop_step(&mut self) -> Option<Command> {
        if self.stopping.is_none() || self.awaits_answer() {
            return None;
        }
        if !self.is_drained() && !self.is_given_up() {
            return None;
        }
        if self.put_last_question() {
            return Some(Command::FindHeld);
        }
        // The last question may have to wait for a tick, or the deadline.
        if !self.is_drained() && !self.is_given_up() {
            return None;
        }
        self.stopping.as_mut()?.said = true;
        Some(Command::Stopped)
    }

    fn put_last_question(&mut self) -> bool {
        let in_doubt = self.hand_backs.is_in_doubt();
        let Some(stopping) = self.stopping.as_mut() else { return false };
        if !in_doubt || !stopping.hand_back || stopping.asked_last {
            return false;
        }
        stopping.asked_last = true;
        self.hand_backs.ask_while_in_doubt(Timestamp::MIN);
        self.hand_backs.next_question()
    }

    /// A request has not been answered yet.
    fn awaits_answer(&self) -> bool {
        self.asked.is_some()
            || self.outcomes.is_under_way()
            || matches!(self.renewal, Renewal::UnderWay(_))
            || self.lapses.is_under_way()
            || self.hand_backs.is_under_way()
            || self.schedules.is_under_way()
            || self.upkeep.is_under_way()
    }

    fn is_drained(&self) -> bool {
        self.holders.is_empty() && self.outcomes.is_empty() && self.hand_backs.is_empty()
    }

    /// The budget is over and what is still owed has failed: it is not tried again, and left to lapse.
    fn is_given_up(&self) -> bool {
        self.stopping.as_ref().is_some_and(|stopping| stopping.over)
            && self.hand_backs.is_empty_or_held()
    }

    /// Counts handlers that ignore their token, and has their threads replaced up to a bound.
    pub(super) fn replace_stuck(&mut self, now: Timestamp) {
        let patience = self.config.patience;
        let mut stuck = Vec::new();
        for (id, execution) in self.executions.iter().filter(|(_, execution)| !execution.replaced) {
            let age = execution.fired_at.map(|fired_at| now.since(fired_at));
            if let Some(age) = age.filter(|age| *age > patience) {
                stuck.push((*id, execution.lease, age));
            }
        }
        for (id, lease, age) in stuck {
            if self.is_at_replacement_bound() || self.stopping.is_some() {
                return;
            }
            if let Some(execution) = self.executions.get_mut(&id) {
                execution.replaced = true;
                self.replaced_count += 1;
                self.note(Note::TokenIgnored { job: lease.job, attempt: lease.attempt, age });
                self.push(Command::ReplaceWorker { execution: id });
            }
        }
    }
}
