//! The worker threads of one pump.

use super::Message;
use super::planted::slips;
use super::worker::{Task, work};
use crate::contain::dispose;
use crate::stage::{Stage, point};
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

/// What a worker is told.
pub(crate) enum Order {
    Run(Arc<Task>),
    /// One worker, whichever takes it, goes: another came back that had been given up.
    Retire,
}

/// Threads that take tasks from one channel. Dropping it lets each thread end when its handler has.
pub(crate) struct Pool {
    orders: Sender<Order>,
    taken_by_workers: Receiver<Order>,
    /// Not handed out yet. Tasks of one claim go in one go: sent one by one, as they are made, each
    /// would find the workers asleep and wake one.
    waiting: Vec<Arc<Task>>,
    pump: Sender<Message>,
    name: String,
    spawned: usize,
    on_thread: Arc<dyn Fn() + Send + Sync>,
    stage: Stage,
}

impl Pool {
    /// Starts `count` threads. `on_thread` runs at the beginning of each.
    pub(crate) fn start(
        name: String,
        count: u32,
        pump: Sender<Message>,
        on_thread: Arc<dyn Fn() + Send + Sync>,
        stage: Stage,
    ) -> Result<(Self, Vec<JoinHandle<()>>), std::io::Error> {
        let (orders, taken_by_workers) = unbounded();
        let waiting = Vec::new();
        let mut pool =
            Self { orders, taken_by_workers, waiting, pump, name, spawned: 0, on_thread, stage };
        let threads = (0..count).map(|_| pool.spawn()).collect::<Result<Vec<_>, _>>()?;
        Ok((pool, threads.into_iter().flatten().collect()))
    }

    /// Starts one more thread.
    pub(crate) fn spawn(&mut self) -> Result<Option<JoinHandle<()>>, std::io::Error> {
        let (orders, pump) = (self.taken_by_workers.clone(), self.pump.clone());
        let (on_thread, stage) = (Arc::clone(&self.on_thread), self.stage.clone());
        let name = format!("{}-w{}", self.name, self.spawned);
        self.spawned += 1;
        self.stage.spawn(name, move || {
            let end = catch_unwind(AssertUnwindSafe(|| {
                on_thread();
                work(&orders, &pump, &stage);
            }));
            if let Err(payload) = end {
                // Nothing of the host's unwinds to here: this is a bug of ours, and the pump halts on
                // it. A pump that is gone has halted already.
                dispose(payload);
                if slips!(WorkerDiesSilently) {
                    return;
                }
                let _ = pump.send(Message::WorkerGone);
            }
        })
    }

    /// Takes on a task, for the next [`Self::hand_out`].
    pub(crate) fn add(&mut self, task: Arc<Task>) {
        self.waiting.push(task);
    }

    /// Hands each task to whichever worker is free next.
    pub(crate) fn hand_out(&mut self) {
        for task in self.waiting.drain(..) {
            point();
            // The pool holds a receiver itself, so the channel cannot be closed.
            if slips!(TakenByTwo) {
                let _ = self.orders.send(Order::Run(Arc::clone(&task)));
            }
            let _ = self.orders.send(Order::Run(task));
        }
    }

    pub(crate) fn retire_one(&self) {
        let _ = self.orders.send(Order::Retire);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        point();
        if slips!(TasksLeftAtHalt) {
            return;
        }
        // What no worker has begun is not begun any more; then the channel closes as the senders go.
        for task in &self.waiting {
            task.withdraw();
        }
        for order in self.taken_by_workers.try_iter() {
            if let Order::Run(task) = order {
                task.withdraw();
            }
        }
    }
}
