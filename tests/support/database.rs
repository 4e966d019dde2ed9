//! A Postgres database of its own, whose commits can be counted from outside of it.

use super::postgres::{config, connect};
use ::postgres::{Client, Config};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Dropped with its owner.
pub struct Database {
    name: String,
    /// On another database, so that looking commits nothing here.
    observer: Client,
}

impl Database {
    /// A new, empty one.
    pub fn create() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("backwave_test_{}_{number}", std::process::id());
        let mut observer = connect();
        observer.batch_execute(&format!("CREATE DATABASE {name}")).expect("a database is made");
        Self { name, observer }
    }

    /// How to connect to it.
    pub fn config(&self) -> Config {
        let mut config = config();
        config.dbname(&self.name);
        config
    }

    /// How many transactions have been committed in it. A server process tells what it has counted when
    /// it ends, at the latest, and only then is gone from the list of them: so this waits until nobody
    /// is connected.
    pub fn commits(&mut self) -> i64 {
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.connections() > 0 {
            assert!(Instant::now() < deadline, "somebody stays connected to {}", self.name);
            // Sleeps, since a server process that ends gives no sign.
            std::thread::sleep(Duration::from_millis(5));
        }
        self.number("SELECT xact_commit FROM pg_stat_database WHERE datname = $1")
    }

    fn connections(&mut self) -> i64 {
        self.number(
            "SELECT count(*) FROM pg_stat_activity \
              WHERE datname = $1 AND backend_type = 'client backend'",
        )
    }

    fn number(&mut self, sql: &str) -> i64 {
        self.observer.query_one(sql, &[&self.name]).expect("the server answers").get(0)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let statement = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        // A panic here would hide the test's own.
        let _ = self.observer.batch_execute(&statement);
    }
}
