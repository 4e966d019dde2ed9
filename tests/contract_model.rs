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
use backwave::store::{
    AuditFilter, Exchanged, HandedBack, HistoryPolicy, JobFilter, Outcome, Page, QueueChange,
    QueueSettings, Store, StoreClock, TransitionBy,
};
use backwave::testing::{Intercept, VirtualClock};
use backwave::{JobState, MemoryStore};
use model::Model;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestRunner};
use std::time::Duration;

/// Runs so many histories (or as many as PROPTEST_CASES says) over the stores that `open` gives, each behind
/// what must outlive it, and tells the shortest that fails.
fn agrees_with_the_model<G, S: Store>(cases: u32, open: impl Fn(VirtualClock) -> (G, S)) {
    let asked_for = std::env::var_os("PROPTEST_CASES").is_some();
    let usual = ProptestConfig::default();
    let config = ProptestConfig {
        cases: if asked_for { usual.cases } else { cases },
        failure_persistence: None,
        max_shrink_time: 120_000,
        ..usual
    };
    run(config, open).unwrap_or_else(|failure| panic!("{failure}"));
}

fn run<G, S: Store>(
    config: ProptestConfig,
    open: impl Fn(VirtualClock) -> (G, S),
) -> Result<(), String> {
    let histories = prop::collection::vec(acts::acts(), 1..40);
    let outcome = TestRunner::new(config).run(&histories, |history| {
        let clock = VirtualClock::new();
        // Dropped in the reverse order: the store goes before what it lies in.
        let (_guard, store) = open(clock.clone());
        live_through(&store, &clock, &history)
    });
    outcome.map_err(|failure| failure.to_string())
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
    agrees_with_the_model(24, |clock| {
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
    agrees_with_the_model(16, |clock| {
        let schema = fresh_schema();
        let store = backwave::PostgresStore::builder(config())
            .schema(schema.name())
            .clock(clock)
            .history(HistoryPolicy::Transitions);
        (schema, store.open().expect("the server answers"))
    });
}

/// What is not true any more, and how the store comes to say otherwise.
type Lie = (&'static str, fn(&Intercept));

/// How a store can lie, each lie small enough to pass for the truth most of the time.
const LIES: &[Lie] = &[
    ("a third parent is forgotten", |store| {
        store.on_enqueue(|session, rows| {
            let mut rows = rows.to_vec();
            rows.iter_mut().for_each(|row| row.parents.truncate(2));
            session.enqueue(&rows)
        });
    }),
    ("a snooze counts a failure", |store| {
        store.on_report(|session, rows| {
            let mut rows = rows.to_vec();
            for row in &mut rows {
                if let Outcome::Snooze { after } = row.outcome {
                    row.outcome = Outcome::Retry { after };
                }
            }
            session.report(&rows)
        });
    }),
    ("an exchange claims before it reports", |store| {
        store.on_exchange(|session, rows, claim| {
            let claimed = session.claim(claim)?;
            Ok(Exchanged::new(session.report(rows)?, claimed))
        });
    }),
    ("a hand-back is answered and not written", |store| {
        store.on_hand_back(|session, worker, rows| {
            let held = session.held_by(worker)?.leases;
            let now = session.now()?;
            let holds = |row| held.iter().any(|(lease, expiry)| lease == row && *expiry > now);
            Ok(HandedBack::new(rows.iter().map(holds).collect(), now))
        });
    }),
    ("a limit lets one more run", |store| {
        store.on_change_queue(|session, actor, queue, change| {
            let QueueChange::Limit(Some(limit)) = change else {
                return session.change_queue(actor, queue, change);
            };
            let mut answer =
                session.change_queue(actor, queue, QueueChange::Limit(Some(limit + 1)))?;
            answer.settings.concurrency_limit = Some(limit);
            Ok(answer)
        });
        store.on_queues(|session| {
            let mut queues = session.queues()?;
            for set in &mut queues {
                set.concurrency_limit = set.concurrency_limit.map(|limit| limit - 1);
            }
            Ok(queues)
        });
    }),
    ("a purge spares what was cancelled", |store| {
        store.on_purge(|session, purge| {
            let mut purge = *purge;
            purge.retention.cancelled = None;
            session.purge(&purge)
        });
    }),
    ("a bulk goes one job too far", |store| {
        store.on_change_matching(|session, actor, change, filter, after, max| {
            session.change_matching(actor, change, filter, after, max + 1)
        });
    }),
    ("a cascade is told as an operator's", |store| {
        store.on_history(|session, id| {
            let mut history = session.history(id)?;
            for step in history.iter_mut().filter(|step| step.to == JobState::Cancelled) {
                step.by = TransitionBy::Operator;
            }
            Ok(history)
        });
    }),
];

#[test]
fn a_store_that_lies_does_not_agree_with_the_model() {
    for (lie, tell) in LIES {
        let config = ProptestConfig {
            cases: 1_000,
            failure_persistence: None,
            max_shrink_iters: 0,
            ..ProptestConfig::default()
        };
        let outcome = run(config, |clock| {
            let store = MemoryStore::builder().clock(clock).history(HistoryPolicy::Transitions);
            let store = Intercept::new(store.build());
            tell(&store);
            ((), store)
        });
        assert!(outcome.is_err(), "nobody has noticed: {lie}");
    }
}
