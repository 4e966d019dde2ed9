//! How observers come to life: all of them, or none.

use super::{Observer, ObserverPump, Observers};
use crate::SpawnError;
use crate::group::options::OptionsError;
use crate::group::{enter_group, next_id};
use crate::shell::observer::{Board, Caller, Hint, Pump, PumpParts};
use crate::stage::Stage;
use crate::store::Store;
use crossbeam_channel::unbounded;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Starts observers: threads that tell the program what becomes of jobs, until they are dropped or shut down.
///
/// Nothing of the store is touched on this thread. An observer that the store does not know is registered by
/// its pump at the first call that the store answers.
///
/// ```
/// use backwave::observer::TransitionFilter;
/// use backwave::{Client, JobState, MemoryStore, NewJob, Observers, spawn_observers};
/// use std::time::Duration;
///
/// let store = MemoryStore::new();
/// let client = Client::new(store.clone());
/// let (told, hears) = backwave::crossbeam_channel::unbounded();
/// let cancelled = TransitionFilter::new().state(JobState::Cancelled);
/// let observers = Observers::new().on("called off", cancelled, move |what| Ok(told.send(what.job)?));
/// let pump = spawn_observers(store, observers)?;
/// # while client.monitor().observers()?.is_empty() { std::thread::yield_now(); }
/// let job = client.enqueue(NewJob::raw("resize", "{}"))?;
/// client.operator("ada").cancel(job.id)?;
/// assert_eq!(hears.recv_timeout(Duration::from_secs(10))?, job.id);
/// pump.shutdown();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`SpawnError`]; nothing runs then.
pub fn spawn_observers(
    store: impl Store,
    observers: Observers,
) -> Result<ObserverPump, SpawnError> {
    spawn_observers_on(Stage::Process, Arc::new(store), observers)
}

/// The same, where the stage says.
pub(crate) fn spawn_observers_on(
    stage: Stage,
    store: Arc<dyn Store>,
    observers: Observers,
) -> Result<ObserverPump, SpawnError> {
    if cfg!(panic = "abort") {
        return Err(SpawnError::PanicAbort);
    }
    check(&observers)?;
    let board = Arc::new(Board::new(observers.observers.len()));
    let mut pump = ObserverPump {
        id: next_id(),
        stage,
        names: Vec::new(),
        inboxes: Vec::new(),
        board,
        budget: observers.budget,
        subscriptions: Vec::new(),
    };
    for (index, observer) in observers.observers.into_iter().enumerate() {
        let name: Arc<str> = observer.name.as_str().into();
        if let Err(source) = start(&mut pump, index, observer, &store) {
            // Those that run are told to stop, and nobody waits for them.
            pump.begin_shutdown();
            pump.budget = Duration::ZERO;
            for missing in index..pump.board.all().len() {
                pump.board.ended(missing, None);
            }
            return Err(SpawnError::ObserverThread { observer: name.as_ref().to_owned(), source });
        }
    }
    Ok(pump)
}

fn check(observers: &Observers) -> Result<(), SpawnError> {
    if observers.observers.is_empty() {
        return Err(SpawnError::NoObserver);
    }
    let mut faults = Vec::new();
    let mut names = BTreeSet::new();
    for observer in &observers.observers {
        observer.options.check(&observer.name, &mut faults);
        if !names.insert(&observer.name) {
            return Err(SpawnError::ObserverTwice { observer: observer.name.clone() });
        }
    }
    Ok(OptionsError::unless_none(faults)?)
}

fn start(
    pump: &mut ObserverPump,
    index: usize,
    observer: Observer,
    store: &Arc<dyn Store>,
) -> Result<(), std::io::Error> {
    let (inbox, receiver) = unbounded();
    let Observer { name, filter, options, callback } = observer;
    let (id, stage, hint) = (pump.id, pump.stage.clone(), Hint::new(inbox.clone()));
    let caller = {
        let max = store.bounds().failure_detail_bytes_max;
        let on_thread = Arc::new(move || enter_group(id));
        Caller::start(stage.clone(), name.clone(), callback, max, on_thread, inbox.clone())?
    };
    let name: Arc<str> = name.into();
    let parts = PumpParts {
        stage: stage.clone(),
        index,
        observer: Arc::clone(&name),
        store: Arc::clone(store),
        filter,
        start: options.start,
        driver: options.driver_config(),
        timeout: options.timeout,
        budget: pump.budget,
        caller,
        inbox: receiver,
        hint: Arc::clone(&hint),
        board: Arc::clone(&pump.board),
    };
    let work = move || {
        enter_group(id);
        Pump::new(parts).run();
    };
    stage.spawn(format!("{name}-obs"), work)?;
    pump.names.push(name);
    pump.inboxes.push(inbox);
    pump.subscriptions.push(store.hub().watch(hint));
    Ok(())
}
