//! What an operator does to jobs.

use super::draft::{Draft, cancelled};
use super::find::{self, Wanted};
use super::session::not_leased;
use super::settle::unfinished;
use super::state::{Change, Life, Slot, Trouble};
use crate::store::{
    AuditAction, BulkChange, CancelAnswer, JobFilter, Page, RequeueAnswer, SettledBy, TransitionBy,
};
use crate::{JobId, JobState, WorkerId};
use std::collections::BTreeSet;

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
            let next = Life { cancel_requested: true, ..cancelled(life, draft.moment) };
            (next, CancelAnswer::Cancelled)
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
    match draft.life(job) {
        Some(found) => begin_anew(draft, actor, found),
        None => Ok(RequeueAnswer::NotFound),
    }
}

fn begin_anew(
    draft: &mut Draft<'_>,
    actor: &str,
    (slot, life): (Slot, Life),
) -> Result<RequeueAnswer, Trouble> {
    if !matches!(life.state, JobState::DeadLettered | JobState::Quarantined) {
        return Ok(RequeueAnswer::IllegalState(life.state));
    }
    if let Some(by) = draft.key_holder(slot)? {
        return Ok(RequeueAnswer::KeyHeld { by });
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

/// Decides what one page of a bulk change does: how many jobs it changes, and where to go on. The page
/// is chosen before any of it is changed, so that what the change of one job does to another by way of
/// the latch does not decide whether that one is changed, too.
pub(super) fn change_matching(
    draft: &mut Draft<'_>,
    actor: &str,
    change: BulkChange,
    filter: &JobFilter,
    page: Page,
) -> Result<(u32, Option<JobId>), Trouble> {
    let limit = page.bounded_limit();
    let wanted = Wanted::new(filter).only(change.from_states());
    let matching = find::matching(draft.state, &wanted, page);
    let mut keys = BTreeSet::new();
    let eligible = matching.filter(|job| {
        job.as_ref().map_or(true, |job| match change {
            BulkChange::Cancel => !job.life.cancel_requested,
            // Of two with one unique key the first only.
            BulkChange::Requeue => job.keys.unique.as_ref().is_none_or(|key| {
                draft.state.index.holder(key).is_none() && keys.insert(key.as_ref())
            }),
        })
    });
    let ids = eligible.take(limit as usize).map(|job| Ok(job?.id));
    let ids = ids.collect::<Result<Vec<_>, Trouble>>()?;
    for found in ids.iter().filter_map(|id| draft.life(*id)).collect::<Vec<_>>() {
        match change {
            BulkChange::Cancel => drop(cancel(draft, actor, found)?),
            BulkChange::Requeue => drop(begin_anew(draft, actor, found)?),
        }
    }
    let changed = ids.len() as u32;
    Ok((changed, ids.last().copied().filter(|_| changed == limit)))
}

/// Decides which leases a worker loses, and whether it may hold more.
pub(super) fn revoke(
    draft: &mut Draft<'_>,
    actor: &str,
    worker: WorkerId,
    max: usize,
) -> Result<(Vec<JobId>, bool), Trouble> {
    let state = draft.state;
    let mut held = state.index.held(worker);
    let mut revoked = Vec::new();
    for (id, slot) in held.by_ref().take(max) {
        let life = state.indexed((id, slot))?.life;
        if life.state != JobState::Leased {
            return Err(not_leased(id, life.state));
        }
        let next = unfinished(life, SettledBy::Operator, draft.moment.at);
        draft.write(slot, Change::to(next, TransitionBy::Operator))?;
        draft.audit(actor, AuditAction::Revoke, slot)?;
        draft.release(slot);
        revoked.push(id);
    }
    Ok((revoked, held.next().is_some()))
}
