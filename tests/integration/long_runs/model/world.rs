//! One explanation of everything that a table went through.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use lancekeep::uuid::Uuid;

use super::OpId;
use crate::long_runs::history::Table;

/// Ways to have come to one world that are told apart.
const MANY_WAYS: usize = 16;

/// A drop, whether its id is known or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Drop {
    pub(super) by: OpId,
    /// How often it was given a new id.
    pub(super) again: u32,
}

/// What is kept under a drop, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kept {
    pub(super) drop: Drop,
    /// `None`: what was dropped had no version.
    pub(super) table: Option<Table>,
    pub(super) expires: Option<DateTime<Utc>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    /// No version: absent, declared, or what a stopped create left.
    Bare,
    Live(Table),
    Dropped(Kept),
    /// A purge is decided.
    Purging(Kept),
}

impl Kept {
    pub(super) fn again(mut self) -> Self {
        self.drop.again += 1;
        self
    }
}

impl State {
    pub(super) fn kept(self) -> Option<Kept> {
        match self {
            Self::Bare | Self::Live(_) => None,
            Self::Dropped(kept) | Self::Purging(kept) => Some(kept),
        }
    }

    pub(super) fn table(self) -> Option<Table> {
        match self {
            Self::Live(table) => Some(table),
            _ => self.kept().and_then(|kept| kept.table),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Seen {
    Was(State),
    Restored(Drop, OpId),
    Purged(Drop, OpId),
}

pub(super) type SeenBy = BTreeMap<OpId, BTreeSet<Seen>>;

/// Adds a way to have come to a world, unless another one explains whatever it does. Too many become one that explains
/// what any of them does: no answer is refused for it, and some are let pass that need not be.
pub(super) fn add(ways: &mut Vec<SeenBy>, way: SeenBy) -> Option<SeenBy> {
    let covers = |one: &SeenBy, other: &SeenBy| {
        let mut other = other.iter();
        other.all(|(id, seen)| one.get(id).is_some_and(|own| seen.is_subset(own)))
    };
    if ways.iter().any(|known| covers(known, &way)) {
        return None;
    }
    ways.retain(|known| !covers(&way, known));
    let mut new = way;
    if ways.len() == MANY_WAYS {
        for known in ways.drain(..) {
            for (id, seen) in known {
                new.entry(id).or_default().extend(seen);
            }
        }
    }
    ways.push(new.clone());
    Some(new)
}

/// One explanation of everything so far.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct World {
    pub(super) state: State,
    /// How far the effect of an operation is.
    pub(super) stage: BTreeMap<OpId, u8>,
    /// What was the case since an operation began.
    pub(super) seen: SeenBy,
    pub(super) ids: BTreeMap<Drop, Uuid>,
    /// Ids of drops that nothing here is about any more.
    pub(super) over: BTreeSet<Uuid>,
    /// Operations whose effect somebody else finished and answered for.
    pub(super) spent: BTreeSet<OpId>,
    /// Lost operations that may have claimed the drop that there is.
    pub(super) claims: BTreeSet<OpId>,
}

impl World {
    pub(super) fn new(state: State) -> Self {
        Self {
            state,
            stage: BTreeMap::new(),
            seen: BTreeMap::new(),
            ids: BTreeMap::new(),
            over: BTreeSet::new(),
            spent: BTreeSet::new(),
            claims: BTreeSet::new(),
        }
    }

    /// Sets the ids aside that nothing here is about any more.
    pub(super) fn tidy(&mut self) {
        let mut about: BTreeSet<Drop> = self
            .state
            .kept()
            .map(|kept| kept.drop)
            .into_iter()
            .collect();
        for seen in self.seen.values().flatten() {
            match seen {
                Seen::Was(state) => about.extend(state.kept().map(|kept| kept.drop)),
                Seen::Restored(drop, _) | Seen::Purged(drop, _) => {
                    about.insert(*drop);
                }
            }
        }
        let Self { ids, over, .. } = self;
        ids.retain(|drop, drop_id| about.contains(drop) || !over.insert(*drop_id));
    }

    pub(super) fn stage_of(&self, id: OpId) -> u8 {
        self.stage.get(&id).copied().unwrap_or_default()
    }

    /// The world in which this is the id of the drop, unless it is known to be another's.
    pub(super) fn named(&self, drop: Drop, drop_id: Uuid) -> Option<Self> {
        match self.ids.get(&drop) {
            Some(known) => (*known == drop_id).then(|| self.clone()),
            None if self.over.contains(&drop_id) => None,
            None if self.ids.values().any(|known| *known == drop_id) => None,
            None => {
                let mut named = self.clone();
                named.ids.insert(drop, drop_id);
                Some(named)
            }
        }
    }

    pub(super) fn becomes(&self, id: OpId, stage: u8, state: State, event: Option<Seen>) -> Self {
        let mut next = self.clone();
        next.state = state;
        next.stage.insert(id, stage);
        if self.state.kept().map(|kept| kept.drop) != state.kept().map(|kept| kept.drop) {
            next.claims.clear();
        }
        let World {
            stage,
            seen,
            claims,
            ..
        } = &mut next;
        stage.retain(|id, _| seen.contains_key(id) || claims.contains(id));
        for seen in next.seen.values_mut() {
            seen.insert(Seen::Was(state));
            seen.extend(event);
        }
        next
    }
}
