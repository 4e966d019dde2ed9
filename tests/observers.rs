//! What observers are told, what becomes of a delivery that fails, and how their pumps share and stop.

mod support;

use backwave::monitor::{AuditAction, Transition};
use backwave::observer::{ObserverEnd, ObserverOptions, ObserverStart, TransitionFilter};
use backwave::store::Observe;
use backwave::{
    JobId, JobState, NewJob, ObserverPump, Observers, Registry, Retention, SpawnError, WorkerId,
    spawn_observers,
};
use log::Level;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use support::gate::Gate;
use support::log as lines;
use support::observing::{Ear, births, find, observe, quick_observer};
use support::world::{Task, World, eventually, quick, task};

on_every_store!(
    every_transition_that_a_filter_matches_is_told_once_and_in_order_per_job,
    what_keeps_failing_is_parked_and_what_lies_behind_it_is_told,
    a_parked_delivery_is_tried_again_or_forgotten_as_an_operator_wants,
    a_panic_in_a_callback_is_a_failed_delivery,
    a_callback_may_use_the_client_and_stop_its_own_pump,
    of_two_pumps_one_tells_and_the_other_takes_over_at_once_when_it_stops,
    a_holder_that_is_gone_is_inherited_from_when_its_hold_has_lapsed,
    a_callback_that_takes_too_long_is_left_behind_and_the_next_try_goes_on,
    with_four_callbacks_left_behind_another_pump_takes_over,
    a_stop_does_not_wait_beyond_its_budget_for_a_callback,
    a_removed_observer_that_still_runs_registers_anew,
    how_far_an_observer_is_behind_can_be_read,
    what_an_observer_never_saw_is_kept_for_so_long_and_then_taken_with_an_error_in_the_log,
    an_observer_that_begins_with_the_oldest_is_told_of_what_was_before_it,
);

fn watch(world: &World, observers: Observers) -> ObserverPump {
    lines::record();
    observe(world, observers)
}

fn every_transition_that_a_filter_matches_is_told_once_and_in_order_per_job(world: &World) {
    let (all, dead) = (Ear::new(), Ear::new());
    let dead_letters = TransitionFilter::new().state(JobState::DeadLettered).queue("default");
    let observers = Observers::new()
        .on_with("all", TransitionFilter::new(), quick_observer(), all.hears())
        .on_with("dead", dead_letters, quick_observer(), dead.hears())
        .on_with("other", births().queue("other"), quick_observer(), dead.hears());
    let pump = watch(world, observers);
    let registry = Registry::new().handle(|_, Task(what)| match what.as_str() {
        "bad" => Err("it is bad".into()),
        _ => Ok(()),
    });
    let group = world.spawn(registry, quick("worked"));
    let jobs = ["good", "bad", "good"].map(|what| world.enqueue(task(what)));
    for job in jobs {
        world.ended(job);
    }
    drop(group);
    let history = |job: JobId| world.client.monitor().history(job).expect("read");
    let histories = jobs.map(history);
    let states = |history: &[Transition]| history.iter().map(|t| t.to).collect::<Vec<_>>();
    let (scheduled, leased) = (JobState::Scheduled, JobState::Leased);
    assert_eq!(states(&histories[0]), [scheduled, leased, JobState::Succeeded]);
    let failing = [scheduled, leased, scheduled, leased, scheduled, leased, JobState::DeadLettered];
    assert_eq!(states(&histories[1]), failing);

    let count = histories.iter().map(Vec::len).sum();
    let told: Vec<_> = (0..count).map(|_| all.heard()).collect();
    for (job, history) in jobs.iter().zip(&histories) {
        let of_job = told.iter().filter(|what| what.job == *job);
        assert_eq!(
            of_job.map(|what| &what.transition).collect::<Vec<_>>(),
            history.iter().collect::<Vec<_>>()
        );
    }
    assert!(
        told.iter()
            .all(|what| (what.wire_name.as_str(), what.queue.as_str()) == ("task", "default"))
    );
    assert_eq!(dead.heard().job, jobs[1]);
    let reports = pump.shutdown();
    assert_eq!((all.unheard(), dead.unheard()), (Vec::new(), Vec::new()), "each was told once");
    let delivered: Vec<_> =
        reports.iter().map(|report| (report.delivered, report.failed)).collect();
    assert_eq!(delivered, [(count as u64, 0), (1, 0), (0, 0)]);
    assert!(reports.iter().all(|report| report.end == Some(ObserverEnd::Stopped)));
}

fn what_keeps_failing_is_parked_and_what_lies_behind_it_is_told(world: &World) {
    let name = world.name("parks");
    let (ear, bad) = (Ear::new(), Arc::new(OnceLock::new()));
    let callback = {
        let (hears, bad) = (ear.hears(), Arc::clone(&bad));
        move |what: &_| -> backwave::observer::CallbackResult {
            hears(what)?;
            if Some(&what.job) == bad.get() { Err("not this one".into()) } else { Ok(()) }
        }
    };
    let pump = watch(world, Observers::new().on_with(&name, births(), quick_observer(), callback));
    let id = JobId::new();
    bad.set(id).expect("it is set once");
    world.enqueue(task("bad").id(id));
    let good = world.enqueue(task("good"));
    assert_eq!(ear.jobs(4), [id, id, id, good]);
    eventually("it is parked", || find(world, &name).is_some_and(|record| record.parked == 1));

    let parked: Vec<_> = world.client.monitor().parked(&name).map(|p| p.expect("read")).collect();
    let [parked] = &parked[..] else { panic!("{parked:?}") };
    assert_eq!((parked.parking.observation.job, parked.parking.failures), (id, 3));
    assert_eq!((parked.parking.detail.as_str(), parked.is_wanted_again), ("not this one", false));
    let retried = lines::of_observer(&name, 2104);
    let failures: Vec<_> = retried.iter().map(|line| line.field("failures")).collect();
    assert_eq!(failures, ["1", "2"]);
    eventually("it is told", || lines::of_observer(&name, 1401).len() == 1);
    let line = &lines::of_observer(&name, 1401)[0];
    assert_eq!((line.level, line.field("failures")), (Level::Warn, "3"));
    assert!(!line.message.contains("not this one"), "{line:?}");
    let report = &pump.reports()[0];
    assert_eq!((report.failed, report.parked, report.is_holding), (3, 1, true));
    assert_eq!(report.last_failure.as_deref(), Some("not this one"));
}

fn a_parked_delivery_is_tried_again_or_forgotten_as_an_operator_wants(world: &World) {
    let name = world.name("tries again");
    let (ear, fails) = (Ear::new(), Arc::new(AtomicBool::new(true)));
    let callback = {
        let (hears, fails) = (ear.hears(), Arc::clone(&fails));
        move |what: &_| if fails.load(Ordering::SeqCst) { Err("down".into()) } else { hears(what) }
    };
    let pump = watch(world, Observers::new().on_with(&name, births(), quick_observer(), callback));
    let jobs = ["a", "b", "c"].map(|what| world.enqueue(task(what)));
    let parked = || find(world, &name).map(|record| record.parked);
    eventually("all are parked", || parked() == Some(3));
    let operator = world.client.operator("ada");
    let positions: Vec<_> =
        world.client.monitor().parked(&name).map(|parked| parked.expect("read")).collect();
    assert!(positions.iter().zip(jobs).all(|(p, job)| p.parking.observation.job == job));
    let first = positions[0].parking.observation.position();

    assert_eq!(operator.redeliver(&name, Some(first)).expect("marked"), 1);
    eventually("it has failed up to its ceiling again", || pump.reports()[0].parked == 4);
    let anew = world.client.monitor().parked(&name).next().expect("it is there").expect("read");
    assert_eq!((anew.parking.failures, anew.is_wanted_again), (3, false));

    assert_eq!(operator.discard_parked(&name, Some(first)).expect("forgotten"), 1);
    fails.store(false, Ordering::SeqCst);
    assert_eq!(operator.redeliver(&name, None).expect("marked"), 2);
    assert_eq!(ear.jobs(2), jobs[1..]);
    eventually("none is parked any more", || parked() == Some(0));
    assert_eq!(operator.redeliver(&name, None).expect("nothing to mark"), 0);
    let audit = world.client.monitor().audit(&Default::default()).expect("read");
    let told: Vec<_> = audit.iter().map(|r| (r.action, r.subject.as_deref())).collect();
    let (redeliver, discard) = (AuditAction::Redeliver, AuditAction::Discard);
    assert_eq!(told, [redeliver, discard, redeliver].map(|action| (action, Some(name.as_str()))));
}

fn a_panic_in_a_callback_is_a_failed_delivery(world: &World) {
    let name = world.name("panics");
    let (ear, calls) = (Ear::new(), Arc::new(AtomicU32::new(0)));
    let callback = {
        let (hears, calls) = (ear.hears(), Arc::clone(&calls));
        move |what: &_| match calls.fetch_add(1, Ordering::SeqCst) {
            0 => panic!("cannot go on"),
            _ => hears(what),
        }
    };
    let pump = watch(world, Observers::new().on_with(&name, births(), quick_observer(), callback));
    let job = world.enqueue(task("a"));
    assert_eq!(ear.heard().job, job);
    let report = &pump.shutdown()[0];
    assert_eq!(report.last_failure.as_deref(), Some("the callback panicked: cannot go on"));
    assert_eq!((report.delivered, report.failed), (1, 1));
}

fn a_callback_may_use_the_client_and_stop_its_own_pump(world: &World) {
    let pump = Arc::new(OnceLock::<ObserverPump>::new());
    let ear = Ear::new();
    let callback = {
        let (client, hears, pump) = (world.client.clone(), ear.hears(), Arc::downgrade(&pump));
        move |what: &backwave::observer::Observation| {
            // Told of what it enqueues itself, too: it stops at the second.
            client.enqueue(NewJob::raw("task", "\"echo\""))?;
            client.operator("the observer").cancel(what.job)?;
            hears(what)?;
            let pump = pump.upgrade().ok_or("it is gone")?;
            let reports = pump.get().ok_or("it has not begun")?.shutdown();
            assert!(reports[0].end.is_none(), "nobody waits for himself");
            Ok(())
        }
    };
    let name = world.name("calls back");
    let spawned =
        watch(world, Observers::new().on_with(name, births(), quick_observer(), callback));
    pump.set(spawned).expect("it is set once");
    let job = world.enqueue(task("a"));
    assert_eq!(ear.heard().job, job);
    let pump = pump.get().expect("it is set");
    let stopped = || pump.reports()[0].end == Some(ObserverEnd::Stopped);
    eventually("it has stopped", stopped);
    assert_eq!(world.job(job).state, JobState::Cancelled);
    assert_eq!(pump.shutdown(), pump.shutdown(), "asking again changes nothing");
}

fn of_two_pumps_one_tells_and_the_other_takes_over_at_once_when_it_stops(world: &World) {
    let name = world.name("shared");
    let (first, second) = (Ear::new(), Ear::new());
    let spawn = |ear: &Ear| {
        watch(world, Observers::new().on_with(&name, births(), quick_observer(), ear.hears()))
    };
    let holder = spawn(&first);
    eventually("it is held", || holder.reports()[0].is_holding);
    let heir = spawn(&second);
    let jobs = ["a", "b", "c", "d"].map(|what| world.enqueue(task(what)));
    assert_eq!(first.jobs(4), jobs);
    assert!(!heir.reports()[0].is_holding);
    holder.shutdown();
    eventually("the other holds it", || heir.reports()[0].is_holding);
    let later = world.enqueue(task("e"));
    assert_eq!(second.heard().job, later, "and is told of nothing twice");
    assert_eq!(find(world, &name).expect("registered").epoch, 2);
    let taken = lines::of_observer(&name, 2102);
    let epochs: Vec<_> = taken.iter().map(|line| line.field("epoch")).collect();
    assert_eq!(epochs, ["1", "2"]);
}

/// Registers an observer as a pump would that is never heard of again.
fn leave_a_hold(world: &World, name: &str, lease: Duration) {
    let filter = TransitionFilter::new();
    let mut session = world.store.open_session().expect("opened");
    session.observe(&Observe::new(name, WorkerId::new(), &filter, lease)).expect("registered");
}

fn a_holder_that_is_gone_is_inherited_from_when_its_hold_has_lapsed(world: &World) {
    let name = world.name("inherited");
    leave_a_hold(world, &name, Duration::from_secs(5));
    let job = world.enqueue(task("a"));
    let ear = Ear::new();
    let pump =
        watch(world, Observers::new().on_with(&name, births(), quick_observer(), ear.hears()));
    let second = world.enqueue(task("b"));
    assert_eq!((ear.unheard(), pump.reports()[0].is_holding), (Vec::new(), false));
    world.clock.skip(Duration::from_secs(6));
    assert_eq!(ear.jobs(2), [job, second]);
    assert_eq!(find(world, &name).expect("registered").epoch, 2);
}

fn a_callback_that_takes_too_long_is_left_behind_and_the_next_try_goes_on(world: &World) {
    let name = world.name("too long");
    let (gate, ear, calls) = (Gate::new(), Ear::new(), Arc::new(AtomicU32::new(0)));
    let callback = {
        let (gate, hears) = (gate.clone(), ear.hears());
        move |what: &_| {
            if calls.fetch_add(1, Ordering::SeqCst) == 0 {
                gate.pass("hangs");
            }
            hears(what)
        }
    };
    let options = quick_observer().timeout(Duration::from_millis(50));
    let pump = watch(world, Observers::new().on_with(&name, births(), options, callback));
    let job = world.enqueue(task("a"));
    assert_eq!(gate.heard(), "hangs");
    assert_eq!(ear.heard().job, job, "by the second try");
    let report = &pump.reports()[0];
    assert_eq!((report.left_behind, report.failed), (1, 1));
    let line = &lines::of_observer(&name, 2105)[0];
    assert_eq!((line.level, line.field("count")), (Level::Warn, "1"));
    let again = world.enqueue(task("b"));
    assert_eq!(ear.heard().job, again);
    gate.open();
    assert_eq!(ear.heard().job, job, "what it returns is of no account");
    eventually("it has come back", || pump.reports()[0].left_behind == 0);
    let report = &pump.shutdown()[0];
    assert_eq!((report.delivered, report.failed), (2, 1));
}

fn with_four_callbacks_left_behind_another_pump_takes_over(world: &World) {
    let name = world.name("hangs");
    let (gate, ear) = (Gate::new(), Ear::new());
    let hangs = {
        let gate = gate.clone();
        move |_: &_| {
            gate.pass("hangs");
            Ok(())
        }
    };
    let patient =
        quick_observer().retry(backwave::RetryPolicy::new(9).fixed(Duration::from_millis(1)));
    let options = patient.timeout(Duration::from_millis(20));
    let stuck = watch(world, Observers::new().on_with(&name, births(), options, hangs));
    let job = world.enqueue(task("a"));
    for _ in 0..4 {
        gate.heard();
    }
    let heir = watch(world, Observers::new().on_with(&name, births(), patient, ear.hears()));
    assert_eq!(ear.heard().job, job, "it was not to be parked yet");
    let report = &stuck.reports()[0];
    assert_eq!((report.left_behind, report.is_holding, report.end.as_ref()), (4, false, None));
    heir.shutdown();
    (0..4).for_each(|_| gate.open());
    eventually("it works again", || stuck.reports()[0].is_holding);
    assert_eq!(stuck.reports()[0].left_behind, 0);
}

fn a_stop_does_not_wait_beyond_its_budget_for_a_callback(world: &World) {
    let name = world.name("slow to stop");
    let (gate, ear) = (Gate::new(), Ear::new());
    let slow = {
        let gate = gate.clone();
        move |_: &_| {
            gate.pass("slow");
            Ok(())
        }
    };
    let observers = Observers::new().on_with(&name, births(), quick_observer(), slow);
    let pump = watch(world, observers.shutdown_budget(Duration::from_millis(20)));
    let job = world.enqueue(task("a"));
    assert_eq!(gate.heard(), "slow");
    let report = &pump.shutdown()[0];
    assert_eq!((report.end.as_ref(), report.delivered), (Some(&ObserverEnd::Stopped), 0));
    let heir =
        watch(world, Observers::new().on_with(&name, births(), quick_observer(), ear.hears()));
    assert_eq!(ear.heard().job, job, "it is told again");
    gate.open();
    drop(heir);
}

fn a_removed_observer_that_still_runs_registers_anew(world: &World) {
    let name = world.name("removed");
    let ear = Ear::new();
    let pump =
        watch(world, Observers::new().on_with(&name, births(), quick_observer(), ear.hears()));
    let operator = world.client.operator("ada");
    assert!(operator.remove_observer(&name).expect("removed"));
    eventually("it registers anew", || find(world, &name).is_some());
    let job = world.enqueue(task("a"));
    assert_eq!(ear.heard().job, job);
    drop(pump);
    assert!(operator.remove_observer(&name).expect("removed"));
    assert!(!operator.remove_observer(&name).expect("asked"), "it is not known any more");
    let audit = world.client.monitor().audit(&Default::default()).expect("read");
    assert_eq!(audit.len(), 2);
    assert!(audit.iter().all(|record| record.action == AuditAction::RemoveObserver));
}

fn how_far_an_observer_is_behind_can_be_read(world: &World) {
    let name = world.name("lags");
    let lag = || world.client.monitor().observer_lag(&name).expect("read");
    assert_eq!(lag(), None);
    leave_a_hold(world, &name, Duration::from_secs(5));
    assert_eq!(lag(), Some(Duration::ZERO));
    world.enqueue(task("a"));
    world.clock.skip(Duration::from_secs(100));
    assert!(lag() >= Some(Duration::from_secs(100)), "{:?}", lag());
    let pump =
        watch(world, Observers::new().on_with(&name, births(), quick_observer(), |_| Ok(())));
    eventually("it has caught up", || lag() == Some(Duration::ZERO));
    drop(pump);
}

fn what_an_observer_never_saw_is_kept_for_so_long_and_then_taken_with_an_error_in_the_log(
    world: &World,
) {
    lines::record();
    let name = world.name("keeps");
    leave_a_hold(world, &name, Duration::from_secs(5));
    let unobserved = Duration::from_secs(1000);
    let retention = Retention::default().succeeded(Duration::ZERO).unobserved(unobserved);
    let registry = Registry::new().handle(|_, _: Task| Ok(()));
    let group = world.spawn(registry, quick(&name).retention(retention));
    let job = world.enqueue(task("a"));
    world.ended(job);
    // A job that nobody waits for shows that purges come by.
    world.clock.skip(unobserved);
    eventually("it is taken", || world.client.monitor().job(job).is_err());
    eventually("it is told", || !lines::lines(&name, 1402).is_empty());
    let line = &lines::lines(&name, 1402)[0];
    assert_eq!((line.level, line.field("count")), (Level::Error, "3"));
    assert!(
        line.message.contains("3 transition(s) were taken before every observer had seen them")
    );
    drop(group);
}

fn an_observer_that_begins_with_the_oldest_is_told_of_what_was_before_it(world: &World) {
    leave_a_hold(world, "somebody", Duration::from_secs(5));
    let jobs = ["a", "b"].map(|what| world.enqueue(task(what)));
    let (new, old) = (Ear::new(), Ear::new());
    let oldest = quick_observer().start(ObserverStart::Oldest);
    let observers = Observers::new()
        .on_with("begins now", births(), quick_observer(), new.hears())
        .on_with("begins with the oldest", births(), oldest, old.hears());
    let _pump = watch(world, observers);
    assert_eq!(old.jobs(2), jobs);
    let later = world.enqueue(task("c"));
    assert_eq!((new.heard().job, old.heard().job), (later, later));
    assert_eq!(new.unheard(), []);
}

#[test]
fn observers_that_cannot_be_are_refused_with_every_fault() {
    let store = backwave::MemoryStore::new;
    let refused = |observers| spawn_observers(store(), observers).expect_err("it is refused");
    assert!(matches!(refused(Observers::new()), SpawnError::NoObserver));
    let ok = |_: &_| Ok(());
    let twice = Observers::new().on("a", births(), ok).on("a", births(), ok);
    assert!(matches!(refused(twice), SpawnError::ObserverTwice { observer } if observer == "a"));
    let options = ObserverOptions::new()
        .lease(Duration::from_secs(1))
        .batch(5001)
        .poll_interval(Duration::ZERO)
        .timeout(Duration::ZERO);
    let faults = refused(Observers::new().on_with("", births(), options, ok)).to_string();
    for part in [
        "the observer name \"\" cannot be used: it is empty",
        "lease is 1s",
        "batch is 5001, and must be between 1 and 5000",
        "poll_interval is 0ns",
        "timeout is 0ns",
    ] {
        assert!(faults.contains(part), "{part} is missing in:\n{faults}");
    }
}
