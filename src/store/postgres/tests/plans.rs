//! The plans that the functions run, told by the server itself while they run: indexes only, whatever the
//! statistics say.

use super::*;
use crate::JobState;
use crate::store::postgres::connect::Connector;
use crate::store::postgres::session::PostgresSession;
use crate::store::{
    AuditFilter, BulkChange, HistoryPolicy, JobFilter, Jobs, MintRow, Operations, Page, Purge,
    PurgeCursor, QueueChange, Reads, Retention, ScheduleChange, ScheduleRow, Scheduling, Upkeep,
};
use std::sync::Mutex;

/// A store whose sessions tell the plan of every statement.
pub(super) struct Told {
    pub(super) place: Place,
    pub(super) plans: Arc<Mutex<Vec<String>>>,
}

impl Told {
    pub(super) fn new() -> Self {
        let place = Place::built(|builder| builder.history(HistoryPolicy::WithFailureDetail));
        // Nobody corrects the statistics that a test has made.
        let text = "ALTER TABLE {schema}.jobs SET (autovacuum_enabled = false); \
            ALTER TABLE {schema}.gates SET (autovacuum_enabled = false); \
            ALTER TABLE {schema}.lineage SET (autovacuum_enabled = false); \
            ALTER TABLE {schema}.transitions SET (autovacuum_enabled = false); \
            ALTER TABLE {schema}.schedules SET (autovacuum_enabled = false); \
            INSERT INTO {schema}.transitions (at, job, attempt, to_state, hand) \
            SELECT now(), '01977420-dc00-7000-8000-000000000001', 0, 0, 5 FROM generate_series(1, 5000); \
            ANALYZE {schema}.transitions";
        raw().batch_execute(&place.store.inner.schema.fill(text)).unwrap();
        Self { place, plans: Arc::default() }
    }

    pub(super) fn session(&self) -> PostgresSession {
        let plans = Arc::clone(&self.plans);
        let mut config = config();
        config
            .notice_callback(move |notice| plans.lock().unwrap().push(notice.message().to_owned()));
        let clock = Arc::clone(&self.place.clock);
        let store = PostgresStore::builder(config)
            .schema(&self.place.schema)
            .clock(move || Timestamp::from_micros(clock.load(Ordering::SeqCst)))
            .history(HistoryPolicy::WithFailureDetail)
            .open()
            .unwrap();
        assert!(matches!(store.inner.connector, Connector::Config { .. }));
        let mut session = PostgresSession::open(Arc::clone(&store.inner)).unwrap();
        session.run_raw(
            "LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; \
             SET auto_explain.log_nested_statements = on; SET auto_explain.log_level = notice; \
             SET client_min_messages = notice",
        );
        session
    }

    /// What has been run since the last call, after a look at each plan.
    pub(super) fn checked(&self, what: &str, filled: &str) -> String {
        let plans = std::mem::take(&mut *self.plans.lock().unwrap());
        assert!(!plans.is_empty(), "{what}: no plan was told");
        for plan in &plans {
            let lines: Vec<&str> = plan.lines().collect();
            for (index, line) in lines.iter().enumerate() {
                let Some(scan) = line.split("->  ").last().filter(|line| line.contains(" on "))
                else {
                    continue;
                };
                // The sums have no index, nor has the one row of the version; observers are a handful.
                let small =
                    [" on ended_deltas", " on schema_version", " on observers", " on observed"];
                let is_small = small.iter().any(|table| scan.contains(table));
                assert!(is_small || !scan.contains("Seq Scan"), "{what}, {filled}: {plan}");
                // What grows with all that ever was is entered at a place, and never walked from its beginning.
                let grows = ["jobs_pkey", "jobs_ended", "transitions_", "gates_", "lineage_"];
                let index_of = |scan: &str| scan.split(" using ").nth(1).map(str::to_owned);
                let grown =
                    index_of(scan).is_some_and(|name| grows.iter().any(|g| name.starts_with(g)));
                let bounded = lines.get(index + 1).is_some_and(|next| next.contains("Index Cond"));
                assert!(!grown || bounded, "{what}, {filled}: {plan}");
            }
        }
        plans.join("\n")
    }
}

/// Jobs of which each state has many, or which have a state that the statistics know nothing of.
const FILLINGS: [(&str, &str); 3] = [
    ("known to be empty", ""),
    ("known to be due, all of it", "UPDATE {schema}.jobs SET queue = 'q'; ANALYZE {schema}.jobs"),
    (
        "known to be dead, all of it",
        "UPDATE {schema}.jobs SET state = 4, finished_at = due_at; ANALYZE {schema}.jobs; \
         UPDATE {schema}.jobs SET state = 0, finished_at = NULL",
    ),
];

#[test]
fn hot_calls_and_maintenance_use_indexes_whatever_the_statistics_say() {
    for (filled, lie) in FILLINGS {
        let told = Told::new();
        let mut session = told.session();
        let schema = &told.place.store.inner.schema;
        let mut client = raw();
        client
            .batch_execute(&schema.fill("ANALYZE {schema}.jobs; ANALYZE {schema}.gates"))
            .unwrap();
        let rows: Vec<_> = (0..8000).map(|i| row("q", i - 20_000)).collect();
        add(&mut session, &rows);
        client.batch_execute(&schema.fill(lie)).unwrap();
        session.change_queue("ada", "q", QueueChange::Limit(Some(500))).unwrap();
        told.checked("enqueue and change of a queue", filled);

        let me = WorkerId::new();
        let jobs = take(&mut session, me, "q", 100).jobs;
        let plans = told.checked("claim", filled);
        assert!(plans.contains("jobs_due") && plans.contains("jobs_leased_queue"), "{plans}");
        add(&mut session, &[child_of(&[jobs[0].id]), child_of(&[jobs[0].id, jobs[1].id])]);
        told.checked("enqueue of dependents", filled);
        let ends: Vec<_> =
            jobs.iter().skip(1).map(|job| outcome(job, me, Outcome::Succeeded)).collect();
        session.report(&ends).unwrap();
        session.report(&[outcome(&jobs[0], me, Outcome::DeadLettered)]).unwrap();
        told.checked("report", filled);
        let held = take(&mut session, me, "q", 9).jobs;
        session.hand_back(me, &[lease_of(&held[0])]).unwrap();
        session.renew(me, &[lease_of(&held[1])], LEASE).unwrap();
        session.revoke("ada", me, 2).unwrap();
        told.checked("leases", filled);
        told.place.advance(LEASE * 3);
        assert_eq!(session.find_lapsed(&["q".to_owned()], 5).unwrap().jobs.len(), 5);
        let plans = told.checked("find_lapsed", filled);
        assert!(plans.contains("jobs_leased"), "{plans}");
        session.counts().unwrap();
        told.checked("counts", filled);
        let retention = Retention {
            succeeded: Some(Duration::ZERO),
            transitions_per_job: 1,
            ..Retention::default()
        };
        session.change_queue("ada", "q", QueueChange::Pause).unwrap();
        assert!(take(&mut session, me, "q", 3).withheld);
        told.checked("claim of a paused queue", filled);
        let purged = session.purge(&Purge::new(retention, 20)).unwrap();
        assert_eq!((purged.jobs, purged.more), (19, true), "one of them is a parent");
        session.purge(&Purge::new(retention, 20).starting_at(purged.cursor)).unwrap();
        let plans = told.checked("purge", filled);
        assert!(plans.contains("jobs_ended") && plans.contains("transitions_job"), "{plans}");
        assert_ne!(purged.cursor, PurgeCursor::default());
        session.work_off_latches(100).unwrap();
        session.request_cancel("ada", rows[7000].id).unwrap();
        session.requeue("ada", jobs[0].id).unwrap();
        told.checked("operators", filled);
        session.history(jobs[0].id).unwrap();
        let plans = told.checked("history", filled);
        assert!(
            plans.contains("transitions_job") && !plans.contains("transitions_pkey"),
            "{plans}"
        );
        session.audit(&AuditFilter::default()).unwrap();
        session.parents(rows[0].id).unwrap();
        session.ancestor(rows[0].id, rows[1].id).unwrap();
        told.checked("reads", filled);
    }
}

/// Schedules that the statistics know to be few, or to be due, all of them.
#[test]
fn schedules_are_found_by_their_index_and_their_jobs_by_id() {
    for lie in [
        "",
        "ANALYZE {schema}.schedules",
        "UPDATE {schema}.schedules SET look_at = NULL; \
        ANALYZE {schema}.schedules; UPDATE {schema}.schedules SET look_at = cursor",
    ] {
        let told = Told::new();
        let mut session = told.session();
        let schema = &told.place.store.inner.schema;
        raw().batch_execute(&schema.fill("ANALYZE {schema}.schedules, {schema}.jobs")).unwrap();
        assert!(session.due_schedules(200).unwrap().due.is_empty());
        let plans = told.checked("look at nothing", lie);
        assert_eq!(plans.matches("schedules_due").count(), 2, "{plans}");
        let row = |number: usize| {
            let (name, owner) = (format!("s{number:05}"), "shop".to_owned());
            ScheduleRow::new(name, owner, "{}".to_owned(), "{}".to_owned())
        };
        let rows: Vec<_> = (0..5000).map(row).collect();
        session.declare("shop", &rows, true).unwrap();
        let jobs: Vec<_> = (0..5000).map(|i| super::row("q", i - 20_000)).collect();
        add(&mut session, &jobs);
        raw().batch_execute(&schema.fill(lie)).unwrap();
        session.declare("shop", &rows[..9], false).unwrap();
        told.checked("declaration", lie);
        let due = session.due_schedules(50).unwrap();
        assert_eq!((due.due.len(), due.next_at), (50, Some(START)));
        let plans = told.checked("look", lie);
        assert!(plans.contains("schedules_due") && !plans.contains("schedules_pkey"), "{plans}");
        for no_overlap in [false, true] {
            let decided = due.due.iter().map(|record| {
                let name = record.row.name.clone();
                let revision = record.revision + u64::from(no_overlap);
                let mut mint = MintRow::new(name, revision, START, Some(at(60)));
                mint.job = Some(Box::new(super::row("q", -1)));
                mint.no_overlap = no_overlap;
                mint
            });
            session.mint(&decided.collect::<Vec<_>>()).unwrap();
            let plans = told.checked("mint", lie);
            assert!(plans.contains("schedules_pkey"), "{plans}");
            assert_eq!(plans.contains("SELECT j.id, j.state < 3"), no_overlap, "{plans}");
        }
        session.change_schedule("ada", "s00000", &ScheduleChange::Pause).unwrap();
        session.change_schedule("ada", "s00000", &ScheduleChange::Remove).unwrap();
        told.checked("operators", lie);
    }
}

#[test]
fn a_few_dead_letters_are_not_looked_for_among_all_that_ended() {
    for (filled, lie) in FILLINGS {
        let told = Told::new();
        let mut session = told.session();
        let schema = &told.place.store.inner.schema;
        let rows: Vec<_> = (0..5000).map(|i| row("q", i - 20_000)).collect();
        add(&mut session, &rows);
        let mut client = raw();
        client.batch_execute(&schema.fill(lie)).unwrap();
        let end = "UPDATE {schema}.jobs SET state = 3, finished_at = due_at; \
            UPDATE {schema}.jobs SET state = 4 WHERE id = $1";
        let end = end.replace("$1", &format!("'{}'", rows[4000].id));
        client.batch_execute(&schema.fill(&end)).unwrap();
        told.plans.lock().unwrap().clear();
        let dead = JobFilter::new().state(JobState::DeadLettered).queue("q");
        for page in [Page::new(10), Page::new(10).newest_first()] {
            let found = session.find(&dead, &page).unwrap();
            assert_eq!(found.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [rows[4000].id]);
            let plans = told.checked("find", filled);
            assert!(plans.contains("jobs_rare"), "{filled}: {plans}");
        }
        let requeue = BulkChange::Requeue;
        assert_eq!(session.change_matching("ada", requeue, &dead, None, 9).unwrap().changed, 1);
        let plans = told.checked("bulk requeue", filled);
        assert!(plans.contains("jobs_rare"), "{filled}: {plans}");
    }
}

#[test]
fn claims_among_keys_use_indexes_whatever_the_statistics_say() {
    let keyed =
        |key: &str, seconds| JobRow { concurrency_key: Some(key.to_owned()), ..row("q", seconds) };
    for (filled, lie) in FILLINGS {
        let told = Told::new();
        let mut session = told.session();
        let schema = &told.place.store.inner.schema;
        let mut client = raw();
        client.batch_execute(&schema.fill("ANALYZE {schema}.jobs")).unwrap();
        let mut rows: Vec<_> = (0..5000).map(|i| keyed("a", i - 20_000)).collect();
        rows.extend((0..300).map(|i| keyed(&format!("b{i}"), i - 9_000)));
        rows.extend((0..2000).map(|i| row("q", i - 8_000)));
        add(&mut session, &rows);
        client.batch_execute(&schema.fill(lie)).unwrap();
        told.plans.lock().unwrap().clear();

        let me = WorkerId::new();
        let jobs = take(&mut session, me, "q", 50).jobs;
        assert_eq!(jobs.len(), 50);
        let plans = told.checked("claim", filled);
        for index in ["jobs_due", "jobs_keyed_due", "jobs_keyed ", "jobs_key_slots"] {
            assert!(plans.contains(&format!("using {index}")), "{index}, {filled}: {plans}");
        }
        let filter = JobFilter::new().queue("q").concurrency_key("a").state(JobState::Leased);
        assert_eq!(session.find(&filter, &Page::new(9)).unwrap().jobs.len(), 1);
        let plans = told.checked("find by concurrency key", filled);
        assert!(plans.contains("jobs_key_slots"), "{filled}: {plans}");
        session.counts().unwrap();
        told.checked("counts", filled);
    }
}

#[test]
fn unique_keys_are_looked_up_by_their_index_whatever_the_statistics_say() {
    let unique = |number: i64| JobRow {
        unique_key: Some(format!("k{number}")),
        ..row("q", number - 20_000)
    };
    for (filled, lie) in FILLINGS {
        let told = Told::new();
        let mut session = told.session();
        let schema = &told.place.store.inner.schema;
        let mut client = raw();
        client.batch_execute(&schema.fill("ANALYZE {schema}.jobs")).unwrap();
        let rows: Vec<_> = (0..5000).map(unique).collect();
        add(&mut session, &rows);
        client.batch_execute(&schema.fill(lie)).unwrap();
        told.plans.lock().unwrap().clear();
        let again: Vec<_> = (0..50).map(unique).collect();
        session.enqueue(&again).unwrap();
        let plans = told.checked("enqueue of held keys", filled);
        assert!(plans.contains("jobs_unique_key"), "{filled}: {plans}");
        let filter = JobFilter::new().unique_key("k7");
        assert_eq!(session.find(&filter, &Page::new(9)).unwrap().jobs.len(), 1);
        let plans = told.checked("find by unique key", filled);
        assert!(plans.contains("jobs_unique_key"), "{filled}: {plans}");
        let me = WorkerId::new();
        let job = take(&mut session, me, "q", 1).jobs.remove(0);
        session.report(&[outcome(&job, me, Outcome::DeadLettered)]).unwrap();
        add(&mut session, &[unique(0)]);
        told.plans.lock().unwrap().clear();
        session.requeue("ada", job.id).unwrap();
        session.change_matching("ada", BulkChange::Requeue, &JobFilter::new(), None, 9).unwrap();
        let plans = told.checked("requeue of a held key", filled);
        assert!(plans.contains("jobs_unique_key"), "{filled}: {plans}");
    }
}
