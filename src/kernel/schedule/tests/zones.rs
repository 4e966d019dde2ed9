//! Clock changes, zone by zone.

use super::{at, cron, every, first, short, walk, zone_of};
use crate::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn in_a_repeated_hour_a_time_of_the_day_comes_once_and_a_rhythm_goes_on() {
    let (from, until) = ("2026-10-31T12:00:00Z", "2026-11-02T12:00:00Z");
    let daily = walk(&cron("30 1 * * *", "America/New_York"), from, until);
    let daily: Vec<_> = daily.into_iter().map(short).collect();
    assert_eq!(daily, ["2026-11-01T05:30", "2026-11-02T06:30"], "at the first of both");
    let half_hourly = walk(&cron("*/30 * * * *", "America/New_York"), from, until);
    let of_the_day = half_hourly
        .iter()
        .filter(|tick| (at("2026-11-01T04:00:00Z")..at("2026-11-02T05:00:00Z")).contains(*tick));
    assert_eq!(of_the_day.count(), 50, "a local day of 25 hours");
    assert!(half_hourly.windows(2).all(|pair| pair[1].since(pair[0]) == HOUR / 2));
}

#[test]
fn a_time_of_the_day_in_a_gap_comes_right_after_it() {
    let ticks = first(&cron("30 2 * * *", "America/New_York"), "2026-03-08T06:30:00Z", 5);
    assert_eq!(
        ticks,
        [
            "2026-03-08T07:00",
            "2026-03-09T06:30",
            "2026-03-10T06:30",
            "2026-03-11T06:30",
            "2026-03-12T06:30"
        ]
    );
    // Half an hour is missing there: from 02:00 to 02:30.
    let ticks = first(&cron("15 2 * * *", "Australia/Lord_Howe"), "2026-10-03T00:00:00Z", 3);
    assert_eq!(ticks, ["2026-10-03T15:30", "2026-10-04T15:15", "2026-10-05T15:15"]);
    let ticks = first(&cron("0 2 * * *", "America/New_York"), "2025-03-09T06:30:00Z", 2);
    assert_eq!(ticks, ["2025-03-09T07:00", "2025-03-10T06:00"]);
}

#[test]
fn several_times_of_one_gap_and_that_of_its_end_are_one_tick() {
    let ticks = first(&cron("0,30 2,3 * * *", "Europe/Berlin"), "2026-03-29T00:00:00Z", 3);
    assert_eq!(ticks, ["2026-03-29T01:00", "2026-03-29T01:30", "2026-03-30T00:00"]);
}

#[test]
fn a_midnight_that_does_not_exist_is_the_first_instant_of_its_day() {
    let ticks = first(&cron("0 0 * * *", "America/Santiago"), "2026-09-05T05:00:00Z", 3);
    assert_eq!(ticks, ["2026-09-06T04:00", "2026-09-07T03:00", "2026-09-08T03:00"]);
    let ticks = first(&cron("0 0 * * *", "Africa/Cairo"), "2026-04-22T22:30:00Z", 3);
    assert_eq!(ticks, ["2026-04-23T22:00", "2026-04-24T21:00", "2026-04-25T21:00"]);
    let ticks = first(&cron("0 0 * * *", "Asia/Beirut"), "2026-03-27T22:30:00Z", 3);
    assert_eq!(ticks, ["2026-03-28T22:00", "2026-03-29T21:00", "2026-03-30T21:00"]);
    // Midnight comes twice there: the last hour of the day before is repeated.
    let ticks = first(&cron("30 23 * * *", "America/Santiago"), "2026-04-03T12:00:00Z", 3);
    assert_eq!(ticks, ["2026-04-04T02:30", "2026-04-05T02:30", "2026-04-06T03:30"]);
}

#[test]
fn an_hourly_rhythm_is_one_tick_an_hour_throughout() {
    let ticks = walk(
        &cron("55 * * * *", "Europe/Belgrade"),
        "2026-03-28T00:00:00Z",
        "2026-04-02T00:00:00Z",
    );
    assert_eq!(ticks.len(), 120);
    assert!(ticks.windows(2).all(|pair| pair[1].since(pair[0]) == HOUR));
    let ticks =
        walk(&cron("@hourly", "Europe/Belgrade"), "2026-10-24T00:00:00Z", "2026-10-26T00:00:00Z");
    assert_eq!(ticks.len(), 48);
}

#[test]
fn an_hour_field_of_numbers_names_times_of_the_day() {
    // Every quarter of an hour, but in hours that are named: the minute field begins with a star.
    let rhythm = walk(
        &cron("*/15 1 * * *", "Europe/Berlin"),
        "2026-10-24T22:00:00Z",
        "2026-10-25T22:00:00Z",
    );
    assert_eq!(rhythm.len(), 4, "01:00 to 01:45 come once there; 02:00 to 02:45 twice");
    let rhythm = walk(
        &cron("*/15 2 * * *", "Europe/Berlin"),
        "2026-10-24T22:00:00Z",
        "2026-10-25T22:00:00Z",
    );
    assert_eq!(rhythm.len(), 8);
    let rhythm = walk(
        &cron("*/15 2 * * *", "Europe/Berlin"),
        "2026-03-28T12:00:00Z",
        "2026-03-29T12:00:00Z",
    );
    assert_eq!(rhythm.len(), 0, "the hour is missing");
    let named = walk(
        &cron("0,15,30,45 2 * * *", "Europe/Berlin"),
        "2026-10-24T22:00:00Z",
        "2026-10-25T22:00:00Z",
    );
    assert_eq!(named.len(), 4);
    let named = walk(
        &cron("0 0-23 * * *", "Europe/Berlin"),
        "2026-10-24T22:00:00Z",
        "2026-10-25T22:59:59Z",
    );
    assert_eq!(named.len(), 23, "25 hours, without midnight, and two o'clock once");
}

#[test]
fn a_zone_whose_winter_is_the_exception_is_like_any_other() {
    let ticks = first(&cron("0 18 * * *", "Europe/Dublin"), "2026-03-28T12:00:00Z", 4);
    assert_eq!(
        ticks,
        ["2026-03-28T18:00", "2026-03-29T17:00", "2026-03-30T17:00", "2026-03-31T17:00"]
    );
    let ticks = first(&cron("30 1 * * *", "Europe/Dublin"), "2026-10-24T12:00:00Z", 2);
    assert_eq!(ticks, ["2026-10-25T00:30", "2026-10-26T01:30"]);
    let ticks = first(&cron("30 1 * * *", "Europe/Dublin"), "2026-03-28T12:00:00Z", 2);
    assert_eq!(ticks, ["2026-03-29T01:00", "2026-03-30T00:30"]);
}

#[test]
fn a_clock_that_changes_by_half_an_hour_keeps_a_half_hourly_rhythm() {
    for (from, until) in [
        ("2026-04-03T00:00:00Z", "2026-04-06T00:00:00Z"),
        ("2026-10-02T00:00:00Z", "2026-10-05T00:00:00Z"),
    ] {
        let ticks = walk(&cron("*/30 * * * *", "Australia/Lord_Howe"), from, until);
        assert_eq!(ticks.len(), 144);
        assert!(ticks.windows(2).all(|pair| pair[1].since(pair[0]) == HOUR / 2));
    }
}

#[test]
fn a_day_that_a_zone_skips_is_made_up_for_at_once() {
    // Samoa went from 29 to 31 December.
    let ticks = first(&cron("0 12 * * *", "Pacific/Apia"), "2011-12-29T00:00:00Z", 3);
    assert_eq!(ticks, ["2011-12-29T22:00", "2011-12-30T10:00", "2011-12-30T22:00"]);
    let hourly =
        walk(&cron("0 * * * *", "Pacific/Apia"), "2011-12-29T00:00:00Z", "2012-01-01T00:00:00Z");
    assert_eq!(hourly.len(), 72);
}

#[test]
fn clocks_that_go_back_for_a_month_are_followed() {
    // Morocco: an hour back for Ramadan, 15 February to 22 March 2026.
    let ticks = first(&cron("30 2 * * *", "Africa/Casablanca"), "2026-02-14T00:00:00Z", 3);
    assert_eq!(ticks, ["2026-02-14T01:30", "2026-02-15T01:30", "2026-02-16T02:30"]);
    let ticks = first(&cron("30 2 * * *", "Africa/Casablanca"), "2026-03-21T00:00:00Z", 3);
    assert_eq!(ticks, ["2026-03-21T02:30", "2026-03-22T02:00", "2026-03-23T01:30"]);
}

#[test]
fn an_offset_of_quarters_of_an_hour_is_an_offset() {
    let ticks = first(&cron("0 9 * * 1", "Asia/Kathmandu"), "2026-08-01T00:00:00Z", 2);
    assert_eq!(ticks, ["2026-08-03T03:15", "2026-08-10T03:15"]);
}

#[test]
fn an_interval_is_of_elapsed_time() {
    let hourly = every(3600).resolve(&zone_of).unwrap();
    assert_eq!(walk(&hourly, "2026-10-24T00:00:00Z", "2026-10-26T00:00:00Z").len(), 48);
    let anchored = super::TimingText { starts_at: Some(at("2026-01-01T00:07:30Z")), ..every(900) };
    let anchored = anchored.resolve(&zone_of).unwrap();
    assert_eq!(
        first(&anchored, "2025-06-01T00:00:00Z", 2),
        ["2026-01-01T00:07:30", "2026-01-01T00:22:30"]
    );
    assert_eq!(anchored.next(at("2026-01-01T00:22:30Z")), Some(at("2026-01-01T00:37:30Z")));
}

#[test]
fn ticks_only_ascend_from_every_minute_around_every_change() {
    let zones = ["America/New_York", "Europe/Berlin", "America/Santiago", "Australia/Lord_Howe"];
    let expressions = ["* * * * *", "*/5 * * * *", "0 * * * *", "0 2 * * *", "30 2 * * *"];
    for zone in zones {
        let mut changes = zone_of(zone).unwrap();
        let start = jiff::Timestamp::from_microsecond(at("2026-01-01T00:00:00Z").as_micros());
        let both: Vec<_> =
            changes.following(start.unwrap()).take(2).map(|c| c.timestamp()).collect();
        changes = zone_of(zone).unwrap();
        assert_eq!((both.len(), changes.iana_name()), (2, Some(zone)));
        for change in both {
            let change = Timestamp::from_micros(change.as_microsecond());
            let from = change.saturating_sub(HOUR * 24);
            for expression in expressions {
                let timing = cron(expression, zone);
                let mut nexts = BTreeSet::new();
                for minute in 0..2880 {
                    let base = from + Duration::from_secs(60) * minute;
                    let next = timing.next(base).unwrap();
                    assert!(next > base, "{expression} in {zone} at {base}");
                    assert!(next.since(base) <= HOUR * 48, "{expression} in {zone} at {base}");
                    nexts.insert(next);
                }
                // The walk meets just what was found from every minute, and not one tick more.
                let until = *nexts.last().unwrap();
                let walked = std::iter::successors(timing.next(from), |tick| timing.next(*tick));
                let walked: Vec<_> = walked.take_while(|tick| *tick <= until).collect();
                assert!(walked.len() <= 2881, "{expression} in {zone}");
                assert_eq!(walked, nexts.into_iter().collect::<Vec<_>>(), "{expression} in {zone}");
            }
        }
    }
}

#[test]
fn a_daily_expression_loses_no_local_day_in_twenty_years_of_any_zone() {
    for zone in [
        "America/New_York",
        "America/Santiago",
        "Africa/Cairo",
        "Africa/Casablanca",
        "Asia/Beirut",
        "Australia/Lord_Howe",
        "Europe/Dublin",
        "Pacific/Apia",
    ] {
        for expression in ["0 0 * * *", "30 1 * * *", "15 2 * * *"] {
            let ticks =
                walk(&cron(expression, zone), "2010-01-01T12:00:00Z", "2030-01-01T12:00:00Z");
            let days = 365 * 20 + 5;
            // A zone that crosses the date line has a day more or less.
            assert!(
                (days - 1..=days + 1).contains(&ticks.len()),
                "{expression} in {zone}: {}",
                ticks.len()
            );
            assert!(ticks.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }
}

#[test]
fn a_tick_is_a_whole_second_however_the_question_falls() {
    let timing = cron("0 4 * * *", "UTC");
    let tick = at("2026-05-01T04:00:00Z");
    for early in [7_000_000, 15_000, 1_000, 1] {
        assert_eq!(timing.next(tick.saturating_sub(Duration::from_micros(early))), Some(tick));
    }
    assert_eq!(timing.next(tick), Some(at("2026-05-02T04:00:00Z")));
    assert_eq!(timing.next(tick + Duration::from_micros(1)), Some(at("2026-05-02T04:00:00Z")));
}

#[test]
fn before_the_first_railway_clock_nothing_breaks() {
    for zone in ["America/New_York", "Asia/Manila", "America/Juneau", "Africa/Monrovia"] {
        let ticks =
            walk(&cron("30 12 * * *", zone), "1840-01-01T00:00:00Z", "1900-01-01T00:00:00Z");
        assert!(ticks.len() > 21_000, "{zone}: {}", ticks.len());
        assert!(ticks.windows(2).all(|pair| pair[0] < pair[1]), "{zone}");
    }
}

#[test]
fn in_no_zone_at_no_time_is_there_a_next_tick_that_is_none() {
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut zones = 0;
    for name in jiff::tz::TimeZoneDatabase::bundled().available() {
        zones += 1;
        for expression in ["30 2 * * *", "*/7 * * * *", "0 0 29 2 *"] {
            let timing = cron(expression, name.as_str());
            for _ in 0..10 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // From 1800 to 2250.
                let micros = (seed >> 20) as i64 % 14_200_000_000_000_000 - 5_364_662_400_000_000;
                let base = Timestamp::from_micros(micros);
                let next = timing.next(base);
                assert!(next > Some(base), "{expression} in {name:?} after {base}: {next:?}");
            }
        }
    }
    assert!(zones > 400, "{zones} zones");
}
