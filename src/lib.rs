//! Durable background jobs for programs without an async runtime.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod cancel;
mod error;
mod id;
pub mod invariant;
mod kernel;
mod shell;
pub mod store;
pub mod telemetry;
mod time;

#[cfg(feature = "postgres")]
pub use ::postgres;
pub use cancel::{CancelReason, CancelToken, Cancelled};
pub use error::{DecodeError, EnqueueError, Error};
pub use id::{JobId, ParseIdError, WorkerId};
pub use kernel::retry::RetryPolicy;
pub use kernel::state::{JobState, ParseJobStateError};
pub use kernel::text::NameFault;
pub use store::memory::MemoryStore;
#[cfg(feature = "postgres")]
pub use store::postgres::{PostgresBuilder, PostgresOpenError, PostgresStore};
#[cfg(feature = "sqlite")]
pub use store::sqlite::SqliteStore;
pub use time::{ParseTimestampError, Timestamp};

/// A job.
pub trait Job {
    /// r
    const RETRY: Option<RetryPolicy>;
    /// u
    fn upcast();
}
/// New.
pub struct NewJob;
impl NewJob {
    /// r
    pub fn retry() {}
}
/// C.
pub struct Client;
