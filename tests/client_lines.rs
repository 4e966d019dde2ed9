//! What the Postgres client logs of our statements, at its most talkative: never a payload or an output.

mod support;

use backwave::{Client, GroupOptions, Health, Job, JobState, PostgresStore, Registry, spawn_group};
use log::{LevelFilter, Log, Metadata, Record};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use support::postgres::{config, fresh_schema};

const SECRET: &str = "token=S3cr3t";

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Records every line of every target.
struct Everything;

impl Log for Everything {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let line = format!("{}: {}", record.target(), record.args());
        LINES.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    fn flush(&self) {}
}

#[derive(Serialize, Deserialize)]
struct Login {
    token: String,
}

impl Job for Login {
    const WIRE_NAME: &'static str = "login";
}

#[test]
fn no_line_of_any_target_shows_a_payload_or_an_output() {
    log::set_logger(&Everything).expect("there is no other logger");
    log::set_max_level(LevelFilter::Trace);
    let schema = fresh_schema();
    let store = PostgresStore::builder(config()).schema(schema.name());
    let store = store.open().expect("the server answers");
    let client = Client::new(store.clone());
    let registry = Registry::new().handle(|ctx, job: Login| Ok(ctx.set_output(&job.token)?));
    let health = Arc::new(Health::new());
    let group =
        spawn_group(store, registry, GroupOptions::new("login"), health).expect("it starts");
    let job = client.enqueue(&Login { token: SECRET.to_owned() }).expect("accepted");
    let record = client.wait(job.id, Duration::from_secs(30)).expect("it ends");
    assert_eq!(record.state, JobState::Succeeded);
    assert_eq!(record.output::<String>().expect("it has an output"), SECRET);
    group.shutdown();

    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    // The client shows bytes as a list of numbers.
    let as_numbers = format!("{:?}", SECRET.as_bytes());
    let shown = |line: &&String| {
        line.contains("S3cr3t") || line.contains(as_numbers.trim_matches(['[', ']']))
    };
    assert!(lines.iter().any(|line| line.contains("exchange_v2") || line.contains("report_v2")));
    assert_eq!(lines.iter().find(shown), None);
}
