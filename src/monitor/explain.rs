//! Why a job is not running.

use super::{JobFilter, Monitor, PumpRecord, QueueSettings};
use crate::store::JobRecord;
use crate::{Error, JobId, JobState, Timestamp, WorkerId};
use std::fmt;
use std::time::Duration;

/// Why a job is not running, or that it is; from [`Monitor::explain`]. Prints as a sentence per reason.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// The job.
    pub job: JobId,
    /// Its state.
    pub state: JobState,
    /// The reasons that were found, the most telling first.
    pub reasons: Vec<Reason>,
}

/// One reason.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// It has ended.
    Ended {
        /// When.
        at: Option<Timestamp>,
        /// What went wrong last.
        detail: Option<String>,
    },
    /// A worker holds it.
    Running {
        /// The worker.
        worker: WorkerId,
        /// The group it belongs to, where that has told of itself.
        group: Option<String>,
        /// When its lease ends unless it is renewed.
        until: Timestamp,
    },
    /// Its worker has not renewed its lease: the next maintenance of a group that serves the queue settles it.
    LeaseLapsed {
        /// The worker.
        worker: WorkerId,
        /// For how long.
        since: Duration,
    },
    /// It waits for other jobs to end.
    AwaitsParents {
        /// Those that live.
        parents: Vec<JobId>,
    },
    /// It is not due yet; after a failure this is its backoff.
    NotDue {
        /// When it is.
        due_at: Timestamp,
        /// How many of its attempts have failed.
        failures: u32,
    },
    /// Its queue is paused.
    QueuePaused {
        /// The queue.
        queue: String,
    },
    /// As many jobs of its queue are leased as may be.
    QueueAtLimit {
        /// The queue.
        queue: String,
        /// The limit.
        limit: u32,
        /// How many are leased.
        leased: u64,
    },
    /// As many jobs of its queue with its concurrency key are leased as may be.
    KeyAtLimit {
        /// The key.
        key: String,
        /// The limit.
        limit: u32,
        /// How many are leased.
        leased: u64,
    },
    /// No group that has told of itself lately serves its queue.
    NobodyServesQueue {
        /// The queue.
        queue: String,
    },
    /// Groups serve its queue, and none of them has a handler for it.
    NobodyHandles {
        /// Its wire name.
        wire_name: String,
    },
    /// Nothing holds it back: it waits for a free worker, behind this many due jobs of its queue at most.
    Waiting {
        /// How many jobs are Scheduled in its queue, itself included.
        scheduled: u64,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended { at, detail } => {
                f.write_str("it has ended")?;
                if let Some(at) = at {
                    write!(f, " at {at}")?;
                }
                detail.as_ref().map_or(Ok(()), |detail| write!(f, ": {detail}"))
            }
            Self::Running { worker, group: Some(group), until } => {
                write!(f, "worker {worker} of group {group:?} runs it, its lease ends at {until}")
            }
            Self::Running { worker, group: None, until } => {
                write!(f, "worker {worker} runs it, its lease ends at {until}")
            }
            Self::LeaseLapsed { worker, since } => write!(
                f,
                "worker {worker} lost its lease {since:?} ago, which the next maintenance settles"
            ),
            Self::AwaitsParents { parents } if parents.is_empty() => f.write_str(
                "it waits for no job that is there: it was released just now, or what it waits for was deleted \
                 by hand, and then it waits until it is cancelled",
            ),
            Self::AwaitsParents { parents } => {
                write!(f, "it waits for {} other job(s) to end:", parents.len())?;
                parents.iter().try_for_each(|parent| write!(f, " {parent}"))
            }
            Self::NotDue { due_at, failures: 0 } => write!(f, "it is not due until {due_at}"),
            Self::NotDue { due_at, failures } => {
                write!(f, "it is not due until {due_at}, after {failures} failure(s)")
            }
            Self::QueuePaused { queue } => write!(f, "the queue {queue:?} is paused"),
            Self::QueueAtLimit { queue, limit, leased } => write!(
                f,
                "the queue {queue:?} is limited to {limit} at a time, and {leased} are leased"
            ),
            Self::KeyAtLimit { key, limit, leased } => write!(
                f,
                "it waits for its concurrency key {key:?}, of which {leased} of {limit} are leased"
            ),
            Self::NobodyServesQueue { queue } => {
                write!(f, "no group that told of itself lately serves the queue {queue:?}")
            }
            Self::NobodyHandles { wire_name } => {
                write!(f, "no group that serves its queue has a handler for {wire_name:?}")
            }
            Self::Waiting { scheduled } => write!(
                f,
                "it waits for a free worker, {scheduled} job(s) are Scheduled in its queue"
            ),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {} is {}", self.job, self.state)?;
        for (place, reason) in self.reasons.iter().enumerate() {
            write!(f, "{}{reason}", if place == 0 { ": " } else { "; " })?;
        }
        Ok(())
    }
}

/// A pump that has not told of itself for so long is not counted upon.
const LATELY: Duration = Duration::from_secs(120);

pub(super) fn explain(monitor: &Monitor, id: JobId) -> Result<Explanation, Error> {
    let job = monitor.job(id)?;
    let now = monitor.now()?;
    let reasons = match job.state {
        JobState::Succeeded
        | JobState::DeadLettered
        | JobState::Quarantined
        | JobState::Cancelled => {
            vec![Reason::Ended { at: job.finished_at, detail: job.failure_detail.clone() }]
        }
        JobState::AwaitingParent => {
            let parents = monitor.parents(id)?.into_iter();
            let gating = parents.filter(|parent| parent.is_gating()).map(|parent| parent.id());
            vec![Reason::AwaitsParents { parents: gating.collect() }]
        }
        JobState::Leased => leased(monitor, &job, now)?,
        JobState::Scheduled => scheduled(monitor, &job, now)?,
    };
    Ok(Explanation { job: id, state: job.state, reasons })
}

fn leased(monitor: &Monitor, job: &JobRecord, now: Timestamp) -> Result<Vec<Reason>, Error> {
    let (Some(worker), Some(until)) = (job.owner, job.expiry) else { return Ok(Vec::new()) };
    if until <= now {
        return Ok(vec![Reason::LeaseLapsed { worker, since: now.since(until) }]);
    }
    let pumps = monitor.pumps()?.into_iter().map(|pump| pump.announcement);
    let group = pumps.filter(|pump| pump.worker == worker).map(|pump| pump.group).next();
    Ok(vec![Reason::Running { worker, group, until }])
}

fn scheduled(monitor: &Monitor, job: &JobRecord, now: Timestamp) -> Result<Vec<Reason>, Error> {
    let mut reasons = Vec::new();
    let queue = || job.queue.clone();
    if job.due_at > now {
        reasons.push(Reason::NotDue { due_at: job.due_at, failures: job.failures });
    }
    let counts = monitor.counts()?;
    let count = |state| {
        let of = counts.iter().find(|count| count.queue == job.queue && count.state == state);
        of.map_or(0, |count| count.count)
    };
    let mut settings = monitor.queues()?.into_iter().filter(|set| set.queue == job.queue);
    let settings = settings.next().unwrap_or_else(|| QueueSettings::new(queue()));
    if settings.is_paused {
        reasons.push(Reason::QueuePaused { queue: queue() });
    }
    let leased = count(JobState::Leased);
    if let Some(limit) = settings.concurrency_limit.filter(|limit| leased >= (*limit).into()) {
        reasons.push(Reason::QueueAtLimit { queue: queue(), limit, leased });
    }
    reasons.extend(key_at_limit(monitor, job, settings.key_limit())?);
    reasons.extend(nobody(&monitor.pumps()?, job, now));
    if reasons.is_empty() {
        reasons.push(Reason::Waiting { scheduled: count(JobState::Scheduled) });
    }
    Ok(reasons)
}

/// Whether its concurrency key has no slot for it.
fn key_at_limit(monitor: &Monitor, job: &JobRecord, limit: u32) -> Result<Option<Reason>, Error> {
    let Some(key) = job.concurrency_key.clone() else { return Ok(None) };
    let filter = JobFilter::new().state(JobState::Leased).queue(&job.queue).concurrency_key(&key);
    let mut leased = 0;
    for running in monitor.find(filter) {
        running?;
        leased += 1;
    }
    Ok((leased >= u64::from(limit)).then_some(Reason::KeyAtLimit { key, limit, leased }))
}

/// Whether there is nobody who would run it, so far as pumps have told of themselves.
fn nobody(pumps: &[PumpRecord], job: &JobRecord, now: Timestamp) -> Option<Reason> {
    let lives = |pump: &&PumpRecord| pump.halted_at.is_none() && now.since(pump.last_seen) < LATELY;
    let serves = |pump: &&PumpRecord| pump.announcement.queues.contains(&job.queue);
    let mut serving = pumps.iter().filter(lives).filter(serves).peekable();
    if serving.peek().is_none() {
        return Some(Reason::NobodyServesQueue { queue: job.queue.clone() });
    }
    let handled = serving.any(|pump| pump.announcement.wire_names.contains(&job.wire_name));
    (!handled).then(|| Reason::NobodyHandles { wire_name: job.wire_name.clone() })
}
