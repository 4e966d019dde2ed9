//! What an operator is shown: which groups run, limp or stand still.
//!
//! Bookkept per (group, pump), shown per group. Reading takes no lock: the state is an immutable
//! snapshot that every change replaces, and what changes often (a pump's pulse) is atomic.
//!
//! Invariants kept here:
//! - A halt replaces its pump's degraded marks and is never taken back; only a new group under the
//!   same name clears it.
//! - A recovery clears one cause of one pump, never a sibling's.

mod report;
#[cfg(test)]
mod tests;

pub use report::{
    Degradation, DegradedCause, GroupReport, HaltState, HealthReport, HealthStatus, StuckHandler,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// The health of the groups of a process: made by the host, shared as an `Arc`, written by the crate.
///
/// ```
/// use backwave::{Health, HealthStatus};
///
/// let health = Health::new();
/// assert!(health.is_healthy());
/// assert_eq!(health.check().status, HealthStatus::Healthy);
/// assert_eq!(health.check().to_string(), "Healthy");
/// ```
#[derive(Default)]
pub struct Health {
    snapshot: ArcSwap<Snapshot>,
    /// Serialises writers. No reader takes it.
    writing: Mutex<()>,
}

#[derive(Clone, Default)]
struct Snapshot {
    groups: BTreeMap<String, Arc<Entry>>,
    generations: u64,
}

#[derive(Clone)]
struct Entry {
    generation: u64,
    pumps: Vec<PumpEntry>,
}

#[derive(Clone)]
struct PumpEntry {
    pulse: Arc<Pulse>,
    halt: Option<HaltState>,
    /// Cause to the type of the fault, where there is one.
    marks: BTreeMap<DegradedCause, Option<String>>,
    stuck: Vec<StuckHandler>,
    ended: bool,
}

impl Health {
    /// Health without groups: Healthy.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// False exactly when some group has all its pumps halted.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        !self.snapshot.load().groups.values().any(|entry| entry.is_wholly_halted())
    }

    /// The groups all of whose pumps have halted, with the first halt of each.
    #[must_use]
    pub fn halted_groups(&self) -> BTreeMap<String, HaltState> {
        self.halts(Entry::is_wholly_halted)
    }

    /// The groups some of whose pumps have halted, with the first halt of each.
    #[must_use]
    pub fn partially_halted_groups(&self) -> BTreeMap<String, HaltState> {
        self.halts(|entry| !entry.is_wholly_halted())
    }

    fn halts(&self, wanted: impl Fn(&Entry) -> bool) -> BTreeMap<String, HaltState> {
        let snapshot = self.snapshot.load();
        let halted = snapshot.groups.iter().filter(|(_, entry)| wanted(entry));
        halted
            .filter_map(|(name, entry)| Some((name.clone(), entry.first_halt()?.clone())))
            .collect()
    }

    /// The groups that limp: marked by a transient fault, a clock that jumped, stuck handlers or a
    /// pump that hangs in a call. Halts are not in here.
    #[must_use]
    pub fn degraded_groups(&self) -> BTreeMap<String, Vec<Degradation>> {
        let snapshot = self.snapshot.load();
        let marked =
            snapshot.groups.iter().map(|(name, entry)| (name.clone(), entry.degradations()));
        marked.filter(|(_, degradations)| !degradations.is_empty()).collect()
    }

    /// The whole state at one moment, the worst of all groups first in its status.
    #[must_use]
    pub fn check(&self) -> HealthReport {
        let snapshot = self.snapshot.load();
        let groups: Vec<_> =
            snapshot.groups.iter().map(|(name, entry)| entry.report(name.clone())).collect();
        let status = groups.iter().map(|group| group.status).max().unwrap_or(HealthStatus::Healthy);
        HealthReport { status, groups }
    }

    /// Takes the name for a new group and clears what an ended one of that name left behind; `None`
    /// when a group of that name is alive.
    pub(crate) fn register(
        self: &Arc<Self>,
        group: &str,
        pumps: u32,
        hung_after: Duration,
    ) -> Option<Vec<Pen>> {
        let mut generation = None;
        self.edit(|snapshot| {
            let alive = snapshot.groups.get(group).is_some_and(|entry| entry.is_alive());
            if alive {
                return;
            }
            snapshot.generations += 1;
            generation = Some(snapshot.generations);
            let pump = || PumpEntry {
                pulse: Arc::new(Pulse::new(hung_after)),
                halt: None,
                marks: BTreeMap::new(),
                stuck: Vec::new(),
                ended: false,
            };
            let pumps = (0..pumps).map(|_| pump()).collect();
            let entry = Entry { generation: snapshot.generations, pumps };
            snapshot.groups.insert(group.to_owned(), Arc::new(entry));
        });
        let generation = generation?;
        let snapshot = self.snapshot.load();
        let entry = snapshot.groups.get(group)?;
        let pens = entry.pumps.iter().enumerate().map(|(pump, state)| Pen {
            health: Arc::clone(self),
            group: group.to_owned(),
            generation,
            pump,
            pulse: Arc::clone(&state.pulse),
        });
        Some(pens.collect())
    }

    /// Takes back a registration whose group could not be started.
    pub(crate) fn withdraw(&self, group: &str) {
        self.edit(|snapshot| {
            snapshot.groups.remove(group);
        });
    }

    fn edit(&self, change: impl FnOnce(&mut Snapshot)) {
        let _writing = self.writing.lock();
        let mut next = Snapshot::clone(&self.snapshot.load());
        change(&mut next);
        self.snapshot.store(Arc::new(next));
    }
}

impl std::fmt::Debug for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Health").field(&self.check()).finish()
    }
}

impl Entry {
    fn is_alive(&self) -> bool {
        self.pumps.iter().any(|pump| !pump.ended)
    }

    fn is_wholly_halted(&self) -> bool {
        !self.pumps.is_empty() && self.pumps.iter().all(|pump| pump.halt.is_some())
    }

    fn first_halt(&self) -> Option<&HaltState> {
        self.pumps.iter().find_map(|pump| pump.halt.as_ref())
    }

    fn degradations(&self) -> Vec<Degradation> {
        let mut found: Vec<Degradation> = Vec::new();
        for (cause, fault_type) in self.pumps.iter().flat_map(PumpEntry::degradations) {
            match found.iter_mut().find(|d| d.cause == cause && d.fault_type == fault_type) {
                Some(known) => known.pumps += 1,
                None => found.push(Degradation { cause, fault_type, pumps: 1 }),
            }
        }
        found
    }

    fn report(&self, name: String) -> GroupReport {
        let halts: Vec<_> = self.pumps.iter().filter_map(|pump| pump.halt.clone()).collect();
        let degradations = self.degradations();
        let status = if self.is_wholly_halted() {
            HealthStatus::Unhealthy
        } else if halts.is_empty() && degradations.is_empty() {
            HealthStatus::Healthy
        } else {
            HealthStatus::Degraded
        };
        let stuck = self.pumps.iter().flat_map(|pump| pump.stuck.iter().cloned()).collect();
        GroupReport { name, status, pumps: self.pumps.len(), halts, degradations, stuck }
    }
}

impl PumpEntry {
    fn degradations(&self) -> impl Iterator<Item = (DegradedCause, Option<String>)> {
        let marks = self.marks.iter().map(|(cause, fault_type)| (*cause, fault_type.clone()));
        // A halted one has ended as well.
        let hung = (!self.ended && self.pulse.is_hung()).then_some((DegradedCause::Hung, None));
        marks.chain(hung)
    }
}

/// What one pump writes its health with.
pub(crate) struct Pen {
    health: Arc<Health>,
    group: String,
    generation: u64,
    pump: usize,
    pub(crate) pulse: Arc<Pulse>,
}

impl Pen {
    pub(crate) fn halted(&self, halt: HaltState) {
        self.edit(|pump| {
            pump.marks.clear();
            pump.halt.get_or_insert(halt);
            pump.ended = true;
        });
    }

    pub(crate) fn degraded(&self, cause: DegradedCause, fault_type: Option<&str>) {
        self.edit(|pump| {
            if pump.halt.is_none() {
                pump.marks.insert(cause, fault_type.map(str::to_owned));
            }
        });
    }

    pub(crate) fn recovered(&self, cause: DegradedCause) {
        let snapshot = self.health.snapshot.load();
        let known = snapshot.groups.get(&self.group).and_then(|entry| entry.pumps.get(self.pump));
        if !known.is_some_and(|pump| pump.marks.contains_key(&cause)) {
            return;
        }
        self.edit(|pump| {
            pump.marks.remove(&cause);
        });
    }

    /// The handlers that ignore their tokens, as of now.
    pub(crate) fn stuck(&self, handlers: impl Iterator<Item = StuckHandler>) {
        let handlers: Vec<_> = handlers.collect();
        let snapshot = self.health.snapshot.load();
        let known = snapshot.groups.get(&self.group).and_then(|entry| entry.pumps.get(self.pump));
        if known.is_some_and(|pump| pump.stuck != handlers) {
            self.edit(|pump| pump.stuck = handlers);
        }
    }

    /// The pump has stopped cleanly. When no pump is left and none has halted, the group is forgotten.
    pub(crate) fn ended(&self) {
        self.edit(|pump| {
            pump.marks.clear();
            pump.ended = true;
        });
        self.health.edit(|snapshot| {
            let entry = snapshot.groups.get(&self.group);
            let over = entry.is_some_and(|entry| {
                entry.generation == self.generation
                    && entry.pumps.iter().all(|pump| pump.ended && pump.halt.is_none())
            });
            if over {
                snapshot.groups.remove(&self.group);
            }
        });
    }

    fn edit(&self, change: impl FnOnce(&mut PumpEntry)) {
        self.health.edit(|snapshot| {
            let entry = snapshot.groups.get_mut(&self.group);
            let Some(entry) = entry.filter(|entry| entry.generation == self.generation) else {
                return;
            };
            if let Some(pump) = Arc::make_mut(entry).pumps.get_mut(self.pump) {
                change(pump);
            }
        });
    }
}

/// Whether a pump hangs in a call: stamped as a call begins and ends, judged by whoever reads.
pub(crate) struct Pulse {
    /// Nanoseconds after [`START`] at which the call under way began; 0 when there is none.
    busy_since: AtomicU64,
    hung_after: Duration,
}

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Pulse {
    fn new(hung_after: Duration) -> Self {
        Self { busy_since: AtomicU64::new(0), hung_after }
    }

    pub(crate) fn call_began(&self) {
        let since = START.elapsed().as_nanos();
        self.busy_since.store(u64::try_from(since).unwrap_or(u64::MAX).max(1), Ordering::Relaxed);
    }

    pub(crate) fn call_ended(&self) {
        self.busy_since.store(0, Ordering::Relaxed);
    }

    fn is_hung(&self) -> bool {
        match self.busy_since.load(Ordering::Relaxed) {
            0 => false,
            since => START.elapsed().saturating_sub(Duration::from_nanos(since)) > self.hung_after,
        }
    }
}
