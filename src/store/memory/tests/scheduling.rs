//! What this room makes of schedules beyond the clauses that every store meets.

use super::{NOW, add, change, open, store};
use crate::store::{
    Declared, JobRow, MintRow, Minting, ScheduleChange, ScheduleRow, SkipReason, Tick,
};
use crate::{JobId, JobState, MemoryStore, Timestamp};

fn row(name: &str, timing: &str) -> ScheduleRow {
    ScheduleRow::new(name.to_owned(), "shop".to_owned(), timing.to_owned(), "{}".to_owned())
}

fn declare(store: &MemoryStore, rows: &[ScheduleRow]) {
    let declared = open(store).declare("shop", rows, true).unwrap();
    assert!(matches!(declared, Declared::Done { .. }), "{declared:?}");
}

fn tick(name: &str, revision: u64, at: Timestamp) -> MintRow {
    let mut row = MintRow::new(name.to_owned(), revision, at, Some(at));
    let tick = Some(Tick::new(name.to_owned(), at));
    row.job = Some(Box::new(JobRow { tick, ..JobRow::new(JobId::new(), "work") }));
    row.no_overlap = true;
    row
}

#[test]
fn the_same_id_twice_in_one_call_is_minted_once() {
    let store = store();
    declare(&store, &[row("a", "1"), row("b", "1")]);
    let first = tick("a", 1, NOW);
    let mut second = tick("b", 1, NOW);
    second.job.clone_from(&first.job);
    let minted = open(&store).mint(&[first, second]).unwrap();
    let (new, old) = (Minting::Written { minted: true }, Minting::Written { minted: false });
    assert_eq!(minted.rows, [new, old]);
    assert!(open(&store).schedules().unwrap().iter().all(|s| s.last_job.is_some()));
}

#[test]
fn a_second_row_for_a_schedule_that_an_earlier_one_has_settled_is_a_conflict() {
    let store = store();
    declare(&store, &[row("a", "1")]);
    let minted = open(&store).mint(&[tick("a", 1, NOW), tick("a", 1, NOW)]).unwrap();
    assert_eq!(minted.rows, [Minting::Written { minted: true }, Minting::Conflict]);
}

#[test]
fn a_purged_last_job_does_not_overlap() {
    let store = store();
    declare(&store, &[row("a", "1")]);
    let first = tick("a", 1, NOW);
    let id = first.job.as_ref().unwrap().id;
    open(&store).mint(&[first]).unwrap();
    let overlapped = open(&store).mint(&[tick("a", 2, NOW)]).unwrap();
    assert_eq!(overlapped.rows, [Minting::Overlapped]);
    let record = open(&store).schedules().unwrap().remove(0);
    assert_eq!((record.skipped, record.last_skip), (1, Some((NOW, SkipReason::Overlap))));
    change(&store, |all| {
        let slot = all.by_id[&id];
        all.remove(slot).unwrap();
    });
    let minted = open(&store).mint(&[tick("a", 3, NOW)]).unwrap();
    assert_eq!(minted.rows, [Minting::Written { minted: true }]);
}

#[test]
fn the_index_of_looks_follows_every_change() {
    let store = store();
    declare(&store, &[row("a", "1"), row("b", "1"), row("c", "1")]);
    let names = |max| {
        let found = open(&store).due_schedules(max).unwrap();
        (found.due.into_iter().map(|s| s.row.name).collect::<Vec<_>>(), found.next_at)
    };
    assert_eq!(names(2), (vec!["a".to_owned(), "b".to_owned()], Some(NOW)));
    open(&store).change_schedule("ada", "a", &ScheduleChange::Pause).unwrap();
    open(&store).change_schedule("ada", "b", &ScheduleChange::Remove).unwrap();
    assert_eq!(names(9), (vec!["c".to_owned()], None));
    open(&store).mint(&[MintRow::new("c".to_owned(), 1, NOW, None)]).unwrap();
    assert_eq!(names(9), (vec![], None));
    open(&store).change_schedule("ada", "a", &ScheduleChange::Resume).unwrap();
    declare(&store, &[row("a", "1"), row("c", "2")]);
    assert_eq!(names(9).0, ["a", "c"]);
    declare(&store, &[]);
    assert_eq!(open(&store).schedules().unwrap(), []);
}

#[test]
fn a_triggered_job_is_none_of_a_tick() {
    let store = store();
    let existing = add(&store);
    declare(&store, &[row("a", "1")]);
    let before = open(&store).schedules().unwrap();
    let job = JobRow::new(JobId::new(), "work");
    let trigger = ScheduleChange::Trigger(Box::new(job.clone()));
    open(&store).change_schedule("ada", "a", &trigger).unwrap();
    assert_eq!(open(&store).schedules().unwrap(), before);
    assert_eq!(super::state(&store, job.id), JobState::Scheduled);
    let again = ScheduleChange::Trigger(Box::new(JobRow::new(existing, "work")));
    open(&store).change_schedule("ada", "a", &again).unwrap();
    let audit = open(&store).audit(&Default::default()).unwrap();
    let subjects: Vec<_> = audit.iter().map(|record| (record.job, &record.subject)).collect();
    assert_eq!(subjects, [(Some(job.id), &Some("a".to_owned()))]);
}
