//! Jobs as they stand under the write lock: what the fence judges and what a write starts from.

use super::batch;
use super::row;
use crate::invariant::InvariantTrigger;
use crate::store::{LeaseView, Receipt, Settlement, StoreError};
use crate::{JobId, Timestamp, WorkerId};
use rusqlite::{Connection, Row, params};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

/// A job's row, read inside the transaction that may change it.
#[derive(Debug, Clone)]
pub(super) struct Locked {
    /// The row's address.
    pub(super) seq: i64,
    /// Its queue, shared by the rows of one read.
    pub(super) queue: Rc<str>,
    /// What the fence looks at.
    pub(super) view: LeaseView,
    pub(super) due_at: Timestamp,
    pub(super) failures: u32,
    pub(super) cancel_requested: bool,
}

/// Texts of which many rows have the same, kept once each.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeSet<Rc<str>>);

impl Names {
    pub(super) fn share(&mut self, row: &Row<'_>, column: usize) -> Result<Rc<str>, StoreError> {
        let text = row.get_ref(column)?.as_str().map_err(rusqlite::Error::from)?;
        if let Some(name) = self.0.get(text) {
            return Ok(Rc::clone(name));
        }
        let name: Rc<str> = Rc::from(text);
        self.0.insert(Rc::clone(&name));
        Ok(name)
    }
}

/// Reads the jobs of a batch by one statement; those that do not exist are left out.
///
/// # Errors
/// Faults, and a stored number that is no member of its enum.
pub(super) fn read(
    conn: &Connection,
    jobs: impl ExactSizeIterator<Item = JobId>,
) -> Result<HashMap<JobId, Locked>, StoreError> {
    let count = jobs.len();
    if count == 0 {
        return Ok(HashMap::new());
    }
    let mut statement = conn.prepare_cached(READ)?;
    let mut rows = statement.query(params![batch::ids(jobs), i64::try_from(count).unwrap_or(0)])?;
    let mut locked = HashMap::with_capacity(count);
    let mut queues = Names::default();
    while let Some(row) = rows.next()? {
        let id = row::job_id(row, 0)?;
        locked.insert(id, decode(row, id, &mut queues)?);
    }
    Ok(locked)
}

/// Reads one job.
///
/// # Errors
/// As [`read`].
pub(super) fn read_one(conn: &Connection, job: JobId) -> Result<Option<Locked>, StoreError> {
    Ok(read(conn, std::iter::once(job))?.remove(&job))
}

fn decode(row: &Row<'_>, id: JobId, queues: &mut Names) -> Result<Locked, StoreError> {
    Ok(Locked {
        queue: queues.share(row, 13)?,
        seq: row.get(1)?,
        view: LeaseView {
            state: row::state(row, 2, id)?,
            attempt: row.get(3)?,
            owner: row::worker(row, 4)?,
            expiry: row::time_or_null(row, 5)?,
            settled: settlement(row, id)?,
        },
        due_at: row::time(row, 6)?,
        failures: row.get(7)?,
        cancel_requested: row.get(8)?,
    })
}

fn settlement(row: &Row<'_>, id: JobId) -> Result<Option<Settlement>, StoreError> {
    let Some(by) = row::settled_by(row, 9, id)? else {
        return Ok(None);
    };
    let receipt = match row.get::<_, Option<[u8; 16]>>(11)? {
        // The sequence is a u64 kept in the bits of an i64.
        Some(pump) => Some(Receipt {
            pump: WorkerId::from_bytes(pump),
            sequence: row.get::<_, i64>(12)?.cast_unsigned(),
        }),
        None => None,
    };
    Ok(Some(Settlement { attempt: row.get(10)?, by, receipt }))
}

/// Asserts that a write to rows under the lock touched exactly them.
///
/// # Errors
/// `UnexpectedAffectedRowCount`.
pub(super) fn expect_touched(
    what: &str,
    touched: usize,
    expected: usize,
) -> Result<(), StoreError> {
    if touched == expected {
        return Ok(());
    }
    let message = format!("{what} touched {touched} rows where {expected} were locked for it");
    Err(StoreError::found(InvariantTrigger::UnexpectedAffectedRowCount, message))
}

/// The rows of a batch of ids: `?1` holds `?2` of them, 16 bytes each.
pub(super) const READ: &str = "WITH RECURSIVE place (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM place WHERE i + 1 < ?2) \
         SELECT j.id, j.seq, j.state, j.attempt, j.owner, j.expiry, j.due_at, j.failures, \
                j.cancel_requested, j.settled_by, j.settled_attempt, j.receipt_pump, j.receipt_sequence, \
                j.queue \
           FROM place CROSS JOIN main.backwave_jobs AS j ON j.id = substr(?1, place.i * 16 + 1, 16)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_may_touch_neither_more_nor_fewer_rows_than_were_locked() {
        assert!(expect_touched("a write", 2, 2).is_ok());
        for touched in [1, 3] {
            let error =
                expect_touched("a write", touched, 2).expect_err("another number").counted();
            assert_eq!(error.trigger(), Some(InvariantTrigger::UnexpectedAffectedRowCount));
        }
    }
}
