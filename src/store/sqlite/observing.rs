//! Observers: cursors over the log of transitions.
//!
//! Whoever writes holds the one write lock, so transitions are committed in the order of their positions, and a
//! position says all of where a cursor stands: there is one pass over the log, whose number is 0. A call is one
//! transaction that begins as a writer; what it looks at of the log is bounded, since all writers wait for it.

mod cursor;
mod page;
mod parked;

#[cfg(test)]
pub(super) use cursor::RECORDS;
#[cfg(test)]
pub(super) use page::{BEYOND, PAGE};
#[cfg(test)]
pub(super) use parked::{PARKED, WANTED};

use super::session::SqliteSession;
use super::work::Work;
use crate::store::{
    CursorLease, Observe, Observed, ObserverChange, ObserverRecord, Observing, PAGE_MAX,
    ParkedDelivery, Resolve, Resolved, StoreError, UPKEEP_MAX,
};
use crate::{Timestamp, WorkerId};
use cursor::Cursor;

impl Observing for SqliteSession {
    fn observe(&mut self, ask: &Observe<'_>) -> Result<Observed, StoreError> {
        self.write(|work| observe(work, ask))
    }

    fn resolve(&mut self, resolve: &Resolve<'_>) -> Result<Resolved, StoreError> {
        self.write(|work| self::resolve(work, resolve))
    }

    fn release_cursor(
        &mut self,
        observer: &str,
        worker: WorkerId,
        epoch: u64,
    ) -> Result<Timestamp, StoreError> {
        self.write(|work| {
            if let Some(mut cursor) = Cursor::read(work.conn, observer)?
                && cursor.stale(worker, epoch, work.now).is_none()
            {
                cursor.release(work.now);
                cursor.write(work.conn, observer)?;
            }
            Ok(work.now)
        })
    }

    fn observers(&mut self) -> Result<Vec<ObserverRecord>, StoreError> {
        self.read(|conn, _| cursor::records(conn))
    }

    fn parked(
        &mut self,
        observer: &str,
        after: Option<u64>,
        max: u32,
    ) -> Result<Vec<ParkedDelivery>, StoreError> {
        self.read(|conn, _| parked::beyond(conn, observer, after, max.clamp(1, PAGE_MAX)))
    }

    fn change_observer(
        &mut self,
        actor: &str,
        observer: &str,
        change: ObserverChange,
    ) -> Result<u64, StoreError> {
        self.write(|work| parked::change(work, actor, observer, change))
    }
}

fn observe(work: &Work<'_>, ask: &Observe<'_>) -> Result<Observed, StoreError> {
    let Work { conn, now, .. } = *work;
    let mut cursor = Cursor::register(conn, ask, now)?;
    if let Some(until) = cursor.held_elsewhere(ask.worker, now) {
        return Ok(Observed::Elsewhere { until, store_time: now });
    }
    let expiry = now + ask.lease;
    cursor.take(ask.worker, expiry);
    let reset = cursor.reset_if_beyond(page::last(conn)?);
    let max = ask.max.clamp(1, UPKEEP_MAX);
    let page = page::look(conn, cursor.passed, ask.filter, max)?;
    if page.batch.is_empty() {
        cursor.passed = page.looked_at;
    }
    cursor.write(conn, ask.observer)?;
    let first = page.batch.first().map(|first| first.transition.position);
    Ok(Observed::Held {
        lease: CursorLease { epoch: cursor.epoch, expiry },
        round: 0,
        batch: page.batch,
        failing: cursor.failing.filter(|failing| Some(failing.position) == first),
        again: parked::wanted(conn, ask.observer, max)?,
        more: page.more,
        reset,
        store_time: now,
    })
}

fn resolve(work: &Work<'_>, resolve: &Resolve<'_>) -> Result<Resolved, StoreError> {
    let Work { conn, now, .. } = *work;
    let cursor = Cursor::read(conn, resolve.observer)?;
    let cursor = match cursor::resolved(cursor, resolve, now) {
        Ok(cursor) => cursor,
        Err(reason) => return Ok(Resolved::Stale { reason, store_time: now }),
    };
    cursor.write(conn, resolve.observer)?;
    parked::forget(conn, resolve.observer, &resolve.delivered_again)?;
    parked::park(conn, resolve.observer, &resolve.parked, now)?;
    Ok(Resolved::Applied { expiry: now + resolve.lease, store_time: now })
}
