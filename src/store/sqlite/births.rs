//! In which state jobs are born: decided from their parents as they stand under the write lock.
//!
//! A call without parents asks the file nothing here. In one with parents, these are read by one statement,
//! and earlier rows of the call count as if they were there already.

use super::batch::Records;
use super::locked;
use crate::invariant::InvariantTrigger;
use crate::store::{JobRow, Rejection, StoreError};
use crate::{JobId, JobState};
use rusqlite::{Connection, params};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// How the jobs of a call that have parents are born, by their index.
#[derive(Debug, Default)]
pub(super) struct Births(BTreeMap<usize, Birth>);

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
    if rows.iter().all(|row| row.parents.is_empty()) {
        return Ok(Ok(births));
    }
    let mut states = stored_states(conn, rows)?;
    for (index, row) in rows.iter().enumerate() {
        if states.contains_key(&row.id) {
            continue;
        }
        let mut state = JobState::Scheduled;
        if !row.parents.is_empty() {
            match plan_one(row, &states) {
                Ok(birth) => {
                    state = birth.state;
                    births.0.insert(index, birth);
                }
                Err(parent) => {
                    return Ok(Err((index, Rejection::UnknownParent { parent })));
                }
            }
        }
        states.insert(row.id, state);
    }
    Ok(Ok(births))
}

/// The states of all parents, and of the jobs with parents that exist already.
fn stored_states(
    conn: &Connection,
    rows: &[JobRow],
) -> Result<HashMap<JobId, JobState>, StoreError> {
    let mut ids = BTreeSet::new();
    for row in rows.iter().filter(|row| !row.parents.is_empty()) {
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
        self.0.get(&index).map_or(JobState::Scheduled, |birth| birth.state)
    }

    /// Writes whose children the jobs are, and what holds them back: two statements at most.
    ///
    /// # Errors
    /// Faults, and a job that was planned as new and is not.
    pub(super) fn write_edges(
        &self,
        conn: &Connection,
        rows: &[JobRow],
        is_new: &[bool],
    ) -> Result<(), StoreError> {
        let (mut lineage, mut edges) = (Records::default(), 0);
        let (mut gates, mut gate_count) = (Records::default(), 0);
        for (index, birth) in &self.0 {
            let (Some(row), Some(true)) = (rows.get(*index), is_new.get(*index)) else {
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

/// `?1` holds `?2` records of a place, a child and a parent.
const LINEAGE: &str = "WITH RECURSIVE record (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM record WHERE i + 1 < ?2) \
         INSERT INTO main.backwave_lineage (place, child, parent) \
         SELECT CAST(substr(?1, i * 52 + 1, 20) AS INTEGER), \
                substr(?1, i * 52 + 21, 16), substr(?1, i * 52 + 37, 16) FROM record";

/// `?1` holds `?2` pairs of a parent and a child.
const GATES: &str = "WITH RECURSIVE record (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM record WHERE i + 1 < ?2) \
         INSERT INTO main.backwave_gates (parent, child) \
         SELECT substr(?1, i * 32 + 1, 16), substr(?1, i * 32 + 17, 16) FROM record";
