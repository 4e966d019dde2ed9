//! Whether and in which state jobs are born: decided from their unique keys and their parents as they stand under
//! the write lock.
//!
//! A call without either asks the file nothing here. In one with parents, these are read by one statement; a
//! key's holder is looked for by one a key. Earlier rows of the call count as if they were there already.

use super::batch::Records;
use super::{locked, row};
use crate::invariant::InvariantTrigger;
use crate::store::{Admission, JobRow, Rejection, StoreError};
use crate::{JobId, JobState};
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// How the jobs of a call that have parents are born, and which are not, because of their key; by their index.
#[derive(Debug, Default)]
pub(super) struct Births {
    with_parents: BTreeMap<usize, Birth>,
    held: BTreeMap<usize, Admission>,
}

#[derive(Debug)]
struct Birth {
    state: JobState,
    /// Each once, in their first order.
    parents: Vec<JobId>,
    /// Those that live.
    gates: Vec<JobId>,
}

/// Decides in which states the jobs of a call are born, or which of them is refused.
///
/// # Errors
/// Faults.
pub(super) fn plan(
    conn: &Connection,
    rows: &[JobRow],
) -> Result<Result<Births, (usize, Rejection)>, StoreError> {
    let mut births = Births::default();
    if rows.iter().all(|row| row.parents.is_empty() && row.unique_key.is_none()) {
        return Ok(Ok(births));
    }
    let mut states = stored_states(conn, rows)?;
    let mut keys = Keys::default();
    for (index, row) in rows.iter().enumerate() {
        if states.contains_key(&row.id) {
            continue;
        }
        if let Some(held) = keys.held(conn, row, &states)? {
            births.held.insert(index, held);
            continue;
        }
        let mut state = JobState::Scheduled;
        if !row.parents.is_empty() {
            match plan_one(row, &states) {
                Ok(birth) => {
                    state = birth.state;
                    births.with_parents.insert(index, birth);
                }
                Err(parent) => {
                    return Ok(Err((index, Rejection::UnknownParent { parent })));
                }
            }
        }
        states.insert(row.id, state);
        keys.note(row, state);
    }
    Ok(Ok(births))
}

/// The unique keys that a call has met.
#[derive(Default)]
struct Keys<'a> {
    /// Its own rows that hold one.
    holders: HashMap<&'a str, JobId>,
    /// Its rows that were not born.
    held: HashMap<JobId, Admission>,
}

impl<'a> Keys<'a> {
    /// What keeps a row of a new id from being born.
    fn held(
        &mut self,
        conn: &Connection,
        row: &JobRow,
        states: &HashMap<JobId, JobState>,
    ) -> Result<Option<Admission>, StoreError> {
        if let Some(held) = self.held.get(&row.id) {
            return Ok(Some(*held));
        }
        let Some(key) = row.unique_key.as_deref() else { return Ok(None) };
        let own = self.holders.get(key).map(|by| (*by, states.get(by).copied()));
        let held = match own {
            Some((by, Some(state))) => Some(Admission::Held { by, state }),
            _ => holder(conn, key)?,
        };
        if let Some(held) = held {
            self.held.insert(row.id, held);
        }
        Ok(held)
    }

    fn note(&mut self, row: &'a JobRow, state: JobState) {
        if let Some(key) = row.unique_key.as_deref().filter(|_| !state.is_terminal()) {
            self.holders.insert(key, row.id);
        }
    }
}

/// The job that holds a unique key.
fn holder(conn: &Connection, key: &str) -> Result<Option<Admission>, StoreError> {
    let mut statement = conn.prepare_cached(HOLDER)?;
    let mut rows = statement.query([key])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let by = row::job_id(row, 0)?;
    Ok(Some(Admission::Held { by, state: row::state(row, 1, by)? }))
}

/// The job that holds the unique key of the one at that address, which has ended.
///
/// # Errors
/// Faults.
pub(super) fn holder_against(conn: &Connection, seq: i64) -> Result<Option<JobId>, StoreError> {
    let mut statement = conn.prepare_cached(HOLDER_AGAINST)?;
    let found = statement.query_row([seq], |row| row.get::<_, [u8; 16]>(0)).optional()?;
    Ok(found.map(JobId::from_bytes))
}

/// The states of all parents, and of the jobs with parents or keys that exist already.
fn stored_states(
    conn: &Connection,
    rows: &[JobRow],
) -> Result<HashMap<JobId, JobState>, StoreError> {
    let mut ids = BTreeSet::new();
    let asked = rows.iter().filter(|row| !row.parents.is_empty() || row.unique_key.is_some());
    for row in asked {
        ids.insert(row.id);
        ids.extend(row.parents.iter().copied());
    }
    let found = locked::read(conn, ids.iter().copied())?;
    Ok(found.into_iter().map(|(id, job)| (id, job.view.state)).collect())
}

/// The birth of one job with parents, or the parent that nobody knows.
fn plan_one(row: &JobRow, states: &HashMap<JobId, JobState>) -> Result<Birth, JobId> {
    let parents = row.distinct_parents();
    let known = parents.iter().map(|parent| {
        let state = states.get(parent).copied().ok_or(*parent)?;
        Ok((*parent, state))
    });
    let (state, gates) = row.parent_rule.birth(known.collect::<Result<Vec<_>, JobId>>()?);
    Ok(Birth { state, parents, gates })
}

impl Births {
    /// In which state the job of that index is born, if it is new.
    pub(super) fn state(&self, index: usize) -> JobState {
        self.with_parents.get(&index).map_or(JobState::Scheduled, |birth| birth.state)
    }

    /// Why the job of that index is not born, if its key is held.
    pub(super) fn held(&self, index: usize) -> Option<Admission> {
        self.held.get(&index).copied()
    }

    /// Writes whose children the jobs are, and what holds them back: two statements at most.
    ///
    /// # Errors
    /// Faults, and a job that was planned as new and is not.
    pub(super) fn write_edges(
        &self,
        conn: &Connection,
        rows: &[JobRow],
        jobs: &[Admission],
    ) -> Result<(), StoreError> {
        let (mut lineage, mut edges) = (Records::default(), 0);
        let (mut gates, mut gate_count) = (Records::default(), 0);
        for (index, birth) in &self.with_parents {
            let (Some(row), Some(Admission::New)) = (rows.get(*index), jobs.get(*index)) else {
                let message = format!("row {index} of an enqueue was not there, and was not added");
                return Err(StoreError::found(InvariantTrigger::GuaranteedRowAbsent, message));
            };
            for (place, parent) in (0..).zip(&birth.parents) {
                lineage.number(place);
                lineage.bytes(row.id.as_bytes());
                lineage.bytes(parent.as_bytes());
                edges += 1;
            }
            for parent in &birth.gates {
                gates.bytes(parent.as_bytes());
                gates.bytes(row.id.as_bytes());
                gate_count += 1;
            }
        }
        write(conn, LINEAGE, "a lineage", &lineage, edges)?;
        write(conn, GATES, "gates", &gates, gate_count)
    }
}

fn write(
    conn: &Connection,
    sql: &str,
    what: &str,
    records: &Records,
    count: usize,
) -> Result<(), StoreError> {
    if count == 0 {
        return Ok(());
    }
    let touched = conn.prepare_cached(sql)?.execute(params![records.as_blob(), count as i64])?;
    locked::expect_touched(what, touched, count)
}

pub(super) const HOLDER: &str =
    "SELECT id, state FROM main.backwave_jobs WHERE unique_key = ?1 AND state < 3";

pub(super) const HOLDER_AGAINST: &str = "SELECT h.id FROM main.backwave_jobs AS j \
           JOIN main.backwave_jobs AS h ON h.unique_key = j.unique_key AND h.state < 3 \
          WHERE j.seq = ?1";

/// `?1` holds `?2` records of a place, a child and a parent.
const LINEAGE: &str = "WITH RECURSIVE record (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM record WHERE i + 1 < ?2) \
         INSERT INTO main.backwave_lineage (place, child, parent) \
         SELECT CAST(substr(?1, i * 52 + 1, 20) AS INTEGER), \
                substr(?1, i * 52 + 21, 16), substr(?1, i * 52 + 37, 16) FROM record";

/// `?1` holds `?2` pairs of a parent and a child.
const GATES: &str = "WITH RECURSIVE record (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM record WHERE i + 1 < ?2) \
         INSERT INTO main.backwave_gates (parent, child) \
         SELECT substr(?1, i * 32 + 1, 16), substr(?1, i * 32 + 17, 16) FROM record";
