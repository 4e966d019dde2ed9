//! What holds when several sessions act at the same moment: real threads, started together.

use super::Fixture;
use super::desk::{
    Desk, LEASE, QueueQuota, accepts, ids, lease_of, outcome, quota, reap, retry, row, rows,
};
use crate::store::{
    Body, CancelAnswer, Claim, ClaimedJob, JobRow, Outcome, OutcomeRow, Renewed, RequeueAnswer,
    RowReport,
};
use crate::{JobId, JobState, WorkerId};
use std::collections::BTreeSet;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

/// Repeats of a race that is over in one call.
pub(super) const ROUNDS: usize = 10;

/// Runs `work` on `count` threads, each with a session of its own, all begun at the same moment.
#[track_caller]
pub(super) fn together<R: Send>(
    fixture: &Fixture,
    count: usize,
    work: impl Fn(&mut Desk, usize) -> R + Sync,
) -> Vec<R> {
    let start = Barrier::new(count);
    let one = |number: usize| {
        // A session that does not open must not keep the others waiting.
        let session = fixture.store().open_session();
        start.wait();
        work(&mut Desk::of(session, fixture.clock()), number)
    };
    thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || one(number))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread fails")).collect()
    })
}

fn applied(answer: &RowReport) -> bool {
    matches!(answer, RowReport::Applied(_))
}

pub(super) fn one_job_is_claimed_by_one_of_eight_threads(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for _ in 0..ROUNDS {
        let id = desk.add(&row());
        let taken = together(fixture, 8, |desk, _| desk.take(WorkerId::new(), 1));
        let winners: Vec<_> = taken.into_iter().flatten().collect();
        assert_eq!(ids(&winners), [id]);
        assert_eq!(desk.job(id).owner, winners[0].owner);
    }
}

/// Claims until nothing is left.
fn drain(desk: &mut Desk, claim: &Claim<'_>) -> Vec<ClaimedJob> {
    let mut all = Vec::new();
    loop {
        let some = desk.claim(claim).jobs;
        if some.is_empty() {
            return all;
        }
        all.extend(some);
    }
}

/// Four threads drain the plans they are given; what one came too late for, a last one takes.
#[track_caller]
fn drain_together(
    fixture: &Fixture,
    plan: impl Fn(usize) -> Vec<QueueQuota> + Sync,
    expected: usize,
) {
    let accepted = [accepts("work", 1)];
    let one = |desk: &mut Desk, number: usize| {
        let plan = plan(number);
        drain(desk, &Claim::new(WorkerId::new(), 7, &plan, &accepted, LEASE))
    };
    let mut taken: Vec<_> = together(fixture, 4, one).into_iter().flatten().collect();
    taken.extend(one(&mut Desk::open(fixture), 0));
    assert!(taken.iter().all(|job| job.attempt == 1));
    assert_eq!(taken.len(), expected);
    assert_eq!(ids(&taken).into_iter().collect::<BTreeSet<_>>().len(), expected);
}

pub(super) fn claimers_share_a_queue_without_a_job_twice_or_left(fixture: &Fixture) {
    Desk::open(fixture).accept(&rows(400));
    drain_together(fixture, |_| vec![quota("default", 7)], 400);
}

pub(super) fn claims_over_two_queues_in_opposite_orders_all_succeed(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for queue in ["a", "b"] {
        let jobs: Vec<_> =
            rows(200).into_iter().map(|job| JobRow { queue: queue.to_owned(), ..job }).collect();
        desk.accept(&jobs);
    }
    let plan = |number| {
        let mut plan = vec![quota("a", 4), quota("b", 4)];
        if number % 2 == 1 {
            plan.reverse();
        }
        plan
    };
    drain_together(fixture, plan, 400);
}

pub(super) fn an_id_enqueued_by_eight_threads_is_new_to_one(fixture: &Fixture) {
    for _ in 0..ROUNDS {
        let id = JobId::new();
        let answers = together(fixture, 8, |desk, number| {
            let payload = Body::new(number.to_string().into_bytes());
            desk.accept(&[JobRow { payload, ..JobRow::new(id, "work") }])[0]
        });
        let winners: Vec<_> = (0..8).filter(|number| answers[*number]).collect();
        assert_eq!(winners.len(), 1, "{answers:?}");
        let stored = Desk::open(fixture).job(id).payload;
        assert_eq!(stored.as_bytes(), winners[0].to_string().as_bytes());
    }
}

pub(super) fn enqueues_that_share_ids_in_opposite_orders_all_succeed(fixture: &Fixture) {
    for _ in 0..ROUNDS {
        let jobs = rows(50);
        let answers = together(fixture, 4, |desk, number| {
            let mut mine = jobs.clone();
            if number % 2 == 1 {
                mine.reverse();
            }
            desk.accept(&mine)
        });
        let new = answers.iter().flatten().filter(|is_new| **is_new).count();
        assert_eq!(new, jobs.len());
    }
}

pub(super) fn a_report_sent_by_four_threads_is_applied_once(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for _ in 0..ROUNDS {
        let job = desk.hold(WorkerId::new());
        let row = outcome(&job, retry(Duration::from_secs(3600)));
        let answers = together(fixture, 4, |desk, _| desk.settle(&row));
        let expected = RowReport::AlreadyApplied(JobState::Scheduled);
        assert_eq!(answers.iter().filter(|answer| applied(answer)).count(), 1);
        assert_eq!(answers.iter().filter(|answer| **answer == expected).count(), 3);
        assert_eq!(desk.job(job.id).failures, 1);
    }
}

pub(super) fn ends_of_the_same_jobs_in_opposite_orders_are_written_once(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for _ in 0..ROUNDS {
        desk.accept(&rows(50));
        let jobs = desk.take(WorkerId::new(), 50);
        let answers = together(fixture, 4, |desk, number| {
            // Each thread under receipts of its own, as if each were the only one.
            let ended = |job: &ClaimedJob| outcome(job, Outcome::Succeeded);
            let mut batch: Vec<OutcomeRow> = jobs.iter().map(ended).collect();
            if number % 2 == 1 {
                batch.reverse();
            }
            desk.report(&batch)
        });
        let count = answers.iter().flatten().filter(|answer| applied(answer)).count();
        assert_eq!(count, jobs.len());
    }
}

pub(super) fn a_lapsed_job_is_settled_by_one_of_two_reapers(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for _ in 0..ROUNDS {
        let job = desk.hold(WorkerId::new());
        desk.wait(LEASE);
        let answers = together(fixture, 2, |desk, _| {
            let found = desk.lapsed(&["default"], 9).len();
            assert!(found <= 1);
            desk.settle(&reap(&job, retry(Duration::from_secs(3600))))
        });
        assert_eq!(answers.iter().filter(|answer| applied(answer)).count(), 1);
        assert_eq!(desk.job(job.id).failures, 1);
    }
}

pub(super) fn an_attempt_is_ended_by_its_holder_or_by_the_reaper(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for _ in 0..ROUNDS {
        let job = desk.hold(WorkerId::new());
        let answers = together(fixture, 2, |desk, number| {
            if number == 0 {
                return desk.report_at_any_time(&outcome(&job, Outcome::Succeeded));
            }
            fixture.clock().set(job.expiry);
            desk.report_at_any_time(&reap(&job, Outcome::DeadLettered))
        });
        let state = desk.state(job.id);
        match (answers[0], answers[1]) {
            (RowReport::Applied(_), RowReport::Stale(_)) => assert_eq!(state, JobState::Succeeded),
            (RowReport::Stale(_), RowReport::Applied(_)) => {
                assert_eq!(state, JobState::DeadLettered);
            }
            other => panic!("{other:?}"),
        }
    }
}

pub(super) fn a_lease_is_renewed_or_reaped_and_never_both(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for _ in 0..ROUNDS {
        let worker = WorkerId::new();
        let job = desk.hold(worker);
        desk.wait(LEASE - Duration::from_micros(1));
        let answers = together(fixture, 2, |desk, number| {
            if number == 0 {
                return desk.renew_at_any_time(worker, lease_of(&job)) != Renewed::Lost;
            }
            fixture.clock().set(job.expiry);
            applied(&desk.report_at_any_time(&reap(&job, Outcome::DeadLettered)))
        });
        assert_ne!(answers[0], answers[1], "one of the two holds");
        let expected = if answers[0] { JobState::Leased } else { JobState::DeadLettered };
        assert_eq!(desk.state(job.id), expected);
    }
}

pub(super) fn a_lease_is_given_back_or_reported_and_never_both(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for _ in 0..ROUNDS {
        let worker = WorkerId::new();
        let job = desk.hold(worker);
        let answers = together(fixture, 2, |desk, number| {
            if number == 0 {
                return desk.hand_back(worker, &[lease_of(&job)])[0];
            }
            applied(&desk.settle(&outcome(&job, Outcome::Succeeded)))
        });
        assert_ne!(answers[0], answers[1], "one of the two holds");
        let expected = if answers[0] { JobState::Scheduled } else { JobState::Succeeded };
        assert_eq!(desk.state(job.id), expected);
        desk.cancel(job.id);
    }
}

pub(super) fn a_job_is_cancelled_before_or_requested_after_its_claim(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for _ in 0..ROUNDS {
        let id = desk.add(&row());
        let answers = together(fixture, 2, |desk, number| {
            if number == 0 {
                (Some(desk.cancel(id)), 0)
            } else {
                (None, desk.take(WorkerId::new(), 1).len())
            }
        });
        let stored = desk.job(id);
        match answers[0].0 {
            Some(CancelAnswer::Cancelled) => {
                assert_eq!((answers[1].1, stored.state), (0, JobState::Cancelled));
            }
            Some(CancelAnswer::Requested) => {
                assert_eq!((answers[1].1, stored.state), (1, JobState::Leased));
                assert!(stored.cancel_requested);
            }
            other => panic!("{other:?}"),
        }
    }
}

pub(super) fn a_job_is_requeued_by_one_of_eight_threads(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for _ in 0..ROUNDS {
        let job = desk.end(Outcome::DeadLettered);
        let answers = together(fixture, 8, |desk, _| desk.requeue(job.id));
        let requeued = answers.iter().filter(|answer| **answer == RequeueAnswer::Requeued);
        assert_eq!(requeued.count(), 1);
        let illegal = RequeueAnswer::IllegalState(JobState::Scheduled);
        assert_eq!(answers.iter().filter(|answer| **answer == illegal).count(), 7);
        desk.cancel(job.id);
    }
}

pub(super) fn exchanges_of_four_threads_end_every_job_once(fixture: &Fixture) {
    Desk::open(fixture).accept(&rows(400));
    let work = |desk: &mut Desk, _: usize| {
        let (plan, accepted) = ([quota("default", 9)], [accepts("work", 1)]);
        let claim = Claim::new(WorkerId::new(), 9, &plan, &accepted, LEASE);
        let (mut batch, mut count) = (Vec::new(), 0);
        loop {
            let exchanged = desk.exchange(&batch, &claim);
            assert!(exchanged.reported.rows.iter().all(applied), "{:?}", exchanged.reported);
            count += batch.len();
            if exchanged.claimed.jobs.is_empty() {
                return count;
            }
            let ended = |job: &ClaimedJob| outcome(job, Outcome::Succeeded);
            batch = exchanged.claimed.jobs.iter().map(ended).collect();
        }
    };
    let mut ended: usize = together(fixture, 4, work).into_iter().sum();
    let mut desk = Desk::open(fixture);
    ended += work(&mut desk, 0);
    assert_eq!(ended, 400);
    assert_eq!(desk.counts(), [("default".to_owned(), JobState::Succeeded, 400)]);
}
