//! The store in a Postgres database.
//!
//! One table holds every job. What is hot is a versioned plpgsql function per operation: a call is one
//! round trip and one commit whatever the batch, its parameters are a few arrays, and each of its steps is
//! a statement of its own. A VOLATILE function takes a new snapshot per statement, so that what was locked
//! in one is read, as it stands, in the next. The Rust side is thin: it packs arrays and unpacks rows.
//!
//! Invariants kept here:
//! - every transaction is READ COMMITTED; the functions refuse any other level;
//! - rows are locked by ascending id, and judged only from their locked versions;
//! - time is the server's `clock_timestamp()`, read when the locks are held, unless a test's clock
//!   stands in for it;
//! - schedules are locked before any job, by ascending name;
//! - settings of queues are locked before the jobs that a claim takes, and whoever holds them waits for no job;
//! - whoever ends jobs locks their dependents with them, and resolves their gates in the same transaction;
//! - a closed connection is never used again.
//!
//! # Which faults pass by themselves
//!
//! A closed list of exact codes and kinds. A database error decides before any I/O error behind it. What is
//! not listed halts the pump that meets it. When the store is opened nothing is sorted: the error is
//! returned.
//!
//! | What becomes of it | Faults |
//! |---|---|
//! | Transient, the session goes on | `40001` `40P01` `55P03` `57014` |
//! | Transient, a new session is opened | `08000` `08001` `08003` `08004` `08006`; `08007` `40003` (whether it was committed is unknown); `57P01` `57P02` `57P03` `57P05`; `25P03` `25P04`; `25006` (a standby after a failover); `BW003` (a newer release has taken the schema over); `53000` `53100` `53200` `53300` `53400` (refused and rolled back as a whole). Without a database error: the client says that the connection is closed, or an I/O error of kind `ConnectionRefused` `ConnectionReset` `ConnectionAborted` `BrokenPipe` `NotConnected` `UnexpectedEof` `TimedOut` `HostUnreachable` `NetworkUnreachable` `NetworkDown` `AddrNotAvailable`; while connecting also a socket that is missing and a name that does not resolve |
//! | Halts | everything else, and so what only looks transient: `58000` `58030`, `55000` `55006`, `57P04`, `3D000`, `28000` `28P01` `42501`, `25P01` `25P02`, `0A000`, `08P01`, `26000` `42P05` (the second time; if nothing had run, the session is first opened anew), `XX000` `XX001` `XX002`, all of classes 22 and 23; I/O errors of kind `InvalidData` `PermissionDenied` `OutOfMemory` `Other` |
//!
//! # Poolers
//!
//! A store needs sessions of its own: it sets them up, and prepares its statements in them. A pooler in session mode
//! gives it those. One that lends sessions transaction by transaction (PgBouncer's `transaction` and `statement`
//! modes) would share them, settings included, with whoever else comes through it: opening a store behind it is
//! refused ([`PostgresOpenError::TransactionPool`]), and where the pool was too busy to be recognised, the first
//! statement that has got lost (`26000`, `42P05`) halts. [`enqueue_in`](PostgresStore::enqueue_in) and the SQL function
//! `enqueue(json)` prepare nothing and set nothing: the caller's own connection may stand behind any pooler.
//!
//! Inside this folder the client's crate is `::postgres`.

mod builder;
mod claim;
mod connect;
mod dependents;
mod enqueue;
mod error;
mod fault;
mod floor;
mod fresh;
mod lease;
mod matching;
mod migrate;
mod observing;
mod operations;
mod reads;
mod report;
mod rounds;
mod scheduling;
mod schema;
mod session;
#[cfg(test)]
mod tests;
mod types;
mod upkeep;

pub use builder::PostgresBuilder;
pub use error::PostgresOpenError;

use crate::Timestamp;
use crate::store::{Bounds, Hub, Session, Store, StoreClock, StoreError};
use connect::Connector;
use schema::Schema;
use session::PostgresSession;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::time::SystemTime;

/// A store in a Postgres database, version 13 or later. Clones are the same store.
///
/// Jobs live in a schema of their own, `backwave` unless another is chosen, which is made and brought up to
/// date when the store is opened. What other languages may use there is the function `enqueue(json)` and
/// the views `jobs_v3` and `schedules_v1`.
///
/// ```no_run
/// use backwave::PostgresStore;
///
/// let store = PostgresStore::open("postgres://app@db.example/app")?;
/// # Ok::<(), backwave::store::StoreError>(())
/// ```
#[derive(Clone)]
pub struct PostgresStore {
    inner: Arc<Inner>,
}

/// What the store and its sessions share.
struct Inner {
    connector: Connector,
    schema: Schema,
    bounds: Bounds,
    /// How much of a job's life is kept, as the functions take it.
    history: i16,
    clock: Option<Arc<dyn StoreClock>>,
    hub: Hub,
    /// How long the server lets one statement take.
    statement_timeout: Duration,
    /// The statements that set a session up.
    settings: String,
    /// Whether this process has seen the schema up to date.
    is_migrated: AtomicBool,
}

impl PostgresStore {
    /// Opens the database at `url` without TLS, in the schema `backwave`, and makes or updates the schema.
    /// May be called from async code: the I/O happens on a thread of its own.
    ///
    /// # Errors
    /// Whatever keeps the connection from being made or the schema from being brought up to date. Nothing is
    /// tried again.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        let config: ::postgres::Config =
            url.parse().map_err(StoreError::new::<::postgres::Error>)?;
        Self::builder(config).open()
    }

    /// Chooses more than a URL can say.
    ///
    /// ```no_run
    /// use backwave::PostgresStore;
    ///
    /// let config: postgres::Config = "host=db.example user=app dbname=app".parse()?;
    /// let store = PostgresStore::builder(config).schema("jobs").open()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder(config: ::postgres::Config) -> PostgresBuilder {
        PostgresBuilder::from_config(config)
    }

    /// Makes connections by a closure: any TLS stack, any way to find the server. The closure is called
    /// on threads of this crate only. Two stores made so do not find each other in the process; clone the
    /// one to share it.
    ///
    /// ```no_run
    /// use backwave::PostgresStore;
    ///
    /// let connect = || postgres::Client::connect("host=/run/postgresql user=app", postgres::NoTls);
    /// let store = PostgresStore::builder_with(connect).open()?;
    /// # Ok::<(), backwave::store::StoreError>(())
    /// ```
    pub fn builder_with(
        connect: impl Fn() -> Result<::postgres::Client, ::postgres::Error> + Send + Sync + 'static,
    ) -> PostgresBuilder {
        PostgresBuilder::from_closure(Box::new(move |()| connect()))
    }

    /// The SQL that makes the schema `schema`, for an administrator to run where the program's own role
    /// must not.
    ///
    /// ```
    /// use backwave::PostgresStore;
    ///
    /// let sql = PostgresStore::ddl("jobs")?;
    /// assert!(sql.contains(r#"CREATE TABLE "jobs".jobs"#));
    /// # Ok::<(), backwave::store::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// When `schema` cannot be an identifier ([`PostgresOpenError::SchemaName`]).
    pub fn ddl(schema: &str) -> Result<String, StoreError> {
        Ok(migrate::ddl(&Schema::new(schema).map_err(StoreError::new)?))
    }
}

impl Store for PostgresStore {
    fn open_session(&self) -> Result<Box<dyn Session>, StoreError> {
        Ok(Box::new(PostgresSession::open(Arc::clone(&self.inner))?))
    }

    fn hub(&self) -> &Hub {
        &self.inner.hub
    }

    fn bounds(&self) -> &Bounds {
        &self.inner.bounds
    }

    fn call_timeout(&self) -> Option<Duration> {
        Some(self.inner.statement_timeout)
    }
}

impl fmt::Debug for PostgresStore {
    /// Without the connection's settings: they hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("schema", &self.inner.schema.name())
            .finish_non_exhaustive()
    }
}

impl Inner {
    /// Connects and sets the session up; the first time, also brings the schema up to date.
    fn connect(&self) -> Result<::postgres::Client, StoreError> {
        let mut client = self.connector.connect()?;
        if self.is_migrated.load(Ordering::Acquire) {
            let versions = connect::set_up(&mut client, &self.settings, &self.schema)?;
            migrate::check_versions(versions)?;
            return Ok(client);
        }
        self.connector.refuse_transaction_pool(&mut client)?;
        client.batch_execute(&self.settings).map_err(fault::fault)?;
        migrate::check_server(&mut client)?;
        let migrated = migrate::migrate(&mut client, &self.schema)?;
        self.is_migrated.store(true, Ordering::Release);
        if let Some((from, to)) = migrated {
            crate::telemetry::schema_migrated("postgres", from.unsigned_abs(), to.unsigned_abs());
        }
        Ok(client)
    }

    /// Says, after a commit, that `queue` has a job due in `due_in`. The subscribers are the host's, and their
    /// panics must not become those of a caller whose write is done.
    fn wake(&self, queue: &str, due_in: Duration) {
        // What it carried has been disposed of; a hint that is lost costs latency only.
        let _told = crate::contain::contained(|| self.hub.wake(queue, due_in));
    }

    /// The time of the clock that stands in for the server's, if one does. It is the host's code: to be
    /// asked before a call, never within a transaction.
    fn clock_time(&self) -> Option<Timestamp> {
        self.clock.as_ref().map(|clock| clock.now())
    }

    /// Some time near the server's, for checks in which only the order of magnitude counts.
    fn rough_time(&self) -> Timestamp {
        self.clock_time().unwrap_or_else(|| SystemTime::now().into())
    }
}
