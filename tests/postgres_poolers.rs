//! Poolers between a program and its Postgres server.

mod support;

use ::postgres::{Client as Db, NoTls};
use backwave::{
    Client, Health, JobState, PostgresOpenError, PostgresStore, SpawnError, Stopped, spawn_group,
};
use std::sync::Arc;
use std::time::Duration;
use support::drill::{Ledger, drill, quick};
use support::pool::Pool;
use support::postgres::{config, config_at, fresh_schema, port};

const LEASE: Duration = Duration::from_secs(60);

fn pool() -> Pool {
    let config = config();
    let database = config.get_dbname().unwrap_or("postgres");
    Pool::to(port(), config.get_user().unwrap_or("postgres"), database)
}

/// What the pool's one session is set to, asked through it.
fn setting(db: &mut Db, name: &str) -> String {
    let rows = db.simple_query(&format!("SHOW {name}")).expect("read");
    let shown = rows.iter().find_map(|message| match message {
        ::postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    shown.expect("a row")
}

#[test]
fn a_store_behind_a_pool_of_transactions_is_refused_and_leaves_the_pools_session_as_it_was() {
    let pool = pool();
    let schema = fresh_schema();
    let builder = || PostgresStore::builder(config_at(pool.port())).schema(schema.name());
    let error = builder().open().expect_err("sessions are shared");
    let refusal = error.downcast_ref::<PostgresOpenError>();
    assert!(matches!(refusal, Some(PostgresOpenError::TransactionPool)), "{error}");
    assert!(error.to_string().contains("session mode"), "{error}");
    // One that is opened later is found out by its group.
    let (health, ledger) = (Arc::new(Health::new()), Ledger::new());
    let lazy = builder().open_lazy().expect("no I/O");
    let group: Result<_, SpawnError> =
        spawn_group(lazy, ledger.registry(), quick("pooled").lease(LEASE), Arc::clone(&health));
    let group = group.expect("the group starts");
    let Stopped::Halted(halt) = group.wait() else { panic!("it halts") };
    assert!(halt.message.contains("transaction by transaction"), "{halt}");
    let mut neighbour = config_at(pool.port()).connect(NoTls).expect("the pool answers");
    assert_eq!(setting(&mut neighbour, "search_path"), "\"$user\", public");
    assert_eq!(setting(&mut neighbour, "enable_seqscan"), "on");
}

#[test]
fn a_caller_behind_a_pool_of_transactions_enqueues_in_its_own() {
    let pool = pool();
    let schema = fresh_schema();
    let direct = PostgresStore::builder(config()).schema(schema.name());
    let store = direct.open().expect("the server answers");
    let client = Client::new(store.clone());
    // Two callers, whose transactions the pool runs by one session in turn.
    let mut callers =
        [(), ()].map(|()| config_at(pool.port()).connect(NoTls).expect("the pool answers"));
    let mut ids = Vec::new();
    for round in 0..3 {
        for caller in &mut callers {
            let mut tx = caller.transaction().expect("begun");
            ids.push(store.enqueue_in(&mut tx, drill(round, 0)).expect("accepted").id);
            let again = drill(round, 0).parent(ids[0]).tag("pooled");
            ids.push(store.enqueue_in(&mut tx, again).expect("accepted").id);
            tx.commit().expect("committed");
            let sql = format!(
                "SELECT \"{}\".enqueue('{{\"wire_name\": \"drill\", \"payload\": 1}}')",
                schema.name()
            );
            caller.simple_query(&sql).expect("accepted");
        }
    }
    for id in &ids {
        let state = client.monitor().job(*id).expect("it is there").state;
        assert!(matches!(state, JobState::Scheduled | JobState::AwaitingParent));
    }
    let counts = client.monitor().counts().expect("counted");
    assert_eq!(counts.iter().map(|count| count.count).sum::<u64>(), 18);
}
