//! What groups tell of their pumps.

use crate::store::{Announcement, PumpRecord};
use crate::{Timestamp, WorkerId};
use std::collections::BTreeMap;

#[derive(Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Pumps(BTreeMap<WorkerId, PumpRecord>);

impl Pumps {
    /// The record of a pump once it has told this. A halt that was noted stays as it was noted.
    pub(super) fn heard(&self, announcement: &Announcement, at: Timestamp) -> PumpRecord {
        let mut record = PumpRecord::new(announcement.clone(), at);
        if let Some(known) = self.0.get(&announcement.worker) {
            record.started_at = known.started_at;
            if known.halted_at.is_some() {
                record.halted_at = known.halted_at;
                record.announcement.halt = known.announcement.halt.clone();
            }
        }
        record
    }

    pub(super) fn put(&mut self, record: PumpRecord) {
        self.0.insert(record.announcement.worker, record);
    }

    /// Whether a pump is noted and has not halted.
    pub(super) fn runs(&self, worker: WorkerId) -> bool {
        self.0.get(&worker).is_some_and(|record| record.halted_at.is_none())
    }

    /// Those that told nothing after `until`.
    pub(super) fn silent_since(&self, until: Timestamp) -> Vec<WorkerId> {
        let silent = self.0.iter().filter(|(_, record)| record.last_seen <= until);
        silent.map(|(worker, _)| *worker).collect()
    }

    pub(super) fn forget(&mut self, workers: &[WorkerId]) {
        for worker in workers {
            self.0.remove(worker);
        }
    }

    /// Ordered by group and worker.
    pub(super) fn all(&self) -> Vec<PumpRecord> {
        let mut all: Vec<_> = self.0.values().cloned().collect();
        // Stable: within a group they stay in order of the worker.
        all.sort_by(|one, other| one.announcement.group.cmp(&other.announcement.group));
        all
    }
}
