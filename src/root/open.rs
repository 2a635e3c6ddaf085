//! Open a root table: a Lance `Dataset` of what is live, at no round trip more than Lance itself needs.
//!
//! Lance resolves the manifest and then reads it. The tombstone and the marker are read beside the first step. That
//! alone would not do: a manifest resolved while the table was hidden, and a tombstone read after it was unhidden,
//! would together show rows that nobody may see. So the manifest is resolved a second time beside the second step,
//! after the tombstone was seen absent, and must be the same; otherwise the open starts over.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use lance::dataset::Dataset;
use lance::dataset::builder::DatasetBuilder;
use lance_io::object_store::ObjectStore;
use lance_table::format::{IndexMetadata, Manifest, Transaction};
use lance_table::io::commit::{
    CommitError, CommitHandler, ManifestLocation, ManifestNamingScheme, ManifestWriter,
    PredecessorIdentity,
};
use object_store::path::Path;
use tokio::sync::oneshot;

use crate::catalog::Catalog;
use crate::child;
use crate::error::{Error, Result, from_lance};
use crate::ident::TableIdent;
use crate::lifecycle::{MAX_ROUNDS, Marker, Moment, tombstone};
use crate::root;
use crate::store::{RootStore, Slot};

/// Which version of a table to open.
#[derive(Debug, Clone)]
enum Target {
    Latest,
    Version(u64),
    Tag(String),
}

/// An open about to be made; await it. See [`Catalog::open_table`].
#[derive(Debug)]
#[must_use = "an open does nothing until it is awaited"]
pub struct OpenTable {
    pub(crate) catalog: Catalog,
    pub(crate) ident: TableIdent,
    target: Target,
}

impl OpenTable {
    pub(crate) fn new(catalog: Catalog, ident: TableIdent) -> Self {
        Self {
            catalog,
            ident,
            target: Target::Latest,
        }
    }

    /// Open this version instead of the latest one.
    pub fn version(mut self, version: u64) -> Self {
        self.target = Target::Version(version);
        self
    }

    /// Open the version that this tag names.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.target = Target::Tag(tag.into());
        self
    }

    /// Aims Lance's own open at the version or tag.
    pub(crate) fn aim(&self, builder: DatasetBuilder) -> DatasetBuilder {
        match &self.target {
            Target::Latest => builder,
            Target::Version(version) => builder.with_version(*version),
            Target::Tag(tag) => builder.with_tag(tag),
        }
    }

    pub(crate) fn version_wanted(&self) -> Option<u64> {
        match self.target {
            Target::Version(version) => Some(version),
            Target::Latest | Target::Tag(_) => None,
        }
    }

    async fn run(self) -> Result<Dataset> {
        if self.ident.is_child() {
            return child::open::open(&self).await;
        }
        let store = self.catalog.store();
        let slot = root::reading_slot(store, &self.ident)?;
        if store.is_loose_file(&slot.table) {
            check(self.catalog.clone(), slot).await?;
            return Err(Error::TableNotFound {
                ident: self.ident,
                reason: "a file is there, not a table".to_string(),
            });
        }
        for _ in 0..MAX_ROUNDS {
            if let Some(dataset) = self.attempt(store, &slot).await? {
                return Ok(dataset);
            }
        }
        Err(Error::Conflict {
            ident: self.ident,
            message: "it keeps changing while it is opened".to_string(),
        })
    }

    /// One try; `None` when the table changed under it.
    async fn attempt(&self, store: &Arc<RootStore>, slot: &Slot) -> Result<Option<Dataset>> {
        let (tell, told) = oneshot::channel();
        let handler = root::Handler::of(&self.catalog, slot);
        let began = Moment::now();
        let gate = Arc::new(Gate {
            handler: handler.for_lance.clone(),
            first: Mutex::new(Some(First {
                check: check(self.catalog.clone(), slot.clone()).boxed(),
                tell,
            })),
        });
        let builder = DatasetBuilder::from_uri(&slot.uri)
            .with_store_params(store.params.clone())
            .with_session(store.session.clone())
            .with_commit_handler(gate.clone());
        let builder = self.aim(builder);
        let confirm = async {
            match told.await {
                Ok(Answer::Hidden(error)) => Err(error),
                Ok(Answer::Resolved(how, location)) => {
                    let still = still_there(&self.catalog, slot, how, &location).await?;
                    Ok((still, Some((how, location))))
                }
                // Lance never got as far as a manifest; its own error says why.
                Err(_) => Ok((true, None)),
            }
        };
        let load = async {
            let loaded = builder.load().await;
            // An open that failed before it asked for a manifest must not leave `confirm` waiting.
            gate.close();
            loaded
        };
        let (loaded, confirmed) = tokio::join!(load, confirm);
        // A hidden table is reported as such, whatever Lance made of what is left of it.
        let (confirmed, resolved) = confirmed?;
        match loaded {
            Ok(dataset) if confirmed => {
                // Only a manifest that was resolved through the gate was confirmed, beside a look for a drop.
                handler.opened(&dataset, resolved.map(|_| began));
                Ok(Some(dataset))
            }
            Ok(_) => Ok(None),
            Err(_) if !confirmed => Ok(None),
            Err(e) => {
                // Lance may have failed before the gate asked (an unknown tag): the drop state comes first.
                check(self.catalog.clone(), slot.clone()).await?;
                // Or a purge took what it read after that was confirmed, and is over by now.
                if let Some((how, location)) = resolved
                    && !still_there(&self.catalog, slot, how, &location).await?
                {
                    return Ok(None);
                }
                Err(self.explain(store, slot, e).await?)
            }
        }
    }

    /// Why a table that is not hidden does not open.
    async fn explain(
        &self,
        store: &RootStore,
        slot: &Slot,
        error: lance_core::Error,
    ) -> Result<Error> {
        let error = from_lance(error, "open", &slot.ident, &store.redactor);
        if !matches!(error, Error::TableNotFound { .. }) {
            return Ok(error);
        }
        if let Some(version) = self.version_wanted()
            && store.latest_manifest(&slot.table).await?.is_some()
        {
            return Ok(Error::VersionNotFound {
                ident: slot.ident.clone(),
                reason: format!("version {version}"),
            });
        }
        let (objects, prefixes) = store.list_dir(&slot.table).await?;
        let creating = tombstone::read(store, slot)
            .await?
            .is_some_and(|t| t.creating.is_some());
        let reason = if creating {
            "it is being created"
        } else if objects.iter().any(|o| o == ".lance-reserved") {
            "it is declared, but nothing was written to it yet"
        } else if objects.is_empty() && prefixes.is_empty() && !store.is_dir(&slot.table) {
            "nothing is there"
        } else {
            "what is there is incomplete: it has no version, so a process was stopped while it created the table; \
             create_table and drop_table work on it"
        };
        Ok(Error::TableNotFound {
            ident: slot.ident.clone(),
            reason: reason.to_string(),
        })
    }
}

impl IntoFuture for OpenTable {
    type Output = Result<Dataset>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// Whether the table may be opened: 2 GET, together.
pub(crate) async fn check(catalog: Catalog, slot: Slot) -> Result<()> {
    let (tombstone, marker) = tokio::join!(
        tombstone::read(catalog.store(), &slot),
        catalog.lifecycle().read_marker(&slot),
    );
    let ident = slot.ident.clone();
    let tombstone = tombstone?.filter(|t| t.creating.is_none());
    match (tombstone, marker?) {
        (Some(t), _) => Err(Error::TableDropped {
            dropped: Box::new(t.public(&slot.ident)),
        }),
        (None, Marker::Foreign) => Err(Error::TableDeregistered { ident }),
        // A creating tombstone hides nothing that has a version.
        (None, _) => Ok(()),
    }
}

#[derive(Clone, Copy)]
enum Resolve {
    Latest,
    Version(u64),
}

enum Answer {
    Hidden(Error),
    Resolved(Resolve, ManifestLocation),
}

async fn again(catalog: &Catalog, slot: &Slot, how: Resolve) -> Result<Option<ManifestLocation>> {
    let store = catalog.store();
    let handler = &store.commit_handler;
    let resolved = match how {
        // With the tag that the first resolution gave it.
        Resolve::Latest if catalog.is_managed() => return store.latest_tagged(&slot.table).await,
        Resolve::Latest => return store.latest_manifest(&slot.table).await,
        Resolve::Version(version) => {
            handler
                .resolve_version_location(&slot.table, version, &store.store.inner)
                .await
        }
    };
    match resolved {
        Ok(location) => Ok(Some(location)),
        Err(e) if crate::store::is_not_found(&e) => Ok(None),
        Err(e) => Err(store.storage_via_lance("find a version in", &slot.table, e)),
    }
}

async fn still_there(
    catalog: &Catalog,
    slot: &Slot,
    how: Resolve,
    location: &ManifestLocation,
) -> Result<bool> {
    let now = again(catalog, slot, how).await?;
    Ok(now.is_some_and(|now| same(location, &now)))
}

fn same(a: &ManifestLocation, b: &ManifestLocation) -> bool {
    a.version == b.version && a.path == b.path && a.e_tag == b.e_tag && a.size == b.size
}

struct First {
    check: BoxFuture<'static, Result<()>>,
    tell: oneshot::Sender<Answer>,
}

/// Lance's commit handler with the check beside its first resolution; afterwards it is that handler and no more.
struct Gate {
    handler: Arc<dyn CommitHandler>,
    first: Mutex<Option<First>>,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.handler.fmt(f)
    }
}

impl Gate {
    fn take(&self) -> Option<First> {
        self.first
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    fn close(&self) {
        drop(self.take());
    }

    async fn resolve(
        &self,
        how: Resolve,
        resolving: impl Future<Output = lance_core::Result<ManifestLocation>>,
    ) -> lance_core::Result<ManifestLocation> {
        let Some(first) = self.take() else {
            return resolving.await;
        };
        let (checked, resolved) = tokio::join!(first.check, resolving);
        match (checked, &resolved) {
            (Err(error), _) => {
                let _ = first.tell.send(Answer::Hidden(error));
                return Err(lance_core::Error::Stop);
            }
            (Ok(()), Ok(location)) => {
                let _ = first.tell.send(Answer::Resolved(how, location.clone()));
            }
            (Ok(()), Err(_)) => {}
        }
        resolved
    }
}

#[async_trait]
#[allow(clippy::too_many_arguments)] // The signatures are Lance's.
impl CommitHandler for Gate {
    fn is_version_not_found_definitive(&self) -> bool {
        self.handler.is_version_not_found_definitive()
    }

    fn propagate_commit_error_after_success(&self) -> bool {
        self.handler.propagate_commit_error_after_success()
    }

    async fn resolve_latest_location(
        &self,
        base_path: &Path,
        object_store: &ObjectStore,
    ) -> lance_core::Result<ManifestLocation> {
        let resolving = self
            .handler
            .resolve_latest_location(base_path, object_store);
        self.resolve(Resolve::Latest, resolving).await
    }

    async fn resolve_version_location(
        &self,
        base_path: &Path,
        version: u64,
        object_store: &dyn object_store::ObjectStore,
    ) -> lance_core::Result<ManifestLocation> {
        let resolving = self
            .handler
            .resolve_version_location(base_path, version, object_store);
        self.resolve(Resolve::Version(version), resolving).await
    }

    async fn version_exists(
        &self,
        base_path: &Path,
        version: u64,
        object_store: &dyn object_store::ObjectStore,
        naming_scheme: ManifestNamingScheme,
    ) -> lance_core::Result<bool> {
        self.handler
            .version_exists(base_path, version, object_store, naming_scheme)
            .await
    }

    fn list_detached_manifest_locations<'a>(
        &self,
        base_path: &Path,
        object_store: &'a ObjectStore,
    ) -> BoxStream<'a, lance_core::Result<ManifestLocation>> {
        self.handler
            .list_detached_manifest_locations(base_path, object_store)
    }

    fn list_manifest_locations<'a>(
        &self,
        base_path: &Path,
        object_store: &'a ObjectStore,
        sorted_descending: bool,
    ) -> BoxStream<'a, lance_core::Result<ManifestLocation>> {
        self.handler
            .list_manifest_locations(base_path, object_store, sorted_descending)
    }

    fn list_manifest_locations_since<'a>(
        &self,
        base_path: &Path,
        object_store: &'a ObjectStore,
        since_version: u64,
    ) -> BoxStream<'a, lance_core::Result<ManifestLocation>> {
        self.handler
            .list_manifest_locations_since(base_path, object_store, since_version)
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
        self.handler
            .commit(
                manifest,
                indices,
                base_path,
                object_store,
                manifest_writer,
                naming_scheme,
                transaction,
            )
            .await
    }

    fn supports_predecessor_condition(&self) -> bool {
        self.handler.supports_predecessor_condition()
    }

    async fn resolve_latest_identity(
        &self,
        base_path: &Path,
        object_store: &ObjectStore,
    ) -> lance_core::Result<Option<PredecessorIdentity>> {
        self.handler
            .resolve_latest_identity(base_path, object_store)
            .await
    }

    async fn resolve_identity(
        &self,
        base_path: &Path,
        object_store: &ObjectStore,
        version: u64,
    ) -> lance_core::Result<Option<PredecessorIdentity>> {
        self.handler
            .resolve_identity(base_path, object_store, version)
            .await
    }

    async fn commit_after(
        &self,
        manifest: &mut Manifest,
        indices: Option<Vec<IndexMetadata>>,
        base_path: &Path,
        object_store: &ObjectStore,
        manifest_writer: ManifestWriter,
        naming_scheme: ManifestNamingScheme,
        transaction: Option<Transaction>,
        predecessor: &PredecessorIdentity,
    ) -> std::result::Result<ManifestLocation, CommitError> {
        self.handler
            .commit_after(
                manifest,
                indices,
                base_path,
                object_store,
                manifest_writer,
                naming_scheme,
                transaction,
                predecessor,
            )
            .await
    }

    async fn forget_version(
        &self,
        base_path: &Path,
        version: u64,
        identity: &str,
    ) -> lance_core::Result<()> {
        self.handler
            .forget_version(base_path, version, identity)
            .await
    }

    async fn delete(&self, base_path: &Path) -> lance_core::Result<()> {
        self.handler.delete(base_path).await
    }
}
