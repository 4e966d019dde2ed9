//! Upkeep: taking away what has been kept long enough, working off latches that a parent's end left for
//! later, and saying that the pump is there.
//!
//! It is never urgent. Its requests come one at a time, after everything that serves jobs, page by page, and
//! after a full page it rests for as long as the page took: a backlog of millions neither starves a claim nor
//! keeps the pump from hearing its workers.

use super::Driver;
use super::command::Command;
use crate::Timestamp;
use crate::store::{LatchesWorkedOff, Purge, PurgeCursor, Purged, Retention};
use std::time::Duration;

/// How many rows one page of a purge looks at.
const PURGE_PAGE: u32 = 500;
/// How many gates are resolved at a time.
const LATCH_PAGE: u32 = 1000;
/// How often a pump says that it is there.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(30);
/// The least rest after a full page.
const REST_MIN: Duration = Duration::from_millis(2);

/// When one kind of request is made again.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, Hash))]
struct Round {
    wanted: bool,
    /// It was asked for at that time, and is not answered yet.
    asked_at: Option<Timestamp>,
    /// The page before was full: it goes on then.
    resume_at: Option<Timestamp>,
}

impl Round {
    fn next(&mut self, now: Timestamp) -> bool {
        let resumes = self.resume_at.is_some_and(|at| at <= now);
        let go = self.asked_at.is_none() && (self.wanted || resumes);
        if go {
            *self = Self { wanted: false, asked_at: Some(now), resume_at: None };
        }
        go
    }

    fn answered(&mut self, more: bool, now: Timestamp) {
        let took = self.asked_at.take().map_or(Duration::ZERO, |asked_at| now.since(asked_at));
        self.resume_at = more.then(|| now + took.max(REST_MIN));
    }

    /// It waits for the next time it is due.
    fn failed(&mut self) {
        *self = Self::default();
    }
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(super) struct Upkeep {
    retention: Retention,
    cursor: PurgeCursor,
    purge: Round,
    latches: Round,
    announcement: Round,
    announced_at: Option<Timestamp>,
}

impl Upkeep {
    pub(super) fn new(retention: Retention) -> Self {
        Self {
            retention,
            cursor: PurgeCursor::default(),
            purge: Round::default(),
            latches: Round::default(),
            announcement: Round::default(),
            announced_at: None,
        }
    }

    pub(super) fn next_request(&mut self, now: Timestamp) -> Option<Command> {
        if self.is_under_way() {
            return None;
        }
        if self.latches.next(now) {
            return Some(Command::WorkOffLatches { max: LATCH_PAGE });
        }
        if self.purge.next(now) {
            let purge = Purge::new(self.retention, PURGE_PAGE).starting_at(self.cursor);
            return Some(Command::Purge(purge));
        }
        self.announcement.next(now).then_some(Command::Announce)
    }

    /// When a rest after a full page is over.
    pub(super) fn wake_at(&self) -> Option<Timestamp> {
        if self.is_under_way() {
            return None;
        }
        [self.purge.resume_at, self.latches.resume_at].into_iter().flatten().min()
    }

    pub(super) const fn is_under_way(&self) -> bool {
        self.purge.asked_at.is_some()
            || self.latches.asked_at.is_some()
            || self.announcement.asked_at.is_some()
    }
}

impl Driver {
    pub(super) fn on_upkeep_due(&mut self, now: Timestamp) {
        self.schedules.want();
        let upkeep = &mut self.upkeep;
        upkeep.purge.wanted = true;
        upkeep.latches.wanted = true;
        // A clock that has stepped back far must not silence the pump.
        let is_due = |at: Timestamp| now.since(at) >= ANNOUNCE_EVERY || at > now + ANNOUNCE_EVERY;
        upkeep.announcement.wanted |= upkeep.announced_at.is_none_or(is_due);
    }

    pub(super) fn on_purged(&mut self, purged: &Purged, now: Timestamp) {
        self.upkeep.cursor = purged.cursor;
        self.upkeep.purge.answered(purged.more, now);
    }

    pub(super) fn on_latches_worked_off(&mut self, worked_off: LatchesWorkedOff, now: Timestamp) {
        self.upkeep.latches.answered(worked_off.more, now);
    }

    pub(super) fn on_announced(&mut self, now: Timestamp) {
        self.upkeep.announced_at = Some(now);
        self.upkeep.announcement.answered(false, now);
    }

    /// Whichever was under way: there is one at a time.
    pub(super) fn on_upkeep_failed(&mut self) {
        let upkeep = &mut self.upkeep;
        for round in [&mut upkeep.purge, &mut upkeep.latches, &mut upkeep.announcement] {
            if round.asked_at.is_some() {
                round.failed();
            }
        }
    }
}
