//! The facade: every operation of the catalog, and which part of the crate carries it out.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;

use crate::child::{self, manifest::Manifest};
#[allow(unused_imports)] // For the links in the docs.
use crate::error::Error;
use crate::error::Result;
use crate::ident::TableIdent;
use crate::lifecycle::{
    DroppedTable, Lifecycle, Marker, PurgeReport, ReconcileReport, Terms, reconcile,
};
use crate::listing::{self, ListTables};
use crate::root;
use crate::root::create::CreateTable;
use crate::root::data::TableData;
use crate::root::declare::declare;
use crate::root::open::OpenTable;
use crate::root::status::{TableState, table_state};
use crate::store::RootStore;
use crate::versions::fence::Incarnations;

mod builder;
mod drops;
mod namespace;
mod namespaces;

pub use builder::{CatalogBuilder, DEFAULT_RETENTION};
use drops::Which;
pub use drops::{DropTable, DropTableIfExists, Purge, PurgeTable, UndropTable};
pub use namespaces::{CreateNamespace, DropNamespace, DropNamespaceIfExists};

/// Drops made together by `drop_all_tables`, and purges by `purge_dropped`.
const TOGETHER: usize = 8;

/// A catalog over the Lance tables of one directory or bucket.
///
/// Cheap to clone; clones share everything. Any number of catalogs, in any number of processes, may work on one root
/// at a time. Every operation is safe to cancel: dropping its future is the same as stopping the process at that
/// request, and what is left is finished by whoever finds it (see [`lifecycle`](crate::lifecycle)).
#[derive(Clone)]
pub struct Catalog {
    inner: Arc<Inner>,
}

struct Inner {
    lifecycle: Lifecycle,
    bases: namespace::Bases,
    manifest: Manifest,
    retention: Option<Duration>,
    managed: bool,
    incarnations: Incarnations,
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Catalog")
            .field("root", &self.root_uri())
            .finish_non_exhaustive()
    }
}

impl Catalog {
    /// A catalog over `uri` with default settings: a path, a `file://` URL, `memory://…`, or with the crate's
    /// features `s3://…`, `az://…`, `gs://…`. Writes nothing.
    ///
    /// # Errors
    /// As [`CatalogBuilder::build`].
    pub async fn connect(uri: impl Into<String>) -> Result<Self> {
        Self::builder(uri).build().await
    }

    /// A catalog over `uri` with settings of your own.
    pub fn builder(uri: impl Into<String>) -> CatalogBuilder {
        CatalogBuilder::new(uri)
    }

    pub(crate) fn from_parts(
        lifecycle: Lifecycle,
        retention: Option<Duration>,
        managed: bool,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                lifecycle,
                bases: namespace::Bases::default(),
                manifest: Manifest::default(),
                retention,
                managed,
                incarnations: Incarnations::default(),
            }),
        }
    }

    pub(crate) fn lifecycle(&self) -> &Lifecycle {
        &self.inner.lifecycle
    }

    /// Whether versions are created through the catalog.
    pub(crate) fn is_managed(&self) -> bool {
        self.inner.managed
    }

    /// What is recorded of namespaces and the tables in them.
    pub(crate) fn manifest(&self) -> &Manifest {
        &self.inner.manifest
    }

    pub(crate) fn incarnations(&self) -> &Incarnations {
        &self.inner.incarnations
    }

    pub(crate) fn store(&self) -> &Arc<RootStore> {
        &self.inner.lifecycle.store
    }

    /// The root, in one spelling: an absolute path on local disk, a URL elsewhere; no trailing slash.
    pub fn root_uri(&self) -> &str {
        &self.store().root_uri
    }

    /// Creates a table and returns it as a Lance `Dataset`; await the returned [`CreateTable`].
    ///
    /// Over a dropped name the table is revived: the data becomes a new version over the kept history, and the old
    /// rows are never visible. If the commit fails, the table is as dropped as before, under a new drop id.
    ///
    /// Cost beside Lance's own write and commit: a look at the name, 2 GET and 1 LIST together, which is all where nothing is
    /// there; then over an absent name 1 LIST for each 1,000 files written, 1 PUT, 1 DELETE; over a dropped name 4
    /// reads, 1 LIST, 1 PUT, 3 DELETE, 1 read; over a live table with
    /// [`CreateMode::Overwrite`](crate::CreateMode::Overwrite) 1 LIST, an open, 2 HEAD, a HEAD for each file written (a
    /// LIST of the table's data when they are more than 16), 1 PUT, 1 DELETE.
    ///
    /// In a namespace the table is written to a directory of its own and then registered, so that it is there wholly or
    /// not at all: beside Lance's own write and commit 1 LIST, one commit to the namespace manifest (8 requests) and 1 LIST;
    /// some reads more after commits of others. Over a declared or a live table as at the root.
    ///
    /// # Errors
    /// [`Error::InvalidIdent`] before any I/O; [`Error::TableAlreadyExists`] by mode; [`Error::NamespaceNotFound`];
    /// [`Error::PurgeInProgress`],
    /// [`Error::RestoreInProgress`] and [`Error::Conflict`] when others are at it.
    pub fn create_table(
        &self,
        ident: impl Into<TableIdent>,
        data: impl Into<TableData>,
    ) -> CreateTable {
        CreateTable::new(self.clone(), ident.into(), data.into())
    }

    /// Declares a table: reserves the name, without data, for a later [`create_table`](Self::create_table) or a
    /// writer of Lance's own. Returns the URI to write to. 6 requests; in a namespace 1 LIST, 1 PUT, one commit to the
    /// namespace manifest (8 requests) and 1 LIST.
    ///
    /// # Errors
    /// [`Error::TableAlreadyExists`] for a live or declared name, [`Error::TableDropped`] for a dropped one.
    pub async fn declare_table(&self, ident: impl Into<TableIdent>) -> Result<String> {
        declare(self, &ident.into()).await
    }

    /// Opens a table as a Lance `Dataset`: the latest version, or the one that the returned [`OpenTable`] is told.
    ///
    /// Cost: Lance's own open, and beside it 2 GET and the resolution of the manifest once more; no more round trips
    /// than Lance's own open. In a namespace: 1 LIST, then Lance's own open; some reads more after commits to the
    /// namespace manifest by others.
    ///
    /// # Errors
    /// [`Error::TableDropped`], [`Error::TableDeregistered`], [`Error::TableNotFound`] (which says whether the table
    /// is missing, declared, incomplete or being created), [`Error::VersionNotFound`].
    pub fn open_table(&self, ident: impl Into<TableIdent>) -> OpenTable {
        OpenTable::new(self.clone(), ident.into())
    }

    /// The names of all root tables that are not dropped, sorted: 1 LIST for each 1,000 children of the root, and
    /// no request for any single table. So names that are only declared, incomplete, or deregistered by a stock client
    /// are among them; [`list_tables`](Self::list_tables) can leave those out.
    ///
    /// Memory: the names of all tables and drops, about 50 bytes and its length each; on an object store the paths of
    /// the root's children too, while they are read. [`ListTables::stream`] needs less.
    pub async fn table_names(&self) -> Result<Vec<String>> {
        listing::visible_names(self.store()).await
    }

    /// Lists root tables, or those in a namespace ([`ListTables::namespace`]), in pages or as a stream. Root tables: ⌈names/1000⌉ LIST a page and at most 2 more, however many tables
    /// there are, on S3, Azure and Google Cloud Storage (with a wrapper of the store: if it passes paged listings on);
    /// a few more where most of the root's children are drops. Elsewhere a page costs a listing of the whole root.
    /// Each name comes once; the order is that of the store's keys.
    ///
    /// Memory: where a page costs so few LIST, the names of the page and at most 1,000 children of the root; elsewhere,
    /// and without a limit, as [`table_names`](Self::table_names).
    pub fn list_tables(&self) -> ListTables {
        ListTables::new(self.clone())
    }

    /// The state of a name: 3 requests together (read tombstone, list directory, find the latest version), and then 1
    /// more where the table is dropped (read the claim) or deregistered (read the marker). In a namespace 1 LIST, and then 2
    /// together. A snapshot of no single moment: what matters is decided by the operations.
    pub async fn table_status(&self, ident: impl Into<TableIdent>) -> Result<TableState> {
        table_state(self, &ident.into()).await
    }

    /// Whether the table can be opened; the cost of [`table_status`](Self::table_status), in a namespace 1 request less.
    pub async fn table_exists(&self, ident: impl Into<TableIdent>) -> Result<bool> {
        let ident = ident.into();
        match ident.is_child() {
            true => child::open::exists(self, &ident).await,
            false => Ok(table_state(self, &ident).await?.is_live()),
        }
    }

    /// Drops a table: hides it from everybody and keeps everything; await the returned [`DropTable`]. A table in a
    /// namespace is deleted at once in this version, which the [`outcome`](DroppedTable::outcome) tells.
    ///
    /// Cost: 5 requests in 4 round trips whatever the table's size, hidden after the second; with the old manifest
    /// names 1 LIST for each 1,000 versions. While a create or an overwrite of the table is being committed, the drop
    /// waits for it. In a namespace: 1 LIST, a look and one commit to the namespace manifest (10 requests), 1 LIST, and ⌈K/1000⌉ LIST and
    /// bulk deletes and 1 LIST for a table of K objects.
    ///
    /// # Errors
    /// [`Error::TableNotFound`] when there is none, also when somebody else dropped it first; [`Error::Conflict`] when a purge
    /// came in between and it cannot tell whether that was of this drop or of one before it.
    pub fn drop_table(&self, ident: impl Into<TableIdent>) -> DropTable {
        DropTable::new(self.clone(), ident.into())
    }

    /// Drops every root table that is not dropped, with the default retention: the cost of
    /// [`table_names`](Self::table_names), and of a drop and 1 GET for each. What another client deregistered stays
    /// as it is, to be kept until it is purged by name.
    ///
    /// # Errors
    /// The first error, after every table was tried.
    pub async fn drop_all_tables(&self) -> Result<Vec<DroppedTable>> {
        let names = self.table_names().await?;
        let outcomes: Vec<_> = futures::stream::iter(names)
            .map(|name| async move {
                let slot = root::reading_slot(self.store(), &TableIdent::from(&name))?;
                match self.lifecycle().read_marker(&slot).await? {
                    Marker::Foreign => Ok(None),
                    _ => self.drop_table(name).if_exists().await,
                }
            })
            .buffered(TOGETHER)
            .collect()
            .await;
        let mut dropped = Vec::new();
        for outcome in outcomes {
            dropped.extend(outcome?);
        }
        Ok(dropped)
    }

    /// Restores a dropped root table as it was, or one that another client deregistered; await the returned
    /// [`UndropTable`]. Gives the drop that is undone.
    /// 8 requests in 6 round trips.
    ///
    /// # Errors
    /// [`Error::TableNotDropped`] and [`Error::TableNotFound`]; [`Error::PurgeInProgress`] or
    /// [`Error::RestoreInProgress`] when somebody else decided first.
    pub fn undrop_table(&self, ident: impl Into<TableIdent>) -> UndropTable {
        UndropTable::new(self.clone(), ident.into())
    }

    /// Every dropped root table, oldest drop first: the listing of the root and 1 GET for each.
    pub async fn list_dropped_tables(&self) -> Result<Vec<DroppedTable>> {
        let read = listing::read_tombstones(self).await?;
        Ok(read.iter().map(|(slot, t)| t.public(&slot.ident)).collect())
    }

    /// Deletes a dropped root table for good, expired or not; await the returned [`PurgeTable`].
    ///
    /// Cost for K objects: ⌈K/1000⌉ LIST, ⌈K/1000⌉ bulk deletes with a GET before each (the store's client may split a
    /// bulk delete: Azure takes 256 keys, Google Cloud Storage 1), and 8 requests more, some more where the latest manifest is
    /// larger than 64 KiB or others write into the table meanwhile; beyond 4,000 objects 2 to 4 LIST more, and 1 for each
    /// 1,000 manifests, refs and objects of branches. On local disk a rename and the deletion of the directory. Memory: at
    /// most 6,000 objects' names and sizes (about 2 MB), however many there are.
    /// Under managed versioning 1 HEAD more, and a wait until the drop is a
    /// [commit window](CatalogBuilder::commit_window) old.
    ///
    /// # Errors
    /// [`Error::TableNotDropped`] for a live table, [`Error::TableNotFound`],
    /// [`Error::RestoreInProgress`] or [`Error::PurgeInProgress`] when somebody else decided first; [`Error::Conflict`] when
    /// the drop was finished meanwhile and the table was dropped again: repeated, the call purges that later drop, unless it
    /// names the [`drop_id`](PurgeTable::drop_id) that it means.
    pub fn purge_table(&self, ident: impl Into<TableIdent>) -> PurgeTable {
        PurgeTable::new(self.clone(), ident.into())
    }

    /// Purges many dropped tables: the cost of [`list_dropped_tables`](Self::list_dropped_tables) and of a purge for
    /// each that qualifies. What fails for one table does not keep the others from being purged: see
    /// [`PurgeReport::failures`]. 8 go on at a time: in memory are the objects that so many hold, and the drops.
    ///
    /// # Errors
    /// Only when the root cannot be listed or a tombstone cannot be read.
    pub async fn purge_dropped(&self, which: Purge) -> Result<PurgeReport> {
        let now = self.store().clock.now();
        let due: Vec<_> = listing::read_tombstones(self)
            .await?
            .into_iter()
            .filter(|(_, t)| t.parse_error.is_none())
            .filter(|(_, t)| match which.which {
                Which::Expired => t.expires_at().is_some_and(|at| at <= now),
                Which::All => true,
                Which::DroppedBefore(time) => t.deleted_at < time,
            })
            .collect();
        let terms = match which.which {
            Which::Expired => Terms::IfExpired,
            Which::All | Which::DroppedBefore(_) => Terms::None,
        };
        let lifecycle = self.lifecycle();
        let outcomes: Vec<_> = futures::stream::iter(due)
            .map(|(slot, tombstone)| async move {
                let outcome = if which.dry_run {
                    lifecycle.measure(&slot, tombstone.drop_id).await.map(Some)
                } else {
                    lifecycle.purge_due(&slot, tombstone, terms).await
                };
                (slot.ident, outcome)
            })
            .buffered(TOGETHER)
            .collect()
            .await;
        let mut report = PurgeReport {
            dry_run: which.dry_run,
            ..Default::default()
        };
        for (ident, outcome) in outcomes {
            match outcome {
                Ok(Some(purged)) => report.tables.push(purged),
                // Restored or purged by somebody else between the listing and now.
                Ok(None) => {}
                Err(error) => report.failures.push((ident, error)),
            }
        }
        Ok(report)
    }

    /// Looks for everything that stopped processes and other clients left: half-done restores, purges and creates,
    /// claims and purge directories without a tombstone, half-written records, markers that disagree with the tombstone, incomplete and
    /// deregistered tables, unreadable records, and in namespaces missing parents, missing locations and directories
    /// that nobody names. Finishes or removes what is the catalog's own and due; with
    /// `dry_run` only tells. A second run finds nothing that the first one could mend.
    ///
    /// Cost: the listing of the root, 3 to 4 requests for each table, 2 to 4 for each drop, a scan of the namespace
    /// manifest, 1 to 2 requests for each table in a namespace, and the work itself.
    ///
    /// # Errors
    /// Only when the root, or the namespace manifest, cannot be read; what fails for one name is in its finding.
    pub async fn reconcile(&self, dry_run: bool) -> Result<ReconcileReport> {
        reconcile::reconcile(self, dry_run).await
    }
}
