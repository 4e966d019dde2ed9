use super::*;
use crate::RetryPolicy;
use crate::store::{Due, LeaseRef, Renewed, SettledBy};

fn refs(jobs: &[ClaimedJob]) -> Vec<LeaseRef> {
    jobs.iter().map(|job| LeaseRef { job: job.id, attempt: job.attempt }).collect()
}

#[test]
fn a_lease_can_be_renewed_up_to_its_expiry_and_not_at_it() {
    let mut bench = Bench::new();
    bench.enqueue_all(&[job(), job(), job()]);
    let jobs = bench.claim(3);
    bench.session.request_cancel("ada", jobs[1].id).expect("no fault");
    let mut leases = refs(&jobs);
    leases[2].attempt = 2;
    leases.push(LeaseRef { job: JobId::new(), attempt: 1 });
    leases.push(leases[0]);

    bench.advance(LEASE - Duration::from_micros(1));
    let expiry = bench.now() + LEASE;
    let renewed = |cancel_requested| Renewed::Renewed { expiry, cancel_requested };
    let answer = bench.session.renew(bench.worker, &leases, LEASE).expect("no fault");
    let expected = [renewed(false), renewed(true), Renewed::Lost, Renewed::Lost, renewed(false)];
    assert_eq!((answer.rows.as_slice(), answer.store_time), (expected.as_slice(), bench.now()));
    assert_eq!(bench.record(jobs[0].id).expiry, Some(expiry));

    bench.advance(LEASE);
    let answer = bench.session.renew(bench.worker, &leases[..2], LEASE).expect("no fault");
    assert_eq!(answer.rows, [Renewed::Lost; 2]);
    let nothing = bench.session.renew(bench.worker, &[], LEASE).expect("no fault");
    assert_eq!(nothing.rows, []);
}

#[test]
fn a_lease_is_its_holders_only() {
    let mut bench = Bench::new();
    bench.enqueue(job());
    let leases = refs(&bench.claim(1));
    let other = WorkerId::new();
    let renewal = bench.session.renew(other, &leases, LEASE).expect("no fault");
    assert_eq!(renewal.rows, [Renewed::Lost]);
    assert_eq!(bench.session.hand_back(other, &leases).expect("no fault").rows, [false]);
}

#[test]
fn only_a_leased_job_is_held_whatever_else_its_row_says() {
    let mut bench = Bench::new();
    bench.enqueue(job());
    let jobs = bench.claim(1);
    let text = "PRAGMA ignore_check_constraints = ON; UPDATE backwave_jobs SET state = 0";
    bench.host().execute_batch(text).expect("done by hand");
    let (worker, leases) = (bench.worker, refs(&jobs));
    let renewal = bench.session.renew(worker, &leases, LEASE).expect("no fault");
    assert_eq!(renewal.rows, [Renewed::Lost]);
    assert_eq!(bench.session.hand_back(worker, &leases).expect("no fault").rows, [false]);
    assert_eq!(bench.session.held_by(worker).expect("no fault").leases, []);
    bench.advance(LEASE);
    let lapsed = bench.session.find_lapsed(&["default".to_owned()], 9).expect("no fault");
    assert_eq!(lapsed.jobs, []);
}

#[test]
fn a_hand_back_is_told_from_a_settlement_in_the_row() {
    let mut bench = Bench::new();
    bench.enqueue(job());
    let leases = refs(&bench.claim(1));
    bench.session.hand_back(bench.worker, &leases).expect("no fault");
    let settled: (u32, i16) = bench
        .host()
        .query_row("SELECT settled_attempt, settled_by FROM backwave_jobs", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .expect("a row");
    assert_eq!(settled, (1, SettledBy::HandBack.code()));
}

#[test]
fn a_hand_back_keeps_due_attempt_and_failures() {
    let mut bench = Bench::new();
    let mut row = job();
    row.due = Due::At(Timestamp::from_micros(START - 7));
    bench.enqueue_all(&[row, job()]);
    let jobs = bench.claim(2);
    let retry = bench.outcome(&jobs[0], Outcome::Retry { after: Duration::ZERO });
    bench.session.report(&[retry]).expect("no fault");
    let again = bench.claim(1);
    let due_at = bench.record(again[0].id).due_at;
    bench.advance(Duration::from_secs(1));
    let leases = [refs(&again)[0], refs(&jobs)[1], refs(&again)[0]];
    bench.session.request_cancel("ada", jobs[1].id).expect("no fault");

    let answer = bench.session.hand_back(bench.worker, &leases).expect("no fault");
    assert_eq!(answer.rows, [true, true, false]);
    let record = bench.record(again[0].id);
    assert_eq!((record.state, record.due_at), (JobState::Scheduled, due_at));
    assert_eq!((record.attempt, record.failures), (2, 1));
    let cancelled = bench.record(jobs[1].id);
    assert_eq!(cancelled.state, JobState::Cancelled);
    assert_eq!(cancelled.finished_at, Some(bench.now()));
    let repeated = bench.session.hand_back(bench.worker, &leases).expect("no fault");
    assert_eq!(repeated.rows, [false; 3]);
    assert_eq!(bench.claim(1)[0].attempt, 3);
}

#[test]
fn a_dead_lease_is_not_given_back() {
    let mut bench = Bench::new();
    bench.enqueue(job());
    let jobs = bench.claim(1);
    bench.advance(LEASE);
    let answer = bench.session.hand_back(bench.worker, &refs(&jobs)).expect("no fault");
    assert_eq!(answer.rows, [false]);
    assert_eq!(bench.state(jobs[0].id), JobState::Leased);
}

#[test]
fn dead_leases_of_the_queues_asked_for_are_found_the_longest_dead_first() {
    let mut bench = Bench::new();
    let mut first = job_in("a'\"");
    first.retry = Some(RetryPolicy::never());
    bench.enqueue_all(&[first.clone(), job_in("b")]);
    bench.claim_from(&[("b", 1), ("a'\"", 1)], 2, true);
    bench.advance(Duration::from_secs(1));
    let second = bench.enqueue(job_in("a'\""));
    bench.claim_from(&[("a'\"", 1)], 1, true);

    let queues = ["a'\"".to_owned(), "none".to_owned()];
    bench.advance(LEASE - Duration::from_secs(1) - Duration::from_micros(1));
    assert_eq!(bench.session.find_lapsed(&queues, 9).expect("no fault").jobs, []);
    bench.advance(Duration::from_micros(1));
    let lapsed = bench.session.find_lapsed(&queues, 9).expect("no fault").jobs;
    let [found] = lapsed.as_slice() else { panic!("{lapsed:?}") };
    assert_eq!((found.id, found.attempt, found.owner), (first.id, 1, bench.worker));
    assert_eq!((found.retry, found.expiry), (first.retry, bench.now()));
    assert_eq!((found.wire_name.as_str(), found.queue.as_str()), ("job", "a'\""));
    bench.advance(LEASE);
    let both = bench.session.find_lapsed(&queues, 9).expect("no fault").jobs;
    assert_eq!(both.iter().map(|job| job.id).collect::<Vec<_>>(), [first.id, second]);
    assert_eq!(bench.session.find_lapsed(&queues, 1).expect("no fault").jobs, lapsed);
}

#[test]
fn what_a_worker_holds_is_told_dead_leases_included() {
    let mut bench = Bench::new();
    bench.enqueue_all(&[job(), job(), job()]);
    let jobs = bench.claim(2);
    bench.advance(LEASE * 2);
    let mut expected: Vec<_> =
        refs(&jobs).into_iter().zip(jobs.iter().map(|job| job.expiry)).collect();
    expected.sort_by_key(|(lease, _)| lease.job);
    assert_eq!(bench.session.held_by(bench.worker).expect("no fault").leases, expected);
    assert_eq!(bench.session.held_by(WorkerId::new()).expect("no fault").leases, []);
}

#[test]
fn an_attempt_is_never_counted_back() {
    let mut bench = Bench::new();
    let id = bench.enqueue(job());
    for attempt in 1..=5 {
        let jobs = bench.claim(1);
        assert_eq!((jobs[0].id, jobs[0].attempt), (id, attempt));
        let answer = bench.session.hand_back(bench.worker, &refs(&jobs)).expect("no fault");
        assert_eq!(answer.rows, [true]);
    }
}
