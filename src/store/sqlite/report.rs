//! How attempts end: one read under the lock, the fence for each row, one write.

use super::batch::{Heap, Records};
use super::latch;
use super::locked::{self, Locked};
use super::work::{Change, Work};
use crate::kernel::state::JobState;
use crate::store::{
    GATES_MAX, Mode, OutcomeRow, RowReport, SettledBy, Settlement, StaleReason, StoreError,
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

/// The settlements of a batch, on their way into one statement.
#[derive(Default)]
struct Writes {
    records: Records,
    heap: Heap,
    count: usize,
}

impl Writes {
    /// Notes one settlement, and changes `job` to what the row will be, so that a second row for the
    /// same job in this batch is judged as if it came later.
    fn add(&mut self, job: &mut Locked, row: &OutcomeRow, now: Timestamp) -> JobState {
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

        let output = row.output.as_ref().filter(|_| state == JobState::Succeeded);
        let output = output.map(|body| self.heap.push(body.as_bytes()));
        let detail = row.detail.as_ref().map(|text| self.heap.push(text.as_bytes()));
        self.records.number(job.seq);
        self.records.number(i64::from(state.code()));
        self.records.number(job.due_at.as_micros());
        self.records.number(i64::from(job.failures));
        self.records.number(i64::from(by.code()));
        self.records.number(row.receipt.sequence.cast_signed());
        self.records.span(output);
        self.records.span(detail);
        self.records.bytes(row.receipt.pump.as_bytes());
        self.count += 1;
        state
    }

    /// Writes all of them by one statement. `substr` of an empty heap is NULL, not empty.
    fn carry_out(&self, conn: &Connection, now: Timestamp) -> Result<(), StoreError> {
        if self.records.is_empty() {
            return Ok(());
        }
        let mut statement = conn.prepare_cached(SETTLE)?;
        let (records, heap) = (self.records.as_blob(), self.heap.as_blob());
        let touched = statement.execute(params![records, heap, now.as_micros()])?;
        locked::expect_touched("a report", touched, self.count)
    }
}

/// All settlements of a batch. `?1` holds records of 216 bytes, ten cells of 20 and the pump of the
/// receipt; `?2` the outputs and details they point into; `?3` is the time.
pub(super) const SETTLE: &str = "WITH RECURSIVE record (at) AS ( \
                 SELECT 0 UNION ALL SELECT at + 216 FROM record WHERE at + 216 < length(?1)) \
             UPDATE main.backwave_jobs AS j \
                SET state = r.state, due_at = r.due_at, failures = r.failures, \
                    owner = NULL, expiry = NULL, \
                    finished_at = CASE WHEN r.state > 2 THEN ?3 END, \
                    settled_attempt = j.attempt, settled_by = r.settled_by, \
                    receipt_pump = r.receipt_pump, receipt_sequence = r.receipt_sequence, \
                    output = CASE WHEN r.output_length >= 0 \
                                  THEN COALESCE(substr(?2, r.output_at + 1, r.output_length), x'') END, \
                    failure_detail = CASE WHEN r.detail_length >= 0 \
                                          THEN COALESCE(CAST(substr(?2, r.detail_at + 1, r.detail_length) AS TEXT), '') \
                                          ELSE j.failure_detail END \
               FROM (SELECT CAST(substr(?1, at + 1, 20) AS INTEGER) AS seq, \
                            CAST(substr(?1, at + 21, 20) AS INTEGER) AS state, \
                            CAST(substr(?1, at + 41, 20) AS INTEGER) AS due_at, \
                            CAST(substr(?1, at + 61, 20) AS INTEGER) AS failures, \
                            CAST(substr(?1, at + 81, 20) AS INTEGER) AS settled_by, \
                            CAST(substr(?1, at + 101, 20) AS INTEGER) AS receipt_sequence, \
                            CAST(substr(?1, at + 121, 20) AS INTEGER) AS output_at, \
                            CAST(substr(?1, at + 141, 20) AS INTEGER) AS output_length, \
                            CAST(substr(?1, at + 161, 20) AS INTEGER) AS detail_at, \
                            CAST(substr(?1, at + 181, 20) AS INTEGER) AS detail_length, \
                            substr(?1, at + 201, 16) AS receipt_pump \
                       FROM record) AS r \
              WHERE j.seq = r.seq";
