//! Several groups with several pumps on one Postgres: each job once, and a stop at any moment leaves no
//! lease behind.

mod support;

use backwave::{Client, Group, Health, HealthStatus, JobId, PostgresStore, spawn_group};
use std::sync::Arc;
use std::time::Duration;
use support::audit::{Audit, last};
use support::drill::{Dice, Ledger, PATIENCE, assert_no_alarm, drills, quick};
use support::postgres::{Schema, config, fresh_schema};

struct Scene {
    store: PostgresStore,
    client: Client,
    audit: Audit,
    ledger: Arc<Ledger>,
    health: Arc<Health>,
    _schema: Schema,
}

fn scene() -> Scene {
    let schema = fresh_schema();
    let store = PostgresStore::builder(config()).schema(schema.name());
    let store = store.open().expect("the server answers");
    let audit = Audit::begin(&config(), schema.name());
    let client = Client::new(store.clone());
    let (ledger, health) = (Ledger::new(), Arc::new(Health::new()));
    Scene { store, client, audit, ledger, health, _schema: schema }
}

impl Scene {
    fn spawn(&self, name: &str) -> Group {
        let options = quick(name).lease(Duration::from_secs(60)).pumps(3);
        let (store, health) = (self.store.clone(), Arc::clone(&self.health));
        spawn_group(store, self.ledger.registry(), options, health).expect("the group starts")
    }

    fn enqueue(&self, count: u32, millis: u64) -> Vec<JobId> {
        let jobs = self.client.enqueue_many(drills(count, millis)).expect("accepted");
        jobs.into_iter().map(|job| job.id).collect()
    }
}

#[test]
fn two_groups_of_three_pumps_drain_a_thousand_jobs_each_once() {
    let scene = scene();
    let ids = scene.enqueue(1000, 0);
    let groups = [scene.spawn("first"), scene.spawn("second")];
    for group in &groups {
        assert!(group.wait_until_idle(PATIENCE), "it drains");
    }
    assert_eq!(scene.health.check().status, HealthStatus::Healthy);
    for group in &groups {
        let report = group.shutdown();
        assert_eq!(report, Default::default());
    }
    let trail = scene.audit.assert_each_succeeded_once(&ids);
    for id in &ids {
        assert_eq!((last(&trail, *id), scene.ledger.attempts(*id)), ((1, 0), vec![1]));
    }
    assert_no_alarm();
}

#[test]
fn a_stop_at_any_moment_leaves_no_lease_and_loses_no_job() {
    let scene = scene();
    let mut dice = Dice::new(3);
    let mut ids = Vec::new();
    for round in 0..50 {
        ids.extend(scene.enqueue(60, dice.roll(3)));
        let group = scene.spawn(&format!("round-{round}"));
        // Sleeps so that the end comes at a moment of chance.
        std::thread::sleep(Duration::from_millis(dice.roll(60)));
        let report = group.shutdown();
        assert_eq!((report.unanswered, report.halts.len()), (0, 0), "{report:?}");
        assert!(report.still_running.is_empty(), "{report:?}");
        assert_eq!(scene.audit.leased(), 0, "round {round}: {report:?}");
    }
    let last_group = scene.spawn("last");
    assert!(last_group.wait_until_idle(PATIENCE), "it drains what the others left");
    last_group.shutdown();
    let trail = scene.audit.assert_each_succeeded_once(&ids);
    for id in &ids {
        assert_eq!(last(&trail, *id).1, 0, "a hand-back is no failure");
        assert_eq!(scene.ledger.attempts(*id).len(), 1, "what was handed back had not run");
    }
    assert_no_alarm();
}
