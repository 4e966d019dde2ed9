//! What is measured in one place in one run, ours beside the plain SQL.

use super::args::Args;
use super::place::{Opened, Place};
use super::prices::{self, Feature};
use super::table::{Costs, Table};
use crate::support::counted::{Calls, Counted, read};
use backwave::store::{Accepts, Claim, Outcome, OutcomeRow, QueueQuota, Receipt, RowReport};
use backwave::{
    Client, GroupOptions, Health, Job, JobId, NewJob, Prefetch, Registry, WorkerId, spawn_group,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) const QUEUE: &str = "default";
pub(crate) const NAME: &str = "nothing";
/// How many jobs one call of `enqueue_many` takes.
const BULK: usize = 1000;
/// Of the jobs of a measurement, those that are enqueued one by one.
const SINGLES: usize = 25;
/// Nothing is waited for longer: a store that hangs ends the bench.
const PATIENCE: Duration = Duration::from_secs(600);

#[derive(Serialize, Deserialize)]
struct Nothing {
    number: u64,
    text: String,
}

impl Job for Nothing {
    const WIRE_NAME: &'static str = NAME;
}

/// A payload of about 100 bytes, always the same for the same number.
pub(crate) fn payload(number: usize) -> String {
    let text = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!(r#"{{"number":{number},"text":"{text:0>76}"}}"#)
}

pub(crate) fn ids(count: usize) -> Vec<JobId> {
    (0..count).map(|_| JobId::new()).collect()
}

/// Jobs per second, and microseconds of this process's processor time per job.
pub(crate) type Pace = (f64, Option<f64>);

/// Measures `jobs` jobs: wall time and processor time.
pub(crate) struct Stopwatch {
    jobs: usize,
    began: Instant,
    cpu: Option<Duration>,
}

impl Stopwatch {
    pub(crate) fn start(jobs: usize) -> Self {
        Self { jobs, cpu: cpu_time(), began: Instant::now() }
    }

    pub(crate) fn stop(&self) -> Pace {
        let rate = self.jobs as f64 / self.began.elapsed().as_secs_f64();
        let cpu = cpu_time().zip(self.cpu).map(|(after, before)| after - before);
        (rate, cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / self.jobs as f64))
    }
}

/// What this process has used of the processors so far, where the system tells it as Linux does: in
/// hundredths of a second, as the 14th and 15th word of a line whose second is a name in parentheses.
fn cpu_time() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, words) = stat.rsplit_once(')')?;
    let ticks = words.split_whitespace().skip(11).take(2).map(|word| word.parse::<u64>().ok());
    Some(Duration::from_millis(ticks.sum::<Option<u64>>()? * 10))
}

/// One run of everything, in an order in which ours and plain SQL take turns.
pub(crate) fn everything(place: &Place, args: &Args, table: &mut Table) {
    let jobs = args.jobs;
    let mut put = |what: &str, rate: f64, costs: Costs| table.put(place, what, rate, costs);
    for batch in [20, 100, 500] {
        let opened = place.open();
        if let Some((rate, cpu_us_per_job)) = opened.raw_enqueue(jobs, BULK) {
            put("raw: insert by 1000", rate, Costs { cpu_us_per_job, ..Costs::NONE });
        }
        if let Some((rate, cpu_us_per_job)) = opened.raw_drain(jobs, batch) {
            let what = format!("raw: drain by {batch}");
            put(&what, rate, Costs { cpu_us_per_job, ..Costs::NONE });
        }
        drop(opened);
        let opened = place.open();
        let (rate, costs) = enqueue_many(&opened, jobs);
        put("enqueue_many by 1000", rate, costs);
        let (rate, costs) = exchange(&opened, jobs, batch);
        put(&format!("store alone, by {batch}"), rate, costs);
    }
    let opened = place.open();
    if let Some((rate, cpu_us_per_job)) = opened.raw_enqueue(singles(jobs), 1) {
        put("raw: insert one by one", rate, Costs { cpu_us_per_job, ..Costs::NONE });
    }
    let (rate, costs) = enqueue_singly(&opened, singles(jobs));
    put("enqueue one by one", rate, costs);
    drop(opened);
    for (name, options) in groups() {
        let (rate, costs) = drain(place, jobs, options, &Feature::NONE);
        put(name, rate, costs);
    }
    for (name, feature) in prices::features() {
        let options = GroupOptions::new("bench").workers(100);
        let (rate, costs) = drain(place, jobs, options, &feature);
        put(name, rate, costs);
    }
}

fn groups() -> [(&'static str, GroupOptions); 3] {
    let options = || GroupOptions::new("bench");
    [
        ("group, default (20 workers)", options()),
        ("group, 100 workers", options().workers(100)),
        ("group, 20 workers, prefetch off", options().prefetch(Prefetch::Off)),
    ]
}

const fn singles(jobs: usize) -> usize {
    jobs.div_ceil(SINGLES)
}

fn new_jobs(from: usize, to: usize) -> impl Iterator<Item = NewJob> {
    (from..to).map(plain_job)
}

pub(crate) fn plain_job(number: usize) -> NewJob {
    NewJob::raw(NAME, payload(number))
}

fn enqueue_many(opened: &Opened, jobs: usize) -> (f64, Costs) {
    enqueue(opened, jobs, plain_job)
}

fn enqueue(opened: &Opened, jobs: usize, job: fn(usize) -> NewJob) -> (f64, Costs) {
    let store = Counted::new(Arc::clone(&opened.store));
    let calls = Arc::clone(store.calls());
    let client = Client::new(store);
    let watch = Stopwatch::start(jobs);
    for from in (0..jobs).step_by(BULK) {
        client.enqueue_many((from..jobs.min(from + BULK)).map(job)).expect("accepted");
    }
    enqueued(&watch, &calls)
}

fn enqueue_singly(opened: &Opened, jobs: usize) -> (f64, Costs) {
    let store = Counted::new(Arc::clone(&opened.store));
    let calls = Arc::clone(store.calls());
    let client = Client::new(store);
    let watch = Stopwatch::start(jobs);
    for job in new_jobs(0, jobs) {
        client.enqueue(job).expect("accepted");
    }
    enqueued(&watch, &calls)
}

fn enqueued(watch: &Stopwatch, calls: &Calls) -> (f64, Costs) {
    let (rate, cpu_us_per_job) = watch.stop();
    let calls_per_job = per(calls.total(), watch.jobs);
    (rate, Costs { calls_per_job, cpu_us_per_job, ..Costs::NONE })
}

/// The store without threads: what a group could reach if the rest of it cost nothing.
fn exchange(opened: &Opened, jobs: usize, batch: usize) -> (f64, Costs) {
    let me = WorkerId::new();
    let total = batch as u32;
    let plan = [QueueQuota { queue: QUEUE.to_owned(), quota: total }];
    let accepts = [Accepts { wire_name: NAME.to_owned(), version_max: 1 }];
    let claim = Claim::new(me, total, &plan, &accepts, Duration::from_secs(60));
    let mut session = opened.session();
    let (mut rows, mut taken) = (Vec::new(), 0);
    let watch = Stopwatch::start(jobs);
    loop {
        let answer = session.exchange(&rows, &claim).expect("the store answers");
        let is_applied = |row: &RowReport| matches!(row, RowReport::Applied(_));
        assert!(answer.reported.rows.iter().all(is_applied));
        let numbered = answer.claimed.jobs.iter().zip(taken..);
        rows = numbered
            .map(|(job, sequence)| {
                let receipt = Receipt { pump: me, sequence };
                OutcomeRow::new(job.id, job.attempt, me, receipt, Outcome::Succeeded)
            })
            .collect();
        taken += rows.len() as u64;
        if rows.is_empty() {
            assert_eq!(taken, jobs as u64, "each once");
            let (rate, cpu_us_per_job) = watch.stop();
            return (rate, Costs { cpu_us_per_job, ..Costs::NONE });
        }
    }
}

/// A real group, from its start until nothing is due and everything is written.
fn drain(place: &Place, jobs: usize, options: GroupOptions, feature: &Feature) -> (f64, Costs) {
    let mut opened = place.open_keeping(feature.history);
    let observers = (feature.prepare)(&opened);
    enqueue(&opened, jobs, feature.job);
    // They are counted by who is alone, which observers end.
    let commits = if observers.is_none() { opened.commits() } else { None };
    let store = Counted::new(Arc::clone(&opened.store));
    let calls = Arc::clone(store.calls());
    let registry = Registry::new().handle(|_, _: Nothing| Ok(()));
    let watch = Stopwatch::start(jobs);
    let group = spawn_group(store, registry, options, Arc::new(Health::new())).expect("it starts");
    assert!(group.wait_until_idle(PATIENCE), "all are done");
    let (rate, cpu_us_per_job) = watch.stop();
    drop(group);
    if let Some(observers) = observers {
        observers.shutdown();
    }
    assert_eq!(read(&calls.jobs), jobs as u64, "each once");
    let commits = commits.and_then(|before| Some(opened.commits()? - before));
    (rate, Costs { cpu_us_per_job, ..costs(&calls, commits, jobs) })
}

fn costs(calls: &Calls, commits: Option<i64>, jobs: usize) -> Costs {
    let commits = commits.and_then(|commits| u64::try_from(commits).ok());
    Costs {
        calls_per_job: per(calls.total(), jobs),
        commits_per_job: commits.and_then(|commits| per(commits, jobs)),
        // A cycle is a batch that was reported: alone, or with the next claim.
        calls_per_cycle: per(
            calls.cycles(),
            (read(&calls.exchanges) + read(&calls.reports)) as usize,
        ),
        cpu_us_per_job: None,
    }
}

fn per(count: u64, of: usize) -> Option<f64> {
    (of > 0).then(|| count as f64 / of as f64)
}
