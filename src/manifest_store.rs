//! Lance's external manifest store on the version operations of a namespace.
//!
//! | Lance asks | the namespace is asked |
//! | --- | --- |
//! | `get` | DescribeTableVersion |
//! | latest | ListTableVersions, descending, limit 1 |
//! | `put`, `put_if_not_exists` of a staged manifest | CreateTableVersion |
//! | `put_if_exists` | DescribeTableVersion; never an overwrite |
//! | `delete` | BatchDeleteTableVersions over `[0, -1)` |
//!
//! Works over any `LanceNamespace`: a [`Catalog`](crate::Catalog), a stock directory namespace, a REST client. One
//! store serves a table with all its branches, and is meant for one opened dataset: it remembers the version with which
//! its reader began, and a catalog refuses to put a version of another table above that one.
//!
//! Promises: a version that is not there is Lance's "not found", a chain that is not there has no latest version, and
//! every other failure stays one, so that Lance's own fallbacks and retries do what they were written for. A put that
//! failed in an unclear way is looked into before it is reported. Refuses: moving a version that is recorded.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use lance_core::{Error, Result};
use lance_namespace::models::{
    BatchDeleteTableVersionsRequest, CreateTableVersionRequest, DescribeTableVersionRequest,
    ListTableVersionsRequest, TableVersion, VersionRange,
};
use lance_namespace::{LanceNamespace, NamespaceError};
use lance_table::io::commit::external_manifest::ExternalManifestStore;
use lance_table::io::commit::{ManifestLocation, ManifestNamingScheme};
use object_store::path::Path;

use crate::versions::fence::Anchor;

/// Keys of the metadata that tell a catalog with which version the writer began.
pub(crate) const ANCHOR_VERSION: &str = "lancekeep.anchor.version";
pub(crate) const ANCHOR_E_TAG: &str = "lancekeep.anchor.e_tag";
pub(crate) const ANCHOR_SIZE: &str = "lancekeep.anchor.size";

/// The external manifest store of one table.
#[derive(Debug)]
pub struct NamespaceExternalManifestStore {
    namespace: Arc<dyn LanceNamespace>,
    id: Vec<String>,
    /// Path of the table's directory in its store; branches are below it.
    table: Path,
    /// For each chain the version with which the reader began, or which it committed last.
    anchors: Mutex<Vec<(String, Anchor)>>,
}

fn code(error: &Error) -> Option<&NamespaceError> {
    match error {
        Error::Namespace { source, .. } => source.downcast_ref(),
        _ => None,
    }
}

/// Whether the answer is the namespace's decision, so that asking again would not change it.
pub(crate) fn is_decided(error: &Error) -> bool {
    use NamespaceError as N;
    match code(error) {
        Some(N::Internal { .. } | N::ServiceUnavailable { .. } | N::Throttling { .. }) | None => {
            false
        }
        Some(_) => true,
    }
}

impl NamespaceExternalManifestStore {
    /// The store of the table `id` of a namespace, whose directory is at `table` in its object store.
    pub fn new(namespace: Arc<dyn LanceNamespace>, id: Vec<String>, table: Path) -> Self {
        Self {
            namespace,
            id,
            table,
            anchors: Mutex::new(Vec::new()),
        }
    }

    /// The branch whose chain is at a location: the table's directory itself, or `tree/<branch>` below it.
    pub(crate) fn branch(&self, base: &str) -> Result<Option<String>> {
        if base == self.table.as_ref() {
            return Ok(None);
        }
        let below = match self.table.as_ref() {
            "" => Some(base),
            table => base
                .strip_prefix(table)
                .and_then(|rest| rest.strip_prefix('/')),
        };
        match below.and_then(|rest| rest.strip_prefix("tree/")) {
            Some(branch) if !branch.is_empty() => Ok(Some(branch.to_string())),
            _ => Err(self.elsewhere(base)),
        }
    }

    /// Whether a location is that of the table or of a branch of it.
    pub(crate) fn serves(&self, base: &str) -> bool {
        self.branch(base).is_ok()
    }

    /// A version was read without asking the namespace.
    pub(crate) fn anchor_at(&self, base: &str, at: &ManifestLocation) {
        self.set_anchor(base, at, false);
    }

    /// A version was committed without asking the namespace. `is_bare`: it carries no incarnation.
    pub(crate) fn committed(&self, base: &str, at: &ManifestLocation, is_bare: bool) {
        self.set_anchor(base, at, true);
        self.is_bare(base, at, is_bare);
    }

    /// Whether the version carries no incarnation, if the reader began with that one.
    pub(crate) fn is_bare(&self, base: &str, at: &ManifestLocation, is_bare: bool) {
        let mut anchors = self.anchors.lock().unwrap_or_else(PoisonError::into_inner);
        let known = anchors.iter_mut().find(|(chain, _)| chain == base);
        if let Some((_, anchor)) = known
            && anchor.version == at.version
            && anchor.is(at)
        {
            anchor.is_bare = is_bare;
        }
    }

    fn elsewhere(&self, base: &str) -> Error {
        Error::invalid_input(format!(
            "{base:?} is neither the table at {:?} nor a branch of it",
            self.table.as_ref()
        ))
    }

    fn location(version: TableVersion) -> Result<ManifestLocation> {
        let path = Path::parse(&version.manifest_path)
            .map_err(|e| Error::invalid_input(format!("invalid manifest path: {e}")))?;
        let name = path.filename().unwrap_or_default();
        let naming_scheme = ManifestNamingScheme::detect_scheme(name)
            .unwrap_or_else(|| ManifestNamingScheme::detect_scheme_staging(name));
        let number = u64::try_from(version.version)
            .map_err(|_| Error::invalid_input(format!("no version number: {}", version.version)))?;
        Ok(ManifestLocation {
            version: number,
            size: version.manifest_size.and_then(|s| u64::try_from(s).ok()),
            naming_scheme,
            e_tag: version.e_tag,
            path,
            identity: None,
        })
    }

    pub(crate) fn anchor(&self, base: &str) -> Option<Anchor> {
        let anchors = self.anchors.lock().unwrap_or_else(PoisonError::into_inner);
        let found = anchors.iter().find(|(chain, _)| chain == base);
        found.map(|(_, anchor)| anchor.clone())
    }

    /// Keeps the first version that was resolved, and moves on with each that is committed.
    fn set_anchor(&self, base: &str, at: &ManifestLocation, committed: bool) {
        let anchor = Anchor::of(at);
        let mut anchors = self.anchors.lock().unwrap_or_else(PoisonError::into_inner);
        match anchors.iter_mut().find(|(chain, _)| chain == base) {
            Some(known) if committed => known.1 = anchor,
            Some(_) => {}
            None => anchors.push((base.to_string(), anchor)),
        }
    }

    async fn describe(&self, base: &str, version: u64) -> Result<ManifestLocation> {
        let mut request = DescribeTableVersionRequest::new();
        request.id = Some(self.id.clone());
        request.branch = self.branch(base)?;
        request.version = Some(number(version)?);
        match self.namespace.describe_table_version(request).await {
            Ok(found) => Self::location(*found.version),
            Err(e) if matches!(code(&e), Some(NamespaceError::TableVersionNotFound { .. })) => {
                Err(Error::not_found(format!("{base}@{version}")))
            }
            Err(e) => Err(e),
        }
    }

    async fn create(
        &self,
        base: &str,
        version: u64,
        staged: &str,
        size: u64,
        e_tag: Option<String>,
        naming_scheme: ManifestNamingScheme,
    ) -> Result<ManifestLocation> {
        let mut request = CreateTableVersionRequest::new(number(version)?, staged.to_string());
        request.id = Some(self.id.clone());
        request.branch = self.branch(base)?;
        request.manifest_size = i64::try_from(size).ok();
        request.e_tag = e_tag;
        let scheme = match naming_scheme {
            ManifestNamingScheme::V1 => "V1",
            ManifestNamingScheme::V2 => "V2",
        };
        request.naming_scheme = Some(scheme.to_string());
        request.metadata = self.anchor(base).map(|anchor| {
            let mut metadata = std::collections::HashMap::from([(
                ANCHOR_VERSION.to_string(),
                anchor.version.to_string(),
            )]);
            metadata.extend(anchor.e_tag.map(|tag| (ANCHOR_E_TAG.to_string(), tag)));
            metadata.extend(
                anchor
                    .size
                    .map(|size| (ANCHOR_SIZE.to_string(), size.to_string())),
            );
            metadata
        });
        let created = match self.namespace.create_table_version(request.clone()).await {
            // It may have taken effect; the same content sent again, while it is staged, is a success.
            Err(e) if !is_decided(&e) => self.namespace.create_table_version(request).await,
            decided => decided,
        };
        let created = created?.version.ok_or_else(|| {
            Error::internal("CreateTableVersion answered without the version".to_string())
        })?;
        let location = Self::location(*created)?;
        self.set_anchor(base, &location, true);
        Ok(location)
    }
}

fn number(version: u64) -> Result<i64> {
    i64::try_from(version)
        .map_err(|_| Error::invalid_input(format!("version {version} is beyond what can be named")))
}

#[async_trait]
impl ExternalManifestStore for NamespaceExternalManifestStore {
    async fn get(&self, base_uri: &str, version: u64) -> Result<String> {
        let location = self.get_manifest_location(base_uri, version).await?;
        Ok(location.path.to_string())
    }

    async fn get_manifest_location(
        &self,
        base_uri: &str,
        version: u64,
    ) -> Result<ManifestLocation> {
        let location = self.describe(base_uri, version).await?;
        self.set_anchor(base_uri, &location, false);
        Ok(location)
    }

    async fn get_latest_version(&self, base_uri: &str) -> Result<Option<(u64, String)>> {
        let latest = self.get_latest_manifest_location(base_uri).await?;
        Ok(latest.map(|l| (l.version, l.path.to_string())))
    }

    async fn get_latest_manifest_location(
        &self,
        base_uri: &str,
    ) -> Result<Option<ManifestLocation>> {
        let mut request = ListTableVersionsRequest::new();
        request.id = Some(self.id.clone());
        request.branch = self.branch(base_uri)?;
        request.descending = Some(true);
        request.limit = Some(1);
        let listed = match self.namespace.list_table_versions(request).await {
            Ok(listed) => listed,
            Err(e)
                if matches!(
                    code(&e),
                    Some(
                        NamespaceError::TableNotFound { .. }
                            | NamespaceError::TableBranchNotFound { .. }
                    )
                ) =>
            {
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        // A namespace that does not know the order or the limit may answer more.
        let latest = listed.versions.into_iter().max_by_key(|v| v.version);
        let latest = latest.map(Self::location).transpose()?;
        if let Some(location) = &latest {
            self.set_anchor(base_uri, location, false);
        }
        Ok(latest)
    }

    async fn put(
        &self,
        base_path: &Path,
        version: u64,
        staging_path: &Path,
        size: u64,
        e_tag: Option<String>,
        _object_store: &dyn object_store::ObjectStore,
        naming_scheme: ManifestNamingScheme,
    ) -> Result<ManifestLocation> {
        self.create(
            base_path.as_ref(),
            version,
            staging_path.as_ref(),
            size,
            e_tag,
            naming_scheme,
        )
        .await
    }

    /// Creates the version from a staged manifest. A manifest that is in its final place already needs no record: that is
    /// a success when the namespace knows it, and "not found" otherwise.
    async fn put_if_not_exists(
        &self,
        base_uri: &str,
        version: u64,
        path: &str,
        size: u64,
        e_tag: Option<String>,
    ) -> Result<()> {
        let name = path.rsplit('/').next().unwrap_or_default();
        if ManifestNamingScheme::detect_scheme(name).is_some() {
            return self
                .put_if_exists(base_uri, version, path, size, e_tag)
                .await;
        }
        let scheme = ManifestNamingScheme::detect_scheme_staging(name);
        self.create(base_uri, version, path, size, e_tag, scheme)
            .await
            .map(|_| ())
    }

    /// Succeeds when the version is recorded at this path, as often as it is asked; changes nothing.
    async fn put_if_exists(
        &self,
        base_uri: &str,
        version: u64,
        path: &str,
        _size: u64,
        _e_tag: Option<String>,
    ) -> Result<()> {
        let recorded = self.describe(base_uri, version).await?;
        if recorded.path.as_ref() == path {
            return Ok(());
        }
        Err(NamespaceError::ConcurrentModification {
            message: format!(
                "version {version} is recorded at {:?}, and stays there; it cannot be moved to {path:?}",
                recorded.path.as_ref()
            ),
        }
        .into())
    }

    async fn delete(&self, base_uri: &str) -> Result<()> {
        let mut request = BatchDeleteTableVersionsRequest::new(vec![VersionRange::new(0, -1)]);
        request.id = Some(self.id.clone());
        request.branch = self.branch(base_uri)?;
        match self.namespace.batch_delete_table_versions(request).await {
            Ok(_) => Ok(()),
            // There is nothing left to delete.
            Err(e)
                if matches!(
                    code(&e),
                    Some(
                        NamespaceError::TableNotFound { .. }
                            | NamespaceError::TableBranchNotFound { .. }
                    )
                ) =>
            {
                Ok(())
            }
            Err(e) => Err(e),
        }
    }
}
