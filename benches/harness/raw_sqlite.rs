//! The plainest loop over the SQLite tables: one connection, one transaction per batch, no threads. It
//! does for each job what a lease needs (owner, expiry, attempt; the fence on them), and nothing else: no
//! receipts, no failure counts, no checks of what was read.

use super::run::{self, Pace, Stopwatch};
use backwave::rusqlite::config::DbConfig;
use backwave::rusqlite::{Connection, Transaction, TransactionBehavior, params};
use backwave::store::sqlite::Synchronous;
use backwave::{JobId, Timestamp, WorkerId};
use std::path::Path;
use std::time::SystemTime;

const LEASE_US: i64 = 60_000_000;

fn connect(folder: &Path, synchronous: Synchronous) -> Connection {
    let conn = Connection::open(folder.join("jobs.db")).expect("the file opens");
    // As on our own connections: without it the claim is planned anew at every call.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).expect("it has this setting");
    let synchronous = if synchronous == Synchronous::Normal { "NORMAL" } else { "FULL" };
    conn.execute_batch(&format!(
        "PRAGMA synchronous = {synchronous}; PRAGMA cache_size = -16384; \
         PRAGMA temp_store = MEMORY; PRAGMA foreign_keys = ON;"
    ))
    .expect("it has these settings");
    conn
}

fn begin(conn: &mut Connection) -> Transaction<'_> {
    conn.transaction_with_behavior(TransactionBehavior::Immediate).expect("nobody else writes")
}

fn now_us() -> i64 {
    Timestamp::from(SystemTime::now()).as_micros()
}

pub(crate) fn enqueue(folder: &Path, synchronous: Synchronous, jobs: usize, batch: usize) -> Pace {
    let mut conn = connect(folder, synchronous);
    let ids = run::ids(jobs);
    let watch = Stopwatch::start(jobs);
    for (number, ids) in ids.chunks(batch).enumerate() {
        let tx = begin(&mut conn);
        let mut insert = tx
            .prepare_cached(
                "INSERT INTO backwave_jobs (id, queue, wire_name, version, state, due_at, created_at, \
                        payload_bytes, payload) \
                 VALUES (?1, ?2, ?3, 1, 0, ?4, ?4, length(?5), ?5)",
            )
            .expect("it is SQL");
        for (index, id) in ids.iter().enumerate() {
            let payload = run::payload(number * batch + index);
            let row = params![id.as_bytes(), run::QUEUE, run::NAME, now_us(), payload.as_bytes()];
            insert.execute(row).expect("it is new");
        }
        drop(insert);
        tx.commit().expect("committed");
    }
    watch.stop()
}

pub(crate) fn drain(folder: &Path, synchronous: Synchronous, jobs: usize, batch: usize) -> Pace {
    let mut conn = connect(folder, synchronous);
    let me = WorkerId::new();
    let (mut held, mut done) = (Vec::new(), 0);
    let watch = Stopwatch::start(jobs);
    loop {
        let tx = begin(&mut conn);
        settle(&tx, &me, &held);
        held = take(&tx, &me, batch);
        tx.commit().expect("committed");
        done += held.len();
        if held.is_empty() {
            assert_eq!(done, jobs, "all of them");
            return watch.stop();
        }
    }
}

type Held = (i64, JobId, u32, Vec<u8>);

fn settle(tx: &Transaction<'_>, me: &WorkerId, held: &[Held]) {
    let mut settle = tx
        .prepare_cached(
            "UPDATE backwave_jobs SET state = 3, owner = NULL, expiry = NULL, finished_at = ?4 \
              WHERE seq = ?1 AND owner = ?2 AND attempt = ?3 AND expiry > ?4",
        )
        .expect("it is SQL");
    let now = now_us();
    for (seq, _, attempt, _) in held {
        let touched = settle.execute(params![seq, me.as_bytes(), attempt, now]).expect("written");
        assert_eq!(touched, 1, "the lease is held");
    }
}

fn take(tx: &Transaction<'_>, me: &WorkerId, batch: usize) -> Vec<Held> {
    let now = now_us();
    let mut due = tx
        .prepare_cached(
            "SELECT seq, id, attempt + 1, payload FROM backwave_jobs \
              WHERE state = 0 AND concurrency_key IS NULL AND queue = ?1 AND due_at <= ?2 \
              ORDER BY due_at, id LIMIT ?3",
        )
        .expect("it is SQL");
    let rows = due
        .query_map(params![run::QUEUE, now, batch as i64], |row| {
            let id = JobId::from_bytes(row.get(1)?);
            Ok((row.get(0)?, id, row.get(2)?, row.get(3)?))
        })
        .expect("read");
    let taken: Vec<Held> = rows.collect::<Result<_, _>>().expect("read");
    let mut lease = tx
        .prepare_cached(
            "UPDATE backwave_jobs SET state = 2, owner = ?2, expiry = ?3, attempt = attempt + 1 \
              WHERE seq = ?1",
        )
        .expect("it is SQL");
    for (seq, ..) in &taken {
        lease.execute(params![seq, me.as_bytes(), now + LEASE_US]).expect("written");
    }
    taken
}
