//! What a dependent may know of the jobs it depends on.

use crate::store::{Body, ParentRecord};
use crate::{DecodeError, JobId, JobState, Timestamp};
use serde::de::DeserializeOwned;

/// A job that another depends or depended on: how it ended, and what it left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParentOutcome {
    record: ParentRecord,
}

impl ParentOutcome {
    pub(crate) const fn new(record: ParentRecord) -> Self {
        Self { record }
    }

    /// Its identity.
    #[must_use]
    pub const fn id(&self) -> JobId {
        self.record.id
    }

    /// Its Wire Name.
    #[must_use]
    pub fn wire_name(&self) -> &str {
        &self.record.wire_name
    }

    /// The state it is in. For a handler that runs, its parents have ended.
    #[must_use]
    pub const fn state(&self) -> JobState {
        self.record.state
    }

    /// Whether the dependent waits for it still.
    #[must_use]
    pub const fn is_gating(&self) -> bool {
        self.record.is_gating
    }

    /// When it ended.
    #[must_use]
    pub const fn finished_at(&self) -> Option<Timestamp> {
        self.record.finished_at
    }

    /// What went wrong with it last.
    #[must_use]
    pub fn failure_detail(&self) -> Option<&str> {
        self.record.failure_detail.as_deref()
    }

    /// Decodes what it left behind by [`set_output`](crate::JobContext::set_output).
    ///
    /// # Errors
    /// When there is no output, or it does not decode as `T`.
    pub fn output<T: DeserializeOwned>(&self) -> Result<T, DecodeError> {
        Body::decode_output(self.record.output.as_ref())
    }
}
