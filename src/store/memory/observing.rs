//! The topic of observers.

use super::cursors::{self, Cursor, Stand};
use super::session::MemorySession;
use super::state::State;
use super::{MemoryStore, audit};
use crate::store::{
    AuditAction, Observe, Observed, ObserverChange, ObserverRecord, Observing, PAGE_MAX,
    ParkedDelivery, Resolve, Resolved, StoreError,
};
use crate::{Timestamp, WorkerId};
use std::ops::Bound;

impl Observing for MemorySession {
    fn observe(&mut self, ask: &Observe<'_>) -> Result<Observed, StoreError> {
        self.0.write(
            |state, moment| cursors::observe(state, ask, moment.at),
            |state, (stand, observed), _| {
                if let Some(stand) = stand {
                    state.cursors.put(ask.observer, stand);
                }
                Ok(observed)
            },
        )
    }

    fn resolve(&mut self, resolve: &Resolve<'_>) -> Result<Resolved, StoreError> {
        self.0.write(
            |state, moment| Ok(cursors::resolve(state, resolve, moment.at)),
            |state, planned, moment| match planned {
                Ok(stand) => Ok(write(state, resolve, stand, moment.at)),
                Err(stale) => Ok(stale),
            },
        )
    }

    fn release_cursor(
        &mut self,
        observer: &str,
        worker: WorkerId,
        epoch: u64,
    ) -> Result<Timestamp, StoreError> {
        self.0.write(
            |state, moment| {
                let stand = state.cursors.get(observer).map(Cursor::stand);
                Ok(stand.and_then(|stand| stand.released(worker, epoch, moment.at)))
            },
            |state, stand, moment| {
                if let Some(stand) = stand {
                    state.cursors.put(observer, stand);
                }
                Ok(moment.at)
            },
        )
    }

    fn observers(&mut self) -> Result<Vec<ObserverRecord>, StoreError> {
        self.0.read(|state, _| state.cursors.records(state))
    }

    fn parked(
        &mut self,
        observer: &str,
        after: Option<u64>,
        max: u32,
    ) -> Result<Vec<ParkedDelivery>, StoreError> {
        let max = max.clamp(1, PAGE_MAX) as usize;
        let beyond = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.0.read(|state, _| {
            let cursor = state.cursors.get(observer);
            let parked = cursor.map(|cursor| cursor.parked.range((beyond, Bound::Unbounded)));
            Ok(parked.into_iter().flatten().take(max).map(|(_, parked)| parked.clone()).collect())
        })
    }

    fn change_observer(
        &mut self,
        actor: &str,
        observer: &str,
        change: ObserverChange,
    ) -> Result<u64, StoreError> {
        change_observer(&self.0, actor, observer, change)
    }
}

/// Writes what a resolution brings.
fn write(state: &mut State, resolve: &Resolve<'_>, stand: Stand, now: Timestamp) -> Resolved {
    state.cursors.put(resolve.observer, stand);
    if let Some(cursor) = state.cursors.get_mut(resolve.observer) {
        for position in &resolve.delivered_again {
            cursor.parked.remove(position);
        }
        for parking in &resolve.parked {
            let position = parking.observation.transition.position;
            cursor.parked.insert(position, ParkedDelivery::new(parking.clone(), now));
        }
    }
    Resolved::Applied { expiry: now + resolve.lease, store_time: now }
}

fn change_observer(
    store: &MemoryStore,
    actor: &str,
    observer: &str,
    change: ObserverChange,
) -> Result<u64, StoreError> {
    store.write(
        |state, moment| {
            let cursor = state.cursors.get(observer);
            let touched = cursor.map_or_else(Vec::new, |cursor| touched(cursor, change));
            let count = match change {
                ObserverChange::Remove => u64::from(cursor.is_some()),
                ObserverChange::Redeliver(_) | ObserverChange::Discard(_) => touched.len() as u64,
            };
            let record = (count > 0).then(|| {
                let (position, action) = (state.audit.next(), action(change));
                audit::record(position, moment.at, actor, action, None, "").about(observer)
            });
            Ok((touched, count, record))
        },
        |state, (touched, count, record), _| {
            if let Some(record) = record {
                state.audit.push(record);
            }
            touch(state, observer, change, &touched);
            Ok(count)
        },
    )
}

/// The positions of the parked deliveries for which a change makes a difference.
fn touched(cursor: &Cursor, change: ObserverChange) -> Vec<u64> {
    let (only, is_redelivery) = match change {
        ObserverChange::Redeliver(only) => (only, true),
        ObserverChange::Discard(only) => (only, false),
        ObserverChange::Remove => return Vec::new(),
    };
    let named = cursor.parked.iter().filter(|(position, _)| only.is_none_or(|p| p == **position));
    let differs = named.filter(|(_, parked)| !is_redelivery || !parked.is_wanted_again);
    differs.map(|(position, _)| *position).collect()
}

fn touch(state: &mut State, observer: &str, change: ObserverChange, touched: &[u64]) {
    if change == ObserverChange::Remove {
        return state.cursors.remove(observer);
    }
    let Some(cursor) = state.cursors.get_mut(observer) else { return };
    for position in touched {
        match change {
            ObserverChange::Redeliver(_) => {
                if let Some(parked) = cursor.parked.get_mut(position) {
                    parked.is_wanted_again = true;
                }
            }
            ObserverChange::Discard(_) | ObserverChange::Remove => {
                cursor.parked.remove(position);
            }
        }
    }
}

const fn action(change: ObserverChange) -> AuditAction {
    match change {
        ObserverChange::Redeliver(_) => AuditAction::Redeliver,
        ObserverChange::Discard(_) => AuditAction::Discard,
        ObserverChange::Remove => AuditAction::RemoveObserver,
    }
}
