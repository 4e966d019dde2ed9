//! The manual: short pages, code first. Every example is compiled, and run where it needs no server.
//!
//! | page | answers |
//! |---|---|
//! | [`start`] | How do I put this into my program? |
//! | [`handlers`] | How does a handler say how its attempt ended, and leave a result behind? |
//! | [`cancellation`] | How does a handler learn that it should end? |
//! | [`transactions`] | How do I enqueue together with my own rows? |
//! | [`dependencies`] | How do I run a job after others, with what they left behind? |
//! | [`schedules`] | How do I run a job by the calendar, and what do clock changes do? |
//! | [`keys`] | How do I keep a job from coming in, or from running, twice at a time? |
//! | [`observers`] | How is my program told what becomes of jobs? |
//! | [`testing`] | How do I test handlers and the code that enqueues? |
//! | [`operating`] | What do I configure, watch and do in production? |
//! | [`fail_stop`] | A group has halted: what happened, and what now? |
//! | [`what_happens_when`] | What happens to my job when ..? |
//! | [`sql`] | How do I enqueue and look from SQL? |
//! | [`writing_a_store`] | How do I bring another database? |
//! | [`versions`] | What stays stable, and how do I roll out a change? |

#[doc = include_str!("start.md")]
pub mod start {}

#[doc = include_str!("handlers.md")]
pub mod handlers {}

#[doc = include_str!("cancellation.md")]
pub mod cancellation {}

#[doc = include_str!("transactions.md")]
#[cfg_attr(feature = "postgres", doc = include_str!("transactions_postgres.md"))]
#[cfg_attr(feature = "sqlite", doc = include_str!("transactions_sqlite.md"))]
pub mod transactions {}

#[doc = include_str!("dependencies.md")]
pub mod dependencies {}

#[doc = include_str!("schedules.md")]
pub mod schedules {}

#[doc = include_str!("keys.md")]
pub mod keys {}

#[doc = include_str!("observers.md")]
pub mod observers {}

#[doc = include_str!("testing.md")]
#[cfg_attr(feature = "testing", doc = include_str!("testing_virtual.md"))]
pub mod testing {}

#[doc = include_str!("operating.md")]
pub mod operating {}

#[doc = include_str!("fail_stop.md")]
pub mod fail_stop {}

#[doc = include_str!("what_happens_when.md")]
pub mod what_happens_when {}

#[doc = include_str!("sql.md")]
#[cfg_attr(feature = "postgres", doc = include_str!("sql_postgres.md"))]
#[cfg_attr(feature = "sqlite", doc = include_str!("sql_sqlite.md"))]
pub mod sql {}

#[doc = include_str!("writing_a_store.md")]
#[cfg_attr(feature = "testing", doc = include_str!("writing_a_store_conformance.md"))]
pub mod writing_a_store {}

#[doc = include_str!("versions.md")]
pub mod versions {}
