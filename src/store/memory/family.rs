//! Whom a job depends or depended on.

use super::latch::missing;
use super::state::{Job, State, Trouble};
use crate::JobId;
use crate::store::ParentRecord;
use std::collections::{BTreeSet, VecDeque};

/// The parents of a job, in the order in which it was enqueued with them.
pub(super) fn parents(state: &State, job: JobId) -> Result<Vec<ParentRecord>, Trouble> {
    let Some(job) = state.find(job) else {
        return Ok(Vec::new());
    };
    let parents = job.parents.iter();
    parents.map(|parent| Ok(record(state, job.id, known(state, *parent)?))).collect()
}

/// `ancestor`, where it is one of `job`. Looks at the nearer ones first, and at each once, however
/// many ways lead to it.
pub(super) fn ancestor(
    state: &State,
    job: JobId,
    ancestor: JobId,
) -> Result<Option<ParentRecord>, Trouble> {
    let mut seen = BTreeSet::new();
    let mut next: VecDeque<_> = state.find(job).into_iter().collect();
    while let Some(child) = next.pop_front() {
        for parent in child.parents.iter().copied().filter(|parent| seen.insert(*parent)) {
            let parent = known(state, parent)?;
            if parent.id == ancestor {
                return Ok(Some(record(state, job, parent)));
            }
            next.push_back(parent);
        }
    }
    Ok(None)
}

/// A job that another names as its parent, and which therefore is kept.
fn known(state: &State, parent: JobId) -> Result<&Job, Trouble> {
    state.find(parent).ok_or_else(|| missing(parent))
}

fn record(state: &State, dependent: JobId, job: &Job) -> ParentRecord {
    let name = state.index.name(job.place);
    ParentRecord {
        is_gating: state.latches.is_closed(job.id, dependent),
        output: job.output.clone(),
        failure_detail: job.detail.clone(),
        finished_at: job.life.finished_at,
        ..ParentRecord::new(job.id, name.wire_name.to_owned(), job.life.state)
    }
}
