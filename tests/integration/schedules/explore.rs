//! Walks all schedules of a few operations, up to the order of requests that do not touch the same thing.
//!
//! Source-set dynamic partial order reduction with sleep sets (Abdulla, Aronis, Jonsson, Sagonas, POPL 2014), over
//! requests rather than actors, since an actor can have several under way. A run is replayed from the start for each
//! choice; afterwards every pair of requests that touched the same thing, with nothing in between that orders them,
//! has its order turned around in a run to come.

use std::collections::BTreeSet;

use tokio::task::LocalSet;

use super::stage::{Id, Run, Scene, Stage, Waiting};
use crate::support::Footprint;

/// A place in the run that is being explored: what could go next, and what was tried.
struct Node {
    enabled: Vec<Waiting>,
    /// Would only lead to what is known.
    asleep: Vec<Waiting>,
    /// To be tried here.
    wanted: BTreeSet<Id>,
    tried: Vec<Waiting>,
    /// What goes next in the current run.
    chosen: Id,
}

/// A request of a run.
struct Event {
    id: Id,
    footprint: Footprint,
    /// The request of the same actor whose answer let it be made: it comes after that one, and after what that one comes
    /// after. An actor may have several chains under way.
    cause: Option<usize>,
}

pub(super) struct Explorer {
    scene: Scene,
    nodes: Vec<Node>,
    begun: bool,
}

/// Draws schedules.
pub(super) struct Drawer {
    scene: Scene,
    random: u64,
}

impl Drawer {
    pub(super) fn new(scene: Scene, seed: u64) -> Self {
        Self {
            scene,
            random: seed,
        }
    }

    pub(super) async fn next(&mut self) -> Run {
        let local = LocalSet::new();
        local.run_until(Box::pin(self.play())).await
    }

    async fn play(&mut self) -> Run {
        let scene = self.scene.clone();
        let mut stage = Stage::new(&scene).await;
        loop {
            stage.settle().await;
            let waiting = stage.waiting();
            let enabled = stage.enabled(waiting);
            if enabled.is_empty() {
                return stage.end().await;
            }
            stage.send(enabled[self.below(enabled.len())].id()).await;
        }
    }

    fn below(&mut self, n: usize) -> usize {
        let step = self.random.wrapping_mul(6_364_136_223_846_793_005);
        self.random = step.wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.random >> 33).unwrap() % n
    }
}

impl Explorer {
    pub(super) fn new(scene: Scene) -> Self {
        Self {
            scene,
            nodes: Vec::new(),
            begun: false,
        }
    }

    /// The next schedule; `None` when there is no other. A run that turns out to be known on its way is not given.
    pub(super) async fn next(&mut self) -> Option<Run> {
        loop {
            if self.begun && !self.turn() {
                return None;
            }
            self.begun = true;
            let local = LocalSet::new();
            let run = local.run_until(Box::pin(self.play())).await;
            if run.is_some() {
                return run;
            }
        }
    }

    /// Whether other schedules are known that were not run.
    pub(super) fn has_more(&self) -> bool {
        self.nodes.iter().any(|node| node.next_wanted().is_some())
    }

    /// Goes back to the last place where something else is to be tried.
    fn turn(&mut self) -> bool {
        let open = self
            .nodes
            .iter()
            .rposition(|node| node.next_wanted().is_some());
        let Some(depth) = open else {
            return false;
        };
        self.nodes.truncate(depth + 1);
        let node = &mut self.nodes[depth];
        node.chosen = node.next_wanted().unwrap();
        true
    }

    async fn play(&mut self) -> Option<Run> {
        let scene = self.scene.clone();
        let mut stage = Stage::new(&scene).await;
        let mut events: Vec<Event> = Vec::new();
        let mut made: Vec<(Id, usize)> = Vec::new();
        let mut known = false;
        loop {
            stage.settle().await;
            let depth = events.len();
            let waiting = stage.waiting();
            for request in &waiting {
                if !made.iter().any(|(id, _)| *id == request.id()) {
                    made.push((request.id(), depth));
                }
            }
            let enabled = stage.enabled(waiting);
            if enabled.is_empty() {
                break;
            }
            if depth == self.nodes.len() {
                let asleep = self.asleep_at(events.last());
                let last = events.last().map(|event| event.id.0);
                let awake = |w: &&Waiting| !asleep.iter().any(|other| other.id() == w.id());
                let mut choices = enabled.iter().filter(awake);
                let first = choices.clone().next();
                let Some(chosen) = choices.find(|w| Some(w.actor) == last).or(first) else {
                    known = true;
                    break;
                };
                let chosen = chosen.id();
                self.nodes.push(Node {
                    enabled,
                    asleep,
                    wanted: BTreeSet::from([chosen]),
                    tried: Vec::new(),
                    chosen,
                });
            }
            let node = &mut self.nodes[depth];
            let id = node.chosen;
            if !node.tried.iter().any(|tried| tried.id() == id) {
                let chosen = node.enabled.iter().find(|w| w.id() == id);
                node.tried
                    .push(chosen.expect("what was chosen waits").clone());
            }
            let sent = stage.send(id).await;
            let made_at = made.iter().find(|(other, _)| *other == id);
            events.push(Event {
                id,
                footprint: sent.footprint,
                cause: events[..made_at.map_or(depth, |(_, at)| *at)]
                    .iter()
                    .rposition(|event| event.id.0 == id.0),
            });
        }
        self.find_races(&events);
        if known {
            stage.abandon();
            return None;
        }
        Some(stage.end().await)
    }

    /// What needs not be tried after the last request: what was tried before it and is not touched by it.
    fn asleep_at(&self, last: Option<&Event>) -> Vec<Waiting> {
        let (Some(last), Some(node)) = (last, self.nodes.last()) else {
            return Vec::new();
        };
        let before = node.tried.iter().filter(|tried| tried.id() != last.id);
        let candidates = node.asleep.iter().chain(before);
        let untouched = candidates.filter(|w| !w.footprint().conflicts(&last.footprint));
        untouched.cloned().collect()
    }

    fn find_races(&mut self, events: &[Event]) {
        // What comes before each event, whatever the order of what does not touch.
        let mut before: Vec<Vec<bool>> = Vec::new();
        for (at, event) in events.iter().enumerate() {
            let mut mine = vec![false; at];
            let follow = |mine: &mut Vec<bool>, earlier: usize| {
                mine[earlier] = true;
                for (index, set) in before[earlier].iter().enumerate() {
                    mine[index] |= set;
                }
            };
            if let Some(cause) = event.cause {
                follow(&mut mine, cause);
            }
            for earlier in (0..at).rev() {
                let touches = events[earlier].footprint.conflicts(&event.footprint);
                if !mine[earlier] && touches {
                    self.turn_around(events, &before, earlier, at);
                    follow(&mut mine, earlier);
                }
            }
            before.push(mine);
        }
    }

    /// Wants, before `earlier`, something that leads to `later` without it.
    fn turn_around(
        &mut self,
        events: &[Event],
        before: &[Vec<bool>],
        earlier: usize,
        later: usize,
    ) {
        // What happens in between and does not come after the earlier one, and then the later one.
        let between = (earlier + 1..later).filter(|index| !before[*index][earlier]);
        let rest: Vec<usize> = between.chain([later]).collect();
        let depends = |index: usize, on: usize| {
            if index == later {
                // Its own order is being found out.
                let (last, event) = (&events[later], &events[on]);
                last.cause == Some(on) || last.footprint.conflicts(&event.footprint)
            } else {
                before[index][on]
            }
        };
        let initial = |index: &&usize| {
            let mut others = rest.iter().take_while(|other| *other < *index);
            !others.any(|other| depends(**index, *other))
        };
        let initials: Vec<Id> = rest
            .iter()
            .filter(initial)
            .map(|index| events[*index].id)
            .collect();
        let node = &mut self.nodes[earlier];
        let enabled = |id: &Id| node.enabled.iter().any(|w| w.id() == *id);
        let mut candidates: Vec<Id> = initials.into_iter().filter(enabled).collect();
        if candidates.is_empty() {
            // It waits for somebody's change there: whoever can go may make it.
            node.wanted.extend(node.enabled.iter().map(Waiting::id));
            return;
        }
        if !candidates.iter().any(|id| node.wanted.contains(id)) {
            node.wanted.insert(candidates.remove(0));
        }
    }
}

impl Node {
    fn next_wanted(&self) -> Option<Id> {
        let known = |id: &&Id| {
            let mut known = self.tried.iter().chain(&self.asleep);
            !known.any(|other| other.id() == **id)
        };
        self.wanted.iter().find(known).copied()
    }
}
