//! What a node decides about a schedule that it looks at.
//!
//! It settles every tick that has ripened, mints at most one job, and says when to look again. What it cannot make
//! sense of leaves the ticks where they are, and is looked at again, less and less often.

use super::definition::{CatchUp, Definition};
use super::timing::{Ripe, Timing, TimingText, ZoneOf};
use crate::Timestamp;
use crate::kernel::text::clean;
use crate::store::{MintRow, ScheduleRecord};
use std::time::Duration;

/// A schedule's two texts, made sense of.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) timing: Timing,
    pub(crate) definition: Definition,
    /// Whether new zone data may bring a tick forward: it is looked at again and again then.
    pub(crate) may_move: bool,
}

impl Plan {
    /// Reads both texts of a schedule.
    ///
    /// # Errors
    /// What is wrong with one of them, for people.
    pub(crate) fn read(record: &ScheduleRecord, zone_of: ZoneOf<'_>) -> Result<Self, String> {
        let definition = Definition::read(&record.row.definition)?;
        let timing = TimingText::read(&record.row.timing).and_then(|text| text.resolve(zone_of));
        let timing = timing.map_err(|fault| fault.to_string())?;
        Ok(Self { may_move: timing.may_move(), timing, definition })
    }
}

/// Decides about a schedule at the store's time `now`.
pub(crate) fn decide(
    record: &ScheduleRecord,
    plan: &Result<Plan, String>,
    now: Timestamp,
) -> MintRow {
    let plan = match plan {
        Ok(plan) => plan,
        Err(why) => return refused(record, why, now),
    };
    let name = record.row.name.as_str();
    let ripe = plan.timing.ripe(name, record.cursor, now);
    let cursor = ripe.map_or(record.cursor, |ripe| ripe.newest);
    let next_tick = plan.timing.next(cursor);
    let ripens_at = next_tick.map(|tick| plan.timing.ripens_at(name, tick));
    let look_at = ripens_at.map(|at| if plan.may_move { at.min(now + LOOK_MAX) } else { at });
    let mut row = MintRow::new(name.to_owned(), record.revision, cursor, look_at);
    row.next_tick = next_tick;
    row.no_overlap = plan.definition.no_overlap;
    if let Some(ripe) = ripe {
        settle(&mut row, plan, ripe, now);
    }
    row
}

fn settle(row: &mut MintRow, plan: &Plan, ripe: Ripe, now: Timestamp) {
    let Plan { timing, definition, .. } = plan;
    let age = now.since(timing.ripens_at(&row.name, ripe.newest));
    let is_minted = definition.catch_up == CatchUp::Coalesce || age <= definition.grace();
    row.missed = match (definition.catch_up, is_minted) {
        // The one job stands for them all.
        (CatchUp::Coalesce, _) => None,
        (CatchUp::Skip, true) => ripe.before.map(|before| (ripe.count.saturating_sub(1), before)),
        (CatchUp::Skip, false) => Some((ripe.count, ripe.newest)),
    };
    if is_minted {
        row.job = Some(Box::new(definition.job_of(&row.name, ripe.newest)));
    }
}

/// The decision about a schedule that something is wrong with: nothing is settled, and the longer it lasts, the
/// less often it is looked at.
pub(crate) fn refused(record: &ScheduleRecord, why: &str, now: Timestamp) -> MintRow {
    let lasts = record.error.as_ref().map_or(Duration::ZERO, |(_, since)| now.since(*since));
    let look_at = now + lasts.clamp(AGAIN_MIN, AGAIN_MAX);
    let name = record.row.name.clone();
    let mut row = MintRow::new(name, record.revision, record.cursor, Some(look_at));
    row.error = Some(clean(why, ERROR_BYTES_MAX));
    row
}

/// New zone data may bring a tick forward that lies ahead: so often it is computed anew.
const LOOK_MAX: Duration = Duration::from_secs(3600);
const AGAIN_MIN: Duration = Duration::from_secs(60);
const AGAIN_MAX: Duration = Duration::from_secs(3600);
const ERROR_BYTES_MAX: usize = 1024;
