//! The Storage Contract over the memory store.

use backwave::MemoryStore;
use backwave::testing::VirtualClock;
use backwave::testing::conformance::Fixture;

fn fixture() -> Fixture {
    let clock = VirtualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    Fixture::new(clock, move |options| store.clone().with_history(options.history))
}

backwave::conformance_tests!(fixture);
