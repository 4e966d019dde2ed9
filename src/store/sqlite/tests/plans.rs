//! Which index serves which statement. A plan that goes wrong shows only in a file of some size, as
//! slowness, hence this.

use super::*;
use crate::store::sqlite::{claim, lease, locked, reads, report};

/// The plan of a statement, one line per step, over some thousand jobs and their statistics.
fn plan(sql: &str, settled: bool) -> Vec<String> {
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
    for sql in [claim::WALK, claim::LOOK_AHEAD] {
        for settled in [false, true] {
            let [step] = plan(sql, settled).try_into().expect("one step");
            let index = "SEARCH backwave_jobs USING INDEX backwave_jobs_due \
                         (queue=? AND (due_at,id)>(?,?))";
            assert_eq!(step, index);
        }
    }
}

#[test]
fn each_other_statement_finds_its_rows_by_an_index() {
    let cases = [
        (locked::READ, "SEARCH j USING INDEX sqlite_autoindex_backwave_jobs_1 (id=?)"),
        (lease::LAPSED, "SEARCH backwave_jobs USING INDEX backwave_jobs_expiry (expiry<?)"),
        (report::SETTLE, "SEARCH j USING INTEGER PRIMARY KEY (rowid=?)"),
        (claim::LEASE, "SEARCH backwave_jobs USING INTEGER PRIMARY KEY (rowid=?)"),
        (lease::HELD, "SEARCH backwave_jobs USING INDEX backwave_jobs_owner (owner=?)"),
    ];
    for (sql, step) in cases {
        for settled in [false, true] {
            let steps = plan(sql, settled);
            assert!(steps.iter().any(|found| found == step), "{steps:#?}");
            assert!(!steps.iter().any(|found| found.contains("SCAN backwave_jobs")), "{steps:#?}");
        }
    }
}

#[test]
fn counting_reads_indexes_only() {
    for settled in [false, true] {
        let steps = plan(reads::COUNTS, settled);
        let jobs: Vec<_> = steps.iter().filter(|step| step.contains("backwave_jobs")).collect();
        assert_eq!(jobs.len(), 4, "{steps:#?}");
        assert!(jobs.iter().all(|step| step.contains("USING COVERING INDEX")), "{steps:#?}");
    }
}
