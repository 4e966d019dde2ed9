//! Queues from which nothing is taken for a while.

use super::Fixture;
use super::desk::{Desk, LEASE, SECOND, accepts, ids, lease_of, outcome, quota, row, rows};
use crate::store::{Claim, Claimed, Due, JobRow, Outcome, QueueChange, Renewed};
use crate::{JobState, WorkerId};

fn claim_of(desk: &mut Desk, plan: &[(&str, u32)], total: u32) -> Claimed {
    let plan: Vec<_> = plan.iter().map(|(queue, count)| quota(queue, *count)).collect();
    let accepted = [accepts("work", 1)];
    desk.claim(&Claim::new(WorkerId::new(), total, &plan, &accepted, LEASE))
}

pub(super) fn a_paused_queue_gives_nothing_and_says_so(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.accept(&rows(3));
    assert!(desk.pause("default"));
    let claimed = claim_of(&mut desk, &[("default", 9)], 9);
    assert_eq!((claimed.jobs.len(), claimed.withheld), (0, true));
    assert_eq!(desk.count("default", JobState::Scheduled), 3);
}

pub(super) fn a_paused_queue_with_nothing_to_give_withholds_nothing(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.pause("default");
    assert!(!claim_of(&mut desk, &[("default", 9)], 9).withheld, "it is empty");
    desk.add(&JobRow { due: Due::In(SECOND), ..row() });
    desk.add(&JobRow { wire_name: "other".to_owned(), ..row() });
    desk.add(&JobRow { version: 2, ..row() });
    let claimed = claim_of(&mut desk, &[("default", 9)], 9);
    assert!(!claimed.withheld, "nothing is due and acceptable");
}

pub(super) fn the_next_due_time_of_a_paused_queue_is_not_told(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.pause("paused");
    let mail = |queue: &str, due| JobRow { queue: queue.to_owned(), due: Due::In(due), ..row() };
    desk.add(&mail("paused", SECOND));
    let plan = [("paused", 9), ("open", 9)];
    assert_eq!(claim_of(&mut desk, &plan, 9).next_due, None);
    desk.add(&mail("open", SECOND * 5));
    assert_eq!(claim_of(&mut desk, &plan, 9).next_due, Some(desk.now() + SECOND * 5));
}

pub(super) fn a_resumed_queue_gives_what_has_waited(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.pause("default");
    let jobs = rows(3);
    desk.accept(&jobs);
    desk.wait(SECOND);
    assert!(desk.resume("default"));
    let expected: Vec<_> = jobs.iter().map(|job| job.id).collect();
    let claimed = claim_of(&mut desk, &[("default", 9)], 9);
    assert_eq!((ids(&claimed.jobs), claimed.withheld), (expected, false));
}

pub(super) fn other_queues_go_on(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for queue in ["a", "b", "c"] {
        let jobs = rows(2).into_iter().map(|job| JobRow { queue: queue.to_owned(), ..job });
        desk.accept(&jobs.collect::<Vec<_>>());
    }
    desk.pause("b");
    desk.pause("nobody");
    let claimed = claim_of(&mut desk, &[("a", 1), ("b", 2), ("c", 1)], 3);
    let word: String = claimed.jobs.iter().map(|job| job.queue.as_str()).collect();
    assert_eq!(word, "aca");
}

pub(super) fn what_runs_in_a_paused_queue_goes_on_and_ends(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let (one, two) = (desk.hold(worker), desk.hold(worker));
    desk.pause("default");
    desk.wait(SECOND);
    let renewed = desk.renew(worker, &[lease_of(&one)]);
    assert!(matches!(renewed[0], Renewed::Renewed { .. }));
    desk.settle(&outcome(&one, Outcome::Succeeded));
    assert_eq!(desk.state(one.id), JobState::Succeeded);
    assert_eq!(desk.hand_back(worker, &[lease_of(&two)]), [true]);
    assert!(desk.take(worker, 9).is_empty());
}

pub(super) fn a_paused_queue_takes_jobs_in_and_lets_them_be_cancelled(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.pause("default");
    let id = desk.add(&row());
    desk.cancel(id);
    assert_eq!(desk.state(id), JobState::Cancelled);
}

pub(super) fn a_dependent_is_released_into_a_paused_queue(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = desk.lone();
    let id = desk.add(&JobRow { parents: vec![parent], ..row() });
    desk.pause("default");
    desk.succeed(parent);
    assert_eq!(desk.state(id), JobState::Scheduled);
    assert!(desk.take(WorkerId::new(), 9).is_empty());
    desk.resume("default");
    assert_eq!(desk.take_one(WorkerId::new()).id, id);
}

pub(super) fn lapses_in_a_paused_queue_are_found(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    desk.pause("default");
    desk.wait(LEASE);
    let found: Vec<_> = desk.lapsed(&["default"], 9).iter().map(|lapsed| lapsed.id).collect();
    assert_eq!(found, [job.id]);
}

pub(super) fn pausing_twice_changes_something_once(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    assert!(!desk.resume("default"), "it was not paused");
    assert!(desk.pause("default"));
    assert!(!desk.pause("default"));
    assert!(desk.change_queue("default", QueueChange::Pause).settings.is_paused);
    assert!(desk.resume("default"));
    assert!(!desk.resume("default"));
}

pub(super) fn a_pause_and_a_limit_are_kept_apart(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.accept(&rows(5));
    desk.limit("default", 2);
    desk.pause("default");
    assert!(desk.take(WorkerId::new(), 9).is_empty());
    desk.limit("default", 3);
    assert!(desk.take(WorkerId::new(), 9).is_empty(), "a limit resumes nothing");
    let settings = desk.change_queue("default", QueueChange::Resume).settings;
    assert_eq!(settings.concurrency_limit, Some(3), "resuming keeps the limit");
    assert_eq!(desk.take(WorkerId::new(), 9).len(), 3);
}

pub(super) fn a_pause_holds_for_every_session_and_handle(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.add(&row());
    let mut before = Desk::open(fixture);
    assert!(before.take(WorkerId::new(), 0).is_empty());
    desk.pause("default");
    let second = fixture.reopen();
    let mut other = Desk::at(second.as_ref(), fixture.clock());
    assert!(before.take(WorkerId::new(), 9).is_empty());
    assert!(other.take(WorkerId::new(), 9).is_empty());
    other.resume("default");
    assert_eq!(before.take(WorkerId::new(), 9).len(), 1);
}

pub(super) fn an_exchange_takes_nothing_from_a_paused_queue(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    desk.add(&row());
    desk.pause("default");
    let (plan, accepted) = ([quota("default", 9)], [accepts("work", 1)]);
    let claim = Claim::new(worker, 9, &plan, &accepted, LEASE);
    let exchanged = desk.exchange(&[outcome(&job, Outcome::Succeeded)], &claim);
    assert_eq!((exchanged.claimed.jobs.len(), exchanged.claimed.withheld), (0, true));
    assert_eq!(desk.state(job.id), JobState::Succeeded);
}

pub(super) fn odd_queue_names_are_set_byte_by_byte(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for name in super::enqueue::ODD_NAMES {
        assert!(desk.pause(name), "{name}");
        assert!(desk.limit(name, 1), "{name}");
    }
    let mut expected: Vec<_> = super::enqueue::ODD_NAMES.to_vec();
    expected.sort_unstable();
    let told = desk.queues();
    let names: Vec<_> = told.iter().map(|set| set.queue.as_str()).collect();
    assert_eq!(names, expected);
    assert!(told.iter().all(|set| set.is_paused && set.concurrency_limit == Some(1)));
}
