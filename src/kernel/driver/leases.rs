//! Keeping leases, settling dead ones, and giving leases back.

use super::command::{Command, Lost};
use super::planted::planted;
use super::{Driver, ExecutionId, LAPSED_PAGE, Renewal};
use crate::invariant::{InvariantTrigger, InvariantViolation, halt};
use crate::store::{LapsedJob, LeaseRef, Renewed};
use crate::{CancelReason, Timestamp};

/// The search for dead leases.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(super) struct Lapses {
    wanted: bool,
    under_way: bool,
    /// The last page was full: when something of it is settled, the next is looked for at once.
    page_was_full: bool,
}

impl Lapses {
    pub(super) fn next_search(&mut self) -> bool {
        let go = self.wanted && !self.under_way;
        if go {
            self.wanted = false;
            self.under_way = true;
        }
        go
    }

    pub(super) fn failed(&mut self) {
        self.under_way = false;
    }

    pub(super) const fn is_under_way(&self) -> bool {
        self.under_way
    }

    pub(super) fn settled_some(&mut self) {
        if std::mem::take(&mut self.page_was_full) {
            self.wanted = true;
        }
    }
}

/// Leases to give back, and the question what is held that nobody here knows of.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(super) struct HandBacks {
    waiting: Vec<LeaseRef>,
    under_way: Option<Vec<LeaseRef>>,
    /// A claim whose answer was lost may still take effect until then.
    doubt_until: Option<Timestamp>,
    asking: bool,
    ask: bool,
    held: bool,
}

impl HandBacks {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_none() && !self.ask && !self.asking
    }

    pub(super) fn add(&mut self, lease: LeaseRef) {
        if !self.has(lease) {
            self.waiting.push(lease);
        }
    }

    fn has(&self, lease: LeaseRef) -> bool {
        let under_way = self.under_way.as_deref().unwrap_or_default();
        self.waiting.contains(&lease) || under_way.contains(&lease)
    }

    pub(super) fn next_batch(&mut self) -> Option<Vec<LeaseRef>> {
        if self.held || self.under_way.is_some() || self.waiting.is_empty() {
            return None;
        }
        let leases = std::mem::take(&mut self.waiting);
        self.under_way = Some(leases.clone());
        Some(leases)
    }

    pub(super) fn failed(&mut self) {
        let again = self.under_way.take().unwrap_or_default();
        again.into_iter().for_each(|lease| self.add(lease));
        self.held = true;
    }

    pub(super) fn doubt(&mut self, until: Timestamp) {
        self.doubt_until = self.doubt_until.max(Some(until));
        self.ask = true;
        self.held = true;
    }

    /// A tick releases the hold that a failure put on.
    pub(super) fn tick(&mut self) {
        self.held = false;
    }

    pub(super) fn ask_while_in_doubt(&mut self, now: Timestamp) {
        if let Some(until) = self.doubt_until {
            self.ask = true;
            if until <= now {
                self.doubt_until = None;
            }
        }
    }

    pub(super) const fn is_in_doubt(&self) -> bool {
        self.doubt_until.is_some()
    }

    pub(super) const fn is_asking(&self) -> bool {
        self.asking
    }

    pub(super) fn next_question(&mut self) -> bool {
        let go = self.ask && !self.asking && !self.held;
        if go {
            self.ask = false;
            self.asking = true;
        }
        go
    }

    pub(super) const fn is_under_way(&self) -> bool {
        self.under_way.is_some() || self.asking
    }

    /// What waits, if anything, has failed before.
    pub(super) const fn is_empty_or_held(&self) -> bool {
        self.held || (self.waiting.is_empty() && !self.ask)
    }

    pub(super) fn question_failed(&mut self) {
        self.asking = false;
        self.ask = true;
        self.held = true;
    }
}

impl Driver {
    pub(super) fn on_poll_due(&mut self, now: Timestamp) {
        if !planted!(self.config, NoPolls) {
            self.pace.tick(now);
        }
        self.outcomes.tick();
        self.hand_backs.tick();
        if matches!(self.renewal, Renewal::Failed) {
            self.renewal = Renewal::Due;
        }
        self.lose_expired(now);
        self.withdraw_held_too_long(now);
    }

    pub(super) fn on_heartbeat_due(&mut self, now: Timestamp) {
        self.outcomes.tick();
        self.hand_backs.ask_while_in_doubt(now);
        self.lose_expired(now);
        self.replace_stuck(now);
        if matches!(self.renewal, Renewal::Idle | Renewal::Failed) {
            self.renewal = Renewal::Due;
        }
    }

    /// The leases of the heartbeat that is due, if one is.
    pub(super) fn take_renewal(&mut self) -> Option<Vec<LeaseRef>> {
        if !matches!(self.renewal, Renewal::Due) || planted!(self.config, NoRenewal) {
            return None;
        }
        let running = self.executions.iter().filter(|(_, execution)| !execution.abandoned);
        let running = running.map(|(id, execution)| (Some(*id), execution.lease));
        let finished = self.outcomes.leases().map(|lease| (None, lease));
        let (targets, leases): (Vec<_>, Vec<_>) = running.chain(finished).unzip();
        self.renewal = if leases.is_empty() { Renewal::Idle } else { Renewal::UnderWay(targets) };
        (!leases.is_empty()).then_some(leases)
    }

    pub(super) fn on_renewed(
        &mut self,
        rows: &[Renewed],
        now: Timestamp,
    ) -> Result<(), InvariantViolation> {
        let targets = match std::mem::replace(&mut self.renewal, Renewal::Idle) {
            Renewal::UnderWay(targets) => targets,
            Renewal::Idle | Renewal::Due | Renewal::Failed => Vec::new(),
        };
        if rows.len() != targets.len() {
            let message =
                format!("a renewal of {} lease(s) was answered with {}", targets.len(), rows.len());
            return Err(halt(InvariantTrigger::HeartbeatBatchCountMismatch, message));
        }
        for (target, row) in targets.into_iter().zip(rows) {
            // A finished attempt's lease that is lost changes nothing: only its report's answer does.
            if let Some(id) = target {
                self.execution_renewed(id, *row, now);
            }
        }
        Ok(())
    }

    fn execution_renewed(&mut self, id: ExecutionId, row: Renewed, now: Timestamp) {
        match row {
            Renewed::Lost => self.lose(id, Lost::NotRenewed, now),
            Renewed::Renewed { expiry, cancel_requested } => {
                let live = self.executions.get_mut(&id).filter(|execution| !execution.abandoned);
                let Some(execution) = live else { return };
                execution.expiry = expiry;
                self.push(Command::Prolong { execution: id, expiry });
                if cancel_requested && !planted!(self.config, CancelUnheard) {
                    self.fire(id, CancelReason::OperatorRequest, now);
                }
            }
        }
    }

    /// Gives up leases whose expiry has passed without a renewal, if they are not given up yet.
    fn lose_expired(&mut self, now: Timestamp) {
        let expired = self.executions.iter().filter(|(_, e)| e.expiry <= now);
        let expired: Vec<_> = expired.map(|(id, _)| *id).collect();
        for id in expired {
            self.lose(id, Lost::Expired, now);
        }
    }

    /// Takes back what waits for a worker longer than it was promised; what has begun ignores it.
    fn withdraw_held_too_long(&mut self, now: Timestamp) {
        if self.occupied() <= self.config.workers {
            return;
        }
        let mut late = Vec::new();
        for (id, execution) in &mut self.executions {
            let waited = now.since(execution.given_at) > HELD_MAX;
            if waited && !execution.withdrawn && !execution.abandoned {
                execution.withdrawn = true;
                late.push(*id);
            }
        }
        for execution in late {
            self.push(Command::Withdraw { execution });
        }
    }

    pub(super) fn on_maintenance_due(&mut self) {
        self.lapses.wanted = true;
    }

    pub(super) fn on_lapsed_found(&mut self, jobs: Vec<LapsedJob>, now: Timestamp) {
        self.lapses.under_way = false;
        if self.stopping.is_some() {
            // Others find them as well; a stop takes on nothing new.
            return;
        }
        self.lapses.page_was_full = jobs.len() as u64 >= u64::from(LAPSED_PAGE);
        for job in jobs {
            let lease = LeaseRef { job: job.id, attempt: job.attempt };
            if self.outcomes.has(job.id) {
                // Our own result beats a lapse that we found ourselves; the fence decides.
                continue;
            }
            if let Some(id) = self.holder(lease) {
                self.lose(id, Lost::Expired, now);
            }
            self.settle_lapsed(&job, now);
        }
    }

    pub(super) fn on_held_found(&mut self, leases: Vec<LeaseRef>) {
        self.hand_backs.asking = false;
        for lease in leases {
            if !self.knows(lease) {
                self.give_back(lease);
            }
        }
    }

    /// Whether the lease has an execution here, be it one that gave the lease up, or an outcome.
    fn knows(&self, lease: LeaseRef) -> bool {
        let is_planted = planted!(self.config, RunningIsUnknown);
        let mut executions = self.executions.values().filter(|_| !is_planted);
        self.outcomes.has(lease.job) || executions.any(|execution| execution.lease == lease)
    }

    pub(super) fn on_handed_back(&mut self, rows: &[bool]) -> Result<(), InvariantViolation> {
        let asked = self.hand_backs.under_way.take().unwrap_or_default();
        if rows.len() != asked.len() {
            let message =
                format!("a hand-back of {} lease(s) was answered with {}", asked.len(), rows.len());
            return Err(halt(InvariantTrigger::HeartbeatBatchCountMismatch, message));
        }
        Ok(())
    }
}

/// What is held beyond the free workers and has not begun by then is handed back.
const HELD_MAX: std::time::Duration = std::time::Duration::from_secs(1);
