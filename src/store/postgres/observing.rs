//! Observers: cursors over the log of transitions.

use super::session::PostgresSession;
use crate::store::{
    Observe, Observed, ObserverChange, ObserverRecord, Observing, ParkedDelivery, Resolve,
    Resolved, StoreError,
};
use crate::{Timestamp, WorkerId};

impl Observing for PostgresSession {
    fn observe(&mut self, _ask: &Observe<'_>) -> Result<Observed, StoreError> {
        Err(unbuilt())
    }

    fn resolve(&mut self, _resolve: &Resolve<'_>) -> Result<Resolved, StoreError> {
        Err(unbuilt())
    }

    fn release_cursor(
        &mut self,
        _observer: &str,
        _worker: WorkerId,
        _epoch: u64,
    ) -> Result<Timestamp, StoreError> {
        Err(unbuilt())
    }

    fn observers(&mut self) -> Result<Vec<ObserverRecord>, StoreError> {
        Err(unbuilt())
    }

    fn parked(
        &mut self,
        _observer: &str,
        _after: Option<u64>,
        _max: u32,
    ) -> Result<Vec<ParkedDelivery>, StoreError> {
        Err(unbuilt())
    }

    fn change_observer(
        &mut self,
        _actor: &str,
        _observer: &str,
        _change: ObserverChange,
    ) -> Result<u64, StoreError> {
        Err(unbuilt())
    }
}

fn unbuilt() -> StoreError {
    StoreError::new(std::io::Error::from(std::io::ErrorKind::Unsupported))
}
