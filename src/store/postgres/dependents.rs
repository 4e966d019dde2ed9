//! Which jobs a job depends on.

use super::fault::fault;
use super::reads::state;
use super::session::{Call, PostgresSession};
use crate::JobId;
use crate::store::{Body, ParentRecord, StoreError};
use ::postgres::Row;

pub(super) const PARENTS: &str = "SELECT p.id, p.wire_name, p.state, \
    EXISTS (SELECT 1 FROM {schema}.gates AS g WHERE g.parent = p.id AND g.child = l.child), \
    p.output, p.failure_detail, p.finished_at \
    FROM {schema}.lineage AS l JOIN {schema}.jobs AS p ON p.id = l.parent \
    WHERE l.child = $1 ORDER BY l.place";

/// Upwards from the job, each ancestor once.
pub(super) const ANCESTOR: &str = "WITH RECURSIVE a (id) AS (\
        SELECT l.parent FROM {schema}.lineage AS l WHERE l.child = $1 \
        UNION \
        SELECT l.parent FROM a JOIN {schema}.lineage AS l ON l.child = a.id) \
    SELECT p.id, p.wire_name, p.state, \
    EXISTS (SELECT 1 FROM {schema}.gates AS g WHERE g.parent = p.id AND g.child = $1), \
    p.output, p.failure_detail, p.finished_at \
    FROM (SELECT a.id FROM a WHERE a.id = $2 LIMIT 1) AS f JOIN {schema}.jobs AS p ON p.id = f.id";

pub(super) fn parents(
    session: &mut PostgresSession,
    job: JobId,
) -> Result<Vec<ParentRecord>, StoreError> {
    session.query(Call::Parents, &[&job])?.iter().map(unpack).collect()
}

pub(super) fn ancestor(
    session: &mut PostgresSession,
    job: JobId,
    ancestor: JobId,
) -> Result<Option<ParentRecord>, StoreError> {
    session.query(Call::Ancestor, &[&job, &ancestor])?.first().map(unpack).transpose()
}

fn unpack(row: &Row) -> Result<ParentRecord, StoreError> {
    let (id, name) = (row.try_get(0).map_err(fault)?, row.try_get(1).map_err(fault)?);
    let mut parent = ParentRecord::new(id, name, state(row, 2)?);
    parent.is_gating = row.try_get(3).map_err(fault)?;
    parent.output = row.try_get::<_, Option<Vec<u8>>>(4).map_err(fault)?.map(Body::new);
    parent.failure_detail = row.try_get(5).map_err(fault)?;
    parent.finished_at = row.try_get(6).map_err(fault)?;
    Ok(parent)
}
