//! Gates: a handler says that it has come to a point, and waits there until the test lets it go on.

use super::world::PATIENCE;
use crossbeam_channel::{Receiver, Sender, unbounded};

/// Both ends of a gate; clones are the same gate.
#[derive(Clone)]
pub struct Gate {
    arrivals: (Sender<String>, Receiver<String>),
    passes: (Sender<()>, Receiver<()>),
}

impl Gate {
    pub fn new() -> Self {
        Self { arrivals: unbounded(), passes: unbounded() }
    }

    /// Says `note` and goes on.
    pub fn say(&self, note: impl Into<String>) {
        self.arrivals.0.send(note.into()).expect("a gate holds both ends");
    }

    /// Says `note` and waits to be let through, ignoring every token. A test that ends without letting
    /// it through fails on its own account.
    pub fn pass(&self, note: impl Into<String>) {
        self.say(note);
        self.passes.1.recv_timeout(PATIENCE).expect("let through");
    }

    /// The next note, waited for.
    ///
    /// # Panics
    /// When nobody comes.
    pub fn heard(&self) -> String {
        self.arrivals.1.recv_timeout(PATIENCE).expect("somebody comes to the gate")
    }

    /// The notes that nobody has taken yet.
    pub fn unheard(&self) -> Vec<String> {
        self.arrivals.1.try_iter().collect()
    }

    /// Lets one through, now or when he comes.
    pub fn open(&self) {
        self.passes.0.send(()).expect("a gate holds both ends");
    }
}
