//! Keeping and ending leases, and what an operator does to a job.
//!
//! Everything here decides over a [`Draft`]: the state as it is, with what the rows before have
//! already decided laid over it. So a job that is named twice in one call is judged the second time as
//! the first left it.

use super::state::{Change, Life, Slot, State};
use crate::store::{
    CancelAnswer, LeaseRef, Mode, Outcome, OutcomeRow, Renewed, RequeueAnswer, RowReport,
    SettledBy, Settlement, StaleReason, judge,
};
use crate::{JobId, JobState, Timestamp, WorkerId};
use std::collections::BTreeMap;
use std::time::Duration;

/// Changes to write, in this order.
pub(super) type Changes = Vec<(Slot, Change)>;

struct Draft<'a> {
    state: &'a State,
    changes: Changes,
    /// The last change of each job.
    latest: BTreeMap<Slot, Life>,
}

impl<'a> Draft<'a> {
    fn new(state: &'a State, rows: usize) -> Self {
        Self { state, changes: Vec::with_capacity(rows), latest: BTreeMap::new() }
    }

    fn life(&self, id: JobId) -> Option<(Slot, Life)> {
        let (slot, life) = self.state.life(id)?;
        Some((slot, self.latest.get(&slot).copied().unwrap_or(life)))
    }

    fn held(&self, worker: WorkerId, row: LeaseRef, now: Timestamp) -> Option<(Slot, Life)> {
        self.life(row.job).filter(|(_, life)| life.view().is_held(worker, row, now))
    }

    fn write(&mut self, slot: Slot, change: Change) {
        self.latest.insert(slot, change.life);
        self.changes.push((slot, change));
    }
}

/// Decides what becomes of the rows of a report.
pub(super) fn report(
    state: &State,
    rows: &[OutcomeRow],
    now: Timestamp,
) -> (Changes, Vec<RowReport>) {
    let mut draft = Draft::new(state, rows.len());
    let answers = rows.iter().map(|row| {
        let Some((slot, life)) = draft.life(row.job) else {
            return RowReport::Stale(StaleReason::Gone);
        };
        if let Err(refusal) = judge(&life.view(), row, now) {
            return refusal.answer(life.state);
        }
        let change = ended(life, row, now);
        let state = change.life.state;
        draft.write(slot, change);
        RowReport::Applied(state)
    });
    let answers = answers.collect();
    (draft.changes, answers)
}

fn ended(life: Life, row: &OutcomeRow, now: Timestamp) -> Change {
    let state = row.outcome.state(life.cancel_requested);
    let by = match row.mode {
        Mode::Holder => SettledBy::Holder,
        Mode::Reap => SettledBy::Reaper,
    };
    let settled = Settlement { attempt: row.attempt, by, receipt: Some(row.receipt) };
    let failures = life.failures.saturating_add(u32::from(row.outcome.is_failure()));
    let mut next = Life { failures, ..released(life, state, settled, now) };
    if state == JobState::Scheduled {
        next.due_at = now + row.outcome.delay().unwrap_or(Duration::ZERO);
    }
    let output = row.output.clone().filter(|_| row.outcome == Outcome::Succeeded);
    Change { life: next, output, detail: row.detail.clone() }
}

/// The life of a job whose attempt ended in `state`.
fn released(life: Life, state: JobState, settled: Settlement, now: Timestamp) -> Life {
    Life {
        state,
        hold: None,
        settled: Some(settled),
        finished_at: state.is_terminal().then_some(now),
        ..life
    }
}

/// Decides which leases are prolonged.
pub(super) fn renew(
    state: &State,
    worker: WorkerId,
    rows: &[LeaseRef],
    lease: Duration,
    now: Timestamp,
) -> (Changes, Vec<Renewed>) {
    let mut draft = Draft::new(state, rows.len());
    let expiry = now + lease;
    let answers = rows.iter().map(|row| {
        let Some((slot, life)) = draft.held(worker, *row, now) else {
            return Renewed::Lost;
        };
        let next = Life { hold: Some((worker, expiry)), ..life };
        draft.write(slot, Change::to(next));
        Renewed::Renewed { expiry, cancel_requested: life.cancel_requested }
    });
    let answers = answers.collect();
    (draft.changes, answers)
}

/// Decides which leases are given back.
pub(super) fn hand_back(
    state: &State,
    worker: WorkerId,
    rows: &[LeaseRef],
    now: Timestamp,
) -> (Changes, Vec<bool>) {
    let mut draft = Draft::new(state, rows.len());
    let answers = rows.iter().map(|row| {
        let Some((slot, life)) = draft.held(worker, *row, now) else {
            return false;
        };
        let state = if life.cancel_requested { JobState::Cancelled } else { JobState::Scheduled };
        let settled = Settlement { attempt: row.attempt, by: SettledBy::HandBack, receipt: None };
        let mut next = released(life, state, settled, now);
        if state == JobState::Scheduled {
            // A due time that has passed stays, so that the job keeps its place in the queue.
            next.due_at = life.due_at.min(now);
        }
        draft.write(slot, Change::to(next));
        true
    });
    let answers = answers.collect();
    (draft.changes, answers)
}

/// Decides what a cancel request does.
pub(super) fn request_cancel(
    state: &State,
    job: JobId,
    now: Timestamp,
) -> (Option<(Slot, Change)>, CancelAnswer) {
    let Some((slot, life)) = state.life(job) else {
        return (None, CancelAnswer::NotFound);
    };
    match life.state {
        JobState::Scheduled | JobState::AwaitingParent => {
            let next = Life { state: JobState::Cancelled, finished_at: Some(now), ..life };
            (Some((slot, Change::to(next))), CancelAnswer::Cancelled)
        }
        JobState::Leased => {
            let next = Life { cancel_requested: true, ..life };
            (Some((slot, Change::to(next))), CancelAnswer::Requested)
        }
        ended => (None, CancelAnswer::Ended(ended)),
    }
}

/// Decides what a requeue does.
pub(super) fn requeue(
    state: &State,
    job: JobId,
    now: Timestamp,
) -> (Option<(Slot, Change)>, RequeueAnswer) {
    let Some((slot, life)) = state.life(job) else {
        return (None, RequeueAnswer::NotFound);
    };
    if !matches!(life.state, JobState::DeadLettered | JobState::Quarantined) {
        return (None, RequeueAnswer::IllegalState(life.state));
    }
    let next = Life {
        state: JobState::Scheduled,
        due_at: now,
        failures: 0,
        finished_at: None,
        cancel_requested: false,
        ..life
    };
    (Some((slot, Change::to(next))), RequeueAnswer::Requeued)
}
