//! Calls that the server has carried out and whose answers the client never hears, and calls that never
//! arrive: whatever is lost, each job ends once, with the right numbers, and soon.

mod support;

use backwave::{Client, Group, GroupOptions, Health, JobId, NewJob, PostgresStore, spawn_group};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::audit::{Audit, last};
use support::drill::{Dice, Ledger, PATIENCE, assert_no_alarm, drill, drills, quick};
use support::log;
use support::postgres::{Schema, config, config_at, fresh_schema, port};
use support::proxy::{Mischief, Proxy};

const ROUNDS: usize = 30;
/// A lease that nobody waits out.
const LEASE: Duration = Duration::from_secs(60);
/// For how long calls are lost in a drain, on a machine so busy that it does not end before.
const LOSSY_FOR: Duration = Duration::from_secs(10);
/// How long a round may take: far less than a lease.
const SOON: Duration = Duration::from_secs(5);

const CLAIM: &[&str] = &["claim_v2("];
const REPORT: &[&str] = &["report_v2("];
const EXCHANGE: &[&str] = &["exchange_v2("];
const ENQUEUE: &[&str] = &["enqueue_fresh_v2("];
const ANY: &[&str] =
    &["claim_v2(", "report_v2(", "exchange_v2(", "hand_back_v2(", "held_by_v1(", "renew_v1("];

/// A store behind a proxy; the client goes round it, unless it is what is tried.
struct Scene {
    proxy: Proxy,
    behind: PostgresStore,
    client: Client,
    audit: Audit,
    ledger: Arc<Ledger>,
    health: Arc<Health>,
    _schema: Schema,
}

fn scene() -> Scene {
    log::record();
    let schema = fresh_schema();
    let proxy = Proxy::to(port());
    let direct = PostgresStore::builder(config()).schema(schema.name());
    let client = Client::new(direct.open().expect("the server answers"));
    let behind = PostgresStore::builder(config_at(proxy.port())).schema(schema.name());
    let behind = behind.open().expect("the server answers through the proxy");
    let audit = Audit::begin(&config(), schema.name());
    let (ledger, health) = (Ledger::new(), Arc::new(Health::new()));
    Scene { proxy, behind, client, audit, ledger, health, _schema: schema }
}

impl Scene {
    fn spawn(&self, options: GroupOptions) -> Group {
        let store = self.behind.clone();
        let group = spawn_group(store, self.ledger.registry(), options, Arc::clone(&self.health));
        group.expect("the group starts")
    }

    fn enqueue(&self, job: NewJob) -> JobId {
        self.client.enqueue(job).expect("accepted").id
    }

    fn enqueue_all(&self, jobs: Vec<NewJob>) -> Vec<JobId> {
        let enqueued = self.client.enqueue_many(jobs).expect("accepted");
        enqueued.into_iter().map(|job| job.id).collect()
    }

    fn wait(&self, ids: &[JobId]) {
        for id in ids {
            self.client.wait(*id, PATIENCE).expect("it ends");
        }
    }

    /// Everything that must hold at the end, whatever was lost.
    fn assert_sound(&self, group: Group, ids: &[JobId]) -> support::audit::Trail {
        let name = group.name().to_owned();
        let report = group.shutdown();
        assert_eq!((report.unanswered, report.halts.len()), (0, 0), "{report:?}");
        let trail = self.audit.assert_each_succeeded_once(ids);
        assert!(self.health.is_healthy());
        assert!(log::lines(&name, 1202).is_empty(), "no lease was lost");
        let ended = log::lines(&name, 1103);
        assert_eq!(ended.len(), ids.len(), "each end is told once");
        assert_no_alarm();
        trail
    }
}

/// Polls so rarely that an outcome goes by itself, and hears of work by hints.
fn unhurried(name: &str) -> GroupOptions {
    quick(name).lease(LEASE).poll_interval(Duration::from_millis(30), Duration::from_millis(30))
}

#[test]
fn a_report_whose_answer_was_lost_is_found_applied_and_counted_once() {
    let scene = scene();
    let group = scene.spawn(unhurried("lost-reports"));
    let mut ids = Vec::new();
    let mut tries = 0;
    while scene.proxy.fired() < ROUNDS {
        tries += 1;
        assert!(tries <= 5 * ROUNDS, "reports go by themselves now and then");
        scene.proxy.arm(REPORT, Mischief::LoseAnswer);
        let began = Instant::now();
        let id = scene.enqueue(drill(0, 0));
        scene.behind_wakes();
        scene.wait(&[id]);
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
        ids.push(id);
        // Its outcome may have gone with a claim, which was not armed; the next round waits for it.
        assert!(group.wait_until_idle(PATIENCE), "it settles down");
    }
    scene.proxy.disarm();
    let trail = scene.assert_sound(group, &ids);
    for id in &ids {
        assert_eq!(last(&trail, *id), (1, 0), "no second attempt");
        assert_eq!(scene.ledger.attempts(*id), [1], "no second effect");
    }
}

#[test]
fn a_report_that_never_arrived_is_sent_again() {
    let scene = scene();
    let group = scene.spawn(unhurried("lost-report-requests"));
    let mut ids = Vec::new();
    while scene.proxy.fired() < ROUNDS {
        scene.proxy.arm(&["report_v2(", "exchange_v2("], Mischief::LoseRequest);
        let id = scene.enqueue(drill(0, 0));
        scene.behind_wakes();
        scene.wait(&[id]);
        ids.push(id);
    }
    let trail = scene.assert_sound(group, &ids);
    for id in &ids {
        assert_eq!((last(&trail, *id), scene.ledger.attempts(*id)), ((1, 0), vec![1]));
    }
}

#[test]
fn leases_of_a_claim_whose_answer_was_lost_are_handed_back_and_not_waited_out() {
    let scene = scene();
    let group = scene.spawn(unhurried("lost-claims"));
    let mut ids = Vec::new();
    let mut handed_back = 0;
    while handed_back < ROUNDS {
        assert!(ids.len() < 15 * ROUNDS, "most claims that are lost are those which find the jobs");
        assert!(group.wait_until_idle(PATIENCE), "nothing is under way");
        scene.proxy.arm(CLAIM, Mischief::LoseAnswer);
        let began = Instant::now();
        let batch = scene.enqueue_all(drills(3, 0));
        scene.behind_wakes();
        scene.wait(&batch);
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
        // A poll may have come in between, found nothing and been lost instead.
        let attempt = scene.client.monitor().job(batch[0]).expect("it is there").attempt;
        handed_back += usize::from(attempt == 2);
        ids.extend(batch);
    }
    let trail = scene.assert_sound(group, &ids);
    let again = ids.iter().filter(|id| last(&trail, **id) == (2, 0)).count();
    let once = ids.iter().filter(|id| last(&trail, **id) == (1, 0)).count();
    assert_eq!(again + once, ids.len(), "no failure is counted: {trail:?}");
    assert!(again >= ROUNDS, "{again} jobs were handed back");
    assert_eq!(scene.ledger.total(), ids.len(), "what was handed back had not run");
}

#[test]
fn an_exchange_whose_answer_was_lost_costs_neither_the_report_nor_the_claim() {
    let scene = scene();
    let group = scene.spawn(unhurried("lost-exchanges").workers(2));
    let mut ids = Vec::new();
    for round in 1..=ROUNDS {
        scene.proxy.arm(EXCHANGE, Mischief::LoseAnswer);
        let began = Instant::now();
        let batch = scene.enqueue_all(drills(12, 1));
        scene.behind_wakes();
        scene.proxy.wait_fired(round);
        scene.wait(&batch);
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
        ids.extend(batch);
    }
    let trail = scene.assert_sound(group, &ids);
    let again = ids.iter().filter(|id| last(&trail, **id).0 > 1).count();
    assert!(again > 0, "leases of lost claims were handed back");
    for id in &ids {
        assert_eq!(last(&trail, *id).1, 0, "no failure");
        assert_eq!(scene.ledger.attempts(*id).len(), 1, "no second effect");
    }
}

#[test]
fn an_enqueue_whose_answer_was_lost_is_told_as_a_success_and_stored_once() {
    let scene = scene();
    let client = Client::new(scene.behind.clone());
    client.enqueue(drill(0, 0)).expect("accepted");
    for (round, mischief) in
        (1..=ROUNDS).zip([Mischief::LoseAnswer, Mischief::LoseRequest].into_iter().cycle())
    {
        scene.proxy.arm(ENQUEUE, mischief);
        let job = NewJob::raw("drill", r#"{"number":1,"millis":0}"#);
        let enqueued = client.enqueue(job).expect("told as a success");
        assert!(enqueued.is_new, "{mischief:?}");
        scene.proxy.wait_fired(round);
        let record = client.monitor().job(enqueued.id).expect("it is stored");
        assert_eq!(record.attempt, 0);
    }
    assert_eq!(scene.audit.jobs(), 1 + ROUNDS as i64, "each once");
    assert_no_alarm();
}

#[test]
fn whatever_calls_are_lost_in_a_drain_each_job_ends_once() {
    for (seed, mischief) in [(1, Mischief::LoseAnswer), (2, Mischief::LoseRequest)] {
        let scene = scene();
        let mut dice = Dice::new(seed);
        let ids = scene.enqueue_all(drills(600, 1));
        let group = scene.spawn(quick(&format!("lossy-drain-{seed}")).lease(LEASE).pumps(2));
        let began = Instant::now();
        while scene.ledger.jobs() < ids.len() && began.elapsed() < LOSSY_FOR {
            scene.proxy.arm(ANY, mischief);
            // Sleeps to spread the mischief over moments of chance, and waits for nothing by it.
            std::thread::sleep(Duration::from_millis(10 + dice.roll(40)));
        }
        scene.proxy.disarm();
        scene.wait(&ids);
        assert!(scene.proxy.fired() > 5, "{} calls were lost", scene.proxy.fired());
        let trail = scene.assert_sound(group, &ids);
        for id in &ids {
            assert_eq!(last(&trail, *id).1, 0, "no failure");
            assert_eq!(scene.ledger.attempts(*id).len(), 1, "no second effect");
        }
    }
}

impl Scene {
    /// Two stores opened apart on different ports do not find each other: the hint goes by the store
    /// that the group has.
    fn behind_wakes(&self) {
        use backwave::store::Store;
        self.behind.hub().wake("default", Duration::ZERO);
    }
}
