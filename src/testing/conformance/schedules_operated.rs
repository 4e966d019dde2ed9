//! What operators do with schedules, and leave behind.

use super::Fixture;
use super::desk::{ACTOR, SECOND, row};
use super::schedules_desk::{
    MINUTE, NEW, NOT_NEW, OWNER, defined, minted, moved, schedule, timed, with_schedule,
};
use crate::store::{
    AuditAction, AuditFilter, Body, JobRow, Minting, Rejection, ScheduleAnswer, ScheduleChange,
    ScheduleRecord,
};
use crate::{JobId, JobState, WorkerId};

fn trigger(job: &JobRow) -> ScheduleChange {
    ScheduleChange::Trigger(Box::new(job.clone()))
}

pub(super) fn a_paused_schedule_is_not_looked_at(fixture: &Fixture) {
    let (mut desk, before) = with_schedule(fixture);
    desk.add_schedule("t");
    assert!(desk.change_schedule("s", ScheduleChange::Pause));
    let paused = desk.schedule("s");
    let revision = before.revision + 1;
    assert_eq!(paused, ScheduleRecord { is_paused: true, revision, ..before });
    assert_eq!(desk.due_names(), ["t"]);
    assert!(desk.change_schedule("t", ScheduleChange::Pause));
    let due = desk.due_schedules(9);
    assert_eq!((due.due.len(), due.next_at), (0, None), "nor is anything to come");
}

pub(super) fn a_pause_survives_a_declaration(fixture: &Fixture) {
    let (mut desk, _) = with_schedule(fixture);
    desk.change_schedule("s", ScheduleChange::Pause);
    for row in [schedule("s"), defined("s", "2"), timed("s", "2")] {
        desk.declare_whole(OWNER, &[row]);
        assert!(desk.schedule("s").is_paused);
        assert!(desk.due_names().is_empty());
    }
}

pub(super) fn a_resumed_schedule_goes_on_from_now(fixture: &Fixture) {
    let (mut desk, record) = with_schedule(fixture);
    assert_eq!(desk.mint_one(&moved(&record, desk.now())), NOT_NEW);
    desk.change_schedule("s", ScheduleChange::Pause);
    let paused = desk.schedule("s");
    let now = desk.wait(MINUTE * 60 * 24 * 3);
    assert!(desk.change_schedule("s", ScheduleChange::Resume));
    let resumed = ScheduleRecord {
        is_paused: false,
        revision: paused.revision + 1,
        cursor: now,
        look_at: Some(now),
        next_tick: None,
        ..paused
    };
    assert_eq!(desk.schedule("s"), resumed);
    assert_eq!(desk.due_names(), ["s"]);
}

pub(super) fn a_resume_never_moves_a_cursor_back(fixture: &Fixture) {
    let (mut desk, record) = with_schedule(fixture);
    let tick = desk.now();
    desk.mint_one(&moved(&record, tick));
    desk.change_schedule("s", ScheduleChange::Pause);
    // The store's clock steps back behind what is settled.
    let now = tick.saturating_sub(MINUTE);
    fixture.clock().set(now);
    desk.change_schedule("s", ScheduleChange::Resume);
    let resumed = desk.schedule("s");
    assert_eq!((resumed.cursor, resumed.look_at), (tick, Some(now)));
}

pub(super) fn pausing_and_resuming_twice_changes_something_once(fixture: &Fixture) {
    let (mut desk, _) = with_schedule(fixture);
    for change in [ScheduleChange::Pause, ScheduleChange::Resume] {
        assert!(desk.change_schedule("s", change.clone()));
        let once = desk.schedule("s");
        desk.wait(SECOND);
        assert!(!desk.change_schedule("s", change));
        assert_eq!(desk.schedule("s"), once);
    }
    let deeds = [AuditAction::ResumeSchedule, AuditAction::PauseSchedule];
    assert_eq!(desk.deeds(), deeds.map(|deed| (deed, None)));
}

pub(super) fn a_removed_schedule_is_gone_and_its_jobs_stay(fixture: &Fixture) {
    let (mut desk, _) = with_schedule(fixture);
    desk.add_schedule("t");
    let job = desk.mint_now("s", &row());
    assert!(desk.change_schedule("s", ScheduleChange::Remove));
    assert_eq!(desk.schedule_names(), ["t"]);
    assert_eq!(desk.due_names(), ["t"]);
    assert_eq!(desk.take_one(WorkerId::new()).id, job);
    assert_eq!(desk.operate("s", ScheduleChange::Remove), ScheduleAnswer::NotFound);
}

pub(super) fn a_removed_schedule_that_is_declared_again_starts_anew(fixture: &Fixture) {
    let (mut desk, _) = with_schedule(fixture);
    desk.mint_now("s", &row());
    desk.change_schedule("s", ScheduleChange::Pause);
    desk.change_schedule("s", ScheduleChange::Remove);
    let now = desk.wait(MINUTE);
    assert_eq!(desk.add_schedule("s"), ScheduleRecord::new(schedule("s"), now));
}

pub(super) fn a_trigger_mints_a_job_beside_the_ticks(fixture: &Fixture) {
    let (mut desk, before) = with_schedule(fixture);
    let job = row();
    assert!(desk.change_schedule("s", trigger(&job)));
    assert_eq!(desk.schedule("s"), before, "cursor and last job stay");
    let taken = desk.take_one(WorkerId::new());
    assert_eq!((taken.id, taken.tick), (job.id, None));
    assert_eq!(desk.mint_one(&moved(&before, desk.now())), NOT_NEW, "what was decided holds");
}

pub(super) fn a_paused_schedule_can_be_triggered(fixture: &Fixture) {
    let (mut desk, _) = with_schedule(fixture);
    desk.change_schedule("s", ScheduleChange::Pause);
    let job = row();
    assert!(desk.change_schedule("s", trigger(&job)));
    assert_eq!(desk.state(job.id), JobState::Scheduled);
    assert!(desk.schedule("s").is_paused);
}

pub(super) fn a_trigger_repeated_after_a_lost_answer_mints_once(fixture: &Fixture) {
    let (mut desk, _) = with_schedule(fixture);
    let job = row();
    assert!(desk.change_schedule("s", trigger(&job)));
    let stored = desk.job(job.id);
    desk.wait(SECOND);
    assert!(!desk.change_schedule("s", trigger(&job)));
    assert_eq!(desk.job(job.id), stored);
    assert_eq!(desk.deeds(), [(AuditAction::TriggerSchedule, Some(job.id))]);
}

pub(super) fn a_triggered_job_that_is_refused_leaves_nothing(fixture: &Fixture) {
    let (mut desk, before) = with_schedule(fixture);
    let bytes = fixture.store().bounds().payload_bytes_max + 1;
    let large = JobRow { payload: Body::new(vec![b' '; bytes]), ..row() };
    let orphan = JobRow { parents: vec![JobId::new()], ..row() };
    let answer = desk.operate("s", trigger(&large));
    let limit = bytes - 1;
    let expected = Rejection::PayloadTooLarge { bytes, limit };
    assert_eq!(answer, ScheduleAnswer::Rejected(expected));
    let answer = desk.operate("s", trigger(&orphan));
    let expected = Rejection::UnknownParent { parent: orphan.parents[0] };
    assert_eq!(answer, ScheduleAnswer::Rejected(expected));
    assert!(desk.find(large.id).is_none() && desk.find(orphan.id).is_none());
    assert!(desk.deeds().is_empty());
    assert_eq!(desk.schedule("s"), before);
}

pub(super) fn what_is_not_there_cannot_be_changed(fixture: &Fixture) {
    let (mut desk, before) = with_schedule(fixture);
    let job = row();
    let changes =
        [ScheduleChange::Pause, ScheduleChange::Resume, ScheduleChange::Remove, trigger(&job)];
    for change in changes {
        for name in ["S", "s ", ""] {
            assert_eq!(desk.operate(name, change.clone()), ScheduleAnswer::NotFound);
        }
    }
    assert!(desk.find(job.id).is_none());
    assert!(desk.deeds().is_empty());
    assert_eq!(desk.schedules(), [before]);
}

pub(super) fn each_action_is_audited_with_its_schedule(fixture: &Fixture) {
    let (mut desk, _) = with_schedule(fixture);
    let job = JobRow { queue: "mail".to_owned(), ..row() };
    let mut expected = Vec::new();
    let changes = [
        (ScheduleChange::Pause, AuditAction::PauseSchedule),
        (ScheduleChange::Resume, AuditAction::ResumeSchedule),
        (trigger(&job), AuditAction::TriggerSchedule),
        (ScheduleChange::Remove, AuditAction::RemoveSchedule),
    ];
    for (change, action) in changes {
        let at = desk.wait(SECOND);
        desk.change_schedule("s", change);
        let (id, queue) = match action {
            AuditAction::TriggerSchedule => (Some(job.id), "mail"),
            _ => (None, ""),
        };
        expected.insert(0, (at, action, id, queue.to_owned()));
    }
    let all = desk.audit(&AuditFilter::default());
    assert!(all.iter().all(|told| told.actor == ACTOR));
    assert!(all.iter().all(|told| told.subject.as_deref() == Some("s")));
    let told: Vec<_> =
        all.into_iter().map(|told| (told.at, told.action, told.job, told.queue)).collect();
    assert_eq!(told, expected);
    let of_job = desk.audit(&AuditFilter { job: Some(job.id), ..AuditFilter::default() });
    assert_eq!(of_job.len(), 1, "it is found by its job");
}

pub(super) fn a_declaration_and_a_mint_are_no_operators_deeds(fixture: &Fixture) {
    let (mut desk, _) = with_schedule(fixture);
    desk.mint_now("s", &row());
    desk.declare_whole(OWNER, &[timed("s", "2")]);
    desk.declare_whole(OWNER, &[]);
    assert!(desk.deeds().is_empty());
}

pub(super) fn what_was_decided_before_a_pause_is_not_minted_after_it(fixture: &Fixture) {
    let (mut desk, record) = with_schedule(fixture);
    let decided = minted(&record, desk.now(), &row());
    desk.change_schedule("s", ScheduleChange::Pause);
    assert_eq!(desk.mint_one(&decided), Minting::Conflict);
    let paused = desk.schedule("s");
    let decided = minted(&paused, desk.now(), &row());
    assert_eq!(desk.mint_one(&decided), Minting::Conflict, "nor what was decided meanwhile");
    assert_eq!(desk.schedule("s"), paused);
    desk.change_schedule("s", ScheduleChange::Resume);
    let resumed = desk.schedule("s");
    assert_eq!(desk.mint_one(&minted(&resumed, desk.now(), &row())), NEW);
}
