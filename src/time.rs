//! Time as the store tells it: whole microseconds since the Unix epoch.
//!
//! One integer type serves the pure core, every adapter and the public face, so that nothing is
//! rounded twice. A [`SystemTime`] is rounded *up* to the next microsecond: a job never becomes due
//! earlier than it was asked for.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An instant, in whole microseconds since 1970-01-01T00:00:00Z, by the store's clock.
///
/// It prints and parses as RFC 3339 in UTC and converts with [`SystemTime`].
///
/// ```
/// use backwave::Timestamp;
/// use std::time::Duration;
///
/// let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
/// let later = start + Duration::from_micros(1_500_000);
/// assert_eq!(later.to_string(), "2026-01-01T00:00:01.5Z");
/// assert_eq!(later.since(start), Duration::from_millis(1500));
/// assert_eq!(start.since(later), Duration::ZERO);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// 1970-01-01T00:00:00Z.
    pub const EPOCH: Self = Self(0);
    /// 0001-01-01T00:00:00Z, the earliest instant that any store accepts.
    pub const MIN: Self = Self(-62_135_596_800_000_000);
    /// 9999-12-30T00:00:00Z, the latest instant that any store accepts.
    pub const MAX: Self = Self(253_402_128_000_000_000);

    /// From microseconds since the Unix epoch; clamped to [`Self::MIN`]..=[`Self::MAX`].
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        if micros < Self::MIN.0 {
            Self::MIN
        } else if micros > Self::MAX.0 {
            Self::MAX
        } else {
            Self(micros)
        }
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// The instant `span` later, or [`Self::MAX`] where that would be out of range.
    #[must_use]
    pub fn saturating_add(self, span: Duration) -> Self {
        Self::from_micros(self.0.saturating_add(micros(span)))
    }

    /// The instant `span` earlier, or [`Self::MIN`] where that would be out of range.
    #[must_use]
    pub fn saturating_sub(self, span: Duration) -> Self {
        Self::from_micros(self.0.saturating_sub(micros(span)))
    }

    /// How long after `earlier` this is; zero when it is not after it.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// A span in whole microseconds, rounded up, at most `i64::MAX`.
pub(crate) fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX)
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    /// The same as [`Timestamp::saturating_add`].
    fn add(self, span: Duration) -> Self {
        self.saturating_add(span)
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self::from_micros(micros(after)),
            // Rounding up means rounding the distance to the epoch down here.
            Err(before) => Self::from_micros(
                i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |us| -us),
            ),
        }
    }
}

impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> Self {
        let distance = Duration::from_micros(time.0.unsigned_abs());
        let result = if time.0 < 0 {
            UNIX_EPOCH.checked_sub(distance)
        } else {
            UNIX_EPOCH.checked_add(distance)
        };
        // Every supported platform represents the years 1 to 9999; the fallback keeps this total.
        result.unwrap_or(UNIX_EPOCH)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(time) => time.fmt(f),
            Err(_) => write!(f, "{} us since the epoch", self.0),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is no RFC 3339 instant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an RFC 3339 instant: {text:?}")]
pub struct ParseTimestampError {
    text: String,
}

impl FromStr for Timestamp {
    type Err = ParseTimestampError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || ParseTimestampError { text: text.chars().take(64).collect() };
        let time: jiff::Timestamp = text.parse().map_err(|_| refused())?;
        let nanos = time.as_nanosecond();
        // Up, as a system's time: nothing is due earlier than it was asked for.
        let micros = nanos.div_euclid(1000) + i128::from(nanos.rem_euclid(1000) != 0);
        let micros = i64::try_from(micros).map_err(|_| refused())?;
        Ok(Self::from_micros(micros))
    }
}

impl serde::Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(input)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_time_is_never_rounded_to_an_earlier_instant() {
        let time = UNIX_EPOCH + Duration::from_nanos(123_456_001);
        assert_eq!(Timestamp::from(time).as_micros(), 123_457);
        let before = UNIX_EPOCH - Duration::from_nanos(1_500);
        assert_eq!(Timestamp::from(before).as_micros(), -1);
    }

    #[test]
    fn a_text_is_never_rounded_to_an_earlier_instant() {
        for (text, micros) in [
            ("1970-01-01T00:00:00.123456001Z", 123_457),
            ("1970-01-01T00:00:00.123456Z", 123_456),
            ("1969-12-31T23:59:59.999998500Z", -1),
        ] {
            assert_eq!(text.parse::<Timestamp>().map(Timestamp::as_micros), Ok(micros), "{text}");
        }
    }

    #[test]
    fn arithmetic_saturates_at_the_bounds() {
        assert_eq!(Timestamp::MAX + Duration::MAX, Timestamp::MAX);
        assert_eq!(Timestamp::MIN.saturating_sub(Duration::MAX), Timestamp::MIN);
        assert_eq!(Timestamp::from_micros(i64::MAX), Timestamp::MAX);
    }

    #[test]
    fn bounds_print_and_parse() {
        for time in [Timestamp::MIN, Timestamp::EPOCH, Timestamp::MAX] {
            assert_eq!(time.to_string().parse::<Timestamp>(), Ok(time));
        }
        assert_eq!(Timestamp::MAX.to_string(), "9999-12-30T00:00:00Z");
        let json = serde_json::to_string(&Timestamp::MAX).unwrap();
        assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap(), Timestamp::MAX);
    }
}
