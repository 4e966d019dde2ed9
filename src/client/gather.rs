//! Enqueues of several threads that go as one: while one call of this client is on its way, what others enqueue
//! gathers, and the next call takes it all along. A transaction costs about the same for one job as for fifty; and
//! where nothing is on its way, a call waits for nobody.
//!
//! Each caller gets its own answer. A refusal goes to whose job it was, and the others go again without it. After
//! a fault everybody goes alone, so that what is wrong with one call is never told to another; whether the call
//! may have been carried out goes with them.
//!
//! There is no thread here: the caller who finds nobody on the way leads, and hands the lead to one of those who
//! have gathered meanwhile. Nobody waits for more than the calls of a leader, which end.

use super::threads::TryError;
use crate::store::{Admission, EnqueueAnswer, JobRow};
use crossbeam_channel::{Sender, bounded};
use parking_lot::Mutex;
use std::sync::Arc;

/// A call of more jobs goes alone: it gains nothing, and others would wait for it.
pub(super) const CALL_MAX: usize = 100;
/// So many jobs go together at most.
const JOBS_MAX: usize = 1_000;
/// So many bytes of payloads go together at most, beyond the first call's.
const BYTES_MAX: usize = 4 << 20;

type Rows = Arc<[JobRow]>;

#[derive(Default)]
pub(super) struct Gather {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Somebody leads.
    is_led: bool,
    waiting: Vec<Member>,
}

/// Somebody who waits for the answer to a call.
struct Member {
    rows: Rows,
    told: Sender<Told>,
}

enum Told {
    Answer(EnqueueAnswer),
    /// Go alone; the call may have been carried out (`in_doubt`).
    Alone {
        in_doubt: bool,
    },
    /// Lead, and take these along.
    Lead(Vec<Member>),
}

/// What became of a call.
pub(super) enum Flown {
    /// It went alone, and this came of it.
    Tried(Result<EnqueueAnswer, TryError>),
    /// It has to go alone; it may have been carried out already (`in_doubt`).
    Alone { in_doubt: bool },
}

impl Gather {
    /// Enqueues by `run`: alone, or together with what others enqueue.
    pub(super) fn fly(
        &self,
        rows: &Rows,
        run: impl Fn(Rows) -> Result<EnqueueAnswer, TryError>,
    ) -> Flown {
        let told = {
            let mut state = self.state.lock();
            if state.is_led {
                let (told, hears) = bounded(1);
                state.waiting.push(Member { rows: Arc::clone(rows), told });
                Some(hears)
            } else {
                state.is_led = true;
                None
            }
        };
        // Who leads without an end that it foresaw lets go of those it has taken along.
        let told = told.map_or(Told::Lead(Vec::new()), |hears| {
            hears.recv().unwrap_or(Told::Alone { in_doubt: true })
        });
        match told {
            Told::Answer(answer) => Flown::Tried(Ok(answer)),
            Told::Alone { in_doubt } => Flown::Alone { in_doubt },
            Told::Lead(others) => {
                let _lead = Lead(self);
                if others.is_empty() {
                    return Flown::Tried(run(Arc::clone(rows)));
                }
                Group::new(rows, others).fly(run)
            }
        }
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }
}

/// The lead, which goes on to the next one when it is dropped.
struct Lead<'a>(&'a Gather);

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        let count = together(&state.waiting);
        let mut group: Vec<Member> = state.waiting.drain(..count).collect();
        if group.is_empty() {
            state.is_led = false;
            return;
        }
        drop(state);
        let leader = group.remove(0);
        // It waits for this, and nothing else makes it go.
        let _ = leader.told.send(Told::Lead(group));
    }
}

/// How many of those that wait go together.
fn together(waiting: &[Member]) -> usize {
    let (mut jobs, mut bytes) = (0, 0);
    let fits = waiting.iter().enumerate().take_while(|(place, member)| {
        jobs += member.rows.len();
        bytes += member.rows.iter().map(|row| row.payload.as_bytes().len()).sum::<usize>();
        *place == 0 || (jobs <= JOBS_MAX && bytes <= BYTES_MAX)
    });
    fits.count()
}

/// Calls that go together: the leader's own and those of others.
struct Group {
    calls: Vec<Call>,
    /// What became of the leader's own call.
    own: Option<Flown>,
}

struct Call {
    rows: Rows,
    /// Whom to tell; nobody where it is the leader's.
    told: Option<Sender<Told>>,
}

impl Group {
    fn new(own: &Rows, others: Vec<Member>) -> Self {
        let own = Call { rows: Arc::clone(own), told: None };
        let others =
            others.into_iter().map(|other| Call { rows: other.rows, told: Some(other.told) });
        Self { calls: std::iter::once(own).chain(others).collect(), own: None }
    }

    fn fly(mut self, run: impl Fn(Rows) -> Result<EnqueueAnswer, TryError>) -> Flown {
        while !self.calls.is_empty() {
            let total = self.calls.iter().map(|call| call.rows.len()).sum();
            match run(self.all()) {
                Ok(EnqueueAnswer::Accepted { jobs, store_time }) if jobs.len() == total => {
                    self.accept(&jobs, store_time);
                }
                Ok(EnqueueAnswer::Rejected { index, reason }) if index < total => {
                    let (place, index) = self.locate(index);
                    let call = self.calls.remove(place);
                    self.tell(call, Told::Answer(EnqueueAnswer::Rejected { index, reason }));
                }
                // An answer to something else: the call that goes alone finds and tells what it is.
                Ok(_) => self.disband(true),
                Err(error) => self.disband(may_be_done(&error)),
            }
        }
        self.own.unwrap_or(Flown::Alone { in_doubt: true })
    }

    fn all(&self) -> Rows {
        self.calls.iter().flat_map(|call| call.rows.iter().cloned()).collect()
    }

    fn accept(&mut self, jobs: &[Admission], store_time: crate::Timestamp) {
        let mut rest = jobs;
        for call in std::mem::take(&mut self.calls) {
            let (mine, others) = rest.split_at(call.rows.len());
            rest = others;
            let answer = EnqueueAnswer::Accepted { jobs: mine.to_vec(), store_time };
            self.tell(call, Told::Answer(answer));
        }
    }

    /// Whose job the one at that place of the whole is, and which of its own.
    fn locate(&self, mut index: usize) -> (usize, usize) {
        for (place, call) in self.calls.iter().enumerate() {
            if index < call.rows.len() {
                return (place, index);
            }
            index -= call.rows.len();
        }
        (0, 0)
    }

    fn disband(&mut self, in_doubt: bool) {
        for call in std::mem::take(&mut self.calls) {
            self.tell(call, Told::Alone { in_doubt });
        }
    }

    fn tell(&mut self, call: Call, what: Told) {
        match (call.told, what) {
            // It waits for this.
            (Some(told), what) => drop(told.send(what)),
            (None, Told::Answer(answer)) => self.own = Some(Flown::Tried(Ok(answer))),
            (None, Told::Alone { in_doubt }) => self.own = Some(Flown::Alone { in_doubt }),
            (None, Told::Lead(_)) => {}
        }
    }
}

const fn may_be_done(error: &TryError) -> bool {
    match error {
        TryError::NoThread(_) => false,
        TryError::ThreadGone => true,
        TryError::Store { may_be_done, .. } => *may_be_done,
    }
}
