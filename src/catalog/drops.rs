//! Drops, undrops and purges about to be made.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::catalog::Catalog;
use crate::child;
use crate::error::{Error, Result};
use crate::ident::TableIdent;
use crate::lifecycle::{DroppedTable, PurgedTable};
use crate::root;

/// A drop about to be made; await it. See [`Catalog::drop_table`].
///
/// Awaiting gives the [`DroppedTable`], whose `outcome` says whether the data is kept; after [`if_exists`](Self::if_exists) use [`DropTableIfExists`].
#[derive(Debug, Clone)]
#[must_use = "a drop does nothing until it is awaited"]
pub struct DropTable {
    catalog: Catalog,
    ident: TableIdent,
    /// As asked for; else the catalog's default.
    retention: Option<Option<Duration>>,
    reason: Option<String>,
}

impl DropTable {
    pub(super) fn new(catalog: Catalog, ident: TableIdent) -> Self {
        Self {
            catalog,
            ident,
            retention: None,
            reason: None,
        }
    }

    /// Keep this drop so long, whatever the catalog's default; `None`: until purged by name.
    pub fn retention(mut self, retention: impl Into<Option<Duration>>) -> Self {
        self.retention = Some(retention.into());
        self
    }

    /// Why, for who lists the dropped tables later.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Answer `None` where there is no such table.
    pub fn if_exists(self) -> DropTableIfExists {
        DropTableIfExists(self)
    }

    async fn run(self) -> Result<DroppedTable> {
        if self.ident.is_child() {
            if self.retention.is_some() {
                return Err(Error::Unsupported {
                    message: format!(
                        "table id {}: the drop of a table in a namespace is immediate in this version, so it cannot be \
                         given a retention",
                        self.ident
                    ),
                });
            }
            return child::drop::drop_table(&self.catalog, &self.ident, self.reason).await;
        }
        let slot = root::dropping_slot(self.catalog.store(), &self.ident)?;
        let retention = self.retention.unwrap_or(self.catalog.inner.retention);
        self.catalog
            .lifecycle()
            .drop_table(&slot, retention, self.reason)
            .await
    }
}

impl IntoFuture for DropTable {
    type Output = Result<DroppedTable>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// A drop that is content with there being no table. See [`DropTable::if_exists`].
#[derive(Debug, Clone)]
#[must_use = "a drop does nothing until it is awaited"]
pub struct DropTableIfExists(DropTable);

impl IntoFuture for DropTableIfExists {
    type Output = Result<Option<DroppedTable>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            match self.0.run().await {
                Ok(dropped) => Ok(Some(dropped)),
                Err(Error::TableNotFound { .. }) => Ok(None),
                Err(e) => Err(e),
            }
        })
    }
}

/// An undrop about to be made; await it. See [`Catalog::undrop_table`].
#[derive(Debug, Clone)]
#[must_use = "an undrop does nothing until it is awaited"]
pub struct UndropTable {
    catalog: Catalog,
    ident: TableIdent,
    drop_id: Option<Uuid>,
}

impl UndropTable {
    pub(super) fn new(catalog: Catalog, ident: TableIdent) -> Self {
        Self {
            catalog,
            ident,
            drop_id: None,
        }
    }

    /// Undo this drop and no later one of the same name: [`Error::TableNotFound`] if it is over.
    pub fn drop_id(mut self, drop_id: Uuid) -> Self {
        self.drop_id = Some(drop_id);
        self
    }
}

impl IntoFuture for UndropTable {
    type Output = Result<DroppedTable>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let slot = root::dropping_slot(self.catalog.store(), &self.ident)?;
            self.catalog.lifecycle().undrop(&slot, self.drop_id).await
        })
    }
}

/// A purge about to be made; await it. See [`Catalog::purge_table`].
#[derive(Debug, Clone)]
#[must_use = "a purge does nothing until it is awaited"]
pub struct PurgeTable {
    catalog: Catalog,
    ident: TableIdent,
    drop_id: Option<Uuid>,
    dry_run: bool,
}

impl PurgeTable {
    pub(super) fn new(catalog: Catalog, ident: TableIdent) -> Self {
        Self {
            catalog,
            ident,
            drop_id: None,
            dry_run: false,
        }
    }

    /// Purge this drop and no later one of the same name: [`Error::TableNotFound`] if it is over.
    pub fn drop_id(mut self, drop_id: Uuid) -> Self {
        self.drop_id = Some(drop_id);
        self
    }

    /// Only tell what would be deleted: ⌈K/1000⌉ LIST and 2 GET.
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }
}

impl IntoFuture for PurgeTable {
    type Output = Result<PurgedTable>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let slot = root::dropping_slot(self.catalog.store(), &self.ident)?;
            self.catalog
                .lifecycle()
                .purge_named(&slot, self.drop_id, self.dry_run)
                .await
        })
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Which {
    Expired,
    All,
    DroppedBefore(DateTime<Utc>),
}

/// Which drops [`Catalog::purge_dropped`] purges. A drop whose record cannot be read is never among them: purge it
/// by name.
#[derive(Debug, Clone, Copy)]
pub struct Purge {
    pub(super) which: Which,
    pub(super) dry_run: bool,
}

impl Purge {
    /// Those whose retention is over, by the catalog's clock and by the store's own.
    pub fn expired() -> Self {
        Self {
            which: Which::Expired,
            dry_run: false,
        }
    }

    /// All, also those that are to be kept.
    pub fn all() -> Self {
        Self {
            which: Which::All,
            dry_run: false,
        }
    }

    /// All that were dropped before this time, also those that are to be kept.
    pub fn dropped_before(time: DateTime<Utc>) -> Self {
        Self {
            which: Which::DroppedBefore(time),
            dry_run: false,
        }
    }

    /// Only tell what would be deleted.
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }
}
