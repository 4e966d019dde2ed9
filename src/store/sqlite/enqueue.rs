//! How jobs come in, on a session of ours or inside the caller's own transaction.

use super::fault::{self, SqliteFault};
use super::work::{Change, Work};
use super::{Inner, SqliteStore, births, keyed};
use crate::store::{Admission, EnqueueAnswer, JobRow, StoreError, TransitionBy, check_rows};
use crate::time::micros;
use crate::{JobState, ParentRule, Timestamp};
use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Connection, params};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Up to so many bytes a payload stands in its job's row.
const INLINE_BYTES_MAX: usize = 1024;

/// Adds jobs inside a write transaction.
///
/// # Errors
/// Faults, and a job that is planned as new and is not.
pub(super) fn insert(work: &mut Work<'_>, rows: &[JobRow]) -> Result<EnqueueAnswer, StoreError> {
    let births = match births::plan(work.conn, rows)? {
        Ok(births) => births,
        Err((index, reason)) => return Ok(EnqueueAnswer::Rejected { index, reason }),
    };
    let mut statement = work.conn.prepare_cached(INSERT)?;
    let mut plainly = work.conn.prepare_cached(INSERT_PLAIN)?;
    let mut jobs = Vec::with_capacity(rows.len());
    let mut keyed: BTreeSet<&str> = BTreeSet::new();
    for (index, row) in rows.iter().enumerate() {
        if let Some(held) = births.held(index) {
            jobs.push(held);
            continue;
        }
        let state = births.state(index);
        let inserted = if is_plain(row, state) {
            insert_plain(&mut plainly, row, work.now)?
        } else {
            insert_one(work.conn, &mut statement, row, state, work.now)?
        };
        if inserted {
            work.changed(&birth(row, state));
            keyed.extend(row.concurrency_key.as_ref().map(|_| row.queue.as_str()));
        }
        jobs.push(if inserted { Admission::New } else { Admission::Duplicate });
    }
    births.write_edges(work.conn, rows, &jobs)?;
    keyed::note_queues(work.conn, &keyed)?;
    Ok(EnqueueAnswer::Accepted { jobs, store_time: work.now })
}

const INSERT: &str = "INSERT INTO main.backwave_jobs \
         (id, queue, wire_name, version, state, due_at, created_at, retry, timeout_us, tags, \
          payload_bytes, payload, finished_at, parent_rule, unique_key, concurrency_key, schedule, tick) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18) \
         ON CONFLICT (id) DO NOTHING";

/// The same for a job that has nothing in most columns, as nearly all have: each value that is bound costs.
const INSERT_PLAIN: &str = "INSERT INTO main.backwave_jobs \
         (id, queue, wire_name, version, state, due_at, created_at, payload_bytes, payload) \
     VALUES (?1, ?2, ?3, ?4, 0, ?5, ?6, ?7, ?8) ON CONFLICT (id) DO NOTHING";

fn is_plain(row: &JobRow, state: JobState) -> bool {
    state == JobState::Scheduled
        && row.retry.is_none()
        && row.timeout.is_none()
        && row.tags.is_empty()
        && row.parent_rule == ParentRule::default()
        && row.unique_key.is_none()
        && row.concurrency_key.is_none()
        && row.tick.is_none()
        && row.payload.as_bytes().len() <= INLINE_BYTES_MAX
}

fn insert_plain(
    statement: &mut CachedStatement<'_>,
    row: &JobRow,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let payload = row.payload.as_bytes();
    let inserted = statement.execute(params![
        row.id.as_bytes(),
        row.queue,
        row.wire_name,
        row.version,
        row.due.resolve(now).as_micros(),
        now.as_micros(),
        // The size of memory that is held, so it fits.
        payload.len() as i64,
        payload,
    ])?;
    Ok(inserted == 1)
}

const fn birth(row: &JobRow, state: JobState) -> Change<'_> {
    Change {
        job: row.id,
        queue: row.queue.as_str(),
        from: None,
        to: state,
        attempt: 0,
        by: TransitionBy::Enqueue,
        worker: None,
        detail: None,
    }
}

fn insert_one(
    conn: &Connection,
    statement: &mut CachedStatement<'_>,
    row: &JobRow,
    state: JobState,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let payload = row.payload.as_bytes();
    let inline = payload.len() <= INLINE_BYTES_MAX;
    let tags =
        (!row.tags.is_empty()).then(|| serde_json::Value::from(row.tags.as_slice()).to_string());
    let inserted = statement.execute(params![
        row.id.as_bytes(),
        row.queue,
        row.wire_name,
        row.version,
        state.code(),
        row.due.resolve(now).as_micros(),
        now.as_micros(),
        row.retry.map(|policy| policy.to_stored()),
        row.timeout.map(micros),
        tags,
        // The size of memory that is held, so it fits.
        payload.len() as i64,
        inline.then_some(payload),
        state.is_terminal().then_some(now.as_micros()),
        row.parent_rule.code(),
        row.unique_key,
        row.concurrency_key,
        row.tick.as_ref().map(|tick| tick.schedule.as_str()),
        row.tick.as_ref().map(|tick| tick.at.as_micros()),
    ])?;
    if inserted == 1 && !inline {
        conn.prepare_cached("INSERT INTO main.backwave_payloads (seq, payload) VALUES (?1, ?2)")?
            .execute(params![conn.last_insert_rowid(), payload])?;
    }
    Ok(inserted == 1)
}

/// Checks rows against the bounds, before any lock is taken: the answer when one is refused.
pub(super) fn refuse(rows: &[JobRow], store: &Inner) -> Option<EnqueueAnswer> {
    check_rows(rows, &store.bounds, store.now())
        .err()
        .map(|(index, reason)| EnqueueAnswer::Rejected { index, reason })
}

impl SqliteStore {
    /// Enqueues inside the caller's transaction, on the caller's connection and thread: the jobs exist
    /// if and when the caller commits. The connection must be on this store's file; no pragma of it
    /// matters.
    ///
    /// # Errors
    /// [`SqliteFault::OtherFile`], [`SqliteFault::NotImmediate`], or what the engine says. Nothing of
    /// the call is left in the transaction then.
    pub(crate) fn enqueue_rows_in(
        &self,
        tx: &Connection,
        rows: &[JobRow],
    ) -> Result<EnqueueAnswer, StoreError> {
        self.require_same_file(tx)?;
        if let Some(rejected) = refuse(rows, &self.0) {
            return Ok(rejected);
        }
        // One call is all or nothing, also in a transaction that the caller goes on with.
        tx.execute_batch("SAVEPOINT backwave_enqueue")?;
        let inserted = self.insert_in(tx, rows);
        if inserted.is_err() {
            // Where the engine has rolled back everything by itself there is no savepoint any more.
            let _ = tx.execute_batch("ROLLBACK TO backwave_enqueue");
        }
        let released = tx.execute_batch("RELEASE backwave_enqueue");
        let answer = inserted.map_err(|error| tell_begin_immediate(error).counted())?;
        released?;
        Ok(answer)
    }

    fn insert_in(&self, tx: &Connection, rows: &[JobRow]) -> Result<EnqueueAnswer, StoreError> {
        let mut work = Work::begin(tx, &self.0)?;
        let answer = insert(&mut work, rows)?;
        // What is born has nobody who waits for it: there is nothing to wake.
        work.finish()?;
        Ok(answer)
    }

    fn require_same_file(&self, tx: &Connection) -> Result<(), StoreError> {
        let found = main_file(tx)?;
        let expected = self.path();
        // The engine resolves names too, but need not do it exactly as the standard library.
        if found == expected || std::fs::canonicalize(&found).is_ok_and(|found| found == expected) {
            return Ok(());
        }
        Err(SqliteFault::OtherFile { expected: expected.to_owned(), found }.into())
    }
}

/// The main file of a connection.
fn main_file(conn: &Connection) -> Result<PathBuf, StoreError> {
    let mut statement =
        conn.prepare_cached("SELECT file FROM pragma_database_list WHERE name = 'main'")?;
    let file = statement.query_row([], |row| {
        Ok(match row.get_ref(0)? {
            ValueRef::Text(bytes) => path_of(bytes),
            _ => PathBuf::new(),
        })
    })?;
    Ok(file)
}

#[cfg(unix)]
fn path_of(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(bytes)).to_owned()
}

#[cfg(not(unix))]
fn path_of(bytes: &[u8]) -> PathBuf {
    Path::new(&*String::from_utf8_lossy(bytes)).to_owned()
}

/// A transaction that began IMMEDIATE holds the write lock and cannot meet BUSY. One that began as a
/// reader meets it at its first write: when somebody else has committed since, at once and for good,
/// whatever the busy timeout.
fn tell_begin_immediate(error: StoreError) -> StoreError {
    let code = error.code().map(ToOwned::to_owned);
    match error.downcast_ref::<rusqlite::Error>() {
        Some(rusqlite::Error::SqliteFailure(cause, message)) if is_busy(*cause) => {
            let source = rusqlite::Error::SqliteFailure(*cause, message.clone());
            let told = StoreError::new(SqliteFault::NotImmediate(source));
            match code {
                Some(code) => told.with_code(code),
                None => told,
            }
        }
        _ => error,
    }
}

fn is_busy(cause: rusqlite::ffi::Error) -> bool {
    fault::is_busy(&rusqlite::Error::SqliteFailure(cause, None))
}
