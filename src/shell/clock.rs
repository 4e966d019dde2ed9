//! The shell's estimate of the store's time: two bounds, anchored to every answer, advanced in between
//! by the monotonic clock.
//!
//! An answer that carries store time `s`, sent for at `a` and received at `b`, says that the store's
//! clock read `s` somewhere between `a` and `b`. So at `t` it reads at least `s + (t - b)` and at most
//! `s + (t - a)`. The lower bound is the driver's `now`: nothing is taken for due too early. The upper
//! bound tells handlers that their lease has ended: never too late.

use crate::Timestamp;
use crate::stage::Stage;
use std::time::{Duration, Instant};

#[derive(Default)]
pub(super) struct StoreTime {
    stage: Stage,
    anchor: Option<Anchor>,
}

#[derive(Debug, Clone, Copy)]
struct Anchor {
    store: Timestamp,
    sent: Instant,
    received: Instant,
}

/// The store's clock moved against the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Jump {
    pub(super) by: Duration,
    pub(super) forward: bool,
}

impl StoreTime {
    pub(super) const fn new(stage: Stage) -> Self {
        Self { stage, anchor: None }
    }

    /// The least that the store's clock reads now. Before the first answer, the host's wall clock.
    pub(super) fn now(&self) -> Timestamp {
        match self.anchor {
            Some(anchor) => {
                anchor.store + self.stage.now().saturating_duration_since(anchor.received)
            }
            None => self.stage.wall(),
        }
    }

    /// When, at the latest, the store's clock reads `time`; the past is "now".
    pub(super) fn reached_at(&self, time: Timestamp) -> Instant {
        let now = self.stage.now();
        // What is further away than a day is looked at again then.
        now + time.since(self.now()).min(Duration::from_secs(86_400))
    }

    /// When, at the earliest, the store's clock reads `expiry`.
    pub(super) fn expires_at(&self, expiry: Timestamp) -> Instant {
        match self.anchor {
            Some(anchor) => {
                let span = expiry.since(anchor.store).min(Duration::from_secs(366 * 86_400));
                anchor.sent + span
            }
            None => self.stage.now(),
        }
    }

    /// Takes in an answer; tells when it lies more than a second outside of what was expected.
    pub(super) fn anchor(
        &mut self,
        store: Timestamp,
        sent: Instant,
        received: Instant,
    ) -> Option<Jump> {
        let jump = self.anchor.and_then(|anchor| anchor.jump(store, sent, received));
        self.anchor = Some(Anchor { store, sent, received });
        jump
    }
}

impl Anchor {
    fn jump(&self, store: Timestamp, sent: Instant, received: Instant) -> Option<Jump> {
        let least = self.store + sent.saturating_duration_since(self.received);
        let most = self.store + received.saturating_duration_since(self.sent);
        let (by, forward) =
            if store > most { (store.since(most), true) } else { (least.since(store), false) };
        (by > JUMP_MIN).then_some(Jump { by, forward })
    }
}

const JUMP_MIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH + S * u32::try_from(seconds).expect("small")
    }

    #[test]
    fn a_lease_ends_here_no_later_than_at_the_store() {
        let mut time = StoreTime::default();
        let sent = Instant::now();
        // The call took 3 s and the store's clock was read somewhere in between.
        assert_eq!(time.anchor(at(1000), sent, sent + 3 * S), None);
        assert_eq!(time.expires_at(at(1060)), sent + 60 * S);
        assert!(time.now() <= at(1000) + sent.elapsed());
    }

    #[test]
    fn a_slow_answer_is_no_jump_and_a_step_of_the_clock_is() {
        let mut time = StoreTime::default();
        let start = Instant::now();
        assert_eq!(time.anchor(at(1000), start, start), None);
        assert_eq!(time.anchor(at(1009), start + S, start + 10 * S), None);
        let forward = time.anchor(at(1100), start + 11 * S, start + 11 * S);
        assert_eq!(forward.map(|jump| jump.forward), Some(true));
        let back = time.anchor(at(1000), start + 12 * S, start + 12 * S);
        assert_eq!(back, Some(Jump { by: 101 * S, forward: false }));
    }
}
