//! The dialect, on civil time alone.

use super::super::cron::{Cron, CronFault};
use super::{cron, first};

fn civil(expression: &str, from: &str, count: usize) -> Vec<String> {
    first(&cron(expression, "UTC"), from, count)
}

fn days(expression: &str, from: &str, count: usize) -> Vec<String> {
    civil(expression, from, count).into_iter().map(|tick| tick[..10].to_owned()).collect()
}

#[test]
fn weekdays_are_those_of_crontab() {
    // A Saturday.
    let from = "2026-08-01T00:00:00Z";
    assert_eq!(
        days("0 7 * * 1-5", from, 6),
        ["2026-08-03", "2026-08-04", "2026-08-05", "2026-08-06", "2026-08-07", "2026-08-10"]
    );
    let sundays = ["2026-08-02", "2026-08-09", "2026-08-16"];
    for expression in ["0 0 * * 0", "0 0 * * 7", "0 0 * * SUN", "0 0 * * sun", "@weekly"] {
        assert_eq!(days(expression, from, 3), sundays, "{expression}");
    }
    assert_eq!(days("0 0 * * 6", from, 2), ["2026-08-08", "2026-08-15"]);
    assert_eq!(days("0 0 * * 5-7", from, 3), ["2026-08-02", "2026-08-07", "2026-08-08"]);
    assert_eq!(days("0 0 * * SAT-SUN", "2026-08-02T00:00:00Z", 2), ["2026-08-08", "2026-08-09"]);
}

#[test]
fn the_seconds_field_comes_first_and_is_optional() {
    let from = "2026-08-01T00:00:00Z";
    assert_eq!(
        civil("*/20 30 2 * * *", from, 3),
        ["2026-08-01T02:30", "2026-08-01T02:30:20", "2026-08-01T02:30:40"]
    );
    assert_eq!(civil("30 2 * * *", from, 1), ["2026-08-01T02:30"]);
}

#[test]
fn names_stand_for_whole_expressions() {
    let from = "2026-08-01T10:30:00Z";
    let next = |name| civil(name, from, 1).remove(0);
    assert_eq!(next("@hourly"), "2026-08-01T11:00");
    assert_eq!(next("@daily"), "2026-08-02T00:00");
    assert_eq!(next("@weekly"), "2026-08-02T00:00");
    assert_eq!(next("@Monthly"), "2026-09-01T00:00");
    assert_eq!(next("@yearly"), "2027-01-01T00:00");
}

#[test]
fn where_both_days_are_restricted_either_will_do() {
    let of_2026 = |expression| {
        let ticks = days(expression, "2025-12-31T23:59:59Z", 400);
        ticks.into_iter().filter(|day| day.starts_with("2026")).collect::<Vec<_>>()
    };
    // 12 thirteenths and 52 Fridays, of which 3 are both.
    assert_eq!(of_2026("0 0 13 * 5").len(), 61);
    assert_eq!(of_2026("0 0 13 * +5"), ["2026-02-13", "2026-03-13", "2026-11-13"]);
    assert_eq!(of_2026("0 9 1-31 * 1").len(), 365, "a range over every day is a restriction");
    assert_eq!(of_2026("0 9 1 * 0-6").len(), 365);
    assert_eq!(of_2026("0 9 * * 1").len(), 52);
    assert_eq!(of_2026("0 9 ? * 1").len(), 52, "a question mark is a star");
    // Odd days or Mondays: a step is a restriction, too.
    assert!(of_2026("0 9 */2 * 1").len() > 186);
}

#[test]
fn last_days_nearest_weekdays_and_nth_weekdays_are_known() {
    let from = "2026-01-01T12:00:00Z";
    assert_eq!(days("0 9 L * *", from, 3), ["2026-01-31", "2026-02-28", "2026-03-31"]);
    // 15 February and 15 March 2026 are Sundays.
    assert_eq!(days("0 9 15W * *", from, 3), ["2026-01-15", "2026-02-16", "2026-03-16"]);
    assert_eq!(days("0 9 LW * *", from, 3), ["2026-01-30", "2026-02-27", "2026-03-31"]);
    assert_eq!(days("0 9 * * 5#3", from, 3), ["2026-01-16", "2026-02-20", "2026-03-20"]);
    assert_eq!(days("0 9 * * FRIL", from, 3), ["2026-01-30", "2026-02-27", "2026-03-27"]);
}

#[test]
fn what_never_comes_is_refused() {
    for expression in
        ["0 0 30 2 *", "0 0 31 4 *", "0 0 31 2,4,6,9,11 *", "0 0 31 4 +5", "0 0 30,31 2 ?"]
    {
        assert_eq!(Cron::parse(expression).unwrap_err(), CronFault::Never, "{expression}");
    }
    // With either semantics it means Fridays in April.
    assert_eq!(days("0 0 31 4 5", "2026-01-01T00:00:00Z", 1), ["2026-04-03"]);
}

#[test]
fn what_comes_seldom_is_found() {
    assert_eq!(days("0 0 29 2 *", "2097-01-01T00:00:00Z", 1), ["2104-02-29"]);
    assert_eq!(days("0 0 29 2 +1", "2026-01-01T00:00:00Z", 1), ["2044-02-29"]);
    // The longest wait that the calendar has: over a centurial year that is no leap year.
    assert_eq!(days("0 0 29 2 +1", "2072-03-01T00:00:00Z", 1), ["2112-02-29"]);
    assert_eq!(days("0 0 * 2 1#5", "2072-03-01T00:00:00Z", 1), ["2112-02-29"]);
}

#[test]
fn the_end_of_the_calendar_is_an_end() {
    assert_eq!(civil("0 0 * * *", "9999-12-28T12:00:00Z", 5), ["9999-12-29T00:00"]);
}

#[test]
fn nothing_that_is_written_is_ignored() {
    let refused = [
        "",
        "*",
        "* * * *",
        "* * * * * * *",
        "0 0 * * * 2026 *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * 32 * *",
        "* * * 0 *",
        "* * * 13 *",
        "* * * * 8",
        "*/0 * * * *",
        "5-1 * * * *",
        "1,,2 * * * *",
        ",1 * * * *",
        "1, * * * *",
        "a * * * *",
        "* JAN * * *",
        "0 0 JAN * *",
        "0 0 * MON *",
        "0 0 * * JAN",
        "0 0 * JANUARY *",
        "0 0 * * MONDAY",
        "0 0 L-3 * *",
        "0 0 1-5W * *",
        "0 0 W * *",
        "0 0 * * 5#6",
        "0 0 * * 5#0",
        "0 0 1#2 * *",
        "? * * * *",
        "0 0 5? * *",
        "-5 * * * *",
        "1/2/3 * * * *",
        "+5 * * * *",
        "0 0 +5 * *",
        "@reboot",
        "@midnight",
        "@daily x",
        "0 0 * * fri-mon",
        "*/5/ * * * *",
        "１ * * * *",
        "0 0 * * ++5",
        "1.5 * * * *",
        "H * * * *",
        "* * * * *#2",
        "0 0 32W * *",
        "0 0 0W * *",
    ];
    for expression in refused {
        assert!(Cron::parse(expression).is_err(), "{expression:?} was read");
    }
    assert_eq!(Cron::parse(&"*".repeat(300)).unwrap_err(), CronFault::Text);
    assert_eq!(Cron::parse("* * *").unwrap_err(), CronFault::Fields { count: 3 });
    assert_eq!(Cron::parse("@often").unwrap_err(), CronFault::Nickname);
}

#[test]
fn no_text_makes_the_reader_panic() {
    // A small generator of texts that look like expressions.
    let parts = [
        "*",
        "1",
        "59",
        "/",
        "-",
        ",",
        "#",
        "L",
        "W",
        "?",
        "+",
        "@",
        " ",
        "MON",
        "JAN",
        "0",
        "99999999999",
        "é",
        "DAILY",
        "7",
        "31",
        "29",
        "\t",
        "SUN-",
        "LW",
        "5L",
    ];
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..30_000 {
        let mut text = String::new();
        for _ in 0..seed % 14 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            text.push_str(parts[(seed >> 40) as usize % parts.len()]);
            if seed >> 62 == 0 {
                text.push(' ');
            }
        }
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(3);
        let _ = Cron::parse(&text);
    }
}
