//! What work costs the database: a claim and the report of it, whatever the size of the batch.
//!
//! Commits are counted outside of this crate, by the server's own statistics and by the frames of the
//! WAL file, so that what `Counted` counts as one call is shown to be one commit.

#![cfg(any(feature = "sqlite", feature = "postgres"))]

mod support;

use backwave::store::{
    Accepts, Body, Claim, ClaimedJob, JobRow, Jobs, Outcome, OutcomeRow, QueueQuota, Receipt,
    RowReport, Store,
};
use backwave::{JobId, WorkerId};
use std::time::Duration;
use support::counted::Counted;

/// The sizes of batches at which costs are looked at.
const BATCHES: [u32; 3] = [1, 10, 500];
const CYCLES: u64 = 8;

/// Takes jobs and settles them as a pump does: in one call, and as two where the pump has nothing to
/// report yet or is to stop.
struct Work {
    worker: WorkerId,
    plan: Vec<QueueQuota>,
    accepts: Vec<Accepts>,
    sequence: u64,
}

impl Work {
    fn new(batch: u32) -> Self {
        Self {
            worker: WorkerId::new(),
            plan: vec![QueueQuota { queue: "default".to_owned(), quota: batch }],
            accepts: vec![Accepts { wire_name: "work".to_owned(), version_max: 1 }],
            sequence: 0,
        }
    }

    fn claim(&self) -> Claim<'_> {
        let total = self.plan[0].quota;
        Claim::new(self.worker, total, &self.plan, &self.accepts, Duration::from_secs(60))
    }

    fn outcomes(&mut self, jobs: &[ClaimedJob]) -> Vec<OutcomeRow> {
        jobs.iter()
            .map(|job| {
                self.sequence += 1;
                let receipt = Receipt { pump: self.worker, sequence: self.sequence };
                OutcomeRow::new(job.id, job.attempt, self.worker, receipt, Outcome::Succeeded)
            })
            .collect()
    }

    /// Claims once, exchanges `cycles` times, and reports what it holds then.
    fn run(&mut self, session: &mut dyn Jobs, cycles: u64) {
        let mut held = session.claim(&self.claim()).expect("it answers").jobs;
        for _ in 0..cycles {
            assert_eq!(held.len() as u32, self.plan[0].quota, "whole batches");
            let rows = self.outcomes(&held);
            let exchanged = session.exchange(&rows, &self.claim()).expect("it answers");
            assert!(exchanged.reported.rows.iter().all(is_applied));
            held = exchanged.claimed.jobs;
        }
        let rows = self.outcomes(&held);
        let reported = session.report(&rows).expect("it answers");
        assert!(reported.rows.iter().all(is_applied));
    }
}

fn is_applied(row: &RowReport) -> bool {
    matches!(row, RowReport::Applied(_))
}

/// Adds what [`Work::run`] takes.
fn fill(session: &mut dyn Jobs, batch: u32, cycles: u64) {
    let count = u64::from(batch) * (cycles + 1);
    let rows: Vec<_> = (0..count)
        .map(|_| {
            let mut row = JobRow::new(JobId::new(), "work");
            row.payload = Body::new(vec![b'7'; 100]);
            row
        })
        .collect();
    rows.chunks(1000).for_each(|rows| drop(session.enqueue(rows).expect("it answers")));
}

#[cfg(feature = "postgres")]
mod postgres {
    use super::*;
    use backwave::PostgresStore;
    use support::database::Database;

    /// Commits that a session makes in its whole life, its opening included.
    fn commits_of(
        database: &mut Database,
        store: &impl Store,
        work: impl FnOnce(&mut dyn Jobs),
    ) -> u64 {
        let before = database.commits();
        let mut session = store.open_session().expect("the server answers");
        work(session.as_mut());
        drop(session);
        u64::try_from(database.commits() - before).expect("counted upwards")
    }

    /// The fewest of several tries: the server's own cleaner commits in the database, too, when it comes by.
    fn fewest_commits(
        database: &mut Database,
        store: &Counted<PostgresStore>,
        batch: u32,
        cycles: u64,
    ) -> u64 {
        let tries = (0..3).map(|_| {
            fill(store.open_session().expect("the server answers").as_mut(), batch, cycles);
            let calls = store.calls().cycles();
            let commits =
                commits_of(database, store, |session| Work::new(batch).run(session, cycles));
            // Beyond the claim before the first and the report after the last.
            assert_eq!(store.calls().cycles() - calls - 2, cycles, "calls");
            commits
        });
        tries.min().expect("there were some")
    }

    #[test]
    fn a_cycle_is_one_call_of_postgres_and_at_most_two_commits_whatever_its_batch() {
        for batch in BATCHES {
            let mut database = Database::create();
            let store = PostgresStore::builder(database.config()).open().expect("it answers");
            let store = Counted::new(store);
            let idle = fewest_commits(&mut database, &store, batch, 0);
            let busy = fewest_commits(&mut database, &store, batch, CYCLES);
            // A first exchange is prepared, too: within the bound.
            let commits = busy - idle;
            assert!(commits >= CYCLES, "batch {batch}: only {commits} commits were seen");
            assert!(commits <= 2 * CYCLES, "batch {batch}: {commits} commits in {CYCLES} cycles");
        }
    }
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use super::*;
    use backwave::SqliteStore;
    use backwave::rusqlite::Connection;
    use std::path::{Path, PathBuf};

    /// Counts transactions by what they leave in the WAL file.
    struct Wal {
        path: PathBuf,
        /// A reader whose snapshot keeps the file from being begun anew.
        _reader: Connection,
    }

    impl Wal {
        fn of(path: &Path) -> Self {
            let reader = Connection::open(path).expect("the file opens");
            reader
                .execute_batch("BEGIN; SELECT count(*) FROM backwave_jobs;")
                .expect("it can be read");
            Self { path: PathBuf::from(format!("{}-wal", path.display())), _reader: reader }
        }

        /// Frames that end a transaction: those that name the size of the database. The file has a head
        /// of 32 bytes; a frame is a head of 24, which begins with the page's number and that size, and
        /// a page. Frames of an earlier round of the file have other salts than its head.
        fn commits(&self) -> u64 {
            let bytes = std::fs::read(&self.path).expect("there is a WAL file");
            let number = |at: usize| {
                u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
            };
            let frame = 24 + number(8);
            let frames = (32..).step_by(frame).take_while(|at| at + frame <= bytes.len());
            let current = frames.take_while(|at| bytes[at + 8..at + 16] == bytes[16..24]);
            current.filter(|at| number(at + 4) > 0).count() as u64
        }
    }

    #[test]
    fn a_cycle_is_one_call_of_sqlite_and_one_transaction_whatever_its_batch() {
        for batch in BATCHES {
            let folder = tempfile::tempdir().expect("a temporary folder can be made");
            let path = folder.path().join("jobs.db");
            let store = Counted::new(SqliteStore::open(&path).expect("the file opens"));
            let mut session = store.open_session().expect("the file opens");
            fill(session.as_mut(), batch, CYCLES);
            let wal = Wal::of(&path);
            let (commits, calls) = (wal.commits(), store.calls().cycles());
            Work::new(batch).run(session.as_mut(), CYCLES);
            let calls = store.calls().cycles() - calls;
            // With the claim before the first cycle and the report after the last.
            assert_eq!(calls, CYCLES + 2, "calls");
            assert_eq!(wal.commits() - commits, calls, "batch {batch}");
        }
    }

    #[test]
    fn an_idle_claim_writes_nothing_to_sqlite() {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let path = folder.path().join("jobs.db");
        let store = SqliteStore::open(&path).expect("the file opens");
        let mut session = store.open_session().expect("the file opens");
        fill(session.as_mut(), 1, 0);
        let mut work = Work::new(1);
        work.run(session.as_mut(), 0);
        let wal = Wal::of(&path);
        let commits = wal.commits();
        let claimed = session.claim(&work.claim()).expect("it answers");
        assert_eq!((claimed.jobs.len(), wal.commits()), (0, commits));
    }
}
