//! Recurring schedules.

use super::session::SqliteSession;
use crate::store::{
    Declared, DueSchedules, MintRow, Minted, ScheduleAnswer, ScheduleChange, ScheduleRecord,
    ScheduleRow, Scheduling, StoreError,
};

impl Scheduling for SqliteSession {
    fn declare(
        &mut self,
        _owner: &str,
        _rows: &[ScheduleRow],
        _is_whole: bool,
    ) -> Result<Declared, StoreError> {
        Err(unbuilt())
    }

    fn change_schedule(
        &mut self,
        _actor: &str,
        _name: &str,
        _change: &ScheduleChange,
    ) -> Result<ScheduleAnswer, StoreError> {
        Err(unbuilt())
    }

    fn due_schedules(&mut self, _max: u32) -> Result<DueSchedules, StoreError> {
        Err(unbuilt())
    }

    fn mint(&mut self, _rows: &[MintRow]) -> Result<Minted, StoreError> {
        Err(unbuilt())
    }

    fn schedules(&mut self) -> Result<Vec<ScheduleRecord>, StoreError> {
        Err(unbuilt())
    }
}

fn unbuilt() -> StoreError {
    StoreError::new(std::io::Error::from(std::io::ErrorKind::Unsupported))
}
