//! One connection: its prepared statements, and the traits as thin calls.

use super::fault::{fault, is_unknown_statement};
use super::floor::Floors;
use super::{
    Inner, claim, dependents, enqueue, fresh, lease, observing, operations, reads, report,
    scheduling, upkeep,
};
use crate::store::{
    Announcement, AuditFilter, AuditPage, BulkAnswer, BulkChange, CancelAnswer, Claim, Claimed,
    EnqueueAnswer, Exchanged, Found, HandedBack, Held, JobFilter, JobRecord, JobRow, Jobs, Lapsed,
    LatchesWorkedOff, LeaseRef, Operations, OutcomeRow, Page, ParentRecord, PumpRecord, Purge,
    Purged, QueueAnswer, QueueChange, QueueCount, QueueSettings, Reads, Renewal, Reported,
    RequeueAnswer, Revoked, StoreError, Transition, Upkeep,
};
use crate::{JobId, Timestamp, WorkerId};
use ::postgres::types::ToSql;
use ::postgres::{Client, IsolationLevel, Row, Statement, Transaction};
use std::sync::Arc;
use std::time::Duration;

/// The parameters of a call.
pub(super) type Params<'a> = [&'a (dyn ToSql + Sync)];

/// The statements that a session prepares, each when it is first used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Claim,
    Report,
    Exchange,
    Enqueue,
    EnqueueFresh,
    Renew,
    HandBack,
    FindLapsed,
    HeldBy,
    RequestCancel,
    Requeue,
    ChangeQueue,
    Revoke,
    Purge,
    WorkOffLatches,
    Announce,
    Withdraw,
    Job,
    Counts,
    Parents,
    Ancestor,
    History,
    Audit,
    Queues,
    Pumps,
    DueSchedules,
    Schedules,
    LockSchedules,
    MoveSchedules,
    WriteSchedules,
    RemoveSchedules,
    OneDeclares,
    DeclaredSchedules,
    HoldSchedule,
    AuditSchedule,
    StandingJobs,
    Observe,
    Resolve,
    ReleaseCursor,
    Observers,
    Parked,
    ChangeObserver,
    Now,
}

impl Call {
    const COUNT: usize = Self::Now as usize + 1;

    /// Its SQL, with the schema left open.
    pub(super) const fn sql(self) -> &'static str {
        match self {
            Self::Claim => claim::CLAIM,
            Self::Report => report::REPORT,
            Self::Exchange => report::EXCHANGE,
            Self::Enqueue => enqueue::ENQUEUE,
            Self::EnqueueFresh => fresh::ENQUEUE_FRESH,
            Self::Renew => lease::RENEW,
            Self::HandBack => lease::HAND_BACK,
            Self::FindLapsed => lease::FIND_LAPSED,
            Self::HeldBy => lease::HELD_BY,
            Self::RequestCancel => operations::REQUEST_CANCEL,
            Self::Requeue => operations::REQUEUE,
            Self::ChangeQueue => operations::CHANGE_QUEUE,
            Self::Revoke => operations::REVOKE,
            Self::Purge => upkeep::PURGE,
            Self::WorkOffLatches => upkeep::WORK_OFF_LATCHES,
            Self::Announce => upkeep::ANNOUNCE,
            Self::Withdraw => upkeep::WITHDRAW,
            Self::Job => reads::JOB,
            Self::Counts => reads::COUNTS,
            Self::Parents => dependents::PARENTS,
            Self::Ancestor => dependents::ANCESTOR,
            Self::History => reads::HISTORY,
            Self::Audit => reads::AUDIT,
            Self::Queues => reads::QUEUES,
            Self::Pumps => upkeep::PUMPS,
            Self::DueSchedules => scheduling::DUE,
            Self::Schedules => scheduling::ALL,
            Self::LockSchedules => scheduling::LOCK,
            Self::MoveSchedules => scheduling::MOVE,
            Self::WriteSchedules => scheduling::WRITE,
            Self::RemoveSchedules => scheduling::REMOVE,
            Self::OneDeclares => scheduling::ONE_DECLARES,
            Self::DeclaredSchedules => scheduling::DECLARED,
            Self::HoldSchedule => scheduling::HOLD,
            Self::AuditSchedule => scheduling::AUDIT,
            Self::StandingJobs => scheduling::STANDING,
            Self::Observe => observing::OBSERVE,
            Self::Resolve => observing::RESOLVE,
            Self::ReleaseCursor => observing::RELEASE,
            Self::Observers => observing::OBSERVERS,
            Self::Parked => observing::PARKED,
            Self::ChangeObserver => observing::CHANGE_OBSERVER,
            Self::Now => "SELECT clock_timestamp()",
        }
    }
}

pub(super) struct PostgresSession {
    pub(super) store: Arc<Inner>,
    pub(super) floors: Floors,
    client: Client,
    statements: [Option<Statement>; Call::COUNT],
}

impl PostgresSession {
    pub(super) fn open(store: Arc<Inner>) -> Result<Self, StoreError> {
        let client = store.connect()?;
        let statements = [const { None }; Call::COUNT];
        Ok(Self { store, floors: Floors::default(), client, statements })
    }

    /// Runs one call in a transaction of its own.
    pub(super) fn query(
        &mut self,
        call: Call,
        params: &Params<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        match self.try_query(call, params) {
            // Something between us and the server has lost the session's statements. Nothing has run; the
            // second time in a row it is a fault like any other.
            Err(error) if is_unknown_statement(&error) => {
                self.reopen()?;
                self.try_query(call, params).map_err(fault)
            }
            other => other.map_err(fault),
        }
    }

    /// Runs a call that answers exactly one row.
    pub(super) fn query_one(&mut self, call: Call, params: &Params<'_>) -> Result<Row, StoreError> {
        one(self.query(call, params)?)
    }

    /// Runs a text that is made for the occasion, with the schema left open.
    pub(super) fn query_text(
        &mut self,
        text: &str,
        params: &Params<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        self.client.query(&self.store.schema.fill(text), params).map_err(fault)
    }

    /// Runs several calls in one transaction; commits when `work` has succeeded.
    pub(super) fn in_transaction<T>(
        &mut self,
        calls: &[Call],
        work: impl FnOnce(&mut Batch<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.in_transaction_if(calls, |batch| Ok((work(batch)?, true)))
    }

    /// The same, and commits only where `work` says so.
    pub(super) fn in_transaction_if<T>(
        &mut self,
        calls: &[Call],
        work: impl FnOnce(&mut Batch<'_>) -> Result<(T, bool), StoreError>,
    ) -> Result<T, StoreError> {
        for call in calls {
            self.prepared(*call).map_err(fault)?;
        }
        let start = self.client.build_transaction().isolation_level(IsolationLevel::ReadCommitted);
        let tx = start.start().map_err(fault)?;
        let mut batch = Batch { tx, statements: &self.statements };
        let (done, commits) = work(&mut batch)?;
        let end = if commits { batch.tx.commit() } else { batch.tx.rollback() };
        end.map_err(fault)?;
        Ok(done)
    }

    fn try_query(
        &mut self,
        call: Call,
        params: &Params<'_>,
    ) -> Result<Vec<Row>, ::postgres::Error> {
        let statement = self.prepared(call)?;
        self.client.query(&statement, params)
    }

    fn prepared(&mut self, call: Call) -> Result<Statement, ::postgres::Error> {
        let slot = &mut self.statements[call as usize];
        if let Some(statement) = slot {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(&self.store.schema.fill(call.sql()))?;
        Ok(slot.insert(statement).clone())
    }

    #[cfg(test)]
    pub(super) fn run_raw(&mut self, sql: &str) {
        self.client.batch_execute(sql).expect("the statement runs");
    }

    #[cfg(test)]
    pub(super) fn backend_pid(&mut self) -> i32 {
        self.client.query_one("SELECT pg_backend_pid()", &[]).expect("an answer").get(0)
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        self.client = self.store.connect()?;
        self.statements = [const { None }; Call::COUNT];
        Ok(())
    }
}

/// A transaction of several calls.
pub(super) struct Batch<'a> {
    tx: Transaction<'a>,
    statements: &'a [Option<Statement>; Call::COUNT],
}

impl Batch<'_> {
    /// Runs one of the calls that the transaction was begun for.
    pub(super) fn query(
        &mut self,
        call: Call,
        params: &Params<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        match &self.statements[call as usize] {
            Some(statement) => self.tx.query(statement, params).map_err(fault),
            None => Ok(Vec::new()),
        }
    }
}

/// The only row of an answer.
pub(super) fn one(rows: Vec<Row>) -> Result<Row, StoreError> {
    let count = rows.len();
    let mut rows = rows.into_iter();
    match (rows.next(), count) {
        (Some(row), 1) => Ok(row),
        _ => Err(StoreError::new(Malformed(format!("{count} rows where one was due")))),
    }
}

/// An answer that no function of ours gives: somebody has changed the schema by hand.
#[derive(Debug, thiserror::Error)]
#[error("the database gave an answer that does not fit the question: {0}")]
pub(super) struct Malformed(pub(super) String);

impl Jobs for PostgresSession {
    fn enqueue(&mut self, rows: &[JobRow]) -> Result<EnqueueAnswer, StoreError> {
        enqueue::enqueue(self, rows)
    }

    fn claim(&mut self, claim: &Claim<'_>) -> Result<Claimed, StoreError> {
        claim::claim(self, claim)
    }

    fn report(&mut self, rows: &[OutcomeRow]) -> Result<Reported, StoreError> {
        report::report(self, rows)
    }

    fn exchange(
        &mut self,
        rows: &[OutcomeRow],
        claim: &Claim<'_>,
    ) -> Result<Exchanged, StoreError> {
        report::exchange(self, rows, claim)
    }

    fn renew(
        &mut self,
        worker: WorkerId,
        rows: &[LeaseRef],
        lease: Duration,
    ) -> Result<Renewal, StoreError> {
        lease::renew(self, worker, rows, lease)
    }

    fn find_lapsed(&mut self, queues: &[String], max: u32) -> Result<Lapsed, StoreError> {
        lease::find_lapsed(self, queues, max)
    }

    fn held_by(&mut self, worker: WorkerId) -> Result<Held, StoreError> {
        lease::held_by(self, worker)
    }

    fn hand_back(&mut self, worker: WorkerId, rows: &[LeaseRef]) -> Result<HandedBack, StoreError> {
        lease::hand_back(self, worker, rows)
    }

    fn now(&mut self) -> Result<Timestamp, StoreError> {
        match self.store.clock_time() {
            Some(now) => Ok(now),
            None => self.query_one(Call::Now, &[])?.try_get(0).map_err(fault),
        }
    }
}

impl Operations for PostgresSession {
    fn request_cancel(&mut self, actor: &str, job: JobId) -> Result<CancelAnswer, StoreError> {
        operations::request_cancel(self, actor, job)
    }

    fn requeue(&mut self, actor: &str, job: JobId) -> Result<RequeueAnswer, StoreError> {
        operations::requeue(self, actor, job)
    }

    fn change_matching(
        &mut self,
        actor: &str,
        change: BulkChange,
        filter: &JobFilter,
        after: Option<JobId>,
        max: u32,
    ) -> Result<BulkAnswer, StoreError> {
        operations::change_matching(self, actor, change, filter, after, max)
    }

    fn change_queue(
        &mut self,
        actor: &str,
        queue: &str,
        change: QueueChange,
    ) -> Result<QueueAnswer, StoreError> {
        operations::change_queue(self, actor, queue, change)
    }

    fn revoke(&mut self, actor: &str, worker: WorkerId, max: u32) -> Result<Revoked, StoreError> {
        operations::revoke(self, actor, worker, max)
    }
}

impl Upkeep for PostgresSession {
    fn purge(&mut self, purge: &Purge) -> Result<Purged, StoreError> {
        upkeep::purge(self, purge)
    }

    fn work_off_latches(&mut self, max: u32) -> Result<LatchesWorkedOff, StoreError> {
        upkeep::work_off_latches(self, max)
    }

    fn announce(&mut self, announcement: &Announcement) -> Result<Timestamp, StoreError> {
        upkeep::announce(self, announcement)
    }

    fn withdraw(&mut self, worker: WorkerId) -> Result<(), StoreError> {
        upkeep::withdraw(self, worker)
    }
}

impl Reads for PostgresSession {
    fn job(&mut self, job: JobId) -> Result<Option<JobRecord>, StoreError> {
        reads::job(self, job)
    }

    fn find(&mut self, filter: &JobFilter, page: &Page) -> Result<Found, StoreError> {
        reads::find(self, filter, page)
    }

    fn counts(&mut self) -> Result<Vec<QueueCount>, StoreError> {
        reads::counts(self)
    }

    fn parents(&mut self, job: JobId) -> Result<Vec<ParentRecord>, StoreError> {
        dependents::parents(self, job)
    }

    fn ancestor(
        &mut self,
        job: JobId,
        ancestor: JobId,
    ) -> Result<Option<ParentRecord>, StoreError> {
        dependents::ancestor(self, job, ancestor)
    }

    fn history(&mut self, job: JobId) -> Result<Vec<Transition>, StoreError> {
        reads::history(self, job)
    }

    fn audit(&mut self, filter: &AuditFilter) -> Result<AuditPage, StoreError> {
        reads::audit(self, filter)
    }

    fn queues(&mut self) -> Result<Vec<QueueSettings>, StoreError> {
        reads::queues(self)
    }

    fn pumps(&mut self) -> Result<Vec<PumpRecord>, StoreError> {
        upkeep::pumps(self)
    }
}
