//! Dependents as other languages see them, and gates that a hand has tampered with.

use super::*;
use crate::JobState;
use crate::invariant::InvariantTrigger;
use crate::store::{ParentRule, Rejection};

#[test]
fn any_language_can_name_parents() {
    let place = Place::new();
    let mut session = place.session();
    let parents = [row("q", 500), row("q", 500)];
    add(session.as_mut(), &parents);
    let [a, b] = parents.map(|row| row.id);
    let text = format!("SELECT \"{}\".enqueue($1::text::json)", place.schema);
    let mut client = raw();
    let mut enqueue = |rest: &str| -> JobId {
        let job = format!(r#"{{"wire_name":"work","payload":1,{rest}}}"#);
        client.query_one(&text, &[&job]).unwrap().get(0)
    };
    let child = enqueue(&format!(r#""parents":["{b}","{a}","{b}"],"parent_rule":"OnAnyTerminal""#));
    let stored = record(session.as_mut(), child);
    assert_eq!(
        (stored.state, stored.parent_rule),
        (JobState::AwaitingParent, ParentRule::OnAnyTerminal)
    );
    let told = session.parents(child).unwrap();
    assert_eq!(told.iter().map(|parent| parent.id).collect::<Vec<_>>(), [b, a]);
    session.request_cancel("ada", a).unwrap();
    let cancelled = enqueue(&format!(r#""parents":["{a}"]"#));
    assert_eq!(record(session.as_mut(), cancelled).state, JobState::Cancelled);
    let plain = enqueue(r#""parents":null,"parent_rule":null"#);
    assert_eq!(record(session.as_mut(), plain).state, JobState::Scheduled);

    let view = format!(
        "SELECT state, parent_rule, parents FROM \"{}\".jobs_v2 WHERE id = $1",
        place.schema
    );
    let shown = raw().query_one(&view, &[&child]).unwrap();
    assert_eq!(shown.get::<_, String>(0), "AwaitingParent");
    assert_eq!(shown.get::<_, String>(1), "OnAnyTerminal");
    assert_eq!(shown.get::<_, Vec<JobId>>(2), [b, a]);
    let old = format!("SELECT state FROM \"{}\".jobs_v1 WHERE id = $1", place.schema);
    assert_eq!(raw().query_one(&old, &[&plain]).unwrap().get::<_, String>(0), "Scheduled");
}

#[test]
fn parents_in_json_that_cannot_be_are_named() {
    let place = Place::new();
    let mut client = raw();
    let text = format!("SELECT \"{}\".enqueue($1::text::json)", place.schema);
    let me = JobId::new();
    let many = vec![(); 17].iter().map(|()| format!("\"{}\"", JobId::new())).collect::<Vec<_>>();
    let table = [
        (r#""parents":"a""#.to_owned(), "the field parents is no array".to_owned()),
        (r#""parents":[7]"#.to_owned(), "the field parents holds what is no UUID".to_owned()),
        (r#""parents":["7"]"#.to_owned(), "the field parents holds what is no UUID".to_owned()),
        (
            format!(r#""parents":[{}]"#, many.join(",")),
            "the job has 17 parents and the limit is 16".to_owned(),
        ),
        (
            format!(r#""id":"{me}","parents":["{me}"]"#),
            "the field parents holds the job itself".to_owned(),
        ),
        (
            format!(r#""parents":["{me}"]"#),
            format!("the field parents holds {me}, and there is no such job"),
        ),
        (
            r#""parent_rule":"Sometimes""#.to_owned(),
            "the field parent_rule is neither OnSuccess nor OnAnyTerminal".to_owned(),
        ),
        (r#""parent_rule":1"#.to_owned(), "the field parent_rule is no string".to_owned()),
    ];
    for (rest, message) in table {
        let job = format!(r#"{{"wire_name":"work","payload":1,{rest}}}"#);
        let error = client.query_one(&text, &[&job]).unwrap_err();
        let error = error.as_db_error().expect("the server refused it");
        assert_eq!((error.code().code(), error.message()), ("22023", message.as_str()));
    }
}

#[test]
fn a_refused_parent_leaves_the_callers_transaction_usable() {
    let place = Place::new();
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    let (unknown, kept) = (JobId::new(), row("q", 0));
    let rows = [row("q", 0), child_of(&[unknown])];
    let answer = place.store.enqueue_rows_in(&mut tx, &rows).unwrap();
    let reason = Rejection::UnknownParent { parent: unknown };
    assert_eq!(answer, EnqueueAnswer::Rejected { index: 1, reason });
    place.store.enqueue_rows_in(&mut tx, std::slice::from_ref(&kept)).unwrap();
    tx.commit().unwrap();
    let mut session = place.session();
    assert_eq!(session.job(rows[0].id).unwrap(), None);
    assert_eq!(record(session.as_mut(), kept.id).state, JobState::Scheduled);
}

/// A job that runs and a dependent that waits for it.
fn parent_and_child(place: &Place) -> (Box<dyn Session>, OutcomeRow, JobId) {
    let mut session = place.session();
    let me = WorkerId::new();
    let parent = taken(session.as_mut(), me, JobId::new());
    let child = child_of(&[parent.id]);
    add(session.as_mut(), std::slice::from_ref(&child));
    (session, outcome(&parent, me, Outcome::Succeeded), child.id)
}

#[test]
fn a_gate_without_a_dependent_that_waits_halts_and_nothing_is_written() {
    let deeds = [
        "DELETE FROM {schema}.jobs WHERE id = $1",
        "UPDATE {schema}.jobs SET state = 0 WHERE id = $1",
        "UPDATE {schema}.jobs SET state = 6, finished_at = now() WHERE id = $1",
    ];
    for deed in deeds {
        let place = Place::new();
        let (mut session, done, child) = parent_and_child(&place);
        let schema = &place.store.inner.schema;
        assert_eq!(raw().execute(&schema.fill(deed), &[&child]).unwrap(), 1);
        let error = session.report(std::slice::from_ref(&done)).unwrap_err();
        assert_eq!(error.trigger(), Some(InvariantTrigger::DanglingGatingEdge), "{deed}");
        assert_eq!(record(session.as_mut(), done.job).state, JobState::Leased, "{deed}");
    }
}

#[test]
fn a_parent_that_its_own_read_does_not_tell_halts() {
    let place = Place::new();
    let (mut session, done, child) = parent_and_child(&place);
    let text = "CREATE OR REPLACE FUNCTION {schema}.lock_jobs_v2(p_ids uuid[]) \
        RETURNS TABLE (id uuid, state smallint) LANGUAGE sql AS 'SELECT NULL::uuid, 0::smallint WHERE false'";
    raw().batch_execute(&place.store.inner.schema.fill(text)).unwrap();
    let error = session.report(std::slice::from_ref(&done)).unwrap_err();
    assert_eq!(error.trigger(), Some(InvariantTrigger::ParentJobMissingFromBatch));
    assert_eq!(record(session.as_mut(), child).state, JobState::AwaitingParent);
}

#[test]
fn a_write_of_dependents_that_touches_another_number_halts() {
    let place = Place::new();
    let (mut session, done, child) = parent_and_child(&place);
    let text = "CREATE FUNCTION {schema}.lose() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
        CREATE TRIGGER lose BEFORE UPDATE ON {schema}.jobs FOR EACH ROW WHEN (OLD.state = 1) \
        EXECUTE FUNCTION {schema}.lose()";
    raw().batch_execute(&place.store.inner.schema.fill(text)).unwrap();
    let trigger = Some(InvariantTrigger::UnexpectedAffectedRowCount);
    assert_eq!(session.report(&[done]).unwrap_err().trigger(), trigger);
    assert_eq!(session.request_cancel("ada", child).unwrap_err().trigger(), trigger);
}

#[test]
fn a_stored_rule_that_is_none_halts() {
    let place = Place::new();
    let (mut session, _, child) = parent_and_child(&place);
    let text = "ALTER TABLE {schema}.jobs DROP CONSTRAINT jobs_parent_rule_known; \
        UPDATE {schema}.jobs SET parent_rule = 7";
    raw().batch_execute(&place.store.inner.schema.fill(text)).unwrap();
    let error = session.job(child).unwrap_err();
    assert_eq!(error.trigger(), Some(InvariantTrigger::UndefinedEnumValueStored));
}

#[test]
fn a_long_chain_is_cancelled_from_one_end_to_the_other() {
    let place = Place::new();
    let mut session = place.session();
    let me = WorkerId::new();
    let first = taken(session.as_mut(), me, JobId::new());
    let mut rows: Vec<JobRow> = Vec::new();
    for _ in 0..1500 {
        let parent = rows.last().map_or(first.id, |row| row.id);
        rows.push(child_of(&[parent]));
    }
    add(session.as_mut(), &rows);
    report_one(session.as_mut(), &outcome(&first, me, Outcome::DeadLettered));
    let state = |session: &mut dyn Session, index: usize| record(session, rows[index].id).state;
    assert_eq!(state(session.as_mut(), 999), JobState::Cancelled);
    assert_eq!(state(session.as_mut(), 1000), JobState::AwaitingParent);
    let worked = session.work_off_latches(400).unwrap();
    assert_eq!((worked.resolved, worked.more), (400, true));
    let worked = session.work_off_latches(400).unwrap();
    assert_eq!((worked.resolved, worked.more), (100, false));
    assert_eq!(state(session.as_mut(), 1499), JobState::Cancelled);
}
