//! Enqueueing: rows made once, sent as often as it takes under the same ids, and the hints afterwards.

use super::gather::{self, Flown};
use super::{Answered, CallError, Client};
use crate::contain::contained;
use crate::invariant::{InvariantTrigger, halt};
use crate::store::{Admission, Due, EnqueueAnswer, Hub, JobRow, Session, StoreError};
use crate::{EnqueueError, JobId, JobState, NewJob, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What became of an enqueued job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Enqueued {
    /// The job that stands: the one enqueued, or the one that holds its unique key.
    pub id: JobId,
    /// `false` where a job with this id existed already and was left as it is, or where another job
    /// holds the [unique key](NewJob::unique_key).
    pub is_new: bool,
    /// Where another job holds the unique key, in which state that one is. Nothing was stored then.
    pub held_in: Option<JobState>,
}

impl Enqueued {
    /// What a store's answer means to whoever enqueued the job `id`.
    const fn of(id: JobId, admission: Admission, was_ours: bool) -> Self {
        match admission {
            Admission::New => Self { id, is_new: true, held_in: None },
            Admission::Duplicate => Self { id, is_new: was_ours, held_in: None },
            Admission::Held { by, state } => Self { id: by, is_new: false, held_in: Some(state) },
        }
    }
}

/// The jobs of one call, encoded.
pub(crate) struct Batch {
    rows: Arc<[JobRow]>,
    /// Per row, whether nobody but this call can have enqueued a job under its id.
    is_own_id: Vec<bool>,
}

impl Batch {
    pub(crate) fn of(
        jobs: impl IntoIterator<Item = impl Into<NewJob>>,
    ) -> Result<Self, EnqueueError> {
        let mut is_own_id = Vec::new();
        let rows = jobs.into_iter().enumerate().map(|(index, job)| {
            let job = job.into();
            is_own_id.push(job.is_own_id());
            job.into_row().map_err(|source| EnqueueError::Encode { index, source })
        });
        let rows = rows.collect::<Result<Vec<_>, _>>()?.into();
        Ok(Self { rows, is_own_id })
    }

    /// The places of the jobs in an order in which each comes after its parents, or a cycle.
    pub(super) fn order(&self) -> Result<Vec<usize>, Vec<JobId>> {
        let members: Vec<_> =
            self.rows.iter().map(|row| (row.id, row.parents.as_slice())).collect();
        crate::kernel::graph::order(&members)
    }

    /// The same jobs in another order.
    pub(super) fn rearranged(&self, order: &[usize]) -> Self {
        Self {
            rows: order.iter().map(|place| self.rows[*place].clone()).collect(),
            is_own_id: order.iter().map(|place| self.is_own_id[*place]).collect(),
        }
    }

    /// Whether a job of that id comes before the place, which is stored for certain: no other job can hold a
    /// key of it.
    pub(super) fn stands_before(&self, id: JobId, place: usize) -> bool {
        self.rows.iter().take(place).any(|row| row.id == id && row.unique_key.is_none())
    }

    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn rows(&self) -> &[JobRow] {
        &self.rows
    }

    /// What the store's answer means for the caller. After a lost answer (`in_doubt`) a job of ours
    /// that is told as not new was stored by an earlier try of this very call.
    pub(crate) fn read(
        &self,
        answer: EnqueueAnswer,
        in_doubt: bool,
    ) -> Result<(Vec<Enqueued>, Timestamp), EnqueueError> {
        let (jobs, store_time) = match answer {
            EnqueueAnswer::Accepted { jobs, store_time } => (jobs, store_time),
            EnqueueAnswer::Rejected { index, reason } => {
                return Err(EnqueueError::Rejected { index, reason });
            }
        };
        if jobs.len() != self.rows.len() {
            let message = format!("{} answers to {} enqueued jobs", jobs.len(), self.rows.len());
            let violation = halt(InvariantTrigger::UnexpectedAffectedRowCount, message);
            return Err(EnqueueError::Invariant(violation));
        }
        let answers = self.rows.iter().zip(&self.is_own_id).zip(jobs);
        let enqueued = answers.map(|((row, &is_own_id), admission)| {
            Enqueued::of(row.id, admission, in_doubt && is_own_id)
        });
        Ok((enqueued.collect(), store_time))
    }

    fn ids(&self) -> Vec<JobId> {
        self.rows.iter().map(|row| row.id).collect()
    }

    /// Per distinct queue the shortest time until one of its jobs is due.
    fn due_in(&self, store_time: Timestamp) -> BTreeMap<&str, Duration> {
        let mut queues = BTreeMap::new();
        for row in self.rows.iter() {
            let due_in = match row.due {
                Due::Now => Duration::ZERO,
                Due::In(delay) => delay,
                Due::At(due) => due.since(store_time),
            };
            let shortest = queues.entry(row.queue.as_str()).or_insert(due_in);
            *shortest = due_in.min(*shortest);
        }
        queues
    }
}

impl Client {
    pub(super) fn send(&self, batch: &Batch) -> Result<Vec<Enqueued>, EnqueueError> {
        if batch.rows.is_empty() {
            return Ok(Vec::new());
        }
        let sent = self.send_rows(&batch.rows);
        let Answered { answer, in_doubt } = sent.map_err(|error| failed(error, batch))?;
        let (enqueued, store_time) = batch.read(answer, in_doubt)?;
        for (queue, due_in) in batch.due_in(store_time) {
            wake(self.hub(), queue, due_in);
        }
        self.hub().transitions_written();
        crate::telemetry::enqueued(enqueued.iter().filter(|job| job.is_new).count());
        Ok(enqueued)
    }

    fn send_rows(&self, rows: &Arc<[JobRow]>) -> Result<Answered<EnqueueAnswer>, CallError> {
        let again = {
            let rows = Arc::clone(rows);
            move |session: &mut dyn Session| session.enqueue(&rows)
        };
        if rows.len() > gather::CALL_MAX {
            return self.call(again);
        }
        let began = Instant::now();
        let run = |rows: Arc<[JobRow]>| self.0.threads.run(move |session| session.enqueue(&rows));
        match self.0.gather.fly(rows, run) {
            Flown::Tried(tried) => self.call_again(began, Some(tried), false, again),
            Flown::Alone { in_doubt } => self.call_again(began, None, in_doubt, again),
        }
    }
}

fn failed(error: CallError, batch: &Batch) -> EnqueueError {
    match error {
        CallError::NoThread(error) => EnqueueError::NoThread(error),
        CallError::ThreadGone => EnqueueError::ThreadGone,
        CallError::Store { error, in_doubt: true } if !is_violation(&error) => {
            EnqueueError::OutcomeUnknown { ids: batch.ids(), source: error }
        }
        CallError::Store { error, .. } => error.into(),
    }
}

fn is_violation(error: &StoreError) -> bool {
    error.violation().is_some()
}

/// Tells subscribers, whose panics must not become those of a caller whose schedules are stored.
pub(crate) fn schedules_changed(hub: &Hub) {
    let _ = contained(|| hub.schedules_changed());
}

/// Wakes subscribers, whose panics must not become those of a caller whose jobs are stored.
pub(crate) fn wake(hub: &Hub, queue: &str, due_in: Duration) {
    let _ = contained(|| hub.wake(queue, due_in));
}
