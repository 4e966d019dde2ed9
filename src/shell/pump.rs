//! The pump: receive, step the driver, carry out its commands, feed the answers back.

mod schedules;
mod upkeep;

use super::board::{Board, PumpEnd};
use super::calls::{Called, Line};
use super::faults::Fault;
use super::hints::Hints;
use super::planted::slips;
use super::pool::Pool;
use super::ticker::TokenTable;
use super::worker::Task;
use super::{Message, PumpLine, Tick};
use crate::contain::{contained, dispose};
use crate::context::ContextParts;
use crate::health::{DegradedCause, Pen, StuckHandler};
use crate::invariant::{self, InvariantTrigger, halt};
use crate::kernel::driver::{
    ClaimAsk, Command, Driver, DriverConfig, Ending, Event, ExecutionId, Note,
};
use crate::registry::Entry;
use crate::stage::{Stage, point};
use crate::store::{Accepts, Claim, ClaimedJob, LeaseRef, OutcomeRow, Store};
use crate::{
    CancelReason, CancelToken, Client, JobContext, JobId, JobState, RetryPolicy, telemetry,
};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a pump needs.
pub(crate) struct PumpParts {
    pub(crate) stage: Stage,
    pub(crate) index: usize,
    pub(crate) group: Arc<str>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) client: Client,
    pub(crate) driver: DriverConfig,
    pub(crate) entries: Arc<HashMap<&'static str, Arc<Entry>>>,
    pub(crate) accepts: Arc<[Accepts]>,
    pub(crate) line: PumpLine,
    pub(crate) inbox: Receiver<Message>,
    pub(crate) hints: Arc<Hints>,
    pub(crate) pool: Pool,
    pub(crate) tokens: Arc<TokenTable>,
    pub(crate) pen: Pen,
    pub(crate) board: Arc<Board>,
    /// Fired when a clean stop is asked for.
    pub(crate) stopping: CancelToken,
    pub(crate) budget: Duration,
}

/// See the module's documentation.
pub(crate) struct Pump {
    parts: PumpParts,
    driver: Driver,
    store: Line,
    queues: Vec<String>,
    running: HashMap<ExecutionId, Arc<Task>>,
    replaced: HashSet<ExecutionId>,
    probe: Option<u64>,
    taken: u64,
    stop: Option<Stop>,
    handed_back: usize,
    stopped: bool,
    /// Some job reached a terminal state in this cycle.
    settled: bool,
    /// A write of this cycle may have left transitions that observers wait for.
    wrote: bool,
    /// A note of this pump may be in the store.
    noted: bool,
}

/// The deadlines of a clean stop, by the monotonic clock.
struct Stop {
    grace_at: Option<Instant>,
    over_at: Option<Instant>,
}

impl Pump {
    /// To be called on the pump's own thread.
    pub(crate) fn new(parts: PumpParts) -> Self {
        let worker = parts.driver.worker;
        let seed = u64::from_be_bytes(worker.to_bytes().last_chunk().copied().unwrap_or_default());
        let stage = parts.stage.clone();
        let store = Line::new(Arc::clone(&parts.group), Arc::clone(&parts.store), seed, stage);
        Self {
            driver: Driver::new(parts.driver.clone(), store.time.now()),
            queues: parts.driver.dispatch.queues().map(str::to_owned).collect(),
            store,
            running: HashMap::new(),
            replaced: HashSet::new(),
            probe: None,
            taken: 0,
            stop: None,
            handed_back: 0,
            stopped: false,
            settled: false,
            wrote: false,
            noted: false,
            parts,
        }
    }

    /// Runs until the pump has stopped or halted: the third of the three nets.
    pub(crate) fn run(mut self) {
        let fault = match catch_unwind(AssertUnwindSafe(|| self.pump())) {
            Ok(Ok(())) => return self.end_cleanly(),
            Ok(Err(fault)) => fault,
            Err(payload) => Fault::from_panic(payload),
        };
        if self.parts.stage.has_crashed() {
            return dispose(Box::new(self));
        }
        self.fail_stop(&fault);
        self.leave_halt_note(&fault);
        // The session is dropped last, when nobody waits for this thread any more: closing one may
        // block on a dead network.
        dispose(Box::new(self));
    }

    fn pump(&mut self) -> Result<(), Fault> {
        self.carry_out()?;
        while !self.stopped {
            self.receive()?;
            self.carry_out()?;
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<(), Fault> {
        if slips!(InboxCleared) {
            self.parts.inbox.try_iter().for_each(drop);
        }
        if slips!(StopOnlyShown) {
            self.notice_stop()?;
            if self.stopped {
                return Ok(());
            }
        }
        match self.parts.stage.receive(&self.parts.inbox, Some(self.wake_at())) {
            Ok(message) => self.hear(message)?,
            Err(RecvTimeoutError::Timeout) => {}
            // The group's handle holds a sender as long as this thread runs.
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Fault::new("backwave::shell::Pump", "every sender is gone", None));
            }
        }
        // What has arrived meanwhile is decided together.
        for _ in 0..MESSAGES_MAX {
            let Ok(message) = self.parts.inbox.try_recv() else { break };
            self.hear(message)?;
        }
        self.keep_stop_deadlines()
    }

    fn wake_at(&self) -> Instant {
        let driver = self.driver.wake_at().map(|at| self.store.time.reached_at(at));
        let stop = self.stop.as_ref();
        let stop = stop.and_then(|stop| stop.grace_at.or(stop.over_at));
        let latest = self.parts.stage.now() + Duration::from_secs(3600);
        [driver, stop].into_iter().flatten().min().unwrap_or(latest)
    }

    fn hear(&mut self, message: Message) -> Result<(), Fault> {
        match message {
            Message::Driver(event) => self.hear_worker(event),
            Message::Tick => self.hear_ticks(),
            Message::Hint => self.hear_hint(),
            Message::IdleProbe(probe) => {
                self.probe = Some(probe);
                let due = self.store.time.now();
                self.step(Event::Woken { due })
            }
            Message::Stop => self.hear_stop(),
            Message::Violation(fault) | Message::TickerGone(fault) => Err(fault),
            Message::WorkerGone => {
                Err(Fault::new("backwave::shell::Pool", "a worker thread is gone", None))
            }
        }
    }

    fn step(&mut self, event: Event) -> Result<(), Fault> {
        self.driver.handle(event, self.store.time.now()).map_err(Fault::from)
    }

    fn hear_worker(&mut self, event: Event) -> Result<(), Fault> {
        // A handler that saw the stop asked for may give way before our own message has come: what it
        // returns must be judged as what it is, an answer to the stop.
        self.notice_stop()?;
        if let Event::Finished { execution, .. } = &event {
            self.forget(*execution);
        }
        self.step(event)
    }

    fn forget(&mut self, execution: ExecutionId) {
        self.running.remove(&execution);
        self.parts.tokens.remove(execution);
        if self.replaced.remove(&execution) {
            self.parts.pool.retire_one();
        }
    }

    fn hear_ticks(&mut self) -> Result<(), Fault> {
        let ticks = Arc::clone(&self.parts.line.ticks);
        ticks.begin_taking();
        if ticks.take(Tick::Poll) {
            self.step(Event::PollDue)?;
        }
        if ticks.take(Tick::Heartbeat) {
            self.step(Event::HeartbeatDue)?;
            self.show_stuck();
        }
        if ticks.take(Tick::Maintenance) {
            self.store.forgive_jump(&self.parts.pen);
            self.step(Event::MaintenanceDue)?;
            self.step(Event::UpkeepDue)?;
        }
        Ok(())
    }

    fn show_stuck(&self) {
        self.parts.pen.stuck(self.driver.stuck().map(|(lease, since)| StuckHandler {
            job: lease.job,
            attempt: lease.attempt,
            since,
        }));
        let cause = DegradedCause::StuckHandlers;
        if self.driver.is_at_replacement_bound() {
            self.parts.pen.degraded(cause, None);
        } else {
            self.parts.pen.recovered(cause);
        }
    }

    fn hear_hint(&mut self) -> Result<(), Fault> {
        if self.parts.hints.take_schedules() {
            self.step(Event::SchedulesChanged)?;
        }
        let Some(at) = self.parts.hints.take() else { return Ok(()) };
        let due = self.store.time.now() + at.saturating_duration_since(self.parts.stage.now());
        self.step(Event::Woken { due })
    }

    fn hear_stop(&mut self) -> Result<(), Fault> {
        if self.stop.is_some() {
            return Ok(());
        }
        let budget = self.parts.budget;
        let now = self.parts.stage.now();
        self.stop = Some(Stop {
            grace_at: now.checked_add(budget / 5 * 4),
            over_at: now.checked_add(budget),
        });
        self.step(Event::StopRequested { hand_back: !budget.is_zero() })
    }

    fn keep_stop_deadlines(&mut self) -> Result<(), Fault> {
        let now = self.parts.stage.now();
        let Some(stop) = self.stop.as_mut() else { return Ok(()) };
        let grace = stop.grace_at.take_if(|at| *at <= now).is_some();
        let over = stop.over_at.take_if(|at| *at <= now).is_some();
        if grace {
            self.step(Event::GraceEnded)?;
        }
        if over {
            self.step(Event::DrainDeadline)?;
        }
        Ok(())
    }

    /// Carries out what the driver asks for, until it asks for nothing more.
    fn carry_out(&mut self) -> Result<(), Fault> {
        while let Some(command) = self.driver.poll_command(self.store.time.now()) {
            // The workers get what there is to do before anything else, a call of the store above all.
            if !matches!(command, Command::Execute { .. } | Command::Note(_)) {
                self.parts.pool.hand_out();
            }
            self.obey(command)?;
        }
        self.parts.pool.hand_out();
        self.store.end_cycle(&self.parts.pen);
        if std::mem::take(&mut self.settled) {
            self.parts.store.hub().settled();
        }
        if std::mem::take(&mut self.wrote) {
            self.parts.store.hub().transitions_written();
        }
        let now = self.store.time.now();
        if let Some(probe) = self.probe.take_if(|_| self.driver.is_idle(now)) {
            self.parts.board.idle(self.parts.index, probe, self.taken);
        }
        Ok(())
    }

    fn obey(&mut self, command: Command) -> Result<(), Fault> {
        match command {
            Command::Claim(ask) => self.claim(&ask),
            Command::Report { rows } => self.report(rows),
            Command::Exchange { rows, ask } => self.exchange(rows, &ask),
            Command::Renew { leases } => self.renew(&leases),
            Command::FindLapsed { max } => self.find_lapsed(max),
            Command::FindHeld => self.find_held(),
            Command::HandBack { leases } => self.hand_back(&leases),
            Command::LookAtSchedules { max } => self.look_at_schedules(max),
            Command::Mint { rows } => self.mint(&rows),
            Command::Purge(purge) => self.purge(&purge),
            Command::WorkOffLatches { max } => self.work_off_latches(max),
            Command::Announce => self.announce(),
            Command::Execute { execution, job } => self.execute(execution, *job),
            Command::Prolong { execution, expiry } => {
                if let Some(task) = self.running.get(&execution) {
                    task.token().set_deadline(self.store.time.expires_at(expiry));
                }
                Ok(())
            }
            Command::Cancel { execution, reason } => {
                if let Some(task) = self.running.get(&execution) {
                    task.token().fire(reason);
                }
                Ok(())
            }
            Command::Withdraw { execution } => self.withdraw(execution),
            Command::ReplaceWorker { execution } => {
                self.replace_worker(execution);
                Ok(())
            }
            Command::Note(note) => {
                self.tell(note);
                Ok(())
            }
            Command::Stopped => {
                self.stopped = true;
                Ok(())
            }
        }
    }

    fn claim(&mut self, ask: &ClaimAsk) -> Result<(), Fault> {
        let accepts = Arc::clone(&self.parts.accepts);
        let claim = self.claim_of(ask, &accepts);
        let event = match self.store.call(&self.parts.pen, |session| session.claim(&claim))? {
            Called::Answered(claimed) => {
                self.wrote |= !claimed.jobs.is_empty();
                Event::Claimed(claimed)
            }
            Called::Failed { in_doubt } => Event::ClaimFailed { in_doubt },
        };
        if slips!(HintSwallowedInCall) {
            let _ = self.parts.hints.take();
        }
        self.notice_stop()?;
        self.step(event)
    }

    /// Hears a stop whose message still waits. Also before a claim's answer is taken in: what was
    /// claimed meanwhile is then not begun.
    fn notice_stop(&mut self) -> Result<(), Fault> {
        point();
        if slips!(StopShownFirst) {
            return Ok(());
        }
        if self.parts.stopping.is_cancelled() { self.hear_stop() } else { Ok(()) }
    }

    fn claim_of<'a>(&self, ask: &'a ClaimAsk, accepts: &'a [Accepts]) -> Claim<'a> {
        let config = &self.parts.driver;
        Claim::new(config.worker, ask.total, &ask.plan, accepts, config.lease)
    }

    fn report(&mut self, rows: Vec<OutcomeRow>) -> Result<(), Fault> {
        let called = self.store.call(&self.parts.pen, |session| session.report(&rows))?;
        let event = match called {
            Called::Answered(reported) => {
                self.wrote = true;
                Event::Reported { rows, reports: reported.rows }
            }
            Called::Failed { in_doubt } => Event::ReportFailed { rows, in_doubt },
        };
        self.step(event)
    }

    fn exchange(&mut self, rows: Vec<OutcomeRow>, ask: &ClaimAsk) -> Result<(), Fault> {
        let accepts = Arc::clone(&self.parts.accepts);
        let claim = self.claim_of(ask, &accepts);
        match self.store.call(&self.parts.pen, |session| session.exchange(&rows, &claim))? {
            Called::Answered(exchanged) => {
                self.wrote = true;
                if slips!(HintSwallowedInCall) {
                    let _ = self.parts.hints.take();
                }
                self.step(Event::Reported { rows, reports: exchanged.reported.rows })?;
                self.notice_stop()?;
                self.step(Event::Claimed(exchanged.claimed))
            }
            Called::Failed { in_doubt } => {
                self.step(Event::ReportFailed { rows, in_doubt })?;
                self.step(Event::ClaimFailed { in_doubt })
            }
        }
    }

    fn renew(&mut self, leases: &[LeaseRef]) -> Result<(), Fault> {
        let (worker, lease) = (self.parts.driver.worker, self.parts.driver.lease);
        let called =
            self.store.call(&self.parts.pen, |session| session.renew(worker, leases, lease))?;
        self.step(match called {
            Called::Answered(renewal) => Event::Renewed(renewal.rows),
            Called::Failed { .. } => Event::RenewFailed,
        })
    }

    fn find_lapsed(&mut self, max: u32) -> Result<(), Fault> {
        let queues = std::mem::take(&mut self.queues);
        let called = self.store.call(&self.parts.pen, |session| session.find_lapsed(&queues, max));
        self.queues = queues;
        let event = match called? {
            Called::Answered(lapsed) => Event::LapsedFound(lapsed.jobs),
            Called::Failed { .. } => Event::FindLapsedFailed,
        };
        self.step(event)
    }

    fn find_held(&mut self) -> Result<(), Fault> {
        let worker = self.parts.driver.worker;
        let called = self.store.call(&self.parts.pen, |session| session.held_by(worker))?;
        self.step(match called {
            Called::Answered(held) => {
                Event::HeldFound(held.leases.into_iter().map(|(lease, _)| lease).collect())
            }
            Called::Failed { .. } => Event::FindHeldFailed,
        })
    }

    fn hand_back(&mut self, leases: &[LeaseRef]) -> Result<(), Fault> {
        let worker = self.parts.driver.worker;
        let called =
            self.store.call(&self.parts.pen, |session| session.hand_back(worker, leases))?;
        let event = match called {
            Called::Answered(handed_back) => {
                self.wrote = true;
                self.handed_back += handed_back.rows.iter().filter(|given| **given).count();
                self.wake_siblings();
                Event::HandedBack(handed_back.rows)
            }
            Called::Failed { .. } => Event::HandBackFailed,
        };
        self.step(event)
    }

    /// What goes back at a stop is for other groups of this process to take at once.
    fn wake_siblings(&self) {
        if self.stop.is_none() {
            return;
        }
        for queue in &self.queues {
            crate::client::enqueue::wake(self.parts.store.hub(), queue, Duration::ZERO);
        }
    }

    fn execute(&mut self, execution: ExecutionId, mut job: ClaimedJob) -> Result<(), Fault> {
        let entry = self.parts.entries.get(job.wire_name.as_str());
        let Some(entry) = entry.filter(|entry| job.version <= entry.version) else {
            let message = format!(
                "job {} was claimed with a wire name or payload version that no handler is for",
                job.id
            );
            return Err(Fault::from(halt(InvariantTrigger::ClaimedRowNotEligible, message)));
        };
        let token = CancelToken::on(self.parts.stage.clone());
        token.set_deadline(self.store.time.expires_at(job.expiry));
        self.parts.tokens.insert(execution, token.clone());
        let (payload, version, has_time_limit) =
            (std::mem::take(&mut job.payload), job.version, job.timeout.is_some());
        let context = JobContext::from_parts(self.context_parts(job, token));
        let mut task = Task::new(execution, Arc::clone(entry), context, payload, version);
        task.has_time_limit = has_time_limit;
        task.detail_bytes_max = self.parts.store.bounds().failure_detail_bytes_max;
        let task = Arc::new(task);
        self.running.insert(execution, Arc::clone(&task));
        self.taken += 1;
        self.parts.pool.add(task);
        Ok(())
    }

    fn context_parts(&self, job: ClaimedJob, token: CancelToken) -> ContextParts {
        let retry: RetryPolicy = job.retry.unwrap_or(self.parts.driver.retry);
        ContextParts {
            job_id: job.id,
            attempt: job.attempt,
            failures: job.failures,
            wire_name: job.wire_name,
            queue: job.queue,
            tags: job.tags,
            due_at: job.due_at,
            tick: job.tick,
            group: Arc::clone(&self.parts.group),
            token,
            stopping: self.parts.stopping.clone(),
            client: self.parts.client.clone(),
            last_try: job.failures.saturating_add(1) >= retry.failures_max(),
            output_bytes_max: self.parts.store.bounds().output_bytes_max,
        }
    }

    fn withdraw(&mut self, execution: ExecutionId) -> Result<(), Fault> {
        let Some(task) = self.running.get(&execution).filter(|task| task.withdraw()) else {
            return Ok(());
        };
        let message =
            Message::finished(execution, Ending::NotStarted, task.token(), Duration::ZERO);
        self.hear(message)
    }

    /// Where no thread can be made, the pool is one short until the handler comes back.
    fn replace_worker(&mut self, execution: ExecutionId) {
        match self.parts.pool.spawn() {
            Ok(_detached) => {
                self.replaced.insert(execution);
            }
            Err(_) => self.parts.pen.degraded(DegradedCause::StuckHandlers, None),
        }
    }

    fn tell(&mut self, note: Note) {
        let group = &self.parts.group;
        match note {
            Note::LeaseAcquired { job, attempt, expiry } => {
                telemetry::lease_acquired(group, job, attempt, expiry);
            }
            Note::AttemptEnded { job, attempt, state } => {
                self.settled |= JobState::is_terminal(state);
                telemetry::attempt_ended(group, job, attempt, state);
            }
            Note::WillRetry { job, attempt, failures, due } => {
                telemetry::will_retry(group, job, attempt, failures, due);
            }
            Note::DeadLettered { job, attempt, failures, lapsed } => {
                telemetry::dead_lettered(group, job, attempt, failures, lapsed);
            }
            Note::Quarantined { job, attempt } => telemetry::quarantined(group, job, attempt),
            Note::LeaseLost { job, attempt, why } => {
                telemetry::lease_lost(group, job, attempt, why.describe());
            }
            Note::LapsedSettled { count } => telemetry::lapsed_settled(group, count),
            Note::TokenIgnored { job, attempt, age } => {
                telemetry::token_ignored(group, job, attempt, age);
            }
            Note::BudgetExhausted { jobs } => telemetry::budget_exhausted(group, &jobs),
            Note::TickMinted { schedule, job } => {
                telemetry::tick_minted(group, &schedule, job);
            }
            Note::TicksSkipped { schedule, count, reason } => {
                telemetry::ticks_skipped(group, &schedule, count, reason);
            }
            Note::ScheduleFailed { schedule, error } => {
                telemetry::schedule_failed(group, &schedule, &error);
            }
            Note::Degraded { trigger, detail } => invariant::degrade(trigger, Some(group), &detail),
        }
    }

    /// After a clean stop the session is closed before anybody is told that the stop is complete.
    fn end_cleanly(mut self) {
        // Also an adapter's panic must not keep the end from being told.
        let _ = contained(|| self.withdraw_note());
        let running = self.running.values();
        let mut still_running: Vec<JobId> = running.map(|task| task.context.job_id()).collect();
        still_running.sort_unstable();
        let Self { parts, store, handed_back, .. } = self;
        // Closing is the adapter's code, whose panic must not keep the end from being told.
        dispose(Box::new(store));
        parts.pen.ended();
        parts.board.ended(parts.index, PumpEnd::Stopped { handed_back, still_running });
    }

    /// Health first, then the tokens, then the log. Nothing is reported, renewed or handed back from
    /// here on; the leases lapse, and others inherit the work.
    fn fail_stop(&mut self, fault: &Fault) {
        let halt = fault.halt_state();
        self.parts.pen.halted(halt.clone());
        for task in self.running.values().filter(|_| !slips!(TasksLeftAtHalt)) {
            // What no worker has begun is not begun any more.
            task.withdraw();
            task.token().fire(CancelReason::GroupStopping);
        }
        invariant::count_halt(fault.trigger());
        telemetry::fail_stopped(&self.parts.group, fault.trigger_name(), fault);
        self.parts.board.ended(self.parts.index, PumpEnd::Halted(halt));
    }
}

/// Messages taken in before the store is called again, so that nothing waits for ever.
const MESSAGES_MAX: usize = 4096;
