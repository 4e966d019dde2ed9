//! A store's clock that goes at the usual pace, and that a test can put forward.

use backwave::Timestamp;
use backwave::store::StoreClock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// The wall clock, and what was skipped. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct OffsetClock(Arc<AtomicU64>);

impl OffsetClock {
    /// Puts it forward: leases lapse, jobs become due.
    pub fn skip(&self, span: Duration) {
        let micros = u64::try_from(span.as_micros()).expect("a short span");
        self.0.fetch_add(micros, Ordering::SeqCst);
    }
}

impl StoreClock for OffsetClock {
    fn now(&self) -> Timestamp {
        Timestamp::from(SystemTime::now()) + Duration::from_micros(self.0.load(Ordering::SeqCst))
    }
}
