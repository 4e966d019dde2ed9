//! The topic of upkeep.

use super::session::MemorySession;
use super::{latch, purge};
use crate::store::{Announcement, LatchesWorkedOff, Purge, Purged, StoreError, UPKEEP_MAX, Upkeep};
use crate::{Timestamp, WorkerId};

impl Upkeep for MemorySession {
    fn purge(&mut self, purge: &Purge) -> Result<Purged, StoreError> {
        let max = purge.max.clamp(1, UPKEEP_MAX) as usize;
        self.0.write(
            |state, moment| purge::plan(state, purge, max, moment),
            |state, (purging, page), moment| {
                purge::apply(state, purging)?;
                let purged = Purged::new(page.jobs, page.cursor, page.more, moment.at);
                Ok(purged.unobserved(page.unobserved))
            },
        )
    }

    fn work_off_latches(&mut self, max: u32) -> Result<LatchesWorkedOff, StoreError> {
        let max = max.clamp(1, UPKEEP_MAX);
        let (worked_off, at) =
            self.carry_out(|state, moment| latch::work_off(state, max, moment))?;
        Ok(LatchesWorkedOff::new(worked_off.resolved, worked_off.more, at))
    }

    fn announce(&mut self, announcement: &Announcement) -> Result<Timestamp, StoreError> {
        self.0.write(
            |state, moment| Ok(state.pumps.heard(announcement, moment.at)),
            |state, record, moment| {
                state.pumps.put(record);
                Ok(moment.at)
            },
        )
    }

    fn withdraw(&mut self, worker: WorkerId) -> Result<(), StoreError> {
        self.0.write(
            |state, _| Ok(state.pumps.runs(worker)),
            |state, runs, _| {
                if runs {
                    state.pumps.forget(&[worker]);
                }
                Ok(())
            },
        )
    }
}
