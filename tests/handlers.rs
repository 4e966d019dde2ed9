//! How an attempt may end: every way in which a handler can return, fail or misbehave, and what is
//! recorded of it.

mod support;

use backwave::{
    Job, JobContext, JobError, JobResult, JobState, NewJob, OutputError, Registry, RetryPolicy,
};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::fmt;
use std::panic::panic_any;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use support::world::{PATIENCE, Task, World, facts, quick, task};

on_every_store!(
    an_error_is_a_failed_attempt_whose_chain_is_the_detail,
    every_kind_of_panic_is_a_failed_attempt_with_its_message,
    a_payload_of_a_panic_that_panics_when_dropped_is_contained,
    a_panic_with_a_lock_held_poisons_the_lock_and_nothing_of_ours,
    an_error_whose_display_panics_still_fails_its_attempt_only,
    an_error_whose_drop_panics_still_fails_its_attempt_only,
    a_job_whose_drop_panics_after_its_work_is_a_failed_attempt,
    attempts_and_failures_count_up_to_the_ceiling,
    a_jobs_own_policy_beats_that_of_the_group,
    a_job_types_own_policy_and_time_limit_are_stored_with_it,
    a_snooze_is_no_failure,
    a_retry_after_a_given_time_is_a_failure_and_waits_for_it,
    a_discard_dead_letters_at_once,
    a_cancel_is_no_failure,
    an_output_is_kept_of_the_attempt_that_succeeded,
    an_output_over_the_bound_is_the_handlers_error,
    a_wrapper_sees_every_attempt_and_may_end_it,
    a_hundred_jobs_that_panic_by_turns_are_all_served_by_one_worker,
    a_handler_enqueues_through_its_context,
);

/// Runs one job to its end with a handler, under a group that allows no second try.
fn run_once(
    world: &World,
    handler: impl Fn(&JobContext, Task) -> JobResult + Send + Sync + 'static,
) -> backwave::store::JobRecord {
    let options = quick("once").retry(RetryPolicy::never());
    let _group = world.spawn(Registry::new().handle(handler), options);
    let id = world.enqueue(task("once"));
    let record = world.ended(id);
    assert!(world.health.is_healthy(), "{}", world.health.check());
    // The group is still there to serve.
    record
}

fn detail(record: &backwave::store::JobRecord) -> &str {
    record.failure_detail.as_deref().unwrap_or_default()
}

#[derive(Debug, thiserror::Error)]
#[error("the mail was not sent")]
struct NotSent(#[source] std::num::ParseIntError);

fn an_error_is_a_failed_attempt_whose_chain_is_the_detail(world: &World) {
    let record = run_once(world, |_, _| {
        "12x".parse::<u32>().map_err(NotSent)?;
        Ok(())
    });
    assert_eq!(facts(&record), (JobState::DeadLettered, 1, 1));
    assert_eq!(detail(&record), "the mail was not sent: invalid digit found in string");
}

fn every_kind_of_panic_is_a_failed_attempt_with_its_message(world: &World) {
    let registry = Registry::new().handle(|_, Task(kind)| match kind.as_str() {
        "str" => panic!("a constant"),
        "String" => panic!("made of {}", kind.len()),
        _ => panic_any(17),
    });
    let _group = world.spawn(registry, quick("panics").retry(RetryPolicy::never()));
    let ids = ["str", "String", "number"].map(|kind| world.enqueue(task(kind)));
    let records = ids.map(|id| world.ended(id));
    let expected = ["a constant", "made of 6", "a panic without a message"];
    for (record, message) in records.iter().zip(expected) {
        assert_eq!(facts(record), (JobState::DeadLettered, 1, 1));
        assert_eq!(detail(record), format!("the handler panicked: {message}"));
    }
    assert!(world.health.is_healthy());
}

struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic_any(Self);
    }
}

fn a_payload_of_a_panic_that_panics_when_dropped_is_contained(world: &World) {
    let record = run_once(world, |_, _| panic_any(PanicsOnDrop));
    assert_eq!(facts(&record), (JobState::DeadLettered, 1, 1));
    assert_eq!(detail(&record), "the handler panicked: a panic without a message");
}

fn a_panic_with_a_lock_held_poisons_the_lock_and_nothing_of_ours(world: &World) {
    let shared = Arc::new(Mutex::new(0_u32));
    let registry = Registry::new().handle_with(&shared, |shared: &Mutex<u32>, _, Task(how)| {
        let mut count = shared.lock().unwrap_or_else(PoisonError::into_inner);
        *count += 1;
        assert_eq!(how, "well", "with the lock held");
        Ok(())
    });
    let _group = world.spawn(registry, quick("locks").retry(RetryPolicy::never()));
    let bad = world.enqueue(task("badly"));
    assert_eq!(world.ended(bad).state, JobState::DeadLettered);
    assert!(shared.is_poisoned());
    let good = world.enqueue(task("well"));
    assert_eq!(facts(&world.ended(good)), (JobState::Succeeded, 1, 0));
    assert_eq!(*shared.lock().unwrap_or_else(PoisonError::into_inner), 2);
}

#[derive(Debug)]
struct Unspeakable;

impl fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("it cannot be told")
    }
}

impl Error for Unspeakable {}

fn an_error_whose_display_panics_still_fails_its_attempt_only(world: &World) {
    let record = run_once(world, |_, _| Err(Unspeakable.into()));
    assert_eq!(facts(&record), (JobState::DeadLettered, 1, 1));
    assert_eq!(detail(&record), "the error's own Display panicked");
}

#[derive(Debug, thiserror::Error)]
#[error("dropped badly")]
struct DroppedBadly;

impl Drop for DroppedBadly {
    fn drop(&mut self) {
        panic!("while it was dropped")
    }
}

fn an_error_whose_drop_panics_still_fails_its_attempt_only(world: &World) {
    let record = run_once(world, |_, _| Err(DroppedBadly.into()));
    assert_eq!(facts(&record), (JobState::DeadLettered, 1, 1));
    assert_eq!(detail(&record), "dropped badly");
}

#[derive(Serialize, Deserialize)]
struct Fragile;

impl Job for Fragile {
    const WIRE_NAME: &'static str = "fragile";
}

impl Drop for Fragile {
    fn drop(&mut self) {
        // The handler's own value, on a worker of the group: not the one that the test enqueues.
        if std::thread::current().name().is_some_and(|name| name.starts_with("fragile-")) {
            panic!("the job broke");
        }
    }
}

fn a_job_whose_drop_panics_after_its_work_is_a_failed_attempt(world: &World) {
    let options = quick("fragile").retry(RetryPolicy::never());
    let registry = Registry::new().handle(|_, job: Fragile| {
        drop(job);
        Ok(())
    });
    let _group = world.spawn(registry, options);
    let record = world.ended(world.enqueue(&Fragile));
    assert_eq!(facts(&record), (JobState::DeadLettered, 1, 1));
    assert_eq!(detail(&record), "the handler panicked: the job broke");
    assert!(world.health.is_healthy());
}

fn attempts_and_failures_count_up_to_the_ceiling(world: &World) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let registry = Registry::new().handle_with(&seen, |seen: &Mutex<Vec<_>>, ctx, _: Task| {
        let attempt = (ctx.attempt(), ctx.failures(), ctx.is_last_try());
        seen.lock().expect("no handler panics").push(attempt);
        Err(format!("failure {}", ctx.attempt()).into())
    });
    let _group = world.spawn(registry, quick("ceiling"));
    let record = world.ended(world.enqueue(task("fails")));
    assert_eq!(facts(&record), (JobState::DeadLettered, 3, 3));
    assert_eq!(detail(&record), "failure 3");
    let seen = seen.lock().expect("no handler panics");
    assert_eq!(*seen, [(1, 0, false), (2, 1, false), (3, 2, true)]);
}

fn a_jobs_own_policy_beats_that_of_the_group(world: &World) {
    let _group = world.spawn(Registry::new().handle(fail), quick("own"));
    let own = RetryPolicy::new(5).fixed(Duration::from_millis(1));
    let record = world.ended(world.enqueue(task("fails").retry(own)));
    assert_eq!(facts(&record), (JobState::DeadLettered, 5, 5));
}

#[derive(Serialize, Deserialize)]
struct Hurried;

impl Job for Hurried {
    const WIRE_NAME: &'static str = "hurried";
    const QUEUE: &'static str = "hurry";
    const RETRY: Option<RetryPolicy> = Some(RetryPolicy::new(2).fixed(Duration::from_millis(1)));
    const TIMEOUT: Option<Duration> = Some(Duration::from_millis(10));
}

fn a_job_types_own_policy_and_time_limit_are_stored_with_it(world: &World) {
    let registry = Registry::new().handle(|ctx, _: Hurried| Ok(ctx.sleep(PATIENCE)?));
    let _group = world.spawn(registry, quick("hurried"));
    let record = world.ended(world.enqueue(&Hurried));
    assert_eq!(facts(&record), (JobState::DeadLettered, 2, 2));
    assert_eq!((record.retry, record.timeout), (Hurried::RETRY, Hurried::TIMEOUT));
    assert_eq!(record.queue, "hurry");
}

fn fail(_: &JobContext, _: Task) -> JobResult {
    Err("it always fails".into())
}

fn a_snooze_is_no_failure(world: &World) {
    let registry = Registry::new().handle(|ctx, _: Task| match ctx.attempt() {
        1..=5 => Err(JobError::snooze(Duration::from_millis(1))),
        _ => Ok(()),
    });
    let _group = world.spawn(registry, quick("snoozes"));
    let record = world.ended(world.enqueue(task("later")));
    assert_eq!(facts(&record), (JobState::Succeeded, 6, 0));
}

fn a_retry_after_a_given_time_is_a_failure_and_waits_for_it(world: &World) {
    const HOUR: Duration = Duration::from_secs(3600);
    let registry = Registry::new().handle(|ctx, _: Task| match ctx.attempt() {
        1 => Err(JobError::retry_in(HOUR, "come back in an hour")),
        _ => Ok(()),
    });
    let group = world.spawn(registry, quick("in_an_hour"));
    let id = world.enqueue(task("waits"));
    assert!(group.wait_until_idle(PATIENCE));
    let waiting = world.job(id);
    assert_eq!(facts(&waiting), (JobState::Scheduled, 1, 1));
    assert_eq!(detail(&waiting), "come back in an hour");
    assert!(waiting.due_at.since(waiting.created_at) >= HOUR);
    world.clock.skip(HOUR + Duration::from_secs(5));
    assert_eq!(facts(&world.ended(id)), (JobState::Succeeded, 2, 1));
}

fn a_discard_dead_letters_at_once(world: &World) {
    let _group = world.spawn(
        Registry::new().handle(|_, _: Task| Err(JobError::discard("no retry mends it"))),
        quick("discards"),
    );
    let record = world.ended(world.enqueue(task("bad")));
    assert_eq!(facts(&record), (JobState::DeadLettered, 1, 1));
    assert_eq!(detail(&record), "no retry mends it");
}

fn a_cancel_is_no_failure(world: &World) {
    let record = run_once(world, |_, _| Err(JobError::cancel("nothing to do")));
    assert_eq!(facts(&record), (JobState::Cancelled, 1, 0));
    assert_eq!(detail(&record), "nothing to do");
}

fn an_output_is_kept_of_the_attempt_that_succeeded(world: &World) {
    let registry = Registry::new().handle(|ctx, _: Task| {
        ctx.set_output(&(ctx.attempt(), "Zürich"))?;
        if ctx.attempt() == 1 { Err("too early".into()) } else { Ok(()) }
    });
    let _group = world.spawn(registry, quick("outputs"));
    let record = world.ended(world.enqueue(task("tells")));
    assert_eq!(facts(&record), (JobState::Succeeded, 2, 1));
    assert_eq!(record.output::<(u32, String)>().expect("there"), (2, "Zürich".to_owned()));
}

fn an_output_over_the_bound_is_the_handlers_error(world: &World) {
    let record = run_once(world, |ctx, _| {
        // With its quotes exactly the bound, and one byte more.
        ctx.set_output(&"x".repeat(65_534))?;
        let refused = ctx.set_output(&"x".repeat(65_535));
        assert!(matches!(refused, Err(OutputError::TooLarge { bytes: 65_537, limit: 65_536 })));
        refused?;
        Ok(())
    });
    assert_eq!(facts(&record), (JobState::DeadLettered, 1, 1));
    assert_eq!(detail(&record), "the output has 65537 bytes and the limit is 65536");
    assert!(record.output.is_none());
}

fn a_wrapper_sees_every_attempt_and_may_end_it(world: &World) {
    let seen = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&seen);
    let registry = Registry::new()
        .handle(|ctx, _: Task| match ctx.attempt() {
            1 => panic!("through the wrapper"),
            _ => Err("not reached".into()),
        })
        .around(move |ctx, next| {
            count.fetch_add(1, Ordering::SeqCst);
            if ctx.attempt() == 2 { Ok(()) } else { next() }
        });
    let _group = world.spawn(registry, quick("wrapped"));
    let record = world.ended(world.enqueue(task("wrapped")));
    assert_eq!(facts(&record), (JobState::Succeeded, 2, 1));
    assert_eq!(seen.load(Ordering::SeqCst), 2);
}

fn a_hundred_jobs_that_panic_by_turns_are_all_served_by_one_worker(world: &World) {
    let registry = Registry::new().handle(|_, Task(how)| {
        assert_eq!(how, "ok", "a turn to panic");
        Ok(())
    });
    let options = quick("turns").workers(1).retry(RetryPolicy::never());
    let group = world.spawn(registry, options);
    let jobs = (0..100).map(|turn| task(if turn % 2 == 0 { "panic" } else { "ok" }));
    let answers = world.client.enqueue_many(jobs).expect("accepted");
    assert_eq!(answers.len(), 100);
    assert!(group.wait_until_idle(PATIENCE));
    assert_eq!(world.count(JobState::Succeeded), 50);
    assert_eq!(world.count(JobState::DeadLettered), 50);
    assert_eq!(group.shutdown().handed_back, 0);
}

fn a_handler_enqueues_through_its_context(world: &World) {
    let runs = Arc::new(AtomicUsize::new(0));
    let registry = Registry::new().handle_with(&runs, |runs: &AtomicUsize, ctx, Task(depth)| {
        runs.fetch_add(1, Ordering::SeqCst);
        let depth: u32 = depth.parse()?;
        if depth > 0 {
            let child = NewJob::new(&Task((depth - 1).to_string()));
            ctx.client().enqueue_many([child, task("0")])?;
        }
        Ok(())
    });
    let group = world.spawn(registry, quick("parents"));
    world.enqueue(task("10"));
    assert!(group.wait_until_idle(PATIENCE));
    assert_eq!(runs.load(Ordering::SeqCst), 21);
    assert_eq!(world.count(JobState::Succeeded), 21);
}
