//! What a type must say of itself to be a job: its Wire Name, where it waits, and how its older
//! payloads are read.

use crate::kernel::text::check_name;
use crate::{DecodeError, JobError, RetryPolicy};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::time::Duration;

/// A payload that can be enqueued, stored as JSON and handed to a handler.
///
/// It owns its data (`struct Mail<'a>` cannot be a job): a handler gets it on another thread, often in
/// another process. Numbers come back bit for bit; a NaN or an infinity is refused at enqueue, since
/// JSON has none. `Some(None)` reads back as `None`, as everywhere in JSON.
///
/// ```
/// use backwave::Job;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Welcome {
///     user: u64,
/// }
///
/// impl Job for Welcome {
///     const WIRE_NAME: &'static str = "welcome";
///     const QUEUE: &'static str = "mail";
/// }
/// ```
///
/// A name that no store takes does not build:
///
/// ```compile_fail
/// use backwave::{Job, NewJob};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Welcome;
///
/// impl Job for Welcome {
///     const WIRE_NAME: &'static str = " welcome";
/// }
///
/// let _ = NewJob::new(&Welcome);
/// ```
///
/// # A payload whose shape has changed
///
/// Raise [`VERSION`](Self::VERSION) and teach [`upcast`](Self::upcast) the old shape. Groups whose
/// `VERSION` is lower do not claim the new jobs, so that a rolling deploy goes well.
///
/// ```
/// use backwave::{DecodeError, Job, Payload};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Mail {
///     to: String,
///     tenant: u32,
/// }
///
/// #[derive(Deserialize)]
/// struct MailV1 {
///     to: String,
/// }
///
/// impl Job for Mail {
///     const WIRE_NAME: &'static str = "mail";
///     const VERSION: u32 = 2;
///
///     fn upcast(version: u32, old: Payload<'_>) -> Result<Self, DecodeError> {
///         match version {
///             1 => old.decode::<MailV1>().map(|v1| Self { to: v1.to, tenant: 0 }),
///             _ => Err(DecodeError::new("no such version")),
///         }
///     }
/// }
///
/// let mail = Mail::upcast(1, Payload::new(br#"{"to":"ada"}"#)).unwrap();
/// assert_eq!((mail.to.as_str(), mail.tenant), ("ada", 0));
/// assert!(Mail::upcast(1, Payload::new(b"{}")).is_err());
/// ```
pub trait Job: Serialize + DeserializeOwned + Send + 'static {
    /// What finds the handler; stored with every job, so it stays when the type is renamed or moved.
    const WIRE_NAME: &'static str;
    /// The queue it waits in, unless [`NewJob::queue`](crate::NewJob::queue) says otherwise.
    const QUEUE: &'static str = "default";
    /// The version of its payload's shape, from 1.
    const VERSION: u32 = 1;
    /// Its retry policy, over the group's.
    const RETRY: Option<RetryPolicy> = None;
    /// How long one attempt may take before its token fires. Not zero.
    const TIMEOUT: Option<Duration> = None;

    /// Reads a payload that was stored under an older [`VERSION`](Self::VERSION).
    ///
    /// # Errors
    /// When there is no way from that version to this one. The job is then Quarantined, its payload
    /// untouched. The default knows no older version.
    fn upcast(version: u32, old: Payload<'_>) -> Result<Self, DecodeError> {
        let _ = old;
        Err(DecodeError::new(format!(
            "version {version} of its payload is older than version {} and there is no upcast",
            Self::VERSION
        )))
    }
}

/// What a handler returns. `Ok(())` is success and nothing else; every other end of an attempt is a
/// [`JobError`].
pub type JobResult = Result<(), JobError>;

/// A stored payload, before it is decoded. `Debug` shows its length only.
#[derive(Clone, Copy)]
pub struct Payload<'a>(&'a [u8]);

impl<'a> Payload<'a> {
    /// From the bytes of a JSON text.
    #[must_use]
    pub const fn new(json: &'a [u8]) -> Self {
        Self(json)
    }

    /// Decodes it.
    ///
    /// # Errors
    /// When it is no `T`.
    pub fn decode<T: DeserializeOwned>(self) -> Result<T, DecodeError> {
        DecodeError::wrap(serde_json::from_slice(self.0))
    }

    /// The bytes of the JSON text.
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

impl fmt::Debug for Payload<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.0.len())
    }
}

/// The longest name that builds: the default bound of every store.
const NAME_BYTES_MAX: usize = 128;

/// Evaluated while the program is built, by everything that takes a job's type.
pub(crate) const fn assert_well_named<J: Job>() {
    assert!(
        check_name(J::WIRE_NAME, NAME_BYTES_MAX).is_ok(),
        "Job::WIRE_NAME must have 1 to 128 bytes, no control character and no blank at either end"
    );
    assert!(
        check_name(J::QUEUE, NAME_BYTES_MAX).is_ok(),
        "Job::QUEUE must have 1 to 128 bytes, no control character and no blank at either end"
    );
    assert!(J::VERSION >= 1 && J::VERSION <= i32::MAX as u32, "Job::VERSION starts at 1");
    if let Some(timeout) = J::TIMEOUT {
        assert!(!timeout.is_zero(), "Job::TIMEOUT must not be zero");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Plain;

    impl Job for Plain {
        const WIRE_NAME: &'static str = "plain";
        const VERSION: u32 = 3;
    }

    #[test]
    fn an_unknown_older_version_is_named() {
        let refused = Plain::upcast(2, Payload::new(b"null")).err().map(|e| e.to_string());
        let expected = "version 2 of its payload is older than version 3 and there is no upcast";
        assert_eq!(refused.as_deref(), Some(expected));
    }

    #[test]
    fn a_payload_shows_its_length_and_nothing_of_its_content() {
        assert_eq!(format!("{:?}", Payload::new(b"\"secret\"")), "Payload(8 bytes)");
    }
}
