//! How jobs come in: what is asked for, and what became of it.

use super::Body;
use crate::kernel::latch::ParentRule;
use crate::kernel::state::JobState;
use crate::store::Rejection;
use crate::{JobId, RetryPolicy, Timestamp};
use std::time::Duration;

/// When a job is due. A relative time is resolved by the store's clock, not by the caller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Due {
    /// At once.
    #[default]
    Now,
    /// So long after the store has accepted it.
    In(Duration),
    /// At that instant.
    At(Timestamp),
}

/// A job as it is handed to a store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobRow {
    /// Its identity, made by the client.
    pub id: JobId,
    /// What names its handler.
    pub wire_name: String,
    /// The version of its payload's shape, from 1.
    pub version: u32,
    /// Where it waits.
    pub queue: String,
    /// JSON text.
    pub payload: Body,
    /// When it is due.
    pub due: Due,
    /// Its own retry policy, over the group's.
    pub retry: Option<RetryPolicy>,
    /// How long one attempt may take.
    pub timeout: Option<Duration>,
    /// Labels for finding it.
    pub tags: Vec<String>,
    /// The jobs that must end before it may run; one that is named twice counts once.
    pub parents: Vec<JobId>,
    /// Which of their ends release it.
    pub parent_rule: ParentRule,
    /// The tick of a schedule that it was minted for.
    pub tick: Option<super::Tick>,
    /// Of the jobs with this key in the whole store at most one lives. Compared byte by byte.
    pub unique_key: Option<String>,
    /// Of the jobs of its queue with this key only so many run at a time, one unless the queue is set
    /// [otherwise](crate::store::QueueChange::KeyLimit). Compared byte by byte.
    pub concurrency_key: Option<String>,
}

impl JobRow {
    /// A job due now in the queue `default`, with an empty JSON object as payload.
    #[must_use]
    pub fn new(id: JobId, wire_name: impl Into<String>) -> Self {
        Self {
            id,
            wire_name: wire_name.into(),
            version: 1,
            queue: "default".to_owned(),
            payload: Body::new(b"{}".to_vec()),
            due: Due::Now,
            retry: None,
            timeout: None,
            tags: Vec::new(),
            parents: Vec::new(),
            parent_rule: ParentRule::default(),
            tick: None,
            unique_key: None,
            concurrency_key: None,
        }
    }

    /// Its parents, each once, the first naming deciding the place. For rows that are within their bounds, which
    /// leave few.
    #[must_use]
    pub fn distinct_parents(&self) -> Vec<JobId> {
        let mut distinct = Vec::new();
        for parent in &self.parents {
            if !distinct.contains(parent) {
                distinct.push(*parent);
            }
        }
        distinct
    }
}

/// What became of one job of an enqueue. Complete on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Admission {
    /// It is stored now.
    New,
    /// A job of its id existed already, and was left as it is.
    Duplicate,
    /// Another job that lives holds its unique key: nothing of it was stored.
    Held {
        /// The job that holds the key.
        by: JobId,
        /// Its state.
        state: JobState,
    },
}

impl Admission {
    /// Whether the job is stored by this call.
    #[must_use]
    pub const fn is_new(self) -> bool {
        matches!(self, Self::New)
    }
}

/// The answer to an enqueue.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EnqueueAnswer {
    /// No job was refused.
    Accepted {
        /// Per job of the call, what became of it.
        jobs: Vec<Admission>,
        /// The store's time.
        store_time: Timestamp,
    },
    /// Nothing was stored.
    Rejected {
        /// Which job of the call.
        index: usize,
        /// Why.
        reason: Rejection,
    },
}
