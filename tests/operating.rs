//! What an operator does to queues and groups that run: limits that are never exceeded, pauses that the next claim
//! hears, leases taken away; and what can be read of the fleet.

mod support;

use backwave::monitor::{AuditAction, JobFilter, Reason};
use backwave::{DispatchPolicy, Error, Group, JobState, NewJob, Prefetch, Registry, Retention};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use support::gate::Gate;
use support::world::{PATIENCE, Task, World, eventually, facts, quick, task};

on_every_store!(
    a_limit_is_never_exceeded_by_several_groups,
    a_first_limit_set_while_jobs_run_is_heeded_by_the_next_claim,
    a_paused_queue_gives_nothing_until_it_is_resumed,
    leases_taken_from_a_stuck_worker_run_elsewhere_at_once_and_its_late_report_is_refused,
    jobs_are_called_off_and_requeued_by_filter,
    a_queue_name_that_cannot_be_is_refused_with_its_fault,
    the_fleet_tells_of_itself_and_a_clean_stop_takes_the_note_away,
    what_has_been_kept_long_enough_is_purged_and_the_rest_stays,
    a_job_that_does_not_run_is_explained,
);

/// Counts how many run at a time.
#[derive(Default)]
struct Witness {
    running: AtomicU32,
    most: AtomicU32,
    ran: AtomicU32,
}

impl Witness {
    fn registry(self: &Arc<Self>) -> Registry {
        Registry::new().handle_with(self, |witness: &Self, ctx, _: Task| {
            let now = witness.running.fetch_add(1, Ordering::SeqCst) + 1;
            witness.most.fetch_max(now, Ordering::SeqCst);
            // A moment in which others may begin.
            ctx.sleep(Duration::from_millis(2))?;
            witness.ran.fetch_add(1, Ordering::SeqCst);
            witness.running.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        })
    }
}

fn a_limit_is_never_exceeded_by_several_groups(world: &World) {
    const JOBS: u32 = 60;
    let witness = Arc::new(Witness::default());
    let operator = world.client.operator("ada");
    let settings = operator.set_concurrency_limit("default", Some(3)).expect("set");
    assert_eq!((settings.concurrency_limit, settings.is_paused), (Some(3), false));
    let jobs: Vec<_> = (0..JOBS).map(|number| task(number.to_string())).collect();
    let jobs = world.client.enqueue_many(jobs).expect("accepted");
    let groups: Vec<Group> = (0..3)
        .map(|number| world.spawn(witness.registry(), quick(&format!("{number}")).workers(8)))
        .collect();
    eventually("all have run", || world.count(JobState::Succeeded) == u64::from(JOBS));
    assert!(witness.most.load(Ordering::SeqCst) <= 3, "{:?}", witness.most);
    assert_eq!(witness.ran.load(Ordering::SeqCst), JOBS);
    for job in jobs {
        // Who waits for a slot spends no attempt on it.
        assert_eq!(facts(&world.job(job.id)), (JobState::Succeeded, 1, 0));
    }
    drop(groups);
}

fn a_first_limit_set_while_jobs_run_is_heeded_by_the_next_claim(world: &World) {
    let gate = Gate::new();
    let held = {
        let gate = gate.clone();
        Registry::new().handle(move |_, job: Task| {
            gate.pass(job.0);
            Ok(())
        })
    };
    let group = world.spawn(held, quick("held").workers(8).prefetch(Prefetch::Off));
    world.client.enqueue_many((0..3).map(|n| task(n.to_string()))).expect("accepted");
    (0..3).for_each(|_| drop(gate.heard()));
    world.client.operator("ada").set_concurrency_limit("default", Some(2)).expect("set");
    let waiting = world.enqueue(task("waits"));
    gate.open();
    // One of three has ended: two are leased still, and the limit is two.
    eventually("one has ended", || world.count(JobState::Succeeded) == 1);
    let why = world.client.monitor().explain(waiting).expect("read");
    let at_limit = Reason::QueueAtLimit { queue: "default".to_owned(), limit: 2, leased: 2 };
    assert!(why.reasons.contains(&at_limit), "{why}");
    assert_eq!(gate.unheard(), Vec::<String>::new());
    gate.open();
    assert_eq!(gate.heard(), "waits");
    gate.open();
    gate.open();
    assert!(group.wait_until_idle(PATIENCE));
    assert_eq!(world.count(JobState::Succeeded), 4);
}

fn a_paused_queue_gives_nothing_until_it_is_resumed(world: &World) {
    let operator = world.client.operator("ada");
    assert!(operator.pause("mail").expect("paused").is_paused);
    let witness = Arc::new(Witness::default());
    let options = quick("pausing").dispatch(DispatchPolicy::strict(["mail", "default"]));
    let group = world.spawn(witness.registry(), options);
    let paused = world.enqueue(task("paused").queue("mail"));
    let other = world.enqueue(task("not paused"));
    assert_eq!(world.ended(other).state, JobState::Succeeded);
    assert!(group.wait_until_idle(PATIENCE));
    assert_eq!(facts(&world.job(paused)), (JobState::Scheduled, 0, 0));
    assert!(world.health.is_healthy(), "a pause is somebody's wish");
    assert!(!operator.resume("mail").expect("resumed").is_paused);
    assert_eq!(facts(&world.ended(paused)), (JobState::Succeeded, 1, 0));
    let audit = world.client.monitor().audit(&Default::default()).expect("read");
    let told: Vec<_> = audit.iter().map(|r| (r.action, r.actor.as_str())).collect();
    assert_eq!(told, [(AuditAction::Resume, "ada"), (AuditAction::Pause, "ada")]);
    assert!(audit.iter().all(|record| record.queue == "mail"));
}

fn leases_taken_from_a_stuck_worker_run_elsewhere_at_once_and_its_late_report_is_refused(
    world: &World,
) {
    let gate = Gate::new();
    let stuck = {
        let gate = gate.clone();
        Registry::new().handle(move |ctx, _: Task| {
            gate.pass("stuck");
            Ok(ctx.set_output(&"late")?)
        })
    };
    let options = quick("stuck").workers(1).prefetch(Prefetch::Off).shutdown_budget(Duration::ZERO);
    let first = world.spawn(stuck, options);
    let id = world.enqueue(task("taken away"));
    gate.heard();
    let worker = world.job(id).owner.expect("it is leased");
    let heir = Registry::new().handle(|ctx, _: Task| Ok(ctx.set_output(&"by the heir")?));
    let options = quick("heir").dispatch(DispatchPolicy::strict(["default", "other"]));
    // Only the heir is free to take it; the other's one worker is stuck.
    let second = world.spawn(heir, options);
    let taken = world.client.operator("ada").revoke_leases(worker).expect("taken");
    assert_eq!(taken, [id]);
    let record = world.ended(id);
    assert_eq!(facts(&record), (JobState::Succeeded, 2, 0));
    gate.open();
    assert!(first.wait_until_idle(PATIENCE));
    let record = world.job(id);
    assert_eq!(record.output::<String>().expect("it left one"), "by the heir");
    assert!(world.health.is_healthy());
    assert!(world.client.operator("ada").revoke_leases(worker).expect("nothing").is_empty());
    second.shutdown();
}

fn jobs_are_called_off_and_requeued_by_filter(world: &World) {
    let operator = world.client.operator("ada");
    world.client.enqueue_many((0..450).map(|_| task("old").tag("old"))).expect("accepted");
    let kept = world.enqueue(task("kept"));
    assert_eq!(operator.cancel_matching(&JobFilter::new().tag("old")).expect("done"), 450);
    assert_eq!(operator.cancel_matching(&JobFilter::new().tag("old")).expect("done"), 0);
    assert_eq!(world.job(kept).state, JobState::Scheduled);

    let broken = Registry::new().handle(|_, job: Task| match job.0.as_str() {
        "kept" => Ok(()),
        _ => Err(backwave::JobError::discard("broken")),
    });
    let group = world.spawn(broken, quick("broken"));
    let failed = (0..3).map(|_| task("fails").queue("default"));
    let failed = world.client.enqueue_many(failed).expect("accepted");
    for job in &failed {
        assert_eq!(world.ended(job.id).state, JobState::DeadLettered);
    }
    group.shutdown();
    let dead = JobFilter::new().state(JobState::DeadLettered);
    let found = world.client.monitor().find_newest(dead.clone());
    let found: Vec<_> = found.map(|job| job.expect("read").id).collect();
    assert_eq!(found, failed.iter().rev().map(|job| job.id).collect::<Vec<_>>());
    assert_eq!(operator.requeue_matching(&dead).expect("done"), 3);
    let witness = Arc::new(Witness::default());
    let _group = world.spawn(witness.registry(), quick("mended"));
    for job in &failed {
        assert_eq!(facts(&world.ended(job.id)), (JobState::Succeeded, 2, 0));
    }
}

fn a_queue_name_that_cannot_be_is_refused_with_its_fault(world: &World) {
    let operator = world.client.operator("ada");
    for name in ["", " ", "a\u{7}b", &"q".repeat(129)] {
        let refused = operator.pause(name).expect_err("no such queue can be");
        assert!(matches!(refused, Error::QueueName { .. }), "{name:?}: {refused}");
    }
    assert_eq!(world.client.monitor().queues().expect("read"), []);
}

fn the_fleet_tells_of_itself_and_a_clean_stop_takes_the_note_away(world: &World) {
    let monitor = world.client.monitor();
    let group = world.spawn(
        Registry::new().handle(|_, _: Task| Ok(())),
        quick("noted").pumps(2).dispatch(DispatchPolicy::strict(["mail", "post"])),
    );
    eventually("both pumps are noted", || monitor.pumps().expect("read").len() == 2);
    for pump in monitor.pumps().expect("read") {
        let note = &pump.announcement;
        assert_eq!((note.group.as_str(), note.pid), ("noted", std::process::id()));
        assert_eq!(
            (note.queues.clone(), note.wire_names.clone()),
            (vec!["mail".to_owned(), "post".to_owned()], vec!["task".to_owned()],)
        );
        assert_eq!(note.version, env!("CARGO_PKG_VERSION"));
        assert!(!note.host.is_empty());
        assert_eq!((&note.halt, pump.halted_at), (&None, None));
        assert!(pump.started_at <= pump.last_seen);
    }
    assert!(matches!(group.shutdown().halts.as_slice(), []));
    assert_eq!(monitor.pumps().expect("read"), []);
}

fn what_has_been_kept_long_enough_is_purged_and_the_rest_stays(world: &World) {
    let minute = Duration::from_secs(60);
    let retention = Retention::default().succeeded(minute).dead_lettered(None);
    let registry = || {
        Registry::new().handle(|_, job: Task| match job.0.as_str() {
            "fails" => Err(backwave::JobError::discard("broken")),
            _ => Ok(()),
        })
    };
    let group = world.spawn(registry(), quick("keeping").retention(retention));
    let ended = world.client.enqueue_many((0..1_200).map(|_| task("ends"))).expect("accepted");
    let failed = world.enqueue(task("fails"));
    let parent = task("ends");
    let child = task("waits long").parent(parent.job_id()).delay(minute * 60);
    let (parent_id, child_id) = (parent.job_id(), child.job_id());
    world.client.enqueue_many([parent, child]).expect("accepted");
    world.ended(failed);
    world.ended(parent_id);
    for job in &ended {
        world.ended(job.id);
    }
    // Leases lapse as well when the clock is put forward: nothing runs any more.
    assert!(group.wait_until_idle(PATIENCE));
    assert_eq!(world.count(JobState::Succeeded), 1_201);
    world.clock.skip(minute * 2);
    eventually("what has ended is purged", || world.count(JobState::Succeeded) == 1);
    assert_eq!(world.job(failed).state, JobState::DeadLettered);
    // Its child may ask for it.
    assert_eq!(world.job(parent_id).state, JobState::Succeeded);
    assert_eq!(world.job(child_id).state, JobState::Scheduled);
    assert!(world.health.is_healthy());
}

fn a_job_that_does_not_run_is_explained(world: &World) {
    let monitor = world.client.monitor();
    let why = |id| {
        let explained = monitor.explain(id).expect("read");
        (explained.to_string(), explained.reasons)
    };
    let waiting = world.enqueue(task("waits"));
    let nobody = Reason::NobodyServesQueue { queue: "default".to_owned() };
    assert_eq!(why(waiting).1, [nobody]);
    let child = world.enqueue(task("after").parent(waiting));
    assert_eq!(why(child).1, [Reason::AwaitsParents { parents: vec![waiting] }]);
    let later = world.enqueue(task("later").delay(Duration::from_secs(3600)));
    assert!(matches!(why(later).1[0], Reason::NotDue { failures: 0, .. }));

    let gate = Gate::new();
    let held = {
        let gate = gate.clone();
        Registry::new().handle(move |_, _: Task| {
            gate.pass("it runs");
            Ok(())
        })
    };
    let group = world.spawn(held, quick("explained").workers(1).prefetch(Prefetch::Off));
    gate.heard();
    eventually("the pump is noted", || !monitor.pumps().expect("read").is_empty());
    let (text, reasons) = why(waiting);
    let Reason::Running { group: Some(name), .. } = &reasons[0] else { panic!("{text}") };
    assert_eq!(name, "explained");
    let behind = world.enqueue(task("behind"));
    assert!(matches!(why(behind).1[..], [Reason::Waiting { scheduled: 2 }]), "{}", why(behind).0);
    let foreign = world.enqueue(NewJob::raw("foreign", "{}"));
    assert_eq!(why(foreign).1, [Reason::NobodyHandles { wire_name: "foreign".to_owned() }]);
    (0..3).for_each(|_| gate.open());
    world.ended(waiting);
    assert!(why(waiting).0.ends_with(&format!(
        "is Succeeded: it has ended at {}",
        world.job(waiting).finished_at.expect("it has ended")
    )));
    assert!(matches!(monitor.explain(backwave::JobId::new()), Err(Error::NotFound { .. })));
    drop(group);
}

/// The note of a halt is for people on other nodes: it stays, and says why.
#[cfg(feature = "testing")]
#[test]
fn a_halted_pump_leaves_a_note_that_outlives_its_process() {
    use backwave::Stopped;
    use backwave::invariant::{InvariantTrigger, halt};
    let world = support::world::memory();
    let store = backwave::testing::Intercept::new(Arc::clone(&world.store));
    let group = world.spawn_on(
        store.clone(),
        Registry::new().handle(|_, _: Task| Ok(())),
        quick("halting"),
    );
    let monitor = world.client.monitor();
    eventually("the pump is noted", || monitor.pumps().expect("read").len() == 1);
    store
        .on_claim(|_, _| Err(halt(InvariantTrigger::ClaimBatchOverrun, "made by the test").into()));
    assert!(matches!(group.wait(), Stopped::Halted(_)));
    eventually("the halt is noted", || monitor.pumps().expect("read")[0].halted_at.is_some());
    let note = monitor.pumps().expect("read").remove(0).announcement.halt.expect("it says why");
    assert_eq!(note.trigger.as_deref(), Some("ClaimBatchOverrun"));
    assert_eq!(note.message, "made by the test");
    assert!(note.type_name.ends_with("InvariantViolation"), "{note:?}");
}
