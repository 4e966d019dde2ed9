//! The clean stop: what finished is recorded, what did not goes back, and nobody waits for ever.

mod support;

use backwave::{
    CancelReason, DispatchPolicy, Group, JobContext, JobResult, JobState, Registry, ShutdownReport,
    Stopped,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::time::{Duration, Instant};
use support::gate::Gate;
use support::log;
use support::world::{PATIENCE, Task, World, eventually, facts, quick, task};

on_every_store!(
    a_stop_with_nothing_running_is_clean_and_forgets_the_group,
    a_handler_that_finishes_within_the_budget_is_recorded,
    a_handler_that_gives_way_is_handed_back_untouched,
    whoever_gives_way_the_moment_a_stop_is_asked_for_is_handed_back,
    a_handler_that_checks_its_token_gives_way_after_four_fifths_of_the_budget,
    a_handler_that_outlasts_the_budget_is_handed_back_and_its_result_changes_nothing,
    with_a_budget_of_zero_leases_are_left_to_lapse,
    a_stop_may_be_asked_for_by_many_at_once_and_each_gets_the_report,
    a_stop_from_within_a_handler_waits_for_nobody,
    a_dropped_group_stops,
    what_was_claimed_and_not_begun_goes_back_at_once,
    nothing_is_left_leased_whenever_a_stop_comes,
);

fn finish(_: &JobContext, _: Task) -> JobResult {
    Ok(())
}

fn a_stop_with_nothing_running_is_clean_and_forgets_the_group(world: &World) {
    let group = world.spawn(Registry::new().handle(finish), quick("idle").pumps(3));
    assert_eq!(group.shutdown(), ShutdownReport::default());
    assert_eq!(group.wait(), Stopped::Cleanly(ShutdownReport::default()));
    assert!(world.health.check().groups.is_empty());
    // The name is free again.
    let _again = world.spawn(Registry::new().handle(finish), quick("idle"));
}

fn a_handler_that_finishes_within_the_budget_is_recorded(world: &World) {
    let gate = Gate::new();
    let registry =
        Registry::new().handle_with(&gate.clone().into(), |gate: &Gate, ctx, _: Task| {
            gate.say("begun");
            // The stop is known at once; the token waits for four fifths of the budget.
            let stopping = ctx.stopping().recv_timeout(PATIENCE);
            assert!(stopping.is_err() && ctx.is_stopping() && !ctx.is_cancelled());
            Ok(())
        });
    let group = world.spawn(registry, quick("finishes").shutdown_budget(Duration::from_secs(20)));
    let id = world.enqueue(task("long"));
    assert_eq!(gate.heard(), "begun");
    let report = group.shutdown();
    assert_eq!(report, ShutdownReport::default());
    assert_eq!(facts(&world.job(id)), (JobState::Succeeded, 1, 0));
}

fn a_handler_that_gives_way_is_handed_back_untouched(world: &World) {
    let gate = Gate::new();
    let registry =
        Registry::new().handle_with(&gate.clone().into(), |gate: &Gate, ctx, _: Task| {
            gate.say("begun");
            let stopping = ctx.stopping().recv_timeout(PATIENCE);
            assert!(stopping.is_err());
            Err(ctx.give_way())
        });
    let group = world.spawn(registry, quick("gives_way").shutdown_budget(Duration::from_secs(20)));
    let id = world.enqueue(task("long"));
    let due_at = world.job(id).due_at;
    assert_eq!(gate.heard(), "begun");
    let report = group.shutdown();
    assert_eq!((report.handed_back, report.still_running), (1, vec![]));
    let record = world.job(id);
    assert_eq!(facts(&record), (JobState::Scheduled, 1, 0));
    assert_eq!(record.due_at, due_at, "it keeps its place");
    assert_eq!((record.owner, record.failure_detail), (None, None));
}

fn whoever_gives_way_the_moment_a_stop_is_asked_for_is_handed_back(world: &World) {
    // That moment is short, so it is tried often.
    let mut job = None;
    for round in 0..40 {
        let gate = Gate::new();
        let registry =
            Registry::new().handle_with(&gate.clone().into(), |gate: &Gate, ctx, _: Task| {
                gate.say("begun");
                while !ctx.is_stopping() {
                    std::hint::spin_loop();
                }
                Err(ctx.give_way())
            });
        let group = world.spawn(registry, quick("at_once").pumps(4).workers(1));
        let id = *job.get_or_insert_with(|| world.enqueue(task("long")));
        gate.heard();
        // More than once where another pump was just claiming.
        assert!(group.shutdown().handed_back >= 1, "round {round}");
        assert_eq!((world.job(id).state, world.job(id).failures), (JobState::Scheduled, 0));
    }
}

fn a_handler_that_checks_its_token_gives_way_after_four_fifths_of_the_budget(world: &World) {
    let gate = Gate::new();
    let registry =
        Registry::new().handle_with(&gate.clone().into(), |gate: &Gate, ctx, _: Task| {
            gate.say("begun");
            let asked = ctx.stopping().recv_timeout(PATIENCE);
            assert!(asked.is_err());
            let stopped_at = Instant::now();
            let slept = ctx.sleep(PATIENCE);
            assert_eq!(ctx.token().reason(), Some(CancelReason::GroupStopping));
            gate.say(format!("{}", stopped_at.elapsed().as_millis()));
            slept?;
            Ok(())
        });
    let group = world.spawn(registry, quick("checks").shutdown_budget(Duration::from_secs(2)));
    let id = world.enqueue(task("long"));
    assert_eq!(gate.heard(), "begun");
    let report = group.shutdown();
    assert_eq!((report.handed_back, report.still_running), (1, vec![]));
    assert_eq!(facts(&world.job(id)), (JobState::Scheduled, 1, 0));
    let after: u64 = gate.heard().parse().expect("milliseconds");
    assert!((1_500..2_000).contains(&after), "{after} ms");
}

fn a_handler_that_outlasts_the_budget_is_handed_back_and_its_result_changes_nothing(world: &World) {
    log::record();
    let gate = Gate::new();
    let registry = || {
        Registry::new().handle_with(&gate.clone().into(), |gate: &Gate, ctx, _: Task| {
            if ctx.attempt() == 1 {
                let leaving = gate.clone();
                gate.pass("begun");
                leaving.say("left");
                return Err("of the past".into());
            }
            ctx.set_output(&"of the second")?;
            Ok(())
        })
    };
    let name = world.name("outlasts");
    let group = world.spawn(registry(), quick(&name).shutdown_budget(Duration::from_millis(100)));
    let id = world.enqueue(task("long"));
    assert_eq!(gate.heard(), "begun");
    let report = group.shutdown();
    assert_eq!((report.handed_back, &report.still_running), (1, &vec![id]));
    assert_eq!(facts(&world.job(id)), (JobState::Scheduled, 1, 0));
    let warnings = log::lines(&name, 2005);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(warnings[0].field("job_ids"), id.to_string());

    let heir = world.spawn(registry(), quick("heir"));
    let record = world.ended(id);
    assert_eq!(facts(&record), (JobState::Succeeded, 2, 0));
    gate.open();
    assert_eq!(gate.heard(), "left");
    assert!(heir.wait_until_idle(PATIENCE));
    assert_eq!(world.job(id), record);
    assert_eq!(group.shutdown(), report, "the report stays");
}

fn with_a_budget_of_zero_leases_are_left_to_lapse(world: &World) {
    let gate = Gate::new();
    let registry = || {
        Registry::new().handle_with(&gate.clone().into(), |gate: &Gate, ctx, _: Task| {
            if ctx.attempt() == 1 {
                gate.pass("begun")
            }
            Ok(())
        })
    };
    let group = world.spawn(registry(), quick("at_once").shutdown_budget(Duration::ZERO));
    let id = world.enqueue(task("long"));
    assert_eq!(gate.heard(), "begun");
    let report = group.shutdown();
    assert_eq!((report.handed_back, report.still_running), (0, vec![id]));
    assert_eq!(facts(&world.job(id)), (JobState::Leased, 1, 0));
    let _heir = world.spawn(registry(), quick("heir"));
    world.clock.skip(Duration::from_secs(6));
    assert_eq!(facts(&world.ended(id)), (JobState::Succeeded, 2, 1));
    gate.open();
}

fn a_stop_may_be_asked_for_by_many_at_once_and_each_gets_the_report(world: &World) {
    let gate = Gate::new();
    let registry =
        Registry::new().handle_with(&gate.clone().into(), |gate: &Gate, ctx, _: Task| {
            gate.say("begun");
            assert!(ctx.stopping().recv_timeout(PATIENCE).is_err());
            Err(ctx.give_way())
        });
    let group = world.spawn(registry, quick("many"));
    world.enqueue(task("long"));
    assert_eq!(gate.heard(), "begun");
    let barrier = Barrier::new(10);
    let reports: Vec<ShutdownReport> = std::thread::scope(|scope| {
        let stop = || {
            barrier.wait();
            group.begin_shutdown();
            group.shutdown()
        };
        let threads: Vec<_> = (0..10).map(|_| scope.spawn(stop)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert!(reports.iter().all(|report| *report == reports[0]), "{reports:?}");
    assert_eq!(reports[0].handed_back, 1);
    assert_eq!(group.shutdown(), reports[0]);
    assert!(group.wait_until_idle(PATIENCE), "an ended group is idle");
}

fn a_stop_from_within_a_handler_waits_for_nobody(world: &World) {
    let cell: Arc<OnceLock<Arc<Group>>> = Arc::default();
    let gate = Gate::new();
    let inside = (Arc::clone(&cell), gate.clone());
    let registry = Registry::new().handle(move |_, _: Task| {
        let (cell, gate) = &inside;
        gate.pass("begun");
        let report = cell.get().expect("set before").shutdown();
        gate.say(format!("{} pump(s) have not answered", report.unanswered));
        Ok(())
    });
    let group = Arc::new(world.spawn(registry, quick("inside")));
    assert!(cell.set(Arc::clone(&group)).is_ok());
    let id = world.enqueue(task("stops its own group"));
    assert_eq!(gate.heard(), "begun");
    gate.open();
    assert_eq!(gate.heard(), "1 pump(s) have not answered");
    assert_eq!(group.wait(), Stopped::Cleanly(ShutdownReport::default()));
    assert_eq!(facts(&world.job(id)), (JobState::Succeeded, 1, 0));
}

fn a_dropped_group_stops(world: &World) {
    let gate = Gate::new();
    let registry =
        Registry::new().handle_with(&gate.clone().into(), |gate: &Gate, ctx, _: Task| {
            gate.say("begun");
            assert!(ctx.stopping().recv_timeout(PATIENCE).is_err());
            Ok(())
        });
    let group = world.spawn(registry, quick("dropped"));
    let id = world.enqueue(task("long"));
    assert_eq!(gate.heard(), "begun");
    drop(group);
    assert_eq!(facts(&world.job(id)), (JobState::Succeeded, 1, 0));
    assert!(world.health.check().groups.is_empty());
}

fn what_was_claimed_and_not_begun_goes_back_at_once(world: &World) {
    let (gate, short_ones) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&short_ones);
    let registry =
        Registry::new().handle_with(&gate.clone().into(), move |gate: &Gate, _, Task(how)| {
            if how == "long" {
                gate.pass("begun")
            } else {
                count.fetch_add(1, Ordering::SeqCst);
            }
            Ok(())
        });
    let options = quick("hoards").workers(1).shutdown_budget(Duration::from_secs(20));
    let group = world.spawn(registry, options);
    // So many short jobs that it holds some beyond its only worker.
    world.client.enqueue_many((0..64).map(|_| task("short"))).expect("accepted");
    assert!(group.wait_until_idle(PATIENCE));
    let jobs = std::iter::once(task("long")).chain((0..30).map(|_| task("short")));
    let jobs = world.client.enqueue_many(jobs).expect("accepted");
    assert_eq!(gate.heard(), "begun");
    group.begin_shutdown();
    // While the long one still runs, another group gets what was not begun.
    let heir = Registry::new().handle(|ctx, _: Task| {
        ctx.set_output(&"by the heir")?;
        Ok(())
    });
    let _heir = world.spawn(heir, quick("heir").dispatch(DispatchPolicy::strict(["default"])));
    for job in &jobs[1..] {
        let record = world.ended(job.id);
        assert_eq!((record.state, record.failures), (JobState::Succeeded, 0));
        assert!(record.output.is_some(), "the old group began nothing more");
    }
    gate.open();
    let report = group.shutdown();
    assert_eq!(report.still_running, []);
    assert_eq!(facts(&world.job(jobs[0].id)), (JobState::Succeeded, 1, 0));
    assert!(report.handed_back <= 30);
    assert_eq!(short_ones.load(Ordering::SeqCst), 64, "nor did it when its worker was free");
}

fn nothing_is_left_leased_whenever_a_stop_comes(world: &World) {
    const ROUNDS: usize = 200;
    const JOBS: usize = 10;
    let runs = Arc::new(AtomicUsize::new(0));
    let registry = Registry::new().handle_with(&runs, |runs: &AtomicUsize, _, _: Task| {
        runs.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    let mut handed_back = 0;
    let mut moment = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..ROUNDS {
        let group = world.spawn(registry.clone(), quick("moments").workers(4));
        world.client.enqueue_many((0..JOBS).map(|_| task("short"))).expect("accepted");
        moment = moment.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // Sleeps, but not to wait for anything: the stop is to come at another moment each time.
        std::thread::sleep(Duration::from_micros((moment >> 33) % 3_000));
        let report = group.shutdown();
        assert_eq!((report.unanswered, report.halts.len()), (0, 0), "round {round}");
        assert_eq!(world.count(JobState::Leased), 0, "round {round}");
        handed_back += report.handed_back;
    }
    let group = world.spawn(registry, quick("moments"));
    assert!(group.wait_until_idle(PATIENCE));
    assert_eq!(world.count(JobState::Succeeded), (ROUNDS * JOBS) as u64);
    // Nothing lapsed, so what ran has been recorded, and ran once.
    assert_eq!(runs.load(Ordering::SeqCst), ROUNDS * JOBS);
    println!("{handed_back} job(s) were handed back");
}

#[test]
fn a_budget_beyond_what_the_host_grants_ends_at_four_fifths_of_that() {
    let world = support::world::memory();
    let gate = Gate::new();
    let registry = Registry::new().handle_with(&gate.clone().into(), |gate: &Gate, _, _: Task| {
        gate.pass("begun");
        Ok(())
    });
    let options = quick("granted").shutdown_budget(PATIENCE * 2);
    let group = world.spawn(registry, options.host_shutdown_timeout(Duration::from_millis(500)));
    let id = world.enqueue(task("long"));
    assert_eq!(gate.heard(), "begun");
    let began = Instant::now();
    let report = group.shutdown();
    let took = began.elapsed();
    assert_eq!((report.handed_back, report.still_running), (1, vec![id]));
    assert!((Duration::from_millis(400)..PATIENCE).contains(&took), "{took:?}");
    assert_eq!(facts(&world.job(id)), (JobState::Scheduled, 1, 0));
    gate.open();
}

#[test]
fn a_stop_inside_an_async_runtime_is_sound() {
    let world = support::world::memory();
    let group = Mutex::new(Some(world.spawn(Registry::new().handle(finish), quick("async"))));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
    runtime.expect("a runtime").block_on(async {
        let group = group.lock().expect("no panic").take().expect("there");
        assert_eq!(group.shutdown(), ShutdownReport::default());
        drop(group);
    });
    eventually("the group is forgotten", || world.health.check().groups.is_empty());
}
