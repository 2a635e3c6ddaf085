//! Who is compared, each made ready on a root in its own way.

use std::sync::Arc;

use lance::dataset::builder::DatasetBuilder;
use lance::io::commit::namespace_manifest::LanceNamespaceExternalManifestStore;
use lance_namespace_impls::{DirectoryNamespace, DirectoryNamespaceBuilder};
use lance_table::io::commit::external_manifest::ExternalManifestCommitHandler;
use lancedb::Connection;
use lancekeep::Catalog;
use lancekeep::arrow::array::RecordBatch;
use lancekeep::arrow::ipc::writer::StreamWriter;
use lancekeep::lance::Dataset;
use lancekeep::lance_namespace::LanceNamespace;

use crate::measure::{self, Root};

pub(crate) const OURS: &str = "lancekeep";
pub(crate) const DIRECTORY: &str = "DirectoryNamespace";
pub(crate) const MANIFEST: &str = "DirectoryNamespace, manifest on";
pub(crate) const LANCEDB: &str = "lancedb";
pub(crate) const DATASET: &str = "Lance Dataset";
/// Lance's own external manifest store, on its own namespace and on ours.
pub(crate) const STORE: &str = "Lance's manifest store, DirectoryNamespace";
pub(crate) const STORE_OVER_OURS: &str = "Lance's manifest store, lancekeep";
pub(crate) const FLOOR: &str = "floor";
/// The same off the runtime, as asynchronous code has to read a directory.
pub(crate) const FLOOR_ASIDE: &str = "floor, on another thread";

pub(crate) async fn catalog(root: &Root) -> Catalog {
    let builder = Catalog::builder(&root.uri).session(root.session.clone());
    let builder = builder.storage_options(root.options.clone());
    builder.build().await.unwrap()
}

pub(crate) async fn managed(root: &Root) -> Catalog {
    let builder = Catalog::builder(&root.uri).session(root.session.clone());
    builder.managed_versioning(true).build().await.unwrap()
}

fn directory_builder(root: &Root) -> DirectoryNamespaceBuilder {
    let builder = DirectoryNamespaceBuilder::new(&root.uri).session(root.session.clone());
    builder.storage_options(root.options.iter().cloned().collect())
}

pub(crate) async fn directory(root: &Root, manifest: bool) -> DirectoryNamespace {
    let builder = directory_builder(root).manifest_enabled(manifest);
    builder.build().await.unwrap()
}

pub(crate) async fn lancedb(root: &Root) -> Connection {
    let builder = lancedb::connect(&root.uri).session(root.session.clone());
    let connected = builder.storage_options(root.options.clone()).execute();
    connected.await.unwrap()
}

/// Plain Lance.
pub(crate) async fn dataset(root: &Root, table: &str) -> Dataset {
    let mut builder = DatasetBuilder::from_uri(root.uri_of(table));
    if let Some(params) = measure::store_params(&root.options) {
        builder = builder.with_store_params(params);
    }
    let opened = builder.with_session(root.session.clone()).load();
    opened.await.unwrap()
}

/// As clients of a namespace open its tables.
pub(crate) async fn through(namespace: Arc<dyn LanceNamespace>, root: &Root, id: &[&str]) {
    let builder = DatasetBuilder::from_namespace(namespace, parts(id)).await;
    let opened = builder.unwrap().with_session(root.session.clone()).load();
    opened.await.unwrap();
}

/// Commits by Lance's own external manifest store.
pub(crate) async fn stored(root: &Root, table: &str, over_ours: bool) -> Dataset {
    let namespace: Arc<dyn LanceNamespace> = match over_ours {
        true => Arc::new(managed(root).await),
        false => {
            let builder = directory_builder(root).manifest_enabled(false);
            let tracking = builder.table_version_tracking_enabled(true).build();
            Arc::new(tracking.await.unwrap())
        }
    };
    let uri = root.uri_of(table);
    let path = dataset(root, table).await.branch_location().path;
    let store = LanceNamespaceExternalManifestStore::new(namespace, parts(&[table]), path);
    let handler = ExternalManifestCommitHandler {
        external_manifest_store: Arc::new(store),
    };
    let builder = DatasetBuilder::from_uri(uri).with_commit_handler(Arc::new(handler));
    let opened = builder.with_session(root.session.clone()).load();
    opened.await.unwrap()
}

/// An id as the models want it.
pub(crate) fn parts(id: &[&str]) -> Vec<String> {
    id.iter().map(ToString::to_string).collect()
}

/// Rows as they travel in a request.
pub(crate) fn ipc(batch: &RecordBatch) -> Vec<u8> {
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(batch).unwrap();
    writer.into_inner().unwrap()
}
