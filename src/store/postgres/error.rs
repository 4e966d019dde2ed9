//! Why a Postgres database is refused.

/// Why a database, a schema or a setting is refused at open: nothing that trying again would change.
///
/// It is found inside a [`StoreError`](crate::store::StoreError) by
/// [`downcast_ref`](crate::store::StoreError::downcast_ref).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresOpenError {
    /// The schema's name cannot be an identifier.
    #[error("the schema name {name:?} is refused: it must have 1 to 63 bytes and no NUL")]
    SchemaName {
        /// The name, cut to 64 characters.
        name: String,
    },
    /// The database does not hold UTF-8, so that some text could never be stored.
    #[error("the database's encoding is {encoding}, and only UTF8 can hold every text")]
    Encoding {
        /// Its encoding.
        encoding: String,
    },
    /// The server is older than what the SQL needs.
    #[error("the server's version is {version}, and {version_min} or later is needed")]
    ServerVersion {
        /// Its version number, as `server_version_num` tells it.
        version: i32,
        /// The oldest that works.
        version_min: i32,
    },
    /// A newer release has changed the schema in a way that this one does not understand.
    #[error(
        "the schema needs code that knows schema version {min_reader}, and this release knows {known}"
    )]
    SchemaTooNew {
        /// The oldest code version that may use the schema.
        min_reader: i32,
        /// What this release knows.
        known: i32,
    },
    /// The table of the schema's version has more than the one row that belongs there. A constraint keeps it so
    /// unless it was dropped.
    #[error(
        "the table schema_version has {rows} rows where one belongs: delete all but the one that tells what the \
         schema is, and restore the table's primary key and its check"
    )]
    VersionRows {
        /// How many there are.
        rows: i64,
    },
    /// The role may not do what a migration or a session needs.
    #[error("the role lacks a privilege ({message}); an administrator must run: {statement}")]
    Privilege {
        /// What the server said.
        message: String,
        /// What helps.
        statement: String,
    },
    /// The connections are lent by a pool that gives each transaction another of the server's sessions.
    #[error(
        "a pool lends the server's sessions transaction by transaction, and a store needs sessions of its own: \
         connect to the server itself, or through a pool in session mode"
    )]
    TransactionPool,
    /// No address was found for the server's host name.
    #[error("no address was found for the host {host:?}")]
    NameLookup {
        /// The name.
        host: String,
        /// What the resolver said.
        #[source]
        source: std::io::Error,
    },
    /// TLS was given together with a connect closure, which brings its own.
    #[error(
        "tls() does nothing for a store that is made from a connect closure; use TLS in the closure"
    )]
    TlsTwice,
    /// The thread that opens the store ended by a panic, for instance in the connect closure.
    #[error("the thread that opened the store panicked")]
    Panicked,
}
