//! What happens in a scene. Each ends, and asserts what must hold at its end, under whichever schedule.

use super::stage::{FEW, MANY, Scene, Time, Turns};
use crate::group::spawn_on;
use crate::store::memory::Seen;
use crate::store::{JobRow, Store, Wake};
use crate::{
    Group, GroupOptions, Health, Job, JobId, JobState, MemoryStore, Prefetch, Registry,
    ShutdownReport,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

#[derive(Serialize, Deserialize)]
struct Work {}

impl Job for Work {
    const WIRE_NAME: &'static str = "work";
}

/// How often the handler ran for each attempt.
type Runs = Arc<Mutex<BTreeMap<(JobId, u32), u32>>>;

fn note(runs: &Runs, job: JobId, attempt: u32) {
    *runs.lock().entry((job, attempt)).or_default() += 1;
}

fn total(runs: &Runs) -> usize {
    runs.lock().len()
}

/// A handler that notes its run and, in its midst, lets others come.
fn noting(turns: &Arc<Turns>) -> (Runs, Registry) {
    let runs = Runs::default();
    let (noted, turns) = (Arc::clone(&runs), Arc::clone(turns));
    let registry = Registry::new().handle(move |ctx, _: Work| {
        note(&noted, ctx.job_id(), ctx.attempt());
        turns.point();
        Ok(())
    });
    (runs, registry)
}

fn options(workers: u32) -> GroupOptions {
    GroupOptions::new("scene").workers(workers).prefetch(Prefetch::Off)
}

pub(super) fn add(store: &MemoryStore, count: u32) {
    let rows: Vec<_> = (0..count).map(|_| JobRow::new(JobId::new(), "work")).collect();
    store.open_session().expect("memory").enqueue(&rows).expect("memory");
}

fn start(
    turns: &Arc<Turns>,
    store: &MemoryStore,
    registry: Registry,
    options: GroupOptions,
) -> (Arc<Group>, Arc<Health>) {
    let health = Arc::new(Health::new());
    let store = Arc::new(store.clone());
    let group = spawn_on(turns.stage(), store, registry, options, Arc::clone(&health));
    (Arc::new(group.expect("it starts")), health)
}

/// Stops the group and waits until every pump has ended.
fn stop(turns: &Turns, group: &Group) -> ShutdownReport {
    turns.wait(|| group.shutdown().unanswered == 0);
    group.shutdown()
}

fn count(jobs: &[Seen], state: JobState) -> usize {
    jobs.iter().filter(|seen| seen.state == state).count()
}

/// Nobody holds anything, nothing has failed, and what ran is what is recorded.
fn check_clean(store: &MemoryStore, runs: &Runs) {
    let jobs = store.look();
    assert_eq!(count(&jobs, JobState::Leased), 0, "a lease is left: {jobs:?}");
    assert!(jobs.iter().all(|seen| seen.failures == 0), "a stop counts as a failure: {jobs:?}");
    let runs = runs.lock();
    assert!(runs.values().all(|times| *times == 1), "an attempt runs twice: {runs:?}");
    let succeeded = count(&jobs, JobState::Succeeded);
    assert_eq!(succeeded, runs.len(), "{runs:?} ran, and that is recorded: {jobs:?}");
}

pub(super) const STOP_IN_FLIGHT: Scene =
    Scene { schedules: FEW, time: Time::StandsStill, act: stop_in_flight };

fn stop_in_flight(turns: &Arc<Turns>) {
    let store = turns.store();
    add(&store, 3);
    let (runs, registry) = noting(turns);
    let (group, health) = start(turns, &store, registry, options(2));
    group.begin_shutdown();
    let report = stop(turns, &group);
    assert!(report.halts.is_empty() && health.is_healthy(), "{report:?}");
    check_clean(&store, &runs);
}

pub(super) const GIVING_WAY: Scene =
    Scene { schedules: FEW, time: Time::StandsStill, act: giving_way };

fn giving_way(turns: &Arc<Turns>) {
    let store = turns.store();
    add(&store, 2);
    let waits = Arc::clone(turns);
    let registry = Registry::new().handle(move |ctx, _: Work| {
        waits.wait(|| ctx.is_stopping());
        Err(ctx.give_way())
    });
    let (group, _health) = start(turns, &store, registry, options(2));
    stop(turns, &group);
    check_clean(&store, &Runs::default());
}

pub(super) const TWO_PUMPS: Scene = Scene { schedules: FEW, time: Time::Passes, act: two_pumps };

fn two_pumps(turns: &Arc<Turns>) {
    let store = turns.store();
    add(&store, 3);
    let (runs, registry) = noting(turns);
    let (group, _health) = start(turns, &store, registry, options(2).pumps(2));
    // A lease may lapse on the way, and its job run again.
    turns.wait(|| total(&runs) >= 3);
    stop(turns, &group);
    let runs = runs.lock();
    assert!(runs.values().all(|times| *times == 1), "an attempt runs twice: {runs:?}");
}

pub(super) const WORKER_GONE: Scene =
    Scene { schedules: FEW, time: Time::Passes, act: worker_gone };

fn worker_gone(turns: &Arc<Turns>) {
    let store = turns.store();
    add(&store, 2);
    let (runs, registry) = noting(turns);
    let first = Mutex::new(true);
    let probe = move || {
        if std::mem::take(&mut *first.lock()) {
            std::panic::resume_unwind(Box::new("a bug"));
        }
    };
    let (group, health) = start(turns, &store, registry, options(2).worker_probe(probe));
    turns.wait(|| !health.halted_groups().is_empty());
    let report = stop(turns, &group);
    assert_eq!(report.halts.len(), 1);
    let runs = runs.lock();
    assert!(runs.values().all(|times| *times == 1), "an attempt runs twice: {runs:?}");
}

pub(super) const TICKER_GONE: Scene =
    Scene { schedules: FEW, time: Time::Passes, act: ticker_gone };

fn ticker_gone(turns: &Arc<Turns>) {
    let store = turns.store();
    add(&store, 2);
    let (_runs, registry) = noting(turns);
    let probe = || std::panic::resume_unwind(Box::new("a bug"));
    let options = options(1).pumps(2).ticker_probe(probe);
    let (group, health) = start(turns, &store, registry, options);
    turns.wait(|| !health.halted_groups().is_empty());
    let report = stop(turns, &group);
    assert_eq!(report.halts.len(), 2);
}

pub(super) const TWO_STOPS: Scene =
    Scene { schedules: FEW, time: Time::StandsStill, act: two_stops };

fn two_stops(turns: &Arc<Turns>) {
    let store = turns.store();
    add(&store, 2);
    let (runs, registry) = noting(turns);
    let (group, _health) = start(turns, &store, registry, options(1));
    let (other, waits) = (Arc::clone(&group), Arc::clone(turns));
    let other = shuttle::thread::spawn(move || stop(&waits, &other));
    let report = stop(turns, &group);
    assert_eq!(other.join().expect("it stops"), report);
    check_clean(&store, &runs);
}

pub(super) const OWN_GROUP: Scene =
    Scene { schedules: FEW, time: Time::StandsStill, act: own_group };

fn own_group(turns: &Arc<Turns>) {
    let store = turns.store();
    add(&store, 2);
    let held: Arc<Mutex<Option<Arc<Group>>>> = Arc::default();
    let runs = Runs::default();
    let (noted, handle, waits) = (Arc::clone(&runs), Arc::clone(&held), Arc::clone(turns));
    let registry = Registry::new().handle(move |ctx, _: Work| {
        note(&noted, ctx.job_id(), ctx.attempt());
        waits.wait(|| handle.lock().is_some() || ctx.is_stopping());
        let own = handle.lock().take();
        drop(own);
        Ok(())
    });
    let (group, health) = start(turns, &store, registry, options(1));
    *held.lock() = Some(group);
    turns.wait(|| health.check().groups.is_empty());
    check_clean(&store, &runs);
}

pub(super) const HINTS: Scene = Scene { schedules: FEW, time: Time::StandsStill, act: hints };

fn hints(turns: &Arc<Turns>) {
    let store = turns.store();
    let (runs, registry) = noting(turns);
    let (group, _health) = start(turns, &store, registry, options(1));
    for round in 1..3 {
        add(&store, 1);
        store.hub().wake("default", Duration::ZERO);
        turns.wait(|| total(&runs) >= round);
    }
    stop(turns, &group);
    check_clean(&store, &runs);
}

pub(super) const TICKS: Scene = Scene { schedules: FEW, time: Time::StandsStill, act: ticks };

fn ticks(turns: &Arc<Turns>) {
    use crate::shell::{Message, Tick, TickFlags};
    let flags = Arc::new(TickFlags::default());
    let (inbox, pump) = crossbeam_channel::unbounded();
    let raisers = [Tick::Poll, Tick::Heartbeat].map(|tick| {
        let (flags, inbox) = (Arc::clone(&flags), inbox.clone());
        shuttle::thread::spawn(move || flags.raise(tick, &inbox))
    });
    let mut taken = [false; 2];
    while taken != [true; 2] {
        // Nothing but a message makes a pump look.
        turns.wait(|| !pump.is_empty());
        assert!(matches!(pump.try_recv(), Ok(Message::Tick)));
        flags.begin_taking();
        taken[0] |= flags.take(Tick::Poll);
        taken[1] |= flags.take(Tick::Heartbeat);
    }
    raisers.into_iter().for_each(|raiser| assert!(raiser.join().expect("it raises")));
}

pub(super) const WAKES: Scene = Scene { schedules: FEW, time: Time::StandsStill, act: wakes };

fn wakes(turns: &Arc<Turns>) {
    use crate::shell::{Hints, Message};
    let (inbox, pump) = crossbeam_channel::unbounded();
    let hints = Hints::new(["default"].into_iter(), inbox, turns.stage());
    let wakes = Arc::clone(&hints);
    let waker = shuttle::thread::spawn(move || {
        wakes.wake("default", Duration::from_secs(9));
        wakes.wake("default", Duration::ZERO);
    });
    let now = crate::stage::Simulated::now(turns.as_ref());
    // The nearer one is heard, at once or after the other.
    let mut heard = None;
    while heard != Some(now) {
        turns.wait(|| !pump.is_empty());
        assert!(matches!(pump.try_recv(), Ok(Message::Hint)));
        heard = hints.take();
    }
    waker.join().expect("it wakes");
}

pub(super) const HALT: Scene = Scene { schedules: FEW, time: Time::StandsStill, act: halt };

fn halt(turns: &Arc<Turns>) {
    let store = turns.store();
    add(&store, 4);
    let runs = Runs::default();
    let noted = Arc::clone(&runs);
    let registry = Registry::new().handle(move |ctx, _: Work| {
        note(&noted, ctx.job_id(), ctx.attempt());
        Ok(())
    });
    let threads = Mutex::new(0);
    // The last of three workers vanishes; the others go on.
    let probe = move || {
        let mut threads = threads.lock();
        *threads += 1;
        if *threads == 3 {
            std::panic::resume_unwind(Box::new("a bug"));
        }
    };
    let (group, _health) = start(turns, &store, registry, options(3).worker_probe(probe));
    turns.wait(|| group.ending().0);
    let at_the_end = runs.lock().clone();
    turns.let_go_on();
    assert_eq!(*runs.lock(), at_the_end, "a job begins although its pump has halted");
}

pub(super) const BUSY_HINTS: Scene =
    Scene { schedules: MANY, time: Time::StandsStill, act: busy_hints };

fn busy_hints(turns: &Arc<Turns>) {
    let store = turns.store();
    let (runs, registry) = noting(turns);
    let (group, _health) = start(turns, &store, registry, options(1));
    for _ in 0..2 {
        turns.dawdle(40);
        add(&store, 1);
        store.hub().wake("default", Duration::ZERO);
    }
    turns.wait(|| total(&runs) >= 2);
    stop(turns, &group);
    check_clean(&store, &runs);
}

pub(super) const IDLE_STOP: Scene =
    Scene { schedules: FEW, time: Time::StandsStill, act: idle_stop };

fn idle_stop(turns: &Arc<Turns>) {
    let store = turns.store();
    add(&store, 2);
    let (runs, registry) = noting(turns);
    let (group, _health) = start(turns, &store, registry, options(1).pumps(2));
    turns.wait(|| total(&runs) >= 2);
    stop(turns, &group);
    check_clean(&store, &runs);
}
