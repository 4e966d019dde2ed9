//! Opening: names, versions, privileges, races, and what is refused.

use super::*;
use crate::invariant::InvariantTrigger;
use crate::store::StoreError;
use crate::store::postgres::PostgresOpenError;
use crate::store::postgres::migrate::VERSION;
use std::sync::Barrier;

fn refusal(error: &StoreError) -> &PostgresOpenError {
    error.downcast_ref().unwrap_or_else(|| panic!("no refusal: {error:?}"))
}

/// Makes a database and answers the way to it.
fn database(options: &str) -> ::postgres::Config {
    let name = fresh_name();
    raw().batch_execute(&format!("CREATE DATABASE {name} TEMPLATE template0 {options}")).unwrap();
    let mut config = config();
    config.dbname(&name);
    config
}

#[test]
fn any_schema_name_works() {
    let unique = &fresh_name()[22..];
    let names = [
        format!("{unique} a\"b; DROP TABLE x; -- 'c' $body$"),
        format!("{unique} {{schema}}{{tag}}\\"),
        format!("{unique}\u{1f921}éß$$"),
        format!("{unique}{}", "z".repeat(63 - unique.len())),
    ];
    for name in names {
        let store = PostgresStore::builder(config()).schema(&name).open().unwrap();
        let mut session = store.open_session().unwrap();
        let mut job = JobRow::new(JobId::new(), "work");
        job.queue = "q".to_owned();
        add(session.as_mut(), &[job.clone()]);
        let me = WorkerId::new();
        let claimed = take(session.as_mut(), me, "q", 2);
        assert_eq!(ids(&claimed), [job.id], "{name}");
        report_one(session.as_mut(), &outcome(&claimed.jobs[0], me, Outcome::Succeeded));
        assert!(PostgresStore::ddl(&name).unwrap().contains("CREATE TABLE"));
    }
}

#[test]
fn a_name_that_is_no_identifier_is_refused() {
    for name in [String::new(), "a\0b".to_owned(), "x".repeat(64)] {
        let error = PostgresStore::builder(config()).schema(name).open_lazy().unwrap_err();
        assert!(matches!(refusal(&error), PostgresOpenError::SchemaName { .. }), "{error}");
    }
}

#[test]
fn a_dozen_openers_at_once_all_succeed() {
    let schema = fresh_name();
    let barrier = Barrier::new(12);
    std::thread::scope(|scope| {
        let open = || {
            let store = PostgresStore::builder(config()).schema(&schema).open_lazy().unwrap();
            barrier.wait();
            store.open_session().map(drop)
        };
        let openers: Vec<_> = (0..12).map(|_| scope.spawn(open)).collect();
        for opener in openers {
            opener.join().unwrap().unwrap();
        }
    });
    let text = format!("SELECT count(*), min(version) FROM \"{schema}\".schema_version");
    let row = raw().query_one(&text, &[]).unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i32>(1)), (1, VERSION));
    let second =
        format!("INSERT INTO \"{schema}\".schema_version (version, min_reader) VALUES (2, 1)");
    assert!(raw().batch_execute(&second).is_err(), "one row is enforced");
}

#[test]
fn a_newer_schema_is_refused_once_it_says_so() {
    let place = Place::new();
    let table = format!("\"{}\".schema_version", place.schema);
    raw().batch_execute(&format!("UPDATE {table} SET version = 7")).unwrap();
    drop(place.session());
    PostgresStore::builder(config()).schema(&place.schema).open().unwrap();
    raw().batch_execute(&format!("UPDATE {table} SET min_reader = 7")).unwrap();
    let opened = PostgresStore::builder(config()).schema(&place.schema).open();
    for error in [opened.unwrap_err(), place.store.open_session().map(drop).unwrap_err()] {
        assert!(
            matches!(
                refusal(&error),
                PostgresOpenError::SchemaTooNew { min_reader: 7, known: VERSION }
            ),
            "{error}"
        );
    }
    raw().batch_execute(&format!("DELETE FROM {table}")).unwrap();
    let error = place.store.open_session().map(drop).unwrap_err();
    assert_eq!(error.trigger(), Some(InvariantTrigger::GuaranteedRowAbsent), "{error}");
}

#[test]
fn a_database_that_is_not_utf8_is_refused() {
    for options in ["ENCODING 'LATIN1' LOCALE 'C'", "ENCODING 'SQL_ASCII' LOCALE 'C'"] {
        let error = PostgresStore::builder(database(options)).open().unwrap_err();
        assert!(matches!(refusal(&error), PostgresOpenError::Encoding { .. }), "{error}");
    }
}

#[test]
fn a_role_without_create_is_told_what_an_administrator_must_run() {
    let role = fresh_name();
    let admin = database("ENCODING 'UTF8'");
    let mut client = admin.connect(::postgres::NoTls).unwrap();
    client.batch_execute(&format!("CREATE ROLE {role} LOGIN")).unwrap();
    let mut config = admin.clone();
    config.user(&role);
    // Follows the advice until it opens.
    let mut advice = Vec::new();
    let store = loop {
        match PostgresStore::builder(config.clone()).schema("jobs here").open() {
            Ok(store) => break store,
            Err(error) => {
                let PostgresOpenError::Privilege { statement, .. } = refusal(&error) else {
                    panic!("{error}")
                };
                assert!(!advice.contains(statement), "the advice did not help: {statement}");
                advice.push(statement.clone());
                client.batch_execute(statement).unwrap();
            }
        }
    };
    assert_eq!(advice, [format!("CREATE SCHEMA \"jobs here\" AUTHORIZATION \"{role}\";")]);
    add(store.open_session().unwrap().as_mut(), &[row("q", 0)]);
    // The other way: an administrator runs the whole DDL and grants its use.
    client.batch_execute(&PostgresStore::ddl("by hand").unwrap()).unwrap();
    let open = || PostgresStore::builder(config.clone()).schema("by hand").open();
    let error = open().unwrap_err();
    let PostgresOpenError::Privilege { statement, .. } = refusal(&error) else { panic!("{error}") };
    client.batch_execute(statement).unwrap();
    add(open().unwrap().open_session().unwrap().as_mut(), &[row("q", 0)]);
}

#[test]
fn odd_defaults_of_the_role_change_nothing() {
    let role = fresh_name();
    let admin = database("ENCODING 'UTF8'");
    let mut client = admin.connect(::postgres::NoTls).unwrap();
    let setting = |set: &str| format!("ALTER ROLE {role} SET {set};");
    let settings = [
        "default_transaction_isolation = 'repeatable read'",
        "TimeZone = 'America/St_Johns'",
        "DateStyle = 'SQL, DMY'",
        "IntervalStyle = 'iso_8601'",
        "extra_float_digits = 0",
        "bytea_output = 'escape'",
        "standard_conforming_strings = off",
    ]
    .map(setting);
    client
        .batch_execute(&format!("CREATE ROLE {role} LOGIN SUPERUSER; {}", settings.concat()))
        .unwrap();
    let mut config = admin.clone();
    config.user(&role);
    let store = PostgresStore::builder(config.clone()).clock(|| START).open().unwrap();
    let mut session = store.open_session().unwrap();
    let mut job = row("q", -1);
    job.payload = crate::store::Body::new("\"\\\\ \u{1f921}\"".into());
    add(session.as_mut(), std::slice::from_ref(&job));
    let claimed = take(session.as_mut(), WorkerId::new(), "q", 1);
    assert_eq!((claimed.jobs[0].due_at, &claimed.jobs[0].payload), (at(-1), &job.payload));
    // A session that nobody has set up is refused.
    let mut client = config.connect(::postgres::NoTls).unwrap();
    let renew = "SELECT renewed FROM backwave.renew_v1(gen_random_uuid(), '{}', '{}', 1)";
    let error = client.query_one(renew, &[]).unwrap_err();
    assert_eq!(error.code().map(|code| code.code()), Some("BW002"));
}

#[test]
fn the_servers_clock_judges_unless_another_is_set() {
    let store = PostgresStore::builder(config()).schema(fresh_name()).open().unwrap();
    let mut session = store.open_session().unwrap();
    let before = session.now().unwrap();
    let mut job = JobRow::new(JobId::new(), "work");
    job.due = Due::Now;
    add(session.as_mut(), std::slice::from_ref(&job));
    let stored = record(session.as_mut(), job.id);
    let after = session.now().unwrap();
    assert!(before <= stored.created_at && stored.created_at <= after);
    let claimed = take(session.as_mut(), WorkerId::new(), "default", 1);
    assert_eq!(claimed.jobs[0].expiry, claimed.store_time + LEASE);
    assert!(claimed.store_time >= after);
}

#[test]
fn a_store_opens_from_within_an_async_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let schema = fresh_name();
    let store = runtime
        .block_on(async { PostgresStore::builder(config()).schema(&schema).open() })
        .unwrap();
    drop(store.open_session().unwrap());
    runtime.block_on(async move { drop(store) });
}

#[test]
fn a_closure_makes_the_connections_and_takes_no_tls() {
    let connect = || config().connect(::postgres::NoTls);
    let schema = fresh_name();
    let store = PostgresStore::builder_with(connect).schema(&schema).open().unwrap();
    drop(store.open_session().unwrap());
    let twice = PostgresStore::builder_with(connect).tls(::postgres::NoTls).open().unwrap_err();
    assert!(matches!(refusal(&twice), PostgresOpenError::TlsTwice));
    let panicking = PostgresStore::builder_with(|| panic!("on purpose")).open().unwrap_err();
    assert!(matches!(refusal(&panicking), PostgresOpenError::Panicked));
}

#[test]
fn two_stores_on_one_schema_share_a_hub_that_knows_no_password() {
    let mut config = config();
    config.password("hunter2");
    let schema = fresh_name();
    let open = || PostgresStore::builder(config.clone()).schema(&schema).open_lazy().unwrap();
    let (one, two) = (open(), open());
    let seen = two.hub().settled_count();
    one.hub().settled();
    assert_eq!(two.hub().settled_count(), seen + 1);
    assert!(!format!("{one:?} {:?}", PostgresStore::builder(config.clone())).contains("hunter2"));
    let key = one.inner.connector.database().unwrap();
    assert!(!key.contains("hunter2"), "{key}");
}

#[test]
fn a_column_added_by_hand_disturbs_nobody() {
    let place = Place::new();
    let mut session = place.session();
    add(session.as_mut(), &[row("q", -2), row("q", -1)]);
    let me = WorkerId::new();
    let first = take(session.as_mut(), me, "q", 1);
    record(session.as_mut(), first.jobs[0].id);
    let text = format!("ALTER TABLE \"{}\".jobs ADD COLUMN note text DEFAULT 'x'", place.schema);
    raw().batch_execute(&text).unwrap();
    report_one(session.as_mut(), &outcome(&first.jobs[0], me, Outcome::Succeeded));
    assert_eq!(take(session.as_mut(), me, "q", 1).jobs.len(), 1);
    record(session.as_mut(), first.jobs[0].id);
}

#[test]
fn a_sabotaged_function_names_its_invariant() {
    let place = Place::new();
    let text = format!("SELECT \"{}\".violated_v1('GuaranteedRowAbsent', 'told so')", place.schema);
    let error = super::super::fault::fault(raw().query(&text, &[]).map(drop).unwrap_err());
    assert_eq!(error.trigger(), Some(InvariantTrigger::GuaranteedRowAbsent));
    assert_eq!(error.violation().unwrap().message(), "told so");
}
