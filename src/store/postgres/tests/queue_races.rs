//! Changes of queues against claims.

use super::*;
use crate::store::QueueChange;

fn with_jobs(count: i64) -> Place {
    let place = Place::new();
    add(place.session().as_mut(), &(0..count).map(|i| row("q", i - 1000)).collect::<Vec<_>>());
    place
}

fn change(session: &mut dyn Session, change: QueueChange) {
    session.change_queue("ada", "q", change).unwrap();
}

#[test]
fn the_first_limit_of_a_queue_waits_for_the_claim_that_runs_and_then_counts_it() {
    let place = with_jobs(12);
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    let holder = backend_of(&mut tx);
    // It has seen a queue without a limit, and is not committed.
    assert_eq!(claim_in(&mut tx, &place, 3), 3);
    let limit = QueueChange::Limit(Some(5));
    while_it_waits(&place, holder, |session| change(session, limit), || tx.commit().unwrap());
    let mut session = place.session();
    let claimed = take(session.as_mut(), WorkerId::new(), "q", 9);
    assert_eq!((claimed.jobs.len(), claimed.withheld), (2, true));
}

#[test]
fn a_pause_waits_for_the_claim_that_runs_and_holds_for_the_next() {
    let place = with_jobs(3);
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    let holder = backend_of(&mut tx);
    assert_eq!(claim_in(&mut tx, &place, 1), 1);
    while_it_waits(
        &place,
        holder,
        |session| change(session, QueueChange::Pause),
        || tx.commit().unwrap(),
    );
    let claimed = take(place.session().as_mut(), WorkerId::new(), "q", 9);
    assert_eq!((claimed.jobs.len(), claimed.withheld, claimed.next_due), (0, true, None));
}

#[test]
fn a_claim_that_waited_for_a_pause_heeds_it() {
    let place = with_jobs(3);
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    let holder = backend_of(&mut tx);
    let text = format!(
        "SELECT changed FROM \"{}\".change_queue_v2('ada', 'q', 4::smallint, NULL)",
        place.schema
    );
    assert!(tx.query_one(&text, &[]).unwrap().get::<_, bool>(0));
    let claimed = while_it_waits(
        &place,
        holder,
        |session| take(session, WorkerId::new(), "q", 9),
        || tx.commit().unwrap(),
    );
    assert_eq!((claimed.jobs.len(), claimed.withheld), (0, true));
}

#[test]
fn claims_of_a_limited_queue_come_one_after_another() {
    let place = with_jobs(9);
    change(place.session().as_mut(), QueueChange::Limit(Some(2)));
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    let holder = backend_of(&mut tx);
    assert_eq!(claim_in(&mut tx, &place, 1), 1);
    let claimed = while_it_waits(
        &place,
        holder,
        |session| take(session, WorkerId::new(), "q", 9),
        || tx.commit().unwrap(),
    );
    assert_eq!((claimed.jobs.len(), claimed.withheld), (1, true));
}

#[test]
fn sixteen_claimers_never_pass_the_limit() {
    let place = with_jobs(200);
    change(place.session().as_mut(), QueueChange::Limit(Some(3)));
    let leased = AtomicI64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let mut session = place.session();
                let me = WorkerId::new();
                loop {
                    let jobs = take(session.as_mut(), me, "q", 2).jobs;
                    let count = i64::try_from(jobs.len()).unwrap();
                    // Raised after the claim's commit and lowered before the report: never too high.
                    assert!(leased.fetch_add(count, Ordering::SeqCst) + count <= 3);
                    leased.fetch_sub(count, Ordering::SeqCst);
                    let ends: Vec<_> =
                        jobs.iter().map(|job| outcome(job, me, Outcome::Succeeded)).collect();
                    session.report(&ends).unwrap();
                    let counts = session.counts().unwrap();
                    if counts.iter().all(|count| count.state == crate::JobState::Succeeded) {
                        return;
                    }
                }
            });
        }
    });
}
