//! What a purge leaves to observers that have not passed it, for how long, and what it tells of the rest.

use super::Fixture;
use super::desk::{Desk, TICK, rows};
use super::family::child;
use super::observers_desk::{Watcher, of_job};
use super::office::nothing_kept;
use crate::store::{
    HistoryPolicy, ObserverChange, Outcome, PurgeCursor, Purged, Retention, TransitionFilter,
};
use crate::{JobId, JobState};
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(60);

/// Everything that ended goes at once, and observers are waited for for a minute.
fn impatient() -> Retention {
    Retention { unobserved: Some(WAIT), ..nothing_kept() }
}

#[track_caller]
fn page(desk: &mut Desk, retention: Retention) -> Purged {
    desk.purge_page(retention, 500, PurgeCursor::default())
}

#[track_caller]
fn ended(desk: &mut Desk) -> JobId {
    let id = desk.lone();
    desk.cancel(id);
    id
}

pub(super) fn a_purge_waits_for_every_observer(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut quick = Watcher::registered(&mut desk, "quick");
    let mut slow = Watcher::registered(&mut desk, "slow");
    let id = ended(&mut desk);
    assert_eq!(page(&mut desk, nothing_kept()).jobs, 0);
    quick.drain(&mut desk);
    assert_eq!(page(&mut desk, nothing_kept()).jobs, 0, "one has not passed it");
    assert_eq!(desk.history(id).len(), 2);
    let told = slow.drain(&mut desk);
    assert_eq!(of_job(&told, id), desk.history(id));
    let purged = page(&mut desk, nothing_kept());
    assert_eq!((purged.jobs, purged.unobserved), (1, 0));
    assert!(desk.find(id).is_none());
}

pub(super) fn what_is_resolved_can_go_at_once(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    let (first, second) = (ended(&mut desk), ended(&mut desk));
    let told = watcher.look(&mut desk, 9).positions();
    watcher.pass(&mut desk, told[1]);
    let purged = page(&mut desk, nothing_kept());
    assert_eq!((purged.jobs, purged.unobserved), (1, 0));
    assert!(desk.find(first).is_none() && desk.find(second).is_some());
}

pub(super) fn what_waited_too_long_goes_and_is_told(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    Watcher::registered(&mut desk, "other");
    let id = ended(&mut desk);
    desk.wait(WAIT - TICK);
    let purged = page(&mut desk, impatient());
    assert_eq!((purged.jobs, purged.unobserved), (0, 0));
    desk.wait(TICK);
    let purged = page(&mut desk, impatient());
    assert_eq!((purged.jobs, purged.unobserved), (1, 2), "each transition counts once");
    assert!(desk.find(id).is_none());
    assert!(watcher.look(&mut desk, 9).batch.is_empty());
    assert_eq!(page(&mut desk, impatient()).unobserved, 0, "it is told once");
}

pub(super) fn a_job_waits_for_the_youngest_of_what_is_not_passed(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    Watcher::registered(&mut desk, "alerts");
    let id = desk.lone();
    desk.wait(WAIT);
    desk.cancel(id);
    desk.wait(WAIT - TICK);
    assert_eq!(page(&mut desk, impatient()).jobs, 0);
    assert_eq!(desk.history(id).len(), 2, "it is kept whole");
    desk.wait(TICK);
    let purged = page(&mut desk, impatient());
    assert_eq!((purged.jobs, purged.unobserved), (1, 2));
}

pub(super) fn only_what_was_not_passed_is_counted(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    ended(&mut desk);
    let told = watcher.look(&mut desk, 9).positions();
    watcher.pass(&mut desk, told[0]);
    desk.wait(WAIT);
    let purged = page(&mut desk, impatient());
    assert_eq!((purged.jobs, purged.unobserved), (1, 1));
}

pub(super) fn waited_for_for_ever_is_for_ever(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    let id = ended(&mut desk);
    desk.wait(Duration::from_secs(86_400 * 365 * 100));
    assert_eq!(page(&mut desk, nothing_kept()).jobs, 0);
    assert_eq!(of_job(&watcher.drain(&mut desk), id).len(), 2);
}

pub(super) fn what_an_observer_waits_for_does_not_keep_the_rest(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let before = ended(&mut desk);
    desk.wait(TICK);
    Watcher::registered(&mut desk, "alerts");
    let awaited: Vec<_> = (0..7).map(|_| ended(&mut desk)).collect();
    desk.change_observer("alerts", ObserverChange::Remove);
    desk.wait(TICK);
    let after = ended(&mut desk);
    Watcher::new("alerts").oldest().look(&mut desk, 1);
    let (mut cursor, mut gone) = (PurgeCursor::default(), 0);
    for _ in 0..50 {
        let purged = desk.purge_page(nothing_kept(), 3, cursor);
        (cursor, gone) = (purged.cursor, gone + purged.jobs);
        if !purged.more {
            break;
        }
    }
    assert_eq!(gone, 2, "what was written while nobody observed");
    assert!(desk.find(before).is_none() && desk.find(after).is_none());
    assert!(awaited.iter().all(|id| desk.find(*id).is_some()));
}

pub(super) fn an_awaited_job_keeps_its_ancestors(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    let parent = desk.lone();
    desk.succeed(parent);
    watcher.drain(&mut desk);
    let dependent = desk.add(&child(&[parent]));
    desk.succeed(dependent);
    assert_eq!(desk.purge(nothing_kept()), 0);
    watcher.drain(&mut desk);
    assert_eq!(desk.purge(nothing_kept()), 2);
}

pub(super) fn a_removed_observer_holds_nothing_back(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    Watcher::registered(&mut desk, "alerts");
    ended(&mut desk);
    assert_eq!(page(&mut desk, nothing_kept()).jobs, 0);
    desk.change_observer("alerts", ObserverChange::Remove);
    let purged = page(&mut desk, nothing_kept());
    assert_eq!((purged.jobs, purged.unobserved), (1, 0));
}

pub(super) fn what_a_filter_passes_over_is_not_waited_for(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let filter = TransitionFilter::new().state(JobState::DeadLettered);
    let mut watcher = Watcher::new("alerts").of(filter);
    watcher.drain(&mut desk);
    ended(&mut desk);
    assert_eq!(page(&mut desk, nothing_kept()).jobs, 0, "nobody has looked");
    watcher.drain(&mut desk);
    assert_eq!(page(&mut desk, nothing_kept()).jobs, 1);
}

/// So many changes of one job's state.
#[track_caller]
fn live_long(desk: &mut Desk, claims: u32) -> JobId {
    let id = desk.lone();
    for _ in 0..claims {
        desk.finish(id, Outcome::Snooze { after: Duration::ZERO });
    }
    id
}

fn trimmed_to(transitions_per_job: u32, unobserved: Option<Duration>) -> Retention {
    Retention { transitions_per_job, unobserved, ..Retention::forever() }
}

pub(super) fn a_trim_waits_for_observers(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    let id = live_long(&mut desk, 10);
    let all = desk.history(id);
    assert_eq!(page(&mut desk, trimmed_to(4, None)).unobserved, 0);
    assert_eq!(desk.history(id), all);
    watcher.pass_some(&mut desk, all[9].position);
    assert_eq!(page(&mut desk, trimmed_to(4, None)).unobserved, 0);
    assert_eq!(desk.history(id), all[10..]);
    watcher.drain(&mut desk);
    assert_eq!(page(&mut desk, trimmed_to(4, None)).unobserved, 0);
    assert_eq!(desk.history(id), all[17..]);
}

pub(super) fn a_trim_of_what_waited_too_long_is_told(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    let id = live_long(&mut desk, 3);
    let all = desk.history(id);
    watcher.pass_some(&mut desk, all[0].position);
    desk.wait(WAIT - TICK);
    assert_eq!(page(&mut desk, trimmed_to(2, Some(WAIT))).unobserved, 0);
    assert_eq!(desk.history(id), all[1..], "what is passed goes at once");
    desk.wait(TICK);
    assert_eq!(page(&mut desk, trimmed_to(2, Some(WAIT))).unobserved, 4);
    assert_eq!(desk.history(id), all[5..]);
    assert_eq!(of_job(&watcher.drain(&mut desk), id), all[5..]);
}

pub(super) fn where_nobody_observes_nothing_is_counted(fixture: &Fixture) {
    let mut desk = Desk::with_history(fixture, HistoryPolicy::Transitions);
    ended(&mut desk);
    live_long(&mut desk, 5);
    desk.accept(&rows(3));
    let purged = page(&mut desk, Retention { transitions_per_job: 1, ..impatient() });
    assert_eq!((purged.jobs, purged.unobserved), (1, 0));
}

impl Watcher {
    /// Looks, and resolves up to a position of what it saw.
    #[track_caller]
    fn pass_some(&mut self, desk: &mut Desk, until: u64) {
        assert!(self.look(desk, 100).positions().contains(&until));
        self.pass(desk, until);
    }
}
