//! What becomes of an observer when its store lies, fails or goes away: its own pump degrades or ends, and nothing
//! else. No health changes, groups go on, and another pump takes over.

mod support;

use backwave::invariant::{InvariantAction, InvariantTrigger, halt, violations};
use backwave::observer::{ObserverEnd, ObserverOptions};
use backwave::store::{CursorStale, Observe, Observed, Resolve, Resolved, StoreError};
use backwave::testing::{Intercept, StoreCall};
use backwave::{Group, HealthStatus, JobState, ObserverPump, Observers, Registry, WorkerId};
use log::Level;
use std::panic::panic_any;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use support::gate::Gate;
use support::log as lines;
use support::observing::{Ear, births, observe, observe_on, quick_observer};
use support::world::{Task, World, eventually, quick, task};

on_every_store!(
    a_cursor_write_that_touched_another_number_of_rows_ends_that_pump_only,
    a_cursor_row_that_is_gone_under_its_lock_ends_that_pump_only,
    a_violation_that_unwinds_out_of_a_session_ends_that_pump_only,
    a_refused_report_of_a_hold_that_was_live_degrades_and_the_observer_goes_on,
    a_cursor_that_is_asked_to_move_backward_degrades_and_the_observer_goes_on,
    an_unknown_fault_ends_that_pump_only,
    transient_faults_are_told_once_and_nothing_is_told_twice,
    a_hold_lost_to_another_node_is_told_and_its_late_report_moves_nothing,
);

/// Counters are those of the process: tests that count come one after another.
fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Violations of a trigger that halted, and that degraded.
fn counted(trigger: InvariantTrigger) -> (u64, u64) {
    let count = |action| violations(trigger, action);
    (count(InvariantAction::Halt), count(InvariantAction::Degrade))
}

fn degraded(trigger: InvariantTrigger) -> usize {
    let about = |line: &lines::Line| {
        line.event_id == 1601 && line.field("invariant_trigger") == trigger.name()
    };
    lines::all().into_iter().filter(about).count()
}

/// An observer on a store that can be made to lie, beside a group that works.
struct Scene<'w> {
    world: &'w World,
    _alone: MutexGuard<'static, ()>,
    store: Intercept,
    name: String,
    ear: Ear,
    pump: ObserverPump,
    group: Group,
}

impl<'w> Scene<'w> {
    fn set(world: &'w World, topic: &str, options: ObserverOptions) -> Self {
        lines::record();
        let alone = alone();
        let name = world.name(topic);
        let (store, ear) = (Intercept::new(Arc::clone(&world.store)), Ear::new());
        let observers = Observers::new().on_with(&name, births(), options, ear.hears());
        let pump = observe_on(world, store.clone(), observers);
        let group = world.spawn(Registry::new().handle(|_, _: Task| Ok(())), quick(&name));
        Self { world, _alone: alone, store, name, ear, pump, group }
    }

    fn has_ended(&self) -> bool {
        self.pump.reports()[0].end.is_some()
    }

    /// Its pump ends by a fault, once and loudly; the group works on; another pump tells what was not told.
    fn ends_alone(&self, trigger: Option<InvariantTrigger>, untold: backwave::JobId) {
        eventually("the pump has ended", || self.has_ended());
        let Some(ObserverEnd::Fault(fault)) = self.pump.reports()[0].end.clone() else {
            panic!("{:?}", self.pump.reports());
        };
        assert_eq!(fault.trigger, trigger);
        let ended = lines::of_observer(&self.name, 2101);
        let [line] = &ended[..] else { panic!("{ended:?}") };
        let named = trigger.map_or("unclassified", InvariantTrigger::name);
        assert_eq!((line.level, line.field("invariant_trigger")), (Level::Error, named));
        self.others_are_untouched();
        let asked = self.store.calls(StoreCall::Observe);

        let heir = Ear::new();
        let observers =
            Observers::new().on_with(&self.name, births(), quick_observer(), heir.hears());
        let _heir = observe(self.world, observers);
        self.world.clock.skip(Duration::from_secs(6));
        eventually("the heir is told", || heir.heard().job == untold);
        assert_eq!(self.store.calls(StoreCall::Observe), asked, "it asks for nothing any more");
        self.pump.shutdown();
        assert_eq!(lines::of_observer(&self.name, 2101).len(), 1);
    }

    fn others_are_untouched(&self) {
        let job = self.world.enqueue(task("goes on"));
        assert_eq!(self.world.ended(job).state, JobState::Succeeded);
        assert_eq!(self.world.health.check().status, HealthStatus::Healthy);
        assert!(self.world.health.degraded_groups().is_empty());
        assert!(lines::lines(self.group.name(), 2001).is_empty());
    }
}

fn a_cursor_write_that_touched_another_number_of_rows_ends_that_pump_only(world: &World) {
    let trigger = InvariantTrigger::UnexpectedAffectedRowCount;
    let scene = Scene::set(world, "touches two", quick_observer());
    let before = (counted(trigger), degraded(trigger));
    scene.store.on_resolve(move |_, _| Err(halt(trigger, "2 rows for 1").into()));
    let job = world.enqueue(task("a"));
    assert_eq!(scene.ear.heard().job, job);
    scene.ends_alone(Some(trigger), job);
    let ((halted, degrade), told) = before;
    assert_eq!((counted(trigger), degraded(trigger)), ((halted, degrade + 1), told + 1));
}

fn a_cursor_row_that_is_gone_under_its_lock_ends_that_pump_only(world: &World) {
    let trigger = InvariantTrigger::GuaranteedRowAbsent;
    let scene = Scene::set(world, "row gone", quick_observer());
    let before = (counted(trigger), degraded(trigger));
    scene.store.on_observe(move |_, _| Err(halt(trigger, "the cursor is gone").into()));
    let job = world.enqueue(task("a"));
    scene.ends_alone(Some(trigger), job);
    let ((halted, degrade), told) = before;
    assert_eq!((counted(trigger), degraded(trigger)), ((halted, degrade + 1), told + 1));
}

fn a_violation_that_unwinds_out_of_a_session_ends_that_pump_only(world: &World) {
    let trigger = InvariantTrigger::UndefinedEnumValueStored;
    let scene = Scene::set(world, "unwinds", quick_observer());
    let before = (counted(trigger), degraded(trigger));
    scene.store.on_observe(move |_, _| panic_any(halt(trigger, "state 99")));
    let job = world.enqueue(task("a"));
    scene.ends_alone(Some(trigger), job);
    let ((halted, degrade), told) = before;
    assert_eq!((counted(trigger), degraded(trigger)), ((halted, degrade + 1), told + 1));
}

fn a_refused_report_of_a_hold_that_was_live_degrades_and_the_observer_goes_on(world: &World) {
    let trigger = InvariantTrigger::ObserverReportFenceRejected;
    // Long enough to lie beyond the allowance.
    let scene = Scene::set(world, "refused", quick_observer().lease(Duration::from_secs(600)));
    let before = (counted(trigger), degraded(trigger));
    let refused = Arc::new(AtomicBool::new(false));
    scene.store.on_resolve(move |session, resolve| match refused.swap(true, Ordering::SeqCst) {
        true => session.resolve(resolve),
        false => {
            let store_time = session.now()?;
            Ok(Resolved::Stale { reason: CursorStale::Taken, store_time })
        }
    });
    goes_on(&scene, trigger, before);
}

fn a_cursor_that_is_asked_to_move_backward_degrades_and_the_observer_goes_on(world: &World) {
    let trigger = InvariantTrigger::ObserverCursorRegressed;
    let scene = Scene::set(world, "regresses", quick_observer());
    let told_before = world.enqueue(task("before"));
    assert_eq!(scene.ear.heard().job, told_before);
    let lag = || world.client.monitor().observer_lag(&scene.name).expect("read");
    eventually("that is written", || lag() == Some(Duration::ZERO));
    let before = (counted(trigger), degraded(trigger));
    let tampered = Arc::new(AtomicBool::new(false));
    // The store's own check, met with a position that lies behind.
    scene.store.on_resolve(move |session, resolve| {
        let moves = resolve.until.is_some();
        if !moves || tampered.swap(true, Ordering::SeqCst) {
            return session.resolve(resolve);
        }
        let mut backward = resolve.clone();
        backward.until = Some(0);
        session.resolve(&backward)
    });
    goes_on(&scene, trigger, before);
}

/// The report of the next delivery is refused: it degrades, and the job is told again by the same pump.
fn goes_on(scene: &Scene<'_>, trigger: InvariantTrigger, before: ((u64, u64), usize)) {
    let job = scene.world.enqueue(task("told twice"));
    assert_eq!(scene.ear.jobs(2), [job, job]);
    let ((halted, degrade), told) = before;
    assert_eq!((counted(trigger), degraded(trigger)), ((halted, degrade + 1), told + 1));
    assert!(!scene.has_ended());
    assert_eq!(lines::of_observer(&scene.name, 2103).len(), 1);
    assert!(lines::of_observer(&scene.name, 2101).is_empty());
    scene.others_are_untouched();
    eventually("it has told the last", || scene.ear.heard().job != job);
}

fn an_unknown_fault_ends_that_pump_only(world: &World) {
    let scene = Scene::set(world, "unknown", quick_observer());
    scene.store.on_observe(|_, _| Err(StoreError::new(std::fmt::Error)));
    let job = world.enqueue(task("a"));
    scene.ends_alone(None, job);
}

fn transient_faults_are_told_once_and_nothing_is_told_twice(world: &World) {
    let scene = Scene::set(world, "comes back", quick_observer());
    let faults = Arc::new(AtomicU32::new(0));
    let counts = Arc::clone(&faults);
    scene.store.on_every_call(move |call| {
        let fails = matches!(call, StoreCall::Resolve | StoreCall::OpenSession)
            && counts.fetch_add(1, Ordering::SeqCst) < 4;
        let away = || StoreError::transient(std::io::Error::other("away")).with_session_lost();
        if fails { Err(away()) } else { Ok(()) }
    });
    let jobs = ["a", "b"].map(|what| world.enqueue(task(what)));
    assert_eq!(scene.ear.jobs(2), jobs);
    eventually("the end is told", || lines::of_observer(&scene.name, 2106).len() == 2);
    let told = lines::of_observer(&scene.name, 2106);
    assert!(told[0].message.contains("away"), "{told:?}");
    assert_eq!((told[0].level, told[1].field("count")), (Level::Warn, "4"));
    let report = &scene.pump.shutdown()[0];
    assert_eq!((report.delivered, report.failed), (2, 0));
    assert_eq!(report.end, Some(ObserverEnd::Stopped));
    assert_eq!(scene.ear.unheard(), [], "what was delivered was kept");
    assert!(lines::of_observer(&scene.name, 2103).is_empty());
    scene.others_are_untouched();
}

fn a_hold_lost_to_another_node_is_told_and_its_late_report_moves_nothing(world: &World) {
    lines::record();
    let _alone = alone();
    let trigger = InvariantTrigger::ObserverReportFenceRejected;
    let before = counted(trigger);
    let name = world.name("isolated");
    let gate = Gate::new();
    let slow = {
        let gate = gate.clone();
        move |_: &_| {
            gate.pass("slow");
            Ok(())
        }
    };
    let pump = observe(world, Observers::new().on_with(&name, births(), quick_observer(), slow));
    let job = world.enqueue(task("a"));
    assert_eq!(gate.heard(), "slow");
    // Its process stands still meanwhile, for all that the store can tell.
    world.clock.skip(Duration::from_secs(6));
    let filter = births();
    let other = WorkerId::new();
    let ask = Observe::new(&name, other, &filter, Duration::from_secs(60));
    let mut session = world.store.open_session().expect("opened");
    let Observed::Held { lease, round, batch, .. } = session.observe(&ask).expect("taken") else {
        panic!("it was to be free");
    };
    assert_eq!((lease.epoch, batch[0].job), (2, job));
    gate.open();
    eventually("it is told", || lines::of_observer(&name, 2103).len() == 1);
    assert!(!pump.reports()[0].is_holding);
    assert_eq!(counted(trigger), before, "a hold that ran out is no surprise");
    let mut resolve = Resolve::new(&name, other, lease.epoch, round, Duration::from_secs(60));
    resolve.until = Some(batch[0].position());
    let resolved = session.resolve(&resolve).expect("answered");
    assert!(matches!(resolved, Resolved::Applied { .. }), "{resolved:?}");
}
