//! A schedule as it stands, for people and programs.

use super::zone_of;
use crate::kernel::schedule::{Definition, TimingText};
use crate::store::{ScheduleRecord, SkipReason};
use crate::{JobId, Timestamp};
use std::time::Duration;

/// How a schedule stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScheduleInfo {
    /// Its name.
    pub name: String,
    /// Whose set it belongs to.
    pub owner: String,
    /// Its cron expression, if it has one.
    pub expression: Option<String>,
    /// Its interval, if it has one.
    pub interval: Option<Duration>,
    /// The zone of its expression.
    pub zone: Option<String>,
    /// The Wire Name of its jobs; none, where what is kept of it does not read.
    pub wire_name: Option<String>,
    /// Their queue.
    pub queue: Option<String>,
    /// Whether it mints nothing.
    pub is_paused: bool,
    /// Its next tick; none while it is paused, once it has ended, or where it cannot be told. In the past, where no
    /// node has looked yet.
    pub next_tick: Option<Timestamp>,
    /// Every tick up to here is settled. Where the store's clock was set back this lies in the future, and nothing
    /// ticks until then.
    pub settled_until: Timestamp,
    /// The last tick that has minted a job.
    pub last_tick: Option<Timestamp>,
    /// That job.
    pub last_job: Option<JobId>,
    /// How many ticks were skipped so far, at least: a long absence is counted up to 10,000.
    pub skipped: u64,
    /// The last tick that was skipped, and why.
    pub last_skip: Option<(Timestamp, SkipReason)>,
    /// What keeps nodes from following it, and since when.
    pub error: Option<(String, Timestamp)>,
    /// When it was declared first.
    pub created_at: Timestamp,
}

impl ScheduleInfo {
    pub(super) fn of(record: ScheduleRecord) -> Self {
        let timing = TimingText::read(&record.row.timing).ok();
        let definition = Definition::read(&record.row.definition).ok();
        let expression = timing.as_ref().and_then(|timing| timing.cron.clone());
        let zone = timing.as_ref().map(|timing| timing.zone_name().to_owned());
        Self {
            next_tick: next_tick(&record, timing.as_ref()),
            zone: zone.filter(|_| expression.is_some()),
            expression,
            interval: timing.and_then(|timing| timing.every_us).map(Duration::from_micros),
            wire_name: definition.as_ref().map(|definition| definition.wire_name().to_owned()),
            queue: definition.map(|definition| definition.queue().to_owned()),
            name: record.row.name,
            owner: record.row.owner,
            is_paused: record.is_paused,
            settled_until: record.cursor,
            last_tick: record.last_tick,
            last_job: record.last_job,
            skipped: record.skipped,
            last_skip: record.last_skip,
            error: record.error,
            created_at: record.created_at,
        }
    }
}

/// As the node has told that looked last; before any has, as it is from here.
fn next_tick(record: &ScheduleRecord, timing: Option<&TimingText>) -> Option<Timestamp> {
    if record.is_paused {
        return None;
    }
    record.next_tick.or_else(|| timing?.resolve(&zone_of).ok()?.next(record.cursor))
}
