//! The same with observers: hub, observer pump and callback threads.

use super::scenes::add;
use super::stage::{FEW, MANY, Scene, Time, Turns};
use crate::observer::{
    CallbackResult, ObserverOptions, ObserverPump, TransitionFilter, spawn_observers_on,
};
use crate::store::{Observation, Store};
use crate::{MemoryStore, Observers, RetryPolicy};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn start(
    turns: &Arc<Turns>,
    store: &MemoryStore,
    options: ObserverOptions,
    callback: impl Fn(&Observation) -> CallbackResult + Send + Sync + 'static,
) -> ObserverPump {
    let observers = Observers::new().on_with("scene", TransitionFilter::new(), options, callback);
    let pump =
        spawn_observers_on(turns.stage(), Arc::new(store.clone()), observers).expect("it starts");
    turns.wait(|| pump.reports()[0].is_holding);
    pump
}

/// Adds a job sooner or later, and says so.
fn birth(turns: &Turns, store: &MemoryStore) {
    turns.dawdle(20);
    add(store, 1);
    store.hub().transitions_written();
}

fn stop(turns: &Turns, pump: &ObserverPump) {
    pump.begin_shutdown();
    turns.wait(|| pump.reports()[0].end.is_some());
}

pub(super) const WATCH: Scene = Scene { schedules: MANY, time: Time::StandsStill, act: watch };

fn watch(turns: &Arc<Turns>) {
    let store = turns.store();
    let told = Arc::new(Mutex::new(Vec::new()));
    let (heard, within) = (Arc::clone(&told), Arc::clone(turns));
    let pump = start(turns, &store, ObserverOptions::new(), move |what| {
        heard.lock().push(what.position());
        within.point();
        Ok(())
    });
    for _ in 0..3 {
        birth(turns, &store);
    }
    turns.wait(|| told.lock().len() >= 3);
    stop(turns, &pump);
    let told = told.lock();
    assert!(told.len() == 3 && told.is_sorted(), "{told:?}");
}

pub(super) const CALLBACK_PANICS: Scene =
    Scene { schedules: FEW, time: Time::StandsStill, act: callback_panics };

fn callback_panics(turns: &Arc<Turns>) {
    let store = turns.store();
    let pump = start(turns, &store, ObserverOptions::new(), |_| {
        std::panic::resume_unwind(Box::new("a bug of the host's"))
    });
    birth(turns, &store);
    turns.wait(|| pump.reports()[0].failed == 1);
    stop(turns, &pump);
}

pub(super) const LATE_CALLBACKS: Scene =
    Scene { schedules: FEW, time: Time::Passes, act: late_callbacks };

fn late_callbacks(turns: &Arc<Turns>) {
    let store = turns.store();
    let called = AtomicUsize::new(0);
    let within_now = Arc::new(AtomicUsize::new(0));
    let timeout = Duration::from_secs(2);
    let retry = RetryPolicy::new(10).fixed(Duration::from_secs(1));
    let options = ObserverOptions::new().timeout(timeout).retry(retry);
    let (within, count) = (Arc::clone(turns), Arc::clone(&within_now));
    let pump = start(turns, &store, options, move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        // More than may be left behind at a time come back late, and the next one in time.
        if called.fetch_add(1, Ordering::SeqCst) < 5 {
            within.wait_for(timeout * 2);
        }
        count.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    });
    birth(turns, &store);
    // One that comes back late may still be heard before it is overdue.
    turns.wait(|| pump.reports()[0].delivered >= 1);
    stop(turns, &pump);
    // Those that were left behind need the clock to come back.
    turns.wait(|| within_now.load(Ordering::SeqCst) == 0);
}

pub(super) const OWN_OBSERVER: Scene =
    Scene { schedules: FEW, time: Time::StandsStill, act: own_observer };

fn own_observer(turns: &Arc<Turns>) {
    let store = turns.store();
    let held: Arc<Mutex<Option<ObserverPump>>> = Arc::default();
    let dropped = Arc::new(AtomicUsize::new(0));
    let (handle, count, within) = (Arc::clone(&held), Arc::clone(&dropped), Arc::clone(turns));
    let pump = start(turns, &store, ObserverOptions::new(), move |_| {
        within.wait(|| handle.lock().is_some());
        let own = handle.lock().take();
        drop(own);
        count.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    birth(turns, &store);
    *held.lock() = Some(pump);
    turns.wait(|| dropped.load(Ordering::SeqCst) == 1);
}
