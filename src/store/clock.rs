//! The clock a store judges by.

use crate::Timestamp;

/// Replaces the clock of a store, for tests on virtual time. An adapter without one reads its own:
/// Postgres the server's `clock_timestamp()`, SQLite and memory the host's wall clock, each at the
/// moment of execution.
pub trait StoreClock: Send + Sync + 'static {
    /// The time by which the store judges now.
    fn now(&self) -> Timestamp;
}

impl<F: Fn() -> Timestamp + Send + Sync + 'static> StoreClock for F {
    fn now(&self) -> Timestamp {
        self()
    }
}
