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
    shown: Option<Counts>,
    next: Instant,
    pause: Duration,
}

impl Progress {
    pub fn new() -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self { is_terminal, shown: None, next: Instant::now(), pause: PAUSE_FIRST }
    }

    /// Shows them if it is time to, or if they are the last.
    pub fn show(&mut self, counts: Counts) {
        let now = Instant::now();
        let is_last = counts.ended == counts.total;
        if self.shown == Some(counts) || (now < self.next && !is_last) {
            return;
        }
        self.shown = Some(counts);
        self.next = now + self.pause;
        if !self.is_terminal {
            // A log of a long run needs no ten lines a second.
            self.pause = PAUSE_MAX.min(self.pause * 2);
        }
        let Counts { total, ended, failed } = counts;
        let (before, after) = if self.is_terminal { ("\r\x1b[K", "") } else { ("", "\n") };
        write(&format!("{before}{ended} of {total} files done, {failed} failed{after}"));
    }

    /// Leaves the line that is being rewritten, if there is one.
    pub fn finish(&mut self) {
        if self.is_terminal && self.shown.take().is_some() {
            write("\n");
        }
    }
}

fn write(text: &str) {
    // Who closed standard error does not want to hear of it.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
