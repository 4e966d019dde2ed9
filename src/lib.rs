#![cfg_attr(feature = "sqlite", doc = include_str!("../README.md"))]
#![cfg_attr(
    not(feature = "sqlite"),
    doc = "Durable background jobs for programs without an async runtime."
)]
#![warn(missing_docs, unreachable_pub)]
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used))]

mod cancel;
mod client;
mod contain;
mod context;
mod encode;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod enqueue_in;
mod error;
#[cfg(test)]
mod exhaust;
mod group;
#[cfg(any(doc, doctest))]
pub mod guide;
mod health;
mod id;
pub mod invariant;
mod job;
mod job_error;
mod kernel;
pub mod monitor;
mod new_job;
pub mod observer;
pub mod operator;
mod parent;
mod registry;
pub mod schedule;
mod shell;
mod stage;
pub mod store;
pub mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
mod time;

pub use cancel::{CancelToken, Cancelled};
pub use client::Client;
pub use client::enqueue::Enqueued;
pub use context::{ContextBuilder, JobContext, OutputError};
pub use error::{DecodeError, EnqueueError, Error};
pub use group::{
    Group, GroupOptions, OptionsError, OptionsFault, ShutdownReport, SpawnError, Stopped,
    spawn_group,
};
pub use health::{
    Degradation, DegradedCause, GroupReport, HaltState, Health, HealthReport, HealthStatus,
    StuckHandler,
};
pub use id::{JobId, ParseIdError, WorkerId};
pub use job::{Job, JobResult, Payload};
pub use job_error::{JobError, JobResultExt};
pub use kernel::dispatch::DispatchPolicy;
pub use kernel::driver::Prefetch;
pub use kernel::latch::ParentRule;
pub use kernel::retry::RetryPolicy;
pub use kernel::state::{JobState, ParseJobStateError};
pub use kernel::text::NameFault;
pub use kernel::verdict::{CancelReason, Verdict};
pub use new_job::NewJob;
pub use observer::{ObserverPump, Observers, spawn_observers};
pub use parent::ParentOutcome;
pub use registry::{DuplicateWireName, Manifest, ManifestEntry, Registry};
pub use store::memory::MemoryStore;
#[cfg(feature = "postgres")]
pub use store::postgres::{PostgresBuilder, PostgresOpenError, PostgresStore};
#[cfg(feature = "sqlite")]
pub use store::sqlite::{SqliteFault, SqliteStore, SqliteStoreBuilder, Synchronous};
pub use store::{HistoryPolicy, Retention};
pub use time::{ParseTimestampError, Timestamp};

pub use crossbeam_channel;
#[cfg(feature = "postgres")]
pub use postgres;
#[cfg(feature = "sqlite")]
pub use rusqlite;
