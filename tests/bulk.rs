//! Bulk: calls of any size are whole or not at all, in few statements.

mod support;

use backwave::store::Rejection;
use backwave::{EnqueueError, JobState, NewJob, Registry};
use support::world::{PATIENCE, Task, World, quick, task};

on_every_store!(
    a_hundred_thousand_jobs_are_enqueued_by_one_call,
    sizes_around_the_limits_of_bound_parameters_are_whole,
    one_bad_job_at_the_end_of_many_leaves_nothing_behind,
    a_parent_may_come_long_before_its_dependent_in_a_call_and_an_unknown_one_is_found_at_its_place,
);

fn a_hundred_thousand_jobs_are_enqueued_by_one_call(world: &World) {
    const COUNT: usize = 100_000;
    let jobs = (0..COUNT).map(|number| task(number.to_string()).tag("bulk"));
    let answers = world.client.enqueue_many(jobs).expect("accepted");
    assert_eq!(answers.len(), COUNT);
    assert!(answers.iter().all(|answer| answer.is_new));
    assert_eq!(world.count(JobState::Scheduled), COUNT as u64);
    // In order: the last answer is that of the last job.
    let last = world.job(answers[COUNT - 1].id);
    assert_eq!(last.payload.as_bytes(), format!("\"{}\"", COUNT - 1).as_bytes());
}

fn sizes_around_the_limits_of_bound_parameters_are_whole(world: &World) {
    let mut expected = 0;
    for size in [1_usize, 999, 1_000, 2_978, 2_979, 6_553, 6_554, 32_766, 32_767] {
        let answers = world.client.enqueue_many((0..size).map(|_| task("sized")));
        assert_eq!(answers.expect("accepted").len(), size);
        expected += size as u64;
        assert_eq!(world.count(JobState::Scheduled), expected, "after {size}");
    }
}

fn one_bad_job_at_the_end_of_many_leaves_nothing_behind(world: &World) {
    const COUNT: usize = 20_000;
    let good = (0..COUNT).map(|_| task("good"));
    let bad = NewJob::raw("task", "{}").queue("");
    let refused = world.client.enqueue_many(good.chain([bad])).expect_err("one is bad");
    let EnqueueError::Rejected { index: COUNT, reason: Rejection::QueueName { .. } } = refused
    else {
        panic!("{refused}")
    };
    assert_eq!(world.client.monitor().counts().expect("counted"), []);
    // Nothing of it runs either.
    let group = world.spawn(Registry::new().handle(|_, _: Task| Ok(())), quick("nothing"));
    assert!(group.wait_until_idle(PATIENCE));
    assert_eq!(world.count(JobState::Succeeded), 0);
}

fn a_parent_may_come_long_before_its_dependent_in_a_call_and_an_unknown_one_is_found_at_its_place(
    world: &World,
) {
    const COUNT: usize = 12_000;
    let first = task("first");
    let parent = first.job_id();
    let between = || (0..COUNT).map(|_| task("between"));
    let last = task("last").parent(parent);
    let id = last.job_id();
    let jobs = [first].into_iter().chain(between()).chain([last]);
    world.client.enqueue_many(jobs).expect("accepted");
    assert_eq!(world.job(id).state, JobState::AwaitingParent);

    let nobody = backwave::JobId::new();
    let orphan = task("orphan").parent(nobody);
    let refused = world.client.enqueue_many(between().chain([orphan])).expect_err("an orphan");
    let EnqueueError::Rejected { index: COUNT, reason } = refused else { panic!("{refused}") };
    assert_eq!(reason, Rejection::UnknownParent { parent: nobody });
    assert_eq!(world.count(JobState::Scheduled), COUNT as u64 + 1);
}
