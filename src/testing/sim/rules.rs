//! How calls and hints go in a run, as its plan says.

use super::judge::Judge;
use super::plan::{CallKind, Fault, HintFault, Level, Plan};
use crate::store::{Hub, Wake};
use crate::testing::StoreCall;
use crate::testing::link::{CallFault, Manner, Rules};
use crate::testing::mix;
use crate::testing::world::{HostClock, ProcessId, World, pass};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The rules of a run.
pub(super) struct PlanRules {
    seed: u64,
    is_calm: bool,
    calls: BTreeMap<(usize, CallKind, u64), CallFault>,
    cut_off: Mutex<BTreeSet<usize>>,
    judge: Judge,
    world: World,
}

impl PlanRules {
    pub(super) fn new(plan: &Plan, judge: Judge, world: World) -> Self {
        let calls = plan.faults.iter().filter_map(|fault| match fault {
            Fault::Call { node, call, nth, fault } => Some(((*node, *call, *nth), *fault)),
            _ => None,
        });
        Self {
            seed: plan.seed,
            is_calm: plan.level == Level::Calm,
            calls: calls.collect(),
            cut_off: Mutex::default(),
            judge,
            world,
        }
    }

    pub(super) fn cut_off(&self, node: usize, is_cut_off: bool) {
        if is_cut_off {
            self.cut_off.lock().insert(node);
        } else {
            self.cut_off.lock().remove(&node);
        }
    }

    /// Most calls take no time; some take up to thirty milliseconds.
    fn latency(&self, node: usize, call: StoreCall, nth: u64) -> (i64, i64) {
        let roll = mix(self.seed ^ mix(((node as u64) << 48) ^ ((call as u64) << 40) ^ nth));
        if self.is_calm || roll % 10 < 6 {
            return (0, 0);
        }
        ((roll >> 8) as i64 & 0x3fff, (roll >> 24) as i64 & 0x3fff)
    }
}

impl Rules for PlanRules {
    fn manner(&self, node: usize, call: StoreCall, nth: u64) -> Manner {
        let (before, after) = self.latency(node, call, nth);
        let kind = CallKind::of(call);
        let fault = kind.and_then(|kind| self.calls.get(&(node, kind, nth)).copied());
        if let Some(fault) = fault {
            self.judge.situation(name(fault));
            match fault {
                CallFault::Slow { ms } => {
                    let until = self.world.now() + Duration::from_millis(ms.into());
                    self.judge.trouble_until(node, until);
                }
                _ => self.judge.call_failed(node),
            }
        }
        Manner { before, after, fault }
    }

    fn is_cut_off(&self, node: usize) -> bool {
        self.cut_off.lock().contains(&node)
    }
}

const fn name(fault: CallFault) -> &'static str {
    match fault {
        CallFault::Refused => "a call is refused",
        CallFault::LostBefore => "a call is lost before it is carried out",
        CallFault::LostAfter => "an answer is lost",
        CallFault::Late { .. } => "a call is carried out after it was given up",
        CallFault::Slow { .. } => "a call is slow",
        CallFault::CrashBefore => "a process dies before its call is carried out",
        CallFault::CrashAfter => "a process dies with an answer on its way",
    }
}

/// Passes hints on to every node, or not.
pub(super) struct Switchboard {
    world: World,
    faults: BTreeMap<(usize, u64), HintFault>,
    lines: Mutex<BTreeMap<usize, (Hub, u64)>>,
}

impl Switchboard {
    pub(super) fn new(plan: &Plan, world: World) -> Self {
        let faults = plan.faults.iter().filter_map(|fault| match fault {
            Fault::Hint { node, nth, fault } => Some(((*node, *nth), *fault)),
            _ => None,
        });
        Self { world, faults: faults.collect(), lines: Mutex::default() }
    }

    /// From here on a node hears by that hub.
    pub(super) fn connect(&self, node: usize, hub: Hub) {
        let mut lines = self.lines.lock();
        let heard = lines.get(&node).map_or(0, |(_, heard)| *heard);
        lines.insert(node, (hub, heard));
    }
}

impl Wake for Switchboard {
    fn schedules_changed(&self) {
        let lines: Vec<Hub> = self.lines.lock().values().map(|(hub, _)| hub.clone()).collect();
        lines.iter().for_each(Hub::schedules_changed);
    }

    fn wake(&self, queue: &str, due_in: Duration) {
        let lines: Vec<(usize, Hub, u64)> = {
            let mut lines = self.lines.lock();
            let heard = lines.iter_mut().map(|(node, (hub, heard))| {
                *heard += 1;
                (*node, hub.clone(), *heard - 1)
            });
            heard.collect()
        };
        for (node, hub, nth) in lines {
            match self.faults.get(&(node, nth)) {
                None => hub.wake(queue, due_in),
                Some(HintFault::Lost) => {}
                Some(HintFault::Doubled) => {
                    hub.wake(queue, due_in);
                    hub.wake(queue, due_in);
                }
                Some(HintFault::Late { ms }) => {
                    let (queue, ms) = (queue.to_owned(), *ms);
                    let (stage, _host) = self.world.stage(HINTS, HostClock::default());
                    let _ = stage.spawn("hint".to_owned(), move || {
                        pass(ms as i64 * 1000);
                        hub.wake(&queue, due_in);
                    });
                }
            }
        }
    }
}

/// The process that carries late hints. It never crashes.
const HINTS: ProcessId = ProcessId(0);
