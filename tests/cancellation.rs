//! How a handler is asked to end, what it hears, and what becomes of its job.

mod support;

use backwave::crossbeam_channel::{after, select};
use backwave::operator::CancelOutcome;
use backwave::{
    CancelReason, DispatchPolicy, Error, JobError, JobResultExt, JobState, Registry, RetryPolicy,
};
use std::time::Duration;
use support::gate::Gate;
use support::log;
use support::world::{PATIENCE, Task, World, eventually, facts, quick, task};

on_every_store!(
    an_operator_cancels_a_running_job_whose_handler_gives_way,
    a_job_that_fails_after_it_was_cancelled_is_not_tried_again,
    a_job_that_succeeds_although_it_was_cancelled_has_succeeded,
    a_waiting_job_is_cancelled_at_once_and_never_runs,
    a_time_limit_fires_the_token_and_counts_a_failure,
    a_sleep_ends_when_the_token_fires,
    a_discarded_sleep_is_still_a_cancellation,
    a_handler_hears_that_its_lease_is_lost_and_its_result_is_dropped,
    a_handler_that_ignores_its_token_is_replaced_and_shown,
);

fn an_operator_cancels_a_running_job_whose_handler_gives_way(world: &World) {
    let gate = Gate::new();
    let registry =
        Registry::new().handle_with(&gate.clone().into(), |gate: &Gate, ctx, _: Task| {
            gate.say("begun");
            select! {
                recv(ctx.cancelled()) -> _ => {}
                recv(after(PATIENCE)) -> _ => Err("nobody cancels")?,
            }
            gate.say(format!("{:?}", ctx.token().reason()));
            ctx.check_cancelled()?;
            Ok(())
        });
    let _group = world.spawn(registry, quick("cancelled"));
    let id = world.enqueue(task("long"));
    assert_eq!(gate.heard(), "begun");
    let operator = world.client.operator("ada");
    assert_eq!(operator.cancel(id).expect("asked for"), CancelOutcome::Requested);
    assert_eq!(gate.heard(), "Some(OperatorRequest)");
    let record = world.ended(id);
    assert_eq!(facts(&record), (JobState::Cancelled, 1, 0));
    assert!(matches!(
        operator.cancel(id),
        Err(Error::IllegalState { state: JobState::Cancelled, .. })
    ));
}

fn a_job_that_fails_after_it_was_cancelled_is_not_tried_again(world: &World) {
    let gate = Gate::new();
    let registry = Registry::new().handle_with(&gate.clone().into(), |gate: &Gate, _, _: Task| {
        gate.pass("begun");
        Err("it failed on its own".into())
    });
    let _group = world.spawn(registry, quick("failed"));
    let id = world.enqueue(task("long"));
    assert_eq!(gate.heard(), "begun");
    world.client.operator("ada").cancel(id).expect("asked for");
    gate.open();
    let record = world.ended(id);
    assert_eq!((record.state, record.attempt), (JobState::Cancelled, 1));
    assert!(gate.unheard().is_empty());
}

fn a_job_that_succeeds_although_it_was_cancelled_has_succeeded(world: &World) {
    let gate = Gate::new();
    let registry = Registry::new().handle_with(&gate.clone().into(), |gate: &Gate, _, _: Task| {
        gate.pass("begun");
        Ok(())
    });
    let _group = world.spawn(registry, quick("succeeded"));
    let id = world.enqueue(task("long"));
    assert_eq!(gate.heard(), "begun");
    world.client.operator("ada").cancel(id).expect("asked for");
    gate.open();
    assert_eq!(facts(&world.ended(id)), (JobState::Succeeded, 1, 0));
}

fn a_waiting_job_is_cancelled_at_once_and_never_runs(world: &World) {
    let gate = Gate::new();
    let registry = Registry::new().handle_with(&gate.clone().into(), |gate: &Gate, _, _: Task| {
        gate.say("run");
        Ok(())
    });
    let group = world.spawn(registry, quick("waiting"));
    let id = world.enqueue(task("later").delay(Duration::from_secs(60)));
    let outcome = world.client.operator("ada").cancel(id).expect("called off");
    assert_eq!(outcome, CancelOutcome::Cancelled);
    world.clock.skip(Duration::from_secs(61));
    let after = world.enqueue(task("now"));
    assert_eq!(world.ended(after).state, JobState::Succeeded);
    assert!(group.wait_until_idle(PATIENCE));
    assert_eq!(facts(&world.job(id)), (JobState::Cancelled, 0, 0));
    assert_eq!(gate.unheard(), ["run"]);
}

fn a_time_limit_fires_the_token_and_counts_a_failure(world: &World) {
    let gate = Gate::new();
    let registry =
        Registry::new().handle_with(&gate.clone().into(), |gate: &Gate, ctx, _: Task| {
            let slept = ctx.sleep(PATIENCE);
            gate.say(format!("{:?}", slept.map_err(|cancelled| cancelled.reason)));
            slept?;
            Ok(())
        });
    let options = quick("limited").retry(RetryPolicy::new(2).fixed(Duration::from_millis(1)));
    let _group = world.spawn(registry, options);
    let record = world.ended(world.enqueue(task("long").timeout(Duration::from_millis(30))));
    assert_eq!(facts(&record), (JobState::DeadLettered, 2, 2));
    assert_eq!(gate.unheard(), ["Err(TimedOut)", "Err(TimedOut)"]);
    let detail = record.failure_detail.unwrap_or_default();
    assert!(detail.starts_with("the attempt took longer than its limit of 30ms: "), "{detail}");
}

fn a_sleep_ends_when_the_token_fires(world: &World) {
    let registry = Registry::new().handle(|ctx, _: Task| {
        let token = ctx.token().clone();
        // A thread of the handler's own hears it as well.
        let listener = std::thread::spawn(move || token.cancelled().recv());
        let ended = ctx.sleep(PATIENCE).err().map(|cancelled| cancelled.reason);
        assert_eq!(ended, Some(CancelReason::TimedOut));
        assert!(listener.join().expect("no panic").is_err());
        Err(JobError::cancel("as it should"))
    });
    let _group = world.spawn(registry, quick("sleeps").retry(RetryPolicy::never()));
    let record = world.ended(world.enqueue(task("long").timeout(Duration::from_millis(20))));
    // The token's reason settles the end, not what the error claims.
    assert_eq!(facts(&record), (JobState::DeadLettered, 1, 1));
    let detail = record.failure_detail.unwrap_or_default();
    assert!(detail.ends_with("as it should"), "{detail}");
}

fn a_discarded_sleep_is_still_a_cancellation(world: &World) {
    let gate = Gate::new();
    let registry =
        Registry::new().handle_with(&gate.clone().into(), |gate: &Gate, ctx, _: Task| {
            gate.say("begun");
            ctx.sleep(PATIENCE).or_discard()?;
            Ok(())
        });
    let _group = world.spawn(registry, quick("discarded"));
    let id = world.enqueue(task("long"));
    assert_eq!(gate.heard(), "begun");
    world.client.operator("ada").cancel(id).expect("asked for");
    assert_eq!(facts(&world.ended(id)), (JobState::Cancelled, 1, 0));
}

fn a_handler_hears_that_its_lease_is_lost_and_its_result_is_dropped(world: &World) {
    log::record();
    let gate = Gate::new();
    let registry =
        Registry::new().handle_with(&gate.clone().into(), |gate: &Gate, ctx, _: Task| {
            if ctx.attempt() == 1 {
                gate.say("begun");
                let ended = ctx.sleep(PATIENCE).err().map(|cancelled| cancelled.reason);
                gate.pass(format!("{ended:?}"));
                return Err(JobError::discard("of the past"));
            }
            ctx.set_output(&"of the second")?;
            Ok(())
        });
    let name = world.name("lost");
    let group = world.spawn(registry, quick(&name));
    let id = world.enqueue(task("long"));
    assert_eq!(gate.heard(), "begun");
    world.clock.skip(Duration::from_secs(6));
    assert_eq!(gate.heard(), "Some(LeaseLost)");
    let record = world.ended(id);
    assert_eq!(facts(&record), (JobState::Succeeded, 2, 1));
    gate.open();
    assert!(group.wait_until_idle(PATIENCE));
    group.shutdown();
    assert_eq!(world.job(id), record);
    assert_eq!(log::lines(&name, 1202).len(), 1);
    assert_eq!(log::lines(&name, 2003).len(), 0);
}

fn a_handler_that_ignores_its_token_is_replaced_and_shown(world: &World) {
    log::record();
    let gate = Gate::new();
    let registry =
        Registry::new().handle_with(&gate.clone().into(), |gate: &Gate, ctx, job: Task| {
            match job.0.as_str() {
                "deaf" => gate.pass("deaf"),
                _ => gate.say(format!("{} beside the deaf one", job.0)),
            }
            ctx.set_output(&job.0)?;
            Ok(())
        });
    let name = world.name("deaf");
    let options = quick(&name).workers(1).patience(Duration::from_millis(50));
    let options = options.dispatch(DispatchPolicy::strict(["slow", "default"]));
    world.client.operator("ada").set_concurrency_limit("slow", Some(1)).expect("set");
    let group = world.spawn(registry, options);
    let deaf = world.enqueue(task("deaf").timeout(Duration::from_millis(20)).queue("slow"));
    assert_eq!(gate.heard(), "deaf");
    let behind = world.enqueue(task("behind").queue("slow"));
    let other = world.enqueue(task("served"));
    assert_eq!(gate.heard(), "served beside the deaf one");
    assert_eq!(world.ended(other).state, JobState::Succeeded);

    eventually("the stuck handler is shown", || {
        let report = world.health.check();
        report.groups[0].stuck.iter().any(|stuck| stuck.job == deaf && stuck.attempt == 1)
    });
    // As many as there are workers have been replaced: there is no thread left to replace.
    assert_eq!(world.health.check().status, backwave::HealthStatus::Degraded);
    let warnings = log::lines(&name, 2006);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(warnings[0].field("job_id"), deaf.to_string());
    // It keeps its lease, and with it the one slot of its queue.
    let why = world.client.monitor().explain(behind).expect("read").to_string();
    assert!(why.contains("limited to 1 at a time, and 1 are leased"), "{why}");
    assert_eq!(facts(&world.job(behind)), (JobState::Scheduled, 0, 0));

    gate.open();
    let record = world.ended(deaf);
    assert_eq!(facts(&record), (JobState::Succeeded, 1, 0));
    eventually("nobody is stuck any more", || {
        let report = world.health.check();
        report.groups[0].stuck.is_empty() && report.status == backwave::HealthStatus::Healthy
    });
    assert_eq!(facts(&world.ended(behind)), (JobState::Succeeded, 1, 0));
    let after = world.enqueue(task("after"));
    assert_eq!(world.ended(after).state, JobState::Succeeded);
    assert_eq!(group.shutdown().still_running, []);
}
