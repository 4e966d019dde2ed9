//! What an operator does to jobs and queues. Each action that has an effect is audited in the transaction that
//! carries it out: [`Monitor::audit`](crate::monitor::Monitor::audit) reads it back.

use crate::kernel::text::check_name;
use crate::store::{
    BulkChange, CancelAnswer, JobFilter, ObserverChange, PAGE_MAX, QueueChange, QueueSettings,
    RequeueAnswer,
};
use crate::{Client, Error, JobId, JobState, WorkerId};

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
            CancelAnswer::Cancelled => {
                self.client.settled();
                Ok(CancelOutcome::Cancelled)
            }
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
    /// [`Error::NotFound`]; [`Error::IllegalState`] where no requeue leads out of its state;
    /// [`Error::KeyHeld`] where another job holds its [unique key](crate::NewJob::unique_key); or a fault, after
    /// which it may be requeued or not: asking again is harmless.
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
            RequeueAnswer::KeyHeld { by } => Err(Error::KeyHeld { id, by }),
            RequeueAnswer::NotFound => Err(Error::NotFound { id }),
        }
    }

    /// Calls off every job that a filter matches and that has not ended; how many.
    ///
    /// It works through the jobs page by page, each page a transaction of its own: what is enqueued
    /// meanwhile may be called off as well, and a fault in the middle leaves what was done before it.
    ///
    /// ```
    /// use backwave::monitor::JobFilter;
    /// use backwave::{Client, MemoryStore, NewJob};
    ///
    /// let client = Client::new(MemoryStore::new());
    /// client.enqueue_many((0..3).map(|_| NewJob::raw("resize", "{}").tag("old")))?;
    /// client.enqueue(NewJob::raw("resize", "{}"))?;
    /// assert_eq!(client.operator("ada").cancel_matching(&JobFilter::new().tag("old"))?, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A fault; doing it again is harmless.
    pub fn cancel_matching(&self, filter: &JobFilter) -> Result<u64, Error> {
        self.change_matching(BulkChange::Cancel, filter)
    }

    /// Requeues every Dead-Lettered or Quarantined job that a filter matches; how many. Page by page, as
    /// [`Self::cancel_matching`]. A job whose [unique key](crate::NewJob::unique_key) another job holds is
    /// passed over, and of several with one key the first is requeued.
    ///
    /// # Errors
    /// A fault; doing it again is harmless.
    pub fn requeue_matching(&self, filter: &JobFilter) -> Result<u64, Error> {
        let changed = self.change_matching(BulkChange::Requeue, filter)?;
        if changed > 0 {
            match &filter.queue {
                Some(queue) => self.client.wake(queue),
                None => self.wake_all()?,
            }
        }
        Ok(changed)
    }

    fn change_matching(&self, change: BulkChange, filter: &JobFilter) -> Result<u64, Error> {
        let mut changed = 0;
        let mut after = None;
        loop {
            let (actor, filter) = (self.actor.clone(), filter.clone());
            let page = self.client.call(move |session| {
                session.change_matching(&actor, change, &filter, after, PAGE_MAX)
            })?;
            changed += u64::from(page.answer.changed);
            if page.answer.changed > 0 && change == BulkChange::Cancel {
                self.client.settled();
            }
            match page.answer.next {
                Some(next) => after = Some(next),
                None => return Ok(changed),
            }
        }
    }

    fn wake_all(&self) -> Result<(), Error> {
        for count in self.client.monitor().counts()? {
            if count.state == JobState::Scheduled {
                self.client.wake(&count.queue);
            }
        }
        Ok(())
    }

    /// Pauses a queue: the next claim of any node takes nothing from it. What runs goes on, and jobs can be
    /// enqueued.
    ///
    /// # Errors
    /// [`Error::QueueName`], or a fault.
    pub fn pause(&self, queue: &str) -> Result<QueueSettings, Error> {
        self.change_queue(queue, QueueChange::Pause)
    }

    /// Takes a pause back.
    ///
    /// # Errors
    /// [`Error::QueueName`], or a fault.
    pub fn resume(&self, queue: &str) -> Result<QueueSettings, Error> {
        self.change_queue(queue, QueueChange::Resume)
    }

    /// Limits how many jobs of a queue are leased at any time in the whole fleet, or takes the limit away. It is
    /// never exceeded, also when it is set while claims run; lowering it stops nothing that runs. A limit of
    /// 0 lets nothing begin.
    ///
    /// ```
    /// use backwave::{Client, MemoryStore};
    ///
    /// let client = Client::new(MemoryStore::new());
    /// let settings = client.operator("ada").set_concurrency_limit("mail", Some(4))?;
    /// assert_eq!(settings.concurrency_limit, Some(4));
    /// assert_eq!(client.monitor().audit(&Default::default())?.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::QueueName`], or a fault.
    pub fn set_concurrency_limit(
        &self,
        queue: &str,
        limit: Option<u32>,
    ) -> Result<QueueSettings, Error> {
        self.change_queue(queue, QueueChange::Limit(limit))
    }

    /// Limits how many jobs of a queue with one [concurrency key](crate::NewJob::concurrency_key) are leased at
    /// any time in the whole fleet; `None` makes it one again. It is never exceeded, also when it is set
    /// while claims run; lowering it stops nothing that runs. A limit of 0 lets no job with a key begin, and
    /// jobs without one go on.
    ///
    /// ```
    /// use backwave::{Client, MemoryStore};
    ///
    /// let client = Client::new(MemoryStore::new());
    /// let settings = client.operator("ada").set_concurrency_limit_per_key("mail", Some(2))?;
    /// assert_eq!(settings.key_limit(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::QueueName`], or a fault.
    pub fn set_concurrency_limit_per_key(
        &self,
        queue: &str,
        limit: Option<u32>,
    ) -> Result<QueueSettings, Error> {
        self.change_queue(queue, QueueChange::KeyLimit(limit))
    }

    fn change_queue(&self, queue: &str, change: QueueChange) -> Result<QueueSettings, Error> {
        check_name(queue, self.client.queue_bytes_max())
            .map_err(|fault| Error::QueueName { name: queue.chars().take(64).collect(), fault })?;
        let (actor, queue) = (self.actor.clone(), queue.to_owned());
        let called =
            self.client.call(move |session| session.change_queue(&actor, &queue, change))?;
        Ok(called.answer.settings)
    }

    /// Takes every lease of a worker away and gives the jobs back, their attempt and failures unchanged: for a
    /// worker that keeps its leases alive and gets nothing done. Its handlers go on until they notice; what
    /// they report is refused. The jobs taken away.
    ///
    /// The worker's id is in [`JobRecord::owner`](crate::store::JobRecord::owner) and in
    /// [`Monitor::pumps`](crate::monitor::Monitor::pumps).
    ///
    /// # Errors
    /// A fault; doing it again is harmless.
    pub fn revoke_leases(&self, worker: WorkerId) -> Result<Vec<JobId>, Error> {
        let mut jobs = Vec::new();
        loop {
            let actor = self.actor.clone();
            let page = self.client.call(move |session| session.revoke(&actor, worker, PAGE_MAX))?;
            jobs.extend(page.answer.jobs);
            if !page.answer.more {
                return Ok(jobs);
            }
        }
    }

    /// Has parked deliveries of an observer tried again: the one of this position, or each of them; how many that
    /// was. Whichever pump holds the cursor delivers them beside the order, and parks anew what fails up to
    /// its ceiling.
    ///
    /// ```
    /// use backwave::{Client, MemoryStore};
    ///
    /// let client = Client::new(MemoryStore::new());
    /// assert_eq!(client.operator("ada").redeliver("alerts", None)?, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A fault; doing it again is harmless.
    pub fn redeliver(&self, observer: &str, position: Option<u64>) -> Result<u64, Error> {
        let marked = self.change_observer(observer, ObserverChange::Redeliver(position))?;
        self.client.hub().transitions_written();
        Ok(marked)
    }

    /// Forgets parked deliveries of an observer: the one of this position, or each of them; how many that was.
    ///
    /// # Errors
    /// A fault; doing it again is harmless.
    pub fn discard_parked(&self, observer: &str, position: Option<u64>) -> Result<u64, Error> {
        self.change_observer(observer, ObserverChange::Discard(position))
    }

    /// Forgets an observer, with its cursor and what it has parked; whether it was known. For one that is not in
    /// the code any more: as long as it is registered, transitions are kept for it, up to a
    /// [bound](crate::Retention::unobserved). One that runs registers anew.
    ///
    /// # Errors
    /// A fault; doing it again is harmless.
    pub fn remove_observer(&self, observer: &str) -> Result<bool, Error> {
        Ok(self.change_observer(observer, ObserverChange::Remove)? > 0)
    }

    fn change_observer(&self, observer: &str, change: ObserverChange) -> Result<u64, Error> {
        let (actor, observer) = (self.actor.clone(), observer.to_owned());
        let called =
            self.client.call(move |session| session.change_observer(&actor, &observer, change))?;
        Ok(called.answer)
    }
}
