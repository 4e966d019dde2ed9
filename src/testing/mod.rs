//! What jobs and stores are tested with: a [`Harness`] on virtual time and mishaps for it, a simulator of whole
//! fleets ([`sim`]), a clock that a test sets, a store whose calls a test answers, and the clauses of the Storage
//! Contract for every adapter ([`conformance`]).
// A test's helper fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod clock;
pub mod conformance;
mod harness;
mod intercept;
mod link;
mod mishaps;
pub mod sim;
mod world;

pub(crate) use crate::kernel::retry::mix;
pub use clock::VirtualClock;
pub use harness::{Harness, HarnessBuilder};
pub use intercept::{Intercept, StoreCall};
pub use mishaps::{Mishap, ParseMishapError, under_mishaps};
