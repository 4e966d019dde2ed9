//! How jobs come in.

use super::latch::missing;
use super::state::{Life, Moment, State, Trouble};
use crate::store::{EnqueueAnswer, JobRow, Rejection};
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

/// Per row of a call, its birth where it is new; or the first row that is refused.
pub(super) type Births = Result<Vec<Option<Birth>>, (usize, Rejection)>;

/// Decides what comes of rows that have passed the bounds.
pub(super) fn plan(state: &State, rows: &[JobRow], now: Timestamp) -> Result<Births, Trouble> {
    // What the call's own rows become, for those after them.
    let mut given = BTreeMap::new();
    let mut births = Vec::with_capacity(rows.len());
    for (index, row) in rows.iter().enumerate() {
        if state.by_id.contains_key(&row.id) || given.contains_key(&row.id) {
            births.push(None);
            continue;
        }
        match birth(state, &given, row, now)? {
            Ok(birth) => {
                given.insert(row.id, birth.life.state);
                births.push(Some(birth));
            }
            Err(rejection) => return Ok(Err((index, rejection))),
        }
    }
    Ok(Ok(births))
}

/// Writes what was decided.
pub(super) fn apply(
    state: &mut State,
    rows: &[JobRow],
    births: Vec<Option<Birth>>,
    moment: Moment,
) -> Result<EnqueueAnswer, Trouble> {
    let mut is_new = Vec::with_capacity(rows.len());
    for (row, birth) in rows.iter().zip(births) {
        is_new.push(birth.is_some());
        if let Some(birth) = birth {
            state.insert(row, birth, moment)?;
        }
    }
    Ok(EnqueueAnswer::Accepted { is_new, store_time: moment.at })
}

fn birth(
    state: &State,
    given: &BTreeMap<JobId, JobState>,
    row: &JobRow,
    now: Timestamp,
) -> Result<Result<Birth, Rejection>, Trouble> {
    let parents = row.distinct_parents();
    let mut states = Vec::with_capacity(parents.len());
    for parent in parents.iter().copied() {
        let found = given.get(&parent).copied();
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
