//! Everything that there is: the time, the store, the nodes, and what may still go wrong.

use super::node::{DOUBT, End, Node, Phase, hash_request};
use super::oracle::{Finding, Oracle, check};
use super::plant::Plant;
use super::scope::Scope;
use super::search::Mixer;
use super::shelf::{Answer, Caller, Settled, Shelf, job_id, situations};
use crate::kernel::driver::Command;
use crate::store::LeaseRef;
use crate::{CancelReason, JobId, JobState, Timestamp, WorkerId};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::time::Duration;

const START: Timestamp = Timestamp::from_micros(1_000_000_000_000_000);
const SECOND: Duration = Duration::from_secs(1);
/// Every so many seconds dead leases are looked for.
const MAINTENANCE_EVERY: u64 = 1;

/// What may happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    SecondPasses,
    /// A node hears what has arrived and goes on until it calls the store, or has nothing to do.
    Cycle(usize),
    /// The store carries a node's call out.
    Execute(usize),
    /// A node hears the answer and goes on.
    Hear(usize),
    /// A call fails and is not carried out.
    Refuse(usize),
    /// The answer of a call that was carried out is lost.
    LoseAnswer(usize),
    /// A call fails, and it may be carried out later.
    Delay(usize),
    /// A call that failed is carried out after all.
    Land(usize),
    Begin(usize, usize),
    End(usize, usize, End),
    Crash(usize),
    Restart(usize),
    AskToStop(usize),
    /// Of a group with several pumps the next is asked; after the last its handlers see it.
    StopGoesOn,
    RequestCancel(u8),
}

impl Action {
    /// Whether it is something that goes wrong, or that somebody does.
    const fn is_fault(self) -> bool {
        matches!(
            self,
            Self::SecondPasses
                | Self::Refuse(_)
                | Self::LoseAnswer(_)
                | Self::Delay(_)
                | Self::Land(_)
                | Self::Crash(_)
                | Self::AskToStop(_)
                | Self::RequestCancel(_)
        )
    }
}

/// What has been seen to happen, so that a search which misses it is not taken for a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Situation {
    OutcomeWritten,
    RepeatRecognised,
    OutcomeRefused,
    LapseFound,
    HeldFound,
    HandedBack,
    RenewalRefused,
    Exchanged,
    LeaseLost,
    LateClaim,
    Withdrawn,
    GaveWay,
    BudgetOver,
    CancelHeard,
    DeadLettered,
    Cancelled,
}

/// How often something may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Budget {
    seconds: u8,
    refusals: u8,
    losses: u8,
    delays: u8,
    crashes: u8,
    stops: u8,
    cancels: u8,
}

#[derive(Clone)]
struct Late {
    worker: WorkerId,
    request: Rc<Command>,
    until: Timestamp,
}

#[derive(Clone)]
pub(super) struct World {
    scope: Rc<Scope>,
    now: Timestamp,
    budget: Budget,
    shelf: Rc<Shelf>,
    nodes: Vec<Rc<Node>>,
    generations: u8,
    /// How many pumps of the group have been asked to stop, while that goes on.
    stop_sent: Option<usize>,
    late: Vec<Late>,
    /// Per job, the attempts whose handler has begun.
    begun: [u64; 4],
    seen: Rc<RefCell<BTreeSet<Situation>>>,
    /// From here on nothing goes wrong, so that these ends must be recorded.
    must_record: BTreeSet<(JobId, u32)>,
}

impl World {
    pub(super) fn new(scope: &Rc<Scope>) -> Result<Self, Finding> {
        let node = |index| {
            let mut node = Node::start(scope, index, 0, START)?;
            node.seal();
            Ok(Rc::new(node))
        };
        Ok(Self {
            now: START,
            budget: Budget {
                seconds: scope.seconds,
                refusals: scope.refusals,
                losses: scope.losses,
                delays: scope.delays,
                crashes: scope.crashes,
                stops: scope.stops,
                cancels: scope.cancels,
            },
            shelf: Rc::new(Shelf::new(scope, START)),
            nodes: (0..scope.nodes).map(node).collect::<Result<_, _>>()?,
            generations: 0,
            stop_sent: None,
            late: Vec::new(),
            begun: [0; 4],
            seen: Rc::default(),
            must_record: BTreeSet::new(),
            scope: Rc::clone(scope),
        })
    }

    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = Mixer::default();
        (self.now, self.budget, self.generations, self.begun, self.stop_sent).hash(&mut hasher);
        self.shelf.fingerprint.hash(&mut hasher);
        for node in &self.nodes {
            node.fingerprint.hash(&mut hasher);
        }
        for late in &self.late {
            (late.worker, late.until).hash(&mut hasher);
            hash_request(&late.request, &mut hasher);
        }
        hasher.finish()
    }

    pub(super) fn seen(&self) -> BTreeSet<Situation> {
        self.seen.borrow().clone()
    }

    /// The states of the jobs, for a trace.
    pub(super) fn describe(&self) -> String {
        let jobs = self.shelf.jobs.iter();
        let jobs = jobs.map(|seen| format!("{}/{}/{}", seen.state, seen.attempt, seen.failures));
        format!("{} s: {}", self.now.since(START).as_secs(), jobs.collect::<Vec<_>>().join(" "))
    }

    // -- what may happen

    pub(super) fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            self.add_node_actions(index, node, &mut actions);
        }
        let budget = self.budget;
        actions.extend(self.stop_sent.map(|_| Action::StopGoesOn));
        if budget.seconds > 0 {
            actions.push(Action::SecondPasses);
        }
        actions.extend((0..self.late.len()).map(Action::Land));
        if budget.cancels > 0 {
            let jobs = self.shelf.jobs.iter().zip(0_u8..);
            let open = jobs.filter(|(seen, _)| !seen.state.is_terminal() && !seen.cancel_requested);
            actions.extend(open.map(|(_, number)| Action::RequestCancel(number)));
        }
        actions
    }

    fn add_node_actions(&self, index: usize, node: &Node, actions: &mut Vec<Action>) {
        let budget = self.budget;
        match &node.phase {
            Phase::Listening if node.has_work(self.now) => actions.push(Action::Cycle(index)),
            Phase::Calling(_) => {
                actions.push(Action::Execute(index));
                actions.extend((budget.refusals > 0).then_some(Action::Refuse(index)));
                actions.extend((budget.delays > 0).then_some(Action::Delay(index)));
                if !self.scope.slow_answers && budget.losses > 0 {
                    actions.push(Action::LoseAnswer(index));
                }
            }
            Phase::Answered(..) => {
                actions.push(Action::Hear(index));
                actions.extend((budget.losses > 0).then_some(Action::LoseAnswer(index)));
            }
            Phase::Down => actions.push(Action::Restart(index)),
            Phase::Listening | Phase::Stopped => {}
        }
        for (which, running) in node.running.iter().enumerate() {
            if !running.begun {
                let is_free = node.may_begin(&self.scope, which);
                actions.extend(is_free.then_some(Action::Begin(index, which)));
                continue;
            }
            actions.push(Action::End(index, which, End::Succeeds));
            if self.scope.handlers_fail {
                actions.push(Action::End(index, which, End::Fails));
            }
            if running.token.is_some() || node.stop_asked {
                actions.push(Action::End(index, which, End::GivesWay));
            }
        }
        if node.is_up() {
            actions.extend((budget.crashes > 0).then_some(Action::Crash(index)));
            let may_stop = budget.stops > 0 && !node.stop_asked && self.stop_sent.is_none();
            actions.extend(may_stop.then_some(Action::AskToStop(index)));
        }
    }

    // -- what happens

    pub(super) fn step(&mut self, action: Action) -> Result<(), Finding> {
        let (scope, now) = (Rc::clone(&self.scope), self.now);
        match action {
            Action::SecondPasses => {
                self.budget.seconds = self.budget.seconds.saturating_sub(1);
                self.pass(&scope);
            }
            Action::Cycle(index) => self.change(index, |node| node.cycle(&scope, now))?,
            Action::Execute(index) => self.execute(&scope, index)?,
            Action::Hear(index) => self.hear(&scope, index)?,
            Action::Refuse(index) => {
                self.budget.refusals -= 1;
                let request = self.request(index);
                self.change(index, |node| node.fail(&scope, request, false, now))?;
            }
            Action::LoseAnswer(index) => {
                self.budget.losses -= 1;
                let request = self.request(index);
                if matches!(self.nodes[index].phase, Phase::Calling(_)) {
                    self.call(&scope, self.nodes[index].worker, &request)?;
                }
                self.change(index, |node| node.fail(&scope, request, true, now))?;
            }
            Action::Delay(index) => {
                self.budget.delays -= 1;
                let request = self.request(index);
                self.delay(index, &request);
                self.change(index, |node| node.fail(&scope, request, true, now))?;
            }
            Action::Land(which) => {
                let late = self.late.remove(which);
                self.call(&scope, late.worker, &late.request)?;
            }
            Action::Begin(index, which) => self.begin(index, which)?,
            Action::End(index, which, end) => self.change(index, |node| {
                node.end(which, end);
                Ok(())
            })?,
            Action::Crash(index) => {
                self.budget.crashes -= 1;
                self.crash(index)?;
            }
            Action::Restart(index) => self.restart(&scope, index)?,
            Action::AskToStop(index) => {
                self.budget.stops -= 1;
                if scope.one_group {
                    self.send_stop(0)?;
                } else {
                    self.ask_to_stop(index)?;
                }
            }
            Action::StopGoesOn => {
                let next = self.stop_sent.unwrap_or_default();
                self.send_stop(next)?;
            }
            Action::RequestCancel(number) => {
                self.budget.cancels -= 1;
                self.shelf = Rc::new(self.shelf.request_cancel(now, job_id(number))?);
                self.note_ends();
            }
        }
        self.check_overlap()
    }

    fn change(
        &mut self,
        index: usize,
        change: impl FnOnce(&mut Node) -> Result<(), Finding>,
    ) -> Result<(), Finding> {
        let node = Rc::make_mut(&mut self.nodes[index]);
        change(node)?;
        self.seen.borrow_mut().extend(std::mem::take(&mut node.seen));
        node.seal();
        self.check_leases(index)
    }

    /// What the node stops with, and what it gives up.
    fn check_leases(&self, index: usize) -> Result<(), Finding> {
        let node = &self.nodes[index];
        let (worker, now, gave_up) = (node.worker, self.now, &node.gave_up);
        let has_stopped = matches!(node.phase, Phase::Stopped);
        // One that was given up may have been prolonged all the same, by a renewal whose answer was lost.
        let mut kept = self.shelf.leases_of(worker, now).filter(|lease| !gave_up.contains(lease));
        let leaves = has_stopped && kept.next().is_some();
        check(!leaves || !self.may_not_leave_leases(index), Oracle::StopLeavesLeases, || {
            format!("stopped, and still holds one of {:?}", self.shelf.jobs)
        })?;
        let alive = self.shelf.leases_of(worker, now).find(|lease| gave_up.contains(lease));
        check(alive.is_none() || self.may_be_deceived(), Oracle::GivenUpAlive, || {
            format!("{alive:?} is given up in {:?}", self.shelf.jobs)
        })
    }

    /// Whether a node may have missed that a lease of its was prolonged.
    fn may_be_deceived(&self) -> bool {
        let scope = &self.scope;
        scope.slow_answers || scope.losses > 0 || scope.delays > 0
    }

    /// Whether a stop of that node must have given everything back: within its budget, and with no call on its
    /// way that nobody can know of.
    fn may_not_leave_leases(&self, index: usize) -> bool {
        let node = &self.nodes[index];
        let worker = node.worker;
        let loose = self.scope.delays > 0 || self.late.iter().any(|late| late.worker == worker);
        !node.is_over() && !loose && !self.scope.stop_budget.is_zero()
    }

    fn request(&self, index: usize) -> Command {
        match &self.nodes[index].phase {
            Phase::Calling(request) | Phase::Answered(request, _) => request.clone(),
            phase => panic!("not in a call: {phase:?}"),
        }
    }

    fn pass(&mut self, scope: &Scope) {
        self.now = self.now + SECOND;
        let now = self.now;
        self.late.retain(|late| late.until >= now);
        let maintenance = now.since(START).as_secs().is_multiple_of(MAINTENANCE_EVERY);
        for node in &mut self.nodes {
            let node = Rc::make_mut(node);
            node.tick(scope, maintenance, now);
            node.seal();
        }
    }

    fn delay(&mut self, index: usize, request: &Command) {
        // What changes nothing needs not be carried out.
        let changes = !matches!(request, Command::FindHeld | Command::FindLapsed { .. });
        let (worker, until) = (self.nodes[index].worker, self.now + DOUBT);
        let late = Late { worker, request: Rc::new(request.clone()), until };
        self.late.extend(changes.then_some(late));
    }

    /// The store carries a call out.
    fn call(
        &mut self,
        scope: &Scope,
        worker: WorkerId,
        request: &Command,
    ) -> Result<Answer, Finding> {
        let caller = Caller { worker, now: self.now };
        let (shelf, answer, settled) = self.shelf.call(scope, caller, request)?;
        self.shelf = Rc::new(shelf);
        self.seen.borrow_mut().extend(situations(&answer));
        self.note_ends();
        for Settled { owner, lease, by_holder } in settled {
            let owner = self.nodes.iter_mut().find(|node| node.worker == owner);
            if let Some(node) = owner {
                let node = Rc::make_mut(node);
                node.settled(lease, by_holder)?;
                node.seal();
                let must = self.must_record.contains(&(lease.job, lease.attempt));
                check(by_holder || !must, Oracle::OutcomeLost, || {
                    format!("{lease:?} has ended, and that is not recorded")
                })?;
            }
        }
        Ok(answer)
    }

    fn note_ends(&self) {
        let mut seen = self.seen.borrow_mut();
        for job in &self.shelf.jobs {
            match job.state {
                JobState::DeadLettered => seen.insert(Situation::DeadLettered),
                JobState::Cancelled => seen.insert(Situation::Cancelled),
                _ => false,
            };
        }
    }

    fn execute(&mut self, scope: &Scope, index: usize) -> Result<(), Finding> {
        let (request, worker, now) = (self.request(index), self.nodes[index].worker, self.now);
        let forgotten = scope.plant == Some(Plant::HandBackForgotten);
        let answer = match &request {
            Command::HandBack { leases } if forgotten => {
                Answer::HandedBack(vec![true; leases.len()])
            }
            _ => self.call(scope, worker, &request)?,
        };
        self.change(index, |node| {
            if scope.slow_answers {
                node.phase = Phase::Answered(request, answer);
                return Ok(());
            }
            node.answer(scope, request, answer, now)
        })
    }

    fn hear(&mut self, scope: &Scope, index: usize) -> Result<(), Finding> {
        let Phase::Answered(request, answer) = self.nodes[index].phase.clone() else {
            panic!("no answer has come");
        };
        let now = self.now;
        self.change(index, |node| node.answer(scope, request, answer, now))
    }

    fn begin(&mut self, index: usize, which: usize) -> Result<(), Finding> {
        let scope = Rc::clone(&self.scope);
        let running = &self.nodes[index].running[which];
        let lease = running.lease;
        if running.token != Some(CancelReason::LeaseLost) {
            let begun = &mut self.begun[number_of(lease.job)];
            let bit = 1 << lease.attempt;
            let is_first = *begun & bit == 0;
            check(is_first, Oracle::EffectTwice, || format!("{lease:?} begins again"))?;
            *begun |= bit;
        }
        self.change(index, |node| node.begin(&scope, which))
    }

    fn restart(&mut self, scope: &Scope, index: usize) -> Result<(), Finding> {
        self.generations += 1;
        let mut node = Node::start(scope, index, self.generations, self.now)?;
        node.seal();
        self.nodes[index] = Rc::new(node);
        Ok(())
    }

    /// The process ends: of a group with all of its pumps.
    fn crash(&mut self, index: usize) -> Result<(), Finding> {
        let all = if self.scope.one_group { 0..self.nodes.len() } else { index..index + 1 };
        for index in all.filter(|index| self.nodes[*index].is_up()).collect::<Vec<_>>() {
            if matches!(self.nodes[index].phase, Phase::Calling(_)) {
                let request = self.request(index);
                self.delay(index, &request);
            }
            self.change(index, |node| {
                node.crash();
                Ok(())
            })?;
        }
        self.stop_sent = None;
        Ok(())
    }

    /// Asks the next pump of the group; after the last, its handlers see it.
    fn send_stop(&mut self, index: usize) -> Result<(), Finding> {
        let count = self.nodes.len();
        if index == count {
            for index in 0..count {
                self.change(index, |node| {
                    node.show_stop();
                    Ok(())
                })?;
            }
        } else {
            self.change(index, |node| {
                node.send_stop();
                Ok(())
            })?;
        }
        self.stop_sent = (index < count).then_some(index + 1);
        Ok(())
    }

    fn ask_to_stop(&mut self, index: usize) -> Result<(), Finding> {
        let scope = Rc::clone(&self.scope);
        self.change(index, |node| {
            node.ask_to_stop(&scope);
            Ok(())
        })
    }

    /// Of one job at most one handler runs that has not been asked to end.
    fn check_overlap(&self) -> Result<(), Finding> {
        let mut jobs = BTreeSet::new();
        let running = self.nodes.iter().flat_map(|node| &node.running);
        for running in running.filter(|running| running.begun && running.token.is_none()) {
            check(jobs.insert(running.lease.job), Oracle::Overlap, || {
                format!("two handlers of {} run", running.lease.job)
            })?;
        }
        Ok(())
    }

    // -- how it ends

    /// Whether nothing is left that would happen by itself.
    pub(super) fn is_at_rest(&self) -> bool {
        self.budget.seconds == 0 && !self.actions().iter().any(|action| !action.is_fault())
    }

    /// From here on nothing goes wrong: everything ends, and then every node does.
    pub(super) fn drain(&mut self) -> Result<(), Finding> {
        self.budget = Budget {
            seconds: 0,
            refusals: 0,
            losses: 0,
            delays: 0,
            crashes: 0,
            stops: 0,
            cancels: 0,
        };
        self.late.clear();
        // At the next tick their reports are tried again, if they must be.
        let (shelf, soon) = (Rc::clone(&self.shelf), self.now + SECOND);
        let up = self.nodes.iter().filter(|node| node.is_up() && !node.is_over());
        let owed = up.flat_map(|node| {
            let lasts =
                |owed: &LeaseRef| shelf.leases_of(node.worker, soon).any(|lease| lease == *owed);
            node.owed().filter(lasts).collect::<Vec<_>>()
        });
        self.must_record = owed.map(|lease| (lease.job, lease.attempt)).collect();
        for _ in 0..DRAIN_MAX {
            self.settle()?;
            // What failed is tried again at a tick.
            let owes = self.nodes.iter().any(|node| node.is_up() && node.owed().next().is_some());
            if self.shelf.is_done() && !owes {
                break;
            }
            if !self.nodes.iter().any(|node| node.is_up() && !node.stop_asked) {
                let scope = Rc::clone(&self.scope);
                self.restart(&scope, 0)?;
            }
            let scope = Rc::clone(&self.scope);
            self.pass(&scope);
        }
        check(self.shelf.is_done(), Oracle::NotDrained, || format!("{:?}", self.shelf.jobs))?;
        self.stop_all()
    }

    fn stop_all(&mut self) -> Result<(), Finding> {
        for index in 0..self.nodes.len() {
            if self.nodes[index].is_up() {
                self.nodes[index].check_owes_nothing()?;
            }
            if self.nodes[index].is_up() && !self.nodes[index].stop_asked {
                self.ask_to_stop(index)?;
            }
        }
        for _ in 0..DRAIN_MAX {
            self.settle()?;
            if !self.nodes.iter().any(|node| node.is_up()) {
                return Ok(());
            }
            let scope = Rc::clone(&self.scope);
            self.pass(&scope);
        }
        Err(Finding::new(Oracle::StopHangs, "a node does not stop"))
    }

    /// Everything happens that would happen within this second.
    fn settle(&mut self) -> Result<(), Finding> {
        for _ in 0..SETTLE_MAX {
            let actions = self.actions();
            let next = actions.into_iter().find(|action| {
                !action.is_fault()
                    && !matches!(action, Action::End(_, _, End::Fails | End::GivesWay))
            });
            let Some(next) = next else { return Ok(()) };
            self.step(next)?;
        }
        Err(Finding::new(Oracle::Spins, "a second that does not end"))
    }
}

fn number_of(job: JobId) -> usize {
    usize::from(job.to_bytes()[15]) - 1
}

/// Seconds within which everything must have ended.
const DRAIN_MAX: usize = 12;
/// Things that happen within a second at most.
const SETTLE_MAX: usize = 500;
