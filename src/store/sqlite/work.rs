//! One write transaction: the connection, the time, and what a write leaves besides the rows of its jobs.
//!
//! Every change of a job's state passes through [`Work::changed`]. So the counts of what has ended and the
//! history follow from one place, and each costs one statement a transaction, or none.

use super::batch::{Heap, Records};
use super::locked::expect_touched;
use super::{Inner, migrate};
use crate::JobState;
use crate::kernel::text;
use crate::store::{ACTOR_BYTES_MAX, AuditAction, HistoryPolicy, StoreError, TransitionBy};
use crate::{JobId, Timestamp, WorkerId};
use rusqlite::{Connection, params};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A write transaction under way.
pub(super) struct Work<'a> {
    /// Inside the transaction, as a writer.
    pub(super) conn: &'a Connection,
    /// The store's time, read under the write lock.
    pub(super) now: Timestamp,
    /// Whether anybody waits for a parent: where nobody does, no end is asked about.
    pub(super) has_gates: bool,
    /// Whether any queue was ever set: where none was, no claim asks how its queues are.
    pub(super) has_settings: bool,
    /// Whether any job ever had a concurrency key: where none had, no claim asks about keys.
    pub(super) has_keys: bool,
    /// Whether any observer is registered: then every change of state is kept.
    pub(super) has_observers: bool,
    history: HistoryPolicy,
    transitions: Transitions,
    ended: EndedCounts,
    audit: Audit,
    wakes: Wakes,
}

/// One job's change of state.
pub(super) struct Change<'a> {
    pub(super) job: JobId,
    pub(super) queue: &'a str,
    /// None for a birth.
    pub(super) from: Option<JobState>,
    pub(super) to: JobState,
    /// The job's attempt after it.
    pub(super) attempt: u32,
    pub(super) by: TransitionBy,
    /// Who took or lost the lease.
    pub(super) worker: Option<WorkerId>,
    pub(super) detail: Option<&'a str>,
}

/// When each queue has something due that nobody else tells of; to be told after the commit.
pub(super) type Wakes = BTreeMap<Rc<str>, Timestamp>;

impl<'a> Work<'a> {
    /// Looks, by one statement, whether this code may write here still and what it need not ask about.
    ///
    /// # Errors
    /// [`SqliteFault::SchemaTooNew`](super::SqliteFault::SchemaTooNew), and faults.
    pub(super) fn begin(conn: &'a Connection, store: &Inner) -> Result<Self, StoreError> {
        let (min_reader, has_gates, has_settings, has_keys, has_observers) =
            conn.prepare_cached(LOOK)?.query_row([], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
            })?;
        if !migrate::is_readable(min_reader) {
            migrate::require_readable(conn, &store.path)?;
        }
        Ok(Self {
            conn,
            now: store.now(),
            has_gates,
            has_settings,
            has_keys,
            has_observers,
            history: store.history,
            transitions: Transitions::default(),
            ended: EndedCounts::default(),
            audit: Audit::default(),
            wakes: Wakes::new(),
        })
    }

    /// Notes a change of state for the counts and the history.
    pub(super) fn changed(&mut self, change: &Change<'_>) {
        if let Some(from) = change.from.filter(|from| from.is_terminal()) {
            self.ended.add(change.queue, from, -1);
        }
        if change.to.is_terminal() {
            self.ended.add(change.queue, change.to, 1);
        }
        match self.history {
            HistoryPolicy::Off if !self.has_observers => {}
            HistoryPolicy::Off | HistoryPolicy::Transitions => self.transitions.add(change, None),
            HistoryPolicy::WithFailureDetail => self.transitions.add(change, change.detail),
        }
    }

    /// Notes what an operator did. One transaction is one operator's.
    pub(super) fn audited(
        &mut self,
        actor: &str,
        action: AuditAction,
        job: Option<JobId>,
        queue: &str,
    ) {
        self.audit.add(actor, action, job, queue);
    }

    /// Says that `queue` has something due at `due_at` that is not part of the answer.
    pub(super) fn wake(&mut self, queue: &Rc<str>, due_at: Timestamp) {
        let earliest = self.wakes.entry(Rc::clone(queue)).or_insert(due_at);
        *earliest = due_at.min(*earliest);
    }

    /// Writes what was noted; to be followed by the commit, and that by the wakes.
    ///
    /// # Errors
    /// Faults, and a write that did not touch the rows it was meant for.
    pub(super) fn finish(self) -> Result<Wakes, StoreError> {
        self.ended.write(self.conn)?;
        self.transitions.write(self.conn, self.now)?;
        self.audit.write(self.conn, self.now)?;
        Ok(self.wakes)
    }
}

/// By how much the counts of ended jobs change: of each state by its code, by queue.
#[derive(Default)]
struct EndedCounts([BTreeMap<String, i64>; JobState::ALL.len()]);

impl EndedCounts {
    fn add(&mut self, queue: &str, state: JobState, by: i64) {
        let Some(counts) = self.0.get_mut(state as usize) else { return };
        match counts.get_mut(queue) {
            Some(count) => *count += by,
            None => {
                counts.insert(queue.to_owned(), by);
            }
        }
    }

    fn write(&self, conn: &Connection) -> Result<(), StoreError> {
        let entries: Vec<serde_json::Value> = JobState::ALL
            .into_iter()
            .zip(&self.0)
            .flat_map(|(state, counts)| {
                let code = state.code();
                counts.iter().map(move |(queue, by)| serde_json::json!([queue, code, by]))
            })
            .collect();
        if entries.is_empty() {
            return Ok(());
        }
        let count = entries.len();
        let entries = serde_json::Value::from(entries).to_string();
        let touched = conn.prepare_cached(COUNT_ENDED)?.execute([entries])?;
        expect_touched("a count of what has ended", touched, count)
    }
}

/// Changes of state, on their way into one statement.
#[derive(Default)]
struct Transitions {
    records: Records,
    heap: Heap,
    count: usize,
}

impl Transitions {
    fn add(&mut self, change: &Change<'_>, detail: Option<&str>) {
        let code = |state: JobState| i64::from(state.code());
        let detail = detail.map(|text| self.heap.push(text.as_bytes()));
        let worker = change.worker.map_or([0; 16], WorkerId::to_bytes);
        self.records.number(change.from.map_or(-1, code));
        self.records.number(code(change.to));
        self.records.number(i64::from(change.attempt));
        self.records.number(i64::from(change.by.code()));
        self.records.span(detail);
        self.records.number(i64::from(change.worker.is_some()));
        self.records.bytes(&worker);
        self.records.bytes(change.job.as_bytes());
        self.count += 1;
    }

    fn write(&self, conn: &Connection, now: Timestamp) -> Result<(), StoreError> {
        if self.records.is_empty() {
            return Ok(());
        }
        let (records, heap) = (self.records.as_blob(), self.heap.as_blob());
        let mut statement = conn.prepare_cached(KEEP_TRANSITIONS)?;
        let touched = statement.execute(params![records, heap, now.as_micros()])?;
        expect_touched("a history", touched, self.count)
    }
}

/// What an operator did, on its way into one statement.
#[derive(Default)]
struct Audit {
    actor: String,
    records: Records,
    heap: Heap,
    count: usize,
}

impl Audit {
    fn add(&mut self, actor: &str, action: AuditAction, job: Option<JobId>, queue: &str) {
        if self.count == 0 {
            self.actor = text::clean(actor, ACTOR_BYTES_MAX);
        }
        let limit = match action {
            AuditAction::Limit(limit) | AuditAction::KeyLimit(limit) => limit.map_or(-1, i64::from),
            _ => -1,
        };
        let queue = self.heap.push(queue.as_bytes());
        self.records.number(i64::from(action.code()));
        self.records.number(limit);
        self.records.span(Some(queue));
        self.records.number(i64::from(job.is_some()));
        self.records.bytes(&job.map_or([0; 16], JobId::to_bytes));
        self.count += 1;
    }

    fn write(&self, conn: &Connection, now: Timestamp) -> Result<(), StoreError> {
        if self.records.is_empty() {
            return Ok(());
        }
        let (records, heap) = (self.records.as_blob(), self.heap.as_blob());
        let mut statement = conn.prepare_cached(KEEP_AUDIT)?;
        let touched = statement.execute(params![records, heap, now.as_micros(), self.actor])?;
        expect_touched("an audit", touched, self.count)
    }
}

/// What a write asks before anything else: of each table its first row at most.
pub(super) const LOOK: &str = "SELECT (SELECT min_reader FROM main.backwave_meta), \
                EXISTS (SELECT 1 FROM main.backwave_gates), \
                EXISTS (SELECT 1 FROM main.backwave_queues), \
                EXISTS (SELECT 1 FROM main.backwave_keyed_queues), \
                EXISTS (SELECT 1 FROM main.backwave_observers)";

/// `?1` is a JSON array of queue, state and difference. (`WHERE true` tells the engine that `ON` begins no
/// join.)
pub(super) const COUNT_ENDED: &str = "INSERT INTO main.backwave_ended_counts AS c (queue, state, jobs) \
         SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1) WHERE true \
             ON CONFLICT (queue, state) DO UPDATE SET jobs = c.jobs + excluded.jobs";

/// `?1` holds records of 172 bytes, seven cells of 20, the holder and the job; `?2` the details; `?3` is the
/// time.
const KEEP_TRANSITIONS: &str = "WITH RECURSIVE record (place) AS ( \
             SELECT 0 UNION ALL SELECT place + 172 FROM record WHERE place + 172 < length(?1)) \
         INSERT INTO main.backwave_transitions \
             (job, at, from_state, to_state, attempt, by_whom, worker, detail) \
         SELECT substr(?1, place + 157, 16), ?3, \
                nullif(CAST(substr(?1, place + 1, 20) AS INTEGER), -1), \
                CAST(substr(?1, place + 21, 20) AS INTEGER), \
                CAST(substr(?1, place + 41, 20) AS INTEGER), \
                CAST(substr(?1, place + 61, 20) AS INTEGER), \
                CASE WHEN CAST(substr(?1, place + 121, 20) AS INTEGER) THEN substr(?1, place + 141, 16) END, \
                CASE WHEN CAST(substr(?1, place + 101, 20) AS INTEGER) >= 0 \
                     THEN COALESCE(CAST(substr(?2, CAST(substr(?1, place + 81, 20) AS INTEGER) + 1, \
                                               CAST(substr(?1, place + 101, 20) AS INTEGER)) AS TEXT), '') END \
           FROM record";

/// `?1` holds records of 116 bytes, five cells of 20 and the job; `?2` the names of queues; `?3` is the time,
/// `?4` the operator.
const KEEP_AUDIT: &str = "WITH RECURSIVE record (place) AS ( \
             SELECT 0 UNION ALL SELECT place + 116 FROM record WHERE place + 116 < length(?1)) \
         INSERT INTO main.backwave_audit (at, actor, action, concurrency_limit, job, queue) \
         SELECT ?3, ?4, \
                CAST(substr(?1, place + 1, 20) AS INTEGER), \
                nullif(CAST(substr(?1, place + 21, 20) AS INTEGER), -1), \
                CASE WHEN CAST(substr(?1, place + 81, 20) AS INTEGER) THEN substr(?1, place + 101, 16) END, \
                COALESCE(CAST(substr(?2, CAST(substr(?1, place + 41, 20) AS INTEGER) + 1, \
                                     CAST(substr(?1, place + 61, 20) AS INTEGER)) AS TEXT), '') \
           FROM record";
