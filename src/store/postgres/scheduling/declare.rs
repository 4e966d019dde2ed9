//! Sets of schedules, as their owners declare them.

use super::rows::{self, columns};
use crate::Timestamp;
use crate::store::postgres::session::{Batch, Call, PostgresSession};
use crate::store::{Declaration, Declared, ScheduleRecord, ScheduleRow, StoreError};
use std::collections::{BTreeMap, BTreeSet};

/// One declaration after another.
pub(in crate::store::postgres) const ONE_DECLARES: &str =
    "SELECT pg_advisory_xact_lock(hashtextextended('backwave schedules {schema_text}', 0))";

/// Locks what is declared again, and with a whole set what else its owner has.
pub(in crate::store::postgres) const DECLARED: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM {schema}.schedules AS s \
     WHERE s.name = ANY ($1) OR $2::boolean AND s.owner = $3 ORDER BY s.name FOR UPDATE"
);

pub(super) fn declare(
    session: &mut PostgresSession,
    owner: &str,
    declared: &[ScheduleRow],
    is_whole: bool,
) -> Result<Declared, StoreError> {
    let clock_time = session.store.clock_time();
    let calls = [
        Call::OneDeclares,
        Call::DeclaredSchedules,
        Call::Now,
        Call::WriteSchedules,
        Call::RemoveSchedules,
    ];
    session.in_transaction(&calls, |tx| {
        tx.query(Call::OneDeclares, &[])?;
        let names: Vec<&str> = declared.iter().map(|row| row.name.as_str()).collect();
        let rows = tx.query(Call::DeclaredSchedules, &[&names, &is_whole, &owner])?;
        let records = rows::by_name(&rows)?;
        if let Some((index, owner)) = foreign(&records, owner, declared) {
            return Ok(Declared::Foreign { index, owner });
        }
        let now = rows::time(tx, clock_time)?;
        let set = Set::decide(records, owner, declared, is_whole, now);
        set.write(tx)?;
        Ok(Declared::Done { rows: set.declarations, removed: set.removed, store_time: now })
    })
}

/// The first row whose name belongs to another owner.
fn foreign(
    records: &BTreeMap<String, ScheduleRecord>,
    owner: &str,
    declared: &[ScheduleRow],
) -> Option<(usize, String)> {
    let holders = declared.iter().map(|row| records.get(&row.name).map(|found| &found.row.owner));
    let holder = |(index, holder): (usize, Option<&String>)| Some((index, holder?.clone()));
    holders.enumerate().filter_map(holder).find(|(_, holder)| holder != owner)
}

/// What a declaration writes.
struct Set {
    declarations: Vec<Declaration>,
    records: BTreeMap<String, ScheduleRecord>,
    written: BTreeSet<String>,
    removed: Vec<String>,
}

impl Set {
    fn decide(
        mut records: BTreeMap<String, ScheduleRecord>,
        owner: &str,
        declared: &[ScheduleRow],
        is_whole: bool,
        now: Timestamp,
    ) -> Self {
        let mut removed = Vec::new();
        if is_whole {
            // What was locked is the owner's, or named.
            let named: BTreeSet<&str> = declared.iter().map(|row| row.name.as_str()).collect();
            removed.extend(records.keys().filter(|name| !named.contains(name.as_str())).cloned());
        }
        let mut written = BTreeSet::new();
        let declarations = declared.iter().map(|row| {
            let declaration = match records.get_mut(&row.name) {
                Some(record) => record.redeclare(row, now),
                None => {
                    let row = ScheduleRow { owner: owner.to_owned(), ..row.clone() };
                    records.insert(row.name.clone(), ScheduleRecord::new(row, now));
                    Declaration::Added
                }
            };
            if declaration != Declaration::Unchanged {
                written.insert(row.name.clone());
            }
            declaration
        });
        let declarations = declarations.collect();
        Self { declarations, records, written, removed }
    }

    fn write(&self, tx: &mut Batch<'_>) -> Result<(), StoreError> {
        if !self.written.is_empty() {
            let records = self.written.iter().filter_map(|name| self.records.get(name));
            rows::write_whole(tx, &records.collect::<Vec<_>>())?;
        }
        if !self.removed.is_empty() {
            rows::remove(tx, &self.removed.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
        Ok(())
    }
}
