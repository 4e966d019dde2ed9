//! How attempts end: one read under the lock, the fence for each row, one write.

use super::latch;
use super::locked::{self, Locked};
use super::work::{Change, Work};
use crate::kernel::state::JobState;
use crate::store::{
    Body, GATES_MAX, Mode, OutcomeRow, RowReport, SettledBy, Settlement, StaleReason, StoreError,
    TransitionBy, judge,
};
use crate::{JobId, Timestamp};
use rusqlite::{Connection, params};

/// Settles attempts inside the caller's write transaction; one entry per row, in order.
///
/// # Errors
/// Faults, and a write that did not touch the rows it was meant for.
pub(super) fn settle(
    work: &mut Work<'_>,
    rows: &[OutcomeRow],
) -> Result<Vec<RowReport>, StoreError> {
    let now = work.now;
    let mut jobs = locked::read(work.conn, rows.iter().map(|row| row.job))?;
    let mut writes = Writes::default();
    let mut ended = Vec::new();
    let mut reports = Vec::with_capacity(rows.len());
    for row in rows {
        reports.push(match jobs.get_mut(&row.job) {
            None => RowReport::Stale(StaleReason::Gone),
            Some(job) => match judge(&job.view, row, now) {
                Ok(()) => {
                    let state = writes.add(job, row, now);
                    note(work, job, row, state, &mut ended);
                    RowReport::Applied(state)
                }
                Err(refusal) => refusal.answer(job.view.state),
            },
        });
    }
    writes.carry_out(work.conn, now)?;
    latch::resolve(work, ended, GATES_MAX)?;
    Ok(reports)
}

/// Notes what one settlement changes beside its row.
fn note(
    work: &mut Work<'_>,
    job: &Locked,
    row: &OutcomeRow,
    state: JobState,
    ended: &mut Vec<(JobId, JobState)>,
) {
    if state.is_terminal() {
        ended.push((row.job, state));
    }
    work.changed(&Change {
        job: row.job,
        queue: &job.queue,
        from: Some(JobState::Leased),
        to: state,
        attempt: row.attempt,
        by: match row.mode {
            Mode::Holder => TransitionBy::Holder,
            Mode::Reap => TransitionBy::Reaper,
        },
        worker: Some(row.owner),
        detail: row.detail.as_deref(),
    });
}

/// The settlements of a batch, on their way to their rows.
#[derive(Default)]
struct Writes<'a>(Vec<Write<'a>>);

/// One of them.
struct Write<'a> {
    seq: i64,
    state: JobState,
    due_at: Timestamp,
    failures: u32,
    by: SettledBy,
    row: &'a OutcomeRow,
}

impl<'a> Writes<'a> {
    /// Notes one settlement, and changes `job` to what the row will be, so that a second row for the
    /// same job in this batch is judged as if it came later.
    fn add(&mut self, job: &mut Locked, row: &'a OutcomeRow, now: Timestamp) -> JobState {
        let state = row.outcome.state(job.cancel_requested);
        let by = match row.mode {
            Mode::Holder => SettledBy::Holder,
            Mode::Reap => SettledBy::Reaper,
        };
        if let (JobState::Scheduled, Some(delay)) = (state, row.outcome.delay()) {
            job.due_at = now + delay;
        }
        job.failures = job.failures.saturating_add(u32::from(row.outcome.is_failure()));
        job.view.state = state;
        job.view.owner = None;
        job.view.expiry = None;
        job.view.settled =
            Some(Settlement { attempt: row.attempt, by, receipt: Some(row.receipt) });
        let (due_at, failures) = (job.due_at, job.failures);
        self.0.push(Write { seq: job.seq, state, due_at, failures, by, row });
        state
    }

    /// Writes them one by one, each by its row's address. There is no way between us and the engine that a
    /// statement for many would save, and what that unpacks costs more than a step of a prepared one.
    fn carry_out(&self, conn: &Connection, now: Timestamp) -> Result<(), StoreError> {
        if self.0.is_empty() {
            return Ok(());
        }
        let mut statement = conn.prepare_cached(SETTLE)?;
        let mut touched = 0;
        for Write { seq, state, due_at, failures, by, row } in &self.0 {
            let output = row.output.as_ref().filter(|_| *state == JobState::Succeeded);
            touched += statement.execute(params![
                seq,
                state.code(),
                due_at.as_micros(),
                failures,
                state.is_terminal().then(|| now.as_micros()),
                by.code(),
                row.receipt.pump.as_bytes(),
                row.receipt.sequence.cast_signed(),
                output.map(Body::as_bytes),
                row.detail,
            ])?;
        }
        locked::expect_touched("a report", touched, self.0.len())
    }
}

pub(super) const SETTLE: &str = "UPDATE main.backwave_jobs \
                SET state = ?2, due_at = ?3, failures = ?4, owner = NULL, expiry = NULL, \
                    finished_at = ?5, settled_attempt = attempt, settled_by = ?6, \
                    receipt_pump = ?7, receipt_sequence = ?8, output = ?9, \
                    failure_detail = COALESCE(?10, failure_detail) \
              WHERE seq = ?1";
