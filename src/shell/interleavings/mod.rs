//! What pump, ticker, workers and the group's handle say to each other, under schedules that shuttle makes up:
//! the real threads of a real group, whose turns change at every wait and at every
//! [`point`](crate::stage::point).
//!
//! A schedule follows from a seed. One that fails is printed by shuttle. Two things are not looked at here: the
//! ordering of memory (a turn sees all that was done before it), and waiting on the board's condition variable
//! (a scene asks the board again and again instead).

mod stage;

use crate::group::spawn_on;
use crate::store::memory::Seen;
use crate::store::{JobRow, Store, Wake};
use crate::{
    Group, GroupOptions, Health, Job, JobId, JobState, MemoryStore, Prefetch, Registry,
    ShutdownReport,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use stage::{Time, Turns, play};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Schedules per scene.
const SCHEDULES: usize = 200;

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

fn add(store: &MemoryStore, count: u32) {
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

#[test]
fn a_stop_while_claims_are_in_flight_leaves_nothing_behind() {
    play(Time::StandsStill, SCHEDULES, |turns| {
        let store = turns.store();
        add(&store, 3);
        let (runs, registry) = noting(turns);
        let (group, health) = start(turns, &store, registry, options(2));
        group.begin_shutdown();
        let report = stop(turns, &group);
        assert!(report.halts.is_empty() && health.is_healthy(), "{report:?}");
        check_clean(&store, &runs);
    });
}

#[test]
fn a_handler_that_gives_way_to_a_stop_has_not_failed() {
    play(Time::StandsStill, SCHEDULES, |turns| {
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
    });
}

#[test]
fn all_jobs_run_once_while_time_passes_and_a_stop_ends_it() {
    play(Time::Passes, SCHEDULES, |turns| {
        let store = turns.store();
        add(&store, 3);
        let (runs, registry) = noting(turns);
        let (group, _health) = start(turns, &store, registry, options(2).pumps(2));
        // A lease may lapse on the way, and its job run again.
        turns.wait(|| total(&runs) >= 3);
        stop(turns, &group);
        let runs = runs.lock();
        assert!(runs.values().all(|times| *times == 1), "an attempt runs twice: {runs:?}");
    });
}

#[test]
fn a_worker_that_vanishes_halts_its_pump() {
    play(Time::Passes, SCHEDULES, |turns| {
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
    });
}

#[test]
fn a_ticker_that_dies_halts_every_pump() {
    play(Time::Passes, SCHEDULES, |turns| {
        let store = turns.store();
        add(&store, 2);
        let (_runs, registry) = noting(turns);
        let probe = || std::panic::resume_unwind(Box::new("a bug"));
        let options = options(1).pumps(2).ticker_probe(probe);
        let (group, health) = start(turns, &store, registry, options);
        turns.wait(|| !health.halted_groups().is_empty());
        let report = stop(turns, &group);
        assert_eq!(report.halts.len(), 2);
    });
}

#[test]
fn two_threads_that_shut_down_at_once_both_get_the_whole_report() {
    play(Time::StandsStill, SCHEDULES, |turns| {
        let store = turns.store();
        add(&store, 2);
        let (runs, registry) = noting(turns);
        let (group, _health) = start(turns, &store, registry, options(1));
        let (other, waits) = (Arc::clone(&group), Arc::clone(turns));
        let other = shuttle::thread::spawn(move || stop(&waits, &other));
        let report = stop(turns, &group);
        assert_eq!(other.join().expect("it stops"), report);
        check_clean(&store, &runs);
    });
}

#[test]
fn a_handler_may_drop_its_own_group() {
    play(Time::StandsStill, SCHEDULES, |turns| {
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
    });
}

#[test]
fn a_hint_is_heard_although_no_poll_comes() {
    play(Time::StandsStill, SCHEDULES, |turns| {
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
    });
}

#[test]
fn a_tick_that_is_raised_is_taken() {
    use super::{Message, Tick, TickFlags};
    play(Time::StandsStill, SCHEDULES, |turns| {
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
    });
}

#[test]
fn a_wake_that_meets_a_pump_taking_is_not_lost() {
    use super::{Hints, Message};
    play(Time::StandsStill, SCHEDULES, |turns| {
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
    });
}
