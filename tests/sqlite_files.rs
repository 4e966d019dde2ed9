//! What hosts and administrators do to a SQLite file under groups that run: it is moved, removed and replaced, held
//! by writers and by readers for long, and opened where there is none.

mod support;

use backwave::rusqlite::{Connection, TransactionBehavior};
use backwave::{
    Client, Error, Group, GroupOptions, Health, HealthStatus, JobContext, JobId, JobState, NewJob,
    Registry, SqliteFault, SqliteStore, Synchronous, spawn_group,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::clock::OffsetClock;
use support::gate::Gate;
use support::log as lines;
use support::world::{PATIENCE, Task, eventually, facts, quick, task};

/// A file of the test's own, a client on it, and the health of its groups.
struct Place {
    folder: tempfile::TempDir,
    clock: OffsetClock,
    store: SqliteStore,
    client: Client,
    health: Arc<Health>,
}

impl Place {
    fn new() -> Self {
        Self::with_patience(Duration::from_millis(500))
    }

    /// On a store that waits so long for somebody else's write.
    fn with_patience(busy_timeout: Duration) -> Self {
        lines::record();
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let clock = OffsetClock::default();
        let store = open(&folder.path().join("jobs.db"), &clock, busy_timeout);
        let client = Client::new(store.clone());
        Self { folder, clock, store, client, health: Arc::new(Health::new()) }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("jobs.db")
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A connection that knows nothing of the store's.
    fn stranger(&self) -> Connection {
        Connection::open(self.path()).expect("the file opens")
    }

    fn spawn(&self, registry: Registry, options: GroupOptions) -> Group {
        let health = Arc::clone(&self.health);
        spawn_group(self.store.clone(), registry, options, health).expect("the group starts")
    }

    fn enqueue(&self, job: impl Into<NewJob>) -> JobId {
        self.client.enqueue(job).expect("accepted").id
    }

    fn state(&self, id: JobId) -> JobState {
        self.client.monitor().job(id).expect("it is there").state
    }
}

fn open(path: &Path, clock: &OffsetClock, busy_timeout: Duration) -> SqliteStore {
    let builder = SqliteStore::builder(path).busy_timeout(busy_timeout).clock(clock.clone());
    builder.synchronous(Synchronous::Normal).open().expect("the file opens")
}

fn finishing() -> Registry {
    Registry::new().handle(|_, _: Task| Ok(()))
}

/// A handler that waits at the gate.
fn gated(gate: &Gate) -> Registry {
    Registry::new().handle_with(
        &Arc::new(gate.clone()),
        |gate: &Gate, _: &JobContext, job: Task| {
            gate.pass(job.0);
            Ok(())
        },
    )
}

fn sources(error: &dyn std::error::Error) -> String {
    let source = error.source().map(|source| format!(": {}", sources(source)));
    format!("{error}{}", source.unwrap_or_default())
}

#[cfg(unix)]
#[test]
fn a_group_halts_when_its_file_is_moved_removed_or_replaced_and_makes_none_in_its_place() {
    type Deed = fn(&Place);
    let deeds: [(&str, &str, Deed); 5] = [
        ("moved", "jobs.db", |place| {
            fs::rename(place.path(), place.beside("old.db")).expect("moved");
        }),
        ("removed", "jobs.db", |place| fs::remove_file(place.path()).expect("removed")),
        ("replaced", "jobs.db", |place| {
            fs::copy(place.path(), place.beside("backup")).expect("copied");
            fs::rename(place.beside("backup"), place.path()).expect("moved over it");
        }),
        ("without its memory", "jobs.db-shm", |place| {
            fs::remove_file(place.beside("jobs.db-shm")).expect("removed");
        }),
        ("without its log", "jobs.db-wal", |place| {
            fs::remove_file(place.beside("jobs.db-wal")).expect("removed");
        }),
    ];
    for (name, file, deed) in deeds {
        let place = Place::new();
        let gate = Gate::new();
        let registry = Registry::new().handle_with(
            &Arc::new(gate.clone()),
            |gate: &Gate, ctx: &JobContext, _: Task| {
                gate.say("begun");
                let fired = ctx.sleep(PATIENCE).expect_err("the token fires");
                gate.say(format!("{:?}", fired.reason));
                Ok(())
            },
        );
        let group = place.spawn(registry, quick(name).workers(4));
        place.enqueue(task("runs"));
        assert_eq!(gate.heard(), "begun");
        deed(&place);
        eventually("it halts", || !place.health.is_healthy());
        assert_eq!(place.health.check().status, HealthStatus::Unhealthy, "{name}");
        assert_eq!(gate.heard(), "GroupStopping", "{name}");
        let halt = place.health.halted_groups().remove(name).expect("it is the one");
        let shown = format!("{:?}", place.store.path().with_file_name(file));
        assert!(halt.message.contains(&shown), "{name}: {halt}");
        assert_eq!(halt.trigger, None, "{name}: {halt}");
        // Whoever enqueues is told so too, rather than into a file that nobody will read.
        let told = || place.client.enqueue(task("lost")).err().map(|error| sources(&error));
        eventually("the client is told", || told().is_some_and(|error| error.contains(&shown)));
        let is_gone = matches!(name, "moved" | "removed");
        assert_eq!(place.path().exists(), !is_gone, "{name}: nothing is made in its place");
        assert_eq!(group.shutdown().halts.len(), 1, "{name}");
    }
}

#[cfg(unix)]
#[test]
fn another_store_on_the_file_that_took_the_place_serves_it_while_the_first_stays_halted() {
    let place = Place::new();
    let backup = place.beside("backup");
    let kept = place.client.enqueue(task("in the backup").delay(Duration::from_secs(60)));
    let kept = kept.expect("accepted").id;
    let sql = format!("VACUUM INTO '{}'", backup.display());
    place.stranger().execute_batch(&sql).expect("backed up");
    let _first = place.spawn(finishing(), quick("first"));
    let halted = || place.health.halted_groups().contains_key("first");
    fs::rename(&backup, place.path()).expect("restored under it");
    // Left alone, it would have gone on in the old file.
    for beside in ["jobs.db-wal", "jobs.db-shm"] {
        fs::remove_file(place.beside(beside)).expect("of the old file");
    }
    eventually("it halts", halted);
    place.clock.skip(Duration::from_secs(61));
    let restored = open(&place.path(), &place.clock, Duration::from_secs(1));
    let client = Client::new(restored.clone());
    let health = Arc::clone(&place.health);
    let _second = spawn_group(restored, finishing(), quick("second"), health).expect("it starts");
    let record = client.wait(kept, PATIENCE).expect("it runs");
    assert_eq!(facts(&record), (JobState::Succeeded, 1, 0));
    assert!(halted(), "no way back");
    eventually("the first store's client is told too", || {
        matches!(place.client.monitor().job(kept), Err(Error::Store(_)))
    });
}

#[test]
fn names_that_are_no_file_are_refused_with_a_pointer_to_the_memory_store() {
    for path in ["", ":memory:", "file::memory:?cache=shared", "file:x?mode=memory&cache=shared"] {
        let error = SqliteStore::open(path).expect_err(path);
        let fault = error.downcast_ref::<SqliteFault>();
        assert!(matches!(fault, Some(SqliteFault::InMemory { .. })), "{error}");
        assert!(error.to_string().contains("MemoryStore"), "{error}");
        assert!(path.is_empty() || !Path::new(path).exists(), "no file of that name is made");
    }
    let error = SqliteStore::open("file:jobs.db?nolock=1").expect_err("a URI");
    assert!(matches!(error.downcast_ref(), Some(SqliteFault::Uri { .. })), "{error}");
}

#[test]
fn what_cannot_be_opened_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let text = folder.path().join("text");
    fs::write(&text, "no database, and long enough to be read as one".repeat(40)).expect("written");
    let wide = folder.path().join("wide.db");
    let db = Connection::open(&wide).expect("the file opens");
    db.execute_batch("PRAGMA encoding = 'UTF-16'; CREATE TABLE t (x)").expect("made");
    for path in [folder.path().join("no/such.db"), folder.path().to_owned(), text, wide] {
        let error = SqliteStore::open(&path).expect_err("it is no database of ours");
        let told = sources(&error);
        assert!(told.contains(&*path.to_string_lossy()), "{told}");
    }
}

#[test]
fn a_strangers_writes_in_between_cost_no_operation() {
    let place = Place::new();
    // With the patience that a host gets who sets nothing.
    let store = open(&place.path(), &place.clock, Duration::from_secs(5));
    let is_over = Arc::new(AtomicBool::new(false));
    let stranger = std::thread::spawn({
        let (is_over, db) = (Arc::clone(&is_over), place.stranger());
        move || {
            db.busy_timeout(Duration::from_secs(20)).expect("set");
            db.execute_batch("CREATE TABLE host (number INTEGER)").expect("made");
            let version = || -> i64 {
                db.query_row("PRAGMA data_version", [], |row| row.get(0)).expect("read")
            };
            let mut written = 0;
            while !is_over.load(Ordering::SeqCst) {
                let seen = version();
                db.execute_batch("BEGIN IMMEDIATE; INSERT INTO host VALUES (1); COMMIT")
                    .expect("written");
                written += 1;
                // Comes in again as soon as somebody else has written: an engine that lets its writers race is fair
                // to none of them.
                while version() == seen && !is_over.load(Ordering::SeqCst) {
                    // Sleeps between looks at what gives no sign when it changes.
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            written
        }
    });
    let (client, health) = (Client::new(store.clone()), Arc::new(Health::new()));
    let options = quick("beside a writer").lease(Duration::from_secs(60));
    let group = spawn_group(store, finishing(), options, Arc::clone(&health)).expect("it starts");
    let operator = client.operator("ada");
    for round in 0..20 {
        let jobs = client.enqueue_many((0..10).map(|_| task("short"))).expect("accepted");
        let later = client.enqueue(task("later").delay(PATIENCE)).expect("accepted").id;
        operator.cancel(later).expect("cancelled");
        operator.set_concurrency_limit("default", Some(10 + round)).expect("set");
        for job in jobs {
            let record = client.wait(job.id, PATIENCE).expect("it runs");
            assert_eq!(facts(&record), (JobState::Succeeded, 1, 0));
        }
        client.monitor().counts().expect("read");
    }
    assert_eq!(group.shutdown().halts, []);
    is_over.store(true, Ordering::SeqCst);
    let written = stranger.join().expect("no panic");
    assert!(written >= 5, "it has written again and again: {written} times");
    assert!(lines::lines("beside a writer", 1301).is_empty(), "no operation has failed");
}

#[test]
fn a_drain_while_a_stranger_holds_the_lock_ends_and_leaves_what_it_could_not_write_to_its_lease() {
    let place = Place::with_patience(Duration::from_millis(50));
    let gate = Gate::new();
    let options = quick("held").shutdown_budget(Duration::from_millis(700));
    let group = place.spawn(gated(&gate), options.lease(Duration::from_secs(30)));
    let ids = [place.enqueue(task("one")), place.enqueue(task("two"))];
    ids.iter().for_each(|_| drop(gate.heard()));
    let stranger = place.stranger();
    stranger.execute_batch("BEGIN IMMEDIATE").expect("held");
    gate.open();
    let degraded = || place.health.degraded_groups().contains_key("held");
    eventually("the outcome cannot be written", degraded);
    // Returns although the lock is never given back in the meantime.
    let report = group.shutdown();
    assert_eq!((report.handed_back, &report.halts), (0, &vec![]), "{report:?}");
    assert_eq!(report.still_running.len(), 1, "the other one has not ended: {report:?}");
    gate.open();
    for id in ids {
        assert_eq!(place.state(id), JobState::Leased, "nothing was written");
    }
    stranger.execute_batch("COMMIT").expect("given back");
    let heir = place.spawn(finishing(), quick("heir"));
    place.clock.skip(Duration::from_secs(31));
    for id in ids {
        let record = place.client.wait(id, PATIENCE).expect("it ends");
        assert_eq!(facts(&record), (JobState::Succeeded, 2, 1));
    }
    assert_eq!(heir.shutdown().halts, []);
}

#[test]
fn a_caller_that_panics_or_leaves_in_the_middle_of_its_transaction_holds_nobody_up() {
    let place = Place::new();
    let mut db = place.stranger();
    let store = place.store.clone();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
        store.enqueue_in(&tx, task("lost")).expect("accepted");
        std::panic::resume_unwind(Box::new("on purpose"));
    }));
    assert!(panicked.is_err() && db.is_autocommit(), "rolled back as it unwound");
    place.enqueue(task("goes through"));
    // One that is never ended holds the lock, as in every SQLite program, until its connection is closed.
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
    let lost = store.enqueue_in(&tx, task("lost")).expect("accepted").id;
    std::mem::forget(tx);
    let refused = place.client.operator("ada").cancel(lost).expect_err("the file is held");
    assert!(sources(&refused).contains("locked"), "{}", sources(&refused));
    drop(db);
    place.enqueue(task("goes through"));
    assert!(matches!(place.client.monitor().job(lost), Err(Error::NotFound { .. })));
    let counts = place.client.monitor().counts().expect("read");
    assert_eq!(counts.iter().map(|count| count.count).sum::<u64>(), 2);
}

#[test]
fn the_log_of_writes_that_a_long_reader_lets_grow_shrinks_back_once_it_is_gone() {
    const CAP: u64 = 64 * 1024 * 1024;
    let place = Place::new();
    let size = || fs::metadata(place.beside("jobs.db-wal")).expect("it is there").len();
    let reader = place.stranger();
    reader.execute_batch("BEGIN; SELECT count(*) FROM backwave_jobs").expect("begun");
    let payload = format!("\"{}\"", "x".repeat(60_000));
    while size() <= CAP {
        let jobs = (0..100).map(|_| NewJob::raw("task", payload.clone()).delay(PATIENCE));
        place.client.enqueue_many(jobs).expect("accepted");
    }
    // Whatever the reader keeps, work goes on beside it.
    let group = place.spawn(finishing(), quick("beside a reader"));
    let id = place.enqueue(task("runs"));
    assert_eq!(place.client.wait(id, PATIENCE).expect("it runs").state, JobState::Succeeded);
    assert!(size() > CAP, "the reader holds it");
    reader.execute_batch("COMMIT").expect("ended");
    eventually("it has shrunk", || {
        place.enqueue(task("any write"));
        size() <= CAP
    });
    assert_eq!(group.shutdown().halts, []);
}
