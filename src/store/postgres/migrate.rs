//! The schema: made and brought up to date by whoever comes first, under a lock of the database.
//!
//! The lock is taken before anybody looks, so that a dozen openers at once all succeed. The version row
//! tells `version`, the last migration applied, and `min_reader`, the oldest code that may use the schema:
//! a newer schema is fine as long as it still admits this release.

use super::error::PostgresOpenError;
use super::fault::{fault, is_lock_timeout, is_privilege};
use super::schema::{Schema, quote};
use crate::invariant::{InvariantTrigger, halt};
use crate::store::StoreError;
use ::postgres::{Client, IsolationLevel, Transaction};
use std::time::Duration;

/// The version of the schema that this release makes.
pub(super) const VERSION: i32 = 4;
/// The oldest server whose SQL has what the functions use (`gen_random_uuid` without an extension).
const SERVER_VERSION_MIN: i32 = 130_000;
/// A waiting exclusive lock makes every claim queue behind it, so a migration rather gives up and comes
/// back.
const LOCK_TIMEOUT_MS: u32 = 3000;
const TRIES: u32 = 10;

/// What the migration of the schema `$1` is locked by.
const MIGRATION_KEY: &str = "hashtextextended('backwave migration ' || $1, 0)";

/// Each with its number; the texts of one are applied in one transaction, in order.
pub(super) const MIGRATIONS: [(i32, &[&str]); 4] = [
    (
        1,
        &[
            include_str!("migrations/0001_tables.sql"),
            include_str!("migrations/0001_claim.sql"),
            include_str!("migrations/0001_report.sql"),
            include_str!("migrations/0001_lease.sql"),
            include_str!("migrations/0001_operations.sql"),
            include_str!("migrations/0001_enqueue.sql"),
            include_str!("migrations/0001_views.sql"),
            include_str!("migrations/0001_version.sql"),
        ],
    ),
    (
        2,
        &[
            include_str!("migrations/0002_tables.sql"),
            include_str!("migrations/0002_latch.sql"),
            include_str!("migrations/0002_claim.sql"),
            include_str!("migrations/0002_report.sql"),
            include_str!("migrations/0002_operations.sql"),
            include_str!("migrations/0002_upkeep.sql"),
            include_str!("migrations/0002_enqueue.sql"),
            include_str!("migrations/0002_guard.sql"),
            include_str!("migrations/0002_views.sql"),
            include_str!("migrations/0002_version.sql"),
        ],
    ),
    (
        3,
        &[
            include_str!("migrations/0003_schedules.sql"),
            include_str!("migrations/0003_views.sql"),
            include_str!("migrations/0003_version.sql"),
        ],
    ),
    (
        4,
        &[
            include_str!("migrations/0004_tables.sql"),
            include_str!("migrations/0004_observe.sql"),
            include_str!("migrations/0004_resolve.sql"),
            include_str!("migrations/0004_version.sql"),
        ],
    ),
];

/// Everything that an administrator must run to make the schema by hand.
pub(super) fn ddl(schema: &Schema) -> String {
    format!("CREATE SCHEMA IF NOT EXISTS {};\n\n{}", schema.quoted(), ddl_after(schema, 0, VERSION))
}

/// The migrations after version `from` up to `to`.
pub(super) fn ddl_after(schema: &Schema, from: i32, to: i32) -> String {
    let due = MIGRATIONS.iter().filter(|(version, _)| *version > from && *version <= to);
    due.flat_map(|(_, parts)| *parts).map(|part| schema.fill(part) + "\n").collect()
}

/// Refuses a server that cannot be trusted with jobs.
pub(super) fn check_server(client: &mut Client) -> Result<(), StoreError> {
    let row = client
        .query_one(
            "SELECT current_setting('server_encoding'), current_setting('server_version_num')::int",
            &[],
        )
        .map_err(fault)?;
    let encoding: String = row.try_get(0).map_err(fault)?;
    let version: i32 = row.try_get(1).map_err(fault)?;
    if version < SERVER_VERSION_MIN {
        let version_min = SERVER_VERSION_MIN;
        return Err(StoreError::new(PostgresOpenError::ServerVersion { version, version_min }));
    }
    if encoding != "UTF8" {
        return Err(StoreError::new(PostgresOpenError::Encoding { encoding }));
    }
    Ok(())
}

/// What the version table says: how many rows it has, and what the latest of them tells.
#[derive(Debug, Clone, Copy)]
pub(super) struct Versions {
    pub(super) rows: i64,
    pub(super) version: Option<i32>,
    pub(super) min_reader: Option<i32>,
}

/// Reads [`Versions`], with the schema left open.
pub(super) const VERSIONS: &str =
    "SELECT count(*), max(version), max(min_reader) FROM {schema}.schema_version";

/// Judges the version row of an existing schema.
pub(super) fn check_versions(versions: Versions) -> Result<i32, StoreError> {
    match versions {
        Versions { rows: 2.., .. } => {
            Err(StoreError::new(PostgresOpenError::VersionRows { rows: versions.rows }))
        }
        Versions { min_reader: Some(min_reader), .. } if min_reader > VERSION => {
            Err(schema_too_new(min_reader))
        }
        Versions { version: Some(version), .. } => Ok(version),
        // The table and its row are made in one transaction.
        Versions { version: None, .. } => Err(halt(
            InvariantTrigger::GuaranteedRowAbsent,
            "the row with the schema's version is gone",
        )
        .into()),
    }
}

/// A newer release has taken the schema over. A group that meets this while it runs gives up its session and
/// asks again: it claims nothing more, and shows why, until its own program is replaced. Who opens a store
/// gets the error itself.
pub(super) fn schema_too_new(min_reader: i32) -> StoreError {
    StoreError::transient(PostgresOpenError::SchemaTooNew { min_reader, known: VERSION })
        .with_session_lost()
        .with_refused_whole()
}

/// Brings the schema up to date; tells from which version to which, if anything was to do.
pub(super) fn migrate(
    client: &mut Client,
    schema: &Schema,
) -> Result<Option<(i32, i32)>, StoreError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match try_migrate(client, schema) {
            Err(Failure::Sql(error)) if is_lock_timeout(&error) && tries < TRIES => {
                std::thread::sleep(Duration::from_millis(50) * tries);
            }
            Err(Failure::Sql(error)) if is_privilege(&error) => {
                return Err(missing_privilege(client, schema, &error));
            }
            Err(Failure::Sql(error)) => return Err(fault(error)),
            Err(Failure::Refused(error)) => return Err(error),
            Ok(migrated) => return Ok(migrated),
        }
    }
}

pub(super) enum Failure {
    Sql(::postgres::Error),
    Refused(StoreError),
}

impl From<::postgres::Error> for Failure {
    fn from(error: ::postgres::Error) -> Self {
        Self::Sql(error)
    }
}

fn try_migrate(client: &mut Client, schema: &Schema) -> Result<Option<(i32, i32)>, Failure> {
    // A look without the lock first: once the schema stands, openers do not wait for each other.
    if applied(client, schema)?.is_some_and(|version| version >= VERSION) {
        return Ok(None);
    }
    let mut tx =
        client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start()?;
    tx.batch_execute(&format!(
        "SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}; SET LOCAL statement_timeout = 0; \
         SET LOCAL idle_in_transaction_session_timeout = 0"
    ))?;
    tx.execute(&format!("SELECT pg_advisory_xact_lock({MIGRATION_KEY})"), &[&schema.name()])?;
    check_lock(&mut tx, schema)?;
    let from = applied(&mut tx, schema)?.unwrap_or(0);
    if from >= VERSION {
        return Ok(None);
    }
    apply(&mut tx, schema, from)?;
    tx.commit()?;
    Ok(Some((from, VERSION)))
}

/// Looks whether this session holds the migration's lock: taking it answers nothing.
pub(super) fn check_lock(tx: &mut Transaction<'_>, schema: &Schema) -> Result<(), Failure> {
    let text = format!(
        "SELECT EXISTS (SELECT 1 FROM pg_locks AS l CROSS JOIN (SELECT {MIGRATION_KEY}) AS k (key) \
         WHERE l.locktype = 'advisory' AND l.pid = pg_backend_pid() AND l.granted \
         AND l.mode = 'ExclusiveLock' AND l.objsubid = 1 \
         AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()) \
         AND (l.classid::bigint << 32 | l.objid::bigint) = k.key)"
    );
    if tx.query_one(&text, &[&schema.name()])?.try_get(0)? {
        return Ok(());
    }
    let message = "the lock of the migration was taken and is not held";
    Err(Failure::Refused(halt(InvariantTrigger::ApplicationLockNotAcquired, message).into()))
}

fn apply(tx: &mut Transaction<'_>, schema: &Schema, from: i32) -> Result<(), Failure> {
    if !exists(tx, schema)?.0 {
        tx.batch_execute(&format!("CREATE SCHEMA {}", schema.quoted()))?;
    }
    for (version, parts) in MIGRATIONS {
        if version > from {
            for part in parts {
                tx.batch_execute(&schema.fill(part))?;
            }
        }
    }
    Ok(())
}

/// The version that stands in the database, if any does.
fn applied(
    client: &mut impl ::postgres::GenericClient,
    schema: &Schema,
) -> Result<Option<i32>, Failure> {
    if !exists(client, schema)?.1 {
        return Ok(None);
    }
    let row = client.query_one(&schema.fill(VERSIONS), &[])?;
    let versions =
        Versions { rows: row.try_get(0)?, version: row.try_get(1)?, min_reader: row.try_get(2)? };
    check_versions(versions).map(Some).map_err(Failure::Refused)
}

/// Whether the schema exists, and whether its version table does.
fn exists(
    client: &mut impl ::postgres::GenericClient,
    schema: &Schema,
) -> Result<(bool, bool), ::postgres::Error> {
    let row = client.query_one(
        "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1), \
                EXISTS (SELECT 1 FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
                        WHERE n.nspname = $1 AND c.relname = 'schema_version')",
        &[&schema.name()],
    )?;
    Ok((row.try_get(0)?, row.try_get(1)?))
}

/// Says what an administrator must run, as far as the catalogue lets us tell.
fn missing_privilege(
    client: &mut Client,
    schema: &Schema,
    error: &::postgres::Error,
) -> StoreError {
    let role = client
        .query_one("SELECT current_user::text", &[])
        .and_then(|row| row.try_get::<_, String>(0))
        .unwrap_or_else(|_| "the role".to_owned());
    let (role, name) = (quote(&role), schema.quoted());
    let grant = format!(
        "GRANT USAGE ON SCHEMA {name} TO {role}; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {name} TO {role};"
    );
    let statement = match exists(client, schema) {
        Ok((false, _)) => format!("CREATE SCHEMA {name} AUTHORIZATION {role};"),
        Ok((true, false)) => format!("GRANT USAGE, CREATE ON SCHEMA {name} TO {role};"),
        _ => match applied(client, schema) {
            // It belongs to somebody else, who must bring it up to date.
            Ok(Some(from)) if from < VERSION => {
                format!("BEGIN;\n{}{grant}\nCOMMIT;", ddl_after(schema, from, VERSION))
            }
            _ => grant,
        },
    };
    let message = error.as_db_error().map_or_else(String::new, |db| db.message().to_owned());
    StoreError::new(PostgresOpenError::Privilege { message, statement }).with_code("42501")
}
