//! What stops a pump, in a form that health and the log can show.

use crate::invariant::{InvariantTrigger, InvariantViolation};
use crate::job_error::ViolationSeen;
use crate::registry::panic_message;
use crate::store::StoreError;
use crate::{EnqueueError, HaltState, JobError};
use std::any::Any;
use std::error::Error;
use std::fmt;

/// A fault that is not shown to be transient.
#[derive(Debug)]
pub(crate) struct Fault {
    type_name: String,
    code: Option<String>,
    message: String,
    trigger: Option<InvariantTrigger>,
}

impl Fault {
    pub(crate) fn new(
        type_name: &str,
        message: impl Into<String>,
        trigger: Option<InvariantTrigger>,
    ) -> Self {
        Self { type_name: type_name.to_owned(), code: None, message: message.into(), trigger }
    }

    /// From what a panic carried: a violation raised by unwinding, or somebody's bug.
    pub(crate) fn from_panic(payload: Box<dyn Any + Send>) -> Self {
        match Self::violation_in(payload.as_ref()) {
            Some(fault) => {
                crate::contain::dispose(payload);
                fault
            }
            None => {
                let message = panic_message(payload.as_ref());
                crate::contain::dispose(payload);
                Self::new("panic", message, None)
            }
        }
    }

    /// The violation that a panic carried, if it did.
    pub(crate) fn violation_in(payload: &(dyn Any + Send)) -> Option<Self> {
        if let Some(violation) = payload.downcast_ref::<InvariantViolation>() {
            return Some(Self::from(violation.clone()));
        }
        let seen = ViolationSeen::in_chain(error_in(payload)?)?;
        Some(Self::new(seen.type_name, seen.message, Some(seen.trigger)))
    }

    pub(crate) const fn trigger(&self) -> Option<InvariantTrigger> {
        self.trigger
    }

    pub(crate) fn trigger_name(&self) -> &'static str {
        self.trigger.map_or(crate::telemetry::UNCLASSIFIED, InvariantTrigger::name)
    }

    pub(crate) fn halt_state(&self) -> HaltState {
        HaltState::new(&self.type_name, self.code.clone(), &self.message, self.trigger)
    }
}

/// The error that a panic carried, where it is of a type that may hold a violation.
fn error_in(payload: &(dyn Any + Send)) -> Option<&(dyn Error + 'static)> {
    fn known<E: Error + 'static>(payload: &(dyn Any + Send)) -> Option<&(dyn Error + 'static)> {
        payload.downcast_ref::<E>().map(|error| error as _)
    }
    let boxed = || {
        let error = payload.downcast_ref::<Box<dyn Error + Send + Sync>>()?;
        Some(error.as_ref() as &(dyn Error + 'static))
    };
    known::<StoreError>(payload)
        .or_else(|| known::<EnqueueError>(payload))
        .or_else(|| known::<crate::Error>(payload))
        .or_else(|| known::<InvariantTrigger>(payload))
        .or_else(boxed)
        .or_else(|| payload.downcast_ref::<JobError>()?.error())
}

impl From<InvariantViolation> for Fault {
    fn from(violation: InvariantViolation) -> Self {
        let name = std::any::type_name::<InvariantViolation>();
        Self::new(name, violation.message(), Some(violation.trigger()))
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        if let Some(violation) = error.violation() {
            return Self::from(violation.clone());
        }
        Self {
            type_name: error.type_name().to_owned(),
            code: error.code().map(str::to_owned),
            message: error.to_string(),
            trigger: error.trigger(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.type_name, self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_error_that_carries_a_bare_trigger_keeps_its_name() {
        let trigger = InvariantTrigger::GuaranteedRowAbsent;
        assert_eq!(Fault::from(StoreError::new(trigger)).trigger(), Some(trigger));
    }
}
