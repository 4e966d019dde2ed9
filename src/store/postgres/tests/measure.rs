//! What an exchange costs against the plainest SQL that does the same. Run by hand, in release:
//! `cargo test --release --features postgres --lib store::postgres::tests::measure -- --ignored --nocapture`

use super::*;
use crate::store::postgres::session::PostgresSession;
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

/// What a run cost: jobs per second, and the server's processor time per job, which a busy machine does
/// not blur.
struct Cost {
    rate: f64,
    server_us: f64,
}

impl Cost {
    fn measure(backend: i32, work: impl FnOnce() -> usize) -> Self {
        let (cpu, began) = (cpu_ms(backend), Instant::now());
        let count = work();
        assert_eq!(count, JOBS);
        let rate = count as f64 / began.elapsed().as_secs_f64();
        Self { rate, server_us: (cpu_ms(backend) - cpu) * 1000.0 / count as f64 }
    }
}

/// User and system time of a process of this host, in milliseconds; 0 where it cannot be told. A tick of
/// the kernel's accounts is 10 ms.
fn cpu_ms(pid: i32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let fields = after_name.split(' ').skip(11).take(2);
    fields.filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() * 10.0
}

/// Jobs through `exchange`, in batches of `batch`.
fn exchanged(session: &mut dyn Session, batch: u32) -> usize {
    let (plan, accepts) = (plan(&[("q", batch)]), accepts("work", 1));
    let me = WorkerId::new();
    let claim = Claim::new(me, batch, &plan, &accepts, LEASE);
    let (mut done, mut count) = (Vec::new(), 0);
    loop {
        let answer = session.exchange(&done, &claim).unwrap();
        assert!(answer.reported.rows.iter().all(|row| matches!(row, RowReport::Applied(_))));
        count += answer.claimed.jobs.len();
        done = answer.claimed.jobs.iter().map(|job| outcome(job, me, Outcome::Succeeded)).collect();
        if done.is_empty() {
            return count;
        }
    }
}

/// The same by one plain statement per batch on the same table: settle what is held, take the next.
fn plain(client: &mut ::postgres::Client, schema: &str, batch: u32) -> usize {
    let text = format!(
        "WITH r AS MATERIALIZED (SELECT u.id, u.attempt, $3::uuid AS owner \
              FROM unnest($1::uuid[], $2::int[]) AS u (id, attempt)), \
         d AS (UPDATE \"{schema}\".jobs AS j SET state = 3, owner = NULL, expiry = NULL, finished_at = now() \
              FROM r WHERE j.id = r.id AND j.owner = r.owner AND j.attempt = r.attempt RETURNING j.id), \
         c AS MATERIALIZED (SELECT j.ctid AS tid FROM \"{schema}\".jobs AS j WHERE j.state = 0 AND j.concurrency_key IS NULL AND j.queue = 'q' \
              AND j.due_at <= now() ORDER BY j.due_at, j.id LIMIT {batch} FOR NO KEY UPDATE SKIP LOCKED) \
         UPDATE \"{schema}\".jobs AS j SET state = 2, owner = $3, expiry = now() + interval '60 s', \
              attempt = j.attempt + 1 \
         FROM c WHERE j.ctid = c.tid RETURNING j.id, j.attempt, j.payload"
    );
    let statement = client.prepare(&text).unwrap();
    let me = WorkerId::new();
    let (mut jobs, mut attempts) = (Vec::<JobId>::new(), Vec::<i32>::new());
    let mut count = 0;
    loop {
        let rows = client.query(&statement, &[&jobs, &attempts, &me]).unwrap();
        count += rows.len();
        (jobs, attempts) =
            rows.iter().map(|row| (row.get::<_, JobId>(0), row.get::<_, i32>(1))).unzip();
        rows.iter().for_each(|row| assert_eq!(row.get::<_, &[u8]>(2).len(), 100));
        if jobs.is_empty() {
            return count;
        }
    }
}

/// A store of its own with a session, filled.
fn filled() -> (PostgresStore, PostgresSession) {
    let store = PostgresStore::builder(config()).schema(fresh_name()).open().unwrap();
    let mut session = PostgresSession::open(Arc::clone(&store.inner)).unwrap();
    fill(&mut session);
    (store, session)
}

#[test]
#[ignore = "a measurement"]
fn exchange_against_plain_sql() {
    for batch in [10, 100, 500] {
        for _ in 0..3 {
            let (store, _session) = filled();
            let mut client = raw();
            client.batch_execute(&super::super::connect::session_settings(LEASE)).unwrap();
            let backend = client.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
            let schema = store.inner.schema.name();
            let plain = Cost::measure(backend, || plain(&mut client, schema, batch));
            let (_store, mut session) = filled();
            let backend = session.backend_pid();
            let ours = Cost::measure(backend, || exchanged(&mut session, batch));
            println!(
                "batch {batch}: plain {:.0}/s and {:.1} us of the server, exchange {:.0}/s and {:.1} us; \
                 ratio {:.2} by the clock, {:.2} by the server's time",
                plain.rate,
                plain.server_us,
                ours.rate,
                ours.server_us,
                ours.rate / plain.rate,
                plain.server_us / ours.server_us
            );
        }
    }
}
