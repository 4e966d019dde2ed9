//! From version 1 of the schema to the one of this release, and from this one to what may come.

use super::*;
use crate::JobState;
use crate::invariant::InvariantTrigger;
use crate::store::postgres::migrate::{self, Failure, MIGRATIONS, VERSION};
use crate::store::postgres::schema::Schema;
use crate::store::postgres::{PostgresOpenError, fault};
use crate::store::{FaultClass, QueueChange, StoreError, classify};
use sha2::{Digest, Sha256};
use std::sync::Barrier;

const OWNER: &str = "01977420-dc00-7000-8000-0000000000aa";

/// A schema as version 1 made it.
fn version_one() -> Schema {
    let schema = Schema::new(&fresh_name()).unwrap();
    let text = format!("CREATE SCHEMA {};\n{}", schema.quoted(), migrate::ddl_after(&schema, 0, 1));
    raw().batch_execute(&text).unwrap();
    schema
}

/// Jobs in every state, ten of each, two of those leased with a live lease.
fn fill(client: &mut ::postgres::Client, schema: &Schema) {
    let text = "INSERT INTO {schema}.jobs \
        (id, due_at, created_at, finished_at, expiry, attempt, version, state, owner, queue, wire_name, payload) \
        SELECT gen_random_uuid(), $1::timestamptz, $1, CASE WHEN s >= 3 THEN $1 END, \
        CASE WHEN s = 2 THEN $1 + CASE WHEN n < 3 THEN interval '60 s' ELSE interval '-1 s' END END, \
        CASE WHEN s = 0 THEN 0 ELSE 1 END, 1, s, CASE WHEN s = 2 THEN $2::text::uuid END, \
        CASE WHEN n % 2 = 0 THEN 'q' ELSE 'r' END, 'work', '{}'::bytea \
        FROM unnest(ARRAY[0, 2, 3, 4, 5, 6]) AS s CROSS JOIN generate_series(1, 10) AS n";
    assert_eq!(client.execute(&schema.fill(text), &[&START, &OWNER]).unwrap(), 60);
}

fn store(schema: &Schema) -> PostgresBuilder {
    PostgresStore::builder(config()).schema(schema.name()).clock(|| START)
}

#[test]
fn a_schema_of_version_1_is_brought_up_to_date_where_it_stands() {
    let schema = version_one();
    fill(&mut raw(), &schema);
    let store = store(&schema).open().unwrap();
    let mut session = store.open_session().unwrap();
    let counts = session.counts().unwrap();
    assert_eq!(counts.len(), 12);
    assert!(counts.iter().all(|count| count.count == 5), "{counts:?}");
    // What was leased is reported, given back and reaped by the new code.
    let owner: WorkerId = OWNER.parse().unwrap();
    let held = session.held_by(owner).unwrap().leases;
    let (live, dead): (Vec<(LeaseRef, Timestamp)>, Vec<_>) =
        held.into_iter().partition(|(_, expiry)| *expiry > START);
    assert_eq!((live.len(), dead.len()), (2, 8));
    let end = |lease: LeaseRef, mode| {
        let receipt = Receipt { pump: owner, sequence: 1 };
        let mut row = OutcomeRow::new(lease.job, lease.attempt, owner, receipt, Outcome::Succeeded);
        row.mode = mode;
        row
    };
    let done = end(live[0].0, crate::store::Mode::Holder);
    let applied = RowReport::Applied(JobState::Succeeded);
    assert_eq!(report_one(session.as_mut(), &done), applied);
    assert_eq!(session.hand_back(owner, &[live[1].0]).unwrap().rows, [true]);
    let reap = end(dead[0].0, crate::store::Mode::Reap);
    assert_eq!(report_one(session.as_mut(), &reap), applied);
    let taken = ["q", "r"].map(|queue| take(session.as_mut(), owner, queue, 100).jobs.len());
    assert_eq!(taken.iter().sum::<usize>(), 11);
    // A job of the old time can be a parent.
    let child = child_of(&[dead[1].0.job]);
    add(session.as_mut(), std::slice::from_ref(&child));
    let rows = session.report(&[end(dead[1].0, crate::store::Mode::Reap)]).unwrap().rows;
    assert_eq!(rows, [applied]);
    assert_eq!(record(session.as_mut(), child.id).state, JobState::Scheduled);
}

#[test]
fn a_schema_of_version_2_gains_schedules_and_observers() {
    let schema = Schema::new(&fresh_name()).unwrap();
    let text = format!("CREATE SCHEMA {};\n{}", schema.quoted(), migrate::ddl_after(&schema, 0, 2));
    raw().batch_execute(&text).unwrap();
    fill(&mut raw(), &schema);
    let mut session = store(&schema).open().unwrap().open_session().unwrap();
    assert!(session.schedules().unwrap().is_empty());
    assert_eq!(session.due_schedules(9).unwrap().next_at, None);
    assert!(session.observers().unwrap().is_empty());
    assert!(
        take(session.as_mut(), WorkerId::new(), "q", 9).jobs.iter().all(|job| job.tick.is_none())
    );
    let text = schema.fill("SELECT version, min_reader FROM {schema}.schema_version");
    let row = raw().query_one(&text, &[]).unwrap();
    assert_eq!((row.get::<_, i32>(0), row.get::<_, i32>(1)), (VERSION, VERSION));
}

#[test]
fn a_dozen_openers_of_an_old_schema_all_succeed() {
    let schema = version_one();
    fill(&mut raw(), &schema);
    let barrier = Barrier::new(12);
    std::thread::scope(|scope| {
        let open = || {
            let store = store(&schema).open_lazy().unwrap();
            barrier.wait();
            store.open_session().map(drop)
        };
        let openers: Vec<_> = (0..12).map(|_| scope.spawn(open)).collect();
        for opener in openers {
            opener.join().unwrap().unwrap();
        }
    });
    let text =
        schema.fill("SELECT count(*), min(version), min(min_reader) FROM {schema}.schema_version");
    let row = raw().query_one(&text, &[]).unwrap();
    assert_eq!(
        (row.get::<_, i64>(0), row.get::<_, i32>(1), row.get::<_, i32>(2)),
        (1, VERSION, VERSION)
    );
}

#[test]
fn a_migration_waits_for_who_uses_the_table_and_then_goes_on() {
    let schema = version_one();
    let mut client = raw();
    fill(&mut client, &schema);
    let mut tx = client.transaction().unwrap();
    let holder = backend_of(&mut tx);
    tx.execute(&schema.fill("SELECT 1 FROM {schema}.jobs FOR UPDATE"), &[]).unwrap();
    while_blocked(holder, || store(&schema).open().map(drop).unwrap(), || tx.commit().unwrap());
}

/// Whether a session of a group would be given up for it, and asked for anew.
fn expect_gives_up_its_session(error: &StoreError, expected: i32) {
    let Some(PostgresOpenError::SchemaTooNew { min_reader, known: VERSION }) = error.downcast_ref()
    else {
        panic!("{error:?}")
    };
    assert_eq!(*min_reader, expected);
    assert_eq!(classify(error, None), FaultClass::Transient, "{error:?}");
    assert!(error.session_lost() && error.refused_whole(), "{error:?}");
}

#[test]
fn calls_of_version_1_say_that_the_schema_is_too_new_for_them() {
    let schema = version_one();
    let mut client = raw();
    // Prepared and used before the migration, as a session that runs has them.
    let calls = [
        "SELECT store_time FROM {schema}.claim_v1(gen_random_uuid(), 1, '{q}', '{1}', true, '{work}', '{1}', 9, 9, \
         ARRAY[NULL]::timestamptz[], ARRAY[NULL]::uuid[])",
        "SELECT store_time FROM {schema}.report_v1('{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}')",
        "SELECT store_time FROM {schema}.exchange_v1('{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', \
         '{}', gen_random_uuid(), 1, '{q}', '{1}', true, '{work}', '{1}', 9, 9, ARRAY[NULL]::timestamptz[], \
         ARRAY[NULL]::uuid[])",
        "SELECT store_time FROM {schema}.hand_back_v1(gen_random_uuid(), '{}', '{}')",
        "SELECT answer FROM {schema}.request_cancel_v1(gen_random_uuid())",
        "SELECT answer FROM {schema}.requeue_v1(gen_random_uuid())",
    ];
    let statements = calls.map(|call| client.prepare(&schema.fill(call)).unwrap());
    for statement in &statements {
        client.query(statement, &[]).unwrap();
    }
    store(&schema).open().unwrap();
    for statement in &statements {
        let error = client.query(statement, &[]).unwrap_err();
        assert_eq!(error.code().map(|code| code.code()), Some("BW003"));
        expect_gives_up_its_session(&fault::fault(error), VERSION);
    }
    // What was told no lie stays: leases can be kept, and jobs enqueued.
    let renew = "SELECT store_time FROM {schema}.renew_v1(gen_random_uuid(), '{}', '{}', 9)";
    client.query_one(&schema.fill(renew), &[]).unwrap();
    let enqueue = "SELECT cardinality(new_ids) FROM {schema}.enqueue_v1(ARRAY[gen_random_uuid()], '{work}', '{1}', \
        '{q}', ARRAY['1']::bytea[], '{}', '{}', '{}', '{}', '{}')";
    assert_eq!(client.query_one(&schema.fill(enqueue), &[]).unwrap().get::<_, i32>(0), 1);
}

#[test]
fn a_session_that_runs_gives_way_to_a_newer_release() {
    let place = Place::new();
    let mut session = place.session();
    add(session.as_mut(), &[row("q", -1)]);
    // As its migration would do it.
    let head = include_str!("../migrations/0002_claim.sql");
    let head = &head[head.find("CREATE FUNCTION {schema}.claim_v2(").unwrap()..];
    let head = head[..head.find("AS {tag}").unwrap()].replace("CREATE", "CREATE OR REPLACE");
    let newer = VERSION + 1;
    let text = format!(
        "{head} AS {{tag}} BEGIN PERFORM {{schema}}.too_new_v2(); END {{tag}}; \
         UPDATE {{schema}}.schema_version SET version = {newer}, min_reader = {newer}"
    );
    raw().batch_execute(&place.store.inner.schema.fill(&text)).unwrap();
    let (plan, accepts) = (plan(&[("q", 5)]), accepts("work", 1));
    let claim = Claim::new(WorkerId::new(), 5, &plan, &accepts, LEASE);
    let error = session.claim(&claim).unwrap_err();
    assert_eq!(error.code(), Some("BW003"));
    expect_gives_up_its_session(&error, newer);
    expect_gives_up_its_session(&place.store.open_session().map(drop).unwrap_err(), newer);
    let opened = PostgresStore::builder(config()).schema(&place.schema).open().unwrap_err();
    let text = format!(
        "the schema needs code that knows schema version {newer}, and this release knows {VERSION}"
    );
    assert!(opened.to_string().contains(&text), "{opened}");
}

#[test]
fn a_role_that_does_not_own_the_schema_is_told_what_its_owner_must_run() {
    let schema = version_one();
    let mut client = raw();
    fill(&mut client, &schema);
    let role = fresh_name();
    let grant = format!(
        "CREATE ROLE {role} LOGIN; GRANT USAGE, CREATE ON SCHEMA {{schema}} TO {role}; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {{schema}} TO {role}"
    );
    client.batch_execute(&schema.fill(&grant)).unwrap();
    let mut config = config();
    config.user(&role);
    let open =
        || PostgresStore::builder(config.clone()).schema(schema.name()).clock(|| START).open();
    let error = open().unwrap_err();
    let Some(PostgresOpenError::Privilege { statement, .. }) = error.downcast_ref() else {
        panic!("{error}")
    };
    client.batch_execute(statement).unwrap();
    let mut session = open().unwrap().open_session().unwrap();
    let parent = row("q", 50);
    add(session.as_mut(), &[parent.clone(), child_of(&[parent.id])]);
    session.request_cancel("ada", parent.id).unwrap();
    session.change_queue("ada", "q", QueueChange::Pause).unwrap();
    assert_eq!(session.audit(&crate::store::AuditFilter::default()).unwrap().len(), 2);
    drop(session);
    let drop = format!("DROP OWNED BY {role}; DROP ROLE {role}");
    client.batch_execute(&drop).unwrap();
}

#[test]
fn a_migration_lock_that_is_not_held_halts() {
    let schema = Schema::new(&fresh_name()).unwrap();
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    let Err(Failure::Refused(error)) = migrate::check_lock(&mut tx, &schema) else {
        panic!("it is not held")
    };
    assert_eq!(error.trigger(), Some(InvariantTrigger::ApplicationLockNotAcquired));
    let lock = "SELECT pg_advisory_xact_lock(hashtextextended('backwave migration ' || $1, 0))";
    tx.execute(lock, &[&schema.name()]).unwrap();
    assert!(migrate::check_lock(&mut tx, &schema).is_ok());
    let other = Schema::new(&fresh_name()).unwrap();
    assert!(migrate::check_lock(&mut tx, &other).is_err());
}

/// A migration that was released is never changed: who has applied it would not see the change.
#[test]
fn released_migrations_are_what_they_were() {
    let frozen = [(
        1,
        [
            "9228f90280344bccce812538518d8b6aef35bc7154d95fb1c29a492894f7171f",
            "2385b3567d1dd44a60a0c53cdf8e334f2dabf25d8c607adf0dacfb3eb1061365",
            "7de5e2a7112f446cb3571c4a8622478c4806fc51b10cf801b8782cb3c2de04cf",
            "a64b2d32aba9c6f83e3d54ecb6182da749d421f4b968e0fcd13a97a386567bf6",
            "72a81c910029cfcc335375132ab3f55a12e85dfd616540cdd01cd20439f0997f",
            "573c6301b17d551caa303e8c9cccd8c729c7976e25c435af3283c018e3c4ade9",
            "02e9b72e6dd1d93acad878da8b1f6e8d6e2ee0e2cff283d89713369faab0304f",
            "e10fa39f76637cb85e5ae89484f76b64dfd59f353631b329aa5603a19e496037",
        ],
    )];
    for (version, hashes) in frozen {
        let (_, parts) = MIGRATIONS.iter().find(|(known, _)| *known == version).unwrap();
        let found: Vec<String> = parts
            .iter()
            .map(|part| Sha256::digest(part).iter().map(|byte| format!("{byte:02x}")).collect())
            .collect();
        assert_eq!(found, hashes, "version {version}");
    }
}
