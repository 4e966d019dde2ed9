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
//! What not every store can do has lists of its own: [`TRANSACTION_CLAUSES`] for stores that enqueue inside a
//! transaction of the caller's, [`CRASH_CLAUSES`] for those whose operations consist of statements, between which
//! a crash can come. No list has a clause that a store may skip.
//!
//! The clauses know a store by its contract only. They hold it to answers and to what can be read back, never to
//! how it keeps its rows.

#[macro_use]
mod listing;

mod abilities;
mod audits;
mod bulk;
mod cascades;
mod claim;
mod concurrency_keys;
mod contests;
mod counting;
mod crashes;
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
mod schedules;
mod schedules_desk;
mod schedules_minted;
mod schedules_operated;
mod schedules_overlapping;
mod schedules_raced;
mod transactions;
mod unique_keys;
mod waking;

pub use abilities::{CRASH_CLAUSES, TRANSACTION_CLAUSES};
pub use list::CLAUSES;

use super::VirtualClock;
use crate::store::{HistoryPolicy, Store};
use crate::{EnqueueError, Enqueued, NewJob};
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
    transactions: Option<Box<Transactions>>,
    crashes: Option<Box<Crashes>>,
    /// Dropped after the store and its sessions.
    _keep: Vec<Box<dyn Any + Send + Sync>>,
}

type Open = dyn Fn(&StoreOptions) -> Box<dyn Store> + Send + Sync;
type Transactions = dyn Fn(&mut TransactionBody<'_>) + Send + Sync;
type Crashes = dyn Fn(Option<u32>) + Send + Sync;

/// What is done inside a transaction of a caller's, and how that is to end.
pub type TransactionBody<'a> = dyn FnMut(&mut dyn CallersTransaction) -> Ending + 'a;

/// A transaction of a caller's own on the data of a fixture.
pub trait CallersTransaction {
    /// Enqueues inside of it, as the store under test does.
    ///
    /// # Errors
    /// As that does.
    fn enqueue(&mut self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>, EnqueueError>;
}

/// How a transaction is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// What was done in it stands.
    Commit,
    /// It never was.
    RollBack,
}

impl Fixture {
    /// A fixture whose `open` gives a handle to the same, at first empty, data every time, judging by
    /// `clock` and set as the options say.
    pub fn new<S: Store>(
        clock: VirtualClock,
        open: impl Fn(&StoreOptions) -> S + Send + Sync + 'static,
    ) -> Self {
        let open = move |options: &StoreOptions| -> Box<dyn Store> { Box::new(open(options)) };
        let store = open(&StoreOptions::default());
        Self {
            clock,
            store,
            open: Box::new(open),
            transactions: None,
            crashes: None,
            _keep: Vec::new(),
        }
    }

    /// Tells how to run something inside a transaction of a caller's: `run` begins one, hands it on, and ends it
    /// as it is told.
    #[must_use]
    pub fn transactions(
        mut self,
        run: impl Fn(&mut TransactionBody<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.transactions = Some(Box::new(run));
        self
    }

    /// Tells how to make the store crash: after `arm(Some(n))`, a call comes to nothing before its n-th write,
    /// counted from 1, as if its process had died there; after `arm(None)`, none does.
    #[must_use]
    pub fn crashes(mut self, arm: impl Fn(Option<u32>) + Send + Sync + 'static) -> Self {
        self.crashes = Some(Box::new(arm));
        self
    }

    fn transact(&self, mut body: impl FnMut(&mut dyn CallersTransaction) -> Ending) {
        let run = self.transactions.as_ref();
        run.expect("the fixture tells how to run a transaction")(&mut body);
    }

    fn crash_at(&self, write: Option<u32>) {
        self.crashes.as_ref().expect("the fixture tells how to crash")(write);
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
    let mut all = CLAUSES.iter().chain(TRANSACTION_CLAUSES).chain(CRASH_CLAUSES);
    let clause = all.find(|clause| clause.name == name);
    let clause = clause.unwrap_or_else(|| panic!("there is no clause {name:?}"));
    (clause.run)(fixture);
}
