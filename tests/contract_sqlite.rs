//! The Storage Contract over a SQLite file.

use backwave::SqliteStore;
use backwave::testing::VirtualClock;
use backwave::testing::conformance::{Fixture, StoreOptions};

fn fixture() -> Fixture {
    let clock = VirtualClock::new();
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("jobs.db");
    let open = {
        let clock = clock.clone();
        move |options: &StoreOptions| {
            SqliteStore::builder(&path)
                .clock(clock.clone())
                .history(options.history)
                .open()
                .expect("the file opens")
        }
    };
    Fixture::new(clock, open).keeping(folder)
}

backwave::conformance_tests!(fixture);
