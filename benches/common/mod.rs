//! Roots, rows and catalogs that the benches share. Each uses a part of it.

#![allow(dead_code)]

use std::path::Path as FilePath;
use std::sync::Arc;

use lancekeep::Catalog;
use lancekeep::arrow::array::{Int32Array, RecordBatch};
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};
use tokio::runtime::{Builder, Runtime};

use crate::support::{SharedMemory, session};

/// The table that is looked at.
pub(crate) const TABLE: &str = "table";

pub(crate) fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

/// A batch with one column `id`.
pub(crate) fn rows(count: i32) -> RecordBatch {
    let ids = Arc::new(Int32Array::from_iter_values(0..count)) as _;
    RecordBatch::try_from_iter([("id", ids)]).unwrap()
}

/// A catalog on the memory store itself, without decorators, with a session of its own.
pub(crate) async fn catalog(memory: &SharedMemory, managed: bool) -> Catalog {
    let builder = Catalog::builder("memory://root").session(session(memory.raw(), true));
    builder.managed_versioning(managed).build().await.unwrap()
}

async fn plant(memory: &SharedMemory, path: String) {
    let put = memory.raw();
    put.put(&Path::from(path), PutPayload::from_static(b"x"))
        .await
        .unwrap();
}

/// A real table, and others beside it that are tables as far as a listing can tell.
pub(crate) async fn among(others: usize) -> SharedMemory {
    let memory = SharedMemory::new();
    let created = catalog(&memory, false).await;
    created.create_table(TABLE, rows(3)).await.unwrap();
    for n in 0..others {
        let manifest = format!("root/other-{n:06}.lance/_versions/x.manifest");
        plant(&memory, manifest).await;
    }
    memory
}

/// A real table of so many data files.
pub(crate) async fn of_files(files: usize) -> SharedMemory {
    let memory = among(0).await;
    for n in 1..files {
        plant(&memory, format!("root/{TABLE}.lance/data/x{n:06}.lance")).await;
    }
    memory
}

/// A directory of tables as far as a listing can tell.
pub(crate) fn on_disk(root: &FilePath, tables: usize) {
    for n in 0..tables {
        let versions = root.join(format!("other-{n:06}.lance/_versions"));
        std::fs::create_dir_all(&versions).unwrap();
        std::fs::write(versions.join("x.manifest"), b"x").unwrap();
    }
}
