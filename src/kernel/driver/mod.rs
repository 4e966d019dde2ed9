//! The Node Driver: the state machine that holds every decision of one pump.
//!
//! Events go in by [`Driver::handle`], commands come out of [`Driver::poll_command`] until it is
//! empty; then the shell waits for the next event, at most until [`Driver::wake_at`]. The same events
//! at the same times give the same commands. `now` is the shell's estimate of the store's time; it may
//! step back a little.
//!
//! What it knows of a job ends where facts end: ids, attempts, expiries it believes in, due times. It
//! never looks into a payload.
//!
//! Invariants kept here:
//! - Every claim asked for is released by exactly one answer, a failed one included.
//! - At most one of claim, report and exchange is under way, at most one of each other request.
//! - An outcome, once decided, is kept with its receipt until the store says what became of it, or
//!   the pump is gone.
//! - An execution is told apart by an identity of its own: a late result of an abandoned one never
//!   frees the slot of a newer one.

mod claims;
mod command;
mod leases;
mod pace;
pub(crate) mod planted;
mod prefetch;
mod schedules;
mod settle;
#[cfg(test)]
mod snapshot;
mod stop;
#[cfg(test)]
mod tests;
mod upkeep;

pub(crate) use command::{ClaimAsk, Command, Note};
pub use prefetch::Prefetch;
pub(crate) use schedules::Look;

use super::dispatch::{DispatchPolicy, Dispatcher};
use super::retry::RetryPolicy;
use crate::invariant::InvariantViolation;
use crate::kernel::verdict::Verdict;
use crate::store::{
    Body, Claimed, LapsedJob, LatchesWorkedOff, LeaseRef, Minted, OutcomeRow, Purged, Renewed,
    Retention, RowReport,
};
use crate::{CancelReason, JobId, Timestamp, WorkerId};
use leases::{HandBacks, Lapses};
use pace::Pace;
use planted::planted;
use prefetch::Appetite;
pub(crate) use schedules::Looks;
use schedules::Schedules;
use settle::Outcomes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use stop::Stopping;
use upkeep::Upkeep;

/// What a driver is told once.
#[derive(Debug, Clone)]
pub(crate) struct DriverConfig {
    pub(crate) worker: WorkerId,
    /// Worker threads of the pump.
    pub(crate) workers: u32,
    pub(crate) prefetch: Prefetch,
    pub(crate) dispatch: DispatchPolicy,
    pub(crate) lease: Duration,
    pub(crate) poll_min: Duration,
    pub(crate) poll_max: Duration,
    pub(crate) retry: RetryPolicy,
    /// For how long a request whose answer was lost may still take effect.
    pub(crate) doubt: Duration,
    /// How long a handler may ignore its token before its thread is replaced.
    pub(crate) patience: Duration,
    /// How long what has ended is kept.
    pub(crate) retention: Retention,
    /// When it looks at recurring schedules.
    pub(crate) schedules: Looks,
    #[cfg(test)]
    pub(crate) planted: Option<planted::Bug>,
}

/// Tells one execution apart from every other of this pump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ExecutionId(u64);

/// How an execution ended, as the worker saw it.
#[derive(Debug)]
pub(crate) enum Ending {
    /// The handler returned `Ok`.
    Succeeded { output: Option<Body> },
    /// The handler returned an error, or panicked.
    Failed { verdict: Verdict, detail: String },
    /// The payload could not be decoded; nothing ran.
    Undecodable { detail: String },
    /// It never began: withdrawn, or its lease had passed.
    NotStarted,
}

/// What has happened.
#[derive(Debug)]
pub(crate) enum Event {
    PollDue,
    HeartbeatDue,
    MaintenanceDue,
    UpkeepDue,
    /// Somebody says that work is due at that time.
    Woken {
        due: Timestamp,
    },
    Claimed(Claimed),
    ClaimFailed {
        in_doubt: bool,
    },
    /// A handler with a time limit began.
    Started {
        execution: ExecutionId,
    },
    Finished {
        execution: ExecutionId,
        ending: Ending,
        token: Option<CancelReason>,
        took: Duration,
    },
    Reported {
        rows: Vec<OutcomeRow>,
        reports: Vec<RowReport>,
    },
    ReportFailed {
        rows: Vec<OutcomeRow>,
        in_doubt: bool,
    },
    Renewed(Vec<Renewed>),
    RenewFailed,
    LapsedFound(Vec<LapsedJob>),
    FindLapsedFailed,
    HeldFound(Vec<LeaseRef>),
    FindHeldFailed,
    HandedBack(Vec<bool>),
    HandBackFailed,
    Purged(Purged),
    LatchesWorkedOff(LatchesWorkedOff),
    Announced,
    /// Somebody in this process has declared schedules or changed one.
    SchedulesChanged,
    SchedulesLookedAt {
        looks: Vec<Look>,
        next_at: Option<Timestamp>,
        store_time: Timestamp,
    },
    Minted(Minted),
    /// A look at schedules, or a mint.
    SchedulesFailed,
    /// A purge, a working off of latches or an announcement.
    UpkeepFailed,
    /// A clean stop was asked for; without hand-back leases are left to lapse.
    StopRequested {
        hand_back: bool,
    },
    /// Four fifths of the budget have passed.
    GraceEnded,
    /// The budget has passed.
    DrainDeadline,
}

/// A job handed to a worker.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
struct Execution {
    lease: LeaseRef,
    failures: u32,
    retry: RetryPolicy,
    timeout: Option<Duration>,
    /// When its lease ends, as last told by the store.
    expiry: Timestamp,
    given_at: Timestamp,
    /// When it is to be asked to end for taking too long; known once it has begun.
    times_out_at: Option<Timestamp>,
    /// Its token was fired at that time.
    fired_at: Option<Timestamp>,
    withdrawn: bool,
    /// Its lease is gone or given back: whatever it returns is dropped.
    abandoned: bool,
    /// It ignores its token; its thread does not count any more.
    replaced: bool,
}

/// See the module's documentation.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Driver {
    config: DriverConfig,
    dispatcher: Dispatcher,
    commands: VecDeque<Command>,
    executions: BTreeMap<ExecutionId, Execution>,
    /// The execution that holds the job's lease now; abandoned ones are not in here.
    holders: BTreeMap<JobId, ExecutionId>,
    next_execution: u64,
    /// When executions with a time limit are to be asked to end.
    time_outs: BTreeSet<(Timestamp, ExecutionId)>,
    /// Jobs asked for by the claim under way.
    asked: Option<u32>,
    outcomes: Outcomes,
    pace: Pace,
    appetite: Appetite,
    lapses: Lapses,
    hand_backs: HandBacks,
    renewal: Renewal,
    schedules: Schedules,
    upkeep: Upkeep,
    replaced_count: u32,
    stopping: Option<Stopping>,
}

/// The heartbeat's request.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
enum Renewal {
    Idle,
    Due,
    /// It is tried again at the next poll tick: the next heartbeat may be a third of a lease away.
    Failed,
    /// What each row of it stands for: an execution, or an outcome that is not confirmed yet.
    UnderWay(Vec<Option<ExecutionId>>),
}

impl Driver {
    pub(crate) fn new(config: DriverConfig, now: Timestamp) -> Self {
        Self {
            dispatcher: Dispatcher::new(&config.dispatch),
            commands: VecDeque::new(),
            executions: BTreeMap::new(),
            holders: BTreeMap::new(),
            next_execution: 0,
            time_outs: BTreeSet::new(),
            asked: None,
            outcomes: Outcomes::new(config.worker),
            pace: Pace::new(config.poll_min, config.poll_max, now),
            appetite: Appetite::new(config.prefetch, config.workers),
            lapses: Lapses::default(),
            hand_backs: HandBacks::default(),
            renewal: Renewal::Idle,
            schedules: Schedules::new(config.schedules),
            upkeep: Upkeep::new(config.retention),
            replaced_count: 0,
            stopping: None,
            config,
        }
    }

    /// Takes in what has happened.
    ///
    /// # Errors
    /// A violated invariant: the pump halts, and the driver must not be used any more.
    pub(crate) fn handle(
        &mut self,
        event: Event,
        now: Timestamp,
    ) -> Result<(), InvariantViolation> {
        match event {
            Event::PollDue => self.on_poll_due(now),
            Event::HeartbeatDue => self.on_heartbeat_due(now),
            Event::MaintenanceDue => self.on_maintenance_due(),
            Event::UpkeepDue => self.on_upkeep_due(now),
            Event::Woken { due } => self.pace.woken(due),
            Event::Claimed(claimed) => return self.on_claimed(claimed, now),
            Event::ClaimFailed { in_doubt } => self.on_claim_failed(in_doubt, now),
            Event::Started { execution } => self.on_started(execution, now),
            Event::Finished { execution, ending, token, took } => {
                self.on_finished(execution, ending, token, took, now);
            }
            Event::Reported { rows, reports } => return self.on_reported(rows, reports, now),
            Event::ReportFailed { rows, in_doubt } => self.on_report_failed(rows, in_doubt),
            Event::Renewed(rows) => return self.on_renewed(&rows, now),
            Event::RenewFailed => self.renewal = Renewal::Failed,
            Event::LapsedFound(jobs) => self.on_lapsed_found(jobs, now),
            Event::FindLapsedFailed => self.lapses.failed(),
            Event::HeldFound(leases) => self.on_held_found(leases),
            Event::FindHeldFailed => self.hand_backs.question_failed(),
            Event::HandedBack(rows) => return self.on_handed_back(&rows),
            Event::HandBackFailed => self.hand_backs.failed(),
            Event::Purged(purged) => self.on_purged(&purged, now),
            Event::LatchesWorkedOff(worked_off) => self.on_latches_worked_off(worked_off, now),
            Event::Announced => self.on_announced(now),
            Event::SchedulesChanged => self.schedules.want(),
            Event::SchedulesLookedAt { looks, next_at, store_time } => {
                self.on_schedules_looked_at(looks, next_at, store_time, now);
            }
            Event::Minted(minted) => return self.on_minted(minted, now),
            Event::SchedulesFailed => self.on_schedules_failed(),
            Event::UpkeepFailed => self.on_upkeep_failed(),
            Event::StopRequested { hand_back } => self.on_stop_requested(hand_back),
            Event::GraceEnded => self.on_grace_ended(now),
            Event::DrainDeadline => self.on_drain_deadline(now),
        }
        Ok(())
    }

    /// The next thing to do. Requests to the store are decided here and not in [`Self::handle`], so
    /// that what arrived together is decided together.
    pub(crate) fn poll_command(&mut self, now: Timestamp) -> Option<Command> {
        self.fire_time_outs(now);
        if let Some(command) = self.commands.pop_front() {
            return Some(command);
        }
        self.next_request(now)
    }

    fn next_request(&mut self, now: Timestamp) -> Option<Command> {
        if self.is_stopped() {
            return None;
        }
        if let Some(leases) = self.take_renewal() {
            return Some(Command::Renew { leases });
        }
        // What a claim brings is known only once it is answered: the two exclude each other.
        if self.asked.is_none() && self.hand_backs.next_question() {
            return Some(Command::FindHeld);
        }
        if let Some(command) = self.next_exchange(now) {
            return Some(command);
        }
        if let Some(leases) = self.hand_backs.next_batch() {
            return Some(Command::HandBack { leases });
        }
        let searches = self.stopping.is_none() && !planted!(self.config, NoLapseSearch);
        if searches && self.lapses.next_search() {
            return Some(Command::FindLapsed { max: LAPSED_PAGE });
        }
        if self.stopping.is_none()
            && let Some(command) =
                self.schedules.next_request(now).or_else(|| self.upkeep.next_request(now))
        {
            return Some(command);
        }
        self.next_stop_step()
    }

    /// When [`Self::poll_command`] may have something again although nothing happened.
    pub(crate) fn wake_at(&self) -> Option<Timestamp> {
        if self.is_stopped() {
            return None;
        }
        let time_out = self.time_outs.first().map(|(at, _)| *at);
        let flush = self.flush_at();
        // A claim that waits for outcomes goes with them.
        let claim = self.pace.claim_at().filter(|_| self.may_claim() && self.outcomes.is_empty());
        let aside = [self.schedules.wake_at(), self.upkeep.wake_at()];
        let aside = aside.into_iter().flatten().min().filter(|_| self.stopping.is_none());
        [time_out, flush, claim, aside].into_iter().flatten().min()
    }

    /// Jobs handed to workers that still count against the pool.
    fn occupied(&self) -> u32 {
        if planted!(self.config, RoomIgnoresRunning) {
            return 0;
        }
        let live = self.executions.len() as u32;
        live.saturating_sub(self.replaced_count)
    }

    fn push(&mut self, command: Command) {
        self.commands.push_back(command);
    }

    fn note(&mut self, note: Note) {
        self.commands.push_back(Command::Note(note));
    }

    /// Gives a lease back, unless the stop was asked for without.
    fn give_back(&mut self, lease: LeaseRef) {
        if planted!(self.config, StopKeepsLeases) && self.stopping.is_some() {
            return;
        }
        if self.stopping.as_ref().is_none_or(Stopping::hands_back) {
            self.hand_backs.add(lease);
        }
    }

    /// Nothing runs, nothing waits to be written, nothing is under way, nothing is known to be due.
    pub(crate) fn is_idle(&self, now: Timestamp) -> bool {
        !self.pace.is_held()
            && self.pace.claim_at().is_none_or(|at| at > now)
            && self.holders.is_empty()
            && self.outcomes.is_empty()
            && self.asked.is_none()
            && self.hand_backs.is_empty()
            && self.commands.is_empty()
    }

    /// Handlers that ignore their token: job, attempt, and since when.
    pub(crate) fn stuck(&self) -> impl Iterator<Item = (LeaseRef, Timestamp)> {
        self.executions
            .values()
            .filter(|execution| execution.replaced)
            .filter_map(|execution| Some((execution.lease, execution.fired_at?)))
    }

    /// Whether as many threads have been replaced as may be.
    pub(crate) fn is_at_replacement_bound(&self) -> bool {
        self.replaced_count >= self.config.workers
    }
}

/// How many dead leases are settled at a time.
const LAPSED_PAGE: u32 = 100;
