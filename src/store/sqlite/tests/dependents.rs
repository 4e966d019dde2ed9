//! Gates, history and counts: what a damaged file or a write that lies is told by, and what only SQLite has.

use super::*;
use crate::invariant::InvariantTrigger;
use crate::store::{
    Admission, AuditFilter, Purge, QueueChange, Rejection, Retention, TransitionBy,
};
use rusqlite::TransactionBehavior;

fn child_of(parents: &[JobId]) -> JobRow {
    JobRow { parents: parents.to_vec(), ..job_in("children") }
}

/// A leased parent with one dependent, and the report of its success.
fn family(bench: &mut Bench) -> (JobId, JobId, OutcomeRow) {
    let parent = bench.enqueue(job());
    let child = bench.enqueue(child_of(&[parent]));
    let held = bench.claim(1).remove(0);
    assert_eq!(held.id, parent);
    let row = bench.outcome(&held, Outcome::Succeeded);
    (parent, child, row)
}

fn count(bench: &Bench, table: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM backwave_{table}");
    bench.host().query_row(&sql, [], |row| row.get(0)).expect("a count")
}

#[test]
fn a_gate_of_a_dependent_that_is_gone_or_does_not_wait_halts_and_changes_nothing() {
    for damage in [
        "DELETE FROM backwave_jobs WHERE queue = 'children'",
        "UPDATE backwave_jobs SET state = 0 WHERE queue = 'children'",
    ] {
        let mut bench = Bench::new();
        let (parent, _, row) = family(&mut bench);
        assert_eq!(bench.host().execute(damage, []), Ok(1));
        let error = bench.session.report(&[row]).expect_err(damage);
        assert_eq!(error.trigger(), Some(InvariantTrigger::DanglingGatingEdge), "{damage}");
        assert!(!error.session_lost());
        assert_eq!((bench.state(parent), count(&bench, "gates")), (JobState::Leased, 1));
    }
}

#[test]
fn a_rule_that_is_no_member_is_never_guessed() {
    let mut bench = Bench::new();
    let (_, child, row) = family(&mut bench);
    bench.host().execute("UPDATE backwave_jobs SET parent_rule = 7", []).expect("set");
    let undefined = Some(InvariantTrigger::UndefinedEnumValueStored);
    assert_eq!(bench.session.report(&[row]).expect_err("a guess").trigger(), undefined);
    assert_eq!(bench.session.job(child).expect_err("a guess").trigger(), undefined);
}

#[test]
fn a_write_beside_a_job_that_is_swallowed_is_a_violation_and_undone() {
    let lies = [
        ("UPDATE ON backwave_jobs WHEN old.state = 1", "a release of dependents"),
        ("DELETE ON backwave_gates", "an opening of gates"),
        ("INSERT ON backwave_ended_counts", "a count of what has ended"),
        ("INSERT ON backwave_transitions", "a history"),
    ];
    for (lie, what) in lies {
        let mut bench = Bench::with_history(HistoryPolicy::Transitions);
        let (parent, child, row) = family(&mut bench);
        let told = swallowed(&mut bench, lie, |session| session.report(&[row]).map(drop));
        assert!(told.contains(&format!("{what} touched 0 rows")), "{told}");
        assert_eq!(bench.state(parent), JobState::Leased, "{what}");
        assert_eq!(bench.state(child), JobState::AwaitingParent, "{what}");
    }
    let lies = [
        ("UPDATE ON backwave_jobs WHEN old.state = 1", "a cancellation of dependents"),
        ("INSERT ON backwave_audit", "an audit"),
    ];
    for (lie, what) in lies {
        let mut bench = Bench::new();
        let parent = bench.enqueue(job());
        bench.enqueue(child_of(&[parent]));
        let told =
            swallowed(&mut bench, lie, |session| session.request_cancel("ada", parent).map(drop));
        assert!(told.contains(&format!("{what} touched 0 rows")), "{told}");
        assert_eq!(bench.state(parent), JobState::Scheduled, "{what}");
        assert_eq!(bench.session.audit(&AuditFilter::default()).expect("no fault"), []);
    }
    for (table, what) in [("lineage", "a lineage"), ("gates", "gates")] {
        let mut bench = Bench::new();
        let parent = bench.enqueue(job());
        let row = child_of(&[parent]);
        let id = row.id;
        let lie = format!("INSERT ON backwave_{table}");
        let told = swallowed(&mut bench, &lie, |session| session.enqueue(&[row]).map(drop));
        assert!(told.contains(&format!("{what} touched 0 rows")), "{told}");
        assert_eq!(bench.session.job(id).expect("no fault"), None);
    }
    let mut bench = Bench::new();
    bench.enqueue(job());
    let (held, worker) = (bench.claim(1).remove(0), bench.worker);
    let lie = "UPDATE ON backwave_jobs";
    let told = swallowed(&mut bench, lie, |session| session.revoke("ada", worker, 9).map(drop));
    assert!(told.contains("a revocation touched 0 rows"), "{told}");
    assert_eq!(bench.state(held.id), JobState::Leased);
    let row = bench.outcome(&held, Outcome::Succeeded);
    bench.session.report(&[row]).expect("no fault");
    let purge = Purge::new(nothing_kept(), 9);
    let lie = "DELETE ON backwave_jobs";
    let told = swallowed(&mut bench, lie, |session| session.purge(&purge).map(drop));
    assert!(told.contains("a purge touched 0 rows"), "{told}");
}

/// What is told of a call while writes of that kind are swallowed.
fn swallowed(
    bench: &mut Bench,
    lie: &str,
    call: impl FnOnce(&mut dyn Session) -> Result<(), crate::store::StoreError>,
) -> String {
    let host = bench.host();
    let sql = format!("CREATE TRIGGER lie BEFORE {lie} BEGIN SELECT raise(IGNORE); END");
    host.execute_batch(&sql).expect("a trigger");
    let error = call(bench.session.as_mut()).expect_err(lie);
    assert_eq!(error.trigger(), Some(InvariantTrigger::UnexpectedAffectedRowCount), "{lie}");
    host.execute_batch("DROP TRIGGER lie").expect("dropped");
    error.to_string()
}

fn nothing_kept() -> Retention {
    let none = Some(Duration::ZERO);
    Retention {
        succeeded: none,
        cancelled: none,
        dead_lettered: none,
        quarantined: none,
        ..Retention::forever()
    }
}

#[test]
fn settings_of_a_queue_that_do_not_read_back_are_a_violation() {
    let mut bench = Bench::new();
    let host = bench.host();
    host.execute_batch(
        "CREATE TRIGGER lie BEFORE INSERT ON backwave_queues BEGIN SELECT raise(IGNORE); END",
    )
    .expect("a trigger");
    let error =
        bench.session.change_queue("ada", "default", QueueChange::Pause).expect_err("a lie");
    assert_eq!(error.trigger(), Some(InvariantTrigger::QueueConfigLockNotAcquired));
    host.execute_batch("DROP TRIGGER lie").expect("dropped");
    assert_eq!(bench.session.audit(&AuditFilter::default()).expect("no fault"), []);
}

#[test]
fn a_claim_of_paused_or_full_queues_takes_no_write_lock() {
    let mut bench = Bench::new();
    bench.enqueue_all(&[job_in("paused"), job_in("full"), job_in("full")]);
    bench.session.change_queue("ada", "paused", QueueChange::Pause).expect("no fault");
    bench.session.change_queue("ada", "full", QueueChange::Limit(Some(1))).expect("no fault");
    let plan = [("paused", 9), ("full", 9), ("default", 9)];
    assert_eq!(bench.claim_from(&plan, 9, true).jobs.len(), 1);
    let mut host = bench.host();
    let lock = host.transaction_with_behavior(TransactionBehavior::Immediate).expect("the lock");
    let claimed = bench.claim_from(&plan, 9, true);
    assert_eq!((claimed.jobs.len(), claimed.withheld), (0, true));
    assert_eq!(bench.session.work_off_latches(9).expect("no lock").resolved, 0);
    drop(lock);
}

#[test]
fn jobs_deleted_by_hand_are_counted_and_leave_no_payload() {
    let mut bench = Bench::new();
    let rows: Vec<_> = (0..4).map(|_| job()).collect();
    bench.enqueue_all(&rows);
    let held = bench.claim(3);
    let rows: Vec<_> = held.iter().map(|job| bench.outcome(job, Outcome::Succeeded)).collect();
    bench.session.report(&rows).expect("no fault");
    let host = bench.host();
    assert_eq!(
        host.execute("DELETE FROM backwave_jobs WHERE id = ?1", [held[0].id.as_bytes()]),
        Ok(1)
    );
    let counted = |bench: &mut Bench| -> Vec<_> {
        let counts = bench.session.counts().expect("no fault");
        counts.into_iter().map(|count| (count.state, count.count)).collect()
    };
    assert_eq!(counted(&mut bench), [(JobState::Scheduled, 1), (JobState::Succeeded, 2)]);
    assert_eq!(bench.session.purge(&Purge::new(nothing_kept(), 9)).expect("no fault").jobs, 2);
    assert_eq!(counted(&mut bench), [(JobState::Scheduled, 1)]);
}

#[test]
fn positions_are_never_given_out_again() {
    let mut bench = Bench::with_history(HistoryPolicy::Transitions);
    let last = |bench: &mut Bench, id| {
        let history = bench.session.history(id).expect("no fault");
        let audit = bench.session.audit(&AuditFilter::default()).expect("no fault");
        (history.last().expect("born").position, audit.first().expect("audited").position)
    };
    let first = bench.enqueue(job());
    bench.session.request_cancel("ada", first).expect("no fault");
    let before = last(&mut bench, first);
    bench.advance(Duration::from_secs(1));
    let retention = Retention { audit: Some(Duration::ZERO), ..nothing_kept() };
    assert_eq!(bench.session.purge(&Purge::new(retention, 9)).expect("no fault").jobs, 1);
    assert_eq!((count(&bench, "transitions"), count(&bench, "audit")), (0, 0));
    let second = bench.enqueue(job());
    bench.session.request_cancel("ada", second).expect("no fault");
    let after = last(&mut bench, second);
    assert!(after.0 > before.0 && after.1 > before.1, "{before:?} {after:?}");
}

#[test]
fn generations_of_one_family_go_together_and_leave_nothing() {
    let mut bench = Bench::with_history(HistoryPolicy::WithFailureDetail);
    let top = bench.enqueue(job());
    let mut last = top;
    for _ in 0..15 {
        last = bench.enqueue(child_of(&[last]));
    }
    bench.session.request_cancel("ada", top).expect("no fault");
    assert_eq!(bench.state(last), JobState::Cancelled);
    let steps = bench.session.history(last).expect("no fault");
    assert_eq!(steps.last().map(|step| step.by), Some(TransitionBy::Parent));
    let purged = bench.session.purge(&Purge::new(nothing_kept(), 99)).expect("no fault");
    assert_eq!((purged.jobs, purged.more), (16, false));
    for table in ["jobs", "lineage", "gates", "transitions", "latch_backlog"] {
        assert_eq!(count(&bench, table), 0, "{table}");
    }
}

#[test]
fn a_job_with_parents_in_the_callers_transaction_is_decided_there() {
    let mut bench = Bench::with_history(HistoryPolicy::Transitions);
    let ended = bench.enqueue(job());
    bench.session.request_cancel("ada", ended).expect("no fault");
    let mut host = bench.host();
    let tx = host.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
    let unknown = JobId::new();
    let refused = [job(), child_of(&[unknown])];
    let answer = bench.store.enqueue_rows_in(&tx, &refused).expect("no fault");
    let reason = Rejection::UnknownParent { parent: unknown };
    assert_eq!(answer, EnqueueAnswer::Rejected { index: 1, reason });
    let parent = job();
    let rows = [parent.clone(), child_of(&[parent.id]), child_of(&[ended])];
    let answer = bench.store.enqueue_rows_in(&tx, &rows).expect("no fault");
    assert!(matches!(answer, EnqueueAnswer::Accepted { jobs, .. } if jobs == [Admission::New; 3]));
    tx.commit().expect("committed");
    let states = [JobState::Scheduled, JobState::AwaitingParent, JobState::Cancelled];
    for (row, state) in rows.iter().zip(states) {
        assert_eq!(bench.state(row.id), state);
        let history = bench.session.history(row.id).expect("no fault");
        let step = history.first().expect("born");
        assert_eq!((step.from, step.to, step.by), (None, state, TransitionBy::Enqueue));
    }
    assert_eq!(bench.session.job(refused[0].id).expect("no fault"), None);
    let counts = bench.session.counts().expect("no fault");
    let cancelled = counts.iter().filter(|count| count.state == JobState::Cancelled);
    assert_eq!(cancelled.map(|count| count.count).sum::<u64>(), 2);
}

#[test]
fn a_store_without_gates_and_history_writes_no_more_than_a_count() {
    let mut bench = Bench::new();
    bench.enqueue_all(&[job(), job()]);
    let held = bench.claim(2);
    let rows: Vec<_> = held.iter().map(|job| bench.outcome(job, Outcome::Succeeded)).collect();
    bench.session.report(&rows).expect("no fault");
    for table in ["transitions", "audit", "gates", "lineage", "latch_backlog", "queues"] {
        assert_eq!(count(&bench, table), 0, "{table}");
    }
    assert_eq!(count(&bench, "ended_counts"), 1);
}
