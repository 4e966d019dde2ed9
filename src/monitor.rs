//! Reading: what stands in the store.

use crate::store::{JobRecord, QueueCount};
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
}
