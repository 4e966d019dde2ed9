//! One observer's decisions: when to look beyond its cursor, what to deliver next, when to write what was
//! delivered.
//!
//! What it keeps:
//!
//! - **One delivery at a time, in the order of the batch.** The head blocks until it has succeeded or is
//!   given up at its ceiling; parked deliveries that an operator wants tried again come beside the order.
//! - **The cursor moves over what is delivered or parked, and over nothing else.** What was delivered is
//!   written before anything new is read.
//! - **A hold that is gone takes along what hangs on it**: what was not written is dropped and delivered
//!   again, here or elsewhere. A callback that still runs is let finish; what it returns is ignored.
//! - **A failure is written at once**, so that a new holder goes on counting.
//!
//! No clock, no thread, no log: time comes in as an argument.

mod command;
mod pending;

pub(crate) use command::{Command, Ending, Event, Note, Resolution};

use crate::invariant::InvariantTrigger;
use crate::store::{CursorStale, Failing, Observation, Observed, Parking, Resolved};
use crate::{RetryPolicy, Timestamp};
use command::Lost;
use pending::Pending;
use std::collections::VecDeque;
use std::time::Duration;

/// So many callbacks may be left behind; then nothing is delivered until one has ended.
pub(crate) const LEFT_BEHIND_MAX: u32 = 4;

/// How an observer works.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// So many decided deliveries are written together.
    pub(crate) batch: u32,
    pub(crate) lease: Duration,
    pub(crate) poll: Duration,
    /// When a delivery is tried again, and at how many failures it is given up.
    pub(crate) retry: RetryPolicy,
}

/// The cursor is held.
#[derive(Debug, Clone, Copy)]
struct Hold {
    epoch: u64,
    round: u64,
    expiry: Timestamp,
    renewed_at: Timestamp,
}

/// A delivery that waits for its turn.
#[derive(Debug)]
struct Item {
    observation: Observation,
    failures: u32,
    due_at: Timestamp,
}

impl Item {
    const fn new(observation: Observation) -> Self {
        Self { observation, failures: 0, due_at: Timestamp::MIN }
    }

    const fn position(&self) -> u64 {
        self.observation.transition.position
    }
}

/// The delivery that a callback works on.
#[derive(Debug, Clone, Copy)]
struct Running {
    delivery: u64,
    position: u64,
    of: Source,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Batch,
    Again,
    /// Of a hold that is gone.
    Nobody,
}

/// The request to the store that is under way.
#[derive(Debug)]
enum Asked {
    Nothing,
    Observe,
    Resolve(Pending),
    Release,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Working,
    /// A clean stop was asked for.
    Stopping,
    /// The cursor was given up, or there is nothing to give up.
    Released,
    Stopped,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Driver {
    config: Config,
    hold: Option<Hold>,
    batch: VecDeque<Item>,
    again: VecDeque<Item>,
    pending: Pending,
    running: Option<Running>,
    next_delivery: u64,
    left_behind: u32,
    asked: Asked,
    /// When to look for more, if nothing says so sooner.
    look_at: Timestamp,
    /// Calls that failed since the last that did not, and when the next is made.
    failed_calls: u32,
    retry_at: Option<Timestamp>,
    /// A call whose answer was lost may still take effect.
    in_doubt: bool,
    phase: Phase,
    notes: VecDeque<Note>,
}

impl Driver {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            config,
            hold: None,
            batch: VecDeque::new(),
            again: VecDeque::new(),
            pending: Pending::default(),
            running: None,
            next_delivery: 0,
            left_behind: 0,
            asked: Asked::Nothing,
            look_at: Timestamp::MIN,
            failed_calls: 0,
            retry_at: None,
            in_doubt: false,
            phase: Phase::Working,
            notes: VecDeque::new(),
        }
    }

    // -- what is seen from outside

    pub(crate) const fn is_holding(&self) -> bool {
        self.hold.is_some()
    }

    /// Whether nothing is in hand, so that waking late makes nothing late that was written with a hint.
    #[cfg(feature = "testing")]
    pub(crate) fn is_resting(&self) -> bool {
        self.hold.is_some()
            && matches!(self.asked, Asked::Nothing)
            && self.running.is_none()
            && self.retry_at.is_none()
            && self.batch.is_empty()
            && self.again.is_empty()
            && self.pending.is_empty()
    }

    pub(crate) const fn left_behind(&self) -> u32 {
        self.left_behind
    }

    /// When there may be something to do though nothing happens.
    pub(crate) fn wake_at(&self, now: Timestamp) -> Option<Timestamp> {
        if self.phase == Phase::Stopped {
            return None;
        }
        let due = self.batch.front().into_iter().chain(&self.again).map(|item| item.due_at).min();
        let due = due.filter(|_| self.can_deliver(now));
        let look = self.batch.is_empty() && !self.is_working() && self.has_callbacks_left();
        let look = look.then_some(self.look_at);
        let write = self.retry_at.filter(|_| !self.pending.is_empty());
        let call = [self.heartbeat_at(), look, write].into_iter().flatten().min();
        let call = call.map(|at| self.retry_at.map_or(at, |retry_at| retry_at.max(at)));
        [due, call].into_iter().flatten().min()
    }

    /// Whether a delivery that is due may begin.
    fn can_deliver(&self, now: Timestamp) -> bool {
        // A full batch is written before more is added to what a lost hold would repeat.
        self.phase == Phase::Working
            && self.running.is_none()
            && self.has_callbacks_left()
            && self.hold.is_some_and(|hold| hold.expiry > now)
            && self.pending.count() < self.config.batch
    }

    const fn has_callbacks_left(&self) -> bool {
        self.left_behind < LEFT_BEHIND_MAX
    }

    // -- events

    pub(crate) fn handle(&mut self, event: Event, now: Timestamp) {
        match event {
            Event::Due => {}
            // Who waits for a cursor that is held elsewhere has nothing to hurry for.
            Event::Hinted if self.hold.is_none() => {}
            Event::Hinted => self.look_at = self.look_at.min(now),
            Event::Observed(observed) => self.observed(observed, now),
            Event::ObserveFailed { in_doubt } => {
                self.asked = Asked::Nothing;
                self.call_failed(in_doubt, now);
            }
            Event::Delivered { delivery, ending } => self.delivered(delivery, ending, now),
            Event::CameBack => self.left_behind = self.left_behind.saturating_sub(1),
            Event::Resolved(resolved) => self.resolved(resolved, now),
            Event::ResolveFailed { in_doubt } => {
                if let Asked::Resolve(sent) = std::mem::replace(&mut self.asked, Asked::Nothing) {
                    self.pending = sent.followed_by(std::mem::take(&mut self.pending));
                }
                self.call_failed(in_doubt, now);
            }
            Event::Released => self.released(now),
            Event::StopRequested => {
                if self.phase == Phase::Working {
                    self.phase = Phase::Stopping;
                    // A store that failed is asked once more, now, and not waited for.
                    self.retry_at = None;
                }
            }
            Event::StopDeadline => {
                // What it returns belongs to nobody any more; its transition is delivered again.
                if self.phase == Phase::Stopping {
                    self.running = None;
                }
            }
        }
    }

    fn call_failed(&mut self, in_doubt: bool, now: Timestamp) {
        let delay = CALL_AGAIN_FIRST.saturating_mul(1 << self.failed_calls.min(16));
        self.retry_at = Some(now + delay.min(CALL_AGAIN_MAX));
        self.failed_calls = self.failed_calls.saturating_add(1);
        self.in_doubt |= in_doubt;
        // The cursor lapses to whoever goes on; a store that fails is not waited for at a stop.
        if self.phase == Phase::Stopping {
            self.phase = Phase::Released;
        }
    }

    fn call_succeeded(&mut self) {
        self.failed_calls = 0;
        self.retry_at = None;
    }

    fn observed(&mut self, observed: Observed, now: Timestamp) {
        self.asked = Asked::Nothing;
        self.call_succeeded();
        match observed {
            Observed::Elsewhere { until, .. } => {
                if self.hold.is_some() {
                    self.lose(Lost::Elsewhere);
                }
                self.look_at = until.max(now + LOOK_AGAIN_MIN).min(now + self.config.poll);
            }
            Observed::Held { lease, round, batch, failing, again, more, reset, .. } => {
                let before = self.hold.map(|hold| hold.epoch);
                if before.is_some_and(|epoch| epoch != lease.epoch) {
                    self.lose(Lost::Between);
                }
                if before != Some(lease.epoch) {
                    self.notes.push_back(Note::Taken { epoch: lease.epoch });
                }
                if let Some(why) = reset {
                    self.notes.push_back(Note::Reset(why));
                }
                let (epoch, expiry) = (lease.epoch, lease.expiry);
                self.hold = Some(Hold { epoch, round, expiry, renewed_at: now });
                self.in_doubt = false;
                let found_some = more || !batch.is_empty();
                self.look_at = if found_some { now } else { now + self.config.poll };
                self.take_in(batch, failing, again);
            }
        }
    }

    fn take_in(
        &mut self,
        batch: Vec<Observation>,
        failing: Option<Failing>,
        again: Vec<Observation>,
    ) {
        self.batch = batch.into_iter().map(Item::new).collect();
        if let Some(head) = self.batch.front_mut()
            && let Some(failing) = failing.filter(|failing| failing.position == head.position())
        {
            (head.failures, head.due_at) = (failing.failures, failing.due_at);
        }
        // One that is tried again and has failed here keeps its count; one that is gone was discarded.
        let mut known = std::mem::take(&mut self.again);
        self.again = again
            .into_iter()
            .map(|observation| {
                let position = observation.transition.position;
                let place = known.iter().position(|item| item.position() == position);
                place.and_then(|at| known.remove(at)).unwrap_or_else(|| Item::new(observation))
            })
            .collect();
    }

    /// Drops what hangs on the hold.
    fn lose(&mut self, why: Lost) {
        self.hold = None;
        self.batch.clear();
        self.again.clear();
        self.pending = Pending::default();
        if let Some(running) = self.running.as_mut() {
            running.of = Source::Nobody;
        }
        self.notes.push_back(Note::HoldLost(why));
    }

    fn delivered(&mut self, delivery: u64, ending: Ending, now: Timestamp) {
        let Some(running) = self.running.take_if(|running| running.delivery == delivery) else {
            return;
        };
        if matches!(ending, Ending::TimedOut(_)) {
            self.left_behind += 1;
            let (position, count) = (running.position, self.left_behind);
            self.notes.push_back(Note::LeftBehind { position, count });
        }
        match (running.of, ending) {
            (Source::Nobody, _) => {}
            (Source::Batch, Ending::Ok) => {
                self.batch.pop_front();
                self.pending.pass(running.position);
                self.notes.push_back(Note::Delivered);
            }
            (Source::Again, Ending::Ok) => {
                self.again.retain(|item| item.position() != running.position);
                self.pending.delivered_again(running.position);
                self.notes.push_back(Note::Delivered);
            }
            (Source::Batch, Ending::Failed(detail) | Ending::TimedOut(detail)) => {
                self.head_failed(detail, now);
            }
            (Source::Again, Ending::Failed(detail) | Ending::TimedOut(detail)) => {
                self.again_failed(running.position, detail, now);
            }
        }
    }

    fn head_failed(&mut self, detail: String, now: Timestamp) {
        let Some(head) = self.batch.front_mut() else { return };
        let position = head.position();
        if let Some(due_at) = fail(head, &self.config.retry, now) {
            let (failures, due) = (head.failures, due_at);
            self.pending.fails();
            self.notes.push_back(Note::Failed { position, failures, due, detail });
        } else if let Some(head) = self.batch.pop_front() {
            self.pending.pass(position);
            self.pending.park(Parking::new(head.observation, head.failures, detail));
        }
    }

    fn again_failed(&mut self, position: u64, detail: String, now: Timestamp) {
        let place = self.again.iter().position(|item| item.position() == position);
        let Some(mut item) = place.and_then(|at| self.again.remove(at)) else { return };
        match fail(&mut item, &self.config.retry, now) {
            Some(due) => {
                let failures = item.failures;
                self.notes.push_back(Note::Failed { position, failures, due, detail });
                self.again.push_back(item);
            }
            None => self.pending.park(Parking::new(item.observation, item.failures, detail)),
        }
    }

    fn resolved(&mut self, resolved: Resolved, now: Timestamp) {
        let Asked::Resolve(sent) = std::mem::replace(&mut self.asked, Asked::Nothing) else {
            return;
        };
        self.call_succeeded();
        match resolved {
            Resolved::Applied { expiry, .. } => {
                if let Some(hold) = self.hold.as_mut() {
                    (hold.expiry, hold.renewed_at) = (expiry, now);
                }
                self.in_doubt = false;
                let parked = sent.into_parked().into_iter().map(|parking| Note::Parked {
                    position: parking.observation.transition.position,
                    failures: parking.failures,
                    detail: parking.detail,
                });
                self.notes.extend(parked);
            }
            Resolved::Stale { reason, .. } => {
                self.refused(reason, now);
                self.lose(Lost::Refused(reason));
                self.look_at = now + self.config.poll;
            }
        }
    }

    /// What a refusal means beyond that the hold is gone.
    fn refused(&mut self, reason: CursorStale, now: Timestamp) {
        let Some(hold) = self.hold else { return };
        let left = hold.expiry.since(now);
        let is_surprising = !self.in_doubt && left > SKEW_MAX.min(self.config.lease / 2);
        let degraded = match reason {
            CursorStale::Regressed => Some((
                InvariantTrigger::ObserverCursorRegressed,
                format!("epoch {}, round {}: the write was refused", hold.epoch, hold.round),
            )),
            CursorStale::Lapsed | CursorStale::Taken if is_surprising => Some((
                InvariantTrigger::ObserverReportFenceRejected,
                format!("epoch {} was believed to be held for {left:?} more", hold.epoch),
            )),
            CursorStale::Lapsed | CursorStale::Taken | CursorStale::Gone => None,
        };
        if let Some((trigger, detail)) = degraded {
            self.notes.push_back(Note::Degraded { trigger, detail });
        }
    }

    fn released(&mut self, now: Timestamp) {
        self.asked = Asked::Nothing;
        self.hold = None;
        self.batch.clear();
        self.again.clear();
        self.look_at = now + self.config.poll;
        if self.phase == Phase::Stopping {
            self.phase = Phase::Released;
        }
    }

    // -- commands

    /// The next thing to do now.
    pub(crate) fn poll_command(&mut self, now: Timestamp) -> Option<Command> {
        if let Some(note) = self.notes.pop_front() {
            return Some(Command::Note(note));
        }
        match self.phase {
            Phase::Stopped => None,
            Phase::Released => {
                self.phase = Phase::Stopped;
                Some(Command::Stopped)
            }
            Phase::Working | Phase::Stopping => self.deliver(now).or_else(|| self.ask(now)),
        }
    }

    fn deliver(&mut self, now: Timestamp) -> Option<Command> {
        if !self.can_deliver(now) {
            return None;
        }
        let again =
            self.again.iter().find(|item| item.due_at <= now).map(|item| (item, Source::Again));
        let head = self.batch.front().filter(|head| head.due_at <= now);
        let (item, of) = again.or_else(|| head.map(|head| (head, Source::Batch)))?;
        self.next_delivery += 1;
        let (delivery, position) = (self.next_delivery, item.position());
        let observation = Box::new(item.observation.clone());
        self.running = Some(Running { delivery, position, of });
        Some(Command::Deliver { delivery, observation })
    }

    fn ask(&mut self, now: Timestamp) -> Option<Command> {
        let waits = self.retry_at.is_some_and(|at| at > now);
        if !matches!(self.asked, Asked::Nothing) || waits {
            return None;
        }
        if let Some(hold) = self.hold.filter(|_| self.must_resolve(now)) {
            let sent = std::mem::take(&mut self.pending);
            let failing = self.batch.front().filter(|head| head.failures > 0);
            let failing =
                failing.map(|head| (head.position(), head.failures, head.due_at.since(now)));
            let resolution = sent.resolution(hold.epoch, hold.round, failing);
            self.asked = Asked::Resolve(sent);
            return Some(Command::Resolve(resolution));
        }
        if self.is_working() || !self.pending.is_empty() {
            return None;
        }
        if self.phase == Phase::Stopping {
            return self.give_up().or_else(|| {
                self.phase = Phase::Stopped;
                Some(Command::Stopped)
            });
        }
        if !self.has_callbacks_left() {
            return self.give_up();
        }
        self.must_observe(now).then(|| {
            self.asked = Asked::Observe;
            Command::Observe
        })
    }

    /// Gives the cursor up, if it is held: to whoever can go on.
    fn give_up(&mut self) -> Option<Command> {
        let epoch = self.hold?.epoch;
        self.asked = Asked::Release;
        Some(Command::Release { epoch })
    }

    /// A callback works on what the hold is for.
    fn is_working(&self) -> bool {
        self.running.is_some_and(|running| running.of != Source::Nobody)
    }

    fn heartbeat_at(&self) -> Option<Timestamp> {
        self.hold.map(|hold| hold.renewed_at + self.config.lease / 3)
    }

    fn must_resolve(&self, now: Timestamp) -> bool {
        let is_due = self.heartbeat_at().is_some_and(|at| at <= now);
        let is_idle = !self.is_working();
        match self.pending.is_empty() {
            true => is_due && !is_idle,
            false => {
                let is_full = self.pending.count() >= self.config.batch;
                is_due || is_idle || is_full || self.pending.has_failure()
            }
        }
    }

    fn must_observe(&self, now: Timestamp) -> bool {
        let is_due = self.heartbeat_at().is_some_and(|at| at <= now);
        is_due || (self.batch.is_empty() && self.look_at <= now)
    }
}

/// Counts a failure. When the delivery is due again; `None` at its ceiling.
fn fail(item: &mut Item, retry: &RetryPolicy, now: Timestamp) -> Option<Timestamp> {
    item.failures = item.failures.saturating_add(1);
    let delay = retry.delay_after(item.failures, item.observation.job)?;
    item.due_at = now + delay;
    Some(item.due_at)
}

const CALL_AGAIN_FIRST: Duration = Duration::from_millis(100);
const CALL_AGAIN_MAX: Duration = Duration::from_secs(15);
/// A cursor that is held elsewhere is not asked for more often, however soon that hold ends.
const LOOK_AGAIN_MIN: Duration = Duration::from_millis(10);
/// A hold that was believed to last longer than this, or than half a lease, is not refused by mistake.
const SKEW_MAX: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
