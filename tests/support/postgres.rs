//! The Postgres server that the tests share, and a schema in it for each test.

use ::postgres::{Client, Config, NoTls};
use std::sync::atomic::{AtomicU32, Ordering};

/// The URL of the shared server.
///
/// # Panics
/// When there is none: a test of Postgres is never skipped.
pub fn url() -> String {
    std::env::var("BACKWAVE_TEST_POSTGRES_URL").unwrap_or_else(|_| {
        panic!(
            "BACKWAVE_TEST_POSTGRES_URL is not set: run `tests/run.sh`, or this command alone with \
             `tests/run.sh --server-only -- <command>`"
        )
    })
}

/// How to connect to the shared server.
pub fn config() -> Config {
    url().parse().expect("BACKWAVE_TEST_POSTGRES_URL is a connection URL")
}

/// A connection of the test's own.
pub fn connect() -> Client {
    config().connect(NoTls).expect("the test server answers")
}

/// A schema name that nobody else uses, and whose schema is dropped at the end.
pub struct Schema(String);

/// Reserves a schema name. Nothing is created: the store makes it when it is opened.
pub fn fresh_schema() -> Schema {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    Schema(format!("backwave test {} {number}", std::process::id()))
}

impl Schema {
    /// The name, unquoted.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        let statement = format!("DROP SCHEMA IF EXISTS \"{}\" CASCADE", self.0);
        // A server that a test has stopped takes its schemas with it; a panic here would hide the
        // test's own.
        if let Ok(mut client) = config().connect(NoTls) {
            let _ = client.batch_execute(&statement);
        }
    }
}

/// How to connect to a server on that loopback port, as the shared server's user and without TLS, which
/// a proxy would not understand.
pub fn config_at(port: u16) -> Config {
    let shared = config();
    let mut config = Config::new();
    config.host("127.0.0.1").port(port).ssl_mode(::postgres::config::SslMode::Disable);
    config.user(shared.get_user().unwrap_or("postgres"));
    config.dbname(shared.get_dbname().unwrap_or("postgres"));
    config
}

/// The port of the shared server.
pub fn port() -> u16 {
    config().get_ports().first().copied().unwrap_or(5432)
}
