//! Renewals, hand-backs, dead leases, and what an operator does.

use super::*;
use crate::JobState;
use crate::store::{CancelAnswer, Renewed, RequeueAnswer, SettledBy};

#[test]
fn a_renewal_prolongs_live_leases_only_and_tells_of_a_cancel_request() {
    let place = Place::new();
    let mut session = place.session();
    add(session.as_mut(), &[row("q", -2), row("q", -1)]);
    let me = WorkerId::new();
    let jobs = take(session.as_mut(), me, "q", 2).jobs;
    session.request_cancel("ada", jobs[1].id).unwrap();
    place.advance(LEASE / 2);
    let stranger = LeaseRef { job: JobId::new(), attempt: 1 };
    let wrong = LeaseRef { job: jobs[0].id, attempt: 2 };
    let rows = [lease_of(&jobs[1]), stranger, lease_of(&jobs[0]), wrong, lease_of(&jobs[0])];
    let renewal = session.renew(me, &rows, LEASE).unwrap();
    let expiry = START + LEASE / 2 + LEASE;
    let kept = Renewed::Renewed { expiry, cancel_requested: false };
    let asked = Renewed::Renewed { expiry, cancel_requested: true };
    assert_eq!(renewal.rows, [asked, Renewed::Lost, kept, Renewed::Lost, kept]);
    assert_eq!(session.renew(WorkerId::new(), &rows[..1], LEASE).unwrap().rows, [Renewed::Lost]);
    place.set_clock(expiry);
    let rows = [lease_of(&jobs[0]), lease_of(&jobs[1])];
    assert_eq!(session.renew(me, &rows, LEASE).unwrap().rows, [Renewed::Lost; 2]);
    assert_eq!(session.renew(me, &[], LEASE).unwrap().rows, []);
}

#[test]
fn dead_leases_are_found_the_longest_dead_first_and_only_in_the_queues_asked_for() {
    let place = Place::new();
    let mut session = place.session();
    add(session.as_mut(), &[row("a", -3), row("a", -2), row("b", -1)]);
    let me = WorkerId::new();
    let second = take(session.as_mut(), me, "a", 1).jobs.remove(0);
    place.advance(Duration::from_secs(1));
    let third = take(session.as_mut(), me, "a", 1).jobs.remove(0);
    take(session.as_mut(), me, "b", 1);
    session.renew(me, &[lease_of(&second)], LEASE * 2).unwrap();
    let queues = ["a".to_owned()];
    assert_eq!(session.find_lapsed(&queues, 10).unwrap().jobs, []);
    place.set_clock(third.expiry);
    let lapsed = session.find_lapsed(&queues, 10).unwrap();
    assert_eq!(lapsed.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [third.id]);
    assert_eq!((lapsed.jobs[0].owner, lapsed.jobs[0].expiry), (me, third.expiry));
    place.advance(LEASE * 2);
    let lapsed = session.find_lapsed(&queues, 10).unwrap();
    assert_eq!(lapsed.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [third.id, second.id]);
    assert_eq!(session.find_lapsed(&queues, 1).unwrap().jobs.len(), 1);
    assert_eq!(session.held_by(me).unwrap().leases.len(), 3, "dead leases are held too");
    assert_eq!(session.held_by(WorkerId::new()).unwrap().leases, []);
}

#[test]
fn a_hand_back_needs_a_live_lease_and_keeps_the_place_in_the_queue() {
    let place = Place::new();
    let mut session = place.session();
    let rows = [row("q", -9), row("q", -8), row("q", -7)];
    add(session.as_mut(), &rows);
    let me = WorkerId::new();
    let jobs = take(session.as_mut(), me, "q", 3).jobs;
    session.request_cancel("ada", jobs[2].id).unwrap();
    let leases = [lease_of(&jobs[0]), lease_of(&jobs[0]), lease_of(&jobs[2])];
    assert_eq!(session.hand_back(me, &leases).unwrap().rows, [true, false, true]);
    assert_eq!(session.hand_back(me, &leases).unwrap().rows, [false; 3]);
    let back = record(session.as_mut(), jobs[0].id);
    assert_eq!((back.state, back.due_at), (JobState::Scheduled, at(-9)));
    assert_eq!((back.attempt, back.failures), (1, 0));
    assert_eq!(record(session.as_mut(), jobs[2].id).state, JobState::Cancelled);
    assert_eq!(ids(&take(session.as_mut(), me, "q", 9)), [jobs[0].id]);
    place.set_clock(jobs[1].expiry);
    assert_eq!(session.hand_back(me, &[lease_of(&jobs[1])]).unwrap().rows, [false]);
}

#[test]
fn a_hand_back_is_told_from_a_settlement_in_the_row() {
    let place = Place::new();
    let mut session = place.session();
    add(session.as_mut(), &[row("q", -1)]);
    let me = WorkerId::new();
    let job = take(session.as_mut(), me, "q", 1).jobs.remove(0);
    session.hand_back(me, &[lease_of(&job)]).unwrap();
    let text = format!("SELECT settled_attempt, settled_by FROM \"{}\".jobs", place.schema);
    let row = raw().query_one(&text, &[]).unwrap();
    assert_eq!((row.get(0), row.get(1)), (1, SettledBy::HandBack.code()));
}

#[test]
fn an_operator_cancels_and_requeues() {
    let place = Place::new();
    let mut session = place.session();
    let rows = [row("q", -2), row("q", -1), row("q", 50)];
    add(session.as_mut(), &rows);
    assert_eq!(session.request_cancel("ada", rows[2].id).unwrap(), CancelAnswer::Cancelled);
    let ended = CancelAnswer::Ended(JobState::Cancelled);
    assert_eq!(session.request_cancel("ada", rows[2].id).unwrap(), ended);
    assert_eq!(session.request_cancel("ada", JobId::new()).unwrap(), CancelAnswer::NotFound);
    let illegal = RequeueAnswer::IllegalState(JobState::Cancelled);
    assert_eq!(session.requeue("ada", rows[2].id).unwrap(), illegal);
    assert_eq!(session.requeue("ada", JobId::new()).unwrap(), RequeueAnswer::NotFound);
    let me = WorkerId::new();
    let jobs = take(session.as_mut(), me, "q", 2).jobs;
    assert_eq!(session.request_cancel("ada", jobs[0].id).unwrap(), CancelAnswer::Requested);
    assert_eq!(session.request_cancel("ada", jobs[0].id).unwrap(), CancelAnswer::Requested);
    report_one(session.as_mut(), &outcome(&jobs[0], me, Outcome::Quarantined));
    report_one(session.as_mut(), &outcome(&jobs[1], me, Outcome::DeadLettered));
    place.advance(LEASE);
    for job in &jobs {
        assert_eq!(session.requeue("ada", job.id).unwrap(), RequeueAnswer::Requeued);
        let record = record(session.as_mut(), job.id);
        assert_eq!((record.state, record.failures, record.attempt), (JobState::Scheduled, 0, 1));
        assert_eq!((record.due_at, record.finished_at), (START + LEASE, None));
        assert!(!record.cancel_requested);
    }
    let counts = session.counts().unwrap();
    let counts: Vec<_> = counts.iter().map(|c| (c.queue.as_str(), c.state, c.count)).collect();
    assert_eq!(counts, [("q", JobState::Scheduled, 2), ("q", JobState::Cancelled, 1)]);
}

#[test]
fn leases_are_found_by_their_index() {
    let place = Place::new();
    let mut session = place.session();
    add(session.as_mut(), &(0..5000).map(|i| row("q", i - 9000)).collect::<Vec<_>>());
    take(session.as_mut(), WorkerId::new(), "q", 20);
    let mut client = raw();
    client.batch_execute(&super::super::connect::session_settings(LEASE)).unwrap();
    let questions =
        ["owner = gen_random_uuid() ORDER BY id", "expiry <= now() ORDER BY expiry, id LIMIT 9"];
    for question in questions {
        let text = format!(
            "EXPLAIN SELECT id FROM \"{}\".jobs WHERE state = 2 AND {question}",
            place.schema
        );
        let shown: Vec<String> =
            client.query(&text, &[]).unwrap().iter().map(|row| row.get(0)).collect();
        assert!(shown.join("\n").contains("Index Scan using jobs_leased"), "{shown:?}");
    }
}
