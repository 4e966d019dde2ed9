//! What maintenance does, and what groups announce.

use super::claim::bounded_us;
use super::fault::fault;
use super::reads::{state_of, unsigned};
use super::session::{Call, Malformed, PostgresSession};
use crate::kernel::state::JobState;
use crate::kernel::text::clean;
use crate::store::{
    Announcement, HaltNote, LatchesWorkedOff, PumpRecord, Purge, PurgeCursor, Purged, StoreError,
    UPKEEP_MAX,
};
use crate::{JobId, Timestamp, WorkerId};
use ::postgres::Row;
use std::time::Duration;

pub(super) const PURGE: &str = "SELECT jobs, more, last_state, last_end, last_id, trimmed, store_time, unobserved \
    FROM {schema}.purge_v2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
pub(super) const WORK_OFF_LATCHES: &str = "SELECT resolved, more, released, released_dues, store_time \
    FROM {schema}.work_off_latches_v2($1, $2, $3)";
/// Whatever comes after a halt, the halt and its note stay.
pub(super) const ANNOUNCE: &str = "INSERT INTO {schema}.pumps AS p \
    (worker, started_at, last_seen, halted_at, pid, group_name, host, queues, wire_names, version, \
     halt_type, halt_message, halt_trigger) \
    SELECT $1, t.now, t.now, CASE WHEN $8::text IS NOT NULL THEN t.now END, $2, $3, $4, $5, $6, $7, $8, $9, $10 \
    FROM (SELECT coalesce($11, clock_timestamp()) AS now) AS t \
    ON CONFLICT (worker) DO UPDATE SET last_seen = excluded.last_seen, pid = excluded.pid, \
    group_name = excluded.group_name, host = excluded.host, queues = excluded.queues, \
    wire_names = excluded.wire_names, version = excluded.version, \
    halted_at = coalesce(p.halted_at, excluded.halted_at), \
    halt_type = coalesce(p.halt_type, excluded.halt_type), \
    halt_message = coalesce(p.halt_message, excluded.halt_message), \
    halt_trigger = CASE WHEN p.halted_at IS NULL THEN excluded.halt_trigger ELSE p.halt_trigger END \
    RETURNING last_seen";
pub(super) const WITHDRAW: &str =
    "DELETE FROM {schema}.pumps WHERE worker = $1 AND halted_at IS NULL";
pub(super) const PUMPS: &str = "SELECT worker, started_at, last_seen, halted_at, pid, group_name, host, \
    queues, wire_names, version, halt_type, halt_message, halt_trigger \
    FROM {schema}.pumps ORDER BY group_name, worker";

/// The longest text of an announcement that is kept.
const TEXT_BYTES_MAX: usize = 8 * 1024;

/// The terminal states, in the order of the functions' array.
const ENDED: [JobState; 4] =
    [JobState::Succeeded, JobState::DeadLettered, JobState::Quarantined, JobState::Cancelled];

pub(super) fn purge(session: &mut PostgresSession, purge: &Purge) -> Result<Purged, StoreError> {
    let now = session.store.clock_time();
    let retention = &purge.retention;
    let keeps: Vec<_> = ENDED.map(|state| retention.of(state).map(kept_us)).to_vec();
    let audit = retention.audit.map(kept_us);
    let unobserved = retention.unobserved.map(kept_us);
    // Without a bound there is nothing to look for.
    let kept =
        Some(i64::from(retention.transitions_per_job)).filter(|kept| *kept < i64::from(u32::MAX));
    let (state, end, id) = match purge.cursor.ended {
        Some((state, end, id)) => (Some(state.code()), Some(end), Some(id)),
        None => (None, None, None),
    };
    let trimmed = i64::try_from(purge.cursor.trimmed).unwrap_or(i64::MAX);
    let row = session.query_one(
        Call::Purge,
        &[
            &keeps,
            &audit,
            &unobserved,
            &kept,
            &bounded(purge.max),
            &state,
            &end,
            &id,
            &trimmed,
            &now,
        ],
    )?;
    let jobs = unsigned(&row, 0)?;
    let store_time = row.try_get(6).map_err(fault)?;
    let unobserved: i64 = row.try_get(7).map_err(fault)?;
    let purged = Purged::new(jobs, cursor(&row)?, row.try_get(1).map_err(fault)?, store_time);
    Ok(purged.unobserved(unobserved.unsigned_abs()))
}

/// Where the next purge goes on.
fn cursor(row: &Row) -> Result<PurgeCursor, StoreError> {
    let state: Option<i16> = row.try_get(2).map_err(fault)?;
    let end: Option<Timestamp> = row.try_get(3).map_err(fault)?;
    let id: Option<JobId> = row.try_get(4).map_err(fault)?;
    let trimmed: i64 = row.try_get(5).map_err(fault)?;
    let mut cursor = PurgeCursor::default();
    if let (Some(state), Some(end), Some(id)) = (state, end, id) {
        cursor.ended = Some((state_of(state)?, end, id));
    }
    cursor.trimmed = trimmed.unsigned_abs();
    Ok(cursor)
}

/// In microseconds, at most a thousand years, which leads to an instant from any that can be stored.
fn kept_us(keep: Duration) -> i64 {
    const THOUSAND_YEARS_US: i64 = 31_557_600_000_000_000;
    bounded_us(keep).min(THOUSAND_YEARS_US)
}

fn bounded(max: u32) -> i32 {
    i32::try_from(max.clamp(1, UPKEEP_MAX)).unwrap_or(i32::MAX)
}

pub(super) fn work_off_latches(
    session: &mut PostgresSession,
    max: u32,
) -> Result<LatchesWorkedOff, StoreError> {
    let now = session.store.clock_time();
    let history = session.store.history;
    let row = session.query_one(Call::WorkOffLatches, &[&bounded(max), &history, &now])?;
    session.wake_released(&row, (4, 2, 3))?;
    let (more, store_time) = (row.try_get(1).map_err(fault)?, row.try_get(4).map_err(fault)?);
    Ok(LatchesWorkedOff::new(unsigned(&row, 0)?, more, store_time))
}

pub(super) fn announce(
    session: &mut PostgresSession,
    told: &Announcement,
) -> Result<Timestamp, StoreError> {
    let now = session.store.clock_time();
    let halt = told.halt.as_ref();
    let text = |text: &str| clean(text, TEXT_BYTES_MAX);
    let texts = |texts: &[String]| texts.iter().map(|t| text(t)).collect::<Vec<_>>();
    let (host, group, version) = (text(&told.host), text(&told.group), text(&told.version));
    let (queues, wire_names) = (texts(&told.queues), texts(&told.wire_names));
    let kind = halt.map(|halt| text(&halt.type_name));
    let message = halt.map(|halt| text(&halt.message));
    let trigger = halt.and_then(|halt| halt.trigger.as_deref()).map(text);
    let pid = i64::from(told.pid);
    let row = session.query_one(
        Call::Announce,
        &[
            &told.worker,
            &pid,
            &group,
            &host,
            &queues,
            &wire_names,
            &version,
            &kind,
            &message,
            &trigger,
            &now,
        ],
    )?;
    row.try_get(0).map_err(fault)
}

pub(super) fn withdraw(session: &mut PostgresSession, worker: WorkerId) -> Result<(), StoreError> {
    session.query(Call::Withdraw, &[&worker]).map(drop)
}

pub(super) fn pumps(session: &mut PostgresSession) -> Result<Vec<PumpRecord>, StoreError> {
    session.query(Call::Pumps, &[])?.iter().map(unpack_pump).collect()
}

fn unpack_pump(row: &Row) -> Result<PumpRecord, StoreError> {
    let pid: i64 = row.try_get(4).map_err(fault)?;
    let pid = u32::try_from(pid)
        .map_err(|_| StoreError::new(Malformed(format!("a pump's process is {pid}"))))?;
    let (worker, group) = (row.try_get(0).map_err(fault)?, row.try_get(5).map_err(fault)?);
    let mut told = Announcement::new(worker, group, row.try_get(6).map_err(fault)?, pid);
    told.queues = row.try_get(7).map_err(fault)?;
    told.wire_names = row.try_get(8).map_err(fault)?;
    told.version = row.try_get(9).map_err(fault)?;
    let kind: Option<String> = row.try_get(10).map_err(fault)?;
    let message: Option<String> = row.try_get(11).map_err(fault)?;
    let trigger: Option<String> = row.try_get(12).map_err(fault)?;
    told.halt = kind.zip(message).map(|(kind, message)| HaltNote::new(kind, message, trigger));
    let mut record = PumpRecord::new(told, row.try_get(1).map_err(fault)?);
    record.last_seen = row.try_get(2).map_err(fault)?;
    record.halted_at = row.try_get(3).map_err(fault)?;
    Ok(record)
}
