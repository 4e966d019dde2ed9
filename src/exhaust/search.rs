//! The search: depth first, through every state that can be reached, each once.
//!
//! A state is known again by 64 bits of its hash. Among ten million states the chance that any two of them
//! share one is about three in a million.

use super::oracle::Finding;
use super::scope::Scope;
use super::world::{Action, Situation, World};
use std::collections::{BTreeSet, HashSet};
use std::fmt::Write as _;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::rc::Rc;

/// Mixes words into a fingerprint. Quicker than the standard one where nothing is optimised.
#[derive(Default)]
pub(super) struct Mixer(u64);

impl Mixer {
    const fn mix(&mut self, word: u64) {
        let mut mixed = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^= mixed >> 29;
        mixed = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.0 = mixed ^ (mixed >> 32);
    }
}

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, word: u8) {
        self.mix(u64::from(word));
    }

    fn write_u32(&mut self, word: u32) {
        self.mix(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.mix(word as u64);
    }
}

/// The fingerprint of one thing.
pub(super) fn fingerprint(thing: &impl Hash) -> u64 {
    let mut mixer = Mixer::default();
    thing.hash(&mut mixer);
    mixer.finish()
}

/// Fingerprints are hashes already.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        panic!("only fingerprints are kept");
    }

    fn write_u64(&mut self, fingerprint: u64) {
        self.0 = fingerprint;
    }
}

/// What a search has seen.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Distinct states.
    pub(super) states: usize,
    /// Steps from one state to another, known or not.
    pub(super) steps: u64,
    /// States at which every job must be able to end.
    pub(super) ends: u64,
    pub(super) depth_max: usize,
    pub(super) seen: BTreeSet<Situation>,
}

/// How a promise came to be broken.
#[derive(Debug, Clone)]
pub(super) struct Broken {
    pub(super) finding: Finding,
    /// From the beginning.
    pub(super) way: Vec<Action>,
    pub(super) states: usize,
}

struct Frame {
    world: World,
    /// Not tried yet.
    actions: Vec<Action>,
    /// Led to the world.
    action: Option<Action>,
}

/// Searches a world whole.
pub(super) fn search(scope: &Scope) -> Result<Report, Broken> {
    let scope = Rc::new(scope.clone());
    let broken = |finding, way, states| Broken { finding, way, states };
    let first = World::new(&scope).map_err(|finding| broken(finding, Vec::new(), 0))?;
    let mut known: HashSet<u64, BuildHasherDefault<AsItIs>> = HashSet::default();
    known.insert(first.fingerprint());
    let mut report = Report::default();
    let actions = first.actions();
    let mut path = vec![Frame { world: first, actions, action: None }];
    while let Some(frame) = path.last_mut() {
        let Some(action) = frame.actions.pop() else {
            report.seen.extend(frame.world.seen());
            path.pop();
            continue;
        };
        let mut world = frame.world.clone();
        report.steps += 1;
        let mut result = world.step(action);
        let is_new = result.is_ok() && known.insert(world.fingerprint());
        if is_new && world.is_at_rest() {
            report.ends += 1;
            result = world.clone().drain();
        }
        if let Err(finding) = result {
            let way = path.iter().filter_map(|frame| frame.action).chain([action]).collect();
            return Err(broken(finding, way, known.len()));
        }
        if is_new {
            let actions = world.actions();
            path.push(Frame { world, actions, action: Some(action) });
            report.depth_max = report.depth_max.max(path.len());
        }
    }
    report.states = known.len();
    Ok(report)
}

/// A shorter way to the same broken promise: whatever can be left out of it is.
pub(super) fn shorten(scope: &Scope, broken: Broken) -> Broken {
    let mut best = broken;
    let mut size = best.way.len() / 2;
    while size > 0 {
        let mut at = 0;
        while at < best.way.len() {
            let mut way = best.way.clone();
            way.drain(at..(at + size).min(way.len()));
            match replay(scope, &way) {
                Some((finding, way)) if finding.oracle == best.finding.oracle => {
                    best = Broken { finding, way, ..best };
                }
                _ => at += size,
            }
        }
        size /= 2;
    }
    best
}

/// Takes the way as far as it can be taken, and then everything to its end: what breaks, and the steps to it.
fn replay(scope: &Scope, way: &[Action]) -> Option<(Finding, Vec<Action>)> {
    let mut world = World::new(&Rc::new(scope.clone())).ok()?;
    let mut taken = Vec::new();
    for action in way {
        if !world.actions().contains(action) {
            continue;
        }
        taken.push(*action);
        if let Err(finding) = world.step(*action) {
            return Some((finding, taken));
        }
    }
    world.drain().err().map(|finding| (finding, taken))
}

/// The way as a story.
pub(super) fn tell(scope: &Scope, broken: &Broken) -> String {
    let mut story = format!("{:?}: {}\n", broken.finding.oracle, broken.finding.detail);
    let Ok(mut world) = World::new(&Rc::new(scope.clone())) else { return story };
    for action in &broken.way {
        let _ = world.step(*action);
        let _ = writeln!(story, "  {action:?}  [{}]", world.describe());
    }
    story
}
