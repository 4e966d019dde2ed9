//! What may be claimed of the jobs with a concurrency key.
//!
//! A look goes along the due jobs of a queue in their order, and counts the leases of each key that it meets. Where
//! it has passed [`WINDOW`] jobs whose key has no slot, it goes on from key to key instead, so that a backlog of
//! one key is one step however long it is: its price grows with the keys that wait, not with the jobs.

use super::claim::{Acceptable, Position, Taken, candidate_columns, decode, first_after};
use super::{queues, row};
use crate::Timestamp;
use crate::store::StoreError;
use rusqlite::{Connection, params};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// So many jobs without a slot a look passes one by one.
const WINDOW: usize = 64;

/// What may be taken of a queue's jobs with a key, in their order.
#[derive(Default)]
pub(super) struct Keyed {
    jobs: VecDeque<Taken>,
    is_held_back: bool,
}

impl Keyed {
    pub(super) fn next(&self) -> Option<&Taken> {
        self.jobs.front()
    }

    pub(super) fn take(&mut self) -> Option<Taken> {
        self.jobs.pop_front()
    }

    /// Whether a key keeps back what is due.
    pub(super) const fn is_held_back(&self) -> bool {
        self.is_held_back
    }
}

/// Finds the first `count` jobs that are due and acceptable and whose key has a slot for them.
///
/// # Errors
/// Faults, and a row that is not what its index says.
pub(super) fn due(
    conn: &Connection,
    queue: &str,
    acceptable: &Acceptable<'_>,
    now: Timestamp,
    count: usize,
) -> Result<Keyed, StoreError> {
    let mut look = Look { conn, queue, acceptable, now, count, slots: None };
    let mut keyed = Keyed::default();
    if !look.in_order(&mut keyed)? {
        keyed.jobs = look.by_key()?;
    }
    Ok(keyed)
}

/// When the first acceptable job with a key is due that is not due yet.
///
/// # Errors
/// Faults.
pub(super) fn next_due(
    conn: &Connection,
    queue: &str,
    acceptable: &Acceptable<'_>,
    now: Timestamp,
) -> Result<Option<Timestamp>, StoreError> {
    first_after(conn, LOOK_AHEAD, queue, Position::past(now), acceptable)
}

/// Notes that these queues have jobs with a key.
///
/// # Errors
/// Faults.
pub(super) fn note_queues(conn: &Connection, queues: &BTreeSet<&str>) -> Result<(), StoreError> {
    for queue in queues {
        conn.prepare_cached(NOTE)?.execute([queue])?;
    }
    Ok(())
}

struct Look<'a> {
    conn: &'a Connection,
    queue: &'a str,
    acceptable: &'a Acceptable<'a>,
    now: Timestamp,
    count: usize,
    /// The free slots of the keys that were met, and how many a key has; read when the first is met.
    slots: Option<(BTreeMap<String, u32>, u32)>,
}

impl Look<'_> {
    /// Goes along the jobs in their order; whether nothing is left to be found.
    fn in_order(&mut self, keyed: &mut Keyed) -> Result<bool, StoreError> {
        let mut passed = 0;
        let mut statement = self.conn.prepare_cached(WALK)?;
        let mut rows = statement.query(params![self.queue, self.now.as_micros()])?;
        while let Some(row) = rows.next()? {
            if !self.acceptable.admits(row, 0, 1)? {
                continue;
            }
            let key: String = row.get(KEY)?;
            if self.use_slot(&key)? {
                keyed.jobs.push_back(decode(row, row::time(row, 2)?, self.queue)?);
            } else {
                keyed.is_held_back = true;
                passed += 1;
            }
            if keyed.jobs.len() >= self.count {
                return Ok(true);
            }
            if passed == WINDOW {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Goes from key to key, and finds the first of those jobs that have a slot.
    fn by_key(&mut self) -> Result<VecDeque<Taken>, StoreError> {
        self.slots = None;
        let mut first = BTreeMap::new();
        let mut key = String::new();
        while let Some(next) = self.key_after(&key)? {
            let free = self.free(&next)?;
            if free > 0 {
                self.collect(&next, free, &mut first)?;
            }
            key = next;
        }
        let mut jobs = VecDeque::with_capacity(first.len());
        for seq in first.into_values() {
            let mut statement = self.conn.prepare_cached(ONE)?;
            let mut rows = statement.query([seq])?;
            if let Some(row) = rows.next()? {
                jobs.push_back(decode(row, row::time(row, 2)?, self.queue)?);
            }
        }
        Ok(jobs)
    }

    fn key_after(&self, key: &str) -> Result<Option<String>, StoreError> {
        let mut statement = self.conn.prepare_cached(NEXT_KEY)?;
        let mut rows = statement.query(params![self.queue, key])?;
        Ok(rows.next()?.map(|row| row.get(0)).transpose()?)
    }

    /// Adds the first jobs of one key to the first of all.
    fn collect(
        &self,
        key: &str,
        free: u32,
        first: &mut BTreeMap<(Timestamp, Vec<u8>), i64>,
    ) -> Result<(), StoreError> {
        let mut statement = self.conn.prepare_cached(OF_KEY)?;
        let mut rows = statement.query(params![self.queue, key, self.now.as_micros()])?;
        let mut free = free as usize;
        while let Some(row) = rows.next()? {
            if free == 0 {
                break;
            }
            if !self.acceptable.admits(row, 0, 1)? {
                continue;
            }
            free -= 1;
            first.insert((row::time(row, 2)?, row.get(3)?), row.get(4)?);
            if first.len() > self.count {
                first.pop_last();
            }
        }
        Ok(())
    }

    /// Uses a slot of a key, if it has one.
    fn use_slot(&mut self, key: &str) -> Result<bool, StoreError> {
        let free = self.free(key)?;
        if let Some((slots, _)) = &mut self.slots {
            slots.insert(key.to_owned(), free.saturating_sub(1));
        }
        Ok(free > 0)
    }

    /// How many slots of a key are free: of its limit, what neither a lease holds nor this look has used.
    fn free(&mut self, key: &str) -> Result<u32, StoreError> {
        let (slots, limit) = match &mut self.slots {
            Some(slots) => slots,
            none => {
                let limit = queues::key_limit(self.conn, self.queue)?;
                none.insert((BTreeMap::new(), limit))
            }
        };
        if let Some(free) = slots.get(key) {
            return Ok(*free);
        }
        let mut statement = self.conn.prepare_cached(LEASED)?;
        let leased: i64 = statement.query_row([self.queue, key], |row| row.get(0))?;
        let free = u32::try_from(i64::from(*limit).saturating_sub(leased)).unwrap_or(0);
        slots.insert(key.to_owned(), free);
        Ok(free)
    }
}

/// What a look runs per row or key.
#[cfg(test)]
pub(super) const STATEMENTS: [&str; 5] = [WALK, LOOK_AHEAD, NEXT_KEY, OF_KEY, LEASED];

/// The column of the key, behind those of a candidate.
const KEY: usize = 14;

const NOTE: &str =
    "INSERT INTO main.backwave_keyed_queues (queue) VALUES (?1) ON CONFLICT (queue) DO NOTHING";

/// The due jobs of a queue that have a key, in the order of claims. Indexes are named, since an engine without
/// statistics takes any of those whose condition fits for as good as another.
pub(super) const WALK: &str = concat!(
    "SELECT ",
    candidate_columns!(),
    ", concurrency_key FROM main.backwave_jobs INDEXED BY backwave_jobs_keyed_due \
      WHERE state = 0 AND concurrency_key IS NOT NULL AND queue = ?1 AND due_at <= ?2 \
      ORDER BY due_at, id"
);

/// What has a key, from a position on, for a look.
pub(super) const LOOK_AHEAD: &str = "SELECT wire_name, version, due_at \
           FROM main.backwave_jobs INDEXED BY backwave_jobs_keyed_due \
          WHERE state = 0 AND concurrency_key IS NOT NULL AND queue = ?1 AND (due_at, id) > (?2, ?3) \
          ORDER BY due_at, id";

pub(super) const NEXT_KEY: &str = "SELECT concurrency_key \
           FROM main.backwave_jobs INDEXED BY backwave_jobs_keyed \
          WHERE state = 0 AND concurrency_key IS NOT NULL AND queue = ?1 AND concurrency_key > ?2 \
          ORDER BY concurrency_key LIMIT 1";

pub(super) const OF_KEY: &str = "SELECT wire_name, version, due_at, id, seq \
           FROM main.backwave_jobs INDEXED BY backwave_jobs_keyed \
          WHERE state = 0 AND concurrency_key IS NOT NULL AND queue = ?1 AND concurrency_key = ?2 \
                AND due_at <= ?3 \
          ORDER BY due_at, id";

const ONE: &str =
    concat!("SELECT ", candidate_columns!(), " FROM main.backwave_jobs WHERE seq = ?1");

/// How many jobs of a queue with that key are leased, dead leases included.
pub(super) const LEASED: &str = "SELECT count(*) \
           FROM main.backwave_jobs INDEXED BY backwave_jobs_key_slots \
          WHERE state = 2 AND concurrency_key IS NOT NULL AND queue = ?1 AND concurrency_key = ?2";
