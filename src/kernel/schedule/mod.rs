//! Recurring schedules: when they tick, what a tick mints, and what a node that looks at one decides.
//!
//! - [`cron`]: an expression, and the civil times that it names.
//! - [`civil`]: how a civil time becomes an instant in a zone, clock changes included.
//! - [`timing`]: expression, zone, interval, bounds and jitter together: the ticks.
//! - [`definition`]: the job of a tick.
//! - [`decide`]: what becomes of the ticks since the last look.
//!
//! A tick is an instant. It is told apart by (schedule, instant), and nothing here mints one twice: ticks only
//! ever ascend, from a cursor that only ever ascends.
//!
//! No zone data is read in here: whoever calls hands in the zone that a name stands for.

pub(crate) mod civil;
pub(crate) mod cron;
pub(crate) mod decide;
pub(crate) mod definition;
pub(crate) mod timing;

#[cfg(test)]
mod tests;

pub use cron::CronFault;
pub(crate) use decide::{Plan, decide, refused};
pub use definition::CatchUp;
pub(crate) use definition::{Definition, micros};
pub(crate) use timing::{Timing, TimingFault, TimingText};
