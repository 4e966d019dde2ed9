//! Faults of a store, and the one question asked of them: may this be tried again?
//!
//! The answer is fail-closed. Transient is what the database layer itself flagged as transient, a
//! timeout, or what the adapter's own [`StoreFaultClassifier`] recognises. Everything else, the
//! unknown included, stops the pump that met it.

#[cfg(feature = "sqlite")]
use crate::invariant::halt;
use crate::invariant::{InvariantTrigger, InvariantViolation, find_trigger};
use std::error::Error;
use std::fmt;

type BoxError = Box<dyn Error + Send + Sync>;

/// A fault of a store: never something that a caller can cause.
///
/// An adapter makes it where the fault's own type is known, so that health can name that type.
///
/// ```
/// use backwave::store::{FaultClass, StoreError, classify};
///
/// let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
/// let error = StoreError::transient(reset).with_session_lost();
/// assert_eq!(error.type_name(), "std::io::error::Error");
/// assert_eq!(classify(&error, None), FaultClass::Transient);
///
/// let unknown = StoreError::new(std::io::Error::other("who knows"));
/// assert_eq!(classify(&unknown, None), FaultClass::Fatal);
/// ```
pub struct StoreError(Box<Fault>);

struct Fault {
    kind: Kind,
    type_name: &'static str,
    /// The database's own code for it: an SQLSTATE, or an SQLite result code.
    code: Option<String>,
    /// What to print instead of the source's own text.
    message: Option<String>,
    session_lost: bool,
    refused_whole: bool,
    source: BoxError,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Unflagged,
    Transient,
    Timeout,
}

impl StoreError {
    /// A fault that nothing is known of: treated as a violation unless the adapter's classifier
    /// recognises it.
    #[must_use]
    pub fn new<E: Error + Send + Sync + 'static>(source: E) -> Self {
        Self::of(Kind::Unflagged, source)
    }

    /// A fault that the database layer itself flags as transient.
    #[must_use]
    pub fn transient<E: Error + Send + Sync + 'static>(source: E) -> Self {
        Self::of(Kind::Transient, source)
    }

    /// A call that took longer than it may.
    #[must_use]
    pub fn timeout<E: Error + Send + Sync + 'static>(source: E) -> Self {
        Self::of(Kind::Timeout, source)
    }

    fn of<E: Error + Send + Sync + 'static>(kind: Kind, source: E) -> Self {
        Self(Box::new(Fault {
            kind,
            type_name: std::any::type_name::<E>(),
            code: None,
            message: None,
            session_lost: false,
            refused_whole: false,
            source: Box::new(source),
        }))
    }

    /// A violation found while a transaction or a lock of the store's is held: not counted yet, since
    /// counting runs the host's recorder. To be followed by [`Self::counted`] once that is let go of.
    #[cfg(feature = "sqlite")]
    pub(crate) fn found(trigger: InvariantTrigger, message: impl Into<String>) -> Self {
        Self::new(Finding { trigger, message: message.into() })
    }

    /// Makes a violation of what was [found](Self::found); any other error stays as it is.
    #[cfg(feature = "sqlite")]
    #[must_use]
    pub(crate) fn counted(self) -> Self {
        match self.downcast_ref::<Finding>() {
            Some(found) => halt(found.trigger, found.message.as_str()).into(),
            None => self,
        }
    }

    /// Adds the database's own code.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.0.code = Some(code.into());
        self
    }

    /// Prints this in place of the fault's own text, for clients whose errors tell what happened only in
    /// their sources.
    ///
    /// ```
    /// # use backwave::store::StoreError;
    /// let vague = std::io::Error::other("db error");
    /// let error = StoreError::new(vague).with_code("57P01").with_message("terminated by an administrator");
    /// assert_eq!(error.to_string(), "the store failed (57P01): terminated by an administrator");
    /// ```
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.0.message = Some(message.into());
        self
    }

    /// Says that the session is of no more use and must be opened anew.
    #[must_use]
    pub fn with_session_lost(mut self) -> Self {
        self.0.session_lost = true;
        self
    }

    /// Says that the call has surely had no effect, although the session is lost: the store answered, and
    /// refused it as a whole. Without it, a call that lost its session is in doubt.
    ///
    /// ```
    /// # use backwave::store::StoreError;
    /// let full = StoreError::transient(std::io::Error::other("disk full"));
    /// assert!(!full.refused_whole());
    /// assert!(full.with_session_lost().with_refused_whole().refused_whole());
    /// ```
    #[must_use]
    pub fn with_refused_whole(mut self) -> Self {
        self.0.refused_whole = true;
        self
    }

    /// Whether the call has surely had no effect.
    #[must_use]
    pub const fn refused_whole(&self) -> bool {
        self.0.refused_whole
    }

    /// The database's own code: an SQLSTATE, or an SQLite extended result code.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.0.code.as_deref()
    }

    /// Whether the session must be opened anew.
    #[must_use]
    pub const fn session_lost(&self) -> bool {
        self.0.session_lost
    }

    /// The full name of the fault's type.
    #[must_use]
    pub const fn type_name(&self) -> &'static str {
        self.0.type_name
    }

    /// The fault itself, if it is an `E`.
    #[must_use]
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        self.0.source.downcast_ref()
    }

    /// The violated invariant that this fault is or carries.
    #[must_use]
    pub fn violation(&self) -> Option<&InvariantViolation> {
        let mut next: Option<&(dyn Error + 'static)> = Some(self.0.source.as_ref());
        for _ in 0..64 {
            let error = next?;
            if let Some(violation) = error.downcast_ref() {
                return Some(violation);
            }
            next = error.source();
        }
        None
    }

    /// The trigger of the violated invariant that this fault is or carries.
    #[must_use]
    pub fn trigger(&self) -> Option<InvariantTrigger> {
        find_trigger(self.0.source.as_ref())
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the store failed")?;
        if let Some(code) = &self.0.code {
            write!(f, " ({code})")?;
        }
        match &self.0.message {
            Some(message) => write!(f, ": {message}"),
            None => write!(f, ": {}", self.0.source),
        }
    }
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreError")
            .field("kind", &self.0.kind)
            .field("type_name", &self.0.type_name)
            .field("code", &self.0.code)
            .field("session_lost", &self.0.session_lost)
            // Not the fault's own `Debug`, which may show a row.
            .field("text", &format_args!("{self}"))
            .finish_non_exhaustive()
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // Our own text has said what the fault itself says, and a reader that prints the chain should
        // not meet it twice: so the chain goes on below it. Where a message was put in the place of that
        // text, it goes on only to a violated invariant: a database's detail may show a row.
        let below = self.0.source.source();
        below.filter(|_| self.0.message.is_none() || self.trigger().is_some())
    }
}

/// A violation on its way out of a transaction.
#[cfg(feature = "sqlite")]
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct Finding {
    trigger: InvariantTrigger,
    message: String,
}

impl From<InvariantViolation> for StoreError {
    fn from(violation: InvariantViolation) -> Self {
        Self::new(violation)
    }
}

/// What a pump does about a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultClass {
    /// It ends the cycle and goes on at the next tick.
    Transient,
    /// It halts, with that named check.
    Violation(InvariantTrigger),
    /// It halts, unclassified.
    Fatal,
}

/// Teaches the classification which faults of one adapter are transient. The only public extension
/// point there is.
///
/// An implementation only looks at the error, and never takes a permanent fault for a transient one: a
/// false positive turns a fatal error into an endless retry.
pub trait StoreFaultClassifier: Send + Sync {
    /// Whether this fault is known to be transient. `false` leaves it to the default.
    fn is_transient_fault(&self, error: &StoreError) -> bool;
}

/// Sorts a fault. A violation is one whatever else the error says of itself.
#[must_use]
pub fn classify(error: &StoreError, adapter: Option<&dyn StoreFaultClassifier>) -> FaultClass {
    if let Some(trigger) = error.trigger() {
        return FaultClass::Violation(trigger);
    }
    let flagged = matches!(error.0.kind, Kind::Transient | Kind::Timeout);
    if flagged || adapter.is_some_and(|adapter| adapter.is_transient_fault(error)) {
        return FaultClass::Transient;
    }
    FaultClass::Fatal
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(not(feature = "sqlite"))]
    use crate::invariant::halt;

    struct Everything;

    impl StoreFaultClassifier for Everything {
        fn is_transient_fault(&self, _: &StoreError) -> bool {
            true
        }
    }

    #[test]
    fn a_violation_is_never_transient_whatever_the_adapter_says() {
        let violation = halt(InvariantTrigger::GuaranteedRowAbsent, "gone");
        let error = StoreError::transient(violation);
        let expected = FaultClass::Violation(InvariantTrigger::GuaranteedRowAbsent);
        assert_eq!(classify(&error, Some(&Everything)), expected);
    }

    #[test]
    fn a_printed_chain_says_nothing_twice_and_shows_no_row() {
        let below = std::io::Error::other("row (secret)");
        let fault = std::io::Error::other(crate::Error::Store(StoreError::new(below)));
        let chain = anyhow::Error::from(StoreError::new(fault));
        let printed = format!("{chain:#}");
        assert_eq!(
            printed,
            "the store failed: the store could not carry out the call: the store failed: row (secret)"
        );

        #[derive(Debug, thiserror::Error)]
        #[error("vague")]
        struct Vague(#[source] std::io::Error);
        let vague = || StoreError::new(Vague(std::io::Error::other("(secret)")));
        assert_eq!(
            format!("{:#}", anyhow::Error::from(vague())),
            "the store failed: vague: (secret)"
        );
        let hidden = vague().with_message("terminated");
        assert!(!format!("{hidden:?}").contains("secret"));
        assert_eq!(format!("{:#}", anyhow::Error::from(hidden)), "the store failed: terminated");
    }

    #[test]
    fn a_violation_below_a_message_is_found_by_who_walks_the_chain() {
        #[derive(Debug, thiserror::Error)]
        #[error("vague")]
        struct Vague(#[source] InvariantViolation);
        let violation = halt(InvariantTrigger::GuaranteedRowAbsent, "gone");
        let error = StoreError::new(Vague(violation)).with_message("terminated");
        let mut below = std::iter::successors(error.source(), |&error| error.source());
        assert!(below.any(|error| error.is::<InvariantViolation>()));
    }

    #[test]
    fn an_unknown_fault_halts_unless_the_adapter_knows_it() {
        let error = StoreError::new(fmt::Error);
        assert_eq!(classify(&error, None), FaultClass::Fatal);
        assert_eq!(classify(&error, Some(&Everything)), FaultClass::Transient);
        assert_eq!(classify(&StoreError::timeout(fmt::Error), None), FaultClass::Transient);
    }
}
