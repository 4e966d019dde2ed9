//! The database an example works on, and its jobs as the public views show them.

use backwave::rusqlite;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub enum Database {
    Sqlite(PathBuf),
    #[cfg(feature = "postgres")]
    Postgres(server::Database),
}

/// What is looked at of a job.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    pub state: String,
    pub attempt: i32,
    pub failures: i32,
    pub finished_at: Option<String>,
    pub output: Option<String>,
}

impl Database {
    /// A file in `folder`.
    pub fn sqlite(folder: &Path) -> Self {
        Self::Sqlite(folder.join("jobs.db"))
    }

    /// A database of its own on the shared server.
    #[cfg(feature = "postgres")]
    pub fn postgres() -> Self {
        Self::Postgres(server::Database::create())
    }

    /// How an example is told of it.
    pub fn args(&self) -> [OsString; 2] {
        match self {
            Self::Sqlite(path) => ["--db".into(), path.into()],
            #[cfg(feature = "postgres")]
            Self::Postgres(database) => ["--postgres".into(), database.url().into()],
        }
    }

    /// All jobs, by id; of a process that has ended, nothing is under way any more.
    pub fn rows(&self) -> BTreeMap<String, Row> {
        match self {
            Self::Sqlite(path) => sqlite_rows(path).expect("the file can be read"),
            #[cfg(feature = "postgres")]
            Self::Postgres(database) => database.rows().expect("the server answers"),
        }
    }
}

fn sqlite_rows(path: &Path) -> rusqlite::Result<BTreeMap<String, Row>> {
    let db = rusqlite::Connection::open(path)?;
    let mut statement = db.prepare(
        "SELECT id, state, attempt, failures, finished_at, output FROM backwave_jobs_v1",
    )?;
    let rows = statement.query_map([], |row| {
        let state = row.get(1)?;
        let (attempt, failures) = (row.get(2)?, row.get(3)?);
        let (finished_at, output) = (row.get(4)?, row.get(5)?);
        Ok((row.get(0)?, Row { state, attempt, failures, finished_at, output }))
    })?;
    rows.collect()
}

#[cfg(feature = "postgres")]
mod server {
    use super::Row;
    use crate::support::postgres::{connect, url};
    use backwave::postgres::{self, Client, Error, NoTls};
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A database of its own on the shared server, dropped at the end.
    pub struct Database(String);

    impl Database {
        pub(super) fn create() -> Self {
            static NUMBER: AtomicU32 = AtomicU32::new(0);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("backwave_examples_{}_{number}", std::process::id());
            let create = format!("CREATE DATABASE {name}");
            connect().batch_execute(&create).expect("a database can be made");
            Self(name)
        }

        pub(super) fn url(&self) -> String {
            let url = url();
            let (server, _) = url.rsplit_once('/').expect("the URL ends with a database");
            format!("{server}/{}", self.0)
        }

        pub(super) fn rows(&self) -> Result<BTreeMap<String, Row>, Error> {
            let mut client = Client::connect(&self.url(), NoTls)?;
            wait_until_alone(&mut client)?;
            let rows = client.query(
                "SELECT id::text, state, attempt, failures, finished_at::text, output::text \
                   FROM backwave.jobs_v1",
                &[],
            )?;
            let row = |row: &postgres::Row| {
                let (state, attempt, failures) = (row.get(1), row.get(2), row.get(3));
                (
                    row.get(0),
                    Row { state, attempt, failures, finished_at: row.get(4), output: row.get(5) },
                )
            };
            Ok(rows.iter().map(row).collect())
        }
    }

    /// What a killed process had sent is still carried out by the server, which notices only then that
    /// nobody waits for the answer. A question asked before that would see half of it.
    fn wait_until_alone(client: &mut Client) -> Result<(), Error> {
        let others = "SELECT count(*) FROM pg_stat_activity \
                       WHERE datname = current_database() AND pid <> pg_backend_pid() \
                         AND backend_type = 'client backend'";
        while client.query_one(others, &[])?.get::<_, i64>(0) > 0 {
            std::thread::yield_now();
        }
        Ok(())
    }

    impl Drop for Database {
        fn drop(&mut self) {
            // The server ends with the run in any case; a panic here would hide the test's own.
            if let Ok(mut client) = Client::connect(&url(), NoTls) {
                let _ = client.batch_execute(&format!("DROP DATABASE {} WITH (FORCE)", self.0));
            }
        }
    }
}
