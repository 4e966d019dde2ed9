//! Scenes with one driver, a virtual clock, and a store and callbacks that answer what the scene wants.
//!
//! Every command must be taken before the scene goes on, so that nothing is asked for unseen. Notes are
//! kept apart.

mod random;

use super::*;
use crate::store::{CursorLease, Transition, TransitionBy};
use crate::{JobId, JobState};

const START: Timestamp = Timestamp::from_micros(1_000_000_000_000_000);
const LEASE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_secs(1);
const AGAIN_IN: Duration = Duration::from_secs(2);

struct Scene {
    driver: Driver,
    now: Timestamp,
    notes: Vec<Note>,
}

/// What the store answers to an `observe`.
#[derive(Default)]
struct Page {
    batch: Vec<u64>,
    again: Vec<u64>,
    failing: Option<Failing>,
    more: bool,
    round: u64,
}

fn page(batch: impl IntoIterator<Item = u64>) -> Page {
    Page { batch: batch.into_iter().collect(), ..Page::default() }
}

fn observation(position: u64) -> Observation {
    let to = JobState::Scheduled;
    let transition = Transition::new(position, START, None, to, 0, TransitionBy::Enqueue);
    Observation::new(JobId::from_bytes([1; 16]), "work".into(), "default".into(), transition)
}

impl Scene {
    fn new() -> Self {
        let retry = RetryPolicy::new(3).fixed(AGAIN_IN).jitter_percent(0);
        let config = Config { batch: 3, lease: LEASE, poll: POLL, retry };
        Self { driver: Driver::new(config), now: START, notes: Vec::new() }
    }

    /// One that holds its cursor and has this before it.
    fn holding(page: Page) -> Self {
        let mut scene = Self::new();
        scene.observes();
        scene.finds(page);
        scene
    }

    fn next(&mut self) -> Option<Command> {
        loop {
            match self.driver.poll_command(self.now)? {
                Command::Note(note) => self.notes.push(note),
                command => return Some(command),
            }
        }
    }

    fn handle(&mut self, event: Event) {
        self.driver.handle(event, self.now);
    }

    #[track_caller]
    fn rests(&mut self) {
        let next = self.next();
        assert!(next.is_none(), "{next:?}");
        let wake_at = self.driver.wake_at(self.now);
        assert!(wake_at.is_none_or(|at| at > self.now), "it would wake without end");
    }

    /// Rests until it has something to do by itself. How long.
    #[track_caller]
    fn sleeps(&mut self) -> Duration {
        self.rests();
        let wake_at = self.driver.wake_at(self.now).expect("there is something to wake for");
        let slept = wake_at.since(self.now);
        self.now = wake_at;
        self.handle(Event::Due);
        slept
    }

    #[track_caller]
    fn observes(&mut self) {
        let next = self.next();
        assert!(matches!(next, Some(Command::Observe)), "{next:?}");
    }

    fn finds_under(&mut self, epoch: u64, page: Page) {
        let all = |positions: Vec<u64>| positions.into_iter().map(observation).collect();
        let observed = Observed::Held {
            lease: CursorLease { epoch, expiry: self.now + LEASE },
            round: page.round,
            batch: all(page.batch),
            failing: page.failing,
            again: all(page.again),
            more: page.more,
            reset: None,
            store_time: self.now,
        };
        self.handle(Event::Observed(observed));
    }

    fn finds(&mut self, page: Page) {
        self.finds_under(1, page);
    }

    fn finds_it_elsewhere(&mut self, until: Timestamp) {
        self.handle(Event::Observed(Observed::Elsewhere { until, store_time: self.now }));
    }

    /// Takes the delivery of a transition.
    #[track_caller]
    fn delivers(&mut self, position: u64) -> u64 {
        match self.next() {
            Some(Command::Deliver { delivery, observation }) => {
                assert_eq!(observation.transition.position, position);
                delivery
            }
            other => panic!("{other:?}"),
        }
    }

    fn ends(&mut self, delivery: u64, ending: Ending) {
        self.handle(Event::Delivered { delivery, ending });
    }

    #[track_caller]
    fn succeeds_with(&mut self, position: u64) {
        let delivery = self.delivers(position);
        self.ends(delivery, Ending::Ok);
    }

    #[track_caller]
    fn fails_with(&mut self, position: u64) {
        let delivery = self.delivers(position);
        self.ends(delivery, Ending::Failed("no".into()));
    }

    #[track_caller]
    fn resolves(&mut self) -> Resolution {
        match self.next() {
            Some(Command::Resolve(resolution)) => resolution,
            other => panic!("{other:?}"),
        }
    }

    fn applied(&mut self) {
        let (expiry, store_time) = (self.now + LEASE, self.now);
        self.handle(Event::Resolved(Resolved::Applied { expiry, store_time }));
    }

    fn refused(&mut self, reason: CursorStale) {
        self.handle(Event::Resolved(Resolved::Stale { reason, store_time: self.now }));
    }

    /// Takes the write that moves the cursor there, and nothing else.
    #[track_caller]
    fn moves_to(&mut self, position: u64) {
        let resolution = self.resolves();
        assert_eq!(resolution.until, Some(position));
        assert_eq!((resolution.parked, resolution.failing), (Vec::new(), None));
        self.applied();
    }

    fn triggers(&self) -> Vec<InvariantTrigger> {
        let trigger = |note: &Note| match note {
            Note::Degraded { trigger, .. } => Some(*trigger),
            _ => None,
        };
        self.notes.iter().filter_map(trigger).collect()
    }

    fn lost(&self) -> Vec<Lost> {
        let lost = |note: &Note| match note {
            Note::HoldLost(why) => Some(*why),
            _ => None,
        };
        self.notes.iter().filter_map(lost).collect()
    }
}

#[test]
fn a_batch_is_delivered_in_order_one_at_a_time_and_written_once_when_it_is_full() {
    let mut scene = Scene::holding(Page { more: true, ..page([4, 7, 9]) });
    for position in [4, 7] {
        let delivery = scene.delivers(position);
        scene.rests();
        scene.ends(delivery, Ending::Ok);
    }
    scene.succeeds_with(9);
    scene.moves_to(9);
    scene.observes();
}

#[test]
fn what_was_delivered_is_written_before_anything_new_is_read() {
    let mut scene = Scene::holding(page([4]));
    scene.succeeds_with(4);
    scene.moves_to(4);
    scene.observes();
    scene.finds(page([]));
    assert_eq!(scene.sleeps(), POLL);
    scene.observes();
}

#[test]
fn a_hint_is_heeded_by_who_holds_the_cursor_only() {
    let mut scene = Scene::holding(page([]));
    scene.rests();
    scene.handle(Event::Hinted);
    scene.observes();
    scene.finds_it_elsewhere(scene.now + LEASE);
    scene.handle(Event::Hinted);
    assert_eq!(scene.sleeps(), POLL);
    scene.observes();
}

#[test]
fn a_cursor_held_elsewhere_is_asked_for_when_that_hold_ends_and_at_each_poll() {
    let mut scene = Scene::new();
    scene.observes();
    scene.finds_it_elsewhere(scene.now + Duration::from_millis(400));
    assert_eq!(scene.sleeps(), Duration::from_millis(400));
    scene.observes();
    scene.finds_it_elsewhere(scene.now + LEASE);
    assert_eq!(scene.sleeps(), POLL);
    scene.observes();
    scene.finds_it_elsewhere(scene.now);
    assert_eq!(scene.sleeps(), LOOK_AGAIN_MIN);
}

#[test]
fn a_slow_callback_keeps_the_hold_alive() {
    let mut scene = Scene::holding(page([4]));
    let delivery = scene.delivers(4);
    for _ in 0..9 {
        assert_eq!(scene.sleeps(), LEASE / 3);
        let renewal = scene.resolves();
        assert_eq!((renewal.until, renewal.failing), (None, None));
        scene.applied();
    }
    scene.ends(delivery, Ending::Ok);
    scene.moves_to(4);
}

#[test]
fn a_heartbeat_writes_what_was_delivered_while_the_next_callback_is_slow() {
    let mut scene = Scene::holding(page([4, 5]));
    scene.succeeds_with(4);
    scene.delivers(5);
    assert_eq!(scene.sleeps(), LEASE / 3);
    scene.moves_to(4);
}

#[test]
fn a_failure_blocks_the_head_is_written_at_once_and_is_tried_again_when_it_is_due() {
    let mut scene = Scene::holding(page([4, 5]));
    scene.fails_with(4);
    assert_eq!(scene.resolves().failing, Some((4, 1, AGAIN_IN)));
    scene.applied();
    assert_eq!(scene.sleeps(), AGAIN_IN);
    scene.succeeds_with(4);
    scene.succeeds_with(5);
    scene.moves_to(5);
}

#[test]
fn a_delivery_that_keeps_failing_is_parked_at_its_ceiling_and_told_once_that_is_written() {
    let mut scene = Scene::holding(page([4, 5]));
    for failures in 1..=2 {
        scene.fails_with(4);
        assert_eq!(scene.resolves().failing, Some((4, failures, AGAIN_IN)));
        scene.applied();
        scene.sleeps();
    }
    scene.fails_with(4);
    scene.succeeds_with(5);
    let resolution = scene.resolves();
    assert_eq!((resolution.until, resolution.failing), (Some(5), None));
    assert_eq!(resolution.parked, [Parking::new(observation(4), 3, "no".into())]);
    let parked = Note::Parked { position: 4, failures: 3, detail: "no".into() };
    assert!(!scene.notes.contains(&parked));
    scene.applied();
    scene.observes();
    assert!(scene.notes.contains(&parked));
}

#[test]
fn a_new_holder_goes_on_counting_failures() {
    let due_at = START + AGAIN_IN;
    let failing = Some(Failing { position: 4, failures: 2, due_at });
    let mut scene = Scene::holding(Page { failing, ..page([4]) });
    assert_eq!(scene.sleeps(), AGAIN_IN);
    scene.fails_with(4);
    assert_eq!(scene.resolves().parked[0].failures, 3);
}

#[test]
fn what_the_head_has_been_through_is_told_with_every_write() {
    let mut scene = Scene::holding(Page { again: vec![2], ..page([4]) });
    let first = scene.delivers(2);
    scene.ends(first, Ending::Failed("no".into()));
    scene.fails_with(4);
    assert_eq!(scene.resolves().failing, Some((4, 1, AGAIN_IN)));
    scene.applied();
    scene.sleeps();
    scene.succeeds_with(2);
    let delivery = scene.delivers(4);
    scene.now = scene.now + LEASE / 3;
    let resolution = scene.resolves();
    assert_eq!(
        (resolution.failing, resolution.delivered_again),
        (Some((4, 1, Duration::ZERO)), vec![2])
    );
    scene.applied();
    scene.ends(delivery, Ending::Ok);
    scene.moves_to(4);
}

#[test]
fn a_parked_delivery_tried_again_comes_beside_the_order_and_is_parked_anew_at_its_ceiling() {
    let mut scene = Scene::holding(Page { again: vec![2], ..page([4]) });
    scene.fails_with(2);
    scene.succeeds_with(4);
    scene.moves_to(4);
    scene.observes();
    scene.finds(Page { again: vec![2], ..page([]) });
    scene.sleeps();
    scene.observes();
    scene.finds(Page { again: vec![2], ..page([]) });
    scene.sleeps();
    scene.fails_with(2);
    scene.observes();
    scene.finds(Page { again: vec![2], ..page([]) });
    scene.now = scene.now + AGAIN_IN;
    scene.fails_with(2);
    let resolution = scene.resolves();
    assert_eq!(resolution.until, None, "the cursor has passed it long ago");
    assert_eq!(resolution.parked, [Parking::new(observation(2), 3, "no".into())]);
}

#[test]
fn a_delivery_to_be_tried_again_that_was_discarded_meanwhile_is_forgotten() {
    let mut scene = Scene::holding(Page { again: vec![2], ..page([]) });
    scene.fails_with(2);
    scene.sleeps();
    scene.observes();
    scene.finds(page([]));
    scene.now = scene.now + AGAIN_IN;
    scene.observes();
}

#[test]
fn a_lost_hold_drops_what_was_not_written_and_lets_the_callback_finish() {
    let mut scene = Scene::holding(page([4, 5, 6]));
    scene.succeeds_with(4);
    let delivery = scene.delivers(5);
    scene.now = scene.now + LEASE;
    scene.resolves();
    scene.refused(CursorStale::Taken);
    assert_eq!(scene.sleeps(), POLL);
    assert_eq!(scene.lost(), [Lost::Refused(CursorStale::Taken)]);
    assert_eq!(scene.triggers(), []);

    scene.observes();
    scene.finds_under(3, page([4, 5, 6]));
    scene.rests();
    scene.ends(delivery, Ending::Ok);
    scene.succeeds_with(4);
}

#[test]
fn what_ends_while_a_write_is_under_way_goes_with_the_hold_that_it_loses() {
    let mut scene = Scene::holding(page([4, 5]));
    scene.succeeds_with(4);
    let delivery = scene.delivers(5);
    scene.now = scene.now + LEASE / 3;
    scene.resolves();
    scene.ends(delivery, Ending::Ok);
    scene.refused(CursorStale::Gone);
    scene.sleeps();
    scene.observes();
    scene.finds_under(3, page([]));
    assert_eq!(scene.sleeps(), POLL);
}

#[test]
fn a_refusal_of_a_hold_that_was_believed_to_live_on_degrades() {
    for reason in [CursorStale::Lapsed, CursorStale::Taken] {
        let mut scene = Scene::holding(page([4]));
        scene.succeeds_with(4);
        scene.resolves();
        scene.refused(reason);
        scene.rests();
        assert_eq!(scene.triggers(), [InvariantTrigger::ObserverReportFenceRejected]);
    }
}

#[test]
fn a_refusal_within_the_allowance_or_in_doubt_or_of_a_removed_observer_does_not_degrade() {
    let mut late = Scene::holding(page([4]));
    let delivery = late.delivers(4);
    late.now = late.now + LEASE / 2;
    late.resolves();
    late.refused(CursorStale::Taken);
    late.ends(delivery, Ending::Ok);
    assert_eq!(late.triggers(), []);

    let mut in_doubt = Scene::holding(page([4]));
    in_doubt.succeeds_with(4);
    in_doubt.resolves();
    in_doubt.handle(Event::ResolveFailed { in_doubt: true });
    in_doubt.sleeps();
    in_doubt.resolves();
    in_doubt.refused(CursorStale::Lapsed);
    in_doubt.rests();
    assert_eq!(in_doubt.triggers(), []);

    let mut gone = Scene::holding(page([4]));
    gone.succeeds_with(4);
    gone.resolves();
    gone.refused(CursorStale::Gone);
    gone.rests();
    assert_eq!(gone.triggers(), []);
}

#[test]
fn a_cursor_asked_to_move_backward_degrades_and_is_observed_anew_a_poll_later() {
    let mut scene = Scene::holding(Page { round: 8, ..page([4]) });
    scene.succeeds_with(4);
    assert_eq!(scene.resolves().round, 8);
    scene.refused(CursorStale::Regressed);
    assert_eq!(scene.sleeps(), POLL);
    assert_eq!(scene.triggers(), [InvariantTrigger::ObserverCursorRegressed]);
    scene.observes();
}

#[test]
fn a_write_that_failed_keeps_what_was_delivered_and_is_tried_again_slower_and_slower() {
    let mut scene = Scene::holding(page([4, 5, 6]));
    scene.succeeds_with(4);
    let delivery = scene.delivers(5);
    scene.now = scene.now + LEASE / 3;
    scene.resolves();
    scene.handle(Event::ResolveFailed { in_doubt: true });
    scene.ends(delivery, Ending::Ok);
    scene.succeeds_with(6);
    assert_eq!(scene.sleeps(), CALL_AGAIN_FIRST);
    assert_eq!(scene.resolves().until, Some(6));
    scene.handle(Event::ResolveFailed { in_doubt: true });
    assert_eq!(scene.sleeps(), CALL_AGAIN_FIRST * 2);
    scene.moves_to(6);
}

#[test]
fn no_delivery_begins_under_a_hold_that_is_past() {
    let mut scene = Scene::holding(page([4, 5]));
    let delivery = scene.delivers(4);
    scene.now = scene.now + LEASE / 3;
    scene.resolves();
    scene.handle(Event::ResolveFailed { in_doubt: false });
    scene.now = scene.now + LEASE;
    scene.ends(delivery, Ending::Ok);
    assert_eq!(scene.resolves().until, Some(4));
    scene.refused(CursorStale::Lapsed);
    scene.rests();
    assert_eq!(scene.triggers(), []);
}

#[test]
fn a_callback_that_takes_too_long_is_a_failure_and_is_left_behind() {
    let mut scene = Scene::holding(page([4]));
    let delivery = scene.delivers(4);
    scene.ends(delivery, Ending::TimedOut("too slow".into()));
    assert_eq!(scene.resolves().failing, Some((4, 1, AGAIN_IN)));
    scene.applied();
    scene.ends(delivery, Ending::Ok);
    scene.sleeps();
    scene.succeeds_with(4);
    assert!(scene.notes.contains(&Note::LeftBehind { position: 4, count: 1 }));
}

#[test]
fn with_too_many_callbacks_left_behind_the_cursor_is_given_up_until_one_has_ended() {
    let mut scene = Scene::holding(page([4, 5]));
    for _ in 0..2 {
        let delivery = scene.delivers(4);
        scene.ends(delivery, Ending::TimedOut("too slow".into()));
        scene.resolves();
        scene.applied();
        scene.sleeps();
    }
    for position in [4, 5] {
        let delivery = scene.delivers(position);
        scene.ends(delivery, Ending::TimedOut("too slow".into()));
    }
    let last = scene.resolves();
    assert_eq!((last.parked.len(), last.failing), (1, Some((5, 1, AGAIN_IN))));
    scene.applied();
    let next = scene.next();
    assert!(matches!(next, Some(Command::Release { epoch: 1 })), "{next:?}");
    scene.handle(Event::Released);
    scene.rests();
    assert_eq!(scene.driver.wake_at(scene.now), None);
    scene.handle(Event::CameBack);
    assert_eq!(scene.sleeps(), POLL);
    scene.observes();
}

#[test]
fn a_clean_stop_lets_the_callback_end_writes_what_was_delivered_and_gives_the_cursor_up() {
    let mut scene = Scene::holding(page([4, 5]));
    let delivery = scene.delivers(4);
    scene.handle(Event::StopRequested);
    scene.rests();
    scene.ends(delivery, Ending::Ok);
    scene.moves_to(4);
    assert!(matches!(scene.next(), Some(Command::Release { epoch: 1 })));
    scene.handle(Event::Released);
    assert!(matches!(scene.next(), Some(Command::Stopped)));
    scene.handle(Event::StopRequested);
    scene.rests();
}

#[test]
fn a_stop_does_not_wait_for_ever_for_a_callback_nor_for_a_store_that_fails() {
    let mut scene = Scene::holding(page([4, 5]));
    scene.succeeds_with(4);
    let delivery = scene.delivers(5);
    scene.handle(Event::StopRequested);
    scene.rests();
    scene.handle(Event::StopDeadline);
    scene.moves_to(4);
    assert!(matches!(scene.next(), Some(Command::Release { .. })));
    scene.ends(delivery, Ending::Ok);
    scene.handle(Event::Released);
    assert!(matches!(scene.next(), Some(Command::Stopped)));

    let mut scene = Scene::holding(page([4]));
    scene.succeeds_with(4);
    scene.handle(Event::StopRequested);
    scene.resolves();
    scene.handle(Event::ResolveFailed { in_doubt: false });
    assert!(matches!(scene.next(), Some(Command::Stopped)));
}

#[test]
fn a_store_that_failed_before_the_stop_is_asked_once_more_and_not_waited_for() {
    let mut scene = Scene::holding(page([4]));
    scene.succeeds_with(4);
    scene.resolves();
    scene.handle(Event::ResolveFailed { in_doubt: true });
    scene.rests();
    scene.handle(Event::StopRequested);
    assert_eq!(scene.resolves().until, Some(4));
    scene.handle(Event::ResolveFailed { in_doubt: true });
    assert!(matches!(scene.next(), Some(Command::Stopped)));
}

#[test]
fn who_holds_nothing_stops_at_once() {
    let mut scene = Scene::new();
    scene.observes();
    scene.finds_it_elsewhere(scene.now + LEASE);
    scene.handle(Event::StopRequested);
    assert!(matches!(scene.next(), Some(Command::Stopped)));
}

#[test]
fn a_head_that_waits_lets_the_store_be_asked_at_each_heartbeat_for_what_is_wanted_again() {
    let due_at = START + LEASE;
    let failing = Some(Failing { position: 4, failures: 2, due_at });
    let mut scene = Scene::holding(Page { failing, ..page([4]) });
    assert_eq!(scene.sleeps(), LEASE / 3);
    scene.observes();
    scene.finds(Page { failing, again: vec![2], ..page([4, 5]) });
    scene.succeeds_with(2);
    assert_eq!(scene.resolves().delivered_again, [2]);
    scene.applied();
    scene.rests();
}

#[test]
fn an_epoch_that_has_moved_between_two_looks_says_that_the_hold_was_lost() {
    let mut scene = Scene::holding(page([]));
    scene.sleeps();
    scene.observes();
    scene.finds_under(3, page([]));
    scene.rests();
    assert_eq!(scene.lost(), [Lost::Between]);
    let taken = |note: &&Note| matches!(note, Note::Taken { .. });
    assert_eq!(scene.notes.iter().filter(taken).count(), 2);
}
