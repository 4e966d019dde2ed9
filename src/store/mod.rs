//! The Storage Contract: what a store promises, and what fulfils it.
//!
//! A [`Store`] opens [`Session`]s. A session is one connection; it is opened, used and dropped on one
//! thread, so it needs not be `Send`. Its operations are split by topic: [`Jobs`] (the hot path),
//! [`Operations`] (what an operator causes) and [`Reads`].
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
//!
//! # Growth
//!
//! Requests are read by adapters and may gain fields. Answers have constructors, so that an adapter
//! outside of this crate can make them. The traits may gain methods with default bodies in a minor
//! version, and without in a major one.

mod bounds;
mod check;
mod clock;
mod error;
mod fence;
mod hub;
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod types;

pub use bounds::{Bounds, Rejection};
pub use check::check_rows;
pub use clock::StoreClock;
pub use error::{FaultClass, StoreError, StoreFaultClassifier, classify};
pub use fence::{LeaseView, Refusal, SettledBy, Settlement, judge};
pub use hub::{Hub, Subscription, Wake};
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
pub trait Session: Jobs + Operations + Reads {}

impl<S: Jobs + Operations + Reads> Session for S {}

/// The hot path: how jobs come in, are taken, kept and settled.
pub trait Jobs {
    /// Adds jobs: all of them or, where one is rejected, none.
    ///
    /// A job whose id exists already (also twice in one call) is left as it is and told as not new:
    /// repeating a call whose answer was lost is harmless. A job due now is claimable at once.
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

/// What an operator causes.
pub trait Operations {
    /// Asks for a job to be cancelled: a waiting one (Scheduled, AwaitingParent) is Cancelled at once,
    /// a leased one is marked, and its holder hears of it at its next renewal.
    ///
    /// # Errors
    /// Faults only.
    fn request_cancel(&mut self, job: JobId) -> Result<CancelAnswer, StoreError>;

    /// Makes a Dead-Lettered or Quarantined job Scheduled again, due now, with no failures, its
    /// attempt kept and any cancel request forgotten.
    ///
    /// # Errors
    /// Faults only.
    fn requeue(&mut self, job: JobId) -> Result<RequeueAnswer, StoreError>;
}

/// What can be read.
pub trait Reads {
    /// One job, whole.
    ///
    /// # Errors
    /// Faults only.
    fn job(&mut self, job: JobId) -> Result<Option<JobRecord>, StoreError>;

    /// How many jobs each queue has in each state; pairs without a job are left out. Ordered by queue
    /// and state code.
    ///
    /// # Errors
    /// Faults only.
    fn counts(&mut self) -> Result<Vec<QueueCount>, StoreError>;
}
