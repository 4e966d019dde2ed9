//! The vocabulary of families: jobs with parents, each in a queue of its own, so that a clause can take
//! the very one it means; and every way in which a parent can end.

use super::desk::{ACTOR, Desk, LEASE, accepts, lease_of, outcome, quota, reap, retry, row, sound};
use crate::store::{
    BulkChange, CancelAnswer, Claim, ClaimedJob, JobFilter, JobRow, Outcome, ParentRecord,
    ParentRule, Revoked, RowReport,
};
use crate::{JobId, JobState, WorkerId};
use std::time::Duration;

/// A job with these parents in a queue of its own.
pub(super) fn member(parents: &[JobId], parent_rule: ParentRule) -> JobRow {
    let row = row();
    JobRow { queue: row.id.to_string(), parents: parents.to_vec(), parent_rule, ..row }
}

/// As [`member`], released by its parents' success only.
pub(super) fn child(parents: &[JobId]) -> JobRow {
    member(parents, ParentRule::OnSuccess)
}

/// As [`member`], released by any end of its parents.
pub(super) fn follower(parents: &[JobId]) -> JobRow {
    member(parents, ParentRule::OnAnyTerminal)
}

/// A way for a job to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Succeeded,
    DeadLettered,
    DeadLetteredByTheReaper,
    Quarantined,
    CalledOff,
    CancelledWaiting,
    CancelledInBulk,
    /// The others under a cancel request.
    Retried,
    Lapsed,
    HandedBack,
    Revoked,
}

impl Way {
    pub(super) const fn state(self) -> JobState {
        match self {
            Self::Succeeded => JobState::Succeeded,
            Self::DeadLettered | Self::DeadLetteredByTheReaper => JobState::DeadLettered,
            Self::Quarantined => JobState::Quarantined,
            _ => JobState::Cancelled,
        }
    }
}

impl Desk {
    /// Enqueues a job without parents in a queue of its own.
    #[track_caller]
    pub(super) fn lone(&mut self) -> JobId {
        self.add(&child(&[]))
    }

    /// Enqueues a job that these parents' success releases.
    #[track_caller]
    pub(super) fn child(&mut self, parents: &[JobId]) -> JobId {
        self.add(&child(parents))
    }

    /// Enqueues a job that any end of these parents releases.
    #[track_caller]
    pub(super) fn follower(&mut self, parents: &[JobId]) -> JobId {
        self.add(&follower(parents))
    }

    /// Claims the first job of that job's queue, which must be it.
    #[track_caller]
    pub(super) fn grab(&mut self, id: JobId) -> ClaimedJob {
        let job = self.job(id);
        let (plan, accepted) = ([quota(&job.queue, 1)], [accepts(&job.wire_name, 1)]);
        let mut jobs = self.claim(&Claim::new(WorkerId::new(), 1, &plan, &accepted, LEASE)).jobs;
        assert_eq!(jobs.len(), 1, "a job that is {} can be claimed", job.state);
        assert_eq!(jobs[0].id, id);
        jobs.remove(0)
    }

    /// Whether a claim gives nothing of that job's queue.
    #[track_caller]
    pub(super) fn is_out_of_reach(&mut self, id: JobId) -> bool {
        let queue = self.job(id).queue;
        let (plan, accepted) = ([quota(&queue, 9)], [accepts("work", 1)]);
        self.claim(&Claim::new(WorkerId::new(), 9, &plan, &accepted, LEASE)).jobs.is_empty()
    }

    /// Claims a job and ends its attempt so.
    #[track_caller]
    pub(super) fn finish(&mut self, id: JobId, how: Outcome) {
        let job = self.grab(id);
        assert_eq!(self.settle(&outcome(&job, how)), RowReport::Applied(how.state(false)));
    }

    #[track_caller]
    pub(super) fn succeed(&mut self, id: JobId) {
        self.finish(id, Outcome::Succeeded);
    }

    #[track_caller]
    pub(super) fn fail(&mut self, id: JobId) {
        self.finish(id, Outcome::DeadLettered);
    }

    /// Ends a job that waits, in that way.
    #[track_caller]
    pub(super) fn end_by(&mut self, id: JobId, way: Way) {
        match way {
            Way::Succeeded => self.succeed(id),
            Way::DeadLettered => self.fail(id),
            Way::Quarantined => self.finish(id, Outcome::Quarantined),
            Way::CalledOff => self.finish(id, Outcome::Cancelled),
            Way::CancelledWaiting => assert_eq!(self.cancel(id), CancelAnswer::Cancelled),
            Way::CancelledInBulk => {
                let queue = self.job(id).queue;
                let filter = JobFilter::new().queue(queue);
                assert_eq!(self.bulk(BulkChange::Cancel, &filter, None, 1).changed, 1);
            }
            Way::DeadLetteredByTheReaper => {
                let job = self.grab(id);
                self.wait(LEASE);
                let state = self.settle(&reap(&job, Outcome::DeadLettered));
                assert_eq!(state, RowReport::Applied(JobState::DeadLettered));
            }
            Way::Retried | Way::Lapsed | Way::HandedBack | Way::Revoked => {
                self.end_under_a_cancel_request(id, way);
            }
        }
        assert_eq!(self.state(id), way.state(), "{way:?}");
    }

    fn end_under_a_cancel_request(&mut self, id: JobId, way: Way) {
        let job = self.grab(id);
        let worker = job.owner.expect("a claimed job has an owner");
        assert_eq!(self.cancel(id), CancelAnswer::Requested);
        match way {
            Way::HandedBack => assert_eq!(self.hand_back(worker, &[lease_of(&job)]), [true]),
            Way::Revoked => assert_eq!(self.revoke(worker, 9).jobs, [id]),
            Way::Lapsed => {
                self.wait(LEASE);
                self.settle(&reap(&job, retry(Duration::ZERO)));
            }
            _ => {
                self.settle(&outcome(&job, retry(Duration::ZERO)));
            }
        }
    }

    #[track_caller]
    pub(super) fn parents(&mut self, id: JobId) -> Vec<ParentRecord> {
        sound(self.session.parents(id))
    }

    /// The parents that hold a job back still.
    #[track_caller]
    pub(super) fn gates(&mut self, id: JobId) -> Vec<JobId> {
        let gating = self.parents(id).into_iter().filter(|parent| parent.is_gating);
        gating.map(|parent| parent.id).collect()
    }

    #[track_caller]
    pub(super) fn ancestor(&mut self, id: JobId, ancestor: JobId) -> Option<ParentRecord> {
        sound(self.session.ancestor(id, ancestor))
    }

    /// Takes leases away from a worker.
    #[track_caller]
    pub(super) fn revoke(&mut self, worker: WorkerId, max: u32) -> Revoked {
        let revoked = sound(self.session.revoke(ACTOR, worker, max));
        assert_eq!(revoked.store_time, self.now(), "the store's time is told");
        revoked
    }
}
