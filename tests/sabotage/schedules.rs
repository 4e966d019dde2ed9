//! Broken rules of recurring schedules.

use super::Sabotage;
use backwave::JobId;
use backwave::store::{
    AuditAction, DueSchedules, JobRecord, MintRow, Minting, ScheduleChange, ScheduleRecord,
    Session, StoreError,
};
use backwave::testing::Intercept;

/// Mints by other decisions than were made.
fn mint_by(
    store: &Intercept,
    other: fn(&mut MintRow, &ScheduleRecord, &mut dyn Session) -> Result<(), StoreError>,
) {
    store.on_mint(move |session, rows| {
        let (all, mut changed) = (session.schedules()?, rows.to_vec());
        for row in &mut changed {
            if let Some(found) = all.iter().find(|found| found.row.name == row.name) {
                other(row, found, session)?;
            }
        }
        session.mint(&changed)
    });
}

/// Tells schedules otherwise than they stand.
fn tell_by(store: &Intercept, other: fn(&mut ScheduleRecord)) {
    store.on_schedules(move |session| {
        let mut all = session.schedules()?;
        all.iter_mut().for_each(other);
        Ok(all)
    });
}

/// Takes the revision that a schedule has for the one that was looked at.
fn of_any_revision(
    row: &mut MintRow,
    found: &ScheduleRecord,
    _: &mut dyn Session,
) -> Result<(), StoreError> {
    row.revision = found.revision;
    Ok(())
}

/// The last job of a schedule, as it stands.
fn last_job(
    found: &ScheduleRecord,
    session: &mut dyn Session,
) -> Result<Option<JobRecord>, StoreError> {
    Ok(found.last_job.map(|job| session.job(job)).transpose()?.flatten())
}

pub(super) const SCHEDULES: &[Sabotage] = &[
    (
        "a decision holds for the revision that it was made for: for any",
        |store| mint_by(store, of_any_revision),
        "schedules_minted::a_decision_about_an_older_row_is_a_conflict",
    ),
    (
        "a tick mints once in the fleet: whoever comes mints it",
        |store| mint_by(store, of_any_revision),
        "schedules_raced::a_tick_is_minted_by_one_of_eight_threads",
    ),
    (
        "a tick whose job exists mints none: it mints another",
        |store| {
            mint_by(store, |row, _, session| {
                if let Some(job) = &mut row.job
                    && session.job(job.id)?.is_some()
                {
                    job.id = JobId::new();
                }
                Ok(())
            });
        },
        "schedules_minted::a_tick_whose_job_exists_mints_none",
    ),
    (
        "a tick is skipped while the last job lives: nobody looks",
        |store| {
            mint_by(store, |row, _, _| {
                row.no_overlap = false;
                Ok(())
            });
        },
        "schedules_overlapping::a_tick_is_skipped_while_the_last_job_runs",
    ),
    (
        "a dead lease overlaps until it is settled: it is taken for an end",
        |store| {
            mint_by(store, |row, found, session| {
                let (last, now) = (last_job(found, session)?, session.now()?);
                let is_dead = last.and_then(|job| job.expiry).is_some_and(|expiry| expiry <= now);
                row.no_overlap &= !is_dead;
                Ok(())
            });
        },
        "schedules_overlapping::a_tick_is_skipped_while_a_dead_lease_is_not_settled",
    ),
    (
        "what waits to be due overlaps: only what runs does",
        |store| {
            mint_by(store, |row, found, session| {
                let last = last_job(found, session)?;
                row.no_overlap &= last.is_some_and(|job| job.owner.is_some());
                Ok(())
            });
        },
        "schedules_overlapping::a_tick_is_skipped_while_the_last_job_is_not_due",
    ),
    (
        "skipped ticks are counted",
        |store| tell_by(store, |told| told.skipped = 0),
        "schedules_overlapping::a_tick_is_skipped_while_the_last_job_waits",
    ),
    (
        "why a tick was skipped is told",
        |store| tell_by(store, |told| told.last_skip = None),
        "schedules_minted::missed_ticks_are_counted_and_the_last_of_them_is_told",
    ),
    (
        "a claimed job carries its tick",
        |store| {
            store.on_claim(|session, claim| {
                let mut claimed = session.claim(claim)?;
                claimed.jobs.iter_mut().for_each(|job| job.tick = None);
                Ok(claimed)
            });
        },
        "schedules_minted::a_tick_is_carried_to_the_claim_and_told_with_the_job",
    ),
    (
        "a tick is its own instant: it is that of the mint",
        |store| {
            mint_by(store, |row, _, session| {
                let now = session.now()?;
                if let Some(tick) = row.job.as_mut().and_then(|job| job.tick.as_mut()) {
                    tick.at = now;
                }
                Ok(())
            });
        },
        "schedules_minted::a_tick_is_carried_to_the_claim_and_told_with_the_job",
    ),
    (
        "a refused job keeps its schedule where it is: it goes on without",
        |store| {
            store.on_mint(|session, rows| {
                let minted = session.mint(rows)?;
                for (row, answer) in rows.iter().zip(&minted.rows) {
                    if matches!(answer, Minting::Rejected(_)) {
                        let mut row = row.clone();
                        row.job = None;
                        session.mint(&[row])?;
                    }
                }
                Ok(minted)
            });
        },
        "schedules_minted::a_refused_job_keeps_its_schedule_as_it_is",
    ),
    (
        "an error is told since it began: since it was seen last",
        |store| {
            store.on_schedules(|session| {
                let (now, mut all) = (session.now()?, session.schedules()?);
                for (_, since) in all.iter_mut().filter_map(|told| told.error.as_mut()) {
                    *since = now;
                }
                Ok(all)
            });
        },
        "schedules_minted::an_error_is_told_since_it_began_until_the_next_decision",
    ),
    (
        "a paused schedule is not looked at",
        |store| {
            store.on_due_schedules(|session, _| {
                let (now, all) = (session.now()?, session.schedules()?);
                let due = all.into_iter().filter(|told| told.look_at.is_some_and(|at| at <= now));
                Ok(DueSchedules::new(due.collect(), None, now))
            });
        },
        "schedules_operated::a_paused_schedule_is_not_looked_at",
    ),
    (
        "the longest due come first",
        |store| {
            store.on_due_schedules(|session, max| {
                let mut told = session.due_schedules(max)?;
                told.due.sort_by(|one, other| one.row.name.cmp(&other.row.name));
                Ok(told)
            });
        },
        "schedules::the_longest_due_come_first_and_then_by_name",
    ),
    (
        "it is told when the next of the others is to be looked at",
        |store| {
            store.on_due_schedules(|session, max| {
                let told = session.due_schedules(max)?;
                Ok(DueSchedules::new(told.due, None, told.store_time))
            });
        },
        "schedules::no_more_are_told_than_were_asked_for",
    ),
    (
        "a changed timing begins anew: the cursor stays",
        |store| tell_by(store, |told| told.cursor = told.created_at),
        "schedules::a_changed_timing_begins_anew_at_its_change",
    ),
    (
        "what is declared again just so is not written",
        |store| {
            store.on_declare(|session, owner, rows, is_whole| {
                let mut otherwise = rows.to_vec();
                otherwise.iter_mut().for_each(|row| row.definition.push(' '));
                session.declare(owner, &otherwise, false)?;
                session.declare(owner, rows, is_whole)
            });
        },
        "schedules::what_is_declared_again_just_so_is_not_written",
    ),
    (
        "a whole set takes away what it does not name",
        |store| store.on_declare(|session, owner, rows, _| session.declare(owner, rows, false)),
        "schedules::a_whole_set_takes_away_what_it_does_not_name",
    ),
    (
        "a name of another owner fails the whole call: the rows before it are taken in",
        |store| {
            store.on_declare(|session, owner, rows, is_whole| {
                for row in rows {
                    session.declare(owner, std::slice::from_ref(row), false)?;
                }
                session.declare(owner, rows, is_whole)
            });
        },
        "schedules::a_name_of_another_owner_fails_the_whole_call",
    ),
    (
        "an operator's deeds are audited: a trigger is not",
        |store| {
            store.on_audit(|session, filter| {
                let mut audit = session.audit(filter)?;
                audit.retain(|record| record.action != AuditAction::TriggerSchedule);
                Ok(audit)
            });
        },
        "schedules_operated::each_action_is_audited_with_its_schedule",
    ),
    (
        "a triggered job is none of a tick's: it is minted for the cursor",
        |store| {
            store.on_change_schedule(|session, actor, name, change| {
                let found = session.schedules()?.into_iter().find(|found| found.row.name == name);
                if let (ScheduleChange::Trigger(job), Some(found)) = (change, found) {
                    let (name, at) = (name.to_owned(), found.look_at);
                    let mut row = MintRow::new(name, found.revision, found.cursor, at);
                    row.job = Some(job.clone());
                    session.mint(&[row])?;
                }
                session.change_schedule(actor, name, change)
            });
        },
        "schedules_operated::a_trigger_mints_a_job_beside_the_ticks",
    ),
    (
        "what a removed schedule has minted stays: it is cancelled",
        |store| {
            store.on_change_schedule(|session, actor, name, change| {
                let found = session.schedules()?.into_iter().find(|found| found.row.name == name);
                if let (ScheduleChange::Remove, Some(job)) =
                    (change, found.and_then(|s| s.last_job))
                {
                    session.request_cancel(actor, job)?;
                }
                session.change_schedule(actor, name, change)
            });
        },
        "schedules_operated::a_removed_schedule_is_gone_and_its_jobs_stay",
    ),
];
