//! Who holds an observer's cursor, and what a holder may write.

use super::Fixture;
use super::desk::{Desk, LEASE, SECOND, TICK, rows};
use super::observers_desk::{Watcher, failed};
use crate::store::{CursorStale, Failing, Observed, ObserverChange, Parking, Resolve};
use std::time::Duration;

pub(super) fn a_free_cursor_is_taken(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    assert!(desk.observers().is_empty());
    let watcher = Watcher::registered(&mut desk, "alerts");
    let record = desk.observer("alerts");
    assert_eq!((watcher.epoch, record.epoch), (1, 1));
    assert_eq!(record.worker, Some(watcher.worker));
    assert_eq!(record.expiry, Some(desk.now() + LEASE));
    assert_eq!((record.registered_at, record.behind_since), (desk.now(), None));
    assert_eq!((record.parked, record.failing), (0, None));
}

pub(super) fn a_held_cursor_is_elsewhere_for_everybody_else(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    Watcher::registered(&mut desk, "alerts");
    let expiry = desk.now() + LEASE;
    desk.wait(SECOND);
    assert_eq!(Watcher::new("alerts").is_kept_out(&mut desk), expiry);
    assert_eq!(desk.observer("alerts").expiry, Some(expiry), "asking in vain changes nothing");
    Watcher::registered(&mut desk, "other");
}

pub(super) fn asking_again_prolongs_the_hold(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    desk.wait(LEASE - TICK);
    watcher.look(&mut desk, 9);
    desk.wait(LEASE - TICK);
    Watcher::new("alerts").is_kept_out(&mut desk);
    assert_eq!(watcher.epoch, 1, "it is the same hold");
}

pub(super) fn a_hold_is_dead_at_its_expiry_instant(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    Watcher::registered(&mut desk, "alerts");
    let mut other = Watcher::new("alerts");
    desk.wait(LEASE - TICK);
    other.is_kept_out(&mut desk);
    desk.wait(TICK);
    other.look(&mut desk, 9);
    assert_eq!(other.epoch, 2);
    assert_eq!(desk.observer("alerts").worker, Some(other.worker));
}

pub(super) fn a_dead_hold_that_nobody_took_is_ones_own_still(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    desk.wait(LEASE * 2);
    watcher.look(&mut desk, 9);
    assert_eq!(watcher.epoch, 1);
    desk.resolve(&watcher.resolution());
}

pub(super) fn a_released_cursor_is_free_at_once(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    desk.wait(SECOND);
    watcher.release(&mut desk);
    let record = desk.observer("alerts");
    assert_eq!(record.worker, Some(watcher.worker), "who held it last");
    assert_eq!(record.expiry, Some(desk.now()), "when that hold ended");
    let mut other = Watcher::new("alerts");
    other.look(&mut desk, 9);
    assert_eq!(other.epoch, 2);
    other.release(&mut desk);
    other.look(&mut desk, 9);
    assert_eq!(other.epoch, 3, "also for who gave it up");
    watcher.is_kept_out(&mut desk);
    other.release(&mut desk);
    watcher.look(&mut desk, 9);
    assert_eq!(watcher.epoch, 4);
}

pub(super) fn only_its_holder_releases_a_cursor(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let watcher = Watcher::registered(&mut desk, "alerts");
    let stranger = Watcher { epoch: 1, ..Watcher::new("alerts") };
    stranger.release(&mut desk);
    let earlier = Watcher { epoch: 0, worker: watcher.worker, ..Watcher::new("alerts") };
    earlier.release(&mut desk);
    Watcher::new("nobody").release(&mut desk);
    Watcher::new("alerts").is_kept_out(&mut desk);
    assert_eq!(desk.observers().len(), 1);
    desk.wait(LEASE * 2);
    watcher.release(&mut desk);
    let expiry = desk.observer("alerts").expiry.expect("it was held");
    assert!(expiry < desk.now(), "a dead hold ended when it ended");
}

pub(super) fn a_resolution_prolongs_the_hold(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let watcher = Watcher::registered(&mut desk, "alerts");
    desk.wait(LEASE - TICK);
    desk.resolve(&Resolve { lease: LEASE * 3, ..watcher.resolution() });
    assert_eq!(desk.observer("alerts").expiry, Some(desk.now() + LEASE * 3));
    desk.wait(LEASE * 2);
    Watcher::new("alerts").is_kept_out(&mut desk);
}

pub(super) fn a_resolution_under_a_dead_hold_is_lapsed(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    desk.accept(&rows(1));
    let seen = watcher.look(&mut desk, 9);
    desk.wait(LEASE);
    let late = watcher.until(seen.positions()[0]);
    assert_eq!(desk.resolve_in_vain(&late), CursorStale::Lapsed);
    assert_eq!(watcher.look(&mut desk, 9).batch, seen.batch, "nothing was written");
    watcher.release(&mut desk);
    let late = watcher.until(seen.positions()[0]);
    assert_eq!(desk.resolve_in_vain(&late), CursorStale::Lapsed, "nor after a release");
}

pub(super) fn a_resolution_after_the_cursor_was_taken_is_stale(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    desk.accept(&rows(1));
    let seen = watcher.look(&mut desk, 9);
    desk.wait(LEASE);
    let mut other = Watcher::new("alerts");
    other.look(&mut desk, 9);
    let late = Resolve {
        parked: vec![Parking::new(seen.batch[0].clone(), 3, "late".to_owned())],
        ..watcher.until(seen.positions()[0])
    };
    assert_eq!(desk.resolve_in_vain(&late), CursorStale::Taken);
    assert!(desk.parked("alerts").is_empty());
    assert_eq!(other.look(&mut desk, 9).batch, seen.batch);
    let forged = Resolve { worker: other.worker, ..watcher.resolution() };
    assert_eq!(desk.resolve_in_vain(&forged), CursorStale::Taken, "under an earlier epoch");
}

pub(super) fn a_resolution_for_an_observer_that_is_not_there_is_gone(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let never = Watcher::new("alerts");
    assert_eq!(desk.resolve_in_vain(&never.resolution()), CursorStale::Gone);
    let watcher = Watcher::registered(&mut desk, "alerts");
    assert_eq!(desk.change_observer("alerts", ObserverChange::Remove), 1);
    assert_eq!(desk.resolve_in_vain(&watcher.resolution()), CursorStale::Gone);
    assert!(desk.observers().is_empty(), "a resolution registers nobody");
}

pub(super) fn a_cursor_does_not_move_backward(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    desk.accept(&rows(5));
    let seen = watcher.look(&mut desk, 9);
    let positions = seen.positions();
    watcher.pass(&mut desk, positions[3]);
    let expiry = desk.observer("alerts").expiry;
    desk.wait(SECOND);
    let backward = Resolve {
        parked: vec![Parking::new(seen.batch[0].clone(), 3, "late".to_owned())],
        failing: failed(positions[4], 2, 5),
        ..watcher.until(positions[2])
    };
    assert_eq!(desk.resolve_in_vain(&backward), CursorStale::Regressed);
    let record = desk.observer("alerts");
    assert_eq!((record.expiry, record.parked, record.failing), (expiry, 0, None));
    assert_eq!(watcher.look(&mut desk, 9).batch, seen.batch[4..], "nothing was written");
}

pub(super) fn a_resolution_in_another_round_is_refused(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    desk.accept(&rows(1));
    let seen = watcher.look(&mut desk, 9);
    let until = watcher.until(seen.positions()[0]);
    let stray = Resolve { round: watcher.round + 1, ..until };
    assert_eq!(desk.resolve_in_vain(&stray), CursorStale::Regressed);
    assert_eq!(watcher.look(&mut desk, 9).batch, seen.batch);
}

pub(super) fn the_same_resolution_again_changes_nothing(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    desk.accept(&rows(3));
    let seen = watcher.look(&mut desk, 9);
    for _ in 0..2 {
        watcher.pass(&mut desk, seen.positions()[1]);
    }
    assert_eq!(watcher.look(&mut desk, 9).batch, seen.batch[2..]);
}

pub(super) fn the_next_holder_begins_where_the_last_one_stopped(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    desk.accept(&rows(6));
    let seen = watcher.look(&mut desk, 4);
    watcher.pass(&mut desk, seen.positions()[1]);
    desk.wait(LEASE);
    let mut other = Watcher::new("alerts");
    let rest = other.drain(&mut desk);
    assert_eq!(rest.len(), 4);
    assert_eq!(rest[..2], seen.batch[2..]);
}

pub(super) fn a_failure_is_told_to_the_next_holder(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    desk.accept(&rows(3));
    let positions = watcher.look(&mut desk, 9).positions();
    let noted = Resolve { failing: failed(positions[1], 3, 8), ..watcher.until(positions[0]) };
    desk.resolve(&noted);
    let due_at = desk.now() + Duration::from_secs(8);
    let expected = Failing { position: positions[1], failures: 3, due_at };
    assert_eq!(desk.observer("alerts").failing, Some(expected));
    desk.wait(LEASE);
    let seen = Watcher::new("alerts").look(&mut desk, 9);
    assert_eq!((seen.failing, seen.batch.len()), (Some(expected), 2));
}

pub(super) fn a_failure_stays_until_it_is_passed(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    desk.accept(&rows(3));
    let positions = watcher.look(&mut desk, 9).positions();
    desk.resolve(&Resolve { failing: failed(positions[1], 3, 8), ..watcher.until(positions[0]) });
    desk.resolve(&watcher.resolution());
    assert_eq!(watcher.look(&mut desk, 9).failing.map(|failing| failing.failures), Some(3));
    desk.resolve(&Resolve { failing: failed(positions[1], 4, 16), ..watcher.resolution() });
    assert_eq!(watcher.look(&mut desk, 9).failing.map(|failing| failing.failures), Some(4));
    watcher.pass(&mut desk, positions[1]);
    assert_eq!(watcher.look(&mut desk, 9).failing, None);
    assert_eq!(desk.observer("alerts").failing, None);
}

pub(super) fn observers_are_told_by_name(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for name in ["b", "a", "B", "é"] {
        Watcher::registered(&mut desk, name);
        desk.wait(TICK);
    }
    let records = desk.observers();
    let names: Vec<_> = records.iter().map(|record| record.observer.as_str()).collect();
    assert_eq!(names, ["B", "a", "b", "é"]);
    assert!(records.iter().all(|record| record.epoch == 1 && record.parked == 0));
}

pub(super) fn how_far_one_is_behind_is_told(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    desk.accept(&rows(1));
    let first = desk.now();
    desk.wait(SECOND);
    desk.accept(&rows(1));
    let second = desk.now();
    desk.wait(SECOND);
    assert_eq!(desk.observer("alerts").behind_since, Some(first));
    let positions = watcher.look(&mut desk, 9).positions();
    assert_eq!(desk.observer("alerts").behind_since, Some(first), "nothing is resolved");
    watcher.pass(&mut desk, positions[0]);
    assert_eq!(desk.observer("alerts").behind_since, Some(second));
    watcher.pass(&mut desk, positions[1]);
    assert_eq!(desk.observer("alerts").behind_since, None);
    desk.accept(&rows(1));
    assert_eq!(desk.observer("alerts").behind_since, Some(desk.now()));
}

pub(super) fn a_cursor_is_taken_by_one_of_eight_threads(fixture: &Fixture) {
    for round in 0..4 {
        let name = format!("alerts {round}");
        let ask = || {
            let mut desk = Desk::open(fixture);
            let watcher = Watcher::new(&name);
            usize::from(matches!(watcher.ask(&mut desk, 9), Observed::Held { .. }))
        };
        let held: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().expect("it ends")).sum()
        });
        assert_eq!(held, 1);
    }
    assert_eq!(Desk::open(fixture).observers().len(), 4);
}
