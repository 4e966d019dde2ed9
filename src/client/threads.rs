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

/// Carries out a call, and hands out what delivers its answer: later, once the thread is counted as free,
/// so that a caller in a loop does not start a second thread.
type Task = Box<dyn FnOnce(&mut Slot) -> Delivery + Send>;
type Delivery = Box<dyn FnOnce()>;

/// The handle; the threads hold the other end of its channel, and see it close when it is dropped.
pub(super) struct Threads {
    tasks: Sender<Task>,
    shared: Shared,
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
        let (tasks, waiting) = unbounded();
        Self { tasks, shared: Shared { store, waiting, load: Arc::default(), idle } }
    }

    /// Carries out `call` on a session thread and waits for its answer.
    pub(super) fn run<R: Send + 'static>(
        &self,
        call: impl FnOnce(&mut dyn Session) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, TryError> {
        let (answer, answered) = bounded(1);
        let task: Task = Box::new(move |slot| {
            let carried_out = slot.carry_out(call);
            Box::new(move || {
                // Its caller waits for it.
                let _ = answer.send(carried_out);
            })
        });
        self.submit(task).map_err(TryError::NoThread)?;
        answered.recv().unwrap_or(Err(TryError::ThreadGone))
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
        let mut presence = Presence { shared: self, has_left: false };
        let mut slot = Slot { store: Arc::clone(&presence.shared.store), session: None };
        while let Some(task) = presence.next_task() {
            let carrying = Carrying(&presence.shared.load);
            let deliver = task(&mut slot);
            drop(carrying);
            deliver();
        }
        slot.close();
    }
}

/// Counts a thread as present until it ends, however it ends.
struct Presence {
    shared: Shared,
    has_left: bool,
}

impl Presence {
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

/// Counts a task as carried out when it ends, however it ends.
struct Carrying<'l>(&'l Mutex<Load>);

impl Drop for Carrying<'_> {
    fn drop(&mut self) {
        self.0.lock().tasks -= 1;
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
                let may_be_done = error.session_lost() || error.code().is_none();
                if error.session_lost() {
                    close(session);
                } else {
                    self.session = Some(session);
                }
                // Only a database that has answered with a code, on a session that stands, has surely
                // refused the whole call.
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
        let mut presence = Presence { shared: threads.shared.clone(), has_left: false };
        let (done, is_done) = bounded(1);
        let task: Task = Box::new(|_| {
            Box::new(move || {
                let _ = done.send(());
            })
        });
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
        let presence = Presence { shared: threads.shared.clone(), has_left: false };
        let (done, is_done) = bounded::<()>(1);
        let task: Task = Box::new(|_| {
            Box::new(move || {
                let _ = done.send(());
            })
        });
        threads.submit(task).expect("a thread is there");
        drop(presence);
        assert!(is_done.recv().is_err());
        threads.run(|session| session.now()).ok().expect("another thread starts");
    }
}
