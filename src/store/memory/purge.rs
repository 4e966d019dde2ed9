//! Taking away what is kept no longer.
//!
//! One call looks at one page: of the ended jobs along (state, end, id), of the transitions along their
//! positions, of the audit records from their old end. All is judged by what stood before the call: a
//! parent goes by a purge after the one that took its last dependent.

use super::index::Entry;
use super::state::{Moment, Slot, State, Trouble};
use crate::store::{PUMP_KEPT, Purge, PurgeCursor};
use crate::{JobId, JobState, Timestamp, WorkerId};
use std::collections::BTreeSet;

/// What goes.
#[derive(Default)]
pub(super) struct Purging {
    jobs: Vec<Slot>,
    /// Of these jobs, so many of the oldest transitions.
    transitions: Vec<(Slot, usize)>,
    /// So many records at the old end.
    audit: usize,
    pumps: Vec<WorkerId>,
}

/// What is told of it.
pub(super) struct Page {
    pub(super) jobs: u32,
    pub(super) cursor: PurgeCursor,
    pub(super) more: bool,
}

/// Decides what goes.
pub(super) fn plan(
    state: &State,
    purge: &Purge,
    max: usize,
    moment: Moment,
) -> Result<(Purging, Page), Trouble> {
    let ended: Vec<_> = old(state, purge, moment.at).take(max).collect();
    let logged = logged(state, purge, max);
    let jobs = free(state, &ended);
    let audit = purge.retention.audit.map(|keep| moment.at.saturating_sub(keep));
    let purging = Purging {
        transitions: excess(state, purge, &logged, &jobs)?,
        audit: audit.map_or(0, |until| state.audit.count_old(until, max)),
        pumps: state.pumps.silent_since(moment.at.saturating_sub(PUMP_KEPT)),
        jobs,
    };
    let more = [ended.len(), logged.len(), purging.audit].contains(&max);
    // What is done with waits at its end for what is not.
    let behind = || PurgeCursor {
        ended: ended.last().map(|(state, (end, id, _))| (*state, *end, *id)).or(purge.cursor.ended),
        trimmed: logged.last().map_or(purge.cursor.trimmed, |(position, _)| *position),
    };
    let cursor = if more { behind() } else { PurgeCursor::default() };
    let page = Page { jobs: purging.jobs.len() as u32, cursor, more };
    Ok((purging, page))
}

/// The jobs beyond the cursor that have been kept long enough.
fn old<'a>(
    state: &'a State,
    purge: &'a Purge,
    now: Timestamp,
) -> impl Iterator<Item = (JobState, Entry)> + 'a {
    let cursor = purge.cursor.ended;
    let states = JobState::ALL.into_iter();
    let states = states.filter(move |state| cursor.is_none_or(|(from, ..)| *state >= from));
    states.flat_map(move |ended_in| {
        let until = purge.retention.of(ended_in).map(|keep| now.saturating_sub(keep));
        let after = cursor.filter(|(from, ..)| *from == ended_in);
        let entries = state.index.ended(ended_in, after.map(|(_, end, id)| (end, id)));
        let old = entries.take_while(move |(end, ..)| until.is_some_and(|until| *end <= until));
        old.map(move |entry| (ended_in, entry))
    })
}

/// Those of a page that no job names as its parent.
fn free(state: &State, page: &[(JobState, Entry)]) -> Vec<Slot> {
    let free = page.iter().filter(|(_, (_, id, _))| !state.latches.is_parent(*id));
    free.map(|(_, (.., slot))| *slot).collect()
}

/// Whose the next transitions beyond the cursor are, unless all are kept.
fn logged(state: &State, purge: &Purge, max: usize) -> Vec<(u64, JobId)> {
    let max = if purge.retention.transitions_per_job == u32::MAX { 0 } else { max };
    state.log.beyond(purge.cursor.trimmed).take(max).collect()
}

/// Of each job of a page of the log that does not go anyway, how many transitions are too many.
fn excess(
    state: &State,
    purge: &Purge,
    page: &[(u64, JobId)],
    going: &[Slot],
) -> Result<Vec<(Slot, usize)>, Trouble> {
    let going: BTreeSet<_> = going.iter().collect();
    let jobs: BTreeSet<_> = page.iter().map(|(_, id)| *id).collect();
    let mut excess = Vec::new();
    for id in jobs {
        let (slot, job) = state.logged(id)?;
        let keep = purge.retention.transitions_per_job as usize;
        let count = job.history.len().saturating_sub(keep);
        if count > 0 && !going.contains(&slot) {
            excess.push((slot, count));
        }
    }
    Ok(excess)
}

/// Takes it away.
pub(super) fn apply(state: &mut State, purging: Purging) -> Result<(), Trouble> {
    for slot in purging.jobs {
        state.remove(slot)?;
    }
    for (slot, count) in purging.transitions {
        state.trim(slot, count)?;
    }
    state.audit.forget(purging.audit);
    state.pumps.forget(&purging.pumps);
    Ok(())
}
