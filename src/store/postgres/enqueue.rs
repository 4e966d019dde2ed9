//! How jobs come in: on a session of ours, or inside a caller's transaction.

use super::PostgresStore;
use super::claim::bounded_us;
use super::fault::fault;
use super::fresh;
use super::reads::state_of;
use super::rounds::Rounds;
use super::session::{Batch, Call, Malformed, Params, PostgresSession, one};
use super::types::Private;
use crate::store::{Admission, Due, EnqueueAnswer, JobRow, Rejection, StoreError, check_rows};
use crate::{JobId, Timestamp};
use ::postgres::types::{ToSql, Type};
use ::postgres::{Row, Transaction};
use std::collections::{HashMap, HashSet};

pub(super) const ENQUEUE: &str = "SELECT new_ids, store_time, rejected, held_ids, held_by, held_states \
    FROM {schema}.enqueue_v2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, \
    $21)";

/// The types of the parameters, for a connection that has not prepared the statement.
const TYPES: [Type; 21] = [
    Type::UUID_ARRAY,
    Type::TEXT_ARRAY,
    Type::INT4_ARRAY,
    Type::TEXT_ARRAY,
    Type::BYTEA_ARRAY,
    Type::TIMESTAMPTZ_ARRAY,
    Type::INT8_ARRAY,
    Type::TEXT_ARRAY,
    Type::INT8_ARRAY,
    Type::TEXT_ARRAY,
    Type::INT2_ARRAY,
    Type::TEXT_ARRAY,
    Type::TEXT_ARRAY,
    Type::TEXT_ARRAY,
    Type::TIMESTAMPTZ_ARRAY,
    Type::UUID_ARRAY,
    Type::UUID_ARRAY,
    Type::INT2_ARRAY,
    Type::BOOL_ARRAY,
    Type::INT2,
    Type::TIMESTAMPTZ,
];

pub(super) fn enqueue(
    session: &mut PostgresSession,
    rows: &[JobRow],
) -> Result<EnqueueAnswer, StoreError> {
    if let Err((index, reason)) =
        check_rows(rows, &session.store.bounds, session.store.rough_time())
    {
        return Ok(EnqueueAnswer::Rejected { index, reason });
    }
    if let Some(answer) = fresh::enqueue(session, rows)? {
        return Ok(answer);
    }
    let (now, history) = (session.store.clock_time(), session.store.history);
    let mut parts = Parts::of(rows);
    let first = parts.next();
    if parts.is_over() {
        let columns = EnqueueColumns::new(&first.rows, history);
        let row = session.query_one(Call::Enqueue, &columns.params(&now))?;
        let answer = unpack(&first.rows, &columns.edges, &row)?;
        return Ok(parts.take_in(first, answer).unwrap_or_else(|| parts.finish()));
    }
    session.in_transaction_if(&[Call::Enqueue], |tx| {
        let answer = by_parts(parts, first, |part| send(tx, part, history, now))?;
        let commits = matches!(answer, EnqueueAnswer::Accepted { .. });
        Ok((answer, commits))
    })
}

/// Enqueues within a transaction that was begun for it. One call of it is all or nothing.
pub(super) fn enqueue_within(
    tx: &mut Batch<'_>,
    rows: &[JobRow],
    history: i16,
    now: Option<Timestamp>,
) -> Result<EnqueueAnswer, StoreError> {
    let mut parts = Parts::of(rows);
    let first = parts.next();
    by_parts(parts, first, |part| send(tx, part, history, now))
}

fn send(
    tx: &mut Batch<'_>,
    part: &[&JobRow],
    history: i16,
    now: Option<Timestamp>,
) -> Result<EnqueueAnswer, StoreError> {
    let columns = EnqueueColumns::new(part, history);
    let row = one(tx.query(Call::Enqueue, &columns.params(&now))?)?;
    unpack(part, &columns.edges, &row)
}

/// So many jobs go in one statement: a call of any size stays within the time that a statement may take, and
/// in bounded memory beside the caller's own.
pub(super) const CHUNK: usize = 5_000;

/// A call, part by part.
enum Parts<'a> {
    /// Without unique keys: chunk after chunk.
    Chunks {
        rows: &'a [JobRow],
        sent: usize,
        jobs: Vec<Admission>,
        at: Option<Timestamp>,
    },
    Rounds {
        rounds: Rounds<'a>,
        at: Option<Timestamp>,
    },
}

/// What one statement stores.
struct Part<'a> {
    rows: Vec<&'a JobRow>,
    /// Their places in the call.
    places: Vec<usize>,
}

impl<'a> Parts<'a> {
    fn of(rows: &'a [JobRow]) -> Self {
        if rows.iter().all(|row| row.unique_key.is_none()) {
            return Self::Chunks { rows, sent: 0, jobs: Vec::new(), at: None };
        }
        Self::Rounds { rounds: Rounds::new(rows), at: None }
    }

    fn next(&mut self) -> Part<'a> {
        match self {
            Self::Chunks { rows, sent, .. } => {
                let end = rows.len().min(*sent + CHUNK);
                let places = (*sent..end).collect();
                let part = Part { rows: rows[*sent..end].iter().collect(), places };
                *sent = end;
                part
            }
            Self::Rounds { rounds, .. } => {
                let places = rounds.next(CHUNK);
                Part { rows: places.iter().map(|place| rounds.row(*place)).collect(), places }
            }
        }
    }

    fn is_over(&self) -> bool {
        match self {
            Self::Chunks { rows, sent, .. } => *sent == rows.len(),
            Self::Rounds { rounds, .. } => rounds.is_over(),
        }
    }

    /// Takes in what became of a part; the answer, where that is a rejection.
    fn take_in(&mut self, part: Part<'_>, answer: EnqueueAnswer) -> Option<EnqueueAnswer> {
        let (answers, store_time) = match answer {
            EnqueueAnswer::Accepted { jobs, store_time } => (jobs, store_time),
            EnqueueAnswer::Rejected { index, reason } => {
                let index = part.places.get(index).copied().unwrap_or(index);
                return Some(EnqueueAnswer::Rejected { index, reason });
            }
        };
        let at = match self {
            Self::Chunks { jobs, at, .. } => {
                jobs.extend(answers);
                at
            }
            Self::Rounds { rounds, at } => {
                rounds.note(&part.places, answers);
                at
            }
        };
        at.get_or_insert(store_time);
        None
    }

    fn finish(self) -> EnqueueAnswer {
        let (jobs, at) = match self {
            Self::Chunks { jobs, at, .. } => (jobs, at),
            Self::Rounds { rounds, at } => (rounds.finish(), at),
        };
        EnqueueAnswer::Accepted { jobs, store_time: at.unwrap_or(Timestamp::EPOCH) }
    }
}

/// Enqueues part after part, from `first` up to the first that is refused.
fn by_parts<'a>(
    mut parts: Parts<'a>,
    first: Part<'a>,
    mut enqueue: impl FnMut(&[&'a JobRow]) -> Result<EnqueueAnswer, StoreError>,
) -> Result<EnqueueAnswer, StoreError> {
    let mut part = first;
    loop {
        let answer = enqueue(&part.rows)?;
        if let Some(rejected) = parts.take_in(part, answer) {
            return Ok(rejected);
        }
        if parts.is_over() {
            return Ok(parts.finish());
        }
        part = parts.next();
    }
}

impl PostgresStore {
    /// Adds jobs within the caller's transaction, on the caller's connection and thread: if it is rolled
    /// back, they never were. After an error the transaction is aborted.
    pub(crate) fn enqueue_rows_in(
        &self,
        tx: &mut Transaction<'_>,
        rows: &[JobRow],
    ) -> Result<EnqueueAnswer, StoreError> {
        let store = &self.inner;
        if let Err((index, reason)) = check_rows(rows, &store.bounds, store.rough_time()) {
            return Ok(EnqueueAnswer::Rejected { index, reason });
        }
        let mut parts = Parts::of(rows);
        let first = parts.next();
        if parts.is_over() {
            let answer = self.enqueue_part_in(tx, &first.rows)?;
            return Ok(parts.take_in(first, answer).unwrap_or_else(|| parts.finish()));
        }
        // A part that is refused takes those before it along.
        let mut inner = tx.transaction().map_err(fault)?;
        let answer = by_parts(parts, first, |part| self.enqueue_part_in(&mut inner, part))?;
        let is_whole = matches!(answer, EnqueueAnswer::Accepted { .. });
        let end = if is_whole { inner.commit() } else { inner.rollback() };
        end.map_err(fault)?;
        Ok(answer)
    }

    fn enqueue_part_in(
        &self,
        tx: &mut Transaction<'_>,
        rows: &[&JobRow],
    ) -> Result<EnqueueAnswer, StoreError> {
        let store = &self.inner;
        let now = store.clock_time();
        let columns = EnqueueColumns::new(rows, store.history);
        let params = columns.params(&now);
        let typed: Vec<_> = params.into_iter().zip(TYPES).collect();
        // Not prepared: the connection is the caller's, and may stand behind a pooler.
        let answer = tx.query_typed(&store.schema.fill(ENQUEUE), &typed).map_err(fault)?;
        unpack(rows, &columns.edges, &one(answer)?)
    }
}

/// The rows of an enqueue, column by column and by ascending key and id.
struct EnqueueColumns<'a> {
    ids: Vec<JobId>,
    wire_names: Vec<&'a str>,
    versions: Vec<i32>,
    queues: Vec<&'a str>,
    payloads: Vec<Private<'a>>,
    dues: Vec<Option<Timestamp>>,
    delays_us: Vec<Option<i64>>,
    retries: Vec<Option<String>>,
    timeouts_us: Vec<Option<i64>>,
    tags: Vec<Option<String>>,
    rules: Vec<i16>,
    unique_keys: Vec<Option<&'a str>>,
    concurrency_keys: Vec<Option<&'a str>>,
    schedules: Vec<Option<&'a str>>,
    ticks: Vec<Option<Timestamp>>,
    edges: Edges,
    history: i16,
}

impl<'a> EnqueueColumns<'a> {
    fn new(rows: &[&'a JobRow], history: i16) -> Self {
        let mut sorted: Vec<&'a JobRow> = rows.to_vec();
        // Stable: of two rows with one id the first is kept.
        sorted.sort_by_key(|row| (row.unique_key.as_deref(), row.id));
        let ticks = sorted.iter().map(|row| row.tick.as_ref());
        Self {
            ids: sorted.iter().map(|row| row.id).collect(),
            wire_names: sorted.iter().map(|row| row.wire_name.as_str()).collect(),
            // Checked to be in range.
            versions: sorted
                .iter()
                .map(|row| i32::try_from(row.version).unwrap_or(i32::MAX))
                .collect(),
            queues: sorted.iter().map(|row| row.queue.as_str()).collect(),
            payloads: sorted.iter().map(|row| Private(row.payload.as_bytes())).collect(),
            dues: sorted
                .iter()
                .map(|row| if let Due::At(time) = row.due { Some(time) } else { None })
                .collect(),
            delays_us: sorted
                .iter()
                .map(
                    |row| if let Due::In(delay) = row.due { Some(bounded_us(delay)) } else { None },
                )
                .collect(),
            retries: sorted
                .iter()
                .map(|row| row.retry.as_ref().map(crate::RetryPolicy::to_stored))
                .collect(),
            timeouts_us: sorted.iter().map(|row| row.timeout.map(bounded_us)).collect(),
            tags: sorted.iter().map(|row| tags_json(&row.tags)).collect(),
            rules: sorted.iter().map(|row| row.parent_rule.code()).collect(),
            unique_keys: sorted.iter().map(|row| row.unique_key.as_deref()).collect(),
            concurrency_keys: sorted.iter().map(|row| row.concurrency_key.as_deref()).collect(),
            schedules: ticks.clone().map(|tick| tick.map(|tick| tick.schedule.as_str())).collect(),
            ticks: ticks.map(|tick| tick.map(|tick| tick.at)).collect(),
            edges: Edges::of(rows),
            history,
        }
    }

    fn params<'b>(&'b self, now: &'b Option<Timestamp>) -> Vec<&'b (dyn ToSql + Sync)> {
        let params: &Params<'b> = &[
            &self.ids,
            &self.wire_names,
            &self.versions,
            &self.queues,
            &self.payloads,
            &self.dues,
            &self.delays_us,
            &self.retries,
            &self.timeouts_us,
            &self.tags,
            &self.rules,
            &self.unique_keys,
            &self.concurrency_keys,
            &self.schedules,
            &self.ticks,
            &self.edges.children,
            &self.edges.parents,
            &self.edges.places,
            &self.edges.later,
            &self.history,
            now,
        ];
        params.to_vec()
    }
}

/// Which jobs of a call depend on which others, in the order of the call.
#[derive(Default)]
struct Edges {
    children: Vec<JobId>,
    parents: Vec<JobId>,
    /// The place among the parents of that dependent.
    places: Vec<i16>,
    /// Whether the parent stands behind its dependent in the call.
    later: Vec<bool>,
    /// The dependent's row.
    rows: Vec<usize>,
}

impl Edges {
    fn of(rows: &[&JobRow]) -> Self {
        let mut edges = Self::default();
        if rows.iter().all(|row| row.parents.is_empty()) {
            return edges;
        }
        let mut seen = HashSet::with_capacity(rows.len());
        let in_call: HashSet<JobId> = rows.iter().map(|row| row.id).collect();
        for (index, row) in rows.iter().enumerate() {
            // Of two rows with one id the first is kept, and its parents with it.
            if seen.contains(&row.id) {
                continue;
            }
            for (place, parent) in (0..).zip(row.distinct_parents()) {
                edges.children.push(row.id);
                edges.parents.push(parent);
                edges.places.push(place);
                edges.later.push(in_call.contains(&parent) && !seen.contains(&parent));
                edges.rows.push(index);
            }
            seen.insert(row.id);
        }
        edges
    }

    /// What is refused where the parent of the edge at that place, from 1, is not there.
    fn rejection(&self, place: i32) -> Option<(usize, Rejection)> {
        let edge = usize::try_from(place).ok()?.checked_sub(1)?;
        let parent = *self.parents.get(edge)?;
        Some((*self.rows.get(edge)?, Rejection::UnknownParent { parent }))
    }
}

/// Arrays of arrays are rectangular in Postgres, tags are not: they travel as JSON.
pub(super) fn tags_json(tags: &[String]) -> Option<String> {
    if tags.is_empty() {
        return None;
    }
    // A list of strings always serialises.
    serde_json::to_string(tags).ok()
}

fn unpack(rows: &[&JobRow], edges: &Edges, row: &Row) -> Result<EnqueueAnswer, StoreError> {
    if let Some(place) = row.try_get::<_, Option<i32>>(2).map_err(fault)? {
        return match edges.rejection(place) {
            Some((index, reason)) => Ok(EnqueueAnswer::Rejected { index, reason }),
            None => Err(StoreError::new(Malformed(format!("edge {place} is refused")))),
        };
    }
    let new_ids: Option<Vec<JobId>> = row.try_get(0).map_err(fault)?;
    let store_time = row.try_get(1).map_err(fault)?;
    let mut new_ids: HashSet<JobId> = new_ids.unwrap_or_default().into_iter().collect();
    let held = held(row)?;
    // Taken out as told, so that an id named twice is new once.
    let told = |row: &&JobRow| match held.get(&row.id) {
        Some(held) => *held,
        None if new_ids.remove(&row.id) => Admission::New,
        None => Admission::Duplicate,
    };
    Ok(EnqueueAnswer::Accepted { jobs: rows.iter().map(told).collect(), store_time })
}

/// The jobs that were not stored because of their keys.
fn held(row: &Row) -> Result<HashMap<JobId, Admission>, StoreError> {
    let Some(ids) = row.try_get::<_, Option<Vec<JobId>>>(3).map_err(fault)? else {
        return Ok(HashMap::new());
    };
    let by: Option<Vec<JobId>> = row.try_get(4).map_err(fault)?;
    let states: Option<Vec<i16>> = row.try_get(5).map_err(fault)?;
    let holders = by.unwrap_or_default().into_iter().zip(states.unwrap_or_default());
    let held = ids.into_iter().zip(holders);
    held.map(|(id, (by, code))| Ok((id, Admission::Held { by, state: state_of(code)? }))).collect()
}
