//! A hand of somebody's in the tables of a store: it changes rows past every check, and makes the database
//! lie about its writes.

use super::clock::OffsetClock;
use super::postgres::{config, fresh_schema};
use super::world::World;
use ::postgres::{Config, NoTls};
use backwave::{Client, JobId, PostgresBuilder, PostgresStore, SqliteStore};
use std::any::Any;
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
    /// For what is done by the rules, before it is tampered with.
    pub client: Client,
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
    let world = World::new(store, clock, Some(Box::new(folder)));
    let client = world.client.clone();
    let hand = Hand { client, dialect: Dialect::Sqlite, schema: String::new(), execute };
    (world, hand)
}

fn postgres() -> (World, Hand) {
    let schema = fresh_schema();
    let name = schema.name().to_owned();
    postgres_at(&config(), &name, Some(Box::new(schema)))
}

/// A world in that schema of a database, and a hand in its tables.
pub fn postgres_at(
    config: &Config,
    schema: &str,
    kept: Option<Box<dyn Any + Send + Sync>>,
) -> (World, Hand) {
    let clock = OffsetClock::default();
    let store = postgres_builder(config, schema, &clock).open().expect("the server answers");
    let host = RefCell::new(config.connect(NoTls).expect("the server answers"));
    let execute = Box::new(move |sql: &str| {
        host.borrow_mut().batch_execute(sql).expect("done by hand");
    });
    let world = World::new(store, clock, kept);
    let (client, schema) = (world.client.clone(), schema.to_owned());
    let hand = Hand { client, dialect: Dialect::Postgres, schema, execute };
    hand.run("ALTER TABLE {jobs} DROP CONSTRAINT jobs_state_known, DROP CONSTRAINT jobs_end_dated");
    (world, hand)
}

/// What such a world's store is made by; another one is a process of its own, as it were.
pub fn postgres_builder(config: &Config, schema: &str, clock: &OffsetClock) -> PostgresBuilder {
    let builder = PostgresStore::builder(config.clone()).schema(schema).clock(clock.clone());
    builder.statement_timeout(Duration::from_secs(1))
}

impl Hand {
    /// Runs SQL with the names of the tables put in: `{jobs}`, `{gates}`, `{backlog}`, `{queues}`,
    /// `{versions}`, `{observers}`, and `{kept}` for one more.
    pub fn run(&self, sql: &str) {
        let places =
            ["{jobs}", "{gates}", "{backlog}", "{queues}", "{versions}", "{observers}", "{kept}"];
        let names = match self.dialect {
            Dialect::Sqlite => [
                "backwave_jobs",
                "backwave_gates",
                "backwave_latch_backlog",
                "backwave_queues",
                "backwave_meta",
                "backwave_observers",
                "kept",
            ]
            .map(str::to_owned),
            Dialect::Postgres => {
                ["jobs", "gates", "latch_backlog", "queues", "schema_version", "observers", "kept"]
                    .map(|table| format!("\"{}\".{table}", self.schema))
            }
        };
        let sql = places
            .into_iter()
            .zip(names)
            .fold(sql.to_owned(), |sql, (place, name)| sql.replace(place, &name));
        (self.execute)(&sql.replace("{schema}", &format!("\"{}\"", self.schema)));
    }

    /// Makes a row that says that the parent holds the child back.
    pub fn gate(&self, parent: JobId, child: JobId) {
        let (parent, child) = (self.id(parent), self.id(child));
        self.run(&format!("INSERT INTO {{gates}} (parent, child) VALUES ({parent}, {child})"));
    }

    /// Puts a view in the place of a table, which is `kept` meanwhile. Of SQLite only.
    pub fn show(&self, table: &str, select: &str) {
        assert_eq!(self.dialect, Dialect::Sqlite);
        self.run(&format!(
            "BEGIN IMMEDIATE; ALTER TABLE {table} RENAME TO {{kept}}; CREATE VIEW {table} AS {select}; COMMIT"
        ));
    }

    /// Puts the table back.
    pub fn put_back(&self, table: &str) {
        self.run(&format!(
            "BEGIN IMMEDIATE; DROP VIEW {table}; ALTER TABLE {{kept}} RENAME TO {table}; COMMIT"
        ));
    }

    /// Ends the hand's transaction as soon as somebody waits for what it has locked. Of Postgres only.
    pub fn commit_once_somebody_waits(&self) {
        self.run(
            "DO $$ BEGIN FOR round IN 1 .. 6000 LOOP \
                 EXIT WHEN EXISTS (SELECT 1 FROM pg_locks AS l WHERE NOT l.granted \
                     AND pg_backend_pid() = ANY (pg_blocking_pids(l.pid))); \
                 PERFORM pg_sleep(0.005); \
             END LOOP; END $$; COMMIT",
        );
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

    /// From now on, rows that match are gone once they have been updated.
    pub fn delete_after(&self, condition: &str) {
        let condition = format!("NEW.queue = 'default' AND {condition}");
        let schema = &self.schema;
        self.run(&match self.dialect {
            Dialect::Sqlite => format!(
                "CREATE TRIGGER lie AFTER UPDATE ON {{jobs}} WHEN {condition} BEGIN \
                     DELETE FROM {{jobs}} WHERE id = NEW.id; END"
            ),
            Dialect::Postgres => format!(
                "CREATE FUNCTION \"{schema}\".lie() RETURNS trigger LANGUAGE plpgsql AS \
                     $$ BEGIN DELETE FROM {{jobs}} WHERE id = NEW.id; RETURN NULL; END $$; \
                 CREATE TRIGGER lie AFTER UPDATE ON {{jobs}} FOR EACH ROW WHEN ({condition}) \
                     EXECUTE FUNCTION \"{schema}\".lie()"
            ),
        });
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

    /// From now on, what is written to cursors of observers touches no row.
    pub fn swallow_cursors(&self) {
        self.lie_of_cursors("BEFORE UPDATE", "SELECT raise(IGNORE);", "");
    }

    /// From now on, an observer's cursor is gone once it has been made.
    pub fn delete_new_cursors(&self) {
        let delete = "DELETE FROM {observers} WHERE observer = NEW.observer;";
        self.lie_of_cursors("AFTER INSERT", delete, delete);
    }

    fn lie_of_cursors(&self, when: &str, sqlite: &str, postgres: &str) {
        let schema = &self.schema;
        self.run(&match self.dialect {
            Dialect::Sqlite => {
                format!("CREATE TRIGGER lie {when} ON {{observers}} BEGIN {sqlite} END")
            }
            Dialect::Postgres => format!(
                "CREATE FUNCTION \"{schema}\".lie() RETURNS trigger LANGUAGE plpgsql AS \
                     $$ BEGIN {postgres} RETURN NULL; END $$; \
                 CREATE TRIGGER lie {when} ON {{observers}} FOR EACH ROW \
                     EXECUTE FUNCTION \"{schema}\".lie()"
            ),
        });
    }

    /// The database is honest again.
    pub fn drop_trigger(&self) {
        self.drop_trigger_on("{jobs}");
    }

    /// The same of a lie about another table.
    pub fn drop_trigger_on(&self, table: &str) {
        self.run(&match self.dialect {
            Dialect::Sqlite => "DROP TRIGGER lie".to_owned(),
            Dialect::Postgres => format!("DROP TRIGGER lie ON {table}"),
        });
    }
}
