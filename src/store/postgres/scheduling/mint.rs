//! Decisions about schedules, written behind the revision that they were made for.

use super::rows;
use crate::store::postgres::enqueue::enqueue_within;
use crate::store::postgres::fault::fault;
use crate::store::postgres::session::{Batch, Call, PostgresSession};
use crate::store::{
    EnqueueAnswer, Jobs, MintRow, Minted, Minting, Rejection, ScheduleRecord, StoreError,
};
use crate::{JobId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Which of the jobs exist, and whether they live. Read in a later snapshot than the schedules were locked in.
pub(in crate::store::postgres) const STANDING: &str =
    "SELECT j.id, j.state < 3 FROM {schema}.jobs AS j WHERE j.id = ANY ($1)";

pub(super) fn mint(session: &mut PostgresSession, rows: &[MintRow]) -> Result<Minted, StoreError> {
    if rows.is_empty() {
        return Ok(Minted::new(Vec::new(), Jobs::now(session)?));
    }
    let refusals: Vec<_> = rows.iter().map(|row| session.refusal(row.job.as_ref()?)).collect();
    let (clock_time, history) = (session.store.clock_time(), session.store.history);
    let calls =
        [Call::LockSchedules, Call::Now, Call::StandingJobs, Call::Enqueue, Call::MoveSchedules];
    session.in_transaction(&calls, |tx| {
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        let records = rows::lock(tx, &names)?;
        let now = rows::time(tx, clock_time)?;
        let mut minting = Mint::judge(rows, records, refusals);
        minting.skip_overlaps(tx)?;
        minting.enqueue(tx, history, clock_time)?;
        minting.write(tx, now)?;
        Ok(Minted::new(minting.answers, now))
    })
}

/// A mint under way.
struct Mint<'a> {
    rows: &'a [MintRow],
    /// As they were locked.
    records: BTreeMap<String, ScheduleRecord>,
    /// One per row. Of those with a job, what is written is first taken for not new.
    answers: Vec<Minting>,
}

const NOT_NEW: Minting = Minting::Written { minted: false };

impl<'a> Mint<'a> {
    fn judge(
        rows: &'a [MintRow],
        records: BTreeMap<String, ScheduleRecord>,
        refusals: Vec<Option<Rejection>>,
    ) -> Self {
        let mut moved = BTreeSet::new();
        let judged = rows.iter().zip(refusals).map(|(row, refusal)| match records.get(&row.name) {
            None => Minting::Gone,
            Some(record) if !record.admits(row) => Minting::Conflict,
            // By an earlier row of this call.
            Some(_) if moved.contains(row.name.as_str()) => Minting::Conflict,
            Some(_) => match refusal {
                Some(reason) => Minting::Rejected(reason),
                None => {
                    moved.insert(row.name.as_str());
                    NOT_NEW
                }
            },
        });
        let answers = judged.collect();
        Self { rows, records, answers }
    }

    /// Where a schedule's last job lives and it allows no overlap, its tick is skipped; but one whose job is
    /// there was minted, and overlaps with nothing.
    fn skip_overlaps(&mut self, tx: &mut Batch<'_>) -> Result<(), StoreError> {
        let mut ids = Vec::new();
        let mut pairs = Vec::new();
        for (place, row) in self.rows.iter().enumerate() {
            if !row.no_overlap || self.answers.get(place) != Some(&NOT_NEW) {
                continue;
            }
            let last = self.records.get(&row.name).and_then(|record| record.last_job);
            if let Some((job, last)) = row.job.as_ref().zip(last) {
                ids.extend([job.id, last]);
                pairs.push((place, job.id, last));
            }
        }
        if ids.is_empty() {
            return Ok(());
        }
        let standing = tx.query(Call::StandingJobs, &[&ids])?;
        let standing = standing.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
        let standing: Result<BTreeMap<JobId, bool>, ::postgres::Error> = standing.collect();
        let standing = standing.map_err(fault)?;
        for (place, job, last) in pairs {
            if standing.get(&last) == Some(&true) && !standing.contains_key(&job) {
                self.answers[place] = Minting::Overlapped;
            }
        }
        Ok(())
    }

    /// Enqueues the jobs together. One that is refused is left out, and the others are enqueued once more.
    fn enqueue(
        &mut self,
        tx: &mut Batch<'_>,
        history: i16,
        clock_time: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        let places = self.rows.iter().enumerate().filter_map(|(place, row)| {
            let job = row.job.as_ref().filter(|_| self.answers.get(place) == Some(&NOT_NEW))?;
            Some((place, job.as_ref().clone()))
        });
        let (mut places, mut jobs): (Vec<usize>, Vec<_>) = places.unzip();
        while !jobs.is_empty() {
            match enqueue_within(tx, &jobs, history, clock_time)? {
                EnqueueAnswer::Accepted { jobs, .. } => {
                    for (place, admission) in places.into_iter().zip(jobs) {
                        self.answers[place] = Minting::of(admission);
                    }
                    return Ok(());
                }
                EnqueueAnswer::Rejected { index, reason } => {
                    jobs.remove(index);
                    self.answers[places.remove(index)] = Minting::Rejected(reason);
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, tx: &mut Batch<'_>, now: Timestamp) -> Result<(), StoreError> {
        let mut moved = BTreeSet::new();
        for (row, answer) in self.rows.iter().zip(&self.answers) {
            if !matches!(answer, Minting::Written { .. } | Minting::Overlapped) {
                continue;
            }
            if let Some(record) = self.records.get_mut(&row.name) {
                record.settle(row, answer, now);
                moved.insert(row.name.as_str());
            }
        }
        if moved.is_empty() {
            return Ok(());
        }
        let records = self.records.values();
        let records = records.filter(|record| moved.contains(record.row.name.as_str()));
        rows::write_moved(tx, &records.collect::<Vec<_>>())
    }
}
