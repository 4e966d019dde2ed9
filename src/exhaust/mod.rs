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

use plant::Plant;
use scope::Scope;
use search::{Broken, Report, search, shorten, tell};
use std::time::Duration;

fn explore(scope: &Scope) -> Report {
    match search(scope) {
        Ok(report) => {
            println!(
                "{}: {} distinct states, {} steps, {} ends, {} steps deep",
                scope.name, report.states, report.steps, report.ends, report.depth_max
            );
            report
        }
        Err(broken) => panic!("{}: {}", scope.name, tell(scope, &shorten(scope, broken))),
    }
}

/// Searched at every run of the tests.
fn small_scopes() -> Vec<Scope> {
    let one_node = |name, seconds| Scope { nodes: 1, ..Scope::new(name, seconds) };
    let one_job = |name, seconds| Scope { jobs: 1, ..Scope::new(name, seconds) };
    vec![
        Scope { handlers_fail: true, ..one_node("one node, jobs that fail", 3) },
        Scope { losses: 1, refusals: 1, workers: 2, ..one_node("one node, a lost answer", 2) },
        Scope { delays: 1, ..one_node("one node, a call that lands late", 3) },
        Scope { stops: 1, losses: 1, ..one_node("one node, a stop and a lost answer", 3) },
        Scope {
            stops: 1,
            workers: 2,
            slow_answers: true,
            handlers_fail: true,
            ..one_node("one node, a stop", 2)
        },
        Scope {
            cancels: 1,
            dependent: true,
            handlers_fail: true,
            ..one_node("one node, a dependent, a cancel request", 2)
        },
        Scope { crashes: 1, ..one_job("two nodes, a crash", 3) },
        Scope { delays: 1, slow_answers: true, ..one_job("two nodes, a call that lands late", 3) },
        Scope { stops: 1, losses: 1, ..one_job("two nodes, a stop and a lost answer", 3) },
        Scope {
            stops: 1,
            stop_budget: Duration::ZERO,
            ..one_job("two nodes, a stop without hand-back", 3)
        },
        Scope { cancels: 1, handlers_fail: true, ..one_job("two nodes, a cancel request", 3) },
        Scope { ..Scope::new("two nodes, two jobs", 1) },
    ]
}

/// Searched by hand.
fn large_scopes() -> Vec<Scope> {
    let lease = Duration::from_secs(3);
    vec![
        Scope { crashes: 1, ..Scope::new("two jobs, a crash", 2) },
        Scope { losses: 1, ..Scope::new("two jobs, a lost answer", 2) },
        Scope { delays: 1, ..Scope::new("two jobs, a call that lands late", 2) },
        Scope { stops: 1, ..Scope::new("two jobs, a stop", 2) },
        Scope { cancels: 1, ..Scope::new("two jobs, a cancel request", 2) },
        Scope { slow_answers: true, ..Scope::new("two jobs, slow answers", 2) },
        Scope { lease, workers: 2, ..Scope::new("two jobs, a longer lease", 2) },
        Scope { ..Scope::new("two jobs, three seconds", 3) },
    ]
}

#[test]
#[ignore = "measures"]
fn measure() {
    let which = std::env::var("WHICH").unwrap_or_default();
    for scope in small_scopes().into_iter().chain(large_scopes()) {
        if scope.name.contains(&which) {
            let began = std::time::Instant::now();
            let report = explore(&scope);
            println!("   {:?} {:?}", began.elapsed(), report.seen);
        }
    }
}

#[test]
#[ignore = "measures"]
fn plants() {
    let which = std::env::var("WHICH").unwrap_or_default();
    for plant in Plant::ALL {
        if !format!("{plant:?}").contains(&which) { continue; }
        let began = std::time::Instant::now();
        let found = small_scopes().into_iter().find_map(|scope| {
            let scope = Scope { plant: Some(plant), ..scope };
            search(&scope).err().map(|broken| (scope.clone(), broken))
        });
        match found {
            None => println!("NOT FOUND {plant:?} {:?}", began.elapsed()),
            Some((scope, broken)) => {
                println!("{plant:?} {} {} {:?}", scope.name, broken.states, began.elapsed());
                println!("{}", tell(&scope, &shorten(&scope, broken)));
            }
        }
    }
}
