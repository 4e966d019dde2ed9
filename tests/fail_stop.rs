//! Fail-stop: what halts a group, how it is told, and that everything around it goes on.
//!
//! Each scene lies to one group through a store of its own view, next to a sibling and a client on the
//! honest store.

mod support;

use backwave::invariant::{self, InvariantAction, InvariantTrigger, InvariantViolation};
use backwave::store::{JobRow, RowReport, StaleReason, StoreError};
use backwave::testing::{Intercept, StoreCall};
use backwave::{
    CancelReason, Client, DegradedCause, EnqueueError, Error, HealthStatus, JobContext, JobError,
    JobId, JobResult, JobState, NewJob, Registry, SpawnError, Stopped, spawn_group,
};
use log::Level;
use std::fmt;
use std::panic::{panic_any, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::gate::Gate;
use support::log as lines;
use support::scene::Scene;
use support::world::{PATIENCE, Task, eventually, facts, memory, quick, task};

fn finish(_: &JobContext, _: Task) -> JobResult {
    Ok(())
}

fn registry() -> Registry {
    Registry::new().handle(finish)
}

/// A violation made under a trigger that no test counts.
fn violation() -> InvariantViolation {
    invariant::halt(InvariantTrigger::DanglingGatingEdge, "made by the test")
}

const MADE: Option<InvariantTrigger> = Some(InvariantTrigger::DanglingGatingEdge);

#[derive(Debug, thiserror::Error)]
#[error("the disk is on fire")]
struct OnFire;

#[test]
fn an_unknown_store_error_halts_the_group_alone_and_others_inherit_its_work() {
    let scene = Scene::new("unknown error");
    let gate = Gate::new();
    let handler = |gate: &Gate, ctx: &JobContext, _: Task| {
        if ctx.attempt() == 1 {
            gate.say("begun");
            let reason = ctx.sleep(PATIENCE).err().map(|cancelled| cancelled.reason);
            gate.pass(format!("{reason:?}"));
        }
        Ok(())
    };
    let registry = || Registry::new().handle_with(&gate.clone().into(), handler);
    let group = scene.spawn(registry());
    let id = scene.world.enqueue(task("long"));
    assert_eq!(gate.heard(), "begun");

    scene.store.on_every_call(|_| Err(StoreError::new(OnFire).with_code("12345")));
    let halt = scene.halted(&group, None);
    assert_eq!(halt.type_name, std::any::type_name::<OnFire>());
    assert_eq!(halt.code.as_deref(), Some("12345"));
    assert!(halt.message.contains("the disk is on fire"), "{halt}");
    assert_eq!(gate.heard(), format!("{:?}", Some(CancelReason::GroupStopping)));

    // Its result is dropped, even where the store would take it.
    scene.store.clear();
    gate.open();
    scene.surroundings_live();
    assert_eq!(facts(&scene.world.job(id)), (JobState::Leased, 1, 0));
    let _heir = scene.world.spawn(registry(), quick("unknown error, heir"));
    scene.world.clock.skip(Duration::from_secs(6));
    assert_eq!(facts(&scene.world.ended(id)), (JobState::Succeeded, 2, 1));
    assert_eq!(group.shutdown().halts, [halt]);
}

#[test]
fn a_transient_error_degrades_until_it_is_over_and_outcomes_are_kept() {
    let scene = Scene::new("transient");
    let gate = Gate::new();
    let handler = |gate: &Gate, ctx: &JobContext, _: Task| {
        gate.pass("begun");
        Ok(ctx.set_output(&"kept")?)
    };
    let group = scene.spawn(Registry::new().handle_with(&gate.clone().into(), handler));
    let id = scene.world.enqueue(task("through an outage"));
    assert_eq!(gate.heard(), "begun");
    scene.store.on_every_call(|_| Err(StoreError::transient(OnFire).with_session_lost()));
    gate.open();
    eventually("the group is degraded", || {
        let degraded = scene.world.health.degraded_groups();
        degraded.get(&scene.name).is_some_and(|marks| {
            marks[0].cause == DegradedCause::StoreFault
                && marks[0].fault_type.as_deref() == Some(std::any::type_name::<OnFire>())
        })
    });
    assert_eq!(scene.world.health.check().status, HealthStatus::Degraded);
    assert!(scene.world.health.is_healthy());
    let reports =
        || scene.store.calls(StoreCall::Report) + scene.store.calls(StoreCall::OpenSession);
    let tried = reports();
    eventually("it is tried again", || reports() > tried + 1);
    scene.store.clear();

    let record = scene.world.ended(id);
    assert_eq!(facts(&record), (JobState::Succeeded, 1, 0));
    assert_eq!(record.output::<String>().expect("set"), "kept");
    eventually("it has recovered", || scene.world.health.check().status == HealthStatus::Healthy);
    assert!(group.wait_until_idle(PATIENCE));
    let told = lines::lines(&scene.name, 1301);
    assert_eq!(told.len(), 2, "at its beginning and at its end: {told:?}");
    assert!(told.iter().all(|line| line.level == Level::Warn));
    assert_eq!(lines::lines(&scene.name, 2001).len(), 0);
    assert_eq!(group.shutdown().halts, []);
}

#[test]
fn a_dead_ticker_halts_every_pump_of_its_group() {
    let scene = Scene::new("dead ticker");
    let options = scene.options().pumps(3).ticker_probe(|| panic!("no more ticks"));
    let group = scene.spawn_as(registry(), options);
    let Stopped::Halted(halt) = group.wait() else { panic!("no halt") };
    assert!(halt.message.starts_with("the ticker thread died: "), "{halt}");
    assert!(halt.message.ends_with("no more ticks"), "{halt}");
    assert_eq!(scene.world.health.halted_groups().len(), 1);
    assert_eq!(lines::lines(&scene.name, 2001).len(), 3, "one line per pump");
    scene.surroundings_live();
}

#[test]
fn a_ticker_that_dies_of_a_violation_halts_under_its_trigger() {
    let scene = Scene::new("ticker with a violation");
    let options = scene.options().ticker_probe(|| resume_unwind(Box::new(violation())));
    scene.halted(&scene.spawn_as(registry(), options), MADE);
}

#[test]
fn a_dead_worker_halts_its_pump() {
    let scene = Scene::new("dead worker");
    let options = scene.options().worker_probe(|| resume_unwind(Box::new("no more work")));
    let halt = scene.halted(&scene.spawn_as(registry(), options), None);
    assert_eq!(halt.message, "a worker thread is gone");
}

#[test]
fn a_violation_halts_whichever_call_tells_it() {
    use StoreCall::{Claim, FindLapsed, HandBack, HeldBy, OpenSession, Renew};
    std::thread::scope(|scope| {
        for call in [OpenSession, Claim, StoreCall::Report, Renew, FindLapsed, HeldBy, HandBack] {
            scope.spawn(move || halts_on_violation_of(call));
        }
    });
}

fn halts_on_violation_of(call: StoreCall) {
    let scene = Scene::new(&format!("violation told by {call:?}"));
    let lose_an_answer = AtomicBool::new(call == StoreCall::HeldBy);
    scene.store.on_every_call(move |made| {
        if made == StoreCall::Claim && lose_an_answer.swap(false, Ordering::SeqCst) {
            return Err(StoreError::transient(OnFire).with_session_lost());
        }
        // Outcomes go with the next claim where there is one.
        let is_it = made == call || (call, made) == (StoreCall::Report, StoreCall::Exchange);
        if is_it { Err(violation().into()) } else { Ok(()) }
    });
    let gate = Gate::new();
    let handler = move |gate: &Gate, ctx: &JobContext, _: Task| {
        gate.say("begun");
        match call {
            StoreCall::Renew => ctx.sleep(PATIENCE)?,
            StoreCall::HandBack => {
                let stopping = ctx.stopping().recv_timeout(PATIENCE);
                assert!(stopping.is_err());
                return Err(ctx.give_way());
            }
            _ => {}
        }
        Ok(())
    };
    let group = scene.spawn(Registry::new().handle_with(&gate.clone().into(), handler));
    scene.world.enqueue(task("long"));
    if call == StoreCall::HandBack {
        assert_eq!(gate.heard(), "begun");
        group.begin_shutdown();
    }
    let halt = scene.halted(&group, MADE);
    assert_eq!(halt.type_name, std::any::type_name::<InvariantViolation>());
    assert_eq!(halt.message, "made by the test");
}

#[derive(Debug, thiserror::Error)]
enum AppError {
    #[error(transparent)]
    Through(#[from] InvariantViolation),
    #[error("while it was wrapped")]
    Around(#[source] StoreError),
}

#[test]
fn a_violation_that_comes_out_of_a_handler_halts_however_it_comes() {
    type Way = fn(&JobContext) -> JobResult;
    let ways: [(&str, Way); 15] = [
        ("returned plainly", |_| Err(violation().into())),
        ("boxed", |_| {
            let boxed: Box<dyn std::error::Error + Send + Sync> = violation().into();
            Err(boxed.into())
        }),
        ("in anyhow", |_| Err(anyhow::Error::from(violation()).context("on its way").into())),
        ("in eyre", |_| Err(eyre::Report::from(violation()).wrap_err("on its way").into())),
        ("transparently", |_| Err(AppError::from(violation()).into())),
        ("in a store error", |_| Err(AppError::Around(violation().into()).into())),
        ("discarded", |_| Err(JobError::discard(violation()))),
        ("in an enqueue error", |_| Err(EnqueueError::Invariant(violation()).into())),
        ("by unwinding", |_| resume_unwind(Box::new(violation()))),
        ("by a panic", |_| panic_any(violation())),
        ("by a panic with a store error", |_| panic_any(StoreError::from(violation()))),
        ("by a panic with an enqueue error", |_| panic_any(EnqueueError::Invariant(violation()))),
        ("by a panic with a client's error", |_| panic_any(Error::Invariant(violation()))),
        ("by a panic with a boxed error", |_| {
            let error = AppError::Around(violation().into());
            panic_any(Box::<dyn std::error::Error + Send + Sync>::from(error))
        }),
        ("by a panic with a job error", |_| panic_any(JobError::from(AppError::from(violation())))),
    ];
    for (how, way) in ways {
        let scene = Scene::new(how);
        let group = scene.spawn(Registry::new().handle(move |ctx, _: Task| way(ctx)));
        let id = scene.world.enqueue(task("finds it"));
        let halt = scene.halted(&group, MADE);
        assert!(halt.message.contains("made by the test"), "{how}: {halt}");
        // Nothing is recorded of the attempt: the lease lapses.
        assert_eq!(facts(&scene.world.job(id)), (JobState::Leased, 1, 0), "{how}");
    }
}

#[test]
fn a_handler_that_panics_with_a_bare_trigger_halts_under_it() {
    let scene = Scene::new("bare trigger");
    let handler = |_: &JobContext, _: Task| panic_any(InvariantTrigger::DanglingGatingEdge);
    let group = scene.spawn(Registry::new().handle(handler));
    scene.world.enqueue(task("finds it"));
    scene.halted(&group, MADE);
}

#[test]
fn a_store_that_panics_halts_the_group() {
    let scene = Scene::new("store panics");
    scene.store.on_every_call(|call| match call {
        StoreCall::Claim => panic!("a bug of the adapter"),
        _ => Ok(()),
    });
    let halt = scene.halted(&scene.spawn(registry()), None);
    assert_eq!((halt.type_name.as_str(), halt.message.as_str()), ("panic", "a bug of the adapter"));
}

#[test]
fn a_store_that_panics_with_a_violation_halts_under_its_trigger() {
    let scene = Scene::new("store panics with a violation");
    scene.store.on_every_call(|call| match call {
        StoreCall::FindLapsed => panic_any(violation()),
        _ => Ok(()),
    });
    scene.halted(&scene.spawn(registry()), MADE);
}

#[test]
fn a_client_is_told_of_a_violation_once_and_nothing_is_tried_again() {
    let store = Intercept::new(memory().store);
    let client = Client::new(store.clone());
    store.on_enqueue(|_, _| Err(violation().into()));
    store.on_job(|_, _| panic_any(violation()));
    store.on_counts(|_| Err(violation().into()));
    store.on_request_cancel(|_, _, _| Err(violation().into()));
    let told = client.enqueue(task("lied to"));
    assert!(matches!(told, Err(EnqueueError::Invariant(v)) if Some(v.trigger()) == MADE));
    assert_eq!(store.calls(StoreCall::Enqueue), 1);
    let id = JobId::new();
    assert!(matches!(client.monitor().job(id), Err(Error::Invariant(_))));
    assert!(matches!(client.wait(id, PATIENCE), Err(Error::Invariant(_))));
    assert!(matches!(client.monitor().counts(), Err(Error::Invariant(_))));
    assert!(matches!(client.operator("ada").cancel(id), Err(Error::Invariant(_))));
    store.clear();
    client.enqueue(task("honest again")).expect("the client goes on");
}

#[test]
fn a_client_sees_that_its_enqueue_was_answered_for_another_number_of_jobs() {
    let store = Intercept::new(memory().store);
    store.on_enqueue(|session, rows| {
        session.enqueue(&[rows, &[JobRow::new(JobId::new(), "x")]].concat())
    });
    let told = Client::new(store).enqueue(task("one"));
    let Err(EnqueueError::Invariant(violation)) = told else { panic!("{told:?}") };
    assert_eq!(violation.trigger(), InvariantTrigger::UnexpectedAffectedRowCount);
}

/// A store's lie and the check that finds it, counted exactly: no other test uses these triggers.
fn halts_on_lie(trigger: InvariantTrigger, lie: impl FnOnce(&Intercept)) {
    let scene = Scene::new(trigger.name());
    let seen =
        || (invariant::violations(trigger, InvariantAction::Halt), invariant::halts(Some(trigger)));
    let before = seen();
    lie(&scene.store);
    let handler = |ctx: &JobContext, Task(how): Task| match how.as_str() {
        "long" => Ok(ctx.sleep(PATIENCE)?),
        _ => Ok(()),
    };
    let group = scene.spawn_as(Registry::new().handle(handler), scene.options().workers(1));
    let how =
        if trigger == InvariantTrigger::HeartbeatBatchCountMismatch { "long" } else { "short" };
    scene.world.enqueue(task(how));
    scene.halted(&group, Some(trigger));
    assert_eq!(seen(), (before.0 + 1, before.1 + 1), "{trigger}");
    assert_eq!(invariant::violations(trigger, InvariantAction::Degrade), 0);
}

#[test]
fn a_report_answered_with_another_number_of_rows_halts() {
    halts_on_lie(InvariantTrigger::OutcomeBatchCountMismatch, |store| {
        store.on_report(|session, rows| {
            let mut reported = session.report(rows)?;
            reported.rows.pop();
            Ok(reported)
        });
    });
}

#[test]
fn a_renewal_answered_with_another_number_of_rows_halts() {
    halts_on_lie(InvariantTrigger::HeartbeatBatchCountMismatch, |store| {
        store.on_renew(|session, worker, rows, lease| {
            let mut renewal = session.renew(worker, rows, lease)?;
            renewal.rows.extend(renewal.rows.clone());
            Ok(renewal)
        });
    });
}

#[test]
fn a_claim_that_hands_out_an_ended_job_halts() {
    halts_on_lie(InvariantTrigger::ClaimedJobTerminal, |store| {
        store.on_claim(|session, claim| {
            let mut claimed = session.claim(claim)?;
            claimed.jobs.iter_mut().for_each(|job| job.state_before = JobState::Succeeded);
            Ok(claimed)
        });
    });
}

#[test]
fn a_claim_that_hands_out_more_than_was_asked_for_halts() {
    halts_on_lie(InvariantTrigger::ClaimBatchOverrun, |store| {
        store.on_claim(|session, claim| {
            let mut claimed = session.claim(claim)?;
            while !claimed.jobs.is_empty() && claimed.jobs.len() <= claim.total as usize {
                let mut more = claimed.jobs[0].clone();
                more.id = JobId::new();
                claimed.jobs.push(more);
            }
            Ok(claimed)
        });
    });
}

#[test]
fn a_claim_that_hands_out_what_another_holds_halts() {
    halts_on_lie(InvariantTrigger::ClaimedRowNotLeasedToWorker, |store| {
        store.on_claim(|session, claim| {
            let mut claimed = session.claim(claim)?;
            claimed.jobs.iter_mut().for_each(|job| job.owner = Some(backwave::WorkerId::new()));
            Ok(claimed)
        });
    });
}

#[test]
fn a_claim_that_hands_out_what_its_own_predicate_excludes_or_no_handler_is_for_halts() {
    halts_on_lie(InvariantTrigger::ClaimedRowNotEligible, |store| {
        store.on_claim(|session, claim| {
            let mut claimed = session.claim(claim)?;
            claimed.jobs.iter_mut().for_each(|job| job.state_before = JobState::AwaitingParent);
            Ok(claimed)
        });
    });
    // The same trigger, and so the same test: the counts above are exact.
    let scene = Scene::new("a job that no handler is for");
    scene.store.on_claim(|session, claim| {
        let mut claimed = session.claim(claim)?;
        claimed.jobs.iter_mut().for_each(|job| job.wire_name = "foreign".to_owned());
        Ok(claimed)
    });
    let group = scene.spawn(registry());
    scene.world.enqueue(task("one"));
    let halt = scene.halted(&group, Some(InvariantTrigger::ClaimedRowNotEligible));
    assert!(
        halt.message.ends_with("a wire name or payload version that no handler is for"),
        "{halt}"
    );
}

#[test]
fn an_outcome_refused_although_its_lease_lives_degrades_and_the_group_goes_on() {
    let trigger = InvariantTrigger::OutcomeFenceRejected;
    let scene = Scene::new(trigger.name());
    let lied = AtomicBool::new(false);
    scene.store.on_report(move |session, rows| {
        if lied.swap(true, Ordering::SeqCst) {
            return session.report(rows);
        }
        let refused = vec![RowReport::Stale(StaleReason::Unknown); rows.len()];
        Ok(backwave::store::Reported::new(refused, session.now()?))
    });
    let group = scene.spawn(registry());
    let refused = scene.world.enqueue(task("refused"));
    eventually("it is told", || !lines::lines(&scene.name, 2003).is_empty());
    let after = scene.world.enqueue(task("after"));
    assert_eq!(facts(&scene.world.ended(after)), (JobState::Succeeded, 1, 0));
    assert_eq!(scene.world.health.check().status, HealthStatus::Healthy);
    assert_eq!(invariant::violations(trigger, InvariantAction::Degrade), 1);
    assert_eq!(invariant::violations(trigger, InvariantAction::Halt), 0);
    let told = lines::lines(&scene.name, 2003);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((told[0].level, told[0].field("invariant_trigger")), (Level::Warn, trigger.name()));
    assert_eq!(lines::lines(&scene.name, 1202).len(), 1);
    assert_eq!(lines::lines(&scene.name, 2001).len(), 0);
    // Nobody renews it any more: it lapses, and the group itself inherits it.
    scene.world.clock.skip(Duration::from_secs(6));
    assert_eq!(facts(&scene.world.ended(refused)), (JobState::Succeeded, 2, 1));
    assert_eq!(group.shutdown().halts, []);
}

#[test]
fn a_halted_group_may_be_spawned_again_under_its_name_and_a_live_one_may_not() {
    let scene = Scene::new("again");
    scene.store.on_claim(|_, _| Err(violation().into()));
    let group = scene.spawn(registry());
    scene.halted(&group, MADE);
    scene.store.clear();
    let again = scene.spawn(registry());
    assert!(scene.world.health.is_healthy(), "a new group of that name clears the halt");
    let id = scene.world.enqueue(task("served"));
    assert_eq!(scene.world.ended(id).state, JobState::Succeeded);
    let health = Arc::clone(&scene.world.health);
    let taken = spawn_group(scene.store.clone(), registry(), scene.options(), health);
    assert!(matches!(taken, Err(SpawnError::NameTaken { group }) if group == scene.name));
    // The handle of the old one says nothing about the new one.
    drop(group);
    let id = scene.world.enqueue(task("served"));
    assert_eq!(scene.world.ended(id).state, JobState::Succeeded);
    assert_eq!(again.shutdown().halts, []);
}

#[test]
fn a_group_that_has_lost_one_pump_of_three_is_degraded_and_serves() {
    let scene = Scene::new("one of three");
    let lied = AtomicBool::new(false);
    scene.store.on_every_call(move |call| {
        if call == StoreCall::Claim && !lied.swap(true, Ordering::SeqCst) {
            return Err(violation().into());
        }
        Ok(())
    });
    let group = scene.spawn_as(registry(), scene.options().pumps(3));
    let health = &scene.world.health;
    eventually("one pump has halted", || !health.partially_halted_groups().is_empty());
    assert_eq!(health.partially_halted_groups()[&scene.name].trigger, MADE);
    assert!(health.is_healthy() && health.halted_groups().is_empty());
    assert_eq!(health.check().status, HealthStatus::Degraded);
    let shown = health.check().to_string();
    assert!(shown.contains("1 of 3 pumps halted"), "{shown}");
    let jobs = scene.world.client.enqueue_many((0..100).map(|_| task("served"))).expect("accepted");
    for job in jobs {
        assert_eq!(facts(&scene.world.ended(job.id)), (JobState::Succeeded, 1, 0));
    }
    let report = group.shutdown();
    assert_eq!((report.halts.len(), report.unanswered), (1, 0));
    assert!(matches!(group.wait(), Stopped::Cleanly(stopped) if stopped == report));
    assert_eq!(lines::lines(&scene.name, 2001).len(), 1);
}

#[test]
fn a_store_that_cannot_be_opened_shows_in_the_health_and_is_opened_later() {
    let scene = Scene::new("opened later");
    scene.store.on_every_call(|call| match call {
        StoreCall::OpenSession => Err(StoreError::transient(OnFire)),
        _ => Ok(()),
    });
    let group = scene.spawn(registry());
    let id = scene.world.enqueue(NewJob::raw("task", "\"waits\""));
    eventually("the group is degraded", || {
        scene.world.health.check().status == HealthStatus::Degraded
    });
    scene.store.clear();
    assert_eq!(facts(&scene.world.ended(id)), (JobState::Succeeded, 1, 0));
    assert_eq!(group.shutdown().halts, []);
}

#[test]
fn a_session_that_panics_when_it_is_closed_takes_no_stop_along() {
    let scene = Scene::new("closed badly");
    scene.store.on_every_call(|call| match call {
        StoreCall::CloseSession => panic!("while it was closed"),
        _ => Ok(()),
    });
    let group = scene.spawn(registry());
    let id = scene.world.enqueue(task("served"));
    assert_eq!(scene.world.ended(id).state, JobState::Succeeded);
    let report = group.shutdown();
    assert_eq!((report.unanswered, report.halts.len()), (0, 0));
    // The stop is complete, and the name free again.
    drop(scene.spawn(registry()));
}

/// A logger, an error or a payload of the host's that panics is not ours to halt on; this one error is
/// shown on the way to health and log.
#[test]
fn a_fault_whose_display_panics_still_halts_cleanly() {
    #[derive(Debug)]
    struct Unspeakable;
    impl fmt::Display for Unspeakable {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("it cannot be told")
        }
    }
    impl std::error::Error for Unspeakable {}
    let scene = Scene::new("unspeakable");
    scene.store.on_claim(|_, _| Err(StoreError::new(Unspeakable)));
    scene.halted(&scene.spawn(registry()), None);
}
