//! The figures, and how they are told.

use super::args::Args;
use super::place::Place;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// What something costs, where that was counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Costs {
    pub(crate) calls_per_job: Option<f64>,
    pub(crate) commits_per_job: Option<f64>,
    pub(crate) calls_per_cycle: Option<f64>,
    /// Processor time of this process, in microseconds; the database's own is not in it, but for SQLite.
    pub(crate) cpu_us_per_job: Option<f64>,
}

impl Costs {
    pub(crate) const NONE: Self = Self {
        calls_per_job: None,
        commits_per_job: None,
        calls_per_cycle: None,
        cpu_us_per_job: None,
    };
}

/// One line: what was measured where, once per run (or oftener, where it is done in passing).
struct Line {
    place: &'static str,
    what: String,
    rates: Vec<f64>,
    cpu_us: Vec<f64>,
    costs: Costs,
}

pub(crate) struct Table {
    jobs: usize,
    runs: usize,
    lines: Vec<Line>,
}

/// What a measurement is held against: plain SQL that does the same in batches of the same size, or, for
/// a group that chooses its own, of two sizes.
fn baselines(what: &str) -> Vec<String> {
    let names: &[&str] = match what {
        "enqueue_many by 1000" => &["raw: insert by 1000"],
        "enqueue one by one" => &["raw: insert one by one"],
        "group, 20 workers, prefetch off" => &["raw: drain by 20"],
        _ if what.starts_with("raw") => &[],
        _ if what.starts_with("with ") => &["group, 100 workers"],
        _ => match what.strip_prefix("store alone, by ") {
            Some(batch) => return vec![format!("raw: drain by {batch}")],
            None => &["raw: drain by 100", "raw: drain by 500"],
        },
    };
    names.iter().map(|name| (*name).to_owned()).collect()
}

impl Table {
    pub(crate) const fn new(args: &Args) -> Self {
        Self { jobs: args.jobs, runs: args.runs, lines: Vec::new() }
    }

    pub(crate) fn put(&mut self, place: &Place, what: &str, rate: f64, costs: Costs) {
        let place = place.name();
        let known = self.lines.iter().position(|line| line.place == place && line.what == what);
        let at = known.unwrap_or_else(|| {
            let (rates, cpu_us) = (Vec::new(), Vec::new());
            self.lines.push(Line { place, what: what.to_owned(), rates, cpu_us, costs });
            self.lines.len() - 1
        });
        self.lines[at].rates.push(rate);
        self.lines[at].cpu_us.extend(costs.cpu_us_per_job);
    }

    /// The ratios of a line to the plain SQL of its place: the median of what each run gave.
    fn ratios<'a>(&'a self, line: &'a Line) -> impl Iterator<Item = (&'a str, f64)> {
        let raw = baselines(&line.what).into_iter().filter_map(|name| {
            self.lines.iter().find(|other| other.place == line.place && other.what == name)
        });
        raw.map(|raw| {
            let pairs = line.rates.iter().zip(&raw.rates);
            (raw.what.as_str(), median(pairs.map(|(ours, raw)| ours / raw).collect()))
        })
    }

    pub(crate) fn to_text(&self, places: &[Place]) -> String {
        let mut text = format!(
            "{} jobs, median of {} run(s), all measured in turn. Compare ratios, not rates: the machine \
             drifts.\n`raw` is plain SQL on the same tables, by one connection without threads. Costs: \
             processor time of this process,\ncalls of the store \
             (Postgres: round trips; SQLite: transactions) and commits, per job; and calls per\nbatch that \
             was reported.\n",
            self.jobs, self.runs
        );
        for place in places {
            let _ = writeln!(text, "\n{}: {}", place.name(), place.settings());
            let _ = writeln!(
                text,
                "  {:<32}{:>8}{:>13}{:>11}{:>11}{:>13}{:>13}",
                "", "jobs/s", "of raw", "CPU us/job", "calls/job", "commits/job", "calls/batch"
            );
            for line in self.lines.iter().filter(|line| line.place == place.name()) {
                let ratios: Vec<_> =
                    self.ratios(line).map(|(_, ratio)| format!("{ratio:.2}")).collect();
                let _ = writeln!(
                    text,
                    "  {:<32}{:>8.0}{:>13}{:>11}{:>11}{:>13}{:>13}",
                    line.what,
                    median(line.rates.clone()),
                    ratios.join(" / "),
                    line.cpu_us_shown(),
                    shown(line.costs.calls_per_job),
                    shown(line.costs.commits_per_job),
                    shown(line.costs.calls_per_cycle),
                );
            }
        }
        text.push_str(
            "\nRatios are to plain SQL in batches of the same size; two are to draining by 100, and by 500.\n\
             What a group does `with` something is held against the same group without it.\n",
        );
        text
    }

    pub(crate) fn to_json(&self) -> String {
        let lines: Vec<Value> = self.lines.iter().map(|line| self.line_to_json(line)).collect();
        let table = json!({ "jobs": self.jobs, "runs": self.runs, "lines": lines });
        format!("{table:#}\n")
    }

    fn line_to_json(&self, line: &Line) -> Value {
        let ratios: Map<String, Value> =
            self.ratios(line).map(|(raw, ratio)| (raw.to_owned(), json!(ratio))).collect();
        json!({
            "store": line.place,
            "what": line.what,
            "jobs_per_second": median(line.rates.clone()),
            "jobs_per_second_each": line.rates,
            "ratios": ratios,
            "cpu_us_per_job": (!line.cpu_us.is_empty()).then(|| median(line.cpu_us.clone())),
            "calls_per_job": line.costs.calls_per_job,
            "commits_per_job": line.costs.commits_per_job,
            "calls_per_batch": line.costs.calls_per_cycle,
        })
    }
}

impl Line {
    fn cpu_us_shown(&self) -> String {
        if self.cpu_us.is_empty() {
            return String::new();
        }
        format!("{:.1}", median(self.cpu_us.clone()))
    }
}

fn shown(cost: Option<f64>) -> String {
    cost.map_or_else(String::new, |cost| format!("{cost:.4}"))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().saturating_sub(1) / 2, values.len() / 2);
    match (values.get(low), values.get(high)) {
        (Some(low), Some(high)) => f64::midpoint(*low, *high),
        _ => f64::NAN,
    }
}
