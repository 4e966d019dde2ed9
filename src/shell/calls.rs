//! Calls to the store, inside the second of the three nets: a fault that is shown to be transient ends
//! the cycle and marks the pump degraded; anything else is handed to the third.

use super::clock::{Jump, StoreTime};
use super::faults::Fault;
use crate::Timestamp;
use crate::health::{DegradedCause, Pen};
use crate::stage::{Stage, point};
use crate::store::{
    Claimed, DueSchedules, Exchanged, FaultClass, HandedBack, Held, Lapsed, LatchesWorkedOff,
    Minted, Purged, Renewal, Reported, Session, Store, StoreError, classify,
};
use crate::telemetry;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How a call ended that did not halt the pump.
pub(super) enum Called<T> {
    Answered(T),
    /// On a transient fault. In doubt: it may have taken effect, or may still.
    Failed {
        in_doubt: bool,
    },
}

/// An answer carries the store's time.
pub(super) trait Answer {
    fn store_time(&self) -> Timestamp;
}

macro_rules! answers {
    ($($answer:ty),+) => {
        $(impl Answer for $answer {
            fn store_time(&self) -> Timestamp {
                self.store_time
            }
        })+
    };
}

answers!(Claimed, Reported, Renewal, Lapsed, Held, HandedBack, Purged, LatchesWorkedOff);
answers!(DueSchedules, Minted);

impl Answer for Timestamp {
    fn store_time(&self) -> Timestamp {
        *self
    }
}

impl Answer for Exchanged {
    fn store_time(&self) -> Timestamp {
        self.claimed.store_time
    }
}

/// A pump's session, opened anew when it is lost, and what is known of the store's state through it.
pub(super) struct Line {
    group: Arc<str>,
    stage: Stage,
    store: Arc<dyn Store>,
    session: Option<Box<dyn Session>>,
    pub(super) time: StoreTime,
    faults: FaultRun,
    reopen: Backoff,
    jumped_at: Option<Instant>,
    /// Whether this cycle has called the store, and whether a call failed.
    called: bool,
    failed: bool,
}

impl Line {
    pub(super) fn new(group: Arc<str>, store: Arc<dyn Store>, seed: u64, stage: Stage) -> Self {
        Self {
            group,
            store,
            session: None,
            time: StoreTime::new(stage.clone()),
            stage,
            faults: FaultRun::default(),
            reopen: Backoff::new(seed),
            jumped_at: None,
            called: false,
            failed: false,
        }
    }

    pub(super) fn call<T: Answer>(
        &mut self,
        pen: &Pen,
        operation: impl FnOnce(&mut dyn Session) -> Result<T, StoreError>,
    ) -> Result<Called<T>, Fault> {
        pen.pulse.call_began();
        point();
        let result = self.call_timed(pen, operation);
        point();
        pen.pulse.call_ended();
        result
    }

    fn call_timed<T: Answer>(
        &mut self,
        pen: &Pen,
        operation: impl FnOnce(&mut dyn Session) -> Result<T, StoreError>,
    ) -> Result<Called<T>, Fault> {
        self.called = true;
        let Some(mut session) = self.take_session(pen)? else {
            return Ok(Called::Failed { in_doubt: false });
        };
        let sent = self.stage.now();
        match operation(session.as_mut()) {
            Ok(answer) => {
                self.session = Some(session);
                let jump = self.time.anchor(answer.store_time(), sent, self.stage.now());
                if let Some(jump) = jump {
                    self.jumped(pen, jump);
                }
                Ok(Called::Answered(answer))
            }
            Err(error) => {
                let lost = error.session_lost();
                if !lost {
                    self.session = Some(session);
                }
                self.fault(pen, error)?;
                Ok(Called::Failed { in_doubt: lost })
            }
        }
    }

    /// A call that nothing depends on, at the end of a pump: on the session that stands, if one does and its
    /// last call did not fail. A fault of it is nobody's.
    pub(super) fn last_word(
        &mut self,
        operation: impl FnOnce(&mut dyn Session) -> Result<(), StoreError>,
    ) {
        if self.failed || self.faults.lasts() {
            return;
        }
        if let Some(session) = self.session.as_mut() {
            let _ = operation(session.as_mut());
        }
    }

    /// The session, opened if there is none; `None` when it cannot be opened now.
    fn take_session(&mut self, pen: &Pen) -> Result<Option<Box<dyn Session>>, Fault> {
        if let Some(session) = self.session.take() {
            return Ok(Some(session));
        }
        if !self.reopen.is_due(self.stage.now()) {
            self.failed = true;
            return Ok(None);
        }
        match self.store.open_session() {
            Ok(session) => {
                self.reopen.reset();
                Ok(Some(session))
            }
            Err(error) => {
                self.reopen.failed(self.stage.now());
                self.fault(pen, error)?;
                Ok(None)
            }
        }
    }

    /// A fault that is shown to be transient is noted; any other is handed on.
    fn fault(&mut self, pen: &Pen, error: StoreError) -> Result<(), Fault> {
        if classify(&error, self.store.fault_classifier()) != FaultClass::Transient {
            return Err(Fault::from(error));
        }
        self.failed = true;
        pen.degraded(DegradedCause::StoreFault, Some(error.type_name()));
        self.faults.add(&self.group, &error, self.stage.now());
        Ok(())
    }

    /// A cycle that called the store without a fault clears the mark; one that called nothing clears
    /// nothing.
    pub(super) fn end_cycle(&mut self, pen: &Pen) {
        let clean = self.called && !self.failed;
        (self.called, self.failed) = (false, false);
        if clean && self.faults.end(&self.group) {
            pen.recovered(DegradedCause::StoreFault);
        }
    }

    fn jumped(&mut self, pen: &Pen, jump: Jump) {
        self.jumped_at = Some(self.stage.now());
        pen.degraded(DegradedCause::ClockJumped, None);
        telemetry::clock_jumped(&self.group, jump.by, jump.forward);
    }

    /// A clock that has been steady for a while is believed again.
    pub(super) fn forgive_jump(&mut self, pen: &Pen) {
        let now = self.stage.now();
        if self.jumped_at.is_some_and(|at| now.saturating_duration_since(at) > JUMP_SHOWN) {
            self.jumped_at = None;
            pen.recovered(DegradedCause::ClockJumped);
        }
    }
}

/// A run of transient faults: said at its beginning and its end, and once a minute in between.
#[derive(Default)]
struct FaultRun {
    count: u64,
    said_at: Option<Instant>,
}

impl FaultRun {
    fn add(&mut self, group: &str, error: &StoreError, now: Instant) {
        self.count += 1;
        match self.said_at {
            None => telemetry::store_fault_began(group, error),
            Some(at) if now.saturating_duration_since(at) > SAID_EVERY => {
                telemetry::store_fault_lasts(group, self.count, error);
            }
            Some(_) => return,
        }
        self.said_at = Some(now);
    }

    const fn lasts(&self) -> bool {
        self.count > 0
    }

    /// Whether there was a run to end.
    fn end(&mut self, group: &str) -> bool {
        if self.count == 0 {
            return false;
        }
        telemetry::store_fault_ended(group, self.count);
        *self = Self::default();
        true
    }
}

/// When to try again to open a session: doubling, spread so that pumps do not move in step.
struct Backoff {
    seed: u64,
    tries: u32,
    next_at: Option<Instant>,
}

impl Backoff {
    const fn new(seed: u64) -> Self {
        Self { seed, tries: 0, next_at: None }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.next_at.is_none_or(|at| at <= now)
    }

    fn reset(&mut self) {
        self.tries = 0;
        self.next_at = None;
    }

    fn failed(&mut self, now: Instant) {
        let full = REOPEN_FIRST.saturating_mul(1 << self.tries.min(16)).min(REOPEN_MAX);
        self.tries += 1;
        // Half of it is fixed, half is this pump's own share.
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let share = u32::try_from(self.seed >> 48).unwrap_or(0);
        let delay = full / 2 + (full / 2).mul_f64(f64::from(share) / 65_536.0);
        self.next_at = now.checked_add(delay);
    }
}

const REOPEN_FIRST: Duration = Duration::from_millis(100);
const REOPEN_MAX: Duration = Duration::from_secs(15);
const SAID_EVERY: Duration = Duration::from_secs(60);
const JUMP_SHOWN: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Health;
    use crate::{MemoryStore, WorkerId};

    fn line(group: &str) -> (Arc<Health>, Pen, Line) {
        let health = Arc::new(Health::new());
        // A call that has not come back is shown at once.
        let mut pens = health.register(group, 1, Duration::ZERO).expect("the name is free");
        (
            health,
            pens.remove(0),
            Line::new(group.into(), Arc::new(MemoryStore::new()), 1, Stage::Process),
        )
    }

    #[test]
    fn only_a_cycle_that_did_store_work_clears_the_mark_of_a_fault() {
        let (health, pen, mut line) = line("clean cycles");
        let fail = |_: &mut dyn Session| Err::<Held, _>(StoreError::transient(std::fmt::Error));
        assert!(matches!(line.call(&pen, fail), Ok(Called::Failed { in_doubt: false })));
        line.end_cycle(&pen);
        line.end_cycle(&pen);
        assert_eq!(health.degraded_groups().len(), 1, "nothing was asked of the store since");
        let held = line.call(&pen, |session| session.held_by(WorkerId::new()));
        assert!(matches!(held, Ok(Called::Answered(_))));
        line.end_cycle(&pen);
        assert!(health.degraded_groups().is_empty());
    }

    #[test]
    fn a_jump_of_the_clock_is_shown_for_a_while() {
        let (health, pen, mut line) = line("jumps for a while");
        line.jumped(&pen, Jump { by: JUMP_SHOWN, forward: true });
        line.forgive_jump(&pen);
        assert_eq!(health.degraded_groups().len(), 1);
        line.jumped_at = Instant::now().checked_sub(JUMP_SHOWN * 2);
        assert!(line.jumped_at.is_some(), "this machine has run for two minutes");
        line.forgive_jump(&pen);
        assert!(health.degraded_groups().is_empty());
    }
}
