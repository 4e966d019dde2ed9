//! The ticker of a group: one thread that tells every pump when to poll, to renew and to look after
//! dead leases, and fires tokens whose lease has passed.
//!
//! A group whose ticker is dead would live on in silence, without polls arriving. So a ticker that ends
//! for any reason but stopping tells every pump why, and they halt.

use super::faults::Fault;
use super::planted::slips;
use super::{Message, PumpLine, Tick};
use crate::CancelToken;
use crate::kernel::driver::ExecutionId;
use crate::stage::Stage;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The tokens of what runs in one pump: looked at by the ticker too, so that a lease that passes is
/// heard of even while the pump hangs in a call.
#[derive(Default)]
pub(crate) struct TokenTable {
    tokens: Mutex<HashMap<ExecutionId, CancelToken>>,
}

impl TokenTable {
    pub(crate) fn insert(&self, execution: ExecutionId, token: CancelToken) {
        self.tokens.lock().insert(execution, token);
    }

    pub(crate) fn remove(&self, execution: ExecutionId) {
        self.tokens.lock().remove(&execution);
    }

    /// Asking a token whether it has fired fires it when its deadline has passed.
    fn fire_expired(&self) {
        for token in self.tokens.lock().values() {
            let _ = token.is_cancelled();
        }
    }
}

/// What a ticker needs.
pub(crate) struct TickerParts {
    pub(crate) stage: Stage,
    pub(crate) poll: Duration,
    pub(crate) heartbeat: Duration,
    pub(crate) maintenance: Duration,
    pub(crate) pumps: Vec<PumpLine>,
    pub(crate) tokens: Vec<Arc<TokenTable>>,
    /// Closed when the group has ended.
    pub(crate) ended: Receiver<Infallible>,
    /// Runs at every poll tick, where a test wants to see the ticker die.
    #[cfg(feature = "testing")]
    pub(crate) probe: Option<Arc<dyn Fn() + Send + Sync>>,
}

/// See the module's documentation.
pub(crate) struct Ticker {
    parts: TickerParts,
}

impl Ticker {
    pub(crate) const fn new(parts: TickerParts) -> Self {
        Self { parts }
    }

    /// Ticks until the group has ended.
    pub(crate) fn run(self) {
        let Err(payload) = catch_unwind(AssertUnwindSafe(|| self.tick())) else { return };
        let fault = Fault::from_panic(payload);
        let told = match (slips!(TickerDiesSilently), slips!(TickerTellsOne)) {
            (true, _) => 0,
            (_, true) => 1,
            _ => self.parts.pumps.len(),
        };
        for pump in self.parts.pumps.iter().take(told) {
            let cause = format!("the ticker thread died: {fault}");
            let cause = Fault::new("backwave::shell::Ticker", cause, fault.trigger());
            // A pump that is gone has halted or stopped before.
            let _ = pump.inbox.send(Message::TickerGone(cause));
        }
    }

    fn tick(&self) {
        let TickerParts { stage, poll, heartbeat, maintenance, ended, .. } = &self.parts;
        let watch = (*heartbeat / 8).clamp(WATCH_MIN, WATCH_MAX);
        let mut rounds =
            [*poll, *heartbeat, *maintenance, watch].map(|every| Round::new(every, stage.now()));
        loop {
            let next = rounds.iter().map(|round| round.next_at).min();
            match stage.receive(ended, next) {
                Ok(never) => match never {},
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let [polls, heartbeats, maintenance, watch] =
                rounds.each_mut().map(|round| round.is_due(stage.now()));
            if polls {
                #[cfg(feature = "testing")]
                if let Some(probe) = &self.parts.probe {
                    probe();
                }
                self.raise(Tick::Poll);
            }
            if heartbeats {
                self.raise(Tick::Heartbeat);
            }
            if maintenance {
                self.raise(Tick::Maintenance);
            }
            if watch {
                self.parts.tokens.iter().for_each(|table| table.fire_expired());
            }
        }
    }

    fn raise(&self, tick: Tick) {
        for pump in &self.parts.pumps {
            // A pump that is gone is not ticked any more; its siblings are.
            let _ = pump.ticks.raise(tick, &pump.inbox);
        }
    }
}

/// When something that comes again and again comes next.
struct Round {
    every: Duration,
    next_at: Instant,
}

impl Round {
    fn new(every: Duration, now: Instant) -> Self {
        Self { every, next_at: now + every }
    }

    /// Whether it has come. What was missed meanwhile counts once.
    fn is_due(&mut self, now: Instant) -> bool {
        if now < self.next_at {
            return false;
        }
        let next_at = self.next_at + self.every;
        self.next_at = if next_at > now { next_at } else { now + self.every };
        true
    }
}

const WATCH_MIN: Duration = Duration::from_millis(10);
const WATCH_MAX: Duration = Duration::from_secs(1);
