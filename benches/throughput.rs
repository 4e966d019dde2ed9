//! Throughput per store, beside the plainest SQL that does the same on the same tables.
//!
//! ```console
//! tests/run.sh --server-only --durable -- cargo bench --all-features
//! cargo bench --all-features -- --store sqlite --jobs 20000 --runs 5 --json table.json
//! ```
//!
//! A machine's speed drifts by more than the differences that matter. So each run measures everything in
//! turn, ours beside the plain SQL, and what is printed is the median over the runs, of ratios taken
//! within one run. No figure of one run, and no rate without its ratio, says anything about another day.

mod harness;
// The counting store and the database whose commits are counted: what the tests of costs use.
#[path = "../tests/support/mod.rs"]
mod support;

use harness::args::Args;
use harness::{place, run, table};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = match Args::parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(message) => {
            eprintln!("{message}\n\n{}", harness::args::USAGE);
            return ExitCode::FAILURE;
        }
    };
    let places = place::chosen(&args);
    let mut figures = table::Table::new(&args);
    for number in 1..=args.runs {
        for place in &places {
            eprintln!("run {number} of {}: {}", args.runs, place.name());
            run::everything(place, &args, &mut figures);
        }
    }
    print!("{}", figures.to_text(&places));
    if let Some(path) = &args.json
        && let Err(error) = std::fs::write(path, figures.to_json())
    {
        eprintln!("{} cannot be written: {error}", path.display());
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
