//! The log of changes of state.
//!
//! Each transition is kept with its job; the log knows, in order of positions, whose each is, so that
//! trimming can go over it page by page.

use super::state::{Job, Life, Moment};
use crate::JobId;
use crate::store::{HistoryPolicy, Transition, TransitionBy};
use std::collections::BTreeMap;
use std::ops::Bound;

#[derive(Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Log {
    last: u64,
    owners: BTreeMap<u64, JobId>,
}

impl Log {
    /// Notes how a job's state has changed, if it has and if the policy of the moment keeps it.
    /// `before` is the life it had, none for a birth; `detail` what the change says went wrong.
    pub(super) fn note(
        &mut self,
        job: &mut Job,
        before: Option<Life>,
        by: TransitionBy,
        detail: Option<&str>,
        moment: Moment,
    ) {
        let from = before.map(|life| life.state);
        if moment.history == HistoryPolicy::Off || from == Some(job.life.state) {
            return;
        }
        self.last += 1;
        let (to, attempt) = (job.life.state, job.life.attempt);
        let hold = job.life.hold.or_else(|| before.and_then(|life| life.hold));
        let keeps_detail = moment.history == HistoryPolicy::WithFailureDetail;
        job.history.push_back(Transition {
            worker: hold.map(|(owner, _)| owner),
            detail: detail.filter(|_| keeps_detail).map(str::to_owned),
            ..Transition::new(self.last, moment.at, from, to, attempt, by)
        });
        self.owners.insert(self.last, job.id);
    }

    /// The position of the newest transition.
    pub(super) const fn last(&self) -> u64 {
        self.last
    }

    /// Whose the transitions beyond `position` are, in order.
    pub(super) fn beyond(&self, position: u64) -> impl Iterator<Item = (u64, JobId)> + '_ {
        let range = (Bound::Excluded(position), Bound::Unbounded);
        self.owners.range(range).map(|(position, job)| (*position, *job))
    }

    /// Takes the oldest `count` transitions of a job away. Whether they were all there.
    #[must_use]
    pub(super) fn forget(&mut self, job: &mut Job, count: usize) -> bool {
        let count = count.min(job.history.len());
        let mut oldest = job.history.drain(..count);
        oldest.all(|transition| self.owners.remove(&transition.position).is_some())
    }
}
