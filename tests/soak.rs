//! A long run beside trouble: while one group after another is sabotaged next to it, a healthy group loses
//! nothing and does nothing twice.
//!
//! `BACKWAVE_SOAK_SEED` repeats a run.

mod support;

use backwave::invariant::{InvariantTrigger, halt};
use backwave::store::StoreError;
use backwave::testing::{Intercept, StoreCall};
use backwave::{DispatchPolicy, HealthStatus, JobContext, JobResult, JobState, Registry, Stopped};
use std::panic::panic_any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use support::world::{PATIENCE, Task, World, eventually, facts, memory, quick, sqlite, task};

/// A generator of the test's own, so that a seed says everything.
struct Dice(u64);

impl Dice {
    fn from_environment() -> Self {
        let seed = std::env::var("BACKWAVE_SOAK_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) << 20 | 0x5eed);
        println!("BACKWAVE_SOAK_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, bound: u64) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// What is done to a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sabotage {
    Violation(StoreCall),
    UnknownFault(StoreCall),
    Panic(StoreCall),
    /// A third of the first calls fails.
    TransientFaults,
    DeadTicker,
    HandlerViolation,
}

impl Sabotage {
    fn random(dice: &mut Dice) -> Self {
        let calls = [StoreCall::Claim, StoreCall::FindLapsed, StoreCall::OpenSession];
        let call = calls[usize::try_from(dice.below(3)).expect("small")];
        match dice.below(6) {
            0 => Self::Violation(call),
            1 => Self::UnknownFault(call),
            2 => Self::Panic(call),
            3 => Self::TransientFaults,
            4 => Self::DeadTicker,
            _ => Self::HandlerViolation,
        }
    }

    /// Makes the group's view of the store so from now on.
    fn arm(self, store: &Intercept) {
        match self {
            Self::Violation(at) => store.on_every_call(move |call| match call == at {
                true => Err(violation().into()),
                false => Ok(()),
            }),
            Self::UnknownFault(at) => store.on_every_call(move |call| match call == at {
                true => Err(StoreError::new(std::fmt::Error)),
                false => Ok(()),
            }),
            Self::Panic(at) => store.on_every_call(move |call| {
                if call == at {
                    panic_any(violation());
                }
                Ok(())
            }),
            Self::TransientFaults => {
                let calls = AtomicU64::new(0);
                store.on_every_call(move |_| {
                    let call = calls.fetch_add(1, Ordering::SeqCst);
                    // Irregular: what fails in time with the retries would never succeed.
                    match call < 20 && Dice(call).below(3) == 0 {
                        true => Err(StoreError::transient(std::fmt::Error).with_session_lost()),
                        false => Ok(()),
                    }
                });
            }
            Self::DeadTicker | Self::HandlerViolation => {}
        }
    }
}

fn violation() -> backwave::invariant::InvariantViolation {
    halt(InvariantTrigger::DanglingGatingEdge, "made by the test")
}

/// Runs `jobs` jobs in a healthy group while others beside it are sabotaged, one after another.
fn soak(world: &World, jobs: u32, rounds: u32) {
    let mut dice = Dice::from_environment();
    let effects: Arc<[AtomicU32]> = (0..jobs).map(|_| AtomicU32::new(0)).collect();
    let handler = |effects: &[AtomicU32], _: &JobContext, Task(number): Task| -> JobResult {
        let number: usize = number.parse()?;
        effects[number].fetch_add(1, Ordering::SeqCst);
        Ok(())
    };
    let registry = Registry::new().handle_with(&effects, handler);
    let options = quick("healthy").lease(Duration::from_secs(60));
    let healthy = world.spawn(registry, options);

    let (mut ids, mut victims) = (Vec::new(), Vec::new());
    let per_round = jobs.div_ceil(rounds);
    for round in 0..rounds {
        let numbers = round * per_round..jobs.min((round + 1) * per_round);
        let batch = numbers.map(|number| task(number.to_string()));
        ids.extend(world.client.enqueue_many(batch).expect("accepted").iter().map(|job| job.id));
        victims.push(sabotaged(world, round, Sabotage::random(&mut dice)));
    }

    for id in &ids {
        assert_eq!(facts(&world.ended(*id)), (JobState::Succeeded, 1, 0));
    }
    assert_eq!(ids.len(), jobs as usize);
    let once = effects.iter().filter(|count| count.load(Ordering::SeqCst) == 1).count();
    assert_eq!(once, jobs as usize, "each effect is there, once");
    let report = world.health.check();
    let of_healthy = report.groups.iter().find(|group| group.name == "healthy").expect("listed");
    assert_eq!(of_healthy.status, HealthStatus::Healthy);
    assert_eq!(healthy.shutdown().halts, []);

    // What the others left behind is inherited.
    let registry = Registry::new().handle(|_, _: Task| Ok(()));
    let options = quick("heir").dispatch(DispatchPolicy::strict(["sabotaged"]));
    let _heir = world.spawn(registry, options);
    world.clock.skip(Duration::from_secs(6));
    for id in victims {
        assert_eq!(world.ended(id).state, JobState::Succeeded);
    }
}

/// Spawns a group under a new name, sabotages it, and sees it halt, or survive what is transient.
fn sabotaged(world: &World, round: u32, sabotage: Sabotage) -> backwave::JobId {
    let name = format!("sabotaged {round}, {sabotage:?}");
    let store = Intercept::new(Arc::clone(&world.store));
    let handler = move |_: &JobContext, _: Task| -> JobResult {
        match sabotage {
            Sabotage::HandlerViolation => Err(violation().into()),
            _ => Ok(()),
        }
    };
    let mut options = quick(&name).dispatch(DispatchPolicy::strict(["sabotaged"]));
    let dead = Arc::new(AtomicBool::new(false));
    if sabotage == Sabotage::DeadTicker {
        let dead = Arc::clone(&dead);
        options = options.ticker_probe(move || {
            if dead.load(Ordering::SeqCst) {
                panic_any("no more ticks");
            }
        });
    }
    sabotage.arm(&store);
    let group = world.spawn_on(store.clone(), Registry::new().handle(handler), options);
    dead.store(true, Ordering::SeqCst);
    let id = world.enqueue(task("victim").queue("sabotaged"));
    if sabotage == Sabotage::TransientFaults {
        assert_eq!(world.ended(id).state, JobState::Succeeded, "{name}");
        store.clear();
        let report = group.shutdown();
        assert_eq!((report.halts.len(), report.unanswered), (0, 0), "{name}");
    } else {
        eventually("it halts", || world.health.halted_groups().contains_key(&name));
        assert!(matches!(group.wait(), Stopped::Halted(_)), "{name}");
        assert!(!group.wait_until_idle(PATIENCE));
    }
    id
}

#[test]
fn ten_thousand_jobs_in_memory_are_done_once_beside_sabotaged_groups() {
    soak(&memory(), 10_000, 60);
}

#[test]
fn two_thousand_jobs_in_sqlite_are_done_once_beside_sabotaged_groups() {
    soak(&sqlite(), 2_000, 20);
}
