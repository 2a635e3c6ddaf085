//! Roots made cheaply: many tables as copies of one real manifest, large tables as planted files.

use std::fs;
use std::path::Path as FilePath;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use lance_io::object_store::{ObjectStore as LanceStore, ObjectStoreRegistry};
use lancekeep::Catalog;
use lancekeep::arrow::array::{Int32Array, RecordBatch, RecordBatchIterator};
use lancekeep::lance::dataset::{Dataset, WriteMode, WriteParams};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};

use crate::measure;
use crate::support::SharedMemory;
use crate::support::servers::Server;

/// Files of one directory that share their bytes on disk: file systems bound them.
const LINKS: usize = 10_000;

/// Requests made together where a root is made.
const TOGETHER: usize = 16;

/// The table that is looked at, among others or alone.
pub(crate) const TABLE: &str = "table-000000";

pub(crate) fn name(n: usize) -> String {
    format!("table-{n:06}")
}

/// A batch with one column `id`.
pub(crate) fn rows(count: i32) -> RecordBatch {
    let ids = Arc::new(Int32Array::from_iter_values(0..count)) as _;
    RecordBatch::try_from_iter([("id", ids)]).unwrap()
}

/// Writes with plain Lance.
pub(crate) async fn write(uri: &str, params: WriteParams) -> Dataset {
    let batch = rows(3);
    let schema = batch.schema();
    let reader = RecordBatchIterator::new([Ok(batch)], schema);
    Dataset::write(reader, uri, Some(params)).await.unwrap()
}

/// A copy that shares nothing with the original: what is written into one does not show in the other.
pub(crate) fn copy_tree(from: &FilePath, to: &FilePath) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The objects of a small real table, relative to its directory.
async fn template() -> Vec<(String, PutPayload)> {
    let memory = SharedMemory::new();
    let actor = memory.actor();
    let params = WriteParams {
        session: Some(actor.session.clone()),
        ..Default::default()
    };
    write("memory://root/t.lance", params).await;
    let raw = memory.raw();
    let mut objects = Vec::new();
    for path in memory.dump().await {
        let bytes = raw.get(&Path::from(path.as_str())).await.unwrap();
        let bytes = bytes.bytes().await.unwrap();
        let below = path.strip_prefix("root/t.lance/").unwrap().to_string();
        objects.push((below, PutPayload::from(bytes)));
    }
    objects
}

/// Only what tells that there is a version.
async fn manifest() -> (String, PutPayload) {
    let all = template().await;
    let found = all.into_iter().find(|(p, _)| p.ends_with(".manifest"));
    found.unwrap()
}

/// A memory store with so many root tables, and every tenth of them dropped if asked for.
pub(crate) async fn tables_in_memory(tables: usize, dropped: bool) -> SharedMemory {
    let memory = SharedMemory::new();
    let (path, manifest) = manifest().await;
    for n in 0..tables {
        put(
            &memory,
            &format!("root/{}.lance/{path}", name(n)),
            &manifest,
        )
        .await;
    }
    if dropped {
        let session = memory.actor().session;
        let catalog = Catalog::builder("memory://root").session(session).build();
        drop_a_tenth(&catalog.await.unwrap(), tables).await;
    }
    memory
}

/// The same in a directory, which need not be there.
pub(crate) async fn tables_on_disk(root: &FilePath, tables: usize, dropped: bool) {
    let (path, payload) = manifest().await;
    let bytes = Vec::from_iter(payload.into_iter().flatten());
    let mut source = None;
    for n in 0..tables {
        let file = root.join(format!("{}.lance", name(n))).join(&path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        match &source {
            Some(source) if n % LINKS != 0 => fs::hard_link(source, &file).unwrap(),
            _ => {
                fs::write(&file, &bytes).unwrap();
                source = Some(file);
            }
        }
    }
    if dropped {
        let catalog = Catalog::connect(root.to_str().unwrap()).await.unwrap();
        drop_a_tenth(&catalog, tables).await;
    }
}

/// The same in a bucket of the S3 server.
pub(crate) async fn tables_on_server(server: &Server, tables: usize, dropped: bool) -> String {
    let uri = format!("{}/root", server.bucket());
    let catalog = Catalog::builder(&uri).storage_options(server.options());
    let catalog = catalog.build().await.unwrap();
    let (path, manifest) = manifest().await;
    let registry = Arc::new(ObjectStoreRegistry::default());
    let params = measure::store_params(&server.options()).unwrap();
    let opened = LanceStore::from_uri_and_params(registry, &uri, &params).await;
    let (store, base) = opened.unwrap();
    stream::iter(0..tables)
        .for_each_concurrent(TOGETHER, async |n| {
            let target = Path::from(format!("{base}/{}.lance/{path}", name(n)));
            store.inner.put(&target, manifest.clone()).await.unwrap();
        })
        .await;
    if dropped {
        drop_a_tenth(&catalog, tables).await;
    }
    uri
}

async fn drop_a_tenth(catalog: &Catalog, tables: usize) {
    // Not the first one: others open it.
    stream::iter((5..tables).step_by(10))
        .for_each_concurrent(TOGETHER, async |n| {
            catalog.drop_table(name(n)).await.unwrap();
        })
        .await;
}

async fn put(memory: &SharedMemory, path: &str, payload: &PutPayload) {
    let put = memory.raw();
    put.put(&Path::from(path), payload.clone()).await.unwrap();
}

/// A memory store with one real table, and as many further data files as make up this number.
pub(crate) async fn table_in_memory(files: usize) -> SharedMemory {
    let memory = SharedMemory::new();
    for (path, payload) in template().await {
        put(&memory, &format!("root/{TABLE}.lance/{path}"), &payload).await;
    }
    for n in 1..files {
        let path = format!("root/{TABLE}.lance/data/more-{n:06}.lance");
        put(&memory, &path, &PutPayload::from_static(b"0123456789")).await;
    }
    memory
}

/// The same in a directory.
pub(crate) async fn table_on_disk(root: &FilePath, files: usize) {
    from_memory(&table_in_memory(files).await, root).await;
}

/// Writes what is below `root/` of a memory store to a directory.
pub(crate) async fn from_memory(memory: &SharedMemory, root: &FilePath) {
    let raw = memory.raw();
    for path in memory.dump().await {
        let found = raw.get(&Path::from(path.as_str())).await.unwrap();
        let target = root.join(path.strip_prefix("root/").unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::write(target, found.bytes().await.unwrap()).unwrap();
    }
}

/// A memory store with the table in so many versions.
pub(crate) async fn versions_in_memory(versions: usize) -> SharedMemory {
    let memory = SharedMemory::new();
    let session = memory.actor().session;
    let uri = format!("memory://root/{TABLE}.lance");
    for n in 0..versions {
        let mode = match n {
            0 => WriteMode::Create,
            _ => WriteMode::Overwrite,
        };
        let params = WriteParams {
            mode,
            session: Some(session.clone()),
            ..Default::default()
        };
        write(&uri, params).await;
    }
    memory
}

/// All paths below one.
pub(crate) async fn paths(store: &Arc<dyn ObjectStore>, below: &str) -> Vec<Path> {
    let listed = store.list(Some(&Path::from(below)));
    listed.map_ok(|m| m.location).try_collect().await.unwrap()
}
