//! The checks that every adapter makes before it stores a job, written once.

use super::{Bounds, Due, JobRow, Rejection};
use crate::Timestamp;
use crate::kernel::text::{NameFault, check_name};
use std::collections::BTreeSet;
use std::time::Duration;

/// The latest due time that is accepted; what lies between it and [`Timestamp::MAX`] leaves room for
/// the arithmetic on leases.
const DUE_MAX: Timestamp =
    Timestamp::from_micros(Timestamp::MAX.as_micros() - 366 * 86_400_000_000);
const VERSION_MAX: u32 = i32::MAX as u32;

/// Checks every row against the bounds. `now` is the store's time, against which relative due times
/// are judged.
///
/// # Errors
/// The index of the first row refused, and why.
pub fn check_rows(
    rows: &[JobRow],
    bounds: &Bounds,
    now: Timestamp,
) -> Result<(), (usize, Rejection)> {
    for (index, row) in rows.iter().enumerate() {
        check_row(row, bounds, now).map_err(|rejection| (index, rejection))?;
    }
    Ok(())
}

fn check_row(row: &JobRow, bounds: &Bounds, now: Timestamp) -> Result<(), Rejection> {
    let bytes = row.payload.as_bytes().len();
    if bytes > bounds.payload_bytes_max {
        return Err(Rejection::PayloadTooLarge { bytes, limit: bounds.payload_bytes_max });
    }
    named(&row.wire_name, bounds.wire_name_bytes_max, |name, fault| Rejection::WireName {
        name,
        fault,
    })?;
    named(&row.queue, bounds.queue_bytes_max, |name, fault| Rejection::QueueName { name, fault })?;
    if row.tags.len() > bounds.tags_max {
        return Err(Rejection::TooManyTags { count: row.tags.len(), limit: bounds.tags_max });
    }
    for tag in &row.tags {
        named(tag, bounds.tag_bytes_max, |name, fault| Rejection::Tag { name, fault })?;
    }
    if let Some(key) = &row.unique_key {
        named(key, bounds.key_bytes_max, |name, fault| Rejection::UniqueKey { name, fault })?;
    }
    if let Some(key) = &row.concurrency_key {
        named(key, bounds.key_bytes_max, |name, fault| Rejection::ConcurrencyKey { name, fault })?;
    }
    check_parents(row, bounds)?;
    if row.version == 0 || row.version > VERSION_MAX {
        return Err(Rejection::Version { version: row.version, limit: VERSION_MAX });
    }
    if row.timeout == Some(Duration::ZERO) {
        return Err(Rejection::ZeroTimeout);
    }
    let due = row.due.resolve(now);
    if due > DUE_MAX {
        return Err(Rejection::DueTooLate { due, limit: DUE_MAX });
    }
    Ok(())
}

/// What can be said of parents without looking for them; whether they exist, the adapter says.
fn check_parents(row: &JobRow, bounds: &Bounds) -> Result<(), Rejection> {
    if row.parents.contains(&row.id) {
        return Err(Rejection::OwnParent { id: row.id });
    }
    let count = row.parents.iter().collect::<BTreeSet<_>>().len();
    if count > bounds.parents_max {
        return Err(Rejection::TooManyParents { count, limit: bounds.parents_max });
    }
    Ok(())
}

fn named(
    name: &str,
    bytes_max: usize,
    reject: impl FnOnce(String, NameFault) -> Rejection,
) -> Result<(), Rejection> {
    check_name(name, bytes_max).map_err(|fault| reject(name.chars().take(64).collect(), fault))
}

impl Due {
    /// The instant meant, where the store's time is `now`.
    #[must_use]
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Now => now,
            Self::In(delay) => now + delay,
            Self::At(time) => time,
        }
    }
}
