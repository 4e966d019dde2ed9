//! Taking due jobs.

use super::fault::fault;
use super::floor::Look;
use super::reads::{duration, policy, state, tick, unsigned};
use super::session::{Call, Malformed, Params, PostgresSession};
use crate::store::{Accepts, Body, Claim, Claimed, ClaimedJob, StoreError};
use crate::time::micros;
use crate::{JobId, Timestamp, WorkerId};
use ::postgres::Row;
use ::postgres::types::ToSql;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

pub(super) const CLAIM: &str = "SELECT id, pass, place, attempt, failures, version, state_before, state, \
    owner, expiry, due_at, timeout_us, wire_name, queue, retry, tags, payload, store_time, withheld, \
    next_due, floor_dues, floor_ids, probes_us, waded, schedule, tick \
    FROM {schema}.claim_v2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";

pub(super) fn claim(
    session: &mut PostgresSession,
    claim: &Claim<'_>,
) -> Result<Claimed, StoreError> {
    let columns = ClaimColumns::new(session, claim);
    let now = session.store.clock_time();
    let mut params = columns.params();
    params.push(&now);
    let rows = session.query(Call::Claim, &params)?;
    unpack(session, claim, rows)
}

/// The highest version accepted of each name: the functions look at the first entry of a name only.
fn accepted(accepts: &[Accepts]) -> BTreeMap<&str, i64> {
    let mut highest = BTreeMap::new();
    for accept in accepts {
        let offered = i64::from(accept.version_max);
        let version = highest.entry(accept.wire_name.as_str()).or_insert(offered);
        *version = offered.max(*version);
    }
    highest
}

/// The parameters of a claim as the functions take them.
pub(super) struct ClaimColumns<'a> {
    worker: WorkerId,
    total: i32,
    queues: Vec<&'a str>,
    quotas: Vec<i32>,
    spill: bool,
    names: Vec<&'a str>,
    versions: Vec<i64>,
    bytes_max: i64,
    lease_us: i64,
    floor_dues: Vec<Option<Timestamp>>,
    floor_ids: Vec<Option<JobId>>,
    history: i16,
}

impl<'a> ClaimColumns<'a> {
    pub(super) fn new(session: &PostgresSession, claim: &Claim<'a>) -> Self {
        let now = Instant::now();
        let floors = claim.plan.iter().map(|entry| session.floors.floor(&entry.queue, now));
        let (floor_dues, floor_ids) = floors.map(Option::unzip).unzip();
        let (names, versions) = accepted(claim.accepts).into_iter().unzip();
        Self {
            worker: claim.worker,
            total: saturated(claim.total),
            queues: claim.plan.iter().map(|entry| entry.queue.as_str()).collect(),
            quotas: claim.plan.iter().map(|entry| saturated(entry.quota)).collect(),
            spill: claim.spill,
            names,
            versions,
            bytes_max: i64::try_from(claim.bytes_max).unwrap_or(i64::MAX),
            lease_us: bounded_us(claim.lease),
            floor_dues,
            floor_ids,
            history: session.store.history,
        }
    }

    pub(super) fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        let params: &Params<'_> = &[
            &self.worker,
            &self.total,
            &self.queues,
            &self.quotas,
            &self.spill,
            &self.names,
            &self.versions,
            &self.bytes_max,
            &self.lease_us,
            &self.floor_dues,
            &self.floor_ids,
            &self.history,
        ];
        params.to_vec()
    }
}

/// Reads the answer: a row per job, and the last row, which sums up and has no id.
pub(super) fn unpack(
    session: &mut PostgresSession,
    claim: &Claim<'_>,
    rows: Vec<Row>,
) -> Result<Claimed, StoreError> {
    let mut jobs = Vec::with_capacity(rows.len().saturating_sub(1));
    let mut summary = None;
    for row in rows {
        match row.try_get(0).map_err(fault)? {
            Some(id) => jobs.push(unpack_job(id, &row)?),
            None => summary = Some(row),
        }
    }
    let Some(summary) = summary else {
        return Err(StoreError::new(Malformed("a claim without its last row".to_owned())));
    };
    // The order in which an update returns its rows is nobody's promise.
    jobs.sort_unstable_by_key(|(place, job)| (*place, job.due_at, job.id));
    let jobs = jobs.into_iter().map(|(_, job)| job).collect();
    note_floors(session, claim, &summary).map_err(fault)?;
    let store_time = summary.try_get(17).map_err(fault)?;
    Ok(Claimed::new(jobs, store_time)
        .withheld(summary.try_get(18).map_err(fault)?)
        .next_due(summary.try_get(19).map_err(fault)?))
}

/// A job, with its pass and the place of its queue in the plan.
fn unpack_job(id: JobId, row: &Row) -> Result<((i16, i16), ClaimedJob), StoreError> {
    let attempt = unsigned(row, 3)?;
    let owner: Option<WorkerId> = row.try_get(8).map_err(fault)?;
    let expiry: Option<Timestamp> = row.try_get(9).map_err(fault)?;
    let wire_name = row.try_get(12).map_err(fault)?;
    let mut job = ClaimedJob::new(
        id,
        attempt,
        wire_name,
        WorkerId::from_bytes([0; 16]),
        // A row without an expiry is not leased, which whoever checks the answer sees by its owner.
        expiry.unwrap_or(Timestamp::MIN),
    );
    job.owner = owner;
    job.failures = unsigned(row, 4)?;
    job.version = unsigned(row, 5)?;
    job.state_before = state(row, 6)?;
    job.state = state(row, 7)?;
    job.due_at = row.try_get(10).map_err(fault)?;
    job.timeout = duration(row, 11)?;
    job.queue = row.try_get(13).map_err(fault)?;
    job.retry = policy(row, 14, id)?;
    job.tags = row.try_get(15).map_err(fault)?;
    job.payload = Body::new(row.try_get(16).map_err(fault)?);
    job.tick = tick(row, 24)?;
    let place = (row.try_get(1).map_err(fault)?, row.try_get(2).map_err(fault)?);
    Ok((place, job))
}

fn note_floors(
    session: &mut PostgresSession,
    claim: &Claim<'_>,
    summary: &Row,
) -> Result<(), ::postgres::Error> {
    let dues: Vec<Option<Timestamp>> = summary.try_get(20)?;
    let ids: Vec<Option<JobId>> = summary.try_get(21)?;
    let took: Vec<Option<i64>> = summary.try_get(22)?;
    let entries: Vec<Option<i64>> = summary.try_get(23)?;
    let now = Instant::now();
    for (index, entry) in claim.plan.iter().enumerate() {
        let at = |values: &[Option<i64>]| values.get(index).copied().flatten();
        let look = at(&took).zip(at(&entries)).map(|(took, entries)| Look {
            took: Duration::from_micros(took.unsigned_abs()),
            entries,
        });
        let due = dues.get(index).copied().flatten();
        if let Some(floor) = due.zip(ids.get(index).copied().flatten()) {
            session.floors.note(&entry.queue, floor, look, now);
        }
    }
    Ok(())
}

fn saturated(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// A span in microseconds, at most ten thousand years: beyond the latest instant from any that can be
/// stored, and within what an interval can hold.
pub(super) fn bounded_us(span: Duration) -> i64 {
    const TEN_THOUSAND_YEARS_US: i64 = 315_576_000_000_000_000;
    micros(span).min(TEN_THOUSAND_YEARS_US)
}
