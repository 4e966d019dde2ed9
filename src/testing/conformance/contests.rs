//! What holds when dependents, settings and upkeep meet the hot path at the same moment.

use super::Fixture;
use super::desk::{ACTOR, Desk, outcome, retry, row, rows, sound};
use super::family::{child, follower, member};
use super::office::nothing_kept;
use super::races::{ROUNDS, together};
use crate::store::{
    Announcement, AuditFilter, BulkChange, Claim, EnqueueAnswer, JobFilter, JobRow, Outcome,
    ParentRule, PurgeCursor, Rejection, RowReport,
};
use crate::{JobId, JobState, WorkerId};
use std::time::Duration;

/// What the two threads do, by their number.
fn both<R: Send>(
    fixture: &Fixture,
    one: impl Fn(&mut Desk) -> R + Sync,
    other: impl Fn(&mut Desk) -> R + Sync,
) {
    together(fixture, 2, |desk, number| if number == 0 { one(desk) } else { other(desk) });
}

pub(super) fn a_first_limit_comes_wholly_before_or_wholly_after_a_claim(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for round in 0..ROUNDS {
        let queue = format!("queue {round}");
        let jobs = rows(60).into_iter().map(|job| JobRow { queue: queue.clone(), ..job });
        desk.accept(&jobs.collect::<Vec<_>>());
        let taken = together(fixture, 4, |desk, number| {
            if number == 0 {
                assert!(desk.limit(&queue, 2));
            }
            take_from(desk, &queue, 10)
        });
        let total: usize = taken.iter().sum();
        // So many claims came before the limit, each whole; those after it saw what runs.
        assert!([2, 10, 20, 30].contains(&total), "{taken:?}");
        assert!(taken[0] == 0 || total == 2, "a claim after the limit passed it: {taken:?}");
        assert_eq!(take_from(&mut desk, &queue, 10), 0);
    }
}

fn take_from(desk: &mut Desk, queue: &str, total: u32) -> usize {
    use super::desk::{LEASE, accepts, quota};
    let (plan, accepted) = ([quota(queue, total)], [accepts("work", 1)]);
    let claim = Claim::new(WorkerId::new(), total, &plan, &accepted, LEASE);
    desk.claim(&claim).jobs.len()
}

pub(super) fn claimers_of_a_limited_queue_never_pass_its_limit(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.accept(&rows(200));
    desk.limit("default", 5);
    let ended = together(fixture, 4, |desk, _| {
        let mut ended = 0;
        for _ in 0..400 {
            let jobs = desk.take(WorkerId::new(), 3);
            let running = desk.count("default", JobState::Leased);
            assert!(running <= 5, "{running} run");
            let rows: Vec<_> = jobs.iter().map(|job| outcome(job, Outcome::Succeeded)).collect();
            desk.report(&rows);
            ended += rows.len();
            if ended > 0 && desk.count("default", JobState::Scheduled) == 0 {
                break;
            }
        }
        ended
    });
    assert_eq!(ended.iter().sum::<usize>(), 200, "{ended:?}");
}

pub(super) fn a_pause_comes_wholly_before_or_wholly_after_a_claim(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for round in 0..ROUNDS {
        let queue = format!("queue {round}");
        let jobs = rows(10).into_iter().map(|job| JobRow { queue: queue.clone(), ..job });
        desk.accept(&jobs.collect::<Vec<_>>());
        let taken = together(fixture, 2, |desk, number| {
            if number == 0 {
                desk.pause(&queue);
            }
            take_from(desk, &queue, 7)
        });
        assert_eq!(taken[0], 0, "a claim after the pause");
        assert!(taken[1] == 0 || taken[1] == 7, "{taken:?}");
    }
}

pub(super) fn changes_of_one_queue_from_two_sides_are_both_kept(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for round in 0..ROUNDS {
        let queue = format!("queue {round}");
        both(fixture, |desk| desk.pause(&queue), |desk| desk.limit(&queue, 3));
        let told = desk.queues().into_iter().find(|set| set.queue == queue).expect("it was set");
        assert_eq!((told.is_paused, told.concurrency_limit), (true, Some(3)));
    }
}

/// A parent ends so while a job of that rule is enqueued: in which state it must be afterwards.
#[track_caller]
fn end_meets_enqueue(fixture: &Fixture, how: Outcome, rule: ParentRule, expected: JobState) {
    let mut desk = Desk::open(fixture);
    for _ in 0..ROUNDS {
        let parent = desk.lone();
        let row = member(&[parent], rule);
        let end = outcome(&desk.grab(parent), how);
        both(
            fixture,
            |desk| {
                desk.settle(&end);
            },
            |desk| {
                desk.add(&row);
            },
        );
        assert_eq!(desk.state(row.id), expected, "it waits for nobody, or has ended otherwise");
        assert!(desk.gates(row.id).is_empty());
    }
}

pub(super) fn a_parents_success_leaves_no_orphan(fixture: &Fixture) {
    end_meets_enqueue(fixture, Outcome::Succeeded, ParentRule::OnSuccess, JobState::Scheduled);
}

pub(super) fn a_parents_failure_leaves_no_orphan(fixture: &Fixture) {
    end_meets_enqueue(fixture, Outcome::DeadLettered, ParentRule::OnSuccess, JobState::Cancelled);
}

pub(super) fn a_parents_failure_leaves_no_follower_behind(fixture: &Fixture) {
    let (how, rule) = (Outcome::Quarantined, ParentRule::OnAnyTerminal);
    end_meets_enqueue(fixture, how, rule, JobState::Scheduled);
}

pub(super) fn a_parents_cancel_leaves_no_orphan(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for _ in 0..ROUNDS {
        let parent = desk.lone();
        let (strict, any) = (child(&[parent]), follower(&[parent]));
        let rows = [strict.clone(), any.clone(), child(&[strict.id])];
        both(
            fixture,
            |desk| {
                desk.cancel(parent);
            },
            |desk| {
                desk.accept(&rows);
            },
        );
        assert_eq!(desk.state(strict.id), JobState::Cancelled);
        assert_eq!(desk.state(rows[2].id), JobState::Cancelled);
        assert_eq!(desk.state(any.id), JobState::Scheduled);
    }
}

pub(super) fn two_parents_that_end_at_once_release_their_dependents(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for _ in 0..ROUNDS {
        let parents = [desk.lone(), desk.lone()];
        let dependents: Vec<_> = (0..20)
            .map(|index| {
                let mut order = parents;
                if index % 2 == 1 {
                    order.reverse();
                }
                child(&order)
            })
            .collect();
        desk.accept(&dependents);
        let ends = parents.map(|parent| outcome(&desk.grab(parent), Outcome::Succeeded));
        together(fixture, 2, |desk, number| desk.settle(&ends[number]));
        for row in &dependents {
            assert_eq!(desk.state(row.id), JobState::Scheduled);
            assert!(desk.gates(row.id).is_empty());
        }
    }
}

pub(super) fn cascades_that_cross_each_other_both_come_through(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for _ in 0..ROUNDS {
        // Two tops; edges A>M, A>P, M>K, B>K, K>P: no order of edges is an order of locks.
        let (a, b) = (desk.lone(), desk.lone());
        let (m, k) = (child(&[a]), row());
        let k = JobRow { parents: vec![m.id, b], ..k };
        let p = child(&[a, k.id]);
        let many: Vec<_> = (0..10).map(|_| child(&[p.id, k.id, m.id])).collect();
        desk.accept(&[m.clone(), k.clone(), p.clone()]);
        desk.accept(&many);
        let ends = [a, b].map(|top| outcome(&desk.grab(top), Outcome::DeadLettered));
        together(fixture, 2, |desk, number| desk.settle(&ends[number]));
        for row in [&m, &k, &p].into_iter().chain(&many) {
            assert_eq!(desk.state(row.id), JobState::Cancelled);
        }
    }
}

pub(super) fn a_dependents_own_cancel_meets_its_release(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for _ in 0..ROUNDS {
        let parent = desk.lone();
        let id = desk.child(&[parent]);
        let below = desk.follower(&[id]);
        let end = outcome(&desk.grab(parent), Outcome::Succeeded);
        both(
            fixture,
            |desk| {
                desk.settle(&end);
            },
            |desk| {
                desk.cancel(id);
            },
        );
        assert_eq!(desk.state(id), JobState::Cancelled, "it waited for one thing or the other");
        assert_eq!(desk.state(below), JobState::Scheduled);
    }
}

pub(super) fn what_is_left_is_worked_off_by_two_at_once(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = desk.lone();
    let dependents: Vec<_> =
        (0..1_600).map(|_| JobRow { parents: vec![parent], ..row() }).collect();
    desk.accept(&dependents);
    desk.succeed(parent);
    let resolved = together(fixture, 2, |desk, _| desk.work_off_all(70));
    let rest = desk.work_off_all(5_000);
    assert_eq!(resolved.iter().sum::<u32>() + rest, 600, "{resolved:?}");
    assert_eq!(desk.count("default", JobState::Scheduled), 1_600);
}

pub(super) fn two_purges_take_each_job_once(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.accept(&rows(600));
    let jobs = desk.take(WorkerId::new(), 600);
    desk.report(&jobs.iter().map(|job| outcome(job, Outcome::Succeeded)).collect::<Vec<_>>());
    let taken = together(fixture, 2, |desk, _| {
        let (mut taken, mut cursor) = (0, PurgeCursor::default());
        for _ in 0..40 {
            let purged = desk.purge_page(nothing_kept(), 50, cursor);
            (taken, cursor) = (taken + purged.jobs, purged.cursor);
        }
        taken
    });
    assert_eq!(taken.iter().sum::<u32>() + desk.purge(nothing_kept()), 600, "{taken:?}");
    assert!(desk.counts().is_empty());
}

pub(super) fn a_purge_and_a_childs_enqueue_leave_no_child_without_its_parent(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for _ in 0..ROUNDS {
        let parent = desk.lone();
        desk.succeed(parent);
        let row = child(&[parent]);
        let accepted = together(fixture, 2, |desk, number| {
            if number == 0 {
                desk.purge_page(nothing_kept(), 50, PurgeCursor::default());
                return true;
            }
            match desk.enqueue(std::slice::from_ref(&row)) {
                EnqueueAnswer::Accepted { .. } => true,
                EnqueueAnswer::Rejected { reason, .. } => {
                    assert_eq!(reason, Rejection::UnknownParent { parent });
                    false
                }
            }
        });
        assert_eq!(desk.find(row.id).is_some(), accepted[1]);
        assert_eq!(desk.find(parent).is_some(), accepted[1], "they go or stay together");
        assert_eq!(desk.parents(row.id).len(), usize::from(accepted[1]));
    }
}

pub(super) fn a_bulk_cancel_and_reports_leave_no_job_that_runs_again(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for _ in 0..ROUNDS {
        desk.accept(&rows(40));
        let jobs = desk.take(WorkerId::new(), 40);
        let mut batch: Vec<_> =
            jobs.iter().map(|job| outcome(job, retry(Duration::from_secs(3600)))).collect();
        batch.reverse();
        both(
            fixture,
            |desk| {
                desk.report(&batch);
            },
            |desk| {
                desk.bulk(BulkChange::Cancel, &JobFilter::new(), None, 200);
            },
        );
        for job in &jobs {
            assert_eq!(desk.state(job.id), JobState::Cancelled);
            let told = desk.audit(&AuditFilter { job: Some(job.id), ..AuditFilter::default() });
            assert_eq!(told.len(), 1);
        }
    }
}

pub(super) fn two_bulk_changes_change_each_job_once(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for _ in 0..ROUNDS {
        desk.accept(&rows(50));
        let changed = together(fixture, 2, |desk, _| {
            desk.bulk_all(BulkChange::Cancel, &JobFilter::new().queue("default"), 7)
        });
        assert_eq!(changed.iter().sum::<u32>(), 50, "{changed:?}");
    }
}

pub(super) fn a_revoke_and_a_report_never_both_take_effect(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for _ in 0..ROUNDS {
        let worker = WorkerId::new();
        let job = desk.hold(worker);
        let end = outcome(&job, Outcome::Succeeded);
        let answers = together(fixture, 2, |desk, number| {
            if number == 0 {
                return !desk.revoke(worker, 9).jobs.is_empty();
            }
            matches!(desk.settle(&end), RowReport::Applied(_))
        });
        assert_ne!(answers[0], answers[1], "one of the two holds");
        let expected = if answers[0] { JobState::Scheduled } else { JobState::Succeeded };
        assert_eq!(desk.state(job.id), expected);
        desk.cancel(job.id);
    }
}

pub(super) fn announcements_of_many_pumps_are_all_kept(fixture: &Fixture) {
    let told = together(fixture, 8, |desk, number| {
        let pid = u32::try_from(number).expect("a small number");
        let given = Announcement::new(WorkerId::new(), "group".to_owned(), ACTOR.to_owned(), pid);
        for _ in 0..5 {
            desk.announce(&given);
        }
        given.worker
    });
    let mut desk = Desk::open(fixture);
    let mut expected: Vec<_> = told;
    expected.sort_unstable();
    let told: Vec<_> = desk.pumps().iter().map(|pump| pump.announcement.worker).collect();
    assert_eq!(told, expected);
}

pub(super) fn a_requeue_and_a_childs_enqueue_agree_on_the_parent(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for _ in 0..ROUNDS {
        let parent = desk.lone();
        desk.fail(parent);
        let row = child(&[parent]);
        both(
            fixture,
            |desk| {
                sound(desk.session.requeue(ACTOR, parent));
            },
            |desk| {
                desk.add(&row);
            },
        );
        let state = desk.state(row.id);
        desk.succeed(parent);
        let gates: Vec<JobId> = desk.gates(row.id);
        match state {
            JobState::Cancelled => assert_eq!(desk.state(row.id), JobState::Cancelled),
            JobState::AwaitingParent => assert_eq!(desk.state(row.id), JobState::Scheduled),
            other => panic!("it is {other}"),
        }
        assert!(gates.is_empty());
    }
}
