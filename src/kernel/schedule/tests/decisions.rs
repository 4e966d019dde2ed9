//! What becomes of ticks since the last look.

use super::super::{CatchUp, Definition, Plan, TimingText, decide, refused};
use super::{at, cron_text, every, zone_of};
use crate::store::{JobRow, MintRow, ScheduleRecord, ScheduleRow};
use crate::{JobId, Timestamp};
use std::collections::BTreeSet;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

fn record(cursor: &str) -> ScheduleRecord {
    let text = String::new();
    let row = ScheduleRow::new("s".to_owned(), "o".to_owned(), text.clone(), text);
    ScheduleRecord::new(row, at(cursor))
}

fn plan(timing: &TimingText, catch_up: CatchUp) -> Result<Plan, String> {
    let mut definition = Definition::of(JobRow::new(JobId::new(), "report")).unwrap();
    definition.catch_up = catch_up;
    definition.grace_us = 60_000_000;
    let timing = timing.resolve(&zone_of).unwrap();
    Ok(Plan { may_move: timing.may_move(), timing, definition })
}

fn tick_of(row: &MintRow) -> Option<Timestamp> {
    Some(row.job.as_ref()?.tick.as_ref()?.at)
}

#[test]
fn without_a_tick_nothing_is_settled_and_the_next_look_is_the_next_tick() {
    let plan = plan(&cron_text("*/15 * * * *", "UTC"), CatchUp::Skip);
    let row = decide(&record("2026-01-01T10:00:00Z"), &plan, at("2026-01-01T10:05:00Z"));
    assert_eq!((row.cursor, row.revision), (at("2026-01-01T10:00:00Z"), 1));
    assert_eq!((row.look_at, row.next_tick), (row.next_tick, Some(at("2026-01-01T10:15:00Z"))));
    assert_eq!((row.job, row.missed, row.error), (None, None, None));
}

#[test]
fn a_tick_is_minted_within_its_grace_and_skipped_beyond() {
    let plan = plan(&cron_text("0 * * * *", "UTC"), CatchUp::Skip);
    let tick = at("2026-01-01T11:00:00Z");
    let decided = |late| decide(&record("2026-01-01T10:30:00Z"), &plan, tick + late);
    for late in [Duration::ZERO, MINUTE] {
        let row = decided(late);
        assert_eq!((tick_of(&row), row.cursor, row.missed), (Some(tick), tick, None));
        assert_eq!(row.look_at, Some(at("2026-01-01T12:00:00Z")));
    }
    let row = decided(MINUTE + Duration::from_micros(1));
    assert_eq!((tick_of(&row), row.cursor, row.missed), (None, tick, Some((1, tick))));
    let row = decide(
        &record("2026-01-01T10:30:00Z"),
        &plan,
        tick.saturating_sub(Duration::from_micros(1)),
    );
    assert_eq!((tick_of(&row), row.missed), (None, None), "a tick before its time does nothing");
}

#[test]
fn after_a_week_of_sleep_each_schedule_mints_once_at_most() {
    let (cursor, now) = (record("2026-01-01T00:00:00Z"), at("2026-01-09T00:00:30Z"));
    for expression in ["* * * * *", "*/15 * * * *", "0 6 * * *"] {
        let timing = cron_text(expression, "Europe/Berlin");
        let skipped = decide(&cursor, &plan(&timing, CatchUp::Skip), now);
        let coalesced = decide(&cursor, &plan(&timing, CatchUp::Coalesce), now);
        assert!(coalesced.job.is_some(), "{expression}");
        assert_eq!(coalesced.missed, None);
        assert_eq!((skipped.cursor, skipped.look_at), (coalesced.cursor, coalesced.look_at));
        assert!(skipped.look_at.unwrap() > now, "{expression}");
        let newest = at(if expression == "0 6 * * *" {
            "2026-01-08T05:00:00Z"
        } else {
            "2026-01-09T00:00:00Z"
        });
        assert_eq!((skipped.cursor, tick_of(&coalesced)), (newest, Some(newest)));
    }
    let every_minute = decide(&cursor, &plan(&cron_text("* * * * *", "UTC"), CatchUp::Skip), now);
    // Counted up to a bound: at least so many.
    assert_eq!(every_minute.missed, Some((9_999, at("2026-01-08T23:59:00Z"))));
    assert_eq!(
        tick_of(&every_minute),
        Some(at("2026-01-09T00:00:00Z")),
        "the newest is in its grace"
    );
    let hourly = decide(&cursor, &plan(&cron_text("0 * * * *", "UTC"), CatchUp::Skip), now);
    assert_eq!(hourly.missed, Some((8 * 24 - 1, at("2026-01-08T23:00:00Z"))));
}

#[test]
fn a_cursor_ahead_of_the_clock_stays_and_its_ticks_do_not_come_again() {
    // It was 17:00 when the clock was set back to 15:01.
    let plan = plan(&cron_text("* * * * *", "UTC"), CatchUp::Coalesce);
    let cursor = at("2026-01-01T17:00:00Z");
    for minute in 1..120 {
        let now = at("2026-01-01T15:00:00Z") + MINUTE * minute;
        let row = decide(&record("2026-01-01T17:00:00Z"), &plan, now);
        assert_eq!((row.cursor, tick_of(&row)), (cursor, None));
        assert_eq!(row.look_at, Some(cursor + MINUTE));
    }
}

#[test]
fn jitter_delays_the_look_and_never_the_tick() {
    let timing = TimingText { jitter_us: 600_000_000, ..cron_text("0 * * * *", "UTC") };
    let plan = plan(&timing, CatchUp::Skip);
    let mut delays = BTreeSet::new();
    let mut cursor = record("2026-01-01T00:00:00Z");
    for hour in 1..24 {
        let tick = at("2026-01-01T00:00:00Z") + MINUTE * 60 * hour;
        let waiting = decide(&cursor, &plan, tick);
        assert_eq!((waiting.next_tick, tick_of(&waiting)), (Some(tick), None));
        let look_at = waiting.look_at.unwrap();
        assert!(look_at >= tick && look_at <= tick + MINUTE * 10);
        delays.insert(look_at.since(tick));
        let row = decide(&cursor, &plan, look_at);
        assert_eq!((tick_of(&row), row.cursor, row.missed), (Some(tick), tick, None));
        // Its grace begins where the jitter ends.
        assert_eq!(tick_of(&decide(&cursor, &plan, look_at + MINUTE)), Some(tick));
        cursor.cursor = tick;
    }
    assert!(delays.len() > 20, "{delays:?}");
}

#[test]
fn a_jitter_longer_than_the_interval_keeps_the_order_of_ticks() {
    let timing = TimingText { jitter_us: 600_000_000, ..cron_text("* * * * *", "UTC") };
    let plan = plan(&timing, CatchUp::Coalesce);
    let mut cursor = record("2026-01-01T00:00:00Z");
    let mut now = at("2026-01-01T00:00:00Z");
    let end = at("2026-01-01T06:00:00Z");
    while now < end {
        let row = decide(&cursor, &plan, now);
        assert!(row.cursor >= cursor.cursor && row.cursor <= now);
        assert!(row.look_at.unwrap() > now, "it looks again at once: {row:?}");
        cursor.cursor = row.cursor;
        now = row.look_at.unwrap();
    }
    assert!(cursor.cursor >= end.saturating_sub(MINUTE * 11));
}

#[test]
fn after_its_end_a_schedule_is_not_looked_at_any_more() {
    let end = at("2026-01-01T12:00:00Z");
    let timing = TimingText { ends_at: Some(end), ..every(3600) };
    let plan = plan(&timing, CatchUp::Skip);
    let row = decide(&record("2026-01-01T11:30:00Z"), &plan, end);
    assert_eq!((tick_of(&row), row.look_at, row.next_tick), (Some(end), None, None));
    let row = decide(&record("2026-01-01T12:00:00Z"), &plan, end + MINUTE);
    assert_eq!((tick_of(&row), row.look_at, row.cursor), (None, None, end));
}

#[test]
fn what_does_not_read_is_looked_at_less_and_less_often() {
    let wrong = Err("it is\0 wrong".to_owned());
    let mut broken = record("2026-01-01T00:00:00Z");
    let begin = at("2026-01-01T01:00:00Z");
    let row = decide(&broken, &wrong, begin);
    assert_eq!(row.error.as_deref(), Some("it is\u{fffd} wrong"));
    assert_eq!((row.cursor, row.look_at), (broken.cursor, Some(begin + MINUTE)));
    broken.error = Some((String::new(), begin));
    let mut now = begin;
    let mut waits = Vec::new();
    for _ in 0..9 {
        let look_at = refused(&broken, "still", now).look_at.unwrap();
        waits.push(look_at.since(now).as_secs() / 60);
        now = look_at;
    }
    assert_eq!(waits, [1, 1, 2, 4, 8, 16, 32, 60, 60]);
}

#[test]
fn new_zone_data_is_heeded_within_the_hour() {
    let plan_in = |zone| plan(&cron_text("0 2 1 * *", zone), CatchUp::Skip);
    let now = at("2026-01-10T00:00:00Z");
    let row = decide(&record("2026-01-09T00:00:00Z"), &plan_in("Europe/Berlin"), now);
    assert_eq!(row.next_tick, Some(at("2026-02-01T01:00:00Z")));
    assert_eq!(row.look_at, Some(now + MINUTE * 60));
    let row = decide(&record("2026-01-09T00:00:00Z"), &plan_in("UTC"), now);
    assert_eq!(row.look_at, row.next_tick, "there is nothing to change");
}
