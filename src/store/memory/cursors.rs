//! Where observers stand in the log of transitions.
//!
//! - A cursor moves over what is resolved, and over what its filter does not match as long as nothing
//!   that it matches lies before it.
//! - Commits are serial here: a position says it all, and there is one pass over the log.
//! - What is decided of a cursor is decided whole before it is written, so that nothing that goes wrong on
//!   this side can leave the store half changed.

use super::state::{State, Trouble};
use crate::invariant::InvariantTrigger;
use crate::store::{
    CursorLease, CursorStale, Failing, Observation, Observe, Observed, ObserverRecord,
    ObserverStart, ParkedDelivery, Resolve, Resolved, TransitionFilter, UPKEEP_MAX,
};
use crate::{JobId, Timestamp, WorkerId};
use std::collections::BTreeMap;

/// Every observer that is registered.
#[cfg_attr(test, derive(Clone))]
#[derive(Default)]
pub(super) struct Cursors(BTreeMap<String, Cursor>);

#[cfg_attr(test, derive(Clone))]
pub(super) struct Cursor {
    stand: Stand,
    pub(super) parked: BTreeMap<u64, ParkedDelivery>,
}

/// Where an observer stands, and who holds its cursor: small enough to be copied into a plan.
#[derive(Clone, Copy)]
pub(super) struct Stand {
    registered_at: Timestamp,
    /// Up to here all is delivered, parked or passed over.
    passed: u64,
    holder: Option<WorkerId>,
    epoch: u64,
    expiry: Option<Timestamp>,
    /// Its last holder has given it up.
    is_free: bool,
    failing: Option<Failing>,
}

impl Cursors {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, observer: &str) -> Option<&Cursor> {
        self.0.get(observer)
    }

    pub(super) fn get_mut(&mut self, observer: &str) -> Option<&mut Cursor> {
        self.0.get_mut(observer)
    }

    /// Writes where an observer stands, which registers it where it is new.
    pub(super) fn put(&mut self, observer: &str, stand: Stand) {
        match self.0.get_mut(observer) {
            Some(cursor) => cursor.stand = stand,
            None => {
                let cursor = Cursor { stand, parked: BTreeMap::new() };
                self.0.insert(observer.to_owned(), cursor);
            }
        }
    }

    pub(super) fn remove(&mut self, observer: &str) {
        self.0.remove(observer);
    }

    /// Every observer has passed the transitions up to here.
    pub(super) fn floor(&self) -> u64 {
        self.0.values().map(|cursor| cursor.stand.passed).min().unwrap_or(u64::MAX)
    }

    pub(super) fn records(&self, state: &State) -> Result<Vec<ObserverRecord>, Trouble> {
        let record = |(name, cursor): (&String, &Cursor)| {
            let stand = cursor.stand;
            let next = state.log.beyond(stand.passed).next();
            let behind = next.map(|(position, job)| written(state, position, job)).transpose()?;
            Ok(ObserverRecord {
                worker: stand.holder,
                epoch: stand.epoch,
                expiry: stand.expiry,
                behind_since: behind,
                parked: cursor.parked.len() as u64,
                failing: stand.failing,
                ..ObserverRecord::new(name.clone(), stand.registered_at)
            })
        };
        self.0.iter().map(record).collect()
    }
}

impl Stand {
    fn registered(start: ObserverStart, last: u64, now: Timestamp) -> Self {
        let passed = match start {
            ObserverStart::Now => last,
            ObserverStart::Oldest => 0,
        };
        Self {
            registered_at: now,
            passed,
            holder: None,
            epoch: 0,
            expiry: None,
            is_free: true,
            failing: None,
        }
    }

    /// Until when somebody else holds it.
    fn held_elsewhere(&self, asker: WorkerId, now: Timestamp) -> Option<Timestamp> {
        let expiry = self.expiry.filter(|expiry| *expiry > now && !self.is_free);
        expiry.filter(|_| self.holder != Some(asker))
    }

    /// Held by `worker` until `expiry`, anew or still.
    fn take(&mut self, worker: WorkerId, expiry: Timestamp) {
        if self.is_free || self.holder != Some(worker) {
            self.epoch += 1;
        }
        self.holder = Some(worker);
        self.expiry = Some(expiry);
        self.is_free = false;
    }

    /// Why that hold is not a live one, if it is none.
    fn stale(&self, worker: WorkerId, epoch: u64, now: Timestamp) -> Option<CursorStale> {
        if (self.holder, self.epoch) != (Some(worker), epoch) {
            return Some(CursorStale::Taken);
        }
        let is_live = !self.is_free && self.expiry.is_some_and(|expiry| expiry > now);
        (!is_live).then_some(CursorStale::Lapsed)
    }

    /// Given up, if it is held so.
    pub(super) fn released(mut self, worker: WorkerId, epoch: u64, now: Timestamp) -> Option<Self> {
        if self.stale(worker, epoch, now).is_some() {
            return None;
        }
        self.is_free = true;
        self.expiry = Some(now);
        Some(self)
    }
}

impl Cursor {
    pub(super) const fn stand(&self) -> Stand {
        self.stand
    }
}

/// Decides who holds a cursor, and reads what lies beyond it.
pub(super) fn observe(
    state: &State,
    ask: &Observe<'_>,
    now: Timestamp,
) -> Result<(Option<Stand>, Observed), Trouble> {
    let known = state.cursors.get(ask.observer);
    let register = || Stand::registered(ask.start, state.log.last(), now);
    let mut stand = known.map_or_else(register, Cursor::stand);
    if let Some(until) = stand.held_elsewhere(ask.worker, now) {
        return Ok((None, Observed::Elsewhere { until, store_time: now }));
    }
    let expiry = now + ask.lease;
    stand.take(ask.worker, expiry);
    let max = ask.max.clamp(1, UPKEEP_MAX) as usize;
    let page = page(state, stand.passed, ask.filter, max)?;
    if page.batch.is_empty() {
        stand.passed = page.looked_at;
    }
    let first = page.batch.first().map(|first| first.transition.position);
    let again = known.into_iter().flat_map(|cursor| cursor.parked.values());
    let again = again.filter(|parked| parked.is_wanted_again).take(max);
    let observed = Observed::Held {
        lease: CursorLease { epoch: stand.epoch, expiry },
        round: 0,
        batch: page.batch,
        failing: stand.failing.filter(|failing| Some(failing.position) == first),
        again: again.map(|parked| parked.parking.observation.clone()).collect(),
        more: page.more,
        reset: None,
        store_time: now,
    };
    Ok((Some(stand), observed))
}

struct Looked {
    batch: Vec<Observation>,
    looked_at: u64,
    more: bool,
}

/// What a filter matches beyond a position. Looks at so many transitions at most, since the lock is held
/// meanwhile.
fn page(
    state: &State,
    passed: u64,
    filter: &TransitionFilter,
    max: usize,
) -> Result<Looked, Trouble> {
    let mut looked = Looked { batch: Vec::new(), looked_at: passed, more: false };
    let mut beyond = state.log.beyond(passed);
    for (position, id) in beyond.by_ref().take(UPKEEP_MAX as usize) {
        let (_, job) = state.logged(id)?;
        let transition = job.transition(position).ok_or_else(|| absent(position, id))?;
        let name = state.index.name(job.place);
        if filter.matches(transition.to, name.wire_name, name.queue) {
            let (wire_name, queue) = (name.wire_name.to_owned(), name.queue.to_owned());
            looked.batch.push(Observation::new(id, wire_name, queue, transition.clone()));
        }
        looked.looked_at = position;
        if looked.batch.len() == max {
            break;
        }
    }
    looked.more = beyond.next().is_some();
    Ok(looked)
}

fn written(state: &State, position: u64, id: JobId) -> Result<Timestamp, Trouble> {
    let (_, job) = state.logged(id)?;
    job.transition(position).map(|transition| transition.at).ok_or_else(|| absent(position, id))
}

/// Decides whether a cursor moves. The place it stands at then, where it does.
pub(super) fn resolve(
    state: &State,
    resolve: &Resolve<'_>,
    now: Timestamp,
) -> Result<Stand, Resolved> {
    let stale = |reason| Resolved::Stale { reason, store_time: now };
    let cursor = state.cursors.get(resolve.observer).ok_or_else(|| stale(CursorStale::Gone))?;
    let mut stand = cursor.stand;
    if let Some(reason) = stand.stale(resolve.worker, resolve.epoch, now) {
        return Err(stale(reason));
    }
    let until = resolve.until.unwrap_or(stand.passed);
    if resolve.round != 0 || until < stand.passed {
        return Err(stale(CursorStale::Regressed));
    }
    stand.passed = until;
    stand.expiry = Some(now + resolve.lease);
    let failing = resolve.failing.map(|(position, failures, due_in)| Failing {
        position,
        failures,
        due_at: now + due_in,
    });
    stand.failing = failing.or(stand.failing).filter(|failing| failing.position > until);
    Ok(stand)
}

fn absent(position: u64, id: JobId) -> Trouble {
    let message = format!("the log names transition {position} of job {id}, which it has not");
    Trouble::Breach(InvariantTrigger::GuaranteedRowAbsent, message)
}
