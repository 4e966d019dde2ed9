//! Simulated fleets: a fixed set of seeds, and the plan of every bug that was ever found.

use backwave::testing::sim::{Coverage, Level, Plan, run};
use std::fs;
use std::path::Path;

/// Runs plans of consecutive seeds, and asserts that no oracle has seen anything.
fn explore(level: Level, seeds: std::ops::Range<u64>) -> Coverage {
    let mut coverage = Coverage::default();
    for seed in seeds {
        let report = run(&Plan::draw(seed, level));
        assert!(report.findings.is_empty(), "seed {seed}, {level:?}: {:?}", report.findings);
        coverage.add(&report.coverage);
    }
    coverage
}

#[test]
fn calm_fleets_do_all_their_work_and_lose_no_lease() {
    explore(Level::Calm, 1000..1012);
}

#[test]
fn fleets_whose_troubles_heal_do_all_their_work() {
    let coverage = explore(Level::Healing, 2000..2030);
    // A simulation that meets nothing shows nothing.
    assert!(coverage.breadth() >= 38, "met only:\n{coverage}");
}

#[test]
fn fleets_whose_troubles_do_not_heal_do_nothing_wrong() {
    explore(Level::Broken, 3000..3015);
}

#[test]
fn every_plan_that_once_failed_runs_clean() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans");
    let mut plans = 0;
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("it can be read").path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a plan is text");
        let plan = Plan::from_json(&text).expect("a plan is a plan");
        let report = run(&plan);
        assert!(report.findings.is_empty(), "{}: {:?}", path.display(), report.findings);
        plans += 1;
    }
    assert!(plans > 0, "the plans are not where they are looked for");
}
