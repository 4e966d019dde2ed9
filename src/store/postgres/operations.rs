//! What an operator causes.

use super::fault::fault;
use super::matching::{Matching, states_among};
use super::reads::{state, unsigned};
use super::session::{Call, Malformed, PostgresSession, one};
use crate::kernel::text::clean;
use crate::store::{
    ACTOR_BYTES_MAX, AuditAction, BulkAnswer, BulkChange, CancelAnswer, JobFilter, PAGE_MAX,
    QueueAnswer, QueueChange, QueueSettings, RequeueAnswer, Revoked, StoreError,
};
use crate::{JobId, Timestamp, WorkerId};
use ::postgres::Row;
use std::collections::HashSet;
use std::time::Duration;

pub(super) const REQUEST_CANCEL: &str = "SELECT answer, state, store_time, released, released_dues \
    FROM {schema}.request_cancel_v2($1, $2, $3, $4)";
pub(super) const REQUEUE: &str =
    "SELECT answer, state, held_by FROM {schema}.requeue_v2($1, $2, $3, $4)";
pub(super) const CHANGE_QUEUE: &str = "SELECT is_paused, concurrency_limit, changed, opened, store_time, \
    key_limit FROM {schema}.change_queue_v2($1, $2, $3, $4, $5)";
pub(super) const REVOKE: &str = "SELECT revoked, more, store_time, released, released_dues \
    FROM {schema}.revoke_v2($1, $2, $3, $4, $5)";

pub(super) fn request_cancel(
    session: &mut PostgresSession,
    actor: &str,
    job: JobId,
) -> Result<CancelAnswer, StoreError> {
    let now = session.store.clock_time();
    let (actor, history) = (clean(actor, ACTOR_BYTES_MAX), session.store.history);
    let row = session.query_one(Call::RequestCancel, &[&actor, &job, &history, &now])?;
    let answer = match row.try_get::<_, i16>(0).map_err(fault)? {
        0 => CancelAnswer::NotFound,
        1 => CancelAnswer::Cancelled,
        2 => CancelAnswer::Requested,
        3 => CancelAnswer::Ended(state(&row, 1)?),
        other => return Err(StoreError::new(Malformed(format!("the answer {other}")))),
    };
    session.wake_released(&row, (2, 3, 4))?;
    Ok(answer)
}

pub(super) fn requeue(
    session: &mut PostgresSession,
    actor: &str,
    job: JobId,
) -> Result<RequeueAnswer, StoreError> {
    let now = session.store.clock_time();
    let (actor, history) = (clean(actor, ACTOR_BYTES_MAX), session.store.history);
    let row = session.query_one(Call::Requeue, &[&actor, &job, &history, &now])?;
    match row.try_get::<_, i16>(0).map_err(fault)? {
        0 => Ok(RequeueAnswer::NotFound),
        1 => Ok(RequeueAnswer::Requeued),
        2 => Ok(RequeueAnswer::IllegalState(state(&row, 1)?)),
        3 => Ok(RequeueAnswer::KeyHeld { by: row.try_get(2).map_err(fault)? }),
        other => Err(StoreError::new(Malformed(format!("the answer {other}")))),
    }
}

pub(super) fn change_matching(
    session: &mut PostgresSession,
    actor: &str,
    change: BulkChange,
    filter: &JobFilter,
    after: Option<JobId>,
    max: u32,
) -> Result<BulkAnswer, StoreError> {
    let max = max.clamp(1, PAGE_MAX);
    let states = states_among(filter, change.from_states());
    let codes: Vec<i16> = states.iter().map(|state| state.code()).collect();
    let matching = Matching::new(filter, states, false, after, max);
    if matching.is_empty() {
        let store_time = crate::store::Jobs::now(session)?;
        return Ok(BulkAnswer::new(0, None, store_time));
    }
    match change {
        BulkChange::Cancel => cancel_matching(session, actor, &matching, &codes),
        BulkChange::Requeue => requeue_matching(session, actor, matching, &codes),
    }
}

fn cancel_matching(
    session: &mut PostgresSession,
    actor: &str,
    matching: &Matching<'_>,
    codes: &[i16],
) -> Result<BulkAnswer, StoreError> {
    // What is marked already is passed over, and does not count as looked at.
    let text = format!(
        "WITH m AS MATERIALIZED (SELECT ARRAY({}) AS ids) \
         SELECT c.changed, c.store_time, c.released, c.released_dues, m.ids[($9::bigint)::integer] \
         FROM m CROSS JOIN LATERAL {{schema}}.cancel_jobs_v2($12, m.ids, $13, $14, $15) AS c",
        matching.sql(" AND NOT (j.state = 2 AND j.cancel_requested)")
    );
    let (actor, history) = (clean(actor, ACTOR_BYTES_MAX), session.store.history);
    let now = session.store.clock_time();
    let mut params = matching.params();
    params.push(&actor);
    params.push(&codes);
    params.push(&history);
    params.push(&now);
    let row = one(session.query_text(&text, &params)?)?;
    let store_time = row.try_get(1).map_err(fault)?;
    session.floors.clear();
    session.wake_released(&row, (1, 2, 3))?;
    // The id at the last place of a full page.
    Ok(BulkAnswer::new(unsigned(&row, 0)?, row.try_get(4).map_err(fault)?, store_time))
}

/// Two steps: which jobs, and then their requeue, which judges them once more under their locks.
fn requeue_matching(
    session: &mut PostgresSession,
    actor: &str,
    matching: Matching<'_>,
    codes: &[i16],
) -> Result<BulkAnswer, StoreError> {
    let limit = matching.limit();
    let jobs = requeueable(session, matching)?;
    let (actor, history) = (clean(actor, ACTOR_BYTES_MAX), session.store.history);
    let now = session.store.clock_time();
    let text = "SELECT c.changed, c.store_time, c.released, c.released_dues \
        FROM {schema}.requeue_jobs_v2($1, $2, $3, $4, $5) AS c";
    let row = one(session.query_text(text, &[&actor, &jobs, &codes, &history, &now])?)?;
    let store_time = row.try_get(1).map_err(fault)?;
    session.floors.clear();
    session.wake_released(&row, (1, 2, 3))?;
    let next = jobs.last().copied().filter(|_| jobs.len() == limit);
    Ok(BulkAnswer::new(unsigned(&row, 0)?, next, store_time))
}

/// The first jobs that match and whose unique key is free, of several with one key the first.
fn requeueable(
    session: &mut PostgresSession,
    mut matching: Matching<'_>,
) -> Result<Vec<JobId>, StoreError> {
    let limit = matching.limit();
    let is_free = " AND NOT EXISTS (SELECT 1 FROM {schema}.jobs AS h \
        WHERE h.unique_key = j.unique_key AND h.unique_key IS NOT NULL AND h.state < 3)";
    let mut keys = HashSet::new();
    let mut jobs = Vec::new();
    loop {
        let text = format!(
            "SELECT k.id, k.unique_key FROM {{schema}}.jobs AS k \
             WHERE k.id = ANY (ARRAY({})) ORDER BY k.id",
            matching.sql(is_free)
        );
        let page = session.query_text(&text, &matching.params())?;
        for row in &page {
            let key: Option<String> = row.try_get(1).map_err(fault)?;
            if jobs.len() < limit && key.is_none_or(|key| keys.insert(key)) {
                jobs.push(row.try_get(0).map_err(fault)?);
            }
        }
        let Some(last) = page.last().filter(|_| page.len() == limit && jobs.len() < limit) else {
            return Ok(jobs);
        };
        matching.go_on_after(last.try_get(0).map_err(fault)?);
        if matching.is_empty() {
            return Ok(jobs);
        }
    }
}

pub(super) fn change_queue(
    session: &mut PostgresSession,
    actor: &str,
    queue: &str,
    change: QueueChange,
) -> Result<QueueAnswer, StoreError> {
    let now = session.store.clock_time();
    let actor = clean(actor, ACTOR_BYTES_MAX);
    let action = AuditAction::of_queue(change).code();
    let limit = match change {
        QueueChange::Limit(limit) | QueueChange::KeyLimit(limit) => limit.map(i64::from),
        QueueChange::Pause | QueueChange::Resume => None,
    };
    let row = session.query_one(Call::ChangeQueue, &[&actor, &queue, &action, &limit, &now])?;
    let mut settings = QueueSettings::new(queue.to_owned());
    settings.is_paused = row.try_get(0).map_err(fault)?;
    settings.concurrency_limit = limit_of(&row, 1)?;
    settings.concurrency_limit_per_key = limit_of(&row, 5)?;
    if row.try_get(3).map_err(fault)? {
        session.store.wake(queue, Duration::ZERO);
    }
    let changed = row.try_get(2).map_err(fault)?;
    Ok(QueueAnswer::new(settings, changed, row.try_get(4).map_err(fault)?))
}

pub(super) fn revoke(
    session: &mut PostgresSession,
    actor: &str,
    worker: WorkerId,
    max: u32,
) -> Result<Revoked, StoreError> {
    let now = session.store.clock_time();
    let (actor, history) = (clean(actor, ACTOR_BYTES_MAX), session.store.history);
    // Checked to be in range by the bound.
    let max = i32::try_from(max.clamp(1, PAGE_MAX)).unwrap_or(i32::MAX);
    let row = session.query_one(Call::Revoke, &[&actor, &worker, &max, &history, &now])?;
    // Their due times may lie below the floors.
    session.floors.clear();
    session.wake_released(&row, (2, 3, 4))?;
    let revoked: Option<Vec<JobId>> = row.try_get(0).map_err(fault)?;
    let more = row.try_get(1).map_err(fault)?;
    Ok(Revoked::new(revoked.unwrap_or_default(), more, row.try_get(2).map_err(fault)?))
}

/// A stored limit of a queue.
pub(super) fn limit_of(row: &Row, column: usize) -> Result<Option<u32>, StoreError> {
    let stored: Option<i64> = row.try_get(column).map_err(fault)?;
    let limit = stored.map(u32::try_from).transpose();
    limit.map_err(|_| StoreError::new(Malformed(format!("a queue's limit is {stored:?}"))))
}

impl PostgresSession {
    /// Wakes the queues in which a write that is committed has made jobs claimable. The columns hold the
    /// store's time, the queues, and when the first job of each is due.
    pub(super) fn wake_released(
        &self,
        row: &Row,
        (time, queues, dues): (usize, usize, usize),
    ) -> Result<(), StoreError> {
        let Some(queues) = row.try_get::<_, Option<Vec<String>>>(queues).map_err(fault)? else {
            return Ok(());
        };
        let dues: Option<Vec<Timestamp>> = row.try_get(dues).map_err(fault)?;
        let store_time: Timestamp = row.try_get(time).map_err(fault)?;
        for (queue, due) in queues.iter().zip(dues.unwrap_or_default()) {
            self.store.wake(queue, due.since(store_time));
        }
        Ok(())
    }
}
