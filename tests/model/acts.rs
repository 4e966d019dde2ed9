//! What happens in a random history: acts that name jobs, workers and attempts by small numbers, so that a
//! history that fails shrinks to one that a reader can follow.

use super::model::Model;
use backwave::store::{
    Accepts, BulkChange, Claim, Claimed, Due, EnqueueAnswer, JobFilter, JobRow, LeaseRef, Mode,
    Outcome, OutcomeRow, ParentRule, Purge, PurgeCursor, QueueChange, QueueQuota, Receipt,
    Rejection, Retention, Session,
};
use backwave::{JobId, JobState, WorkerId};
use proptest::prelude::*;
use std::time::Duration;

pub const JOBS: u8 = 10;
pub const WORKERS: u8 = 3;
pub const LEASE: Duration = Duration::from_secs(30);
const QUEUES: [&str; 2] = ["a", "b"];
const ACTOR: &str = "ada";

pub fn job(number: u8) -> JobId {
    let mut bytes = [0; 16];
    bytes[15] = number;
    JobId::from_bytes(bytes)
}

pub fn worker(number: u8) -> WorkerId {
    let mut bytes = [0xff; 16];
    bytes[15] = number;
    WorkerId::from_bytes(bytes)
}

/// A job to be enqueued.
#[derive(Debug, Clone)]
pub struct Seed {
    job: u8,
    queue: usize,
    parents: Vec<u8>,
    any_end: bool,
    delay: Option<u8>,
    tag: bool,
    unique_key: Option<u8>,
    concurrency_key: Option<u8>,
    /// Whether parents that are not known stay among its parents, and so have the call refused.
    unknown: bool,
}

#[derive(Debug, Clone)]
pub enum Act {
    Enqueue(Vec<Seed>),
    Claim {
        worker: u8,
        plan: Vec<(usize, u32)>,
        total: u32,
        spill: bool,
    },
    /// Both by one call; the claim spills.
    Exchange {
        rows: Vec<(usize, Outcome, bool)>,
        worker: u8,
        plan: Vec<(usize, u32)>,
        total: u32,
    },
    /// Attempts by their number among all that were handed out.
    Report(Vec<(usize, Outcome, bool)>),
    Renew(usize),
    HandBack(usize),
    /// Every dead lease.
    Reap(Outcome),
    Cancel(u8),
    Requeue(u8),
    Bulk {
        cancels: bool,
        state: Option<JobState>,
        queue: Option<usize>,
        tag: bool,
        key: Option<u8>,
        after: Option<u8>,
        max: u32,
    },
    Queue(usize, QueueChange),
    Revoke {
        worker: u8,
        max: u32,
    },
    Wait(u8),
    /// Those that ended so many seconds ago, but for those in that state, page by page of that size.
    Purge {
        keep: u8,
        spared: JobState,
        max: u32,
    },
    WorkOff,
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    let after = Duration::from_secs;
    prop_oneof![
        4 => Just(Outcome::Succeeded),
        3 => Just(Outcome::DeadLettered),
        1 => Just(Outcome::Quarantined),
        1 => Just(Outcome::Cancelled),
        1 => Just(Outcome::Retry { after: after(0) }),
        1 => Just(Outcome::Retry { after: after(20) }),
        1 => Just(Outcome::Snooze { after: after(5) }),
    ]
}

fn seeds() -> impl Strategy<Value = Seed> {
    let parents = prop::collection::vec(0..JOBS, 0..4);
    let delay = prop::option::weighted(0.15, prop::sample::select(vec![5_u8, 20, 35]));
    let flags = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.05));
    let keys = || prop::option::weighted(0.4, 0..2_u8);
    (0..JOBS, 0..2_usize, parents, delay, flags, (keys(), keys())).prop_map(
        |(job, queue, mut parents, delay, (any_end, tag, unknown), keys)| {
            parents.retain(|parent| *parent != job);
            let (unique_key, concurrency_key) = keys;
            Seed { job, queue, parents, any_end, delay, tag, unique_key, concurrency_key, unknown }
        },
    )
}

fn changes() -> impl Strategy<Value = QueueChange> {
    prop_oneof![
        1 => Just(QueueChange::Pause),
        2 => Just(QueueChange::Resume),
        4 => prop::option::weighted(0.8, 0..4_u32).prop_map(QueueChange::Limit),
        2 => prop::option::weighted(0.8, 0..3_u32).prop_map(QueueChange::KeyLimit),
    ]
}

/// One act of a history.
pub fn acts() -> impl Strategy<Value = Act> {
    let states = || prop::sample::select(JobState::ALL.to_vec());
    let plan = || prop::collection::vec((0..2_usize, 0..4_u32), 1..3);
    let filter = (
        prop::option::weighted(0.3, states()),
        prop::option::weighted(0.5, 0..2_usize),
        prop::bool::weighted(0.3),
        prop::option::weighted(0.1, 0..2_u8),
        prop::option::weighted(0.2, 0..JOBS),
    );
    let bulk = (any::<bool>(), filter, 1..6_u32).prop_map(
        |(cancels, (state, queue, tag, key, after), max)| Act::Bulk {
            cancels,
            state,
            queue,
            tag,
            key,
            after,
            max,
        },
    );
    let claim = (0..WORKERS, plan(), 0..6_u32, prop::bool::weighted(0.8))
        .prop_map(|(worker, plan, total, spill)| Act::Claim { worker, plan, total, spill });
    let rows = || prop::collection::vec((0..40_usize, outcomes(), prop::bool::weighted(0.1)), 1..4);
    let exchange = (rows(), 0..WORKERS, plan(), 0..6_u32)
        .prop_map(|(rows, worker, plan, total)| Act::Exchange { rows, worker, plan, total });
    prop_oneof![
        6 => prop::collection::vec(seeds(), 1..6).prop_map(Act::Enqueue),
        8 => claim,
        6 => rows().prop_map(Act::Report),
        4 => exchange,
        1 => (0..40_usize).prop_map(Act::Renew),
        2 => (0..40_usize).prop_map(Act::HandBack),
        2 => outcomes().prop_map(Act::Reap),
        3 => (0..JOBS).prop_map(Act::Cancel),
        3 => (0..JOBS).prop_map(Act::Requeue),
        2 => bulk,
        3 => (0..2_usize, changes()).prop_map(|(queue, change)| Act::Queue(queue, change)),
        1 => (0..WORKERS, 1..4_u32).prop_map(|(worker, max)| Act::Revoke { worker, max }),
        4 => prop::sample::select(vec![1_u8, 5, 10, 20, 30]).prop_map(Act::Wait),
        2 => (prop::sample::select(vec![0_u8, 0, 5, 20]), states(), 1..5_u32)
            .prop_map(|(keep, spared, max)| Act::Purge { keep, spared, max }),
        1 => Just(Act::WorkOff),
    ]
}

/// An attempt that was handed out.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    lease: LeaseRef,
    owner: WorkerId,
}

/// A store's session and the model side by side.
pub struct Pair<'a> {
    pub session: &'a mut dyn Session,
    pub model: Model,
    attempts: Vec<Attempt>,
}

type Outcomes = Result<(), TestCaseError>;

fn sound<T>(answer: Result<T, backwave::store::StoreError>) -> Result<T, TestCaseError> {
    answer.map_err(|error| TestCaseError::fail(format!("a fault of the store: {error:?}")))
}

impl<'a> Pair<'a> {
    pub fn new(session: &'a mut dyn Session, model: Model) -> Self {
        Self { session, model, attempts: Vec::new() }
    }

    /// Does the same to both, and compares the answers.
    pub fn perform(&mut self, act: &Act) -> Outcomes {
        match act {
            Act::Enqueue(seeds) => self.enqueue(seeds),
            Act::Claim { worker, plan, total, spill } => {
                self.claim(*worker, plan, (*total, *spill))
            }
            Act::Exchange { rows, worker, plan, total } => {
                self.exchange(rows, *worker, plan, *total)
            }
            Act::Report(rows) => self.report(rows),
            Act::Renew(attempt) => self.renew(*attempt),
            Act::HandBack(attempt) => self.hand_back(*attempt),
            Act::Reap(outcome) => self.reap(*outcome),
            Act::Cancel(number) => self.cancel(job(*number)),
            Act::Requeue(number) => self.requeue(job(*number)),
            Act::Bulk { cancels, state, queue, tag, key, after, max } => {
                let mut filter = JobFilter::new();
                filter.states.extend(*state);
                filter.queue = queue.map(|queue| QUEUES[queue].to_owned());
                filter.tag = tag.then(|| "x".to_owned());
                filter.unique_key = key.map(|key| format!("u{key}"));
                self.bulk(*cancels, &filter, after.map(job), *max)
            }
            Act::Queue(queue, change) => self.change_queue(QUEUES[*queue], *change),
            Act::Revoke { worker: number, max } => self.revoke(worker(*number), *max),
            Act::Purge { keep, spared, max } => self.purge(*keep, *spared, *max),
            Act::WorkOff => {
                let worked_off = sound(self.session.work_off_latches(100))?;
                prop_assert_eq!((worked_off.resolved, worked_off.more), (0, false));
                Ok(())
            }
            // The clock is set by whoever has it.
            Act::Wait(_) => Ok(()),
        }
    }

    fn enqueue(&mut self, seeds: &[Seed]) -> Outcomes {
        let mut rows: Vec<JobRow> = Vec::new();
        for seed in seeds {
            let mut row = row(seed);
            let is_known = |parent: &JobId| {
                self.model.jobs.contains_key(parent) || rows.iter().any(|row| row.id == *parent)
            };
            row.parents.retain(|parent| seed.unknown || is_known(parent));
            rows.push(row);
        }
        let expected = match self.model.enqueue(&rows) {
            Ok(jobs) => EnqueueAnswer::Accepted { jobs, store_time: self.model.now },
            Err((index, parent)) => {
                EnqueueAnswer::Rejected { index, reason: Rejection::UnknownParent { parent } }
            }
        };
        prop_assert_eq!(sound(self.session.enqueue(&rows))?, expected);
        Ok(())
    }

    fn claim(
        &mut self,
        number: u8,
        plan: &[(usize, u32)],
        (total, spill): (u32, bool),
    ) -> Outcomes {
        let (plan, accepts) = (quotas(plan), accepts());
        let mut claim = Claim::new(worker(number), total, &plan, &accepts, LEASE);
        claim.spill = spill;
        let claimed = sound(self.session.claim(&claim))?;
        self.compare_claimed(&claim, &claimed)
    }

    fn compare_claimed(&mut self, claim: &Claim<'_>, claimed: &Claimed) -> Outcomes {
        let (owner, size) = (claim.worker, (claim.total, claim.spill));
        let expected = self.model.claim(owner, claim.plan, size, LEASE);
        let leases = claimed.jobs.iter();
        let leases: Vec<_> =
            leases.map(|job| LeaseRef { job: job.id, attempt: job.attempt }).collect();
        prop_assert_eq!(&leases, &expected.leases);
        if let Some(withheld) = expected.withheld {
            prop_assert_eq!(claimed.withheld, withheld, "withheld");
        }
        let (told, expected) = (claimed.next_due, expected.next_due);
        let is_right = expected.is_empty() || expected.contains(&told);
        prop_assert!(is_right, "the next due time is {:?} and not one of {:?}", told, expected);
        self.attempts.extend(leases.into_iter().map(|lease| Attempt { lease, owner }));
        Ok(())
    }

    fn exchange(
        &mut self,
        chosen: &[(usize, Outcome, bool)],
        number: u8,
        plan: &[(usize, u32)],
        total: u32,
    ) -> Outcomes {
        let (rows, plan, accepts) = (self.rows(chosen), quotas(plan), accepts());
        let claim = Claim::new(worker(number), total, &plan, &accepts, LEASE);
        let exchanged = sound(self.session.exchange(&rows, &claim))?;
        prop_assert_eq!(exchanged.reported.rows, self.model.report(&rows));
        self.compare_claimed(&claim, &exchanged.claimed)
    }

    fn attempt(&self, number: usize) -> Option<(usize, Attempt)> {
        let index = number.checked_rem(self.attempts.len())?;
        // The newest first: most of those that run are among them.
        let index = self.attempts.len() - 1 - index;
        Some((index, self.attempts[index]))
    }

    fn outcome(&self, index: usize, outcome: Outcome, mode: Mode) -> OutcomeRow {
        let Attempt { lease, owner } = self.attempts[index];
        let sequence = 2 * index as u64 + u64::from(mode == Mode::Reap);
        let receipt = Receipt { pump: owner, sequence };
        let mut row = OutcomeRow::new(lease.job, lease.attempt, owner, receipt, outcome);
        row.mode = mode;
        row.detail = outcome.is_failure().then(|| format!("attempt {}", lease.attempt));
        row
    }

    /// The rows of a report, one a job at most: what comes of a second one is told by a clause.
    fn rows(&self, chosen: &[(usize, Outcome, bool)]) -> Vec<OutcomeRow> {
        let mut rows: Vec<OutcomeRow> = Vec::new();
        for (number, outcome, reaps) in chosen {
            let Some((index, attempt)) = self.attempt(*number) else { continue };
            if rows.iter().all(|row| row.job != attempt.lease.job) {
                let mode = if *reaps { Mode::Reap } else { Mode::Holder };
                rows.push(self.outcome(index, *outcome, mode));
            }
        }
        rows
    }

    fn report(&mut self, chosen: &[(usize, Outcome, bool)]) -> Outcomes {
        let rows = self.rows(chosen);
        let reported = sound(self.session.report(&rows))?;
        prop_assert_eq!(reported.rows, self.model.report(&rows));
        Ok(())
    }

    fn renew(&mut self, number: usize) -> Outcomes {
        let Some((_, Attempt { lease, owner })) = self.attempt(number) else { return Ok(()) };
        let renewal = sound(self.session.renew(owner, &[lease], LEASE))?;
        prop_assert_eq!(renewal.rows, [self.model.renew(owner, lease, LEASE)]);
        Ok(())
    }

    fn hand_back(&mut self, number: usize) -> Outcomes {
        let Some((_, Attempt { lease, owner })) = self.attempt(number) else { return Ok(()) };
        let given = sound(self.session.hand_back(owner, &[lease]))?;
        prop_assert_eq!(given.rows, [self.model.hand_back(owner, lease)]);
        Ok(())
    }

    fn reap(&mut self, outcome: Outcome) -> Outcomes {
        let queues = QUEUES.map(str::to_owned);
        let found = sound(self.session.find_lapsed(&queues, 100))?.jobs.into_iter();
        let mut found: Vec<_> = found
            .map(|job| (job.expiry, LeaseRef { job: job.id, attempt: job.attempt }, job.owner))
            .collect();
        prop_assert!(found.windows(2).all(|pair| pair[0].0 <= pair[1].0), "longest dead first");
        found.sort_by_key(|(expiry, lease, _)| (*expiry, lease.job));
        prop_assert_eq!(&found, &self.model.lapsed());
        let rows: Vec<_> = found
            .iter()
            .filter_map(|(_, lease, owner)| {
                let same = |attempt: &Attempt| attempt.lease == *lease && attempt.owner == *owner;
                let index = self.attempts.iter().rposition(same)?;
                Some(self.outcome(index, outcome, Mode::Reap))
            })
            .collect();
        let reported = sound(self.session.report(&rows))?;
        prop_assert_eq!(reported.rows, self.model.report(&rows));
        Ok(())
    }

    fn cancel(&mut self, id: JobId) -> Outcomes {
        let answer = sound(self.session.request_cancel(ACTOR, id))?;
        prop_assert_eq!(answer, self.model.cancel(id));
        Ok(())
    }

    fn requeue(&mut self, id: JobId) -> Outcomes {
        let answer = sound(self.session.requeue(ACTOR, id))?;
        prop_assert_eq!(answer, self.model.requeue(id));
        Ok(())
    }

    fn bulk(
        &mut self,
        cancels: bool,
        filter: &JobFilter,
        after: Option<JobId>,
        max: u32,
    ) -> Outcomes {
        let change = if cancels { BulkChange::Cancel } else { BulkChange::Requeue };
        let answer = sound(self.session.change_matching(ACTOR, change, filter, after, max))?;
        let expected = self.model.bulk(change, filter, after, max);
        prop_assert_eq!((answer.changed, answer.next), expected);
        Ok(())
    }

    fn change_queue(&mut self, queue: &str, change: QueueChange) -> Outcomes {
        let answer = sound(self.session.change_queue(ACTOR, queue, change))?;
        let expected = self.model.change_queue(queue, change);
        prop_assert_eq!((answer.settings, answer.changed), expected);
        Ok(())
    }

    fn revoke(&mut self, owner: WorkerId, max: u32) -> Outcomes {
        let revoked = sound(self.session.revoke(ACTOR, owner, max))?;
        let left = self.model.held_by(owner).len().saturating_sub(max as usize);
        prop_assert_eq!(revoked.jobs, self.model.revoke(owner, max));
        prop_assert!(revoked.more || left == 0, "more are left");
        Ok(())
    }

    /// Goes round until a whole round has taken nothing away: what goes in which round is the store's affair.
    fn purge(&mut self, keep: u8, spared: JobState, max: u32) -> Outcomes {
        let mut retention = Retention::forever();
        let keep_for = |state| (state != spared).then(|| Duration::from_secs(keep.into()));
        retention.succeeded = keep_for(JobState::Succeeded);
        retention.cancelled = keep_for(JobState::Cancelled);
        retention.dead_lettered = keep_for(JobState::DeadLettered);
        retention.quarantined = keep_for(JobState::Quarantined);
        let (mut gone, mut in_this_round, mut cursor) = (0, 0, PurgeCursor::default());
        for _ in 0..2_000 {
            let purge = Purge::new(retention, max).starting_at(cursor);
            let purged = sound(self.session.purge(&purge))?;
            prop_assert!(purged.jobs <= max, "more than asked for");
            (in_this_round, cursor) = (in_this_round + purged.jobs, purged.cursor);
            if !purged.more {
                if in_this_round == 0 {
                    prop_assert_eq!(gone, self.model.purge(&retention));
                    return Ok(());
                }
                (gone, in_this_round) = (gone + in_this_round, 0);
            }
        }
        Err(TestCaseError::fail("the purge does not come to an end"))
    }
}

fn quotas(plan: &[(usize, u32)]) -> Vec<QueueQuota> {
    let queue = |queue: usize| QUEUES[queue].to_owned();
    plan.iter().map(|(name, quota)| QueueQuota { queue: queue(*name), quota: *quota }).collect()
}

fn accepts() -> [Accepts; 1] {
    [Accepts { wire_name: "work".to_owned(), version_max: 1 }]
}

fn row(seed: &Seed) -> JobRow {
    let mut row = JobRow::new(job(seed.job), "work");
    row.queue = QUEUES[seed.queue].to_owned();
    row.parents = seed.parents.iter().copied().map(job).collect();
    row.parent_rule = if seed.any_end { ParentRule::OnAnyTerminal } else { ParentRule::OnSuccess };
    row.due = seed.delay.map_or(Due::Now, |delay| Due::In(Duration::from_secs(delay.into())));
    row.unique_key = seed.unique_key.map(|key| format!("u{key}"));
    row.concurrency_key = seed.concurrency_key.map(|key| format!("c{key}"));
    row.tags = if seed.tag { vec!["x".to_owned()] } else { Vec::new() };
    row
}
