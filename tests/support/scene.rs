//! What tests of a fail-stop work in: a group whose view of the store a test makes lie, next to a sibling
//! and a client on the honest store.

use super::log as lines;
use super::world::{PATIENCE, Task, World, eventually, facts, memory, quick, task};
use backwave::invariant::InvariantTrigger;
use backwave::testing::{Intercept, StoreCall};
use backwave::{
    DispatchPolicy, Group, GroupOptions, HaltState, HealthStatus, JobState, Registry, Stopped,
};
use log::Level;
use std::sync::Arc;
use std::time::Duration;

/// A group on a store that a test makes lie, and its honest surroundings.
pub struct Scene {
    /// First, and so dropped first: it would halt for want of the database that goes with the world.
    sibling: Group,
    pub world: World,
    pub store: Intercept,
    pub name: String,
}

impl Scene {
    /// Group names are those of the log lines, so each scene has its own.
    pub fn new(name: &str) -> Self {
        Self::on(memory(), name)
    }

    /// The same on another store than the memory's.
    pub fn on(world: World, name: &str) -> Self {
        lines::record();
        let store = Intercept::new(Arc::clone(&world.store));
        // Upkeep is of the whole store, whoever does it: the sibling would meet what is meant for the group.
        let options = quick(&format!("{name}, sibling"));
        let options = options.maintenance_interval(Duration::from_secs(3600));
        let sibling = world.spawn(
            Registry::new().handle(|_, _: Task| Ok(())),
            options.dispatch(DispatchPolicy::strict(["sibling"])),
        );
        Self { world, store, sibling, name: name.to_owned() }
    }

    /// Quick ones under its name.
    pub fn options(&self) -> GroupOptions {
        quick(&self.name)
    }

    /// The group that is lied to.
    pub fn spawn(&self, registry: Registry) -> Group {
        self.spawn_as(registry, self.options())
    }

    /// The same with other options.
    pub fn spawn_as(&self, registry: Registry, options: GroupOptions) -> Group {
        self.world.spawn_on(self.store.clone(), registry, options)
    }

    /// Waits for the group's halt and checks everything that goes with one.
    pub fn halted(&self, group: &Group, trigger: Option<InvariantTrigger>) -> HaltState {
        // Waiting for the group's end would never fail.
        let health = &self.world.health;
        eventually("the group halts", || health.halted_groups().contains_key(&self.name));
        let Stopped::Halted(halt) = group.wait() else { panic!("{}: no halt", self.name) };
        assert_eq!(halt.trigger, trigger, "{}: {halt}", self.name);
        // The trigger is told apart from the message, never within it.
        assert!(!trigger.is_some_and(|trigger| halt.message.contains(trigger.name())), "{halt}");
        assert_eq!(halt.to_string(), format!("{}: {}", halt.type_name, halt.message));
        assert_eq!(health.halted_groups(), [(self.name.clone(), halt.clone())].into());
        assert_eq!(health.check().status, HealthStatus::Unhealthy);
        assert_eq!(health.check().status.http_status(), 503);
        assert!(!health.is_healthy());
        self.told_once(trigger);
        self.surroundings_live();
        assert!(!group.wait_until_idle(PATIENCE), "a halted group is not idle");
        halt
    }

    fn told_once(&self, trigger: Option<InvariantTrigger>) {
        let told = lines::lines(&self.name, 2001);
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!((told[0].level, told[0].field("severity")), (Level::Error, "critical"));
        let name = trigger.map_or("unclassified", InvariantTrigger::name);
        assert_eq!(told[0].field("invariant_trigger"), name);
        assert!(told[0].message.contains(&format!("'{}'", self.name)), "{}", told[0].message);
    }

    /// The sibling serves, the client enqueues, and the halted group asks the store for nothing.
    pub fn surroundings_live(&self) {
        let before = self.asked();
        for _ in 0..3 {
            let id = self.world.enqueue(task("beside it").queue("sibling"));
            assert_eq!(facts(&self.world.ended(id)), (JobState::Succeeded, 1, 0));
        }
        assert!(self.sibling.wait_until_idle(PATIENCE));
        assert_eq!(self.asked(), before, "{}", self.name);
    }

    /// The same where the group is not halted and may ask.
    pub fn surroundings_beside_a_live_group(&self) {
        let id = self.world.enqueue(task("beside it").queue("sibling"));
        assert_eq!(facts(&self.world.ended(id)), (JobState::Succeeded, 1, 0));
    }

    /// How often the group has asked its store, by call.
    pub fn asked(&self) -> Vec<u64> {
        // A halted pump leaves its note and closes its session when it likes.
        let likes = [StoreCall::Announce, StoreCall::CloseSession];
        let asks = StoreCall::ALL.into_iter().filter(|call| !likes.contains(call));
        asks.map(|call| self.store.calls(call)).collect()
    }
}
