//! Versions of a table, without listing them all.
//!
//! A version is its manifest, `<table>/_versions/<name>.manifest`, in either of Lance's naming schemes; the directory is
//! the only record, so every stock reader sees the same versions. A branch is a chain of its own below
//! `<table>/tree/<branch>`.
//!
//! Promises: a version is created by one create-if-absent of its manifest, so of several writers of one number one wins,
//! and it is the next number; the same content sent again is a success as long as it is still staged, other content a
//! conflict. A version is only added to the table that its writer read: not to a dropped one, and not to another one that
//! took its name. Refuses: manifests from outside the table's own directory of versions, and deleting the latest or a
//! tagged version in a clean-up.

use std::future::{Future, IntoFuture};
use std::pin::Pin;

use chrono::{DateTime, Utc};
use lance::dataset::refs::{BranchContents, branch_contents_path, check_valid_branch};
use lance_table::io::commit::{ManifestLocation, ManifestNamingScheme, VERSIONS_DIR};
use object_store::ObjectMeta;
use object_store::path::Path;

use crate::catalog::Catalog;
use crate::child;
use crate::error::{Error, Result};
use crate::ident::TableIdent;
use crate::root::{self, open};
use crate::store::{Slot, join};

pub(crate) mod create;
mod delete;
pub(crate) mod fence;

pub(crate) use delete::{DeleteRange, delete};

/// One version of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableVersion {
    /// Its number.
    pub version: u64,
    /// The path of its manifest, from the root of the store (not of the catalog), as Lance's commit handlers use it.
    pub path: String,
    /// The size of the manifest in bytes, where the answer of the store told it.
    pub size: Option<u64>,
    /// The store's tag of the manifest, likewise.
    pub e_tag: Option<String>,
    /// When the manifest was written, by the store's clock, likewise.
    pub created_at: Option<DateTime<Utc>>,
}

impl From<ManifestLocation> for TableVersion {
    fn from(location: ManifestLocation) -> Self {
        Self {
            version: location.version,
            path: location.path.to_string(),
            size: location.size,
            e_tag: location.e_tag,
            created_at: None,
        }
    }
}

impl TableVersion {
    /// The version whose manifest this object is; `None` for staged and detached manifests and for junk.
    fn of_object(meta: &ObjectMeta) -> Option<Self> {
        let name = meta.location.filename()?;
        let version = ManifestNamingScheme::detect_scheme(name)?.parse_version(name)?;
        Some(Self {
            version,
            path: meta.location.to_string(),
            size: Some(meta.size),
            e_tag: meta.e_tag.clone(),
            created_at: Some(meta.last_modified),
        })
    }
}

/// A table's own versions, or those of one of its branches.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    pub(crate) slot: Slot,
    pub(crate) path: Path,
    pub(crate) branch: Option<String>,
}

impl Chain {
    /// The chain of a slot. The branch's name is checked, its existence is not.
    fn of(slot: Slot, branch: Option<&str>) -> Result<Self> {
        let branch = branch.filter(|b| *b != "main" && !b.is_empty());
        let path = match branch {
            None => slot.table.clone(),
            Some(name) => {
                check_valid_branch(name).map_err(|e| Error::InvalidInput {
                    message: e.to_string(),
                })?;
                join(&slot.table, &format!("tree/{name}"))?
            }
        };
        Ok(Self {
            slot,
            path,
            branch: branch.map(str::to_string),
        })
    }

    fn versions(&self) -> Result<Path> {
        join(&self.path, VERSIONS_DIR)
    }

    fn no_version(&self, version: u64) -> Error {
        Error::VersionNotFound {
            ident: self.slot.ident.clone(),
            reason: format!("version {version}"),
        }
    }
}

/// The slot of an id, and whether it may be read: of a root table that check is still to be made.
async fn slot_of(catalog: &Catalog, ident: &TableIdent) -> Result<Slot> {
    if !ident.is_child() {
        return root::reading_slot(catalog.store(), ident);
    }
    child::check_existing(ident)?;
    match child::registered(catalog, ident).await? {
        Some(slot) => Ok(slot),
        None => Err(child::not_registered(ident)),
    }
}

async fn chain_of(catalog: &Catalog, ident: &TableIdent, branch: Option<&str>) -> Result<Chain> {
    Chain::of(slot_of(catalog, ident).await?, branch)
}

/// A root table's tombstone and marker: 2 GET, together. What is registered in a namespace is not hidden.
async fn check(catalog: &Catalog, chain: &Chain) -> Result<()> {
    if chain.slot.ident.is_child() {
        return Ok(());
    }
    open::check(catalog.clone(), chain.slot.clone()).await
}

/// What a chain without any version is.
async fn no_versions(catalog: &Catalog, chain: &Chain) -> Result<Error> {
    let store = catalog.store();
    let ident = chain.slot.ident.clone();
    if let Some(branch) = &chain.branch {
        return Ok(Error::VersionNotFound {
            ident,
            reason: format!("no version of a branch {branch:?}"),
        });
    }
    let (objects, prefixes) = store.list_dir(&chain.slot.table).await?;
    let there = !objects.is_empty() || !prefixes.is_empty() || store.is_dir(&chain.slot.table);
    Ok(match there {
        // Declared, or being created.
        true => Error::VersionNotFound {
            ident,
            reason: "nothing was written to it yet".to_string(),
        },
        false => Error::TableNotFound {
            ident,
            reason: "nothing is there".to_string(),
        },
    })
}

/// The latest version: 2 GET and 1 LIST together (as Lance finds it; more without ordered listings). 1 LIST more where
/// there is none.
pub(crate) async fn latest(
    catalog: &Catalog,
    ident: &TableIdent,
    branch: Option<&str>,
) -> Result<TableVersion> {
    let chain = chain_of(catalog, ident, branch).await?;
    let (checked, latest) = tokio::join!(
        check(catalog, &chain),
        catalog.store().latest_tagged(&chain.path)
    );
    checked?;
    match latest? {
        Some(location) => Ok(location.into()),
        None => Err(no_versions(catalog, &chain).await?),
    }
}

/// One version: 2 GET and 1 HEAD together, 1 HEAD more with the old naming scheme.
pub(crate) async fn describe(
    catalog: &Catalog,
    ident: &TableIdent,
    branch: Option<&str>,
    version: u64,
) -> Result<TableVersion> {
    let chain = chain_of(catalog, ident, branch).await?;
    let (checked, found) = tokio::join!(
        check(catalog, &chain),
        catalog.store().manifest_of(&chain.path, version)
    );
    checked?;
    found?
        .map(TableVersion::from)
        .ok_or_else(|| chain.no_version(version))
}

/// All versions of a chain, in no particular order: ⌈objects/1000⌉ LIST.
async fn all(catalog: &Catalog, chain: &Chain) -> Result<Vec<TableVersion>> {
    let objects = catalog.store().list_all(&chain.versions()?).await?;
    Ok(objects.iter().filter_map(TableVersion::of_object).collect())
}

/// A listing of versions about to be made; await it. See [`Catalog::list_versions`].
#[derive(Debug, Clone)]
#[must_use = "a listing does nothing until it is awaited"]
pub struct ListVersions {
    catalog: Catalog,
    ident: TableIdent,
    branch: Option<String>,
    descending: bool,
    limit: Option<usize>,
}

impl ListVersions {
    pub(crate) fn new(catalog: Catalog, ident: TableIdent) -> Self {
        Self {
            catalog,
            ident,
            branch: None,
            descending: false,
            limit: None,
        }
    }

    /// The versions of this branch instead of the table's own.
    pub fn branch(mut self, branch: impl Into<String>) -> Self {
        self.branch = Some(branch.into());
        self
    }

    /// The newest first; else the oldest first.
    pub fn descending(mut self) -> Self {
        self.descending = true;
        self
    }

    /// At most this many. The newest one alone costs no listing of all.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    async fn run(self) -> Result<Vec<TableVersion>> {
        let Self {
            catalog,
            ident,
            branch,
            descending,
            limit,
        } = self;
        if descending && limit == Some(1) {
            return latest(&catalog, &ident, branch.as_deref())
                .await
                .map(|latest| vec![latest])
                .or_else(no_version_yet);
        }
        let chain = chain_of(&catalog, &ident, branch.as_deref()).await?;
        let (checked, found) = tokio::join!(check(&catalog, &chain), all(&catalog, &chain));
        checked?;
        let mut found = found?;
        if found.is_empty() {
            return no_version_yet(no_versions(&catalog, &chain).await?);
        }
        found.sort_by_key(|v| v.version);
        if descending {
            found.reverse();
        }
        found.truncate(limit.unwrap_or(usize::MAX));
        Ok(found)
    }
}

/// A table that was declared has an empty list of versions.
fn no_version_yet(error: Error) -> Result<Vec<TableVersion>> {
    match error {
        Error::VersionNotFound { .. } => Ok(Vec::new()),
        e => Err(e),
    }
}

impl IntoFuture for ListVersions {
    type Output = Result<Vec<TableVersion>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// The version with which a branch begins, once it is registered: 1 GET.
async fn first_of_branch(catalog: &Catalog, chain: &Chain) -> Result<Option<u64>> {
    let Some(branch) = &chain.branch else {
        return Ok(Some(1));
    };
    let path = branch_contents_path(&chain.slot.table, branch);
    let Some((content, _)) = catalog.store().get(&path).await? else {
        return Ok(None);
    };
    match serde_json::from_slice::<BranchContents>(&content) {
        Ok(contents) => Ok(Some(contents.parent_version)),
        Err(e) => Err(Error::CorruptMetadata {
            path: path.to_string(),
            message: e.to_string(),
        }),
    }
}

impl Catalog {
    /// Lists the versions of a table, or of a branch of it, the oldest first: 2 GET and ⌈objects/1000⌉ LIST of its directory
    /// of versions; the newest one alone 2 GET and 1 LIST, together. Await the returned [`ListVersions`].
    ///
    /// # Errors
    /// As [`open_table`](Self::open_table). A declared table has no versions yet.
    pub fn list_versions(&self, ident: impl Into<TableIdent>) -> ListVersions {
        ListVersions::new(self.clone(), ident.into())
    }

    /// The latest version of a table: 2 GET and 1 LIST, together.
    ///
    /// # Errors
    /// As [`open_table`](Self::open_table); [`Error::VersionNotFound`] for a declared table.
    pub async fn latest_version(&self, ident: impl Into<TableIdent>) -> Result<TableVersion> {
        latest(self, &ident.into(), None).await
    }

    /// One version of a table, however many there are: 2 GET and 1 HEAD, together; 1 HEAD more with the old naming scheme.
    ///
    /// # Errors
    /// [`Error::VersionNotFound`], and those of [`open_table`](Self::open_table).
    pub async fn describe_version(
        &self,
        ident: impl Into<TableIdent>,
        version: u64,
    ) -> Result<TableVersion> {
        describe(self, &ident.into(), None, version).await
    }

    /// Deletes the manifests of versions, as a clean-up: the latest version, versions that a tag names, those where a
    /// branch begins and those younger than the commit window are spared. Gives the numbers that were deleted. The data
    /// files stay for Lance's own clean-up.
    ///
    /// Cost: ⌈objects/1000⌉ LIST of the directory of versions, 2 LIST and 1 GET for each tag and branch, 1 PUT, 1 HEAD and
    /// 1 DELETE to read the store's clock, and for each 1,000 versions 2 GET, 1 HEAD and 1 bulk delete.
    ///
    /// # Errors
    /// As [`open_table`](Self::open_table); nothing is deleted from a dropped table.
    pub async fn delete_versions(
        &self,
        ident: impl Into<TableIdent>,
        versions: std::ops::Range<u64>,
    ) -> Result<Vec<u64>> {
        let range = DeleteRange::CleanUp(versions);
        delete(self, &ident.into(), None, vec![range]).await
    }
}
