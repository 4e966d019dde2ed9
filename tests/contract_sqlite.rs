//! The Storage Contract over a SQLite file.

use backwave::rusqlite::{Connection, Transaction, TransactionBehavior};
use backwave::store::{Reported, Store};
use backwave::testing::conformance;
use backwave::testing::conformance::{
    CallersTransaction, Ending, Fixture, StoreOptions, TransactionBody,
};
use backwave::testing::{Intercept, VirtualClock};
use backwave::{Client, EnqueueError, Enqueued, MemoryStore, NewJob, SqliteStore};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

fn fixture() -> Fixture {
    fixture_of(|store| store)
}

fn fixture_of<S: Store>(wrapped: impl Fn(SqliteStore) -> S + Send + Sync + 'static) -> Fixture {
    let clock = VirtualClock::new();
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("jobs.db");
    let open = {
        let (clock, path) = (clock.clone(), path.clone());
        move |options: &StoreOptions| {
            let builder = SqliteStore::builder(&path).clock(clock.clone());
            builder.history(options.history).open().expect("the file opens")
        }
    };
    let store = open(&StoreOptions::default());
    let open = move |options: &StoreOptions| wrapped(open(options));
    let transact = {
        let path = path.clone();
        move |body: &mut TransactionBody<'_>| {
            let mut conn = connect(&path);
            let begun = conn.transaction_with_behavior(TransactionBehavior::Immediate);
            let mut inside = Inside { store: &store, tx: begun.expect("the lock is free") };
            let ended = match body(&mut inside) {
                Ending::Commit => inside.tx.commit(),
                Ending::RollBack => inside.tx.rollback(),
            };
            ended.expect("it ends");
        }
    };
    let fixture = Fixture::new(clock, open).transactions(transact);
    fixture.crashes(move |write| crash(&path, write)).keeping(folder)
}

fn connect(path: &Path) -> Connection {
    let conn = Connection::open(path).expect("the file opens");
    conn.busy_timeout(Duration::from_secs(30)).expect("a setting");
    conn
}

struct Inside<'a> {
    store: &'a SqliteStore,
    tx: Transaction<'a>,
}

impl CallersTransaction for Inside<'_> {
    fn enqueue(&mut self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>, EnqueueError> {
        self.store.enqueue_many_in(&self.tx, jobs)
    }
}

/// Has triggers count what a transaction writes, row by row, and end it where it is to crash.
fn crash(path: &Path, write: Option<u32>) {
    let conn = connect(path);
    let names = |sql: &str| -> Vec<String> {
        let mut statement = conn.prepare(sql).expect("a query");
        let names = statement.query_map([], |row| row.get(0)).expect("rows");
        names.collect::<Result<_, _>>().expect("names")
    };
    for name in
        names("SELECT name FROM sqlite_schema WHERE type = 'trigger' AND name LIKE 'crash_%'")
    {
        conn.execute_batch(&format!("DROP TRIGGER {name}")).expect("it was there");
    }
    conn.execute_batch("DROP TABLE IF EXISTS crash").expect("a table of this test's");
    let Some(write) = write else { return };
    conn.execute_batch(&format!(
        "CREATE TABLE crash (to_go INTEGER); INSERT INTO crash VALUES ({write});"
    ))
    .expect("a table");
    for table in
        names("SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'backwave_%'")
    {
        for act in ["INSERT", "UPDATE", "DELETE"] {
            let trigger = format!(
                "CREATE TRIGGER crash_{table}_{act} BEFORE {act} ON {table} BEGIN \
                     UPDATE crash SET to_go = to_go - 1; \
                     SELECT RAISE(ROLLBACK, 'crash') FROM crash WHERE to_go <= 0; \
                 END"
            );
            conn.execute_batch(&trigger).expect("a trigger");
        }
    }
}

backwave::conformance_tests!(fixture);
backwave::transaction_conformance_tests!(fixture);
backwave::crash_conformance_tests!(fixture);

#[test]
fn a_report_in_two_commits_is_found_by_its_clause() {
    let broken = fixture_of(|store| {
        let store = Intercept::new(store);
        store.on_report(|session, rows| {
            let mut answer = session.report(&[])?;
            for row in rows {
                let one: Reported = session.report(std::slice::from_ref(row))?;
                answer.rows.extend(one.rows);
            }
            Ok(answer)
        });
        store
    });
    let clause = || conformance::run("crashes::a_report_is_whole_or_never_was", &broken);
    assert!(catch_unwind(AssertUnwindSafe(clause)).is_err());
}

/// Enqueues at once, whatever becomes of the transaction.
struct Outside(Client);

impl CallersTransaction for Outside {
    fn enqueue(&mut self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>, EnqueueError> {
        self.0.enqueue_many(jobs)
    }
}

#[test]
fn an_enqueue_outside_of_the_callers_transaction_is_found_by_its_clauses() {
    let broken = || {
        let clock = VirtualClock::new();
        let store = MemoryStore::with_clock(clock.clone());
        let client = Client::new(store.clone());
        Fixture::new(clock, move |options| store.clone().with_history(options.history))
            .transactions(move |body| {
                let _ = body(&mut Outside(client.clone()));
            })
    };
    for name in [
        "transactions::what_was_rolled_back_never_was",
        "transactions::nobody_sees_it_before_the_commit",
        "transactions::a_rolled_back_dependent_leaves_no_edge",
    ] {
        let clause = || conformance::run(name, &broken());
        assert!(catch_unwind(AssertUnwindSafe(clause)).is_err(), "{name}");
    }
}
