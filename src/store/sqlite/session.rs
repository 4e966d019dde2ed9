//! One connection, and the two ways to use it: to read, and to write in one transaction.
//!
//! After any error the connection is outside of a transaction, or the session says that it is lost.
//! An empty batch is answered without a lock.

use super::fault::SqliteFault;
use super::file::Identity;
use super::{Inner, claim, enqueue, lease, open, operations, reads, report};
use crate::store::{
    Announcement, AuditFilter, AuditPage, BulkAnswer, BulkChange, CancelAnswer, Claim, Claimed,
    EnqueueAnswer, Exchanged, Found, HandedBack, Held, JobFilter, JobRecord, JobRow, Jobs, Lapsed,
    LatchesWorkedOff, LeaseRef, Operations, OutcomeRow, Page, ParentRecord, PumpRecord, Purge,
    Purged, QueueAnswer, QueueChange, QueueCount, QueueSettings, Reads, Renewal, Reported,
    RequeueAnswer, Revoked, StoreError, Transition, Upkeep,
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
    fn read<T>(
        &mut self,
        work: impl FnOnce(&Connection, Timestamp) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.require_usable()?;
        let result = work(&self.conn, self.store.now());
        self.leave(result)
    }

    /// Runs `work` in a transaction that holds the write lock from its beginning. The time it is given
    /// was read under that lock.
    fn write<T>(
        &mut self,
        work: impl FnOnce(&Connection, Timestamp) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.require_usable()?;
        let result = transact(&mut self.conn, &self.store, work);
        self.leave(result)
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
                return Ok((Some(None), now));
            }
            Ok(match claim::peek(conn, claim, now)? {
                claim::Peek::Due => (None, now),
                claim::Peek::Idle(next_due) => (Some(next_due), now),
            })
        })?;
        match idle {
            Some(next_due) => Ok(Claimed::new(Vec::new(), now).next_due(next_due)),
            None => self.write(|conn, now| claim::take(conn, claim, now)),
        }
    }
}

/// One transaction. Dropping it unfinished, also by unwinding, rolls it back.
fn transact<T>(
    conn: &mut Connection,
    store: &Inner,
    work: impl FnOnce(&Connection, Timestamp) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let answer = work(&tx, store.now())?;
    tx.commit()?;
    Ok(answer)
}

impl Jobs for SqliteSession {
    fn enqueue(&mut self, rows: &[JobRow]) -> Result<EnqueueAnswer, StoreError> {
        if let Some(rejected) = enqueue::refuse(rows, &self.store) {
            return Ok(rejected);
        }
        if rows.is_empty() {
            return Ok(EnqueueAnswer::Accepted { is_new: Vec::new(), store_time: self.now()? });
        }
        self.write(|conn, store_time| {
            let is_new = enqueue::insert(conn, rows, store_time)?;
            Ok(EnqueueAnswer::Accepted { is_new, store_time })
        })
    }

    fn claim(&mut self, claim: &Claim<'_>) -> Result<Claimed, StoreError> {
        self.claim_if_due(claim)
    }

    fn report(&mut self, rows: &[OutcomeRow]) -> Result<Reported, StoreError> {
        if rows.is_empty() {
            return Ok(Reported::new(Vec::new(), self.now()?));
        }
        self.write(|conn, now| Ok(Reported::new(report::settle(conn, rows, now)?, now)))
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
        self.write(|conn, now| {
            let reported = Reported::new(report::settle(conn, rows, now)?, now);
            Ok(Exchanged::new(reported, claim::take(conn, claim, now)?))
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
        self.write(|conn, now| lease::renew(conn, worker, rows, lease, now))
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
        self.write(|conn, now| lease::hand_back(conn, worker, rows, now))
    }

    fn now(&mut self) -> Result<Timestamp, StoreError> {
        Ok(self.store.now())
    }
}

impl Operations for SqliteSession {
    fn request_cancel(&mut self, _actor: &str, job: JobId) -> Result<CancelAnswer, StoreError> {
        self.write(|conn, now| operations::request_cancel(conn, job, now))
    }

    fn requeue(&mut self, _actor: &str, job: JobId) -> Result<RequeueAnswer, StoreError> {
        self.write(|conn, now| operations::requeue(conn, job, now))
    }

    fn change_matching(
        &mut self,
        _actor: &str,
        _change: BulkChange,
        _filter: &JobFilter,
        _after: Option<JobId>,
        _max: u32,
    ) -> Result<BulkAnswer, StoreError> {
        unbuilt()
    }

    fn change_queue(
        &mut self,
        _actor: &str,
        _queue: &str,
        _change: QueueChange,
    ) -> Result<QueueAnswer, StoreError> {
        unbuilt()
    }

    fn revoke(
        &mut self,
        _actor: &str,
        _worker: WorkerId,
        _max: u32,
    ) -> Result<Revoked, StoreError> {
        unbuilt()
    }
}

impl Upkeep for SqliteSession {
    fn purge(&mut self, _purge: &Purge) -> Result<Purged, StoreError> {
        unbuilt()
    }

    fn work_off_latches(&mut self, _max: u32) -> Result<LatchesWorkedOff, StoreError> {
        unbuilt()
    }

    fn announce(&mut self, _announcement: &Announcement) -> Result<Timestamp, StoreError> {
        unbuilt()
    }

    fn withdraw(&mut self, _worker: WorkerId) -> Result<(), StoreError> {
        unbuilt()
    }
}

/// TO BUILD.
fn unbuilt<T>() -> Result<T, StoreError> {
    Err(StoreError::new(std::io::Error::from(std::io::ErrorKind::Unsupported)))
}

impl Reads for SqliteSession {
    fn job(&mut self, job: JobId) -> Result<Option<JobRecord>, StoreError> {
        self.read(|conn, _| reads::job(conn, job))
    }

    fn counts(&mut self) -> Result<Vec<QueueCount>, StoreError> {
        self.read(|conn, _| reads::counts(conn))
    }

    fn find(&mut self, _filter: &JobFilter, _page: &Page) -> Result<Found, StoreError> {
        unbuilt()
    }

    fn parents(&mut self, _job: JobId) -> Result<Vec<ParentRecord>, StoreError> {
        unbuilt()
    }

    fn ancestor(
        &mut self,
        _job: JobId,
        _ancestor: JobId,
    ) -> Result<Option<ParentRecord>, StoreError> {
        unbuilt()
    }

    fn history(&mut self, _job: JobId) -> Result<Vec<Transition>, StoreError> {
        unbuilt()
    }

    fn audit(&mut self, _filter: &AuditFilter) -> Result<AuditPage, StoreError> {
        unbuilt()
    }

    fn queues(&mut self) -> Result<Vec<QueueSettings>, StoreError> {
        unbuilt()
    }

    fn pumps(&mut self) -> Result<Vec<PumpRecord>, StoreError> {
        unbuilt()
    }
}
