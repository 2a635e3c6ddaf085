//! One operation on a child is stopped before each of its requests in turn, while another runs from its beginning to its
//! end.

use std::collections::BTreeSet;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Instant;

use lancekeep::lifecycle::FindingKind;
use lancekeep::{Catalog, CreateMode, Error, ErrorKind, NamespaceIdent, TableState};

use super::races::assert_one_winner;
use super::{
    MANIFEST, Place, STALL, Stopped, batch_of, each_point, make, numbers, patiently, read, rows_of,
    tables,
};
use crate::common::{LEASE, catalog_of, ids};
use crate::support::{Gate, SharedMemory};

const T: [&str; 2] = ["a", "t"];

/// One create is stopped before each of its requests in turn while another runs from its beginning to its end.
async fn overtaken(declared: bool) {
    let start = SharedMemory::new();
    let catalog = catalog_of(&start.actor()).await;
    make(&catalog, &[&["a"]]).await;
    if declared {
        catalog.declare_table(T).await.unwrap();
    }
    let start = &start;
    let slow_wins = each_point(|n| async move {
        let memory = start.fork().await;
        let gate = Gate::new();
        let slow = catalog_of(&memory.actor_at_gate(&gate, 0)).await;
        let create = slow.create_table(T, batch_of(0)).into_future();
        let stopped = Stopped::after(gate, n, create).await?;
        let fast = catalog_of(&memory.actor()).await;
        let quick = fast.create_table(T, batch_of(1)).await;
        let slow_outcome = stopped.go_on().await;
        let slow_won = slow_outcome.is_ok();
        let mut outcomes = Vec::new();
        for outcome in [slow_outcome, quick] {
            outcomes.push(match outcome {
                Ok(created) => Ok(ids(&created).await),
                Err(error) => Err(error),
            });
        }
        println!("stopped before request {n}: {outcomes:?}");
        assert_one_winner(&[slow, fast], T, outcomes).await;
        let place = Place::Memory(memory);
        settle(&place).await;
        place.assert_tidy(&[]).await;
        Some(slow_won)
    })
    .await;
    let wins = slow_wins.iter().filter(|won| **won).count();
    println!(
        "declared: {declared}: {} requests, {wins} times the slow one won",
        slow_wins.len()
    );
    assert!(slow_wins.len() > 10);
}

#[tokio::test]
async fn lance_6143_a_create_is_overtaken_anywhere() {
    overtaken(false).await;
}

#[tokio::test]
async fn lance_6143_a_create_of_a_declared_table_is_overtaken_anywhere() {
    overtaken(true).await;
}

#[tokio::test]
async fn lance_5909_the_first_use_is_overtaken_anywhere() {
    let points = each_point(|n| async move {
        let memory = SharedMemory::new();
        let gate = Gate::new();
        let slow = catalog_of(&memory.actor_at_gate(&gate, 0)).await;
        let make = {
            let slow = slow.clone();
            async move { slow.create_namespace("slow").await }
        };
        let stopped = Stopped::after(gate, n, make).await?;
        let fast = catalog_of(&memory.actor()).await;
        let quick = patiently(|| fast.create_namespace("fast")).await;
        quick.unwrap_or_else(|e| panic!("stopped before request {n}: {e}"));
        if let Err(error) = stopped.go_on().await {
            assert!(
                error.is_retryable(),
                "stopped before request {n}: {error:?}"
            );
            let again = patiently(|| slow.create_namespace("slow")).await;
            again.unwrap_or_else(|e| panic!("stopped before request {n}: {e}"));
        }
        for catalog in [&slow, &fast] {
            let listed = catalog.list_namespaces(NamespaceIdent::root()).await;
            assert_eq!(listed.unwrap(), ["fast", "slow"], "stopped before {n}");
        }
        let place = Place::Memory(memory);
        settle(&place).await;
        assert_eq!(place.assert_tidy(&[]).await.len(), 2, "stopped before {n}");
        Some(())
    })
    .await;
    assert!(points.len() > 10);
}

/// Clears away the records of creates that were overtaken, once their leases are over: a request that was stopped takes
/// effect later than a lease allows.
async fn settle(place: &Place) {
    let start = Instant::now();
    while place
        .entries()
        .await
        .iter()
        .any(|name| name.ends_with(".deleted"))
    {
        assert!(start.elapsed() < STALL, "{:?}", place.entries().await);
        tokio::time::sleep(LEASE / 4).await;
        let Place::Memory(memory) = place else {
            unreachable!()
        };
        let report = catalog_of(&memory.actor())
            .await
            .reconcile(false)
            .await
            .unwrap();
        let failed = report
            .findings
            .iter()
            .find(|finding| finding.error.is_some());
        assert!(failed.is_none(), "{failed:?}");
    }
}

/// What is done to the table `a.t`; gives the rows that it saw or wrote, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Open,
    Create,
    ExistOk,
    Overwrite,
    Drop,
    /// Drop and create anew.
    Replace,
    /// Deregister and register again.
    Bounce,
}

type Work = Pin<Box<dyn Future<Output = Result<Option<Vec<i32>>, Error>> + Send>>;

impl Op {
    fn run(self, catalog: &Catalog, n: i32) -> Work {
        let catalog = catalog.clone();
        let create = catalog.create_table(T, batch_of(n));
        Box::pin(async move {
            let made = match self {
                // Looked at, but not read: its data may be gone by now.
                Self::Open => return catalog.open_table(T).await.map(|_| None),
                Self::Drop => return catalog.drop_table(T).await.map(|_| None),
                Self::Bounce => {
                    let location = catalog.deregister_table(T).await?;
                    catalog.register_table(T, location).await?;
                    return Ok(None);
                }
                Self::Replace => {
                    catalog.drop_table(T).await?;
                    create.await
                }
                Self::Create => create.await,
                Self::ExistOk => create.mode(CreateMode::ExistOk).await,
                Self::Overwrite => create.mode(CreateMode::Overwrite).await,
            };
            made.map(|_| Some(numbers(rows_of(n))))
        })
    }
}

/// What is there, as anybody sees it: no state but these three, and rows that somebody wrote as they are.
async fn look(memory: &SharedMemory, known: &[Vec<i32>], at: &str) -> Option<Vec<i32>> {
    let catalog = catalog_of(&memory.actor()).await;
    let status = catalog.table_status(T).await.unwrap();
    let listed = tables(&catalog, &["a"]).await;
    match status {
        TableState::Absent => {
            assert!(listed.is_empty(), "{at}");
            None
        }
        TableState::Declared => {
            assert_eq!(listed, ["t"], "{at}");
            Some(Vec::new())
        }
        TableState::Live { .. } => {
            assert_eq!(listed, ["t"], "{at}");
            let rows = read(&catalog, T).await;
            assert!(known.contains(&rows), "{at}: {rows:?}");
            Some(rows)
        }
        other => panic!("{at}: {other:?}"),
    }
}

/// The kinds of error that fit whatever the other one did.
fn fits(op: Op, error: &Error) -> bool {
    use ErrorKind as K;
    let kind = error.kind();
    error.is_retryable()
        || match op {
            Op::Open | Op::Drop | Op::Replace => kind == K::TableNotFound,
            Op::Create => kind == K::TableAlreadyExists,
            Op::Bounce => matches!(kind, K::TableNotFound | K::TableAlreadyExists),
            Op::ExistOk | Op::Overwrite => false,
        }
}

/// Both run on `a.t`, `declared` or with rows; what they answer and leave fits together.
async fn pair(declared: bool, slow: Op, fast: Op) {
    let start = SharedMemory::new();
    let catalog = catalog_of(&start.actor()).await;
    make(&catalog, &[&["a"]]).await;
    if declared {
        catalog.declare_table(T).await.unwrap();
    } else {
        catalog.create_table(T, batch_of(2)).await.unwrap();
    }
    let known = [0, 1, 2].map(|n| numbers(rows_of(n)));
    let (start, known) = (&start, &known);
    let littered = each_point(|n| async move {
        let memory = start.fork().await;
        let gate = Gate::new();
        let first = catalog_of(&memory.actor_at_gate(&gate, 0)).await;
        let stopped = Stopped::after(gate, n, slow.run(&first, 0)).await?;
        let second = catalog_of(&memory.actor()).await;
        let quick = fast.run(&second, 1).await;
        let slowly = stopped.go_on().await;
        let at = format!(
            "declared: {declared}, {slow:?} stopped before request {n} for {fast:?}: {slowly:?}, {quick:?}"
        );
        for (op, outcome) in [(slow, &slowly), (fast, &quick)] {
            if let Err(error) = outcome {
                assert!(fits(op, error), "{at}");
            }
        }
        let seen = look(&memory, known, &at).await;
        // Who wrote and was not dropped after it is what is seen.
        let drops = |op: Op| matches!(op, Op::Drop | Op::Replace);
        let wrote: Vec<Vec<i32>> = [&slowly, &quick]
            .into_iter()
            .filter_map(|outcome| outcome.as_ref().ok()?.clone())
            .collect();
        match &seen {
            None => assert!(drops(slow) || drops(fast), "{at}: gone"),
            Some(rows) if rows.is_empty() => assert!(wrote.is_empty(), "{at}: declared"),
            Some(rows) => {
                let old = *rows == numbers(rows_of(2));
                assert!(wrote.contains(rows) || old && !declared, "{at}: {rows:?}");
                let kept = matches!(slow, Op::ExistOk) || matches!(fast, Op::ExistOk);
                assert!(!old || wrote.is_empty() || kept, "{at}: old rows");
            }
        }
        // Another create works, whatever is left.
        let third = catalog_of(&memory.actor()).await;
        let last = patiently(|| {
            let create = third.create_table(T, batch_of(5));
            create.mode(CreateMode::Overwrite)
        });
        last.await.unwrap_or_else(|e| panic!("{at}: {e}"));
        assert_eq!(read(&third, T).await, numbers(rows_of(5)), "{at}");
        let place = Place::Memory(memory);
        let rows = place.manifest().await;
        super::check_rows(&rows);
        settle(&place).await;
        let mut left = place.entries().await;
        left.remove(MANIFEST);
        let used: BTreeSet<String> = rows.iter().filter_map(|row| row.location.clone()).collect();
        let litter = left != used;
        if litter {
            println!("{at}: left {left:?}, used {used:?}");
            let report = third.reconcile(true).await.unwrap();
            let told = report.of(FindingKind::UnregisteredDirectory);
            let told: BTreeSet<String> = told.map(|f| f.ident.name().to_string()).collect();
            assert_eq!(told, left.difference(&used).cloned().collect(), "{at}");
        }
        Some(litter)
    })
    .await;
    assert!(littered.len() > 3);
    // The base tells where the row led to when it looked, not when it took it away: between the two, the drop takes
    // out a table that it knows nothing of.
    let blind = slow == Op::Drop && fast == Op::Replace;
    assert!(
        blind || !littered.contains(&true),
        "a directory that no table uses"
    );
}

macro_rules! pairs {
    ($($name:ident: $declared:literal, $slow:ident, $fast:ident;)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                pair($declared, Op::$slow, Op::$fast).await;
            }
        )*
    };
}

pairs! {
    an_open_is_overtaken_by_a_drop: false, Open, Drop;
    an_open_is_overtaken_by_a_replacement: false, Open, Replace;
    an_open_is_overtaken_by_a_bounce: false, Open, Bounce;
    a_drop_is_overtaken_by_an_overwrite: false, Drop, Overwrite;
    a_drop_is_overtaken_by_a_replacement: false, Drop, Replace;
    a_drop_is_overtaken_by_a_drop: false, Drop, Drop;
    a_drop_is_overtaken_by_exist_ok: false, Drop, ExistOk;
    an_overwrite_is_overtaken_by_a_drop: false, Overwrite, Drop;
    an_overwrite_is_overtaken_by_a_replacement: false, Overwrite, Replace;
    an_overwrite_is_overtaken_by_an_overwrite: false, Overwrite, Overwrite;
    exist_ok_is_overtaken_by_a_drop: false, ExistOk, Drop;
    exist_ok_is_overtaken_by_a_replacement: false, ExistOk, Replace;
    a_materialisation_is_overtaken_by_a_drop: true, Create, Drop;
    a_materialisation_is_overtaken_by_an_overwrite: true, Create, Overwrite;
    a_materialisation_is_overtaken_by_exist_ok: true, Create, ExistOk;
    a_drop_is_overtaken_by_a_materialisation: true, Drop, Create;
    exist_ok_of_a_declared_child_is_overtaken_by_a_create: true, ExistOk, Create;
}
