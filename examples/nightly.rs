//! Three schedules in three zones, on virtual time: what they do in two years of clock changes.
//!
//! A clock of the program's own leaps to two days before each change, and from there from tick to tick until the day
//! after. What it leaps over nobody looks at in time: it is skipped.
//!
//! ```text
//! cargo run --example nightly
//! ```

use backwave::schedule::Schedule;
use backwave::{
    Client, GroupOptions, Health, Job, MemoryStore, Registry, Timestamp, crossbeam_channel,
    spawn_group,
};
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

#[derive(Serialize, Deserialize)]
struct Report;

impl Job for Report {
    const WIRE_NAME: &'static str = "report";
}

/// Name, expression, zone.
const SCHEDULES: [(&str, &str, &str); 3] = [
    ("at half past two", "30 2 * * *", "Europe/Berlin"),
    ("at midnight", "0 0 * * *", "America/Santiago"),
    ("every hour", "0 * * * *", "America/New_York"),
];

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> Result<(), Box<dyn Error>> {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse()?;
    let clock = Arc::new(AtomicI64::new(start.as_micros()));
    let store = MemoryStore::with_clock({
        let clock = Arc::clone(&clock);
        move || Timestamp::from_micros(clock.load(Ordering::SeqCst))
    });
    let client = Client::new(store.clone());
    let schedules = SCHEDULES
        .map(|(name, expression, zone)| Schedule::cron(name, expression, &Report).zone(zone));
    client.schedules().declare("nightly", schedules)?;

    let (ran, runs) = crossbeam_channel::unbounded();
    let registry = Registry::new().handle(move |ctx, _: Report| {
        let schedule = ctx.schedule().ok_or("it was triggered by hand")?.to_owned();
        ran.send((schedule, ctx.tick().ok_or("it stands for no tick")?))?;
        Ok(())
    });
    let group =
        spawn_group(store, registry, GroupOptions::new("nightly"), Arc::new(Health::new()))?;

    let mut seen = Vec::new();
    for change in changes(start)? {
        println!("{}", change.title);
        // Not on the full or the half hour, where something ticks.
        set(&clock, &client, change.at.saturating_sub(DAY * 2) + Duration::from_secs(600));
        loop {
            let now = Timestamp::from_micros(clock.load(Ordering::SeqCst));
            let (tick, count) = next_ticks(&client, now)?;
            if tick > change.at + DAY {
                break;
            }
            set(&clock, &client, tick);
            for _ in 0..count {
                let (schedule, at) = runs.recv_timeout(PATIENCE)?;
                if at.since(change.at) <= HOUR * 2 && change.at.since(at) <= HOUR * 2 {
                    println!("    {:<16} {}", schedule, local(&schedule, at)?);
                }
                seen.push((schedule, at));
            }
        }
    }
    group.shutdown();
    check(&seen)?;
    for schedule in client.schedules().list()? {
        println!("{}: {} ticks were leapt over", schedule.name, schedule.skipped);
    }
    Ok(())
}

/// Puts the clock forward. Waking a queue makes the group look at the clock at once.
fn set(clock: &AtomicI64, client: &Client, time: Timestamp) {
    clock.store(time.as_micros(), Ordering::SeqCst);
    client.wake("default");
}

/// The earliest next tick, and how many schedules have it, once each of them has settled what lies behind.
fn next_ticks(client: &Client, now: Timestamp) -> Result<(Timestamp, usize), Box<dyn Error>> {
    loop {
        let schedules = client.schedules().list()?;
        let ticks: Vec<_> = schedules.iter().filter_map(|schedule| schedule.next_tick).collect();
        match ticks.iter().min() {
            Some(next) if *next > now => {
                return Ok((*next, ticks.iter().filter(|tick| *tick == next).count()));
            }
            _ => std::thread::yield_now(),
        }
    }
}

/// A zone's clocks are put forward or back.
struct Change {
    at: Timestamp,
    title: String,
}

/// The clock changes of all three zones in the two years after `start`, in their order.
fn changes(start: Timestamp) -> Result<Vec<Change>, Box<dyn Error>> {
    let (mut found, first) = (Vec::new(), jiff::Timestamp::from_microsecond(start.as_micros())?);
    for (_, _, name) in SCHEDULES {
        let zone = TimeZone::get(name)?;
        for change in zone.following(first).take(4) {
            let second = jiff::SignedDuration::from_secs(1);
            let before = change.timestamp().checked_sub(second)?.to_zoned_datetime(zone.clone());
            let after = change.timestamp().to_zoned_datetime(zone.clone());
            let title = format!("{name}: {}, and then {}", before.datetime(), after.datetime());
            let at = Timestamp::from_micros(change.timestamp().as_microsecond());
            found.push(Change { at, title });
        }
    }
    found.sort_by_key(|change| change.at);
    Ok(found)
}

/// A tick as the clocks of its schedule's zone show it.
fn local(schedule: &str, at: Timestamp) -> Result<String, Box<dyn Error>> {
    let (_, _, zone) = SCHEDULES
        .into_iter()
        .find(|(name, ..)| *name == schedule)
        .ok_or("a schedule of another program")?;
    let zoned = jiff::Timestamp::from_microsecond(at.as_micros())?.in_tz(zone)?;
    Ok(zoned.strftime("%F %H:%M %Z").to_string())
}

/// Sees to it that every schedule has done what it should.
fn check(seen: &[(String, Timestamp)]) -> Result<(), Box<dyn Error>> {
    let of = |schedule: &str| -> Vec<Timestamp> {
        seen.iter().filter(|(name, _)| name == schedule).map(|(_, at)| *at).collect()
    };
    let (half_past_two, midnight) = (of("at half past two"), of("at midnight"));
    // Missing in March: right after the gap. Twice in October: at the first.
    for expected in [
        "2026-03-29T01:00:00Z",
        "2026-10-25T00:30:00Z",
        "2027-03-28T01:00:00Z",
        "2027-10-31T00:30:00Z",
    ] {
        assert!(half_past_two.contains(&expected.parse()?), "{expected}");
    }
    // The day of the change in September begins at one o'clock.
    for expected in ["2026-09-06T04:00:00Z", "2027-09-05T04:00:00Z"] {
        assert!(midnight.contains(&expected.parse()?), "{expected}");
    }
    for daily in [half_past_two, midnight] {
        let apart = daily.windows(2).map(|pair| pair[1].since(pair[0]));
        assert!(apart.into_iter().all(|apart| apart >= DAY - HOUR), "no day has two runs");
    }
    let hourly = of("every hour");
    let apart: Vec<_> = hourly.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    // Two days are leapt over at least between two windows.
    assert!(apart.iter().all(|apart| *apart == HOUR || *apart > DAY), "a rhythm is kept");
    println!("{} runs, each where it should be", seen.len());
    Ok(())
}
