//! Who gives a call up: the thread that carries it out, or the caller whom it has taken too long.
//!
//! Of a caller's giving up and a thread's beginning or ending exactly one comes first, and both sides know
//! which.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// One call, as caller and thread see it.
pub(super) struct Ticket(Mutex<Phase>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Waiting {
        since: Instant,
    },
    Begun {
        at: Instant,
    },
    Ended,
    /// Its caller waits no longer.
    GivenUp {
        /// The thread that had begun it is counted as lost.
        written_off: bool,
    },
}

/// What a thread finds that comes back from a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Return {
    /// Its caller waits for the answer.
    Awaited,
    /// Nobody waits any more.
    GivenUp,
    /// Nobody waits any more, and another may have the thread's place.
    WrittenOff,
}

/// What a caller who has waited long enough finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overdue {
    /// It has not taken too long yet: how much longer it may.
    NotYet(Duration),
    /// Nobody has begun it, and nobody will.
    Withdrawn,
    /// It was begun and has not come back.
    Hung,
    /// It has ended just now: the answer is there.
    Ended,
}

impl Ticket {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Phase::Waiting { since: Instant::now() }))
    }

    /// A thread begins; `false` where nobody waits for it any more.
    pub(super) fn begin(&self) -> bool {
        let mut phase = self.0.lock();
        let is_waited_for = matches!(*phase, Phase::Waiting { .. });
        if is_waited_for {
            *phase = Phase::Begun { at: Instant::now() };
        }
        is_waited_for
    }

    /// A thread has carried it out, or has found that it need not.
    pub(super) fn end(&self) -> Return {
        let mut phase = self.0.lock();
        match *phase {
            Phase::GivenUp { written_off: true } => Return::WrittenOff,
            Phase::GivenUp { written_off: false } => Return::GivenUp,
            Phase::Waiting { .. } | Phase::Begun { .. } | Phase::Ended => {
                *phase = Phase::Ended;
                Return::Awaited
            }
        }
    }

    /// After [`Overdue::Hung`]: the thread is counted as lost.
    pub(super) fn write_off(&self) {
        *self.0.lock() = Phase::GivenUp { written_off: true };
    }

    /// The caller gives up what waits or runs for longer than `patience`.
    pub(super) fn give_up(&self, patience: Duration) -> Overdue {
        let mut phase = self.0.lock();
        let (since, overdue) = match *phase {
            Phase::Waiting { since } => (since, Overdue::Withdrawn),
            Phase::Begun { at } => (at, Overdue::Hung),
            Phase::Ended | Phase::GivenUp { .. } => return Overdue::Ended,
        };
        let left = patience.saturating_sub(since.elapsed());
        if !left.is_zero() {
            return Overdue::NotYet(left);
        }
        *phase = Phase::GivenUp { written_off: false };
        overdue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Duration = Duration::ZERO;
    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn what_is_withdrawn_is_not_begun() {
        let ticket = Ticket::new();
        assert!(matches!(ticket.give_up(LONG), Overdue::NotYet(_)));
        assert_eq!(ticket.give_up(NONE), Overdue::Withdrawn);
        assert!(!ticket.begin());
        assert_eq!(ticket.end(), Return::GivenUp);
    }

    #[test]
    fn the_thread_of_a_call_that_was_given_up_hears_of_it_at_its_end() {
        let ticket = Ticket::new();
        assert!(ticket.begin());
        assert!(matches!(ticket.give_up(LONG), Overdue::NotYet(_)));
        assert_eq!(ticket.give_up(NONE), Overdue::Hung);
        assert_eq!(ticket.end(), Return::GivenUp);
        ticket.write_off();
        assert_eq!(ticket.end(), Return::WrittenOff);
    }

    #[test]
    fn what_has_ended_is_not_given_up() {
        let ticket = Ticket::new();
        assert!(ticket.begin());
        assert_eq!(ticket.end(), Return::Awaited);
        assert_eq!(ticket.give_up(NONE), Overdue::Ended);
    }
}
