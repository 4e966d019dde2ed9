//! How due jobs are taken: one ordered scan per queue and pass, one write for what it found.
//!
//! A scan walks the index of waiting jobs in order of (due, id) and judges each row here, so that one
//! walk finds what is due, what does not fit, and when the next job is due. Rows that this group has
//! no handler for are stepped over.

use super::batch::Seqs;
use super::keyed::{self, Keyed};
use super::queues::{self, Room};
use super::work::{Change, Work};
use super::{locked, row};
use crate::invariant::InvariantTrigger;
use crate::kernel::state::JobState;
use crate::store::{Accepts, Body, Claim, Claimed, ClaimedJob, StoreError, TransitionBy};
use crate::{JobId, Timestamp, WorkerId};
use rusqlite::{Connection, Row, params};
use std::collections::{BTreeSet, HashMap};

/// What a look without a lock says.
pub(super) enum Peek {
    /// Something is due that may be taken.
    Due,
    /// Nothing is: whether something due is kept back by a pause or a limit, and when the next acceptable job
    /// of the planned queues is due.
    Idle { withheld: bool, next_due: Option<Timestamp> },
}

/// Looks, without a lock, whether a claim would find something, so that an idle one writes nothing.
///
/// # Errors
/// Faults.
pub(super) fn peek(
    conn: &Connection,
    claim: &Claim<'_>,
    now: Timestamp,
) -> Result<Peek, StoreError> {
    let acceptable = Acceptable::new(claim.accepts);
    let queues = distinct_queues(claim);
    let (has_settings, has_keys) = queues::any_set(conn)?;
    let rooms = if has_settings { queues::rooms(conn, &queues)? } else { HashMap::new() };
    let (mut withheld, mut next_due) = (false, None);
    for queue in queues {
        let earliest = first_after(conn, LOOK_AHEAD, queue, Position::START, &acceptable)?;
        let keyed = match has_keys {
            true => keyed::due(conn, queue, &acceptable, now, 1)?,
            false => Keyed::default(),
        };
        let is_due = earliest.is_some_and(|due_at| due_at <= now) || keyed.next().is_some();
        withheld |= is_due || keyed.is_held_back();
        let later = match rooms.get(queue) {
            // There is nothing to be had then.
            Some(Room::Paused) => continue,
            Some(Room::Left(0)) if is_due => {
                first_after(conn, LOOK_AHEAD, queue, Position::past(now), &acceptable)?
            }
            _ if is_due => return Ok(Peek::Due),
            _ => earliest,
        };
        next_due = earlier(next_due, later);
        if has_keys {
            next_due = earlier(next_due, keyed::next_due(conn, queue, &acceptable, now)?);
        }
    }
    Ok(Peek::Idle { withheld, next_due })
}

/// Takes due jobs inside the caller's write transaction.
///
/// # Errors
/// Faults, a row that is not what its index says, and a write that did not touch the rows taken.
pub(super) fn take(work: &mut Work<'_>, claim: &Claim<'_>) -> Result<Claimed, StoreError> {
    let Work { conn, now, has_settings, has_keys, .. } = *work;
    let rooms = match has_settings {
        true => queues::rooms(conn, &distinct_queues(claim))?,
        false => HashMap::new(),
    };
    let mut taking = Taking::new(conn, claim, now, &rooms);
    if has_keys {
        taking.look_for_keyed()?;
    }
    taking.pass(|quota| quota)?;
    if claim.spill {
        taking.pass(|_| u32::MAX)?;
    }
    let next_due = taking.next_due()?;
    let withheld = taking.is_withheld()?;
    let Taking { mut taken, .. } = taking;
    fetch_long_payloads(conn, &mut taken)?;
    lease(conn, claim.worker, now + claim.lease, &mut taken)?;
    for Taken { job, .. } in &taken {
        work.changed(&Change {
            job: job.id,
            queue: &job.queue,
            from: Some(job.state_before),
            to: job.state,
            attempt: job.attempt,
            by: TransitionBy::Claim,
            worker: job.owner,
            detail: None,
        });
    }
    let jobs = taken.into_iter().map(|taken| taken.job).collect();
    Ok(Claimed::new(jobs, now).withheld(withheld).next_due(next_due))
}

/// The wire names that are accepted, with the latest version of each.
pub(super) struct Acceptable<'a>(HashMap<&'a str, u32>);

impl<'a> Acceptable<'a> {
    fn new(accepts: &'a [Accepts]) -> Self {
        let mut latest = HashMap::with_capacity(accepts.len());
        for accepted in accepts {
            let version = latest.entry(accepted.wire_name.as_str()).or_insert(0);
            *version = accepted.version_max.max(*version);
        }
        Self(latest)
    }

    /// Judges the row whose wire name and version stand in the given columns.
    pub(super) fn admits(
        &self,
        row: &Row<'_>,
        name: usize,
        version: usize,
    ) -> Result<bool, StoreError> {
        let name = row.get_ref(name)?.as_str().map_err(rusqlite::Error::from)?;
        match self.0.get(name) {
            Some(latest) => Ok(row.get::<_, i64>(version)? <= i64::from(*latest)),
            None => Ok(false),
        }
    }
}

/// A place in the order of one queue: what comes after it has not been looked at.
#[derive(Clone, Copy)]
pub(super) struct Position {
    due_at: i64,
    id: [u8; 17],
    id_length: usize,
}

impl Position {
    const START: Self = Self { due_at: i64::MIN, id: [0; 17], id_length: 0 };

    const fn after(due_at: Timestamp, id: JobId) -> Self {
        let (mut bytes, mut index) = ([0; 17], 0);
        while index < 16 {
            bytes[index] = id.as_bytes()[index];
            index += 1;
        }
        Self { due_at: due_at.as_micros(), id: bytes, id_length: 16 }
    }

    /// Behind everything that is due at `now`: no id is as long as this one, none is greater.
    pub(super) const fn past(now: Timestamp) -> Self {
        Self { due_at: now.as_micros(), id: [0xff; 17], id_length: 17 }
    }

    fn id(&self) -> &[u8] {
        &self.id[..self.id_length]
    }
}

/// A job that is being taken.
pub(super) struct Taken {
    seq: i64,
    payload_is_long: bool,
    bytes: u64,
    job: ClaimedJob,
}

impl Taken {
    /// Its place in the order of its queue.
    pub(super) const fn place(&self) -> (Timestamp, JobId) {
        (self.job.due_at, self.job.id)
    }
}

/// One queue of the plan while a claim walks it.
struct Line<'a> {
    queue: &'a str,
    position: Position,
    /// Everything due has been seen, of what has no key.
    is_exhausted: bool,
    /// What has a key, may be taken and was not yet.
    keyed: Keyed,
    /// So many more may be taken from it; `None` where nothing bounds it.
    room: Option<usize>,
    /// That, and there will be nothing later either.
    is_paused: bool,
    /// More would have been taken from it, had there been room.
    is_cut: bool,
}

struct Taking<'a> {
    conn: &'a Connection,
    claim: &'a Claim<'a>,
    acceptable: Acceptable<'a>,
    now: Timestamp,
    lines: Vec<Line<'a>>,
    taken: Vec<Taken>,
    bytes: u64,
    /// The next job would not have fitted: that ends the claim.
    is_full: bool,
    next_due: Option<Timestamp>,
    has_keys: bool,
}

impl<'a> Line<'a> {
    fn new(queue: &'a str, room: Option<Room>) -> Self {
        let is_paused = room == Some(Room::Paused);
        let room = room.map(|room| match room {
            Room::Paused => 0,
            Room::Left(room) => usize::try_from(room).unwrap_or(usize::MAX),
        });
        let (position, keyed) = (Position::START, Keyed::default());
        Self { queue, position, is_exhausted: false, keyed, room, is_paused, is_cut: false }
    }
}

impl<'a> Taking<'a> {
    fn new(
        conn: &'a Connection,
        claim: &'a Claim<'a>,
        now: Timestamp,
        rooms: &HashMap<String, Room>,
    ) -> Self {
        let lines = distinct_queues(claim)
            .into_iter()
            .map(|queue| Line::new(queue, rooms.get(queue).copied()))
            .collect();
        Self {
            conn,
            claim,
            acceptable: Acceptable::new(claim.accepts),
            now,
            lines,
            taken: Vec::new(),
            bytes: 0,
            is_full: false,
            next_due: None,
            has_keys: false,
        }
    }

    /// Finds per queue what may be taken of the jobs with a concurrency key.
    fn look_for_keyed(&mut self) -> Result<(), StoreError> {
        self.has_keys = true;
        let total = self.missing();
        for line in &mut self.lines {
            // One beyond its room, to say whether something is withheld.
            let most = total.max(1);
            let count = line.room.map_or(total, |room| room.saturating_add(1).min(most));
            line.keyed = keyed::due(self.conn, line.queue, &self.acceptable, self.now, count)?;
        }
        Ok(())
    }

    /// Walks the plan once, taking from each queue what `room` makes of its quota.
    fn pass(&mut self, room: impl Fn(u32) -> u32) -> Result<(), StoreError> {
        for entry in self.claim.plan {
            let line = self.lines.iter().position(|line| line.queue == entry.queue);
            if let Some(line) = line {
                self.walk(line, room(entry.quota))?;
            }
        }
        Ok(())
    }

    fn missing(&self) -> usize {
        usize::try_from(self.claim.total).unwrap_or(usize::MAX).saturating_sub(self.taken.len())
    }

    fn walk(&mut self, line: usize, room: u32) -> Result<(), StoreError> {
        let mut room = usize::try_from(room).unwrap_or(usize::MAX).min(self.missing());
        if let Some(free) = self.lines[line].room {
            self.lines[line].is_cut |= free < room;
            room = room.min(free);
        }
        if room == 0 || self.is_full {
            return Ok(());
        }
        if !self.lines[line].is_exhausted {
            self.walk_unkeyed(line, &mut room)?;
        }
        self.take_keyed(line, &mut room, None);
        Ok(())
    }

    /// Walks what has no key, and takes what has one in between, in its place.
    fn walk_unkeyed(&mut self, line: usize, room: &mut usize) -> Result<(), StoreError> {
        let mut statement = self.conn.prepare_cached(WALK)?;
        let Line { queue, position, .. } = self.lines[line];
        let mut rows = statement.query(params![queue, position.due_at, position.id()])?;
        while *room > 0 && !self.is_full {
            let Some(row) = rows.next()? else {
                self.lines[line].is_exhausted = true;
                return Ok(());
            };
            if !self.acceptable.admits(row, 0, 1)? {
                continue;
            }
            let due_at = row::time(row, 2)?;
            if due_at > self.now {
                self.lines[line].is_exhausted = true;
                self.next_due = earlier(self.next_due, Some(due_at));
                return Ok(());
            }
            if self.lines[line].keyed.next().is_some() {
                self.take_keyed(line, room, Some((due_at, row::job_id(row, 3)?)));
            }
            if *room == 0 || self.is_full {
                return Ok(());
            }
            let bytes = row::unsigned(row, 6)?;
            if !self.fits(bytes) {
                return Ok(());
            }
            let taken = decode(row, due_at, queue)?;
            self.lines[line].position = Position::after(due_at, taken.job.id);
            self.take(line, taken, room);
        }
        Ok(())
    }

    /// Takes what has a key, up to that place in the order.
    fn take_keyed(&mut self, line: usize, room: &mut usize, until: Option<(Timestamp, JobId)>) {
        while *room > 0 && !self.is_full {
            let next = self.lines[line].keyed.next();
            let Some(next) = next.filter(|next| until.is_none_or(|until| next.place() < until))
            else {
                return;
            };
            let bytes = next.bytes;
            if !self.fits(bytes) {
                return;
            }
            let Some(taken) = self.lines[line].keyed.take() else { return };
            self.take(line, taken, room);
        }
    }

    /// Whether a payload fits still. Where one does not, that ends the claim: taking a smaller one from
    /// further back would break the order.
    fn fits(&mut self, bytes: u64) -> bool {
        self.is_full =
            !self.taken.is_empty() && self.bytes.saturating_add(bytes) > self.claim.bytes_max;
        !self.is_full
    }

    fn take(&mut self, line: usize, taken: Taken, room: &mut usize) {
        self.bytes = self.bytes.saturating_add(taken.bytes);
        self.taken.push(taken);
        self.lines[line].room = self.lines[line].room.map(|free| free - 1);
        *room -= 1;
    }

    /// Whether something due was left because of a bound: of bytes, by a pause, by a limit, by a key.
    fn is_withheld(&self) -> Result<bool, StoreError> {
        if self.is_full {
            return Ok(true);
        }
        let is_kept = |line: &Line<'_>| {
            line.keyed.is_held_back() || line.is_cut && line.keyed.next().is_some()
        };
        if self.lines.iter().any(is_kept) {
            return Ok(true);
        }
        for line in self.lines.iter().filter(|line| line.is_cut && !line.is_exhausted) {
            let (queue, position) = (line.queue, line.position);
            let first = first_after(self.conn, LOOK_AHEAD, queue, position, &self.acceptable)?;
            if first.is_some_and(|due_at| due_at <= self.now) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// When the next job is due, where fewer than `total` were found.
    fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        if self.missing() == 0 {
            return Ok(None);
        }
        let mut next_due = self.next_due;
        // A walk that a quota, a limit or the byte bound ended has not seen what comes after the due jobs.
        for line in self.lines.iter().filter(|line| !line.is_exhausted && !line.is_paused) {
            let position = Position::past(self.now);
            let queue = line.queue;
            let first = first_after(self.conn, LOOK_AHEAD, queue, position, &self.acceptable)?;
            next_due = earlier(next_due, first);
        }
        for line in self.lines.iter().filter(|line| self.has_keys && !line.is_paused) {
            let first = keyed::next_due(self.conn, line.queue, &self.acceptable, self.now)?;
            next_due = earlier(next_due, first);
        }
        Ok(next_due)
    }
}

/// The due time of the first acceptable job of a queue after a position, of those that `look_ahead` walks.
pub(super) fn first_after(
    conn: &Connection,
    look_ahead: &str,
    queue: &str,
    position: Position,
    acceptable: &Acceptable<'_>,
) -> Result<Option<Timestamp>, StoreError> {
    let mut statement = conn.prepare_cached(look_ahead)?;
    let mut rows = statement.query(params![queue, position.due_at, position.id()])?;
    while let Some(row) = rows.next()? {
        if acceptable.admits(row, 0, 1)? {
            return row::time(row, 2).map(Some);
        }
    }
    Ok(None)
}

/// A candidate: everything but what the write will say of it.
pub(super) fn decode(row: &Row<'_>, due_at: Timestamp, queue: &str) -> Result<Taken, StoreError> {
    let id = row::job_id(row, 3)?;
    let state_before = row::state(row, 5, id)?;
    if state_before != JobState::Scheduled {
        let message = format!("job {id} is {state_before}, but stands among the waiting");
        return Err(StoreError::found(InvariantTrigger::ClaimedRowNotEligible, message));
    }
    let payload: Option<Vec<u8>> = row.get(7)?;
    let payload_is_long = payload.is_none();
    let job = ClaimedJob {
        id,
        attempt: 0,
        failures: row.get(8)?,
        wire_name: row.get(0)?,
        version: row.get(1)?,
        queue: queue.to_owned(),
        payload: Body::new(payload.unwrap_or_default()),
        due_at,
        retry: row::retry(row, 9, id)?,
        timeout: row::timeout(row, 10)?,
        tags: row::tags(row, 11, id)?,
        tick: row::tick(row, 12)?,
        state_before,
        state: state_before,
        owner: None,
        expiry: due_at,
    };
    Ok(Taken { seq: row.get(4)?, payload_is_long, bytes: row::unsigned(row, 6)?, job })
}

/// Reads the payloads that do not stand in their rows, by one statement.
fn fetch_long_payloads(conn: &Connection, taken: &mut [Taken]) -> Result<(), StoreError> {
    let long: HashMap<i64, usize> = taken
        .iter()
        .enumerate()
        .filter(|(_, taken)| taken.payload_is_long)
        .map(|(index, taken)| (taken.seq, index))
        .collect();
    if long.is_empty() {
        return Ok(());
    }
    let mut statement = conn.prepare_cached(
        "SELECT seq, payload FROM main.backwave_payloads \
          WHERE seq IN (SELECT value FROM json_each(?1))",
    )?;
    let mut rows = statement.query([long.keys().copied().collect::<Seqs>().to_json()])?;
    let mut found = 0;
    while let Some(row) = rows.next()? {
        if let Some(taken) = long.get(&row.get(0)?).and_then(|index| taken.get_mut(*index)) {
            taken.job.payload = Body::new(row.get(1)?);
            found += 1;
        }
    }
    if found == long.len() {
        return Ok(());
    }
    let message = format!("{found} of {} long payloads of a claim exist", long.len());
    Err(StoreError::found(InvariantTrigger::GuaranteedRowAbsent, message))
}

/// Makes the taken jobs leased, by one statement, and reads back what it wrote.
fn lease(
    conn: &Connection,
    worker: WorkerId,
    expiry: Timestamp,
    taken: &mut [Taken],
) -> Result<(), StoreError> {
    if taken.is_empty() {
        return Ok(());
    }
    let places: HashMap<i64, usize> =
        taken.iter().enumerate().map(|(index, taken)| (taken.seq, index)).collect();
    let mut statement = conn.prepare_cached(LEASE)?;
    let seqs = places.keys().copied().collect::<Seqs>().to_json();
    let mut rows = statement.query(params![seqs, worker.as_bytes(), expiry.as_micros()])?;
    let mut touched = 0;
    while let Some(row) = rows.next()? {
        touched += 1;
        if let Some(taken) = places.get(&row.get(0)?).and_then(|index| taken.get_mut(*index)) {
            let job = &mut taken.job;
            job.attempt = row.get(1)?;
            job.state = row::state(row, 2, job.id)?;
            job.owner = row::worker(row, 3)?;
            job.expiry = row::time(row, 4)?;
        }
    }
    locked::expect_touched("a claim", touched, places.len())
}

/// The queues of the plan, each once, in order.
fn distinct_queues<'a>(claim: &Claim<'a>) -> Vec<&'a str> {
    let mut seen = BTreeSet::new();
    claim
        .plan
        .iter()
        .map(|entry| entry.queue.as_str())
        .filter(|queue| seen.insert(*queue))
        .collect()
}

fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// What [`decode`] reads.
macro_rules! candidate_columns {
    () => {
        "wire_name, version, due_at, id, seq, state, payload_bytes, payload, failures, retry, timeout_us, tags, \
         schedule, tick"
    };
}
pub(super) use candidate_columns;

/// One queue in the order of claims, from a position on, of what has no key. The conditions of the partial index
/// are written out, so that it matches.
pub(super) const WALK: &str = concat!(
    "SELECT ",
    candidate_columns!(),
    " FROM main.backwave_jobs \
      WHERE state = 0 AND concurrency_key IS NULL AND queue = ?1 AND (due_at, id) > (?2, ?3) \
      ORDER BY due_at, id"
);

/// The same for a look: no more of a row than is judged.
pub(super) const LOOK_AHEAD: &str = "SELECT wire_name, version, due_at FROM main.backwave_jobs \
          WHERE state = 0 AND concurrency_key IS NULL AND queue = ?1 AND (due_at, id) > (?2, ?3) \
          ORDER BY due_at, id";

/// Makes rows leased, and says what it wrote. `+state` asks the row itself: where a statement walks a partial
/// index, the engine may take the state for what the index says, and so a damaged index for the truth.
pub(super) const LEASE: &str = "UPDATE main.backwave_jobs \
            SET state = 2, owner = ?2, expiry = ?3, attempt = attempt + 1 \
          WHERE seq IN (SELECT value FROM json_each(?1)) AND +state = 0 \
         RETURNING seq, attempt, state, owner, expiry";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_is_not_waiting_is_no_candidate_whatever_index_it_came_from() {
        let conn = Connection::open_in_memory().expect("a connection");
        for state in JobState::ALL {
            let text = format!(
                "SELECT 'job', 1, 0, zeroblob(16), 1, {}, 0, x'', 0, NULL, NULL, NULL, NULL, NULL",
                state.code()
            );
            let mut statement = conn.prepare(&text).expect("it is SQL");
            let mut rows = statement.query([]).expect("no fault");
            let row = rows.next().expect("no fault").expect("a row");
            let found = decode(row, Timestamp::EPOCH, "default").err();
            let trigger = found.and_then(|error| error.counted().trigger());
            let expected =
                (state != JobState::Scheduled).then_some(InvariantTrigger::ClaimedRowNotEligible);
            assert_eq!(trigger, expected, "{state}");
        }
    }
}
