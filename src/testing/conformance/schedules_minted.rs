//! How decisions about schedules are written, and what their jobs carry.

use super::Fixture;
use super::desk::{ACTOR, Desk, LEASE, SECOND, accepts, outcome, quota, retry, row, sound};
use super::schedules_desk::{
    MINUTE, NEW, NOT_NEW, OWNER, defined, minted, moved, schedule, timed, with_schedule,
};
use crate::store::{
    Body, Claim, Due, HistoryPolicy, JobFilter, JobRow, MintRow, Minting, Outcome, Page, Rejection,
    ScheduleRecord, SkipReason, Tick, TransitionBy,
};
use crate::{JobId, JobState, RetryPolicy, WorkerId};
use std::time::Duration;

pub(super) fn a_tick_mints_its_job_and_moves_the_cursor(fixture: &Fixture) {
    let (mut desk, before) = with_schedule(fixture);
    let (tick, job) = (desk.now(), row());
    let now = desk.wait(SECOND);
    assert_eq!(desk.mint_one(&minted(&before, tick, &job)), NEW);
    let expected = ScheduleRecord {
        revision: before.revision + 1,
        cursor: tick,
        look_at: Some(tick + MINUTE),
        next_tick: Some(tick + MINUTE),
        last_tick: Some(tick),
        last_job: Some(job.id),
        ..before
    };
    assert_eq!(desk.schedule("s"), expected);
    let stored = desk.job(job.id);
    assert_eq!((stored.state, stored.created_at), (JobState::Scheduled, now));
    assert_eq!(desk.take_one(WorkerId::new()).id, job.id, "it is claimable at once");
}

pub(super) fn a_decision_without_a_job_moves_the_cursor_only(fixture: &Fixture) {
    let (mut desk, before) = with_schedule(fixture);
    let last = desk.mint_now("s", &row());
    let before = ScheduleRecord { last_tick: Some(desk.now()), last_job: Some(last), ..before };
    let tick = desk.wait(MINUTE);
    let record = desk.schedule("s");
    let row = MintRow { look_at: None, next_tick: None, ..moved(&record, tick) };
    assert_eq!(desk.mint_one(&row), NOT_NEW);
    let revision = record.revision + 1;
    let expected = ScheduleRecord { revision, cursor: tick, look_at: None, ..before };
    assert_eq!(desk.schedule("s"), expected);
    assert_eq!(desk.counts(), [("default".to_owned(), JobState::Scheduled, 1)]);
}

pub(super) fn a_minted_job_is_what_it_was_asked_to_be(fixture: &Fixture) {
    let (mut desk, record) = with_schedule(fixture);
    let tick = desk.now();
    let job = JobRow {
        version: 3,
        queue: "reports".to_owned(),
        payload: Body::new(b"{\"a\": 1}".to_vec()),
        due: Due::At(tick + SECOND * 5),
        retry: Some(RetryPolicy::new(2)),
        timeout: Some(Duration::from_secs(7)),
        tags: vec!["nightly".to_owned()],
        ..row()
    };
    assert_eq!(desk.mint_one(&minted(&record, tick, &job)), NEW);
    let stored = desk.job(job.id);
    assert_eq!((&stored.wire_name, stored.version), (&job.wire_name, 3));
    assert_eq!((&stored.queue, &stored.payload), (&job.queue, &job.payload));
    assert_eq!(stored.due_at, tick + SECOND * 5, "a delayed one is due when it says");
    assert_eq!((stored.retry, stored.timeout), (job.retry, job.timeout));
    assert_eq!(stored.tags, job.tags);
    assert_eq!(stored.tick, Some(Tick::new("s".to_owned(), tick)), "whenever it is due");
}

pub(super) fn a_tick_is_carried_to_the_claim_and_told_with_the_job(fixture: &Fixture) {
    let (mut desk, record) = with_schedule(fixture);
    let at = desk.now().saturating_sub(MINUTE * 3);
    let job = row();
    desk.mint_one(&minted(&record, at, &job));
    let tick = Some(Tick::new("s".to_owned(), at));
    assert_eq!(desk.job(job.id).tick, tick);
    let found = sound(desk.session.find(&JobFilter::new(), &Page::new(9))).jobs;
    assert_eq!(found[0].tick, tick);
    let taken = desk.take_one(WorkerId::new());
    assert_eq!(taken.tick, tick);
    desk.settle(&outcome(&taken, retry(Duration::ZERO)));
    let again = desk.take_one(WorkerId::new());
    assert_eq!((again.attempt, &again.tick), (2, &tick), "at each attempt");
    desk.settle(&outcome(&again, Outcome::Succeeded));
    assert_eq!(desk.job(job.id).tick, tick, "to the end");
}

pub(super) fn an_exchange_carries_the_tick_too(fixture: &Fixture) {
    let (mut desk, record) = with_schedule(fixture);
    let held = desk.hold(WorkerId::new());
    let tick = Tick::new("s".to_owned(), desk.now());
    desk.mint_one(&minted(&record, tick.at, &row()));
    let plain = desk.add(&row());
    let (plan, accepted) = ([quota("default", 9)], [accepts("work", 1)]);
    let claim = Claim::new(WorkerId::new(), 9, &plan, &accepted, LEASE);
    let claimed = desk.exchange(&[outcome(&held, Outcome::Succeeded)], &claim).claimed;
    let ticks: Vec<_> =
        claimed.jobs.iter().map(|job| (job.id == plain, job.tick.clone())).collect();
    assert_eq!(ticks, [(false, Some(tick)), (true, None)]);
}

pub(super) fn a_job_that_no_schedule_minted_carries_no_tick(fixture: &Fixture) {
    let (mut desk, _) = with_schedule(fixture);
    let id = desk.add(&row());
    assert_eq!(desk.job(id).tick, None);
    assert_eq!(desk.take_one(WorkerId::new()).tick, None);
}

pub(super) fn an_enqueue_keeps_a_tick_like_a_mint(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let tick = Some(Tick::new("s'\u{1f980}".to_owned(), crate::Timestamp::MIN));
    let job = JobRow { tick: tick.clone(), ..row() };
    desk.accept(&[row(), job.clone(), row()]);
    assert_eq!(desk.job(job.id).tick, tick);
    let taken = desk.take(WorkerId::new(), 3);
    assert_eq!(taken.iter().filter(|job| job.tick.is_some()).count(), 1);
    assert_eq!(
        taken.iter().find(|taken| taken.id == job.id).and_then(|job| job.tick.clone()),
        tick
    );
}

pub(super) fn a_decision_about_an_older_row_is_a_conflict(fixture: &Fixture) {
    let (mut desk, old) = with_schedule(fixture);
    let (tick, job) = (desk.now(), row());
    desk.mint_one(&moved(&old, tick));
    let before = desk.schedule("s");
    for revision in [old.revision, before.revision + 1, 0] {
        let row = MintRow { revision, ..minted(&before, tick + MINUTE, &job) };
        assert_eq!(desk.mint_one(&row), Minting::Conflict);
    }
    assert_eq!(desk.schedule("s"), before);
    assert!(desk.find(job.id).is_none());
}

pub(super) fn a_decision_sent_twice_mints_once(fixture: &Fixture) {
    let (mut desk, record) = with_schedule(fixture);
    let row = minted(&record, desk.now(), &row());
    assert_eq!(desk.mint_one(&row), NEW);
    let once = desk.schedule("s");
    assert_eq!(desk.mint_one(&row), Minting::Conflict);
    assert_eq!(desk.schedule("s"), once);
    assert_eq!(desk.counts(), [("default".to_owned(), JobState::Scheduled, 1)]);
}

pub(super) fn what_was_decided_by_another_text_is_a_conflict(fixture: &Fixture) {
    let (mut desk, _) = with_schedule(fixture);
    for changed in [defined("s", "2"), timed("s", "2")] {
        let decided = minted(&desk.schedule("s"), desk.now(), &row());
        desk.declare_some(&[changed]);
        assert_eq!(desk.mint_one(&decided), Minting::Conflict);
    }
    assert!(desk.counts().is_empty());
}

pub(super) fn a_decision_about_what_is_gone_is_told(fixture: &Fixture) {
    let (mut desk, record) = with_schedule(fixture);
    let decided = minted(&record, desk.now(), &row());
    desk.declare_whole(OWNER, &[]);
    assert_eq!(desk.mint_one(&decided), Minting::Gone);
    assert!(desk.counts().is_empty());
    assert!(desk.schedules().is_empty());
}

pub(super) fn a_tick_whose_job_exists_mints_none(fixture: &Fixture) {
    let (mut desk, record) = with_schedule(fixture);
    let (tick, job) = (desk.now(), row());
    desk.mint_one(&minted(&record, tick, &job));
    let taken = desk.take_one(WorkerId::new());
    desk.settle(&outcome(&taken, Outcome::Succeeded));
    let stored = desk.job(job.id);
    // As after a removal, and a clock that was set back.
    desk.declare_whole(OWNER, &[]);
    let anew = desk.add_schedule("s");
    let other = JobRow { payload: Body::new(b"[]".to_vec()), ..job.clone() };
    assert_eq!(desk.mint_one(&minted(&anew, tick, &other)), NOT_NEW);
    assert_eq!(desk.job(job.id), stored, "it is left as it is");
    let record = desk.schedule("s");
    assert_eq!((record.last_tick, record.last_job), (Some(tick), Some(job.id)));
}

pub(super) fn a_cursor_never_goes_back(fixture: &Fixture) {
    let (mut desk, record) = with_schedule(fixture);
    let tick = desk.now();
    desk.mint_one(&moved(&record, tick));
    let record = desk.schedule("s");
    desk.mint_one(&moved(&record, tick.saturating_sub(MINUTE)));
    let after = desk.schedule("s");
    assert_eq!((after.cursor, after.revision), (tick, record.revision + 1));
}

pub(super) fn missed_ticks_are_counted_and_the_last_of_them_is_told(fixture: &Fixture) {
    let (mut desk, _) = with_schedule(fixture);
    let tick = desk.wait(MINUTE * 10);
    for (count, total) in [(3, 3), (10_000, 10_003)] {
        let record = desk.schedule("s");
        let last = tick.saturating_sub(SECOND * count);
        let missed = Some((u64::from(count), last));
        let row = MintRow { missed, ..minted(&record, tick, &row()) };
        assert_eq!(desk.mint_one(&row), NEW);
        let after = desk.schedule("s");
        assert_eq!((after.skipped, after.last_skip), (total, Some((last, SkipReason::Missed))));
        assert_eq!(after.last_tick, Some(tick), "the one that was minted is none of them");
    }
    let record = desk.schedule("s");
    desk.mint_one(&moved(&record, tick));
    let after = desk.schedule("s");
    assert_eq!((after.skipped, after.last_skip), (10_003, record.last_skip), "they are kept");
}

pub(super) fn an_error_is_told_since_it_began_until_the_next_decision(fixture: &Fixture) {
    let (mut desk, before) = with_schedule(fixture);
    let began = desk.now();
    for text in ["no such zone", "unreadable \u{fffd}"] {
        let record = desk.schedule("s");
        let row = MintRow { error: Some(text.to_owned()), ..moved(&record, record.cursor) };
        assert_eq!(desk.mint_one(&row), NOT_NEW);
        let after = desk.schedule("s");
        assert_eq!((after.error, after.cursor), (Some((text.to_owned(), began)), before.cursor));
        desk.wait(SECOND);
    }
    let record = desk.schedule("s");
    desk.mint_one(&moved(&record, record.cursor));
    assert_eq!(desk.schedule("s").error, None);
    let at = desk.wait(SECOND);
    let record = desk.schedule("s");
    let error = Some("again".to_owned());
    desk.mint_one(&MintRow { error, ..moved(&record, record.cursor) });
    assert_eq!(desk.schedule("s").error, Some(("again".to_owned(), at)), "it began anew");
}

pub(super) fn a_refused_job_keeps_its_schedule_as_it_is(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.declare_some(&["a", "b", "c", "d"].map(schedule));
    let tick = desk.wait(SECOND);
    let bytes = fixture.store().bounds().payload_bytes_max + 1;
    let large = JobRow { payload: Body::new(vec![b' '; bytes]), ..row() };
    let orphan = JobRow { parents: vec![JobId::new()], ..row() };
    let before = desk.schedules();
    let jobs = [row(), large, orphan.clone(), row()];
    let rows = before.iter().zip(&jobs).map(|(record, job)| minted(record, tick, job));
    let answers = desk.mint(&rows.collect::<Vec<_>>());
    let limit = bytes - 1;
    let too_large = Minting::Rejected(Rejection::PayloadTooLarge { bytes, limit });
    let unknown = Rejection::UnknownParent { parent: orphan.parents[0] };
    assert_eq!(answers, [NEW, too_large, Minting::Rejected(unknown), NEW]);
    let after = desk.schedules();
    assert_eq!(after[1..3], before[1..3]);
    let cursors = [after[0].cursor, after[3].cursor];
    assert_eq!(cursors, [tick, tick], "the others are not affected");
    let stored: Vec<_> = jobs.iter().map(|job| desk.find(job.id).is_some()).collect();
    assert_eq!(stored, [true, false, false, true]);
}

pub(super) fn a_mixed_call_is_answered_row_by_row(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.declare_some(&["a", "b", "c", "d"].map(schedule));
    let (tick, last) = (desk.now(), row());
    desk.mint_now("b", &last);
    desk.declare_some(&[defined("d", "2")]);
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| desk.schedule(name));
    let (gone, stale) = (schedule("e"), d.revision - 1);
    let rows = [
        MintRow { no_overlap: true, ..minted(&b, tick + MINUTE, &row()) },
        minted(&ScheduleRecord::new(gone, tick), tick, &row()),
        MintRow { revision: stale, ..minted(&d, tick, &row()) },
        minted(&c, tick, &last),
        moved(&a, tick),
    ];
    let expected = [Minting::Overlapped, Minting::Gone, Minting::Conflict, NOT_NEW, NOT_NEW];
    assert_eq!(desk.mint(&rows), expected);
    assert_eq!(desk.counts(), [("default".to_owned(), JobState::Scheduled, 1)]);
    assert_eq!(desk.schedule("c").last_job, Some(last.id), "the job of its tick is there");
}

pub(super) fn a_schedule_named_twice_is_moved_once(fixture: &Fixture) {
    let (mut desk, record) = with_schedule(fixture);
    let tick = desk.now();
    let rows = [minted(&record, tick, &row()), minted(&record, tick + MINUTE, &row())];
    assert_eq!(desk.mint(&rows), [NEW, Minting::Conflict]);
    assert_eq!(desk.schedule("s").cursor, tick);
    assert_eq!(desk.counts(), [("default".to_owned(), JobState::Scheduled, 1)]);
}

pub(super) fn an_empty_mint_is_answered_with_nothing(fixture: &Fixture) {
    let (mut desk, record) = with_schedule(fixture);
    assert!(desk.mint(&[]).is_empty());
    assert_eq!(desk.schedules(), [record]);
}

pub(super) fn two_hundred_ticks_are_minted_by_one_call(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let rows: Vec<_> = (0..200).map(|number| schedule(&format!("s{number:03}"))).collect();
    desk.declare_some(&rows);
    let tick = desk.wait(SECOND);
    let mut due = desk.due_schedules(200).due;
    // In no order of names or ids.
    due.sort_by_key(|record| record.row.name.bytes().rev().collect::<Vec<_>>());
    let decided: Vec<_> = due.iter().map(|record| minted(record, tick, &row())).collect();
    assert_eq!(desk.mint(&decided), vec![NEW; 200]);
    assert_eq!(desk.counts(), [("default".to_owned(), JobState::Scheduled, 200)]);
    for taken in desk.take(WorkerId::new(), 200) {
        let tick = taken.tick.expect("it was minted for one");
        assert_eq!(desk_job(&decided, taken.id), Some(tick));
    }
}

/// The tick for which a decision mints that job.
fn desk_job(decided: &[MintRow], id: JobId) -> Option<Tick> {
    let jobs = decided.iter().filter_map(|row| row.job.as_ref());
    jobs.filter(|job| job.id == id).find_map(|job| job.tick.clone())
}

pub(super) fn a_minted_job_is_born_as_an_enqueued_one(fixture: &Fixture) {
    let mut desk = Desk::with_history(fixture, HistoryPolicy::Transitions);
    let record = desk.add_schedule("s");
    let (minted_job, triggered) = (row(), row());
    desk.mint_one(&minted(&record, desk.now(), &minted_job));
    let change = crate::store::ScheduleChange::Trigger(Box::new(triggered.clone()));
    sound(desk.session.change_schedule(ACTOR, "s", &change));
    for job in [minted_job.id, triggered.id] {
        assert_eq!(desk.story(job), [(None, JobState::Scheduled, TransitionBy::Enqueue)]);
    }
    assert_eq!(desk.count("default", JobState::Scheduled), 2);
}

pub(super) fn a_schedule_that_mints_nothing_touches_no_job(fixture: &Fixture) {
    let (mut desk, record) = with_schedule(fixture);
    let held = desk.hold(WorkerId::new());
    let before = desk.job(held.id);
    desk.mint_one(&moved(&record, desk.now()));
    assert_eq!(desk.job(held.id), before);
}
