//! Random histories of one driver against a store in small: whatever fails, is lost or is taken away, the cursor
//! passes nothing that was not delivered or parked, and once the trouble is over everything is told.

use super::*;
use std::collections::BTreeSet;

struct Dice(u64);

impl Dice {
    fn roll(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.roll(count) == 0
    }
}

/// The store, and whoever else holds its cursor.
#[derive(Default)]
struct Store {
    last: u64,
    passed: u64,
    epoch: u64,
    is_mine: bool,
    expiry: Timestamp,
    failing: Option<Failing>,
    parked: BTreeSet<u64>,
    wanted: BTreeSet<u64>,
    /// What a callback has returned `Ok` for.
    delivered: BTreeSet<u64>,
}

impl Store {
    fn observe(&mut self, now: Timestamp) -> Observed {
        if !self.is_mine && self.expiry > now {
            return Observed::Elsewhere { until: self.expiry, store_time: now };
        }
        if !self.is_mine {
            self.epoch += 1;
            self.is_mine = true;
        }
        self.expiry = now + LEASE;
        let batch: Vec<_> = (self.passed + 1..=self.last).take(3).map(observation).collect();
        let more = self.passed + (batch.len() as u64) < self.last;
        let failing = self.failing.filter(|failing| failing.position == self.passed + 1);
        Observed::Held {
            lease: CursorLease { epoch: self.epoch, expiry: self.expiry },
            round: 0,
            batch,
            failing,
            again: self.wanted.iter().copied().map(observation).collect(),
            more,
            reset: None,
            store_time: now,
        }
    }

    fn resolve(&mut self, resolution: &Resolution, now: Timestamp) -> Resolved {
        let stale = |reason| Resolved::Stale { reason, store_time: now };
        if !self.is_mine || self.epoch != resolution.epoch {
            return stale(CursorStale::Taken);
        }
        if self.expiry <= now {
            return stale(CursorStale::Lapsed);
        }
        let until = resolution.until.unwrap_or(self.passed);
        if until < self.passed {
            return stale(CursorStale::Regressed);
        }
        for parked in &resolution.parked {
            assert_eq!(parked.failures, 3, "it is given up at its ceiling");
            let position = parked.observation.transition.position;
            self.parked.insert(position);
            self.wanted.remove(&position);
        }
        for position in &resolution.delivered_again {
            assert!(self.delivered.contains(position));
            self.parked.remove(position);
            self.wanted.remove(position);
        }
        for position in self.passed + 1..=until {
            let is_settled = self.delivered.contains(&position) || self.parked.contains(&position);
            assert!(is_settled, "{position} is passed over");
        }
        self.passed = until;
        if let Some((position, failures, due_in)) = resolution.failing {
            self.failing = Some(Failing { position, failures, due_at: now + due_in });
        }
        self.expiry = now + LEASE;
        Resolved::Applied { expiry: self.expiry, store_time: now }
    }

    /// Another node takes the cursor for a while, if it can.
    fn is_taken(&mut self, now: Timestamp) {
        if self.expiry <= now {
            self.epoch += 1;
            self.is_mine = false;
            self.expiry = now + POLL * 3;
        }
    }
}

struct Run {
    scene: Scene,
    store: Store,
    dice: Dice,
    running: Option<(u64, u64)>,
    left_behind: u32,
    /// Whether things still go wrong.
    is_troubled: bool,
}

impl Run {
    /// Carries out what the driver asks for, until it rests.
    fn carry_out(&mut self) {
        for _ in 0..200 {
            let Some(command) = self.scene.next() else { return self.scene.rests() };
            let now = self.scene.now;
            match command {
                Command::Deliver { delivery, observation } => {
                    assert!(self.running.is_none(), "one at a time");
                    self.running = Some((delivery, observation.transition.position));
                }
                Command::Observe => {
                    let event = match self.fails() {
                        Some(false) => Event::ObserveFailed { in_doubt: false },
                        Some(true) => {
                            self.store.observe(now);
                            Event::ObserveFailed { in_doubt: true }
                        }
                        None => Event::Observed(self.store.observe(now)),
                    };
                    self.scene.handle(event);
                }
                Command::Resolve(resolution) => {
                    let event = match self.fails() {
                        Some(false) => Event::ResolveFailed { in_doubt: false },
                        Some(true) => {
                            self.store.resolve(&resolution, now);
                            Event::ResolveFailed { in_doubt: true }
                        }
                        None => Event::Resolved(self.store.resolve(&resolution, now)),
                    };
                    self.scene.handle(event);
                }
                Command::Release { .. } => {
                    self.store.is_mine = false;
                    self.store.expiry = now;
                    self.scene.handle(Event::Released);
                }
                Command::Note(_) | Command::Stopped => panic!("{command:?}"),
            }
        }
        panic!("it never rests");
    }

    /// Whether a call fails, and then whether it has been carried out all the same.
    fn fails(&mut self) -> Option<bool> {
        let fails = self.is_troubled && self.dice.one_in(6);
        fails.then(|| self.dice.one_in(2))
    }

    fn act(&mut self) {
        match self.dice.roll(9) {
            0 => self.store.last += self.dice.roll(4),
            1 => self.scene.handle(Event::Hinted),
            2..5 => self.end_delivery(),
            // It stands still for longer than a hold lasts.
            5 if self.is_troubled && self.dice.one_in(4) => {
                self.scene.now = self.scene.now + LEASE;
                self.store.is_taken(self.scene.now);
                self.scene.handle(Event::Due);
            }
            6 if self.left_behind > 0 => {
                self.left_behind -= 1;
                self.scene.handle(Event::CameBack);
            }
            7 => self.store.wanted.extend(self.store.parked.iter().next()),
            _ => {
                let wake_at = self.scene.driver.wake_at(self.scene.now);
                let soon = self.scene.now + Duration::from_millis(self.dice.roll(20_000));
                self.scene.now = wake_at.map_or(soon, |at| at.min(soon)).max(self.scene.now);
                self.scene.handle(Event::Due);
            }
        }
    }

    fn end_delivery(&mut self) {
        let Some((delivery, position)) = self.running.take() else { return };
        let ending = match self.dice.roll(if self.is_troubled { 6 } else { 1 }) {
            1 => Ending::Failed("no".into()),
            2 if self.left_behind < LEFT_BEHIND_MAX => {
                self.left_behind += 1;
                Ending::TimedOut("too slow".into())
            }
            _ => {
                self.store.delivered.insert(position);
                Ending::Ok
            }
        };
        self.scene.ends(delivery, ending);
    }
}

#[test]
fn whatever_goes_wrong_nothing_is_passed_over_and_in_the_end_everything_is_told() {
    let mut taken_back = 0;
    for seed in 0..400 {
        let mut run = Run {
            scene: Scene::new(),
            store: Store { last: 5, ..Store::default() },
            dice: Dice(seed),
            running: None,
            left_behind: 0,
            is_troubled: true,
        };
        for _ in 0..300 {
            run.carry_out();
            run.act();
        }
        run.is_troubled = false;
        taken_back += run.scene.lost().len();
        let last = run.store.last;
        let is_done = |store: &Store| store.passed >= last && store.wanted.is_empty();
        for _ in 0..3000 {
            if is_done(&run.store) {
                break;
            }
            run.carry_out();
            run.act();
        }
        assert!(is_done(&run.store), "seed {seed}: {:?}", run.scene.driver);
        assert_eq!(run.scene.triggers(), [], "seed {seed}");
    }
    assert!(taken_back > 100, "the cursor was taken away {taken_back} times");
}
