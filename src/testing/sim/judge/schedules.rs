//! What the oracles hold against schedules: each mints its own ticks, each once, and none beside another where it
//! says so.

use super::Case;
use crate::store::{MintRow, Minted, Minting, ScheduleAnswer, ScheduleChange};
use crate::testing::VirtualClock;
use crate::testing::sim::plan::{Level, Plan};
use crate::testing::sim::run::schedule_name;
use crate::{JobId, JobState, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A schedule as the oracles believe it to be.
pub(super) struct ScheduleKnown {
    every_us: i64,
    no_overlap: bool,
    /// One job makes up for what was missed, however much.
    coalesces: bool,
    ends_at: Timestamp,
    /// What heals must mint what was due.
    heals: bool,
    is_there: bool,
    is_paused: bool,
    /// Only ticks after that instant are its own: it was declared then, or resumed.
    since: Timestamp,
    ticks: BTreeSet<Timestamp>,
    last_job: Option<JobId>,
}

pub(super) fn of_plan(plan: &Plan) -> BTreeMap<String, ScheduleKnown> {
    let known = plan.schedules.iter().map(|schedule| {
        let known = ScheduleKnown {
            every_us: schedule.every_s as i64 * 1_000_000,
            no_overlap: schedule.no_overlap,
            coalesces: schedule.grace_s.is_none(),
            ends_at: VirtualClock::START + Duration::from_millis(plan.ends_ms),
            heals: plan.level != Level::Broken,
            is_there: false,
            is_paused: false,
            since: Timestamp::MIN,
            ticks: BTreeSet::new(),
            last_job: None,
        };
        (schedule_name(schedule.n), known)
    });
    known.collect()
}

impl ScheduleKnown {
    /// Its newest tick up to that instant.
    fn newest(&self, until: Timestamp) -> Option<Timestamp> {
        let until = until.min(self.ends_at).as_micros();
        let tick = Timestamp::from_micros(until - until.rem_euclid(self.every_us));
        (tick > self.since).then_some(tick)
    }

    fn is_its_own(&self, tick: Timestamp, latest: Timestamp) -> bool {
        tick.as_micros() % self.every_us == 0
            && tick > self.since
            && tick <= latest
            && tick <= self.ends_at
    }
}

impl Case {
    pub(super) fn declared(&mut self, name: &str) {
        let now = self.now;
        self.say(|| format!("schedule {name} is declared"));
        if let Some(known) = self.schedules.get_mut(name) {
            (known.is_there, known.is_paused, known.since) = (true, false, now);
        }
    }

    pub(super) fn schedule_changed(
        &mut self,
        name: &str,
        change: &ScheduleChange,
        answer: &ScheduleAnswer,
    ) {
        let now = self.now;
        self.say(|| format!("schedule {name}: {change:?}: {answer:?}"));
        let Some(known) = self.schedules.get_mut(name) else { return };
        match answer {
            ScheduleAnswer::Done { changed: true, .. } => {}
            ScheduleAnswer::NotFound if known.is_there => {
                return self.find("a schedule stays until it is removed", name.to_owned());
            }
            _ => return,
        }
        match change {
            ScheduleChange::Pause => known.is_paused = true,
            ScheduleChange::Resume => {
                known.is_paused = false;
                known.since = known.since.max(now);
            }
            ScheduleChange::Remove => known.is_there = false,
            ScheduleChange::Trigger(job) => {
                let job = job.clone();
                self.coverage.met("a schedule is triggered");
                self.born(&job);
            }
        }
    }

    pub(super) fn all_minted(&mut self, rows: &[MintRow], minted: &Minted) {
        for (row, minting) in rows.iter().zip(&minted.rows) {
            match minting {
                Minting::Written { minted: true } => self.minted(row),
                Minting::Written { minted: false } => {
                    if row.missed.is_some() {
                        self.coverage.met("a tick is missed");
                    }
                }
                Minting::Overlapped => self.overlapped(row),
                Minting::Conflict => {
                    self.coverage.met("a decision about a schedule comes too late")
                }
                Minting::Gone => self.coverage.met("a schedule is gone when it is decided about"),
                Minting::Rejected(why) => {
                    self.find("what is sound is accepted", format!("{}: {why:?}", row.name));
                }
            }
        }
    }

    fn minted(&mut self, row: &MintRow) {
        let latest = self.latest;
        let Some(job) = &row.job else {
            return self.find("nothing is minted of nothing", row.name.clone());
        };
        let Some(tick) = job.tick.as_ref().map(|tick| tick.at) else {
            return self.find("a tick is one of its schedule's", format!("{}: none", row.name));
        };
        let last = self.schedules.get(&row.name).and_then(|known| known.last_job);
        let overlaps = last.is_some_and(|last| self.lives(last));
        let Some(known) = self.schedules.get_mut(&row.name) else {
            return self.find("no phantom ticks", row.name.clone());
        };
        let told = format!("{} at {tick}", row.name);
        let wrong = if !known.is_there || known.is_paused {
            Some("a paused schedule mints nothing")
        } else if !known.is_its_own(tick, latest) {
            Some("a tick is one of its schedule's")
        } else if !known.ticks.insert(tick) {
            Some("a tick is minted once")
        } else if known.no_overlap && overlaps {
            Some("a job of a schedule does not overlap with the next")
        } else {
            None
        };
        known.last_job = Some(job.id);
        self.coverage.met("a tick is minted");
        self.say(|| format!("schedule {told} is minted"));
        if let Some(oracle) = wrong {
            self.find(oracle, told);
        }
        if !self.jobs.contains_key(&job.id) {
            self.born(job);
        }
    }

    fn overlapped(&mut self, row: &MintRow) {
        self.coverage.met("a tick overlaps and is skipped");
        let known = self.schedules.get(&row.name);
        let last = known.and_then(|known| known.last_job);
        let overlaps = last.is_some_and(|last| self.lives(last));
        if !overlaps || known.is_none_or(|known| !known.no_overlap) {
            self.find("only what overlaps is skipped for it", row.name.clone());
        }
    }

    fn lives(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|known| !JobState::is_terminal(known.state))
    }

    /// The ticks that have to come still: the newest of each schedule that makes up for what was missed.
    pub(super) fn ticks_to_come(&self) -> Vec<String> {
        let now = self.now;
        let due = self.schedules.iter().filter(|(_, known)| {
            known.heals
                && known.is_there
                && !known.is_paused
                && known.coalesces
                && !known.no_overlap
        });
        let due = due.filter_map(|(name, known)| {
            let tick = known.newest(now)?;
            (!known.ticks.contains(&tick)).then(|| format!("{name} at {tick}"))
        });
        due.collect()
    }
}
