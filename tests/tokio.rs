//! Inside an async runtime: stores, clients and groups made, called, cloned and dropped on its worker
//! threads. Calls block the thread they are made on; none of them panics or hangs.

mod support;

use backwave::{Client, JobState, Registry};
use std::sync::Arc;
use support::world::{self, PATIENCE, Task, World, facts, quick, task};

#[test]
fn everything_may_live_on_the_threads_of_a_runtime_over_memory() {
    lives_in_a_runtime(world::memory);
}

#[cfg(feature = "sqlite")]
#[test]
fn everything_may_live_on_the_threads_of_a_runtime_over_sqlite() {
    lives_in_a_runtime(world::sqlite);
}

fn lives_in_a_runtime(world: fn() -> World) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
    let runtime = runtime.expect("a runtime");
    // On a worker of the runtime, not on the thread that blocks on it.
    let lived = runtime.spawn(async move {
        let world = world();
        let registry = Registry::new().handle(|ctx, Task(depth)| {
            let depth: u32 = depth.parse()?;
            if depth > 0 {
                ctx.client().enqueue(task((depth - 1).to_string()))?;
            }
            Ok(())
        });
        let group = world.spawn(registry, quick("inside"));
        let calls = (0..8).map(|_| {
            let client = world.client.clone();
            tokio::spawn(async move {
                let id = client.enqueue(task("3")).expect("accepted").id;
                tokio::task::yield_now().await;
                let record = client.wait(id, PATIENCE).expect("it ends");
                assert_eq!(facts(&record), (JobState::Succeeded, 1, 0));
                let cancelled = client.operator("ada").cancel(id);
                assert!(cancelled.is_err(), "it has ended");
                drop(client);
            })
        });
        for call in calls.collect::<Vec<_>>() {
            call.await.expect("no panic");
        }
        assert!(group.wait_until_idle(PATIENCE));
        // A client that is made, used and dropped by one task.
        let store = Arc::clone(&world.store);
        let made = tokio::spawn(async move {
            let client = Client::new(store);
            client.monitor().counts().expect("counted").len()
        });
        assert_eq!(made.await.expect("no panic"), 1);
        assert_eq!(world.count(JobState::Succeeded), 32);
        let moved = tokio::task::spawn_blocking(move || group.shutdown());
        assert_eq!(moved.await.expect("no panic").unanswered, 0);
        let dropped = world.spawn(Registry::new().handle(|_, _: Task| Ok(())), quick("dropped"));
        drop(dropped);
        drop(world);
    });
    runtime.block_on(lived).expect("no panic");
}

#[test]
fn a_handler_may_run_a_runtime_of_its_own() {
    let world = world::memory();
    let registry = Registry::new().handle(|ctx, _: Task| {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let client = ctx.client().clone();
        let counted = runtime.block_on(async move { client.monitor().counts() })?;
        Ok(ctx.set_output(&counted.len())?)
    });
    let _group = world.spawn(registry, quick("own runtime"));
    let record = world.ended(world.enqueue(task("async inside")));
    assert_eq!(record.output::<usize>().expect("set"), 1);
}
