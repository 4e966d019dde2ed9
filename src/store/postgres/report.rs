//! Recording how attempts ended, alone or in one transaction with the next claim.

use super::claim::{self, ClaimColumns, bounded_us};
use super::fault::fault;
use super::session::{Batch, Call, Malformed, Params, PostgresSession, one};
use super::types::Private;
use crate::invariant::{InvariantTrigger, halt};
use crate::kernel::state::JobState;
use crate::kernel::text::clean;
use crate::store::{
    Claim, Exchanged, Mode, OutcomeRow, Reported, RowReport, StaleReason, StoreError,
};
use crate::{JobId, Timestamp, WorkerId};
use ::postgres::Row;
use ::postgres::types::ToSql;
use std::collections::HashSet;

pub(super) const REPORT: &str = "SELECT verdicts, states, store_time, released, \
    released_dues \
    FROM {schema}.report_v2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";

pub(super) const EXCHANGE: &str = "SELECT id, pass, place, attempt, failures, version, state_before, \
    state, owner, expiry, due_at, timeout_us, wire_name, queue, retry, tags, payload, store_time, \
    withheld, next_due, floor_dues, floor_ids, probes_us, waded, schedule, tick, verdicts, \
    states, released, released_dues FROM {schema}.exchange_v2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, \
    $17, $18, $19, $20, $21, $22, $23, $24)";

pub(super) fn report(
    session: &mut PostgresSession,
    rows: &[OutcomeRow],
) -> Result<Reported, StoreError> {
    let now = session.store.clock_time();
    let kept = Kept::of(session);
    if is_distinct(rows) {
        let columns = ReportColumns::new(rows, kept.details_max);
        let mut params = columns.params();
        params.push(&kept.history);
        params.push(&now);
        let row = session.query_one(Call::Report, &params)?;
        session.wake_released(&row, (2, 3, 4))?;
        return unpack(&row, (0, 1, 2));
    }
    let (reported, rounds) =
        session.in_transaction(&[Call::Report], |tx| report_rounds(tx, rows, kept, now))?;
    session.wake_rounds(&rounds)?;
    Ok(reported)
}

pub(super) fn exchange(
    session: &mut PostgresSession,
    rows: &[OutcomeRow],
    claim: &Claim<'_>,
) -> Result<Exchanged, StoreError> {
    if rows.is_empty() {
        let claimed = claim::claim(session, claim)?;
        return Ok(Exchanged::new(Reported::new(Vec::new(), claimed.store_time), claimed));
    }
    let now = session.store.clock_time();
    let kept = Kept::of(session);
    let claim_columns = ClaimColumns::new(session, claim);
    if !is_distinct(rows) {
        let calls = [Call::Report, Call::Claim];
        let (reported, rounds, claimed) = session.in_transaction(&calls, |tx| {
            let (reported, rounds) = report_rounds(tx, rows, kept, now)?;
            let mut params = claim_columns.params();
            params.push(&now);
            Ok((reported, rounds, tx.query(Call::Claim, &params)?))
        })?;
        session.wake_rounds(&rounds)?;
        return Ok(Exchanged::new(reported, claim::unpack(session, claim, claimed)?));
    }
    let columns = ReportColumns::new(rows, kept.details_max);
    let mut params = columns.params();
    params.extend(claim_columns.params());
    params.push(&now);
    let mut answer = session.query(Call::Exchange, &params)?;
    if answer.is_empty() {
        return Err(StoreError::new(Malformed("an exchange without its first row".to_owned())));
    }
    let first = answer.remove(0);
    session.wake_released(&first, (17, 28, 29))?;
    let reported = unpack(&first, (26, 27, 17))?;
    Ok(Exchanged::new(reported, claim::unpack(session, claim, answer)?))
}

/// The functions take each job once. A batch that names one twice is written round by round, in one
/// transaction: each row is judged after the one before it. Also gives the answer of each round.
fn report_rounds(
    tx: &mut Batch<'_>,
    rows: &[OutcomeRow],
    kept: Kept,
    now: Option<Timestamp>,
) -> Result<(Reported, Vec<Row>), StoreError> {
    let mut reports = Vec::with_capacity(rows.len());
    let mut store_time = Timestamp::EPOCH;
    let mut answers = Vec::new();
    let mut rest = rows;
    while !rest.is_empty() {
        let mut seen = HashSet::new();
        let length = rest.iter().take_while(|row| seen.insert(row.job)).count();
        let (round, after) = rest.split_at(length);
        let columns = ReportColumns::new(round, kept.details_max);
        let mut params = columns.params();
        params.push(&kept.history);
        params.push(&now);
        let answer = one(tx.query(Call::Report, &params)?)?;
        let reported = unpack(&answer, (0, 1, 2))?;
        reports.extend(reported.rows);
        store_time = reported.store_time;
        answers.push(answer);
        rest = after;
    }
    Ok((Reported::new(reports, store_time), answers))
}

impl PostgresSession {
    fn wake_rounds(&self, rounds: &[Row]) -> Result<(), StoreError> {
        rounds.iter().try_for_each(|row| self.wake_released(row, (2, 3, 4)))
    }
}

/// What the store keeps of an attempt's end.
#[derive(Clone, Copy)]
struct Kept {
    details_max: usize,
    history: i16,
}

impl Kept {
    fn of(session: &PostgresSession) -> Self {
        let store = &session.store;
        Self { details_max: store.bounds.failure_detail_bytes_max, history: store.history }
    }
}

fn is_distinct(rows: &[OutcomeRow]) -> bool {
    let mut seen = HashSet::with_capacity(rows.len());
    rows.iter().all(|row| seen.insert(row.job))
}

/// The rows of a report, column by column.
struct ReportColumns<'a> {
    jobs: Vec<JobId>,
    attempts: Vec<i64>,
    owners: Vec<WorkerId>,
    reaps: Vec<bool>,
    pumps: Vec<WorkerId>,
    sequences: Vec<i64>,
    states: Vec<i16>,
    failed: Vec<bool>,
    delays_us: Vec<Option<i64>>,
    outputs: Vec<Option<Private<'a>>>,
    details: Vec<Option<String>>,
}

impl<'a> ReportColumns<'a> {
    fn new(rows: &'a [OutcomeRow], details_max: usize) -> Self {
        let detail = |row: &OutcomeRow| row.detail.as_deref().map(|text| clean(text, details_max));
        Self {
            jobs: rows.iter().map(|row| row.job).collect(),
            attempts: rows.iter().map(|row| row.attempt.into()).collect(),
            owners: rows.iter().map(|row| row.owner).collect(),
            reaps: rows.iter().map(|row| row.mode == Mode::Reap).collect(),
            pumps: rows.iter().map(|row| row.receipt.pump).collect(),
            sequences: rows.iter().map(|row| row.receipt.sequence.cast_signed()).collect(),
            states: rows.iter().map(|row| row.outcome.state(false).code()).collect(),
            failed: rows.iter().map(|row| row.outcome.is_failure()).collect(),
            delays_us: rows.iter().map(|row| row.outcome.delay().map(bounded_us)).collect(),
            outputs: rows
                .iter()
                .map(|row| row.output.as_ref().map(|body| Private(body.as_bytes())))
                .collect(),
            // Cleaned already; but one NUL that slipped through would fail the whole batch for ever.
            details: rows.iter().map(detail).collect(),
        }
    }

    fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        let params: &Params<'_> = &[
            &self.jobs,
            &self.attempts,
            &self.owners,
            &self.reaps,
            &self.pumps,
            &self.sequences,
            &self.states,
            &self.failed,
            &self.delays_us,
            &self.outputs,
            &self.details,
        ];
        params.to_vec()
    }
}

/// Reads the answer from the columns of verdicts, states and store time.
fn unpack(
    row: &Row,
    (verdicts, states, time): (usize, usize, usize),
) -> Result<Reported, StoreError> {
    // Null for a report of no rows.
    let verdicts: Option<Vec<i16>> = row.try_get(verdicts).map_err(fault)?;
    let states: Option<Vec<Option<i16>>> = row.try_get(states).map_err(fault)?;
    let store_time = row.try_get(time).map_err(fault)?;
    let pairs = verdicts.unwrap_or_default().into_iter().zip(states.unwrap_or_default());
    let rows =
        pairs.map(|(verdict, state)| unpack_report(verdict, state)).collect::<Result<_, _>>()?;
    Ok(Reported::new(rows, store_time))
}

fn unpack_report(verdict: i16, state: Option<i16>) -> Result<RowReport, StoreError> {
    let known = || {
        state.and_then(|code| JobState::from_code(code.into())).ok_or_else(|| {
            let message = format!("a job has the state {state:?}");
            StoreError::from(halt(InvariantTrigger::UndefinedEnumValueStored, message))
        })
    };
    Ok(match verdict {
        0 => RowReport::Applied(known()?),
        1 => RowReport::AlreadyApplied(known()?),
        2 => RowReport::Stale(StaleReason::Lapsed),
        3 => RowReport::Stale(StaleReason::Reaped),
        4 => RowReport::Stale(StaleReason::Revoked),
        5 => RowReport::Stale(StaleReason::Gone),
        6 => RowReport::Stale(StaleReason::Unknown),
        other => {
            let message = format!("the verdict {other}");
            return Err(StoreError::new(Malformed(message)));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_with_a_state_that_is_none_is_a_violation() {
        // The function refuses such a row before; the state of its answer is not trusted all the same.
        for state in [None, Some(-1), Some(7)] {
            for verdict in [0, 1] {
                let trigger = unpack_report(verdict, state).unwrap_err().trigger();
                assert_eq!(trigger, Some(InvariantTrigger::UndefinedEnumValueStored), "{state:?}");
            }
            assert_eq!(unpack_report(5, state).unwrap(), RowReport::Stale(StaleReason::Gone));
        }
        let error = unpack_report(7, Some(3)).unwrap_err();
        assert!(error.downcast_ref::<Malformed>().is_some(), "{error:?}");
    }
}
