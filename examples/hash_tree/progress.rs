//! How far it is, while it runs: one line that is rewritten on a terminal, plain lines otherwise.

use crate::file::HashFile;
use backwave::{Client, Error, Job, JobState};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How many files the database knows, and how far they are. Read from the store: what earlier runs and
/// other processes have done counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub total: u64,
    pub ended: u64,
    pub failed: u64,
}

impl Counts {
    pub fn read(client: &Client) -> Result<Self, Error> {
        let mut counts = Self::default();
        for row in client.monitor().counts()?.iter().filter(|row| row.queue == HashFile::QUEUE) {
            counts.total += row.count;
            if row.state.is_terminal() {
                counts.ended += row.count;
            }
            if row.state.is_terminal() && row.state != JobState::Succeeded {
                counts.failed += row.count;
            }
        }
        Ok(counts)
    }
}

/// Shows counts on standard error, not more often than is of use.
pub struct Progress {
    is_terminal: bool,
    shown: Option<(Counts, Instant)>,
}

impl Progress {
    pub fn new() -> Self {
        Self { is_terminal: std::io::stderr().is_terminal(), shown: None }
    }

    /// How long to wait before the next look.
    pub const PAUSE: Duration = Duration::from_millis(100);

    /// Whether a look at the counts would be shown.
    pub fn is_due(&self) -> bool {
        self.shown.is_none_or(|(_, at)| at.elapsed() >= Self::PAUSE)
    }

    pub fn show(&mut self, counts: Counts) {
        // In a log, lines that say nothing new are noise.
        if !self.is_terminal && self.shown.is_some_and(|(shown, _)| shown == counts) {
            return;
        }
        self.shown = Some((counts, Instant::now()));
        let Counts { total, ended, failed } = counts;
        let (before, after) = if self.is_terminal { ("\r\x1b[K", "") } else { ("", "\n") };
        self.write(&format!("{before}{ended} of {total} files done, {failed} failed{after}"));
    }

    /// Leaves the line that is being rewritten, if there is one.
    pub fn finish(&mut self) {
        if self.is_terminal && self.shown.take().is_some() {
            self.write("\n");
        }
    }

    fn write(&self, text: &str) {
        // Who closed standard error does not want to hear of it.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}
