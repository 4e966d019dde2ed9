//! Reading: what stands in the store.
//!
//! A monitor changes nothing. Each call is one read of its own: what two of them say may lie a moment apart.

mod explain;
mod jobs;
mod observers;

pub use crate::store::{
    AuditAction, AuditFilter, AuditRecord, Found, JobFilter, JobRecord, ObserverRecord, Page,
    ParkedDelivery, PumpRecord, QueueCount, QueueSettings, Transition, TransitionBy,
};
pub use explain::{Explanation, Reason};
pub use jobs::Jobs;
pub use observers::Parked;

use crate::parent::ParentOutcome;
use crate::{Client, Error, JobId};

/// Reads what stands in the store; from [`Client::monitor`].
#[derive(Debug, Clone)]
pub struct Monitor {
    client: Client,
}

impl Monitor {
    pub(crate) const fn new(client: Client) -> Self {
        Self { client }
    }

    /// One job, whole.
    ///
    /// # Errors
    /// [`Error::NotFound`], or a failed read.
    pub fn job(&self, id: JobId) -> Result<JobRecord, Error> {
        let read = self.client.call(move |session| session.job(id))?;
        read.answer.ok_or(Error::NotFound { id })
    }

    /// The jobs that a filter matches, oldest first, read page by page as the iterator is advanced. An
    /// error ends it.
    ///
    /// ```
    /// use backwave::monitor::JobFilter;
    /// use backwave::{Client, JobState, MemoryStore, NewJob};
    ///
    /// let client = Client::new(MemoryStore::new());
    /// client.enqueue(NewJob::raw("resize", "{}").tag("urgent"))?;
    /// client.enqueue(NewJob::raw("resize", "{}"))?;
    /// let urgent = JobFilter::new().state(JobState::Scheduled).tag("urgent");
    /// let found: Vec<_> = client.monitor().find(urgent).collect::<Result<_, _>>()?;
    /// assert_eq!(found.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn find(&self, filter: JobFilter) -> Jobs {
        Jobs::new(self.clone(), filter, false)
    }

    /// As [`Self::find`], newest first.
    pub fn find_newest(&self, filter: JobFilter) -> Jobs {
        Jobs::new(self.clone(), filter, true)
    }

    /// One page of the jobs that a filter matches.
    ///
    /// # Errors
    /// A failed read.
    pub fn page(&self, filter: &JobFilter, page: Page) -> Result<Found, Error> {
        let filter = filter.clone();
        Ok(self.client.call(move |session| session.find(&filter, &page))?.answer)
    }

    /// How many jobs each queue has in each state, ordered by queue and state; pairs without a job are
    /// left out.
    ///
    /// ```
    /// # use backwave::{Client, JobState, MemoryStore, NewJob};
    /// let client = Client::new(MemoryStore::new());
    /// client.enqueue(NewJob::raw("resize", "{}").queue("images")).unwrap();
    /// let counts = client.monitor().counts().unwrap();
    /// assert_eq!((counts[0].queue.as_str(), counts[0].count), ("images", 1));
    /// assert_eq!(counts[0].state, JobState::Scheduled);
    /// ```
    ///
    /// # Errors
    /// A failed read.
    pub fn counts(&self) -> Result<Vec<QueueCount>, Error> {
        Ok(self.client.call(|session| session.counts())?.answer)
    }

    /// The jobs that a job depends or depended on, in the order in which it was enqueued with them; none
    /// for a job that does not exist.
    ///
    /// # Errors
    /// A failed read.
    pub fn parents(&self, id: JobId) -> Result<Vec<ParentOutcome>, Error> {
        let read = self.client.call(move |session| session.parents(id))?;
        Ok(read.answer.into_iter().map(ParentOutcome::new).collect())
    }

    pub(crate) fn ancestor(
        &self,
        id: JobId,
        ancestor: JobId,
    ) -> Result<Option<ParentOutcome>, Error> {
        let read = self.client.call(move |session| session.ancestor(id, ancestor))?;
        Ok(read.answer.map(ParentOutcome::new))
    }

    /// The changes of a job's state that are kept, oldest first. A store keeps none unless it was opened
    /// with a [`HistoryPolicy`](crate::HistoryPolicy).
    ///
    /// # Errors
    /// A failed read.
    pub fn history(&self, id: JobId) -> Result<Vec<Transition>, Error> {
        Ok(self.client.call(move |session| session.history(id))?.answer)
    }

    /// What operators did, newest first, one page.
    ///
    /// # Errors
    /// A failed read.
    pub fn audit(&self, filter: &AuditFilter) -> Result<Vec<AuditRecord>, Error> {
        let filter = filter.clone();
        Ok(self.client.call(move |session| session.audit(&filter))?.answer)
    }

    /// The queues that an operator has set in any way, ordered by name.
    ///
    /// # Errors
    /// A failed read.
    pub fn queues(&self) -> Result<Vec<QueueSettings>, Error> {
        Ok(self.client.call(|session| session.queues())?.answer)
    }

    /// The pumps of the fleet that have told of themselves, those that halted and why among them, ordered
    /// by group. A pump that was killed stays listed for some days: its
    /// [`last_seen`](PumpRecord::last_seen) tells.
    ///
    /// # Errors
    /// A failed read.
    pub fn pumps(&self) -> Result<Vec<PumpRecord>, Error> {
        Ok(self.client.call(|session| session.pumps())?.answer)
    }

    /// Why a job is not running, or that it is.
    ///
    /// ```
    /// use backwave::{Client, MemoryStore, NewJob};
    ///
    /// let client = Client::new(MemoryStore::new());
    /// client.operator("ada").pause("images")?;
    /// let job = client.enqueue(NewJob::raw("resize", "{}").queue("images"))?;
    /// let why = client.monitor().explain(job.id)?;
    /// assert!(why.to_string().contains("the queue \"images\" is paused"), "{why}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`], or a failed read.
    pub fn explain(&self, id: JobId) -> Result<Explanation, Error> {
        explain::explain(self, id)
    }

    fn now(&self) -> Result<crate::Timestamp, Error> {
        Ok(self.client.call(|session| session.now())?.answer)
    }
}
