//! What holds after a halt and around it: what is not sent any more, what stays red, what goes on; and
//! what looks like a halt and is none.

mod support;

use backwave::invariant::{InvariantAction, InvariantTrigger, halt, violations};
use backwave::store::StoreError;
use backwave::testing::{Intercept, StoreCall};
use backwave::{
    CancelReason, DegradedCause, Health, HealthStatus, JobContext, JobResult, JobState, Registry,
    Stopped,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use support::gate::Gate;
use support::log as lines;
use support::scene::Scene;
use support::world::{PATIENCE, Task, eventually, facts, memory, quick, task};

const MADE: InvariantTrigger = InvariantTrigger::DanglingGatingEdge;

fn violation() -> StoreError {
    halt(MADE, "made by the test").into()
}

fn away() -> StoreError {
    StoreError::transient(std::io::Error::other("away")).with_session_lost()
}

fn finish(_: &JobContext, _: Task) -> JobResult {
    Ok(())
}

fn finishing() -> Registry {
    Registry::new().handle(finish)
}

/// Ignores its token, and ends well when it is let through; an heir's attempt ends at once.
fn deaf(gate: &Gate, ctx: &JobContext, _: Task) -> JobResult {
    if ctx.attempt() == 1 {
        gate.pass("begun");
        gate.say("ended well");
    }
    Ok(())
}

#[test]
fn after_a_halt_no_heartbeat_and_no_report_is_sent_while_a_sibling_sends_three() {
    let scene = Scene::new("silent");
    let gate = Gate::new();
    let group = scene.spawn(Registry::new().handle_with(&gate.clone().into(), deaf));
    // Of the same lease, and so of the same heartbeat.
    let (store, beside) = (Intercept::new(Arc::clone(&scene.world.store)), Gate::new());
    let registry = Registry::new().handle_with(&beside.clone().into(), deaf);
    let _sibling = scene.world.spawn_on(
        store.clone(),
        registry,
        quick("silent, beside").dispatch(backwave::DispatchPolicy::strict(["beside"])),
    );
    let id = scene.world.enqueue(task("runs"));
    let kept = scene.world.enqueue(task("runs").queue("beside"));
    assert_eq!((gate.heard(), beside.heard()), ("begun".to_owned(), "begun".to_owned()));
    let beats = |store: &Intercept| store.calls(StoreCall::Renew);
    eventually("both hold their leases", || beats(&scene.store) > 0 && beats(&store) > 0);

    scene.store.on_find_lapsed(|_, _, _| Err(violation()));
    scene.halted(&group, Some(MADE));
    let asked = scene.asked();
    let before = beats(&store);
    eventually("the sibling renews", || beats(&store) > before);
    // A result that comes after the halt is dropped, though its lease lives and the store would take it.
    scene.store.clear();
    gate.open();
    assert_eq!(gate.heard(), "ended well");
    eventually("the sibling renews twice more", || beats(&store) >= before + 3);
    assert_eq!(scene.asked(), asked);
    assert_eq!(facts(&scene.world.job(id)), (JobState::Leased, 1, 0));
    beside.open();
    assert_eq!(facts(&scene.world.ended(kept)), (JobState::Succeeded, 1, 0));
}

#[test]
fn jobs_for_a_halted_group_are_accepted_and_its_heir_runs_them() {
    let scene = Scene::new("filled");
    scene.store.on_claim(|_, _| Err(violation()));
    let group = scene.spawn(finishing());
    scene.halted(&group, Some(MADE));
    let jobs = scene.world.client.enqueue_many((0..100).map(|_| task("later"))).expect("accepted");
    assert_eq!(scene.world.count(JobState::Scheduled), 100);
    let _heir = scene.world.spawn(finishing(), quick("filled, heir"));
    for job in jobs {
        assert_eq!(facts(&scene.world.ended(job.id)), (JobState::Succeeded, 1, 0));
    }
}

#[test]
fn a_halt_stays_until_a_new_group_takes_the_name_whatever_else_happens() {
    let scene = Scene::new("stays");
    scene.store.on_claim(|_, _| Err(violation()));
    let group = scene.spawn(finishing());
    let halt = scene.halted(&group, Some(MADE));
    let stands = || {
        let health = &scene.world.health;
        assert_eq!(health.halted_groups(), [(scene.name.clone(), halt.clone())].into());
        assert_eq!(health.check().status, HealthStatus::Unhealthy);
    };
    // The store is honest again; the handle is asked to stop, and dropped.
    scene.store.clear();
    scene.surroundings_live();
    stands();
    assert_eq!(group.shutdown().halts.len(), 1);
    drop(group);
    stands();
    // A neighbour limps, recovers and stops.
    let store = Intercept::new(Arc::clone(&scene.world.store));
    let options = quick("stays, neighbour").dispatch(backwave::DispatchPolicy::strict(["other"]));
    let neighbour = scene.world.spawn_on(store.clone(), finishing(), options);
    store.on_every_call(|_| Err(away()));
    let limps = || scene.world.health.degraded_groups().contains_key("stays, neighbour");
    eventually("the neighbour limps", limps);
    stands();
    store.clear();
    eventually("the neighbour has recovered", || !limps());
    stands();
    neighbour.shutdown();
    stands();
    // Only a new group of that name begins anew.
    let _again = scene.spawn(finishing());
    assert!(scene.world.health.is_healthy());
    assert_eq!(scene.world.health.check().status, HealthStatus::Healthy);
    let id = scene.world.enqueue(task("served"));
    assert_eq!(facts(&scene.world.ended(id)), (JobState::Succeeded, 1, 0));
}

/// Three pumps, halted one by one, with a transient fault of the others in between.
#[test]
fn a_transient_fault_beside_halted_pumps_neither_hides_nor_heals_them() {
    let scene = Scene::new("one by one");
    let left = Arc::new(AtomicU32::new(0));
    let halts = |count: u32| {
        left.store(count, Ordering::SeqCst);
        let left = Arc::clone(&left);
        scene.store.on_claim(move |session, claim| {
            let take = |left: u32| left.checked_sub(1);
            match left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take) {
                Ok(_) => Err(violation()),
                Err(_) => session.claim(claim),
            }
        });
    };
    let health: &Health = &scene.world.health;
    let partial = |halted: usize| {
        let report = health.check();
        let of_group = report.groups.iter().find(|group| group.name == scene.name).expect("listed");
        assert!(health.is_healthy() && health.halted_groups().is_empty(), "{report}");
        assert_eq!(report.status, HealthStatus::Degraded, "{report}");
        assert_eq!((of_group.pumps, of_group.halts.len()), (3, halted), "{report}");
        assert!(health.partially_halted_groups().contains_key(&scene.name), "{report}");
    };
    let halted = || {
        let report = health.check();
        let of_group = report.groups.into_iter().find(|group| group.name == scene.name);
        of_group.map_or(0, |group| group.halts.len())
    };
    let limps = || health.degraded_groups().contains_key(&scene.name);

    let group = scene.spawn_as(finishing(), scene.options().pumps(3));
    for count in 1..=2 {
        halts(1);
        eventually("one more has halted", || halted() == count);
        partial(count);
        scene.store.on_every_call(|_| Err(away()));
        eventually("the others limp", limps);
        partial(count);
        let marks = &health.degraded_groups()[&scene.name];
        assert_eq!(marks[0].cause, DegradedCause::StoreFault);
        scene.store.clear();
        eventually("the others have recovered", || !limps());
        partial(count);
        let id = scene.world.enqueue(task("served by who is left"));
        assert_eq!(facts(&scene.world.ended(id)), (JobState::Succeeded, 1, 0));
    }
    halts(1);
    eventually("the last has halted", || !health.is_healthy());
    assert!(matches!(group.wait(), Stopped::Halted(_)));
    assert_eq!(health.check().status, HealthStatus::Unhealthy);
    assert!(health.partially_halted_groups().is_empty());
    assert_eq!(halted(), 3);
    assert_eq!(lines::lines(&scene.name, 2001).len(), 3, "one for each pump");
    assert_eq!(group.shutdown().halts.len(), 3);
}

#[test]
fn health_shows_a_halt_before_any_token_fires_and_before_it_is_logged() {
    let scene = Scene::new("in order");
    let gate = Gate::new();
    let (health, notes) = (Arc::clone(&scene.world.health), gate.clone());
    let handler = move |ctx: &JobContext, _: Task| {
        notes.say("begun");
        let reason = ctx.sleep(PATIENCE).err().map(|cancelled| cancelled.reason);
        notes.say(format!("{reason:?}, healthy: {}", health.is_healthy()));
        Ok(())
    };
    let group = scene.spawn(Registry::new().handle(handler));
    scene.world.enqueue(task("runs"));
    assert_eq!(gate.heard(), "begun");
    scene.store.on_find_lapsed(|_, _, _| Err(violation()));
    let heard = gate.heard();
    assert_eq!(heard, format!("{:?}, healthy: false", Some(CancelReason::GroupStopping)));
    scene.halted(&group, Some(MADE));
}

#[test]
fn a_violation_told_while_a_group_drains_halts_it() {
    let scene = Scene::new("drains");
    let gate = Gate::new();
    let handler = |gate: &Gate, ctx: &JobContext, _: Task| {
        gate.say("begun");
        assert!(ctx.stopping().recv_timeout(PATIENCE).is_err());
        gate.pass("knows of the stop");
        Ok(())
    };
    let options = scene.options().shutdown_budget(Duration::from_secs(20));
    let group = scene.spawn_as(Registry::new().handle_with(&gate.clone().into(), handler), options);
    let id = scene.world.enqueue(task("ends while the group drains"));
    assert_eq!(gate.heard(), "begun");
    group.begin_shutdown();
    assert_eq!(gate.heard(), "knows of the stop");
    scene.store.on_report(|_, _| Err(violation()));
    gate.open();
    let halt = scene.halted(&group, Some(MADE));
    assert_eq!(group.shutdown().halts, [halt]);
    assert_eq!(scene.store.calls(StoreCall::HandBack), 0, "nothing is handed back after a halt");
    assert_eq!(facts(&scene.world.job(id)), (JobState::Leased, 1, 0));
}

#[test]
fn a_clean_stop_is_no_fail_stop() {
    let scene = Scene::new("clean");
    let gate = Gate::new();
    let handler = |gate: &Gate, ctx: &JobContext, _: Task| {
        gate.say("begun");
        ctx.sleep(PATIENCE)?;
        Ok(())
    };
    let options = scene.options().shutdown_budget(Duration::from_millis(100));
    let group = scene.spawn_as(Registry::new().handle_with(&gate.clone().into(), handler), options);
    scene.world.enqueue(task("is cancelled by the stop"));
    assert_eq!(gate.heard(), "begun");
    let report = group.shutdown();
    assert_eq!((report.halts.len(), report.unanswered), (0, 0));
    assert!(matches!(group.wait(), Stopped::Cleanly(_)));
    assert_eq!(lines::lines(&scene.name, 2001).len(), 0);
    assert!(scene.world.health.is_healthy());
    assert_eq!(scene.world.health.check().status, HealthStatus::Healthy);
}

/// A handler outlives its lease, and so does what it reports: nothing is wrong but the one line.
#[test]
fn a_lease_that_lapses_under_its_handler_is_told_by_one_line_and_counted_nowhere() {
    lines::record();
    let world = memory();
    let store = Intercept::new(Arc::clone(&world.store));
    let gate = Gate::new();
    let trigger = InvariantTrigger::OutcomeFenceRejected;
    let counted = || {
        [InvariantAction::Degrade, InvariantAction::Halt].map(|action| violations(trigger, action))
    };
    let before = counted();
    let group = world.spawn_on(
        store.clone(),
        Registry::new().handle_with(&gate.clone().into(), deaf),
        quick("lapses"),
    );
    let id = world.enqueue(task("outlives its lease"));
    assert_eq!(gate.heard(), "begun");
    // The pump cannot hear that the clock has gone on before the report itself is judged.
    let clock = world.clock.clone();
    let skipped = AtomicU32::new(0);
    store.on_report(move |session, rows| {
        if skipped.fetch_add(1, Ordering::SeqCst) == 0 {
            clock.skip(Duration::from_secs(6));
        }
        session.report(rows)
    });
    gate.open();
    assert_eq!(facts(&world.ended(id)), (JobState::Succeeded, 2, 1), "it lapsed, once");
    assert!(group.wait_until_idle(PATIENCE));
    let lost = lines::lines("lapses", 1202);
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert_eq!(lost[0].field("reason"), "it had expired when the outcome was reported");
    assert_eq!([2001, 2003].map(|event| lines::lines("lapses", event).len()), [0, 0]);
    assert!(lines::all().iter().all(|line| line.event_id != 1601));
    assert_eq!(counted(), before);
    assert_eq!(world.health.check().groups[0].halts, []);
    assert_eq!(group.shutdown().halts, []);
}

#[test]
fn a_ticker_that_dies_of_a_violation_halts_under_its_trigger() {
    let scene = Scene::new("ticker's violation");
    let died = || std::panic::panic_any(halt(MADE, "made by the test"));
    let group = scene.spawn_as(finishing(), scene.options().ticker_probe(died));
    let halt = scene.halted(&group, Some(MADE));
    assert!(halt.message.starts_with("the ticker thread died: "), "{halt}");
    assert!(halt.message.ends_with("made by the test"), "{halt}");
}

#[test]
fn a_worker_thread_that_vanishes_halts_its_pump() {
    let scene = Scene::new("vanishes");
    let options = scene.options().worker_probe(|| panic!("gone before it began"));
    let group = scene.spawn_as(finishing(), options);
    let halt = scene.halted(&group, None);
    assert_eq!(halt.message, "a worker thread is gone");
}

/// Whatever the crate calls may look at the health, on that very thread: no lock of the crate's that is held
/// there is one that a reader takes.
#[test]
fn health_is_read_from_within_every_call_that_the_crate_makes() {
    let scene = Scene::new("reads");
    let reads = Arc::new(AtomicU32::new(0));
    let (health, count) = (Arc::clone(&scene.world.health), Arc::clone(&reads));
    let look = move || {
        let report = health.check();
        let shown = (report.to_string(), health.halted_groups(), health.partially_halted_groups());
        assert!(!shown.0.is_empty() && health.degraded_groups().len() <= report.groups.len());
        count.fetch_add(1, Ordering::SeqCst);
    };
    let in_call = look.clone();
    scene.store.on_every_call(move |_| {
        in_call();
        Ok(())
    });
    let in_handler = look.clone();
    let registry = Registry::new().handle(move |_, Task(how): Task| {
        in_handler();
        match how.as_str() {
            "violates" => Err(halt(MADE, "made by the test").into()),
            _ => Ok(()),
        }
    });
    let options = scene.options().pumps(2).ticker_probe(look.clone()).worker_probe(look);
    let group = scene.spawn_as(registry, options);
    let id = scene.world.enqueue(task("served"));
    assert_eq!(facts(&scene.world.ended(id)), (JobState::Succeeded, 1, 0));
    scene.world.enqueue(task("violates"));
    let partially = || scene.world.health.partially_halted_groups();
    eventually("one pump halts", || partially().contains_key(&scene.name));
    assert_eq!(group.shutdown().halts.len(), 1);
    // Two workers for each of two pumps, a handler twice, and every call and tick.
    assert!(reads.load(Ordering::SeqCst) > 10);
}
