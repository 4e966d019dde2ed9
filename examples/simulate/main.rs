//! Fleets of Worker Groups on virtual time, with everything that can go wrong.
//!
//! ```text
//! cargo run --release --all-features --example simulate -- [options]
//!
//!   --seconds n     for so much real time, from random seeds (or from --seed on)
//!   --runs n        so many runs; without it and --seconds 20
//!   --seed n        the first seed; without it and --seconds 1
//!   --level l       calm, healing, broken or all (default)
//!   --replay file   runs that plan, and prints what happens
//!   --out folder    where the plans of findings go (default: here)
//! ```
//!
//! A run that goes wrong is made small, written as a plan, and the exit code is 1.

use backwave::testing::sim::{Coverage, Level, Plan, Report, run, run_logged, shrink};
use std::collections::hash_map::RandomState;
use std::error::Error;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let options = Options::read(std::env::args().skip(1))?;
    let clean = match &options.replay {
        Some(path) => replay(path)?,
        None => explore(&options)?,
    };
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Options {
    seconds: Option<u64>,
    runs: Option<u64>,
    seed: u64,
    levels: Vec<Level>,
    replay: Option<PathBuf>,
    out: PathBuf,
}

impl Options {
    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut options = Self {
            seconds: None,
            runs: None,
            seed: 1,
            levels: vec![Level::Healing, Level::Broken, Level::Healing, Level::Calm],
            replay: None,
            out: PathBuf::from("."),
        };
        let mut seed = None;
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{name} wants a value"))?;
            match name.as_str() {
                "--seconds" => options.seconds = Some(value.parse()?),
                "--runs" => options.runs = Some(value.parse()?),
                "--seed" => seed = Some(value.parse()?),
                "--replay" => options.replay = Some(value.into()),
                "--out" => options.out = value.into(),
                "--level" => options.levels = levels(&value)?,
                _ => return Err(format!("there is no option {name}").into()),
            }
        }
        if options.seconds.is_some() {
            options.seed = RandomState::new().build_hasher().finish();
        }
        options.seed = seed.unwrap_or(options.seed);
        Ok(options)
    }
}

fn levels(name: &str) -> Result<Vec<Level>, String> {
    match name {
        "calm" => Ok(vec![Level::Calm]),
        "healing" => Ok(vec![Level::Healing]),
        "broken" => Ok(vec![Level::Broken]),
        "all" => Ok(vec![Level::Healing, Level::Broken, Level::Calm]),
        _ => Err(format!("there is no level {name}")),
    }
}

fn replay(path: &Path) -> Result<bool, Box<dyn Error>> {
    let plan = Plan::from_json(&std::fs::read_to_string(path)?)?;
    let report = run_logged(&plan);
    report.log.iter().for_each(|line| println!("{line}"));
    report.findings.iter().for_each(|finding| println!("{finding}"));
    println!("{} virtual seconds, {} runs of handlers", report.took.as_secs(), report.runs);
    Ok(report.findings.is_empty())
}

fn explore(options: &Options) -> Result<bool, Box<dyn Error>> {
    let began = Instant::now();
    let until = options.seconds.map(|seconds| began + Duration::from_secs(seconds));
    let usual = if until.is_some() { u64::MAX } else { 20 };
    let runs = options.runs.unwrap_or(usual);
    println!("from seed {}", options.seed);
    let mut coverage = Coverage::default();
    let (mut done, mut jobs, mut handled, mut virtual_time) = (0, 0, 0, Duration::ZERO);
    let mut clean = true;
    while done < runs && until.is_none_or(|until| Instant::now() < until) && clean {
        let seed = options.seed.wrapping_add(done);
        let level = options.levels[(done % options.levels.len() as u64) as usize];
        let plan = Plan::draw(seed, level);
        let report = run(&plan);
        done += 1;
        jobs += plan.size().0;
        handled += report.runs;
        virtual_time += report.took;
        coverage.add(&report.coverage);
        if !report.findings.is_empty() {
            clean = false;
            tell(&plan, &report, seed, options)?;
        }
    }
    println!("{coverage}");
    println!(
        "{done} runs, {jobs} jobs, {handled} attempts, {} virtual hours, in {:.1} s",
        virtual_time.as_secs() / 3600,
        began.elapsed().as_secs_f64()
    );
    Ok(clean)
}

fn tell(plan: &Plan, report: &Report, seed: u64, options: &Options) -> Result<(), Box<dyn Error>> {
    println!("seed {seed}:");
    report.findings.iter().for_each(|finding| println!("  {finding}"));
    let (small, tried) = shrink(plan, |plan| run(plan).findings.first().map(|found| found.oracle));
    let path = options.out.join(format!("plan-{seed}.json"));
    std::fs::write(&path, small.to_json())?;
    let (jobs, faults) = small.size();
    println!(
        "  {jobs} job(s) and {faults} fault(s) are enough ({tried} tries): {}",
        path.display()
    );
    Ok(())
}
