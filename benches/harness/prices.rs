//! What a feature costs those who use it: the same group once more, with one thing added.

use super::place::Opened;
use super::run::plain_job;
use backwave::observer::{ObserverPump, TransitionFilter};
use backwave::store::HistoryPolicy;
use backwave::{Client, JobState, NewJob, Observers, spawn_observers};
use std::sync::Arc;
use std::time::Duration;

/// One thing that is added.
pub(crate) struct Feature {
    pub(crate) history: HistoryPolicy,
    /// What is done to the store before anything is enqueued; what is to live as long as the group.
    pub(crate) prepare: fn(&Opened) -> Option<ObserverPump>,
    pub(crate) job: fn(usize) -> NewJob,
}

impl Feature {
    pub(crate) const NONE: Self =
        Self { history: HistoryPolicy::Off, prepare: |_| None, job: plain_job };
}

pub(crate) fn features() -> [(&'static str, Feature); 7] {
    let none = || Feature::NONE;
    [
        ("with history: transitions", Feature { history: HistoryPolicy::Transitions, ..none() }),
        (
            "with history: failure detail",
            Feature { history: HistoryPolicy::WithFailureDetail, ..none() },
        ),
        ("with an observer of dead letters", Feature { prepare: observe_dead_letters, ..none() }),
        ("with an observer of successes", Feature { prepare: observe_successes, ..none() }),
        ("with a limit of its queue", Feature { prepare: limit, ..none() }),
        ("with 100 concurrency keys", Feature { prepare: limit_keys, job: keyed_job, ..none() }),
        ("with a unique key each", Feature { job: unique_job, ..none() }),
    ]
}

fn client(opened: &Opened) -> Client {
    Client::new(Arc::clone(&opened.store))
}

fn observe_dead_letters(opened: &Opened) -> Option<ObserverPump> {
    observe(opened, JobState::DeadLettered)
}

fn observe_successes(opened: &Opened) -> Option<ObserverPump> {
    observe(opened, JobState::Succeeded)
}

fn observe(opened: &Opened, state: JobState) -> Option<ObserverPump> {
    let filter = TransitionFilter::new().state(state);
    let observers = Observers::new().on("bench", filter, |_| Ok(()));
    let pump = spawn_observers(Arc::clone(&opened.store), observers).expect("it starts");
    let monitor = client(opened).monitor();
    while monitor.observers().expect("the store answers").is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    Some(pump)
}

fn limit(opened: &Opened) -> Option<ObserverPump> {
    let operator = client(opened).operator("bench");
    operator.set_concurrency_limit("default", Some(100_000)).expect("the store answers");
    None
}

fn limit_keys(opened: &Opened) -> Option<ObserverPump> {
    let operator = client(opened).operator("bench");
    operator.set_concurrency_limit_per_key("default", Some(100)).expect("the store answers");
    None
}

fn keyed_job(number: usize) -> NewJob {
    plain_job(number).concurrency_key(format!("key {}", number % 100))
}

fn unique_job(number: usize) -> NewJob {
    plain_job(number).unique_key(format!("key {number}"))
}
