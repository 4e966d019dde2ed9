//! The clean stop.

use super::*;

fn stopping(workers: u32, count: u32) -> (Scene, Vec<Run>) {
    let (mut scene, runs) = Scene::running(workers, count);
    scene.stop();
    for run in &runs {
        assert_eq!(scene.expect_withdraw(), run.execution);
    }
    (scene, runs)
}

#[test]
fn an_idle_pump_stops_at_once() {
    let (mut scene, _) = Scene::running(2, 0);
    scene.stop();
    scene.expect_stopped();
}

#[test]
fn a_stopping_pump_waits_for_what_runs_and_reports_it_at_once() {
    let (mut scene, runs) = stopping(4, 4);
    scene.nothing();
    scene.finish_ok(&runs[0]);
    assert_eq!(outcomes(&scene.settle()), [Outcome::Succeeded]);
    scene.fail(&runs[1]);
    scene.settle();
    scene.finish_ok(&runs[2]);
    scene.settle();
    scene.nothing();
    scene.finish_ok(&runs[3]);
    scene.settle();
    scene.expect_stopped();
}

#[test]
fn a_stopping_pump_claims_nothing() {
    let (mut scene, _) = stopping(4, 1);
    scene.tick_poll();
    scene.tell(Event::Woken { due: scene.now });
    scene.nothing();
    assert_eq!(scene.driver.wake_at(), None);
}

#[test]
fn what_had_not_begun_is_handed_back() {
    let (mut scene, runs) = stopping(2, 2);
    scene.not_started(&runs[1]);
    assert_eq!(scene.hand_back(), [runs[1].lease]);
    scene.nothing();
    scene.finish_ok(&runs[0]);
    scene.settle();
    scene.expect_stopped();
}

#[test]
fn a_claim_answered_while_stopping_is_handed_back() {
    let mut scene = Scene::new(2);
    scene.expect_claim();
    scene.stop();
    scene.nothing();
    let jobs = scene.new_jobs(2);
    let expected: Vec<_> =
        jobs.iter().map(|job| LeaseRef { job: job.id, attempt: job.attempt }).collect();
    scene.answer_claim(jobs);
    assert_eq!(scene.hand_back(), expected);
    scene.expect_stopped();
}

#[test]
fn leases_are_kept_while_handlers_end() {
    let (mut scene, runs) = stopping(2, 2);
    scene.heartbeat();
    assert_eq!(scene.expect_renew(), leases(&runs));
}

#[test]
fn tokens_fire_when_the_grace_ends_and_who_gives_way_is_handed_back() {
    let (mut scene, runs) = stopping(1, 1);
    scene.tell(Event::GraceEnded);
    let stop = CancelReason::GroupStopping;
    assert_eq!(scene.expect_cancel(), (runs[0].execution, stop));
    scene.finish(&runs[0], failed(Verdict::GaveWay(stop)), Some(stop));
    assert_eq!(scene.hand_back(), [runs[0].lease]);
    scene.expect_stopped();
}

#[test]
fn at_the_deadline_what_still_runs_is_handed_back_and_named() {
    let (mut scene, runs) = stopping(2, 2);
    scene.tell(Event::GraceEnded);
    scene.expect_cancel();
    scene.expect_cancel();
    scene.tell(Event::DrainDeadline);
    assert_eq!(scene.hand_back(), leases(&runs));
    let jobs = runs.iter().map(|run| run.lease.job).collect();
    assert!(scene.is_noted(&Note::BudgetExhausted { jobs }));
    scene.expect_stopped();
    // What the handlers return after that is nobody's business.
    scene.finish_ok(&runs[0]);
    scene.tick_poll();
    scene.heartbeat();
    scene.nothing();
}

#[test]
fn the_deadline_alone_fires_the_tokens() {
    let (mut scene, runs) = stopping(1, 1);
    scene.tell(Event::DrainDeadline);
    let expected = (runs[0].execution, CancelReason::GroupStopping);
    assert_eq!(scene.expect_cancel(), expected);
    scene.hand_back();
    scene.expect_stopped();
}

#[test]
fn without_a_budget_leases_are_left_to_lapse() {
    let (mut scene, runs) = Scene::running(2, 2);
    scene.tell(Event::StopRequested { hand_back: false });
    scene.expect_withdraw();
    scene.expect_withdraw();
    scene.not_started(&runs[0]);
    scene.tell(Event::DrainDeadline);
    assert_eq!(scene.expect_cancel().0, runs[1].execution);
    scene.expect_stopped();
}

#[test]
fn without_a_budget_nothing_found_held_is_handed_back_either() {
    let mut scene = Scene::new(2);
    scene.expect_claim();
    scene.tell(Event::ClaimFailed { in_doubt: true });
    scene.tick_poll();
    scene.expect_find_held();
    scene.tell(Event::StopRequested { hand_back: false });
    scene.tell(Event::HeldFound(vec![LeaseRef { job: job_id(900), attempt: 1 }]));
    scene.expect_stopped();
}

#[test]
fn stopping_twice_is_stopping_once() {
    let (mut scene, runs) = stopping(1, 1);
    scene.stop();
    scene.tell(Event::StopRequested { hand_back: false });
    scene.nothing();
    scene.tell(Event::DrainDeadline);
    scene.expect_cancel();
    assert_eq!(scene.hand_back(), leases(&runs));
    scene.expect_stopped();
    scene.tell(Event::DrainDeadline);
    scene.stop();
    scene.nothing();
}

#[test]
fn a_stop_during_an_outage_keeps_trying_until_the_deadline() {
    let (mut scene, runs) = stopping(2, 2);
    scene.finish_ok(&runs[0]);
    for _ in 0..3 {
        let rows = scene.expect_report();
        scene.report_failed(rows, true);
        scene.nothing();
        scene.tick_poll();
    }
    let rows = scene.expect_report();
    scene.report_failed(rows, true);
    scene.tell(Event::DrainDeadline);
    scene.expect_cancel();
    assert_eq!(scene.expect_hand_back(), [runs[1].lease]);
    scene.tell(Event::HandBackFailed);
    scene.expect_stopped();
}

#[test]
fn a_stop_ends_after_the_deadline_once_the_last_answer_is_there() {
    let (mut scene, runs) = stopping(1, 1);
    scene.finish_ok(&runs[0]);
    let rows = scene.expect_report();
    scene.tell(Event::DrainDeadline);
    scene.nothing();
    scene.report_failed(rows, true);
    scene.expect_stopped();
    // A tick after that revives nothing, nor does it ask for a wake-up.
    scene.tick_poll();
    scene.nothing();
    assert_eq!(scene.driver.wake_at(), None);
}

#[test]
fn a_stop_waits_for_every_answer_it_is_owed() {
    let (mut scene, runs) = stopping(1, 1);
    scene.heartbeat();
    scene.expect_renew();
    scene.finish_ok(&runs[0]);
    scene.settle();
    scene.nothing();
    scene.tell(Event::RenewFailed);
    scene.expect_stopped();
}

#[test]
fn a_claim_in_doubt_is_asked_after_once_more_before_the_end() {
    let mut scene = Scene::new(2);
    scene.expect_claim();
    scene.tell(Event::ClaimFailed { in_doubt: true });
    scene.tick_poll();
    scene.expect_find_held();
    scene.tell(Event::HeldFound(Vec::new()));
    scene.claim(0);
    scene.stop();
    scene.expect_find_held();
    let lease = LeaseRef { job: job_id(900), attempt: 1 };
    scene.tell(Event::HeldFound(vec![lease]));
    assert_eq!(scene.hand_back(), [lease]);
    scene.expect_stopped();
}

#[test]
fn a_claim_whose_answer_is_lost_while_stopping_is_asked_after_before_the_end() {
    let mut scene = Scene::new(2);
    scene.expect_claim();
    scene.stop();
    scene.tell(Event::ClaimFailed { in_doubt: true });
    scene.nothing();
    scene.tick_poll();
    scene.expect_find_held();
    let lease = LeaseRef { job: job_id(900), attempt: 1 };
    scene.tell(Event::HeldFound(vec![lease]));
    assert_eq!(scene.hand_back(), [lease]);
    scene.expect_find_held();
    scene.tell(Event::HeldFound(Vec::new()));
    scene.expect_stopped();
}

#[test]
fn the_last_question_failing_does_not_keep_the_pump_beyond_the_deadline() {
    let mut scene = Scene::new(2);
    scene.expect_claim();
    scene.stop();
    scene.tell(Event::ClaimFailed { in_doubt: true });
    scene.tick_poll();
    scene.expect_find_held();
    scene.tell(Event::FindHeldFailed);
    scene.nothing();
    scene.tell(Event::DrainDeadline);
    scene.expect_stopped();
}

#[test]
fn a_violation_while_draining_still_halts() {
    let (mut scene, runs) = stopping(1, 1);
    scene.finish_ok(&runs[0]);
    let rows = scene.expect_report();
    let trigger = InvariantTrigger::OutcomeBatchCountMismatch;
    scene.tell_halting(Event::Reported { rows, reports: Vec::new() }, trigger);
}
