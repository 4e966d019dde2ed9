use super::*;
use crate::invariant::InvariantTrigger;
use crate::store::{Body, Due};
use rusqlite::TransactionBehavior;

#[test]
fn jobs_come_in_order_of_due_time_and_then_of_id_not_of_arrival() {
    let mut bench = Bench::new();
    let at = |seconds: i64| Due::At(Timestamp::from_micros(START - seconds * 1_000_000));
    let mut rows: Vec<JobRow> = (0..6).map(|_| job()).collect();
    for (row, seconds) in rows.iter_mut().zip([1, 1, 1, 2, 3, 0]) {
        row.due = at(seconds);
    }
    let expected = [4, 3, 0, 1, 2, 5].map(|index: usize| rows[index].id);
    rows.reverse();
    bench.enqueue_all(&rows);
    let claimed = bench.claim(4);
    assert_eq!(ids(&claimed), expected[..4]);
    assert_eq!(ids(&bench.claim(4)), expected[4..]);
    for job in claimed {
        assert_eq!((job.attempt, job.failures, job.owner), (1, 0, Some(bench.worker)));
        assert_eq!((job.state_before, job.state), (JobState::Scheduled, JobState::Leased));
        assert_eq!(job.expiry, bench.now() + LEASE);
    }
}

#[test]
fn quotas_come_first_and_a_second_pass_fills_up() {
    let mut bench = Bench::new();
    let a: Vec<_> = (0..5).map(|_| bench.enqueue(job_in("a"))).collect();
    let b: Vec<_> = (0..3).map(|_| bench.enqueue(job_in("b"))).collect();
    let plan = [("b", 1), ("a", 2), ("none", 9)];

    let strict = bench.claim_from(&plan, 10, false).jobs;
    assert_eq!(ids(&strict), [b[0], a[0], a[1]]);
    let spilled = bench.claim_from(&plan, 5, true).jobs;
    assert_eq!(ids(&spilled), [b[1], a[2], a[3], b[2], a[4]]);
}

#[test]
fn a_queue_named_twice_gives_each_job_once() {
    let mut bench = Bench::new();
    let jobs: Vec<_> = (0..4).map(|_| bench.enqueue(job())).collect();
    let claimed = bench.claim_from(&[("default", 1), ("default", 2)], 9, true).jobs;
    assert_eq!(ids(&claimed), jobs);
}

#[test]
fn the_byte_bound_withholds_in_order_and_always_allows_one() {
    let mut bench = Bench::new();
    let sized = |size: usize| {
        let mut row = job();
        row.payload = Body::new(vec![b'1'; size]);
        row
    };
    let rows = [sized(3000), sized(100), sized(2000), sized(1)];
    bench.enqueue_all(&rows);
    let plan = [QueueQuota { queue: "default".to_owned(), quota: 4 }];
    let accepts = [Accepts { wire_name: "job".to_owned(), version_max: 1 }];
    let mut claim = Claim::new(bench.worker, 4, &plan, &accepts, LEASE);
    claim.bytes_max = 2100;
    let mut taken = Vec::new();
    for expected in [vec![0], vec![1, 2], vec![3]] {
        let claimed = bench.session.claim(&claim).expect("no fault");
        assert_eq!(
            ids(&claimed.jobs),
            expected.iter().map(|i: &usize| rows[*i].id).collect::<Vec<_>>()
        );
        taken.push(claimed.withheld);
    }
    assert_eq!(taken, [true, true, false]);
}

#[test]
fn only_accepted_names_and_versions_are_taken_and_foreign_ones_are_stepped_over() {
    let mut bench = Bench::new();
    let mut foreign = job();
    foreign.wire_name = "$.a\"b".to_owned();
    let mut newer = job();
    newer.version = 2;
    let ours = job();
    bench.enqueue_all(&[foreign.clone(), newer.clone(), ours.clone()]);
    assert_eq!(ids(&bench.claim(9)), [ours.id]);

    let plan = [QueueQuota { queue: "default".to_owned(), quota: 9 }];
    let accepts = [("$.a\"b", 1), ("job", 2), ("job", 1)]
        .map(|(name, version_max)| Accepts { wire_name: name.to_owned(), version_max });
    let claim = Claim::new(bench.worker, 9, &plan, &accepts, LEASE);
    let claimed = bench.session.claim(&claim).expect("no fault").jobs;
    assert_eq!(ids(&claimed), [foreign.id, newer.id]);
    assert_eq!(claimed[1].version, 2);
}

#[test]
fn the_next_due_time_is_told_when_fewer_were_found() {
    let mut bench = Bench::new();
    let later = |seconds, name: &str| {
        let mut row = JobRow::new(JobId::new(), name);
        row.due = Due::In(Duration::from_secs(seconds));
        row
    };
    let plan = [("default", 1)];
    assert_eq!(bench.claim_from(&plan, 3, true).next_due, None);
    bench.enqueue_all(&[later(1, "foreign"), later(5, "job"), later(9, "job")]);
    let due = bench.now() + Duration::from_secs(5);
    assert_eq!(bench.claim_from(&plan, 3, true).next_due, Some(due), "idle");
    bench.enqueue_all(&[job(), job()]);
    let answer = bench.claim_from(&plan, 3, false);
    assert_eq!((answer.jobs.len(), answer.next_due), (1, Some(due)), "a quota ended the walk");
    let answer = bench.claim_from(&plan, 1, true);
    assert_eq!((answer.jobs.len(), answer.next_due), (1, None), "as many as asked for");
    assert_eq!(bench.claim_from(&plan, 0, true), Claimed::new(Vec::new(), bench.now()));
    bench.advance(Duration::from_secs(5));
    let answer = bench.claim_from(&plan, 3, true);
    assert_eq!((answer.jobs.len(), answer.next_due), (1, Some(due + Duration::from_secs(4))));
}

#[test]
fn an_idle_claim_or_an_empty_batch_takes_no_write_lock() {
    let mut bench = Bench::new();
    let mut foreign = job();
    foreign.wire_name = "foreign".to_owned();
    bench.enqueue(foreign);
    let mut host = bench.host();
    let lock = host.transaction_with_behavior(TransactionBehavior::Immediate).expect("the lock");
    assert_eq!(bench.claim(5), []);
    bench.enqueue_all(&[]);
    assert!(bench.session.report(&[]).expect("no lock").rows.is_empty());
    assert!(bench.session.renew(bench.worker, &[], LEASE).expect("no lock").rows.is_empty());
    assert!(bench.session.hand_back(bench.worker, &[]).expect("no lock").rows.is_empty());
    let plan = [QueueQuota { queue: "default".to_owned(), quota: 4 }];
    let accepts = [Accepts { wire_name: "foreign".to_owned(), version_max: 1 }];
    let claim = Claim::new(bench.worker, 1, &plan, &accepts, LEASE);
    let error = bench.session.claim(&claim).expect_err("this one needs the lock");
    assert_eq!(error.code(), Some("SQLITE_BUSY, 5"));
    assert!(!error.session_lost());
    assert!(bench.store.fault_classifier().expect("there is one").is_transient_fault(&error));
    drop(lock);
    assert_eq!(bench.session.claim(&claim).expect("no fault").jobs.len(), 1);
}

#[test]
fn each_job_goes_to_one_of_many_claimers() {
    let mut bench = Bench::new();
    let rows: Vec<_> = (0..400).map(|_| job()).collect();
    bench.enqueue_all(&rows);
    let builder = SqliteStore::builder(bench.path()).clock(bench.clock.clone());
    let store = builder.open().expect("a second handle");
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let store = store.clone();
            std::thread::spawn(move || {
                let mut session = store.open_session().expect("a session");
                let plan = [QueueQuota { queue: "default".to_owned(), quota: 7 }];
                let accepts = [Accepts { wire_name: "job".to_owned(), version_max: 1 }];
                let worker = WorkerId::new();
                let claim = Claim::new(worker, 7, &plan, &accepts, LEASE);
                let mut taken = Vec::new();
                loop {
                    let jobs = session.claim(&claim).expect("no fault").jobs;
                    if jobs.is_empty() {
                        return taken;
                    }
                    taken.extend(ids(&jobs));
                }
            })
        })
        .collect();
    let mut taken: Vec<_> = threads.into_iter().flat_map(|t| t.join().expect("no panic")).collect();
    taken.sort();
    let mut expected: Vec<_> = rows.iter().map(|row| row.id).collect();
    expected.sort();
    assert_eq!(taken, expected);
}

/// What a claim of one job from the queue `default` is told.
fn claim_trigger(bench: &mut Bench) -> Option<InvariantTrigger> {
    let plan = [QueueQuota { queue: "default".to_owned(), quota: 9 }];
    let accepts = [Accepts { wire_name: "job".to_owned(), version_max: 1 }];
    let claim = Claim::new(bench.worker, 9, &plan, &accepts, LEASE);
    bench.session.claim(&claim).expect_err("a violation").trigger()
}

#[test]
fn a_long_payload_that_is_gone_is_a_violation_and_takes_nothing() {
    let mut bench = Bench::new();
    for _ in 0..2 {
        let mut row = job();
        row.payload = Body::new(vec![b' '; 64 * 1024]);
        bench.enqueue(row);
    }
    // First one of two is gone, then both.
    for _ in 0..2 {
        let lose =
            "DELETE FROM backwave_payloads WHERE seq = (SELECT min(seq) FROM backwave_payloads)";
        assert_eq!(bench.host().execute(lose, []), Ok(1));
        assert_eq!(claim_trigger(&mut bench), Some(InvariantTrigger::GuaranteedRowAbsent));
        let state = "SELECT max(state), max(attempt) FROM backwave_jobs";
        let state = bench.host().query_row(state, [], |row| Ok((row.get(0)?, row.get(1)?)));
        assert_eq!(state, Ok((0, 0)));
    }
}

#[test]
fn a_held_job_that_a_damaged_index_names_as_waiting_is_not_taken_from_its_holder() {
    let mut bench = Bench::new();
    let id = bench.enqueue(job());
    // Each with a connection of its own, which reads the schema anew.
    let by_hand = |sql: &str| {
        let sql = format!("PRAGMA writable_schema = ON; {sql}");
        bench.host().execute_batch(&sql).expect("done by hand");
    };
    let named = "name = 'backwave_jobs_due'";
    by_hand(&format!(
        "CREATE TABLE kept AS SELECT type, name, tbl_name, rootpage, sql FROM sqlite_schema WHERE {named}; \
         DELETE FROM sqlite_schema WHERE {named}"
    ));
    by_hand(
        "UPDATE backwave_jobs SET state = 2, attempt = 1, owner = zeroblob(16), expiry = 9000000000000000",
    );
    by_hand(
        "INSERT INTO sqlite_schema (type, name, tbl_name, rootpage, sql) \
         SELECT type, name, tbl_name, rootpage, sql FROM kept; DROP TABLE kept",
    );
    bench.session = bench.store.open_session().expect("a session");
    // Which of the two sees it depends on whether the engine reads the state from the row as it walks.
    let seen = claim_trigger(&mut bench);
    let by_the_walk = Some(InvariantTrigger::ClaimedRowNotEligible);
    let by_the_write = Some(InvariantTrigger::UnexpectedAffectedRowCount);
    assert!(seen == by_the_walk || seen == by_the_write, "{seen:?}");
    let record = bench.record(id);
    assert_eq!((record.state, record.attempt), (JobState::Leased, 1));
    assert_eq!(record.owner, Some(WorkerId::from_bytes([0; 16])));
}
