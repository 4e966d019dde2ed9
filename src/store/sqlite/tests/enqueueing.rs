use super::*;
use crate::RetryPolicy;
use crate::store::sqlite::SqliteFault;
use crate::store::{Admission, Body, Due, Rejection, StoreError};
use rusqlite::{Connection, TransactionBehavior};

#[test]
fn everything_asked_for_reads_back() {
    let mut bench = Bench::new();
    let mut row = job_in("q'; DROP TABLE backwave_jobs; --\"");
    row.version = 1;
    row.payload = Body::new(br#"{"text":"a\u0000b"}"#.to_vec());
    row.due = Due::In(Duration::from_micros(1_500_000));
    row.retry = Some(RetryPolicy::new(3).fixed(Duration::from_secs(7)));
    row.timeout = Some(Duration::from_micros(2_000_001));
    row.tags = vec!["a \"tag\"".to_owned(), "été".to_owned()];
    bench.enqueue(row.clone());
    assert_eq!(bench.record(row.id), crate::store::JobRecord::new(&row, bench.now()));
    assert_eq!(bench.record(row.id).due_at, bench.now() + Duration::from_micros(1_500_000));

    bench.advance(Duration::from_secs(2));
    let claimed = bench.claim_from(&[(row.queue.as_str(), 5)], 5, true).jobs;
    let [claimed] = claimed.as_slice() else { panic!("{claimed:?}") };
    assert_eq!(
        (&claimed.queue, &claimed.payload, &claimed.tags),
        (&row.queue, &row.payload, &row.tags)
    );
    assert_eq!((claimed.retry, claimed.timeout), (row.retry, row.timeout));
}

#[test]
fn payloads_of_every_size_and_byte_come_back_as_they_were() {
    let mut bench = Bench::new();
    let bodies = [0, 1, 1023, 1024, 1025, 64 * 1024]
        .map(|size| (0..size).map(|index| (index % 256) as u8).collect::<Vec<u8>>());
    let rows = bodies.clone().map(|bytes| {
        let mut row = job();
        row.payload = Body::new(bytes);
        row
    });
    bench.enqueue_all(&rows);
    let claimed = bench.claim(10);
    assert_eq!(claimed.len(), bodies.len());
    for ((row, bytes), claimed) in rows.iter().zip(bodies).zip(claimed) {
        assert_eq!(bench.record(row.id).payload.as_bytes(), bytes);
        assert_eq!(claimed.payload.into_bytes(), bytes);
    }
}

#[test]
fn a_lease_does_not_rewrite_a_long_payload() {
    let mut bench = Bench::new();
    let mut row = job();
    row.payload = Body::new(vec![b' '; 64 * 1024]);
    bench.enqueue(row);
    let host = bench.host();
    let wal_frames = || -> i64 {
        let log: (i64, i64, i64) = host
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })
            .expect("a checkpoint");
        assert_eq!(log.0, 0, "nobody is in the way");
        std::fs::metadata(bench.folder.path().join("jobs.db-wal")).map_or(0, |wal| wal.len() as i64)
    };
    assert_eq!(wal_frames(), 0);
    let plan = [QueueQuota { queue: "default".to_owned(), quota: 1 }];
    let accepts = [Accepts { wire_name: "job".to_owned(), version_max: 1 }];
    let claim = Claim::new(bench.worker, 1, &plan, &accepts, LEASE);
    assert_eq!(bench.session.claim(&claim).expect("no fault").jobs.len(), 1);
    let bytes = std::fs::metadata(bench.folder.path().join("jobs.db-wal")).expect("a WAL").len();
    assert!(bytes < 48 * 1024, "a claim of one job wrote {bytes} bytes");
}

#[test]
fn an_id_that_exists_is_left_as_it_is_also_twice_in_one_call() {
    let mut bench = Bench::new();
    let first = job();
    let mut again = first.clone();
    again.wire_name = "other".to_owned();
    again.payload = Body::new(vec![b'x'; 5000]);
    let other = job();
    let calls = [other.clone(), first.clone(), again.clone()];
    assert_eq!(bench.enqueue_all(&calls), [true, true, false]);
    assert_eq!(bench.enqueue_all(&[again]), [false]);
    assert_eq!(bench.record(first.id).wire_name, "job");
    assert_eq!(bench.record(first.id).payload, first.payload);
    assert_eq!(bench.enqueue_all(&[]), [false; 0]);
}

#[test]
fn one_rejected_job_fails_the_call_and_takes_no_lock() {
    let mut bench = Bench::new();
    let mut large = job();
    large.payload = Body::new(vec![b' '; 64 * 1024 + 1]);
    let good = job();
    let mut host = bench.host();
    let holder = host.transaction_with_behavior(TransactionBehavior::Immediate).expect("the lock");
    let answer = bench.session.enqueue(&[good.clone(), large]).expect("no fault");
    let limit = 64 * 1024;
    let reason = Rejection::PayloadTooLarge { bytes: limit + 1, limit };
    assert_eq!(answer, EnqueueAnswer::Rejected { index: 1, reason });
    drop(holder);
    assert_eq!(bench.session.job(good.id).expect("no fault"), None);
}

#[test]
fn a_job_enqueued_in_the_callers_transaction_exists_if_it_commits() {
    let mut bench = Bench::new();
    let mut host = bench.host();
    for commits in [false, true] {
        let row = job();
        let tx = host.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
        let mut long = job();
        long.payload = Body::new(vec![b'1'; 3000]);
        let rows = [row.clone(), long.clone(), row.clone()];
        let answer = bench.store.enqueue_rows_in(&tx, &rows).expect("no fault");
        let EnqueueAnswer::Accepted { jobs, store_time } = answer else { panic!("{answer:?}") };
        let expected = vec![Admission::New, Admission::New, Admission::Duplicate];
        assert_eq!((jobs, store_time), (expected, bench.now()));
        assert_eq!(bench.session.job(row.id).expect("no fault"), None, "not committed yet");
        if commits {
            tx.commit().expect("committed");
            assert_eq!(bench.record(long.id).payload, long.payload);
        } else {
            tx.rollback().expect("rolled back");
        }
        assert_eq!(bench.session.job(row.id).expect("no fault").is_some(), commits);
    }
}

#[test]
fn a_transaction_on_another_file_or_in_memory_is_refused() {
    let bench = Bench::new();
    let other = Bench::new();
    for conn in [other.host(), Connection::open_in_memory().expect("a connection")] {
        let error = bench.store.enqueue_rows_in(&conn, &[job()]).expect_err("another file");
        let fault = error.downcast_ref::<SqliteFault>();
        assert!(matches!(fault, Some(SqliteFault::OtherFile { .. })), "{error}");
    }
    // The same file by another way is the same file.
    let link = bench.folder.path().join("link.db");
    #[cfg(unix)]
    std::os::unix::fs::symlink(bench.path(), &link).expect("a link");
    #[cfg(unix)]
    assert!(bench.store.enqueue_rows_in(&Connection::open(&link).expect("open"), &[job()]).is_ok());
}

#[test]
fn a_transaction_that_began_as_a_reader_is_told_to_begin_immediate() {
    let mut bench = Bench::new();
    let mut host = bench.host();
    host.busy_timeout(Duration::ZERO).expect("set");
    let says_so = |error: &StoreError| {
        let fault = error.downcast_ref::<SqliteFault>();
        assert!(matches!(fault, Some(SqliteFault::NotImmediate(_))), "{error}");
        assert!(error.to_string().contains("begin it IMMEDIATE"), "{error}");
    };

    let tx = host.transaction().expect("begun");
    let count = |tx: &Connection| -> i64 {
        tx.query_row("SELECT count(*) FROM backwave_jobs", [], |row| row.get(0)).expect("a count")
    };
    assert_eq!(count(&tx), 0);
    bench.enqueue(job());
    let error = bench.store.enqueue_rows_in(&tx, &[job()]).expect_err("its snapshot is old");
    assert_eq!(error.code(), Some("SQLITE_BUSY_SNAPSHOT, 517"));
    says_so(&error);
    assert_eq!(count(&tx), 0, "the caller's transaction still reads");
    drop(tx);

    let mut holder = bench.host();
    let lock = holder.transaction_with_behavior(TransactionBehavior::Immediate).expect("the lock");
    let tx = host.transaction().expect("begun");
    let error = bench.store.enqueue_rows_in(&tx, &[job()]).expect_err("somebody writes");
    assert_eq!(error.code(), Some("SQLITE_BUSY, 5"));
    says_so(&error);
    drop((tx, lock));
}

#[test]
fn a_fault_in_the_callers_transaction_leaves_nothing_of_the_call() {
    let mut bench = Bench::new();
    let mut host = bench.host();
    let (first, second) = (job(), job_in("stop"));
    host.execute_batch(
        "CREATE TEMP TRIGGER stop BEFORE INSERT ON main.backwave_jobs WHEN new.queue = 'stop' \
         BEGIN SELECT raise(ABORT, 'stopped'); END",
    )
    .expect("a trigger");
    let tx = host.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
    let rows = [first.clone(), second];
    assert!(bench.store.enqueue_rows_in(&tx, &rows).is_err());
    tx.commit().expect("the transaction is the caller's still");
    assert_eq!(bench.session.job(first.id).expect("no fault"), None);
}
