//! Enqueueing in a transaction of the caller's own on Postgres: the job is there if and when the caller
//! commits, and a refusal costs the caller nothing.

mod support;

use ::postgres::{IsolationLevel, NoTls};
use backwave::{Client, EnqueueError, Health, JobId, JobState, NewJob, PostgresStore, spawn_group};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::drill::{Ledger, PATIENCE, assert_no_alarm, drill, quick};
use support::postgres::{Schema, config, connect, fresh_schema};

fn store(schema: &str) -> PostgresStore {
    PostgresStore::builder(config()).schema(schema).open().expect("the server answers")
}

fn scene() -> (Schema, PostgresStore, Client) {
    let schema = fresh_schema();
    let store = store(schema.name());
    let client = Client::new(store.clone());
    (schema, store, client)
}

#[test]
fn what_is_rolled_back_never_was() {
    let (_schema, store, client) = scene();
    let mut db = connect();
    let mut tx = db.transaction().expect("begun");
    let id = store.enqueue_in(&mut tx, drill(0, 0)).expect("accepted").id;
    assert!(client.monitor().job(id).is_err(), "nobody sees it before the commit");
    tx.rollback().expect("rolled back");
    assert!(client.monitor().job(id).is_err());
    // The same by dropping it, and by a savepoint of the caller's.
    let mut tx = db.transaction().expect("begun");
    let kept = store.enqueue_in(&mut tx, drill(1, 0)).expect("accepted").id;
    let mut inner = tx.transaction().expect("a savepoint");
    let dropped = store.enqueue_in(&mut inner, drill(2, 0)).expect("accepted").id;
    drop(inner);
    tx.commit().expect("committed");
    assert!(client.monitor().job(dropped).is_err());
    assert_eq!(client.monitor().job(kept).expect("it is there").state, JobState::Scheduled);
}

#[test]
fn what_is_committed_runs_at_once_when_somebody_is_woken() {
    let (_schema, store, client) = scene();
    let ledger = Ledger::new();
    // It polls so rarely that only the wake-up can be what it heard.
    let options = quick("woken").lease(Duration::from_secs(120));
    let options = options.poll_interval(Duration::from_secs(60), Duration::from_secs(60));
    let registry = ledger.registry();
    let group = spawn_group(store.clone(), registry, options, Arc::new(Health::new()));
    let group = group.expect("the group starts");
    assert!(group.wait_until_idle(PATIENCE), "it has looked and found nothing");
    let mut db = connect();
    let mut tx = db.transaction().expect("begun");
    let job = store.enqueue_in(&mut tx, drill(0, 0)).expect("accepted");
    assert!(job.is_new);
    tx.commit().expect("committed");
    let began = Instant::now();
    client.wake("default");
    client.wait(job.id, PATIENCE).expect("it runs");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    group.shutdown();
    assert_no_alarm();
}

#[test]
fn a_refused_job_leaves_the_transaction_usable() {
    let (_schema, store, client) = scene();
    let mut db = connect();
    db.batch_execute("CREATE TEMP TABLE orders (id int)").expect("made");
    let mut tx = db.transaction().expect("begun");
    tx.execute("INSERT INTO orders VALUES (1)", &[]).expect("written");
    let refused = store.enqueue_in(&mut tx, drill(0, 0).queue(""));
    assert!(matches!(refused, Err(EnqueueError::Rejected { index: 0, .. })), "{refused:?}");
    let large = NewJob::raw("drill", format!("\"{}\"", "x".repeat(70_000)));
    assert!(matches!(store.enqueue_in(&mut tx, large), Err(EnqueueError::Rejected { .. })));
    assert!(matches!(
        store.enqueue_in(&mut tx, NewJob::raw("drill", "{")),
        Err(EnqueueError::Encode { .. } | EnqueueError::Rejected { .. })
    ));
    // A duplicate is told, and is no error of the transaction either.
    let id = JobId::new();
    assert!(store.enqueue_in(&mut tx, drill(1, 0).id(id)).expect("accepted").is_new);
    assert!(!store.enqueue_in(&mut tx, drill(2, 0).id(id)).expect("accepted").is_new);
    tx.execute("INSERT INTO orders VALUES (2)", &[]).expect("the transaction goes on");
    tx.commit().expect("committed");
    let count: i64 = db.query_one("SELECT count(*) FROM orders", &[]).expect("read").get(0);
    assert_eq!(count, 2);
    let payload = client.monitor().job(id).expect("it is there").payload;
    assert_eq!(payload.as_bytes(), br#"{"number":1,"millis":0}"#, "the first is kept");
}

#[test]
fn two_transactions_with_one_id_are_one_job() {
    let (_schema, store, client) = scene();
    let id = JobId::new();
    let (mut first, mut second) = (connect(), connect());
    let mut tx = first.transaction().expect("begun");
    assert!(store.enqueue_in(&mut tx, drill(1, 0).id(id)).expect("accepted").is_new);
    let other = store.clone();
    let waiting = std::thread::spawn(move || {
        let mut tx = second.transaction().expect("begun");
        let told = other.enqueue_in(&mut tx, drill(2, 0).id(id)).expect("accepted");
        tx.commit().expect("committed");
        told.is_new
    });
    tx.commit().expect("committed");
    assert!(!waiting.join().expect("no panic"), "the second finds it there");
    assert!(client.monitor().job(id).is_ok());
}

#[test]
fn transactions_of_every_isolation_level_may_enqueue() {
    let (_schema, store, client) = scene();
    let mut db = connect();
    for level in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        let mut tx = db.build_transaction().isolation_level(level).start().expect("begun");
        let id = store.enqueue_in(&mut tx, drill(0, 0)).expect("accepted").id;
        tx.commit().expect("committed");
        assert!(client.monitor().job(id).is_ok());
    }
}

#[test]
fn a_callers_odd_settings_change_nothing() {
    let (_schema, store, client) = scene();
    let mut db = connect();
    db.batch_execute(
        "SET search_path = pg_temp; SET TimeZone = 'Pacific/Chatham'; SET DateStyle = 'SQL, DMY'; \
         SET standard_conforming_strings = off; SET bytea_output = 'escape'; SET IntervalStyle = iso_8601",
    )
    .expect("set");
    let mut tx = db.transaction().expect("begun");
    let job = drill(7, 0).tag("a \\' \"tag\"").delay(Duration::from_secs(3600));
    let id = store.enqueue_in(&mut tx, job).expect("accepted").id;
    tx.commit().expect("committed");
    let record = client.monitor().job(id).expect("it is there");
    assert_eq!(record.tags, ["a \\' \"tag\""]);
    assert_eq!(record.due_at.since(record.created_at), Duration::from_secs(3600));
}

#[test]
fn a_schema_of_any_name_works_end_to_end() {
    for name in [r#"it's; DROP "TABLE" x; -- {schema} $body$"#, "ÄÖ{tag}\t\\"] {
        let mut db = connect();
        let quoted = format!("\"{}\"", name.replace('"', "\"\""));
        db.batch_execute(&format!("DROP SCHEMA IF EXISTS {quoted} CASCADE")).expect("dropped");
        let store = store(name);
        let mut tx = db.transaction().expect("begun");
        let id = store.enqueue_in(&mut tx, drill(0, 0)).expect("accepted").id;
        tx.commit().expect("committed");
        let (client, ledger) = (Client::new(store.clone()), Ledger::new());
        let options = quick("odd-schema").lease(Duration::from_secs(60));
        let group = spawn_group(store, ledger.registry(), options, Arc::new(Health::new()));
        let group = group.expect("the group starts");
        assert_eq!(client.wait(id, PATIENCE).expect("it runs").state, JobState::Succeeded);
        group.shutdown();
        db.batch_execute(&format!("DROP SCHEMA {quoted} CASCADE")).expect("dropped");
    }
    assert_no_alarm();
}

#[test]
fn a_transaction_that_has_failed_says_so() {
    let (_schema, store, _client) = scene();
    let mut db = config().connect(NoTls).expect("the server answers");
    let mut tx = db.transaction().expect("begun");
    tx.batch_execute("SELECT 1 / 0").expect_err("it fails");
    let told = store.enqueue_in(&mut tx, drill(0, 0)).expect_err("nothing works in it");
    match told {
        EnqueueError::Store(error) => assert_eq!(error.code(), Some("25P02"), "{error}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_transaction_whose_backend_has_gone_is_not_carried_on_by_another_session() {
    let (schema, store, client) = scene();
    let mut db = connect();
    let orders = format!("\"{}\".orders", schema.name());
    db.batch_execute(&format!("CREATE TABLE {orders} (id int)")).expect("made");
    let mut tx = db.transaction().expect("begun");
    tx.execute(&format!("INSERT INTO {orders} VALUES (1)"), &[]).expect("written");
    let first = store.enqueue_in(&mut tx, drill(1, 0)).expect("accepted").id;
    let backend: i32 = tx.query_one("SELECT pg_backend_pid()", &[]).expect("read").get(0);
    let end = "SELECT pg_terminate_backend($1, 10000)";
    let ended: bool = connect().query_one(end, &[&backend]).expect("ended").get(0);
    assert!(ended);
    let second = drill(2, 0);
    let id = second.job_id();
    let told = store.enqueue_in(&mut tx, second).expect_err("there is no transaction any more");
    assert!(matches!(told, EnqueueError::Store(_)), "{told:?}");
    assert!(tx.commit().is_err());
    for job in [first, id] {
        assert!(client.monitor().job(job).is_err(), "nothing of it is there");
    }
    let count: i64 =
        connect().query_one(&format!("SELECT count(*) FROM {orders}"), &[]).expect("read").get(0);
    assert_eq!(count, 0);
    // The store's own sessions have not noticed.
    client.enqueue(drill(3, 0)).expect("accepted");
    assert_no_alarm();
}
