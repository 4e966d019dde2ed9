//! A node of a world: the real driver, and around it what a pump does, without its threads.
//!
//! As a pump does, it hears everything that has arrived, in order, then takes the driver's commands until one
//! is a call of the store or there are none; while it is in a call it hears nothing. Its workers are threads
//! of their own: what they do happens at any moment, and is heard later.

use super::oracle::{Finding, Oracle, check};
use super::plant::Plant;
use super::scope::Scope;
use super::search::Mixer;
use super::shelf::{Answer, retry};
use super::world::Situation;
use crate::kernel::driver::{
    ClaimAsk, Command, Driver, DriverConfig, Ending, Event, ExecutionId, Looks, Note, Prefetch,
};
use crate::store::{ClaimedJob, LeaseRef, Mode, Outcome, OutcomeRow, Receipt, Renewed, RowReport};
use crate::{
    CancelReason, DispatchPolicy, JobId, JobState, Retention, Timestamp, Verdict, WorkerId,
};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// Commands of one cycle that would be a loop.
const CYCLE_MAX: usize = 200;

#[derive(Debug, Clone)]
pub(super) enum Phase {
    Listening,
    /// In a call that the store has not carried out yet.
    Calling(Command),
    /// In a call that the store has carried out, and whose answer has not come yet.
    Answered(Command, Answer),
    Stopped,
    /// Crashed.
    Down,
}

/// What has arrived and is not heard yet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Letter {
    Tick,
    Stop,
    Begun(ExecutionId),
    Finished { execution: ExecutionId, lease: LeaseRef, end: End, token: Option<CancelReason> },
}

/// How a handler ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum End {
    Succeeds,
    Fails,
    GivesWay,
    /// It did not begin: its lease was past.
    NotStarted,
}

/// A job that was given to a worker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Running {
    pub(super) execution: ExecutionId,
    pub(super) lease: LeaseRef,
    pub(super) begun: bool,
    pub(super) token: Option<CancelReason>,
    /// When its token fires by itself.
    deadline: Timestamp,
    /// When its pump heard that it began.
    heard_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Deadlines {
    grace_at: Option<Timestamp>,
    over_at: Option<Timestamp>,
}

type Key = (JobId, u32);

#[derive(Clone)]
pub(super) struct Node {
    pub(super) worker: WorkerId,
    pub(super) phase: Phase,
    driver: Driver,
    inbox: Vec<Letter>,
    pub(super) running: Vec<Running>,
    pub(super) stop_asked: bool,
    deadlines: Option<Deadlines>,
    over: bool,
    maintenance_due: bool,
    /// Ends that its handlers have told it and that the store has not been told yet.
    owed: BTreeSet<Key>,
    /// Attempts whose lease it has given up while they ran.
    given_up: BTreeSet<Key>,
    /// Attempts that have given way to a stop.
    gave_way: BTreeSet<Key>,
    decisions: BTreeMap<Key, (Receipt, Outcome)>,
    /// Only planted bugs make any.
    receipts_made: u64,
    pub(super) fingerprint: u64,
    pub(super) seen: Vec<Situation>,
    /// Leases that it has given up, the last ones just now.
    pub(super) gave_up: Vec<LeaseRef>,
}

/// What is asked for, as far as it can differ.
pub(super) fn hash_request<H: Hasher>(request: &Command, state: &mut H) {
    std::mem::discriminant(request).hash(state);
    match request {
        Command::Claim(ask) => ask.total.hash(state),
        Command::Report { rows } => rows.hash(state),
        Command::Exchange { rows, ask } => (rows, ask.total).hash(state),
        Command::Renew { leases } | Command::HandBack { leases } => leases.hash(state),
        _ => {}
    }
}

fn worker_id(index: usize, generation: u8) -> WorkerId {
    let mut bytes = [7; 16];
    (bytes[14], bytes[15]) = (generation, index as u8);
    WorkerId::from_bytes(bytes)
}

impl Node {
    pub(super) fn start(
        scope: &Scope,
        index: usize,
        generation: u8,
        now: Timestamp,
    ) -> Result<Self, Finding> {
        let worker = worker_id(index, generation);
        let config = DriverConfig {
            worker,
            workers: scope.workers,
            prefetch: if scope.prefetch { Prefetch::Auto } else { Prefetch::Off },
            dispatch: DispatchPolicy::strict(["default"]),
            lease: scope.lease,
            poll_min: Duration::from_secs(1),
            poll_max: Duration::from_secs(1),
            retry: retry(scope),
            doubt: DOUBT,
            patience: Duration::from_secs(1000),
            retention: Retention::forever(),
            schedules: Looks::Never,
            planted: None,
        };
        let mut node = Self {
            worker,
            phase: Phase::Listening,
            driver: Driver::new(config, now),
            inbox: Vec::new(),
            running: Vec::new(),
            stop_asked: false,
            deadlines: None,
            over: false,
            maintenance_due: false,
            owed: BTreeSet::new(),
            given_up: BTreeSet::new(),
            gave_way: BTreeSet::new(),
            decisions: BTreeMap::new(),
            receipts_made: 0,
            fingerprint: 0,
            seen: Vec::new(),
            gave_up: Vec::new(),
        };
        node.driver.accustom(TOOK);
        node.carry_out(scope, now)?;
        Ok(node)
    }

    pub(super) fn seal(&mut self) {
        let mut hasher = Mixer::default();
        self.worker.hash(&mut hasher);
        self.running.hash(&mut hasher);
        match &self.phase {
            Phase::Listening => 0_u8.hash(&mut hasher),
            Phase::Calling(request) => hash_request(request, &mut hasher),
            Phase::Answered(request, answer) => {
                hash_request(request, &mut hasher);
                (1_u8, answer).hash(&mut hasher);
            }
            Phase::Stopped => 2_u8.hash(&mut hasher),
            Phase::Down => 3_u8.hash(&mut hasher),
        }
        if self.is_up() {
            self.driver.hash(&mut hasher);
            (&self.inbox, self.stop_asked, self.deadlines, self.over, self.maintenance_due)
                .hash(&mut hasher);
            (&self.owed, &self.given_up, &self.gave_way, &self.gave_up, &self.decisions)
                .hash(&mut hasher);
        }
        self.fingerprint = hasher.finish();
    }

    pub(super) const fn is_up(&self) -> bool {
        !matches!(self.phase, Phase::Stopped | Phase::Down)
    }

    pub(super) const fn is_listening(&self) -> bool {
        matches!(self.phase, Phase::Listening)
    }

    /// Whether it has something to do that is not the answer of a call.
    pub(super) fn has_work(&self, now: Timestamp) -> bool {
        self.is_listening()
            && (!self.inbox.is_empty()
                || self.driver.wake_at().is_some_and(|at| at <= now)
                || self.next_deadline().is_some_and(|at| at <= now))
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.and_then(|deadlines| deadlines.grace_at.or(deadlines.over_at))
    }

    // -- what happens to it

    /// A second has passed.
    pub(super) fn tick(&mut self, scope: &Scope, maintenance: bool, now: Timestamp) {
        if self.is_up() {
            self.maintenance_due |= maintenance && scope.plant != Some(Plant::NoMaintenance);
            if !self.inbox.contains(&Letter::Tick) {
                self.inbox.push(Letter::Tick);
            }
            if self.stop_asked && scope.plant == Some(Plant::StopHeardLate) {
                self.inbox.push(Letter::Stop);
            }
        }
        for running in &mut self.running {
            if running.deadline <= now {
                running.token.get_or_insert(CancelReason::LeaseLost);
            }
        }
    }

    /// Of a group with several pumps all have been asked.
    pub(super) fn show_stop(&mut self) {
        self.stop_asked = true;
    }

    pub(super) fn send_stop(&mut self) {
        self.inbox.push(Letter::Stop);
    }

    pub(super) fn ask_to_stop(&mut self, scope: &Scope) {
        self.stop_asked = true;
        if scope.plant != Some(Plant::StopHeardLate) {
            self.inbox.push(Letter::Stop);
        }
    }

    pub(super) fn crash(&mut self) {
        self.running.clear();
        self.phase = Phase::Down;
    }

    /// Whether a worker is free to begin it: workers take what was given out first.
    pub(super) fn may_begin(&self, scope: &Scope, which: usize) -> bool {
        let begun = self.running.iter().filter(|running| running.begun).count();
        let earlier = self.running[..which].iter().filter(|running| !running.begun).count();
        begun + earlier < scope.workers as usize
    }

    pub(super) fn begin(&mut self, scope: &Scope, which: usize) -> Result<(), Finding> {
        let is_stopping = self.deadlines.is_some();
        let running = &mut self.running[which];
        if running.token == Some(CancelReason::LeaseLost) {
            self.end(which, End::NotStarted);
        } else {
            check(!is_stopping, Oracle::BeginsTooLate, || format!("{running:?} begins"))?;
            running.begun = true;
            if scope.time_limit.is_some() {
                let execution = running.execution;
                self.inbox.push(Letter::Begun(execution));
            }
        }
        Ok(())
    }

    pub(super) fn end(&mut self, which: usize, end: End) {
        let Running { execution, lease, token, .. } = self.running.remove(which);
        self.inbox.push(Letter::Finished { execution, lease, end, token });
    }

    /// The store has ended a lease of it.
    pub(super) fn settled(&mut self, lease: LeaseRef, by_holder: bool) -> Result<(), Finding> {
        let was_owed = self.owed.remove(&(lease.job, lease.attempt));
        let ended = was_owed || !by_holder || !self.is_up();
        check(ended, Oracle::Invented, || format!("nobody ended {lease:?}"))
    }

    /// Hears what has arrived, and goes on.
    pub(super) fn cycle(&mut self, scope: &Scope, now: Timestamp) -> Result<(), Finding> {
        for letter in std::mem::take(&mut self.inbox) {
            self.hear(scope, letter, now)?;
        }
        self.keep_deadlines(now)?;
        self.carry_out(scope, now)
    }

    fn hear(&mut self, scope: &Scope, letter: Letter, now: Timestamp) -> Result<(), Finding> {
        match letter {
            Letter::Tick => {
                self.step(Event::PollDue, now)?;
                self.step(Event::HeartbeatDue, now)?;
                if std::mem::take(&mut self.maintenance_due) {
                    self.step(Event::MaintenanceDue, now)?;
                }
                Ok(())
            }
            Letter::Stop => self.hear_stop(scope, now),
            Letter::Begun(execution) => self.hear_begun(scope, execution, now),
            Letter::Finished { execution, lease, end, token } => {
                self.notice_stop(scope, now)?;
                self.hear_finished(scope, (execution, lease), end, token, now)
            }
        }
    }

    fn hear_begun(
        &mut self,
        scope: &Scope,
        execution: ExecutionId,
        now: Timestamp,
    ) -> Result<(), Finding> {
        if let Some(running) = self.running(execution) {
            running.heard_at = Some(now);
        }
        if scope.plant == Some(Plant::BeginUnheard) {
            return Ok(());
        }
        self.step(Event::Started { execution }, now)
    }

    fn hear_finished(
        &mut self,
        scope: &Scope,
        (mut execution, lease): (ExecutionId, LeaseRef),
        end: End,
        token: Option<CancelReason>,
        now: Timestamp,
    ) -> Result<(), Finding> {
        let key = (lease.job, lease.attempt);
        let is_stopping = self.stop_asked || self.deadlines.is_some();
        let gives_way_to_stop = end == End::GivesWay && is_stopping;
        // The first reason that it was told counts.
        let by_other =
            matches!(token, Some(CancelReason::OperatorRequest | CancelReason::TimedOut));
        if gives_way_to_stop && !by_other {
            self.gave_way.insert(key);
            self.saw(Situation::GaveWay);
        }
        let is_given_up = self.given_up.remove(&key);
        let is_told = end != End::NotStarted && (!gives_way_to_stop || by_other);
        if is_told && !is_given_up && !self.over && token != Some(CancelReason::LeaseLost) {
            self.owed.insert(key);
        }
        if scope.plant == Some(Plant::ResultByJob) {
            let same = self.running.iter().find(|running| running.lease.job == lease.job);
            execution = same.map_or(execution, |running| running.execution);
        }
        let reason = token.unwrap_or(CancelReason::GroupStopping);
        let failed = |verdict| Ending::Failed { verdict, detail: String::new() };
        let ending = match end {
            End::Succeeds => Ending::Succeeded { output: None },
            End::Fails => failed(Verdict::Retry),
            End::GivesWay => failed(Verdict::GaveWay(reason)),
            End::NotStarted => Ending::NotStarted,
        };
        self.step(Event::Finished { execution, ending, token, took: TOOK }, now)
    }

    fn hear_stop(&mut self, scope: &Scope, now: Timestamp) -> Result<(), Finding> {
        if self.deadlines.is_some() {
            return Ok(());
        }
        let budget = scope.stop_budget;
        let over_at = Some(now + budget);
        self.deadlines = Some(Deadlines { grace_at: Some(now + budget / 2), over_at });
        self.step(Event::StopRequested { hand_back: !budget.is_zero() }, now)
    }

    fn notice_stop(&mut self, scope: &Scope, now: Timestamp) -> Result<(), Finding> {
        let notices = self.stop_asked && scope.plant != Some(Plant::StopHeardLate);
        if notices { self.hear_stop(scope, now) } else { Ok(()) }
    }

    fn keep_deadlines(&mut self, now: Timestamp) -> Result<(), Finding> {
        let Some(deadlines) = self.deadlines.as_mut() else { return Ok(()) };
        let grace = deadlines.grace_at.take_if(|at| *at <= now).is_some();
        let over = deadlines.over_at.take_if(|at| *at <= now).is_some();
        if grace {
            self.step(Event::GraceEnded, now)?;
        }
        if over {
            self.saw(Situation::BudgetOver);
            self.over = true;
            self.step(Event::DrainDeadline, now)?;
        }
        Ok(())
    }

    fn step(&mut self, event: Event, now: Timestamp) -> Result<(), Finding> {
        let halt = self.driver.handle(event, now).err();
        check(halt.is_none(), Oracle::FalseAlarm, || format!("{halt:?}"))
    }

    // -- what it does

    fn carry_out(&mut self, scope: &Scope, now: Timestamp) -> Result<(), Finding> {
        self.phase = Phase::Listening;
        for _ in 0..CYCLE_MAX {
            let Some(command) = self.driver.poll_command(now) else {
                let wake_at = self.driver.wake_at();
                self.check_limits(scope, now)?;
                return check(wake_at.is_none_or(|at| at > now), Oracle::Spins, || {
                    format!("{} is woken for nothing at {wake_at:?}", self.worker)
                });
            };
            self.obey(scope, command, now)?;
            if !self.is_listening() {
                return Ok(());
            }
        }
        Err(Finding::new(Oracle::Spins, format!("a cycle of {} does not end", self.worker)))
    }

    /// Nothing runs beyond its limit without having been asked to end.
    fn check_limits(&self, scope: &Scope, now: Timestamp) -> Result<(), Finding> {
        let Some(limit) = scope.time_limit else { return Ok(()) };
        let over = |running: &&Running| {
            running.token.is_none() && running.heard_at.is_some_and(|at| at + limit <= now)
        };
        let over = self.running.iter().find(over);
        check(over.is_none(), Oracle::LimitIgnored, || format!("{over:?} goes on"))
    }

    fn obey(&mut self, scope: &Scope, command: Command, now: Timestamp) -> Result<(), Finding> {
        match command {
            Command::Execute { execution, job } => self.execute(scope, execution, &job, now),
            Command::Prolong { execution, expiry } => {
                if let Some(running) = self.running(execution) {
                    running.deadline = expiry;
                }
                Ok(())
            }
            Command::Cancel { execution, reason } => {
                if scope.plant != Some(Plant::DeafToken)
                    && let Some(running) = self.running(execution)
                {
                    running.token.get_or_insert(reason);
                }
                Ok(())
            }
            Command::Withdraw { execution } => self.withdraw(scope, execution, now),
            Command::Note(note) => self.note(&note),
            Command::Stopped => self.stopped(),
            Command::ReplaceWorker { .. } => {
                Err(Finding::new(Oracle::Protocol, "patience has ended too early"))
            }
            request => self.request(scope, request),
        }
    }

    fn running(&mut self, execution: ExecutionId) -> Option<&mut Running> {
        self.running.iter_mut().find(|running| running.execution == execution)
    }

    fn execute(
        &mut self,
        scope: &Scope,
        execution: ExecutionId,
        job: &ClaimedJob,
        now: Timestamp,
    ) -> Result<(), Finding> {
        let lease = LeaseRef { job: job.id, attempt: job.attempt };
        let in_time = job.expiry > now && self.deadlines.is_none();
        check(in_time, Oracle::BeginsTooLate, || format!("{lease:?} is given out"))?;
        let deaf = scope.plant == Some(Plant::DeafToken);
        let deadline = if deaf { Timestamp::MAX } else { job.expiry };
        let running =
            Running { execution, lease, begun: false, token: None, deadline, heard_at: None };
        if scope.plant == Some(Plant::GivenTwice) {
            self.running.push(running.clone());
        }
        self.running.push(running);
        Ok(())
    }

    fn withdraw(
        &mut self,
        scope: &Scope,
        execution: ExecutionId,
        now: Timestamp,
    ) -> Result<(), Finding> {
        if scope.plant == Some(Plant::NothingWithdrawn) {
            return Ok(());
        }
        let also_begun = scope.plant == Some(Plant::BegunWithdrawn);
        let running = self.running.iter().find(|running| running.execution == execution);
        let Some(running) = running.filter(|running| !running.begun || also_begun).cloned() else {
            return Ok(());
        };
        // A planted bug leaves the handler running.
        self.running.retain(|running| running.execution != execution || running.begun);
        self.saw(Situation::Withdrawn);
        let Running { lease, token, .. } = running;
        self.hear_finished(scope, (execution, lease), End::NotStarted, token, now)
    }

    fn note(&mut self, note: &Note) -> Result<(), Finding> {
        match note {
            Note::LeaseLost { job, attempt, .. } => {
                self.saw(Situation::LeaseLost);
                self.gave_up.push(LeaseRef { job: *job, attempt: *attempt });
                let key = (*job, *attempt);
                let runs = |running: &Running| (running.lease.job, running.lease.attempt) == key;
                let arrives = |letter: &Letter| match letter {
                    Letter::Finished { lease, .. } => (lease.job, lease.attempt) == key,
                    Letter::Tick | Letter::Stop | Letter::Begun(_) => false,
                };
                if !self.owed.remove(&key)
                    && (self.running.iter().any(runs) || self.inbox.iter().any(arrives))
                {
                    self.given_up.insert(key);
                }
                Ok(())
            }
            Note::Degraded { .. } => Err(Finding::new(Oracle::FalseAlarm, format!("{note:?}"))),
            _ => Ok(()),
        }
    }

    fn stopped(&mut self) -> Result<(), Finding> {
        check(self.deadlines.is_some(), Oracle::Protocol, || "stopped unasked".to_owned())?;
        check(self.over || self.owed.is_empty(), Oracle::OutcomeLost, || {
            format!("stopped, and never reported {:?}", self.owed)
        })?;
        // Nobody waits for a handler whose lease is lost.
        let left = self.running.iter().any(|running| running.token.is_none());
        check(self.over || !left, Oracle::OutcomeLost, || {
            format!("stopped before its budget was over, and left {:?}", self.running)
        })?;
        self.phase = Phase::Stopped;
        Ok(())
    }

    /// What it owes the store.
    pub(super) fn owed(&self) -> impl Iterator<Item = LeaseRef> + '_ {
        self.owed.iter().map(|(job, attempt)| LeaseRef { job: *job, attempt: *attempt })
    }

    /// Whether it owes nothing to anybody.
    pub(super) fn check_owes_nothing(&self) -> Result<(), Finding> {
        let paid = self.over || self.owed.is_empty();
        check(paid, Oracle::OutcomeLost, || format!("{:?} is never recorded", self.owed))
    }

    /// Whether its stop was cut short.
    pub(super) const fn is_over(&self) -> bool {
        self.over
    }

    // -- its calls

    fn request(&mut self, scope: &Scope, mut request: Command) -> Result<(), Finding> {
        if let Command::Claim(ask) | Command::Exchange { ask, .. } = &request {
            self.check_ask(scope, ask)?;
        }
        if let Command::Report { rows } | Command::Exchange { rows, .. } = &mut request {
            self.bend_rows(scope, rows);
            self.check_rows(rows)?;
        }
        self.phase = Phase::Calling(request);
        Ok(())
    }

    fn check_ask(&self, scope: &Scope, ask: &ClaimAsk) -> Result<(), Finding> {
        check(self.deadlines.is_none() && ask.total > 0, Oracle::Protocol, || format!("{ask:?}"))?;
        let held = self.running.len() as u64 + u64::from(ask.total);
        let most = u64::from(scope.workers) * if scope.prefetch { 2 } else { 1 };
        check(held <= most, Oracle::Overrun, || {
            format!("{} asks for {ask:?} while it runs {:?}", self.worker, self.running)
        })
    }

    /// Each decision keeps its receipt, and no two of one report share a job.
    fn check_rows(&mut self, rows: &[OutcomeRow]) -> Result<(), Finding> {
        let jobs: BTreeSet<_> = rows.iter().map(|row| row.job).collect();
        check(jobs.len() == rows.len() && !rows.is_empty(), Oracle::Protocol, || {
            format!("{rows:?}")
        })?;
        for row in rows.iter().filter(|row| row.mode == Mode::Holder) {
            let key = (row.job, row.attempt);
            let decision = (row.receipt, row.outcome);
            let kept = *self.decisions.entry(key).or_insert(decision);
            check(kept == decision, Oracle::DecidedTwice, || {
                format!("{kept:?}, then {decision:?}")
            })?;
            let excused = self.gave_way.contains(&key);
            check(!excused || !row.outcome.is_failure(), Oracle::FailureMiscounted, || {
                format!("an attempt that gives way to a stop fails: {row:?}")
            })?;
        }
        Ok(())
    }

    fn bend_rows(&mut self, scope: &Scope, rows: &mut [OutcomeRow]) {
        for row in rows {
            match scope.plant {
                Some(Plant::FreshReceipts) => {
                    self.receipts_made += 1;
                    row.receipt.sequence = 1000 + self.receipts_made;
                }
                Some(Plant::LapseBeyondCeiling) if row.mode == Mode::Reap => {
                    row.outcome = Outcome::Retry { after: Duration::from_secs(1) };
                }
                _ => {}
            }
        }
    }

    /// Its call is answered: it hears of it, and goes on.
    pub(super) fn answer(
        &mut self,
        scope: &Scope,
        request: Command,
        answer: Answer,
        now: Timestamp,
    ) -> Result<(), Finding> {
        match (request, answer) {
            (Command::Claim(_), Answer::Claimed(claimed)) => {
                self.saw_late(claimed.jobs.iter().any(|job| job.expiry <= now));
                self.notice_stop(scope, now)?;
                self.step(Event::Claimed(claimed), now)?;
            }
            (Command::Report { rows }, Answer::Reported(reports)) => {
                self.step(Event::Reported { rows, reports }, now)?;
            }
            (Command::Exchange { rows, .. }, Answer::Exchanged(reports, claimed)) => {
                self.saw_late(claimed.jobs.iter().any(|job| job.expiry <= now));
                self.step(Event::Reported { rows, reports }, now)?;
                self.notice_stop(scope, now)?;
                if scope.plant != Some(Plant::HalfAnExchange) {
                    self.step(Event::Claimed(claimed), now)?;
                }
            }
            (Command::Renew { .. }, Answer::Renewed(mut rows)) => {
                if scope.plant == Some(Plant::ShortRenewal) {
                    rows.pop();
                }
                self.saw_cancel(&rows);
                self.step(Event::Renewed(rows), now)?;
            }
            (Command::FindLapsed { .. }, Answer::Lapsed(jobs)) => {
                self.step(Event::LapsedFound(jobs), now)?;
            }
            (Command::FindHeld, Answer::Held(leases)) => {
                self.step(Event::HeldFound(leases), now)?;
            }
            (Command::HandBack { .. }, Answer::HandedBack(rows)) => {
                self.step(Event::HandedBack(rows), now)?;
            }
            (request, answer) => panic!("{request:?} is answered with {answer:?}"),
        }
        self.carry_out(scope, now)
    }

    /// Its call has failed.
    pub(super) fn fail(
        &mut self,
        scope: &Scope,
        request: Command,
        in_doubt: bool,
        now: Timestamp,
    ) -> Result<(), Finding> {
        match request {
            Command::Claim(_) => self.claim_failed(scope, in_doubt, now)?,
            Command::Report { rows } => self.report_failed(scope, rows, in_doubt, now)?,
            Command::Exchange { rows, .. } => {
                self.report_failed(scope, rows, in_doubt, now)?;
                self.claim_failed(scope, in_doubt, now)?;
            }
            Command::Renew { .. } => self.step(Event::RenewFailed, now)?,
            Command::FindLapsed { .. } => self.step(Event::FindLapsedFailed, now)?,
            Command::FindHeld => self.step(Event::FindHeldFailed, now)?,
            Command::HandBack { .. } => self.step(Event::HandBackFailed, now)?,
            other => panic!("no request of this world: {other:?}"),
        }
        self.carry_out(scope, now)
    }

    fn claim_failed(
        &mut self,
        scope: &Scope,
        in_doubt: bool,
        now: Timestamp,
    ) -> Result<(), Finding> {
        let in_doubt = in_doubt && scope.plant != Some(Plant::DoubtForgotten);
        match scope.plant {
            Some(Plant::SlotForgotten) => Ok(()),
            _ => self.step(Event::ClaimFailed { in_doubt }, now),
        }
    }

    fn report_failed(
        &mut self,
        scope: &Scope,
        rows: Vec<OutcomeRow>,
        in_doubt: bool,
        now: Timestamp,
    ) -> Result<(), Finding> {
        if scope.plant == Some(Plant::OutcomeDropped) && in_doubt {
            let reports = vec![RowReport::Applied(JobState::Succeeded); rows.len()];
            return self.step(Event::Reported { rows, reports }, now);
        }
        self.step(Event::ReportFailed { rows, in_doubt }, now)
    }

    // -- what was seen

    fn saw(&mut self, situation: Situation) {
        self.seen.push(situation);
    }

    fn saw_late(&mut self, is_late: bool) {
        if is_late {
            self.saw(Situation::LateClaim);
        }
    }

    fn saw_cancel(&mut self, rows: &[Renewed]) {
        let asks = |row: &Renewed| matches!(row, Renewed::Renewed { cancel_requested: true, .. });
        if rows.iter().any(asks) {
            self.saw(Situation::CancelHeard);
        }
    }
}

/// What attempts take: with it a pump holds one job more for each worker, if it may.
const TOOK: Duration = Duration::from_millis(4);
/// For how long a call whose answer was lost may still be carried out.
pub(super) const DOUBT: Duration = Duration::from_secs(2);
