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

#[test]
fn measure() {
    for seconds in 1..4 {
        explore(&Scope { name: "nothing goes wrong", ..Scope::new("", seconds) });
    }
    explore(&Scope { losses: 1, ..Scope::new("lost", 2) });
    explore(&Scope { crashes: 1, ..Scope::new("crash", 2) });
    explore(&Scope { stops: 1, ..Scope::new("stop", 2) });
}

fn _unused() {
    let _ = (Plant::ALL, Duration::ZERO, None::<Broken>);
}
