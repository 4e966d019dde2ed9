//! Recurring schedules: when a pump looks at them, and that each look is settled.
//!
//! One request at a time, after everything that serves jobs and before upkeep: a look, then what was decided about
//! the schedules that were due. Between looks the pump sleeps until the next one that it knows of; a look at every
//! round of maintenance finds what others have declared. Whatever is wrong with a schedule is written to it and
//! never halts the pump.

use super::Driver;
use super::command::{Command, Note};
use crate::Timestamp;
use crate::invariant::{InvariantTrigger, InvariantViolation, halt};
use crate::kernel::schedule::{Plan, decide, refused};
use crate::store::{MintRow, Minted, Minting, ScheduleRecord, SkipReason};
use std::time::Duration;

/// How many schedules are looked at at a time: what was missed is counted tick by tick.
const SCHEDULE_PAGE: u32 = 50;
/// The least rest between two looks.
const LOOK_REST: Duration = Duration::from_millis(5);

/// When a pump looks at schedules.
#[cfg_attr(test, derive(Hash))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looks {
    /// Never: for tests of other things.
    #[cfg(test)]
    Never,
    /// With each round of maintenance: whoever looks on time has settled what is due by then, unless it has halted.
    InRounds,
    /// Also when the next tick is due.
    OnTime,
}

/// A schedule whose time has come, and its two texts made sense of, if there is sense in them.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) record: ScheduleRecord,
    pub(crate) plan: Result<Plan, String>,
}

#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
pub(super) struct Schedules {
    looks: Looks,
    wanted: bool,
    /// The earliest next look that is known.
    look_at: Option<Timestamp>,
    phase: Phase,
}

#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
enum Phase {
    Idle,
    Looking,
    /// To be asked for, with what each row is about.
    Decided(Vec<(ScheduleRecord, MintRow)>),
    Minting(Vec<(ScheduleRecord, MintRow)>),
}

impl Schedules {
    pub(super) fn new(looks: Looks) -> Self {
        let mut schedules = Self { looks, wanted: false, look_at: None, phase: Phase::Idle };
        schedules.want();
        schedules
    }

    pub(super) fn want(&mut self) {
        self.wanted = matches!(self.looks, Looks::InRounds | Looks::OnTime);
    }

    pub(super) fn next_request(&mut self, now: Timestamp) -> Option<Command> {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Idle if self.wanted || self.look_at.is_some_and(|at| at <= now) => {
                (self.wanted, self.look_at) = (false, None);
                self.phase = Phase::Looking;
                Some(Command::LookAtSchedules { max: SCHEDULE_PAGE })
            }
            Phase::Decided(decided) => {
                let rows = decided.iter().map(|(_, row)| row.clone()).collect();
                self.phase = Phase::Minting(decided);
                Some(Command::Mint { rows })
            }
            other => {
                self.phase = other;
                None
            }
        }
    }

    pub(super) fn wake_at(&self) -> Option<Timestamp> {
        self.look_at.filter(|_| matches!(self.phase, Phase::Idle))
    }

    pub(super) const fn is_under_way(&self) -> bool {
        matches!(self.phase, Phase::Looking | Phase::Minting(_))
    }

    fn look_again(&mut self, at: Option<Timestamp>, now: Timestamp) {
        if self.looks != Looks::OnTime {
            return;
        }
        // Due by our clock, and just looked at: our clock runs ahead of the store's, or there are more of them.
        let at = at.map(|at| at.max(now + LOOK_REST));
        self.look_at = [self.look_at, at].into_iter().flatten().min();
    }
}

impl Driver {
    /// `store_time` is the store's time at the look, by which is judged.
    pub(super) fn on_schedules_looked_at(
        &mut self,
        looks: Vec<Look>,
        next_at: Option<Timestamp>,
        store_time: Timestamp,
        now: Timestamp,
    ) {
        let decided = looks.into_iter().map(|Look { record, plan }| {
            let row = decide(&record, &plan, store_time);
            (record, row)
        });
        let decided: Vec<_> = decided.collect();
        self.schedules.phase =
            if decided.is_empty() { Phase::Idle } else { Phase::Decided(decided) };
        self.schedules.look_again(next_at, now);
    }

    pub(super) fn on_minted(
        &mut self,
        minted: Minted,
        now: Timestamp,
    ) -> Result<(), InvariantViolation> {
        let Phase::Minting(decided) = std::mem::replace(&mut self.schedules.phase, Phase::Idle)
        else {
            return Ok(());
        };
        if decided.len() != minted.rows.len() {
            let (answers, rows) = (minted.rows.len(), decided.len());
            let message = format!("{answers} answers to {rows} decisions about schedules");
            return Err(halt(InvariantTrigger::UnexpectedAffectedRowCount, message));
        }
        let mut again = Vec::new();
        for ((record, row), answer) in decided.into_iter().zip(minted.rows) {
            match answer {
                Minting::Written { .. } | Minting::Overlapped => {
                    self.schedules.look_again(row.look_at, now);
                    self.tell_of_ticks(&record, row, &answer);
                }
                Minting::Rejected(why) => {
                    let why = format!("its job is refused: {why}");
                    let row = refused(&record, &why, minted.store_time);
                    again.push((record, row));
                }
                // Somebody else was first, or has changed or removed it: what there is to do now, the next look
                // tells.
                Minting::Conflict | Minting::Gone => {}
            }
        }
        if !again.is_empty() {
            self.schedules.phase = Phase::Decided(again);
        }
        Ok(())
    }

    fn tell_of_ticks(&mut self, record: &ScheduleRecord, row: MintRow, answer: &Minting) {
        let schedule = row.name;
        if let Some((count, _)) = row.missed {
            let (schedule, reason) = (schedule.clone(), SkipReason::Missed);
            self.note(Note::TicksSkipped { schedule, count, reason });
        }
        if let Some(error) = row.error.filter(|_| record.error.is_none()) {
            self.note(Note::ScheduleFailed { schedule, error });
        } else if *answer == Minting::Overlapped {
            let reason = SkipReason::Overlap;
            self.note(Note::TicksSkipped { schedule, count: 1, reason });
        } else if let Some(job) =
            row.job.filter(|_| matches!(answer, Minting::Written { minted: true }))
        {
            self.note(Note::TickMinted { schedule, job: job.id });
        }
    }

    /// The next round of maintenance looks again.
    pub(super) fn on_schedules_failed(&mut self) {
        self.schedules.phase = Phase::Idle;
    }
}
