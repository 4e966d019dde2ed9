//! The enqueue side: how a program puts jobs in and asks after them.
//!
//! Nothing here touches a session on the caller's thread ([`threads`]): a client can be called, cloned
//! and dropped anywhere, also within an async runtime. A violated invariant comes back as a value, so
//! that a program built with `panic = "abort"` may enqueue.

pub(crate) mod enqueue;
mod gather;
mod graph;
mod threads;
mod ticket;

use crate::monitor::Monitor;
use crate::operator::Operator;
use crate::schedule::Schedules;
use crate::store::JobRecord;
use crate::store::{Session, Store, StoreError};
use crate::{EnqueueError, Enqueued, Error, JobId, NewJob, error};
use gather::Gather;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use threads::{Threads, TryError};

/// Enqueues jobs and asks after them. Clones are the same client; it opens nothing until it is used.
///
/// Every call blocks until it has its answer, or until transient faults have lasted through four tries
/// or for about ten seconds. A call that hangs, since the network swallows everything and closes nothing,
/// is given up ten seconds after three times as long as the store lets a call take. From async code that blocks the thread it is called on, and is sound.
///
/// ```
/// use backwave::{Client, Job, MemoryStore};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Greet {
///     name: String,
/// }
///
/// impl Job for Greet {
///     const WIRE_NAME: &'static str = "greet";
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::new(MemoryStore::new());
/// let job = client.enqueue(&Greet { name: "Ada".into() })?;
/// assert!(job.is_new);
/// assert_eq!(client.monitor().job(job.id)?.payload.as_bytes(), br#"{"name":"Ada"}"#);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    threads: Threads,
    gather: Gather,
}

impl Client {
    /// A client on `store`.
    #[must_use]
    pub fn new(store: impl Store) -> Self {
        Self::from_shared(Arc::new(store))
    }

    pub(crate) fn from_shared(store: Arc<dyn Store>) -> Self {
        let threads = Threads::new(Arc::clone(&store), threads::IDLE);
        Self(Arc::new(Inner { store, threads, gather: Gather::default() }))
    }

    /// Enqueues one job. A job whose id exists already is left as it is, and told as not new.
    ///
    /// What several threads enqueue through clones of one client at the same time goes to the store together, in one
    /// transaction; a call that meets no other one waits for nobody. Each caller gets the answer to its own call.
    ///
    /// # Errors
    /// [`EnqueueError`]; except for [`EnqueueError::OutcomeUnknown`], nothing was stored.
    pub fn enqueue(&self, job: impl Into<NewJob>) -> Result<Enqueued, EnqueueError> {
        let answered = self.enqueue_many([job.into()])?;
        // One answer per job was checked where the answer came in.
        answered.first().copied().ok_or(EnqueueError::ThreadGone)
    }

    /// Enqueues jobs, all of them or none, in one call to the store; one answer per job, in order.
    ///
    /// ```
    /// # use backwave::{Client, EnqueueError, MemoryStore, NewJob};
    /// let client = Client::new(MemoryStore::new());
    /// let bad = NewJob::raw("resize", "{}").queue("");
    /// let refused = client.enqueue_many([NewJob::raw("resize", "{}"), bad]);
    /// assert!(matches!(refused, Err(EnqueueError::Rejected { index: 1, .. })));
    /// assert!(client.monitor().counts().unwrap().is_empty());
    /// ```
    ///
    /// # Errors
    /// [`EnqueueError`]; except for [`EnqueueError::OutcomeUnknown`], nothing was stored.
    pub fn enqueue_many(
        &self,
        jobs: impl IntoIterator<Item = impl Into<NewJob>>,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let batch = enqueue::Batch::of(jobs)?;
        self.send(&batch)
    }

    /// Waits until the job has ended, and returns it; at most for `patience`.
    ///
    /// It hears at once of what groups of this process settle, and polls for the rest: after 20 ms,
    /// then ever more rarely, down to twice a second.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::WaitTimedOut`] with the state it has; or a failed read.
    pub fn wait(&self, id: JobId, patience: Duration) -> Result<JobRecord, Error> {
        let deadline = Instant::now().checked_add(patience);
        let mut poll = POLL_FIRST;
        loop {
            let seen = self.hub().settled_count();
            let record = self.monitor().job(id)?;
            if record.state.is_terminal() {
                return Ok(record);
            }
            let now = Instant::now();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Err(Error::WaitTimedOut { id, state: record.state });
            }
            let next = now + poll;
            self.hub().wait_settled(seen, deadline.map_or(next, |deadline| deadline.min(next)));
            poll = POLL_MAX.min(poll * 2);
        }
    }

    /// Tells the groups of this process that `queue` has work, and its observers that something was written:
    /// after a commit that enqueued inside a transaction of the caller's own. A hint; without it the next
    /// poll finds the jobs.
    pub fn wake(&self, queue: &str) {
        enqueue::wake(self.hub(), queue, Duration::ZERO);
        self.hub().transitions_written();
    }

    /// Reading: single jobs and counts.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        Monitor::new(self.clone())
    }

    /// What an operator does to jobs, in the name of `actor`.
    #[must_use]
    pub fn operator(&self, actor: impl Into<String>) -> Operator {
        Operator::new(self.clone(), actor.into())
    }

    /// Recurring schedules: declared, changed and read.
    ///
    /// ```
    /// use backwave::schedule::Schedule;
    /// use backwave::{Client, MemoryStore, NewJob};
    ///
    /// let client = Client::new(MemoryStore::new());
    /// let nightly = Schedule::cron("nightly", "30 2 * * *", NewJob::raw("report", "{}"));
    /// client.schedules().declare("shop", [nightly.zone("Europe/Zurich")])?;
    /// assert_eq!(client.schedules().list()?[0].name, "nightly");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn schedules(&self) -> Schedules {
        Schedules::new(self.clone())
    }

    pub(crate) fn bounds(&self) -> &crate::store::Bounds {
        self.0.store.bounds()
    }

    pub(crate) fn schedules_changed(&self) {
        enqueue::schedules_changed(self.hub());
    }

    pub(crate) fn queue_bytes_max(&self) -> usize {
        self.0.store.bounds().queue_bytes_max
    }

    /// Has those who [`wait`](Self::wait) in this process look again.
    pub(crate) fn settled(&self) {
        self.hub().settled();
    }

    pub(crate) fn hub(&self) -> &crate::store::Hub {
        self.0.store.hub()
    }

    /// Carries out one idempotent call on a session thread, again after transient faults.
    pub(crate) fn call<R: Send + 'static>(
        &self,
        call: impl Fn(&mut dyn Session) -> Result<R, StoreError> + Send + Sync + 'static,
    ) -> Result<Answered<R>, CallError> {
        self.call_again(Instant::now(), None, false, call)
    }

    /// The same where something may have come before, since it `began`: a first try, or what left a doubt whether
    /// the call was carried out.
    fn call_again<R: Send + 'static>(
        &self,
        began: Instant,
        mut first: Option<Result<R, TryError>>,
        mut in_doubt: bool,
        call: impl Fn(&mut dyn Session) -> Result<R, StoreError> + Send + Sync + 'static,
    ) -> Result<Answered<R>, CallError> {
        let call = Arc::new(call);
        let give_up = began + PATIENCE;
        let mut pause = PAUSE_FIRST;
        for tries_left in (0..TRIES_MAX).rev() {
            let call = Arc::clone(&call);
            let run = || self.0.threads.run(move |session| call(session));
            let error = match first.take().unwrap_or_else(run) {
                Ok(answer) => return Ok(Answered { answer, in_doubt }),
                Err(TryError::NoThread(error)) => return Err(CallError::NoThread(error)),
                Err(TryError::ThreadGone) => return Err(CallError::ThreadGone),
                Err(TryError::Store { error, may_be_done }) => {
                    in_doubt |= may_be_done;
                    error
                }
            };
            let is_transient = error::is_transient(&self.0.store, &error);
            if !is_transient || tries_left == 0 || Instant::now() + pause >= give_up {
                return Err(CallError::Store { error, in_doubt });
            }
            // On the caller's thread: a session thread that slept would keep others waiting.
            std::thread::sleep(pause);
            pause *= 4;
        }
        // Not reached: the last try returns.
        Err(CallError::ThreadGone)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// An answer; `in_doubt` where an earlier try may have been carried out as well.
pub(crate) struct Answered<R> {
    pub(crate) answer: R,
    pub(crate) in_doubt: bool,
}

/// Why a call has no answer.
pub(crate) enum CallError {
    NoThread(std::io::Error),
    ThreadGone,
    /// The last fault, and whether some try may have been carried out.
    Store {
        error: StoreError,
        in_doubt: bool,
    },
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        match error {
            CallError::NoThread(error) => Self::NoThread(error),
            CallError::ThreadGone => Self::ThreadGone,
            CallError::Store { error, .. } => error.into(),
        }
    }
}

const POLL_FIRST: Duration = Duration::from_millis(20);
const POLL_MAX: Duration = Duration::from_millis(500);
/// One try and three repeats, with pauses of 50, 200 and 800 ms.
const TRIES_MAX: u32 = 4;
const PAUSE_FIRST: Duration = Duration::from_millis(50);
/// No repeat begins later than this after the call.
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
