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
/// Found behind a [`StoreError`] with [`StoreError::downcast_ref`]. None of them passes by itself.
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
    /// A later release of this crate has changed the schema beyond what this one can read.
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

    #[test]
    fn only_locks_and_a_full_disk_pass_by_themselves() {
        for code in [5, 261, 517, 773, 6, 262, 518, 13] {
            assert_eq!(class_of(code), FaultClass::Transient, "{code}");
        }
        for code in [1, 3, 4, 7, 8, 1032, 9, 10, 266, 778, 11, 14, 15, 17, 18, 19, 21, 23, 26, 99] {
            assert_eq!(class_of(code), FaultClass::Fatal, "{code}");
        }
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
