//! From which queues a claim takes, and how much from each. Integer credits, never chance.

use crate::store::QueueQuota;

/// How a group divides its workers among its queues.
///
/// ```
/// use backwave::DispatchPolicy;
///
/// let strict = DispatchPolicy::strict(["urgent", "bulk"]);
/// let shared = DispatchPolicy::weighted([("mail", 3), ("reports", 1)]);
/// assert_eq!(strict.queues().collect::<Vec<_>>(), ["urgent", "bulk"]);
/// assert_eq!(shared.queues().count(), 2);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DispatchPolicy {
    /// In order: a queue is asked only for what those before it did not have. A busy first queue
    /// starves the others, by intent.
    Strict(Vec<String>),
    /// By weight: over any full period each queue gets its share exactly, as long as all have work.
    /// What a queue does not use goes to the others; nothing is saved up for it.
    Weighted(Vec<(String, u32)>),
}

impl DispatchPolicy {
    /// Strict order.
    pub fn strict<Q: Into<String>>(queues: impl IntoIterator<Item = Q>) -> Self {
        Self::Strict(queues.into_iter().map(Into::into).collect())
    }

    /// Shares by weight.
    pub fn weighted<Q: Into<String>>(queues: impl IntoIterator<Item = (Q, u32)>) -> Self {
        Self::Weighted(queues.into_iter().map(|(queue, weight)| (queue.into(), weight)).collect())
    }

    /// The queues, in order.
    pub fn queues(&self) -> impl Iterator<Item = &str> {
        let (strict, weighted) = match self {
            Self::Strict(queues) => (queues.as_slice(), [].as_slice()),
            Self::Weighted(queues) => ([].as_slice(), queues.as_slice()),
        };
        strict.iter().chain(weighted.iter().map(|(queue, _)| queue)).map(String::as_str)
    }
}

/// Plans claims under a policy. For weights it is smooth weighted round robin: each slot is given to
/// the queue with the most credit, which then pays the sum of all weights.
#[derive(Debug, Clone)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Dispatcher {
    lanes: Vec<Lane>,
    weighted: bool,
}

#[derive(Debug, Clone)]
#[cfg_attr(test, derive(Hash))]
struct Lane {
    queue: String,
    weight: i64,
    credit: i64,
    quota: u32,
}

impl Dispatcher {
    pub(crate) fn new(policy: &DispatchPolicy) -> Self {
        let lane = |queue: &String, weight: u32| Lane {
            queue: queue.clone(),
            weight: i64::from(weight),
            credit: 0,
            quota: 0,
        };
        match policy {
            DispatchPolicy::Strict(queues) => {
                Self { lanes: queues.iter().map(|queue| lane(queue, 1)).collect(), weighted: false }
            }
            DispatchPolicy::Weighted(queues) => Self {
                lanes: queues.iter().map(|(queue, weight)| lane(queue, *weight)).collect(),
                weighted: true,
            },
        }
    }

    /// Divides `total` slots. Every queue is in the plan, so that the spill pass reaches all of them;
    /// the one that is owed most comes first.
    pub(crate) fn plan(&mut self, total: u32) -> Vec<QueueQuota> {
        if !self.weighted {
            let quota = |lane: &Lane| QueueQuota { queue: lane.queue.clone(), quota: total };
            return self.lanes.iter().map(quota).collect();
        }
        self.share(total);
        let mut order: Vec<&Lane> = self.lanes.iter().collect();
        order.sort_by_key(|lane| {
            (std::cmp::Reverse(lane.quota > 0), std::cmp::Reverse(lane.credit))
        });
        order
            .into_iter()
            .map(|lane| QueueQuota { queue: lane.queue.clone(), quota: lane.quota })
            .collect()
    }

    fn share(&mut self, total: u32) {
        let sum: i64 = self.lanes.iter().map(|lane| lane.weight).sum();
        for lane in &mut self.lanes {
            lane.quota = 0;
        }
        for _ in 0..total {
            for lane in &mut self.lanes {
                lane.credit += lane.weight;
            }
            // The first of those with the most credit, so that equal weights alternate in order.
            let Some(next) = self.lanes.iter_mut().rev().max_by_key(|lane| lane.credit) else {
                return;
            };
            next.credit -= sum;
            next.quota += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn shares(dispatcher: &mut Dispatcher, claims: u32, total: u32) -> BTreeMap<String, u32> {
        let mut sums = BTreeMap::new();
        for _ in 0..claims {
            for quota in dispatcher.plan(total) {
                *sums.entry(quota.queue).or_default() += quota.quota;
            }
        }
        sums
    }

    #[test]
    fn weights_are_exact_over_a_period_whatever_the_size_of_the_claims() {
        for total in [1, 2, 4, 20] {
            let policy = DispatchPolicy::weighted([("a", 5), ("b", 3), ("c", 2)]);
            let sums = shares(&mut Dispatcher::new(&policy), 100 / total * 10, total);
            let expected = [("a", 500), ("b", 300), ("c", 200)];
            assert_eq!(sums, expected.map(|(q, n)| (q.to_owned(), n)).into(), "claims of {total}");
        }
    }

    #[test]
    fn equal_weights_alternate() {
        let policy = DispatchPolicy::weighted([("a", 1), ("b", 1)]);
        let mut dispatcher = Dispatcher::new(&policy);
        let firsts: Vec<_> = (0..4).map(|_| dispatcher.plan(1)[0].queue.clone()).collect();
        assert_eq!(firsts, ["a", "b", "a", "b"]);
    }

    #[test]
    fn a_strict_plan_asks_every_queue_for_all_in_order() {
        let mut dispatcher = Dispatcher::new(&DispatchPolicy::strict(["a", "b"]));
        let plan = dispatcher.plan(7);
        assert_eq!(
            plan.iter().map(|q| (q.queue.as_str(), q.quota)).collect::<Vec<_>>(),
            [("a", 7), ("b", 7)]
        );
    }

    #[test]
    fn every_queue_is_in_a_weighted_plan_so_that_spill_reaches_it() {
        let policy = DispatchPolicy::weighted([("a", 100), ("b", 1)]);
        assert_eq!(Dispatcher::new(&policy).plan(1).len(), 2);
    }
}
