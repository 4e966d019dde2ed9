//! Where the threads of a group run and which time they go by: the process itself with its clocks, or, in
//! tests, a simulated one in which time is virtual and one thread runs at a time.
//!
//! Everything in a group that waits, waits here; everything that asks for the time, asks here. So the same
//! code runs in production, in the harness and in the simulator.

use crate::Timestamp;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use std::io;
use std::sync::LazyLock;
use std::thread::{self, JoinHandle};
use std::time::{Instant, SystemTime};

/// See the module's documentation. Clones are the same stage.
#[derive(Clone, Default)]
pub(crate) enum Stage {
    #[default]
    Process,
    #[cfg(feature = "testing")]
    Simulated(std::sync::Arc<dyn Simulated>),
}

/// What a simulated process offers. Virtual instants count from [`ANCHOR`].
#[cfg(feature = "testing")]
pub(crate) trait Simulated: Send + Sync {
    fn now(&self) -> Instant;

    fn wall(&self) -> Timestamp;

    /// Lets others run until the time has come or `is_ready` holds.
    fn park(&self, until: Option<Instant>, is_ready: Box<dyn Fn() -> bool + Send>);

    fn spawn(&self, name: String, actor: Box<dyn FnOnce() + Send>) -> io::Result<()>;

    /// The process is gone: what still unwinds has nothing to say to anybody.
    fn has_crashed(&self) -> bool;
}

#[cfg(test)]
thread_local! {
    /// What a thread does at each [`point`].
    pub(crate) static AT_POINTS: std::cell::RefCell<Option<std::sync::Arc<dyn Fn() + Send + Sync>>> =
        const { std::cell::RefCell::new(None) };
}

/// A place where what another thread does in between would matter. Nothing happens here; tests of the crate let
/// the other thread come.
pub(crate) fn point() {
    #[cfg(test)]
    {
        let come = AT_POINTS.with_borrow(Clone::clone);
        if let Some(come) = come {
            come();
        }
    }
}

/// Where instants that are kept as distances are counted from.
pub(crate) static ANCHOR: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Stage {
    /// The monotonic clock.
    pub(crate) fn now(&self) -> Instant {
        match self {
            Self::Process => Instant::now(),
            #[cfg(feature = "testing")]
            Self::Simulated(stage) => stage.now(),
        }
    }

    /// The wall clock.
    pub(crate) fn wall(&self) -> Timestamp {
        match self {
            Self::Process => Timestamp::from(SystemTime::now()),
            #[cfg(feature = "testing")]
            Self::Simulated(stage) => stage.wall(),
        }
    }

    /// Waits for a message, at most until the deadline.
    pub(crate) fn receive<T: Send + 'static>(
        &self,
        channel: &Receiver<T>,
        deadline: Option<Instant>,
    ) -> Result<T, RecvTimeoutError> {
        match (self, deadline) {
            (Self::Process, Some(deadline)) => channel.recv_deadline(deadline),
            (Self::Process, None) => channel.recv().map_err(RecvTimeoutError::from),
            #[cfg(feature = "testing")]
            (Self::Simulated(stage), deadline) => {
                receive_simulated(stage.as_ref(), channel, deadline)
            }
        }
    }

    /// Waits on a simulated stage, as long as it takes.
    #[cfg(all(test, feature = "testing"))]
    pub(crate) fn park_until(&self, is_ready: impl Fn() -> bool + Send + 'static) {
        if let Self::Simulated(stage) = self {
            stage.park(None, Box::new(is_ready));
        }
    }

    /// Starts a thread. Its handle, where it is one of the process itself.
    pub(crate) fn spawn(
        &self,
        name: String,
        run: impl FnOnce() + Send + 'static,
    ) -> io::Result<Option<JoinHandle<()>>> {
        match self {
            Self::Process => thread::Builder::new().name(name).spawn(run).map(Some),
            #[cfg(feature = "testing")]
            Self::Simulated(stage) => stage.spawn(name, Box::new(run)).map(|()| None),
        }
    }

    /// Whether nobody may wait outside of this module.
    pub(crate) const fn is_simulated(&self) -> bool {
        !matches!(self, Self::Process)
    }

    pub(crate) fn has_crashed(&self) -> bool {
        match self {
            Self::Process => false,
            #[cfg(feature = "testing")]
            Self::Simulated(stage) => stage.has_crashed(),
        }
    }
}

#[cfg(feature = "testing")]
fn receive_simulated<T: Send + 'static>(
    stage: &dyn Simulated,
    channel: &Receiver<T>,
    deadline: Option<Instant>,
) -> Result<T, RecvTimeoutError> {
    use crossbeam_channel::TryRecvError;
    let early = std::sync::Arc::new(parking_lot::Mutex::new(None));
    loop {
        if let Some(message) = early.lock().take() {
            return Ok(message);
        }
        match channel.try_recv() {
            Ok(message) => return Ok(message),
            Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
            Err(TryRecvError::Empty) => {}
        }
        if deadline.is_some_and(|deadline| deadline <= stage.now()) {
            return Err(RecvTimeoutError::Timeout);
        }
        let (channel, early) = (channel.clone(), std::sync::Arc::clone(&early));
        // Not by a `Select`, which yields the processor again and again before it says no: beside a busy
        // process each such question takes milliseconds.
        let is_ready = move || {
            !channel.is_empty()
                || match channel.try_recv() {
                    // Of a thread that is not simulated.
                    Ok(message) => {
                        *early.lock() = Some(message);
                        true
                    }
                    Err(TryRecvError::Empty) => false,
                    Err(TryRecvError::Disconnected) => true,
                }
        };
        stage.park(deadline, Box::new(is_ready));
    }
}
