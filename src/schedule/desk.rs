//! Declaring schedules, changing them, and reading how they stand.

use super::{NAME_BYTES_MAX, Schedule, ScheduleError, ScheduleFault, ScheduleInfo};
use crate::kernel::schedule::Definition;
use crate::kernel::text::check_name;
use crate::schedule::FaultReason;
use crate::store::{Declaration, Declared, JobRow, ScheduleAnswer, ScheduleChange, ScheduleRow};
use crate::{Client, JobId, telemetry};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The schedules of a store; from [`Client::schedules`]. Like every call of a client, those of this type block and
/// can be made from anywhere.
#[derive(Debug, Clone)]
#[must_use = "this only asks when it is asked"]
pub struct Schedules {
    client: Client,
    actor: String,
}

/// What a declaration has done.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeclaredSchedules {
    /// Per schedule, in order.
    pub schedules: Vec<Declaration>,
    /// Schedules of the owner that were not named any more, and are gone.
    pub removed: Vec<String>,
}

/// The name under which a program's own actions are audited.
const PROGRAM: &str = "program";

impl Schedules {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, actor: PROGRAM.to_owned() }
    }

    /// In whose name schedules are paused, resumed, removed and triggered, in the audit. Default: `program`.
    pub fn by(mut self, actor: impl Into<String>) -> Self {
        self.actor = actor.into();
        self
    }

    /// Declares the whole set of an owner's schedules, all or none: what is new is added, what differs is changed,
    /// and what the owner had besides is removed (and told in the log). Each release of a program does so as it
    /// starts; where two releases run at once, the one that declared last wins.
    ///
    /// What stands just so is left alone. A changed timing begins anew now, without a run by itself; any other
    /// change takes effect with the next tick. Whether a schedule is paused stays.
    ///
    /// ```
    /// use backwave::schedule::{Declaration, Schedule, ScheduleError};
    /// use backwave::{Client, MemoryStore, NewJob};
    ///
    /// let schedules = Client::new(MemoryStore::new()).schedules();
    /// let report = |hour| Schedule::cron("report", format!("0 {hour} * * *"), NewJob::raw("report", "{}"));
    /// schedules.declare("shop", [report(3)])?;
    /// let again = schedules.declare("shop", [report(4)])?;
    /// assert_eq!(again.schedules, [Declaration::Changed]);
    ///
    /// let Err(ScheduleError::Refused { faults }) = schedules.declare("shop", [report(24)]) else { panic!() };
    /// assert_eq!(faults[0].schedule, "report");
    /// assert_eq!(schedules.declare("shop", [])?.removed, ["report"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ScheduleError::Refused`] with everything that is wrong, [`ScheduleError::Foreign`] where a name is another
    /// owner's; nothing was written then.
    pub fn declare(
        &self,
        owner: &str,
        schedules: impl IntoIterator<Item = Schedule>,
    ) -> Result<DeclaredSchedules, ScheduleError> {
        self.send(owner, schedules.into_iter().collect(), true)
    }

    /// Adds or changes one schedule of an owner, and leaves its others alone. For schedules that come and go while
    /// a program runs; under an owner of their own, since a whole set declared under the same name takes them away.
    ///
    /// # Errors
    /// As [`Self::declare`].
    pub fn upsert(&self, owner: &str, schedule: Schedule) -> Result<Declaration, ScheduleError> {
        let declared = self.send(owner, vec![schedule], false)?;
        Ok(declared.schedules.first().copied().unwrap_or(Declaration::Unchanged))
    }

    fn send(
        &self,
        owner: &str,
        schedules: Vec<Schedule>,
        is_whole: bool,
    ) -> Result<DeclaredSchedules, ScheduleError> {
        check_name(owner, NAME_BYTES_MAX).map_err(|fault| ScheduleError::Owner {
            name: owner.chars().take(64).collect(),
            fault,
        })?;
        let rows: Arc<[ScheduleRow]> = self.rows(owner, schedules)?.into();
        let sent = (owner.to_owned(), Arc::clone(&rows));
        let called = self.client.call(move |session| session.declare(&sent.0, &sent.1, is_whole));
        match called.map_err(crate::Error::from)?.answer {
            Declared::Done { rows, removed, .. } => {
                self.client.schedules_changed();
                if !removed.is_empty() {
                    telemetry::schedules_removed(owner, &removed);
                }
                Ok(DeclaredSchedules { schedules: rows, removed })
            }
            Declared::Foreign { index, owner } => {
                let schedule = rows.get(index).map_or_else(String::new, |row| row.name.clone());
                Err(ScheduleError::Foreign { schedule, owner })
            }
        }
    }

    fn rows(
        &self,
        owner: &str,
        schedules: Vec<Schedule>,
    ) -> Result<Vec<ScheduleRow>, ScheduleError> {
        let (mut rows, mut faults, mut names) = (Vec::new(), Vec::new(), BTreeSet::new());
        for schedule in schedules {
            let name = schedule.name().to_owned();
            match schedule.into_row(owner, self.client.bounds()) {
                Ok(row) => rows.push(row),
                Err(more) => faults.extend(more),
            }
            if !names.insert(name.clone()) {
                let schedule = name.chars().take(64).collect();
                faults.push(ScheduleFault { schedule, reason: FaultReason::NameTwice });
            }
        }
        if faults.is_empty() { Ok(rows) } else { Err(ScheduleError::Refused { faults }) }
    }

    /// Keeps a schedule from minting anything. Whether it did before.
    ///
    /// # Errors
    /// [`ScheduleError::NotFound`].
    pub fn pause(&self, name: &str) -> Result<bool, ScheduleError> {
        self.change(name, ScheduleChange::Pause)
    }

    /// Lets a paused schedule go on with its first tick from now on: what it has missed is not caught up. Whether
    /// it was paused.
    ///
    /// # Errors
    /// [`ScheduleError::NotFound`].
    pub fn resume(&self, name: &str) -> Result<bool, ScheduleError> {
        self.change(name, ScheduleChange::Resume)
    }

    /// Forgets a schedule. The jobs that it has minted stay. A program that still declares it brings it back, as a
    /// new one.
    ///
    /// # Errors
    /// [`ScheduleError::NotFound`].
    pub fn remove(&self, name: &str) -> Result<(), ScheduleError> {
        self.change(name, ScheduleChange::Remove).map(drop)
    }

    /// Mints a job of a schedule now, also of a paused one. It stands for no tick, and neither moves the schedule
    /// nor counts for [`Schedule::no_overlap`].
    ///
    /// ```
    /// use backwave::schedule::Schedule;
    /// use backwave::{Client, MemoryStore, NewJob};
    ///
    /// let client = Client::new(MemoryStore::new());
    /// let nightly = Schedule::cron("nightly", "@daily", NewJob::raw("report", "{}"));
    /// client.schedules().declare("shop", [nightly])?;
    /// let job = client.schedules().by("ada").trigger("nightly")?;
    /// assert_eq!(client.monitor().job(job)?.tick, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ScheduleError::NotFound`], [`ScheduleError::Untriggerable`].
    pub fn trigger(&self, name: &str) -> Result<JobId, ScheduleError> {
        let id = JobId::new();
        let (actor, asked) = (self.actor.clone(), name.to_owned());
        let called = self.client.call(move |session| {
            let mut all = session.schedules()?.into_iter();
            let Some(record) = all.find(|record| record.row.name == asked) else {
                return Ok(Triggered::NotFound);
            };
            let row = match Definition::read(&record.row.definition) {
                Ok(definition) => definition.job(id),
                Err(why) => return Ok(Triggered::Refused(why)),
            };
            let change = ScheduleChange::Trigger(Box::new(row.clone()));
            Ok(match session.change_schedule(&actor, &asked, &change)? {
                ScheduleAnswer::Done { .. } => Triggered::Done(Box::new(row)),
                ScheduleAnswer::Rejected(why) => Triggered::Refused(why.to_string()),
                ScheduleAnswer::NotFound => Triggered::NotFound,
            })
        });
        let schedule = name.to_owned();
        match called.map_err(crate::Error::from)?.answer {
            Triggered::Done(row) => {
                self.client.wake(&row.queue);
                Ok(row.id)
            }
            Triggered::Refused(why) => Err(ScheduleError::Untriggerable { schedule, why }),
            Triggered::NotFound => Err(ScheduleError::NotFound { schedule }),
        }
    }

    /// Every schedule, ordered by name.
    ///
    /// # Errors
    /// Those of every call.
    pub fn list(&self) -> Result<Vec<ScheduleInfo>, ScheduleError> {
        let called = self.client.call(|session| session.schedules());
        let records = called.map_err(crate::Error::from)?.answer;
        Ok(records.into_iter().map(ScheduleInfo::of).collect())
    }

    fn change(&self, name: &str, change: ScheduleChange) -> Result<bool, ScheduleError> {
        let (actor, asked) = (self.actor.clone(), name.to_owned());
        let called =
            self.client.call(move |session| session.change_schedule(&actor, &asked, &change));
        let called = called.map_err(crate::Error::from)?;
        match called.answer {
            ScheduleAnswer::Done { changed, .. } => {
                self.client.schedules_changed();
                // After a lost answer it may have been this very call that has made the difference.
                Ok(changed || called.in_doubt)
            }
            // Our own doing, by a try whose answer was lost.
            ScheduleAnswer::NotFound if called.in_doubt => Ok(true),
            ScheduleAnswer::NotFound => Err(ScheduleError::NotFound { schedule: name.to_owned() }),
            ScheduleAnswer::Rejected(why) => Err(ScheduleError::Untriggerable {
                schedule: name.to_owned(),
                why: why.to_string(),
            }),
        }
    }
}

/// What became of a trigger.
enum Triggered {
    Done(Box<JobRow>),
    Refused(String),
    NotFound,
}
