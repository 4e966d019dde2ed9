//! Observers: code of the program's that is told what becomes of jobs.
//!
//! An observer has a stable name, a [filter](TransitionFilter) and a callback. One pump in the whole fleet
//! tells it at a time, under a cursor in the store: each transition that its filter matches, at least once, in
//! order per job, none skipped. See the guide's page on observers.

mod options;
mod spawn;

pub use crate::store::{
    Failing, Observation, ObserverRecord, ObserverStart, ParkedDelivery, Parking, TransitionFilter,
};
pub use options::ObserverOptions;
pub use spawn::spawn_observers;
#[cfg(feature = "testing")]
pub(crate) use spawn::spawn_observers_on;

use crate::group::{CALL_GRACE, is_on_thread_of};
use crate::shell::observer::{Board, Callback, Message, Progress};
#[cfg(all(test, feature = "testing"))]
use crate::shell::planted::slips;
use crate::stage::Stage;
use crate::store::Subscription;
use crate::{HaltState, JobState, Timestamp};
use crossbeam_channel::Sender;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a callback returns. An error, like a panic, is a failed delivery, which is tried again.
pub type CallbackResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

impl Observation {
    /// Its place in the store's log, which no other transition has: the idempotency key of its delivery.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.transition.position
    }

    /// When the job's state changed, by the store's clock.
    #[must_use]
    pub const fn at(&self) -> Timestamp {
        self.transition.at
    }

    /// The state before; none for a birth.
    #[must_use]
    pub const fn from(&self) -> Option<JobState> {
        self.transition.from
    }

    /// The state after.
    #[must_use]
    pub const fn to(&self) -> JobState {
        self.transition.to
    }

    /// The job's attempt after it.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.transition.attempt
    }
}

/// The observers of a program, to be started with [`spawn_observers`].
///
/// ```
/// use backwave::observer::TransitionFilter;
/// use backwave::{JobState, Observers};
///
/// let filter = TransitionFilter::new().state(JobState::DeadLettered);
/// let observers = Observers::new().on("alerts", filter, |told| {
///     println!("job {} ({}) is {}", told.job, told.wire_name, told.to());
///     Ok(())
/// });
/// assert_eq!(observers.names().collect::<Vec<_>>(), ["alerts"]);
/// ```
#[must_use = "observers run once they are spawned"]
#[derive(Clone)]
pub struct Observers {
    observers: Vec<Observer>,
    budget: Duration,
}

#[derive(Clone)]
struct Observer {
    name: String,
    filter: TransitionFilter,
    options: ObserverOptions,
    callback: Arc<Callback>,
}

impl Observers {
    /// None yet.
    pub const fn new() -> Self {
        Self { observers: Vec::new(), budget: Duration::from_secs(5) }
    }

    /// Adds an observer with the default [options](ObserverOptions). `name` stands for it in the store for ever:
    /// under another name it is another observer.
    ///
    /// The callback is called with one transition at a time. It may be called from several threads, and with a
    /// transition that it was told of before.
    pub fn on<F>(self, name: impl Into<String>, filter: TransitionFilter, callback: F) -> Self
    where
        F: Fn(&Observation) -> CallbackResult + Send + Sync + 'static,
    {
        self.on_with(name, filter, ObserverOptions::new(), callback)
    }

    /// As [`Self::on`], with options of its own.
    pub fn on_with<F>(
        mut self,
        name: impl Into<String>,
        filter: TransitionFilter,
        options: ObserverOptions,
        callback: F,
    ) -> Self
    where
        F: Fn(&Observation) -> CallbackResult + Send + Sync + 'static,
    {
        let (name, callback) = (name.into(), Arc::new(callback));
        self.observers.push(Observer { name, filter, options, callback });
        self
    }

    /// How long a clean stop waits for callbacks that run. Default 5 s. What is told when it is over is told again.
    pub const fn shutdown_budget(mut self, budget: Duration) -> Self {
        self.budget = budget;
        self
    }

    /// Their names, in the order in which they were added.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.observers.iter().map(|observer| observer.name.as_str())
    }
}

impl Default for Observers {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observers")
            .field("names", &self.names().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// Running observers. Dropping it stops them: hold it as long as they are to be told.
///
/// All methods take `&self`, so an `Arc<ObserverPump>` works in a signal handler.
#[must_use = "dropping an ObserverPump stops its observers"]
pub struct ObserverPump {
    id: u64,
    stage: Stage,
    names: Vec<Arc<str>>,
    inboxes: Vec<Sender<Message>>,
    board: Arc<Board>,
    budget: Duration,
    /// Hints end with the handle; the pumps end soon after.
    subscriptions: Vec<Subscription>,
}

/// How an observer's pump in this process fares. Its cursor, and how far it is behind, are in the store:
/// [`Monitor::observers`](crate::monitor::Monitor::observers).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ObserverReport {
    /// The observer.
    pub observer: String,
    /// Whether it holds the cursor. At most one pump of the fleet does; the others stand by.
    pub is_holding: bool,
    /// How many deliveries succeeded, repeated ones included.
    pub delivered: u64,
    /// How many failed.
    pub failed: u64,
    /// How many were parked.
    pub parked: u64,
    /// What went wrong at the last failure, as the callback said it. No log line repeats it.
    pub last_failure: Option<String>,
    /// How many callbacks took too long and still run. At four nothing is delivered here, and the cursor is
    /// given up, until one ends.
    pub left_behind: u32,
    /// Whether the pump has ended, and how.
    pub end: Option<ObserverEnd>,
}

/// How an observer's pump came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObserverEnd {
    /// It was asked to stop.
    Stopped,
    /// By a fault that is not shown to be transient. Its cursor lapses to another node.
    Fault(HaltState),
}

impl ObserverPump {
    /// Asks for a clean stop and returns at once. Asking again changes nothing.
    pub fn begin_shutdown(&self) {
        for inbox in &self.inboxes {
            // A pump that is gone has ended already.
            let _ = inbox.send(Message::Stop);
        }
    }

    /// Stops cleanly and waits for the end: delivers nothing more, waits for callbacks that run up to the
    /// budget, writes what was delivered, gives the cursors up. A report without an end is of a pump that
    /// has not answered in time, because it hangs in a call of the store.
    ///
    /// Several threads may call it. On a thread of these observers (in a callback) it asks for the stop and
    /// returns at once: nobody waits for himself.
    pub fn shutdown(&self) -> Vec<ObserverReport> {
        self.begin_shutdown();
        #[cfg(all(test, feature = "testing"))]
        if slips!(WaitsForItself) {
            let board = Arc::clone(&self.board);
            let ended = move || board.all().iter().all(|progress| progress.ended.is_some());
            self.stage.park_until(ended);
        }
        // What is simulated goes on only when its caller lets it.
        if is_on_thread_of(self.id) || self.stage.is_simulated() {
            return self.reports();
        }
        let deadline = Instant::now().checked_add(self.budget.saturating_add(CALL_GRACE));
        self.report(self.board.wait_ended(deadline))
    }

    /// Whether each has ended or rests: has nothing to tell, and nothing to try again.
    #[cfg(feature = "testing")]
    pub(crate) fn rests(&self) -> bool {
        self.board.all().iter().all(|pump| pump.is_resting || pump.ended.is_some())
    }

    /// How each observer fares, in the order in which they were added. Reads memory, never blocks on the store.
    #[must_use]
    pub fn reports(&self) -> Vec<ObserverReport> {
        self.report(self.board.all())
    }

    fn report(&self, pumps: Vec<Progress>) -> Vec<ObserverReport> {
        let report = |(name, progress): (&Arc<str>, Progress)| ObserverReport {
            observer: name.as_ref().to_owned(),
            is_holding: progress.is_holding,
            delivered: progress.delivered,
            failed: progress.failed,
            parked: progress.parked,
            last_failure: progress.last_failure,
            left_behind: progress.left_behind,
            end: progress.ended.map(|fault| fault.map_or(ObserverEnd::Stopped, ObserverEnd::Fault)),
        };
        self.names.iter().zip(pumps).map(report).collect()
    }
}

impl Drop for ObserverPump {
    fn drop(&mut self) {
        let _reports = self.shutdown();
    }
}

impl fmt::Debug for ObserverPump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObserverPump").field("observers", &self.names).finish_non_exhaustive()
    }
}
