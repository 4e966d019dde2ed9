//! What the bench is made of: its arguments, the places that jobs are kept in, what is run there, the
//! plain SQL that it is held against, and the table.

pub(crate) mod args;
pub(crate) mod place;
pub(crate) mod prices;
pub(crate) mod raw_postgres;
pub(crate) mod raw_sqlite;
pub(crate) mod run;
pub(crate) mod table;
