//! Counts of jobs that have ended, which are sums of what was written down.

use super::*;
use crate::JobState;
use crate::store::{BulkChange, JobFilter, Purge, QueueCount, Retention};

/// What a look at every row counts.
fn recounted(place: &Place) -> Vec<QueueCount> {
    let text = "SELECT queue, state, count(*) FROM {schema}.jobs GROUP BY queue, state ORDER BY queue, state";
    let rows = raw().query(&place.store.inner.schema.fill(text), &[]).unwrap();
    let count = |row: &::postgres::Row| {
        let state = JobState::from_code(row.get::<_, i16>(1).into()).unwrap();
        QueueCount::new(row.get(0), state, row.get::<_, i64>(2).unsigned_abs())
    };
    rows.iter().map(count).collect()
}

/// Jobs of two queues that ended in every way.
fn ended() -> (Place, Box<dyn Session>) {
    let place = Place::new();
    let mut session = place.session();
    let me = WorkerId::new();
    for queue in ["q", "r"] {
        add(session.as_mut(), &(0..10).map(|i| row(queue, i - 90)).collect::<Vec<_>>());
        let jobs = take(session.as_mut(), me, queue, 8).jobs;
        let ends = [
            Outcome::Succeeded,
            Outcome::DeadLettered,
            Outcome::Quarantined,
            Outcome::Cancelled,
            Outcome::Snooze { after: LEASE },
            Outcome::Succeeded,
        ];
        let ends: Vec<_> = jobs.iter().zip(ends).map(|(job, end)| outcome(job, me, end)).collect();
        session.report(&ends).unwrap();
    }
    (place, session)
}

#[test]
fn counts_agree_with_a_look_at_every_row_after_every_kind_of_write() {
    let (place, mut session) = ended();
    assert_eq!(session.counts().unwrap(), recounted(&place));
    let dead = JobFilter::new().state(JobState::DeadLettered).queue("q");
    let requeued = session.change_matching("ada", BulkChange::Requeue, &dead, None, 9).unwrap();
    assert_eq!(requeued.changed, 1);
    assert_eq!(session.counts().unwrap(), recounted(&place));
    let all = JobFilter::new();
    session.change_matching("ada", BulkChange::Cancel, &all, None, 9).unwrap();
    assert_eq!(session.counts().unwrap(), recounted(&place));
    let mut retention = Retention::forever();
    retention.succeeded = Some(Duration::ZERO);
    retention.cancelled = Some(Duration::ZERO);
    assert!(session.purge(&Purge::new(retention, 3)).unwrap().more);
    assert_eq!(session.counts().unwrap(), recounted(&place));
}

#[test]
fn what_is_deleted_by_hand_is_counted() {
    let (place, mut session) = ended();
    let schema = &place.store.inner.schema;
    let mut client = raw();
    client
        .batch_execute(
            &schema.fill("DELETE FROM {schema}.jobs WHERE queue = 'q' AND state IN (3, 4)"),
        )
        .unwrap();
    assert_eq!(session.counts().unwrap(), recounted(&place));
    client.batch_execute(&schema.fill("TRUNCATE {schema}.jobs")).unwrap();
    assert_eq!(session.counts().unwrap(), []);
}

#[test]
fn a_purge_sums_up_and_steps_over_what_somebody_else_sums_up() {
    let (place, mut session) = ended();
    let schema = &place.store.inner.schema;
    let rows = || -> i64 {
        raw()
            .query_one(&schema.fill("SELECT count(*) FROM {schema}.ended_deltas"), &[])
            .unwrap()
            .get(0)
    };
    let before = session.counts().unwrap();
    let more = row("q", -1);
    add(session.as_mut(), std::slice::from_ref(&more));
    session.request_cancel("ada", more.id).unwrap();
    session.request_cancel("ada", JobId::new()).unwrap();
    assert_eq!(rows(), 9);
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    let lock = "SELECT 1 FROM {schema}.ended_deltas FOR UPDATE";
    tx.execute(&schema.fill(lock), &[]).unwrap();
    session.purge(&Purge::new(Retention::forever(), 10)).unwrap();
    assert_eq!(rows(), 9);
    tx.rollback().unwrap();
    session.purge(&Purge::new(Retention::forever(), 10)).unwrap();
    assert_eq!(rows(), 8);
    assert_ne!(session.counts().unwrap(), before);
    assert_eq!(session.counts().unwrap(), recounted(&place));
}
