//! The options of a store, and how it is opened.

use super::{Inner, SqliteStore, open};
use crate::store::{Bounds, HistoryPolicy, Hub, StoreClock, StoreError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// When a commit is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Synchronous {
    /// When it returns: each commit waits for an fsync.
    #[default]
    Full,
    /// At the next checkpoint. Six times as fast for single jobs, a little faster for large batches.
    ///
    /// A crash of a process loses nothing. A power failure or a crash of the operating system can lose
    /// the latest commits: a job whose enqueue had returned is gone, and an attempt whose end had been
    /// recorded runs again. The file stays sound.
    Normal,
}

/// What a session is made with.
#[derive(Debug, Clone)]
pub(super) struct Options {
    pub(super) busy_timeout: Duration,
    pub(super) synchronous: Synchronous,
    pub(super) allow_unpatched_engine: bool,
    pub(super) allow_network_file_system: bool,
}

/// Options of an [`SqliteStore`]. Made by [`SqliteStore::builder`].
///
/// ```
/// use backwave::SqliteStore;
/// use backwave::store::sqlite::Synchronous;
/// use std::time::Duration;
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("jobs.db");
/// let store = SqliteStore::builder(&path)
///     .busy_timeout(Duration::from_secs(2))
///     .synchronous(Synchronous::Normal)
///     .open()?;
/// assert!(store.path().is_absolute());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a store is made by `open`"]
pub struct SqliteStoreBuilder {
    path: PathBuf,
    options: Options,
    bounds: Bounds,
    history: HistoryPolicy,
    clock: Option<Arc<dyn StoreClock>>,
}

impl SqliteStoreBuilder {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            options: Options {
                busy_timeout: Duration::from_secs(5),
                synchronous: Synchronous::default(),
                allow_unpatched_engine: false,
                allow_network_file_system: false,
            },
            bounds: Bounds::default(),
            history: HistoryPolicy::default(),
            clock: None,
        }
    }

    /// How long a call waits for somebody else's write before it fails, transiently. Default 5 s.
    pub const fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.options.busy_timeout = timeout;
        self
    }

    /// When a commit is on the disk. Default [`Synchronous::Full`].
    pub const fn synchronous(mut self, synchronous: Synchronous) -> Self {
        self.options.synchronous = synchronous;
        self
    }

    /// The limits on what is stored.
    pub fn bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// How much of a job's life is kept by what is written through this store. Default
    /// [`HistoryPolicy::Off`]. Each change of state costs a row, in the same commit.
    pub const fn history(mut self, policy: HistoryPolicy) -> Self {
        self.history = policy;
        self
    }

    /// Replaces the host's wall clock, for tests on virtual time. Called inside the store's
    /// transactions: it must not block, nor call the store.
    pub fn clock(mut self, clock: impl StoreClock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Accepts an engine that can lose committed transactions when a WAL file is reset at the wrong
    /// moment (SQLite 3.7.0 to 3.51.2, except 3.44.6 and later and 3.50.7 and later of those branches).
    /// Default `false`. The bundled engine is a later one.
    pub const fn allow_unpatched_engine(mut self, allow: bool) -> Self {
        self.options.allow_unpatched_engine = allow;
        self
    }

    /// Accepts a file on NFS, SMB and their like, which are told by their names on Linux. There a file may be used by
    /// the processes of one machine at the most, and only where the mount shares memory maps and locks
    /// among them: neither this crate nor the engine can tell. Default `false`.
    pub const fn allow_network_file_system(mut self, allow: bool) -> Self {
        self.options.allow_network_file_system = allow;
        self
    }

    /// Opens the file, makes it if it is not there, and brings its schema up to date.
    ///
    /// # Errors
    /// [`SqliteFault`](super::SqliteFault) for an engine, a path or a file that will not do; otherwise
    /// what the engine says.
    pub fn open(self) -> Result<SqliteStore, StoreError> {
        let Self { path, options, bounds, history, clock } = self;
        let (path, identity) = open::prepare(&path, &options)?;
        let hub = Hub::shared(&path.to_string_lossy());
        Ok(SqliteStore(Arc::new(Inner { path, identity, options, bounds, history, clock, hub })))
    }
}
