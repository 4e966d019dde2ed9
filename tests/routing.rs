//! Which group runs which job: by queue, wire name and payload version; and what becomes of a payload
//! that cannot be read.

mod support;

use backwave::{
    DecodeError, DispatchPolicy, Job, JobState, NewJob, Payload, Registry, SpawnError, spawn_group,
};
use serde::{Deserialize, Deserializer, Serialize};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use support::world::{PATIENCE, Task, World, facts, quick, task};

on_every_store!(
    a_payload_that_cannot_be_decoded_is_quarantined_and_nothing_runs,
    a_payload_whose_deserialize_panics_is_quarantined,
    a_quarantined_job_runs_after_a_requeue_by_who_can_read_it,
    an_older_payload_is_read_by_upcast,
    an_older_payload_without_an_upcast_is_quarantined,
    a_newer_payload_is_left_for_those_who_can_read_it,
    two_groups_on_one_queue_run_what_each_has_handlers_for,
    a_job_nobody_has_a_handler_for_waits_untouched,
    a_strict_policy_serves_its_queues_in_order,
    a_group_serves_five_hundred_queues,
    names_of_any_script_and_with_quotes_route_like_others,
);

#[derive(Serialize, Deserialize)]
struct Strict {
    count: u32,
}

impl Job for Strict {
    const WIRE_NAME: &'static str = "strict";
}

fn detail(record: &backwave::store::JobRecord) -> &str {
    record.failure_detail.as_deref().unwrap_or_default()
}

fn a_payload_that_cannot_be_decoded_is_quarantined_and_nothing_runs(world: &World) {
    let runs = Arc::new(AtomicU32::new(0));
    let registry = Registry::new().handle_with(&runs, |runs: &AtomicU32, _, _: Strict| {
        runs.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    let _group = world.spawn(registry, quick("undecodable"));
    let wrong_type = world.enqueue(NewJob::raw("strict", r#"{"count":"a secret"}"#));
    let missing = world.enqueue(NewJob::raw("strict", "{}"));
    let record = world.ended(wrong_type);
    assert_eq!(facts(&record), (JobState::Quarantined, 1, 0));
    assert!(detail(&record).starts_with("payload version 1 cannot be decoded: "), "{record:?}");
    assert!(!detail(&record).contains("secret"), "{record:?}");
    assert!(detail(&world.ended(missing)).ends_with("missing field `count` at line 1 column 2"));
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    assert!(world.health.is_healthy());
}

#[derive(Serialize)]
struct Explosive;

impl<'de> Deserialize<'de> for Explosive {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        panic!("it went off")
    }
}

impl Job for Explosive {
    const WIRE_NAME: &'static str = "explosive";
}

fn a_payload_whose_deserialize_panics_is_quarantined(world: &World) {
    let registry = Registry::new().handle(|_, _: Explosive| Ok(()));
    let _group = world.spawn(registry, quick("explosive"));
    let record = world.ended(world.enqueue(&Explosive));
    assert_eq!(facts(&record), (JobState::Quarantined, 1, 0));
    assert!(detail(&record).ends_with("its Deserialize panicked: it went off"), "{record:?}");
    assert!(world.health.is_healthy());
}

fn a_quarantined_job_runs_after_a_requeue_by_who_can_read_it(world: &World) {
    #[derive(Serialize, Deserialize)]
    struct Lenient {
        count: Option<u32>,
    }
    impl Job for Lenient {
        const WIRE_NAME: &'static str = "strict";
    }
    let group = world.spawn(Registry::new().handle(|_, _: Strict| Ok(())), quick("old"));
    let id = world.enqueue(NewJob::raw("strict", "{}"));
    assert_eq!(world.ended(id).state, JobState::Quarantined);
    group.shutdown();
    world.client.operator("ada").requeue(id).expect("it has ended");
    let registry = Registry::new().handle(|_, job: Lenient| {
        assert_eq!(job.count, None);
        Ok(())
    });
    let _group = world.spawn(registry, quick("new"));
    assert_eq!(facts(&world.ended(id)), (JobState::Succeeded, 2, 0));
}

#[derive(Serialize, Deserialize)]
struct Mail {
    to: Vec<String>,
}

impl Job for Mail {
    const WIRE_NAME: &'static str = "mail";
    const VERSION: u32 = 3;

    fn upcast(version: u32, old: Payload<'_>) -> Result<Self, DecodeError> {
        match version {
            2 => Ok(Self { to: vec![old.decode::<MailV2>()?.to] }),
            _ => Err(DecodeError::new("nobody knows version 1 any more")),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct MailV2 {
    to: String,
}

impl Job for MailV2 {
    const WIRE_NAME: &'static str = "mail";
    const VERSION: u32 = 2;
}

fn an_older_payload_is_read_by_upcast(world: &World) {
    let registry = Registry::new().handle(|ctx, job: Mail| Ok(ctx.set_output(&job.to)?));
    let _group = world.spawn(registry, quick("upcast"));
    let old = world.enqueue(&MailV2 { to: "ada".to_owned() });
    let new = world.enqueue(&Mail { to: vec!["ada".to_owned(), "grace".to_owned()] });
    assert_eq!(world.ended(old).output::<Vec<String>>().expect("set"), ["ada"]);
    assert_eq!(world.ended(new).output::<Vec<String>>().expect("set"), ["ada", "grace"]);
}

fn an_older_payload_without_an_upcast_is_quarantined(world: &World) {
    let _group = world.spawn(Registry::new().handle(|_, _: Mail| Ok(())), quick("no_upcast"));
    let record = world.ended(world.enqueue(NewJob::raw("mail", "{}")));
    assert_eq!(facts(&record), (JobState::Quarantined, 1, 0));
    assert!(detail(&record).ends_with("nobody knows version 1 any more"), "{record:?}");
}

fn a_newer_payload_is_left_for_those_who_can_read_it(world: &World) {
    let old = world.spawn(Registry::new().handle(|_, _: MailV2| Ok(())), quick("old"));
    let newer = world.enqueue(&Mail { to: Vec::new() });
    let same = world.enqueue(&MailV2 { to: String::new() });
    assert_eq!(world.ended(same).state, JobState::Succeeded);
    assert!(old.wait_until_idle(PATIENCE));
    assert_eq!(facts(&world.job(newer)), (JobState::Scheduled, 0, 0));
    let _new = world.spawn(Registry::new().handle(|_, _: Mail| Ok(())), quick("new"));
    assert_eq!(facts(&world.ended(newer)), (JobState::Succeeded, 1, 0));
}

fn two_groups_on_one_queue_run_what_each_has_handlers_for(world: &World) {
    const EACH: usize = 150;
    let tasks = Registry::new().handle(|ctx, _: Task| Ok(ctx.set_output(&"tasks")?));
    let mails = Registry::new().handle(|ctx, _: Mail| Ok(ctx.set_output(&"mails")?));
    let a = world.spawn(tasks, quick("a"));
    let b = world.spawn(mails, quick("b"));
    let jobs = (0..EACH).flat_map(|_| [task("one"), NewJob::new(&Mail { to: Vec::new() })]);
    let answers = world.client.enqueue_many(jobs).expect("accepted");
    assert!(a.wait_until_idle(PATIENCE) && b.wait_until_idle(PATIENCE));
    for (index, answer) in answers.iter().enumerate() {
        let record = world.job(answer.id);
        assert_eq!(facts(&record), (JobState::Succeeded, 1, 0));
        let by: String = record.output().expect("set");
        assert_eq!(by, if index % 2 == 0 { "tasks" } else { "mails" });
    }
}

fn a_job_nobody_has_a_handler_for_waits_untouched(world: &World) {
    let registry = Registry::new().handle(|_, _: Task| Ok(()));
    let group = world.spawn(registry, quick("stranger").workers(1));
    // Older than everything else in its queue: it must not stand in the way.
    let strange = world.enqueue(NewJob::raw("of another program", "{}"));
    world.client.enqueue_many((0..50).map(|_| task("own"))).expect("accepted");
    assert!(group.wait_until_idle(PATIENCE));
    assert_eq!(world.count(JobState::Succeeded), 50);
    assert_eq!(facts(&world.job(strange)), (JobState::Scheduled, 0, 0));
}

fn a_strict_policy_serves_its_queues_in_order(world: &World) {
    let order = Arc::new(Mutex::new(Vec::new()));
    let jobs = (0..20).flat_map(|_| [task("x").queue("bulk"), task("x").queue("urgent")]);
    world.client.enqueue_many(jobs).expect("accepted");
    let registry = Registry::new().handle_with(&order, |order: &Mutex<Vec<_>>, ctx, _: Task| {
        order.lock().expect("no handler panics").push(ctx.queue().to_owned());
        Ok(())
    });
    let policy = DispatchPolicy::strict(["urgent", "bulk"]);
    let group = world.spawn(registry, quick("strict").workers(1).dispatch(policy));
    assert!(group.wait_until_idle(PATIENCE));
    let order = order.lock().expect("no handler panics");
    assert_eq!(order.len(), 40);
    assert!(order[..20].iter().all(|queue| queue == "urgent"), "{order:?}");
}

fn a_group_serves_five_hundred_queues(world: &World) {
    // As long as a queue's name may be.
    let names: Vec<String> = (0..500).map(|number| format!("{number:0>128}")).collect();
    let jobs = names.iter().map(|name| task(name.as_str()).queue(name.as_str()));
    let jobs = world.client.enqueue_many(jobs).expect("accepted");
    let equal = names.iter().map(|name| (name.as_str(), 1));
    let registry = Registry::new().handle(|_, _: Task| Ok(()));
    let options = quick("many queues").dispatch(DispatchPolicy::weighted(equal));
    let group = world.spawn(registry, options);
    for job in jobs {
        assert_eq!(facts(&world.ended(job.id)), (JobState::Succeeded, 1, 0));
    }
    assert_eq!(group.shutdown().halts, []);
}

fn names_of_any_script_and_with_quotes_route_like_others(world: &World) {
    #[derive(Serialize, Deserialize)]
    struct Greeting(String);
    impl Job for Greeting {
        const WIRE_NAME: &'static str = "grüße; DROP TABLE backwave_jobs; --'\"$1";
        const QUEUE: &'static str = "列 'quoted' \"twice\"; -- 🚀";
    }
    let registry = Registry::new().handle(|ctx, job: Greeting| {
        let names = (ctx.wire_name(), ctx.queue(), ctx.tags(), job.0);
        Ok(ctx.set_output(&names)?)
    });
    let _group = world.spawn(registry, quick("gruppe 'ü'"));
    let text = "NUL \0, bell \u{7}, 'quotes', \\ and 🚀".to_owned();
    let tag = "étiquette's; --";
    let record = world.ended(world.enqueue(NewJob::new(&Greeting(text.clone())).tag(tag)));
    assert_eq!(facts(&record), (JobState::Succeeded, 1, 0));
    let seen: (String, String, Vec<String>, String) = record.output().expect("set");
    let expected = (Greeting::WIRE_NAME, Greeting::QUEUE, vec![tag.to_owned()], text);
    assert_eq!((seen.0.as_str(), seen.1.as_str(), seen.2, seen.3), expected);
    assert_eq!((record.queue.as_str(), record.wire_name.as_str()), (expected.1, expected.0));
}

#[test]
fn a_registry_without_handlers_or_with_two_of_one_name_is_refused() {
    let world = support::world::memory();
    let refused = |registry| {
        let (store, health) = (Arc::clone(&world.store), Arc::clone(&world.health));
        spawn_group(store, registry, quick("refused"), health).map(drop).expect_err("refused")
    };
    assert!(matches!(refused(Registry::new()), SpawnError::EmptyRegistry { .. }));
    let twice = Registry::new().handle(|_, _: Mail| Ok(())).handle(|_, _: MailV2| Ok(()));
    let error = refused(twice);
    assert!(matches!(&error, SpawnError::DuplicateWireName(name) if name.wire_name == "mail"));
    // A name that was refused is not taken.
    let _group = world.spawn(Registry::new().handle(|_, _: Mail| Ok(())), quick("refused"));
}
