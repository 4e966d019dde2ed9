//! What lies beyond a cursor.

use super::cursor::stored;
use crate::store::sqlite::{purge, row};
use crate::store::{Observation, StoreError, Transition, TransitionFilter, UPKEEP_MAX};
use rusqlite::{Connection, Row, params};

/// What one call looks at.
pub(super) struct Looked {
    pub(super) batch: Vec<Observation>,
    /// Up to here nothing else matches.
    pub(super) looked_at: u64,
    /// Whether the log goes on.
    pub(super) more: bool,
}

/// Reads what a filter matches beyond a position, at most `max`. Looks at so many transitions at most, since every
/// writer waits meanwhile.
///
/// # Errors
/// Faults, and a stored number that is no member of its enum.
pub(super) fn look(
    conn: &Connection,
    passed: u64,
    filter: &TransitionFilter,
    max: u32,
) -> Result<Looked, StoreError> {
    let mut looked = Looked { batch: Vec::new(), looked_at: passed, more: false };
    let window: Option<i64> = conn
        .prepare_cached(purge::TRIM_PAGE)?
        .query_row(params![stored(passed), UPKEEP_MAX], |row| row.get(0))?;
    let Some(window) = window else { return Ok(looked) };
    let states: Vec<i16> = filter.states.iter().map(|state| state.code()).collect();
    let (states, names, queues) = (any(&states), any(&filter.wire_names), any(&filter.queues));
    let mut statement = conn.prepare_cached(PAGE)?;
    let mut rows = statement.query(params![stored(passed), window, states, names, queues, max])?;
    while let Some(row) = rows.next()? {
        looked.batch.push(observation(row)?);
    }
    looked.looked_at = match looked.batch.last() {
        Some(last) if looked.batch.len() as u64 == u64::from(max) => last.transition.position,
        _ => window.unsigned_abs(),
    };
    looked.more =
        conn.prepare_cached(BEYOND)?.query_row([stored(looked.looked_at)], |row| row.get(0))?;
    Ok(looked)
}

/// A list as JSON, where it asks for anything.
fn any<T: serde::Serialize>(list: &[T]) -> Option<String> {
    if list.is_empty() { None } else { serde_json::to_string(list).ok() }
}

/// Reads what [`observation_columns`] tells, from the first column on.
pub(super) fn observation(row: &Row<'_>) -> Result<Observation, StoreError> {
    let job = row::job_id(row, 1)?;
    let from = match row.get::<_, Option<i64>>(3)? {
        None => None,
        Some(_) => Some(row::state(row, 3, job)?),
    };
    let mut transition = Transition::new(
        row::unsigned(row, 0)?,
        row::time(row, 2)?,
        from,
        row::state(row, 4, job)?,
        row.get(5)?,
        row::transition_by(row, 6, job)?,
    );
    transition.worker = row::worker(row, 7)?;
    transition.detail = row.get(8)?;
    Ok(Observation::new(job, row.get(9)?, row.get(10)?, transition))
}

/// The highest position that was ever given out.
///
/// # Errors
/// Faults.
pub(super) fn last(conn: &Connection) -> Result<u64, StoreError> {
    let mut statement = conn.prepare_cached(LAST)?;
    let last: i64 = statement.query_row([], |row| row.get(0))?;
    Ok(last.unsigned_abs())
}

/// What the filter's three lists (`?3` to `?5`, null for any) match, from `?1` (excluded) to `?2`. A transition whose
/// job somebody has deleted by hand is none that could be told.
pub(in crate::store::sqlite) const PAGE: &str = "SELECT t.position, t.job, t.at, t.from_state, t.to_state, t.attempt, t.by_whom, t.worker, t.detail, \
                j.wire_name, j.queue \
           FROM main.backwave_transitions AS t CROSS JOIN main.backwave_jobs AS j ON j.id = t.job \
          WHERE t.position > ?1 AND t.position <= ?2 \
            AND (?3 IS NULL OR t.to_state IN (SELECT value FROM json_each(?3))) \
            AND (?4 IS NULL OR j.wire_name IN (SELECT value FROM json_each(?4))) \
            AND (?5 IS NULL OR j.queue IN (SELECT value FROM json_each(?5))) \
          ORDER BY t.position LIMIT ?6";

pub(in crate::store::sqlite) const BEYOND: &str =
    "SELECT EXISTS (SELECT 1 FROM main.backwave_transitions WHERE position > ?1)";

const LAST: &str = "SELECT coalesce(max(seq), 0) FROM main.sqlite_sequence \
          WHERE name = 'backwave_transitions'";
