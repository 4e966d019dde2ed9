//! Enqueueing inside a transaction of the caller's own: the job exists if and when the caller commits.
//!
//! Everything happens on the caller's connection and thread. Nobody is woken, since nothing is there
//! before the commit: [`Client::wake`](crate::Client::wake) afterwards saves waiting for the next poll.

use crate::client::enqueue::{Batch, Enqueued};
use crate::store::{EnqueueAnswer, JobRow, StoreError};
use crate::{EnqueueError, NewJob};

#[cfg(feature = "sqlite")]
impl crate::SqliteStore {
    /// Enqueues a job inside `tx`, which must be on this store's file and have begun `IMMEDIATE`: a
    /// deferred transaction that has read fails at once when somebody else has committed in between,
    /// whatever its busy timeout.
    ///
    /// ```
    /// use backwave::rusqlite::{Connection, TransactionBehavior};
    /// use backwave::{Client, NewJob, SqliteStore};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("app.db");
    /// let store = SqliteStore::open(&path)?;
    /// let client = Client::new(store.clone());
    /// let mut db = Connection::open(&path)?;
    /// db.execute("CREATE TABLE orders (note TEXT)", ())?;
    ///
    /// let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    /// tx.execute("INSERT INTO orders (note) VALUES ('new')", ())?;
    /// let job = store.enqueue_in(&tx, NewJob::raw("ship", r#"{"order":1}"#))?;
    /// tx.commit()?;
    /// client.wake("default");
    /// assert_eq!(client.monitor().job(job.id)?.wire_name, "ship");
    ///
    /// let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    /// let job = store.enqueue_in(&tx, NewJob::raw("ship", r#"{"order":2}"#))?;
    /// tx.rollback()?;
    /// assert!(client.monitor().job(job.id).is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`EnqueueError`]; nothing of the call is left in the transaction, which may go on.
    pub fn enqueue_in(
        &self,
        tx: &::rusqlite::Transaction<'_>,
        job: impl Into<NewJob>,
    ) -> Result<Enqueued, EnqueueError> {
        enqueue(job.into(), |rows| self.enqueue_rows_in(tx, rows))
    }

    /// As [`Self::enqueue_in`], for several jobs: all of them or none; one answer per job, in order. A parent
    /// comes before its dependents.
    ///
    /// # Errors
    /// As [`Self::enqueue_in`].
    pub fn enqueue_many_in(
        &self,
        tx: &::rusqlite::Transaction<'_>,
        jobs: impl IntoIterator<Item = impl Into<NewJob>>,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        enqueue_many(jobs, |rows| self.enqueue_rows_in(tx, rows))
    }
}

#[cfg(feature = "postgres")]
impl crate::PostgresStore {
    /// Enqueues a job inside `tx`, which must be on this store's database.
    ///
    /// ```no_run
    /// use backwave::postgres::{Client, NoTls};
    /// use backwave::{EnqueueError, NewJob, PostgresStore};
    ///
    /// # fn order(store: &PostgresStore) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut db = Client::connect("host=localhost dbname=shop", NoTls)?;
    /// let mut tx = db.transaction()?;
    /// tx.execute("INSERT INTO orders DEFAULT VALUES", &[])?;
    /// store.enqueue_in(&mut tx, NewJob::raw("ship", r#"{"order":1}"#))?;
    /// tx.commit()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`EnqueueError`]. A rejection leaves the transaction as it was; after a fault the database lets
    /// it only be rolled back.
    pub fn enqueue_in(
        &self,
        tx: &mut ::postgres::Transaction<'_>,
        job: impl Into<NewJob>,
    ) -> Result<Enqueued, EnqueueError> {
        enqueue(job.into(), |rows| self.enqueue_rows_in(tx, rows))
    }

    /// As [`Self::enqueue_in`], for several jobs: all of them or none; one answer per job, in order. A parent
    /// comes before its dependents.
    ///
    /// # Errors
    /// As [`Self::enqueue_in`].
    pub fn enqueue_many_in(
        &self,
        tx: &mut ::postgres::Transaction<'_>,
        jobs: impl IntoIterator<Item = impl Into<NewJob>>,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        enqueue_many(jobs, |rows| self.enqueue_rows_in(tx, rows))
    }
}

fn enqueue(
    job: NewJob,
    store: impl FnOnce(&[JobRow]) -> Result<EnqueueAnswer, StoreError>,
) -> Result<Enqueued, EnqueueError> {
    // One answer per job is checked where it is read.
    enqueue_many([job], store)?.pop().ok_or(EnqueueError::ThreadGone)
}

fn enqueue_many(
    jobs: impl IntoIterator<Item = impl Into<NewJob>>,
    store: impl FnOnce(&[JobRow]) -> Result<EnqueueAnswer, StoreError>,
) -> Result<Vec<Enqueued>, EnqueueError> {
    let batch = Batch::of(jobs)?;
    if batch.rows().is_empty() {
        return Ok(Vec::new());
    }
    let (enqueued, _) = batch.read(store(batch.rows())?, false)?;
    Ok(enqueued)
}
