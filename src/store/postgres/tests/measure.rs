//! What an exchange costs against the plainest SQL that does the same. Run by hand, in release:
//! `cargo test --release --features postgres --lib store::postgres::tests::measure -- --ignored --nocapture`

use super::*;
use std::time::Instant;

const JOBS: usize = 50_000;

fn fill(session: &mut dyn Session) {
    for _ in 0..JOBS / 1000 {
        let rows: Vec<_> = (0..1000)
            .map(|_| {
                let mut row = JobRow::new(JobId::new(), "work");
                row.queue = "q".to_owned();
                row.payload = crate::store::Body::new(vec![b'7'; 100]);
                row
            })
            .collect();
        add(session, &rows);
    }
}

/// Jobs per second through `exchange`, in batches of `batch`.
fn exchanged(session: &mut dyn Session, batch: u32) -> f64 {
    let (plan, accepts) = (plan(&[("q", batch)]), accepts("work", 1));
    let me = WorkerId::new();
    let claim = Claim::new(me, batch, &plan, &accepts, LEASE);
    let (mut done, mut count) = (Vec::new(), 0);
    let began = Instant::now();
    loop {
        let answer = session.exchange(&done, &claim).unwrap();
        assert!(answer.reported.rows.iter().all(|row| matches!(row, RowReport::Applied(_))));
        count += answer.claimed.jobs.len();
        done = answer.claimed.jobs.iter().map(|job| outcome(job, me, Outcome::Succeeded)).collect();
        if done.is_empty() {
            assert_eq!(count, JOBS);
            return count as f64 / began.elapsed().as_secs_f64();
        }
    }
}

/// The same by one plain statement per batch on the same table: settle what is held, take the next.
fn plain(schema: &str, batch: u32) -> f64 {
    let mut client = raw();
    client.batch_execute(&super::super::connect::session_settings(LEASE)).unwrap();
    let text = format!(
        "WITH r AS MATERIALIZED (SELECT u.id, u.attempt, $3::uuid AS owner \
              FROM unnest($1::uuid[], $2::int[]) AS u (id, attempt)), \
         d AS (UPDATE \"{schema}\".jobs AS j SET state = 3, owner = NULL, expiry = NULL, finished_at = now() \
              FROM r WHERE j.id = r.id AND j.owner = r.owner AND j.attempt = r.attempt RETURNING j.id), \
         c AS MATERIALIZED (SELECT j.ctid AS tid FROM \"{schema}\".jobs AS j WHERE j.state = 0 AND j.queue = 'q' \
              AND j.due_at <= now() ORDER BY j.due_at, j.id LIMIT {batch} FOR NO KEY UPDATE SKIP LOCKED) \
         UPDATE \"{schema}\".jobs AS j SET state = 2, owner = $3, expiry = now() + interval '60 s', \
              attempt = j.attempt + 1 \
         FROM c WHERE j.ctid = c.tid RETURNING j.id, j.attempt, j.payload"
    );
    let statement = client.prepare(&text).unwrap();
    let me = WorkerId::new();
    let (mut jobs, mut attempts) = (Vec::<JobId>::new(), Vec::<i32>::new());
    let mut count = 0;
    let began = Instant::now();
    loop {
        let rows = client.query(&statement, &[&jobs, &attempts, &me]).unwrap();
        count += rows.len();
        (jobs, attempts) =
            rows.iter().map(|row| (row.get::<_, JobId>(0), row.get::<_, i32>(1))).unzip();
        rows.iter().for_each(|row| assert_eq!(row.get::<_, &[u8]>(2).len(), 100));
        if jobs.is_empty() {
            assert_eq!(count, JOBS);
            return count as f64 / began.elapsed().as_secs_f64();
        }
    }
}

#[test]
#[ignore = "a measurement"]
fn exchange_against_plain_sql() {
    for batch in [10, 100, 500] {
        for _ in 0..3 {
            let place = PostgresStore::builder(config()).schema(fresh_name()).open().unwrap();
            let mut session = place.open_session().unwrap();
            fill(session.as_mut());
            let raw = plain(place.inner.schema.name(), batch);
            let place = PostgresStore::builder(config()).schema(fresh_name()).open().unwrap();
            let mut session = place.open_session().unwrap();
            let began = Instant::now();
            fill(session.as_mut());
            let enqueued = JOBS as f64 / began.elapsed().as_secs_f64();
            let ours = exchanged(session.as_mut(), batch);
            println!(
                "batch {batch}: plain {raw:.0}/s, exchange {ours:.0}/s, ratio {:.2}; enqueue {enqueued:.0}/s",
                ours / raw
            );
        }
    }
}
