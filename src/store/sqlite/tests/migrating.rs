//! Files of earlier versions, brought up to date by opening them; and files of later ones.

use super::*;
use crate::store::sqlite::SqliteFault;
use crate::store::sqlite::migrate::LATEST;
use crate::store::{
    BulkChange, Due, FaultClass, JobFilter, LeaseRef, Mode, Page, ParentRule, Purge, Renewed,
    Retention, RowReport, StoreError, classify,
};
use rusqlite::{Connection, TransactionBehavior, params};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Barrier;

/// What the latest version needs of who reads it.
const MIN_READER: u32 = 4;
const TOO_NEW: u32 = LATEST + 1;
const VERSION_1: &str = include_str!("../migrations/0001_jobs.sql");

/// What a file of version 1 holds.
struct Old {
    folder: tempfile::TempDir,
    clock: Clock,
    holder: WorkerId,
    /// By state, and one more that is leased and dead.
    jobs: BTreeMap<JobState, JobId>,
    dead: JobId,
}

impl Old {
    /// A file as version 1 left it, with a job in every state and leases in flight.
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let conn = Connection::open(folder.path().join("jobs.db")).expect("it opens");
        conn.execute_batch(&format!(
            "PRAGMA journal_mode = WAL; \
             BEGIN; \
             CREATE TABLE backwave_meta ( \
                 one        INTEGER PRIMARY KEY CHECK (one = 1), \
                 version    INTEGER NOT NULL, \
                 min_reader INTEGER NOT NULL) STRICT; \
             {VERSION_1}; \
             INSERT INTO backwave_meta VALUES (1, 1, 1); \
             COMMIT"
        ))
        .expect("it is made");
        let mut old = Self {
            folder,
            clock: Clock(Arc::new(AtomicI64::new(START))),
            holder: WorkerId::new(),
            jobs: BTreeMap::new(),
            dead: JobId::new(),
        };
        for state in JobState::ALL {
            let id = JobId::new();
            old.add(&conn, id, state, START + 60_000_000);
            old.jobs.insert(state, id);
        }
        old.add(&conn, old.dead, JobState::Leased, START - 1);
        conn.execute("UPDATE backwave_jobs SET output = x'31' WHERE state = 3", []).expect("set");
        old
    }

    fn add(&self, conn: &Connection, id: JobId, state: JobState, expiry: i64) {
        let is_leased = state == JobState::Leased;
        let long = vec![b' '; 5000];
        conn.execute(
            "INSERT INTO backwave_jobs \
                 (id, queue, wire_name, version, state, due_at, attempt, failures, owner, expiry, \
                  created_at, finished_at, tags, payload_bytes) \
             VALUES (?1, 'default', 'job', 1, ?2, ?3, ?4, ?5, ?6, ?7, ?3, ?8, '[\"é\"]', 5000)",
            params![
                id.as_bytes(),
                state.code(),
                START - 5,
                i64::from(state > JobState::AwaitingParent),
                i64::from(state == JobState::DeadLettered),
                is_leased.then(|| self.holder.to_bytes()),
                is_leased.then_some(expiry),
                state.is_terminal().then_some(START - 3),
            ],
        )
        .expect("added");
        conn.execute(
            "INSERT INTO backwave_payloads (seq, payload) VALUES (?1, ?2)",
            params![conn.last_insert_rowid(), long],
        )
        .expect("added");
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("jobs.db")
    }

    fn open(&self) -> SqliteStore {
        SqliteStore::builder(self.path()).clock(self.clock.clone()).open().expect("it is migrated")
    }
}

fn versions(path: &Path) -> Vec<(u32, u32)> {
    let conn = Connection::open(path).expect("it opens");
    let mut rows = conn.prepare("SELECT version, min_reader FROM backwave_meta").expect("prepared");
    let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("read");
    rows.collect::<Result<_, _>>().expect("rows")
}

#[test]
fn a_file_of_version_1_is_migrated_by_opening_it_and_its_jobs_go_on() {
    let old = Old::new();
    let store = old.open();
    assert_eq!(versions(&old.path()), [(LATEST, MIN_READER)]);
    let mut session = store.open_session().expect("a session");
    let counts = session.counts().expect("no fault");
    let counted: Vec<_> = counts.iter().map(|count| (count.state, count.count)).collect();
    let expected: Vec<_> =
        JobState::ALL.map(|state| (state, 1 + u64::from(state == JobState::Leased))).to_vec();
    assert_eq!(counted, expected);
    for (state, id) in &old.jobs {
        let record = session.job(*id).expect("no fault").expect("it is there");
        assert_eq!((record.state, record.parent_rule), (*state, ParentRule::OnSuccess));
        assert_eq!((record.payload.as_bytes().len(), record.tags.len()), (5000, 1));
        let found = session.find(&JobFilter::new().state(*state).tag("é"), &Page::new(9));
        assert!(found.expect("no fault").jobs.contains(&record));
    }

    // A lease that was in flight is renewed and settled, a dead one is reaped.
    let live = old.jobs[&JobState::Leased];
    let leases = [LeaseRef { job: live, attempt: 1 }];
    let renewal = session.renew(old.holder, &leases, LEASE).expect("no fault");
    assert!(matches!(renewal.rows[..], [Renewed::Renewed { .. }]));
    let lapsed = session.find_lapsed(&["default".to_owned()], 9).expect("no fault").jobs;
    assert_eq!(lapsed.iter().map(|job| job.id).collect::<Vec<_>>(), [old.dead]);
    let row = |job, mode, outcome, sequence| {
        let receipt = Receipt { pump: old.holder, sequence };
        let mut row = OutcomeRow::new(job, 1, old.holder, receipt, outcome);
        row.mode = mode;
        row
    };
    let rows = [
        row(live, Mode::Holder, Outcome::Succeeded, 1),
        row(old.dead, Mode::Reap, Outcome::DeadLettered, 2),
    ];
    let reported = session.report(&rows).expect("no fault").rows;
    let states = [JobState::Succeeded, JobState::DeadLettered];
    assert_eq!(reported, states.map(RowReport::Applied));

    // New dependents of old jobs, old failures requeued, old ends purged: by what migration has counted.
    let mut child = job();
    child.parents = vec![old.jobs[&JobState::Succeeded], old.jobs[&JobState::Scheduled]];
    child.due = Due::At(Timestamp::EPOCH);
    session.enqueue(&[child.clone()]).expect("no fault");
    let record = session.job(child.id).expect("no fault").expect("it is there");
    assert_eq!(record.state, JobState::AwaitingParent);
    let requeue = BulkChange::Requeue;
    let all = JobFilter::new();
    let answer = session.change_matching("ada", requeue, &all, None, 9).expect("no fault");
    assert_eq!(answer.changed, 3);
    let retention = Retention { succeeded: Some(Duration::ZERO), ..Retention::forever() };
    let purged = session.purge(&Purge::new(retention, 9)).expect("no fault");
    assert_eq!(purged.jobs, 1, "the other is a parent");
    let counts = session.counts().expect("no fault");
    let counted: Vec<_> = counts.iter().map(|count| (count.state, count.count)).collect();
    let expected = [
        (JobState::Scheduled, 4),
        (JobState::AwaitingParent, 2),
        (JobState::Succeeded, 1),
        (JobState::Cancelled, 1),
    ];
    assert_eq!(counted, expected);
}

#[test]
fn a_file_of_version_2_gains_schedules_and_is_still_read_by_version_2() {
    let old = Old::new();
    let conn = Connection::open(old.path()).expect("it opens");
    let version_2 = include_str!("../migrations/0002_dependents.sql");
    let step =
        format!("BEGIN; {version_2}; UPDATE backwave_meta SET version = 2, min_reader = 2; COMMIT");
    conn.execute_batch(&step).expect("it is version 2");
    let mut session = old.open().open_session().expect("a session");
    assert_eq!(versions(&old.path()), [(LATEST, MIN_READER)]);
    assert!(session.schedules().expect("no fault").is_empty());
    let record = session.job(old.dead).expect("no fault").expect("it is there");
    assert_eq!(record.tick, None);
}

#[test]
fn a_dozen_may_open_a_file_of_version_1_at_once() {
    for _ in 0..3 {
        let old = Old::new();
        let gate = Barrier::new(12);
        std::thread::scope(|scope| {
            for _ in 0..12 {
                scope.spawn(|| {
                    gate.wait();
                    let mut session = old.open().open_session().expect("a session");
                    session.enqueue(&[job()]).expect("no fault");
                });
            }
        });
        assert_eq!(versions(&old.path()), [(LATEST, MIN_READER)]);
        let counts = old.open().open_session().expect("a session").counts().expect("no fault");
        assert_eq!(counts[0].count, 13);
    }
}

#[test]
fn the_views_of_every_version_show_a_job_and_the_later_ones_its_parents() {
    let old = Old::new();
    let mut session = old.open().open_session().expect("a session");
    let parents = [old.jobs[&JobState::Scheduled], old.jobs[&JobState::Leased]];
    let mut child = job();
    child.parents = parents.to_vec();
    child.parent_rule = ParentRule::OnAnyTerminal;
    session.enqueue(&[child.clone()]).expect("no fault");
    let conn = Connection::open(old.path()).expect("it opens");
    let columns = |view: &str| -> String {
        let names = "SELECT group_concat(name, ' ') FROM pragma_table_info(?1)";
        conn.query_row(names, [view], |row| row.get(0)).expect("names")
    };
    let common = "id queue wire_name version state attempt failures due_at created_at finished_at owner \
                  expiry cancel_requested timeout_ms retry tags payload output failure_detail";
    assert_eq!(columns("backwave_jobs_v1"), common);
    let second = format!("{common} parent_rule unique_key concurrency_key parents");
    assert_eq!(columns("backwave_jobs_v2"), second);
    assert_eq!(columns("backwave_jobs_v3"), format!("{second} schedule tick"));
    let shown = |id: JobId| -> (String, String, String) {
        conn.query_row(
            "SELECT state, parent_rule, parents FROM backwave_jobs_v2 WHERE id = ?1",
            [id.to_string()],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .expect("a row")
    };
    let (state, rule, listed) = shown(child.id);
    assert_eq!((state.as_str(), rule.as_str()), ("AwaitingParent", "OnAnyTerminal"));
    assert_eq!(listed, format!("[\"{}\",\"{}\"]", parents[0], parents[1]));
    assert_eq!(shown(parents[0]).2, "[]");
    let rows = "SELECT count(*) FROM backwave_jobs_v1";
    assert_eq!(conn.query_row(rows, [], |row| row.get(0)), Ok(9));
}

#[test]
fn a_migration_that_fails_leaves_the_file_as_it_was() {
    let old = Old::new();
    let conn = Connection::open(old.path()).expect("it opens");
    // The last thing of the step is there already.
    conn.execute_batch("CREATE VIEW backwave_jobs_v2 AS SELECT 1").expect("made");
    let error = SqliteStore::open(old.path()).expect_err("the name is taken");
    assert_eq!(classify(&error, Some(&crate::store::sqlite::fault::Classifier)), FaultClass::Fatal);
    assert_eq!(versions(&old.path()), [(1, 1)]);
    let tables = "SELECT count(*) FROM sqlite_schema WHERE name IN ('backwave_gates', 'backwave_jobs_leased')";
    assert_eq!(conn.query_row(tables, [], |row| row.get(0)), Ok(0));
    conn.execute_batch("DROP VIEW backwave_jobs_v2").expect("dropped");
    old.open();
    assert_eq!(versions(&old.path()), [(LATEST, MIN_READER)]);
}

/// What a step makes, by kind and name, in order; without what it only makes anew.
fn made_by(step: &str) -> Vec<(&str, &str)> {
    let words: Vec<&str> = step.split_ascii_whitespace().collect();
    let kinds = ["TABLE", "INDEX", "VIEW", "TRIGGER"];
    let made = words.windows(3).filter(|words| words[0] == "CREATE" && kinds.contains(&words[1]));
    made.map(|words| (words[1], words[2]))
        .filter(|(_, name)| !step.contains(&format!("DROP INDEX {name};")))
        .collect()
}

#[test]
fn a_migration_that_is_cut_off_at_any_of_its_statements_leaves_the_file_as_it_was() {
    let schema = |conn: &Connection| -> Vec<String> {
        let text =
            "SELECT type || ' ' || name || ' ' || coalesce(sql, '') FROM sqlite_schema ORDER BY 1";
        let mut rows = conn.prepare(text).expect("prepared");
        let rows = rows.query_map([], |row| row.get(0)).expect("read");
        rows.collect::<Result<_, _>>().expect("rows")
    };
    let whole = schema(&Connection::open(Bench::new().path()).expect("it opens"));
    let steps = [
        VERSION_1,
        include_str!("../migrations/0002_dependents.sql"),
        include_str!("../migrations/0003_schedules.sql"),
        include_str!("../migrations/0004_observers.sql"),
    ];
    assert_eq!(steps.len(), LATEST as usize);
    for (before, step) in steps.into_iter().enumerate() {
        let made = made_by(step);
        assert!(made.len() > 2, "{made:?}");
        for (kind, name) in made {
            let old = Old::new();
            if before == 0 {
                for beside in ["jobs.db", "jobs.db-wal", "jobs.db-shm"] {
                    // What is not there need not be removed.
                    let _ = std::fs::remove_file(old.folder.path().join(beside));
                }
            }
            let conn = Connection::open(old.path()).expect("it opens");
            for (version, earlier) in (1..=before).zip(steps).skip(1) {
                conn.execute_batch(earlier).expect("migrated");
                conn.execute(
                    "UPDATE backwave_meta SET version = ?1",
                    [i64::try_from(version).expect("few")],
                )
                .expect("set");
            }
            // In the way of that one statement.
            let (obstacle, removal) = match kind {
                "TRIGGER" => (
                    format!(
                        "CREATE TABLE host (x); CREATE TRIGGER {name} AFTER DELETE ON host BEGIN SELECT 1; END"
                    ),
                    "DROP TABLE host".to_owned(),
                ),
                _ => (format!("CREATE VIEW {name} AS SELECT 1"), format!("DROP VIEW {name}")),
            };
            conn.execute_batch(&obstacle).expect("made");
            let found = schema(&conn);
            let error = SqliteStore::open(old.path()).expect_err(name);
            assert!(error.to_string().contains(name), "{name}: {error}");
            assert_eq!(schema(&conn), found, "{name}: something is left of it");
            conn.execute_batch(&removal).expect("dropped");
            old.open();
            assert_eq!(versions(&old.path()), [(LATEST, MIN_READER)], "{name}");
            if before == 0 {
                assert_eq!(schema(&conn), whole, "{name}");
            }
        }
    }
}

#[test]
fn a_file_that_becomes_too_new_under_a_session_stops_its_writes_and_passes_once_replaced() {
    let mut bench = Bench::new();
    bench.enqueue_all(&[job(), job()]);
    let held = bench.claim(1).remove(0);
    let host = bench.host();
    let set = |version: u32| {
        let sql = "UPDATE backwave_meta SET version = ?1, min_reader = ?1";
        assert_eq!(host.execute(sql, [version]), Ok(1));
    };
    let too_new = |error: &StoreError| {
        let fault = error.downcast_ref();
        assert!(matches!(
            fault,
            Some(SqliteFault::SchemaTooNew { min_reader: TOO_NEW, known: LATEST, .. })
        ));
        assert!(error.session_lost() && error.refused_whole(), "{error}");
        assert_eq!(classify(error, bench.store.fault_classifier()), FaultClass::Transient);
        assert_eq!(error.trigger(), None);
    };
    set(TOO_NEW);
    let row = bench.outcome(&held, Outcome::Succeeded);
    let (worker, leases) = (bench.worker, [LeaseRef { job: held.id, attempt: 1 }]);
    let plan = [QueueQuota { queue: "default".to_owned(), quota: 1 }];
    let accepts = [Accepts { wire_name: "job".to_owned(), version_max: 1 }];
    let claim = Claim::new(worker, 1, &plan, &accepts, LEASE);
    let session = &mut bench.session;
    let told = [
        session.enqueue(&[job()]).map(drop),
        session.claim(&claim).map(drop),
        session.report(std::slice::from_ref(&row)).map(drop),
        session.exchange(&[row], &claim).map(drop),
        session.renew(worker, &leases, LEASE).map(drop),
        session.hand_back(worker, &leases).map(drop),
        session.request_cancel("ada", held.id).map(drop),
        session.purge(&Purge::new(Retention::default(), 9)).map(drop),
    ];
    for answer in told {
        too_new(&answer.expect_err("it must not write"));
    }
    let mut other = bench.host();
    let tx = other.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
    too_new(&bench.store.enqueue_rows_in(&tx, &[job()]).expect_err("it must not write"));
    drop(tx);
    too_new(&bench.store.open_session().err().expect("it must not even read"));
    too_new(&SqliteStore::open(bench.path()).expect_err("it must not even read"));

    set(LATEST);
    let counts = bench.session.counts().expect("no fault");
    assert_eq!(counts.iter().map(|count| count.count).sum::<u64>(), 2);
    assert_eq!(bench.state(held.id), JobState::Leased);
    assert_eq!(bench.claim(9).len(), 1);
}
