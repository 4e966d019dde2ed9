//! What the oracles hold against the runs of handlers.

use super::{Judge, Ran};
use crate::testing::world::ProcessId;
use crate::{JobId, JobState};
use std::time::Duration;

impl Judge {
    /// A handler begins.
    pub(in crate::testing::sim) fn began(&self, process: ProcessId, job: JobId, attempt: u32) {
        self.hear(|case| {
            let (now, name) = (case.now, case.name(job));
            case.runs += 1;
            case.say(|| format!("{name}, attempt {attempt}, begins"));
            let Some(known) = case.jobs.get_mut(&job) else { return };
            let expiry = known.hold.map(|hold| hold.expiry);
            let is_current = known.attempt == attempt && known.state == JobState::Leased;
            let Some(entry) = known.attempts.get_mut(&attempt) else {
                return case.find("only what was claimed runs", name);
            };
            let again = entry.began.replace(now).is_some();
            let (barred, elsewhere) = (entry.barred, entry.process != process);
            let node = case.processes.get(&process).map_or(0, |process| process.node);
            if again {
                case.find("an attempt runs once", format!("{name}, attempt {attempt}"));
            } else if elsewhere {
                case.find(
                    "only what was claimed runs",
                    format!("{name}, attempt {attempt}, elsewhere"),
                );
            } else if barred {
                let detail =
                    format!("{name}, attempt {attempt}, claimed after the stop was asked for");
                case.find("a stop takes on nothing new", detail);
            }
            let is_dead = is_current && expiry.is_some_and(|expiry| expiry <= now);
            if is_dead && case.is_untroubled(node, now) {
                case.find("nothing begins on a dead lease", format!("{name}, attempt {attempt}"));
            }
        });
    }

    /// A handler's run has ended so. Whether it `listens`, and its time limit.
    pub(in crate::testing::sim) fn ran(
        &self,
        job: JobId,
        attempt: u32,
        ran: Ran,
        listens: bool,
        limit_ms: Option<u64>,
    ) {
        self.hear(|case| {
            let (now, name) = (case.now, case.name(job));
            case.say(|| format!("{name}, attempt {attempt}, ends: {ran:?}"));
            let Some(known) = case.jobs.get_mut(&job) else { return };
            let Some(entry) = known.attempts.get_mut(&attempt) else { return };
            entry.ran = Some(ran);
            let (process, began) = (entry.process, entry.began.unwrap_or(now));
            let cancel_at = known.cancel_at.filter(|_| known.attempt == attempt);
            let took = now.since(began).as_millis() as u64;
            let node = case.processes.get(&process).map_or(0, |process| process.node);
            let calm = case.is_unharmed(node, began);
            if let Some(at) = cancel_at.filter(|at| calm && listens && now.since(*at) > HEARD_AFTER)
            {
                let detail = format!("{name}, attempt {attempt}, was to end from {at} on");
                case.find("a cancel request reaches its handler", detail);
            }
            let Some(limit_ms) = limit_ms.filter(|_| listens) else { return };
            if took > limit_ms + LATE_MS && calm {
                let detail = format!("{name}, attempt {attempt}: {took} ms of {limit_ms}");
                case.find("a time limit ends an attempt", detail);
            }
        });
    }
}

/// A heartbeat and what it takes.
const HEARD_AFTER: Duration = Duration::from_secs(5);
/// How much later than its limit an attempt may hear of it.
const LATE_MS: u64 = 1_000;
