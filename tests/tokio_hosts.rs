//! Hosts that live in an async runtime: stores, clients and groups are made, used, cloned and dropped on
//! its threads, although the Postgres client carries a runtime of its own.

mod support;

use backwave::{Client, Group, Health, JobState, PostgresStore, spawn_group};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;
use support::drill::{Ledger, PATIENCE, assert_no_alarm, drill, drills, quick};
use support::postgres::{config, fresh_schema};
use tokio::runtime::{Builder, Runtime};

/// Panics of this process, those that are contained somewhere included.
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.fetch_add(1, Ordering::SeqCst);
            print(panic);
        }));
    });
}

fn assert_no_panic() {
    assert_eq!(PANICS.load(Ordering::SeqCst), 0, "nothing has panicked on any thread");
    assert_no_alarm();
}

fn open(schema: &str) -> PostgresStore {
    PostgresStore::builder(config()).schema(schema).open().expect("the server answers")
}

fn spawn(store: &PostgresStore, ledger: &Arc<Ledger>, name: &str) -> Group {
    let options = quick(name).lease(Duration::from_secs(60));
    let group = spawn_group(store.clone(), ledger.registry(), options, Arc::new(Health::new()));
    group.expect("the group starts")
}

/// Everything that a host does, on one thread of the runtime.
async fn live(schema: String, name: String) {
    let store = open(&schema);
    let client = Client::new(store.clone());
    let ledger = Ledger::new();
    let group = spawn(&store, &ledger, &name);
    let job = client.enqueue(drill(0, 0)).expect("accepted");
    tokio::task::yield_now().await;
    let record = client.wait(job.id, PATIENCE).expect("it runs");
    assert_eq!(record.state, JobState::Succeeded);
    let clone = client.clone();
    drop(client);
    tokio::task::yield_now().await;
    clone.enqueue_many(drills(20, 0)).expect("accepted");
    assert!(!clone.monitor().counts().expect("read").is_empty());
    let refused = clone.operator("host").cancel(job.id);
    assert!(refused.is_err(), "it has ended: {refused:?}");
    assert!(group.wait_until_idle(PATIENCE), "it drains");
    assert_eq!(ledger.jobs(), 21);
    // One is shut down first, one is only dropped; clients outlive it, or do not.
    group.shutdown();
    drop(group);
    let second = spawn(&store, &ledger, &name);
    drop(second);
    drop(clone);
    drop(store);
}

fn host(runtime: Runtime, name: &str) {
    count_panics();
    let schema = fresh_schema();
    let path = schema.name().to_owned();
    runtime.block_on(async {
        live(path.clone(), format!("{name}-root")).await;
        let tasks: Vec<_> = (0..4)
            .map(|task| tokio::spawn(live_alone(path.clone(), format!("{name}-{task}"))))
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
    });
    drop(runtime);
    assert_no_panic();
}

/// The part of a host's life that several can live at once on one schema.
async fn live_alone(schema: String, name: String) {
    let store = open(&schema);
    let client = Client::new(store.clone());
    let ledger = Ledger::new();
    let group = spawn(&store, &ledger, &name);
    let job = client.enqueue(drill(0, 0)).expect("accepted");
    tokio::task::yield_now().await;
    client.clone().wait(job.id, PATIENCE).expect("somebody runs it");
    // Dropped where the task happens to be.
    drop((client, store));
    tokio::task::yield_now().await;
    drop(group);
}

#[test]
fn a_host_on_a_multi_thread_runtime_meets_no_panic() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    host(runtime.expect("a runtime"), "multi");
}

#[test]
fn a_host_on_a_current_thread_runtime_meets_no_panic() {
    let runtime = Builder::new_current_thread().enable_all().build();
    host(runtime.expect("a runtime"), "current");
}

#[test]
fn a_store_that_cannot_be_opened_is_an_error_on_a_runtime_too() {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let refused = PostgresStore::open("postgres://nobody@127.0.0.1:1/nothing");
        assert!(refused.is_err());
        let store = PostgresStore::builder(config()).schema("").open();
        assert!(store.is_err());
    });
}

#[test]
fn handles_made_on_a_runtime_may_outlive_it() {
    count_panics();
    let schema = fresh_schema();
    let ledger = Ledger::new();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let (client, group) = runtime.block_on(async {
        let store = open(schema.name());
        let client = Client::new(store.clone());
        client.enqueue(drill(0, 0)).expect("accepted");
        (client, spawn(&store, &ledger, "outlives"))
    });
    drop(runtime);
    let job = client.enqueue(drill(1, 0)).expect("accepted");
    client.wait(job.id, PATIENCE).expect("it runs");
    drop((client, group));
    assert_no_panic();
}
