use super::*;
use crate::invariant::InvariantTrigger;
use crate::{JobId, Timestamp};

fn group(health: &Arc<Health>, name: &str, pumps: u32) -> Vec<Pen> {
    health.register(name, pumps, Duration::from_secs(60)).expect("the name is free")
}

fn halt() -> HaltState {
    let trigger = Some(InvariantTrigger::ClaimBatchOverrun);
    HaltState::new("the::Type", None, "3 for 2", trigger)
}

#[test]
fn one_halt_of_three_is_degraded_and_all_three_are_unhealthy() {
    let health = Arc::new(Health::new());
    let pens = group(&health, "mail", 3);
    pens[0].halted(halt());
    assert!(health.is_healthy());
    assert_eq!(health.check().status, HealthStatus::Degraded);
    assert_eq!(health.partially_halted_groups()["mail"].to_string(), "the::Type: 3 for 2");
    assert!(health.halted_groups().is_empty());
    pens[1].halted(halt());
    pens[2].halted(halt());
    assert!(!health.is_healthy());
    assert!(health.partially_halted_groups().is_empty());
    assert_eq!(health.halted_groups().len(), 1);
    let shown = health.check().to_string();
    assert_eq!(shown, "Unhealthy: group 'mail' (3 of 3 pumps halted: the::Type)");
}

#[test]
fn a_mark_is_cleared_by_its_own_pump_and_cause_only() {
    let health = Arc::new(Health::new());
    let pens = group(&health, "mail", 2);
    pens[0].degraded(DegradedCause::StoreFault, Some("io::Error"));
    pens[0].degraded(DegradedCause::ClockJumped, None);
    pens[1].recovered(DegradedCause::StoreFault);
    let shown = health.check().to_string();
    assert_eq!(shown, "Degraded: group 'mail' (store fault: io::Error; clock jumped)");
    pens[0].recovered(DegradedCause::StoreFault);
    assert_eq!(health.degraded_groups()["mail"].len(), 1);
    pens[0].recovered(DegradedCause::ClockJumped);
    assert_eq!(health.check().status, HealthStatus::Healthy);
}

#[test]
fn a_halt_replaces_the_marks_of_its_pump_and_is_not_taken_back() {
    let health = Arc::new(Health::new());
    let pens = group(&health, "mail", 1);
    pens[0].degraded(DegradedCause::StoreFault, None);
    pens[0].halted(halt());
    assert!(health.degraded_groups().is_empty());
    pens[0].halted(HaltState::new("another::Type", None, "later", None));
    assert_eq!(health.halted_groups()["mail"], halt(), "the first of two is the cause");
    pens[0].recovered(DegradedCause::StoreFault);
    pens[0].degraded(DegradedCause::StoreFault, None);
    pens[0].ended();
    assert!(health.degraded_groups().is_empty());
    assert!(!health.is_healthy());
}

#[test]
fn a_living_name_is_refused_and_a_halted_one_is_taken_over() {
    let health = Arc::new(Health::new());
    let first = group(&health, "mail", 1);
    assert!(health.register("mail", 1, Duration::ZERO).is_none());
    first[0].halted(halt());
    let second = group(&health, "mail", 1);
    assert!(health.is_healthy());
    first[0].halted(halt());
    assert!(health.is_healthy(), "the old generation must not mark the new one");
    second[0].ended();
    assert!(health.check().groups.is_empty());
}

#[test]
fn a_pump_that_hangs_in_a_call_is_degraded_while_it_does() {
    let health = Arc::new(Health::new());
    let pens = health.register("mail", 1, Duration::ZERO).expect("the name is free");
    pens[0].pulse.call_began();
    while health.degraded_groups().is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(health.degraded_groups()["mail"][0].cause, DegradedCause::Hung);
    pens[0].pulse.call_ended();
    assert_eq!(health.check().status, HealthStatus::Healthy);
}

#[test]
fn health_is_read_while_a_writer_holds_its_lock() {
    let health = Arc::new(Health::new());
    let _pens = group(&health, "mail", 1);
    let _held = health.writing.lock();
    assert!(health.is_healthy());
    assert_eq!(health.check().groups.len(), 1);
}

#[test]
fn a_report_is_readable_by_machines() {
    let health = Arc::new(Health::new());
    group(&health, "mail", 1)[0].halted(halt());
    let json = serde_json::to_value(health.check()).expect("a report serialises");
    assert_eq!(json["status"], "Unhealthy");
    assert_eq!(json["groups"][0]["halts"][0]["trigger"], "ClaimBatchOverrun");
}

#[test]
fn each_status_has_its_answer_for_a_probe_and_the_worst_group_decides() {
    let health = Arc::new(Health::new());
    let well = group(&health, "well", 1);
    let answer = || {
        let status = health.check().status;
        (status, status.http_status(), health.is_healthy())
    };
    assert_eq!(answer(), (HealthStatus::Healthy, 200, true));
    let limps = group(&health, "limps", 1);
    limps[0].degraded(DegradedCause::StoreFault, Some("io::Error"));
    assert_eq!(answer(), (HealthStatus::Degraded, 200, true));
    let halts = group(&health, "halts", 2);
    halts[0].halted(halt());
    assert_eq!(answer(), (HealthStatus::Degraded, 200, true));
    halts[1].halted(halt());
    assert_eq!(answer(), (HealthStatus::Unhealthy, 503, false));
    // That others are well or recover takes nothing away from it.
    limps[0].recovered(DegradedCause::StoreFault);
    well[0].ended();
    assert_eq!(answer(), (HealthStatus::Unhealthy, 503, false));
}

#[test]
fn the_text_shows_no_message_and_no_healthy_group() {
    let health = Arc::new(Health::new());
    let _well = group(&health, "well", 1);
    let limps = group(&health, "limps", 2);
    limps[1].degraded(DegradedCause::StoreFault, Some("io::Error"));
    let partly = group(&health, "partly", 2);
    let trigger = Some(InvariantTrigger::ClaimBatchOverrun);
    let told = HaltState::new("the::Type", Some("XX000".to_owned()), "secret", trigger);
    partly[0].halted(told);
    let shown = health.check().to_string();
    let limping = "group 'limps' (store fault: io::Error)";
    let halted = "group 'partly' (1 of 2 pumps halted: the::Type)";
    assert_eq!(shown, format!("Degraded: {limping}, {halted}"));
}

#[test]
fn where_no_group_is_known_all_is_well() {
    let health = Arc::new(Health::new());
    assert_eq!(health.check().status, HealthStatus::Healthy);
    assert!(health.is_healthy());
    group(&health, "none", 0);
    assert!(health.is_healthy(), "no pump of it has halted");
}

#[test]
fn a_name_is_alive_as_long_as_one_of_its_pumps_is() {
    let health = Arc::new(Health::new());
    let pens = group(&health, "mail", 2);
    pens[0].halted(halt());
    assert!(health.register("mail", 2, Duration::ZERO).is_none());
    pens[1].ended();
    assert!(health.register("mail", 2, Duration::ZERO).is_some());
}

#[test]
fn pumps_are_counted_together_where_cause_and_fault_are_the_same() {
    let health = Arc::new(Health::new());
    let pens = group(&health, "mail", 3);
    pens[0].degraded(DegradedCause::StoreFault, Some("io::Error"));
    pens[1].degraded(DegradedCause::StoreFault, Some("io::Error"));
    pens[2].degraded(DegradedCause::StoreFault, None);
    pens[2].degraded(DegradedCause::ClockJumped, None);
    let shown = health.degraded_groups()["mail"].clone();
    let shown: Vec<_> = shown.iter().map(|d| (d.cause, d.fault_type.as_deref(), d.pumps)).collect();
    let expected = [
        (DegradedCause::StoreFault, Some("io::Error"), 2),
        (DegradedCause::StoreFault, None, 1),
        (DegradedCause::ClockJumped, None, 1),
    ];
    assert_eq!(shown, expected);
}

#[test]
fn a_pump_that_halted_or_ended_does_not_hang() {
    let health = Arc::new(Health::new());
    let pens = health.register("mail", 3, Duration::ZERO).expect("the name is free");
    // Their calls never come back; the third one's shows that the time has passed.
    pens.iter().for_each(|pen| pen.pulse.call_began());
    pens[0].halted(halt());
    pens[1].ended();
    while health.degraded_groups().is_empty() {
        std::thread::yield_now();
    }
    let shown = &health.degraded_groups()["mail"];
    assert_eq!((shown.len(), shown[0].cause, shown[0].pumps), (1, DegradedCause::Hung, 1));
}

#[test]
fn a_pump_that_ended_takes_its_marks_along_and_leaves_the_others() {
    let health = Arc::new(Health::new());
    let pens = group(&health, "mail", 2);
    pens[0].degraded(DegradedCause::StoreFault, None);
    pens[0].ended();
    assert!(health.degraded_groups().is_empty());
    assert_eq!(health.check().groups.len(), 1, "its sibling still runs");
}

#[test]
fn a_call_that_has_not_lasted_long_is_not_hung() {
    let health = Arc::new(Health::new());
    let pens = group(&health, "mail", 1);
    pens[0].pulse.call_began();
    assert!(health.degraded_groups().is_empty());
}

#[test]
fn stuck_handlers_are_shown_as_they_are_now() {
    let health = Arc::new(Health::new());
    let pens = group(&health, "mail", 1);
    let stuck = StuckHandler { job: JobId::new(), attempt: 1, since: Timestamp::EPOCH };
    pens[0].stuck(std::iter::once(stuck.clone()));
    assert_eq!(health.check().groups[0].stuck, [stuck]);
    pens[0].stuck(std::iter::empty());
    assert_eq!(health.check().groups[0].stuck, []);
}
