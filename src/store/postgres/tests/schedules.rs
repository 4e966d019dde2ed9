//! Schedules at the server: what waits for what, what other languages see, and what a hand has tampered with.

use super::*;
use crate::invariant::InvariantTrigger;
use crate::store::{
    Declaration, Declared, MintRow, Minting, ScheduleChange, ScheduleRecord, ScheduleRow,
    SkipReason, Tick,
};

fn schedule(name: &str, definition: &str) -> ScheduleRow {
    let (owner, timing) = ("shop".to_owned(), "{\"every\": 60}".to_owned());
    ScheduleRow::new(name.to_owned(), owner, timing, definition.to_owned())
}

fn declare(session: &mut dyn Session, rows: &[ScheduleRow]) -> Vec<Declaration> {
    match session.declare("shop", rows, false).unwrap() {
        Declared::Done { rows, .. } => rows,
        other @ Declared::Foreign { .. } => panic!("{other:?}"),
    }
}

fn read(session: &mut dyn Session, name: &str) -> ScheduleRecord {
    let all = session.schedules().unwrap();
    all.into_iter().find(|found| found.row.name == name).expect("it is there")
}

/// A decision that mints a job for the tick a second after the start.
fn decision(record: &ScheduleRecord) -> MintRow {
    let mut job = row("q", -1);
    job.tick = Some(Tick::new(record.row.name.clone(), at(1)));
    let mut row = MintRow::new(record.row.name.clone(), record.revision, at(1), Some(at(61)));
    row.job = Some(Box::new(job));
    row
}

fn mint(session: &mut dyn Session, row: &MintRow) -> Minting {
    session.mint(std::slice::from_ref(row)).unwrap().rows.remove(0)
}

/// A place with the schedule `s`.
fn with_schedule() -> (Place, ScheduleRecord) {
    let place = Place::new();
    let mut session = place.session();
    declare(session.as_mut(), &[schedule("s", "{}")]);
    let record = read(session.as_mut(), "s");
    (place, record)
}

const NEW: Minting = Minting::Written { minted: true };

#[test]
fn a_mint_that_waited_for_another_finds_its_tick_settled() {
    let (place, record) = with_schedule();
    let schema = &place.store.inner.schema;
    let mut client = raw();
    for (deed, expected) in [
        ("UPDATE {schema}.schedules SET revision = revision + 1", Minting::Conflict),
        ("UPDATE {schema}.schedules SET is_paused = true", Minting::Conflict),
        ("DELETE FROM {schema}.schedules", Minting::Gone),
    ] {
        let mut tx = client.transaction().unwrap();
        let holder = backend_of(&mut tx);
        tx.batch_execute(&schema.fill(deed)).unwrap();
        let row = decision(&record);
        let answer =
            while_it_waits(&place, holder, |session| mint(session, &row), || tx.commit().unwrap());
        assert_eq!(answer, expected, "{deed}");
        client.batch_execute(&schema.fill("UPDATE {schema}.schedules SET revision = 1")).unwrap();
    }
    assert!(place.session().counts().unwrap().is_empty());
}

#[test]
fn a_mint_that_waited_sees_that_the_last_job_has_ended_meanwhile() {
    let (place, record) = with_schedule();
    let mut session = place.session();
    assert_eq!(mint(session.as_mut(), &decision(&record)), NEW);
    let last = take(session.as_mut(), WorkerId::new(), "q", 1).jobs.remove(0);
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    let holder = backend_of(&mut tx);
    tx.batch_execute(&place.store.inner.schema.fill("SELECT 1 FROM {schema}.schedules FOR UPDATE"))
        .unwrap();
    let mut row = decision(&read(session.as_mut(), "s"));
    row.no_overlap = true;
    let owner = last.owner.expect("it is leased");
    let end = || {
        report_one(session.as_mut(), &outcome(&last, owner, Outcome::Succeeded));
        tx.commit().unwrap();
    };
    assert_eq!(while_it_waits(&place, holder, |session| mint(session, &row), end), NEW);
}

#[test]
fn a_declaration_waits_for_another_also_where_no_row_is_there_yet() {
    let place = Place::new();
    let schema = &place.store.inner.schema;
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    let holder = backend_of(&mut tx);
    let text =
        "SELECT pg_advisory_xact_lock(hashtextextended('backwave schedules {schema_text}', 0))";
    tx.batch_execute(&schema.fill(text)).unwrap();
    let text = "INSERT INTO {schema}.schedules (name, owner, revision, cursor, look_at, created_at, timing, \
        definition) VALUES ('n', 'shop', 1, now(), now(), now(), '{\"every\": 60}', '{}')";
    tx.batch_execute(&schema.fill(text)).unwrap();
    let call = |session: &mut dyn Session| session.declare("shop", &[schedule("m", "{}")], true);
    let declared = while_it_waits(&place, holder, call, || tx.commit().unwrap()).unwrap();
    let Declared::Done { removed, .. } = declared else { panic!("{declared:?}") };
    assert_eq!(removed, ["n"], "the set that came first has given way whole");
}

#[test]
fn a_trigger_keeps_its_schedule_from_being_removed_and_lets_it_tick() {
    let (place, record) = with_schedule();
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    let holder = backend_of(&mut tx);
    let hold = "SELECT 1 FROM {schema}.schedules FOR KEY SHARE";
    tx.batch_execute(&place.store.inner.schema.fill(hold)).unwrap();
    assert_eq!(mint(place.session().as_mut(), &decision(&record)), NEW);
    let remove =
        |session: &mut dyn Session| session.change_schedule("ada", "s", &ScheduleChange::Remove);
    while_it_waits(&place, holder, remove, || tx.commit().unwrap()).unwrap();
    assert!(place.session().schedules().unwrap().is_empty());
}

#[test]
fn a_server_without_a_test_clock_tells_its_own_time() {
    let place = Place::new();
    let store = PostgresStore::builder(config()).schema(&place.schema).open().unwrap();
    let mut session = store.open_session().unwrap();
    let before = session.now().unwrap();
    declare(session.as_mut(), &[schedule("s", "{}")]);
    let due = session.due_schedules(9).unwrap();
    assert_eq!(due.due.len(), 1);
    let cursor = due.due[0].cursor;
    assert!(before <= cursor && cursor <= due.store_time);
    let row = MintRow::new("s".to_owned(), 1, due.store_time, None);
    let minted = session.mint(&[row]).unwrap();
    assert!(minted.store_time >= due.store_time);
    assert!(session.mint(&[]).unwrap().store_time >= minted.store_time);
    for change in [ScheduleChange::Pause, ScheduleChange::Resume, ScheduleChange::Remove] {
        session.change_schedule("ada", "s", &change).unwrap();
    }
}

#[test]
fn people_see_schedules_and_the_ticks_of_jobs() {
    let (place, record) = with_schedule();
    let mut session = place.session();
    let mut row = decision(&record);
    row.missed = Some((2, START));
    row.error = Some("half of it".to_owned());
    assert_eq!(mint(session.as_mut(), &row), NEW);
    let job = row.job.expect("it mints").id;
    let mut client = raw();
    let text = format!("SELECT schedule, tick FROM \"{}\".jobs_v3 WHERE id = $1", place.schema);
    let shown = client.query_one(&text, &[&job]).unwrap();
    assert_eq!((shown.get::<_, &str>(0), shown.get::<_, Timestamp>(1)), ("s", at(1)));
    let text = format!(
        "SELECT name, owner, timing ->> 'every', settled_to, next_tick, last_tick, last_job, skipped, \
         last_skipped_tick, last_skip_reason, error, is_paused FROM \"{}\".schedules_v1",
        place.schema
    );
    let shown = client.query_one(&text, &[]).unwrap();
    let texts: Vec<&str> = [0, 1, 2, 9, 10].map(|column| shown.get(column)).to_vec();
    assert_eq!(texts, ["s", "shop", "60", "Missed", "half of it"]);
    let times: Vec<Option<Timestamp>> = [3, 4, 5, 8].map(|column| shown.get(column)).to_vec();
    assert_eq!(times, [Some(at(1)), None, Some(at(1)), Some(START)]);
    assert_eq!((shown.get::<_, JobId>(6), shown.get::<_, i64>(7)), (job, 2));
    assert!(!shown.get::<_, bool>(11));
}

#[test]
fn any_language_enqueues_without_a_tick() {
    let place = Place::new();
    let text = format!("SELECT \"{}\".enqueue($1::text::json)", place.schema);
    let job = r#"{"wire_name":"work","payload":1,"queue":"q"}"#;
    let id: JobId = raw().query_one(&text, &[&job]).unwrap().get(0);
    let mut session = place.session();
    assert_eq!(record(session.as_mut(), id).tick, None);
    place.set_clock(session_time());
    assert_eq!(take(session.as_mut(), WorkerId::new(), "q", 1).jobs[0].tick, None);
}

/// Past all that the server itself has dated.
fn session_time() -> Timestamp {
    let now: Timestamp = raw().query_one("SELECT clock_timestamp()", &[]).unwrap().get(0);
    now + LEASE
}

#[test]
fn a_write_of_schedules_that_touches_another_number_halts_and_mints_nothing() {
    let (place, record) = with_schedule();
    let text = "CREATE FUNCTION {schema}.lose() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
        CREATE TRIGGER lose BEFORE INSERT OR UPDATE OR DELETE ON {schema}.schedules FOR EACH ROW \
        EXECUTE FUNCTION {schema}.lose()";
    raw().batch_execute(&place.store.inner.schema.fill(text)).unwrap();
    let mut session = place.session();
    let told = [
        session.mint(&[decision(&record)]).map(drop),
        session.declare("shop", &[schedule("s", "[]")], false).map(drop),
        session.declare("shop", &[schedule("t", "{}")], false).map(drop),
        session.declare("shop", &[], true).map(drop),
        session.change_schedule("ada", "s", &ScheduleChange::Pause).map(drop),
        session.change_schedule("ada", "s", &ScheduleChange::Remove).map(drop),
    ];
    for answer in told {
        let trigger = answer.unwrap_err().trigger();
        assert_eq!(trigger, Some(InvariantTrigger::UnexpectedAffectedRowCount));
    }
    assert_eq!(session.schedules().unwrap(), [record]);
    assert!(session.counts().unwrap().is_empty());
    assert!(session.audit(&crate::store::AuditFilter::default()).unwrap().is_empty());
}

#[test]
fn a_stored_reason_that_is_none_is_never_guessed() {
    let (place, record) = with_schedule();
    let mut session = place.session();
    let mut row = MintRow::new("s".to_owned(), record.revision, at(1), None);
    row.missed = Some((1, START));
    mint(session.as_mut(), &row);
    assert_eq!(read(session.as_mut(), "s").last_skip, Some((START, SkipReason::Missed)));
    let text = place.store.inner.schema.fill("UPDATE {schema}.schedules SET skip_reason = 9");
    raw().batch_execute(&text).unwrap();
    let undefined = Some(InvariantTrigger::UndefinedEnumValueStored);
    assert_eq!(session.schedules().unwrap_err().trigger(), undefined);
    assert_eq!(session.declare("shop", &[], true).unwrap_err().trigger(), undefined);
}
