//! Several processes on one SQLite file: work is shared, and a process that dies or stands still is
//! inherited from.
//!
//! A child is this very test binary, told by its environment to be one (`the_child`); it talks over its
//! standard streams. Nothing is forked.

mod support;

use backwave::store::JobRecord;
use backwave::{
    Client, GroupOptions, Health, Job, JobContext, JobId, JobResult, JobState, NewJob, Registry,
    RetryPolicy, SqliteStore, spawn_group,
};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::world::{PATIENCE, facts, quick};

const ROLE: &str = "BACKWAVE_TEST_CHILD";
const FILE: &str = "BACKWAVE_TEST_FILE";

#[derive(Serialize, Deserialize)]
enum Work {
    /// Done at once.
    Short,
    /// The process dies in it, until the attempt given.
    Abort { until_attempt: u32 },
    /// The first attempt runs until its token fires.
    Long,
}

impl Job for Work {
    const WIRE_NAME: &'static str = "work";
}

/// A child process that runs a group.
struct Node {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<std::process::ChildStdout>,
}

impl Node {
    fn start(file: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("it has a path"));
        command.args(["the_child", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, "node").env(FILE, file);
        let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = streams.spawn().expect("the child starts");
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut node = Self { process, input, output };
        assert_eq!(node.heard("node "), "ready");
        node
    }

    /// The rest of its next line with that beginning.
    fn heard(&mut self, beginning: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.output.read_line(&mut line).expect("its output can be read");
            assert_ne!(read, 0, "the child has ended without saying {beginning:?}");
            if let Some((_, rest)) = line.split_once(beginning) {
                return rest.trim_end().to_owned();
            }
        }
    }

    fn signal(&self, signal: &str) {
        let pid = self.process.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().expect("kill runs");
        assert!(sent.success());
    }

    /// Has it stop cleanly; how many handlers it has run to their end.
    fn stop(mut self) -> usize {
        drop(self.input.take());
        let done = self.heard("done ").parse().expect("a number");
        assert!(self.process.wait().expect("it ends").success());
        done
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It has ended unless the test failed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What a node runs, and says.
#[test]
#[ignore = "the other side of the tests below, in a process of its own"]
fn the_child() {
    let Some(file) = std::env::var_os(FILE).filter(|_| std::env::var_os(ROLE).is_some()) else {
        return;
    };
    let done = Arc::new(AtomicUsize::new(0));
    let registry = Registry::new().handle_with(&done, |done: &AtomicUsize, ctx, job: Work| {
        run(ctx, &job)?;
        done.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    let store = open(Path::new(&file));
    let health = Arc::new(Health::new());
    let group = spawn_group(store, registry, options(), Arc::clone(&health)).expect("it starts");
    say("node ready");
    // Until the parent closes our input.
    std::io::stdin().lines().for_each(drop);
    let report = group.shutdown();
    assert!(report.halts.is_empty(), "{report:?}");
    say(&format!("done {}", done.load(Ordering::SeqCst)));
}

fn run(ctx: &JobContext, job: &Work) -> JobResult {
    match job {
        Work::Abort { until_attempt } if ctx.attempt() < *until_attempt => std::process::abort(),
        Work::Long if ctx.attempt() == 1 => {
            say("begun");
            let ended = ctx.sleep(Duration::from_secs(3600));
            say(&format!("fired {:?}", ctx.token().reason()));
            let _ = ended;
            Ok(ctx.set_output(&"of the first")?)
        }
        Work::Long => Ok(ctx.set_output(&"of the second")?),
        Work::Short | Work::Abort { .. } => Ok(()),
    }
}

fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    // A parent that is gone does not listen.
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}

fn options() -> GroupOptions {
    quick("node").workers(4).retry(RetryPolicy::new(2).fixed(Duration::from_millis(1)))
}

fn open(file: &Path) -> SqliteStore {
    let builder = SqliteStore::builder(file).busy_timeout(Duration::from_secs(1));
    builder.open().expect("the file opens")
}

struct Scene {
    _folder: tempfile::TempDir,
    file: PathBuf,
    client: Client,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let file = folder.path().join("jobs.db");
        let client = Client::new(open(&file));
        Self { _folder: folder, file, client }
    }

    fn enqueue(&self, work: &Work) -> JobId {
        self.client.enqueue(work).expect("accepted").id
    }

    fn ended(&self, id: JobId) -> JobRecord {
        self.client.wait(id, PATIENCE).expect("it ends")
    }

    /// Stops a process outside of its writes: one that stood still inside would keep the file's lock, and nobody
    /// could go on before it does.
    fn freeze(&self, node: &Node) {
        let probe = rusqlite::Connection::open(&self.file).expect("the file opens");
        probe.busy_timeout(Duration::from_millis(200)).expect("set");
        let deadline = Instant::now() + PATIENCE;
        loop {
            node.signal("-STOP");
            if probe.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok() {
                return;
            }
            assert!(Instant::now() < deadline, "the process always writes");
            node.signal("-CONT");
        }
    }
}

#[test]
fn two_processes_drain_one_file_and_each_job_runs_once() {
    const JOBS: usize = 10_000;
    let scene = Scene::new();
    // Until both are there: one alone is through before another has started.
    let operator = scene.client.operator("test");
    operator.pause("default").expect("paused");
    let mut ids = Vec::new();
    for _ in 0..JOBS / 1000 {
        let jobs = (0..1000).map(|_| NewJob::new(&Work::Short));
        let answers = scene.client.enqueue_many(jobs).expect("accepted");
        ids.extend(answers.into_iter().map(|answer| answer.id));
    }
    let nodes = [Node::start(&scene.file), Node::start(&scene.file)];
    operator.resume("default").expect("resumed");
    for id in &ids {
        assert_eq!(facts(&scene.ended(*id)), (JobState::Succeeded, 1, 0));
    }
    let done = nodes.map(Node::stop);
    assert_eq!(done.iter().sum::<usize>(), JOBS, "{done:?}");
    assert!(done.iter().all(|done| *done > 0), "both have worked: {done:?}");
}

#[test]
fn a_job_whose_process_died_is_inherited_by_another() {
    let scene = Scene::new();
    let mut dies = Node::start(&scene.file);
    let id = scene.enqueue(&Work::Abort { until_attempt: 2 });
    assert!(!dies.process.wait().expect("it ends").success());
    let heir = Node::start(&scene.file);
    assert_eq!(facts(&scene.ended(id)), (JobState::Succeeded, 2, 1));
    assert_eq!(heir.stop(), 1);
}

#[test]
fn a_job_that_kills_its_process_each_time_is_dead_lettered_at_the_ceiling() {
    let scene = Scene::new();
    let id = scene.enqueue(&Work::Abort { until_attempt: u32::MAX });
    for _ in 0..2 {
        let mut dies = Node::start(&scene.file);
        assert!(!dies.process.wait().expect("it ends").success());
    }
    // The ceiling is two: the third process runs nothing, it only settles the lapse.
    let heir = Node::start(&scene.file);
    let record = scene.ended(id);
    assert_eq!(facts(&record), (JobState::DeadLettered, 2, 2));
    let detail = record.failure_detail.unwrap_or_default();
    assert!(detail.starts_with("the lease of worker ") && detail.contains("lapsed"), "{detail}");
    assert_eq!(heir.stop(), 0);
}

#[test]
fn a_process_that_stood_still_past_its_lease_finds_its_work_done_by_another() {
    let scene = Scene::new();
    let mut frozen = Node::start(&scene.file);
    let id = scene.enqueue(&Work::Long);
    assert_eq!(frozen.heard("beg"), "un");
    scene.freeze(&frozen);
    let heir = Node::start(&scene.file);
    let record = scene.ended(id);
    assert_eq!(facts(&record), (JobState::Succeeded, 2, 1));
    assert_eq!(record.output::<String>().expect("set"), "of the second");
    frozen.signal("-CONT");
    assert_eq!(frozen.heard("fired "), "Some(LeaseLost)");
    frozen.stop();
    assert_eq!(scene.client.monitor().job(id).expect("there"), record);
    assert_eq!(heir.stop(), 1);
}
