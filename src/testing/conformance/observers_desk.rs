//! The vocabulary of observers: a pump in small, which asks, resolves and remembers its hold.

use super::desk::{ACTOR, Desk, LEASE, sound};
use crate::store::{
    CursorStale, Failing, Observation, Observe, Observed, ObserverChange, ObserverRecord,
    ObserverStart, ParkedDelivery, Parking, Resolve, Resolved, Transition, TransitionFilter,
};
use crate::{JobId, JobState, Timestamp, WorkerId};
use std::time::Duration;

/// One that holds an observer's cursor, or tries to.
pub(super) struct Watcher {
    pub(super) name: String,
    pub(super) worker: WorkerId,
    pub(super) filter: TransitionFilter,
    pub(super) start: ObserverStart,
    pub(super) epoch: u64,
    pub(super) round: u64,
}

/// What it saw.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) batch: Vec<Observation>,
    pub(super) failing: Option<Failing>,
    pub(super) again: Vec<Observation>,
    pub(super) more: bool,
}

impl Seen {
    pub(super) fn positions(&self) -> Vec<u64> {
        positions(&self.batch)
    }
}

impl Watcher {
    /// Of an observer that begins now, and is told of everything.
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            worker: WorkerId::new(),
            filter: TransitionFilter::new(),
            start: ObserverStart::Now,
            epoch: 0,
            round: 0,
        }
    }

    /// The same, registered already.
    #[track_caller]
    pub(super) fn registered(desk: &mut Desk, name: &str) -> Self {
        let mut watcher = Self::new(name);
        assert!(watcher.look(desk, 1).batch.is_empty(), "nothing has happened since");
        watcher
    }

    pub(super) fn oldest(mut self) -> Self {
        self.start = ObserverStart::Oldest;
        self
    }

    pub(super) fn of(mut self, filter: TransitionFilter) -> Self {
        self.filter = filter;
        self
    }

    #[track_caller]
    pub(super) fn ask(&self, desk: &mut Desk, max: u32) -> Observed {
        let mut ask = Observe::new(&self.name, self.worker, &self.filter, LEASE);
        ask.start = self.start;
        ask.max = max;
        sound(desk.session.observe(&ask))
    }

    /// Asks for what lies beyond the cursor, which must be to be had.
    #[track_caller]
    pub(super) fn look(&mut self, desk: &mut Desk, max: u32) -> Seen {
        match self.ask(desk, max) {
            Observed::Held { lease, round, batch, failing, again, more, reset, store_time } => {
                assert_eq!(store_time, desk.now(), "the store's time is told");
                assert_eq!(lease.expiry, desk.now() + LEASE, "a hold counts from there");
                assert!(lease.epoch >= self.epoch, "an epoch never goes back");
                assert_eq!(reset, None);
                assert!(batch.len() <= max as usize && again.len() <= max as usize);
                let told = positions(&batch);
                assert!(told.is_sorted_by(|one, next| one < next), "in order: {told:?}");
                (self.epoch, self.round) = (lease.epoch, round);
                Seen { batch, failing, again, more }
            }
            elsewhere @ Observed::Elsewhere { .. } => panic!("{elsewhere:?}"),
        }
    }

    /// Until when somebody else holds the cursor.
    #[track_caller]
    pub(super) fn is_kept_out(&self, desk: &mut Desk) -> Timestamp {
        match self.ask(desk, 9) {
            Observed::Elsewhere { until, store_time } => {
                assert_eq!(store_time, desk.now(), "the store's time is told");
                until
            }
            held @ Observed::Held { .. } => panic!("{held:?}"),
        }
    }

    /// A resolution under its hold that moves nothing.
    pub(super) fn resolution(&self) -> Resolve<'_> {
        Resolve::new(&self.name, self.worker, self.epoch, self.round, LEASE)
    }

    pub(super) fn until(&self, position: u64) -> Resolve<'_> {
        Resolve { until: Some(position), ..self.resolution() }
    }

    /// Resolves everything up to there.
    #[track_caller]
    pub(super) fn pass(&self, desk: &mut Desk, until: u64) {
        desk.resolve(&self.until(until));
    }

    /// Gives a delivery up.
    #[track_caller]
    pub(super) fn park(&self, desk: &mut Desk, given_up: &Observation, fault: &str) {
        let parking = Parking::new(given_up.clone(), 10, fault.to_owned());
        let until = given_up.transition.position;
        desk.resolve(&Resolve { parked: vec![parking], ..self.until(until) });
    }

    /// Is told of everything there is, and resolves it.
    #[track_caller]
    pub(super) fn drain(&mut self, desk: &mut Desk) -> Vec<Observation> {
        let mut told = Vec::new();
        for _ in 0..10_000 {
            let seen = self.look(desk, 100);
            match seen.batch.last() {
                Some(last) => self.pass(desk, last.transition.position),
                None if seen.more => {}
                None => return told,
            }
            told.extend(seen.batch);
        }
        panic!("the log does not come to an end");
    }

    #[track_caller]
    pub(super) fn release(&self, desk: &mut Desk) {
        let time = sound(desk.session.release_cursor(&self.name, self.worker, self.epoch));
        assert_eq!(time, desk.now(), "the store's time is told");
    }
}

impl Desk {
    /// Resolves what must be written.
    #[track_caller]
    pub(super) fn resolve(&mut self, resolve: &Resolve<'_>) {
        let applied =
            Resolved::Applied { expiry: self.now() + resolve.lease, store_time: self.now() };
        assert_eq!(sound(self.session.resolve(resolve)), applied);
    }

    /// Resolves what must not be written: why.
    #[track_caller]
    pub(super) fn resolve_in_vain(&mut self, resolve: &Resolve<'_>) -> CursorStale {
        match sound(self.session.resolve(resolve)) {
            Resolved::Stale { reason, store_time } => {
                assert_eq!(store_time, self.now(), "the store's time is told");
                reason
            }
            applied @ Resolved::Applied { .. } => panic!("{applied:?}"),
        }
    }

    #[track_caller]
    pub(super) fn observers(&mut self) -> Vec<ObserverRecord> {
        sound(self.session.observers())
    }

    #[track_caller]
    pub(super) fn observer(&mut self, name: &str) -> ObserverRecord {
        let mut named = self.observers().into_iter().filter(|record| record.observer == name);
        named.next().expect("the observer is registered")
    }

    #[track_caller]
    pub(super) fn parked(&mut self, name: &str) -> Vec<ParkedDelivery> {
        sound(self.session.parked(name, None, 200))
    }

    #[track_caller]
    pub(super) fn change_observer(&mut self, name: &str, change: ObserverChange) -> u64 {
        sound(self.session.change_observer(ACTOR, name, change))
    }
}

pub(super) fn positions(told: &[Observation]) -> Vec<u64> {
    told.iter().map(|observation| observation.transition.position).collect()
}

/// What was told of one job.
pub(super) fn of_job(told: &[Observation], job: JobId) -> Vec<Transition> {
    let of_it = told.iter().filter(|observation| observation.job == job);
    of_it.map(|observation| observation.transition.clone()).collect()
}

/// The states led to, in the order in which they were told.
pub(super) fn states(told: &[Observation]) -> Vec<JobState> {
    told.iter().map(|observation| observation.transition.to).collect()
}

/// One whose first delivery has failed so often, and is due again so much later.
pub(super) const fn failed(
    position: u64,
    failures: u32,
    due_in: u64,
) -> Option<(u64, u32, Duration)> {
    Some((position, failures, Duration::from_secs(due_in)))
}
