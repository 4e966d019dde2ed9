//! One connection, and the two ways to use it: to read, and to write in one transaction.
//!
//! After any error the connection is outside of a transaction, or the session says that it is lost.
//! An empty batch is answered without a lock.

use super::fault::SqliteFault;
use super::file::Identity;
use super::work::{Wakes, Work};
use super::{
    Inner, claim, enqueue, latch, lease, open, operations, pumps, purge, queues, reads, records,
    report,
};
use crate::invariant::InvariantTrigger;
use crate::store::{
    Announcement, AuditFilter, AuditPage, BulkAnswer, BulkChange, CancelAnswer, Claim, Claimed,
    EnqueueAnswer, Exchanged, Found, HandedBack, Held, JobFilter, JobRecord, JobRow, Jobs, Lapsed,
    LatchesWorkedOff, LeaseRef, Operations, OutcomeRow, Page, ParentRecord, PumpRecord, Purge,
    Purged, QueueAnswer, QueueChange, QueueCount, QueueSettings, Reads, Renewal, Reported,
    RequeueAnswer, Revoked, StoreError, Transition, UPKEEP_MAX, Upkeep,
};
use crate::{JobId, Timestamp, WorkerId};
use rusqlite::{Connection, TransactionBehavior};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a session that writes looks whether its file is still the one at the path.
const IDENTITY_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct SqliteSession {
    store: Arc<Inner>,
    conn: Connection,
    identity: Identity,
    identity_checked: Instant,
    is_lost: bool,
}

impl SqliteSession {
    pub(super) fn open(store: Arc<Inner>) -> Result<Self, StoreError> {
        let (conn, identity) = open::session(&store)?;
        Ok(Self { store, conn, identity, identity_checked: Instant::now(), is_lost: false })
    }

    /// Runs `work` outside of any transaction: each statement sees a snapshot of its own.
    pub(super) fn read<T>(
        &mut self,
        work: impl FnOnce(&Connection, Timestamp) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.require_usable()?;
        let result = work(&self.conn, self.store.now());
        self.leave(result)
    }

    /// Runs `work` in a transaction that holds the write lock from its beginning. The time it is given
    /// was read under that lock.
    pub(super) fn write<T>(
        &mut self,
        work: impl FnOnce(&mut Work<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.require_usable()?;
        let result = transact(&mut self.conn, &self.store, work);
        let (answer, wakes) = self.leave(result)?;
        if !wakes.is_empty() {
            let now = self.store.now();
            for (queue, due_at) in wakes {
                self.store.hub.wake(&queue, due_at.since(now));
            }
        }
        Ok(answer)
    }

    fn require_usable(&mut self) -> Result<(), StoreError> {
        if self.is_lost {
            return Err(StoreError::new(SqliteFault::SessionLost).with_session_lost());
        }
        if self.identity_checked.elapsed() >= IDENTITY_INTERVAL {
            self.identity.check(&self.store.path)?;
            self.identity_checked = Instant::now();
        }
        Ok(())
    }

    /// Makes sure that no transaction outlives an error, and counts a violation only then.
    fn leave<T>(&mut self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        let Err(error) = result else {
            return result;
        };
        if !self.conn.is_autocommit() {
            // The transaction has tried that as it was dropped. What it answers does not matter, only
            // what state the connection is in then.
            let _ = self.conn.execute_batch("ROLLBACK");
        }
        self.is_lost = !self.conn.is_autocommit();
        let error = error.counted();
        Err(if self.is_lost { error.with_session_lost() } else { error })
    }

    /// Takes due jobs; first without a lock, so that an idle claim writes nothing.
    fn claim_if_due(&mut self, claim: &Claim<'_>) -> Result<Claimed, StoreError> {
        let (idle, now) = self.read(|conn, now| {
            if claim.total == 0 {
                return Ok((Some((false, None)), now));
            }
            Ok(match claim::peek(conn, claim, now)? {
                claim::Peek::Due => (None, now),
                claim::Peek::Idle { withheld, next_due } => (Some((withheld, next_due)), now),
            })
        })?;
        match idle {
            Some((withheld, next_due)) => {
                Ok(Claimed::new(Vec::new(), now).withheld(withheld).next_due(next_due))
            }
            None => self.write(|work| claim::take(work, claim)),
        }
    }
}

/// One transaction. Dropping it unfinished, also by unwinding, rolls it back.
fn transact<T>(
    conn: &mut Connection,
    store: &Inner,
    work: impl FnOnce(&mut Work<'_>) -> Result<T, StoreError>,
) -> Result<(T, Wakes), StoreError> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    require_write_lock(&tx)?;
    let mut under_way = Work::begin(&tx, store)?;
    let answer = work(&mut under_way)?;
    let wakes = under_way.finish()?;
    tx.commit()?;
    Ok((answer, wakes))
}

/// Everything here rests on being the only writer: that `BEGIN IMMEDIATE` succeeded must mean it.
fn require_write_lock(conn: &Connection) -> Result<(), StoreError> {
    if holds_write_lock(conn)? {
        return Ok(());
    }
    let message = "a transaction that began as a writer does not hold the write lock";
    Err(StoreError::found(InvariantTrigger::ApplicationLockNotAcquired, message))
}

#[cfg(feature = "bundled")]
fn holds_write_lock(conn: &Connection) -> Result<bool, StoreError> {
    Ok(conn.transaction_state(Some("main"))? == rusqlite::TransactionState::Write)
}

/// Of an engine that is not known when this is built, only whether there is a transaction can be asked.
#[cfg(not(feature = "bundled"))]
fn holds_write_lock(conn: &Connection) -> Result<bool, StoreError> {
    Ok(!conn.is_autocommit())
}

impl Jobs for SqliteSession {
    fn enqueue(&mut self, rows: &[JobRow]) -> Result<EnqueueAnswer, StoreError> {
        if let Some(rejected) = enqueue::refuse(rows, &self.store) {
            return Ok(rejected);
        }
        if rows.is_empty() {
            return Ok(EnqueueAnswer::Accepted { is_new: Vec::new(), store_time: self.now()? });
        }
        self.write(|work| enqueue::insert(work, rows))
    }

    fn claim(&mut self, claim: &Claim<'_>) -> Result<Claimed, StoreError> {
        self.claim_if_due(claim)
    }

    fn report(&mut self, rows: &[OutcomeRow]) -> Result<Reported, StoreError> {
        if rows.is_empty() {
            return Ok(Reported::new(Vec::new(), self.now()?));
        }
        self.write(|work| Ok(Reported::new(report::settle(work, rows)?, work.now)))
    }

    fn exchange(
        &mut self,
        rows: &[OutcomeRow],
        claim: &Claim<'_>,
    ) -> Result<Exchanged, StoreError> {
        if rows.is_empty() {
            let claimed = self.claim_if_due(claim)?;
            return Ok(Exchanged::new(Reported::new(Vec::new(), claimed.store_time), claimed));
        }
        self.write(|work| {
            let reported = Reported::new(report::settle(work, rows)?, work.now);
            Ok(Exchanged::new(reported, claim::take(work, claim)?))
        })
    }

    fn renew(
        &mut self,
        worker: WorkerId,
        rows: &[LeaseRef],
        lease: Duration,
    ) -> Result<Renewal, StoreError> {
        if rows.is_empty() {
            return Ok(Renewal::new(Vec::new(), self.now()?));
        }
        self.write(|work| lease::renew(work, worker, rows, lease))
    }

    fn find_lapsed(&mut self, queues: &[String], max: u32) -> Result<Lapsed, StoreError> {
        self.read(|conn, now| lease::find_lapsed(conn, queues, max, now))
    }

    fn held_by(&mut self, worker: WorkerId) -> Result<Held, StoreError> {
        self.read(|conn, now| lease::held_by(conn, worker, now))
    }

    fn hand_back(&mut self, worker: WorkerId, rows: &[LeaseRef]) -> Result<HandedBack, StoreError> {
        if rows.is_empty() {
            return Ok(HandedBack::new(Vec::new(), self.now()?));
        }
        self.write(|work| lease::hand_back(work, worker, rows))
    }

    fn now(&mut self) -> Result<Timestamp, StoreError> {
        Ok(self.store.now())
    }
}

impl Operations for SqliteSession {
    fn request_cancel(&mut self, actor: &str, job: JobId) -> Result<CancelAnswer, StoreError> {
        self.write(|work| operations::request_cancel(work, actor, job))
    }

    fn requeue(&mut self, actor: &str, job: JobId) -> Result<RequeueAnswer, StoreError> {
        self.write(|work| operations::requeue(work, actor, job))
    }

    fn change_matching(
        &mut self,
        actor: &str,
        change: BulkChange,
        filter: &JobFilter,
        after: Option<JobId>,
        max: u32,
    ) -> Result<BulkAnswer, StoreError> {
        self.write(|work| operations::change_matching(work, actor, change, filter, after, max))
    }

    fn change_queue(
        &mut self,
        actor: &str,
        queue: &str,
        change: QueueChange,
    ) -> Result<QueueAnswer, StoreError> {
        self.write(|work| queues::change(work, actor, queue, change))
    }

    fn revoke(&mut self, actor: &str, worker: WorkerId, max: u32) -> Result<Revoked, StoreError> {
        self.write(|work| lease::revoke(work, actor, worker, max))
    }
}

impl Upkeep for SqliteSession {
    fn purge(&mut self, purge: &Purge) -> Result<Purged, StoreError> {
        self.write(|work| purge::purge(work, purge))
    }

    fn work_off_latches(&mut self, max: u32) -> Result<LatchesWorkedOff, StoreError> {
        // First without a lock: nearly always there is nothing to do.
        let (is_behind, now) = self.read(|conn, now| Ok((latch::is_behind(conn)?, now)))?;
        if !is_behind {
            return Ok(LatchesWorkedOff::new(0, false, now));
        }
        let max = max.clamp(1, UPKEEP_MAX);
        self.write(|work| {
            let (resolved, more) = latch::work_off(work, max)?;
            Ok(LatchesWorkedOff::new(resolved, more, work.now))
        })
    }

    fn announce(&mut self, announcement: &Announcement) -> Result<Timestamp, StoreError> {
        self.write(|work| {
            pumps::announce(work.conn, announcement, work.now)?;
            Ok(work.now)
        })
    }

    fn withdraw(&mut self, worker: WorkerId) -> Result<(), StoreError> {
        self.write(|work| pumps::withdraw(work.conn, worker))
    }
}

impl Reads for SqliteSession {
    fn job(&mut self, job: JobId) -> Result<Option<JobRecord>, StoreError> {
        self.read(|conn, _| reads::job(conn, job))
    }

    fn find(&mut self, filter: &JobFilter, page: &Page) -> Result<Found, StoreError> {
        self.read(|conn, _| reads::find(conn, filter, page))
    }

    fn counts(&mut self) -> Result<Vec<QueueCount>, StoreError> {
        self.read(|conn, _| reads::counts(conn))
    }

    fn parents(&mut self, job: JobId) -> Result<Vec<ParentRecord>, StoreError> {
        self.read(|conn, _| records::parents(conn, job))
    }

    fn ancestor(
        &mut self,
        job: JobId,
        ancestor: JobId,
    ) -> Result<Option<ParentRecord>, StoreError> {
        self.read(|conn, _| records::ancestor(conn, job, ancestor))
    }

    fn history(&mut self, job: JobId) -> Result<Vec<Transition>, StoreError> {
        self.read(|conn, _| records::history(conn, job))
    }

    fn audit(&mut self, filter: &AuditFilter) -> Result<AuditPage, StoreError> {
        self.read(|conn, _| records::audit(conn, filter))
    }

    fn queues(&mut self) -> Result<Vec<QueueSettings>, StoreError> {
        self.read(|conn, _| queues::all(conn))
    }

    fn pumps(&mut self) -> Result<Vec<PumpRecord>, StoreError> {
        self.read(|conn, _| pumps::all(conn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_without_the_write_lock_is_a_violation() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut conn = Connection::open(folder.path().join("a.db")).expect("it opens");
        conn.execute_batch("CREATE TABLE t (x)").expect("made");
        let trigger =
            |conn: &Connection| require_write_lock(conn).map_err(|error| error.counted().trigger());
        let violated = Err(Some(InvariantTrigger::ApplicationLockNotAcquired));
        assert_eq!(trigger(&conn), violated);
        let tx = conn.transaction().expect("begun as a reader");
        tx.query_row("SELECT count(*) FROM t", [], |_| Ok(())).expect("read");
        #[cfg(feature = "bundled")]
        assert_eq!(trigger(&tx), violated);
        drop(tx);
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
        assert_eq!(trigger(&tx), Ok(()));
    }
}
