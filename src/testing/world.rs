//! A simulated machine room: virtual time, and actors of which one runs at a time.
//!
//! An actor is a thread of a simulated process (a pump, a worker, a ticker). It runs until it waits; then the
//! world looks for the next one that has something to do and, when none has, moves the time on to the next
//! thing that is due. Nothing runs beside anything else, and who comes next is decided by the seed: the same
//! world is the same run.

use super::mix;
use crate::Timestamp;
use crate::id::Seeded;
use crate::stage::{ANCHOR, Simulated, Stage};
use crate::store::StoreClock;
use parking_lot::{Condvar, Mutex};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A simulated process: what crashes, hangs and is paused as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ProcessId(pub(crate) u64);

/// See the module's documentation. Clones are the same world.
#[derive(Clone)]
pub(crate) struct World(Arc<Shared>);

struct Shared {
    start: Timestamp,
    /// Microseconds since the start.
    now: AtomicI64,
    /// How far the store's clock is ahead of the world's.
    store_ahead: AtomicI64,
    state: Mutex<State>,
    /// The actor that ran has given way.
    given_way: Condvar,
    ids: Arc<Seeded>,
}

struct State {
    actors: BTreeMap<u64, Actor>,
    next_actor: u64,
    running: Option<u64>,
    /// Until when a process does not get any time.
    paused: BTreeMap<ProcessId, i64>,
    /// Processes that died in the middle of something.
    doomed: Vec<ProcessId>,
    /// Until when actors may go on among themselves.
    target: Option<i64>,
    /// Turns since time has passed last, and ever.
    turns: u64,
    turns_in_all: u64,
    dice: u64,
}

type Ready = Box<dyn Fn() -> bool + Send>;

struct Actor {
    process: ProcessId,
    name: String,
    until: Option<i64>,
    is_ready: Option<Ready>,
    go: Arc<Condvar>,
    crashed: bool,
}

/// What a crashed actor unwinds with.
struct Crashed;

thread_local! {
    /// The world and the number of the actor that this thread is.
    static SELF: RefCell<Option<(World, u64)>> = const { RefCell::new(None) };
}

impl World {
    pub(crate) fn new(start: Timestamp, seed: u64) -> Self {
        let state = State {
            actors: BTreeMap::new(),
            next_actor: 0,
            running: None,
            paused: BTreeMap::new(),
            doomed: Vec::new(),
            target: None,
            turns: 0,
            turns_in_all: 0,
            dice: mix(seed),
        };
        Self(Arc::new(Shared {
            start,
            now: AtomicI64::new(0),
            store_ahead: AtomicI64::new(0),
            state: Mutex::new(state),
            given_way: Condvar::new(),
            ids: Arc::new(Seeded::new(mix(seed ^ 0x1d), start)),
        }))
    }

    /// Where this world's ids come from.
    pub(crate) fn ids(&self) -> &Arc<Seeded> {
        &self.0.ids
    }

    /// Microseconds since the world began.
    pub(crate) fn elapsed(&self) -> i64 {
        self.0.now.load(Ordering::SeqCst)
    }

    /// The time by the store's clock.
    pub(crate) fn now(&self) -> Timestamp {
        let ahead = self.0.store_ahead.load(Ordering::SeqCst);
        Timestamp::from_micros(self.0.start.as_micros() + self.elapsed() + ahead)
    }

    /// Steps the store's clock.
    pub(crate) fn step_store_clock(&self, by: i64) {
        self.0.store_ahead.fetch_add(by, Ordering::SeqCst);
    }

    /// A stage for one process, with a clock of its own.
    pub(crate) fn stage(&self, process: ProcessId, clock: HostClock) -> (Stage, Arc<Host>) {
        let host = Host {
            world: self.clone(),
            process,
            drift_ppm: clock.drift_ppm,
            wall_ahead: clock.wall_ahead,
            offset: AtomicI64::new(HOST_UP),
            crashed: AtomicBool::new(false),
        };
        let host = Arc::new(host);
        (Stage::Simulated(Arc::clone(&host) as _), host)
    }

    /// Runs what there is to run until so many microseconds after the beginning.
    pub(crate) fn run_until(&self, target: i64) {
        loop {
            self.bury();
            let mut state = self.0.state.lock();
            state.target = Some(target);
            let next = self.next_turn(&mut state);
            if let Some(actor) = next {
                self.resume(&mut state, actor);
            }
            state.target = None;
            assert!(state.turns < TURNS_MAX, "the world does not come to rest at {}", self.now());
            if next.is_none() && state.doomed.is_empty() {
                self.0.now.fetch_max(target, Ordering::SeqCst);
                self.0.ids.set_time(self.now());
                return;
            }
        }
    }

    /// Whose turn it is, the time moved on to it; nobody's where nobody has anything to do before the target,
    /// or something is to be done outside of the actors. Whoever gives way asks, so that one turn costs one
    /// change of threads.
    fn next_turn(&self, state: &mut State) -> Option<u64> {
        let target = state.target?;
        loop {
            if !state.doomed.is_empty() || state.turns >= TURNS_MAX {
                return None;
            }
            if let Some(actor) = state.choose(self.elapsed()) {
                state.turns += 1;
                state.turns_in_all += 1;
                return Some(actor);
            }
            let next = state.next_wake(|_| true).filter(|next| *next <= target)?;
            self.0.now.fetch_max(next, Ordering::SeqCst);
            self.0.ids.set_time(self.now());
            state.turns = 0;
        }
    }

    /// When somebody is due again, where nothing is at this moment.
    pub(crate) fn next_wake(&self) -> Option<i64> {
        self.0.state.lock().next_wake(|_| true)
    }

    /// The same, tickers aside: where nothing runs, their ticks change nothing.
    pub(crate) fn next_wake_but_ticks(&self) -> Option<i64> {
        self.0.state.lock().next_wake(|actor| !actor.name.ends_with("-tick"))
    }

    /// The same without the pumps of observers, which all rest: hints wake them.
    pub(crate) fn next_wake_but_looks(&self) -> Option<i64> {
        let looks = |actor: &Actor| ["-tick", "-obs"].iter().any(|end| actor.name.ends_with(end));
        self.0.state.lock().next_wake(|actor| !looks(actor))
    }

    /// Moves the time on without running what would have been due in between; it runs late.
    pub(crate) fn leap(&self, target: i64) {
        self.0.now.fetch_max(target, Ordering::SeqCst);
        self.0.ids.set_time(self.now());
    }

    /// Gives a process no time until then.
    pub(crate) fn pause(&self, process: ProcessId, until: i64) {
        self.0.state.lock().paused.insert(process, until);
    }

    /// Ends a process without a word: its threads unwind, and nobody hears of it.
    pub(crate) fn crash(&self, process: ProcessId) {
        let mut state = self.0.state.lock();
        state.paused.remove(&process);
        for _ in 0..TURNS_MAX {
            let found = state.actors.iter_mut().find(|(_, actor)| actor.process == process);
            let Some((number, actor)) = found else { return };
            actor.crashed = true;
            let number = *number;
            self.resume(&mut state, number);
        }
    }

    /// To be called by an actor: its own process ends here.
    pub(crate) fn die(&self, process: ProcessId) -> ! {
        self.0.state.lock().doomed.push(process);
        loop {
            park(None, Box::new(|| false));
        }
    }

    fn bury(&self) {
        loop {
            let Some(process) = self.0.state.lock().doomed.pop() else { return };
            self.crash(process);
        }
    }

    /// Lets an actor run, and those that follow it, until nobody's turn is next.
    fn resume(&self, state: &mut parking_lot::MutexGuard<'_, State>, number: u64) {
        state.hand_over(number);
        let mut seen = state.turns_in_all;
        while state.running.is_some() {
            let overdue = self.0.given_way.wait_for(state, PATIENCE).timed_out();
            if overdue && state.running.is_some() && seen == state.turns_in_all {
                let actor = state.running.and_then(|number| state.actors.get(&number));
                let name = actor.map_or("an actor", |actor| &actor.name);
                panic!("{name} waits for something outside of the simulated world");
            }
            seen = state.turns_in_all;
        }
    }

    /// Hands the turn on.
    fn pass_on(&self, state: &mut State) {
        match self.next_turn(state) {
            Some(next) => state.hand_over(next),
            None => {
                state.running = None;
                self.0.given_way.notify_one();
            }
        }
    }

    fn spawn(
        &self,
        process: ProcessId,
        name: String,
        run: Box<dyn FnOnce() + Send>,
    ) -> io::Result<()> {
        let go = Arc::new(Condvar::new());
        let number = {
            let mut state = self.0.state.lock();
            let number = state.next_actor;
            state.next_actor += 1;
            let until = Some(self.elapsed());
            let (go, name) = (Arc::clone(&go), name.clone());
            let actor = Actor { process, name, until, is_ready: None, go, crashed: false };
            state.actors.insert(number, actor);
            number
        };
        let world = self.clone();
        let spawned = thread::Builder::new().name(name).spawn(move || {
            SELF.with(|this| *this.borrow_mut() = Some((world.clone(), number)));
            let _seeded = crate::id::seed_with(world.ids());
            let has_crashed = world.wait_for_turn(number, &go);
            // What it unwinds with is nobody's concern here.
            let _ = catch_unwind(AssertUnwindSafe(move || {
                if !has_crashed {
                    run();
                }
            }))
            .map_err(crate::contain::dispose);
            SELF.with(|this| *this.borrow_mut() = None);
            let mut state = world.0.state.lock();
            let gone = state.actors.remove(&number);
            world.pass_on(&mut state);
            drop(state);
            drop(gone);
        });
        if spawned.is_err() {
            self.0.state.lock().actors.remove(&number);
        }
        spawned.map(drop)
    }

    /// Waits until it is this actor's turn. Whether its process has crashed meanwhile.
    fn wait_for_turn(&self, number: u64, go: &Condvar) -> bool {
        let mut state = self.0.state.lock();
        while state.running != Some(number) {
            go.wait(&mut state);
        }
        let Some(actor) = state.actors.get_mut(&number) else { return true };
        let (is_ready, crashed) = (actor.is_ready.take(), actor.crashed);
        drop(state);
        // It holds channels, whose messages may be dropped with it.
        drop(is_ready);
        crashed
    }

    fn give_way(&self, number: u64, until: Option<i64>, is_ready: Ready) {
        let go = {
            let mut state = self.0.state.lock();
            let Some(actor) = state.actors.get_mut(&number) else { return };
            if actor.crashed {
                drop(state);
                if thread::panicking() {
                    return;
                }
                resume_unwind(Box::new(Crashed));
            }
            (actor.until, actor.is_ready) = (until, Some(is_ready));
            let go = Arc::clone(&actor.go);
            self.pass_on(&mut state);
            go
        };
        if self.wait_for_turn(number, &go) && !thread::panicking() {
            resume_unwind(Box::new(Crashed));
        }
    }
}

impl State {
    fn hand_over(&mut self, number: u64) {
        self.running = Some(number);
        if let Some(actor) = self.actors.get_mut(&number) {
            actor.until = None;
            actor.go.notify_one();
        }
    }

    /// One of the actors that have something to do now.
    fn choose(&mut self, now: i64) -> Option<u64> {
        let paused = &self.paused;
        let is_due = |actor: &Actor| {
            paused.get(&actor.process).is_none_or(|until| *until <= now)
                && (actor.until.is_some_and(|until| until <= now)
                    || actor.is_ready.as_ref().is_some_and(|is_ready| is_ready()))
        };
        let due: Vec<u64> =
            self.actors.iter().filter(|(_, actor)| is_due(actor)).map(|(n, _)| *n).collect();
        if due.is_empty() {
            return None;
        }
        self.dice = mix(self.dice);
        due.get((self.dice % due.len() as u64) as usize).copied()
    }

    fn next_wake(&self, counts: impl Fn(&Actor) -> bool) -> Option<i64> {
        let counted = self.actors.values().filter(|actor| counts(actor));
        let wakes = counted.filter_map(|actor| {
            let paused_until = self.paused.get(&actor.process).copied();
            let until = match &actor.is_ready {
                Some(is_ready) if paused_until.is_some() && is_ready() => Some(i64::MIN),
                _ => actor.until,
            };
            until.map(|until| until.max(paused_until.unwrap_or(i64::MIN)))
        });
        wakes.min()
    }
}

/// The store's clock.
impl StoreClock for World {
    fn now(&self) -> Timestamp {
        Self::now(self)
    }
}

/// How a process's clocks differ from the world's.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HostClock {
    /// How much faster its monotonic clock runs, in millionths.
    pub(crate) drift_ppm: i64,
    /// How far its wall clock is ahead, in microseconds.
    pub(crate) wall_ahead: i64,
}

/// A simulated process, as its own threads see it.
pub(crate) struct Host {
    world: World,
    process: ProcessId,
    drift_ppm: i64,
    wall_ahead: i64,
    /// What its monotonic clock showed as the world began; less whenever it stood still.
    offset: AtomicI64,
    crashed: AtomicBool,
}

impl Host {
    /// Its monotonic clock stands still for so many microseconds of the world's, as in a suspended machine.
    pub(crate) fn lose_time(&self, micros: i64) {
        self.offset.fetch_sub(micros, Ordering::SeqCst);
    }

    /// From here on nothing of it is heard.
    pub(crate) fn crash(&self) {
        self.crashed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_crashed(&self) -> bool {
        self.crashed.load(Ordering::SeqCst)
    }

    fn at(&self, elapsed: i64) -> i64 {
        let drift = i128::from(elapsed) * i128::from(self.drift_ppm) / 1_000_000;
        elapsed + drift as i64 + self.offset.load(Ordering::SeqCst)
    }

    /// The world's time at which its own clock shows `shown`, or more.
    fn world_time(&self, shown: i64) -> i64 {
        let ahead = i128::from(shown - self.offset.load(Ordering::SeqCst));
        let mut time = (ahead * 1_000_000 / i128::from(1_000_000 + self.drift_ppm)) as i64;
        while self.at(time) < shown {
            time += 1;
        }
        time
    }
}

impl Simulated for Host {
    fn now(&self) -> Instant {
        *ANCHOR + Duration::from_micros(self.at(self.world.elapsed()).unsigned_abs())
    }

    fn wall(&self) -> Timestamp {
        let start = self.world.0.start.as_micros();
        Timestamp::from_micros(start + self.world.elapsed() + self.wall_ahead)
    }

    fn park(&self, until: Option<Instant>, is_ready: Ready) {
        let until = until.map(|until| {
            let shown = until.saturating_duration_since(*ANCHOR).as_nanos().div_ceil(1000);
            self.world_time(i64::try_from(shown).unwrap_or(i64::MAX / 4))
        });
        park(until, is_ready);
    }

    fn spawn(&self, name: String, actor: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        self.world.spawn(self.process, name, actor)
    }

    fn has_crashed(&self) -> bool {
        self.is_crashed()
    }
}

/// Whether this thread is an actor.
pub(crate) fn is_actor() -> bool {
    SELF.with(|this| this.borrow().is_some())
}

/// Lets others run until that time of the world, or until `is_ready` holds.
fn park(until: Option<i64>, is_ready: Ready) {
    let this = SELF.with(|this| this.borrow().clone());
    let (world, number) = this.expect("only the simulated world's own threads wait in it");
    world.give_way(number, until, is_ready);
}

/// Has the actor wait for so many microseconds, whatever happens.
pub(crate) fn pass(micros: i64) {
    if micros <= 0 {
        return;
    }
    let until = SELF.with(|this| this.borrow().as_ref().map(|(world, _)| world.elapsed() + micros));
    let Some(until) = until else { return };
    let world = SELF.with(|this| this.borrow().clone());
    while world.as_ref().is_some_and(|(world, _)| world.elapsed() < until) {
        park(Some(until), Box::new(|| false));
    }
}

/// What a monotonic clock shows as the world begins, so that it can lose time: thirty days.
const HOST_UP: i64 = 30 * 86_400 * 1_000_000;
/// Turns without any time passing that are a loop.
const TURNS_MAX: u64 = 200_000;
/// Real time after which an actor that does not give way waits for something that will not come.
const PATIENCE: Duration = Duration::from_secs(60);
