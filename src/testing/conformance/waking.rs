//! Who is told that there is something to claim: the hints that a store gives after its commits.

use super::Fixture;
use super::desk::{Desk, SECOND, outcome, row, rows};
use super::family::Way;
use crate::WorkerId;
use crate::store::{Claim, JobRow, Outcome, QueueChange, Subscription, Wake};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// Writes down which queues it is told of.
#[derive(Default)]
struct Ear(Mutex<Vec<(String, Duration)>>);

impl Wake for Ear {
    fn wake(&self, queue: &str, due_in: Duration) {
        self.0.lock().push((queue.to_owned(), due_in));
    }
}

/// An ear at the store's hub.
fn listen(fixture: &Fixture) -> (Arc<Ear>, Subscription) {
    let ear = Arc::new(Ear::default());
    let subscription = fixture.store().hub().subscribe(ear.clone());
    (ear, subscription)
}

impl Ear {
    /// Whether it was told of something that is due now in that queue, since it was last asked.
    fn heard(&self, queue: &str) -> bool {
        let told = std::mem::take(&mut *self.0.lock());
        told.iter().any(|(name, due_in)| name == queue && due_in.is_zero())
    }
}

pub(super) fn a_released_dependent_wakes_its_queue(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (ear, _subscription) = listen(fixture);
    let ways =
        [Way::Succeeded, Way::DeadLetteredByTheReaper, Way::CancelledWaiting, Way::HandedBack];
    for way in ways {
        let parent = desk.lone();
        let id = desk.follower(&[parent]);
        ear.heard("");
        desk.end_by(parent, way);
        assert!(ear.heard(&id.to_string()), "{way:?}");
    }
}

pub(super) fn an_exchange_wakes_the_queue_of_what_it_released(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (ear, _subscription) = listen(fixture);
    let parent = desk.lone();
    let id = desk.child(&[parent]);
    let job = desk.grab(parent);
    ear.heard("");
    let claim = Claim::new(WorkerId::new(), 0, &[], &[], SECOND);
    desk.exchange(&[outcome(&job, Outcome::Succeeded)], &claim);
    assert!(ear.heard(&id.to_string()));
}

pub(super) fn what_is_worked_off_later_wakes_its_queue(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (ear, _subscription) = listen(fixture);
    let parent = desk.lone();
    let dependents: Vec<_> =
        (0..1_001).map(|_| JobRow { parents: vec![parent], ..row() }).collect();
    desk.accept(&dependents);
    desk.succeed(parent);
    ear.heard("");
    desk.work_off_all(5_000);
    assert!(ear.heard("default"));
}

pub(super) fn a_resumed_queue_is_woken(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (ear, _subscription) = listen(fixture);
    desk.accept(&rows(1));
    desk.pause("default");
    ear.heard("");
    desk.resume("default");
    assert!(ear.heard("default"));
}

pub(super) fn a_queue_whose_limit_was_raised_is_woken(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (ear, _subscription) = listen(fixture);
    desk.accept(&rows(3));
    desk.limit("default", 1);
    desk.take(WorkerId::new(), 1);
    ear.heard("");
    desk.limit("default", 2);
    assert!(ear.heard("default"));
    desk.limit("default", None);
    assert!(ear.heard("default"), "also when it was taken away");
}

pub(super) fn a_queue_whose_limit_per_key_was_raised_is_woken(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (ear, _subscription) = listen(fixture);
    let keyed = |_| JobRow { concurrency_key: Some("k".to_owned()), ..row() };
    desk.accept(&(0..3).map(keyed).collect::<Vec<_>>());
    for limit in [Some(0), None, Some(2)] {
        desk.take(WorkerId::new(), 9);
        ear.heard("");
        desk.change_queue("default", QueueChange::KeyLimit(limit));
        assert_eq!(ear.heard("default"), limit != Some(0), "{limit:?}");
    }
}

pub(super) fn the_queues_of_revoked_leases_are_woken(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (ear, _subscription) = listen(fixture);
    let worker = WorkerId::new();
    desk.hold(worker);
    ear.heard("");
    desk.revoke(worker, 9);
    assert!(ear.heard("default"));
}

pub(super) fn a_dependent_that_goes_on_waiting_wakes_nobody(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (ear, _subscription) = listen(fixture);
    let (one, two) = (desk.lone(), desk.lone());
    let id = desk.child(&[one, two]);
    let cancelled = desk.child(&[one]);
    desk.cancel(cancelled);
    ear.heard("");
    desk.succeed(one);
    assert!(!ear.heard(&id.to_string()));
}
