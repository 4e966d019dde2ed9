//! The operator's topic.

use super::draft::Draft;
use super::session::MemorySession;
use super::state::Trouble;
use super::{operate, queues};
use crate::store::{
    BulkAnswer, BulkChange, CancelAnswer, JobFilter, Operations, PAGE_MAX, Page, QueueAnswer,
    QueueChange, RequeueAnswer, Revoked, StoreError,
};
use crate::{JobId, Timestamp, WorkerId};
use std::time::Duration;

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
        actor: &str,
        change: BulkChange,
        filter: &JobFilter,
        after: Option<JobId>,
        max: u32,
    ) -> Result<BulkAnswer, StoreError> {
        let page = Page::new(max).after(after);
        let ((changed, next), at) =
            self.decide(|draft| operate::change_matching(draft, actor, change, filter, page))?;
        Ok(BulkAnswer::new(changed, next, at))
    }

    fn change_queue(
        &mut self,
        actor: &str,
        queue: &str,
        change: QueueChange,
    ) -> Result<QueueAnswer, StoreError> {
        let (answer, opens) = self.0.write(
            |state, moment| Ok(queues::plan(state, actor, queue, change, moment)),
            |state, (setting, opens), moment| Ok((queues::apply(state, setting, moment)?, opens)),
        )?;
        if opens {
            self.0.inner.hub.wake(queue, Duration::ZERO);
        }
        Ok(answer)
    }

    fn revoke(&mut self, actor: &str, worker: WorkerId, max: u32) -> Result<Revoked, StoreError> {
        let max = max.clamp(1, PAGE_MAX) as usize;
        let ((jobs, more), at) = self.decide(|draft| operate::revoke(draft, actor, worker, max))?;
        Ok(Revoked::new(jobs, more, at))
    }
}
