//! What a client accepts, what it refuses and how it says so, and jobs that stand or fall with a
//! transaction of the caller's own.

mod support;

use backwave::store::Rejection;
use backwave::{
    EnqueueError, JobId, JobState, NameFault, NewJob, Registry, RetryPolicy, Timestamp,
};
use std::time::Duration;
use support::world::{Task, World, facts, quick, task};

on_every_store!(
    a_payload_of_exactly_the_bound_is_kept_whole_and_one_byte_more_is_refused,
    what_is_refused_is_named_and_nothing_of_its_call_is_stored,
    a_name_of_exactly_the_bound_in_bytes_is_kept,
    raw_text_that_is_no_json_is_refused_before_any_store_sees_it,
    an_id_that_exists_is_left_as_it_is_and_told,
    a_job_is_kept_with_everything_it_was_given,
    work_that_is_due_later_is_not_run_earlier,
);

fn reason(refused: Result<impl std::fmt::Debug, EnqueueError>) -> (usize, Rejection) {
    match refused {
        Err(EnqueueError::Rejected { index, reason }) => (index, reason),
        other => panic!("not rejected: {other:?}"),
    }
}

fn a_payload_of_exactly_the_bound_is_kept_whole_and_one_byte_more_is_refused(world: &World) {
    const LIMIT: usize = 64 * 1024;
    // The quotes are two bytes; a NUL becomes an escape of six.
    let whole = format!("\0{}ü", "x".repeat(LIMIT - 2 - 6 - 2));
    let seen = whole.clone();
    let registry = Registry::new().handle(move |_, job: Task| {
        assert_eq!(job.0, seen);
        Ok(())
    });
    let _group = world.spawn(registry, quick("whole"));
    let record = world.ended(world.enqueue(task(&whole)));
    assert_eq!(facts(&record), (JobState::Succeeded, 1, 0));
    assert_eq!(record.payload.as_bytes().len(), LIMIT);
    let over = reason(world.client.enqueue(task(whole + "x")));
    assert_eq!(over, (0, Rejection::PayloadTooLarge { bytes: LIMIT + 1, limit: LIMIT }));
    assert_eq!(over.1.to_string(), "the payload has 65537 bytes and the limit is 65536");
}

fn what_is_refused_is_named_and_nothing_of_its_call_is_stored(world: &World) {
    let long = "é".repeat(65);
    let refusals = [
        (task("x").queue(""), "the queue name \"\" is refused: it is empty"),
        (NewJob::raw(" x", "{}"), "the wire name \" x\" is refused: "),
        (NewJob::raw(&long, "{}"), "the wire name "),
        (task("x").queue("a\0b"), "the queue name \"a\\0b\" is refused: "),
        (task("x").tag("t".repeat(129)), "the tag "),
        (task("x").version(0), "the payload version 0 is not between 1 and 2147483647"),
        (task("x").timeout(Duration::ZERO), "the time limit of an attempt is zero"),
    ];
    for (job, message) in refusals {
        let (index, reason) = reason(world.client.enqueue_many([task("good"), job]));
        assert_eq!(index, 1);
        assert!(reason.to_string().starts_with(message), "{reason}");
    }
    let too_many = (0..17).fold(task("x"), |job, tag| job.tag(tag.to_string()));
    let told = reason(world.client.enqueue(too_many));
    assert_eq!(told, (0, Rejection::TooManyTags { count: 17, limit: 16 }));
    let empty = reason(world.client.enqueue(task("x").queue("")));
    assert!(matches!(empty.1, Rejection::QueueName { fault: NameFault::Empty, .. }));
    assert_eq!(world.client.monitor().counts().expect("counted"), []);
    assert!(world.client.enqueue_many(Vec::<NewJob>::new()).expect("no job, no fault").is_empty());
}

fn a_name_of_exactly_the_bound_in_bytes_is_kept(world: &World) {
    let name = "é".repeat(64);
    let id = world.enqueue(NewJob::raw(&name, "{}").queue(&name).tag(&name));
    let record = world.job(id);
    assert_eq!((&record.wire_name, &record.queue, &record.tags[0]), (&name, &name, &name));
}

fn raw_text_that_is_no_json_is_refused_before_any_store_sees_it(world: &World) {
    for text in ["", "{", "{} {}", "nul", "\u{0}"] {
        let jobs = [task("good"), NewJob::raw("task", text)];
        let refused = world.client.enqueue_many(jobs);
        assert!(matches!(refused, Err(EnqueueError::Encode { index: 1, .. })), "{text:?}");
    }
    assert_eq!(world.client.monitor().counts().expect("counted"), []);
    let wide = r#"{"n":123456789012345678901234567890,"n":1.50,"z":"\u0000"}"#;
    let id = world.enqueue(NewJob::raw("task", wide));
    assert_eq!(world.job(id).payload.as_bytes(), wide.as_bytes(), "no digit, no order is changed");
}

fn an_id_that_exists_is_left_as_it_is_and_told(world: &World) {
    let id = JobId::new();
    let jobs = [task("first").id(id), task("second").id(id), task("third")];
    let answers = world.client.enqueue_many(jobs).expect("accepted");
    assert_eq!(answers.iter().map(|a| a.is_new).collect::<Vec<_>>(), [true, false, true]);
    let again = world.client.enqueue(task("fourth").id(id)).expect("accepted");
    assert_eq!((again.id, again.is_new), (id, false));
    assert_eq!(world.job(id).payload.as_bytes(), b"\"first\"");
    assert_eq!(world.count(JobState::Scheduled), 2);
}

fn a_job_is_kept_with_everything_it_was_given(world: &World) {
    let policy = RetryPolicy::new(7).fixed(Duration::from_millis(1_500)).jitter_percent(33);
    let due: Timestamp = "2100-02-28T12:34:56.789012Z".parse().expect("an instant");
    let job = task("kept").queue("q").tag("b").tag("a").version(2).retry(policy);
    let id = world.enqueue(job.timeout(Duration::from_micros(90_000_001)).due_at(due));
    let record = world.job(id);
    assert_eq!(facts(&record), (JobState::Scheduled, 0, 0));
    assert_eq!((record.id, record.wire_name.as_str(), record.queue.as_str()), (id, "task", "q"));
    assert_eq!((record.version, record.due_at, record.retry), (2, due, Some(policy)));
    assert_eq!(record.timeout, Some(Duration::from_micros(90_000_001)));
    assert_eq!(record.tags, ["b", "a"]);
    assert_eq!((record.owner, record.expiry, record.finished_at), (None, None, None));
}

fn work_that_is_due_later_is_not_run_earlier(world: &World) {
    let registry = Registry::new().handle(|ctx, _: Task| Ok(ctx.set_output(&ctx.due_at())?));
    let group = world.spawn(registry, quick("later"));
    let soon = world.enqueue(task("soon").delay(Duration::from_millis(30)));
    let later = world.enqueue(task("later").delay(Duration::from_secs(3600)));
    let record = world.ended(soon);
    assert!(record.finished_at.expect("ended") >= record.due_at);
    assert!(group.wait_until_idle(support::world::PATIENCE));
    assert_eq!(facts(&world.job(later)), (JobState::Scheduled, 0, 0));
    world.clock.skip(Duration::from_secs(3601));
    assert_eq!(facts(&world.ended(later)), (JobState::Succeeded, 1, 0));
}

#[cfg(feature = "sqlite")]
mod in_a_transaction {
    use super::support::world::{PATIENCE, Task, quick, task};
    use backwave::rusqlite::{Connection, TransactionBehavior};
    use backwave::{
        Client, EnqueueError, Error, Health, JobState, Registry, SqliteStore, spawn_group,
    };
    use std::sync::Arc;
    use std::time::Duration;
    use tempfile::TempDir;

    struct Shop {
        folder: TempDir,
        store: SqliteStore,
        client: Client,
        db: Connection,
    }

    fn shop() -> Shop {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let path = folder.path().join("shop.db");
        // With the longest wait that fits the shortest lease.
        let store = SqliteStore::builder(&path).busy_timeout(Duration::from_secs(1));
        let store = store.open().expect("the file opens");
        let db = Connection::open(&path).expect("the file opens");
        db.execute("CREATE TABLE orders (note TEXT)", ()).expect("made");
        Shop { client: Client::new(store.clone()), folder, store, db }
    }

    fn chain(error: &dyn std::error::Error) -> String {
        let source = error.source().map(|source| format!(": {}", chain(source)));
        format!("{error}{}", source.unwrap_or_default())
    }

    #[test]
    fn a_job_is_there_if_and_when_the_caller_commits() {
        let mut shop = shop();
        let tx = shop.db.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
        tx.execute("INSERT INTO orders VALUES ('lost')", ()).expect("written");
        let lost = shop.store.enqueue_in(&tx, task("lost")).expect("accepted");
        assert!(matches!(shop.client.monitor().job(lost.id), Err(Error::NotFound { .. })));
        tx.rollback().expect("rolled back");
        assert!(matches!(shop.client.monitor().job(lost.id), Err(Error::NotFound { .. })));
        assert_eq!(shop.client.monitor().counts().expect("counted"), []);

        let registry = Registry::new().handle(|_, _: Task| Ok(()));
        let health = Arc::new(Health::new());
        let _group = spawn_group(shop.store.clone(), registry, quick("shop"), health).expect("up");
        let tx = shop.db.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
        tx.execute("INSERT INTO orders VALUES ('kept')", ()).expect("written");
        let kept = shop.store.enqueue_in(&tx, task("kept")).expect("accepted");
        tx.commit().expect("committed");
        shop.client.wake("default");
        let record = shop.client.wait(kept.id, PATIENCE).expect("it ends");
        assert_eq!(record.state, JobState::Succeeded);
        let note: String = shop
            .db
            .query_row("SELECT group_concat(note) FROM orders", (), |row| row.get(0))
            .expect("read");
        assert_eq!(note, "kept");
    }

    #[test]
    fn a_refused_job_leaves_the_transaction_usable() {
        let mut shop = shop();
        let tx = shop.db.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
        let refused = shop.store.enqueue_in(&tx, task("x").queue(""));
        assert!(matches!(refused, Err(EnqueueError::Rejected { index: 0, .. })));
        let kept = shop.store.enqueue_in(&tx, task("x")).expect("accepted");
        tx.commit().expect("committed");
        assert_eq!(shop.client.monitor().job(kept.id).expect("there").state, JobState::Scheduled);
    }

    #[test]
    fn a_deferred_transaction_that_has_read_old_data_is_told_to_begin_immediate() {
        let mut shop = shop();
        let tx = shop.db.transaction().expect("begun");
        tx.query_row("SELECT count(*) FROM orders", (), |row| row.get::<_, i64>(0)).expect("read");
        // Somebody else commits in between.
        shop.client.enqueue(task("in between")).expect("accepted");
        let refused = shop.store.enqueue_in(&tx, task("x")).expect_err("the snapshot is old");
        assert!(chain(&refused).to_uppercase().contains("IMMEDIATE"), "{}", chain(&refused));
    }

    #[test]
    fn a_connection_on_another_file_is_refused_by_name() {
        let shop = shop();
        let mut other = self::shop();
        let tx = other.db.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
        let refused = shop.store.enqueue_in(&tx, task("x")).expect_err("another file");
        let told = chain(&refused);
        let (theirs, ours) = (other.folder.path(), shop.folder.path());
        assert!(told.contains(&*theirs.to_string_lossy()), "{told}");
        assert!(told.contains(&*ours.to_string_lossy()), "{told}");
        tx.commit().expect("nothing was broken");
        assert_eq!(other.client.monitor().counts().expect("counted"), []);
        assert_eq!(shop.client.monitor().counts().expect("counted"), []);
    }
}
