//! The store of a world: the memory store itself, copied at every change, and an auditor beside it.
//!
//! The auditor does not know the store's code. It compares the jobs before and after each call and says
//! whether that call, by that caller, at that time, may have made that difference.

use super::oracle::{Finding, Oracle, check};
use super::plant::Plant;
use super::scope::Scope;
use super::search::fingerprint;
use super::world::Situation;
use crate::kernel::driver::{ClaimAsk, Command};
use crate::store::memory::Seen;
use crate::store::{
    Accepts, Claim, Claimed, ClaimedJob, JobRow, LapsedJob, LeaseRef, Mode, Outcome, OutcomeRow,
    ParentRule, Renewed, RowReport, Session, Store,
};
use crate::{JobId, JobState, MemoryStore, RetryPolicy, Timestamp, WorkerId};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// What a store says.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    Claimed(Claimed),
    Reported(Vec<RowReport>),
    Exchanged(Vec<RowReport>, Claimed),
    Renewed(Vec<Renewed>),
    Lapsed(Vec<LapsedJob>),
    Held(Vec<LeaseRef>),
    HandedBack(Vec<bool>),
}

impl Hash for Answer {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Claimed(claimed) => hash_claimed(claimed, state),
            Self::Reported(reports) => reports.hash(state),
            Self::Exchanged(reports, claimed) => {
                reports.hash(state);
                hash_claimed(claimed, state);
            }
            Self::Renewed(rows) => rows.hash(state),
            Self::Lapsed(jobs) => {
                for job in jobs {
                    (job.id, job.attempt, job.owner, job.expiry, job.failures).hash(state);
                }
            }
            Self::Held(leases) => leases.hash(state),
            Self::HandedBack(rows) => rows.hash(state),
        }
    }
}

fn hash_claimed<H: Hasher>(claimed: &Claimed, state: &mut H) {
    for job in &claimed.jobs {
        (job.id, job.attempt, job.failures, job.expiry).hash(state);
    }
    (claimed.withheld, claimed.next_due).hash(state);
}

/// The clock that every copy judges by.
#[derive(Clone, Default)]
struct Clock(Arc<AtomicI64>);

impl Clock {
    fn closure(&self) -> impl Fn() -> Timestamp + Send + Sync + 'static {
        let clock = Arc::clone(&self.0);
        move || Timestamp::from_micros(clock.load(Ordering::Relaxed))
    }
}

pub(super) struct Shelf {
    clock: Clock,
    store: MemoryStore,
    pub(super) jobs: Vec<Seen>,
    pub(super) fingerprint: u64,
}

/// Who calls, and when.
#[derive(Clone, Copy)]
pub(super) struct Caller {
    pub(super) worker: WorkerId,
    pub(super) now: Timestamp,
}

/// A change of an attempt's lease that was made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settled {
    pub(super) owner: WorkerId,
    pub(super) lease: LeaseRef,
    /// By an outcome of its holder.
    pub(super) by_holder: bool,
}

pub(super) fn job_id(number: u8) -> JobId {
    let mut bytes = [0; 16];
    bytes[15] = number + 1;
    JobId::from_bytes(bytes)
}

pub(super) fn retry(scope: &Scope) -> RetryPolicy {
    RetryPolicy::new(scope.failures_max).fixed(Duration::from_secs(1)).jitter_percent(0)
}

impl Shelf {
    pub(super) fn new(scope: &Scope, now: Timestamp) -> Self {
        let clock = Clock::default();
        clock.0.store(now.as_micros(), Ordering::Relaxed);
        let store = MemoryStore::with_clock(clock.closure());
        let mut rows: Vec<_> =
            (0..scope.jobs).map(|number| JobRow::new(job_id(number), "work")).collect();
        rows.iter_mut().for_each(|row| row.timeout = scope.time_limit);
        if scope.dependent {
            rows[1].parents = vec![job_id(0)];
            rows[1].parent_rule = ParentRule::OnSuccess;
        }
        store.open_session().expect("memory").enqueue(&rows).expect("memory");
        Self::of(clock, store)
    }

    fn of(clock: Clock, store: MemoryStore) -> Self {
        let jobs = store.look();
        let fingerprint = fingerprint(&jobs);
        Self { clock, store, jobs, fingerprint }
    }

    pub(super) fn job(&self, id: JobId) -> Option<&Seen> {
        self.jobs.iter().find(|seen| seen.id == id)
    }

    pub(super) fn is_done(&self) -> bool {
        self.jobs.iter().all(|seen| seen.state.is_terminal())
    }

    /// The leases of a worker that are alive.
    pub(super) fn leases_of(
        &self,
        worker: WorkerId,
        now: Timestamp,
    ) -> impl Iterator<Item = LeaseRef> {
        let alive = move |seen: &&Seen| {
            seen.hold.is_some_and(|(owner, expiry)| owner == worker && expiry > now)
        };
        let leased = self.jobs.iter().filter(alive);
        leased.map(|seen| LeaseRef { job: seen.id, attempt: seen.attempt })
    }

    /// The shelf after a call, and what is said to the caller.
    pub(super) fn call(
        &self,
        scope: &Scope,
        caller: Caller,
        request: &Command,
    ) -> Result<(Self, Answer, Vec<Settled>), Finding> {
        self.clock.0.store(caller.now.as_micros(), Ordering::Relaxed);
        let fork = self.store.fork(self.clock.closure());
        let mut session = fork.open_session().expect("memory");
        let bent = self.bend(scope.plant, request, caller.now);
        let request_carried = bent.as_ref().unwrap_or(request);
        let answer = carry_out(session.as_mut(), scope, caller, request_carried);
        let answer = self.bend_answer(scope, caller, request, answer);
        drop(session);
        let after = Self::of(self.clock.clone(), fork);
        let settled = self.audit(scope, caller, request, &after)?;
        Ok((after, answer, settled))
    }

    pub(super) fn request_cancel(&self, now: Timestamp, job: JobId) -> Result<Self, Finding> {
        self.clock.0.store(now.as_micros(), Ordering::Relaxed);
        let fork = self.store.fork(self.clock.closure());
        let mut session = fork.open_session().expect("memory");
        session.request_cancel("operator", job).expect("memory");
        drop(session);
        let after = Self::of(self.clock.clone(), fork);
        for (before, after) in self.jobs.iter().zip(&after.jobs) {
            let untouched = Seen { cancel_requested: after.cancel_requested, ..*before };
            let ended = before.hold.is_none() && after.state == JobState::Cancelled;
            check(*after == untouched || ended, Oracle::IllegalEdge, || {
                format!("a cancel request makes {before:?} {after:?}")
            })?;
            check_unended(before, after)?;
        }
        Ok(after)
    }

    // -- the auditor

    fn audit(
        &self,
        scope: &Scope,
        caller: Caller,
        request: &Command,
        after: &Self,
    ) -> Result<Vec<Settled>, Finding> {
        let mut settled = Vec::new();
        for (before, after) in self.jobs.iter().zip(&after.jobs) {
            if before == after {
                continue;
            }
            check_unended(before, after)?;
            check(after.failures <= scope.failures_max, Oracle::Ceiling, || format!("{after:?}"))?;
            if after.attempt != before.attempt {
                check_claimed(scope, caller, request, before, after)?;
            } else if before.hold.is_some() && after.hold.is_some() {
                check_renewed(scope, caller, request, before, after)?;
            } else if let Some((owner, expiry)) = before.hold {
                let lease = LeaseRef { job: before.id, attempt: before.attempt };
                let by_holder = check_settled(scope, caller, request, (before, after), expiry)?;
                settled.push(Settled { owner, lease, by_holder });
            } else {
                let released = before.state == JobState::AwaitingParent;
                check(released, Oracle::IllegalEdge, || format!("{before:?} becomes {after:?}"))?;
            }
        }
        Ok(settled)
    }

    // -- planted bugs

    fn bend(&self, plant: Option<Plant>, request: &Command, now: Timestamp) -> Option<Command> {
        let plant = plant?;
        let bend_row = |row: &OutcomeRow| {
            let mut row = row.clone();
            let Some(seen) = self.job(row.job) else { return row };
            let Some((owner, expiry)) = seen.hold else { return row };
            let is_live = expiry > now;
            match plant {
                Plant::FenceWithoutAttempt if row.mode == Mode::Holder => {
                    (row.attempt, row.owner) = (seen.attempt, owner);
                }
                Plant::HolderAfterExpiry if !is_live => row.mode = Mode::Reap,
                Plant::ReapWithoutExpiryCheck if is_live => row.mode = Mode::Holder,
                _ => {}
            }
            row
        };
        match request {
            Command::Report { rows } => {
                Some(Command::Report { rows: rows.iter().map(bend_row).collect() })
            }
            Command::Exchange { rows, ask } => Some(Command::Exchange {
                rows: rows.iter().map(bend_row).collect(),
                ask: ask.clone(),
            }),
            Command::Claim(ask) if plant == Plant::OneTooMany => {
                Some(Command::Claim(one_more(ask)))
            }
            Command::HandBack { leases } if plant == Plant::HandBackCostsAFailure => {
                let after = Duration::from_secs(1);
                let row = |(lease, seen): (&LeaseRef, &Seen)| {
                    let owner = seen.hold.map_or(WorkerId::from_bytes([0; 16]), |hold| hold.0);
                    let receipt = crate::store::Receipt { pump: owner, sequence: 0 };
                    let outcome = Outcome::Retry { after };
                    OutcomeRow::new(lease.job, lease.attempt, owner, receipt, outcome)
                };
                let rows = leases.iter().filter_map(|lease| Some((lease, self.job(lease.job)?)));
                Some(Command::Report { rows: rows.map(row).collect() })
            }
            _ => None,
        }
    }

    fn bend_answer(
        &self,
        scope: &Scope,
        caller: Caller,
        request: &Command,
        answer: Answer,
    ) -> Answer {
        match (scope.plant, answer) {
            (Some(Plant::DoubleClaim), Answer::Claimed(mut claimed)) if claimed.jobs.is_empty() => {
                let leased = self.jobs.iter().find(|seen| seen.hold.is_some());
                let again = leased.map(|seen| {
                    let expiry = caller.now + scope.lease;
                    let work = "work".to_owned();
                    ClaimedJob::new(seen.id, seen.attempt, work, caller.worker, expiry)
                });
                claimed.jobs.extend(again);
                Answer::Claimed(claimed)
            }
            (Some(Plant::ReapWithoutExpiryCheck), Answer::Lapsed(_)) => {
                let dead = self.jobs.iter().filter_map(|seen| {
                    let (owner, expiry) = seen.hold?;
                    let mut lapsed = LapsedJob::new(seen.id, seen.attempt, owner, expiry);
                    lapsed.failures = seen.failures;
                    Some(lapsed)
                });
                Answer::Lapsed(dead.collect())
            }
            // A report stood in for it.
            (Some(Plant::HandBackCostsAFailure), Answer::Reported(rows))
                if matches!(request, Command::HandBack { .. }) =>
            {
                Answer::HandedBack(vec![true; rows.len()])
            }
            (_, answer) => answer,
        }
    }
}

fn one_more(ask: &ClaimAsk) -> ClaimAsk {
    let mut ask = ask.clone();
    ask.total += 1;
    ask.plan.iter_mut().for_each(|quota| quota.quota += 1);
    ask
}

fn carry_out(
    session: &mut dyn Session,
    scope: &Scope,
    caller: Caller,
    request: &Command,
) -> Answer {
    let accepts = [Accepts { wire_name: "work".to_owned(), version_max: 1 }];
    let claim = |ask: &ClaimAsk| (ask.total, ask.plan.clone());
    match request {
        Command::Claim(ask) => {
            let (total, plan) = claim(ask);
            let claim = Claim::new(caller.worker, total, &plan, &accepts, scope.lease);
            Answer::Claimed(session.claim(&claim).expect("memory"))
        }
        Command::Report { rows } => Answer::Reported(session.report(rows).expect("memory").rows),
        Command::Exchange { rows, ask } => {
            let (total, plan) = claim(ask);
            let claim = Claim::new(caller.worker, total, &plan, &accepts, scope.lease);
            let exchanged = session.exchange(rows, &claim).expect("memory");
            Answer::Exchanged(exchanged.reported.rows, exchanged.claimed)
        }
        Command::Renew { leases } => {
            let renewal = session.renew(caller.worker, leases, scope.lease);
            Answer::Renewed(renewal.expect("memory").rows)
        }
        Command::FindLapsed { max } => {
            let queues = ["default".to_owned()];
            Answer::Lapsed(session.find_lapsed(&queues, *max).expect("memory").jobs)
        }
        Command::FindHeld => {
            let held = session.held_by(caller.worker).expect("memory").leases;
            Answer::Held(held.into_iter().map(|(lease, _)| lease).collect())
        }
        Command::HandBack { leases } => {
            let handed_back = session.hand_back(caller.worker, leases);
            Answer::HandedBack(handed_back.expect("memory").rows)
        }
        other => panic!("no request of this world: {other:?}"),
    }
}

/// What has ended stays as it is.
fn check_unended(before: &Seen, after: &Seen) -> Result<(), Finding> {
    check(before == after || !before.state.is_terminal(), Oracle::IllegalEdge, || {
        format!("{before:?} becomes {after:?}")
    })
}

/// An attempt more: a claim of a job that was due, or that the report in the same call has released.
fn check_claimed(
    scope: &Scope,
    caller: Caller,
    request: &Command,
    before: &Seen,
    after: &Seen,
) -> Result<(), Finding> {
    let released =
        before.state == JobState::AwaitingParent && matches!(request, Command::Exchange { .. });
    let due_at = if released { before.due_at.max(caller.now) } else { before.due_at };
    let claimed = Seen {
        state: JobState::Leased,
        attempt: before.attempt + 1,
        hold: Some((caller.worker, caller.now + scope.lease)),
        due_at,
        ..*before
    };
    let was_due = before.state == JobState::Scheduled || released;
    let legal = *after == claimed && was_due && due_at <= caller.now;
    check(legal, Oracle::IllegalEdge, || format!("{before:?} is claimed as {after:?}"))
}

fn check_renewed(
    scope: &Scope,
    caller: Caller,
    request: &Command,
    before: &Seen,
    after: &Seen,
) -> Result<(), Finding> {
    let held =
        before.hold.is_some_and(|(owner, expiry)| owner == caller.worker && expiry > caller.now);
    let renewed = Seen { hold: Some((caller.worker, caller.now + scope.lease)), ..*before };
    let asked = matches!(request, Command::Renew { .. });
    check(held && asked && *after == renewed, Oracle::FencePassed, || {
        format!("{before:?} is prolonged to {after:?}")
    })
}

/// A lease ends: by an outcome or by a hand-back. Whether by an outcome of its holder.
fn check_settled(
    scope: &Scope,
    caller: Caller,
    request: &Command,
    (before, after): (&Seen, &Seen),
    expiry: Timestamp,
) -> Result<bool, Finding> {
    let is_live = expiry > caller.now;
    let holder = before.hold.map(|(owner, _)| owner);
    let spoke = |oracle| {
        move || Finding::new(oracle, format!("{before:?} becomes {after:?} by {request:?}"))
    };
    if before.cancel_requested && after.state == JobState::Scheduled {
        return Err(spoke(Oracle::CancelForgotten)());
    }
    if let Command::HandBack { leases } = request {
        let names =
            leases.iter().any(|lease| (lease.job, lease.attempt) == (before.id, before.attempt));
        let fence = names && is_live && holder == Some(caller.worker);
        let detail = || format!("{before:?} is handed back as {after:?}");
        check(fence, Oracle::FencePassed, detail)?;
        check(after.failures == before.failures, Oracle::FailureMiscounted, detail)?;
        return Ok(false);
    }
    let rows = match request {
        Command::Report { rows } | Command::Exchange { rows, .. } => rows.as_slice(),
        _ => &[],
    };
    let row =
        rows.iter().find(|row| row.job == before.id).ok_or_else(spoke(Oracle::IllegalEdge))?;
    let is_own = row.attempt == before.attempt && Some(row.owner) == holder;
    let fence = match row.mode {
        Mode::Holder => is_live && row.owner == caller.worker,
        Mode::Reap => !is_live,
    };
    if !is_own || !fence {
        return Err(spoke(Oracle::FencePassed)());
    }
    let failed = u32::from(row.outcome.is_failure());
    if after.failures != before.failures + failed || (row.mode == Mode::Reap && failed == 0) {
        return Err(spoke(Oracle::FailureMiscounted)());
    }
    let at_ceiling = after.failures >= scope.failures_max;
    if failed == 1
        && !before.cancel_requested
        && at_ceiling != (after.state == JobState::DeadLettered)
    {
        return Err(spoke(Oracle::Ceiling)());
    }
    if after.state != row.outcome.state(before.cancel_requested) {
        return Err(spoke(Oracle::IllegalEdge)());
    }
    Ok(row.mode == Mode::Holder)
}

/// What an answer shows to have happened.
pub(super) fn situations(answer: &Answer) -> Vec<Situation> {
    let reports = match answer {
        Answer::Reported(reports) | Answer::Exchanged(reports, _) => reports.as_slice(),
        _ => &[],
    };
    let of_reports = reports.iter().map(|report| match report {
        RowReport::Applied(_) => Situation::OutcomeWritten,
        RowReport::AlreadyApplied(_) => Situation::RepeatRecognised,
        RowReport::Stale(_) => Situation::OutcomeRefused,
    });
    let others = [
        (matches!(answer, Answer::Lapsed(jobs) if !jobs.is_empty()), Situation::LapseFound),
        (matches!(answer, Answer::Held(leases) if !leases.is_empty()), Situation::HeldFound),
        (matches!(answer, Answer::HandedBack(rows) if rows.contains(&true)), Situation::HandedBack),
        (
            matches!(answer, Answer::Renewed(rows) if rows.contains(&Renewed::Lost)),
            Situation::RenewalRefused,
        ),
        (matches!(answer, Answer::Exchanged(..)), Situation::Exchanged),
    ];
    of_reports.chain(others.into_iter().filter(|(seen, _)| *seen).map(|(_, which)| which)).collect()
}
