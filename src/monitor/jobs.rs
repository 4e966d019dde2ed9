//! Jobs read page by page.

use super::{JobFilter, Monitor, Page};
use crate::store::JobRecord;
use crate::{Error, JobId};
use std::collections::VecDeque;

/// The jobs that a filter matches; from [`Monitor::find`]. What changes while it runs may be seen as it was or
/// as it is, each job at most once.
#[derive(Debug)]
#[must_use = "nothing is read until it is advanced"]
pub struct Jobs {
    monitor: Monitor,
    filter: JobFilter,
    newest_first: bool,
    read: VecDeque<JobRecord>,
    rest: Rest,
}

/// What is left to read.
#[derive(Debug)]
enum Rest {
    After(Option<JobId>),
    Nothing,
}

/// Records of one read: they are whole, with payloads of up to 64 KiB each.
const PAGE: u32 = 50;

impl Jobs {
    pub(super) const fn new(monitor: Monitor, filter: JobFilter, newest_first: bool) -> Self {
        Self { monitor, filter, newest_first, read: VecDeque::new(), rest: Rest::After(None) }
    }

    fn read_on(&mut self, after: Option<JobId>) -> Result<(), Error> {
        // An error is the last thing it says.
        self.rest = Rest::Nothing;
        let page = Page::new(PAGE).after(after);
        let page = if self.newest_first { page.newest_first() } else { page };
        let found = self.monitor.page(&self.filter, page)?;
        self.read = found.jobs.into();
        if found.next.is_some() {
            self.rest = Rest::After(found.next);
        }
        Ok(())
    }
}

impl Iterator for Jobs {
    type Item = Result<JobRecord, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(job) = self.read.pop_front() {
                return Some(Ok(job));
            }
            let Rest::After(after) = self.rest else { return None };
            if let Err(error) = self.read_on(after) {
                return Some(Err(error));
            }
        }
    }
}

impl std::iter::FusedIterator for Jobs {}
