//! The contract's operations, each a plan and its application.

use super::index::Named;
use super::state::{Change, Slot, State, Trouble};
use super::{MemoryStore, claim, settle};
use crate::store::{
    Announcement, AuditFilter, AuditPage, BulkAnswer, BulkChange, CancelAnswer, Claim, Claimed,
    EnqueueAnswer, Exchanged, Found, HandedBack, Held, JobFilter, JobRecord, JobRow, Jobs, Lapsed,
    LapsedJob, LatchesWorkedOff, LeaseRef, Operations, OutcomeRow, Page, ParentRecord, PumpRecord,
    Purge, Purged, QueueAnswer, QueueChange, QueueCount, QueueSettings, Reads, Renewal, Reported,
    RequeueAnswer, Revoked, StoreError, Transition, Upkeep, check_rows,
};
use crate::{JobId, JobState, Timestamp, WorkerId};
use std::collections::BTreeSet;
use std::time::Duration;

/// A handle: the store has no connections.
pub(super) struct MemorySession(MemoryStore);

impl MemorySession {
    pub(super) const fn new(store: MemoryStore) -> Self {
        Self(store)
    }
}

impl Jobs for MemorySession {
    fn enqueue(&mut self, rows: &[JobRow]) -> Result<EnqueueAnswer, StoreError> {
        let bounds = &self.0.0.bounds;
        self.0.write(
            |state, now| Ok(check_rows(rows, bounds, now).map(|()| novelty(state, rows))),
            |state, planned, now| match planned {
                Ok(is_new) => {
                    let new = rows.iter().zip(&is_new).filter(|(_, is_new)| **is_new);
                    new.map(|(row, _)| row).try_for_each(|row| state.insert(row, now))?;
                    Ok(EnqueueAnswer::Accepted { is_new, store_time: now })
                }
                Err((index, reason)) => Ok(EnqueueAnswer::Rejected { index, reason }),
            },
        )
    }

    fn claim(&mut self, claim: &Claim<'_>) -> Result<Claimed, StoreError> {
        self.0.write(|state, now| claim::plan(state, claim, now), claim::apply)
    }

    fn report(&mut self, rows: &[OutcomeRow]) -> Result<Reported, StoreError> {
        self.0.write(
            |state, now| Ok(settle::report(state, rows, now)),
            |state, (changes, answers), now| {
                state.apply_all(changes)?;
                Ok(Reported::new(answers, now))
            },
        )
    }

    /// The claim is planned over what the report has written, so that it can take what the report
    /// made due. It cannot be refused but by a violated invariant, after which the store is
    /// [`Corrupt`](super::Corrupt) and nobody can meet half an exchange.
    fn exchange(
        &mut self,
        rows: &[OutcomeRow],
        claim: &Claim<'_>,
    ) -> Result<Exchanged, StoreError> {
        self.0.write(
            |state, now| Ok(settle::report(state, rows, now)),
            |state, (changes, answers), now| {
                state.apply_all(changes)?;
                let picked = claim::plan(state, claim, now)?;
                let claimed = claim::apply(state, picked, now)?;
                Ok(Exchanged::new(Reported::new(answers, now), claimed))
            },
        )
    }

    fn renew(
        &mut self,
        worker: WorkerId,
        rows: &[LeaseRef],
        lease: Duration,
    ) -> Result<Renewal, StoreError> {
        self.0.write(
            |state, now| Ok(settle::renew(state, worker, rows, lease, now)),
            |state, (changes, answers), now| {
                state.apply_all(changes)?;
                Ok(Renewal::new(answers, now))
            },
        )
    }

    fn find_lapsed(&mut self, queues: &[String], max: u32) -> Result<Lapsed, StoreError> {
        self.0.read(|state, now| {
            let dead = state.index.leased(queues).take_while(|(expiry, ..)| *expiry <= now);
            let jobs =
                dead.take(max as usize).map(|(expiry, id, slot)| lapsed(state, (id, slot), expiry));
            Ok(Lapsed::new(jobs.collect::<Result<_, _>>()?, now))
        })
    }

    fn held_by(&mut self, worker: WorkerId) -> Result<Held, StoreError> {
        self.0.read(|state, now| {
            let leases = state.index.held(worker).map(|named| {
                let life = state.indexed(named)?.life;
                let expiry = life.hold.map_or(Timestamp::MIN, |(_, expiry)| expiry);
                Ok((LeaseRef { job: named.0, attempt: life.attempt }, expiry))
            });
            Ok(Held::new(leases.collect::<Result<_, Trouble>>()?, now))
        })
    }

    fn hand_back(&mut self, worker: WorkerId, rows: &[LeaseRef]) -> Result<HandedBack, StoreError> {
        self.0.write(
            |state, now| Ok(settle::hand_back(state, worker, rows, now)),
            |state, (changes, answers), now| {
                state.apply_all(changes)?;
                Ok(HandedBack::new(answers, now))
            },
        )
    }

    fn now(&mut self) -> Result<Timestamp, StoreError> {
        self.0.read(|_, now| Ok(now))
    }
}

impl Operations for MemorySession {
    fn request_cancel(&mut self, _actor: &str, job: JobId) -> Result<CancelAnswer, StoreError> {
        self.0.write(
            |state, now| Ok(settle::request_cancel(state, job, now)),
            |state, planned, _| apply_one(state, planned),
        )
    }

    fn requeue(&mut self, _actor: &str, job: JobId) -> Result<RequeueAnswer, StoreError> {
        self.0.write(
            |state, now| Ok(settle::requeue(state, job, now)),
            |state, planned, _| apply_one(state, planned),
        )
    }

    fn change_matching(
        &mut self,
        _actor: &str,
        _change: BulkChange,
        _filter: &JobFilter,
        _after: Option<JobId>,
        _max: u32,
    ) -> Result<BulkAnswer, StoreError> {
        unbuilt()
    }

    fn change_queue(
        &mut self,
        _actor: &str,
        _queue: &str,
        _change: QueueChange,
    ) -> Result<QueueAnswer, StoreError> {
        unbuilt()
    }

    fn revoke(
        &mut self,
        _actor: &str,
        _worker: WorkerId,
        _max: u32,
    ) -> Result<Revoked, StoreError> {
        unbuilt()
    }
}

impl Upkeep for MemorySession {
    fn purge(&mut self, _purge: &Purge) -> Result<Purged, StoreError> {
        unbuilt()
    }

    fn work_off_latches(&mut self, _max: u32) -> Result<LatchesWorkedOff, StoreError> {
        unbuilt()
    }

    fn announce(&mut self, _announcement: &Announcement) -> Result<Timestamp, StoreError> {
        unbuilt()
    }

    fn withdraw(&mut self, _worker: WorkerId) -> Result<(), StoreError> {
        unbuilt()
    }
}

/// TO BUILD.
fn unbuilt<T>() -> Result<T, StoreError> {
    Err(StoreError::new(std::io::Error::from(std::io::ErrorKind::Unsupported)))
}

impl Reads for MemorySession {
    fn job(&mut self, job: JobId) -> Result<Option<JobRecord>, StoreError> {
        self.0.read(|state, _| Ok(state.record(job)))
    }

    fn counts(&mut self) -> Result<Vec<QueueCount>, StoreError> {
        self.0.read(|state, _| Ok(state.index.counts()))
    }

    fn find(&mut self, _filter: &JobFilter, _page: &Page) -> Result<Found, StoreError> {
        unbuilt()
    }

    fn parents(&mut self, _job: JobId) -> Result<Vec<ParentRecord>, StoreError> {
        unbuilt()
    }

    fn ancestor(
        &mut self,
        _job: JobId,
        _ancestor: JobId,
    ) -> Result<Option<ParentRecord>, StoreError> {
        unbuilt()
    }

    fn history(&mut self, _job: JobId) -> Result<Vec<Transition>, StoreError> {
        unbuilt()
    }

    fn audit(&mut self, _filter: &AuditFilter) -> Result<AuditPage, StoreError> {
        unbuilt()
    }

    fn queues(&mut self) -> Result<Vec<QueueSettings>, StoreError> {
        unbuilt()
    }

    fn pumps(&mut self) -> Result<Vec<PumpRecord>, StoreError> {
        unbuilt()
    }
}

/// Per row, whether its id is neither stored nor given by an earlier row of the call.
fn novelty(state: &State, rows: &[JobRow]) -> Vec<bool> {
    let mut given = BTreeSet::new();
    rows.iter().map(|row| !state.by_id.contains_key(&row.id) && given.insert(row.id)).collect()
}

fn apply_one<A>(
    state: &mut State,
    (change, answer): (Option<(Slot, Change)>, A),
) -> Result<A, Trouble> {
    state.apply_all(change)?;
    Ok(answer)
}

fn lapsed(state: &State, named: Named, expiry: Timestamp) -> Result<LapsedJob, Trouble> {
    let job = state.indexed(named)?;
    let name = state.index.name(job.place);
    let owner = match (job.life.state, job.life.hold) {
        (JobState::Leased, Some((owner, _))) => owner,
        (found, _) => return Err(not_leased(job.id, found)),
    };
    Ok(LapsedJob {
        id: job.id,
        attempt: job.life.attempt,
        owner,
        expiry,
        failures: job.life.failures,
        retry: job.retry,
        wire_name: name.wire_name.to_owned(),
        queue: name.queue.to_owned(),
    })
}

fn not_leased(id: JobId, found: JobState) -> Trouble {
    let trigger = crate::invariant::InvariantTrigger::GuaranteedRowAbsent;
    Trouble::Breach(trigger, format!("job {id} is indexed as leased and is {found}"))
}
