//! The counters through the `metrics` facade: their names, their tags, and a recorder that panics.
//!
//! The recorder is the process's, so everything is one test.

mod support;

use backwave::invariant::{InvariantAction, InvariantTrigger, halt, halts, violations};
use backwave::store::{RowReport, StaleReason, StoreError};
use backwave::testing::{Intercept, StoreCall};
use backwave::{Health, JobState, Registry, Stopped};
use metrics::{
    Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use support::world::{Task, World, eventually, facts, memory, quick, task};

static COUNTS: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());
/// Read by the recorder while the crate counts: nothing that the crate holds then keeps a reader waiting.
static HEALTH: OnceLock<Arc<Health>> = OnceLock::new();
static HOSTILE: AtomicBool = AtomicBool::new(false);

struct Recording;

struct Counting(String);

impl CounterFn for Counting {
    fn increment(&self, value: u64) {
        if let Some(health) = HEALTH.get() {
            let is_red = !health.is_healthy();
            let is_halt = self.0.starts_with("backwave.group.halts");
            assert!(is_red || !is_halt, "a halt is shown before it is counted");
        }
        assert!(!HOSTILE.load(Ordering::SeqCst), "a counter of the host's");
        *COUNTS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(self.0.clone())
            .or_default() += value;
    }

    fn absolute(&self, _: u64) {
        panic!("nothing is set");
    }
}

impl Recorder for Recording {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let mut tags: Vec<_> =
            key.labels().map(|tag| format!("{}={}", tag.key(), tag.value())).collect();
        tags.sort();
        let name = format!("{} {}", key.name(), tags.join(" "));
        Counter::from_arc(Arc::new(Counting(name.trim_end().to_owned())))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

fn counts() -> BTreeMap<String, u64> {
    std::mem::take(&mut *COUNTS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A group that halts as `lie` says.
fn halted(name: &str, lie: impl Fn() -> StoreError + Send + Sync + 'static) -> World {
    let world = memory();
    HEALTH.get_or_init(|| Arc::clone(&world.health));
    let store = Intercept::new(Arc::clone(&world.store));
    store.on_every_call(move |call| if call == StoreCall::Claim { Err(lie()) } else { Ok(()) });
    let group = world.spawn_on(store, Registry::new().handle(|_, _: Task| Ok(())), quick(name));
    eventually("it halts", || world.health.halted_groups().contains_key(name));
    assert!(matches!(group.wait(), Stopped::Halted(_)));
    world
}

fn overrun() -> StoreError {
    halt(InvariantTrigger::ClaimBatchOverrun, "made by the test").into()
}

#[test]
fn violations_and_halts_are_counted_under_their_names_and_a_recorder_that_panics_is_contained() {
    metrics::set_global_recorder(Recording).expect("there is no other recorder");

    halted("named", overrun);
    let halted_on = "backwave.group.halts backwave.invariant.trigger";
    let violated = "backwave.invariant.violations backwave.invariant.action";
    let named = [
        (format!("{halted_on}=ClaimBatchOverrun"), 1),
        (format!("{violated}=Halt backwave.invariant.trigger=ClaimBatchOverrun"), 1),
    ];
    assert_eq!(counts(), BTreeMap::from(named));

    halted("unclassified", || StoreError::new(std::fmt::Error));
    assert_eq!(counts(), BTreeMap::from([(format!("{halted_on}=unclassified"), 1)]));

    degraded();
    let tripped = format!("{violated}=Degrade backwave.invariant.trigger=OutcomeFenceRejected");
    assert_eq!(counts(), BTreeMap::from([(tripped, 1)]));

    // What the host's recorder does is its own affair: the halt is whole, and counted in process.
    let trigger = InvariantTrigger::ClaimBatchOverrun;
    let before = (violations(trigger, InvariantAction::Halt), halts(Some(trigger)));
    HOSTILE.store(true, Ordering::SeqCst);
    let world = halted("hostile", overrun);
    assert_eq!(world.health.halted_groups()["hostile"].trigger, Some(trigger));
    degraded();
    let after = (violations(trigger, InvariantAction::Halt), halts(Some(trigger)));
    assert_eq!(after, (before.0 + 1, before.1 + 1));
    assert_eq!(counts(), BTreeMap::new());
}

/// A report that is refused without a reason, under a lease that was believed live for long.
fn degraded() {
    let world = memory();
    let store = Intercept::new(Arc::clone(&world.store));
    store.on_report(|session, rows| {
        let mut reported = session.report(&[])?;
        reported.rows = rows.iter().map(|_| RowReport::Stale(StaleReason::Unknown)).collect();
        Ok(reported)
    });
    let options = quick("degraded").lease(Duration::from_secs(30));
    let registry = Registry::new().handle(|_, _: Task| Ok(()));
    let group = world.spawn_on(store.clone(), registry, options);
    let id = world.enqueue(task("refused"));
    // Whichever call the report travels by.
    let reports = || store.calls(StoreCall::Report) + store.calls(StoreCall::Exchange);
    eventually("it is refused", || reports() > 0);
    assert!(group.wait_until_idle(support::world::PATIENCE));
    assert_eq!(facts(&world.job(id)), (JobState::Leased, 1, 0));
    assert!(world.health.is_healthy());
    assert_eq!(group.shutdown().halts, []);
}
