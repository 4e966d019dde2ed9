//! What can be read, and how stored values are read back.

use super::fault::fault;
use super::matching::{Matching, states_among};
use super::operations::limit_of;
use super::session::{Call, Malformed, PostgresSession};
use crate::invariant::{InvariantTrigger, halt};
use crate::kernel::state::JobState;
use crate::store::{
    AuditAction, AuditFilter, AuditPage, AuditRecord, Body, Found, JobFilter, JobRecord, JobRow,
    PAGE_MAX, Page, ParentRule, QueueCount, QueueSettings, StoreError, Tick, Transition,
    TransitionBy,
};
use crate::{JobId, RetryPolicy, Timestamp};
use ::postgres::Row;
use std::time::Duration;

macro_rules! record {
    () => {
        "id, wire_name, version, queue, payload, state, attempt, failures, due_at, created_at, \
         finished_at, retry, timeout_us, tags, owner, expiry, cancel_requested, output, \
         failure_detail, parent_rule, unique_key, concurrency_key, schedule, tick"
    };
}

pub(super) const JOB: &str = concat!("SELECT ", record!(), " FROM {schema}.jobs WHERE id = $1");

/// Those that live from their indexes, those that have ended from the sums. What is in no state that there
/// is, which only a hand can have written, is not passed over.
pub(super) const COUNTS: &str = "SELECT c.queue, c.state, sum(c.count)::bigint FROM (\
        SELECT e.queue, e.state, e.delta AS count FROM {schema}.ended_deltas AS e \
        UNION ALL \
        SELECT j.queue, 0::smallint, count(*) FROM {schema}.jobs AS j \
        WHERE j.state = 0 AND j.concurrency_key IS NULL GROUP BY j.queue \
        UNION ALL \
        SELECT j.queue, 0::smallint, count(*) FROM {schema}.jobs AS j \
        WHERE j.state = 0 AND j.concurrency_key IS NOT NULL GROUP BY j.queue \
        UNION ALL \
        SELECT j.queue, 1::smallint, count(*) FROM {schema}.jobs AS j WHERE j.state = 1 GROUP BY j.queue \
        UNION ALL \
        SELECT j.queue, 2::smallint, count(*) FROM {schema}.jobs AS j WHERE j.state = 2 GROUP BY j.queue \
        UNION ALL \
        SELECT j.queue, j.state, count(*) FROM {schema}.jobs AS j WHERE j.state > 6 GROUP BY j.queue, j.state\
    ) AS c GROUP BY c.queue, c.state HAVING sum(c.count) > 0 ORDER BY c.queue, c.state";

/// Sorted once they are found: the log has an order of its own, in which one job's would be looked for.
pub(super) const HISTORY: &str = "SELECT t.position, t.at, t.from_state, t.to_state, t.attempt, t.hand, \
    t.worker, t.detail FROM (SELECT t.position, t.at, t.from_state, t.to_state, t.attempt, t.hand, \
    t.worker, t.detail FROM {schema}.transitions AS t WHERE t.job = $1 OFFSET 0) AS t ORDER BY t.position";

pub(super) const AUDIT: &str = "SELECT a.position, a.at, a.actor, a.action, a.concurrency_limit, a.job, \
    a.queue, a.subject FROM {schema}.audit AS a WHERE a.position < $1 AND ($2::uuid IS NULL OR a.job = $2) \
    AND ($3::text IS NULL OR a.queue = $3) AND ($4::text IS NULL OR a.actor = $4) \
    ORDER BY a.position DESC LIMIT $5";

pub(super) const QUEUES: &str =
    "SELECT name, is_paused, concurrency_limit, key_limit FROM {schema}.queues ORDER BY name";

pub(super) fn job(
    session: &mut PostgresSession,
    job: JobId,
) -> Result<Option<JobRecord>, StoreError> {
    match session.query(Call::Job, &[&job])?.first() {
        Some(row) => unpack_record(row).map(Some),
        None => Ok(None),
    }
}

pub(super) fn find(
    session: &mut PostgresSession,
    filter: &JobFilter,
    page: &Page,
) -> Result<Found, StoreError> {
    let limit = page.bounded_limit();
    let states = states_among(filter, &JobState::ALL);
    let matching = Matching::new(filter, states, page.newest_first, page.after, limit);
    if matching.is_empty() {
        return Ok(Found::new(Vec::new(), None));
    }
    let text = format!(
        "SELECT {} FROM {{schema}}.jobs WHERE id = ANY (ARRAY({})) ORDER BY id {}",
        record!(),
        matching.sql(""),
        if page.newest_first { "DESC" } else { "ASC" }
    );
    let rows = session.query_text(&text, &matching.params())?;
    let jobs = rows.iter().map(unpack_record).collect::<Result<Vec<_>, _>>()?;
    let is_full = u32::try_from(jobs.len()).is_ok_and(|count| count >= limit);
    let next = jobs.last().map(|job| job.id).filter(|_| is_full);
    Ok(Found::new(jobs, next))
}

fn unpack_record(row: &Row) -> Result<JobRecord, StoreError> {
    let id = row.try_get(0).map_err(fault)?;
    let mut asked = JobRow::new(id, row.try_get::<_, String>(1).map_err(fault)?);
    asked.version = unsigned(row, 2)?;
    asked.queue = row.try_get(3).map_err(fault)?;
    asked.payload = Body::new(row.try_get(4).map_err(fault)?);
    asked.retry = policy(row, 11, id)?;
    asked.timeout = duration(row, 12)?;
    asked.tags = row.try_get(13).map_err(fault)?;
    let created_at: Timestamp = row.try_get(9).map_err(fault)?;
    let mut record = JobRecord::new(&asked, created_at);
    record.state = state(row, 5)?;
    record.attempt = unsigned(row, 6)?;
    record.failures = unsigned(row, 7)?;
    record.due_at = row.try_get(8).map_err(fault)?;
    record.finished_at = row.try_get(10).map_err(fault)?;
    record.owner = row.try_get(14).map_err(fault)?;
    record.expiry = row.try_get(15).map_err(fault)?;
    record.cancel_requested = row.try_get(16).map_err(fault)?;
    record.output = row.try_get::<_, Option<Vec<u8>>>(17).map_err(fault)?.map(Body::new);
    record.failure_detail = row.try_get(18).map_err(fault)?;
    record.parent_rule = member(row, 19, "a parent rule", ParentRule::from_code)?;
    record.unique_key = row.try_get(20).map_err(fault)?;
    record.concurrency_key = row.try_get(21).map_err(fault)?;
    record.tick = tick(row, 22)?;
    Ok(record)
}

pub(super) fn counts(session: &mut PostgresSession) -> Result<Vec<QueueCount>, StoreError> {
    let rows = session.query(Call::Counts, &[])?;
    rows.iter()
        .map(|row| {
            let queue = row.try_get(0).map_err(fault)?;
            let count: i64 = row.try_get(2).map_err(fault)?;
            Ok(QueueCount::new(queue, state(row, 1)?, count.unsigned_abs()))
        })
        .collect()
}

pub(super) fn history(
    session: &mut PostgresSession,
    job: JobId,
) -> Result<Vec<Transition>, StoreError> {
    session.query(Call::History, &[&job])?.iter().map(unpack_transition).collect()
}

fn unpack_transition(row: &Row) -> Result<Transition, StoreError> {
    let from: Option<i16> = row.try_get(2).map_err(fault)?;
    let by = member(row, 5, "a transition's hand", TransitionBy::from_code)?;
    let mut transition = Transition::new(
        position(row)?,
        row.try_get(1).map_err(fault)?,
        from.map(state_of).transpose()?,
        state(row, 3)?,
        unsigned(row, 4)?,
        by,
    );
    transition.worker = row.try_get(6).map_err(fault)?;
    transition.detail = row.try_get(7).map_err(fault)?;
    Ok(transition)
}

pub(super) fn audit(
    session: &mut PostgresSession,
    filter: &AuditFilter,
) -> Result<AuditPage, StoreError> {
    let before = filter.before.and_then(|before| i64::try_from(before).ok()).unwrap_or(i64::MAX);
    let limit = i64::from(Page::new(filter.limit.unwrap_or(PAGE_MAX)).bounded_limit());
    let rows = session
        .query(Call::Audit, &[&before, &filter.job, &filter.queue, &filter.actor, &limit])?;
    rows.iter().map(unpack_audit).collect()
}

fn unpack_audit(row: &Row) -> Result<AuditRecord, StoreError> {
    let limit = limit_of(row, 4)?;
    let action =
        member(row, 3, "an audit record's action", |code| AuditAction::from_code(code, limit))?;
    let mut record = AuditRecord::new(
        position(row)?,
        row.try_get(1).map_err(fault)?,
        row.try_get(2).map_err(fault)?,
        action,
        row.try_get(5).map_err(fault)?,
        row.try_get(6).map_err(fault)?,
    );
    record.subject = row.try_get(7).map_err(fault)?;
    Ok(record)
}

pub(super) fn queues(session: &mut PostgresSession) -> Result<Vec<QueueSettings>, StoreError> {
    let rows = session.query(Call::Queues, &[])?;
    let unpack = |row: &Row| {
        let mut settings = QueueSettings::new(row.try_get(0).map_err(fault)?);
        settings.is_paused = row.try_get(1).map_err(fault)?;
        settings.concurrency_limit = limit_of(row, 2)?;
        settings.concurrency_limit_per_key = limit_of(row, 3)?;
        Ok(settings)
    };
    rows.iter().map(unpack).collect()
}

/// The place of a record in its log, which is its first column.
fn position(row: &Row) -> Result<u64, StoreError> {
    Ok(row.try_get::<_, i64>(0).map_err(fault)?.unsigned_abs())
}

/// A stored state.
pub(super) fn state(row: &Row, column: usize) -> Result<JobState, StoreError> {
    state_of(row.try_get(column).map_err(fault)?)
}

pub(super) fn state_of(code: i16) -> Result<JobState, StoreError> {
    known("the state of a job", code, JobState::from_code)
}

/// A stored member of an enum.
pub(super) fn member<T>(
    row: &Row,
    column: usize,
    what: &str,
    from_code: impl FnOnce(i64) -> Option<T>,
) -> Result<T, StoreError> {
    known(what, row.try_get(column).map_err(fault)?, from_code)
}

pub(super) fn known<T>(
    what: &str,
    code: i16,
    from_code: impl FnOnce(i64) -> Option<T>,
) -> Result<T, StoreError> {
    from_code(code.into()).ok_or_else(|| {
        let message = format!("{what} is {code}");
        halt(InvariantTrigger::UndefinedEnumValueStored, message).into()
    })
}

/// A stored counter.
pub(super) fn unsigned(row: &Row, column: usize) -> Result<u32, StoreError> {
    let stored: i32 = row.try_get(column).map_err(fault)?;
    u32::try_from(stored)
        .map_err(|_| StoreError::new(Malformed(format!("a counter of a job is {stored}"))))
}

/// A stored time limit.
pub(super) fn duration(row: &Row, column: usize) -> Result<Option<Duration>, StoreError> {
    let stored: Option<i64> = row.try_get(column).map_err(fault)?;
    Ok(stored.map(|us| Duration::from_micros(us.unsigned_abs())))
}

/// The tick that a job was minted for: its schedule stands in `column`, its instant in the one after.
pub(super) fn tick(row: &Row, column: usize) -> Result<Option<Tick>, StoreError> {
    let schedule: Option<String> = row.try_get(column).map_err(fault)?;
    let at: Option<Timestamp> = row.try_get(column + 1).map_err(fault)?;
    Ok(schedule.zip(at).map(|(schedule, at)| Tick::new(schedule, at)))
}

/// A stored retry policy. What stands there instead is not shown: nobody knows what it is.
pub(super) fn policy(
    row: &Row,
    column: usize,
    job: JobId,
) -> Result<Option<RetryPolicy>, StoreError> {
    let Some(text) = row.try_get::<_, Option<&str>>(column).map_err(fault)? else {
        return Ok(None);
    };
    RetryPolicy::from_stored(text).map(Some).ok_or_else(|| {
        let message = format!("the column retry of job {job} holds no retry policy");
        halt(InvariantTrigger::UndefinedEnumValueStored, message).into()
    })
}
