//! What an operator does to jobs.

use crate::store::{CancelAnswer, RequeueAnswer};
use crate::{Client, Error, JobId, JobState};

/// Acts on jobs in somebody's name; from [`Client::operator`].
///
/// ```
/// use backwave::operator::CancelOutcome;
/// use backwave::{Client, Error, MemoryStore, NewJob};
///
/// let client = Client::new(MemoryStore::new());
/// let job = client.enqueue(NewJob::raw("resize", "{}")).unwrap();
/// let operator = client.operator("ada");
/// assert_eq!(operator.cancel(job.id).unwrap(), CancelOutcome::Cancelled);
/// assert!(matches!(operator.cancel(job.id), Err(Error::IllegalState { .. })));
/// ```
#[derive(Debug, Clone)]
pub struct Operator {
    client: Client,
    actor: String,
}

/// What a cancel request did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CancelOutcome {
    /// The job was waiting and is Cancelled now.
    Cancelled,
    /// The job is running. Its handler hears of it at the next heartbeat, and the job is Cancelled
    /// unless the attempt succeeds all the same, or its payload cannot be decoded.
    Requested,
}

impl Operator {
    pub(crate) const fn new(client: Client, actor: String) -> Self {
        Self { client, actor }
    }

    /// In whose name it acts.
    #[must_use]
    pub fn actor(&self) -> &str {
        &self.actor
    }

    /// Calls a job off.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::IllegalState`] where it has ended already; or a fault, after which
    /// the request may stand or not: asking again is harmless.
    pub fn cancel(&self, id: JobId) -> Result<CancelOutcome, Error> {
        let actor = self.actor.clone();
        let called = self.client.call(move |session| session.request_cancel(&actor, id))?;
        match called.answer {
            CancelAnswer::Cancelled => Ok(CancelOutcome::Cancelled),
            // Our own doing, by a try whose answer was lost.
            CancelAnswer::Ended(JobState::Cancelled) if called.in_doubt => {
                Ok(CancelOutcome::Cancelled)
            }
            CancelAnswer::Requested => Ok(CancelOutcome::Requested),
            CancelAnswer::Ended(state) => Err(Error::IllegalState { id, state }),
            CancelAnswer::NotFound => Err(Error::NotFound { id }),
        }
    }

    /// Makes a Dead-Lettered or Quarantined job Scheduled again: due now, without failures.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::IllegalState`] where no requeue leads out of its state; or a fault,
    /// after which it may be requeued or not: asking again is harmless.
    pub fn requeue(&self, id: JobId) -> Result<(), Error> {
        let actor = self.actor.clone();
        let called = self.client.call(move |session| {
            let answer = session.requeue(&actor, id)?;
            let is_requeued = answer == RequeueAnswer::Requeued;
            let record = if is_requeued { session.job(id).ok().flatten() } else { None };
            Ok((answer, record.map(|record| record.queue)))
        })?;
        let (answer, queue) = called.answer;
        match answer {
            RequeueAnswer::Requeued => {
                if let Some(queue) = queue {
                    self.client.wake(&queue);
                }
                Ok(())
            }
            // Our own doing, by a try whose answer was lost.
            RequeueAnswer::IllegalState(JobState::Scheduled | JobState::Leased)
                if called.in_doubt =>
            {
                Ok(())
            }
            RequeueAnswer::IllegalState(state) => Err(Error::IllegalState { id, state }),
            RequeueAnswer::NotFound => Err(Error::NotFound { id }),
        }
    }
}
