//! Decisions about schedules, written behind the revision that they were made for.

use super::rows;
use crate::JobId;
use crate::store::sqlite::work::Work;
use crate::store::sqlite::{enqueue, locked};
use crate::store::{EnqueueAnswer, MintRow, Minting, Rejection, ScheduleRecord, StoreError};
use rusqlite::Connection;

/// Writes decisions inside the caller's write transaction, one after the other. `refusals` says of which the job
/// is refused.
///
/// # Errors
/// Faults, and a write that did not touch the row it was meant for.
pub(super) fn mint(
    work: &mut Work<'_>,
    decisions: &[MintRow],
    refusals: Vec<Option<Rejection>>,
) -> Result<Vec<Minting>, StoreError> {
    let rows = decisions.iter().zip(refusals);
    rows.map(|(row, refusal)| mint_one(work, row, refusal)).collect()
}

fn mint_one(
    work: &mut Work<'_>,
    row: &MintRow,
    refusal: Option<Rejection>,
) -> Result<Minting, StoreError> {
    let Some(mut record) = rows::by_name(work.conn, &row.name)? else {
        return Ok(Minting::Gone);
    };
    if !record.admits(row) {
        return Ok(Minting::Conflict);
    }
    if let Some(reason) = refusal {
        return Ok(Minting::Rejected(reason));
    }
    let minting = enqueue_job(work, row, &record)?;
    if !matches!(minting, Minting::Rejected(_)) {
        record.settle(row, &minting, work.now);
        rows::update(work.conn, &record)?;
    }
    Ok(minting)
}

fn enqueue_job(
    work: &mut Work<'_>,
    row: &MintRow,
    record: &ScheduleRecord,
) -> Result<Minting, StoreError> {
    let Some(job) = &row.job else {
        return Ok(Minting::Written { minted: false });
    };
    if row.no_overlap && overlaps(work.conn, record, job.id)? {
        return Ok(Minting::Overlapped);
    }
    match enqueue::insert(work, std::slice::from_ref(job))? {
        EnqueueAnswer::Accepted { jobs, .. } => {
            Ok(jobs.first().copied().map_or(Minting::Written { minted: false }, Minting::of))
        }
        EnqueueAnswer::Rejected { reason, .. } => Ok(Minting::Rejected(reason)),
    }
}

/// Whether the job that the schedule minted last has not ended; one that was purged had. A tick whose job is
/// there was minted, and overlaps with nothing.
fn overlaps(conn: &Connection, record: &ScheduleRecord, job: JobId) -> Result<bool, StoreError> {
    let Some(last) = record.last_job else { return Ok(false) };
    let found = locked::read(conn, [last, job].into_iter())?;
    let lives = found.get(&last).is_some_and(|last| !last.view.state.is_terminal());
    Ok(lives && !found.contains_key(&job))
}
