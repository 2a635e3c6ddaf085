//! Tables under test for the conformance of manifest stores.

use std::sync::Arc;

use lance_namespace::LanceNamespace;
use lance_namespace_impls::DirectoryNamespaceBuilder;
use lance_table::io::commit::external_manifest::ExternalManifestStore;
use lance_table::io::commit::{ManifestLocation, ManifestNamingScheme};
use lancekeep::lance::dataset::WriteParams;
use lancekeep::uuid::Uuid;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use super::{LanceResult, NO_HURRY, Served, append, id};
use crate::common::{rows, write_plainly};
use crate::stores::Place;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behind {
    Root,
    Child,
    /// The stock directory namespace without a manifest.
    Directory,
    Rest,
}

/// A table of two versions, [0, 1] and [0, 1, 2, 3], and the namespace that knows it.
pub(super) struct Subject<'a> {
    pub(super) behind: Behind,
    pub(super) namespace: Arc<dyn LanceNamespace>,
    pub(super) id: Vec<String>,
    pub(super) uri: String,
    pub(super) table: Path,
    pub(super) place: &'a Place,
    pub(super) objects: Arc<dyn ObjectStore>,
    _served: Option<Served>,
}

impl<'a> Subject<'a> {
    pub(super) async fn of(behind: Behind, scheme: ManifestNamingScheme, place: &'a Place) -> Self {
        let enable_v2_manifest_paths = scheme == ManifestNamingScheme::V2;
        let id = match behind {
            Behind::Child => id(&["n", "t"]),
            _ => id(&["t"]),
        };
        let (namespace, uri): (Arc<dyn LanceNamespace>, String) = match behind {
            Behind::Directory => {
                let uri = place.uri_of("t.lance");
                let params = WriteParams {
                    enable_v2_manifest_paths,
                    ..place.write_params()
                };
                write_plainly(&uri, 0..2, params).await;
                let namespace = DirectoryNamespaceBuilder::new(&place.uri)
                    .storage_options(place.options.clone())
                    .session(place.session())
                    .manifest_enabled(false)
                    .build()
                    .await
                    .unwrap();
                (Arc::new(namespace), uri)
            }
            Behind::Root | Behind::Child | Behind::Rest => {
                let catalog = place
                    .builder()
                    .managed_versioning(true)
                    .commit_window(NO_HURRY)
                    .build()
                    .await
                    .unwrap();
                let params = WriteParams {
                    enable_v2_manifest_paths,
                    ..Default::default()
                };
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
        let mut plain = place.plain(&uri).await;
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
            place,
            objects: place.objects().await.0,
            _served: served,
        }
    }

    pub(super) fn base(&self) -> &str {
        self.table.as_ref()
    }

    /// Stages a copy of the manifest `from` beside `to`.
    pub(super) async fn stage(&self, from: &Path, to: &Path) -> (Path, u64) {
        let content = self.content(from).await.unwrap();
        self.stage_content(content, to).await
    }

    pub(super) async fn stage_content(&self, content: Vec<u8>, to: &Path) -> (Path, u64) {
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
            .put(
                chain,
                version,
                path,
                *size,
                None,
                self.objects.as_ref(),
                scheme,
            )
            .await
    }
}
