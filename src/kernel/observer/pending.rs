//! What has been decided of deliveries, and is not written yet.

use super::command::Resolution;
use crate::store::Parking;
use std::time::Duration;

/// Decisions on their way into the store.
#[derive(Debug, Default)]
pub(super) struct Pending {
    until: Option<u64>,
    parked: Vec<Parking>,
    delivered_again: Vec<u64>,
    /// The head of the batch has failed.
    has_failure: bool,
    count: u32,
}

impl Pending {
    pub(super) const fn is_empty(&self) -> bool {
        self.until.is_none()
            && self.parked.is_empty()
            && self.delivered_again.is_empty()
            && !self.has_failure
    }

    /// How many deliveries are decided.
    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    /// A failure is to be counted by whoever holds the cursor next.
    pub(super) const fn has_failure(&self) -> bool {
        self.has_failure
    }

    pub(super) const fn pass(&mut self, position: u64) {
        self.until = Some(position);
        self.count += 1;
    }

    pub(super) fn delivered_again(&mut self, position: u64) {
        self.delivered_again.push(position);
        self.count += 1;
    }

    pub(super) fn park(&mut self, parking: Parking) {
        self.parked.push(parking);
    }

    pub(super) const fn fails(&mut self) {
        self.has_failure = true;
    }

    /// What of it is newer, put after it.
    pub(super) fn followed_by(mut self, newer: Self) -> Self {
        self.until = newer.until.or(self.until);
        self.parked.extend(newer.parked);
        self.delivered_again.extend(newer.delivered_again);
        self.has_failure |= newer.has_failure;
        self.count = self.count.saturating_add(newer.count);
        self
    }

    /// The write that these decisions make, with what the head of the batch has been through.
    pub(super) fn resolution(
        &self,
        epoch: u64,
        round: u64,
        failing: Option<(u64, u32, Duration)>,
    ) -> Resolution {
        Resolution {
            epoch,
            round,
            until: self.until,
            parked: self.parked.clone(),
            failing,
            delivered_again: self.delivered_again.clone(),
        }
    }

    pub(super) fn into_parked(self) -> Vec<Parking> {
        self.parked
    }
}
