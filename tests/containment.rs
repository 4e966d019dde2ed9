//! Code of the host's that panics where a group calls it: what it may take along is told here, and what not.

mod support;

use backwave::store::{Bounds, Hub, Session, Store, StoreError};
use backwave::{
    HealthStatus, Job, JobContext, JobError, JobState, NewJob, Registry, RetryPolicy, Stopped,
};
use serde::{Deserialize, Deserializer};
use std::panic::panic_any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use support::world::{PATIENCE, Task, World, eventually, facts, memory, quick, task};

/// Its drop panics with a value whose drop panics.
struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic_any(Self);
    }
}

/// Reads itself as its payload says: with a panic, or into a value whose drop panics.
struct Bomb(#[expect(dead_code, reason = "it is there to be dropped")] Option<PanicsOnDrop>);

impl<'de> Deserialize<'de> for Bomb {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "panics as it is read" => panic_any(PanicsOnDrop),
            "panics as it is dropped" => Ok(Self(Some(PanicsOnDrop))),
            _ => Ok(Self(None)),
        }
    }
}

impl serde::Serialize for Bomb {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("harmless")
    }
}

impl Job for Bomb {
    const WIRE_NAME: &'static str = "bomb";
}

fn bomb(how: &str) -> NewJob {
    NewJob::raw("bomb", format!("{how:?}"))
}

/// Each job is ended as it deserves, and its neighbours are served by the same worker.
fn served(world: &World, registry: Registry, jobs: &[(NewJob, JobState)]) {
    let name = world.name("served");
    let options = quick(&name).workers(1).retry(RetryPolicy::never());
    let group = world.spawn(registry, options);
    for (job, state) in jobs {
        let id = world.enqueue(job.clone());
        assert_eq!(world.ended(id).state, *state, "{job:?}");
        let neighbour = world.enqueue(bomb("harmless"));
        assert_eq!(facts(&world.ended(neighbour)).1, 1);
    }
    assert!(group.wait_until_idle(PATIENCE));
    assert_eq!(world.health.check().status, HealthStatus::Healthy);
    let report = group.shutdown();
    assert_eq!((report.halts.len(), report.unanswered), (0, 0));
}

#[test]
fn a_payload_that_panics_as_it_is_read_is_quarantined() {
    let registry = Registry::new().handle(|_, _: Bomb| Ok(()));
    let jobs = [(bomb("panics as it is read"), JobState::Quarantined)];
    served(&memory(), registry, &jobs);
}

#[test]
fn a_job_that_panics_as_it_is_dropped_costs_its_own_attempt_at_most() {
    // The handler drops it.
    let registry = Registry::new().handle(|_, _: Bomb| Ok(()));
    served(&memory(), registry, &[(bomb("panics as it is dropped"), JobState::DeadLettered)]);
    // Nobody but the group drops it, since a wrapper does not call the handler: the verdict stands.
    let registry = Registry::new().handle(|_, _: Bomb| Ok(())).around(|_, _| Ok(()));
    served(&memory(), registry, &[(bomb("panics as it is dropped"), JobState::Succeeded)]);
}

#[test]
fn a_wrapper_that_panics_costs_the_attempt_alone() {
    let registry = Registry::new().handle(|_, _: Bomb| Ok(())).handle(|_, _: Task| Ok(()));
    let registry = registry.around(|ctx: &JobContext, next| match ctx.wire_name() {
        "task" => panic_any(PanicsOnDrop),
        _ => next(),
    });
    served(&memory(), registry, &[(task("wrapped"), JobState::DeadLettered)]);
}

#[test]
fn a_wrapper_that_panics_after_the_handler_returned_costs_the_attempt_alone() {
    let registry = Registry::new().handle(|_, _: Bomb| Ok(())).handle(|_, _: Task| Ok(()));
    let registry = registry.around(|ctx: &JobContext, next| {
        let result = next();
        assert_ne!(ctx.wire_name(), "task", "after {result:?}");
        result
    });
    served(&memory(), registry, &[(task("wrapped"), JobState::DeadLettered)]);
}

#[derive(Debug)]
struct Unspeakable(Loud);

#[derive(Debug)]
struct Loud;

impl Drop for Loud {
    fn drop(&mut self) {
        panic_any(PanicsOnDrop);
    }
}

impl std::fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic_any(PanicsOnDrop)
    }
}

impl std::error::Error for Unspeakable {}

#[test]
fn an_error_that_panics_when_shown_and_when_dropped_costs_the_attempt_alone() {
    let registry = Registry::new()
        .handle(|_, _: Bomb| Ok(()))
        .handle(|_, _: Task| Err::<(), JobError>(Unspeakable(Loud).into()));
    served(&memory(), registry, &[(task("errs"), JobState::DeadLettered)]);
}

/// A store whose bounds, which a pump asks for outside of every call, panic on demand.
struct Brittle {
    store: Arc<dyn Store>,
    broken: Arc<AtomicBool>,
}

impl Store for Brittle {
    fn open_session(&self) -> Result<Box<dyn Session>, StoreError> {
        self.store.open_session()
    }

    fn hub(&self) -> &Hub {
        self.store.hub()
    }

    fn bounds(&self) -> &Bounds {
        assert!(!self.broken.load(Ordering::SeqCst), "the pump itself fell over");
        self.store.bounds()
    }
}

#[test]
fn a_pump_that_panics_is_a_halt_like_any_other() {
    let world = memory();
    let broken = Arc::new(AtomicBool::new(false));
    let store = Brittle { store: Arc::clone(&world.store), broken: Arc::clone(&broken) };
    let registry = || Registry::new().handle(|_, _: Task| Ok(()));
    let group = world.spawn_on(store, registry(), quick("falls over"));
    let served = world.enqueue(task("before"));
    assert_eq!(facts(&world.ended(served)), (JobState::Succeeded, 1, 0));

    broken.store(true, Ordering::SeqCst);
    let id = world.enqueue(task("met by it"));
    eventually("the group halts", || world.health.halted_groups().contains_key("falls over"));
    let Stopped::Halted(halt) = group.wait() else { panic!("no halt") };
    assert_eq!((halt.type_name.as_str(), halt.trigger), ("panic", None));
    assert_eq!(halt.message, "the pump itself fell over");
    assert_eq!(facts(&world.job(id)), (JobState::Leased, 1, 0));
    let _heir = world.spawn(registry(), quick("falls over, heir"));
    world.clock.skip(std::time::Duration::from_secs(6));
    assert_eq!(facts(&world.ended(id)), (JobState::Succeeded, 2, 1));
}
