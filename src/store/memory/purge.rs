//! Taking away what is kept no longer.
//!
//! One call looks at one page: of the ended jobs along (state, end, id), of the transitions along their
//! positions, of the audit records from their old end. All is judged by what stood before the call: a
//! parent goes by a purge after the one that took its last dependent.
//!
//! What a registered observer has not passed stays, with its job, until it is too old to wait for.

use super::index::Entry;
use super::state::{Job, Moment, Slot, State, Trouble};
use crate::store::{PUMP_KEPT, Purge, PurgeCursor, Transition};
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
    /// How many transitions go that some observer has not passed.
    pub(super) unobserved: u64,
}

/// Until where every observer has passed, and until when the rest waits for them.
struct Wanted {
    floor: u64,
    until: Option<Timestamp>,
}

impl Wanted {
    fn new(state: &State, purge: &Purge, now: Timestamp) -> Self {
        let until = purge.retention.unobserved.map(|keep| now.saturating_sub(keep));
        Self { floor: state.cursors.floor(), until }
    }

    fn is_beyond(&self, transition: &Transition) -> bool {
        transition.position > self.floor
    }

    /// Whether some observer is still to be told of it.
    fn is_kept(&self, transition: &Transition) -> bool {
        self.is_beyond(transition) && self.until.is_none_or(|until| transition.at > until)
    }

    /// How many of the oldest `count` transitions of a job may go, and how many of these are beyond.
    fn free(&self, job: &Job, count: usize) -> (usize, u64) {
        let oldest =
            job.history.iter().take(count).take_while(|transition| !self.is_kept(transition));
        let fold =
            |(free, beyond), transition| (free + 1, beyond + u64::from(self.is_beyond(transition)));
        oldest.fold((0, 0), fold)
    }
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
    let wanted = Wanted::new(state, purge, moment.at);
    let (jobs, with_jobs) = free(state, &ended, &wanted)?;
    let (transitions, trimmed) = excess(state, purge, &logged, &jobs, &wanted)?;
    let audit = purge.retention.audit.map(|keep| moment.at.saturating_sub(keep));
    let purging = Purging {
        transitions,
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
    let unobserved = with_jobs + trimmed;
    let page = Page { jobs: purging.jobs.len() as u32, cursor, more, unobserved };
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

/// Those of a page that no job names as its parent and no observer waits for, and how many transitions go
/// with them that some observer has not passed.
fn free(
    state: &State,
    page: &[(JobState, Entry)],
    wanted: &Wanted,
) -> Result<(Vec<Slot>, u64), Trouble> {
    let (mut free, mut unobserved) = (Vec::new(), 0);
    for (_, (_, id, slot)) in page.iter().filter(|(_, (_, id, _))| !state.latches.is_parent(*id)) {
        let job = state.indexed((*id, *slot))?;
        let (count, beyond) = wanted.free(job, usize::MAX);
        if count == job.history.len() {
            free.push(*slot);
            unobserved += beyond;
        }
    }
    Ok((free, unobserved))
}

/// Whose the next transitions beyond the cursor are, unless all are kept.
fn logged(state: &State, purge: &Purge, max: usize) -> Vec<(u64, JobId)> {
    let max = if purge.retention.transitions_per_job == u32::MAX { 0 } else { max };
    state.log.beyond(purge.cursor.trimmed).take(max).collect()
}

/// Of each job of a page of the log that does not go anyway, how many transitions are too many and free to
/// go, and how many of all these some observer has not passed.
fn excess(
    state: &State,
    purge: &Purge,
    page: &[(u64, JobId)],
    going: &[Slot],
    wanted: &Wanted,
) -> Result<(Vec<(Slot, usize)>, u64), Trouble> {
    let going: BTreeSet<_> = going.iter().collect();
    let jobs: BTreeSet<_> = page.iter().map(|(_, id)| *id).collect();
    let (mut excess, mut unobserved) = (Vec::new(), 0);
    for id in jobs {
        let (slot, job) = state.logged(id)?;
        let keep = purge.retention.transitions_per_job as usize;
        let count = job.history.len().saturating_sub(keep);
        let (count, beyond) = wanted.free(job, count);
        if count > 0 && !going.contains(&slot) {
            excess.push((slot, count));
            unobserved += beyond;
        }
    }
    Ok((excess, unobserved))
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
