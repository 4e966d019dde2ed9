//! That the oracles see: each planted bug is found, and named by an oracle, in a run that is clean without it.

use super::judge::Finding;
use super::lies::{Lie, lying};
use super::plan::{Level, Plan};
use super::run::{Fleet, honest, run, run_logged};
use super::shrink::{oracle, shrink};
use crate::kernel::driver::planted::Bug;
use std::fmt::Debug;
use std::time::Instant;

fn under_lie(plan: &Plan, lie: Lie) -> Vec<Finding> {
    Fleet::new(plan, false, lying(lie)).run().findings
}

fn under_bug(plan: &Plan, bug: Bug) -> Vec<Finding> {
    let mut fleet = Fleet::new(plan, false, honest);
    fleet.planted = Some(bug);
    fleet.run().findings
}

/// The first seed under which the bug is found.
fn search(name: &dyn Debug, spoilt: impl Fn(&Plan) -> Vec<Finding>) -> (u64, Finding) {
    for seed in 0..SEEDS_MAX {
        let plan = Plan::draw(seed, Level::Healing);
        if let Some(finding) = spoilt(&plan).into_iter().next() {
            assert_eq!(run(&plan).findings, [], "seed {seed} is clean without it");
            return (seed, finding);
        }
    }
    panic!("{name:?} is not found");
}

/// Prints the table. Takes minutes: the test below holds what it has found.
#[test]
#[ignore = "takes minutes; prints the table of what finds what"]
fn every_planted_bug_is_found_from_scratch() {
    for lie in Lie::ALL {
        tell(&lie, |plan| under_lie(plan, lie));
    }
    for bug in Bug::ALL {
        tell(&bug, |plan| under_bug(plan, bug));
    }
}

fn tell(name: &dyn Debug, spoilt: impl Fn(&Plan) -> Vec<Finding>) {
    let began = Instant::now();
    let (seed, finding) = search(name, spoilt);
    let (took, oracle) = (began.elapsed().as_secs_f64(), finding.oracle);
    println!("{:<24} {oracle:<44} seed {seed:<4} {took:.1} s", format!("{name:?}"));
}

#[test]
fn two_runs_of_a_plan_are_the_same_to_the_byte() {
    let plan = Plan::draw(11, Level::Healing);
    let (first, second) = (run_logged(&plan), run_logged(&plan));
    assert!(first.log.len() > 20);
    assert_eq!(first.log, second.log);
}

#[test]
fn a_plan_shrinks_to_what_a_planted_bug_needs() {
    let lie = Lie::DueIgnored;
    let (seed, finding) = search(&lie, |plan| under_lie(plan, lie));
    let plan = Plan::draw(seed, Level::Healing);
    let fails = |plan: &Plan| oracle(&Fleet::new(plan, false, lying(lie)).run());
    let (small, _) = shrink(&plan, fails);
    assert_eq!(fails(&small), Some(finding.oracle));
    assert_eq!(small.size(), (1, 0), "one delayed job is enough:\n{}", small.to_json());
}

const SEEDS_MAX: u64 = 300;
