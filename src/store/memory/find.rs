//! Finding jobs by what they are.
//!
//! Pages go along the ids. Where only jobs are wanted that an operator has to look after (Dead-Lettered,
//! Quarantined), they go along an index of those, so that the few are found among any number that succeeded.

use super::index::Index;
use super::state::{Job, State, Trouble};
use crate::store::{Found, JobFilter, Page};
use crate::{JobState, Timestamp};
use std::iter;
use std::ops::Bound;

/// A filter, and which of its states are meant.
pub(super) struct Wanted<'a> {
    filter: &'a JobFilter,
    states: Vec<JobState>,
}

impl<'a> Wanted<'a> {
    pub(super) fn new(filter: &'a JobFilter) -> Self {
        let any = filter.states.is_empty();
        let states = if any { JobState::ALL.to_vec() } else { filter.states.clone() };
        Self { filter, states }
    }

    /// Of these states at most.
    pub(super) fn only(mut self, states: &[JobState]) -> Self {
        self.states.retain(|state| states.contains(state));
        self
    }

    fn is(&self, state: &State, job: &Job) -> bool {
        let filter = self.filter;
        let name = state.index.name(job.place);
        let finished = |is: &dyn Fn(Timestamp) -> bool| job.life.finished_at.is_some_and(is);
        self.states.contains(&job.life.state)
            && filter.queue.as_ref().is_none_or(|queue| queue == name.queue)
            && filter.wire_name.as_ref().is_none_or(|wire_name| wire_name == name.wire_name)
            && filter.tag.as_ref().is_none_or(|tag| job.tags.contains(tag))
            && filter.concurrency_key.as_ref().is_none_or(|key| job.keys.is_concurrent(key))
            && filter.created_from.is_none_or(|from| job.created_at >= from)
            && filter.created_before.is_none_or(|before| job.created_at < before)
            && filter.finished_from.is_none_or(|from| finished(&|at| at >= from))
            && filter.finished_before.is_none_or(|before| finished(&|at| at < before))
    }
}

/// The page of jobs that a filter matches.
pub(super) fn page(state: &State, filter: &JobFilter, page: Page) -> Result<Found, Trouble> {
    let limit = page.bounded_limit() as usize;
    let wanted = Wanted::new(filter);
    let jobs = matching(state, &wanted, page).take(limit).collect::<Result<Vec<_>, _>>()?;
    let next = jobs.last().filter(|_| jobs.len() == limit).map(|job| job.id);
    Ok(Found::new(jobs.into_iter().map(|job| state.whole(job)).collect(), next))
}

/// The jobs that are wanted, in the order of the page and beyond its beginning.
pub(super) fn matching<'a>(
    state: &'a State,
    wanted: &'a Wanted<'_>,
    page: Page,
) -> impl Iterator<Item = Result<&'a Job, Trouble>> + 'a {
    let few = wanted.states.iter().all(|state| Index::sets_aside(*state));
    let ids = if few { state.index.set_aside() } else { &state.by_id };
    let beyond = page.after.map_or(Bound::Unbounded, Bound::Excluded);
    // A unique key leads to its holder, whatever else is wanted of it.
    let mut holder = wanted.filter.unique_key.as_ref().map(|key| {
        let found = state.index.holder(key);
        found.filter(|(id, _)| match (page.after, page.newest_first) {
            (None, _) => true,
            (Some(after), false) => *id > after,
            (Some(after), true) => *id < after,
        })
    });
    let mut range = ids.range(match page.newest_first {
        true => (Bound::Unbounded, beyond),
        false => (beyond, Bound::Unbounded),
    });
    let entries = iter::from_fn(move || {
        if let Some(holder) = &mut holder {
            return holder.take();
        }
        let next = if page.newest_first { range.next_back() } else { range.next() };
        next.map(|(id, slot)| (*id, *slot))
    });
    let jobs = entries.map(|named| state.indexed(named));
    jobs.filter(|job| job.as_ref().map_or(true, |job| wanted.is(state, job)))
}
