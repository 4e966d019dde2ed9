//! What is SQLite's own, and enough of the contract to trust the rest: through the traits, on a file in
//! a temporary folder, by a clock that the test moves.

mod claiming;
mod dependents;
mod enqueueing;
mod files;
mod keys;
mod leases;
mod migrating;
mod observing;
mod plans;
mod schedules;
mod settling;

use super::SqliteStore;
use crate::store::{
    Accepts, Claim, Claimed, ClaimedJob, EnqueueAnswer, HistoryPolicy, JobRow, Outcome, OutcomeRow,
    QueueQuota, Receipt, Session, Store, StoreClock,
};
use crate::{JobId, JobState, Timestamp, WorkerId};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

pub(super) const LEASE: Duration = Duration::from_secs(60);
const START: i64 = 1_800_000_000_000_000;

#[derive(Clone)]
struct Clock(Arc<AtomicI64>);

impl StoreClock for Clock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}

/// A store on a file of its own, a session, and a worker.
struct Bench {
    folder: tempfile::TempDir,
    store: SqliteStore,
    session: Box<dyn Session>,
    clock: Clock,
    worker: WorkerId,
    sequence: AtomicU64,
}

impl Bench {
    fn new() -> Self {
        Self::with_history(HistoryPolicy::Off)
    }

    fn with_history(history: HistoryPolicy) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = Clock(Arc::new(AtomicI64::new(START)));
        let store = SqliteStore::builder(folder.path().join("jobs.db"))
            .busy_timeout(Duration::from_millis(200))
            .clock(clock.clone())
            .history(history)
            .open()
            .expect("a store");
        let session = store.open_session().expect("a session");
        let worker = WorkerId::new();
        Self { folder, store, session, clock, worker, sequence: AtomicU64::new(1) }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("jobs.db")
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn advance(&self, span: Duration) {
        self.clock.0.fetch_add(crate::time::micros(span), Ordering::SeqCst);
    }

    /// A connection of the host's own to the same file, without any setting.
    fn host(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path()).expect("a connection")
    }

    fn enqueue(&mut self, row: JobRow) -> JobId {
        let id = row.id;
        self.enqueue_all(&[row]);
        id
    }

    fn enqueue_all(&mut self, rows: &[JobRow]) -> Vec<bool> {
        match self.session.enqueue(rows).expect("no fault") {
            EnqueueAnswer::Accepted { jobs, .. } => {
                jobs.into_iter().map(crate::store::Admission::is_new).collect()
            }
            EnqueueAnswer::Rejected { index, reason } => panic!("{index}: {reason}"),
        }
    }

    /// Claims up to `total` from the queue `default`.
    fn claim(&mut self, total: u32) -> Vec<ClaimedJob> {
        self.claim_from(&[("default", total)], total, true).jobs
    }

    fn claim_from(&mut self, plan: &[(&str, u32)], total: u32, spill: bool) -> Claimed {
        let plan: Vec<_> = plan
            .iter()
            .map(|(queue, quota)| QueueQuota { queue: (*queue).to_owned(), quota: *quota })
            .collect();
        let accepts = [Accepts { wire_name: "job".to_owned(), version_max: 1 }];
        let mut claim = Claim::new(self.worker, total, &plan, &accepts, LEASE);
        claim.spill = spill;
        self.session.claim(&claim).expect("no fault")
    }

    fn outcome(&self, job: &ClaimedJob, outcome: Outcome) -> OutcomeRow {
        let sequence = self.sequence.fetch_add(1, Ordering::SeqCst);
        let receipt = Receipt { pump: self.worker, sequence };
        OutcomeRow::new(job.id, job.attempt, self.worker, receipt, outcome)
    }

    fn state(&mut self, job: JobId) -> JobState {
        self.record(job).state
    }

    fn record(&mut self, job: JobId) -> crate::store::JobRecord {
        self.session.job(job).expect("no fault").expect("it exists")
    }
}

/// A job due now in the queue `default`.
fn job() -> JobRow {
    JobRow::new(JobId::new(), "job")
}

fn job_in(queue: &str) -> JobRow {
    let mut row = job();
    row.queue = queue.to_owned();
    row
}

fn ids(jobs: &[ClaimedJob]) -> Vec<JobId> {
    jobs.iter().map(|job| job.id).collect()
}
