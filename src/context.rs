//! What a handler is told of its attempt, and how it answers besides its result.

use crate::encode::{Encoded, to_json};
use crate::store::{Body, Tick};
use crate::{
    CancelReason, CancelToken, Cancelled, Client, DecodeError, Error, Job, JobError, JobId,
    MemoryStore, ParentOutcome, Timestamp,
};
use crossbeam_channel::Receiver;
use parking_lot::Mutex;
use serde::Serialize;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// One attempt, as its handler sees it. Threads of the handler's own may use it too.
///
/// ```
/// use backwave::{ContextBuilder, JobContext};
/// use std::time::Duration;
///
/// fn poll(ctx: &JobContext) -> backwave::JobResult {
///     while !ctx.is_stopping() {
///         ctx.sleep(Duration::from_millis(1))?;
///     }
///     Err(ctx.give_way())
/// }
///
/// let ctx = ContextBuilder::new().stopping().build();
/// assert!(poll(&ctx).is_err());
/// ```
pub struct JobContext {
    parts: ContextParts,
    output: Mutex<Option<Body>>,
}

/// What the shell knows of an attempt.
pub(crate) struct ContextParts {
    pub(crate) job_id: JobId,
    pub(crate) attempt: u32,
    pub(crate) failures: u32,
    pub(crate) wire_name: String,
    pub(crate) queue: String,
    pub(crate) tags: Vec<String>,
    pub(crate) due_at: Timestamp,
    pub(crate) tick: Option<Tick>,
    pub(crate) group: Arc<str>,
    /// Fires when the attempt is to end.
    pub(crate) token: CancelToken,
    /// Fires when a clean stop was asked for.
    pub(crate) stopping: CancelToken,
    pub(crate) client: Client,
    /// Whether a failure of this attempt would be the one too many.
    pub(crate) last_try: bool,
    pub(crate) output_bytes_max: usize,
}

impl JobContext {
    pub(crate) fn from_parts(parts: ContextParts) -> Self {
        Self { parts, output: Mutex::new(None) }
    }

    /// The job's identity: the idempotency key for whatever the handler causes elsewhere.
    #[must_use]
    pub fn job_id(&self) -> JobId {
        self.parts.job_id
    }

    /// The number of this attempt, from 1. It grows with every run, snoozes and hand-backs included.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.parts.attempt
    }

    /// How many attempts failed or lapsed before.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.parts.failures
    }

    /// Whether a failure of this attempt would Dead-Letter the job.
    #[must_use]
    pub fn is_last_try(&self) -> bool {
        self.parts.last_try
    }

    /// The queue the job came from.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.parts.queue
    }

    /// The job's Wire Name.
    #[must_use]
    pub fn wire_name(&self) -> &str {
        &self.parts.wire_name
    }

    /// The name of the Worker Group that runs it.
    #[must_use]
    pub fn group(&self) -> &str {
        &self.parts.group
    }

    /// The job's labels.
    #[must_use]
    pub fn tags(&self) -> &[String] {
        &self.parts.tags
    }

    /// When the job was due.
    #[must_use]
    pub fn due_at(&self) -> Timestamp {
        self.parts.due_at
    }

    /// The tick that the job stands for, where a recurring schedule has minted it: the instant that its schedule
    /// names, whenever it runs. With catch-up it is the newest of those that were missed.
    ///
    /// ```
    /// use backwave::{ContextBuilder, Timestamp};
    ///
    /// let midnight: Timestamp = "2026-03-01T00:00:00Z".parse().unwrap();
    /// let ctx = ContextBuilder::new().tick("nightly", midnight).build();
    /// assert_eq!((ctx.schedule(), ctx.tick()), (Some("nightly"), Some(midnight)));
    /// assert_eq!(ContextBuilder::new().build().tick(), None);
    /// ```
    #[must_use]
    pub fn tick(&self) -> Option<Timestamp> {
        self.parts.tick.as_ref().map(|tick| tick.at)
    }

    /// The name of the recurring schedule that has minted the job for a [tick](Self::tick).
    #[must_use]
    pub fn schedule(&self) -> Option<&str> {
        self.parts.tick.as_ref().map(|tick| tick.schedule.as_str())
    }

    /// A client on the store the job came from. What it enqueues is there whatever becomes of this
    /// attempt.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.parts.client
    }

    /// The jobs this one was enqueued to run after, in that order, with how they ended and what they left behind.
    /// Reads the store.
    ///
    /// ```
    /// use backwave::{JobContext, JobResult, JobState};
    ///
    /// fn publish(ctx: &JobContext) -> JobResult {
    ///     for parent in ctx.parents()? {
    ///         if parent.state() == JobState::Succeeded {
    ///             let path: String = parent.output()?;
    ///             println!("publishing {path}");
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// # publish(&backwave::ContextBuilder::new().build()).unwrap();
    /// ```
    ///
    /// # Errors
    /// A failed read.
    pub fn parents(&self) -> Result<Vec<ParentOutcome>, Error> {
        self.client().monitor().parents(self.job_id())
    }

    /// The first of its parents that is of the type `J`. Reads the store.
    ///
    /// # Errors
    /// A failed read.
    pub fn parent<J: Job>(&self) -> Result<Option<ParentOutcome>, Error> {
        let mut parents = self.parents()?.into_iter();
        Ok(parents.find(|parent| parent.wire_name() == J::WIRE_NAME))
    }

    /// One of the jobs that this one depends on, be it through others. Reads the store.
    ///
    /// # Errors
    /// [`Error::NotFound`] where `id` names no ancestor of this job, or a failed read.
    pub fn ancestor(&self, id: JobId) -> Result<ParentOutcome, Error> {
        let found = self.client().monitor().ancestor(self.job_id(), id)?;
        found.ok_or(Error::NotFound { id })
    }

    /// Whether the attempt was asked to end. Cheap enough for an inner loop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.parts.token.is_cancelled()
    }

    /// `Err` once the attempt was asked to end; return it with `?` to give way.
    ///
    /// # Errors
    /// [`Cancelled`], with the reason.
    pub fn check_cancelled(&self) -> Result<(), Cancelled> {
        self.parts.token.check()
    }

    /// Sleeps for `span`, or until the attempt is asked to end. A stop request alone does not wake it;
    /// who wants to hear of that waits for [`Self::stopping`].
    ///
    /// # Errors
    /// [`Cancelled`], with the reason.
    pub fn sleep(&self, span: Duration) -> Result<(), Cancelled> {
        self.parts.token.sleep(span)
    }

    /// A channel that never carries a message and is closed when the attempt is to end: for `select!`.
    #[must_use]
    pub fn cancelled(&self) -> &Receiver<Infallible> {
        self.parts.token.cancelled()
    }

    /// Whether a clean stop of the group was asked for. The handler may go on for a while, or
    /// [give way](Self::give_way) at a good moment.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.parts.stopping.is_cancelled()
    }

    /// A channel that never carries a message and is closed when a clean stop was asked for: for
    /// `select!`.
    #[must_use]
    pub fn stopping(&self) -> &Receiver<Infallible> {
        self.parts.stopping.cancelled()
    }

    /// What a handler returns that gives way to a stop: the job is handed back, without a failure.
    #[must_use]
    pub fn give_way(&self) -> JobError {
        let reason = self.parts.token.reason().unwrap_or(CancelReason::GroupStopping);
        Cancelled { reason }.into()
    }

    /// The token of this attempt, for threads of the handler's own.
    #[must_use]
    pub fn token(&self) -> &CancelToken {
        &self.parts.token
    }

    /// Sets what the job leaves behind, kept with it when this attempt succeeds. The last call wins.
    ///
    /// # Errors
    /// When it is larger than the store's bound, or cannot be written as JSON. An output set before
    /// stays.
    pub fn set_output<T: Serialize>(&self, output: &T) -> Result<(), OutputError> {
        let limit = self.parts.output_bytes_max;
        let body = match to_json(output, limit).map_err(OutputError::Encode)? {
            Encoded::Text(text) => Body::new(text),
            Encoded::TooLarge(bytes) => return Err(OutputError::TooLarge { bytes, limit }),
        };
        *self.output.lock() = Some(body);
        Ok(())
    }

    pub(crate) fn take_output(&self) -> Option<Body> {
        self.output.lock().take()
    }
}

impl fmt::Debug for JobContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobContext")
            .field("job_id", &self.parts.job_id)
            .field("attempt", &self.parts.attempt)
            .field("failures", &self.parts.failures)
            .field("wire_name", &self.parts.wire_name)
            .field("queue", &self.parts.queue)
            .field("group", &self.parts.group)
            .finish_non_exhaustive()
    }
}

/// Why an output was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// It is larger than the bound.
    #[error("the output has {bytes} bytes and the limit is {limit}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
    /// It cannot be written as JSON.
    #[error("the output cannot be encoded")]
    Encode(#[source] DecodeError),
}

/// Makes a [`JobContext`] for the unit test of a handler, which is a plain function to call.
///
/// ```
/// use backwave::{CancelReason, ContextBuilder, JobContext, JobError, JobResult, Verdict};
///
/// fn remind(ctx: &JobContext, user: u64) -> JobResult {
///     if ctx.failures() >= 3 {
///         return Err(JobError::discard(format!("user {user} cannot be reached")));
///     }
///     Ok(ctx.check_cancelled()?)
/// }
///
/// let ctx = ContextBuilder::new().failures(3).build();
/// assert_eq!(remind(&ctx, 1).unwrap_err().verdict(), Verdict::Discard);
/// let ctx = ContextBuilder::new().cancelled(CancelReason::TimedOut).build();
/// let gave_way = Verdict::GaveWay(CancelReason::TimedOut);
/// assert_eq!(remind(&ctx, 1).unwrap_err().verdict(), gave_way);
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it builds"]
pub struct ContextBuilder {
    job_id: JobId,
    attempt: Option<u32>,
    failures: u32,
    wire_name: String,
    queue: String,
    tags: Vec<String>,
    due_at: Timestamp,
    tick: Option<Tick>,
    last_try: bool,
    cancelled: Option<CancelReason>,
    stopping: bool,
    client: Option<Client>,
}

impl ContextBuilder {
    /// The first attempt of a fresh job `test` in the queue `default` of a group `test`.
    pub fn new() -> Self {
        Self {
            job_id: JobId::new(),
            attempt: None,
            failures: 0,
            wire_name: "test".to_owned(),
            queue: "default".to_owned(),
            tags: Vec::new(),
            due_at: Timestamp::EPOCH,
            tick: None,
            last_try: false,
            cancelled: None,
            stopping: false,
            client: None,
        }
    }

    /// The job's identity.
    pub fn job_id(mut self, id: JobId) -> Self {
        self.job_id = id;
        self
    }

    /// The number of the attempt; by default one more than the failures.
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.attempt = Some(attempt);
        self
    }

    /// How many attempts failed before.
    pub fn failures(mut self, failures: u32) -> Self {
        self.failures = failures;
        self
    }

    /// The job's Wire Name.
    pub fn wire_name(mut self, wire_name: impl Into<String>) -> Self {
        self.wire_name = wire_name.into();
        self
    }

    /// The queue it came from.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = queue.into();
        self
    }

    /// Adds a label.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// When it was due; by default at the epoch.
    pub fn due_at(mut self, due: impl Into<Timestamp>) -> Self {
        self.due_at = due.into();
        self
    }

    /// The tick of a recurring schedule that the job was minted for. Default: none.
    pub fn tick(mut self, schedule: impl Into<String>, at: impl Into<Timestamp>) -> Self {
        self.tick = Some(Tick::new(schedule.into(), at.into()));
        self
    }

    /// A failure of this attempt would Dead-Letter the job.
    pub fn last_try(mut self) -> Self {
        self.last_try = true;
        self
    }

    /// The attempt was asked to end.
    pub fn cancelled(mut self, reason: CancelReason) -> Self {
        self.cancelled = Some(reason);
        self
    }

    /// A clean stop was asked for.
    pub fn stopping(mut self) -> Self {
        self.stopping = true;
        self
    }

    /// The client the handler finds; by default one on a memory store of its own.
    pub fn client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    /// The context.
    #[must_use]
    pub fn build(self) -> JobContext {
        let (token, stopping) = (CancelToken::new(), CancelToken::new());
        if let Some(reason) = self.cancelled {
            token.fire(reason);
        }
        if self.stopping {
            stopping.fire(CancelReason::GroupStopping);
        }
        JobContext::from_parts(ContextParts {
            job_id: self.job_id,
            attempt: self.attempt.unwrap_or_else(|| self.failures.saturating_add(1)),
            failures: self.failures,
            wire_name: self.wire_name,
            queue: self.queue,
            tags: self.tags,
            due_at: self.due_at,
            tick: self.tick,
            group: "test".into(),
            token,
            stopping,
            client: self.client.unwrap_or_else(|| Client::new(MemoryStore::new())),
            last_try: self.last_try,
            output_bytes_max: crate::store::Bounds::default().output_bytes_max,
        })
    }
}

impl Default for ContextBuilder {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;

    #[test]
    fn the_last_output_wins_and_a_refused_one_changes_nothing() {
        let context = ContextBuilder::new().build();
        context.set_output(&1).expect("fits");
        context.set_output(&2).expect("fits");
        let refused = context.set_output(&"x".repeat(70_000)).expect_err("is too large");
        assert_eq!(refused.to_string(), "the output has 70002 bytes and the limit is 65536");
        assert!(matches!(context.set_output(&f64::NAN), Err(OutputError::Encode(_))));
        assert_eq!(context.take_output(), Some(Body::new(b"2".to_vec())));
        assert_eq!(context.take_output(), None);
    }

    #[test]
    fn a_stop_request_alone_ends_no_sleep() {
        let context = ContextBuilder::new().stopping().build();
        assert_eq!(context.sleep(Duration::from_millis(1)), Ok(()));
        assert!(context.is_stopping() && !context.is_cancelled());
        assert!(context.stopping().recv().is_err());
    }

    #[test]
    fn giving_way_names_what_it_gives_way_to() {
        let stopping = ContextBuilder::new().stopping().build();
        let expected = Verdict::GaveWay(CancelReason::GroupStopping);
        assert_eq!(stopping.give_way().verdict(), expected);
        let cancelled = ContextBuilder::new().cancelled(CancelReason::OperatorRequest).build();
        let expected = Verdict::GaveWay(CancelReason::OperatorRequest);
        assert_eq!(cancelled.give_way().verdict(), expected);
    }

    #[test]
    fn threads_of_the_handler_may_use_it() {
        fn shared<T: Send + Sync + 'static>() {}
        shared::<JobContext>();
    }
}
