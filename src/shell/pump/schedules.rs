//! Recurring schedules: the pump's calls, and the zones that their names stand for.

use super::super::calls::Called;
use super::super::faults::Fault;
use super::Pump;
use crate::contain::contained;
use crate::kernel::driver::{Event, Look};
use crate::kernel::schedule::Plan;
use crate::schedule::zone_of;
use crate::stage::Stage;
use crate::store::{MintRow, Minting, ScheduleRecord};
use std::time::Duration;

impl Pump {
    pub(super) fn look_at_schedules(&mut self, max: u32) -> Result<(), Fault> {
        let called = self.store.call(&self.parts.pen, |session| session.due_schedules(max))?;
        let stage = &self.parts.stage;
        self.step(match called {
            Called::Answered(found) => Event::SchedulesLookedAt {
                looks: found.due.into_iter().map(|record| look(record, stage)).collect(),
                next_at: found.next_at,
                store_time: found.store_time,
            },
            Called::Failed { .. } => Event::SchedulesFailed,
        })
    }

    pub(super) fn mint(&mut self, rows: &[MintRow]) -> Result<(), Fault> {
        let called = self.store.call(&self.parts.pen, |session| session.mint(rows))?;
        let event = match called {
            Called::Answered(minted) => {
                let is_new = |answer: &Minting| *answer == Minting::Written { minted: true };
                // A birth, which observers of this process need not wait for.
                self.wrote |= minted.rows.iter().any(is_new);
                let new = rows.iter().zip(&minted.rows).filter(|(_, answer)| is_new(answer));
                for job in new.filter_map(|(row, _)| row.job.as_ref()) {
                    let hub = self.parts.store.hub();
                    crate::client::enqueue::wake(hub, &job.queue, Duration::ZERO);
                }
                Event::Minted(minted)
            }
            Called::Failed { .. } => Event::SchedulesFailed,
        };
        self.step(event)
    }
}

/// Reads a schedule's texts. Whatever they do to their readers, it is that schedule's fault and no pump's.
fn look(record: ScheduleRecord, stage: &Stage) -> Look {
    let plan = contained(|| Plan::read(&record, &zone_of));
    let mut plan = plan.unwrap_or_else(|| Err("reading it has failed".to_owned()));
    if let (Ok(plan), true) = (&mut plan, stage.is_simulated()) {
        // Zone data come with the time of the world outside.
        plan.may_move = false;
    }
    Look { record, plan }
}
