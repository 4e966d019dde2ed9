//! Stores that hang, are down or jump in time, and what health, handlers and the clean stop make of it.

mod support;

use backwave::invariant::InvariantTrigger;
use backwave::store::{ClaimedJob, Reported, RowReport, StaleReason, StoreError};
use backwave::testing::{Intercept, StoreCall};
use backwave::{
    CancelReason, Degradation, DegradedCause, Group, HealthStatus, JobContext, JobResult, JobState,
    Registry,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::gate::Gate;
use support::log;
use support::world::{PATIENCE, Task, World, eventually, facts, memory, quick, task};

/// A group on a store that a test can hold up, and a handler at a gate.
struct Scene {
    world: World,
    store: Intercept,
    gate: Gate,
}

impl Scene {
    fn new() -> Self {
        log::record();
        let world = memory();
        let store = Intercept::new(Arc::clone(&world.store));
        Self { world, store, gate: Gate::new() }
    }

    fn spawn(
        &self,
        name: &str,
        budget: Duration,
        handler: impl Fn(&Gate, &JobContext, Task) -> JobResult + Send + Sync + 'static,
    ) -> Group {
        let registry = Registry::new().handle_with(&self.gate.clone().into(), handler);
        let options = quick(name).shutdown_budget(budget);
        self.world.spawn_on(self.store.clone(), registry, options)
    }

    /// Has the next such call wait until the gate given back is opened.
    fn hold_up(&self, held: StoreCall) -> Gate {
        let gate = Gate::new();
        let inside = gate.clone();
        self.store.on_every_call(move |call| {
            if call == held {
                inside.pass("held up");
            }
            Ok(())
        });
        gate
    }

    fn marks(&self, name: &str) -> Vec<Degradation> {
        self.world.health.degraded_groups().remove(name).unwrap_or_default()
    }
}

#[derive(Debug, thiserror::Error)]
#[error("nobody answers")]
struct Down;

fn sleep(gate: &Gate, ctx: &JobContext, _: Task) -> JobResult {
    if ctx.attempt() == 1 {
        gate.say("begun");
        // Not asking the token, which would look at its deadline itself: somebody has to fire it.
        assert!(ctx.cancelled().recv_timeout(PATIENCE).is_err_and(|error| error.is_disconnected()));
        gate.say(format!("{:?}", ctx.token().reason()));
    }
    Ok(())
}

#[test]
fn a_pump_that_hangs_is_shown_and_its_handlers_hear_when_their_leases_end() {
    let scene = Scene::new();
    let group = scene.spawn("hangs", Duration::from_secs(5), sleep);
    let id = scene.world.enqueue(task("long"));
    assert_eq!(scene.gate.heard(), "begun");
    let begun_at = Instant::now();
    let held = scene.hold_up(StoreCall::Renew);
    assert_eq!(held.heard(), "held up");
    eventually("it is shown", || {
        scene.marks("hangs").iter().any(|mark| mark.cause == DegradedCause::Hung)
    });
    // Nobody but the ticker can tell the handler, and it does, by the monotonic clock.
    assert_eq!(scene.gate.heard(), format!("{:?}", Some(CancelReason::LeaseLost)));
    let after = begun_at.elapsed();
    assert!((Duration::from_secs(3)..Duration::from_secs(8)).contains(&after), "{after:?}");

    scene.store.clear();
    held.open();
    assert_eq!(facts(&scene.world.ended(id)), (JobState::Succeeded, 2, 1));
    eventually("it is well again", || scene.world.health.check().status == HealthStatus::Healthy);
    assert_eq!(group.shutdown().unanswered, 0);
}

#[test]
fn a_stop_does_not_wait_for_a_pump_that_hangs() {
    let scene = Scene::new();
    let group = scene.spawn("hangs at the stop", Duration::from_millis(100), |_, _, _| Ok(()));
    let held = scene.hold_up(StoreCall::Claim);
    assert_eq!(held.heard(), "held up");
    let began = Instant::now();
    let report = group.shutdown();
    assert_eq!((report.unanswered, report.halts.len()), (1, 0));
    assert!(began.elapsed() < Duration::from_secs(10));
    // When the call comes back the pump ends, and what it claimed goes back.
    let id = scene.world.enqueue(task("claimed too late"));
    scene.store.clear();
    held.open();
    eventually("the group is forgotten", || scene.world.health.check().groups.is_empty());
    assert_eq!(facts(&scene.world.job(id)), (JobState::Scheduled, 1, 0));
    assert_eq!(group.shutdown().unanswered, 0);
}

#[test]
fn a_stop_during_an_outage_ends_with_its_budget_and_leaves_leases_to_lapse() {
    let scene = Scene::new();
    let finish = |gate: &Gate, ctx: &JobContext, _: Task| {
        if ctx.attempt() == 1 {
            gate.pass("begun");
        }
        Ok(())
    };
    let group = scene.spawn("outage", Duration::from_millis(300), finish);
    let id = scene.world.enqueue(task("long"));
    assert_eq!(scene.gate.heard(), "begun");
    scene.store.on_every_call(|_| Err(StoreError::transient(Down).with_session_lost()));
    scene.gate.open();
    let began = Instant::now();
    let report = group.shutdown();
    assert_eq!((report.unanswered, report.halts.len(), report.handed_back), (0, 0, 0));
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(facts(&scene.world.job(id)), (JobState::Leased, 1, 0));
    scene.store.clear();
    let _heir = scene.spawn("outage, heir", Duration::from_secs(5), finish);
    scene.world.clock.skip(Duration::from_secs(6));
    assert_eq!(facts(&scene.world.ended(id)), (JobState::Succeeded, 2, 1));
}

#[test]
fn a_clock_that_jumps_is_told_once_and_shown() {
    let scene = Scene::new();
    let group = scene.spawn("jumps", Duration::from_secs(5), |_, _, _| Ok(()));
    let id = scene.world.enqueue(task("before"));
    assert_eq!(scene.world.ended(id).state, JobState::Succeeded);
    scene.world.clock.skip(Duration::from_secs(100));
    eventually("it is told", || !log::lines("jumps", 1303).is_empty());
    let told = log::lines("jumps", 1303);
    assert_eq!((told.len(), told[0].field("direction")), (1, "forward"));
    assert_eq!(scene.marks("jumps")[0].cause, DegradedCause::ClockJumped);
    let id = scene.world.enqueue(task("after"));
    assert_eq!(facts(&scene.world.ended(id)), (JobState::Succeeded, 1, 0));
    assert_eq!(group.shutdown().halts, []);
}

#[test]
fn an_answer_that_is_lost_costs_no_attempt() {
    let scene = Scene::new();
    // The claim takes effect, and nobody hears of it.
    scene.store.on_claim({
        let lost = AtomicBool::new(false);
        move |session, claim| {
            let claimed = session.claim(claim)?;
            let first = !claimed.jobs.is_empty() && !lost.swap(true, Ordering::SeqCst);
            if first { Err(StoreError::transient(Down).with_session_lost()) } else { Ok(claimed) }
        }
    });
    let group = scene.spawn("lost claim", Duration::from_secs(5), |_, _, _| Ok(()));
    let id = scene.world.enqueue(task("claimed twice"));
    let record = scene.world.ended(id);
    assert_eq!(facts(&record), (JobState::Succeeded, 2, 0), "handed back, not lapsed");
    assert_eq!(group.shutdown().halts, []);
}

#[test]
fn a_session_is_kept_through_a_fault_that_does_not_lose_it_and_nothing_is_in_doubt() {
    for (name, lost, sessions) in [("kept session", false, 1), ("lost session", true, 2)] {
        let scene = Scene::new();
        let failed = AtomicBool::new(false);
        scene.store.on_claim(move |session, claim| {
            if failed.swap(true, Ordering::SeqCst) {
                return session.claim(claim);
            }
            let fault = StoreError::transient(Down);
            Err(if lost { fault.with_session_lost() } else { fault })
        });
        let group = scene.spawn(name, Duration::from_secs(5), |_, _, _| Ok(()));
        let id = scene.world.enqueue(task("after the fault"));
        assert_eq!(scene.world.ended(id).state, JobState::Succeeded, "{name}");
        assert_eq!(scene.store.calls(StoreCall::OpenSession), sessions, "{name}");
        assert_eq!(scene.store.calls(StoreCall::HeldBy) > 0, lost, "{name}");
        assert_eq!(group.shutdown().halts, []);
    }
}

#[test]
fn a_refusal_trips_the_fence_unless_an_earlier_answer_was_lost() {
    // A pump with room reports alone; one without asks for its next job by the same call.
    for (name, workers, lost) in [
        ("refused after a fault", 20, false),
        ("refused after a loss", 20, true),
        ("refused after a fault of an exchange", 1, false),
        ("refused after a loss of an exchange", 1, true),
    ] {
        let scene = Scene::new();
        let tries = AtomicUsize::new(0);
        scene.store.on_report(move |session, rows| match tries.fetch_add(1, Ordering::SeqCst) {
            0 if lost => Err(StoreError::transient(Down).with_session_lost()),
            0 => Err(StoreError::transient(Down)),
            1 => {
                let refused = vec![RowReport::Stale(StaleReason::Unknown); rows.len()];
                Ok(Reported::new(refused, session.now()?))
            }
            _ => session.report(rows),
        });
        let jobs = [task("refused"), task("beside it")];
        let jobs = if workers == 1 { &jobs[..] } else { &jobs[..1] };
        scene.world.client.enqueue_many(jobs.iter().cloned()).expect("accepted");
        let registry = Registry::new().handle(|_, _: Task| Ok(()));
        let options = quick(name).workers(workers);
        let group = scene.world.spawn_on(scene.store.clone(), registry, options);
        eventually("it is told", || !log::lines(name, 1202).is_empty());
        let after = scene.world.enqueue(task("after"));
        assert_eq!(scene.world.ended(after).state, JobState::Succeeded);
        assert_eq!(log::lines(name, 2003).len(), usize::from(!lost), "{name}");
        if workers == 1 {
            assert!(scene.store.calls(StoreCall::Exchange) > 0);
            assert_eq!(scene.store.calls(StoreCall::HeldBy) > 0, lost, "{name}");
        }
        assert_eq!(group.shutdown().halts, []);
    }
}

#[test]
fn an_outcome_whose_answer_is_lost_is_applied_once() {
    let scene = Scene::new();
    scene.store.on_report({
        let lost = AtomicBool::new(false);
        move |session, rows| {
            let reported = session.report(rows)?;
            let first = !lost.swap(true, Ordering::SeqCst);
            if first { Err(StoreError::transient(Down).with_session_lost()) } else { Ok(reported) }
        }
    });
    let fail = |_: &Gate, ctx: &JobContext, _: Task| match ctx.attempt() {
        1 => Err("once".into()),
        _ => Ok(()),
    };
    let group = scene.spawn("lost report", Duration::from_secs(5), fail);
    let id = scene.world.enqueue(task("reported twice"));
    assert_eq!(facts(&scene.world.ended(id)), (JobState::Succeeded, 2, 1));
    assert_eq!(group.shutdown().halts, []);
    assert_eq!(log::lines("lost report", 2003).len(), 0);
}

#[test]
fn a_claim_that_hands_out_a_wire_name_or_a_version_nobody_accepted_halts_its_group() {
    type Lie = fn(&mut ClaimedJob);
    let stranger: Lie = |job| job.wire_name = "a stranger's".to_owned();
    let newer: Lie = |job| job.version += 1;
    for (name, lie) in [("a stranger's name", stranger), ("a newer version", newer)] {
        let scene = Scene::new();
        scene.store.on_claim(move |session, claim| {
            let mut claimed = session.claim(claim)?;
            claimed.jobs.iter_mut().for_each(lie);
            Ok(claimed)
        });
        let _group = scene.spawn(name, Duration::ZERO, |_, _, _| panic!("nothing may run"));
        scene.world.enqueue(task("lied about"));
        let halted = || scene.world.health.halted_groups().remove(name);
        eventually("it halts", || halted().is_some());
        let trigger = halted().and_then(|halt| halt.trigger);
        assert_eq!(trigger, Some(InvariantTrigger::ClaimedRowNotEligible), "{name}");
    }
}
