//! A job on its way into a store: one value for every sink.

use crate::encode::{Encoded, to_json};
use crate::job::assert_well_named;
use crate::store::{Body, Due, JobRow};
use crate::{DecodeError, EnqueueError, Job, JobId, ParentRule, RetryPolicy, Timestamp};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::time::Duration;

/// A job to enqueue, with what it should have other than its type says.
///
/// Setters never fail; what is wrong with a job comes out of the enqueue. The id is made here, so that
/// enqueueing the same value twice in effect enqueues it once.
///
/// ```
/// use backwave::{Job, NewJob};
/// use serde::{Deserialize, Serialize};
/// use std::time::Duration;
///
/// #[derive(Serialize, Deserialize)]
/// struct Ship {
///     order: i64,
/// }
///
/// impl Job for Ship {
///     const WIRE_NAME: &'static str = "ship";
/// }
///
/// let job = NewJob::new(&Ship { order: 7 }).delay(Duration::from_secs(3600)).tag("follow-up");
/// let json = job.to_json().unwrap();
/// assert!(json.contains(r#""wire_name":"ship""#));
/// assert!(json.contains(r#""payload":{"order":7}"#));
/// assert!(json.contains(r#""delay_ms":3600000"#));
/// ```
///
/// A clone is the same job, under the same id: what to repeat a call with whose outcome is unknown.
///
/// ```
/// use backwave::{Client, MemoryStore, NewJob};
///
/// let client = Client::new(MemoryStore::new());
/// let job = NewJob::raw("ship", r#"{"order":7}"#);
/// let first = client.enqueue(job.clone())?;
/// let again = client.enqueue(job)?;
/// assert_eq!((again.id, again.is_new), (first.id, false));
/// # Ok::<(), backwave::EnqueueError>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a job does nothing until it is enqueued"]
pub struct NewJob {
    id: JobId,
    is_own_id: bool,
    wire_name: Cow<'static, str>,
    version: u32,
    queue: Cow<'static, str>,
    payload: Content,
    due: Due,
    retry: Option<RetryPolicy>,
    timeout: Option<Duration>,
    tags: Vec<String>,
    parents: Vec<JobId>,
    parent_rule: ParentRule,
    unique_key: Option<String>,
    concurrency_key: Option<String>,
}

#[derive(Clone)]
enum Content {
    Encoded(Body),
    /// Text of the caller's, to be checked.
    Raw(String),
    Refused(String),
}

impl NewJob {
    /// A job of the type's own queue, version, retry policy and time limit, due at once.
    ///
    /// A type with a bad [`Job::WIRE_NAME`] or [`Job::QUEUE`] does not build.
    pub fn new<J: Job>(job: &J) -> Self {
        const { assert_well_named::<J>() };
        let payload = match to_json(job, usize::MAX) {
            Ok(Encoded::Text(text)) => Content::Encoded(Body::new(text)),
            Ok(Encoded::TooLarge(size)) => Content::Refused(format!("it has {size} bytes")),
            Err(error) => Content::Refused(error.to_string()),
        };
        Self {
            version: J::VERSION,
            queue: Cow::Borrowed(J::QUEUE),
            retry: J::RETRY,
            timeout: J::TIMEOUT,
            ..Self::of(Cow::Borrowed(J::WIRE_NAME), payload)
        }
    }

    /// A job whose type this program does not have: its Wire Name and its payload as JSON text, which is
    /// stored as it stands. Version 1, queue `default`.
    pub fn raw(wire_name: impl Into<String>, json: impl Into<String>) -> Self {
        Self::of(Cow::Owned(wire_name.into()), Content::Raw(json.into()))
    }

    fn of(wire_name: Cow<'static, str>, payload: Content) -> Self {
        Self {
            id: JobId::new(),
            is_own_id: true,
            wire_name,
            version: 1,
            queue: Cow::Borrowed("default"),
            payload,
            due: Due::Now,
            retry: None,
            timeout: None,
            tags: Vec::new(),
            parents: Vec::new(),
            parent_rule: ParentRule::default(),
            unique_key: None,
            concurrency_key: None,
        }
    }

    /// Its identity, where the caller has one; a job whose id exists already is not enqueued again.
    pub fn id(mut self, id: JobId) -> Self {
        self.id = id;
        self.is_own_id = false;
        self
    }

    /// The version of its payload's shape; for [`Self::raw`].
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// The queue it waits in.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Cow::Owned(queue.into());
        self
    }

    /// Due so long after the store has accepted it. Replaces [`Self::due_at`].
    pub fn delay(mut self, delay: Duration) -> Self {
        self.due = Due::In(delay);
        self
    }

    /// Due at that instant, by the store's clock. Replaces [`Self::delay`].
    pub fn due_at(mut self, due: impl Into<Timestamp>) -> Self {
        self.due = Due::At(due.into());
        self
    }

    /// Its own retry policy.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = Some(policy);
        self
    }

    /// How long one attempt may take.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Adds a label to find it by.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// Adds a job that must end before this one may run: one that is stored, or that comes before this one
    /// in the same call. See [`ParentRule`] for what its end must be; at most 16, each counted once. One that was
    /// not stored, because another job holds its [unique key](Self::unique_key), is no parent to have.
    ///
    /// ```
    /// use backwave::{Client, JobState, MemoryStore, NewJob};
    ///
    /// let client = Client::new(MemoryStore::new());
    /// let resize = NewJob::raw("resize", "{}");
    /// let publish = NewJob::raw("publish", "{}").parent(resize.job_id());
    /// let jobs = client.enqueue_many([resize, publish])?;
    /// assert_eq!(client.monitor().job(jobs[1].id)?.state, JobState::AwaitingParent);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn parent(mut self, parent: JobId) -> Self {
        self.parents.push(parent);
        self
    }

    /// Adds several jobs that must end before this one may run, as [`Self::parent`] does.
    pub fn parents(mut self, parents: impl IntoIterator<Item = JobId>) -> Self {
        self.parents.extend(parents);
        self
    }

    /// Which ends of its parents release the job; the default is [`ParentRule::OnSuccess`].
    pub fn parent_rule(mut self, rule: ParentRule) -> Self {
        self.parent_rule = rule;
        self
    }

    /// Lets it be enqueued only while no other job with this key lives: Scheduled, AwaitingParent or Leased. Where
    /// one does, nothing is stored, and [`Enqueued`](crate::Enqueued) tells which job holds the key and in which
    /// state it is.
    ///
    /// A key is of the whole store, so begin it with what it is a key of. It is kept through retries; every way
    /// of ending frees it. A job that stands under this very id is looked for first: repeating an enqueue is
    /// harmless. At most 256 bytes.
    ///
    /// ```
    /// use backwave::{Client, JobState, MemoryStore, NewJob};
    ///
    /// let client = Client::new(MemoryStore::new());
    /// let sync = || NewJob::raw("sync", r#"{"account":7}"#).unique_key("sync/account/7");
    /// let first = client.enqueue(sync())?;
    /// let second = client.enqueue(sync())?;
    /// assert_eq!((second.id, second.is_new), (first.id, false));
    /// assert_eq!(second.held_in, Some(JobState::Scheduled));
    /// # Ok::<(), backwave::EnqueueError>(())
    /// ```
    pub fn unique_key(mut self, key: impl Into<String>) -> Self {
        self.unique_key = Some(key.into());
        self
    }

    /// Lets no more than so many jobs of its queue with this key run at a time, in the whole fleet: one, or what
    /// [`Operator::set_concurrency_limit_per_key`](crate::operator::Operator::set_concurrency_limit_per_key) has
    /// set for the queue. A job that waits for its key holds back no other. At most 256 bytes.
    ///
    /// ```
    /// use backwave::{Client, MemoryStore, NewJob};
    ///
    /// let client = Client::new(MemoryStore::new());
    /// let job = client.enqueue(NewJob::raw("sync", "{}").concurrency_key("account/7"))?;
    /// let record = client.monitor().job(job.id)?;
    /// assert_eq!(record.concurrency_key.as_deref(), Some("account/7"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn concurrency_key(mut self, key: impl Into<String>) -> Self {
        self.concurrency_key = Some(key.into());
        self
    }

    /// The identity under which it will be enqueued.
    #[must_use]
    pub const fn job_id(&self) -> JobId {
        self.id
    }

    /// The job as the SQL face takes it: `SELECT backwave.enqueue($1)`, through whatever client the
    /// program has, inside whatever transaction.
    ///
    /// # Errors
    /// [`EnqueueError::Encode`].
    pub fn to_json(&self) -> Result<String, EnqueueError> {
        self.write().map_err(|source| EnqueueError::Encode { index: 0, source })
    }

    fn write(&self) -> Result<String, DecodeError> {
        let (delay_ms, due_at) = match self.due {
            Due::Now => (None, None),
            Due::In(delay) => (Some(millis(delay)), None),
            Due::At(due) => (None, Some(due)),
        };
        let payload = self.payload.text()?;
        DecodeError::wrap(serde_json::to_string(&Wire {
            id: self.id,
            wire_name: &self.wire_name,
            version: self.version,
            queue: &self.queue,
            payload: DecodeError::wrap(serde_json::from_str(payload))?,
            due_at,
            delay_ms,
            retry: self.retry,
            timeout_ms: self.timeout.map(millis),
            tags: &self.tags,
            parents: &self.parents,
            parent_rule: (!self.parents.is_empty()).then_some(self.parent_rule),
            unique_key: self.unique_key.as_deref(),
            concurrency_key: self.concurrency_key.as_deref(),
        }))
    }

    /// Whether nobody else can have enqueued a job under its id.
    /// What of it makes no sense for a job that is minted again and again.
    pub(crate) fn unrepeatable(&self) -> Option<&'static str> {
        if !self.is_own_id {
            Some("id")
        } else if self.due != Due::Now {
            Some("due")
        } else if !self.parents.is_empty() {
            Some("parents")
        } else if self.unique_key.is_some() {
            Some("unique key")
        } else {
            None
        }
    }

    pub(crate) const fn is_own_id(&self) -> bool {
        self.is_own_id
    }

    /// The job as stores take it.
    pub(crate) fn into_row(self) -> Result<JobRow, DecodeError> {
        let payload = match self.payload {
            Content::Encoded(body) => body,
            other => Body::new(other.text()?.as_bytes().to_vec()),
        };
        let mut row = JobRow::new(self.id, self.wire_name);
        row.version = self.version;
        row.queue = self.queue.into_owned();
        row.payload = payload;
        row.due = self.due;
        row.retry = self.retry;
        row.timeout = self.timeout;
        row.tags = self.tags;
        row.parents = self.parents;
        row.parent_rule = self.parent_rule;
        row.unique_key = self.unique_key;
        row.concurrency_key = self.concurrency_key;
        Ok(row)
    }
}

impl<J: Job> From<&J> for NewJob {
    fn from(job: &J) -> Self {
        Self::new(job)
    }
}

impl Content {
    /// The JSON text, checked.
    fn text(&self) -> Result<&str, DecodeError> {
        match self {
            Self::Encoded(body) => std::str::from_utf8(body.as_bytes())
                .map_err(|error| DecodeError::new(error.to_string())),
            Self::Raw(text) => {
                DecodeError::wrap(serde_json::from_str::<&RawValue>(text)).map(RawValue::get)
            }
            Self::Refused(message) => Err(DecodeError::new(message.as_str())),
        }
    }
}

/// Shows no payload.
impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Encoded(body) => body.fmt(f),
            Self::Raw(text) => write!(f, "Raw({} bytes)", text.len()),
            Self::Refused(message) => write!(f, "Refused({message:?})"),
        }
    }
}

#[derive(serde::Serialize)]
struct Wire<'a> {
    id: JobId,
    wire_name: &'a str,
    version: u32,
    queue: &'a str,
    payload: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    due_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<RetryPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    tags: &'a [String],
    #[serde(skip_serializing_if = "<[JobId]>::is_empty")]
    parents: &'a [JobId],
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_rule: Option<ParentRule>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unique_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency_key: Option<&'a str>,
}

/// Rounded up: a job is never due earlier, and no time limit becomes zero.
fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Measure(f64);

    impl Job for Measure {
        const WIRE_NAME: &'static str = "measure";
        const QUEUE: &'static str = "lab";
        const VERSION: u32 = 4;
        const RETRY: Option<RetryPolicy> = Some(RetryPolicy::never());
        const TIMEOUT: Option<Duration> = Some(Duration::from_secs(5));
    }

    #[test]
    fn a_job_has_what_its_type_says_and_setters_win() {
        let row = NewJob::new(&Measure(1.5)).into_row().expect("encodes");
        assert_eq!(
            (row.wire_name.as_str(), row.queue.as_str(), row.version),
            ("measure", "lab", 4)
        );
        assert_eq!(row.payload.as_bytes(), b"1.5");
        assert_eq!((row.retry, row.timeout), (Measure::RETRY, Measure::TIMEOUT));
        assert_eq!(row.due, Due::Now);

        let id = JobId::new();
        let job = NewJob::from(&Measure(0.0)).id(id).queue("other").tag("a").tag("b");
        let job = job.retry(RetryPolicy::new(9)).timeout(Duration::from_secs(1));
        let row = job.due_at(Timestamp::EPOCH).into_row().expect("encodes");
        assert_eq!((row.id, row.queue.as_str(), row.due), (id, "other", Due::At(Timestamp::EPOCH)));
        assert_eq!(row.tags, ["a", "b"]);
        assert_eq!(row.retry, Some(RetryPolicy::new(9)));
    }

    #[test]
    fn what_cannot_be_encoded_is_told_at_the_end() {
        let job = NewJob::new(&Measure(f64::NAN)).tag("kept");
        assert!(matches!(job.to_json(), Err(EnqueueError::Encode { index: 0, .. })));
        let error = job.into_row().expect_err("NaN is no JSON");
        assert_eq!(error.to_string(), "a NaN or an infinity cannot be written as JSON");
        for broken in ["", "{", "{'a':1}", "1 2", "\"\0\"", "nul"] {
            assert!(NewJob::raw("raw", broken).into_row().is_err(), "{broken:?}");
        }
    }

    #[test]
    fn raw_text_is_stored_as_it_stands() {
        let text = r#"{"b":18446744073709551615,"a":1.10,"a":"\u0000","d":1e400}"#;
        let row = NewJob::raw("raw", format!("  {text}\n")).version(2).into_row().expect("is JSON");
        assert_eq!(row.payload.as_bytes(), text.as_bytes());
        assert_eq!(row.version, 2);
    }

    #[test]
    fn the_json_for_sql_has_every_field_that_was_set() {
        let id = JobId::new();
        let job = NewJob::raw("raw", r#"{"n":1.10}"#).id(id).due_at(Timestamp::EPOCH).tag("x");
        let job = job.retry(RetryPolicy::never()).timeout(Duration::from_nanos(1));
        let job = job.unique_key("u").concurrency_key("c");
        let expected = format!(
            r#"{{"id":"{id}","wire_name":"raw","version":1,"queue":"default","payload":{{"n":1.10}},"due_at":"1970-01-01T00:00:00Z","retry":{},"timeout_ms":1,"tags":["x"],"unique_key":"u","concurrency_key":"c"}}"#,
            RetryPolicy::never().to_stored()
        );
        assert_eq!(job.to_json().expect("encodes"), expected);
    }

    #[test]
    fn debug_shows_no_payload() {
        let shown = format!("{:?}", NewJob::raw("raw", "\"secret\""));
        assert!(!shown.contains("secret"), "{shown}");
    }
}
