//! What an operator causes.

use super::fault::fault;
use super::reads::state;
use super::session::{Call, Malformed, PostgresSession};
use crate::JobId;
use crate::store::{CancelAnswer, RequeueAnswer, StoreError};

pub(super) const REQUEST_CANCEL: &str =
    "SELECT answer, state FROM {schema}.request_cancel_v1($1, $2)";
pub(super) const REQUEUE: &str = "SELECT answer, state FROM {schema}.requeue_v1($1, $2)";

pub(super) fn request_cancel(
    session: &mut PostgresSession,
    job: JobId,
) -> Result<CancelAnswer, StoreError> {
    let now = session.store.clock_time();
    let row = session.query_one(Call::RequestCancel, &[&job, &now])?;
    match row.try_get::<_, i16>(0).map_err(fault)? {
        0 => Ok(CancelAnswer::NotFound),
        1 => Ok(CancelAnswer::Cancelled),
        2 => Ok(CancelAnswer::Requested),
        3 => Ok(CancelAnswer::Ended(state(&row, 1)?)),
        other => Err(StoreError::new(Malformed(format!("the answer {other}")))),
    }
}

pub(super) fn requeue(
    session: &mut PostgresSession,
    job: JobId,
) -> Result<RequeueAnswer, StoreError> {
    let now = session.store.clock_time();
    let row = session.query_one(Call::Requeue, &[&job, &now])?;
    match row.try_get::<_, i16>(0).map_err(fault)? {
        0 => Ok(RequeueAnswer::NotFound),
        1 => Ok(RequeueAnswer::Requeued),
        2 => Ok(RequeueAnswer::IllegalState(state(&row, 1)?)),
        other => Err(StoreError::new(Malformed(format!("the answer {other}")))),
    }
}
