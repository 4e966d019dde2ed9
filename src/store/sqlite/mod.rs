//! The SQLite store: a file on one host, shared by any number of threads and processes.
//!
//! It keeps the [Storage Contract](crate::store) by few means. Every write is one transaction that
//! begins as a writer (`BEGIN IMMEDIATE`), so that what it reads first stays true until it commits and
//! nothing is ever upgraded from reader to writer. The store's time is the host's wall clock, read
//! inside that transaction. The fence is [`judge`](crate::store::judge) on rows read there. A claim that
//! finds nothing takes no write lock.
//!
//! The file is in WAL mode. It must lie on a local disk: WAL shares memory between its processes, which
//! network file systems cannot; on Linux such a one is told by its name and refused. Every table, index and view
//! of ours is named `backwave_..`, so that the host can keep its own tables in the same file, and
//! `backwave_jobs_v3` shows jobs and `backwave_schedules_v1` schedules readably to the `sqlite3` shell.
//!
//! The engine's locks belong to the process: a second copy of SQLite in it, or code that opens and closes the file
//! as a plain file, gives them up unseen. That is not supported, and nothing can notice it.
//!
//! What the engine lacks, it lacks: one writer at a time, whatever the number of processes. A batch
//! costs one commit; at `synchronous = FULL` a commit costs one fsync.
//!
//! # Which faults pass by themselves
//!
//! A closed list of result codes; an extended code goes with its primary one. What is not listed, the
//! unknown included, halts the pump that meets it. When the store is opened nothing is sorted: the error
//! is returned, except that a file which others hold is waited for.
//!
//! | What becomes of it | Faults |
//! |---|---|
//! | Transient, the session goes on | `SQLITE_BUSY` `SQLITE_BUSY_RECOVERY` `SQLITE_BUSY_SNAPSHOT` `SQLITE_BUSY_TIMEOUT`, `SQLITE_LOCKED` `SQLITE_LOCKED_SHAREDCACHE` `SQLITE_LOCKED_VTAB` (somebody else holds a lock), `SQLITE_FULL` (no room; rolled back as a whole) |
//! | Transient, the session is lost | [`SqliteFault::SchemaTooNew`]: a later release has changed the file beyond what this one can read. A group stops claiming, shows it, and goes on looking |
//! | Halts | everything else, and so what only looks transient: `SQLITE_READONLY`, `SQLITE_IOERR`, `SQLITE_CORRUPT`, `SQLITE_CANTOPEN`, `SQLITE_PROTOCOL`, `SQLITE_MISUSE`, `SQLITE_NOTADB`, `SQLITE_NOMEM`, `SQLITE_INTERRUPT`, `SQLITE_SCHEMA`, all of `SQLITE_CONSTRAINT`; each other [`SqliteFault`] |

mod batch;
mod births;
mod builder;
mod claim;
mod enqueue;
mod fault;
mod file;
mod find;
mod keyed;
mod latch;
mod lease;
mod locked;
mod migrate;
mod mount;
mod observing;
mod open;
mod operations;
mod pumps;
mod purge;
mod queues;
mod reads;
mod records;
mod report;
mod row;
mod scheduling;
mod session;
#[cfg(test)]
mod tests;
mod work;

pub use builder::{SqliteStoreBuilder, Synchronous};
pub use fault::SqliteFault;

use crate::Timestamp;
use crate::store::{
    Bounds, HistoryPolicy, Hub, Session, Store, StoreClock, StoreError, StoreFaultClassifier,
};
use builder::Options;
use file::Identity;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::time::SystemTime;

/// Jobs in an SQLite file. Clones are the same store; so are handles that were opened on one file.
///
/// ```
/// use backwave::SqliteStore;
/// use backwave::store::{JobRow, Jobs, Reads, Store};
/// use backwave::{JobId, JobState};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("jobs.db");
/// let store = SqliteStore::open(&path)?;
/// let mut session = store.open_session()?;
/// let id = JobId::new();
/// session.enqueue(&[JobRow::new(id, "greet")])?;
/// let record = session.job(id)?.expect("it was accepted");
/// assert_eq!(record.state, JobState::Scheduled);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SqliteStore(Arc<Inner>);

struct Inner {
    /// Canonical: what links led to when the store was opened.
    path: PathBuf,
    identity: Identity,
    options: Options,
    bounds: Bounds,
    history: HistoryPolicy,
    /// `None` is the host's wall clock.
    clock: Option<Arc<dyn StoreClock>>,
    hub: Hub,
}

impl SqliteStore {
    /// Opens the file with the default options, makes it if it is not there, and brings its schema up
    /// to date.
    ///
    /// # Errors
    /// [`SqliteFault`] for an engine, a path or a file that will not do; otherwise what the engine says.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::builder(path).open()
    }

    /// The options, to be followed by [`open`](SqliteStoreBuilder::open).
    pub fn builder(path: impl AsRef<Path>) -> SqliteStoreBuilder {
        SqliteStoreBuilder::new(path.as_ref())
    }

    /// Where the file is, every link resolved.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.0.path).finish_non_exhaustive()
    }
}

impl Store for SqliteStore {
    fn open_session(&self) -> Result<Box<dyn Session>, StoreError> {
        Ok(Box::new(session::SqliteSession::open(Arc::clone(&self.0))?))
    }

    fn hub(&self) -> &Hub {
        &self.0.hub
    }

    fn bounds(&self) -> &Bounds {
        &self.0.bounds
    }

    fn call_timeout(&self) -> Option<Duration> {
        Some(self.0.options.busy_timeout)
    }

    fn fault_classifier(&self) -> Option<&dyn StoreFaultClassifier> {
        Some(&fault::Classifier)
    }
}

impl Inner {
    /// The store's time.
    fn now(&self) -> Timestamp {
        match &self.clock {
            Some(clock) => clock.now(),
            None => Timestamp::from(SystemTime::now()),
        }
    }

    /// Fails unless `found` is the database that the store was opened on.
    fn require_database(&self, found: &Identity) -> Result<(), SqliteFault> {
        if found.database == self.identity.database {
            return Ok(());
        }
        Err(SqliteFault::FileReplaced { path: self.path.clone() })
    }
}
