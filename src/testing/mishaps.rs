//! What goes wrong around a handler, and a search for what breaks it.

use super::StoreCall;
use super::link::{CallFault, Manner};
use super::mix;
use super::world::World;
use crate::store::Store;
use crate::{MemoryStore, Registry};
use parking_lot::Mutex;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;

/// Something that goes wrong once. Reports and runs are counted from 0, over all restarts.
///
/// ```
/// use backwave::testing::Mishap;
///
/// let mishap: Mishap = "crash-before-report@3".parse().unwrap();
/// assert_eq!(mishap, Mishap::CrashBeforeReport(3));
/// assert_eq!(mishap.to_string(), "crash-before-report@3");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Mishap {
    /// The process dies after handlers have run, before that report of how they ended is written. It starts
    /// again at once; the lost attempts lapse and are tried again.
    CrashBeforeReport(u64),
    /// The same, with the report written.
    CrashAfterReport(u64),
    /// The answer to that report is lost.
    ReportAnswerLost(u64),
    /// As that run begins, an operator takes its lease away: the job runs a second time, beside the first.
    RunTwice(u64),
    /// As that run begins, the store's clock steps ahead by an hour: its lease lapses.
    ClockStep(u64),
}

/// A kind of mishaps: its name, and what makes the one of that number.
type Named = (&'static str, fn(u64) -> Mishap);

impl Mishap {
    const NAMES: [Named; 5] = [
        ("crash-before-report", Self::CrashBeforeReport),
        ("crash-after-report", Self::CrashAfterReport),
        ("report-answer-lost", Self::ReportAnswerLost),
        ("run-twice", Self::RunTwice),
        ("clock-step", Self::ClockStep),
    ];

    const fn nth(self) -> u64 {
        match self {
            Self::CrashBeforeReport(nth)
            | Self::CrashAfterReport(nth)
            | Self::ReportAnswerLost(nth)
            | Self::RunTwice(nth)
            | Self::ClockStep(nth) => nth,
        }
    }
}

impl fmt::Display for Mishap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nth = self.nth();
        let name =
            Self::NAMES.iter().find(|(_, make)| make(nth) == *self).map_or("", |(name, _)| name);
        write!(f, "{name}@{nth}")
    }
}

/// A text that names no mishap.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a mishap: {text:?}")]
pub struct ParseMishapError {
    text: String,
}

impl FromStr for Mishap {
    type Err = ParseMishapError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || ParseMishapError { text: text.to_owned() };
        let (name, nth) = text.split_once('@').ok_or_else(refused)?;
        let nth = nth.parse().map_err(|_| refused())?;
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, make)| make(nth)).ok_or_else(refused)
    }
}

/// Runs a test of handlers again and again, each time with other mishaps, and tells the smallest set of them that
/// breaks it.
///
/// The scenario makes a [`Harness`](super::Harness) with the mishaps it is given, lets time pass, and asserts what
/// must hold whatever goes wrong: that an effect came once, say. The first run has none. A run that panics is run
/// again with ever fewer mishaps, as long as it still does; the panic of this function names what is left.
///
/// ```
/// use backwave::testing::{Harness, under_mishaps};
/// use backwave::{Job, JobId, Registry};
/// use serde::{Deserialize, Serialize};
/// use std::collections::BTreeSet;
/// use std::sync::{Arc, Mutex};
/// use std::time::Duration;
///
/// #[derive(Serialize, Deserialize)]
/// struct Charge {
///     cents: u64,
/// }
///
/// impl Job for Charge {
///     const WIRE_NAME: &'static str = "charge";
/// }
///
/// under_mishaps(20, |mishaps| {
///     // The gateway takes the job's id as idempotency key.
///     let charged: Arc<Mutex<BTreeSet<JobId>>> = Arc::default();
///     let registry = Registry::new().handle_with(&charged, |charged: &Mutex<BTreeSet<JobId>>, ctx, _: Charge| {
///         charged.lock().unwrap().insert(ctx.job_id());
///         Ok(())
///     });
///     let mut harness = Harness::builder(registry).mishaps(mishaps.iter().copied()).build();
///     harness.enqueue(&Charge { cents: 100 });
///     assert!(harness.drain(Duration::from_secs(86_400)));
///     assert_eq!(charged.lock().unwrap().len(), 1);
/// });
/// ```
///
/// # Panics
/// When the scenario does, with the mishaps that it takes.
pub fn under_mishaps(runs: u64, scenario: impl Fn(&[Mishap])) {
    let fails = |mishaps: &[Mishap]| {
        let run = catch_unwind(AssertUnwindSafe(|| scenario(mishaps)));
        run.err().map(|panic| crate::registry::panic_message(panic.as_ref()))
    };
    for seed in 0..runs {
        let mut mishaps = draw(seed);
        let Some(mut message) = fails(&mishaps) else { continue };
        let mut at = 0;
        while at < mishaps.len() {
            let mut fewer = mishaps.clone();
            fewer.remove(at);
            match fails(&fewer) {
                Some(still) => (mishaps, message) = (fewer, still),
                None => at += 1,
            }
        }
        let names: Vec<String> = mishaps.iter().map(ToString::to_string).collect();
        panic!("run {seed} fails under [{}]: {message}", names.join(", "));
    }
}

/// The mishaps of a run: none of the first.
fn draw(seed: u64) -> Vec<Mishap> {
    let mut dice = mix(seed);
    let mut roll = |below: u64| {
        dice = mix(dice);
        dice % below
    };
    let count = if seed == 0 { 0 } else { 1 + roll(4) };
    let mut mishaps: Vec<Mishap> = Vec::new();
    for _ in 0..count {
        let (_, make) = Mishap::NAMES[roll(Mishap::NAMES.len() as u64) as usize];
        // Early ones are met by short scenarios, too.
        let range = 1 + roll(8);
        mishaps.push(make(roll(range)));
    }
    mishaps.sort_unstable();
    mishaps.dedup();
    mishaps
}

/// The mishaps of one harness, and how far it has come.
pub(super) struct Plot {
    mishaps: Vec<Mishap>,
    world: World,
    store: MemoryStore,
    /// Reports and runs so far.
    seen: Mutex<(u64, u64)>,
}

impl Plot {
    pub(super) fn new(mishaps: &[Mishap], world: World, store: MemoryStore) -> Self {
        Self { mishaps: mishaps.to_vec(), world, store, seen: Mutex::default() }
    }

    fn has(&self, mishap: Mishap) -> bool {
        self.mishaps.contains(&mishap)
    }

    pub(super) fn at_call(&self, call: StoreCall) -> Manner {
        if !matches!(call, StoreCall::Report | StoreCall::Exchange) {
            return Manner::default();
        }
        let nth = {
            let mut seen = self.seen.lock();
            seen.0 += 1;
            seen.0 - 1
        };
        let faults = [
            (Mishap::CrashBeforeReport(nth), CallFault::CrashBefore),
            (Mishap::CrashAfterReport(nth), CallFault::CrashAfter),
            (Mishap::ReportAnswerLost(nth), CallFault::LostAfter),
        ];
        let fault =
            faults.into_iter().find(|(mishap, _)| self.has(*mishap)).map(|(_, fault)| fault);
        Manner { fault, ..Manner::default() }
    }

    /// Has the mishaps of runs happen as they begin.
    pub(super) fn watch(self: &std::sync::Arc<Self>, registry: Registry) -> Registry {
        if self.mishaps.is_empty() {
            return registry;
        }
        let plot = std::sync::Arc::clone(self);
        registry.around(move |context, next| {
            plot.begin_run(context.job_id());
            next()
        })
    }

    fn begin_run(&self, job: crate::JobId) {
        let nth = {
            let mut seen = self.seen.lock();
            seen.1 += 1;
            seen.1 - 1
        };
        if self.has(Mishap::RunTwice(nth))
            && let Ok(mut session) = self.store.open_session()
            && let Ok(Some(record)) = session.job(job)
            && let Some(owner) = record.owner
        {
            let _ = session.revoke("mishap", owner, crate::store::PAGE_MAX);
        }
        if self.has(Mishap::ClockStep(nth)) {
            self.world.step_store_clock(3600 * 1_000_000);
        }
    }
}
