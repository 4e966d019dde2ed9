//! Halts told by rows, schemas and answers of a real database that a hand has tampered with: what the
//! adapters' own checks, and the driver's behind them, make of it at the public face.

mod support;

use backwave::invariant::InvariantTrigger;
use backwave::testing::StoreCall;
use backwave::{
    CancelReason, DegradedCause, Error, HealthStatus, JobContext, JobId, JobState, Registry,
};
use log::Level;
use std::time::Duration;
use support::deed::{
    AGAIN, Deed, Facts, Moment, Running, UNTOUCHED, alone_with, counted, halts, honest,
};
use support::gate::Gate;
use support::log as lines;
use support::scene::Scene;
use support::tamper::{Dialect, Hand};
use support::world::{PATIENCE, Task, eventually, facts, quick, task};

/// A write that matches touches no row.
fn row_count(moment: Moment) -> Deed {
    let tamper: fn(&Hand, JobId) = match moment {
        Moment::Claim => |hand, _| hand.swallow("OLD.state = 0 AND NEW.state = 2"),
        Moment::Report => |hand, _| hand.swallow("OLD.state = 2 AND NEW.state = 3"),
        Moment::Renew => |hand, _| hand.swallow("OLD.state = 2 AND NEW.state = 2"),
        Moment::HandBack => |hand, _| hand.swallow("OLD.state = 2 AND NEW.state = 0"),
        Moment::Reap => |hand, _| hand.swallow("NEW.settled_by = 2"),
        other => panic!("nothing is written at {other:?}"),
    };
    let inherited = if moment == Moment::Claim { UNTOUCHED } else { AGAIN };
    let trigger = Some(InvariantTrigger::UnexpectedAffectedRowCount);
    Deed { moment, trigger, tamper, repair: honest, inherited }
}

fn settler() -> Deed {
    Deed {
        moment: Moment::Report,
        trigger: Some(InvariantTrigger::UndefinedEnumValueStored),
        tamper: |hand, id| hand.set(id, "settled_by = 9, settled_attempt = 1"),
        repair: |hand, id| hand.set(id, "settled_by = 2, settled_attempt = 1"),
        inherited: AGAIN,
    }
}

fn state() -> Deed {
    Deed {
        moment: Moment::Report,
        trigger: Some(InvariantTrigger::UndefinedEnumValueStored),
        tamper: |hand, id| hand.set(id, "state = 7, owner = NULL, expiry = NULL"),
        repair: |hand, id| hand.set(id, "state = 0"),
        inherited: (JobState::Succeeded, 2, 0),
    }
}

/// What stands in the column of the retry policy is none.
fn policy(dialect: Dialect, moment: Moment) -> Deed {
    let tamper: fn(&Hand, JobId) = match moment {
        Moment::Claim => |hand, _| hand.insert_as("retry", &format!("'{GARBAGE}'")),
        _ => |hand, id| hand.set(id, &format!("retry = '{GARBAGE}'")),
    };
    let repair: fn(&Hand, JobId) = match moment {
        Moment::Claim => |hand, id| {
            hand.drop_trigger();
            hand.set(id, "retry = NULL");
        },
        _ => |hand, id| hand.set(id, "retry = NULL"),
    };
    // Postgres reads the row once it is leased, SQLite before.
    let is_leased = moment == Moment::Reap || dialect == Dialect::Postgres;
    let inherited = if is_leased { AGAIN } else { UNTOUCHED };
    let trigger = Some(InvariantTrigger::UndefinedEnumValueStored);
    Deed { moment, trigger, tamper, repair, inherited }
}

/// What no policy is stored as, and nobody should be shown.
const GARBAGE: &str = "{\"failures_max\": \"S3cr3t\"}";

fn names_the_policy_and_shows_nothing(told: &str, job: JobId) {
    assert!(told.contains(&job.to_string()) && told.contains("column retry"), "{told}");
    assert!(!told.contains("S3cr3t") && !told.contains("failures_max"), "{told}");
}

fn policy_that_is_none(dialect: Dialect, moment: Moment) {
    let (job, halt) = halts(dialect, "policy", &policy(dialect, moment));
    names_the_policy_and_shows_nothing(&halt.message, job);
}

/// The database fails a write with what no list of faults knows.
fn unknown_fault() -> Deed {
    Deed {
        moment: Moment::Report,
        trigger: None,
        tamper: |hand, _| hand.fail("OLD.state = 2 AND NEW.state = 3"),
        repair: honest,
        inherited: AGAIN,
    }
}

fn version_row_gone(dialect: Dialect, name: &str) {
    let trigger = Some(InvariantTrigger::GuaranteedRowAbsent);
    let _alone = alone_with(trigger);
    let (world, hand) = dialect.world();
    let scene = Scene::on(world, name);
    // The client and the sibling have their sessions once this is done.
    scene.surroundings_beside_a_live_group();
    hand.run("CREATE TABLE {kept} AS SELECT version, min_reader FROM {versions}");
    hand.run("DELETE FROM {versions}");
    let before = counted(trigger);
    let group = scene.spawn(Running::new().registry());
    scene.halted(&group, trigger);
    assert_eq!(counted(trigger), (before.0 + 1, before.1, before.2 + 1));
    assert_eq!(scene.store.calls(StoreCall::OpenSession), 1, "it is not tried again");
    assert_eq!(scene.store.calls(StoreCall::Claim), 0);
    let id = scene.world.enqueue(task("waits for an heir"));
    let columns = "version, min_reader";
    hand.run(&format!("INSERT INTO {{versions}} ({columns}) SELECT {columns} FROM {{kept}}"));
    let _heir = scene.world.spawn(Running::new().registry(), quick(&format!("{name}, heir")));
    assert_eq!(facts(&scene.world.ended(id)), UNTOUCHED);
}

/// A lease that another holds now, its record telling that a reaper came between: nothing is wrong.
fn lease_taken_over_as_recorded(dialect: Dialect, name: &str) {
    let told = swapped(dialect, name, ", attempt = 2, settled_attempt = 1, settled_by = 2");
    assert_eq!(told, 0);
}

/// The same without a record, while the group believes its lease live for long: counted, told, and survived.
fn lease_taken_over_without_a_record(dialect: Dialect, name: &str) {
    assert_eq!(swapped(dialect, name, ""), 1);
}

/// Swaps the holder of a running job's lease; how many lines of a tripped invariant that makes.
fn swapped(dialect: Dialect, name: &str, record: &str) -> usize {
    let trigger = Some(InvariantTrigger::OutcomeFenceRejected);
    let _alone = alone_with(trigger);
    let (world, hand) = dialect.world();
    let scene = Scene::on(world, name);
    let running = Running::new();
    let lease = Duration::from_secs(30);
    let group = scene.spawn_as(running.registry(), scene.options().lease(lease));
    let victim = scene.world.enqueue(task("victim"));
    assert_eq!(running.victim.heard(), "begun");
    hand.set(victim, &format!("owner = {}{record}", hand.somebody()));
    let before = counted(trigger);
    running.victim.open();
    eventually("the lease is told lost", || !lines::lines(name, 1202).is_empty());
    assert!(group.wait_until_idle(PATIENCE));

    let lost = lines::lines(name, 1202);
    assert_eq!((lost.len(), lost[0].level), (1, Level::Warn), "{lost:?}");
    assert_eq!(lost[0].field("job_id"), victim.to_string());
    let tripped = lines::lines(name, 2003);
    let count = tripped.len();
    if let [line] = &tripped[..] {
        assert_eq!(line.level, Level::Warn);
        assert_eq!(line.field("invariant_trigger"), "OutcomeFenceRejected");
    }
    assert_eq!(counted(trigger), (before.0, before.1 + count as u64, before.2));
    assert_eq!(lines::lines(name, 2001).len(), 0);
    assert_eq!(scene.world.health.check().status, HealthStatus::Healthy);
    scene.surroundings_beside_a_live_group();
    // What the other holds lapses too, and the group itself inherits it.
    let attempt = scene.world.job(victim).attempt;
    scene.world.clock.skip(lease + Duration::from_secs(1));
    assert_eq!(facts(&scene.world.ended(victim)), (JobState::Succeeded, attempt + 1, 1));
    assert_eq!(group.shutdown().halts, []);
    count
}

/// A renewal tells the same, and fires the token.
fn lease_taken_over_before_a_renewal(dialect: Dialect, name: &str) {
    let (world, hand) = dialect.world();
    let scene = Scene::on(world, name);
    let running = Running::new();
    let group = scene.spawn(running.registry());
    let victim = scene.world.enqueue(task("bystander"));
    assert_eq!(running.bystander.heard(), "begun");
    hand.set(victim, &format!("owner = {}", hand.somebody()));
    assert_eq!(running.bystander.heard(), format!("{:?}", CancelReason::LeaseLost));
    assert!(group.wait_until_idle(PATIENCE));
    let told = [1202, 2001, 2003].map(|id| lines::lines(name, id).len());
    assert_eq!(told, [1, 0, 0]);
    // By the renewal, and not only once the lease was over.
    let reason = "the store says that it is not held any more";
    assert_eq!(lines::lines(name, 1202)[0].field("reason"), reason);
    assert_eq!(facts(&scene.world.job(victim)), (JobState::Leased, 1, 0));
    assert_eq!(scene.world.health.check().status, HealthStatus::Healthy);
    assert_eq!(group.shutdown().halts, []);
}

/// A client that meets it is told so and goes on; no group is halted for it.
fn client_meets_a_state_that_is_none(dialect: Dialect, name: &str) {
    let trigger = Some(InvariantTrigger::UndefinedEnumValueStored);
    let _alone = alone_with(trigger);
    let (world, hand) = dialect.world();
    let scene = Scene::on(world, name);
    let id = scene.world.enqueue(task("tampered with").queue("nobody's"));
    hand.set(id, "state = 7");
    let before = counted(trigger);
    let client = &scene.world.client;
    let told = client.monitor().job(id).expect_err("no such state");
    assert!(matches!(&told, Error::Invariant(found) if Some(found.trigger()) == trigger));
    assert!(matches!(client.monitor().counts(), Err(Error::Invariant(_))));
    assert!(matches!(client.operator("ada").cancel(id), Err(Error::Invariant(_))));
    assert_eq!(counted(trigger), (before.0 + 3, before.1, before.2));
    scene.surroundings_beside_a_live_group();
    assert!(scene.world.health.is_healthy());
}

/// The same of a retry policy that does not read.
fn client_meets_a_policy_that_is_none(dialect: Dialect, name: &str) {
    let trigger = Some(InvariantTrigger::UndefinedEnumValueStored);
    let _alone = alone_with(trigger);
    let (world, hand) = dialect.world();
    let scene = Scene::on(world, name);
    let id = scene.world.enqueue(task("tampered with").queue("nobody's"));
    hand.set(id, &format!("retry = '{GARBAGE}'"));
    let before = counted(trigger);
    let told = scene.world.client.monitor().job(id).expect_err("no such policy");
    let Error::Invariant(found) = &told else { panic!("{told:?}") };
    assert_eq!(Some(found.trigger()), trigger);
    names_the_policy_and_shows_nothing(&format!("{told:?} {found}"), id);
    assert_eq!(counted(trigger), (before.0 + 1, before.1, before.2));
    scene.surroundings_beside_a_live_group();
    assert!(scene.world.health.is_healthy());
    hand.set(id, "retry = NULL");
    assert_eq!(scene.world.job(id).retry, None);
}

/// Makes a module of the tests that every database has.
macro_rules! on {
    ($module:ident, $dialect:expr) => {
        mod $module {
            use super::*;

            #[test]
            fn a_settler_that_is_none_halts_at_the_report() {
                halts($dialect, "settler", &settler());
            }

            #[test]
            fn a_state_that_is_none_halts_at_the_report() {
                halts($dialect, "state", &state());
            }

            #[test]
            fn a_policy_that_is_none_halts_at_the_claim() {
                policy_that_is_none($dialect, Moment::Claim);
            }

            #[test]
            fn a_policy_that_is_none_halts_as_dead_leases_are_looked_for() {
                policy_that_is_none($dialect, Moment::Reap);
            }

            #[test]
            fn a_client_is_told_of_a_policy_that_is_none() {
                let name = concat!("client and policy, ", stringify!($module));
                client_meets_a_policy_that_is_none($dialect, name);
            }

            #[test]
            fn a_claim_that_touches_other_rows_halts() {
                halts($dialect, "row count", &row_count(Moment::Claim));
            }

            #[test]
            fn a_report_that_touches_other_rows_halts() {
                halts($dialect, "row count", &row_count(Moment::Report));
            }

            #[test]
            fn a_renewal_that_touches_other_rows_halts() {
                halts($dialect, "row count", &row_count(Moment::Renew));
            }

            #[test]
            fn a_hand_back_that_touches_other_rows_halts() {
                halts($dialect, "row count", &row_count(Moment::HandBack));
            }

            #[test]
            fn a_reaping_that_touches_other_rows_halts() {
                halts($dialect, "row count", &row_count(Moment::Reap));
            }

            #[test]
            fn a_fault_that_no_list_knows_halts_unclassified() {
                halts($dialect, "unknown fault", &unknown_fault());
            }

            #[test]
            fn a_version_row_that_is_gone_halts_as_the_session_opens() {
                version_row_gone($dialect, concat!("version row, ", stringify!($module)));
            }

            #[test]
            fn a_lease_taken_over_as_recorded_is_only_told_lost() {
                lease_taken_over_as_recorded($dialect, concat!("recorded, ", stringify!($module)));
            }

            #[test]
            fn a_lease_taken_over_without_a_record_trips_the_fence_and_no_more() {
                let name = concat!("unrecorded, ", stringify!($module));
                lease_taken_over_without_a_record($dialect, name);
            }

            #[test]
            fn a_lease_taken_over_before_a_renewal_is_only_told_lost() {
                let name = concat!("at renewal, ", stringify!($module));
                lease_taken_over_before_a_renewal($dialect, name);
            }

            #[test]
            fn a_client_is_told_of_a_state_that_is_none() {
                let name = concat!("client, ", stringify!($module));
                client_meets_a_state_that_is_none($dialect, name);
            }
        }
    };
}

on!(sqlite, Dialect::Sqlite);
on!(postgres, Dialect::Postgres);

#[test]
fn a_long_payload_that_is_gone_halts_at_the_claim() {
    let deed = Deed {
        moment: Moment::Claim,
        trigger: Some(InvariantTrigger::GuaranteedRowAbsent),
        tamper: |hand, _| hand.insert_as("payload", "NULL"),
        repair: |hand, id| {
            hand.drop_trigger();
            hand.set(id, "payload = CAST('\"victim of the claim\"' AS BLOB)");
        },
        inherited: UNTOUCHED,
    };
    halts(Dialect::Sqlite, "long payload", &deed);
}

/// A read of such a job: as at the claim, and no halt.
#[test]
fn a_client_is_told_of_a_long_payload_that_is_gone() {
    let trigger = Some(InvariantTrigger::GuaranteedRowAbsent);
    let _alone = alone_with(trigger);
    let (world, hand) = Dialect::Sqlite.world();
    let scene = Scene::on(world, "client and long payload");
    let long = "x".repeat(32 * 1024);
    let id = scene.world.enqueue(task(long.as_str()).queue("nobody's"));
    assert!(scene.world.job(id).payload.as_bytes().len() > long.len());
    hand.run("DELETE FROM backwave_payloads");
    let before = counted(trigger);
    let told = scene.world.client.monitor().job(id).expect_err("its payload is gone");
    let Error::Invariant(found) = &told else { panic!("{told:?}") };
    assert_eq!(Some(found.trigger()), trigger);
    assert!(found.message().contains(&id.to_string()), "{found}");
    assert_eq!(counted(trigger), (before.0 + 1, before.1, before.2));
    // The client goes on, and so does who serves other queues.
    scene.surroundings_beside_a_live_group();
    assert!(scene.world.health.is_healthy());
}

#[test]
fn a_policy_that_is_not_even_text_is_told_to_a_client_by_name() {
    let trigger = Some(InvariantTrigger::UndefinedEnumValueStored);
    let _alone = alone_with(trigger);
    let (world, hand) = Dialect::Sqlite.world();
    let id = world.enqueue(task("tampered with"));
    hand.set(id, "retry = CAST(x'ff' AS TEXT)");
    let told = world.client.monitor().job(id).expect_err("no such policy");
    assert!(
        matches!(&told, Error::Invariant(found) if Some(found.trigger()) == trigger),
        "{told:?}"
    );
}

/// What a trigger of the database makes of the row that a claim takes.
fn claimed_as(trigger: InvariantTrigger, tamper: fn(&Hand, JobId), inherited: Facts) -> Deed {
    Deed { moment: Moment::Claim, trigger: Some(trigger), tamper, repair: honest, inherited }
}

#[test]
fn a_claimed_row_that_the_database_gives_to_another_halts() {
    let tamper: fn(&Hand, JobId) = |hand, _| {
        hand.rewrite("OLD.state = 0 AND NEW.state = 2", "NEW.owner := gen_random_uuid();");
    };
    let trigger = InvariantTrigger::ClaimedRowNotLeasedToWorker;
    halts(Dialect::Postgres, "given to another", &claimed_as(trigger, tamper, AGAIN));
}

#[test]
fn a_claimed_row_that_the_database_ends_halts() {
    let tamper: fn(&Hand, JobId) = |hand, _| {
        let ends =
            "NEW.state := 3; NEW.owner := NULL; NEW.expiry := NULL; NEW.finished_at := now();";
        hand.rewrite("OLD.state = 0 AND NEW.state = 2", ends);
    };
    let trigger = InvariantTrigger::ClaimedJobTerminal;
    halts(Dialect::Postgres, "ended", &claimed_as(trigger, tamper, UNTOUCHED));
}

#[test]
fn a_claimed_row_that_the_database_renames_halts() {
    let mut deed = claimed_as(
        InvariantTrigger::ClaimedRowNotEligible,
        |hand, _| hand.rewrite("OLD.state = 0 AND NEW.state = 2", "NEW.wire_name := 'other';"),
        AGAIN,
    );
    deed.repair = |hand, id| {
        hand.drop_trigger();
        hand.set(id, "wire_name = 'task'");
    };
    halts(Dialect::Postgres, "renamed", &deed);
}

/// The other side of the line: the same write failed with a code that is known to pass.
#[test]
fn a_write_that_fails_with_a_transient_code_degrades_until_it_is_over() {
    degrades_while_writes_fail_with("40001");
}

/// A disk or a memory that is full: refused as a whole, and a new session for each try.
#[test]
fn a_write_that_finds_no_room_degrades_until_there_is_some() {
    degrades_while_writes_fail_with("53100");
    degrades_while_writes_fail_with("53200");
}

fn degrades_while_writes_fail_with(code: &str) {
    let (world, hand) = Dialect::Postgres.world();
    let scene = Scene::on(world, &format!("transient code {code}"));
    let running = Running::new();
    let group = scene.spawn(running.registry());
    let victim = scene.world.enqueue(task("victim"));
    assert_eq!(running.victim.heard(), "begun");
    hand.rewrite(
        "OLD.state = 2 AND NEW.state = 3",
        &format!("RAISE EXCEPTION 'made for the test' USING ERRCODE = '{code}';"),
    );
    running.victim.open();
    let health = &scene.world.health;
    eventually("it degrades", || health.check().status == HealthStatus::Degraded);
    assert!(health.is_healthy());
    scene.surroundings_beside_a_live_group();
    hand.drop_trigger();
    assert_eq!(facts(&scene.world.ended(victim)), UNTOUCHED);
    eventually("it recovers", || health.check().status == HealthStatus::Healthy);
    assert_eq!(lines::lines(&scene.name, 2001).len(), 0);
    let told = lines::lines(&scene.name, 1301);
    assert!(told[0].message.contains(code), "{told:?}");
    assert!(told.len() <= 4, "a change of state is told, not each try: {told:?}");
    assert_eq!(group.shutdown().halts, []);
}

/// A hand that holds the file's lock: a fault of the engine's own that its adapter knows to pass.
#[test]
fn a_file_that_somebody_else_has_locked_degrades_and_heals() {
    lines::record();
    let (world, hand) = Dialect::Sqlite.world();
    let gate = Gate::new();
    let handler = |gate: &Gate, _: &JobContext, _: Task| {
        gate.pass("begun");
        Ok(())
    };
    let registry = Registry::new().handle_with(&gate.clone().into(), handler);
    let group = world.spawn(registry, quick("locked file").lease(Duration::from_secs(30)));
    let id = world.enqueue(task("reported late"));
    assert_eq!(gate.heard(), "begun");
    hand.run("BEGIN IMMEDIATE");
    gate.open();
    let marks = || world.health.degraded_groups().remove("locked file").unwrap_or_default();
    eventually("it degrades", || !marks().is_empty());
    assert_eq!(marks()[0].cause, DegradedCause::StoreFault);
    assert!(world.health.is_healthy());
    hand.run("COMMIT");
    assert_eq!(facts(&world.ended(id)), (JobState::Succeeded, 1, 0));
    eventually("it heals", || world.health.check().status == HealthStatus::Healthy);
    let told = lines::lines("locked file", 1301);
    assert!(told[0].message.contains("SQLITE_BUSY"), "{told:?}");
    assert_eq!(lines::lines("locked file", 2001).len(), 0);
    assert_eq!(group.shutdown().halts, []);
}
