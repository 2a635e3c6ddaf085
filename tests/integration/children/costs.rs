//! What operations on tables in namespaces cost in requests, beside the base namespace alone on a root like it.

use std::collections::BTreeMap;

use lance_namespace::LanceNamespace;
use lance_namespace::models::{
    DescribeTableRequest, DropTableRequest, ListTablesRequest, TableExistsRequest,
};
use lance_namespace_impls::{DirectoryNamespace, DirectoryNamespaceBuilder};
use lancekeep::Catalog;
use lancekeep::lance::dataset::builder::DatasetBuilder;

use super::stock::{create, id};
use super::with_session;
use crate::common::rows;
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

/// The requests that an operation may cost beyond the base's own, and what for.
fn allowed(operation: &str) -> usize {
    match operation {
        // One look is enough: what the base finds is where Lance opens, and what it lists is what there is.
        "open" | "list" => 0,
        // Whether there is a version at the location that is registered: 2 together.
        "exists" => 2,
        // The base's registration looks at the namespace and the id once more, and so do we at the namespace after it:
        // a drop of the namespace may have come between. Less 1 that the base's create has of its own.
        "create" => 6,
        // The look before, so that what is not there writes nothing; whether another table is stored there; and
        // whether anything was written meanwhile.
        "drop" => 7,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn operations_cost_little_more_than_the_base_alone() {
    for tables in [4, 40] {
        let memory = root(tables).await;
        let plain = memory.fork().await.actor();
        let base = base_of(&plain).await;
        let actor = memory.actor();
        let catalog = with_session("memory://root", actor.session.clone()).await;
        // The first write opens the manifest once more, to mend old ones.
        theirs(&base, &plain, "first create").await;
        ours(&catalog, "first create").await;
        for operation in OPERATIONS {
            plain.counter.reset();
            theirs(&base, &plain, operation).await;
            let alone = plain.counter.log();
            actor.counter.reset();
            ours(&catalog, operation).await;
            let log = actor.counter.log();
            println!(
                "{tables} tables, {operation}: base alone {} ({}), ours {} ({})",
                alone.len(),
                summary(&alone),
                log.len(),
                summary(&log)
            );
            assert!(
                log.len() <= alone.len() + allowed(operation),
                "{operation}, {tables} tables: {log:#?}, the base alone: {alone:#?}"
            );
        }
    }
}
