//! How operators set queues.

use super::audit;
use super::state::{Moment, State, Trouble};
use crate::store::{AuditAction, AuditRecord, KEY_LIMIT, QueueAnswer, QueueChange, QueueSettings};
use std::collections::BTreeMap;

/// Every queue that was ever set.
#[derive(Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Settings(BTreeMap<String, QueueSettings>);

impl Settings {
    /// How many more jobs of a queue may be leased, where `leased` tells how many are. A queue that was
    /// never set is not counted.
    pub(super) fn room(&self, queue: &str, leased: impl FnOnce() -> u64) -> u64 {
        match self.0.get(queue) {
            None => u64::MAX,
            Some(settings) if settings.is_paused => 0,
            Some(settings) => settings
                .concurrency_limit
                .map_or(u64::MAX, |limit| u64::from(limit).saturating_sub(leased())),
        }
    }

    pub(super) fn is_paused(&self, queue: &str) -> bool {
        self.0.get(queue).is_some_and(|settings| settings.is_paused)
    }

    /// How many jobs of a queue with one concurrency key may be leased.
    pub(super) fn key_limit(&self, queue: &str) -> u32 {
        self.0.get(queue).map_or(KEY_LIMIT, QueueSettings::key_limit)
    }

    fn of(&self, queue: &str) -> QueueSettings {
        let settings = self.0.get(queue).cloned();
        settings.unwrap_or_else(|| QueueSettings::new(queue.to_owned()))
    }

    /// Ordered by name.
    pub(super) fn all(&self) -> Vec<QueueSettings> {
        self.0.values().cloned().collect()
    }
}

/// What is to be written: nothing, where it makes no difference.
pub(super) struct Setting {
    settings: QueueSettings,
    record: Option<AuditRecord>,
}

/// Decides what a change makes of a queue, and whether jobs may be claimable by it that were not.
pub(super) fn plan(
    state: &State,
    actor: &str,
    queue: &str,
    change: QueueChange,
    moment: Moment,
) -> (Setting, bool) {
    let before = state.settings.of(queue);
    let mut settings = before.clone();
    let changed = settings.apply(change);
    let opens = changed && opens(&before, &settings, change);
    let record = changed.then(|| {
        let action = AuditAction::of_queue(change);
        audit::record(state.audit.next(), moment.at, actor, action, None, queue)
    });
    (Setting { settings, record }, opens)
}

fn opens(before: &QueueSettings, after: &QueueSettings, change: QueueChange) -> bool {
    match (change, before.concurrency_limit) {
        (QueueChange::Pause, _) => false,
        (QueueChange::Resume | QueueChange::Limit(None), _) => true,
        (QueueChange::Limit(Some(limit)), before) => before.is_some_and(|before| limit > before),
        (QueueChange::KeyLimit(_), _) => after.key_limit() > before.key_limit(),
    }
}

/// Writes what was decided.
pub(super) fn apply(
    state: &mut State,
    Setting { settings, record }: Setting,
    moment: Moment,
) -> Result<QueueAnswer, Trouble> {
    let changed = record.is_some();
    if let Some(record) = record {
        state.audit.push(record);
        state.settings.0.insert(settings.queue.clone(), settings.clone());
    }
    Ok(QueueAnswer::new(settings, changed, moment.at))
}
