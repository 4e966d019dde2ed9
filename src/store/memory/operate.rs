//! What an operator does to jobs.

use super::draft::{Draft, cancelled};
use super::state::{Change, Life, Slot, Trouble};
use crate::store::{AuditAction, CancelAnswer, RequeueAnswer, TransitionBy};
use crate::{JobId, JobState};

/// Decides what a cancel request does.
pub(super) fn request_cancel(
    draft: &mut Draft<'_>,
    actor: &str,
    job: JobId,
) -> Result<CancelAnswer, Trouble> {
    match draft.life(job) {
        Some(found) => cancel(draft, actor, found),
        None => Ok(CancelAnswer::NotFound),
    }
}

fn cancel(
    draft: &mut Draft<'_>,
    actor: &str,
    (slot, life): (Slot, Life),
) -> Result<CancelAnswer, Trouble> {
    let (next, answer) = match life.state {
        JobState::Scheduled | JobState::AwaitingParent => {
            (cancelled(life, draft.moment), CancelAnswer::Cancelled)
        }
        JobState::Leased if life.cancel_requested => return Ok(CancelAnswer::Requested),
        JobState::Leased => (Life { cancel_requested: true, ..life }, CancelAnswer::Requested),
        ended => return Ok(CancelAnswer::Ended(ended)),
    };
    draft.write(slot, Change::to(next, TransitionBy::Operator))?;
    draft.audit(actor, AuditAction::Cancel, slot)?;
    Ok(answer)
}

/// Decides what a requeue does.
pub(super) fn requeue(
    draft: &mut Draft<'_>,
    actor: &str,
    job: JobId,
) -> Result<RequeueAnswer, Trouble> {
    let Some((slot, life)) = draft.life(job) else {
        return Ok(RequeueAnswer::NotFound);
    };
    if !matches!(life.state, JobState::DeadLettered | JobState::Quarantined) {
        return Ok(RequeueAnswer::IllegalState(life.state));
    }
    let next = Life {
        state: JobState::Scheduled,
        due_at: draft.moment.at,
        failures: 0,
        finished_at: None,
        cancel_requested: false,
        ..life
    };
    draft.write(slot, Change::to(next, TransitionBy::Operator))?;
    draft.audit(actor, AuditAction::Requeue, slot)?;
    Ok(RequeueAnswer::Requeued)
}
