//! How jobs come in, from here and from elsewhere.

use super::*;
use crate::JobState;
use crate::store::{Admission, Rejection};

fn is_new(session: &mut dyn Session, rows: &[JobRow]) -> Vec<bool> {
    match session.enqueue(rows).unwrap() {
        EnqueueAnswer::Accepted { jobs, .. } => jobs.into_iter().map(Admission::is_new).collect(),
        rejected => panic!("{rejected:?}"),
    }
}

#[test]
fn a_duplicate_is_left_as_it_is_and_told_also_within_one_call() {
    let place = Place::new();
    let mut session = place.session();
    let (a, b) = (row("q", -2), row("q", -1));
    let mut other = a.clone();
    other.wire_name = "other".to_owned();
    let rows = [b.clone(), a.clone(), other.clone(), b.clone()];
    assert_eq!(is_new(session.as_mut(), &rows), [true, true, false, false]);
    assert_eq!(is_new(session.as_mut(), &[other, a.clone()]), [false, false]);
    assert_eq!(record(session.as_mut(), a.id).wire_name, "work");
    assert_eq!(is_new(session.as_mut(), &[]), Vec::<bool>::new());
}

#[test]
fn an_id_that_becomes_known_at_the_same_moment_is_told_as_not_new() {
    for commits in [true, false] {
        let place = Place::new();
        let (contested, other) = (row("q", -2), row("q", -1));
        let mut client = raw();
        let mut tx = client.transaction().unwrap();
        let holder = backend_of(&mut tx);
        place.store.enqueue_rows_in(&mut tx, std::slice::from_ref(&contested)).unwrap();
        let answer = while_it_waits(
            &place,
            holder,
            |session| is_new(session, &[other.clone(), contested.clone()]),
            || if commits { tx.commit() } else { tx.rollback() }.unwrap(),
        );
        assert_eq!(answer, [true, !commits]);
        assert_eq!(record(place.session().as_mut(), other.id).queue, "q");
    }
}

#[test]
fn jobs_that_differ_in_everything_and_jobs_that_are_alike_come_in_as_they_are() {
    let place = Place::new();
    let mut session = place.session();
    let full = JobRow {
        version: 3,
        retry: Some(crate::RetryPolicy::default()),
        timeout: Some(Duration::from_secs(7)),
        tags: vec!["a".to_owned(), "b\"\u{e9}".to_owned()],
        due: Due::In(Duration::from_secs(2)),
        ..row("r", 0)
    };
    let rows = [row("q", -2), full.clone(), JobRow { due: Due::Now, ..row("q", 0) }];
    for rows in [rows.to_vec(), vec![JobRow { id: JobId::new(), ..full }; 1]] {
        assert!(is_new(session.as_mut(), &rows).into_iter().all(|is_new| is_new));
        for row in &rows {
            let stored = record(session.as_mut(), row.id);
            assert_eq!((stored.queue, stored.version), (row.queue.clone(), row.version));
            assert_eq!((stored.retry, stored.timeout), (row.retry, row.timeout));
            assert_eq!((stored.tags, stored.due_at), (row.tags.clone(), row.due.resolve(START)));
            assert_eq!(stored.payload, row.payload);
        }
    }
}

#[test]
fn a_delay_counts_from_the_stores_time() {
    let place = Place::new();
    let mut session = place.session();
    let dues = [Due::Now, Due::In(Duration::from_micros(1_500_001)), Due::At(at(-7))];
    let rows = dues.map(|due| {
        let mut row = row("q", 0);
        row.due = due;
        row
    });
    add(session.as_mut(), &rows);
    let stored = rows.each_ref().map(|row| record(session.as_mut(), row.id));
    assert_eq!(stored.each_ref().map(|record| record.created_at), [START; 3]);
    let expected = [START, START + Duration::from_micros(1_500_001), at(-7)];
    assert_eq!(stored.map(|record| record.due_at), expected);
}

#[test]
fn a_rejected_row_keeps_the_whole_call_out() {
    let place = Place::new();
    let mut session = place.session();
    let good = row("q", -1);
    let mut bad = row("q\0", -1);
    bad.wire_name = "w".to_owned();
    let answer = session.enqueue(&[good.clone(), bad]).unwrap();
    let EnqueueAnswer::Rejected { index: 1, reason: Rejection::QueueName { .. } } = answer else {
        panic!("{answer:?}")
    };
    assert_eq!(session.job(good.id).unwrap(), None);
}

#[test]
fn many_rows_need_no_more_parameters_than_one() {
    let place = Place::new();
    let mut session = place.session();
    let rows: Vec<_> = (0..70_000).map(|_| row("q", -1)).collect();
    add(session.as_mut(), &rows);
    assert_eq!(session.counts().unwrap()[0].count, 70_000);
}

#[test]
fn jobs_added_in_the_callers_transaction_live_and_die_with_it() {
    let place = Place::new();
    let mut session = place.session();
    let mut client = raw();
    for commit in [false, true] {
        let job = row("q", -1);
        let mut tx = client.transaction().unwrap();
        let rows = [job.clone(), job.clone()];
        let answer = place.store.enqueue_rows_in(&mut tx, &rows).unwrap();
        assert!(matches!(answer, EnqueueAnswer::Accepted { jobs, .. }
                if jobs == [Admission::New, Admission::Duplicate]));
        assert_eq!(session.job(job.id).unwrap(), None);
        if commit {
            tx.commit().unwrap();
        } else {
            tx.rollback().unwrap();
        }
        assert_eq!(session.job(job.id).unwrap().is_some(), commit);
    }
}

#[test]
fn any_language_can_enqueue_by_json() {
    let place = Place::new();
    let mut session = place.session();
    let mut client = raw();
    client.batch_execute("SET TimeZone = 'Asia/Tokyo'; SET DateStyle = 'SQL, DMY'").unwrap();
    let text = format!("SELECT \"{}\".enqueue($1::text::json)", place.schema);
    let id: JobId =
        client.query_one(&text, &[&r#"{"wire_name":"work","payload":[1.0]}"#]).unwrap().get(0);
    assert_eq!(id.to_bytes()[6] >> 4, 7, "a version 7 UUID");
    assert_eq!(id.to_bytes()[8] >> 6, 2, "of the RFC's variant");
    let stored = record(session.as_mut(), id);
    assert_eq!((stored.payload.as_bytes(), stored.queue.as_str()), (&b"[1.0]"[..], "default"));
    let own = JobId::new();
    let whole = format!(
        r#"{{"id":"{own}","wire_name":"work","version":2,"queue":"q","payload":{{"k":"\u0000\\u0000\ue000\\\u0000"}},
            "due_at":"2026-01-02T03:04:05.678901+01:00","timeout_ms":1500,"tags":["a","ü"],
            "retry":{{"failures_max":4,"delay_first_us":5000,"delay_max_us":9000000,"jitter_percent":0}}}}"#
    );
    for _ in 0..2 {
        assert_eq!(client.query_one(&text, &[&whole]).unwrap().get::<_, JobId>(0), own);
    }
    let stored = record(session.as_mut(), own);
    assert_eq!((stored.version, stored.state), (2, JobState::Scheduled));
    assert_eq!(stored.due_at.to_string(), "2026-01-02T02:04:05.678901Z");
    assert_eq!(stored.timeout, Some(Duration::from_millis(1500)));
    assert_eq!(stored.tags, ["a", "ü"]);
    assert_eq!(stored.payload.as_bytes(), br#"{"k":"\u0000\\u0000\ue000\\\u0000"}"#);
    let retry = crate::RetryPolicy::new(4)
        .delays(Duration::from_millis(5), Duration::from_secs(9))
        .jitter_percent(0);
    assert_eq!(stored.retry, Some(retry));
}

#[test]
fn a_bad_job_in_json_is_refused_with_a_clear_error() {
    let place = Place::new();
    let mut client = raw();
    let text = format!("SELECT \"{}\".enqueue($1::text::json)", place.schema);
    let long = "x".repeat(129);
    let big = "y".repeat(65_536);
    let tags = vec!["\"t\""; 17].join(",");
    let work = |rest: &str| format!(r#"{{"wire_name":"work","payload":1,{rest}}}"#);
    let table = [
        ("[]".to_owned(), "the job is no JSON object"),
        (r#"{"payload":1}"#.to_owned(), "the wire name is missing or empty"),
        (r#"{"wire_name":"w"}"#.to_owned(), "the field payload is missing"),
        (work(r#""nope":1"#), "the field nope is unknown"),
        (
            work(r#""queue":""#).replace(r#""queue":""#, r#""queue":"\u0007""#),
            "the queue name holds a control character",
        ),
        (work(r#""queue":"a\u0000b""#), "only the payload may hold a NUL"),
        (work(r#""queue":" q""#), "the queue name begins or ends with a blank"),
        (work(r#""queue":1"#), "the field queue is no string"),
        (
            work(&format!(r#""queue":"{long}""#)),
            "the queue name has 129 bytes and the limit is 128",
        ),
        (
            format!(r#"{{"wire_name":"w","payload":"{big}"}}"#),
            "the payload has 65538 bytes and the limit is 65536",
        ),
        (work(r#""version":0"#), "the field version is 0 and not between 1 and 2147483647"),
        (work(r#""version":1.5"#), "the field version is no whole number"),
        (work(r#""due_at":"2026-01-01""#), "the field due_at is no RFC 3339 instant"),
        (
            work(r#""due_at":"2026-01-01T00:00:00Z","delay_ms":1"#),
            "a job has due_at or delay_ms, not both",
        ),
        (
            work(r#""delay_ms":9007199254740991"#),
            "the due time is after 9998-12-29T00:00:00Z, the latest that can be stored",
        ),
        (
            work(r#""timeout_ms":0"#),
            "the field timeout_ms is 0 and not between 1 and 9007199254740",
        ),
        (work(r#""tags":"a""#), "the field tags is no array"),
        (work(r#""tags":[1]"#), "a tag is no string"),
        (work(&format!(r#""tags":[{tags}]"#)), "the job has 17 tags and the limit is 16"),
        (work(r#""id":"7""#), "the field id is no UUID"),
        (
            work(r#""retry":{"n":1}"#),
            "the field retry is no object of failures_max, delay_first_us, delay_max_us and jitter_percent",
        ),
    ];
    for (job, message) in table {
        let error = client.query_one(&text, &[&job]).unwrap_err();
        let error = error.as_db_error().expect("the server refused it");
        assert_eq!((error.code().code(), error.message()), ("22023", message));
    }
}
