//! Rows that are odd: text with a NUL, a payload that is no text, a state that no release has written, numbers beyond
//! what half a machine word holds, rows that somebody has deleted. Those beside them go on.

mod support;

use backwave::invariant::InvariantTrigger;
use backwave::monitor::JobFilter;
use backwave::store::{Body, Bounds, Due, EnqueueAnswer, HistoryPolicy, JobRow, Store};
use backwave::{
    Client, EnqueueError, Error, Health, HealthStatus, JobContext, JobError, JobId, JobResult,
    JobState, NewJob, PostgresStore, Registry, Retention, SqliteStore, Timestamp, spawn_group,
};
use std::sync::Arc;
use std::time::Duration;
use support::gate::Gate;
use support::postgres::{config, connect, fresh_schema};
use support::tamper::Dialect;
use support::world::{PATIENCE, Task, World, eventually, facts, quick, task};

on_every_store!(
    what_handlers_say_with_a_nul_in_it_is_recorded_at_the_first_try,
    a_payload_that_is_no_text_at_the_head_of_the_queue_keeps_nobody_up,
);

fn finishing() -> Registry {
    Registry::new().handle(|_, _: Task| Ok(()))
}

fn with_nul(ctx: &JobContext, Task(what): Task) -> JobResult {
    match what.as_str() {
        "fails" => Err(JobError::discard("bad \0 byte")),
        "panics" => panic!("bad \0 byte"),
        "leaves" => Ok(ctx.set_output(&"\0")?),
        _ => Ok(()),
    }
}

fn what_handlers_say_with_a_nul_in_it_is_recorded_at_the_first_try(world: &World) {
    let odd = ["fails", "panics", "leaves"].map(|what| world.enqueue(task(what)));
    let healthy = world.client.enqueue_many((0..50).map(|_| task("healthy"))).expect("accepted");
    let odd_payload = world.enqueue(NewJob::raw("task", r#""a\u0000b""#));
    let _group = world.spawn(Registry::new().handle(with_nul), quick("nul").workers(8));
    let [failed, panicked, left] = odd.map(|id| world.ended(id));
    assert_eq!(facts(&failed), (JobState::DeadLettered, 1, 1));
    assert_eq!(failed.failure_detail.as_deref(), Some("bad \u{fffd} byte"));
    assert_eq!(facts(&panicked), (JobState::DeadLettered, 3, 3));
    let detail = panicked.failure_detail.unwrap_or_default();
    assert!(detail.ends_with("bad \u{fffd} byte"), "{detail}");
    assert_eq!(facts(&left), (JobState::Succeeded, 1, 0));
    assert_eq!(left.output::<String>().expect("set"), "\0");
    for id in healthy.iter().map(|job| job.id).chain([odd_payload]) {
        assert_eq!(facts(&world.ended(id)), (JobState::Succeeded, 1, 0));
    }
    assert_eq!(world.job(odd_payload).payload.as_bytes(), br#""a\u0000b""#);
    assert_eq!(world.health.check().status, HealthStatus::Healthy);
}

fn a_payload_that_is_no_text_at_the_head_of_the_queue_keeps_nobody_up(world: &World) {
    let mut bad = JobRow::new(JobId::new(), "task");
    bad.payload = Body::new(vec![0xff]);
    bad.due = Due::At(Timestamp::EPOCH);
    // Past the client, which would not have taken it.
    let mut session = world.store.open_session().expect("a session");
    let answer = session.enqueue(std::slice::from_ref(&bad)).expect("no fault");
    assert!(matches!(answer, EnqueueAnswer::Accepted { .. }), "{answer:?}");
    let good = world.client.enqueue_many((0..100).map(|_| task("good"))).expect("accepted");
    let _group = world.spawn(finishing(), quick("no text").workers(1));
    for job in &good {
        assert_eq!(facts(&world.ended(job.id)), (JobState::Succeeded, 1, 0));
    }
    assert_eq!(facts(&world.ended(bad.id)), (JobState::Quarantined, 1, 0));
    let found = world.client.monitor().find(JobFilter::new());
    let found: Vec<_> = found.collect::<Result<_, _>>().expect("each can be shown");
    assert_eq!(found.len(), 101);
    assert_eq!(world.job(bad.id).payload.as_bytes(), [0xff]);
    assert_eq!(world.health.check().status, HealthStatus::Healthy);
}

/// A state that no release has written, at the head of the queue.
fn a_state_that_is_none_is_told_to_who_looks_and_holds_no_other_job_up(dialect: Dialect) {
    let (world, hand) = dialect.world();
    let bad = world.enqueue(task("bad").due_at(Timestamp::EPOCH));
    let good = world.client.enqueue_many((0..100).map(|_| task("good"))).expect("accepted");
    hand.set(bad, "state = 77");
    let group = world.spawn(finishing(), quick("odd state").workers(1));
    for job in &good {
        assert_eq!(facts(&world.ended(job.id)), (JobState::Succeeded, 1, 0));
    }
    // A list goes state by state and tells of the others; a count and a look at the job itself tell of it by name.
    let monitor = world.client.monitor();
    let found = monitor.find(JobFilter::new()).collect::<Result<Vec<_>, _>>();
    assert_eq!(found.expect("the others can be read").len(), 100);
    for told in
        [monitor.job(bad).map(drop), monitor.explain(bad).map(drop), monitor.counts().map(drop)]
    {
        let Err(Error::Invariant(violation)) = told else { panic!("{told:?}") };
        assert_eq!(violation.trigger(), InvariantTrigger::UndefinedEnumValueStored);
    }
    assert_eq!(world.health.check().status, HealthStatus::Healthy, "no group has met it");
    assert_eq!(group.shutdown().halts, []);
}

#[test]
fn a_state_that_is_none_holds_no_other_job_up_on_sqlite() {
    a_state_that_is_none_is_told_to_who_looks_and_holds_no_other_job_up(Dialect::Sqlite);
}

#[test]
fn a_state_that_is_none_holds_no_other_job_up_on_postgres() {
    a_state_that_is_none_is_told_to_who_looks_and_holds_no_other_job_up(Dialect::Postgres);
}

/// A job that runs and holds the one slot of its queue is deleted by hand.
fn a_running_job_that_is_deleted_by_hand_gives_its_slot_back(dialect: Dialect) {
    let (world, hand) = dialect.world();
    world.client.operator("ada").set_concurrency_limit("default", Some(1)).expect("set");
    let gate = Gate::new();
    let registry = Registry::new().handle_with(
        &Arc::new(gate.clone()),
        |gate: &Gate, _: &JobContext, Task(what): Task| {
            if what == "deleted" {
                gate.pass(what);
            }
            Ok(())
        },
    );
    let group = world.spawn(registry, quick("slots"));
    let deleted = world.enqueue(task("deleted"));
    assert_eq!(gate.heard(), "deleted");
    let waiting = world.enqueue(task("waits"));
    assert_eq!(world.count(JobState::Leased), 1);
    hand.run(&format!("DELETE FROM {{jobs}} WHERE id = {}", hand.id(deleted)));
    assert_eq!(facts(&world.ended(waiting)), (JobState::Succeeded, 1, 0));
    gate.open();
    assert!(group.wait_until_idle(PATIENCE), "its outcome is refused and forgotten");
    assert_eq!(world.health.check().status, HealthStatus::Healthy);
    assert_eq!(group.shutdown().halts, []);
}

#[test]
fn a_running_job_that_is_deleted_gives_its_slot_back_on_sqlite() {
    a_running_job_that_is_deleted_by_hand_gives_its_slot_back(Dialect::Sqlite);
}

#[test]
fn a_running_job_that_is_deleted_gives_its_slot_back_on_postgres() {
    a_running_job_that_is_deleted_by_hand_gives_its_slot_back(Dialect::Postgres);
}

/// A parent that has not ended is deleted by hand: nobody will ever tell its dependent of its end.
fn a_dependent_whose_parent_is_deleted_by_hand_waits_and_can_be_called_off(dialect: Dialect) {
    let (world, hand) = dialect.world();
    let parent = world.enqueue(task("parent").delay(PATIENCE));
    let child = world.enqueue(task("child").parent(parent));
    let grandchild = world.enqueue(task("grandchild").parent(child));
    hand.run(&format!("DELETE FROM {{jobs}} WHERE id = {}", hand.id(parent)));
    let group = world.spawn(finishing(), quick("orphans"));
    let other = world.enqueue(task("other"));
    assert_eq!(facts(&world.ended(other)), (JobState::Succeeded, 1, 0));
    let why = world.client.monitor().explain(child).expect("read");
    assert_eq!(why.state, JobState::AwaitingParent, "{why}");
    assert!(why.to_string().contains("deleted"), "{why}");
    world.client.operator("ada").cancel(child).expect("cancelled");
    for id in [child, grandchild] {
        assert_eq!(world.ended(id).state, JobState::Cancelled);
    }
    assert_eq!(world.health.check().status, HealthStatus::Healthy);
    assert_eq!(group.shutdown().halts, []);
}

#[test]
fn a_dependent_whose_parent_is_deleted_waits_and_can_be_called_off_on_sqlite() {
    a_dependent_whose_parent_is_deleted_by_hand_waits_and_can_be_called_off(Dialect::Sqlite);
}

#[test]
fn a_dependent_whose_parent_is_deleted_waits_and_can_be_called_off_on_postgres() {
    a_dependent_whose_parent_is_deleted_by_hand_waits_and_can_be_called_off(Dialect::Postgres);
}

/// A host that notes every new job elsewhere, in a table that counts by itself.
fn a_trigger_that_writes_elsewhere_changes_no_answer(dialect: Dialect) {
    let (world, hand) = dialect.world();
    hand.run(match dialect {
        Dialect::Sqlite => {
            "CREATE TABLE noted (number INTEGER PRIMARY KEY AUTOINCREMENT, what TEXT); \
             INSERT INTO noted (number) VALUES (1000); \
             CREATE TRIGGER noting AFTER INSERT ON {jobs} BEGIN \
                 INSERT INTO noted (what) VALUES ('one'), ('two'), ('three'); END"
        }
        Dialect::Postgres => {
            "CREATE TABLE {schema}.noted (number bigserial PRIMARY KEY, what text); \
             CREATE FUNCTION {schema}.noting() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 INSERT INTO {schema}.noted (what) VALUES ('one'), ('two'), ('three'); RETURN NULL; END $$; \
             CREATE TRIGGER noting AFTER INSERT ON {jobs} FOR EACH ROW EXECUTE FUNCTION {schema}.noting()"
        }
    });
    // Short and long ones, which are stored apart; the second again in the middle and at the end.
    let text = |number: usize| {
        "x".repeat(if number.is_multiple_of(2) { 10 } else { 9_000 }) + &number.to_string()
    };
    let jobs: Vec<NewJob> = (0..8).map(|number| task(text(number))).collect();
    let (second, parent) = (jobs[1].job_id(), jobs[0].job_id());
    let again = || task("another payload").id(second);
    let expected: Vec<JobId> = jobs.iter().map(NewJob::job_id).collect();
    let (first, rest): (Vec<_>, Vec<_>) = jobs.into_iter().enumerate().partition(|(n, _)| *n < 4);
    let plain = |jobs: Vec<(usize, NewJob)>| jobs.into_iter().map(|(_, job)| job);
    let call = plain(first).chain([again()]).chain(plain(rest)).chain([again()]);
    let answers = world.client.enqueue_many(call.collect::<Vec<_>>()).expect("accepted");
    let told: Vec<JobId> = answers.iter().map(|answer| answer.id).collect();
    let in_order = [&expected[..4], &[second], &expected[4..], &[second]].concat();
    assert_eq!(told, in_order);
    let is_new: Vec<bool> = answers.iter().map(|answer| answer.is_new).collect();
    assert_eq!(is_new, [true, true, true, true, false, true, true, true, true, false]);
    for (number, id) in expected.iter().enumerate() {
        let payload = world.job(*id).payload;
        assert_eq!(payload.as_bytes(), format!("\"{}\"", text(number)).as_bytes());
    }
    let child = world.enqueue(task("child").parent(parent));
    assert_eq!(world.client.monitor().parents(child).expect("read")[0].id(), parent);
    let _group = world.spawn(finishing(), quick("noted"));
    for id in expected.into_iter().chain([child]) {
        assert_eq!(facts(&world.ended(id)), (JobState::Succeeded, 1, 0));
    }
}

#[test]
fn a_trigger_that_writes_elsewhere_changes_no_answer_on_sqlite() {
    a_trigger_that_writes_elsewhere_changes_no_answer(Dialect::Sqlite);
}

#[test]
fn a_trigger_that_writes_elsewhere_changes_no_answer_on_postgres() {
    a_trigger_that_writes_elsewhere_changes_no_answer(Dialect::Postgres);
}

/// Payloads beyond what a page, a notification or a first packet holds, by a store that allows them.
fn payloads_of_every_size_arrive(store: impl Store + Clone) {
    let sizes = [7_900, 8_000, 100_000, 5_000_000, 9_000_000];
    let client = Client::new(store.clone());
    let payload = |size: usize| format!("\"{}\"", "x".repeat(size - 2));
    let jobs = sizes.map(|size| NewJob::raw("task", payload(size)));
    let ids = client.enqueue_many(jobs).expect("accepted");
    let registry = Registry::new().handle(|ctx, Task(text)| Ok(ctx.set_output(&text.len())?));
    let options = quick("wide payloads").lease(Duration::from_secs(60));
    let group = spawn_group(store, registry, options, Arc::new(Health::new()));
    let group = group.expect("the group starts");
    for (job, size) in ids.iter().zip(sizes) {
        let record = client.wait(job.id, PATIENCE).expect("it runs");
        assert_eq!(record.output::<usize>().expect("set"), size - 2);
        assert_eq!(record.payload.as_bytes().len(), size);
    }
    assert_eq!(group.shutdown().halts, []);
    let refused = client.enqueue(NewJob::raw("task", payload(10_000_001)));
    assert!(matches!(refused, Err(EnqueueError::Rejected { .. })), "{refused:?}");
}

fn wide_bounds() -> Bounds {
    let mut bounds = Bounds::default();
    bounds.payload_bytes_max = 10_000_000;
    bounds
}

#[test]
fn payloads_of_every_size_arrive_on_sqlite() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let store = SqliteStore::builder(folder.path().join("jobs.db")).bounds(wide_bounds());
    payloads_of_every_size_arrive(store.open().expect("the file opens"));
}

#[test]
fn payloads_of_every_size_arrive_on_postgres() {
    let schema = fresh_schema();
    let store = PostgresStore::builder(config()).schema(schema.name()).bounds(wide_bounds());
    payloads_of_every_size_arrive(store.open().expect("it answers"));
}

/// Where numbers change their width: of 32 bits, and of what a float can tell apart.
const WIDE: [i64; 4] =
    [2_147_483_646, 4_294_967_296, 9_007_199_254_740_993, 1_000_000_000_000_000_000];

/// Everything that can be done to jobs, by a store whose log stands at `position`.
fn everything_works_from(store: &Arc<dyn Store>, position: i64) {
    let client = Client::new(Arc::clone(store));
    let (operator, monitor) = (client.operator("ada"), client.monitor());
    let health = Arc::new(Health::new());
    let registry = Registry::new().handle(|ctx, Task(what): Task| match what.as_str() {
        "fails" => Err(JobError::discard("it fails")),
        _ => Ok(ctx.set_output(&what)?),
    });
    let name = format!("from {position}");
    let options = quick(&name).lease(Duration::from_secs(60)).retention(Retention::forever());
    let group = spawn_group(Arc::clone(store), registry, options, Arc::clone(&health));
    let group = group.expect("the group starts");
    let enqueue = |job: NewJob| client.enqueue(job).expect("accepted").id;
    let ended = |id| client.wait(id, PATIENCE).expect("it ends").state;

    let parent = enqueue(task("parent"));
    let child = enqueue(task("child").parent(parent).tag("wide"));
    let bulk = client.enqueue_many((0..5).map(|_| task("bulk"))).expect("accepted");
    assert_eq!((ended(parent), ended(child)), (JobState::Succeeded, JobState::Succeeded));
    bulk.iter().for_each(|job| assert_eq!(ended(job.id), JobState::Succeeded));
    let failed = enqueue(task("fails"));
    assert_eq!(ended(failed), JobState::DeadLettered);
    operator.requeue(failed).expect("requeued");
    eventually("it has failed again", || {
        monitor.job(failed).is_ok_and(|job| (job.state, job.attempt) == (JobState::DeadLettered, 2))
    });
    let later = enqueue(task("later").delay(PATIENCE));
    operator.cancel(later).expect("cancelled");
    operator.pause("other").expect("paused");
    operator.resume("other").expect("resumed");

    let history = monitor.history(child).expect("read");
    assert!(history.len() >= 3, "{history:?}");
    assert!(history.iter().all(|step| step.position >= position.unsigned_abs()), "{history:?}");
    assert!(history.is_sorted_by_key(|step| step.position), "{history:?}");
    let audit = monitor.audit(&Default::default()).expect("read");
    assert!(audit.len() >= 4, "{audit:?}");
    let found = monitor.find(JobFilter::new().tag("wide")).filter(Result::is_ok).count();
    assert!(found >= 1);
    assert!(monitor.counts().expect("counted").iter().any(|count| count.count > 0));
    assert_eq!(health.check().status, HealthStatus::Healthy, "{}", health.check());
    assert_eq!(group.shutdown().halts, []);

    // And everything that has ended is taken away again.
    let nothing = Retention::forever().succeeded(Duration::ZERO).dead_lettered(Duration::ZERO);
    let options = quick(&name).lease(Duration::from_secs(60)).retention(nothing);
    let group = spawn_group(Arc::clone(store), finishing(), options, health).expect("it starts");
    eventually("it is purged", || monitor.job(parent).is_err() && monitor.job(failed).is_err());
    assert_eq!(group.shutdown().halts, []);
}

#[test]
fn numbers_of_any_width_are_given_out_on_sqlite() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("jobs.db");
    let store = SqliteStore::builder(&path).history(HistoryPolicy::WithFailureDetail);
    let store: Arc<dyn Store> = Arc::new(store.open().expect("the file opens"));
    let client = Client::new(Arc::clone(&store));
    let host = rusqlite::Connection::open(&path).expect("a connection of the test's own");
    // A job at the last address there is: the engine then looks for free ones.
    for position in WIDE.into_iter().chain([i64::MAX - 1_000_000]) {
        let address = if position > WIDE[3] { i64::MAX } else { position };
        let marker = client.enqueue(task("marker").delay(Duration::from_secs(3600)));
        let id = marker.expect("accepted").id.to_string().replace('-', "");
        host.execute_batch(&format!(
            "UPDATE backwave_jobs SET seq = {address} WHERE id = x'{id}'; \
             DELETE FROM sqlite_sequence; \
             INSERT INTO sqlite_sequence \
             VALUES ('backwave_transitions', {position}), ('backwave_audit', {position})"
        ))
        .expect("set");
        everything_works_from(&store, position);
        let seq = "SELECT min(seq) FROM sqlite_sequence WHERE name IN ('backwave_transitions', 'backwave_audit')";
        let seq: i64 = host.query_row(seq, [], |row| row.get(0)).expect("read");
        assert!(seq > position, "{seq}");
    }
}

#[test]
fn numbers_of_any_width_are_given_out_on_postgres() {
    let schema = fresh_schema();
    let store = PostgresStore::builder(config()).schema(schema.name());
    let store = store.history(HistoryPolicy::WithFailureDetail).open().expect("it answers");
    let store: Arc<dyn Store> = Arc::new(store);
    let mut db = connect();
    for position in WIDE.into_iter().chain([i64::MAX - 1_000_000]) {
        for sequence in ["transitions_position_seq", "audit_position_seq"] {
            let name = schema.name();
            let sql = format!("ALTER SEQUENCE \"{name}\".{sequence} RESTART WITH {position}");
            db.batch_execute(&sql).expect("set");
        }
        everything_works_from(&store, position);
    }
}
