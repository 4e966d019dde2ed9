//! Tests against a real server. Each makes a schema (or a database) of its own there.

mod claim;
mod codes;
mod counts;
mod dependent_races;
mod dependents;
mod enqueue;
mod faults;
mod keys;
mod lease;
mod measure;
mod migration;
mod observing;
mod observing_plans;
mod observing_races;
mod open;
mod plans;
mod queue_races;
mod races;
mod report;
mod schedules;
mod settings;

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
        EnqueueAnswer::Accepted { jobs, .. } => assert!(jobs.iter().all(|job| job.is_new())),
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

/// Enqueues a job that depends on others.
fn child_of(parents: &[JobId]) -> JobRow {
    let mut row = row("q", -1);
    row.parents = parents.to_vec();
    row
}

/// Adds a job due now to the queue `q` and takes it.
fn taken(session: &mut dyn Session, worker: WorkerId, id: JobId) -> ClaimedJob {
    let mut row = row("q", -9);
    row.id = id;
    add(session, &[row]);
    let job = take(session, worker, "q", 1).jobs.remove(0);
    assert_eq!(job.id, id);
    job
}

/// An id that stands at this place among those made so.
fn id_at(place: u8) -> JobId {
    let mut bytes = JobId::new().to_bytes();
    bytes[0] = place;
    JobId::from_bytes(bytes)
}

/// Lets `call` run until its backend waits for that of `holder`; does what is to happen meanwhile, which lets
/// go of the lock; and answers what came of the call.
fn while_blocked<T: Send>(
    holder: i32,
    call: impl FnOnce() -> T + Send,
    meanwhile: impl FnOnce(),
) -> T {
    std::thread::scope(|scope| {
        let (done, finished) = std::sync::mpsc::channel();
        let waiter = scope.spawn(move || {
            let answer = call();
            done.send(()).expect("the test listens");
            answer
        });
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))";
        let mut watcher = raw();
        while watcher.query_one(waits, &[&holder]).expect("an answer").get::<_, i64>(0) == 0 {
            assert!(finished.try_recv().is_err(), "it did not wait for the lock");
            std::thread::yield_now();
        }
        meanwhile();
        waiter.join().expect("the call ends")
    })
}

/// The same for a call on a session of its own.
fn while_it_waits<T: Send>(
    place: &Place,
    holder: i32,
    call: impl FnOnce(&mut dyn Session) -> T + Send,
    meanwhile: impl FnOnce(),
) -> T {
    while_blocked(holder, || call(place.session().as_mut()), meanwhile)
}

fn backend_of(tx: &mut ::postgres::Transaction<'_>) -> i32 {
    tx.query_one("SELECT pg_backend_pid()", &[]).expect("an answer").get(0)
}

/// Reports an end of a claimed job within a transaction of the test's own.
fn report_in(tx: &mut ::postgres::Transaction<'_>, place: &Place, row: &OutcomeRow) -> Option<i16> {
    let text = format!(
        "SELECT verdicts[1] FROM \"{}\".report_v2(ARRAY[$1::uuid], ARRAY[$2::bigint], ARRAY[$3::uuid], \
         ARRAY[$4::bool], ARRAY[$5::uuid], ARRAY[$6::bigint], ARRAY[$7::smallint], ARRAY[$8::bool], \
         ARRAY[0::bigint], ARRAY[NULL::bytea], ARRAY[NULL::text], 0::smallint, $9::timestamptz)",
        place.schema
    );
    let is_reap = row.mode == crate::store::Mode::Reap;
    let now = Timestamp::from_micros(place.clock.load(Ordering::SeqCst));
    let answer = tx.query_one(
        &text,
        &[
            &row.job,
            &i64::from(row.attempt),
            &row.owner,
            &is_reap,
            &row.receipt.pump,
            &row.receipt.sequence.cast_signed(),
            &row.outcome.state(false).code(),
            &row.outcome.is_failure(),
            &now,
        ],
    );
    answer.expect("a report").get(0)
}

/// How many jobs a claim within a transaction of the test's own takes from the queue `q`.
fn claim_in(tx: &mut ::postgres::Transaction<'_>, place: &Place, total: i32) -> i64 {
    let text = format!(
        "SELECT count(c.id) FROM \"{}\".claim_v2(gen_random_uuid(), $1::integer, ARRAY['q'], ARRAY[$1], true, \
         ARRAY['work'], ARRAY[1::bigint], 1000000, 60000000, ARRAY[NULL::timestamptz], ARRAY[NULL::uuid], \
         0::smallint, $2::timestamptz) AS c",
        place.schema
    );
    let now = Timestamp::from_micros(place.clock.load(Ordering::SeqCst));
    tx.query_one(&text, &[&total, &now]).expect("a claim").get(0)
}
