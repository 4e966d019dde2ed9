//! How an attempt ends that does not succeed.
//!
//! One fixed type, which is no [`std::error::Error`] itself, so that everything that converts into a
//! boxed error goes through `?`: std errors, `anyhow`, `eyre`, `String`, `&str`. Two kinds of errors
//! keep their meaning however deep they are wrapped: a cancellation ([`Cancelled`]) and a violated
//! invariant. Wrappers may hide the outer type of either, so their sources are looked for as well.

use crate::contain::contained;
use crate::invariant::{InvariantTrigger, InvariantViolation, find_trigger};
use crate::kernel::text::clean;
use crate::{CancelReason, Cancelled, Verdict};
use std::error::Error;
use std::fmt::{self, Write};
use std::time::Duration;

type BoxError = Box<dyn Error + Send + Sync>;

/// How an attempt ends that does not succeed: why, and what is to become of the job.
///
/// A plain error (`?`) is a failed attempt that the retry policy decides about.
///
/// ```
/// use backwave::{JobError, JobResult, Verdict};
/// use std::time::Duration;
///
/// fn charge(amount: &str) -> JobResult {
///     let cents: u64 = amount.parse()?;
///     match cents {
///         0 => Err(JobError::cancel("nothing to charge")),
///         1..100_000 => Ok(()),
///         _ => Err(JobError::snooze(Duration::from_secs(60))),
///     }
/// }
///
/// assert!(charge("12").is_ok());
/// assert_eq!(charge("twelve").unwrap_err().verdict(), Verdict::Retry);
/// assert_eq!(charge("0").unwrap_err().verdict(), Verdict::Cancel);
/// ```
pub struct JobError(Box<Inner>);

struct Inner {
    wish: Wish,
    error: Option<BoxError>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Retry,
    RetryIn(Duration),
    Discard,
    Cancel,
    Snooze(Duration),
}

impl JobError {
    /// A failure that the retry policy decides about; what `?` makes.
    #[must_use]
    pub fn retry(error: impl Into<BoxError>) -> Self {
        Self::of(Wish::Retry, Some(error.into()))
    }

    /// A failure after which the job waits for `delay`, whatever the policy's delay.
    #[must_use]
    pub fn retry_in(delay: Duration, error: impl Into<BoxError>) -> Self {
        Self::of(Wish::RetryIn(delay), Some(error.into()))
    }

    /// A failure that no retry can mend: the job is Dead-Lettered.
    #[must_use]
    pub fn discard(error: impl Into<BoxError>) -> Self {
        Self::of(Wish::Discard, Some(error.into()))
    }

    /// No failure: there is nothing to do, and the job is Cancelled.
    #[must_use]
    pub fn cancel(reason: impl Into<BoxError>) -> Self {
        Self::of(Wish::Cancel, Some(reason.into()))
    }

    /// No failure: the job runs again after `delay`.
    #[must_use]
    pub fn snooze(delay: Duration) -> Self {
        Self::of(Wish::Snooze(delay), None)
    }

    fn of(wish: Wish, error: Option<BoxError>) -> Self {
        Self(Box::new(Inner { wish, error }))
    }

    /// What is to become of the job. An error that stems from a cancellation says so, however it was
    /// wrapped and whatever constructor it went through: a discarded `ctx.sleep()` would Dead-Letter
    /// jobs at every deploy.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if let Some(reason) = self.cancel_reason() {
            return Verdict::GaveWay(reason);
        }
        match self.0.wish {
            Wish::Retry => Verdict::Retry,
            Wish::RetryIn(delay) => Verdict::RetryIn(delay),
            Wish::Discard => Verdict::Discard,
            Wish::Cancel => Verdict::Cancel,
            Wish::Snooze(delay) => Verdict::Snooze(delay),
        }
    }

    /// The error it was made from, if there was one.
    #[must_use]
    pub fn error(&self) -> Option<&(dyn Error + 'static)> {
        self.0.error.as_deref().map(|error| error as &(dyn Error + 'static))
    }

    /// The violated invariant in its chain. Such an error halts the pump, whatever its verdict.
    pub(crate) fn trigger(&self) -> Option<InvariantTrigger> {
        self.error().and_then(|error| contained(|| find_trigger(error)).flatten())
    }

    /// What is known of the violated invariant in its chain. Behind a wrapper that hides the violation
    /// itself, its message is taken from the text of the link above the trigger.
    pub(crate) fn violation(&self) -> Option<ViolationSeen> {
        ViolationSeen::in_chain(self.error()?)
    }

    /// The error and its chain as one text, `a: b: c`, without links whose text has been said already;
    /// empty where there is no error.
    pub(crate) fn detail(&self, bytes_max: usize) -> String {
        let mut text = String::new();
        if let Some(error) = self.error() {
            let written = contained(|| write_chain(error, &mut text, bytes_max));
            if written.is_none() {
                let separator = if text.is_empty() { "" } else { ": " };
                let note = format!("{separator}the error's own Display panicked");
                text.truncate(boundary(&text, bytes_max.saturating_sub(note.len())));
                text.push_str(&note);
            }
        }
        clean(&text, bytes_max)
    }

    /// Drops it, containing a panic of the error's own `Drop`.
    pub(crate) fn dispose(self) {
        crate::contain::dispose(self.0);
    }

    fn cancel_reason(&self) -> Option<CancelReason> {
        self.error().and_then(|error| contained(|| cancel_reason(error)).flatten())
    }

    fn is_plain(&self) -> bool {
        self.verdict() == Verdict::Retry && self.trigger().is_none()
    }

    fn or(mut self, wish: Wish) -> Self {
        if self.is_plain() {
            self.0.wish = wish;
        }
        self
    }
}

impl<E: Into<BoxError>> From<E> for JobError {
    fn from(error: E) -> Self {
        Self::retry(error)
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0.error, self.0.wish) {
            (Some(error), _) => fmt::Display::fmt(error, f),
            (None, Wish::Snooze(delay)) => write!(f, "snoozed for {delay:?}"),
            (None, _) => f.write_str("the attempt failed"),
        }
    }
}

impl fmt::Debug for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobError")
            .field("wish", &self.0.wish)
            .field("error", &self.0.error)
            .finish()
    }
}

/// A violated invariant as far as an error chain still shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ViolationSeen {
    pub(crate) trigger: InvariantTrigger,
    pub(crate) message: String,
    pub(crate) type_name: &'static str,
}

impl ViolationSeen {
    /// Looks through an error and its sources.
    pub(crate) fn in_chain(error: &(dyn Error + 'static)) -> Option<Self> {
        let trigger = contained(|| find_trigger(error)).flatten()?;
        let message = contained(|| violation_message(error)).unwrap_or_default();
        Some(Self {
            trigger,
            message: clean(&message, VIOLATION_BYTES_MAX),
            type_name: std::any::type_name::<InvariantViolation>(),
        })
    }
}

/// Gives a plain error a verdict on its way through `?`. It only ever replaces a plain
/// [`Verdict::Retry`]: never a verdict given before, a cancellation or a violated invariant.
///
/// ```
/// use backwave::{CancelReason, ContextBuilder, JobError, JobResultExt, Verdict};
/// use std::time::Duration;
///
/// let parsed = "twelve".parse::<u64>().or_discard();
/// assert_eq!(parsed.unwrap_err().verdict(), Verdict::Discard);
///
/// let snoozed: Result<(), _> = Err(JobError::snooze(Duration::from_secs(1)));
/// assert_eq!(snoozed.or_discard().unwrap_err().verdict(), Verdict::Snooze(Duration::from_secs(1)));
///
/// let context = ContextBuilder::new().cancelled(CancelReason::OperatorRequest).build();
/// let slept = context.sleep(Duration::from_secs(9)).or_discard();
/// assert_eq!(slept.unwrap_err().verdict(), Verdict::GaveWay(CancelReason::OperatorRequest));
/// ```
pub trait JobResultExt<T> {
    /// No retry can mend it: Dead-Lettered.
    ///
    /// # Errors
    /// The error, with its verdict.
    fn or_discard(self) -> Result<T, JobError>;

    /// No failure: runs again after `delay`.
    ///
    /// # Errors
    /// The error, with its verdict.
    fn or_snooze(self, delay: Duration) -> Result<T, JobError>;

    /// A failure, tried again after `delay`.
    ///
    /// # Errors
    /// The error, with its verdict.
    fn or_retry_in(self, delay: Duration) -> Result<T, JobError>;
}

impl<T, E: Into<JobError>> JobResultExt<T> for Result<T, E> {
    fn or_discard(self) -> Result<T, JobError> {
        self.map_err(|error| error.into().or(Wish::Discard))
    }

    fn or_snooze(self, delay: Duration) -> Result<T, JobError> {
        self.map_err(|error| error.into().or(Wish::Snooze(delay)))
    }

    fn or_retry_in(self, delay: Duration) -> Result<T, JobError> {
        self.map_err(|error| error.into().or(Wish::RetryIn(delay)))
    }
}

const VIOLATION_BYTES_MAX: usize = 1024;
/// A chain that loops would be a bug of its author; it must not hang the worker that looks.
const LINKS_MAX: usize = 64;

fn chain<'e>(
    error: &'e (dyn Error + 'static),
) -> impl Iterator<Item = &'e (dyn Error + 'static)> + 'e {
    std::iter::successors(Some(error), |&link| link.source()).take(LINKS_MAX)
}

fn cancel_reason(error: &(dyn Error + 'static)) -> Option<CancelReason> {
    chain(error).find_map(|link| {
        let cancelled = link.downcast_ref().map(|cancelled: &Cancelled| cancelled.reason);
        cancelled.or_else(|| link.downcast_ref().copied())
    })
}

fn violation_message(error: &(dyn Error + 'static)) -> String {
    let mut above = String::new();
    for link in chain(error) {
        if let Some(violation) = link.downcast_ref::<InvariantViolation>() {
            return violation.message().to_owned();
        }
        if link.is::<InvariantTrigger>() {
            break;
        }
        above.clear();
        // Ends early only where the text is longer than what is kept.
        let _ = write!(Bounded { text: &mut above, bytes_max: VIOLATION_BYTES_MAX }, "{link}");
    }
    match above.split_once("an invariant does not hold: ") {
        Some((_, message)) => message.to_owned(),
        None => above,
    }
}

fn write_chain(error: &(dyn Error + 'static), text: &mut String, bytes_max: usize) {
    for link in chain(error) {
        let before = text.len();
        if before > 0 {
            text.push_str(": ");
        }
        let start = text.len();
        let is_whole = write!(Bounded { text: &mut *text, bytes_max }, "{link}").is_ok();
        if text[..before].contains(&text[start..]) {
            text.truncate(before);
        } else if !is_whole {
            return;
        }
    }
}

/// Keeps the first bytes of a text and refuses the rest, so that a message of 100 MB costs no more than
/// what is kept of it.
struct Bounded<'t> {
    text: &'t mut String,
    bytes_max: usize,
}

impl Write for Bounded<'_> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let room = self.bytes_max.saturating_sub(self.text.len());
        self.text.push_str(&part[..boundary(part, room)]);
        if part.len() > room { Err(fmt::Error) } else { Ok(()) }
    }
}

/// The last character boundary of `text` that is not after `index`.
fn boundary(text: &str, index: usize) -> usize {
    let index = index.min(text.len());
    (0..=index).rev().find(|&index| text.is_char_boundary(index)).unwrap_or(0)
}

#[cfg(test)]
#[path = "job_error_tests.rs"]
mod tests;
