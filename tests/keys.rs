//! Unique keys and concurrency keys as a program meets them: what an enqueue answers, what runs beside what.

mod support;

use backwave::monitor::{AuditAction, JobFilter, Reason};
use backwave::{EnqueueError, Error, Group, JobState, NewJob, Registry};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::gate::Gate;
use support::world::{PATIENCE, Task, World, eventually, facts, quick, task};

on_every_store!(
    a_key_that_is_held_is_answered_with_its_holder,
    a_long_call_with_keys_is_answered_job_by_job,
    a_job_that_failed_does_not_come_back_beside_the_holder_of_its_key,
    of_each_key_one_job_runs_at_a_time_in_several_groups,
    a_job_that_waits_for_its_key_is_explained_and_lets_others_pass,
    keys_that_cannot_be_used_are_refused_with_what_is_wrong,
);

fn a_key_that_is_held_is_answered_with_its_holder(world: &World) {
    let sync = || task("sync").unique_key("account/7");
    let first = world.client.enqueue(sync()).expect("accepted");
    assert!(first.is_new && first.held_in.is_none());
    let again = world.client.enqueue(sync()).expect("accepted");
    assert_eq!((again.id, again.is_new), (first.id, false));
    assert_eq!(again.held_in, Some(JobState::Scheduled));
    let holder = world.client.monitor().find(JobFilter::new().unique_key("account/7"));
    assert_eq!(holder.map(|job| job.expect("read").id).collect::<Vec<_>>(), [first.id]);

    let gate = Gate::new();
    let registry = {
        let gate = gate.clone();
        Registry::new().handle(move |_, job: Task| {
            gate.pass(job.0);
            Ok(())
        })
    };
    let group = world.spawn(registry, quick("keys"));
    gate.heard();
    let while_it_runs = world.client.enqueue(sync()).expect("accepted");
    assert_eq!((while_it_runs.id, while_it_runs.held_in), (first.id, Some(JobState::Leased)));
    gate.open();
    assert_eq!(facts(&world.ended(first.id)), (JobState::Succeeded, 1, 0));
    let next = world.client.enqueue(sync()).expect("accepted");
    assert!(next.is_new && next.id != first.id, "its end has freed the key");
    gate.heard();
    gate.open();
    world.ended(next.id);
    drop(group);
}

fn a_long_call_with_keys_is_answered_job_by_job(world: &World) {
    const JOBS: usize = 6_000;
    const KEYS: usize = 5_990;
    let jobs = (0..JOBS).map(|number| task("x").unique_key(format!("key {}", number % KEYS)));
    let jobs: Vec<NewJob> = jobs.collect();
    let ids: Vec<_> = jobs.iter().map(NewJob::job_id).collect();
    let answers = world.client.enqueue_many(jobs).expect("accepted");
    for (number, answer) in answers.iter().enumerate() {
        let expected = (ids[number % KEYS], number < KEYS);
        assert_eq!((answer.id, answer.is_new), expected, "job {number}");
    }
    assert_eq!(world.count(JobState::Scheduled), KEYS as u64);
}

fn a_job_that_failed_does_not_come_back_beside_the_holder_of_its_key(world: &World) {
    let registry = Registry::new().handle(|_, job: Task| match job.0.as_str() {
        "fails" => Err("it fails".into()),
        _ => Ok(()),
    });
    let group = world.spawn(registry, quick("failing"));
    let failed = world.enqueue(task("fails").unique_key("k"));
    assert_eq!(world.ended(failed).state, JobState::DeadLettered);
    group.shutdown();
    let holder = world.enqueue(task("works").unique_key("k"));
    assert_ne!(holder, failed);
    let operator = world.client.operator("ada");
    match operator.requeue(failed) {
        Err(Error::KeyHeld { id, by }) => assert_eq!((id, by), (failed, holder)),
        other => panic!("{other:?}"),
    }
    assert_eq!(operator.requeue_matching(&JobFilter::new()).expect("done"), 0);
    operator.cancel(holder).expect("cancelled");
    operator.requeue(failed).expect("requeued");
    assert_eq!(facts(&world.job(failed)), (JobState::Scheduled, 3, 0));
    let audit = world.client.monitor().audit(&Default::default()).expect("read");
    let told: Vec<_> = audit.iter().map(|record| record.action).collect();
    assert_eq!(told, [AuditAction::Requeue, AuditAction::Cancel]);
}

/// Counts how many of each key run at a time, and the most that ever did.
#[derive(Default)]
struct Witness(Mutex<BTreeMap<String, (u32, u32)>>);

impl Witness {
    fn registry(self: &Arc<Self>) -> Registry {
        Registry::new().handle_with(self, |witness: &Self, ctx, job: Task| {
            let step = |by: i32| {
                let mut running = witness.0.lock().expect("no panic");
                let (now, most) = running.entry(job.0.clone()).or_default();
                *now = now.saturating_add_signed(by);
                *most = (*most).max(*now);
            };
            step(1);
            // A moment in which others may begin.
            ctx.sleep(Duration::from_millis(2))?;
            step(-1);
            Ok(())
        })
    }
}

fn of_each_key_one_job_runs_at_a_time_in_several_groups(world: &World) {
    const JOBS: usize = 80;
    let operator = world.client.operator("ada");
    operator.set_concurrency_limit_per_key("wide", Some(2)).expect("set");
    let witness = Arc::new(Witness::default());
    let groups: Vec<Group> = (0..3)
        .map(|number| {
            let dispatch = backwave::DispatchPolicy::strict(["default", "wide"]);
            let options = quick(&format!("{number}")).workers(8).dispatch(dispatch);
            world.spawn(witness.registry(), options)
        })
        .collect();
    let jobs = (0..JOBS).map(|number| {
        let (key, queue) = [("a", "default"), ("b", "default"), ("c", "wide")][number % 3];
        task(key).queue(queue).concurrency_key(key)
    });
    let enqueued = world.client.enqueue_many(jobs).expect("accepted");
    eventually("all have run", || world.count(JobState::Succeeded) == JOBS as u64);
    let most = witness.0.lock().expect("no panic").clone();
    let most: Vec<_> = most.iter().map(|(key, (_, most))| (key.as_str(), *most)).collect();
    assert!(most[0] == ("a", 1) && most[1] == ("b", 1) && most[2].1 <= 2, "{most:?}");
    for job in enqueued {
        assert_eq!(facts(&world.job(job.id)), (JobState::Succeeded, 1, 0), "waiting is no attempt");
    }
    drop(groups);
}

fn a_job_that_waits_for_its_key_is_explained_and_lets_others_pass(world: &World) {
    let gate = Gate::new();
    let registry = {
        let gate = gate.clone();
        Registry::new().handle(move |_, job: Task| {
            gate.pass(job.0);
            Ok(())
        })
    };
    let group = world.spawn(registry, quick("explained").workers(4));
    world.enqueue(task("first").concurrency_key("k"));
    assert_eq!(gate.heard(), "first");
    let waiting = world.enqueue(task("second").concurrency_key("k"));
    world.enqueue(task("without"));
    assert_eq!(gate.heard(), "without");
    world.enqueue(task("other").concurrency_key("other"));
    assert_eq!(gate.heard(), "other");
    let why = world.client.monitor().explain(waiting).expect("read");
    let at_limit = Reason::KeyAtLimit { key: "k".to_owned(), limit: 1, leased: 1 };
    assert!(why.reasons.contains(&at_limit), "{why}");
    let told = r#"it waits for its concurrency key "k", of which 1 of 1 are leased"#;
    assert!(why.to_string().contains(told), "{why}");
    (0..4).for_each(|_| gate.open());
    assert_eq!(gate.heard(), "second");
    assert!(group.wait_until_idle(PATIENCE));
    assert_eq!(world.count(JobState::Succeeded), 4);
}

fn keys_that_cannot_be_used_are_refused_with_what_is_wrong(world: &World) {
    let long = "k".repeat(257);
    for (job, message) in [
        (task("x").unique_key(""), "the unique key \"\" is refused: it is empty".to_owned()),
        (
            task("x").concurrency_key(long.as_str()),
            format!(
                "the concurrency key {:?} is refused: it has 257 bytes and the limit is 256",
                &long[..64]
            ),
        ),
    ] {
        let error = world.client.enqueue(job).expect_err("refused");
        let EnqueueError::Rejected { index: 0, reason } = error else { panic!("{error:?}") };
        assert_eq!(reason.to_string(), message);
    }
    assert_eq!(world.count(JobState::Scheduled), 0);
}
