//! What recurring schedules ask of a store.

use super::{
    Declared, DueSchedules, MintRow, Minted, ScheduleAnswer, ScheduleChange, ScheduleRecord,
    ScheduleRow, StoreError,
};

/// Schedules: rows with a cursor, which any node moves on by compare-and-set.
///
/// A store knows nothing of calendars. Whoever looks at a schedule computes its ticks, and writes what it decided
/// behind the revision that it looked at: each tick is settled once in the whole fleet, and the job of a tick has
/// an id that follows from schedule and tick, so that even a doubled write mints one job.
pub trait Scheduling {
    /// Adds or changes schedules, all or none. With `is_whole`, what else the owner has is taken away, so that the
    /// rows are its whole set. A row that stands just so is not written; whether a schedule is paused, and what it
    /// has minted and skipped, stays through every change. Where the timing changes, the cursor begins anew at the
    /// store's time, at which the schedule is looked at; where only the definition does, cursor and next look
    /// stay, but a schedule on which an error stands is looked at at once. Either change takes the error away.
    /// The rows belong to `owner`, whatever they say themselves.
    ///
    /// # Errors
    /// Faults only; a name that belongs to another owner is an answer.
    fn declare(
        &mut self,
        owner: &str,
        rows: &[ScheduleRow],
        is_whole: bool,
    ) -> Result<Declared, StoreError>;

    /// Does so in the name of `actor`, audited where it has an effect: the record names the schedule as its
    /// subject, and for a triggered job that job and its queue. A triggered job is none of a tick's: it neither
    /// moves the schedule nor counts as its last job, and a paused schedule can be triggered, too. A job whose id
    /// exists is left as it is, without effect.
    ///
    /// # Errors
    /// Faults only.
    fn change_schedule(
        &mut self,
        actor: &str,
        name: &str,
        change: &ScheduleChange,
    ) -> Result<ScheduleAnswer, StoreError>;

    /// The schedules whose time to be looked at has come, at most `max` (from 1 to
    /// [`PAGE_MAX`](super::PAGE_MAX)). A read: nothing changes. A store without schedules answers by one look at
    /// an index.
    ///
    /// # Errors
    /// Faults only.
    fn due_schedules(&mut self, max: u32) -> Result<DueSchedules, StoreError>;

    /// Writes decisions, each behind its revision; their jobs are enqueued in the same transaction, within the
    /// bounds of every enqueue. A paused schedule answers as one that has changed. Whoever calls this wakes the
    /// queues of the jobs that were minted.
    ///
    /// Per row, in this order: the schedule is looked for (`Gone`) and compared (`Conflict`); its job is checked
    /// (`Rejected`, nothing written); an id that exists already settles the tick as minted before; with
    /// `no_overlap` the schedule's last job is looked at under the lock (`Overlapped`); else the job is enqueued.
    /// Every row that is written raises the revision by one; a second row for one schedule is a `Conflict`.
    ///
    /// # Errors
    /// Faults only.
    fn mint(&mut self, rows: &[MintRow]) -> Result<Minted, StoreError>;

    /// Every schedule, ordered by name.
    ///
    /// # Errors
    /// Faults only.
    fn schedules(&mut self) -> Result<Vec<ScheduleRecord>, StoreError>;
}
