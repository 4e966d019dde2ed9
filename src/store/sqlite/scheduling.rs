//! Recurring schedules: rows with a cursor, which whoever looks moves on behind a revision.
//!
//! Under the write lock nobody else changes a row, so a decision that fits the row as it is read there is
//! written at once, with its job.

mod change;
mod declare;
mod mint;
mod rows;

#[cfg(test)]
pub(super) use rows::{BY_NAME, DUE, NEXT};

use super::session::SqliteSession;
use crate::store::{
    Declared, DueSchedules, JobRow, MintRow, Minted, PAGE_MAX, Rejection, ScheduleAnswer,
    ScheduleChange, ScheduleRecord, ScheduleRow, Scheduling, StoreError, check_rows,
};

impl Scheduling for SqliteSession {
    fn declare(
        &mut self,
        owner: &str,
        rows: &[ScheduleRow],
        is_whole: bool,
    ) -> Result<Declared, StoreError> {
        self.write(|work| declare::declare(work, owner, rows, is_whole))
    }

    fn change_schedule(
        &mut self,
        actor: &str,
        name: &str,
        change: &ScheduleChange,
    ) -> Result<ScheduleAnswer, StoreError> {
        let refusal = match change {
            ScheduleChange::Trigger(job) => self.refusal(job),
            _ => None,
        };
        self.write(|work| change::change(work, actor, name, change, refusal))
    }

    fn due_schedules(&mut self, max: u32) -> Result<DueSchedules, StoreError> {
        let max = max.clamp(1, PAGE_MAX);
        self.read(|conn, now| {
            let (due, next_at) = rows::due(conn, max, now)?;
            Ok(DueSchedules::new(due, next_at, now))
        })
    }

    fn mint(&mut self, rows: &[MintRow]) -> Result<Minted, StoreError> {
        if rows.is_empty() {
            return self.read(|_, now| Ok(Minted::new(Vec::new(), now)));
        }
        let refusals: Vec<_> = rows.iter().map(|row| self.refusal(row.job.as_ref()?)).collect();
        self.write(|work| {
            let rows = mint::mint(work, rows, refusals)?;
            Ok(Minted::new(rows, work.now))
        })
    }

    fn schedules(&mut self) -> Result<Vec<ScheduleRecord>, StoreError> {
        self.read(|conn, _| rows::all(conn))
    }
}

impl SqliteSession {
    /// Why a job to be minted is refused, as far as its bounds say it.
    fn refusal(&self, job: &JobRow) -> Option<Rejection> {
        let checked = check_rows(std::slice::from_ref(job), &self.store.bounds, self.store.now());
        checked.err().map(|(_, reason)| reason)
    }
}
