//! The topic of upkeep.

use super::latch;
use super::session::MemorySession;
use crate::store::{Announcement, LatchesWorkedOff, Purge, Purged, StoreError, Upkeep};
use crate::{Timestamp, WorkerId};

/// The most that one call of upkeep looks at.
const LOOK_MAX: u32 = 5_000;

impl Upkeep for MemorySession {
    fn purge(&mut self, _purge: &Purge) -> Result<Purged, StoreError> {
        super::session::unbuilt()
    }

    fn work_off_latches(&mut self, max: u32) -> Result<LatchesWorkedOff, StoreError> {
        let max = max.clamp(1, LOOK_MAX);
        let (worked_off, at) =
            self.carry_out(|state, moment| latch::work_off(state, max, moment))?;
        Ok(LatchesWorkedOff::new(worked_off.resolved, worked_off.more, at))
    }

    fn announce(&mut self, _announcement: &Announcement) -> Result<Timestamp, StoreError> {
        super::session::unbuilt()
    }

    fn withdraw(&mut self, _worker: WorkerId) -> Result<(), StoreError> {
        super::session::unbuilt()
    }
}
