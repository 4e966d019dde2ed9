//! Observers whose cursors somebody has changed by hand, or whose database lies about its writes: what the stores'
//! own checks find degrades, ends that one pump, and reaches no group.

mod support;

use backwave::invariant::{InvariantAction, InvariantTrigger, violations};
use backwave::observer::{ObserverEnd, ObserverStart};
use backwave::{HealthStatus, JobState, Observers, Registry, spawn_observers};
use std::sync::{Arc, Mutex, PoisonError};
use support::log as lines;
use support::observing::{Ear, births, observe, quick_observer};
use support::tamper::{Dialect, Hand};
use support::world::{Task, World, eventually, quick, task};

/// A pump on a database that lies ends, and says so; an heir on the honest one tells what was not told.
fn degrades(dialect: Dialect, trigger: InvariantTrigger, lie: fn(&Hand), is_new: bool) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    lines::record();
    let (world, hand) = dialect.world();
    let name = world.name(trigger.name());
    let group = world.spawn(Registry::new().handle(|_, _: Task| Ok(())), quick(&name));
    let ear = Ear::new();
    let observers = || {
        let options = quick_observer().start(ObserverStart::Oldest);
        Observers::new().on_with(&name, births(), options, ear.hears())
    };
    if !is_new {
        drop(observe(&world, observers()));
    }
    let counted = |action| violations(trigger, action);
    let before = (counted(InvariantAction::Halt), counted(InvariantAction::Degrade));
    lie(&hand);
    let pump = spawn_observers(Arc::clone(&world.store), observers()).expect("it starts");
    eventually("it has ended", || pump.reports()[0].end.is_some());
    let Some(ObserverEnd::Fault(fault)) = pump.reports()[0].end.clone() else {
        panic!("{:?}", pump.reports());
    };
    assert_eq!(fault.trigger, Some(trigger));
    let after = (counted(InvariantAction::Halt), counted(InvariantAction::Degrade));
    assert_eq!(after, (before.0, before.1 + 1));
    let ended = lines::of_observer(&name, 2101);
    let named: Vec<_> = ended.iter().map(|line| line.field("invariant_trigger")).collect();
    assert_eq!(named, [trigger.name()]);

    let job = world.enqueue(task("goes on"));
    assert_eq!(world.ended(job).state, JobState::Succeeded);
    assert_eq!(world.health.check().status, HealthStatus::Healthy);
    hand.drop_trigger_on("{observers}");
    // What the job itself was told of while nobody was registered is not kept.
    let heir = observe(&world, observers());
    let told = if is_new { world.enqueue(task("told")) } else { job };
    assert_eq!(ear.heard().job, told);
    drop((heir, group));
}

/// A transition whose job somebody has deleted is stepped over.
fn steps_over(world: &World, hand: &Hand) {
    let ear = Ear::new();
    let observers =
        || Observers::new().on_with("steps over", births(), quick_observer(), ear.hears());
    drop(observe(world, observers()));
    let [gone, there] = ["gone", "there"].map(|what| world.enqueue(task(what)));
    hand.run(&format!("DELETE FROM {{jobs}} WHERE id = {}", hand.id(gone)));
    let _pump = observe(world, observers());
    assert_eq!(ear.heard().job, there);
}

macro_rules! on {
    ($module:ident, $dialect:expr) => {
        mod $module {
            use super::*;

            #[test]
            fn a_write_of_a_cursor_that_touches_no_row_ends_that_pump_only() {
                let trigger = InvariantTrigger::UnexpectedAffectedRowCount;
                degrades($dialect, trigger, Hand::swallow_cursors, false);
            }

            #[test]
            fn a_cursor_that_vanishes_as_it_is_made_ends_that_pump_only() {
                let trigger = InvariantTrigger::GuaranteedRowAbsent;
                degrades($dialect, trigger, Hand::delete_new_cursors, true);
            }

            #[test]
            fn a_transition_whose_job_was_deleted_by_hand_is_stepped_over() {
                let (world, hand) = $dialect.world();
                steps_over(&world, &hand);
            }
        }
    };
}

on!(sqlite, Dialect::Sqlite);
on!(postgres, Dialect::Postgres);
