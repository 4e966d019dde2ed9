//! Looks at schedules and what is decided by them: when they are asked for, and what a bad one cannot do.

use super::*;
use crate::kernel::schedule::{Definition, Plan, TimingText};
use crate::store::{
    JobRow, MintRow, Minting, Rejection, ScheduleRecord, ScheduleRow, SkipReason, Tick,
};

fn scene() -> Scene {
    let mut scene = Scene::of(DriverConfig { schedules: Looks::OnTime, ..config(2) });
    scene.quiet_but_for_looks();
    scene
}

/// A schedule that ticks every `seconds`, and has ticked up to a second ago.
fn record(name: &str, now: Timestamp) -> ScheduleRecord {
    let row = ScheduleRow::new(name.to_owned(), "o".to_owned(), String::new(), String::new());
    ScheduleRecord::new(row, now.saturating_sub(secs(1)))
}

fn plan(seconds: u64) -> Plan {
    let text = TimingText { every_us: Some(seconds * 1_000_000), ..TimingText::default() };
    let mut definition = Definition::of(JobRow::new(JobId::new(), "report")).unwrap();
    definition.grace_us = 60_000_000;
    let timing = text.resolve(&|_| Err(String::new())).unwrap();
    Plan { timing, definition, may_move: false }
}

impl Scene {
    /// Answers the claim of the beginning, and leaves the look.
    #[track_caller]
    fn quiet_but_for_looks(&mut self) {
        self.expect_claim();
        let look = self.said.pop_front();
        self.tell(Event::Claimed(Claimed::new(Vec::new(), self.now)));
        self.said.extend(look);
    }

    #[track_caller]
    fn expect_look(&mut self) {
        take!(self, Command::LookAtSchedules { max } => assert_eq!(max, 50));
    }

    #[track_caller]
    fn expect_mint(&mut self) -> Vec<MintRow> {
        take!(self, Command::Mint { rows } => rows)
    }

    fn looked_at(&mut self, looks: Vec<Look>, next_at: Option<Timestamp>) {
        let store_time = self.now;
        self.tell(Event::SchedulesLookedAt { looks, next_at, store_time });
    }

    fn minted(&mut self, rows: Vec<Minting>) {
        self.tell(Event::Minted(Minted::new(rows, self.now)));
    }

    fn look_of(&self, name: &str, seconds: u64) -> Look {
        Look { record: record(name, self.now), plan: Ok(plan(seconds)) }
    }

    /// A round of maintenance, of which only the look is of interest.
    #[track_caller]
    fn upkeep_but_for_looks(&mut self) {
        self.tell(Event::UpkeepDue);
    }
}

#[test]
fn a_pump_looks_at_its_beginning_and_with_each_round_of_maintenance() {
    let mut scene = scene();
    scene.expect_look();
    scene.looked_at(Vec::new(), None);
    scene.nothing();
    scene.upkeep_but_for_looks();
    scene.expect_look();
}

#[test]
fn a_pump_that_stands_in_for_the_first_looks_in_rounds_only() {
    let mut scene = Scene::of(DriverConfig { schedules: Looks::InRounds, ..config(2) });
    scene.quiet_but_for_looks();
    scene.expect_look();
    scene.looked_at(Vec::new(), Some(scene.now + secs(1)));
    scene.pass(secs(1));
    scene.said.retain(|command| !matches!(command, Command::Claim(_)));
    scene.nothing();
    scene.upkeep_but_for_looks();
    scene.expect_look();
}

#[test]
fn a_pump_that_keeps_no_schedules_never_looks() {
    let mut scene = Scene::new(2);
    scene.quiet();
    scene.tell(Event::SchedulesChanged);
    scene.nothing();
}

#[test]
fn a_declaration_in_this_process_is_looked_at_at_once() {
    let mut scene = scene();
    scene.expect_look();
    scene.looked_at(Vec::new(), None);
    scene.tell(Event::SchedulesChanged);
    scene.expect_look();
    // One more while the look is under way is looked at after it.
    scene.tell(Event::SchedulesChanged);
    scene.nothing();
    scene.looked_at(Vec::new(), None);
    scene.expect_look();
}

#[test]
fn what_is_due_is_decided_written_and_looked_at_when_it_ticks_next() {
    let mut scene = scene();
    scene.expect_look();
    let (due, later) = (scene.look_of("due", 1), scene.now + secs(60));
    scene.looked_at(vec![due], Some(later));
    let rows = scene.expect_mint();
    let tick = rows[0].job.as_ref().and_then(|job| job.tick.clone());
    assert_eq!(tick, Some(Tick::new("due".to_owned(), scene.now)));
    scene.nothing();
    scene.minted(vec![Minting::Written { minted: true }]);
    let job = rows[0].job.as_ref().unwrap().id;
    assert_eq!(scene.notes, [Note::TickMinted { schedule: "due".to_owned(), job }]);
    scene.nothing();
    assert_eq!(scene.driver.wake_at(), Some(scene.now + secs(1)));
    scene.pass(secs(1));
    scene.said.retain(|command| !matches!(command, Command::Claim(_)));
    scene.expect_look();
}

#[test]
fn a_clock_ahead_of_the_stores_does_not_make_it_look_without_rest() {
    let mut scene = scene();
    scene.expect_look();
    let a_little_ago = scene.now.saturating_sub(ms(1));
    scene.looked_at(Vec::new(), Some(a_little_ago));
    scene.nothing();
    assert_eq!(scene.driver.wake_at(), Some(scene.now + ms(5)));
}

#[test]
fn a_refused_job_becomes_the_error_of_its_schedule_and_the_others_go_on() {
    let mut scene = scene();
    scene.expect_look();
    let looks = vec![scene.look_of("bad", 1), scene.look_of("good", 1)];
    scene.looked_at(looks, None);
    assert_eq!(scene.expect_mint().len(), 2);
    let rejected = Minting::Rejected(Rejection::ZeroTimeout);
    scene.minted(vec![rejected, Minting::Written { minted: true }]);
    let rows = scene.expect_mint();
    let error = "its job is refused: the time limit of an attempt is zero";
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].name.as_str(), rows[0].error.as_deref()), ("bad", Some(error)));
    assert_eq!((rows[0].job.as_ref(), rows[0].revision), (None, 1));
    assert_eq!(rows[0].cursor, scene.now.saturating_sub(secs(1)), "the tick is not settled");
    assert_eq!(rows[0].look_at, Some(scene.now + secs(60)));
    scene.minted(vec![Minting::Written { minted: false }]);
    let told = Note::ScheduleFailed { schedule: "bad".to_owned(), error: error.to_owned() };
    assert_eq!(scene.notes.last(), Some(&told));
    scene.nothing();
}

#[test]
fn a_schedule_that_does_not_read_is_told_once_and_halts_nothing() {
    let mut scene = scene();
    scene.expect_look();
    let mut broken = Look { record: record("broken", scene.now), plan: Err("wrong".to_owned()) };
    broken.record.error = Some(("wrong".to_owned(), scene.now.saturating_sub(secs(600))));
    let fresh = Look { record: record("fresh", scene.now), plan: Err("wrong".to_owned()) };
    scene.looked_at(vec![broken, fresh], None);
    let rows = scene.expect_mint();
    assert!(rows.iter().all(|row| row.error.as_deref() == Some("wrong") && row.job.is_none()));
    assert_eq!(rows[0].look_at, Some(scene.now + secs(600)));
    scene.minted(vec![Minting::Written { minted: false }; 2]);
    let told = Note::ScheduleFailed { schedule: "fresh".to_owned(), error: "wrong".to_owned() };
    assert_eq!(scene.notes, [told]);
}

#[test]
fn conflicts_are_silent_and_skipped_ticks_are_told() {
    let mut scene = scene();
    scene.expect_look();
    let looks = ["a", "b", "c"].map(|name| scene.look_of(name, 1));
    scene.looked_at(looks.into(), None);
    scene.expect_mint();
    scene.minted(vec![Minting::Conflict, Minting::Gone, Minting::Overlapped]);
    let (schedule, reason) = ("c".to_owned(), SkipReason::Overlap);
    assert_eq!(scene.notes, [Note::TicksSkipped { schedule, count: 1, reason }]);

    scene.tell(Event::SchedulesChanged);
    scene.expect_look();
    let mut late = scene.look_of("late", 3600);
    late.record.cursor = scene.now.saturating_sub(secs(3 * 3600));
    scene.looked_at(vec![late], None);
    let missed = scene.expect_mint()[0].missed;
    assert_eq!(missed.map(|(count, _)| count), Some(3));
    scene.minted(vec![Minting::Written { minted: false }]);
    let (schedule, reason) = ("late".to_owned(), SkipReason::Missed);
    assert_eq!(scene.notes.last(), Some(&Note::TicksSkipped { schedule, count: 3, reason }));
}

#[test]
fn after_a_fault_the_next_round_of_maintenance_looks_again() {
    let mut scene = scene();
    scene.expect_look();
    scene.tell(Event::SchedulesFailed);
    scene.nothing();
    assert!(scene.driver.wake_at().is_none_or(|at| at > scene.now));
    scene.upkeep_but_for_looks();
    scene.expect_look();
    scene.said.clear();
    let look = scene.look_of("a", 1);
    scene.looked_at(vec![look], None);
    scene.expect_mint();
    scene.tell(Event::SchedulesFailed);
    scene.said.clear();
    scene.tell(Event::SchedulesChanged);
    scene.expect_look();
}

#[test]
fn an_answer_of_another_length_halts() {
    let mut scene = scene();
    scene.expect_look();
    let look = scene.look_of("a", 1);
    scene.looked_at(vec![look], None);
    scene.expect_mint();
    let event = Event::Minted(Minted::new(Vec::new(), scene.now));
    scene.tell_halting(event, InvariantTrigger::UnexpectedAffectedRowCount);
}

#[test]
fn a_stopping_pump_settles_what_is_under_way_and_looks_no_more() {
    let mut scene = scene();
    scene.expect_look();
    scene.stop();
    scene.nothing();
    let look = scene.look_of("a", 1);
    scene.looked_at(vec![look], Some(scene.now));
    assert!(matches!(scene.next(), Some(Command::Stopped)));
    scene.nothing();
}
