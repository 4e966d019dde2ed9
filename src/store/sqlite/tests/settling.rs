use super::*;
use crate::invariant::InvariantTrigger;
use crate::store::{Body, CancelAnswer, LeaseRef, Mode, RequeueAnswer, RowReport, StaleReason};

fn report(bench: &mut Bench, row: &OutcomeRow) -> RowReport {
    let answer = bench.session.report(std::slice::from_ref(row)).expect("no fault");
    assert_eq!(answer.rows.len(), 1);
    answer.rows[0]
}

fn claimed(bench: &mut Bench) -> ClaimedJob {
    bench.enqueue(job());
    bench.claim(1).remove(0)
}

#[test]
fn each_outcome_leads_to_its_state() {
    let mut bench = Bench::new();
    let after = Duration::from_secs(3);
    let outcomes = [
        (Outcome::Succeeded, JobState::Succeeded, 0),
        (Outcome::Retry { after }, JobState::Scheduled, 1),
        (Outcome::Snooze { after }, JobState::Scheduled, 0),
        (Outcome::DeadLettered, JobState::DeadLettered, 1),
        (Outcome::Quarantined, JobState::Quarantined, 0),
        (Outcome::Cancelled, JobState::Cancelled, 0),
    ];
    bench.enqueue_all(&outcomes.map(|_| job()));
    let jobs = bench.claim(6);
    let mut rows: Vec<_> =
        jobs.iter().zip(outcomes).map(|(job, (outcome, ..))| bench.outcome(job, outcome)).collect();
    for row in &mut rows {
        row.output = Some(Body::new(format!("{{\"of\":\"{}\\u0000\"}}", row.job).into_bytes()));
        row.detail = Some(format!("été of {}", row.job));
    }
    let answer = bench.session.report(&rows).expect("no fault");
    for (((job, row), (outcome, state, failures)), report) in
        jobs.iter().zip(&rows).zip(outcomes).zip(answer.rows)
    {
        assert_eq!(report, RowReport::Applied(state));
        let record = bench.record(job.id);
        assert_eq!((record.state, record.failures, record.attempt), (state, failures, 1));
        assert_eq!((record.owner, record.expiry), (None, None));
        assert_eq!(record.output, row.output.clone().filter(|_| state == JobState::Succeeded));
        assert_eq!(record.failure_detail, row.detail);
        assert_eq!(record.finished_at, state.is_terminal().then(|| bench.now()));
        let due_at = outcome.delay().map_or(job.due_at, |delay| bench.now() + delay);
        assert_eq!(record.due_at, due_at);
    }
}

#[test]
fn a_detail_stays_until_another_replaces_it() {
    let mut bench = Bench::new();
    let first = claimed(&mut bench);
    let mut row = bench.outcome(&first, Outcome::Retry { after: Duration::ZERO });
    row.detail = Some("first".to_owned());
    report(&mut bench, &row);
    let second = bench.claim(1).remove(0);
    assert_eq!((second.id, second.attempt, second.failures), (first.id, 2, 1));
    let row = bench.outcome(&second, Outcome::Succeeded);
    report(&mut bench, &row);
    assert_eq!(bench.record(first.id).failure_detail.as_deref(), Some("first"));
}

#[test]
fn a_repeated_receipt_is_told_from_a_stale_one() {
    let mut bench = Bench::new();
    let job = claimed(&mut bench);
    let mut row = bench.outcome(&job, Outcome::Succeeded);
    row.receipt.sequence = u64::MAX;
    assert_eq!(report(&mut bench, &row), RowReport::Applied(JobState::Succeeded));
    assert_eq!(report(&mut bench, &row), RowReport::AlreadyApplied(JobState::Succeeded));
    let other = bench.outcome(&job, Outcome::DeadLettered);
    assert_eq!(report(&mut bench, &other), RowReport::Stale(StaleReason::Unknown));
    assert_eq!(bench.state(job.id), JobState::Succeeded);
}

#[test]
fn the_same_job_twice_in_one_batch_is_settled_once() {
    let mut bench = Bench::new();
    let job = claimed(&mut bench);
    let first = bench.outcome(&job, Outcome::Retry { after: Duration::ZERO });
    let second = bench.outcome(&job, Outcome::Succeeded);
    let answer = bench.session.report(&[first.clone(), first, second]).expect("no fault");
    let expected = [
        RowReport::Applied(JobState::Scheduled),
        RowReport::AlreadyApplied(JobState::Scheduled),
        RowReport::Stale(StaleReason::Unknown),
    ];
    assert_eq!(answer.rows, expected);
    assert_eq!(bench.record(job.id).failures, 1);
}

#[test]
fn a_stale_row_says_why_and_spares_its_neighbours() {
    let mut bench = Bench::new();
    let lapsed = claimed(&mut bench);
    bench.advance(LEASE);
    let mut row = bench.outcome(&lapsed, Outcome::Succeeded);
    assert_eq!(report(&mut bench, &row), RowReport::Stale(StaleReason::Lapsed));

    let mut reap = bench.outcome(&lapsed, Outcome::Retry { after: Duration::ZERO });
    reap.mode = Mode::Reap;
    assert_eq!(report(&mut bench, &reap), RowReport::Applied(JobState::Scheduled));
    assert_eq!(report(&mut bench, &row), RowReport::Stale(StaleReason::Reaped));

    let again = bench.claim(1).remove(0);
    assert_eq!((again.id, again.attempt, again.failures), (lapsed.id, 2, 1));
    assert_eq!(report(&mut bench, &row), RowReport::Stale(StaleReason::Reaped));
    row.job = JobId::new();
    let live = bench.outcome(&again, Outcome::Succeeded);
    let answer = bench.session.report(&[row, live]).expect("no fault");
    let expected = [RowReport::Stale(StaleReason::Gone), RowReport::Applied(JobState::Succeeded)];
    assert_eq!(answer.rows, expected);
}

#[test]
fn a_reaper_does_not_touch_a_live_lease() {
    let mut bench = Bench::new();
    let job = claimed(&mut bench);
    bench.advance(LEASE - Duration::from_micros(1));
    let mut reap = bench.outcome(&job, Outcome::DeadLettered);
    reap.mode = Mode::Reap;
    assert_eq!(report(&mut bench, &reap), RowReport::Stale(StaleReason::Lapsed));
    bench.advance(Duration::from_micros(1));
    assert_eq!(report(&mut bench, &reap), RowReport::Applied(JobState::DeadLettered));
}

#[test]
fn a_cancel_request_turns_a_retry_into_cancelled() {
    let mut bench = Bench::new();
    let job = claimed(&mut bench);
    assert_eq!(
        bench.session.request_cancel("ada", job.id).expect("no fault"),
        CancelAnswer::Requested
    );
    assert_eq!(
        bench.session.request_cancel("ada", job.id).expect("no fault"),
        CancelAnswer::Requested
    );
    let row = bench.outcome(&job, Outcome::Retry { after: Duration::from_secs(9) });
    assert_eq!(report(&mut bench, &row), RowReport::Applied(JobState::Cancelled));
    let record = bench.record(job.id);
    assert_eq!((record.failures, record.due_at), (1, job.due_at));
    let ended = CancelAnswer::Ended(JobState::Cancelled);
    assert_eq!(bench.session.request_cancel("ada", job.id).expect("no fault"), ended);
}

#[test]
fn a_waiting_job_is_cancelled_at_once() {
    let mut bench = Bench::new();
    let id = bench.enqueue(job());
    assert_eq!(bench.session.request_cancel("ada", id).expect("no fault"), CancelAnswer::Cancelled);
    assert_eq!(bench.record(id).finished_at, Some(bench.now()));
    assert_eq!(bench.claim(1), []);
    let nobody = bench.session.request_cancel("ada", JobId::new()).expect("no fault");
    assert_eq!(nobody, CancelAnswer::NotFound);
}

#[test]
fn a_requeue_starts_the_count_of_failures_anew_and_keeps_the_attempt() {
    let mut bench = Bench::new();
    let first = claimed(&mut bench);
    bench.session.request_cancel("ada", first.id).expect("no fault");
    let mut row = bench.outcome(&first, Outcome::Quarantined);
    row.detail = Some("unreadable".to_owned());
    assert_eq!(report(&mut bench, &row), RowReport::Applied(JobState::Quarantined));
    bench.advance(Duration::from_secs(1));
    assert_eq!(bench.session.requeue("ada", first.id).expect("no fault"), RequeueAnswer::Requeued);
    let record = bench.record(first.id);
    assert_eq!((record.state, record.failures, record.attempt), (JobState::Scheduled, 0, 1));
    assert_eq!((record.due_at, record.finished_at), (bench.now(), None));
    assert!(!record.cancel_requested);
    let again = RequeueAnswer::IllegalState(JobState::Scheduled);
    assert_eq!(bench.session.requeue("ada", first.id).expect("no fault"), again);
    assert_eq!(bench.claim(1)[0].attempt, 2);
    let nobody = bench.session.requeue("ada", JobId::new()).expect("no fault");
    assert_eq!(nobody, RequeueAnswer::NotFound);
}

#[test]
fn an_exchange_is_one_transaction() {
    let mut bench = Bench::new();
    let first = claimed(&mut bench);
    let second = bench.enqueue(job());
    let plan = [QueueQuota { queue: "default".to_owned(), quota: 1 }];
    let accepts = [Accepts { wire_name: "job".to_owned(), version_max: 1 }];
    let claim = Claim::new(bench.worker, 1, &plan, &accepts, LEASE);
    let row = bench.outcome(&first, Outcome::Succeeded);

    // The claim's half fails: the report's half must be undone with it.
    let host = bench.host();
    host.execute_batch(
        "CREATE TRIGGER stop BEFORE UPDATE ON backwave_jobs WHEN new.state = 2 \
         BEGIN SELECT raise(ABORT, 'stopped'); END",
    )
    .expect("a trigger");
    let error = bench.session.exchange(std::slice::from_ref(&row), &claim).expect_err("stopped");
    assert!(!error.session_lost(), "{error}");
    assert_eq!(bench.state(first.id), JobState::Leased);

    host.execute_batch("DROP TRIGGER stop").expect("dropped");
    let answer = bench.session.exchange(&[row], &claim).expect("no fault");
    assert_eq!(answer.reported.rows, [RowReport::Applied(JobState::Succeeded)]);
    assert_eq!(ids(&answer.claimed.jobs), [second]);
    assert_eq!(answer.reported.store_time, answer.claimed.store_time);
    let idle = bench.session.exchange(&[], &claim).expect("no fault");
    assert_eq!((idle.reported.rows.len(), idle.claimed.jobs.len()), (0, 0));
}

#[test]
fn a_write_that_touches_other_rows_than_it_locked_is_a_violation_and_undone() {
    let mut bench = Bench::new();
    let job = claimed(&mut bench);
    let failed = claimed(&mut bench);
    let row = bench.outcome(&failed, Outcome::DeadLettered);
    bench.session.report(&[row]).expect("no fault");
    let waiting = bench.enqueue(job_in("elsewhere"));
    bench
        .host()
        .execute_batch(
            "CREATE TRIGGER lie BEFORE UPDATE ON backwave_jobs BEGIN SELECT raise(IGNORE); END",
        )
        .expect("a trigger");
    let row = bench.outcome(&job, Outcome::Succeeded);
    let (worker, lease) = (bench.worker, [LeaseRef { job: job.id, attempt: job.attempt }]);
    let plan = [QueueQuota { queue: "elsewhere".to_owned(), quota: 1 }];
    let accepts = [Accepts { wire_name: "job".to_owned(), version_max: 1 }];
    let claim = Claim::new(worker, 1, &plan, &accepts, LEASE);
    let session = &mut bench.session;
    let told = [
        ("a report", session.report(&[row]).map(drop)),
        ("a renewal", session.renew(worker, &lease, LEASE).map(drop)),
        ("a hand-back", session.hand_back(worker, &lease).map(drop)),
        ("a cancel request", session.request_cancel("ada", job.id).map(drop)),
        ("a cancellation", session.request_cancel("ada", waiting).map(drop)),
        ("a requeue", session.requeue("ada", failed.id).map(drop)),
        ("a claim", session.claim(&claim).map(drop)),
    ];
    for (what, answer) in told {
        let error = answer.expect_err(what);
        assert_eq!(error.trigger(), Some(InvariantTrigger::UnexpectedAffectedRowCount), "{what}");
        assert!(error.to_string().contains(&format!("{what} touched 0 rows")), "{error}");
    }
    assert_eq!(bench.state(job.id), JobState::Leased);
    assert_eq!(bench.state(failed.id), JobState::DeadLettered);
    assert_eq!(bench.state(waiting), JobState::Scheduled);
}

#[test]
fn a_number_that_is_no_state_is_never_guessed() {
    let mut bench = Bench::new();
    let job = claimed(&mut bench);
    let host = bench.host();
    let set = |sql: &str| {
        host.execute_batch(&format!("PRAGMA ignore_check_constraints = ON; {sql}")).expect("set");
    };
    let undefined = Some(InvariantTrigger::UndefinedEnumValueStored);
    set("UPDATE backwave_jobs SET settled_by = 9, settled_attempt = 1");
    let row = bench.outcome(&job, Outcome::Succeeded);
    let error = bench.session.report(std::slice::from_ref(&row)).expect_err("no such hand");
    assert_eq!(error.trigger(), undefined);
    set("UPDATE backwave_jobs SET state = 7, owner = NULL, expiry = NULL, settled_by = 0");
    let errors = [
        bench.session.report(&[row]).expect_err("no such state").trigger(),
        bench.session.job(job.id).expect_err("no such state").trigger(),
        bench.session.counts().expect_err("no such state").trigger(),
        bench.session.request_cancel("ada", job.id).expect_err("no such state").trigger(),
    ];
    assert_eq!(errors, [undefined; 4]);
}

#[test]
fn a_row_cannot_be_half_leased_or_half_ended() {
    let mut bench = Bench::new();
    claimed(&mut bench);
    let host = bench.host();
    for half in [
        "owner = NULL",
        "expiry = NULL",
        "state = 0",
        "state = 3",
        "finished_at = 1",
        "state = -1",
        "receipt_pump = randomblob(16)",
        "settled_by = 1",
        "owner = x'00'",
    ] {
        let error = host.execute(&format!("UPDATE backwave_jobs SET {half}"), []).expect_err(half);
        assert!(error.to_string().contains("CHECK constraint failed"), "{half}: {error}");
    }
}

#[test]
fn the_view_shows_a_job_readably() {
    let mut bench = Bench::new();
    let mut row = job();
    row.payload = Body::new(format!("{{\"a\":\"{}\"}}", "é".repeat(2000)).into_bytes());
    bench.enqueue(row.clone());
    let shown: (String, String, String, String) = bench
        .host()
        .query_row("SELECT id, state, due_at, payload FROM backwave_jobs_v1", [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .expect("a row");
    let payload = String::from_utf8(row.payload.into_bytes()).expect("it is");
    let time = "2027-01-15T08:00:00.000Z".to_owned();
    assert_eq!(shown, (row.id.to_string(), "Scheduled".to_owned(), time, payload));
}

#[test]
fn jobs_are_counted_by_queue_and_state() {
    let mut bench = Bench::new();
    bench.enqueue_all(&[job_in("b"), job_in("a"), job_in("b"), job_in("b")]);
    let jobs = bench.claim_from(&[("b", 2)], 2, true).jobs;
    let row = bench.outcome(&jobs[0], Outcome::Succeeded);
    report(&mut bench, &row);
    let counts = bench.session.counts().expect("no fault");
    let shown: Vec<_> =
        counts.iter().map(|count| (count.queue.as_str(), count.state, count.count)).collect();
    let expected = [
        ("a", JobState::Scheduled, 1),
        ("b", JobState::Scheduled, 1),
        ("b", JobState::Leased, 1),
        ("b", JobState::Succeeded, 1),
    ];
    assert_eq!(shown, expected);
}
