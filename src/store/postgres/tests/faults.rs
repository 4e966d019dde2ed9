//! Which faults are transient, and what becomes of the session.

use super::*;
use crate::store::postgres::fault::{connect_fault, fault};
use crate::store::{FaultClass, classify};

#[test]
fn a_fault_says_what_the_server_said_and_nothing_of_a_row() {
    let text = "CREATE TEMP TABLE narrow (payload text CHECK (payload = ''))";
    let mut client = raw();
    client.batch_execute(text).unwrap();
    let error = fault(client.batch_execute("INSERT INTO narrow VALUES ('secret')").unwrap_err());
    assert_eq!(
        error.to_string(),
        "the store failed (23514): new row for relation \"narrow\" violates check constraint \
         \"narrow_payload_check\""
    );
}

#[test]
fn a_session_whose_backend_is_gone_is_lost_and_a_new_one_works() {
    let place = Place::new();
    let mut session = place.session();
    add(session.as_mut(), &[row("q", -1)]);
    let pids = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE application_name = 'backwave' AND query LIKE '%{}%'",
        place.schema
    );
    raw().query(&pids, &[]).unwrap();
    for _ in 0..2 {
        let error = session.counts().unwrap_err();
        assert_eq!(classify(&error, None), FaultClass::Transient, "{error:?}");
        assert!(error.session_lost(), "{error:?}");
    }
    assert_eq!(place.session().counts().unwrap().len(), 1);
}

#[test]
fn a_server_that_is_not_there_is_a_transient_fault() {
    // Bound and dropped: nobody listens there now.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut config = ::postgres::Config::new();
    config.host("127.0.0.1").port(port).user("nobody");
    let store = PostgresStore::builder(config).open_lazy().unwrap();
    let error = store.open_session().map(drop).unwrap_err();
    assert_eq!(classify(&error, None), FaultClass::Transient, "{error:?}");
    assert!(error.session_lost());
}

#[test]
fn a_name_that_does_not_resolve_and_a_socket_that_is_missing_are_transient() {
    let mut config = ::postgres::Config::new();
    config.host("no-such-host.invalid").user("nobody");
    let store = PostgresStore::builder(config).open_lazy().unwrap();
    let error = store.open_session().map(drop).unwrap_err();
    assert_eq!(classify(&error, None), FaultClass::Transient, "{error:?}");
    let mut config = ::postgres::Config::new();
    config.host("/nonexistent").user("nobody");
    let error = connect_fault(config.connect(::postgres::NoTls).map(drop).unwrap_err());
    assert_eq!(classify(&error, None), FaultClass::Transient, "{error:?}");
}

#[test]
fn a_wrong_database_halts() {
    let mut config = config();
    config.dbname("there_is_no_such_database");
    let error = PostgresStore::builder(config).open().unwrap_err();
    assert_eq!(classify(&error, None), FaultClass::Fatal);
    assert_eq!(error.code(), Some("3D000"));
}

#[test]
fn a_call_that_takes_too_long_keeps_its_session() {
    let place = Place::built(|builder| builder.statement_timeout(Duration::from_millis(400)));
    let mut session = place.session();
    add(session.as_mut(), &[row("q", -1)]);
    let me = WorkerId::new();
    let job = take(session.as_mut(), me, "q", 1).jobs.remove(0);
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    tx.execute(&format!("SELECT 1 FROM \"{}\".jobs FOR UPDATE", place.schema), &[]).unwrap();
    let error = session.report(&[outcome(&job, me, Outcome::Succeeded)]).unwrap_err();
    assert_eq!(classify(&error, None), FaultClass::Transient);
    assert_eq!((error.code(), error.session_lost()), (Some("55P03"), false));
    tx.rollback().unwrap();
    assert_eq!(session.counts().unwrap().len(), 1);
}

#[test]
fn statements_that_the_server_has_forgotten_are_prepared_anew_once() {
    let place = Place::built(|builder| builder);
    let mut session =
        crate::store::postgres::session::PostgresSession::open(Arc::clone(&place.store.inner))
            .unwrap();
    add(&mut session, &[row("q", -1)]);
    session.run_raw("DEALLOCATE ALL");
    add(&mut session, &[row("q", -1)]);
    assert_eq!(take(&mut session, WorkerId::new(), "q", 5).jobs.len(), 2);
}
