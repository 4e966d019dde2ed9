//! What an adapter teaches about its faults: it may call one transient that nothing flags, and nothing else.

mod support;

use backwave::invariant::{InvariantTrigger, halt};
use backwave::store::{Bounds, Hub, Session, Store, StoreError, StoreFaultClassifier};
use backwave::testing::{Intercept, StoreCall};
use backwave::{HaltState, HealthStatus, JobState, Registry};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::log as lines;
use support::world::{Task, World, eventually, facts, memory, quick, task};

/// A fault whose message says what the classifier is to think of it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Busy(&'static str);

struct Taught {
    store: Arc<dyn Store>,
    asked: Arc<AtomicUsize>,
}

impl StoreFaultClassifier for Taught {
    fn is_transient_fault(&self, error: &StoreError) -> bool {
        self.asked.fetch_add(1, Ordering::SeqCst);
        match error.downcast_ref::<Busy>() {
            Some(Busy("panics")) => panic!("the classifier fell over"),
            Some(Busy(says)) => *says == "locked",
            // Of what is none of its own it says what it must not.
            None => true,
        }
    }
}

impl Store for Taught {
    fn open_session(&self) -> Result<Box<dyn Session>, StoreError> {
        self.store.open_session()
    }

    fn hub(&self) -> &Hub {
        self.store.hub()
    }

    fn bounds(&self) -> &Bounds {
        self.store.bounds()
    }

    fn fault_classifier(&self) -> Option<&dyn StoreFaultClassifier> {
        Some(self)
    }
}

/// A world, a view of its store that is taught, and how often the classifier was asked.
fn taught() -> (World, Intercept, Arc<AtomicUsize>) {
    lines::record();
    let (world, asked) = (memory(), Arc::new(AtomicUsize::new(0)));
    let store = Taught { store: Arc::clone(&world.store), asked: Arc::clone(&asked) };
    let store = Intercept::new(store);
    (world, store, asked)
}

fn registry() -> Registry {
    Registry::new().handle(|_, _: Task| Ok(()))
}

fn fails_claims(store: &Intercept, fault: impl Fn() -> StoreError + Send + Sync + 'static) {
    store.on_every_call(move |call| match call {
        StoreCall::Claim => Err(fault()),
        _ => Ok(()),
    });
}

/// The halt of a group whose claims fail so; how often the classifier was asked about it.
fn halts(name: &str, fault: impl Fn() -> StoreError + Send + Sync + 'static) -> (HaltState, usize) {
    let (world, store, asked) = taught();
    fails_claims(&store, fault);
    let group = world.spawn_on(store.clone(), registry(), quick(name));
    eventually("it halts", || !world.health.halted_groups().is_empty());
    assert_eq!(store.calls(StoreCall::Claim), 1, "{name}: nothing is tried again");
    assert_eq!(lines::lines(name, 1301).len(), 0, "{name}");
    drop(group);
    let halt = world.health.halted_groups().remove(name).expect("it is halted");
    (halt, asked.load(Ordering::SeqCst))
}

#[test]
fn a_fault_that_the_adapter_knows_to_pass_degrades_and_is_tried_again() {
    let (world, store, _) = taught();
    fails_claims(&store, || StoreError::new(Busy("locked")).with_code("5"));
    let group = world.spawn_on(store.clone(), registry(), quick("locked"));
    let id = world.enqueue(task("waits"));
    let status = || world.health.check().status;
    eventually("it degrades", || status() == HealthStatus::Degraded);
    eventually("it is tried again", || store.calls(StoreCall::Claim) > 2);
    assert!(world.health.is_healthy());
    store.clear();
    assert_eq!(facts(&world.ended(id)), (JobState::Succeeded, 1, 0));
    eventually("it recovers", || status() == HealthStatus::Healthy);
    assert_eq!(lines::lines("locked", 2001).len(), 0);
    assert_eq!(group.shutdown().halts, []);
}

#[test]
fn a_fault_that_the_adapter_does_not_know_halts() {
    let (halt, asked) = halts("unknown", || StoreError::new(Busy("corrupt")));
    assert_eq!(halt.type_name, std::any::type_name::<Busy>());
    assert_eq!((halt.trigger, asked), (None, 1));
}

#[test]
fn a_violation_halts_whatever_the_adapter_says_of_it() {
    let trigger = InvariantTrigger::ClaimedJobTerminal;
    let (halt, _) = halts("violation", move || halt(trigger, "made by the test").into());
    assert_eq!(halt.trigger, Some(trigger));
}

#[test]
fn a_classifier_that_falls_over_proves_nothing_and_the_group_halts() {
    let (halt, asked) = halts("falls over", || StoreError::new(Busy("panics")));
    assert_eq!((halt.trigger, asked), (None, 1));
}

#[test]
fn a_fault_that_is_flagged_needs_no_adapter_to_be_known() {
    let (world, store, asked) = taught();
    let calls = AtomicUsize::new(0);
    store.on_every_call(move |call| match call {
        StoreCall::Claim if calls.fetch_add(1, Ordering::SeqCst) == 0 => {
            Err(StoreError::timeout(Busy("too slow")))
        }
        _ => Ok(()),
    });
    let group = world.spawn_on(store, registry(), quick("flagged"));
    let id = world.enqueue(task("served"));
    assert_eq!(facts(&world.ended(id)), (JobState::Succeeded, 1, 0));
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    assert_eq!(group.shutdown().halts, []);
}
