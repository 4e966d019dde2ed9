//! What the oracles hold against keys: of the jobs with one unique key one lives, and of those with one concurrency
//! key only so many run.

use super::{Case, Known};
use crate::store::{ClaimedJob, JobRow, KEY_LIMIT};
use crate::{JobId, JobState};
use std::collections::BTreeMap;

impl Case {
    /// The jobs that live with a unique key, but that one.
    fn holders(&self, key: &str, but: JobId) -> Vec<JobId> {
        let lives = |known: &&Known| {
            known.row.id != but
                && known.row.unique_key.as_deref() == Some(key)
                && !known.state.is_terminal()
        };
        self.jobs.values().filter(lives).map(|known| known.row.id).collect()
    }

    /// A job lives from now on: no other one with its key does.
    pub(super) fn check_unique(&mut self, job: JobId) {
        let Some(known) = self.jobs.get(&job) else { return };
        let Some(key) = known.row.unique_key.clone() else { return };
        // One that was cancelled with its parents never held it.
        if known.state.is_terminal() {
            return;
        }
        let others = self.holders(&key, job);
        if let Some(other) = others.first() {
            let detail = format!("{} and {} live with {key}", self.name(*other), self.name(job));
            self.find("a unique key has one holder", detail);
        }
    }

    /// An enqueue was told that its key is held.
    pub(super) fn told_held(&mut self, row: &JobRow, by: JobId, state: JobState) {
        self.coverage.met("a unique key is held");
        self.say(|| format!("{} is not stored: {by} is {state}", row.id));
        if self.jobs.contains_key(&row.id) {
            let detail = format!("{} exists, and is told as held", self.name(row.id));
            return self.find("a held key tells its holder", detail);
        }
        self.is_holder(row, by, Some(state));
    }

    /// A requeue was told that the job's key is held.
    pub(super) fn requeue_told_held(&mut self, row: &JobRow, by: JobId) {
        self.coverage.met("a requeue finds the job's key held");
        self.is_holder(row, by, None);
    }

    fn is_holder(&mut self, row: &JobRow, by: JobId, state: Option<JobState>) {
        let holders = row.unique_key.as_deref().map(|key| self.holders(key, row.id));
        let lives = self.jobs.get(&by).map(|known| known.state);
        let is_told = holders.as_ref().is_some_and(|holders| holders.contains(&by))
            && state.is_none_or(|state| lives == Some(state));
        if !is_told {
            let detail = format!(
                "{:?} is said to be held by {} ({state:?}), and is by {holders:?} ({lives:?})",
                row.unique_key,
                self.name(by)
            );
            self.find("a held key tells its holder", detail);
        }
    }

    /// Jobs of a queue were claimed: no key has more than its limit.
    pub(super) fn check_key_limits(&mut self, queue: &str, claimed: &[ClaimedJob]) {
        let limit = self.queues.get(queue).and_then(|known| known.key_limit).unwrap_or(KEY_LIMIT);
        let mut leased: BTreeMap<&str, u32> = BTreeMap::new();
        for known in self.jobs.values() {
            if let Some(key) = &known.row.concurrency_key
                && known.row.queue == queue
                && known.state == JobState::Leased
            {
                *leased.entry(key).or_default() += 1;
            }
        }
        // A limit that was lowered stops nothing that runs: only what was claimed now counts.
        let keys = claimed.iter().filter(|job| job.queue == queue).filter_map(|job| {
            self.jobs.get(&job.id).and_then(|known| known.row.concurrency_key.as_deref())
        });
        let over = keys.map(|key| (key, leased.get(key).copied().unwrap_or(0)));
        let over = over.into_iter().find(|(_, count)| *count > limit);
        let detail = over.map(|(key, count)| format!("{queue}, {key}: {count} of {limit}"));
        if leased.values().any(|count| *count == limit) {
            self.coverage.met("a concurrency key is full");
        }
        if let Some(detail) = detail {
            self.find("a key's limit is never exceeded", detail);
        }
    }
}
