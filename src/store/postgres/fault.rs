//! Which faults of Postgres are transient: a closed list of exact codes and I/O kinds.
//!
//! Nothing is decided by a class of codes or by a message. A database error decides before any I/O error
//! in its source chain. What is on neither list is left unflagged, which halts whoever meets it.

use super::error::PostgresOpenError;
use super::migrate::{VERSION, schema_too_new};
use crate::invariant::{InvariantTrigger, halt};
use crate::store::StoreError;
use std::error::Error;
use std::io;

/// Rolled back as a whole; the session goes on.
const KEEPS_SESSION: [&str; 4] = ["40001", "40P01", "55P03", "57014"];

/// The session, or the server as it is now, is of no use; a new session may be. 08007 and 40003 leave the
/// commit unknown; 25006 is a standby after a failover; 53xxx is refused and rolled back as a whole.
const LOSES_SESSION: [&str; 19] = [
    "08000", "08001", "08003", "08004", "08006", "08007", "40003", "57P01", "57P02", "57P03",
    "57P05", "25P03", "25P04", "25006", "53000", "53100", "53200", "53300", "53400",
];

/// Of these, the ones that a server answers with before or instead of a commit: nothing of the call is left.
const REFUSES_WHOLE: [&str; 6] = ["25006", "53000", "53100", "53200", "53300", "53400"];

/// A statement that the session should know is not known, or one that it should not know is.
const UNKNOWN_STATEMENT: [&str; 2] = ["26000", "42P05"];

/// Raised by our own functions; the hint names the trigger.
const VIOLATION: &str = "BW001";

/// Raised by functions that a newer release has put in the place of ours; the hint tells the oldest version
/// of the code that may use the schema.
const SUPERSEDED: &str = "BW003";

/// Sorts an error of the client.
pub(super) fn fault(error: ::postgres::Error) -> StoreError {
    let message = message(&error);
    let sorted = classified(error);
    // That one has a text of its own.
    if sorted.code() == Some(SUPERSEDED) { sorted } else { sorted.with_message(message) }
}

/// What happened. The client prints "db error", and keeps to its sources what the error was. Of a
/// database error only the message: its detail may show a row, and so a payload.
fn message(error: &::postgres::Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(db), _) => db.message().to_owned(),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

fn classified(error: ::postgres::Error) -> StoreError {
    if let Some(db) = error.as_db_error() {
        let code = db.code().code().to_owned();
        let named = db.hint().and_then(|hint| hint.parse::<InvariantTrigger>().ok());
        if let (VIOLATION, Some(trigger)) = (code.as_str(), named) {
            return halt(trigger, db.message()).into();
        }
        if code == SUPERSEDED {
            let min_reader = db.hint().and_then(|hint| hint.parse().ok());
            return schema_too_new(min_reader.unwrap_or(VERSION + 1)).with_code(code);
        }
        if KEEPS_SESSION.contains(&code.as_str()) {
            return StoreError::transient(error).with_code(code);
        }
        if LOSES_SESSION.contains(&code.as_str()) {
            let refused_whole = REFUSES_WHOLE.contains(&code.as_str());
            let fault = StoreError::transient(error).with_code(code).with_session_lost();
            return if refused_whole { fault.with_refused_whole() } else { fault };
        }
        return StoreError::new(error).with_code(code);
    }
    if error.is_closed() || io_kind(&error).is_some_and(is_transient_kind) {
        return StoreError::transient(error).with_session_lost();
    }
    StoreError::new(error)
}

/// The same for the making of a connection, where the host may be away altogether.
pub(super) fn connect_fault(error: ::postgres::Error) -> StoreError {
    let no_socket =
        error.as_db_error().is_none() && io_kind(&error) == Some(io::ErrorKind::NotFound);
    if no_socket {
        let message = message(&error);
        return StoreError::transient(error).with_session_lost().with_message(message);
    }
    fault(error)
}

/// No address for the server's name: a resolver that is away looks the same as a name that is wrong.
pub(super) fn lookup_fault(host: &str, source: io::Error) -> StoreError {
    StoreError::transient(PostgresOpenError::NameLookup { host: host.to_owned(), source })
        .with_session_lost()
}

/// Whether the server did not know the prepared statement, and so nothing has run.
pub(super) fn is_unknown_statement(error: &::postgres::Error) -> bool {
    error.code().is_some_and(|code| UNKNOWN_STATEMENT.contains(&code.code()))
}

/// Whether a row was there already, or became so at the same moment; nothing of the call is left.
pub(super) fn is_unique_violation(error: &StoreError) -> bool {
    error.code() == Some(::postgres::error::SqlState::UNIQUE_VIOLATION.code())
}

/// Whether the role lacks a privilege.
pub(super) fn is_privilege(error: &::postgres::Error) -> bool {
    error.code() == Some(&::postgres::error::SqlState::INSUFFICIENT_PRIVILEGE)
}

/// Whether the statement gave up waiting for a lock.
pub(super) fn is_lock_timeout(error: &::postgres::Error) -> bool {
    error.code() == Some(&::postgres::error::SqlState::LOCK_NOT_AVAILABLE)
}

fn io_kind(error: &::postgres::Error) -> Option<io::ErrorKind> {
    let mut next = error.source();
    for _ in 0..64 {
        let source = next?;
        if let Some(error) = source.downcast_ref::<io::Error>() {
            return Some(error.kind());
        }
        next = source.source();
    }
    None
}

const fn is_transient_kind(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{
        AddrNotAvailable, BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset,
        HostUnreachable, NetworkDown, NetworkUnreachable, NotConnected, TimedOut, UnexpectedEof,
    };
    matches!(
        kind,
        ConnectionRefused
            | ConnectionReset
            | ConnectionAborted
            | BrokenPipe
            | NotConnected
            | UnexpectedEof
            | TimedOut
            | HostUnreachable
            | NetworkUnreachable
            | NetworkDown
            | AddrNotAvailable
    )
}
