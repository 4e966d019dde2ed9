//! A session, and the hot path: each operation a plan and its application.

use super::draft::Plan;
use super::enqueue;
use super::index::Named;
use super::state::{Moment, State, Trouble};
use super::{MemoryStore, claim, settle};
use crate::invariant::InvariantTrigger;
use crate::store::{
    Claim, Claimed, EnqueueAnswer, Exchanged, HandedBack, Held, JobRow, Jobs, Lapsed, LapsedJob,
    LeaseRef, OutcomeRow, Renewal, Reported, StoreError, check_rows,
};
use crate::{JobId, JobState, Timestamp, WorkerId};
use std::time::Duration;

/// A handle: the store has no connections.
pub(super) struct MemorySession(pub(super) MemoryStore);

impl MemorySession {
    /// Writes a plan, and wakes those who wait for what it has released. The answer, and when.
    pub(super) fn carry_out<A>(
        &self,
        plan: impl FnOnce(&State, Moment) -> Result<(Plan, A), Trouble>,
    ) -> Result<(A, Timestamp), StoreError> {
        let (answer, at, wakes) = self.0.write(plan, |state, (plan, answer), moment| {
            let released = state.carry_out(plan, moment)?;
            Ok((answer, moment.at, state.wakes(&released, moment.at)))
        })?;
        wakes.send(&self.0.inner.hub);
        Ok((answer, at))
    }
}

impl Jobs for MemorySession {
    fn enqueue(&mut self, rows: &[JobRow]) -> Result<EnqueueAnswer, StoreError> {
        let bounds = &self.0.inner.bounds;
        self.0.write(
            |state, moment| match check_rows(rows, bounds, moment.at) {
                Ok(()) => enqueue::plan(state, rows, moment.at),
                Err(refused) => Ok(Err(refused)),
            },
            |state, planned, moment| match planned {
                Ok(births) => enqueue::apply(state, rows, births, moment),
                Err((index, reason)) => Ok(EnqueueAnswer::Rejected { index, reason }),
            },
        )
    }

    fn claim(&mut self, claim: &Claim<'_>) -> Result<Claimed, StoreError> {
        self.0.write(|state, moment| claim::plan(state, claim, moment), claim::apply)
    }

    fn report(&mut self, rows: &[OutcomeRow]) -> Result<Reported, StoreError> {
        let (answers, at) = self.carry_out(|state, moment| settle::report(state, rows, moment))?;
        Ok(Reported::new(answers, at))
    }

    /// The claim is planned over what the report has written, so that it can take what the report
    /// made due. It cannot be refused but by a violated invariant, after which the store is
    /// [`Corrupt`](super::Corrupt) and nobody can meet half an exchange.
    fn exchange(
        &mut self,
        rows: &[OutcomeRow],
        claim: &Claim<'_>,
    ) -> Result<Exchanged, StoreError> {
        let (exchanged, wakes) = self.0.write(
            |state, moment| settle::report(state, rows, moment),
            |state, (plan, answers), moment| {
                let released = state.carry_out(plan, moment)?;
                let picked = claim::plan(state, claim, moment)?;
                let claimed = claim::apply(state, picked, moment)?;
                let exchanged = Exchanged::new(Reported::new(answers, moment.at), claimed);
                Ok((exchanged, state.wakes(&released, moment.at)))
            },
        )?;
        wakes.send(&self.0.inner.hub);
        Ok(exchanged)
    }

    fn renew(
        &mut self,
        worker: WorkerId,
        rows: &[LeaseRef],
        lease: Duration,
    ) -> Result<Renewal, StoreError> {
        let (answers, at) =
            self.carry_out(|state, moment| settle::renew(state, worker, rows, lease, moment))?;
        Ok(Renewal::new(answers, at))
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
        let (answers, at) =
            self.carry_out(|state, moment| settle::hand_back(state, worker, rows, moment))?;
        Ok(HandedBack::new(answers, at))
    }

    fn now(&mut self) -> Result<Timestamp, StoreError> {
        self.0.read(|_, now| Ok(now))
    }
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

pub(super) fn not_leased(id: JobId, found: JobState) -> Trouble {
    let trigger = InvariantTrigger::GuaranteedRowAbsent;
    Trouble::Breach(trigger, format!("job {id} is indexed as leased and is {found}"))
}
