//! What can go wrong with a file, and which of it may be tried again.
//!
//! SQLite names its faults by result code. Only what is known to pass by itself is transient: somebody
//! else holds a lock (the BUSY and LOCKED families), or there is no room (FULL, rolled back as a whole).
//! All else, the unknown included, is not.

use crate::store::{StoreError, StoreFaultClassifier};
use rusqlite::ffi;
use std::path::PathBuf;

/// A fault of the SQLite store that the engine itself has no code for.
///
/// Found behind a [`StoreError`] with [`StoreError::downcast_ref`]. None of them passes by itself but
/// [`Self::SchemaTooNew`], once the program has been replaced by a later one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqliteFault {
    /// The path names no file.
    #[error(
        "{path:?} names no file on disk, and each connection would see a database of its own; \
         for jobs in memory use MemoryStore"
    )]
    InMemory {
        /// The path given.
        path: PathBuf,
    },
    /// The path is a URI.
    #[error("{path:?} is a URI; give the plain path of the file")]
    Uri {
        /// The path given.
        path: PathBuf,
    },
    /// The engine can corrupt a WAL file that several connections write.
    #[error(
        "SQLite {version} can lose committed data when a WAL file is reset (fixed in 3.44.6, 3.50.7 \
         and 3.51.3); use a later one, or insist with `allow_unpatched_engine`"
    )]
    EngineUnpatched {
        /// The version of the engine.
        version: &'static str,
    },
    /// The engine lacks what the statements need.
    #[error("SQLite {version} is too old, 3.38.0 is the first that will do")]
    EngineTooOld {
        /// The version of the engine.
        version: &'static str,
    },
    /// The file lies on a file system that several machines share.
    #[error(
        "{path:?} lies on {kind}, a network file system, and WAL needs memory and locks that its users share: \
         use a local disk, or insist with `allow_network_file_system`"
    )]
    NetworkFileSystem {
        /// The file.
        path: PathBuf,
        /// The kind of file system, as the kernel names it.
        kind: String,
    },
    /// The file cannot be switched to WAL.
    #[error("{path:?} cannot use WAL, its journal mode stays {mode:?}")]
    NoWal {
        /// The file.
        path: PathBuf,
        /// The mode it is in.
        mode: String,
    },
    /// The file does not keep text as UTF-8.
    #[error("{path:?} keeps its text as {encoding}, only UTF-8 will do")]
    Encoding {
        /// The file.
        path: PathBuf,
        /// What it uses.
        encoding: String,
    },
    /// A later release of this crate has changed the schema beyond what this one can read. A group that
    /// meets it while it runs stops claiming and is Degraded, the session lost; it does not halt.
    #[error(
        "{path:?} has schema version {version}, which needs a program that knows version \
         {min_reader}; this one knows {known}"
    )]
    SchemaTooNew {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// The oldest version whose readers it still serves.
        min_reader: u32,
        /// The latest version known here.
        known: u32,
    },
    /// The table of the schema's version has more than the one row that belongs there. Its constraints keep it
    /// so unless the table was made anew.
    #[error(
        "{path:?} has {rows} rows in backwave_meta where one belongs: delete all but the one that tells what \
         the schema is, and restore the table's constraints"
    )]
    VersionRows {
        /// The file.
        path: PathBuf,
        /// How many there are.
        rows: i64,
    },
    /// The file, or one that belongs to it, was removed or replaced while it was open.
    #[error("{path:?} is not the file any more that was opened: it was removed or replaced")]
    FileReplaced {
        /// The file.
        path: PathBuf,
    },
    /// A transaction was given that is not on the store's file.
    #[error("the transaction is on {found:?}, the store is on {expected:?}")]
    OtherFile {
        /// The store's file.
        expected: PathBuf,
        /// The main file of the transaction's connection; empty for a database in memory.
        found: PathBuf,
    },
    /// The caller's transaction began as a reader and cannot become a writer.
    #[error("the caller's transaction cannot write any more: begin it IMMEDIATE")]
    NotImmediate(#[source] rusqlite::Error),
    /// A stored value cannot be what this crate wrote.
    #[error("{column} of job {job} is stored as something that was never written there")]
    Unreadable {
        /// The job.
        job: crate::JobId,
        /// The column.
        column: &'static str,
    },
    /// A stored list cannot be what this crate wrote.
    #[error("{column} is stored as something that was never written there")]
    UnreadableList {
        /// The column.
        column: &'static str,
    },
    /// A transaction could not be rolled back; the session is of no more use.
    #[error("the session could not roll its last transaction back")]
    SessionLost,
}

impl From<SqliteFault> for StoreError {
    fn from(fault: SqliteFault) -> Self {
        Self::new(fault)
    }
}

impl From<rusqlite::Error> for StoreError {
    /// Keeps the error, and names its extended result code.
    fn from(error: rusqlite::Error) -> Self {
        match extended_code(&error) {
            Some(code) => Self::new(error).with_code(code_name(code)),
            None => Self::new(error),
        }
    }
}

/// The extended result code of an engine's error; none for an error of the Rust side.
pub(super) fn extended_code(error: &rusqlite::Error) -> Option<i32> {
    error.sqlite_error().map(|error| error.extended_code)
}

/// The primary code is the low byte of an extended one.
const fn primary(code: i32) -> i32 {
    code & 0xff
}

/// Whether somebody else holds a lock that the statement needs.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    extended_code(error).is_some_and(|code| primary(code) == ffi::SQLITE_BUSY)
}

/// Recognises the result codes that pass by themselves.
pub(super) struct Classifier;

impl StoreFaultClassifier for Classifier {
    fn is_transient_fault(&self, error: &StoreError) -> bool {
        if let Some(SqliteFault::SchemaTooNew { .. }) = error.downcast_ref() {
            return true;
        }
        error.downcast_ref::<rusqlite::Error>().and_then(extended_code).is_some_and(|code| {
            matches!(primary(code), ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED | ffi::SQLITE_FULL)
        })
    }
}

/// The name of a result code, with its number: an extended code without a name of its own here is told
/// by its primary one.
fn code_name(code: i32) -> String {
    let name = match code {
        ffi::SQLITE_BUSY_RECOVERY => "SQLITE_BUSY_RECOVERY",
        ffi::SQLITE_BUSY_SNAPSHOT => "SQLITE_BUSY_SNAPSHOT",
        ffi::SQLITE_BUSY_TIMEOUT => "SQLITE_BUSY_TIMEOUT",
        ffi::SQLITE_LOCKED_SHAREDCACHE => "SQLITE_LOCKED_SHAREDCACHE",
        ffi::SQLITE_CONSTRAINT_CHECK => "SQLITE_CONSTRAINT_CHECK",
        ffi::SQLITE_CONSTRAINT_UNIQUE => "SQLITE_CONSTRAINT_UNIQUE",
        ffi::SQLITE_CONSTRAINT_NOTNULL => "SQLITE_CONSTRAINT_NOTNULL",
        ffi::SQLITE_CONSTRAINT_FOREIGNKEY => "SQLITE_CONSTRAINT_FOREIGNKEY",
        ffi::SQLITE_IOERR_READ => "SQLITE_IOERR_READ",
        ffi::SQLITE_IOERR_WRITE => "SQLITE_IOERR_WRITE",
        ffi::SQLITE_IOERR_FSYNC => "SQLITE_IOERR_FSYNC",
        ffi::SQLITE_READONLY_DBMOVED => "SQLITE_READONLY_DBMOVED",
        other => primary_name(primary(other)),
    };
    format!("{name}, {code}")
}

const fn primary_name(code: i32) -> &'static str {
    match code {
        ffi::SQLITE_INTERNAL => "SQLITE_INTERNAL",
        ffi::SQLITE_PERM => "SQLITE_PERM",
        ffi::SQLITE_ABORT => "SQLITE_ABORT",
        ffi::SQLITE_BUSY => "SQLITE_BUSY",
        ffi::SQLITE_LOCKED => "SQLITE_LOCKED",
        ffi::SQLITE_NOMEM => "SQLITE_NOMEM",
        ffi::SQLITE_READONLY => "SQLITE_READONLY",
        ffi::SQLITE_INTERRUPT => "SQLITE_INTERRUPT",
        ffi::SQLITE_IOERR => "SQLITE_IOERR",
        ffi::SQLITE_CORRUPT => "SQLITE_CORRUPT",
        ffi::SQLITE_FULL => "SQLITE_FULL",
        ffi::SQLITE_CANTOPEN => "SQLITE_CANTOPEN",
        ffi::SQLITE_PROTOCOL => "SQLITE_PROTOCOL",
        ffi::SQLITE_SCHEMA => "SQLITE_SCHEMA",
        ffi::SQLITE_TOOBIG => "SQLITE_TOOBIG",
        ffi::SQLITE_CONSTRAINT => "SQLITE_CONSTRAINT",
        ffi::SQLITE_MISMATCH => "SQLITE_MISMATCH",
        ffi::SQLITE_MISUSE => "SQLITE_MISUSE",
        ffi::SQLITE_AUTH => "SQLITE_AUTH",
        ffi::SQLITE_NOTADB => "SQLITE_NOTADB",
        _ => "SQLITE_ERROR",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{FaultClass, classify};

    fn class_of(code: i32) -> FaultClass {
        let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
        classify(&StoreError::from(error), Some(&Classifier))
    }

    /// Every result code of the engine, the extended ones after their primary code.
    const CODES: &str = "
        OK=0 OK_LOAD_PERMANENTLY=256 OK_SYMLINK=512 ERROR=1 ERROR_MISSING_COLLSEQ=257
        ERROR_RETRY=513 ERROR_SNAPSHOT=769 ERROR_RESERVESIZE=1025 ERROR_KEY=1281 ERROR_UNABLE=1537
        INTERNAL=2 PERM=3 ABORT=4 ABORT_ROLLBACK=516 BUSY=5 BUSY_RECOVERY=261 BUSY_SNAPSHOT=517
        BUSY_TIMEOUT=773 LOCKED=6 LOCKED_SHAREDCACHE=262 LOCKED_VTAB=518 NOMEM=7 READONLY=8
        READONLY_RECOVERY=264 READONLY_CANTLOCK=520 READONLY_ROLLBACK=776 READONLY_DBMOVED=1032
        READONLY_CANTINIT=1288 READONLY_DIRECTORY=1544 INTERRUPT=9 IOERR=10 IOERR_READ=266
        IOERR_SHORT_READ=522 IOERR_WRITE=778 IOERR_FSYNC=1034 IOERR_DIR_FSYNC=1290
        IOERR_TRUNCATE=1546 IOERR_FSTAT=1802 IOERR_UNLOCK=2058 IOERR_RDLOCK=2314 IOERR_DELETE=2570
        IOERR_BLOCKED=2826 IOERR_NOMEM=3082 IOERR_ACCESS=3338 IOERR_CHECKRESERVEDLOCK=3594
        IOERR_LOCK=3850 IOERR_CLOSE=4106 IOERR_DIR_CLOSE=4362 IOERR_SHMOPEN=4618
        IOERR_SHMSIZE=4874 IOERR_SHMLOCK=5130 IOERR_SHMMAP=5386 IOERR_SEEK=5642
        IOERR_DELETE_NOENT=5898 IOERR_MMAP=6154 IOERR_GETTEMPPATH=6410 IOERR_CONVPATH=6666
        IOERR_VNODE=6922 IOERR_AUTH=7178 IOERR_BEGIN_ATOMIC=7434 IOERR_COMMIT_ATOMIC=7690
        IOERR_ROLLBACK_ATOMIC=7946 IOERR_DATA=8202 IOERR_CORRUPTFS=8458 IOERR_IN_PAGE=8714
        IOERR_BADKEY=8970 IOERR_CODEC=9226 CORRUPT=11 CORRUPT_VTAB=267 CORRUPT_SEQUENCE=523
        CORRUPT_INDEX=779 NOTFOUND=12 FULL=13 CANTOPEN=14 CANTOPEN_NOTEMPDIR=270
        CANTOPEN_ISDIR=526 CANTOPEN_FULLPATH=782 CANTOPEN_CONVPATH=1038 CANTOPEN_DIRTYWAL=1294
        CANTOPEN_SYMLINK=1550 PROTOCOL=15 EMPTY=16 SCHEMA=17 TOOBIG=18 CONSTRAINT=19
        CONSTRAINT_CHECK=275 CONSTRAINT_COMMITHOOK=531 CONSTRAINT_FOREIGNKEY=787
        CONSTRAINT_FUNCTION=1043 CONSTRAINT_NOTNULL=1299 CONSTRAINT_PRIMARYKEY=1555
        CONSTRAINT_TRIGGER=1811 CONSTRAINT_UNIQUE=2067 CONSTRAINT_VTAB=2323 CONSTRAINT_ROWID=2579
        CONSTRAINT_PINNED=2835 CONSTRAINT_DATATYPE=3091 MISMATCH=20 MISUSE=21 NOLFS=22 AUTH=23
        AUTH_USER=279 FORMAT=24 RANGE=25 NOTADB=26 NOTICE=27 NOTICE_RECOVER_WAL=283
        NOTICE_RECOVER_ROLLBACK=539 NOTICE_RBU=795 WARNING=28 WARNING_AUTOINDEX=284 ROW=100
        DONE=101
    ";
    /// What passes by itself.
    const TRANSIENT: &str = "BUSY BUSY_RECOVERY BUSY_SNAPSHOT BUSY_TIMEOUT \
        LOCKED LOCKED_SHAREDCACHE LOCKED_VTAB FULL";

    fn codes() -> impl Iterator<Item = (&'static str, i32)> {
        CODES.split_ascii_whitespace().map(|word| {
            let (name, code) = word.split_once('=').unwrap();
            (name, code.parse().unwrap())
        })
    }

    #[test]
    fn every_result_code_is_of_the_class_that_the_closed_list_gives_it() {
        let mut wrong = String::new();
        for (name, code) in codes() {
            let expected = match TRANSIENT.split_ascii_whitespace().any(|listed| listed == name) {
                true => FaultClass::Transient,
                false => FaultClass::Fatal,
            };
            let found = class_of(code);
            if expected != found {
                wrong.push_str(&format!("\n{name:24}{code:<8}{expected:<12?}{found:?}"));
            }
        }
        assert!(wrong.is_empty(), "\n{:24}{:8}{:12}found{wrong}", "fault", "code", "expected");
        assert_eq!(codes().filter(|(_, code)| class_of(*code) == FaultClass::Transient).count(), 8);
    }

    #[test]
    fn a_code_that_a_later_engine_adds_goes_with_its_primary_code() {
        for code in 0..=0xffff {
            let expected = match code & 0xff {
                5 | 6 | 13 => FaultClass::Transient,
                _ => FaultClass::Fatal,
            };
            assert_eq!(class_of(code), expected, "{code}");
        }
    }

    #[test]
    fn the_numbers_walked_are_the_engines_own() {
        let walked = |name| codes().find(|(found, _)| *found == name).map(|(_, code)| code);
        for (name, code) in [
            ("BUSY_SNAPSHOT", ffi::SQLITE_BUSY_SNAPSHOT),
            ("LOCKED_SHAREDCACHE", ffi::SQLITE_LOCKED_SHAREDCACHE),
            ("FULL", ffi::SQLITE_FULL),
            ("IOERR_SHMOPEN", ffi::SQLITE_IOERR_SHMOPEN),
            ("CANTOPEN_SYMLINK", ffi::SQLITE_CANTOPEN_SYMLINK),
            ("CORRUPT_INDEX", ffi::SQLITE_CORRUPT_INDEX),
            ("READONLY_DIRECTORY", ffi::SQLITE_READONLY_DIRECTORY),
            ("CONSTRAINT_DATATYPE", ffi::SQLITE_CONSTRAINT_DATATYPE),
            ("PROTOCOL", ffi::SQLITE_PROTOCOL),
            ("NOTADB", ffi::SQLITE_NOTADB),
        ] {
            assert_eq!(walked(name), Some(code), "{name}");
        }
    }

    #[test]
    fn the_table_of_the_documentation_holds_the_closed_list() {
        let mut lines = include_str!("mod.rs").lines();
        let row = lines.find(|line| line.starts_with("//! | Transient")).unwrap();
        let quoted: Vec<_> = row.split('`').skip(1).step_by(2).collect();
        let listed: Vec<_> =
            TRANSIENT.split_ascii_whitespace().map(|name| format!("SQLITE_{name}")).collect();
        assert_eq!(quoted, listed);
    }

    #[test]
    fn a_fault_of_our_own_or_of_the_rust_side_is_fatal() {
        let ours = StoreError::from(SqliteFault::SessionLost);
        assert_eq!(classify(&ours, Some(&Classifier)), FaultClass::Fatal);
        let rust = StoreError::from(rusqlite::Error::QueryReturnedNoRows);
        assert_eq!(classify(&rust, Some(&Classifier)), FaultClass::Fatal);
        assert_eq!(rust.code(), None);
    }

    #[test]
    fn the_code_is_told_by_name_and_number() {
        let error =
            |code| StoreError::from(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
        assert_eq!(error(517).code(), Some("SQLITE_BUSY_SNAPSHOT, 517"));
        assert_eq!(error(4618).code(), Some("SQLITE_IOERR, 4618"));
    }
}
