//! Heartbeats.

use super::*;

fn renewed(scene: &Scene) -> Renewed {
    Renewed::Renewed { expiry: scene.now + LEASE, cancel_requested: false }
}

#[test]
fn a_heartbeat_renews_what_runs_and_prolongs_it() {
    let (mut scene, runs) = Scene::running(2, 2);
    scene.pass(secs(20));
    scene.heartbeat();
    assert_eq!(scene.expect_renew(), leases(&runs));
    let row = renewed(&scene);
    scene.tell(Event::Renewed(vec![row, row]));
    for run in &runs {
        take!(scene, Command::Prolong { execution, expiry } => {
            assert_eq!((execution, expiry), (run.execution, scene.now + LEASE));
        });
    }
    scene.pass(secs(59));
    scene.tick_poll();
    assert!(scene.lost(&runs[0]).is_some(), "lost only once the prolonged lease has passed");
}

#[test]
fn an_idle_pump_renews_nothing() {
    let (mut scene, _) = Scene::running(2, 0);
    scene.heartbeat();
    scene.nothing();
}

#[test]
fn one_renewal_is_under_way_at_a_time() {
    let (mut scene, _) = Scene::running(2, 2);
    scene.heartbeat();
    scene.expect_renew();
    scene.heartbeat();
    scene.nothing();
}

#[test]
fn a_renewal_answered_with_another_number_of_rows_halts() {
    for count in [0, 1, 3] {
        let (mut scene, _) = Scene::running(2, 2);
        scene.heartbeat();
        scene.expect_renew();
        let rows = vec![renewed(&scene); count];
        let trigger = InvariantTrigger::HeartbeatBatchCountMismatch;
        scene.tell_halting(Event::Renewed(rows), trigger);
    }
}

#[test]
fn a_failed_renewal_is_tried_again_at_the_next_poll() {
    let (mut scene, runs) = Scene::running(2, 2);
    scene.heartbeat();
    scene.expect_renew();
    scene.tell(Event::RenewFailed);
    scene.nothing();
    scene.tick_poll();
    assert_eq!(scene.expect_renew(), leases(&runs));
    scene.nothing();
    // And not again once it was answered.
    let row = renewed(&scene);
    scene.tell(Event::Renewed(vec![row, row]));
    scene.said.clear();
    scene.tick_poll();
    scene.nothing();
}

#[test]
fn a_lost_lease_fires_the_token_and_keeps_the_slot_until_the_handler_ends() {
    let (mut scene, runs) = Scene::running(2, 2);
    scene.heartbeat();
    scene.expect_renew();
    let row = renewed(&scene);
    scene.tell(Event::Renewed(vec![Renewed::Lost, row]));
    assert_eq!(scene.expect_cancel(), (runs[0].execution, CancelReason::LeaseLost));
    // Where no worker has begun it, its slot is free at once.
    assert_eq!(scene.expect_withdraw(), runs[0].execution);
    take!(scene, Command::Prolong { execution, .. } => assert_eq!(execution, runs[1].execution));
    assert_eq!(scene.lost(&runs[0]), Some(Lost::NotRenewed));
    scene.tick_poll();
    scene.nothing();

    scene.finish(&runs[0], failed(Verdict::Retry), Some(CancelReason::LeaseLost));
    assert_eq!(scene.expect_claim().total, 1);
    scene.nothing();
}

#[test]
fn a_result_after_a_lost_lease_is_dropped_even_if_the_worker_did_not_notice() {
    let (mut scene, runs) = Scene::running(2, 2);
    scene.heartbeat();
    scene.expect_renew();
    let row = renewed(&scene);
    scene.tell(Event::Renewed(vec![Renewed::Lost, row]));
    scene.said.clear();
    scene.finish_ok(&runs[0]);
    scene.claim(0);
    scene.nothing();
    scene.heartbeat();
    assert_eq!(scene.expect_renew(), [runs[1].lease]);
}

#[test]
fn a_cancel_request_is_heard_once() {
    let (mut scene, runs) = Scene::running(1, 1);
    for round in 0..2 {
        scene.heartbeat();
        scene.expect_renew();
        let expiry = scene.now + LEASE;
        scene.tell(Event::Renewed(vec![Renewed::Renewed { expiry, cancel_requested: true }]));
        take!(scene, Command::Prolong { .. } => ());
        if round == 0 {
            let expected = (runs[0].execution, CancelReason::OperatorRequest);
            assert_eq!(scene.expect_cancel(), expected);
        }
        scene.nothing();
    }
}

#[test]
fn an_expired_lease_is_given_up_without_an_answer() {
    let (mut scene, runs) = Scene::running(1, 1);
    scene.pass(LEASE - POLL);
    scene.tick_poll();
    assert_eq!(scene.expect_cancel(), (runs[0].execution, CancelReason::LeaseLost));
    assert_eq!(scene.lost(&runs[0]), Some(Lost::Expired));
    scene.said.clear();
    scene.heartbeat();
    scene.nothing();
}

#[test]
fn a_renewal_answered_after_its_lease_was_given_up_prolongs_nothing() {
    let (mut scene, _) = Scene::running(1, 1);
    scene.heartbeat();
    scene.expect_renew();
    scene.pass(LEASE);
    scene.tick_poll();
    scene.said.clear();
    let row = renewed(&scene);
    scene.tell(Event::Renewed(vec![row]));
    scene.nothing();
}

#[test]
fn a_renewal_answered_after_its_attempt_ended_changes_nothing() {
    let (mut scene, runs) = Scene::running(1, 1);
    scene.heartbeat();
    scene.expect_renew();
    scene.finish_ok(&runs[0]);
    let rows = scene.expect_exchange().0;
    scene.tell(Event::Renewed(vec![Renewed::Lost]));
    scene.nothing();
    assert_eq!(scene.lost(&runs[0]), None);
    scene.written(&rows);
}

#[test]
fn heartbeats_go_on_while_a_fault_holds_everything_else() {
    let (mut scene, runs) = Scene::running(2, 1);
    scene.tick_poll();
    scene.expect_claim();
    scene.tell(Event::ClaimFailed { in_doubt: false });
    scene.heartbeat();
    assert_eq!(scene.expect_renew(), leases(&runs));
}
