//! Containing panics of code that is not ours: the user's `Drop` and `Display`, the host's logger.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Drops a value whose `Drop` may be the user's code, a panic's payload among them. What a panic in it
/// carries is leaked rather than dropped, which ends the chain.
pub(crate) fn dispose<T: ?Sized>(value: Box<T>) {
    if let Err(second) = catch_unwind(AssertUnwindSafe(move || drop(value))) {
        std::mem::forget::<Box<dyn Any + Send>>(second);
    }
}

/// Runs code of the host's or the user's; `None` where it panics.
pub(crate) fn contained<R>(theirs: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(theirs)).map_err(dispose).ok()
}
