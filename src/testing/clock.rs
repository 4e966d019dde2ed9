//! Time that passes when a test says so.

use crate::Timestamp;
use crate::store::StoreClock;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// A clock that stands still until it is set. Clones are the same clock.
///
/// ```
/// use backwave::store::{Store, StoreClock};
/// use backwave::{MemoryStore, testing::VirtualClock};
/// use std::time::Duration;
///
/// let clock = VirtualClock::new();
/// let store = MemoryStore::with_clock(clock.clone());
/// let start = clock.now();
/// clock.advance(Duration::from_secs(3600));
/// let told = store.open_session().unwrap().now().unwrap();
/// assert_eq!(told, start + Duration::from_secs(3600));
/// ```
#[derive(Debug, Clone)]
pub struct VirtualClock(Arc<AtomicI64>);

impl VirtualClock {
    /// Where [`Self::new`] starts: 2026-01-01T00:00:00Z.
    pub const START: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

    /// A clock that stands at [`Self::START`].
    #[must_use]
    pub fn new() -> Self {
        Self::at(Self::START)
    }

    /// A clock that stands at `time`.
    #[must_use]
    pub fn at(time: Timestamp) -> Self {
        Self(Arc::new(AtomicI64::new(time.as_micros())))
    }

    /// Sets it, also backward.
    pub fn set(&self, time: Timestamp) {
        self.0.store(time.as_micros(), Ordering::SeqCst);
    }

    /// Sets it forward by `span`, and gives the time it shows then.
    pub fn advance(&self, span: Duration) -> Timestamp {
        let later = |micros| (Timestamp::from_micros(micros) + span).as_micros();
        let before =
            self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| Some(later(now)));
        // Both arms: the update never refuses.
        Timestamp::from_micros(before.map_or_else(later, later))
    }
}

impl Default for VirtualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl StoreClock for VirtualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}
