//! Time limits of attempts.

use super::*;

fn limited() -> (Scene, Run) {
    let mut scene = Scene::new(2);
    scene.expect_claim();
    let mut job = scene.new_job();
    job.timeout = Some(secs(9));
    let run = scene.give(vec![job])[0];
    (scene, run)
}

#[test]
fn a_limit_counts_from_the_handlers_start() {
    let (mut scene, run) = limited();
    scene.pass(secs(8));
    scene.tell(Event::Started { execution: run.execution });
    scene.pass(secs(8));
    scene.nothing();
    scene.pass_to_wake();
    assert_eq!(scene.now, START + secs(17));
    assert_eq!(scene.expect_cancel(), (run.execution, CancelReason::TimedOut));
    scene.quiet();
}

#[test]
fn a_handler_is_asked_once() {
    let (mut scene, run) = limited();
    scene.tell(Event::Started { execution: run.execution });
    scene.pass(secs(9));
    scene.expect_cancel();
    scene.pass(secs(9));
    scene.heartbeat();
    scene.expect_renew();
    scene.nothing();
    assert_eq!(scene.driver.wake_at(), None);
}

#[test]
fn an_attempt_that_ends_in_time_is_not_asked() {
    let (mut scene, run) = limited();
    scene.tell(Event::Started { execution: run.execution });
    scene.finish_ok(&run);
    scene.settle();
    assert_eq!(scene.driver.wake_at(), None);
    scene.pass(secs(9));
    scene.nothing();
}

#[test]
fn a_limit_that_passes_after_the_token_fired_wakes_nobody() {
    let (mut scene, run) = limited();
    scene.tell(Event::Started { execution: run.execution });
    scene.heartbeat();
    scene.expect_renew();
    scene.tell(Event::Renewed(vec![Renewed::Lost]));
    assert_eq!(scene.expect_cancel(), (run.execution, CancelReason::LeaseLost));
    scene.expect_withdraw();
    assert_eq!(scene.driver.wake_at(), None);
}

#[test]
fn a_handler_that_starts_after_its_token_fired_has_no_limit() {
    let (mut scene, run) = limited();
    scene.heartbeat();
    scene.expect_renew();
    let expiry = scene.now + LEASE;
    scene.tell(Event::Renewed(vec![Renewed::Renewed { expiry, cancel_requested: true }]));
    scene.said.clear();
    scene.tell(Event::Started { execution: run.execution });
    assert_eq!(scene.driver.wake_at(), None);
}

#[test]
fn a_handler_without_a_limit_is_never_asked() {
    let (mut scene, runs) = Scene::running(1, 1);
    scene.tell(Event::Started { execution: runs[0].execution });
    assert_eq!(scene.driver.wake_at(), None);
}
