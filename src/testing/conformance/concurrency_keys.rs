//! How many jobs of one queue with one concurrency key run at once, in the whole fleet.

use super::Fixture;
use super::desk::{Desk, LEASE, SECOND, TICK, accepts, lease_of, outcome, quota, reap, retry, row};
use super::races::{ROUNDS, together};
use crate::store::{
    AuditAction, Body, Claim, Claimed, ClaimedJob, Due, JobFilter, JobRow, Outcome, QueueChange,
    QueueSettings,
};
use crate::{JobId, JobState, WorkerId};
use std::collections::BTreeMap;

/// A job with that key, or, for "-", without one.
fn keyed(key: &str) -> JobRow {
    JobRow { concurrency_key: (key != "-").then(|| key.to_owned()), ..row() }
}

/// A desk with jobs of these keys, in this order of due times.
fn waiting(fixture: &Fixture, keys: &str) -> (Desk, Vec<JobId>) {
    let mut desk = Desk::open(fixture);
    let jobs = enqueue(&mut desk, "default", keys);
    (desk, jobs)
}

/// Enqueues a job for each letter of `keys`, each due after the one before.
fn enqueue(desk: &mut Desk, queue: &str, keys: &str) -> Vec<JobId> {
    let now = desk.now();
    let count = u32::try_from(keys.len()).expect("few jobs");
    let rows: Vec<_> = (0..)
        .zip(keys.chars())
        .map(|(place, key): (u32, char)| JobRow {
            due: Due::At(now.saturating_sub(TICK * (count - place))),
            queue: queue.to_owned(),
            ..keyed(&key.to_string())
        })
        .collect();
    desk.accept(&rows);
    rows.iter().map(|row| row.id).collect()
}

fn claim_of(desk: &mut Desk, plan: &[(&str, u32)], total: u32, spill: bool) -> Claimed {
    let plan: Vec<_> = plan.iter().map(|(queue, count)| quota(queue, *count)).collect();
    let accepted = [accepts("work", 1)];
    let worker = WorkerId::new();
    desk.claim(&Claim { spill, ..Claim::new(worker, total, &plan, &accepted, LEASE) })
}

fn claim_all(desk: &mut Desk) -> Claimed {
    claim_of(desk, &[("default", 9)], 9, true)
}

fn taken(claimed: &Claimed) -> Vec<JobId> {
    claimed.jobs.iter().map(|job| job.id).collect()
}

fn try_to_take(desk: &mut Desk) -> usize {
    desk.take(WorkerId::new(), 9).len()
}

impl Desk {
    #[track_caller]
    fn key_limit(&mut self, queue: &str, limit: impl Into<Option<u32>>) -> bool {
        self.change_queue(queue, QueueChange::KeyLimit(limit.into())).changed
    }
}

pub(super) fn of_one_key_one_job_runs_at_a_time(fixture: &Fixture) {
    let (mut desk, jobs) = waiting(fixture, "aaa");
    for id in jobs {
        let job = desk.take_one(WorkerId::new());
        assert_eq!(job.id, id);
        assert_eq!(try_to_take(&mut desk), 0);
        desk.settle(&outcome(&job, Outcome::Succeeded));
    }
}

pub(super) fn jobs_with_other_keys_and_without_are_not_held_back(fixture: &Fixture) {
    let (mut desk, jobs) = waiting(fixture, "aab-ba--c");
    let claimed = claim_all(&mut desk);
    let expected = [0, 2, 3, 6, 7, 8].map(|place| jobs[place]);
    assert_eq!(taken(&claimed), expected, "in their order as far as keys allow");
    assert!(claimed.withheld);
}

pub(super) fn what_a_limit_and_a_key_keep_back_together_is_withheld(fixture: &Fixture) {
    let (mut desk, jobs) = waiting(fixture, "aa");
    desk.change_queue("default", QueueChange::Limit(Some(1)));
    let claimed = claim_of(&mut desk, &[("default", 0)], 2, true);
    assert_eq!((taken(&claimed), claimed.withheld), (vec![jobs[0]], true));
}

pub(super) fn a_claim_takes_in_order_up_to_its_total(fixture: &Fixture) {
    let (mut desk, jobs) = waiting(fixture, "aab-c");
    assert_eq!(
        taken(&claim_of(&mut desk, &[("default", 3)], 3, false)),
        [jobs[0], jobs[2], jobs[3]]
    );
    assert_eq!(taken(&claim_of(&mut desk, &[("default", 3)], 3, false)), [jobs[4]]);
}

pub(super) fn a_queue_can_be_set_to_let_more_of_each_key_run(fixture: &Fixture) {
    let (mut desk, jobs) = waiting(fixture, "aaaab");
    assert!(desk.key_limit("default", 2));
    assert_eq!(taken(&claim_all(&mut desk)), [jobs[0], jobs[1], jobs[4]]);
    assert!(desk.key_limit("default", 3));
    assert_eq!(taken(&claim_all(&mut desk)), [jobs[2]]);
}

pub(super) fn a_limit_per_key_of_zero_lets_only_jobs_without_a_key_begin(fixture: &Fixture) {
    let (mut desk, jobs) = waiting(fixture, "a-b-");
    assert!(desk.key_limit("default", 0));
    let claimed = claim_all(&mut desk);
    assert_eq!((taken(&claimed), claimed.withheld), (vec![jobs[1], jobs[3]], true));
    assert!(desk.key_limit("default", None), "one is the default again");
    assert_eq!(taken(&claim_all(&mut desk)), [jobs[0], jobs[2]]);
}

pub(super) fn a_lowered_limit_per_key_stops_nothing_that_runs(fixture: &Fixture) {
    let (mut desk, _) = waiting(fixture, "aaaa");
    desk.key_limit("default", 3);
    let running = desk.take(WorkerId::new(), 9);
    assert_eq!(running.len(), 3);
    desk.key_limit("default", 2);
    assert_eq!(desk.count("default", JobState::Leased), 3);
    desk.settle(&outcome(&running[0], Outcome::Succeeded));
    assert_eq!(try_to_take(&mut desk), 0);
    desk.settle(&outcome(&running[1], Outcome::Succeeded));
    assert_eq!(try_to_take(&mut desk), 1);
}

pub(super) fn a_key_is_one_of_its_queue(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    enqueue(&mut desk, "x", "aa");
    enqueue(&mut desk, "y", "aaa");
    desk.key_limit("y", 2);
    let claimed = claim_of(&mut desk, &[("x", 9), ("y", 9)], 9, true);
    let queues: String = claimed.jobs.iter().map(|job| job.queue.as_str()).collect();
    assert_eq!(queues, "xyy");
}

pub(super) fn keys_that_only_look_alike_run_beside_each_other(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let alike = ["k", "K", "k.", "é", "e\u{301}", "%", "_", "k'"];
    desk.accept(&alike.map(keyed));
    assert_eq!(desk.take(WorkerId::new(), 99).len(), alike.len());
}

pub(super) fn a_key_holds_for_every_session_and_handle(fixture: &Fixture) {
    let (mut desk, _) = waiting(fixture, "aa");
    let second = fixture.reopen();
    let mut other = Desk::at(second.as_ref(), fixture.clock());
    assert_eq!(other.take(WorkerId::new(), 1).len(), 1);
    assert_eq!(try_to_take(&mut desk), 0);
    assert_eq!(try_to_take(&mut Desk::open(fixture)), 0);
}

pub(super) fn a_key_holds_over_both_passes_and_a_queue_planned_twice(fixture: &Fixture) {
    let (mut desk, jobs) = waiting(fixture, "aabbcc");
    let plan = [("default", 1), ("default", 1)];
    let expected = [0, 2, 4].map(|place| jobs[place]);
    assert_eq!(taken(&claim_of(&mut desk, &plan, 9, true)), expected);
    assert_eq!(claim_of(&mut desk, &plan, 9, true).jobs.len(), 0);
}

pub(super) fn what_a_key_keeps_back_is_told(fixture: &Fixture) {
    let (mut desk, _) = waiting(fixture, "aa");
    let claimed = claim_all(&mut desk);
    assert_eq!((claimed.jobs.len(), claimed.withheld, claimed.next_due), (1, true, None));
    let claimed = claim_all(&mut desk);
    assert_eq!((claimed.jobs.len(), claimed.withheld, claimed.next_due), (0, true, None));
}

pub(super) fn a_key_that_keeps_nothing_back_withholds_nothing(fixture: &Fixture) {
    let (mut desk, _) = waiting(fixture, "a");
    let claimed = claim_all(&mut desk);
    assert_eq!((claimed.jobs.len(), claimed.withheld), (1, false));
    desk.add(&JobRow { due: Due::In(SECOND), ..keyed("a") });
    desk.add(&JobRow { wire_name: "other".to_owned(), ..keyed("a") });
    let claimed = claim_all(&mut desk);
    assert!(!claimed.withheld, "nothing waits that is due and acceptable");
}

pub(super) fn the_next_due_time_is_told_of_what_is_not_due_yet(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let due = desk.now() + SECOND;
    desk.add(&JobRow { due: Due::At(due), ..keyed("a") });
    assert_eq!(claim_all(&mut desk).next_due, Some(due));
    desk.add(&JobRow { due: Due::At(due + SECOND), ..row() });
    assert_eq!(claim_all(&mut desk).next_due, Some(due));
    // What is due and kept back promises nothing.
    enqueue(&mut desk, "default", "bb");
    let claimed = claim_all(&mut desk);
    assert_eq!((claimed.jobs.len(), claimed.next_due, claimed.withheld), (1, Some(due), true));
}

pub(super) fn a_key_and_a_limit_of_the_queue_both_hold(fixture: &Fixture) {
    let (mut desk, jobs) = waiting(fixture, "aabbc");
    desk.limit("default", 2);
    let running = claim_all(&mut desk);
    assert_eq!(taken(&running), [jobs[0], jobs[2]]);
    desk.settle(&outcome(&running.jobs[0], Outcome::Succeeded));
    assert_eq!(taken(&claim_all(&mut desk)), [jobs[1]]);
}

pub(super) fn a_paused_queue_gives_nothing_of_any_key(fixture: &Fixture) {
    let (mut desk, _) = waiting(fixture, "ab");
    desk.pause("default");
    let claimed = claim_all(&mut desk);
    assert_eq!((claimed.jobs.len(), claimed.withheld, claimed.next_due), (0, true, None));
    desk.resume("default");
    assert_eq!(try_to_take(&mut desk), 2);
}

pub(super) fn a_dead_lease_holds_its_key_until_it_is_settled(fixture: &Fixture) {
    let (mut desk, _) = waiting(fixture, "aa");
    let job = desk.take_one(WorkerId::new());
    for span in [LEASE - TICK, TICK, SECOND * 3600] {
        desk.wait(span);
        assert_eq!(try_to_take(&mut desk), 0);
    }
    desk.settle(&reap(&job, Outcome::DeadLettered));
    assert_eq!(try_to_take(&mut desk), 1);
}

/// The key of a running job is freed by `end`, and its next job runs.
#[track_caller]
fn frees_its_key(fixture: &Fixture, end: impl FnOnce(&mut Desk, &ClaimedJob)) {
    let (mut desk, jobs) = waiting(fixture, "aaa");
    let job = desk.take_one(WorkerId::new());
    assert_eq!(try_to_take(&mut desk), 0);
    end(&mut desk, &job);
    let next = desk.take(WorkerId::new(), 9);
    assert_eq!(next.len(), 1);
    assert!(jobs.contains(&next[0].id));
    assert_eq!(try_to_take(&mut desk), 0);
}

pub(super) fn every_outcome_frees_its_key(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let outcomes = [
        Outcome::Succeeded,
        Outcome::DeadLettered,
        Outcome::Quarantined,
        Outcome::Cancelled,
        retry(SECOND),
        Outcome::Snooze { after: SECOND },
    ];
    for (number, how) in outcomes.into_iter().enumerate() {
        let key = format!("key {number}");
        desk.accept(&[keyed(&key), keyed(&key)]);
        let job = desk.take_one(WorkerId::new());
        assert_eq!(try_to_take(&mut desk), 0);
        desk.settle(&outcome(&job, how));
        let next = desk.take_one(WorkerId::new());
        desk.settle(&outcome(&next, Outcome::Succeeded));
    }
}

pub(super) fn a_hand_back_frees_its_key(fixture: &Fixture) {
    frees_its_key(fixture, |desk, job| {
        let owner = job.owner.expect("a claimed job has an owner");
        assert_eq!(desk.hand_back(owner, &[lease_of(job)]), [true]);
    });
}

pub(super) fn a_revoke_frees_its_keys(fixture: &Fixture) {
    frees_its_key(fixture, |desk, job| {
        let owner = job.owner.expect("a claimed job has an owner");
        assert_eq!(desk.revoke(owner, 9).jobs, [job.id]);
    });
}

pub(super) fn a_reaper_frees_the_key(fixture: &Fixture) {
    frees_its_key(fixture, |desk, job| {
        desk.wait(LEASE);
        desk.settle(&reap(job, retry(SECOND)));
    });
}

pub(super) fn a_cancel_request_and_a_stale_report_free_no_key(fixture: &Fixture) {
    let (mut desk, _) = waiting(fixture, "aaa");
    let first = desk.take_one(WorkerId::new());
    desk.cancel(first.id);
    assert_eq!(try_to_take(&mut desk), 0);
    desk.wait(LEASE);
    desk.settle(&reap(&first, retry(SECOND)));
    assert_eq!(try_to_take(&mut desk), 1);
    desk.settle(&outcome(&first, Outcome::Succeeded));
    assert_eq!(try_to_take(&mut desk), 0);
}

pub(super) fn an_exchange_can_use_the_key_that_it_frees(fixture: &Fixture) {
    let (mut desk, jobs) = waiting(fixture, "aa");
    let worker = WorkerId::new();
    let job = desk.take_one(worker);
    let (plan, accepted) = ([quota("default", 9)], [accepts("work", 1)]);
    let claim = Claim::new(worker, 9, &plan, &accepted, LEASE);
    let exchanged = desk.exchange(&[outcome(&job, Outcome::Succeeded)], &claim);
    assert_eq!(taken(&exchanged.claimed), [jobs[1]]);
}

pub(super) fn a_job_keeps_its_key_over_every_attempt(fixture: &Fixture) {
    let (mut desk, jobs) = waiting(fixture, "a");
    let other = enqueue(&mut desk, "default", "a");
    for _ in 0..3 {
        let job = desk.take_one(WorkerId::new());
        assert_eq!(try_to_take(&mut desk), 0);
        desk.settle(&outcome(&job, Outcome::Snooze { after: TICK }));
        desk.wait(TICK);
    }
    for job in jobs.into_iter().chain(other) {
        assert_eq!(desk.job(job).concurrency_key.as_deref(), Some("a"));
    }
}

pub(super) fn a_released_dependent_waits_for_its_key(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = desk.hold(WorkerId::new());
    let job = JobRow { parents: vec![parent.id], ..keyed("a") };
    desk.add(&job);
    let running = desk.add(&keyed("a"));
    let running_job = desk.take_one(WorkerId::new());
    assert_eq!(running_job.id, running);
    desk.settle(&outcome(&parent, Outcome::Succeeded));
    assert_eq!(desk.state(job.id), JobState::Scheduled);
    assert_eq!(try_to_take(&mut desk), 0);
    desk.settle(&outcome(&running_job, Outcome::Succeeded));
    assert_eq!(desk.take_one(WorkerId::new()).id, job.id);
}

pub(super) fn what_is_not_accepted_takes_no_slot_and_holds_back_nobody(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let other = JobRow { wire_name: "other".to_owned(), ..keyed("a") };
    let now = desk.now();
    desk.add(&JobRow { due: Due::At(now.saturating_sub(SECOND)), ..other });
    let job = desk.add(&keyed("a"));
    assert_eq!(desk.take_one(WorkerId::new()).id, job);
}

pub(super) fn the_byte_bound_holds_among_keys(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let large = |key| JobRow {
        payload: Body::new(format!("\"{}\"", "x".repeat(98)).into_bytes()),
        ..keyed(key)
    };
    let rows: Vec<_> = ["a", "a", "b", "c"].into_iter().map(large).collect();
    desk.accept(&rows);
    let (plan, accepted) = ([quota("default", 9)], [accepts("work", 1)]);
    let mut claim = Claim::new(WorkerId::new(), 9, &plan, &accepted, LEASE);
    claim.bytes_max = 250;
    let claimed = desk.claim(&claim);
    assert_eq!((claimed.jobs.len(), claimed.withheld), (2, true));
    assert_eq!(desk.claim(&claim).jobs.len(), 1);
}

pub(super) fn a_long_backlog_of_one_key_starves_nobody(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let backlog: Vec<_> = (0..2_000).map(|_| keyed("a")).collect();
    desk.accept(&backlog);
    assert_eq!(try_to_take(&mut desk), 1);
    desk.wait(SECOND);
    let jobs = [keyed("b"), row(), keyed("c")];
    desk.accept(&jobs);
    let claimed = claim_of(&mut desk, &[("default", 2)], 2, true);
    let first_two: Vec<_> = {
        let mut ids: Vec<_> = jobs.iter().map(|job| job.id).collect();
        ids.sort();
        ids.truncate(2);
        ids
    };
    assert_eq!(taken(&claimed), first_two);
    assert_eq!(try_to_take(&mut desk), 1);
    let claimed = claim_all(&mut desk);
    assert_eq!((claimed.jobs.len(), claimed.withheld, claimed.next_due), (0, true, None));
}

pub(super) fn many_keys_run_beside_each_other(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let jobs: Vec<_> = (0..900).map(|number| keyed(&format!("key {}", number % 300))).collect();
    desk.accept(&jobs);
    let claimed = desk.take(WorkerId::new(), 900);
    assert_eq!(claimed.len(), 300);
    let ends: Vec<_> = claimed.iter().map(|job| outcome(job, Outcome::Succeeded)).collect();
    desk.report(&ends);
    assert_eq!(desk.take(WorkerId::new(), 900).len(), 300);
}

pub(super) fn jobs_are_found_by_their_concurrency_key(fixture: &Fixture) {
    let (mut desk, jobs) = waiting(fixture, "aab");
    let mut of_a = vec![jobs[0], jobs[1]];
    of_a.sort();
    let by_key = JobFilter::new().queue("default").concurrency_key("a");
    assert_eq!(desk.matching(&by_key), of_a);
    claim_all(&mut desk);
    assert_eq!(desk.matching(&by_key.clone().state(JobState::Leased)), [jobs[0]]);
    assert_eq!(desk.matching(&by_key.state(JobState::Scheduled)), [jobs[1]]);
    assert!(desk.matching(&JobFilter::new().concurrency_key("c")).is_empty());
}

pub(super) fn a_limit_per_key_is_told_and_audited(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let answer = desk.change_queue("mail", QueueChange::KeyLimit(Some(4)));
    let mut expected = QueueSettings::new("mail".to_owned());
    expected.apply(QueueChange::KeyLimit(Some(4)));
    assert_eq!((answer.settings, answer.changed), (expected.clone(), true));
    assert_eq!(desk.queues(), [expected]);
    assert!(!desk.key_limit("mail", 4), "it is set so already");
    assert!(desk.limit("mail", 7));
    assert!(desk.key_limit("mail", None));
    let settings = desk.queues().remove(0);
    assert_eq!((settings.concurrency_limit, settings.concurrency_limit_per_key), (Some(7), None));
    let deeds: Vec<_> = desk.deeds().into_iter().map(|(action, _)| action).collect();
    let (key, limit) = (AuditAction::KeyLimit, AuditAction::Limit(Some(7)));
    assert_eq!(deeds, [key(None), limit, key(Some(4))]);
}

pub(super) fn a_queue_with_keys_that_nobody_set_is_not_among_the_set(fixture: &Fixture) {
    let (mut desk, _) = waiting(fixture, "ab");
    claim_all(&mut desk);
    assert_eq!(desk.queues(), []);
}

/// How many jobs of each key are leased.
fn running(desk: &mut Desk) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let leased = JobFilter::new().state(JobState::Leased);
    for id in desk.matching(&leased) {
        if let Some(key) = desk.find(id).and_then(|job| job.concurrency_key) {
            *counts.entry(key).or_default() += 1;
        }
    }
    counts
}

pub(super) fn claimers_never_run_more_of_a_key_than_its_limit(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for round in 0..ROUNDS {
        let queue = format!("queue {round}");
        let jobs: Vec<_> = (0..12)
            .map(|number| JobRow { queue: queue.clone(), ..keyed(["a", "b", "-"][number % 3]) })
            .collect();
        desk.accept(&jobs);
        let taken = together(fixture, 8, |desk, _| {
            let claimed = claim_of(desk, &[(&queue, 4)], 4, true);
            let keyed = claimed.jobs.iter().filter(|claimed| {
                let is_it = |row: &&JobRow| row.id == claimed.id && row.concurrency_key.is_some();
                jobs.iter().any(|row| is_it(&row))
            });
            (keyed.count(), claimed.jobs.len())
        });
        let keyed: usize = taken.iter().map(|(keyed, _)| keyed).sum();
        let all: usize = taken.iter().map(|(_, all)| all).sum();
        assert_eq!((keyed, all), (2, 6), "{taken:?}");
    }
}

pub(super) fn the_first_keyed_jobs_of_a_queue_are_limited_from_the_start(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for round in 0..ROUNDS {
        let queue = format!("queue {round}");
        let plain: Vec<_> = (0..20).map(|_| JobRow { queue: queue.clone(), ..row() }).collect();
        desk.accept(&plain);
        // Two enqueue the first jobs with a key while four claim.
        let taken = together(fixture, 6, |desk, number| {
            if number < 2 {
                let jobs: Vec<_> =
                    (0..5).map(|_| JobRow { queue: queue.clone(), ..keyed("a") }).collect();
                desk.accept(&jobs);
                return 0;
            }
            (0..4).map(|_| claim_of(desk, &[(&queue, 9)], 9, true).jobs.len()).sum()
        });
        let all =
            taken.iter().sum::<usize>() + claim_of(&mut desk, &[(&queue, 99)], 99, true).jobs.len();
        assert_eq!(all, 21, "all without a key, and one of those with it: {taken:?}");
    }
}

pub(super) fn a_limit_per_key_changed_during_claims_is_heeded_by_those_after_it(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for round in 0..ROUNDS {
        let queue = format!("queue {round}");
        let jobs: Vec<_> = (0..40).map(|_| JobRow { queue: queue.clone(), ..keyed("a") }).collect();
        desk.accept(&jobs);
        desk.key_limit(&queue, 20);
        let taken = together(fixture, 4, |desk, number| {
            if number == 0 {
                assert!(desk.key_limit(&queue, 3));
                return claim_of(desk, &[(&queue, 5)], 5, true).jobs.len();
            }
            claim_of(desk, &[(&queue, 5)], 5, true).jobs.len()
        });
        let total: usize = taken.iter().sum();
        // So many claims came before the change, each whole; those after it saw what runs.
        assert!([3, 5, 10, 15].contains(&total), "{taken:?}");
        assert!(taken[0] == 0 || total == 3, "a claim after the change passed it: {taken:?}");
        assert_eq!(claim_of(&mut desk, &[(&queue, 5)], 5, true).jobs.len(), 0);
    }
}

pub(super) fn keys_are_exact_over_a_long_run(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let keys = ["a", "b", "c", "d", "-"];
    let jobs: Vec<_> = (0..160).map(|number| keyed(keys[number % keys.len()])).collect();
    desk.accept(&jobs);
    desk.key_limit("default", 2);
    let ended = together(fixture, 4, |desk, _| {
        let mut ended = 0;
        for _ in 0..400 {
            let claimed = desk.take(WorkerId::new(), 20);
            let running = running(desk);
            assert!(running.values().all(|count| *count <= 2), "{running:?}");
            let ends: Vec<_> = claimed.iter().map(|job| outcome(job, Outcome::Succeeded)).collect();
            ended += ends.len();
            desk.report(&ends);
            if ended >= 160
                || (claimed.is_empty() && desk.count("default", JobState::Scheduled) == 0)
            {
                break;
            }
        }
        ended
    });
    assert_eq!(ended.iter().sum::<usize>(), 160, "{ended:?}");
}
