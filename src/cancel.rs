//! How a handler learns that it should end: a token that fires once, with its reason.
//!
//! A token fires because somebody fires it, or by itself once the deadline of its lease has passed, so
//! that a handler learns of a lost lease even while its pump hangs in a call. The first reason stays.

use crate::CancelReason;
use crate::stage::{ANCHOR, Stage};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use parking_lot::Mutex;
use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The error of a handler that gives way: return it with `?`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the attempt was cancelled")]
pub struct Cancelled {
    /// Why; also the error's source, so that it is found behind wrappers.
    #[source]
    pub reason: CancelReason,
}

/// Says whether an attempt was asked to end. Clones are the same token; hand them to threads of your own.
///
/// ```
/// use backwave::ContextBuilder;
///
/// let context = ContextBuilder::new().build();
/// let token = context.token().clone();
/// assert!(!token.is_cancelled());
/// assert_eq!(token.reason(), None);
/// ```
#[derive(Clone)]
pub struct CancelToken(Arc<Inner>);

struct Inner {
    /// 0 until it fires, then [`code`] of the reason.
    reason: AtomicU8,
    /// Nanoseconds after [`ANCHOR`] at which it fires as `LeaseLost`; `u64::MAX` for never.
    deadline: AtomicU64,
    /// What `cancelled` hands out: made at the first call, since few handlers ask.
    listener: OnceLock<Receiver<Infallible>>,
    /// Dropped when the token fires, which closes every listener.
    closer: Mutex<Option<Sender<Infallible>>>,
    /// By whose clock the deadline is judged.
    stage: Stage,
}

impl CancelToken {
    pub(crate) fn new() -> Self {
        Self::on(Stage::default())
    }

    /// A token whose deadline and sleeps go by the clock of that stage.
    pub(crate) fn on(stage: Stage) -> Self {
        Self(Arc::new(Inner {
            reason: AtomicU8::new(0),
            deadline: AtomicU64::new(u64::MAX),
            listener: OnceLock::new(),
            closer: Mutex::new(None),
            stage,
        }))
    }

    /// Whether the attempt was asked to end. Cheap enough for an inner loop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.reason().is_some()
    }

    /// Why the attempt was asked to end, if it was.
    #[must_use]
    pub fn reason(&self) -> Option<CancelReason> {
        if let Some(reason) = decode(self.0.reason.load(Ordering::Acquire)) {
            return Some(reason);
        }
        if self.is_past_deadline() {
            self.fire(CancelReason::LeaseLost);
        }
        decode(self.0.reason.load(Ordering::Acquire))
    }

    /// `Err` once the attempt was asked to end.
    ///
    /// # Errors
    /// [`Cancelled`], with the reason.
    pub fn check(&self) -> Result<(), Cancelled> {
        self.reason().map_or(Ok(()), |reason| Err(Cancelled { reason }))
    }

    /// A channel that never carries a message and is closed when the token fires: for `select!`.
    #[must_use]
    pub fn cancelled(&self) -> &Receiver<Infallible> {
        self.0.listener.get_or_init(|| {
            let (sender, receiver) = bounded(0);
            let mut closer = self.0.closer.lock();
            // Read under the lock that `fire` takes after it has set the reason: either it is seen
            // here and the sender is dropped with this scope, or `fire` will find the sender.
            if self.0.reason.load(Ordering::Acquire) == 0 {
                *closer = Some(sender);
            }
            receiver
        })
    }

    /// Sleeps for `span`, or until the token fires.
    ///
    /// # Errors
    /// [`Cancelled`] when it fired.
    pub fn sleep(&self, span: Duration) -> Result<(), Cancelled> {
        let stage = &self.0.stage;
        let wake = stage.now().checked_add(span);
        loop {
            self.check()?;
            let now = stage.now();
            if wake.is_some_and(|wake| wake <= now) {
                return Ok(());
            }
            // A day is a bound on one wait, not on the sleep: the loop goes on.
            let until = now + Duration::from_secs(86_400);
            let until = wake.map_or(until, |wake| wake.min(until));
            let until = self.deadline().map_or(until, |deadline| deadline.min(until));
            match stage.receive(self.cancelled(), Some(until)) {
                Ok(never) => match never {},
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
    }

    /// Fires the token. Whether it was this call that did.
    pub(crate) fn fire(&self, reason: CancelReason) -> bool {
        let won = self
            .0
            .reason
            .compare_exchange(0, code(reason), Ordering::AcqRel, Ordering::Acquire)
            .is_ok();
        if won {
            let closer = self.0.closer.lock().take();
            drop(closer);
        }
        won
    }

    /// Fires the token by itself once `deadline` has passed; replaces an earlier deadline.
    pub(crate) fn set_deadline(&self, deadline: Instant) {
        let distance = deadline.saturating_duration_since(*ANCHOR).as_nanos();
        let distance = u64::try_from(distance).unwrap_or(u64::MAX);
        self.0.deadline.store(distance, Ordering::Release);
    }

    fn deadline(&self) -> Option<Instant> {
        match self.0.deadline.load(Ordering::Acquire) {
            u64::MAX => None,
            nanos => ANCHOR.checked_add(Duration::from_nanos(nanos)),
        }
    }

    fn is_past_deadline(&self) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= self.0.stage.now())
    }
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelToken").field("reason", &self.reason()).finish_non_exhaustive()
    }
}

const fn code(reason: CancelReason) -> u8 {
    match reason {
        CancelReason::GroupStopping => 1,
        CancelReason::OperatorRequest => 2,
        CancelReason::LeaseLost => 3,
        CancelReason::TimedOut => 4,
    }
}

const fn decode(code: u8) -> Option<CancelReason> {
    match code {
        1 => Some(CancelReason::GroupStopping),
        2 => Some(CancelReason::OperatorRequest),
        3 => Some(CancelReason::LeaseLost),
        4 => Some(CancelReason::TimedOut),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_stays_and_closes_listeners_made_before_and_after() {
        let token = CancelToken::new();
        let early = token.clone();
        assert!(early.cancelled().try_recv().is_err_and(|e| e.is_empty()));
        assert!(token.fire(CancelReason::OperatorRequest));
        assert!(!token.fire(CancelReason::LeaseLost));
        assert_eq!(early.reason(), Some(CancelReason::OperatorRequest));
        assert!(early.cancelled().recv().is_err());

        let late = CancelToken::new();
        late.fire(CancelReason::TimedOut);
        assert!(late.cancelled().recv().is_err());
    }

    #[test]
    fn a_token_fires_by_itself_at_its_deadline() {
        let token = CancelToken::new();
        token.set_deadline(Instant::now());
        assert_eq!(token.reason(), Some(CancelReason::LeaseLost));
        let sleeper = CancelToken::new();
        sleeper.set_deadline(Instant::now() + Duration::from_millis(1));
        assert_eq!(
            sleeper.sleep(Duration::MAX),
            Err(Cancelled { reason: CancelReason::LeaseLost })
        );
    }

    #[test]
    fn a_sleep_ends_early_when_the_token_fires() {
        let token = CancelToken::new();
        let other = token.clone();
        let sleeper = std::thread::spawn(move || other.sleep(Duration::from_secs(600)));
        token.fire(CancelReason::GroupStopping);
        let woken = sleeper.join().expect("the sleeper does not panic");
        assert_eq!(woken, Err(Cancelled { reason: CancelReason::GroupStopping }));
    }
}
