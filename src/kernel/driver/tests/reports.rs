//! When outcomes go, with whom, and what the answers mean.

use super::*;

#[test]
fn an_outcome_goes_at_once_when_nothing_else_runs() {
    let (mut scene, runs) = Scene::running(4, 1);
    scene.finish_ok(&runs[0]);
    assert_eq!(outcomes(&scene.expect_report()), [Outcome::Succeeded]);
}

#[test]
fn an_outcome_waits_a_moment_while_others_run() {
    let (mut scene, runs) = Scene::running(8, 8);
    scene.finish_ok(&runs[0]);
    scene.nothing();
    let wake_at = scene.driver.wake_at().expect("it goes by itself");
    assert!(wake_at > scene.now && wake_at <= scene.now + ms(5));
    scene.pass_to_wake();
    let (rows, ask) = scene.expect_exchange();
    assert_eq!((rows.len(), ask.total), (1, 1));
}

#[test]
fn a_batch_goes_when_it_holds_half_of_the_pool() {
    let (mut scene, runs) = Scene::running(8, 8);
    for run in &runs[..3] {
        scene.finish_ok(run);
        scene.nothing();
    }
    scene.finish_ok(&runs[3]);
    assert_eq!(scene.expect_exchange().0.len(), 4);
}

#[test]
fn a_tick_takes_what_waits_along() {
    for event in [Event::PollDue, Event::HeartbeatDue] {
        let (mut scene, runs) = Scene::running(8, 8);
        scene.finish_ok(&runs[0]);
        scene.nothing();
        scene.tell(event);
        if let Some(Command::Renew { .. }) = scene.said.front() {
            scene.next();
        }
        assert_eq!(scene.expect_exchange().0.len(), 1);
    }
}

#[test]
fn a_report_and_the_next_claim_ride_one_exchange() {
    let (mut scene, runs) = Scene::running(2, 2);
    scene.finish_ok(&runs[0]);
    let (rows, ask) = scene.expect_exchange();
    assert_eq!(jobs(&rows), [runs[0].lease.job]);
    assert_eq!(ask.total, 1);
    scene.finish_ok(&runs[1]);
    scene.nothing();
    scene.written(&rows);
    scene.answer_claim(Vec::new());
    assert_eq!(scene.settle().len(), 1);
}

#[test]
fn the_driver_does_not_ask_to_be_woken_for_what_it_cannot_do() {
    let mut scene = Scene::new(2);
    let runs = scene.claim(1);
    scene.tick_poll();
    scene.expect_claim();
    // The claim is under way: the outcome waits for its answer, not for the clock.
    scene.finish_ok(&runs[0]);
    scene.nothing();
    assert_eq!(scene.driver.wake_at(), None);
    scene.answer_claim(Vec::new());
    assert_eq!(scene.settle().len(), 1);
}

#[test]
fn after_a_failed_exchange_the_outcomes_go_alone() {
    let (mut scene, runs) = Scene::running(2, 2);
    scene.finish_ok(&runs[0]);
    let (rows, _) = scene.expect_exchange();
    scene.report_failed(rows.clone(), true);
    scene.tell(Event::ClaimFailed { in_doubt: false });
    scene.nothing();
    assert_eq!(scene.driver.wake_at(), None);
    scene.tick_poll();
    let again = scene.expect_report();
    assert_eq!(again, rows, "the same rows with the same receipts");
    scene.nothing();
    scene.written(&again);
    assert_eq!(scene.expect_claim().total, 1);
}

#[test]
fn a_failed_report_is_not_tried_again_before_the_next_poll() {
    let (mut scene, runs) = Scene::running(2, 2);
    scene.finish_ok(&runs[0]);
    let (rows, _) = scene.expect_exchange();
    scene.report_failed(rows, false);
    scene.tell(Event::ClaimFailed { in_doubt: false });
    scene.finish_ok(&runs[1]);
    scene.pass(ms(900));
    scene.nothing();
    scene.tick_poll();
    assert_eq!(jobs(&scene.expect_report()), [runs[0].lease.job, runs[1].lease.job]);
}

#[test]
fn every_outcome_has_a_receipt_of_its_own() {
    let (mut scene, runs) = Scene::running(2, 2);
    scene.finish_ok(&runs[0]);
    let first = scene.settle();
    scene.finish_ok(&runs[1]);
    let second = scene.settle();
    assert_ne!(first[0].receipt, second[0].receipt);
    assert_eq!(first[0].receipt.pump, WORKER);
}

#[test]
fn outcomes_kept_through_an_outage_are_renewed_like_running_work() {
    let (mut scene, runs) = Scene::running(2, 2);
    scene.finish_ok(&runs[0]);
    let (rows, _) = scene.expect_exchange();
    scene.report_failed(rows, true);
    scene.tell(Event::ClaimFailed { in_doubt: false });
    scene.heartbeat();
    assert_eq!(scene.expect_renew(), [runs[1].lease, runs[0].lease]);
    // A finished one's lease that is lost changes nothing: only its report's answer does.
    let kept = Renewed::Renewed { expiry: scene.now + LEASE, cancel_requested: false };
    scene.tell(Event::Renewed(vec![kept, Renewed::Lost]));
    take!(scene, Command::Prolong { execution, .. } => assert_eq!(execution, runs[1].execution));
    scene.tick_poll();
    assert_eq!(jobs(&scene.expect_report()), [runs[0].lease.job]);
}

#[test]
fn what_a_failed_report_held_goes_before_what_was_decided_later() {
    let (mut scene, runs) = Scene::running(2, 2);
    scene.finish_ok(&runs[0]);
    let (rows, _) = scene.expect_exchange();
    scene.finish_ok(&runs[1]);
    scene.report_failed(rows, true);
    scene.tell(Event::ClaimFailed { in_doubt: false });
    scene.tick_poll();
    assert_eq!(jobs(&scene.expect_report()), [runs[0].lease.job, runs[1].lease.job]);
}

#[test]
fn settlement_is_told_after_the_store_said_applied() {
    let (mut scene, runs) = Scene::running(1, 1);
    scene.fail(&runs[0]);
    let (rows, _) = scene.expect_exchange();
    let told =
        |scene: &Scene| scene.notes.iter().any(|note| matches!(note, Note::AttemptEnded { .. }));
    assert!(!told(&scene));
    scene.written(&rows);
    assert!(told(&scene));
    let job = runs[0].lease.job;
    let due = scene.now + secs(2);
    assert!(scene.is_noted(&Note::WillRetry { job, attempt: 1, failures: 1, due }));
}

#[test]
fn what_was_written_before_counts_as_written() {
    let (mut scene, runs) = Scene::running(1, 1);
    scene.finish_ok(&runs[0]);
    let (rows, _) = scene.expect_exchange();
    scene.report_failed(rows, true);
    scene.tell(Event::ClaimFailed { in_doubt: false });
    scene.tick_poll();
    let rows = scene.expect_report();
    let reports = vec![RowReport::AlreadyApplied(JobState::Succeeded)];
    scene.tell(Event::Reported { rows, reports });
    scene.expect_claim();
    let (job, state) = (runs[0].lease.job, JobState::Succeeded);
    assert!(scene.is_noted(&Note::AttemptEnded { job, attempt: 1, state }));
}

#[test]
fn a_report_answered_with_another_number_of_rows_halts() {
    for count in [0, 2] {
        let (mut scene, runs) = Scene::running(2, 1);
        scene.finish_ok(&runs[0]);
        let rows = scene.expect_report();
        let reports = vec![RowReport::Applied(JobState::Succeeded); count];
        let trigger = InvariantTrigger::OutcomeBatchCountMismatch;
        scene.tell_halting(Event::Reported { rows, reports }, trigger);
    }
}

/// The triggers degraded when an outcome is refused so long after its lease was last told.
fn refused_after(age: Duration, reason: StaleReason, lease: Duration) -> Vec<InvariantTrigger> {
    let mut scene = Scene::of(DriverConfig { lease, ..config(1) });
    scene.expect_claim();
    let mut job = scene.new_job();
    job.expiry = scene.now + lease;
    let run = scene.give(vec![job])[0];
    scene.pass(age);
    scene.finish_ok(&run);
    let (rows, _) = scene.expect_exchange();
    scene.stale(rows, reason);
    assert_eq!(scene.lost(&run), Some(Lost::Refused(reason)));
    scene.degraded()
}

#[test]
fn an_outcome_refused_although_its_lease_was_believed_long_degrades() {
    let trigger = [InvariantTrigger::OutcomeFenceRejected];
    assert_eq!(refused_after(secs(29), StaleReason::Unknown, secs(60)), trigger);
    assert_eq!(refused_after(secs(30), StaleReason::Unknown, secs(60)), []);
    // The allowance is half of a short lease, and never more than 30 s.
    assert_eq!(refused_after(secs(4), StaleReason::Unknown, secs(10)), trigger);
    assert_eq!(refused_after(secs(6), StaleReason::Unknown, secs(10)), []);
    assert_eq!(refused_after(secs(565), StaleReason::Unknown, secs(600)), trigger);
    assert_eq!(refused_after(secs(571), StaleReason::Unknown, secs(600)), []);
}

#[test]
fn an_outcome_refused_for_a_reason_in_the_record_degrades_nothing() {
    for reason in
        [StaleReason::Lapsed, StaleReason::Reaped, StaleReason::Revoked, StaleReason::Gone]
    {
        assert_eq!(refused_after(secs(0), reason, secs(60)), []);
    }
}

#[test]
fn an_outcome_whose_first_report_failed_without_a_doubt_degrades() {
    let (mut scene, runs) = Scene::running(1, 1);
    scene.finish_ok(&runs[0]);
    let (rows, _) = scene.expect_exchange();
    scene.report_failed(rows, false);
    scene.tell(Event::ClaimFailed { in_doubt: false });
    scene.tick_poll();
    let rows = scene.expect_report();
    scene.stale(rows, StaleReason::Unknown);
    assert_eq!(scene.degraded(), [InvariantTrigger::OutcomeFenceRejected]);
}

#[test]
fn an_outcome_in_doubt_never_degrades() {
    let (mut scene, runs) = Scene::running(1, 1);
    scene.finish_ok(&runs[0]);
    let (rows, _) = scene.expect_exchange();
    scene.report_failed(rows, true);
    scene.tell(Event::ClaimFailed { in_doubt: false });
    // In doubt once, in doubt for good, also when a later try failed without doubt.
    scene.tick_poll();
    let rows = scene.expect_report();
    scene.report_failed(rows, false);
    scene.tick_poll();
    let rows = scene.expect_report();
    scene.stale(rows, StaleReason::Unknown);
    assert_eq!(scene.degraded(), []);
    assert_eq!(scene.lost(&runs[0]), Some(Lost::Refused(StaleReason::Unknown)));
}

#[test]
fn a_pump_whose_outcomes_pile_up_takes_nothing_new_on() {
    let (mut scene, _) = Scene::running(1, 0);
    let other = WorkerId::from_bytes([9; 16]);
    for page in 0..6 {
        scene.maintenance();
        take!(scene, Command::FindLapsed { .. } => ());
        let lapsed =
            (0..100).map(|n| LapsedJob::new(job_id(1_000 + page * 100 + n), 1, other, START));
        scene.tell(Event::LapsedFound(lapsed.collect()));
        if page == 0 {
            let rows = scene.expect_report();
            scene.report_failed(rows, false);
        }
        scene.nothing();
    }
    scene.tick_poll();
    assert_eq!(scene.settle().len(), 500);
    // What is left goes next, with a claim now that there is an end to it.
    assert_eq!(scene.settle().len(), 100);
}
