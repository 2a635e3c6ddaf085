//! Roots, rows and calls that the clients' tests share.

use std::sync::Arc;

use lancekeep::Catalog;
use lancekeep::arrow::array::{ArrayRef, FixedSizeListArray, Int32Array, RecordBatch, StringArray};
use lancekeep::arrow::datatypes::Float32Type;
use lancekeep::arrow::ipc::writer::StreamWriter;
use lancekeep::lance_namespace::LanceNamespace;
use lancekeep::lance_namespace::models::{
    CreateNamespaceRequest, CreateTableRequest, DeregisterTableRequest, RegisterTableRequest,
};
use lancekeep::rest::{RestAdapter, RestAdapterConfig, RestAdapterHandle};

/// A temporary local root and a catalog on it.
pub(crate) async fn local() -> (tempfile::TempDir, Catalog) {
    let dir = tempfile::tempdir().unwrap();
    let catalog = Catalog::connect(dir.path().to_str().unwrap())
        .await
        .unwrap();
    (dir, catalog)
}

/// The same with managed versioning.
pub(crate) async fn managed() -> (tempfile::TempDir, Catalog) {
    let dir = tempfile::tempdir().unwrap();
    let catalog = Catalog::builder(dir.path().to_str().unwrap())
        .managed_versioning(true)
        .build()
        .await
        .unwrap();
    (dir, catalog)
}

/// A catalog on a free loopback port, until it is dropped.
pub(crate) struct Served {
    pub(crate) uri: String,
    handle: RestAdapterHandle,
}

impl Served {
    pub(crate) async fn start(catalog: &Catalog) -> Self {
        let config = RestAdapterConfig {
            port: 0,
            ..Default::default()
        };
        let adapter = RestAdapter::new(Arc::new(catalog.clone()), config);
        let handle = adapter.start().await.unwrap();
        Self {
            uri: format!("http://127.0.0.1:{}", handle.port()),
            handle,
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Waits for the requests under way, which other threads of the runtime answer.
        tokio::task::block_in_place(|| self.handle.shutdown());
    }
}

pub(crate) fn id(parts: &[&str]) -> Option<Vec<String>> {
    Some(parts.iter().map(ToString::to_string).collect())
}

/// `id`, `name` and a `vector` of two numbers: `[id, 0]`.
pub(crate) fn rows(ids: std::ops::Range<i32>) -> RecordBatch {
    let names = ids.clone().map(|i| format!("name {i}"));
    let vectors = ids.clone().map(|i| Some(vec![Some(i as f32), Some(0.0)]));
    let columns: [(&str, ArrayRef); 3] = [
        ("id", Arc::new(Int32Array::from_iter_values(ids))),
        ("name", Arc::new(StringArray::from_iter_values(names))),
        (
            "vector",
            Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(vectors, 2)),
        ),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

pub(crate) fn ipc(batch: &RecordBatch) -> Vec<u8> {
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(batch).unwrap();
    writer.into_inner().unwrap()
}

pub(crate) async fn make_namespace(ns: &dyn LanceNamespace, parts: &[&str]) {
    let mut request = CreateNamespaceRequest::new();
    request.id = id(parts);
    ns.create_namespace(request).await.unwrap();
}

pub(crate) async fn make_table(ns: &dyn LanceNamespace, parts: &[&str], batch: &RecordBatch) {
    let mut request = CreateTableRequest::new();
    request.id = id(parts);
    ns.create_table(request, ipc(batch).into()).await.unwrap();
}

/// Takes a table out of its namespace and leaves its data; the location relative to the root.
pub(crate) async fn deregister(ns: &dyn LanceNamespace, parts: &[&str]) -> String {
    let mut request = DeregisterTableRequest::new();
    request.id = id(parts);
    let location = ns.deregister_table(request).await.unwrap().location;
    let location = location.unwrap();
    location.rsplit('/').next().unwrap().to_string()
}

pub(crate) async fn register(ns: &dyn LanceNamespace, parts: &[&str], location: &str) {
    let mut request = RegisterTableRequest::new(location.to_string());
    request.id = id(parts);
    ns.register_table(request).await.unwrap();
}
