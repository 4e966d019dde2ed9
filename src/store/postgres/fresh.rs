//! The short way in, for jobs of new ids without parents, keys and ticks: what nearly all jobs are.
//!
//! Whether their ids are new is what the database finds, by a look and by its own unique index; where one is
//! not, nothing of the call is left, and it is made again the [long way](super::enqueue), which can tell which.

use super::claim::bounded_us;
use super::enqueue::{CHUNK, tags_json};
use super::fault::is_unique_violation;
use super::session::{Call, Params, PostgresSession, one};
use super::types::Private;
use crate::store::{Admission, Due, EnqueueAnswer, JobRow, StoreError};
use crate::{JobId, ParentRule, Timestamp};
use ::postgres::Row;

pub(super) const ENQUEUE_FRESH: &str = "SELECT is_fresh, store_time \
    FROM {schema}.enqueue_fresh_v2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";

/// Enqueues a call, if all of its jobs are new; otherwise nothing has come of it.
pub(super) fn enqueue(
    session: &mut PostgresSession,
    rows: &[JobRow],
) -> Result<Option<EnqueueAnswer>, StoreError> {
    if rows.is_empty() || !rows.iter().all(is_plain) {
        return Ok(None);
    }
    let mut sorted: Vec<&JobRow> = rows.iter().collect();
    sorted.sort_unstable_by_key(|row| row.id);
    let (now, history) = (session.store.clock_time(), session.store.history);
    let at = if sorted.len() <= CHUNK {
        send(&sorted, history, now, |params| session.query_one(Call::EnqueueFresh, params))
    } else {
        session.in_transaction_if(&[Call::EnqueueFresh], |tx| {
            let mut at = None;
            for part in sorted.chunks(CHUNK) {
                let query = |params: &Params<'_>| one(tx.query(Call::EnqueueFresh, params)?);
                let Some(sent) = send(part, history, now, query)? else { return Ok((None, false)) };
                at.get_or_insert(sent);
            }
            Ok((at, true))
        })
    };
    match at {
        Ok(at) => Ok(at.map(|store_time| EnqueueAnswer::Accepted {
            jobs: vec![Admission::New; rows.len()],
            store_time,
        })),
        Err(error) if is_unique_violation(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

const fn is_plain(row: &JobRow) -> bool {
    row.parents.is_empty()
        && matches!(row.parent_rule, ParentRule::OnSuccess)
        && row.unique_key.is_none()
        && row.concurrency_key.is_none()
        && row.tick.is_none()
}

/// Stores jobs by ascending id; when, or nothing where one of them is known.
fn send(
    rows: &[&JobRow],
    history: i16,
    now: Option<Timestamp>,
    query: impl FnOnce(&Params<'_>) -> Result<Row, StoreError>,
) -> Result<Option<Timestamp>, StoreError> {
    if rows.windows(2).any(|pair| pair[0].id == pair[1].id) {
        return Ok(None);
    }
    let ids: Vec<JobId> = rows.iter().map(|row| row.id).collect();
    let wire_names = once_if_same(rows, |row| row.wire_name.as_str());
    // Checked to be in range.
    let versions = once_if_same(rows, |row| i32::try_from(row.version).unwrap_or(i32::MAX));
    let queues = once_if_same(rows, |row| row.queue.as_str());
    let payloads: Vec<_> = rows.iter().map(|row| Private(row.payload.as_bytes())).collect();
    let dues = unless_none(rows, |row| if let Due::At(at) = row.due { Some(at) } else { None });
    let delays_us = unless_none(rows, |row| match row.due {
        Due::In(delay) => Some(bounded_us(delay)),
        _ => None,
    });
    let retries = unless_none(rows, |row| row.retry.as_ref().map(crate::RetryPolicy::to_stored));
    let timeouts_us = unless_none(rows, |row| row.timeout.map(bounded_us));
    let tags = unless_none(rows, |row| tags_json(&row.tags));
    let answer = query(&[
        &ids,
        &wire_names,
        &versions,
        &queues,
        &payloads,
        &dues,
        &delays_us,
        &retries,
        &timeouts_us,
        &tags,
        &history,
        &now,
    ])?;
    let is_fresh: bool = answer.try_get(0).map_err(super::fault::fault)?;
    let store_time = answer.try_get(1).map_err(super::fault::fault)?;
    Ok(is_fresh.then_some(store_time))
}

/// A column, of which the function takes one value for all.
fn once_if_same<'a, T: PartialEq>(rows: &[&'a JobRow], value: impl Fn(&'a JobRow) -> T) -> Vec<T> {
    let mut values = rows.iter().map(|row| value(row));
    let Some(first) = values.next() else { return Vec::new() };
    if values.all(|value| value == first) {
        return vec![first];
    }
    rows.iter().map(|row| value(row)).collect()
}

/// A column that hardly any job has something in.
fn unless_none<T>(
    rows: &[&JobRow],
    value: impl Fn(&JobRow) -> Option<T>,
) -> Option<Vec<Option<T>>> {
    let first = rows.iter().position(|row| value(row).is_some())?;
    let mut column: Vec<Option<T>> = Vec::with_capacity(rows.len());
    column.resize_with(first, || None);
    column.extend(rows.iter().skip(first).map(|row| value(row)));
    Some(column)
}
