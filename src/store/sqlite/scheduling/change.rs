//! What operators do with schedules.

use super::rows;
use crate::JobId;
use crate::kernel::text::clean;
use crate::store::sqlite::enqueue;
use crate::store::sqlite::work::Work;
use crate::store::{
    ACTOR_BYTES_MAX, Admission, AuditAction, EnqueueAnswer, JobRow, Rejection, ScheduleAnswer,
    ScheduleChange, StoreError,
};
use rusqlite::params;

/// Changes a schedule inside the caller's write transaction. `refusal` says why a job to be triggered is refused.
///
/// # Errors
/// Faults, and a write that did not touch the row it was meant for.
pub(super) fn change(
    work: &mut Work<'_>,
    actor: &str,
    name: &str,
    change: &ScheduleChange,
    refusal: Option<Rejection>,
) -> Result<ScheduleAnswer, StoreError> {
    let Some(mut record) = rows::by_name(work.conn, name)? else {
        return Ok(ScheduleAnswer::NotFound);
    };
    if let Some(reason) = refusal {
        return Ok(ScheduleAnswer::Rejected(reason));
    }
    let action = match change {
        ScheduleChange::Pause => AuditAction::PauseSchedule,
        ScheduleChange::Resume => AuditAction::ResumeSchedule,
        ScheduleChange::Remove => {
            rows::remove(work.conn, name)?;
            audit(work, actor, AuditAction::RemoveSchedule, name, None)?;
            return Ok(done(work, true));
        }
        ScheduleChange::Trigger(job) => return trigger(work, actor, name, job),
    };
    let changed = record.apply(change, work.now);
    if changed {
        rows::update(work.conn, &record)?;
        audit(work, actor, action, name, None)?;
    }
    Ok(done(work, changed))
}

fn trigger(
    work: &mut Work<'_>,
    actor: &str,
    name: &str,
    job: &JobRow,
) -> Result<ScheduleAnswer, StoreError> {
    match enqueue::insert(work, std::slice::from_ref(job))? {
        EnqueueAnswer::Accepted { jobs, .. } => {
            let changed = jobs.contains(&Admission::New);
            if changed {
                audit(work, actor, AuditAction::TriggerSchedule, name, Some(job))?;
            }
            Ok(done(work, changed))
        }
        EnqueueAnswer::Rejected { reason, .. } => Ok(ScheduleAnswer::Rejected(reason)),
    }
}

const fn done(work: &Work<'_>, changed: bool) -> ScheduleAnswer {
    ScheduleAnswer::Done { changed, store_time: work.now }
}

fn audit(
    work: &Work<'_>,
    actor: &str,
    action: AuditAction,
    name: &str,
    job: Option<&JobRow>,
) -> Result<(), StoreError> {
    work.conn
        .prepare_cached(
            "INSERT INTO main.backwave_audit (at, actor, action, job, queue, subject) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            work.now.as_micros(),
            clean(actor, ACTOR_BYTES_MAX),
            action.code(),
            job.map(|job| JobId::to_bytes(job.id)),
            job.map_or("", |job| job.queue.as_str()),
            name,
        ])?;
    Ok(())
}
