//! Random histories, after each step of which all that the store keeps of its jobs must agree.

use super::{child_of, open};
use crate::store::memory::MemoryStore;
use crate::store::memory::state::State;
use crate::store::{
    Accepts, BulkChange, Claim, ClaimedJob, HistoryPolicy, JobFilter, JobRow, LeaseRef, Outcome,
    OutcomeRow, ParentRule, Purge, QueueChange, QueueQuota, Receipt, Retention,
};
use crate::{JobId, JobState, Timestamp, WorkerId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

const LEASE: Duration = Duration::from_micros(50);
const LIMIT: u32 = 3;

/// Marsaglia's xorshift: the same seed, the same history.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

struct World {
    store: MemoryStore,
    clock: Arc<AtomicI64>,
    dice: Dice,
    jobs: Vec<JobId>,
    held: Vec<ClaimedJob>,
    sequence: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let clock = Arc::new(AtomicI64::new(1_000));
        let read = Arc::clone(&clock);
        let now = move || Timestamp::from_micros(read.load(Ordering::Relaxed));
        let store = MemoryStore::builder().clock(now).history(HistoryPolicy::Transitions).build();
        open(&store).change_queue("ada", "default", QueueChange::Limit(Some(LIMIT))).unwrap();
        let dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        Self { store, clock, dice, jobs: Vec::new(), held: Vec::new(), sequence: 0 }
    }

    fn step(&mut self) {
        self.clock.fetch_add(self.dice.below(20) as i64, Ordering::Relaxed);
        match self.dice.below(16) {
            0..=4 => self.enqueue(),
            5..=7 => self.claim(),
            8..=10 => self.report(),
            11 => self.hand_back(),
            12 => drop(open(&self.store).request_cancel("ada", self.any()).unwrap()),
            13 => drop(open(&self.store).requeue("ada", self.any()).unwrap()),
            14 => self.bulk(),
            _ => self.upkeep(),
        }
    }

    /// A job that was accepted once, or none that ever was.
    fn any(&mut self) -> JobId {
        let count = self.jobs.len() + 1;
        self.jobs.get(self.dice.below(count)).copied().unwrap_or_default()
    }

    fn enqueue(&mut self) {
        let parents: Vec<_> = (0..self.dice.below(4)).map(|_| self.any()).collect();
        let mut row =
            if parents.is_empty() { JobRow::new(JobId::new(), "work") } else { child_of(&parents) };
        if self.dice.below(2) == 0 {
            row.parent_rule = ParentRule::OnAnyTerminal;
        }
        if self.dice.below(2) == 0 {
            row.queue = "free".to_owned();
        }
        open(&self.store).enqueue(std::slice::from_ref(&row)).unwrap();
        self.jobs.push(row.id);
    }

    fn claim(&mut self) {
        let plan =
            ["default", "free"].map(|queue| QueueQuota { queue: queue.to_owned(), quota: 2 });
        let accepts = [Accepts { wire_name: "work".to_owned(), version_max: 1 }];
        let claim = Claim::new(WorkerId::new(), 4, &plan, &accepts, LEASE);
        self.held.extend(open(&self.store).claim(&claim).unwrap().jobs);
    }

    fn taken(&mut self) -> Option<ClaimedJob> {
        let index = self.dice.below(self.held.len() + 1);
        (index < self.held.len()).then(|| self.held.swap_remove(index))
    }

    fn report(&mut self) {
        let Some(job) = self.taken() else { return };
        let outcomes = [
            Outcome::Succeeded,
            Outcome::Succeeded,
            Outcome::DeadLettered,
            Outcome::Quarantined,
            Outcome::Cancelled,
            Outcome::Retry { after: Duration::from_micros(5) },
        ];
        let outcome = outcomes[self.dice.below(outcomes.len())];
        self.sequence += 1;
        let owner = job.owner.unwrap();
        let receipt = Receipt { pump: owner, sequence: self.sequence };
        let mut row = OutcomeRow::new(job.id, job.attempt, owner, receipt, outcome);
        if self.dice.below(3) == 0 {
            row.mode = crate::store::Mode::Reap;
        }
        open(&self.store).report(&[row]).unwrap();
    }

    fn hand_back(&mut self) {
        let Some(job) = self.taken() else { return };
        let lease = LeaseRef { job: job.id, attempt: job.attempt };
        open(&self.store).hand_back(job.owner.unwrap(), &[lease]).unwrap();
    }

    fn bulk(&mut self) {
        let change = if self.dice.below(3) == 0 { BulkChange::Cancel } else { BulkChange::Requeue };
        let filter = JobFilter::new().queue("free");
        open(&self.store).change_matching("ada", change, &filter, None, 2).unwrap();
        if let Some(job) = self.held.first() {
            open(&self.store).revoke("ada", job.owner.unwrap(), 1).unwrap();
        }
    }

    fn upkeep(&mut self) {
        let kept = Some(Duration::from_micros(100));
        let retention = Retention {
            succeeded: kept,
            cancelled: kept,
            dead_lettered: kept,
            quarantined: kept,
            transitions_per_job: 4,
            ..Retention::forever()
        };
        let max = 1 + self.dice.below(8) as u32;
        open(&self.store).purge(&Purge::new(retention, max)).unwrap();
        open(&self.store).work_off_latches(max).unwrap();
    }

    fn check(&self) {
        let guarded = self.store.inner.state.lock();
        let state = guarded.intact().unwrap();
        check_latches(state);
        check_indexes(state);
        let transitions: usize = state.jobs.iter().flatten().map(|job| job.history.len()).sum();
        assert_eq!(state.log.beyond(0).count(), transitions);
        let leased = state.index.queue("default").map(|queue| state.index.leased_count(queue));
        assert!(leased.unwrap_or(0) <= u64::from(LIMIT), "{leased:?} are leased");
    }
}

/// A job waits exactly as long as a gate holds it back, and gates are of parents that live.
fn check_latches(state: &State) {
    let mut children: BTreeMap<JobId, usize> = BTreeMap::new();
    for job in state.jobs.iter().flatten() {
        let gates: Vec<_> =
            job.parents.iter().filter(|parent| state.latches.is_closed(**parent, job.id)).collect();
        assert_eq!(job.life.state == JobState::AwaitingParent, !gates.is_empty(), "{}", job.id);
        for parent in gates {
            let (_, life) = state.life(*parent).expect("a parent is kept");
            assert!(!life.state.is_terminal(), "{parent} has ended and holds {} back", job.id);
        }
        for parent in &job.parents {
            assert!(state.find(*parent).is_some(), "{parent} is a parent and gone");
            *children.entry(*parent).or_default() += 1;
        }
    }
    for job in state.jobs.iter().flatten() {
        assert_eq!(state.latches.is_parent(job.id), children.contains_key(&job.id));
    }
    assert!(state.latches.notes().is_empty());
}

/// Every job is where its state says, and nothing else is.
fn check_indexes(state: &State) {
    let mut counts: BTreeMap<JobState, u64> = BTreeMap::new();
    for (slot, job) in state.jobs.iter().enumerate() {
        let Some(job) = job else { continue };
        assert_eq!(state.by_id.get(&job.id), Some(&slot));
        let life = job.life;
        *counts.entry(life.state).or_default() += 1;
        assert_eq!(life.state == JobState::Leased, life.hold.is_some());
        assert_eq!(life.state.is_terminal(), life.finished_at.is_some());
    }
    assert_eq!(state.by_id.len(), state.jobs.iter().flatten().count());
    let told = state.index.counts();
    for (in_state, count) in counts {
        let told = told.iter().filter(|told| told.state == in_state);
        assert_eq!(told.map(|told| told.count).sum::<u64>(), count, "{in_state}");
        if in_state.is_terminal() {
            assert_eq!(state.index.ended(in_state, None).count() as u64, count);
        }
    }
}

#[test]
fn whatever_happens_all_that_is_kept_of_the_jobs_agrees() {
    for seed in 1..=30 {
        let mut world = World::new(seed);
        for _ in 0..250 {
            world.step();
            world.check();
        }
    }
}
