//! Whether what became of one table can be explained: by everything that was acknowledged, in an order that agrees with
//! time, and any part of what was not.
//!
//! An operation takes effect at one moment between its begin and its end. One that was killed, or that failed with
//! nothing certain, may take effect at any moment from its begin on (somebody else may finish it later), or never. All
//! orders are tried.

use std::collections::{HashMap, HashSet};

mod verdicts;

/// A version of a table: the create or append that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Version {
    pub(super) op: u32,
    /// To the rows of the version before, rather than in their place.
    pub(super) adds: bool,
}

/// All versions of a table, the first one first.
pub(super) type Lineage = Vec<Version>;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum State {
    Absent,
    Live(Lineage),
    /// Without a version: a directory that a stopped create left was dropped.
    Dropped(Lineage),
}

/// The creates and appends that the rows of a version must have come from, sorted.
pub(super) fn rows_at(lineage: &[Version], version: usize) -> Vec<u32> {
    let until = &lineage[..version];
    let from = until.iter().rposition(|v| !v.adds).unwrap_or(0);
    let mut ops: Vec<u32> = until[from..].iter().map(|v| v.op).collect();
    ops.sort_unstable();
    ops
}

/// What is found at the end: for each version the creates and appends that its rows came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    Absent,
    Live(Vec<Vec<u32>>),
    Dropped(Vec<Vec<u32>>),
}

impl Found {
    fn is(&self, state: &State) -> bool {
        let same = |lineage: &Lineage, found: &[Vec<u32>]| {
            lineage.len() == found.len()
                && (0..found.len()).all(|i| rows_at(lineage, i + 1) == found[i])
        };
        match (self, state) {
            (Self::Absent, State::Absent) => true,
            (Self::Live(found), State::Live(lineage))
            | (Self::Dropped(found), State::Dropped(lineage)) => same(lineage, found),
            _ => false,
        }
    }
}

/// What an answer says about the table at one moment of the operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Seen {
    Absent,
    Live,
    Dropped,
    Rows { version: usize, rows: Vec<u32> },
}

/// What an operation does where it takes effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Write {
        over_live: bool,
    },
    Append,
    /// Of a table; where there is none, of what a stopped create left.
    Drop {
        also_of_nothing: bool,
    },
    Undrop,
    Purge,
    /// The drop of a table in a namespace. Of two at a time both may succeed: the base's own deregistration tells them so.
    Remove,
    /// Clears the record of a drop that has no version, and is told that there is nothing.
    Clear,
    See(Seen),
}

#[derive(Debug, Clone)]
pub(super) struct Op {
    pub(super) op: u32,
    pub(super) step: Step,
    pub(super) begin: usize,
    /// `None`: it may take effect as late as it likes.
    pub(super) end: Option<usize>,
    /// Whether it must have taken effect.
    pub(super) must: bool,
}

impl Op {
    /// What it makes of a state; `None` where it cannot be what it is.
    fn apply(&self, state: &State) -> Option<State> {
        let and = |lineage: &Lineage, adds| {
            let mut lineage = lineage.clone();
            lineage.push(Version { op: self.op, adds });
            Some(State::Live(lineage))
        };
        match (&self.step, state) {
            (Step::Write { .. }, State::Absent) => and(&Vec::new(), false),
            (Step::Write { .. }, State::Dropped(lineage))
            | (Step::Write { over_live: true }, State::Live(lineage)) => and(lineage, false),
            (Step::Append, State::Live(lineage)) => and(lineage, true),
            (Step::Drop { .. }, State::Live(lineage)) => Some(State::Dropped(lineage.clone())),
            (
                Step::Drop {
                    also_of_nothing: true,
                },
                State::Absent,
            ) => Some(State::Dropped(Vec::new())),
            (Step::Undrop | Step::Clear, State::Dropped(lineage)) if lineage.is_empty() => {
                Some(State::Absent)
            }
            (Step::Undrop, State::Dropped(lineage)) => Some(State::Live(lineage.clone())),
            (Step::Purge, State::Dropped(_)) | (Step::Remove, State::Live(_) | State::Absent) => {
                Some(State::Absent)
            }
            (Step::See(seen), _) => {
                let honest = match (seen, state) {
                    (Seen::Absent, State::Absent)
                    | (Seen::Live, State::Live(_))
                    | (Seen::Dropped, State::Dropped(_)) => true,
                    (Seen::Rows { version, rows }, State::Live(lineage)) => {
                        lineage.len() == *version && rows_at(lineage, *version) == *rows
                    }
                    _ => false,
                };
                honest.then(|| state.clone())
            }
            _ => None,
        }
    }
}

/// Beyond this nobody waits for the verdict.
const MOST: usize = 100_000;

/// One way in which it may have gone so far.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Way {
    state: State,
    /// The operations under way that have taken effect, sorted: those that must, and those that may.
    must: Vec<usize>,
    may: Vec<usize>,
}

impl Way {
    fn has_done(&self, i: usize) -> bool {
        self.must.contains(&i) || self.may.contains(&i)
    }

    fn note(&mut self, i: usize, op: &Op) {
        let done = if op.must {
            &mut self.must
        } else {
            &mut self.may
        };
        done.push(i);
        done.sort_unstable();
    }

    fn forget(&mut self, i: usize) {
        self.must.retain(|d| *d != i);
        self.may.retain(|d| *d != i);
    }

    /// What an answer says is true here: that it was seen now leaves everything else open.
    fn look_around(&mut self, under_way: &[usize], ops: &[Op]) {
        for &i in under_way {
            let op = &ops[i];
            if matches!(op.step, Step::See(_))
                && !self.has_done(i)
                && op.apply(&self.state).is_some()
            {
                self.note(i, op);
            }
        }
    }
}

/// Ways, without those that are like another one but for having used up more of what need not have happened.
#[derive(Default)]
struct Ways {
    likes: HashMap<(State, Vec<usize>), Vec<Vec<usize>>>,
    count: usize,
}

impl Ways {
    /// False where one is there that does as well.
    fn add(&mut self, way: &Way) -> bool {
        let key = (way.state.clone(), way.must.clone());
        let likes = self.likes.entry(key).or_default();
        let within = |a: &[usize], b: &[usize]| a.iter().all(|i| b.contains(i));
        if likes.iter().any(|like| within(like, &way.may)) {
            return false;
        }
        let before = likes.len();
        likes.retain(|like| !within(&way.may, like));
        likes.push(way.may.clone());
        self.count = self.count + likes.len() - before;
        true
    }

    fn all(self) -> impl Iterator<Item = Way> {
        self.likes.into_iter().flat_map(|((state, must), likes)| {
            likes.into_iter().map(move |may| Way {
                state: state.clone(),
                must: must.clone(),
                may,
            })
        })
    }
}

/// All ways on from these on which some operations under way take effect.
fn onwards(ways: Ways, under_way: &[usize], ops: &[Op]) -> Result<Ways, String> {
    let mut all = Ways::default();
    let mut open = Vec::new();
    for mut way in ways.all() {
        way.look_around(under_way, ops);
        if all.add(&way) {
            open.push(way);
        }
    }
    while let Some(way) = open.pop() {
        for &i in under_way.iter().filter(|i| !way.has_done(**i)) {
            let Some(state) = ops[i].apply(&way.state) else {
                continue;
            };
            let mut next = Way {
                state,
                ..way.clone()
            };
            next.note(i, &ops[i]);
            next.look_around(under_way, ops);
            if all.add(&next) {
                open.push(next);
            }
        }
        if all.count > MOST {
            return Err(format!("undecided: more than {MOST} ways"));
        }
    }
    Ok(all)
}

/// The state in which the table is, if the operations explain what is found of it.
///
/// First without those that need not have happened and whose rows nobody ever saw: mostly that explains it, and each of
/// them could be anywhere.
pub(super) fn explain(start: &State, ops: &[Op], found: &Found) -> Result<State, String> {
    let mut seen: HashSet<u32> = HashSet::new();
    if let Found::Live(versions) | Found::Dropped(versions) = found {
        seen.extend(versions.iter().flatten());
    }
    for op in ops {
        if let Step::See(Seen::Rows { rows, .. }) = &op.step {
            seen.extend(rows);
        }
    }
    let writes = |op: &Op| matches!(op.step, Step::Write { .. } | Step::Append);
    let likely = ops
        .iter()
        .filter(|op| op.must || !writes(op) || seen.contains(&op.op));
    let likely: Vec<Op> = likely.cloned().collect();
    explain_by(start, &likely, found).or_else(|_| explain_by(start, ops, found))
}

fn explain_by(start: &State, ops: &[Op], found: &Found) -> Result<State, String> {
    let mut events: Vec<(usize, usize)> = Vec::new();
    for (i, op) in ops.iter().enumerate() {
        events.push((op.begin, i));
        events.extend(op.end.map(|end| (end, i)));
    }
    events.sort_unstable();
    let mut ways = Ways::default();
    ways.add(&Way {
        state: start.clone(),
        must: Vec::new(),
        may: Vec::new(),
    });
    let mut under_way: Vec<usize> = Vec::new();
    for (at, i) in events {
        if at == ops[i].begin {
            under_way.push(i);
            continue;
        }
        let mut ended = Ways::default();
        for mut way in onwards(ways, &under_way, ops)?.all() {
            if way.has_done(i) || !ops[i].must {
                way.forget(i);
                ended.add(&way);
            }
        }
        if ended.count == 0 {
            return Err(format!("nothing explains {:?}", ops[i]));
        }
        under_way.retain(|u| *u != i);
        ways = ended;
    }
    onwards(ways, &under_way, ops)?
        .all()
        .map(|way| way.state)
        .find(|state| found.is(state))
        .ok_or_else(|| format!("nothing explains {found:?}"))
}
