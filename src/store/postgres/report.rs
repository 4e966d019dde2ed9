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

pub(super) const REPORT: &str = "SELECT verdicts, states, store_time \
    FROM {schema}.report_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";

pub(super) const EXCHANGE: &str = "SELECT id, pass, place, attempt, failures, version, state_before, \
    state, owner, expiry, due_at, timeout_us, wire_name, queue, retry, tags, payload, store_time, \
    withheld, next_due, floor_dues, floor_ids, probes_us, waded, verdicts, states \
    FROM {schema}.exchange_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, \
    $17, $18, $19, $20, $21, $22, $23)";

pub(super) fn report(
    session: &mut PostgresSession,
    rows: &[OutcomeRow],
) -> Result<Reported, StoreError> {
    let now = session.store.clock_time();
    if is_distinct(rows) {
        let columns = ReportColumns::new(rows, session.store.bounds.failure_detail_bytes_max);
        let mut params = columns.params();
        params.push(&now);
        return unpack(&session.query_one(Call::Report, &params)?, (0, 1, 2));
    }
    let details_max = session.store.bounds.failure_detail_bytes_max;
    session.in_transaction(&[Call::Report], |tx| report_rounds(tx, rows, details_max, now))
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
    let details_max = session.store.bounds.failure_detail_bytes_max;
    let claim_columns = ClaimColumns::new(session, claim);
    if !is_distinct(rows) {
        let (reported, claimed) = session.in_transaction(&[Call::Report, Call::Claim], |tx| {
            let reported = report_rounds(tx, rows, details_max, now)?;
            let mut params = claim_columns.params();
            params.push(&now);
            Ok((reported, tx.query(Call::Claim, &params)?))
        })?;
        return Ok(Exchanged::new(reported, claim::unpack(session, claim, claimed)?));
    }
    let columns = ReportColumns::new(rows, details_max);
    let mut params = columns.params();
    params.extend(claim_columns.params());
    params.push(&now);
    let mut answer = session.query(Call::Exchange, &params)?;
    if answer.is_empty() {
        return Err(StoreError::new(Malformed("an exchange without its first row".to_owned())));
    }
    let reported = unpack(&answer.remove(0), (24, 25, 17))?;
    Ok(Exchanged::new(reported, claim::unpack(session, claim, answer)?))
}

/// The functions take each job once. A batch that names one twice is written round by round, in one
/// transaction: each row is judged after the one before it.
fn report_rounds(
    tx: &mut Batch<'_>,
    rows: &[OutcomeRow],
    details_max: usize,
    now: Option<Timestamp>,
) -> Result<Reported, StoreError> {
    let mut reports = Vec::with_capacity(rows.len());
    let mut store_time = Timestamp::EPOCH;
    let mut rest = rows;
    while !rest.is_empty() {
        let mut seen = HashSet::new();
        let length = rest.iter().take_while(|row| seen.insert(row.job)).count();
        let (round, after) = rest.split_at(length);
        let columns = ReportColumns::new(round, details_max);
        let mut params = columns.params();
        params.push(&now);
        let reported = unpack(&one(tx.query(Call::Report, &params)?)?, (0, 1, 2))?;
        reports.extend(reported.rows);
        store_time = reported.store_time;
        rest = after;
    }
    Ok(Reported::new(reports, store_time))
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
