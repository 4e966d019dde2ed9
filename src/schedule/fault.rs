//! What can be wrong with schedules, and with calls about them.

use crate::kernel::schedule::CronFault;
use crate::store::Rejection;
use crate::{Error, NameFault, Timestamp};
use std::time::Duration;

/// Something that is wrong with a schedule as it was declared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("schedule {schedule:?}: {reason}")]
#[non_exhaustive]
pub struct ScheduleFault {
    /// Its name, cut to 64 characters.
    pub schedule: String,
    /// What.
    pub reason: FaultReason,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultReason {
    /// The name cannot be used.
    #[error("the name is refused: {0}")]
    Name(NameFault),
    /// Another schedule of the same call has this name.
    #[error("the name is given twice")]
    NameTwice,
    /// The expression does not read, or names no time that ever comes.
    #[error("the expression {expression:?} is refused: {fault}")]
    Expression {
        /// The expression.
        expression: String,
        /// What is wrong with it.
        fault: CronFault,
    },
    /// There is no zone of that name.
    #[error("the zone {zone:?} is not known: {why}")]
    Zone {
        /// The name.
        zone: String,
        /// What the search for it says.
        why: String,
    },
    /// An interval is of elapsed time and knows no zone.
    #[error("an interval has no zone, and {zone:?} is given")]
    ZoneOfInterval {
        /// The zone.
        zone: String,
    },
    /// A duration is beyond its limit: the least for an interval and a grace, the most for a jitter.
    #[error("the {field} is {value:?} and the limit is {limit:?}")]
    Duration {
        /// `interval`, `grace` or `jitter`.
        field: &'static str,
        /// The limit.
        limit: Duration,
        /// The duration given.
        value: Duration,
    },
    /// Its end lies before its start.
    #[error("it ends at {end}, before it starts at {start}")]
    EndsBeforeItStarts {
        /// The start.
        start: Timestamp,
        /// The end.
        end: Timestamp,
    },
    /// It cannot be said when it ticks.
    #[error("{why}")]
    Timing {
        /// Why not.
        why: String,
    },
    /// The job has something that cannot be the same for each tick.
    #[error("its job has its own {field}, which each tick's job has by itself")]
    Unrepeatable {
        /// `id`, `due` or `parents`.
        field: &'static str,
    },
    /// The job's payload cannot be written as JSON.
    #[error("the payload of its job cannot be encoded: {0}")]
    Payload(String),
    /// The job is beyond the store's bounds.
    #[error("its job is refused: {0}")]
    Job(Rejection),
}

/// What a call about schedules can fail with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// Something is wrong with what was declared: all of it. Nothing was written.
    #[error("{}", told(faults))]
    Refused {
        /// Everything that is wrong.
        faults: Vec<ScheduleFault>,
    },
    /// The owner's name cannot be used.
    #[error("the owner {name:?} is refused: {fault}")]
    Owner {
        /// The name, cut to 64 characters.
        name: String,
        /// What is wrong with it.
        fault: NameFault,
    },
    /// The name belongs to another owner. Nothing was written.
    #[error("schedule {schedule:?} belongs to {owner:?}")]
    Foreign {
        /// The schedule.
        schedule: String,
        /// Whose it is.
        owner: String,
    },
    /// There is no such schedule.
    #[error("there is no schedule {schedule:?}")]
    NotFound {
        /// The name asked for.
        schedule: String,
    },
    /// The schedule cannot be triggered: what is kept of it does not read, or its job was refused.
    #[error("schedule {schedule:?} cannot be triggered: {why}")]
    Untriggerable {
        /// The schedule.
        schedule: String,
        /// Why not.
        why: String,
    },
    /// The call itself failed.
    #[error("the call about schedules failed")]
    Call(#[source] Error),
}

fn told(faults: &[ScheduleFault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl From<Error> for ScheduleError {
    fn from(error: Error) -> Self {
        Self::Call(error)
    }
}
