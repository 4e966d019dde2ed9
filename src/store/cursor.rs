//! How the row of a schedule goes on: decided in one place, for every adapter.
//!
//! Whoever calls these holds the row under a lock of its own transaction, and writes it as it stands then.

use super::{
    Declaration, MintRow, Minting, ScheduleChange, ScheduleRecord, ScheduleRow, SkipReason,
};
use crate::Timestamp;

impl ScheduleRecord {
    /// Declares it again, at the store's time `now`. Where that makes no difference, the row is not to be written.
    ///
    /// ```
    /// use backwave::Timestamp;
    /// use backwave::store::{Declaration, ScheduleRecord, ScheduleRow};
    ///
    /// let row = |timing: &str| ScheduleRow::new("s".into(), "shop".into(), timing.into(), "{}".into());
    /// let (start, later) = (Timestamp::EPOCH, Timestamp::from_micros(9));
    /// let mut record = ScheduleRecord::new(row("1"), start);
    /// assert_eq!(record.redeclare(&row("1"), later), Declaration::Unchanged);
    /// assert_eq!(record.redeclare(&row("2"), later), Declaration::Changed);
    /// assert_eq!((record.revision, record.cursor), (2, later));
    /// ```
    pub fn redeclare(&mut self, row: &ScheduleRow, now: Timestamp) -> Declaration {
        let is_anew = self.row.timing != row.timing;
        if !is_anew && self.row.definition == row.definition {
            return Declaration::Unchanged;
        }
        if is_anew {
            self.cursor = now;
            self.next_tick = None;
        }
        // What stood in the way of the old text may not stand in the way of the new one.
        if is_anew || self.error.is_some() {
            self.look_at = Some(now);
            self.error = None;
        }
        self.row.timing.clone_from(&row.timing);
        self.row.definition.clone_from(&row.definition);
        self.revision = self.revision.saturating_add(1);
        Declaration::Changed
    }

    /// Pauses or resumes it; whether it was otherwise before. The other changes leave the row as it is, or take
    /// it away.
    pub fn apply(&mut self, change: &ScheduleChange, now: Timestamp) -> bool {
        match change {
            ScheduleChange::Pause if !self.is_paused => self.is_paused = true,
            ScheduleChange::Resume if self.is_paused => {
                self.is_paused = false;
                // Never back, also where the clock has stepped back.
                self.cursor = self.cursor.max(now);
                self.look_at = Some(now);
                self.next_tick = None;
            }
            _ => return false,
        }
        self.revision = self.revision.saturating_add(1);
        true
    }

    /// Whether a decision about it still stands: nobody has written to it since, and it is not paused.
    #[must_use]
    pub fn admits(&self, mint: &MintRow) -> bool {
        self.revision == mint.revision && !self.is_paused
    }

    /// Writes a decision that it [admits](Self::admits) and of which that has become. One that was not written
    /// changes nothing.
    pub fn settle(&mut self, mint: &MintRow, minting: &Minting, now: Timestamp) {
        if !matches!(minting, Minting::Written { .. } | Minting::Overlapped) {
            return;
        }
        self.revision = self.revision.saturating_add(1);
        self.cursor = self.cursor.max(mint.cursor);
        self.look_at = mint.look_at;
        self.next_tick = mint.next_tick;
        let since = self.error.take().map_or(now, |(_, since)| since);
        self.error = mint.error.clone().map(|text| (text, since));
        if let Some((count, last)) = mint.missed {
            self.skip(count, last, SkipReason::Missed);
        }
        let Some(job) = &mint.job else { return };
        // A decision names the tick of its job; otherwise it is the one that its cursor stands at.
        let tick = job.tick.as_ref().map_or(mint.cursor, |tick| tick.at);
        if *minting == Minting::Overlapped {
            self.skip(1, tick, SkipReason::Overlap);
        } else {
            self.last_tick = Some(tick);
            self.last_job = Some(job.id);
        }
    }

    fn skip(&mut self, count: u64, last: Timestamp, reason: SkipReason) {
        self.skipped = self.skipped.saturating_add(count);
        self.last_skip = Some((last, reason));
    }
}
