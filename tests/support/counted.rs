//! A store that counts the calls of its sessions, to be put round another one.
//!
//! A call of a Postgres session is one round trip, and one commit; one of a SQLite session that writes is
//! one transaction (`tests/costs.rs` holds both). So the calls are the costs.

use backwave::store::{
    Bounds, Claim, Claimed, EnqueueAnswer, Exchanged, HandedBack, Held, Hub, JobRow, Jobs, Lapsed,
    LeaseRef, OutcomeRow, Renewal, Reported, Session, Store, StoreError, StoreFaultClassifier,
};
use backwave::{Timestamp, WorkerId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How often sessions were called.
#[derive(Debug, Default)]
pub struct Calls {
    pub enqueues: AtomicU64,
    /// Claims on their own.
    pub claims: AtomicU64,
    /// Reports on their own.
    pub reports: AtomicU64,
    /// Reports and claims in one.
    pub exchanges: AtomicU64,
    /// Everything else: renewals, searches, reads.
    pub others: AtomicU64,
    /// Jobs that claims and exchanges have answered with.
    pub jobs: AtomicU64,
}

impl Calls {
    /// All calls that a worker group makes to get its jobs done.
    pub fn cycles(&self) -> u64 {
        [&self.claims, &self.reports, &self.exchanges].into_iter().map(read).sum()
    }

    /// All calls.
    pub fn total(&self) -> u64 {
        self.cycles() + read(&self.enqueues) + read(&self.others)
    }
}

pub fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn count(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}

/// See the module's documentation.
pub struct Counted<S> {
    inner: S,
    calls: Arc<Calls>,
}

impl<S: Store> Counted<S> {
    pub fn new(inner: S) -> Self {
        Self { inner, calls: Arc::default() }
    }

    pub fn calls(&self) -> &Arc<Calls> {
        &self.calls
    }
}

impl<S: Store> Store for Counted<S> {
    fn open_session(&self) -> Result<Box<dyn Session>, StoreError> {
        let inner = self.inner.open_session()?;
        Ok(Box::new(CountedSession { inner, calls: Arc::clone(&self.calls) }))
    }

    fn hub(&self) -> &Hub {
        self.inner.hub()
    }

    fn bounds(&self) -> &Bounds {
        self.inner.bounds()
    }

    fn call_timeout(&self) -> Option<Duration> {
        self.inner.call_timeout()
    }

    fn fault_classifier(&self) -> Option<&dyn StoreFaultClassifier> {
        self.inner.fault_classifier()
    }
}

struct CountedSession {
    inner: Box<dyn Session>,
    calls: Arc<Calls>,
}

impl CountedSession {
    fn other(&mut self) -> &mut dyn Session {
        count(&self.calls.others, 1);
        self.inner.as_mut()
    }
}

impl Jobs for CountedSession {
    fn enqueue(&mut self, rows: &[JobRow]) -> Result<EnqueueAnswer, StoreError> {
        count(&self.calls.enqueues, 1);
        self.inner.enqueue(rows)
    }

    fn claim(&mut self, claim: &Claim<'_>) -> Result<Claimed, StoreError> {
        count(&self.calls.claims, 1);
        let claimed = self.inner.claim(claim)?;
        count(&self.calls.jobs, claimed.jobs.len());
        Ok(claimed)
    }

    fn report(&mut self, rows: &[OutcomeRow]) -> Result<Reported, StoreError> {
        count(&self.calls.reports, 1);
        self.inner.report(rows)
    }

    fn exchange(
        &mut self,
        rows: &[OutcomeRow],
        claim: &Claim<'_>,
    ) -> Result<Exchanged, StoreError> {
        count(&self.calls.exchanges, 1);
        let exchanged = self.inner.exchange(rows, claim)?;
        count(&self.calls.jobs, exchanged.claimed.jobs.len());
        Ok(exchanged)
    }

    fn renew(
        &mut self,
        worker: WorkerId,
        rows: &[LeaseRef],
        lease: Duration,
    ) -> Result<Renewal, StoreError> {
        self.other().renew(worker, rows, lease)
    }

    fn find_lapsed(&mut self, queues: &[String], max: u32) -> Result<Lapsed, StoreError> {
        self.other().find_lapsed(queues, max)
    }

    fn held_by(&mut self, worker: WorkerId) -> Result<Held, StoreError> {
        self.other().held_by(worker)
    }

    fn hand_back(&mut self, worker: WorkerId, rows: &[LeaseRef]) -> Result<HandedBack, StoreError> {
        self.other().hand_back(worker, rows)
    }

    fn now(&mut self) -> Result<Timestamp, StoreError> {
        self.other().now()
    }
}

backwave::forward_session!(CountedSession, |this| this.other(); Operations Upkeep Reads Observing Scheduling);
