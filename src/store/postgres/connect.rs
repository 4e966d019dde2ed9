//! Making a connection: where to, with which timeouts, and how its session is set up.
//!
//! Everything here blocks and must not run on a thread that is inside an async runtime.

use super::error::PostgresOpenError;
use super::fault::{connect_fault, fault, lookup_fault};
use super::migrate::{VERSIONS, Versions};
use super::schema::Schema;
use crate::store::StoreError;
use ::postgres::config::Host;
use ::postgres::tls::{MakeTlsConnect, TlsConnect};
use ::postgres::{Client, Config, SimpleQueryMessage, Socket};
use std::net::ToSocketAddrs;
use std::time::Duration;

/// How long a connection attempt may take, and how long sent data may stay unacknowledged, unless the
/// configuration says otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const KEEPALIVE: Duration = Duration::from_secs(5);
/// What the client's own configuration has where nobody set it.
const KEEPALIVE_UNSET: Duration = Duration::from_secs(2 * 60 * 60);
const PORT: u16 = 5432;

type Connect<A> = Box<dyn Fn(A) -> Result<Client, ::postgres::Error> + Send + Sync>;

/// Where connections come from.
pub(super) enum Connector {
    Config { config: Box<Config>, connect: Connect<Config> },
    Closure(Connect<()>),
}

impl Connector {
    pub(super) fn new<T>(mut config: Config, tls: T) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::TlsConnect: Send,
        T::Stream: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        fill_in(&mut config);
        let connect = Box::new(move |config: Config| config.connect(tls.clone()));
        Self::Config { config: Box::new(config), connect }
    }

    /// Connects.
    pub(super) fn connect(&self) -> Result<Client, StoreError> {
        match self {
            Self::Config { config, connect } => {
                resolve(config)?;
                connect(config.as_ref().clone()).map_err(connect_fault)
            }
            Self::Closure(connect) => connect(()).map_err(connect_fault),
        }
    }

    /// Refuses a pool that gives each transaction whichever of its server's sessions is free: what a session is set
    /// to and has prepared would belong to others, and theirs to us. Two connections that are open at once have
    /// two sessions of the server, unless such a pool lends both the same. A busy pool may lend them different ones,
    /// and is found out when the server does not know a prepared statement.
    pub(super) fn refuse_transaction_pool(&self, client: &mut Client) -> Result<(), StoreError> {
        let own = backend(client).map_err(fault)?;
        // Where a second one is not to be had, nothing can be told.
        let other = self.connect().ok().and_then(|mut second| backend(&mut second).ok());
        match (own, other) {
            (Some(own), Some(Some(other))) if own == other => {
                Err(StoreError::new(PostgresOpenError::TransactionPool))
            }
            _ => Ok(()),
        }
    }

    /// What names the database, without the password; nothing where only the closure knows.
    pub(super) fn database(&self) -> Option<String> {
        let Self::Config { config, .. } = self else { return None };
        let hosts: Vec<String> = config
            .get_hosts()
            .iter()
            .map(|host| match host {
                Host::Tcp(name) => name.clone(),
                #[cfg(unix)]
                Host::Unix(path) => path.display().to_string(),
            })
            .chain(config.get_hostaddrs().iter().map(ToString::to_string))
            .collect();
        let ports: Vec<String> = config.get_ports().iter().map(ToString::to_string).collect();
        let database = config.get_dbname().or_else(|| config.get_user()).unwrap_or_default();
        Some(format!("postgres {} {} {database}", hosts.join(","), ports.join(",")))
    }
}

/// Fills in what the caller left open, so that no call hangs on a dead network for longer than a lease.
fn fill_in(config: &mut Config) {
    if config.get_application_name().is_none() {
        config.application_name("backwave");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(CONNECT_TIMEOUT);
    }
    if config.get_keepalives_idle() == KEEPALIVE_UNSET {
        config.keepalives_idle(KEEPALIVE);
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_interval(KEEPALIVE);
    }
    if config.get_keepalives_retries().is_none() {
        config.keepalives_retries(2);
    }
}

/// Looks the host names up ahead of the client, whose own error for a failed lookup cannot be told from
/// others. One host that resolves is enough.
fn resolve(config: &Config) -> Result<(), StoreError> {
    if !config.get_hostaddrs().is_empty() {
        return Ok(());
    }
    let mut failed = None;
    for (index, host) in config.get_hosts().iter().enumerate() {
        // On some platforms this is the only kind of host.
        #[allow(irrefutable_let_patterns)]
        let Host::Tcp(name) = host else { return Ok(()) };
        let ports = config.get_ports();
        let port = ports.get(index).or_else(|| ports.first()).copied().unwrap_or(PORT);
        match (name.as_str(), port).to_socket_addrs() {
            Ok(_) => return Ok(()),
            Err(error) => failed = Some(lookup_fault(name, error)),
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Sets the session up.
///
/// The planner's settings keep the hot statements on the one plan that stays right whatever the
/// statistics say: nested loops over index probes. They only discourage; a read of the whole table still
/// gets its sequential scan, there being no other way. `jit` would compile such discouraged plans for
/// their huge nominal cost. No notice is sent: the client would hand it to the host's logger while a
/// transaction is open.
pub(super) fn session_settings(statement_timeout: Duration) -> String {
    let statement_ms = statement_timeout.as_millis().clamp(1, i32::MAX as u128);
    let lock_ms = (statement_ms / 2).max(1);
    format!(
        "SET default_transaction_isolation = 'read committed'; \
         SET statement_timeout = {statement_ms}; \
         SET lock_timeout = {lock_ms}; \
         SET idle_in_transaction_session_timeout = {statement_ms}; \
         SET standard_conforming_strings = on; \
         SET client_min_messages = error; \
         SET search_path = pg_catalog, pg_temp; \
         SET plan_cache_mode = force_generic_plan; \
         SET enable_hashjoin = off; \
         SET enable_mergejoin = off; \
         SET enable_seqscan = off; \
         SET enable_bitmapscan = off; \
         SET jit = off; "
    )
}

/// Which of the server's processes answers. Not prepared, so that nothing is left behind.
fn backend(client: &mut Client) -> Result<Option<String>, ::postgres::Error> {
    let messages = client.simple_query("SELECT pg_catalog.pg_backend_pid()")?;
    Ok(messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    }))
}

/// Sets a later session up and reads the schema's versions on the way, in one round trip.
pub(super) fn set_up(
    client: &mut Client,
    settings: &str,
    schema: &Schema,
) -> Result<Versions, StoreError> {
    let messages =
        client.simple_query(&format!("{settings}{}", schema.fill(VERSIONS))).map_err(fault)?;
    let row = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let number = |column: usize| -> Option<i64> { row?.get(column)?.parse().ok() };
    Ok(Versions {
        rows: number(0).unwrap_or_default(),
        version: number(1).and_then(|number| number.try_into().ok()),
        min_reader: number(2).and_then(|number| number.try_into().ok()),
    })
}
