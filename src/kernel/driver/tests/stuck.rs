//! Handlers that ignore their token.

use super::*;

/// Loses every lease, and lets the patience pass.
fn ignored(scene: &mut Scene) {
    scene.pass(LEASE);
    scene.tick_poll();
    scene.said.clear();
    scene.pass(PATIENCE + ms(1));
}

#[test]
fn a_handler_that_ignores_its_token_is_replaced_after_patience() {
    let (mut scene, runs) = Scene::running(2, 2);
    scene.pass(LEASE);
    scene.tick_poll();
    scene.said.clear();
    scene.pass(PATIENCE);
    scene.heartbeat();
    scene.nothing();
    scene.pass(ms(1));
    scene.heartbeat();
    for run in &runs {
        take!(scene, Command::ReplaceWorker { execution } => {
            assert_eq!(execution, run.execution);
        });
    }
    assert_eq!(scene.driver.stuck().count(), 2);
    let (job, attempt) = (runs[0].lease.job, 1);
    let age = PATIENCE + ms(1);
    assert!(scene.is_noted(&Note::TokenIgnored { job, attempt, age }));
    // Their slots are free again.
    assert_eq!(scene.expect_claim().total, 2);
    scene.nothing();
}

#[test]
fn no_more_threads_are_replaced_than_the_pool_has() {
    let (mut scene, _) = Scene::running(1, 1);
    ignored(&mut scene);
    scene.heartbeat();
    take!(scene, Command::ReplaceWorker { .. } => ());
    assert!(scene.driver.is_at_replacement_bound());
    scene.claim(1);
    ignored(&mut scene);
    scene.heartbeat();
    scene.nothing();
}

#[test]
fn the_end_of_a_replaced_one_frees_the_bound_and_no_slot() {
    let (mut scene, runs) = Scene::running(1, 1);
    ignored(&mut scene);
    scene.heartbeat();
    take!(scene, Command::ReplaceWorker { .. } => ());
    scene.claim(1);
    scene.nothing();
    scene.finish_ok(&runs[0]);
    assert!(!scene.driver.is_at_replacement_bound());
    assert_eq!(scene.driver.stuck().count(), 0);
    scene.tick_poll();
    scene.nothing();
}

#[test]
fn a_replaced_one_that_still_holds_its_lease_is_reported_when_it_ends() {
    let (mut scene, runs) = Scene::running(1, 1);
    for _ in 0..2 {
        scene.heartbeat();
        scene.expect_renew();
        let expiry = scene.now + LEASE;
        scene.tell(Event::Renewed(vec![Renewed::Renewed { expiry, cancel_requested: true }]));
        scene.said.clear();
        scene.pass(secs(20));
    }
    scene.heartbeat();
    assert_eq!(scene.driver.stuck().count(), 1);
    scene.said.clear();
    scene.finish_ok(&runs[0]);
    scene.answer_claim(Vec::new());
    assert_eq!(jobs(&scene.settle()), [runs[0].lease.job]);
}

#[test]
fn a_stopping_pump_replaces_nobody() {
    let (mut scene, _) = Scene::running(1, 1);
    scene.stop();
    scene.tell(Event::GraceEnded);
    scene.said.clear();
    scene.pass(PATIENCE + ms(1));
    scene.heartbeat();
    scene.expect_renew();
    scene.nothing();
}
