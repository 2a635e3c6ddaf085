//! The version operations: order and limit, what a clean-up spares, and what they cost.

use std::sync::Arc;
use std::time::Duration;

use lance_namespace::LanceNamespace;
use lance_namespace::models::{
    BatchDeleteTableVersionsRequest, DescribeTableVersionRequest, ListTableVersionsRequest,
    VersionRange,
};
use lance_table::io::commit::ManifestNamingScheme;
use lance_table::io::commit::external_manifest::ExternalManifestStore;
use lancekeep::lance::dataset::builder::DatasetBuilder;
use lancekeep::lance::dataset::{Dataset, WriteParams};
use lancekeep::{Catalog, ErrorKind, NamespaceExternalManifestStore, TableVersion};
use object_store::ObjectStoreExt;

use super::{NO_HURRY, append, id, managed, managed_in};
use crate::common::{ids, rows, table_ids};
use crate::support::{Counter, Kind, SharedMemory};

/// A table with a row for each of its versions, the row's id one below the version's number.
async fn table_of(catalog: &Catalog, versions: i32, v2: bool) -> Dataset {
    let params = WriteParams {
        enable_v2_manifest_paths: v2,
        ..Default::default()
    };
    let mut table = catalog
        .create_table("t", rows([0]))
        .write_params(params)
        .await
        .unwrap();
    for id in 1..versions {
        append(&mut table, [id]).await.unwrap();
    }
    table
}

fn numbers(versions: &[TableVersion]) -> Vec<u64> {
    versions.iter().map(|v| v.version).collect()
}

async fn numbers_by_trait(
    namespace: &dyn LanceNamespace,
    descending: Option<bool>,
    limit: Option<i32>,
) -> Vec<i64> {
    let mut request = ListTableVersionsRequest::new();
    request.id = Some(id(&["t"]));
    request.descending = descending;
    request.limit = limit;
    let listed = namespace.list_table_versions(request).await.unwrap();
    listed.versions.iter().map(|v| v.version).collect()
}

/// Case 13: limit 1 is the first or the last of twelve, by the order asked for, whatever the naming and the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lance_5968_8679_5539_one_of_twelve_versions() {
    for v2 in [false, true] {
        for ordered in [false, true] {
            println!("V2: {v2}, ordered: {ordered}");
            let shared = SharedMemory::new();
            let actor = match ordered {
                true => shared.actor(),
                false => shared.actor_unordered(),
            };
            let catalog = managed_in(&actor, NO_HURRY).await;
            let table = table_of(&catalog, 12, v2).await;
            assert_eq!(table.version().version, 12);

            let first = catalog.list_versions("t").limit(1).await.unwrap();
            assert_eq!(numbers(&first), [1]);
            let last = catalog.list_versions("t").descending().limit(1).await;
            assert_eq!(numbers(&last.unwrap()), [12]);
            let all = catalog.list_versions("t").await.unwrap();
            assert!(numbers(&all).into_iter().eq(1..=12));
            let some = catalog.list_versions("t").descending().limit(3).await;
            assert_eq!(numbers(&some.unwrap()), [12, 11, 10]);
            assert_eq!(catalog.latest_version("t").await.unwrap().version, 12);

            for (descending, limit, wanted) in [
                (None, Some(1), vec![1]),
                (Some(false), Some(1), vec![1]),
                (Some(true), Some(1), vec![12]),
                (Some(true), Some(2), vec![12, 11]),
                (None, Some(0), vec![]),
                (None, None, (1..=12).collect()),
                // As the base: no limit.
                (Some(true), Some(-1), (1..=12).rev().collect()),
            ] {
                let found = numbers_by_trait(&catalog, descending, limit).await;
                assert_eq!(found, wanted, "{descending:?} {limit:?}");
            }

            let path = table.branch_location().path;
            let namespace = Arc::new(catalog.clone());
            let store = NamespaceExternalManifestStore::new(namespace, id(&["t"]), path.clone());
            let latest = store.get_latest_version(path.as_ref()).await.unwrap();
            let scheme = match v2 {
                true => ManifestNamingScheme::V2,
                false => ManifestNamingScheme::V1,
            };
            let manifest = |version| scheme.manifest_path(&path, version).to_string();
            assert_eq!(latest, Some((12, manifest(12))));
            for version in 1..=12 {
                let described = catalog.describe_version("t", version).await.unwrap();
                assert_eq!(described.path, manifest(version));
                assert!(described.size.is_some());
            }
            for missing in [0, 13] {
                let error = catalog.describe_version("t", missing).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::VersionNotFound);
            }
        }
    }
}

async fn delete_by_trait(namespace: &dyn LanceNamespace, start: i64, end: i64) -> Option<i64> {
    let mut request = BatchDeleteTableVersionsRequest::new(vec![VersionRange::new(start, end)]);
    request.id = Some(id(&["t"]));
    let deleted = namespace.batch_delete_table_versions(request).await;
    deleted.unwrap().deleted_count
}

/// Case 21: a clean-up spares the latest version, tagged ones, those where a branch begins, and young ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lance_8616_a_clean_up_spares_what_is_in_use() {
    let root = tempfile::tempdir().unwrap();
    let catalog = managed(root.path(), NO_HURRY).await;
    let mut table = table_of(&catalog, 10, true).await;
    table.tags().create("keep", 3_u64).await.unwrap();
    let mut branch = table.create_branch("b", 5_u64, None).await.unwrap();
    append(&mut branch, [100]).await.unwrap();
    let on_branch = catalog.list_versions("t").branch("b").await.unwrap();
    assert_eq!(numbers(&on_branch), [5, 6]);

    // All of them are younger than this catalog's window.
    let deleted = catalog.delete_versions("t", 1..11).await.unwrap();
    assert!(deleted.is_empty(), "{deleted:?}");
    assert_eq!(delete_by_trait(&catalog, 1, 11).await, Some(0));

    let window = Duration::from_millis(600);
    let sweeper = managed(root.path(), window).await;
    tokio::time::sleep(window * 2).await;
    assert_eq!(delete_by_trait(&sweeper, 1, 3).await, Some(2));
    let deleted = sweeper.delete_versions("t", 1..11).await.unwrap();
    assert_eq!(deleted, [4, 6, 7, 8, 9]);
    assert_eq!(delete_by_trait(&sweeper, 1, -1).await, Some(0));
    let left = catalog.list_versions("t").await.unwrap();
    assert_eq!(numbers(&left), [3, 5, 10]);
    let on_branch = catalog.list_versions("t").branch("b").await.unwrap();
    assert_eq!(numbers(&on_branch), [5, 6]);

    // Everything that can still be named can still be read, by a process that knows nothing.
    let fresh = managed(root.path(), NO_HURRY).await;
    assert!(table_ids(&fresh, "t").await.into_iter().eq(0..10));
    let tagged = fresh.open_table("t").tag("keep").await.unwrap();
    assert_eq!(ids(&tagged).await, [0, 1, 2]);
    let branch = fresh.open_table("t").await.unwrap();
    let branch = branch.checkout_branch("b").await.unwrap();
    assert_eq!(ids(&branch).await, [0, 1, 2, 3, 4, 100]);
    append(&mut table, [10]).await.unwrap();
    assert!(table_ids(&fresh, "t").await.into_iter().eq(0..11));

    // Nothing of a dropped table; and the delete of a table's record takes all.
    sweeper.drop_table("t").await.unwrap();
    let error = sweeper.delete_versions("t", 1..11).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TableDropped);
    sweeper.undrop_table("t").await.unwrap();
    assert_eq!(delete_by_trait(&sweeper, 0, -1).await, Some(4));
    assert!(catalog.list_versions("t").await.unwrap().is_empty());
}

/// The requests of an operation, by kind.
fn spent(counter: &Counter) -> (usize, usize) {
    let lists = counter.of(Kind::List) + counter.of(Kind::ListDelimited);
    (counter.total(), lists)
}

/// Describing one version asks for that version only, however many there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn describing_a_version_costs_the_same_at_10_and_at_300() {
    let mut costs = Vec::new();
    for versions in [10, 300] {
        let shared = SharedMemory::new();
        let catalog = managed_in(&shared.actor(), NO_HURRY).await;
        let table = table_of(&catalog, 2, true).await;
        // Manifests are only looked for here, so copies do.
        let path = table.branch_location().path;
        let at = |version| ManifestNamingScheme::V2.manifest_path(&path, version);
        let base = shared.base();
        let content = base.get(&at(2)).await.unwrap().bytes().await.unwrap();
        for version in 3..=versions {
            let copy = content.clone().into();
            base.put(&at(version), copy).await.unwrap();
        }
        let actor = shared.actor();
        let catalog = managed_in(&actor, NO_HURRY).await;
        actor.counter.reset();
        let described = catalog.describe_version("t", 7).await.unwrap();
        assert_eq!(described.version, 7);
        let describe = spent(&actor.counter);
        actor.counter.reset();
        let mut request = DescribeTableVersionRequest::new();
        request.id = Some(id(&["t"]));
        request.version = Some(7);
        let by_trait = catalog.describe_table_version(request).await.unwrap();
        assert_eq!(by_trait.version.manifest_path, described.path);
        assert_eq!(spent(&actor.counter), describe);
        actor.counter.reset();
        let latest = catalog.latest_version("t").await.unwrap();
        assert_eq!(latest.version, versions);
        costs.push((describe, spent(&actor.counter)));
    }
    // 2 GET and 1 HEAD; 2 GET and 1 LIST.
    assert_eq!(costs, [((3, 0), (3, 1)), ((3, 0), (3, 1))]);
}

/// Requests of an open and of an append, by the catalog's own datasets and by a stock client through the catalog.
async fn cost_of_open_and_append(shared: &SharedMemory, stock: bool, id_of_row: i32) -> [usize; 2] {
    let actor = shared.actor();
    let catalog = managed_in(&actor, NO_HURRY).await;
    actor.counter.reset();
    let mut table = if stock {
        let namespace = Arc::new(catalog.clone());
        let builder = DatasetBuilder::from_namespace(namespace, id(&["t"]))
            .await
            .unwrap();
        builder
            .with_session(actor.session.clone())
            .load()
            .await
            .unwrap()
    } else {
        catalog.open_table("t").await.unwrap()
    };
    let open = actor.counter.total();
    actor.counter.reset();
    append(&mut table, [id_of_row]).await.unwrap();
    [open, actor.counter.total()]
}

/// One table of costs; a longer history makes manifests longer, so that reading one may take a request more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opens_and_commits_cost_about_the_same_at_10_and_at_300() {
    let shared = SharedMemory::new();
    let catalog = managed_in(&shared.actor(), NO_HURRY).await;
    let mut table = table_of(&catalog, 10, true).await;
    println!("versions  client  open  append");
    let mut costs = Vec::new();
    for versions in [10, 300] {
        table.checkout_latest().await.unwrap();
        while table.version().version < versions {
            append(&mut table, [0]).await.unwrap();
        }
        for (client, stock) in [("ours", false), ("stock", true)] {
            let cost = cost_of_open_and_append(&shared, stock, 1).await;
            println!("{versions:8}  {client:6}  {:4}  {:6}", cost[0], cost[1]);
            costs.push(cost);
        }
    }
    for what in 0..2 {
        let (few, many) = (costs[0][what], costs[2][what]);
        assert!(many <= few + 2, "{costs:?}");
        let stock = costs[1][what];
        assert!(few <= stock, "dearer than a stock client: {costs:?}");
    }
}
