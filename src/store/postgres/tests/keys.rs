//! Keys against transactions that are open, and what a claim among keys costs.

use super::*;
use crate::JobState;
use crate::store::{Admission, BulkChange, JobFilter, QueueChange, RequeueAnswer, StoreError};
use std::time::Instant;

fn unique(key: &str) -> JobRow {
    JobRow { unique_key: Some(key.to_owned()), ..row("q", -9) }
}

fn concurrent(key: &str, seconds: i64) -> JobRow {
    JobRow { concurrency_key: Some(key.to_owned()), ..row("q", seconds) }
}

fn told(answer: Result<EnqueueAnswer, StoreError>) -> Vec<Admission> {
    match answer.expect("no fault") {
        EnqueueAnswer::Accepted { jobs, .. } => jobs,
        rejected => panic!("{rejected:?}"),
    }
}

fn admit(session: &mut dyn Session, row: &JobRow) -> Admission {
    told(session.enqueue(std::slice::from_ref(row)))[0]
}

fn admit_in(tx: &mut ::postgres::Transaction<'_>, place: &Place, row: &JobRow) -> Admission {
    told(place.store.enqueue_rows_in(tx, std::slice::from_ref(row)))[0]
}

const fn held(by: &JobRow) -> Admission {
    Admission::Held { by: by.id, state: JobState::Scheduled }
}

fn live(place: &Place, key: &str) -> Vec<JobId> {
    let found =
        place.session().find(&JobFilter::new().unique_key(key), &crate::store::Page::new(9));
    found.expect("a read").jobs.iter().map(|job| job.id).collect()
}

#[test]
fn an_enqueue_waits_for_whoever_is_about_to_take_its_key() {
    for commits in [true, false] {
        let place = Place::new();
        let (first, second) = (unique("k"), unique("k"));
        let mut client = raw();
        let mut tx = client.transaction().unwrap();
        let holder = backend_of(&mut tx);
        assert_eq!(admit_in(&mut tx, &place, &first), Admission::New);
        let answer = while_it_waits(
            &place,
            holder,
            |session| admit(session, &second),
            || if commits { tx.commit() } else { tx.rollback() }.unwrap(),
        );
        assert_eq!(answer, if commits { held(&first) } else { Admission::New });
        assert_eq!(live(&place, "k"), [if commits { first.id } else { second.id }]);
    }
}

#[test]
fn the_key_of_a_connection_that_was_killed_is_free() {
    let place = Place::new();
    let (first, second) = (unique("k"), unique("k"));
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    let holder = backend_of(&mut tx);
    assert_eq!(admit_in(&mut tx, &place, &first), Admission::New);
    let answer = while_it_waits(
        &place,
        holder,
        |session| admit(session, &second),
        || {
            raw().execute("SELECT pg_terminate_backend($1)", &[&holder]).unwrap();
        },
    );
    assert_eq!(answer, Admission::New);
    drop(tx.rollback());
    assert_eq!(live(&place, "k"), [second.id]);
}

#[test]
fn of_five_of_which_four_roll_back_one_has_the_key() {
    let place = Place::new();
    let rows: Vec<_> = (0..5).map(|_| unique("k")).collect();
    let one = |number: usize| {
        let mut client = raw();
        let mut tx = client.transaction().unwrap();
        let answer = admit_in(&mut tx, &place, &rows[number]);
        if number == 3 { tx.commit() } else { tx.rollback() }.unwrap();
        answer
    };
    let answers: Vec<_> = std::thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = (0..5).map(|number| scope.spawn(move || one(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for answer in &answers {
        assert!(answer.is_new() || *answer == held(&rows[3]), "{answers:?}");
    }
    assert_eq!(live(&place, "k"), [rows[3].id]);
}

#[test]
fn under_a_frozen_snapshot_a_key_that_was_taken_since_is_a_fault_and_never_a_second_job() {
    let place = Place::new();
    let mut client = raw();
    let start = client.build_transaction();
    let start = start.isolation_level(::postgres::IsolationLevel::RepeatableRead);
    let mut tx = start.start().unwrap();
    tx.query_one("SELECT count(*) FROM pg_class", &[]).unwrap();
    let first = unique("k");
    assert_eq!(admit(place.session().as_mut(), &first), Admission::New);
    let error = place.store.enqueue_rows_in(&mut tx, &[unique("k")]).expect_err("serialization");
    assert_eq!(error.code(), Some("40001"));
    drop(tx.rollback());
    assert_eq!(live(&place, "k"), [first.id]);
}

#[test]
fn an_enqueue_waits_for_the_end_that_frees_its_key() {
    for commits in [true, false] {
        let place = Place::new();
        let mut session = place.session();
        let me = WorkerId::new();
        let first = unique("k");
        add(session.as_mut(), std::slice::from_ref(&first));
        let job = take(session.as_mut(), me, "q", 1).jobs.remove(0);
        let mut client = raw();
        let mut tx = client.transaction().unwrap();
        let holder = backend_of(&mut tx);
        assert_eq!(report_in(&mut tx, &place, &outcome(&job, me, Outcome::DeadLettered)), Some(0));
        let answer = while_it_waits(
            &place,
            holder,
            |session| admit(session, &unique("k")),
            || if commits { tx.commit() } else { tx.rollback() }.unwrap(),
        );
        let by = Admission::Held { by: first.id, state: JobState::Leased };
        assert_eq!(answer, if commits { Admission::New } else { by });
        assert_eq!(live(&place, "k").len(), 1);
    }
}

#[test]
fn a_requeue_waits_for_whoever_is_about_to_take_its_key() {
    for commits in [true, false] {
        for is_bulk in [true, false] {
            let place = Place::new();
            let mut session = place.session();
            let me = WorkerId::new();
            let first = unique("k");
            add(session.as_mut(), std::slice::from_ref(&first));
            let job = take(session.as_mut(), me, "q", 1).jobs.remove(0);
            report_one(session.as_mut(), &outcome(&job, me, Outcome::DeadLettered));
            let second = unique("k");
            let mut client = raw();
            let mut tx = client.transaction().unwrap();
            let holder = backend_of(&mut tx);
            assert_eq!(admit_in(&mut tx, &place, &second), Admission::New);
            let requeue = |session: &mut dyn Session| {
                if !is_bulk {
                    return session.requeue("ada", first.id).expect("no fault");
                }
                let filter = JobFilter::new();
                let page = session.change_matching("ada", BulkChange::Requeue, &filter, None, 9);
                match page.expect("no fault").changed {
                    0 => RequeueAnswer::KeyHeld { by: second.id },
                    _ => RequeueAnswer::Requeued,
                }
            };
            let answer = while_it_waits(&place, holder, requeue, || {
                if commits { tx.commit() } else { tx.rollback() }.unwrap();
            });
            let lost = RequeueAnswer::KeyHeld { by: second.id };
            assert_eq!(answer, if commits { lost } else { RequeueAnswer::Requeued });
            assert_eq!(live(&place, "k"), [if commits { second.id } else { first.id }]);
            let audit = session.audit(&crate::store::AuditFilter::default()).unwrap();
            assert_eq!(audit.len(), usize::from(!commits));
        }
    }
}

#[test]
fn a_long_call_takes_its_keys_in_rounds_and_one_transaction() {
    let place = Place::new();
    let mut session = place.session();
    let rows: Vec<_> = (0..6_000).map(|number| unique(&format!("k{}", number % 5_500))).collect();
    let answers = told(session.enqueue(&rows));
    for (number, answer) in answers.into_iter().enumerate() {
        let expected = if number < 5_500 { Admission::New } else { held(&rows[number - 5_500]) };
        assert_eq!(answer, expected, "{number}");
    }
    // Refused in its second round, the call leaves nothing of the first.
    let mut call = vec![unique("a"), unique("a"), row("q", 0)];
    call[2].parents.push(JobId::new());
    let answer = session.enqueue(&call).unwrap();
    assert!(matches!(answer, EnqueueAnswer::Rejected { index: 2, .. }), "{answer:?}");
    assert_eq!(live(&place, "a"), []);
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    let answer = place.store.enqueue_rows_in(&mut tx, &call).unwrap();
    assert!(matches!(answer, EnqueueAnswer::Rejected { index: 2, .. }), "{answer:?}");
    assert_eq!(admit_in(&mut tx, &place, &call[0]), Admission::New);
    tx.commit().unwrap();
    assert_eq!(live(&place, "a"), [call[0].id]);
}

#[test]
fn in_one_transaction_of_a_callers_a_key_is_taken_once() {
    let place = Place::new();
    let first = unique("k");
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    assert_eq!(admit_in(&mut tx, &place, &first), Admission::New);
    assert_eq!(admit_in(&mut tx, &place, &unique("k")), held(&first));
    assert_eq!(admit_in(&mut tx, &place, &first), Admission::Duplicate);
    tx.commit().unwrap();
    assert_eq!(live(&place, "k"), [first.id]);
}

#[test]
fn the_sql_face_takes_keys_and_answers_the_holder() {
    let place = Place::new();
    let mut client = raw();
    let text = format!("SELECT \"{}\".enqueue($1::text::json)::text", place.schema);
    let mut enqueue = |rest: &str| -> Result<String, String> {
        let job = format!(r#"{{"wire_name":"work","payload":1{rest}}}"#);
        let answer = client.query_one(&text, &[&job]);
        answer.map(|row| row.get(0)).map_err(|error| {
            let error = error.as_db_error().expect("the server refused it");
            format!("{} {}", error.code().code(), error.message())
        })
    };
    let first = enqueue(r#","unique_key":"k","concurrency_key":"c""#).unwrap();
    assert_eq!(enqueue(r#","unique_key":"k""#).unwrap(), first);
    assert_ne!(enqueue(r#","unique_key":"K""#).unwrap(), first);
    assert_ne!(enqueue(r#","unique_key":null"#).unwrap(), first);
    let id = JobId::new();
    let with_id = format!(r#","id":"{id}","unique_key":"other""#);
    assert_eq!(enqueue(&with_id).unwrap(), id.to_string());
    assert_eq!(enqueue(&with_id).unwrap(), id.to_string());
    let long = "x".repeat(257);
    for (rest, message) in [
        (r#","unique_key":"""#.to_owned(), "the field unique_key is empty"),
        (r#","unique_key":7"#.to_owned(), "the field unique_key is no string"),
        (
            r#","concurrency_key":" c""#.to_owned(),
            "the field concurrency_key begins or ends with a blank",
        ),
        (r#","unique_key":"\u0007""#.to_owned(), "the field unique_key holds a control character"),
        (
            format!(r#","concurrency_key":"{long}""#),
            "the field concurrency_key has 257 bytes and the limit is 256",
        ),
    ] {
        assert_eq!(enqueue(&rest).unwrap_err(), format!("22023 {message}"));
    }
    let view = format!(
        "SELECT unique_key, concurrency_key FROM \"{}\".jobs_v2 WHERE id = $1::text::uuid",
        place.schema
    );
    let shown = client.query_one(&view, &[&first]).unwrap();
    assert_eq!((shown.get::<_, &str>(0), shown.get::<_, &str>(1)), ("k", "c"));
    // What it stores is limited as what adapters store.
    let mut session = place.session();
    add(session.as_mut(), &[JobRow { queue: "default".to_owned(), ..concurrent("c", -9) }]);
    place.set_clock(std::time::SystemTime::now().into());
    assert_eq!(take(session.as_mut(), WorkerId::new(), "default", 9).jobs.len(), 4);
}

#[test]
fn the_first_of_a_queue_with_a_key_holds_up_neither_an_enqueue_nor_a_claim() {
    let place = Place::new();
    add(place.session().as_mut(), &[row("q", -9), row("q", -9)]);
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    place.store.enqueue_rows_in(&mut tx, &[concurrent("a", -9)]).unwrap();
    let mut session = place.session();
    // Its mark is not committed, and not waited for.
    assert_eq!(take(session.as_mut(), WorkerId::new(), "q", 1).jobs.len(), 1);
    add(session.as_mut(), &[concurrent("a", -8)]);
    assert_eq!(take(session.as_mut(), WorkerId::new(), "q", 9).jobs.len(), 2);
    tx.commit().unwrap();
    let marks = format!("SELECT count(*) FROM \"{}\".keyed_queues", place.schema);
    assert_eq!(client.query_one(&marks, &[]).unwrap().get::<_, i64>(0), 2);
    let claimed = take(session.as_mut(), WorkerId::new(), "q", 9);
    assert_eq!((claimed.jobs.len(), claimed.withheld), (0, true));
    add(session.as_mut(), &[concurrent("b", -8)]);
    assert_eq!(client.query_one(&marks, &[]).unwrap().get::<_, i64>(0), 2);
}

#[test]
fn a_claim_among_keys_waits_for_the_one_that_runs_and_then_counts_it() {
    let place = Place::new();
    add(place.session().as_mut(), &[concurrent("a", -9), concurrent("a", -8), concurrent("b", -7)]);
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    let holder = backend_of(&mut tx);
    assert_eq!(claim_in(&mut tx, &place, 1), 1);
    let claimed = while_it_waits(
        &place,
        holder,
        |session| take(session, WorkerId::new(), "q", 9),
        || tx.commit().unwrap(),
    );
    assert_eq!((claimed.jobs.len(), claimed.withheld), (1, true));
}

#[test]
fn a_limit_per_key_waits_for_the_claim_that_runs_and_then_counts_it() {
    let place = Place::new();
    let mut session = place.session();
    add(session.as_mut(), &(0..9).map(|i| concurrent("a", i - 20)).collect::<Vec<_>>());
    session.change_queue("ada", "q", QueueChange::KeyLimit(Some(5))).unwrap();
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    let holder = backend_of(&mut tx);
    assert_eq!(claim_in(&mut tx, &place, 3), 3);
    while_it_waits(
        &place,
        holder,
        |session| drop(session.change_queue("ada", "q", QueueChange::KeyLimit(Some(4))).unwrap()),
        || tx.commit().unwrap(),
    );
    assert_eq!(take(session.as_mut(), WorkerId::new(), "q", 9).jobs.len(), 1);
}

#[test]
fn sixteen_claimers_never_run_two_of_a_key() {
    let place = Place::new();
    let mut session = place.session();
    for round in 0..10 {
        let rows: Vec<_> = (0..8).map(|i| concurrent(["a", "b"][i % 2], round - 99)).collect();
        add(session.as_mut(), &rows);
        let barrier = std::sync::Barrier::new(16);
        let one = || {
            let mut session = place.session();
            barrier.wait();
            take(session.as_mut(), WorkerId::new(), "q", 2).jobs
        };
        let taken: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16).map(|_| scope.spawn(one)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(taken.len(), 2, "{taken:?}");
        session.change_matching("", BulkChange::Cancel, &JobFilter::new(), None, 200).unwrap();
        for job in taken {
            let owner = job.owner.unwrap();
            report_one(session.as_mut(), &outcome(&job, owner, Outcome::Succeeded));
        }
    }
}

#[test]
fn a_claim_does_not_wade_through_a_hundred_thousand_of_a_key_that_runs() {
    let place = Place::new();
    let mut session = place.session();
    add(session.as_mut(), &[concurrent("a", -90_000)]);
    assert_eq!(take(session.as_mut(), WorkerId::new(), "q", 9).jobs.len(), 1);
    let fill = format!(
        "INSERT INTO \"{0}\".jobs (id, wire_name, version, queue, payload, state, due_at, created_at, \
             tags, concurrency_key) \
         SELECT gen_random_uuid(), 'work', 1, 'q', '1', 0, to_timestamp(1700000000 + i), now(), '{{}}', 'a' \
         FROM generate_series(1, 100000) AS i; ANALYZE \"{0}\".jobs",
        place.schema
    );
    let mut client = raw();
    client.batch_execute(&fill).unwrap();
    let keys: Vec<_> = (0..50).map(|number| concurrent(&format!("b{number}"), -9)).collect();
    add(session.as_mut(), &keys);
    add(session.as_mut(), &[row("q", -5)]);
    let reads = format!(
        "SELECT coalesce(idx_tup_fetch, 0) + coalesce(seq_tup_read, 0) FROM pg_stat_xact_all_tables \
         WHERE relid = '\"{}\".jobs'::regclass",
        place.schema
    );
    // What one claim reads of the table, told by its own transaction.
    let mut session = client;
    session.batch_execute(&super::super::connect::session_settings(LEASE)).unwrap();
    let mut most = 0;
    for expected in [9, 9, 9, 9, 9, 6, 0] {
        let mut tx = session.transaction().unwrap();
        assert_eq!(claim_in(&mut tx, &place, 9), expected);
        most = most.max(tx.query_one(&reads, &[]).unwrap().get::<_, i64>(0));
        tx.commit().unwrap();
    }
    assert!(most < 2_000, "a claim has read {most} rows");
    let began = Instant::now();
    assert!(take(place.session().as_mut(), WorkerId::new(), "q", 9).withheld);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

/// Run by hand: `cargo test --all-features --lib store::postgres::tests::keys -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn what_a_claim_among_keys_costs() {
    for (blocked, keys) in [(0, 0), (0, 1_000), (100_000, 50), (100_000, 1_000), (100_000, 10_000)]
    {
        let place = Place::new();
        let mut session = place.session();
        add(session.as_mut(), &[concurrent("a", -90_000)]);
        assert_eq!(take(session.as_mut(), WorkerId::new(), "q", 9).jobs.len(), 1);
        let fill = format!(
            "INSERT INTO \"{0}\".jobs (id, wire_name, version, queue, payload, state, due_at, \
                 created_at, tags, concurrency_key) \
             SELECT gen_random_uuid(), 'work', 1, 'q', '1', 0, to_timestamp(1700000000 + i), now(), \
                 '{{}}', CASE WHEN i <= {blocked} THEN 'a' ELSE 'b' || i END \
             FROM generate_series(1, {blocked} + {keys}) AS i; ANALYZE \"{0}\".jobs",
            place.schema
        );
        raw().batch_execute(&fill).unwrap();
        add(session.as_mut(), &(0..1_000).map(|i| row("q", i - 3_000)).collect::<Vec<_>>());
        let mut spans: Vec<_> = (0..20)
            .map(|_| {
                let began = Instant::now();
                assert_eq!(take(session.as_mut(), WorkerId::new(), "q", 10).jobs.len(), 10);
                began.elapsed()
            })
            .collect();
        spans.sort();
        eprintln!(
            "{blocked} blocked, {keys} keys: {:?} a claim of 10, {:?} at most",
            spans[10], spans[19]
        );
    }
}
