//! Recurring schedules through groups and clients: ticks that come, that are missed and that overlap, what changes
//! do, and that a bad one harms no other.

mod support;

use backwave::schedule::{
    CatchUp, Declaration, FaultReason, Schedule, ScheduleError, ScheduleInfo, SkipReason,
};
use backwave::store::{AuditAction, AuditFilter, ScheduleRow};
use backwave::{
    Group, GroupOptions, HealthStatus, Job, JobId, JobState, NewJob, Registry, Timestamp,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::gate::Gate;
use support::world::{PATIENCE, World, eventually, quick};

on_every_store!(
    a_tick_mints_a_job_that_knows_its_tick,
    a_declaration_is_looked_at_at_once,
    each_tick_is_minted_once_however_many_groups_look,
    a_long_absence_is_skipped_or_made_up_for_by_one_job,
    a_tick_is_skipped_while_the_job_of_an_earlier_one_lives,
    a_paused_schedule_mints_nothing_and_catches_nothing_up,
    what_is_done_by_hand_is_audited,
    a_declaration_is_the_whole_set_of_its_owner,
    a_change_makes_no_run_by_itself,
    declaring_the_same_again_and_again_changes_nothing,
    what_does_not_read_harms_no_other_schedule,
    a_job_over_a_bound_is_the_error_of_its_schedule,
    everything_that_is_wrong_is_told_at_once,
);

const HOUR: Duration = Duration::from_secs(3600);

#[derive(Serialize, Deserialize)]
struct Report;

impl Job for Report {
    const WIRE_NAME: &'static str = "report";
}

type Ticks = Arc<Mutex<Vec<(JobId, String, Timestamp)>>>;

/// A group that notes the ticks that it runs.
fn noting(world: &World, ticks: &Ticks, options: GroupOptions) -> Group {
    let ticks = Arc::clone(ticks);
    let registry = Registry::new().handle(move |ctx, _: Report| {
        if let (Some(schedule), Some(tick)) = (ctx.schedule(), ctx.tick()) {
            ticks.lock().unwrap().push((ctx.job_id(), schedule.to_owned(), tick));
        }
        Ok(())
    });
    // These tests put the clock forward by hours, also while a job runs.
    world.spawn(registry, options.lease(HOUR * 12))
}

fn hourly(name: &str) -> Schedule {
    Schedule::every(name, HOUR, &Report)
}

fn declare(world: &World, schedules: impl IntoIterator<Item = Schedule>) {
    world.client.schedules().declare("shop", schedules).expect("they are right");
}

fn info(world: &World, name: &str) -> ScheduleInfo {
    let all = world.client.schedules().list().expect("they can be read");
    all.into_iter().find(|schedule| schedule.name == name).expect("it is there")
}

/// Puts the store's clock on to the next tick of a schedule, once nodes have looked at it.
fn skip_to_tick(world: &World, name: &str) -> Timestamp {
    let tick = info(world, name).next_tick.expect("it ticks");
    skip_to(world, tick);
    tick
}

fn skip_to(world: &World, time: Timestamp) {
    use backwave::store::StoreClock;
    world.clock.skip(time.since(world.clock.now()));
}

fn now(world: &World) -> Timestamp {
    use backwave::store::StoreClock;
    world.clock.now()
}

fn a_tick_mints_a_job_that_knows_its_tick(world: &World) {
    let ticks = Ticks::default();
    declare(world, [hourly("hourly").tag("by the clock").queue("slow")]);
    let options = quick(&world.name("ticks"));
    let group = noting(world, &ticks, options.dispatch(backwave::DispatchPolicy::strict(["slow"])));
    let tick = skip_to_tick(world, "hourly");
    eventually("the tick is run", || !ticks.lock().unwrap().is_empty());
    let (job, schedule, at) = ticks.lock().unwrap()[0].clone();
    assert_eq!((schedule.as_str(), at), ("hourly", tick));
    let record = world.ended(job);
    assert_eq!(
        (record.queue.as_str(), record.tags.as_slice()),
        ("slow", &["by the clock".to_owned()][..])
    );
    assert_eq!(record.tick.map(|tick| tick.at), Some(tick));
    let info = info(world, "hourly");
    assert_eq!((info.last_tick, info.last_job), (Some(tick), Some(job)));
    assert_eq!((info.next_tick, info.skipped, info.error), (Some(tick + HOUR), 0, None));
    group.shutdown();
}

fn a_declaration_is_looked_at_at_once(world: &World) {
    let ticks = Ticks::default();
    // Neither polls nor maintenance come in the time of this test.
    let options = GroupOptions::new(world.name("at once"))
        .poll_interval(PATIENCE * 2, PATIENCE * 2)
        .maintenance_interval(PATIENCE * 2);
    let group = noting(world, &ticks, options);
    assert!(group.wait_until_idle(PATIENCE));
    let soon = now(world) + Duration::from_secs(1);
    declare(world, [hourly("soon").starts_at(soon)]);
    eventually("the tick is run", || !ticks.lock().unwrap().is_empty());
    assert_eq!(ticks.lock().unwrap()[0].2, soon);
    group.shutdown();
}

fn each_tick_is_minted_once_however_many_groups_look(world: &World) {
    let ticks = Ticks::default();
    let groups: Vec<_> = (0..3)
        .map(|number| noting(world, &ticks, quick(&world.name(&format!("one of three: {number}")))))
        .collect();
    declare(world, ["a", "b", "c"].map(hourly));
    for round in 1..=8 {
        skip_to_tick(world, "a");
        eventually("every schedule has ticked", || ticks.lock().unwrap().len() >= 3 * round);
        eventually("the next tick is known", || info(world, "a").next_tick > Some(now(world)));
    }
    for group in groups {
        group.shutdown();
    }
    let seen = ticks.lock().unwrap();
    let distinct: BTreeSet<_> = seen.iter().map(|(_, name, tick)| (name, tick)).collect();
    let jobs: BTreeSet<_> = seen.iter().map(|(job, ..)| job).collect();
    assert_eq!((seen.len(), distinct.len(), jobs.len()), (24, 24, 24));
    assert_eq!(world.count(JobState::Succeeded), 24);
}

fn a_long_absence_is_skipped_or_made_up_for_by_one_job(world: &World) {
    let ticks = Ticks::default();
    // So that neither the absence nor the test's own time meets a tick by chance.
    let start = now(world) + Duration::from_secs(1800);
    let of = |name| hourly(name).starts_at(start);
    declare(world, [of("skips"), of("makes up").catch_up(CatchUp::Coalesce)]);
    let week = start + HOUR * 24 * 7 + HOUR / 2;
    skip_to(world, week);
    let group = noting(world, &ticks, quick(&world.name("absent")));
    eventually("both are looked at", || {
        ["skips", "makes up"].iter().all(|name| info(world, name).next_tick > Some(week))
    });
    eventually("the one job is run", || !ticks.lock().unwrap().is_empty());
    group.shutdown();
    let newest = start + HOUR * 24 * 7;
    let ran: Vec<_> =
        ticks.lock().unwrap().iter().map(|(_, name, tick)| (name.clone(), *tick)).collect();
    assert_eq!(ran, [("makes up".to_owned(), newest)]);
    let (skips, makes_up) = (info(world, "skips"), info(world, "makes up"));
    assert_eq!((skips.skipped, skips.last_skip), (169, Some((newest, SkipReason::Missed))));
    assert_eq!((makes_up.skipped, makes_up.last_skip), (0, None));
    assert_eq!((skips.next_tick, makes_up.next_tick), (Some(newest + HOUR), Some(newest + HOUR)));
    assert_eq!(world.count(JobState::Succeeded), 1);
}

fn a_tick_is_skipped_while_the_job_of_an_earlier_one_lives(world: &World) {
    let gate = Gate::new();
    let (passing, options) = (gate.clone(), quick(&world.name("overlap")).lease(HOUR * 12));
    let registry = Registry::new().handle(move |_, _: Report| {
        passing.pass("running");
        Ok(())
    });
    let group = world.spawn(registry, options);
    declare(world, [hourly("alone").no_overlap()]);
    eventually("it is looked at", || info(world, "alone").next_tick.is_some());
    skip_to_tick(world, "alone");
    assert_eq!(gate.heard(), "running");
    let second = skip_to_tick(world, "alone");
    eventually("the tick is skipped", || info(world, "alone").skipped == 1);
    assert_eq!(info(world, "alone").last_skip, Some((second, SkipReason::Overlap)));
    let running = info(world, "alone").last_job.expect("one runs");
    gate.open();
    world.ended(running);
    let third = skip_to_tick(world, "alone");
    assert_eq!(gate.heard(), "running");
    assert_eq!(info(world, "alone").last_tick, Some(third));
    gate.open();
    group.shutdown();
}

fn a_paused_schedule_mints_nothing_and_catches_nothing_up(world: &World) {
    let ticks = Ticks::default();
    let group = noting(world, &ticks, quick(&world.name("paused")));
    declare(world, [hourly("paused").catch_up(CatchUp::Coalesce), hourly("other")]);
    let schedules = world.client.schedules();
    assert!(schedules.pause("paused").unwrap());
    assert!(!schedules.pause("paused").unwrap(), "it was paused before");
    for round in 1..=3 {
        skip_to_tick(world, "other");
        eventually("the other ticks", || ticks.lock().unwrap().len() == round);
        eventually("its next is known", || info(world, "other").next_tick > Some(now(world)));
    }
    assert_eq!((info(world, "paused").is_paused, info(world, "paused").next_tick), (true, None));
    declare(world, [hourly("paused").no_overlap(), hourly("other")]);
    assert!(info(world, "paused").is_paused, "a declaration does not resume it");
    assert!(schedules.resume("paused").unwrap());
    skip_to_tick(world, "other");
    eventually("both tick", || ticks.lock().unwrap().len() == 5);
    group.shutdown();
    let seen = ticks.lock().unwrap();
    assert_eq!(seen.iter().filter(|(_, name, _)| name == "paused").count(), 1);
}

fn what_is_done_by_hand_is_audited(world: &World) {
    let ticks = Ticks::default();
    let group = noting(world, &ticks, quick(&world.name("by hand")));
    declare(world, [Schedule::cron("nightly", "0 0 1 1 *", &Report).queue("default")]);
    let by_ada = world.client.schedules().by("ada");
    by_ada.pause("nightly").unwrap();
    let job = by_ada.trigger("nightly").unwrap();
    let record = world.ended(job);
    assert_eq!((record.state, record.tick), (JobState::Succeeded, None));
    by_ada.resume("nightly").unwrap();
    world.client.schedules().remove("nightly").unwrap();
    assert_eq!(world.client.schedules().list().unwrap(), []);
    assert!(ticks.lock().unwrap().is_empty(), "what is triggered stands for no tick");
    let audit = world.client.monitor().audit(&AuditFilter::default()).unwrap();
    let told = |record: &backwave::store::AuditRecord| {
        (record.actor.clone(), record.action, record.job, record.subject.clone())
    };
    let expected = [
        ("program", AuditAction::RemoveSchedule, None),
        ("ada", AuditAction::ResumeSchedule, None),
        ("ada", AuditAction::TriggerSchedule, Some(job)),
        ("ada", AuditAction::PauseSchedule, None),
    ];
    let expected = expected
        .map(|(actor, action, job)| (actor.to_owned(), action, job, Some("nightly".to_owned())));
    assert_eq!(audit.iter().map(told).collect::<Vec<_>>(), expected);
    for gone in [by_ada.pause("nightly"), by_ada.resume("nightly")] {
        assert!(matches!(gone, Err(ScheduleError::NotFound { schedule }) if schedule == "nightly"));
    }
    assert!(matches!(by_ada.trigger("nightly"), Err(ScheduleError::NotFound { .. })));
    assert!(matches!(by_ada.remove("nightly"), Err(ScheduleError::NotFound { .. })));
    group.shutdown();
}

fn a_declaration_is_the_whole_set_of_its_owner(world: &World) {
    let schedules = world.client.schedules();
    let names = || -> Vec<_> {
        schedules.list().unwrap().into_iter().map(|info| (info.owner, info.name)).collect()
    };
    let first = schedules.declare("one", [hourly("s1"), hourly("s2")]).unwrap();
    assert_eq!((first.schedules, first.removed), (vec![Declaration::Added; 2], vec![]));
    assert_eq!(schedules.upsert("other", hourly("theirs")).unwrap(), Declaration::Added);
    // Another release of the same program: the last one wins, whole.
    let second = schedules.declare("one", [hourly("s2"), hourly("s3")]).unwrap();
    assert_eq!(second.schedules, [Declaration::Unchanged, Declaration::Added]);
    assert_eq!(second.removed, ["s1"]);
    let first = schedules.declare("one", [hourly("s1"), hourly("s2")]).unwrap();
    assert_eq!(first.removed, ["s3"]);
    let own = |(owner, name): (&str, &str)| (owner.to_owned(), name.to_owned());
    assert_eq!(names(), [("one", "s1"), ("one", "s2"), ("other", "theirs")].map(own));
    let foreign = schedules.declare("one", [hourly("s4"), hourly("theirs")]);
    let Err(ScheduleError::Foreign { schedule, owner }) = foreign else { panic!("{foreign:?}") };
    assert_eq!((schedule.as_str(), owner.as_str()), ("theirs", "other"));
    assert_eq!(names().len(), 3, "nothing was written");
    assert_eq!(schedules.upsert("one", hourly("s5")).unwrap(), Declaration::Added);
    assert_eq!(names().len(), 4, "one alone takes none away");
}

fn a_change_makes_no_run_by_itself(world: &World) {
    let ticks = Ticks::default();
    let group = noting(world, &ticks, quick(&world.name("changed")));
    let start = now(world).saturating_sub(HOUR * 24 * 30);
    declare(world, [hourly("changing").starts_at(start)]);
    eventually("it is looked at", || info(world, "changing").next_tick.is_some());
    // Every timing that it could have had would have ticked in the past.
    let other = start + Duration::from_secs(600);
    declare(world, [hourly("changing").starts_at(other).catch_up(CatchUp::Coalesce)]);
    eventually("it is looked at", || info(world, "changing").settled_until > start);
    let next = info(world, "changing").next_tick.expect("it ticks");
    assert!(next > now(world) && next.since(other).as_secs().is_multiple_of(3600));
    // A payload, a queue or a tag changes nothing of when it ticks.
    declare(world, [hourly("changing").starts_at(other).catch_up(CatchUp::Coalesce).tag("new")]);
    assert_eq!(info(world, "changing").next_tick, Some(next));
    assert!(ticks.lock().unwrap().is_empty());
    skip_to(world, next);
    eventually("the tick is run", || !ticks.lock().unwrap().is_empty());
    let (job, _, tick) = ticks.lock().unwrap()[0].clone();
    assert_eq!((tick, world.job(job).tags), (next, vec!["new".to_owned()]));
    group.shutdown();
}

fn declaring_the_same_again_and_again_changes_nothing(world: &World) {
    let set = || {
        [hourly("a").no_overlap(), Schedule::cron("b", "@daily", &Report).zone("Asia/Kathmandu")]
    };
    declare(world, set());
    let before = world.client.schedules().list().unwrap();
    for _ in 0..50 {
        let again = world.client.schedules().declare("shop", set()).unwrap();
        assert_eq!(again.schedules, [Declaration::Unchanged; 2]);
    }
    assert_eq!(world.client.schedules().list().unwrap(), before);
}

fn what_does_not_read_harms_no_other_schedule(world: &World) {
    let ticks = Ticks::default();
    declare(
        world,
        [hourly("good"), Schedule::cron("moved", "@daily", &Report).zone("Europe/Berlin")],
    );
    let broken = [
        ("gone zone", r#"{"cron":"* * * * *","zone":"Mars/Olympus"}"#, "{}"),
        ("no timing", "not JSON", "{}"),
        ("never", r#"{"cron":"0 0 30 2 *"}"#, "{}"),
    ];
    let rows = broken.map(|(name, timing, definition)| {
        ScheduleRow::new(
            name.to_owned(),
            "sql".to_owned(),
            timing.to_owned(),
            definition.to_owned(),
        )
    });
    world.store.open_session().unwrap().declare("sql", &rows, true).unwrap();
    let group = noting(world, &ticks, quick(&world.name("broken")));
    eventually("each error stands", || {
        broken.iter().all(|(name, ..)| info(world, name).error.is_some())
    });
    skip_to_tick(world, "good");
    eventually("the good one ticks", || !ticks.lock().unwrap().is_empty());
    assert!(world.health.is_healthy());
    assert_ne!(world.health.check().status, HealthStatus::Unhealthy);
    let since = info(world, "never").error.expect("it stands").1;
    world.clock.skip(Duration::from_secs(120));
    eventually("it is looked at again", || info(world, "good").settled_until > since);
    assert_eq!(info(world, "never").error.map(|(_, since)| since), Some(since));
    let cannot = world.client.schedules().trigger("no timing");
    assert!(matches!(cannot, Err(ScheduleError::Untriggerable { .. })), "{cannot:?}");
    group.shutdown();
}

fn a_job_over_a_bound_is_the_error_of_its_schedule(world: &World) {
    let ticks = Ticks::default();
    // Written past the client, which would have refused it.
    let definition = format!(
        r#"{{"wire_name":"report","version":1,"queue":"default","payload":"{}","catch_up":"skip","grace_us":60000000,"no_overlap":false}}"#,
        "x".repeat(70_000)
    );
    let (name, owner) = ("too large".to_owned(), "sql".to_owned());
    let row = ScheduleRow::new(name, owner, r#"{"every_us":3600000000}"#.to_owned(), definition);
    world.store.open_session().unwrap().declare("sql", &[row], true).unwrap();
    declare(world, [hourly("good")]);
    let group = noting(world, &ticks, quick(&world.name("over a bound")));
    eventually("it is looked at", || info(world, "good").next_tick.is_some());
    skip_to_tick(world, "good");
    eventually("the good one ticks", || !ticks.lock().unwrap().is_empty());
    eventually("the error stands", || info(world, "too large").error.is_some());
    let (error, _) = info(world, "too large").error.expect("it stands");
    assert!(error.starts_with("its job is refused: the payload has 70002 bytes"), "{error}");
    assert_eq!(info(world, "too large").last_tick, None);
    group.shutdown();
}

fn everything_that_is_wrong_is_told_at_once(world: &World) {
    let schedules = world.client.schedules();
    let wrong = [
        Schedule::cron("", "* * * * *", &Report),
        Schedule::cron("twice", "* * * * *", &Report),
        Schedule::cron("twice", "61 * * * *", &Report).zone("Mars/Olympus"),
        Schedule::every("hasty", Duration::from_millis(10), &Report)
            .zone("UTC")
            .grace(Duration::ZERO),
        Schedule::cron("own", "@daily", NewJob::new(&Report).id(JobId::new())),
        Schedule::cron("due", "@daily", NewJob::new(&Report).delay(HOUR)).jitter(HOUR * 48),
        Schedule::cron("text", "@daily", NewJob::raw("report", "{")),
        Schedule::cron("queue", "@daily", &Report).queue(""),
        Schedule::cron("ends", "@daily", &Report)
            .starts_at(Timestamp::EPOCH + HOUR)
            .ends_at(Timestamp::EPOCH),
    ];
    let Err(ScheduleError::Refused { faults }) = schedules.declare("shop", wrong) else {
        panic!("it was declared")
    };
    let told: Vec<_> = faults.iter().map(|fault| fault.schedule.as_str()).collect();
    let expected = [
        "", "twice", "twice", "hasty", "hasty", "hasty", "own", "due", "due", "text", "queue",
        "ends",
    ];
    assert_eq!(told, expected, "{faults:#?}");
    assert!(matches!(faults[1].reason, FaultReason::Expression { .. }));
    assert!(matches!(faults[2].reason, FaultReason::NameTwice));
    assert_eq!(world.client.schedules().list().unwrap(), []);
    assert!(matches!(schedules.declare("", []), Err(ScheduleError::Owner { .. })));
}
