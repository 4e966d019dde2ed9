//! Jobs under test on virtual time: everything moves when the test says so, and the same way each time.

use backwave::observer::{ObserverOptions, TransitionFilter};
use backwave::schedule::Schedule;
use backwave::testing::{Harness, Mishap, under_mishaps};
use backwave::{
    GroupOptions, HealthStatus, Job, JobError, JobId, JobState, NewJob, Observers, Registry,
    RetryPolicy,
};
use serde::{Deserialize, Serialize};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);

#[derive(Serialize, Deserialize)]
struct Step(u32);

impl Job for Step {
    const WIRE_NAME: &'static str = "step";
    const RETRY: Option<RetryPolicy> = Some(RetryPolicy::new(3).fixed(HOUR).jitter_percent(0));
}

fn succeeding() -> Registry {
    Registry::new().handle(|_, _: Step| Ok(()))
}

#[test]
fn a_retry_comes_when_its_time_has_come_and_the_ceiling_ends_it() {
    let registry = Registry::new().handle(|_, _: Step| Err("never".into()));
    let mut harness = Harness::new(registry);
    let start = harness.now();
    let job = harness.enqueue(&Step(1));
    harness.run_until_idle();
    assert_eq!((harness.job(job).state, harness.job(job).failures), (JobState::Scheduled, 1));
    assert!(harness.now() < start + Duration::from_secs(1));
    harness.advance(HOUR - Duration::from_secs(1));
    assert_eq!(harness.job(job).failures, 1);
    harness.advance(Duration::from_secs(2));
    assert_eq!(harness.job(job).failures, 2);
    assert!(harness.drain(2 * HOUR));
    assert_eq!((harness.job(job).state, harness.job(job).failures), (JobState::DeadLettered, 3));
    assert_eq!(harness.health().check().status, HealthStatus::Healthy);
}

#[test]
fn a_year_of_jobs_due_each_night_takes_no_time() {
    let began = Instant::now();
    let runs = Arc::new(AtomicU32::new(0));
    let registry = Registry::new().handle_with(&runs, |runs: &AtomicU32, _, _: Step| {
        runs.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    let mut harness = Harness::new(registry);
    for night in 1..=365 {
        harness.enqueue(NewJob::new(&Step(night)).delay(24 * HOUR * night));
    }
    harness.advance(180 * 24 * HOUR + HOUR);
    assert_eq!(runs.load(Ordering::SeqCst), 180);
    assert!(harness.drain(365 * 24 * HOUR));
    assert_eq!(runs.load(Ordering::SeqCst), 365);
    // Well under a second on a machine of its own; a bound that a busy one keeps as well.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn a_dependent_runs_after_its_parents_and_is_cancelled_with_them() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let registry =
        Registry::new().handle_with(&order, |order: &Mutex<Vec<u32>>, ctx, step: Step| {
            ctx.sleep(Duration::from_secs(10))?;
            order.lock().unwrap().push(step.0);
            if step.0 == 3 { Err(JobError::discard("no")) } else { Ok(()) }
        });
    let mut harness = Harness::new(registry);
    let first = harness.enqueue(&Step(1));
    let second = harness.enqueue(NewJob::new(&Step(2)).parent(first));
    let third = harness.enqueue(NewJob::new(&Step(3)).parent(second));
    let fourth = harness.enqueue(NewJob::new(&Step(4)).parent(third));
    harness.advance(Duration::from_secs(15));
    assert_eq!(harness.job(second).state, JobState::Leased);
    assert!(harness.drain(HOUR));
    assert_eq!(*order.lock().unwrap(), [1, 2, 3]);
    assert_eq!(harness.job(third).state, JobState::DeadLettered);
    assert_eq!(harness.job(fourth).state, JobState::Cancelled);
}

#[test]
fn a_time_limit_ends_a_sleep_and_counts_a_failure() {
    let registry = Registry::new().handle(|ctx, _: Step| Ok(ctx.sleep(HOUR)?));
    let mut harness = Harness::new(registry);
    let limited = NewJob::new(&Step(1)).timeout(Duration::from_secs(60));
    let job = harness.enqueue(limited.retry(RetryPolicy::never()));
    let start = harness.now();
    assert!(harness.drain(HOUR));
    assert_eq!(harness.job(job).state, JobState::DeadLettered);
    let took = harness.now().since(start);
    assert!(took >= Duration::from_secs(60) && took < Duration::from_secs(70), "{took:?}");
}

#[test]
fn a_long_handler_keeps_its_lease_and_a_cancel_request_reaches_it() {
    let registry = Registry::new().handle(|ctx, _: Step| Ok(ctx.sleep(24 * HOUR)?));
    let mut harness = Harness::new(registry);
    let job = harness.enqueue(&Step(1));
    harness.advance(5 * HOUR);
    assert_eq!((harness.job(job).state, harness.job(job).attempt), (JobState::Leased, 1));
    harness.operator().cancel(job).unwrap();
    harness.advance(Duration::from_secs(60));
    assert_eq!(harness.job(job).state, JobState::Cancelled);
}

#[test]
fn a_clean_stop_hands_back_and_a_crash_lets_the_lease_lapse() {
    let registry = Registry::new().handle(|ctx, _: Step| Ok(ctx.sleep(HOUR)?));
    let mut harness = Harness::new(registry);
    let job = harness.enqueue(&Step(1));
    harness.advance(Duration::from_secs(10));
    let report = harness.stop();
    assert_eq!((report.handed_back, report.unanswered), (1, 0));
    let record = harness.job(job);
    assert_eq!((record.state, record.attempt, record.failures), (JobState::Scheduled, 1, 0));

    harness.restart();
    harness.advance(Duration::from_secs(10));
    harness.crash();
    assert_eq!(harness.job(job).state, JobState::Leased);
    harness.advance(HOUR);
    assert_eq!(harness.job(job).state, JobState::Leased, "nobody is there to settle it");
    harness.restart();
    harness.advance(Duration::from_secs(10));
    let record = harness.job(job);
    assert_eq!((record.state, record.attempt, record.failures), (JobState::Scheduled, 2, 1));
}

#[test]
fn two_runs_with_one_seed_are_one_run_ids_and_order_included() {
    let run = |seed: u64| -> Vec<(u32, JobId)> {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let registry =
            Registry::new().handle_with(&seen, |seen: &Mutex<Vec<_>>, ctx, step: Step| {
                ctx.sleep(Duration::from_millis(u64::from(step.0 % 3)))?;
                seen.lock().unwrap().push((step.0, ctx.job_id()));
                if step.0 < 10 {
                    ctx.client().enqueue(&Step(step.0 + 10))?;
                }
                Ok(())
            });
        let options = GroupOptions::new("harness").workers(3);
        let mut harness = Harness::builder(registry).options(options).seed(seed).build();
        for step in 0..10 {
            harness.enqueue(&Step(step));
        }
        assert!(harness.drain(HOUR));
        let seen = seen.lock().unwrap();
        seen.clone()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn an_effect_that_is_not_idempotent_is_found_out_and_the_smallest_cause_is_named() {
    let search = catch_unwind(AssertUnwindSafe(|| {
        under_mishaps(50, |mishaps| {
            let charged = Arc::new(AtomicU32::new(0));
            let registry =
                Registry::new().handle_with(&charged, |charged: &AtomicU32, _, _: Step| {
                    charged.fetch_add(1, Ordering::SeqCst);
                    Ok(())
                });
            let mut harness = Harness::builder(registry).mishaps(mishaps.iter().copied()).build();
            harness.enqueue(&Step(1));
            assert!(harness.drain(24 * HOUR));
            assert_eq!(charged.load(Ordering::SeqCst), 1, "charged once");
        });
    }));
    let panic = search.expect_err("charging twice is found");
    let message = panic.downcast_ref::<String>().expect("the message is told");
    assert!(message.contains("@0]: "), "one mishap is enough: {message}");
    assert!(message.contains("charged once"), "{message}");
}

#[test]
fn each_mishap_comes_when_it_is_told_to() {
    let attempts = |mishap: &str| {
        let mishap: Mishap = mishap.parse().unwrap();
        let mut harness = Harness::builder(succeeding()).mishaps([mishap]).build();
        let job = harness.enqueue(&Step(1));
        assert!(harness.drain(24 * HOUR), "{mishap}");
        let record = harness.job(job);
        assert_eq!(record.state, JobState::Succeeded, "{mishap}");
        (record.attempt, record.failures)
    };
    assert_eq!(attempts("crash-before-report@0"), (2, 1));
    assert_eq!(attempts("crash-after-report@0"), (1, 0));
    assert_eq!(attempts("report-answer-lost@0"), (1, 0));
    assert_eq!(attempts("run-twice@0"), (2, 0));
    assert_eq!(attempts("clock-step@0"), (2, 1));
    assert_eq!(attempts("crash-before-report@7"), (1, 0));
}

fn succeeded() -> TransitionFilter {
    TransitionFilter::new().state(JobState::Succeeded)
}

#[test]
fn a_year_of_a_nightly_schedule_runs_each_night_once_and_an_observer_sees_each_success_in_order() {
    let (ticks, seen) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let registry = Registry::new().handle_with(&ticks, |ticks: &Mutex<Vec<_>>, ctx, _: Step| {
        ticks.lock().unwrap().push((ctx.tick().unwrap(), ctx.job_id()));
        Ok(())
    });
    let mut harness = Harness::new(registry);
    let told = Arc::clone(&seen);
    harness.observe(Observers::new().on("alerts", succeeded(), move |what| {
        told.lock().unwrap().push((what.transition.position, what.job));
        Ok(())
    }));
    // With the clocks changing at 02:00 and 03:00, half past two is in the gap and in the repeated hour.
    let nightly = Schedule::cron("nightly", "30 2 * * *", &Step(1)).zone("Europe/Berlin");
    let planned = nightly.next_times_after(harness.now(), 365).unwrap();
    harness.schedules().declare("shop", [nightly]).unwrap();
    let span = planned.last().unwrap().since(harness.now());
    harness.advance(span + Duration::from_secs(60));
    let ticks = ticks.lock().unwrap().clone();
    assert_eq!(ticks.iter().map(|(tick, _)| *tick).collect::<Vec<_>>(), planned);
    let seen = seen.lock().unwrap().clone();
    assert!(seen.is_sorted_by(|one, next| one.0 < next.0));
    let jobs = |list: &[(_, JobId)]| list.iter().map(|(_, job)| *job).collect::<Vec<_>>();
    let run = ticks.iter().map(|(_, job)| *job).collect::<Vec<_>>();
    assert_eq!(jobs(&seen), run);
}

#[test]
fn a_paused_schedule_does_not_run_until_it_is_resumed_and_a_trigger_runs_at_once() {
    let mut harness = Harness::new(succeeding());
    let hourly = Schedule::every("hourly", HOUR, &Step(1));
    let schedules = harness.schedules();
    schedules.declare("shop", [hourly]).unwrap();
    let runs = |harness: &Harness| {
        let counts = harness.monitor().counts().unwrap();
        counts.iter().map(|count| count.count).sum::<u64>()
    };
    harness.advance(5 * HOUR + HOUR / 2);
    let before = runs(&harness);
    assert_eq!(before, 5);
    schedules.pause("hourly").unwrap();
    harness.advance(5 * HOUR);
    assert_eq!(runs(&harness), before);
    let job = schedules.trigger("hourly").unwrap();
    harness.run_until_idle();
    assert_eq!(harness.job(job).state, JobState::Succeeded);
    schedules.resume("hourly").unwrap();
    harness.advance(2 * HOUR);
    assert_eq!(runs(&harness), before + 3);
}

#[test]
fn a_delivery_that_fails_is_tried_again_when_it_is_due_and_after_a_crash() {
    let mut harness = Harness::new(succeeding());
    let tries = Arc::new(Mutex::new(Vec::new()));
    let (told, fails) = (Arc::clone(&tries), Arc::new(AtomicU32::new(2)));
    let options = ObserverOptions::new().retry(RetryPolicy::new(5).fixed(HOUR).jitter_percent(0));
    let observers = Observers::new().on_with("alerts", succeeded(), options, move |what| {
        told.lock().unwrap().push(what.job);
        let left = fails.load(Ordering::SeqCst);
        fails.store(left.saturating_sub(1), Ordering::SeqCst);
        if left > 0 { Err("not now".into()) } else { Ok(()) }
    });
    harness.observe(observers);
    let job = harness.enqueue(&Step(1));
    harness.run_until_idle();
    assert_eq!(*tries.lock().unwrap(), [job]);
    harness.advance(HOUR - Duration::from_secs(1));
    assert_eq!(*tries.lock().unwrap(), [job]);
    harness.advance(Duration::from_secs(2));
    assert_eq!(*tries.lock().unwrap(), [job, job]);
    harness.crash();
    harness.restart();
    harness.advance(2 * HOUR);
    assert_eq!(*tries.lock().unwrap(), [job, job, job]);
    harness.stop();
}
