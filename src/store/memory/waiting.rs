//! The waiting jobs of one queue, as far as a claim has come with them.
//!
//! Several ordered sets are read as one, in order of (due, id). The sets of one concurrency key share a room;
//! once it is used up they are set aside, so that a claim looks at each key once, however many jobs wait with it.

use super::index::{Entry, Key, Ordered};
use super::state::Slot;
use crate::{JobId, Timestamp};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, btree_set};
use std::ops::Bound;

#[derive(Default)]
pub(super) struct Waiting<'a> {
    sources: Vec<Source<'a>>,
    /// The first of each source that was not taken, the lowest first.
    heads: BinaryHeap<Reverse<(Entry, usize)>>,
    /// How many more of each key may be taken.
    rooms: Vec<u64>,
    keys: BTreeMap<&'a str, usize>,
    /// Sources whose key has no room.
    blocked: Vec<(usize, Entry)>,
}

struct Source<'a> {
    jobs: &'a Ordered,
    rest: btree_set::Iter<'a, Entry>,
    /// Its key's place among the rooms.
    key: Option<usize>,
}

impl<'a> Waiting<'a> {
    pub(super) fn add(&mut self, jobs: &'a Ordered) {
        self.push(jobs, None);
    }

    /// Adds jobs of one key, of which `room` more may be taken.
    pub(super) fn add_keyed(
        &mut self,
        key: &'a Key,
        jobs: &'a Ordered,
        room: impl FnOnce() -> u64,
    ) {
        let rooms = &mut self.rooms;
        let key = *self.keys.entry(key).or_insert_with(|| {
            rooms.push(room());
            rooms.len() - 1
        });
        self.push(jobs, Some(key));
    }

    fn push(&mut self, jobs: &'a Ordered, key: Option<usize>) {
        let mut rest = jobs.iter();
        let Some(head) = rest.next() else { return };
        self.heads.push(Reverse((*head, self.sources.len())));
        self.sources.push(Source { jobs, rest, key });
    }

    /// The first that was not taken and may be.
    pub(super) fn peek(&mut self) -> Option<Entry> {
        while let Some(Reverse((head, number))) = self.heads.peek().copied() {
            let has_room = self.sources[number].key.is_none_or(|key| self.rooms[key] > 0);
            if has_room {
                return Some(head);
            }
            self.heads.pop();
            self.blocked.push((number, head));
        }
        None
    }

    /// Takes what [`Self::peek`] has shown.
    pub(super) fn take(&mut self) {
        let Some(Reverse((_, number))) = self.heads.pop() else { return };
        let source = &mut self.sources[number];
        if let Some(room) = source.key.and_then(|key| self.rooms.get_mut(key)) {
            *room -= 1;
        }
        if let Some(next) = source.rest.next() {
            self.heads.push(Reverse((*next, number)));
        }
    }

    /// Whether a key keeps back what is due.
    pub(super) fn is_held_back(&mut self, now: Timestamp) -> bool {
        self.peek();
        self.blocked.iter().any(|(_, (due, ..))| *due <= now)
    }

    /// When the next job is due that is not due yet.
    pub(super) fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        let past = (now, JobId::from_bytes([u8::MAX; 16]), Slot::MAX);
        let later = (Bound::Excluded(past), Bound::Unbounded);
        let next = self.sources.iter().filter_map(|source| source.jobs.range(later).next());
        next.map(|(due, ..)| *due).min()
    }
}
