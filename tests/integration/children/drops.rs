//! A namespace is dropped while others put something into it: it is gone and they are told, or it is there with what
//! they put in.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lancekeep::lifecycle::FindingKind;
use lancekeep::{Catalog, Error, ErrorKind};
use tokio::sync::Barrier;

use super::{Place, Stopped, batch_of, each_point, numbers, patiently, read, rows_of};
use crate::common::catalog_of;
use crate::support::{Fault, Faults, Gate, Kind, Request, SharedMemory};

const ROUNDS: usize = 12;

type Work = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// What is put into the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Put {
    Table,
    Declared,
    Namespace,
    Registered,
}

const ALL: [Put; 4] = [Put::Table, Put::Declared, Put::Namespace, Put::Registered];

/// Where [`Put::Registered`] finds a table.
const LOCATION: &str = "spare";

impl Put {
    fn run(self, catalog: &Catalog) -> Work {
        let catalog = catalog.clone();
        let inside = ["a", "b", "x"];
        Box::pin(async move {
            match self {
                Self::Table => catalog.create_table(inside, batch_of(1)).await.map(drop),
                Self::Declared => catalog.declare_table(inside).await.map(drop),
                Self::Namespace => catalog.create_namespace(inside).await.map(drop),
                Self::Registered => catalog.register_table(inside, LOCATION).await.map(drop),
            }
        })
    }
}

fn drop_it(catalog: &Catalog) -> Work {
    let drop = catalog.drop_namespace(["a", "b"]).into_future();
    Box::pin(drop)
}

/// `a` and `a.b` with properties, and a table that is registered nowhere.
async fn start(place: &Place) -> Catalog {
    let catalog = place.catalog().await;
    catalog.create_namespace("a").await.unwrap();
    put_namespace(&catalog).await;
    catalog
        .create_table(["a", "spare"], batch_of(1))
        .await
        .unwrap();
    let location = catalog.deregister_table(["a", "spare"]).await.unwrap();
    move_to_spare(place, &location).await;
    catalog
}

async fn put_namespace(catalog: &Catalog) {
    catalog
        .create_namespace(["a", "b"])
        .property("k", "it's \"v\"")
        .await
        .unwrap();
}

/// Renames a directory of the root by hand.
async fn move_to_spare(place: &Place, location: &str) {
    match place {
        Place::Disk(dir) => {
            std::fs::rename(dir.path().join(location), dir.path().join(LOCATION)).unwrap();
        }
        Place::Memory(memory) => {
            use object_store::ObjectStoreExt;
            let prefix = format!("root/{location}/");
            for path in memory.dump().await {
                if let Some(rest) = path.strip_prefix(&prefix) {
                    let to = format!("root/{LOCATION}/{rest}");
                    let [from, to] =
                        [&path, &to].map(|p| object_store::path::Path::parse(p).unwrap());
                    memory.raw().rename(&from, &to).await.unwrap();
                }
            }
        }
        Place::Server(_) => panic!("not done on a server"),
    }
}

/// One of the two serial orders, and nothing else.
async fn judge(
    place: &Place,
    put: Put,
    dropped: Result<(), Error>,
    made: Result<(), Error>,
    at: &str,
) {
    let rows = place.manifest().await;
    super::check_rows(&rows);
    let catalog = place.catalog().await;
    let there = catalog.namespace_exists(["a", "b"]).await.unwrap();
    let kinds = (
        dropped.as_ref().copied().map_err(Error::kind),
        made.as_ref().copied().map_err(Error::kind),
    );
    match kinds {
        (Ok(()), Err(ErrorKind::NamespaceNotFound)) => {
            assert!(!there, "{at}: dropped, and there: {rows:?}");
            assert!(!rows.iter().any(|row| row.id.starts_with("a$b")), "{at}");
        }
        (Err(ErrorKind::NamespaceNotEmpty), Ok(())) => {
            assert!(there, "{at}: not empty, and not there: {rows:?}");
            let described = catalog.describe_namespace(["a", "b"]).await.unwrap();
            assert_eq!(described.properties["k"], "it's \"v\"", "{at}");
            assert_eq!(described.properties.len(), 1, "{at}");
            let x = ["a", "b", "x"];
            match put {
                Put::Namespace => assert!(catalog.namespace_exists(x).await.unwrap()),
                Put::Declared => {
                    let status = catalog.table_status(x).await.unwrap();
                    assert_eq!(status, lancekeep::TableState::Declared, "{at}");
                }
                Put::Table | Put::Registered => {
                    assert_eq!(read(&catalog, x).await, numbers(rows_of(1)), "{at}");
                }
            }
        }
        _ => panic!("{at}: drop {dropped:?}, put {made:?}, there: {there}, {rows:?}"),
    }
    // The spare table is nobody's, or the one registered.
    let mut found = place.entries().await;
    found.remove(super::MANIFEST);
    let mut known: std::collections::BTreeSet<String> =
        rows.iter().filter_map(|row| row.location.clone()).collect();
    known.insert(LOCATION.to_string());
    assert_eq!(found, known, "{at}");
}

async fn random(place: &Place) {
    let first = start(place).await;
    let second = place.catalog().await;
    for round in 0..ROUNDS {
        let put = ALL[round % ALL.len()];
        let start = Arc::new(Barrier::new(2));
        let dropping = {
            let (catalog, start) = (first.clone(), Arc::clone(&start));
            tokio::spawn(async move {
                start.wait().await;
                patiently(|| drop_it(&catalog)).await
            })
        };
        let putting = {
            let (catalog, start) = (second.clone(), Arc::clone(&start));
            tokio::spawn(async move {
                start.wait().await;
                // A create writes its data first: give the drop a moment, more from round to round.
                for _ in 0..round * 20 {
                    tokio::task::yield_now().await;
                }
                patiently(|| put.run(&catalog)).await
            })
        };
        let (dropped, made) = (dropping.await.unwrap(), putting.await.unwrap());
        let told = (
            dropped.as_ref().copied().map_err(Error::kind),
            made.as_ref().copied().map_err(Error::kind),
        );
        println!("round {round}, {put:?}: {told:?}");
        judge(
            place,
            put,
            dropped,
            made,
            &format!("round {round}, {put:?}"),
        )
        .await;

        // As it was.
        match put {
            _ if !first.namespace_exists(["a", "b"]).await.unwrap() => put_namespace(&first).await,
            Put::Namespace => first.drop_namespace(["a", "b", "x"]).await.unwrap(),
            Put::Table | Put::Declared => {
                first.drop_table(["a", "b", "x"]).await.unwrap();
            }
            Put::Registered => {
                let location = first.deregister_table(["a", "b", "x"]).await.unwrap();
                assert_eq!(location, LOCATION);
            }
        }
    }
}

on_both!(random: lance_6290_a_drop_races_with_what_is_put_in_on_local_disk,
    lance_6290_a_drop_races_with_what_is_put_in_in_memory);

/// One of the two is stopped before each of its requests in turn, while the other runs to its end.
async fn overtaken(put: Put, slow_drop: bool) {
    let Place::Memory(memory) = Place::in_memory() else {
        unreachable!()
    };
    start(&Place::Memory(memory.clone())).await;
    let memory = &memory;
    let made = each_point(|n| async move {
        let memory = memory.fork().await;
        let gate = Gate::new();
        let slow = catalog_of(&memory.actor_at_gate(&gate, 0)).await;
        let fast = catalog_of(&memory.actor()).await;
        let work = match slow_drop {
            true => drop_it(&slow),
            false => put.run(&slow),
        };
        let stopped = Stopped::after(gate, n, work).await?;
        let quick = match slow_drop {
            true => put.run(&fast).await,
            false => drop_it(&fast).await,
        };
        let at = format!("{put:?}, slow drop: {slow_drop}, stopped before request {n}");
        let outcome = stopped.go_on().await;
        let (dropped, made) = match slow_drop {
            true => (outcome, quick),
            false => (quick, outcome),
        };
        let again = |error: &Error| error.is_retryable();
        let dropped = match dropped {
            Err(e) if again(&e) => patiently(|| drop_it(&fast)).await,
            dropped => dropped,
        };
        let made = match made {
            Err(e) if again(&e) => patiently(|| put.run(&fast)).await,
            made => made,
        };
        let won = made.is_ok();
        judge(&Place::Memory(memory), put, dropped, made, &at).await;
        Some(won)
    })
    .await;
    let wins = made.iter().filter(|won| **won).count();
    println!(
        "{put:?}, slow drop: {slow_drop}: {} requests, {wins} times put",
        made.len()
    );
    assert!(made.len() > 3);
}

#[tokio::test]
async fn lance_6290_a_drop_is_overtaken_by_a_create_anywhere() {
    overtaken(Put::Table, true).await;
}

#[tokio::test]
async fn lance_6290_a_drop_is_overtaken_by_a_declaration_anywhere() {
    overtaken(Put::Declared, true).await;
}

#[tokio::test]
async fn lance_6290_a_drop_is_overtaken_by_a_namespace_anywhere() {
    overtaken(Put::Namespace, true).await;
}

#[tokio::test]
async fn lance_6290_a_drop_is_overtaken_by_a_registration_anywhere() {
    overtaken(Put::Registered, true).await;
}

#[tokio::test]
async fn lance_6290_a_create_is_overtaken_by_a_drop_anywhere() {
    overtaken(Put::Table, false).await;
}

#[tokio::test]
async fn lance_6290_a_declaration_is_overtaken_by_a_drop_anywhere() {
    overtaken(Put::Declared, false).await;
}

#[tokio::test]
async fn lance_6290_a_namespace_is_overtaken_by_a_drop_anywhere() {
    overtaken(Put::Namespace, false).await;
}

#[tokio::test]
async fn lance_6290_a_registration_is_overtaken_by_a_drop_anywhere() {
    overtaken(Put::Registered, false).await;
}

/// A create of a table two levels down, while the levels are dropped from the bottom up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lance_6290_two_levels_are_dropped_under_a_create() {
    let memory = SharedMemory::new();
    let place = Place::Memory(memory.clone());
    let catalogs = [
        place.catalog().await,
        place.catalog().await,
        place.catalog().await,
    ];
    for round in 0..ROUNDS {
        let [maker, lower, upper] = catalogs.clone();
        maker.create_namespace("a").exist_ok().await.unwrap();
        maker.create_namespace(["a", "b"]).exist_ok().await.unwrap();
        let start = Arc::new(Barrier::new(2));
        let dropping = {
            let start = Arc::clone(&start);
            tokio::spawn(async move {
                start.wait().await;
                let below = patiently(|| lower.drop_namespace(["a", "b"])).await;
                let above = patiently(|| upper.drop_namespace("a")).await;
                (below, above)
            })
        };
        let putting = tokio::spawn(async move {
            start.wait().await;
            for _ in 0..round * 20 {
                tokio::task::yield_now().await;
            }
            let x = ["a", "b", "x"];
            patiently(|| maker.create_table(x, batch_of(1)))
                .await
                .map(drop)
        });
        let ((below, above), made) = (dropping.await.unwrap(), putting.await.unwrap());
        let rows = place.manifest().await;
        super::check_rows(&rows);
        let told = (
            below.map_err(|e| e.kind()),
            above.map_err(|e| e.kind()),
            made.map_err(|e| e.kind()),
        );
        println!("round {round}: {told:?}");
        let full = Err(ErrorKind::NamespaceNotEmpty);
        match told {
            (Ok(()), Ok(()), Err(ErrorKind::NamespaceNotFound)) => assert!(rows.is_empty()),
            // It saw what the create then took back.
            (Ok(()), above, Err(ErrorKind::NamespaceNotFound)) if above == full => {
                assert_eq!(rows.len(), 1, "{rows:?}");
            }
            (below, above, Ok(())) => {
                assert_eq!((below, above), (full, full));
                assert_eq!(rows.len(), 3, "{rows:?}");
                let x = ["a", "b", "x"];
                assert_eq!(read(&catalogs[0], x).await, numbers(rows_of(1)));
                catalogs[0].drop_table(x).await.unwrap();
            }
            told => panic!("round {round}: {told:?}, {rows:?}"),
        }
        place.assert_tidy(&[]).await;
    }
}

/// Nothing is sent any more after so many attempts to commit to the manifest.
fn stop_after_commit(faults: &Faults, commits: usize) {
    let made = AtomicUsize::new(0);
    let stopped = move |request: &Request| {
        if made.load(Ordering::Relaxed) >= commits {
            return true;
        }
        if request.kind == Kind::PutCreate && request.path.contains("__manifest/_versions/") {
            made.fetch_add(1, Ordering::Relaxed);
        }
        false
    };
    faults.fail_matching(stopped, Fault::PermissionDenied);
}

/// The dropper stops for good after it took the namespace away from above a new table. Reconcile puts it back.
#[tokio::test]
async fn a_drop_that_stops_over_a_create_is_mended() {
    let first = SharedMemory::new();
    start(&Place::Memory(first.clone())).await;
    let x = ["a", "b", "x"];
    let mut orphans = 0;
    // Its commit may lose to the create's, and is made again then.
    for commits in [1, 2] {
        let first = &first;
        let left = each_point(|n| async move {
            let memory = first.fork().await;
            let gate = Gate::new();
            let actor = memory.actor_at_gate(&gate, 0);
            let slow = catalog_of(&actor).await;
            let stopped = Stopped::after(gate, n, drop_it(&slow)).await?;
            let fast = catalog_of(&memory.actor()).await;
            if Put::Table.run(&fast).await.is_err() {
                return Some(0);
            }
            stop_after_commit(&actor.faults, commits);
            let dropped = stopped.go_on().await;
            let catalog = catalog_of(&memory.actor()).await;
            if catalog.namespace_exists(["a", "b"]).await.unwrap() {
                assert!(dropped.is_err(), "stopped before request {n}");
                return Some(0);
            }
            assert_eq!(read(&catalog, x).await, numbers(rows_of(1)));
            let report = catalog.reconcile(false).await.unwrap();
            let mended: Vec<_> = report.of(FindingKind::MissingNamespace).collect();
            assert_eq!(mended.len(), 1, "{report:?}");
            assert!(mended[0].mended, "{report:?}");
            assert_eq!(mended[0].ident.parts(), ["a", "b"]);
            assert!(catalog.namespace_exists(["a", "b"]).await.unwrap());
            assert_eq!(super::tables(&catalog, &["a", "b"]).await, ["x"]);
            assert_eq!(read(&catalog, x).await, numbers(rows_of(1)));
            super::check_rows(&Place::Memory(memory).manifest().await);
            Some(1)
        })
        .await;
        orphans += left.iter().sum::<usize>();
    }
    println!("{orphans} times a table was left without its namespace");
    assert!(orphans > 0);
}
