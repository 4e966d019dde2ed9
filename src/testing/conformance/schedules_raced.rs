//! What holds when several sessions act on schedules at the same moment.

use super::Fixture;
use super::desk::{Desk, SECOND, outcome, row};
use super::races::{ROUNDS, together};
use super::schedules_desk::{
    MINUTE, NEW, NOT_NEW, OWNER, alone, defined, minted, moved, schedule, timed,
};
use crate::store::{
    Declaration, Declared, JobRow, Minting, Outcome, ScheduleAnswer, ScheduleChange, ScheduleRecord,
};
use crate::{JobState, WorkerId};

/// A session, and a schedule of that name which is new.
#[track_caller]
fn scene(desk: &mut Desk, round: usize) -> (String, ScheduleRecord) {
    let name = format!("s{round}");
    let record = desk.add_schedule(&name);
    desk.wait(SECOND);
    (name, record)
}

pub(super) fn a_tick_is_minted_by_one_of_eight_threads(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for round in 0..ROUNDS {
        let (name, record) = scene(&mut desk, round);
        let jobs: Vec<JobRow> = (0..8).map(|_| row()).collect();
        let tick = desk.now();
        let answers = together(fixture, 8, |desk, number| {
            desk.mint_one(&minted(&record, tick, &jobs[number]))
        });
        let winners: Vec<_> = (0..8).filter(|number| answers[*number] == NEW).collect();
        assert_eq!(winners.len(), 1, "{answers:?}");
        assert_eq!(answers.iter().filter(|answer| **answer == Minting::Conflict).count(), 7);
        let after = desk.schedule(&name);
        assert_eq!((after.revision, after.last_job), (2, Some(jobs[winners[0]].id)));
        let stored = jobs.iter().filter(|job| desk.find(job.id).is_some()).count();
        assert_eq!(stored, 1);
    }
}

pub(super) fn a_chain_of_ticks_is_minted_once_each_by_four_threads(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let start = desk.add_schedule("s").cursor;
    let ticks = 40;
    let end = start + MINUTE * ticks;
    fixture.clock().set(end);
    let minted_by = together(fixture, 4, |desk, _| {
        let mut count = 0;
        loop {
            let record = desk.schedule("s");
            if record.cursor >= end {
                return count;
            }
            let answer = desk.mint_one(&minted(&record, record.cursor + MINUTE, &row()));
            assert!(matches!(answer, NEW | Minting::Conflict), "{answer:?}");
            count += u32::from(answer == NEW);
        }
    });
    assert_eq!(minted_by.iter().sum::<u32>(), ticks);
    let mut told: Vec<_> = desk.take(WorkerId::new(), 200);
    told.sort_by_key(|job| job.tick.as_ref().map(|tick| tick.at));
    let told: Vec<_> = told.into_iter().filter_map(|job| Some(job.tick?.at)).collect();
    let expected: Vec<_> = (1..=ticks).map(|number| start + MINUTE * number).collect();
    assert_eq!(told, expected);
}

pub(super) fn mints_of_the_same_schedules_in_opposite_orders_all_succeed(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for round in 0..ROUNDS {
        let rows: Vec<_> = (0..20).map(|number| schedule(&format!("{round} {number}"))).collect();
        desk.declare_whole(OWNER, &rows);
        let (records, tick) = (desk.schedules(), desk.wait(SECOND));
        let answers = together(fixture, 4, |desk, number| {
            let mut mine: Vec<_> =
                records.iter().map(|record| minted(record, tick, &row())).collect();
            if number % 2 == 1 {
                mine.reverse();
            }
            desk.mint(&mine)
        });
        let new = answers.iter().flatten().filter(|answer| **answer == NEW).count();
        assert_eq!(new, rows.len());
    }
}

pub(super) fn one_set_declared_by_eight_threads_is_added_once(fixture: &Fixture) {
    for round in 0..ROUNDS {
        let rows: Vec<_> = (0..9).map(|number| schedule(&format!("{round} {number}"))).collect();
        let answers = together(fixture, 8, |desk, number| {
            let mut mine = rows.clone();
            if number % 2 == 1 {
                mine.reverse();
            }
            desk.declare_some(&mine)
        });
        let of = |wanted| answers.iter().flatten().filter(|answer| **answer == wanted).count();
        assert_eq!((of(Declaration::Added), of(Declaration::Unchanged)), (9, 63));
    }
    let told = Desk::open(fixture).schedules();
    assert!(told.iter().all(|record| record.revision == 1));
}

pub(super) fn of_two_whole_sets_of_one_owner_one_stands(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for round in 0..ROUNDS {
        let name = |letter: &str| format!("{letter}{round}");
        let sets = [[name("a"), name("b")], [name("b"), name("c")]];
        let removed = together(fixture, 2, |desk, number| {
            let rows: Vec<_> = sets[number].iter().map(|name| schedule(name)).collect();
            desk.declare_whole(OWNER, &rows)
        });
        let told = desk.schedule_names();
        assert!(sets.iter().any(|set| told == *set), "{told:?}, {removed:?}");
    }
}

pub(super) fn a_name_is_given_to_one_of_two_owners(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for round in 0..ROUNDS {
        let row = [schedule(&format!("s{round}"))];
        let owners = [OWNER, "stock"];
        let answers =
            together(fixture, 2, |desk, number| desk.declare(owners[number], &row, false));
        let holder = desk.schedule(&row[0].name).row.owner;
        for (answer, owner) in answers.iter().zip(owners) {
            match answer {
                Declared::Done { .. } => assert_eq!(holder, owner),
                Declared::Foreign { index, owner: told } => {
                    assert_eq!((*index, told.as_str()), (0, holder.as_str()));
                    assert_ne!(holder, owner);
                }
            }
        }
    }
}

pub(super) fn a_pause_comes_before_or_after_a_mint(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for round in 0..ROUNDS {
        let (name, record) = scene(&mut desk, round);
        let (tick, job) = (desk.now(), row());
        let answers = together(fixture, 2, |desk, number| {
            if number == 0 {
                assert!(desk.change_schedule(&name, ScheduleChange::Pause));
                return None;
            }
            Some(desk.mint_one(&minted(&record, tick, &job)))
        });
        let after = desk.schedule(&name);
        assert!(after.is_paused, "whichever came first");
        match answers[1] {
            Some(NEW) => assert_eq!((after.revision, after.cursor), (3, tick)),
            Some(Minting::Conflict) => {
                assert_eq!((after.revision, after.cursor), (2, record.cursor));
            }
            ref other => panic!("{other:?}"),
        }
        assert_eq!(desk.find(job.id).is_some(), answers[1] == Some(NEW));
    }
}

pub(super) fn a_change_of_timing_comes_before_or_after_a_mint(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for round in 0..ROUNDS {
        let (name, record) = scene(&mut desk, round);
        let (tick, job) = (desk.now(), row());
        let now = desk.wait(SECOND);
        let answers = together(fixture, 2, |desk, number| {
            if number == 0 {
                desk.declare_some(&[timed(&name, "2")]);
                return None;
            }
            Some(desk.mint_one(&minted(&record, tick, &job)))
        });
        let after = desk.schedule(&name);
        assert_eq!((after.cursor, after.look_at), (now, Some(now)), "it begins anew");
        match answers[1] {
            Some(NEW) => assert_eq!((after.revision, after.last_tick), (3, Some(tick))),
            Some(Minting::Conflict) => assert_eq!((after.revision, after.last_tick), (2, None)),
            ref other => panic!("{other:?}"),
        }
    }
}

pub(super) fn a_removal_comes_before_or_after_a_mint(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for round in 0..ROUNDS {
        let (name, record) = scene(&mut desk, round);
        let (tick, job) = (desk.now(), row());
        let answers = together(fixture, 2, |desk, number| {
            if number == 0 {
                assert!(desk.change_schedule(&name, ScheduleChange::Remove));
                return None;
            }
            Some(desk.mint_one(&minted(&record, tick, &job)))
        });
        assert!(desk.find_schedule(&name).is_none());
        let answer = answers[1].clone().expect("it was asked for");
        assert!(matches!(answer, NEW | Minting::Gone), "{answer:?}");
        assert_eq!(desk.find(job.id).is_some(), answer == NEW);
    }
}

pub(super) fn a_removal_comes_before_or_after_a_trigger(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for round in 0..ROUNDS {
        let (name, _) = scene(&mut desk, round);
        let job = row();
        let answers = together(fixture, 2, |desk, number| {
            let change = match number {
                0 => ScheduleChange::Remove,
                _ => ScheduleChange::Trigger(Box::new(job.clone())),
            };
            desk.operate(&name, change)
        });
        assert!(desk.find_schedule(&name).is_none());
        let stored = desk.find(job.id).is_some();
        assert_eq!(answers[1] == ScheduleAnswer::NotFound, !stored, "{answers:?}");
    }
}

pub(super) fn a_removal_by_an_operator_meets_a_declaration(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for round in 0..ROUNDS {
        let (name, record) = scene(&mut desk, round);
        let answers = together(fixture, 2, |desk, number| {
            if number == 0 {
                desk.change_schedule(&name, ScheduleChange::Remove);
                return None;
            }
            Some(desk.declare_some(&[defined(&name, "2")])[0])
        });
        match answers[1] {
            // It was changed, and then removed.
            Some(Declaration::Changed) => assert!(desk.find_schedule(&name).is_none()),
            Some(Declaration::Added) => {
                let anew = desk.schedule(&name);
                assert_eq!((anew.revision, anew.created_at), (1, record.created_at + SECOND));
            }
            other => panic!("{other:?}"),
        }
    }
}

pub(super) fn a_tick_and_the_end_of_the_last_job_agree(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    for round in 0..ROUNDS {
        let (name, _) = scene(&mut desk, round);
        let last = desk.mint_now(&name, &row());
        let running = desk.take_one(WorkerId::new());
        assert_eq!(running.id, last);
        let (record, tick, job) = (desk.schedule(&name), desk.wait(MINUTE), row());
        fixture.clock().set(tick.saturating_sub(MINUTE));
        let answers = together(fixture, 2, |desk, number| {
            if number == 0 {
                desk.settle(&outcome(&running, Outcome::Succeeded));
                return None;
            }
            Some(desk.mint_one(&alone(&record, tick, &job)))
        });
        assert_eq!(desk.state(last), JobState::Succeeded);
        let after = desk.schedule(&name);
        match answers[1] {
            Some(NEW) => assert_eq!((after.last_job, after.skipped), (Some(job.id), 0)),
            Some(Minting::Overlapped) => {
                assert_eq!((after.last_job, after.skipped), (Some(last), 1))
            }
            ref other => panic!("{other:?}"),
        }
        assert_eq!(desk.find(job.id).is_some(), answers[1] == Some(NEW));
        desk.cancel(job.id);
    }
}

pub(super) fn what_is_minted_while_others_look_is_seen_whole(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (name, _) = scene(&mut desk, 0);
    let tick = desk.now();
    let last = 30;
    together(fixture, 3, |desk, number| {
        for round in 1..=last {
            if number == 0 {
                let record = desk.schedule(&name);
                assert_eq!(desk.mint_one(&minted(&record, tick + SECOND * round, &row())), NEW);
                continue;
            }
            let record = desk.schedule(&name);
            if let Some(job) = record.last_job {
                let job = desk.job(job);
                assert_eq!(job.tick.map(|tick| tick.at), record.last_tick);
                assert_eq!(record.last_tick, Some(record.cursor));
            }
        }
    });
    let record = desk.schedule(&name);
    assert_eq!(record.cursor, tick + SECOND * last);
    assert_eq!(desk.mint_one(&moved(&record, desk.now())), NOT_NEW);
}
