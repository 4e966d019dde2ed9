//! What can be read, and how stored values are read back.

use super::fault::fault;
use super::session::{Call, Malformed, PostgresSession};
use crate::invariant::{InvariantTrigger, halt};
use crate::kernel::state::JobState;
use crate::store::{Body, JobRecord, JobRow, QueueCount, StoreError};
use crate::{JobId, RetryPolicy, Timestamp};
use ::postgres::Row;
use std::time::Duration;

pub(super) const JOB: &str = "SELECT wire_name, version, queue, payload, state, attempt, failures, \
    due_at, created_at, finished_at, retry, timeout_us, tags, owner, expiry, cancel_requested, output, \
    failure_detail FROM {schema}.jobs WHERE id = $1";

pub(super) const COUNTS: &str =
    "SELECT queue, state, count(*) FROM {schema}.jobs GROUP BY queue, state ORDER BY queue, state";

pub(super) fn job(
    session: &mut PostgresSession,
    job: JobId,
) -> Result<Option<JobRecord>, StoreError> {
    match session.query(Call::Job, &[&job])?.first() {
        Some(row) => unpack_record(job, row).map(Some),
        None => Ok(None),
    }
}

fn unpack_record(id: JobId, row: &Row) -> Result<JobRecord, StoreError> {
    let mut asked = JobRow::new(id, row.try_get::<_, String>(0).map_err(fault)?);
    asked.version = unsigned(row, 1)?;
    asked.queue = row.try_get(2).map_err(fault)?;
    asked.payload = Body::new(row.try_get(3).map_err(fault)?);
    asked.retry = policy(row, 10, id)?;
    asked.timeout = duration(row, 11)?;
    asked.tags = row.try_get(12).map_err(fault)?;
    let created_at: Timestamp = row.try_get(8).map_err(fault)?;
    let mut record = JobRecord::new(&asked, created_at);
    record.state = state(row, 4)?;
    record.attempt = unsigned(row, 5)?;
    record.failures = unsigned(row, 6)?;
    record.due_at = row.try_get(7).map_err(fault)?;
    record.finished_at = row.try_get(9).map_err(fault)?;
    record.owner = row.try_get(13).map_err(fault)?;
    record.expiry = row.try_get(14).map_err(fault)?;
    record.cancel_requested = row.try_get(15).map_err(fault)?;
    record.output = row.try_get::<_, Option<Vec<u8>>>(16).map_err(fault)?.map(Body::new);
    record.failure_detail = row.try_get(17).map_err(fault)?;
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

/// A stored state.
pub(super) fn state(row: &Row, column: usize) -> Result<JobState, StoreError> {
    let code: i16 = row.try_get(column).map_err(fault)?;
    JobState::from_code(code.into()).ok_or_else(|| {
        let message = format!("a job has the state {code}");
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
