//! Leases between claim and report: prolonged, found dead, asked for, given back.

use super::batch::Seqs;
use super::{locked, row};
use crate::store::{HandedBack, Held, Lapsed, LapsedJob, LeaseRef, Renewal, Renewed, StoreError};
use crate::{Timestamp, WorkerId};
use rusqlite::{Connection, params};
use std::time::Duration;

/// Prolongs leases inside the caller's write transaction.
///
/// # Errors
/// Faults, and a write that did not touch the rows it was meant for.
pub(super) fn renew(
    conn: &Connection,
    worker: WorkerId,
    leases: &[LeaseRef],
    lease: Duration,
    now: Timestamp,
) -> Result<Renewal, StoreError> {
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
    conn: &Connection,
    worker: WorkerId,
    leases: &[LeaseRef],
    now: Timestamp,
) -> Result<HandedBack, StoreError> {
    let jobs = locked::read(conn, leases.iter().map(|lease| lease.job))?;
    let mut held = Seqs::default();
    let mut answers = Vec::with_capacity(leases.len());
    for lease in leases {
        let job = jobs.get(&lease.job).filter(|job| job.view.is_held(worker, *lease, now));
        // The same lease twice in one call is given back once.
        answers.push(job.is_some_and(|job| held.insert(job.seq)));
    }
    if !held.is_empty() {
        // 6 is Cancelled, 0 Scheduled; 3 says that the holder gave it back.
        let mut statement = conn.prepare_cached(
            "UPDATE main.backwave_jobs \
                SET state = CASE WHEN cancel_requested THEN 6 ELSE 0 END, \
                    finished_at = CASE WHEN cancel_requested THEN ?2 END, \
                    due_at = min(due_at, ?2), owner = NULL, expiry = NULL, \
                    settled_attempt = attempt, settled_by = 3, \
                    receipt_pump = NULL, receipt_sequence = NULL \
              WHERE seq IN (SELECT value FROM json_each(?1))",
        )?;
        let touched = statement.execute(params![held.to_json(), now.as_micros()])?;
        locked::expect_touched("a hand-back", touched, held.len())?;
    }
    Ok(HandedBack::new(answers, now))
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

/// The literal state lets the partial index serve; `+queue` keeps the planner on its order.
pub(super) const LAPSED: &str = "SELECT id, attempt, owner, expiry, failures, retry, wire_name, queue \
           FROM main.backwave_jobs \
          WHERE state = 2 AND expiry <= ?1 AND +queue IN (SELECT value FROM json_each(?2)) \
          ORDER BY expiry, id LIMIT ?3";

/// What one worker holds.
pub(super) const HELD: &str = "SELECT id, attempt, expiry FROM main.backwave_jobs \
          WHERE state = 2 AND owner = ?1 ORDER BY id";
