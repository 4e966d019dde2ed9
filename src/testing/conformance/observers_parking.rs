//! Deliveries that were given up, and what operators do with them and with observers.

use super::Fixture;
use super::desk::{ACTOR, Desk, SECOND, TICK, outcome, rows, sound};
use super::observers_desk::{Watcher, positions};
use super::office::nothing_kept;
use crate::WorkerId;
use crate::store::{
    AuditAction, AuditFilter, HistoryPolicy, Observation, ObserverChange, Outcome, OutcomeRow,
    ParkedDelivery, Parking, Resolve,
};

/// An observer that has given up on each of so many deliveries.
#[track_caller]
fn gave_up(desk: &mut Desk, count: usize) -> (Watcher, Vec<Observation>) {
    let mut watcher = Watcher::registered(desk, "alerts");
    desk.accept(&rows(count));
    let told = watcher.look(desk, 100).batch;
    assert_eq!(told.len(), count);
    for one in &told {
        watcher.park(desk, one, "refused");
    }
    (watcher, told)
}

pub(super) fn a_parked_delivery_is_kept_whole(fixture: &Fixture) {
    let mut desk = Desk::with_history(fixture, HistoryPolicy::WithFailureDetail);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    let job = desk.hold(WorkerId::new());
    let detail = Some("no space left \u{1F4BE}".to_owned());
    desk.settle(&OutcomeRow { detail, ..outcome(&job, Outcome::DeadLettered) });
    let told = watcher.look(&mut desk, 9).batch;
    desk.wait(SECOND);
    let parked = told.iter().cloned().map(|one| Parking::new(one, 10, "503 – später".to_owned()));
    let parked: Vec<_> = parked.collect();
    let until = positions(&told)[2];
    desk.resolve(&Resolve { parked: parked.clone(), ..watcher.until(until) });
    let expected: Vec<_> =
        parked.into_iter().map(|one| ParkedDelivery::new(one, desk.now())).collect();
    assert_eq!(desk.parked("alerts"), expected);
    assert_eq!(desk.observer("alerts").parked, 3);
    assert!(desk.parked("other").is_empty());
}

pub(super) fn what_is_parked_lies_behind_the_cursor(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (mut watcher, _) = gave_up(&mut desk, 2);
    let seen = watcher.look(&mut desk, 9);
    assert!(seen.batch.is_empty() && seen.again.is_empty());
}

pub(super) fn a_parked_delivery_outlives_its_job(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (mut watcher, told) = gave_up(&mut desk, 1);
    desk.cancel(told[0].job);
    watcher.drain(&mut desk);
    assert_eq!(desk.purge(nothing_kept()), 1);
    assert_eq!(desk.parked("alerts")[0].parking.observation, told[0]);
    desk.change_observer("alerts", ObserverChange::Redeliver(None));
    assert_eq!(watcher.look(&mut desk, 9).again, told);
}

pub(super) fn parked_deliveries_are_told_page_by_page(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (_, told) = gave_up(&mut desk, 5);
    let mut pages = Vec::new();
    let mut after = None;
    loop {
        let page = sound(desk.session.parked("alerts", after, 2));
        let Some(last) = page.last() else { break };
        after = Some(last.parking.observation.transition.position);
        pages.push(page.len());
        assert!(pages.len() < 9, "a page goes on beyond the last");
    }
    assert_eq!(pages, [2, 2, 1]);
    assert_eq!(after, Some(positions(&told)[4]));
    assert_eq!(sound(desk.session.parked("alerts", None, 0)).len(), 1, "a limit of none is one");
}

pub(super) fn what_is_wanted_again_is_told_the_oldest_first(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (mut watcher, told) = gave_up(&mut desk, 4);
    assert_eq!(desk.change_observer("alerts", ObserverChange::Redeliver(None)), 4);
    assert_eq!(watcher.look(&mut desk, 3).again, told[..3]);
    assert_eq!(watcher.look(&mut desk, 9).again, told);
    assert!(desk.parked("alerts").iter().all(|parked| parked.is_wanted_again));
}

pub(super) fn one_of_several_can_be_wanted_again(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (mut watcher, told) = gave_up(&mut desk, 3);
    let one = positions(&told)[1];
    assert_eq!(desk.change_observer("alerts", ObserverChange::Redeliver(Some(one))), 1);
    assert_eq!(watcher.look(&mut desk, 9).again, told[1..2]);
    let wanted: Vec<_> = desk.parked("alerts").iter().map(|one| one.is_wanted_again).collect();
    assert_eq!(wanted, [false, true, false]);
}

pub(super) fn a_delivery_that_succeeded_at_last_is_forgotten(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (mut watcher, told) = gave_up(&mut desk, 3);
    desk.change_observer("alerts", ObserverChange::Redeliver(None));
    let delivered_again = positions(&watcher.look(&mut desk, 2).again);
    desk.resolve(&Resolve { delivered_again, ..watcher.resolution() });
    assert_eq!(watcher.look(&mut desk, 9).again, told[2..]);
    assert_eq!(desk.observer("alerts").parked, 1);
}

pub(super) fn a_delivery_given_up_again_is_parked_anew(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (mut watcher, told) = gave_up(&mut desk, 2);
    desk.change_observer("alerts", ObserverChange::Redeliver(None));
    desk.wait(SECOND);
    let parking = Parking::new(told[0].clone(), 20, "still refused".to_owned());
    desk.resolve(&Resolve { parked: vec![parking.clone()], ..watcher.resolution() });
    let parked = desk.parked("alerts");
    assert_eq!(parked[0], ParkedDelivery::new(parking, desk.now()), "and its mark is gone");
    assert_eq!(parked.len(), 2);
    assert_eq!(watcher.look(&mut desk, 9).again, told[1..]);
}

pub(super) fn a_discarded_delivery_is_gone(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (mut watcher, told) = gave_up(&mut desk, 3);
    desk.change_observer("alerts", ObserverChange::Redeliver(None));
    let one = positions(&told)[0];
    assert_eq!(desk.change_observer("alerts", ObserverChange::Discard(Some(one))), 1);
    assert_eq!(watcher.look(&mut desk, 9).again, told[1..]);
    assert_eq!(desk.change_observer("alerts", ObserverChange::Discard(None)), 2);
    assert!(desk.parked("alerts").is_empty());
    assert!(watcher.look(&mut desk, 9).again.is_empty());
    let late = Resolve { delivered_again: vec![one], ..watcher.resolution() };
    desk.resolve(&late);
}

pub(super) fn a_removed_observer_is_forgotten_with_what_it_had(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    gave_up(&mut desk, 2);
    let other = Watcher::registered(&mut desk, "other");
    assert_eq!(desk.change_observer("alerts", ObserverChange::Remove), 1);
    assert!(desk.parked("alerts").is_empty());
    let left: Vec<_> = desk.observers().into_iter().map(|record| record.observer).collect();
    assert_eq!(left, [other.name]);
    let anew = Watcher::registered(&mut desk, "alerts");
    assert_eq!(anew.epoch, 1);
}

pub(super) fn what_operators_do_with_observers_is_audited(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (_, told) = gave_up(&mut desk, 3);
    let first = positions(&told)[0];
    let changes = [
        (ObserverChange::Redeliver(None), AuditAction::Redeliver),
        (ObserverChange::Discard(Some(first)), AuditAction::Discard),
        (ObserverChange::Remove, AuditAction::RemoveObserver),
    ];
    for (change, action) in changes {
        desk.wait(TICK);
        assert!(desk.change_observer("alerts", change) > 0);
        let newest = desk.audit(&AuditFilter::default()).remove(0);
        assert_eq!((newest.action, newest.at), (action, desk.now()));
        assert_eq!((newest.actor.as_str(), newest.subject.as_deref()), (ACTOR, Some("alerts")));
        assert_eq!((newest.job, newest.queue.as_str()), (None, ""));
    }
    assert_eq!(desk.audit(&AuditFilter::default()).len(), 3, "one of each call");
}

pub(super) fn what_has_no_effect_on_an_observer_is_not_audited(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (_, told) = gave_up(&mut desk, 1);
    let beyond = positions(&told)[0] + 1;
    for change in [ObserverChange::Redeliver(Some(beyond)), ObserverChange::Discard(Some(beyond))] {
        assert_eq!(desk.change_observer("alerts", change), 0);
    }
    for change in
        [ObserverChange::Redeliver(None), ObserverChange::Discard(None), ObserverChange::Remove]
    {
        assert_eq!(desk.change_observer("nobody", change), 0);
    }
    assert!(desk.audit(&AuditFilter::default()).is_empty());
    assert_eq!(desk.change_observer("alerts", ObserverChange::Redeliver(None)), 1);
    assert_eq!(desk.change_observer("alerts", ObserverChange::Redeliver(None)), 0, "it is wanted");
    assert_eq!(desk.audit(&AuditFilter::default()).len(), 1);
}
