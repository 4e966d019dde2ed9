//! What an attempt's end means, and how it is written: batched, with its receipt kept through every
//! repeat, until the store says what became of it.

use super::command::{Lost, Note};
use super::planted::planted;
use super::{Driver, Ending, Execution, ExecutionId};
use crate::invariant::{InvariantTrigger, InvariantViolation, halt};
use crate::kernel::retry::RetryPolicy;
use crate::kernel::verdict::Verdict;
use crate::store::{LeaseRef, Mode, Outcome, OutcomeRow, Receipt, RowReport, StaleReason};
use crate::{CancelReason, JobId, JobState, Timestamp, WorkerId};
use std::collections::HashSet;
use std::time::Duration;

/// Outcomes that are decided and not yet known to be written.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(super) struct Outcomes {
    worker: WorkerId,
    next_sequence: u64,
    waiting: Vec<Waiting>,
    /// How many of those are of a reaper, which an outcome of our own may supersede.
    reaps: usize,
    /// Facts about the rows under way, in their order.
    under_way: Option<Vec<Facts>>,
    /// When the oldest of those waiting was decided.
    oldest_at: Option<Timestamp>,
    /// A tick has passed: what waits goes.
    ticked: bool,
    /// The last try failed: the next one is not tied to a claim, whose trouble it might have been.
    alone: bool,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
struct Waiting {
    row: OutcomeRow,
    facts: Facts,
}

/// What the driver believes of a row; the store never sees it.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(test, derive(Hash))]
struct Facts {
    job: JobId,
    /// Failures before this attempt.
    failures: u32,
    believed_expiry: Timestamp,
    /// A try to write it ended in an error: it may be written.
    in_doubt: bool,
}

impl Outcomes {
    pub(super) const fn new(worker: WorkerId) -> Self {
        Self {
            worker,
            next_sequence: 1,
            waiting: Vec::new(),
            reaps: 0,
            under_way: None,
            oldest_at: None,
            ticked: false,
            alone: false,
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_none()
    }

    pub(super) const fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// More outcomes wait than a pool can have made: the store does not take them, so nothing new is
    /// taken on.
    pub(super) fn is_backed_up(&self, workers: u32) -> bool {
        self.waiting.len() as u64 > 2 * u64::from(workers) + BATCH_MAX as u64
    }

    pub(super) const fn go_alone(&self) -> bool {
        self.alone
    }

    pub(super) fn tick(&mut self) {
        self.ticked = !self.waiting.is_empty();
    }

    /// Leases whose outcome the store has not confirmed, so that they are kept alive meanwhile.
    pub(super) fn leases(&self) -> impl Iterator<Item = LeaseRef> {
        let holders = self.waiting.iter().filter(|waiting| waiting.row.mode == Mode::Holder);
        holders.map(|waiting| LeaseRef { job: waiting.row.job, attempt: waiting.row.attempt })
    }

    /// Whether an outcome of that job waits or is under way.
    pub(super) fn has(&self, job: JobId) -> bool {
        let under_way = self.under_way.as_deref().unwrap_or_default();
        let mut waiting = self.waiting.iter().map(|waiting| &waiting.facts);
        waiting.any(|facts| facts.job == job) || under_way.iter().any(|facts| facts.job == job)
    }

    /// The next report: at most one row of each job, so that no two decisions about one job meet in a
    /// batch.
    pub(super) fn take_batch(&mut self) -> Vec<OutcomeRow> {
        let mut jobs = HashSet::with_capacity(self.waiting.len().min(BATCH_MAX));
        let (mut rows, mut facts, mut later) = (Vec::new(), Vec::new(), Vec::new());
        for waiting in std::mem::take(&mut self.waiting) {
            if rows.len() < BATCH_MAX && jobs.insert(waiting.row.job) {
                rows.push(waiting.row);
                facts.push(waiting.facts);
            } else {
                later.push(waiting);
            }
        }
        self.waiting = later;
        self.count_reaps();
        self.under_way = Some(facts);
        if self.waiting.is_empty() {
            self.oldest_at = None;
            self.ticked = false;
        }
        rows
    }

    fn add(&mut self, mut row: OutcomeRow, facts: Facts, now: Timestamp) {
        row.receipt = Receipt { pump: self.worker, sequence: self.next_sequence };
        self.next_sequence += 1;
        if row.mode == Mode::Reap {
            self.reaps += 1;
        } else if self.reaps > 0 {
            // It held a later lease than the dead one that was found: that one is settled already.
            let superseded =
                |waiting: &Waiting| waiting.row.mode == Mode::Reap && waiting.row.job == row.job;
            self.waiting.retain(|waiting| !superseded(waiting));
            self.count_reaps();
        }
        self.waiting.push(Waiting { row, facts });
        self.oldest_at.get_or_insert(now);
    }

    fn count_reaps(&mut self) {
        self.reaps = self.waiting.iter().filter(|waiting| waiting.row.mode == Mode::Reap).count();
    }

    fn put_back(&mut self, rows: Vec<OutcomeRow>, in_doubt: bool) {
        let facts = self.under_way.take().unwrap_or_default();
        let returned = rows.into_iter().zip(facts).map(|(row, facts)| Waiting {
            row,
            facts: Facts { in_doubt: facts.in_doubt || in_doubt, ..facts },
        });
        self.waiting.splice(..0, returned);
        self.count_reaps();
        self.oldest_at = Some(Timestamp::MIN);
        self.alone = true;
    }
}

/// What is to be done about an attempt's end.
enum Decision {
    Write { outcome: Outcome, output: Option<crate::store::Body>, detail: Option<String> },
    HandBack,
    Drop,
}

impl Decision {
    fn write(outcome: Outcome, detail: String) -> Self {
        let detail = Some(detail).filter(|detail| !detail.is_empty());
        Self::Write { outcome, output: None, detail }
    }
}

impl Driver {
    /// When what waits to be written should go: at once when the batch is full, when nothing runs that
    /// could join it, or at a tick; else a moment after the first of it was decided.
    pub(super) fn flush_at(&self) -> Option<Timestamp> {
        let oldest = self.outcomes.oldest_at?;
        if self.outcomes.is_under_way() || self.asked.is_some() || self.pace.is_held() {
            return None;
        }
        let waiting = self.outcomes.waiting.len();
        let half = (self.config.workers + self.appetite.extra()).div_ceil(2) as usize;
        let at_once = self.outcomes.ticked
            || self.stopping.is_some()
            || self.holders.is_empty()
            || waiting >= half.min(BATCH_MAX);
        Some(if at_once { Timestamp::MIN } else { oldest + LINGER })
    }

    pub(super) fn on_finished(
        &mut self,
        id: ExecutionId,
        ending: Ending,
        token: Option<CancelReason>,
        took: Duration,
        now: Timestamp,
    ) {
        let Some(execution) = self.executions.remove(&id) else { return };
        if execution.replaced {
            self.replaced_count = self.replaced_count.saturating_sub(1);
        }
        if let Some(at) = execution.times_out_at {
            self.time_outs.remove(&(at, id));
        }
        if execution.abandoned {
            return;
        }
        let lease = execution.lease;
        if self.holders.get(&lease.job) == Some(&id) {
            self.holders.remove(&lease.job);
        }
        if !matches!(ending, Ending::NotStarted) {
            self.appetite.finished(took);
        } else if execution.withdrawn {
            self.appetite.disappointed();
        }
        let stopping = self.stopping.is_some() && !planted!(self.config, GivingWayIsFailure);
        match decide(&execution, ending, token, stopping) {
            Decision::Write { outcome, output, detail } => {
                let receipt = Receipt { pump: self.config.worker, sequence: 0 };
                let mut row =
                    OutcomeRow::new(lease.job, lease.attempt, self.config.worker, receipt, outcome);
                row.output = output;
                row.detail = detail;
                self.outcomes.add(row, Facts::of(&execution), now);
            }
            Decision::HandBack => self.give_back(lease),
            Decision::Drop => {
                self.note(Note::LeaseLost {
                    job: lease.job,
                    attempt: lease.attempt,
                    why: Lost::Expired,
                });
            }
        }
    }

    /// Settles a lease that lapsed, by the job's own policy, through the same write as everything else.
    pub(super) fn settle_lapsed(&mut self, job: &crate::store::LapsedJob, now: Timestamp) {
        let retry = job.retry.unwrap_or(self.config.retry);
        let lease = LeaseRef { job: job.id, attempt: job.attempt };
        let outcome = if planted!(self.config, LapseIsFree) {
            Outcome::Snooze { after: RetryPolicy::DELAY_MIN }
        } else {
            failure(&retry, job.failures, lease, None)
        };
        let receipt = Receipt { pump: self.config.worker, sequence: 0 };
        let mut row = OutcomeRow::new(job.id, job.attempt, job.owner, receipt, outcome);
        row.mode = Mode::Reap;
        row.detail = Some(format!("the lease of worker {} lapsed at {}", job.owner, job.expiry));
        let facts = Facts {
            job: job.id,
            failures: job.failures,
            believed_expiry: job.expiry,
            in_doubt: false,
        };
        self.outcomes.add(row, facts, now);
        self.outcomes.tick();
    }

    pub(super) fn on_report_failed(&mut self, rows: Vec<OutcomeRow>, in_doubt: bool) {
        #[cfg(test)]
        let rows = super::planted::spoil_repeat(&self.config, rows, in_doubt);
        self.outcomes.put_back(rows, in_doubt);
        self.pace.hold();
    }

    pub(super) fn on_reported(
        &mut self,
        rows: Vec<OutcomeRow>,
        reports: Vec<RowReport>,
        now: Timestamp,
    ) -> Result<(), InvariantViolation> {
        let facts = self.outcomes.under_way.take().unwrap_or_default();
        if reports.len() != facts.len() {
            let message =
                format!("a report of {} row(s) was answered with {}", facts.len(), reports.len());
            return Err(halt(InvariantTrigger::OutcomeBatchCountMismatch, message));
        }
        self.outcomes.alone = false;
        let mut lapses_settled = 0;
        for ((row, facts), report) in rows.iter().zip(facts).zip(reports) {
            match report {
                RowReport::Applied(state) | RowReport::AlreadyApplied(state) => {
                    lapses_settled += usize::from(row.mode == Mode::Reap);
                    self.note_settled(row, facts, state, now);
                }
                RowReport::Stale(reason) => self.note_stale(row, facts, reason, now),
            }
        }
        if lapses_settled > 0 {
            self.note(Note::LapsedSettled { count: lapses_settled });
            self.lapses.settled_some();
        }
        Ok(())
    }

    fn note_settled(&mut self, row: &OutcomeRow, facts: Facts, state: JobState, now: Timestamp) {
        let (job, attempt) = (row.job, row.attempt);
        let failures = facts.failures + u32::from(row.outcome.is_failure());
        match (state, row.outcome.delay()) {
            (JobState::Scheduled, Some(after)) => {
                let due = now + after;
                self.pace.woken(due);
                if row.outcome.is_failure() {
                    self.note(Note::WillRetry { job, attempt, failures, due });
                }
            }
            (JobState::DeadLettered, _) => {
                let lapsed = row.mode == Mode::Reap;
                self.note(Note::DeadLettered { job, attempt, failures, lapsed });
            }
            (JobState::Quarantined, _) => self.note(Note::Quarantined { job, attempt }),
            _ => {}
        }
        self.note(Note::AttemptEnded { job, attempt, state });
    }

    fn note_stale(&mut self, row: &OutcomeRow, facts: Facts, reason: StaleReason, now: Timestamp) {
        if row.mode == Mode::Reap {
            // Another reaper was first, or the holder renewed or reported: nothing to say.
            return;
        }
        let (job, attempt) = (row.job, row.attempt);
        self.note(Note::LeaseLost { job, attempt, why: Lost::Refused(reason) });
        let allowance = CLOCK_SKEW_MAX.min(self.config.lease / 2);
        let believed = facts.believed_expiry.since(now);
        if reason == StaleReason::Unknown && !facts.in_doubt && believed > allowance {
            let detail = format!(
                "the outcome of attempt {attempt} of job {job} was refused although its lease was believed to last {} s more",
                believed.as_secs()
            );
            self.note(Note::Degraded { trigger: InvariantTrigger::OutcomeFenceRejected, detail });
        }
    }
}

impl Facts {
    const fn of(execution: &Execution) -> Self {
        Self {
            job: execution.lease.job,
            failures: execution.failures,
            believed_expiry: execution.expiry,
            in_doubt: false,
        }
    }
}

/// An attempt's end is settled by its token's reason, not by what the returned error claims.
fn decide(
    execution: &Execution,
    ending: Ending,
    token: Option<CancelReason>,
    stopping: bool,
) -> Decision {
    if token == Some(CancelReason::LeaseLost) {
        return Decision::Drop;
    }
    match ending {
        Ending::Succeeded { output } => {
            Decision::Write { outcome: Outcome::Succeeded, output, detail: None }
        }
        Ending::Undecodable { detail } => Decision::write(Outcome::Quarantined, detail),
        Ending::NotStarted => Decision::HandBack,
        Ending::Failed { verdict, detail } => {
            decide_failed(execution, verdict, detail, token, stopping)
        }
    }
}

fn decide_failed(
    execution: &Execution,
    verdict: Verdict,
    detail: String,
    token: Option<CancelReason>,
    stopping: bool,
) -> Decision {
    let fail = |delay, detail| {
        let outcome = failure(&execution.retry, execution.failures, execution.lease, delay);
        Decision::write(outcome, detail)
    };
    if token == Some(CancelReason::TimedOut) {
        let limit = execution.timeout.unwrap_or_default();
        return fail(
            None,
            format!("the attempt took longer than its limit of {limit:?}: {detail}"),
        );
    }
    match verdict {
        Verdict::GaveWay(_) if token == Some(CancelReason::OperatorRequest) => {
            Decision::write(Outcome::Cancelled, detail)
        }
        Verdict::GaveWay(_) if stopping => Decision::HandBack,
        // Nobody asked it to give way: that is a failure like any other.
        Verdict::GaveWay(_) | Verdict::Retry => fail(None, detail),
        Verdict::RetryIn(delay) => fail(Some(delay), detail),
        Verdict::Discard => Decision::write(Outcome::DeadLettered, detail),
        Verdict::Snooze(after) => {
            Decision::write(Outcome::Snooze { after: bounded(after) }, detail)
        }
        Verdict::Cancel => Decision::write(Outcome::Cancelled, detail),
    }
}

/// One more failure: tried again by the policy, or dead-lettered at its ceiling. `delay` replaces the
/// policy's delay, never its ceiling.
fn failure(
    retry: &RetryPolicy,
    failures: u32,
    lease: LeaseRef,
    delay: Option<Duration>,
) -> Outcome {
    match retry.delay_after(failures.saturating_add(1), lease.job) {
        Some(by_policy) => Outcome::Retry { after: delay.map_or(by_policy, bounded) },
        None => Outcome::DeadLettered,
    }
}

fn bounded(delay: Duration) -> Duration {
    delay.clamp(RetryPolicy::DELAY_MIN, RetryPolicy::DELAY_MAX)
}

/// The most rows of one report.
pub(super) const BATCH_MAX: usize = 500;
/// How long a first outcome waits for company while others still run.
const LINGER: Duration = Duration::from_millis(2);
/// How far two clocks may differ before a refused outcome is worth an alarm.
const CLOCK_SKEW_MAX: Duration = Duration::from_secs(30);
