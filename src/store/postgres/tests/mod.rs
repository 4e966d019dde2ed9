//! Tests against a real server. Each makes a schema (or a database) of its own there.

mod claim;
mod codes;
mod enqueue;
mod faults;
mod lease;
mod measure;
mod open;
mod races;
mod report;

use super::{PostgresBuilder, PostgresStore};
use crate::store::{
    Accepts, Claim, Claimed, ClaimedJob, Due, EnqueueAnswer, JobRecord, JobRow, LeaseRef, Outcome,
    OutcomeRow, QueueQuota, Receipt, RowReport, Session, Store,
};
use crate::{JobId, Timestamp, WorkerId};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(60);
/// When the virtual clock starts.
const START: Timestamp = Timestamp::from_micros(1_750_000_000_000_000);

fn url() -> String {
    std::env::var("BACKWAVE_TEST_POSTGRES_URL").expect(
        "BACKWAVE_TEST_POSTGRES_URL must name a throw-away Postgres server and a superuser on it, for \
         instance postgres://postgres@127.0.0.1:5433/postgres; tests/run.sh starts one and sets it",
    )
}

fn config() -> ::postgres::Config {
    url().parse().expect("BACKWAVE_TEST_POSTGRES_URL is a connection string")
}

/// A plain connection, for what the product has no call for.
fn raw() -> ::postgres::Client {
    config().connect(::postgres::NoTls).expect("the server answers")
}

fn fresh_name() -> String {
    format!("t_{}", JobId::new().to_string().replace('-', ""))
}

/// A store in a schema of its own, on virtual time.
struct Place {
    schema: String,
    store: PostgresStore,
    clock: Arc<AtomicI64>,
}

impl Place {
    fn new() -> Self {
        Self::built(|builder| builder)
    }

    fn built(choose: impl FnOnce(PostgresBuilder) -> PostgresBuilder) -> Self {
        let schema = fresh_name();
        let clock = Arc::new(AtomicI64::new(START.as_micros()));
        let read = Arc::clone(&clock);
        let builder = PostgresStore::builder(config())
            .schema(&schema)
            .clock(move || Timestamp::from_micros(read.load(Ordering::SeqCst)));
        Self { schema, store: choose(builder).open().expect("the store opens"), clock }
    }

    fn session(&self) -> Box<dyn Session> {
        self.store.open_session().expect("a session opens")
    }

    fn set_clock(&self, time: Timestamp) {
        self.clock.store(time.as_micros(), Ordering::SeqCst);
    }

    fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_micros()).expect("a small span");
        self.clock.fetch_add(by, Ordering::SeqCst);
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(START.as_micros() + seconds * 1_000_000)
}

/// A job of `queue` due `seconds` after the virtual clock's start.
fn row(queue: &str, seconds: i64) -> JobRow {
    let mut row = JobRow::new(JobId::new(), "work");
    row.queue = queue.to_owned();
    row.due = Due::At(at(seconds));
    row
}

fn add(session: &mut dyn Session, rows: &[JobRow]) {
    match session.enqueue(rows).expect("an enqueue") {
        EnqueueAnswer::Accepted { is_new, .. } => assert!(is_new.iter().all(|new| *new)),
        rejected => panic!("{rejected:?}"),
    }
}

fn plan(quotas: &[(&str, u32)]) -> Vec<QueueQuota> {
    quotas
        .iter()
        .map(|(queue, quota)| QueueQuota { queue: (*queue).to_owned(), quota: *quota })
        .collect()
}

fn accepts(wire_name: &str, version_max: u32) -> Vec<Accepts> {
    vec![Accepts { wire_name: wire_name.to_owned(), version_max }]
}

/// Claims up to `total` jobs named `work` from one queue.
fn take(session: &mut dyn Session, worker: WorkerId, queue: &str, total: u32) -> Claimed {
    let (plan, accepts) = (plan(&[(queue, total)]), accepts("work", 1));
    session.claim(&Claim::new(worker, total, &plan, &accepts, LEASE)).expect("a claim")
}

fn ids(claimed: &Claimed) -> Vec<JobId> {
    claimed.jobs.iter().map(|job| job.id).collect()
}

fn outcome(job: &ClaimedJob, owner: WorkerId, outcome: Outcome) -> OutcomeRow {
    static SEQUENCE: AtomicU64 = AtomicU64::new(1);
    let receipt = Receipt { pump: owner, sequence: SEQUENCE.fetch_add(1, Ordering::Relaxed) };
    OutcomeRow::new(job.id, job.attempt, owner, receipt, outcome)
}

fn report_one(session: &mut dyn Session, row: &OutcomeRow) -> RowReport {
    let reported = session.report(std::slice::from_ref(row)).expect("a report");
    assert_eq!(reported.rows.len(), 1);
    reported.rows[0]
}

fn record(session: &mut dyn Session, job: JobId) -> JobRecord {
    session.job(job).expect("a read").expect("the job is there")
}

fn lease_of(job: &ClaimedJob) -> LeaseRef {
    LeaseRef { job: job.id, attempt: job.attempt }
}
