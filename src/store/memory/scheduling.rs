//! Recurring schedules: each call a plan over the state as it is, and its application.

use super::audit;
use super::enqueue::{self, Birth};
use super::session::MemorySession;
use super::state::{Moment, State, Trouble};
use crate::JobId;
use crate::store::{
    Admission, AuditAction, AuditRecord, Bounds, Declaration, Declared, DueSchedules, JobRow,
    MintRow, Minted, Minting, PAGE_MAX, Rejection, ScheduleAnswer, ScheduleChange, ScheduleRecord,
    ScheduleRow, Scheduling, StoreError, check_rows,
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
    let mut after = before.clone();
    let declaration = after.redeclare(&row, moment.at);
    (declaration, (declaration == Declaration::Changed).then_some(after))
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
    let turned = |action| {
        let mut after = found.clone();
        match after.apply(change, moment.at) {
            true => Deed::Put(after, audit(action, None)),
            false => Deed::unchanged(moment),
        }
    };
    Ok(match change {
        ScheduleChange::Pause => turned(AuditAction::PauseSchedule),
        ScheduleChange::Resume => turned(AuditAction::ResumeSchedule),
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
    if !found.admits(row) {
        return Ok(MintDeed::Nothing(Minting::Conflict));
    }
    let settled = |minting: &Minting| {
        let mut after = Box::new(found.clone());
        after.settle(row, minting, moment.at);
        after
    };
    let settle = |minting: Minting| MintDeed::Settle(settled(&minting), minting);
    let Some(job) = row.job.as_deref() else {
        return Ok(settle(Minting::Written { minted: false }));
    };
    let birth = match born(state, bounds, job, moment)? {
        Err(rejection) => return Ok(MintDeed::Nothing(Minting::Rejected(rejection))),
        Ok(_) if given.ids.contains(&job.id) => Err(Admission::Duplicate),
        Ok(birth) => birth,
    };
    let is_held = matches!(birth, Err(Admission::Held { .. }))
        || job.unique_key.as_deref().is_some_and(|key| given.keys.contains(key));
    if is_held || birth.is_ok() && row.no_overlap && runs(state, found) {
        return Ok(settle(Minting::Overlapped));
    }
    Ok(match birth {
        Ok(birth) => MintDeed::Mint(settled(&Minting::Written { minted: true }), job, birth),
        Err(_) => settle(Minting::Written { minted: false }),
    })
}

/// Whether the job that the schedule has minted last has not ended. One that was purged has.
fn runs(state: &State, schedule: &ScheduleRecord) -> bool {
    let life = schedule.last_job.and_then(|job| state.life(job));
    life.is_some_and(|(_, life)| !life.state.is_terminal())
}
