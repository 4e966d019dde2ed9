//! A stage on which shuttle says whose turn it is.
//!
//! Its threads are shuttle's. They change at every wait and at every [`point`](crate::stage::point); which one
//! comes next follows from a seed. Time stands still until the hand of the clock, a thread like the others, is
//! on turn and moves it to the next time that somebody waits for.

use crate::group::{set_thread_group, thread_group};
use crate::shell::planted::{PLANTED, Slip};
use crate::stage::{ANCHOR, AT_POINTS, Simulated, Stage};
use crate::{MemoryStore, Timestamp};
use parking_lot::Mutex;
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::atomic::{AtomicU64, Ordering};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::panic;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

/// When the virtual time begins.
const START: Timestamp = Timestamp::from_micros(1_000_000_000_000_000);
/// Steps of one schedule that would be a hang.
const STEPS_MAX: usize = 200_000;

pub(super) struct Turns {
    /// Nanoseconds since the beginning.
    now: Mutex<u64>,
    /// Who waits until when.
    waits: Mutex<BTreeMap<u64, Instant>>,
    /// Touched to let another thread come.
    turn: AtomicU64,
    is_over: Mutex<bool>,
}

impl Turns {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            now: Mutex::new(0),
            waits: Mutex::default(),
            turn: AtomicU64::new(0),
            is_over: Mutex::new(false),
        })
    }

    pub(super) fn stage(self: &Arc<Self>) -> Stage {
        Stage::Simulated(Arc::clone(self) as _)
    }

    /// A store that goes by this time.
    pub(super) fn store(self: &Arc<Self>) -> MemoryStore {
        let turns = Arc::clone(self);
        MemoryStore::with_clock(move || turns.wall())
    }

    /// Lets another thread come, or not.
    pub(super) fn point(&self) {
        aside(|| self.turn.fetch_add(1, Ordering::SeqCst));
    }

    /// Waits, as long as it takes.
    pub(super) fn wait(&self, is_done: impl Fn() -> bool) {
        while !is_done() {
            aside(shuttle::thread::yield_now);
        }
    }

    /// Waits until so much time has passed.
    pub(super) fn wait_for(&self, span: Duration) {
        self.park(Some(Simulated::now(self) + span), Box::new(|| false));
    }

    /// Lets others come some more or fewer times.
    pub(super) fn dawdle(&self, most: u32) {
        let times = thread_rng().gen_range(0..=most);
        (0..times).for_each(|_| self.point());
    }

    /// Lets whoever has still something to do come often enough to do it.
    pub(super) fn let_go_on(&self) {
        (0..200).for_each(|_| aside(shuttle::thread::yield_now));
    }

    /// The hand of the clock.
    fn run_clock(&self) {
        while !*self.is_over.lock() {
            let next = self.waits.lock().values().min().copied();
            if let Some(next) = next
                && thread_rng().gen_ratio(1, 4)
            {
                let distance = next.saturating_duration_since(*ANCHOR).as_nanos();
                let mut now = self.now.lock();
                *now = (*now).max(u64::try_from(distance).unwrap_or(u64::MAX));
            }
            shuttle::thread::yield_now();
        }
    }
}

/// Does something after which another thread may be on turn, as whoever does it: the threads share one of the
/// process, and what that keeps for one of them must not pass to the other.
fn aside<R>(act: impl FnOnce() -> R) -> R {
    let group = thread_group();
    let result = act();
    set_thread_group(group);
    result
}

impl Simulated for Turns {
    fn now(&self) -> Instant {
        *ANCHOR + Duration::from_nanos(*self.now.lock())
    }

    fn wall(&self) -> Timestamp {
        START + Duration::from_nanos(*self.now.lock())
    }

    fn park(&self, until: Option<Instant>, is_ready: Box<dyn Fn() -> bool + Send>) {
        let ticket = self.turn.fetch_add(1, Ordering::SeqCst);
        if let Some(until) = until {
            self.waits.lock().insert(ticket, until);
        }
        self.wait(|| is_ready() || until.is_some_and(|until| until <= self.now()));
        self.waits.lock().remove(&ticket);
    }

    fn spawn(&self, name: String, actor: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        let run = || {
            set_thread_group(0);
            actor();
        };
        aside(|| shuttle::thread::Builder::new().name(name).spawn(run)).map(drop)
    }

    fn has_crashed(&self) -> bool {
        false
    }
}

/// Whether time passes in a scene.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Time {
    Passes,
    StandsStill,
}

/// Schedules of a scene.
pub(super) const FEW: usize = 200;
/// Schedules of a scene whose bug hides between two certain turns.
pub(super) const MANY: usize = 3000;

/// What is played.
#[derive(Clone, Copy)]
pub(super) struct Scene {
    pub(super) schedules: usize,
    pub(super) time: Time,
    pub(super) act: fn(&Arc<Turns>),
}

/// Plays a scene under many schedules: half of them at random, half by priorities that change a few times.
pub(super) fn play(scene: &Scene) {
    if let Err(payload) = rehearse(None, scene) {
        panic::resume_unwind(payload);
    }
}

/// The same with a bug, on a thread of its own, so that what a scene leaves behind goes with it. What a scene that
/// is to fail says is not printed.
pub(super) fn rehearse(slip: Option<Slip>, scene: &Scene) -> std::thread::Result<()> {
    hook();
    let (scene, half) = (*scene, scene.schedules / 2);
    let all = move || {
        PLANTED.set(slip);
        HEARS.set(if slip.is_some() { Hears::Nobody } else { Hears::Shuttle });
        let random = RandomScheduler::new_from_seed(SEED, half);
        let by_priority = PctScheduler::new_from_seed(SEED, 3, half);
        run(random, scene);
        run(by_priority, scene);
    };
    std::thread::Builder::new().name("scene".to_owned()).spawn(all).expect("a thread").join()
}

/// Who hears of a panic on this thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hears {
    Everybody,
    Shuttle,
    Nobody,
}

thread_local! {
    static HEARS: Cell<Hears> = const { Cell::new(Hears::Everybody) };
}

/// Shuttle's hook speaks of schedules at every panic of the process, also in tests that have nothing to do with
/// it. So it is set once, by a scene in which nothing happens, and asked in scenes only.
fn hook() {
    static SET: Once = Once::new();
    SET.call_once(|| {
        let plain = Arc::new(panic::take_hook());
        let also = Arc::clone(&plain);
        panic::set_hook(Box::new(move |info| also(info)));
        let nothing = RandomScheduler::new_from_seed(SEED, 1);
        shuttle::Runner::new(nothing, shuttle::Config::new()).run(|| {});
        let of_shuttle = panic::take_hook();
        panic::set_hook(Box::new(move |info| match HEARS.get() {
            Hears::Everybody => plain(info),
            Hears::Shuttle => of_shuttle(info),
            Hears::Nobody => {}
        }));
    });
}

fn run(scheduler: impl Scheduler + 'static, Scene { time, act, .. }: Scene) {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 19;
    config.max_steps = shuttle::MaxSteps::FailAfter(STEPS_MAX);
    config.silence_warnings = true;
    if PLANTED.get().is_some() {
        config.failure_persistence = shuttle::FailurePersistence::None;
    }
    let runner = shuttle::Runner::new(scheduler, config);
    runner.run(move || {
        let turns = Turns::new();
        let hook = Arc::clone(&turns);
        AT_POINTS.set(Some(Arc::new(move || hook.point())));
        set_thread_group(0);
        let clock = Arc::clone(&turns);
        let clock =
            (time == Time::Passes).then(|| shuttle::thread::spawn(move || clock.run_clock()));
        act(&turns);
        *turns.is_over.lock() = true;
        if let Some(clock) = clock {
            clock.join().expect("the clock does not break");
        }
    });
    AT_POINTS.set(None);
}

const SEED: u64 = 0x0bac_c4a5_0000_0001;
