//! The observer pump: receive, step the driver, carry out its commands, feed the answers back.
//!
//! Each observer has a pump of its own: a thread with a driver and a session, and beside it a thread that runs
//! the callback. It is soft where a group's pump is hard: whatever is not shown to be transient ends this one
//! pump, with a line in the log; no health changes, no group halts, and its cursor lapses to another node. A
//! violated invariant counts as degraded on this path.

mod board;
mod caller;
mod line;

pub(crate) use board::{Board, Progress};
pub(crate) use caller::{Callback, Caller};

use super::calls::Called;
use super::faults::Fault;
use super::planted::slips;
use crate::contain::dispose;
use crate::invariant;
use crate::kernel::observer::{Command, Config, Driver, Ending, Event, Note, Resolution};
use crate::stage::{Stage, point};
use crate::store::{Observe, ObserverStart, Resolve, Store, TransitionFilter, Watch};
use crate::{WorkerId, telemetry};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use line::Line;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a pump thread hears.
pub(crate) enum Message {
    /// A callback thread has ended a delivery.
    Done { thread: u64, delivery: u64, ending: Ending },
    /// Transitions were written; see [`Hint`].
    Hint,
    /// A clean stop was asked for.
    Stop,
}

/// The hub's word that transitions were written. What a busy pump has not taken yet coalesces.
pub(crate) struct Hint {
    inbox: Sender<Message>,
    is_told: AtomicBool,
}

impl Hint {
    pub(crate) fn new(inbox: Sender<Message>) -> Arc<Self> {
        Arc::new(Self { inbox, is_told: AtomicBool::new(false) })
    }

    fn take(&self) {
        self.is_told.store(false, Ordering::SeqCst);
        point();
    }
}

impl Watch for Hint {
    fn transitions_written(&self) {
        let is_told = self.is_told.swap(true, Ordering::SeqCst);
        point();
        if !is_told {
            // A pump that is gone needs no hint.
            let _ = self.inbox.send(Message::Hint);
        }
    }
}

/// What a pump needs.
pub(crate) struct PumpParts {
    pub(crate) stage: Stage,
    pub(crate) index: usize,
    pub(crate) observer: Arc<str>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) filter: TransitionFilter,
    pub(crate) start: ObserverStart,
    pub(crate) driver: Config,
    /// How long a callback may take.
    pub(crate) timeout: Duration,
    /// How long a clean stop waits for a callback.
    pub(crate) budget: Duration,
    pub(crate) caller: Caller,
    pub(crate) inbox: Receiver<Message>,
    pub(crate) hint: Arc<Hint>,
    pub(crate) board: Arc<Board>,
}

/// See the module's documentation.
pub(crate) struct Pump {
    parts: PumpParts,
    worker: WorkerId,
    driver: Driver,
    store: Line,
    /// The delivery under way, its transition, and when it began.
    running: Option<(u64, u64, Instant)>,
    stop_at: Option<Instant>,
    is_stopping: bool,
    is_stopped: bool,
}

impl Pump {
    /// To be called on the pump's own thread.
    pub(crate) fn new(parts: PumpParts) -> Self {
        let (observer, store) = (Arc::clone(&parts.observer), Arc::clone(&parts.store));
        let store = Line::new(observer, store, parts.stage.clone());
        Self {
            worker: WorkerId::new(),
            driver: Driver::new(parts.driver.clone()),
            store,
            running: None,
            stop_at: None,
            is_stopping: false,
            is_stopped: false,
            parts,
        }
    }

    /// Runs until the pump has stopped or a fault has ended it.
    pub(crate) fn run(mut self) {
        invariant::enter_observer_path();
        let fault = match catch_unwind(AssertUnwindSafe(|| self.pump())) {
            Ok(Ok(())) => None,
            Ok(Err(fault)) => Some(fault),
            Err(payload) => Some(Fault::from_panic(payload)),
        };
        if self.parts.stage.has_crashed() {
            // The process is gone, and its last words with it.
            let (index, board) = (self.parts.index, Arc::clone(&self.parts.board));
            dispose(Box::new(self));
            return board.ended(index, None);
        }
        if let Some(fault) = &fault {
            self.tell_end(fault);
        }
        let (index, board) = (self.parts.index, Arc::clone(&self.parts.board));
        board.update(index, |progress| progress.is_holding = false);
        let end = fault.map(|fault| fault.halt_state());
        if end.is_some() {
            // Nobody waits for this thread any more: closing a session may block on a dead network.
            board.ended(index, end);
            return dispose(Box::new(self));
        }
        // After a clean stop the session is closed before anybody is told that the stop is complete.
        dispose(Box::new(self));
        board.ended(index, None);
    }

    fn tell_end(&self, fault: &Fault) {
        if let Some(trigger) = fault.trigger() {
            telemetry::invariant_degraded(trigger, None, &fault.to_string());
        }
        telemetry::observer_ended(&self.parts.observer, fault.trigger_name(), fault);
    }

    fn pump(&mut self) -> Result<(), Fault> {
        self.carry_out()?;
        while !self.is_stopped {
            self.receive()?;
            self.carry_out()?;
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<(), Fault> {
        match self.parts.stage.receive(&self.parts.inbox, Some(self.wake_at())) {
            Ok(message) => self.hear(message),
            Err(RecvTimeoutError::Timeout) => self.step(Event::Due),
            // The caller holds a sender as long as this pump runs.
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Fault::new("backwave::shell::observer", "every sender is gone", None));
            }
        }
        // What has arrived meanwhile comes before what is overdue.
        for message in self.parts.inbox.try_iter().collect::<Vec<_>>() {
            self.hear(message);
        }
        self.keep_deadlines()
    }

    fn wake_at(&self) -> Instant {
        let driver = self.driver.wake_at(self.store.time.now());
        let driver = driver.map(|at| self.store.time.reached_at(at));
        let callback = self.running.and_then(|(.., began)| began.checked_add(self.parts.timeout));
        let latest = self.parts.stage.now() + Duration::from_secs(3600);
        [driver, callback, self.stop_at].into_iter().flatten().min().unwrap_or(latest)
    }

    fn hear(&mut self, message: Message) {
        match message {
            Message::Done { thread, delivery, ending }
                if self.parts.caller.is_current(thread) || slips!(LateCallbackTaken) =>
            {
                self.running = None;
                self.step(Event::Delivered { delivery, ending });
            }
            Message::Done { .. } => self.step(Event::CameBack),
            Message::Hint => {
                self.parts.hint.take();
                self.step(Event::Hinted);
            }
            Message::Stop if !self.is_stopping => {
                self.is_stopping = true;
                self.stop_at = self.parts.stage.now().checked_add(self.parts.budget);
                self.step(Event::StopRequested);
            }
            Message::Stop => {}
        }
    }

    fn step(&mut self, event: Event) {
        self.driver.handle(event, self.store.time.now());
    }

    fn keep_deadlines(&mut self) -> Result<(), Fault> {
        let now = self.parts.stage.now();
        if self.stop_at.take_if(|at| *at <= now).is_some() {
            self.step(Event::StopDeadline);
        }
        let timeout = self.parts.timeout;
        let overdue = self.running.take_if(|(.., began)| now.duration_since(*began) >= timeout);
        if let Some((delivery, ..)) = overdue {
            // A fresh thread takes over; the one that is left behind ends with its callback.
            self.parts.caller.leave_behind().map_err(no_thread)?;
            let detail = format!("the callback took longer than {timeout:?}");
            self.step(Event::Delivered { delivery, ending: Ending::TimedOut(detail) });
        }
        Ok(())
    }

    /// Carries out what the driver asks for, until it asks for nothing more.
    fn carry_out(&mut self) -> Result<(), Fault> {
        while let Some(command) = self.driver.poll_command(self.store.time.now()) {
            self.obey(command)?;
        }
        let (is_holding, left_behind) = (self.driver.is_holding(), self.driver.left_behind());
        self.parts.board.update(self.parts.index, |progress| {
            (progress.is_holding, progress.left_behind) = (is_holding, left_behind);
            #[cfg(feature = "testing")]
            {
                progress.is_resting = self.driver.is_resting();
            }
        });
        Ok(())
    }

    fn obey(&mut self, command: Command) -> Result<(), Fault> {
        match command {
            Command::Observe => self.observe(),
            Command::Resolve(resolution) => self.resolve(resolution),
            Command::Release { epoch } => {
                let (observer, worker) = (Arc::clone(&self.parts.observer), self.worker);
                self.store.call(|session| session.release_cursor(&observer, worker, epoch))?;
                self.step(Event::Released);
                Ok(())
            }
            Command::Deliver { delivery, observation } => {
                let position = observation.transition.position;
                self.running = Some((delivery, position, self.parts.stage.now()));
                self.parts.caller.call(delivery, observation);
                Ok(())
            }
            Command::Note(note) => {
                self.tell(note);
                Ok(())
            }
            Command::Stopped => {
                self.is_stopped = true;
                Ok(())
            }
        }
    }

    fn observe(&mut self) -> Result<(), Fault> {
        let parts = &self.parts;
        let mut ask = Observe::new(&parts.observer, self.worker, &parts.filter, parts.driver.lease);
        (ask.start, ask.max) = (parts.start, parts.driver.batch);
        let called = self.store.call(|session| session.observe(&ask))?;
        if slips!(WatchSwallowedInCall) {
            self.parts.hint.take();
            let rest = self.parts.inbox.try_iter().filter(|heard| !matches!(heard, Message::Hint));
            rest.collect::<Vec<_>>().into_iter().for_each(|message| self.hear(message));
        }
        let event = match called {
            Called::Answered(observed) => Event::Observed(observed),
            Called::Failed { in_doubt } => Event::ObserveFailed { in_doubt },
        };
        self.step(event);
        Ok(())
    }

    fn resolve(&mut self, resolution: Resolution) -> Result<(), Fault> {
        let Resolution { epoch, round, until, parked, failing, delivered_again } = resolution;
        let observer = Arc::clone(&self.parts.observer);
        let bare = Resolve::new(&observer, self.worker, epoch, round, self.parts.driver.lease);
        let resolve = Resolve { until, parked, failing, delivered_again, ..bare };
        let event = match self.store.call(|session| session.resolve(&resolve))? {
            Called::Answered(resolved) => Event::Resolved(resolved),
            Called::Failed { in_doubt } => Event::ResolveFailed { in_doubt },
        };
        self.step(event);
        Ok(())
    }

    fn failed(&self, detail: String, parked: u64) {
        self.parts.board.update(self.parts.index, |progress| {
            progress.failed += 1;
            progress.parked += parked;
            progress.last_failure = Some(detail);
        });
    }

    fn tell(&self, note: Note) {
        let observer = &self.parts.observer;
        match note {
            Note::Taken { epoch } => telemetry::cursor_taken(observer, epoch),
            Note::HoldLost(why) => telemetry::cursor_lost(observer, why.describe()),
            Note::Reset(why) => telemetry::cursor_reset(observer, &why),
            Note::Delivered => {
                self.parts.board.update(self.parts.index, |progress| progress.delivered += 1);
            }
            Note::Failed { position, failures, due, detail } => {
                self.failed(detail, 0);
                telemetry::delivery_failed(observer, position, failures, due);
            }
            Note::Parked { position, failures, detail } => {
                self.failed(detail, 1);
                telemetry::delivery_parked(observer, position, failures);
            }
            Note::LeftBehind { position, count } => {
                telemetry::callback_left_behind(observer, position, self.parts.timeout, count);
            }
            Note::Degraded { trigger, detail } => {
                let detail = format!("observer '{observer}': {detail}");
                invariant::degrade(trigger, None, &detail);
            }
        }
    }
}

fn no_thread(error: std::io::Error) -> Fault {
    let message = format!("no thread for the callback could be started: {error}");
    Fault::new("std::io::Error", message, None)
}
