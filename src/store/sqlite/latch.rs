//! The latch: what the end of parents does to those that depend on them.
//!
//! Called by every write that ends jobs, inside its transaction. It goes level by level: the gates of all
//! jobs that have just ended are read by one statement and judged here; dependents whose last gate opened are
//! Scheduled, those that can never run are Cancelled and are the next level. So many gates are resolved at
//! once; parents with more leave a note in the backlog, and [`work_off`] goes on with them.
//!
//! Where nobody waits for a parent, an end costs nothing here.

use super::batch::{self, Records, Seqs};
use super::locked::{Names, expect_touched};
use super::row;
use super::work::{Change, Work};
use crate::invariant::InvariantTrigger;
use crate::store::{Gate, ParentRule, StoreError, TransitionBy};
use crate::{JobId, JobState, Timestamp};
use rusqlite::{Connection, Row, params};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

/// Resolves the gates of jobs that have ended, at most `max` of them; how many it was.
///
/// # Errors
/// Faults; a gate whose dependent is not there or does not wait; a write that did not touch the rows it was
/// meant for.
pub(super) fn resolve(
    work: &mut Work<'_>,
    ended: Vec<(JobId, JobState)>,
    max: u32,
) -> Result<u32, StoreError> {
    if ended.is_empty() || !work.has_gates {
        return Ok(0);
    }
    let mut left = max;
    let mut level = ended;
    while !level.is_empty() {
        let parents: Vec<JobId> = level.iter().map(|(parent, _)| *parent).collect();
        let gates = read_gates(work.conn, &parents, left)?;
        left -= gates.len() as u32;
        let verdict = judge(&level.into_iter().collect(), gates)?;
        level = verdict.carry_out(work)?;
        if left == 0 {
            note(work.conn, parents.into_iter().chain(level.iter().map(|(child, _)| *child)))?;
            break;
        }
    }
    Ok(max - left)
}

/// Goes on with parents that have left gates, at most `max` of those; how many were resolved, and whether
/// there are more.
///
/// # Errors
/// As [`resolve`].
pub(super) fn work_off(work: &mut Work<'_>, max: u32) -> Result<(u32, bool), StoreError> {
    let mut ended = Vec::new();
    let mut noted = Vec::new();
    {
        let mut statement = work.conn.prepare_cached(BACKLOG)?;
        let mut rows = statement.query([max])?;
        while let Some(row) = rows.next()? {
            let parent = row::job_id(row, 0)?;
            noted.push(parent);
            // One that was requeued meanwhile lives, and its gates are closed again; one that somebody has
            // deleted holds nothing that could be judged.
            if row.get::<_, Option<i64>>(1)?.is_some() {
                let state = row::state(row, 1, parent)?;
                ended.extend(Some((parent, state)).filter(|(_, state)| state.is_terminal()));
            }
        }
    }
    let count = noted.len();
    if count == 0 {
        return Ok((0, false));
    }
    let noted = batch::ids(noted.into_iter());
    let touched = work.conn.prepare_cached(FORGET)?.execute(params![noted, count as i64])?;
    expect_touched("a backlog", touched, count)?;
    let resolved = resolve(work, ended, max)?;
    Ok((resolved, is_behind(work.conn)?))
}

/// Whether some parent has left gates.
///
/// # Errors
/// Faults.
pub(super) fn is_behind(conn: &Connection) -> Result<bool, StoreError> {
    Ok(conn.prepare_cached(SOME_BACKLOG)?.query_row([], |row| row.get(0))?)
}

/// Takes away what holds back jobs that have ended on their own.
///
/// # Errors
/// Faults.
pub(super) fn drop_gates_of(
    conn: &Connection,
    children: impl ExactSizeIterator<Item = JobId>,
) -> Result<(), StoreError> {
    let count = children.len();
    if count > 0 {
        let children = batch::ids(children);
        conn.prepare_cached(DROP_GATES)?.execute(params![children, count as i64])?;
    }
    Ok(())
}

/// A dependent as it stands while one of its gates is resolved.
#[derive(Debug, Clone)]
struct Child {
    seq: i64,
    state: JobState,
    rule: ParentRule,
    queue: Rc<str>,
    due_at: Timestamp,
    attempt: u32,
}

/// A gate with the dependent it holds back.
struct GateRow {
    parent: JobId,
    child: JobId,
    /// `None` where there is no such job.
    dependent: Option<Child>,
}

fn read_gates(conn: &Connection, parents: &[JobId], max: u32) -> Result<Vec<GateRow>, StoreError> {
    let mut statement = conn.prepare_cached(GATES)?;
    let ids = batch::ids(parents.iter().copied());
    let mut rows = statement.query(params![ids, parents.len() as i64, max])?;
    let mut queues = Names::default();
    let mut gates = Vec::new();
    while let Some(row) = rows.next()? {
        let child = row::job_id(row, 1)?;
        let dependent = match row.get::<_, Option<i64>>(2)? {
            Some(seq) => Some(decode(row, child, seq, &mut queues)?),
            None => None,
        };
        gates.push(GateRow { parent: row::job_id(row, 0)?, child, dependent });
    }
    Ok(gates)
}

fn decode(row: &Row<'_>, id: JobId, seq: i64, queues: &mut Names) -> Result<Child, StoreError> {
    Ok(Child {
        seq,
        state: row::state(row, 3, id)?,
        rule: row::parent_rule(row, 4, id)?,
        queue: queues.share(row, 5)?,
        due_at: row::time(row, 6)?,
        attempt: row.get(7)?,
    })
}

/// What becomes of the gates of one level.
#[derive(Debug, Default)]
struct Verdict {
    /// Gates that are open, with the dependents they belong to.
    open: BTreeSet<(JobId, JobId)>,
    /// Dependents of open gates only.
    waiting: BTreeMap<JobId, Child>,
    /// Dependents that can never run.
    failed: BTreeMap<JobId, Child>,
}

/// Judges the gates that were read for parents in these states.
fn judge(parents: &HashMap<JobId, JobState>, gates: Vec<GateRow>) -> Result<Verdict, StoreError> {
    let mut verdict = Verdict::default();
    for GateRow { parent, child, dependent } in gates {
        let Some(state) = parents.get(&parent) else {
            let message =
                format!("a gate of job {parent} was read, which is not among those ended");
            return Err(StoreError::found(InvariantTrigger::ParentJobMissingFromBatch, message));
        };
        let Some(dependent) = dependent else {
            let message = format!("job {parent} holds back job {child}, and there is none");
            return Err(StoreError::found(InvariantTrigger::DanglingGatingEdge, message));
        };
        if dependent.state != JobState::AwaitingParent {
            let state = dependent.state;
            let message = format!("job {parent} holds back job {child}, which is {state}");
            return Err(StoreError::found(InvariantTrigger::DanglingGatingEdge, message));
        }
        match dependent.rule.gate(*state) {
            Gate::Open => {
                verdict.open.insert((parent, child));
                verdict.waiting.insert(child, dependent);
            }
            Gate::Failed => {
                verdict.failed.insert(child, dependent);
            }
            // Only the ended are asked about.
            Gate::Closed => {}
        }
    }
    // One failed gate settles it; the others go with the dependent.
    verdict.waiting.retain(|child, _| !verdict.failed.contains_key(child));
    verdict.open.retain(|(_, child)| !verdict.failed.contains_key(child));
    Ok(verdict)
}

impl Verdict {
    /// Writes it; those that are Cancelled by it.
    fn carry_out(mut self, work: &mut Work<'_>) -> Result<Vec<(JobId, JobState)>, StoreError> {
        open_gates(work.conn, &self.open)?;
        drop_gates_of(work.conn, self.failed.keys().copied())?;
        for child in still_held(work.conn, self.waiting.keys().copied())? {
            self.waiting.remove(&child);
        }
        let now = work.now;
        write(work, SCHEDULE, "a release of dependents", &self.waiting)?;
        for (id, child) in &self.waiting {
            let due_at = child.due_at.max(now);
            work.changed(&child.change(*id, JobState::Scheduled));
            work.wake(&child.queue, due_at);
        }
        write(work, CANCEL, "a cancellation of dependents", &self.failed)?;
        for (id, child) in &self.failed {
            work.changed(&child.change(*id, JobState::Cancelled));
        }
        Ok(self.failed.into_keys().map(|id| (id, JobState::Cancelled)).collect())
    }
}

impl Child {
    fn change(&self, job: JobId, to: JobState) -> Change<'_> {
        Change {
            job,
            queue: &self.queue,
            from: Some(JobState::AwaitingParent),
            to,
            attempt: self.attempt,
            by: TransitionBy::Parent,
            worker: None,
            detail: None,
        }
    }
}

fn write(
    work: &Work<'_>,
    sql: &str,
    what: &str,
    children: &BTreeMap<JobId, Child>,
) -> Result<(), StoreError> {
    if children.is_empty() {
        return Ok(());
    }
    let seqs: Seqs = children.values().map(|child| child.seq).collect();
    let mut statement = work.conn.prepare_cached(sql)?;
    let touched = statement.execute(params![seqs.to_json(), work.now.as_micros()])?;
    expect_touched(what, touched, children.len())
}

fn open_gates(conn: &Connection, gates: &BTreeSet<(JobId, JobId)>) -> Result<(), StoreError> {
    if gates.is_empty() {
        return Ok(());
    }
    let mut records = Records::default();
    for (parent, child) in gates {
        records.bytes(parent.as_bytes());
        records.bytes(child.as_bytes());
    }
    let mut statement = conn.prepare_cached(OPEN_GATES)?;
    let touched = statement.execute(params![records.as_blob(), gates.len() as i64])?;
    expect_touched("an opening of gates", touched, gates.len())
}

/// Which of these jobs have a gate.
fn still_held(
    conn: &Connection,
    children: impl ExactSizeIterator<Item = JobId>,
) -> Result<Vec<JobId>, StoreError> {
    let count = children.len();
    let mut held = Vec::new();
    if count > 0 {
        let mut statement = conn.prepare_cached(STILL_HELD)?;
        let mut rows = statement.query(params![batch::ids(children), count as i64])?;
        while let Some(row) = rows.next()? {
            held.push(row::job_id(row, 0)?);
        }
    }
    Ok(held)
}

/// Leaves a note of those that have gates still.
fn note(conn: &Connection, parents: impl Iterator<Item = JobId>) -> Result<(), StoreError> {
    let ids = batch::ids(parents);
    let count = (ids.len() / 16) as i64;
    conn.prepare_cached(NOTE)?.execute(params![ids, count])?;
    Ok(())
}

const SOME_BACKLOG: &str = "SELECT EXISTS (SELECT 1 FROM main.backwave_latch_backlog)";

/// The gates of a batch of parents, in their order: `?1` holds `?2` ids, 16 bytes each.
pub(super) const GATES: &str = "WITH RECURSIVE place (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM place WHERE i + 1 < ?2) \
         SELECT g.parent, g.child, j.seq, j.state, j.parent_rule, j.queue, j.due_at, j.attempt \
           FROM place CROSS JOIN main.backwave_gates AS g ON g.parent = substr(?1, place.i * 16 + 1, 16) \
           LEFT JOIN main.backwave_jobs AS j ON j.id = g.child \
          LIMIT ?3";

/// Deletes gates: `?1` holds `?2` pairs of parent and child.
pub(super) const OPEN_GATES: &str = "WITH RECURSIVE place (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM place WHERE i + 1 < ?2) \
         DELETE FROM main.backwave_gates \
          WHERE (parent, child) IN ( \
                SELECT substr(?1, i * 32 + 1, 16), substr(?1, i * 32 + 17, 16) FROM place)";

/// Deletes every gate of some children: `?1` holds `?2` ids.
pub(super) const DROP_GATES: &str = "WITH RECURSIVE place (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM place WHERE i + 1 < ?2) \
         DELETE FROM main.backwave_gates WHERE child IN (SELECT substr(?1, i * 16 + 1, 16) FROM place)";

pub(super) const STILL_HELD: &str = "WITH RECURSIVE place (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM place WHERE i + 1 < ?2) \
         SELECT substr(?1, i * 16 + 1, 16) FROM place \
          WHERE EXISTS (SELECT 1 FROM main.backwave_gates WHERE child = substr(?1, i * 16 + 1, 16))";

/// `+state` asks the row itself, not an index that may be damaged.
const SCHEDULE: &str = "UPDATE main.backwave_jobs SET state = 0, due_at = max(due_at, ?2) \
          WHERE seq IN (SELECT value FROM json_each(?1)) AND +state = 1";

const CANCEL: &str = "UPDATE main.backwave_jobs SET state = 6, finished_at = ?2 \
          WHERE seq IN (SELECT value FROM json_each(?1)) AND +state = 1";

const NOTE: &str = "WITH RECURSIVE place (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM place WHERE i + 1 < ?2) \
         INSERT INTO main.backwave_latch_backlog (parent) \
         SELECT substr(?1, i * 16 + 1, 16) FROM place \
          WHERE EXISTS (SELECT 1 FROM main.backwave_gates WHERE parent = substr(?1, i * 16 + 1, 16)) \
             ON CONFLICT DO NOTHING";

pub(super) const BACKLOG: &str = "SELECT b.parent, j.state FROM main.backwave_latch_backlog AS b \
           LEFT JOIN main.backwave_jobs AS j ON j.id = b.parent \
          ORDER BY b.parent LIMIT ?1";

const FORGET: &str = "WITH RECURSIVE place (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM place WHERE i + 1 < ?2) \
         DELETE FROM main.backwave_latch_backlog WHERE parent IN (SELECT substr(?1, i * 16 + 1, 16) FROM place)";

#[cfg(test)]
mod tests {
    use super::*;

    fn row(parent: JobId) -> GateRow {
        let dependent = Child {
            seq: 1,
            state: JobState::AwaitingParent,
            rule: ParentRule::OnSuccess,
            queue: Rc::from("q"),
            due_at: Timestamp::EPOCH,
            attempt: 0,
        };
        GateRow { parent, child: JobId::new(), dependent: Some(dependent) }
    }

    fn trigger(gate: GateRow, ended: JobId) -> Option<InvariantTrigger> {
        let parents = HashMap::from([(ended, JobState::Succeeded)]);
        judge(&parents, vec![gate]).err().and_then(|error| error.counted().trigger())
    }

    #[test]
    fn a_gate_must_be_of_a_parent_asked_about_and_of_a_dependent_that_waits() {
        let parent = JobId::new();
        assert_eq!(trigger(row(parent), parent), None);
        let missing = Some(InvariantTrigger::ParentJobMissingFromBatch);
        assert_eq!(trigger(row(JobId::new()), parent), missing);
        let dangling = Some(InvariantTrigger::DanglingGatingEdge);
        assert_eq!(trigger(GateRow { dependent: None, ..row(parent) }, parent), dangling);
        let mut running = row(parent);
        running.dependent.iter_mut().for_each(|child| child.state = JobState::Leased);
        assert_eq!(trigger(running, parent), dangling);
    }
}
