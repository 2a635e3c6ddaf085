//! Whether what the actors were told, and what they left, is what some serial order of their operations gives.
//!
//! An operation takes effect at one moment between its first request and its answer; what was decided by somebody who
//! stopped may be finished at any moment. A failure must be true at such a moment, or blame somebody who was there at
//! the same time. An operation that was not answered, or whose answer blames the store, took effect or did not.

use super::operations::{Heard, Op, Table, Why, created};

/// What a name is to those who look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum State {
    Absent,
    Live(Table),
    Dropped {
        table: Table,
        expired: bool,
    },
    /// Dropped while it was being created: there is nothing to bring back.
    Hollow,
    /// Dropped, and a restore was decided by somebody who stopped.
    Restoring(Table),
    /// Dropped, and a purge was decided by somebody who stopped.
    Purging,
}

impl State {
    fn hidden(self) -> bool {
        matches!(
            self,
            Self::Dropped { .. } | Self::Hollow | Self::Restoring(_) | Self::Purging
        )
    }

    /// What it is once what was decided is finished.
    pub(super) fn finished(self) -> Option<Self> {
        match self {
            Self::Restoring(table) => Some(Self::Live(table)),
            Self::Purging => Some(Self::Absent),
            _ => None,
        }
    }

    /// What an operation makes of it when it succeeds; `None` where it cannot.
    fn after(self, op: Op, actor: usize) -> Option<Self> {
        let of_actor = |version| Table {
            version,
            rows: created(actor).len(),
        };
        Some(match (op, self) {
            (Op::Create | Op::Overwrite, Self::Absent | Self::Hollow) => Self::Live(of_actor(1)),
            (Op::Create | Op::Overwrite, Self::Dropped { table, .. })
            | (Op::Overwrite, Self::Live(table)) => Self::Live(of_actor(table.version + 1)),
            (Op::Drop, Self::Live(table)) => Self::Dropped {
                table,
                expired: false,
            },
            (Op::Undrop, Self::Dropped { table, .. } | Self::Restoring(table)) => Self::Live(table),
            (Op::Purge, Self::Dropped { .. } | Self::Hollow | Self::Purging) => Self::Absent,
            (Op::Undrop, Self::Hollow) => Self::Absent,
            (Op::PurgeExpired, Self::Dropped { expired: true, .. } | Self::Purging) => Self::Absent,
            (Op::Commit, Self::Live(table)) => Self::Live(Table {
                version: table.version + 1,
                rows: table.rows + super::operations::committed(actor).len(),
            }),
            (Op::Reconcile | Op::Open | Op::List, state) => state,
            _ => return None,
        })
    }
}

/// One actor's part in a run.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) actor: usize,
    pub(super) op: Op,
    pub(super) heard: Heard,
    /// The numbers of its first request and of its answer in the run; an unanswered one ends never.
    pub(super) span: (usize, usize),
    /// Whether it was harmed: stopped, put to sleep, or a request of it failed.
    pub(super) faulted: bool,
}

impl Part {
    /// What was not answered may take effect at any later time: somebody else finishes what was decided.
    fn precedes(&self, other: &Self) -> bool {
        self.took_effect().is_some() && self.span.1 <= other.span.0
    }

    /// Whether it may have got in the other's way, by what it did or by what it left.
    fn meets(&self, other: &Self) -> bool {
        (self.faulted || !self.precedes(other)) && !other.precedes(self)
    }

    /// Whether it is known to have taken effect, or known not to have; `None`: neither.
    pub(super) fn took_effect(&self) -> Option<bool> {
        match &self.heard {
            Heard::Failed(Why::Storage, _) | Heard::Nothing => None,
            // Whether it was this drop that a purge ended, or one before it.
            Heard::Failed(Why::Conflict, _) if self.op == Op::Drop => None,
            // Its lease ran out in the middle of the work.
            Heard::Failed(Why::Conflict, _) if self.faulted => None,
            Heard::Failed(..) => Some(false),
            _ => Some(true),
        }
    }

    /// Whether its answer may be given while the table is in this state; rivals: those who were there meanwhile.
    fn true_in(&self, state: State, rivals: &[Op]) -> bool {
        let live = matches!(state, State::Live(_));
        let rival = |ops: &[Op]| rivals.iter().any(|op| ops.contains(op));
        match &self.heard {
            Heard::NothingDue => !matches!(state, State::Dropped { expired: true, .. }),
            Heard::Failed(why, _) => match why {
                Why::Dropped => match self.op {
                    Op::Drop | Op::Undrop => false,
                    _ => state.hidden(),
                },
                Why::NotFound => match self.op {
                    Op::Drop => !live,
                    Op::Open | Op::Undrop | Op::Purge | Op::Commit => state == State::Absent,
                    _ => false,
                },
                Why::NotDropped => live && matches!(self.op, Op::Undrop | Op::Purge),
                Why::Exists => live && self.op == Op::Create,
                Why::Purging => state == State::Purging || rival(&[Op::Purge, Op::PurgeExpired]),
                Why::Restoring => {
                    matches!(state, State::Restoring(_))
                        // A drop takes its tombstone back from a name that was purged under it.
                        || rival(&[Op::Undrop, Op::Create, Op::Overwrite, Op::Drop])
                }
                // A reconcile finishes what somebody left before.
                Why::Conflict | Why::Replaced => {
                    self.faulted || rivals.iter().any(|op| op.changes() || *op == Op::Reconcile)
                }
                Why::Storage => self.faulted,
                Why::Other => false,
            },
            _ => true,
        }
    }

    fn says(&self, why: Why) -> bool {
        matches!(self.heard, Heard::Failed(said, _) if said == why)
    }

    fn is_given(&self, after: State) -> bool {
        match &self.heard {
            Heard::Given(table) => after == State::Live(*table),
            _ => true,
        }
    }
}

/// All states that the name may be in at the end; none if nothing explains the answers.
pub(super) fn possible(start: State, parts: &[Part]) -> Vec<State> {
    let mut ends = Vec::new();
    let mut left: Vec<Step> = (0..parts.len()).map(Step::Whole).collect();
    search(start, parts, &mut left, &mut ends);
    ends
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Whole(usize),
    /// The second look of a listing.
    Drops(usize),
    /// The end of a drop that fell on rows which nobody had committed, and takes itself back.
    Back(usize),
}

impl Step {
    fn who(self) -> usize {
        let (Self::Whole(who) | Self::Drops(who) | Self::Back(who)) = self;
        who
    }
}

fn search(state: State, parts: &[Part], left: &mut Vec<Step>, ends: &mut Vec<State>) {
    if left.is_empty() && !ends.contains(&state) {
        ends.push(state);
    }
    if let Some(finished) = state.finished() {
        search(finished, parts, left, ends);
    }
    for index in 0..left.len() {
        let step = left.remove(index);
        let part = &parts[step.who()];
        let is_due = !left.iter().any(|other| parts[other.who()].precedes(part));
        if is_due {
            take(state, parts, step, left, ends);
        }
        left.insert(index, step);
    }
}

fn take(state: State, parts: &[Part], step: Step, left: &mut Vec<Step>, ends: &mut Vec<State>) {
    let who = step.who();
    let part = &parts[who];
    if step == Step::Back(who) {
        if state == State::Hollow {
            search(State::Absent, parts, left, ends);
        }
        return;
    }
    // Rows that nobody committed may be there.
    let creating = parts.iter().any(|other| {
        matches!(other.op, Op::Create | Op::Overwrite)
            && other.actor != part.actor
            && (other.meets(part) || other.took_effect().is_none())
    });
    if let Heard::Listed { visible, dropped } = part.heard {
        if step == Step::Drops(who) {
            if state.hidden() == dropped {
                search(state, parts, left, ends);
            }
        } else if matches!(state, State::Live(_)) == visible
            || visible && creating && state == State::Absent
        {
            left.push(Step::Drops(who));
            search(state, parts, left, ends);
            left.pop();
        }
        return;
    }
    let rivals: Vec<Op> = parts
        .iter()
        .filter(|other| other.actor != part.actor && other.meets(part))
        .map(|other| other.op)
        .collect();
    // Where it is stopped in the middle of that, whoever comes by ends it.
    let may_go_back = part.says(Why::NotFound) || part.took_effect().is_none();
    if part.op == Op::Drop && may_go_back && state == State::Absent && creating {
        left.push(Step::Back(who));
        search(State::Hollow, parts, left, ends);
        left.pop();
    }
    if state == State::Hollow && part.op == Op::Undrop && part.says(Why::NotFound) {
        // It clears the record of a drop that holds nothing.
        search(State::Absent, parts, left, ends);
    }
    // Others carried out what it had decided while it slept; awake, it says what is there.
    let says_so = match part.op {
        Op::Undrop | Op::Purge => part.says(Why::NotDropped) || part.says(Why::NotFound),
        Op::PurgeExpired => part.heard == Heard::NothingDue,
        _ => false,
    };
    if part.faulted
        && says_so
        && let Some(after) = state.after(part.op, part.actor)
    {
        search(after, parts, left, ends);
    }
    if !part.true_in(state, &rivals) {
        return;
    }
    let done = part.heard == Heard::Done || part.took_effect().is_none();
    // A drop can fall on a name that somebody has emptied before its tombstone was there, and be left there.
    let mut others = parts.iter().filter(|other| other.actor != part.actor);
    let emptied = part.took_effect().is_none()
        && others.any(|other| other.op.changes() || other.op == Op::Reconcile);
    if part.op == Op::Drop && state == State::Absent && (creating || emptied) && done {
        search(State::Hollow, parts, left, ends);
    }
    // Who took the work of a sleeper over, and the sleeper when it wakes, have both done it.
    let shared = part.faulted
        && parts
            .iter()
            .any(|o| o.actor != part.actor && o.op == part.op);
    let is_done = match part.op {
        Op::Undrop => matches!(state, State::Live(_)),
        Op::Purge | Op::PurgeExpired => state == State::Absent,
        _ => false,
    };
    if part.heard == Heard::Done && shared && is_done {
        search(state, parts, left, ends);
    }
    let effect = part.took_effect();
    if effect != Some(true) || part.heard == Heard::NothingDue {
        search(state, parts, left, ends);
    }
    if effect != Some(false)
        && part.heard != Heard::NothingDue
        && let Some(after) = state.after(part.op, part.actor)
        && part.is_given(after)
    {
        search(after, parts, left, ends);
    }
}

/// Whether all who wanted to change something were sent away on account of each other.
pub(super) fn nobody_won(parts: &[Part]) -> bool {
    let sent_away = |part: &Part| {
        matches!(
            part.heard,
            Heard::Failed(Why::Purging | Why::Restoring | Why::Conflict, _)
        )
    };
    let mut changing = parts.iter().filter(|part| part.op.changes()).peekable();
    changing.peek().is_some() && changing.all(sent_away)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(actor: usize, op: Op, heard: Heard) -> Part {
        Part {
            actor,
            op,
            heard,
            span: (0, 10),
            faulted: false,
        }
    }

    fn failed(why: Why) -> Heard {
        Heard::Failed(why, String::new())
    }

    fn old() -> Table {
        Table::original()
    }

    fn made_by(actor: usize, version: u64) -> Heard {
        Heard::Given(Table {
            version,
            rows: created(actor).len(),
        })
    }

    const DROPPED: State = State::Dropped {
        table: Table {
            version: 1,
            rows: 1,
        },
        expired: false,
    };

    /// The ends of two operations on a dropped table.
    fn ends(first: (Op, Heard), second: (Op, Heard)) -> Vec<State> {
        let parts = [part(0, first.0, first.1), part(1, second.0, second.1)];
        possible(DROPPED, &parts)
    }

    #[test]
    fn it_knows_who_may_win() {
        use Op::{Create, Open, Purge, Undrop};
        let live = State::Live(old());
        let done = Heard::Done;
        assert_eq!(
            ends((Undrop, done.clone()), (Purge, failed(Why::NotDropped))),
            [live]
        );
        assert_eq!(
            ends((Undrop, done.clone()), (Purge, failed(Why::Restoring))),
            [live]
        );
        let absent = State::Absent;
        assert_eq!(
            ends((Undrop, failed(Why::NotFound)), (Purge, done.clone())),
            [absent]
        );
        let revived = made_by(0, 1);
        assert_eq!(
            ends((Create, revived.clone()), (Purge, done.clone())).len(),
            1
        );
        for wrong in [
            ends((Undrop, done.clone()), (Purge, done.clone())),
            ends((Undrop, done.clone()), (Purge, failed(Why::NotFound))),
            ends((Undrop, done.clone()), (Purge, failed(Why::Storage))),
            ends((Undrop, done.clone()), (Purge, failed(Why::Purging))),
            ends((Open, Heard::Given(old())), (Create, made_by(1, 2))),
            ends((Open, Heard::Given(old())), (Purge, done.clone())),
            ends((Create, revived), (Undrop, done)),
        ] {
            assert_eq!(wrong, []);
        }
    }

    #[test]
    fn an_unanswered_operation_took_effect_or_not() {
        let found = ends(
            (Op::Undrop, Heard::Nothing),
            (Op::Open, failed(Why::Dropped)),
        );
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.contains(&DROPPED) && found.contains(&State::Live(old())));
        let found = ends((Op::Purge, Heard::Nothing), (Op::Undrop, Heard::Done));
        assert_eq!(found, [State::Live(old())]);
    }

    #[test]
    fn what_ended_before_another_began_comes_before_it() {
        let mut parts = [
            part(0, Op::Undrop, Heard::Done),
            part(1, Op::Open, failed(Why::Dropped)),
        ];
        assert_eq!(possible(DROPPED, &parts), [State::Live(old())]);
        parts[1].span = (10, 12);
        assert!(possible(DROPPED, &parts).is_empty());
    }

    #[test]
    fn a_failure_of_the_store_must_have_been_one() {
        let mut parts = [part(0, Op::Undrop, failed(Why::Storage))];
        assert!(possible(DROPPED, &parts).is_empty());
        parts[0].faulted = true;
        assert_eq!(possible(DROPPED, &parts).len(), 2);
    }

    #[test]
    fn somebody_has_to_win() {
        let parts = [
            part(0, Op::Undrop, failed(Why::Restoring)),
            part(1, Op::Undrop, failed(Why::Restoring)),
        ];
        assert!(nobody_won(&parts));
        assert!(!nobody_won(&parts[..0]));
    }
}
