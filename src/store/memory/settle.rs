//! Keeping and ending leases.

use super::draft::{Draft, Plan};
use super::state::{Change, Life, Moment, State, Trouble};
use crate::store::{
    LeaseRef, Mode, Outcome, OutcomeRow, Renewed, RowReport, SettledBy, Settlement, StaleReason,
    TransitionBy, judge,
};
use crate::{JobState, Timestamp, WorkerId};
use std::time::Duration;

/// A plan, and the answer per row.
pub(super) type Planned<A> = Result<(Plan, Vec<A>), Trouble>;

/// Decides what becomes of the rows of a report.
pub(super) fn report(state: &State, rows: &[OutcomeRow], moment: Moment) -> Planned<RowReport> {
    let mut draft = Draft::new(state, moment);
    let mut answers = Vec::with_capacity(rows.len());
    for row in rows {
        answers.push(report_row(&mut draft, row)?);
    }
    Ok((draft.finish()?, answers))
}

fn report_row(draft: &mut Draft<'_>, row: &OutcomeRow) -> Result<RowReport, Trouble> {
    let Some((slot, life)) = draft.life(row.job) else {
        return Ok(RowReport::Stale(StaleReason::Gone));
    };
    if let Err(refusal) = judge(&life.view(), row, draft.moment.at) {
        return Ok(refusal.answer(life.state));
    }
    let change = ended(life, row, draft.moment.at);
    let state = change.life.state;
    draft.write(slot, change)?;
    Ok(RowReport::Applied(state))
}

fn ended(life: Life, row: &OutcomeRow, now: Timestamp) -> Change {
    let state = row.outcome.state(life.cancel_requested);
    let (settler, by) = match row.mode {
        Mode::Holder => (SettledBy::Holder, TransitionBy::Holder),
        Mode::Reap => (SettledBy::Reaper, TransitionBy::Reaper),
    };
    let settled = Settlement { attempt: row.attempt, by: settler, receipt: Some(row.receipt) };
    let failures = life.failures.saturating_add(u32::from(row.outcome.is_failure()));
    let mut next = Life { failures, ..released(life, state, settled, now) };
    if state == JobState::Scheduled {
        next.due_at = now + row.outcome.delay().unwrap_or(Duration::ZERO);
    }
    let output = row.output.clone().filter(|_| row.outcome == Outcome::Succeeded);
    Change { life: next, by, output, detail: row.detail.clone() }
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
    moment: Moment,
) -> Planned<Renewed> {
    let mut draft = Draft::new(state, moment);
    let mut answers = Vec::with_capacity(rows.len());
    let expiry = moment.at + lease;
    for row in rows {
        let Some((slot, life)) = draft.held(worker, *row) else {
            answers.push(Renewed::Lost);
            continue;
        };
        let next = Life { hold: Some((worker, expiry)), ..life };
        draft.write(slot, Change::to(next, TransitionBy::Holder))?;
        answers.push(Renewed::Renewed { expiry, cancel_requested: life.cancel_requested });
    }
    Ok((draft.finish()?, answers))
}

/// Decides which leases are given back.
pub(super) fn hand_back(
    state: &State,
    worker: WorkerId,
    rows: &[LeaseRef],
    moment: Moment,
) -> Planned<bool> {
    let mut draft = Draft::new(state, moment);
    let mut answers = Vec::with_capacity(rows.len());
    for row in rows {
        let held = draft.held(worker, *row);
        answers.push(held.is_some());
        if let Some((slot, life)) = held {
            let next = unfinished(life, SettledBy::HandBack, moment.at);
            draft.write(slot, Change::to(next, TransitionBy::HandBack))?;
        }
    }
    Ok((draft.finish()?, answers))
}

/// The life of a job whose attempt is over without having ended: it waits again, or is Cancelled where
/// that was asked for.
pub(super) fn unfinished(life: Life, by: SettledBy, now: Timestamp) -> Life {
    let state = if life.cancel_requested { JobState::Cancelled } else { JobState::Scheduled };
    let settled = Settlement { attempt: life.attempt, by, receipt: None };
    let mut next = released(life, state, settled, now);
    if state == JobState::Scheduled {
        // A due time that has passed stays, so that the job keeps its place in the queue.
        next.due_at = life.due_at.min(now);
    }
    next
}
