//! An observer that reports dead letters to another system, each once, though the process is killed in the middle:
//! it is told again of what it could not write, and the other system knows transitions by their positions.
//!
//! ```text
//! cargo run --example alerts
//! ```

use backwave::observer::{
    CallbackResult, Observation, ObserverOptions, ObserverStart, TransitionFilter,
};
use backwave::rusqlite::{Connection, params};
use backwave::{
    Client, GroupOptions, Health, HistoryPolicy, Job, JobState, NewJob, ObserverPump, Observers,
    Registry, RetryPolicy, SqliteStore, spawn_group, spawn_observers,
};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[derive(Serialize, Deserialize)]
struct Charge {
    cents: i64,
}

impl Job for Charge {
    const WIRE_NAME: &'static str = "charge";
    const RETRY: Option<RetryPolicy> = Some(RetryPolicy::never());
}

const DEAD_LETTERS: i64 = 10;
/// The first process dies as it tells of this one.
const KILLED_AT: usize = 6;
/// Tells a second run of this program that it is the one that dies.
const FOLDER: &str = "ALERTS_FOLDER";

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return die_in_the_middle(&PathBuf::from(folder));
    }
    let folder = tempfile::tempdir()?;
    let store = open(folder.path())?;
    work(&store)?;

    let killed = Command::new(std::env::current_exe()?).env(FOLDER, folder.path()).status()?;
    let (alerts, _) = count(folder.path())?;
    println!("killed: {}, alerts so far: {alerts}", !killed.success());

    // The cursor is held by the process that is no more, until its hold has lapsed.
    let pump = watch(&store, folder.path(), |_| {})?;
    let monitor = Client::new(store).monitor();
    let deadline = Instant::now() + Duration::from_secs(30);
    while monitor.observer_lag("alerts")? != Some(Duration::ZERO) {
        assert!(Instant::now() < deadline, "{:?}", pump.reports());
        std::thread::sleep(Duration::from_millis(50));
    }
    pump.shutdown();
    let (alerts, told) = count(folder.path())?;
    assert_eq!(alerts, DEAD_LETTERS, "one for each dead letter");
    assert!(told > alerts, "some were told twice: it is at least once");
    println!("alerts in the end: {alerts}");
    Ok(())
}

fn open(folder: &Path) -> Result<SqliteStore, Box<dyn Error>> {
    let store = SqliteStore::builder(folder.join("jobs.db"));
    // So that there is something to tell of what was before the observer.
    Ok(store.history(HistoryPolicy::Transitions).open()?)
}

/// Charges that go well, and some that do not.
fn work(store: &SqliteStore) -> Result<(), Box<dyn Error>> {
    let registry = Registry::new().handle(|_, job: Charge| match job.cents {
        cents if cents < 0 => Err("nobody is charged less than nothing".into()),
        _ => Ok(()),
    });
    let options = GroupOptions::new("shop");
    let group = spawn_group(store.clone(), registry, options, Arc::new(Health::new()))?;
    let client = Client::new(store.clone());
    let charges = (1..=DEAD_LETTERS).flat_map(|cents| [cents, -cents]);
    client.enqueue_many(charges.map(|cents| NewJob::new(&Charge { cents })))?;
    assert!(group.wait_until_idle(Duration::from_secs(30)));
    let counts = client.monitor().counts()?;
    let dead = counts.iter().find(|count| count.state == JobState::DeadLettered);
    println!("dead letters: {}", dead.map_or(0, |count| count.count));
    Ok(())
}

/// Reports dead letters, and tells `then` how many it has reported.
fn watch(
    store: &SqliteStore,
    folder: &Path,
    then: impl Fn(usize) + Send + Sync + 'static,
) -> Result<ObserverPump, Box<dyn Error>> {
    let alerts = Mutex::new((alerts(folder)?, 0));
    let report = move |told: &Observation| -> CallbackResult {
        let (alerts, count) = &mut *alerts.lock().map_err(|_| "an earlier report was cut short")?;
        // The position is the key: the same at each repetition, and of no other transition.
        alerts.execute(
            "INSERT INTO alerts (position, job, told) VALUES (?1, ?2, 1)
             ON CONFLICT (position) DO UPDATE SET told = told + 1",
            params![told.position().cast_signed(), told.job.to_string()],
        )?;
        *count += 1;
        then(*count);
        Ok(())
    };
    let filter = TransitionFilter::new().state(JobState::DeadLettered);
    let options = ObserverOptions::new().start(ObserverStart::Oldest).lease(Duration::from_secs(5));
    let observers = Observers::new().on_with("alerts", filter, options, report);
    Ok(spawn_observers(store.clone(), observers)?)
}

/// The other system.
fn alerts(folder: &Path) -> Result<Connection, Box<dyn Error>> {
    let alerts = Connection::open(folder.join("alerts.db"))?;
    alerts.execute_batch(
        "CREATE TABLE IF NOT EXISTS alerts
           (position INTEGER PRIMARY KEY, job TEXT NOT NULL, told INTEGER NOT NULL)",
    )?;
    Ok(alerts)
}

/// How many alerts there are, and how many times they were told.
fn count(folder: &Path) -> Result<(i64, i64), Box<dyn Error>> {
    let count = "SELECT count(*), coalesce(sum(told), 0) FROM alerts";
    Ok(alerts(folder)?.query_row(count, [], |row| Ok((row.get(0)?, row.get(1)?)))?)
}

fn die_in_the_middle(folder: &Path) -> Result<(), Box<dyn Error>> {
    let _pump = watch(&open(folder)?, folder, |count| {
        if count == KILLED_AT {
            std::process::abort();
        }
    })?;
    loop {
        std::thread::park();
    }
}
