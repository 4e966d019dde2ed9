//! The schedules that stand, and when each is to be looked at.

use crate::Timestamp;
use crate::store::ScheduleRecord;
use std::collections::{BTreeMap, BTreeSet};

/// By name, with an index of those that a node is to look at.
#[cfg_attr(test, derive(Clone))]
#[derive(Default)]
pub(super) struct Schedules {
    by_name: BTreeMap<String, ScheduleRecord>,
    /// Those that are neither paused nor ended.
    looks: BTreeSet<(Timestamp, String)>,
}

impl Schedules {
    pub(super) fn find(&self, name: &str) -> Option<&ScheduleRecord> {
        self.by_name.get(name)
    }

    /// Writes a schedule, new or not.
    pub(super) fn put(&mut self, record: ScheduleRecord) {
        self.take(&record.row.name);
        if let Some(look) = look(&record) {
            self.looks.insert(look);
        }
        self.by_name.insert(record.row.name.clone(), record);
    }

    /// Forgets a schedule.
    pub(super) fn take(&mut self, name: &str) {
        if let Some(look) = self.by_name.remove(name).as_ref().and_then(look) {
            self.looks.remove(&look);
        }
    }

    /// Ordered by name.
    pub(super) fn all(&self) -> impl Iterator<Item = &ScheduleRecord> {
        self.by_name.values()
    }

    /// Up to `max` schedules whose time has come, the longest due first, and when the next after them is to be
    /// looked at.
    pub(super) fn due(
        &self,
        max: usize,
        now: Timestamp,
    ) -> (Vec<ScheduleRecord>, Option<Timestamp>) {
        let ripe = self.looks.iter().take_while(|(at, _)| *at <= now).take(max);
        let due: Vec<_> = ripe.filter_map(|(_, name)| self.by_name.get(name)).cloned().collect();
        let next_at = self.looks.iter().nth(due.len()).map(|(at, _)| *at);
        (due, next_at)
    }
}

fn look(record: &ScheduleRecord) -> Option<(Timestamp, String)> {
    let at = record.look_at.filter(|_| !record.is_paused)?;
    Some((at, record.row.name.clone()))
}
