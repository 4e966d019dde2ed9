//! Deliveries given up, on their way into the database and out of it.

use super::{failures, stored, unpack_observation};
use crate::store::postgres::fault::fault;
use crate::store::{ParkedDelivery, Parking, StoreError};
use crate::{JobId, Timestamp, WorkerId};
use ::postgres::Row;

/// An element of each list per delivery.
#[derive(Default)]
pub(super) struct Columns<'a> {
    pub(super) positions: Vec<i64>,
    pub(super) ats: Vec<Timestamp>,
    pub(super) jobs: Vec<JobId>,
    pub(super) workers: Vec<Option<WorkerId>>,
    pub(super) attempts: Vec<i64>,
    pub(super) from_states: Vec<Option<i16>>,
    pub(super) to_states: Vec<i16>,
    pub(super) hands: Vec<i16>,
    pub(super) wire_names: Vec<&'a str>,
    pub(super) queues: Vec<&'a str>,
    pub(super) details: Vec<Option<&'a str>>,
    pub(super) failures: Vec<i64>,
    pub(super) faults: Vec<&'a str>,
}

impl<'a> Columns<'a> {
    pub(super) fn new(parked: &'a [Parking]) -> Self {
        let mut columns = Self::default();
        // Of a position twice the last one counts; one statement cannot write a row twice.
        let last = |index: &usize| {
            let position = |parking: &Parking| parking.observation.transition.position;
            parked[index + 1..].iter().all(|later| position(later) != position(&parked[*index]))
        };
        for index in (0..parked.len()).filter(last) {
            columns.push(&parked[index]);
        }
        columns
    }

    fn push(&mut self, Parking { observation, failures, detail }: &'a Parking) {
        let told = &observation.transition;
        self.positions.push(stored(told.position));
        self.ats.push(told.at);
        self.jobs.push(observation.job);
        self.workers.push(told.worker);
        self.attempts.push(told.attempt.into());
        self.from_states.push(told.from.map(|state| state.code()));
        self.to_states.push(told.to.code());
        self.hands.push(told.by.code());
        self.wire_names.push(&observation.wire_name);
        self.queues.push(&observation.queue);
        self.details.push(told.detail.as_deref());
        self.failures.push((*failures).into());
        self.faults.push(detail);
    }
}

/// A parked delivery as it is read back.
pub(super) fn unpack(row: &Row) -> Result<ParkedDelivery, StoreError> {
    let detail = row.try_get(13).map_err(fault)?;
    let parking = Parking::new(unpack_observation(row)?, failures(row, 12)?, detail);
    let mut parked = ParkedDelivery::new(parking, row.try_get(14).map_err(fault)?);
    parked.is_wanted_again = row.try_get(15).map_err(fault)?;
    Ok(parked)
}
