//! Random lives of a driver, against a store in miniature that answers late, fails, and loses answers.
//!
//! The store keeps its own record and is the judge: of how much is asked for, of who may write what
//! and how often, and that in the end nothing is left behind.

use super::*;
use crate::store::Receipt;
use proptest::prelude::*;

const WORKERS: u32 = 3;
/// Commands of one cycle that would be a loop.
const CYCLE_MAX: usize = 5_000;

#[derive(Debug, Clone)]
enum Step {
    Pass(u64),
    /// Moves the driver's idea of the time against the store's.
    Skew(i64),
    Poll,
    Heartbeat,
    Maintenance,
    Enqueue(u64),
    /// Answers the oldest request.
    Answer(Fate),
    Begin(usize),
    Finish(usize, bool),
    RequestCancel(usize),
    /// Another node settles what has lapsed.
    OtherReaps,
    Stop(bool),
    GraceEnds,
    DeadlinePasses,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Done,
    /// Not carried out, and the driver knows.
    Refused,
    /// Carried out, and the answer is lost.
    AnswerLost,
    /// The answer is lost, and it is carried out some time later.
    CarriedOutLater(u64),
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        6 => Just(Fate::Done),
        1 => Just(Fate::Refused),
        1 => Just(Fate::AnswerLost),
        1 => (0..9_000_u64).prop_map(Fate::CarriedOutLater),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..1_500_u64).prop_map(Step::Pass),
        1 => (0..70_000_u64).prop_map(Step::Pass),
        1 => (-400..400_i64).prop_map(Step::Skew),
        6 => Just(Step::Poll),
        3 => Just(Step::Heartbeat),
        2 => Just(Step::Maintenance),
        3 => (1..4_u64).prop_map(Step::Enqueue),
        14 => fate().prop_map(Step::Answer),
        5 => (0..8_usize).prop_map(Step::Begin),
        8 => (0..8_usize, any::<bool>()).prop_map(|(which, ok)| Step::Finish(which, ok)),
        1 => (0..8_usize).prop_map(Step::RequestCancel),
        1 => Just(Step::OtherReaps),
    ]
}

/// A life, and where in it a stop begins, if one does.
fn life() -> impl Strategy<Value = Vec<Step>> {
    let stop = (any::<bool>(), any::<prop::sample::Index>(), any::<bool>(), any::<bool>());
    (prop::collection::vec(step(), 1..160), stop).prop_map(
        |(mut steps, (stops, at, hand_back, ends))| {
            if stops {
                let at = at.index(steps.len());
                steps.insert(at, Step::Stop(hand_back));
                if ends {
                    let rest = steps.len() - at;
                    steps.insert(at + 1 + rest / 3, Step::GraceEnds);
                    steps.insert((at + 2 + rest / 2).min(steps.len()), Step::DeadlinePasses);
                }
            }
            steps
        },
    )
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Waiting,
    Leased(Timestamp),
    Ended,
}

#[derive(Debug)]
struct Row {
    at: At,
    attempt: u32,
    failures: u32,
    due: Timestamp,
    cancel_requested: bool,
    /// The last attempt that was settled, and by which receipt.
    settled: Option<(u32, Option<Receipt>)>,
    reaped: u32,
}

#[derive(Debug)]
struct Running {
    lease: LeaseRef,
    begun: bool,
    withdrawn: bool,
    replaced: bool,
    token: Option<CancelReason>,
}

/// The store, the workers and the shell around one driver.
struct World {
    driver: Driver,
    now: Timestamp,
    skew: i64,
    rows: BTreeMap<JobId, Row>,
    requests: VecDeque<Command>,
    late: Vec<(Timestamp, Command)>,
    running: BTreeMap<ExecutionId, Running>,
    /// Attempts whose result the driver owes the store.
    owed: BTreeSet<(JobId, u32)>,
    /// Attempts whose lease the driver said was lost.
    given_up: BTreeSet<(JobId, u32)>,
    receipts: BTreeMap<(JobId, u32), (Receipt, Outcome)>,
    stopping: bool,
    over: bool,
    stopped: bool,
    log: Vec<String>,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            driver: Driver::new(config(WORKERS), START),
            now: START,
            skew: 0,
            rows: BTreeMap::new(),
            requests: VecDeque::new(),
            late: Vec::new(),
            running: BTreeMap::new(),
            owed: BTreeSet::new(),
            given_up: BTreeSet::new(),
            receipts: BTreeMap::new(),
            stopping: false,
            over: false,
            stopped: false,
            log: Vec::new(),
        };
        world.listen();
        world
    }

    /// The time as the driver is told it.
    fn told(&self) -> Timestamp {
        Timestamp::from_micros(self.now.as_micros() + self.skew * 1000)
    }

    fn tell(&mut self, event: Event) {
        self.log.push(format!("{event:?}"));
        let now = self.told();
        self.driver.handle(event, now).expect("this store keeps its promises");
        self.listen();
    }

    fn listen(&mut self) {
        let now = self.told();
        for _ in 0..CYCLE_MAX {
            let Some(command) = self.driver.poll_command(now) else {
                let wake_at = self.driver.wake_at();
                assert!(wake_at.is_none_or(|at| at > now), "woken for nothing at {wake_at:?}");
                return;
            };
            self.log.push(format!("{command:?}"));
            self.obey(command);
        }
        panic!("a cycle that does not end");
    }

    fn obey(&mut self, command: Command) {
        if let Command::Note(note) = command {
            assert!(!matches!(note, Note::Degraded { .. }), "{note:?}");
            if let Note::LeaseLost { job, attempt, .. } = note {
                self.given_up.insert((job, attempt));
            }
            return;
        }
        assert!(!self.stopped, "after the end: {command:?}");
        match command {
            Command::Claim(ref ask) => {
                self.check_ask(ask);
                self.requests.push_back(command);
            }
            Command::Report { ref rows } => {
                self.check_rows(rows);
                self.requests.push_back(command);
            }
            Command::Exchange { ref rows, ref ask } => {
                self.check_ask(ask);
                self.check_rows(rows);
                self.requests.push_back(command);
            }
            Command::Renew { .. }
            | Command::FindLapsed { .. }
            | Command::FindHeld
            | Command::HandBack { .. } => self.requests.push_back(command),
            Command::Purge(_) | Command::WorkOffLatches { .. } | Command::Announce => {
                assert!(!self.stopping, "a stop takes on nothing new");
                assert!(!self.requests.iter().any(is_upkeep), "one at a time");
                self.requests.push_back(command);
            }
            Command::LookAtSchedules { .. } | Command::Mint { .. } => {
                panic!("this pump keeps no schedules: {command:?}")
            }
            Command::Execute { execution, job } => self.execute(execution, &job),
            Command::Cancel { execution, reason } => {
                if let Some(running) = self.running.get_mut(&execution) {
                    assert_eq!(running.token, None, "a token fires once");
                    running.token = Some(reason);
                }
            }
            Command::Withdraw { execution } => {
                if let Some(running) = self.running.get_mut(&execution) {
                    running.withdrawn = true;
                }
            }
            Command::ReplaceWorker { execution } => {
                let running = self.running.get_mut(&execution).expect("it runs");
                assert!(!running.replaced);
                running.replaced = true;
            }
            Command::Stopped => {
                assert!(self.stopping);
                assert!(self.requests.is_empty(), "owed an answer: {:?}", self.requests);
                self.stopped = true;
            }
            Command::Prolong { .. } | Command::Note(_) => {}
        }
    }

    fn execute(&mut self, execution: ExecutionId, job: &ClaimedJob) {
        let lease = LeaseRef { job: job.id, attempt: job.attempt };
        assert!(!self.stopping, "nothing begins while stopping");
        assert!(job.expiry > self.told(), "nothing begins on a dead lease");
        assert!(self.running.values().all(|running| running.lease != lease), "it runs already");
        let running =
            Running { lease, begun: false, withdrawn: false, replaced: false, token: None };
        self.running.insert(execution, running);
        self.check_capacity(0);
    }

    fn check_capacity(&self, asked: u32) {
        let counted = self.running.values().filter(|running| !running.replaced).count() as u32;
        assert!(counted + asked <= WORKERS, "{counted} run and {asked} are asked for");
        let replaced = self.running.values().filter(|running| running.replaced).count();
        assert!(replaced as u32 <= WORKERS);
    }

    fn check_ask(&self, ask: &ClaimAsk) {
        assert!(!self.stopping);
        assert!(ask.total > 0);
        let is_other = |command: &Command| {
            matches!(command, Command::Claim(_) | Command::Exchange { .. } | Command::Report { .. })
        };
        assert!(!self.requests.iter().any(is_other), "one at a time");
        self.check_capacity(ask.total);
    }

    /// Each decision keeps its receipt, and no two of them share a job.
    fn check_rows(&mut self, rows: &[OutcomeRow]) {
        let jobs: BTreeSet<_> = rows.iter().map(|row| row.job).collect();
        assert_eq!(jobs.len(), rows.len());
        assert!(!rows.is_empty());
        for row in rows.iter().filter(|row| row.mode == Mode::Holder) {
            let decision = (row.receipt, row.outcome);
            let kept = self.receipts.entry((row.job, row.attempt)).or_insert(decision);
            assert_eq!(*kept, decision, "a repeat is the same decision");
        }
    }

    // ---- the store

    fn claim(&mut self, total: u32) -> Claimed {
        let now = self.now;
        let mut jobs = Vec::new();
        for (id, row) in &mut self.rows {
            if row.at == At::Waiting && row.due <= now && jobs.len() < total as usize {
                row.at = At::Leased(now + LEASE);
                row.attempt += 1;
                let work = "work".to_owned();
                let mut job = ClaimedJob::new(*id, row.attempt, work, WORKER, now + LEASE);
                job.failures = row.failures;
                job.timeout = Some(secs(20)).filter(|_| id.to_bytes()[15] % 3 == 0);
                jobs.push(job);
            }
        }
        let waiting = self.rows.values().filter(|row| row.at == At::Waiting);
        let next_due = waiting.map(|row| row.due).min().filter(|_| jobs.len() < total as usize);
        Claimed::new(jobs, now).next_due(next_due)
    }

    fn is_held(&self, lease: LeaseRef) -> bool {
        self.rows.get(&lease.job).is_some_and(|row| {
            row.attempt == lease.attempt
                && matches!(row.at, At::Leased(expiry) if expiry > self.now)
        })
    }

    fn report(&mut self, rows: &[OutcomeRow]) -> Vec<RowReport> {
        rows.iter().map(|row| self.write(row)).collect()
    }

    fn write(&mut self, outcome: &OutcomeRow) -> RowReport {
        let now = self.now;
        let row = self.rows.get_mut(&outcome.job).expect("no job ever goes");
        let key = (outcome.job, outcome.attempt);
        let expiry = match row.at {
            At::Leased(expiry) if row.attempt == outcome.attempt => Some(expiry),
            _ => None,
        };
        let holds = expiry.is_some_and(|expiry| (expiry > now) == (outcome.mode == Mode::Holder));
        if !holds {
            if row.settled.is_some_and(|(_, receipt)| receipt == Some(outcome.receipt)) {
                return RowReport::AlreadyApplied(outcome.outcome.state(row.cancel_requested));
            }
            let reaped = row.reaped >= outcome.attempt || row.attempt > outcome.attempt;
            return RowReport::Stale(match expiry {
                Some(_) => StaleReason::Lapsed,
                None if reaped => StaleReason::Reaped,
                None => StaleReason::Unknown,
            });
        }
        assert!(row.settled.is_none_or(|(attempt, _)| attempt < outcome.attempt), "applied once");
        row.settled = Some((outcome.attempt, Some(outcome.receipt)));
        row.failures += u32::from(outcome.outcome.is_failure());
        let state = outcome.outcome.state(row.cancel_requested);
        row.at = if state == JobState::Scheduled { At::Waiting } else { At::Ended };
        row.due = now + outcome.outcome.delay().unwrap_or_default();
        if outcome.mode == Mode::Reap {
            row.reaped = outcome.attempt;
            self.owed.remove(&key);
        } else {
            assert!(self.owed.remove(&key), "an outcome of an attempt that owed none: {outcome:?}");
        }
        RowReport::Applied(state)
    }

    fn renew(&mut self, leases: &[LeaseRef]) -> Vec<Renewed> {
        let mut answers = Vec::new();
        for lease in leases {
            let is_held = self.is_held(*lease);
            let row = self.rows.get_mut(&lease.job).expect("no job ever goes");
            answers.push(if is_held {
                let expiry = self.now + LEASE;
                row.at = At::Leased(expiry);
                Renewed::Renewed { expiry, cancel_requested: row.cancel_requested }
            } else {
                Renewed::Lost
            });
        }
        answers
    }

    fn find_lapsed(&self, max: u32) -> Vec<LapsedJob> {
        let dead = self.rows.iter().filter_map(|(id, row)| match row.at {
            At::Leased(expiry) if expiry <= self.now => {
                let mut job = LapsedJob::new(*id, row.attempt, WORKER, expiry);
                job.failures = row.failures;
                Some(job)
            }
            _ => None,
        });
        dead.take(max as usize).collect()
    }

    fn held(&self) -> Vec<LeaseRef> {
        let leased = self.rows.iter().filter(|(_, row)| matches!(row.at, At::Leased(_)));
        leased.map(|(id, row)| LeaseRef { job: *id, attempt: row.attempt }).collect()
    }

    fn hand_back(&mut self, leases: &[LeaseRef]) -> Vec<bool> {
        let mut answers = Vec::new();
        for lease in leases {
            let is_held = self.is_held(*lease);
            answers.push(is_held);
            if !is_held {
                continue;
            }
            let key = (lease.job, lease.attempt);
            assert!(!self.owed.contains(&key), "{lease:?} has ended, and is handed back");
            if !self.over {
                let runs = |running: &Running| running.lease == *lease;
                assert!(!self.running.values().any(runs), "{lease:?} runs, and is handed back");
            }
            let row = self.rows.get_mut(&lease.job).expect("no job ever goes");
            row.at = if row.cancel_requested { At::Ended } else { At::Waiting };
            row.due = row.due.min(self.now);
        }
        answers
    }

    fn other_reaps(&mut self) {
        for job in self.find_lapsed(100) {
            let receipt = Receipt { pump: WorkerId::from_bytes([9; 16]), sequence: 1 };
            let outcome = Outcome::Retry { after: secs(2) };
            let mut row = OutcomeRow::new(job.id, job.attempt, WORKER, receipt, outcome);
            row.mode = Mode::Reap;
            self.write(&row);
        }
    }

    // ---- answers

    fn answer(&mut self, fate: Fate) {
        let Some(request) = self.requests.pop_front() else { return };
        match fate {
            Fate::Done => self.carry_out(request),
            Fate::Refused => self.fail(request, false),
            Fate::AnswerLost => {
                self.carry_out_unheard(&request);
                self.fail(request, true);
            }
            Fate::CarriedOutLater(after) => {
                let again = match &request {
                    Command::Claim(ask) => Some(Command::Claim(copy(ask))),
                    Command::Report { rows } => Some(Command::Report { rows: rows.clone() }),
                    Command::Exchange { rows, ask } => {
                        Some(Command::Exchange { rows: rows.clone(), ask: copy(ask) })
                    }
                    _ => None,
                };
                self.late.extend(again.map(|again| (self.now + ms(after), again)));
                self.fail(request, true);
            }
        }
    }

    fn carry_out(&mut self, request: Command) {
        match request {
            Command::Claim(ask) => {
                let claimed = self.claim(ask.total);
                self.tell(Event::Claimed(claimed));
            }
            Command::Report { rows } => {
                let reports = self.report(&rows);
                self.tell(Event::Reported { rows, reports });
            }
            Command::Exchange { rows, ask } => {
                let reports = self.report(&rows);
                let claimed = self.claim(ask.total);
                self.tell(Event::Reported { rows, reports });
                self.tell(Event::Claimed(claimed));
            }
            Command::Renew { leases } => {
                let rows = self.renew(&leases);
                self.tell(Event::Renewed(rows));
            }
            Command::FindLapsed { max } => {
                let jobs = self.find_lapsed(max);
                self.tell(Event::LapsedFound(jobs));
            }
            Command::FindHeld => {
                let held = self.held();
                self.tell(Event::HeldFound(held));
            }
            Command::HandBack { leases } => {
                let rows = self.hand_back(&leases);
                self.tell(Event::HandedBack(rows));
            }
            Command::Purge(purge) => {
                // A backlog of a few pages now and then.
                let more = self.now.as_micros() / 1000 % 3 == 0;
                self.tell(Event::Purged(Purged::new(0, purge.cursor, more, self.now)));
            }
            Command::WorkOffLatches { .. } => {
                self.tell(Event::LatchesWorkedOff(LatchesWorkedOff::new(0, false, self.now)));
            }
            Command::Announce => self.tell(Event::Announced),
            other => panic!("no request: {other:?}"),
        }
    }

    fn carry_out_unheard(&mut self, request: &Command) {
        match request {
            Command::Claim(ask) => {
                self.claim(ask.total);
            }
            Command::Report { rows } => {
                self.report(rows);
            }
            Command::Exchange { rows, ask } => {
                self.report(rows);
                self.claim(ask.total);
            }
            Command::Renew { leases } => {
                self.renew(leases);
            }
            Command::HandBack { leases } => {
                self.hand_back(leases);
            }
            _ => {}
        }
    }

    fn fail(&mut self, request: Command, in_doubt: bool) {
        match request {
            Command::Claim(_) => self.tell(Event::ClaimFailed { in_doubt }),
            Command::Report { rows } => self.tell(Event::ReportFailed { rows, in_doubt }),
            Command::Exchange { rows, .. } => {
                self.tell(Event::ReportFailed { rows, in_doubt });
                self.tell(Event::ClaimFailed { in_doubt });
            }
            Command::Renew { .. } => self.tell(Event::RenewFailed),
            Command::FindLapsed { .. } => self.tell(Event::FindLapsedFailed),
            Command::FindHeld => self.tell(Event::FindHeldFailed),
            Command::HandBack { .. } => self.tell(Event::HandBackFailed),
            Command::Purge(_) | Command::WorkOffLatches { .. } | Command::Announce => {
                self.tell(Event::UpkeepFailed);
            }
            other => panic!("no request: {other:?}"),
        }
    }

    // ---- what happens

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        for (at, request) in std::mem::take(&mut self.late) {
            if at <= self.now {
                self.carry_out_unheard(&request);
            } else {
                self.late.push((at, request));
            }
        }
        self.listen();
    }

    fn finish(&mut self, which: usize, ok: bool) {
        let Some((execution, _)) = self.running.iter().nth(which) else { return };
        let execution = *execution;
        let Some(running) = self.running.remove(&execution) else { return };
        let key = (running.lease.job, running.lease.attempt);
        let began = running.begun || !running.withdrawn;
        if began && !self.over && !self.given_up.contains(&key) {
            self.owed.insert(key);
        }
        let ending = match (began, ok) {
            (false, _) => Ending::NotStarted,
            (true, true) => Ending::Succeeded { output: None },
            (true, false) => failed(Verdict::Retry),
        };
        self.tell(Event::Finished { execution, ending, token: running.token, took: ms(3) });
    }

    fn step(&mut self, step: Step) {
        self.log.push(format!("{step:?}"));
        match step {
            Step::Pass(time) => self.pass(ms(time)),
            Step::Skew(skew) => {
                self.skew = skew;
                self.listen();
            }
            Step::Poll => self.tell(Event::PollDue),
            Step::Heartbeat => self.tell(Event::HeartbeatDue),
            Step::Maintenance => self.maintenance(),
            Step::Enqueue(count) => self.enqueue(count),
            Step::Answer(fate) => self.answer(fate),
            Step::Begin(which) => self.begin(which),
            Step::Finish(which, ok) => self.finish(which, ok),
            Step::RequestCancel(which) => {
                if let Some(row) = self.rows.values_mut().nth(which) {
                    row.cancel_requested = matches!(row.at, At::Leased(_));
                }
            }
            Step::OtherReaps => self.other_reaps(),
            Step::Stop(hand_back) => {
                self.stopping = true;
                self.tell(Event::StopRequested { hand_back });
            }
            Step::GraceEnds => self.tell(Event::GraceEnded),
            Step::DeadlinePasses => {
                self.over = true;
                self.tell(Event::DrainDeadline);
            }
        }
    }

    fn enqueue(&mut self, count: u64) {
        for _ in 0..count {
            let row = Row {
                at: At::Waiting,
                attempt: 0,
                failures: 0,
                due: self.now,
                cancel_requested: false,
                settled: None,
                reaped: 0,
            };
            self.rows.insert(job_id(self.rows.len() as u64 + 1), row);
        }
        let due = self.told();
        self.tell(Event::Woken { due });
    }

    fn begin(&mut self, which: usize) {
        let Some((execution, running)) = self.running.iter_mut().nth(which) else { return };
        if !running.begun && !running.withdrawn {
            running.begun = true;
            let execution = *execution;
            self.tell(Event::Started { execution });
        }
    }

    fn maintenance(&mut self) {
        self.tell(Event::MaintenanceDue);
        self.tell(Event::UpkeepDue);
    }

    /// A second in which the store answers everything and every handler ends well.
    fn good_second(&mut self) {
        self.pass(POLL);
        self.tell(Event::PollDue);
        self.tell(Event::HeartbeatDue);
        self.maintenance();
        for _ in 0..CYCLE_MAX {
            if !self.requests.is_empty() {
                self.answer(Fate::Done);
            } else if !self.running.is_empty() {
                self.finish(0, true);
            } else {
                return;
            }
        }
        panic!("a second that does not end");
    }

    fn is_done(&self) -> bool {
        self.late.is_empty() && self.rows.values().all(|row| row.at == At::Ended)
    }

    /// The store answers, handlers end: everything ends, and then the pump does.
    fn end(&mut self) {
        self.skew = 0;
        if !self.stopping {
            for _ in 0..200 {
                if self.is_done() {
                    break;
                }
                self.good_second();
            }
            assert!(self.is_done(), "left behind: {:?}", self.rows);
            self.step(Step::Stop(true));
        }
        for _ in 0..4 {
            if !self.stopped {
                self.good_second();
            }
        }
        assert!(self.stopped, "the stop does not end");
        self.check_owed();
        // It is over: whatever still happens, nothing more is said.
        self.tell(Event::PollDue);
        self.tell(Event::HeartbeatDue);
        self.maintenance();
    }

    /// The store never answers again: the stop ends at its deadline all the same.
    fn end_in_an_outage(&mut self) {
        if !self.stopping {
            self.step(Step::Stop(true));
        }
        for _ in 0..3 {
            self.refuse_all();
            self.pass(POLL);
            self.tell(Event::PollDue);
        }
        if !self.over {
            self.step(Step::DeadlinePasses);
        }
        self.refuse_all();
        assert!(self.stopped, "the stop does not end");
    }

    fn refuse_all(&mut self) {
        for _ in 0..20 {
            if self.requests.is_empty() {
                return;
            }
            self.answer(Fate::Refused);
        }
        panic!("no end of requests while the store is down");
    }

    /// What a handler ended with was written, unless its lease was lost or the budget ran out.
    fn check_owed(&self) {
        if self.over {
            return;
        }
        for owed in &self.owed {
            assert!(self.given_up.contains(owed), "{owed:?} ended, and that is not recorded");
        }
    }
}

fn copy(ask: &ClaimAsk) -> ClaimAsk {
    ClaimAsk { total: ask.total, plan: ask.plan.clone() }
}

fn live(steps: &[Step], outage: bool) -> Vec<String> {
    let mut world = World::new();
    for step in steps {
        world.step(step.clone());
    }
    if outage {
        world.end_in_an_outage();
    } else {
        world.end();
    }
    world.log
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_life_ends_well_and_the_same_way_twice(steps in life()) {
        prop_assert_eq!(live(&steps, false), live(&steps, false));
    }

    #[test]
    fn a_stop_ends_although_the_store_is_gone(steps in life()) {
        live(&steps, true);
    }
}

const fn is_upkeep(command: &Command) -> bool {
    matches!(command, Command::Purge(_) | Command::WorkOffLatches { .. } | Command::Announce)
}
