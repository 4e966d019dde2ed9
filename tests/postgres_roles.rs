//! What an administrator sets on a role or a server: a database that is read-only for a while, timeouts,
//! an isolation level, and ways to write dates.

mod support;

use ::postgres::{Client as Db, Config};
use backwave::{
    Client, EnqueueError, Group, GroupOptions, Health, HealthStatus, JobContext, JobId, JobState,
    PostgresStore, Registry, Timestamp, spawn_group,
};
use crossbeam_channel::bounded;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use support::drill::{Drill, Ledger, PATIENCE, assert_no_alarm, drill, drills, eventually, quick};
use support::postgres::{config, connect};

/// A role of the test's own, with a schema of its own; both are dropped at the end.
struct Role {
    name: String,
    admin: Db,
}

impl Role {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("backwave_role_{}_{number}", std::process::id());
        let mut admin = connect();
        let sql = format!("CREATE ROLE {name} LOGIN; CREATE SCHEMA {name} AUTHORIZATION {name}");
        admin.batch_execute(&sql).expect("made");
        Self { name, admin }
    }

    fn set(&mut self, setting: &str) {
        self.admin.batch_execute(&format!("ALTER ROLE {} SET {setting}", self.name)).expect("set");
    }

    fn reset(&mut self, setting: &str) {
        let sql = format!("ALTER ROLE {} RESET {setting}", self.name);
        self.admin.batch_execute(&sql).expect("reset");
    }

    /// Ends its sessions, so that the next ones have what was set.
    fn end_sessions(&mut self) {
        let sql =
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = $1";
        self.admin.query_one(sql, &[&self.name]).expect("ended");
    }

    fn config(&self) -> Config {
        let mut config = config();
        config.user(&self.name);
        config
    }

    fn store(&self) -> PostgresStore {
        let store = PostgresStore::builder(self.config()).schema(&self.name);
        store.open().expect("the server answers")
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        self.end_sessions();
        let name = &self.name;
        // A panic here would hide the test's own.
        let _ = self.admin.batch_execute(&format!("DROP SCHEMA {name} CASCADE; DROP ROLE {name}"));
    }
}

struct Scene {
    client: Client,
    ledger: Arc<Ledger>,
    health: Arc<Health>,
    group: Group,
}

fn options(name: &str) -> GroupOptions {
    quick(name).lease(Duration::from_secs(60))
}

fn scene(store: PostgresStore, options: GroupOptions) -> Scene {
    let client = Client::new(store.clone());
    let (ledger, health) = (Ledger::new(), Arc::new(Health::new()));
    let group = spawn_group(store, ledger.registry(), options, Arc::clone(&health));
    Scene { client, ledger, health, group: group.expect("the group starts") }
}

impl Scene {
    fn status(&self) -> HealthStatus {
        self.health.check().status
    }

    fn run(&self, count: u32) {
        let jobs = self.client.enqueue_many(drills(count, 0)).expect("accepted");
        for job in jobs {
            let record = self.client.wait(job.id, PATIENCE).expect("it runs");
            let numbers = (record.state, record.failures);
            assert_eq!(numbers, (JobState::Succeeded, 0));
        }
    }

    fn assert_sound(self) {
        assert!(self.health.is_healthy());
        let report = self.group.shutdown();
        assert_eq!((report.halts.len(), report.unanswered), (0, 0), "{report:?}");
        assert_no_alarm();
    }
}

#[test]
fn a_database_that_is_read_only_for_a_while_degrades_and_heals() {
    let mut role = Role::new();
    let scene = scene(role.store(), options("read-only"));
    scene.run(5);
    role.set("default_transaction_read_only = on");
    role.end_sessions();
    eventually("the group is degraded", || scene.status() == HealthStatus::Degraded);
    let refused = scene.client.enqueue(drill(0, 0)).expect_err("nothing can be written");
    assert!(
        matches!(refused, EnqueueError::Store(_) | EnqueueError::OutcomeUnknown { .. }),
        "{refused:?}"
    );
    // For as long as it lasts, although an idle group has nothing to write.
    for _ in 0..100 {
        assert_eq!(scene.status(), HealthStatus::Degraded);
        // Sleeps between samples: that a state lasts has no event.
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(scene.health.is_healthy(), "it is no halt");
    assert!(scene.client.monitor().counts().is_ok(), "what is there can be read");
    role.reset("default_transaction_read_only");
    let took = eventually("the group is healthy", || scene.status() == HealthStatus::Healthy);
    assert!(took < Duration::from_secs(10), "{took:?}");
    scene.run(5);
    assert_eq!(scene.ledger.total(), 10);
    scene.assert_sound();
}

#[test]
fn an_outcome_decided_while_the_database_is_read_only_is_kept_and_written_after_it() {
    let mut role = Role::new();
    let store = role.store();
    let (came, come) = bounded(1);
    let (pass, passed) = bounded::<()>(1);
    let registry = Registry::new().handle(move |_, _: Drill| {
        came.send(())?;
        passed.recv_timeout(PATIENCE)?;
        came.send(())?;
        Ok(())
    });
    let (client, health) = (Client::new(store.clone()), Arc::new(Health::new()));
    let group = spawn_group(store, registry, options("switched"), Arc::clone(&health));
    let group = group.expect("the group starts");
    let id = client.enqueue(drill(0, 0)).expect("accepted").id;
    come.recv_timeout(PATIENCE).expect("it runs");
    role.set("default_transaction_read_only = on");
    role.end_sessions();
    eventually("the group is degraded", || health.check().status == HealthStatus::Degraded);
    pass.send(()).expect("the handler waits");
    come.recv_timeout(PATIENCE).expect("it ends");
    let record = client.monitor().job(id).expect("what is there can be read");
    assert_eq!(record.state, JobState::Leased, "nothing can be written");
    assert_eq!(health.check().status, HealthStatus::Degraded);
    role.reset("default_transaction_read_only");
    let record = client.wait(id, PATIENCE).expect("it is written");
    assert_eq!((record.state, record.attempt, record.failures), (JobState::Succeeded, 1, 0));
    eventually("the group is healthy", || health.check().status == HealthStatus::Healthy);
    assert_eq!(group.shutdown().halts, []);
    assert_no_alarm();
}

#[test]
fn nodes_of_different_time_zones_and_styles_agree_on_every_instant() {
    let role = Role::new();
    let styles = [
        "-c TimeZone=Asia/Tokyo -c DateStyle=SQL,DMY -c IntervalStyle=iso_8601",
        "-c TimeZone=America/St_Johns -c DateStyle=German -c IntervalStyle=sql_standard",
        "-c TimeZone=UTC -c DateStyle=Postgres,MDY -c IntervalStyle=postgres_verbose",
    ];
    let node = |style: &str| {
        let mut config = role.config();
        config.options(style);
        PostgresStore::builder(config).schema(&role.name).open().expect("the server answers")
    };
    let nodes = styles.map(|style| Client::new(node(style)));
    let due: Timestamp = "2031-02-03T04:05:06.123456Z".parse().expect("a time");
    let delay = Duration::from_secs(20);
    for (number, enqueuer) in nodes.iter().enumerate() {
        let fixed = enqueuer.enqueue(drill(0, 0).due_at(due)).expect("accepted").id;
        let delayed = enqueuer.enqueue(drill(0, 0).delay(delay)).expect("accepted").id;
        // The same by SQL, in a session with the same styles.
        let mut config = role.config();
        config.options(styles[number]);
        let mut db = config.connect(::postgres::NoTls).expect("the server answers");
        let by_sql = |db: &mut Db, when: &str| -> JobId {
            let sql = format!(
                "SELECT {}.enqueue('{{\"wire_name\": \"drill\", \"payload\": {{}}, {when}}}')::text",
                role.name
            );
            db.query_one(&sql, &[]).expect("accepted").get::<_, &str>(0).parse().expect("an id")
        };
        let fixed_by_sql = by_sql(&mut db, r#""due_at": "2031-02-03T13:05:06.123456+09:00""#);
        let delayed_by_sql = by_sql(&mut db, r#""delay_ms": 20000"#);
        for reader in &nodes {
            let job = |id| reader.monitor().job(id).expect("it is there");
            assert_eq!((job(fixed).due_at, job(fixed_by_sql).due_at), (due, due));
            for id in [delayed, delayed_by_sql] {
                assert_eq!(job(id).due_at.since(job(id).created_at), delay);
                assert_eq!(job(id), enqueuer.monitor().job(id).expect("it is there"));
            }
        }
    }
    // A lease that one of them takes is as long for all of them, and what one has renewed no other reaps.
    let (came, come) = bounded(1);
    let (pass, passed) = bounded::<()>(1);
    let handler = move |_: &JobContext, _: Drill| {
        came.send(())?;
        passed.recv_timeout(PATIENCE)?;
        Ok(())
    };
    let health = Arc::new(Health::new());
    let holder = Registry::new().handle(handler);
    let holder = spawn_group(node(styles[0]), holder, options("tokyo"), Arc::clone(&health));
    let id = nodes[2].enqueue(drill(0, 0)).expect("accepted").id;
    come.recv_timeout(PATIENCE).expect("it runs");
    let ledger = Ledger::new();
    let other = spawn_group(node(styles[1]), ledger.registry(), options("st johns"), health);
    let other = other.expect("the group starts");
    assert!(other.wait_until_idle(PATIENCE));
    for reader in &nodes {
        let record = reader.monitor().job(id).expect("it is there");
        let left = record.expiry.expect("it is leased").since(record.created_at);
        assert!(left >= Duration::from_secs(60) && left < Duration::from_secs(120), "{left:?}");
        assert_eq!((record.state, record.attempt), (JobState::Leased, 1));
    }
    pass.send(()).expect("the handler waits");
    let record = nodes[1].wait(id, PATIENCE).expect("it ends");
    assert_eq!((record.state, record.attempt), (JobState::Succeeded, 1));
    assert_eq!(ledger.total(), 0, "nobody else ran it");
    drop((holder, other));
    assert_no_alarm();
}

#[test]
fn sessions_that_the_server_ends_for_being_idle_are_opened_again() {
    let mut role = Role::new();
    role.set("idle_session_timeout = '80ms'");
    let poll = Duration::from_millis(300);
    let scene = scene(role.store(), options("idle").poll_interval(poll, poll));
    for _ in 0..5 {
        scene.run(3);
        // Sleeps longer than the server lets a session of the client idle.
        std::thread::sleep(Duration::from_millis(120));
    }
    assert_eq!(scene.ledger.total(), 15, "each once");
    scene.assert_sound();
}

#[test]
fn timeouts_of_the_role_do_not_reach_the_sessions() {
    let mut role = Role::new();
    // Set after the schema was made, whose statements are not the point here.
    let store = role.store();
    for timeout in ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"] {
        role.set(&format!("{timeout} = '60ms'"));
    }
    let scene = scene(store, options("timeouts"));
    // Held up by a lock for longer than the role's timeouts, for less than the store's own.
    let job = scene.client.enqueue(drill(0, 0).delay(Duration::from_millis(1))).expect("accepted");
    scene.client.wait(job.id, PATIENCE).expect("it runs");
    let mut lock = role.admin.transaction().expect("begun");
    let name = role.name.clone();
    lock.batch_execute(&format!("LOCK TABLE {name}.jobs IN EXCLUSIVE MODE")).expect("locked");
    let client = scene.client.clone();
    let waiting = std::thread::spawn(move || client.enqueue(drill(1, 0)));
    // Sleeps past the role's timeouts: that they do not strike has no event.
    std::thread::sleep(Duration::from_millis(400));
    lock.commit().expect("released");
    let job = waiting.join().expect("no panic").expect("accepted in the end");
    assert!(job.is_new);
    scene.client.wait(job.id, PATIENCE).expect("it runs");
    assert_eq!(scene.status(), HealthStatus::Healthy);
    scene.assert_sound();
}

#[test]
fn an_isolation_level_of_the_role_does_not_reach_the_sessions() {
    for level in ["repeatable read", "serializable"] {
        let mut role = Role::new();
        role.set(&format!("default_transaction_isolation = '{level}'"));
        role.set("default_transaction_deferrable = on");
        let scene = scene(role.store(), options("isolation").pumps(3));
        scene.run(200);
        assert_eq!(scene.status(), HealthStatus::Healthy);
        assert_eq!(scene.ledger.total(), 200);
        scene.assert_sound();
    }
}

#[test]
fn no_way_to_write_dates_or_strings_changes_what_is_stored() {
    let mut role = Role::new();
    for setting in [
        "TimeZone = 'Pacific/Chatham'",
        "DateStyle = 'SQL, DMY'",
        "IntervalStyle = 'sql_standard'",
        "bytea_output = 'escape'",
        "standard_conforming_strings = off",
        "extra_float_digits = -15",
        "search_path = 'nowhere'",
        "array_nulls = off",
        "client_min_messages = 'debug5'",
        "row_security = off",
        "lc_messages = 'C'",
        "plan_cache_mode = 'force_custom_plan'",
    ] {
        role.set(setting);
    }
    let scene = scene(role.store(), options("styles"));
    let delay = Duration::from_micros(3_600_000_001);
    let job = drill(3, 0).delay(delay).tag("back\\slash").tag("NULL");
    let id = scene.client.enqueue(job).expect("accepted").id;
    let record = scene.client.monitor().job(id).expect("it is there");
    assert_eq!(record.due_at.since(record.created_at), delay);
    assert_eq!(record.tags, ["back\\slash", "NULL"]);
    assert_eq!(record.payload.as_bytes(), br#"{"number":3,"millis":0}"#);
    let due = "2031-02-03T04:05:06.123456Z".parse::<Timestamp>().expect("a time");
    let id = scene.client.enqueue(drill(4, 0).due_at(due)).expect("accepted").id;
    assert_eq!(scene.client.monitor().job(id).expect("it is there").due_at, due);
    scene.run(20);
    assert_eq!(scene.status(), HealthStatus::Healthy);
    scene.assert_sound();
}

#[test]
fn a_role_whose_connections_are_used_up_degrades_and_heals() {
    let mut role = Role::new();
    let scene = scene(role.store(), options("used-up"));
    scene.run(5);
    let name = role.name.clone();
    role.admin.batch_execute(&format!("ALTER ROLE {name} CONNECTION LIMIT 0")).expect("set");
    role.end_sessions();
    eventually("the group is degraded", || scene.status() == HealthStatus::Degraded);
    let refused = scene.client.enqueue(drill(0, 0)).expect_err("no session can be opened");
    assert!(refused.source().is_some(), "{refused:?}");
    assert!(scene.health.is_healthy(), "it is no halt");
    role.admin.batch_execute(&format!("ALTER ROLE {name} CONNECTION LIMIT -1")).expect("set");
    eventually("the group is healthy", || scene.status() == HealthStatus::Healthy);
    scene.run(5);
    assert_eq!(scene.ledger.total(), 10);
    scene.assert_sound();
}

#[test]
fn a_lock_that_an_administrator_holds_degrades_the_group_and_loses_nothing() {
    let mut role = Role::new();
    let store = PostgresStore::builder(role.config()).schema(&role.name);
    let store = store.statement_timeout(Duration::from_millis(300)).open().expect("it answers");
    let scene = scene(store, options("locked"));
    // Half of them are under way when the table is locked, and end meanwhile.
    let jobs = scene.client.enqueue_many(drills(8, 200)).expect("accepted");
    eventually("they run", || {
        let counts = scene.client.monitor().counts().expect("read");
        counts.iter().any(|count| count.state == JobState::Leased)
    });
    let name = role.name.clone();
    let mut lock = role.admin.transaction().expect("begun");
    lock.batch_execute(&format!("LOCK TABLE {name}.jobs IN EXCLUSIVE MODE")).expect("locked");
    eventually("the group is degraded", || scene.status() == HealthStatus::Degraded);
    let refused = scene.client.enqueue(drill(0, 0)).expect_err("it waits in vain");
    match refused {
        EnqueueError::Store(error) => assert_eq!(error.code(), Some("55P03"), "{error}"),
        other => panic!("a refusal with a code leaves no doubt: {other:?}"),
    }
    lock.commit().expect("released");
    eventually("the group is healthy", || scene.status() == HealthStatus::Healthy);
    for job in jobs {
        let record = scene.client.wait(job.id, PATIENCE).expect("it ends");
        assert_eq!((record.state, record.attempt), (JobState::Succeeded, 1));
    }
    assert_eq!(scene.ledger.total(), 8);
    scene.assert_sound();
}
