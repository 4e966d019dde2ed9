//! The operator's topic.

use super::draft::Draft;
use super::operate;
use super::session::MemorySession;
use super::state::Trouble;
use crate::store::{
    BulkAnswer, BulkChange, CancelAnswer, JobFilter, Operations, QueueAnswer, QueueChange,
    RequeueAnswer, Revoked, StoreError,
};
use crate::{JobId, Timestamp, WorkerId};

impl MemorySession {
    /// Writes what a draft decides.
    fn decide<A>(
        &self,
        decide: impl FnOnce(&mut Draft<'_>) -> Result<A, Trouble>,
    ) -> Result<(A, Timestamp), StoreError> {
        self.carry_out(|state, moment| {
            let mut draft = Draft::new(state, moment);
            let answer = decide(&mut draft)?;
            Ok((draft.finish()?, answer))
        })
    }
}

impl Operations for MemorySession {
    fn request_cancel(&mut self, actor: &str, job: JobId) -> Result<CancelAnswer, StoreError> {
        let (answer, _) = self.decide(|draft| operate::request_cancel(draft, actor, job))?;
        Ok(answer)
    }

    fn requeue(&mut self, actor: &str, job: JobId) -> Result<RequeueAnswer, StoreError> {
        let (answer, _) = self.decide(|draft| operate::requeue(draft, actor, job))?;
        Ok(answer)
    }

    fn change_matching(
        &mut self,
        _actor: &str,
        _change: BulkChange,
        _filter: &JobFilter,
        _after: Option<JobId>,
        _max: u32,
    ) -> Result<BulkAnswer, StoreError> {
        super::session::unbuilt()
    }

    fn change_queue(
        &mut self,
        _actor: &str,
        _queue: &str,
        _change: QueueChange,
    ) -> Result<QueueAnswer, StoreError> {
        super::session::unbuilt()
    }

    fn revoke(
        &mut self,
        _actor: &str,
        _worker: WorkerId,
        _max: u32,
    ) -> Result<Revoked, StoreError> {
        super::session::unbuilt()
    }
}
