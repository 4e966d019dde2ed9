//! A worker thread: takes a task, runs its handler inside the first of the three nets, tells its pump.

use super::Message;
use super::faults::Fault;
use super::planted::slips;
use super::pool::Order;
use crate::contain::dispose;
use crate::kernel::driver::{Ending, ExecutionId};
use crate::registry::{Entry, Run, panic_message};
use crate::stage::{Stage, point};
use crate::store::Body;
use crate::{CancelReason, CancelToken, JobContext, Verdict, telemetry};
use crossbeam_channel::{Receiver, Sender};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// A job on its way to a handler.
pub(crate) struct Task {
    pub(crate) execution: ExecutionId,
    pub(crate) entry: Arc<Entry>,
    pub(crate) context: JobContext,
    pub(crate) payload: Body,
    pub(crate) version: u32,
    /// Whether the pump wants to hear that it began.
    pub(crate) has_time_limit: bool,
    pub(crate) detail_bytes_max: usize,
    phase: AtomicU8,
}

const WAITING: u8 = 0;
const BEGUN: u8 = 1;
const WITHDRAWN: u8 = 2;

impl Task {
    pub(crate) fn new(
        execution: ExecutionId,
        entry: Arc<Entry>,
        context: JobContext,
        payload: Body,
        version: u32,
    ) -> Self {
        Self {
            execution,
            entry,
            context,
            payload,
            version,
            has_time_limit: false,
            detail_bytes_max: 8 * 1024,
            phase: AtomicU8::new(WAITING),
        }
    }

    pub(crate) fn token(&self) -> &CancelToken {
        self.context.token()
    }

    /// Takes it back if no worker has begun it. Of this and a worker's beginning exactly one succeeds.
    pub(crate) fn withdraw(&self) -> bool {
        self.enter(WITHDRAWN)
    }

    fn begin(&self) -> bool {
        self.enter(BEGUN) || slips!(TakenByTwo)
    }

    fn enter(&self, phase: u8) -> bool {
        point();
        if slips!(BeganInTwoSteps) {
            let waits = self.phase.load(Ordering::Acquire) == WAITING;
            point();
            self.phase.store(phase, Ordering::Release);
            return waits;
        }
        self.phase.compare_exchange(WAITING, phase, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// Runs until its orders end.
pub(super) fn work(orders: &Receiver<Order>, pump: &Sender<Message>, stage: &Stage) {
    while let Ok(Order::Run(task)) = stage.receive(orders, None) {
        if !task.begin() {
            continue;
        }
        let message = run(&task, pump, stage);
        point();
        if slips!(ResultKeptAtStop) && task.context.is_stopping() {
            continue;
        }
        // A pump that is gone does not hear it: its leases lapse, and others inherit the work.
        let _ = pump.send(message);
    }
}

fn run(task: &Task, pump: &Sender<Message>, stage: &Stage) -> Message {
    let began = stage.now();
    // No job starts once its lease is past, however it came to wait so long.
    if task.token().reason() == Some(CancelReason::LeaseLost) {
        return Message::finished(task.execution, Ending::NotStarted, task.token(), Duration::ZERO);
    }
    if task.has_time_limit {
        let started = crate::kernel::driver::Event::Started { execution: task.execution };
        let _ = pump.send(Message::Driver(started));
    }
    let context = &task.context;
    let (job, attempt) = (context.job_id(), context.attempt());
    telemetry::attempt_started(context.group(), job, attempt, task.entry.wire_name);
    let handler = || (task.entry.run)(&task.context, task.version, task.payload.as_bytes());
    let ending = match catch_unwind(AssertUnwindSafe(handler)) {
        Ok(Run::Undecodable(detail)) => Ok(Ending::Undecodable { detail }),
        Ok(Run::Done(Ok(()))) => Ok(Ending::Succeeded { output: task.context.take_output() }),
        Ok(Run::Done(Err(error))) => failed(task, error),
        Err(payload) => panicked(payload),
    };
    match ending {
        Ok(ending) => {
            let took = stage.now().saturating_duration_since(began);
            Message::finished(task.execution, ending, task.token(), took)
        }
        Err(violation) => Message::Violation(violation),
    }
}

fn failed(task: &Task, error: crate::JobError) -> Result<Ending, Fault> {
    if let Some(seen) = error.violation() {
        error.dispose();
        return Err(Fault::new(seen.type_name, seen.message, Some(seen.trigger)));
    }
    let (verdict, detail) = (error.verdict(), error.detail(task.detail_bytes_max));
    error.dispose();
    Ok(Ending::Failed { verdict, detail })
}

fn panicked(payload: Box<dyn std::any::Any + Send>) -> Result<Ending, Fault> {
    if let Some(violation) = Fault::violation_in(payload.as_ref()) {
        dispose(payload);
        return Err(violation);
    }
    let detail = format!("the handler panicked: {}", panic_message(payload.as_ref()));
    dispose(payload);
    Ok(Ending::Failed { verdict: Verdict::Retry, detail })
}
