//! The shortest whole program: a job type, a handler, a group that runs it, and a client that enqueues.
//!
//! ```text
//! cargo run --example quickstart
//! ```

use backwave::{
    Client, GroupOptions, Health, HealthStatus, Job, Registry, SqliteStore, spawn_group,
};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

#[derive(Serialize, Deserialize)]
struct Greet {
    name: String,
}

impl Job for Greet {
    const WIRE_NAME: &'static str = "greet";
}

fn main() -> Result<(), Box<dyn Error>> {
    // A file of this run's own; a program that wants its jobs to outlive it names one that stays.
    let folder = tempfile::tempdir()?;
    let store = SqliteStore::open(folder.path().join("jobs.db"))?;

    let registry = Registry::new().handle(|ctx, job: Greet| {
        if job.name == "Grace" && ctx.attempt() == 1 {
            Err("not at home")?; // any error is a failed attempt, and is tried again
        }
        ctx.set_output(&format!("hello {}", job.name))?;
        Ok(())
    });
    let health = Arc::new(Health::new());
    let options = GroupOptions::new("greeters").workers(2);
    let group = spawn_group(store.clone(), registry, options, Arc::clone(&health))?;

    let client = Client::new(store);
    for name in ["Ada", "Grace"] {
        let job = client.enqueue(&Greet { name: name.to_owned() })?;
        let record = client.wait(job.id, Duration::from_secs(30))?;
        let output: String = record.output()?;
        println!("job {}: {}, attempt {}, {output:?}", record.id, record.state, record.attempt);
    }
    println!("health: {}", health.check());

    assert_eq!(health.check().status, HealthStatus::Healthy);
    group.shutdown();
    Ok(())
}
