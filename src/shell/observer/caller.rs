//! The thread that runs an observer's callback, one delivery at a time.
//!
//! A thread whose callback takes too long is left behind and a fresh one takes over; it ends with its callback,
//! and says so. Threads are never killed.

use super::Message;
use crate::JobError;
use crate::contain::dispose;
use crate::kernel::observer::Ending;
use crate::kernel::text::clean;
use crate::observer::CallbackResult;
use crate::registry::panic_message;
use crate::stage::Stage;
use crate::store::Observation;
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What the user gave.
pub(crate) type Callback = dyn Fn(&Observation) -> CallbackResult + Send + Sync;

type Order = (u64, Box<Observation>);

/// The handle; dropping it lets the thread end when its callback has.
pub(crate) struct Caller {
    stage: Stage,
    name: String,
    callback: Arc<Callback>,
    detail_bytes_max: usize,
    on_thread: Arc<dyn Fn() + Send + Sync>,
    pump: Sender<Message>,
    orders: Sender<Order>,
    thread: u64,
}

impl Caller {
    /// Starts the thread. `on_thread` runs at the beginning of each.
    pub(crate) fn start(
        stage: Stage,
        name: String,
        callback: Arc<Callback>,
        detail_bytes_max: usize,
        on_thread: Arc<dyn Fn() + Send + Sync>,
        pump: Sender<Message>,
    ) -> io::Result<Self> {
        let (orders, given) = unbounded();
        let max = detail_bytes_max;
        let caller = Self {
            stage,
            name,
            callback,
            detail_bytes_max: max,
            on_thread,
            pump,
            orders,
            thread: 0,
        };
        caller.spawn(given)?;
        Ok(caller)
    }

    fn spawn(&self, given: Receiver<Order>) -> io::Result<()> {
        let (callback, on_thread) = (Arc::clone(&self.callback), Arc::clone(&self.on_thread));
        let (pump, number, max) = (self.pump.clone(), self.thread, self.detail_bytes_max);
        let (name, stage) = (format!("{}-c{number}", self.name), self.stage.clone());
        let work = move || {
            on_thread();
            while let Ok((delivery, observation)) = stage.receive(&given, None) {
                let ending = run(&*callback, &observation, max);
                // A pump that is gone does not hear it: its cursor lapses.
                let _ = pump.send(Message::Done { thread: number, delivery, ending });
            }
            // The user's: what it captured may panic as it is dropped.
            dispose(Box::new(callback));
        };
        self.stage.spawn(name, work).map(drop)
    }

    /// Hands a delivery to the thread, which is free.
    pub(crate) fn call(&self, delivery: u64, observation: Box<Observation>) {
        // Its thread takes orders as long as this handle is there.
        let _ = self.orders.send((delivery, observation));
    }

    pub(crate) const fn is_current(&self, thread: u64) -> bool {
        self.thread == thread
    }

    /// Lets the thread end when its callback has, and starts another.
    pub(crate) fn leave_behind(&mut self) -> io::Result<()> {
        let (orders, given) = unbounded();
        self.thread += 1;
        self.orders = orders;
        self.spawn(given)
    }
}

fn run(callback: &Callback, observation: &Observation, detail_bytes_max: usize) -> Ending {
    match catch_unwind(AssertUnwindSafe(|| callback(observation))) {
        Ok(Ok(())) => Ending::Ok,
        Ok(Err(error)) => {
            let error = JobError::retry(error);
            let detail = error.detail(detail_bytes_max);
            error.dispose();
            Ending::Failed(detail)
        }
        Err(payload) => {
            let detail = format!("the callback panicked: {}", panic_message(payload.as_ref()));
            dispose(payload);
            Ending::Failed(clean(&detail, detail_bytes_max))
        }
    }
}
