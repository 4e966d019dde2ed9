//! How queues are set: what an operator changes, and what a claim may take under it.
//!
//! A claim reads settings and counts leases in its own transaction, in which it is the only writer. So a
//! limit is exact, and a pause holds from the next claim on.

use super::row;
use super::work::Work;
use crate::invariant::InvariantTrigger;
use crate::store::{AuditAction, KEY_LIMIT, QueueAnswer, QueueChange, QueueSettings, StoreError};
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::collections::HashMap;
use std::rc::Rc;

/// Whether any queue was ever set, and whether any ever had a concurrency key: nearly always none was, and to ask
/// for names is dearer.
///
/// # Errors
/// Faults.
pub(super) fn any_set(conn: &Connection) -> Result<(bool, bool), StoreError> {
    let mut statement = conn.prepare_cached(SOME_QUEUE)?;
    Ok(statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?)
}

/// How many jobs of a queue with one concurrency key may be leased.
///
/// # Errors
/// Faults.
pub(super) fn key_limit(conn: &Connection, queue: &str) -> Result<u32, StoreError> {
    Ok(settings(conn, queue)?.map_or(KEY_LIMIT, |settings| settings.key_limit()))
}

/// What a queue's settings let a claim take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// Nothing, and nothing later.
    Paused,
    /// So many more.
    Left(u32),
}

/// The rooms of those of these queues that are paused or limited; the others are free.
///
/// # Errors
/// Faults, a settings row that is gone, and a count that is none.
pub(super) fn rooms(
    conn: &Connection,
    queues: &[&str],
) -> Result<HashMap<String, Room>, StoreError> {
    let mut statement = conn.prepare_cached(PLANNED)?;
    let mut rows = statement.query([serde_json::Value::from(queues).to_string()])?;
    let mut rooms = HashMap::new();
    while let Some(row) = rows.next()? {
        let queue: String = row.get(0)?;
        let room = if row.get(1)? { Room::Paused } else { Room::Left(room(conn, &queue)?) };
        rooms.insert(queue, room);
    }
    Ok(rooms)
}

/// The room that a limit leaves, by the settings and the leases as they are now.
fn room(conn: &Connection, queue: &str) -> Result<u32, StoreError> {
    let mut statement = conn.prepare_cached(ROOM)?;
    let found = statement.query_row([queue], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let (limit, leased): (Option<u32>, Option<i64>) =
        found.ok_or_else(|| not_locked(queue, "there is no row of it"))?;
    room_of(queue, limit, leased)
}

/// The room between a limit and what is leased. A count that is none would let in anything.
fn room_of(queue: &str, limit: Option<u32>, leased: Option<i64>) -> Result<u32, StoreError> {
    let leased = leased.ok_or_else(|| {
        let message = format!("the leases of queue {queue:?} were counted as null");
        StoreError::found(InvariantTrigger::LeasedCountAggregateNull, message)
    })?;
    let room = i64::from(limit.unwrap_or(u32::MAX)).saturating_sub(leased);
    Ok(u32::try_from(room).unwrap_or(0))
}

fn not_locked(queue: &str, why: &str) -> StoreError {
    let message = format!("the settings of queue {queue:?} could not be held: {why}");
    StoreError::found(InvariantTrigger::QueueConfigLockNotAcquired, message)
}

/// Changes how a queue is set, inside the caller's write transaction.
///
/// # Errors
/// Faults, and a settings row that is not there after it was written.
pub(super) fn change(
    work: &mut Work<'_>,
    actor: &str,
    queue: &str,
    change: QueueChange,
) -> Result<QueueAnswer, StoreError> {
    let before = settings(work.conn, queue)?;
    let before = before.unwrap_or_else(|| QueueSettings::new(queue.to_owned()));
    let mut after = before.clone();
    if !after.apply(change) {
        return Ok(QueueAnswer::new(after, false, work.now));
    }
    let mut statement = work.conn.prepare_cached(
        "INSERT INTO main.backwave_queues (queue, is_paused, concurrency_limit, key_limit) \
         VALUES (?1, ?2, ?3, ?4) \
             ON CONFLICT (queue) DO UPDATE SET is_paused = excluded.is_paused, \
                                               concurrency_limit = excluded.concurrency_limit, \
                                               key_limit = excluded.key_limit",
    )?;
    let (limit, key_limit) = (after.concurrency_limit, after.concurrency_limit_per_key);
    statement.execute(params![queue, after.is_paused, limit, key_limit])?;
    if settings(work.conn, queue)?.as_ref() != Some(&after) {
        return Err(not_locked(queue, "what was written does not read back"));
    }
    work.audited(actor, AuditAction::of_queue(change), None, queue);
    if gives_more(&before, &after) {
        work.wake(&Rc::from(queue), work.now);
    }
    Ok(QueueAnswer::new(after, true, work.now))
}

/// Whether claims may take what they could not before.
fn gives_more(before: &QueueSettings, after: &QueueSettings) -> bool {
    let most = |settings: &QueueSettings| match settings.concurrency_limit {
        _ if settings.is_paused => 0,
        Some(limit) => u64::from(limit),
        None => u64::MAX,
    };
    most(after) > most(before) || (!after.is_paused && after.key_limit() > before.key_limit())
}

/// Every queue that was set, ordered by name.
///
/// # Errors
/// Faults.
pub(super) fn all(conn: &Connection) -> Result<Vec<QueueSettings>, StoreError> {
    let mut statement = conn.prepare_cached(
        "SELECT queue, is_paused, concurrency_limit, key_limit \
           FROM main.backwave_queues ORDER BY queue",
    )?;
    let mut rows = statement.query([])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.push(decode(row)?);
    }
    Ok(all)
}

fn settings(conn: &Connection, queue: &str) -> Result<Option<QueueSettings>, StoreError> {
    let mut statement = conn.prepare_cached(SETTINGS)?;
    let mut rows = statement.query([queue])?;
    rows.next()?.map(decode).transpose()
}

fn decode(row: &Row<'_>) -> Result<QueueSettings, StoreError> {
    let mut settings = QueueSettings::new(row.get(0)?);
    settings.is_paused = row.get(1)?;
    settings.concurrency_limit = row::limit(row, 2)?;
    settings.concurrency_limit_per_key = row::limit(row, 3)?;
    Ok(settings)
}

pub(super) const SETTINGS: &str = "SELECT queue, is_paused, concurrency_limit, key_limit FROM main.backwave_queues WHERE queue = ?1";

const SOME_QUEUE: &str = "SELECT EXISTS (SELECT 1 FROM main.backwave_queues), \
                EXISTS (SELECT 1 FROM main.backwave_keyed_queues)";

/// Which of the queues in the JSON array `?1` are paused or limited.
pub(super) const PLANNED: &str = "SELECT q.queue, q.is_paused \
           FROM json_each(?1) AS planned CROSS JOIN main.backwave_queues AS q ON q.queue = planned.value \
          WHERE q.is_paused OR q.concurrency_limit IS NOT NULL";

/// A queue's limit, and how many of its jobs are leased, dead leases included. The literal state lets the
/// partial index serve.
pub(super) const ROOM: &str = "SELECT concurrency_limit, \
                (SELECT count(*) FROM main.backwave_jobs WHERE state = 2 AND queue = ?1) \
           FROM main.backwave_queues WHERE queue = ?1";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SqliteStore;

    #[test]
    fn a_limited_queue_without_its_row_and_a_count_that_is_none_are_violations() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("jobs.db");
        SqliteStore::open(&path).expect("it opens");
        let conn = Connection::open(&path).expect("it opens");
        let trigger = || room(&conn, "mail").map_err(|error| error.counted().trigger());
        assert_eq!(trigger(), Err(Some(InvariantTrigger::QueueConfigLockNotAcquired)));
        let set = |sql: &str| conn.execute_batch(sql).expect("set");
        set("INSERT INTO backwave_queues (queue, concurrency_limit) VALUES ('mail', 3)");
        assert_eq!(trigger(), Ok(3));
        let trigger =
            |leased| room_of("mail", Some(3), leased).map_err(|error| error.counted().trigger());
        assert_eq!(trigger(Some(2)), Ok(1));
        assert_eq!(trigger(Some(9)), Ok(0), "a limit that was lowered");
        assert_eq!(trigger(None), Err(Some(InvariantTrigger::LeasedCountAggregateNull)));
    }
}
