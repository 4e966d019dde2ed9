//! An enqueue of jobs with unique keys, in rounds.
//!
//! One statement takes rows in the order of their keys, and decides about each key once. Of several rows of a call
//! with one key, the one that comes first has to win; so the others wait for a later round, in which that key has
//! a holder. Where rows have parents, a round is a beginning of what is left, since a row may be the parent of one
//! behind it. Nearly every call is one round.

use crate::JobId;
use crate::store::{Admission, JobRow};
use std::collections::{HashMap, HashSet};

pub(super) struct Rounds<'a> {
    rows: &'a [JobRow],
    /// Per row, what became of it.
    answers: Vec<Option<Admission>>,
    /// Rows to come, in their order. Of several with one id the first.
    left: Vec<usize>,
    /// Whether the order of the call decides more than who takes a key.
    is_ordered: bool,
    /// Keys that have a holder.
    settled: HashSet<&'a str>,
}

impl<'a> Rounds<'a> {
    pub(super) fn new(rows: &'a [JobRow]) -> Self {
        let mut seen = HashSet::with_capacity(rows.len());
        Self {
            rows,
            answers: vec![None; rows.len()],
            left: (0..rows.len()).filter(|index| seen.insert(rows[*index].id)).collect(),
            is_ordered: rows.iter().any(|row| !row.parents.is_empty()),
            settled: HashSet::new(),
        }
    }

    /// The rows of the next round, at most `max`; empty when all are through.
    pub(super) fn next(&mut self, max: usize) -> Vec<usize> {
        let mut keys = HashSet::new();
        let (mut round, mut rest) = (Vec::new(), Vec::new());
        for index in std::mem::take(&mut self.left) {
            let key = self.rows[index].unique_key.as_deref();
            let is_first = key.is_none_or(|key| self.settled.contains(key) || keys.insert(key));
            let is_cut = round.len() == max || (self.is_ordered && !rest.is_empty());
            if is_first && !is_cut { &mut round } else { &mut rest }.push(index);
        }
        self.left = rest;
        round
    }

    /// Whether every row is through.
    pub(super) fn is_over(&self) -> bool {
        self.left.is_empty()
    }

    pub(super) fn row(&self, index: usize) -> &'a JobRow {
        &self.rows[index]
    }

    /// Notes what became of the rows of a round.
    pub(super) fn note(&mut self, round: &[usize], answers: Vec<Admission>) {
        for (index, answer) in round.iter().copied().zip(answers) {
            let row = &self.rows[index];
            // One with parents may be born Cancelled, and takes no key then.
            let holds = match answer {
                Admission::New => row.parents.is_empty(),
                Admission::Held { .. } => true,
                Admission::Duplicate => false,
            };
            self.settled.extend(row.unique_key.as_deref().filter(|_| holds));
            self.answers[index] = Some(answer);
        }
    }

    /// What became of each row of the call. An id that comes again is a duplicate of the first, or as little
    /// stored.
    pub(super) fn finish(self) -> Vec<Admission> {
        let mut first: HashMap<JobId, Admission> = HashMap::with_capacity(self.rows.len());
        let rows = self.rows.iter().zip(self.answers);
        rows.map(|(row, answer)| match (answer, first.get(&row.id)) {
            (Some(answer), _) => {
                first.insert(row.id, answer);
                answer
            }
            (None, Some(Admission::Held { by, state })) => {
                Admission::Held { by: *by, state: *state }
            }
            (None, _) => Admission::Duplicate,
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JobState;

    fn rows(keys: &str) -> Vec<JobRow> {
        let key = |key: char| (key != '-').then(|| key.to_string());
        keys.chars()
            .map(|name| JobRow { unique_key: key(name), ..JobRow::new(JobId::new(), "work") })
            .collect()
    }

    #[test]
    fn a_key_comes_once_a_round_until_it_has_a_holder() {
        let rows = rows("ab-aab");
        let mut rounds = Rounds::new(&rows);
        assert_eq!(rounds.next(9), [0, 1, 2]);
        let by = Admission::Held { by: JobId::new(), state: JobState::Leased };
        rounds.note(&[0, 1, 2], vec![Admission::New, Admission::Duplicate, Admission::New]);
        assert_eq!(rounds.next(9), [3, 4, 5], "the first of a is born, b is free for all we know");
        rounds.note(&[3, 4, 5], vec![by, by, Admission::New]);
        assert!(rounds.is_over());
        let new = Admission::New;
        assert_eq!(rounds.finish(), [new, Admission::Duplicate, new, by, by, new]);
    }

    #[test]
    fn among_parents_a_round_is_a_beginning_of_what_is_left() {
        let mut rows = rows("a-a-a");
        rows[0].parents.push(JobId::new());
        let mut rounds = Rounds::new(&rows);
        assert_eq!(rounds.next(9), [0, 1]);
        rounds.note(&[0, 1], vec![Admission::New; 2]);
        assert_eq!(rounds.next(9), [2, 3], "the first may have been born Cancelled");
        rounds.note(&[2, 3], vec![Admission::New; 2]);
        assert_eq!(rounds.next(9), [4]);
    }

    #[test]
    fn a_round_has_its_bound_and_an_id_comes_once() {
        let mut rows = rows("abc");
        rows.push(rows[0].clone());
        let mut rounds = Rounds::new(&rows);
        assert_eq!(rounds.next(2), [0, 1]);
        assert_eq!(rounds.next(2), [2]);
        let by = Admission::Held { by: JobId::new(), state: JobState::Leased };
        rounds.note(&[0, 1, 2], vec![by; 3]);
        assert_eq!(rounds.finish(), [by; 4]);
    }
}
