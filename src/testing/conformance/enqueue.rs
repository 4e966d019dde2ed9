//! How jobs come in.

use super::Fixture;
use super::desk::{Desk, LEASE, SECOND, TICK, accepts, ids, outcome, quota, row, rows};
use crate::kernel::text::NameFault;
use crate::store::{Body, Claim, Due, JobRow, Outcome, OutcomeRow, Rejection};
use crate::{JobId, JobState, RetryPolicy, Timestamp, WorkerId};
use std::time::Duration;

/// Names that a store must treat as nothing but text.
pub(super) const ODD_NAMES: &[&str] = &[
    "it's",
    "\"quoted\"",
    "q'; DROP TABLE jobs; --",
    "$1",
    "?1",
    ":name",
    "%s%n",
    "a\\b\\",
    "{a,b}",
    "NULL",
    "a b",
    "été",
    "日本語",
    "\u{1f921}",
    "\u{85}next line\u{85}",
    "-- x",
];

pub(super) fn a_job_due_now_is_claimable_at_once(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let id = desk.add(&row());
    assert_eq!(ids(&desk.take(WorkerId::new(), 1)), [id]);
}

pub(super) fn a_stored_job_reads_back_as_it_was_given(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let given = JobRow {
        version: 7,
        queue: "mail".to_owned(),
        payload: Body::new(br#"{"to":"ada"}"#.to_vec()),
        due: Due::In(SECOND),
        retry: Some(RetryPolicy::new(3).fixed(Duration::from_secs(5)).jitter_percent(50)),
        timeout: Some(Duration::from_millis(1500)),
        tags: vec!["b".to_owned(), "a".to_owned()],
        ..row()
    };
    desk.add(&given);
    let stored = desk.job(given.id);
    assert_eq!(stored, crate::store::JobRecord::new(&given, desk.now()));
    assert_eq!(stored.due_at, desk.now() + SECOND);
    assert_eq!((stored.state, stored.attempt, stored.failures), (JobState::Scheduled, 0, 0));
}

pub(super) fn an_empty_call_is_accepted(fixture: &Fixture) {
    assert!(Desk::open(fixture).accept(&[]).is_empty());
}

pub(super) fn one_refused_job_fails_the_whole_call_and_is_named(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut jobs = rows(5);
    jobs[3].version = 0;
    let (index, reason) = desk.refuse(&jobs);
    assert_eq!(index, 3);
    assert!(matches!(reason, Rejection::Version { version: 0, .. }), "{reason:?}");
    assert!(jobs.iter().all(|job| desk.find(job.id).is_none()), "a part was stored");
    assert!(desk.counts().is_empty());
}

pub(super) fn the_first_of_several_refused_jobs_is_named(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut jobs = rows(4);
    jobs[1].queue = String::new();
    jobs[2].wire_name = String::new();
    let (index, reason) = desk.refuse(&jobs);
    assert_eq!(index, 1);
    assert_eq!(reason, Rejection::QueueName { name: String::new(), fault: NameFault::Empty });
}

pub(super) fn an_id_that_exists_is_left_as_it_was_and_told_as_not_new(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let first = row();
    desk.add(&first);
    let before = desk.job(first.id);
    desk.wait(SECOND);
    let other = JobRow {
        id: first.id,
        queue: "other".to_owned(),
        payload: Body::new(b"[2]".to_vec()),
        due: Due::In(SECOND),
        tags: vec!["new".to_owned()],
        ..JobRow::new(first.id, "other")
    };
    assert_eq!(desk.accept(&[other]), [false]);
    assert_eq!(desk.job(first.id), before);
}

pub(super) fn of_an_id_twice_in_one_call_the_first_is_stored(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (first, between) = (row(), row());
    let second = JobRow { payload: Body::new(b"[2]".to_vec()), ..first.clone() };
    assert_eq!(desk.accept(&[first.clone(), between, second]), [true, true, false]);
    assert_eq!(desk.job(first.id).payload, first.payload);
    assert_eq!(desk.take(WorkerId::new(), 10).len(), 2);
}

pub(super) fn a_call_repeated_after_a_lost_answer_adds_only_what_is_missing(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let jobs = rows(4);
    assert_eq!(desk.accept(&jobs[1..3]), [true, true]);
    assert_eq!(desk.accept(&jobs), [true, false, false, true]);
    assert_eq!(desk.accept(&jobs), [false; 4]);
    assert_eq!(desk.counts(), [("default".to_owned(), JobState::Scheduled, 4)]);
}

pub(super) fn an_id_of_a_job_that_ended_does_not_run_again(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = row();
    desk.add(&job);
    let held = desk.take_one(WorkerId::new());
    desk.settle(&outcome(&held, Outcome::Succeeded));
    assert_eq!(desk.accept(std::slice::from_ref(&job)), [false]);
    assert_eq!(desk.state(job.id), JobState::Succeeded);
    assert!(desk.take(WorkerId::new(), 1).is_empty());
}

pub(super) fn a_refused_job_is_refused_also_when_its_id_exists(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = row();
    desk.add(&job);
    let (index, _) = desk.refuse(&[row(), JobRow { version: 0, ..job }]);
    assert_eq!(index, 1);
    assert_eq!(desk.counts(), [("default".to_owned(), JobState::Scheduled, 1)]);
}

pub(super) fn payload_bytes_come_back_exactly(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let texts = [
        r#"{ "b" : 1,"a":2,  "b":3 }"#,
        r#""\u0000 and \ud83e\udd21 and \ud800""#,
        "[1e400, 12345678901234567890.000, -0.0, 1E+2]",
        "\"日本語 été \u{1f921} ' \\\" \\\\ $1 ?\"",
        "  null\r\n\t ",
        "\"\"",
    ];
    let jobs: Vec<_> = texts
        .iter()
        .map(|text| JobRow { payload: Body::new(text.as_bytes().to_vec()), ..row() })
        .collect();
    desk.accept(&jobs);
    for job in &jobs {
        assert_eq!(desk.job(job.id).payload.as_bytes(), job.payload.as_bytes());
    }
    for claimed in desk.take(WorkerId::new(), 10) {
        let given = jobs.iter().find(|job| job.id == claimed.id).expect("one of these");
        assert_eq!(claimed.payload.as_bytes(), given.payload.as_bytes());
    }
}

pub(super) fn a_payload_without_a_byte_comes_back_without_one(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.add(&JobRow { payload: Body::default(), ..row() });
    let job = desk.take_one(WorkerId::new());
    assert_eq!(job.payload, Body::default());
    let output = Some(Body::default());
    desk.settle(&OutcomeRow { output: output.clone(), ..outcome(&job, Outcome::Succeeded) });
    assert_eq!(desk.job(job.id).output, output);
}

pub(super) fn a_payload_of_exactly_the_bound_is_stored_and_one_byte_more_is_refused(
    fixture: &Fixture,
) {
    let mut desk = Desk::open(fixture);
    let limit = fixture.store().bounds().payload_bytes_max;
    let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2)).into_bytes();
    let fits = JobRow { payload: Body::new(text(limit)), ..row() };
    desk.add(&fits);
    assert_eq!(desk.job(fits.id).payload, fits.payload);
    assert_eq!(desk.take_one(WorkerId::new()).payload, fits.payload);
    let over = JobRow { payload: Body::new(text(limit + 1)), ..row() };
    assert_eq!(desk.refuse_one(&over), Rejection::PayloadTooLarge { bytes: limit + 1, limit });
}

pub(super) fn odd_names_are_kept_byte_by_byte_and_can_be_claimed(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for name in ODD_NAMES {
        let job = JobRow {
            queue: (*name).to_owned(),
            tags: vec![(*name).to_owned()],
            ..JobRow::new(JobId::new(), *name)
        };
        desk.add(&job);
        let stored = desk.job(job.id);
        assert_eq!(stored, crate::store::JobRecord::new(&job, desk.now()));
        let (plan, accepted) = ([quota(name, 9)], [accepts(name, 1)]);
        let claimed = desk.claim(&Claim::new(WorkerId::new(), 9, &plan, &accepted, LEASE)).jobs;
        assert_eq!(ids(&claimed), [job.id], "{name:?}");
        assert_eq!((claimed[0].queue.as_str(), claimed[0].wire_name.as_str()), (*name, *name));
        assert_eq!(claimed[0].tags, [*name]);
    }
}

pub(super) fn names_of_exactly_the_bound_are_stored_and_longer_ones_refused(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let bounds = fixture.store().bounds().clone();
    let job = JobRow {
        queue: "é".repeat(bounds.queue_bytes_max / 2),
        tags: vec!["t".repeat(bounds.tag_bytes_max)],
        ..JobRow::new(JobId::new(), "w".repeat(bounds.wire_name_bytes_max))
    };
    desk.add(&job);
    let stored = desk.job(job.id);
    assert_eq!((stored.queue, stored.wire_name), (job.queue, job.wire_name));
    let (bytes, limit) = (bounds.queue_bytes_max + 1, bounds.queue_bytes_max);
    let over = JobRow { queue: "q".repeat(bytes), ..row() };
    let Rejection::QueueName { fault, .. } = desk.refuse_one(&over) else {
        panic!("another reason");
    };
    assert_eq!(fault, NameFault::TooLong { bytes, limit });
}

pub(super) fn names_that_cannot_be_used_are_refused_with_their_fault(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let faults = [
        ("", NameFault::Empty),
        ("a\0b", NameFault::ControlCharacter),
        ("a\n", NameFault::ControlCharacter),
        (" a", NameFault::Blank),
        ("a ", NameFault::Blank),
    ];
    for (name, fault) in faults {
        let named = || name.to_owned();
        let queue = JobRow { queue: named(), ..row() };
        assert_eq!(desk.refuse_one(&queue), Rejection::QueueName { name: named(), fault });
        let wire_name = JobRow { wire_name: named(), ..row() };
        assert_eq!(desk.refuse_one(&wire_name), Rejection::WireName { name: named(), fault });
        let tag = JobRow { tags: vec!["good".to_owned(), named()], ..row() };
        assert_eq!(desk.refuse_one(&tag), Rejection::Tag { name: named(), fault });
    }
}

pub(super) fn names_that_only_look_alike_are_different(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let names = ["mail", "Mail", "MAIL", "\u{e9}", "e\u{301}", "mail.", "mail\u{a0}"];
    let jobs: Vec<_> =
        names.iter().map(|name| JobRow { queue: (*name).to_owned(), ..row() }).collect();
    desk.accept(&jobs);
    for job in &jobs {
        let (plan, accepted) = ([quota(&job.queue, 9)], [accepts("work", 1)]);
        let claimed = desk.claim(&Claim::new(WorkerId::new(), 9, &plan, &accepted, LEASE)).jobs;
        assert_eq!(ids(&claimed), [job.id], "{:?}", job.queue);
    }
}

pub(super) fn a_relative_due_time_counts_from_the_store_clock(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let delay = Duration::from_micros(3_600_000_001);
    let id = desk.add(&JobRow { due: Due::In(delay), ..row() });
    assert_eq!(desk.job(id).due_at, desk.now() + delay);
    desk.wait(delay - TICK);
    assert!(desk.take(WorkerId::new(), 1).is_empty());
    desk.wait(TICK);
    assert_eq!(desk.take_one(WorkerId::new()).id, id);
}

pub(super) fn an_absolute_due_time_is_kept_also_when_it_has_passed(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let now = desk.now();
    let past = now.saturating_sub(Duration::from_micros(86_400_000_003));
    let future = now + Duration::from_micros(86_400_000_003);
    for due in [Timestamp::MIN, Timestamp::EPOCH, past, future] {
        let id = desk.add(&JobRow { due: Due::At(due), ..row() });
        assert_eq!(desk.job(id).due_at, due);
    }
    let claimed = desk.take(WorkerId::new(), 9);
    let due: Vec<_> = claimed.iter().map(|job| job.due_at).collect();
    assert_eq!(due, [Timestamp::MIN, Timestamp::EPOCH, past]);
}

pub(super) fn a_due_time_that_cannot_be_stored_is_refused(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for due in [Due::At(Timestamp::MAX), Due::In(Duration::MAX)] {
        let reason = desk.refuse_one(&JobRow { due, ..row() });
        let Rejection::DueTooLate { due, limit } = reason else { panic!("{reason:?}") };
        assert_eq!(due, Timestamp::MAX);
        let id = desk.add(&JobRow { due: Due::At(limit), ..row() });
        assert_eq!(desk.job(id).due_at, limit);
    }
}

pub(super) fn a_version_outside_of_what_is_storable_is_refused(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let limit = i32::MAX as u32;
    for version in [0, limit + 1, u32::MAX] {
        let reason = desk.refuse_one(&JobRow { version, ..row() });
        assert_eq!(reason, Rejection::Version { version, limit });
    }
    let id = desk.add(&JobRow { version: limit, ..row() });
    assert_eq!(desk.job(id).version, limit);
}

pub(super) fn a_time_limit_of_zero_is_refused_and_a_long_one_kept(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let zero = JobRow { timeout: Some(Duration::ZERO), ..row() };
    assert_eq!(desk.refuse_one(&zero), Rejection::ZeroTimeout);
    let year = Some(Duration::from_secs(366 * 86_400));
    let id = desk.add(&JobRow { timeout: year, ..row() });
    assert_eq!(desk.job(id).timeout, year);
}

pub(super) fn tags_are_kept_in_order_up_to_their_bound(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let limit = fixture.store().bounds().tags_max;
    let tags: Vec<_> = (0..limit).rev().map(|n| format!("tag \"{n}\", {{x}}")).collect();
    let id = desk.add(&JobRow { tags: tags.clone(), ..row() });
    assert_eq!(desk.job(id).tags, tags);
    let count = limit + 1;
    let over = JobRow { tags: vec!["t".to_owned(); count], ..row() };
    assert_eq!(desk.refuse_one(&over), Rejection::TooManyTags { count, limit });
}

pub(super) fn a_thousand_jobs_come_in_by_one_call(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let jobs = rows(1000);
    assert_eq!(desk.accept(&jobs), [true; 1000]);
    assert_eq!(desk.counts(), [("default".to_owned(), JobState::Scheduled, 1000)]);
    assert_eq!(desk.accept(&jobs), [false; 1000]);
}
