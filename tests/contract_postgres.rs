//! The Storage Contract over a Postgres server, each clause in a schema of its own.

mod support;

use backwave::postgres::Transaction;
use backwave::testing::VirtualClock;
use backwave::testing::conformance::{
    CallersTransaction, Ending, Fixture, StoreOptions, TransactionBody,
};
use backwave::{EnqueueError, Enqueued, NewJob, PostgresStore};
use support::postgres::{config, connect, fresh_schema};

fn fixture() -> Fixture {
    let clock = VirtualClock::new();
    let schema = fresh_schema();
    let open = {
        let (clock, name) = (clock.clone(), schema.name().to_owned());
        move |options: &StoreOptions| {
            let store = PostgresStore::builder(config()).schema(&name).clock(clock.clone());
            store.history(options.history).open().expect("the server answers")
        }
    };
    let store = open(&StoreOptions::default());
    let transact = move |body: &mut TransactionBody<'_>| {
        let mut client = connect();
        let mut inside =
            Inside { store: &store, tx: client.transaction().expect("the server answers") };
        let ended = match body(&mut inside) {
            Ending::Commit => inside.tx.commit(),
            Ending::RollBack => inside.tx.rollback(),
        };
        ended.expect("it ends");
    };
    let name = schema.name().to_owned();
    let fixture = Fixture::new(clock, open).transactions(transact);
    fixture.crashes(move |write| crash(&name, write)).keeping(schema)
}

struct Inside<'a> {
    store: &'a PostgresStore,
    tx: Transaction<'a>,
}

impl CallersTransaction for Inside<'_> {
    fn enqueue(&mut self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>, EnqueueError> {
        self.store.enqueue_many_in(&mut self.tx, jobs)
    }
}

/// Has triggers count what a transaction writes, statement by statement, and end its backend where it is to
/// crash.
fn crash(schema: &str, write: Option<u32>) {
    let mut client = connect();
    let never = i32::MAX.unsigned_abs();
    let body = format!(
        "CREATE OR REPLACE FUNCTION \"{schema}\".crash() RETURNS trigger LANGUAGE plpgsql AS $$
         DECLARE
             v_writes CONSTANT integer :=
                 coalesce(nullif(current_setting('backwave_test.writes', true), ''), '0')::integer + 1;
         BEGIN
             PERFORM set_config('backwave_test.writes', v_writes::text, true);
             IF v_writes >= {} THEN
                 PERFORM pg_terminate_backend(pg_backend_pid());
                 -- Where it hears of it.
                 PERFORM pg_sleep(60);
             END IF;
             RETURN NULL;
         END $$",
        write.unwrap_or(never)
    );
    client.batch_execute(&body).expect("a function");
    let tables = client.query(
        "SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = $1::text::regnamespace AND c.relkind = 'r' \
             AND NOT EXISTS (SELECT 1 FROM pg_trigger AS t WHERE t.tgrelid = c.oid AND t.tgname = 'crash')",
        &[&format!("\"{schema}\"")],
    );
    for row in tables.expect("the catalogue") {
        let table: String = row.get(0);
        let trigger = format!(
            "CREATE TRIGGER crash BEFORE INSERT OR UPDATE OR DELETE ON \"{schema}\".\"{table}\" \
             FOR EACH STATEMENT EXECUTE FUNCTION \"{schema}\".crash()"
        );
        client.batch_execute(&trigger).expect("a trigger");
    }
}

backwave::conformance_tests!(fixture);
backwave::transaction_conformance_tests!(fixture);
backwave::crash_conformance_tests!(fixture);
