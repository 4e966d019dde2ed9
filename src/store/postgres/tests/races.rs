//! Sessions against each other.

use super::*;
use crate::JobState;
use crate::store::{Mode, StaleReason};
use std::collections::HashSet;
use std::sync::mpsc::channel;

#[test]
fn sessions_that_race_for_the_same_jobs_never_share_one() {
    let place = Place::new();
    add(place.session().as_mut(), &(0..2000).map(|i| row("q", i - 9000)).collect::<Vec<_>>());
    let taken: Vec<JobId> = std::thread::scope(|scope| {
        let claimers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut session = place.session();
                    let me = WorkerId::new();
                    let mut taken = Vec::new();
                    loop {
                        let claimed = take(session.as_mut(), me, "q", 23);
                        // What others have locked is not ours; the end is when none is Scheduled.
                        if claimed.jobs.is_empty() {
                            let counts = session.counts().unwrap();
                            if counts.iter().all(|count| count.state != JobState::Scheduled) {
                                return taken;
                            }
                        }
                        taken.extend(ids(&claimed));
                    }
                })
            })
            .collect();
        claimers.into_iter().flat_map(|claimer| claimer.join().unwrap()).collect()
    });
    assert_eq!(taken.len(), 2000);
    assert_eq!(taken.iter().collect::<HashSet<_>>().len(), 2000);
}

#[test]
fn a_claim_does_not_wait_for_locked_rows() {
    let place = Place::new();
    let mut session = place.session();
    let rows = [row("q", -2), row("q", -1)];
    add(session.as_mut(), &rows);
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    let lock = format!("SELECT 1 FROM \"{}\".jobs WHERE id = $1 FOR UPDATE", place.schema);
    tx.execute(&lock, &[&rows[0].id]).unwrap();
    let claimed = take(session.as_mut(), WorkerId::new(), "q", 5);
    assert_eq!(
        (ids(&claimed), claimed.withheld, claimed.next_due),
        (vec![rows[1].id], false, None)
    );
    tx.rollback().unwrap();
    assert_eq!(ids(&take(session.as_mut(), WorkerId::new(), "q", 5)), [rows[0].id]);
}

/// Lets `then` run into a lock on the job's row; once its backend is seen waiting, changes the row and
/// lets go.
fn behind_a_lock<T: Send>(
    place: &Place,
    job: JobId,
    change: &str,
    then: impl FnOnce(&mut dyn Session) -> T + Send,
) -> T {
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    let lock =
        format!("SELECT pg_backend_pid() FROM \"{}\".jobs WHERE id = $1 FOR UPDATE", place.schema);
    let holder: i32 = tx.query_one(&lock, &[&job]).unwrap().get(0);
    std::thread::scope(|scope| {
        let (done, finished) = channel();
        let waiter = scope.spawn(move || {
            let answer = then(place.session().as_mut());
            done.send(()).unwrap();
            answer
        });
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))";
        let mut watcher = raw();
        while watcher.query_one(waits, &[&holder]).unwrap().get::<_, i64>(0) == 0 {
            assert!(finished.try_recv().is_err(), "it did not wait for the lock");
            std::thread::yield_now();
        }
        let text = format!("UPDATE \"{}\".jobs SET {change} WHERE id = $1", place.schema);
        assert_eq!(tx.execute(&text, &[&job]).unwrap(), 1);
        tx.commit().unwrap();
        waiter.join().unwrap()
    })
}

#[test]
fn a_report_that_waited_judges_by_what_it_waited_for() {
    let place = Place::new();
    let mut session = place.session();
    add(session.as_mut(), &[row("q", -1)]);
    let me = WorkerId::new();
    let job = take(session.as_mut(), me, "q", 1).jobs.remove(0);
    // A renewal moves the row to a new version while a reaper waits with an old page.
    let mut reap = outcome(&job, me, Outcome::DeadLettered);
    reap.mode = Mode::Reap;
    place.set_clock(job.expiry);
    let renewed = format!("expiry = expiry + interval '{} s'", LEASE.as_secs());
    let answer = behind_a_lock(&place, job.id, &renewed, |session| report_one(session, &reap));
    assert_eq!(answer, RowReport::Stale(StaleReason::Lapsed));
    // The holder waits for the same and passes: its lease is live on the version that it waited for.
    let done = outcome(&job, me, Outcome::Succeeded);
    let answer = behind_a_lock(&place, job.id, &renewed, |session| report_one(session, &done));
    assert_eq!(answer, RowReport::Applied(JobState::Succeeded));
}

#[test]
fn a_report_that_waited_for_a_reaper_is_stale() {
    let place = Place::new();
    let mut session = place.session();
    add(session.as_mut(), &[row("q", -1)]);
    let me = WorkerId::new();
    let job = take(session.as_mut(), me, "q", 1).jobs.remove(0);
    let reaped =
        "state = 0, owner = NULL, expiry = NULL, settled_attempt = attempt, settled_by = 2";
    let done = outcome(&job, me, Outcome::Succeeded);
    let answer = behind_a_lock(&place, job.id, reaped, |session| report_one(session, &done));
    assert_eq!(answer, RowReport::Stale(StaleReason::Reaped));
    assert_eq!(record(session.as_mut(), job.id).state, JobState::Scheduled);
}

#[test]
fn the_clock_is_read_after_the_lock_was_won() {
    let store = PostgresStore::builder(config()).schema(fresh_name()).open().unwrap();
    let place =
        Place { schema: store.inner.schema.name().to_owned(), store, clock: Arc::default() };
    let mut session = place.session();
    let mut job = row("q", 0);
    job.due = Due::Now;
    add(session.as_mut(), &[job]);
    let me = WorkerId::new();
    let job = take(session.as_mut(), me, "q", 1).jobs.remove(0);
    let done = outcome(&job, me, Outcome::Succeeded);
    // The lease is dead by the time of the lock's release, though it was live when the report was sent.
    let shortened = "expiry = clock_timestamp()";
    let answer = behind_a_lock(&place, job.id, shortened, |session| report_one(session, &done));
    assert_eq!(answer, RowReport::Stale(StaleReason::Lapsed));
}

#[test]
fn batches_in_opposite_orders_do_not_deadlock() {
    let place = Place::new();
    let mut session = place.session();
    add(session.as_mut(), &(0..200).map(|i| row("q", i - 900)).collect::<Vec<_>>());
    let me = WorkerId::new();
    let jobs = take(session.as_mut(), me, "q", 200).jobs;
    let forward: Vec<_> = jobs.iter().map(lease_of).collect();
    let backward: Vec<_> = forward.iter().rev().copied().collect();
    std::thread::scope(|scope| {
        for leases in [&forward, &backward] {
            let place = &place;
            scope.spawn(move || {
                let mut session = place.session();
                for _ in 0..50 {
                    session.renew(me, leases, LEASE).unwrap();
                }
            });
        }
    });
}
