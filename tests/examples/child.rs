//! Running an example as a process.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread::JoinHandle;

/// An example, about to be run.
pub struct Example {
    path: PathBuf,
    args: Vec<OsString>,
    /// Who runs it, when it is not who runs the test.
    user: Option<u32>,
}

impl Example {
    /// The binary beside the one of this test: `<target>/<profile>/examples/<name>`.
    ///
    /// # Panics
    /// When it is not there: `cargo test` builds examples, except when it is told to build one test.
    pub fn named(name: &str) -> Self {
        let own = std::env::current_exe().expect("a test knows its path");
        let profile = own.parent().and_then(Path::parent).expect("<profile>/deps/<test>");
        let path = profile.join("examples").join(name);
        assert!(
            path.is_file(),
            "{} is missing: build it with `cargo build --examples` and the features of this test",
            path.display()
        );
        Self { path, args: Vec::new(), user: None }
    }

    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Has it run by somebody whom the system can forbid something, with all of `folder` his: root reads
    /// every file, whatever its permissions.
    pub fn as_common_user(&mut self, folder: &Path) {
        if !crate::tree::is_owned_by_root(folder) {
            return;
        }
        let user = 65_534;
        // The folder of the build may be closed to others. Not copied by this process: a child that
        // another thread starts meanwhile would inherit the open file, and what is open for writing
        // cannot be executed.
        let copy = folder.join("example");
        done(Command::new("cp").arg(&self.path).arg(&copy));
        self.path = copy;
        let owner = format!("{user}:{user}");
        done(Command::new("chown").args(["--no-dereference", "--recursive", &owner]).arg(folder));
        self.user = Some(user);
    }

    /// Runs it to its end.
    pub fn run(self) -> Ended {
        self.start().wait()
    }

    pub fn start(self) -> Running {
        let mut command = match self.user {
            None => Command::new(&self.path),
            Some(user) => {
                let mut command = Command::new("setpriv");
                command.arg(format!("--reuid={user}")).arg(format!("--regid={user}"));
                command.args(["--clear-groups", "--"]).arg(&self.path);
                command
            }
        };
        command.args(self.args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the example can be started");
        let mut stdout = child.stdout.take().expect("it is piped");
        // Read beside the other pipe: a full one would keep the example waiting.
        let stdout = std::thread::spawn(move || {
            let mut all = Vec::new();
            stdout.read_to_end(&mut all).map(|_| all).expect("the pipe can be read")
        });
        let stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        Running { child, stdout: Some(stdout), stderr, seen: String::new() }
    }
}

/// An example that runs. Dropped, it is killed.
pub struct Running {
    child: Child,
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: BufReader<ChildStderr>,
    seen: String,
}

impl Running {
    /// Reads what it tells until a line is as wanted; `false` when it ended before.
    pub fn read_until(&mut self, is_wanted: impl Fn(&str) -> bool) -> bool {
        loop {
            let start = self.seen.len();
            let count = self.stderr.read_line(&mut self.seen).expect("the pipe can be read");
            if count == 0 {
                return false;
            }
            if is_wanted(self.seen[start..].trim_end()) {
                return true;
            }
        }
    }

    /// Ends it on the spot (SIGKILL).
    pub fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
    }

    /// What Ctrl-C does (SIGINT).
    pub fn interrupt(&self) {
        let id = self.child.id().to_string();
        done(Command::new("kill").args(["-s", "INT", &id]));
    }

    pub fn wait(mut self) -> Ended {
        self.stderr.read_to_string(&mut self.seen).expect("the pipe can be read");
        let stdout = self.stdout.take().expect("it is waited for once");
        let stdout = stdout.join().expect("the reader does not panic");
        let status = self.child.wait().expect("it can be waited for");
        Ended { code: status.code(), stdout, stderr: std::mem::take(&mut self.seen) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn done(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}

/// How an example ended, and all that it said.
pub struct Ended {
    /// `None` when a signal ended it.
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    stderr: String,
}

impl Ended {
    pub fn stdout(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("it is text")
    }

    pub fn stderr(&self) -> &str {
        &self.stderr
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit code {:?}, standard error:\n{}", self.code, self.stderr)
    }
}
