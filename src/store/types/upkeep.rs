//! Requests and answers of upkeep: what maintenance does, and what groups announce.

use crate::kernel::state::JobState;
use crate::{JobId, Timestamp, WorkerId};
use std::time::Duration;

/// How long what has ended is kept. `None` keeps it for ever; zero lets the next purge take it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Retention {
    /// Succeeded jobs. Default 24 h.
    pub succeeded: Option<Duration>,
    /// Cancelled jobs. Default 24 h.
    pub cancelled: Option<Duration>,
    /// Dead-Lettered jobs. Default 14 d.
    pub dead_lettered: Option<Duration>,
    /// Quarantined jobs. Default 14 d.
    pub quarantined: Option<Duration>,
    /// Audit records. Default 90 d.
    pub audit: Option<Duration>,
    /// So many transitions of one job, the newest. Default 64.
    pub transitions_per_job: u32,
    /// Transitions that a registered observer has not passed, and their jobs. Older ones go although it has not
    /// seen them, which is told. Default 7 d.
    pub unobserved: Option<Duration>,
}

const DAY: Duration = Duration::from_secs(86_400);

impl Default for Retention {
    fn default() -> Self {
        Self {
            succeeded: Some(DAY),
            cancelled: Some(DAY),
            dead_lettered: Some(DAY.saturating_mul(14)),
            quarantined: Some(DAY.saturating_mul(14)),
            audit: Some(DAY.saturating_mul(90)),
            transitions_per_job: 64,
            unobserved: Some(DAY.saturating_mul(7)),
        }
    }
}

impl Retention {
    /// Nothing is ever purged.
    #[must_use]
    pub const fn forever() -> Self {
        Self {
            succeeded: None,
            cancelled: None,
            dead_lettered: None,
            quarantined: None,
            audit: None,
            transitions_per_job: u32::MAX,
            unobserved: None,
        }
    }

    /// Keeps Succeeded jobs for so long, or for ever.
    #[must_use]
    pub fn succeeded(mut self, keep: impl Into<Option<Duration>>) -> Self {
        self.succeeded = keep.into();
        self
    }

    /// Keeps Cancelled jobs for so long, or for ever.
    #[must_use]
    pub fn cancelled(mut self, keep: impl Into<Option<Duration>>) -> Self {
        self.cancelled = keep.into();
        self
    }

    /// Keeps Dead-Lettered jobs for so long, or for ever.
    #[must_use]
    pub fn dead_lettered(mut self, keep: impl Into<Option<Duration>>) -> Self {
        self.dead_lettered = keep.into();
        self
    }

    /// Keeps Quarantined jobs for so long, or for ever.
    #[must_use]
    pub fn quarantined(mut self, keep: impl Into<Option<Duration>>) -> Self {
        self.quarantined = keep.into();
        self
    }

    /// Keeps audit records for so long, or for ever.
    #[must_use]
    pub fn audit(mut self, keep: impl Into<Option<Duration>>) -> Self {
        self.audit = keep.into();
        self
    }

    /// Keeps so many transitions of one job, the newest.
    #[must_use]
    pub const fn transitions_per_job(mut self, count: u32) -> Self {
        self.transitions_per_job = count;
        self
    }

    /// Keeps transitions that a registered observer has not passed for so long, or for ever.
    #[must_use]
    pub fn unobserved(mut self, keep: impl Into<Option<Duration>>) -> Self {
        self.unobserved = keep.into();
        self
    }

    /// How long a job that ended in `state` is kept; `None` is for ever, as for one that lives.
    #[must_use]
    pub const fn of(&self, state: JobState) -> Option<Duration> {
        match state {
            JobState::Succeeded => self.succeeded,
            JobState::Cancelled => self.cancelled,
            JobState::DeadLettered => self.dead_lettered,
            JobState::Quarantined => self.quarantined,
            JobState::Scheduled | JobState::AwaitingParent | JobState::Leased => None,
        }
    }
}

/// Where a purge goes on: what it has looked at lies behind. Opaque to whoever carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct PurgeCursor {
    /// The last ended job looked at, by state, end and id.
    pub ended: Option<(JobState, Timestamp, JobId)>,
    /// The last transition looked at for trimming.
    pub trimmed: u64,
}

/// A request to take away what is kept no longer.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Purge {
    /// What is kept.
    pub retention: Retention,
    /// At most so many jobs are looked at.
    pub max: u32,
    /// Where to go on; the default is the beginning.
    pub cursor: PurgeCursor,
}

impl Purge {
    /// From the beginning.
    #[must_use]
    pub fn new(retention: Retention, max: u32) -> Self {
        Self { retention, max, cursor: PurgeCursor::default() }
    }

    /// From where the purge before stopped.
    #[must_use]
    pub const fn starting_at(mut self, cursor: PurgeCursor) -> Self {
        self.cursor = cursor;
        self
    }
}

/// The answer to a purge.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Purged {
    /// How many jobs were taken away.
    pub jobs: u32,
    /// Where to go on.
    pub cursor: PurgeCursor,
    /// Whether the page was full: going on at once finds more to look at.
    pub more: bool,
    /// How many transitions were taken that a registered observer had not passed, being older than
    /// [`Retention::unobserved`].
    pub unobserved: u64,
    /// The store's time.
    pub store_time: Timestamp,
}

impl Purged {
    /// An answer.
    #[must_use]
    pub const fn new(jobs: u32, cursor: PurgeCursor, more: bool, store_time: Timestamp) -> Self {
        Self { jobs, cursor, more, unobserved: 0, store_time }
    }

    /// Says that so many transitions were taken that an observer had not passed.
    #[must_use]
    pub const fn unobserved(mut self, count: u64) -> Self {
        self.unobserved = count;
        self
    }
}

/// The answer to a search for dependents whose parents ended while too many of them waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LatchesWorkedOff {
    /// How many gating edges were resolved.
    pub resolved: u32,
    /// Whether more are left.
    pub more: bool,
    /// The store's time.
    pub store_time: Timestamp,
}

impl LatchesWorkedOff {
    /// An answer.
    #[must_use]
    pub const fn new(resolved: u32, more: bool, store_time: Timestamp) -> Self {
        Self { resolved, more, store_time }
    }
}

/// Why a pump halted, as its health says it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HaltNote {
    /// The fault's type.
    pub type_name: String,
    /// Its message, cleaned and bounded.
    pub message: String,
    /// The trigger's name, where a named check raised it.
    pub trigger: Option<String>,
}

impl HaltNote {
    /// A note.
    #[must_use]
    pub const fn new(type_name: String, message: String, trigger: Option<String>) -> Self {
        Self { type_name, message, trigger }
    }
}

/// What a pump tells of itself. It never decides whether a lease is alive.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Announcement {
    /// The pump.
    pub worker: WorkerId,
    /// Its group.
    pub group: String,
    /// The machine's name.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// The queues it serves.
    pub queues: Vec<String>,
    /// The wire names it has handlers for.
    pub wire_names: Vec<String>,
    /// The version of this crate.
    pub version: String,
    /// Why it halted, once it has.
    pub halt: Option<HaltNote>,
}

impl Announcement {
    /// A pump that serves nothing yet.
    #[must_use]
    pub const fn new(worker: WorkerId, group: String, host: String, pid: u32) -> Self {
        Self {
            worker,
            group,
            host,
            pid,
            queues: Vec::new(),
            wire_names: Vec::new(),
            version: String::new(),
            halt: None,
        }
    }
}

/// A pump as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PumpRecord {
    /// What it told last.
    pub announcement: Announcement,
    /// When it told for the first time, by the store's clock.
    pub started_at: Timestamp,
    /// When it told last.
    pub last_seen: Timestamp,
    /// When it told that it had halted.
    pub halted_at: Option<Timestamp>,
}

impl PumpRecord {
    /// A record of a first announcement.
    #[must_use]
    pub const fn new(announcement: Announcement, at: Timestamp) -> Self {
        let halted_at = if announcement.halt.is_some() { Some(at) } else { None };
        Self { announcement, started_at: at, last_seen: at, halted_at }
    }
}
