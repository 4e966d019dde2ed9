//! An order as a graph of jobs: reserve the stock of each article, charge the customer once all of it is reserved,
//! then ship; and tell the customer however it ended. Outputs pass from job to job.
//!
//! ```text
//! cargo run --example order_pipeline            # an order that goes well
//! cargo run --example order_pipeline -- unicorn # one with an article that cannot be reserved
//! ```

use backwave::{
    Client, GroupOptions, Health, Job, JobContext, JobError, JobResult, JobState, NewJob,
    ParentRule, Registry, RetryPolicy, SqliteStore, spawn_group,
};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

#[derive(Serialize, Deserialize)]
struct Reserve {
    article: String,
}

#[derive(Serialize, Deserialize)]
struct Charge {
    customer: String,
}

#[derive(Serialize, Deserialize)]
struct Ship {
    address: String,
}

#[derive(Serialize, Deserialize)]
struct Tell {
    customer: String,
}

impl Job for Reserve {
    const WIRE_NAME: &'static str = "order.reserve";
    const RETRY: Option<RetryPolicy> = Some(RetryPolicy::never());
}

impl Job for Charge {
    const WIRE_NAME: &'static str = "order.charge";
}

impl Job for Ship {
    const WIRE_NAME: &'static str = "order.ship";
}

impl Job for Tell {
    const WIRE_NAME: &'static str = "order.tell";
}

/// What a reservation leaves behind.
#[derive(Serialize, Deserialize)]
struct Reserved {
    article: String,
    cents: u64,
}

fn reserve(ctx: &JobContext, job: Reserve) -> JobResult {
    let cents = match job.article.as_str() {
        "tea" => 450,
        "cup" => 1_200,
        other => Err(JobError::discard(format!("there is no {other} in stock")))?,
    };
    ctx.set_output(&Reserved { article: job.article, cents })?;
    Ok(())
}

/// Runs only when every reservation succeeded, so each of them has its output.
fn charge(ctx: &JobContext, job: Charge) -> JobResult {
    let mut cents = 0;
    for parent in ctx.parents()? {
        cents += parent.output::<Reserved>()?.cents;
    }
    println!(
        "  charging {} {cents} cents, with {} as the idempotency key",
        job.customer,
        ctx.job_id()
    );
    ctx.set_output(&cents)?;
    Ok(())
}

/// Asks for the one parent by its type.
fn ship(ctx: &JobContext, job: Ship) -> JobResult {
    let Some(charged) = ctx.parent::<Charge>()? else { Err("nothing was charged")? };
    println!("  shipping goods of {} cents to {}", charged.output::<u64>()?, job.address);
    Ok(())
}

/// Runs however the shipping ended, and says how.
fn tell(ctx: &JobContext, job: Tell) -> JobResult {
    let shipped = ctx.parent::<Ship>()?.map(|ship| ship.state());
    match shipped {
        Some(JobState::Succeeded) => println!("  {}, your order is on its way", job.customer),
        other => println!("  {}, we are sorry: your order is {other:?}", job.customer),
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let articles: Vec<String> = std::env::args().skip(1).collect();
    let articles = if articles.is_empty() { vec!["tea".into(), "cup".into()] } else { articles };

    let folder = tempfile::tempdir()?;
    let store = SqliteStore::open(folder.path().join("orders.db"))?;
    let registry = Registry::new().handle(reserve).handle(charge).handle(ship).handle(tell);
    let health = Arc::new(Health::new());
    let options = GroupOptions::new("orders").workers(4);
    let group = spawn_group(store.clone(), registry, options, Arc::clone(&health))?;

    let client = Client::new(store);
    let jobs = order(&client, articles)?;
    let last = jobs.last().ok_or("an order has jobs")?;
    client.wait(last.id, Duration::from_secs(30))?;
    for job in &jobs {
        let record = client.monitor().job(job.id)?;
        let detail = record.failure_detail.unwrap_or_default();
        println!("{:14} {:13} {detail}", record.wire_name, record.state.to_string());
    }
    group.shutdown();
    Ok(())
}

/// The whole order in one call: all of its jobs, or none.
fn order(
    client: &Client,
    articles: Vec<String>,
) -> Result<Vec<backwave::Enqueued>, Box<dyn Error>> {
    let customer = "Ada".to_owned();
    let mut jobs: Vec<NewJob> =
        articles.into_iter().map(|article| NewJob::new(&Reserve { article })).collect();
    let reserved: Vec<_> = jobs.iter().map(NewJob::job_id).collect();
    let charge = NewJob::new(&Charge { customer: customer.clone() }).parents(reserved);
    let ship = NewJob::new(&Ship { address: "12 Analytical Row".into() }).parent(charge.job_id());
    let tell = NewJob::new(&Tell { customer })
        .parent(ship.job_id())
        .parent_rule(ParentRule::OnAnyTerminal);
    jobs.extend([charge, ship, tell]);
    Ok(client.enqueue_many(jobs)?)
}
