//! The model of one table: every state in which it can be, given what was started, answered, refused and lost.
//!
//! Each operation takes effect, if at all, at one moment between its start and its answer (a purge at two: when it is
//! decided and when it is finished). An operation that failed without saying what became of it, or whose process
//! stopped, may be finished by somebody else later; what it can still become is listed with [`Model::effects`]. So the
//! model keeps a set of [`World`]s, and an answer that none of them explains is a violation.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use lancekeep::uuid::Uuid;

use super::history::{Answer, Deed, Found, Refusal, Table};
use world::{Drop, Kept, Seen, SeenBy, State, World, add};

mod explain;
mod world;

pub(super) type OpId = usize;

/// So many worlds take long to look at: it is time for a rest.
const CROWD: usize = 200;

/// So many are a mistake of the model.
const TOO_MANY: usize = 20_000;

#[derive(Clone, Debug)]
struct Op {
    deed: Deed,
    /// What else was under way, or lost, in its time.
    met: Vec<Deed>,
    lost: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Model {
    worlds: BTreeSet<World>,
    ops: BTreeMap<OpId, Op>,
    /// Whether a table without a version may have something in its directory.
    littered: bool,
    /// What was disturbed since the last rest, and may have left something to be finished.
    left: Vec<Deed>,
}

impl Model {
    /// Of a name under which nothing is.
    pub(super) fn new() -> Self {
        Self {
            worlds: BTreeSet::from([World::new(State::Bare)]),
            ops: BTreeMap::new(),
            littered: false,
            left: Vec::new(),
        }
    }

    pub(super) fn start(&mut self, id: OpId, deed: Deed) {
        let open = self.ops.values().filter(|op| !op.lost).map(|op| op.deed);
        let met = open.chain(self.left.iter().copied()).collect();
        for op in self.ops.values_mut() {
            op.met.push(deed);
        }
        self.littered |= matches!(deed, Deed::Create { .. } | Deed::Declare);
        let lost = false;
        self.ops.insert(id, Op { deed, met, lost });
        let worlds = std::mem::take(&mut self.worlds);
        self.worlds = worlds
            .into_iter()
            .map(|mut world| {
                let now = BTreeSet::from([Seen::Was(world.state)]);
                world.seen.insert(id, now);
                world
            })
            .collect();
    }

    /// The operation answered. `waited`: a lease may have ended under it. `disturbed`: so, or a fault was in its way.
    pub(super) fn end(
        &mut self,
        id: OpId,
        answer: &Answer,
        waited: bool,
        disturbed: bool,
        now: DateTime<Utc>,
    ) -> Result<(), String> {
        self.close(now)?;
        let explained: BTreeSet<World> = self
            .worlds
            .iter()
            .flat_map(|world| self.explain(world, id, answer, waited))
            .collect();
        if explained.is_empty() {
            return Err(format!(
                "no world explains {answer:?} to {:?}:\n{}",
                self.ops.get(&id),
                self.show()
            ));
        }
        self.worlds = explained;
        let in_doubt = match answer {
            Answer::Refused(Refusal::Fault) => true,
            Answer::Refused(Refusal::Conflict) => disturbed,
            _ => false,
        };
        if let Some(op) = self.ops.get(&id)
            && (disturbed || in_doubt)
        {
            self.left.push(op.deed);
        }
        self.forget(id, in_doubt);
        Ok(())
    }

    pub(super) fn is_crowded(&self) -> bool {
        self.worlds.len() > CROWD
    }

    /// Its process stopped: nobody hears of it any more, but its claim may stand.
    pub(super) fn lose(&mut self, id: OpId, now: DateTime<Utc>) -> Result<(), String> {
        self.close(now)?;
        self.left.extend(self.ops.get(&id).map(|op| op.deed));
        self.forget(id, true);
        Ok(())
    }

    /// Lost: its claim on the drop that there is may stand, and be finished by others.
    fn forget(&mut self, id: OpId, lost: bool) {
        let worlds = std::mem::take(&mut self.worlds);
        self.worlds = worlds
            .into_iter()
            .map(|mut world| {
                world.seen.remove(&id);
                world.tidy();
                if lost && world.state.kept().is_some() {
                    world.claims.insert(id);
                } else {
                    world.stage.remove(&id);
                }
                if !lost {
                    world.spent.remove(&id);
                }
                world
            })
            .collect();
        if lost && let Some(op) = self.ops.get_mut(&id) {
            op.lost = true;
        } else {
            self.ops.remove(&id);
        }
    }

    /// Nothing is under way and nothing is left to be finished: the table is this, and has to be able to be.
    pub(super) fn settle(&mut self, found: &Found, now: DateTime<Utc>) -> Result<(), String> {
        self.close(now)?;
        let mut settled = BTreeSet::new();
        for world in &self.worlds {
            let agrees = match (world.state, *found) {
                (State::Bare, Found::Bare { .. }) => Some(world.clone()),
                (State::Live(table), Found::Live(it)) => (table == it).then(|| world.clone()),
                (State::Dropped(kept), Found::Dropped { table, drop_id }) => {
                    let named = world.named(kept.drop, drop_id);
                    named.filter(|_| kept.table == table)
                }
                _ => None,
            };
            if let Some(world) = agrees {
                let mut fresh = World::new(world.state);
                (fresh.ids, fresh.over) = (world.ids, world.over);
                fresh.tidy();
                settled.insert(fresh);
            }
        }
        if settled.is_empty() {
            return Err(format!("it cannot be {found:?}:\n{}", self.show()));
        }
        self.worlds = settled;
        self.ops.clear();
        self.left.clear();
        self.littered = matches!(
            found,
            Found::Bare { clean: false } | Found::Dropped { table: None, .. }
        );
        Ok(())
    }

    /// Adds every world that some order of the pending effects leads to.
    fn close(&mut self, now: DateTime<Utc>) -> Result<(), String> {
        let mut todo: Vec<World> = std::mem::take(&mut self.worlds).into_iter().collect();
        let mut known: BTreeMap<World, Vec<SeenBy>> = BTreeMap::new();
        while let Some(mut world) = todo.pop() {
            let seen = std::mem::take(&mut world.seen);
            if known.len() > TOO_MANY {
                self.worlds = known.into_keys().collect();
                return Err(format!("too many worlds to look at:\n{}", self.show()));
            }
            let Some(seen) = add(known.entry(world.clone()).or_default(), seen) else {
                continue;
            };
            world.seen = seen;
            for (id, op) in &self.ops {
                todo.extend(self.effects(&world, *id, op, now));
            }
        }
        for (world, ways) in known {
            for seen in ways {
                self.worlds.insert(World {
                    seen,
                    ..world.clone()
                });
            }
        }
        Ok(())
    }

    /// What the operation can make of a world. One that is lost acts no more by itself, but others finish what its
    /// claim decided.
    fn effects(&self, world: &World, id: OpId, op: &Op, now: DateTime<Utc>) -> Vec<World> {
        let state = world.state;
        let stage = world.stage_of(id);
        if op.lost && !world.claims.contains(&id) {
            return Vec::new();
        }
        let is_only = |kept: Kept, only: Option<Uuid>| match only {
            Some(drop_id) => world.named(kept.drop, drop_id),
            None => Some(world.clone()),
        };
        match (op.deed, stage, state) {
            (Deed::Create { row, overwrite }, 0, _) => {
                let made = |version| State::Live(Table { row, version });
                match state {
                    State::Bare if !op.lost => vec![world.becomes(id, 1, made(1), None)],
                    State::Live(table) if overwrite && !op.lost => {
                        vec![world.becomes(id, 1, made(table.version + 1), None)]
                    }
                    State::Dropped(kept) => {
                        let version = kept.table.map_or(1, |table| table.version + 1);
                        vec![
                            world.becomes(id, 1, made(version), None),
                            world.becomes(id, 2, State::Dropped(kept.again()), None),
                        ]
                    }
                    _ => Vec::new(),
                }
            }
            (Deed::Drop { expires }, 0, State::Live(_) | State::Bare) if !op.lost => {
                let was_live = |seen: &BTreeSet<Seen>| {
                    let mut seen = seen.iter();
                    seen.any(|seen| matches!(seen, Seen::Was(State::Live(_))))
                };
                // Nothing there, at most what a create left; or it was purged under the drop.
                let falls = self.littered || world.seen.get(&id).is_some_and(was_live);
                if state == State::Bare && !falls {
                    return Vec::new();
                }
                let kept = Kept {
                    drop: Drop { by: id, again: 0 },
                    table: state.table(),
                    expires,
                };
                vec![world.becomes(id, 1, State::Dropped(kept), None)]
            }
            // It fell on nothing and takes itself back.
            (Deed::Drop { .. }, 1, State::Dropped(kept))
                if kept.drop.by == id && kept.table.is_none() =>
            {
                vec![world.becomes(id, 2, State::Bare, None)]
            }
            (Deed::Undrop { only }, 0, State::Dropped(kept)) => {
                let restored = kept.table.map_or(State::Bare, State::Live);
                let event = Seen::Restored(kept.drop, id);
                let world = is_only(kept, only);
                world
                    .map(|world| world.becomes(id, 1, restored, Some(event)))
                    .into_iter()
                    .collect()
            }
            (Deed::Purge { only }, 0, State::Dropped(kept)) => {
                // What was to be purged got a new id under the purge: it is the same drop.
                let was_only = world.seen.get(&id).into_iter().flatten().any(|seen| {
                    let Seen::Was(state) = seen else { return false };
                    state.kept().is_some_and(|earlier| {
                        earlier.drop.by == kept.drop.by
                            && world.ids.get(&earlier.drop) == only.as_ref()
                    })
                });
                let world = match was_only {
                    true => Some(world.clone()),
                    false => is_only(kept, only),
                };
                world
                    .map(|world| world.becomes(id, 1, State::Purging(kept), None))
                    .into_iter()
                    .collect()
            }
            (Deed::PurgeExpired, 0, State::Dropped(kept))
                if kept.expires.is_some_and(|expires| expires <= now) =>
            {
                vec![world.becomes(id, 1, State::Purging(kept), None)]
            }
            (Deed::Purge { .. } | Deed::PurgeExpired, 1, State::Purging(kept)) => {
                let event = Seen::Purged(kept.drop, id);
                let mut next = vec![world.becomes(id, 2, State::Bare, Some(event))];
                if op.deed == Deed::PurgeExpired {
                    // Too early by the store's own clock.
                    next.push(world.becomes(id, 3, State::Dropped(kept.again()), None));
                }
                next
            }
            _ => Vec::new(),
        }
    }

    fn show(&self) -> String {
        let mut lines: Vec<String> = self
            .ops
            .iter()
            .map(|(id, op)| format!("  operation {id}: {:?} lost: {}", op.deed, op.lost))
            .collect();
        for world in self.worlds.iter().take(40) {
            lines.push(format!(
                "  {:?}, stages {:?}, ids {:?}, seen {:?}",
                world.state, world.stage, world.ids, world.seen
            ));
        }
        lines.push(format!(
            "  {} worlds, littered: {}",
            self.worlds.len(),
            self.littered
        ));
        lines.join("\n")
    }
}
