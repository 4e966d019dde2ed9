//! The words in which health speaks.

use crate::invariant::InvariantTrigger;
use crate::{JobId, Timestamp};
use serde::Serialize;
use std::fmt;

/// How it is, the worst last. Complete on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum HealthStatus {
    /// Nothing is wrong.
    Healthy,
    /// Some group limps and still serves.
    Degraded,
    /// Some group is halted.
    Unhealthy,
}

impl HealthStatus {
    /// What a health endpoint answers: 200, 200 and 503.
    #[must_use]
    pub const fn http_status(self) -> u16 {
        match self {
            Self::Healthy | Self::Degraded => 200,
            Self::Unhealthy => 503,
        }
    }
}

impl fmt::Display for HealthStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Healthy => "Healthy",
            Self::Degraded => "Degraded",
            Self::Unhealthy => "Unhealthy",
        })
    }
}

/// Why a pump halted. Prints as `type: message`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HaltState {
    /// The full name of the fault's type.
    pub type_name: String,
    /// The database's own code, where there is one: an SQLSTATE, an SQLite result code.
    pub code: Option<String>,
    /// What the fault says.
    pub message: String,
    /// The named check that raised it; `None` when none did.
    #[serde(serialize_with = "trigger_name")]
    pub trigger: Option<InvariantTrigger>,
}

impl HaltState {
    pub(crate) fn new(
        type_name: impl Into<String>,
        code: Option<String>,
        message: impl Into<String>,
        trigger: Option<InvariantTrigger>,
    ) -> Self {
        Self { type_name: type_name.into(), code, message: message.into(), trigger }
    }
}

impl fmt::Display for HaltState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.type_name, self.message)
    }
}

fn trigger_name<S: serde::Serializer>(
    trigger: &Option<InvariantTrigger>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    trigger.map(InvariantTrigger::name).serialize(serializer)
}

/// Why a pump limps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[non_exhaustive]
pub enum DegradedCause {
    /// The store fails transiently.
    StoreFault,
    /// The store's clock moved by more than a second against the monotonic clock.
    ClockJumped,
    /// As many threads as may be have been replaced because their handlers ignore their tokens.
    StuckHandlers,
    /// A call of the store has not come back for far longer than it should take.
    Hung,
}

impl fmt::Display for DegradedCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::StoreFault => "store fault",
            Self::ClockJumped => "clock jumped",
            Self::StuckHandlers => "stuck handlers",
            Self::Hung => "hung in a call",
        })
    }
}

/// One cause for which a group limps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Degradation {
    /// The cause.
    pub cause: DegradedCause,
    /// The full name of the fault's type, where there is a fault.
    pub fault_type: Option<String>,
    /// How many pumps it marks.
    pub pumps: usize,
}

/// One group in a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct GroupReport {
    /// Its name.
    pub name: String,
    /// How it is.
    pub status: HealthStatus,
    /// How many pumps it has.
    pub pumps: usize,
    /// The pumps that have halted.
    pub halts: Vec<HaltState>,
    /// Why the others limp.
    pub degradations: Vec<Degradation>,
    /// Handlers that ignore their tokens and whose threads have been replaced.
    pub stuck: Vec<StuckHandler>,
}

/// A handler that ignores its token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StuckHandler {
    /// Its job.
    pub job: JobId,
    /// Its attempt.
    pub attempt: u32,
    /// When it was asked to end.
    pub since: Timestamp,
}

/// The health of all groups at one moment.
///
/// It prints the status, each affected group and the type of its fault, and nothing more. Serialises
/// for machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HealthReport {
    /// The worst of all groups.
    pub status: HealthStatus,
    /// Every group, by name.
    pub groups: Vec<GroupReport>,
}

impl fmt::Display for HealthReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status)?;
        let mut separator = ": ";
        for group in self.groups.iter().filter(|group| group.status != HealthStatus::Healthy) {
            write!(f, "{separator}{group}")?;
            separator = ", ";
        }
        Ok(())
    }
}

impl fmt::Display for GroupReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group '{}' (", self.name)?;
        let mut separator = "";
        if let Some(halt) = self.halts.first() {
            write!(f, "{} of {} pumps halted: {}", self.halts.len(), self.pumps, halt.type_name)?;
            separator = "; ";
        }
        for degradation in &self.degradations {
            write!(f, "{separator}{}", degradation.cause)?;
            if let Some(fault_type) = &degradation.fault_type {
                write!(f, ": {fault_type}")?;
            }
            separator = "; ";
        }
        f.write_str(")")
    }
}
