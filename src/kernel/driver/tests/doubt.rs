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
fn a_claim_that_is_not_in_doubt_asks_nothing() {
    let mut scene = Scene::new(2);
    scene.expect_claim();
    scene.tell(Event::ClaimFailed { in_doubt: false });
    scene.tick_poll();
    scene.claim(0);
    scene.heartbeat();
    scene.nothing();
}
