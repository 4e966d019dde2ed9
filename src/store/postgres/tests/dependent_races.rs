//! Ends of parents against whatever else touches them and their dependents.

use super::*;
use crate::store::{Mode, ParentRule, Purge, Rejection, Retention, StaleReason};
use crate::{JobState, store::StoreError};

#[test]
fn an_end_waits_for_the_enqueue_of_a_dependent_and_releases_it() {
    let place = Place::new();
    let mut session = place.session();
    let me = WorkerId::new();
    let parent = taken(session.as_mut(), me, JobId::new());
    let child = child_of(&[parent.id]);
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    let holder = backend_of(&mut tx);
    place.store.enqueue_rows_in(&mut tx, std::slice::from_ref(&child)).unwrap();
    let done = outcome(&parent, me, Outcome::Succeeded);
    let answer = while_it_waits(
        &place,
        holder,
        |session| report_one(session, &done),
        || tx.commit().unwrap(),
    );
    assert_eq!(answer, RowReport::Applied(JobState::Succeeded));
    assert_eq!(record(session.as_mut(), child.id).state, JobState::Scheduled);
}

#[test]
fn the_enqueue_of_a_dependent_waits_for_an_end_and_counts_it() {
    let table = [
        (Outcome::Succeeded, ParentRule::OnSuccess, JobState::Scheduled),
        (Outcome::DeadLettered, ParentRule::OnSuccess, JobState::Cancelled),
        (Outcome::DeadLettered, ParentRule::OnAnyTerminal, JobState::Scheduled),
    ];
    for (end, rule, expected) in table {
        let place = Place::new();
        let mut session = place.session();
        let me = WorkerId::new();
        let parent = taken(session.as_mut(), me, JobId::new());
        let mut child = child_of(&[parent.id]);
        child.parent_rule = rule;
        let mut client = raw();
        let mut tx = client.transaction().unwrap();
        let holder = backend_of(&mut tx);
        assert_eq!(report_in(&mut tx, &place, &outcome(&parent, me, end)), Some(0));
        while_it_waits(
            &place,
            holder,
            |session| add(session, std::slice::from_ref(&child)),
            || tx.commit().unwrap(),
        );
        assert_eq!(record(session.as_mut(), child.id).state, expected, "{end:?} {rule:?}");
        let gates = format!("SELECT count(*) FROM \"{}\".gates", place.schema);
        assert_eq!(client.query_one(&gates, &[]).unwrap().get::<_, i64>(0), 0);
    }
}

#[test]
fn a_dependent_that_comes_in_while_an_end_waits_is_not_forgotten() {
    let place = Place::new();
    let mut session = place.session();
    let me = WorkerId::new();
    // The dependent's id is below its parent's, so that the end waits for it and holds nothing yet.
    let parent = taken(session.as_mut(), me, id_at(9));
    let mut first = child_of(&[parent.id]);
    first.id = id_at(1);
    add(session.as_mut(), std::slice::from_ref(&first));
    let second = child_of(&[parent.id]);
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    let holder = backend_of(&mut tx);
    let lock = format!("SELECT 1 FROM \"{}\".jobs WHERE id = $1 FOR UPDATE", place.schema);
    tx.execute(&lock, &[&first.id]).unwrap();
    let done = outcome(&parent, me, Outcome::Succeeded);
    while_it_waits(
        &place,
        holder,
        |session| report_one(session, &done),
        || {
            add(place.session().as_mut(), std::slice::from_ref(&second));
            tx.commit().unwrap();
        },
    );
    for id in [first.id, second.id] {
        assert_eq!(record(session.as_mut(), id).state, JobState::Scheduled);
    }
}

#[test]
fn an_end_that_waited_for_the_cancel_of_a_dependent_leaves_it_cancelled() {
    let place = Place::new();
    let mut session = place.session();
    let me = WorkerId::new();
    let parent = taken(session.as_mut(), me, id_at(9));
    let mut child = child_of(&[parent.id]);
    child.id = id_at(1);
    add(session.as_mut(), std::slice::from_ref(&child));
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    let holder = backend_of(&mut tx);
    let cancel = format!(
        "SELECT answer FROM \"{}\".request_cancel_v2('ada', $1, 0::smallint, $2)",
        place.schema
    );
    tx.execute(&cancel, &[&child.id, &START]).unwrap();
    let done = outcome(&parent, me, Outcome::Succeeded);
    let answer = while_it_waits(
        &place,
        holder,
        |session| report_one(session, &done),
        || tx.commit().unwrap(),
    );
    assert_eq!(answer, RowReport::Applied(JobState::Succeeded));
    assert_eq!(record(session.as_mut(), child.id).state, JobState::Cancelled);
}

#[test]
fn the_second_of_two_reapers_waits_and_is_stale() {
    let place = Place::new();
    let mut session = place.session();
    let me = WorkerId::new();
    let job = taken(session.as_mut(), me, JobId::new());
    place.set_clock(job.expiry);
    let reap = |end| {
        let mut row = outcome(&job, me, end);
        row.mode = Mode::Reap;
        row
    };
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    let holder = backend_of(&mut tx);
    assert_eq!(report_in(&mut tx, &place, &reap(Outcome::DeadLettered)), Some(0));
    let second = reap(Outcome::Retry { after: Duration::ZERO });
    let answer = while_it_waits(
        &place,
        holder,
        |session| report_one(session, &second),
        || tx.commit().unwrap(),
    );
    assert_eq!(answer, RowReport::Stale(StaleReason::Reaped));
    assert_eq!(record(session.as_mut(), job.id).state, JobState::DeadLettered);
}

/// Tries again what was the victim of a deadlock, once.
fn with_one_retry(mut call: impl FnMut() -> Result<RowReport, StoreError>) -> (RowReport, bool) {
    match call() {
        Ok(answer) => (answer, false),
        Err(error) => {
            assert_eq!(error.code(), Some("40P01"), "{error}");
            (call().unwrap(), true)
        }
    }
}

/// Lets two ends run into a lock on one job, and then go on together.
fn report_together(place: &Place, held: JobId, ends: &[OutcomeRow; 2]) -> [(RowReport, bool); 2] {
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    let lock = format!("SELECT 1 FROM \"{}\".jobs WHERE id = $1 FOR UPDATE", place.schema);
    tx.execute(&lock, &[&held]).unwrap();
    std::thread::scope(|scope| {
        let threads = ends.each_ref().map(|end| {
            scope.spawn(move || {
                let mut session = place.session();
                with_one_retry(|| Ok(session.report(std::slice::from_ref(end))?.rows[0]))
            })
        });
        let waiting = "SELECT count(*) FROM pg_stat_activity \
            WHERE wait_event_type = 'Lock' AND position($1 IN query) > 0";
        let mut watcher = raw();
        while watcher.query_one(waiting, &[&place.schema]).unwrap().get::<_, i64>(0) < 2 {
            assert!(threads.iter().all(|thread| !thread.is_finished()), "it did not wait");
            std::thread::yield_now();
        }
        tx.commit().unwrap();
        threads.map(|thread| thread.join().unwrap())
    })
}

#[test]
fn cascades_through_graphs_that_overlap_do_not_wait_in_a_circle() {
    let place = Place::new();
    for order in [[1, 2, 5, 3, 4], [5, 4, 1, 3, 2], [3, 1, 2, 5, 4]] {
        let mut session = place.session();
        let me = WorkerId::new();
        // A>M, A>P, M>K, B>K, K>P; the ids in an order in which following the edges would lock crosswise.
        let [a, b, m, k, p] = order.map(id_at);
        let ends = [a, b].map(|id| {
            let job = taken(session.as_mut(), me, id);
            outcome(&job, me, Outcome::DeadLettered)
        });
        let dependent = |id, parents: &[JobId]| {
            let mut row = child_of(parents);
            row.id = id;
            row
        };
        let mut rows = vec![dependent(m, &[a]), dependent(k, &[m, b]), dependent(p, &[a, k])];
        // And so many shared ones that two orders would meet crosswise somewhere.
        rows.extend((0..40).map(|_| child_of(&[a, b])));
        add(session.as_mut(), &rows);
        for (answer, is_retried) in report_together(&place, k, &ends) {
            assert_eq!(answer, RowReport::Applied(JobState::DeadLettered));
            assert!(!is_retried, "all is locked by ascending id");
        }
        for row in &rows {
            assert_eq!(record(session.as_mut(), row.id).state, JobState::Cancelled);
        }
    }
    let gates = format!("SELECT count(*) FROM \"{}\".gates", place.schema);
    assert_eq!(raw().query_one(&gates, &[]).unwrap().get::<_, i64>(0), 0);
}

fn purge(session: &mut dyn Session) -> u32 {
    let mut retention = Retention::forever();
    retention.succeeded = Some(Duration::ZERO);
    session.purge(&Purge::new(retention, 100)).unwrap().jobs
}

#[test]
fn a_purge_steps_over_the_parent_of_a_dependent_that_is_coming_in() {
    let place = Place::new();
    let mut session = place.session();
    let me = WorkerId::new();
    let parent = taken(session.as_mut(), me, JobId::new());
    report_one(session.as_mut(), &outcome(&parent, me, Outcome::Succeeded));
    let child = child_of(&[parent.id]);
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    place.store.enqueue_rows_in(&mut tx, std::slice::from_ref(&child)).unwrap();
    assert_eq!(purge(session.as_mut()), 0, "it neither waits nor takes it");
    tx.commit().unwrap();
    assert_eq!(purge(session.as_mut()), 0, "a job names it as its parent");
    assert_eq!(record(session.as_mut(), child.id).state, JobState::Scheduled);
    assert_eq!(session.parents(child.id).unwrap().len(), 1);
}

#[test]
fn a_dependent_that_waited_for_a_purge_has_no_parent_any_more() {
    let place = Place::new();
    let mut session = place.session();
    let me = WorkerId::new();
    let parent = taken(session.as_mut(), me, JobId::new());
    report_one(session.as_mut(), &outcome(&parent, me, Outcome::Succeeded));
    let child = child_of(&[parent.id]);
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    let holder = backend_of(&mut tx);
    let text = format!(
        "SELECT jobs FROM \"{}\".purge_v2(ARRAY[0,NULL,NULL,NULL]::bigint[], NULL, NULL, NULL, 100, NULL, NULL, NULL, 0, $1)",
        place.schema
    );
    assert_eq!(tx.query_one(&text, &[&START]).unwrap().get::<_, i32>(0), 1);
    let rows = [row("q", 0), child.clone()];
    let answer = while_it_waits(
        &place,
        holder,
        |session| session.enqueue(&rows).unwrap(),
        || tx.commit().unwrap(),
    );
    let reason = Rejection::UnknownParent { parent: parent.id };
    assert_eq!(answer, EnqueueAnswer::Rejected { index: 1, reason });
    for row in &rows {
        assert_eq!(session.job(row.id).unwrap(), None, "nothing of the call is stored");
    }
}
