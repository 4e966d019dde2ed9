//! Several processes on one store that look at the same schedules: each tick is minted once, also where a process
//! dies with a decision in its hand.
//!
//! A child is this very test binary, told by its environment to be one.

mod support;

use backwave::schedule::Schedule;
use backwave::store::{
    JobFilter, MintRow, Minted, Minting, ScheduleRecord, Session, Store, StoreError,
};
use backwave::testing::Intercept;
use backwave::{Client, Health, PostgresStore, SqliteStore, Timestamp, spawn_group};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};
use support::child::{self, Worker};
use support::drill::{Drill, Ledger, assert_no_alarm, eventually, quick};
use support::postgres::{config, fresh_schema};

const SECOND: Duration = Duration::from_secs(1);
/// So many schedules, which tick each second, and not all at the same moment.
const SCHEDULES: u32 = 12;
/// So long do the processes look.
const LOOKS: Duration = Duration::from_secs(5);

fn now() -> Timestamp {
    SystemTime::now().into()
}

fn sqlite(file: &str) -> SqliteStore {
    SqliteStore::builder(file).busy_timeout(SECOND).open().expect("the file opens")
}

fn postgres(schema: &str) -> PostgresStore {
    let builder = PostgresStore::builder(config()).schema(schema).statement_timeout(SECOND);
    builder.open().expect("the server answers")
}

/// When a child is to die: at its third mint, before or after it is carried out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Death {
    Never,
    Before,
    After,
}

/// What a child process does; in the harness's own process it does nothing.
#[test]
fn child() {
    let Some(order) = child::order() else { return };
    let words: Vec<&str> = order.splitn(4, ' ').collect();
    let [death, until, kind, place] = words[..] else { panic!("no order: {order}") };
    let until = Timestamp::from_micros(until.parse().expect("a time"));
    let death = match death {
        "lives" => Death::Never,
        "dies-before" => Death::Before,
        _ => Death::After,
    };
    match kind {
        "sqlite" => look(sqlite(place), until, death),
        _ => look(postgres(place), until, death),
    }
}

/// Looks at schedules and runs their jobs until that time.
fn look(store: impl Store, until: Timestamp, death: Death) {
    let store = Intercept::new(store);
    let tally = Arc::new(Tally::default());
    store.on_mint({
        let (tally, calls) = (Arc::clone(&tally), AtomicUsize::new(1));
        move |session, rows| {
            let is_last = calls.fetch_add(1, Ordering::SeqCst) == 3;
            mint(session, rows, &tally, if is_last { death } else { Death::Never })
        }
    });
    let ledger = Ledger::new();
    let health = Arc::new(Health::new());
    let group = spawn_group(store, ledger.registry(), quick("looks"), Arc::clone(&health));
    let group = group.expect("the group starts");
    child::say("looks");
    eventually("its time is over", || now() >= until);
    let report = group.shutdown();
    assert!(report.halts.is_empty(), "{report:?}");
    assert_no_alarm();
    let of = |count: &AtomicUsize| count.load(Ordering::SeqCst);
    child::say(&format!("{} {}", of(&tally.minted), of(&tally.conflicts)));
}

/// What has become of a child's decisions.
#[derive(Default)]
struct Tally {
    minted: AtomicUsize,
    /// Another process was first.
    conflicts: AtomicUsize,
}

fn mint(
    session: &mut dyn Session,
    rows: &[MintRow],
    tally: &Tally,
    death: Death,
) -> Result<Minted, StoreError> {
    let dies_at = |moment| {
        if death == moment {
            child::say("dies");
            std::process::abort()
        }
    };
    dies_at(Death::Before);
    // Sleeps between look and mint, as a slow node does, so that others decide about the same ticks.
    std::thread::sleep(Duration::from_millis(20));
    let answer = session.mint(rows)?;
    dies_at(Death::After);
    let of = |what| answer.rows.iter().filter(|row| **row == what).count();
    tally.minted.fetch_add(of(Minting::Written { minted: true }), Ordering::SeqCst);
    tally.conflicts.fetch_add(of(Minting::Conflict), Ordering::SeqCst);
    Ok(answer)
}

/// Ticks at so many milliseconds after each second.
fn each_second(number: u32, declared: Timestamp) -> Schedule {
    let start = declared.as_micros() / 1_000_000 * 1_000_000;
    let offset = Duration::from_millis(u64::from(number % 4) * 170);
    Schedule::every(format!("s{number}"), SECOND, &Drill { number, millis: 0 })
        .starts_at(Timestamp::from_micros(start) + offset)
}

/// A store that two processes share.
struct Scene {
    /// How a child is told of it.
    place: String,
    store: Box<dyn Fn() -> Box<dyn Session>>,
    client: Client,
    schedules: Vec<Schedule>,
}

impl Scene {
    fn new<S: Store + Clone>(place: String, store: S) -> Self {
        let client = Client::new(store.clone());
        let declared = now();
        let schedules: Vec<_> =
            (0..SCHEDULES).map(|number| each_second(number, declared)).collect();
        client.schedules().declare("shop", schedules.clone()).expect("they are right");
        let store = Box::new(move || store.open_session().expect("a session opens"));
        Self { place, store, client, schedules }
    }

    fn start(&self, death: &str, until: Timestamp) -> Worker {
        let order = format!("{death} {} {}", until.as_micros(), self.place);
        let worker = Worker::start("child", &order);
        worker.hear_until("looks");
        worker
    }

    fn records(&self) -> Vec<ScheduleRecord> {
        (self.store)().schedules().expect("they can be read")
    }

    /// Each tick up to the cursors was minted by one job, or skipped and counted; how many were minted.
    fn assert_each_tick_once(&self) -> usize {
        let mut minted: BTreeMap<String, BTreeSet<Timestamp>> = BTreeMap::new();
        let mut jobs = 0;
        for job in self.client.monitor().find(JobFilter::new()) {
            let job = job.expect("it can be read");
            let tick = job.tick.expect("a schedule has minted it");
            assert!(minted.entry(tick.schedule).or_default().insert(tick.at), "{}: twice", job.id);
            jobs += 1;
        }
        for record in self.records() {
            let schedule = self.schedules.iter().find(|known| known.name() == record.row.name);
            let schedule = schedule.expect("it was declared here");
            let ticks = schedule.next_times_after(record.created_at, 1000).expect("it is right");
            let settled: BTreeSet<_> =
                ticks.into_iter().take_while(|tick| *tick <= record.cursor).collect();
            let minted = minted.remove(&record.row.name).unwrap_or_default();
            assert!(minted.is_subset(&settled), "{minted:?} of {settled:?}");
            let count = minted.len() as u64 + record.skipped;
            assert_eq!(count, settled.len() as u64, "{}: a tick is lost", record.row.name);
            assert_eq!(record.error, None);
            assert!(!minted.is_empty(), "{}: it has ticked", record.row.name);
        }
        jobs
    }
}

/// How many ticks a child has minted, and how many others it was too late for.
fn tally(told: &str) -> (usize, usize) {
    let (minted, conflicts) = told.split_once(' ').expect("two numbers");
    (minted.parse().expect("a number"), conflicts.parse().expect("a number"))
}

fn two_processes_mint_each_tick_once(scene: &Scene) {
    let until = now() + LOOKS;
    let workers = [scene.start("lives", until), scene.start("lives", until)];
    let (mut minted, mut conflicts) = (0, 0);
    for worker in workers {
        let (new, contested) = tally(&worker.hear());
        worker.end();
        minted += new;
        conflicts += contested;
    }
    assert_eq!(minted, scene.assert_each_tick_once());
    assert!(conflicts > 0, "they have met");
}

fn a_process_that_dies_with_a_decision_in_its_hand_loses_no_tick(scene: &Scene) {
    for death in ["dies-before", "dies-after"] {
        let until = now() + LOOKS;
        let dies = scene.start(death, until);
        dies.hear_until("dies");
        let heir = scene.start("lives", until);
        assert_ne!(tally(&heir.hear()).0, 0, "it mints what comes");
        heir.end();
        scene.assert_each_tick_once();
    }
}

fn on_sqlite(test: impl Fn(&Scene)) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("jobs.db").display().to_string();
    test(&Scene::new(format!("sqlite {file}"), sqlite(&file)));
}

fn on_postgres(test: impl Fn(&Scene)) {
    let schema = fresh_schema();
    test(&Scene::new(format!("postgres {}", schema.name()), postgres(schema.name())));
}

#[test]
fn two_processes_mint_each_tick_once_on_sqlite() {
    on_sqlite(two_processes_mint_each_tick_once);
}

#[test]
fn two_processes_mint_each_tick_once_on_postgres() {
    on_postgres(two_processes_mint_each_tick_once);
}

#[test]
fn a_process_that_dies_with_a_decision_in_its_hand_loses_no_tick_on_sqlite() {
    on_sqlite(a_process_that_dies_with_a_decision_in_its_hand_loses_no_tick);
}

#[test]
fn a_process_that_dies_with_a_decision_in_its_hand_loses_no_tick_on_postgres() {
    on_postgres(a_process_that_dies_with_a_decision_in_its_hand_loses_no_tick);
}
