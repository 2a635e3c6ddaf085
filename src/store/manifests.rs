//! Manifests: find them as Lance does, and publish them.

use bytes::Bytes;
use lance_table::io::commit::ManifestLocation;
use object_store::PutMode;
use object_store::path::Path;

use crate::error::Result;
use crate::store::{Published, RootStore, is_not_found};

impl RootStore {
    /// Creates a manifest if its place is free: 1 PUT, and 1 GET unless it was plainly created. The same content there
    /// means that an acknowledgement was lost. `first_time`: the caller looks for that itself, so a place that is plainly
    /// taken costs no GET.
    pub(crate) async fn publish(
        &self,
        path: &Path,
        content: Bytes,
        first_time: bool,
    ) -> Result<Published> {
        use object_store::Error as E;
        let put = self
            .store
            .inner
            .put_opts(path, content.clone().into(), PutMode::Create.into())
            .await;
        let error = match put {
            // The tag that local disk gives with a PUT is of the file before it was linked to its place.
            Ok(_) if self.local_path(path).is_some() => {
                let meta = self.head(path).await?;
                return Ok(Published::Here {
                    e_tag: meta.and_then(|m| m.e_tag),
                });
            }
            Ok(put) => return Ok(Published::Here { e_tag: put.e_tag }),
            Err(E::NotImplemented { .. } | E::NotSupported { .. }) => return Err(self.no_create()),
            Err(e) => e,
        };
        let exists = matches!(error, E::AlreadyExists { .. } | E::Precondition { .. });
        if exists && first_time {
            return Ok(Published::Other);
        }
        match self.get(path).await {
            Ok(Some((found, meta))) if found == content => {
                Ok(Published::Here { e_tag: meta.e_tag })
            }
            Ok(found) if exists || found.is_some() => Ok(Published::Other),
            Err(e) if exists => Err(e),
            _ => Err(self.storage("create", path, error)),
        }
    }

    /// The latest manifest of the table, resolved as Lance does it: 1 LIST of one page where LIST is ordered.
    pub(crate) async fn latest_manifest(&self, table: &Path) -> Result<Option<ManifestLocation>> {
        use lance_core::Error as L;
        if let Some(dir) = self.local_path(table) {
            let found = match tokio::fs::metadata(&dir).await {
                Ok(found) => found.is_dir(),
                // A link into a volume that is not mounted is no missing table.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound && !dir.is_symlink() => false,
                Err(e) if e.kind() == std::io::ErrorKind::InvalidFilename => false,
                Err(e) => return Err(self.local_failure("stat", table, e)),
            };
            if !found {
                return Ok(None);
            }
        }
        match self
            .commit_handler
            .resolve_latest_location(table, &self.store)
            .await
        {
            Ok(location) => Ok(Some(location)),
            Err(L::NotFound { .. } | L::DatasetNotFound { .. }) => Ok(None),
            Err(e) if is_not_found(&e) => Ok(None),
            Err(e) => Err(self.storage_via_lance("find the latest version in", table, e)),
        }
    }

    /// The latest manifest with the tag that a HEAD of it gives: on local disk Lance's listing makes another one up.
    pub(crate) async fn latest_tagged(&self, table: &Path) -> Result<Option<ManifestLocation>> {
        let latest = self.latest_manifest(table).await?;
        if self.local_path(table).is_none() {
            return Ok(latest);
        }
        let Some(latest) = latest else {
            return Ok(None);
        };
        let meta = self.head(&latest.path).await?;
        Ok(meta.map(|meta| ManifestLocation {
            size: Some(meta.size),
            e_tag: meta.e_tag,
            ..latest
        }))
    }

    /// The manifest of a version: 1 HEAD, or 2 with the old naming scheme.
    pub(crate) async fn manifest_of(
        &self,
        table: &Path,
        version: u64,
    ) -> Result<Option<ManifestLocation>> {
        let located = self
            .commit_handler
            .resolve_version_location(table, version, &self.store.inner)
            .await;
        match located {
            // Lance does not look whether a manifest with an old name exists.
            Ok(location) if location.size.is_none() => {
                let meta = self.head(&location.path).await?;
                Ok(meta.map(|m| ManifestLocation {
                    size: Some(m.size),
                    e_tag: m.e_tag,
                    ..location
                }))
            }
            Ok(location) => Ok(Some(location)),
            Err(e) if is_not_found(&e) => Ok(None),
            Err(e) => Err(self.storage_via_lance("find a version in", table, e)),
        }
    }
}
