//! What the oracles hold against each deed of the store.

use super::{Attempt, Case, Hold, Known, Ran};
use crate::store::{
    Admission, CancelAnswer, Claim, Claimed, ClaimedJob, EnqueueAnswer, Gate, HandedBack, JobRow,
    LeaseRef, Mode, Outcome, OutcomeRow, QueueChange, Renewal, Renewed, RequeueAnswer, Revoked,
    RowReport,
};
use crate::testing::link::{Caller, Deed};
use crate::{CancelReason, JobId, JobState, WorkerId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

impl Case {
    pub(super) fn judge(&mut self, caller: Caller, deed: &Deed<'_>) {
        match deed {
            Deed::Enqueue(rows, answer) => self.enqueued(rows, answer),
            Deed::Claim(claim, claimed) => self.claimed(caller, claim, claimed),
            Deed::Report(rows, reported) => self.all_reported(caller, rows, &reported.rows),
            Deed::Exchange(rows, claim, exchanged) => {
                self.all_reported(caller, rows, &exchanged.reported.rows);
                self.claimed(caller, claim, &exchanged.claimed);
            }
            Deed::Renew(worker, rows, lease, renewal) => {
                self.caller_lives(caller, "renews");
                self.renewed(*worker, rows, *lease, renewal);
            }
            Deed::HandBack(worker, rows, handed_back) => {
                self.handed_back(*worker, rows, handed_back);
            }
            Deed::Lapsed(lapsed) => {
                let now = self.now;
                let live = lapsed.jobs.iter().filter(|job| job.expiry > now).count();
                if live > 0 {
                    self.find("only dead leases lapse", format!("{live} found are live"));
                }
            }
            Deed::Held(worker, held) => self.held(*worker, held.leases.len()),
            Deed::Cancel(job, answer) => self.cancelled(*job, *answer),
            Deed::Requeue(job, answer) => self.requeued(*job, *answer),
            Deed::Queue(queue, change) => self.queue_changed(queue, *change),
            Deed::Revoke(worker, revoked) => self.revoked(*worker, revoked),
            Deed::Declare(name) => self.declared(name),
            Deed::Schedule(name, change, answer) => self.schedule_changed(name, change, answer),
            Deed::Mint(rows, minted) => {
                self.caller_lives(caller, "mints");
                self.all_minted(rows, minted);
            }
        }
    }

    /// What has stopped, halted or died never claims, reports or renews again.
    fn caller_lives(&mut self, caller: Caller, does: &str) {
        let ended = self.processes.get(&caller.process).is_some_and(|process| process.ended);
        if ended && !caller.is_late {
            self.find("what has ended stays silent", format!("node {} {does}", caller.node));
        }
    }

    // -- how jobs come in

    fn enqueued(&mut self, rows: &[JobRow], answer: &EnqueueAnswer) {
        let EnqueueAnswer::Accepted { jobs, .. } = answer else {
            return self.find("what is sound is accepted", format!("{answer:?}"));
        };
        for (row, admission) in rows.iter().zip(jobs) {
            if let Admission::Held { by, state } = *admission {
                self.told_held(row, by, state);
                continue;
            }
            let is_new = *admission == Admission::New;
            if is_new == self.jobs.contains_key(&row.id) {
                self.find("new is told truly", format!("{} new: {is_new}", row.id));
            }
            if is_new {
                self.born(row);
                self.check_unique(row.id);
            }
        }
    }

    pub(super) fn born(&mut self, row: &JobRow) {
        let gates: Vec<Gate> = row.parents.iter().map(|parent| self.gate(row, *parent)).collect();
        let pairs = row.parents.iter().zip(&gates);
        let opened = pairs.filter(|(_, gate)| **gate == Gate::Open).map(|(parent, _)| *parent);
        let opened = opened.collect();
        let state = if gates.contains(&Gate::Failed) {
            JobState::Cancelled
        } else if gates.contains(&Gate::Closed) {
            JobState::AwaitingParent
        } else {
            JobState::Scheduled
        };
        let n = std::str::from_utf8(row.payload.as_bytes()).ok().and_then(|text| text.parse().ok());
        let known = Known {
            n: n.unwrap_or(u32::MAX),
            opened,
            state,
            attempt: 0,
            failures: 0,
            due: row.due.resolve(self.now),
            hold: None,
            cancel: false,
            cancel_at: None,
            receipt: None,
            settled: BTreeSet::new(),
            attempts: BTreeMap::new(),
            row: row.clone(),
        };
        self.say(|| format!("job {} is born {state}", known.n));
        for parent in &row.parents {
            self.children.entry(*parent).or_default().push(row.id);
        }
        self.coverage.edge(None, state);
        self.jobs.insert(row.id, known);
        self.touched.insert(row.id);
    }

    /// The gates of a dependent that waits.
    pub(super) fn gates(&self, child: JobId) -> Vec<Gate> {
        let Some(known) = self.jobs.get(&child) else { return Vec::new() };
        let parents = known.row.parents.iter();
        let gates = parents.map(|parent| {
            if known.opened.contains(parent) { Gate::Open } else { self.gate(&known.row, *parent) }
        });
        gates.collect()
    }

    pub(super) fn gate(&self, row: &JobRow, parent: JobId) -> Gate {
        let state = self.jobs.get(&parent).map_or(JobState::Succeeded, |parent| parent.state);
        row.parent_rule.gate(state)
    }

    // -- taking

    fn claimed(&mut self, caller: Caller, claim: &Claim<'_>, claimed: &Claimed) {
        self.caller_lives(caller, "claims");
        if claimed.jobs.len() as u64 > u64::from(claim.total) {
            self.find(
                "no more than was asked for",
                format!("{} of {}", claimed.jobs.len(), claim.total),
            );
        }
        let process = self.processes.entry(caller.process).or_default();
        process.workers.insert(claim.worker);
        let barred = process.stop_asked.is_some_and(|at| caller.sent_at > at);
        for job in &claimed.jobs {
            self.job_claimed(caller, claim, job, barred);
        }
        let queues: BTreeSet<&str> = claimed.jobs.iter().map(|job| job.queue.as_str()).collect();
        for queue in queues {
            self.check_limit(queue);
            self.check_key_limits(queue, &claimed.jobs);
        }
        self.check_pool(caller, claim.worker);
    }

    fn job_claimed(&mut self, caller: Caller, claim: &Claim<'_>, job: &ClaimedJob, barred: bool) {
        let now = self.now;
        let paused = self.queues.get(&job.queue).is_some_and(|queue| queue.is_paused);
        let name = self.name(job.id);
        let Some(known) = self.jobs.get_mut(&job.id) else {
            return self.find("no phantom is claimed", name);
        };
        let before = known.state;
        let live = known.hold.is_some_and(|hold| hold.expiry > now);
        let due = known.due;
        let (attempt, failures, ceiling) =
            (known.attempt, known.failures, known.policy().failures_max());
        known.state = JobState::Leased;
        known.attempt = job.attempt;
        known.hold = Some(Hold {
            worker: claim.worker,
            expiry: now + claim.lease,
            process: caller.process,
            node: caller.node,
            since: now,
        });
        let process = caller.process;
        let entry = Attempt { process, barred, began: None, ran: None, receipt: None };
        let again = known.attempts.insert(job.attempt, entry).is_some();
        self.touched.insert(job.id);
        self.say(|| format!("{name} is claimed by node {}, attempt {}", caller.node, job.attempt));
        self.coverage.edge(Some(before), JobState::Leased);
        if live {
            self.find("one live lease", format!("{name} was claimed while it was held"));
        } else if before.is_terminal() {
            self.find("an end is final", format!("{name} was claimed and is {before}"));
        } else if before != JobState::Scheduled {
            self.find("no illegal edge", format!("{name} was claimed out of {before}"));
        }
        if job.attempt != attempt + 1 || again {
            let detail = format!("{name}: {} after {attempt}", job.attempt);
            self.find("the attempt grows by one per claim", detail);
        }
        if due > now {
            self.find("nothing runs before it is due", format!("{name} is due at {due}"));
        }
        if failures >= ceiling {
            self.find(
                "the ceiling holds",
                format!("{name} is claimed with {failures} of {ceiling}"),
            );
        }
        if job.failures != failures {
            self.find(
                "the claim tells the failures",
                format!("{name}: {} of {failures}", job.failures),
            );
        }
        if paused {
            self.find("a paused queue gives nothing", name);
        }
    }

    fn check_limit(&mut self, queue: &str) {
        let Some(limit) = self.queues.get(queue).and_then(|known| known.limit) else { return };
        let leased = |job: &&Known| job.row.queue == queue && job.state == JobState::Leased;
        let count = self.jobs.values().filter(leased).count();
        if count as u64 > u64::from(limit) {
            self.find("a limit is never exceeded", format!("{queue}: {count} of {limit}"));
        }
    }

    /// A pump holds no more than its threads, and those that were replaced.
    fn check_pool(&mut self, caller: Caller, worker: WorkerId) {
        // What a claim took whose answer was lost is held as well, until it is given back.
        if !self.is_unharmed(caller.node, self.now) {
            return;
        }
        let held = |job: &&Known| job.hold.is_some_and(|hold| hold.worker == worker);
        let count = self.jobs.values().filter(held).count();
        // How far ahead a pump may take depends on how short its jobs are.
        let Some(node) = self.nodes.get(caller.node).filter(|node| !node.prefetches) else {
            return;
        };
        let most = 2 * node.workers as usize;
        if count > most {
            let detail = format!("node {} holds {count} with room for {most}", caller.node);
            self.find("a pump holds what it can run", detail);
        }
    }

    // -- settling

    fn all_reported(&mut self, caller: Caller, rows: &[OutcomeRow], reports: &[RowReport]) {
        self.caller_lives(caller, "reports");
        if rows.len() != reports.len() {
            self.find("one answer per row", format!("{} to {}", reports.len(), rows.len()));
        }
        for (row, report) in rows.iter().zip(reports) {
            self.reported(row, *report);
        }
    }

    fn reported(&mut self, row: &OutcomeRow, report: RowReport) {
        self.check_receipt(row);
        match report {
            RowReport::Applied(state) => self.applied(row, state),
            RowReport::AlreadyApplied(_) => {
                self.coverage.met("an outcome was written before");
                let kept = self.jobs.get(&row.job).and_then(|known| known.receipt);
                if kept != Some(row.receipt) {
                    let detail = format!("{}: {:?}", self.name(row.job), row.receipt);
                    self.find("receipts tell what was written", detail);
                }
            }
            RowReport::Stale(reason) => {
                self.coverage.met("an outcome is stale");
                let now = self.now;
                let Some(known) = self.jobs.get(&row.job) else { return };
                let held = known.is_held(row.owner, row.attempt);
                let live = known.is_held_live(row.owner, row.attempt, now);
                let holds = held && (live == (row.mode == Mode::Holder));
                let written = known.receipt == Some(row.receipt);
                let name = self.name(row.job);
                self.say(|| format!("the outcome of {name} is stale: {reason:?}"));
                if holds {
                    self.find("a held lease is not refused", format!("{name}: {reason:?}"));
                }
                if written {
                    self.find("receipts tell what was written", format!("{name}: {reason:?}"));
                }
            }
        }
    }

    /// A holder's outcome keeps its receipt through every repeat.
    fn check_receipt(&mut self, row: &OutcomeRow) {
        let Some(known) = self.jobs.get_mut(&row.job) else { return };
        let Some(attempt) = known.attempts.get_mut(&row.attempt) else { return };
        if row.mode == Mode::Holder && *attempt.receipt.get_or_insert(row.receipt) != row.receipt {
            let detail = format!("{}, attempt {}", self.name(row.job), row.attempt);
            self.find("a repeat keeps its receipt", detail);
        }
    }

    fn applied(&mut self, row: &OutcomeRow, state: JobState) {
        let (now, name) = (self.now, self.name(row.job));
        let Some(known) = self.jobs.get_mut(&row.job) else {
            return self.find("no phantom is settled", name);
        };
        let before = known.state;
        let held = known.is_held(row.owner, row.attempt);
        let live = known.is_held_live(row.owner, row.attempt, now);
        let twice = !known.settled.insert(row.attempt);
        let expected = row.outcome.state(known.cancel);
        let failures = known.failures + u32::from(row.outcome.is_failure());
        let hold = known.hold;
        known.failures = failures;
        known.receipt = Some(row.receipt);
        known.hold = None;
        known.state = state;
        if state == JobState::Scheduled {
            known.due = now + row.outcome.delay().unwrap_or_default();
        }
        self.touched.insert(row.job);
        let hand = if row.mode == Mode::Reap { "a reaper" } else { "its holder" };
        self.say(|| format!("{name}, attempt {}, is {state} by {hand}", row.attempt));
        self.coverage.edge(Some(before), state);
        if twice {
            self.find("effects come once per attempt", format!("{name}, attempt {}", row.attempt));
        } else if !held {
            self.find("only the holder writes", format!("{name}, attempt {}", row.attempt));
        } else if row.mode == Mode::Holder && !live {
            self.find(
                "a lapsed holder records nothing",
                format!("{name}, attempt {}", row.attempt),
            );
        } else if row.mode == Mode::Reap && live {
            self.find("no live lease is reaped", format!("{name}, attempt {}", row.attempt));
        }
        if state != expected {
            self.find("an outcome means its state", format!("{name}: {state} for {expected}"));
        }
        if row.mode == Mode::Reap {
            self.coverage.met("a lapsed attempt is settled");
            self.check_lapse(row, hold);
        }
        self.check_decision(row, failures);
        if state.is_terminal() {
            self.carry_on(row.job);
        }
    }

    /// A lease lapses because something went wrong around its holder, never of itself.
    fn check_lapse(&mut self, row: &OutcomeRow, hold: Option<Hold>) {
        let Some(hold) = hold else { return };
        let alive = self.processes.get(&hold.process);
        let alive = alive.is_some_and(|process| !process.ended && process.stop_asked.is_none());
        if alive && self.is_untroubled(hold.node, hold.since) {
            let detail =
                format!("{}, attempt {}, of node {}", self.name(row.job), row.attempt, hold.node);
            self.find("a healthy node keeps its leases", detail);
        }
    }

    /// Whether the outcome is what the handler's end, or the lapse, means by the job's own policy.
    fn check_decision(&mut self, row: &OutcomeRow, failures: u32) {
        let name = self.name(row.job);
        let Some(known) = self.jobs.get(&row.job) else { return };
        let policy = known.policy();
        let ceiling = policy.failures_max();
        let ran = match row.mode {
            Mode::Reap => Some(Ran::Failed),
            Mode::Holder => known.attempts.get(&row.attempt).and_then(|attempt| attempt.ran),
        };
        let by_policy = match policy.delay_after(failures, row.job) {
            Some(after) => Outcome::Retry { after },
            None => Outcome::DeadLettered,
        };
        let is_retry = matches!(row.outcome, Outcome::Retry { .. });
        let told = format!("{name}, attempt {}: {:?} after {ran:?}", row.attempt, row.outcome);
        let is_right = match ran {
            None => false,
            Some(Ran::Succeeded) => row.outcome == Outcome::Succeeded,
            Some(Ran::Failed) => row.outcome == by_policy,
            // With the handler's own delay, below the ceiling.
            Some(Ran::Postponed) => row.outcome == by_policy || is_retry,
            Some(Ran::Discarded) => row.outcome == Outcome::DeadLettered,
            Some(Ran::CalledOff) => row.outcome == Outcome::Cancelled,
            Some(Ran::Snoozed) => matches!(row.outcome, Outcome::Snooze { .. }),
            Some(Ran::GaveWay(CancelReason::OperatorRequest)) => row.outcome == Outcome::Cancelled,
            // At a stop it is handed back; without a lease there is nothing to record.
            Some(Ran::GaveWay(_)) => false,
        };
        if is_retry && failures >= ceiling {
            self.find("the ceiling holds", format!("{told}, failures {failures} of {ceiling}"));
        } else if !is_right {
            self.find("what is recorded is what was done", told);
        }
    }

    /// What a job's end does to those that wait for it.
    fn carry_on(&mut self, parent: JobId) {
        for child in self.children.get(&parent).cloned().unwrap_or_default() {
            let Some(known) = self.jobs.get(&child) else { continue };
            if known.state != JobState::AwaitingParent {
                continue;
            }
            let row = known.row.clone();
            if self.gate(&row, parent) == Gate::Open
                && let Some(known) = self.jobs.get_mut(&child)
            {
                known.opened.insert(parent);
            }
            let gates: Vec<Gate> = self.gates(child);
            let next = if gates.contains(&Gate::Failed) {
                JobState::Cancelled
            } else if gates.contains(&Gate::Closed) {
                continue;
            } else {
                JobState::Scheduled
            };
            let (now, name) = (self.now, self.name(child));
            if let Some(known) = self.jobs.get_mut(&child) {
                known.state = next;
                if next == JobState::Scheduled {
                    known.due = known.due.max(now);
                }
            }
            self.say(|| format!("{name} is {next} by its parents"));
            self.coverage.edge(Some(JobState::AwaitingParent), next);
            self.touched.insert(child);
            if next.is_terminal() {
                self.carry_on(child);
            }
        }
    }

    // -- keeping and giving back

    fn renewed(&mut self, worker: WorkerId, rows: &[LeaseRef], lease: Duration, renewal: &Renewal) {
        let now = self.now;
        for (row, renewed) in rows.iter().zip(&renewal.rows) {
            let name = self.name(row.job);
            let Some(known) = self.jobs.get_mut(&row.job) else { continue };
            let live = known.is_held_live(worker, row.attempt, now);
            self.touched.insert(row.job);
            match renewed {
                Renewed::Renewed { expiry, cancel_requested } => {
                    let cancel = known.cancel;
                    if let Some(hold) = known.hold.as_mut().filter(|_| live) {
                        hold.expiry = *expiry;
                    }
                    if !live {
                        self.find("no dead lease is renewed", name);
                    } else if *expiry != now + lease {
                        self.find("a renewal lasts a lease", name);
                    } else if *cancel_requested != cancel {
                        self.find("a holder hears of a cancel request", name);
                    }
                }
                Renewed::Lost => {
                    self.coverage.met("a renewal finds a lease lost");
                    if live {
                        self.find("a held lease is not refused", format!("{name} was told lost"));
                    }
                }
            }
        }
    }

    fn held(&mut self, worker: WorkerId, count: usize) {
        self.coverage.met("a pump asks what it holds");
        let held = |job: &&Known| job.hold.is_some_and(|hold| hold.worker == worker);
        let known = self.jobs.values().filter(held).count();
        if known != count {
            self.find("a pump hears what it holds", format!("{count} of {known}"));
        }
    }

    fn handed_back(&mut self, worker: WorkerId, rows: &[LeaseRef], handed_back: &HandedBack) {
        for (row, given) in rows.iter().zip(&handed_back.rows) {
            let (now, name) = (self.now, self.name(row.job));
            let Some(known) = self.jobs.get(&row.job) else { continue };
            let live = known.is_held_live(worker, row.attempt, now);
            self.touched.insert(row.job);
            if live != *given {
                self.find("a live lease can be given back", format!("{name}: {given}"));
            }
            if !*given {
                continue;
            }
            self.coverage.met("a lease is handed back");
            self.check_hand_back(worker, *row);
            self.say(|| format!("{name}, attempt {}, is handed back", row.attempt));
            self.unfinished(row.job);
        }
    }

    /// Nobody gives back a job that it runs, but at a stop.
    fn check_hand_back(&mut self, worker: WorkerId, row: LeaseRef) {
        let Some(known) = self.jobs.get(&row.job) else { return };
        let Some(attempt) = known.attempts.get(&row.attempt) else { return };
        let runs = attempt.began.is_some() && attempt.ran.is_none();
        let process = self.processes.get(&attempt.process);
        let goes_on = process.is_some_and(|process| {
            !process.ended && process.stop_asked.is_none() && process.workers.contains(&worker)
        });
        if runs && goes_on {
            let detail = format!("{}, attempt {}", self.name(row.job), row.attempt);
            self.find("what runs is not given back", detail);
        }
    }

    /// A lease is over without an outcome: it spends nothing.
    fn unfinished(&mut self, job: JobId) {
        let now = self.now;
        let Some(known) = self.jobs.get_mut(&job) else { return };
        known.hold = None;
        known.receipt = None;
        known.settled.insert(known.attempt);
        let next = if known.cancel { JobState::Cancelled } else { JobState::Scheduled };
        known.state = next;
        if next == JobState::Scheduled {
            known.due = known.due.min(now);
        }
        self.coverage.edge(Some(JobState::Leased), next);
        self.touched.insert(job);
        if next.is_terminal() {
            self.carry_on(job);
        }
    }

    // -- operators

    fn cancelled(&mut self, job: JobId, answer: CancelAnswer) {
        let (now, name) = (self.now, self.name(job));
        self.say(|| format!("{name} is to be cancelled: {answer:?}"));
        let Some(known) = self.jobs.get_mut(&job) else { return };
        let before = known.state;
        self.touched.insert(job);
        let expected = match before {
            JobState::Scheduled | JobState::AwaitingParent => CancelAnswer::Cancelled,
            JobState::Leased => CancelAnswer::Requested,
            ended => CancelAnswer::Ended(ended),
        };
        match expected {
            CancelAnswer::Cancelled => (known.state, known.cancel) = (JobState::Cancelled, true),
            CancelAnswer::Requested => {
                known.cancel = true;
                known.cancel_at.get_or_insert(now);
            }
            _ => {}
        }
        if answer != expected {
            self.find("a cancel request is heard", format!("{name}: {answer:?} for {before}"));
        }
        if answer == CancelAnswer::Cancelled {
            self.coverage.edge(Some(before), JobState::Cancelled);
            self.carry_on(job);
        }
    }

    fn requeued(&mut self, job: JobId, answer: RequeueAnswer) {
        let (now, name) = (self.now, self.name(job));
        let Some(known) = self.jobs.get_mut(&job) else { return };
        self.touched.insert(job);
        if let RequeueAnswer::KeyHeld { by } = answer {
            let row = known.row.clone();
            return self.requeue_told_held(&row, by);
        }
        if answer != RequeueAnswer::Requeued {
            return;
        }
        let before = known.state;
        known.state = JobState::Scheduled;
        known.due = now;
        known.failures = 0;
        known.cancel = false;
        known.cancel_at = None;
        self.say(|| format!("{name} is requeued"));
        self.coverage.edge(Some(before), JobState::Scheduled);
        if !matches!(before, JobState::DeadLettered | JobState::Quarantined) {
            self.find("no illegal edge", format!("{name} was requeued out of {before}"));
        }
        self.check_unique(job);
    }

    fn queue_changed(&mut self, queue: &str, change: QueueChange) {
        self.say(|| format!("{queue}: {change:?}"));
        let known = self.queues.entry(queue.to_owned()).or_default();
        match change {
            QueueChange::Pause => known.is_paused = true,
            QueueChange::Resume => known.is_paused = false,
            QueueChange::Limit(limit) => known.limit = limit,
            QueueChange::KeyLimit(limit) => known.key_limit = limit,
        }
    }

    fn revoked(&mut self, worker: WorkerId, revoked: &Revoked) {
        for job in &revoked.jobs {
            self.coverage.met("an operator revokes a lease");
            let name = self.name(*job);
            self.say(|| format!("{name} is revoked"));
            let held = self
                .jobs
                .get(job)
                .is_some_and(|known| known.hold.is_some_and(|hold| hold.worker == worker));
            if !held {
                self.find("only what is held is revoked", name);
            }
            self.unfinished(*job);
        }
    }
}
