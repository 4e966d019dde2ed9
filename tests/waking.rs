//! An idle group that looks for work once an hour still begins at once what it can know of: nothing in
//! here waits for a poll.

mod support;

use backwave::{GroupOptions, JobError, JobState, Registry, RetryPolicy};
use std::time::{Duration, Instant};
use support::gate::Gate;
use support::world::{PATIENCE, Task, World, facts, quick, task};

on_every_store!(
    an_enqueue_wakes_an_idle_group,
    a_job_that_is_due_later_wakes_it_then,
    a_retry_and_a_snooze_wake_it_when_they_are_due,
    a_requeue_wakes_it,
    a_job_that_a_group_hands_back_at_its_stop_is_found_by_its_sibling,
    jobs_beyond_the_free_workers_follow_at_once,
    a_known_due_time_wakes_it_whoever_enqueued_it,
    waiting_for_a_job_and_for_idleness_end_at_once,
);

const HOUR: Duration = Duration::from_secs(3600);

/// Options of a group that polls, and looks for dead leases, once an hour.
fn hourly(name: &str) -> GroupOptions {
    quick(name).poll_interval(HOUR, HOUR).maintenance_interval(HOUR)
}

fn finish() -> Registry {
    Registry::new().handle(|_, _: Task| Ok(()))
}

fn an_enqueue_wakes_an_idle_group(world: &World) {
    let group = world.spawn(finish(), hourly("woken"));
    for _ in 0..20 {
        assert!(group.wait_until_idle(PATIENCE));
        let id = world.enqueue(task("now"));
        assert_eq!(facts(&world.ended(id)), (JobState::Succeeded, 1, 0));
    }
}

fn a_job_that_is_due_later_wakes_it_then(world: &World) {
    let _group = world.spawn(finish(), hourly("later"));
    let late = world.enqueue(task("late").delay(Duration::from_millis(120)));
    let early = world.enqueue(task("early").delay(Duration::from_millis(40)));
    for record in [world.ended(early), world.ended(late)] {
        assert_eq!(facts(&record), (JobState::Succeeded, 1, 0));
        assert!(record.finished_at.expect("ended") >= record.due_at);
    }
}

fn a_retry_and_a_snooze_wake_it_when_they_are_due(world: &World) {
    let registry = Registry::new().handle(|ctx, _: Task| match ctx.attempt() {
        1 => Err("fails once".into()),
        2 => Err(JobError::snooze(Duration::from_millis(30))),
        3 => Err(JobError::retry_in(Duration::from_millis(30), "fails again")),
        _ => Ok(()),
    });
    let policy = RetryPolicy::new(5).fixed(Duration::from_millis(30));
    let _group = world.spawn(registry, hourly("again").retry(policy));
    assert_eq!(facts(&world.ended(world.enqueue(task("x")))), (JobState::Succeeded, 4, 2));
}

fn a_requeue_wakes_it(world: &World) {
    let registry = Registry::new().handle(|ctx, _: Task| match ctx.attempt() {
        1 => Err(JobError::discard("the first time")),
        _ => Ok(()),
    });
    let group = world.spawn(registry, hourly("requeued"));
    let id = world.enqueue(task("x"));
    assert_eq!(world.ended(id).state, JobState::DeadLettered);
    assert!(group.wait_until_idle(PATIENCE));
    world.client.operator("ada").requeue(id).expect("it has ended");
    assert_eq!(facts(&world.ended(id)), (JobState::Succeeded, 2, 0));
}

fn a_job_that_a_group_hands_back_at_its_stop_is_found_by_its_sibling(world: &World) {
    let gate = Gate::new();
    let registry =
        Registry::new().handle_with(&gate.clone().into(), |gate: &Gate, ctx, _: Task| {
            if ctx.attempt() == 1 {
                gate.say("begun");
                let stopping = ctx.stopping().recv_timeout(PATIENCE);
                assert!(stopping.is_err());
                return Err(ctx.give_way());
            }
            Ok(())
        });
    let first = world.spawn(registry.clone(), hourly("first"));
    let id = world.enqueue(task("long"));
    assert_eq!(gate.heard(), "begun");
    let second = world.spawn(registry, hourly("second"));
    assert!(second.wait_until_idle(PATIENCE));
    assert_eq!(first.shutdown().handed_back, 1);
    assert_eq!(facts(&world.ended(id)), (JobState::Succeeded, 2, 0));
}

fn jobs_beyond_the_free_workers_follow_at_once(world: &World) {
    let group = world.spawn(finish(), hourly("many").workers(1).pumps(2));
    for _ in 0..3 {
        world.client.enqueue_many((0..100).map(|_| task("one of many"))).expect("accepted");
        assert!(group.wait_until_idle(PATIENCE));
    }
    assert_eq!(world.count(JobState::Succeeded), 300);
}

fn a_known_due_time_wakes_it_whoever_enqueued_it(world: &World) {
    // Enqueued before there is a group that could have heard of it.
    let due_soon = world.enqueue(task("soon").delay(Duration::from_millis(150)));
    let _group = world.spawn(finish(), hourly("known"));
    assert_eq!(facts(&world.ended(due_soon)), (JobState::Succeeded, 1, 0));
}

fn waiting_for_a_job_and_for_idleness_end_at_once(world: &World) {
    let group = world.spawn(finish(), hourly("waits"));
    let began = Instant::now();
    for _ in 0..50 {
        let id = world.enqueue(task("x"));
        assert_eq!(world.ended(id).state, JobState::Succeeded);
    }
    assert!(group.wait_until_idle(PATIENCE));
    // Where each waited for half a second's poll it would be 25 s.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(group.shutdown().handed_back, 0);
}

#[cfg(feature = "sqlite")]
#[test]
fn a_client_on_the_same_file_opened_by_another_path_wakes_it_too() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("jobs.db");
    let store = backwave::SqliteStore::builder(&file).busy_timeout(Duration::from_secs(1));
    let store = store.open().expect("the file opens");
    let group =
        backwave::spawn_group(store, finish(), hourly("by path"), std::sync::Arc::default());
    let group = group.expect("the group starts");
    let detour = folder.path().join(".").join("jobs.db");
    let client =
        backwave::Client::new(backwave::SqliteStore::open(detour).expect("the file opens"));
    for _ in 0..3 {
        assert!(group.wait_until_idle(PATIENCE));
        let id = client.enqueue(task("x")).expect("accepted").id;
        let record = client.wait(id, PATIENCE).expect("it ends");
        assert_eq!(facts(&record), (JobState::Succeeded, 1, 0));
    }
}
