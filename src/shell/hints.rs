//! How a pump hears of work without polling: the hub's hints, coalesced.

use super::Message;
use super::planted::slips;
use crate::stage::{Stage, point};
use crate::store::Wake;
use crossbeam_channel::Sender;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The earliest time at which somebody says that a queue of this pump has work.
pub(crate) struct Hints {
    queues: BTreeSet<String>,
    inbox: Sender<Message>,
    earliest: Mutex<Option<Instant>>,
    schedules: AtomicBool,
    stage: Stage,
}

impl Hints {
    pub(crate) fn new<'q>(
        queues: impl Iterator<Item = &'q str>,
        inbox: Sender<Message>,
        stage: Stage,
    ) -> Arc<Self> {
        let queues = queues.map(str::to_owned).collect();
        Arc::new(Self {
            queues,
            inbox,
            earliest: Mutex::new(None),
            schedules: AtomicBool::new(false),
            stage,
        })
    }

    /// Whether schedules have changed since this was asked last.
    pub(crate) fn take_schedules(&self) -> bool {
        self.schedules.swap(false, Ordering::SeqCst)
    }

    /// What was heard may be taken as soon as this has been asked.
    fn is_empty(&self) -> bool {
        let is_empty = self.earliest.lock().is_none();
        point();
        is_empty
    }

    /// Takes what was heard.
    pub(crate) fn take(&self) -> Option<Instant> {
        self.earliest.lock().take()
    }
}

impl Wake for Hints {
    fn wake(&self, queue: &str, due_in: Duration) {
        if !self.queues.contains(queue) {
            return;
        }
        // A due time beyond what an `Instant` can hold is left to polling.
        let Some(due) = self.stage.now().checked_add(due_in) else { return };
        let was_none = slips!(HintInTwoSteps).then(|| self.is_empty());
        let first = {
            let mut earliest = self.earliest.lock();
            let first = was_none.unwrap_or_else(|| earliest.is_none());
            *earliest = Some(earliest.map_or(due, |known| known.min(due)));
            first
        };
        point();
        if first {
            // A pump that is gone needs no hint.
            let _ = self.inbox.send(Message::Hint);
        }
    }

    fn schedules_changed(&self) {
        if !self.schedules.swap(true, Ordering::SeqCst) {
            let _ = self.inbox.send(Message::Hint);
        }
    }
}
