//! How many jobs of a queue run at once, in the whole fleet.

use super::Fixture;
use super::desk::{
    Desk, LEASE, SECOND, TICK, accepts, lease_of, outcome, quota, reap, retry, row, rows,
};
use crate::store::{Claim, Claimed, Due, JobRow, Outcome, QueueChange, QueueSettings};
use crate::{JobState, WorkerId};

/// A desk with so many jobs waiting, and the queue's limit set.
fn limited(fixture: &Fixture, count: usize, limit: u32) -> Desk {
    let mut desk = Desk::open(fixture);
    desk.accept(&rows(count));
    assert!(desk.limit("default", limit));
    desk
}

fn try_to_take(desk: &mut Desk, total: u32) -> usize {
    desk.take(WorkerId::new(), total).len()
}

fn claim_of(desk: &mut Desk, plan: &[(&str, u32)], total: u32, spill: bool) -> Claimed {
    let plan: Vec<_> = plan.iter().map(|(queue, count)| quota(queue, *count)).collect();
    let accepted = [accepts("work", 1)];
    let worker = WorkerId::new();
    desk.claim(&Claim { spill, ..Claim::new(worker, total, &plan, &accepted, LEASE) })
}

pub(super) fn one_claim_takes_no_more_than_the_limit(fixture: &Fixture) {
    let mut desk = limited(fixture, 9, 3);
    assert_eq!(try_to_take(&mut desk, 9), 3);
    assert_eq!(desk.count("default", JobState::Leased), 3);
}

pub(super) fn several_claims_take_no_more_than_the_limit_together(fixture: &Fixture) {
    let mut desk = limited(fixture, 9, 5);
    let mut other = Desk::open(fixture);
    assert_eq!(try_to_take(&mut desk, 2), 2);
    assert_eq!(try_to_take(&mut other, 2), 2);
    assert_eq!(try_to_take(&mut desk, 2), 1);
    assert_eq!(try_to_take(&mut other, 2), 0);
}

pub(super) fn the_limit_holds_for_every_handle_on_the_data(fixture: &Fixture) {
    let mut desk = limited(fixture, 9, 4);
    let second = fixture.reopen();
    let mut other = Desk::at(second.as_ref(), fixture.clock());
    assert_eq!(try_to_take(&mut other, 3), 3);
    assert_eq!(try_to_take(&mut desk, 3), 1);
}

pub(super) fn the_limit_holds_over_both_passes_of_a_claim(fixture: &Fixture) {
    let mut desk = limited(fixture, 9, 3);
    assert_eq!(claim_of(&mut desk, &[("default", 2)], 9, true).jobs.len(), 3);
    assert_eq!(claim_of(&mut desk, &[("default", 2)], 9, true).jobs.len(), 0);
}

pub(super) fn the_limit_holds_for_a_queue_planned_twice(fixture: &Fixture) {
    let mut desk = limited(fixture, 9, 3);
    let plan = [("default", 2), ("default", 2)];
    assert_eq!(claim_of(&mut desk, &plan, 9, true).jobs.len(), 3);
}

/// Four jobs in each of the queues a, b and c.
fn three_queues(desk: &mut Desk) {
    for queue in ["a", "b", "c"] {
        let jobs = rows(4).into_iter().map(|job| JobRow { queue: queue.to_owned(), ..job });
        desk.accept(&jobs.collect::<Vec<_>>());
    }
}

/// What is taken of them, as a word.
fn taken(claimed: &Claimed) -> String {
    claimed.jobs.iter().map(|job| job.queue.as_str()).collect()
}

pub(super) fn each_queue_has_a_limit_of_its_own(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    three_queues(&mut desk);
    desk.limit("a", 1);
    desk.limit("b", 2);
    let plan = [("a", 9), ("b", 9), ("c", 9)];
    assert_eq!(taken(&claim_of(&mut desk, &plan, 20, true)), "abbcccc");
    assert_eq!(taken(&claim_of(&mut desk, &plan, 20, true)), "");
}

pub(super) fn what_a_limit_withholds_is_taken_from_elsewhere(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    three_queues(&mut desk);
    desk.limit("a", 1);
    let claimed = claim_of(&mut desk, &[("a", 3), ("b", 1)], 4, true);
    assert_eq!(taken(&claimed), "abbb");
}

pub(super) fn what_a_limit_withholds_is_told(fixture: &Fixture) {
    let mut desk = limited(fixture, 2, 1);
    let all = [("default", 9)];
    let claimed = claim_of(&mut desk, &all, 9, true);
    assert_eq!((claimed.jobs.len(), claimed.withheld), (1, true));
    let claimed = claim_of(&mut desk, &all, 9, true);
    assert_eq!((claimed.jobs.len(), claimed.withheld), (0, true));
}

pub(super) fn a_limit_that_keeps_nothing_back_withholds_nothing(fixture: &Fixture) {
    let mut desk = limited(fixture, 2, 2);
    let claimed = claim_of(&mut desk, &[("default", 9)], 9, true);
    assert_eq!((claimed.jobs.len(), claimed.withheld), (2, false));
    let claimed = claim_of(&mut desk, &[("default", 9)], 9, true);
    assert!(!claimed.withheld, "nothing waits");
    desk.add(&JobRow { due: Due::In(SECOND), ..row() });
    desk.add(&JobRow { wire_name: "other".to_owned(), ..row() });
    let claimed = claim_of(&mut desk, &[("default", 9)], 9, true);
    assert!(!claimed.withheld, "nothing waits that is due and acceptable");
}

pub(super) fn a_dead_lease_holds_its_slot_until_it_is_settled(fixture: &Fixture) {
    let mut desk = limited(fixture, 5, 1);
    let job = desk.take(WorkerId::new(), 1).remove(0);
    for span in [LEASE - TICK, TICK, SECOND * 3600] {
        desk.wait(span);
        assert_eq!(try_to_take(&mut desk, 9), 0);
    }
    desk.settle(&reap(&job, Outcome::DeadLettered));
    assert_eq!(try_to_take(&mut desk, 9), 1);
}

/// A slot is taken, and comes free by `end` and by nothing before it.
#[track_caller]
fn frees_a_slot(fixture: &Fixture, how: Outcome) {
    let mut desk = limited(fixture, 3, 1);
    let job = desk.take(WorkerId::new(), 1).remove(0);
    assert_eq!(try_to_take(&mut desk, 9), 0);
    desk.settle(&outcome(&job, how));
    assert_eq!(try_to_take(&mut desk, 9), 1);
    assert_eq!(try_to_take(&mut desk, 9), 0);
}

pub(super) fn a_success_frees_its_slot(fixture: &Fixture) {
    frees_a_slot(fixture, Outcome::Succeeded);
}

pub(super) fn a_retry_frees_its_slot(fixture: &Fixture) {
    frees_a_slot(fixture, retry(SECOND));
}

pub(super) fn a_snooze_frees_its_slot(fixture: &Fixture) {
    frees_a_slot(fixture, Outcome::Snooze { after: SECOND });
}

pub(super) fn a_dead_letter_frees_its_slot(fixture: &Fixture) {
    frees_a_slot(fixture, Outcome::DeadLettered);
}

pub(super) fn a_quarantine_frees_its_slot(fixture: &Fixture) {
    frees_a_slot(fixture, Outcome::Quarantined);
}

pub(super) fn a_cancel_frees_its_slot(fixture: &Fixture) {
    frees_a_slot(fixture, Outcome::Cancelled);
}

pub(super) fn a_hand_back_frees_its_slot(fixture: &Fixture) {
    let mut desk = limited(fixture, 2, 1);
    let worker = WorkerId::new();
    let job = desk.take(worker, 1).remove(0);
    assert_eq!(desk.hand_back(worker, &[lease_of(&job)]), [true]);
    assert_eq!(try_to_take(&mut desk, 9), 1);
}

pub(super) fn a_revoke_frees_its_slots(fixture: &Fixture) {
    let mut desk = limited(fixture, 4, 2);
    let worker = WorkerId::new();
    assert_eq!(desk.take(worker, 9).len(), 2);
    assert_eq!(desk.revoke(worker, 9).jobs.len(), 2);
    assert_eq!(try_to_take(&mut desk, 9), 2);
}

pub(super) fn a_cancel_request_frees_no_slot(fixture: &Fixture) {
    let mut desk = limited(fixture, 2, 1);
    let job = desk.take(WorkerId::new(), 1).remove(0);
    desk.cancel(job.id);
    assert_eq!(try_to_take(&mut desk, 9), 0);
}

pub(super) fn a_stale_report_frees_no_slot(fixture: &Fixture) {
    let mut desk = limited(fixture, 3, 1);
    let first = desk.take(WorkerId::new(), 1).remove(0);
    desk.wait(LEASE);
    desk.settle(&reap(&first, retry(SECOND)));
    assert_eq!(try_to_take(&mut desk, 1), 1);
    for how in [Outcome::Succeeded, Outcome::DeadLettered] {
        desk.settle(&outcome(&first, how));
        desk.settle(&reap(&first, how));
    }
    assert_eq!(try_to_take(&mut desk, 9), 0);
}

pub(super) fn an_exchange_can_use_the_slot_that_it_frees(fixture: &Fixture) {
    let mut desk = limited(fixture, 3, 1);
    let worker = WorkerId::new();
    let job = desk.take(worker, 1).remove(0);
    let (plan, accepted) = ([quota("default", 9)], [accepts("work", 1)]);
    let claim = Claim::new(worker, 9, &plan, &accepted, LEASE);
    let exchanged = desk.exchange(&[outcome(&job, Outcome::Succeeded)], &claim);
    assert_eq!(exchanged.claimed.jobs.len(), 1);
    assert!(exchanged.claimed.withheld);
    assert_eq!(desk.count("default", JobState::Leased), 1);
}

pub(super) fn a_first_limit_counts_what_runs_already(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.accept(&rows(9));
    assert_eq!(try_to_take(&mut desk, 3), 3);
    desk.limit("default", 4);
    assert_eq!(try_to_take(&mut desk, 9), 1);
}

pub(super) fn a_lowered_limit_stops_nothing_that_runs(fixture: &Fixture) {
    let mut desk = limited(fixture, 9, 4);
    let jobs = desk.take(WorkerId::new(), 9);
    desk.limit("default", 2);
    assert_eq!(desk.count("default", JobState::Leased), 4);
    for job in &jobs[..2] {
        assert_eq!(try_to_take(&mut desk, 9), 0);
        desk.settle(&outcome(job, Outcome::Succeeded));
    }
    assert_eq!(try_to_take(&mut desk, 9), 0, "two run still");
    desk.settle(&outcome(&jobs[2], Outcome::Succeeded));
    assert_eq!(try_to_take(&mut desk, 9), 1);
}

pub(super) fn a_raised_limit_lets_more_run(fixture: &Fixture) {
    let mut desk = limited(fixture, 9, 2);
    assert_eq!(try_to_take(&mut desk, 9), 2);
    desk.limit("default", 5);
    assert_eq!(try_to_take(&mut desk, 9), 3);
}

pub(super) fn a_limit_of_zero_lets_nothing_begin(fixture: &Fixture) {
    let mut desk = limited(fixture, 3, 0);
    let claimed = claim_of(&mut desk, &[("default", 9)], 9, true);
    assert_eq!((claimed.jobs.len(), claimed.withheld), (0, true));
    desk.limit("default", 1);
    assert_eq!(try_to_take(&mut desk, 9), 1);
}

pub(super) fn a_limit_that_was_taken_away_holds_no_longer(fixture: &Fixture) {
    let mut desk = limited(fixture, 9, 1);
    assert_eq!(try_to_take(&mut desk, 9), 1);
    assert!(desk.limit("default", None));
    let claimed = claim_of(&mut desk, &[("default", 20)], 20, true);
    assert_eq!((claimed.jobs.len(), claimed.withheld), (8, false));
}

pub(super) fn a_limit_of_a_queue_without_jobs_is_kept_for_them(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.limit("default", 1);
    desk.accept(&rows(3));
    assert_eq!(try_to_take(&mut desk, 9), 1);
}

pub(super) fn a_limit_holds_in_its_own_queue_only(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    three_queues(&mut desk);
    desk.limit("A", 0);
    desk.limit("a ", 0);
    desk.limit("b", 0);
    let claimed = claim_of(&mut desk, &[("a", 9), ("b", 9)], 20, true);
    assert_eq!(taken(&claimed), "aaaa");
}

pub(super) fn a_limit_is_answered_with_how_the_queue_is_set(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let set = |desk: &mut Desk, limit| {
        let answer = desk.change_queue("mail", QueueChange::Limit(limit));
        (answer.settings.concurrency_limit, answer.settings.is_paused, answer.changed)
    };
    assert_eq!(set(&mut desk, None), (None, false, false), "it had none");
    assert_eq!(set(&mut desk, Some(3)), (Some(3), false, true));
    assert_eq!(set(&mut desk, Some(3)), (Some(3), false, false));
    desk.pause("mail");
    assert_eq!(set(&mut desk, Some(u32::MAX)), (Some(u32::MAX), true, true));
    assert_eq!(set(&mut desk, None), (None, true, true));
}

pub(super) fn queues_are_told_as_they_are_set_by_name(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    assert!(desk.queues().is_empty());
    for queue in ["b", "é", "a", "Z", "a b"] {
        desk.limit(queue, 7);
    }
    desk.pause("a");
    desk.limit("b", None);
    let told = desk.queues();
    let names: Vec<_> = told.iter().map(|set| set.queue.as_str()).collect();
    assert_eq!(names, ["Z", "a", "a b", "b", "é"]);
    let mut expected = QueueSettings::new("a".to_owned());
    expected.apply(QueueChange::Limit(Some(7)));
    expected.apply(QueueChange::Pause);
    assert_eq!(told[1], expected);
    assert_eq!(told[3], QueueSettings::new("b".to_owned()), "it was set once, and stays");
}

pub(super) fn a_limit_is_exact_over_a_long_run(fixture: &Fixture) {
    let mut desk = limited(fixture, 60, 7);
    let mut running = Vec::new();
    let mut ended = 0;
    for round in 0..60_usize {
        running.extend(desk.take(WorkerId::new(), 1 + u32::try_from(round % 4).expect("small")));
        assert!(running.len() <= 7, "{} run", running.len());
        assert_eq!(desk.count("default", JobState::Leased), running.len() as u64);
        if round % 2 == 0 && !running.is_empty() {
            let job = running.remove(round % running.len());
            desk.settle(&outcome(&job, Outcome::Succeeded));
            ended += 1;
        }
    }
    assert!(ended >= 20 && running.len() == 7, "{ended} have ended, {} run", running.len());
}

pub(super) fn the_next_due_time_is_told_of_a_queue_without_room_and_never_one_that_is_past(
    fixture: &Fixture,
) {
    let mut desk = Desk::open(fixture);
    desk.limit("default", 1);
    let later = desk.now() + SECOND * 5;
    desk.accept(&[row(), row(), JobRow { due: Due::At(later), ..row() }]);
    let plan = [("default", 9)];
    for taken in [1, 0] {
        let claimed = claim_of(&mut desk, &plan, 9, true);
        assert_eq!(
            (claimed.jobs.len(), claimed.withheld, claimed.next_due),
            (taken, true, Some(later))
        );
    }
    // What a quota leaves is due, too, and not next.
    desk.limit("default", None);
    desk.add(&row());
    let claimed = claim_of(&mut desk, &[("default", 1)], 9, false);
    assert_eq!((claimed.jobs.len(), claimed.next_due), (1, Some(later)));
}
