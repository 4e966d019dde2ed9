//! How jobs come in: on a session of ours, or inside a caller's transaction.

use super::PostgresStore;
use super::claim::bounded_us;
use super::fault::fault;
use super::session::{Batch, Call, Malformed, Params, PostgresSession, one};
use super::types::Private;
use crate::store::{Due, EnqueueAnswer, JobRow, Rejection, StoreError, check_rows};
use crate::{JobId, Timestamp};
use ::postgres::types::{ToSql, Type};
use ::postgres::{Row, Transaction};
use std::collections::HashSet;

pub(super) const ENQUEUE: &str = "SELECT new_ids, store_time, rejected FROM {schema}.enqueue_v2(\
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)";

/// The types of the parameters, for a connection that has not prepared the statement.
const TYPES: [Type; 19] = [
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
    let (now, history) = (session.store.clock_time(), session.store.history);
    if rows.len() <= CHUNK {
        let columns = EnqueueColumns::new(rows, history);
        let row = session.query_one(Call::Enqueue, &columns.params(&now))?;
        return unpack(rows, &columns.edges, &row);
    }
    session.in_transaction_if(&[Call::Enqueue], |tx| {
        let answer = by_chunks(rows, |chunk| enqueue_within(tx, chunk, history, now))?;
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
    let columns = EnqueueColumns::new(rows, history);
    let row = one(tx.query(Call::Enqueue, &columns.params(&now))?)?;
    unpack(rows, &columns.edges, &row)
}

/// So many jobs go in one statement: a call of any size stays within the time that a statement may take, and
/// in bounded memory beside the caller's own.
const CHUNK: usize = 5_000;

/// Enqueues chunk after chunk, up to the first that is refused.
fn by_chunks<'a>(
    rows: &'a [JobRow],
    mut enqueue: impl FnMut(&'a [JobRow]) -> Result<EnqueueAnswer, StoreError>,
) -> Result<EnqueueAnswer, StoreError> {
    let mut all = Vec::with_capacity(rows.len());
    let mut first = None;
    for chunk in rows.chunks(CHUNK) {
        match enqueue(chunk)? {
            EnqueueAnswer::Accepted { is_new, store_time } => {
                all.extend(is_new);
                first.get_or_insert(store_time);
            }
            EnqueueAnswer::Rejected { index, reason } => {
                return Ok(EnqueueAnswer::Rejected { index: all.len() + index, reason });
            }
        }
    }
    let store_time = first.unwrap_or(Timestamp::EPOCH);
    Ok(EnqueueAnswer::Accepted { is_new: all, store_time })
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
        if rows.len() <= CHUNK {
            return self.enqueue_chunk_in(tx, rows);
        }
        // A chunk that is refused takes those before it along.
        let mut inner = tx.transaction().map_err(fault)?;
        let answer = by_chunks(rows, |chunk| self.enqueue_chunk_in(&mut inner, chunk))?;
        let is_whole = matches!(answer, EnqueueAnswer::Accepted { .. });
        let end = if is_whole { inner.commit() } else { inner.rollback() };
        end.map_err(fault)?;
        Ok(answer)
    }

    fn enqueue_chunk_in(
        &self,
        tx: &mut Transaction<'_>,
        rows: &[JobRow],
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

/// The rows of an enqueue, column by column and by ascending id.
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
    schedules: Vec<Option<&'a str>>,
    ticks: Vec<Option<Timestamp>>,
    edges: Edges,
    history: i16,
}

impl<'a> EnqueueColumns<'a> {
    fn new(rows: &'a [JobRow], history: i16) -> Self {
        let mut sorted: Vec<&JobRow> = rows.iter().collect();
        // Stable: of two rows with one id the first is kept.
        sorted.sort_by_key(|row| row.id);
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
    fn of(rows: &[JobRow]) -> Self {
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
fn tags_json(tags: &[String]) -> Option<String> {
    if tags.is_empty() {
        return None;
    }
    // A list of strings always serialises.
    serde_json::to_string(tags).ok()
}

fn unpack(rows: &[JobRow], edges: &Edges, row: &Row) -> Result<EnqueueAnswer, StoreError> {
    if let Some(place) = row.try_get::<_, Option<i32>>(2).map_err(fault)? {
        return match edges.rejection(place) {
            Some((index, reason)) => Ok(EnqueueAnswer::Rejected { index, reason }),
            None => Err(StoreError::new(Malformed(format!("edge {place} is refused")))),
        };
    }
    let new_ids: Option<Vec<JobId>> = row.try_get(0).map_err(fault)?;
    let store_time = row.try_get(1).map_err(fault)?;
    let mut new_ids: HashSet<JobId> = new_ids.unwrap_or_default().into_iter().collect();
    // Taken out as told, so that an id named twice is new once.
    let is_new = rows.iter().map(|row| new_ids.remove(&row.id)).collect();
    Ok(EnqueueAnswer::Accepted { is_new, store_time })
}
