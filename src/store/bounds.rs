//! The limits a store enforces, and the typed refusals that name them.

use crate::kernel::text::NameFault;
use crate::{JobId, Timestamp};
use std::time::Duration;

/// The longest name of an operator that is kept, in bytes; a longer one is cut.
pub const ACTOR_BYTES_MAX: usize = 128;
/// The most that one call of [`Upkeep`](super::Upkeep) looks at.
pub const UPKEEP_MAX: u32 = 5_000;
/// So many gates one write resolves; what is over is left for
/// [`work_off_latches`](super::Upkeep::work_off_latches).
pub const GATES_MAX: u32 = 1_000;
/// A pump that has told nothing for so long is forgotten.
pub const PUMP_KEPT: Duration = Duration::from_secs(7 * 86_400);

/// Limits on what is stored. All in bytes unless they say otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bounds {
    /// A payload. Default 64 KiB.
    pub payload_bytes_max: usize,
    /// A wire name. Default 128.
    pub wire_name_bytes_max: usize,
    /// A queue name. Default 128.
    pub queue_bytes_max: usize,
    /// A tag. Default 128.
    pub tag_bytes_max: usize,
    /// A unique key or a concurrency key. Default 256.
    pub key_bytes_max: usize,
    /// Tags of one job. Default 16 tags.
    pub tags_max: usize,
    /// Parents of one job, each counted once. Default 16 parents.
    pub parents_max: usize,
    /// An output. Default 64 KiB.
    pub output_bytes_max: usize,
    /// A failure detail; a longer one is cut on a character boundary. Default 8 KiB.
    pub failure_detail_bytes_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            payload_bytes_max: 64 * 1024,
            wire_name_bytes_max: 128,
            queue_bytes_max: 128,
            tag_bytes_max: 128,
            key_bytes_max: 256,
            tags_max: 16,
            parents_max: 16,
            output_bytes_max: 64 * 1024,
            failure_detail_bytes_max: 8 * 1024,
        }
    }
}

/// Why a job was not accepted. Nothing of the call it came in was stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// The payload is larger than the bound.
    #[error("the payload has {bytes} bytes and the limit is {limit}")]
    PayloadTooLarge {
        /// Its size.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
    /// The wire name cannot be used.
    #[error("the wire name {name:?} is refused: {fault}")]
    WireName {
        /// The name, cut to 64 characters.
        name: String,
        /// What is wrong with it.
        fault: NameFault,
    },
    /// The queue name cannot be used.
    #[error("the queue name {name:?} is refused: {fault}")]
    QueueName {
        /// The name, cut to 64 characters.
        name: String,
        /// What is wrong with it.
        fault: NameFault,
    },
    /// A tag cannot be used.
    #[error("the tag {name:?} is refused: {fault}")]
    Tag {
        /// The tag, cut to 64 characters.
        name: String,
        /// What is wrong with it.
        fault: NameFault,
    },
    /// The unique key cannot be used.
    #[error("the unique key {name:?} is refused: {fault}")]
    UniqueKey {
        /// The key, cut to 64 characters.
        name: String,
        /// What is wrong with it.
        fault: NameFault,
    },
    /// The concurrency key cannot be used.
    #[error("the concurrency key {name:?} is refused: {fault}")]
    ConcurrencyKey {
        /// The key, cut to 64 characters.
        name: String,
        /// What is wrong with it.
        fault: NameFault,
    },
    /// The job has more tags than the bound.
    #[error("the job has {count} tags and the limit is {limit}")]
    TooManyTags {
        /// How many it has.
        count: usize,
        /// The bound.
        limit: usize,
    },
    /// The job has more parents than the bound.
    #[error("the job has {count} parents and the limit is {limit}")]
    TooManyParents {
        /// How many it has, each counted once.
        count: usize,
        /// The bound.
        limit: usize,
    },
    /// There is no job of that id to depend on: neither in the store nor before it in the same call.
    #[error("there is no job {parent} to depend on")]
    UnknownParent {
        /// The id.
        parent: JobId,
    },
    /// The job names itself as its parent.
    #[error("the job {id} depends on itself")]
    OwnParent {
        /// The id.
        id: JobId,
    },
    /// The due time is later than any store can hold.
    #[error("the due time {due} is after {limit}, the latest that can be stored")]
    DueTooLate {
        /// The time asked for.
        due: Timestamp,
        /// The bound.
        limit: Timestamp,
    },
    /// The payload version is 0 or beyond what is stored as a 31-bit number.
    #[error("the payload version {version} is not between 1 and {limit}")]
    Version {
        /// The version asked for.
        version: u32,
        /// The bound.
        limit: u32,
    },
    /// The time limit of an attempt is zero.
    #[error("the time limit of an attempt is zero")]
    ZeroTimeout,
}
