//! Draws a plan from a seed.

use super::plan::{
    Act, CallKind, EnqueueFault, Fault, HintFault, JobPlan, Level, NodePlan, Order, Plan,
    QueuePlan, SCHEDULED, SchedulePlan,
};
use crate::testing::link::CallFault;
use crate::testing::mix;

/// Draws numbers, one after another.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) const fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = mix(self.0);
        self.0 % bound.max(1)
    }

    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least) + 1)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

impl Plan {
    /// The plan of a seed: how many machines and jobs, which kinds of faults and how many of them.
    #[must_use]
    pub fn draw(seed: u64, level: Level) -> Self {
        Self::draw_within(seed, level, 4, 60_000, [5, 20, 60, 150])
    }

    /// The same with at most so many nodes, ending at that time, and with one of these numbers of jobs.
    pub(super) fn draw_within(
        seed: u64,
        level: Level,
        nodes_max: u64,
        ends_max_ms: u64,
        jobs: [u32; 4],
    ) -> Self {
        let mut dice = Dice::new(seed ^ 0xb0a7);
        let ends_ms = dice.between(5_000, ends_max_ms);
        let nodes = 1 + dice.below(nodes_max) as usize;
        let queues = 1 + dice.below(2) as usize;
        let jobs = jobs[dice.below(4) as usize];
        let mut plan = Self {
            seed,
            level,
            ends_ms,
            strict: dice.chance(40),
            nodes: (0..nodes).map(|_| node(&mut dice, level)).collect(),
            queues: (0..queues).map(|_| queue(&mut dice)).collect(),
            jobs: Vec::new(),
            schedules: Vec::new(),
            faults: Vec::new(),
        };
        for n in 0..jobs {
            let job = job(&mut dice, n, &plan);
            plan.jobs.push(job);
        }
        plan.draw_handlers(&mut dice);
        if dice.chance(60) {
            plan.draw_orders(&mut dice);
        }
        if level != Level::Calm {
            plan.draw_troubles(&mut dice);
        }
        // Each kind from dice of its own: what a seed has drawn before stays as it is.
        plan.draw_keys(&mut Dice::new(seed ^ 0x6b65_7973));
        plan.draw_pumps(&mut Dice::new(seed ^ 0x7075_6d70));
        plan.draw_enqueues(&mut Dice::new(seed ^ 0x656e_7175));
        plan.draw_schedules(&mut Dice::new(seed ^ 0x7363_6865));
        plan
    }

    fn draw_handlers(&mut self, dice: &mut Dice) {
        // Swarm: each run leaves some kinds out.
        let kinds: Vec<u64> = (0..8).filter(|_| dice.chance(50)).collect();
        let often = dice.between(0, 60);
        for n in 0..self.jobs.len() as u32 {
            for attempt in 1..=4 {
                if kinds.is_empty() || !dice.chance(often) {
                    continue;
                }
                let kind = kinds[dice.below(kinds.len() as u64) as usize];
                let does = act(dice, kind);
                self.faults.push(Fault::Handler { job: n, attempt, does });
            }
        }
    }

    fn draw_orders(&mut self, dice: &mut Dice) {
        let jobs = self.jobs.len() as u64;
        for _ in 0..dice.below(12) {
            let job = dice.below(jobs) as u32;
            let queue = dice.below(self.queues.len() as u64) as usize;
            let for_ms = dice.between(100, 15_000);
            let order = match dice.below(5) {
                0 | 1 => Order::Cancel { job },
                2 => Order::Requeue { job },
                3 => Order::Hold { queue, for_ms },
                _ => Order::Limit { queue, limit: dice.below(4) as u32, for_ms },
            };
            self.faults.push(Fault::Operator { at_ms: dice.below(self.ends_ms), order });
        }
    }

    fn draw_keys(&mut self, dice: &mut Dice) {
        let jobs = self.jobs.len() as u64;
        if dice.chance(40) {
            let (keys, often) = (dice.between(1, 4), dice.between(10, 90));
            for job in &mut self.jobs {
                job.key = dice.chance(often).then(|| dice.below(keys) as u32);
            }
            for queue in &mut self.queues {
                queue.key_limit = dice.chance(40).then(|| dice.between(1, 3) as u32);
            }
            for _ in 0..dice.below(4) {
                let queue = dice.below(self.queues.len() as u64) as usize;
                let (limit, for_ms) = (dice.below(4) as u32, dice.between(100, 15_000));
                let order = Order::KeyLimit { queue, limit, for_ms };
                self.faults.push(Fault::Operator { at_ms: dice.below(self.ends_ms), order });
            }
        }
        if dice.chance(40) {
            let (keys, often) = (dice.between(1, jobs.div_ceil(3)), dice.between(10, 60));
            for job in &mut self.jobs {
                job.unique = dice.chance(often).then(|| dice.below(keys) as u32);
            }
        }
    }

    fn draw_pumps(&mut self, dice: &mut Dice) {
        for node in &mut self.nodes {
            node.pumps = if dice.chance(25) { dice.between(2, 3) as u32 } else { 1 };
            node.prefetches = dice.chance(30);
        }
    }

    fn draw_enqueues(&mut self, dice: &mut Dice) {
        if self.level == Level::Calm || !dice.chance(40) {
            return;
        }
        let often = dice.between(5, 60);
        for n in 0..self.jobs.len() as u32 {
            if dice.chance(often) {
                let fault = match dice.below(3) {
                    0 => EnqueueFault::LostBefore,
                    1 => EnqueueFault::LostAfter,
                    _ => EnqueueFault::Late { ms: dice.between(1, 4_000) },
                };
                self.faults.push(Fault::Enqueue { job: n, fault });
            }
        }
    }

    fn draw_schedules(&mut self, dice: &mut Dice) {
        if !dice.chance(35) {
            return;
        }
        let count = dice.between(1, 3) as u32;
        for n in 0..count {
            self.schedules.push(SchedulePlan {
                n,
                at_ms: dice.below(self.ends_ms / 2),
                every_s: dice.between(1, 8),
                queue: dice.below(self.queues.len() as u64) as usize,
                no_overlap: dice.chance(50),
                grace_s: dice.chance(50).then(|| dice.between(1, 10)),
            });
            // What its jobs do, now and then.
            for attempt in 1..=3 {
                if dice.chance(25) {
                    let kind = dice.below(8);
                    let (job, does) = (SCHEDULED + n, act(dice, kind));
                    self.faults.push(Fault::Handler { job, attempt, does });
                }
            }
        }
        for _ in 0..dice.below(4) {
            let schedule = dice.below(u64::from(count)) as u32;
            let order = match dice.below(6) {
                0 | 1 => Order::TriggerSchedule { schedule },
                2 => Order::RemoveSchedule { schedule },
                _ => Order::PauseSchedule { schedule, for_ms: dice.between(100, 15_000) },
            };
            self.faults.push(Fault::Operator { at_ms: dice.below(self.ends_ms), order });
        }
        if self.level == Level::Calm {
            return;
        }
        for _ in 0..dice.below(10) {
            let node = dice.below(self.nodes.len() as u64) as usize;
            let call = if dice.chance(30) { CallKind::DueSchedules } else { CallKind::Mint };
            let (nth, fault) = (dice.below(12), call_fault(dice));
            self.faults.push(Fault::Call { node, call, nth, fault });
        }
    }

    fn draw_troubles(&mut self, dice: &mut Dice) {
        let kinds: Vec<u64> = (0..8).filter(|_| dice.chance(45)).collect();
        for _ in 0..dice.between(1, 25) {
            if kinds.is_empty() {
                return;
            }
            let kind = kinds[dice.below(kinds.len() as u64) as usize];
            let fault = self.trouble(dice, kind);
            self.faults.push(fault);
        }
    }

    fn trouble(&self, dice: &mut Dice, kind: u64) -> Fault {
        let node = dice.below(self.nodes.len() as u64) as usize;
        let at_ms = dice.below(self.ends_ms);
        let heals = self.level == Level::Healing || dice.chance(60);
        match kind {
            0 | 1 => {
                let call = CallKind::USUAL[dice.below(8) as usize];
                // So that most of them come to pass: a run makes about so many.
                let jobs = self.jobs.len() as u64;
                let most = match call {
                    CallKind::Claim | CallKind::Exchange => jobs.clamp(6, 120),
                    _ => (jobs / 2).clamp(4, 15),
                };
                Fault::Call { node, call, nth: dice.below(most), fault: call_fault(dice) }
            }
            2 => Fault::Crash { node, at_ms, down_ms: heals.then(|| dice.between(0, 20_000)) },
            3 => Fault::Isolate { node, at_ms, for_ms: heals.then(|| dice.between(50, 25_000)) },
            4 => Fault::Pause {
                node,
                at_ms,
                for_ms: dice.between(50, 25_000),
                suspends: dice.chance(40),
            },
            5 => Fault::Stop { node, at_ms, back_ms: heals.then(|| dice.between(0, 10_000)) },
            6 => {
                let fault = match dice.below(3) {
                    0 => HintFault::Lost,
                    1 => HintFault::Doubled,
                    _ => HintFault::Late { ms: dice.between(1, 5_000) },
                };
                Fault::Hint { node, nth: dice.below(60), fault }
            }
            _ if dice.chance(50) => Fault::Operator { at_ms, order: Order::Revoke { node } },
            _ => Fault::StoreClock { at_ms, by_ms: dice.between(0, 20_000) as i64 - 5_000 },
        }
    }
}

fn node(dice: &mut Dice, level: Level) -> NodePlan {
    let drifts = level != Level::Calm;
    NodePlan {
        workers: dice.between(1, 4) as u32,
        drift_ppm: if drifts { dice.between(0, 4_000) as i64 - 2_000 } else { 0 },
        wall_ahead_ms: if drifts { dice.between(0, 240_000) as i64 - 120_000 } else { 0 },
        pumps: 1,
        prefetches: false,
    }
}

fn queue(dice: &mut Dice) -> QueuePlan {
    QueuePlan { limit: dice.chance(30).then(|| dice.between(1, 3) as u32), key_limit: None }
}

fn job(dice: &mut Dice, n: u32, plan: &Plan) -> JobPlan {
    let family = n > 0 && dice.chance(25);
    let mut parents = Vec::new();
    for _ in 0..if family { dice.between(1, 3) } else { 0 } {
        let parent = n - 1 - dice.below(u64::from(n.min(8))) as u32;
        if !parents.contains(&parent) {
            parents.push(parent);
        }
    }
    // No job comes before its parents.
    let earliest = parents.iter().map(|parent| plan.jobs[*parent as usize].at_ms).max();
    let earliest = earliest.unwrap_or(0);
    JobPlan {
        n,
        at_ms: earliest + dice.below((plan.ends_ms * 3 / 4).saturating_sub(earliest)),
        queue: dice.below(plan.queues.len() as u64) as usize,
        delay_ms: if dice.chance(30) { dice.below(8_000) } else { 0 },
        failures_max: dice.between(1, 4) as u32,
        retry_ms: dice.between(1, 3_000),
        timeout_ms: dice.chance(20).then(|| dice.between(50, 2_000)),
        parents,
        on_any_end: dice.chance(40),
        unique: None,
        key: None,
    }
}

fn act(dice: &mut Dice, kind: u64) -> Act {
    match kind {
        0 => Act::Fail,
        1 => Act::Panic,
        2 => Act::Discard,
        3 => Act::CallOff,
        4 => Act::Snooze { ms: dice.between(1, 4_000) },
        5 => Act::RetryIn { ms: dice.between(1, 4_000) },
        6 => Act::Slow { ms: dice.between(200, 12_000) },
        _ => Act::Deaf { ms: dice.between(200, 12_000) },
    }
}

fn call_fault(dice: &mut Dice) -> CallFault {
    match dice.below(9) {
        0 => CallFault::Refused,
        1 => CallFault::LostBefore,
        2 | 3 => CallFault::LostAfter,
        4 => CallFault::Late { ms: dice.between(1, 4_000) as u32 },
        5 | 6 => CallFault::Slow { ms: dice.between(10, 9_000) as u32 },
        7 => CallFault::CrashBefore,
        _ => CallFault::CrashAfter,
    }
}
