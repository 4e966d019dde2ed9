//! The rows of schedules: read, written, looked for.

use crate::invariant::InvariantTrigger;
use crate::store::sqlite::locked::expect_touched;
use crate::store::sqlite::row;
use crate::store::{ScheduleRecord, ScheduleRow, SkipReason, StoreError};
use crate::{JobId, Timestamp};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};

/// Reads one schedule.
///
/// # Errors
/// Faults, and a stored number that is no member of its enum.
pub(super) fn by_name(conn: &Connection, name: &str) -> Result<Option<ScheduleRecord>, StoreError> {
    let mut statement = conn.prepare_cached(BY_NAME)?;
    let mut rows = statement.query([name])?;
    rows.next()?.map(decode).transpose()
}

/// Whose a schedule is, if there is one of that name.
pub(super) fn owner(conn: &Connection, name: &str) -> Result<Option<String>, StoreError> {
    let sql = "SELECT owner FROM main.backwave_schedules WHERE name = ?1";
    Ok(conn.prepare_cached(sql)?.query_row([name], |row| row.get(0)).optional()?)
}

/// The names of an owner's schedules, in order.
pub(super) fn names_of(conn: &Connection, owner: &str) -> Result<Vec<String>, StoreError> {
    let sql = "SELECT name FROM main.backwave_schedules WHERE owner = ?1 ORDER BY name";
    let mut statement = conn.prepare_cached(sql)?;
    let names = statement.query_map([owner], |row| row.get(0))?;
    Ok(names.collect::<Result<_, _>>()?)
}

/// Reads every schedule, ordered by name.
///
/// # Errors
/// As [`by_name`].
pub(super) fn all(conn: &Connection) -> Result<Vec<ScheduleRecord>, StoreError> {
    collect(conn.prepare_cached(ALL)?, [])
}

/// Reads those to be looked at by `now`, the longest due first, at most `max`; and when the next of the others is.
///
/// # Errors
/// As [`by_name`].
pub(super) fn due(
    conn: &Connection,
    max: u32,
    now: Timestamp,
) -> Result<(Vec<ScheduleRecord>, Option<Timestamp>), StoreError> {
    let mut due = collect(conn.prepare_cached(DUE)?, params![now.as_micros(), max + 1])?;
    if due.len() as u64 > u64::from(max) {
        let next = due.pop();
        return Ok((due, next.and_then(|next| next.look_at)));
    }
    let next: Option<i64> =
        conn.prepare_cached(NEXT)?.query_row([now.as_micros()], |row| row.get(0))?;
    Ok((due, next.map(Timestamp::from_micros)))
}

fn collect(
    mut statement: CachedStatement<'_>,
    values: impl rusqlite::Params,
) -> Result<Vec<ScheduleRecord>, StoreError> {
    let mut rows = statement.query(values)?;
    let mut records = Vec::new();
    while let Some(row) = rows.next()? {
        records.push(decode(row)?);
    }
    Ok(records)
}

fn decode(row: &Row<'_>) -> Result<ScheduleRecord, StoreError> {
    let declared = ScheduleRow::new(row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
    let mut record = ScheduleRecord::new(declared, row::time(row, 16)?);
    record.revision = row::unsigned(row, 4)?;
    record.is_paused = row.get(5)?;
    record.cursor = row::time(row, 6)?;
    record.look_at = row::time_or_null(row, 7)?;
    record.next_tick = row::time_or_null(row, 8)?;
    record.last_tick = row::time_or_null(row, 9)?;
    record.last_job = row.get::<_, Option<[u8; 16]>>(10)?.map(JobId::from_bytes);
    record.skipped = row::unsigned(row, 11)?;
    let reason =
        row.get::<_, Option<i64>>(13)?.map(|code| skip_reason(code, &record)).transpose()?;
    record.last_skip = row::time_or_null(row, 12)?.zip(reason);
    record.error = row.get::<_, Option<String>>(14)?.zip(row::time_or_null(row, 15)?);
    Ok(record)
}

fn skip_reason(code: i64, record: &ScheduleRecord) -> Result<SkipReason, StoreError> {
    SkipReason::from_code(code).ok_or_else(|| {
        let name = &record.row.name;
        let message = format!("why schedule {name:?} skipped its last tick is stored as {code}");
        StoreError::found(InvariantTrigger::UndefinedEnumValueStored, message)
    })
}

/// Adds a schedule that was not there.
///
/// # Errors
/// Faults.
pub(super) fn insert(conn: &Connection, record: &ScheduleRecord) -> Result<(), StoreError> {
    let touched = write(conn, INSERT, record)?;
    expect_touched("a new schedule", touched, 1)
}

/// Writes a schedule that was read under the same lock.
///
/// # Errors
/// Faults, and a write that did not touch the row it was meant for.
pub(super) fn update(conn: &Connection, record: &ScheduleRecord) -> Result<(), StoreError> {
    let touched = write(conn, UPDATE, record)?;
    expect_touched("a change of a schedule", touched, 1)
}

/// Takes a schedule away that was read under the same lock.
///
/// # Errors
/// As [`update`].
pub(super) fn remove(conn: &Connection, name: &str) -> Result<(), StoreError> {
    let sql = "DELETE FROM main.backwave_schedules WHERE name = ?1";
    expect_touched("a removal of a schedule", conn.prepare_cached(sql)?.execute([name])?, 1)
}

fn write(conn: &Connection, sql: &str, record: &ScheduleRecord) -> Result<usize, StoreError> {
    let micros = |time: Option<Timestamp>| time.map(Timestamp::as_micros);
    let (skip_tick, skip_reason) = record.last_skip.unzip();
    let (error, error_since) = match &record.error {
        Some((text, since)) => (Some(text), Some(*since)),
        None => (None, None),
    };
    Ok(conn.prepare_cached(sql)?.execute(params![
        record.row.name,
        record.row.owner,
        record.row.timing,
        record.row.definition,
        stored(record.revision),
        record.is_paused,
        record.cursor.as_micros(),
        micros(record.look_at),
        micros(record.next_tick),
        micros(record.last_tick),
        record.last_job.map(JobId::to_bytes),
        stored(record.skipped),
        micros(skip_tick),
        skip_reason.map(SkipReason::code),
        error,
        micros(error_since),
        record.created_at.as_micros(),
    ])?)
}

fn stored(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// In the order in which rows are read and written.
macro_rules! columns {
    () => {
        "name, owner, timing, definition, revision, is_paused, cursor, look_at, next_tick, last_tick, \
         last_job, skipped, skip_tick, skip_reason, error, error_since, created_at"
    };
}

pub(in crate::store::sqlite) const BY_NAME: &str =
    concat!("SELECT ", columns!(), " FROM main.backwave_schedules WHERE name = ?1");

const ALL: &str = concat!("SELECT ", columns!(), " FROM main.backwave_schedules ORDER BY name");

/// The literal conditions let the partial index serve.
pub(in crate::store::sqlite) const DUE: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM main.backwave_schedules \
     WHERE is_paused = 0 AND look_at IS NOT NULL AND look_at <= ?1 ORDER BY look_at, name LIMIT ?2"
);

pub(in crate::store::sqlite) const NEXT: &str = "SELECT min(look_at) FROM main.backwave_schedules \
     WHERE is_paused = 0 AND look_at IS NOT NULL AND look_at > ?1";

const INSERT: &str = concat!(
    "INSERT INTO main.backwave_schedules (",
    columns!(),
    ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)"
);

/// Owner and birth stay as they are.
const UPDATE: &str = "UPDATE main.backwave_schedules \
        SET timing = ?3, definition = ?4, revision = ?5, is_paused = ?6, cursor = ?7, look_at = ?8, \
            next_tick = ?9, last_tick = ?10, last_job = ?11, skipped = ?12, skip_tick = ?13, \
            skip_reason = ?14, error = ?15, error_since = ?16 \
      WHERE name = ?1 AND owner = ?2 AND created_at = ?17";
