//! The pure core: every decision, and nothing that does anything.
//!
//! No clock, thread, I/O, lock, log or randomness is in here: time comes in as an argument, ids from
//! the shell. A test keeps it so.

pub(crate) mod dispatch;
pub(crate) mod driver;
pub(crate) mod graph;
pub(crate) mod latch;
pub(crate) mod observer;
pub(crate) mod retry;
pub(crate) mod schedule;
pub(crate) mod state;
pub(crate) mod text;
pub(crate) mod verdict;
