//! The vocabulary of operators, upkeep and readers.

use super::Fixture;
use super::desk::{ACTOR, Desk, sound};
use crate::store::{
    Announcement, AuditAction, AuditFilter, AuditRecord, BulkAnswer, BulkChange, Found,
    HistoryPolicy, JobFilter, LatchesWorkedOff, Page, PumpRecord, Purge, PurgeCursor, Purged,
    QueueAnswer, QueueChange, QueueSettings, Retention, Transition, TransitionBy,
};
use crate::testing::conformance::StoreOptions;
use crate::{JobId, JobState, WorkerId};
use std::time::Duration;

/// What is told of a change of state, but for the time and the place.
pub(super) type Step = (Option<JobState>, JobState, TransitionBy);

/// Everything that ended goes at once.
pub(super) const fn nothing_kept() -> Retention {
    let none = Some(Duration::ZERO);
    Retention {
        succeeded: none,
        cancelled: none,
        dead_lettered: none,
        quarantined: none,
        ..Retention::forever()
    }
}

impl Desk {
    /// A session whose writes are kept as that policy says.
    #[track_caller]
    pub(super) fn with_history(fixture: &Fixture, policy: HistoryPolicy) -> Self {
        let store = fixture.reopen_with(&StoreOptions::history(policy));
        Self::at(store.as_ref(), fixture.clock())
    }

    #[track_caller]
    pub(super) fn change_queue(&mut self, queue: &str, change: QueueChange) -> QueueAnswer {
        let answer = sound(self.session.change_queue(ACTOR, queue, change));
        assert_eq!(answer.store_time, self.now(), "the store's time is told");
        assert_eq!(answer.settings.queue, queue);
        answer
    }

    #[track_caller]
    pub(super) fn pause(&mut self, queue: &str) -> bool {
        self.change_queue(queue, QueueChange::Pause).changed
    }

    #[track_caller]
    pub(super) fn resume(&mut self, queue: &str) -> bool {
        self.change_queue(queue, QueueChange::Resume).changed
    }

    #[track_caller]
    pub(super) fn limit(&mut self, queue: &str, limit: impl Into<Option<u32>>) -> bool {
        self.change_queue(queue, QueueChange::Limit(limit.into())).changed
    }

    #[track_caller]
    pub(super) fn queues(&mut self) -> Vec<QueueSettings> {
        sound(self.session.queues())
    }

    #[track_caller]
    pub(super) fn bulk(
        &mut self,
        change: BulkChange,
        filter: &JobFilter,
        after: Option<JobId>,
        max: u32,
    ) -> BulkAnswer {
        let answer = sound(self.session.change_matching(ACTOR, change, filter, after, max));
        assert_eq!(answer.store_time, self.now(), "the store's time is told");
        assert!(answer.changed <= max, "more than asked for");
        answer
    }

    /// Bulk changes page by page, until there is nothing more; how many jobs changed.
    #[track_caller]
    pub(super) fn bulk_all(&mut self, change: BulkChange, filter: &JobFilter, max: u32) -> u32 {
        let (mut changed, mut after) = (0, None);
        loop {
            let page = self.bulk(change, filter, after, max);
            changed += page.changed;
            assert!(page.next.is_none() || page.next > after, "a page goes on beyond the last");
            after = page.next;
            if after.is_none() {
                return changed;
            }
        }
    }

    #[track_caller]
    pub(super) fn purge_page(&mut self, retention: Retention, max: u32, at: PurgeCursor) -> Purged {
        let purge = Purge::new(retention, max).starting_at(at);
        let purged = sound(self.session.purge(&purge));
        assert_eq!(purged.store_time, self.now(), "the store's time is told");
        assert!(purged.jobs <= max, "more than asked for");
        purged
    }

    /// Goes round and round, until a whole round has taken nothing away; how many jobs are gone.
    #[track_caller]
    pub(super) fn purge(&mut self, retention: Retention) -> u32 {
        let (mut total, mut in_this_round, mut cursor) = (0, 0, PurgeCursor::default());
        for _ in 0..1_000 {
            let purged = self.purge_page(retention, 500, cursor);
            in_this_round += purged.jobs;
            cursor = purged.cursor;
            if !purged.more {
                total += in_this_round;
                if in_this_round == 0 {
                    return total;
                }
                in_this_round = 0;
            }
        }
        panic!("the purge does not come to an end");
    }

    #[track_caller]
    pub(super) fn work_off(&mut self, max: u32) -> LatchesWorkedOff {
        let answer = sound(self.session.work_off_latches(max));
        assert_eq!(answer.store_time, self.now(), "the store's time is told");
        assert!(answer.resolved <= max, "more than asked for");
        answer
    }

    /// Works off what is left of dependents; how many gates were resolved.
    #[track_caller]
    pub(super) fn work_off_all(&mut self, max: u32) -> u32 {
        let mut resolved = 0;
        loop {
            let answer = self.work_off(max);
            resolved += answer.resolved;
            if !answer.more {
                return resolved;
            }
        }
    }

    #[track_caller]
    pub(super) fn announce(&mut self, announcement: &Announcement) {
        assert_eq!(sound(self.session.announce(announcement)), self.now());
    }

    #[track_caller]
    pub(super) fn withdraw(&mut self, worker: WorkerId) {
        sound(self.session.withdraw(worker));
    }

    #[track_caller]
    pub(super) fn pumps(&mut self) -> Vec<PumpRecord> {
        sound(self.session.pumps())
    }

    #[track_caller]
    pub(super) fn page(&mut self, filter: &JobFilter, page: &Page) -> Found {
        sound(self.session.find(filter, page))
    }

    /// The jobs that a filter matches, by ascending id.
    #[track_caller]
    pub(super) fn matching(&mut self, filter: &JobFilter) -> Vec<JobId> {
        self.page(filter, &Page::new(200)).jobs.iter().map(|job| job.id).collect()
    }

    #[track_caller]
    pub(super) fn history(&mut self, job: JobId) -> Vec<Transition> {
        sound(self.session.history(job))
    }

    /// The history of a job, in short.
    #[track_caller]
    pub(super) fn story(&mut self, job: JobId) -> Vec<Step> {
        self.history(job).into_iter().map(|step| (step.from, step.to, step.by)).collect()
    }

    /// The last change of a job's state.
    #[track_caller]
    pub(super) fn last_step(&mut self, job: JobId) -> Transition {
        self.history(job).pop().expect("something has happened to the job")
    }

    #[track_caller]
    pub(super) fn audit(&mut self, filter: &AuditFilter) -> Vec<AuditRecord> {
        sound(self.session.audit(filter))
    }

    /// What operators did, newest first, in short.
    #[track_caller]
    pub(super) fn deeds(&mut self) -> Vec<(AuditAction, Option<JobId>)> {
        let all = self.audit(&AuditFilter::default());
        all.into_iter().map(|record| (record.action, record.job)).collect()
    }

    /// How many jobs of a queue are in a state.
    #[track_caller]
    pub(super) fn count(&mut self, queue: &str, state: JobState) -> u64 {
        let counts = self.counts().into_iter();
        counts.filter(|(name, at, _)| name == queue && *at == state).map(|(.., count)| count).sum()
    }
}
