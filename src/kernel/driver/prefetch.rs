//! How many jobs a pump may hold beyond its free workers.
//!
//! With short jobs a round trip takes longer than a job, and workers would wait for it. The appetite
//! learns how long attempts take and lets the pump hold as many more as are expected to start within a
//! few milliseconds. With long jobs that is none.

use std::time::Duration;

/// Whether a pump may hold more jobs than it has free workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Prefetch {
    /// Never.
    Off,
    /// As many short jobs as are expected to start within a few milliseconds. What waits longer than a
    /// second all the same is handed back, which costs it no failure; the claim has raised its attempt.
    #[default]
    Auto,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(super) struct Appetite {
    prefetch: Prefetch,
    workers: u32,
    /// A moving average of how long attempts take, in nanoseconds.
    took_ns: u64,
    /// Attempts that have still to be seen before the average is believed.
    unseen: u32,
}

impl Appetite {
    pub(super) const fn new(prefetch: Prefetch, workers: u32) -> Self {
        Self { prefetch, workers, took_ns: 0, unseen: SAMPLES_MIN }
    }

    pub(super) fn finished(&mut self, took: Duration) {
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.unseen = self.unseen.saturating_sub(1);
        // A long attempt counts at once, a short one slowly: holding too much is the worse error.
        let weight = if took_ns > self.took_ns { 4 } else { 64 };
        let step = (i128::from(took_ns) - i128::from(self.took_ns)) / weight;
        self.took_ns = u64::try_from(i128::from(self.took_ns) + step).unwrap_or(u64::MAX);
    }

    /// A held job waited longer than it was promised: learn anew.
    pub(super) fn disappointed(&mut self) {
        self.unseen = SAMPLES_MIN;
    }

    pub(super) fn extra(&self) -> u32 {
        if self.prefetch == Prefetch::Off || self.unseen > 0 {
            return 0;
        }
        let per_worker = HORIZON_NS / self.took_ns.max(1);
        let extra = per_worker.saturating_mul(u64::from(self.workers));
        // The pool and what it holds beyond together make one batch of a size that pays.
        let room = HELD_MAX.saturating_sub(u64::from(self.workers));
        u32::try_from(extra.min(room)).unwrap_or(0)
    }
}

/// Held jobs are expected to start within so long.
const HORIZON_NS: u64 = 4_000_000;
/// Executing and held together: beyond batches of some 500 the database gains little.
const HELD_MAX: u64 = 500;
const SAMPLES_MIN: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(samples: &[(u32, Duration)]) -> u32 {
        let mut appetite = Appetite::new(Prefetch::Auto, 20);
        for (count, took) in samples {
            for _ in 0..*count {
                appetite.finished(*took);
            }
        }
        appetite.extra()
    }

    #[test]
    fn nothing_is_held_before_enough_was_seen_or_when_off() {
        assert_eq!(seen(&[(31, Duration::from_micros(1))]), 0);
        let mut off = Appetite::new(Prefetch::Off, 20);
        (0..100).for_each(|_| off.finished(Duration::ZERO));
        assert_eq!(off.extra(), 0);
    }

    #[test]
    fn short_jobs_are_held_up_to_a_bound_and_long_ones_are_not() {
        assert_eq!(seen(&[(100, Duration::from_micros(5))]), 480);
        assert_eq!(seen(&[(100, Duration::from_millis(2))]), 40);
        assert_eq!(seen(&[(100, Duration::from_millis(5))]), 0);
    }

    #[test]
    fn one_long_attempt_ends_the_holding_at_once() {
        let short = (100, Duration::from_micros(5));
        assert_eq!(seen(&[short, (1, Duration::from_secs(1))]), 0);
    }
}
