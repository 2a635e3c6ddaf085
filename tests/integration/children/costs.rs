//! What operations on tables in namespaces cost in requests, beside the base namespace alone on a root like it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use lance_io::object_store::{ObjectStore, ObjectStoreParams};
use lance_namespace::LanceNamespace;
use lance_namespace::models::{
    DescribeTableRequest, DropTableRequest, ListTablesRequest, TableExistsRequest,
};
use lance_namespace_impls::dir::manifest::{ManifestEntry, ManifestNamespace, ObjectType};
use lance_namespace_impls::{DirectoryNamespace, DirectoryNamespaceBuilder};
use lancekeep::Catalog;
use lancekeep::lance::dataset::builder::DatasetBuilder;

use super::stock::{create, id};
use tokio::time::Instant;

use super::with_session;
use crate::common::{catalog_of, rows};
use crate::support::{Actor, Kind, Request, SharedMemory};

/// The last one comes after a deletion, which no base has made.
const OPERATIONS: [&str; 6] = ["create", "exists", "open", "list", "drop", "create again"];

/// How many tables there really are.
const FILLED: i32 = 4;

/// Entries of the manifest.
const SIZES: [i32; 3] = [10, 1_000, 10_000];

/// A root with a namespace `ns` and so many tables in it, by the base.
async fn root(tables: i32) -> SharedMemory {
    let memory = SharedMemory::new();
    let base = base_of(&memory.actor()).await;
    super::stock::make(&base, &["ns"]).await;
    for n in 0..FILLED {
        create(&base, &["ns", &format!("t{n}")], n).await;
    }
    fill(&memory.actor(), FILLED..tables).await;
    memory
}

/// The base's own hands on the manifest.
pub(super) async fn manifest_of(actor: &Actor) -> ManifestNamespace {
    let registry = actor.session.store_registry();
    let params = ObjectStoreParams::default();
    let opened = ObjectStore::from_uri_and_params(registry, "memory://root", &params).await;
    let (store, path) = opened.unwrap();
    let root = "memory://root".to_string();
    let session = Some(actor.session.clone());
    let manifest = ManifestNamespace::open_from_directory(
        root, None, session, store, path, false, false, None,
    );
    manifest.await.unwrap()
}

/// Rows as of tables with nothing in their directories, in one commit.
async fn fill(actor: &Actor, tables: Range<i32>) {
    let manifest = manifest_of(actor).await;
    let rows = tables.map(|n| ManifestEntry {
        object_id: format!("ns$t{n}"),
        object_type: ObjectType::Table,
        location: Some(ManifestNamespace::generate_dir_name(&format!("ns$t{n}"))),
        metadata: None,
    });
    let filled = manifest.insert_into_manifest_with_metadata(rows.collect(), None);
    filled.await.unwrap();
}

async fn base_of(actor: &Actor) -> DirectoryNamespace {
    DirectoryNamespaceBuilder::new("memory://root")
        .session(actor.session.clone())
        .dir_listing_enabled(false)
        .build()
        .await
        .unwrap()
}

async fn theirs(base: &DirectoryNamespace, actor: &Actor, operation: &str) {
    match operation {
        "first create" => create(base, &["ns", "first"], 0).await,
        "create" => create(base, &["ns", "new"], 0).await,
        "create again" => create(base, &["ns", "again"], 0).await,
        "exists" => {
            let mut request = TableExistsRequest::new();
            request.id = id(&["ns", "t1"]);
            base.table_exists(request).await.unwrap();
        }
        "open" => {
            let mut request = DescribeTableRequest::new();
            request.id = id(&["ns", "t1"]);
            let described = base.describe_table(request).await.unwrap();
            DatasetBuilder::from_uri(described.location.unwrap())
                .with_session(actor.session.clone())
                .load()
                .await
                .unwrap();
        }
        "list" => {
            let mut request = ListTablesRequest::new();
            request.id = id(&["ns"]);
            assert!(base.list_tables(request).await.unwrap().tables.len() > 2);
        }
        "drop" => {
            let mut request = DropTableRequest::new();
            request.id = id(&["ns", "t2"]);
            base.drop_table(request).await.unwrap();
        }
        other => panic!("{other}"),
    }
}

async fn ours(catalog: &Catalog, operation: &str) {
    match operation {
        "first create" => drop(
            catalog
                .create_table(["ns", "first"], rows(0..3))
                .await
                .unwrap(),
        ),
        "create" => drop(
            catalog
                .create_table(["ns", "new"], rows(0..3))
                .await
                .unwrap(),
        ),
        "create again" => drop(
            catalog
                .create_table(["ns", "again"], rows(0..3))
                .await
                .unwrap(),
        ),
        "exists" => assert!(catalog.table_exists(["ns", "t1"]).await.unwrap()),
        "open" => drop(catalog.open_table(["ns", "t1"]).await.unwrap()),
        "list" => {
            let page = catalog.list_tables().namespace("ns").await.unwrap();
            assert!(page.tables.len() > 2);
        }
        "drop" => drop(catalog.drop_table(["ns", "t2"]).await.unwrap()),
        other => panic!("{other}"),
    }
}

fn summary(log: &[Request]) -> String {
    let mut counts: BTreeMap<(Kind, bool), usize> = BTreeMap::new();
    for request in log {
        let key = (request.kind, request.path.contains("__manifest"));
        *counts.entry(key).or_default() += 1;
    }
    let parts = counts.iter().map(|((kind, of_manifest), n)| {
        let place = if *of_manifest { " of the manifest" } else { "" };
        format!("{n} {kind:?}{place}")
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// One simulated trip to the store.
const LATENCY: Duration = Duration::from_secs(1);

/// The requests made, and the trips made one after another.
async fn measured(actor: &Actor, operation: impl Future<Output = ()>) -> (Vec<Request>, u32) {
    actor.counter.reset();
    tokio::time::pause();
    let start = Instant::now();
    operation.await;
    let elapsed = start.elapsed();
    tokio::time::resume();
    let trips = (elapsed.as_secs_f64() / LATENCY.as_secs_f64()).round();
    (actor.counter.log(), trips as u32)
}

/// What comes before each operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// The operation before it.
    Nothing,
    /// A commit of its own, so that nothing was read of the latest version.
    OwnCommit,
    /// A commit of another process.
    OthersCommit,
}

/// A commit to the manifest by another process.
async fn elsewhere(memory: &SharedMemory, n: usize) {
    let other = catalog_of(&memory.actor()).await;
    let name = format!("other{n}");
    other.declare_table(["ns", &name]).await.unwrap();
}

/// Each operation with so many entries in the manifest.
async fn compare(tables: i32, before: Before) {
    let memory = root(tables).await;
    let theirs_in = memory.fork().await;
    let plain = theirs_in.actor_with_latency(LATENCY);
    let base = base_of(&plain).await;
    let actor = memory.actor_with_latency(LATENCY);
    let catalog = with_session("memory://root", actor.session.clone()).await;
    // The first write opens the manifest once more, to mend old ones.
    measured(&plain, theirs(&base, &plain, "first create")).await;
    measured(&actor, ours(&catalog, "first create")).await;
    let mut sums = (0, 0);
    for (n, operation) in OPERATIONS.into_iter().enumerate() {
        match before {
            Before::Nothing => {}
            Before::OwnCommit => {
                let name = format!("before{n}");
                let create = async { create(&base, &["ns", &name], 0).await };
                measured(&plain, create).await;
                let create = async {
                    drop(
                        catalog
                            .create_table(["ns", &name], rows(0..3))
                            .await
                            .unwrap(),
                    )
                };
                measured(&actor, create).await;
            }
            Before::OthersCommit => {
                elsewhere(&theirs_in, n).await;
                elsewhere(&memory, n).await;
            }
        }
        let (base_log, base_trips) = measured(&plain, theirs(&base, &plain, operation)).await;
        let (log, trips) = measured(&actor, ours(&catalog, operation)).await;
        println!(
            "{tables} entries, {before:?}, {operation}: base {} in {base_trips} trips ({}), ours {} in {trips} ({})",
            base_log.len(),
            summary(&base_log),
            log.len(),
            summary(&log)
        );
        sums = (sums.0 + base_log.len(), sums.1 + log.len());
        let what = format!("{operation}, {tables} entries, {before:?}");
        assert!(
            log.len() <= base_log.len(),
            "{what}: {log:#?}, the base alone: {base_log:#?}"
        );
        assert!(
            trips <= base_trips,
            "{what}: {trips} trips, the base alone: {base_trips}"
        );
    }
    println!(
        "{tables} entries, {before:?}: base {} in all, ours {}",
        sums.0, sums.1
    );
    assert!(sums.1 < sums.0);
}

#[tokio::test]
async fn operations_cost_no_more_than_the_base_alone() {
    for tables in SIZES {
        compare(tables, Before::Nothing).await;
    }
}

#[tokio::test]
async fn operations_cost_no_more_than_the_base_after_a_commit_of_their_own() {
    for tables in SIZES {
        compare(tables, Before::OwnCommit).await;
    }
}

#[tokio::test]
async fn operations_cost_no_more_than_the_base_after_commits_of_others() {
    for tables in SIZES {
        compare(tables, Before::OthersCommit).await;
    }
}

/// A page of tables that can be opened looks at the next ones in order, a few together, and not at all there are.
#[tokio::test]
async fn a_page_looks_at_what_it_holds() {
    let memory = root(1_000).await;
    let actor = memory.actor();
    let catalog = catalog_of(&actor).await;
    assert!(catalog.table_exists(["ns", "t1"]).await.unwrap());
    actor.counter.reset();
    let page = || {
        let page = catalog.list_tables().namespace("ns").limit(1);
        page.include_declared(false)
    };
    let first = page().await.unwrap();
    assert_eq!(first.tables, ["t0"]);
    let looks = actor.counter.total();
    // The look at the manifest; this one, the next one, and those that were under way beside it.
    assert!(looks <= 1 + 2 + 16, "{looks}");
    let second = page().page_token(first.page_token.unwrap()).await.unwrap();
    assert_eq!(second.tables, ["t1"]);
}
