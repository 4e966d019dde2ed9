//! What jobs and stores are tested with: a clock that a test sets, and the clauses of the Storage
//! Contract for every adapter.

mod clock;
pub mod conformance;

pub use clock::VirtualClock;
