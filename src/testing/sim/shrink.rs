//! Makes of a plan that fails the smallest one that still does.

use super::plan::{Fault, Order, Plan};

/// Takes away faults, jobs and nodes as long as `fails` says that the same goes wrong; how many plans were tried.
/// `fails` runs a plan and tells which oracle saw something, if one did.
///
/// ```
/// use backwave::testing::sim::{Level, Plan, run, shrink};
///
/// // Something that a plan may do and nobody minds, to have something to look for.
/// let plan = Plan::draw(3, Level::Healing);
/// let (small, tried) = shrink(&plan, |plan| (plan.size().0 > 2).then_some("too many jobs"));
/// assert_eq!(small.size(), (3, 0));
/// assert!(tried > 0);
/// ```
pub fn shrink(plan: &Plan, fails: impl Fn(&Plan) -> Option<&'static str>) -> (Plan, u32) {
    shrink_within(plan, TRIES_MAX, fails)
}

/// The same with at most so many tries.
pub(super) fn shrink_within(
    plan: &Plan,
    tries: u32,
    fails: impl Fn(&Plan) -> Option<&'static str>,
) -> (Plan, u32) {
    let mut search = Search { best: plan.clone(), oracle: fails(plan), tried: 0, tries, fails };
    if search.oracle.is_some() {
        while search.round() {}
    }
    (search.best, search.tried)
}

struct Search<F> {
    best: Plan,
    oracle: Option<&'static str>,
    tried: u32,
    tries: u32,
    fails: F,
}

impl<F: Fn(&Plan) -> Option<&'static str>> Search<F> {
    /// Whether it has become smaller.
    fn round(&mut self) -> bool {
        let before = self.best.clone();
        self.fewer(|plan| plan.faults.len(), |plan, from, to| drop(plan.faults.drain(from..to)));
        self.fewer(|plan| plan.jobs.len(), Plan::drop_jobs);
        self.fewer(
            |plan| plan.schedules.len(),
            |plan, from, to| drop(plan.schedules.drain(from..to)),
        );
        while self.best.nodes.len() > 1 && self.attempt(Plan::without_last_node(&self.best)) {}
        self.best != before
    }

    /// Takes away halves, quarters and so on down to single ones.
    fn fewer(&mut self, count: impl Fn(&Plan) -> usize, take: impl Fn(&mut Plan, usize, usize)) {
        let mut width = count(&self.best).div_ceil(2);
        while width > 0 {
            let mut from = 0;
            while from < count(&self.best) {
                let to = (from + width).min(count(&self.best));
                let mut plan = self.best.clone();
                take(&mut plan, from, to);
                if !self.attempt(plan) {
                    from = to;
                }
            }
            width = if width == 1 { 0 } else { width.div_ceil(2) };
        }
    }

    fn attempt(&mut self, plan: Plan) -> bool {
        if self.tried >= self.tries {
            return false;
        }
        self.tried += 1;
        let fails = (self.fails)(&plan) == self.oracle;
        if fails {
            self.best = plan;
        }
        fails
    }
}

impl Plan {
    fn drop_jobs(&mut self, from: usize, to: usize) {
        let gone: Vec<u32> = self.jobs.drain(from..to).map(|job| job.n).collect();
        for job in &mut self.jobs {
            job.parents.retain(|parent| !gone.contains(parent));
        }
        self.faults.retain(|fault| match fault {
            Fault::Handler { job, .. }
            | Fault::Enqueue { job, .. }
            | Fault::Operator { order: Order::Cancel { job } | Order::Requeue { job }, .. } => {
                !gone.contains(job)
            }
            _ => true,
        });
    }

    fn without_last_node(&self) -> Self {
        let mut plan = self.clone();
        plan.nodes.pop();
        let nodes = plan.nodes.len();
        plan.faults.retain(|fault| match fault {
            Fault::Call { node, .. }
            | Fault::Crash { node, .. }
            | Fault::Isolate { node, .. }
            | Fault::Pause { node, .. }
            | Fault::Stop { node, .. }
            | Fault::Hint { node, .. }
            | Fault::Operator { order: Order::Revoke { node }, .. } => *node < nodes,
            Fault::Handler { .. }
            | Fault::Enqueue { .. }
            | Fault::Operator { .. }
            | Fault::StoreClock { .. } => true,
        });
        plan
    }
}

const TRIES_MAX: u32 = 2_000;
