use super::*;
use crate::store::sqlite::migrate::LATEST;
use crate::store::sqlite::work::Work;
use crate::store::sqlite::{SqliteFault, Synchronous};
use crate::store::{FaultClass, StoreError, classify};
use std::path::Path;
use std::process::Command;
use std::sync::Barrier;

fn fault(error: &StoreError) -> &SqliteFault {
    error.downcast_ref().unwrap_or_else(|| panic!("{error}"))
}

#[test]
fn twelve_threads_may_open_a_missing_file_at_once() {
    for _ in 0..5 {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("jobs.db");
        let gate = Barrier::new(12);
        std::thread::scope(|scope| {
            for _ in 0..12 {
                scope.spawn(|| {
                    gate.wait();
                    let store = SqliteStore::open(&path).expect("a store");
                    let mut session = store.open_session().expect("a session");
                    session.enqueue(&[job()]).expect("no fault");
                });
            }
        });
        let store = SqliteStore::open(&path).expect("a store");
        let counts = store.open_session().expect("a session").counts().expect("no fault");
        assert_eq!(counts.len(), 1);
        assert_eq!(counts[0].count, 12);
    }
}

const CHILD_PATH: &str = "BACKWAVE_TEST_SQLITE_PATH";

#[test]
fn several_processes_may_open_a_missing_file_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("jobs.db");
    let children: Vec<_> = (0..6)
        .map(|_| {
            Command::new(std::env::current_exe().expect("this program"))
                .args(["--exact", "store::sqlite::tests::files::a_child_opens_and_enqueues"])
                .arg("--ignored")
                .env(CHILD_PATH, &path)
                .output_in_thread()
        })
        .collect();
    for child in children {
        let output = child.join().expect("no panic").expect("it ran");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    let store = SqliteStore::open(&path).expect("a store");
    let counts = store.open_session().expect("a session").counts().expect("no fault");
    assert_eq!(counts[0].count, 6);
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn a_child_opens_and_enqueues() {
    let path = std::env::var_os(CHILD_PATH).expect("the path is given");
    let store = SqliteStore::open(path).expect("a store");
    store.open_session().expect("a session").enqueue(&[job()]).expect("no fault");
}

trait OutputInThread {
    fn output_in_thread(
        &mut self,
    ) -> std::thread::JoinHandle<std::io::Result<std::process::Output>>;
}

impl OutputInThread for Command {
    fn output_in_thread(
        &mut self,
    ) -> std::thread::JoinHandle<std::io::Result<std::process::Output>> {
        use std::process::Stdio;
        let child = self.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        std::thread::spawn(|| child?.wait_with_output())
    }
}

#[test]
fn a_newer_schema_is_refused_and_a_newer_one_that_still_serves_us_is_not() {
    let bench = Bench::new();
    let host = bench.host();
    host.execute("UPDATE backwave_meta SET version = 9, min_reader = 1", []).expect("set");
    assert!(SqliteStore::open(bench.path()).is_ok());
    host.execute("UPDATE backwave_meta SET min_reader = 8", []).expect("set");
    let error = SqliteStore::open(bench.path()).expect_err("it needs a later release");
    let SqliteFault::SchemaTooNew { version, min_reader, known, .. } = fault(&error) else {
        panic!("{error}");
    };
    assert_eq!((*version, *min_reader, *known), (9, 8, LATEST));
    let error = bench.store.open_session().err().expect("an open store is refused too");
    assert!(matches!(fault(&error), SqliteFault::SchemaTooNew { .. }));
}

#[test]
fn a_version_row_that_is_gone_is_a_violation() {
    let bench = Bench::new();
    bench.host().execute("DELETE FROM backwave_meta", []).expect("deleted");
    let error = SqliteStore::open(bench.path()).expect_err("nothing says what the schema is");
    assert_eq!(error.trigger(), Some(crate::invariant::InvariantTrigger::GuaranteedRowAbsent));
}

#[test]
fn the_hosts_tables_may_live_in_the_same_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("app.db");
    let host = rusqlite::Connection::open(&path).expect("a connection");
    host.execute_batch("CREATE TABLE jobs (id); PRAGMA user_version = 77").expect("made");
    SqliteStore::open(&path).expect("a store");
    let version: i64 =
        host.query_row("PRAGMA user_version", [], |row| row.get(0)).expect("a version");
    assert_eq!(version, 77);
}

#[test]
fn what_is_no_database_of_ours_is_refused_for_good() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = folder.path().join("text");
    std::fs::write(
        &text,
        "this is no database, but it is long enough to be read as one".repeat(20),
    )
    .expect("written");
    let error = SqliteStore::open(&text).expect_err("not a database");
    assert_eq!(error.code(), Some("SQLITE_NOTADB, 26"));
    let error = SqliteStore::open(folder.path().join("no/such.db")).expect_err("no folder");
    assert_eq!(error.code(), Some("SQLITE_CANTOPEN, 14"));
    assert_eq!(classify(&error, Some(&super::super::fault::Classifier)), FaultClass::Fatal);

    let wide = folder.path().join("wide.db");
    let host = rusqlite::Connection::open(&wide).expect("a connection");
    host.execute_batch("PRAGMA encoding = 'UTF-16'; CREATE TABLE t (x)").expect("made");
    let error = SqliteStore::open(&wide).expect_err("not UTF-8");
    assert!(matches!(fault(&error), SqliteFault::Encoding { .. }), "{error}");
}

#[test]
fn a_session_works_under_its_settings() {
    let folder = tempfile::tempdir().expect("a folder");
    for (synchronous, number) in [(Synchronous::Full, 2), (Synchronous::Normal, 1)] {
        let path = folder.path().join("jobs.db");
        let store = SqliteStore::builder(&path).synchronous(synchronous).open().expect("a store");
        let (conn, _) = super::super::open::session(&store.0).expect("a session");
        let set = |pragma: &str| -> String {
            conn.query_row(&format!("PRAGMA {pragma}"), [], |row| {
                row.get::<_, rusqlite::types::Value>(0).map(|value| format!("{value:?}"))
            })
            .expect("a setting")
        };
        assert_eq!(set("synchronous"), format!("Integer({number})"));
        assert_eq!(set("foreign_keys"), "Integer(1)");
        assert_eq!(set("journal_mode"), "Text(\"wal\")");
        assert_eq!(set("busy_timeout"), "Integer(5000)");
    }
}

#[test]
fn handles_on_one_file_meet_in_one_hub() {
    let bench = Bench::new();
    let seen = bench.store.hub().settled_count();
    SqliteStore::open(bench.path()).expect("a second handle").hub().settled();
    assert_eq!(bench.store.hub().settled_count(), seen + 1);
}

#[cfg(unix)]
#[test]
fn a_file_that_was_replaced_or_removed_is_noticed_by_name() {
    let names = ["jobs.db", "jobs.db-wal", "jobs.db-shm"];
    for (name, replaced) in names.into_iter().flat_map(|name| [(name, false), (name, true)]) {
        let bench = Bench::new();
        let (conn, identity) = super::super::open::session(&bench.store.0).expect("a session");
        identity.check(bench.store.path()).expect("all is there");
        let path = bench.folder.path().join(name);
        std::fs::rename(&path, bench.folder.path().join("away")).expect("moved");
        if replaced {
            std::fs::copy(bench.folder.path().join("away"), &path).expect("copied");
        }
        let error = StoreError::from(identity.check(bench.store.path()).expect_err(name));
        let shown = Path::new(bench.store.path()).with_file_name(name);
        assert!(error.to_string().contains(&format!("{shown:?}")), "{error}");
        assert_eq!(classify(&error, bench.store.fault_classifier()), FaultClass::Fatal);
        drop(conn);
    }
}

#[cfg(unix)]
#[test]
fn no_session_is_opened_on_another_file_and_none_is_made_in_its_place() {
    let bench = Bench::new();
    std::fs::remove_file(bench.path()).expect("removed");
    let error = bench.store.open_session().err().expect("it is gone");
    assert!(matches!(fault(&error), SqliteFault::FileReplaced { .. }), "{error}");
    assert!(!bench.path().exists(), "no empty database in its place");
    SqliteStore::open(bench.path()).expect("another store there is another matter");
    let error = bench.store.open_session().err().expect("it is another file");
    assert!(matches!(fault(&error), SqliteFault::FileReplaced { .. }), "{error}");
}

#[test]
fn an_error_leaves_no_transaction_behind() {
    let mut bench = Bench::new();
    bench
        .host()
        .execute_batch("ALTER TABLE backwave_jobs RENAME COLUMN tags TO labels")
        .expect("set");
    assert!(bench.session.enqueue(&[job()]).is_err());
    let mut host = bench.host();
    host.busy_timeout(Duration::ZERO).expect("set");
    host.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .expect("nobody holds the write lock");
}

#[test]
fn a_full_disk_is_transient_and_nothing_of_the_write_stays() {
    let mut bench = Bench::new();
    let (mut conn, _) = super::super::open::session(&bench.store.0).expect("a session");
    let pages: i64 = conn.query_row("PRAGMA page_count", [], |row| row.get(0)).expect("a count");
    let bound = format!("PRAGMA max_page_count = {}", pages + 2);
    conn.query_row(&bound, [], |_| Ok(())).expect("a bound stands for the disk");
    let mut large = job();
    large.payload = crate::store::Body::new(vec![b' '; 64 * 1024]);
    let rows = [job(), large];
    let behavior = rusqlite::TransactionBehavior::Immediate;
    let tx = conn.transaction_with_behavior(behavior).expect("begun");
    let mut work = Work::begin(&tx, &bench.store.0).expect("begun");
    let error = super::super::enqueue::insert(&mut work, &rows).expect_err("no room");
    drop(tx);
    assert_eq!(error.code(), Some("SQLITE_FULL, 13"));
    assert_eq!(classify(&error, bench.store.fault_classifier()), FaultClass::Transient);
    assert!(conn.is_autocommit());
    assert_eq!(bench.session.job(rows[0].id).expect("no fault"), None);
}
