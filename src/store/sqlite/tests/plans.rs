//! Which index serves which statement. A plan that goes wrong shows only in a file of some size, as
//! slowness, hence this.

use super::*;
use crate::store::sqlite::{
    births, claim, find, keyed, latch, lease, locked, observing, purge, queues, reads, records,
    report, scheduling, work,
};
use crate::store::{AuditFilter, BulkChange, JobFilter, Page};

/// Some thousand jobs; settled, with their statistics.
fn filled(settled: bool) -> Bench {
    let mut bench = Bench::new();
    let rows: Vec<_> = (0..2000).map(|_| job()).collect();
    bench.enqueue_all(&rows);
    if settled {
        let jobs = bench.claim(1500);
        let outcomes: Vec<_> =
            jobs[..1000].iter().map(|job| bench.outcome(job, Outcome::Succeeded)).collect();
        bench.session.report(&outcomes).expect("no fault");
        bench.host().execute_batch("ANALYZE").expect("statistics");
    }
    bench
}

/// The plan of a statement, one line per step.
fn plan(bench: &Bench, sql: &str) -> Vec<String> {
    let host = bench.host();
    let mut statement = host.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect("prepared");
    let unbound = std::iter::repeat_n(rusqlite::types::Null, statement.parameter_count());
    let unbound: Vec<_> = unbound.collect();
    let lines = statement.query_map(rusqlite::params_from_iter(unbound), |row| row.get(3));
    let lines = lines.expect("a plan").collect::<Result<Vec<String>, _>>().expect("lines");
    lines.into_iter().map(|line| line.replace("main.", "")).collect()
}

#[test]
fn a_claim_walks_the_index_of_waiting_jobs_and_sorts_nothing() {
    for settled in [false, true] {
        let bench = filled(settled);
        for sql in [claim::WALK, claim::LOOK_AHEAD] {
            let [step] = plan(&bench, sql).try_into().expect("one step");
            let index = "SEARCH backwave_jobs USING INDEX backwave_jobs_due \
                         (queue=? AND (due_at,id)>(?,?))";
            assert_eq!(step, index);
        }
    }
}

#[test]
fn each_other_statement_finds_its_rows_by_an_index() {
    let jobs_by_id = "SEARCH j USING INDEX sqlite_autoindex_backwave_jobs_1 (id=?)";
    let jobs_by_seq = "SEARCH backwave_jobs USING INTEGER PRIMARY KEY (rowid=?)";
    let leased = "SEARCH backwave_jobs USING COVERING INDEX backwave_jobs_leased (queue=?)";
    let lapsed = "SEARCH backwave_jobs USING INDEX backwave_jobs_leased (queue=? AND expiry<?)";
    let by_owner = "SEARCH backwave_jobs USING INDEX backwave_jobs_owner (owner=?)";
    let ended = "SEARCH backwave_jobs USING COVERING INDEX backwave_jobs_ended \
                 (state=? AND (finished_at,id)>(?,?) AND finished_at<?)";
    let both =
        "SEARCH backwave_gates USING COVERING INDEX backwave_gates_child (child=? AND parent=?)";
    let gates = "SEARCH g USING PRIMARY KEY (parent=?)";
    let transitions = "SEARCH t USING INDEX backwave_transitions_job (job=? AND rowid>?)";
    let cases: &[(&str, &[&str])] = &[
        (locked::READ, &[jobs_by_id]),
        (lease::LAPSED, &[lapsed]),
        (report::SETTLE, &["SEARCH backwave_jobs USING INTEGER PRIMARY KEY (rowid=?)"]),
        (claim::LEASE, &[jobs_by_seq]),
        (lease::HELD, &[by_owner]),
        (lease::FIRST_HELD, &[by_owner]),
        (lease::RELEASE, &[jobs_by_seq]),
        (queues::PLANNED, &["SEARCH q USING PRIMARY KEY (queue=?)"]),
        (queues::ROOM, &[leased, "SEARCH backwave_queues USING PRIMARY KEY (queue=?)"]),
        (latch::GATES, &[gates, jobs_by_id]),
        (latch::OPEN_GATES, &[both]),
        (
            latch::DROP_GATES,
            &["SEARCH backwave_gates USING COVERING INDEX backwave_gates_child (child=?)"],
        ),
        (latch::BACKLOG, &[jobs_by_id]),
        (purge::OLD_ENOUGH, &[ended]),
        (purge::CHILDLESS, &["SEARCH l USING COVERING INDEX backwave_lineage_parent (parent=?)"]),
        (purge::DELETE, &[jobs_by_seq]),
        (purge::DROP_LINEAGE, &["SEARCH backwave_lineage USING PRIMARY KEY (child=?)"]),
        (
            records::HISTORY,
            &["SEARCH backwave_transitions USING INDEX backwave_transitions_job (job=?)"],
        ),
        (
            observing::PAGE,
            &["SEARCH t USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)", jobs_by_id],
        ),
        (observing::BEYOND, &["SEARCH backwave_transitions USING INTEGER PRIMARY KEY (rowid>?)"]),
        (observing::RECORDS, &["SEARCH t USING INTEGER PRIMARY KEY (rowid>?)"]),
        (observing::WANTED, &["SEARCH p USING INDEX backwave_parked_wanted (observer=?)"]),
        (observing::PARKED, &["SEARCH p USING PRIMARY KEY (observer=? AND position>?)"]),
        (purge::AWAITED, &[transitions]),
        (
            purge::COUNT_BEYOND,
            &["SEARCH t USING COVERING INDEX backwave_transitions_job (job=? AND rowid>?)"],
        ),
        (records::PARENTS, &["SEARCH l USING PRIMARY KEY (child=?)", jobs_by_id]),
        (
            scheduling::BY_NAME,
            &[
                "SEARCH backwave_schedules USING INDEX sqlite_autoindex_backwave_schedules_1 (name=?)",
            ],
        ),
        (
            scheduling::DUE,
            &[
                "SEARCH backwave_schedules USING INDEX backwave_schedules_due (look_at>? AND look_at<?)",
            ],
        ),
        (
            scheduling::NEXT,
            &["SEARCH backwave_schedules USING COVERING INDEX backwave_schedules_due (look_at>?)"],
        ),
        (records::ANCESTOR, &["SEARCH l USING PRIMARY KEY (child=?)", jobs_by_id]),
    ];
    let scans =
        ["SCAN backwave_", "SCAN j ", "SCAN g ", "SCAN l ", "SCAN t ", "SCAN n ", "SCAN q "];
    let mut wrong = String::new();
    for settled in [false, true] {
        let bench = filled(settled);
        for (sql, expected) in cases {
            let steps = plan(&bench, sql);
            let has = |step: &&&str| steps.iter().any(|found| found.starts_with(**step));
            let is_scan = |found: &String| scans.iter().any(|scan| found.starts_with(scan));
            if !expected.iter().all(|step| has(&step)) || steps.iter().any(is_scan) {
                wrong.push_str(&format!("\n{sql}\nexpected {expected:#?}\nfound {steps:#?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn a_write_looks_at_what_there_is_by_one_row_of_each_small_table() {
    let steps = plan(&filled(true), work::LOOK);
    for table in ["meta", "gates", "queues", "observers"] {
        assert!(steps.iter().any(|step| step.contains(&format!("backwave_{table}"))), "{steps:#?}");
    }
    assert!(!steps.iter().any(|step| step.contains("backwave_jobs")), "{steps:#?}");
}

#[test]
fn a_look_at_schedules_sorts_nothing() {
    for settled in [false, true] {
        let steps = plan(&filled(settled), scheduling::DUE);
        assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{steps:#?}");
    }
}

#[test]
fn a_purge_sorts_nothing() {
    for settled in [false, true] {
        let steps = plan(&filled(settled), purge::OLD_ENOUGH);
        assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{steps:#?}");
    }
}

#[test]
fn an_observer_walks_the_log_from_its_cursor_and_sorts_nothing() {
    for settled in [false, true] {
        for sql in [observing::PAGE, observing::WANTED, observing::PARKED] {
            let steps = plan(&filled(settled), sql);
            assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{steps:#?}");
        }
    }
}

#[test]
fn trimming_walks_the_log_from_its_cursor_and_each_job_by_its_index() {
    for settled in [false, true] {
        let bench = filled(settled);
        for sql in [purge::TRIM_PAGE, purge::TRIM] {
            let steps = plan(&bench, sql);
            assert!(
                !steps.iter().any(|step| step.contains("SCAN backwave_transitions")),
                "{steps:#?}"
            );
            assert!(!steps.iter().any(|step| step.starts_with("SCAN t ")), "{steps:#?}");
        }
    }
}

#[test]
fn counting_reads_indexes_only_and_never_what_has_ended() {
    for settled in [false, true] {
        let steps = plan(&filled(settled), reads::COUNTS);
        let jobs: Vec<_> = steps.iter().filter(|step| step.contains("backwave_jobs")).collect();
        assert_eq!(jobs.len(), 5, "{steps:#?}");
        assert!(jobs.iter().all(|step| step.contains("USING COVERING INDEX")), "{steps:#?}");
        // What has ended is searched for a state that nobody knows, and not walked.
        let ended = "SEARCH backwave_jobs USING COVERING INDEX backwave_jobs_ended (state>?)";
        assert!(jobs.iter().any(|step| *step == ended), "{steps:#?}");
    }
}

#[test]
fn jobs_of_a_state_are_found_by_its_own_index() {
    let all = JobFilter::new;
    let now = Timestamp::EPOCH;
    let cases = [
        (all().state(JobState::Scheduled).queue("q"), "backwave_jobs_due (queue=?)"),
        (all().state(JobState::AwaitingParent), "backwave_jobs_await"),
        (all().state(JobState::Leased).queue("q"), "backwave_jobs_leased (queue=?)"),
        (all().state(JobState::DeadLettered), "backwave_jobs_failed (state=? AND id>?)"),
        (all().state(JobState::Quarantined).tag("t"), "backwave_jobs_failed (state=? AND id>?)"),
        (all().state(JobState::Cancelled), "backwave_jobs_ended (state=?)"),
        (
            all().state(JobState::Succeeded).finished_from(now),
            "backwave_jobs_ended (state=? AND finished_at>?)",
        ),
        (all().finished_before(now), "backwave_jobs_ended (state=? AND finished_at<?)"),
        (all().state(JobState::Succeeded), "sqlite_autoindex_backwave_jobs_1 (id>?)"),
        (all(), "sqlite_autoindex_backwave_jobs_1 (id>?)"),
    ];
    for settled in [false, true] {
        let bench = filled(settled);
        for (filter, index) in &cases {
            let (query, _) = find::page(filter, &Page::new(10)).expect("something can match");
            let steps = plan(&bench, &query.sql);
            assert!(steps.iter().any(|step| step.ends_with(index)), "{filter:?}\n{steps:#?}");
            let scanned = |step: &String| step.starts_with("SCAN j ") && !step.contains("USING");
            assert!(!steps.iter().any(scanned), "{filter:?}\n{steps:#?}");
        }
        let cancel = find::changeable(BulkChange::Cancel, &all(), None, 10).expect("some can");
        let steps = plan(&bench, &cancel.sql);
        assert!(!steps.iter().any(|step| step.contains("backwave_jobs_ended")), "{steps:#?}");
        assert!(!steps.iter().any(|step| step.starts_with("SCAN j ") && !step.contains("USING")));
    }
}

#[test]
fn what_operators_did_is_found_by_job_queue_and_actor() {
    let bench = filled(true);
    let all = AuditFilter::default;
    let cases = [
        (AuditFilter { job: Some(JobId::new()), ..all() }, "backwave_audit_job (job=?)"),
        (AuditFilter { queue: Some("q".to_owned()), ..all() }, "backwave_audit_queue (queue=?)"),
        (AuditFilter { actor: Some("a".to_owned()), ..all() }, "backwave_audit_actor (actor=?)"),
        (AuditFilter { before: Some(9), ..all() }, "INTEGER PRIMARY KEY (rowid<?)"),
    ];
    for (filter, index) in cases {
        let steps = plan(&bench, &records::audit_query(&filter).0);
        assert!(steps.iter().any(|step| step.ends_with(index)), "{filter:?}\n{steps:#?}");
        assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{steps:#?}");
    }
}

#[test]
fn keys_are_looked_up_by_their_indexes() {
    let due = "SEARCH backwave_jobs USING INDEX backwave_jobs_keyed_due";
    let keyed = "SEARCH backwave_jobs USING INDEX backwave_jobs_keyed";
    let table = [
        (keyed::WALK, format!("{due} (queue=? AND due_at<?)")),
        (keyed::LOOK_AHEAD, format!("{due} (queue=? AND (due_at,id)>(?,?))")),
        (
            keyed::NEXT_KEY,
            "SEARCH backwave_jobs USING COVERING INDEX backwave_jobs_keyed \
             (queue=? AND concurrency_key>?)"
                .to_owned(),
        ),
        (keyed::OF_KEY, format!("{keyed} (queue=? AND concurrency_key=? AND due_at<?)")),
        (
            keyed::LEASED,
            "SEARCH backwave_jobs USING COVERING INDEX backwave_jobs_key_slots \
             (queue=? AND concurrency_key=?)"
                .to_owned(),
        ),
        (
            births::HOLDER,
            "SEARCH backwave_jobs USING INDEX backwave_jobs_unique_key (unique_key=?)".to_owned(),
        ),
    ];
    for settled in [false, true] {
        let bench = filled(settled);
        for (sql, expected) in &table {
            assert_eq!(plan(&bench, sql), [expected.as_str()], "{sql}");
        }
        let steps = plan(&bench, births::HOLDER_AGAINST);
        let holder = "SEARCH h USING INDEX backwave_jobs_unique_key (unique_key=?)";
        assert!(steps.iter().any(|step| step == holder), "{steps:#?}");
        let filter = JobFilter::new().queue("q").concurrency_key("c").state(JobState::Leased);
        let by_slot = (filter, "backwave_jobs_key_slots (queue=? AND concurrency_key=?)");
        let by_key = (JobFilter::new().unique_key("k"), "backwave_jobs_unique_key (unique_key=?)");
        for (filter, index) in [by_slot, by_key] {
            let (query, _) = find::page(&filter, &Page::new(9)).expect("something can match");
            let steps = plan(&bench, &query.sql);
            assert!(steps.iter().any(|step| step.contains(index)), "{steps:#?}");
            assert!(!steps.iter().any(|step| step.contains("SCAN backwave")), "{steps:#?}");
        }
        let all = JobFilter::new();
        let query = find::changeable(BulkChange::Requeue, &all, None, 9).expect("it can match");
        let steps = plan(&bench, &query.sql);
        assert!(steps.iter().any(|step| step.starts_with(holder)), "{steps:#?}");
    }
}
