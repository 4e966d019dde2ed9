//! What observers cost in a log of a million transitions: how many of them one call looks at, told by the server
//! itself while it runs.

use super::observing::Watcher;
use super::plans::Told;
use super::*;
use crate::JobState;
use crate::store::{ObserverStart, Observing, Purge, Retention, TransitionFilter, Upkeep};

const LOG: i64 = 1_000_000;

/// A thousand jobs, with a thousand transitions each, written by a transaction each hundred thousand.
fn fill(told: &Told) {
    let schema = &told.place.store.inner.schema;
    let mut client = raw();
    let jobs = "INSERT INTO {schema}.jobs (id, due_at, created_at, finished_at, state, attempt, version, queue, \
        wire_name, payload) \
        SELECT ('01977420-dc00-7000-9000-' || lpad(n::text, 12, '0'))::uuid, $1::timestamptz, $1, $1, 3, 1, 1, 'q', \
        'work', '1'::bytea FROM generate_series(0, 999) AS n";
    assert_eq!(client.execute(&schema.fill(jobs), &[&START]).unwrap(), 1000);
    let log = "INSERT INTO {schema}.transitions (at, job, attempt, from_state, to_state, hand) \
        SELECT $1::timestamptz, ('01977420-dc00-7000-9000-' || lpad((n % 1000)::text, 12, '0'))::uuid, 1, 0, 2, 6 \
        FROM generate_series(1, 100000) AS n";
    for _ in 0..LOG / 100_000 {
        client.execute(&schema.fill(log), &[&START]).unwrap();
    }
    client
        .batch_execute(&schema.fill("ANALYZE {schema}.transitions; ANALYZE {schema}.jobs"))
        .unwrap();
}

/// The most entries of the log that one statement since the last call has looked at; all by an index.
fn looked_at(told: &Told, what: &str) -> u64 {
    let plans = told.checked(what, "a million");
    let number_after = |line: &str, word: &str| {
        let rest = line.rsplit_once(word).map(|(_, rest)| rest)?;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().ok()
    };
    let mut most = 0;
    let lines: Vec<&str> = plans.lines().collect();
    for (index, line) in
        lines.iter().enumerate().filter(|(_, line)| line.contains(" using transitions_"))
    {
        let (Some(rows), Some(loops)) =
            (number_after(line, " rows="), number_after(line, " loops="))
        else {
            continue;
        };
        let of_it = lines[index + 1..].iter().take_while(|line| !line.contains("->"));
        let removed =
            of_it.filter_map(|line| number_after(line, "Rows Removed by Filter: ")).sum::<u64>();
        most = most.max((rows + removed) * loops.max(1));
    }
    most
}

#[test]
fn in_a_log_of_a_million_one_call_looks_at_a_bounded_number_of_transitions() {
    let told = Told::new();
    fill(&told);
    let mut session = told.session();
    session.run_raw("SET auto_explain.log_analyze = on");
    let all = TransitionFilter::new();

    // A backlog of all of it, page by page, from its beginning.
    let mut watcher = Watcher::new(ObserverStart::Oldest);
    let mut until = 0;
    for _ in 0..5 {
        let seen = watcher.look_for(&mut session, &all);
        if let Some(last) = seen.batch.last() {
            assert_eq!((seen.batch.len(), seen.more), (100, true));
            until = last.transition.position;
            watcher.pass(&mut session, until);
        }
        assert!(looked_at(&told, "a page of the backlog") <= 5_000);
    }
    assert!(until > 5_000, "past what has no job");

    // What matches nothing is passed over, so many a call.
    let none = TransitionFilter::new().state(JobState::Quarantined);
    let mut calls = 0;
    loop {
        let seen = watcher.look_for(&mut session, &none);
        assert!(seen.batch.is_empty());
        let looked = looked_at(&told, "a page without a match");
        assert!(looked <= 5_000, "{looked}");
        calls += 1;
        if !seen.more {
            break;
        }
        assert!(looked > 4_000, "{looked}: all of it is looked at");
    }
    // Once more from the beginning, where others were busy as it registered: nobody knows since when.
    let expected = u64::try_from(LOG).unwrap() / 5_000;
    assert!(calls >= expected && calls <= 2 * expected + 5, "{calls} calls");

    // At the head of it, with a writer that has been under way since before, a call looks at what is new.
    let mut client = raw();
    let mut tx = client.transaction().unwrap();
    told.place.store.enqueue_rows_in(&mut tx, &[row("q", 0)]).unwrap();
    for _ in 0..3 {
        add(&mut session, &[row("q", 0), row("q", 0)]);
        told.plans.lock().unwrap().clear();
        let seen = watcher.look_for(&mut session, &all);
        assert_eq!(seen.batch.len(), 2);
        assert!(looked_at(&told, "a look at the head") <= 20);
        watcher.pass(&mut session, seen.batch[1].transition.position);
        assert_eq!(looked_at(&told, "a resolution"), 0);
        assert!(watcher.look_for(&mut session, &all).batch.is_empty());
        assert!(looked_at(&told, "an empty look") <= 20);
        session.observers().unwrap();
        assert!(looked_at(&told, "the observers") <= 20);
    }
    tx.commit().unwrap();
    assert_eq!(watcher.look_for(&mut session, &all).batch.len(), 1);
    assert!(looked_at(&told, "a late look") <= 20);

    // A trim looks at the jobs that it meets, and each of their transitions.
    let retention = Retention { transitions_per_job: 999, ..Retention::forever() };
    session.purge(&Purge::new(retention, 10)).unwrap();
    told.checked("a trim", "a million");
}
