//! Observers against transactions that are under way, that commit late, and that commit in another order than they
//! wrote.

use super::observing::{Watcher, jobs};
use super::*;
use crate::JobState;
use crate::store::{Observation, ObserverStart, Transition};

fn of_job(told: &[Observation], job: JobId) -> Vec<Transition> {
    let of_it = told.iter().filter(|observation| observation.job == job);
    of_it.map(|observation| observation.transition.clone()).collect()
}

fn positions(told: &[Observation]) -> Vec<u64> {
    told.iter().map(|told| told.transition.position).collect()
}

/// A number of the observer's row.
fn number(place: &Place, expression: &str) -> i64 {
    let text = format!("SELECT ({expression})::bigint FROM \"{}\".observers", place.schema);
    raw().query_one(&text, &[]).unwrap().get(0)
}

#[test]
fn what_commits_late_with_a_lower_position_is_told_by_a_later_round() {
    let place = Place::new();
    let mut session = place.session();
    let mut watcher = Watcher::registered(session.as_mut());
    let (late, early) = (row("q", -1), row("q", -1));
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    place.store.enqueue_rows_in(&mut tx, std::slice::from_ref(&late)).unwrap();
    add(session.as_mut(), std::slice::from_ref(&early));
    let first = watcher.drain(session.as_mut());
    assert_eq!(jobs(&first), [early.id]);
    tx.commit().unwrap();
    let second = watcher.drain(session.as_mut());
    assert_eq!(jobs(&second), [late.id]);
    assert!(positions(&second) < positions(&first), "it was written first");
    assert!(watcher.drain(session.as_mut()).is_empty(), "once");
}

#[test]
fn what_commits_between_two_pages_of_a_round_is_told_by_the_next_round() {
    let place = Place::new();
    let mut session = place.session();
    let mut watcher = Watcher::registered(session.as_mut());
    watcher.max = 1;
    let late = row("q", -1);
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    place.store.enqueue_rows_in(&mut tx, std::slice::from_ref(&late)).unwrap();
    let early = [row("q", -1), row("q", -1), row("q", -1)];
    add(session.as_mut(), &early);
    let seen = watcher.look(session.as_mut());
    assert_eq!((jobs(&seen.batch), seen.more), (vec![early[0].id], true));
    tx.commit().unwrap();
    let after = row("q", -1);
    add(session.as_mut(), std::slice::from_ref(&after));
    let told = jobs(&watcher.drain(session.as_mut()));
    assert_eq!(told, [early[0].id, early[1].id, early[2].id, late.id, after.id]);
}

#[test]
fn a_transaction_that_rolls_back_is_never_told() {
    let place = Place::new();
    let mut session = place.session();
    let mut watcher = Watcher::registered(session.as_mut());
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    place.store.enqueue_rows_in(&mut tx, &[row("q", -1)]).unwrap();
    assert!(watcher.drain(session.as_mut()).is_empty());
    tx.rollback().unwrap();
    let next = row("q", -1);
    add(session.as_mut(), std::slice::from_ref(&next));
    assert_eq!(jobs(&watcher.drain(session.as_mut())), [next.id]);
}

/// A report, and then a claim, in one transaction, in between of which another one makes the job that is claimed.
/// `in_between` runs when that is born, and again when it is claimed and not yet committed.
fn claim_what_is_younger(
    place: &Place,
    session: &mut dyn Session,
    mut in_between: impl FnMut(&mut dyn Session),
) -> JobId {
    let me = WorkerId::new();
    let job = taken(session, me, JobId::new());
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    let done = outcome(&job, me, Outcome::Succeeded);
    assert_eq!(report_in(&mut tx, place, &done), Some(0));
    let young = row("q", -5);
    add(session, std::slice::from_ref(&young));
    in_between(session);
    assert_eq!(claim_in(&mut tx, place, 1), 1);
    in_between(session);
    tx.commit().unwrap();
    let text = format!(
        "SELECT b.xid > l.xid AND b.position < l.position FROM \"{0}\".transitions AS b \
         JOIN \"{0}\".transitions AS l ON l.job = b.job WHERE b.job = $1 AND b.hand = 5 AND l.hand = 6",
        place.schema
    );
    let is_crossed: bool = raw().query_one(&text, &[&young.id]).unwrap().get(0);
    assert!(is_crossed, "the claim's transaction is the elder one");
    young.id
}

#[test]
fn a_job_claimed_by_an_elder_transaction_than_its_own_is_told_of_in_its_order() {
    for looks_in_between in [false, true] {
        let place = Place::new();
        let mut session = place.session();
        let mut watcher = Watcher::registered(session.as_mut());
        let mut told = Vec::new();
        let young = claim_what_is_younger(&place, session.as_mut(), |session| {
            if looks_in_between {
                told.extend(watcher.drain(session));
            }
        });
        told.extend(watcher.drain(session.as_mut()));
        let states: Vec<_> = of_job(&told, young).iter().map(|step| step.to).collect();
        assert_eq!(states, [JobState::Scheduled, JobState::Leased], "{looks_in_between}");
        assert_eq!(of_job(&told, young), session.history(young).unwrap());
        assert_eq!(told.len(), 5);
    }
}

#[test]
fn a_transaction_that_stays_open_holds_nobody_up_and_is_told_when_it_commits() {
    let place = Place::new();
    let mut session = place.session();
    let mut watcher = Watcher::registered(session.as_mut());
    let long = [row("q", -1), row("q", -1)];
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    place.store.enqueue_rows_in(&mut tx, &long[..1]).unwrap();
    // Other tests have transactions of their own under way, which may take a round back a little now and then.
    let (mut last, mut at_the_head) = (0, 0);
    for _ in 0..40 {
        let rows: Vec<_> = (0..5).map(|_| row("q", -1)).collect();
        add(session.as_mut(), &rows);
        let told = watcher.drain(session.as_mut());
        let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
        assert_eq!(jobs(&told), ids);
        at_the_head += u32::from(last > 0 && number(&place, "passed") >= last);
        last = number(&place, "ceiling");
        let spare = "(SELECT count(*) FROM pg_snapshot_xip(base)) + 2 - cardinality(marks)";
        assert!(number(&place, spare) >= 0, "what is remembered is bounded");
    }
    assert!(last > 200);
    // It looks at what is new, and does not begin where the transaction that is under way began.
    assert!(at_the_head >= 5, "{at_the_head} of 40 rounds");
    place.store.enqueue_rows_in(&mut tx, &long[1..]).unwrap();
    tx.commit().unwrap();
    let told = watcher.drain(session.as_mut());
    assert_eq!(jobs(&told), [long[0].id, long[1].id]);
    assert!(positions(&told)[0] < 5 && positions(&told)[1] > 200);
    let is_forgotten = (0..50).any(|_| {
        add(session.as_mut(), &[row("q", -1)]);
        assert_eq!(watcher.drain(session.as_mut()).len(), 1);
        number(&place, "passed") > 200
    });
    assert!(is_forgotten);
}

#[test]
fn transactions_that_overlap_in_every_order_are_each_told_once() {
    // Of three writers, who begins, writes and commits when, by a walk over all orders of their nine steps that
    // keep each one's own order; an observer looks after each step.
    fn orders(left: [u8; 3], so_far: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
        if left == [0; 3] {
            all.push(so_far.clone());
        }
        for writer in 0..3 {
            if left[writer] > 0 {
                let mut rest = left;
                rest[writer] -= 1;
                so_far.push(writer);
                orders(rest, so_far, all);
                so_far.pop();
            }
        }
    }
    let mut all = Vec::new();
    orders([2, 2, 2], &mut Vec::new(), &mut all);
    assert_eq!(all.len(), 90);
    let place = Place::new();
    let mut session = place.session();
    let mut watcher = Watcher::registered(session.as_mut());
    let mut clients = [raw(), raw(), raw()];
    for (index, order) in all.into_iter().enumerate() {
        let mut expected = Vec::new();
        let mut told = Vec::new();
        let mut open: Vec<Option<::postgres::Transaction<'_>>> =
            clients.iter_mut().map(|client| Some(client.transaction().unwrap())).collect();
        let mut steps = [0; 3];
        for (step, writer) in order.into_iter().enumerate() {
            steps[writer] += 1;
            if steps[writer] == 1 {
                let born = row("q", -1);
                let tx = open[writer].as_mut().unwrap();
                place.store.enqueue_rows_in(tx, std::slice::from_ref(&born)).unwrap();
                expected.push(born.id);
            } else {
                open[writer].take().unwrap().commit().unwrap();
            }
            // Looking at each step, at some, or only at the end.
            if index % 3 == 0 || (index % 3 == 1 && step % 2 == 0) {
                told.extend(jobs(&watcher.drain(session.as_mut())));
            }
        }
        told.extend(jobs(&watcher.drain(session.as_mut())));
        told.sort();
        expected.sort();
        assert_eq!(told, expected, "order {index}");
    }
}

#[test]
fn one_that_registers_while_a_transaction_is_under_way_is_told_of_what_that_writes_from_then_on() {
    let place = Place::new();
    let mut session = place.session();
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    let [before, after] = [row("q", -1), row("q", -1)];
    place.store.enqueue_rows_in(&mut tx, std::slice::from_ref(&before)).unwrap();
    let mut watcher = Watcher::registered(session.as_mut());
    place.store.enqueue_rows_in(&mut tx, std::slice::from_ref(&after)).unwrap();
    tx.commit().unwrap();
    assert_eq!(jobs(&watcher.drain(session.as_mut())), [after.id]);
}

#[test]
fn a_registration_waits_for_another_of_the_same_name_and_finds_its_cursor() {
    let place = Place::new();
    let mut session = place.session();
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    let holder = backend_of(&mut tx);
    let worker = WorkerId::new();
    let text = format!(
        "SELECT kind FROM \"{}\".observe_v4('alerts', $1, NULL, NULL, NULL, false, 60000000, 9, $2)",
        place.schema
    );
    assert_eq!(tx.query_one(&text, &[&worker, &START]).unwrap().get::<_, i16>(0), 0);
    let mut second = Watcher::new(ObserverStart::Oldest);
    let answer = while_it_waits(
        &place,
        holder,
        |session| {
            let filter = crate::store::TransitionFilter::new();
            session.observe(&crate::store::Observe::new("alerts", second.worker, &filter, LEASE))
        },
        || tx.commit().unwrap(),
    );
    assert!(matches!(answer, Ok(crate::store::Observed::Elsewhere { .. })), "{answer:?}");
    place.advance(LEASE);
    assert!(second.look(session.as_mut()).batch.is_empty());
    assert_eq!(second.epoch, 2);
}

#[test]
fn a_resolution_waits_for_who_takes_the_cursor_and_is_stale() {
    let place = Place::new();
    let mut session = place.session();
    let mut first = Watcher::registered(session.as_mut());
    add(session.as_mut(), &[row("q", -1)]);
    let until = first.look(session.as_mut()).batch[0].transition.position;
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    let holder = backend_of(&mut tx);
    // As it is a lease later.
    let text = format!(
        "SELECT kind FROM \"{}\".observe_v4('alerts', $1, NULL, NULL, NULL, false, 60000000, 9, $2) \
         WHERE kind < 2",
        place.schema
    );
    let later = START + LEASE;
    assert_eq!(tx.query_one(&text, &[&WorkerId::new(), &later]).unwrap().get::<_, i16>(0), 0);
    let mut resolve =
        crate::store::Resolve::new("alerts", first.worker, first.epoch, first.round, LEASE);
    resolve.until = Some(until);
    let answer = while_it_waits(
        &place,
        holder,
        |session| session.resolve(&resolve).unwrap(),
        || tx.commit().unwrap(),
    );
    let crate::store::Resolved::Stale { reason, .. } = answer else { panic!("{answer:?}") };
    assert_eq!(reason, crate::store::CursorStale::Taken);
}

#[test]
fn a_purge_leaves_what_a_round_under_way_has_not_told() {
    use crate::store::{Purge, Retention};
    let place = Place::new();
    let mut session = place.session();
    let mut watcher = Watcher::registered(session.as_mut());
    watcher.max = 2;
    let late = row("q", -1);
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    place.store.enqueue_rows_in(&mut tx, std::slice::from_ref(&late)).unwrap();
    let rows = [row("q", -1), row("q", -1)];
    add(session.as_mut(), &rows);
    for row in &rows {
        session.request_cancel("ada", row.id).unwrap();
    }
    let seen = watcher.look(session.as_mut());
    assert_eq!(jobs(&seen.batch), [rows[0].id, rows[1].id]);
    watcher.pass(session.as_mut(), seen.batch[1].transition.position);
    // Commits and ends behind the cursor, with a position below it.
    tx.commit().unwrap();
    session.request_cancel("ada", late.id).unwrap();
    let retention = Retention { cancelled: Some(Duration::ZERO), ..Retention::forever() };
    let purge = Purge::new(retention, 100);
    assert_eq!(session.purge(&purge).unwrap().jobs, 0, "not one was told whole");
    assert_eq!(watcher.drain(session.as_mut()).len(), 4);
    let purged = session.purge(&purge).unwrap();
    assert_eq!((purged.jobs, purged.unobserved), (3, 0));
}
