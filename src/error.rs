//! The errors of the public face.

use crate::invariant::InvariantViolation;
use crate::store::{FaultClass, Rejection, StoreError};
use crate::{JobId, JobState, NameFault};

/// What a call on [`Client`](crate::Client) can fail with, enqueueing apart ([`EnqueueError`]).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store failed.
    #[error("the store could not carry out the call")]
    Store(#[source] StoreError),
    /// An always-on assertion failed. Nothing was retried.
    #[error("the call was given up on a violated invariant")]
    Invariant(#[source] InvariantViolation),
    /// There is no such job.
    #[error("there is no job {id}")]
    NotFound {
        /// The id asked for.
        id: JobId,
    },
    /// The job is in a state that does not allow it.
    #[error("job {id} is {state}, which does not allow it")]
    IllegalState {
        /// The job.
        id: JobId,
        /// Its state.
        state: JobState,
    },
    /// Another job that lives holds the job's unique key.
    #[error("job {id} cannot live again as long as job {by} does, which holds its unique key")]
    KeyHeld {
        /// The job.
        id: JobId,
        /// The job that holds the key.
        by: JobId,
    },
    /// The name names no queue that could be.
    #[error("the queue name {name:?} is refused: {fault}")]
    QueueName {
        /// The name, cut to 64 characters.
        name: String,
        /// What is wrong with it.
        fault: NameFault,
    },
    /// The job had not ended in time.
    #[error("job {id} had not ended in time, it was {state}")]
    WaitTimedOut {
        /// The job.
        id: JobId,
        /// Its state when the time was up.
        state: JobState,
    },
    /// No thread could be started for the call.
    #[error("no thread could be started for the call")]
    NoThread(#[source] std::io::Error),
    /// The thread that carried out the call is gone.
    #[error("the thread that carried out the call is gone")]
    ThreadGone,
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match error.violation() {
            Some(violation) => Self::Invariant(violation.clone()),
            None => Self::Store(error),
        }
    }
}

/// Why jobs could not be enqueued. Except for [`Self::OutcomeUnknown`], nothing was stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnqueueError {
    /// A job was not accepted, and so none of the call was.
    #[error("job {index} of the call is refused: {reason}")]
    Rejected {
        /// Its place in the call, from 0.
        index: usize,
        /// Why.
        reason: Rejection,
    },
    /// The jobs of a graph depend on each other in a circle.
    #[error("{} job(s) depend on each other in a circle, {} among them", ids.len(), first(ids))]
    Cycle {
        /// The jobs of the circle: each depends on the next, and the last on the first.
        ids: Vec<JobId>,
    },
    /// A payload could not be written as JSON.
    #[error("the payload of job {index} of the call cannot be encoded")]
    Encode {
        /// Its place in the call, from 0.
        index: usize,
        /// Why.
        #[source]
        source: DecodeError,
    },
    /// The answer was lost: the jobs may or may not be stored. Enqueue them again under the same ids,
    /// or ask for the ids.
    #[error("it is not known whether {} job(s) were stored, the answer was lost", ids.len())]
    OutcomeUnknown {
        /// The ids of the call.
        ids: Vec<JobId>,
        /// What happened to the answer.
        #[source]
        source: StoreError,
    },
    /// The store failed.
    #[error("the store could not enqueue")]
    Store(#[source] StoreError),
    /// An always-on assertion failed. Nothing was retried.
    #[error("the enqueue was given up on a violated invariant")]
    Invariant(#[source] InvariantViolation),
    /// No thread could be started for the call.
    #[error("no thread could be started for the call")]
    NoThread(#[source] std::io::Error),
    /// The thread that carried out the call is gone.
    #[error("the thread that carried out the call is gone")]
    ThreadGone,
}

fn first(ids: &[JobId]) -> String {
    ids.first().map(ToString::to_string).unwrap_or_default()
}

impl From<StoreError> for EnqueueError {
    fn from(error: StoreError) -> Self {
        match error.violation() {
            Some(violation) => Self::Invariant(violation.clone()),
            None => Self::Store(error),
        }
    }
}

/// A JSON text that does not decode, or a value that does not encode. It says where and why, never
/// what stood there.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct DecodeError {
    message: String,
    #[source]
    source: Option<serde_json::Error>,
}

impl DecodeError {
    /// An error of the application's own, for [`Job::upcast`](crate::Job::upcast).
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None }
    }

    pub(crate) fn absent() -> Self {
        Self::new("there is no output")
    }

    pub(crate) fn wrap<T>(result: serde_json::Result<T>) -> Result<T, Self> {
        result.map_err(|source| Self {
            message: format!(
                "not the JSON that was expected, at line {} column {}",
                source.line(),
                source.column()
            ),
            source: Some(source),
        })
    }
}

/// Whether the store failed in a way that may be tried again.
pub(crate) fn is_transient(store: &dyn crate::store::Store, error: &StoreError) -> bool {
    crate::store::classify(error, store.fault_classifier()) == FaultClass::Transient
}
