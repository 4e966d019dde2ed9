//! What pumps tell of themselves.

use super::Fixture;
use super::desk::{Desk, SECOND};
use super::office::nothing_kept;
use crate::WorkerId;
use crate::store::{Announcement, HaltNote, PumpRecord, Retention};
use std::time::Duration;

fn pump(group: &str) -> Announcement {
    Announcement::new(WorkerId::new(), group.to_owned(), "host".to_owned(), 42)
}

fn halted(pump: &Announcement, message: &str) -> Announcement {
    let note = HaltNote::new(
        "std::io::Error".to_owned(),
        message.to_owned(),
        Some("ClaimBatchOverrun".to_owned()),
    );
    Announcement { halt: Some(note), ..pump.clone() }
}

pub(super) fn nobody_is_there_before_somebody_is_announced(fixture: &Fixture) {
    assert!(Desk::open(fixture).pumps().is_empty());
}

pub(super) fn a_pump_is_told_as_it_announced_itself(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let given = Announcement {
        queues: vec!["b".to_owned(), "a, c".to_owned()],
        wire_names: vec!["été".to_owned(), "\"x\"".to_owned()],
        version: "1.2.3".to_owned(),
        ..pump("it's")
    };
    desk.announce(&given);
    let at = desk.now();
    assert_eq!(desk.pumps(), [PumpRecord::new(given, at)]);
}

pub(super) fn a_pump_is_seen_at_its_last_word_and_has_started_at_its_first(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let given = pump("g");
    let started = desk.now();
    desk.announce(&given);
    let seen = desk.wait(SECOND * 30);
    desk.announce(&given);
    let told = desk.pumps();
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].started_at, told[0].last_seen), (started, seen));
    assert_eq!(told[0].halted_at, None);
}

pub(super) fn a_pump_that_tells_something_new_is_told_so(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let first = Announcement { queues: vec!["a".to_owned()], ..pump("g") };
    desk.announce(&first);
    let second = Announcement {
        queues: vec!["b".to_owned(), "c".to_owned()],
        wire_names: vec!["w".to_owned()],
        ..first
    };
    desk.announce(&second);
    assert_eq!(desk.pumps()[0].announcement, second);
}

pub(super) fn a_halt_is_told_with_its_cause(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let given = pump("g");
    desk.announce(&given);
    let at = desk.wait(SECOND);
    let halt = halted(&given, "broken");
    desk.announce(&halt);
    let told = desk.pumps().remove(0);
    assert_eq!((told.announcement.halt, told.halted_at), (halt.halt, Some(at)));
    assert_eq!(told.last_seen, at);
}

pub(super) fn a_pump_can_be_announced_as_halted_at_once(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let note = HaltNote::new("T".to_owned(), "m".to_owned(), None);
    let given = Announcement { halt: Some(note), ..pump("g") };
    desk.announce(&given);
    let at = desk.now();
    assert_eq!(desk.pumps(), [PumpRecord::new(given, at)]);
}

pub(super) fn a_halt_is_kept_when_the_pump_is_announced_again(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let given = pump("g");
    let halt = halted(&given, "first");
    desk.announce(&halt);
    let at = desk.now();
    for later in [given.clone(), halted(&given, "second")] {
        let seen = desk.wait(SECOND);
        desk.announce(&later);
        let told = desk.pumps().remove(0);
        assert_eq!((&told.announcement.halt, told.halted_at), (&halt.halt, Some(at)));
        assert_eq!(told.last_seen, seen);
    }
}

pub(super) fn a_pump_that_stopped_cleanly_is_gone(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (one, two) = (pump("g"), pump("g"));
    desk.announce(&one);
    desk.announce(&two);
    desk.withdraw(one.worker);
    desk.withdraw(one.worker);
    desk.withdraw(WorkerId::new());
    let told: Vec<_> = desk.pumps().iter().map(|pump| pump.announcement.worker).collect();
    assert_eq!(told, [two.worker]);
}

pub(super) fn a_pump_announced_after_it_was_gone_has_started_anew(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let given = pump("g");
    desk.announce(&given);
    desk.withdraw(given.worker);
    let at = desk.wait(SECOND);
    desk.announce(&given);
    assert_eq!(desk.pumps(), [PumpRecord::new(given, at)]);
}

pub(super) fn a_halted_pump_cannot_be_withdrawn(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let halt = halted(&pump("g"), "broken");
    desk.announce(&halt);
    desk.withdraw(halt.worker);
    assert_eq!(desk.pumps().len(), 1);
}

pub(super) fn pumps_are_ordered_by_group_and_worker(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let all: Vec<_> = ["é", "b", "a", "Z", "a b", "b", "a"].map(pump).into_iter().collect();
    for given in all.iter().rev() {
        desk.announce(given);
    }
    let mut expected: Vec<_> =
        all.iter().map(|given| (given.group.clone(), given.worker)).collect();
    expected.sort();
    let told = desk.pumps().into_iter();
    let told: Vec<_> =
        told.map(|pump| (pump.announcement.group, pump.announcement.worker)).collect();
    assert_eq!(told, expected);
}

pub(super) fn a_pump_not_seen_for_a_week_is_purged(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (gone, alive) = (pump("gone"), pump("alive"));
    desk.announce(&gone);
    desk.announce(&alive);
    desk.wait(Duration::from_secs(86_400 * 4));
    desk.announce(&alive);
    desk.purge(Retention::default());
    assert_eq!(desk.pumps().len(), 2);
    desk.wait(Duration::from_secs(86_400 * 4));
    desk.purge(nothing_kept());
    let told: Vec<_> = desk.pumps().iter().map(|pump| pump.announcement.worker).collect();
    assert_eq!(told, [alive.worker]);
}

pub(super) fn an_announcement_decides_nothing_about_leases(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let given = pump("g");
    let job = desk.hold(given.worker);
    desk.announce(&halted(&given, "broken"));
    desk.withdraw(given.worker);
    assert_eq!(desk.job(job.id).owner, Some(given.worker));
    assert_eq!(desk.held(given.worker).len(), 1);
}
