//! Small worlds, searched whole: a few nodes, each the real driver with what a pump does around it, one memory
//! store, and everything that may happen, in every order.
//!
//! What is searched is exhaustive for its [`Scope`]: every interleaving of what nodes, workers, store and time
//! do, with so many crashes, lost answers, stops and so on at every possible moment. What it abstracts from:
//! time passes in whole seconds, all clocks agree, ticks come once a second to each node and coalesce, and a
//! node that is late is one that hears late. Each state is held against the [`oracle`]s; and from each state
//! in which nothing happens by itself any more, everything must still come to its end.
//!
//! The searches that take longer are run by hand, and print how many states they have seen:
//!
//! ```text
//! cargo test --release --no-default-features --features testing --lib exhaust -- --ignored --nocapture
//! ```

mod node;
mod oracle;
mod plant;
mod scope;
mod search;
mod shelf;
mod world;

use oracle::Oracle;
use plant::Plant;
use scope::Scope;
use search::{Report, search, shorten, tell};
use std::collections::BTreeSet;
use std::time::Duration;
use world::Situation;

/// Searches worlds whole. What breaks is told as a story, after all of them have been searched.
fn explore(scopes: &[Scope]) -> Vec<Report> {
    let (mut reports, mut stories) = (Vec::new(), Vec::new());
    for scope in scopes {
        match search(scope) {
            Ok(report) => {
                println!(
                    "{}: {} distinct states, {} steps, {} ends, at most {} steps deep",
                    scope.name, report.states, report.steps, report.ends, report.depth_max
                );
                reports.push(report);
            }
            Err(broken) => {
                let story = tell(scope, &shorten(scope, broken));
                println!("{}: {story}", scope.name);
                stories.push(format!("{}: {story}", scope.name));
            }
        }
    }
    assert!(stories.is_empty(), "{}", stories.join("\n"));
    reports
}

const fn one_node(name: &'static str, jobs: u8, seconds: u8) -> Scope {
    Scope { nodes: 1, jobs, ..Scope::new(name, seconds) }
}

const fn one_job(name: &'static str, seconds: u8) -> Scope {
    Scope { jobs: 1, ..Scope::new(name, seconds) }
}

/// Longer than what waits for a worker is promised to wait.
const LONG_LEASE: Duration = Duration::from_secs(3);

/// Jobs that fail, and leases that lapse.
const FAILURES: Scope = Scope { handlers_fail: true, ..one_node("jobs that fail", 2, 2) };
/// A second attempt while the handler of the first still runs.
const TWO_ATTEMPTS: Scope =
    Scope { handlers_fail: true, workers: 2, ..one_node("two attempts at once", 1, 3) };
const LOST_ANSWER: Scope = Scope { losses: 1, workers: 2, ..one_node("a lost answer", 2, 2) };
const LATE_CALL: Scope = Scope { delays: 1, ..one_node("a call that lands late", 1, 3) };
const STOP: Scope = Scope { stops: 1, losses: 1, ..one_node("a stop and a lost answer", 1, 2) };
const SLOW_STOP: Scope =
    Scope { stops: 1, slow_answers: true, ..one_node("a stop and slow answers", 1, 2) };
const STOP_OF_TWO: Scope =
    Scope { stops: 1, workers: 2, ..one_node("a stop of two workers", 2, 2) };
const CANCEL: Scope =
    Scope { cancels: 1, dependent: true, ..one_node("a cancel request and a dependent", 2, 2) };
const CRASH: Scope = Scope { crashes: 1, ..one_job("two nodes and a crash", 2) };
const SHARED_STOP: Scope = Scope {
    stops: 1,
    stop_budget: Duration::ZERO,
    ..one_job("two nodes and a stop without hand-back", 2)
};
/// Jobs that wait for a worker, and go back when they wait too long.
const HELD: Scope = Scope {
    prefetch: true,
    lease: LONG_LEASE,
    ..one_node("jobs held beyond the free workers", 3, 2)
};
const HELD_STOP: Scope = Scope { stops: 1, seconds: 1, name: "a stop while jobs are held", ..HELD };
const TIME_LIMIT: Scope = Scope {
    time_limit: Some(Duration::from_secs(1)),
    lease: LONG_LEASE,
    ..one_node("a time limit", 1, 3)
};
const GROUP_STOP: Scope =
    Scope { stops: 1, one_group: true, ..Scope::new("a stop of a group of two pumps", 1) };
const SHARED: Scope = Scope::new("two nodes and two jobs", 1);

/// Searched at every run of the tests.
const SMALL: [Scope; 15] = [
    FAILURES,
    TWO_ATTEMPTS,
    LOST_ANSWER,
    LATE_CALL,
    STOP,
    SLOW_STOP,
    STOP_OF_TWO,
    CANCEL,
    CRASH,
    SHARED_STOP,
    HELD,
    HELD_STOP,
    TIME_LIMIT,
    GROUP_STOP,
    SHARED,
];

/// Searched by hand.
const LARGE: [Scope; 12] = [
    Scope { handlers_fail: true, ..Scope::new("two jobs that fail", 2) },
    Scope { crashes: 1, ..Scope::new("two jobs and a crash", 2) },
    Scope { losses: 1, ..Scope::new("two jobs and a lost answer", 2) },
    Scope { delays: 1, ..Scope::new("two jobs and a call that lands late", 2) },
    Scope { stops: 1, losses: 1, ..Scope::new("two jobs, a stop and a lost answer", 1) },
    Scope { crashes: 1, losses: 1, cancels: 1, ..one_job("one job and everything", 3) },
    Scope::new("two jobs and time", 3),
    Scope { crashes: 1, handlers_fail: true, ..Scope::new("two jobs that fail and a crash", 2) },
    Scope {
        prefetch: true,
        losses: 1,
        lease: LONG_LEASE,
        ..Scope::new("two jobs, held, and a lost answer", 2)
    },
    Scope { jobs: 4, losses: 1, crashes: 1, name: "four jobs, held, and faults", ..HELD },
    Scope {
        time_limit: Some(Duration::from_secs(1)),
        lease: LONG_LEASE,
        crashes: 1,
        ..Scope::new("two jobs with a time limit and a crash", 2)
    },
    Scope { losses: 1, name: "a stop of a group of two pumps and a lost answer", ..GROUP_STOP },
];

const SITUATIONS: [Situation; 16] = [
    Situation::OutcomeWritten,
    Situation::RepeatRecognised,
    Situation::OutcomeRefused,
    Situation::LapseFound,
    Situation::HeldFound,
    Situation::HandedBack,
    Situation::RenewalRefused,
    Situation::Exchanged,
    Situation::LeaseLost,
    Situation::LateClaim,
    Situation::Withdrawn,
    Situation::GaveWay,
    Situation::BudgetOver,
    Situation::CancelHeard,
    Situation::DeadLettered,
    Situation::Cancelled,
];

#[test]
fn small_worlds_keep_every_promise_and_show_every_situation() {
    let seen: BTreeSet<_> = explore(&SMALL).into_iter().flat_map(|report| report.seen).collect();
    assert_eq!(seen, BTreeSet::from(SITUATIONS));
}

/// Each bug, the world in which it is looked for, and who sees it.
const PLANTS: [(Plant, Scope, Oracle); 22] = [
    (Plant::FenceWithoutAttempt, LATE_CALL, Oracle::FencePassed),
    (Plant::HolderAfterExpiry, FAILURES, Oracle::FencePassed),
    (Plant::ReapWithoutExpiryCheck, FAILURES, Oracle::GivenUpAlive),
    (Plant::DoubleClaim, FAILURES, Oracle::EffectTwice),
    (Plant::HandBackCostsAFailure, LOST_ANSWER, Oracle::FailureMiscounted),
    (Plant::SlotForgotten, LOST_ANSWER, Oracle::NotDrained),
    (Plant::HalfAnExchange, FAILURES, Oracle::NotDrained),
    (Plant::OutcomeDropped, LATE_CALL, Oracle::OutcomeLost),
    (Plant::DoubtForgotten, STOP, Oracle::StopLeavesLeases),
    (Plant::OneTooMany, FAILURES, Oracle::FalseAlarm),
    (Plant::ShortRenewal, FAILURES, Oracle::FalseAlarm),
    (Plant::HandBackForgotten, STOP, Oracle::StopLeavesLeases),
    (Plant::NoMaintenance, FAILURES, Oracle::NotDrained),
    (Plant::ResultByJob, TWO_ATTEMPTS, Oracle::GivenUpAlive),
    (Plant::BegunWithdrawn, STOP_OF_TWO, Oracle::OutcomeLost),
    (Plant::DeafToken, TWO_ATTEMPTS, Oracle::Overlap),
    (Plant::StopHeardLate, SLOW_STOP, Oracle::FailureMiscounted),
    (Plant::GivenTwice, FAILURES, Oracle::EffectTwice),
    (Plant::BeginUnheard, TIME_LIMIT, Oracle::LimitIgnored),
    (Plant::NothingWithdrawn, HELD_STOP, Oracle::BeginsTooLate),
    (Plant::FreshReceipts, LOST_ANSWER, Oracle::DecidedTwice),
    (Plant::LapseBeyondCeiling, TWO_ATTEMPTS, Oracle::Ceiling),
];

#[test]
fn every_planted_bug_is_found() {
    let mut amiss = Vec::new();
    for (plant, scope, oracle) in PLANTS {
        let scope = Scope { plant: Some(plant), ..scope };
        let Err(broken) = search(&scope) else {
            amiss.push(format!("{plant:?} is not found in {}", scope.name));
            continue;
        };
        let (found, states) = (broken.finding.oracle, broken.states);
        println!("{plant:?}: {found:?} after {states} states of {}", scope.name);
        if found != oracle {
            amiss.push(format!("{plant:?}: {}", tell(&scope, &shorten(&scope, broken))));
        }
    }
    assert!(amiss.is_empty(), "{}", amiss.join("\n"));
}

#[test]
#[ignore = "takes minutes: see the module's documentation"]
fn large_worlds_keep_every_promise() {
    let states: Vec<_> = explore(&LARGE).iter().map(|report| report.states).collect();
    assert!(states.iter().any(|states| *states > 1_000_000), "{states:?}");
}
