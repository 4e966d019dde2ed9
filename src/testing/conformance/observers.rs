//! What observers are told: everything that their filter matches, once per pass, in the order of each job.

use super::Fixture;
use super::desk::{Desk, LEASE, SECOND, accepts, lease_of, outcome, quota, reap, retry, row, rows};
use super::family::Way;
use super::observers_desk::{Watcher, of_job, positions, states};
use crate::store::{
    BulkChange, Claim, HistoryPolicy, JobFilter, JobRow, Observation, ObserverChange, Outcome,
    OutcomeRow, Transition, TransitionFilter,
};
use crate::{JobId, JobState, WorkerId};
use std::collections::BTreeMap;

pub(super) fn one_that_begins_now_is_told_of_what_comes_after(fixture: &Fixture) {
    let mut desk = Desk::with_history(fixture, HistoryPolicy::Transitions);
    desk.lone();
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    let later = desk.lone();
    let told = watcher.drain(&mut desk);
    assert_eq!(of_job(&told, later), desk.history(later));
    assert_eq!(told.len(), 1, "nothing of before");
}

pub(super) fn one_that_begins_with_the_oldest_is_told_of_what_is_kept(fixture: &Fixture) {
    let mut desk = Desk::with_history(fixture, HistoryPolicy::Transitions);
    let (early, next) = (desk.lone(), desk.lone());
    desk.succeed(early);
    let told = Watcher::new("alerts").oldest().drain(&mut desk);
    assert_eq!(told.len(), 4);
    for job in [early, next] {
        assert_eq!(of_job(&told, job), desk.history(job));
    }
}

pub(super) fn where_it_begins_counts_at_its_registration_only(fixture: &Fixture) {
    let mut desk = Desk::with_history(fixture, HistoryPolicy::Transitions);
    desk.lone();
    let first = Watcher::registered(&mut desk, "alerts");
    first.release(&mut desk);
    assert!(Watcher::new("alerts").oldest().look(&mut desk, 9).batch.is_empty());
}

pub(super) fn what_is_told_names_the_job_and_what_it_is(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    let mut given = JobRow::new(JobId::new(), "resize");
    given.queue = "images".to_owned();
    let id = desk.add(&given);
    let transition = desk.last_step(id);
    let expected =
        Observation::new(id, "resize".to_owned(), "images".to_owned(), transition.clone());
    assert_eq!(watcher.look(&mut desk, 9).batch, [expected]);
    assert_eq!((transition.at, transition.to), (desk.now(), JobState::Scheduled));
}

pub(super) fn while_one_is_registered_every_change_is_kept(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let unseen = desk.lone();
    let watcher = Watcher::registered(&mut desk, "alerts");
    let seen = desk.lone();
    desk.fail(seen);
    desk.fail(unseen);
    assert_eq!(desk.history(seen).len(), 3, "whatever the policy");
    assert_eq!(desk.history(unseen).len(), 2, "from then on");
    desk.change_observer(&watcher.name, ObserverChange::Remove);
    desk.requeue(seen);
    assert_eq!(desk.history(seen).len(), 3, "the last one is gone");
}

pub(super) fn what_went_wrong_is_told_where_the_policy_keeps_it(fixture: &Fixture) {
    for (policy, is_kept) in [(HistoryPolicy::Off, false), (HistoryPolicy::WithFailureDetail, true)]
    {
        let mut desk = Desk::with_history(fixture, policy);
        let mut watcher = Watcher::new("alerts");
        watcher.drain(&mut desk);
        let job = desk.hold(WorkerId::new());
        let detail = Some("no space left".to_owned());
        desk.settle(&OutcomeRow { detail: detail.clone(), ..outcome(&job, Outcome::DeadLettered) });
        let told = watcher.drain(&mut desk);
        assert_eq!(told[2].transition.detail, detail.filter(|_| is_kept));
        watcher.release(&mut desk);
    }
}

/// What was told, by job, is what happened to each of them.
#[track_caller]
fn is_whole(desk: &mut Desk, told: &[Observation]) {
    let mut by_job: BTreeMap<JobId, Vec<Transition>> = BTreeMap::new();
    for Observation { job, transition, .. } in told.iter().cloned() {
        by_job.entry(job).or_default().push(transition);
    }
    for (job, of_it) in by_job {
        assert_eq!(of_it, desk.history(job));
    }
}

pub(super) fn every_edge_of_every_life_is_told(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    let ways = [
        Way::Succeeded,
        Way::DeadLettered,
        Way::DeadLetteredByTheReaper,
        Way::Quarantined,
        Way::CalledOff,
        Way::CancelledWaiting,
        Way::CancelledInBulk,
        Way::Retried,
        Way::Lapsed,
        Way::HandedBack,
        Way::Revoked,
    ];
    let mut expected = 0;
    for way in ways {
        // Born, taken unless it ends waiting, ended; and two dependents that are born and let go or cancelled.
        let parent = desk.lone();
        desk.child(&[parent]);
        desk.follower(&[parent]);
        desk.end_by(parent, way);
        let is_taken = !matches!(way, Way::CancelledWaiting | Way::CancelledInBulk);
        expected += if is_taken { 7 } else { 6 };
    }
    let told = watcher.drain(&mut desk);
    is_whole(&mut desk, &told);
    assert!(told.len() >= expected, "{} of {expected}", told.len());
}

pub(super) fn operators_and_reapers_are_told_of(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    let worker = WorkerId::new();
    let job = desk.hold(worker);
    desk.settle(&outcome(&job, retry(SECOND)));
    desk.wait(SECOND);
    let again = desk.take_one(worker);
    desk.wait(LEASE);
    desk.settle(&reap(&again, Outcome::DeadLettered));
    desk.requeue(job.id);
    let third = desk.take_one(worker);
    desk.hand_back(worker, &[lease_of(&third)]);
    desk.take_one(worker);
    desk.revoke(worker, 9);
    desk.bulk(BulkChange::Cancel, &JobFilter::new(), None, 9);
    let told = watcher.drain(&mut desk);
    assert_eq!(of_job(&told, job.id), desk.history(job.id));
    assert_eq!(told.len(), 11);
}

pub(super) fn what_is_worked_off_later_is_told(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    let parent = desk.lone();
    let dependents: Vec<_> =
        (0..1_003).map(|_| JobRow { parents: vec![parent], ..row() }).collect();
    desk.accept(&dependents);
    desk.succeed(parent);
    desk.work_off_all(5_000);
    let told = watcher.drain(&mut desk);
    assert_eq!(told.len(), 3 + 2 * 1_003);
    is_whole(&mut desk, &told);
}

pub(super) fn a_job_born_and_taken_by_an_exchange_is_told_in_that_order(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    let worker = WorkerId::new();
    let first = desk.hold(worker);
    let second = desk.add(&row());
    let (plan, accepted) = ([quota("default", 1)], [accepts("work", 1)]);
    let claim = Claim::new(worker, 1, &plan, &accepted, LEASE);
    let exchanged = desk.exchange(&[outcome(&first, Outcome::Succeeded)], &claim);
    assert_eq!(exchanged.claimed.jobs[0].id, second);
    let told = watcher.drain(&mut desk);
    assert_eq!(told.len(), 5);
    is_whole(&mut desk, &told);
}

pub(super) fn a_filter_tells_by_the_state_led_to(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let filter = TransitionFilter::new().state(JobState::DeadLettered).state(JobState::Cancelled);
    let mut watcher = Watcher::new("alerts").of(filter);
    watcher.drain(&mut desk);
    let ends = [Outcome::Succeeded, Outcome::DeadLettered, Outcome::Cancelled, retry(LEASE)];
    for how in ends {
        desk.end(how);
    }
    let told = watcher.drain(&mut desk);
    assert_eq!(states(&told), [JobState::DeadLettered, JobState::Cancelled]);
}

pub(super) fn a_filter_tells_by_wire_name_and_by_queue(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let names = TransitionFilter::new().wire_name("b").wire_name("c");
    let (mut by_name, mut by_queue) = (
        Watcher::new("names").of(names),
        Watcher::new("queues").of(TransitionFilter::new().queue("q b")),
    );
    by_name.drain(&mut desk);
    by_queue.drain(&mut desk);
    let named = |name: &str| {
        let mut given = JobRow::new(JobId::new(), name);
        given.queue = format!("q {name}");
        given
    };
    let rows = ["a", "b", "B", "c"].map(named);
    desk.accept(&rows);
    let jobs = |told: &[Observation]| told.iter().map(|told| told.job).collect::<Vec<_>>();
    let mut told = jobs(&by_name.drain(&mut desk));
    told.sort();
    let mut expected = [rows[1].id, rows[3].id];
    expected.sort();
    assert_eq!(told, expected, "byte by byte");
    assert_eq!(jobs(&by_queue.drain(&mut desk)), [rows[1].id]);
}

pub(super) fn every_list_of_a_filter_must_hold(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let filter = TransitionFilter::new().state(JobState::Leased).wire_name("work").queue("default");
    let mut watcher = Watcher::new("alerts").of(filter);
    watcher.drain(&mut desk);
    desk.end(Outcome::Succeeded);
    let elsewhere = desk.lone();
    desk.succeed(elsewhere);
    let told = watcher.drain(&mut desk);
    assert_eq!(states(&told), [JobState::Leased]);
    assert_eq!(told[0].queue, "default");
}

pub(super) fn a_page_is_bounded_and_says_whether_there_is_more(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    desk.accept(&rows(10));
    let mut all = Vec::new();
    for (count, more) in [(4, true), (4, true), (2, false)] {
        let seen = watcher.look(&mut desk, 4);
        assert_eq!((seen.batch.len(), seen.more), (count, more));
        watcher.pass(&mut desk, seen.positions()[count - 1]);
        all.extend(seen.positions());
    }
    assert_eq!(all.len(), 10);
    assert!(all.is_sorted_by(|one, next| one < next));
    let seen = watcher.look(&mut desk, 4);
    assert!(seen.batch.is_empty() && !seen.more);
}

pub(super) fn a_page_that_holds_all_there_is_says_that_there_is_no_more(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    desk.accept(&rows(3));
    let seen = watcher.look(&mut desk, 3);
    assert_eq!((seen.batch.len(), seen.more), (3, false));
}

pub(super) fn looking_moves_nothing(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    desk.accept(&rows(5));
    let first = watcher.look(&mut desk, 9).batch;
    assert_eq!(watcher.look(&mut desk, 9).batch, first);
    desk.accept(&rows(1));
    let again = watcher.look(&mut desk, 9).batch;
    assert_eq!(again[..5], first);
    assert_eq!(watcher.drain(&mut desk).len(), 6);
}

pub(super) fn a_part_of_a_page_can_be_resolved(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    desk.accept(&rows(5));
    let first = watcher.look(&mut desk, 9);
    watcher.pass(&mut desk, first.positions()[1]);
    assert_eq!(watcher.look(&mut desk, 9).batch, first.batch[2..]);
}

pub(super) fn what_is_resolved_is_never_told_again(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    let mut told = Vec::new();
    for _ in 0..4 {
        desk.end(Outcome::Succeeded);
        told.extend(watcher.drain(&mut desk));
    }
    assert_eq!(told.len(), 12);
    let mut once = positions(&told);
    once.dedup();
    assert_eq!(once.len(), 12);
    assert!(watcher.drain(&mut desk).is_empty());
}

pub(super) fn what_does_not_match_is_passed_over(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let filter = TransitionFilter::new().state(JobState::DeadLettered);
    let mut watcher = Watcher::new("alerts").of(filter);
    watcher.drain(&mut desk);
    desk.accept(&rows(5));
    assert_eq!(desk.observer("alerts").behind_since, Some(desk.now()));
    assert!(watcher.drain(&mut desk).is_empty());
    assert_eq!(desk.observer("alerts").behind_since, None);
}

pub(super) fn what_matches_is_not_passed_over_with_what_does_not(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let filter = TransitionFilter::new().state(JobState::DeadLettered);
    let mut watcher = Watcher::new("alerts").of(filter);
    watcher.drain(&mut desk);
    let dead = desk.end(Outcome::DeadLettered).id;
    desk.accept(&rows(5));
    for _ in 0..3 {
        let seen = watcher.look(&mut desk, 9);
        assert_eq!((seen.batch.len(), seen.batch[0].job), (1, dead));
    }
}

pub(super) fn what_matches_is_found_far_behind_what_does_not(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let filter = TransitionFilter::new().state(JobState::Cancelled);
    let mut watcher = Watcher::new("alerts").of(filter);
    watcher.drain(&mut desk);
    let last = desk.lone();
    for _ in 0..3 {
        desk.accept(&rows(4_000));
    }
    desk.cancel(last);
    let told = watcher.drain(&mut desk);
    assert_eq!((told.len(), told[0].job), (1, last));
}

pub(super) fn two_observers_stand_each_where_it_stands(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut slow = Watcher::registered(&mut desk, "slow");
    let mut quick = Watcher::registered(&mut desk, "quick");
    desk.end(Outcome::Succeeded);
    let told = quick.drain(&mut desk);
    desk.end(Outcome::DeadLettered);
    assert_eq!(quick.drain(&mut desk).len(), 3);
    let all = slow.drain(&mut desk);
    assert_eq!((told.len(), all.len()), (3, 6));
    assert_eq!(all[..3], told);
}

pub(super) fn every_handle_finds_the_same_cursor(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    desk.accept(&rows(3));
    let seen = watcher.look(&mut desk, 2);
    watcher.pass(&mut desk, seen.positions()[1]);
    let store = fixture.reopen();
    let mut other = Desk::at(store.as_ref(), fixture.clock());
    assert_eq!(desk.observers(), other.observers());
    let rest = watcher.look(&mut other, 9).batch;
    assert_eq!(rest.len(), 1);
    other.add(&row());
    let all = watcher.drain(&mut desk);
    assert_eq!((all.len(), &all[..1]), (2, &rest[..]));
}

pub(super) fn a_limit_of_nothing_is_one(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let watcher = Watcher::registered(&mut desk, "alerts");
    desk.accept(&rows(2));
    let crate::store::Observed::Held { batch, .. } = watcher.ask(&mut desk, 0) else {
        panic!("it is held")
    };
    assert_eq!(batch.len(), 1);
}
