//! The session threads of a client: the only places where its sessions live.
//!
//! A synchronous database client may carry a private runtime, and connecting, querying or dropping one
//! on a thread that is inside somebody's async runtime panics. So sessions are opened, used and dropped
//! on up to two threads of the crate's own. They start at the first call that finds nobody idle, end
//! when the last clone of the client is gone, and when they had nothing to do for a minute; nobody
//! waits for their end.
//!
//! No task is left without an answer: it is put into the channel under the lock under which a thread
//! decides to end, so that either the thread sees the task or the caller sees that there is no thread.
//!
//! No caller waits for ever: nothing bounds a read from a network that swallows everything, so a caller
//! gives up a call that has taken far longer than the store lets one take ([`Ticket`]). Its thread is
//! written off and another may start in its place; it ends when the call comes back. So many threads may
//! be written off at a time; beyond that they keep their places, and calls are given up before they begin.

use super::ticket::{Overdue, Return, Ticket};
use crate::invariant::InvariantViolation;
use crate::registry::panic_message;
use crate::store::{Session, Store, StoreError};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use parking_lot::Mutex;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A thread without work for so long ends.
pub(super) const IDLE: Duration = Duration::from_secs(60);
const THREADS_MAX: usize = 2;
/// So many threads that hang may be written off at a time.
const LOST_MAX: usize = 4;

struct Task {
    ticket: Arc<Ticket>,
    work: Work,
}

/// Carries out a call, and hands out what delivers its answer: later, once the thread is counted as free,
/// so that a caller in a loop does not start a second thread.
type Work = Box<dyn FnOnce(&mut Slot) -> Delivery + Send>;
type Delivery = Box<dyn FnOnce()>;

/// The handle; the threads hold the other end of its channel, and see it close when it is dropped.
pub(super) struct Threads {
    tasks: Sender<Task>,
    shared: Shared,
    /// How long a call may take before it is given up, where the store bounds its calls.
    patience: Option<Duration>,
}

/// What a thread holds. Without a sender, so that threads do not keep each other alive.
#[derive(Clone)]
struct Shared {
    store: Arc<dyn Store>,
    waiting: Receiver<Task>,
    load: Arc<Mutex<Load>>,
    idle: Duration,
}

#[derive(Default)]
struct Load {
    threads: usize,
    /// Tasks in the channel or being carried out.
    tasks: usize,
    /// Threads that hang and are not counted above any more.
    lost: usize,
}

/// Why one try has no answer.
pub(super) enum TryError {
    NoThread(io::Error),
    ThreadGone,
    /// The store failed; whether the call may have been carried out all the same.
    Store {
        error: StoreError,
        may_be_done: bool,
    },
}

impl Threads {
    pub(super) fn new(store: Arc<dyn Store>, idle: Duration) -> Self {
        let patience = store.call_timeout().map(|timeout| timeout * CALLS_MAX + CONNECT_MAX);
        Self::patient(store, idle, patience)
    }

    pub(super) fn patient(
        store: Arc<dyn Store>,
        idle: Duration,
        patience: Option<Duration>,
    ) -> Self {
        let (tasks, waiting) = unbounded();
        let shared = Shared { store, waiting, load: Arc::default(), idle };
        Self { tasks, shared, patience }
    }

    /// Carries out `call` on a session thread and waits for its answer.
    pub(super) fn run<R: Send + 'static>(
        &self,
        call: impl FnOnce(&mut dyn Session) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, TryError> {
        let (answer, answered) = bounded(1);
        let work: Work = Box::new(move |slot| {
            let carried_out = slot.carry_out(call);
            Box::new(move || {
                // Its caller waits for it, or has given it up.
                let _ = answer.send(carried_out);
            })
        });
        let ticket = Arc::new(Ticket::new());
        let task = Task { ticket: Arc::clone(&ticket), work };
        self.submit(task).map_err(TryError::NoThread)?;
        let Some(patience) = self.patience else {
            return answered.recv().unwrap_or(Err(TryError::ThreadGone));
        };
        let mut left = patience;
        loop {
            match answered.recv_timeout(left) {
                Ok(carried_out) => return carried_out,
                Err(RecvTimeoutError::Disconnected) => return Err(TryError::ThreadGone),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let may_be_done = match self.shared.give_up(&ticket, patience) {
                Overdue::NotYet(more) => {
                    left = more;
                    continue;
                }
                // It is on its way.
                Overdue::Ended => return answered.recv().unwrap_or(Err(TryError::ThreadGone)),
                Overdue::Withdrawn => false,
                Overdue::Hung => true,
            };
            let error = StoreError::timeout(NoAnswer { patience });
            return Err(TryError::Store { error, may_be_done });
        }
    }

    fn submit(&self, task: Task) -> io::Result<()> {
        let mut load = self.shared.load.lock();
        if load.tasks >= load.threads && load.threads < THREADS_MAX {
            match self.shared.spawn() {
                Ok(()) => load.threads += 1,
                // The threads there are will come to it.
                Err(_) if load.threads > 0 => {}
                Err(error) => return Err(error),
            }
        }
        load.tasks += 1;
        // Cannot fail, since we hold a receiver ourselves; the task's own answer channel would tell.
        let _ = self.tasks.send(task);
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn alive(&self) -> usize {
        self.shared.load.lock().threads
    }
}

impl Shared {
    fn spawn(&self) -> io::Result<()> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let shared = self.clone();
        std::thread::Builder::new()
            .name(format!("backwave-client-{number}"))
            .spawn(move || shared.serve())
            .map(drop)
    }

    fn serve(self) {
        let mut presence = Presence::new(self);
        let mut slot = Slot { store: Arc::clone(&presence.shared.store), session: None };
        while let Some(work) = presence.next_work() {
            let deliver = work(&mut slot);
            if presence.end_work() {
                deliver();
            } else if presence.has_left {
                break;
            }
        }
        slot.close();
    }

    /// Gives up a call that has taken too long. A thread that hangs in it is counted as lost, and another
    /// takes over what waits.
    fn give_up(&self, ticket: &Ticket, patience: Duration) -> Overdue {
        // Under the lock under which a thread ends its work: it finds all of this done, or nothing.
        let mut load = self.load.lock();
        let overdue = ticket.give_up(patience);
        if overdue == Overdue::Hung && load.lost < LOST_MAX {
            ticket.write_off();
            load.lost += 1;
            load.threads -= 1;
            load.tasks -= 1;
            if load.tasks > load.threads && load.threads < THREADS_MAX && self.spawn().is_ok() {
                load.threads += 1;
            }
        }
        overdue
    }
}

/// Counts a thread as present until it ends, however it ends.
struct Presence {
    shared: Shared,
    /// The call that it carries out.
    carrying: Option<Arc<Ticket>>,
    has_left: bool,
}

impl Presence {
    const fn new(shared: Shared) -> Self {
        Self { shared, carrying: None, has_left: false }
    }

    /// Waits for work that somebody waits for; `None` when the thread is to end.
    fn next_work(&mut self) -> Option<Work> {
        loop {
            let Task { ticket, work } = self.next_task()?;
            let is_waited_for = ticket.begin();
            self.carrying = Some(ticket);
            if is_waited_for {
                return Some(work);
            }
            self.end_work();
        }
    }

    /// Counts the work as carried out. Whether somebody waits for its answer.
    fn end_work(&mut self) -> bool {
        let Some(ticket) = self.carrying.take() else { return false };
        let mut load = self.shared.load.lock();
        let back = ticket.end();
        if back == Return::WrittenOff {
            load.lost -= 1;
            self.has_left = true;
        } else {
            load.tasks -= 1;
        }
        back == Return::Awaited
    }

    /// Waits for a task; `None` when the thread is to end.
    fn next_task(&mut self) -> Option<Task> {
        loop {
            match self.shared.waiting.recv_timeout(self.shared.idle) {
                Ok(task) => return Some(task),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if self.leave() => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Leaves, unless a task has come since the thread last looked.
    fn leave(&mut self) -> bool {
        let mut load = self.shared.load.lock();
        if self.shared.waiting.is_empty() {
            load.threads -= 1;
            self.has_left = true;
        }
        self.has_left
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.end_work();
        if self.has_left {
            return;
        }
        // Either the client is gone, or this thread ends in a way that nobody foresaw. When it was the
        // last one, tasks that still wait are dropped, whose callers then hear that it is gone.
        let left_over: Vec<Task> = {
            let mut load = self.shared.load.lock();
            load.threads -= 1;
            if load.threads > 0 {
                return;
            }
            load.tasks = 0;
            self.shared.waiting.try_iter().collect()
        };
        drop(left_over);
    }
}

/// One thread's session, opened at its first task and again after it was lost.
struct Slot {
    store: Arc<dyn Store>,
    session: Option<Box<dyn Session>>,
}

impl Slot {
    fn carry_out<R>(
        &mut self,
        call: impl FnOnce(&mut dyn Session) -> Result<R, StoreError>,
    ) -> Result<R, TryError> {
        let mut session = match self.session.take() {
            Some(session) => session,
            None => contained(|| self.store.open_session())
                .unwrap_or_else(Err)
                // Nothing was sent.
                .map_err(|error| TryError::Store { error, may_be_done: false })?,
        };
        match contained(|| call(session.as_mut())) {
            Ok(Ok(answer)) => {
                self.session = Some(session);
                Ok(answer)
            }
            Ok(Err(error)) => {
                let may_be_done =
                    !error.refused_whole() && (error.session_lost() || error.code().is_none());
                if error.session_lost() {
                    close(session);
                } else {
                    self.session = Some(session);
                }
                // Only a database that has answered with a code, on a session that stands, or of whose
                // refusal the adapter is sure, has refused the whole call.
                Err(TryError::Store { error, may_be_done })
            }
            Err(error) => {
                close(session);
                Err(TryError::Store { error, may_be_done: true })
            }
        }
    }

    fn close(&mut self) {
        if let Some(session) = self.session.take() {
            close(session);
        }
    }
}

/// A call that was given up.
#[derive(Debug, thiserror::Error)]
#[error("there was no answer within {patience:?}")]
pub(super) struct NoAnswer {
    patience: Duration,
}

/// Of so many calls, each as long as the store lets it be, and of making a connection, no try consists.
const CALLS_MAX: u32 = 3;
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// A store's own panic. Never transient.
#[derive(Debug, thiserror::Error)]
#[error("the store panicked: {message}")]
pub(super) struct StorePanicked {
    message: String,
}

/// Runs the store's code; a panic becomes an error, and a violation that was raised stays one.
fn contained<R>(run: impl FnOnce() -> R) -> Result<R, StoreError> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| {
        match payload.downcast::<InvariantViolation>() {
            Ok(violation) => StoreError::from(*violation),
            Err(payload) => {
                let message = panic_message(payload.as_ref());
                crate::contain::dispose(payload);
                StoreError::new(StorePanicked { message })
            }
        }
    })
}

/// Drops a session; what its `Drop` panics with is of no use to anybody.
fn close(session: Box<dyn Session>) {
    let _ = contained(|| drop(session));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;

    #[test]
    fn a_thread_does_not_leave_a_task_behind() {
        let threads = Threads::new(Arc::new(MemoryStore::new()), IDLE);
        threads.shared.load.lock().threads = 1;
        let mut presence = Presence::new(threads.shared.clone());
        let (done, is_done) = bounded(1);
        let work: Work = Box::new(|_| {
            Box::new(move || {
                let _ = done.send(());
            })
        });
        let task = Task { ticket: Arc::new(Ticket::new()), work };
        threads.submit(task).expect("a thread is there");
        assert!(!presence.leave(), "the task came before the thread left");
        assert!(threads.shared.waiting.try_recv().is_ok());
        assert!(presence.leave());
        assert_eq!(threads.alive(), 0);
        assert!(is_done.recv().is_err(), "the task was dropped, and its caller hears of it");
    }

    #[test]
    fn tasks_of_a_thread_that_vanished_are_given_up() {
        let threads = Threads::new(Arc::new(MemoryStore::new()), IDLE);
        threads.shared.load.lock().threads = 1;
        let presence = Presence::new(threads.shared.clone());
        let (done, is_done) = bounded::<()>(1);
        let work: Work = Box::new(|_| {
            Box::new(move || {
                let _ = done.send(());
            })
        });
        let task = Task { ticket: Arc::new(Ticket::new()), work };
        threads.submit(task).expect("a thread is there");
        drop(presence);
        assert!(is_done.recv().is_err());
        threads.run(|session| session.now()).ok().expect("another thread starts");
    }
}
