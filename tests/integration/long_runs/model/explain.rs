//! Which answers a world explains.

use std::collections::BTreeSet;

use lancekeep::uuid::Uuid;

use super::world::{Drop, Kept, Seen, State, World};
use super::{Model, OpId};
use crate::long_runs::history::{Answer, Deed, Refusal, Status, Table};

impl Model {
    /// The worlds, narrowed down, in which the operation can have been answered so.
    pub(super) fn explain(
        &self,
        world: &World,
        id: OpId,
        answer: &Answer,
        waited: bool,
    ) -> Vec<World> {
        let (Some(op), Some(seen)) = (self.ops.get(&id), world.seen.get(&id)) else {
            return Vec::new();
        };
        let stage = world.stage_of(id);
        let was = |state: State| seen.contains(&Seen::Was(state));
        let states = || {
            seen.iter().filter_map(|seen| match seen {
                Seen::Was(state) => Some(*state),
                _ => None,
            })
        };
        let was_live = states().any(|state| matches!(state, State::Live(_)));
        let was_bare = was(State::Bare);
        // A purge deletes the versions before the drop's record.
        let had_none = was_bare || states().any(|state| matches!(state, State::Purging(_)));
        let was_kept = states().any(|state| state.kept().is_some());
        let met = |kind: fn(Deed) -> bool| op.met.iter().any(|deed| kind(*deed));
        // After its lease somebody else may have finished it, and then it finds it done.
        let own_or_helped = stage == 0 || waited;
        let met_change = met(|deed| deed != Deed::Look);
        let keep = |holds: bool| if holds { vec![world.clone()] } else { vec![] };
        let kept_as = |drop_id: Uuid| -> Vec<World> {
            let drops: BTreeSet<Drop> = states()
                .filter_map(|state| state.kept().map(|kept| kept.drop))
                .collect();
            let named = |drop: &Drop| world.named(*drop, drop_id);
            drops.iter().filter_map(named).collect()
        };
        // By itself, or as the helper of one that stopped.
        let ended = |drop: Drop, by: OpId, drop_id: Uuid, own: u8| -> Option<World> {
            let mut named = world.named(drop, drop_id)?;
            let honest = match by == id {
                true => stage == own && !world.spent.contains(&id),
                false => stage == 0 && self.ops.contains_key(&by) && named.spent.insert(by),
            };
            honest.then_some(named)
        };
        match *answer {
            Answer::Created { version } => {
                let Deed::Create { row, .. } = op.deed else {
                    return Vec::new();
                };
                keep(stage == 1 && was(State::Live(Table { row, version })))
            }
            Answer::Dropped(drop_id) => match stage {
                0 => Vec::new(),
                _ => world
                    .named(Drop { by: id, again: 0 }, drop_id)
                    .into_iter()
                    .collect(),
            },
            Answer::Undropped(drop_id) => seen
                .iter()
                .filter_map(|seen| match seen {
                    Seen::Restored(drop, by) => ended(*drop, *by, drop_id, 1),
                    _ => None,
                })
                .collect(),
            Answer::Purged(drop_id) => seen
                .iter()
                .filter_map(|seen| match seen {
                    Seen::Purged(drop, by) => ended(*drop, *by, drop_id, 2),
                    _ => None,
                })
                .collect(),
            Answer::Declared => keep(was_bare),
            Answer::Opened(table) => keep(was(State::Live(table))),
            Answer::Unread { version } => {
                let mut states = states();
                let opened = states
                    .any(|state| matches!(state, State::Live(table) if table.version == version));
                keep(opened && had_none)
            }
            Answer::Unseen { version } => keep(
                states()
                    .any(|state| matches!(state, State::Live(table) if table.version == version)),
            ),
            Answer::Status(status) => match status {
                Status::Live { version } => {
                    let mut states = states();
                    let was_latest = states
                        .any(|state| state.table().is_some_and(|table| table.version == version));
                    // The record of the drop and the versions are read each in its own time: a table that is purged
                    // in between looks as if it had not been dropped.
                    keep((was_live || was_bare) && was_latest)
                }
                Status::Dropped(drop_id) => kept_as(drop_id),
                Status::Restoring(drop_id) if met(Deed::may_restore) => kept_as(drop_id),
                Status::Purging(drop_id) if met(Deed::may_purge) => kept_as(drop_id),
                Status::Restoring(_) | Status::Purging(_) => Vec::new(),
                Status::Creating => {
                    keep(had_none && met(|deed| matches!(deed, Deed::Create { .. })))
                }
                Status::Declared | Status::Incomplete => keep(had_none && self.littered),
                Status::Absent => keep(had_none),
            },
            Answer::Named(true) => keep(was_live || (was_bare && self.littered)),
            Answer::Named(false) => keep(was_bare || was_kept),
            Answer::Kept(Some(drop_id)) => kept_as(drop_id),
            Answer::Kept(None) => keep(was_live || was_bare),
            // Or it slept over its lease, and somebody else finished its work.
            Answer::Nothing => keep(stage == 0 || waited && stage != 1),
            Answer::Refused(refusal) => match refusal {
                Refusal::NotFound => {
                    let holds = match op.deed {
                        Deed::Drop { .. } => {
                            // Under a new id it is nobody's to take back: a record over nothing, which any create,
                            // undrop or purge ends.
                            let is_ours = |kept: Kept| kept.drop == Drop { by: id, again: 0 };
                            match stage {
                                0 => was_bare || was_kept,
                                _ => !world.state.kept().is_some_and(is_ours),
                            }
                        }
                        Deed::Undrop { only } => {
                            had_none && (stage == 0 || world.state == State::Bare)
                                || stage == 0 && self.was_another(world, id, only)
                        }
                        Deed::Purge { only } => {
                            own_or_helped && (had_none || self.was_another(world, id, only))
                        }
                        Deed::Look => had_none,
                        _ => stage == 0 && had_none && met_change,
                    };
                    keep(holds)
                }
                Refusal::Exists => {
                    keep(stage == 0 && (was_live || op.deed == Deed::Declare && self.littered))
                }
                Refusal::IsDropped(drop_id) if stage == 0 => kept_as(drop_id),
                Refusal::NotDropped => keep(own_or_helped && was_live),
                Refusal::Restoring(drop_id) if stage == 0 && met(Deed::may_restore) => {
                    kept_as(drop_id)
                }
                Refusal::Purging(drop_id) if stage == 0 && met(Deed::may_purge) => kept_as(drop_id),
                Refusal::IsDropped(_) | Refusal::Restoring(_) | Refusal::Purging(_) => Vec::new(),
                // Alone too, a purge can come too early by the store's own clock.
                Refusal::Conflict => keep(met_change || waited || stage == 3),
                Refusal::Fault => keep(true),
            },
        }
    }

    /// Whether it was dropped otherwise than was meant: under another id, or one after the other.
    fn was_another(&self, world: &World, id: OpId, only: Option<Uuid>) -> bool {
        let seen = world.seen.get(&id).into_iter().flatten();
        let drops: BTreeSet<Drop> = seen
            .filter_map(|seen| match seen {
                Seen::Was(state) => state.kept().map(|kept| kept.drop),
                _ => None,
            })
            .collect();
        match only {
            Some(only) => drops.iter().any(|drop| world.ids.get(drop) != Some(&only)),
            None => drops.len() > 1,
        }
    }
}
