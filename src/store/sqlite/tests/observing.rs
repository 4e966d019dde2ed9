//! Cursors that do not fit their log, rows that are tampered with, and what the host writes on its own connection.

use super::*;
use crate::invariant::InvariantTrigger;
use crate::store::{
    Observation, Observe, Observed, Resolve, Resolved, TransitionFilter, UPKEEP_MAX,
};
use rusqlite::TransactionBehavior;

/// Looks at what lies beyond the cursor, in the bench's worker's name.
fn look(bench: &mut Bench) -> (Vec<Observation>, Option<String>, bool) {
    look_for(bench, &TransitionFilter::new())
}

fn look_for(
    bench: &mut Bench,
    filter: &TransitionFilter,
) -> (Vec<Observation>, Option<String>, bool) {
    let ask = Observe::new("alerts", bench.worker, filter, LEASE);
    match bench.session.observe(&ask).expect("no fault") {
        Observed::Held { batch, reset, more, .. } => (batch, reset, more),
        elsewhere @ Observed::Elsewhere { .. } => panic!("{elsewhere:?}"),
    }
}

fn pass(bench: &mut Bench, until: u64) {
    let mut resolve = Resolve::new("alerts", bench.worker, 1, 0, LEASE);
    resolve.until = Some(until);
    let answer = bench.session.resolve(&resolve).expect("no fault");
    assert!(matches!(answer, Resolved::Applied { .. }), "{answer:?}");
}

#[test]
fn a_cursor_beyond_the_log_begins_anew_with_the_oldest_and_says_so() {
    let mut bench = Bench::new();
    look(&mut bench);
    let ids = [bench.enqueue(job()), bench.enqueue(job())];
    pass(&mut bench, 2);
    assert_eq!(look(&mut bench), (Vec::new(), None, false));
    bench.host().execute("UPDATE backwave_observers SET passed = 7", []).expect("set");
    let (batch, reset, _) = look(&mut bench);
    assert!(reset.is_some_and(|why| why.contains("stands at 7")));
    assert_eq!(batch.iter().map(|told| told.job).collect::<Vec<_>>(), ids);
    pass(&mut bench, 2);
    assert_eq!(look(&mut bench), (Vec::new(), None, false), "it is told once");
}

#[test]
fn a_cursor_at_the_end_of_a_log_that_was_purged_away_stays_where_it_is() {
    let mut bench = Bench::new();
    look(&mut bench);
    bench.enqueue(job());
    pass(&mut bench, 1);
    bench.host().execute_batch("DELETE FROM backwave_transitions").expect("deleted");
    assert_eq!(look(&mut bench), (Vec::new(), None, false));
    let next = bench.enqueue(job());
    assert_eq!(look(&mut bench).0[0].job, next);
}

#[test]
fn a_transition_whose_job_was_deleted_by_hand_is_stepped_over() {
    let mut bench = Bench::new();
    look(&mut bench);
    let ids = [(); 3].map(|()| bench.enqueue(job()));
    let delete = "DELETE FROM backwave_jobs WHERE id = ?1";
    bench.host().execute(delete, [ids[1].as_bytes()]).expect("deleted");
    let (batch, ..) = look(&mut bench);
    assert_eq!(batch.iter().map(|told| told.job).collect::<Vec<_>>(), [ids[0], ids[2]]);
}

#[test]
fn a_birth_on_the_hosts_own_connection_is_told_once_it_commits() {
    let mut bench = Bench::new();
    look(&mut bench);
    let mut host = bench.host();
    let row = job();
    for commits in [false, true] {
        let tx = host.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
        bench.store.enqueue_rows_in(&tx, std::slice::from_ref(&row)).expect("accepted");
        if commits {
            tx.commit().expect("committed");
        }
    }
    let (batch, ..) = look(&mut bench);
    assert_eq!(batch.iter().map(|told| told.job).collect::<Vec<_>>(), [row.id]);
}

#[test]
fn one_call_looks_at_a_bounded_number_of_transitions() {
    let mut bench = Bench::new();
    look(&mut bench);
    let rows: Vec<_> = (0..UPKEEP_MAX).map(|_| job()).collect();
    bench.enqueue_all(&rows);
    let last = bench.enqueue(job());
    bench.session.request_cancel("ada", last).expect("done");
    let filter = TransitionFilter::new().state(JobState::Cancelled);
    assert_eq!(look_for(&mut bench, &filter), (Vec::new(), None, true));
    let (batch, _, more) = look_for(&mut bench, &filter);
    assert_eq!((batch.len(), batch[0].job, more), (1, last, false));
}

#[test]
fn a_cursor_that_is_gone_when_it_is_read_back_is_a_violation() {
    let mut bench = Bench::new();
    let host = bench.host();
    let spite = "CREATE TRIGGER spite AFTER INSERT ON backwave_observers \
                 BEGIN DELETE FROM backwave_observers; END";
    host.execute_batch(spite).expect("made");
    let filter = TransitionFilter::new();
    let ask = Observe::new("alerts", bench.worker, &filter, LEASE);
    let error = bench.session.observe(&ask).expect_err("it is gone");
    assert_eq!(error.trigger(), Some(InvariantTrigger::GuaranteedRowAbsent));
    host.execute_batch("DROP TRIGGER spite").expect("dropped");
    look(&mut bench);
}

#[test]
fn a_cursor_whose_write_touches_no_row_is_a_violation() {
    let mut bench = Bench::new();
    look(&mut bench);
    let spite = "CREATE TRIGGER spite BEFORE UPDATE ON backwave_observers \
                 BEGIN SELECT RAISE(IGNORE); END";
    bench.host().execute_batch(spite).expect("made");
    let filter = TransitionFilter::new();
    let ask = Observe::new("alerts", bench.worker, &filter, LEASE);
    let resolve = Resolve::new("alerts", bench.worker, 1, 0, LEASE);
    let errors = [
        bench.session.observe(&ask).expect_err("nothing was written"),
        bench.session.resolve(&resolve).expect_err("nothing was written"),
    ];
    for error in errors {
        assert_eq!(error.trigger(), Some(InvariantTrigger::UnexpectedAffectedRowCount));
    }
}

#[test]
fn a_stored_number_that_is_no_state_is_a_violation() {
    let mut bench = Bench::new();
    look(&mut bench);
    bench.enqueue(job());
    bench.host().execute("UPDATE backwave_transitions SET to_state = 99", []).expect("set");
    let filter = TransitionFilter::new();
    let ask = Observe::new("alerts", bench.worker, &filter, LEASE);
    let error = bench.session.observe(&ask).expect_err("nobody knows what that is");
    assert_eq!(error.trigger(), Some(InvariantTrigger::UndefinedEnumValueStored));
}
