//! The topic of reading.

use super::session::MemorySession;
use super::{family, find};
use crate::JobId;
use crate::store::{
    AuditFilter, AuditPage, Found, JobFilter, JobRecord, Page, ParentRecord, PumpRecord,
    QueueCount, QueueSettings, Reads, StoreError, Transition,
};

impl Reads for MemorySession {
    fn job(&mut self, job: JobId) -> Result<Option<JobRecord>, StoreError> {
        self.0.read(|state, _| Ok(state.record(job)))
    }

    fn find(&mut self, filter: &JobFilter, page: &Page) -> Result<Found, StoreError> {
        self.0.read(|state, _| find::page(state, filter, *page))
    }

    fn counts(&mut self) -> Result<Vec<QueueCount>, StoreError> {
        self.0.read(|state, _| Ok(state.index.counts()))
    }

    fn parents(&mut self, job: JobId) -> Result<Vec<ParentRecord>, StoreError> {
        self.0.read(|state, _| family::parents(state, job))
    }

    fn ancestor(
        &mut self,
        job: JobId,
        ancestor: JobId,
    ) -> Result<Option<ParentRecord>, StoreError> {
        self.0.read(|state, _| family::ancestor(state, job, ancestor))
    }

    fn history(&mut self, job: JobId) -> Result<Vec<Transition>, StoreError> {
        self.0.read(|state, _| Ok(state.history(job)))
    }

    fn audit(&mut self, filter: &AuditFilter) -> Result<AuditPage, StoreError> {
        self.0.read(|state, _| Ok(state.audit.page(filter)))
    }

    fn queues(&mut self) -> Result<Vec<QueueSettings>, StoreError> {
        self.0.read(|state, _| Ok(state.settings.all()))
    }

    fn pumps(&mut self) -> Result<Vec<PumpRecord>, StoreError> {
        self.0.read(|state, _| Ok(state.pumps.all()))
    }
}
