//! When a schedule ticks.

use super::civil;
use super::cron::{Cron, CronFault};
use crate::{JobId, Timestamp};
use jiff::tz::TimeZone;
use std::time::Duration;

/// A timing as it was declared and as it is kept: JSON text. A field that is not known is refused, since it may say
/// when not to run.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TimingText {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cron: Option<String>,
    /// Of an expression; UTC without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) zone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) every_us: Option<u64>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) jitter_us: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) starts_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ends_at: Option<Timestamp>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands in a reference")]
const fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// Finds the zone of a name, or says why there is none.
pub(crate) type ZoneOf<'a> = &'a dyn Fn(&str) -> Result<TimeZone, String>;

/// What is wrong with a timing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TimingFault {
    #[error("the expression {expression:?} is refused: {fault}")]
    Cron { expression: String, fault: CronFault },
    #[error("the zone {zone:?} is not known: {why}")]
    Zone { zone: String, why: String },
    #[error("it is not the timing that was expected: {0}")]
    Text(String),
}

impl TimingText {
    pub(crate) fn read(text: &str) -> Result<Self, TimingFault> {
        serde_json::from_str(text).map_err(|error| TimingFault::Text(error.to_string()))
    }

    /// The zone's name.
    pub(crate) fn zone_name(&self) -> &str {
        self.zone.as_deref().unwrap_or("UTC")
    }

    /// The ticks that it stands for.
    pub(crate) fn resolve(&self, zone_of: ZoneOf<'_>) -> Result<Timing, TimingFault> {
        let beat = match (&self.cron, self.every_us) {
            (Some(expression), None) => self.civil_beat(expression, zone_of)?,
            (None, Some(period @ 1..)) => {
                Beat::Every { period: i64::try_from(period).unwrap_or(i64::MAX) }
            }
            _ => {
                let why = "there must be either an expression or an interval";
                return Err(TimingFault::Text(why.to_owned()));
            }
        };
        Ok(Timing {
            beat,
            jitter_us: self.jitter_us,
            starts_at: self.starts_at,
            ends_at: self.ends_at,
        })
    }

    fn civil_beat(&self, expression: &str, zone_of: ZoneOf<'_>) -> Result<Beat, TimingFault> {
        let cron = Cron::parse(expression)
            .map_err(|fault| TimingFault::Cron { expression: expression.to_owned(), fault })?;
        let zone = zone_of(self.zone_name())
            .map_err(|why| TimingFault::Zone { zone: self.zone_name().to_owned(), why })?;
        Ok(Beat::Civil { cron, zone })
    }
}

/// Ticks in ascending order.
#[derive(Debug, Clone)]
pub(crate) struct Timing {
    beat: Beat,
    jitter_us: u64,
    /// No tick lies before it; an interval has its first tick there.
    starts_at: Option<Timestamp>,
    /// No tick lies after it.
    ends_at: Option<Timestamp>,
}

#[derive(Debug, Clone)]
enum Beat {
    Civil {
        cron: Cron,
        zone: TimeZone,
    },
    /// Of elapsed time, in microseconds.
    Every {
        period: i64,
    },
}

/// What has ripened since a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ripe {
    /// How many ticks, counted up to [`COUNT_MAX`].
    pub(crate) count: u64,
    pub(crate) newest: Timestamp,
    /// The tick before it, if that is one of them.
    pub(crate) before: Option<Timestamp>,
}

/// Ticks are counted up to here; beyond, there are at least so many.
pub(crate) const COUNT_MAX: u64 = 10_000;

impl Timing {
    /// The first tick after `after`.
    pub(crate) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let just_before = |start: Timestamp| start.saturating_sub(Duration::from_micros(1));
        let after = self.starts_at.map_or(after, |start| after.max(just_before(start)));
        let tick = match &self.beat {
            Beat::Civil { cron, zone } => civil::next(cron, zone, after)?,
            Beat::Every { period } => self.next_of_interval(*period, after)?,
        };
        (tick > after && self.ends_at.is_none_or(|end| tick <= end)).then_some(tick)
    }

    fn next_of_interval(&self, period: i64, after: Timestamp) -> Option<Timestamp> {
        let anchor = self.starts_at.unwrap_or(Timestamp::EPOCH).as_micros();
        let elapsed = after.as_micros() - anchor;
        let next = elapsed.div_euclid(period).checked_add(1)?.checked_mul(period)?;
        let next = next.checked_add(anchor)?;
        (next < Timestamp::MAX.as_micros()).then(|| Timestamp::from_micros(next))
    }

    /// The newest tick after `after` that is not after `until`.
    fn newest(&self, after: Timestamp, until: Timestamp) -> Option<Timestamp> {
        let within = |from| self.next(from).filter(|tick| *tick <= until);
        let mut newest = within(after)?;
        // Beyond `beyond` there is none: each step halves what lies between, down to nothing.
        let mut beyond = until;
        while newest < beyond {
            let middle = i64::midpoint(newest.as_micros(), beyond.as_micros());
            match within(Timestamp::from_micros(middle)) {
                Some(tick) => newest = tick,
                None => beyond = Timestamp::from_micros(middle),
            }
        }
        Some(newest)
    }

    /// Whether ticks to come may move: with a change of the zone's data.
    pub(crate) fn may_move(&self) -> bool {
        matches!(&self.beat, Beat::Civil { zone, .. } if *zone != TimeZone::UTC)
    }

    /// When a tick is looked at: itself, later by its share of the jitter.
    pub(crate) fn ripens_at(&self, schedule: &str, tick: Timestamp) -> Timestamp {
        if self.jitter_us == 0 {
            return tick;
        }
        let bytes = JobId::of_tick(schedule, tick).to_bytes();
        let share = bytes.last_chunk().copied().map_or(0, u32::from_be_bytes);
        let delay = (u128::from(self.jitter_us) * u128::from(share)) >> 32;
        tick + Duration::from_micros(u64::try_from(delay).unwrap_or(u64::MAX))
    }

    /// What has ripened after `cursor`, in order: a tick that is not ripe holds back those after it.
    pub(crate) fn ripe(&self, schedule: &str, cursor: Timestamp, now: Timestamp) -> Option<Ripe> {
        // What lies back by all of the jitter is ripe for sure.
        let sure = self.newest(cursor, now.saturating_sub(Duration::from_micros(self.jitter_us)));
        let mut newest = sure;
        for _ in 0..COUNT_MAX {
            let next = self.next(newest.unwrap_or(cursor));
            let Some(next) = next.filter(|tick| self.ripens_at(schedule, *tick) <= now) else {
                break;
            };
            newest = Some(next);
        }
        let newest = newest?;
        let before = newest.saturating_sub(Duration::from_micros(1));
        Some(Ripe {
            count: self.count(cursor, newest),
            newest,
            before: self.newest(cursor, before),
        })
    }

    fn count(&self, cursor: Timestamp, newest: Timestamp) -> u64 {
        let mut tick = cursor;
        for count in 0..COUNT_MAX {
            match self.next(tick).filter(|next| *next <= newest) {
                Some(next) => tick = next,
                None => return count,
            }
        }
        COUNT_MAX
    }
}
