//! A Worker Group on virtual time: see [`Harness`].

use super::link::{Caller, Deed, Link, LinkParts, Manner, Rules, Watch};
use super::mishaps::{Mishap, Plot};
use super::world::{Host, HostClock, ProcessId, World};
use super::{StoreCall, VirtualClock};
use crate::group::spawn_on;
use crate::id::Seeding;
use crate::monitor::Monitor;
use crate::observer::{ObserverPump, ObserverReport, spawn_observers_on};
use crate::operator::Operator;
use crate::schedule::Schedules;
use crate::stage::Stage;
use crate::store::{Hub, JobRecord, Store, Wake};
use crate::{
    Client, Group, GroupOptions, Health, JobId, JobState, MemoryStore, NewJob, Observers, Registry,
    ShutdownReport, Timestamp,
};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A Worker Group with your real handlers on virtual time and a store in memory: an hour passes when the test says
/// so, and takes no time.
///
/// The group is the real one, every thread of it; only time and waiting are simulated, and one thing happens after
/// another, in an order that the seed decides. Retries, dependencies, time limits, leases, a clean stop: all of it
/// moves with [`Self::advance`], [`Self::drain`] and their like, and with nothing else.
///
/// A handler takes no virtual time, unless it calls [`JobContext::sleep`](crate::JobContext::sleep). What waits in
/// real time (for a channel, for [`Client::wait`]) would wait for ever: the harness panics after a minute.
///
/// ```
/// use backwave::{GroupOptions, Job, JobState, Registry, RetryPolicy, testing::Harness};
/// use serde::{Deserialize, Serialize};
/// use std::time::Duration;
///
/// #[derive(Serialize, Deserialize)]
/// struct Remind {
///     user: u64,
/// }
///
/// impl Job for Remind {
///     const WIRE_NAME: &'static str = "remind";
///     const RETRY: Option<RetryPolicy> =
///         Some(RetryPolicy::new(5).fixed(Duration::from_secs(3600)).jitter_percent(0));
/// }
///
/// let registry = Registry::new().handle(|ctx, _: Remind| match ctx.failures() {
///     0..3 => Err("nobody answers".into()),
///     _ => Ok(()),
/// });
/// let mut harness = Harness::new(registry);
/// let job = harness.enqueue(&Remind { user: 7 });
/// harness.run_until_idle();
/// assert_eq!(harness.job(job).failures, 1);
///
/// harness.advance(Duration::from_secs(3 * 3600));
/// assert_eq!(harness.job(job).state, JobState::Succeeded);
/// assert_eq!(harness.job(job).attempt, 4);
/// ```
pub struct Harness {
    world: World,
    store: MemoryStore,
    client: Client,
    registry: Registry,
    options: GroupOptions,
    plot: Arc<Plot>,
    counts: Arc<parking_lot::Mutex<std::collections::BTreeMap<(usize, u8), u64>>>,
    health: Arc<Health>,
    running: Option<Running>,
    /// What every process runs beside its group.
    observers: Vec<Observers>,
    processes: u64,
    _seeding: Seeding,
}

struct Running {
    group: Group,
    process: ProcessId,
    host: Arc<Host>,
    stage: Stage,
    link: Link,
    observers: Vec<ObserverPump>,
    _relay: [crate::store::Subscription; 2],
}

impl Running {
    fn observe(&mut self, observers: Observers) {
        let (stage, store) = (self.stage.clone(), Arc::new(self.link.clone()));
        match spawn_observers_on(stage, store, observers) {
            Ok(pump) => self.observers.push(pump),
            Err(error) => panic!("the observers do not start: {error}"),
        }
    }
}

/// How a [`Harness`] is to be.
#[must_use = "a builder does nothing until it builds"]
pub struct HarnessBuilder {
    registry: Registry,
    options: GroupOptions,
    seed: u64,
    start: Timestamp,
    mishaps: Vec<Mishap>,
}

impl HarnessBuilder {
    /// Decides the ids, the jitter and the order of what happens at the same time. Default 0.
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// When the virtual time begins. Default [`VirtualClock::START`].
    pub const fn start(mut self, start: Timestamp) -> Self {
        self.start = start;
        self
    }

    /// The group's options. By default a group named `harness` with four workers, whose ticks come each ten
    /// seconds: what is enqueued, and what is known to be due, does not wait for them.
    pub fn options(mut self, options: GroupOptions) -> Self {
        self.options = options;
        self
    }

    /// What is to go wrong, and when.
    pub fn mishaps(mut self, mishaps: impl IntoIterator<Item = Mishap>) -> Self {
        self.mishaps.extend(mishaps);
        self
    }

    /// The harness, its group running.
    ///
    /// # Panics
    /// When the options or the registry are refused.
    #[must_use]
    pub fn build(self) -> Harness {
        let world = World::new(self.start, self.seed);
        let seeding = crate::id::seed_with(world.ids());
        let store = MemoryStore::builder()
            .clock(world.clone())
            .history(crate::HistoryPolicy::Transitions)
            .build();
        let plot = Arc::new(Plot::new(&self.mishaps, world.clone(), store.clone()));
        let mut harness = Harness {
            client: Client::new(store.clone()),
            registry: plot.watch(self.registry),
            world,
            store,
            options: self.options,
            plot,
            counts: Arc::default(),
            health: Arc::new(Health::new()),
            running: None,
            observers: Vec::new(),
            processes: 0,
            _seeding: seeding,
        };
        harness.restart();
        harness
    }
}

impl Harness {
    /// A harness with the defaults.
    ///
    /// # Panics
    /// When two handlers have one wire name, or there is none.
    #[must_use]
    pub fn new(registry: Registry) -> Self {
        Self::builder(registry).build()
    }

    /// A harness to be furnished.
    pub fn builder(registry: Registry) -> HarnessBuilder {
        HarnessBuilder {
            registry,
            options: default_options(),
            seed: 0,
            start: VirtualClock::START,
            mishaps: Vec::new(),
        }
    }

    /// Enqueues a job. Nothing runs before time is let pass, be it none.
    ///
    /// # Panics
    /// When the job is refused.
    pub fn enqueue(&self, job: impl Into<NewJob>) -> JobId {
        match self.client.enqueue(job) {
            Ok(enqueued) => enqueued.id,
            Err(error) => panic!("the job is refused: {error}"),
        }
    }

    /// The client that the handlers find, too.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Reading: single jobs and counts.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        self.client.monitor()
    }

    /// What an operator does, in the name of `test`.
    #[must_use]
    pub fn operator(&self) -> Operator {
        self.client.operator("test")
    }

    /// Schedules: declared, paused, triggered here, and carried out by the group as virtual time comes to them.
    ///
    /// ```
    /// use backwave::schedule::Schedule;
    /// use backwave::{Registry, testing::Harness};
    /// use std::time::Duration;
    ///
    /// # #[derive(serde::Serialize, serde::Deserialize)]
    /// # struct Report;
    /// # impl backwave::Job for Report { const WIRE_NAME: &'static str = "report"; }
    /// let registry = Registry::new().handle(|_, _: Report| Ok(()));
    /// let mut harness = Harness::new(registry);
    /// let nightly = Schedule::cron("nightly", "30 3 * * *", &Report);
    /// harness.schedules().declare("shop", [nightly])?;
    /// harness.advance(Duration::from_secs(7 * 86_400));
    /// assert!(harness.schedules().list()?[0].last_tick.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn schedules(&self) -> Schedules {
        self.client.schedules()
    }

    /// Runs observers beside the group: in its process, so that [`Self::crash`] ends them too, and
    /// [`Self::restart`] starts them again. A callback that is to be told of what is written from now on is
    /// registered when this returns.
    ///
    /// A callback takes no virtual time.
    ///
    /// # Panics
    /// When they are refused.
    pub fn observe(&mut self, observers: Observers) {
        if let Some(running) = &mut self.running {
            running.observe(observers.clone());
        }
        self.observers.push(observers);
        self.world.run_until(self.world.elapsed());
        self.revive();
    }

    /// How the observers of the running process fare.
    #[must_use]
    pub fn observer_reports(&self) -> Vec<ObserverReport> {
        let pumps = self.running.iter().flat_map(|running| &running.observers);
        pumps.flat_map(ObserverPump::reports).collect()
    }

    /// A job as it stands.
    ///
    /// # Panics
    /// When there is none of that id.
    #[must_use]
    pub fn job(&self, id: JobId) -> JobRecord {
        match self.monitor().job(id) {
            Ok(record) => record,
            Err(error) => panic!("{error}"),
        }
    }

    /// The health that the group writes.
    #[must_use]
    pub const fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.world.now()
    }

    /// Lets time pass, and everything happen that is due meanwhile.
    pub fn advance(&mut self, span: Duration) {
        let span = i64::try_from(span.as_micros()).unwrap_or(i64::MAX / 4);
        let target = self.world.elapsed().saturating_add(span);
        while !self.step(target) {}
    }

    /// Lets time pass until nothing runs, no outcome waits to be written and nothing is due. Jobs that are due
    /// later, as a retry that waits, do not count.
    ///
    /// # Panics
    /// When a virtual day passes first.
    pub fn run_until_idle(&mut self) {
        let limit = self.world.elapsed() + DAY;
        let mut before = None;
        loop {
            let taken = self.idle();
            if taken.is_some() && (taken == before || self.running.is_none()) {
                return;
            }
            before = taken;
            if taken.is_none() {
                assert!(!self.step_once(limit), "the group is not idle after a virtual day");
            }
        }
    }

    /// Lets time pass until every job has ended, but no longer than `limit`. Whether they have.
    pub fn drain(&mut self, limit: Duration) -> bool {
        let limit = i64::try_from(limit.as_micros()).unwrap_or(i64::MAX / 4);
        let target = self.world.elapsed().saturating_add(limit);
        while self.has_live_jobs() {
            if self.step(target) {
                return !self.has_live_jobs();
            }
        }
        self.run_until_idle();
        true
    }

    /// Stops the group cleanly, letting the time pass that this takes.
    pub fn stop(&mut self) -> ShutdownReport {
        let Some(running) = self.running.take() else { return ShutdownReport::default() };
        running.group.begin_shutdown();
        let limit = self.world.elapsed() + DAY;
        loop {
            self.world.run_until(self.world.elapsed());
            let (is_over, report) = running.group.ending();
            if is_over {
                // The observers stop last, to tell of how the jobs ended.
                running.observers.iter().for_each(ObserverPump::begin_shutdown);
            }
            let has_ended =
                |pump: &ObserverPump| pump.reports().iter().all(|one| one.end.is_some());
            let is_over = is_over && running.observers.iter().all(has_ended);
            if is_over || self.world.elapsed() >= limit {
                return report;
            }
            let next = self.world.next_wake().unwrap_or(limit).min(limit);
            self.world.run_until(next);
        }
    }

    /// Ends the group as if its process were killed: nothing is reported or handed back, and its leases lapse.
    pub fn crash(&mut self) {
        if let Some(running) = self.running.take() {
            running.host.crash();
            self.world.crash(running.process);
        }
    }

    /// Starts the group again, as in a new process. A group that runs is ended by [`Self::crash`] before.
    ///
    /// # Panics
    /// When the options are refused.
    pub fn restart(&mut self) {
        self.crash();
        self.processes += 1;
        let process = ProcessId(self.processes);
        let (stage, host) = self.world.stage(process, HostClock::default());
        let hub = Hub::new();
        let relay = Arc::new(Relay(hub.clone()));
        let outer = self.store.hub();
        let relay = [outer.subscribe(Arc::clone(&relay) as _), outer.watch(relay)];
        let link = Link::new(LinkParts {
            world: self.world.clone(),
            node: 0,
            process,
            host: Arc::clone(&host),
            inner: Arc::new(self.store.clone()),
            hub,
            rules: Arc::clone(&self.plot) as _,
            watch: Arc::clone(&self.plot) as _,
            counts: Arc::clone(&self.counts),
            call_timeout: Duration::from_secs(2),
        });
        self.health = Arc::new(Health::new());
        let (registry, options) = (self.registry.clone(), self.options.clone());
        let (health, store) = (Arc::clone(&self.health), Arc::new(link.clone()));
        let group = match spawn_on(stage.clone(), store, registry, options, health) {
            Ok(group) => group,
            Err(error) => panic!("the group does not start: {error}"),
        };
        let mut running =
            Running { group, process, host, stage, link, observers: Vec::new(), _relay: relay };
        for observers in &self.observers {
            running.observe(observers.clone());
        }
        self.running = Some(running);
    }

    /// Goes on to whatever is next, at most to `target`. Whether that is reached.
    fn step(&mut self, target: i64) -> bool {
        if self.idle().is_some() && self.world.elapsed() < target {
            let latest = target.min(self.world.elapsed() + LEAP_MAX);
            let next = if self.observers_rest() {
                self.world.next_wake_but_looks()
            } else {
                self.world.next_wake_but_ticks()
            };
            let next = next.unwrap_or(latest).min(latest);
            self.world.leap(next);
        }
        self.step_once(target)
    }

    fn step_once(&mut self, target: i64) -> bool {
        self.world.run_until(self.world.elapsed());
        self.revive();
        if self.world.elapsed() >= target {
            return true;
        }
        if self.idle().is_none() {
            let next = self.world.next_wake().unwrap_or(target).min(target);
            self.world.run_until(next);
            self.revive();
        }
        false
    }

    /// A process that a mishap has killed comes back.
    fn revive(&mut self) {
        if self.running.as_ref().is_some_and(|running| running.host.is_crashed()) {
            self.restart();
        }
    }

    /// How many jobs were taken, where nothing is to be done now.
    fn idle(&self) -> Option<u64> {
        let Some(running) = &self.running else { return Some(0) };
        if self.count(JobState::Leased) > 0 {
            return None;
        }
        let probe = running.group.ask_idle();
        self.world.run_until(self.world.elapsed());
        running.group.was_idle(probe)
    }

    fn observers_rest(&self) -> bool {
        self.running.iter().flat_map(|running| &running.observers).all(ObserverPump::rests)
    }

    fn has_live_jobs(&self) -> bool {
        [JobState::Scheduled, JobState::AwaitingParent, JobState::Leased]
            .into_iter()
            .any(|state| self.count(state) > 0)
    }

    fn count(&self, state: JobState) -> u64 {
        let counts = self.store.open_session().and_then(|mut session| session.counts());
        let counts = counts.unwrap_or_default();
        counts.iter().filter(|count| count.state == state).map(|count| count.count).sum()
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        self.crash();
    }
}

impl fmt::Debug for Harness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness").field("now", &self.now()).finish_non_exhaustive()
    }
}

impl fmt::Debug for HarnessBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HarnessBuilder").field("seed", &self.seed).finish_non_exhaustive()
    }
}

fn default_options() -> GroupOptions {
    let tick = Duration::from_secs(10);
    GroupOptions::new("harness").workers(4).poll_interval(tick, tick)
}

/// Passes the hints of a store on to a process.
struct Relay(Hub);

impl Wake for Relay {
    fn wake(&self, queue: &str, due_in: Duration) {
        self.0.wake(queue, due_in);
    }

    fn schedules_changed(&self) {
        self.0.schedules_changed();
    }
}

impl crate::store::Watch for Relay {
    fn transitions_written(&self) {
        self.0.transitions_written();
    }
}

impl Rules for Plot {
    fn manner(&self, _node: usize, call: StoreCall, _nth: u64) -> Manner {
        self.at_call(call)
    }
}

impl Watch for Plot {
    fn saw(&self, _caller: Caller, _deed: &Deed<'_>) {}
}

const DAY: i64 = 86_400 * 1_000_000;
/// The ticks of an idle group are heard at least so often.
const LEAP_MAX: i64 = 6 * 3600 * 1_000_000;
