//! From civil times to instants, by one written rule.
//!
//! An expression that names **times of the day** runs once for each of them on each of its days. Where clocks go
//! forward over one, it runs at the first instant after the gap (several in one gap: once); where clocks go back
//! and it comes twice, at the first.
//!
//! An expression that **keeps its rhythm** (its minute or hour field begins with `*`) runs whenever the clock on
//! the wall shows one of its times: none of those in a gap, both of those that come twice.

use super::cron::Cron;
use crate::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp as Moment};

/// The first instant of the expression in that zone after `after`.
pub(crate) fn next(cron: &Cron, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
    let after = Moment::from_microsecond(after.as_micros()).ok()?;
    let next = if cron.keeps_rhythm() {
        next_of_rhythm(cron, zone, after)?
    } else {
        next_of_day(cron, zone, after)?
    };
    let next = Timestamp::from_micros(next.as_microsecond());
    (next < Timestamp::MAX).then_some(next)
}

/// Between two changes of the offset civil time is as good as real time: the search goes from change to change.
fn next_of_rhythm(cron: &Cron, zone: &TimeZone, after: Moment) -> Option<Moment> {
    let mut from = next_second(after)?;
    loop {
        let offset = zone.to_offset(from);
        let found = offset.to_timestamp(cron.next(offset.to_datetime(from))?).ok()?;
        match zone.following(from).next().map(|change| change.timestamp()) {
            Some(change) if change <= found => from = change,
            _ => return Some(found),
        }
    }
}

/// What a civil time becomes only ever ascends with it, so the first one beyond `after` is the next. In a repeated
/// hour several may have to be passed over, whose first time has been.
fn next_of_day(cron: &Cron, zone: &TimeZone, after: Moment) -> Option<Moment> {
    let second = SignedDuration::from_secs(1);
    let mut from = zone.to_datetime(next_second(after)?.checked_sub(second).ok()?);
    loop {
        let civil = cron.next(from.checked_add(second).ok()?)?;
        let found = first_instant(zone, civil)?;
        if found > after {
            return Some(found);
        }
        from = civil;
    }
}

/// The first instant at which the clock shows that time, or has passed it over.
fn first_instant(zone: &TimeZone, civil: DateTime) -> Option<Moment> {
    match zone.to_ambiguous_timestamp(civil).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(civil).ok(),
        AmbiguousOffset::Fold { before, .. } => before.to_timestamp(civil).ok(),
        AmbiguousOffset::Gap { after, .. } => {
            // By the later offset the time lies before the change, and by the earlier one not before it.
            let early = after.to_timestamp(civil).ok()?;
            let mut changes = zone.following(early).map(|change| change.timestamp());
            changes.find(|change| zone.to_offset(*change) == after)
        }
    }
}

/// The first whole second after an instant.
fn next_second(instant: Moment) -> Option<Moment> {
    Moment::from_second(instant.as_microsecond().div_euclid(1_000_000).checked_add(1)?).ok()
}
