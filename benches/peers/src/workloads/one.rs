//! One table among many: its state, whether it exists, and opening it.

use std::fs;
use std::sync::Arc;

use lancekeep::lance_namespace::LanceNamespace;
use lancekeep::lance_namespace::models::{DescribeTableRequest, TableExistsRequest};
use object_store::ObjectStoreExt;
use object_store::path::Path;

use crate::contestants::{
    DATASET, DIRECTORY, FLOOR, LANCEDB, MANIFEST, OURS, catalog, dataset, directory, lancedb,
    parts, through,
};
use crate::measure::{Contestant, Group, Place, compare, timed};
use crate::roots::{self, TABLE};
use crate::sizes::Sizes;

pub(crate) const STATUS: &str = "status of one table";
pub(crate) const EXISTS: &str = "whether a table exists";
pub(crate) const OPEN: &str = "open a table";

/// One look at one object: the table's manifest, as far as the store is concerned any object.
fn floor() -> Contestant {
    Contestant::new(FLOOR, |root| async move {
        match root.directory.clone() {
            Some(directory) => {
                let table = directory.join(format!("{TABLE}.lance"));
                timed(async move { assert!(fs::metadata(table).unwrap().is_dir()) })
            }
            None => {
                let store = root.bare();
                let all = roots::paths(&store, &format!("root/{TABLE}.lance/_versions")).await;
                let manifest = Path::from(all[0].as_ref());
                timed(async move { drop(store.head(&manifest).await.unwrap()) })
            }
        }
    })
}

fn status(name: &str, manifest: Option<bool>) -> Contestant {
    Contestant::new(name, move |root| async move {
        match manifest {
            None => {
                let catalog = catalog(&root).await;
                timed(async move { drop(catalog.table_status(TABLE).await.unwrap()) })
            }
            Some(manifest) => {
                let namespace = directory(&root, manifest).await;
                let request = DescribeTableRequest {
                    id: Some(parts(&[TABLE])),
                    ..Default::default()
                };
                timed(async move { drop(namespace.describe_table(request).await.unwrap()) })
            }
        }
    })
}

fn exists(name: &str, manifest: Option<bool>) -> Contestant {
    Contestant::new(name, move |root| async move {
        match manifest {
            None => {
                let catalog = catalog(&root).await;
                timed(async move { assert!(catalog.table_exists(TABLE).await.unwrap()) })
            }
            Some(manifest) => {
                let namespace = directory(&root, manifest).await;
                let request = TableExistsRequest {
                    id: Some(parts(&[TABLE])),
                    ..Default::default()
                };
                timed(async move { namespace.table_exists(request).await.unwrap() })
            }
        }
    })
}

fn opened_by_ours() -> Contestant {
    Contestant::new(OURS, |root| async move {
        let catalog = catalog(&root).await;
        timed(async move { drop(catalog.open_table(TABLE).await.unwrap()) })
    })
}

fn opened_through(name: &str, manifest: bool) -> Contestant {
    Contestant::new(name, move |root| async move {
        let namespace = Arc::new(directory(&root, manifest).await);
        timed(async move { through(namespace, &root, &[TABLE]).await })
    })
}

fn opened_by_lancedb() -> Contestant {
    Contestant::new(LANCEDB, |root| async move {
        let connection = lancedb(&root).await;
        timed(async move { drop(connection.open_table(TABLE).execute().await.unwrap()) })
    })
}

fn opened_plainly() -> Contestant {
    Contestant::new(DATASET, |root| async move {
        timed(async move { drop(dataset(&root, TABLE).await) })
    })
}

pub(crate) async fn all(sizes: &Sizes) -> Vec<Group> {
    let tables = sizes.among;
    let memory = roots::tables_in_memory(tables, false).await;
    let disk = tempfile::tempdir().unwrap();
    roots::tables_on_disk(disk.path(), tables, false).await;
    let mut groups = Vec::new();
    for place in [Place::Slow(memory), Place::Disk(disk.path().to_path_buf())] {
        // It may write, and the directory is everybody's.
        let with_manifest = matches!(place, Place::Slow(_));
        let mut looks = vec![status(OURS, None), status(DIRECTORY, Some(false))];
        let mut asks = vec![exists(OURS, None), exists(DIRECTORY, Some(false))];
        let mut opens = vec![
            opened_by_ours(),
            opened_plainly(),
            opened_through(DIRECTORY, false),
            opened_by_lancedb(),
        ];
        if with_manifest {
            looks.push(status(MANIFEST, Some(true)));
            asks.push(exists(MANIFEST, Some(true)));
            opens.push(opened_through(MANIFEST, true));
        }
        for (workload, mut contestants) in [(STATUS, looks), (EXISTS, asks), (OPEN, opens)] {
            contestants.push(floor());
            let title = (workload, tables, "tables beside it");
            groups.push(compare(title, &place, sizes.repetitions, contestants).await);
        }
    }
    groups
}
