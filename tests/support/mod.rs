//! What integration tests share. Each test binary compiles it anew and uses a part of it.
#![allow(dead_code, unreachable_pub, reason = "no single test binary uses all of it")]

#[cfg(feature = "postgres")]
pub mod audit;
pub mod child;
pub mod clock;
#[cfg(feature = "postgres")]
pub mod cluster;
pub mod counted;
#[cfg(feature = "postgres")]
pub mod database;
#[cfg(all(feature = "sqlite", feature = "postgres", feature = "testing"))]
pub mod deed;
pub mod drill;
pub mod gate;
pub mod log;
pub mod observing;
pub mod pool;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod proxy;
#[cfg(feature = "testing")]
pub mod scene;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
pub mod tamper;
pub mod world;
