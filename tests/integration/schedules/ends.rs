//! What a run left: seen by a process that comes later, and after the leases by one that mends.

use lancekeep::lance::dataset::Dataset;
use lancekeep::lance::dataset::builder::DatasetBuilder;
use lancekeep::lifecycle::{Finding, FindingKind};
use lancekeep::{Catalog, TableState};

use super::operations::Table;
use super::oracle::State;
use super::starts::{fresh, pass_the_lease};
use crate::common::ids;
use crate::support::SharedMemory;

const TABLE: &str = "root/t.lance/";
const TOMBSTONE: &str = "root/t.deleted";
const VERSIONS: &str = "root/t.lance/_versions/";
const MARKER: &str = "root/t.lance/.lance-deregistered";

/// Expects the table to be in one of these states, seen in every way, with nothing left to mend or to clear away.
///
/// With `orphans`, files that nobody committed may lie in the table's directory: somebody was stopped.
pub(super) async fn assert_definite(
    memory: &SharedMemory,
    managed: bool,
    possible: &[State],
    orphans: bool,
    at: &dyn Fn() -> String,
) {
    let catalog = fresh(memory, managed).await;
    let (state, table) = look(memory, &catalog, managed, at).await;
    let known = possible.iter().any(|one| match (one, state) {
        (State::Dropped { table, .. }, State::Dropped { table: seen, .. }) => *table == seen,
        (one, seen) => *one == seen,
    });
    assert!(known, "{state:?} is none of {possible:?}; {}", at());
    if let Some((dataset, table)) = table {
        assert_eq!(ids(&dataset).await, table.ids(), "{}", at());
    }
    let report = catalog.reconcile(true).await.unwrap();
    for finding in &report.findings {
        assert!(
            orphans && is_left_alone(finding, state),
            "{finding:?}; {}",
            at()
        );
    }
    assert_no_litter(memory, state, orphans, at).await;
}

/// What is reported and needs a user: rows that nobody committed, and a drop of nothing.
fn is_left_alone(finding: &Finding, state: State) -> bool {
    match finding.kind {
        FindingKind::IncompleteTable => true,
        FindingKind::MissingLocation => state == State::Hollow,
        _ => false,
    }
}

/// The state as all ways of looking agree on it, with its rows where it has any.
async fn look(
    memory: &SharedMemory,
    catalog: &Catalog,
    managed: bool,
    at: &dyn Fn() -> String,
) -> (State, Option<(Dataset, Table)>) {
    let names = catalog.table_names().await.unwrap();
    let drops = catalog.list_dropped_tables().await.unwrap();
    let status = catalog.table_status("t").await.unwrap();
    // A listing of names cannot tell a table that was not finished from one that was.
    let incomplete = status == TableState::Incomplete;
    let found = match status {
        TableState::Absent | TableState::Incomplete => (State::Absent, None),
        TableState::Live { version } => {
            let dataset = catalog.open_table("t").await.unwrap();
            let table = Table::of(&dataset).await;
            assert_eq!(table.version, version, "{}", at());
            (State::Live(table), Some((dataset, table)))
        }
        TableState::Dropped(_) if !has_versions(memory).await => (State::Hollow, None),
        TableState::Dropped(dropped) => {
            // Past the catalog: what an undrop would bring back.
            let raw = memory.actor();
            let uri = format!("{}/t.lance", catalog.root_uri());
            let builder = DatasetBuilder::from_uri(uri).with_session(raw.session.clone());
            let dataset = builder.load().await.unwrap();
            let table = Table::of(&dataset).await;
            // What was committed between the drop's look and its tombstone is kept too.
            assert!(dropped.version <= Some(table.version), "{}", at());
            let undone = memory.fork().await;
            let undoing = fresh(&undone, managed).await;
            undoing.undrop_table("t").await.unwrap();
            let restored = Table::of(&undoing.open_table("t").await.unwrap()).await;
            assert_eq!(restored, table, "{}", at());
            let state = State::Dropped {
                table,
                expired: false,
            };
            (state, Some((dataset, table)))
        }
        other => panic!("left {other:?}; {}", at()),
    };
    let is_live = matches!(found.0, State::Live(_));
    let is_dropped = matches!(found.0, State::Dropped { .. } | State::Hollow);
    assert_eq!(names == ["t"], is_live || incomplete, "{names:?}; {}", at());
    assert_eq!(drops.len(), usize::from(is_dropped), "{drops:?}; {}", at());
    found
}

async fn has_versions(memory: &SharedMemory) -> bool {
    let dump = memory.dump().await;
    let is_version = |path: &String| path.starts_with(VERSIONS) && path.ends_with(".manifest");
    dump.iter().any(is_version)
}

async fn assert_no_litter(
    memory: &SharedMemory,
    state: State,
    orphans: bool,
    at: &dyn Fn() -> String,
) {
    let dump = memory.dump().await;
    let is_dropped = matches!(state, State::Dropped { .. } | State::Hollow);
    let records: Vec<&String> = dump
        .iter()
        .filter(|path| !path.starts_with(TABLE))
        .collect();
    let expected: &[&str] = if is_dropped { &[TOMBSTONE] } else { &[] };
    assert_eq!(records, expected, "{}", at());
    let marked = dump.iter().any(|path| path == MARKER);
    // Where there is nothing to hide, who stopped may not have come to the marker.
    let expected = is_dropped && (marked || state != State::Hollow);
    assert_eq!(marked, expected, "{}", at());
    if orphans {
        return;
    }
    // One file for each version: nothing of those who lost.
    let files = match state {
        State::Live(table) | State::Dropped { table, .. } => table.version,
        _ => 0,
    };
    let data = dump
        .iter()
        .filter(|path| path.starts_with("root/t.lance/data/"));
    assert_eq!(
        u64::try_from(data.count()).unwrap(),
        files,
        "{dump:?}; {}",
        at()
    );
    let empty = dump.is_empty() || state == State::Hollow;
    assert!(files > 0 || empty, "{dump:?}; {}", at());
}

/// Lets the leases pass and mends what was left unfinished, on a copy: the table must come to a definite state, and a
/// second look must find nothing.
pub(super) async fn assert_mends(
    memory: &SharedMemory,
    managed: bool,
    possible: &[State],
    orphans: bool,
    at: &dyn Fn() -> String,
) {
    let memory = memory.fork().await;
    pass_the_lease(&memory);
    let report = fresh(&memory, managed)
        .await
        .reconcile(false)
        .await
        .unwrap();
    for finding in &report.findings {
        let left = is_left_alone(finding, State::Hollow);
        assert!(finding.mended || left, "{finding:?}; {}", at());
    }
    let finished: Vec<State> = possible
        .iter()
        .map(|state| state.finished().unwrap_or(*state))
        .collect();
    assert_definite(&memory, managed, &finished, orphans, at).await;
}

/// Manifests under way are no objects of their own to look at.
pub(super) async fn staged(memory: &SharedMemory) -> Vec<String> {
    let dump = memory.dump().await;
    dump.into_iter()
        .filter(|path| path.contains(".manifest-"))
        .collect()
}
