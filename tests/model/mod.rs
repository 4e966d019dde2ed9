//! The contract once more, as plainly as it goes: a map of jobs, each with the set of its gates. No index, no
//! lock, no transaction; every question is answered by looking at everything.

use backwave::store::{
    Admission, AuditAction, BulkChange, CancelAnswer, Gate, JobFilter, JobRecord, JobRow, LeaseRef,
    Mode, OutcomeRow, QueueChange, QueueQuota, QueueSettings, Receipt, Renewed, RequeueAnswer,
    Retention, RowReport, SettledBy, StaleReason, TransitionBy,
};
use backwave::{JobId, JobState, Timestamp, WorkerId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Model {
    pub now: Timestamp,
    pub jobs: BTreeMap<JobId, Job>,
    pub queues: BTreeMap<String, QueueSettings>,
    pub deeds: Vec<Deed>,
}

/// What an operator did: when, what, to which job, in which queue.
pub type Deed = (Timestamp, AuditAction, Option<JobId>, String);

/// A change of state: when, from, to, the attempt after it, whose hand, whose lease.
pub type Step = (Timestamp, Option<JobState>, JobState, u32, TransitionBy, Option<WorkerId>);

#[derive(Debug, Clone)]
pub struct Job {
    pub record: JobRecord,
    /// All it was enqueued with, each once.
    pub parents: Vec<JobId>,
    /// Those that hold it back.
    pub gates: BTreeSet<JobId>,
    pub story: Vec<Step>,
    /// Its last settlement.
    settled: Option<(u32, SettledBy, Option<Receipt>)>,
}

/// What a claim takes.
#[derive(Debug)]
pub struct Taken {
    pub leases: Vec<LeaseRef>,
    /// What the answer must say; `None` where the contract leaves it open.
    pub withheld: Option<bool>,
    /// One of these the answer must say, where there is any.
    pub next_due: Vec<Option<Timestamp>>,
}

impl Model {
    pub fn new(now: Timestamp) -> Self {
        let (jobs, queues) = (BTreeMap::new(), BTreeMap::new());
        Self { now, jobs, queues, deeds: Vec::new() }
    }

    fn state(&self, id: JobId) -> JobState {
        self.jobs[&id].record.state
    }

    fn job(&mut self, id: JobId) -> &mut Job {
        self.jobs.get_mut(&id).expect("the model asks for jobs that it has")
    }

    /// What becomes of each job; or which row names an unknown parent.
    pub fn enqueue(&mut self, rows: &[JobRow]) -> Result<Vec<Admission>, (usize, JobId)> {
        let before = self.jobs.clone();
        let mut answers: Vec<Admission> = Vec::new();
        for (index, row) in rows.iter().enumerate() {
            let earlier = rows[..index].iter().position(|earlier| earlier.id == row.id);
            let answer = match self.holder(row.unique_key.as_deref()) {
                _ if self.jobs.contains_key(&row.id) => Admission::Duplicate,
                _ if earlier.is_some() => answers[earlier.expect("it came before")],
                Some(holder) => Admission::Held { by: holder, state: self.state(holder) },
                None => Admission::New,
            };
            answers.push(answer);
            if answer.is_new() {
                if let Some(unknown) =
                    row.parents.iter().find(|parent| !self.jobs.contains_key(parent))
                {
                    self.jobs = before;
                    return Err((index, *unknown));
                }
                self.give_birth(row);
            }
        }
        Ok(answers)
    }

    /// The job that holds a unique key.
    fn holder(&self, key: Option<&str>) -> Option<JobId> {
        let jobs = self.jobs.values().map(|job| &job.record);
        let mut live = jobs.filter(|job| !job.state.is_terminal() && job.unique_key.is_some());
        live.find(|job| job.unique_key.as_deref() == key).map(|job| job.id)
    }

    fn give_birth(&mut self, row: &JobRow) {
        let mut parents: Vec<JobId> = Vec::new();
        for parent in &row.parents {
            if !parents.contains(parent) {
                parents.push(*parent);
            }
        }
        let gate = |parent: &JobId| row.parent_rule.gate(self.state(*parent));
        let mut gates: BTreeSet<_> =
            parents.iter().copied().filter(|parent| gate(parent) == Gate::Closed).collect();
        let mut record = JobRecord::new(row, self.now);
        if parents.iter().any(|parent| gate(parent) == Gate::Failed) {
            record.state = JobState::Cancelled;
            record.finished_at = Some(self.now);
            gates.clear();
        } else if !gates.is_empty() {
            record.state = JobState::AwaitingParent;
        }
        let story = vec![(self.now, None, record.state, 0, TransitionBy::Enqueue, None)];
        self.jobs.insert(row.id, Job { record, parents, gates, story, settled: None });
    }

    /// Leads a job into another state.
    fn turn(&mut self, id: JobId, to: JobState, by: TransitionBy) {
        let now = self.now;
        let job = self.job(id);
        let (from, owner) = (job.record.state, job.record.owner);
        job.record.state = to;
        job.record.finished_at = to.is_terminal().then_some(now);
        if to != JobState::Leased {
            (job.record.owner, job.record.expiry) = (None, None);
        }
        if to != JobState::AwaitingParent {
            job.gates.clear();
        }
        let worker = job.record.owner.or(owner);
        job.story.push((now, Some(from), to, job.record.attempt, by, worker));
    }

    /// Carries the ends of these jobs on to their dependents, and theirs to theirs.
    fn resolve(&mut self, ended: &[JobId]) {
        let ended = ended.iter().copied().filter(|id| self.state(*id).is_terminal());
        let mut ended: Vec<_> = ended.collect();
        while let Some(parent) = ended.pop() {
            let state = self.state(parent);
            let waiting = self.jobs.values().filter(|job| job.gates.contains(&parent));
            let waiting: Vec<_> = waiting.map(|job| job.record.id).collect();
            for child in waiting {
                match self.job(child).record.parent_rule.gate(state) {
                    Gate::Failed => {
                        self.turn(child, JobState::Cancelled, TransitionBy::Parent);
                        ended.push(child);
                    }
                    _ => self.open(child, parent),
                }
            }
        }
    }

    fn open(&mut self, child: JobId, parent: JobId) {
        let now = self.now;
        let job = self.job(child);
        job.gates.remove(&parent);
        if job.gates.is_empty() {
            job.record.due_at = job.record.due_at.max(now);
            self.turn(child, JobState::Scheduled, TransitionBy::Parent);
        }
    }

    pub fn claim(
        &mut self,
        worker: WorkerId,
        plan: &[QueueQuota],
        (total, spill): (u32, bool),
        lease: Duration,
    ) -> Taken {
        let mut leases = Vec::new();
        for pass in 0..=usize::from(spill) {
            for planned in plan {
                let mut quota = if pass == 0 { planned.quota } else { total };
                while quota > 0 && leases.len() < total as usize {
                    let Some(id) = self.next_of(&planned.queue) else { break };
                    leases.push(self.lease(id, worker, lease));
                    quota -= 1;
                }
            }
        }
        let is_short = leases.len() < total as usize;
        let withheld = plan.iter().any(|planned| self.is_due(&planned.queue));
        let withheld = (spill && is_short).then_some(withheld);
        Taken { leases, withheld, next_due: self.next_dues(plan, spill, is_short) }
    }

    /// What a claim that ended so may tell of the next due time: a queue without room may hide its own or
    /// tell it (of anything that waits), one that is paused hides it.
    fn next_dues(
        &self,
        plan: &[QueueQuota],
        spill: bool,
        is_short: bool,
    ) -> Vec<Option<Timestamp>> {
        if !is_short {
            return vec![None];
        }
        if !spill {
            return Vec::new();
        }
        let unpaused = plan.iter().filter(|planned| !self.is_paused(&planned.queue));
        let (open, full): (Vec<_>, Vec<_>) =
            unpaused.partition(|planned| self.has_room(&planned.queue));
        // What is due and left by a claim with room is kept back by its key.
        let first = |planned: &QueueQuota| {
            self.waiting(&planned.queue).map(|(due, _)| due).find(|due| *due > self.now)
        };
        let certain = open.into_iter().filter_map(first).min();
        let sooner =
            full.into_iter().flat_map(|planned| self.waiting(&planned.queue).map(|(due, _)| due));
        let sooner = sooner.filter(|due| certain.is_none_or(|certain| *due < certain));
        sooner.map(Some).chain([certain]).collect()
    }

    fn lease(&mut self, id: JobId, worker: WorkerId, lease: Duration) -> LeaseRef {
        let expiry = self.now + lease;
        let job = self.job(id);
        job.record.attempt += 1;
        (job.record.owner, job.record.expiry) = (Some(worker), Some(expiry));
        let attempt = job.record.attempt;
        self.turn(id, JobState::Leased, TransitionBy::Claim);
        LeaseRef { job: id, attempt }
    }

    /// The jobs that wait in a queue, in their order.
    fn waiting(&self, queue: &str) -> impl Iterator<Item = (Timestamp, JobId)> + use<> {
        let jobs = self.jobs.values().map(|job| &job.record);
        let jobs = jobs.filter(|job| job.queue == queue && job.state == JobState::Scheduled);
        let ordered: BTreeSet<_> = jobs.map(|job| (job.due_at, job.id)).collect();
        ordered.into_iter()
    }

    fn is_due(&self, queue: &str) -> bool {
        self.waiting(queue).any(|(due, _)| due <= self.now)
    }

    /// The first job of a queue that is due and whose concurrency key has a slot for it.
    fn next_of_any(&self, queue: &str) -> Option<JobId> {
        let mut due = self.waiting(queue).take_while(|(due, _)| *due <= self.now);
        due.find(|(_, id)| self.has_slot(&self.jobs[id].record)).map(|(_, id)| id)
    }

    fn has_slot(&self, job: &JobRecord) -> bool {
        let running = self.jobs.values().map(|job| &job.record).filter(|other| {
            let leased = other.state == JobState::Leased && other.queue == job.queue;
            leased && other.concurrency_key == job.concurrency_key
        });
        let limit = self.queues.get(&job.queue).map_or(1, QueueSettings::key_limit);
        job.concurrency_key.is_none() || running.count() < limit as usize
    }

    fn is_paused(&self, queue: &str) -> bool {
        self.queues.get(queue).is_some_and(|set| set.is_paused)
    }

    /// Whether a claim may take anything of a queue.
    fn has_room(&self, queue: &str) -> bool {
        let held = self.jobs.values().map(|job| &job.record);
        let held = held.filter(|job| job.queue == queue && job.state == JobState::Leased).count();
        self.queues.get(queue).is_none_or(|set| {
            !set.is_paused && set.concurrency_limit.is_none_or(|limit| held < limit as usize)
        })
    }

    /// The next job that a claim may take of a queue.
    fn next_of(&self, queue: &str) -> Option<JobId> {
        self.next_of_any(queue).filter(|_| self.has_room(queue))
    }

    pub fn report(&mut self, rows: &[OutcomeRow]) -> Vec<RowReport> {
        let answers = rows.iter().map(|row| self.report_row(row)).collect();
        let known = rows.iter().map(|row| row.job).filter(|id| self.jobs.contains_key(id));
        self.resolve(&known.collect::<Vec<_>>());
        answers
    }

    fn report_row(&mut self, row: &OutcomeRow) -> RowReport {
        let Some(job) = self.jobs.get(&row.job) else {
            return RowReport::Stale(StaleReason::Gone);
        };
        let record = &job.record;
        let is_leased = record.owner == Some(row.owner) && record.attempt == row.attempt;
        let is_live = record.expiry.is_some_and(|expiry| expiry > self.now);
        if !is_leased || is_live != (row.mode == Mode::Holder) {
            return match job.settled {
                Some((.., Some(receipt))) if receipt == row.receipt => {
                    RowReport::AlreadyApplied(record.state)
                }
                settled => RowReport::Stale(why(is_leased, settled, row.attempt)),
            };
        }
        let to = row.outcome.state(record.cancel_requested);
        let (settler, by) = match row.mode {
            Mode::Holder => (SettledBy::Holder, TransitionBy::Holder),
            Mode::Reap => (SettledBy::Reaper, TransitionBy::Reaper),
        };
        let due = self.now + row.outcome.delay().unwrap_or(Duration::ZERO);
        let job = self.job(row.job);
        job.settled = Some((row.attempt, settler, Some(row.receipt)));
        job.record.failures += u32::from(row.outcome.is_failure());
        job.record.failure_detail = row.detail.clone().or_else(|| job.record.failure_detail.take());
        if to == JobState::Scheduled {
            job.record.due_at = due;
        }
        self.turn(row.job, to, by);
        RowReport::Applied(to)
    }

    fn holds(&self, worker: WorkerId, lease: LeaseRef) -> bool {
        self.jobs.get(&lease.job).is_some_and(|job| {
            let live = job.record.expiry.is_some_and(|expiry| expiry > self.now);
            job.record.owner == Some(worker) && job.record.attempt == lease.attempt && live
        })
    }

    pub fn renew(&mut self, worker: WorkerId, lease: LeaseRef, span: Duration) -> Renewed {
        if !self.holds(worker, lease) {
            return Renewed::Lost;
        }
        let expiry = self.now + span;
        let record = &mut self.job(lease.job).record;
        record.expiry = Some(expiry);
        Renewed::Renewed { expiry, cancel_requested: record.cancel_requested }
    }

    pub fn hand_back(&mut self, worker: WorkerId, lease: LeaseRef) -> bool {
        let held = self.holds(worker, lease);
        if held {
            self.give_up(lease.job, SettledBy::HandBack, TransitionBy::HandBack);
            self.resolve(&[lease.job]);
        }
        held
    }

    fn give_up(&mut self, id: JobId, settler: SettledBy, by: TransitionBy) {
        let now = self.now;
        let job = self.job(id);
        job.settled = Some((job.record.attempt, settler, None));
        if job.record.cancel_requested {
            self.turn(id, JobState::Cancelled, by);
        } else {
            job.record.due_at = job.record.due_at.min(now);
            self.turn(id, JobState::Scheduled, by);
        }
    }

    /// The jobs leased to a worker, by ascending id.
    pub fn held_by(&self, worker: WorkerId) -> Vec<(LeaseRef, Timestamp)> {
        let jobs = self.jobs.values().map(|job| &job.record);
        jobs.filter(|job| job.owner == Some(worker))
            .map(|job| {
                let lease = LeaseRef { job: job.id, attempt: job.attempt };
                (lease, job.expiry.expect("what has an owner has an expiry"))
            })
            .collect()
    }

    /// The dead leases of every queue, the longest dead first.
    pub fn lapsed(&self) -> Vec<(Timestamp, LeaseRef, WorkerId)> {
        let dead = self.jobs.values().filter_map(|job| {
            let expiry = job.record.expiry.filter(|expiry| *expiry <= self.now)?;
            let lease = LeaseRef { job: job.record.id, attempt: job.record.attempt };
            Some((expiry, lease, job.record.owner?))
        });
        let mut dead: Vec<_> = dead.collect();
        dead.sort_by_key(|(expiry, lease, _)| (*expiry, lease.job));
        dead
    }

    fn note(&mut self, action: AuditAction, id: JobId) {
        let queue = self.job(id).record.queue.clone();
        self.deeds.push((self.now, action, Some(id), queue));
    }

    /// Cancels a job that lives and on which no request stands.
    fn call_off(&mut self, id: JobId) {
        self.note(AuditAction::Cancel, id);
        self.job(id).record.cancel_requested = true;
        if self.state(id) != JobState::Leased {
            self.turn(id, JobState::Cancelled, TransitionBy::Operator);
        }
    }

    pub fn cancel(&mut self, id: JobId) -> CancelAnswer {
        let Some(job) = self.jobs.get(&id) else {
            return CancelAnswer::NotFound;
        };
        match (job.record.state, job.record.cancel_requested) {
            (JobState::Leased, true) => return CancelAnswer::Requested,
            (ended, _) if ended.is_terminal() => return CancelAnswer::Ended(ended),
            _ => {}
        }
        self.call_off(id);
        self.resolve(&[id]);
        if self.state(id) == JobState::Leased {
            CancelAnswer::Requested
        } else {
            CancelAnswer::Cancelled
        }
    }

    fn begin_anew(&mut self, id: JobId) {
        self.note(AuditAction::Requeue, id);
        let now = self.now;
        let record = &mut self.job(id).record;
        (record.due_at, record.failures, record.cancel_requested) = (now, 0, false);
        self.turn(id, JobState::Scheduled, TransitionBy::Operator);
    }

    pub fn requeue(&mut self, id: JobId) -> RequeueAnswer {
        match self.jobs.get(&id).map(|job| job.record.state) {
            None => RequeueAnswer::NotFound,
            Some(JobState::DeadLettered | JobState::Quarantined) => {
                if let Some(by) = self.holder(self.jobs[&id].record.unique_key.as_deref()) {
                    return RequeueAnswer::KeyHeld { by };
                }
                self.begin_anew(id);
                RequeueAnswer::Requeued
            }
            Some(state) => RequeueAnswer::IllegalState(state),
        }
    }

    /// How many jobs were changed, and where to go on.
    pub fn bulk(
        &mut self,
        change: BulkChange,
        filter: &JobFilter,
        after: Option<JobId>,
        max: u32,
    ) -> (u32, Option<JobId>) {
        let mut keys = BTreeSet::new();
        let mut is_free = |record: &JobRecord| {
            let key = record.unique_key.as_deref();
            self.holder(key).is_none() && key.is_none_or(|key| keys.insert(key.to_owned()))
        };
        let can_change = |record: &JobRecord| {
            let stands = change == BulkChange::Cancel && record.cancel_requested;
            change.from_states().contains(&record.state) && !stands
        };
        let jobs = self.jobs.values().map(|job| &job.record);
        let chosen = jobs
            .filter(|job| after.is_none_or(|after| job.id > after))
            .filter(|job| can_change(job) && matches(filter, job))
            .filter(|job| change == BulkChange::Cancel || is_free(job))
            .take(max as usize)
            .map(|job| job.id);
        let chosen: Vec<_> = chosen.collect();
        for id in &chosen {
            match change {
                BulkChange::Cancel => self.call_off(*id),
                _ => self.begin_anew(*id),
            }
        }
        self.resolve(&chosen);
        let is_full = chosen.len() == max as usize;
        let count = u32::try_from(chosen.len()).expect("a short page");
        (count, chosen.last().copied().filter(|_| is_full))
    }

    pub fn change_queue(&mut self, queue: &str, change: QueueChange) -> (QueueSettings, bool) {
        let settings = self.queues.get(queue).cloned();
        let mut settings = settings.unwrap_or_else(|| QueueSettings::new(queue.to_owned()));
        let changed = settings.apply(change);
        if changed {
            self.queues.insert(queue.to_owned(), settings.clone());
            let action = AuditAction::of_queue(change);
            self.deeds.push((self.now, action, None, queue.to_owned()));
        }
        (settings, changed)
    }

    pub fn revoke(&mut self, worker: WorkerId, max: u32) -> Vec<JobId> {
        let held = self.held_by(worker).into_iter().take(max as usize);
        let jobs: Vec<_> = held.map(|(lease, _)| lease.job).collect();
        for id in &jobs {
            self.note(AuditAction::Revoke, *id);
            self.give_up(*id, SettledBy::Operator, TransitionBy::Operator);
        }
        self.resolve(&jobs);
        jobs
    }

    /// Takes away what is kept no longer, until nothing more may go.
    pub fn purge(&mut self, retention: &Retention) -> u32 {
        let before = self.jobs.len();
        loop {
            let named: BTreeSet<_> =
                self.jobs.values().flat_map(|job| job.parents.iter().copied()).collect();
            let count = self.jobs.len();
            self.jobs.retain(|id, job| {
                let kept = retention.of(job.record.state);
                let old = kept.zip(job.record.finished_at);
                let old = old.is_some_and(|(keep, end)| end + keep <= self.now);
                !old || named.contains(id)
            });
            if self.jobs.len() == count {
                return u32::try_from(before - count).expect("few jobs");
            }
        }
    }

    pub fn is_ancestor(&self, id: JobId, above: JobId) -> bool {
        self.jobs.get(&id).is_some_and(|job| {
            job.parents.iter().any(|parent| *parent == above || self.is_ancestor(*parent, above))
        })
    }

    pub fn counts(&self) -> Vec<(String, JobState, u64)> {
        let mut counts: BTreeMap<(&str, i16), (JobState, u64)> = BTreeMap::new();
        for Job { record, .. } in self.jobs.values() {
            let key = (record.queue.as_str(), record.state.code());
            counts.entry(key).or_insert((record.state, 0)).1 += 1;
        }
        let counts = counts.into_iter();
        counts.map(|((queue, _), (state, count))| (queue.to_owned(), state, count)).collect()
    }
}

/// Why an attempt is not the holder's to end.
fn why(
    is_leased: bool,
    settled: Option<(u32, SettledBy, Option<Receipt>)>,
    attempt: u32,
) -> StaleReason {
    match settled {
        _ if is_leased => StaleReason::Lapsed,
        Some((last, SettledBy::Reaper, _)) if last == attempt => StaleReason::Reaped,
        Some((last, SettledBy::Operator, _)) if last == attempt => StaleReason::Revoked,
        Some((last, ..)) if last > attempt => StaleReason::Reaped,
        _ => StaleReason::Unknown,
    }
}

pub fn matches(filter: &JobFilter, job: &JobRecord) -> bool {
    let in_state = filter.states.is_empty() || filter.states.contains(&job.state);
    let in_queue = filter.queue.as_ref().is_none_or(|queue| *queue == job.queue);
    let tagged = filter.tag.as_ref().is_none_or(|tag| job.tags.contains(tag));
    let ended = filter.finished_from.is_none_or(|from| job.finished_at >= Some(from));
    let keyed = filter
        .unique_key
        .as_ref()
        .is_none_or(|key| job.unique_key.as_ref() == Some(key) && !job.state.is_terminal());
    in_state && in_queue && tagged && ended && keyed
}
