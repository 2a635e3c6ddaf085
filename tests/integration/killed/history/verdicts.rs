//! Histories whose verdict is known: what must be convicted, and what acquitted.

use super::{Found, Op, Seen, State, Step, Version, explain};

/// Operations one after the other, each of which must have taken effect.
fn told(steps: &[(u32, Step)]) -> Vec<Op> {
    let ops = steps.iter().enumerate().map(|(i, (op, step))| Op {
        op: *op,
        step: step.clone(),
        begin: 10 * i,
        end: Some(10 * i + 5),
        must: true,
    });
    ops.collect()
}

/// The same, of which these were killed.
fn killed(steps: &[(u32, Step)], killed: &[usize]) -> Vec<Op> {
    let mut ops = told(steps);
    for &i in killed {
        (ops[i].end, ops[i].must) = (None, false);
    }
    ops
}

/// The same, of which these were all under way together.
fn together(steps: &[(u32, Step)]) -> Vec<Op> {
    let mut ops = told(steps);
    for op in &mut ops {
        op.begin /= 10;
    }
    ops
}

const CREATE: Step = Step::Write { over_live: false };
const OVERWRITE: Step = Step::Write { over_live: true };
const DROP: Step = Step::Drop {
    also_of_nothing: false,
};

fn live(rows: &[&[u32]]) -> Found {
    Found::Live(rows.iter().map(|r| r.to_vec()).collect())
}

fn dropped(rows: &[&[u32]]) -> Found {
    Found::Dropped(rows.iter().map(|r| r.to_vec()).collect())
}

fn see(version: usize, rows: &[u32]) -> Step {
    Step::See(Seen::Rows {
        version,
        rows: rows.to_vec(),
    })
}

#[track_caller]
fn acquits(ops: &[Op], found: &Found) {
    let verdict = explain(&State::Absent, ops, found);
    assert!(verdict.is_ok(), "{ops:?}: {verdict:?}");
}

#[track_caller]
fn convicts(ops: &[Op], found: &Found) {
    let verdict = explain(&State::Absent, ops, found);
    assert!(verdict.is_err(), "{ops:?}: {found:?}: {verdict:?}");
    let verdict = verdict.unwrap_err();
    assert!(verdict.starts_with("nothing explains"), "{verdict}");
}

#[test]
fn a_created_table_is_there_with_its_rows_and_no_others() {
    let created = told(&[(1, CREATE)]);
    acquits(&created, &live(&[&[1]]));
    for wrong in [
        Found::Absent,
        live(&[&[2]]),
        live(&[&[]]),
        live(&[&[1, 2]]),
        live(&[&[1], &[1]]),
        dropped(&[&[1]]),
    ] {
        convicts(&created, &wrong);
    }
    convicts(&[], &live(&[&[1]]));
    acquits(&[], &Found::Absent);
}

#[test]
fn what_was_purged_stays_away() {
    let purged = told(&[(1, CREATE), (2, DROP), (3, Step::Purge)]);
    acquits(&purged, &Found::Absent);
    convicts(&purged, &live(&[&[1]]));
    convicts(&purged, &dropped(&[&[1]]));
    let anew = told(&[(1, CREATE), (2, DROP), (3, Step::Purge), (4, CREATE)]);
    acquits(&anew, &live(&[&[4]]));
    convicts(&anew, &live(&[&[1], &[4]]));
    convicts(&anew, &live(&[&[1]]));
    // An undrop that began before the purge and was killed cannot bring it back either.
    let steps = [
        (1, CREATE),
        (2, DROP),
        (3, Step::Undrop),
        (4, DROP),
        (5, Step::Purge),
    ];
    acquits(&killed(&steps, &[2, 3]), &Found::Absent);
    convicts(&killed(&steps, &[2, 3]), &live(&[&[1]]));
}

#[test]
fn a_drop_keeps_everything_and_a_revive_adds_to_it() {
    let steps = [
        (1, CREATE),
        (2, OVERWRITE),
        (3, DROP),
        (4, CREATE),
        (5, Step::Append),
    ];
    acquits(&told(&steps[..3]), &dropped(&[&[1], &[2]]));
    convicts(&told(&steps[..3]), &dropped(&[&[1], &[1]]));
    convicts(&told(&steps[..3]), &dropped(&[&[2]]));
    acquits(&told(&steps), &live(&[&[1], &[2], &[4], &[4, 5]]));
    convicts(&told(&steps), &live(&[&[1], &[2], &[4], &[5]]));
    convicts(&told(&steps), &live(&[&[1], &[2], &[4], &[2, 4, 5]]));
    convicts(&told(&steps), &live(&[&[1], &[4], &[4, 5]]));
}

#[test]
fn what_was_killed_happened_or_not_and_never_half() {
    let steps = [(1, CREATE), (2, DROP), (3, Step::Purge)];
    for found in [&Found::Absent, &dropped(&[&[1]])] {
        acquits(&killed(&steps, &[2]), found);
    }
    convicts(&killed(&steps, &[2]), &live(&[&[1]]));
    for found in [&live(&[&[1]]), &Found::Absent, &dropped(&[&[1]])] {
        acquits(&killed(&steps, &[1, 2]), found);
    }
    // Finished by somebody after what came later.
    let late = [(1, CREATE), (2, Step::Purge), (3, DROP)];
    acquits(&killed(&late, &[1]), &Found::Absent);
    // But it is one purge, not two.
    let twice = [
        (1, CREATE),
        (2, Step::Purge),
        (3, DROP),
        (4, CREATE),
        (5, DROP),
    ];
    acquits(&killed(&twice, &[1]), &dropped(&[&[1], &[4]]));
    acquits(&killed(&twice, &[1]), &Found::Absent);
    convicts(&killed(&twice, &[1]), &dropped(&[&[1]]));
    let over = [(1, CREATE), (2, OVERWRITE)];
    for found in [&live(&[&[1]]), &live(&[&[1], &[2]])] {
        acquits(&killed(&over, &[1]), found);
    }
    for found in [&live(&[&[1], &[1, 2]]), &live(&[&[2]]), &Found::Absent] {
        convicts(&killed(&over, &[1]), found);
    }
}

#[test]
fn what_nobody_saw_may_have_happened_all_the_same() {
    // Without the killed create there was nothing to drop.
    let steps = [(1, CREATE), (2, DROP), (3, Step::Purge)];
    acquits(&killed(&steps, &[0]), &Found::Absent);
    // Or no third version.
    let steps = [
        (1, CREATE),
        (2, Step::Append),
        (3, OVERWRITE),
        (4, see(3, &[3])),
        (5, DROP),
        (6, Step::Purge),
    ];
    acquits(&killed(&steps, &[1]), &Found::Absent);
    convicts(&killed(&steps[..4], &[1]), &live(&[&[1], &[3]]));
    // Many of them are no obstacle.
    let mut steps = vec![(0, CREATE)];
    steps.extend((1..30).map(|op| (op, Step::Append)));
    steps.extend([(30, DROP), (31, Step::Undrop)]);
    let many: Vec<usize> = (1..30).collect();
    acquits(&killed(&steps, &many), &live(&[&[0]]));
    acquits(&killed(&steps, &many), &live(&[&[0], &[0, 7]]));
}

#[test]
fn the_order_agrees_with_time() {
    let steps = [(1, CREATE), (2, OVERWRITE), (3, OVERWRITE)];
    convicts(&told(&steps), &live(&[&[1], &[3], &[2]]));
    acquits(&together(&steps), &live(&[&[1], &[3], &[2]]));
    // Two restores of one drop.
    let both = [(1, CREATE), (2, DROP), (3, Step::Undrop), (4, Step::Undrop)];
    convicts(&told(&both), &live(&[&[1]]));
    convicts(&together(&both), &live(&[&[1]]));
}

#[test]
fn what_was_seen_was_there() {
    let read = |rows: &[u32]| told(&[(1, CREATE), (2, see(1, rows)), (3, DROP)]);
    acquits(&read(&[1]), &dropped(&[&[1]]));
    convicts(&read(&[2]), &dropped(&[&[1]]));
    convicts(&read(&[]), &dropped(&[&[1]]));
    let hidden = told(&[(1, CREATE), (2, DROP), (3, see(1, &[1]))]);
    convicts(&hidden, &dropped(&[&[1]]));
    let gone = told(&[(1, CREATE), (2, Step::See(Seen::Absent))]);
    convicts(&gone, &live(&[&[1]]));
    // The undrop of a killed process, seen by another one, has happened.
    let steps = [(1, CREATE), (2, DROP), (3, Step::Undrop), (4, see(1, &[1]))];
    acquits(&killed(&steps, &[2]), &live(&[&[1]]));
    convicts(&killed(&steps, &[2]), &dropped(&[&[1]]));
}

#[test]
fn what_a_stopped_create_left_can_be_dropped_but_has_no_rows() {
    let drop = Step::Drop {
        also_of_nothing: true,
    };
    let steps = [(1, CREATE), (2, drop)];
    for found in [dropped(&[]), dropped(&[&[1]])] {
        acquits(&killed(&steps, &[0]), &found);
    }
    for found in [live(&[]), Found::Absent] {
        convicts(&killed(&steps, &[0]), &found);
    }
    let steps = [(1, CREATE), (2, DROP)];
    convicts(&killed(&steps, &[0]), &dropped(&[]));
}

#[test]
fn a_window_begins_where_the_last_one_ended() {
    let start = explain(&State::Absent, &told(&[(1, CREATE)]), &live(&[&[1]])).unwrap();
    let ops = told(&[(2, OVERWRITE)]);
    let end = explain(&start, &ops, &live(&[&[1], &[2]])).unwrap();
    let lineage = [1, 2].map(|op| Version { op, adds: false });
    assert_eq!(end, State::Live(lineage.to_vec()));
    assert!(explain(&end, &[], &Found::Absent).is_err());
    assert!(explain(&end, &told(&[(3, Step::Remove)]), &Found::Absent).is_ok());
}
