//! The pump's upkeep: purges, latches left for later, and its note in the store's list of pumps.
//!
//! A note is for people. Nothing waits for it, and none of it decides whether a lease is alive.

use super::super::calls::Called;
use super::super::faults::Fault;
use super::Pump;
use crate::contain::contained;
use crate::kernel::driver::Event;
use crate::kernel::text::clean;
use crate::store::{Announcement, HaltNote, Purge};
use crate::telemetry;

/// A halt's message in the note is cut at so many bytes.
const HALT_BYTES_MAX: usize = 1024;

impl Pump {
    pub(super) fn purge(&mut self, purge: &Purge) -> Result<(), Fault> {
        let event = match self.store.call(&self.parts.pen, |session| session.purge(purge))? {
            Called::Answered(purged) => {
                if purged.unobserved > 0 {
                    telemetry::unobserved_taken(&self.parts.group, purged.unobserved);
                }
                Event::Purged(purged)
            }
            Called::Failed { .. } => Event::UpkeepFailed,
        };
        self.step(event)
    }

    pub(super) fn work_off_latches(&mut self, max: u32) -> Result<(), Fault> {
        let called = self.store.call(&self.parts.pen, |session| session.work_off_latches(max))?;
        let event = match called {
            Called::Answered(worked_off) => {
                self.wrote |= worked_off.resolved > 0;
                Event::LatchesWorkedOff(worked_off)
            }
            Called::Failed { .. } => Event::UpkeepFailed,
        };
        self.step(event)
    }

    pub(super) fn announce(&mut self) -> Result<(), Fault> {
        let note = self.announcement();
        self.noted = true;
        let event = match self.store.call(&self.parts.pen, |session| session.announce(&note))? {
            Called::Answered(_) => Event::Announced,
            Called::Failed { .. } => Event::UpkeepFailed,
        };
        self.step(event)
    }

    fn announcement(&self) -> Announcement {
        let host = gethostname::gethostname().to_string_lossy().into_owned();
        let (worker, group) = (self.parts.driver.worker, self.parts.group.as_ref().to_owned());
        let mut note = Announcement::new(worker, group, host, std::process::id());
        note.queues.clone_from(&self.queues);
        note.wire_names = self.parts.accepts.iter().map(|name| name.wire_name.clone()).collect();
        note.version = env!("CARGO_PKG_VERSION").to_owned();
        note
    }

    /// Takes the note away at a clean stop, if there is one and the store answers.
    pub(super) fn withdraw_note(&mut self) {
        if !self.noted {
            return;
        }
        let worker = self.parts.driver.worker;
        self.store.last_word(|session| session.withdraw(worker));
    }

    /// Leaves in the store why the pump has halted. Nobody waits for this thread any more.
    pub(super) fn leave_halt_note(&mut self, fault: &Fault) {
        let halt = fault.halt_state();
        let mut note = self.announcement();
        note.halt = Some(HaltNote::new(
            halt.type_name.clone(),
            clean(&halt.message, HALT_BYTES_MAX),
            halt.trigger.map(|trigger| trigger.name().to_owned()),
        ));
        // Whatever made the pump halt may make this fail as well, or panic again.
        let _ = contained(|| self.store.last_word(|session| session.announce(&note).map(drop)));
    }
}
