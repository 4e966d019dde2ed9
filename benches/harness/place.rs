//! Where jobs are kept: the kinds of stores, and a fresh one of a kind.

use super::args::Args;
use super::run::Pace;
use super::{raw_postgres, raw_sqlite};
use crate::support::database::Database;
use backwave::store::sqlite::Synchronous;
use backwave::store::{HistoryPolicy, Session, Store};
use backwave::{MemoryStore, PostgresStore, SqliteStore};
use std::sync::Arc;
use tempfile::TempDir;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    Memory,
    Sqlite(Synchronous),
    Postgres,
}

/// The places that were asked for. Postgres needs a server.
pub(crate) fn chosen(args: &Args) -> Vec<Place> {
    let mut places = Vec::new();
    if args.wants("memory") {
        places.push(Place::Memory);
    }
    if args.wants("sqlite") {
        places.extend([Place::Sqlite(Synchronous::Full), Place::Sqlite(Synchronous::Normal)]);
    }
    if args.wants("postgres") {
        if std::env::var_os("BACKWAVE_TEST_POSTGRES_URL").is_some() {
            places.push(Place::Postgres);
        } else {
            println!(
                "Postgres is left out, for want of a server. With one: \
                 tests/run.sh --server-only --durable -- cargo bench --all-features\n"
            );
        }
    }
    places
}

impl Place {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite(Synchronous::Normal) => "sqlite, NORMAL",
            Self::Sqlite(_) => "sqlite, FULL",
            Self::Postgres => "postgres",
        }
    }

    /// What the figures hang on, beside the machine.
    pub(crate) fn settings(self) -> String {
        match self {
            Self::Memory => "nothing is durable".to_owned(),
            Self::Sqlite(_) => {
                format!("SQLite {}, WAL, in {}", rusqlite::version(), env!("CARGO_TARGET_TMPDIR"))
            }
            Self::Postgres => raw_postgres::settings(),
        }
    }

    /// A new, empty store.
    pub(crate) fn open(self) -> Opened {
        self.open_keeping(HistoryPolicy::Off)
    }

    /// The same, which keeps so much of what becomes of jobs.
    pub(crate) fn open_keeping(self, history: HistoryPolicy) -> Opened {
        match self {
            Self::Memory => {
                let store = Arc::new(MemoryStore::new().with_history(history));
                Opened { store, home: Home::Memory }
            }
            Self::Sqlite(synchronous) => {
                let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
                let path = folder.path().join("jobs.db");
                let store = SqliteStore::builder(&path).synchronous(synchronous).history(history);
                let store = Arc::new(store.open().expect("the file opens"));
                Opened { store, home: Home::Sqlite { folder, synchronous } }
            }
            Self::Postgres => {
                let database = Database::create();
                let store = PostgresStore::builder(database.config()).history(history);
                let store = Arc::new(store.open().expect("the server answers"));
                Opened { store, home: Home::Postgres(Box::new(database)) }
            }
        }
    }
}

/// A store, and what goes with it in the end.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    home: Home,
}

enum Home {
    Memory,
    Sqlite { folder: TempDir, synchronous: Synchronous },
    Postgres(Box<Database>),
}

impl Opened {
    pub(crate) fn session(&self) -> Box<dyn Session> {
        self.store.open_session().expect("the store answers")
    }

    /// Commits so far, where somebody else counts them. Nobody may be connected any more.
    pub(crate) fn commits(&mut self) -> Option<i64> {
        match &mut self.home {
            Home::Postgres(database) => Some(database.commits()),
            _ => None,
        }
    }

    /// How fast plain SQL adds jobs in transactions of `batch`.
    pub(crate) fn raw_enqueue(&self, jobs: usize, batch: usize) -> Option<Pace> {
        match &self.home {
            Home::Memory => None,
            Home::Sqlite { folder, synchronous } => {
                Some(raw_sqlite::enqueue(folder.path(), *synchronous, jobs, batch))
            }
            Home::Postgres(database) => Some(raw_postgres::enqueue(database, jobs, batch)),
        }
    }

    /// How fast plain SQL takes and settles all the jobs there are, in batches.
    pub(crate) fn raw_drain(&self, jobs: usize, batch: usize) -> Option<Pace> {
        match &self.home {
            Home::Memory => None,
            Home::Sqlite { folder, synchronous } => {
                Some(raw_sqlite::drain(folder.path(), *synchronous, jobs, batch))
            }
            Home::Postgres(database) => Some(raw_postgres::drain(database, jobs, batch)),
        }
    }
}
