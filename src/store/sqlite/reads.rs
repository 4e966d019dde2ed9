//! What can be read of jobs.

use super::{find, row};
use crate::invariant::InvariantTrigger;
use crate::store::{Body, Found, JobFilter, JobRecord, JobRow, Page, QueueCount, StoreError};
use crate::{JobId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row};

/// What a record is made of, in the order in which [`record`] reads it.
macro_rules! record_columns {
    () => {
        "j.wire_name, j.version, j.queue, coalesce(j.payload, p.payload), j.state, j.attempt, \
         j.failures, j.due_at, j.created_at, j.finished_at, j.retry, j.timeout_us, j.tags, \
         j.owner, j.expiry, j.cancel_requested, j.output, j.failure_detail, j.parent_rule, \
         j.unique_key, j.concurrency_key, j.schedule, j.tick"
    };
}

/// Reads one job, whole.
///
/// # Errors
/// Faults, a long payload that is gone, and what is stored as a number of no enum or as no policy.
pub(super) fn job(conn: &Connection, job: JobId) -> Result<Option<JobRecord>, StoreError> {
    let mut statement = conn.prepare_cached(concat!(
        "SELECT ",
        record_columns!(),
        " FROM main.backwave_jobs AS j \
           LEFT JOIN main.backwave_payloads AS p ON p.seq = j.seq \
          WHERE j.id = ?1"
    ))?;
    let decoded = statement.query_row([job.as_bytes()], |row| Ok(record(row, job))).optional()?;
    decoded.transpose()
}

/// Reads a page of the jobs that a filter matches.
///
/// # Errors
/// As [`job`].
pub(super) fn find(
    conn: &Connection,
    filter: &JobFilter,
    page: &Page,
) -> Result<Found, StoreError> {
    let Some((query, order)) = find::page(filter, page) else {
        return Ok(Found::new(Vec::new(), None));
    };
    let sql = format!(
        concat!(
            "SELECT ",
            record_columns!(),
            ", page.id FROM ({}) AS page \
               JOIN main.backwave_jobs AS j ON j.seq = page.seq \
               LEFT JOIN main.backwave_payloads AS p ON p.seq = j.seq \
              ORDER BY page.id {}"
        ),
        query.sql, order
    );
    // Of so many shapes that keeping them prepared would only push others out.
    let mut statement = conn.prepare(&sql)?;
    let mut rows = statement.query(rusqlite::params_from_iter(query.values))?;
    let mut jobs = Vec::new();
    while let Some(row) = rows.next()? {
        jobs.push(record(row, row::job_id(row, 23)?)?);
    }
    let is_full = jobs.len() as u64 == u64::from(page.bounded_limit());
    let next = jobs.last().map(|job| job.id).filter(|_| is_full);
    Ok(Found::new(jobs, next))
}

fn record(row: &Row<'_>, id: JobId) -> Result<JobRecord, StoreError> {
    let mut record = JobRecord::new(&JobRow::new(id, row.get::<_, String>(0)?), Timestamp::EPOCH);
    record.version = row.get(1)?;
    record.queue = row.get(2)?;
    record.payload = Body::new(payload(row, 3, id)?);
    record.state = row::state(row, 4, id)?;
    record.attempt = row.get(5)?;
    record.failures = row.get(6)?;
    record.due_at = row::time(row, 7)?;
    record.created_at = row::time(row, 8)?;
    record.finished_at = row::time_or_null(row, 9)?;
    record.retry = row::retry(row, 10, id)?;
    record.timeout = row::timeout(row, 11)?;
    record.tags = row::tags(row, 12, id)?;
    record.owner = row::worker(row, 13)?;
    record.expiry = row::time_or_null(row, 14)?;
    record.cancel_requested = row.get(15)?;
    record.output = row.get::<_, Option<Vec<u8>>>(16)?.map(Body::new);
    record.failure_detail = row.get(17)?;
    record.parent_rule = row::parent_rule(row, 18, id)?;
    record.unique_key = row.get(19)?;
    record.concurrency_key = row.get(20)?;
    record.tick = row::tick(row, 21)?;
    Ok(record)
}

/// A payload that stands neither in its row nor beside it has been taken away: as at a claim, no guess
/// is made of it.
fn payload(row: &Row<'_>, column: usize, job: JobId) -> Result<Vec<u8>, StoreError> {
    row.get::<_, Option<Vec<u8>>>(column)?.ok_or_else(|| {
        let message = format!("the long payload of job {job} does not exist");
        StoreError::found(InvariantTrigger::GuaranteedRowAbsent, message)
    })
}

/// Counts jobs by queue and state.
///
/// # Errors
/// Faults, and a stored number that is no member of its enum.
pub(super) fn counts(conn: &Connection) -> Result<Vec<QueueCount>, StoreError> {
    let mut statement = conn.prepare_cached(COUNTS)?;
    let mut rows = statement.query([])?;
    let mut counts = Vec::new();
    while let Some(row) = rows.next()? {
        let queue: String = row.get(0)?;
        let state = row::known_state(row.get(1)?, || format!("a job in queue {queue:?}"))?;
        counts.push(QueueCount::new(queue, state, row::unsigned(row, 2)?));
    }
    Ok(counts)
}

/// Each part is answered by a partial index alone, hence the literal states; what has ended is counted as it
/// ends. The last part finds nothing, unless there is a state that nobody knows.
pub(super) const COUNTS: &str = "SELECT queue, 0, sum(jobs) FROM ( \
             SELECT queue, count(*) AS jobs FROM main.backwave_jobs \
              WHERE state = 0 AND concurrency_key IS NULL GROUP BY queue \
             UNION ALL \
             SELECT queue, count(*) FROM main.backwave_jobs \
              WHERE state = 0 AND concurrency_key IS NOT NULL GROUP BY queue) GROUP BY queue \
         UNION ALL \
         SELECT queue, 1, count(*) FROM main.backwave_jobs WHERE state = 1 GROUP BY queue \
         UNION ALL \
         SELECT queue, 2, count(*) FROM main.backwave_jobs WHERE state = 2 GROUP BY queue \
         UNION ALL \
         SELECT queue, state, jobs FROM main.backwave_ended_counts WHERE jobs > 0 \
         UNION ALL \
         SELECT '', state, count(*) FROM main.backwave_jobs WHERE state > 2 AND state > 6 GROUP BY state \
         ORDER BY 1, 2";
