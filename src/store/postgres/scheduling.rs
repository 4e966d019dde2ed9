//! Recurring schedules: rows with a cursor, which whoever looks moves on behind a revision.
//!
//! A call is one transaction of a few statements: it locks its rows by ascending name, decides from them as they
//! are locked, and writes what it has decided. Jobs come after schedules in the order of locks. Declarations come
//! one after another, since no row lock keeps out a name that is not there yet.

mod change;
mod declare;
mod mint;
mod rows;

pub(super) use change::{AUDIT, HOLD};
pub(super) use declare::{DECLARED, ONE_DECLARES};
pub(super) use mint::STANDING;
pub(super) use rows::{ALL, DUE, LOCK, MOVE, REMOVE, WRITE};

use super::session::PostgresSession;
use crate::store::{
    Declared, DueSchedules, JobRow, MintRow, Minted, PAGE_MAX, Rejection, ScheduleAnswer,
    ScheduleChange, ScheduleRecord, ScheduleRow, Scheduling, StoreError, check_rows,
};

impl Scheduling for PostgresSession {
    fn declare(
        &mut self,
        owner: &str,
        rows: &[ScheduleRow],
        is_whole: bool,
    ) -> Result<Declared, StoreError> {
        declare::declare(self, owner, rows, is_whole)
    }

    fn change_schedule(
        &mut self,
        actor: &str,
        name: &str,
        change: &ScheduleChange,
    ) -> Result<ScheduleAnswer, StoreError> {
        match change {
            ScheduleChange::Trigger(job) => change::trigger(self, actor, name, job),
            change => change::change(self, actor, name, change),
        }
    }

    fn due_schedules(&mut self, max: u32) -> Result<DueSchedules, StoreError> {
        rows::due(self, max.clamp(1, PAGE_MAX))
    }

    fn mint(&mut self, rows: &[MintRow]) -> Result<Minted, StoreError> {
        mint::mint(self, rows)
    }

    fn schedules(&mut self) -> Result<Vec<ScheduleRecord>, StoreError> {
        rows::all(self)
    }
}

impl PostgresSession {
    /// Why a job to be minted is refused, as far as its bounds say it.
    fn refusal(&self, job: &JobRow) -> Option<Rejection> {
        let (row, store) = (std::slice::from_ref(job), &self.store);
        check_rows(row, &store.bounds, store.rough_time()).err().map(|(_, reason)| reason)
    }
}
