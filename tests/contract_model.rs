//! Random histories over each store, compared after every step with a model that a reader can hold in mind.

#[allow(unreachable_pub, reason = "a test binary exports nothing")]
#[path = "model/acts.rs"]
mod acts;
#[allow(unreachable_pub, reason = "a test binary exports nothing")]
#[path = "model/mod.rs"]
mod model;
#[cfg(feature = "postgres")]
mod support;

use acts::{Act, JOBS, Pair, WORKERS, job, worker};
use backwave::MemoryStore;
use backwave::store::{
    AuditFilter, HistoryPolicy, JobFilter, Page, QueueSettings, Store, StoreClock,
};
use backwave::testing::VirtualClock;
use model::Model;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestRunner};
use std::time::Duration;

/// Runs so many histories over the stores that `open` gives, each behind what must outlive it.
fn agrees_with_the_model<G, S: Store>(cases: u32, open: impl Fn(VirtualClock) -> (G, S)) {
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        max_shrink_time: 120_000,
        ..ProptestConfig::default()
    };
    let histories = prop::collection::vec(acts::acts(), 1..40);
    let outcome = TestRunner::new(config).run(&histories, |history| {
        let clock = VirtualClock::new();
        // Dropped in the reverse order: the store goes before what it lies in.
        let (_guard, store) = open(clock.clone());
        live_through(&store, &clock, &history)
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

fn live_through(store: &dyn Store, clock: &VirtualClock, history: &[Act]) -> TestCaseResult {
    let mut session = store.open_session().expect("a session can be opened");
    let mut pair = Pair::new(session.as_mut(), Model::new(clock.now()));
    for (number, act) in history.iter().enumerate() {
        if let Act::Wait(seconds) = act {
            pair.model.now = clock.advance(Duration::from_secs((*seconds).into()));
        }
        pair.perform(act)?;
        look(&mut pair, number)?;
    }
    look_back(&mut pair)
}

/// Everything that can be read is as the model has it.
fn look(pair: &mut Pair<'_>, number: usize) -> TestCaseResult {
    let Pair { session, model, .. } = pair;
    let found = session.find(&JobFilter::new(), &Page::new(200)).expect("jobs can be found");
    let expected: Vec<_> = model.jobs.values().map(|job| job.record.clone()).collect();
    prop_assert_eq!(found.jobs, expected, "the jobs");
    for (id, job) in model.jobs.iter().filter(|(_, job)| !job.parents.is_empty()) {
        let told = session.parents(*id).expect("parents can be read").into_iter();
        let told: Vec<_> = told.map(|parent| (parent.id, parent.state, parent.is_gating)).collect();
        let expected = job
            .parents
            .iter()
            .map(|parent| (*parent, model.jobs[parent].record.state, job.gates.contains(parent)));
        prop_assert_eq!(told, expected.collect::<Vec<_>>(), "the parents of {}", id);
    }
    let counts = session.counts().expect("counts can be read").into_iter();
    let counts: Vec<_> = counts.map(|count| (count.queue, count.state, count.count)).collect();
    prop_assert_eq!(counts, model.counts(), "the counts");
    let mut queues = session.queues().expect("queues can be read");
    // Whether a change that changes nothing makes a queue known, the contract leaves open.
    queues.retain(|set| {
        model.queues.contains_key(&set.queue) || *set != QueueSettings::new(set.queue.clone())
    });
    let expected: Vec<_> = model.queues.values().cloned().collect();
    prop_assert_eq!(queues, expected, "the queues");
    for number in 0..WORKERS {
        let held = session.held_by(worker(number)).expect("leases can be read").leases;
        prop_assert_eq!(held, model.held_by(worker(number)), "what worker {} holds", number);
    }
    let above = job(u8::try_from(number % usize::from(JOBS)).expect("a small number"));
    for id in model.jobs.keys() {
        let told = session.ancestor(*id, above).expect("ancestors can be read");
        let expected = model.is_ancestor(*id, above);
        prop_assert_eq!(told.is_some(), expected, "{} above {}", above, id);
    }
    Ok(())
}

/// What was written down on the way is as the model has it.
fn look_back(pair: &mut Pair<'_>) -> TestCaseResult {
    let Pair { session, model, .. } = pair;
    for (id, job) in &model.jobs {
        let told = session.history(*id).expect("a history can be read").into_iter();
        let told: Vec<_> = told
            .map(|step| (step.at, step.from, step.to, step.attempt, step.by, step.worker))
            .collect();
        prop_assert_eq!(told, job.story.clone(), "the history of {}", id);
    }
    let filter = AuditFilter::default();
    let audit = session.audit(&filter).expect("the audit can be read");
    let told = audit.into_iter().rev();
    let mut told: Vec<_> =
        told.map(|record| (record.at, record.action, record.job, record.queue)).collect();
    let mut expected = model.deeds.clone();
    // Of what one call did at one instant, any order is right.
    let place = |deed: &model::Deed| (deed.0, deed.2, deed.1.code());
    told.sort_by_key(place);
    expected.sort_by_key(place);
    prop_assert_eq!(told, expected, "the audit");
    Ok(())
}

#[test]
fn memory_agrees_with_the_model() {
    agrees_with_the_model(256, |clock| {
        let store = MemoryStore::builder().clock(clock).history(HistoryPolicy::Transitions);
        ((), store.build())
    });
}

#[cfg(feature = "sqlite")]
#[test]
fn sqlite_agrees_with_the_model() {
    agrees_with_the_model(48, |clock| {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let store = backwave::SqliteStore::builder(folder.path().join("jobs.db"))
            .clock(clock)
            .history(HistoryPolicy::Transitions);
        (folder, store.open().expect("the file opens"))
    });
}

#[cfg(feature = "postgres")]
#[test]
fn postgres_agrees_with_the_model() {
    use support::postgres::{config, fresh_schema};
    agrees_with_the_model(32, |clock| {
        let schema = fresh_schema();
        let store = backwave::PostgresStore::builder(config())
            .schema(schema.name())
            .clock(clock)
            .history(HistoryPolicy::Transitions);
        (schema, store.open().expect("the server answers"))
    });
}
