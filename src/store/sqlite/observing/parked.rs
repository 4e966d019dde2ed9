//! Deliveries given up, and what an operator does with them and with observers.

use super::cursor::stored;
use super::page::observation;
use crate::Timestamp;
use crate::kernel::text;
use crate::store::sqlite::locked::expect_touched;
use crate::store::sqlite::row;
use crate::store::sqlite::work::Work;
use crate::store::{
    ACTOR_BYTES_MAX, AuditAction, Observation, ObserverChange, ParkedDelivery, Parking, StoreError,
};
use rusqlite::{Connection, params};

/// Parks deliveries; what is parked anew replaces what was.
///
/// # Errors
/// Faults.
pub(super) fn park(
    conn: &Connection,
    observer: &str,
    parked: &[Parking],
    now: Timestamp,
) -> Result<(), StoreError> {
    let mut statement = conn.prepare_cached(PARK)?;
    for Parking { observation, failures, detail } in parked {
        let told = &observation.transition;
        let touched = statement.execute(params![
            observer,
            stored(told.position),
            observation.job.as_bytes(),
            observation.wire_name,
            observation.queue,
            told.at.as_micros(),
            told.from.map(|state| state.code()),
            told.to.code(),
            told.attempt,
            told.by.code(),
            told.worker.map(crate::WorkerId::to_bytes),
            told.detail,
            failures,
            detail,
            now.as_micros(),
        ])?;
        expect_touched("the parking of a delivery", touched, 1)?;
    }
    Ok(())
}

/// Forgets parked deliveries that have succeeded since.
///
/// # Errors
/// Faults.
pub(super) fn forget(
    conn: &Connection,
    observer: &str,
    positions: &[u64],
) -> Result<(), StoreError> {
    let mut statement = conn.prepare_cached(DISCARD)?;
    for position in positions {
        // One that an operator has discarded meanwhile is gone already.
        statement.execute(params![observer, stored(*position)])?;
    }
    Ok(())
}

/// Those that an operator wants tried again, the oldest first.
///
/// # Errors
/// Faults, and a stored number that is no member of its enum.
pub(super) fn wanted(
    conn: &Connection,
    observer: &str,
    max: u32,
) -> Result<Vec<Observation>, StoreError> {
    let mut statement = conn.prepare_cached(WANTED)?;
    let mut rows = statement.query(params![observer, max])?;
    let mut wanted = Vec::new();
    while let Some(row) = rows.next()? {
        wanted.push(observation(row)?);
    }
    Ok(wanted)
}

/// A page of them, by ascending position.
///
/// # Errors
/// As [`wanted`].
pub(super) fn beyond(
    conn: &Connection,
    observer: &str,
    after: Option<u64>,
    max: u32,
) -> Result<Vec<ParkedDelivery>, StoreError> {
    let mut statement = conn.prepare_cached(PARKED)?;
    let after = after.map_or(-1, stored);
    let mut rows = statement.query(params![observer, after, max])?;
    let mut page = Vec::new();
    while let Some(row) = rows.next()? {
        let parking = Parking::new(observation(row)?, row.get(11)?, row.get(12)?);
        let mut parked = ParkedDelivery::new(parking, row::time(row, 13)?);
        parked.is_wanted_again = row.get(14)?;
        page.push(parked);
    }
    Ok(page)
}

/// Does what an operator wants, inside the caller's write transaction; how many deliveries or observers it touched.
///
/// # Errors
/// Faults.
pub(super) fn change(
    work: &Work<'_>,
    actor: &str,
    observer: &str,
    change: ObserverChange,
) -> Result<u64, StoreError> {
    let run = |sql: &str, only: Option<u64>| -> Result<usize, StoreError> {
        let mut statement = work.conn.prepare_cached(sql)?;
        Ok(statement.execute(params![observer, only.map(stored)])?)
    };
    let (action, touched) = match change {
        ObserverChange::Redeliver(only) => (AuditAction::Redeliver, run(REDELIVER, only)?),
        ObserverChange::Discard(only) => (AuditAction::Discard, run(DISCARD, only)?),
        ObserverChange::Remove => {
            run(DISCARD, None)?;
            let mut statement = work.conn.prepare_cached(REMOVE)?;
            (AuditAction::RemoveObserver, statement.execute([observer])?)
        }
    };
    if touched > 0 {
        let actor = text::clean(actor, ACTOR_BYTES_MAX);
        let mut statement = work.conn.prepare_cached(AUDIT)?;
        statement.execute(params![work.now.as_micros(), actor, action.code(), observer])?;
    }
    Ok(touched as u64)
}

const PARK: &str = "INSERT OR REPLACE INTO main.backwave_parked \
             (observer, position, job, wire_name, queue, at, from_state, to_state, attempt, by_whom, worker, \
              detail, failures, fault, parked_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";

macro_rules! parked_columns {
    () => {
        "p.position, p.job, p.at, p.from_state, p.to_state, p.attempt, p.by_whom, p.worker, p.detail, \
         p.wire_name, p.queue"
    };
}

pub(in crate::store::sqlite) const WANTED: &str = concat!(
    "SELECT ",
    parked_columns!(),
    " FROM main.backwave_parked AS p INDEXED BY backwave_parked_wanted \
      WHERE p.observer = ?1 AND p.is_wanted = 1 \
      ORDER BY p.position LIMIT ?2"
);

pub(in crate::store::sqlite) const PARKED: &str = concat!(
    "SELECT ",
    parked_columns!(),
    ", p.failures, p.fault, p.parked_at, p.is_wanted \
       FROM main.backwave_parked AS p WHERE p.observer = ?1 AND p.position > ?2 \
      ORDER BY p.position LIMIT ?3"
);

const REDELIVER: &str = "UPDATE main.backwave_parked SET is_wanted = 1 \
          WHERE observer = ?1 AND (?2 IS NULL OR position = ?2) AND is_wanted = 0";

const DISCARD: &str =
    "DELETE FROM main.backwave_parked WHERE observer = ?1 AND (?2 IS NULL OR position = ?2)";

const REMOVE: &str = "DELETE FROM main.backwave_observers WHERE observer = ?1";

const AUDIT: &str = "INSERT INTO main.backwave_audit (at, actor, action, queue, subject) \
         VALUES (?1, ?2, ?3, '', ?4)";
