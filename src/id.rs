//! Identities: of jobs, and of the workers that hold them.
//!
//! Both are UUIDs of version 7 (RFC 9562): 16 bytes that begin with the time of their making, so that
//! new rows land at the end of an index. The id of a job that a schedule mints is made of schedule and tick.

use crate::Timestamp;
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

/// The identity of a job, made by the client before the job is sent: sending it twice is harmless.
///
/// A job's id is the natural idempotency key for the effects of its handler.
///
/// ```
/// use backwave::JobId;
///
/// let id = JobId::new();
/// assert_eq!(id.to_string().parse(), Ok(id));
/// assert_eq!(JobId::from_bytes(id.to_bytes()), id);
/// assert!(id < JobId::new());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId([u8; 16]);

/// The identity of one start of one pump; never used again by another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId([u8; 16]);

/// A text that is no UUID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a UUID: {text:?}")]
pub struct ParseIdError {
    text: String,
}

macro_rules! identity {
    ($name:ident) => {
        impl $name {
            /// A fresh identity, greater than every one made before it by this process.
            #[must_use]
            pub fn new() -> Self {
                #[cfg(feature = "testing")]
                if let Some(bytes) = seeded() {
                    return Self(bytes);
                }
                Self(Uuid::now_v7().into_bytes())
            }

            /// From its 16 bytes, in network order.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            /// Its 16 bytes, in network order.
            #[must_use]
            pub const fn to_bytes(self) -> [u8; 16] {
                self.0
            }

            /// Its 16 bytes, borrowed.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                Uuid::from_bytes(self.0).hyphenated().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::try_parse(text)
                    .map(|id| Self(id.into_bytes()))
                    .map_err(|_| ParseIdError { text: text.chars().take(64).collect() })
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(input)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

identity!(JobId);
identity!(WorkerId);

impl JobId {
    /// The id of the job of that tick, the same on every node: a UUID of version 8 that begins with the tick's
    /// time, as the others begin with that of their making, and goes on with a hash of schedule and tick.
    pub(crate) fn of_tick(schedule: &str, at: Timestamp) -> Self {
        let mut named = at.as_micros().to_be_bytes().to_vec();
        named.extend_from_slice(schedule.as_bytes());
        let mut bytes = Uuid::new_v5(&TICKS, &named).into_bytes();
        let millis = u64::try_from(at.as_micros() / 1000).unwrap_or(0);
        bytes[..6].copy_from_slice(&millis.to_be_bytes()[2..]);
        bytes[6] = 0x80 | (bytes[6] & 0x0f);
        Self(bytes)
    }
}

/// The namespace of the ids of ticks.
const TICKS: Uuid = Uuid::from_u128(0x8a6e_5b0c_6f0d_4d0e_9c53_1f6e_2b77_51a4);
#[cfg(feature = "testing")]
use seeding::seeded;
#[cfg(feature = "testing")]
pub(crate) use seeding::{Seeded, Seeding, seed_with};

/// Ids that follow from a seed, for simulated worlds.
#[cfg(feature = "testing")]
mod seeding {
    use crate::Timestamp;
    use std::cell::RefCell;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

    /// A source of ids: of version 7, each greater than the one before.
    pub(crate) struct Seeded {
        seed: u64,
        millis: AtomicI64,
        count: AtomicU64,
    }

    impl Seeded {
        pub(crate) const fn new(seed: u64, start: Timestamp) -> Self {
            let millis = AtomicI64::new(start.as_micros() / 1000);
            Self { seed, millis, count: AtomicU64::new(0) }
        }

        pub(crate) fn set_time(&self, now: Timestamp) {
            self.millis.fetch_max(now.as_micros() / 1000, Ordering::SeqCst);
        }

        fn next(&self) -> [u8; 16] {
            let count = self.count.fetch_add(1, Ordering::SeqCst);
            let noise = crate::testing::mix(self.seed ^ count);
            let millis = self.millis.load(Ordering::SeqCst).unsigned_abs();
            let high = (millis << 16) | 0x7000 | ((count >> 20) & 0xfff);
            let low = (0b10 << 62) | ((count & 0xf_ffff) << 42) | (noise >> 22);
            ((u128::from(high) << 64) | u128::from(low)).to_be_bytes()
        }
    }

    thread_local! {
        static SOURCE: RefCell<Vec<Arc<Seeded>>> = const { RefCell::new(Vec::new()) };
    }

    /// The next id, on a thread of a simulated world.
    pub(crate) fn seeded() -> Option<[u8; 16]> {
        SOURCE.with(|source| source.borrow().last().map(|source| source.next()))
    }

    /// Has the ids made on this thread come from there, until the answer is dropped.
    pub(crate) fn seed_with(source: &Arc<Seeded>) -> Seeding {
        SOURCE.with(|stack| stack.borrow_mut().push(Arc::clone(source)));
        Seeding(Arc::clone(source))
    }

    pub(crate) struct Seeding(Arc<Seeded>);

    impl Drop for Seeding {
        fn drop(&mut self) {
            SOURCE.with(|stack| {
                let mut stack = stack.borrow_mut();
                if let Some(at) = stack.iter().rposition(|source| Arc::ptr_eq(source, &self.0)) {
                    stack.remove(at);
                }
            });
        }
    }
}
