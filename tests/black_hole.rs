//! A network that swallows what is sent and closes nothing. Nothing on the client's side bounds a read:
//! the server's own timeouts do where it can be reached, the network's where packets stay
//! unacknowledged, and behind something that acknowledges for a server that is away only health can
//! tell. What must hold all the same: health tells in time, handlers hear of their leases, a stop comes
//! back, a caller is not kept for ever, and everything heals.

mod support;

use backwave::{
    CancelReason, Client, DegradedCause, EnqueueError, Group, GroupOptions, Health, HealthStatus,
    Job, JobContext, JobId, JobResult, NewJob, PostgresStore, Registry, spawn_group,
};
use crossbeam_channel::{Receiver, Sender, unbounded};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::audit::{Audit, last};
use support::drill::{Ledger, PATIENCE, assert_no_alarm, drill, drills, eventually, quick};
use support::postgres::{Schema, config, config_at, fresh_schema, port};
use support::proxy::{Mischief, Proxy};

const CALL_TIMEOUT: Duration = Duration::from_secs(1);

struct Scene {
    proxy: Proxy,
    behind: PostgresStore,
    client: Client,
    audit: Audit,
    ledger: Arc<Ledger>,
    health: Arc<Health>,
    schema: Schema,
}

fn scene() -> Scene {
    let schema = fresh_schema();
    let proxy = Proxy::to(port());
    let direct = PostgresStore::builder(config()).schema(schema.name());
    let client = Client::new(direct.open().expect("the server answers"));
    let behind = PostgresStore::builder(config_at(proxy.port())).schema(schema.name());
    let behind = behind.statement_timeout(CALL_TIMEOUT).open();
    let behind = behind.expect("the server answers through the proxy");
    let audit = Audit::begin(&config(), schema.name());
    let (ledger, health) = (Ledger::new(), Arc::new(Health::new()));
    Scene { proxy, behind, client, audit, ledger, health, schema }
}

impl Scene {
    fn spawn(&self, registry: Registry, options: GroupOptions) -> Group {
        let store = self.behind.clone();
        spawn_group(store, registry, options, Arc::clone(&self.health)).expect("the group starts")
    }

    /// A group on a way of its own, which no hole is on.
    fn spawn_beside(&self, name: &str) -> Group {
        let store = PostgresStore::builder(config()).schema(self.schema.name());
        let store = store.statement_timeout(CALL_TIMEOUT).open().expect("the server answers");
        let health = Arc::new(Health::new());
        spawn_group(store, self.ledger.registry(), quick(name), health).expect("the group starts")
    }

    fn enqueue(&self, count: u32, millis: u64) -> Vec<JobId> {
        let jobs = self.client.enqueue_many(drills(count, millis)).expect("accepted");
        jobs.into_iter().map(|job| job.id).collect()
    }

    fn wait(&self, ids: &[JobId]) {
        for id in ids {
            self.client.wait(*id, PATIENCE).expect("it ends");
        }
    }

    fn is_hung(&self) -> bool {
        let degraded = self.health.degraded_groups();
        let mut causes = degraded.values().flatten().map(|degradation| degradation.cause);
        causes.any(|cause| cause == DegradedCause::Hung)
    }

    fn status(&self) -> HealthStatus {
        self.health.check().status
    }
}

/// The heartbeat or the longest poll interval twice, and a call: 4.4 s with a lease of 5 s.
const TOLD_IN: Duration = Duration::from_secs(6);

#[test]
fn a_call_that_never_returns_shows_in_health_and_all_heals_when_the_way_is_open() {
    for (name, calls, mischief) in [
        ("hole-claim", &["claim_v2("][..], Mischief::Swallow),
        ("hole-claim-answer", &["claim_v2("], Mischief::SwallowAnswer),
        ("hole-report", &["report_v2(", "exchange_v2("], Mischief::Swallow),
        ("hole-report-answer", &["report_v2(", "exchange_v2("], Mischief::SwallowAnswer),
    ] {
        let scene = scene();
        let group = scene.spawn(scene.ledger.registry(), quick(name));
        scene.proxy.arm(calls, mischief);
        let ids = scene.enqueue(20, 1);
        scene.proxy.wait_fired(1);
        let told = eventually("the hang is told", || scene.is_hung());
        assert!(told < TOLD_IN, "{name}: {told:?}");
        assert!(scene.health.is_healthy(), "a hang is no halt");
        scene.proxy.heal();
        scene.wait(&ids);
        eventually("the group is healthy", || scene.status() == HealthStatus::Healthy);
        let report = group.shutdown();
        assert_eq!((report.unanswered, report.halts.len()), (0, 0), "{name}: {report:?}");
        let trail = scene.audit.assert_each_succeeded_once(&ids);
        for id in &ids {
            // What was claimed into the hole has lapsed, and has run again at the most once.
            assert!(last(&trail, *id).1 <= 1, "{name}: {trail:?}");
        }
    }
    assert_no_alarm();
}

#[test]
fn connections_that_die_in_the_hole_free_their_pump() {
    let scene = scene();
    let group = scene.spawn(scene.ledger.registry(), quick("hole-cut"));
    scene.proxy.arm(&["report_v2(", "exchange_v2("], Mischief::SwallowAnswer);
    let ids = scene.enqueue(50, 1);
    scene.proxy.wait_fired(1);
    eventually("the hang is told", || scene.is_hung());
    scene.proxy.cut();
    scene.proxy.heal();
    scene.wait(&ids);
    eventually("the group is healthy", || scene.status() == HealthStatus::Healthy);
    group.shutdown();
    scene.audit.assert_each_succeeded_once(&ids);
    assert_no_alarm();
}

/// A job whose handler tells when and why its token fired.
#[derive(Serialize, Deserialize)]
struct Watch;

impl Job for Watch {
    const WIRE_NAME: &'static str = "watch";
}

struct Watcher {
    began: Sender<Instant>,
    fired: Sender<(Instant, Option<CancelReason>)>,
}

impl Watcher {
    fn run(&self, ctx: &JobContext, _: Watch) -> JobResult {
        self.began.send(Instant::now())?;
        let slept = ctx.sleep(PATIENCE);
        self.fired.send((Instant::now(), ctx.token().reason()))?;
        Ok(slept?)
    }
}

type Fired = Receiver<(Instant, Option<CancelReason>)>;

fn watchers() -> (Registry, Receiver<Instant>, Fired) {
    let ((began, has_begun), (fired, has_fired)) = (unbounded(), unbounded());
    let watcher = Arc::new(Watcher { began, fired });
    (Registry::new().handle_with(&watcher, Watcher::run), has_begun, has_fired)
}

#[test]
fn handlers_hear_of_their_lost_lease_while_the_pump_hangs_in_the_renewal() {
    let scene = scene();
    let (registry, has_begun, has_fired) = watchers();
    let options = quick("hole-renew").shutdown_budget(Duration::from_secs(1));
    let group = scene.spawn(registry, options);
    scene.proxy.arm(&["renew_v1("], Mischief::Swallow);
    scene.client.enqueue_many([NewJob::new(&Watch), NewJob::new(&Watch)]).expect("accepted");
    for _ in 0..2 {
        has_begun.recv_timeout(PATIENCE).expect("it runs");
    }
    scene.proxy.wait_fired(1);
    let renewal_at = Instant::now();
    for _ in 0..2 {
        let (at, reason) = has_fired.recv_timeout(PATIENCE).expect("the token fires");
        assert_eq!(reason, Some(CancelReason::LeaseLost));
        let after = at.saturating_duration_since(renewal_at);
        assert!(after < Duration::from_secs(5), "at the lease's end: {after:?}");
    }

    let began = Instant::now();
    let report = group.shutdown();
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert_eq!((report.unanswered, report.halts.len()), (1, 0), "{report:?}");
    scene.proxy.heal();
    eventually("the pump has ended after all", || scene.health.check().groups.is_empty());
    assert_no_alarm();
}

#[test]
fn another_node_inherits_what_a_hung_one_held_and_the_late_outcome_changes_nothing() {
    let scene = scene();
    let group = scene.spawn(scene.ledger.registry(), quick("hole-late").workers(20));
    scene.proxy.arm(&["report_v2(", "exchange_v2("], Mischief::Swallow);
    let ids = scene.enqueue(20, 100);
    scene.proxy.wait_fired(1);
    let other = scene.spawn_beside("hole-heir");
    scene.wait(&ids);
    scene.proxy.heal();
    eventually("the group is healthy", || scene.status() == HealthStatus::Healthy);
    assert!(group.wait_until_idle(PATIENCE), "the late outcomes are settled");
    let report = group.shutdown();
    assert!(report.halts.is_empty(), "{report:?}");
    other.shutdown();
    let trail = scene.audit.assert_each_succeeded_once(&ids);
    for id in &ids {
        assert_eq!(last(&trail, *id), (2, 1), "lapsed once, then done");
        assert_eq!(scene.ledger.attempts(*id), [1, 2]);
    }
    assert_no_alarm();
}

#[test]
fn a_client_whose_call_hangs_gets_an_answer_and_its_jobs_are_stored_once() {
    let scene = scene();
    let client = Client::new(scene.behind.clone());
    client.enqueue_many(drills(1, 0)).expect("accepted");
    scene.proxy.arm(&["enqueue_fresh_v2("], Mischief::SwallowAnswer);
    let ids = [JobId::new(), JobId::new()];
    let jobs = || ids.map(|id| drill(0, 0).id(id));
    let began = Instant::now();
    let told = client.enqueue_many(jobs()).expect_err("nobody answers");
    let took = began.elapsed();
    // Three times the second that the store lets a call take, and ten for a connection.
    assert!(took >= Duration::from_secs(13) && took < Duration::from_secs(16), "{took:?}");
    match &told {
        EnqueueError::OutcomeUnknown { ids: told, .. } => assert_eq!(told, &ids),
        other => panic!("{other:?}"),
    }
    scene.proxy.heal();
    let again = client.enqueue_many(jobs()).expect("another session answers");
    assert!(again.iter().all(|job| !job.is_new), "they had arrived: {again:?}");
    assert_eq!(scene.audit.jobs(), 3);
    assert_no_alarm();
}
