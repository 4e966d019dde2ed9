//! Observers: cursors over the log of transitions.
//!
//! A position is given out before its transaction commits, so positions alone would skip what commits late, and
//! transaction ids alone would tell a job's changes out of order. A cursor is a pair of snapshots therefore, and the
//! log is told in rounds: the functions say how.

mod parked;

use super::claim::bounded_us;
use super::fault::fault;
use super::reads::{member, state, state_of, unsigned};
use super::session::{Call, Malformed, PostgresSession};
use crate::kernel::text::clean;
use crate::store::{
    ACTOR_BYTES_MAX, AuditAction, CursorLease, CursorStale, Failing, Observation, Observe,
    Observed, ObserverChange, ObserverRecord, ObserverStart, Observing, PAGE_MAX, ParkedDelivery,
    Resolve, Resolved, StoreError, Transition, TransitionBy, UPKEEP_MAX,
};
use crate::{Timestamp, WorkerId};
use ::postgres::Row;

pub(super) const OBSERVE: &str = "SELECT kind, place, at, from_state, to_state, attempt, hand, worker, detail, \
    job, wire_name, queue, store_time, expiry, epoch, round, failing_position, failures, failing_due_at, more, \
    reset FROM {schema}.observe_v4($1, $2, $3, $4, $5, $6, $7, $8, $9)";
pub(super) const RESOLVE: &str = "SELECT verdict, expiry, store_time FROM {schema}.resolve_cursor_v4(\
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24)";
pub(super) const RELEASE: &str =
    "SELECT store_time FROM {schema}.release_cursor_v4($1, $2, $3, $4)";
pub(super) const OBSERVERS: &str = "SELECT o.observer, o.registered_at, o.worker, o.epoch, o.expiry, \
    o.failing_position, o.failures, o.failing_due_at, {schema}.behind_since_v4(o), \
    (SELECT count(*) FROM {schema}.parked AS p WHERE p.observer = o.observer) \
    FROM {schema}.observers AS o ORDER BY o.observer";
/// In the shape of what is observed, and what is told of the parking.
pub(super) const PARKED: &str = "SELECT 3::smallint, p.position, p.at, p.from_state, p.to_state, p.attempt, \
    p.hand, p.worker, p.detail, p.job, p.wire_name, p.queue, p.failures, p.fault, p.parked_at, p.is_wanted \
    FROM {schema}.parked AS p WHERE p.observer = $1 AND p.position > $2 ORDER BY p.position LIMIT $3";
pub(super) const CHANGE_OBSERVER: &str =
    "SELECT touched FROM {schema}.change_observer_v4($1, $2, $3, $4, $5)";

impl Observing for PostgresSession {
    fn observe(&mut self, ask: &Observe<'_>) -> Result<Observed, StoreError> {
        let now = self.store.clock_time();
        let states: Vec<i16> = ask.filter.states.iter().map(|state| state.code()).collect();
        let states = any(&states);
        let (wire_names, queues) = (any(&ask.filter.wire_names), any(&ask.filter.queues));
        let is_oldest = ask.start == ObserverStart::Oldest;
        let lease = bounded_us(ask.lease);
        let max = ask.max.clamp(1, UPKEEP_MAX);
        let asked = i32::try_from(max).unwrap_or(i32::MAX);
        let rows = self.query(
            Call::Observe,
            &[
                &ask.observer,
                &ask.worker,
                &states,
                &wire_names,
                &queues,
                &is_oldest,
                &lease,
                &asked,
                &now,
            ],
        )?;
        unpack_observed(&rows, max as usize)
    }

    fn resolve(&mut self, resolve: &Resolve<'_>) -> Result<Resolved, StoreError> {
        let now = self.store.clock_time();
        let parked = parked::Columns::new(&resolve.parked);
        let failing = resolve.failing;
        let row = self.query_one(
            Call::Resolve,
            &[
                &resolve.observer,
                &resolve.worker,
                &stored(resolve.epoch),
                &stored(resolve.round),
                &resolve.until.map(stored),
                &failing.map(|(position, ..)| stored(position)),
                &failing.map(|(_, failures, _)| i64::from(failures)),
                &failing.map(|(.., due_in)| bounded_us(due_in)),
                &bounded_us(resolve.lease),
                &resolve.delivered_again.iter().map(|at| stored(*at)).collect::<Vec<_>>(),
                &parked.positions,
                &parked.ats,
                &parked.jobs,
                &parked.workers,
                &parked.attempts,
                &parked.from_states,
                &parked.to_states,
                &parked.hands,
                &parked.wire_names,
                &parked.queues,
                &parked.details,
                &parked.failures,
                &parked.faults,
                &now,
            ],
        )?;
        unpack_resolved(&row)
    }

    fn release_cursor(
        &mut self,
        observer: &str,
        worker: WorkerId,
        epoch: u64,
    ) -> Result<Timestamp, StoreError> {
        let now = self.store.clock_time();
        let epoch = stored(epoch);
        let row = self.query_one(Call::ReleaseCursor, &[&observer, &worker, &epoch, &now])?;
        row.try_get(0).map_err(fault)
    }

    fn observers(&mut self) -> Result<Vec<ObserverRecord>, StoreError> {
        self.query(Call::Observers, &[])?.iter().map(unpack_record).collect()
    }

    fn parked(
        &mut self,
        observer: &str,
        after: Option<u64>,
        max: u32,
    ) -> Result<Vec<ParkedDelivery>, StoreError> {
        let (after, max) = (after.map_or(-1, stored), i64::from(max.clamp(1, PAGE_MAX)));
        let rows = self.query(Call::Parked, &[&observer, &after, &max])?;
        rows.iter().map(parked::unpack).collect()
    }

    fn change_observer(
        &mut self,
        actor: &str,
        observer: &str,
        change: ObserverChange,
    ) -> Result<u64, StoreError> {
        let now = self.store.clock_time();
        let actor = clean(actor, ACTOR_BYTES_MAX);
        let (action, only) = match change {
            ObserverChange::Redeliver(only) => (AuditAction::Redeliver, only),
            ObserverChange::Discard(only) => (AuditAction::Discard, only),
            ObserverChange::Remove => (AuditAction::RemoveObserver, None),
        };
        let (action, only) = (action.code(), only.map(stored));
        let row =
            self.query_one(Call::ChangeObserver, &[&actor, &observer, &action, &only, &now])?;
        number(&row, 0)
    }
}

/// A list, where it asks for anything.
fn any<T: Clone>(list: &[T]) -> Option<Vec<T>> {
    (!list.is_empty()).then(|| list.to_vec())
}

/// As the database keeps it: nothing that is ever met is larger.
fn stored(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn number(row: &Row, column: usize) -> Result<u64, StoreError> {
    Ok(row.try_get::<_, i64>(column).map_err(fault)?.unsigned_abs())
}

fn unpack_observed(rows: &[Row], max: usize) -> Result<Observed, StoreError> {
    let Some((last, rows)) = rows.split_last() else {
        return Err(StoreError::new(Malformed("no row where one was due".to_owned())));
    };
    let store_time = last.try_get(12).map_err(fault)?;
    let expiry: Timestamp = last.try_get(13).map_err(fault)?;
    match kind(last)? {
        0 => {}
        1 => return Ok(Observed::Elsewhere { until: expiry, store_time }),
        other => {
            return Err(StoreError::new(Malformed(format!("the last row is of kind {other}"))));
        }
    }
    let (mut batch, mut again) = (Vec::new(), Vec::new());
    for row in rows {
        let list = if kind(row)? == 2 { &mut batch } else { &mut again };
        list.push(unpack_observation(row)?);
    }
    let is_over = batch.len() > max;
    batch.truncate(max);
    let first = batch.first().map(|first| first.transition.position);
    Ok(Observed::Held {
        lease: CursorLease { epoch: number(last, 14)?, expiry },
        round: number(last, 15)?,
        failing: failing(last, 16)?.filter(|failing| Some(failing.position) == first),
        batch,
        again,
        more: is_over || last.try_get(19).map_err(fault)?,
        reset: last.try_get(20).map_err(fault)?,
        store_time,
    })
}

fn kind(row: &Row) -> Result<i16, StoreError> {
    row.try_get(0).map_err(fault)
}

/// What columns 1 to 11 tell.
fn unpack_observation(row: &Row) -> Result<Observation, StoreError> {
    let from: Option<i16> = row.try_get(3).map_err(fault)?;
    let mut transition = Transition::new(
        number(row, 1)?,
        row.try_get(2).map_err(fault)?,
        from.map(state_of).transpose()?,
        state(row, 4)?,
        unsigned(row, 5)?,
        member(row, 6, "a transition's hand", TransitionBy::from_code)?,
    );
    transition.worker = row.try_get(7).map_err(fault)?;
    transition.detail = row.try_get(8).map_err(fault)?;
    let (job, wire_name) = (row.try_get(9).map_err(fault)?, row.try_get(10).map_err(fault)?);
    Ok(Observation::new(job, wire_name, row.try_get(11).map_err(fault)?, transition))
}

fn failing(row: &Row, column: usize) -> Result<Option<Failing>, StoreError> {
    let Some(position) = row.try_get::<_, Option<i64>>(column).map_err(fault)? else {
        return Ok(None);
    };
    let failures = failures(row, column + 1)?;
    let due_at = row.try_get(column + 2).map_err(fault)?;
    Ok(Some(Failing { position: position.unsigned_abs(), failures, due_at }))
}

fn failures(row: &Row, column: usize) -> Result<u32, StoreError> {
    let stored: i64 = row.try_get(column).map_err(fault)?;
    u32::try_from(stored)
        .map_err(|_| StoreError::new(Malformed(format!("a delivery has failed {stored} times"))))
}

fn unpack_resolved(row: &Row) -> Result<Resolved, StoreError> {
    let store_time = row.try_get(2).map_err(fault)?;
    let reason = match row.try_get::<_, i16>(0).map_err(fault)? {
        0 => {
            let expiry = row.try_get(1).map_err(fault)?;
            return Ok(Resolved::Applied { expiry, store_time });
        }
        1 => CursorStale::Lapsed,
        2 => CursorStale::Taken,
        3 => CursorStale::Gone,
        4 => CursorStale::Regressed,
        other => return Err(StoreError::new(Malformed(format!("the verdict {other}")))),
    };
    Ok(Resolved::Stale { reason, store_time })
}

fn unpack_record(row: &Row) -> Result<ObserverRecord, StoreError> {
    let (name, at) = (row.try_get(0).map_err(fault)?, row.try_get(1).map_err(fault)?);
    Ok(ObserverRecord {
        worker: row.try_get(2).map_err(fault)?,
        epoch: number(row, 3)?,
        expiry: row.try_get(4).map_err(fault)?,
        failing: failing(row, 5)?,
        behind_since: row.try_get(8).map_err(fault)?,
        parked: number(row, 9)?,
        ..ObserverRecord::new(name, at)
    })
}
