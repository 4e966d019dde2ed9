//! Several pumps of one observer: on one store while jobs run and pumps come, go and fail; in several processes of
//! which one dies; and on Postgres beside transactions that commit late.
//!
//! A child is this very test binary with an order in its environment. `BACKWAVE_SOAK_SEED` repeats a soak.

mod support;

use backwave::observer::{CallbackResult, Observation, ObserverStart, TransitionFilter};
use backwave::schedule::Schedule;
use backwave::store::{HistoryPolicy, Store, StoreClock, StoreError};
use backwave::testing::{Intercept, StoreCall};
use backwave::{
    Client, JobId, JobState, NewJob, ObserverPump, Observers, PostgresStore, Registry, RetryPolicy,
    SqliteStore, spawn_observers,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use support::child::{self, Worker};
use support::drill::Dice;
use support::observing::{Ear, births, observe, quick_observer};
use support::world::{Task, World, eventually, quick, task};

on_every_store!(
    whatever_becomes_of_its_pumps_an_observer_is_told_of_everything_in_order,
    what_this_process_writes_is_told_without_waiting_for_a_poll,
    what_a_schedule_mints_is_told_without_waiting_for_a_poll,
);

/// What was told of each job: the positions, in the order in which they were told for the first time.
#[derive(Default)]
struct Told {
    positions: BTreeMap<JobId, Vec<u64>>,
    known: BTreeSet<u64>,
    count: usize,
}

impl Told {
    fn note(&mut self, job: JobId, position: u64) {
        self.count += 1;
        if self.known.insert(position) {
            self.positions.entry(job).or_default().push(position);
        }
    }

    /// Each job's whole history, in its order.
    fn assert_complete(&self, client: &Client, jobs: &[JobId]) {
        for job in jobs {
            let history = client.monitor().history(*job).expect("read");
            let history: Vec<u64> = history.iter().map(|transition| transition.position).collect();
            assert_eq!(self.positions.get(job), Some(&history), "job {job}");
        }
        assert_eq!(self.positions.len(), jobs.len());
    }
}

/// A pump whose callback fails now and then, on a store that may be made to fail.
fn unreliable(world: &World, name: &str, ear: &Ear, seed: u64) -> (Intercept, ObserverPump) {
    let store = Intercept::new(Arc::clone(&world.store));
    let (ear, dice) = (ear.clone(), std::sync::Mutex::new(Dice::new(seed)));
    let callback = move |told: &Observation| -> CallbackResult {
        let roll = dice.lock().map_err(|_| "poisoned")?.roll(20);
        ear.tell(told);
        match roll {
            0 => Err("now and then it fails".into()),
            // Past the hook, which would print each.
            1 => std::panic::resume_unwind(Box::new("now and then it panics")),
            _ => Ok(()),
        }
    };
    let patient = RetryPolicy::new(1000).fixed(Duration::from_millis(1));
    let options = quick_observer().batch(7).retry(patient);
    let observers = Observers::new().on_with(name, TransitionFilter::new(), options, callback);
    let pump = spawn_observers(store.clone(), observers).expect("it starts");
    (store, pump)
}

/// Does something to a pump; another takes its place where it ends by that.
fn trouble(world: &World, dice: &mut Dice, (store, pump): &(Intercept, ObserverPump)) -> bool {
    match dice.roll(5) {
        // A few calls fail.
        0 => {
            let left = std::sync::atomic::AtomicU32::new(3);
            store.on_every_call(move |_| {
                use std::sync::atomic::Ordering::SeqCst;
                let fails = left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
                let away = || StoreError::transient(std::io::Error::other("away"));
                if fails { Err(away().with_session_lost()) } else { Ok(()) }
            });
            false
        }
        // It is gone without a word, and its hold lapses.
        1 => {
            store.on_every_call(|call| match call {
                StoreCall::Resolve => Err(StoreError::new(std::fmt::Error)),
                _ => Ok(()),
            });
            // One that stands by does not end by it.
            if pump.reports()[0].is_holding {
                world.clock.skip(Duration::from_secs(6));
            }
            true
        }
        // Others take over although it lives.
        2 => {
            world.clock.skip(Duration::from_secs(6));
            false
        }
        3 => {
            pump.shutdown();
            true
        }
        _ => false,
    }
}

fn whatever_becomes_of_its_pumps_an_observer_is_told_of_everything_in_order(world: &World) {
    const JOBS: usize = 150;
    let seed = std::env::var("BACKWAVE_SOAK_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("BACKWAVE_SOAK_SEED={seed}");
    let mut dice = Dice::new(seed);
    let name = world.name("soak");
    let ear = Ear::new();
    let mut pumps = [1, 2].map(|number| unreliable(world, &name, &ear, seed + number));
    let is_known = || world.client.monitor().observers().expect("read").len() == 1;
    eventually("it is registered", is_known);
    let registry = Registry::new().handle(|_, Task(what)| match what.as_str() {
        "bad" => Err("it is bad".into()),
        _ => Ok(()),
    });
    // Leases do not lapse by what is done to the clock.
    let group = world.spawn(registry, quick(&name).lease(Duration::from_secs(3600)));
    let mut jobs = Vec::new();
    for round in 0..JOBS {
        let what = if dice.roll(5) == 0 { "bad" } else { "good" };
        jobs.push(world.enqueue(task(what)));
        if round % 10 == 9 {
            let which = dice.roll(2) as usize;
            if trouble(world, &mut dice, &pumps[which]) {
                pumps[which] = unreliable(world, &name, &ear, seed + round as u64);
            }
        }
    }
    for job in &jobs {
        world.ended(*job);
    }
    world.clock.skip(Duration::from_secs(6));
    let lag = || world.client.monitor().observer_lag(&name).expect("read");
    eventually("everything is told", || lag() == Some(Duration::ZERO));
    let mut told = Told::default();
    for what in ear.unheard() {
        told.note(what.job, what.position());
    }
    told.assert_complete(&world.client, &jobs);
    assert!(told.count > told.known.len(), "some were told twice: failures do that");
    // The group has seen the clock jump, and nothing else.
    assert!(world.health.is_healthy() && world.health.partially_halted_groups().is_empty());
    drop((pumps, group));
}

fn what_this_process_writes_is_told_without_waiting_for_a_poll(world: &World) {
    let ear = Ear::new();
    let options = quick_observer().lease(Duration::from_secs(600));
    let rare = options.poll_interval(Duration::from_secs(100));
    let filter = TransitionFilter::new().state(JobState::Scheduled).state(JobState::Succeeded);
    let observers = Observers::new().on_with("hinted", filter, rare, ear.hears());
    let pump = observe(world, observers);
    eventually("it has looked", || pump.reports()[0].is_holding);
    let job = world.enqueue(task("a"));
    assert_eq!((ear.heard().job, ear.unheard()), (job, Vec::new()));
    let group = world.spawn(Registry::new().handle(|_, _: Task| Ok(())), quick("works"));
    assert_eq!(ear.heard().to(), JobState::Succeeded);
    drop(group);
}

fn what_a_schedule_mints_is_told_without_waiting_for_a_poll(world: &World) {
    const HOUR: Duration = Duration::from_secs(3600);
    let ear = Ear::new();
    let options = quick_observer().lease(HOUR * 24);
    let rare = options.poll_interval(Duration::from_secs(100));
    let filter = TransitionFilter::new().state(JobState::Scheduled);
    let pump = observe(world, Observers::new().on_with("ticks", filter, rare, ear.hears()));
    eventually("it has looked", || pump.reports()[0].is_holding);
    let handled = Registry::new().handle(|_, _: Task| Ok(()));
    let _group = world.spawn(handled, quick("mints").lease(HOUR * 24));
    // No claim follows, which would tell in the place of the mint.
    let schedule = Schedule::every("hourly", HOUR, NewJob::raw("nobody's", "{}").queue("nobody's"));
    let schedules = world.client.schedules();
    schedules.declare("o", [schedule]).expect("declared");
    let next = || schedules.list().expect("listed")[0].next_tick;
    eventually("it was looked at", || next().is_some());
    let tick = next().expect("it ticks for ever");
    world.clock.skip(tick.since(StoreClock::now(&world.clock)));
    assert_eq!(ear.heard().to(), JobState::Scheduled);
}

/// What a child process does; in the harness's own process it does nothing.
#[test]
fn child() {
    let Some(order) = child::order() else { return };
    let [kind, dies_at, place] = order.splitn(3, ' ').collect::<Vec<_>>()[..] else {
        panic!("{order} is no order");
    };
    let dies_at: usize = dies_at.parse().expect("a number");
    let count = std::sync::atomic::AtomicUsize::new(0);
    let callback = move |told: &Observation| {
        child::say(&format!("{} {}", told.position(), told.job));
        if count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1 == dies_at {
            std::process::abort();
        }
        Ok(())
    };
    let options = quick_observer().start(ObserverStart::Oldest);
    let observers = Observers::new().on_with("fleet", TransitionFilter::new(), options, callback);
    let store = open(kind, place);
    let _pump = spawn_observers(store, observers).expect("it starts");
    loop {
        // Killed by its parent.
        std::thread::park();
    }
}

fn open(kind: &str, place: &str) -> Arc<dyn Store> {
    match kind {
        "sqlite" => Arc::new(SqliteStore::open(place).expect("the file opens")),
        _ => {
            let builder = PostgresStore::builder(support::postgres::config()).schema(place);
            Arc::new(builder.open().expect("the server answers"))
        }
    }
}

/// A process dies in the middle of telling, and another goes on.
fn inherits(kind: &str, place: &str) {
    let store = match kind {
        "sqlite" => {
            let builder = SqliteStore::builder(place).history(HistoryPolicy::Transitions);
            Arc::new(builder.open().expect("the file opens")) as Arc<dyn Store>
        }
        _ => {
            let builder = PostgresStore::builder(support::postgres::config()).schema(place);
            let builder = builder.history(HistoryPolicy::Transitions);
            Arc::new(builder.open().expect("the server answers"))
        }
    };
    let client = Client::new(store);
    let jobs: Vec<_> = (0..40).map(|number| task(number.to_string())).collect();
    let jobs = client.enqueue_many(jobs).expect("accepted");
    let jobs: Vec<JobId> = jobs.into_iter().map(|job| job.id).collect();
    for job in &jobs[..20] {
        client.operator("ada").cancel(*job).expect("cancelled");
    }
    let mut told = Told::default();
    let mut hear = |worker: &Worker| {
        let said = worker.hear();
        let (position, job) = said.split_once(' ').expect("a position and a job");
        told.note(job.parse().expect("an id"), position.parse().expect("a number"));
        told.known.len()
    };
    let first = Worker::start("child", &format!("{kind} 25 {place}"));
    while hear(&first) < 25 {}
    let second = Worker::start("child", &format!("{kind} 0 {place}"));
    while hear(&second) < 60 {}
    drop((first, second));
    told.assert_complete(&client, &jobs);
    assert!(told.count > 60, "what the first could not write was told again");
}

#[test]
fn a_process_that_dies_in_the_middle_is_inherited_from_on_sqlite() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("jobs.db");
    inherits("sqlite", file.to_str().expect("a path of plain characters"));
}

#[test]
fn a_process_that_dies_in_the_middle_is_inherited_from_on_postgres() {
    let schema = support::postgres::fresh_schema();
    inherits("postgres", schema.name());
}

/// A store on Postgres with a schema of its own.
fn postgres() -> (support::postgres::Schema, PostgresStore, World) {
    let schema = support::postgres::fresh_schema();
    let builder = PostgresStore::builder(support::postgres::config()).schema(schema.name());
    let store = builder.open().expect("the server answers");
    let world = World::new(store.clone(), Default::default(), None);
    (schema, store, world)
}

#[test]
fn a_transaction_that_stays_open_holds_nobody_up_and_is_told_of_when_it_commits() {
    let (_schema, store, world) = postgres();
    let ear = Ear::new();
    let observers = Observers::new().on_with("late", births(), quick_observer(), ear.hears());
    let pump = observe(&world, observers);
    let mut db = support::postgres::connect();
    let mut tx = db.transaction().expect("begun");
    let late = store.enqueue_in(&mut tx, task("late")).expect("accepted").id;
    // Both have higher positions, and are told in rounds of their own.
    for what in ["soon", "sooner"] {
        let job = world.enqueue(task(what));
        assert_eq!(ear.heard().job, job);
    }
    tx.commit().expect("committed");
    assert_eq!(ear.heard().job, late);
    pump.shutdown();
    assert_eq!(ear.unheard(), []);
}

#[test]
fn an_older_transaction_that_ends_a_younger_ones_job_is_told_of_after_its_birth() {
    let (schema, _store, world) = postgres();
    let ear = Ear::new();
    let all = TransitionFilter::new();
    let watch = |name: &str, start| {
        let options = quick_observer().start(start);
        observe(&world, Observers::new().on_with(name, all.clone(), options, ear.hears()))
    };
    let pump = watch("meanwhile", ObserverStart::Now);
    let mut db = support::postgres::connect();
    let mut tx = db.transaction().expect("begun");
    tx.execute("SELECT pg_current_xact_id()", &[]).expect("it has an id");
    let job = world.enqueue(task("younger"));
    assert_eq!((ear.heard().to(), ear.unheard()), (JobState::Scheduled, Vec::new()));
    let cancel = format!(
        "SELECT answer FROM \"{}\".request_cancel_v2('ada', '{job}'::uuid, 0::smallint)",
        schema.name()
    );
    tx.execute(&cancel, &[]).expect("cancelled");
    tx.commit().expect("committed");
    assert_eq!(ear.heard().to(), JobState::Cancelled);
    pump.shutdown();
    // Also where both lie in one round.
    let _pump = watch("afterwards", ObserverStart::Oldest);
    assert_eq!([ear.heard().to(), ear.heard().to()], [JobState::Scheduled, JobState::Cancelled]);
    eventually("it has passed both", || {
        world.client.monitor().observer_lag("afterwards").expect("read") == Some(Duration::ZERO)
    });
    assert_eq!(ear.unheard(), []);
}
