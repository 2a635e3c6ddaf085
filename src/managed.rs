//! Managed versioning: the commit handler of the datasets that a catalog returns.
//!
//! A commit hands its manifest to the catalog in memory, which puts it in its place once it has met the fences: nothing is
//! staged. Where Lance writes through another store than the catalog's (one that the writer wrapped), it is staged there and
//! goes through [`NamespaceExternalManifestStore`], as foreign clients do it: what the catalog does not find in its own store
//! is refused.
//!
//! What a commit has to ask for is asked beside Lance's own look for newer versions (see [`beside`]).
//!
//! A version's manifest is where plain Lance puts it, so reading needs no detour: the latest version is asked of the
//! catalog, with size and tag, and is not looked at again; a numbered one is found by its name, also after a drop, since
//! reads through handles that were opened before go on until the purge.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use lance::dataset::Dataset;
use lance_core::Result;
use lance_io::object_store::ObjectStore;
use lance_namespace::NamespaceError;
use lance_table::format::{IndexMetadata, Manifest, Transaction};
use lance_table::io::commit::external_manifest::ExternalManifestStore;
use lance_table::io::commit::{
    CommitError, CommitHandler, ManifestLocation, ManifestNamingScheme, ManifestWriter,
    write_version_hint,
};
use object_store::path::Path;
use object_store::{ObjectStore as OSObjectStore, ObjectStoreExt};
use uuid::Uuid;

use crate::catalog::Catalog;
use crate::lifecycle::Moment;
use crate::manifest_store::{NamespaceExternalManifestStore, is_decided};
use crate::store::Slot;
use crate::versions::create::{self, Held, Look, NewVersion, Source, refusal};
use crate::versions::fence::{INCARNATION, Seen};

mod beside;

use beside::{Beside, Looks};

/// The bit that marks a detached version, which is no version of a chain.
const DETACHED: u64 = 1 << 63;

/// The commit handler of one opened dataset.
#[derive(Debug)]
pub(crate) struct ManagedCommitHandler {
    catalog: Catalog,
    slot: Slot,
    /// What plain Lance uses on this store.
    plain: Arc<dyn CommitHandler>,
    versions: NamespaceExternalManifestStore,
    seen: Arc<Seen>,
    looks: Arc<Looks>,
    /// While the catalog itself creates the table, under protection of its own.
    creating: AtomicBool,
}

impl ManagedCommitHandler {
    pub(crate) fn new(catalog: &Catalog, slot: &Slot) -> Self {
        Self {
            catalog: catalog.clone(),
            slot: slot.clone(),
            seen: Arc::default(),
            looks: Arc::default(),
            plain: catalog.store().commit_handler.clone(),
            versions: NamespaceExternalManifestStore::new(
                Arc::new(catalog.clone()),
                slot.ident.parts().to_vec(),
                slot.table.clone(),
            ),
            creating: AtomicBool::new(false),
        }
    }

    /// For a commit that the catalog itself protects; [`created`](Self::created) ends it.
    pub(crate) fn creating(catalog: &Catalog, slot: &Slot) -> Self {
        let this = Self::new(catalog, slot);
        this.creating.store(true, Ordering::Release);
        this
    }

    pub(crate) fn created(&self) {
        self.creating.store(false, Ordering::Release);
    }

    /// The dataset was opened with this handler; `seen`: from before a look that found its table not hidden.
    pub(crate) fn opened(&self, dataset: &Dataset, seen: Option<Moment>) {
        let at = dataset.manifest_location();
        let is_bare = self.note(at, dataset.manifest());
        let base = dataset.branch_location().path;
        self.versions.is_bare(base.as_ref(), at, is_bare);
        if let Some(seen) = seen {
            self.seen.set(seen);
        }
    }

    /// Remembers the incarnation in a manifest. Tells whether there is none.
    fn note(&self, at: &ManifestLocation, manifest: &Manifest) -> bool {
        let incarnation = manifest.config.get(INCARNATION);
        if let Some(incarnation) = incarnation {
            self.catalog.incarnations().remember(at, incarnation);
        }
        incarnation.is_none()
    }

    /// Creates the version from memory.
    async fn create(
        &self,
        base: &Path,
        version: u64,
        content: Bytes,
        naming_scheme: ManifestNamingScheme,
        look: Option<Look>,
    ) -> Result<ManifestLocation> {
        let branch = self.versions.branch(base.as_ref())?;
        let anchor = self.versions.anchor(base.as_ref());
        let create = async |again, look| {
            let new = NewVersion {
                version,
                source: Source::Held(Box::new(Held {
                    content: content.clone(),
                    base: base.clone(),
                    seen: self.seen.clone(),
                    again,
                    look,
                })),
                naming_scheme,
                anchor: anchor.clone(),
            };
            create::create(&self.catalog, &self.slot.ident, branch.as_deref(), &new)
                .await
                .map_err(refusal)
        };
        let created = match create(false, look).await {
            // It may have taken effect; the same content sent again is a success.
            Err(e) if !is_decided(&e) => create(true, None).await?,
            decided => decided?,
        };
        Ok(ManifestLocation {
            version,
            path: naming_scheme.manifest_path(base, version),
            size: created.size,
            naming_scheme,
            e_tag: created.e_tag,
            identity: None,
        })
    }

    /// Who looks for a drop beside a listing of the versions since one; `None` where the listing would not help.
    fn beside(&self, base: &Path, object_store: &ObjectStore, since: u64) -> Option<Beside> {
        let begun = self.looks.begin();
        // A drop takes a table in a namespace out of that, and hides nothing.
        if self.slot.ident.is_child() || !self.manages(base, since) {
            return None;
        }
        let anchor = self.versions.anchor(base.as_ref())?;
        beside::serves(&self.catalog, object_store, &anchor, since).then(|| Beside {
            catalog: self.catalog.clone(),
            slot: self.slot.clone(),
            plain: self.plain.clone(),
            looks: self.looks.clone(),
            seen: self.seen.clone(),
            anchor,
            begun,
        })
    }

    /// Whether a commit there is one of this table's versions: not a detached one, and not one of a clone elsewhere.
    fn manages(&self, base: &Path, version: u64) -> bool {
        version & DETACHED == 0
            && !self.creating.load(Ordering::Acquire)
            && self.versions.serves(base.as_ref())
    }
}

/// Lance's own error for a commit that the catalog refused or did not finish.
fn commit_error(error: lance_core::Error) -> CommitError {
    let lost = matches!(&error, lance_core::Error::Namespace { source, .. }
        if matches!(source.downcast_ref(), Some(NamespaceError::ConcurrentModification { .. })));
    match lost {
        // Lance reads on and tries again.
        true => CommitError::CommitConflict,
        false => CommitError::OtherError(error),
    }
}

async fn discard(object_store: &ObjectStore, staged: &Path) {
    if let Err(error) = object_store.inner.delete(staged).await
        && !matches!(error, object_store::Error::NotFound { .. })
    {
        tracing::warn!(%error, "a staged manifest is left behind");
    }
}

#[async_trait]
#[allow(clippy::too_many_arguments)] // The signatures are Lance's.
impl CommitHandler for ManagedCommitHandler {
    fn is_version_not_found_definitive(&self) -> bool {
        self.plain.is_version_not_found_definitive()
    }

    fn propagate_commit_error_after_success(&self) -> bool {
        self.plain.propagate_commit_error_after_success()
    }

    async fn resolve_latest_location(
        &self,
        base_path: &Path,
        object_store: &ObjectStore,
    ) -> Result<ManifestLocation> {
        if self.versions.serves(base_path.as_ref()) {
            let latest = self
                .versions
                .get_latest_manifest_location(base_path.as_ref());
            if let Some(location) = latest.await? {
                return Ok(location);
            }
        }
        // Hidden meanwhile, or not there at all: what is on the store tells.
        self.plain
            .resolve_latest_location(base_path, object_store)
            .await
    }

    async fn resolve_version_location(
        &self,
        base_path: &Path,
        version: u64,
        object_store: &dyn OSObjectStore,
    ) -> Result<ManifestLocation> {
        let location = self
            .plain
            .resolve_version_location(base_path, version, object_store)
            .await?;
        if version & DETACHED == 0 {
            // Lance does not look at a manifest with an old name.
            let seen = match location.e_tag {
                Some(_) => location.clone(),
                None => {
                    let meta = object_store.head(&location.path).await?;
                    ManifestLocation {
                        size: Some(meta.size),
                        e_tag: meta.e_tag,
                        ..location.clone()
                    }
                }
            };
            self.versions.anchor_at(base_path.as_ref(), &seen);
        }
        Ok(location)
    }

    async fn version_exists(
        &self,
        base_path: &Path,
        version: u64,
        object_store: &dyn OSObjectStore,
        naming_scheme: ManifestNamingScheme,
    ) -> Result<bool> {
        self.plain
            .version_exists(base_path, version, object_store, naming_scheme)
            .await
    }

    fn list_detached_manifest_locations<'a>(
        &self,
        base_path: &Path,
        object_store: &'a ObjectStore,
    ) -> BoxStream<'a, Result<ManifestLocation>> {
        self.plain
            .list_detached_manifest_locations(base_path, object_store)
    }

    fn list_manifest_locations<'a>(
        &self,
        base_path: &Path,
        object_store: &'a ObjectStore,
        sorted_descending: bool,
    ) -> BoxStream<'a, Result<ManifestLocation>> {
        self.plain
            .list_manifest_locations(base_path, object_store, sorted_descending)
    }

    fn list_manifest_locations_since<'a>(
        &self,
        base_path: &Path,
        object_store: &'a ObjectStore,
        since_version: u64,
    ) -> BoxStream<'a, Result<ManifestLocation>> {
        match self.beside(base_path, object_store, since_version) {
            Some(beside) => {
                let base = base_path.clone();
                let list = async move { beside.list(base, object_store, since_version).await };
                stream::once(list)
                    .map_ok(|newer| stream::iter(newer).map(Ok))
                    .try_flatten()
                    .boxed()
            }
            None => {
                self.plain
                    .list_manifest_locations_since(base_path, object_store, since_version)
            }
        }
    }

    async fn commit(
        &self,
        manifest: &mut Manifest,
        indices: Option<Vec<IndexMetadata>>,
        base_path: &Path,
        object_store: &ObjectStore,
        manifest_writer: ManifestWriter,
        naming_scheme: ManifestNamingScheme,
        transaction: Option<Transaction>,
    ) -> std::result::Result<ManifestLocation, CommitError> {
        let version = manifest.version;
        let look = self.looks.take(base_path, transaction.as_ref());
        if !self.manages(base_path, version) {
            let location = self
                .plain
                .commit(
                    manifest,
                    indices,
                    base_path,
                    object_store,
                    manifest_writer,
                    naming_scheme,
                    transaction,
                )
                .await?;
            if version & DETACHED == 0 {
                // Its tag as a reader sees it, which is not always the one that a write answers.
                let seen = object_store.inner.head(&location.path).await;
                let seen = ManifestLocation {
                    e_tag: seen.ok().and_then(|meta| meta.e_tag),
                    ..location.clone()
                };
                let is_bare = self.note(&seen, manifest);
                self.versions.committed(base_path.as_ref(), &seen, is_bare);
            }
            return Ok(location);
        }
        let target = naming_scheme.manifest_path(base_path, version);
        // Only then the catalog writes where Lance wrote the data.
        if Arc::ptr_eq(&object_store.inner, &self.catalog.store().store.inner) {
            let memory = ObjectStore::memory();
            manifest_writer(&memory, manifest, indices, &target, transaction).await?;
            let content = memory.read_one_all(&target).await?;
            let location = self
                .create(base_path, version, content, naming_scheme, look)
                .await
                .map_err(commit_error)?;
            let is_bare = self.note(&location, manifest);
            self.versions
                .committed(base_path.as_ref(), &location, is_bare);
            write_version_hint(object_store, base_path, version).await;
            return Ok(location);
        }
        let staged = Path::parse(format!("{target}-{}", Uuid::new_v4()))
            .map_err(|e| CommitError::OtherError(lance_core::Error::io_source(Box::new(e))))?;
        let written =
            manifest_writer(object_store, manifest, indices, &staged, transaction).await?;
        let put = self
            .versions
            .put(
                base_path,
                version,
                &staged,
                written.size as u64,
                written.e_tag,
                object_store.inner.as_ref(),
                naming_scheme,
            )
            .await;
        let error = match put {
            Ok(location) => {
                write_version_hint(object_store, base_path, version).await;
                return Ok(location);
            }
            Err(e) => e,
        };
        if !is_decided(&error) {
            // It may have taken effect: Lance looks for it, and the staged manifest stays until then.
            return Err(CommitError::OtherError(error));
        }
        discard(object_store, &staged).await;
        Err(commit_error(error))
    }

    async fn delete(&self, base_path: &Path) -> Result<()> {
        self.plain.delete(base_path).await
    }
}
