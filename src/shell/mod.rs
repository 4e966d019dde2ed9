//! Threads, clocks and channels: what carries the core's commands out.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Drops a panic's payload. Its `Drop` is the user's code and may panic in turn; what that second panic
/// carries is leaked rather than dropped, which ends the chain.
pub(crate) fn dispose(payload: Box<dyn Any + Send>) {
    if let Err(second) = catch_unwind(AssertUnwindSafe(move || drop(payload))) {
        std::mem::forget(second);
    }
}
