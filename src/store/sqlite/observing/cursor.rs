//! Where an observer stands, and who holds its cursor.

use crate::invariant::InvariantTrigger;
use crate::store::sqlite::locked::expect_touched;
use crate::store::sqlite::row;
use crate::store::{
    CursorStale, Failing, Observe, ObserverRecord, ObserverStart, Resolve, StoreError,
};
use crate::{Timestamp, WorkerId};
use rusqlite::{Connection, OptionalExtension, Row, params};

/// An observer's row, read inside the transaction that may change it.
#[derive(Debug, Clone)]
pub(super) struct Cursor {
    registered_at: Timestamp,
    /// Up to here every transition is delivered, parked, or nothing that it is told of.
    pub(super) passed: u64,
    worker: Option<WorkerId>,
    pub(super) epoch: u64,
    expiry: Option<Timestamp>,
    /// Its last holder has given it up.
    is_free: bool,
    pub(super) failing: Option<Failing>,
}

impl Cursor {
    /// Reads an observer's row.
    ///
    /// # Errors
    /// Faults.
    pub(super) fn read(conn: &Connection, observer: &str) -> Result<Option<Self>, StoreError> {
        let mut statement = conn.prepare_cached(READ)?;
        let found = statement.query_row([observer], |row| Ok(Self::decode(row))).optional()?;
        found.transpose()
    }

    /// The same of the observer that asks, which is made where it is not known.
    ///
    /// # Errors
    /// Faults, and a row just made that is not there.
    pub(super) fn register(
        conn: &Connection,
        ask: &Observe<'_>,
        now: Timestamp,
    ) -> Result<Self, StoreError> {
        if let Some(known) = Self::read(conn, ask.observer)? {
            return Ok(known);
        }
        let is_oldest = ask.start == ObserverStart::Oldest;
        let mut statement = conn.prepare_cached(REGISTER)?;
        statement.execute(params![ask.observer, now.as_micros(), is_oldest])?;
        Self::read(conn, ask.observer)?.ok_or_else(|| {
            let message = "an observer's cursor is not there that this transaction has made";
            StoreError::found(InvariantTrigger::GuaranteedRowAbsent, message)
        })
    }

    fn decode(row: &Row<'_>) -> Result<Self, StoreError> {
        let failing = match row.get::<_, Option<i64>>(6)? {
            None => None,
            Some(_) => Some(Failing {
                position: row::unsigned(row, 6)?,
                failures: row.get(7)?,
                due_at: row::time(row, 8)?,
            }),
        };
        Ok(Self {
            registered_at: row::time(row, 0)?,
            passed: row::unsigned(row, 1)?,
            worker: row::worker(row, 2)?,
            epoch: row::unsigned(row, 3)?,
            expiry: row::time_or_null(row, 4)?,
            is_free: row.get(5)?,
            failing,
        })
    }

    /// Until when somebody else holds it.
    pub(super) fn held_elsewhere(&self, asker: WorkerId, now: Timestamp) -> Option<Timestamp> {
        let expiry = self.expiry.filter(|expiry| *expiry > now && !self.is_free);
        expiry.filter(|_| self.worker != Some(asker))
    }

    /// Held by `worker` until `expiry`, anew or still.
    pub(super) fn take(&mut self, worker: WorkerId, expiry: Timestamp) {
        if self.is_free || self.worker != Some(worker) {
            self.epoch += 1;
        }
        self.worker = Some(worker);
        self.expiry = Some(expiry);
        self.is_free = false;
    }

    /// Why that hold is not a live one, if it is none.
    pub(super) fn stale(
        &self,
        worker: WorkerId,
        epoch: u64,
        now: Timestamp,
    ) -> Option<CursorStale> {
        if (self.worker, self.epoch) != (Some(worker), epoch) {
            return Some(CursorStale::Taken);
        }
        let is_live = !self.is_free && self.expiry.is_some_and(|expiry| expiry > now);
        (!is_live).then_some(CursorStale::Lapsed)
    }

    /// Given up.
    pub(super) fn release(&mut self, now: Timestamp) {
        self.is_free = true;
        self.expiry = Some(now);
    }

    /// A cursor beyond the log stands in another log: the file was put together of two.
    pub(super) fn reset_if_beyond(&mut self, last: u64) -> Option<String> {
        if self.passed <= last {
            return None;
        }
        let reason =
            format!("the cursor stands at {}, and the log has never been so long", self.passed);
        self.passed = 0;
        self.failing = None;
        Some(reason)
    }

    /// Writes it.
    ///
    /// # Errors
    /// Faults, and a write that did not touch the row it was meant for.
    pub(super) fn write(&self, conn: &Connection, observer: &str) -> Result<(), StoreError> {
        let touched = conn.prepare_cached(WRITE)?.execute(params![
            observer,
            stored(self.passed),
            self.worker.map(WorkerId::to_bytes),
            stored(self.epoch),
            self.expiry.map(Timestamp::as_micros),
            self.is_free,
            self.failing.map(|failing| stored(failing.position)),
            self.failing.map(|failing| failing.failures),
            self.failing.map(|failing| failing.due_at.as_micros()),
        ])?;
        expect_touched("the write of a cursor", touched, 1)
    }
}

/// The cursor as a resolution leaves it, or why it is not written.
pub(super) fn resolved(
    cursor: Option<Cursor>,
    resolve: &Resolve<'_>,
    now: Timestamp,
) -> Result<Cursor, CursorStale> {
    let mut cursor = cursor.ok_or(CursorStale::Gone)?;
    if let Some(reason) = cursor.stale(resolve.worker, resolve.epoch, now) {
        return Err(reason);
    }
    let until = resolve.until.unwrap_or(cursor.passed);
    if resolve.round != 0 || until < cursor.passed {
        return Err(CursorStale::Regressed);
    }
    cursor.passed = until;
    cursor.expiry = Some(now + resolve.lease);
    let failing = resolve.failing.map(|(position, failures, due_in)| Failing {
        position,
        failures,
        due_at: now + due_in,
    });
    cursor.failing = failing.or(cursor.failing).filter(|failing| failing.position > until);
    Ok(cursor)
}

/// Every observer, ordered by name.
///
/// # Errors
/// Faults.
pub(super) fn records(conn: &Connection) -> Result<Vec<ObserverRecord>, StoreError> {
    let mut statement = conn.prepare_cached(RECORDS)?;
    let mut rows = statement.query([])?;
    let mut records = Vec::new();
    while let Some(row) = rows.next()? {
        let cursor = Cursor::decode(row)?;
        records.push(ObserverRecord {
            worker: cursor.worker,
            epoch: cursor.epoch,
            expiry: cursor.expiry,
            behind_since: row::time_or_null(row, 10)?,
            parked: row::unsigned(row, 11)?,
            failing: cursor.failing,
            ..ObserverRecord::new(row.get(9)?, cursor.registered_at)
        });
    }
    Ok(records)
}

/// As the file keeps it: nothing that is ever met is larger.
pub(super) fn stored(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

macro_rules! cursor_columns {
    () => {
        "o.registered_at, o.passed, o.worker, o.epoch, o.expiry, o.is_free, o.failing_position, \
         o.failing_failures, o.failing_due_at"
    };
}

const READ: &str = concat!(
    "SELECT ",
    cursor_columns!(),
    " FROM main.backwave_observers AS o WHERE o.observer = ?1"
);

/// `?3` says that it begins with the oldest that is kept, rather than now.
const REGISTER: &str = "INSERT INTO main.backwave_observers (observer, registered_at, passed) \
         SELECT ?1, ?2, CASE WHEN ?3 THEN 0 \
                             ELSE coalesce((SELECT max(position) FROM main.backwave_transitions), 0) END";

const WRITE: &str = "UPDATE main.backwave_observers \
            SET passed = ?2, worker = ?3, epoch = ?4, expiry = ?5, is_free = ?6, \
                failing_position = ?7, failing_failures = ?8, failing_due_at = ?9 \
          WHERE observer = ?1";

pub(in crate::store::sqlite) const RECORDS: &str = concat!(
    "SELECT ",
    cursor_columns!(),
    ", o.observer, \
         (SELECT t.at FROM main.backwave_transitions AS t WHERE t.position > o.passed \
           ORDER BY t.position LIMIT 1), \
         (SELECT count(*) FROM main.backwave_parked AS p WHERE p.observer = o.observer) \
       FROM main.backwave_observers AS o ORDER BY o.observer"
);
