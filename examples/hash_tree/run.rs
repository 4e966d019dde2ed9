//! The run: enqueue what the walk finds while a group works on it, wait for the end, tell.

use crate::args::{Database, Options};
use crate::file;
use crate::outcome::{print_states, report};
use crate::progress::{Counts, Progress};
use crate::tree::Tree;
#[cfg(feature = "postgres")]
use backwave::PostgresStore;
use backwave::crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use backwave::store::Store;
use backwave::{
    Client, Group, GroupOptions, Health, JobId, JobState, NewJob, Registry, SqliteStore,
    spawn_group,
};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How a run ended.
pub enum End {
    AllSucceeded,
    SomeFailed,
    Interrupted,
}

pub fn run(options: &Options) -> Result<End, Box<dyn Error>> {
    let mut tree = Tree::open(&options.folder)
        .map_err(|error| format!("{}: {error}", options.folder.display()))?;
    let store = open(options, &mut tree)?;
    let client = Client::new(Arc::clone(&store));
    let health = Arc::new(Health::new());
    let group = spawn_group(
        store,
        Registry::new().handle(file::hash),
        GroupOptions::new("hash_tree")
            .workers(options.workers)
            .lease(options.lease)
            .maintenance_interval(Duration::from_secs(1)),
        Arc::clone(&health),
    )?;
    let group = Arc::new(group);
    let stopped = stop_on_ctrl_c(Arc::clone(&group))?;
    let mut run =
        Run { client, health, stopped, progress: Progress::new(), next_look: Instant::now() };
    let found = run.enqueue(&tree)?;
    let last = if found.is_interrupted { None } else { run.wait()? };
    run.progress.finish();
    // What was not begun is handed back, so that the next run need not wait for a lease to lapse.
    group.shutdown();
    let Some(last) = last else {
        eprintln!("stopped; run it again to go on");
        return Ok(End::Interrupted);
    };
    let states = if options.list || last.failed > 0 {
        report(&run.client, &tree, &found.jobs, options.list)?
    } else {
        // All that the database knows has succeeded: no need to go through it job by job.
        [(JobState::Succeeded, found.jobs.len() as u64)].into()
    };
    eprintln!("{} files, {} of them new", found.jobs.len(), found.new);
    print_states(&states);
    let has_failed = states.keys().any(|state| *state != JobState::Succeeded);
    Ok(if has_failed || found.unseen > 0 { End::SomeFailed } else { End::AllSucceeded })
}

/// Both kinds of store, as one. A call may take so long that two of them and a heartbeat still fit into
/// a lease.
fn open(options: &Options, tree: &mut Tree) -> Result<Arc<dyn Store>, Box<dyn Error>> {
    let call_max = options.lease / 6;
    match &options.database {
        Database::Sqlite(path) => {
            let store = SqliteStore::builder(path).busy_timeout(call_max).open()?;
            tree.leave_out_database(store.path());
            Ok(Arc::new(store))
        }
        #[cfg(feature = "postgres")]
        Database::Postgres(url) => {
            let config = url.parse()?;
            Ok(Arc::new(PostgresStore::builder(config).statement_timeout(call_max).open()?))
        }
    }
}

/// At the first Ctrl-C a clean stop; at the second the end, and leases that lapse.
fn stop_on_ctrl_c(group: Arc<Group>) -> Result<Receiver<()>, ctrlc::Error> {
    let (stop, stopped) = bounded(1);
    let was_asked = AtomicBool::new(false);
    ctrlc::set_handler(move || {
        if was_asked.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        group.begin_shutdown();
        // There is room for the one message, unless the run is over.
        let _ = stop.try_send(());
    })?;
    Ok(stopped)
}

struct Run {
    client: Client,
    health: Arc<Health>,
    /// Carries a message once a stop was asked for.
    stopped: Receiver<()>,
    progress: Progress,
    /// When the counts are worth another look.
    next_look: Instant,
}

/// What the walk found.
#[derive(Default)]
struct Found {
    /// In order of the paths. All that is kept of a file here, 16 bytes: the rest is in the store.
    jobs: Vec<JobId>,
    new: u64,
    /// Folders that could not be looked into.
    unseen: u64,
    is_interrupted: bool,
}

impl Run {
    /// Walks the tree and enqueues what it finds, a batch at a time.
    fn enqueue(&mut self, tree: &Tree) -> Result<Found, Box<dyn Error>> {
        let mut found = Found::default();
        let mut batch = Vec::with_capacity(BATCH);
        for file in tree.files() {
            match file {
                Ok(file) => {
                    let (id, job) = file.to_new_job()?;
                    found.jobs.push(id);
                    batch.push(job);
                }
                Err(error) => {
                    found.unseen += 1;
                    eprintln!("not seen: {error}");
                }
            }
            if batch.len() == BATCH {
                self.send(&mut batch, &mut found)?;
            }
            if found.is_interrupted {
                return Ok(found);
            }
        }
        self.send(&mut batch, &mut found)?;
        Ok(found)
    }

    fn send(&mut self, batch: &mut Vec<NewJob>, found: &mut Found) -> Result<(), Box<dyn Error>> {
        let enqueued = self.client.enqueue_many(batch.drain(..))?;
        found.new += enqueued.iter().map(|job| u64::from(job.is_new)).sum::<u64>();
        found.is_interrupted = !self.stopped.is_empty();
        if self.next_look <= Instant::now() {
            self.look()?;
        }
        Ok(())
    }

    /// Waits until every file of the database has ended, be it of this tree or of another that a run left
    /// half done. The last counts; `None` when a stop was asked for first.
    fn wait(&mut self) -> Result<Option<Counts>, Box<dyn Error>> {
        loop {
            let counts = self.look()?;
            if counts.ended == counts.total {
                return Ok(Some(counts));
            }
            match self.stopped.recv_deadline(self.next_look) {
                Ok(()) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
                // The handler lives as long as the process.
                Err(RecvTimeoutError::Disconnected) => {
                    return Err("the signal handler is gone".into());
                }
            }
        }
    }

    fn look(&mut self) -> Result<Counts, Box<dyn Error>> {
        if !self.health.is_healthy() {
            let halts = self.health.halted_groups();
            let halts: Vec<_> = halts.values().map(ToString::to_string).collect();
            return Err(format!("the group has halted: {}", halts.join("; ")).into());
        }
        let began = Instant::now();
        let counts = Counts::read(&self.client)?;
        // Counting takes its time where there are very many; most of it is for hashing.
        self.next_look = Instant::now() + LOOK_MIN.max(began.elapsed() * 10);
        self.progress.show(counts);
        Ok(counts)
    }
}

/// Jobs per call to the store.
const BATCH: usize = 1000;
/// The shortest time between two looks at the counts.
const LOOK_MIN: Duration = Duration::from_millis(100);
