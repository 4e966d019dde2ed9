//! Leases between claim and report: prolonged, found dead, asked for, given back, taken away.

use super::batch::Seqs;
use super::locked::{self, Locked};
use super::work::{Change, Work};
use super::{latch, row};
use crate::invariant::InvariantTrigger;
use crate::store::{
    AuditAction, GATES_MAX, HandedBack, Held, Lapsed, LapsedJob, LeaseRef, PAGE_MAX, Renewal,
    Renewed, Revoked, SettledBy, StoreError, TransitionBy,
};
use crate::{JobId, JobState, Timestamp, WorkerId};
use rusqlite::{Connection, params};
use std::time::Duration;

/// Prolongs leases inside the caller's write transaction.
///
/// # Errors
/// Faults, and a write that did not touch the rows it was meant for.
pub(super) fn renew(
    work: &Work<'_>,
    worker: WorkerId,
    leases: &[LeaseRef],
    lease: Duration,
) -> Result<Renewal, StoreError> {
    let Work { conn, now, .. } = *work;
    let expiry = now + lease;
    let jobs = locked::read(conn, leases.iter().map(|lease| lease.job))?;
    let mut held = Seqs::default();
    let mut answers = Vec::with_capacity(leases.len());
    for lease in leases {
        let job = jobs.get(&lease.job).filter(|job| job.view.is_held(worker, *lease, now));
        answers.push(job.map_or(Renewed::Lost, |job| {
            held.insert(job.seq);
            Renewed::Renewed { expiry, cancel_requested: job.cancel_requested }
        }));
    }
    if !held.is_empty() {
        let mut statement = conn.prepare_cached(
            "UPDATE main.backwave_jobs SET expiry = ?2 \
              WHERE seq IN (SELECT value FROM json_each(?1))",
        )?;
        let touched = statement.execute(params![held.to_json(), expiry.as_micros()])?;
        locked::expect_touched("a renewal", touched, held.len())?;
    }
    Ok(Renewal::new(answers, now))
}

/// Gives leases back inside the caller's write transaction.
///
/// # Errors
/// Faults, and a write that did not touch the rows it was meant for.
pub(super) fn hand_back(
    work: &mut Work<'_>,
    worker: WorkerId,
    leases: &[LeaseRef],
) -> Result<HandedBack, StoreError> {
    let now = work.now;
    let jobs = locked::read(work.conn, leases.iter().map(|lease| lease.job))?;
    let mut held = Seqs::default();
    let mut given = Vec::new();
    let mut answers = Vec::with_capacity(leases.len());
    for lease in leases {
        let job = jobs.get(&lease.job).filter(|job| job.view.is_held(worker, *lease, now));
        // The same lease twice in one call is given back once.
        let job = job.filter(|job| held.insert(job.seq));
        given.extend(job.map(|job| (lease.job, job)));
        answers.push(job.is_some());
    }
    release(work, &given, SettledBy::HandBack, "a hand-back")?;
    Ok(HandedBack::new(answers, now))
}

/// Takes leases away from a worker, dead ones too, inside the caller's write transaction.
///
/// # Errors
/// As [`hand_back`], and a lease read and then not found.
pub(super) fn revoke(
    work: &mut Work<'_>,
    actor: &str,
    worker: WorkerId,
    max: u32,
) -> Result<Revoked, StoreError> {
    let max = max.clamp(1, PAGE_MAX);
    let ids = first_held(work.conn, worker, max)?;
    let jobs = locked::read(work.conn, ids.iter().copied())?;
    let mut taken = Vec::with_capacity(ids.len());
    for id in &ids {
        let job = jobs.get(id).ok_or_else(|| {
            let message = format!("job {id} was read as leased and is not there");
            StoreError::found(InvariantTrigger::GuaranteedRowAbsent, message)
        })?;
        taken.push((*id, job));
    }
    release(work, &taken, SettledBy::Operator, "a revocation")?;
    for (id, job) in taken {
        work.audited(actor, AuditAction::Revoke, Some(id), &job.queue);
        if !job.cancel_requested {
            work.wake(&job.queue, job.due_at);
        }
    }
    let more = ids.len() as u64 == u64::from(max);
    Ok(Revoked::new(ids, more, work.now))
}

/// Makes leased jobs wait again, or Cancelled where a cancel request stands.
fn release(
    work: &mut Work<'_>,
    jobs: &[(JobId, &Locked)],
    by: SettledBy,
    what: &str,
) -> Result<(), StoreError> {
    if jobs.is_empty() {
        return Ok(());
    }
    let seqs: Seqs = jobs.iter().map(|(_, job)| job.seq).collect();
    let mut statement = work.conn.prepare_cached(RELEASE)?;
    let touched = statement.execute(params![seqs.to_json(), work.now.as_micros(), by.code()])?;
    locked::expect_touched(what, touched, jobs.len())?;
    let mut ended = Vec::new();
    for (id, job) in jobs {
        let to = if job.cancel_requested { JobState::Cancelled } else { JobState::Scheduled };
        if to.is_terminal() {
            ended.push((*id, to));
        }
        work.changed(&Change {
            job: *id,
            queue: &job.queue,
            from: Some(JobState::Leased),
            to,
            attempt: job.view.attempt,
            by: match by {
                SettledBy::Operator => TransitionBy::Operator,
                _ => TransitionBy::HandBack,
            },
            worker: job.view.owner,
            detail: None,
        });
    }
    latch::resolve(work, ended, GATES_MAX)?;
    Ok(())
}

fn first_held(conn: &Connection, worker: WorkerId, max: u32) -> Result<Vec<JobId>, StoreError> {
    let mut statement = conn.prepare_cached(FIRST_HELD)?;
    let mut rows = statement.query(params![worker.as_bytes(), max])?;
    let mut ids = Vec::new();
    while let Some(row) = rows.next()? {
        ids.push(row::job_id(row, 0)?);
    }
    Ok(ids)
}

/// Reads the jobs of some queues whose lease is dead.
///
/// # Errors
/// Faults.
pub(super) fn find_lapsed(
    conn: &Connection,
    queues: &[String],
    max: u32,
    now: Timestamp,
) -> Result<Lapsed, StoreError> {
    let mut statement = conn.prepare_cached(LAPSED)?;
    let queues = serde_json::Value::from(queues).to_string();
    let mut rows = statement.query(params![now.as_micros(), queues, max])?;
    let mut jobs = Vec::new();
    while let Some(row) = rows.next()? {
        let id = row::job_id(row, 0)?;
        let owner = WorkerId::from_bytes(row.get(2)?);
        let mut job = LapsedJob::new(id, row.get(1)?, owner, row::time(row, 3)?);
        job.failures = row.get(4)?;
        job.retry = row::retry(row, 5, id)?;
        job.wire_name = row.get(6)?;
        job.queue = row.get(7)?;
        jobs.push(job);
    }
    Ok(Lapsed::new(jobs, now))
}

/// Reads what `worker` holds.
///
/// # Errors
/// Faults.
pub(super) fn held_by(
    conn: &Connection,
    worker: WorkerId,
    now: Timestamp,
) -> Result<Held, StoreError> {
    let mut statement = conn.prepare_cached(HELD)?;
    let mut rows = statement.query([worker.as_bytes()])?;
    let mut leases = Vec::new();
    while let Some(row) = rows.next()? {
        let lease = LeaseRef { job: row::job_id(row, 0)?, attempt: row.get(1)? };
        leases.push((lease, row::time(row, 2)?));
    }
    Ok(Held::new(leases, now))
}

/// Makes leases end without an outcome: `?1` names the rows, `?2` is the time, `?3` who settles them. 6 is
/// Cancelled, 0 Scheduled.
pub(super) const RELEASE: &str = "UPDATE main.backwave_jobs \
            SET state = CASE WHEN cancel_requested THEN 6 ELSE 0 END, \
                finished_at = CASE WHEN cancel_requested THEN ?2 END, \
                due_at = min(due_at, ?2), owner = NULL, expiry = NULL, \
                settled_attempt = attempt, settled_by = ?3, \
                receipt_pump = NULL, receipt_sequence = NULL \
          WHERE seq IN (SELECT value FROM json_each(?1))";

/// The literal state lets the partial index serve.
pub(super) const LAPSED: &str = "SELECT id, attempt, owner, expiry, failures, retry, wire_name, queue \
           FROM main.backwave_jobs \
          WHERE state = 2 AND queue IN (SELECT value FROM json_each(?2)) AND expiry <= ?1 \
          ORDER BY expiry, id LIMIT ?3";

/// What one worker holds.
pub(super) const HELD: &str = "SELECT id, attempt, expiry FROM main.backwave_jobs \
          WHERE state = 2 AND owner = ?1 ORDER BY id";

/// The same for a page.
pub(super) const FIRST_HELD: &str =
    "SELECT id FROM main.backwave_jobs WHERE state = 2 AND owner = ?1 ORDER BY id LIMIT ?2";
