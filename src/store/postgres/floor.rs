//! The floor of a claim: per queue, the lowest (due, id) that can still be claimable.
//!
//! While some transaction holds the horizon, vacuum cannot remove the index entries of jobs that were
//! claimed long ago, and a claim that starts at the queue's beginning wades through all of them. A claim
//! with a floor starts behind them.
//!
//! A floor can hide a job that comes in below it (a commit that was late, an earlier due time, a lease
//! given back), so it is used only where a claim without it has shown to be costly, and only until ten
//! times that cost has passed since: no job is hidden for longer, and what looking costs stays about a
//! tenth. The floor is the lowest row seen, taken or not, so it never passes one that was not taken. It
//! lives in the session and dies with it.

use crate::{JobId, Timestamp};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A look that passed fewer index entries than this was cheap, whatever the clock says.
const ENTRIES_MIN: i64 = 2000;
/// So many times the cost of a look without floor must pass before the next one.
const REST_FACTOR: u32 = 10;

#[derive(Debug, Default)]
pub(super) struct Floors {
    queues: HashMap<String, Floor>,
}

#[derive(Debug)]
struct Floor {
    at: (Timestamp, JobId),
    /// When the queue was last looked at without a floor.
    looked_at: Instant,
    /// How long the floor may be used after that.
    rest: Duration,
}

/// What a look at a queue without a floor cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) took: Duration,
    pub(super) entries: i64,
}

impl Floors {
    /// Where a claim at `now` may start, if not at the beginning.
    pub(super) fn floor(&self, queue: &str, now: Instant) -> Option<(Timestamp, JobId)> {
        let floor = self.queues.get(queue)?;
        (now.saturating_duration_since(floor.looked_at) < floor.rest).then_some(floor.at)
    }

    /// Notes what a claim answered: the lowest row it saw, and what it cost where it had no floor.
    pub(super) fn note(
        &mut self,
        queue: &str,
        at: (Timestamp, JobId),
        look: Option<Look>,
        now: Instant,
    ) {
        match look {
            Some(look) if look.entries >= ENTRIES_MIN => {
                let floor = Floor { at, looked_at: now, rest: look.took * REST_FACTOR };
                self.queues.insert(queue.to_owned(), floor);
            }
            Some(_) => {
                self.queues.remove(queue);
            }
            None => {
                if let Some(floor) = self.queues.get_mut(queue) {
                    floor.at = at;
                }
            }
        }
    }

    /// Forgets all of them: this session has itself put jobs below.
    pub(super) fn clear(&mut self) {
        self.queues.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTLY: Option<Look> = Some(Look { took: Duration::from_millis(20), entries: 100_000 });

    fn at(micros: i64) -> (Timestamp, JobId) {
        (Timestamp::from_micros(micros), JobId::from_bytes([0; 16]))
    }

    #[test]
    fn a_floor_is_used_only_after_a_costly_look_and_only_for_ten_times_its_cost() {
        let mut floors = Floors::default();
        let start = Instant::now();
        floors.note("mail", at(7), COSTLY, start);
        let later = start + Duration::from_millis(199);
        assert_eq!(floors.floor("mail", later), Some(at(7)));
        floors.note("mail", at(9), None, later);
        assert_eq!(floors.floor("mail", later), Some(at(9)));
        assert_eq!(floors.floor("mail", start + Duration::from_millis(200)), None);
        assert_eq!(floors.floor("other", later), None);
    }

    #[test]
    fn a_cheap_look_needs_no_floor_however_slow_it_was() {
        let mut floors = Floors::default();
        let now = Instant::now();
        floors.note("mail", at(7), COSTLY, now);
        let slow = Look { took: Duration::from_secs(1), entries: 1999 };
        floors.note("mail", at(8), Some(slow), now);
        assert_eq!(floors.floor("mail", now), None);
    }
}
