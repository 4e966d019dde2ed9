//! A store whose calls a test sees, and may answer in the store's place: see [`Intercept`].

use crate::store::{
    Announcement, AuditFilter, AuditPage, Bounds, BulkAnswer, BulkChange, CancelAnswer, Claim,
    Claimed, Declared, DueSchedules, EnqueueAnswer, Exchanged, Found, HandedBack, Held, Hub,
    JobFilter, JobRecord, JobRow, Jobs, Lapsed, LatchesWorkedOff, LeaseRef, MintRow, Minted,
    Observe, Observed, ObserverChange, ObserverRecord, Observing, Operations, OutcomeRow, Page,
    ParentRecord, ParkedDelivery, PumpRecord, Purge, Purged, QueueAnswer, QueueChange, QueueCount,
    QueueSettings, Reads, Renewal, Reported, RequeueAnswer, Resolve, Resolved, Revoked,
    ScheduleAnswer, ScheduleChange, ScheduleRecord, ScheduleRow, Scheduling, Session, Store,
    StoreError, StoreFaultClassifier, Transition, Upkeep,
};
use crate::{JobId, Timestamp, WorkerId};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A call of the Storage Contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreCall {
    /// [`Store::open_session`].
    OpenSession,
    /// [`Jobs::enqueue`].
    Enqueue,
    /// [`Jobs::claim`].
    Claim,
    /// [`Jobs::report`].
    Report,
    /// [`Jobs::exchange`].
    Exchange,
    /// [`Jobs::renew`].
    Renew,
    /// [`Jobs::find_lapsed`].
    FindLapsed,
    /// [`Jobs::held_by`].
    HeldBy,
    /// [`Jobs::hand_back`].
    HandBack,
    /// [`Jobs::now`].
    Now,
    /// [`Operations::request_cancel`].
    RequestCancel,
    /// [`Operations::requeue`].
    Requeue,
    /// [`Operations::change_matching`].
    ChangeMatching,
    /// [`Operations::change_queue`].
    ChangeQueue,
    /// [`Operations::revoke`].
    Revoke,
    /// [`Upkeep::purge`].
    Purge,
    /// [`Upkeep::work_off_latches`].
    WorkOffLatches,
    /// [`Upkeep::announce`].
    Announce,
    /// [`Upkeep::withdraw`].
    Withdraw,
    /// [`Reads::job`].
    Job,
    /// [`Reads::counts`].
    Counts,
    /// [`Reads::find`].
    Find,
    /// [`Reads::parents`].
    Parents,
    /// [`Reads::ancestor`].
    Ancestor,
    /// [`Reads::history`].
    History,
    /// [`Reads::audit`].
    Audit,
    /// [`Reads::queues`].
    Queues,
    /// [`Reads::pumps`].
    Pumps,
    /// [`Observing::observe`].
    Observe,
    /// [`Observing::resolve`].
    Resolve,
    /// [`Observing::release_cursor`].
    ReleaseCursor,
    /// [`Observing::observers`].
    Observers,
    /// [`Observing::parked`].
    Parked,
    /// [`Observing::change_observer`].
    ChangeObserver,
    /// [`Scheduling::declare`].
    Declare,
    /// [`Scheduling::change_schedule`].
    ChangeSchedule,
    /// [`Scheduling::due_schedules`].
    DueSchedules,
    /// [`Scheduling::mint`].
    Mint,
    /// [`Scheduling::schedules`].
    Schedules,
    /// The drop of a session, before the real one is dropped: an error is of no use to anybody then,
    /// a panic unwinds out of the drop.
    CloseSession,
}

impl StoreCall {
    /// Every call.
    pub const ALL: [Self; 40] = [
        Self::OpenSession,
        Self::Enqueue,
        Self::Claim,
        Self::Report,
        Self::Exchange,
        Self::Renew,
        Self::FindLapsed,
        Self::HeldBy,
        Self::HandBack,
        Self::Now,
        Self::RequestCancel,
        Self::Requeue,
        Self::ChangeMatching,
        Self::ChangeQueue,
        Self::Revoke,
        Self::Purge,
        Self::WorkOffLatches,
        Self::Announce,
        Self::Withdraw,
        Self::Job,
        Self::Counts,
        Self::Find,
        Self::Parents,
        Self::Ancestor,
        Self::History,
        Self::Audit,
        Self::Queues,
        Self::Pumps,
        Self::Observe,
        Self::Resolve,
        Self::ReleaseCursor,
        Self::Observers,
        Self::Parked,
        Self::ChangeObserver,
        Self::Declare,
        Self::ChangeSchedule,
        Self::DueSchedules,
        Self::Mint,
        Self::Schedules,
        Self::CloseSession,
    ];
}

/// A store whose calls a test sees, and may answer in the store's place. Clones are the same store.
///
/// It stands between a group or a client and a real store. Before each call runs the *gate*
/// ([`Self::on_every_call`]), which may hold the call up, fail it or panic; then, where there is one, the
/// call's own *hook*, which gets the real session and the request, and gives whatever answer it likes.
/// Both may be set and taken away at any time, also while groups run; neither runs under a lock.
///
/// An exchange without a hook of its own is made of the hooks of [`StoreCall::Report`] and
/// [`StoreCall::Claim`] as soon as one of them is set: in two commits then, not in one.
///
/// ```
/// use backwave::testing::{Intercept, StoreCall};
/// use backwave::{Client, MemoryStore, NewJob};
///
/// let store = Intercept::new(MemoryStore::new());
/// let client = Client::new(store.clone());
/// store.on_enqueue(|session, rows| {
///     assert_eq!(rows[0].wire_name, "resize");
///     session.enqueue(rows)
/// });
/// client.enqueue(NewJob::raw("resize", "{}")).unwrap();
/// assert_eq!(store.calls(StoreCall::Enqueue), 1);
/// ```
#[derive(Clone)]
pub struct Intercept(Arc<Shared>);

struct Shared {
    inner: Box<dyn Store>,
    gate: Mutex<Option<Arc<Gate>>>,
    hooks: Mutex<Hooks>,
    calls: [AtomicU64; StoreCall::ALL.len()],
}

type Gate = dyn Fn(StoreCall) -> Result<(), StoreError> + Send + Sync;

impl Shared {
    /// Counts the call and lets the gate decide. No lock is held while the gate runs.
    fn pass(&self, call: StoreCall) -> Result<(), StoreError> {
        self.calls[call as usize].fetch_add(1, Ordering::SeqCst);
        let gate = self.gate.lock().clone();
        gate.map_or(Ok(()), |gate| gate(call))
    }
}

impl Intercept {
    /// Around `inner`, without gate and hooks.
    #[must_use]
    pub fn new(inner: impl Store) -> Self {
        Self(Arc::new(Shared {
            inner: Box::new(inner),
            gate: Mutex::default(),
            hooks: Mutex::default(),
            calls: [const { AtomicU64::new(0) }; StoreCall::ALL.len()],
        }))
    }

    /// Runs before every call; an error is the call's answer, and the store is not asked.
    pub fn on_every_call(
        &self,
        gate: impl Fn(StoreCall) -> Result<(), StoreError> + Send + Sync + 'static,
    ) {
        *self.0.gate.lock() = Some(Arc::new(gate));
    }

    /// Takes the gate and every hook away: the store is honest again.
    pub fn clear(&self) {
        let (gate, hooks) = (&self.0.gate, &self.0.hooks);
        // What is taken away is dropped outside of the locks.
        let _removed = (gate.lock().take(), std::mem::take(&mut *hooks.lock()));
    }

    /// How often the call was made, refused ones included.
    #[must_use]
    pub fn calls(&self, call: StoreCall) -> u64 {
        self.0.calls[call as usize].load(Ordering::SeqCst)
    }
}

impl fmt::Debug for Intercept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intercept").finish_non_exhaustive()
    }
}

impl Store for Intercept {
    fn open_session(&self) -> Result<Box<dyn Session>, StoreError> {
        self.0.pass(StoreCall::OpenSession)?;
        let session = self.0.inner.open_session()?;
        Ok(Box::new(Intercepted { shared: Arc::clone(&self.0), session }))
    }

    fn hub(&self) -> &Hub {
        self.0.inner.hub()
    }

    fn bounds(&self) -> &Bounds {
        self.0.inner.bounds()
    }

    fn call_timeout(&self) -> Option<Duration> {
        self.0.inner.call_timeout()
    }

    fn fault_classifier(&self) -> Option<&dyn StoreFaultClassifier> {
        self.0.inner.fault_classifier()
    }
}

/// A session of it.
struct Intercepted {
    shared: Arc<Shared>,
    session: Box<dyn Session>,
}

impl Drop for Intercepted {
    fn drop(&mut self) {
        let _ = self.shared.pass(StoreCall::CloseSession);
    }
}

impl Intercepted {
    /// An exchange without a hook of its own, made of the hooks of its parts if there are any.
    fn exchange_in_parts(
        &mut self,
        rows: &[OutcomeRow],
        claim: &Claim<'_>,
    ) -> Result<Exchanged, StoreError> {
        let (on_report, on_claim) = {
            let hooks = self.shared.hooks.lock();
            (hooks.report.clone(), hooks.claim.clone())
        };
        let session = self.session.as_mut();
        if on_report.is_none() && on_claim.is_none() {
            return session.exchange(rows, claim);
        }
        let reported = match on_report {
            Some(hook) => hook(session, rows)?,
            None => session.report(rows)?,
        };
        let claimed = match on_claim {
            Some(hook) => hook(session, claim)?,
            None => session.claim(claim)?,
        };
        Ok(Exchanged::new(reported, claimed))
    }
}

macro_rules! honest {
    ($this:ident, $method:ident($($given:ident),*)) => {
        $this.session.$method($($given),*)
    };
    ($this:ident, $method:ident($($given:ident),*), $otherwise:ident) => {
        $this.$otherwise($($given),*)
    };
}

macro_rules! hooks {
    ($($topic:ident {
        $($setter:ident, $method:ident, $call:ident($($given:ident: $type:ty),*) -> $answer:ty $(, or $otherwise:ident)?;)+
    })+) => {
        #[derive(Default)]
        struct Hooks {
            $($($method: Option<
                Arc<dyn Fn(&mut dyn Session, $($type),*) -> Result<$answer, StoreError> + Send + Sync>,
            >,)+)+
        }

        impl Intercept {
            $($(
                #[doc = concat!("Answers [`StoreCall::", stringify!($call), "`] in the store's place.")]
                pub fn $setter(
                    &self,
                    hook: impl Fn(&mut dyn Session, $($type),*) -> Result<$answer, StoreError>
                        + Send + Sync + 'static,
                ) {
                    let replaced = self.0.hooks.lock().$method.replace(Arc::new(hook));
                    drop(replaced);
                }
            )+)+
        }

        $(impl $topic for Intercepted {
            $(fn $method(&mut self, $($given: $type),*) -> Result<$answer, StoreError> {
                self.shared.pass(StoreCall::$call)?;
                let hook = self.shared.hooks.lock().$method.clone();
                match hook {
                    Some(hook) => hook(self.session.as_mut(), $($given),*),
                    None => honest!(self, $method($($given),*) $(, $otherwise)?),
                }
            })+
        })+
    };
}

hooks! {
    Jobs {
        on_enqueue, enqueue, Enqueue(rows: &[JobRow]) -> EnqueueAnswer;
        on_claim, claim, Claim(claim: &Claim<'_>) -> Claimed;
        on_report, report, Report(rows: &[OutcomeRow]) -> Reported;
        on_exchange, exchange, Exchange(rows: &[OutcomeRow], claim: &Claim<'_>) -> Exchanged, or exchange_in_parts;
        on_renew, renew, Renew(worker: WorkerId, rows: &[LeaseRef], lease: Duration) -> Renewal;
        on_find_lapsed, find_lapsed, FindLapsed(queues: &[String], max: u32) -> Lapsed;
        on_held_by, held_by, HeldBy(worker: WorkerId) -> Held;
        on_hand_back, hand_back, HandBack(worker: WorkerId, rows: &[LeaseRef]) -> HandedBack;
        on_now, now, Now() -> Timestamp;
    }
    Operations {
        on_request_cancel, request_cancel, RequestCancel(actor: &str, job: JobId) -> CancelAnswer;
        on_requeue, requeue, Requeue(actor: &str, job: JobId) -> RequeueAnswer;
        on_change_matching, change_matching, ChangeMatching(
            actor: &str, change: BulkChange, filter: &JobFilter, after: Option<JobId>, max: u32
        ) -> BulkAnswer;
        on_change_queue, change_queue, ChangeQueue(actor: &str, queue: &str, change: QueueChange) -> QueueAnswer;
        on_revoke, revoke, Revoke(actor: &str, worker: WorkerId, max: u32) -> Revoked;
    }
    Upkeep {
        on_purge, purge, Purge(purge: &Purge) -> Purged;
        on_work_off_latches, work_off_latches, WorkOffLatches(max: u32) -> LatchesWorkedOff;
        on_announce, announce, Announce(announcement: &Announcement) -> Timestamp;
        on_withdraw, withdraw, Withdraw(worker: WorkerId) -> ();
    }
    Reads {
        on_job, job, Job(job: JobId) -> Option<JobRecord>;
        on_find, find, Find(filter: &JobFilter, page: &Page) -> Found;
        on_counts, counts, Counts() -> Vec<QueueCount>;
        on_parents, parents, Parents(job: JobId) -> Vec<ParentRecord>;
        on_ancestor, ancestor, Ancestor(job: JobId, ancestor: JobId) -> Option<ParentRecord>;
        on_history, history, History(job: JobId) -> Vec<Transition>;
        on_audit, audit, Audit(filter: &AuditFilter) -> AuditPage;
        on_queues, queues, Queues() -> Vec<QueueSettings>;
        on_pumps, pumps, Pumps() -> Vec<PumpRecord>;
    }
    Observing {
        on_observe, observe, Observe(ask: &Observe<'_>) -> Observed;
        on_resolve, resolve, Resolve(resolve: &Resolve<'_>) -> Resolved;
        on_release_cursor, release_cursor, ReleaseCursor(observer: &str, worker: WorkerId, epoch: u64) -> Timestamp;
        on_observers, observers, Observers() -> Vec<ObserverRecord>;
        on_parked, parked, Parked(observer: &str, after: Option<u64>, max: u32) -> Vec<ParkedDelivery>;
        on_change_observer, change_observer, ChangeObserver(
            actor: &str, observer: &str, change: ObserverChange
        ) -> u64;
    }
    Scheduling {
        on_declare, declare, Declare(owner: &str, rows: &[ScheduleRow], is_whole: bool) -> Declared;
        on_change_schedule, change_schedule, ChangeSchedule(
            actor: &str, name: &str, change: &ScheduleChange
        ) -> ScheduleAnswer;
        on_due_schedules, due_schedules, DueSchedules(max: u32) -> DueSchedules;
        on_mint, mint, Mint(rows: &[MintRow]) -> Minted;
        on_schedules, schedules, Schedules() -> Vec<ScheduleRecord>;
    }
}
