//! Sets of schedules, as their owners declare them.

use super::rows;
use crate::store::sqlite::work::Work;
use crate::store::{Declaration, Declared, ScheduleRecord, ScheduleRow, StoreError};
use std::collections::BTreeSet;

/// Adds or changes schedules inside the caller's write transaction; with `is_whole`, takes away what else the
/// owner has.
///
/// # Errors
/// Faults, and a write that did not touch the row it was meant for.
pub(super) fn declare(
    work: &Work<'_>,
    owner: &str,
    declared: &[ScheduleRow],
    is_whole: bool,
) -> Result<Declared, StoreError> {
    // Before anything is written.
    for (index, row) in declared.iter().enumerate() {
        if let Some(holder) = rows::owner(work.conn, &row.name)?
            && holder != owner
        {
            return Ok(Declared::Foreign { index, owner: holder });
        }
    }
    let declarations = declared.iter().map(|row| declare_one(work, owner, row));
    let declarations = declarations.collect::<Result<Vec<_>, StoreError>>()?;
    let removed = if is_whole { remove_others(work, owner, declared)? } else { Vec::new() };
    Ok(Declared::Done { rows: declarations, removed, store_time: work.now })
}

fn declare_one(work: &Work<'_>, owner: &str, row: &ScheduleRow) -> Result<Declaration, StoreError> {
    let Some(mut record) = rows::by_name(work.conn, &row.name)? else {
        let row = ScheduleRow { owner: owner.to_owned(), ..row.clone() };
        rows::insert(work.conn, &ScheduleRecord::new(row, work.now))?;
        return Ok(Declaration::Added);
    };
    let declaration = record.redeclare(row, work.now);
    if declaration == Declaration::Changed {
        rows::update(work.conn, &record)?;
    }
    Ok(declaration)
}

/// The names of those taken away, in order.
fn remove_others(
    work: &Work<'_>,
    owner: &str,
    declared: &[ScheduleRow],
) -> Result<Vec<String>, StoreError> {
    let kept: BTreeSet<&str> = declared.iter().map(|row| row.name.as_str()).collect();
    let mut removed = rows::names_of(work.conn, owner)?;
    removed.retain(|name| !kept.contains(name.as_str()));
    for name in &removed {
        rows::remove(work.conn, name)?;
    }
    Ok(removed)
}
