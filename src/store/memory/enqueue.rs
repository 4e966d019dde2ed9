//! How jobs come in.

use super::latch::missing;
use super::state::{Life, Moment, State, Trouble};
use crate::store::{Admission, EnqueueAnswer, JobRow, Rejection};
use crate::{JobId, JobState, Timestamp};
use std::collections::BTreeMap;

/// How a new job begins.
pub(super) struct Birth {
    pub(super) life: Life,
    /// Each once, in the order given.
    pub(super) parents: Vec<JobId>,
    /// Those of them that hold it back.
    pub(super) gates: Vec<JobId>,
}

/// Per row of a call, its birth, or why there is none; or the first row that is refused.
pub(super) type Births = Result<Vec<Result<Birth, Admission>>, (usize, Rejection)>;

/// What the call's own rows have become, for those after them.
#[derive(Default)]
struct Given<'a> {
    /// New jobs.
    states: BTreeMap<JobId, JobState>,
    /// New jobs that live, by their unique key.
    holders: BTreeMap<&'a str, JobId>,
    /// Jobs that were not stored because of their key.
    held: BTreeMap<JobId, Admission>,
}

/// Decides what comes of rows that have passed the bounds.
pub(super) fn plan(state: &State, rows: &[JobRow], now: Timestamp) -> Result<Births, Trouble> {
    let mut given = Given::default();
    let mut births = Vec::with_capacity(rows.len());
    for (index, row) in rows.iter().enumerate() {
        if let Some(admission) = standing(state, &given, row)? {
            if matches!(admission, Admission::Held { .. }) {
                given.held.insert(row.id, admission);
            }
            births.push(Err(admission));
            continue;
        }
        match birth(state, &given, row, now)? {
            Ok(birth) => {
                let born = birth.life.state;
                given.states.insert(row.id, born);
                if let Some(key) = row.unique_key.as_deref().filter(|_| !born.is_terminal()) {
                    given.holders.insert(key, row.id);
                }
                births.push(Ok(birth));
            }
            Err(rejection) => return Ok(Err((index, rejection))),
        }
    }
    Ok(Ok(births))
}

/// What keeps a row from being stored: first a job of its id, then one that holds its key.
fn standing(state: &State, given: &Given<'_>, row: &JobRow) -> Result<Option<Admission>, Trouble> {
    if state.by_id.contains_key(&row.id) || given.states.contains_key(&row.id) {
        return Ok(Some(Admission::Duplicate));
    }
    if let Some(held) = given.held.get(&row.id) {
        return Ok(Some(*held));
    }
    let Some(key) = row.unique_key.as_deref() else { return Ok(None) };
    if let Some(by) = given.holders.get(key) {
        let state = given.states.get(by).copied().unwrap_or(JobState::Scheduled);
        return Ok(Some(Admission::Held { by: *by, state }));
    }
    let Some(named) = state.index.holder(key) else { return Ok(None) };
    let state = state.indexed(named)?.life.state;
    Ok(Some(Admission::Held { by: named.0, state }))
}

/// Writes what was decided.
pub(super) fn apply(
    state: &mut State,
    rows: &[JobRow],
    births: Vec<Result<Birth, Admission>>,
    moment: Moment,
) -> Result<EnqueueAnswer, Trouble> {
    let mut jobs = Vec::with_capacity(rows.len());
    for (row, birth) in rows.iter().zip(births) {
        jobs.push(match birth {
            Ok(birth) => {
                state.insert(row, birth, moment)?;
                Admission::New
            }
            Err(admission) => admission,
        });
    }
    Ok(EnqueueAnswer::Accepted { jobs, store_time: moment.at })
}

fn birth(
    state: &State,
    given: &Given<'_>,
    row: &JobRow,
    now: Timestamp,
) -> Result<Result<Birth, Rejection>, Trouble> {
    let parents = row.distinct_parents();
    let mut states = Vec::with_capacity(parents.len());
    for parent in parents.iter().copied() {
        let found = given.states.get(&parent).copied();
        let Some(found) = found.map_or_else(|| stored(state, parent), |found| Ok(Some(found)))?
        else {
            return Ok(Err(Rejection::UnknownParent { parent }));
        };
        states.push((parent, found));
    }
    let mut life = Life::born(row.due.resolve(now));
    let (born, gates) = row.parent_rule.birth(states);
    life.state = born;
    life.finished_at = born.is_terminal().then_some(now);
    Ok(Ok(Birth { life, parents, gates }))
}

/// The state of a job of that id, if there is one.
fn stored(state: &State, parent: JobId) -> Result<Option<JobState>, Trouble> {
    if !state.by_id.contains_key(&parent) {
        return Ok(None);
    }
    let (_, life) = state.life(parent).ok_or_else(|| missing(parent))?;
    Ok(Some(life.state))
}
