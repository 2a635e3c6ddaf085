//! What the journal says about one table, as operations for the [`history`](super::history): which must have taken
//! effect, which may have, and what was seen.

use std::collections::{BTreeMap, HashMap};

use super::history::{Op, Seen, Step};
use super::journal::{Content, Kind, Outcome, Record};
use super::worker::is_child;

/// What became of an operation.
enum Fate {
    Took(Step),
    /// It has taken effect, or will, or never does.
    May(Step),
    /// If it did, then before its end.
    MayHave(Step),
    Saw(Seen),
    Nothing,
    /// Never an answer.
    Wrong,
}

/// What it does where it succeeds.
fn step_of(kind: Kind, name: &str, outcome: Option<&Outcome>) -> Option<Step> {
    Some(match kind {
        Kind::Create | Kind::Revive => Step::Write { over_live: false },
        Kind::Overwrite => Step::Write { over_live: true },
        Kind::Append => Step::Append,
        Kind::Drop if is_child(name) => Step::Remove,
        Kind::Drop => Step::Drop {
            // What never had a version was dropped without one.
            also_of_nothing: matches!(outcome, None | Some(Outcome::Done { version: None })),
        },
        Kind::Undrop => Step::Undrop,
        Kind::Purge | Kind::PurgeDropped => Step::Purge,
        Kind::Reconcile | Kind::Open | Kind::Status | Kind::List => return None,
    })
}

fn fate_of_error(kind: Kind, name: &str, step: Step, error: &str) -> Fate {
    use Kind::{Append, Create, Drop, Overwrite, Purge, PurgeDropped, Revive, Undrop};
    match (kind, error) {
        (_, "CorruptMetadata" | "InvalidIdent" | "InvalidInput" | "Unsupported") => Fate::Wrong,
        (_, "RestoreInProgress" | "PurgeInProgress" | "NamespaceNotFound") => Fate::Nothing,
        (Create | Revive | Overwrite, "TableAlreadyExists") => Fate::Saw(Seen::Live),
        (Create | Revive | Overwrite, "TableDropped") => Fate::Saw(Seen::Dropped),
        // The table that was to be overwritten is gone.
        (Overwrite, "TableNotFound") => Fate::Nothing,
        (Append, "Unopened" | "Refused") => Fate::Nothing,
        (Drop, "TableNotFound") if is_child(name) => Fate::Nothing,
        // Purged by somebody before the drop had looked again.
        (Drop, "TableNotFound") => Fate::MayHave(step),
        (Undrop | Purge | PurgeDropped, "TableNotDropped") => Fate::Saw(Seen::Live),
        (Undrop, "TableNotFound") => Fate::MayHave(Step::Clear),
        (Purge | PurgeDropped, "TableNotFound") => Fate::Nothing,
        // Nobody finishes what was done to a table in a namespace.
        (_, "Conflict" | "Lance" | "Storage") if is_child(name) => Fate::MayHave(step),
        (_, "Conflict" | "Lance" | "Storage") => Fate::May(step),
        _ => Fate::Wrong,
    }
}

fn fate(kind: Kind, name: &str, outcome: Option<&Outcome>) -> Fate {
    let Some(step) = step_of(kind, name, outcome) else {
        return match outcome {
            Some(Outcome::Read {
                version,
                rows: Content::Of(rows),
            }) => Fate::Saw(Seen::Rows {
                version: usize::try_from(*version).unwrap(),
                rows: rows.clone(),
            }),
            Some(Outcome::Read { .. }) => Fate::Wrong,
            Some(Outcome::Failed { kind: error, .. }) => match (kind, error.as_str()) {
                (_, "CorruptMetadata" | "InvalidInput" | "Unsupported") => Fate::Wrong,
                (Kind::Open, "TableNotFound") => Fate::Saw(Seen::Absent),
                (Kind::Open, "TableDropped") => Fate::Saw(Seen::Dropped),
                _ => Fate::Nothing,
            },
            _ => Fate::Nothing,
        };
    };
    match outcome {
        None => Fate::May(step),
        Some(Outcome::Done { .. }) => Fate::Took(step),
        Some(Outcome::Purged { names, failed }) => {
            if names.iter().any(|n| n == name) {
                return Fate::Took(step);
            }
            match failed.iter().find(|(n, _)| n == name) {
                Some((_, error)) => fate_of_error(kind, name, step, error),
                None => Fate::Nothing,
            }
        }
        Some(Outcome::Read { .. }) => Fate::Wrong,
        // A failure of the whole.
        Some(Outcome::Failed { kind: error, .. }) => fate_of_error(kind, name, step, error),
    }
}

/// The operations on each of these names, and the answers that nobody may get.
pub(super) fn accounts(
    records: &[Record],
    names: &[String],
) -> (BTreeMap<String, Vec<Op>>, Vec<String>) {
    let mut ends: HashMap<u32, (usize, &Outcome)> = HashMap::new();
    for (at, record) in records.iter().enumerate() {
        if let Record::End { op, outcome, .. } = record {
            ends.insert(*op, (at, outcome));
        }
    }
    let mut accounts: BTreeMap<String, Vec<Op>> = BTreeMap::new();
    let mut wrong = Vec::new();
    for name in names {
        let account = accounts.entry(name.clone()).or_default();
        for (begin, record) in records.iter().enumerate() {
            let Record::Begin {
                op,
                kind,
                name: given,
            } = record
            else {
                continue;
            };
            if given != name && (*kind != Kind::PurgeDropped || is_child(name)) {
                continue;
            }
            let (end, outcome) = ends.get(op).copied().unzip();
            let (step, end, must) = match fate(*kind, name, outcome) {
                Fate::Nothing => continue,
                Fate::Wrong => {
                    wrong.push(format!("{kind:?} {name} gave {outcome:?}"));
                    continue;
                }
                Fate::Took(step) => (step, end, true),
                Fate::Saw(seen) => (Step::See(seen), end, true),
                Fate::May(step) => (step, None, false),
                Fate::MayHave(step) => (step, end, false),
            };
            account.push(Op {
                op: *op,
                step,
                begin,
                end,
                must,
            });
        }
    }
    (accounts, wrong)
}

#[test]
fn answers_bind() {
    let names = ["a".to_string(), "n$a".to_string()];
    let mut records = Vec::new();
    let mut op = 0;
    let mut note = |kind, name: &str, outcome: Option<Outcome>| {
        op += 1;
        let name = name.to_string();
        records.push(Record::Begin { op, kind, name });
        records.extend(outcome.map(|outcome| Record::End { op, us: 0, outcome }));
    };
    note(Kind::Create, "a", Some(Outcome::DONE));
    note(
        Kind::Create,
        "a",
        Some(Outcome::told("TableAlreadyExists", "")),
    );
    note(Kind::Open, "a", Some(Outcome::told("TableNotFound", "")));
    note(Kind::Drop, "a", Some(Outcome::Done { version: Some(1) }));
    note(
        Kind::Undrop,
        "a",
        Some(Outcome::told("PurgeInProgress", "")),
    );
    let purged = Outcome::Purged {
        names: vec!["a".to_string()],
        failed: vec![],
    };
    note(Kind::PurgeDropped, "", Some(purged));
    note(Kind::PurgeDropped, "", None);
    note(Kind::Drop, "n$a", Some(Outcome::told("Conflict", "")));
    note(
        Kind::Open,
        "n$a",
        Some(Outcome::told("CorruptMetadata", "")),
    );
    let (accounts, wrong) = accounts(&records, &names);
    let told = |name: &str| -> Vec<(u32, Step, bool, bool)> {
        let account = accounts[name].iter();
        account
            .map(|o| (o.op, o.step.clone(), o.end.is_some(), o.must))
            .collect()
    };
    let drop = Step::Drop {
        also_of_nothing: false,
    };
    assert_eq!(
        told("a"),
        [
            (1, Step::Write { over_live: false }, true, true),
            (2, Step::See(Seen::Live), true, true),
            (3, Step::See(Seen::Absent), true, true),
            (4, drop, true, true),
            (6, Step::Purge, true, true),
            (7, Step::Purge, false, false),
        ]
    );
    assert_eq!(told("n$a"), [(8, Step::Remove, true, false)]);
    assert_eq!(wrong.len(), 1, "{wrong:?}");
}
