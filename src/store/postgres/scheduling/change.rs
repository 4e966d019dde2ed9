//! What operators do with schedules.

use super::rows;
use crate::kernel::text::clean;
use crate::store::postgres::enqueue::enqueue_within;
use crate::store::postgres::session::{Batch, Call, PostgresSession};
use crate::store::{
    ACTOR_BYTES_MAX, Admission, AuditAction, EnqueueAnswer, JobRow, ScheduleAnswer, ScheduleChange,
    StoreError,
};
use crate::{JobId, Timestamp};

/// Keeps a schedule from being removed; it may be moved on meanwhile.
pub(in crate::store::postgres) const HOLD: &str =
    "SELECT s.name FROM {schema}.schedules AS s WHERE s.name = $1 FOR KEY SHARE";

pub(in crate::store::postgres) const AUDIT: &str = "INSERT INTO {schema}.audit \
    (at, actor, action, job, queue, subject) VALUES ($1, $2, $3, $4, $5, $6)";

/// Pauses, resumes or removes a schedule.
pub(super) fn change(
    session: &mut PostgresSession,
    actor: &str,
    name: &str,
    change: &ScheduleChange,
) -> Result<ScheduleAnswer, StoreError> {
    let clock_time = session.store.clock_time();
    let calls = [
        Call::LockSchedules,
        Call::Now,
        Call::MoveSchedules,
        Call::RemoveSchedules,
        Call::AuditSchedule,
    ];
    session.in_transaction(&calls, |tx| {
        let Some(mut record) = rows::lock(tx, &[name])?.remove(name) else {
            return Ok(ScheduleAnswer::NotFound);
        };
        let at = rows::time(tx, clock_time)?;
        let (changed, action) = match change {
            ScheduleChange::Pause => (record.apply(change, at), AuditAction::PauseSchedule),
            ScheduleChange::Resume => (record.apply(change, at), AuditAction::ResumeSchedule),
            ScheduleChange::Remove => (true, AuditAction::RemoveSchedule),
            ScheduleChange::Trigger(_) => (false, AuditAction::TriggerSchedule),
        };
        if action == AuditAction::RemoveSchedule {
            rows::remove(tx, &[name])?;
        } else if changed {
            rows::write_moved(tx, &[&record])?;
        }
        if changed {
            Deed { at, actor, action, schedule: name, job: None }.audit(tx)?;
        }
        Ok(ScheduleAnswer::Done { changed, store_time: at })
    })
}

/// Mints a job of a schedule beside its ticks.
pub(super) fn trigger(
    session: &mut PostgresSession,
    actor: &str,
    name: &str,
    job: &JobRow,
) -> Result<ScheduleAnswer, StoreError> {
    let refusal = session.refusal(job);
    let (clock_time, history) = (session.store.clock_time(), session.store.history);
    let calls = [Call::HoldSchedule, Call::Enqueue, Call::AuditSchedule];
    session.in_transaction(&calls, |tx| {
        if tx.query(Call::HoldSchedule, &[&name])?.is_empty() {
            return Ok(ScheduleAnswer::NotFound);
        }
        if let Some(reason) = refusal {
            return Ok(ScheduleAnswer::Rejected(reason));
        }
        let answer = enqueue_within(tx, std::slice::from_ref(job), history, clock_time)?;
        let (changed, at) = match answer {
            EnqueueAnswer::Accepted { jobs, store_time } => {
                (jobs.contains(&Admission::New), store_time)
            }
            EnqueueAnswer::Rejected { reason, .. } => {
                return Ok(ScheduleAnswer::Rejected(reason));
            }
        };
        if changed {
            let action = AuditAction::TriggerSchedule;
            Deed { at, actor, action, schedule: name, job: Some(job) }.audit(tx)?;
        }
        Ok(ScheduleAnswer::Done { changed, store_time: at })
    })
}

/// What an operator has done with a schedule.
struct Deed<'a> {
    at: Timestamp,
    actor: &'a str,
    action: AuditAction,
    schedule: &'a str,
    /// The job that was minted.
    job: Option<&'a JobRow>,
}

impl Deed<'_> {
    fn audit(&self, tx: &mut Batch<'_>) -> Result<(), StoreError> {
        let actor = clean(self.actor, ACTOR_BYTES_MAX);
        let job: Option<JobId> = self.job.map(|job| job.id);
        let queue = self.job.map_or("", |job| job.queue.as_str());
        let (at, action, schedule) = (self.at, self.action.code(), self.schedule);
        tx.query(Call::AuditSchedule, &[&at, &actor, &action, &job, &queue, &schedule])?;
        Ok(())
    }
}
