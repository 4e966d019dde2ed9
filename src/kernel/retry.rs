//! When a failed attempt is tried again: a pure function of the job's id and its failures.
//!
//! The jitter is derived from the job's id and the number of failures, not drawn: two replays of a
//! run agree, and still a thousand jobs that failed together do not come back together.

use crate::JobId;
use std::time::Duration;

/// How often a job may fail, and how long it waits after each failure.
///
/// The ceiling counts *failures* (attempts that failed or whose lease lapsed), never snoozes or
/// hand-backs. The delay after failure `n` is `min(delay_first * 2^(n-1), delay_max)`, lengthened by
/// up to the jitter's share.
///
/// Where it comes from, the nearest wins: [`NewJob::retry`](crate::NewJob::retry), then
/// [`Job::RETRY`](crate::Job::RETRY), both stored with the job at enqueue; else the policy of the
/// group that settles the attempt.
///
/// ```
/// use backwave::{JobId, RetryPolicy};
/// use std::time::Duration;
///
/// const GENTLE: RetryPolicy = RetryPolicy::new(5).delays(Duration::from_secs(10), Duration::from_secs(60));
///
/// let delay = GENTLE.jitter_percent(0).delay_after(2, JobId::new());
/// assert_eq!(delay, Some(Duration::from_secs(20)));
/// assert_eq!(GENTLE.delay_after(5, JobId::new()), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct RetryPolicy {
    failures_max: u32,
    delay_first_us: u64,
    delay_max_us: u64,
    jitter_percent: u8,
}

impl RetryPolicy {
    /// The shortest delay between two attempts; a shorter one is raised to it, so that a job that
    /// fails at once cannot spin.
    pub const DELAY_MIN: Duration = Duration::from_millis(1);
    /// The longest delay between two attempts; a longer one is lowered to it.
    pub const DELAY_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

    /// At most `failures_max` failures (0 is read as 1), with delays of 2 s, 4 s, 8 s and so on up
    /// to 300 s and 10 % of jitter.
    #[must_use]
    pub const fn new(failures_max: u32) -> Self {
        Self {
            failures_max: if failures_max == 0 { 1 } else { failures_max },
            delay_first_us: 2_000_000,
            delay_max_us: 300_000_000,
            jitter_percent: 10,
        }
    }

    /// No second try: the first failure dead-letters the job.
    #[must_use]
    pub const fn never() -> Self {
        Self::new(1)
    }

    /// The delay after the first failure and the ceiling of its doubling, each raised to at least
    /// [`Self::DELAY_MIN`] and lowered to at most [`Self::DELAY_MAX`].
    #[must_use]
    pub const fn delays(mut self, first: Duration, max: Duration) -> Self {
        self.delay_first_us = bounded_us(first);
        self.delay_max_us = bounded_us(max);
        self
    }

    /// The same delay after every failure.
    #[must_use]
    pub const fn fixed(self, delay: Duration) -> Self {
        self.delays(delay, delay)
    }

    /// Lengthens each delay by up to this share of it; 100 at most.
    #[must_use]
    pub const fn jitter_percent(mut self, percent: u8) -> Self {
        self.jitter_percent = if percent > 100 { 100 } else { percent };
        self
    }

    /// The number of failures at which the job is dead-lettered.
    #[must_use]
    pub const fn failures_max(&self) -> u32 {
        self.failures_max
    }

    /// How long to wait after failure number `failures` of `job`; `None` at the ceiling.
    #[must_use]
    pub fn delay_after(&self, failures: u32, job: JobId) -> Option<Duration> {
        if failures >= self.failures_max {
            return None;
        }
        let doublings = failures.saturating_sub(1).min(63);
        let raw = u128::from(self.delay_first_us) << doublings;
        let capped = raw.min(u128::from(self.delay_max_us)) as u64;
        let jitter_max = u128::from(capped) * u128::from(self.jitter_percent) / 100;
        let jitter = (jitter_max * u128::from(spread(job, failures) >> 32)) >> 32;
        Some(Duration::from_micros(capped.saturating_add(jitter as u64)))
    }

    /// The policy as adapters store it: compact JSON.
    #[must_use]
    pub fn to_stored(&self) -> String {
        // Four integers: serialising them cannot fail, and an empty text reads back as no policy.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads what [`Self::to_stored`] wrote; `None` for anything else.
    #[must_use]
    pub fn from_stored(text: &str) -> Option<Self> {
        let read: Self = serde_json::from_str(text).ok()?;
        let delays = Self::new(read.failures_max).delays(
            Duration::from_micros(read.delay_first_us),
            Duration::from_micros(read.delay_max_us),
        );
        Some(delays.jitter_percent(read.jitter_percent))
    }
}

impl Default for RetryPolicy {
    /// Ten failures; 2 s, 4 s, .. 300 s; 10 % jitter.
    fn default() -> Self {
        Self::new(10)
    }
}

const fn bounded_us(delay: Duration) -> u64 {
    let us = delay.as_micros();
    if us < RetryPolicy::DELAY_MIN.as_micros() {
        RetryPolicy::DELAY_MIN.as_micros() as u64
    } else if us > RetryPolicy::DELAY_MAX.as_micros() {
        RetryPolicy::DELAY_MAX.as_micros() as u64
    } else {
        us as u64
    }
}

/// 64 well-mixed bits of (job, failures): the finaliser of SplitMix64 over both halves of the id.
fn spread(job: JobId, failures: u32) -> u64 {
    let id = u128::from_be_bytes(job.to_bytes());
    let mut bits = mix((id >> 64) as u64 ^ u64::from(failures));
    bits = mix(bits ^ id as u64);
    bits
}

/// One step of SplitMix64: turns a number into one that has nothing to do with it.
pub(crate) const fn mix(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_cap_and_end_at_the_ceiling() {
        let policy = RetryPolicy::default().jitter_percent(0);
        let delay = |failures| policy.delay_after(failures, JobId::new()).map(|d| d.as_secs());
        assert_eq!(delay(1), Some(2));
        assert_eq!(delay(2), Some(4));
        assert_eq!(delay(8), Some(256));
        assert_eq!(delay(9), Some(300));
        assert_eq!(delay(10), None);
        assert_eq!(
            RetryPolicy::new(u32::MAX).jitter_percent(0).delay_after(1_000_000, JobId::new()),
            Some(Duration::from_secs(300))
        );
    }

    #[test]
    fn jitter_is_spread_bounded_and_repeatable() {
        let policy = RetryPolicy::new(3).fixed(Duration::from_secs(100));
        let delays: std::collections::BTreeSet<_> =
            (0..100).filter_map(|_| policy.delay_after(1, JobId::new())).collect();
        assert!(delays.len() > 90, "only {} different delays", delays.len());
        assert!(delays.iter().all(|d| (100..=110).contains(&d.as_secs())));
        let job = JobId::new();
        assert_eq!(policy.delay_after(1, job), policy.delay_after(1, job));
        assert_ne!(policy.delay_after(1, job), policy.delay_after(2, job));
    }

    #[test]
    fn no_policy_can_spin() {
        let policy = RetryPolicy::new(5).fixed(Duration::ZERO);
        assert!(policy.delay_after(1, JobId::new()) >= Some(RetryPolicy::DELAY_MIN));
        let stored =
            r#"{"failures_max":0,"delay_first_us":0,"delay_max_us":0,"jitter_percent":255}"#;
        let read = RetryPolicy::from_stored(stored).expect("well-formed");
        assert_eq!(read, RetryPolicy::new(1).fixed(Duration::ZERO).jitter_percent(100));
    }

    #[test]
    fn a_stored_policy_reads_back() {
        let policy = RetryPolicy::new(7).delays(Duration::from_millis(5), Duration::from_secs(9));
        assert_eq!(RetryPolicy::from_stored(&policy.to_stored()), Some(policy));
        assert_eq!(RetryPolicy::from_stored("{}"), None);
    }
}
