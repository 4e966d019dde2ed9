//! What runs have met.

use crate::JobState;
use std::collections::BTreeMap;
use std::fmt;

/// Edges between states, and situations by their names, each with how often it was met.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    edges: BTreeMap<(Option<JobState>, JobState), u64>,
    situations: BTreeMap<&'static str, u64>,
}

impl Coverage {
    pub(super) fn edge(&mut self, from: Option<JobState>, to: JobState) {
        *self.edges.entry((from, to)).or_default() += 1;
    }

    pub(super) fn met(&mut self, situation: &'static str) {
        *self.situations.entry(situation).or_default() += 1;
    }

    /// Adds what another run has met.
    pub fn add(&mut self, other: &Self) {
        for (edge, count) in &other.edges {
            *self.edges.entry(*edge).or_default() += count;
        }
        for (situation, count) in &other.situations {
            *self.situations.entry(situation).or_default() += count;
        }
    }

    /// How many different edges and situations.
    #[must_use]
    pub fn breadth(&self) -> usize {
        self.edges.len() + self.situations.len()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((from, to), count) in &self.edges {
            let from = from.map_or("(enqueue)", JobState::name);
            writeln!(f, "{count:>12}  {from} -> {to}")?;
        }
        for (situation, count) in &self.situations {
            writeln!(f, "{count:>12}  {situation}")?;
        }
        Ok(())
    }
}
