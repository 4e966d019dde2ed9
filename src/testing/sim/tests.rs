//! That the oracles see: each planted bug is found, and named by an oracle, in a run that is clean without it.

use super::judge::Finding;
use super::lies::{Lie, lying};
use super::plan::{Level, Plan};
use super::run::{Fleet, honest, run, run_logged};
use super::shrink::{shrink, shrink_within};
use crate::kernel::driver::planted::Bug;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Something wrong with a fleet.
#[derive(Debug, Clone, Copy)]
enum Planted {
    InStore(Lie),
    InDriver(Bug),
}

impl Planted {
    fn all() -> impl Iterator<Item = Self> {
        let lies = Lie::ALL.into_iter().map(Self::InStore);
        lies.chain(Bug::ALL.into_iter().map(Self::InDriver))
    }

    fn name(self) -> String {
        match self {
            Self::InStore(lie) => format!("{lie:?}"),
            Self::InDriver(bug) => format!("{bug:?}"),
        }
    }

    fn findings(self, plan: &Plan) -> Vec<Finding> {
        let mut fleet = match self {
            Self::InStore(lie) => Fleet::new(plan, false, lying(lie)),
            Self::InDriver(_) => Fleet::new(plan, false, honest),
        };
        if let Self::InDriver(bug) = self {
            fleet.planted = Some(bug);
        }
        fleet.run().findings
    }

    fn oracle(self, plan: &Plan) -> Option<&'static str> {
        self.findings(plan).first().map(|finding| finding.oracle)
    }

    /// The plan under which it is kept to be found, and by which oracle.
    fn path(self) -> PathBuf {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans");
        folder.join(format!("{}.json", self.name()))
    }

    /// The first small plan that it spoils and that is clean without it.
    fn search(self) -> Option<(u64, Plan, Finding)> {
        for seed in 0..SEEDS_MAX {
            let plan = Plan::draw_within(seed, Level::Healing, 3, 20_000, [5, 10, 20, 30]);
            if let Some(finding) = self.findings(&plan).into_iter().next() {
                let clean = run(&plan).findings;
                assert_eq!(clean, [], "seed {seed} without it:\n{}", plan.to_json());
                return Some((seed, plan, finding));
            }
        }
        None
    }
}

/// Looks for every planted bug from scratch, or for those that `BACKWAVE_PLANTED` names; prints the table, and
/// writes the plans that the next test keeps.
#[test]
#[ignore = "takes minutes, and writes files"]
fn every_planted_bug_is_found_from_scratch() {
    let mut missed = Vec::new();
    let only = std::env::var("BACKWAVE_PLANTED").ok();
    let wanted = |planted: &Planted| {
        only.as_ref().is_none_or(|only| only.split(',').any(|name| name == planted.name()))
    };
    for planted in Planted::all().filter(wanted) {
        let began = Instant::now();
        let Some((seed, plan, finding)) = planted.search() else {
            missed.push(planted.name());
            continue;
        };
        let (found_in, oracle) = (began.elapsed().as_secs_f64(), finding.oracle);
        let (small, _) = shrink_within(&plan, 40, |plan| planted.oracle(plan));
        let (jobs, faults) = small.size();
        let name = planted.name();
        println!(
            "| {name} | {oracle} | seed {seed}, {found_in:.1} s | {jobs} jobs, {faults} faults |"
        );
        std::fs::write(planted.path(), small.to_json()).expect("the plan is written");
    }
    assert_eq!(missed, Vec::<String>::new(), "not found");
}

#[test]
fn every_planted_bug_is_found_in_its_plan_by_the_oracle_that_the_table_names() {
    let mut table = String::new();
    for planted in Planted::all() {
        let text = std::fs::read_to_string(planted.path()).expect("each has its plan");
        let plan = Plan::from_json(&text).expect("a plan is a plan");
        let oracle = planted.oracle(&plan).unwrap_or("nobody");
        let (jobs, faults) = plan.size();
        table += &format!("| {} | {oracle} | {jobs} | {faults} |\n", planted.name());
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans/README.md");
    let told = std::fs::read_to_string(path).expect("the table is there");
    assert!(!table.contains("| nobody |"), "not found:\n{table}");
    assert!(told.contains(&table), "the table is:\n{table}");
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
    let planted = Planted::InStore(Lie::DueIgnored);
    let (_, plan, finding) = planted.search().expect("it is found");
    let (small, _) = shrink(&plan, |plan| planted.oracle(plan));
    assert_eq!(planted.oracle(&small), Some(finding.oracle));
    assert_eq!(small.size(), (1, 0), "one delayed job is enough:\n{}", small.to_json());
}

const SEEDS_MAX: u64 = 1_500;
