//! The command line.

use std::path::PathBuf;

pub(crate) const USAGE: &str = "\
usage: cargo bench --all-features -- [options]
  --jobs N         jobs of each measurement (50000)
  --runs N         repetitions, of which the median counts (3)
  --store NAME     memory, sqlite or postgres; may be given more than once (all)
  --quick          one run of 5000 jobs
  --json PATH      also writes the table there";

#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) jobs: usize,
    pub(crate) runs: usize,
    /// Empty: all.
    pub(crate) stores: Vec<String>,
    pub(crate) json: Option<PathBuf>,
}

impl Args {
    pub(crate) fn parse(args: impl Iterator<Item = String>) -> Result<Self, String> {
        // `cargo bench` says so; `cargo test --benches` does not, and only wants to see that it runs.
        let mut is_bench = false;
        let mut parsed = Self { jobs: 50_000, runs: 3, stores: Vec::new(), json: None };
        let mut args = args;
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--bench" => is_bench = true,
                "--jobs" => parsed.jobs = number(&value()?)?,
                "--runs" => parsed.runs = number(&value()?)?,
                "--store" => parsed.stores.push(store(value()?)?),
                "--json" => parsed.json = Some(value()?.into()),
                "--quick" => (parsed.jobs, parsed.runs) = (5_000, 1),
                other => return Err(format!("{other:?} is not known")),
            }
        }
        if !is_bench {
            (parsed.jobs, parsed.runs) = (1_000, 1);
        }
        Ok(parsed)
    }

    pub(crate) fn wants(&self, store: &str) -> bool {
        self.stores.is_empty() || self.stores.iter().any(|wanted| wanted == store)
    }
}

fn number(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("{text:?} is not a positive number")),
    }
}

fn store(name: String) -> Result<String, String> {
    if ["memory", "sqlite", "postgres"].contains(&name.as_str()) {
        return Ok(name);
    }
    Err(format!("{name:?} is no store: memory, sqlite or postgres"))
}
