//! What the oracles hold against how processes and runs end.

use super::{Judge, Known};
use crate::store::{Gate, Store};
use crate::testing::world::ProcessId;
use crate::{HaltState, JobState, ShutdownReport};

impl Judge {
    /// A process died without a word.
    pub(in crate::testing::sim) fn crashed(&self, process: ProcessId) {
        self.hear(|case| {
            let known = case.processes.entry(process).or_default();
            known.ended = true;
            let node = known.node;
            case.say(|| format!("node {node} crashes"));
        });
    }

    /// A pump has halted. Nothing here is a reason to.
    pub(in crate::testing::sim) fn halted(&self, process: ProcessId, halt: &HaltState) {
        self.hear(|case| {
            case.processes.entry(process).or_default().ended = true;
            case.find(
                "no pump halts without a cause",
                format!("{}: {}", halt.type_name, halt.message),
            );
        });
    }

    /// A stop has lasted longer than its budget.
    pub(in crate::testing::sim) fn still_stopping(&self, process: ProcessId) {
        self.hear(|case| {
            let Some(known) = case.processes.get(&process) else { return };
            let node = known.node;
            if !known.ended && case.is_unharmed(node, case.now) {
                case.find("a stop comes to an end", format!("node {node}"));
            }
        });
    }

    /// A process has stopped cleanly.
    pub(in crate::testing::sim) fn stopped(&self, process: ProcessId, report: &ShutdownReport) {
        self.hear(|case| {
            let known = case.processes.entry(process).or_default();
            known.ended = true;
            let (node, workers) = (known.node, known.workers.clone());
            let handed_back = report.handed_back;
            case.say(|| format!("node {node} has stopped, {handed_back} handed back"));
            case.coverage.met("a clean stop");
            let held = |job: &&Known| job.hold.is_some_and(|hold| workers.contains(&hold.worker));
            let left = case.jobs.values().filter(held).count();
            if left > 0 && case.is_unharmed(node, case.now) {
                let detail = format!("node {node} has left {left} lease(s)");
                case.find("a clean stop leaves no lease", detail);
            }
        });
    }

    /// Whether every job has ended.
    pub(in crate::testing::sim) fn is_drained(&self) -> bool {
        self.hear(|case| {
            case.jobs.values().all(|job| job.state.is_terminal()) && case.ticks_to_come().is_empty()
        })
    }

    /// The last look, at everything.
    pub(in crate::testing::sim) fn close(&self, must_be_drained: bool) {
        let there = self.0.store.open_session().and_then(|mut session| session.counts());
        let there: u64 = there.unwrap_or_default().iter().map(|count| count.count).sum();
        self.hear(|case| {
            case.touched = case.jobs.keys().copied().collect();
            let known = case.jobs.len() as u64;
            if there != known {
                case.find("no job is lost", format!("{there} are there of {known}"));
            }
            let orphans: Vec<u32> = case
                .jobs
                .values()
                .filter(|job| job.state == JobState::AwaitingParent)
                .filter(|job| !case.gates(job.row.id).contains(&Gate::Closed))
                .map(|job| job.n)
                .collect();
            if !orphans.is_empty() {
                case.find("no dependent is forgotten", format!("{orphans:?}"));
            }
            let live = case.jobs.values().filter(|job| !job.state.is_terminal());
            let live: Vec<String> =
                live.map(|job| format!("job {} is {}", job.n, job.state)).collect();
            let ticks = case.ticks_to_come();
            if must_be_drained && !ticks.is_empty() {
                case.find("every tick comes", ticks.join(", "));
            }
            if must_be_drained && !live.is_empty() {
                case.find("what heals comes to an end", live.join(", "));
            }
        });
    }
}
