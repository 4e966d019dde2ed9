//! How much to claim and when, what a claim's answer must look like, and what to do with it.

use super::command::{ClaimAsk, Command, Lost, Note};
use super::planted::planted;
use super::{Driver, Execution, ExecutionId};
use crate::Timestamp;
use crate::invariant::{InvariantTrigger, InvariantViolation, halt};
use crate::store::{Claimed, ClaimedJob, LeaseRef};
use crate::{CancelReason, JobState};
use std::collections::BTreeSet;

impl Driver {
    /// Jobs that may be asked for: the pool and what it may hold beyond, less what it has.
    fn room(&self) -> u32 {
        let capacity = self.config.workers + self.appetite.extra();
        capacity.saturating_sub(self.occupied() + self.asked.unwrap_or(0))
    }

    /// Whether a claim may be made at all.
    pub(super) fn may_claim(&self) -> bool {
        (self.stopping.is_none() || planted!(self.config, ClaimsWhileStopping))
            && self.asked.is_none()
            && !self.hand_backs.is_asking()
            && !self.outcomes.is_under_way()
            && !self.outcomes.is_backed_up(self.config.workers)
            && self.room() > 0
    }

    fn wants_claim(&self, now: Timestamp) -> bool {
        self.may_claim() && self.pace.claim_at().is_some_and(|at| at <= now)
    }

    /// The next report, claim or exchange, if one is due. At most one of them is under way.
    pub(super) fn next_exchange(&mut self, now: Timestamp) -> Option<Command> {
        if self.outcomes.is_under_way() || self.asked.is_some() || self.pace.is_held() {
            return None;
        }
        let flush = self.flush_at().is_some_and(|at| at <= now);
        // A claim waits for the outcomes that are about to go: both ride one round trip.
        let claim = self.wants_claim(now) && (flush || self.outcomes.is_empty());
        match (flush, claim && !self.outcomes.go_alone()) {
            (true, true) => {
                let rows = self.outcomes.take_batch();
                Some(Command::Exchange { rows, ask: self.ask() })
            }
            (true, false) => Some(Command::Report { rows: self.outcomes.take_batch() }),
            (false, true) => Some(Command::Claim(self.ask())),
            (false, false) => None,
        }
    }

    fn ask(&mut self) -> ClaimAsk {
        let total = self.room();
        self.asked = Some(total);
        self.pace.claim_began();
        ClaimAsk { total, plan: self.dispatcher.plan(total) }
    }

    pub(super) fn on_claim_failed(&mut self, in_doubt: bool, now: Timestamp) {
        if !planted!(self.config, ClaimLeaked) {
            self.asked = None;
        }
        self.pace.claim_failed();
        if in_doubt && !planted!(self.config, NoQuestion) {
            self.hand_backs.doubt(now + self.config.doubt);
        }
    }

    pub(super) fn on_claimed(
        &mut self,
        claimed: Claimed,
        now: Timestamp,
    ) -> Result<(), InvariantViolation> {
        let asked = self.asked.take().unwrap_or(0);
        self.check_claimed(&claimed, asked)?;
        let count = claimed.jobs.len() as u32;
        // Leases that are dead on arrival mean trouble with time; the next poll is soon enough to take
        // more of them, or a queue would be burnt through.
        let late = claimed.jobs.iter().any(|job| job.expiry <= now);
        let more = count > 0 && !late && (count == asked || claimed.withheld);
        // What a pause or a limit withholds is due and stays so: it is looked for at the polls.
        let next_due = claimed.next_due.filter(|due| *due > now || !claimed.withheld);
        self.pace.claim_answered(count > 0, more, next_due, now);
        let overlooked = usize::from(count > 1 && planted!(self.config, ClaimedJobOverlooked));
        for job in claimed.jobs.into_iter().take(count as usize - overlooked) {
            self.take_on(job, now);
        }
        Ok(())
    }

    fn check_claimed(&self, claimed: &Claimed, asked: u32) -> Result<(), InvariantViolation> {
        let count = claimed.jobs.len();
        if count as u64 > u64::from(asked) {
            let message = format!("a claim bound to {asked} job(s) returned {count}");
            return Err(halt(InvariantTrigger::ClaimBatchOverrun, message));
        }
        let mut seen = BTreeSet::new();
        for job in &claimed.jobs {
            self.check_claimed_job(job)?;
            if !seen.insert(job.id) {
                let message = format!("job {} is twice in one answer", job.id);
                return Err(halt(InvariantTrigger::ClaimedRowNotEligible, message));
            }
        }
        Ok(())
    }

    fn check_claimed_job(&self, job: &ClaimedJob) -> Result<(), InvariantViolation> {
        let (id, before, state) = (job.id, job.state_before, job.state);
        if before.is_terminal() || state.is_terminal() {
            let message = format!("job {id} was claimed out of {before} and is {state}");
            return Err(halt(InvariantTrigger::ClaimedJobTerminal, message));
        }
        if before != JobState::Scheduled {
            let message = format!("job {id} was claimed out of {before}");
            return Err(halt(InvariantTrigger::ClaimedRowNotEligible, message));
        }
        if state != JobState::Leased || job.owner != Some(self.config.worker) {
            let owner = job.owner.map_or_else(|| "nobody".to_owned(), |owner| owner.to_string());
            let message = format!(
                "job {id}, claimed by {}, is {state} and held by {owner}",
                self.config.worker
            );
            return Err(halt(InvariantTrigger::ClaimedRowNotLeasedToWorker, message));
        }
        let attempt = job.attempt;
        if self.holder(LeaseRef { job: id, attempt }).is_some() {
            let message = format!("attempt {attempt} of job {id} was claimed while it runs here");
            return Err(halt(InvariantTrigger::ClaimedRowNotEligible, message));
        }
        Ok(())
    }

    /// The execution that holds exactly this lease.
    pub(super) fn holder(&self, lease: LeaseRef) -> Option<ExecutionId> {
        let id = *self.holders.get(&lease.job)?;
        self.executions.get(&id).filter(|execution| execution.lease == lease).map(|_| id)
    }

    fn take_on(&mut self, job: ClaimedJob, now: Timestamp) {
        let lease = LeaseRef { job: job.id, attempt: job.attempt };
        if self.stopping.is_some() && !planted!(self.config, ClaimsWhileStopping) {
            self.give_back(lease);
            return;
        }
        if job.expiry <= now {
            self.note(Note::LeaseLost { job: job.id, attempt: job.attempt, why: Lost::LateClaim });
            return;
        }
        // An execution of an earlier attempt of this job lost its lease without our hearing of it.
        if let Some(older) = self.holders.get(&job.id).copied() {
            self.lose(older, Lost::NotRenewed, now);
        }
        let execution = ExecutionId(self.next_execution);
        self.next_execution += 1;
        self.executions.insert(
            execution,
            Execution {
                lease,
                failures: job
                    .failures
                    .saturating_sub(u32::from(planted!(self.config, CeilingOffByOne))),
                retry: job.retry.unwrap_or(self.config.retry),
                timeout: job.timeout,
                expiry: job.expiry,
                given_at: now,
                times_out_at: None,
                fired_at: None,
                withdrawn: false,
                abandoned: false,
                replaced: false,
            },
        );
        self.holders.insert(job.id, execution);
        self.note(Note::LeaseAcquired { job: job.id, attempt: job.attempt, expiry: job.expiry });
        if planted!(self.config, ExecutedTwice) {
            self.push(Command::Execute { execution, job: Box::new(job.clone()) });
        }
        self.push(Command::Execute { execution, job: Box::new(job) });
    }

    pub(super) fn on_started(&mut self, id: ExecutionId, now: Timestamp) {
        if planted!(self.config, NoTimeLimit) {
            return;
        }
        let Some(execution) = self.executions.get_mut(&id) else { return };
        if execution.fired_at.is_some() || execution.times_out_at.is_some() {
            return;
        }
        if let Some(timeout) = execution.timeout {
            execution.times_out_at = Some(now + timeout);
            self.time_outs.insert((now + timeout, id));
        }
    }

    /// Asks the attempts to end whose time limit has passed.
    pub(super) fn fire_time_outs(&mut self, now: Timestamp) {
        while let Some((at, id)) = self.time_outs.first().copied() {
            if at > now {
                return;
            }
            self.time_outs.remove(&(at, id));
            self.fire(id, CancelReason::TimedOut, now);
        }
    }

    /// Fires an execution's token, once.
    pub(super) fn fire(&mut self, id: ExecutionId, reason: CancelReason, now: Timestamp) {
        let Some(execution) = self.executions.get_mut(&id) else { return };
        if execution.fired_at.is_none() {
            execution.fired_at = Some(now);
            // A token fires once: its time limit wakes nobody any more.
            if let Some(at) = execution.times_out_at.take() {
                self.time_outs.remove(&(at, id));
            }
            self.push(Command::Cancel { execution: id, reason });
        }
    }

    /// Takes an execution's lease as gone: its handler is asked to end, and what it returns is dropped.
    /// One that no worker has begun ends at once, so that it neither keeps its slot nor passes for a
    /// handler that ignores its token.
    pub(super) fn lose(&mut self, id: ExecutionId, why: Lost, now: Timestamp) {
        let Some(lease) = self.abandon(id) else { return };
        self.fire(id, CancelReason::LeaseLost, now);
        self.push(Command::Withdraw { execution: id });
        self.note(Note::LeaseLost { job: lease.job, attempt: lease.attempt, why });
    }

    /// Forgets the lease of an execution; its thread still counts.
    pub(super) fn abandon(&mut self, id: ExecutionId) -> Option<LeaseRef> {
        let execution = self.executions.get_mut(&id).filter(|execution| !execution.abandoned)?;
        execution.abandoned = true;
        let lease = execution.lease;
        if self.holders.get(&lease.job) == Some(&id) {
            self.holders.remove(&lease.job);
        }
        Some(lease)
    }
}
