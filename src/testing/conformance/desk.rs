//! The vocabulary of the clauses: a session that speaks in short sentences and panics at any fault.

use super::Fixture;
use crate::store::{
    Accepts, Admission, CancelAnswer, Claim, Claimed, ClaimedJob, EnqueueAnswer, Exchanged,
    HandedBack, JobRecord, JobRow, LapsedJob, LeaseRef, Mode, Outcome, OutcomeRow, Receipt,
    Rejection, Renewed, RequeueAnswer, RowReport, Session, Store, StoreError,
};
use crate::testing::VirtualClock;
use crate::{JobId, JobState, Timestamp, WorkerId};
use std::time::Duration;

pub(super) use crate::store::{QueueQuota, StoreClock};

/// The lease of every claim here that does not say otherwise.
pub(super) const LEASE: Duration = Duration::from_secs(30);
pub(super) const SECOND: Duration = Duration::from_secs(1);
/// In whose name operators act here.
pub(super) const ACTOR: &str = "ada";
/// The smallest step of time.
pub(super) const TICK: Duration = Duration::from_micros(1);

pub(super) struct Desk {
    pub(super) session: Box<dyn Session>,
    clock: VirtualClock,
}

impl Desk {
    #[track_caller]
    pub(super) fn open(fixture: &Fixture) -> Self {
        Self::at(fixture.store(), fixture.clock())
    }

    #[track_caller]
    pub(super) fn at(store: &dyn Store, clock: &VirtualClock) -> Self {
        Self::of(store.open_session(), clock)
    }

    #[track_caller]
    pub(super) fn of(session: Result<Box<dyn Session>, StoreError>, clock: &VirtualClock) -> Self {
        Self { session: sound(session), clock: clock.clone() }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Lets time pass.
    pub(super) fn wait(&self, span: Duration) -> Timestamp {
        self.clock.advance(span)
    }

    #[track_caller]
    pub(super) fn store_time(&mut self) -> Timestamp {
        sound(self.session.now())
    }

    #[track_caller]
    pub(super) fn enqueue(&mut self, rows: &[JobRow]) -> EnqueueAnswer {
        sound(self.session.enqueue(rows))
    }

    /// Enqueues what must be accepted, and tells per job whether it is new.
    #[track_caller]
    pub(super) fn accept(&mut self, rows: &[JobRow]) -> Vec<bool> {
        match self.enqueue(rows) {
            EnqueueAnswer::Accepted { jobs, store_time } => {
                assert_eq!(store_time, self.now(), "the store's time is told");
                assert_eq!(jobs.len(), rows.len(), "one entry per job");
                jobs.into_iter().map(Admission::is_new).collect()
            }
            other => panic!("refused: {other:?}"),
        }
    }

    /// Enqueues one job that must be new.
    #[track_caller]
    pub(super) fn add(&mut self, row: &JobRow) -> JobId {
        assert_eq!(self.accept(std::slice::from_ref(row)), [true]);
        row.id
    }

    /// Enqueues what must be refused.
    #[track_caller]
    pub(super) fn refuse(&mut self, rows: &[JobRow]) -> (usize, Rejection) {
        match self.enqueue(rows) {
            EnqueueAnswer::Rejected { index, reason } => (index, reason),
            other => panic!("not refused: {other:?}"),
        }
    }

    /// Enqueues one job that must be refused and must leave nothing behind.
    #[track_caller]
    pub(super) fn refuse_one(&mut self, row: &JobRow) -> Rejection {
        let (index, reason) = self.refuse(std::slice::from_ref(row));
        assert_eq!(index, 0);
        assert!(self.find(row.id).is_none(), "a refused job is stored");
        reason
    }

    #[track_caller]
    pub(super) fn claim(&mut self, claim: &Claim<'_>) -> Claimed {
        let claimed = sound(self.session.claim(claim));
        assert_eq!(claimed.store_time, self.now(), "the store's time is told");
        assert!(claimed.jobs.len() <= claim.total as usize, "more than asked for");
        claimed
    }

    /// Claims jobs `work` of the queue `default`.
    #[track_caller]
    pub(super) fn take(&mut self, worker: WorkerId, total: u32) -> Vec<ClaimedJob> {
        let (plan, accepts) = ([quota("default", total)], [accepts("work", 1)]);
        self.claim(&Claim::new(worker, total, &plan, &accepts, LEASE)).jobs
    }

    /// Claims the one job there is to claim.
    #[track_caller]
    pub(super) fn take_one(&mut self, worker: WorkerId) -> ClaimedJob {
        let mut jobs = self.take(worker, 2);
        assert_eq!(jobs.len(), 1, "one job is to be had");
        jobs.remove(0)
    }

    /// Enqueues a job and claims it.
    #[track_caller]
    pub(super) fn hold(&mut self, worker: WorkerId) -> ClaimedJob {
        let id = self.add(&row());
        let job = self.take_one(worker);
        assert_eq!(job.id, id);
        job
    }

    /// Enqueues a job, claims it and ends it so.
    #[track_caller]
    pub(super) fn end(&mut self, how: Outcome) -> ClaimedJob {
        let job = self.hold(WorkerId::new());
        let state = how.state(false);
        assert_eq!(self.settle(&outcome(&job, how)), RowReport::Applied(state));
        job
    }

    #[track_caller]
    pub(super) fn report(&mut self, rows: &[OutcomeRow]) -> Vec<RowReport> {
        let reported = sound(self.session.report(rows));
        assert_eq!(reported.store_time, self.now(), "the store's time is told");
        assert_eq!(reported.rows.len(), rows.len(), "one entry per row");
        reported.rows
    }

    #[track_caller]
    pub(super) fn settle(&mut self, row: &OutcomeRow) -> RowReport {
        self.report(std::slice::from_ref(row))[0]
    }

    /// Reports one row while another thread may set the clock.
    #[track_caller]
    pub(super) fn report_at_any_time(&mut self, row: &OutcomeRow) -> RowReport {
        sound(self.session.report(std::slice::from_ref(row))).rows[0]
    }

    /// Renews one lease while another thread may set the clock.
    #[track_caller]
    pub(super) fn renew_at_any_time(&mut self, worker: WorkerId, lease: LeaseRef) -> Renewed {
        sound(self.session.renew(worker, &[lease], LEASE)).rows[0]
    }

    #[track_caller]
    pub(super) fn exchange(&mut self, rows: &[OutcomeRow], claim: &Claim<'_>) -> Exchanged {
        let exchanged = sound(self.session.exchange(rows, claim));
        assert_eq!(exchanged.reported.rows.len(), rows.len(), "one entry per row");
        assert_eq!(exchanged.reported.store_time, self.now());
        assert_eq!(exchanged.claimed.store_time, self.now());
        exchanged
    }

    #[track_caller]
    pub(super) fn renew(&mut self, worker: WorkerId, rows: &[LeaseRef]) -> Vec<Renewed> {
        let renewal = sound(self.session.renew(worker, rows, LEASE));
        assert_eq!(renewal.store_time, self.now(), "the store's time is told");
        assert_eq!(renewal.rows.len(), rows.len(), "one entry per row");
        renewal.rows
    }

    #[track_caller]
    pub(super) fn hand_back(&mut self, worker: WorkerId, rows: &[LeaseRef]) -> Vec<bool> {
        let HandedBack { rows: answers, store_time } = sound(self.session.hand_back(worker, rows));
        assert_eq!(store_time, self.now(), "the store's time is told");
        assert_eq!(answers.len(), rows.len(), "one entry per row");
        answers
    }

    #[track_caller]
    pub(super) fn lapsed(&mut self, queues: &[&str], max: u32) -> Vec<LapsedJob> {
        let queues: Vec<_> = queues.iter().map(|&queue| queue.to_owned()).collect();
        let lapsed = sound(self.session.find_lapsed(&queues, max));
        assert_eq!(lapsed.store_time, self.now(), "the store's time is told");
        lapsed.jobs
    }

    #[track_caller]
    pub(super) fn held(&mut self, worker: WorkerId) -> Vec<(LeaseRef, Timestamp)> {
        let held = sound(self.session.held_by(worker));
        assert_eq!(held.store_time, self.now(), "the store's time is told");
        held.leases
    }

    #[track_caller]
    pub(super) fn cancel(&mut self, job: JobId) -> CancelAnswer {
        sound(self.session.request_cancel(ACTOR, job))
    }

    #[track_caller]
    pub(super) fn requeue(&mut self, job: JobId) -> RequeueAnswer {
        sound(self.session.requeue(ACTOR, job))
    }

    #[track_caller]
    pub(super) fn find(&mut self, job: JobId) -> Option<JobRecord> {
        sound(self.session.job(job))
    }

    #[track_caller]
    pub(super) fn job(&mut self, job: JobId) -> JobRecord {
        self.find(job).expect("the job is stored")
    }

    #[track_caller]
    pub(super) fn state(&mut self, job: JobId) -> JobState {
        self.job(job).state
    }

    /// (queue, state, count).
    #[track_caller]
    pub(super) fn counts(&mut self) -> Vec<(String, JobState, u64)> {
        let counts = sound(self.session.counts()).into_iter();
        counts.map(|count| (count.queue, count.state, count.count)).collect()
    }
}

/// What must not be a fault.
#[track_caller]
pub(super) fn sound<T>(result: Result<T, StoreError>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("a fault of the store: {error:?}"),
    }
}

/// A job `work` in the queue `default`, due now.
pub(super) fn row() -> JobRow {
    JobRow::new(JobId::new(), "work")
}

pub(super) fn rows(count: usize) -> Vec<JobRow> {
    (0..count).map(|_| row()).collect()
}

pub(super) fn ids(jobs: &[ClaimedJob]) -> Vec<JobId> {
    jobs.iter().map(|job| job.id).collect()
}

pub(super) fn quota(queue: &str, quota: u32) -> QueueQuota {
    QueueQuota { queue: queue.to_owned(), quota }
}

pub(super) fn accepts(wire_name: &str, version_max: u32) -> Accepts {
    Accepts { wire_name: wire_name.to_owned(), version_max }
}

pub(super) fn lease_of(job: &ClaimedJob) -> LeaseRef {
    LeaseRef { job: job.id, attempt: job.attempt }
}

/// The holder's outcome, under a receipt of its own.
pub(super) fn outcome(job: &ClaimedJob, outcome: Outcome) -> OutcomeRow {
    let owner = job.owner.expect("a claimed job has an owner");
    let receipt = Receipt { pump: WorkerId::new(), sequence: 1 };
    OutcomeRow::new(job.id, job.attempt, owner, receipt, outcome)
}

/// A reaper's outcome for the same attempt, under a receipt of its own.
pub(super) fn reap(job: &ClaimedJob, how: Outcome) -> OutcomeRow {
    OutcomeRow { mode: Mode::Reap, ..outcome(job, how) }
}

pub(super) const fn retry(after: Duration) -> Outcome {
    Outcome::Retry { after }
}
