//! A Postgres server of a test's own, to be stopped and started under what runs on it.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A throw-away cluster with durable settings, on a loopback port that it keeps over restarts.
/// Stopped and removed when dropped.
pub struct Cluster {
    folder: TempDir,
    bin: PathBuf,
    port: u16,
    account: Option<Account>,
}

/// Whom the server runs as where the test is root, which Postgres refuses.
#[derive(Clone)]
struct Account {
    user: String,
    group: String,
}

/// How a server is stopped.
#[derive(Debug, Clone, Copy)]
pub enum Stop {
    /// Clients are disconnected, and what is in memory is written.
    Fast,
    /// As if the power had failed: recovered from the log at the next start.
    Immediate,
}

impl Cluster {
    /// A running cluster.
    ///
    /// # Panics
    /// When it cannot be made: a test of Postgres is never skipped.
    pub fn start() -> Self {
        let mut cluster = Self::make();
        for _ in 0..5 {
            // Another process may take the port between the look and the start: then look again.
            if cluster.try_launch() {
                return cluster;
            }
            cluster.port = free_port();
        }
        panic!("the cluster does not start:\n{}", cluster.log());
    }

    fn make() -> Self {
        let bin = std::env::var("BACKWAVE_TEST_PG_BIN").unwrap_or_else(|_| {
            panic!(
                "BACKWAVE_TEST_PG_BIN is not set: run `tests/run.sh`, or this command alone with \
                 `tests/run.sh --server-only -- <command>`"
            )
        });
        // Not TMPDIR: the server's account must be able to enter it, and the path of a socket is short.
        let folder = tempfile::Builder::new().prefix("backwave-cluster.").tempdir_in("/tmp");
        let folder = folder.expect("a temporary folder can be made");
        fs::create_dir(folder.path().join("socket")).expect("a folder can be made in it");
        let account = is_root().then(server_account);
        if let Some(Account { user, group }) = &account {
            let owner = format!("{user}:{group}");
            done(Command::new("chown").args(["-R", &owner]).arg(folder.path()), "chown");
        }
        let cluster = Self { folder, bin: bin.into(), port: free_port(), account };
        let mut initdb = cluster.command("initdb");
        initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"]);
        done(initdb.arg("--no-sync").arg("--pgdata").arg(cluster.data()), "initdb");
        cluster
    }

    /// The URL of its superuser.
    pub fn url(&self) -> String {
        format!("postgres://postgres@{}:{}/postgres", Ipv4Addr::LOCALHOST, self.port)
    }

    /// The port, the same before and after a restart.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// What the server has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Stops it, and waits until it has ended.
    pub fn stop(&self, how: Stop) {
        let mode = match how {
            Stop::Fast => "fast",
            Stop::Immediate => "immediate",
        };
        let mut stop = self.pg_ctl("stop");
        done(stop.args(["--wait", "--mode", mode]), "pg_ctl stop");
    }

    /// Starts it again after a [`Self::stop`], on its port.
    ///
    /// # Panics
    /// When it does not start.
    pub fn launch(&self) {
        assert!(self.try_launch(), "the cluster does not start again:\n{}", self.log());
    }

    /// Stops and starts it.
    pub fn restart(&self, how: Stop) {
        self.stop(how);
        self.launch();
    }

    fn try_launch(&self) -> bool {
        let socket = self.folder.path().join("socket");
        let options = format!(
            "-c listen_addresses={} -c port={} -c unix_socket_directories='{}' -c max_connections=100",
            Ipv4Addr::LOCALHOST,
            self.port,
            socket.display()
        );
        let mut start = self.pg_ctl("start");
        start.arg("--wait").arg("--log").arg(self.log_file()).arg("--options").arg(options);
        // The server inherits what `pg_ctl` writes to: a pipe would stay open as long as it runs.
        start.stdout(Stdio::null()).stderr(Stdio::null());
        start.status().is_ok_and(|status| status.success())
    }

    fn pg_ctl(&self, verb: &str) -> Command {
        let mut command = self.command("pg_ctl");
        command.arg(verb).arg("--silent").arg("--pgdata").arg(self.data());
        command
    }

    /// A binary of Postgres, run by whom it accepts, in a folder which that account can enter.
    fn command(&self, binary: &str) -> Command {
        let path = self.bin.join(binary);
        let mut command = match &self.account {
            Some(Account { user, group }) => {
                let mut command = Command::new("setpriv");
                command.arg(format!("--reuid={user}")).arg(format!("--regid={group}"));
                command.args(["--clear-groups", "--"]).arg(path);
                command
            }
            None => Command::new(path),
        };
        command.current_dir(self.folder.path()).env("HOME", self.folder.path());
        command.stdin(Stdio::null());
        command
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn is_running(&self) -> bool {
        self.data().join("postmaster.pid").exists()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.is_running() {
            // It ends with its folder in any case; a panic here would hide the test's own.
            let mut stop = self.pg_ctl("stop");
            let _ = stop.args(["--wait", "--mode", "immediate"]).output();
        }
    }
}

fn done(command: &mut Command, what: &str) {
    let output = command.output().unwrap_or_else(|error| panic!("{what} cannot be run: {error}"));
    assert!(output.status.success(), "{what} failed: {}", String::from_utf8_lossy(&output.stderr));
}

fn is_root() -> bool {
    answer("id", &["-u"]).as_deref() == Some("0")
}

fn server_account() -> Account {
    let user = if answer("id", &["-u", "postgres"]).is_some() { "postgres" } else { "nobody" };
    let group = answer("id", &["-g", user]).expect("an account for the server");
    Account { user: user.to_owned(), group }
}

fn answer(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port is free");
    listener.local_addr().expect("a bound socket has an address").port()
}

/// The path of a cluster's folder, for a test that looks into it.
impl AsRef<Path> for Cluster {
    fn as_ref(&self) -> &Path {
        self.folder.path()
    }
}
