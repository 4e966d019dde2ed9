//! Stores with a past, made by plain SQL: by the product itself it would take hours.

use crate::support::database::Database;
use backwave::store::{Session, Store};
use backwave::{JobId, PostgresStore, SqliteStore};
use std::sync::Arc;
use tempfile::TempDir;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Sqlite,
    Postgres,
}

impl Place {
    pub(crate) fn named(name: &str) -> Result<Self, String> {
        match name {
            "sqlite" => Ok(Self::Sqlite),
            "postgres" => Ok(Self::Postgres),
            other => Err(format!("{other:?} is no store: sqlite or postgres")),
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }
}

/// A store of its own, and where it lives.
pub(crate) struct Home {
    store: Arc<dyn Store>,
    data: Data,
}

enum Data {
    Sqlite(TempDir),
    Postgres(Box<Database>),
}

impl Home {
    pub(crate) fn new(place: Place) -> Self {
        match place {
            Place::Sqlite => {
                let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
                let store = SqliteStore::open(folder.path().join("jobs.db"));
                Self { store: Arc::new(store.expect("the file opens")), data: Data::Sqlite(folder) }
            }
            Place::Postgres => {
                let database = Database::create();
                let store = PostgresStore::builder(database.config()).open();
                let store = Arc::new(store.expect("the server answers"));
                Self { store, data: Data::Postgres(Box::new(database)) }
            }
        }
    }

    pub(crate) fn session(&self) -> Box<dyn Session> {
        self.store.open_session().expect("the store answers")
    }

    /// Finished jobs of the last six days, one in ten thousand of them Dead-Lettered, and jobs due in an hour.
    pub(crate) fn fill(&self, finished: u64, scheduled: u64) {
        match &self.data {
            Data::Sqlite(folder) => fill_sqlite(folder, finished, scheduled),
            Data::Postgres(database) => fill_postgres(database, finished, scheduled),
        }
    }
}

const DAY_US: i64 = 86_400_000_000;

fn fill_sqlite(folder: &TempDir, finished: u64, scheduled: u64) {
    let mut db = rusqlite::Connection::open(folder.path().join("jobs.db")).expect("it opens");
    let now = backwave::Timestamp::from(std::time::SystemTime::now()).as_micros();
    let tx = db.transaction().expect("begun");
    {
        let mut insert = tx
            .prepare(
                "INSERT INTO backwave_jobs (id, queue, wire_name, version, state, due_at, created_at, \
                     finished_at, attempt, settled_attempt, settled_by, payload_bytes, payload) \
                 VALUES (?1, 'default', 'bench', 1, ?2, ?3, ?3, ?4, ?5, ?6, ?7, 2, x'7b7d')",
            )
            .expect("prepared");
        for number in 0..finished {
            let at = now - 6 * DAY_US + (6 * DAY_US / finished as i64) * number as i64;
            let state = if number % 10_000 == 0 { 4 } else { 3 };
            let row = (JobId::new().to_bytes(), state, at, Some(at), 1, Some(1), 1);
            insert.execute(row).expect("a finished job");
        }
        for number in 0..scheduled {
            let at = now + DAY_US / 24 + number as i64;
            let row = (JobId::new().to_bytes(), 0, at, None::<i64>, 0, None::<i64>, 0);
            insert.execute(row).expect("a scheduled job");
        }
    }
    tx.execute_batch(
        "INSERT INTO backwave_ended_counts (queue, state, jobs) \
         SELECT queue, state, count(*) FROM backwave_jobs WHERE state > 2 GROUP BY queue, state",
    )
    .expect("counted");
    tx.commit().expect("committed");
    db.execute_batch("ANALYZE").expect("analysed");
}

fn fill_postgres(database: &Database, finished: u64, scheduled: u64) {
    let config = database.config();
    let mut db = config.connect(::postgres::NoTls).expect("the server answers");
    // Ids of the form that the product makes: the time first.
    db.batch_execute(&format!(
        "SET synchronous_commit = off;
         INSERT INTO backwave.jobs (id, queue, wire_name, version, state, due_at, created_at, finished_at, attempt,
             settled_attempt, settled_by, payload)
         SELECT encode(overlay(uuid_send(gen_random_uuid()) PLACING
                 substring(int8send((extract(epoch FROM t.at) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 'hex')::uuid,
             'default', 'bench', 1, CASE WHEN t.n % 10000 = 0 THEN 4 ELSE 3 END, t.at, t.at, t.at, 1, 1, 1, '{{}}'
         FROM (SELECT n, now() - interval '6 days' + n * (interval '6 days' / {finished}) AS at
             FROM generate_series(0, {finished} - 1) AS g (n)) AS t;
         INSERT INTO backwave.jobs (id, queue, wire_name, version, state, due_at, created_at, payload)
         SELECT gen_random_uuid(), 'default', 'bench', 1, 0, now() + interval '1 hour' + n * interval '1 microsecond',
             now(), '{{}}'
         FROM generate_series(1, {scheduled}) AS g (n);
         INSERT INTO backwave.ended_deltas (queue, state, delta)
         SELECT queue, state, count(*) FROM backwave.jobs WHERE state >= 3 GROUP BY queue, state"
    ))
    .expect("filled");
    db.batch_execute("VACUUM ANALYZE backwave.jobs").expect("analysed");
}
