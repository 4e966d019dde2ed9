//! Recurring schedules: each call a plan over the state as it is, and its application.

use super::audit;
use super::enqueue::{self, Birth};
use super::session::MemorySession;
use super::state::{Moment, State, Trouble};
use crate::JobId;
use crate::store::{
    Admission, AuditAction, AuditRecord, Bounds, Declaration, Declared, DueSchedules, JobRow,
    MintRow, Minted, Minting, PAGE_MAX, Rejection, ScheduleAnswer, ScheduleChange, ScheduleRecord,
    ScheduleRow, Scheduling, SkipReason, StoreError, check_rows,
};
use std::collections::{BTreeMap, BTreeSet};

impl Scheduling for MemorySession {
    fn declare(
        &mut self,
        owner: &str,
        rows: &[ScheduleRow],
        is_whole: bool,
    ) -> Result<Declared, StoreError> {
        self.0.write(
            |state, moment| Ok(plan_set(state, owner, rows, is_whole, moment)),
            |state, planned, moment| {
                Ok(match planned {
                    Ok(set) => set.apply(state, moment),
                    Err((index, owner)) => Declared::Foreign { index, owner },
                })
            },
        )
    }

    fn change_schedule(
        &mut self,
        actor: &str,
        name: &str,
        change: &ScheduleChange,
    ) -> Result<ScheduleAnswer, StoreError> {
        let bounds = &self.0.inner.bounds;
        self.0.write(
            |state, moment| plan_change(state, bounds, (actor, name, change), moment),
            |state, deed, moment| deed.apply(state, moment),
        )
    }

    fn due_schedules(&mut self, max: u32) -> Result<DueSchedules, StoreError> {
        let max = max.clamp(1, PAGE_MAX) as usize;
        self.0.read(|state, now| {
            let (due, next_at) = state.schedules.due(max, now);
            Ok(DueSchedules::new(due, next_at, now))
        })
    }

    fn mint(&mut self, rows: &[MintRow]) -> Result<Minted, StoreError> {
        let bounds = &self.0.inner.bounds;
        self.0.write(
            |state, moment| plan_mint(state, bounds, rows, moment),
            |state, deeds, moment| {
                let answers = deeds.into_iter().map(|deed| deed.apply(state, moment));
                Ok(Minted::new(answers.collect::<Result<_, _>>()?, moment.at))
            },
        )
    }

    fn schedules(&mut self) -> Result<Vec<ScheduleRecord>, StoreError> {
        self.0.read(|state, _| Ok(state.schedules.all().cloned().collect()))
    }
}

/// What a declaration writes.
struct Set {
    answers: Vec<Declaration>,
    written: BTreeMap<String, ScheduleRecord>,
    removed: Vec<String>,
}

impl Set {
    fn apply(self, state: &mut State, moment: Moment) -> Declared {
        for record in self.written.into_values() {
            state.schedules.put(record);
        }
        for name in &self.removed {
            state.schedules.take(name);
        }
        Declared::Done { rows: self.answers, removed: self.removed, store_time: moment.at }
    }
}

/// Decides a declaration; or whose schedule its first row would change that is somebody else's.
fn plan_set(
    state: &State,
    owner: &str,
    rows: &[ScheduleRow],
    is_whole: bool,
    moment: Moment,
) -> Result<Set, (usize, String)> {
    let mut set = Set { answers: Vec::new(), written: BTreeMap::new(), removed: Vec::new() };
    for (index, row) in rows.iter().enumerate() {
        let before = set.written.get(&row.name).or_else(|| state.schedules.find(&row.name));
        if let Some(foreign) = before.filter(|before| before.row.owner != owner) {
            return Err((index, foreign.row.owner.clone()));
        }
        let row = ScheduleRow { owner: owner.to_owned(), ..row.clone() };
        let (answer, after) = declared(before, row, moment);
        set.answers.push(answer);
        if let Some(after) = after {
            set.written.insert(after.row.name.clone(), after);
        }
    }
    if is_whole {
        let named: BTreeSet<_> = rows.iter().map(|row| row.name.as_str()).collect();
        let own = state.schedules.all().map(|record| &record.row).filter(|row| row.owner == owner);
        let dropped = own.filter(|row| !named.contains(row.name.as_str()));
        set.removed = dropped.map(|row| row.name.clone()).collect();
    }
    Ok(set)
}

fn declared(
    before: Option<&ScheduleRecord>,
    row: ScheduleRow,
    moment: Moment,
) -> (Declaration, Option<ScheduleRecord>) {
    let Some(before) = before else {
        return (Declaration::Added, Some(ScheduleRecord::new(row, moment.at)));
    };
    if before.row == row {
        return (Declaration::Unchanged, None);
    }
    let anew = before.row.timing != row.timing;
    let mut after = ScheduleRecord { row, revision: before.revision + 1, ..before.clone() };
    if anew {
        after.cursor = moment.at;
        after.next_tick = None;
    }
    // What stood in the way of the old text may not stand in the way of the new one.
    if anew || before.error.is_some() {
        after.look_at = Some(moment.at);
        after.error = None;
    }
    (Declaration::Changed, Some(after))
}

/// What an operator's change writes.
enum Deed {
    Nothing(ScheduleAnswer),
    Put(ScheduleRecord, AuditRecord),
    Remove(String, AuditRecord),
    Trigger(Box<JobRow>, Birth, AuditRecord),
}

impl Deed {
    const fn unchanged(moment: Moment) -> Self {
        Self::Nothing(ScheduleAnswer::Done { changed: false, store_time: moment.at })
    }

    fn apply(self, state: &mut State, moment: Moment) -> Result<ScheduleAnswer, Trouble> {
        let record = match self {
            Self::Nothing(answer) => return Ok(answer),
            Self::Put(schedule, record) => {
                state.schedules.put(schedule);
                record
            }
            Self::Remove(name, record) => {
                state.schedules.take(&name);
                record
            }
            Self::Trigger(job, birth, record) => {
                state.insert(&job, birth, moment)?;
                record
            }
        };
        state.audit.push(record);
        Ok(ScheduleAnswer::Done { changed: true, store_time: moment.at })
    }
}

fn plan_change(
    state: &State,
    bounds: &Bounds,
    (actor, name, change): (&str, &str, &ScheduleChange),
    moment: Moment,
) -> Result<Deed, Trouble> {
    let Some(found) = state.schedules.find(name) else {
        return Ok(Deed::Nothing(ScheduleAnswer::NotFound));
    };
    let audit = |action, job: Option<&JobRow>| {
        let queue = job.map_or("", |job| job.queue.as_str());
        let job = job.map(|job| job.id);
        audit::record(state.audit.next(), moment.at, actor, action, job, queue).about(name)
    };
    let paused =
        |is_paused| ScheduleRecord { is_paused, revision: found.revision + 1, ..found.clone() };
    Ok(match change {
        ScheduleChange::Pause if !found.is_paused => {
            Deed::Put(paused(true), audit(AuditAction::PauseSchedule, None))
        }
        ScheduleChange::Resume if found.is_paused => {
            let resumed = ScheduleRecord {
                // Never back, also where the clock has stepped back.
                cursor: found.cursor.max(moment.at),
                look_at: Some(moment.at),
                next_tick: None,
                ..paused(false)
            };
            Deed::Put(resumed, audit(AuditAction::ResumeSchedule, None))
        }
        ScheduleChange::Pause | ScheduleChange::Resume => Deed::unchanged(moment),
        ScheduleChange::Remove => {
            Deed::Remove(name.to_owned(), audit(AuditAction::RemoveSchedule, None))
        }
        ScheduleChange::Trigger(job) => match born(state, bounds, job, moment)? {
            Ok(Ok(birth)) => {
                let record = audit(AuditAction::TriggerSchedule, Some(job));
                Deed::Trigger(job.clone(), birth, record)
            }
            Ok(Err(_)) => Deed::unchanged(moment),
            Err(rejection) => Deed::Nothing(ScheduleAnswer::Rejected(rejection)),
        },
    })
}

/// How a job would be born, or what keeps it out.
fn born(
    state: &State,
    bounds: &Bounds,
    job: &JobRow,
    moment: Moment,
) -> Result<Result<Result<Birth, Admission>, Rejection>, Trouble> {
    let row = std::slice::from_ref(job);
    if let Err((_, rejection)) = check_rows(row, bounds, moment.at) {
        return Ok(Err(rejection));
    }
    let births = enqueue::plan(state, row, moment.at)?;
    let first = |births: Vec<_>| births.into_iter().next().unwrap_or(Err(Admission::Duplicate));
    Ok(births.map(first).map_err(|(_, why)| why))
}

/// What one row of a mint writes.
enum MintDeed<'a> {
    Nothing(Minting),
    Settle(Box<ScheduleRecord>, Minting),
    Mint(Box<ScheduleRecord>, &'a JobRow, Birth),
}

impl MintDeed<'_> {
    fn apply(self, state: &mut State, moment: Moment) -> Result<Minting, Trouble> {
        match self {
            Self::Nothing(answer) => Ok(answer),
            Self::Settle(schedule, answer) => {
                state.schedules.put(*schedule);
                Ok(answer)
            }
            Self::Mint(schedule, job, birth) => {
                state.schedules.put(*schedule);
                state.insert(job, birth, moment)?;
                Ok(Minting::Written { minted: true })
            }
        }
    }
}

/// Of the jobs that earlier rows of a mint bring: their ids and unique keys.
#[derive(Default)]
struct Given<'a> {
    ids: BTreeSet<JobId>,
    keys: BTreeSet<&'a str>,
}

fn plan_mint<'a>(
    state: &State,
    bounds: &Bounds,
    rows: &'a [MintRow],
    moment: Moment,
) -> Result<Vec<MintDeed<'a>>, Trouble> {
    // What earlier rows of the call settle and mint, which is not in the state yet.
    let (mut settled, mut given) = (BTreeSet::new(), Given::default());
    let mut deeds = Vec::with_capacity(rows.len());
    for row in rows {
        let deed = if settled.contains(row.name.as_str()) {
            MintDeed::Nothing(Minting::Conflict)
        } else {
            decide(state, bounds, row, &given, moment)?
        };
        match &deed {
            MintDeed::Nothing(_) => {}
            MintDeed::Settle(..) => drop(settled.insert(row.name.as_str())),
            MintDeed::Mint(_, job, _) => {
                settled.insert(row.name.as_str());
                given.ids.insert(job.id);
                given.keys.extend(job.unique_key.as_deref());
            }
        }
        deeds.push(deed);
    }
    Ok(deeds)
}

fn decide<'a>(
    state: &State,
    bounds: &Bounds,
    row: &'a MintRow,
    given: &Given<'a>,
    moment: Moment,
) -> Result<MintDeed<'a>, Trouble> {
    let Some(found) = state.schedules.find(&row.name) else {
        return Ok(MintDeed::Nothing(Minting::Gone));
    };
    if found.is_paused || found.revision != row.revision {
        return Ok(MintDeed::Nothing(Minting::Conflict));
    }
    let mut after = moved(found, row, moment);
    let Some(job) = row.job.as_deref() else {
        return Ok(MintDeed::Settle(Box::new(after), Minting::Written { minted: false }));
    };
    let birth = match born(state, bounds, job, moment)? {
        Err(rejection) => return Ok(MintDeed::Nothing(Minting::Rejected(rejection))),
        Ok(_) if given.ids.contains(&job.id) => Err(Admission::Duplicate),
        Ok(birth) => birth,
    };
    let is_held = matches!(birth, Err(Admission::Held { .. }))
        || job.unique_key.as_deref().is_some_and(|key| given.keys.contains(key));
    let tick = job.tick.as_ref().map_or(row.cursor, |tick| tick.at);
    if is_held || birth.is_ok() && row.no_overlap && runs(state, found) {
        after.skipped = after.skipped.saturating_add(1);
        after.last_skip = Some((tick, SkipReason::Overlap));
        return Ok(MintDeed::Settle(Box::new(after), Minting::Overlapped));
    }
    after.last_tick = Some(tick);
    after.last_job = Some(job.id);
    let after = Box::new(after);
    Ok(match birth {
        Ok(birth) => MintDeed::Mint(after, job, birth),
        Err(_) => MintDeed::Settle(after, Minting::Written { minted: false }),
    })
}

/// The schedule once the row is written, but for what becomes of its job.
fn moved(found: &ScheduleRecord, row: &MintRow, moment: Moment) -> ScheduleRecord {
    let (missed, last_missed) = row.missed.map_or((0, None), |(count, last)| (count, Some(last)));
    let since = found.error.as_ref().map_or(moment.at, |(_, since)| *since);
    ScheduleRecord {
        revision: found.revision + 1,
        cursor: found.cursor.max(row.cursor),
        look_at: row.look_at,
        next_tick: row.next_tick,
        skipped: found.skipped.saturating_add(missed),
        last_skip: last_missed.map(|at| (at, SkipReason::Missed)).or(found.last_skip),
        error: row.error.clone().map(|error| (error, since)),
        ..found.clone()
    }
}

/// Whether the job that the schedule has minted last has not ended. One that was purged has.
fn runs(state: &State, schedule: &ScheduleRecord) -> bool {
    let life = schedule.last_job.and_then(|job| state.life(job));
    life.is_some_and(|(_, life)| !life.state.is_terminal())
}
