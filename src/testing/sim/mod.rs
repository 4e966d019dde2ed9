//! The simulator: whole fleets on virtual time, with everything that can go wrong, and oracles that look on.
//!
//! A node is a real group: its pumps, workers and tickers, stepped one at a time. All nodes work on one store in
//! memory. A [`Plan`] says what is enqueued and what goes wrong; it is drawn from a seed, or read from a file. The
//! same plan is the same run, to the byte, in whatever build. A run has two phases: first things go wrong, then they
//! come to rest, and what is left must come to its end.
//!
//! The oracles stand outside: they see what the store carries out, and what handlers do, and keep a history of their
//! own. What they find is a [`Finding`], and [`shrink`] makes of the plan that has led to it the smallest one that
//! still does.
//!
//! ```
//! use backwave::testing::sim::{Level, Plan, run};
//!
//! let plan = Plan::draw(7, Level::Healing);
//! let report = run(&plan);
//! assert!(report.findings.is_empty(), "{:?}", report.findings);
//! assert_eq!(Plan::from_json(&plan.to_json()), Ok(plan));
//! ```

mod coverage;
mod draw;
mod handlers;
mod judge;
#[cfg(test)]
mod lies;
mod plan;
mod rules;
mod run;
mod shrink;
#[cfg(test)]
mod tests;

pub use coverage::Coverage;
pub use judge::Finding;
pub use plan::{Level, Plan};
pub use run::{Report, run, run_logged};
pub use shrink::shrink;
