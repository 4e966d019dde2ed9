//! How far an observer with a narrow filter looks in one call, what it keeps a purge from taking, and what it
//! does when the log contradicts itself.

use super::{NOW, add, assert_halts, change, claim, open, store};
use crate::invariant::InvariantTrigger;
use crate::store::memory::MemoryStore;
use crate::store::{
    HistoryPolicy, Observation, Observe, Observed, ObserverStart, Purge, Resolve, Resolved,
    Retention, Session, TransitionFilter, UPKEEP_MAX,
};
use crate::{JobState, WorkerId};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(30);

/// What lies beyond the cursor, and whether there is more.
fn look(session: &mut dyn Session, worker: WorkerId, to: &[JobState]) -> (Vec<Observation>, bool) {
    let filter = to.iter().fold(TransitionFilter::new(), |filter, state| filter.state(*state));
    let mut ask = Observe::new("watch", worker, &filter, LEASE);
    ask.start = ObserverStart::Oldest;
    match session.observe(&ask).unwrap() {
        Observed::Held { batch, more, .. } => (batch, more),
        elsewhere @ Observed::Elsewhere { .. } => panic!("{elsewhere:?}"),
    }
}

fn floor(store: &MemoryStore) -> u64 {
    change(store, |all| all.cursors.floor())
}

#[test]
fn what_a_filter_does_not_match_is_passed_over_a_bounded_number_at_a_time() {
    let store = store().with_history(HistoryPolicy::Transitions);
    for _ in 0..=UPKEEP_MAX {
        add(&store);
    }
    claim(&store).unwrap();
    let (mut session, worker) = (open(&store), WorkerId::new());
    let leased = [JobState::Leased];
    assert_eq!(look(session.as_mut(), worker, &leased), (Vec::new(), true));
    assert_eq!(floor(&store), u64::from(UPKEEP_MAX));
    let (batch, more) = look(session.as_mut(), worker, &leased);
    assert_eq!((batch.len(), more), (10, false));
    assert_eq!(floor(&store), u64::from(UPKEEP_MAX), "something that matches lies before it");
}

#[test]
fn a_purge_waits_for_an_observer_until_it_has_passed_or_has_taken_too_long() {
    let store = store();
    let (mut session, worker) = (open(&store), WorkerId::new());
    assert_eq!(look(session.as_mut(), worker, &[]), (Vec::new(), false));
    let [told, late] = [(); 2].map(|()| add(&store));
    for job in [told, late] {
        session.request_cancel("ada", job).unwrap();
    }
    let kept = Retention { cancelled: Some(Duration::ZERO), ..Retention::forever() };
    let purged = session.purge(&Purge::new(kept, 100)).unwrap();
    assert_eq!((purged.jobs, purged.unobserved), (0, 0));

    let (batch, _) = look(session.as_mut(), worker, &[]);
    assert_eq!(batch.len(), 4, "born and cancelled, both of them");
    let resolve = Resolve { until: Some(3), ..Resolve::new("watch", worker, 1, 0, LEASE) };
    let resolved = session.resolve(&resolve).unwrap();
    assert_eq!(resolved, Resolved::Applied { expiry: NOW + LEASE, store_time: NOW });
    let purged = session.purge(&Purge::new(kept, 100)).unwrap();
    assert_eq!((purged.jobs, purged.unobserved), (1, 0));
    assert!(session.job(told).unwrap().is_none());

    let impatient = Retention { unobserved: Some(Duration::ZERO), ..kept };
    let purged = session.purge(&Purge::new(impatient, 100)).unwrap();
    assert_eq!((purged.jobs, purged.unobserved), (1, 1));
    assert!(session.job(late).unwrap().is_none());
}

#[test]
fn a_trim_takes_what_every_observer_has_passed() {
    let store = store();
    let (mut session, worker) = (open(&store), WorkerId::new());
    assert_eq!(look(session.as_mut(), worker, &[]), (Vec::new(), false));
    let job = add(&store);
    claim(&store).unwrap();
    let kept = Retention { transitions_per_job: 1, ..Retention::forever() };
    session.purge(&Purge::new(kept, 100)).unwrap();
    assert_eq!(session.history(job).unwrap().len(), 2);
    let resolve = Resolve { until: Some(1), ..Resolve::new("watch", worker, 1, 0, LEASE) };
    session.resolve(&resolve).unwrap();
    assert_eq!(session.purge(&Purge::new(kept, 100)).unwrap().unobserved, 0);
    assert_eq!(session.history(job).unwrap().len(), 1);
    let impatient = Retention { transitions_per_job: 0, unobserved: Some(Duration::ZERO), ..kept };
    assert_eq!(session.purge(&Purge::new(impatient, 100)).unwrap().unobserved, 1);
    assert!(session.history(job).unwrap().is_empty());
}

#[test]
fn a_log_that_names_what_a_job_has_not_is_noticed_and_the_store_goes_on() {
    let store = store().with_history(HistoryPolicy::Transitions);
    add(&store);
    change(&store, |all| all.jobs[0].as_mut().unwrap().history.clear());
    let filter = TransitionFilter::new();
    let mut ask = Observe::new("watch", WorkerId::new(), &filter, LEASE);
    ask.start = ObserverStart::Oldest;
    assert_halts(open(&store).observe(&ask), InvariantTrigger::GuaranteedRowAbsent);
    add(&store);
}
