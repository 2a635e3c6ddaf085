//! Child creates, declarations and drops are stopped, or have one request fail, at each of their requests.

use std::collections::BTreeSet;
use std::future::IntoFuture;
use std::ops::Range;
use std::sync::Mutex;

use lancekeep::lifecycle::FindingKind;
use lancekeep::{Catalog, Error, ErrorKind, Purge, TableState};

use super::{Place, each_point, make, numbers, patiently, read};
use crate::common::{catalog_of, rows};
use crate::support::{Actor, Fault, SharedMemory, When};

const T: [&str; 2] = ["a", "t"];
const NEW: Range<i32> = 100..103;
/// What the next one creates.
const NEXT: Range<i32> = 200..202;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Create,
    /// A create of a declared table.
    Materialise,
    Declare,
    /// The first namespace of a fresh root.
    First,
    /// A namespace inside another one.
    Namespace,
    Drop,
    DropNamespace,
}

/// What is there afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Absent,
    Declared,
    Live(Vec<i32>),
    Namespace,
}

impl Op {
    async fn start(self) -> SharedMemory {
        let memory = SharedMemory::new();
        let catalog = catalog_of(&memory.actor()).await;
        if self == Self::First {
            return memory;
        }
        make(&catalog, &[&["a"]]).await;
        catalog
            .create_table(["a", "beside"], rows(0..2))
            .await
            .unwrap();
        match self {
            Self::Materialise => {
                catalog.declare_table(T).await.unwrap();
            }
            Self::Drop => {
                catalog.create_table(T, rows(NEW)).await.unwrap();
            }
            Self::DropNamespace => {
                let make = catalog.create_namespace(T);
                make.property("k", "v").await.unwrap();
            }
            Self::Create | Self::Declare | Self::First | Self::Namespace => {}
        }
        memory
    }

    async fn run(self, catalog: &Catalog) -> Result<(), Error> {
        match self {
            Self::Create | Self::Materialise => catalog.create_table(T, rows(NEW)).await.map(drop),
            Self::Declare => catalog.declare_table(T).await.map(drop),
            Self::First => {
                let make = catalog.create_namespace("a");
                make.property("k", "v").await.map(drop)
            }
            Self::Namespace => {
                let make = catalog.create_namespace(T);
                make.property("k", "v").await.map(drop)
            }
            Self::Drop => catalog.drop_table(T).await.map(drop),
            Self::DropNamespace => catalog.drop_namespace(T).await.map(drop),
        }
    }

    fn before(self) -> Seen {
        match self {
            Self::Create | Self::Declare | Self::First | Self::Namespace => Seen::Absent,
            Self::Materialise => Seen::Declared,
            Self::Drop => Seen::Live(numbers(NEW)),
            Self::DropNamespace => Seen::Namespace,
        }
    }

    fn done(self) -> Seen {
        match self {
            Self::Create | Self::Materialise => Seen::Live(numbers(NEW)),
            Self::Declare => Seen::Declared,
            Self::First | Self::Namespace => Seen::Namespace,
            Self::Drop | Self::DropNamespace => Seen::Absent,
        }
    }

    async fn look(self, memory: &SharedMemory, at: &str) -> Seen {
        let catalog = catalog_of(&memory.actor()).await;
        // What a child leaves is nothing of the root's.
        assert!(catalog.table_names().await.unwrap().is_empty(), "{at}");
        let dropped = catalog.list_dropped_tables().await.unwrap();
        assert!(dropped.is_empty(), "{at}: {dropped:?}");
        let purged = catalog.purge_dropped(Purge::all()).await.unwrap();
        assert!(
            purged.tables.is_empty() && purged.failures.is_empty(),
            "{at}: {purged:?}"
        );
        let namespace: &[&str] = match self {
            Self::First => &["a"],
            _ => &T,
        };
        let namespace: Vec<String> = namespace.iter().map(ToString::to_string).collect();
        if catalog.namespace_exists(namespace.clone()).await.unwrap() {
            let described = catalog.describe_namespace(namespace).await.unwrap();
            assert_eq!(described.properties["k"], "v", "{at}");
            return Seen::Namespace;
        }
        match catalog.table_status(T).await.unwrap() {
            TableState::Absent => Seen::Absent,
            // Nobody can tell the two apart who does not look at the tombstone.
            TableState::Declared | TableState::Creating if self == Self::Materialise => {
                Seen::Declared
            }
            TableState::Declared => Seen::Declared,
            TableState::Live { version } => {
                assert_eq!(version, 1, "{at}");
                Seen::Live(read(&catalog, T).await)
            }
            other => panic!("{at}: {other:?}"),
        }
    }

    /// The same again, by another process, and then everything is as it should be.
    async fn again(self, memory: &SharedMemory, seen: &Seen, at: &str) {
        let catalog = catalog_of(&memory.actor()).await;
        match self {
            Self::Create | Self::Materialise | Self::Declare => {
                let create = || catalog.create_table(T, rows(NEXT)).into_future();
                let created = patiently(create).await.map(drop);
                let (expected, left) = match seen {
                    Seen::Live(rows) => (Err(ErrorKind::TableAlreadyExists), rows.clone()),
                    _ => (Ok(()), numbers(NEXT)),
                };
                let told = created.as_ref().copied().map_err(Error::kind);
                assert_eq!(told, expected, "{at}: {created:?}");
                assert_eq!(read(&catalog, T).await, left, "{at}");
            }
            Self::First | Self::Namespace => {
                let namespace: &[&str] = match self {
                    Self::First => &["a"],
                    _ => &T,
                };
                let namespace: Vec<String> = namespace.iter().map(ToString::to_string).collect();
                let make = || catalog.create_namespace(namespace.clone()).exist_ok();
                let made = patiently(make).await;
                made.unwrap_or_else(|e| panic!("{at}: {e}"));
            }
            Self::Drop => {
                let dropped = patiently(|| catalog.drop_table(T).if_exists()).await;
                let dropped = dropped.unwrap_or_else(|e| panic!("{at}: {e}"));
                assert_eq!(dropped.is_some(), *seen != Seen::Absent, "{at}");
                let created = patiently(|| catalog.create_table(T, rows(NEXT))).await;
                created.unwrap_or_else(|e| panic!("{at}: {e}"));
                assert_eq!(read(&catalog, T).await, numbers(NEXT), "{at}");
            }
            Self::DropNamespace => {
                let dropped = patiently(|| catalog.drop_namespace(T).if_exists()).await;
                let dropped = dropped.unwrap_or_else(|e| panic!("{at}: {e}"));
                assert_eq!(dropped, *seen != Seen::Absent, "{at}");
            }
        }
        if self != Self::First {
            assert_eq!(read(&catalog, ["a", "beside"]).await, [0, 1], "{at}");
        }
        let place = Place::Memory(memory.clone());
        let rows = place.manifest().await;
        super::check_rows(&rows);
        // What is left over is told, and only that; nothing of the root's is in the way.
        let report = catalog.reconcile(true).await.unwrap();
        let mut told = BTreeSet::new();
        for finding in &report.findings {
            let litter = matches!(
                finding.kind,
                FindingKind::UnregisteredDirectory | FindingKind::UnfinishedCreate
            );
            assert!(litter && finding.error.is_none(), "{at}: {finding:?}");
            if finding.kind == FindingKind::UnregisteredDirectory {
                told.insert(finding.ident.name().to_string());
            }
        }
        let mut left = place.entries().await;
        left.remove(super::MANIFEST);
        left.retain(|name| !name.ends_with(".deleted"));
        for row in &rows {
            if let Some(location) = &row.location {
                left.remove(location);
            }
        }
        assert_eq!(told, left, "{at}");
    }
}

/// A process of its own on a copy of the start.
async fn process(start: &SharedMemory) -> (SharedMemory, Actor, Catalog) {
    let memory = start.fork().await;
    let actor = memory.actor();
    let catalog = catalog_of(&actor).await;
    actor.counter.reset();
    actor.faults.reset();
    (memory, actor, catalog)
}

async fn requests(op: Op, start: &SharedMemory) -> usize {
    let (memory, actor, catalog) = process(start).await;
    op.run(&catalog).await.unwrap();
    let requests = actor.faults.issued();
    assert_eq!(op.look(&memory, "clean run").await, op.done());
    assert!(requests > 3);
    requests
}

/// Nothing of somebody else's doing, when nobody else is there.
fn assert_honest(op: Op, error: &Error, at: &str) {
    let honest = matches!(
        error.kind(),
        ErrorKind::Storage | ErrorKind::Unsupported | ErrorKind::Lance | ErrorKind::Conflict
    );
    assert!(honest, "{op:?}, {at}: {error:?}");
}

async fn stop_everywhere(op: Op) {
    let start = op.start().await;
    let requests = requests(op, &start).await;
    // Only writes change what a next process finds.
    let states = Mutex::new(BTreeSet::new());
    let (start, states) = (&start, &states);
    let done = each_point(|point| async move {
        let (n, when) = (point / 2, [When::Before, When::After][point % 2]);
        if n >= requests {
            return None;
        }
        let (memory, actor, catalog) = process(start).await;
        actor.faults.crash_at(n, when);
        let outcome = op.run(&catalog).await;
        let log = actor.counter.log();
        let at = format!("{op:?} stopped {when:?} request {n}, {:?}", log.get(n));
        if !actor.faults.crashed() {
            // Lance does not make the same requests in each run.
            assert!(n + 3 > requests, "{at}: not reached");
            return Some(false);
        }
        let seen = op.look(&memory, &at).await;
        assert!(
            seen == op.before() || seen == op.done(),
            "{at}: left it {seen:?}"
        );
        match &outcome {
            Ok(()) => assert_eq!(seen, op.done(), "{at}"),
            Err(error) => assert_honest(op, error, &at),
        }
        let made = n + usize::from(when == When::After);
        let effects = log.iter().take(made).filter(|r| r.kind.is_write()).count();
        // What was written together can have landed in any order, so one count may leave different states.
        let new = states.lock().unwrap().insert(format!("{effects} {seen:?}"));
        if new {
            op.again(&memory, &seen, &at).await;
        }
        Some(seen == op.done())
    })
    .await;
    let after = done.iter().filter(|done| **done).count();
    println!(
        "{op:?}: {requests} requests, {} stops, done after {after} of them, {} states",
        done.len(),
        states.lock().unwrap().len()
    );
    assert!(after > 0);
}

async fn fail_everywhere(op: Op) {
    const FAILURES: [(When, Fault); 3] = [
        (When::After, Fault::Timeout),
        (When::Before, Fault::Unavailable503),
        (When::Before, Fault::PermissionDenied),
    ];
    let start = op.start().await;
    let requests = requests(op, &start).await;
    let start = &start;
    let reported = each_point(|point| async move {
        let (n, (when, fault)) = (point / FAILURES.len(), FAILURES[point % FAILURES.len()]);
        if n >= requests {
            return None;
        }
        let (memory, actor, catalog) = process(start).await;
        actor.faults.fail_at(n, when, fault);
        let outcome = op.run(&catalog).await;
        let request = actor.counter.log().get(n).cloned();
        let at = format!("{op:?} with {fault:?} {when:?} request {n}, {request:?}");
        let seen = op.look(&memory, &at).await;
        match &outcome {
            Ok(()) => assert_eq!(seen, op.done(), "{at}"),
            Err(error) => {
                assert_honest(op, error, &at);
                assert!(
                    seen == op.before() || seen == op.done(),
                    "{at}: left it {seen:?}"
                );
                // A lost answer to what was done is recognised, or the caller is told to try again. What the store
                // forbids is no lost answer.
                if seen == op.done() && fault != Fault::PermissionDenied {
                    assert!(error.is_retryable(), "{at}: done, and {error:?}");
                }
            }
        }
        op.again(&memory, &seen, &at).await;
        Some(outcome.is_err())
    })
    .await;
    let told = reported.iter().filter(|told| **told).count();
    println!(
        "{op:?}: {requests} requests, {} faults, {told} reported",
        reported.len()
    );
}

macro_rules! everywhere {
    ($($op:ident: $stops:ident, $fails:ident;)*) => {
        $(
            #[tokio::test]
            async fn $stops() {
                stop_everywhere(Op::$op).await;
            }

            #[tokio::test]
            async fn $fails() {
                fail_everywhere(Op::$op).await;
            }
        )*
    };
}

everywhere! {
    Create: a_child_create_may_stop_anywhere, a_child_create_survives_any_single_fault;
    Materialise: a_create_of_a_declared_child_may_stop_anywhere,
        a_create_of_a_declared_child_survives_any_single_fault;
    Declare: a_child_declaration_may_stop_anywhere, a_child_declaration_survives_any_single_fault;
    First: the_first_namespace_may_stop_anywhere, the_first_namespace_survives_any_single_fault;
    Namespace: a_namespace_may_stop_anywhere, a_namespace_survives_any_single_fault;
    Drop: a_child_drop_may_stop_anywhere, a_child_drop_survives_any_single_fault;
    DropNamespace: a_namespace_drop_may_stop_anywhere, a_namespace_drop_survives_any_single_fault;
}
