//! Jobs that run after others, through groups and clients: what they wait for, what they see, and what becomes of
//! them when a parent does not succeed.

mod support;

use backwave::store::Rejection;
use backwave::{
    EnqueueError, Error, Job, JobError, JobId, JobResult, JobState, NewJob, ParentRule, Registry,
};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use support::gate::Gate;
use support::world::{PATIENCE, Task, World, eventually, facts, quick, task};

on_every_store!(
    a_dependent_runs_after_its_parents_and_reads_what_they_left,
    a_dependent_is_cancelled_with_a_parent_that_fails_and_so_are_its_own,
    a_dependent_on_any_end_sees_how_each_parent_ended,
    a_dependent_of_what_ended_before_is_settled_at_its_enqueue,
    a_stranger_is_no_ancestor,
    a_graph_is_enqueued_whole_or_not_at_all,
    an_operators_cancel_goes_down_the_graph,
    more_dependents_than_one_write_resolves_all_run,
    a_chain_of_ten_thousand_is_called_off_to_its_end,
);

#[derive(Serialize, Deserialize)]
struct Part(u64);

impl Job for Part {
    const WIRE_NAME: &'static str = "part";
}

#[derive(Serialize, Deserialize)]
struct Sum;

impl Job for Sum {
    const WIRE_NAME: &'static str = "sum";
}

/// Leaves its number doubled.
fn part(ctx: &backwave::JobContext, job: Part) -> JobResult {
    match job.0 {
        0 => Err(JobError::discard("nothing to double")),
        number => Ok(ctx.set_output(&(number * 2))?),
    }
}

fn a_dependent_runs_after_its_parents_and_reads_what_they_left(world: &World) {
    let registry = Registry::new().handle(part).handle(|ctx, _: Sum| {
        let mut sum = 0;
        for parent in ctx.parents()? {
            assert_eq!((parent.wire_name(), parent.state()), ("part", JobState::Succeeded));
            assert!(!parent.is_gating());
            sum = sum * 100 + parent.output::<u64>()?;
        }
        let first = ctx.parent::<Part>()?.map(|parent| parent.id());
        assert_eq!(first, ctx.parents()?.first().map(|parent| parent.id()));
        assert_eq!(ctx.parent::<Sum>()?, None);
        Ok(ctx.set_output(&sum)?)
    });
    let parts = [1, 2, 3].map(|number| NewJob::new(&Part(number)));
    // The order is that of the enqueue, not that of the ids.
    let parents = [&parts[2], &parts[0], &parts[1], &parts[0]].map(NewJob::job_id);
    let sum = NewJob::new(&Sum).parents(parents);
    let id = sum.job_id();
    let jobs = parts.into_iter().chain([sum]).collect::<Vec<_>>();
    world.client.enqueue_many(jobs).expect("accepted");
    assert_eq!(world.job(id).state, JobState::AwaitingParent);
    let _group = world.spawn(registry, quick("sums"));
    let record = world.ended(id);
    assert_eq!(facts(&record), (JobState::Succeeded, 1, 0), "{:?}", record.failure_detail);
    assert_eq!(record.output::<u64>().expect("it left one"), 60_204);
}

fn a_dependent_is_cancelled_with_a_parent_that_fails_and_so_are_its_own(world: &World) {
    let ran = Arc::new(AtomicU32::new(0));
    let registry = Registry::new().handle(part).handle_with(&ran, |ran: &AtomicU32, _, _: Sum| {
        ran.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    let bad = NewJob::new(&Part(0));
    let child = NewJob::new(&Sum).parent(bad.job_id());
    let grandchild = NewJob::new(&Sum).parent(child.job_id());
    let ids = [&bad, &child, &grandchild].map(NewJob::job_id);
    world.client.enqueue_many([bad, child, grandchild]).expect("accepted");
    let group = world.spawn(registry, quick("failing"));
    assert_eq!(world.ended(ids[0]).state, JobState::DeadLettered);
    // In the transaction of the parent's own end.
    for id in &ids[1..] {
        let record = world.job(*id);
        assert_eq!(facts(&record), (JobState::Cancelled, 0, 0));
        assert!(record.finished_at.is_some() && !record.cancel_requested);
    }
    assert!(group.wait_until_idle(PATIENCE));
    assert_eq!(ran.load(Ordering::SeqCst), 0);
}

fn a_dependent_on_any_end_sees_how_each_parent_ended(world: &World) {
    let registry = Registry::new().handle(part).handle(|ctx, _: Sum| {
        let parents = ctx.parents()?;
        let states: Vec<_> = parents.iter().map(|parent| parent.state().to_string()).collect();
        assert!(parents[0].output::<u64>().is_err(), "what failed left nothing");
        assert_eq!(parents[0].failure_detail(), Some("nothing to double"));
        Ok(ctx.set_output(&states)?)
    });
    let (bad, good) = (NewJob::new(&Part(0)), NewJob::new(&Part(4)));
    let sum = NewJob::new(&Sum).parents([bad.job_id(), good.job_id()]);
    let sum = sum.parent_rule(ParentRule::OnAnyTerminal);
    let id = sum.job_id();
    world.client.enqueue_many([bad, good, sum]).expect("accepted");
    let _group = world.spawn(registry, quick("any end"));
    let record = world.ended(id);
    assert_eq!(record.state, JobState::Succeeded, "{:?}", record.failure_detail);
    let states: Vec<String> = record.output().expect("it left one");
    assert_eq!(states, ["DeadLettered", "Succeeded"]);
}

fn a_dependent_of_what_ended_before_is_settled_at_its_enqueue(world: &World) {
    let group = world.spawn(Registry::new().handle(part), quick("before"));
    let (good, bad) = (world.enqueue(&Part(1)), world.enqueue(&Part(0)));
    world.ended(good);
    world.ended(bad);
    group.shutdown();
    let state = |job: NewJob| world.job(world.enqueue(job)).state;
    let on_success = |parent: JobId| NewJob::new(&Sum).parent(parent);
    assert_eq!(state(on_success(good)), JobState::Scheduled);
    assert_eq!(state(on_success(bad)), JobState::Cancelled);
    let any = on_success(bad).parent_rule(ParentRule::OnAnyTerminal);
    assert_eq!(state(any), JobState::Scheduled);
}

fn a_stranger_is_no_ancestor(world: &World) {
    let stranger = world.enqueue(task("a stranger"));
    let registry = Registry::new().handle(part).handle(move |ctx, job: Task| {
        let [grandparent, of_nobody] = [job.0.parse::<JobId>()?, stranger];
        assert_eq!(ctx.ancestor(grandparent)?.output::<u64>()?, 10);
        let refused = ctx.ancestor(of_nobody).expect_err("it is no ancestor");
        assert!(matches!(refused, Error::NotFound { id } if id == of_nobody), "{refused}");
        assert!(ctx.ancestor(ctx.job_id()).is_err(), "nobody is his own ancestor");
        Ok(())
    });
    let old = NewJob::new(&Part(5));
    let middle = NewJob::new(&Part(6)).parent(old.job_id());
    let asks = task(old.job_id().to_string()).parent(middle.job_id());
    let id = asks.job_id();
    world.client.enqueue_many([old, middle, asks]).expect("accepted");
    world.client.operator("test").cancel(stranger).expect("it waits");
    let _group = world.spawn(registry, quick("ancestors"));
    let record = world.ended(id);
    assert_eq!(record.state, JobState::Succeeded, "{:?}", record.failure_detail);
}

fn a_graph_is_enqueued_whole_or_not_at_all(world: &World) {
    let nobody = JobId::new();
    let good = NewJob::new(&Part(1));
    let bad = NewJob::new(&Sum).parents([good.job_id(), nobody]);
    let refused = world.client.enqueue_many([good, bad]).expect_err("a parent is unknown");
    let EnqueueError::Rejected { index: 1, reason } = refused else { panic!("{refused}") };
    assert_eq!(reason, Rejection::UnknownParent { parent: nobody });
    assert_eq!(world.client.monitor().counts().expect("counted"), []);
    // A job cannot wait for one that comes after it: so there are no cycles.
    let later = NewJob::new(&Part(1));
    let first = NewJob::new(&Sum).parent(later.job_id());
    assert!(world.client.enqueue_many([first, later]).is_err());
    let own = NewJob::new(&Sum);
    let own = own.clone().parent(own.job_id());
    let refused = world.client.enqueue(own).expect_err("it depends on itself").to_string();
    assert!(refused.contains("depends on itself"), "{refused}");
    let many = NewJob::new(&Sum).parents((0..17).map(|_| JobId::new()));
    let refused = world.client.enqueue(many).expect_err("it has too many").to_string();
    assert!(refused.contains("17 parents and the limit is 16"), "{refused}");
}

fn an_operators_cancel_goes_down_the_graph(world: &World) {
    let top = NewJob::new(&Part(1));
    let on_success = NewJob::new(&Sum).parent(top.job_id());
    let last = task("whatever").parent(on_success.job_id());
    let last = last.parent_rule(ParentRule::OnAnyTerminal);
    let ids = [&top, &on_success, &last].map(NewJob::job_id);
    world.client.enqueue_many([top, on_success, last]).expect("accepted");
    world.client.operator("ada").cancel(ids[0]).expect("it waits");
    let states = ids.map(|id| world.job(id).state);
    assert_eq!(states, [JobState::Cancelled, JobState::Cancelled, JobState::Scheduled]);
    // Only what was asked for is in the operator's name.
    let audit = world.client.monitor().audit(&Default::default()).expect("read");
    assert_eq!(audit.iter().map(|record| record.job).collect::<Vec<_>>(), [Some(ids[0])]);
}

fn a_chain_of_ten_thousand_is_called_off_to_its_end(world: &World) {
    const LINKS: usize = 10_000;
    let mut chain = vec![NewJob::new(&Part(0))];
    let root = chain[0].job_id();
    for number in 1..LINKS as u64 {
        let parent = chain[chain.len() - 1].job_id();
        chain.push(NewJob::new(&Part(number)).parent(parent));
    }
    let last = chain[LINKS - 1].job_id();
    world.client.enqueue_many(chain).expect("accepted");
    assert_eq!(world.count(JobState::AwaitingParent), LINKS as u64 - 1);
    let ran = Arc::new(AtomicU32::new(0));
    let registry = Registry::new().handle_with(&ran, |ran: &AtomicU32, ctx, job: Part| {
        ran.fetch_add(1, Ordering::SeqCst);
        part(ctx, job)
    });
    let group = world.spawn(registry, quick("chain"));
    let record = world.ended(last);
    assert_eq!(facts(&record), (JobState::Cancelled, 0, 0));
    assert_eq!(facts(&world.job(root)), (JobState::DeadLettered, 1, 1));
    assert_eq!(world.count(JobState::Cancelled), LINKS as u64 - 1);
    assert_eq!(ran.load(Ordering::SeqCst), 1, "the first alone has run");
    assert!(world.health.is_healthy());
    assert_eq!(group.shutdown().halts, []);
}

fn more_dependents_than_one_write_resolves_all_run(world: &World) {
    const COUNT: usize = 2_300;
    let parent = NewJob::new(&Part(1));
    let children: Vec<_> = (0..COUNT).map(|_| NewJob::new(&Sum).parent(parent.job_id())).collect();
    let id = parent.job_id();
    world.client.enqueue_many([parent].into_iter().chain(children)).expect("accepted");
    let registry = Registry::new().handle(part).handle(|_, _: Sum| Ok(()));
    let _group = world.spawn(registry, quick("fan-out").workers(8));
    world.ended(id);
    eventually("every dependent has run", || world.count(JobState::Succeeded) == COUNT as u64 + 1);
}

/// Idle groups are woken for a dependent: nobody polls within the test's patience.
#[test]
fn a_released_dependent_wakes_an_idle_group() {
    let world = support::world::memory();
    let slow = |name: &str| {
        let hour = std::time::Duration::from_secs(3600);
        quick(name).poll_interval(hour, hour).workers(1)
    };
    let gate = Gate::new();
    let holding = {
        let gate = gate.clone();
        Registry::new().handle(move |_, _: Task| {
            gate.pass("it runs");
            Ok(())
        })
    };
    let ran_in = Arc::new(Mutex::new(String::new()));
    let sums = Registry::new().handle_with(&ran_in, |ran_in: &Mutex<String>, ctx, _: Sum| {
        ran_in.lock().expect("nobody panics").push_str(ctx.group());
        Ok(())
    });
    let first = world.spawn(holding, slow("first"));
    let second = world.spawn(sums, slow("second"));
    let parent = task("hold");
    let child = NewJob::new(&Sum).parent(parent.job_id());
    let id = child.job_id();
    world.client.enqueue_many([parent, child]).expect("accepted");
    gate.heard();
    assert!(second.wait_until_idle(PATIENCE));
    gate.open();
    assert_eq!(world.ended(id).state, JobState::Succeeded);
    assert_eq!(*ran_in.lock().expect("nobody panics"), "second");
    first.shutdown();
}
