//! Keys: what a claim among them costs, what they ask of locks, and a caller's own transaction.

use super::*;
use crate::store::sqlite::{claim, keyed, work};
use crate::store::{Admission, JobFilter, Page, RequeueAnswer};
use rusqlite::TransactionBehavior;

fn concurrent(key: &str) -> JobRow {
    JobRow { concurrency_key: Some(key.to_owned()), ..job() }
}

fn unique(key: &str) -> JobRow {
    JobRow { unique_key: Some(key.to_owned()), ..job() }
}

fn told(answer: EnqueueAnswer) -> Vec<Admission> {
    match answer {
        EnqueueAnswer::Accepted { jobs, .. } => jobs,
        rejected => panic!("{rejected:?}"),
    }
}

#[test]
fn a_claim_that_finds_only_blocked_keys_takes_no_write_lock() {
    let mut bench = Bench::new();
    bench.enqueue_all(&(0..200).map(|_| concurrent("a")).collect::<Vec<_>>());
    assert_eq!(bench.claim(5).len(), 1);
    let mut host = bench.host();
    let lock = host.transaction_with_behavior(TransactionBehavior::Immediate).expect("the lock");
    let claimed = bench.claim_from(&[("default", 5)], 5, true);
    assert_eq!((claimed.jobs.len(), claimed.withheld, claimed.next_due), (0, true, None));
    drop(lock);
}

/// How many steps of the engine a claim of nine takes, and how many jobs it gets.
fn steps_of_a_claim(bench: &mut Bench) -> (i32, usize) {
    let conn = bench.host();
    let store = &bench.store.0;
    let plan = [QueueQuota { queue: "default".to_owned(), quota: 9 }];
    let accepts = [Accepts { wire_name: "job".to_owned(), version_max: 1 }];
    let claim = Claim::new(bench.worker, 9, &plan, &accepts, LEASE);
    conn.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let mut work = work::Work::begin(&conn, store).expect("no fault");
    let jobs = claim::take(&mut work, &claim).expect("no fault").jobs.len();
    conn.execute_batch("COMMIT").expect("no fault");
    // Each statement is prepared anew for this connection, and lives in its cache.
    let steps = keyed::STATEMENTS.iter().map(|sql| {
        let statement = conn.prepare_cached(sql).expect("it is SQL");
        statement.get_status(rusqlite::StatementStatus::VmStep)
    });
    (steps.sum(), jobs)
}

#[test]
fn a_claim_does_not_wade_through_a_hundred_thousand_of_a_key_that_runs() {
    let mut bench = Bench::new();
    bench.enqueue(concurrent("a"));
    assert_eq!(bench.claim(1).len(), 1);
    for _ in 0..20 {
        bench.enqueue_all(&(0..5_000).map(|_| concurrent("a")).collect::<Vec<_>>());
    }
    bench.advance(Duration::from_secs(1));
    let mut behind: Vec<_> = (0..50).map(|key| concurrent(&format!("b{key}"))).collect();
    behind.extend([job(), job()]);
    bench.enqueue_all(&behind);
    let mut taken = 0;
    for _ in 0..7 {
        let (steps, jobs) = steps_of_a_claim(&mut bench);
        assert!(steps < 20_000, "a claim took {steps} steps of the engine");
        taken += jobs;
    }
    assert_eq!(taken, behind.len());
}

#[test]
fn a_key_that_many_jobs_are_blocked_by_is_one_step_of_the_walk_and_the_order_stays() {
    let mut bench = Bench::new();
    bench.enqueue(concurrent("a"));
    assert_eq!(bench.claim(1).len(), 1);
    bench.enqueue_all(&(0..300).map(|_| concurrent("a")).collect::<Vec<_>>());
    bench.advance(Duration::from_secs(1));
    // Keys in an order that is not that of their jobs.
    let rows: Vec<_> = ["z", "-", "m", "a", "z", "-", "b"]
        .into_iter()
        .map(|key| {
            bench.advance(Duration::from_millis(1));
            let row = if key == "-" { job() } else { concurrent(key) };
            bench.enqueue(row.clone());
            row.id
        })
        .collect();
    let claimed = bench.claim_from(&[("default", 2)], 4, true);
    assert_eq!(ids(&claimed.jobs), [rows[0], rows[1], rows[2], rows[5]]);
    assert_eq!(ids(&bench.claim(9)), [rows[6]]);
    assert!(bench.claim_from(&[("default", 2)], 4, true).withheld);
}

#[test]
fn in_a_callers_transaction_a_key_is_taken_once_and_free_again_after_a_rollback() {
    let mut bench = Bench::new();
    let mut host = bench.host();
    let (first, second) = (unique("k"), unique("k"));
    let tx = host.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
    let rows = [first.clone(), second.clone()];
    let held = Admission::Held { by: first.id, state: JobState::Scheduled };
    let answer = bench.store.enqueue_rows_in(&tx, &rows).expect("no fault");
    assert_eq!(told(answer), [Admission::New, held]);
    let answer = bench.store.enqueue_rows_in(&tx, std::slice::from_ref(&second)).expect("no fault");
    assert_eq!(told(answer), [held]);
    tx.rollback().expect("no fault");
    assert_eq!(
        told(bench.session.enqueue(std::slice::from_ref(&second)).expect("no fault")),
        [Admission::New]
    );
    let found = bench.session.find(&JobFilter::new().unique_key("k"), &Page::new(9));
    let found: Vec<_> = found.expect("no fault").jobs.iter().map(|job| job.id).collect();
    assert_eq!(found, [second.id]);
}

#[test]
fn the_view_shows_keys_and_what_is_deleted_by_hand_frees_them() {
    let mut bench = Bench::new();
    let row = JobRow { concurrency_key: Some("c".to_owned()), ..unique("k") };
    bench.enqueue(row.clone());
    let view = "SELECT unique_key, concurrency_key FROM backwave_jobs_v2";
    let shown = bench.host().query_row(view, [], |row| Ok((row.get(0)?, row.get(1)?)));
    assert_eq!(shown, Ok(("k".to_owned(), "c".to_owned())));
    bench.host().execute("DELETE FROM backwave_jobs", []).expect("no fault");
    let next = unique("k");
    assert_eq!(
        told(bench.session.enqueue(std::slice::from_ref(&next)).expect("no fault")),
        [Admission::New]
    );
    assert_eq!(bench.session.requeue("ada", row.id).expect("no fault"), RequeueAnswer::NotFound);
}
