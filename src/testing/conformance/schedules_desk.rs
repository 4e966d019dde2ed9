//! The vocabulary of the clauses about schedules.

use super::Fixture;
use super::desk::{ACTOR, Desk, SECOND, sound};
use crate::store::{
    Declaration, Declared, DueSchedules, JobRow, MintRow, Minting, ScheduleAnswer, ScheduleChange,
    ScheduleRecord, ScheduleRow, Tick,
};
use crate::{JobId, Timestamp};
use std::time::Duration;

/// Whose schedules these are, where a clause does not say otherwise.
pub(super) const OWNER: &str = "shop";
/// From one tick to the next.
pub(super) const MINUTE: Duration = Duration::from_secs(60);

/// A schedule of [`OWNER`].
pub(super) fn schedule(name: &str) -> ScheduleRow {
    let (name, owner) = (name.to_owned(), OWNER.to_owned());
    ScheduleRow::new(name, owner, "\"each minute\"".to_owned(), "{}".to_owned())
}

pub(super) fn timed(name: &str, timing: &str) -> ScheduleRow {
    ScheduleRow { timing: timing.to_owned(), ..schedule(name) }
}

pub(super) fn defined(name: &str, definition: &str) -> ScheduleRow {
    ScheduleRow { definition: definition.to_owned(), ..schedule(name) }
}

/// The decision that a schedule is settled up to `tick`, and looked at a minute later.
pub(super) fn moved(record: &ScheduleRecord, tick: Timestamp) -> MintRow {
    let next = tick + MINUTE;
    let row = MintRow::new(record.row.name.clone(), record.revision, tick, Some(next));
    MintRow { next_tick: Some(next), ..row }
}

/// The same, and that the tick mints this job.
pub(super) fn minted(record: &ScheduleRecord, tick: Timestamp, job: &JobRow) -> MintRow {
    let carried = Tick::new(record.row.name.clone(), tick);
    let job = JobRow { tick: Some(carried), ..job.clone() };
    MintRow { job: Some(Box::new(job)), ..moved(record, tick) }
}

/// The same, unless the schedule's last job lives.
pub(super) fn alone(record: &ScheduleRecord, tick: Timestamp, job: &JobRow) -> MintRow {
    MintRow { no_overlap: true, ..minted(record, tick, job) }
}

pub(super) const NEW: Minting = Minting::Written { minted: true };
pub(super) const NOT_NEW: Minting = Minting::Written { minted: false };

impl Desk {
    #[track_caller]
    pub(super) fn declare(
        &mut self,
        owner: &str,
        rows: &[ScheduleRow],
        is_whole: bool,
    ) -> Declared {
        let declared = sound(self.session.declare(owner, rows, is_whole));
        if let Declared::Done { rows: answers, store_time, .. } = &declared {
            assert_eq!(answers.len(), rows.len(), "one entry per row");
            assert_eq!(*store_time, self.now(), "the store's time is told");
        }
        declared
    }

    /// Declares what must be taken in, beside what is there.
    #[track_caller]
    pub(super) fn declare_some(&mut self, rows: &[ScheduleRow]) -> Vec<Declaration> {
        match self.declare(OWNER, rows, false) {
            Declared::Done { rows, removed, .. } => {
                assert!(removed.is_empty(), "a part of a set takes nothing away");
                rows
            }
            other @ Declared::Foreign { .. } => panic!("refused: {other:?}"),
        }
    }

    /// Declares the whole set of an owner, which must be taken in; what is taken away by it.
    #[track_caller]
    pub(super) fn declare_whole(&mut self, owner: &str, rows: &[ScheduleRow]) -> Vec<String> {
        match self.declare(owner, rows, true) {
            Declared::Done { removed, .. } => removed,
            other @ Declared::Foreign { .. } => panic!("refused: {other:?}"),
        }
    }

    /// Adds one schedule.
    #[track_caller]
    pub(super) fn add_schedule(&mut self, name: &str) -> ScheduleRecord {
        assert_eq!(self.declare_some(&[schedule(name)]), [Declaration::Added]);
        self.schedule(name)
    }

    #[track_caller]
    pub(super) fn schedules(&mut self) -> Vec<ScheduleRecord> {
        sound(self.session.schedules())
    }

    #[track_caller]
    pub(super) fn schedule_names(&mut self) -> Vec<String> {
        self.schedules().into_iter().map(|record| record.row.name).collect()
    }

    #[track_caller]
    pub(super) fn find_schedule(&mut self, name: &str) -> Option<ScheduleRecord> {
        self.schedules().into_iter().find(|record| record.row.name == name)
    }

    #[track_caller]
    pub(super) fn schedule(&mut self, name: &str) -> ScheduleRecord {
        self.find_schedule(name).expect("the schedule is there")
    }

    #[track_caller]
    pub(super) fn due_schedules(&mut self, max: u32) -> DueSchedules {
        let due = sound(self.session.due_schedules(max));
        assert_eq!(due.store_time, self.now(), "the store's time is told");
        due
    }

    /// The names of those to be looked at, in the order in which they are told.
    #[track_caller]
    pub(super) fn due_names(&mut self) -> Vec<String> {
        self.due_schedules(200).due.into_iter().map(|record| record.row.name).collect()
    }

    #[track_caller]
    pub(super) fn mint(&mut self, rows: &[MintRow]) -> Vec<Minting> {
        let minted = sound(self.session.mint(rows));
        assert_eq!(minted.store_time, self.now(), "the store's time is told");
        assert_eq!(minted.rows.len(), rows.len(), "one entry per row");
        minted.rows
    }

    #[track_caller]
    pub(super) fn mint_one(&mut self, row: &MintRow) -> Minting {
        self.mint(std::slice::from_ref(row)).remove(0)
    }

    /// Mints a job for a tick of that schedule now, which must be new; the job.
    #[track_caller]
    pub(super) fn mint_now(&mut self, name: &str, job: &JobRow) -> JobId {
        let row = minted(&self.schedule(name), self.now(), job);
        assert_eq!(self.mint_one(&row), NEW);
        job.id
    }

    #[track_caller]
    pub(super) fn operate(&mut self, name: &str, change: ScheduleChange) -> ScheduleAnswer {
        let answer = sound(self.session.change_schedule(ACTOR, name, &change));
        if let ScheduleAnswer::Done { store_time, .. } = answer {
            assert_eq!(store_time, self.now(), "the store's time is told");
        }
        answer
    }

    /// Does what must be possible; whether it made a difference.
    #[track_caller]
    pub(super) fn change_schedule(&mut self, name: &str, change: ScheduleChange) -> bool {
        match self.operate(name, change) {
            ScheduleAnswer::Done { changed, .. } => changed,
            other => panic!("refused: {other:?}"),
        }
    }
}

/// A session, and a schedule `s` that was declared a second ago.
#[track_caller]
pub(super) fn with_schedule(fixture: &Fixture) -> (Desk, ScheduleRecord) {
    let mut desk = Desk::open(fixture);
    let record = desk.add_schedule("s");
    desk.wait(SECOND);
    (desk, record)
}
