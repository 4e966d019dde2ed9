//! A job enqueued in the program's own transaction: both the order and its job are there, or neither is.
//!
//! ```text
//! cargo run --example outbox
//! ```

use backwave::rusqlite::{Connection, TransactionBehavior, params};
use backwave::{Client, GroupOptions, Health, Job, Registry, SqliteStore, spawn_group};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

#[derive(Serialize, Deserialize)]
struct Confirm {
    order: i64,
}

impl Job for Confirm {
    const WIRE_NAME: &'static str = "confirm";
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("shop.db");
    let store = SqliteStore::open(&path)?;
    let mut shop = Connection::open(&path)?;
    shop.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY, article TEXT NOT NULL)")?;

    // Rolled back: the order and its job never were.
    let refused = place(&mut shop, &store, "tea", |_| Err("the card was declined".into()));
    println!("first order: {}", refused.err().ok_or("it was to be refused")?);
    let client = Client::new(store.clone());
    println!("jobs after the rollback: {}", client.monitor().counts()?.len());

    // Committed: both are.
    let job = place(&mut shop, &store, "cup", |_| Ok(()))?;
    let orders: i64 = shop.query_row("SELECT count(*) FROM orders", [], |row| row.get(0))?;
    println!("orders after the commit: {orders}");

    let registry = Registry::new().handle(|_, job: Confirm| {
        println!("confirming order {}", job.order);
        Ok(())
    });
    let group = spawn_group(store, registry, GroupOptions::new("shop"), Arc::new(Health::new()))?;
    let record = client.wait(job, Duration::from_secs(30))?;
    println!("its job: {}", record.state);
    group.shutdown();
    Ok(())
}

/// Writes an order and enqueues its confirmation; `pay` decides whether both are to be.
fn place(
    shop: &mut Connection,
    store: &SqliteStore,
    article: &str,
    pay: impl FnOnce(i64) -> Result<(), Box<dyn Error>>,
) -> Result<backwave::JobId, Box<dyn Error>> {
    // Immediate: a transaction that began as a reader may find the file changed when it comes to write.
    let tx = shop.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute("INSERT INTO orders (article) VALUES (?1)", params![article])?;
    let order = tx.last_insert_rowid();
    let job = store.enqueue_in(&tx, &Confirm { order })?;
    // Dropped without a commit, the transaction is rolled back.
    pay(order)?;
    tx.commit()?;
    Ok(job.id)
}
