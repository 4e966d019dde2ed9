//! Ticks around every kind of clock change, the dialect of expressions, and what is decided about ticks.

use super::TimingText;
use super::timing::Timing;
use crate::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

mod cron;
mod decisions;
mod texts;
mod zones;

/// The zone by the data that comes along, so that no machine's own decides a test.
fn zone_of(name: &str) -> Result<TimeZone, String> {
    TimeZoneDatabase::bundled().get(name).map_err(|error| error.to_string())
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn cron_text(expression: &str, zone: &str) -> TimingText {
    TimingText {
        cron: Some(expression.to_owned()),
        zone: Some(zone.to_owned()),
        ..TimingText::default()
    }
}

fn cron(expression: &str, zone: &str) -> Timing {
    cron_text(expression, zone).resolve(&zone_of).unwrap()
}

fn every(seconds: u64) -> TimingText {
    TimingText { every_us: Some(seconds * 1_000_000), ..TimingText::default() }
}

/// The ticks in (from, until].
fn walk(timing: &Timing, from: &str, until: &str) -> Vec<Timestamp> {
    let until = at(until);
    let ticks = std::iter::successors(Some(at(from)), |tick| timing.next(*tick));
    ticks.skip(1).take_while(|tick| *tick <= until).collect()
}

/// The first so many ticks after `from`, shortened: of `2026-11-01T05:30:00Z`, `2026-11-01T05:30`.
fn first(timing: &Timing, from: &str, count: usize) -> Vec<String> {
    let ticks = std::iter::successors(Some(at(from)), |tick| timing.next(*tick));
    ticks.skip(1).take(count).map(short).collect()
}

fn short(tick: Timestamp) -> String {
    let text = tick.to_string();
    text.strip_suffix(":00Z").or_else(|| text.strip_suffix('Z')).unwrap_or(&text).to_owned()
}
