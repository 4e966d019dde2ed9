//! Halts told by a real database whose gates between jobs, whose settings of queues or whose locks a hand has
//! tampered with, and by a store that lies where no database can be made to.

mod support;

use backwave::invariant::{InvariantTrigger, halt};
use backwave::store::{AuditFilter, JobFilter, StoreError};
use backwave::testing::{Intercept, StoreCall};
use backwave::{Client, EnqueueError, Error, JobId, JobState};
use support::database::Database;
use support::deed::{
    AGAIN, Deed, Facts, Moment, Running, Stage, UNTOUCHED, alone_with, counted, halts, honest,
};
use support::scene::Scene;
use support::tamper::{Dialect, Hand, postgres_at, postgres_builder};
use support::world::{facts, quick, task};

// -- gates

/// No job is behind a gate of the one that ends.
fn gate_without_a_dependent(moment: Moment) -> Deed {
    let tamper: fn(&Hand, JobId) = match moment {
        Moment::Upkeep => |hand, parent| {
            hand.gate(parent, JobId::new());
            hand.run(&format!("INSERT INTO {{backlog}} (parent) VALUES ({})", hand.id(parent)));
        },
        _ => |hand, parent| hand.gate(parent, JobId::new()),
    };
    let inherited = if moment == Moment::Upkeep { UNTOUCHED } else { AGAIN };
    let trigger = Some(InvariantTrigger::DanglingGatingEdge);
    Deed { moment, trigger, tamper, repair: no_gates, inherited }
}

/// The job behind it waits for no parent.
fn gate_of_a_job_that_does_not_wait() -> Deed {
    Deed {
        moment: Moment::Report,
        trigger: Some(InvariantTrigger::DanglingGatingEdge),
        tamper: |hand, parent| hand.gate(parent, scheduled(hand)),
        repair: no_gates,
        inherited: AGAIN,
    }
}

/// Not claimed by anybody.
fn scheduled(hand: &Hand) -> JobId {
    hand.client.enqueue(task("scheduled").queue("nobody's")).expect("accepted").id
}

/// It waits for that parent, as it should.
fn dependent(hand: &Hand, parent: JobId) {
    hand.client.enqueue(task("dependent").queue("nobody's").parent(parent)).expect("accepted");
}

fn no_gates(hand: &Hand, _: JobId) {
    hand.run("DELETE FROM {gates}; DELETE FROM {backlog}");
}

/// The parent that ends is not there, or not under its id, where its gates are read.
fn parent_that_vanishes(dialect: Dialect) -> Deed {
    Deed {
        moment: Moment::Report,
        trigger: Some(InvariantTrigger::ParentJobMissingFromBatch),
        tamper: match dialect {
            Dialect::Sqlite => |hand, parent| {
                dependent(hand, parent);
                hand.show("{gates}", GATES_THAT_CHANGE);
            },
            Dialect::Postgres => |hand, parent| {
                dependent(hand, parent);
                hand.delete_after("NEW.state = 3");
            },
        },
        repair: match dialect {
            Dialect::Sqlite => |hand, _| hand.put_back("{gates}"),
            Dialect::Postgres => honest,
        },
        inherited: AGAIN,
    }
}

/// Each gate many times; whenever one's parent is looked at, it is another in one case of two. That none is
/// found under the one id and read under the other happens once in a hundred million times.
const GATES_THAT_CHANGE: &str = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 64) \
     SELECT CASE (random() + i) & 1 WHEN 0 THEN k.parent ELSE zeroblob(16) END AS parent, k.child \
       FROM {kept} AS k CROSS JOIN n";

/// An operator cancels a parent: it is told so by name, and nothing is changed.
fn client_meets(dialect: Dialect, name: &str, tamper: fn(&Hand, JobId), trigger: InvariantTrigger) {
    let _alone = alone_with(Some(trigger));
    let (world, hand) = dialect.world();
    let scene = Scene::on(world, name);
    let parent = scene.world.enqueue(task("parent"));
    tamper(&hand, parent);
    let before = counted(Some(trigger));
    let operator = scene.world.client.operator("ada");
    let cancels = [
        operator.cancel(parent).map(drop),
        operator.cancel_matching(&JobFilter::new().queue("default")).map(drop),
    ];
    for told in cancels {
        let told = told.expect_err("its gates are broken");
        let Error::Invariant(found) = &told else { panic!("{told:?}") };
        assert_eq!(found.trigger(), trigger);
        assert!(!found.message().contains(trigger.name()), "{found}");
    }
    assert_eq!(counted(Some(trigger)), (before.0 + 2, before.1, before.2));
    assert_eq!(facts(&scene.world.job(parent)), (JobState::Scheduled, 0, 0));
    let audit = scene.world.client.monitor().audit(&AuditFilter::default()).expect("read");
    assert_eq!(audit, [], "what was not done is not in the audit");
    scene.surroundings_beside_a_live_group();
    assert!(scene.world.health.is_healthy());
}

fn client_meets_a_gate_without_a_dependent(dialect: Dialect, name: &str) {
    let tamper = |hand: &Hand, parent| hand.gate(parent, JobId::new());
    client_meets(dialect, name, tamper, InvariantTrigger::DanglingGatingEdge);
}

fn client_meets_a_gate_of_a_job_that_does_not_wait(dialect: Dialect, name: &str) {
    let tamper = |hand: &Hand, parent| hand.gate(parent, scheduled(hand));
    client_meets(dialect, name, tamper, InvariantTrigger::DanglingGatingEdge);
}

fn client_meets_a_parent_that_vanishes(dialect: Dialect, name: &str) {
    let tamper: fn(&Hand, JobId) = match dialect {
        Dialect::Sqlite => parent_that_vanishes(dialect).tamper,
        Dialect::Postgres => |hand, parent| {
            dependent(hand, parent);
            hand.delete_after("NEW.state = 6");
        },
    };
    client_meets(dialect, name, tamper, InvariantTrigger::ParentJobMissingFromBatch);
}

// -- settings of queues

/// More than ever run.
fn limit(hand: &Hand) {
    let operator = hand.client.operator("ada");
    operator.set_concurrency_limit("default", Some(100)).expect("set");
}

/// The row of a limited queue is gone between a claim's two looks at it.
fn settings_that_vanish(dialect: Dialect) -> Deed {
    let trigger = Some(InvariantTrigger::QueueConfigLockNotAcquired);
    match dialect {
        Dialect::Sqlite => Deed {
            moment: Moment::Idle,
            trigger,
            // There in one look of two.
            tamper: |hand, _| {
                limit(hand);
                let select = "SELECT queue, is_paused, concurrency_limit FROM {kept} \
                               WHERE random() & 1";
                hand.show("{queues}", select);
            },
            repair: |hand, _| hand.put_back("{queues}"),
            inherited: AGAIN,
        },
        Dialect::Postgres => Deed {
            moment: Moment::Claim,
            trigger,
            // Deleted by somebody who has locked it before the claim.
            tamper: |hand, _| {
                limit(hand);
                hand.run("BEGIN; DELETE FROM {queues}");
                hand.client.enqueue(task("makes the claim wait")).expect("accepted");
                hand.commit_once_somebody_waits();
            },
            repair: |_, _| {},
            inherited: UNTOUCHED,
        },
    }
}

#[test]
fn a_client_whose_change_of_a_queue_does_not_stick_is_told_so() {
    let trigger = InvariantTrigger::QueueConfigLockNotAcquired;
    let _alone = alone_with(Some(trigger));
    let (world, hand) = Dialect::Sqlite.world();
    let scene = Scene::on(world, "client and settings");
    let operator = scene.world.client.operator("ada");
    hand.run("CREATE TRIGGER lie BEFORE INSERT ON {queues} BEGIN SELECT raise(IGNORE); END");
    let before = counted(Some(trigger));
    let changes = [operator.set_concurrency_limit("default", Some(3)), operator.pause("default")];
    for told in changes {
        let told = told.expect_err("it is not written");
        assert!(matches!(&told, Error::Invariant(found) if found.trigger() == trigger), "{told:?}");
    }
    assert_eq!(counted(Some(trigger)), (before.0 + 2, before.1, before.2));
    let monitor = scene.world.client.monitor();
    assert_eq!(monitor.queues().expect("read"), []);
    assert_eq!(monitor.audit(&AuditFilter::default()).expect("read"), []);
    scene.surroundings_beside_a_live_group();
    hand.drop_trigger();
    assert!(operator.pause("default").expect("paused").is_paused);
}

#[test]
fn a_count_of_leases_that_is_null_halts_at_the_claim() {
    let deed = Deed {
        moment: Moment::Claim,
        trigger: Some(InvariantTrigger::LeasedCountAggregateNull),
        tamper: |hand, _| {
            limit(hand);
            hand.run(
                "ALTER FUNCTION {schema}.leased_count_v2(text) RENAME TO leased_count_kept; \
                 CREATE FUNCTION {schema}.leased_count_v2(text) RETURNS bigint LANGUAGE sql \
                     AS 'SELECT NULL::bigint'",
            );
        },
        repair: |hand, _| {
            hand.run(
                "DROP FUNCTION {schema}.leased_count_v2(text); \
                 ALTER FUNCTION {schema}.leased_count_kept(text) RENAME TO leased_count_v2",
            );
        },
        inherited: UNTOUCHED,
    };
    halts(Dialect::Postgres, "null count", &deed);
}

// -- locks

/// A server whose advisory locks lock nothing.
fn locks_are_void(hand: &Hand) {
    hand.run(
        "ALTER FUNCTION pg_catalog.pg_advisory_xact_lock(bigint) RENAME TO advisory_kept; \
         CREATE FUNCTION pg_catalog.pg_advisory_xact_lock(bigint) RETURNS void LANGUAGE sql \
             AS 'SELECT'; \
         UPDATE {versions} SET version = version - 1",
    );
}

fn locks_hold(hand: &Hand) {
    hand.run(
        "DROP FUNCTION pg_catalog.pg_advisory_xact_lock(bigint); \
         ALTER FUNCTION pg_catalog.advisory_kept(bigint) RENAME TO pg_advisory_xact_lock; \
         UPDATE {versions} SET version = version + 1",
    );
}

#[test]
fn a_migration_without_its_lock_halts_who_asks_for_it() {
    let trigger = InvariantTrigger::ApplicationLockNotAcquired;
    let _alone = alone_with(Some(trigger));
    // A database of its own: the functions of the server are everybody's.
    let database = Database::create();
    let (world, hand) = postgres_at(&database.config(), "jobs", None);
    let another = postgres_builder(&database.config(), "jobs", &world.clock).open_lazy();
    let another = another.expect("nothing is connected to");
    let mut scene = Scene::on(world, "migration without its lock");
    scene.store = Intercept::new(another.clone());
    scene.surroundings_beside_a_live_group();
    locks_are_void(&hand);

    let before = counted(Some(trigger));
    let client = Client::new(another);
    let told = client.monitor().counts().expect_err("the schema cannot be brought up to date");
    assert!(matches!(&told, Error::Invariant(found) if found.trigger() == trigger), "{told:?}");
    let told = client.enqueue(task("not accepted")).expect_err("the same");
    assert!(
        matches!(&told, EnqueueError::Invariant(found) if found.trigger() == trigger),
        "{told:?}"
    );
    assert_eq!(counted(Some(trigger)), (before.0 + 2, before.1, before.2));

    let group = scene.spawn(Running::new().registry());
    let halt = scene.halted(&group, Some(trigger));
    assert!(halt.message.contains("lock"), "{halt}");
    assert_eq!(counted(Some(trigger)), (before.0 + 3, before.1, before.2 + 1));
    assert_eq!(scene.store.calls(StoreCall::OpenSession), 1);
    let id = scene.world.enqueue(task("waits for an heir"));
    locks_hold(&hand);
    client.enqueue(task("accepted")).expect("the lock holds");
    let _heir = scene.world.spawn(Running::new().registry(), quick("migration, heir"));
    assert_eq!(facts(&scene.world.ended(id)), UNTOUCHED);
}

// -- what no database can be made to do

/// What a claim or a report finds under its locks, where an adapter's own database never shows it.
fn told_by_a_store(trigger: InvariantTrigger, moment: Moment) {
    let _alone = alone_with(Some(trigger));
    let stage = Stage::set(Scene::new(&format!("{trigger} told at a {moment:?}")), Some(trigger));
    let Stage { scene, running, .. } = &stage;
    let violated = move || StoreError::from(halt(trigger, "made by the test"));
    let (victim, inherited): (JobId, Facts) = if moment == Moment::Claim {
        scene.store.on_claim(move |_, _| Err(violated()));
        (scene.world.enqueue(task("victim of the claim")), UNTOUCHED)
    } else {
        let victim = scene.world.enqueue(task("victim"));
        assert_eq!(running.victim.heard(), "begun");
        scene.store.on_report(move |_, _| Err(violated()));
        running.victim.open();
        (victim, AGAIN)
    };
    let told = stage.halted(victim, inherited, || scene.store.clear());
    assert_eq!(told.message, "made by the test");
}

#[test]
fn a_writer_that_is_not_alone_with_its_store_halts() {
    told_by_a_store(InvariantTrigger::ApplicationLockNotAcquired, Moment::Claim);
    told_by_a_store(InvariantTrigger::ApplicationLockNotAcquired, Moment::Report);
}

#[test]
fn a_count_of_leases_that_a_store_cannot_tell_halts() {
    told_by_a_store(InvariantTrigger::LeasedCountAggregateNull, Moment::Claim);
}

/// The memory store has neither rows that a hand could reach nor locks of its queues.
#[test]
fn what_a_store_finds_of_gates_and_queues_halts() {
    told_by_a_store(InvariantTrigger::DanglingGatingEdge, Moment::Report);
    told_by_a_store(InvariantTrigger::ParentJobMissingFromBatch, Moment::Report);
    told_by_a_store(InvariantTrigger::QueueConfigLockNotAcquired, Moment::Claim);
}

/// Makes a module of the tests that every database has.
macro_rules! on {
    ($module:ident, $dialect:expr) => {
        mod $module {
            use super::*;

            #[test]
            fn a_gate_without_a_dependent_halts_at_the_report() {
                let (_, halt) =
                    halts($dialect, "no dependent", &gate_without_a_dependent(Moment::Report));
                assert!(halt.message.contains("job") || halt.message.contains("gate"), "{halt}");
            }

            #[test]
            fn a_gate_without_a_dependent_halts_where_it_was_left_for_later() {
                halts($dialect, "no dependent", &gate_without_a_dependent(Moment::Upkeep));
            }

            #[test]
            fn a_gate_of_a_job_that_does_not_wait_halts_at_the_report() {
                halts($dialect, "not waiting", &gate_of_a_job_that_does_not_wait());
            }

            #[test]
            fn a_parent_that_vanishes_as_it_ends_halts_at_the_report() {
                halts($dialect, "no parent", &parent_that_vanishes($dialect));
            }

            #[test]
            fn an_operator_is_told_of_a_gate_without_a_dependent() {
                let name = concat!("operator, no dependent, ", stringify!($module));
                client_meets_a_gate_without_a_dependent($dialect, name);
            }

            #[test]
            fn an_operator_is_told_of_a_gate_of_a_job_that_does_not_wait() {
                let name = concat!("operator, not waiting, ", stringify!($module));
                client_meets_a_gate_of_a_job_that_does_not_wait($dialect, name);
            }

            #[test]
            fn an_operator_is_told_of_a_parent_that_vanishes() {
                let name = concat!("operator, no parent, ", stringify!($module));
                client_meets_a_parent_that_vanishes($dialect, name);
            }

            #[test]
            fn settings_that_vanish_under_a_claim_halt() {
                halts($dialect, "settings", &settings_that_vanish($dialect));
            }
        }
    };
}

on!(sqlite, Dialect::Sqlite);
on!(postgres, Dialect::Postgres);
