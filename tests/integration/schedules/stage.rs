//! One run: actors that run the real code at a gate, each request let through one by one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use super::operations::{Heard, Op};
use super::oracle::Part;
use super::starts::{LEASE, catalog_on, pass, pass_the_lease};
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
/// How often the leases run out: what was begun after the first time has one too.
const PASSES: usize = 3;
/// Somebody waits for what never comes.
const STALL: Duration = Duration::from_secs(60);

/// What is done to one request of one actor, by the number of the request in that actor's own run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Harm {
    /// The actor stops for ever before it: after the effect of the one before.
    Stop,
    /// It sleeps before it, past its lease, until the others have done what they can.
    Sleep,
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
pub(super) struct Waiting {
    pub(super) actor: usize,
    number: usize,
    request: Request,
}

impl Waiting {
    pub(super) fn id(&self) -> Id {
        (self.actor, self.number)
    }

    pub(super) fn footprint(&self) -> Footprint {
        Footprint::expected(&self.request, SCOPE)
    }
}

pub(super) type Id = (usize, usize);

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

/// One run: the actors at their gate.
pub(super) struct Stage<'a> {
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
    asleep: Option<usize>,
    harmed: bool,
    /// What each actor asked since somebody else changed something, and how often that had happened.
    asked: Vec<(u64, Vec<Request>)>,
    /// Who waited for time to pass before its next request.
    slept: BTreeSet<usize>,
    passes: usize,
    pushes: usize,
}

impl<'a> Stage<'a> {
    pub(super) async fn new(scene: &'a Scene) -> Self {
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
            asleep: None,
            harmed: false,
            asked: vec![(0, Vec::new()); count],
            slept: BTreeSet::new(),
            passes: 0,
            pushes: 0,
        }
    }

    /// Waits until everybody waits for the gate or has ended; whoever waits for time is given it.
    pub(super) async fn settle(&mut self) {
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

    pub(super) fn waiting(&self) -> Vec<Waiting> {
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
    pub(super) fn enabled(&mut self, waiting: Vec<Waiting>) -> Vec<Waiting> {
        let useful = |stage: &Self, w: &Waiting| {
            let (known, asked) = &stage.asked[w.actor];
            let changed = stage.trace.changes_by_others(w.actor) > *known;
            let times = asked
                .iter()
                .filter(|request| **request == w.request)
                .count();
            changed || !stage.slept.contains(&w.actor) || times < 2
        };
        if let Some(sleeper) = self.asleep {
            let awake = |w: &&Waiting| w.actor != sleeper && useful(self, w);
            let enabled: Vec<Waiting> = waiting.iter().filter(awake).cloned().collect();
            if !enabled.is_empty() {
                return enabled;
            }
            self.asleep = None;
        }
        let enabled: Vec<Waiting> = waiting
            .iter()
            .filter(|w| useful(self, w))
            .cloned()
            .collect();
        if enabled.is_empty() && !waiting.is_empty() && self.pushes < PUSHES {
            // Nobody can do anything but ask again: whoever stopped has had its time.
            self.pushes += 1;
            if self.harmed && self.passes < PASSES {
                self.passes += 1;
                pass_the_lease(&self.memory);
            }
            return waiting;
        }
        enabled
    }

    pub(super) async fn send(&mut self, (actor, number): Id) -> Sent {
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
        // No two drops of a run have the same time.
        pass(&self.memory, Duration::from_millis(1));
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
        if let Some((who, at, harm)) = self.scene.harm
            && (who, at) == (actor, self.sent[actor])
        {
            match harm {
                Harm::Stop => {
                    self.stopped = Some(who);
                    self.tasks[who].abort();
                    self.harmed = true;
                }
                Harm::Sleep if !self.gate.is_finished(who) => {
                    self.asleep = Some(who);
                    self.harmed = true;
                    self.passes += 1;
                    pass_the_lease(&self.memory);
                    tokio::time::advance(LEASE).await;
                }
                Harm::Sleep | Harm::Fail(..) => {}
            }
        }
        sent
    }

    pub(super) fn abandon(self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        // What Lance still has under way on its own goes on in a store that nobody looks at.
        self.gate.open();
    }

    pub(super) async fn end(mut self) -> Run {
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
            // Time passes for all of them while one sleeps.
            let harmed = |(who, _, harm): (usize, usize, Harm)| who == actor || harm == Harm::Sleep;
            let harmed = self.harmed && self.scene.harm.is_some_and(harmed);
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
