//! The Storage Contract over a Postgres server, each clause in a schema of its own.

mod support;

use backwave::PostgresStore;
use backwave::testing::VirtualClock;
use backwave::testing::conformance::{Fixture, StoreOptions};
use support::postgres::{config, fresh_schema};

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
    Fixture::new(clock, open).keeping(schema)
}

backwave::conformance_tests!(fixture);
