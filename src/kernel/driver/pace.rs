//! When to look for work: polling, hints, and what is known of the next due time.
//!
//! Polling is the only thing that correctness rests on. An idle pump slows down with the time it has
//! been idle, up to `poll_max`; hints and known due times wake it.

use crate::Timestamp;
use std::time::Duration;

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Pace {
    poll_min: Duration,
    poll_max: Duration,
    /// When the last claim brought something.
    busy_at: Timestamp,
    next_poll_at: Timestamp,
    /// A poll is owed.
    poll_owed: bool,
    /// The last claim brought all that it asked for: there is probably more.
    hungry: bool,
    /// The earliest time at which something is known to be due.
    next_due: Option<Timestamp>,
    /// The same from hints heard while a claim is under way; it may have run before them.
    next_due_heard: Option<Timestamp>,
    claiming: bool,
    /// A request failed: nothing is asked of the store before the next poll tick.
    held: bool,
}

impl Pace {
    pub(super) fn new(poll_min: Duration, poll_max: Duration, now: Timestamp) -> Self {
        Self {
            poll_min,
            poll_max: poll_max.max(poll_min),
            busy_at: now,
            next_poll_at: now,
            poll_owed: true,
            hungry: false,
            next_due: None,
            next_due_heard: None,
            claiming: false,
            held: false,
        }
    }

    /// A tick: releases the hold, and owes a poll when one is due.
    pub(super) fn tick(&mut self, now: Timestamp) {
        self.held = false;
        // A clock that stepped back must not put the next poll out of reach.
        let latest = now + self.poll_max;
        self.next_poll_at = self.next_poll_at.min(latest);
        // Ticks come about every `poll_min`; one that is a little early counts.
        if now + self.poll_min / 4 >= self.next_poll_at {
            self.poll_owed = true;
        }
    }

    pub(super) fn woken(&mut self, due: Timestamp) {
        let slot = if self.claiming { &mut self.next_due_heard } else { &mut self.next_due };
        *slot = earliest(*slot, Some(due));
    }

    pub(super) fn hold(&mut self) {
        self.held = true;
    }

    pub(super) const fn is_held(&self) -> bool {
        self.held
    }

    /// When a claim is worth making, as far as is known: the past for "now".
    pub(super) fn claim_at(&self) -> Option<Timestamp> {
        if self.held {
            return None;
        }
        if self.poll_owed || self.hungry {
            return Some(Timestamp::MIN);
        }
        self.next_due
    }

    pub(super) fn claim_began(&mut self) {
        self.claiming = true;
    }

    pub(super) fn claim_answered(
        &mut self,
        found: bool,
        more: bool,
        next_due: Option<Timestamp>,
        now: Timestamp,
    ) {
        self.claiming = false;
        self.poll_owed = false;
        self.hungry = more;
        // Due by our clock, and the claim has just not brought it: our clock runs ahead of the store's, or
        // somebody else has it in hand. Asking again at once would spin.
        let next_due = next_due.map(|due| due.max(now + RECHECK));
        self.next_due = earliest(next_due, self.next_due_heard.take());
        if found {
            self.busy_at = now;
        }
        let idle = now.since(self.busy_at);
        self.next_poll_at = now + (idle / 4).clamp(self.poll_min, self.poll_max);
    }

    pub(super) fn claim_failed(&mut self) {
        self.claiming = false;
        self.poll_owed = true;
        self.next_due = earliest(self.next_due, self.next_due_heard.take());
        self.held = true;
    }
}

#[cfg(test)]
impl std::hash::Hash for Pace {
    /// When it was busy last is left out where it cannot matter: where nothing slows down.
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        let Self { poll_min, poll_max, busy_at, next_poll_at, poll_owed, hungry, .. } = self;
        (poll_min != poll_max).then_some(busy_at).hash(state);
        (next_poll_at, poll_owed, hungry, self.next_due).hash(state);
        (self.next_due_heard, self.claiming, self.held).hash(state);
    }
}

fn earliest(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    [a, b].into_iter().flatten().min()
}

/// How soon a due time is looked at again that should have passed and has not.
const RECHECK: Duration = Duration::from_millis(5);
