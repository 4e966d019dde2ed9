//! The clauses of the Storage Contract: written once, run over every store.
//!
//! A [`Clause`] is a sentence that holds for a store, and a function that panics where it does not. A
//! [`Fixture`] gives it a fresh store on a [`VirtualClock`]. [`conformance_tests!`](crate::conformance_tests)
//! makes each clause a `#[test]` of its own:
//!
//! ```
//! use backwave::MemoryStore;
//! use backwave::testing::{VirtualClock, conformance::Fixture};
//!
//! fn fixture() -> Fixture {
//!     let clock = VirtualClock::new();
//!     let store = MemoryStore::with_clock(clock.clone());
//!     Fixture::new(clock, move |_options| store.clone())
//! }
//!
//! backwave::conformance_tests!(fixture);
//! # backwave::testing::conformance::run("enqueue::a_job_due_now_is_claimable_at_once", &fixture());
//! ```
//!
//! The clauses know a store by its contract only. They hold it to answers and to what can be read back, never to
//! how it keeps its rows.

mod audits;
mod bulk;
mod cascades;
mod claim;
mod contests;
mod counting;
mod dependents;
mod desk;
mod enqueue;
mod exchange;
mod family;
mod fan_out;
mod fence;
mod finding;
mod hand_back;
mod history;
mod lease;
mod limits;
mod lineage;
mod list;
mod observers;
mod observers_contests;
mod observers_desk;
mod observers_hold;
mod observers_parking;
mod observers_retention;
mod office;
mod operations;
mod pausing;
mod pumps;
mod races;
mod reads;
mod reap;
mod report;
mod retention;
mod waking;

pub use list::CLAUSES;

use super::VirtualClock;
use crate::store::{HistoryPolicy, Store};
use std::any::Any;
use std::fmt;

/// One sentence of the contract.
#[derive(Clone, Copy)]
pub struct Clause {
    /// Its topic and what it says, as a path.
    pub name: &'static str,
    /// Panics where it does not hold.
    pub run: fn(&Fixture),
}

impl fmt::Debug for Clause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clause").field(&self.name).finish()
    }
}

/// How a clause wants a store to be set. The defaults are those of every store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct StoreOptions {
    /// How much of a job's life it keeps.
    pub history: HistoryPolicy,
}

impl StoreOptions {
    /// With that much history.
    #[must_use]
    pub const fn history(policy: HistoryPolicy) -> Self {
        Self { history: policy }
    }
}

/// What a clause works on: an empty store of its own, judging by a virtual clock.
pub struct Fixture {
    clock: VirtualClock,
    store: Box<dyn Store>,
    open: Box<Open>,
    /// Dropped after the store and its sessions.
    _keep: Vec<Box<dyn Any + Send + Sync>>,
}

type Open = dyn Fn(&StoreOptions) -> Box<dyn Store> + Send + Sync;

impl Fixture {
    /// A fixture whose `open` gives a handle to the same, at first empty, data every time, judging by
    /// `clock` and set as the options say.
    pub fn new<S: Store>(
        clock: VirtualClock,
        open: impl Fn(&StoreOptions) -> S + Send + Sync + 'static,
    ) -> Self {
        let open = move |options: &StoreOptions| -> Box<dyn Store> { Box::new(open(options)) };
        let store = open(&StoreOptions::default());
        Self { clock, store, open: Box::new(open), _keep: Vec::new() }
    }

    /// Keeps `guard` until the store is dropped: a folder, a schema to take away.
    #[must_use]
    pub fn keeping(mut self, guard: impl Any + Send + Sync) -> Self {
        self._keep.push(Box::new(guard));
        self
    }

    /// The clock the store judges by.
    #[must_use]
    pub const fn clock(&self) -> &VirtualClock {
        &self.clock
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    /// Another handle on the same data, opened as another process would.
    #[must_use]
    pub fn reopen(&self) -> Box<dyn Store> {
        self.reopen_with(&StoreOptions::default())
    }

    /// Another handle on the same data, set as the options say.
    #[must_use]
    pub fn reopen_with(&self, options: &StoreOptions) -> Box<dyn Store> {
        (self.open)(options)
    }
}

impl fmt::Debug for Fixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fixture").field("clock", &self.clock).finish_non_exhaustive()
    }
}

/// Runs the clause of that name.
///
/// # Panics
/// When the clause does not hold, or when there is none of that name.
pub fn run(name: &str, fixture: &Fixture) {
    let clause = CLAUSES.iter().find(|clause| clause.name == name);
    let clause = clause.unwrap_or_else(|| panic!("there is no clause {name:?}"));
    (clause.run)(fixture);
}
