//! How a connection is made: which engines and files will do, and the settings it works under.

use super::builder::{Options, Synchronous};
use super::fault::{self, SqliteFault};
use super::file::Identity;
use super::{Inner, migrate, mount};
use crate::store::StoreError;
use crate::telemetry;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The first engine with everything the statements use: strict tables, `RETURNING`,
/// `UPDATE .. FROM`, JSON always there.
const ENGINE_MIN: i32 = 3_038_000;

/// Statements kept prepared per session: more than there are.
const STATEMENTS_MAX: usize = 128;

/// Opens or makes the file, brings its schema up to date, and says where it is and which file it is.
///
/// # Errors
/// [`SqliteFault`], and what the engine says.
pub(super) fn prepare(path: &Path, options: &Options) -> Result<(PathBuf, Identity), StoreError> {
    open_file(path, options).map_err(|error| named(path, error))
}

/// An engine's fault, with the file that it is about: the engine itself says that only of some.
fn named(path: &Path, error: StoreError) -> StoreError {
    match error.downcast_ref::<rusqlite::Error>().map(ToString::to_string) {
        Some(said) => error.with_message(format!("{path:?} cannot be opened: {said}")),
        None => error,
    }
}

fn open_file(path: &Path, options: &Options) -> Result<(PathBuf, Identity), StoreError> {
    refuse_path(path)?;
    require_engine(options.allow_unpatched_engine)?;
    if !options.allow_network_file_system {
        mount::refuse_network(path)?;
    }
    let mut conn = connect(path, OpenFlags::SQLITE_OPEN_CREATE, options)?;
    // Only now the file exists, so that every link on the way to it can be resolved.
    let path = std::fs::canonicalize(path)
        .map_err(|_| SqliteFault::FileReplaced { path: path.to_owned() })?;
    if let Some(migrated) = migrate::migrate(&mut conn, &path).map_err(StoreError::counted)? {
        telemetry::schema_migrated("sqlite", migrated.from, migrated.to);
    }
    let identity = Identity::of(&path)?;
    Ok((path, identity))
}

/// Opens one more connection to the store's file, and notes which files it has in use.
///
/// # Errors
/// [`SqliteFault`], and what the engine says.
pub(super) fn session(store: &Inner) -> Result<(Connection, Identity), StoreError> {
    // Looked at before and after: a file that is gone must not be asked for its settings, and the
    // connection must not be on another file than the one compared.
    store.require_database(&Identity::of(&store.path)?)?;
    let conn = connect(&store.path, OpenFlags::empty(), &store.options)?;
    migrate::require_readable(&conn, &store.path).map_err(StoreError::counted)?;
    let identity = Identity::of(&store.path)?;
    store.require_database(&identity)?;
    Ok((conn, identity))
}

fn refuse_path(path: &Path) -> Result<(), SqliteFault> {
    let text = path.to_string_lossy();
    let is_uri = text.starts_with("file:");
    if text.is_empty() || text.contains(":memory:") || (is_uri && text.contains("mode=memory")) {
        return Err(SqliteFault::InMemory { path: path.to_owned() });
    }
    if is_uri {
        return Err(SqliteFault::Uri { path: path.to_owned() });
    }
    Ok(())
}

fn require_engine(allow_unpatched: bool) -> Result<(), SqliteFault> {
    let (number, version) = (rusqlite::version_number(), rusqlite::version());
    if number < ENGINE_MIN {
        return Err(SqliteFault::EngineTooOld { version });
    }
    if !allow_unpatched && can_lose_commits(number) {
        return Err(SqliteFault::EngineUnpatched { version });
    }
    Ok(())
}

/// Whether this version has the bug by which a WAL file that is reset at the wrong moment loses
/// committed transactions: 3.7.0 to 3.51.2, but for two branches that were mended.
const fn can_lose_commits(version: i32) -> bool {
    let is_mended = matches!(version, 3_044_006..=3_044_999 | 3_050_007..=3_050_999);
    version >= 3_007_000 && version <= 3_051_002 && !is_mended
}

/// Connects, with the settings that every connection of ours works under.
fn connect(path: &Path, create: OpenFlags, options: &Options) -> Result<Connection, StoreError> {
    // A connection stays on one thread, and a path is never read as a URI.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | create;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    conn.busy_timeout(options.busy_timeout)?;
    // Plans that hang on the values bound would be made anew at every call: a claim is a range scan, and
    // its bounds are never the same.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    require_utf8(&conn, path, options.busy_timeout)?;
    enter_wal(&conn, path, options.busy_timeout)?;
    let synchronous = match options.synchronous {
        Synchronous::Full => "FULL",
        Synchronous::Normal => "NORMAL",
    };
    // `fullfsync` is for macOS, whose plain fsync leaves data in the drive's cache. Sorting happens in
    // memory, so that a full temporary folder stops nothing. The WAL shrinks back to its limit once
    // a long reader has let it grow.
    conn.execute_batch(&format!(
        "PRAGMA synchronous = {synchronous}; \
         PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON; \
         PRAGMA foreign_keys = ON; \
         PRAGMA temp_store = MEMORY; \
         PRAGMA cache_size = -16384; \
         PRAGMA journal_size_limit = 67108864;"
    ))?;
    Ok(conn)
}

/// Texts travel as bytes through some statements, and so must be stored as they are bound.
fn require_utf8(conn: &Connection, path: &Path, patience: Duration) -> Result<(), StoreError> {
    let encoding: String =
        retry_busy(patience, || conn.query_row("PRAGMA encoding", [], |row| row.get(0)))?;
    if encoding == "UTF-8" {
        return Ok(());
    }
    Err(SqliteFault::Encoding { path: path.to_owned(), encoding }.into())
}

/// Switches the file to WAL, or finds it so. Several openers of a new file get in each other's way, and
/// the engine does not wait then, whatever the busy timeout.
fn enter_wal(conn: &Connection, path: &Path, patience: Duration) -> Result<(), StoreError> {
    let mode: String = retry_busy(patience, || {
        conn.query_row("PRAGMA main.journal_mode = WAL", [], |row| row.get(0))
    })?;
    if mode.eq_ignore_ascii_case("wal") {
        return Ok(());
    }
    Err(SqliteFault::NoWal { path: path.to_owned(), mode }.into())
}

/// Repeats a statement that others are in the way of, for as long as the busy timeout.
fn retry_busy<T>(
    patience: Duration,
    statement: impl Fn() -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let started = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        match statement() {
            Err(error) if fault::is_busy(&error) && started.elapsed() < patience => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(50));
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::claim;
    use super::*;

    #[test]
    fn engines_with_the_wal_reset_bug_are_told_from_mended_ones() {
        let broken = [3_007_000, 3_040_001, 3_044_005, 3_045_000, 3_050_006, 3_051_000, 3_051_002];
        for version in broken {
            assert!(can_lose_commits(version), "{version}");
        }
        let sound = [3_006_023, 3_044_006, 3_044_009, 3_050_007, 3_051_003, 3_052_000, 4_000_000];
        for version in sound {
            assert!(!can_lose_commits(version), "{version}");
        }
        assert!(require_engine(false).is_ok(), "the engine under test: {}", rusqlite::version());
    }

    #[test]
    fn a_busy_statement_is_repeated_while_patience_lasts() {
        let busy = || rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(5), None);
        let calls = std::cell::Cell::new(0);
        let third_time = || {
            calls.set(calls.get() + 1);
            if calls.get() < 3 { Err(busy()) } else { Ok(calls.get()) }
        };
        assert_eq!(retry_busy(Duration::from_secs(60), third_time), Ok(3));
        let always = || Err::<(), _>(busy());
        assert_eq!(retry_busy(Duration::ZERO, always), Err(busy()));
        let other = || Err::<(), _>(rusqlite::Error::QueryReturnedNoRows);
        let patience = Duration::from_secs(60);
        assert_eq!(retry_busy(patience, other), Err(rusqlite::Error::QueryReturnedNoRows));
    }

    #[test]
    fn a_range_scan_is_planned_once_whatever_its_bounds() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = crate::SqliteStore::open(folder.path().join("jobs.db")).expect("it opens");
        let (conn, _) = session(&store.0).expect("it opens");
        for due_at in 0..3 {
            let mut scan = conn.prepare_cached(claim::WALK).expect("it is SQL");
            assert!(!scan.exists(("q", due_at, [7_u8; 16])).expect("it runs"));
            assert_eq!(scan.get_status(rusqlite::StatementStatus::RePrepare), 0);
        }
    }

    #[test]
    fn paths_that_name_no_file_are_refused_with_a_pointer_to_the_memory_store() {
        for path in ["", ":memory:", "file::memory:?cache=shared", "file:x?mode=memory"] {
            let fault = refuse_path(Path::new(path)).expect_err(path);
            assert!(matches!(fault, SqliteFault::InMemory { .. }), "{path}");
            assert!(fault.to_string().contains("MemoryStore"), "{fault}");
        }
        let fault = refuse_path(Path::new("file:jobs.db")).expect_err("a URI");
        assert!(matches!(fault, SqliteFault::Uri { .. }));
        assert!(refuse_path(Path::new("some file.db")).is_ok());
    }
}
