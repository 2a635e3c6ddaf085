//! What operations on tables in namespaces cost in requests, beside the base namespace alone on a root like it.

use std::collections::BTreeMap;
use std::time::Duration;

use lance_namespace::LanceNamespace;
use lance_namespace::models::{
    DescribeTableRequest, DropTableRequest, ListTablesRequest, TableExistsRequest,
};
use lance_namespace_impls::{DirectoryNamespace, DirectoryNamespaceBuilder};
use lancekeep::Catalog;
use lancekeep::lance::dataset::builder::DatasetBuilder;

use super::stock::{create, id};
use tokio::time::Instant;

use super::with_session;
use crate::common::{catalog_of, rows};
use crate::support::{Actor, Kind, Request, SharedMemory};

const OPERATIONS: [&str; 5] = ["create", "exists", "open", "list", "drop"];

/// A root with a namespace `ns` and so many tables in it, by the base.
async fn root(tables: i32) -> SharedMemory {
    let memory = SharedMemory::new();
    let base = base_of(&memory.actor()).await;
    super::stock::make(&base, &["ns"]).await;
    for n in 0..tables {
        create(&base, &["ns", &format!("t{n}")], n).await;
    }
    memory
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

/// A commit to the manifest by another process.
async fn elsewhere(memory: &SharedMemory, n: usize) {
    let other = catalog_of(&memory.actor()).await;
    other
        .declare_table(["ns", &format!("other{n}")])
        .await
        .unwrap();
}

/// Each operation right after the one before, or after somebody else's commit to the manifest, with so many tables.
async fn compare(tables: i32, alone: bool) {
    let memory = root(tables).await;
    let theirs_in = memory.fork().await;
    let plain = theirs_in.actor_with_latency(LATENCY);
    let base = base_of(&plain).await;
    let actor = memory.actor_with_latency(LATENCY);
    let catalog = with_session("memory://root", actor.session.clone()).await;
    // The first write opens the manifest once more, to mend old ones.
    measured(&plain, theirs(&base, &plain, "first create")).await;
    measured(&actor, ours(&catalog, "first create")).await;
    for (n, operation) in OPERATIONS.into_iter().enumerate() {
        if !alone {
            elsewhere(&theirs_in, n).await;
            elsewhere(&memory, n).await;
        }
        let (base_log, base_trips) = measured(&plain, theirs(&base, &plain, operation)).await;
        let (log, trips) = measured(&actor, ours(&catalog, operation)).await;
        println!(
            "{tables} tables, alone: {alone}, {operation}: base {} in {base_trips} trips ({}), ours {} in {trips} ({})",
            base_log.len(),
            summary(&base_log),
            log.len(),
            summary(&log)
        );
        let what = format!("{operation}, {tables} tables, alone: {alone}");
        // Both the rows that are seen and the base that commits have to catch up.
        let spare = if operation == "drop" && !alone { 2 } else { 0 };
        assert!(
            log.len() <= base_log.len() + spare,
            "{what}: {log:#?}, the base alone: {base_log:#?}"
        );
        assert!(
            trips as usize <= base_trips as usize + spare,
            "{what}: {trips} trips, {base_trips}"
        );
    }
}

#[tokio::test]
async fn operations_cost_no_more_than_the_base_alone() {
    for tables in [4, 40] {
        compare(tables, true).await;
    }
}

#[tokio::test]
async fn operations_cost_no_more_than_the_base_after_commits_of_others() {
    for tables in [4, 40] {
        compare(tables, false).await;
    }
}
