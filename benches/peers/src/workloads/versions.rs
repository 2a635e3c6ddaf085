//! The latest version, and one by its number, of a table of many.

use lancekeep::lance_namespace::LanceNamespace;
use lancekeep::lance_namespace::models::{DescribeTableVersionRequest, ListTableVersionsRequest};
use object_store::ObjectStoreExt;

use crate::contestants::{DATASET, DIRECTORY, FLOOR, OURS, catalog, dataset, directory, parts};
use crate::measure::{Contestant, Group, Place, compare, timed};
use crate::roots::{self, TABLE};
use crate::sizes::Sizes;

pub(crate) const LATEST: &str = "latest version";
pub(crate) const DESCRIBE: &str = "describe one version";

/// Described: an old one, for which nobody has a hint.
const VERSION: u64 = 2;

fn latest() -> Vec<Contestant> {
    vec![
        Contestant::new(OURS, |root| async move {
            let catalog = catalog(&root).await;
            timed(async move { drop(catalog.latest_version(TABLE).await.unwrap()) })
        }),
        Contestant::new(DIRECTORY, |root| async move {
            let namespace = directory(&root, false).await;
            let request = ListTableVersionsRequest {
                id: Some(parts(&[TABLE])),
                descending: Some(true),
                limit: Some(1),
                ..Default::default()
            };
            timed(async move { drop(namespace.list_table_versions(request).await.unwrap()) })
        }),
        Contestant::new(DATASET, |root| async move {
            let dataset = dataset(&root, TABLE).await;
            timed(async move { assert!(dataset.latest_version_id().await.unwrap() > 0) })
        }),
    ]
}

fn described() -> Vec<Contestant> {
    vec![
        Contestant::new(OURS, |root| async move {
            let catalog = catalog(&root).await;
            timed(async move { drop(catalog.describe_version(TABLE, VERSION).await.unwrap()) })
        }),
        Contestant::new(DIRECTORY, |root| async move {
            let namespace = directory(&root, false).await;
            let request = DescribeTableVersionRequest {
                id: Some(parts(&[TABLE])),
                version: Some(VERSION.cast_signed()),
                ..Default::default()
            };
            timed(async move { drop(namespace.describe_table_version(request).await.unwrap()) })
        }),
        // Reads the manifest too.
        Contestant::new(DATASET, |root| async move {
            let dataset = dataset(&root, TABLE).await;
            timed(async move { drop(dataset.checkout_version(VERSION).await.unwrap()) })
        }),
        Contestant::new(FLOOR, |root| async move {
            let store = root.bare();
            let below = format!("root/{TABLE}.lance/_versions");
            let manifest = roots::paths(&store, &below).await.pop().unwrap();
            timed(async move { drop(store.head(&manifest).await.unwrap()) })
        }),
    ]
}

pub(crate) async fn all(sizes: &Sizes) -> Vec<Group> {
    let mut groups = Vec::new();
    for versions in sizes.versions.iter().copied() {
        let place = Place::Slow(roots::versions_in_memory(versions).await);
        for (workload, contestants) in [(LATEST, latest()), (DESCRIBE, described())] {
            let title = (workload, versions, "versions");
            groups.push(compare(title, &place, sizes.repetitions, contestants).await);
        }
    }
    groups
}
