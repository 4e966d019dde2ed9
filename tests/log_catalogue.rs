//! The log catalogue as programs see it: which line carries which id, level and fields, the wordings that are
//! promised, and that nothing secret is in any of them.
//!
//! A story brings about every line; it is told once on each database.

mod support;

use backwave::invariant::{InvariantTrigger, degrade, halt};
use backwave::schedule::Schedule;
use backwave::store::{
    CursorStale, Observed, Reported, Resolved, RowReport, ScheduleRow, StaleReason, StoreClock,
    StoreError,
};
use backwave::testing::{Intercept, StoreCall};
use backwave::{
    DispatchPolicy, Group, HealthStatus, JobContext, JobResult, JobState, NewJob, Observers,
    PostgresStore, Registry, SqliteStore, Stopped,
};
use log::Level;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, SystemTime};
use support::clock::OffsetClock;
use support::gate::Gate;
use support::log::{self as lines, Line};
use support::observing::{births, observe_on, quick_observer};
use support::world::{PATIENCE, Task, World, eventually, facts, quick, task};

/// In payloads, outputs, errors of handlers and messages of panics.
const SECRET: &str = "token=S3cr3t";
/// In a connection URL.
const PASSWORD: &str = "S3cr3tPassw0rd";

/// Id, level, and the fields beside the id; an id with two kinds of lines is there twice.
const CATALOGUE: &[(u32, Level, &[&str])] = &[
    (1001, Level::Debug, &["count"]),
    (1101, Level::Trace, &["attempt", "job_id", "worker_group"]),
    (1102, Level::Debug, &["attempt", "job_id", "wire_name", "worker_group"]),
    (1103, Level::Debug, &["attempt", "job_id", "state", "worker_group"]),
    (1201, Level::Info, &["attempt", "failures", "job_id", "worker_group"]),
    (1202, Level::Warn, &["attempt", "job_id", "reason", "worker_group"]),
    (1203, Level::Error, &["attempt", "failures", "job_id", "worker_group"]),
    (1204, Level::Info, &["count", "worker_group"]),
    (1205, Level::Error, &["attempt", "job_id", "worker_group"]),
    (1301, Level::Warn, &["worker_group"]),
    (1301, Level::Warn, &["count", "worker_group"]),
    (1302, Level::Info, &["adapter", "from", "to"]),
    (1303, Level::Warn, &["direction", "milliseconds", "worker_group"]),
    (1401, Level::Warn, &["failures", "observer", "position"]),
    (1402, Level::Error, &["count", "worker_group"]),
    (1601, Level::Warn, &["invariant_trigger"]),
    (1701, Level::Debug, &["job_id", "schedule", "worker_group"]),
    (1702, Level::Info, &["count", "reason", "schedule", "worker_group"]),
    (1703, Level::Warn, &["schedule", "worker_group"]),
    (1704, Level::Info, &["count", "owner", "schedules"]),
    (2001, Level::Error, &["invariant_trigger", "severity", "worker_group"]),
    (2003, Level::Warn, &["invariant_trigger", "worker_group"]),
    (2005, Level::Warn, &["count", "job_ids", "worker_group"]),
    (2006, Level::Warn, &["attempt", "job_id", "seconds", "worker_group"]),
    (2007, Level::Warn, &["queue", "wire_name", "worker_group"]),
    (2101, Level::Error, &["invariant_trigger", "observer"]),
    (2102, Level::Info, &["epoch", "observer"]),
    (2103, Level::Warn, &["observer", "reason"]),
    (2104, Level::Warn, &["failures", "observer", "position"]),
    (2105, Level::Warn, &["count", "observer", "position", "seconds"]),
    (2106, Level::Warn, &["observer"]),
    (2106, Level::Warn, &["count", "observer"]),
    (2107, Level::Warn, &["observer", "reason"]),
];

/// What has been logged once every story is told.
fn told() -> Vec<Line> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        lines::record();
        tell(&sqlite(), "sqlite");
        tell(&postgres(), "postgres");
        cannot_connect();
        degrade(InvariantTrigger::ObserverCursorRegressed, None, "it went back");
    });
    lines::all()
}

fn sqlite() -> World {
    let clock = OffsetClock::default();
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let builder = SqliteStore::builder(folder.path().join("jobs.db")).clock(clock.clone());
    let builder = builder.busy_timeout(Duration::from_secs(1));
    World::new(builder.open().expect("the file opens"), clock, Some(Box::new(folder)))
}

/// The server trusts whoever comes, so that a password does no harm.
fn postgres() -> World {
    let clock = OffsetClock::default();
    let schema = support::postgres::fresh_schema();
    let mut config = support::postgres::config();
    config.password(PASSWORD);
    let builder = PostgresStore::builder(config).schema(schema.name()).clock(clock.clone());
    let builder = builder.statement_timeout(Duration::from_secs(1));
    World::new(builder.open().expect("the server answers"), clock, Some(Box::new(schema)))
}

/// A store whose server goes away for good: what the client says of it is logged.
fn cannot_connect() {
    let schema = support::postgres::fresh_schema();
    let proxy = support::proxy::Proxy::to(support::postgres::port());
    let port = proxy.port();
    let url = format!("postgres://postgres:{PASSWORD}@127.0.0.1:{port}/postgres?sslmode=disable");
    let builder = PostgresStore::builder(url.parse().expect("a URL")).schema(schema.name());
    let store = builder.open().expect("it answers");
    drop(proxy);
    let registry = Registry::new().handle(|_, _: Task| Ok(()));
    let health = Arc::new(backwave::Health::new());
    let options = quick("unreachable").lease(Duration::from_secs(60));
    let group = backwave::spawn_group(store, registry, options, health).expect("it starts");
    eventually("it is told", || !lines::lines("unreachable", 1301).is_empty());
    group.shutdown();
}

/// Everything that a group logs, brought about once.
fn tell(world: &World, place: &str) {
    ordinary_life(world, &format!("life, {place}"));
    refused_outcome(world, &format!("refused, {place}"));
    deaf_handler(world, &format!("deaf, {place}"));
    halt_and_heir(world, &format!("halts, {place}"));
    schedules(world, &format!("schedules, {place}"));
    observed(world, &format!("observed, {place}"));
}

fn ordinary_life(world: &World, name: &str) {
    let store = Intercept::new(Arc::clone(&world.store));
    let handler = |ctx: &JobContext, Task(what): Task| -> JobResult {
        match what.strip_prefix(SECRET) {
            Some(" fails") => Err(format!("it failed with {what}").into()),
            Some(" panics") => panic!("it panicked with {what}"),
            _ => Ok(ctx.set_output(&format!("{what} out"))?),
        }
    };
    // A queue of its own, so that no later group finds anything.
    let options = quick(name).dispatch(DispatchPolicy::strict(["elsewhere"]));
    let group = world.spawn_on(store.clone(), Registry::new().handle(handler), options);
    let good = ["", " fails", " panics"]
        .map(|what| world.enqueue(task(format!("{SECRET}{what}")).queue("elsewhere")));
    let ended = good.map(|id| world.ended(id).state);
    assert_eq!(ended, [JobState::Succeeded, JobState::DeadLettered, JobState::DeadLettered]);
    let raw = format!("{{\"{SECRET}\": 1}}");
    let bad = world.enqueue(NewJob::raw("task", raw).queue("elsewhere"));
    assert_eq!(world.ended(bad).state, JobState::Quarantined);

    let away = || StoreError::transient(std::io::Error::other("away")).with_session_lost();
    store.on_every_call(move |_| Err(away()));
    let status = || world.health.check().status;
    eventually("it is degraded", || status() == HealthStatus::Degraded);
    store.clear();
    eventually("it has recovered", || status() == HealthStatus::Healthy);
    assert_eq!(group.shutdown().halts, []);
}

/// A schedule that ticks, one whose ticks are missed, one that does not read, and the end of them all.
fn schedules(world: &World, name: &str) {
    let hour = Duration::from_secs(3600);
    let declare = |schedules: Vec<Schedule>| {
        world.client.schedules().declare(name, schedules).expect("they are right")
    };
    let start = SystemTime::now() - hour * 24;
    declare(vec![Schedule::every(name, hour, task(SECRET)).starts_at(start)]);
    let text = |text: &str| text.to_owned();
    let broken = ScheduleRow::new(text("broken"), text("sql"), text(SECRET), text(SECRET));
    let mut session = world.store.open_session().expect("it opens");
    session.declare("sql", &[broken], true).expect("a store reads none of it");

    let group = world.spawn(Registry::new().handle(|_, _: Task| Ok(())), quick(name));
    eventually("the broken one is told of", || !lines::lines(name, 1703).is_empty());
    let next = || {
        let all = world.client.schedules().list().expect("they can be read");
        all.into_iter().find(|schedule| schedule.name == name).and_then(|found| found.next_tick)
    };
    world.clock.skip(next().expect("it ticks").since(world.clock.now()));
    eventually("the tick is told of", || !lines::lines(name, 1701).is_empty());
    world.clock.skip(hour * 3 - hour / 2);
    eventually("the missed ones are told of", || !lines::lines(name, 1702).is_empty());
    assert!(group.wait_until_idle(PATIENCE));
    assert_eq!(group.shutdown().halts, []);
    declare(Vec::new());
    session.declare("sql", &[], true).expect("it is forgotten");
}

/// A report that the store refuses without a reason, the lease being believed live.
fn refused_outcome(world: &World, name: &str) {
    let store = Intercept::new(Arc::clone(&world.store));
    let lied = AtomicBool::new(false);
    store.on_report(move |session, rows| {
        if lied.swap(true, Ordering::SeqCst) {
            return session.report(rows);
        }
        let refused = vec![RowReport::Stale(StaleReason::Unknown); rows.len()];
        Ok(Reported::new(refused, session.now()?))
    });
    let registry = Registry::new().handle(|_, _: Task| Ok(()));
    let group = world.spawn_on(store, registry, quick(name));
    let id = world.enqueue(task(SECRET));
    eventually("it is told", || !lines::lines(name, 2003).is_empty());
    world.clock.skip(Duration::from_secs(6));
    assert_eq!(facts(&world.ended(id)), (JobState::Succeeded, 2, 1));
    assert_eq!(group.shutdown().halts, []);
}

/// A handler that hears neither its time limit nor a stop.
fn deaf_handler(world: &World, name: &str) {
    let gate = Gate::new();
    let handler = |gate: &Gate, _: &JobContext, _: Task| -> JobResult {
        gate.pass("begun");
        Ok(())
    };
    let registry = Registry::new().handle_with(&gate.clone().into(), handler);
    let options = quick(name).patience(Duration::from_millis(20));
    let group = world.spawn(registry, options.shutdown_budget(Duration::from_millis(40)));
    let id = world.enqueue(task(SECRET).timeout(Duration::from_millis(10)));
    assert_eq!(gate.heard(), "begun");
    eventually("it is told deaf", || !lines::lines(name, 2006).is_empty());
    let report = group.shutdown();
    assert_eq!(report.still_running, [id]);
    gate.open();
    world.client.operator("ada").cancel(id).expect("cancelled");
}

/// A group that halts with a job running, and another that inherits it.
fn halt_and_heir(world: &World, name: &str) {
    let store = Intercept::new(Arc::clone(&world.store));
    let gate = Gate::new();
    let handler = |gate: &Gate, ctx: &JobContext, _: Task| {
        gate.say("begun");
        if ctx.attempt() == 1 { Ok(ctx.sleep(PATIENCE)?) } else { Ok(()) }
    };
    let registry = || Registry::new().handle_with(&gate.clone().into(), handler);
    let group = world.spawn_on(store.clone(), registry(), quick(name));
    let id = world.enqueue(task(SECRET));
    assert_eq!(gate.heard(), "begun");
    store.on_every_call(|call| match call {
        StoreCall::Claim => Err(halt(InvariantTrigger::GuaranteedRowAbsent, "a lie").into()),
        _ => Ok(()),
    });
    halted(&group);
    let heir: Group = world.spawn(registry(), quick(&format!("{name}, heir")));
    world.clock.skip(Duration::from_secs(6));
    assert_eq!(facts(&world.ended(id)), (JobState::Succeeded, 2, 1));
    assert!(heir.wait_until_idle(PATIENCE));
    assert_eq!(heir.shutdown().halts, []);
}

/// Everything that an observer's pump logs, brought about once, and what a purge says that takes what an
/// observer has not seen.
fn observed(world: &World, name: &str) {
    let store = Intercept::new(Arc::clone(&world.store));
    let is_first = AtomicBool::new(true);
    store.on_observe(move |session, ask| {
        let mut observed = session.observe(ask)?;
        if let Observed::Held { reset, .. } = &mut observed
            && is_first.swap(false, Ordering::SeqCst)
        {
            *reset = Some("the database is another one".to_owned());
        }
        Ok(observed)
    });
    let gate = Gate::new();
    let slow = AtomicBool::new(true);
    let callback = {
        let gate = gate.clone();
        move |_: &_| {
            if slow.swap(false, Ordering::SeqCst) {
                gate.pass("slow");
            }
            Err(format!("it failed with {SECRET}").into())
        }
    };
    let options = quick_observer().timeout(Duration::from_millis(20));
    let observers = Observers::new().on_with(name, births(), options, callback);
    let pump = observe_on(world, store.clone(), observers);
    world.enqueue(task(SECRET));
    let told = |id| eventually("it is told", || !lines::of_observer(name, id).is_empty());
    told(1401);
    gate.open();

    let away = || StoreError::transient(std::io::Error::other("away")).with_session_lost();
    store.on_every_call(move |_| Err(away()));
    told(2106);
    store.clear();
    eventually("it answers again", || lines::of_observer(name, 2106).len() == 2);

    store.on_resolve(|session, _| {
        let store_time = session.now()?;
        Ok(Resolved::Stale { reason: CursorStale::Gone, store_time })
    });
    world.enqueue(task(SECRET));
    told(2103);
    store.on_observe(|_, _| Err(StoreError::new(std::fmt::Error)));
    told(2101);
    drop(pump);

    let lies = Intercept::new(Arc::clone(&world.store));
    lies.on_purge(|session, purge| Ok(session.purge(purge)?.unobserved(2)));
    let group = world.spawn_on(lies, Registry::new().handle(|_, _: Task| Ok(())), quick(name));
    eventually("it is told", || !lines::lines(name, 1402).is_empty());
    group.shutdown();
}

fn halted(group: &Group) {
    assert!(matches!(group.wait(), Stopped::Halted(_)));
}

#[test]
fn each_id_has_its_level_and_its_fields() {
    let mut seen: BTreeMap<u32, BTreeSet<(Level, Vec<String>)>> = BTreeMap::new();
    for line in told() {
        let mut fields: Vec<String> = line.fields.into_keys().collect();
        fields.retain(|field| field != "event_id");
        seen.entry(line.event_id).or_default().insert((line.level, fields));
    }
    let mut promised: BTreeMap<u32, BTreeSet<(Level, Vec<String>)>> = BTreeMap::new();
    for (id, level, fields) in CATALOGUE {
        let fields = fields.iter().map(|field| (*field).to_owned()).collect();
        promised.entry(*id).or_default().insert((*level, fields));
    }
    assert_eq!(seen, promised);
}

#[test]
fn the_documented_table_has_the_same_ids_and_levels() {
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/telemetry.rs");
    let text = std::fs::read_to_string(source).expect("the source is there");
    let rows = text.lines().filter_map(|line| line.strip_prefix("//! | "));
    let documented: BTreeSet<(u32, String)> = rows
        .filter_map(|row| {
            let (id, rest) = row.split_once(" | ")?;
            let (level, _) = rest.split_once([',', ' '])?;
            Some((id.parse().ok()?, level.to_uppercase()))
        })
        .collect();
    let pinned = CATALOGUE.iter().map(|(id, level, _)| (*id, level.to_string())).collect();
    assert_eq!(documented, pinned);
}

#[test]
fn a_halt_is_told_critical_and_in_the_promised_words() {
    told();
    for place in ["sqlite", "postgres"] {
        let group = format!("halts, {place}");
        let line = one(lines::lines(&group, 2001));
        assert_eq!(line.field("severity"), "critical");
        assert_eq!(line.field("invariant_trigger"), "GuaranteedRowAbsent");
        let promised = format!(
            "BackWave Worker Group '{group}' fail-stopped on an invariant violation (GuaranteedRowAbsent); \
             the group is halted."
        );
        assert!(line.message.starts_with(&promised), "{}", line.message);
        assert!(line.message.ends_with("a lie"), "{}", line.message);
    }
}

#[test]
fn what_degrades_is_told_in_the_promised_words() {
    let told = told();
    for place in ["sqlite", "postgres"] {
        let group = format!("refused, {place}");
        let line = one(lines::lines(&group, 2003));
        let begin = format!(
            "BackWave Worker Group '{group}' tripped invariant 'OutcomeFenceRejected': the outcome of attempt 1 of job "
        );
        assert!(line.message.starts_with(&begin), "{}", line.message);
        let end = " s more. The group keeps running, degraded.";
        assert!(line.message.ends_with(end), "{}", line.message);
    }
    let outside = one(told.into_iter().filter(|line| line.event_id == 1601).collect());
    assert_eq!(
        outside.message,
        "BackWave invariant 'ObserverCursorRegressed' tripped: it went back. The operation continues degraded."
    );
}

fn one(lines: Vec<Line>) -> Line {
    let [line] = <[Line; 1]>::try_from(lines).expect("one line");
    line
}

#[test]
fn nothing_secret_is_in_any_line() {
    let told = told();
    assert!(told.len() > 60, "{} lines", told.len());
    for line in told {
        let shown = format!("{line:?}");
        for secret in [SECRET, "S3cr3t", "postgres://", "host="] {
            assert!(!shown.contains(secret), "{secret}: {shown}");
        }
    }
}
