//! Settings of queues whose reads a hand has tampered with, and what heeding them costs.

use super::*;
use crate::JobState;
use crate::invariant::InvariantTrigger;
use crate::store::QueueChange;

fn limited(limit: u32) -> (Place, Box<dyn Session>) {
    let place = Place::new();
    let mut session = place.session();
    session.change_queue("ada", "q", QueueChange::Limit(Some(limit))).unwrap();
    (place, session)
}

fn claim_fails(session: &mut dyn Session) -> Option<InvariantTrigger> {
    let (plan, accepts) = (plan(&[("q", 5)]), accepts("work", 1));
    let claim = Claim::new(WorkerId::new(), 5, &plan, &accepts, LEASE);
    session.claim(&claim).unwrap_err().trigger()
}

#[test]
fn a_count_of_leased_jobs_that_is_null_halts() {
    let (place, mut session) = limited(2);
    let job = row("q", -1);
    add(session.as_mut(), std::slice::from_ref(&job));
    let text = "CREATE OR REPLACE FUNCTION {schema}.leased_count_v2(p_queue text) RETURNS bigint \
        LANGUAGE sql AS 'SELECT NULL::bigint'";
    raw().batch_execute(&place.store.inner.schema.fill(text)).unwrap();
    let trigger = Some(InvariantTrigger::LeasedCountAggregateNull);
    assert_eq!(claim_fails(session.as_mut()), trigger);
    assert_eq!(record(session.as_mut(), job.id).state, JobState::Scheduled);
}

#[test]
fn settings_that_their_lock_does_not_tell_halt() {
    let (place, mut session) = limited(2);
    add(session.as_mut(), &[row("q", -1)]);
    let text = "CREATE OR REPLACE FUNCTION {schema}.lock_limits_v2(p_names text[]) \
        RETURNS TABLE (name text, concurrency_limit bigint) LANGUAGE sql \
        AS 'SELECT NULL::text, 0::bigint WHERE false'";
    raw().batch_execute(&place.store.inner.schema.fill(text)).unwrap();
    assert_eq!(claim_fails(session.as_mut()), Some(InvariantTrigger::QueueConfigLockNotAcquired));
}

#[test]
fn settings_that_vanish_while_they_are_changed_halt() {
    let (place, mut session) = limited(2);
    let text = "CREATE FUNCTION {schema}.lose() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
        CREATE TRIGGER lose BEFORE INSERT OR UPDATE ON {schema}.queues FOR EACH ROW \
        EXECUTE FUNCTION {schema}.lose()";
    raw().batch_execute(&place.store.inner.schema.fill(text)).unwrap();
    let error = session.change_queue("ada", "q", QueueChange::Pause).unwrap_err();
    assert_eq!(error.trigger(), Some(InvariantTrigger::UnexpectedAffectedRowCount));
    let error = session.change_queue("ada", "new", QueueChange::Pause).unwrap_err();
    assert_eq!(error.trigger(), Some(InvariantTrigger::GuaranteedRowAbsent));
}

#[test]
fn an_idle_claim_of_a_limited_queue_writes_nothing() {
    let (_place, mut session) = limited(2);
    add(session.as_mut(), &[row("q", 100)]);
    let text = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text";
    let mut client = raw();
    let mut assigned = || client.query_one(text, &[]).unwrap().get::<_, String>(0);
    // Other tests run on the same server: a claim that is quiet once is quiet.
    let is_quiet = (0..200).any(|_| {
        let before = assigned();
        assert_eq!(take(session.as_mut(), WorkerId::new(), "q", 5).next_due, Some(at(100)));
        assigned() == before
    });
    assert!(is_quiet);
}

#[test]
fn a_queue_planned_twice_has_one_limit() {
    let (_place, mut session) = limited(3);
    add(session.as_mut(), &(0..9).map(|i| row("q", i - 20)).collect::<Vec<_>>());
    let (plan, accepts) = (plan(&[("q", 2), ("q", 2)]), accepts("work", 1));
    let claim = Claim::new(WorkerId::new(), 9, &plan, &accepts, LEASE);
    let claimed = session.claim(&claim).unwrap();
    assert_eq!((claimed.jobs.len(), claimed.withheld), (3, true));
}

#[test]
fn the_schema_of_another_application_is_not_held_up() {
    let (place, mut session) = (Place::new(), Place::new().session());
    add(session.as_mut(), &[row("q", -1)]);
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    let text = "SELECT changed FROM {schema}.change_queue_v2('ada', 'q', 4::smallint, NULL)";
    tx.execute(&place.store.inner.schema.fill(text), &[]).unwrap();
    assert_eq!(take(session.as_mut(), WorkerId::new(), "q", 5).jobs.len(), 1);
}
