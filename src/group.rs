//! A Worker Group as its host holds it.

pub(crate) mod options;
mod spawn;

pub use options::{GroupOptions, OptionsError, OptionsFault};
#[cfg(feature = "testing")]
pub(crate) use spawn::spawn_on;
pub use spawn::{SpawnError, spawn_group};

use crate::shell::planted::slips;
use crate::shell::{Board, Message, PumpEnd, PumpLine};
use crate::stage::{Stage, point};
use crate::store::Subscription;
use crate::{CancelReason, CancelToken, HaltState, JobId};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A running Worker Group. Dropping it stops it: hold it as long as jobs are to run.
///
/// All methods take `&self`, so an `Arc<Group>` works in a signal handler.
#[must_use = "dropping a Group stops it"]
pub struct Group {
    core: Arc<Core>,
    lines: Vec<PumpLine>,
    /// Hints end with the handle; the pumps end soon after.
    _subscriptions: Vec<Subscription>,
}

/// What the handle shares with the threads.
struct Core {
    id: u64,
    stage: Stage,
    name: Arc<str>,
    board: Arc<Board>,
    stopping: CancelToken,
    budget: Duration,
}

impl Core {
    fn new(name: Arc<str>, stage: Stage, board: Arc<Board>, budget: Duration) -> Self {
        let stopping = CancelToken::on(stage.clone());
        Self { id: next_id(), stage, name, board, stopping, budget }
    }
}

/// How a clean stop went.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Jobs handed back: not begun, given way, or still running when the budget was over.
    pub handed_back: usize,
    /// Jobs whose handlers still run; their threads end when they return.
    pub still_running: Vec<JobId>,
    /// Pumps that halted, before or during the stop.
    pub halts: Vec<HaltState>,
    /// Pumps that have not answered in time, because they hang in a call of the store, or because the
    /// stop was asked for on a thread of the group itself, which cannot wait for itself.
    pub unanswered: usize,
}

/// How a group came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stopped {
    /// It was asked to stop.
    Cleanly(ShutdownReport),
    /// All of its pumps halted; the first halt.
    Halted(HaltState),
}

impl Group {
    fn new(core: Arc<Core>, lines: Vec<PumpLine>, subscriptions: Vec<Subscription>) -> Self {
        Self { core, lines, _subscriptions: subscriptions }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Asks for a clean stop and returns at once. Asking again changes nothing.
    pub fn begin_shutdown(&self) {
        if slips!(StopShownFirst) {
            self.core.stopping.fire(CancelReason::GroupStopping);
            point();
        }
        let asked = match (slips!(StopOnlyShown), slips!(StopToOne)) {
            (true, _) => 0,
            (_, true) => 1,
            _ => self.lines.len(),
        };
        for line in self.lines.iter().take(asked) {
            // A pump that is gone has ended already.
            let _ = line.inbox.send(Message::Stop);
            point();
        }
        // Only now: a handler that gives way as soon as it sees this is heard after the request that
        // it gives way to. The other way round its attempt would count as a failure.
        self.core.stopping.fire(CancelReason::GroupStopping);
    }

    /// Stops cleanly and waits for the end: claims nothing more, waits for running handlers up to the
    /// budget, records what finished, hands the rest back.
    ///
    /// Several threads may call it; each gets the report. On a thread of the group itself (in a handler)
    /// it asks for the stop and returns at once: nobody waits for himself.
    pub fn shutdown(&self) -> ShutdownReport {
        self.begin_shutdown();
        #[cfg(all(test, feature = "testing"))]
        if slips!(WaitsForItself) {
            let board = Arc::clone(&self.core.board);
            self.core.stage.park_until(move || board.ends().iter().all(Option::is_some));
        }
        // What is simulated goes on only when its caller lets it.
        if is_on_thread_of(self.core.id) || self.core.stage.is_simulated() {
            return report(&self.core.board.ends());
        }
        let patience = self.core.budget + CALL_GRACE;
        report(&self.core.board.wait_ended(Instant::now().checked_add(patience)))
    }

    /// Blocks until the group has ended, be it by a stop or because all of its pumps have halted. On a
    /// thread of the group itself it returns what is known at once.
    pub fn wait(&self) -> Stopped {
        let board = &self.core.board;
        let ends =
            if is_on_thread_of(self.core.id) { board.ends() } else { board.wait_ended(None) };
        let report = report(&ends);
        match report.halts.first() {
            Some(halt) if report.halts.len() == ends.len() => Stopped::Halted(halt.clone()),
            _ => Stopped::Cleanly(report),
        }
    }

    /// Asks every pump whether it is idle; for [`Self::was_idle`].
    #[cfg(feature = "testing")]
    pub(crate) fn ask_idle(&self) -> u64 {
        let probe = self.core.board.next_probe();
        for line in &self.lines {
            let _ = line.inbox.send(Message::IdleProbe(probe));
        }
        probe
    }

    /// How many jobs the pumps have taken, where all have answered that they are idle.
    #[cfg(feature = "testing")]
    pub(crate) fn was_idle(&self, probe: u64) -> Option<u64> {
        self.core.board.wait_idle(probe, Instant::now())
    }

    /// How it has ended, as far as it has: whether it has wholly, and the report.
    #[cfg(feature = "testing")]
    pub(crate) fn ending(&self) -> (bool, ShutdownReport) {
        let ends = self.core.board.ends();
        (ends.iter().all(Option::is_some), report(&ends))
    }

    /// Blocks until nothing runs, no outcome waits to be written and nothing is due in the queues
    /// served; `false` when that takes longer than `timeout`, or a pump has halted. Jobs that are due
    /// later (a retry that waits) do not count. Meant for tests and for programs that run to the end of
    /// their work.
    #[must_use]
    pub fn wait_until_idle(&self, timeout: Duration) -> bool {
        let Some(deadline) = Instant::now().checked_add(timeout) else { return false };
        let mut before = None;
        loop {
            let probe = self.core.board.next_probe();
            for line in &self.lines {
                let _ = line.inbox.send(Message::IdleProbe(probe));
            }
            let Some(taken) = self.core.board.wait_idle(probe, deadline) else { return false };
            // A job of one pump may have enqueued work that another took after it had answered: only a
            // round in which nobody took anything proves that all are idle.
            if before == Some(taken) {
                return true;
            }
            before = Some(taken);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _report = self.shutdown();
    }
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("name", &self.core.name).finish_non_exhaustive()
    }
}

fn report(ends: &[Option<PumpEnd>]) -> ShutdownReport {
    let mut report = ShutdownReport::default();
    for end in ends {
        match end {
            None => report.unanswered += 1,
            Some(PumpEnd::Halted(halt)) => report.halts.push(halt.clone()),
            Some(PumpEnd::Stopped { handed_back, still_running }) => {
                report.handed_back += handed_back;
                report.still_running.extend(still_running);
            }
        }
    }
    report
}

/// A number of its own for each group and each set of observers.
pub(crate) fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

thread_local! {
    static GROUP: Cell<u64> = const { Cell::new(0) };
}

/// Marks the thread as one of the group's.
pub(crate) fn enter_group(id: u64) {
    GROUP.set(id);
}

/// Which group's thread this is, for who lets several share one.
#[cfg(all(test, feature = "testing"))]
pub(crate) fn thread_group() -> u64 {
    GROUP.get()
}

#[cfg(all(test, feature = "testing"))]
pub(crate) fn set_thread_group(id: u64) {
    GROUP.set(id);
}

pub(crate) fn is_on_thread_of(id: u64) -> bool {
    GROUP.get() == id
}

/// Beyond the budget: the last calls of the store.
pub(crate) const CALL_GRACE: Duration = Duration::from_secs(2);
