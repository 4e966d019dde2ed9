//! Claims whose answer was lost.

use super::*;

fn in_doubt(workers: u32) -> (Scene, Vec<Run>) {
    let mut scene = Scene::new(workers);
    let runs = scene.claim(1);
    scene.tick_poll();
    scene.expect_claim();
    scene.tell(Event::ClaimFailed { in_doubt: true });
    scene.nothing();
    (scene, runs)
}

fn stray() -> LeaseRef {
    LeaseRef { job: job_id(900), attempt: 1 }
}

#[test]
fn a_claim_in_doubt_asks_at_reconnect_what_is_held_and_hands_back_what_nobody_knows() {
    let (mut scene, runs) = in_doubt(3);
    scene.tick_poll();
    scene.expect_find_held();
    scene.nothing();
    scene.tell(Event::HeldFound(vec![runs[0].lease, stray()]));
    scene.claim(0);
    assert_eq!(scene.hand_back(), [stray()]);
    scene.nothing();
}

#[test]
fn a_claim_that_is_not_in_doubt_asks_nothing() {
    let mut scene = Scene::new(2);
    scene.expect_claim();
    scene.tell(Event::ClaimFailed { in_doubt: false });
    scene.tick_poll();
    scene.claim(0);
    scene.heartbeat();
    scene.nothing();
}

#[test]
fn no_claim_is_under_way_while_the_question_is() {
    // What a claim brings meanwhile would look like something nobody knows.
    let (mut scene, _) = in_doubt(3);
    scene.tick_poll();
    scene.expect_find_held();
    scene.tick_poll();
    scene.nothing();
    assert_eq!(scene.driver.wake_at(), None);
    scene.tell(Event::HeldFound(Vec::new()));
    scene.expect_claim();
    scene.heartbeat();
    scene.expect_renew();
    scene.nothing();
    scene.answer_claim(Vec::new());
    scene.expect_find_held();
}

#[test]
fn the_question_is_put_at_each_heartbeat_until_the_doubt_ends() {
    let (mut scene, _) = in_doubt(3);
    scene.tick_poll();
    scene.expect_find_held();
    scene.tell(Event::HeldFound(Vec::new()));
    scene.claim(0);
    let mut asked = 0;
    for _ in 0..20 {
        scene.tick_poll();
        scene.quiet();
        scene.heartbeat();
        while let Some(command) = scene.next() {
            match command {
                Command::Renew { leases } => {
                    let expiry = scene.now + LEASE;
                    let row = Renewed::Renewed { expiry, cancel_requested: false };
                    scene.tell(Event::Renewed(vec![row; leases.len()]));
                }
                Command::FindHeld => {
                    asked += 1;
                    scene.tell(Event::HeldFound(Vec::new()));
                }
                Command::Prolong { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
    // Once a second from the one after the reconnect on; the last when it has ended.
    assert_eq!(asked, DOUBT.as_secs() - 1);
}

#[test]
fn a_failed_question_is_put_again_at_the_next_poll() {
    let (mut scene, _) = in_doubt(3);
    scene.tick_poll();
    scene.expect_find_held();
    scene.tell(Event::FindHeldFailed);
    scene.quiet();
    scene.tick_poll();
    scene.expect_find_held();
}

#[test]
fn a_failed_hand_back_is_tried_again_at_the_next_poll() {
    let (mut scene, _) = in_doubt(3);
    scene.tick_poll();
    scene.expect_find_held();
    scene.tell(Event::HeldFound(vec![stray()]));
    scene.claim(0);
    assert_eq!(scene.expect_hand_back(), [stray()]);
    scene.tell(Event::HandBackFailed);
    scene.nothing();
    scene.tick_poll();
    scene.claim(0);
    assert_eq!(scene.hand_back(), [stray()]);
}

#[test]
fn an_outcome_that_waits_or_is_under_way_is_known() {
    let (mut scene, runs) = in_doubt(3);
    scene.tick_poll();
    scene.expect_find_held();
    scene.finish_ok(&runs[0]);
    let rows = scene.expect_report();
    scene.tell(Event::HeldFound(vec![runs[0].lease]));
    scene.nothing();
    scene.report_failed(rows, true);
    scene.heartbeat();
    scene.expect_renew();
    scene.expect_find_held();
    scene.tell(Event::HeldFound(vec![runs[0].lease]));
    scene.nothing();
}

#[test]
fn an_execution_whose_lease_was_given_up_here_is_not_handed_back_while_it_runs() {
    let (mut scene, runs) = in_doubt(3);
    scene.pass(LEASE);
    scene.tick_poll();
    assert_eq!(scene.expect_cancel().0, runs[0].execution);
    scene.expect_withdraw();
    scene.expect_find_held();
    scene.tell(Event::HeldFound(vec![runs[0].lease]));
    scene.expect_claim();
    scene.nothing();
}

#[test]
fn an_older_attempt_is_not_taken_for_the_one_that_runs() {
    let (mut scene, runs) = in_doubt(3);
    scene.tick_poll();
    scene.expect_find_held();
    let lease = LeaseRef { attempt: runs[0].lease.attempt + 1, ..runs[0].lease };
    scene.tell(Event::HeldFound(vec![lease]));
    scene.claim(0);
    assert_eq!(scene.hand_back(), [lease]);
}

#[test]
fn a_hand_back_answered_with_another_number_of_rows_halts() {
    for count in [0, 2] {
        let (mut scene, _) = in_doubt(3);
        scene.tick_poll();
        scene.expect_find_held();
        scene.tell(Event::HeldFound(vec![stray()]));
        scene.claim(0);
        scene.expect_hand_back();
        let trigger = InvariantTrigger::HeartbeatBatchCountMismatch;
        scene.tell_halting(Event::HandedBack(vec![true; count]), trigger);
    }
}

#[test]
fn the_question_is_not_put_while_it_waits_for_its_answer() {
    let (mut scene, _) = in_doubt(3);
    scene.tick_poll();
    scene.expect_find_held();
    scene.heartbeat();
    scene.expect_renew();
    scene.nothing();
}

#[test]
fn a_doubt_is_not_shortened_by_a_later_one_of_a_clock_that_stepped_back() {
    let mut scene = Scene::new(2);
    let until = scene.now + DOUBT;
    for step_back in [Duration::ZERO, DOUBT] {
        scene.expect_claim();
        scene.now = scene.now.saturating_sub(step_back);
        scene.tell(Event::ClaimFailed { in_doubt: true });
        scene.tick_poll();
        scene.expect_find_held();
        scene.tell(Event::HeldFound(Vec::new()));
    }
    scene.claim(0);
    scene.now = until.saturating_sub(secs(1));
    for _ in 0..2 {
        scene.heartbeat();
        scene.expect_find_held();
        scene.tell(Event::HeldFound(Vec::new()));
        scene.nothing();
    }
}
