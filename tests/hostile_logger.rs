//! A logger that panics at every line and calls the crate back, the health of that very group included:
//! nothing of it reaches a group.

mod support;

use backwave::invariant::{InvariantTrigger, halt};
use backwave::testing::Intercept;
use backwave::{Client, Health, HealthStatus, JobState, MemoryStore, Registry, Stopped};
use log::{Log, Metadata, Record};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use support::world::{PATIENCE, Task, World, facts, quick, task};

struct Hostile;

static LINES: AtomicUsize = AtomicUsize::new(0);
static HEALTH: OnceLock<Arc<Health>> = OnceLock::new();
/// What the health said at each line of a halt.
static SHOWN: Mutex<Vec<HealthStatus>> = Mutex::new(Vec::new());
static CLIENT: LazyLock<Client> = LazyLock::new(|| Client::new(MemoryStore::new()));

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

impl Log for Hostile {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == backwave::telemetry::LOG_TARGET
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) || INSIDE.replace(true) {
            return;
        }
        LINES.fetch_add(1, Ordering::SeqCst);
        let asked = CLIENT.monitor().counts();
        if let Some(health) = HEALTH.get() {
            let status = health.check().status;
            if record.level() == log::Level::Error && !health.is_healthy() {
                SHOWN.lock().unwrap_or_else(PoisonError::into_inner).push(status);
            }
        }
        INSIDE.set(false);
        panic!("the logger has no room left, {asked:?}");
    }

    fn flush(&self) {}
}

#[test]
fn a_logger_that_panics_and_calls_back_disturbs_nothing() {
    // Its panics are many, and expected.
    std::panic::set_hook(Box::new(|_| {}));
    log::set_logger(&Hostile).expect("there is no other logger");
    log::set_max_level(log::LevelFilter::Trace);

    let world: World = support::world::memory();
    assert!(HEALTH.set(Arc::clone(&world.health)).is_ok());
    let registry = Registry::new().handle(|ctx, Task(how)| match (how.as_str(), ctx.attempt()) {
        ("fails once", 1) => Err("it failed".into()),
        _ => Ok(()),
    });
    let store = Intercept::new(Arc::clone(&world.store));
    let group = world.spawn_on(store.clone(), registry, quick("hostile").pumps(2));
    let good = world.enqueue(task("good"));
    let fails = world.enqueue(task("fails once"));
    let bad = world.enqueue(backwave::NewJob::raw("task", "{}"));
    assert_eq!(facts(&world.ended(good)), (JobState::Succeeded, 1, 0));
    assert_eq!(facts(&world.ended(fails)), (JobState::Succeeded, 2, 1));
    assert_eq!(facts(&world.ended(bad)), (JobState::Quarantined, 1, 0));
    assert!(group.wait_until_idle(PATIENCE));
    assert_eq!(world.health.check().status, HealthStatus::Healthy);
    assert!(LINES.load(Ordering::SeqCst) > 10, "it was asked");

    store.on_claim(|_, _| Err(halt(InvariantTrigger::GuaranteedRowAbsent, "a lie").into()));
    let Stopped::Halted(halt) = group.wait() else { panic!("no halt") };
    assert_eq!(halt.trigger, Some(InvariantTrigger::GuaranteedRowAbsent));
    assert!(!world.health.is_healthy());
    // Two pumps halted, each shown before its line: the later line finds both.
    let shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert!(matches!(shown[..], [_] | [_, _]), "{shown:?}");
    assert!(shown.iter().all(|status| *status == HealthStatus::Unhealthy), "{shown:?}");
}
