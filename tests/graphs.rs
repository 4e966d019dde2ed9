//! Graphs: jobs that depend on each other, enqueued as one, in whatever order they come.

mod support;

use backwave::invariant::{InvariantAction, InvariantTrigger, violations};
use backwave::store::{EnqueueAnswer, Rejection};
use backwave::testing::Intercept;
use backwave::{Client, EnqueueError, Error, JobId, JobState, MemoryStore, NewJob, Registry};
use support::world::{PATIENCE, Task, World, quick, task};

on_every_store!(
    a_graph_runs_from_its_roots_in_whatever_order_it_was_given,
    a_cycle_is_refused_and_named_and_nothing_is_stored,
    one_refused_member_leaves_nothing_of_a_graph_and_is_named_by_its_place,
    a_deep_graph_given_backwards_is_stored_whole,
    a_graph_may_hang_on_jobs_that_exist_and_not_on_strangers,
);

fn a_graph_runs_from_its_roots_in_whatever_order_it_was_given(world: &World) {
    let (order, told) = crossbeam_channel::unbounded();
    let registry = Registry::new().handle(move |_, job: Task| {
        order.send(job.0).map_err(|_| "nobody listens")?;
        Ok(())
    });
    let root = task("root");
    let (left, right) = (task("left").parent(root.job_id()), task("right").parent(root.job_id()));
    let leaf = task("leaf").parents([left.job_id(), right.job_id()]);
    let ids = [&leaf, &right, &root, &left].map(|job| job.job_id());
    let enqueued = world.client.enqueue_graph([leaf, right, root, left]).expect("accepted");
    assert_eq!(enqueued.iter().map(|job| job.id).collect::<Vec<_>>(), ids);
    assert!(enqueued.iter().all(|job| job.is_new));
    let _group = world.spawn(registry, quick("graph"));
    let mut ran: Vec<String> =
        (0..4).map(|_| told.recv_timeout(PATIENCE).expect("they run")).collect();
    assert_eq!((ran.remove(0), ran.pop()), ("root".to_owned(), Some("leaf".to_owned())));
}

fn a_cycle_is_refused_and_named_and_nothing_is_stored(world: &World) {
    let jobs: Vec<NewJob> = (0..1_000).map(|number| task(number.to_string())).collect();
    let ids: Vec<JobId> = jobs.iter().map(NewJob::job_id).collect();
    let ring =
        jobs.into_iter().enumerate().map(|(place, job)| job.parent(ids[(place + 1) % 1_000]));
    match world.client.enqueue_graph(ring) {
        Err(EnqueueError::Cycle { ids: told }) => assert_eq!(told, ids),
        other => panic!("{other:?}"),
    }
    let own = task("own");
    let id = own.job_id();
    let refused = world.client.enqueue_graph([own.parent(id)]).expect_err("a circle of one");
    assert!(refused.to_string().contains(&id.to_string()), "{refused}");
    assert_eq!(world.client.monitor().counts().expect("counts"), []);
}

fn one_refused_member_leaves_nothing_of_a_graph_and_is_named_by_its_place(world: &World) {
    let root = task("root");
    let bad = task("bad").queue("").parent(root.job_id());
    let leaf = task("leaf").parent(bad.job_id());
    match world.client.enqueue_graph([leaf, bad, root]) {
        Err(EnqueueError::Rejected { index: 1, reason: Rejection::QueueName { .. } }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(world.client.monitor().counts().expect("counts"), []);
}

fn a_deep_graph_given_backwards_is_stored_whole(world: &World) {
    let mut jobs: Vec<NewJob> = vec![task("0")];
    for number in 1..10_000 {
        let parent = jobs[number - 1].job_id();
        jobs.push(task(number.to_string()).parent(parent));
    }
    jobs.reverse();
    let enqueued = world.client.enqueue_graph(jobs).expect("accepted");
    let root = enqueued.last().expect("ten thousand").id;
    assert_eq!(world.job(root).state, JobState::Scheduled);
    assert_eq!(world.count(JobState::AwaitingParent), 9_999);
}

fn a_graph_may_hang_on_jobs_that_exist_and_not_on_strangers(world: &World) {
    let outside = world.client.enqueue(task("outside")).expect("accepted").id;
    let middle = task("middle").parent(outside);
    let leaf = task("leaf").parent(middle.job_id());
    let enqueued = world.client.enqueue_graph([leaf, middle]).expect("accepted");
    assert_eq!(world.job(enqueued[0].id).state, JobState::AwaitingParent);
    let stranger = JobId::new();
    match world.client.enqueue_graph([task("lost").parent(stranger)]) {
        Err(EnqueueError::Rejected { index: 0, reason: Rejection::UnknownParent { parent } }) => {
            assert_eq!(parent, stranger);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_store_that_loses_a_member_of_a_graph_is_a_violation() {
    let store = Intercept::new(MemoryStore::new());
    store.on_enqueue(|_, rows| {
        let parent = rows[1].parents[0];
        Ok(EnqueueAnswer::Rejected { index: 1, reason: Rejection::UnknownParent { parent } })
    });
    let trigger = InvariantTrigger::WorkflowMemberEnqueueRejected;
    let before = violations(trigger, InvariantAction::Halt);
    let client = Client::new(store.clone());
    let root = NewJob::raw("root", "{}");
    let leaf = NewJob::raw("leaf", "{}").parent(root.job_id());
    match client.enqueue_graph([leaf, root]) {
        Err(EnqueueError::Invariant(violation)) => assert_eq!(violation.trigger(), trigger),
        other => panic!("{other:?}"),
    }
    assert_eq!(violations(trigger, InvariantAction::Halt), before + 1);
    assert_eq!(store.calls(backwave::testing::StoreCall::Enqueue), 1, "nothing is tried again");
    let unknown = client.monitor().job(JobId::new());
    assert!(matches!(unknown, Err(Error::NotFound { .. })), "the client goes on");
}
