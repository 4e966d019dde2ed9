//! What a test of behaviour works in: an empty store, a client on it, groups that look for work often.
//!
//! [`on_every_store!`](crate::on_every_store) makes a test of each scene on each store.

use super::clock::OffsetClock;
use backwave::store::{JobRecord, Store};
use backwave::{
    Client, Enqueued, Group, GroupOptions, Health, Job, JobId, JobState, MemoryStore, NewJob,
    Registry, RetryPolicy, spawn_group,
};
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longer than anything that works takes; reached only where something is broken.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A store of the test's own, with what hangs on it.
pub struct World {
    pub store: Arc<dyn Store>,
    pub clock: OffsetClock,
    pub client: Client,
    pub health: Arc<Health>,
    number: u32,
    _kept: Option<Box<dyn Any + Send + Sync>>,
}

impl World {
    pub fn new(
        store: impl Store,
        clock: OffsetClock,
        kept: Option<Box<dyn Any + Send + Sync>>,
    ) -> Self {
        let store: Arc<dyn Store> = Arc::new(store);
        let client = Client::new(Arc::clone(&store));
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { store, clock, client, health: Arc::new(Health::new()), number, _kept: kept }
    }

    /// A group on this world's store and health.
    pub fn spawn(&self, registry: Registry, options: GroupOptions) -> Group {
        self.spawn_on(Arc::clone(&self.store), registry, options)
    }

    /// A group on another view of the store, and this world's health.
    pub fn spawn_on(&self, store: impl Store, registry: Registry, options: GroupOptions) -> Group {
        spawn_group(store, registry, options, Arc::clone(&self.health)).expect("the group starts")
    }

    /// A group name that no other world uses, for a test that looks for its log lines.
    pub fn name(&self, topic: &str) -> String {
        format!("{topic} {}", self.number)
    }

    pub fn enqueue(&self, job: impl Into<NewJob>) -> JobId {
        let Enqueued { id, .. } = self.client.enqueue(job).expect("accepted");
        id
    }

    /// The job, once it has ended.
    pub fn ended(&self, id: JobId) -> JobRecord {
        self.client.wait(id, PATIENCE).expect("it ends")
    }

    /// The job as it stands.
    pub fn job(&self, id: JobId) -> JobRecord {
        self.client.monitor().job(id).expect("it is there")
    }

    /// How many jobs are in that state, over all queues.
    pub fn count(&self, state: JobState) -> u64 {
        let counts = self.client.monitor().counts().expect("counted");
        counts.iter().filter(|count| count.state == state).map(|count| count.count).sum()
    }
}

/// State, attempt and failures at once, for one comparison.
pub fn facts(job: &JobRecord) -> (JobState, u32, u32) {
    (job.state, job.attempt, job.failures)
}

/// Options of a group that looks for work and for dead leases all the time, with the shortest lease
/// and at most three failures per job, 1 ms apart.
pub fn quick(name: &str) -> GroupOptions {
    GroupOptions::new(name)
        .workers(2)
        .lease(Duration::from_secs(5))
        .poll_interval(Duration::from_millis(10), Duration::from_millis(20))
        .maintenance_interval(Duration::from_millis(20))
        .retry(RetryPolicy::new(3).fixed(Duration::from_millis(1)).jitter_percent(0))
}

/// Looks again and again until it holds. For what nothing can be waited for.
///
/// # Panics
/// When it does not hold in time.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "it never came true that {what}");
        // Sleeps between looks at what gives no sign when it changes.
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A payload that says what its handler is to do, for tests that want one job type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task(pub String);

impl Job for Task {
    const WIRE_NAME: &'static str = "task";
}

pub fn task(what: impl Into<String>) -> NewJob {
    NewJob::new(&Task(what.into()))
}

pub fn memory() -> World {
    let clock = OffsetClock::default();
    World::new(MemoryStore::with_clock(clock.clone()), clock, None)
}

#[cfg(feature = "sqlite")]
pub fn sqlite() -> World {
    let clock = OffsetClock::default();
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let builder = backwave::SqliteStore::builder(folder.path().join("jobs.db"));
    let store = builder.busy_timeout(Duration::from_secs(1)).clock(clock.clone());
    World::new(store.open().expect("the file opens"), clock, Some(Box::new(folder)))
}

#[cfg(feature = "postgres")]
pub fn postgres() -> World {
    let clock = OffsetClock::default();
    let schema = super::postgres::fresh_schema();
    let builder = backwave::PostgresStore::builder(super::postgres::config());
    let store = builder.schema(schema.name()).clock(clock.clone());
    let store = store.statement_timeout(Duration::from_secs(1));
    World::new(store.open().expect("the server answers"), clock, Some(Box::new(schema)))
}

/// Runs scenes, functions of a [`World`], over every store.
#[macro_export]
macro_rules! on_every_store {
    ($($scene:ident),+ $(,)?) => {
        $crate::scenes!(memory: $($scene),+);
        #[cfg(feature = "sqlite")]
        $crate::scenes!(sqlite: $($scene),+);
        #[cfg(feature = "postgres")]
        $crate::scenes!(postgres: $($scene),+);
    };
}

/// Makes a module of tests: each scene on one store.
#[macro_export]
macro_rules! scenes {
    ($store:ident: $($scene:ident),+) => {
        mod $store {
            $(#[test]
            fn $scene() {
                super::$scene(&$crate::support::world::$store());
            })+
        }
    };
}
