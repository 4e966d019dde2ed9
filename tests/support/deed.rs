//! What a hand does to the rows of a store, when a group meets it, and all that goes with the halt it makes.

use super::gate::Gate;
use super::log as lines;
use super::scene::Scene;
use super::tamper::{Dialect, Hand};
use super::world::{PATIENCE, Task, facts, quick, task};
use backwave::invariant::{self, InvariantAction, InvariantTrigger};
use backwave::{
    CancelReason, Group, HaltState, JobContext, JobError, JobId, JobResult, JobState, Registry,
};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// State, attempt and failures of a job.
pub type Facts = (JobState, u32, u32);

/// Inherited after its lease had lapsed.
pub const AGAIN: Facts = (JobState::Succeeded, 2, 1);
/// As if nothing had been.
pub const UNTOUCHED: Facts = (JobState::Succeeded, 1, 0);

/// When the group meets what was done to the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// A job is enqueued afterwards, and claimed.
    Claim,
    /// A job that ran meanwhile ends.
    Report,
    /// The lease of a job that runs is prolonged.
    Renew,
    /// A job that runs gives way to a clean stop.
    HandBack,
    /// A job whose holder is gone lies with a dead lease.
    Reap,
    /// It looks for work and finds none.
    Idle,
    /// It works off what the end of a job left for later.
    Upkeep,
}

/// One deed of a hand, and what becomes of the job that it was done to.
pub struct Deed {
    pub moment: Moment,
    pub trigger: Option<InvariantTrigger>,
    /// Done between the claim of the jobs that run and the moment.
    pub tamper: fn(&Hand, JobId),
    /// Undoes it once the group is halted.
    pub repair: fn(&Hand, JobId),
    /// The job once the group's heir has run it.
    pub inherited: Facts,
}

/// Tests that count one trigger come one after another.
pub fn alone_with(trigger: Option<InvariantTrigger>) -> MutexGuard<'static, ()> {
    static LOCKS: LazyLock<Vec<Mutex<()>>> =
        LazyLock::new(|| (0..=InvariantTrigger::ALL.len()).map(|_| Mutex::new(())).collect());
    let place = InvariantTrigger::ALL.iter().position(|known| Some(*known) == trigger);
    let lock = &LOCKS[place.unwrap_or(InvariantTrigger::ALL.len())];
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Violations that halted, violations that degraded, halts.
pub fn counted(trigger: Option<InvariantTrigger>) -> (u64, u64, u64) {
    let violations = |action| trigger.map_or(0, |trigger| invariant::violations(trigger, action));
    let halts = invariant::halts(trigger);
    (violations(InvariantAction::Halt), violations(InvariantAction::Degrade), halts)
}

/// Jobs that run: a `bystander` until its token fires, a `victim` until the test lets it end. Whoever
/// runs them a second time ends them at once.
#[derive(Clone)]
pub struct Running {
    pub bystander: Gate,
    pub victim: Gate,
    stopping: Gate,
}

impl Running {
    pub fn new() -> Self {
        Self { bystander: Gate::new(), victim: Gate::new(), stopping: Gate::new() }
    }

    pub fn registry(&self) -> Registry {
        let running = self.clone();
        Registry::new().handle(move |ctx, Task(who): Task| running.run(ctx, &who))
    }

    fn run(&self, ctx: &JobContext, who: &str) -> JobResult {
        match who {
            "bystander" if ctx.attempt() == 1 => {
                self.bystander.say("begun");
                let told = ctx.sleep(PATIENCE).expect_err("the token fires").reason;
                self.bystander.say(format!("{told:?}"));
                Ok(())
            }
            "victim" if ctx.attempt() == 1 => {
                self.victim.pass("begun");
                Ok(())
            }
            "gives way" if ctx.attempt() == 1 => {
                self.stopping.say("begun");
                ctx.stopping().recv_timeout(PATIENCE).expect_err("it only disconnects");
                Err(ctx.give_way())
            }
            _ => Ok::<(), JobError>(()),
        }
    }
}

/// A group with a job that runs, about to meet what halts it.
pub struct Stage {
    pub scene: Scene,
    pub running: Running,
    pub group: Group,
    bystander: JobId,
    trigger: Option<InvariantTrigger>,
    before: (u64, u64, u64),
}

impl Stage {
    /// The caller is [alone with](alone_with) the trigger.
    pub fn set(scene: Scene, trigger: Option<InvariantTrigger>) -> Self {
        let running = Running::new();
        let group = scene.spawn(running.registry());
        let bystander = scene.world.enqueue(task("bystander"));
        assert_eq!(running.bystander.heard(), "begun");
        Self { scene, running, group, bystander, trigger, before: counted(trigger) }
    }

    /// Checks all that goes with a halt: the group alone is halted, it says so once, it asks for nothing
    /// more, and an heir runs its jobs after their leases have lapsed and `repair` was made.
    pub fn halted(&self, victim: JobId, inherited: Facts, repair: impl FnOnce()) -> HaltState {
        let Self { scene, running, bystander, .. } = self;
        let (name, before) = (&scene.name, self.before);
        let halt = scene.halted(&self.group, self.trigger);
        assert!(!halt.message.is_empty(), "{halt}");
        let named = u64::from(self.trigger.is_some());
        assert_eq!(counted(self.trigger), (before.0 + named, before.1, before.2 + 1), "{name}");
        assert_eq!(running.bystander.heard(), format!("{:?}", CancelReason::GroupStopping));

        repair();
        // Nothing of what ran has been recorded, and nothing is after the halt.
        let asked = scene.asked();
        assert_eq!(facts(&scene.world.job(*bystander)), (JobState::Leased, 1, 0), "{name}");
        // Before there is an heir, whose own lease would lapse with the others.
        scene.world.clock.skip(Duration::from_secs(6));
        let _heir = scene.world.spawn(running.registry(), quick(&format!("{name}, heir")));
        assert_eq!(facts(&scene.world.ended(*bystander)), AGAIN, "{name}");
        assert_eq!(facts(&scene.world.ended(victim)), inherited, "{name}");
        assert_eq!(scene.asked(), asked, "{name}: a halted group asks for nothing");
        assert_eq!(lines::lines(name, 2001).len(), 1);
        halt
    }
}

/// Does the deed and checks all that goes with a halt; the job that was met, and the halt.
pub fn halts(dialect: Dialect, name: &str, deed: &Deed) -> (JobId, HaltState) {
    let _alone = alone_with(deed.trigger);
    let name = format!("{name}, {dialect:?} {:?}", deed.moment);
    let (world, hand) = dialect.world();
    let scene = Scene::on(world, &name);
    let dead = (deed.moment == Moment::Reap).then(|| left_behind(&scene, &name));
    let stage = Stage::set(scene, deed.trigger);
    let victim = meet(&stage, &hand, deed, dead);
    let halt = stage.halted(victim, deed.inherited, || (deed.repair)(&hand, victim));
    (victim, halt)
}

/// Brings the group to its moment; the job that is met there.
fn meet(stage: &Stage, hand: &Hand, deed: &Deed, dead: Option<JobId>) -> JobId {
    let Stage { scene, running, group, bystander, .. } = stage;
    let tamper = deed.tamper;
    match deed.moment {
        Moment::Claim => {
            tamper(hand, *bystander);
            scene.world.enqueue(task("victim of the claim"))
        }
        Moment::Report => {
            let victim = scene.world.enqueue(task("victim"));
            assert_eq!(running.victim.heard(), "begun");
            tamper(hand, victim);
            running.victim.open();
            victim
        }
        Moment::Idle | Moment::Renew => {
            tamper(hand, *bystander);
            *bystander
        }
        Moment::HandBack => {
            let victim = scene.world.enqueue(task("gives way"));
            assert_eq!(running.stopping.heard(), "begun");
            tamper(hand, victim);
            group.begin_shutdown();
            victim
        }
        Moment::Reap => {
            let victim = dead.expect("made before the group was spawned");
            tamper(hand, victim);
            hand.run(&format!(
                "UPDATE {{jobs}} SET expiry = {} WHERE id = {}",
                hand.long_ago(),
                hand.id(victim)
            ));
            victim
        }
        Moment::Upkeep => {
            let victim = scene.world.enqueue(task("ends at once"));
            assert_eq!(facts(&scene.world.ended(victim)), UNTOUCHED);
            tamper(hand, victim);
            victim
        }
    }
}

/// A job with the lease of a group that has halted.
fn left_behind(scene: &Scene, name: &str) -> JobId {
    let store = backwave::testing::Intercept::new(std::sync::Arc::clone(&scene.world.store));
    let gate = Gate::new();
    let handler = |gate: &Gate, ctx: &JobContext, _: Task| {
        gate.say("begun");
        Ok(ctx.sleep(PATIENCE)?)
    };
    let registry = Registry::new().handle_with(&gate.clone().into(), handler);
    // Its halt must not be the world's: it is another process's.
    let health = std::sync::Arc::new(backwave::Health::new());
    let options = quick(&format!("{name}, gone"));
    let group = backwave::spawn_group(store.clone(), registry, options, health).expect("it starts");
    let id = scene.world.enqueue(task("left behind"));
    assert_eq!(gate.heard(), "begun");
    // This halt has no trigger, and some test counts those.
    let _alone = alone_with(None);
    store.on_every_call(|_| Err(backwave::store::StoreError::new(std::fmt::Error)));
    group.wait();
    id
}

/// The repair of what a trigger of the database has done.
pub fn honest(hand: &Hand, _: JobId) {
    hand.drop_trigger();
}
