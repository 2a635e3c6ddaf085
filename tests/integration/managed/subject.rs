//! Tables under test for the conformance of manifest stores.

use std::sync::Arc;

use lance_namespace::LanceNamespace;
use lance_namespace_impls::DirectoryNamespaceBuilder;
use lance_table::io::commit::external_manifest::ExternalManifestStore;
use lance_table::io::commit::{ManifestLocation, ManifestNamingScheme};
use lancekeep::arrow::array::RecordBatchIterator;
use lancekeep::lance::dataset::{Dataset, WriteParams};
use lancekeep::uuid::Uuid;
use object_store::ObjectStoreExt;
use object_store::local::LocalFileSystem;
use object_store::path::Path;

use super::{LanceResult, NO_HURRY, Served, append, id, managed};
use crate::common::rows;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behind {
    Root,
    Child,
    /// The stock directory namespace without a manifest.
    Directory,
    Rest,
}

/// A table of two versions, [0, 1] and [0, 1, 2, 3], and the namespace that knows it.
pub(super) struct Subject {
    pub(super) behind: Behind,
    pub(super) namespace: Arc<dyn LanceNamespace>,
    pub(super) id: Vec<String>,
    pub(super) uri: String,
    pub(super) table: Path,
    pub(super) objects: LocalFileSystem,
    _served: Option<Served>,
    _root: tempfile::TempDir,
}

impl Subject {
    pub(super) async fn of(behind: Behind, scheme: ManifestNamingScheme) -> Self {
        let root = tempfile::tempdir().unwrap();
        let params = WriteParams {
            enable_v2_manifest_paths: scheme == ManifestNamingScheme::V2,
            ..Default::default()
        };
        let id = match behind {
            Behind::Child => id(&["n", "t"]),
            _ => id(&["t"]),
        };
        let (namespace, uri): (Arc<dyn LanceNamespace>, String) = match behind {
            Behind::Directory => {
                let directory = root.path().to_str().unwrap();
                let batch = rows(0..2);
                let schema = batch.schema();
                let reader = RecordBatchIterator::new([Ok(batch)], schema);
                let uri = format!("{directory}/t.lance");
                Dataset::write(reader, uri.as_str(), Some(params))
                    .await
                    .unwrap();
                let namespace = DirectoryNamespaceBuilder::new(directory)
                    .manifest_enabled(false)
                    .build()
                    .await
                    .unwrap();
                (Arc::new(namespace), uri)
            }
            Behind::Root | Behind::Child | Behind::Rest => {
                let catalog = managed(root.path(), NO_HURRY).await;
                if behind == Behind::Child {
                    catalog.create_namespace(["n"]).await.unwrap();
                }
                let created = catalog
                    .create_table(id.clone(), rows(0..2))
                    .write_params(params)
                    .await
                    .unwrap();
                (Arc::new(catalog), created.uri().to_string())
            }
        };
        // By plain Lance, so that the suite does not stand on what it tests.
        let mut plain = Dataset::open(&uri).await.unwrap();
        append(&mut plain, 2..4).await.unwrap();
        assert_eq!(plain.version().version, 2);
        let (namespace, served) = match behind {
            Behind::Rest => {
                let served = Served::of(namespace).await;
                (served.client(), Some(served))
            }
            _ => (namespace, None),
        };
        Self {
            behind,
            namespace,
            id,
            uri,
            table: plain.branch_location().path,
            objects: LocalFileSystem::new(),
            _served: served,
            _root: root,
        }
    }

    pub(super) fn base(&self) -> &str {
        self.table.as_ref()
    }

    /// Stages a copy of the manifest `from` beside `to`.
    pub(super) async fn stage(&self, from: &Path, to: &Path) -> (Path, u64) {
        let found = self.objects.get(from).await.unwrap();
        let content = found.bytes().await.unwrap();
        let size = content.len() as u64;
        let staged = Path::parse(format!("{to}-{}", Uuid::new_v4())).unwrap();
        self.objects.put(&staged, content.into()).await.unwrap();
        (staged, size)
    }

    pub(super) async fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let found = self.objects.get(path).await.ok()?;
        Some(found.bytes().await.unwrap().to_vec())
    }

    pub(super) async fn put(
        &self,
        store: &dyn ExternalManifestStore,
        chain: &Path,
        version: u64,
        staged: &(Path, u64),
        scheme: ManifestNamingScheme,
    ) -> LanceResult<ManifestLocation> {
        let (path, size) = staged;
        store
            .put(chain, version, path, *size, None, &self.objects, scheme)
            .await
    }
}
