//! A database that vanishes under what runs on it, and comes back: nothing is lost, nothing is recorded
//! twice, and nobody has to do anything.

mod support;

use ::postgres::{Config, NoTls};
use backwave::{
    Client, EnqueueError, Group, GroupOptions, Health, HealthStatus, Job, JobContext, JobId,
    NewJob, PostgresStore, Registry, spawn_group,
};
use crossbeam_channel::{Receiver, Sender, unbounded};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::audit::{Audit, last};
use support::cluster::{Cluster, Stop};
use support::drill::{Dice, Ledger, PATIENCE, assert_no_alarm, drill, drills, eventually, quick};
use support::log;
use support::postgres::{config, fresh_schema};

const LEASE: Duration = Duration::from_secs(60);

fn config_of(cluster: &Cluster) -> Config {
    cluster.url().parse().expect("a connection URL")
}

fn spawn(
    store: &PostgresStore,
    registry: Registry,
    options: GroupOptions,
    health: &Arc<Health>,
) -> Group {
    spawn_group(store.clone(), registry, options, Arc::clone(health)).expect("the group starts")
}

fn status(health: &Health) -> HealthStatus {
    health.check().status
}

/// A job whose handler waits for the test.
#[derive(Serialize, Deserialize)]
struct Gated;

impl Job for Gated {
    const WIRE_NAME: &'static str = "gated";
}

struct Gate {
    come: Sender<()>,
    pass: Receiver<()>,
    ledger: Arc<Ledger>,
}

impl Gate {
    fn run(&self, ctx: &JobContext, _: Gated) -> backwave::JobResult {
        self.come.send(())?;
        self.pass.recv_timeout(PATIENCE)?;
        self.ledger.note(ctx);
        Ok(())
    }
}

#[test]
fn outcomes_decided_while_the_database_is_away_are_kept_and_written_when_it_is_back() {
    log::record();
    let cluster = Cluster::start();
    let store = PostgresStore::open(&cluster.url()).expect("the server answers");
    let audit = Audit::begin(&config_of(&cluster), "backwave");
    let (client, health) = (Client::new(store.clone()), Arc::new(Health::new()));
    let (come, came) = unbounded();
    let (let_pass, pass) = unbounded();
    let ledger = Ledger::new();
    let gate = Arc::new(Gate { come, pass, ledger: Arc::clone(&ledger) });
    let registry = Registry::new().handle_with(&gate, Gate::run);
    let group = spawn(&store, registry, quick("outage").workers(8).lease(LEASE), &health);
    let jobs = (0..8).map(|_| NewJob::new(&Gated));
    let ids: Vec<JobId> =
        client.enqueue_many(jobs).expect("accepted").into_iter().map(|job| job.id).collect();
    for _ in &ids {
        came.recv_timeout(PATIENCE).expect("the handler runs");
    }

    cluster.stop(Stop::Immediate);
    for _ in &ids {
        let_pass.send(()).expect("a handler waits");
    }
    eventually("the group is degraded", || status(&health) == HealthStatus::Degraded);
    eventually("the handlers have ended", || ledger.total() == ids.len());
    assert!(health.is_healthy(), "an outage is no halt");
    let report = health.check().to_string();
    assert_eq!(
        report,
        "Degraded: group 'outage' (store fault: postgres::Error)"
            .replace("postgres::Error", fault_type(&report))
    );

    cluster.launch();
    let took = eventually("the group is healthy", || status(&health) == HealthStatus::Healthy);
    assert!(took < Duration::from_secs(20), "{took:?}");
    for id in &ids {
        client.wait(*id, PATIENCE).expect("its outcome is written");
    }
    group.shutdown();
    let trail = audit.assert_each_succeeded_once(&ids);
    for id in &ids {
        assert_eq!((last(&trail, *id), ledger.attempts(*id)), ((1, 0), vec![1]));
    }
    let faults = log::lines("outage", 1301);
    assert!(faults.len() >= 2, "its beginning and its end are told: {faults:?}");
    assert!(faults.len() <= 6, "not each try: {faults:?}");
    assert!(faults[0].message.starts_with("transient store fault, retrying"), "{faults:?}");
    let end = &faults[faults.len() - 1].message;
    assert!(end.starts_with("the store answers again"), "{end}");
    assert_no_alarm();
}

/// The name of the client's error type, which is in a crate below the one that is used.
fn fault_type(report: &str) -> &str {
    let start = report.find("store fault: ").expect("a fault is named") + "store fault: ".len();
    report[start..].trim_end_matches(')')
}

#[test]
fn an_enqueue_during_an_outage_says_what_it_knows_and_may_be_repeated() {
    let cluster = Cluster::start();
    let store = PostgresStore::open(&cluster.url()).expect("the server answers");
    let audit = Audit::begin(&config_of(&cluster), "backwave");
    let client = Client::new(store);
    client.enqueue(drill(0, 0)).expect("accepted");

    cluster.stop(Stop::Immediate);
    let ids: Vec<JobId> = (0..5).map(|_| JobId::new()).collect();
    let jobs = || ids.iter().map(|id| drill(0, 0).id(*id));
    let began = Instant::now();
    let first = client.enqueue_many(jobs()).expect_err("nobody answers");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    // The session broke under the first try: for all that is known, its request had arrived.
    match &first {
        EnqueueError::OutcomeUnknown { ids: told, .. } => assert_eq!(told, &ids),
        other => panic!("{other:?}"),
    }
    // There was no session any more: surely nothing was sent.
    let second = client.enqueue_many(jobs()).expect_err("nobody answers");
    assert!(matches!(second, EnqueueError::Store(_)), "{second:?}");

    cluster.launch();
    let told = client.enqueue_many(jobs()).expect("accepted");
    assert_eq!(told.len(), 5);
    let again = client.enqueue_many(jobs()).expect("accepted");
    assert!(again.iter().all(|job| !job.is_new), "they are there already: {again:?}");
    assert_eq!(audit.jobs(), 6);
    assert_no_alarm();
}

#[test]
fn a_group_that_starts_before_its_database_heals_when_it_comes() {
    log::record();
    let cluster = Cluster::start();
    cluster.stop(Stop::Fast);
    assert!(PostgresStore::open(&cluster.url()).is_err(), "to open at once is an error");
    let store = PostgresStore::builder(config_of(&cluster)).open_lazy().expect("no I/O");
    let (ledger, health) = (Ledger::new(), Arc::new(Health::new()));
    let group = spawn(&store, ledger.registry(), quick("early").lease(LEASE).pumps(2), &health);
    eventually("the group is degraded", || status(&health) == HealthStatus::Degraded);
    assert!(health.is_healthy());
    cluster.launch();
    eventually("the group is healthy", || status(&health) == HealthStatus::Healthy);
    let client = Client::new(store);
    let job = client.enqueue(drill(0, 0)).expect("accepted");
    client.wait(job.id, PATIENCE).expect("it runs");
    let report = group.shutdown();
    assert!(report.halts.is_empty(), "{report:?}");
    assert_no_alarm();
}

#[test]
fn a_stop_while_the_database_is_away_ends_in_time() {
    let cluster = Cluster::start();
    let store = PostgresStore::open(&cluster.url()).expect("the server answers");
    let (ledger, health) = (Ledger::new(), Arc::new(Health::new()));
    let client = Client::new(store.clone());
    let options = quick("stopped-in-outage").lease(LEASE).shutdown_budget(Duration::from_secs(2));
    let group = spawn(&store, ledger.registry(), options, &health);
    client.enqueue_many(drills(4, 600)).expect("accepted");
    eventually("the jobs run", || {
        client.monitor().counts().is_ok_and(|c| {
            c.iter().any(|count| count.state == backwave::JobState::Leased && count.count == 4)
        })
    });
    cluster.stop(Stop::Immediate);
    let began = Instant::now();
    let report = group.shutdown();
    assert!(began.elapsed() < Duration::from_millis(4500), "{:?}", began.elapsed());
    assert!(report.halts.is_empty(), "{report:?}");
    assert_no_alarm();
}

#[test]
fn a_drain_whose_backends_are_terminated_again_and_again_records_each_outcome_once() {
    log::record();
    const JOBS: u32 = 2000;
    const TERMINATED_FOR: Duration = Duration::from_secs(10);
    let schema = fresh_schema();
    let mut config = config();
    // A name of its own, by which its backends are found.
    config.application_name(schema.name());
    let store = PostgresStore::builder(config.clone()).schema(schema.name());
    let store = store.open().expect("the server answers");
    let audit = Audit::begin(&support::postgres::config(), schema.name());
    let (client, health, ledger) =
        (Client::new(store.clone()), Arc::new(Health::new()), Ledger::new());
    let jobs = client.enqueue_many(drills(JOBS, 1)).expect("accepted");
    let ids: Vec<JobId> = jobs.into_iter().map(|job| job.id).collect();
    let group =
        spawn(&store, ledger.registry(), quick("terminated").lease(LEASE).pumps(2), &health);

    let mut killer = support::postgres::config().connect(NoTls).expect("the server answers");
    let mut dice = Dice::new(7);
    let mut killed = 0;
    let began = Instant::now();
    // Not for ever: on a busy machine a session may not live long enough to get anything done.
    while ledger.jobs() < ids.len() && began.elapsed() < TERMINATED_FOR {
        // Sleeps so that the sessions end at moments of chance.
        std::thread::sleep(Duration::from_millis(50 + dice.roll(100)));
        let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
            WHERE application_name = $1";
        killed += killer.query_one(sql, &[&schema.name()]).expect("killed").get::<_, i64>(0);
    }
    assert!(killed >= 4, "{killed} backends were terminated");
    for id in &ids {
        client.wait(*id, PATIENCE).expect("it ends");
    }
    eventually("the group is healthy", || status(&health) == HealthStatus::Healthy);
    group.shutdown();
    let trail = audit.assert_each_succeeded_once(&ids);
    for id in &ids {
        assert_eq!(last(&trail, *id).1, 0, "no failure");
        assert_eq!(ledger.attempts(*id).len(), 1, "no second effect");
    }
    assert!(log::lines("terminated", 1202).is_empty(), "no lease was lost");
    assert_no_alarm();
}
