//! What a long history costs: the same work on an empty store and on one that keeps millions of finished jobs and
//! many that are not due yet.
//!
//! ```console
//! tests/run.sh --server-only --durable -- cargo bench --all-features --bench history
//! cargo bench --all-features --bench history -- --store sqlite --finished 1000000 --scheduled 100000
//! ```
//!
//! Each round drains the same number of jobs on the one and on the other, in turn; what is printed is the median
//! over the rounds of the ratios taken within one round. Then come the calls that maintenance and people make.

mod history_fill;
#[path = "../tests/support/mod.rs"]
mod support;

use backwave::store::{
    Accepts, Claim, JobFilter, JobRow, Outcome, OutcomeRow, Page, Purge, QueueQuota, Receipt,
    Session,
};
use backwave::{JobId, JobState, Retention, WorkerId};
use history_fill::{Home, Place};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What is measured, and how often.
struct Args {
    finished: u64,
    scheduled: u64,
    rounds: usize,
    jobs: usize,
    places: Vec<Place>,
}

const USAGE: &str = "\
usage: cargo bench --all-features --bench history -- [options]
  --finished N     finished jobs of the long history (1000000; 5000000 takes minutes and 3 GB)
  --scheduled N    jobs due in an hour (100000)
  --rounds N       repetitions, of which the median counts (7)
  --jobs N         jobs drained in each (5000)
  --store NAME     sqlite or postgres; may be given more than once (all)";

fn main() -> ExitCode {
    let args = match parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(message) => {
            eprintln!("{message}\n\n{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    for place in &args.places {
        compare(*place, &args);
    }
    ExitCode::SUCCESS
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Args, String> {
    // `cargo bench` says so; anybody else only wants to see that it runs.
    let mut is_bench = false;
    let mut parsed = Args {
        finished: 1_000_000,
        scheduled: 100_000,
        rounds: 7,
        jobs: 5_000,
        places: Vec::new(),
    };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        let number = |text: String| text.parse().map_err(|_| format!("{text:?} is no number"));
        match arg.as_str() {
            "--bench" => is_bench = true,
            "--finished" => parsed.finished = number(value()?)?,
            "--scheduled" => parsed.scheduled = number(value()?)?,
            "--rounds" => parsed.rounds = number(value()?)?.max(1) as usize,
            "--jobs" => parsed.jobs = number(value()?)?.max(100) as usize,
            "--store" => parsed.places.push(Place::named(&value()?)?),
            other => return Err(format!("{other:?} is not known")),
        }
    }
    if !is_bench {
        (parsed.finished, parsed.scheduled) = (2_000, 500);
        (parsed.rounds, parsed.jobs) = (1, 200);
    }
    if parsed.places.is_empty() {
        parsed.places.push(Place::Sqlite);
        if std::env::var_os("BACKWAVE_TEST_POSTGRES_URL").is_some() {
            parsed.places.push(Place::Postgres);
        } else {
            println!("Postgres is left out, for want of a server.\n");
        }
    }
    Ok(parsed)
}

fn compare(place: Place, args: &Args) {
    let short = Home::new(place);
    let long = Home::new(place);
    let began = Instant::now();
    long.fill(args.finished, args.scheduled);
    eprintln!("{}: filled in {:.0?}", place.name(), began.elapsed());
    let (mut on_short, mut on_long) = (short.session(), long.session());
    // Statements are prepared and pages are warm.
    drain(on_short.as_mut(), 500);
    drain(on_long.as_mut(), 500);
    let mut ratios = Ratios::default();
    for _ in 0..args.rounds {
        ratios.add(drain(on_short.as_mut(), args.jobs), drain(on_long.as_mut(), args.jobs));
    }
    println!(
        "{}: {} finished and {} scheduled jobs against none, medians of {} rounds of {} jobs",
        place.name(),
        args.finished,
        args.scheduled,
        args.rounds,
        args.jobs
    );
    for (what, ratio) in ["enqueue by 500", "claim 100", "report 100"].iter().zip(ratios.medians())
    {
        println!("  {what:16} takes {ratio:5.2} times as long");
    }
    others(on_short.as_mut(), on_long.as_mut(), args.rounds);
    println!();
}

/// How long the parts of a drain took.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    enqueue: Duration,
    claim: Duration,
    report: Duration,
}

/// Enqueues jobs and works them off, a hundred at a time.
fn drain(session: &mut dyn Session, jobs: usize) -> Spent {
    let mut spent = Spent::default();
    for _ in 0..jobs.div_ceil(500) {
        let rows: Vec<JobRow> = (0..500).map(|_| JobRow::new(JobId::new(), "bench")).collect();
        let began = Instant::now();
        session.enqueue(&rows).expect("the store answers");
        spent.enqueue += began.elapsed();
    }
    let worker = WorkerId::new();
    let plan = [QueueQuota { queue: "default".to_owned(), quota: 100 }];
    let accepts = [Accepts { wire_name: "bench".to_owned(), version_max: 1 }];
    let claim = Claim::new(worker, 100, &plan, &accepts, Duration::from_secs(60));
    let mut sequence = 0;
    loop {
        let began = Instant::now();
        let claimed = session.claim(&claim).expect("the store answers");
        spent.claim += began.elapsed();
        if claimed.jobs.is_empty() {
            return spent;
        }
        let rows: Vec<OutcomeRow> = claimed
            .jobs
            .iter()
            .map(|job| {
                sequence += 1;
                let receipt = Receipt { pump: worker, sequence };
                OutcomeRow::new(job.id, job.attempt, worker, receipt, Outcome::Succeeded)
            })
            .collect();
        let began = Instant::now();
        session.report(&rows).expect("the store answers");
        spent.report += began.elapsed();
    }
}

/// Ratios of the one to the other, round by round.
#[derive(Default)]
struct Ratios([Vec<f64>; 3]);

impl Ratios {
    fn add(&mut self, short: Spent, long: Spent) {
        let ratio = |long: Duration, short: Duration| long.as_secs_f64() / short.as_secs_f64();
        self.0[0].push(ratio(long.enqueue, short.enqueue));
        self.0[1].push(ratio(long.claim, short.claim));
        self.0[2].push(ratio(long.report, short.report));
    }

    fn medians(mut self) -> [f64; 3] {
        self.0.each_mut().map(|ratios| {
            ratios.sort_by(f64::total_cmp);
            ratios[ratios.len() / 2]
        })
    }
}

/// A call by its name.
type Call<'a> = (&'a str, Box<dyn Fn(&mut dyn Session) + 'a>);

/// The calls of maintenance and of people, beside those of an empty store.
fn others(short: &mut dyn Session, long: &mut dyn Session, rounds: usize) {
    let queues = ["default".to_owned()];
    let retention = Retention::default().succeeded(Duration::from_secs(7 * 86_400));
    let calls: [Call<'_>; 5] = [
        ("find_lapsed", Box::new(|s| drop(s.find_lapsed(&queues, 100).expect("answers")))),
        (
            "idle purge",
            Box::new(|s| {
                let _ = s.purge(&Purge::new(retention, 500)).expect("answers");
            }),
        ),
        ("counts", Box::new(|s| drop(s.counts().expect("answers")))),
        (
            "find failed",
            Box::new(|s| {
                let failed = JobFilter::new().state(JobState::DeadLettered);
                drop(s.find(&failed, &Page::new(50)).expect("answers"));
            }),
        ),
        (
            "find newest",
            Box::new(|s| {
                drop(s.find(&JobFilter::new(), &Page::new(50).newest_first()).expect("answers"));
            }),
        ),
    ];
    for (what, call) in calls {
        let (on_short, on_long) = (median(rounds, || call(short)), median(rounds, || call(long)));
        println!("  {what:16} {on_short:10.1?} on the empty one, {on_long:10.1?} on the long one");
    }
}

fn median(rounds: usize, mut call: impl FnMut()) -> Duration {
    let mut spent: Vec<Duration> = (0..rounds)
        .map(|_| {
            let began = Instant::now();
            call();
            began.elapsed()
        })
        .collect();
    spent.sort();
    spent[spent.len() / 2]
}
