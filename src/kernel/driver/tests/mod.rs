//! Scenes with one driver, a virtual clock and a store that says what the scene wants it to say.
//!
//! A scene tells the driver what happened and takes what it asks for, in order: every command must be
//! taken before the scene ends, so that nothing is asked for unseen. Notes are kept apart.

mod claims;
mod doubt;
mod lapses;
mod limits;
mod pacing;
mod random;
mod renewals;
mod reports;
mod schedules;
mod stop;
mod stuck;
mod upkeep;
mod verdicts;

use super::command::Lost;
use super::*;
use crate::invariant::InvariantTrigger;
use crate::store::{ClaimedJob, Mode, Outcome, StaleReason};
use crate::{JobState, Timestamp};
use std::time::Duration;

const WORKER: WorkerId = WorkerId::from_bytes([7; 16]);
const START: Timestamp = Timestamp::from_micros(1_000_000_000_000_000);
const LEASE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_secs(1);
const DOUBT: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(30);

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

const fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn config(workers: u32) -> DriverConfig {
    DriverConfig {
        worker: WORKER,
        workers,
        prefetch: Prefetch::Off,
        dispatch: DispatchPolicy::strict(["default"]),
        lease: LEASE,
        poll_min: POLL,
        poll_max: secs(5),
        retry: RetryPolicy::new(3).fixed(secs(2)).jitter_percent(0),
        doubt: DOUBT,
        patience: PATIENCE,
        retention: Retention::default(),
        schedules: Looks::Never,
        planted: None,
    }
}

/// A job's id, told by its number.
fn job_id(number: u64) -> JobId {
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    JobId::from_bytes(bytes)
}

/// What a worker was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    execution: ExecutionId,
    lease: LeaseRef,
}

/// Takes the next command, which must be of the given shape.
macro_rules! take {
    ($scene:expr, $pattern:pat => $value:expr) => {
        match $scene.next() {
            Some($pattern) => $value,
            other => panic!("expected {}, found {other:?}", stringify!($pattern)),
        }
    };
}
use take;

struct Scene {
    driver: Driver,
    now: Timestamp,
    said: VecDeque<Command>,
    notes: Vec<Note>,
    jobs_made: u64,
}

impl Scene {
    fn new(workers: u32) -> Self {
        Self::of(config(workers))
    }

    fn of(config: DriverConfig) -> Self {
        let driver = Driver::new(config, START);
        let mut scene =
            Self { driver, now: START, said: VecDeque::new(), notes: Vec::new(), jobs_made: 0 };
        scene.listen();
        scene
    }

    /// A scene in which so many jobs run already, in a pool of `workers`, and nothing is under way.
    fn running(workers: u32, count: u32) -> (Self, Vec<Run>) {
        let mut scene = Self::new(workers);
        let runs = scene.claim(count);
        if count == workers {
            scene.nothing()
        } else {
            scene.quiet()
        }
        (scene, runs)
    }

    fn try_tell(&mut self, event: Event) -> Result<(), InvariantViolation> {
        self.driver.handle(event, self.now)?;
        self.listen();
        Ok(())
    }

    #[track_caller]
    fn tell(&mut self, event: Event) {
        self.try_tell(event).expect("no invariant is violated");
    }

    /// Tells something that must violate the named check.
    #[track_caller]
    fn tell_halting(&mut self, event: Event, trigger: InvariantTrigger) {
        let violation = self.try_tell(event).expect_err("an invariant is violated");
        assert_eq!(violation.trigger(), trigger);
    }

    fn listen(&mut self) {
        while let Some(command) = self.driver.poll_command(self.now) {
            match command {
                Command::Note(note) => self.notes.push(note),
                other => self.said.push_back(other),
            }
        }
    }

    fn next(&mut self) -> Option<Command> {
        self.said.pop_front()
    }

    /// Nothing more was asked for.
    #[track_caller]
    fn nothing(&mut self) {
        assert!(self.said.is_empty(), "unexpected: {:?}", self.said);
    }

    /// Answers whatever claim there is with nothing, so that the scene can look at other things.
    #[track_caller]
    fn quiet(&mut self) {
        if let Some(Command::Claim(_)) = self.said.front() {
            self.claim(0);
        }
        self.nothing();
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.listen();
    }

    /// As [`Self::pass`], and the driver had said that it would have something then.
    #[track_caller]
    fn pass_to_wake(&mut self) {
        let at = self.driver.wake_at().expect("the driver wants to be woken");
        self.now = self.now.max(at);
        self.listen();
    }

    fn tick_poll(&mut self) {
        self.now = self.now + POLL;
        self.tell(Event::PollDue);
    }

    fn heartbeat(&mut self) {
        self.tell(Event::HeartbeatDue);
    }

    fn maintenance(&mut self) {
        self.tell(Event::MaintenanceDue);
    }

    fn stop(&mut self) {
        self.tell(Event::StopRequested { hand_back: true });
    }

    // ---- claims

    #[track_caller]
    fn expect_claim(&mut self) -> ClaimAsk {
        take!(self, Command::Claim(ask) => ask)
    }

    fn new_job(&mut self) -> ClaimedJob {
        self.jobs_made += 1;
        let id = job_id(self.jobs_made);
        ClaimedJob::new(id, 1, "work".to_owned(), WORKER, self.now + LEASE)
    }

    fn new_jobs(&mut self, count: u32) -> Vec<ClaimedJob> {
        (0..count).map(|_| self.new_job()).collect()
    }

    fn answer_claim(&mut self, jobs: Vec<ClaimedJob>) {
        self.tell(Event::Claimed(Claimed::new(jobs, self.now)));
    }

    /// Takes the claim that was asked for and answers it with that many fresh jobs, which go to
    /// workers.
    #[track_caller]
    fn claim(&mut self, count: u32) -> Vec<Run> {
        let ask = self.expect_claim();
        assert!(count <= ask.total, "only {} job(s) were asked for", ask.total);
        let jobs = self.new_jobs(count);
        self.give(jobs)
    }

    /// Answers the claim under way with these jobs, which all go to workers.
    #[track_caller]
    fn give(&mut self, jobs: Vec<ClaimedJob>) -> Vec<Run> {
        let count = jobs.len();
        self.answer_claim(jobs);
        (0..count).map(|_| self.expect_execute()).collect()
    }

    #[track_caller]
    fn expect_execute(&mut self) -> Run {
        take!(self, Command::Execute { execution, job } => {
            Run { execution, lease: LeaseRef { job: job.id, attempt: job.attempt } }
        })
    }

    // ---- executions

    fn finish(&mut self, run: &Run, ending: Ending, token: Option<CancelReason>) {
        let execution = run.execution;
        self.tell(Event::Finished { execution, ending, token, took: ms(3) });
    }

    fn finish_ok(&mut self, run: &Run) {
        self.finish(run, Ending::Succeeded { output: None }, None);
    }

    fn fail(&mut self, run: &Run) {
        self.finish(run, failed(Verdict::Retry), None);
    }

    fn not_started(&mut self, run: &Run) {
        self.finish(run, Ending::NotStarted, None);
    }

    // ---- reports

    #[track_caller]
    fn expect_report(&mut self) -> Vec<OutcomeRow> {
        take!(self, Command::Report { rows } => rows)
    }

    #[track_caller]
    fn expect_exchange(&mut self) -> (Vec<OutcomeRow>, ClaimAsk) {
        take!(self, Command::Exchange { rows, ask } => (rows, ask))
    }

    /// Takes the report that was asked for, alone or with a claim, and answers all of it as written;
    /// a claim is answered with nothing.
    #[track_caller]
    fn settle(&mut self) -> Vec<OutcomeRow> {
        match self.next() {
            Some(Command::Report { rows }) => {
                self.written(&rows);
                rows
            }
            Some(Command::Exchange { rows, .. }) => {
                self.written(&rows);
                self.answer_claim(Vec::new());
                rows
            }
            other => panic!("expected a report, found {other:?}"),
        }
    }

    fn written(&mut self, rows: &[OutcomeRow]) {
        let reports = rows.iter().map(|row| RowReport::Applied(row.outcome.state(false)));
        let reports = reports.collect();
        self.tell(Event::Reported { rows: rows.to_vec(), reports });
    }

    fn report_failed(&mut self, rows: Vec<OutcomeRow>, in_doubt: bool) {
        self.tell(Event::ReportFailed { rows, in_doubt });
    }

    fn stale(&mut self, rows: Vec<OutcomeRow>, reason: StaleReason) {
        let reports = vec![RowReport::Stale(reason); rows.len()];
        self.tell(Event::Reported { rows, reports });
    }

    // ---- leases

    #[track_caller]
    fn expect_renew(&mut self) -> Vec<LeaseRef> {
        take!(self, Command::Renew { leases } => leases)
    }

    #[track_caller]
    fn expect_hand_back(&mut self) -> Vec<LeaseRef> {
        take!(self, Command::HandBack { leases } => leases)
    }

    /// Takes the hand-back that was asked for and answers it.
    #[track_caller]
    fn hand_back(&mut self) -> Vec<LeaseRef> {
        let leases = self.expect_hand_back();
        self.tell(Event::HandedBack(vec![true; leases.len()]));
        leases
    }

    #[track_caller]
    fn expect_find_held(&mut self) {
        take!(self, Command::FindHeld => ());
    }

    #[track_caller]
    fn expect_cancel(&mut self) -> (ExecutionId, CancelReason) {
        take!(self, Command::Cancel { execution, reason } => (execution, reason))
    }

    #[track_caller]
    fn expect_withdraw(&mut self) -> ExecutionId {
        take!(self, Command::Withdraw { execution } => execution)
    }

    #[track_caller]
    fn expect_stopped(&mut self) {
        take!(self, Command::Stopped => ());
        self.nothing();
    }

    fn is_noted(&self, note: &Note) -> bool {
        self.notes.contains(note)
    }

    fn lost(&self, run: &Run) -> Option<Lost> {
        self.notes.iter().find_map(|note| match note {
            Note::LeaseLost { job, attempt, why }
                if *job == run.lease.job && *attempt == run.lease.attempt =>
            {
                Some(*why)
            }
            _ => None,
        })
    }

    fn degraded(&self) -> Vec<InvariantTrigger> {
        let triggers = self.notes.iter().filter_map(|note| match note {
            Note::Degraded { trigger, .. } => Some(*trigger),
            _ => None,
        });
        triggers.collect()
    }
}

fn failed(verdict: Verdict) -> Ending {
    Ending::Failed { verdict, detail: "it broke".to_owned() }
}

fn outcomes(rows: &[OutcomeRow]) -> Vec<Outcome> {
    rows.iter().map(|row| row.outcome).collect()
}

fn jobs(rows: &[OutcomeRow]) -> Vec<JobId> {
    rows.iter().map(|row| row.job).collect()
}

fn leases(runs: &[Run]) -> Vec<LeaseRef> {
    runs.iter().map(|run| run.lease).collect()
}
