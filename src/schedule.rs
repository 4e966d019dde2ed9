//! Recurring schedules: jobs that come again by the calendar or by the clock.
//!
//! A [`Schedule`] is declared under a name and kept in the store. Each of its ticks mints one job in the whole
//! fleet, whichever node looks first. What it names is civil time in a zone: the
//! [guide](crate::guide::schedules) tells what clock changes do to it, and what happens when nobody looks in time.

mod desk;
mod fault;
mod info;
mod zone;

pub use crate::kernel::schedule::{CatchUp, CronFault};
pub use crate::store::{Declaration, SkipReason};
pub use desk::{DeclaredSchedules, Schedules};
pub use fault::{FaultReason, ScheduleError, ScheduleFault};
pub use info::ScheduleInfo;
pub(crate) use zone::zone_of;

use crate::kernel::schedule::{Definition, Timing, TimingFault, TimingText, micros};
use crate::kernel::text::check_name;
use crate::store::{Bounds, JobRow, ScheduleRow, check_rows};
use crate::{NewJob, RetryPolicy, Timestamp};
use std::time::{Duration, SystemTime};

/// A schedule on its way into the store: when it ticks, what a tick mints, and how it deals with what was missed.
///
/// Setters never fail. What is wrong is told, all of it, when it is declared or asked for its times.
///
/// ```
/// use backwave::NewJob;
/// use backwave::schedule::{CatchUp, Schedule};
/// use std::time::Duration;
///
/// let report = NewJob::raw("report", r#"{"region":"eu"}"#);
/// let nightly = Schedule::cron("report-eu", "30 2 * * *", report.clone())
///     .zone("Europe/Zurich")
///     .catch_up(CatchUp::Coalesce)
///     .tag("nightly");
/// // Clocks go forward there that night, from 02:00 to 03:00.
/// let times = nightly.next_times_after("2026-03-28T12:00:00Z".parse()?, 2)?;
/// assert_eq!(times[0].to_string(), "2026-03-29T01:00:00Z");
/// assert_eq!(times[1].to_string(), "2026-03-30T00:30:00Z");
///
/// let often = Schedule::every("report-now", Duration::from_secs(900), report).no_overlap();
/// assert_eq!(often.next_times(3)?.len(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a schedule does nothing until it is declared"]
pub struct Schedule {
    name: String,
    timing: TimingText,
    job: NewJob,
    catch_up: CatchUp,
    grace: Duration,
    no_overlap: bool,
}

/// The longest name of a schedule or an owner, in bytes.
const NAME_BYTES_MAX: usize = 128;
/// The shortest interval and the shortest grace.
const SECOND: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_secs(60);
const JITTER_MAX: Duration = Duration::from_secs(86_400);

impl Schedule {
    /// A schedule that ticks at the civil times that a cron expression names, in UTC unless a
    /// [zone](Self::zone) is given. The [guide](crate::guide::schedules) has the dialect.
    ///
    /// The job is what each tick mints; an id, a due time, parents or a unique key of its own are refused
    /// ([`no_overlap`](Self::no_overlap) is what a unique key would be for).
    pub fn cron(
        name: impl Into<String>,
        expression: impl Into<String>,
        job: impl Into<NewJob>,
    ) -> Self {
        let timing = TimingText { cron: Some(expression.into()), ..TimingText::default() };
        Self::of(name.into(), timing, job.into())
    }

    /// A schedule that ticks every so often, in elapsed time: clock changes mean nothing to it. Its ticks are
    /// counted from [`starts_at`](Self::starts_at) or, without, from the Unix epoch, so that every quarter of an
    /// hour is at :00, :15, :30 and :45 of UTC. At least a second.
    pub fn every(name: impl Into<String>, interval: Duration, job: impl Into<NewJob>) -> Self {
        let timing = TimingText { every_us: Some(micros(interval)), ..TimingText::default() };
        Self::of(name.into(), timing, job.into())
    }

    const fn of(name: String, timing: TimingText, job: NewJob) -> Self {
        Self { name, timing, job, catch_up: CatchUp::Skip, grace: GRACE, no_overlap: false }
    }

    /// The zone whose clocks the expression speaks of, by its IANA name. Default: UTC. Refused for intervals.
    pub fn zone(mut self, name: impl Into<String>) -> Self {
        self.timing.zone = Some(name.into());
        self
    }

    /// What becomes of ticks that nobody looked at in time. Default: [`CatchUp::Skip`].
    pub fn catch_up(mut self, catch_up: CatchUp) -> Self {
        self.catch_up = catch_up;
        self
    }

    /// How late a tick may be looked at and still mint its job, with [`CatchUp::Skip`]. Default: 60 s; at least 1 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// A tick mints nothing while the job of an earlier one has not ended; it is skipped, and counted.
    pub fn no_overlap(mut self) -> Self {
        self.no_overlap = true;
        self
    }

    /// Delays each tick's job by up to so long, by a share of the tick's own that is the same on every node. The
    /// tick stays what it is. Default: none; at most a day.
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.timing.jitter_us = micros(jitter);
        self
    }

    /// No tick lies before that instant; an interval has its first tick there.
    pub fn starts_at(mut self, start: impl Into<Timestamp>) -> Self {
        self.timing.starts_at = Some(start.into());
        self
    }

    /// No tick lies after that instant.
    pub fn ends_at(mut self, end: impl Into<Timestamp>) -> Self {
        self.timing.ends_at = Some(end.into());
        self
    }

    /// The queue of its jobs, as [`NewJob::queue`].
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.job = self.job.queue(queue);
        self
    }

    /// The retry policy of its jobs, as [`NewJob::retry`].
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.job = self.job.retry(policy);
        self
    }

    /// How long one attempt of its jobs may take, as [`NewJob::timeout`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.job = self.job.timeout(timeout);
        self
    }

    /// A label of its jobs, as [`NewJob::tag`].
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.job = self.job.tag(tag);
        self
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The next `count` ticks, by this machine's clock. Fewer, where it ends before.
    ///
    /// # Errors
    /// [`ScheduleError::Refused`], with all that is wrong with when it ticks.
    pub fn next_times(&self, count: usize) -> Result<Vec<Timestamp>, ScheduleError> {
        self.next_times_after(SystemTime::now().into(), count)
    }

    /// The first `count` ticks after an instant. Fewer, where it ends before.
    ///
    /// # Errors
    /// [`ScheduleError::Refused`], with all that is wrong with when it ticks.
    pub fn next_times_after(
        &self,
        after: Timestamp,
        count: usize,
    ) -> Result<Vec<Timestamp>, ScheduleError> {
        let mut faults = Vec::new();
        let Some(timing) = self.check_timing(&mut faults).filter(|_| faults.is_empty()) else {
            return Err(ScheduleError::Refused { faults });
        };
        let ticks = std::iter::successors(timing.next(after), |tick| timing.next(*tick));
        Ok(ticks.take(count).collect())
    }

    /// As it is kept, or everything that is wrong with it.
    pub(crate) fn into_row(
        self,
        owner: &str,
        bounds: &Bounds,
    ) -> Result<ScheduleRow, Vec<ScheduleFault>> {
        let mut faults = Vec::new();
        if let Err(fault) = check_name(&self.name, NAME_BYTES_MAX) {
            self.fault(&mut faults, FaultReason::Name(fault));
        }
        self.check_timing(&mut faults);
        let definition = self.define(bounds, &mut faults);
        let texts = (serde_json::to_string(&self.timing), definition);
        match texts {
            (Ok(timing), Some(definition)) if faults.is_empty() => {
                Ok(ScheduleRow::new(self.name, owner.to_owned(), timing, definition))
            }
            _ => Err(faults),
        }
    }

    fn check_timing(&self, faults: &mut Vec<ScheduleFault>) -> Option<Timing> {
        let timing = &self.timing;
        let too = |field, limit, value| FaultReason::Duration { field, limit, value };
        if let Some(every) = timing.every_us.map(Duration::from_micros) {
            if every < SECOND {
                self.fault(faults, too("interval", SECOND, every));
            }
            if let Some(zone) = &timing.zone {
                self.fault(faults, FaultReason::ZoneOfInterval { zone: zone.clone() });
            }
        }
        let jitter = Duration::from_micros(timing.jitter_us);
        if jitter > JITTER_MAX {
            self.fault(faults, too("jitter", JITTER_MAX, jitter));
        }
        if let (Some(start), Some(end)) = (timing.starts_at, timing.ends_at)
            && end < start
        {
            self.fault(faults, FaultReason::EndsBeforeItStarts { start, end });
        }
        match timing.resolve(&zone_of) {
            Ok(timing) => Some(timing),
            Err(fault) => {
                self.fault(faults, fault.into());
                None
            }
        }
    }

    fn define(&self, bounds: &Bounds, faults: &mut Vec<ScheduleFault>) -> Option<String> {
        if self.grace < SECOND {
            let (field, limit, value) = ("grace", SECOND, self.grace);
            self.fault(faults, FaultReason::Duration { field, limit, value });
        }
        if let Some(field) = self.job.unrepeatable() {
            self.fault(faults, FaultReason::Unrepeatable { field });
        }
        let row = match self.job.clone().into_row() {
            Ok(row) => row,
            Err(error) => {
                self.fault(faults, FaultReason::Payload(error.to_string()));
                return None;
            }
        };
        self.check_job(&row, bounds, faults);
        match Definition::of(row) {
            Ok(mut definition) => {
                definition.catch_up = self.catch_up;
                definition.grace_us = micros(self.grace);
                definition.no_overlap = self.no_overlap;
                serde_json::to_string(&definition).ok()
            }
            Err(error) => {
                self.fault(faults, FaultReason::Payload(error));
                None
            }
        }
    }

    fn check_job(&self, row: &JobRow, bounds: &Bounds, faults: &mut Vec<ScheduleFault>) {
        // Told before, if it has any.
        let row = JobRow { parents: Vec::new(), due: crate::store::Due::Now, ..row.clone() };
        let checked = check_rows(std::slice::from_ref(&row), bounds, Timestamp::EPOCH);
        if let Err((_, rejection)) = checked {
            self.fault(faults, FaultReason::Job(rejection));
        }
    }

    fn fault(&self, faults: &mut Vec<ScheduleFault>, reason: FaultReason) {
        let schedule = self.name.chars().take(64).collect();
        faults.push(ScheduleFault { schedule, reason });
    }
}

impl From<TimingFault> for FaultReason {
    fn from(fault: TimingFault) -> Self {
        match fault {
            TimingFault::Cron { expression, fault } => Self::Expression { expression, fault },
            TimingFault::Zone { zone, why } => Self::Zone { zone, why },
            TimingFault::Text(why) => Self::Timing { why },
        }
    }
}
