//! What is kept about jobs beside them: whose children they are, what became of them, what operators did.

use super::row;
use crate::invariant::InvariantTrigger;
use crate::store::{
    AuditAction, AuditFilter, AuditPage, AuditRecord, Body, PAGE_MAX, ParentRecord, StoreError,
    Transition,
};
use crate::{JobId, Timestamp, WorkerId};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params};

/// Reads the parents of a job, in their order.
///
/// # Errors
/// Faults, and a stored number that is no member of its enum.
pub(super) fn parents(conn: &Connection, job: JobId) -> Result<Vec<ParentRecord>, StoreError> {
    let mut statement = conn.prepare_cached(PARENTS)?;
    let mut rows = statement.query([job.as_bytes()])?;
    let mut parents = Vec::new();
    while let Some(row) = rows.next()? {
        parents.push(parent(row)?);
    }
    Ok(parents)
}

/// Reads `ancestor`, where it stands above `job`.
///
/// # Errors
/// As [`parents`].
pub(super) fn ancestor(
    conn: &Connection,
    job: JobId,
    ancestor: JobId,
) -> Result<Option<ParentRecord>, StoreError> {
    let mut statement = conn.prepare_cached(ANCESTOR)?;
    let found = statement
        .query_row(params![job.as_bytes(), ancestor.as_bytes()], |row| Ok(parent(row)))
        .optional()?;
    found.transpose()
}

fn parent(row: &Row<'_>) -> Result<ParentRecord, StoreError> {
    let id = row::job_id(row, 0)?;
    let mut record = ParentRecord::new(id, row.get(1)?, row::state(row, 2, id)?);
    record.is_gating = row.get(3)?;
    record.output = row.get::<_, Option<Vec<u8>>>(4)?.map(Body::new);
    record.failure_detail = row.get(5)?;
    record.finished_at = row::time_or_null(row, 6)?;
    Ok(record)
}

/// Reads the transitions of a job, oldest first.
///
/// # Errors
/// As [`parents`].
pub(super) fn history(conn: &Connection, job: JobId) -> Result<Vec<Transition>, StoreError> {
    let mut statement = conn.prepare_cached(HISTORY)?;
    let mut rows = statement.query([job.as_bytes()])?;
    let mut transitions = Vec::new();
    while let Some(row) = rows.next()? {
        let from: Option<i64> = row.get(2)?;
        let from = from.map(|_| row::state(row, 2, job)).transpose()?;
        let (position, at) = (row::unsigned(row, 0)?, row::time(row, 1)?);
        let (to, by) = (row::state(row, 3, job)?, row::transition_by(row, 5, job)?);
        let mut transition = Transition::new(position, at, from, to, row.get(4)?, by);
        transition.worker = row.get::<_, Option<[u8; 16]>>(6)?.map(WorkerId::from_bytes);
        transition.detail = row.get(7)?;
        transitions.push(transition);
    }
    Ok(transitions)
}

/// Reads what operators did, newest first.
///
/// # Errors
/// As [`parents`].
pub(super) fn audit(conn: &Connection, filter: &AuditFilter) -> Result<AuditPage, StoreError> {
    let (sql, values) = audit_query(filter);
    let mut statement = conn.prepare(&sql)?;
    let mut rows = statement.query(rusqlite::params_from_iter(values))?;
    let mut page = AuditPage::new();
    while let Some(row) = rows.next()? {
        page.push(audit_record(row)?);
    }
    Ok(page)
}

pub(super) fn audit_query(filter: &AuditFilter) -> (String, Vec<Value>) {
    let conditions = [
        ("job =", filter.job.map(|job| Value::Blob(job.to_bytes().to_vec()))),
        ("queue =", filter.queue.clone().map(Value::Text)),
        ("actor =", filter.actor.clone().map(Value::Text)),
        (
            "position <",
            filter.before.map(|before| Value::Integer(i64::try_from(before).unwrap_or(i64::MAX))),
        ),
    ];
    let mut sql = "SELECT position, at, actor, action, concurrency_limit, job, queue, subject \
                     FROM main.backwave_audit WHERE true"
        .to_owned();
    let mut values = Vec::new();
    for (condition, value) in conditions {
        if let Some(value) = value {
            values.push(value);
            sql.push_str(&format!(" AND {condition} ?{}", values.len()));
        }
    }
    let limit = filter.limit.unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX);
    sql.push_str(&format!(" ORDER BY position DESC LIMIT {limit}"));
    (sql, values)
}

fn audit_record(row: &Row<'_>) -> Result<AuditRecord, StoreError> {
    let position = row::unsigned(row, 0)?;
    let at: Timestamp = row::time(row, 1)?;
    let code: i64 = row.get(3)?;
    let action = AuditAction::from_code(code, row::limit(row, 4)?).ok_or_else(|| {
        let message = format!("the action of audit record {position} is stored as {code}");
        StoreError::found(InvariantTrigger::UndefinedEnumValueStored, message)
    })?;
    let job = row.get::<_, Option<[u8; 16]>>(5)?.map(JobId::from_bytes);
    let mut record = AuditRecord::new(position, at, row.get(2)?, action, job, row.get(6)?);
    record.subject = row.get(7)?;
    Ok(record)
}

/// Of one parent, and whether it holds the job `?1` back.
macro_rules! parent_columns {
    () => {
        "SELECT j.id, j.wire_name, j.state, \
                EXISTS (SELECT 1 FROM main.backwave_gates AS g WHERE g.parent = j.id AND g.child = ?1), \
                j.output, j.failure_detail, j.finished_at "
    };
}

pub(super) const PARENTS: &str = concat!(
    parent_columns!(),
    "FROM main.backwave_lineage AS l CROSS JOIN main.backwave_jobs AS j ON j.id = l.parent \
    WHERE l.child = ?1 ORDER BY l.place"
);

/// Walks up from `?1`, each job once, until it meets `?2`.
pub(super) const ANCESTOR: &str = concat!(
    "WITH RECURSIVE above (id) AS ( \
         SELECT parent FROM main.backwave_lineage WHERE child = ?1 \
          UNION \
         SELECT l.parent FROM above CROSS JOIN main.backwave_lineage AS l ON l.child = above.id) ",
    parent_columns!(),
    "FROM main.backwave_jobs AS j \
    WHERE j.id = ?2 AND EXISTS (SELECT 1 FROM above WHERE above.id = ?2)"
);

pub(super) const HISTORY: &str = "SELECT position, at, from_state, to_state, attempt, by_whom, worker, detail \
           FROM main.backwave_transitions WHERE job = ?1 ORDER BY position";
