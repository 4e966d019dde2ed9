//! A hand of somebody's in the tables of a store: it changes rows past every check, and makes the database
//! lie about its writes.

use super::clock::OffsetClock;
use super::postgres::{config, connect, fresh_schema};
use super::world::World;
use backwave::{JobId, PostgresStore, SqliteStore};
use std::cell::RefCell;
use std::time::Duration;

/// Which database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    /// A world on an empty store of it, and a hand in its tables.
    pub fn world(self) -> (World, Hand) {
        match self {
            Self::Sqlite => sqlite(),
            Self::Postgres => postgres(),
        }
    }
}

/// See the module's documentation. Only the rows of the queue `default` are touched.
pub struct Hand {
    dialect: Dialect,
    schema: String,
    execute: Box<dyn Fn(&str)>,
}

fn sqlite() -> (World, Hand) {
    let clock = OffsetClock::default();
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("jobs.db");
    let builder = SqliteStore::builder(&path).busy_timeout(Duration::from_secs(1));
    let store = builder.clock(clock.clone()).open().expect("the file opens");
    let host = rusqlite::Connection::open(&path).expect("a connection of the test's own");
    host.execute_batch("PRAGMA ignore_check_constraints = ON").expect("set");
    let execute = Box::new(move |sql: &str| host.execute_batch(sql).expect("done by hand"));
    let hand = Hand { dialect: Dialect::Sqlite, schema: String::new(), execute };
    (World::new(store, clock, Some(Box::new(folder))), hand)
}

fn postgres() -> (World, Hand) {
    let clock = OffsetClock::default();
    let schema = fresh_schema();
    let name = schema.name().to_owned();
    let builder = PostgresStore::builder(config()).schema(&name).clock(clock.clone());
    let builder = builder.statement_timeout(Duration::from_secs(1));
    let store = builder.open().expect("the server answers");
    let host = RefCell::new(connect());
    let execute = Box::new(move |sql: &str| {
        host.borrow_mut().batch_execute(sql).expect("done by hand");
    });
    let hand = Hand { dialect: Dialect::Postgres, schema: name, execute };
    hand.run("ALTER TABLE {jobs} DROP CONSTRAINT jobs_state_known, DROP CONSTRAINT jobs_end_dated");
    (World::new(store, clock, Some(Box::new(schema))), hand)
}

impl Hand {
    /// Runs SQL with the names of the tables put in: `{jobs}`, `{versions}`, and `{kept}` for one more.
    pub fn run(&self, sql: &str) {
        let names = match self.dialect {
            Dialect::Sqlite => ["backwave_jobs", "backwave_meta", "kept"].map(str::to_owned),
            Dialect::Postgres => ["jobs", "schema_version", "kept"]
                .map(|table| format!("\"{}\".{table}", self.schema)),
        };
        let sql = ["{jobs}", "{versions}", "{kept}"]
            .into_iter()
            .zip(names)
            .fold(sql.to_owned(), |sql, (place, name)| sql.replace(place, &name));
        (self.execute)(&sql);
    }

    /// Changes one job's row.
    pub fn set(&self, job: JobId, assignments: &str) {
        self.run(&format!("UPDATE {{jobs}} SET {assignments} WHERE id = {}", self.id(job)));
    }

    /// A job's id as a literal.
    pub fn id(&self, job: JobId) -> String {
        self.uuid(&job.to_string())
    }

    /// A worker that no group has.
    pub fn somebody(&self) -> String {
        self.uuid("01890000-0000-7000-8000-000000000001")
    }

    fn uuid(&self, text: &str) -> String {
        match self.dialect {
            Dialect::Sqlite => format!("x'{}'", text.replace('-', "")),
            Dialect::Postgres => format!("'{text}'"),
        }
    }

    /// An instant that is past.
    pub fn long_ago(&self) -> &'static str {
        match self.dialect {
            Dialect::Sqlite => "1",
            Dialect::Postgres => "'2001-01-01'",
        }
    }

    /// From now on, updates that match touch no row.
    pub fn swallow(&self, condition: &str) {
        self.lie(condition, "SELECT raise(IGNORE);", "RETURN NULL;");
    }

    /// From now on, updates that match fail with what nobody knows.
    pub fn fail(&self, condition: &str) {
        let unknown = "RAISE EXCEPTION 'nobody knows' USING ERRCODE = 'XX999';";
        self.lie(condition, "SELECT raise(ABORT, 'nobody knows');", unknown);
    }

    /// From now on, updates that match write something else. Of Postgres only.
    pub fn rewrite(&self, condition: &str, body: &str) {
        assert_eq!(self.dialect, Dialect::Postgres, "SQLite's triggers cannot change a new row");
        self.lie(condition, "", body);
    }

    /// From now on, a new row has this in that column.
    pub fn insert_as(&self, column: &str, value: &str) {
        let schema = &self.schema;
        self.run(&match self.dialect {
            Dialect::Sqlite => format!(
                "CREATE TRIGGER lie AFTER INSERT ON {{jobs}} WHEN NEW.queue = 'default' BEGIN \
                     UPDATE {{jobs}} SET {column} = {value} WHERE seq = NEW.seq; END"
            ),
            Dialect::Postgres => format!(
                "CREATE FUNCTION \"{schema}\".lie() RETURNS trigger LANGUAGE plpgsql AS \
                     $$ BEGIN NEW.{column} := {value}; RETURN NEW; END $$; \
                 CREATE TRIGGER lie BEFORE INSERT ON {{jobs}} FOR EACH ROW \
                     WHEN (NEW.queue = 'default') EXECUTE FUNCTION \"{schema}\".lie()"
            ),
        });
    }

    fn lie(&self, condition: &str, sqlite: &str, postgres: &str) {
        let condition = format!("OLD.queue = 'default' AND {condition}");
        let schema = &self.schema;
        self.run(&match self.dialect {
            Dialect::Sqlite => format!(
                "CREATE TRIGGER lie BEFORE UPDATE ON {{jobs}} WHEN {condition} BEGIN {sqlite} END"
            ),
            Dialect::Postgres => format!(
                "CREATE FUNCTION \"{schema}\".lie() RETURNS trigger LANGUAGE plpgsql AS \
                     $$ BEGIN {postgres} RETURN NEW; END $$; \
                 CREATE TRIGGER lie BEFORE UPDATE ON {{jobs}} FOR EACH ROW WHEN ({condition}) \
                     EXECUTE FUNCTION \"{schema}\".lie()"
            ),
        });
    }

    /// The database is honest again.
    pub fn drop_trigger(&self) {
        self.run(match self.dialect {
            Dialect::Sqlite => "DROP TRIGGER lie",
            Dialect::Postgres => "DROP TRIGGER lie ON {jobs}",
        });
    }
}
