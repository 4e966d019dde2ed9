//! Threads, clocks and channels: what carries the core's commands out.
//!
//! Per group one ticker thread; per pump the pump thread, which owns driver and session, and its
//! worker threads. Nothing in here decides anything about a job; nothing of ours unwinds out of a
//! thread of ours.

mod board;
mod calls;
mod clock;
mod faults;
mod hints;
#[cfg(feature = "testing")]
#[cfg(test)]
mod interleavings;
pub(crate) mod observer;
pub(crate) mod planted;
mod pool;
mod pump;
mod ticker;
mod worker;

pub(crate) use board::{Board, PumpEnd};
pub(crate) use faults::Fault;
pub(crate) use hints::Hints;
pub(crate) use pool::Pool;
pub(crate) use pump::{Pump, PumpParts};
pub(crate) use ticker::{Ticker, TickerParts, TokenTable};

use crate::CancelToken;
use crate::kernel::driver::{Ending, Event, ExecutionId};
use crate::stage::point;
use crossbeam_channel::Sender;
use planted::slips;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What a pump thread hears.
pub(crate) enum Message {
    /// From a worker.
    Driver(Event),
    /// From the ticker: flags were raised in [`TickFlags`].
    Tick,
    /// From the hub: see [`Hints`].
    Hint,
    /// Somebody waits for the group to be idle and gave his question this number.
    IdleProbe(u64),
    /// A clean stop was asked for.
    Stop,
    /// An invariant violation came out of a handler.
    Violation(Fault),
    /// The ticker is gone, and why.
    TickerGone(Fault),
    /// A worker thread is gone without having been told to go.
    WorkerGone,
}

impl Message {
    pub(crate) fn finished(
        execution: ExecutionId,
        ending: Ending,
        token: &CancelToken,
        took: Duration,
    ) -> Self {
        Self::Driver(Event::Finished { execution, ending, token: token.reason(), took })
    }
}

/// Ticks for one pump. What a busy pump has not taken yet coalesces.
#[derive(Default)]
pub(crate) struct TickFlags {
    poll: AtomicBool,
    heartbeat: AtomicBool,
    maintenance: AtomicBool,
    told: AtomicBool,
}

/// Kinds of ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tick {
    Poll,
    Heartbeat,
    Maintenance,
}

impl TickFlags {
    /// Raises a flag and tells the pump, unless it has been told and has not looked yet. Whether the
    /// pump is still there.
    pub(crate) fn raise(&self, tick: Tick, pump: &Sender<Message>) -> bool {
        if slips!(ToldBeforeRaised) {
            let heard = self.told.swap(true, Ordering::SeqCst) || pump.send(Message::Tick).is_ok();
            point();
            self.flag(tick).store(true, Ordering::SeqCst);
            return heard;
        }
        self.flag(tick).store(true, Ordering::SeqCst);
        point();
        // The flag is raised before `told` is read, and the pump lowers `told` before it reads the
        // flags: either it sees this flag, or it is told again.
        self.told.swap(true, Ordering::SeqCst) || pump.send(Message::Tick).is_ok()
    }

    pub(crate) fn begin_taking(&self) {
        self.told.store(false, Ordering::SeqCst);
        point();
    }

    pub(crate) fn take(&self, tick: Tick) -> bool {
        self.flag(tick).swap(false, Ordering::SeqCst)
    }

    fn flag(&self, tick: Tick) -> &AtomicBool {
        match tick {
            Tick::Poll => &self.poll,
            Tick::Heartbeat => &self.heartbeat,
            Tick::Maintenance => &self.maintenance,
        }
    }
}

/// A pump as the rest of its group sees it.
#[derive(Clone)]
pub(crate) struct PumpLine {
    pub(crate) inbox: Sender<Message>,
    pub(crate) ticks: Arc<TickFlags>,
}
