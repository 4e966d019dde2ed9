//! Wire Name to handler: what a Worker Group can run.
//!
//! A handler is a plain function, method or closure; there is no trait to implement. The registry
//! erases its job's type: what the shell calls gets bytes and first decodes them, in a net of its own,
//! so that a payload that does not decode is told apart from a handler that fails.

use crate::kernel::text::clean;
use crate::{DecodeError, Job, JobContext, JobResult, Payload};
use std::any::Any;
use std::collections::BTreeMap;
use std::error::Error as _;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// The handlers of a Worker Group, by Wire Name.
///
/// ```
/// use backwave::{ContextBuilder, Job, JobContext, JobResult, Registry};
/// use serde::{Deserialize, Serialize};
/// use std::sync::Arc;
///
/// #[derive(Serialize, Deserialize)]
/// struct Greet {
///     name: String,
/// }
/// # impl Job for Greet { const WIRE_NAME: &'static str = "greet"; }
/// # #[derive(Serialize, Deserialize)]
/// # struct Welcome { user: u64 }
/// # impl Job for Welcome { const WIRE_NAME: &'static str = "welcome"; }
///
/// struct Mailer;
///
/// impl Mailer {
///     fn welcome(&self, ctx: &JobContext, job: Welcome) -> JobResult {
///         println!("attempt {}: welcome, user {}", ctx.attempt(), job.user);
///         Ok(())
///     }
/// }
///
/// let mailer = Arc::new(Mailer);
/// let registry = Registry::new()
///     .handle(|ctx, job: Greet| {
///         println!("attempt {}: hello {}", ctx.attempt(), job.name);
///         Ok(())
///     })
///     .handle_with(&mailer, Mailer::welcome);
/// let manifest = registry.manifest().unwrap();
/// assert_eq!(manifest.to_string(), "greet v1 default\nwelcome v1 default\n");
/// ```
///
/// # What a panic means
///
/// A handler that panics has failed its attempt, and so has one whose own values panic as they are
/// dropped, be it after its last line: nothing is recorded as succeeded that did not end in peace.
#[derive(Clone, Default)]
#[must_use = "a registry does nothing until a group is spawned with it"]
pub struct Registry {
    drafts: Vec<Draft>,
    arounds: Vec<Around>,
}

type Around = Arc<dyn Fn(&JobContext, &mut dyn FnMut() -> JobResult) -> JobResult + Send + Sync>;
type Bare = dyn Fn(&[Around], &JobContext, u32, &[u8]) -> Run + Send + Sync;

#[derive(Clone)]
struct Draft {
    listing: ManifestEntry,
    run: Arc<Bare>,
    /// What wraps it, where it came by [`Registry::merge`]; else the registry's own.
    arounds: Option<Arc<[Around]>>,
}

impl Registry {
    /// A registry without handlers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a handler for `J`. A bad name does not build:
    ///
    /// ```compile_fail
    /// # use backwave::{Job, Registry};
    /// # #[derive(serde::Serialize, serde::Deserialize)]
    /// # struct Welcome;
    /// impl Job for Welcome {
    ///     const WIRE_NAME: &'static str = "welcome";
    ///     const QUEUE: &'static str = "";
    /// }
    ///
    /// let registry = Registry::new().handle(|_, _: Welcome| Ok(()));
    /// ```
    pub fn handle<J: Job, F>(mut self, handler: F) -> Self
    where
        F: Fn(&JobContext, J) -> JobResult + Send + Sync + 'static,
    {
        const { crate::job::assert_well_named::<J>() };
        self.drafts.push(Draft {
            listing: ManifestEntry {
                wire_name: J::WIRE_NAME,
                queue: J::QUEUE,
                version: J::VERSION,
            },
            run: Arc::new(move |arounds, context, version, payload| {
                run(&handler, arounds, context, version, payload)
            }),
            arounds: None,
        });
        self
    }

    /// Adds a handler for `J` that works on shared state: `Mailer::welcome` fits as it is, and so does
    /// an `Arc<dyn Gateway>`. A free function then takes a `&(dyn Gateway + 'static)`; a plain
    /// `&dyn Gateway` would promise less than the `Arc` holds, and is refused.
    pub fn handle_with<S, J, F>(self, state: &Arc<S>, handler: F) -> Self
    where
        S: ?Sized + Send + Sync + 'static,
        J: Job,
        F: Fn(&S, &JobContext, J) -> JobResult + Send + Sync + 'static,
    {
        let state = Arc::clone(state);
        self.handle(move |context, job: J| handler(&state, context, job))
    }

    /// Wraps every handler of this registry, those added later included; the first one added is the
    /// outermost. `next` runs what is inside; what the wrapper returns is how the attempt ended.
    ///
    /// ```
    /// # use backwave::Registry;
    /// let registry = Registry::new().around(|ctx, next| {
    ///     let result = next();
    ///     println!("{} ended: {:?}", ctx.job_id(), result);
    ///     result
    /// });
    /// ```
    pub fn around<F>(mut self, wrapper: F) -> Self
    where
        F: Fn(&JobContext, &mut dyn FnMut() -> JobResult) -> JobResult + Send + Sync + 'static,
    {
        self.arounds.push(Arc::new(wrapper));
        self
    }

    /// Adds the handlers of another registry. Each keeps the wrappers it has, and gets no others.
    pub fn merge(mut self, other: Self) -> Self {
        let theirs: Arc<[Around]> = other.arounds.into();
        self.drafts.extend(other.drafts.into_iter().map(|draft| Draft {
            arounds: Some(draft.arounds.unwrap_or_else(|| Arc::clone(&theirs))),
            ..draft
        }));
        self
    }

    /// What the registry can run, by Wire Name: for a test that a deploy forgets none.
    ///
    /// # Errors
    /// When two handlers have one Wire Name.
    pub fn manifest(&self) -> Result<Manifest, DuplicateWireName> {
        let entries = self.entries()?;
        let listings = entries.iter().map(|entry| ManifestEntry {
            wire_name: entry.wire_name,
            queue: entry.queue,
            version: entry.version,
        });
        Ok(Manifest { entries: listings.collect() })
    }

    /// The handlers as the shell runs them, by ascending Wire Name.
    pub(crate) fn entries(&self) -> Result<Vec<Arc<Entry>>, DuplicateWireName> {
        let own: Arc<[Around]> = self.arounds.as_slice().into();
        let mut entries = BTreeMap::new();
        for draft in &self.drafts {
            let wire_name = draft.listing.wire_name;
            let entry = draft.entry(draft.arounds.as_ref().unwrap_or(&own));
            if entries.insert(wire_name, Arc::new(entry)).is_some() {
                return Err(DuplicateWireName { wire_name });
            }
        }
        Ok(entries.into_values().collect())
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.drafts.iter().map(|draft| draft.listing.wire_name);
        f.debug_set().entries(names).finish()
    }
}

impl Draft {
    fn entry(&self, arounds: &Arc<[Around]>) -> Entry {
        let (run, arounds) = (Arc::clone(&self.run), Arc::clone(arounds));
        let ManifestEntry { wire_name, queue, version } = self.listing;
        Entry {
            wire_name,
            queue,
            version,
            run: Arc::new(move |context, version, payload| {
                run(&arounds, context, version, payload)
            }),
        }
    }
}

/// What a [`Registry`] can run, ordered by Wire Name. Prints one line per handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    entries: Vec<ManifestEntry>,
}

/// One handler of a [`Manifest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ManifestEntry {
    /// The Wire Name it handles.
    pub wire_name: &'static str,
    /// The queue its jobs wait in unless enqueued into another.
    pub queue: &'static str,
    /// The newest payload version it reads.
    pub version: u32,
}

impl Manifest {
    /// The handlers, by ascending Wire Name.
    #[must_use]
    pub fn entries(&self) -> &[ManifestEntry] {
        &self.entries
    }
}

impl fmt::Display for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entries.iter().try_for_each(|entry| {
            writeln!(f, "{} v{} {}", entry.wire_name, entry.version, entry.queue)
        })
    }
}

/// Two handlers of one registry have one Wire Name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("two handlers are registered for the wire name {wire_name:?}")]
#[non_exhaustive]
pub struct DuplicateWireName {
    /// The name.
    pub wire_name: &'static str,
}

/// A handler as the shell runs it.
pub(crate) struct Entry {
    pub(crate) wire_name: &'static str,
    pub(crate) queue: &'static str,
    pub(crate) version: u32,
    /// Decodes a payload of that version and runs the handler with it. A panic of the handler or of a
    /// wrapper passes through.
    pub(crate) run: Arc<RunEntry>,
}

pub(crate) type RunEntry = dyn Fn(&JobContext, u32, &[u8]) -> Run + Send + Sync;

/// How a run ended.
pub(crate) enum Run {
    /// Nothing of the handler ran; why not, as cleaned text without anything of the payload.
    Undecodable(String),
    /// The handler returned.
    Done(JobResult),
}

/// What a panic's payload says, cleaned.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> String {
    let message = payload
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    clean(message.unwrap_or("a panic without a message"), DETAIL_BYTES_MAX)
}

const DETAIL_BYTES_MAX: usize = 8 * 1024;

fn run<J: Job>(
    handler: &impl Fn(&JobContext, J) -> JobResult,
    arounds: &[Around],
    context: &JobContext,
    version: u32,
    payload: &[u8],
) -> Run {
    let mut first = match decode_contained::<J>(version, payload) {
        Ok(job) => Some(job),
        Err(detail) => return Run::Undecodable(detail),
    };
    let mut innermost = || {
        // A wrapper may call `next` again, and the job was moved into the handler: it is read anew.
        let job = match first.take() {
            Some(job) => job,
            None => decode(version, payload)?,
        };
        handler(context, job)
    };
    let ended = catch_unwind(AssertUnwindSafe(|| wrap(arounds, context, &mut innermost)));
    // Left over where a wrapper did not call `next`. Its drop is the user's code: a panic in it must
    // not take the verdict along, nor meet the unwinding of another one, which would end the process.
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(first))) {
        crate::contain::dispose(second);
    }
    match ended {
        Ok(result) => Run::Done(result),
        Err(panic) => resume_unwind(panic),
    }
}

fn wrap(
    arounds: &[Around],
    context: &JobContext,
    inside: &mut dyn FnMut() -> JobResult,
) -> JobResult {
    match arounds.split_first() {
        None => inside(),
        Some((outermost, rest)) => outermost(context, &mut || wrap(rest, context, inside)),
    }
}

fn decode<J: Job>(version: u32, payload: &[u8]) -> Result<J, DecodeError> {
    let payload = Payload::new(payload);
    if version == J::VERSION {
        payload.decode()
    } else if version < J::VERSION {
        J::upcast(version, payload)
    } else {
        Err(DecodeError::new(format!("this program reads versions up to {}", J::VERSION)))
    }
}

fn decode_contained<J: Job>(version: u32, payload: &[u8]) -> Result<J, String> {
    let detail = match catch_unwind(AssertUnwindSafe(|| decode(version, payload))) {
        Ok(Ok(job)) => return Ok(job),
        Ok(Err(error)) => explain(&error),
        Err(panic) => {
            let message = panic_message(panic.as_ref());
            crate::contain::dispose(panic);
            format!("its Deserialize panicked: {message}")
        }
    };
    let whole = format!("payload version {version} cannot be decoded: {detail}");
    Err(clean(&whole, DETAIL_BYTES_MAX))
}

/// The error, and of its source only what names a field of the type: the rest of what `serde` says may
/// quote the payload.
fn explain(error: &DecodeError) -> String {
    let source = error.source().map(ToString::to_string).unwrap_or_default();
    let names_a_field =
        source.starts_with("missing field") || source.starts_with("duplicate field");
    if names_a_field { format!("{error}: {source}") } else { error.to_string() }
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
