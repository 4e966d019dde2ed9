//! Observers while others write: nothing is skipped, whoever commits when, and each job's changes stay in order.

use super::Fixture;
use super::desk::{Desk, LEASE, accepts, outcome, quota, retry, row, rows};
use super::observers_desk::{Watcher, of_job};
use super::office::nothing_kept;
use crate::store::{Claim, JobRow, Observation, Observed, Outcome, OutcomeRow, Resolve, Resolved};
use crate::{JobId, WorkerId};
use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const WRITERS: usize = 4;
const ROUNDS: usize = 25;

/// One that enqueues jobs, some of them dependents, and goes round by exchanges that take what others enqueue.
fn write(desk: &mut Desk) {
    let worker = WorkerId::new();
    let (plan, accepted) = ([quota("default", 6)], [accepts("work", 1)]);
    let claim = Claim::new(worker, 6, &plan, &accepted, LEASE);
    let mut ends: Vec<OutcomeRow> = Vec::new();
    for round in 0..ROUNDS {
        // In one call: others may end the parent, and a purge take it, as soon as it is there.
        let mut family = rows(2);
        family.push(JobRow { parents: vec![family[0].id], ..row() });
        desk.accept(&family);
        let claimed = desk.exchange(&ends, &claim).claimed.jobs;
        ends = claimed
            .iter()
            .enumerate()
            .map(|(index, job)| match (index + round) % 3 {
                0 => outcome(job, Outcome::DeadLettered),
                1 => outcome(job, retry(Duration::ZERO)),
                _ => outcome(job, Outcome::Succeeded),
            })
            .collect();
    }
    desk.report(&ends);
}

/// Lets so many write at once while `watch` runs, which is told when they are done.
fn while_many_write(fixture: &Fixture, watch: impl FnOnce(&AtomicBool) + Send) {
    let (done, barrier) = (AtomicBool::new(false), Barrier::new(WRITERS + 1));
    std::thread::scope(|scope| {
        let writer = || {
            let mut desk = Desk::open(fixture);
            barrier.wait();
            write(&mut desk);
        };
        let writers: Vec<_> = (0..WRITERS).map(|_| scope.spawn(writer)).collect();
        let watcher = scope.spawn(|| {
            barrier.wait();
            watch(&done);
        });
        let ends: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        // Also where one of them has failed: the watcher waits for it.
        done.store(true, Ordering::SeqCst);
        let watched = watcher.join();
        for end in ends.into_iter().chain([watched]) {
            if let Err(panic) = end {
                std::panic::resume_unwind(panic);
            }
        }
    });
}

/// What was told of each job is its whole history, in its order.
#[track_caller]
fn is_all_that_happened(desk: &mut Desk, told: &[Observation]) {
    let jobs: BTreeSet<JobId> = told.iter().map(|told| told.job).collect();
    assert_eq!(jobs.len(), WRITERS * ROUNDS * 3);
    for job in jobs {
        assert_eq!(of_job(told, job), desk.history(job), "of job {job}");
    }
}

pub(super) fn what_many_write_at_once_is_told_once_and_in_order(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    let mut told = Vec::new();
    while_many_write(fixture, |done| {
        let mut desk = Desk::open(fixture);
        while !done.load(Ordering::SeqCst) {
            told.extend(watcher.drain(&mut desk));
        }
        told.extend(watcher.drain(&mut desk));
    });
    is_all_that_happened(&mut desk, &told);
}

pub(super) fn a_late_registration_is_told_of_each_job_from_some_point_on(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    // Keeps the log, so that what is told can be compared with it.
    let mut first = Watcher::registered(&mut desk, "first");
    let mut told = Vec::new();
    while_many_write(fixture, |done| {
        let mut desk = Desk::open(fixture);
        first.drain(&mut desk);
        let mut late = Watcher::new("late");
        while !done.load(Ordering::SeqCst) {
            told.extend(late.drain(&mut desk));
        }
        told.extend(late.drain(&mut desk));
    });
    let jobs: BTreeSet<JobId> = told.iter().map(|told| told.job).collect();
    for job in jobs {
        let (seen, all) = (of_job(&told, job), desk.history(job));
        assert!(all.ends_with(&seen), "of job {job}: {seen:#?} of {all:#?}");
    }
}

pub(super) fn a_purge_meanwhile_takes_nothing_that_is_not_told(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut watcher = Watcher::registered(&mut desk, "alerts");
    let mut told: Vec<Observation> = Vec::new();
    while_many_write(fixture, |done| {
        let mut desk = Desk::open(fixture);
        loop {
            let is_last = done.load(Ordering::SeqCst);
            told.extend(watcher.drain(&mut desk));
            let purged = desk.purge_page(nothing_kept(), 500, Default::default());
            assert_eq!(purged.unobserved, 0);
            if is_last {
                break;
            }
        }
        told.extend(watcher.drain(&mut desk));
    });
    let jobs: BTreeSet<JobId> = told.iter().map(|told| told.job).collect();
    assert_eq!(jobs.len(), WRITERS * ROUNDS * 3, "each was told of");
    for job in jobs {
        let life = of_job(&told, job);
        assert_eq!(life[0].from, None, "from its birth on");
        for pair in life.windows(2) {
            assert_eq!(pair[1].from, Some(pair[0].to), "of job {job}: {life:#?}");
        }
    }
    // What is left of the work is the queue's; what ended is gone.
    desk.purge(nothing_kept());
}

pub(super) fn two_that_take_it_from_each_other_move_it_forward_only(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    Watcher::registered(&mut desk, "alerts").release(&mut desk);
    desk.accept(&rows(120));
    let pump = || {
        let mut desk = Desk::open(fixture);
        let mut watcher = Watcher::new("alerts");
        let mut told = Vec::new();
        for _ in 0..1_000_000 {
            match watcher.ask(&mut desk, 7) {
                Observed::Elsewhere { .. } => std::thread::yield_now(),
                Observed::Held { lease, round, batch, .. } => {
                    (watcher.epoch, watcher.round) = (lease.epoch, round);
                    let Some(last) = batch.last() else {
                        watcher.release(&mut desk);
                        return told;
                    };
                    let until = Some(last.transition.position);
                    let resolve = Resolve { until, ..watcher.resolution() };
                    let answer = desk.session.resolve(&resolve).expect("no fault");
                    if matches!(answer, Resolved::Applied { .. }) {
                        told.extend(batch.into_iter().map(|told| told.transition.position));
                    }
                    watcher.release(&mut desk);
                }
            }
        }
        panic!("they do not come to an end");
    };
    let mut told: Vec<u64> = std::thread::scope(|scope| {
        let pumps = [scope.spawn(pump), scope.spawn(pump)];
        pumps.into_iter().flat_map(|pump| pump.join().expect("it ends")).collect()
    });
    told.sort_unstable();
    let count = told.len();
    told.dedup();
    assert_eq!((told.len(), count), (120, 120), "each was resolved once");
}
