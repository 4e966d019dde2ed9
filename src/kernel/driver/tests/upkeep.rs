//! Purges, latches left for later, announcements: when they are asked for, and what they never do.

use super::*;
use crate::store::{Purge, PurgeCursor};

impl Scene {
    fn upkeep(&mut self) {
        self.tell(Event::UpkeepDue);
    }

    #[track_caller]
    fn expect_purge(&mut self) -> Purge {
        take!(self, Command::Purge(purge) => purge)
    }

    /// Takes the question for latches and answers it.
    #[track_caller]
    fn latches(&mut self, more: bool) {
        take!(self, Command::WorkOffLatches { max } => assert_eq!(max, 1000));
        self.tell(Event::LatchesWorkedOff(LatchesWorkedOff::new(u32::from(more), more, self.now)));
    }

    fn purged(&mut self, cursor: PurgeCursor, more: bool) {
        self.tell(Event::Purged(Purged::new(1, cursor, more, self.now)));
    }

    #[track_caller]
    fn announce(&mut self) {
        take!(self, Command::Announce => ());
        self.tell(Event::Announced);
    }

    /// A whole round of upkeep in which there is nothing to do.
    #[track_caller]
    fn idle_round(&mut self) {
        self.upkeep();
        self.latches(false);
        self.expect_purge();
        self.purged(PurgeCursor::default(), false);
    }
}

fn scene() -> Scene {
    let mut scene = Scene::new(2);
    scene.quiet();
    scene
}

#[test]
fn upkeep_is_one_request_at_a_time_and_none_until_it_is_due_again() {
    let mut scene = scene();
    scene.upkeep();
    scene.latches(false);
    let purge = scene.expect_purge();
    assert_eq!((purge.max, purge.cursor), (500, PurgeCursor::default()));
    assert_eq!(purge.retention, Retention::default());
    scene.nothing();
    scene.purged(PurgeCursor::default(), false);
    scene.announce();
    scene.nothing();
}

#[test]
fn a_full_page_goes_on_where_it_stopped_after_a_rest_as_long_as_it_took() {
    let mut scene = scene();
    scene.upkeep();
    scene.latches(false);
    scene.expect_purge();
    scene.pass(ms(40));
    let cursor = PurgeCursor { trimmed: 7, ..PurgeCursor::default() };
    scene.purged(cursor, true);
    scene.announce();
    scene.nothing();
    scene.pass(ms(39));
    assert!(scene.said.iter().all(|command| matches!(command, Command::Claim(_))));
    scene.said.clear();
    scene.pass_to_wake();
    assert_eq!(scene.expect_purge().cursor, cursor);
    scene.purged(PurgeCursor::default(), false);
    // The end was reached: the next one begins anew.
    scene.upkeep();
    scene.latches(false);
    assert_eq!(scene.expect_purge().cursor, PurgeCursor::default());
}

#[test]
fn latches_left_for_later_are_worked_off_page_by_page() {
    let mut scene = scene();
    scene.upkeep();
    scene.latches(true);
    scene.expect_purge();
    scene.purged(PurgeCursor::default(), false);
    scene.announce();
    scene.pass_to_wake();
    scene.latches(false);
    scene.nothing();
}

#[test]
fn what_serves_jobs_comes_first() {
    let (mut scene, runs) = Scene::running(2, 2);
    scene.finish_ok(&runs[0]);
    scene.finish_ok(&runs[1]);
    scene.upkeep();
    assert!(matches!(scene.said.front(), Some(Command::Exchange { .. })), "{:?}", scene.said);
}

#[test]
fn a_pump_says_that_it_is_there_twice_a_minute() {
    let mut scene = scene();
    scene.idle_round();
    scene.announce();
    scene.now = scene.now + secs(29);
    scene.idle_round();
    scene.quiet();
    scene.now = scene.now + secs(1);
    scene.idle_round();
    scene.announce();
    // A clock that was set back by a day must not silence it for a day.
    scene.now = Timestamp::from_micros(scene.now.as_micros() - 86_400_000_000);
    scene.idle_round();
    scene.announce();
}

#[test]
fn upkeep_that_failed_waits_until_it_is_due_again() {
    let mut scene = scene();
    scene.upkeep();
    take!(scene, Command::WorkOffLatches { .. } => ());
    scene.tell(Event::UpkeepFailed);
    scene.expect_purge();
    scene.tell(Event::UpkeepFailed);
    take!(scene, Command::Announce => ());
    scene.tell(Event::UpkeepFailed);
    scene.nothing();
    scene.idle_round();
    scene.announce();
}

#[test]
fn a_stop_takes_no_upkeep_on_and_waits_for_what_is_under_way() {
    let mut scene = scene();
    scene.upkeep();
    take!(scene, Command::WorkOffLatches { .. } => ());
    scene.stop();
    scene.nothing();
    scene.tell(Event::LatchesWorkedOff(LatchesWorkedOff::new(1, true, scene.now)));
    scene.expect_stopped();
}
