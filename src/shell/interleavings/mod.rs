//! What pump, ticker, workers and the group's handle say to each other, under schedules that shuttle makes up:
//! the real threads of a real group or of real observers, whose turns change at every wait and at every
//! [`point`](crate::stage::point).
//!
//! Every scene is seen to fail with a bug planted in the protocol that it is about: see [`PLANTS`].
//!
//! A schedule follows from a seed, as far as ids do not come into it, which are random. One that fails is printed
//! by shuttle. Two things are not looked at here: the ordering of memory (a turn sees all that was done before
//! it), and waiting on a board's condition variable (a scene asks the board again and again instead).

mod observers;
mod scenes;
mod stage;

use super::planted::Slip;
use observers::{CALLBACK_PANICS, LATE_CALLBACKS, OWN_OBSERVER, WATCH};
use scenes::{
    BUSY_HINTS, GIVING_WAY, HALT, HINTS, IDLE_STOP, OWN_GROUP, STOP_IN_FLIGHT, TICKER_GONE, TICKS,
    TWO_PUMPS, TWO_STOPS, WAKES, WORKER_GONE,
};
use stage::{Scene, play, rehearse};

#[test]
fn a_stop_while_claims_are_in_flight_leaves_nothing_behind() {
    play(&STOP_IN_FLIGHT);
}

#[test]
fn a_handler_that_gives_way_to_a_stop_has_not_failed() {
    play(&GIVING_WAY);
}

#[test]
fn all_jobs_run_once_while_time_passes_and_a_stop_ends_it() {
    play(&TWO_PUMPS);
}

#[test]
fn a_worker_that_vanishes_halts_its_pump() {
    play(&WORKER_GONE);
}

#[test]
fn a_ticker_that_dies_halts_every_pump() {
    play(&TICKER_GONE);
}

#[test]
fn two_threads_that_shut_down_at_once_both_get_the_whole_report() {
    play(&TWO_STOPS);
}

#[test]
fn a_handler_may_drop_its_own_group() {
    play(&OWN_GROUP);
}

#[test]
fn a_hint_is_heard_although_no_poll_comes() {
    play(&HINTS);
}

#[test]
fn a_tick_that_is_raised_is_taken() {
    play(&TICKS);
}

#[test]
fn a_wake_that_meets_a_pump_taking_is_not_lost() {
    play(&WAKES);
}

#[test]
fn hints_are_heard_while_the_pump_is_in_a_call() {
    play(&BUSY_HINTS);
}

#[test]
fn pumps_with_nothing_to_do_hear_a_stop() {
    play(&IDLE_STOP);
}

#[test]
fn what_a_pump_that_halts_has_not_begun_is_not_begun_any_more() {
    play(&HALT);
}

#[test]
fn an_observer_hears_of_every_transition_although_no_poll_comes() {
    play(&WATCH);
}

#[test]
fn a_callback_that_panics_is_a_failed_delivery() {
    play(&CALLBACK_PANICS);
}

#[test]
fn callbacks_that_come_back_too_late_keep_nobody_from_being_told() {
    play(&LATE_CALLBACKS);
}

#[test]
fn a_callback_may_drop_its_own_observers() {
    play(&OWN_OBSERVER);
}

/// Each bug, and the scene that finds it within the schedules that it is played under.
const PLANTS: [(Slip, &Scene); 21] = [
    (Slip::ToldBeforeRaised, &TICKS),
    (Slip::TickerDiesSilently, &TICKER_GONE),
    (Slip::TickerTellsOne, &TICKER_GONE),
    (Slip::HintInTwoSteps, &WAKES),
    (Slip::HintSwallowedInCall, &BUSY_HINTS),
    (Slip::InboxCleared, &HINTS),
    (Slip::InboxCleared, &TWO_STOPS),
    (Slip::TakenByTwo, &TWO_PUMPS),
    (Slip::WorkerDiesSilently, &WORKER_GONE),
    (Slip::BeganInTwoSteps, &STOP_IN_FLIGHT),
    (Slip::ResultKeptAtStop, &GIVING_WAY),
    (Slip::TasksLeftAtHalt, &HALT),
    (Slip::StopOnlyShown, &IDLE_STOP),
    (Slip::StopShownFirst, &GIVING_WAY),
    (Slip::StopToOne, &IDLE_STOP),
    (Slip::EndsTaken, &TWO_STOPS),
    (Slip::WaitsForItself, &OWN_GROUP),
    (Slip::WaitsForItself, &OWN_OBSERVER),
    (Slip::WatchSwallowedInCall, &WATCH),
    (Slip::LateCallbackTaken, &LATE_CALLBACKS),
    (Slip::CallbackDiesSilently, &CALLBACK_PANICS),
];

#[test]
fn every_planted_bug_is_found() {
    let mut amiss = Vec::new();
    for (slip, scene) in PLANTS {
        let began = std::time::Instant::now();
        match rehearse(Some(slip), scene) {
            Ok(()) => amiss.push(slip),
            Err(payload) => {
                let told = crate::registry::panic_message(payload.as_ref());
                let told = told.lines().next().unwrap_or_default();
                println!("{slip:?}, in {:?}: {told:.120}", began.elapsed());
            }
        }
    }
    assert!(amiss.is_empty(), "not found: {amiss:?}");
}
