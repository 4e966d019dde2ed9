//! When schedules tick, held against what two other crates make of the same expressions.
//!
//! Two hundred expressions are drawn, the same ones every time. In UTC their next ticks must be those that the
//! others' searches find. Around the clock changes of thirty years in twelve zones the others are only asked
//! whether a time on the wall is one of the expression's; what a change does to it is then worked out minute by
//! minute, by the rule as the manual states it, and must be what our search finds.
//!
//! Accepted differences, which is why some questions are not put to one of the others:
//!
//! - `cron` wants both fields of days to match where both are restricted: it is asked for what we write with a `+`.
//!   It counts weekdays from 1, so they are written as names; it knows no `L`, `W` and `#`.
//! - `cronexpr` takes a field of days that begins with `*`, as `*/2`, for no restriction (an old bug of crontab's
//!   that many keep): where both fields are restricted, one of them with a star and a step, it is not asked. It looks ahead for four years only, and finds neither the last day of a December nor its last weekday: it is asked
//!   for those of the other months.

use backwave::schedule::Schedule;
use backwave::{NewJob, Timestamp};
use chrono::{DateTime, Utc};
use jiff::tz::TimeZone;
use std::collections::BTreeSet;
use std::str::FromStr;
use std::time::{Duration, Instant};

const ZONES: [&str; 12] = [
    "America/New_York",
    "America/Santiago",
    "America/St_Johns",
    "Europe/Berlin",
    "Europe/Belgrade",
    "Europe/Dublin",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Asia/Beirut",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Pacific/Apia",
];

/// The five fields of an expression; weekdays by name.
#[derive(Debug, Clone)]
struct Expression {
    minute: String,
    hour: String,
    day: String,
    month: String,
    weekday: String,
}

/// Draws the same numbers in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// A field over numbers; how likely it is to be a mere star is up to the caller.
    fn field(&mut self, first: u64, last: u64, star_in_ten: u64) -> String {
        if self.below(10) < star_in_ten {
            return "*".to_owned();
        }
        match self.below(5) {
            0 => format!("*/{}", self.between(2, (last - first) / 2)),
            1 => {
                let start = self.between(first, last - 1);
                format!("{start}-{}", self.between(start + 1, last))
            }
            2 => {
                let start = self.between(first, last - 2);
                let end = self.between(start + 2, last);
                format!("{start}-{end}/{}", self.between(1, end - start))
            }
            3 => {
                let mut items: BTreeSet<u64> = BTreeSet::new();
                for _ in 0..3 {
                    items.insert(self.between(first, last));
                }
                items.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
            }
            _ => self.between(first, last).to_string(),
        }
    }

    fn expression(&mut self) -> Expression {
        const DAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
        let start = self.below(6) as usize;
        let weekday = match self.below(8) {
            0 => DAYS[start].to_owned(),
            1 => format!(
                "{}-{}",
                DAYS[start],
                DAYS[start + 1 + self.below(6 - start as u64) as usize]
            ),
            2 => format!("{},{}", DAYS[start], DAYS[6]),
            _ => "*".to_owned(),
        };
        Expression {
            minute: self.field(0, 59, 2),
            hour: self.field(0, 23, 4),
            day: self.field(1, 28, 7),
            month: self.field(1, 12, 8),
            weekday,
        }
    }
}

impl Expression {
    fn all() -> Vec<Self> {
        let mut dice = Dice(0x5eed);
        (0..200).map(|_| dice.expression()).collect()
    }

    fn restricts_both_days(&self) -> bool {
        self.day != "*" && self.weekday != "*"
    }

    fn keeps_rhythm(&self) -> bool {
        self.minute.starts_with('*') || self.hour.starts_with('*')
    }

    /// As we write it, with a weekday that must or need not match as well.
    fn ours(&self, both: bool) -> String {
        let Self { minute, hour, day, month, weekday } = self;
        let plus = if both && self.restricts_both_days() { "+" } else { "" };
        format!("{minute} {hour} {day} {month} {plus}{weekday}")
    }

    fn of_cron(&self) -> cron::Schedule {
        cron::Schedule::from_str(&format!("0 {}", self.ours(false))).expect("it reads it")
    }

    /// Not where it is known to differ.
    fn of_cronexpr(&self) -> Option<cronexpr::Crontab> {
        let differs = self.restricts_both_days() && self.day.starts_with('*');
        let text = format!("{} UTC", self.ours(false));
        (!differs).then(|| cronexpr::parse_crontab(&text).expect("it reads it"))
    }
}

fn schedule(expression: String, zone: &str) -> Schedule {
    Schedule::cron("differ", expression, NewJob::raw("job", "{}")).zone(zone)
}

fn ticks(schedule: &Schedule, after: i64, count: usize) -> Vec<i64> {
    let after = Timestamp::from_micros(after * 1_000_000);
    let ticks = schedule.next_times_after(after, count).expect("it is right");
    ticks.into_iter().map(|tick| tick.as_micros() / 1_000_000).collect()
}

fn seconds(text: &str) -> i64 {
    text.parse::<Timestamp>().expect("an instant").as_micros() / 1_000_000
}

fn utc(second: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(second, 0).expect("an instant")
}

#[test]
fn in_utc_the_next_ticks_are_those_that_others_find() {
    const COUNT: usize = 25;
    for expression in Expression::all() {
        for start in ["2024-02-28T23:59:30Z", "2026-08-01T00:00:00Z", "2099-12-31T12:34:00Z"] {
            let start = seconds(start);
            let theirs = expression.of_cron();
            let theirs = theirs.after(&utc(start)).take(COUNT).map(|tick| tick.timestamp());
            let theirs: Vec<_> = theirs.collect();
            let both = schedule(expression.ours(true), "UTC");
            // It knows no year beyond 2100.
            let known = theirs.len();
            assert_eq!(ticks(&both, start, known), theirs, "{expression:?} by cron");
            let Some(crontab) = expression.of_cronexpr() else { continue };
            let start_of_theirs = cronexpr::MakeTimestamp::from_second(start).expect("an instant");
            let theirs = crontab.iter_after(start_of_theirs).expect("it begins").take(COUNT);
            let theirs: Vec<_> =
                theirs.map(|tick| tick.expect("it goes on").timestamp().as_second()).collect();
            let either = schedule(expression.ours(false), "UTC");
            assert_eq!(ticks(&either, start, COUNT), theirs, "{expression:?} by cronexpr");
        }
    }
}

#[test]
fn last_nearest_and_nth_days_are_those_that_another_finds() {
    for days in [
        "L 1-11 *",
        "15W * *",
        "1W * *",
        "31W * *",
        "* * 5#3",
        "* * 1#5",
        "* 1-11 5L",
        "* 1-11 0L",
        "L,10 1-11 *",
        "1W,15W * *",
        "13 * 5",
        "1 * MON-FRI",
    ] {
        let crontab = cronexpr::parse_crontab(&format!("30 4 {days} UTC")).expect("it reads it");
        let start = seconds("2023-12-31T00:00:00Z");
        let from = cronexpr::MakeTimestamp::from_second(start).expect("an instant");
        let theirs = crontab.iter_after(from).expect("it begins").take(12);
        let theirs: Vec<_> =
            theirs.map(|tick| tick.expect("it goes on").timestamp().as_second()).collect();
        assert_eq!(ticks(&schedule(format!("30 4 {days}"), "UTC"), start, 12), theirs, "{days}");
    }
}

/// A change of a zone's offset.
struct Change {
    at: i64,
    before: i64,
    after: i64,
}

fn changes(zone: &TimeZone) -> Vec<Change> {
    let instant = |second| jiff::Timestamp::from_second(second).expect("an instant");
    let offset = |second| i64::from(zone.to_offset(instant(second)).seconds());
    let (first, last) = (seconds("2000-01-01T00:00:00Z"), seconds("2030-01-01T00:00:00Z"));
    let found = zone.following(instant(first)).map(|change| change.timestamp().as_second());
    let found = found.take_while(|at| *at < last);
    let found = found.map(|at| Change { at, before: offset(at - 1), after: offset(at) });
    found.filter(|change| change.before != change.after).collect()
}

#[test]
fn around_every_clock_change_of_thirty_years_the_rule_of_the_manual_holds() {
    let expressions = Expression::all();
    let mut next = 0;
    let (mut windows, mut seen) = (0, 0);
    for name in ZONES {
        let zone = TimeZone::get(name).expect("it is known");
        for change in changes(&zone) {
            for _ in 0..3 {
                // Most say nothing about the few hours at issue: those that do are looked for.
                let expression = &expressions[next % expressions.len()];
                next += 7;
                windows += 1;
                seen += check(expression, name, &change);
            }
        }
    }
    assert!(windows > 1_200, "{windows} windows");
    assert!(seen > 5_000, "{seen} ticks in {windows} windows");
}

/// Compares what ticks from three hours before a change until three hours after it, by both of the others; how many
/// did.
fn check(expression: &Expression, zone: &str, change: &Change) -> usize {
    let cron = expression.of_cron();
    let by_cron = |civil: i64| cron.includes(utc(civil));
    let mut seen = compare(expression.ours(true), expression, zone, change, by_cron);
    if let Some(crontab) = expression.of_cronexpr() {
        let by_cronexpr = |civil: i64| {
            let civil = cronexpr::MakeTimestamp::from_second(civil).expect("an instant");
            crontab.matches(civil).expect("it answers")
        };
        seen += compare(expression.ours(false), expression, zone, change, by_cronexpr);
    }
    seen
}

/// `matches` judges a time on the wall, written as if it were UTC.
fn compare(
    ours: String,
    expression: &Expression,
    zone: &str,
    change: &Change,
    matches: impl Fn(i64) -> bool,
) -> usize {
    const SPAN: i64 = 3 * 3600;
    let (from, until) = (change.at - SPAN, change.at + SPAN);
    let back = (change.before - change.after).max(0);
    let mut expected = BTreeSet::new();
    for at in (from..=until).filter(|at| at % 60 == 0) {
        let offset = if at < change.at { change.before } else { change.after };
        let is_second_pass = (change.at..change.at + back).contains(&at);
        if matches(at + offset) && (expression.keeps_rhythm() || !is_second_pass) {
            expected.insert(at);
        }
    }
    if !expression.keeps_rhythm() {
        let mut gap = change.at + change.before..change.at + change.after;
        if gap.any(|civil| civil % 60 == 0 && matches(civil)) {
            expected.insert(change.at);
        }
    }
    let schedule = schedule(ours, zone);
    // One more than expected, to see that nothing else comes.
    let found = ticks(&schedule, from - 1, expected.len() + 1);
    let found: BTreeSet<_> = found.into_iter().filter(|tick| *tick <= until).collect();
    let at = Timestamp::from_micros(change.at * 1_000_000);
    assert_eq!(found, expected, "{expression:?} in {zone} at {at}");
    found.len()
}

#[test]
fn the_rule_of_the_manual_is_no_empty_one() {
    // Of the drawn expressions so many are of each kind, and the zones change in every way there is.
    let expressions = Expression::all();
    let rhythms = expressions.iter().filter(|expression| expression.keeps_rhythm()).count();
    assert!((60..140).contains(&rhythms), "{rhythms}");
    assert!(expressions.iter().any(Expression::restricts_both_days));
    let all: Vec<_> = ZONES
        .iter()
        .flat_map(|name| changes(&TimeZone::get(name).expect("it is known")))
        .map(|change| change.after - change.before)
        .collect();
    for by in [3600, -3600, 1800, -1800, 86_400] {
        assert!(all.contains(&by), "no clock changed by {by} s");
    }
    assert!(all.len() > 400, "{} changes", all.len());
}

#[test]
fn what_never_comes_is_refused_fast() {
    for expression in ["0 0 30 2 *", "0 0 31 4 *", "0 0 31 2,4,6,9,11 *", "0 0 31 4 +5"] {
        let schedule = schedule(expression.to_owned(), "UTC");
        // The best of a few: other work on the machine is not at issue.
        let took = (0..5).map(|_| {
            let began = Instant::now();
            assert!(schedule.next_times(1).is_err(), "{expression}");
            began.elapsed()
        });
        let took = took.min().expect("it was tried");
        assert!(took < Duration::from_millis(10), "{expression}: {took:?}");
    }
}
