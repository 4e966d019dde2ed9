//! The fence in SQL: it must say what `store::fence` says.

use super::*;
use crate::JobState;
use crate::invariant::InvariantTrigger;
use crate::store::{Body, Mode, Renewed, StaleReason};

/// One claimed job in a fresh place.
fn claimed() -> (Place, Box<dyn Session>, WorkerId, ClaimedJob) {
    let place = Place::new();
    let mut session = place.session();
    add(session.as_mut(), &[row("q", -1)]);
    let me = WorkerId::new();
    let job = take(session.as_mut(), me, "q", 1).jobs.remove(0);
    (place, session, me, job)
}

#[test]
fn each_outcome_leads_to_its_state_and_counts_its_failure() {
    let place = Place::new();
    let mut session = place.session();
    let after = Duration::from_secs(7);
    let table = [
        (Outcome::Succeeded, JobState::Succeeded, 0),
        (Outcome::Retry { after }, JobState::Scheduled, 1),
        (Outcome::Snooze { after }, JobState::Scheduled, 0),
        (Outcome::DeadLettered, JobState::DeadLettered, 1),
        (Outcome::Quarantined, JobState::Quarantined, 0),
        (Outcome::Cancelled, JobState::Cancelled, 0),
    ];
    let rows: Vec<_> = (0..6).map(|i| row("q", i - 10)).collect();
    add(session.as_mut(), &rows);
    let me = WorkerId::new();
    let jobs = take(session.as_mut(), me, "q", 6).jobs;
    let mut report: Vec<_> =
        jobs.iter().zip(table).map(|(job, (o, _, _))| outcome(job, me, o)).collect();
    for row in &mut report {
        row.output = Some(Body::new(b"1".to_vec()));
        row.detail = Some("a \0 detail".to_owned());
    }
    report.reverse();
    let reported = session.report(&report).unwrap();
    assert_eq!(reported.store_time, START);
    for (row, (_, state, failures)) in reported.rows.iter().rev().zip(table) {
        assert_eq!(*row, RowReport::Applied(state), "{failures}");
    }
    for (job, (_, state, failures)) in jobs.iter().zip(table) {
        let record = record(session.as_mut(), job.id);
        assert_eq!((record.state, record.failures, record.attempt), (state, failures, 1));
        assert_eq!((record.owner, record.expiry), (None, None));
        assert_eq!(record.output.is_some(), state == JobState::Succeeded);
        assert_eq!(record.finished_at, state.is_terminal().then_some(START));
        assert_eq!(record.failure_detail.as_deref(), Some("a \u{fffd} detail"));
        let due = if state == JobState::Scheduled { START + after } else { job.due_at };
        assert_eq!(record.due_at, due);
    }
}

#[test]
fn a_repeated_receipt_is_told_from_a_stale_outcome() {
    let (_place, mut session, me, job) = claimed();
    let done = outcome(&job, me, Outcome::Succeeded);
    let applied = RowReport::Applied(JobState::Succeeded);
    assert_eq!(report_one(session.as_mut(), &done), applied);
    let again = RowReport::AlreadyApplied(JobState::Succeeded);
    assert_eq!(report_one(session.as_mut(), &done), again);
    let other = outcome(&job, me, Outcome::Succeeded);
    assert_eq!(report_one(session.as_mut(), &other), RowReport::Stale(StaleReason::Unknown));
}

#[test]
fn a_lease_is_dead_at_its_expiry_instant_for_its_holder_and_not_before_for_a_reaper() {
    let (place, mut session, me, job) = claimed();
    let lapsed = RowReport::Stale(StaleReason::Lapsed);
    let mut reap = outcome(&job, me, Outcome::Retry { after: Duration::ZERO });
    reap.mode = Mode::Reap;
    place.set_clock(Timestamp::from_micros(job.expiry.as_micros() - 1));
    assert_eq!(report_one(session.as_mut(), &reap), lapsed);
    place.set_clock(job.expiry);
    let done = outcome(&job, me, Outcome::Succeeded);
    assert_eq!(report_one(session.as_mut(), &done), lapsed);
    let applied = RowReport::Applied(JobState::Scheduled);
    assert_eq!(report_one(session.as_mut(), &reap), applied);
    assert_eq!(record(session.as_mut(), job.id).failures, 1);
    let reaped = RowReport::Stale(StaleReason::Reaped);
    assert_eq!(report_one(session.as_mut(), &done), reaped);
}

#[test]
fn the_record_tells_why_an_outcome_is_stale() {
    let (_place, mut session, me, job) = claimed();
    let stale = RowReport::Stale;
    let mut gone = outcome(&job, me, Outcome::Succeeded);
    gone.job = JobId::new();
    assert_eq!(report_one(session.as_mut(), &gone), stale(StaleReason::Gone));
    let stranger = outcome(&job, WorkerId::new(), Outcome::Succeeded);
    assert_eq!(report_one(session.as_mut(), &stranger), stale(StaleReason::Unknown));
    let mut later = outcome(&job, me, Outcome::Succeeded);
    later.attempt = 2;
    assert_eq!(report_one(session.as_mut(), &later), stale(StaleReason::Unknown));
    // Attempt 1 is given back, attempt 2 is settled: attempt 1 has long been settled.
    assert_eq!(session.hand_back(me, &[lease_of(&job)]).unwrap().rows, [true]);
    let first = outcome(&job, me, Outcome::Succeeded);
    assert_eq!(report_one(session.as_mut(), &first), stale(StaleReason::Unknown));
    let second = take(session.as_mut(), me, "q", 1).jobs.remove(0);
    assert_eq!(second.attempt, 2);
    report_one(session.as_mut(), &outcome(&second, me, Outcome::Succeeded));
    assert_eq!(report_one(session.as_mut(), &first), stale(StaleReason::Reaped));
}

#[test]
fn what_an_operator_ended_is_revoked() {
    let (place, mut session, me, job) = claimed();
    let text = format!(
        "UPDATE \"{}\".jobs SET state = 0, owner = NULL, expiry = NULL, settled_attempt = 1, settled_by = 4",
        place.schema
    );
    raw().batch_execute(&text).unwrap();
    let done = outcome(&job, me, Outcome::Succeeded);
    assert_eq!(report_one(session.as_mut(), &done), RowReport::Stale(StaleReason::Revoked));
}

#[test]
fn only_a_leased_job_is_held_whatever_else_its_row_says() {
    let (place, mut session, me, job) = claimed();
    let text = format!(
        "ALTER TABLE \"{0}\".jobs DROP CONSTRAINT jobs_lease_complete; UPDATE \"{0}\".jobs SET state = 0",
        place.schema
    );
    raw().batch_execute(&text).unwrap();
    let unknown = RowReport::Stale(StaleReason::Unknown);
    assert_eq!(report_one(session.as_mut(), &outcome(&job, me, Outcome::Succeeded)), unknown);
    let lease = [lease_of(&job)];
    assert_eq!(session.renew(me, &lease, LEASE).unwrap().rows, [Renewed::Lost]);
    assert_eq!(session.hand_back(me, &lease).unwrap().rows, [false]);
    assert_eq!(session.held_by(me).unwrap().leases, []);
    place.set_clock(job.expiry);
    assert_eq!(session.find_lapsed(&["q".to_owned()], 9).unwrap().jobs, []);
    let mut reap = outcome(&job, me, Outcome::Retry { after: Duration::ZERO });
    reap.mode = Mode::Reap;
    assert_eq!(report_one(session.as_mut(), &reap), unknown);
}

#[test]
fn a_standing_cancel_request_turns_what_would_run_again_into_cancelled() {
    let place = Place::new();
    let mut session = place.session();
    add(session.as_mut(), &(0..4).map(|i| row("q", i - 9)).collect::<Vec<_>>());
    let me = WorkerId::new();
    let jobs = take(session.as_mut(), me, "q", 4).jobs;
    for job in &jobs {
        session.request_cancel("ada", job.id).unwrap();
    }
    let after = Duration::from_secs(1);
    let outcomes = [
        Outcome::Retry { after },
        Outcome::Snooze { after },
        Outcome::DeadLettered,
        Outcome::Succeeded,
    ];
    let report: Vec<_> = jobs.iter().zip(outcomes).map(|(job, o)| outcome(job, me, o)).collect();
    let states = session.report(&report).unwrap().rows;
    let cancelled = RowReport::Applied(JobState::Cancelled);
    assert_eq!(states, [cancelled, cancelled, cancelled, RowReport::Applied(JobState::Succeeded)]);
    let first = record(session.as_mut(), jobs[0].id);
    assert_eq!((first.failures, first.due_at), (1, jobs[0].due_at));
}

#[test]
fn one_row_that_is_stale_or_twice_there_does_not_disturb_the_others() {
    let place = Place::new();
    let mut session = place.session();
    add(session.as_mut(), &[row("q", -2), row("q", -1)]);
    let me = WorkerId::new();
    let jobs = take(session.as_mut(), me, "q", 2).jobs;
    let first = outcome(&jobs[0], me, Outcome::Succeeded);
    let mut gone = first.clone();
    gone.job = JobId::new();
    let second = outcome(&jobs[1], me, Outcome::DeadLettered);
    let rows = [second.clone(), gone, first.clone(), first, second];
    let reported = session.report(&rows).unwrap().rows;
    let expected = [
        RowReport::Applied(JobState::DeadLettered),
        RowReport::Stale(StaleReason::Gone),
        RowReport::Applied(JobState::Succeeded),
        RowReport::AlreadyApplied(JobState::Succeeded),
        RowReport::AlreadyApplied(JobState::DeadLettered),
    ];
    assert_eq!(reported, expected);
}

#[test]
fn an_exchange_reports_and_claims() {
    let place = Place::new();
    let mut session = place.session();
    let rows = [row("q", -2), row("q", -1)];
    add(session.as_mut(), &rows);
    let me = WorkerId::new();
    let first = take(session.as_mut(), me, "q", 1).jobs.remove(0);
    let (plan, accepts) = (plan(&[("q", 9)]), accepts("work", 1));
    let claim = Claim::new(me, 9, &plan, &accepts, LEASE);
    // A retry without delay is claimed again by the very same exchange.
    let retry = outcome(&first, me, Outcome::Retry { after: Duration::ZERO });
    let both = session.exchange(&[retry.clone(), retry], &claim).unwrap();
    assert_eq!(both.reported.rows[0], RowReport::Applied(JobState::Scheduled));
    assert_eq!(ids(&both.claimed), [rows[1].id, rows[0].id]);
    let ends: Vec<_> =
        both.claimed.jobs.iter().map(|job| outcome(job, me, Outcome::Succeeded)).collect();
    let last = session.exchange(&ends, &claim).unwrap();
    assert_eq!(last.reported.rows, [RowReport::Applied(JobState::Succeeded); 2]);
    assert_eq!((last.claimed.jobs.len(), last.reported.store_time), (0, START));
    let nothing = session.exchange(&[], &claim).unwrap();
    assert_eq!((nothing.reported.rows.len(), nothing.claimed.jobs.len()), (0, 0));
    assert_eq!(session.report(&[]).unwrap().rows, []);
}

#[test]
fn an_endless_delay_ends_at_the_latest_instant() {
    let (_place, mut session, me, job) = claimed();
    let snooze = outcome(&job, me, Outcome::Snooze { after: Duration::MAX });
    assert_eq!(report_one(session.as_mut(), &snooze), RowReport::Applied(JobState::Scheduled));
    assert_eq!(record(session.as_mut(), job.id).due_at, Timestamp::MAX);
}

#[test]
fn a_stored_state_that_is_none_halts_and_leaves_everything_as_it_was() {
    let place = Place::new();
    let mut session = place.session();
    add(session.as_mut(), &[row("q", -2), row("q", -1)]);
    let me = WorkerId::new();
    let jobs = take(session.as_mut(), me, "q", 2).jobs;
    let text = format!(
        "ALTER TABLE \"{0}\".jobs DROP CONSTRAINT jobs_state_known; \
         UPDATE \"{0}\".jobs SET state = 99, owner = NULL, expiry = NULL, finished_at = now() \
         WHERE id = '{1}'",
        place.schema, jobs[0].id
    );
    raw().batch_execute(&text).unwrap();
    let unknown = Some(InvariantTrigger::UndefinedEnumValueStored);
    let rows: Vec<_> = jobs.iter().map(|job| outcome(job, me, Outcome::Succeeded)).collect();
    assert_eq!(session.report(&rows).unwrap_err().trigger(), unknown);
    assert_eq!(session.job(jobs[0].id).unwrap_err().trigger(), unknown);
    assert_eq!(session.counts().unwrap_err().trigger(), unknown);
    assert_eq!(session.request_cancel("ada", jobs[0].id).unwrap_err().trigger(), unknown);
    assert_eq!(record(session.as_mut(), jobs[1].id).state, JobState::Leased);
}

#[test]
fn the_numbers_next_to_the_known_ones_are_no_states_and_no_settlers() {
    for (set, what) in [
        ("state = 7, owner = NULL, expiry = NULL, finished_at = now()", "above the states"),
        ("state = -1, owner = NULL, expiry = NULL", "below the states"),
        ("settled_attempt = 1, settled_by = 5", "above the settlers"),
        ("settled_attempt = 1, settled_by = 0", "below the settlers"),
    ] {
        let (place, mut session, me, job) = claimed();
        // Beside it in the report: one whose record is complete and sound.
        add(session.as_mut(), &[row("q", -1)]);
        let first = take(session.as_mut(), me, "q", 1).jobs.remove(0);
        let again = Outcome::Retry { after: Duration::ZERO };
        report_one(session.as_mut(), &outcome(&first, me, again));
        let sound = take(session.as_mut(), me, "q", 1).jobs.remove(0);
        let text = format!(
            "ALTER TABLE \"{0}\".jobs DROP CONSTRAINT jobs_state_known; \
             UPDATE \"{0}\".jobs SET {set} WHERE id = '{1}'",
            place.schema, job.id
        );
        raw().batch_execute(&text).unwrap();
        let rows = [&job, &sound].map(|job| outcome(job, me, Outcome::Succeeded));
        let error = session.report(&rows).expect_err(what);
        assert_eq!(error.trigger(), Some(InvariantTrigger::UndefinedEnumValueStored), "{what}");
        assert_eq!(record(session.as_mut(), sound.id).state, JobState::Leased, "{what}");
    }
}

#[test]
fn a_write_that_touches_another_number_of_rows_halts_and_is_rolled_back() {
    let (place, mut session, me, job) = claimed();
    add(session.as_mut(), &[row("q", -1)]);
    let held = take(session.as_mut(), me, "q", 1).jobs.remove(0);
    session.report(&[outcome(&held, me, Outcome::DeadLettered)]).unwrap();
    let text = format!(
        "CREATE FUNCTION \"{0}\".lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$; \
         CREATE TRIGGER lose BEFORE UPDATE ON \"{0}\".jobs FOR EACH ROW EXECUTE FUNCTION \"{0}\".lose()",
        place.schema
    );
    raw().batch_execute(&text).unwrap();
    let trigger = Some(InvariantTrigger::UnexpectedAffectedRowCount);
    let done = outcome(&job, me, Outcome::Succeeded);
    assert_eq!(session.report(&[done]).unwrap_err().trigger(), trigger);
    assert_eq!(session.renew(me, &[lease_of(&job)], LEASE).unwrap_err().trigger(), trigger);
    assert_eq!(session.hand_back(me, &[lease_of(&job)]).unwrap_err().trigger(), trigger);
    assert_eq!(session.request_cancel("ada", job.id).unwrap_err().trigger(), trigger);
    assert_eq!(session.requeue("ada", held.id).unwrap_err().trigger(), trigger);
    add(session.as_mut(), &[row("q", -1)]);
    let (plan, accepts) = (plan(&[("q", 9)]), accepts("work", 1));
    let claim = Claim::new(me, 9, &plan, &accepts, LEASE);
    assert_eq!(session.claim(&claim).unwrap_err().trigger(), trigger);
    assert_eq!(record(session.as_mut(), job.id).state, JobState::Leased);
}
