//! The forms in which timing and definition are kept.

use super::super::{CatchUp, Definition, TimingText};
use super::{at, cron_text, every, zone_of};
use crate::store::{Body, Due, JobRow};
use crate::{JobId, RetryPolicy, Timestamp};
use std::time::Duration;

#[test]
fn a_timing_says_what_was_declared_and_nothing_else() {
    let text = |timing: &TimingText| serde_json::to_string(timing).unwrap();
    assert_eq!(
        text(&cron_text("30 2 * * *", "Europe/Zurich")),
        r#"{"cron":"30 2 * * *","zone":"Europe/Zurich"}"#
    );
    let full = TimingText {
        jitter_us: 5,
        starts_at: Some(at("2026-01-01T00:00:00Z")),
        ends_at: Some(at("2027-01-01T00:00:00.5Z")),
        ..every(900)
    };
    let written = text(&full);
    assert_eq!(
        written,
        r#"{"every_us":900000000,"jitter_us":5,"starts_at":"2026-01-01T00:00:00Z","ends_at":"2027-01-01T00:00:00.5Z"}"#
    );
    assert_eq!(TimingText::read(&written), Ok(full));
}

#[test]
fn a_timing_that_cannot_be_meant_is_refused() {
    let refused = [
        "",
        "{}",
        "null",
        r#"{"every_us":0}"#,
        r#"{"every_us":-1}"#,
        r#"{"cron":"* * * * *","every_us":1}"#,
        r#"{"cron":"x"}"#,
        r#"{"cron":"* * * * *","zone":"Mars/Olympus"}"#,
        r#"{"cron":"* * * * *","skip":"holidays"}"#,
        r#"{"cron":"0 0 30 2 *"}"#,
        r#"{"every_us":1,"starts_at":"soon"}"#,
    ];
    for text in refused {
        let read = TimingText::read(text).and_then(|timing| timing.resolve(&zone_of));
        assert!(read.is_err(), "{text:?} was read");
    }
    let read = TimingText::read(r#"{"cron":"* * * * *","zone":"Mars/Olympus"}"#).unwrap();
    let fault = read.resolve(&zone_of).unwrap_err().to_string();
    assert!(fault.starts_with(r#"the zone "Mars/Olympus" is not known"#), "{fault}");
}

#[test]
fn a_definition_gives_each_tick_its_own_job() {
    let mut row = JobRow::new(JobId::new(), "report");
    row.version = 3;
    row.queue = "slow".to_owned();
    row.payload = Body::new(br#"{"b":1.10,"a":"\u0000"}"#.to_vec());
    row.retry = Some(RetryPolicy::never());
    row.timeout = Some(Duration::from_secs(9));
    row.tags = vec!["nightly".to_owned()];
    let mut definition = Definition::of(row.clone()).unwrap();
    definition.catch_up = CatchUp::Coalesce;
    definition.grace_us = 60_000_000;
    let text = serde_json::to_string(&definition).unwrap();
    let read = Definition::read(&text).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
    assert_eq!((read.catch_up, read.grace()), (CatchUp::Coalesce, Duration::from_secs(60)));

    let tick = at("2026-01-01T00:00:00Z");
    let job = read.job_of("nightly", tick);
    assert_eq!(job.due, Due::Now);
    assert_eq!(
        job.tick.as_ref().map(|tick| (tick.schedule.as_str(), tick.at)),
        Some(("nightly", tick))
    );
    let untimed = JobRow { id: row.id, tick: None, ..job.clone() };
    assert_eq!(untimed, row, "the payload is the very text");
    assert_eq!(job.id, read.job_of("nightly", tick).id);
    assert_ne!(job.id, read.job_of("nightly", tick + Duration::from_micros(1)).id);
    assert_ne!(job.id, read.job_of("nightly2", tick).id);
}

#[test]
fn the_id_of_a_tick_is_the_same_for_ever() {
    let id = JobId::of_tick("nightly", at("2026-01-01T00:00:00Z"));
    assert_eq!(id.to_string(), "019b76da-a800-8e04-a196-1f366fb72858");
    let later = JobId::of_tick("aaa", at("2026-01-01T00:00:00.001Z"));
    assert!(id < later, "ids ascend with their ticks");
    let _ = JobId::of_tick("before the epoch", Timestamp::MIN);
}

#[test]
fn a_definition_that_is_not_known_is_refused() {
    for text in ["", "{}", r#"{"wire_name":"a"}"#] {
        assert!(Definition::read(text).is_err(), "{text:?}");
    }
    let row = JobRow { payload: Body::new(vec![0xff]), ..JobRow::new(JobId::new(), "a") };
    assert!(Definition::of(row).is_err());
    let mut text =
        serde_json::to_string(&Definition::of(JobRow::new(JobId::new(), "a")).unwrap()).unwrap();
    assert!(Definition::read(&text).is_ok());
    text.insert_str(1, r#""only_if":"raining","#);
    assert!(Definition::read(&text).is_err());
}
