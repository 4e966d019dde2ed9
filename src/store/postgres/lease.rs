//! Keeping leases, giving them back, and finding the dead ones.

use super::claim::bounded_us;
use super::fault::fault;
use super::reads::{policy, unsigned};
use super::session::{Call, PostgresSession};
use crate::store::{HandedBack, Held, Lapsed, LapsedJob, LeaseRef, Renewal, Renewed, StoreError};
use crate::{JobId, Timestamp, WorkerId};
use std::collections::HashSet;
use std::time::Duration;

pub(super) const RENEW: &str =
    "SELECT renewed, cancels, expiry, store_time FROM {schema}.renew_v1($1, $2, $3, $4, $5)";
pub(super) const HAND_BACK: &str = "SELECT given, store_time, released, released_dues \
    FROM {schema}.hand_back_v2($1, $2, $3, $4, $5)";
pub(super) const FIND_LAPSED: &str = "SELECT store_time, id, attempt, owner, expiry, failures, retry, \
    wire_name, queue FROM {schema}.find_lapsed_v1($1, $2, $3)";
pub(super) const HELD_BY: &str =
    "SELECT store_time, id, attempt, expiry FROM {schema}.held_by_v1($1, $2)";

pub(super) fn renew(
    session: &mut PostgresSession,
    worker: WorkerId,
    rows: &[LeaseRef],
    lease: Duration,
) -> Result<Renewal, StoreError> {
    let now = session.store.clock_time();
    let (jobs, attempts) = columns(rows);
    let row =
        session.query_one(Call::Renew, &[&worker, &jobs, &attempts, &bounded_us(lease), &now])?;
    let renewed: Option<Vec<bool>> = row.try_get(0).map_err(fault)?;
    let cancels: Option<Vec<bool>> = row.try_get(1).map_err(fault)?;
    let expiry: Timestamp = row.try_get(2).map_err(fault)?;
    let pairs = renewed.unwrap_or_default().into_iter().zip(cancels.unwrap_or_default());
    let rows =
        pairs
            .map(|(is_renewed, cancel_requested)| {
                if is_renewed {
                    Renewed::Renewed { expiry, cancel_requested }
                } else {
                    Renewed::Lost
                }
            })
            .collect();
    Ok(Renewal::new(rows, row.try_get(3).map_err(fault)?))
}

pub(super) fn hand_back(
    session: &mut PostgresSession,
    worker: WorkerId,
    rows: &[LeaseRef],
) -> Result<HandedBack, StoreError> {
    let now = session.store.clock_time();
    let (jobs, attempts) = columns(rows);
    let history = session.store.history;
    let row = session.query_one(Call::HandBack, &[&worker, &jobs, &attempts, &history, &now])?;
    session.wake_released(&row, (1, 2, 3))?;
    // Their due times may lie below the floors.
    session.floors.clear();
    let given: Option<Vec<bool>> = row.try_get(0).map_err(fault)?;
    let mut seen = HashSet::new();
    // A lease that is named twice is given back once.
    let given = given.unwrap_or_default().into_iter().zip(rows);
    let given = given.map(|(is_given, lease)| is_given && seen.insert(lease.job)).collect();
    Ok(HandedBack::new(given, row.try_get(1).map_err(fault)?))
}

pub(super) fn find_lapsed(
    session: &mut PostgresSession,
    queues: &[String],
    max: u32,
) -> Result<Lapsed, StoreError> {
    let now = session.store.clock_time();
    let max = i32::try_from(max).unwrap_or(i32::MAX);
    let rows = session.query(Call::FindLapsed, &[&queues, &max, &now])?;
    let mut jobs = Vec::with_capacity(rows.len());
    let mut store_time = Timestamp::EPOCH;
    for row in rows {
        store_time = row.try_get(0).map_err(fault)?;
        let Some(id) = row.try_get::<_, Option<JobId>>(1).map_err(fault)? else { continue };
        let owner = row.try_get(3).map_err(fault)?;
        let expiry = row.try_get(4).map_err(fault)?;
        let mut job = LapsedJob::new(id, unsigned(&row, 2)?, owner, expiry);
        job.failures = unsigned(&row, 5)?;
        job.retry = policy(&row, 6, id)?;
        job.wire_name = row.try_get(7).map_err(fault)?;
        job.queue = row.try_get(8).map_err(fault)?;
        jobs.push(job);
    }
    Ok(Lapsed::new(jobs, store_time))
}

pub(super) fn held_by(session: &mut PostgresSession, worker: WorkerId) -> Result<Held, StoreError> {
    let now = session.store.clock_time();
    let rows = session.query(Call::HeldBy, &[&worker, &now])?;
    let mut leases = Vec::with_capacity(rows.len());
    let mut store_time = Timestamp::EPOCH;
    for row in rows {
        store_time = row.try_get(0).map_err(fault)?;
        let Some(job) = row.try_get::<_, Option<JobId>>(1).map_err(fault)? else { continue };
        let lease = LeaseRef { job, attempt: unsigned(&row, 2)? };
        leases.push((lease, row.try_get(3).map_err(fault)?));
    }
    Ok(Held::new(leases, store_time))
}

fn columns(rows: &[LeaseRef]) -> (Vec<JobId>, Vec<i64>) {
    rows.iter().map(|row| (row.job, i64::from(row.attempt))).unzip()
}
