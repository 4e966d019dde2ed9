//! Processes of a test's own: the test binary, run again with an order in its environment.

use super::drill::PATIENCE;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const ORDER: &str = "BACKWAVE_TEST_CHILD";
const MARK: &str = "child: ";

/// What this process was started for, if a test has started it.
pub fn order() -> Option<String> {
    std::env::var(ORDER).ok()
}

/// Says a line that the parent hears.
pub fn say(line: &str) {
    // The harness may have written half a line before.
    println!("\n{MARK}{line}");
}

/// A process that was started; killed and waited for when dropped.
pub struct Worker {
    child: Child,
    lines: Receiver<String>,
}

impl Worker {
    /// Runs the test `entry` of this binary in a process of its own, with `order` to read.
    pub fn start(entry: &str, order: &str) -> Self {
        let binary = std::env::current_exe().expect("a process knows its program");
        Self::spawn(Command::new(binary), entry, order)
    }

    /// The same through another program that takes a command line, such as `faketime`.
    pub fn start_through(wrapper: &str, arguments: &[&str], entry: &str, order: &str) -> Self {
        let binary = std::env::current_exe().expect("a process knows its program");
        let mut command = Command::new(wrapper);
        command.args(arguments).arg(binary);
        Self::spawn(command, entry, order)
    }

    fn spawn(mut command: Command, entry: &str, order: &str) -> Self {
        command.args(["--exact", entry, "--nocapture", "--test-threads=1"]).env(ORDER, order);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the process starts");
        let output = child.stdout.take().expect("it has an output");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some(said) = line.strip_prefix(MARK) {
                    let _ = sender.send(said.to_owned());
                }
            }
        });
        Self { child, lines }
    }

    /// The next line it says.
    ///
    /// # Panics
    /// When it says nothing.
    pub fn hear(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("the process says something")
    }

    /// Waits until it says this, and drops what it says before.
    ///
    /// # Panics
    /// When it does not say it.
    pub fn hear_until(&self, expected: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let said = self.lines.recv_timeout(left);
            let said = said.unwrap_or_else(|_| panic!("the process never says {expected:?}"));
            if said == expected {
                return;
            }
        }
    }

    /// Sends it a signal, by its name.
    pub fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        let status = kill.arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(status.is_ok_and(|status| status.success()), "SIG{name} is sent");
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it does not end, or fails.
    pub fn end(mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                assert!(status.success(), "the process ends with {status}");
                return;
            }
            assert!(Instant::now() < deadline, "the process ends");
            // Sleeps between looks: a wait with a deadline for a process is not in std.
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // One that has ended already is only waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
