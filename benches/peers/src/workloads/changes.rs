//! Create, drop, undrop and purge. What the peers call a drop deletes the table at once, so it stands beside our drop and
//! beside our purge.

use std::fs;

use futures::{StreamExt, TryStreamExt, stream};
use lancekeep::lance_namespace::LanceNamespace;
use lancekeep::lance_namespace::models::{CreateTableRequest, DropTableRequest};
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};

use crate::contestants::{
    DATASET, DIRECTORY, FLOOR, LANCEDB, MANIFEST, OURS, catalog, directory, ipc, lancedb, parts,
};
use crate::measure::{Contestant, Group, Place, compare, timed};
use crate::roots::{self, TABLE, rows};
use crate::sizes::Sizes;

pub(crate) const CREATE: &str = "create a small table";
pub(crate) const DROP: &str = "drop, beside the peers' deletion";
pub(crate) const UNDROP: &str = "undrop";
pub(crate) const PURGE: &str = "purge, beside the peers' deletion";
/// Beside the bare deletion.
pub(crate) const ONE_PUT: &str = "one raw put";
/// A deletion request for each object, one after another.
pub(crate) const ONE_BY_ONE: &str = "one by one";

const NEW: &str = "new";

fn created_by_ours() -> Contestant {
    Contestant::new(OURS, |root| async move {
        let catalog = catalog(&root).await;
        timed(async move { drop(catalog.create_table(NEW, rows(3)).await.unwrap()) })
    })
}

fn created_through(name: &str, manifest: bool) -> Contestant {
    Contestant::new(name, move |root| async move {
        let namespace = directory(&root, manifest).await;
        let request = CreateTableRequest {
            id: Some(parts(&[NEW])),
            ..Default::default()
        };
        let data = ipc(&rows(3));
        timed(async move { drop(namespace.create_table(request, data.into()).await.unwrap()) })
    })
}

fn created_by_lancedb() -> Contestant {
    Contestant::new(LANCEDB, |root| async move {
        let connection = lancedb(&root).await;
        timed(async move {
            let created = connection.create_table(NEW, rows(3)).execute();
            drop(created.await.unwrap());
        })
    })
}

fn created_plainly() -> Contestant {
    Contestant::new(DATASET, |root| async move {
        timed(async move { drop(roots::write(&root.uri_of(NEW), root.write_params()).await) })
    })
}

/// One small object, or file.
fn one_put() -> Contestant {
    Contestant::new(FLOOR, |root| async move {
        match root.directory.clone() {
            Some(directory) => timed(async move { fs::write(directory.join(NEW), b"x").unwrap() }),
            None => {
                let store = root.bare();
                timed(async move {
                    let path = Path::from("root/new");
                    let put = store.put(&path, PutPayload::from_static(b"x"));
                    drop(put.await.unwrap());
                })
            }
        }
    })
}

fn dropped_by_ours() -> Contestant {
    Contestant::new(OURS, |root| async move {
        let catalog = catalog(&root).await;
        timed(async move { drop(catalog.drop_table(TABLE).await.unwrap()) })
    })
}

fn undropped() -> Contestant {
    Contestant::new(OURS, |root| async move {
        let catalog = catalog(&root).await;
        catalog.drop_table(TABLE).await.unwrap();
        timed(async move { drop(catalog.undrop_table(TABLE).await.unwrap()) })
    })
}

fn purged() -> Contestant {
    Contestant::new(OURS, |root| async move {
        let catalog = catalog(&root).await;
        catalog.drop_table(TABLE).await.unwrap();
        timed(async move { drop(catalog.purge_table(TABLE).await.unwrap()) })
    })
}

/// That with a manifest does not know tables that it did not create.
fn deleted_through() -> Contestant {
    Contestant::new(DIRECTORY, move |root| async move {
        let namespace = directory(&root, false).await;
        let request = DropTableRequest {
            id: Some(parts(&[TABLE])),
            ..Default::default()
        };
        timed(async move { drop(namespace.drop_table(request).await.unwrap()) })
    })
}

fn deleted_by_lancedb() -> Contestant {
    Contestant::new(LANCEDB, |root| async move {
        let connection = lancedb(&root).await;
        timed(async move { connection.drop_table(TABLE, &[]).await.unwrap() })
    })
}

/// The bare listing and bulk deletion, or removal of the directory.
fn deleted_barely() -> Contestant {
    Contestant::new(FLOOR, |root| async move {
        match root.directory.clone() {
            Some(directory) => {
                let table = directory.join(format!("{TABLE}.lance"));
                timed(async move { fs::remove_dir_all(table).unwrap() })
            }
            None => {
                let store = root.bare();
                timed(async move {
                    let all = roots::paths(&store, &format!("root/{TABLE}.lance")).await;
                    let all = stream::iter(all.into_iter().map(Ok)).boxed();
                    let deleted: Vec<Path> = store.delete_stream(all).try_collect().await.unwrap();
                    drop(deleted);
                })
            }
        }
    })
}

fn deleted_one_by_one() -> Contestant {
    Contestant::new(ONE_BY_ONE, |root| async move {
        let store = root.bare();
        timed(async move {
            for path in roots::paths(&store, &format!("root/{TABLE}.lance")).await {
                store.delete(&path).await.unwrap();
            }
        })
    })
}

async fn places(files: usize, disk: &tempfile::TempDir) -> [Place; 2] {
    roots::table_on_disk(disk.path(), files).await;
    let memory = roots::table_in_memory(files).await;
    [
        Place::Slow(memory),
        Place::Copies(disk.path().to_path_buf()),
    ]
}

pub(crate) async fn all(sizes: &Sizes) -> Vec<Group> {
    let mut groups = Vec::new();
    let disk = tempfile::tempdir().unwrap();
    for place in places(1, &disk).await {
        let contestants = vec![
            created_by_ours(),
            created_plainly(),
            created_through(DIRECTORY, false),
            created_through(MANIFEST, true),
            created_by_lancedb(),
            one_put(),
        ];
        let title = (CREATE, 1, "table beside it");
        groups.push(compare(title, &place, sizes.repetitions, contestants).await);
    }
    for files in sizes.files.iter().copied() {
        let disk = tempfile::tempdir().unwrap();
        for place in places(files, &disk).await {
            let slow = matches!(place, Place::Slow(_));
            let title = |workload| (workload, files, "data files");
            let peers = || vec![deleted_through(), deleted_by_lancedb(), deleted_barely()];
            let mut drops = vec![dropped_by_ours()];
            drops.extend(peers());
            drops.push(one_put().renamed(ONE_PUT));
            groups.push(compare(title(DROP), &place, sizes.repetitions, drops).await);
            let undrops = vec![undropped(), one_put()];
            groups.push(compare(title(UNDROP), &place, sizes.repetitions, undrops).await);
            let mut purges = vec![purged()];
            purges.extend(peers());
            if slow {
                purges.push(deleted_one_by_one());
            }
            let mut group = compare(title(PURGE), &place, sizes.repetitions, purges).await;
            group.each_second(files, "data files");
            groups.push(group);
        }
    }
    groups
}
