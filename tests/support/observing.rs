//! What tests of observers share: observers that look all the time, and an ear for what they are told.

use super::world::{PATIENCE, World, eventually};
use backwave::observer::{CallbackResult, Observation, ObserverOptions, TransitionFilter};
use backwave::store::{ObserverRecord, Store};
use backwave::{JobId, JobState, ObserverPump, Observers, RetryPolicy, spawn_observers};
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::sync::Arc;
use std::time::Duration;

/// Options of an observer that looks all the time, with the shortest lease and at most three failures per
/// delivery, 1 ms apart.
pub fn quick_observer() -> ObserverOptions {
    ObserverOptions::new()
        .lease(Duration::from_secs(5))
        .poll_interval(Duration::from_millis(10))
        .retry(RetryPolicy::new(3).fixed(Duration::from_millis(1)).jitter_percent(0))
}

/// Births of jobs.
pub fn births() -> TransitionFilter {
    TransitionFilter::new().state(JobState::Scheduled)
}

/// Keeps what it is told; clones are the same ear.
#[derive(Clone)]
pub struct Ear(Sender<Observation>, Receiver<Observation>);

impl Ear {
    pub fn new() -> Self {
        let (told, hears) = unbounded();
        Self(told, hears)
    }

    /// As a callback.
    pub fn hears(&self) -> impl Fn(&Observation) -> CallbackResult + Send + Sync + 'static + use<> {
        let told = self.0.clone();
        move |what| Ok(told.send(what.clone())?)
    }

    pub fn tell(&self, what: &Observation) {
        self.0.send(what.clone()).expect("an ear holds both ends");
    }

    /// The next, waited for.
    ///
    /// # Panics
    /// When it is told nothing.
    pub fn heard(&self) -> Observation {
        self.1.recv_timeout(PATIENCE).expect("it is told of something")
    }

    /// The jobs of the next ones, waited for.
    pub fn jobs(&self, count: usize) -> Vec<JobId> {
        (0..count).map(|_| self.heard().job).collect()
    }

    /// What nobody has taken yet.
    pub fn unheard(&self) -> Vec<Observation> {
        self.1.try_iter().collect()
    }
}

/// Starts observers and waits until the store knows them.
pub fn observe(world: &World, observers: Observers) -> ObserverPump {
    observe_on(world, Arc::clone(&world.store), observers)
}

/// The same on another view of the store.
pub fn observe_on(world: &World, store: impl Store, observers: Observers) -> ObserverPump {
    let names: Vec<String> = observers.names().map(str::to_owned).collect();
    let pump = spawn_observers(store, observers).expect("they start");
    for name in names {
        eventually("the observer is registered", || find(world, &name).is_some());
    }
    pump
}

/// An observer as the store knows it.
pub fn find(world: &World, observer: &str) -> Option<ObserverRecord> {
    let all = world.client.monitor().observers().expect("read");
    all.into_iter().find(|record| record.observer == observer)
}
