//! The log catalogue and the names of metrics, in one place.
//!
//! Every line goes to the target [`LOG_TARGET`] and carries its id as the key-value `event_id`. Payloads,
//! outputs, what handlers and callbacks say went wrong, and connection strings are in none of them. Ids, levels and field names are part of the
//! public face.
//!
//! | id | level | what |
//! |---|---|---|
//! | 1001 | debug | jobs enqueued |
//! | 1101 | trace | lease acquired |
//! | 1102 | debug | attempt started |
//! | 1103 | debug | attempt ended |
//! | 1201 | info | attempt failed, will be retried |
//! | 1202 | warn | lease lost, attempt abandoned |
//! | 1203 | error | job dead-lettered |
//! | 1204 | info | lapsed leases settled |
//! | 1205 | error | job quarantined |
//! | 1301 | warn | transient store fault: at its beginning, at its end, and once a minute in between |
//! | 1302 | info | schema migrated |
//! | 1303 | warn | the store's clock jumped |
//! | 1401 | warn | delivery to an observer parked |
//! | 1402 | error | transitions taken before every observer had seen them |
//! | 1601 | warn | invariant tripped outside of a group, degraded |
//! | 1701 | debug | a tick of a schedule has minted its job |
//! | 1702 | info | ticks of a schedule were skipped |
//! | 1703 | warn | a schedule cannot be followed: once, when it begins |
//! | 1704 | info | schedules were removed by a declaration |
//! | 2001 | error, `severity = "critical"` | Worker Group fail-stopped |
//! | 2003 | warn | invariant tripped in a group, degraded |
//! | 2005 | warn | shutdown budget exhausted |
//! | 2006 | warn | a handler ignores its token |
//! | 2007 | warn | a policy leaves out the queue of a registered job |
//! | 2101 | error | observer pump ended by a fault |
//! | 2102 | info | observer's cursor taken |
//! | 2103 | warn | hold on an observer's cursor lost |
//! | 2104 | warn | delivery to an observer failed, will be retried |
//! | 2105 | warn | callback of an observer takes too long, its thread left behind |
//! | 2106 | warn | transient store fault of an observer pump: at its beginning and at its end |
//! | 2107 | warn | observer's cursor begins anew with the oldest transition kept |
//!
//! `env_logger` prints key-values only with its `kv` feature.

use crate::contain::contained;
use crate::invariant::{InvariantAction, InvariantTrigger};
use crate::store::SkipReason;
use crate::{JobId, JobState, Timestamp};
use std::fmt::Display;
use std::time::Duration;

/// The target of every line of this crate.
pub const LOG_TARGET: &str = "backwave";
/// Counts violated invariants, by [`TAG_TRIGGER`] and [`TAG_ACTION`].
pub const METRIC_VIOLATIONS: &str = "backwave.invariant.violations";
/// Counts halts of pumps, by [`TAG_TRIGGER`] (`unclassified` when no named check raised it).
pub const METRIC_HALTS: &str = "backwave.group.halts";
/// The name of the violated check.
pub const TAG_TRIGGER: &str = "backwave.invariant.trigger";
/// `Halt` or `Degrade`.
pub const TAG_ACTION: &str = "backwave.invariant.action";
/// Stands for a trigger where no named check raised a halt.
pub const UNCLASSIFIED: &str = "unclassified";

/// The host's logger and recorder may panic; nothing of ours hangs on a line that is lost.
fn contained_call(theirs: impl FnOnce()) {
    let _lost = contained(theirs);
}

macro_rules! line {
    ($level:ident, $($rest:tt)+) => {
        contained_call(|| log::$level!(target: LOG_TARGET, $($rest)+))
    };
}

pub(crate) fn count_violation(trigger: InvariantTrigger, action: InvariantAction) {
    #[cfg(feature = "metrics")]
    contained_call(|| {
        metrics::counter!(METRIC_VIOLATIONS, TAG_TRIGGER => trigger.name(), TAG_ACTION => action.name())
            .increment(1);
    });
    #[cfg(not(feature = "metrics"))]
    let _ = (trigger, action);
}

pub(crate) fn count_halt(trigger: &'static str) {
    #[cfg(feature = "metrics")]
    contained_call(|| metrics::counter!(METRIC_HALTS, TAG_TRIGGER => trigger).increment(1));
    #[cfg(not(feature = "metrics"))]
    let _ = trigger;
}

pub(crate) fn invariant_degraded(trigger: InvariantTrigger, group: Option<&str>, detail: &str) {
    let name = trigger.name();
    match group {
        Some(group) => line!(
            warn, event_id = 2003, worker_group = group, invariant_trigger = name;
            "BackWave Worker Group '{group}' tripped invariant '{name}': {detail}. The group keeps running, degraded."
        ),
        None => line!(
            warn, event_id = 1601, invariant_trigger = name;
            "BackWave invariant '{name}' tripped: {detail}. The operation continues degraded."
        ),
    }
}

pub(crate) fn enqueued(count: usize) {
    line!(debug, event_id = 1001, count = count; "enqueued {count} job(s)");
}

pub(crate) fn lease_acquired(group: &str, job: JobId, attempt: u32, expiry: Timestamp) {
    line!(
        trace, event_id = 1101, worker_group = group, job_id:% = job, attempt = attempt;
        "lease on job {job}, attempt {attempt}, acquired until {expiry}"
    );
}

pub(crate) fn attempt_started(group: &str, job: JobId, attempt: u32, wire_name: &str) {
    line!(
        debug, event_id = 1102, worker_group = group, job_id:% = job, attempt = attempt, wire_name = wire_name;
        "attempt {attempt} of job {job} ({wire_name}) started"
    );
}

pub(crate) fn attempt_ended(group: &str, job: JobId, attempt: u32, state: JobState) {
    line!(
        debug, event_id = 1103, worker_group = group, job_id:% = job, attempt = attempt, state:% = state;
        "attempt {attempt} of job {job} ended, the job is {state}"
    );
}

pub(crate) fn will_retry(group: &str, job: JobId, attempt: u32, failures: u32, due: Timestamp) {
    line!(
        info, event_id = 1201, worker_group = group, job_id:% = job, attempt = attempt, failures = failures;
        "attempt {attempt} of job {job} failed ({failures} failures), retry at {due}"
    );
}

pub(crate) fn lease_lost(group: &str, job: JobId, attempt: u32, why: &str) {
    line!(
        warn, event_id = 1202, worker_group = group, job_id:% = job, attempt = attempt, reason = why;
        "lease lost, attempt {attempt} of job {job} abandoned: {why}"
    );
}

pub(crate) fn dead_lettered(group: &str, job: JobId, attempt: u32, failures: u32, lapsed: bool) {
    let how = if lapsed { "its lease lapsed" } else { "it failed" };
    line!(
        error, event_id = 1203, worker_group = group, job_id:% = job, attempt = attempt, failures = failures;
        "job {job} dead-lettered after attempt {attempt} ({failures} failures): {how}"
    );
}

pub(crate) fn lapsed_settled(group: &str, count: usize) {
    line!(info, event_id = 1204, worker_group = group, count = count; "{count} lapsed lease(s) settled");
}

pub(crate) fn quarantined(group: &str, job: JobId, attempt: u32) {
    line!(
        error, event_id = 1205, worker_group = group, job_id:% = job, attempt = attempt;
        "job {job} quarantined at attempt {attempt}: its payload cannot be decoded"
    );
}

pub(crate) fn store_fault_began(group: &str, fault: &dyn Display) {
    line!(warn, event_id = 1301, worker_group = group; "transient store fault, retrying: {fault}");
}

pub(crate) fn store_fault_lasts(group: &str, count: u64, fault: &dyn Display) {
    line!(
        warn, event_id = 1301, worker_group = group, count = count;
        "transient store faults go on, {count} so far, the last: {fault}"
    );
}

pub(crate) fn store_fault_ended(group: &str, count: u64) {
    line!(
        warn, event_id = 1301, worker_group = group, count = count;
        "the store answers again after {count} transient fault(s)"
    );
}

#[cfg_attr(
    not(any(feature = "sqlite", feature = "postgres")),
    expect(dead_code, reason = "only SQL adapters migrate")
)]
pub(crate) fn schema_migrated(adapter: &str, from: u32, to: u32) {
    line!(info, event_id = 1302, adapter = adapter, from = from, to = to; "{adapter} schema migrated from version {from} to {to}");
}

pub(crate) fn clock_jumped(group: &str, by: Duration, forward: bool) {
    let direction = if forward { "forward" } else { "back" };
    let ms = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
    line!(
        warn, event_id = 1303, worker_group = group, milliseconds = ms, direction = direction;
        "the store's clock jumped {direction} by {ms} ms against the monotonic clock"
    );
}

pub(crate) fn tick_minted(group: &str, schedule: &str, job: JobId) {
    line!(
        debug, event_id = 1701, worker_group = group, schedule = schedule, job_id:% = job;
        "a tick of schedule '{schedule}' has minted job {job}"
    );
}

pub(crate) fn ticks_skipped(group: &str, schedule: &str, count: u64, why: SkipReason) {
    let reason = match why {
        SkipReason::Missed => "nobody looked in time",
        SkipReason::Overlap => "the job of an earlier tick has not ended",
    };
    line!(
        info, event_id = 1702, worker_group = group, schedule = schedule, count = count, reason = reason;
        "{count} tick(s) of schedule '{schedule}' skipped: {reason}"
    );
}

pub(crate) fn schedule_failed(group: &str, schedule: &str, error: &str) {
    line!(
        warn, event_id = 1703, worker_group = group, schedule = schedule;
        "schedule '{schedule}' cannot be followed: {error}"
    );
}

pub(crate) fn schedules_removed(owner: &str, schedules: &[String]) {
    let count = schedules.len();
    let names = schedules.iter().take(20).map(String::as_str).collect::<Vec<_>>().join(", ");
    line!(
        info, event_id = 1704, owner = owner, count = count, schedules = names.as_str();
        "{count} schedule(s) of '{owner}' are not declared any more and were removed: {names}"
    );
}

pub(crate) fn fail_stopped(group: &str, trigger: &str, fault: &dyn Display) {
    line!(
        error, event_id = 2001, severity = "critical", worker_group = group, invariant_trigger = trigger;
        "BackWave Worker Group '{group}' fail-stopped on an invariant violation ({trigger}); the group is halted. {fault}"
    );
}

pub(crate) fn budget_exhausted(group: &str, jobs: &[JobId]) {
    let count = jobs.len();
    let names = jobs.iter().take(20).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    line!(
        warn, event_id = 2005, worker_group = group, count = count, job_ids = names.as_str();
        "shutdown budget exhausted, {count} handler(s) still running: {names}"
    );
}

pub(crate) fn token_ignored(group: &str, job: JobId, attempt: u32, age: Duration) {
    let seconds = age.as_secs();
    line!(
        warn, event_id = 2006, worker_group = group, job_id:% = job, attempt = attempt, seconds = seconds;
        "the handler of job {job}, attempt {attempt}, has ignored its token for {seconds} s"
    );
}

pub(crate) fn queue_left_out(group: &str, queue: &str, wire_name: &str) {
    line!(
        warn, event_id = 2007, worker_group = group, queue = queue, wire_name = wire_name;
        "the dispatch policy of group '{group}' leaves out queue '{queue}' of the registered job '{wire_name}'"
    );
}

pub(crate) fn delivery_parked(observer: &str, position: u64, failures: u32) {
    line!(
        warn, event_id = 1401, observer = observer, position = position, failures = failures;
        "observer '{observer}': the delivery of transition {position} is parked after {failures} failure(s)"
    );
}

pub(crate) fn unobserved_taken(group: &str, count: u64) {
    line!(
        error, event_id = 1402, worker_group = group, count = count;
        "{count} transition(s) were taken before every observer had seen them"
    );
}

pub(crate) fn observer_ended(observer: &str, trigger: &str, fault: &dyn Display) {
    line!(
        error, event_id = 2101, observer = observer, invariant_trigger = trigger;
        "the pump of observer '{observer}' ended by a fault ({trigger}): {fault}. Its cursor lapses to another node."
    );
}

pub(crate) fn cursor_taken(observer: &str, epoch: u64) {
    line!(
        info, event_id = 2102, observer = observer, epoch = epoch;
        "the cursor of observer '{observer}' is held here, epoch {epoch}"
    );
}

pub(crate) fn cursor_lost(observer: &str, why: &str) {
    line!(
        warn, event_id = 2103, observer = observer, reason = why;
        "the hold on the cursor of observer '{observer}' is lost: {why}"
    );
}

pub(crate) fn delivery_failed(observer: &str, position: u64, failures: u32, due: Timestamp) {
    line!(
        warn, event_id = 2104, observer = observer, position = position, failures = failures;
        "observer '{observer}': the delivery of transition {position} failed ({failures} failures), again at {due}"
    );
}

pub(crate) fn callback_left_behind(observer: &str, position: u64, age: Duration, count: u32) {
    let seconds = age.as_secs();
    line!(
        warn, event_id = 2105, observer = observer, position = position, seconds = seconds, count = count;
        "observer '{observer}': the callback for transition {position} has run for {seconds} s; its thread is left behind ({count} so far)"
    );
}

pub(crate) fn observer_fault_began(observer: &str, fault: &dyn Display) {
    line!(
        warn, event_id = 2106, observer = observer;
        "transient store fault of the pump of observer '{observer}', retrying: {fault}"
    );
}

pub(crate) fn observer_fault_ended(observer: &str, count: u64) {
    line!(
        warn, event_id = 2106, observer = observer, count = count;
        "the store answers the pump of observer '{observer}' again after {count} transient fault(s)"
    );
}

pub(crate) fn cursor_reset(observer: &str, why: &str) {
    line!(
        warn, event_id = 2107, observer = observer, reason = why;
        "the cursor of observer '{observer}' begins anew with the oldest transition kept: {why}"
    );
}
