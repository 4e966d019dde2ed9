//! What operators did.

use crate::kernel::text::clean;
use crate::store::{ACTOR_BYTES_MAX, AuditAction, AuditFilter, AuditPage, AuditRecord, PAGE_MAX};
use crate::{JobId, Timestamp};
use std::collections::VecDeque;

/// Records in order of their positions.
#[derive(Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Audit {
    last: u64,
    records: VecDeque<AuditRecord>,
}

impl Audit {
    /// The position of the next record.
    pub(super) const fn next(&self) -> u64 {
        self.last + 1
    }

    /// Adds a record, made for the [next](Self::next) position.
    pub(super) fn push(&mut self, record: AuditRecord) {
        self.last = record.position;
        self.records.push_back(record);
    }

    /// How many records at the old end were made at `until` or before, counted up to `max`.
    pub(super) fn count_old(&self, until: Timestamp, max: usize) -> usize {
        self.records.iter().take(max).take_while(|record| record.at <= until).count()
    }

    /// Takes away so many records at the old end.
    pub(super) fn forget(&mut self, count: usize) {
        self.records.drain(..count.min(self.records.len()));
    }

    /// The records that a filter matches, newest first.
    pub(super) fn page(&self, filter: &AuditFilter) -> AuditPage {
        let limit = filter.limit.unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX);
        let newest_first = self.records.iter().rev();
        let matching = newest_first.filter(|record| matches(filter, record));
        matching.take(limit as usize).cloned().collect()
    }
}

/// A record, its actor's name cleaned and cut.
pub(super) fn record(
    position: u64,
    at: Timestamp,
    actor: &str,
    action: AuditAction,
    job: Option<JobId>,
    queue: &str,
) -> AuditRecord {
    AuditRecord::new(position, at, clean(actor, ACTOR_BYTES_MAX), action, job, queue.to_owned())
}

fn matches(filter: &AuditFilter, record: &AuditRecord) -> bool {
    filter.before.is_none_or(|before| record.position < before)
        && filter.job.is_none_or(|job| record.job == Some(job))
        && filter.queue.as_ref().is_none_or(|queue| record.queue == *queue)
        && filter.actor.as_ref().is_none_or(|actor| record.actor == *actor)
}
