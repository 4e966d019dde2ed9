//! Building a store: what can be chosen, and opening it on a thread of its own.

use super::connect::{Connector, session_settings};
use super::error::PostgresOpenError;
use super::schema::Schema;
use super::{Inner, PostgresStore};
use crate::store::{Bounds, HistoryPolicy, Hub, StoreClock, StoreError};
use ::postgres::tls::{MakeTlsConnect, TlsConnect};
use ::postgres::{Client, Config, NoTls, Socket};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Chooses how a [`PostgresStore`] is opened. Setters never fail; faults come out of
/// [`open`](Self::open).
#[must_use = "a builder does nothing until it is opened"]
pub struct PostgresBuilder {
    source: Source,
    schema: String,
    bounds: Bounds,
    history: HistoryPolicy,
    clock: Option<Arc<dyn StoreClock>>,
    statement_timeout: Duration,
}

type MakeConnector = Box<dyn FnOnce(Config) -> Connector + Send>;
type Closure = Box<dyn Fn(()) -> Result<Client, ::postgres::Error> + Send + Sync>;

enum Source {
    Config { config: Box<Config>, make: MakeConnector },
    Closure { connect: Closure, has_tls: bool },
}

impl PostgresBuilder {
    fn new(source: Source) -> Self {
        Self {
            source,
            schema: Schema::DEFAULT.to_owned(),
            bounds: Bounds::default(),
            history: HistoryPolicy::default(),
            clock: None,
            statement_timeout: Duration::from_secs(10),
        }
    }

    pub(super) fn from_config(config: Config) -> Self {
        let make = Box::new(|config| Connector::new(config, NoTls));
        Self::new(Source::Config { config: Box::new(config), make })
    }

    pub(super) fn from_closure(connect: Closure) -> Self {
        Self::new(Source::Closure { connect, has_tls: false })
    }

    /// The schema that holds the jobs: any name of 1 to 63 bytes without NUL. Default `backwave`.
    pub fn schema(mut self, name: impl Into<String>) -> Self {
        self.schema = name.into();
        self
    }

    /// Connects through this TLS stack. Whether TLS is demanded is the configuration's `sslmode`, which is
    /// `prefer` unless set: set it to `require`. A connect closure brings its own TLS, and together with one
    /// this is refused.
    pub fn tls<T>(mut self, tls: T) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::TlsConnect: Send,
        T::Stream: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        match &mut self.source {
            Source::Config { make, .. } => {
                *make = Box::new(move |config| Connector::new(config, tls));
            }
            Source::Closure { has_tls, .. } => *has_tls = true,
        }
        self
    }

    /// The limits on what is stored. The SQL function `enqueue(json)` keeps to the default ones whatever is
    /// set here.
    pub fn bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// How much of each job's life is kept: a row per change of state costs writes. What other stores on the
    /// same schema keep is their own setting, and the SQL function `enqueue(json)` records nothing. Default
    /// [`HistoryPolicy::Off`].
    ///
    /// ```no_run
    /// use backwave::PostgresStore;
    /// use backwave::store::HistoryPolicy;
    ///
    /// let config: postgres::Config = "host=db.example user=app dbname=app".parse()?;
    /// let store = PostgresStore::builder(config).history(HistoryPolicy::Transitions).open()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn history(mut self, policy: HistoryPolicy) -> Self {
        self.history = policy;
        self
    }

    /// Judges by this clock instead of the server's: for tests on virtual time.
    pub fn clock(mut self, clock: impl StoreClock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// How long the server may work on one call; waiting for a lock has half of it. Default 10 s. Two such
    /// calls and a heartbeat must fit within a lease.
    pub fn statement_timeout(mut self, timeout: Duration) -> Self {
        self.statement_timeout = timeout;
        self
    }

    /// Connects, and makes or updates the schema. May be called from async code: the I/O happens on a
    /// thread of its own, for which the caller waits.
    ///
    /// # Errors
    /// Whatever keeps the connection from being made or the schema from being brought up to date, a database
    /// that is down among it; [`PostgresOpenError`] for what is refused.
    pub fn open(self) -> Result<PostgresStore, StoreError> {
        let store = self.open_lazy()?;
        let inner = Arc::clone(&store.inner);
        // The client must be dropped where it was made: it runs its connection's last words on its own
        // runtime.
        let connect = move || inner.connect().map(drop);
        let opener = std::thread::Builder::new()
            .name("backwave-postgres-open".to_owned())
            .spawn(connect)
            .map_err(StoreError::new)?;
        match opener.join() {
            Ok(opened) => opened.map(|()| store),
            Err(payload) => {
                crate::contain::dispose(payload);
                Err(StoreError::new(PostgresOpenError::Panicked))
            }
        }
    }

    /// The same without any I/O: the first session connects, and makes or updates the schema. For hosts
    /// that start before their database does.
    ///
    /// # Errors
    /// [`PostgresOpenError`] for a setting that is refused.
    pub fn open_lazy(self) -> Result<PostgresStore, StoreError> {
        let schema = Schema::new(&self.schema).map_err(StoreError::new)?;
        let connector = match self.source {
            Source::Config { config, make } => make(*config),
            Source::Closure { has_tls: true, .. } => {
                return Err(StoreError::new(PostgresOpenError::TlsTwice));
            }
            Source::Closure { connect, .. } => Connector::Closure(connect),
        };
        let hub = connector.database().map_or_else(Hub::new, |database| {
            Hub::shared(&format!("{database} {}", schema.name()))
        });
        let inner = Inner {
            connector,
            schema,
            bounds: self.bounds,
            history: history_code(self.history),
            clock: self.clock,
            hub,
            statement_timeout: self.statement_timeout,
            settings: session_settings(self.statement_timeout),
            is_migrated: AtomicBool::new(false),
        };
        Ok(PostgresStore { inner: Arc::new(inner) })
    }
}

/// As the functions take it.
const fn history_code(policy: HistoryPolicy) -> i16 {
    match policy {
        HistoryPolicy::Off => 0,
        HistoryPolicy::Transitions => 1,
        HistoryPolicy::WithFailureDetail => 2,
    }
}

impl fmt::Debug for PostgresBuilder {
    /// Without the connection's settings: they hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresBuilder").field("schema", &self.schema).finish_non_exhaustive()
    }
}
