//! Migrations of Postgres that are cut off, at whichever statement; tables that somebody changes under groups that
//! run; and schemas whose names are nearly the same.

mod support;

use ::postgres::Client as Db;
use backwave::{
    Client, GroupOptions, Health, HealthStatus, JobState, PostgresOpenError, PostgresStore,
    spawn_group,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use support::drill::{Ledger, PATIENCE, assert_no_alarm, drill, drills, eventually, quick};
use support::postgres::{config, config_at, connect, fresh_schema, port};
use support::proxy::{Mischief, Proxy};

/// The statements of a migration from nothing, by a text that stands in each of them alone.
const STATEMENTS: [&str; 31] = [
    "SET default_transaction_isolation",
    "START TRANSACTION",
    "SET LOCAL lock_timeout",
    "pg_advisory_xact_lock(",
    "CREATE SCHEMA",
    "-- Version 1, part 1",
    "-- Version 1, part 2",
    "-- Version 1, part 3",
    "-- Version 1, part 4",
    "-- Version 1, part 5",
    "-- Version 1, part 6",
    "-- Version 1, part 7",
    "-- Version 1, last part",
    "-- Version 2, part 1",
    "-- Version 2, part 2",
    "-- Version 2, part 3",
    "-- Version 2, part 4",
    "-- Version 2, part 5",
    "-- Version 2, part 6",
    "-- Version 2, part 7",
    "-- Version 2, part 8",
    "-- Version 2, part 9",
    "-- Version 2, last part",
    "-- Version 3, part 1",
    "-- Version 3, part 2",
    "-- Version 3, last part",
    "-- Version 4, part 1",
    "-- Version 4, part 2",
    "-- Version 4, part 3",
    "-- Version 4, last part",
    "COMMIT",
];

/// Everything that stands in a schema, without its name.
fn contents(db: &mut Db, schema: &str) -> BTreeSet<String> {
    let sql = "
        SELECT format('%s %s %s %s', c.relkind, c.relname, a.attname, format_type(a.atttypid, a.atttypmod))
        FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        WHERE n.nspname = $1
        UNION ALL
        SELECT format('function %s(%s) %s', p.proname, pg_get_function_arguments(p.oid), md5(replace(p.prosrc, $1, 'it')))
        FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace WHERE n.nspname = $1
        UNION ALL
        SELECT format('constraint %s %s', k.conname, k.convalidated)
        FROM pg_constraint AS k JOIN pg_namespace AS n ON n.oid = k.connamespace WHERE n.nspname = $1
        UNION ALL
        SELECT format('index %s valid %s', c.relname, i.indisvalid)
        FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
        JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = $1
        UNION ALL
        SELECT format('trigger %s', t.tgname) FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
        JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND NOT t.tgisinternal";
    let named = |text: String| text.replace(schema, "it");
    db.query(sql, &[&schema]).expect("read").iter().map(|row| named(row.get(0))).collect()
}

#[test]
fn a_migration_that_is_cut_off_at_any_statement_is_whole_or_never_was_and_the_next_to_open_ends_it()
{
    let mut db = connect();
    let serial = fresh_schema();
    PostgresStore::builder(config()).schema(serial.name()).open().expect("opened");
    let whole = contents(&mut db, serial.name());
    assert!(whole.len() > 100, "{} things", whole.len());
    let proxy = Proxy::to(port());
    let mut fired = 0;
    for statement in STATEMENTS {
        for mischief in [Mischief::LoseRequest, Mischief::LoseAnswer] {
            let schema = fresh_schema();
            let open =
                || PostgresStore::builder(config_at(proxy.port())).schema(schema.name()).open();
            proxy.arm(&[statement], mischief);
            let cut = open().map(drop);
            fired += 1;
            assert_eq!(proxy.fired(), fired, "{statement}: {cut:?}");
            cut.expect_err(statement);
            // Whoever was cut off may still be at it: who comes next waits for the lock.
            let client = Client::new(open().expect("opened"));
            client.enqueue(drill(0, 0)).expect("accepted");
            let found = contents(&mut db, schema.name());
            let differences: Vec<_> = found.symmetric_difference(&whole).collect();
            assert!(differences.is_empty(), "{statement}, {mischief:?}: {differences:?}");
            let sql =
                format!("SELECT version, min_reader FROM \"{}\".schema_version", schema.name());
            let rows = db.query(&sql, &[]).expect("read");
            let rows: Vec<(i32, i32)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
            assert_eq!(rows, [(4, 4)], "{statement}, {mischief:?}");
        }
    }
    assert_no_alarm();
}

fn options(name: &str) -> GroupOptions {
    quick(name).lease(Duration::from_secs(60))
}

#[test]
fn columns_functions_and_a_version_that_are_added_under_groups_that_run_disturb_nobody() {
    let schema = fresh_schema();
    let open = || PostgresStore::builder(config()).schema(schema.name()).open().expect("opened");
    let (ledger, health) = (Ledger::new(), Arc::new(Health::new()));
    let groups = ["one process", "another"].map(|name| {
        let group = spawn_group(open(), ledger.registry(), options(name), Arc::clone(&health));
        group.expect("the group starts")
    });
    let client = Client::new(open());
    let mut db = connect();
    let name = format!("\"{}\"", schema.name());
    let mut enqueued = 0;
    let mut run = |count: u32| {
        let jobs = client.enqueue_many(drills(count, 0)).expect("accepted");
        enqueued += jobs.len();
        for job in jobs {
            let record = client.wait(job.id, PATIENCE).expect("it runs");
            let facts = (record.state, record.attempt, record.failures);
            assert_eq!(facts, (JobState::Succeeded, 1, 0));
        }
    };
    // Every session has its statements prepared, and its functions their plans.
    run(40);
    db.batch_execute(&format!("ALTER TABLE {name}.jobs ADD COLUMN note text")).expect("added");
    run(40);
    // The views hold every column as it is: the server itself refuses another type.
    let retyped = format!("ALTER TABLE {name}.jobs ALTER COLUMN queue TYPE varchar(300)");
    let refused = db.batch_execute(&retyped).expect_err("views show it");
    assert_eq!(refused.code().map(|code| code.code()), Some("0A000"));
    run(40);
    // What a later release adds, as its migration would.
    db.batch_execute(&format!(
        "BEGIN; ALTER TABLE {name}.jobs ADD COLUMN later bigint NOT NULL DEFAULT 7; \
         CREATE INDEX later_index ON {name}.jobs (later) WHERE state = 0; \
         CREATE TABLE {name}.later (id uuid PRIMARY KEY); \
         UPDATE {name}.schema_version SET version = version + 1; COMMIT"
    ))
    .expect("migrated");
    run(40);
    // A process of this release starts beside it.
    let third = spawn_group(open(), ledger.registry(), options("third"), Arc::clone(&health));
    run(40);
    eventually("all is healthy", || health.check().status == HealthStatus::Healthy);
    assert_eq!(ledger.total(), enqueued, "each once");
    for group in groups.into_iter().chain([third.expect("it starts")]) {
        let report = group.shutdown();
        assert_eq!((report.halts.len(), report.unanswered), (0, 0), "{report:?}");
    }
    assert_no_alarm();
}

#[test]
fn schemas_whose_names_differ_in_their_last_byte_share_nothing_and_longer_names_are_refused() {
    let stem = format!("{:_<62}", fresh_schema().name());
    let names = [format!("{stem}a"), format!("{stem}b")];
    let mut db = connect();
    let clients = names.clone().map(|name| {
        Client::new(PostgresStore::builder(config()).schema(name).open().expect("opened"))
    });
    clients[0].enqueue(drill(1, 0)).expect("accepted");
    clients[0].operator("ada").pause("default").expect("paused");
    for (client, count) in clients.iter().zip([1, 0]) {
        let counts = client.monitor().counts().expect("counted");
        assert_eq!(counts.iter().map(|of| of.count).sum::<u64>(), count);
        assert_eq!(client.monitor().queues().expect("read").len() as u64, count);
    }
    let [one, other] = names.each_ref().map(|name| contents(&mut db, name));
    assert_eq!(one.symmetric_difference(&other).next(), None);
    for name in &names {
        db.batch_execute(&format!("DROP SCHEMA \"{name}\" CASCADE")).expect("dropped");
    }
    // The server would cut these without a word, and two of them would be one.
    let cut_in_a_letter = format!("{}\u{1f921}", "x".repeat(61));
    for name in [stem.clone() + "ab", "x".repeat(200), cut_in_a_letter] {
        let error = PostgresStore::builder(config()).schema(&name).open().expect_err(&name);
        let refusal = error.downcast_ref::<PostgresOpenError>();
        assert!(matches!(refusal, Some(PostgresOpenError::SchemaName { .. })), "{error}");
        assert!(PostgresStore::ddl(&name).is_err());
    }
}
