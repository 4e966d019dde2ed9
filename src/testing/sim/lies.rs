//! A store with a bug: it stands between the nodes and the honest one, and the oracles must find it.

use crate::store::{
    Admission, Bounds, CancelAnswer, Claim, Claimed, ClaimedJob, Declared, Due, DueSchedules,
    EnqueueAnswer, Exchanged, HandedBack, Held, Hub, JobRow, Jobs, Lapsed, LeaseRef, MintRow,
    Minted, Minting, Mode, Operations, Outcome, OutcomeRow, ParentRule, QueueChange, Receipt,
    Renewal, Renewed, Reported, RowReport, ScheduleAnswer, ScheduleChange, ScheduleRecord,
    ScheduleRow, Scheduling, Session, StaleReason, Store, StoreError,
};
use crate::{JobId, JobState, Timestamp, WorkerId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What is wrong with the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lie {
    /// The fence does not look at the expiry.
    LapsedHolderWrites,
    /// A reaper does not look at the expiry.
    ReapsLive,
    /// The fence does not look at the attempt, nor at the owner.
    AnybodyWrites,
    /// A limit is counted before the lock.
    LimitIgnored,
    /// A pause is read from a cache.
    PauseIgnored,
    /// The first parent that ends opens the latch.
    FirstParentReleases,
    /// A latch asks nothing of its parents.
    NoLatch,
    /// A parent's failure releases like its success.
    FailedParentReleases,
    /// A latch counts one parent too many.
    LatchStaysShut,
    /// Giving back costs a failure.
    HandBackIsFailure,
    /// An enqueue is told and not kept.
    EnqueueLost,
    /// A report is told and not kept.
    ReportLost,
    /// A retry is written without counting the failure.
    FailureUncounted,
    /// A repeated report is not recognised.
    ReceiptForgotten,
    /// A renewal is told and not kept.
    RenewalLost,
    /// A claim hands out what another holds.
    ClaimedTwice,
    /// A claim hands out more than was asked for.
    ClaimTooLarge,
    /// A due time is not looked at.
    DueIgnored,
    /// A retry is due at once.
    RetryAtOnce,
    /// A job that has ended begins anew by itself.
    EndReopened,
    /// A cancel request is told and not kept.
    CancelForgotten,
    /// A worker that asks what it holds hears of nothing.
    HeldHidden,
    /// Dead leases are not found.
    LapsesHidden,
    /// The attempt does not grow.
    AttemptStays,
    /// A unique key is not looked at.
    UniqueIgnored,
    /// Of a key that is held, another holder is told.
    HolderMistold,
    /// A unique key stays held by who has ended.
    KeyStaysHeld,
    /// A concurrency key is not looked at.
    KeyLimitIgnored,
    /// A second enqueue under one id is told as new.
    RepeatIsNew,
    /// Overlaps are not looked for.
    OverlapIgnored,
    /// A paused schedule goes on.
    SchedulePauseForgotten,
    /// The cursor stays, and a tick that comes again is told as new.
    TickMintedTwice,
    /// The cursor moves, and the job of the tick is dropped.
    TickDropped,
    /// A schedule that is resumed begins where it was paused.
    ResumeCatchesUp,
    /// Claims fail with what nobody knows.
    FaultUnknown,
    /// A claim tells one failure too many.
    FailuresMistold,
    /// A renewal is told a second too short.
    RenewalTooShort,
    /// A renewal is silent about a cancel request.
    CancelUntold,
    /// A report answers one row too few.
    AnswerMissing,
    /// A claim hands out a job that does not exist.
    PhantomClaimed,
    /// Now and then a sound job is refused.
    SoundRejected,
    /// A cancel request is told of no job.
    CancelUnanswered,
    /// What is given back is told as gone.
    HandBackRefused,
    /// A renewal tells every lease as lost.
    HeldRefused,
    /// A schedule that stands is told as unknown.
    ScheduleForgotten,
    /// A tick that was minted is told as an overlap.
    OverlapInvented,
}

impl Lie {
    pub(super) const ALL: [Self; 46] = [
        Self::LapsedHolderWrites,
        Self::ReapsLive,
        Self::AnybodyWrites,
        Self::LimitIgnored,
        Self::PauseIgnored,
        Self::FirstParentReleases,
        Self::NoLatch,
        Self::FailedParentReleases,
        Self::LatchStaysShut,
        Self::HandBackIsFailure,
        Self::EnqueueLost,
        Self::ReportLost,
        Self::FailureUncounted,
        Self::ReceiptForgotten,
        Self::RenewalLost,
        Self::ClaimedTwice,
        Self::ClaimTooLarge,
        Self::DueIgnored,
        Self::RetryAtOnce,
        Self::EndReopened,
        Self::CancelForgotten,
        Self::HeldHidden,
        Self::LapsesHidden,
        Self::AttemptStays,
        Self::UniqueIgnored,
        Self::HolderMistold,
        Self::KeyStaysHeld,
        Self::KeyLimitIgnored,
        Self::RepeatIsNew,
        Self::OverlapIgnored,
        Self::SchedulePauseForgotten,
        Self::TickMintedTwice,
        Self::TickDropped,
        Self::ResumeCatchesUp,
        Self::FaultUnknown,
        Self::FailuresMistold,
        Self::RenewalTooShort,
        Self::CancelUntold,
        Self::AnswerMissing,
        Self::PhantomClaimed,
        Self::SoundRejected,
        Self::CancelUnanswered,
        Self::HandBackRefused,
        Self::HeldRefused,
        Self::ScheduleForgotten,
        Self::OverlapInvented,
    ];
}

/// A store that lies.
pub(super) struct Liar<S> {
    pub(super) inner: S,
    pub(super) lie: Lie,
}

impl<S: Store> Store for Liar<S> {
    fn open_session(&self) -> Result<Box<dyn Session>, StoreError> {
        let inner = self.inner.open_session()?;
        Ok(Box::new(Lying { inner, lie: self.lie }))
    }

    fn hub(&self) -> &Hub {
        self.inner.hub()
    }

    fn bounds(&self) -> &Bounds {
        self.inner.bounds()
    }
}

struct Lying {
    inner: Box<dyn Session>,
    lie: Lie,
}

crate::forward_session!(Lying, |this| this.inner; Upkeep Reads Observing);

impl Lying {
    fn is(&self, lie: Lie) -> bool {
        self.lie == lie
    }

    fn spoil_row(&mut self, row: &JobRow) -> JobRow {
        let mut row = row.clone();
        match self.lie {
            Lie::DueIgnored => row.due = Due::Now,
            Lie::NoLatch => row.parents.clear(),
            Lie::FirstParentReleases => row.parents.truncate(1),
            Lie::FailedParentReleases => row.parent_rule = ParentRule::OnAnyTerminal,
            Lie::UniqueIgnored => row.unique_key = None,
            Lie::KeyLimitIgnored => row.concurrency_key = None,
            _ => {}
        }
        row
    }

    fn spoil_outcome(&mut self, row: &OutcomeRow) -> Result<OutcomeRow, StoreError> {
        let mut row = row.clone();
        if let Outcome::Retry { after } = row.outcome {
            match self.lie {
                Lie::RetryAtOnce => row.outcome = Outcome::Retry { after: Duration::ZERO },
                Lie::FailureUncounted => row.outcome = Outcome::Snooze { after },
                _ => {}
            }
        }
        let Some(record) = self.inner.job(row.job)? else { return Ok(row) };
        let (Some(owner), Some(expiry)) = (record.owner, record.expiry) else { return Ok(row) };
        let is_dead = expiry <= self.inner.now()?;
        let is_theirs = owner == row.owner && record.attempt == row.attempt;
        match (self.lie, row.mode) {
            (Lie::LapsedHolderWrites, Mode::Holder) if is_dead && is_theirs => {
                row.mode = Mode::Reap
            }
            (Lie::ReapsLive, Mode::Reap) if !is_dead && is_theirs => row.mode = Mode::Holder,
            (Lie::AnybodyWrites, Mode::Holder) if !is_dead => {
                (row.owner, row.attempt) = (owner, record.attempt);
            }
            _ => {}
        }
        Ok(row)
    }

    fn lifting<R>(
        &mut self,
        queues: &[crate::store::QueueQuota],
        claim: impl FnOnce(&mut dyn Session) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        let set: BTreeMap<String, _> = self
            .inner
            .queues()?
            .into_iter()
            .filter(|known| queues.iter().any(|quota| quota.queue == known.queue))
            .map(|known| (known.queue.clone(), known))
            .collect();
        let (limits, pauses) = (self.is(Lie::LimitIgnored), self.is(Lie::PauseIgnored));
        for (queue, known) in &set {
            if limits && known.concurrency_limit.is_some() {
                self.inner.change_queue("lie", queue, QueueChange::Limit(None))?;
            }
            if pauses && known.is_paused {
                self.inner.change_queue("lie", queue, QueueChange::Resume)?;
            }
        }
        let answer = claim(self.inner.as_mut());
        for (queue, known) in &set {
            if limits {
                let limit = QueueChange::Limit(known.concurrency_limit);
                self.inner.change_queue("lie", queue, limit)?;
            }
            if pauses && known.is_paused {
                self.inner.change_queue("lie", queue, QueueChange::Pause)?;
            }
        }
        answer
    }

    /// A job that has ended, and had the unique key of a new one.
    fn ended_holder(&mut self, rows: &[JobRow]) -> Result<Option<Admission>, StoreError> {
        let Some(row) = rows.first().filter(|row| row.unique_key.is_some()) else {
            return Ok(None);
        };
        if self.inner.job(row.id)?.is_some() {
            return Ok(None);
        }
        let found = self.inner.find(&Default::default(), &crate::store::Page::new(200))?;
        let ended = |job: &&crate::store::JobRecord| {
            job.state.is_terminal() && job.unique_key == row.unique_key
        };
        let held = found.jobs.iter().find(ended);
        Ok(held.map(|job| Admission::Held { by: job.id, state: job.state }))
    }

    /// A job that somebody else holds.
    fn held_elsewhere(&mut self, claim: &Claim<'_>) -> Result<Option<ClaimedJob>, StoreError> {
        let filter = crate::store::JobFilter::default();
        let found = self.inner.find(&filter, &crate::store::Page::new(200))?;
        let held = found.jobs.into_iter().find(|job| {
            job.state == JobState::Leased && job.owner.is_some_and(|owner| owner != claim.worker)
        });
        Ok(held.map(|job| {
            let expiry = job.expiry.unwrap_or(Timestamp::MAX);
            let attempt = job.attempt + 1;
            let mut claimed = ClaimedJob::new(job.id, attempt, job.wire_name, claim.worker, expiry);
            (claimed.queue, claimed.payload) = (job.queue, job.payload);
            claimed
        }))
    }
}

fn spoil_renewal(lie: Lie, told: &mut Renewed) {
    match (lie, &mut *told) {
        (Lie::RenewalTooShort, Renewed::Renewed { expiry, .. }) => {
            *expiry = expiry.saturating_sub(Duration::from_secs(1));
        }
        (Lie::CancelUntold, Renewed::Renewed { cancel_requested, .. }) => *cancel_requested = false,
        (Lie::HeldRefused, _) => *told = Renewed::Lost,
        _ => {}
    }
}

impl Jobs for Lying {
    fn enqueue(&mut self, rows: &[JobRow]) -> Result<EnqueueAnswer, StoreError> {
        let mut spoilt: Vec<JobRow> = rows.iter().map(|row| self.spoil_row(row)).collect();
        if self.is(Lie::EnqueueLost) && rows.iter().any(|row| row.id.to_bytes()[15] & 3 == 0) {
            let store_time = self.inner.now()?;
            return Ok(EnqueueAnswer::Accepted {
                jobs: vec![Admission::New; rows.len()],
                store_time,
            });
        }
        if self.is(Lie::SoundRejected) && rows.iter().any(|row| row.id.to_bytes()[15] & 3 == 0) {
            let reason = crate::store::Rejection::UnknownParent { parent: JobId::new() };
            return Ok(EnqueueAnswer::Rejected { index: 0, reason });
        }
        if self.is(Lie::LatchStaysShut) {
            for row in spoilt.iter_mut().filter(|row| !row.parents.is_empty()) {
                let mut never = JobRow::new(JobId::new(), "never");
                (never.due, never.queue) =
                    (Due::In(Duration::from_secs(9_999_999)), "never".to_owned());
                row.parents.push(never.id);
                self.inner.enqueue(&[never])?;
            }
        }
        if self.is(Lie::KeyStaysHeld)
            && let Some(held) = self.ended_holder(rows)?
        {
            let store_time = self.inner.now()?;
            return Ok(EnqueueAnswer::Accepted { jobs: vec![held; rows.len()], store_time });
        }
        let mut answer = self.inner.enqueue(&spoilt)?;
        if let EnqueueAnswer::Accepted { jobs, .. } = &mut answer {
            for (row, admission) in rows.iter().zip(jobs) {
                match admission {
                    Admission::Held { by, .. } if self.is(Lie::HolderMistold) => *by = row.id,
                    Admission::Duplicate if self.is(Lie::RepeatIsNew) => {
                        *admission = Admission::New;
                    }
                    _ => {}
                }
            }
        }
        Ok(answer)
    }

    fn claim(&mut self, claim: &Claim<'_>) -> Result<Claimed, StoreError> {
        let mut claim = *claim;
        if self.is(Lie::FaultUnknown) {
            return Err(StoreError::new(std::fmt::Error));
        }
        if self.is(Lie::ClaimTooLarge) {
            claim.total += 1;
        }
        let mut claimed = match self.lie {
            Lie::LimitIgnored | Lie::PauseIgnored => {
                self.lifting(claim.plan, |session| session.claim(&claim))?
            }
            _ => self.inner.claim(&claim)?,
        };
        if self.is(Lie::ClaimedTwice)
            && claimed.jobs.is_empty()
            && let Some(job) = self.held_elsewhere(&claim)?
        {
            claimed.jobs.push(job);
        }
        for job in &mut claimed.jobs {
            match self.lie {
                Lie::AttemptStays => job.attempt = 1,
                Lie::FailuresMistold => job.failures += 1,
                Lie::PhantomClaimed => job.id = JobId::new(),
                _ => {}
            }
        }
        Ok(claimed)
    }

    fn report(&mut self, rows: &[OutcomeRow]) -> Result<Reported, StoreError> {
        let spoilt = rows.iter().map(|row| self.spoil_outcome(row));
        let spoilt = spoilt.collect::<Result<Vec<_>, _>>()?;
        if self.is(Lie::ReportLost) && rows.iter().any(|row| row.receipt.sequence % 4 == 3) {
            let states = rows.iter().map(|row| RowReport::Applied(row.outcome.state(false)));
            return Ok(Reported::new(states.collect(), self.inner.now()?));
        }
        let mut reported = self.inner.report(&spoilt)?;
        if self.is(Lie::ReceiptForgotten) {
            for report in &mut reported.rows {
                if matches!(report, RowReport::AlreadyApplied(_)) {
                    *report = RowReport::Stale(StaleReason::Unknown);
                }
            }
        }
        if self.is(Lie::AnswerMissing) {
            reported.rows.pop();
        }
        if self.is(Lie::EndReopened) {
            for row in rows {
                let _ = self.inner.requeue("lie", row.job)?;
            }
        }
        Ok(reported)
    }

    fn exchange(
        &mut self,
        rows: &[OutcomeRow],
        claim: &Claim<'_>,
    ) -> Result<Exchanged, StoreError> {
        let reported = self.report(rows)?;
        Ok(Exchanged::new(reported, self.claim(claim)?))
    }

    fn renew(
        &mut self,
        worker: WorkerId,
        rows: &[LeaseRef],
        lease: Duration,
    ) -> Result<Renewal, StoreError> {
        if !self.is(Lie::RenewalLost) {
            let mut renewal = self.inner.renew(worker, rows, lease)?;
            renewal.rows.iter_mut().for_each(|told| spoil_renewal(self.lie, told));
            return Ok(renewal);
        }
        let now = self.inner.now()?;
        let told = Renewed::Renewed { expiry: now + lease, cancel_requested: false };
        Ok(Renewal::new(vec![told; rows.len()], now))
    }

    fn find_lapsed(&mut self, queues: &[String], max: u32) -> Result<Lapsed, StoreError> {
        let mut lapsed = self.inner.find_lapsed(queues, max)?;
        if self.is(Lie::LapsesHidden) {
            lapsed.jobs.clear();
        }
        if self.is(Lie::ReapsLive) {
            let found = self.inner.find(&Default::default(), &crate::store::Page::new(200))?;
            for job in found.jobs.into_iter().filter(|job| job.state == JobState::Leased) {
                let (Some(owner), Some(expiry)) = (job.owner, job.expiry) else { continue };
                let mut live = crate::store::LapsedJob::new(job.id, job.attempt, owner, expiry);
                (live.failures, live.retry) = (job.failures, job.retry);
                lapsed.jobs.push(live);
            }
        }
        Ok(lapsed)
    }

    fn held_by(&mut self, worker: WorkerId) -> Result<Held, StoreError> {
        let mut held = self.inner.held_by(worker)?;
        if self.is(Lie::HeldHidden) {
            held.leases.clear();
        }
        Ok(held)
    }

    fn hand_back(&mut self, worker: WorkerId, rows: &[LeaseRef]) -> Result<HandedBack, StoreError> {
        if !self.is(Lie::HandBackIsFailure) {
            let mut given = self.inner.hand_back(worker, rows)?;
            if self.is(Lie::HandBackRefused) {
                given.rows.fill(false);
            }
            return Ok(given);
        }
        let outcome = Outcome::Retry { after: Duration::ZERO };
        let rows = rows.iter().map(|row| {
            let receipt = Receipt { pump: worker, sequence: u64::MAX };
            OutcomeRow::new(row.job, row.attempt, worker, receipt, outcome)
        });
        let reported = self.inner.report(&rows.collect::<Vec<_>>())?;
        let given = reported.rows.iter().map(|row| matches!(row, RowReport::Applied(_)));
        Ok(HandedBack::new(given.collect(), reported.store_time))
    }

    fn now(&mut self) -> Result<Timestamp, StoreError> {
        self.inner.now()
    }
}

impl Operations for Lying {
    fn request_cancel(&mut self, actor: &str, job: JobId) -> Result<CancelAnswer, StoreError> {
        if self.is(Lie::CancelUnanswered) {
            return Ok(CancelAnswer::NotFound);
        }
        if self.is(Lie::CancelForgotten) {
            let record = self.inner.job(job)?;
            return Ok(match record.map(|record| record.state) {
                None => CancelAnswer::NotFound,
                Some(JobState::Leased) => CancelAnswer::Requested,
                Some(ended) if ended.is_terminal() => CancelAnswer::Ended(ended),
                Some(_) => CancelAnswer::Cancelled,
            });
        }
        self.inner.request_cancel(actor, job)
    }

    fn requeue(
        &mut self,
        actor: &str,
        job: JobId,
    ) -> Result<crate::store::RequeueAnswer, StoreError> {
        self.inner.requeue(actor, job)
    }

    fn change_matching(
        &mut self,
        actor: &str,
        change: crate::store::BulkChange,
        filter: &crate::store::JobFilter,
        after: Option<JobId>,
        max: u32,
    ) -> Result<crate::store::BulkAnswer, StoreError> {
        self.inner.change_matching(actor, change, filter, after, max)
    }

    fn change_queue(
        &mut self,
        actor: &str,
        queue: &str,
        change: QueueChange,
    ) -> Result<crate::store::QueueAnswer, StoreError> {
        self.inner.change_queue(actor, queue, change)
    }

    fn revoke(
        &mut self,
        actor: &str,
        worker: WorkerId,
        max: u32,
    ) -> Result<crate::store::Revoked, StoreError> {
        self.inner.revoke(actor, worker, max)
    }
}

impl Scheduling for Lying {
    fn declare(
        &mut self,
        owner: &str,
        rows: &[ScheduleRow],
        is_whole: bool,
    ) -> Result<Declared, StoreError> {
        self.inner.declare(owner, rows, is_whole)
    }

    fn change_schedule(
        &mut self,
        actor: &str,
        name: &str,
        change: &ScheduleChange,
    ) -> Result<ScheduleAnswer, StoreError> {
        let is_lied_about = match change {
            ScheduleChange::Pause => {
                self.is(Lie::SchedulePauseForgotten) || self.is(Lie::ResumeCatchesUp)
            }
            ScheduleChange::Resume => self.is(Lie::ResumeCatchesUp),
            _ => false,
        };
        if self.is(Lie::ScheduleForgotten) {
            return Ok(ScheduleAnswer::NotFound);
        }
        if is_lied_about {
            return Ok(ScheduleAnswer::Done { changed: true, store_time: self.inner.now()? });
        }
        self.inner.change_schedule(actor, name, change)
    }

    fn due_schedules(&mut self, max: u32) -> Result<DueSchedules, StoreError> {
        self.inner.due_schedules(max)
    }

    fn mint(&mut self, rows: &[MintRow]) -> Result<Minted, StoreError> {
        let mut spoilt = rows.to_vec();
        for row in &mut spoilt {
            match self.lie {
                Lie::OverlapIgnored => row.no_overlap = false,
                Lie::TickDropped => row.job = None,
                Lie::TickMintedTwice => {
                    row.look_at = Some(row.cursor);
                    row.cursor = Timestamp::MIN;
                }
                _ => {}
            }
        }
        let mut minted = self.inner.mint(&spoilt)?;
        for (row, minting) in rows.iter().zip(&mut minted.rows) {
            if let Minting::Written { minted } = minting
                && self.lie == Lie::TickMintedTwice
            {
                *minted = row.job.is_some();
            }
            if self.is(Lie::OverlapInvented) && *minting == (Minting::Written { minted: true }) {
                *minting = Minting::Overlapped;
            }
        }
        Ok(minted)
    }

    fn schedules(&mut self) -> Result<Vec<ScheduleRecord>, StoreError> {
        self.inner.schedules()
    }
}

/// The store that a plan is run on.
pub(super) fn lying(lie: Lie) -> impl FnOnce(crate::MemoryStore) -> Arc<dyn Store> {
    move |inner| Arc::new(Liar { inner, lie })
}
