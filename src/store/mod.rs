//! The Storage Contract: what a store promises, and what fulfils it.
//!
//! A [`Store`] opens [`Session`]s. A session is one connection; it is opened, used and dropped on one
//! thread, so it needs not be `Send`. Its operations are split by topic: [`Jobs`] (the hot path),
//! [`Operations`] (what an operator causes), [`Upkeep`] (what maintenance does and groups announce),
//! [`Reads`], [`Observing`] (cursors over the log of transitions) and [`Scheduling`] (recurring schedules).
//!
//! # Rules for every operation
//!
//! 1. It is atomic: it happens whole or not at all.
//! 2. Time is the store's, read at the moment of execution under the operation's own locks, and told
//!    with each answer. No request carries a `now`; delays travel as durations.
//! 3. What a caller can cause (a duplicate, a lease that is gone, an illegal state) is a typed result.
//!    [`StoreError`] is for faults, a violated invariant among them.
//! 4. Nothing of the host's (a logger, a recorder, a `Drop` or `Display` of a user's value) runs under
//!    a store's lock or inside its transaction.
//! 5. A stored number that is no member of its enum, and a stored retry policy that does not read, is
//!    [`UndefinedEnumValueStored`](crate::invariant::InvariantTrigger::UndefinedEnumValueStored), never a guess.
//! 6. A check halts only on facts held under a lock of its own transaction or confirmed by a second,
//!    later read.
//! 7. After its commit a session wakes, through the store's [`Hub`], the queues in which its write has
//!    made jobs claimable that are not part of its answer: dependents released, a queue resumed or its
//!    limit raised, leases revoked. (What a call enqueues or requeues itself, its caller wakes.)
//!
//! # Dependents
//!
//! A job enqueued with parents that live is AwaitingParent. Each parent's end opens its gate or, under
//! [`ParentRule::OnSuccess`] where it did not succeed, cancels the dependent, whose own end goes on to its
//! dependents: all in the transaction of the write that ended the parent, whoever made it (a report of a
//! holder or a reaper, an operator's cancel, a hand-back under a cancel request). With its last gate open the
//! dependent is Scheduled, due at its own due time, at that instant at the earliest. Where more than 1,000
//! dependents hang on one write, what is over stays for [`Upkeep::work_off_latches`], which finds it by a
//! durable note of the parent's. Parents that have ended before the enqueue count at once, so a job may be
//! born Scheduled, or Cancelled. A job that ends takes its own gates with it.
//!
//! # Growth
//!
//! Requests are read by adapters and may gain fields. Answers have constructors, so that an adapter
//! outside of this crate can make them. The traits may gain methods with default bodies in a minor
//! version, and without in a major one.

mod bounds;
mod check;
mod clock;
mod cursor;
mod error;
mod fence;
mod forward;
mod hub;
pub mod memory;
mod observing;
#[cfg(feature = "postgres")]
pub mod postgres;
mod scheduling;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod types;

pub use crate::kernel::latch::{Gate, ParentRule};
pub use bounds::{ACTOR_BYTES_MAX, Bounds, GATES_MAX, PUMP_KEPT, Rejection, UPKEEP_MAX};
pub use check::check_rows;
pub use clock::StoreClock;
pub use error::{FaultClass, StoreError, StoreFaultClassifier, classify};
pub use fence::{LeaseView, Refusal, SettledBy, Settlement, judge};
pub(crate) use hub::Watch;
pub use hub::{Hub, Subscription, Wake};
pub use observing::Observing;
pub use scheduling::Scheduling;
pub use types::*;

use crate::{JobId, Timestamp, WorkerId};
use std::sync::Arc;
use std::time::Duration;

/// A place that keeps jobs. Cheap to share: groups and clients hold it behind an `Arc`.
pub trait Store: Send + Sync + 'static {
    /// Opens one connection. May block; called on threads of this crate only.
    ///
    /// # Errors
    /// Whatever keeps the connection from being made. The caller classifies it.
    fn open_session(&self) -> Result<Box<dyn Session>, StoreError>;

    /// Where clients and groups on the same data find each other in this process.
    fn hub(&self) -> &Hub;

    /// The limits this store enforces.
    fn bounds(&self) -> &Bounds;

    /// How long one call may take before it fails as a timeout, where the store bounds it. A group whose
    /// lease two such calls could outlast is refused.
    fn call_timeout(&self) -> Option<Duration> {
        None
    }

    /// The adapter's own knowledge of transient faults, if it has any beyond the flag that
    /// [`StoreError`] carries.
    fn fault_classifier(&self) -> Option<&dyn StoreFaultClassifier> {
        None
    }
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn open_session(&self) -> Result<Box<dyn Session>, StoreError> {
        (**self).open_session()
    }

    fn hub(&self) -> &Hub {
        (**self).hub()
    }

    fn bounds(&self) -> &Bounds {
        (**self).bounds()
    }

    fn call_timeout(&self) -> Option<Duration> {
        (**self).call_timeout()
    }

    fn fault_classifier(&self) -> Option<&dyn StoreFaultClassifier> {
        (**self).fault_classifier()
    }
}

/// One connection to a store.
pub trait Session: Jobs + Operations + Upkeep + Reads + Observing + Scheduling {}

impl<S: Jobs + Operations + Upkeep + Reads + Observing + Scheduling> Session for S {}

/// The hot path: how jobs come in, are taken, kept and settled.
pub trait Jobs {
    /// Adds jobs: all of them or, where one is rejected, none.
    ///
    /// A job whose id exists already (also twice in one call) is left as it is and told as a duplicate:
    /// repeating a call whose answer was lost is harmless. A job whose unique key another job holds, one that
    /// lives or comes before it in this call, is not stored and told as [held](Admission::Held), its parents
    /// not looked at; the rest of the call goes on. The id is looked at before the key. An id that was held and
    /// comes again in the same call is told the same. A job that is born Cancelled takes no key. A job due now is claimable at once. A parent
    /// that is neither in the store nor earlier in this call is [`Rejection::UnknownParent`]; a job that
    /// exists already keeps the parents it has.
    /// Every adapter calls [`check_rows`] first, so that all refuse alike.
    ///
    /// # Errors
    /// Faults only; a rejection is an answer.
    fn enqueue(&mut self, rows: &[JobRow]) -> Result<EnqueueAnswer, StoreError>;

    /// Takes due jobs for one worker: at most `total` in all, each to one caller only.
    ///
    /// From each queue of the plan in turn, jobs in order of (due, id), no more than its quota; with
    /// `spill`, a second pass fills up to `total` in the same order. Only wire names (and payload
    /// versions) that are accepted. Taking a job sets its owner, its expiry (store time + lease) and
    /// raises its attempt by one. The payloads taken stay within `bytes_max`, but one job is always
    /// allowed.
    ///
    /// A paused queue gives nothing, and a queue with a limit never more than the limit less its jobs in
    /// state Leased, dead leases included: counted in the claim's own transaction, across the fleet. So it is
    /// with the jobs of one concurrency key in a queue, whose limit is one unless the queue is set otherwise;
    /// they are passed over, and hold back no job behind them. The order stays as far as keys allow.
    ///
    /// # Errors
    /// Faults only; nothing due is an empty answer.
    fn claim(&mut self, claim: &Claim<'_>) -> Result<Claimed, StoreError>;

    /// Records how attempts ended, in one transaction, each behind the fence ([`Mode`]).
    ///
    /// The answer has one entry per row, in order. A row whose predicate does not hold is
    /// `AlreadyApplied` when the job carries this very receipt, and `Stale` otherwise; other rows of
    /// the batch are not affected by it.
    ///
    /// An outcome that would lead to Scheduled or Dead-Lettered while a cancel request stands is
    /// written Cancelled, whoever reports it.
    ///
    /// # Errors
    /// Faults only. After an error the rows are in doubt: they may or may not have been applied.
    fn report(&mut self, rows: &[OutcomeRow]) -> Result<Reported, StoreError>;

    /// [`Self::report`] and then [`Self::claim`], in one round trip and one commit where the adapter
    /// can: both happen or neither.
    ///
    /// # Errors
    /// Faults only. After an error both halves are in doubt.
    fn exchange(&mut self, rows: &[OutcomeRow], claim: &Claim<'_>)
    -> Result<Exchanged, StoreError>;

    /// Prolongs leases to store time + `lease`, where the fence of [`Mode::Holder`] holds. One entry
    /// per row, in order.
    ///
    /// # Errors
    /// Faults only; a lease that is gone is an answer.
    fn renew(
        &mut self,
        worker: WorkerId,
        rows: &[LeaseRef],
        lease: Duration,
    ) -> Result<Renewal, StoreError>;

    /// Jobs of the given queues whose lease is dead (`expiry <= now`), at most `max`, the longest
    /// dead first. A read: nothing changes.
    ///
    /// # Errors
    /// Faults only.
    fn find_lapsed(&mut self, queues: &[String], max: u32) -> Result<Lapsed, StoreError>;

    /// Every job leased to `worker`, dead leases included. A read.
    ///
    /// # Errors
    /// Faults only.
    fn held_by(&mut self, worker: WorkerId) -> Result<Held, StoreError>;

    /// Gives leases back: the job is Scheduled, due now unless its due time has passed already, its
    /// attempt and failures unchanged. Needs a live lease (the fence of [`Mode::Holder`]); a row
    /// without one is left alone. A job with a standing cancel request becomes Cancelled instead.
    /// The answer tells per row whether it was given back.
    ///
    /// # Errors
    /// Faults only.
    fn hand_back(&mut self, worker: WorkerId, rows: &[LeaseRef]) -> Result<HandedBack, StoreError>;

    /// The store's time.
    ///
    /// # Errors
    /// Faults only.
    fn now(&mut self) -> Result<Timestamp, StoreError>;
}

/// What an operator causes, in the name of an `actor` (at most 128 bytes; what is longer is cut). Each
/// action that has an effect leaves an [`AuditRecord`] in the same transaction; one that has none leaves none.
pub trait Operations {
    /// Asks for a job to be cancelled: a waiting one (Scheduled, AwaitingParent) is Cancelled at once,
    /// a leased one is marked, and its holder hears of it at its next renewal.
    ///
    /// # Errors
    /// Faults only.
    fn request_cancel(&mut self, actor: &str, job: JobId) -> Result<CancelAnswer, StoreError>;

    /// Makes a Dead-Lettered or Quarantined job Scheduled again, due now, with no failures, its
    /// attempt kept and any cancel request forgotten. Dependents that were Cancelled stay so. A job whose
    /// unique key another job holds is not requeued.
    ///
    /// # Errors
    /// Faults only.
    fn requeue(&mut self, actor: &str, job: JobId) -> Result<RequeueAnswer, StoreError>;

    /// Changes, of the jobs that `filter` matches beyond `after` in ascending order of id, the first
    /// `max` (from 1 to [`PAGE_MAX`]) that [can be changed so](BulkChange::from_states). A job on which a
    /// cancel request stands already is passed over; so is one to requeue whose unique key another job holds, or
    /// one before it in the same page.
    ///
    /// # Errors
    /// Faults only.
    fn change_matching(
        &mut self,
        actor: &str,
        change: BulkChange,
        filter: &JobFilter,
        after: Option<JobId>,
        max: u32,
    ) -> Result<BulkAnswer, StoreError>;

    /// Pauses or resumes a queue or sets its limits. Every claim that begins after this call has returned
    /// heeds it, in the whole fleet; a claim that runs meanwhile comes wholly before or wholly after it.
    ///
    /// # Errors
    /// Faults only.
    fn change_queue(
        &mut self,
        actor: &str,
        queue: &str,
        change: QueueChange,
    ) -> Result<QueueAnswer, StoreError>;

    /// Takes leases away from a worker that is stuck, live ones and dead ones, at most `max` (from 1 to
    /// [`PAGE_MAX`]) by ascending id: each job is Scheduled, due now unless its due time has passed
    /// already, its attempt and failures unchanged, or Cancelled where a cancel request stands. What its
    /// holder reports later is stale ([`StaleReason::Revoked`]).
    ///
    /// # Errors
    /// Faults only.
    fn revoke(&mut self, actor: &str, worker: WorkerId, max: u32) -> Result<Revoked, StoreError>;
}

/// What maintenance does, and what groups announce.
pub trait Upkeep {
    /// Takes away ended jobs that have been kept long enough, with their history, tags, output and edges;
    /// audit records likewise; and of the transitions of a job that lives those beyond the newest so many. A
    /// job that another names as its parent stays as long as that one is kept. Looks at `max` (from 1 to
    /// 5,000) ended jobs at most, steps over rows that somebody has locked, and never makes a claim wait.
    ///
    /// # Errors
    /// Faults only.
    fn purge(&mut self, purge: &Purge) -> Result<Purged, StoreError>;

    /// Resolves up to `max` (from 1 to 5,000) gates that their parent's end has left for later.
    ///
    /// # Errors
    /// Faults only.
    fn work_off_latches(&mut self, max: u32) -> Result<LatchesWorkedOff, StoreError>;

    /// Notes that a pump is there, or that it has halted. Once a halt is noted, a later announcement of the
    /// same pump does not take it away.
    ///
    /// # Errors
    /// Faults only.
    fn announce(&mut self, announcement: &Announcement) -> Result<Timestamp, StoreError>;

    /// Takes a pump's note away: it has stopped cleanly. A note of a halt stays.
    ///
    /// # Errors
    /// Faults only.
    fn withdraw(&mut self, worker: WorkerId) -> Result<(), StoreError>;
}

/// What can be read.
pub trait Reads {
    /// One job, whole.
    ///
    /// # Errors
    /// Faults only.
    fn job(&mut self, job: JobId) -> Result<Option<JobRecord>, StoreError>;

    /// A page of the jobs that a filter matches, in order of their ids.
    ///
    /// # Errors
    /// Faults only.
    fn find(&mut self, filter: &JobFilter, page: &Page) -> Result<Found, StoreError>;

    /// How many jobs each queue has in each state; pairs without a job are left out. Ordered by queue
    /// and state code. Its price does not grow with the number of jobs that have ended.
    ///
    /// # Errors
    /// Faults only.
    fn counts(&mut self) -> Result<Vec<QueueCount>, StoreError>;

    /// The parents of a job, in the order in which it was enqueued with them.
    ///
    /// # Errors
    /// Faults only.
    fn parents(&mut self, job: JobId) -> Result<Vec<ParentRecord>, StoreError>;

    /// `ancestor`, where it is a parent of `job`, or a parent of one of its ancestors.
    ///
    /// # Errors
    /// Faults only.
    fn ancestor(&mut self, job: JobId, ancestor: JobId)
    -> Result<Option<ParentRecord>, StoreError>;

    /// The transitions of a job that are kept, oldest first.
    ///
    /// # Errors
    /// Faults only.
    fn history(&mut self, job: JobId) -> Result<Vec<Transition>, StoreError>;

    /// What operators did, newest first.
    ///
    /// # Errors
    /// Faults only.
    fn audit(&mut self, filter: &AuditFilter) -> Result<AuditPage, StoreError>;

    /// The queues that an operator has set in any way, ordered by name.
    ///
    /// # Errors
    /// Faults only.
    fn queues(&mut self) -> Result<Vec<QueueSettings>, StoreError>;

    /// Every pump that is announced, ordered by group and worker.
    ///
    /// # Errors
    /// Faults only.
    fn pumps(&mut self) -> Result<Vec<PumpRecord>, StoreError>;
}
