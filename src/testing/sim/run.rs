//! Runs a plan.

use super::coverage::Coverage;
use super::handlers::Script;
use super::judge::{Finding, Judge};
use super::plan::{
    EnqueueFault, Fault, JobPlan, Level, NodePlan, Order, Plan, SCHEDULED, SchedulePlan,
};
use super::rules::{PlanRules, Switchboard};
use crate::group::spawn_on;
use crate::schedule::{CatchUp, Schedule};
use crate::store::{
    Body, Due, Hub, JobRow, ParentRule, QueueChange, ScheduleChange, Session, Store, StoreError,
    Subscription, Wake,
};
use crate::testing::VirtualClock;
use crate::testing::link::{Caller, Deed, Link, LinkParts, Rules, Watch};
use crate::testing::world::{Host, HostClock, ProcessId, World};
use crate::{
    DispatchPolicy, Group, GroupOptions, Health, JobId, MemoryStore, NewJob, Prefetch, RetryPolicy,
    Timestamp,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How a run went.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Report {
    /// What must not have been.
    pub findings: Vec<Finding>,
    /// What happened, line by line, where that was asked for.
    pub log: Vec<String>,
    /// What it has met.
    pub coverage: Coverage,
    /// How many handlers have begun.
    pub runs: u64,
    /// How much virtual time has passed.
    pub took: Duration,
}

/// Runs a plan.
#[must_use]
pub fn run(plan: &Plan) -> Report {
    Fleet::new(plan, false, honest).run()
}

/// Runs a plan, and writes down what happens.
#[must_use]
pub fn run_logged(plan: &Plan) -> Report {
    Fleet::new(plan, true, honest).run()
}

pub(super) fn honest(store: MemoryStore) -> Arc<dyn Store> {
    Arc::new(store)
}

/// Something that happens at its time.
#[derive(Debug, Clone)]
enum Event {
    Enqueue(usize),
    Declare(usize),
    Resume(u32),
    Crash(usize),
    Start(usize),
    CutOff(usize, bool),
    Pause {
        node: usize,
        micros: i64,
        suspends: bool,
    },
    Resumed(usize),
    Stop(usize),
    Order(Order),
    Open(usize),
    Limit(usize, Option<u32>),
    KeyLimit(usize, Option<u32>),
    /// A try of a client to enqueue a job that has been on its way for long.
    Arrive(Box<JobRow>),
    StepClock(i64),
}

pub(super) struct Fleet<'p> {
    plan: &'p Plan,
    #[cfg(test)]
    pub(super) planted: Option<crate::kernel::driver::planted::Bug>,
    world: World,
    /// What the nodes see of the store.
    store: Arc<dyn Store>,
    judge: Judge,
    rules: Arc<PlanRules>,
    hints: Arc<Switchboard>,
    script: Arc<Script>,
    counts: Arc<Mutex<BTreeMap<(usize, u8), u64>>>,
    ids: BTreeMap<u32, JobId>,
    events: BTreeMap<(i64, u64), Event>,
    next_event: u64,
    nodes: Vec<Option<Running>>,
    processes: u64,
    _relay: Subscription,
    _seeding: crate::id::Seeding,
}

struct Running {
    group: Group,
    process: ProcessId,
    host: Arc<Host>,
    stops_since: Option<i64>,
    paused_until: i64,
    suspended_until: i64,
}

impl<'p> Fleet<'p> {
    pub(super) fn new(
        plan: &'p Plan,
        keeps_log: bool,
        between: impl FnOnce(MemoryStore) -> Arc<dyn Store>,
    ) -> Self {
        let world = World::new(VirtualClock::START, plan.seed);
        let seeding = crate::id::seed_with(world.ids());
        let memory = MemoryStore::with_clock(world.clone());
        let judge = Judge::new(plan, world.clone(), memory.clone(), keeps_log);
        let hints = Arc::new(Switchboard::new(plan, world.clone()));
        let relay = memory.hub().subscribe(Arc::clone(&hints) as _);
        Self {
            #[cfg(test)]
            planted: None,
            rules: Arc::new(PlanRules::new(plan, judge.clone(), world.clone())),
            script: Arc::new(Script::new(plan, judge.clone())),
            ids: plan.jobs.iter().map(|job| (job.n, JobId::new())).collect(),
            nodes: plan.nodes.iter().map(|_| None).collect(),
            store: between(memory),
            plan,
            world,
            judge,
            hints,
            counts: Arc::default(),
            events: BTreeMap::new(),
            next_event: 0,
            processes: 0,
            _relay: relay,
            _seeding: seeding,
        }
    }

    pub(super) fn run(mut self) -> Report {
        self.prepare();
        let ends = ms(self.plan.ends_ms);
        self.run_to(ends);
        if self.plan.level != Level::Broken {
            self.heal();
        }
        let limit = ends + CALM_DOWN;
        while self.world.elapsed() < limit && !self.judge.is_drained() && !self.judge.has_found() {
            self.run_to((self.world.elapsed() + SECOND).min(limit));
        }
        if !self.judge.has_found() {
            self.judge.close(self.plan.level != Level::Broken);
        }
        let took = Duration::from_micros(self.world.elapsed().unsigned_abs());
        for node in 0..self.nodes.len() {
            if let Some(running) = self.nodes[node].take() {
                running.host.crash();
                self.world.crash(running.process);
            }
        }
        self.world.crash(ProcessId(0));
        Report {
            findings: self.judge.take_findings(),
            log: self.judge.take_log(),
            coverage: self.judge.coverage(),
            runs: self.judge.runs(),
            took,
        }
    }

    // -- what happens when

    fn at(&mut self, at: i64, event: Event) {
        self.events.insert((at, self.next_event), event);
        self.next_event += 1;
    }

    fn prepare(&mut self) {
        for (queue, plan) in self.plan.queues.iter().enumerate() {
            if plan.limit.is_some() {
                self.change_queue(queue, QueueChange::Limit(plan.limit));
            }
            if plan.key_limit.is_some() {
                self.change_queue(queue, QueueChange::KeyLimit(plan.key_limit));
            }
        }
        for node in 0..self.plan.nodes.len() {
            self.at(0, Event::Start(node));
        }
        for (index, job) in self.plan.jobs.iter().enumerate() {
            self.at(ms(job.at_ms), Event::Enqueue(index));
        }
        for (index, schedule) in self.plan.schedules.iter().enumerate() {
            self.at(ms(schedule.at_ms), Event::Declare(index));
        }
        for fault in &self.plan.faults {
            self.foresee(fault);
        }
    }

    fn foresee(&mut self, fault: &Fault) {
        match *fault {
            Fault::Crash { node, at_ms, down_ms } => {
                self.at(ms(at_ms), Event::Crash(node));
                if let Some(down_ms) = down_ms {
                    self.at(ms(at_ms + down_ms), Event::Start(node));
                }
            }
            Fault::Isolate { node, at_ms, for_ms } => {
                self.at(ms(at_ms), Event::CutOff(node, true));
                if let Some(for_ms) = for_ms {
                    self.at(ms(at_ms + for_ms), Event::CutOff(node, false));
                }
            }
            Fault::Pause { node, at_ms, for_ms, suspends } => {
                let micros = ms(for_ms);
                self.at(ms(at_ms), Event::Pause { node, micros, suspends });
                self.at(ms(at_ms) + micros, Event::Resumed(node));
            }
            Fault::Stop { node, at_ms, back_ms } => {
                self.at(ms(at_ms), Event::Stop(node));
                if let Some(back_ms) = back_ms {
                    self.at(ms(at_ms + back_ms) + STOP_TAKES, Event::Start(node));
                }
            }
            Fault::Operator { at_ms, order } => self.at(ms(at_ms), Event::Order(order)),
            Fault::StoreClock { at_ms, by_ms } => {
                self.at(ms(at_ms), Event::StepClock(by_ms * 1000))
            }
            Fault::Call { .. }
            | Fault::Hint { .. }
            | Fault::Handler { .. }
            | Fault::Enqueue { .. } => {}
        }
    }

    /// Runs on until that time.
    fn run_to(&mut self, target: i64) {
        while self.world.elapsed() < target && !self.judge.has_found() {
            let next = self.events.first_key_value().map(|((at, _), _)| *at);
            let step = self.world.elapsed() + LOOK_EVERY;
            self.world.run_until(next.unwrap_or(target).min(step).min(target));
            while let Some(entry) = self.events.first_entry() {
                if entry.key().0 > self.world.elapsed() {
                    break;
                }
                let event = entry.remove();
                self.happen(event);
            }
            self.look_after_nodes();
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Enqueue(index) => self.enqueue(index),
            Event::Declare(index) => self.declare(index),
            Event::Resume(schedule) => self.change_schedule(schedule, &ScheduleChange::Resume),
            Event::Start(node) => self.start(node),
            Event::Crash(node) => self.crash(node),
            Event::CutOff(node, is_cut_off) => {
                self.judge.situation("a node is cut off");
                self.judge.trouble(node, is_cut_off || self.is_paused(node));
                self.rules.cut_off(node, is_cut_off);
            }
            Event::Pause { node, micros, suspends } => self.pause(node, micros, suspends),
            Event::Resumed(node) => {
                if !self.is_paused(node) {
                    self.judge.trouble(node, self.rules.is_cut_off(node));
                }
            }
            Event::Stop(node) => self.stop(node),
            Event::Order(order) => self.order(order),
            Event::Open(queue) => self.change_queue(queue, QueueChange::Resume),
            Event::Limit(queue, limit) => self.change_queue(queue, QueueChange::Limit(limit)),
            Event::KeyLimit(queue, limit) => {
                self.change_queue(queue, QueueChange::KeyLimit(limit));
            }
            Event::Arrive(row) => self.send(*row),
            Event::StepClock(by) => {
                // Before as well: the oracles know how far it has come.
                self.judge.situation("the store's clock steps");
                self.world.step_store_clock(by);
                self.judge.store_clock_stepped();
            }
        }
    }

    /// From here on nothing goes wrong any more.
    fn heal(&mut self) {
        // What a client has begun to enqueue comes all the same.
        self.events.retain(|_, event| matches!(event, Event::Arrive(_)));
        for node in 0..self.nodes.len() {
            self.rules.cut_off(node, false);
            self.judge.healed(node);
            let now = self.world.elapsed();
            if let Some(running) = &mut self.nodes[node] {
                self.world.pause(running.process, now);
                // What its clock would still have stood still for.
                running.host.lose_time(-(running.suspended_until - now).max(0));
                (running.paused_until, running.suspended_until) = (now, now);
            }
        }
        for (queue, plan) in self.plan.queues.iter().enumerate() {
            self.change_queue(queue, QueueChange::Resume);
            self.change_queue(queue, QueueChange::Limit(plan.limit));
            self.change_queue(queue, QueueChange::KeyLimit(plan.key_limit));
        }
        for schedule in &self.plan.schedules {
            self.change_schedule(schedule.n, &ScheduleChange::Resume);
        }
        // What stops will have stopped by then.
        for node in 0..self.nodes.len() {
            self.at(self.world.elapsed() + 4 * STOP_TAKES, Event::Start(node));
        }
    }

    // -- nodes

    fn start(&mut self, node: usize) {
        if self.nodes[node].is_some() {
            return;
        }
        self.processes += 1;
        let process = ProcessId(self.processes);
        let plan = &self.plan.nodes[node];
        let clock = HostClock { drift_ppm: plan.drift_ppm, wall_ahead: plan.wall_ahead_ms * 1000 };
        let (stage, host) = self.world.stage(process, clock);
        let hub = Hub::new();
        self.hints.connect(node, hub.clone());
        let link = Link::new(LinkParts {
            world: self.world.clone(),
            node,
            process,
            host: Arc::clone(&host),
            inner: Arc::clone(&self.store),
            hub,
            rules: Arc::clone(&self.rules) as _,
            watch: Arc::new(self.judge.clone()),
            counts: Arc::clone(&self.counts),
            call_timeout: CALL_TIMEOUT,
        });
        self.judge.started(process, node);
        let (registry, options) = (self.script.registry(process), self.options(plan));
        #[cfg(test)]
        let options = options.planted(self.planted);
        match spawn_on(stage, Arc::new(link), registry, options, Arc::new(Health::new())) {
            Ok(group) => {
                self.nodes[node] = Some(Running {
                    group,
                    process,
                    host,
                    stops_since: None,
                    paused_until: 0,
                    suspended_until: 0,
                })
            }
            Err(error) => panic!("a group does not start: {error}"),
        }
    }

    fn options(&self, node: &NodePlan) -> GroupOptions {
        let queues = 0..self.plan.queues.len();
        let dispatch = if self.plan.strict {
            DispatchPolicy::strict(queues.map(queue_name))
        } else {
            DispatchPolicy::weighted(queues.map(|queue| (queue_name(queue), 1 + queue as u32)))
        };
        GroupOptions::new("sim")
            .workers(node.workers)
            .pumps(node.pumps)
            .prefetch(if node.prefetches { Prefetch::Auto } else { Prefetch::Off })
            .dispatch(dispatch)
            .lease(LEASE)
            .poll_interval(Duration::from_millis(300), Duration::from_secs(1))
            .maintenance_interval(Duration::from_secs(1))
            .patience(Duration::from_secs(2))
            .shutdown_budget(Duration::from_secs(2))
    }

    fn crash(&mut self, node: usize) {
        if let Some(running) = self.nodes[node].take() {
            self.judge.situation("a process is killed");
            self.judge.crashed(running.process);
            self.judge.trouble(node, false);
            running.host.crash();
            self.world.crash(running.process);
        }
    }

    fn pause(&mut self, node: usize, micros: i64, suspends: bool) {
        let now = self.world.elapsed();
        let Some(running) = &mut self.nodes[node] else { return };
        self.judge.situation(if suspends { "a machine is suspended" } else { "a node is paused" });
        self.judge.trouble(node, true);
        running.paused_until = running.paused_until.max(now + micros);
        self.world.pause(running.process, running.paused_until);
        if suspends {
            // Where two of them overlap, the clock stands still once.
            let from = running.suspended_until.max(now);
            running.suspended_until = running.suspended_until.max(now + micros);
            running.host.lose_time(running.suspended_until - from);
        }
    }

    fn is_paused(&self, node: usize) -> bool {
        let until = self.nodes[node].as_ref().map_or(0, |running| running.paused_until);
        until > self.world.elapsed()
    }

    fn stop(&mut self, node: usize) {
        let elapsed = self.world.elapsed();
        let running = self.nodes[node].as_mut();
        if let Some(running) = running.filter(|running| running.stops_since.is_none()) {
            running.stops_since = Some(elapsed);
            self.judge.stop_asked(running.process, elapsed);
            running.group.begin_shutdown();
        }
    }

    /// Sees which nodes have died, halted or stopped.
    fn look_after_nodes(&mut self) {
        for node in 0..self.nodes.len() {
            let Some(running) = &self.nodes[node] else { continue };
            if running.host.is_crashed() {
                self.crash(node);
                let back = self.world.elapsed() + SECOND;
                self.at(back, Event::Start(node));
                continue;
            }
            let (is_over, report) = running.group.ending();
            if let Some(halt) = report.halts.first() {
                self.judge.halted(running.process, halt);
            }
            let since =
                running.stops_since.filter(|since| self.world.elapsed() - since > STOP_OVERDUE);
            if !is_over && since.is_some() {
                self.judge.still_stopping(running.process);
            }
            if is_over {
                self.judge.stopped(running.process, &report);
                self.nodes[node] = None;
            }
        }
    }

    // -- clients and operators

    fn tell(&self, deed: &Deed<'_>) {
        let sent_at = self.world.elapsed();
        let caller = Caller { node: usize::MAX, process: ProcessId(0), sent_at, is_late: true };
        self.judge.saw(caller, deed);
    }

    fn with_session<R>(
        &self,
        call: impl FnOnce(&mut dyn Session) -> Result<R, StoreError>,
    ) -> Option<R> {
        let mut session = self.store.open_session().ok()?;
        call(session.as_mut()).ok()
    }

    fn enqueue(&mut self, index: usize) {
        let job = &self.plan.jobs[index];
        let row = self.row(job);
        let fault = self.plan.faults.iter().find_map(|fault| match fault {
            Fault::Enqueue { job: n, fault } if *n == job.n => Some(*fault),
            _ => None,
        });
        let again = self.world.elapsed() + CLIENT_TRIES_AGAIN;
        match fault {
            None => return self.send(row),
            Some(EnqueueFault::LostBefore) => {
                self.judge.situation("an enqueue does not arrive");
            }
            Some(EnqueueFault::LostAfter) => {
                self.judge.situation("the answer to an enqueue is lost");
                self.send(row.clone());
            }
            Some(EnqueueFault::Late { ms: late }) => {
                self.judge.situation("an enqueue arrives late");
                self.at(self.world.elapsed() + ms(late), Event::Arrive(Box::new(row.clone())));
            }
        }
        self.at(again, Event::Arrive(Box::new(row)));
    }

    fn send(&mut self, row: JobRow) {
        let rows = [row];
        let answer = self.with_session(|session| session.enqueue(&rows));
        if let Some(answer) = answer {
            self.tell(&Deed::Enqueue(&rows, &answer));
        }
        let due_in = match rows[0].due {
            Due::In(delay) => delay,
            _ => Duration::ZERO,
        };
        self.hints.wake(&rows[0].queue, due_in);
    }

    fn row(&self, job: &JobPlan) -> JobRow {
        let mut row = JobRow::new(self.ids[&job.n], "work");
        row.payload = Body::new(job.n.to_string().into_bytes());
        row.queue = queue_name(job.queue);
        if job.delay_ms > 0 {
            row.due = Due::In(Duration::from_millis(job.delay_ms));
        }
        let policy = RetryPolicy::new(job.failures_max);
        row.retry = Some(policy.fixed(Duration::from_millis(job.retry_ms)));
        row.timeout = job.timeout_ms.map(Duration::from_millis);
        // A parent that the plan has lost is none, nor one that was not stored.
        let parents = job.parents.iter().filter_map(|n| self.ids.get(n).copied());
        row.parents = parents.filter(|parent| self.judge.knows(*parent)).collect();
        row.unique_key = job.unique.map(|key| format!("u{key}"));
        row.concurrency_key = job.key.map(|key| format!("k{key}"));
        if job.on_any_end {
            row.parent_rule = ParentRule::OnAnyTerminal;
        }
        row
    }

    fn declare(&mut self, index: usize) {
        let plan = &self.plan.schedules[index];
        let mut schedule =
            Schedule::every(schedule_name(plan.n), Duration::from_secs(plan.every_s), minted(plan))
                .ends_at(self.ends_at());
        schedule = match plan.grace_s {
            Some(grace) => schedule.grace(Duration::from_secs(grace)),
            None => schedule.catch_up(CatchUp::Coalesce),
        };
        if plan.no_overlap {
            schedule = schedule.no_overlap();
        }
        let row = schedule.into_row("sim", self.store.bounds());
        let row = row.unwrap_or_else(|faults| panic!("a schedule is not sound: {faults:?}"));
        let name = row.name.clone();
        let rows = [row];
        if self.with_session(|session| session.declare("sim", &rows, false)).is_some() {
            self.tell(&Deed::Declare(&name));
            self.hints.schedules_changed();
        }
    }

    fn change_schedule(&mut self, schedule: u32, change: &ScheduleChange) {
        let name = schedule_name(schedule);
        let answer = self.with_session(|session| session.change_schedule("sim", &name, change));
        if let Some(answer) = answer {
            self.tell(&Deed::Schedule(&name, change, &answer));
            self.hints.schedules_changed();
        }
    }

    fn trigger(&mut self, schedule: u32) {
        let Some(plan) = self.plan.schedules.iter().find(|plan| plan.n == schedule) else { return };
        let Ok(row) = minted(plan).into_row() else { return };
        self.hints.wake(&queue_name(plan.queue), Duration::ZERO);
        self.change_schedule(schedule, &ScheduleChange::Trigger(Box::new(row)));
    }

    /// No schedule ticks from then on.
    fn ends_at(&self) -> Timestamp {
        VirtualClock::START + Duration::from_millis(self.plan.ends_ms)
    }

    fn change_queue(&mut self, queue: usize, change: QueueChange) {
        let name = queue_name(queue);
        let changed = self.with_session(|session| session.change_queue("sim", &name, change));
        if changed.is_some() {
            self.tell(&Deed::Queue(&name, change));
        }
    }

    fn order(&mut self, order: Order) {
        match order {
            Order::Cancel { job } => {
                let Some(id) = self.ids.get(&job).copied() else { return };
                let answer = self.with_session(|session| session.request_cancel("sim", id));
                if let Some(answer) = answer {
                    self.tell(&Deed::Cancel(id, answer));
                }
            }
            Order::Requeue { job } => {
                let Some(id) = self.ids.get(&job).copied() else { return };
                if let Some(answer) = self.with_session(|session| session.requeue("sim", id)) {
                    self.tell(&Deed::Requeue(id, answer));
                    (0..self.plan.queues.len())
                        .for_each(|queue| self.hints.wake(&queue_name(queue), Duration::ZERO));
                }
            }
            Order::Hold { queue, for_ms } => {
                self.change_queue(queue, QueueChange::Pause);
                self.at(self.world.elapsed() + ms(for_ms), Event::Open(queue));
            }
            Order::Limit { queue, limit, for_ms } => {
                self.change_queue(queue, QueueChange::Limit(Some(limit)));
                let before = self.plan.queues.get(queue).and_then(|queue| queue.limit);
                self.at(self.world.elapsed() + ms(for_ms), Event::Limit(queue, before));
            }
            Order::KeyLimit { queue, limit, for_ms } => {
                self.change_queue(queue, QueueChange::KeyLimit(Some(limit)));
                let before = self.plan.queues.get(queue).and_then(|queue| queue.key_limit);
                self.at(self.world.elapsed() + ms(for_ms), Event::KeyLimit(queue, before));
            }
            Order::PauseSchedule { schedule, for_ms } => {
                self.change_schedule(schedule, &ScheduleChange::Pause);
                self.at(self.world.elapsed() + ms(for_ms), Event::Resume(schedule));
            }
            Order::TriggerSchedule { schedule } => self.trigger(schedule),
            Order::RemoveSchedule { schedule } => {
                self.change_schedule(schedule, &ScheduleChange::Remove);
            }
            Order::Revoke { node } => {
                for worker in self.judge.workers_of(node) {
                    let revoked = self.with_session(|session| session.revoke("sim", worker, 200));
                    if let Some(revoked) = revoked {
                        self.tell(&Deed::Revoke(worker, &revoked));
                    }
                }
            }
        }
    }
}

pub(super) fn schedule_name(schedule: u32) -> String {
    format!("s{schedule}")
}

/// The job that a schedule mints.
fn minted(plan: &SchedulePlan) -> NewJob {
    NewJob::raw("work", (SCHEDULED + plan.n).to_string())
        .queue(queue_name(plan.queue))
        .retry(RetryPolicy::new(3).fixed(Duration::from_secs(1)))
}

fn queue_name(queue: usize) -> String {
    format!("q{queue}")
}

const fn ms(ms: u64) -> i64 {
    ms as i64 * 1000
}

const SECOND: i64 = 1_000_000;
/// A client that has not heard of its enqueue tries again after so long.
const CLIENT_TRIES_AGAIN: i64 = SECOND / 5;
const LEASE: Duration = Duration::from_secs(10);
const CALL_TIMEOUT: Duration = Duration::from_millis(1_500);
/// A clean stop may take so long.
const STOP_TAKES: i64 = 3 * SECOND;
/// From then on it takes too long.
const STOP_OVERDUE: i64 = 8 * SECOND;
/// How often nodes are looked after.
const LOOK_EVERY: i64 = SECOND / 2;
/// For so long after the last fault work may go on.
const CALM_DOWN: i64 = 600 * SECOND;
