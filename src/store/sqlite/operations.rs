//! What an operator causes.

use super::locked;
use crate::kernel::state::JobState;
use crate::store::{CancelAnswer, RequeueAnswer, StoreError};
use crate::{JobId, Timestamp};
use rusqlite::{Connection, params};

/// Asks for a job to be cancelled, inside the caller's write transaction.
///
/// # Errors
/// Faults, and a write that did not touch the row it was meant for.
pub(super) fn request_cancel(
    conn: &Connection,
    job: JobId,
    now: Timestamp,
) -> Result<CancelAnswer, StoreError> {
    let Some(locked) = locked::read_one(conn, job)? else {
        return Ok(CancelAnswer::NotFound);
    };
    match locked.view.state {
        JobState::Scheduled | JobState::AwaitingParent => {
            let touched = conn
                .prepare_cached(
                    "UPDATE main.backwave_jobs \
                        SET state = 6, finished_at = ?2, cancel_requested = 1 WHERE seq = ?1",
                )?
                .execute(params![locked.seq, now.as_micros()])?;
            locked::expect_touched("a cancellation", touched, 1)?;
            Ok(CancelAnswer::Cancelled)
        }
        JobState::Leased => {
            let touched = conn
                .prepare_cached(
                    "UPDATE main.backwave_jobs SET cancel_requested = 1 WHERE seq = ?1",
                )?
                .execute([locked.seq])?;
            locked::expect_touched("a cancel request", touched, 1)?;
            Ok(CancelAnswer::Requested)
        }
        ended @ (JobState::Succeeded
        | JobState::DeadLettered
        | JobState::Quarantined
        | JobState::Cancelled) => Ok(CancelAnswer::Ended(ended)),
    }
}

/// Makes a failed job Scheduled again, inside the caller's write transaction.
///
/// # Errors
/// Faults, and a write that did not touch the row it was meant for.
pub(super) fn requeue(
    conn: &Connection,
    job: JobId,
    now: Timestamp,
) -> Result<RequeueAnswer, StoreError> {
    let Some(locked) = locked::read_one(conn, job)? else {
        return Ok(RequeueAnswer::NotFound);
    };
    if !matches!(locked.view.state, JobState::DeadLettered | JobState::Quarantined) {
        return Ok(RequeueAnswer::IllegalState(locked.view.state));
    }
    // What went wrong last and how the last attempt was settled stay: the first is for people, the
    // second tells a late report from a repeated one.
    let touched = conn
        .prepare_cached(
            "UPDATE main.backwave_jobs \
                SET state = 0, due_at = ?2, failures = 0, cancel_requested = 0, finished_at = NULL \
              WHERE seq = ?1",
        )?
        .execute(params![locked.seq, now.as_micros()])?;
    locked::expect_touched("a requeue", touched, 1)?;
    Ok(RequeueAnswer::Requeued)
}
