//! Requests and answers of recurring schedules.

use super::{Admission, JobRow};
use crate::store::Rejection;
use crate::{JobId, Timestamp};

/// One tick of a schedule, as the job that it minted carries it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tick {
    /// The schedule's name.
    pub schedule: String,
    /// The instant that the tick stands for, which is not the instant at which the job was minted.
    pub at: Timestamp,
}

impl Tick {
    /// A tick.
    #[must_use]
    pub const fn new(schedule: String, at: Timestamp) -> Self {
        Self { schedule, at }
    }
}

/// A schedule as it is handed to a store, which understands nothing of either text.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScheduleRow {
    /// Its name, unique in the store.
    pub name: String,
    /// Whose set of schedules it belongs to.
    pub owner: String,
    /// When it ticks: JSON text. Where it changes, the cursor begins anew at the time of the change, so that a
    /// change makes no run by itself.
    pub timing: String,
    /// What it mints, and how it deals with what was missed: JSON text.
    pub definition: String,
}

impl ScheduleRow {
    /// A row.
    #[must_use]
    pub const fn new(name: String, owner: String, timing: String, definition: String) -> Self {
        Self { name, owner, timing, definition }
    }
}

/// What a declaration did with one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Declaration {
    /// It is new.
    Added,
    /// It was there otherwise.
    Changed,
    /// It was there just so; nothing was written.
    Unchanged,
}

/// The answer to a declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Declared {
    /// Every row stands.
    Done {
        /// Per row, in order.
        rows: Vec<Declaration>,
        /// The owner's schedules that were not among the rows any more, by name; taken away.
        removed: Vec<String>,
        /// The store's time.
        store_time: Timestamp,
    },
    /// Nothing was written: the name of that row belongs to another owner.
    Foreign {
        /// Which row.
        index: usize,
        /// Whose it is.
        owner: String,
    },
}

/// What an operator does with a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScheduleChange {
    /// It mints nothing any more.
    Pause,
    /// It goes on with the first tick after now, or after its cursor where that is later: what it has missed is
    /// not caught up.
    Resume,
    /// It is forgotten. What it has minted stays.
    Remove,
    /// This job is minted now, beside the ticks; the cursor stays.
    Trigger(Box<JobRow>),
}

/// The answer to a [`ScheduleChange`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScheduleAnswer {
    /// Done; whether it made a difference (a paused schedule that is paused again makes none).
    Done {
        /// Whether it was otherwise before.
        changed: bool,
        /// The store's time.
        store_time: Timestamp,
    },
    /// The job to be minted was refused.
    Rejected(Rejection),
    /// There is no such schedule.
    NotFound,
}

/// Why a tick minted no job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SkipReason {
    /// It was past by more than its grace when a node looked.
    Missed,
    /// The job of an earlier tick had not ended, and the schedule allows no overlap.
    Overlap,
}

impl SkipReason {
    /// The number under which stores keep it; never reused.
    #[must_use]
    pub const fn code(self) -> i16 {
        match self {
            Self::Missed => 1,
            Self::Overlap => 2,
        }
    }

    /// The member stored under `code`, if there is one.
    #[must_use]
    pub const fn from_code(code: i64) -> Option<Self> {
        Some(match code {
            1 => Self::Missed,
            2 => Self::Overlap,
            _ => return None,
        })
    }
}

/// A schedule as it stands in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScheduleRecord {
    /// What was declared.
    pub row: ScheduleRow,
    /// Grows with each write to the schedule: what a [`MintRow`] is compared with.
    pub revision: u64,
    /// Whether it mints nothing.
    pub is_paused: bool,
    /// Every tick up to here is settled: minted or skipped.
    pub cursor: Timestamp,
    /// When a node looks at it next; none, once it has ended. At its declaration and after a resume: at once.
    pub look_at: Option<Timestamp>,
    /// The next tick, as the node computed it that looked last.
    pub next_tick: Option<Timestamp>,
    /// The last tick that minted a job.
    pub last_tick: Option<Timestamp>,
    /// That job.
    pub last_job: Option<JobId>,
    /// How many ticks were skipped so far.
    pub skipped: u64,
    /// The last tick that was skipped, and why.
    pub last_skip: Option<(Timestamp, SkipReason)>,
    /// What went wrong when a node looked at it last, and since when it does.
    pub error: Option<(String, Timestamp)>,
    /// When it was declared first.
    pub created_at: Timestamp,
}

impl ScheduleRecord {
    /// A schedule declared at that instant.
    #[must_use]
    pub const fn new(row: ScheduleRow, at: Timestamp) -> Self {
        Self {
            row,
            revision: 1,
            is_paused: false,
            cursor: at,
            look_at: Some(at),
            next_tick: None,
            last_tick: None,
            last_job: None,
            skipped: 0,
            last_skip: None,
            error: None,
            created_at: at,
        }
    }
}

/// The answer to a search for schedules to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DueSchedules {
    /// Those to be looked at now, the longest due first; none that is paused.
    pub due: Vec<ScheduleRecord>,
    /// When the next of the others is to be looked at.
    pub next_at: Option<Timestamp>,
    /// The store's time.
    pub store_time: Timestamp,
}

impl DueSchedules {
    /// An answer.
    #[must_use]
    pub const fn new(
        due: Vec<ScheduleRecord>,
        next_at: Option<Timestamp>,
        store_time: Timestamp,
    ) -> Self {
        Self { due, next_at, store_time }
    }
}

/// What a node has decided about one schedule that it looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MintRow {
    /// The schedule.
    pub name: String,
    /// The revision that was looked at: any other, and nothing is written.
    pub revision: u64,
    /// The new cursor. One before the old one leaves the old one.
    pub cursor: Timestamp,
    /// When to look again; none, if it has ended.
    pub look_at: Option<Timestamp>,
    /// The next tick.
    pub next_tick: Option<Timestamp>,
    /// The job of a tick, which its `tick` names. An id that exists is left as it is: the tick was minted.
    pub job: Option<Box<JobRow>>,
    /// With a job: it is not minted, and its tick is skipped as an overlap, while the schedule's last job has
    /// not ended.
    pub no_overlap: bool,
    /// So many ticks were missed, and the last of them.
    pub missed: Option<(u64, Timestamp)>,
    /// What went wrong, cleaned and within its bound; none clears what stood. Where an error stood, the instant
    /// since which it does is kept.
    pub error: Option<String>,
}

impl MintRow {
    /// Moves the cursor, and mints nothing.
    #[must_use]
    pub const fn new(
        name: String,
        revision: u64,
        cursor: Timestamp,
        look_at: Option<Timestamp>,
    ) -> Self {
        Self {
            name,
            revision,
            cursor,
            look_at,
            next_tick: None,
            job: None,
            no_overlap: false,
            missed: None,
            error: None,
        }
    }
}

/// What became of one [`MintRow`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Minting {
    /// Written; whether a job was minted by it.
    Written {
        /// A new job stands.
        minted: bool,
    },
    /// Written as a skipped tick, counted and kept as the last one skipped: the schedule's last job has not ended.
    Overlapped,
    /// Not written: the schedule has changed since it was looked at, or somebody else has settled the tick.
    Conflict,
    /// The schedule is gone.
    Gone,
    /// Not written: the job was refused. The others are not affected.
    Rejected(Rejection),
}

impl Minting {
    /// What becomes of a tick by what became of its job: one that was kept out by its unique key overlaps with the
    /// job that holds it.
    #[must_use]
    pub const fn of(admission: Admission) -> Self {
        match admission {
            Admission::New => Self::Written { minted: true },
            Admission::Duplicate => Self::Written { minted: false },
            Admission::Held { .. } => Self::Overlapped,
        }
    }
}

/// The answer to a mint, one entry per row, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Minted {
    /// In the order of the rows.
    pub rows: Vec<Minting>,
    /// The store's time.
    pub store_time: Timestamp,
}

impl Minted {
    /// An answer.
    #[must_use]
    pub const fn new(rows: Vec<Minting>, store_time: Timestamp) -> Self {
        Self { rows, store_time }
    }
}
