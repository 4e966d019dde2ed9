//! Several processes on one Postgres: one that is stopped past its lease, two that share a drain, and
//! clocks that are an hour off.

mod support;

use backwave::{
    CancelReason, Client, Health, Job, JobContext, JobId, JobResult, JobState, NewJob,
    PostgresStore, Registry, Timestamp, spawn_group,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use support::audit::{Audit, last};
use support::child::{self, Worker};
use support::drill::{Ledger, PATIENCE, assert_no_alarm, drill, drills, eventually, quick};
use support::postgres::{Schema, config, connect, fresh_schema};

const SECOND: Duration = Duration::from_secs(1);

fn open(schema: &str) -> PostgresStore {
    let store = PostgresStore::builder(config()).schema(schema).statement_timeout(SECOND);
    store.open().expect("the server answers")
}

fn scene() -> (Schema, Client, Audit) {
    let schema = fresh_schema();
    let client = Client::new(open(schema.name()));
    let audit = Audit::begin(&config(), schema.name());
    (schema, client, audit)
}

/// What a child process does; in the harness's own process it does nothing.
#[test]
fn child() {
    let Some(order) = child::order() else { return };
    let (verb, schema) = order.split_once(' ').expect("an order is a verb and a schema");
    match verb {
        "hold" => hold(schema),
        "drain" => drain(schema),
        "schedule" => schedule(schema),
        "serve" => serve(schema),
        other => panic!("nobody knows how to {other}"),
    }
}

/// A job that tells why its token fired, and succeeds with who ran it.
#[derive(Serialize, Deserialize)]
struct Held;

impl Job for Held {
    const WIRE_NAME: &'static str = "held";
}

fn hold_on(ctx: &JobContext, _: Held) -> JobResult {
    child::say("begun");
    let _ = ctx.sleep(PATIENCE);
    // At once, without looking at anything else: it must have fired by itself.
    let reason = ctx.token().reason();
    child::say(&format!("{reason:?}"));
    ctx.set_output(&"the one that was stopped")?;
    Ok(())
}

fn hold(schema: &str) {
    let registry = Registry::new().handle(hold_on);
    let health = Arc::new(Health::new());
    let group = spawn_group(open(schema), registry, quick("holder"), Arc::clone(&health));
    let group = group.expect("the group starts");
    assert!(wait_for_work(&group), "it has nothing left");
    child::say(&health.check().to_string());
    group.shutdown();
    assert_no_alarm();
    child::say("ended");
}

/// Until a job has come and gone.
fn wait_for_work(group: &backwave::Group) -> bool {
    eventually("the handler has begun and ended", || group.wait_until_idle(PATIENCE));
    true
}

#[test]
fn a_process_that_was_stopped_past_its_lease_changes_nothing_when_it_wakes() {
    let (schema, client, audit) = scene();
    let job = client.enqueue(NewJob::new(&Held)).expect("accepted").id;
    let worker = Worker::start("child", &format!("hold {}", schema.name()));
    worker.hear_until("begun");
    worker.signal("STOP");

    let registry = Registry::new().handle(|ctx, _: Held| Ok(ctx.set_output(&"the other")?));
    let health = Arc::new(Health::new());
    let group = spawn_group(open(schema.name()), registry, quick("heir"), health);
    let group = group.expect("the group starts");
    let record = client.wait(job, PATIENCE).expect("it is inherited");
    assert_eq!(record.output::<String>().expect("an output"), "the other");

    worker.signal("CONT");
    assert_eq!(worker.hear(), format!("{:?}", Some(CancelReason::LeaseLost)));
    worker.hear_until("ended");
    worker.end();
    group.shutdown();
    let after = client.monitor().job(job).expect("it is there");
    assert_eq!(after, record, "the result stands");
    let trail = audit.assert_each_succeeded_once(&[job]);
    assert_eq!(last(&trail, job), (2, 1), "one lapse, one success");
    assert_no_alarm();
}

fn drain(schema: &str) {
    let ledger = Ledger::new();
    let options = quick("drain").lease(60 * SECOND).pumps(2);
    let group = spawn_group(open(schema), ledger.registry(), options, Arc::new(Health::new()));
    let group = group.expect("the group starts");
    assert!(group.wait_until_idle(PATIENCE), "it drains");
    let report = group.shutdown();
    assert!(report.halts.is_empty(), "{report:?}");
    assert_no_alarm();
    child::say(&ledger.total().to_string());
}

#[test]
fn two_processes_drain_ten_thousand_jobs_each_once() {
    const JOBS: u32 = 10_000;
    let (schema, client, audit) = scene();
    let mut ids: Vec<JobId> = Vec::new();
    for _ in 0..10 {
        let jobs = client.enqueue_many(drills(JOBS / 10, 0)).expect("accepted");
        ids.extend(jobs.into_iter().map(|job| job.id));
    }
    let order = format!("drain {}", schema.name());
    let workers = [Worker::start("child", &order), Worker::start("child", &order)];
    let runs: Vec<u32> =
        workers.iter().map(|worker| worker.hear().parse().expect("a count")).collect();
    workers.into_iter().for_each(Worker::end);
    assert_eq!(runs.iter().sum::<u32>(), JOBS, "{runs:?}");
    assert!(runs.iter().all(|runs| *runs > 0), "both took part: {runs:?}");
    let trail = audit.assert_each_succeeded_once(&ids);
    for id in &ids {
        assert_eq!(last(&trail, *id), (1, 0));
    }
}

/// The server's time.
fn server_time() -> Timestamp {
    let row = connect().query_one("SELECT clock_timestamp()", &[]).expect("it tells");
    row.get::<_, std::time::SystemTime>(0).into()
}

#[test]
fn a_relative_delay_counts_from_the_servers_time_and_no_clock_of_the_caller_enters() {
    let (_schema, client, _) = scene();
    let before = server_time();
    let id = client.enqueue(drill(0, 0).delay(60 * SECOND)).expect("accepted").id;
    let after = server_time();
    let record = client.monitor().job(id).expect("it is there");
    assert!(before <= record.created_at && record.created_at <= after, "read by the server");
    assert_eq!(record.due_at.since(record.created_at), 60 * SECOND, "from one reading");
}

fn schedule(schema: &str) {
    let client = Client::new(open(schema));
    let id = client.enqueue(drill(0, 0).delay(60 * SECOND)).expect("accepted").id;
    child::say(&id.to_string());
    child::say(&Timestamp::from(std::time::SystemTime::now()).to_string());
}

fn serve(schema: &str) {
    let (ledger, health) = (Ledger::new(), Arc::new(Health::new()));
    let options = quick("off").dispatch(backwave::DispatchPolicy::strict(["off", "default"]));
    let group = spawn_group(open(schema), ledger.registry(), options, Arc::clone(&health));
    let group = group.expect("the group starts");
    child::say("serving");
    eventually("it runs what is due", || ledger.jobs() == 20);
    child::say("ran");
    // Sleeps long enough for many looks at the leases of others.
    std::thread::sleep(3 * SECOND);
    assert_eq!(health.check().to_string(), "Healthy");
    let report = group.shutdown();
    assert!(report.halts.is_empty(), "{report:?}");
    assert_no_alarm();
    child::say(&ledger.total().to_string());
}

/// Whether the tool is here that makes a process believe in another time.
fn has_faketime() -> bool {
    let has = std::process::Command::new("faketime").arg("--version").output().is_ok();
    if !has {
        eprintln!("faketime is not installed: clocks that are off are left to the other tests");
    }
    has
}

fn start_off(offset: &str, order: &str) -> Worker {
    Worker::start_through("faketime", &["--exclude-monotonic", "-f", offset], "child", order)
}

#[test]
fn a_process_whose_clock_is_an_hour_off_schedules_right() {
    if !has_faketime() {
        return;
    }
    for offset in ["+1h", "-1h"] {
        let (schema, client, _) = scene();
        let before = server_time();
        let worker = start_off(offset, &format!("schedule {}", schema.name()));
        let id: JobId = worker.hear().parse().expect("an id");
        let believed: Timestamp = worker.hear().parse().expect("a time");
        worker.end();
        let apart = believed.since(before).max(before.since(believed));
        assert!(apart > Duration::from_secs(3000), "its clock is off: {believed} and {before}");
        let due = client.monitor().job(id).expect("it is there").due_at;
        let delay = due.since(before);
        assert!(delay >= 60 * SECOND && delay < 75 * SECOND, "{offset}: {delay:?}");
    }
}

#[test]
fn a_group_whose_clock_is_an_hour_off_works_and_takes_no_live_lease_from_another() {
    if !has_faketime() {
        return;
    }
    for offset in ["+1h", "-1h"] {
        let (schema, client, audit) = scene();
        let ledger = Ledger::new();
        // Held here for longer than a lease, renewed on the way.
        let held = client.enqueue(drill(0, 9000)).expect("accepted").id;
        let later = client.enqueue(drill(1, 0).delay(600 * SECOND)).expect("accepted").id;
        let health = Arc::new(Health::new());
        let options = quick("right");
        let group = spawn_group(open(schema.name()), ledger.registry(), options, health);
        let group = group.expect("the group starts");
        eventually("it is held", || audit.leased() == 1);

        let worker = start_off(offset, &format!("serve {}", schema.name()));
        worker.hear_until("serving");
        let jobs = drills(20, 0).into_iter().map(|job| job.queue("off"));
        let jobs = client.enqueue_many(jobs).expect("accepted");
        worker.hear_until("ran");
        let record = client.wait(held, PATIENCE).expect("it ends");
        assert_eq!((record.state, record.attempt, record.failures), (JobState::Succeeded, 1, 0));
        assert_eq!(worker.hear(), "20", "{offset}: it has run its own and nothing else");
        worker.end();
        group.shutdown();
        for job in jobs {
            let record = client.monitor().job(job.id).expect("it is there");
            assert_eq!((record.state, record.attempt), (JobState::Succeeded, 1), "{offset}");
        }
        let waiting = client.monitor().job(later).expect("it is there");
        assert_eq!((waiting.state, waiting.attempt), (JobState::Scheduled, 0), "{offset}");
    }
    assert_no_alarm();
}
