//! How a group comes to life: all of its threads, or none.

use super::{Core, Group, GroupOptions, OptionsError};
use crate::health::Pen;
use crate::kernel::driver::{DriverConfig, Looks};
use crate::registry::Entry;
use crate::shell::{
    Board, Hints, Message, Pool, Pump, PumpLine, PumpParts, TickFlags, Ticker, TickerParts,
    TokenTable,
};
use crate::stage::Stage;
use crate::store::{Accepts, Store, Subscription};
use crate::{Client, DispatchPolicy, DuplicateWireName, Health, Registry, WorkerId, telemetry};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Why a group, or a set of observers, was not started. Nothing of it runs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The program is built with `panic = "abort"`: a handler's panic would end the process, and no
    /// promise of this crate could hold. A program that only enqueues may be built so.
    #[error(
        "the program is built with panic = \"abort\", under which no panic can be contained: build it with panic = \"unwind\""
    )]
    PanicAbort,
    /// The options are wrong.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// Two handlers have one wire name.
    #[error(transparent)]
    DuplicateWireName(#[from] DuplicateWireName),
    /// The registry has no handler.
    #[error("the registry of group {group:?} has no handler")]
    EmptyRegistry {
        /// The group.
        group: String,
    },
    /// A group of that name is alive on this `Health`.
    #[error("a group named {group:?} is alive already")]
    NameTaken {
        /// The name.
        group: String,
    },
    /// There is no observer to start.
    #[error("there is no observer to start")]
    NoObserver,
    /// Two observers have one name.
    #[error("there are two observers named {observer:?}")]
    ObserverTwice {
        /// The name.
        observer: String,
    },
    /// A thread of an observer could not be started. Those that were have been told to stop.
    #[error("a thread of observer {observer:?} could not be started")]
    ObserverThread {
        /// The observer.
        observer: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A thread could not be started. Those that were have been joined.
    #[error("a thread of group {group:?} could not be started")]
    Thread {
        /// The group.
        group: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Starts a Worker Group: threads that run the jobs of `registry` out of `store` until the group is
/// dropped or shut down. What becomes of it is read from `health`.
///
/// Nothing of the store is touched on this thread: a store that is down shows in the health.
///
/// ```
/// use backwave::{Client, GroupOptions, Health, Job, JobState, MemoryStore, Registry, spawn_group};
/// use serde::{Deserialize, Serialize};
/// use std::{sync::Arc, time::Duration};
///
/// #[derive(Serialize, Deserialize)]
/// struct Greet {
///     name: String,
/// }
///
/// impl Job for Greet {
///     const WIRE_NAME: &'static str = "greet";
/// }
///
/// let store = MemoryStore::new();
/// let client = Client::new(store.clone());
/// let health = Arc::new(Health::new());
/// let registry = Registry::new().handle(|_ctx, job: Greet| {
///     println!("hello {}", job.name);
///     Ok(())
/// });
/// let group = spawn_group(store, registry, GroupOptions::new("main"), Arc::clone(&health))?;
/// let job = client.enqueue(&Greet { name: "Ada".into() })?;
/// let record = client.wait(job.id, Duration::from_secs(10))?;
/// assert_eq!(record.state, JobState::Succeeded);
/// assert!(health.is_healthy());
/// group.shutdown();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`SpawnError`]; nothing runs then.
pub fn spawn_group(
    store: impl Store,
    registry: Registry,
    options: GroupOptions,
    health: Arc<Health>,
) -> Result<Group, SpawnError> {
    spawn_on(Stage::Process, Arc::new(store), registry, options, health)
}

/// The same, where the stage says.
pub(crate) fn spawn_on(
    stage: Stage,
    store: Arc<dyn Store>,
    registry: Registry,
    options: GroupOptions,
    health: Arc<Health>,
) -> Result<Group, SpawnError> {
    if cfg!(panic = "abort") {
        return Err(SpawnError::PanicAbort);
    }
    options.validate()?;
    options.check_call_timeout(store.call_timeout())?;
    let entries = registry.entries()?;
    if entries.is_empty() {
        return Err(SpawnError::EmptyRegistry { group: options.name });
    }
    let hung_after =
        options.heartbeat().max(options.poll_max) * 2 + store.call_timeout().unwrap_or_default();
    let Some(pens) = health.register(&options.name, options.pumps, hung_after) else {
        return Err(SpawnError::NameTaken { group: options.name });
    };
    Plan::new(stage, store, &entries, options).start(pens, &health)
}

/// Everything that is settled before the first thread starts.
struct Plan {
    stage: Stage,
    store: Arc<dyn Store>,
    entries: Arc<HashMap<&'static str, Arc<Entry>>>,
    accepts: Arc<[Accepts]>,
    dispatch: DispatchPolicy,
    options: GroupOptions,
    name: Arc<str>,
}

/// A pump with its workers, not yet running itself.
struct Prepared {
    parts: PumpParts,
    line: PumpLine,
    subscription: Subscription,
    workers: Vec<JoinHandle<()>>,
}

impl Plan {
    fn new(
        stage: Stage,
        store: Arc<dyn Store>,
        entries: &[Arc<Entry>],
        options: GroupOptions,
    ) -> Self {
        let dispatch = options.dispatch.clone().unwrap_or_else(|| registered_queues(entries));
        for entry in entries {
            if !dispatch.queues().any(|queue| queue == entry.queue) {
                telemetry::queue_left_out(&options.name, entry.queue, entry.wire_name);
            }
        }
        let accepts = entries.iter().map(|entry| Accepts {
            wire_name: entry.wire_name.to_owned(),
            version_max: entry.version,
        });
        Self {
            stage,
            accepts: accepts.collect(),
            entries: Arc::new(entries.iter().map(|e| (e.wire_name, Arc::clone(e))).collect()),
            dispatch,
            name: options.name.as_str().into(),
            store,
            options,
        }
    }

    fn start(self, pens: Vec<Pen>, health: &Arc<Health>) -> Result<Group, SpawnError> {
        let board = Arc::new(Board::new(pens.len()));
        let (name, stage) = (Arc::clone(&self.name), self.stage.clone());
        let core = Core::new(name, stage, Arc::clone(&board), self.options.budget());
        let core = Arc::new(core);
        let (alive, ended) = bounded::<Infallible>(0);
        let client = Client::new(Arc::clone(&self.store));
        let mut launch = Launch::default();
        for (index, pen) in pens.into_iter().enumerate() {
            match self.prepare(index, pen, &client, &core) {
                Ok(prepared) => launch.prepared.push(prepared),
                Err(source) => {
                    health.withdraw(&self.name);
                    return Err(launch.abort(&self.name, source));
                }
            }
        }
        let lines: Vec<_> = launch.prepared.iter().map(|prepared| prepared.line.clone()).collect();
        let started = self.start_ticker(&launch, ended).and_then(|ticker| {
            launch.threads.extend(ticker);
            launch.start_pumps(&self.name, &alive, &core)
        });
        if let Err(source) = started {
            // The ticker ends with `alive`, pumps that run are told to stop.
            drop(alive);
            for line in &lines {
                let _ = line.inbox.send(Message::Stop);
            }
            health.withdraw(&self.name);
            return Err(launch.abort(&self.name, source));
        }
        Ok(Group::new(core, lines, launch.subscriptions))
    }

    fn prepare(
        &self,
        index: usize,
        pen: Pen,
        client: &Client,
        core: &Arc<Core>,
    ) -> Result<Prepared, std::io::Error> {
        let (inbox, receiver) = unbounded();
        let line = PumpLine { inbox: inbox.clone(), ticks: Arc::new(TickFlags::default()) };
        let id = core.id;
        #[cfg(feature = "testing")]
        let probe = self.options.worker_probe.clone();
        let on_thread = Arc::new(move || {
            super::enter_group(id);
            #[cfg(feature = "testing")]
            if let Some(probe) = &probe {
                probe();
            }
        });
        let name = thread_name(&self.name, index);
        let (pool, workers) =
            Pool::start(name, self.options.workers, inbox.clone(), on_thread, self.stage.clone())?;
        let hints = Hints::new(self.dispatch.queues(), inbox, self.stage.clone());
        let subscription = self.store.hub().subscribe(Arc::clone(&hints) as _);
        let parts = PumpParts {
            stage: self.stage.clone(),
            index,
            group: Arc::clone(&self.name),
            store: Arc::clone(&self.store),
            client: client.clone(),
            driver: self.driver_config(index),
            entries: Arc::clone(&self.entries),
            accepts: Arc::clone(&self.accepts),
            line: line.clone(),
            inbox: receiver,
            hints,
            pool,
            tokens: Arc::new(TokenTable::default()),
            pen,
            board: Arc::clone(&core.board),
            stopping: core.stopping.clone(),
            budget: self.options.budget(),
        };
        Ok(Prepared { parts, line, subscription, workers })
    }

    fn driver_config(&self, index: usize) -> DriverConfig {
        DriverConfig {
            worker: WorkerId::new(),
            workers: self.options.workers,
            prefetch: self.options.prefetch,
            dispatch: self.dispatch.clone(),
            lease: self.options.lease,
            poll_min: self.options.poll_min,
            poll_max: self.options.poll_max,
            retry: self.options.retry,
            doubt: self.store.call_timeout().unwrap_or(DOUBT_MIN).max(DOUBT_MIN),
            patience: self.options.patience,
            retention: self.options.retention,
            // One of a group's pumps is enough, and whoever comes first of all groups is as good as another. The
            // others stand in for it.
            schedules: if index == 0 { Looks::OnTime } else { Looks::InRounds },
            #[cfg(test)]
            planted: self.options.planted,
        }
    }

    fn start_ticker(
        &self,
        launch: &Launch,
        ended: Receiver<Infallible>,
    ) -> Result<Option<JoinHandle<()>>, std::io::Error> {
        let ticker = Ticker::new(TickerParts {
            stage: self.stage.clone(),
            poll: self.options.poll_min,
            heartbeat: self.options.heartbeat(),
            maintenance: self.options.maintenance,
            pumps: launch.prepared.iter().map(|prepared| prepared.line.clone()).collect(),
            tokens: launch.prepared.iter().map(|p| Arc::clone(&p.parts.tokens)).collect(),
            ended,
            #[cfg(feature = "testing")]
            probe: self.options.ticker_probe.clone(),
        });
        self.stage.spawn(format!("{}-tick", self.name), move || ticker.run())
    }
}

/// Threads on their way up.
#[derive(Default)]
struct Launch {
    prepared: Vec<Prepared>,
    subscriptions: Vec<Subscription>,
    threads: Vec<JoinHandle<()>>,
}

impl Launch {
    fn start_pumps(
        &mut self,
        name: &str,
        alive: &Sender<Infallible>,
        core: &Arc<Core>,
    ) -> Result<(), std::io::Error> {
        for prepared in std::mem::take(&mut self.prepared) {
            let (alive, id) = (alive.clone(), core.id);
            let Prepared { parts, subscription, workers, .. } = prepared;
            self.threads.extend(workers);
            let stage = parts.stage.clone();
            let thread = stage.spawn(thread_name(name, parts.index), move || {
                super::enter_group(id);
                Pump::new(parts).run();
                // The last pump to end takes the ticker along.
                drop(alive);
            })?;
            self.threads.extend(thread);
            self.subscriptions.push(subscription);
        }
        Ok(())
    }

    /// Joins what was started: no pump has begun a job yet, or it has been told to stop.
    fn abort(self, group: &str, source: std::io::Error) -> SpawnError {
        let Self { prepared, subscriptions, mut threads } = self;
        drop(subscriptions);
        for Prepared { parts, workers, .. } in prepared {
            // With its pool the channel of the workers closes.
            drop(parts);
            threads.extend(workers);
        }
        for thread in threads {
            let _ = thread.join();
        }
        SpawnError::Thread { group: group.to_owned(), source }
    }
}

fn registered_queues(entries: &[Arc<Entry>]) -> DispatchPolicy {
    let mut queues: Vec<&str> = entries.iter().map(|entry| entry.queue).collect();
    queues.sort_unstable();
    queues.dedup();
    DispatchPolicy::weighted(queues.into_iter().map(|queue| (queue, 1)))
}

/// Names are cut by some platforms at 15 bytes, so the telling part comes last and short.
fn thread_name(group: &str, pump: usize) -> String {
    format!("{group}-p{pump}")
}

/// For how long a request whose answer was lost may still take effect, at least.
const DOUBT_MIN: Duration = Duration::from_secs(10);
