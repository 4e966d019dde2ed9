//! What pumps tell of themselves, for people. Nothing here decides whether a lease is alive.

use super::row;
use crate::store::{Announcement, HaltNote, PumpRecord, StoreError};
use crate::{Timestamp, WorkerId};
use rusqlite::{Connection, Row, params};

/// Notes what a pump tells, inside the caller's write transaction.
///
/// # Errors
/// Faults.
pub(super) fn announce(
    conn: &Connection,
    announcement: &Announcement,
    now: Timestamp,
) -> Result<(), StoreError> {
    let Announcement { worker, group, host, pid, queues, wire_names, version, halt } = announcement;
    let list = |texts: &[String]| serde_json::Value::from(texts).to_string();
    conn.prepare_cached(ANNOUNCE)?.execute(params![
        worker.as_bytes(),
        group,
        host,
        pid,
        list(queues),
        list(wire_names),
        version,
        now.as_micros(),
        halt.as_ref().map(|_| now.as_micros()),
        halt.as_ref().map(|halt| &halt.type_name),
        halt.as_ref().map(|halt| &halt.message),
        halt.as_ref().and_then(|halt| halt.trigger.as_ref()),
    ])?;
    Ok(())
}

/// Takes a pump's note away, unless it tells of a halt.
///
/// # Errors
/// Faults.
pub(super) fn withdraw(conn: &Connection, worker: WorkerId) -> Result<(), StoreError> {
    conn.prepare_cached("DELETE FROM main.backwave_pumps WHERE worker = ?1 AND halted_at IS NULL")?
        .execute([worker.as_bytes()])?;
    Ok(())
}

/// Every pump, ordered by group and worker.
///
/// # Errors
/// Faults, and a stored list that is none.
pub(super) fn all(conn: &Connection) -> Result<Vec<PumpRecord>, StoreError> {
    let mut statement = conn.prepare_cached(
        "SELECT worker, group_name, host, pid, queues, wire_names, version, started_at, last_seen, \
                halted_at, halt_type_name, halt_message, halt_trigger \
           FROM main.backwave_pumps ORDER BY group_name, worker",
    )?;
    let mut rows = statement.query([])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.push(decode(row)?);
    }
    Ok(all)
}

fn decode(row: &Row<'_>) -> Result<PumpRecord, StoreError> {
    let worker = WorkerId::from_bytes(row.get(0)?);
    let mut announcement = Announcement::new(worker, row.get(1)?, row.get(2)?, row.get(3)?);
    announcement.queues = row::texts(row, 4, "the queues of a pump")?;
    announcement.wire_names = row::texts(row, 5, "the wire names of a pump")?;
    announcement.version = row.get(6)?;
    let halted_at = row::time_or_null(row, 9)?;
    if halted_at.is_some() {
        announcement.halt = Some(HaltNote::new(row.get(10)?, row.get(11)?, row.get(12)?));
    }
    let mut record = PumpRecord::new(announcement, row::time(row, 7)?);
    record.last_seen = row::time(row, 8)?;
    record.halted_at = halted_at;
    Ok(record)
}

/// A halt, once noted, stays as it was noted.
const ANNOUNCE: &str = "INSERT INTO main.backwave_pumps AS p \
             (worker, group_name, host, pid, queues, wire_names, version, started_at, last_seen, \
              halted_at, halt_type_name, halt_message, halt_trigger) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, ?9, ?10, ?11, ?12) \
             ON CONFLICT (worker) DO UPDATE \
            SET group_name = excluded.group_name, host = excluded.host, pid = excluded.pid, \
                queues = excluded.queues, wire_names = excluded.wire_names, \
                version = excluded.version, last_seen = excluded.last_seen, \
                halted_at = coalesce(p.halted_at, excluded.halted_at), \
                halt_type_name = coalesce(p.halt_type_name, excluded.halt_type_name), \
                halt_message = coalesce(p.halt_message, excluded.halt_message), \
                halt_trigger = CASE WHEN p.halted_at IS NULL THEN excluded.halt_trigger \
                                    ELSE p.halt_trigger END";
