//! The rows of schedules: read, locked, written.

use crate::invariant::{InvariantTrigger, halt};
use crate::store::postgres::fault::fault;
use crate::store::postgres::reads::known;
use crate::store::postgres::session::{Batch, Call, Malformed, Params, PostgresSession, one};
use crate::store::{DueSchedules, ScheduleRecord, ScheduleRow, SkipReason, StoreError};
use crate::{JobId, Timestamp};
use ::postgres::Row;
use std::collections::BTreeMap;

/// In the order in which [`unpack`] reads them.
macro_rules! columns {
    () => {
        columns!("s.timing, s.definition")
    };
    ($texts:literal) => {
        concat!(
            "s.name, s.owner, ",
            $texts,
            ", s.revision, s.is_paused, s.cursor, s.look_at, s.next_tick, s.last_tick, s.last_job, \
             s.skipped, s.skip_tick, s.skip_reason, s.error, s.error_since, s.created_at"
        )
    };
}
pub(super) use columns;

pub(in crate::store::postgres) const ALL: &str =
    concat!("SELECT ", columns!(), " FROM {schema}.schedules AS s ORDER BY s.name");

/// Those to be looked at, and one more where there are too many; in each row, or in a row without one, the time
/// and when the next of the others is to be looked at. The literal conditions let the partial index serve.
pub(in crate::store::postgres) const DUE: &str = concat!(
    "SELECT ",
    columns!(),
    ", t.now, (SELECT min(n.look_at) FROM {schema}.schedules AS n \
        WHERE NOT n.is_paused AND n.look_at IS NOT NULL AND n.look_at > t.now) \
     FROM (SELECT coalesce($1, clock_timestamp()) AS now) AS t \
     LEFT JOIN LATERAL (SELECT ",
    columns!(),
    " FROM {schema}.schedules AS s \
        WHERE NOT s.is_paused AND s.look_at IS NOT NULL AND s.look_at <= t.now \
        ORDER BY s.look_at, s.name LIMIT $2) AS s ON true ORDER BY s.look_at, s.name"
);

/// Without the two texts, which nobody changes who locks rows by this.
pub(in crate::store::postgres) const LOCK: &str = concat!(
    "SELECT ",
    columns!("''::text, ''::text"),
    " FROM {schema}.schedules AS s WHERE s.name = ANY ($1) ORDER BY s.name FOR NO KEY UPDATE"
);

/// Writes locked rows, but for what only a declaration changes.
pub(in crate::store::postgres) const MOVE: &str = "UPDATE {schema}.schedules AS s SET revision = u.revision, \
        is_paused = u.is_paused, cursor = u.cursor, look_at = u.look_at, next_tick = u.next_tick, \
        last_tick = u.last_tick, last_job = u.last_job, skipped = u.skipped, skip_tick = u.skip_tick, \
        skip_reason = u.skip_reason, error = u.error, error_since = u.error_since \
    FROM unnest($1::text[], $2::bigint[], $3::boolean[], $4::timestamptz[], $5::timestamptz[], \
        $6::timestamptz[], $7::timestamptz[], $8::uuid[], $9::bigint[], $10::timestamptz[], \
        $11::smallint[], $12::text[], $13::timestamptz[]) AS u (name, revision, is_paused, cursor, look_at, \
        next_tick, last_tick, last_job, skipped, skip_tick, skip_reason, error, error_since) \
    WHERE s.name = u.name RETURNING s.name";

/// Writes rows whole, new ones and locked ones.
pub(in crate::store::postgres) const WRITE: &str = "INSERT INTO {schema}.schedules AS s (name, revision, \
        is_paused, cursor, look_at, next_tick, last_tick, last_job, skipped, skip_tick, skip_reason, error, \
        error_since, owner, timing, definition, created_at) \
    SELECT u.name, u.revision, u.is_paused, u.cursor, u.look_at, u.next_tick, u.last_tick, u.last_job, \
        u.skipped, u.skip_tick, u.skip_reason, u.error, u.error_since, u.owner, u.timing, u.definition, \
        u.created_at \
    FROM unnest($1::text[], $2::bigint[], $3::boolean[], $4::timestamptz[], $5::timestamptz[], \
        $6::timestamptz[], $7::timestamptz[], $8::uuid[], $9::bigint[], $10::timestamptz[], \
        $11::smallint[], $12::text[], $13::timestamptz[], $14::text[], $15::text[], $16::text[], \
        $17::timestamptz[]) AS u (name, revision, is_paused, cursor, look_at, next_tick, last_tick, last_job, \
        skipped, skip_tick, skip_reason, error, error_since, owner, timing, definition, created_at) \
    ON CONFLICT (name) DO UPDATE SET revision = excluded.revision, cursor = excluded.cursor, \
        look_at = excluded.look_at, next_tick = excluded.next_tick, error = excluded.error, \
        error_since = excluded.error_since, timing = excluded.timing, definition = excluded.definition \
    RETURNING s.name";

pub(in crate::store::postgres) const REMOVE: &str =
    "DELETE FROM {schema}.schedules AS s WHERE s.name = ANY ($1) RETURNING s.name";

pub(super) fn all(session: &mut PostgresSession) -> Result<Vec<ScheduleRecord>, StoreError> {
    session.query(Call::Schedules, &[])?.iter().map(unpack).collect()
}

pub(super) fn due(session: &mut PostgresSession, max: u32) -> Result<DueSchedules, StoreError> {
    let now = session.store.clock_time();
    let rows = session.query(Call::DueSchedules, &[&now, &(i64::from(max) + 1)])?;
    let Some(first) = rows.first() else {
        return Err(StoreError::new(Malformed("no row where one was due".to_owned())));
    };
    let store_time = first.try_get(17).map_err(fault)?;
    let mut next_at: Option<Timestamp> = first.try_get(18).map_err(fault)?;
    if first.try_get::<_, Option<&str>>(0).map_err(fault)?.is_none() {
        return Ok(DueSchedules::new(Vec::new(), next_at, store_time));
    }
    let mut due = rows.iter().map(unpack).collect::<Result<Vec<_>, _>>()?;
    if u32::try_from(due.len()).is_ok_and(|count| count > max) {
        next_at = due.pop().and_then(|next| next.look_at);
    }
    Ok(DueSchedules::new(due, next_at, store_time))
}

/// Locks the schedules of these names that exist; without their texts.
pub(super) fn lock(
    tx: &mut Batch<'_>,
    names: &[&str],
) -> Result<BTreeMap<String, ScheduleRecord>, StoreError> {
    by_name(&tx.query(Call::LockSchedules, &[&names])?)
}

pub(super) fn by_name(rows: &[Row]) -> Result<BTreeMap<String, ScheduleRecord>, StoreError> {
    let records = rows.iter().map(unpack);
    records.map(|record| record.map(|record| (record.row.name.clone(), record))).collect()
}

/// The store's time, when the locks are held.
pub(super) fn time(
    tx: &mut Batch<'_>,
    clock_time: Option<Timestamp>,
) -> Result<Timestamp, StoreError> {
    match clock_time {
        Some(now) => Ok(now),
        None => one(tx.query(Call::Now, &[])?)?.try_get(0).map_err(fault),
    }
}

/// Writes locked rows, but for what only a declaration changes.
pub(super) fn write_moved(
    tx: &mut Batch<'_>,
    records: &[&ScheduleRecord],
) -> Result<(), StoreError> {
    let columns = Columns::new(records);
    expect_written(
        "a change",
        tx.query(Call::MoveSchedules, &columns.moved())?.len(),
        records.len(),
    )
}

/// Writes rows whole, new ones and locked ones.
pub(super) fn write_whole(
    tx: &mut Batch<'_>,
    records: &[&ScheduleRecord],
) -> Result<(), StoreError> {
    let columns = Columns::new(records);
    let rows = tx.query(Call::WriteSchedules, &columns.whole())?;
    expect_written("a declaration", rows.len(), records.len())
}

/// Takes locked rows away.
pub(super) fn remove(tx: &mut Batch<'_>, names: &[&str]) -> Result<(), StoreError> {
    let rows = tx.query(Call::RemoveSchedules, &[&names])?;
    expect_written("a removal", rows.len(), names.len())
}

fn expect_written(what: &str, written: usize, expected: usize) -> Result<(), StoreError> {
    if written == expected {
        return Ok(());
    }
    let message = format!("{what} of schedules wrote {written} rows where {expected} were locked");
    Err(halt(InvariantTrigger::UnexpectedAffectedRowCount, message).into())
}

fn unpack(row: &Row) -> Result<ScheduleRecord, StoreError> {
    let text = |column: usize| row.try_get::<_, String>(column).map_err(fault);
    let time = |column: usize| row.try_get::<_, Option<Timestamp>>(column).map_err(fault);
    let declared = ScheduleRow::new(text(0)?, text(1)?, text(2)?, text(3)?);
    let mut record = ScheduleRecord::new(declared, row.try_get(16).map_err(fault)?);
    record.revision = number(row, 4)?;
    record.is_paused = row.try_get(5).map_err(fault)?;
    record.cursor = row.try_get(6).map_err(fault)?;
    record.look_at = time(7)?;
    record.next_tick = time(8)?;
    record.last_tick = time(9)?;
    record.last_job = row.try_get(10).map_err(fault)?;
    record.skipped = number(row, 11)?;
    let reason: Option<i16> = row.try_get(13).map_err(fault)?;
    let reason = reason.map(|code| known("why a tick was skipped", code, SkipReason::from_code));
    record.last_skip = time(12)?.zip(reason.transpose()?);
    record.error = row.try_get::<_, Option<String>>(14).map_err(fault)?.zip(time(15)?);
    Ok(record)
}

/// A counter, which a constraint keeps from being negative.
fn number(row: &Row, column: usize) -> Result<u64, StoreError> {
    Ok(row.try_get::<_, i64>(column).map_err(fault)?.unsigned_abs())
}

/// Schedules, column by column.
struct Columns<'a> {
    names: Vec<&'a str>,
    revisions: Vec<i64>,
    paused: Vec<bool>,
    cursors: Vec<Timestamp>,
    look_ats: Vec<Option<Timestamp>>,
    next_ticks: Vec<Option<Timestamp>>,
    last_ticks: Vec<Option<Timestamp>>,
    last_jobs: Vec<Option<JobId>>,
    skipped: Vec<i64>,
    skip_ticks: Vec<Option<Timestamp>>,
    skip_reasons: Vec<Option<i16>>,
    errors: Vec<Option<&'a str>>,
    error_sinces: Vec<Option<Timestamp>>,
    owners: Vec<&'a str>,
    timings: Vec<&'a str>,
    definitions: Vec<&'a str>,
    created_ats: Vec<Timestamp>,
}

impl<'a> Columns<'a> {
    fn new(records: &[&'a ScheduleRecord]) -> Self {
        fn column<'a, T>(
            records: &[&'a ScheduleRecord],
            of: impl Fn(&'a ScheduleRecord) -> T,
        ) -> Vec<T> {
            records.iter().map(|record| of(record)).collect()
        }
        Self {
            names: column(records, |record| record.row.name.as_str()),
            revisions: column(records, |record| stored(record.revision)),
            paused: column(records, |record| record.is_paused),
            cursors: column(records, |record| record.cursor),
            look_ats: column(records, |record| record.look_at),
            next_ticks: column(records, |record| record.next_tick),
            last_ticks: column(records, |record| record.last_tick),
            last_jobs: column(records, |record| record.last_job),
            skipped: column(records, |record| stored(record.skipped)),
            skip_ticks: column(records, |record| record.last_skip.map(|(tick, _)| tick)),
            skip_reasons: column(records, |record| {
                record.last_skip.map(|(_, reason)| reason.code())
            }),
            errors: column(records, |record| record.error.as_ref().map(|(text, _)| text.as_str())),
            error_sinces: column(records, |record| record.error.as_ref().map(|(_, since)| *since)),
            owners: column(records, |record| record.row.owner.as_str()),
            timings: column(records, |record| record.row.timing.as_str()),
            definitions: column(records, |record| record.row.definition.as_str()),
            created_ats: column(records, |record| record.created_at),
        }
    }

    fn moved(&self) -> Vec<&(dyn ::postgres::types::ToSql + Sync)> {
        let params: &Params<'_> = &[
            &self.names,
            &self.revisions,
            &self.paused,
            &self.cursors,
            &self.look_ats,
            &self.next_ticks,
            &self.last_ticks,
            &self.last_jobs,
            &self.skipped,
            &self.skip_ticks,
            &self.skip_reasons,
            &self.errors,
            &self.error_sinces,
        ];
        params.to_vec()
    }

    fn whole(&self) -> Vec<&(dyn ::postgres::types::ToSql + Sync)> {
        let mut params = self.moved();
        let more: &Params<'_> =
            &[&self.owners, &self.timings, &self.definitions, &self.created_ats];
        params.extend_from_slice(more);
        params
    }
}

fn stored(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
