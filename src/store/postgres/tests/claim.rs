//! What a claim takes, in which order, and what it says about the rest.

use super::*;
use crate::JobState;

#[test]
fn jobs_come_in_order_of_due_and_id_and_only_when_due() {
    let place = Place::new();
    let mut session = place.session();
    let rows = [row("q", -1), row("q", -3), row("q", -3), row("q", 5)];
    add(session.as_mut(), &rows);
    let me = WorkerId::new();
    let claimed = take(session.as_mut(), me, "q", 10);
    assert_eq!(ids(&claimed), [rows[1].id, rows[2].id, rows[0].id]);
    assert_eq!(claimed.next_due, Some(at(5)));
    assert!(!claimed.withheld);
    assert_eq!(claimed.store_time, START);
    for job in &claimed.jobs {
        assert_eq!((job.state_before, job.state), (JobState::Scheduled, JobState::Leased));
        assert_eq!((job.owner, job.attempt, job.expiry), (Some(me), 1, START + LEASE));
        assert_eq!(job.queue, "q");
    }
    place.set_clock(at(5));
    assert_eq!(ids(&take(session.as_mut(), me, "q", 10)), [rows[3].id]);
    assert_eq!(take(session.as_mut(), me, "q", 10).next_due, None);
}

#[test]
fn quotas_come_first_and_the_spill_fills_up_in_plan_order() {
    let place = Place::new();
    let mut session = place.session();
    let a: Vec<_> = (0..4).map(|i| row("a", i - 10)).collect();
    let b: Vec<_> = (0..4).map(|i| row("b", i - 10)).collect();
    add(session.as_mut(), &a);
    add(session.as_mut(), &b);
    let (plan, accepts) = (plan(&[("a", 1), ("b", 2)]), accepts("work", 1));
    let mut claim = Claim::new(WorkerId::new(), 5, &plan, &accepts, LEASE);
    let spilled = session.claim(&claim).unwrap();
    assert_eq!(ids(&spilled), [a[0].id, b[0].id, b[1].id, a[1].id, a[2].id]);
    claim.spill = false;
    let bounded = session.claim(&claim).unwrap();
    assert_eq!(ids(&bounded), [a[3].id, b[2].id, b[3].id]);
    assert!(!bounded.withheld, "nothing due is left");
}

#[test]
fn a_quota_without_spill_withholds() {
    let place = Place::new();
    let mut session = place.session();
    add(session.as_mut(), &[row("a", -2), row("a", -1)]);
    let (plan, accepts) = (plan(&[("a", 1)]), accepts("work", 1));
    let mut claim = Claim::new(WorkerId::new(), 5, &plan, &accepts, LEASE);
    claim.spill = false;
    let claimed = session.claim(&claim).unwrap();
    assert_eq!((claimed.jobs.len(), claimed.withheld), (1, true));
    assert_eq!(claimed.next_due, None, "what is due is not next");
}

#[test]
fn the_byte_bound_withholds_but_always_allows_one_job() {
    let place = Place::new();
    let mut session = place.session();
    let mut rows = [row("q", -3), row("q", -2), row("q", -1)];
    for row in &mut rows {
        row.payload = crate::store::Body::new(vec![b' '; 1000]);
    }
    add(session.as_mut(), &rows);
    let (plan, accepts) = (plan(&[("q", 10)]), accepts("work", 1));
    let mut claim = Claim::new(WorkerId::new(), 10, &plan, &accepts, LEASE);
    claim.bytes_max = 10;
    let claimed = session.claim(&claim).unwrap();
    assert_eq!((ids(&claimed), claimed.withheld), (vec![rows[0].id], true));
    claim.bytes_max = 2000;
    let claimed = session.claim(&claim).unwrap();
    assert_eq!((ids(&claimed), claimed.withheld), (vec![rows[1].id, rows[2].id], false));
}

#[test]
fn only_accepted_names_and_versions_are_taken() {
    let place = Place::new();
    let mut session = place.session();
    let mut other = row("q", -9);
    other.wire_name = "other".to_owned();
    let mut newer = row("q", -8);
    newer.version = 3;
    let mine = row("q", -7);
    add(session.as_mut(), &[other.clone(), newer.clone(), mine.clone()]);
    let me = WorkerId::new();
    let claimed = take(session.as_mut(), me, "q", 10);
    assert_eq!((ids(&claimed), claimed.next_due, claimed.withheld), (vec![mine.id], None, false));
    let (plan, mut names) = (plan(&[("q", 9)]), accepts("work", 3));
    names.extend(accepts("other", 1));
    let claimed = session.claim(&Claim::new(me, 9, &plan, &names, LEASE)).unwrap();
    assert_eq!(ids(&claimed), [other.id, newer.id]);
    assert_eq!(claimed.jobs[1].version, 3);
}

#[test]
fn a_claim_of_nothing_is_answered_with_nothing() {
    let place = Place::new();
    let mut session = place.session();
    add(session.as_mut(), &[row("q", -1)]);
    let claimed = take(session.as_mut(), WorkerId::new(), "q", 0);
    assert_eq!((claimed.jobs.len(), claimed.next_due), (0, None));
    let claim = Claim::new(WorkerId::new(), 4, &[], &[], LEASE);
    assert_eq!(session.claim(&claim).unwrap().jobs.len(), 0);
    let claimed = take(session.as_mut(), WorkerId::new(), "nobody's", 3);
    assert_eq!((claimed.jobs.len(), claimed.next_due), (0, None));
}

#[test]
fn every_field_of_a_job_comes_back_from_the_claim() {
    let place = Place::new();
    let mut session = place.session();
    let mut asked = row("q", -1);
    asked.payload = crate::store::Body::new(br#"{"k":"a\u0000b","n":1.0}"#.to_vec());
    asked.retry = Some(crate::RetryPolicy::new(3));
    asked.timeout = Some(Duration::from_millis(1500));
    asked.tags = vec!["one".to_owned(), "tw\"o, {}".to_owned(), "\u{1f921}".to_owned()];
    add(session.as_mut(), std::slice::from_ref(&asked));
    let claimed = take(session.as_mut(), WorkerId::new(), "q", 1);
    let job = &claimed.jobs[0];
    assert_eq!((&job.payload, &job.tags, job.retry), (&asked.payload, &asked.tags, asked.retry));
    assert_eq!((job.timeout, job.due_at, job.failures), (asked.timeout, at(-1), 0));
    let shown: String = raw()
        .query_one(
            &format!(
                "SELECT payload::text FROM \"{}\".jobs_v1 WHERE state = 'Leased'",
                place.schema
            ),
            &[],
        )
        .unwrap()
        .get(0);
    assert_eq!(shown, r#"{"k":"a\u0000b","n":1.0}"#);
}

#[test]
fn an_idle_claim_writes_nothing() {
    let place = Place::new();
    let mut session = place.session();
    add(session.as_mut(), &[row("q", 100)]);
    let assigned = |client: &mut ::postgres::Client| -> String {
        let text = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text";
        client.query_one(text, &[]).unwrap().get(0)
    };
    // Other tests run on the same server: a claim that is quiet once is quiet.
    let mut client = raw();
    let is_quiet = (0..200).any(|_| {
        let before = assigned(&mut client);
        take(session.as_mut(), WorkerId::new(), "q", 5);
        assigned(&mut client) == before
    });
    assert!(is_quiet);
}

#[test]
fn a_claim_finds_its_jobs_by_the_index_among_many() {
    let place = Place::new();
    let mut session = place.session();
    let rows: Vec<_> = (0..10_000).map(|i| row("q", i - 20_000)).collect();
    add(session.as_mut(), &rows);
    let mut client = raw();
    client.batch_execute(&super::super::connect::session_settings(LEASE)).unwrap();
    for table in ["analysed", "not analysed"] {
        let text = format!(
            "EXPLAIN SELECT j.ctid FROM \"{0}\".jobs AS j WHERE j.state = 0 AND j.concurrency_key IS NULL AND j.queue = 'q' \
             AND j.due_at <= now() AND (j.due_at, j.id) >= ('-infinity', '00000000-0000-0000-0000-000000000000') \
             ORDER BY j.due_at, j.id LIMIT 10 FOR NO KEY UPDATE SKIP LOCKED",
            place.schema
        );
        let shown: Vec<String> =
            client.query(&text, &[]).unwrap().iter().map(|row| row.get(0)).collect();
        let shown = shown.join("\n");
        assert!(shown.contains("Index Scan using jobs_due"), "{table}: {shown}");
        assert!(!shown.contains("Sort") && !shown.contains("Seq Scan"), "{table}: {shown}");
        client.batch_execute(&format!("ANALYZE \"{}\".jobs", place.schema)).unwrap();
    }
}

#[test]
fn a_floor_keeps_claims_cheap_and_is_bounded_in_time() {
    let place = Place::new();
    let mut session = place.session();
    let rows: Vec<_> = (0..6000).map(|i| row("q", i - 20_000)).collect();
    add(session.as_mut(), &rows);
    // Holds the horizon, so that the entries of claimed jobs stay.
    let mut holder = raw();
    let mut held = holder
        .build_transaction()
        .isolation_level(::postgres::IsolationLevel::RepeatableRead)
        .start()
        .unwrap();
    held.execute("SELECT 1", &[]).unwrap();
    let me = WorkerId::new();
    let mut taken = Vec::new();
    while taken.len() < 5000 {
        taken.extend(ids(&take(session.as_mut(), me, "q", 500)));
    }
    let expected: Vec<_> = rows.iter().map(|row| row.id).take(5000).collect();
    assert_eq!(taken, expected, "the floor changes no order");
    let early = row("q", -30_000);
    add(session.as_mut(), std::slice::from_ref(&early));
    // Below the floor, it may be passed by for some milliseconds, and is then found.
    let found = (0..500).any(|_| ids(&take(session.as_mut(), me, "q", 1)).contains(&early.id));
    assert!(found);
    drop(held);
}
