//! What an observer pump asks of a store.

use super::{
    Observe, Observed, ObserverChange, ObserverRecord, ParkedDelivery, Resolve, Resolved,
    StoreError,
};
use crate::{Timestamp, WorkerId};

/// Cursors over the log of transitions: one per observer, held by one pump at a time in the whole fleet.
///
/// # What is promised
///
/// - **No transition is skipped**, whenever its transaction commits: each one that is written while the observer
///   is registered, and that its filter matches, lies in exactly one pass over the log.
/// - **Per job in order**: the transitions of one job are told in the order in which they happened.
/// - As long as an observer is registered, transitions are written whatever the
///   [`HistoryPolicy`](super::HistoryPolicy) of whoever writes; details only by policy. Calls that began before
///   the registration had returned may still write none.
/// - A purge takes no transition that a registered observer has not passed, nor its job, until it is older than
///   [`Retention::unobserved`](super::Retention::unobserved); what it takes then is told by
///   [`Purged::unobserved`](super::Purged::unobserved).
///
/// A store's check that fails here degrades: it ends the observer's pump, and no group.
pub trait Observing {
    /// Registers the observer if it is not known, takes its cursor if nobody else holds it, prolongs the hold,
    /// and reads what lies beyond it. The cursor does not move, except over what the filter does not match as long
    /// as nothing that it matches lies before. A call looks at a bounded number of transitions: it may find nothing,
    /// and say that there is more.
    ///
    /// # Errors
    /// Faults only; a cursor that is held elsewhere is an answer.
    fn observe(&mut self, ask: &Observe<'_>) -> Result<Observed, StoreError>;

    /// Moves the cursor, parks deliveries, notes a failure, and prolongs the hold: all in one write, behind the
    /// fence.
    ///
    /// # Errors
    /// Faults only; a hold that is gone is an answer.
    fn resolve(&mut self, resolve: &Resolve<'_>) -> Result<Resolved, StoreError>;

    /// Gives the cursor up, if it is held so; the next to ask takes it at once.
    ///
    /// # Errors
    /// Faults only.
    fn release_cursor(
        &mut self,
        observer: &str,
        worker: WorkerId,
        epoch: u64,
    ) -> Result<Timestamp, StoreError>;

    /// Every observer that is registered, ordered by name.
    ///
    /// # Errors
    /// Faults only.
    fn observers(&mut self) -> Result<Vec<ObserverRecord>, StoreError>;

    /// The parked deliveries of an observer beyond a position, by ascending position, at most `max` (from 1 to
    /// [`PAGE_MAX`](super::PAGE_MAX)).
    ///
    /// # Errors
    /// Faults only.
    fn parked(
        &mut self,
        observer: &str,
        after: Option<u64>,
        max: u32,
    ) -> Result<Vec<ParkedDelivery>, StoreError>;

    /// Does so in the name of `actor`, audited where it has an effect. How many deliveries it touched (for
    /// [`ObserverChange::Remove`], 1 or 0 observers).
    ///
    /// # Errors
    /// Faults only.
    fn change_observer(
        &mut self,
        actor: &str,
        observer: &str,
        change: ObserverChange,
    ) -> Result<u64, StoreError>;
}
