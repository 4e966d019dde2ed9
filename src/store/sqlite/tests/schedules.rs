//! Schedules in the file: what takes no lock, what the shell sees, and what a hand has tampered with.

use super::*;
use crate::invariant::InvariantTrigger;
use crate::store::{
    AuditFilter, Declared, MintRow, Minting, ScheduleChange, ScheduleRecord, ScheduleRow,
    StoreError, Tick,
};
use rusqlite::TransactionBehavior;

fn schedule(name: &str, definition: &str) -> ScheduleRow {
    let (owner, timing) = ("shop".to_owned(), "{\"every\": 60}".to_owned());
    ScheduleRow::new(name.to_owned(), owner, timing, definition.to_owned())
}

/// A store with the schedule `s`.
fn with_schedule() -> (Bench, ScheduleRecord) {
    let mut bench = Bench::new();
    let declared = bench.session.declare("shop", &[schedule("s", "{}")], true).expect("no fault");
    assert!(matches!(declared, Declared::Done { .. }));
    let record = bench.session.schedules().expect("no fault").remove(0);
    (bench, record)
}

/// A decision that mints a job for the tick of now.
fn decision(bench: &Bench, record: &ScheduleRecord) -> MintRow {
    let (name, now) = (record.row.name.clone(), bench.now());
    let mut row = MintRow::new(name.clone(), record.revision, now, None);
    row.job = Some(Box::new(JobRow { tick: Some(Tick::new(name, now)), ..job() }));
    row
}

#[test]
fn who_looks_for_schedules_waits_for_no_writer() {
    let (mut bench, record) = with_schedule();
    let mut host = bench.host();
    let tx = host.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
    let one = std::slice::from_ref(&record);
    assert_eq!(bench.session.due_schedules(9).expect("no fault").due, one);
    assert_eq!(bench.session.schedules().expect("no fault"), one);
    assert!(bench.session.mint(&[]).expect("no fault").rows.is_empty());
    let decided = decision(&bench, &record);
    let busy = bench.session.mint(std::slice::from_ref(&decided)).expect_err("somebody writes");
    assert_eq!(busy.trigger(), None);
    drop(tx);
    let minted = bench.session.mint(&[decided]).expect("no fault").rows;
    assert_eq!(minted, [Minting::Written { minted: true }]);
}

#[test]
fn the_shell_sees_schedules_and_the_ticks_of_jobs() {
    let (mut bench, record) = with_schedule();
    let host = bench.host();
    let shown = |columns: &str, view: &str| -> String {
        let sql = format!("SELECT concat_ws('|', {columns}) FROM backwave_{view}");
        host.query_row(&sql, [], |row| row.get(0)).expect("a row")
    };
    let texts = "name, owner, timing ->> 'every', is_paused, skipped";
    let rare = "last_job, last_tick, last_skip_reason, error";
    assert_eq!(shown(texts, "schedules_v1"), "s|shop|60|0|0");
    assert_eq!(shown(rare, "schedules_v1"), "");
    let mut row = decision(&bench, &record);
    row.missed = Some((2, bench.now()));
    row.error = Some("half of it".to_owned());
    let id = row.job.as_ref().expect("it mints").id;
    bench.session.mint(&[row]).expect("no fault");
    let at = "2027-01-15T08:00:00.000Z";
    assert_eq!(
        shown("settled_to, last_tick, last_skipped_tick", "schedules_v1"),
        [at; 3].join("|")
    );
    let told = format!("{id}|{at}|Missed|half of it");
    assert_eq!(shown(rare, "schedules_v1"), told);
    assert_eq!(shown("id, schedule, tick", "jobs_v3"), format!("{id}|s|{at}"));
}

#[test]
fn a_write_of_a_schedule_that_is_swallowed_is_a_violation_and_undone() {
    type Call = fn(&mut Bench, &ScheduleRecord) -> StoreError;
    let calls: [(&str, Call); 5] = [
        ("UPDATE", |bench, record| {
            let row = decision(bench, record);
            bench.session.mint(&[row]).expect_err("it is lost")
        }),
        ("UPDATE", |bench, _| {
            let pause = ScheduleChange::Pause;
            bench.session.change_schedule("ada", "s", &pause).expect_err("it is lost")
        }),
        ("DELETE", |bench, _| {
            let remove = ScheduleChange::Remove;
            bench.session.change_schedule("ada", "s", &remove).expect_err("it is lost")
        }),
        ("INSERT", |bench, _| {
            let rows = [schedule("s", "[]"), schedule("t", "{}")];
            bench.session.declare("shop", &rows, false).expect_err("it is lost")
        }),
        ("DELETE", |bench, _| {
            bench.session.declare("shop", &[schedule("t", "{}")], true).expect_err("it is lost")
        }),
    ];
    for (verb, call) in calls {
        let (mut bench, record) = with_schedule();
        let lie = format!(
            "CREATE TRIGGER lie BEFORE {verb} ON backwave_schedules BEGIN SELECT RAISE(IGNORE); END"
        );
        bench.host().execute_batch(&lie).expect("made");
        let error = call(&mut bench, &record);
        let trigger = Some(InvariantTrigger::UnexpectedAffectedRowCount);
        assert_eq!(error.trigger(), trigger, "{verb}");
        assert_eq!(bench.session.schedules().expect("no fault"), [record]);
        assert!(bench.session.counts().expect("no fault").is_empty());
        assert!(bench.session.audit(&AuditFilter::default()).expect("no fault").is_empty());
    }
}

#[test]
fn a_stored_reason_that_is_none_is_never_guessed() {
    let (mut bench, record) = with_schedule();
    let mut row = MintRow::new("s".to_owned(), record.revision, bench.now(), None);
    row.missed = Some((1, bench.now()));
    bench.session.mint(&[row]).expect("no fault");
    bench.host().execute("UPDATE backwave_schedules SET skip_reason = 9", []).expect("set");
    let undefined = Some(InvariantTrigger::UndefinedEnumValueStored);
    assert_eq!(bench.session.schedules().expect_err("a guess").trigger(), undefined);
    let change = ScheduleChange::Pause;
    let error = bench.session.change_schedule("ada", "s", &change).expect_err("a guess");
    assert_eq!(error.trigger(), undefined);
}
