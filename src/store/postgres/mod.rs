//! Postgres.
/// S.
pub struct PostgresStore;
