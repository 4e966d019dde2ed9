//! A simulated process's way to its store: calls take virtual time, and go wrong as they are told to.

use super::StoreCall;
use super::world::{Host, ProcessId, World, is_actor, pass};
use crate::store::{
    Bounds, CancelAnswer, Claim, Claimed, Declared, DueSchedules, EnqueueAnswer, Exchanged,
    HandedBack, Held, Hub, JobRow, Jobs, Lapsed, LeaseRef, MintRow, Minted, Operations, OutcomeRow,
    QueueAnswer, QueueChange, Renewal, Reported, RequeueAnswer, Revoked, ScheduleAnswer,
    ScheduleChange, ScheduleRecord, ScheduleRow, Scheduling, Session, Store, StoreError,
};
use crate::{JobId, Timestamp, WorkerId};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What goes wrong with one call.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CallFault {
    /// Refused; the session stands.
    Refused,
    /// The session breaks before the store hears of it.
    LostBefore,
    /// Carried out, and the answer is lost with the session.
    LostAfter,
    /// The answer is lost with the session, and the store carries it out so much later.
    Late { ms: u32 },
    /// It takes so much longer.
    Slow { ms: u32 },
    /// The process dies before the store hears of it.
    CrashBefore,
    /// The process dies with the answer on its way.
    CrashAfter,
}

/// How one call goes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Manner {
    /// Microseconds until the store carries it out, and from there to the answer.
    pub(crate) before: i64,
    pub(crate) after: i64,
    pub(crate) fault: Option<CallFault>,
}

/// Who calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) node: usize,
    pub(crate) process: ProcessId,
    /// When the call was sent, by the world's time.
    pub(crate) sent_at: i64,
    /// The caller had given it up when it was carried out.
    pub(crate) is_late: bool,
}

/// Decides how calls go.
pub(crate) trait Rules: Send + Sync {
    /// The `nth` call of its kind by that node, counted from 0.
    fn manner(&self, node: usize, call: StoreCall, nth: u64) -> Manner;

    /// Whether nothing gets through between that node and the store.
    fn is_cut_off(&self, _node: usize) -> bool {
        false
    }
}

/// Something that the store has just carried out.
pub(crate) enum Deed<'a> {
    Enqueue(&'a [JobRow], &'a EnqueueAnswer),
    Claim(&'a Claim<'a>, &'a Claimed),
    Report(&'a [OutcomeRow], &'a Reported),
    Exchange(&'a [OutcomeRow], &'a Claim<'a>, &'a Exchanged),
    Renew(WorkerId, &'a [LeaseRef], Duration, &'a Renewal),
    Lapsed(&'a Lapsed),
    Held(WorkerId, &'a Held),
    HandBack(WorkerId, &'a [LeaseRef], &'a HandedBack),
    Cancel(JobId, CancelAnswer),
    Requeue(JobId, RequeueAnswer),
    Queue(&'a str, QueueChange),
    Revoke(WorkerId, &'a Revoked),
    /// A schedule was declared, by its name.
    Declare(&'a str),
    Schedule(&'a str, &'a ScheduleChange, &'a ScheduleAnswer),
    Mint(&'a [MintRow], &'a Minted),
}

/// Sees every deed in the instant in which it is done.
pub(crate) trait Watch: Send + Sync {
    fn saw(&self, caller: Caller, deed: &Deed<'_>);
}

/// One process's store.
#[derive(Clone)]
pub(crate) struct Link(Arc<LinkParts>);

pub(crate) struct LinkParts {
    pub(crate) world: World,
    pub(crate) node: usize,
    pub(crate) process: ProcessId,
    pub(crate) host: Arc<Host>,
    pub(crate) inner: Arc<dyn Store>,
    /// The process's own: hints do not go between processes by themselves.
    pub(crate) hub: Hub,
    pub(crate) rules: Arc<dyn Rules>,
    pub(crate) watch: Arc<dyn Watch>,
    /// How often each node has made each call, through all of its processes.
    pub(crate) counts: Arc<Mutex<BTreeMap<(usize, u8), u64>>>,
    pub(crate) call_timeout: Duration,
}

impl Link {
    pub(crate) fn new(parts: LinkParts) -> Self {
        Self(Arc::new(parts))
    }

    fn manner(&self, call: StoreCall) -> Manner {
        let nth = {
            let mut counts = self.0.counts.lock();
            let count = counts.entry((self.0.node, call as u8)).or_default();
            *count += 1;
            *count - 1
        };
        self.0.rules.manner(self.0.node, call, nth)
    }

    fn is_cut_off(&self) -> bool {
        self.0.rules.is_cut_off(self.0.node)
    }

    fn time_out(&self) -> StoreError {
        pass(self.0.call_timeout.as_micros() as i64);
        StoreError::timeout(Injected).with_session_lost()
    }

    fn die(&self) -> ! {
        self.0.host.crash();
        self.0.world.die(self.0.process)
    }

    /// Has the network carry something out by itself.
    fn later(&self, ms: u32, deed: Late) {
        let (store, world) = (Arc::clone(&self.0.inner), self.0.world.clone());
        let teller = self.teller(true);
        let run = move || {
            pass(i64::from(ms) * 1000);
            if let Ok(mut session) = store.open_session() {
                let _ = deed(session.as_mut(), &teller);
            }
        };
        let (stage, _host) = world.stage(NETWORK, super::world::HostClock::default());
        let _ = stage.spawn("network".to_owned(), run);
    }

    fn teller(&self, is_late: bool) -> Teller {
        let (node, process) = (self.0.node, self.0.process);
        let caller = Caller { node, process, sent_at: self.0.world.elapsed(), is_late };
        Teller { watch: Arc::clone(&self.0.watch), caller }
    }
}

/// Tells of the deeds of one call.
struct Teller {
    watch: Arc<dyn Watch>,
    caller: Caller,
}

impl Teller {
    fn saw(&self, deed: &Deed<'_>) {
        self.watch.saw(self.caller, deed);
    }
}

type Late = Box<dyn FnOnce(&mut dyn Session, &Teller) -> Result<(), StoreError> + Send>;

/// What a call that breaks fails with.
#[derive(Debug, thiserror::Error)]
#[error("a simulated fault")]
struct Injected;

fn lost() -> StoreError {
    StoreError::transient(Injected).with_session_lost()
}

impl Store for Link {
    fn open_session(&self) -> Result<Box<dyn Session>, StoreError> {
        let open = || -> Result<Box<dyn Session>, StoreError> {
            Ok(Box::new(Linked { link: self.clone(), inner: self.0.inner.open_session()? }))
        };
        if !is_actor() {
            return open();
        }
        if self.0.host.is_crashed() {
            self.die();
        }
        let manner = self.manner(StoreCall::OpenSession);
        if self.is_cut_off() {
            return Err(self.time_out());
        }
        pass(manner.before);
        match manner.fault {
            Some(CallFault::CrashBefore | CallFault::CrashAfter) => self.die(),
            None | Some(CallFault::Slow { .. }) => open(),
            Some(_) => Err(lost()),
        }
    }

    fn hub(&self) -> &Hub {
        &self.0.hub
    }

    fn bounds(&self) -> &Bounds {
        self.0.inner.bounds()
    }

    fn call_timeout(&self) -> Option<Duration> {
        Some(self.0.call_timeout)
    }
}

struct Linked {
    link: Link,
    inner: Box<dyn Session>,
}

impl Linked {
    fn act<R>(
        &mut self,
        call: StoreCall,
        carry_out: impl FnOnce(&mut dyn Session, &Teller) -> Result<R, StoreError>,
        late: impl FnOnce() -> Option<Late>,
    ) -> Result<R, StoreError> {
        let link = self.link.clone();
        let teller = link.teller(false);
        if !is_actor() {
            return carry_out(self.inner.as_mut(), &teller);
        }
        if link.0.host.is_crashed() {
            link.die();
        }
        let manner = link.manner(call);
        if link.is_cut_off() {
            return Err(link.time_out());
        }
        pass(manner.before);
        match manner.fault {
            None => {}
            Some(CallFault::Refused) => return Err(StoreError::transient(Injected)),
            Some(CallFault::LostBefore) => return Err(lost()),
            Some(CallFault::LostAfter) => {
                carry_out(self.inner.as_mut(), &teller)?;
                return Err(lost());
            }
            Some(CallFault::Late { ms }) => {
                if let Some(late) = late() {
                    link.later(ms, late);
                }
                return Err(lost());
            }
            Some(CallFault::Slow { ms }) => pass(i64::from(ms) * 1000),
            Some(CallFault::CrashBefore) => link.die(),
            Some(CallFault::CrashAfter) => {
                let _ = carry_out(self.inner.as_mut(), &teller);
                link.die();
            }
        }
        let answer = carry_out(self.inner.as_mut(), &teller);
        pass(manner.after);
        if link.is_cut_off() {
            return Err(link.time_out());
        }
        answer
    }

    fn simply<R>(
        &mut self,
        call: StoreCall,
        carry_out: impl FnOnce(&mut dyn Session) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        self.act(call, |session, _| carry_out(session), || None)
    }

    fn read<R>(
        &mut self,
        carry_out: impl FnOnce(&mut dyn Session) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        self.simply(StoreCall::Job, carry_out)
    }

    fn upkeep<R>(
        &mut self,
        carry_out: impl FnOnce(&mut dyn Session) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        self.simply(StoreCall::Purge, carry_out)
    }
}

crate::forward_session!(Linked, through read; Reads Observing);
crate::forward_session!(Linked, through upkeep; Upkeep);

impl Jobs for Linked {
    fn enqueue(&mut self, rows: &[JobRow]) -> Result<EnqueueAnswer, StoreError> {
        let carry_out = |session: &mut dyn Session, teller: &Teller| {
            let answer = session.enqueue(rows)?;
            teller.saw(&Deed::Enqueue(rows, &answer));
            Ok(answer)
        };
        self.act(StoreCall::Enqueue, carry_out, || None)
    }

    fn claim(&mut self, claim: &Claim<'_>) -> Result<Claimed, StoreError> {
        let late = || -> Option<Late> {
            let owned = Owned::of(claim);
            Some(Box::new(move |session, teller| {
                let answer = session.claim(&owned.claim())?;
                teller.saw(&Deed::Claim(&owned.claim(), &answer));
                Ok(())
            }))
        };
        let carry_out = |session: &mut dyn Session, teller: &Teller| {
            let answer = session.claim(claim)?;
            teller.saw(&Deed::Claim(claim, &answer));
            Ok(answer)
        };
        self.act(StoreCall::Claim, carry_out, late)
    }

    fn report(&mut self, rows: &[OutcomeRow]) -> Result<Reported, StoreError> {
        let late = || -> Option<Late> {
            let rows = rows.to_vec();
            Some(Box::new(move |session, teller| {
                let answer = session.report(&rows)?;
                teller.saw(&Deed::Report(&rows, &answer));
                Ok(())
            }))
        };
        let carry_out = |session: &mut dyn Session, teller: &Teller| {
            let answer = session.report(rows)?;
            teller.saw(&Deed::Report(rows, &answer));
            Ok(answer)
        };
        self.act(StoreCall::Report, carry_out, late)
    }

    fn exchange(
        &mut self,
        rows: &[OutcomeRow],
        claim: &Claim<'_>,
    ) -> Result<Exchanged, StoreError> {
        let late = || -> Option<Late> {
            let (rows, owned) = (rows.to_vec(), Owned::of(claim));
            Some(Box::new(move |session, teller| {
                let answer = session.exchange(&rows, &owned.claim())?;
                teller.saw(&Deed::Exchange(&rows, &owned.claim(), &answer));
                Ok(())
            }))
        };
        let carry_out = |session: &mut dyn Session, teller: &Teller| {
            let answer = session.exchange(rows, claim)?;
            teller.saw(&Deed::Exchange(rows, claim, &answer));
            Ok(answer)
        };
        self.act(StoreCall::Exchange, carry_out, late)
    }

    fn renew(
        &mut self,
        worker: WorkerId,
        rows: &[LeaseRef],
        lease: Duration,
    ) -> Result<Renewal, StoreError> {
        let carry_out = |session: &mut dyn Session, teller: &Teller| {
            let answer = session.renew(worker, rows, lease)?;
            teller.saw(&Deed::Renew(worker, rows, lease, &answer));
            Ok(answer)
        };
        self.act(StoreCall::Renew, carry_out, || None)
    }

    fn find_lapsed(&mut self, queues: &[String], max: u32) -> Result<Lapsed, StoreError> {
        let carry_out = |session: &mut dyn Session, teller: &Teller| {
            let answer = session.find_lapsed(queues, max)?;
            teller.saw(&Deed::Lapsed(&answer));
            Ok(answer)
        };
        self.act(StoreCall::FindLapsed, carry_out, || None)
    }

    fn held_by(&mut self, worker: WorkerId) -> Result<Held, StoreError> {
        let carry_out = |session: &mut dyn Session, teller: &Teller| {
            let answer = session.held_by(worker)?;
            teller.saw(&Deed::Held(worker, &answer));
            Ok(answer)
        };
        self.act(StoreCall::HeldBy, carry_out, || None)
    }

    fn hand_back(&mut self, worker: WorkerId, rows: &[LeaseRef]) -> Result<HandedBack, StoreError> {
        let carry_out = |session: &mut dyn Session, teller: &Teller| {
            let answer = session.hand_back(worker, rows)?;
            teller.saw(&Deed::HandBack(worker, rows, &answer));
            Ok(answer)
        };
        self.act(StoreCall::HandBack, carry_out, || None)
    }

    fn now(&mut self) -> Result<Timestamp, StoreError> {
        self.simply(StoreCall::Now, |session| session.now())
    }
}

impl Operations for Linked {
    fn request_cancel(&mut self, actor: &str, job: JobId) -> Result<CancelAnswer, StoreError> {
        let carry_out = |session: &mut dyn Session, teller: &Teller| {
            let answer = session.request_cancel(actor, job)?;
            teller.saw(&Deed::Cancel(job, answer));
            Ok(answer)
        };
        self.act(StoreCall::RequestCancel, carry_out, || None)
    }

    fn requeue(&mut self, actor: &str, job: JobId) -> Result<RequeueAnswer, StoreError> {
        let carry_out = |session: &mut dyn Session, teller: &Teller| {
            let answer = session.requeue(actor, job)?;
            teller.saw(&Deed::Requeue(job, answer));
            Ok(answer)
        };
        self.act(StoreCall::Requeue, carry_out, || None)
    }

    fn change_matching(
        &mut self,
        actor: &str,
        change: crate::store::BulkChange,
        filter: &crate::store::JobFilter,
        after: Option<JobId>,
        max: u32,
    ) -> Result<crate::store::BulkAnswer, StoreError> {
        let carry_out =
            |session: &mut dyn Session| session.change_matching(actor, change, filter, after, max);
        self.simply(StoreCall::ChangeMatching, carry_out)
    }

    fn change_queue(
        &mut self,
        actor: &str,
        queue: &str,
        change: QueueChange,
    ) -> Result<QueueAnswer, StoreError> {
        let carry_out = |session: &mut dyn Session, teller: &Teller| {
            let answer = session.change_queue(actor, queue, change)?;
            teller.saw(&Deed::Queue(queue, change));
            Ok(answer)
        };
        self.act(StoreCall::ChangeQueue, carry_out, || None)
    }

    fn revoke(&mut self, actor: &str, worker: WorkerId, max: u32) -> Result<Revoked, StoreError> {
        let carry_out = |session: &mut dyn Session, teller: &Teller| {
            let answer = session.revoke(actor, worker, max)?;
            teller.saw(&Deed::Revoke(worker, &answer));
            Ok(answer)
        };
        self.act(StoreCall::Revoke, carry_out, || None)
    }
}

impl Scheduling for Linked {
    fn declare(
        &mut self,
        owner: &str,
        rows: &[ScheduleRow],
        is_whole: bool,
    ) -> Result<Declared, StoreError> {
        self.simply(StoreCall::Declare, |session| session.declare(owner, rows, is_whole))
    }

    fn change_schedule(
        &mut self,
        actor: &str,
        name: &str,
        change: &ScheduleChange,
    ) -> Result<ScheduleAnswer, StoreError> {
        let carry_out = |session: &mut dyn Session| session.change_schedule(actor, name, change);
        self.simply(StoreCall::ChangeSchedule, carry_out)
    }

    fn due_schedules(&mut self, max: u32) -> Result<DueSchedules, StoreError> {
        self.simply(StoreCall::DueSchedules, |session| session.due_schedules(max))
    }

    fn mint(&mut self, rows: &[MintRow]) -> Result<Minted, StoreError> {
        let late = || -> Option<Late> {
            let rows = rows.to_vec();
            Some(Box::new(move |session, teller| {
                let answer = session.mint(&rows)?;
                teller.saw(&Deed::Mint(&rows, &answer));
                Ok(())
            }))
        };
        let carry_out = |session: &mut dyn Session, teller: &Teller| {
            let answer = session.mint(rows)?;
            teller.saw(&Deed::Mint(rows, &answer));
            Ok(answer)
        };
        self.act(StoreCall::Mint, carry_out, late)
    }

    fn schedules(&mut self) -> Result<Vec<ScheduleRecord>, StoreError> {
        self.simply(StoreCall::Schedules, |session| session.schedules())
    }
}

/// A claim that outlives its caller.
struct Owned {
    worker: WorkerId,
    total: u32,
    plan: Vec<crate::store::QueueQuota>,
    accepts: Vec<crate::store::Accepts>,
    lease: Duration,
}

impl Owned {
    fn of(claim: &Claim<'_>) -> Self {
        Self {
            worker: claim.worker,
            total: claim.total,
            plan: claim.plan.to_vec(),
            accepts: claim.accepts.to_vec(),
            lease: claim.lease,
        }
    }

    fn claim(&self) -> Claim<'_> {
        Claim::new(self.worker, self.total, &self.plan, &self.accepts, self.lease)
    }
}

/// The process that carries out what is late. It never crashes.
const NETWORK: ProcessId = ProcessId(0);
