//! How schedules are declared, told, and found when they are to be looked at.

use super::Fixture;
use super::desk::{Desk, SECOND, TICK};
use super::schedules_desk::{
    MINUTE, NEW, NOT_NEW, OWNER, defined, minted, moved, schedule, timed, with_schedule,
};
use crate::Timestamp;
use crate::store::{Declaration, Declared, MintRow, ScheduleRecord, ScheduleRow};

pub(super) fn nothing_is_there_before_something_is_declared(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    assert!(desk.schedules().is_empty());
    let due = desk.due_schedules(9);
    assert!(due.due.is_empty());
    assert_eq!(due.next_at, None);
    assert!(desk.declare_whole(OWNER, &[]).is_empty());
}

pub(super) fn a_schedule_is_told_as_it_was_declared(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let row = ScheduleRow { definition: "{\"wire\":1}".to_owned(), ..timed("s", "[1]") };
    let at = desk.now();
    assert_eq!(desk.declare_some(std::slice::from_ref(&row)), [Declaration::Added]);
    desk.wait(SECOND);
    let told = desk.schedules();
    assert_eq!(told, [ScheduleRecord::new(row, at)]);
    assert_eq!((told[0].cursor, told[0].look_at, told[0].revision), (at, Some(at), 1));
}

pub(super) fn schedules_are_told_by_the_bytes_of_their_names(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let names = ["b", "é", "B", "a b", "a", "a\u{7f}b", "aB"];
    desk.declare_some(&names.map(schedule));
    let mut sorted = names.map(str::to_owned).to_vec();
    sorted.sort();
    assert_eq!(desk.schedule_names(), sorted);
}

pub(super) fn odd_names_owners_and_texts_are_kept_byte_by_byte(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for name in ["'; DROP TABLE schedules; --", "ünïcode \u{1f980}", "S", "s", "100%_\\"] {
        let row = ScheduleRow::new(
            name.to_owned(),
            name.to_owned(),
            format!("{{\"{name}\": \"\\u0000\"}}"),
            "[1.50, 1e3,  {\"a\":1,\"a\":2}]".to_owned(),
        );
        assert!(desk.declare_whole(name, std::slice::from_ref(&row)).is_empty());
        assert_eq!(desk.schedule(name).row, row);
    }
    assert_eq!(desk.schedules().len(), 5);
}

pub(super) fn what_is_declared_again_just_so_is_not_written(fixture: &Fixture) {
    let (mut desk, before) = with_schedule(fixture);
    for is_whole in [false, true] {
        let Declared::Done { rows, removed, .. } = desk.declare(OWNER, &[schedule("s")], is_whole)
        else {
            panic!("it is the owner's own")
        };
        assert_eq!((rows, removed.len()), (vec![Declaration::Unchanged], 0));
        assert_eq!(desk.schedule("s"), before);
    }
    let row = moved(&before, desk.now());
    assert_eq!(desk.mint_one(&row), NOT_NEW, "what was decided before holds");
}

pub(super) fn a_changed_timing_begins_anew_at_its_change(fixture: &Fixture) {
    let (mut desk, before) = with_schedule(fixture);
    let error = Some("no such zone".to_owned());
    let row = MintRow { error, ..minted(&before, desk.now(), &super::desk::row()) };
    assert_eq!(desk.mint_one(&row), NEW);
    let before = desk.schedule("s");
    let now = desk.wait(MINUTE * 90);
    assert_eq!(desk.declare_some(&[timed("s", "2")]), [Declaration::Changed]);
    let after = desk.schedule("s");
    let expected = ScheduleRecord {
        row: timed("s", "2"),
        revision: before.revision + 1,
        cursor: now,
        look_at: Some(now),
        next_tick: None,
        error: None,
        ..before
    };
    assert_eq!(after, expected, "its last tick and job are kept");
}

pub(super) fn a_changed_definition_keeps_the_cursor_and_the_next_look(fixture: &Fixture) {
    let (mut desk, before) = with_schedule(fixture);
    let row = minted(&before, desk.now(), &super::desk::row());
    assert_eq!(desk.mint_one(&row), NEW);
    let before = desk.schedule("s");
    desk.wait(SECOND);
    assert_eq!(desk.declare_some(&[defined("s", "2")]), [Declaration::Changed]);
    let revision = before.revision + 1;
    let expected = ScheduleRecord { row: defined("s", "2"), revision, ..before };
    assert_eq!(desk.schedule("s"), expected);
}

pub(super) fn a_changed_definition_is_looked_at_at_once_where_an_error_stood(fixture: &Fixture) {
    let (mut desk, before) = with_schedule(fixture);
    let (cursor, look_at) = (before.cursor, Some(desk.now() + MINUTE));
    let row = MintRow::new("s".to_owned(), before.revision, cursor, look_at);
    let row = MintRow { error: Some("unreadable".to_owned()), ..row };
    assert_eq!(desk.mint_one(&row), NOT_NEW);
    assert!(desk.due_names().is_empty());
    desk.wait(SECOND);
    desk.declare_some(&[defined("s", "2")]);
    let after = desk.schedule("s");
    assert_eq!((after.cursor, after.error), (cursor, None), "no tick is lost by it");
    assert_eq!(desk.due_names(), ["s"]);
}

pub(super) fn a_whole_set_takes_away_what_it_does_not_name(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.declare_some(&["d", "b", "a", "c"].map(schedule));
    let removed = desk.declare_whole(OWNER, &["e", "b"].map(schedule));
    assert_eq!(removed, ["a", "c", "d"]);
    assert_eq!(desk.schedule_names(), ["b", "e"]);
    assert_eq!(desk.due_names(), ["b", "e"]);
}

pub(super) fn a_part_of_a_set_takes_nothing_away(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.declare_whole(OWNER, &["a", "b"].map(schedule));
    desk.declare_some(&[timed("b", "2"), schedule("c")]);
    assert_eq!(desk.schedule_names(), ["a", "b", "c"]);
    desk.declare_some(&[]);
    assert_eq!(desk.schedule_names(), ["a", "b", "c"]);
}

pub(super) fn a_whole_set_takes_nothing_of_other_owners(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.declare_whole(OWNER, &["a", "b"].map(schedule));
    desk.declare_whole("stock", &["c", "d"].map(schedule));
    let owners: Vec<_> = desk.schedules().into_iter().map(|record| record.row.owner).collect();
    assert_eq!(owners, [OWNER, OWNER, "stock", "stock"]);
    assert_eq!(desk.declare_whole(OWNER, &[]), ["a", "b"]);
    assert_eq!(desk.schedule_names(), ["c", "d"]);
}

pub(super) fn a_name_of_another_owner_fails_the_whole_call(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.declare_whole("stock", &[schedule("b"), schedule("c")]);
    desk.declare_some(&[schedule("a"), schedule("z")]);
    let before = desk.schedules();
    desk.wait(SECOND);
    let rows = [timed("a", "2"), schedule("n"), schedule("c"), schedule("b")];
    for is_whole in [false, true] {
        let answer = desk.declare(OWNER, &rows, is_whole);
        assert_eq!(answer, Declared::Foreign { index: 2, owner: "stock".to_owned() });
        assert_eq!(desk.schedules(), before);
    }
}

pub(super) fn a_name_is_free_once_its_owner_has_dropped_it(fixture: &Fixture) {
    let (mut desk, before) = with_schedule(fixture);
    let row = minted(&before, desk.now(), &super::desk::row());
    assert_eq!(desk.mint_one(&row), NEW);
    assert_eq!(desk.declare_whole(OWNER, &[]), ["s"]);
    let now = desk.wait(SECOND);
    desk.declare_whole("stock", &[schedule("s")]);
    let row = ScheduleRow { owner: "stock".to_owned(), ..schedule("s") };
    assert_eq!(desk.schedules(), [ScheduleRecord::new(row, now)], "it starts anew");
}

pub(super) fn of_a_name_twice_in_one_call_the_last_stands(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let rows = [timed("s", "1"), timed("s", "2"), timed("s", "2")];
    let answers = [Declaration::Added, Declaration::Changed, Declaration::Unchanged];
    assert_eq!(desk.declare_some(&rows), answers);
    assert_eq!(desk.schedule("s").row.timing, "2");
    assert!(desk.declare_whole(OWNER, &rows[1..]).is_empty());
}

pub(super) fn a_schedule_is_looked_at_at_its_declaration(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let record = desk.add_schedule("s");
    let due = desk.due_schedules(1);
    assert_eq!((due.due, due.next_at), (vec![record], None));
}

/// Decides when a schedule is looked at next.
#[track_caller]
fn look_at(desk: &mut Desk, name: &str, at: Option<Timestamp>) {
    let record = desk.schedule(name);
    let row = MintRow { look_at: at, ..moved(&record, record.cursor) };
    assert_eq!(desk.mint_one(&row), NOT_NEW);
}

pub(super) fn a_schedule_is_looked_at_at_its_instant_and_not_before(fixture: &Fixture) {
    let (mut desk, _) = with_schedule(fixture);
    let at = desk.now() + MINUTE;
    look_at(&mut desk, "s", Some(at));
    fixture.clock().set(at.saturating_sub(TICK));
    let due = desk.due_schedules(9);
    assert_eq!((due.due.len(), due.next_at), (0, Some(at)));
    fixture.clock().set(at);
    let due = desk.due_schedules(9);
    assert_eq!((due.due, due.next_at), (vec![desk.schedule("s")], None));
}

pub(super) fn the_longest_due_come_first_and_then_by_name(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let start = desk.now();
    desk.declare_some(&["a", "b", "c", "d", "e"].map(schedule));
    for (name, seconds) in [("a", 3), ("b", 2), ("c", 3), ("d", 1), ("e", 4)] {
        look_at(&mut desk, name, Some(start + SECOND * seconds));
    }
    fixture.clock().set(start + SECOND * 3);
    assert_eq!(desk.due_names(), ["d", "b", "a", "c"]);
    assert_eq!(desk.due_schedules(9).next_at, Some(start + SECOND * 4));
}

pub(super) fn no_more_are_told_than_were_asked_for(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.declare_some(&["a", "b", "c"].map(schedule));
    let now = desk.now();
    for (max, count, next_at) in [(2, 2, Some(now)), (3, 3, None), (0, 1, Some(now))] {
        let due = desk.due_schedules(max);
        assert_eq!((due.due.len(), due.next_at), (count, next_at), "of {max} asked for");
    }
}

pub(super) fn a_schedule_that_has_ended_is_never_looked_at(fixture: &Fixture) {
    let (mut desk, _) = with_schedule(fixture);
    look_at(&mut desk, "s", None);
    desk.wait(MINUTE * 60 * 24 * 365);
    let due = desk.due_schedules(9);
    assert_eq!((due.due.len(), due.next_at), (0, None));
    assert_eq!(desk.schedule("s").look_at, None);
    desk.declare_some(&[timed("s", "2")]);
    assert_eq!(desk.due_names(), ["s"], "until its timing is another");
}

pub(super) fn looking_changes_nothing(fixture: &Fixture) {
    let (mut desk, record) = with_schedule(fixture);
    for _ in 0..3 {
        assert_eq!(desk.due_schedules(9).due, std::slice::from_ref(&record));
    }
    assert_eq!(desk.schedule("s"), record);
}

pub(super) fn hundreds_are_declared_by_one_call_and_looked_at_by_pages(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let rows: Vec<_> = (0..450).map(|number| schedule(&format!("s{number:03}"))).collect();
    assert_eq!(desk.declare_some(&rows), vec![Declaration::Added; 450]);
    let mut seen = Vec::new();
    for expected in [200, 200, 50] {
        let due = desk.due_schedules(u32::MAX).due;
        assert_eq!(due.len(), expected);
        let later = desk.now() + MINUTE;
        let decide = |record: &ScheduleRecord| MintRow {
            look_at: Some(later),
            ..moved(record, record.cursor)
        };
        assert!(
            desk.mint(&due.iter().map(decide).collect::<Vec<_>>()).iter().all(|m| *m == NOT_NEW)
        );
        seen.extend(due.into_iter().map(|record| record.row.name));
    }
    assert_eq!(seen, rows.iter().map(|row| row.name.clone()).collect::<Vec<_>>());
    assert_eq!(desk.declare_whole(OWNER, &rows[..1]).len(), 449);
}

pub(super) fn what_one_handle_declares_another_reads(fixture: &Fixture) {
    let (mut desk, record) = with_schedule(fixture);
    let other = fixture.reopen();
    let mut other = Desk::at(other.as_ref(), fixture.clock());
    let one = std::slice::from_ref(&record);
    assert_eq!((other.schedules().as_slice(), other.due_schedules(9).due.as_slice()), (one, one));
    let row = minted(&record, desk.now(), &super::desk::row());
    assert_eq!(other.mint_one(&row), NEW);
    assert_eq!(desk.schedules(), other.schedules());
}
