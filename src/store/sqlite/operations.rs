//! What an operator causes: one job or a page of them, through the same three writes.

use super::batch::Seqs;
use super::find;
use super::locked::{self, Names};
use super::work::{Change, Work};
use super::{births, latch, row};
use crate::store::{
    AuditAction, BulkAnswer, BulkChange, CancelAnswer, GATES_MAX, JobFilter, PAGE_MAX,
    RequeueAnswer, StoreError, TransitionBy,
};
use crate::{JobId, JobState};
use rusqlite::params;
use std::collections::BTreeSet;
use std::rc::Rc;

/// A job that is about to be changed.
struct Subject {
    id: JobId,
    seq: i64,
    state: JobState,
    queue: Rc<str>,
    attempt: u32,
}

impl Subject {
    fn new(id: JobId, job: &locked::Locked) -> Self {
        let queue = Rc::clone(&job.queue);
        Self { id, seq: job.seq, state: job.view.state, queue, attempt: job.view.attempt }
    }

    fn change(&self, to: JobState) -> Change<'_> {
        Change {
            job: self.id,
            queue: &self.queue,
            from: Some(self.state),
            to,
            attempt: self.attempt,
            by: TransitionBy::Operator,
            worker: None,
            detail: None,
        }
    }
}

/// Asks for a job to be cancelled, inside the caller's write transaction.
///
/// # Errors
/// Faults, and a write that did not touch the row it was meant for.
pub(super) fn request_cancel(
    work: &mut Work<'_>,
    actor: &str,
    job: JobId,
) -> Result<CancelAnswer, StoreError> {
    let Some(locked) = locked::read_one(work.conn, job)? else {
        return Ok(CancelAnswer::NotFound);
    };
    match locked.view.state {
        JobState::Scheduled | JobState::AwaitingParent => {
            cancel(work, actor, &[Subject::new(job, &locked)])?;
            Ok(CancelAnswer::Cancelled)
        }
        JobState::Leased => {
            if !locked.cancel_requested {
                mark(work, actor, &[Subject::new(job, &locked)])?;
            }
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
    work: &mut Work<'_>,
    actor: &str,
    job: JobId,
) -> Result<RequeueAnswer, StoreError> {
    let Some(locked) = locked::read_one(work.conn, job)? else {
        return Ok(RequeueAnswer::NotFound);
    };
    if !matches!(locked.view.state, JobState::DeadLettered | JobState::Quarantined) {
        return Ok(RequeueAnswer::IllegalState(locked.view.state));
    }
    if let Some(by) = births::holder_against(work.conn, locked.seq)? {
        return Ok(RequeueAnswer::KeyHeld { by });
    }
    reschedule(work, actor, &[Subject::new(job, &locked)])?;
    Ok(RequeueAnswer::Requeued)
}

/// Changes a page of the jobs that a filter matches, inside the caller's write transaction.
///
/// # Errors
/// Faults, and a write that did not touch the rows it was meant for.
pub(super) fn change_matching(
    work: &mut Work<'_>,
    actor: &str,
    change: BulkChange,
    filter: &JobFilter,
    after: Option<JobId>,
    max: u32,
) -> Result<BulkAnswer, StoreError> {
    let max = max.clamp(1, PAGE_MAX);
    let subjects = matching(work, change, filter, after, max)?;
    let changed = subjects.len() as u32;
    let last = subjects.last().map(|subject| subject.id);
    match change {
        BulkChange::Cancel => {
            let (leased, waiting): (Vec<_>, Vec<_>) =
                subjects.into_iter().partition(|subject| subject.state == JobState::Leased);
            cancel(work, actor, &waiting)?;
            mark(work, actor, &leased)?;
        }
        BulkChange::Requeue => {
            reschedule(work, actor, &subjects)?;
            for subject in &subjects {
                work.wake(&subject.queue, work.now);
            }
        }
    }
    Ok(BulkAnswer::new(changed, last.filter(|_| changed == max), work.now))
}

/// The first `max` jobs beyond `after` that match and can be changed so.
fn matching(
    work: &Work<'_>,
    change: BulkChange,
    filter: &JobFilter,
    after: Option<JobId>,
    max: u32,
) -> Result<Vec<Subject>, StoreError> {
    // Of several with one unique key, of which none lives, the first only is requeued.
    let mut keys = BTreeSet::new();
    let (mut subjects, mut after) = (Vec::new(), after);
    loop {
        let page = candidates(work, change, filter, after, max)?;
        let is_full = page.len() as u64 == u64::from(max);
        after = page.last().map(|(subject, _)| subject.id);
        let free = page.into_iter().filter_map(|(subject, key)| {
            let is_free = change == BulkChange::Cancel || key.is_none_or(|key| keys.insert(key));
            is_free.then_some(subject)
        });
        subjects.extend(free.take(max as usize - subjects.len()));
        if !is_full || subjects.len() == max as usize {
            return Ok(subjects);
        }
    }
}

/// A page of jobs that match and can be changed so, with their unique keys.
fn candidates(
    work: &Work<'_>,
    change: BulkChange,
    filter: &JobFilter,
    after: Option<JobId>,
    max: u32,
) -> Result<Vec<(Subject, Option<String>)>, StoreError> {
    let Some(query) = find::changeable(change, filter, after, max) else {
        return Ok(Vec::new());
    };
    let mut statement = work.conn.prepare(&query.sql)?;
    let mut rows = statement.query(rusqlite::params_from_iter(query.values))?;
    let mut queues = Names::default();
    let mut subjects = Vec::new();
    while let Some(row) = rows.next()? {
        let id = row::job_id(row, 0)?;
        let subject = Subject {
            id,
            seq: row.get(1)?,
            state: row::state(row, 2, id)?,
            queue: queues.share(row, 3)?,
            attempt: row.get(4)?,
        };
        subjects.push((subject, row.get(5)?));
    }
    Ok(subjects)
}

/// Makes waiting jobs Cancelled, whatever they wait for.
fn cancel(work: &mut Work<'_>, actor: &str, subjects: &[Subject]) -> Result<(), StoreError> {
    write(work, CANCEL, "a cancellation", subjects)?;
    // Before their dependents: one that is cancelled by the same call has no gates any more.
    let of_waiting: Vec<JobId> = subjects
        .iter()
        .filter(|subject| subject.state == JobState::AwaitingParent)
        .map(|subject| subject.id)
        .collect();
    latch::drop_gates_of(work.conn, of_waiting.into_iter())?;
    for subject in subjects {
        work.changed(&subject.change(JobState::Cancelled));
        work.audited(actor, AuditAction::Cancel, Some(subject.id), &subject.queue);
    }
    let ended = subjects.iter().map(|subject| (subject.id, JobState::Cancelled)).collect();
    latch::resolve(work, ended, GATES_MAX)?;
    Ok(())
}

/// Marks leased jobs, for their holders to hear of.
fn mark(work: &mut Work<'_>, actor: &str, subjects: &[Subject]) -> Result<(), StoreError> {
    if subjects.is_empty() {
        return Ok(());
    }
    let seqs: Seqs = subjects.iter().map(|subject| subject.seq).collect();
    let touched = work.conn.prepare_cached(MARK)?.execute([seqs.to_json()])?;
    locked::expect_touched("a cancel request", touched, subjects.len())?;
    for subject in subjects {
        work.audited(actor, AuditAction::Cancel, Some(subject.id), &subject.queue);
    }
    Ok(())
}

/// Makes failed jobs Scheduled. What went wrong last and how the last attempt was settled stay: the first is
/// for people, the second tells a late report from a repeated one.
fn reschedule(work: &mut Work<'_>, actor: &str, subjects: &[Subject]) -> Result<(), StoreError> {
    write(work, REQUEUE, "a requeue", subjects)?;
    for subject in subjects {
        work.changed(&subject.change(JobState::Scheduled));
        work.audited(actor, AuditAction::Requeue, Some(subject.id), &subject.queue);
    }
    Ok(())
}

fn write(work: &Work<'_>, sql: &str, what: &str, subjects: &[Subject]) -> Result<(), StoreError> {
    if subjects.is_empty() {
        return Ok(());
    }
    let seqs: Seqs = subjects.iter().map(|subject| subject.seq).collect();
    let mut statement = work.conn.prepare_cached(sql)?;
    let touched = statement.execute(params![seqs.to_json(), work.now.as_micros()])?;
    locked::expect_touched(what, touched, subjects.len())
}

const CANCEL: &str = "UPDATE main.backwave_jobs \
            SET state = 6, finished_at = ?2, cancel_requested = 1 \
          WHERE seq IN (SELECT value FROM json_each(?1))";

const MARK: &str = "UPDATE main.backwave_jobs SET cancel_requested = 1 \
          WHERE seq IN (SELECT value FROM json_each(?1))";

const REQUEUE: &str = "UPDATE main.backwave_jobs \
            SET state = 0, due_at = ?2, failures = 0, cancel_requested = 0, finished_at = NULL \
          WHERE seq IN (SELECT value FROM json_each(?1))";
