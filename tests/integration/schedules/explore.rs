//! Walks all schedules of a few operations, up to the order of requests that do not touch the same thing.
//!
//! Source-set dynamic partial order reduction with sleep sets (Abdulla, Aronis, Jonsson, Sagonas, POPL 2014), over
//! requests rather than actors, since an actor can have several under way. A run is replayed from the start for each
//! choice; afterwards every pair of requests that touched the same thing, with nothing in between that orders them,
//! has its order turned around in a run to come.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{JoinHandle, LocalSet};

use super::operations::{Heard, Op};
use super::oracle::Part;
use super::starts::{catalog_on, pass_the_lease};
use crate::support::gate::SETTLE_TURNS;
use crate::support::{
    Actor, Fault, Footprint, Gate, GateStore, Request, Sent, SharedMemory, Trace, When,
    WitnessStore,
};

/// The prefix that bulk deletes stay below.
const SCOPE: &str = "root/t.lance";

/// How long an actor may compute before the clock of its waits is moved.
const GRACE: Duration = Duration::from_millis(3);
/// By which steps it is moved.
const TICK: Duration = Duration::from_millis(20);
/// How often those go on who only ask again, when nobody else can.
const PUSHES: usize = 8;
/// Somebody waits for what never comes.
const STALL: Duration = Duration::from_secs(60);

/// What is done to one request of one actor, by the number of the request in that actor's own run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Harm {
    /// The actor stops for ever before it: after the effect of the one before.
    Stop,
    Fail(When, Fault),
}

/// Operations that run side by side from one start.
#[derive(Clone)]
pub(super) struct Scene {
    pub(super) memory: SharedMemory,
    pub(super) ops: Vec<Op>,
    pub(super) managed: bool,
    /// Whom it befalls, at which of its requests.
    pub(super) harm: Option<(usize, usize, Harm)>,
}

/// A request that waits, by its actor and its number among that actor's.
#[derive(Clone, Debug)]
struct Waiting {
    actor: usize,
    number: usize,
    request: Request,
}

impl Waiting {
    fn id(&self) -> Id {
        (self.actor, self.number)
    }

    fn footprint(&self) -> Footprint {
        Footprint::expected(&self.request, SCOPE)
    }
}

type Id = (usize, usize);

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
    /// How many requests had been sent when it was made: those of its actor among them come before it.
    made_at: usize,
}

impl Event {
    fn follows(&self, other: &Self, index: usize) -> bool {
        other.id.0 == self.id.0 && index < self.made_at
    }
}

/// A run to its end.
pub(super) struct Run {
    pub(super) memory: SharedMemory,
    pub(super) trace: Trace,
    pub(super) parts: Vec<Part>,
    /// Whether the harm was done.
    pub(super) harmed: bool,
}

impl Run {
    pub(super) fn describe(&self) -> String {
        let line = |sent: &Sent| {
            format!(
                "{} {:?} {}",
                sent.actor, sent.request.kind, sent.request.path
            )
        };
        let log: Vec<String> = self.trace.log().iter().map(line).collect();
        let heard = self
            .parts
            .iter()
            .map(|part| format!("{:?} heard {:?}", part.op, part.heard));
        let heard: Vec<String> = heard.collect();
        format!("{}; {}", heard.join(", "), log.join(", "))
    }
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
                made_at: made_at.map_or(depth, |(_, at)| *at),
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
            for earlier in (0..at).rev() {
                if !mine[earlier] && event.follows(&events[earlier], earlier) {
                    follow(&mut mine, earlier);
                }
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
                last.follows(event, on) || last.footprint.conflicts(&event.footprint)
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

/// One run: the actors at their gate.
struct Stage<'a> {
    scene: &'a Scene,
    memory: SharedMemory,
    gate: Gate,
    trace: Trace,
    tasks: Vec<JoinHandle<Heard>>,
    /// Requests sent, by actor.
    sent: Vec<usize>,
    total: usize,
    spans: Vec<(usize, usize)>,
    stopped: Option<usize>,
    harmed: bool,
    /// What each actor asked since somebody else changed something, and how often that had happened.
    asked: Vec<(u64, Vec<Request>)>,
    /// Who waited for time to pass before its next request.
    slept: BTreeSet<usize>,
    lease_passed: bool,
    pushes: usize,
}

impl<'a> Stage<'a> {
    async fn new(scene: &'a Scene) -> Self {
        let memory = scene.memory.fork().await;
        let gate = Gate::new();
        let count = scene.ops.len();
        let trace = Trace::new(count, memory.dump().await);
        let mut tasks = Vec::new();
        for (index, op) in scene.ops.iter().enumerate() {
            let witness = WitnessStore::new(memory.base(), trace.clone(), index);
            let gated = GateStore::new(Arc::new(witness), gate.clone(), index);
            let actor = Actor::over(Arc::new(gated), true);
            let catalog = catalog_on(&memory, &actor, scene.managed).await;
            tasks.push(tokio::task::spawn_local(
                gate.run(index, op.run(catalog, index)),
            ));
        }
        Self {
            scene,
            memory,
            gate,
            trace,
            tasks,
            sent: vec![0; count],
            total: 0,
            spans: vec![(0, usize::MAX); count],
            stopped: None,
            harmed: false,
            asked: vec![(0, Vec::new()); count],
            slept: BTreeSet::new(),
            lease_passed: false,
            pushes: 0,
        }
    }

    /// Waits until everybody waits for the gate or has ended; whoever waits for time is given it.
    async fn settle(&mut self) {
        let began = Instant::now();
        loop {
            let running: Vec<usize> = self.running().collect();
            if let Some(seen) = self.gate.blocked(&running) {
                // One with several requests at once may be about to park one more.
                for _ in 0..SETTLE_TURNS {
                    tokio::task::yield_now().await;
                }
                if self.gate.blocked(&running) == Some(seen) {
                    break;
                }
                continue;
            }
            tokio::task::yield_now().await;
            if began.elapsed() > GRACE {
                let busy = running
                    .iter()
                    .filter(|actor| !self.gate.is_blocked(**actor));
                self.slept.extend(busy);
                tokio::time::advance(TICK).await;
                std::thread::sleep(Duration::from_micros(50));
            }
            assert!(
                began.elapsed() < STALL,
                "nothing moves any more: {:?}",
                self.gate
            );
        }
        for actor in 0..self.tasks.len() {
            if self.gate.is_finished(actor) && self.spans[actor].1 == usize::MAX {
                self.spans[actor].1 = self.total;
            }
        }
    }

    /// All actors but a stopped one.
    fn running(&self) -> impl Iterator<Item = usize> {
        (0..self.tasks.len()).filter(|actor| self.stopped != Some(*actor))
    }

    fn waiting(&self) -> Vec<Waiting> {
        let all = self.gate.numbered().into_iter();
        all.filter(|(actor, ..)| self.stopped != Some(*actor))
            .map(|(actor, number, request)| Waiting {
                actor,
                number,
                request,
            })
            .collect()
    }

    /// Those who can go: not those who waited, and would ask for the third time what nobody has changed. (Lance, having
    /// computed for long, may look twice.)
    fn enabled(&mut self, waiting: Vec<Waiting>) -> Vec<Waiting> {
        let useful = |stage: &Self, w: &Waiting| {
            let (known, asked) = &stage.asked[w.actor];
            let changed = stage.trace.changes_by_others(w.actor) > *known;
            let times = asked
                .iter()
                .filter(|request| **request == w.request)
                .count();
            changed || !stage.slept.contains(&w.actor) || times < 2
        };
        let enabled: Vec<Waiting> = waiting
            .iter()
            .filter(|w| useful(self, w))
            .cloned()
            .collect();
        if enabled.is_empty() && !waiting.is_empty() && self.pushes < PUSHES {
            // Nobody can do anything but ask again: whoever stopped has had its time.
            self.pushes += 1;
            if self.stopped.is_some() && !self.lease_passed {
                self.lease_passed = true;
                pass_the_lease(&self.memory);
            }
            return waiting;
        }
        enabled
    }

    async fn send(&mut self, (actor, number): Id) -> Sent {
        let request = self
            .gate
            .numbered()
            .into_iter()
            .find(|(a, n, _)| (*a, *n) == (actor, number));
        let (.., request) = request.expect("a run can be repeated");
        self.slept.remove(&actor);
        let changes = self.trace.changes_by_others(actor);
        let (known, asked) = &mut self.asked[actor];
        if changes > *known {
            *known = changes;
            asked.clear();
        }
        asked.push(request);
        if self.sent[actor] == 0 {
            self.spans[actor].0 = self.total;
        }
        let harm = self
            .scene
            .harm
            .filter(|(who, at, _)| (*who, *at) == (actor, self.sent[actor]));
        if let Some((_, _, Harm::Fail(when, fault))) = harm {
            self.trace.fail_next(actor, when, fault);
            self.harmed = true;
        }
        self.sent[actor] += 1;
        self.total += 1;
        assert!(self.gate.release_numbered(actor, number));
        let began = Instant::now();
        while self.gate.is_under_way(actor) {
            tokio::task::yield_now().await;
            assert!(
                began.elapsed() < STALL,
                "a request that was let through is not answered"
            );
        }
        let sent = self.trace.last().expect("it was just sent");
        if let Some((who, at, Harm::Stop)) = self.scene.harm
            && (who, at) == (actor, self.sent[actor])
        {
            self.stopped = Some(who);
            self.harmed = true;
            self.tasks[who].abort();
        }
        sent
    }

    fn abandon(self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        // What Lance still has under way on its own goes on in a store that nobody looks at.
        self.gate.open();
    }

    async fn end(mut self) -> Run {
        let memory = self.memory.fork().await;
        let mut parts = Vec::new();
        for (actor, op) in self.scene.ops.iter().enumerate() {
            let finished = self.gate.is_finished(actor) && self.stopped != Some(actor);
            let heard = match finished {
                true => (&mut self.tasks[actor])
                    .await
                    .expect("an actor does not panic"),
                false => Heard::Nothing,
            };
            let span = match heard {
                Heard::Nothing => (self.spans[actor].0, usize::MAX),
                _ => self.spans[actor],
            };
            let harmed = self.harmed && self.scene.harm.is_some_and(|(who, ..)| who == actor);
            parts.push(Part {
                actor,
                op: *op,
                heard,
                span,
                faulted: harmed,
            });
        }
        let trace = self.trace.clone();
        let harmed = self.harmed;
        self.abandon();
        Run {
            memory,
            trace,
            parts,
            harmed,
        }
    }
}
