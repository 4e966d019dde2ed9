//! When the store is asked for work.

use super::*;

/// An idle pump: every claim finds nothing.
fn idle(for_secs: u64) -> Scene {
    let mut scene = Scene::new(2);
    scene.claim(0);
    claims(&mut scene, for_secs);
    scene
}

/// Polls once a second for so long, answers each claim with nothing, and says in which seconds there
/// was one.
fn claims(scene: &mut Scene, for_secs: u64) -> Vec<u64> {
    let mut at = Vec::new();
    for second in 1..=for_secs {
        scene.tick_poll();
        if !scene.said.is_empty() {
            at.push(second);
            scene.claim(0);
        }
        scene.nothing();
    }
    at
}

#[test]
fn a_pump_polls_at_every_tick_while_it_is_not_idle_for_long() {
    let mut scene = Scene::new(2);
    scene.claim(0);
    assert_eq!(claims(&mut scene, 4), [1, 2, 3, 4]);
}

#[test]
fn an_idle_pump_slows_down_to_its_longest_interval() {
    let mut scene = idle(60);
    let at = claims(&mut scene, 30);
    assert!(at.windows(2).all(|pair| pair[1] - pair[0] == 5), "{at:?}");
}

#[test]
fn work_found_makes_the_pump_quick_again() {
    let mut scene = idle(60);
    while scene.said.is_empty() {
        scene.tick_poll();
    }
    let run = scene.claim(1)[0];
    scene.finish_ok(&run);
    scene.settle();
    scene.said.clear();
    // The retry or the claim that rode along aside, the next poll is one second away.
    assert_eq!(claims(&mut scene, 1), [1]);
}

#[test]
fn a_tick_that_is_a_little_early_counts() {
    let mut scene = Scene::new(2);
    scene.claim(0);
    scene.pass(POLL - ms(1));
    scene.tell(Event::PollDue);
    scene.expect_claim();
}

#[test]
fn a_hint_wakes_an_idle_pump_at_once() {
    let mut scene = idle(60);
    scene.tell(Event::Woken { due: scene.now });
    scene.claim(0);
    scene.nothing();
}

#[test]
fn a_hint_of_later_work_wakes_the_pump_then() {
    let mut scene = idle(60);
    let due = scene.now + ms(300);
    scene.tell(Event::Woken { due: due + secs(9) });
    scene.tell(Event::Woken { due });
    scene.nothing();
    assert_eq!(scene.driver.wake_at(), Some(due));
    scene.pass_to_wake();
    scene.expect_claim();
}

#[test]
fn a_known_due_time_wakes_the_pump() {
    let mut scene = Scene::new(2);
    scene.expect_claim();
    let due = scene.now + ms(1700);
    scene.tell(Event::Claimed(Claimed::new(Vec::new(), scene.now).next_due(Some(due))));
    scene.nothing();
    assert_eq!(scene.driver.wake_at(), Some(due));
}

#[test]
fn a_due_time_that_has_passed_already_does_not_make_the_pump_spin() {
    let mut scene = Scene::new(2);
    scene.expect_claim();
    for _ in 0..3 {
        // Our clock runs ahead of the store's: it says "not yet", and by our time it is.
        let answer = Claimed::new(Vec::new(), scene.now).next_due(Some(scene.now));
        scene.tell(Event::Claimed(answer));
        scene.nothing();
        let wake_at = scene.driver.wake_at().expect("soon");
        assert!(wake_at > scene.now && wake_at <= scene.now + ms(10));
        scene.pass_to_wake();
        scene.expect_claim();
    }
}

#[test]
fn a_hint_during_a_claim_is_not_lost() {
    let mut scene = Scene::new(2);
    scene.expect_claim();
    scene.tell(Event::Woken { due: scene.now });
    scene.answer_claim(Vec::new());
    scene.claim(0);
    scene.nothing();
}

#[test]
fn a_hint_during_a_claim_that_fails_is_not_lost() {
    let mut scene = Scene::new(2);
    scene.expect_claim();
    scene.tell(Event::Woken { due: scene.now });
    scene.tell(Event::ClaimFailed { in_doubt: false });
    scene.nothing();
    scene.tick_poll();
    scene.expect_claim();
}

#[test]
fn a_hint_waits_for_room() {
    let (mut scene, runs) = Scene::running(1, 1);
    scene.tell(Event::Woken { due: scene.now });
    scene.nothing();
    assert_eq!(scene.driver.wake_at(), None);
    scene.finish_ok(&runs[0]);
    scene.expect_exchange();
}

#[test]
fn a_clock_that_steps_back_does_not_stall_polling() {
    let mut scene = idle(60);
    scene.now = scene.now.saturating_sub(secs(3600));
    let at = claims(&mut scene, 8);
    assert!(at.first().is_some_and(|first| *first <= 6), "{at:?}");
}

#[test]
fn a_clock_that_steps_back_does_not_keep_an_outcome() {
    let (mut scene, runs) = Scene::running(8, 8);
    scene.finish_ok(&runs[0]);
    scene.now = scene.now.saturating_sub(secs(3600));
    scene.tick_poll();
    assert_eq!(scene.expect_exchange().0.len(), 1);
}

#[test]
fn after_a_fault_nothing_is_asked_before_the_next_poll() {
    let mut scene = Scene::new(2);
    scene.expect_claim();
    scene.tell(Event::ClaimFailed { in_doubt: false });
    scene.tell(Event::Woken { due: scene.now });
    scene.pass(ms(999));
    scene.nothing();
    assert_eq!(scene.driver.wake_at(), None);
    scene.pass(ms(1));
    scene.tell(Event::PollDue);
    scene.expect_claim();
}

#[test]
fn a_longest_interval_below_the_shortest_is_raised_to_it() {
    let mut scene = Scene::of(DriverConfig { poll_max: ms(1), ..config(1) });
    scene.claim(0);
    assert_eq!(claims(&mut scene, 3), [1, 2, 3]);
}

#[test]
fn a_pump_with_nothing_to_do_is_idle() {
    let mut scene = Scene::new(1);
    assert!(!scene.driver.is_idle(scene.now), "a claim is under way");
    let run = scene.claim(1)[0];
    assert!(!scene.driver.is_idle(scene.now));
    scene.finish_ok(&run);
    scene.settle();
    scene.quiet();
    assert!(scene.driver.is_idle(scene.now));
}

#[test]
fn what_is_due_and_withheld_waits_for_the_next_poll() {
    let mut scene = Scene::new(2);
    scene.expect_claim();
    let answer = Claimed::new(Vec::new(), scene.now).withheld(true).next_due(Some(scene.now));
    scene.tell(Event::Claimed(answer));
    scene.nothing();
    assert_eq!(scene.driver.wake_at(), None);
    scene.tick_poll();
    scene.expect_claim();
}
