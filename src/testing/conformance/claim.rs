//! How jobs are taken.

use super::Fixture;
use super::desk::{
    Desk, LEASE, SECOND, TICK, accepts, ids, lease_of, outcome, quota, reap, retry, row, rows,
};
use crate::store::{Body, Claim, Due, JobRow, Outcome};
use crate::{JobId, JobState, RetryPolicy, WorkerId};
use std::collections::BTreeSet;
use std::time::Duration;

pub(super) fn jobs_come_in_order_of_due_time_and_then_of_id(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let now = desk.now();
    let mut jobs = rows(6);
    for (job, seconds) in jobs.iter_mut().zip([3, 1, 2, 1, 3, 2]) {
        job.due = Due::At(now.saturating_sub(SECOND * seconds));
    }
    // Not in order of their ids either.
    jobs.reverse();
    desk.accept(&jobs);
    let mut expected = jobs;
    expected.sort_by_key(|job| (job.due.resolve(now), job.id));
    let expected: Vec<_> = expected.iter().map(|job| job.id).collect();
    let worker = WorkerId::new();
    assert_eq!(ids(&desk.take(worker, 4)), expected[..4]);
    assert_eq!(ids(&desk.take(worker, 4)), expected[4..]);
}

pub(super) fn ids_are_ordered_as_bytes(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let firsts = [0x00, 0x7f, 0x80, 0xff];
    let jobs: Vec<_> = firsts
        .iter()
        .rev()
        .map(|first| JobRow::new(JobId::from_bytes([*first; 16]), "work"))
        .collect();
    desk.accept(&jobs);
    let expected: Vec<_> = jobs.iter().rev().map(|job| job.id).collect();
    assert_eq!(ids(&desk.take(WorkerId::new(), 9)), expected);
}

pub(super) fn a_job_is_due_at_its_instant_and_not_before(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let id = desk.add(&JobRow { due: Due::In(SECOND), ..row() });
    desk.wait(SECOND - TICK);
    assert!(desk.take(WorkerId::new(), 1).is_empty());
    desk.wait(TICK);
    assert_eq!(ids(&desk.take(WorkerId::new(), 1)), [id]);
}

pub(super) fn a_job_that_is_not_due_stays_when_the_clock_steps_back(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.add(&row());
    fixture.clock().set(desk.now().saturating_sub(SECOND));
    assert!(desk.take(WorkerId::new(), 1).is_empty());
}

pub(super) fn no_more_than_the_total_are_taken(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.accept(&rows(5));
    let (plan, accepted) = ([quota("default", 100)], [accepts("work", 1)]);
    for expected in [2, 2, 1, 0] {
        let claim = Claim::new(WorkerId::new(), 2, &plan, &accepted, LEASE);
        assert_eq!(desk.claim(&claim).jobs.len(), expected);
    }
}

pub(super) fn a_total_of_nothing_is_answered_with_nothing(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.accept(&rows(2));
    let (plan, accepted) = ([quota("default", 5)], [accepts("work", 1)]);
    let claimed = desk.claim(&Claim::new(WorkerId::new(), 0, &plan, &accepted, LEASE));
    assert!(claimed.jobs.is_empty());
    assert_eq!(desk.counts(), [("default".to_owned(), JobState::Scheduled, 2)]);
}

/// Three jobs in each of the queues a, b and c, which nobody plans.
fn three_queues(desk: &mut Desk) {
    for queue in ["c", "b", "a"] {
        let jobs: Vec<_> =
            rows(3).into_iter().map(|job| JobRow { queue: queue.to_owned(), ..job }).collect();
        desk.accept(&jobs);
    }
}

/// What a claim takes of the three queues, as a word.
fn taken(desk: &mut Desk, plan: &[(&str, u32)], total: u32, spill: bool) -> String {
    let plan: Vec<_> = plan.iter().map(|(queue, count)| quota(queue, *count)).collect();
    let accepted = [accepts("work", 1)];
    let claim = Claim { spill, ..Claim::new(WorkerId::new(), total, &plan, &accepted, LEASE) };
    let jobs = desk.claim(&claim).jobs;
    let unique: BTreeSet<_> = ids(&jobs).into_iter().collect();
    assert_eq!(unique.len(), jobs.len(), "a job came twice");
    jobs.iter().map(|job| job.queue.as_str()).collect()
}

pub(super) fn without_spill_each_queue_gives_no_more_than_its_quota(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    three_queues(&mut desk);
    assert_eq!(taken(&mut desk, &[("b", 1), ("a", 2)], 9, false), "baa");
    assert_eq!(taken(&mut desk, &[("a", 0), ("b", 1)], 9, false), "b");
}

pub(super) fn with_spill_a_second_pass_fills_up_in_order_of_the_plan(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    three_queues(&mut desk);
    assert_eq!(taken(&mut desk, &[("b", 1), ("a", 1)], 5, true), "babba");
    assert_eq!(taken(&mut desk, &[("b", 1), ("c", 2)], 9, true), "ccc");
}

pub(super) fn a_quota_of_nothing_can_be_filled_by_the_second_pass(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    three_queues(&mut desk);
    assert_eq!(taken(&mut desk, &[("a", 0), ("b", 1)], 3, true), "baa");
}

pub(super) fn the_first_pass_stops_at_the_total(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    three_queues(&mut desk);
    assert_eq!(taken(&mut desk, &[("c", 2), ("a", 3)], 3, false), "cca");
}

pub(super) fn a_strict_plan_empties_its_queues_in_order(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    three_queues(&mut desk);
    assert_eq!(taken(&mut desk, &[("c", 4), ("a", 4), ("b", 4)], 4, true), "ccca");
    assert_eq!(taken(&mut desk, &[("c", 4), ("a", 4), ("b", 4)], 4, true), "aabb");
}

pub(super) fn a_queue_that_is_not_planned_or_not_known_gives_nothing(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    three_queues(&mut desk);
    assert_eq!(taken(&mut desk, &[("nobody", 5), ("a", 5)], 9, true), "aaa");
    assert_eq!(taken(&mut desk, &[], 9, true), "");
}

pub(super) fn a_queue_planned_twice_never_gives_a_job_twice(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    three_queues(&mut desk);
    assert_eq!(taken(&mut desk, &[("a", 1), ("b", 1), ("a", 1)], 9, true).len(), 6);
}

pub(super) fn within_a_queue_the_order_holds_over_both_passes(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let jobs = rows(5);
    desk.accept(&jobs);
    let (plan, accepted) = ([quota("default", 2)], [accepts("work", 1)]);
    let claimed = desk.claim(&Claim::new(WorkerId::new(), 4, &plan, &accepted, LEASE)).jobs;
    let expected: Vec<_> = jobs[..4].iter().map(|job| job.id).collect();
    assert_eq!(ids(&claimed), expected);
}

pub(super) fn only_accepted_wire_names_are_taken(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let names = ["send", "Send", "sen", "send2", "work"];
    let jobs: Vec<_> = names.iter().map(|name| JobRow::new(JobId::new(), *name)).collect();
    desk.accept(&jobs);
    let (plan, accepted) = ([quota("default", 9)], [accepts("work", 1), accepts("send", 1)]);
    let claimed = desk.claim(&Claim::new(WorkerId::new(), 9, &plan, &accepted, LEASE)).jobs;
    assert_eq!(ids(&claimed), [jobs[0].id, jobs[4].id]);
    assert_eq!(desk.state(jobs[1].id), JobState::Scheduled);
    assert_eq!(desk.job(jobs[1].id).attempt, 0);
}

pub(super) fn a_claim_that_accepts_nothing_takes_nothing(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.add(&row());
    let plan = [quota("default", 9)];
    let claimed = desk.claim(&Claim::new(WorkerId::new(), 9, &plan, &[], LEASE));
    assert!(claimed.jobs.is_empty());
    assert_eq!(claimed.next_due, None);
}

pub(super) fn a_version_beyond_what_is_accepted_is_left(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let jobs: Vec<_> = [3, 1, 2].map(|version| JobRow { version, ..row() }).into();
    desk.accept(&jobs);
    let (plan, accepted) = ([quota("default", 9)], [accepts("work", 2)]);
    let claimed = desk.claim(&Claim::new(WorkerId::new(), 9, &plan, &accepted, LEASE)).jobs;
    assert_eq!(ids(&claimed), [jobs[1].id, jobs[2].id]);
    assert_eq!(desk.state(jobs[0].id), JobState::Scheduled);
}

pub(super) fn a_wire_name_accepted_twice_gives_each_job_once(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let jobs: Vec<_> = [1, 2, 3].map(|version| JobRow { version, ..row() }).into();
    desk.accept(&jobs);
    let plan = [quota("default", 9)];
    let accepted = [accepts("work", 1), accepts("work", 2), accepts("work", 1)];
    let claimed = desk.claim(&Claim::new(WorkerId::new(), 9, &plan, &accepted, LEASE)).jobs;
    assert_eq!(ids(&claimed), [jobs[0].id, jobs[1].id]);
}

pub(super) fn many_jobs_that_are_not_accepted_do_not_hide_the_one_that_is(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let foreign: Vec<_> = (0..600).map(|_| JobRow::new(JobId::new(), "foreign")).collect();
    desk.accept(&foreign);
    let id = desk.add(&row());
    assert_eq!(desk.take_one(WorkerId::new()).id, id);
}

pub(super) fn the_byte_bound_ends_a_claim_and_says_so(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let sized = |bytes: usize| JobRow {
        payload: Body::new(format!("\"{}\"", "x".repeat(bytes - 2)).into_bytes()),
        ..row()
    };
    let jobs = [sized(100), sized(200), sized(300), sized(10)];
    desk.accept(&jobs);
    let (plan, accepted) = ([quota("default", 9)], [accepts("work", 1)]);
    let claim = Claim { bytes_max: 300, ..Claim::new(WorkerId::new(), 9, &plan, &accepted, LEASE) };
    let first = desk.claim(&claim);
    assert_eq!(ids(&first.jobs), [jobs[0].id, jobs[1].id], "the bound may be reached exactly");
    assert!(first.withheld);
    let second = desk.claim(&claim);
    assert_eq!(second.jobs.first().map(|job| job.id), Some(jobs[2].id));
    let rest = if second.jobs.len() == 1 { desk.claim(&claim) } else { second };
    assert!(!rest.withheld, "nothing is left");
    assert_eq!(desk.counts(), [("default".to_owned(), JobState::Leased, 4)]);
}

pub(super) fn one_job_is_handed_out_however_large_it_is(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let jobs = rows(2);
    desk.accept(&jobs);
    let (plan, accepted) = ([quota("default", 9)], [accepts("work", 1)]);
    let claim = Claim { bytes_max: 0, ..Claim::new(WorkerId::new(), 9, &plan, &accepted, LEASE) };
    let claimed = desk.claim(&claim);
    assert_eq!(ids(&claimed.jobs), [jobs[0].id]);
    assert!(claimed.withheld);
}

pub(super) fn the_byte_bound_counts_over_all_queues(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    three_queues(&mut desk);
    let (plan, accepted) = ([quota("a", 1), quota("b", 9)], [accepts("work", 1)]);
    // Each payload has two bytes.
    let claim = Claim { bytes_max: 5, ..Claim::new(WorkerId::new(), 9, &plan, &accepted, LEASE) };
    let claimed = desk.claim(&claim);
    assert_eq!(claimed.jobs.len(), 2);
    assert!(claimed.withheld);
}

pub(super) fn nothing_is_said_to_be_withheld_when_all_was_taken(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.accept(&rows(3));
    let (plan, accepted) = ([quota("default", 9)], [accepts("work", 1)]);
    let claimed = desk.claim(&Claim::new(WorkerId::new(), 9, &plan, &accepted, LEASE));
    assert_eq!((claimed.jobs.len(), claimed.withheld, claimed.next_due), (3, false, None));
}

pub(super) fn a_claimed_job_carries_everything_it_was_given(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let given = JobRow {
        version: 2,
        payload: Body::new(b"[1, 2]".to_vec()),
        due: Due::At(desk.now().saturating_sub(SECOND)),
        retry: Some(RetryPolicy::new(7)),
        timeout: Some(SECOND),
        tags: vec!["x".to_owned(), "y".to_owned()],
        ..row()
    };
    desk.add(&given);
    let worker = WorkerId::new();
    let (plan, accepted) = ([quota("default", 1)], [accepts("work", 2)]);
    let job = desk.claim(&Claim::new(worker, 1, &plan, &accepted, LEASE)).jobs.remove(0);
    assert_eq!((job.id, job.attempt, job.failures), (given.id, 1, 0));
    assert_eq!((&job.wire_name, job.version, &job.queue), (&given.wire_name, 2, &given.queue));
    assert_eq!((&job.payload, &job.tags), (&given.payload, &given.tags));
    assert_eq!((job.retry, job.timeout), (given.retry, given.timeout));
    assert_eq!(Due::At(job.due_at), given.due);
    assert_eq!((job.state_before, job.state), (JobState::Scheduled, JobState::Leased));
    assert_eq!((job.owner, job.expiry), (Some(worker), desk.now() + LEASE));
}

pub(super) fn a_claim_is_written_to_the_job(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let id = desk.add(&row());
    let before = desk.job(id);
    let worker = WorkerId::new();
    desk.wait(SECOND);
    desk.take_one(worker);
    let stored = desk.job(id);
    assert_eq!((stored.state, stored.attempt), (JobState::Leased, 1));
    assert_eq!((stored.owner, stored.expiry), (Some(worker), Some(desk.now() + LEASE)));
    assert_eq!((stored.due_at, stored.created_at), (before.due_at, before.created_at));
    assert_eq!((stored.failures, stored.finished_at), (0, None));
}

pub(super) fn a_leased_job_is_given_to_nobody_else(fixture: &Fixture) {
    let (mut one, mut other) = (Desk::open(fixture), Desk::open(fixture));
    let first = one.hold(WorkerId::new());
    assert!(other.take(WorkerId::new(), 9).is_empty());
    assert!(one.take(first.owner.expect("held"), 9).is_empty(), "not to its holder either");
}

pub(super) fn a_lapsed_job_is_not_claimable_before_it_is_settled(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let job = desk.hold(WorkerId::new());
    desk.wait(LEASE * 2);
    assert!(desk.take(WorkerId::new(), 9).is_empty());
    desk.settle(&reap(&job, retry(Duration::ZERO)));
    assert_eq!(desk.take_one(WorkerId::new()).attempt, 2);
}

pub(super) fn the_attempt_grows_by_one_at_each_claim_and_never_goes_back(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let worker = WorkerId::new();
    let mut job = desk.hold(worker);
    assert_eq!(job.attempt, 1);
    desk.settle(&outcome(&job, retry(Duration::ZERO)));
    job = desk.take_one(worker);
    assert_eq!(job.attempt, 2);
    desk.settle(&outcome(&job, Outcome::Snooze { after: Duration::ZERO }));
    job = desk.take_one(worker);
    assert_eq!(job.attempt, 3);
    desk.hand_back(worker, &[lease_of(&job)]);
    job = desk.take_one(worker);
    assert_eq!(job.attempt, 4);
    desk.settle(&outcome(&job, Outcome::DeadLettered));
    desk.requeue(job.id);
    assert_eq!(desk.take_one(worker).attempt, 5);
}

pub(super) fn the_next_due_time_is_told_of_what_could_be_taken(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let due = |seconds: u32| Due::In(SECOND * seconds);
    let soonest = row();
    desk.accept(&[
        JobRow { due: due(1), queue: "not planned".to_owned(), ..row() },
        JobRow { due: due(2), ..JobRow::new(JobId::new(), "not accepted") },
        JobRow { due: due(3), version: 2, ..row() },
        JobRow { due: due(5), queue: "other".to_owned(), ..row() },
        JobRow { due: due(6), ..soonest },
        row(),
    ]);
    let plan = [quota("default", 9), quota("other", 9)];
    let accepted = [accepts("work", 1)];
    let claimed = desk.claim(&Claim::new(WorkerId::new(), 9, &plan, &accepted, LEASE));
    assert_eq!(claimed.jobs.len(), 1);
    assert_eq!(claimed.next_due, Some(desk.now() + SECOND * 5));
    assert!(!claimed.withheld, "what is not due is not withheld");
}

pub(super) fn the_next_due_time_is_not_told_when_the_total_was_found(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.accept(&[row(), JobRow { due: Due::In(SECOND), ..row() }]);
    let (plan, accepted) = ([quota("default", 9)], [accepts("work", 1)]);
    let claimed = desk.claim(&Claim::new(WorkerId::new(), 1, &plan, &accepted, LEASE));
    assert_eq!((claimed.jobs.len(), claimed.next_due), (1, None));
}

pub(super) fn a_thousand_jobs_are_taken_by_one_call(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let jobs = rows(1000);
    desk.accept(&jobs);
    let worker = WorkerId::new();
    let claimed = desk.take(worker, 1000);
    assert_eq!(ids(&claimed), jobs.iter().map(|job| job.id).collect::<Vec<_>>());
    assert!(claimed.iter().all(|job| job.owner == Some(worker) && job.attempt == 1));
}
