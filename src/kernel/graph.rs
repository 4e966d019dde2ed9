//! Jobs that depend on each other: an order in which each comes after its parents, or the cycle that forbids one.

use crate::JobId;
use std::collections::HashMap;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Unseen,
    /// On the way from the job that the walk began with.
    OnTheWay,
    Placed,
}

/// The places of `members` (a job and its parents each) in an order in which each comes after those of its
/// parents that are members, and otherwise as given. Where an id comes twice, the first is the parent.
///
/// # Errors
/// The ids of a cycle, each the parent of the one before it, and the last one's parent the first.
pub(crate) fn order(members: &[(JobId, &[JobId])]) -> Result<Vec<usize>, Vec<JobId>> {
    let mut places = HashMap::with_capacity(members.len());
    for (place, (id, _)) in members.iter().enumerate() {
        places.entry(*id).or_insert(place);
    }
    let mut walk =
        Walk { members, places, marks: vec![Mark::Unseen; members.len()], order: vec![] };
    for place in 0..members.len() {
        walk.place(place)?;
    }
    Ok(walk.order)
}

struct Walk<'a> {
    members: &'a [(JobId, &'a [JobId])],
    places: HashMap<JobId, usize>,
    marks: Vec<Mark>,
    order: Vec<usize>,
}

impl Walk<'_> {
    /// Places a member behind its parents. Chains may be long, so the way is kept on the heap.
    fn place(&mut self, place: usize) -> Result<(), Vec<JobId>> {
        let mut way = vec![(place, 0)];
        while let Some((place, seen)) = way.pop() {
            if self.marks[place] == Mark::Placed {
                continue;
            }
            self.marks[place] = Mark::OnTheWay;
            let (_, parents) = self.members[place];
            let next = parents.iter().enumerate().skip(seen).find_map(|(index, parent)| {
                let parent = *self.places.get(parent)?;
                (self.marks[parent] != Mark::Placed).then_some((index, parent))
            });
            match next {
                None => {
                    self.marks[place] = Mark::Placed;
                    self.order.push(place);
                }
                Some((index, parent)) => {
                    way.push((place, index));
                    if self.marks[parent] == Mark::OnTheWay {
                        return Err(self.cycle(&way, parent));
                    }
                    way.push((parent, 0));
                }
            }
        }
        Ok(())
    }

    /// The end of the way, from the member that it has come back to.
    fn cycle(&self, way: &[(usize, usize)], back_at: usize) -> Vec<JobId> {
        let cycle = way.iter().skip_while(|(place, _)| *place != back_at);
        cycle.map(|(place, _)| self.members[*place].0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(number: u8) -> JobId {
        JobId::from_bytes([number; 16])
    }

    fn ordered(edges: &[(u8, &[u8])]) -> Result<Vec<usize>, Vec<JobId>> {
        let parents: Vec<Vec<JobId>> =
            edges.iter().map(|(_, parents)| parents.iter().copied().map(id).collect()).collect();
        let members =
            edges.iter().zip(&parents).map(|((job, _), parents)| (id(*job), parents.as_slice()));
        order(&members.collect::<Vec<_>>())
    }

    #[test]
    fn parents_come_first_and_the_rest_stays_as_it_is() {
        assert_eq!(ordered(&[(1, &[]), (2, &[]), (3, &[])]), Ok(vec![0, 1, 2]));
        assert_eq!(ordered(&[(1, &[3, 2]), (2, &[3]), (3, &[])]), Ok(vec![2, 1, 0]));
        assert_eq!(ordered(&[(1, &[9]), (2, &[1])]), Ok(vec![0, 1]), "a stranger is no member");
    }

    #[test]
    fn a_cycle_is_told_parent_by_parent() {
        assert_eq!(ordered(&[(1, &[1])]), Err(vec![id(1)]));
        assert_eq!(
            ordered(&[(5, &[1]), (1, &[2]), (2, &[3]), (3, &[1])]),
            Err(vec![id(1), id(2), id(3)])
        );
    }

    #[test]
    fn a_chain_of_a_hundred_thousand_given_backwards_is_turned_round() {
        let jobs: Vec<JobId> = (0..100_000).map(|_| JobId::new()).collect();
        let members: Vec<(JobId, &[JobId])> = (0..jobs.len())
            .map(|place| (jobs[place], jobs.get(place + 1..place + 2).unwrap_or(&[])))
            .collect();
        let expected: Vec<usize> = (0..jobs.len()).rev().collect();
        assert_eq!(order(&members), Ok(expected));
    }

    proptest! {
        #[test]
        fn either_every_parent_comes_first_or_a_cycle_is_shown(
            edges in prop::collection::vec(prop::collection::vec(0_u8..12, 0..4), 1..12),
        ) {
            let parents: Vec<Vec<JobId>> =
                edges.iter().map(|parents| parents.iter().copied().map(id).collect()).collect();
            let members: Vec<(JobId, &[JobId])> = (0_u8..).map(id).zip(parents.iter().map(Vec::as_slice)).collect();
            match order(&members) {
                Ok(order) => {
                    let mut sorted = order.clone();
                    sorted.sort_unstable();
                    prop_assert_eq!(sorted, (0..members.len()).collect::<Vec<_>>());
                    let rank = |job: &JobId| order.iter().position(|place| members[*place].0 == *job);
                    for (job, parents) in &members {
                        for parent in *parents {
                            prop_assert!(rank(parent).is_none() || rank(parent) < rank(job));
                        }
                    }
                }
                Err(cycle) => {
                    for (place, job) in cycle.iter().enumerate() {
                        let parent = cycle[(place + 1) % cycle.len()];
                        let (_, parents) = members.iter().find(|(id, _)| id == job).expect("a member");
                        prop_assert!(parents.contains(&parent));
                    }
                }
            }
        }
    }
}
