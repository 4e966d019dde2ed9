//! Sqlite.
/// S.
pub struct SqliteStore;
