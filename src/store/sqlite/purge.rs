//! What is kept no longer goes, a page at a time.
//!
//! Ended jobs are looked at in the order of (state, end, id), which is that of their index. One that another
//! job names as its parent stays as long as that other one is kept; those of one page that only hold each
//! other go together, youngest generation first. The counts of what has ended follow by the file's own
//! trigger, payloads by their foreign key. What a registered observer has not passed stays, with its job, until it
//! is too old to be waited for.

use super::batch::{self, Seqs};
use super::locked::expect_touched;
use super::row;
use super::work::Work;
use crate::store::{PUMP_KEPT, Purge, PurgeCursor, Purged, Retention, StoreError, UPKEEP_MAX};
use crate::{JobId, JobState, Timestamp};
use rusqlite::{Connection, params};
use std::collections::{BTreeMap, BTreeSet};

/// So many generations of one family go by one call.
const GENERATIONS_MAX: u32 = 16;

/// Purges a page, inside the caller's write transaction.
///
/// # Errors
/// Faults, and a write that did not touch the rows it was meant for.
pub(super) fn purge(work: &Work<'_>, purge: &Purge) -> Result<Purged, StoreError> {
    let Work { conn, now, .. } = *work;
    let max = purge.max.clamp(1, UPKEEP_MAX);
    let wanted = Wanted::read(work, &purge.retention)?;
    let page = look(conn, &purge.retention, purge.cursor.ended, max, now)?;
    let (jobs, with_jobs) = delete(conn, page.candidates, wanted)?;
    let trimmed =
        trim(conn, purge.retention.transitions_per_job, purge.cursor.trimmed, max, wanted)?;
    forget(conn, &purge.retention, max, now)?;
    let more = page.is_full || trimmed.is_full;
    let mut cursor = PurgeCursor::default();
    if more {
        cursor.ended = page.last.filter(|_| page.is_full);
        cursor.trimmed = trimmed.last;
    }
    Ok(Purged::new(jobs, cursor, more, now).unobserved(with_jobs + trimmed.unobserved))
}

/// What observers still wait for: transitions beyond a position that are younger than a time, in microseconds.
#[derive(Clone, Copy)]
struct Wanted {
    beyond: i64,
    younger: i64,
}

impl Wanted {
    fn read(work: &Work<'_>, retention: &Retention) -> Result<Option<Self>, StoreError> {
        if !work.has_observers {
            return Ok(None);
        }
        let beyond = work.conn.prepare_cached(PASSED)?.query_row([], |row| row.get(0))?;
        let until = retention.unobserved.map(|keep| work.now.saturating_sub(keep));
        Ok(Some(Self { beyond, younger: until.map_or(i64::MIN, Timestamp::as_micros) }))
    }
}

/// What one call looks at of the jobs that have ended.
#[derive(Default)]
struct Looked {
    /// By row address.
    candidates: BTreeMap<i64, JobId>,
    last: Option<(JobState, Timestamp, JobId)>,
    is_full: bool,
}

fn look(
    conn: &Connection,
    retention: &Retention,
    after: Option<(JobState, Timestamp, JobId)>,
    max: u32,
    now: Timestamp,
) -> Result<Looked, StoreError> {
    let mut looked = Looked { last: after, ..Looked::default() };
    let mut statement = conn.prepare_cached(OLD_ENOUGH)?;
    for state in JobState::ALL.into_iter().filter(|state| state.is_terminal()) {
        let Some(keep) = retention.of(state) else { continue };
        let (from, id): (i64, &[u8]) = match &looked.last {
            Some((last, ..)) if *last > state => continue,
            Some((last, end, id)) if *last == state => (end.as_micros(), id.as_bytes()),
            _ => (i64::MIN, &[]),
        };
        let left = u64::from(max) - looked.candidates.len() as u64;
        let until = now.saturating_sub(keep).as_micros();
        let mut rows = statement.query(params![state.code(), until, from, id, left as i64])?;
        let mut last = None;
        while let Some(row) = rows.next()? {
            let id = row::job_id(row, 1)?;
            looked.candidates.insert(row.get(0)?, id);
            last = Some((state, row::time(row, 2)?, id));
        }
        drop(rows);
        looked.last = last.or(looked.last);
        if looked.candidates.len() as u64 == u64::from(max) {
            looked.is_full = true;
            break;
        }
    }
    Ok(looked)
}

/// Takes away those that nobody names as a parent and no observer waits for; how many, and how many transitions
/// with them that an observer has not passed.
fn delete(
    conn: &Connection,
    mut left: BTreeMap<i64, JobId>,
    wanted: Option<Wanted>,
) -> Result<(u32, u64), StoreError> {
    if let Some(wanted) = wanted.filter(|_| !left.is_empty()) {
        let awaited = awaited(conn, &left, wanted)?;
        left.retain(|_, id| !awaited.contains(id));
    }
    let mut gone: BTreeMap<i64, JobId> = BTreeMap::new();
    for _ in 0..GENERATIONS_MAX {
        let childless = childless(conn, &left)?;
        if childless.is_empty() {
            break;
        }
        let named: BTreeMap<i64, JobId> =
            childless.iter().filter_map(|seq| left.remove_entry(seq)).collect();
        let edges = delete_by_id(conn, DROP_LINEAGE, &named)?;
        gone.extend(named);
        if edges == 0 {
            // No parent of theirs has lost a child by it.
            break;
        }
    }
    if gone.is_empty() {
        return Ok((0, 0));
    }
    let unobserved = wanted.map_or(Ok(0), |wanted| count_beyond(conn, &gone, wanted))?;
    delete_by_id(conn, DROP_HISTORY, &gone)?;
    delete_by_id(conn, DROP_BACKLOG, &gone)?;
    let seqs: Seqs = gone.keys().copied().collect();
    let touched = conn.prepare_cached(DELETE)?.execute([seqs.to_json()])?;
    expect_touched("a purge", touched, gone.len())?;
    Ok((gone.len() as u32, unobserved))
}

/// Those that have a transition which an observer waits for.
fn awaited(
    conn: &Connection,
    jobs: &BTreeMap<i64, JobId>,
    wanted: Wanted,
) -> Result<BTreeSet<JobId>, StoreError> {
    let ids = batch::ids(jobs.values().copied());
    let mut statement = conn.prepare_cached(AWAITED)?;
    let mut rows =
        statement.query(params![ids, jobs.len() as i64, wanted.beyond, wanted.younger])?;
    let mut awaited = BTreeSet::new();
    while let Some(row) = rows.next()? {
        awaited.insert(row::job_id(row, 0)?);
    }
    Ok(awaited)
}

/// How many of their transitions some observer has not passed.
fn count_beyond(
    conn: &Connection,
    jobs: &BTreeMap<i64, JobId>,
    wanted: Wanted,
) -> Result<u64, StoreError> {
    let ids = batch::ids(jobs.values().copied());
    let mut statement = conn.prepare_cached(COUNT_BEYOND)?;
    let count: i64 =
        statement.query_row(params![ids, jobs.len() as i64, wanted.beyond], |row| row.get(0))?;
    Ok(count.unsigned_abs())
}

/// The row addresses of those that are nobody's parents.
fn childless(conn: &Connection, jobs: &BTreeMap<i64, JobId>) -> Result<Vec<i64>, StoreError> {
    let mut found = Vec::new();
    if !jobs.is_empty() {
        let seqs: Seqs = jobs.keys().copied().collect();
        let mut statement = conn.prepare_cached(CHILDLESS)?;
        let mut rows = statement.query([seqs.to_json()])?;
        while let Some(row) = rows.next()? {
            found.push(row.get(0)?);
        }
    }
    Ok(found)
}

fn delete_by_id(
    conn: &Connection,
    sql: &str,
    jobs: &BTreeMap<i64, JobId>,
) -> Result<usize, StoreError> {
    let ids = batch::ids(jobs.values().copied());
    Ok(conn.prepare_cached(sql)?.execute(params![ids, jobs.len() as i64])?)
}

/// How far the trimming has come.
struct Trimmed {
    last: u64,
    is_full: bool,
    /// How many were taken that an observer has not passed.
    unobserved: u64,
}

/// Takes away, of each job met among the next transitions, those beyond the newest so many.
fn trim(
    conn: &Connection,
    keep: u32,
    after: u64,
    max: u32,
    wanted: Option<Wanted>,
) -> Result<Trimmed, StoreError> {
    let mut trimmed = Trimmed { last: after, is_full: false, unobserved: 0 };
    if keep == u32::MAX {
        return Ok(trimmed);
    }
    let from = i64::try_from(after).unwrap_or(i64::MAX);
    let mut statement = conn.prepare_cached(TRIM_PAGE)?;
    let (last, count): (Option<i64>, u32) =
        statement.query_row(params![from, max], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let Some(last) = last else { return Ok(trimmed) };
    // Where nobody observes, nothing lies beyond.
    let Wanted { beyond, younger } = wanted.unwrap_or(Wanted { beyond: i64::MAX, younger: 0 });
    let mut statement = conn.prepare_cached(TRIM)?;
    let mut rows = statement.query(params![from, last, keep, beyond, younger])?;
    while let Some(row) = rows.next()? {
        trimmed.unobserved += u64::from(row.get::<_, i64>(0)? > beyond);
    }
    trimmed.last = last.unsigned_abs();
    trimmed.is_full = count == max;
    Ok(trimmed)
}

/// Takes away old audit records and the notes of pumps long gone.
fn forget(
    conn: &Connection,
    retention: &Retention,
    max: u32,
    now: Timestamp,
) -> Result<(), StoreError> {
    if let Some(keep) = retention.audit {
        let until = now.saturating_sub(keep).as_micros();
        conn.prepare_cached(FORGET_AUDIT)?.execute(params![until, max])?;
    }
    let until = now.saturating_sub(PUMP_KEPT).as_micros();
    conn.prepare_cached("DELETE FROM main.backwave_pumps WHERE last_seen <= ?1")?
        .execute([until])?;
    Ok(())
}

/// Jobs that have ended in state `?1` at `?2` at the latest, from a place in their order on. The literal
/// condition lets the partial index serve.
pub(super) const OLD_ENOUGH: &str = "SELECT seq, id, finished_at FROM main.backwave_jobs \
          WHERE state > 2 AND state = ?1 AND finished_at <= ?2 AND (finished_at, id) > (?3, ?4) \
          ORDER BY finished_at, id LIMIT ?5";

pub(super) const CHILDLESS: &str = "SELECT j.seq FROM json_each(?1) AS asked CROSS JOIN main.backwave_jobs AS j ON j.seq = asked.value \
          WHERE NOT EXISTS (SELECT 1 FROM main.backwave_lineage AS l WHERE l.parent = j.id)";

pub(super) const DELETE: &str =
    "DELETE FROM main.backwave_jobs WHERE seq IN (SELECT value FROM json_each(?1))";

pub(super) const DROP_LINEAGE: &str = "WITH RECURSIVE place (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM place WHERE i + 1 < ?2) \
         DELETE FROM main.backwave_lineage WHERE child IN (SELECT substr(?1, i * 16 + 1, 16) FROM place)";

pub(super) const DROP_HISTORY: &str = "WITH RECURSIVE place (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM place WHERE i + 1 < ?2) \
         DELETE FROM main.backwave_transitions WHERE job IN (SELECT substr(?1, i * 16 + 1, 16) FROM place)";

const DROP_BACKLOG: &str = "WITH RECURSIVE place (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM place WHERE i + 1 < ?2) \
         DELETE FROM main.backwave_latch_backlog WHERE parent IN (SELECT substr(?1, i * 16 + 1, 16) FROM place)";

/// The last of the next `?2` transitions after `?1`, and how many there are.
pub(super) const TRIM_PAGE: &str = "SELECT max(position), count(*) FROM ( \
                SELECT position FROM main.backwave_transitions WHERE position > ?1 \
                 ORDER BY position LIMIT ?2)";

/// Of each job with a transition from `?1` (excluded) to `?2`, those beyond the newest `?3`. Where a job has
/// fewer, there is no such position, and nothing is as early as it. What lies beyond `?4` and is younger than `?5`
/// is waited for by an observer.
pub(super) const TRIM: &str = "DELETE FROM main.backwave_transitions WHERE position IN ( \
         SELECT t.position \
           FROM (SELECT DISTINCT job FROM main.backwave_transitions \
                  WHERE position > ?1 AND position <= ?2) AS met \
          CROSS JOIN main.backwave_transitions AS t ON t.job = met.job \
          WHERE t.position <= (SELECT n.position FROM main.backwave_transitions AS n \
                                WHERE n.job = met.job ORDER BY n.position DESC LIMIT 1 OFFSET ?3) \
            AND (t.position <= ?4 OR t.at <= ?5)) \
         RETURNING position";

/// Up to here every observer has passed.
const PASSED: &str = "SELECT min(passed) FROM main.backwave_observers";

/// The jobs of a batch of ids with a transition beyond `?3` that is younger than `?4`.
pub(super) const AWAITED: &str = "WITH RECURSIVE place (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM place WHERE i + 1 < ?2) \
         SELECT DISTINCT t.job FROM place CROSS JOIN main.backwave_transitions AS t \
             ON t.job = substr(?1, place.i * 16 + 1, 16) \
          WHERE t.position > ?3 AND t.at > ?4";

pub(super) const COUNT_BEYOND: &str = "WITH RECURSIVE place (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM place WHERE i + 1 < ?2) \
         SELECT count(*) FROM place CROSS JOIN main.backwave_transitions AS t \
             ON t.job = substr(?1, place.i * 16 + 1, 16) \
          WHERE t.position > ?3";

pub(super) const FORGET_AUDIT: &str = "DELETE FROM main.backwave_audit WHERE position IN ( \
         SELECT position FROM main.backwave_audit WHERE at <= ?1 ORDER BY at LIMIT ?2)";
