//! The plainest loop over the Postgres table: one connection, one statement per batch, no threads. It does
//! for each job what a lease needs (owner, expiry, attempt; the fence on them), and nothing else.

use super::run::{self, Pace, Stopwatch};
use crate::support::{database::Database, postgres};
use backwave::postgres::types::{ToSql, Type};
use backwave::postgres::{Client, NoTls};
use backwave::{JobId, WorkerId};

/// The settings under which the statements below were found to be fastest, also those of our sessions.
const SETTINGS: &str = "SET plan_cache_mode = force_generic_plan; SET enable_hashjoin = off; \
     SET enable_mergejoin = off; SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off";

/// What the server says of itself.
pub(crate) fn settings() -> String {
    let mut client = postgres::connect();
    let mut show = |name: &str| -> String {
        client.query_one(&format!("SHOW {name}"), &[]).expect("the server answers").get(0)
    };
    let names = ["fsync", "synchronous_commit", "shared_buffers", "max_wal_size"];
    let values = names.map(|name| format!("{name} {}", show(name)));
    let warning = if show("fsync") == "on" {
        ""
    } else {
        "; NOT DURABLE: `tests/run.sh --server-only --durable` starts one that is"
    };
    format!("Postgres {}, {}{warning}", show("server_version"), values.join(", "))
}

fn connect(database: &Database) -> Client {
    let mut client = database.config().connect(NoTls).expect("the server answers");
    client.batch_execute(SETTINGS).expect("it has these settings");
    client
}

pub(crate) fn enqueue(database: &Database, jobs: usize, batch: usize) -> Pace {
    let mut client = connect(database);
    let insert = client
        .prepare_typed(
            "INSERT INTO backwave.jobs (id, queue, wire_name, version, state, due_at, created_at, payload) \
             SELECT u.id::uuid, $3, $4, 1, 0, now(), now(), u.payload \
               FROM unnest($1::text[], $2::bytea[]) AS u (id, payload)",
            &[Type::TEXT_ARRAY, Type::BYTEA_ARRAY, Type::TEXT, Type::TEXT],
        )
        .expect("it is SQL");
    let ids = run::ids(jobs);
    let watch = Stopwatch::start(jobs);
    for (number, ids) in ids.chunks(batch).enumerate() {
        let texts: Vec<String> = ids.iter().map(JobId::to_string).collect();
        let payloads: Vec<_> =
            (0..ids.len()).map(|index| run::payload(number * batch + index).into_bytes()).collect();
        let row: [&(dyn ToSql + Sync); 4] = [&texts, &payloads, &run::QUEUE, &run::NAME];
        client.execute(&insert, &row).expect("they are new");
    }
    watch.stop()
}

pub(crate) fn drain(database: &Database, jobs: usize, batch: usize) -> Pace {
    let mut client = connect(database);
    let queue = run::QUEUE;
    // Rows are settled by where they stand (ctid), after a look whether they are still held; a row that
    // moved in between would not be found, and the count below would show it.
    let text = format!(
        "WITH r AS MATERIALIZED ( \
             SELECT u.id, u.attempt FROM unnest($1::uuid[], $2::int[]) AS u (id, attempt)), \
         d AS (UPDATE backwave.jobs AS j \
                  SET state = 3, owner = NULL, expiry = NULL, finished_at = clock_timestamp() \
                 FROM r CROSS JOIN LATERAL ( \
                     SELECT k.ctid AS tid FROM backwave.jobs AS k \
                      WHERE k.id = r.id AND k.owner = $3 AND k.attempt = r.attempt \
                        AND k.expiry > clock_timestamp() OFFSET 0) AS l \
                WHERE j.ctid = l.tid AND j.owner = $3 AND j.attempt = r.attempt \
               RETURNING j.id), \
         c AS MATERIALIZED ( \
             SELECT j.ctid AS tid FROM backwave.jobs AS j \
              WHERE j.state = 0 AND j.concurrency_key IS NULL AND j.queue = '{queue}' AND j.due_at <= clock_timestamp() \
                AND (j.due_at, j.id) >= ($4, $5) \
              ORDER BY j.due_at, j.id LIMIT {batch} FOR NO KEY UPDATE SKIP LOCKED), \
         t AS (UPDATE backwave.jobs AS j SET state = 2, owner = $3, attempt = j.attempt + 1, \
                      expiry = clock_timestamp() + interval '60 s' \
                 FROM c WHERE j.ctid = c.tid RETURNING j.id, j.attempt, j.due_at, j.payload) \
         SELECT t.id, t.attempt, t.due_at, t.payload, (SELECT count(*) FROM d) AS settled FROM t"
    );
    let statement = client.prepare(&text).expect("it is SQL");
    let me = WorkerId::new();
    let (mut held, mut attempts) = (Vec::<JobId>::new(), Vec::<i32>::new());
    let mut floor = (backwave::Timestamp::EPOCH, JobId::from_bytes([0; 16]));
    let (mut taken, mut settled) = (0, 0);
    let watch = Stopwatch::start(jobs);
    loop {
        let rows = client
            .query(&statement, &[&held, &attempts, &me, &floor.0, &floor.1])
            .expect("the server answers");
        settled += held.len();
        taken += rows.len();
        if let Some(row) = rows.first() {
            assert_eq!(row.get::<_, i64>(4), held.len() as i64, "each lease was held");
        }
        floor = rows.iter().map(|row| (row.get(2), row.get(0))).max().unwrap_or(floor);
        rows.iter().for_each(|row| assert!(!row.get::<_, &[u8]>(3).is_empty()));
        (held, attempts) =
            rows.iter().map(|row| (row.get::<_, JobId>(0), row.get::<_, i32>(1))).unzip();
        if held.is_empty() {
            assert_eq!((taken, settled), (jobs, jobs), "all of them");
            return watch.stop();
        }
    }
}
