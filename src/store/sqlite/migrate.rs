//! The schema and its history: numbered steps, each applied once, in a transaction of its own.
//!
//! The version row says two things: at which version the schema is, and from which version on a
//! program can read it. A step that only adds leaves `min_reader` as it is, so that the release before
//! keeps working beside this one; a step that stores something new in an old place raises it.

use super::fault::SqliteFault;
use crate::invariant::InvariantTrigger;
use crate::store::StoreError;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use std::path::Path;

/// A step from the version before to its own.
struct Step {
    version: u32,
    /// The oldest version of this crate's schema whose readers understand what this step makes.
    min_reader: u32,
    sql: &'static str,
}

const STEPS: &[Step] = &[
    Step { version: 1, min_reader: 1, sql: include_str!("migrations/0001_jobs.sql") },
    Step { version: 2, min_reader: 2, sql: include_str!("migrations/0002_dependents.sql") },
    Step { version: 3, min_reader: 2, sql: include_str!("migrations/0003_schedules.sql") },
    Step { version: 4, min_reader: 4, sql: include_str!("migrations/0004_observers.sql") },
];

/// The latest version known here.
pub(super) const LATEST: u32 = STEPS[STEPS.len() - 1].version;

/// What the version row says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    version: u32,
    min_reader: u32,
}

/// From which version to which a file was brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Migrated {
    pub(super) from: u32,
    pub(super) to: u32,
}

/// Brings the file to the latest version known here. Whoever comes first does it; the others wait for
/// the write lock, look again under it, and find it done.
///
/// # Errors
/// [`SqliteFault::SchemaTooNew`], and faults.
pub(super) fn migrate(conn: &mut Connection, path: &Path) -> Result<Option<Migrated>, StoreError> {
    let mut migrated: Option<Migrated> = None;
    while require_readable(conn, path)? < LATEST {
        let Some((from, to)) = take_step(conn, path)? else {
            continue;
        };
        let from = migrated.map_or(from, |migrated| migrated.from);
        migrated = Some(Migrated { from, to });
    }
    Ok(migrated)
}

/// Refuses a file whose schema this code cannot read; its version otherwise, 0 when it has none.
///
/// # Errors
/// [`SqliteFault::SchemaTooNew`], and faults.
pub(super) fn require_readable(conn: &Connection, path: &Path) -> Result<u32, StoreError> {
    let Version { version, min_reader } = read_version(conn, path)?;
    if min_reader > LATEST {
        let path = path.to_owned();
        let fault = SqliteFault::SchemaTooNew { path, version, min_reader, known: LATEST };
        // Whoever goes on opens a session anew, and hears it again until the program is a later one.
        return Err(StoreError::from(fault).with_session_lost().with_refused_whole());
    }
    Ok(version)
}

/// Whether what the version row says while a session is open is known here. A row that is gone says nothing,
/// and is found out by whoever opens the next session.
pub(super) fn is_readable(min_reader: Option<u32>) -> bool {
    min_reader.is_none_or(|min_reader| min_reader <= LATEST)
}

/// Applies the next step, unless somebody else has meanwhile.
fn take_step(conn: &mut Connection, path: &Path) -> Result<Option<(u32, u32)>, StoreError> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let from = require_readable(&tx, path)?;
    let Some(step) = STEPS.iter().find(|step| step.version > from) else {
        return Ok(None);
    };
    tx.execute_batch(
        "CREATE TABLE IF NOT EXISTS main.backwave_meta ( \
             one        INTEGER PRIMARY KEY CHECK (one = 1), \
             version    INTEGER NOT NULL, \
             min_reader INTEGER NOT NULL) STRICT",
    )?;
    tx.execute_batch(step.sql)?;
    tx.execute(
        "INSERT INTO main.backwave_meta (one, version, min_reader) VALUES (1, ?1, ?2) \
         ON CONFLICT (one) DO UPDATE SET version = excluded.version, min_reader = excluded.min_reader",
        params![step.version, step.min_reader],
    )?;
    tx.commit()?;
    Ok(Some((from, step.version)))
}

fn read_version(conn: &Connection, path: &Path) -> Result<Version, StoreError> {
    let table = conn
        .query_row(
            "SELECT 1 FROM main.sqlite_schema WHERE type = 'table' AND name = 'backwave_meta'",
            [],
            |_| Ok(()),
        )
        .optional()?;
    if table.is_none() {
        return Ok(Version { version: 0, min_reader: 0 });
    }
    // The table and its row are made in one transaction.
    let (rows, version, min_reader): (i64, Option<u32>, Option<u32>) = conn.query_row(
        "SELECT count(*), max(version), max(min_reader) FROM main.backwave_meta",
        [],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    if rows > 1 {
        return Err(SqliteFault::VersionRows { path: path.to_owned(), rows }.into());
    }
    match (version, min_reader) {
        (Some(version), Some(min_reader)) => Ok(Version { version, min_reader }),
        _ => Err(StoreError::found(
            InvariantTrigger::GuaranteedRowAbsent,
            "the row with the schema's version is gone",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_numbered_without_a_gap_and_never_shut_their_own_reader_out() {
        for (index, step) in STEPS.iter().enumerate() {
            assert_eq!(step.version as usize, index + 1);
            assert!(step.min_reader <= step.version);
        }
    }

    #[test]
    fn released_steps_are_frozen() {
        use sha2::Digest;
        // As many as are released; the others are still written at.
        let released = ["76d15e8a8bb52113"];
        let hashes: Vec<String> = STEPS
            .iter()
            .take(released.len())
            .map(|step| {
                let digest = sha2::Sha256::digest(step.sql.as_bytes());
                digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
            })
            .collect();
        assert_eq!(hashes, released);
    }
}
