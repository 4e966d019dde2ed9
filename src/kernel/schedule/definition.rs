//! What a tick mints, and how a schedule deals with ticks that were missed.

use crate::store::{Body, JobRow, Tick};
use crate::{JobId, RetryPolicy, Timestamp};
use serde_json::value::RawValue;
use std::time::Duration;

/// What becomes of ticks that nobody looked at in time: the whole fleet was down, or asleep.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CatchUp {
    /// Those that are past by more than the grace are skipped, and counted.
    #[default]
    Skip,
    /// One job is minted for all of them, for the newest tick.
    Coalesce,
}

/// A definition as it is kept: JSON text. A field that is not known is refused, since it may hold a job back.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Definition {
    wire_name: String,
    version: u32,
    queue: String,
    payload: Box<RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry: Option<RetryPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    concurrency_key: Option<String>,
    pub(crate) catch_up: CatchUp,
    pub(crate) grace_us: u64,
    pub(crate) no_overlap: bool,
}

impl Definition {
    /// Takes from a row what every job of the schedule has in common.
    ///
    /// # Errors
    /// A payload that is no JSON text.
    pub(crate) fn of(row: JobRow) -> Result<Self, String> {
        let text =
            String::from_utf8(row.payload.into_bytes()).map_err(|error| error.to_string())?;
        Ok(Self {
            wire_name: row.wire_name,
            version: row.version,
            queue: row.queue,
            payload: RawValue::from_string(text).map_err(|error| error.to_string())?,
            retry: row.retry,
            timeout_us: row.timeout.map(|timeout| micros(timeout).max(1)),
            tags: row.tags,
            concurrency_key: row.concurrency_key,
            catch_up: CatchUp::default(),
            grace_us: 0,
            no_overlap: false,
        })
    }

    pub(crate) fn read(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            format!("the definition does not read, at line {line} column {column}: {error}")
        })
    }

    pub(crate) fn wire_name(&self) -> &str {
        &self.wire_name
    }

    pub(crate) fn queue(&self) -> &str {
        &self.queue
    }

    pub(crate) const fn grace(&self) -> Duration {
        Duration::from_micros(self.grace_us)
    }

    /// A job of the schedule that stands for no tick.
    pub(crate) fn job(&self, id: JobId) -> JobRow {
        let mut row = JobRow::new(id, self.wire_name.as_str());
        row.version = self.version;
        row.queue.clone_from(&self.queue);
        row.payload = Body::new(self.payload.get().as_bytes().to_vec());
        row.retry = self.retry;
        row.timeout = self.timeout_us.map(Duration::from_micros);
        row.tags.clone_from(&self.tags);
        row.concurrency_key.clone_from(&self.concurrency_key);
        row
    }

    /// The job of a tick.
    pub(crate) fn job_of(&self, schedule: &str, at: Timestamp) -> JobRow {
        let mut row = self.job(JobId::of_tick(schedule, at));
        row.tick = Some(Tick::new(schedule.to_owned(), at));
        row
    }
}

/// A span in whole microseconds, rounded up.
pub(crate) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX)
}
