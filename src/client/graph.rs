//! Graphs: jobs that depend on each other, enqueued as one.

use super::Client;
use super::enqueue::Batch;
use crate::invariant::{InvariantTrigger, halt};
use crate::store::Rejection;
use crate::{EnqueueError, Enqueued, NewJob};

impl Client {
    /// Enqueues jobs that name each other as parents, in whatever order they are given: all of them or none, in one
    /// call to the store; one answer per job, in the order given. Parents outside of the graph must exist already.
    /// A member whose unique key another job holds is not stored, and so is no parent to have: the graph is refused.
    ///
    /// ```
    /// use backwave::store::Rejection;
    /// use backwave::{Client, EnqueueError, JobState, MemoryStore, NewJob};
    ///
    /// let client = Client::new(MemoryStore::new());
    /// let (pick, pack) = (NewJob::raw("pick", "{}"), NewJob::raw("pack", "{}"));
    /// let ship = NewJob::raw("ship", "{}").parents([pick.job_id(), pack.job_id()]);
    /// let enqueued = client.enqueue_graph([ship, pick, pack])?;
    /// assert_eq!(client.monitor().job(enqueued[0].id)?.state, JobState::AwaitingParent);
    ///
    /// let (hen, egg) = (NewJob::raw("hen", "{}"), NewJob::raw("egg", "{}"));
    /// let (of_hen, of_egg) = (hen.job_id(), egg.job_id());
    /// let refused = client.enqueue_graph([hen.parent(of_egg), egg.parent(of_hen)]);
    /// let Err(EnqueueError::Cycle { ids }) = refused else { panic!("{refused:?}") };
    /// assert_eq!(ids, [of_hen, of_egg]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`EnqueueError::Cycle`], and the others of [`EnqueueError`]; except for [`EnqueueError::OutcomeUnknown`],
    /// nothing was stored.
    pub fn enqueue_graph(
        &self,
        jobs: impl IntoIterator<Item = impl Into<NewJob>>,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let given = Batch::of(jobs)?;
        let order = given.order().map_err(|ids| EnqueueError::Cycle { ids })?;
        let ordered = given.rearranged(&order);
        let answers =
            self.send(&ordered).map_err(|error| told_by_place(error, &order, &ordered))?;
        let mut placed: Vec<_> = order.into_iter().zip(answers).collect();
        placed.sort_unstable_by_key(|(place, _)| *place);
        Ok(placed.into_iter().map(|(_, answer)| answer).collect())
    }
}

/// Names a refused job by its place in what was given. A store that does not know a parent which stands before its
/// dependent in the very call has lost what it was given.
fn told_by_place(error: EnqueueError, order: &[usize], ordered: &Batch) -> EnqueueError {
    let EnqueueError::Rejected { index, reason } = error else { return error };
    if let Rejection::UnknownParent { parent } = reason
        && ordered.stands_before(parent, index)
    {
        let message = format!("the graph's own job {parent} is refused as a parent in its call");
        let trigger = InvariantTrigger::WorkflowMemberEnqueueRejected;
        return EnqueueError::Invariant(halt(trigger, message));
    }
    EnqueueError::Rejected { index: order.get(index).copied().unwrap_or(index), reason }
}
