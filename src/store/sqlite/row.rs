//! From columns to values: each stored number and text is checked as it is read.

use super::fault::SqliteFault;
use crate::invariant::InvariantTrigger;
use crate::kernel::state::JobState;
use crate::store::{ParentRule, SettledBy, StoreError, Tick, TransitionBy};
use crate::{JobId, RetryPolicy, Timestamp, WorkerId};
use rusqlite::Row;
use rusqlite::types::ValueRef;
use std::time::Duration;

pub(super) fn job_id(row: &Row<'_>, column: usize) -> Result<JobId, StoreError> {
    Ok(JobId::from_bytes(row.get(column)?))
}

pub(super) fn worker(row: &Row<'_>, column: usize) -> Result<Option<WorkerId>, StoreError> {
    Ok(row.get::<_, Option<[u8; 16]>>(column)?.map(WorkerId::from_bytes))
}

pub(super) fn time(row: &Row<'_>, column: usize) -> Result<Timestamp, StoreError> {
    Ok(Timestamp::from_micros(row.get(column)?))
}

pub(super) fn time_or_null(row: &Row<'_>, column: usize) -> Result<Option<Timestamp>, StoreError> {
    Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp::from_micros))
}

pub(super) fn state(row: &Row<'_>, column: usize, job: JobId) -> Result<JobState, StoreError> {
    known_state(row.get(column)?, || format!("job {job}"))
}

/// The state stored under `code`; `whose` says for the message where the number stands.
pub(super) fn known_state(
    code: i64,
    whose: impl FnOnce() -> String,
) -> Result<JobState, StoreError> {
    JobState::from_code(code).ok_or_else(|| {
        let message = format!("the state of {} is stored as {code}", whose());
        StoreError::found(InvariantTrigger::UndefinedEnumValueStored, message)
    })
}

/// Who settled the last attempt: 0 is stored for nobody.
pub(super) fn settled_by(
    row: &Row<'_>,
    column: usize,
    job: JobId,
) -> Result<Option<SettledBy>, StoreError> {
    let code: i64 = row.get(column)?;
    if code == 0 {
        return Ok(None);
    }
    SettledBy::from_code(code).map(Some).ok_or_else(|| {
        let message = format!("who settled the last attempt of job {job} is stored as {code}");
        StoreError::found(InvariantTrigger::UndefinedEnumValueStored, message)
    })
}

/// A stored retry policy. What stands there instead is not shown: nobody knows what it is.
pub(super) fn retry(
    row: &Row<'_>,
    column: usize,
    job: JobId,
) -> Result<Option<RetryPolicy>, StoreError> {
    let text = match row.get_ref(column)? {
        ValueRef::Null => return Ok(None),
        stored => stored.as_str().ok(),
    };
    text.and_then(RetryPolicy::from_stored).map(Some).ok_or_else(|| {
        let message = format!("the column retry of job {job} holds no retry policy");
        StoreError::found(InvariantTrigger::UndefinedEnumValueStored, message)
    })
}

pub(super) fn tags(row: &Row<'_>, column: usize, job: JobId) -> Result<Vec<String>, StoreError> {
    match row.get_ref(column)?.as_str_or_null().map_err(rusqlite::Error::from)? {
        None => Ok(Vec::new()),
        Some(text) => serde_json::from_str(text)
            .map_err(|_| SqliteFault::Unreadable { job, column: "tags" }.into()),
    }
}

pub(super) fn timeout(row: &Row<'_>, column: usize) -> Result<Option<Duration>, StoreError> {
    match row.get_ref(column)? {
        ValueRef::Null => Ok(None),
        _ => unsigned(row, column).map(|us| Some(Duration::from_micros(us))),
    }
}

/// The tick that a job was minted for: its schedule stands in `column`, its instant in the one after.
pub(super) fn tick(row: &Row<'_>, column: usize) -> Result<Option<Tick>, StoreError> {
    let schedule: Option<String> = row.get(column)?;
    Ok(schedule.zip(time_or_null(row, column + 1)?).map(|(schedule, at)| Tick::new(schedule, at)))
}

/// Which ends of its parents release a job.
pub(super) fn parent_rule(
    row: &Row<'_>,
    column: usize,
    job: JobId,
) -> Result<ParentRule, StoreError> {
    let code: i64 = row.get(column)?;
    ParentRule::from_code(code).ok_or_else(|| {
        let message = format!("the parent rule of job {job} is stored as {code}");
        StoreError::found(InvariantTrigger::UndefinedEnumValueStored, message)
    })
}

/// Whose hand changed a job's state.
pub(super) fn transition_by(
    row: &Row<'_>,
    column: usize,
    job: JobId,
) -> Result<TransitionBy, StoreError> {
    let code: i64 = row.get(column)?;
    TransitionBy::from_code(code).ok_or_else(|| {
        let message = format!("who changed the state of job {job} is stored as {code}");
        StoreError::found(InvariantTrigger::UndefinedEnumValueStored, message)
    })
}

/// A limit, where there is one.
pub(super) fn limit(row: &Row<'_>, column: usize) -> Result<Option<u32>, StoreError> {
    Ok(row.get(column)?)
}

/// A list of texts, kept as a JSON array.
pub(super) fn texts(
    row: &Row<'_>,
    column: usize,
    what: &'static str,
) -> Result<Vec<String>, StoreError> {
    let text = row.get_ref(column)?.as_str().map_err(rusqlite::Error::from)?;
    serde_json::from_str(text).map_err(|_| SqliteFault::UnreadableList { column: what }.into())
}

/// A number that is never negative.
pub(super) fn unsigned(row: &Row<'_>, column: usize) -> Result<u64, StoreError> {
    let stored: i64 = row.get(column)?;
    u64::try_from(stored)
        .map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, stored).into())
}
