//! `<root>/__manifest`: its creation, which has to happen once, and its rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use lance_namespace_impls::dir::manifest::{ManifestEntry, ManifestNamespace, ObjectType};
use tokio::sync::{Mutex, MutexGuard};

use crate::catalog::Catalog;
use crate::child::deletion::{Attempt, Deletion};
use crate::child::snapshot::{Change, Raw, Snapshot, View, is_gone};
use crate::error::{Error, Result, Subject, from_base};
use crate::ident::{DELIMITER, NamespaceIdent, TableIdent};
use crate::lifecycle::Patience;
use crate::store::{RootStore, Slot};

/// The name of the manifest's directory.
pub(crate) const NAME: &str = "__manifest";

pub(super) fn slot(store: &RootStore) -> Result<Slot> {
    Slot::at(store, &TableIdent::from(NAME), NAME)
}

/// Brings the manifest into being unless it is there: 1 LIST, and the first time 2 GET, 1 PUT, 1 DELETE and the base's
/// own creation.
///
/// The base creates it with Lance's write of a new table, which replaces what another process has created in between
/// and already put rows into. So only one process at a time may do it.
pub(crate) async fn ensure(catalog: &Catalog) -> Result<()> {
    let store = catalog.store();
    let slot = slot(store)?;
    let lifecycle = catalog.lifecycle();
    let mut patience = lifecycle.patience();
    loop {
        if store.latest_manifest(&slot.table).await?.is_some() {
            return Ok(());
        }
        // Clears away what a stopped process left of this.
        let made = match lifecycle.hidden(&slot).await {
            Ok(_) => lifecycle.alone(&slot, create(store, &slot)).await,
            Err(e) => Err(e),
        };
        match made {
            Ok(()) => return Ok(()),
            Err(e @ (Error::Conflict { .. } | Error::RestoreInProgress { .. })) => {
                if !patience.wait().await {
                    return Err(e);
                }
            }
            Err(e) => return Err(e),
        }
    }
}

async fn create(store: &RootStore, slot: &Slot) -> Result<()> {
    if store.latest_manifest(&slot.table).await?.is_some() {
        return Ok(());
    }
    base(store).await.map(|_| ())
}

async fn base(store: &RootStore) -> Result<ManifestNamespace> {
    let options = store
        .params
        .storage_options()
        .filter(|o| !o.is_empty())
        .cloned();
    let made = ManifestNamespace::from_directory(
        store.root_uri.clone(),
        options,
        Some(store.session.clone()),
        store.store.clone(),
        store.base.clone(),
        false,
        false,
        None,
    )
    .await;
    let root = NamespaceIdent::root();
    let subject = Subject::Namespace(&root);
    made.map_err(|e| from_base(e, "open the manifest of", subject, &store.redactor))
}

/// One row of the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) id: Vec<String>,
    pub(crate) is_table: bool,
    /// Relative to the root.
    pub(crate) location: Option<String>,
    /// What is recorded with it, in JSON.
    pub(crate) metadata: Option<String>,
}

impl From<Raw<'_>> for Row {
    fn from(raw: Raw<'_>) -> Self {
        Self {
            id: raw.id.split(DELIMITER).map(str::to_string).collect(),
            is_table: raw.is_table(),
            location: raw.location.map(str::to_string),
            metadata: raw.metadata.map(str::to_string),
        }
    }
}

impl Row {
    /// The properties that are recorded with it.
    pub(super) fn properties(&self) -> Result<BTreeMap<String, String>> {
        let Some(recorded) = &self.metadata else {
            return Ok(BTreeMap::new());
        };
        serde_json::from_str(recorded).map_err(|e| Error::CorruptMetadata {
            path: NAME.to_string(),
            message: format!("the properties of {:?}: {e}", self.id),
        })
    }
}

/// The namespace manifest as this catalog sees it and writes to it.
#[derive(Default)]
pub(crate) struct Manifest {
    view: View,
    /// Commits of one process take turns: they would only conflict.
    writer: Mutex<Option<Writer>>,
}

/// The base that commits.
struct Writer {
    base: ManifestNamespace,
    /// The version that it has come to, as far as is known.
    at: u64,
}

/// The turn of a commit that is not the base's. It leaves the base behind, so that the next commit makes a new one.
pub(super) struct Turn<'a> {
    _writer: MutexGuard<'a, Option<Writer>>,
}

impl Turn<'_> {
    /// Deletes a table's row, exactly as it was seen. The attempt if others committed in between: it may be gone, or
    /// another one.
    pub(super) async fn delete(
        &self,
        store: &RootStore,
        seen: &Snapshot,
        row: &Row,
    ) -> Result<Option<Attempt>> {
        let location = match &row.location {
            Some(location) => format!("location = {}", quoted(location)),
            None => "location IS NULL".to_string(),
        };
        let id = quoted(&object_id(&row.id));
        let exactly = format!("object_id = {id} AND object_type = 'table' AND {location}");
        let ident = TableIdent::from(&row.id[..]);
        let deleted = seen.delete(store, &exactly).await;
        let deleted = deleted.map_err(|e| not_deleted(store, &ident, e))?;
        match deleted {
            Deletion::Lost(attempt) => Ok(Some(attempt)),
            Deletion::Done(0) => Err(Error::CorruptMetadata {
                path: NAME.to_string(),
                message: format!("the row of {ident} is listed, but not found by its id"),
            }),
            Deletion::Done(_) => Ok(None),
        }
    }
}

impl Manifest {
    /// As it is now, `None` where there is none: 1 LIST; the reads of the manifest and its rows more after a commit, and
    /// where this process has not seen it yet.
    pub(crate) async fn now(&self, store: &RootStore) -> Result<Option<Arc<Snapshot>>> {
        self.view.now(store).await
    }

    /// Commits after what was seen, by a base that has come exactly there: one that is behind looks for the version after
    /// its own only, which may be cleaned up. Whatever did not end well leaves no base behind.
    pub(super) async fn commit<T>(
        &self,
        store: &RootStore,
        seen: &Snapshot,
        work: impl FnOnce(&ManifestNamespace) -> BoxFuture<'_, lance_core::Result<T>> + Send,
    ) -> Result<lance_core::Result<T>> {
        let mut writer = self.writer.lock().await;
        let at = seen.version();
        let base = match writer.take().filter(|writer| writer.at == at) {
            Some(writer) => writer.base,
            None => base(store).await?,
        };
        let done = work(&base).await;
        if done.is_ok() {
            *writer = Some(Writer { base, at: at + 1 });
        }
        Ok(done)
    }

    /// Adds the row of a table to what was seen. Fails if there is a row of the id, whatever it is of.
    pub(super) async fn insert(
        &self,
        store: &RootStore,
        seen: &Snapshot,
        slot: &Slot,
    ) -> Result<()> {
        let entry = ManifestEntry {
            object_id: object_id(slot.ident.parts()),
            object_type: ObjectType::Table,
            location: Some(slot.location.clone()),
            metadata: None,
        };
        let inserted = self.commit(store, seen, |base| {
            base.insert_into_manifest_with_metadata(vec![entry], None)
                .boxed()
        });
        let subject = Subject::Table(&slot.ident);
        inserted
            .await?
            .map_err(|e| from_base(e, "register", subject, &store.redactor))
    }

    /// Whether an attempt to delete the row of this id took effect all the same: 1 read of a version.
    pub(super) async fn landed(
        &self,
        store: &RootStore,
        ident: &TableIdent,
        attempt: &Attempt,
    ) -> Result<bool> {
        let landed = attempt.landed().await;
        landed.map_err(|e| not_deleted(store, ident, e))
    }

    /// Waits until no other commit of this process is under way.
    pub(super) async fn turn(&self) -> Turn<'_> {
        Turn {
            _writer: self.writer.lock().await,
        }
    }

    /// As it is after the row of a slot was added to what was seen: 1 LIST if nothing else was committed since.
    pub(super) async fn after_insert(
        &self,
        store: &RootStore,
        seen: &Snapshot,
        slot: &Slot,
    ) -> Result<Arc<Snapshot>> {
        let id = object_id(slot.ident.parts());
        let added = Change::Added(Raw {
            id: &id,
            kind: "table",
            location: Some(&slot.location),
            metadata: None,
        });
        self.view.after(store, seen, added).await
    }

    /// As it is after the row of an id was taken away from what was seen: 1 LIST if nothing else was committed since.
    pub(super) async fn after_delete(
        &self,
        store: &RootStore,
        seen: &Snapshot,
        parts: &[String],
    ) -> Result<Arc<Snapshot>> {
        let id = object_id(parts);
        self.view.after(store, seen, Change::Removed(&id)).await
    }
}

/// A version of the manifest that is gone says nothing of the table.
fn not_deleted(store: &RootStore, ident: &TableIdent, e: lance_core::Error) -> Error {
    if is_gone(&e) {
        return Error::Conflict {
            ident: ident.clone(),
            message: "the manifest was cleaned up meanwhile".to_string(),
        };
    }
    from_base(e, "deregister", Subject::Table(ident), &store.redactor)
}

fn object_id(parts: &[String]) -> String {
    parts.join("$")
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

impl Snapshot {
    async fn find(&self, store: &RootStore, parts: &[String]) -> Result<Option<Row>> {
        let id = object_id(parts);
        let filter = format!("object_id = {}", quoted(&id));
        let mut rows = self
            .select(store, Some(&filter), |raw| raw.id == id)
            .await?;
        match rows.len() {
            0 | 1 => Ok(rows.pop()),
            n => Err(Error::CorruptMetadata {
                path: NAME.to_string(),
                message: format!("{n} rows of {id:?}"),
            }),
        }
    }

    /// Whether the id is taken, by a table or by a namespace.
    pub(super) async fn holds(&self, store: &RootStore, parts: &[String]) -> Result<bool> {
        Ok(self.find(store, parts).await?.is_some())
    }

    pub(super) async fn table(&self, store: &RootStore, ident: &TableIdent) -> Result<Option<Row>> {
        let found = self.find(store, ident.parts()).await?;
        Ok(found.filter(|row| row.is_table))
    }

    pub(super) async fn namespace(
        &self,
        store: &RootStore,
        ident: &NamespaceIdent,
    ) -> Result<Option<Row>> {
        let found = self.find(store, ident.parts()).await?;
        Ok(found.filter(|row| !row.is_table))
    }

    /// Every row.
    pub(super) async fn all(&self, store: &RootStore) -> Result<Vec<Row>> {
        self.select(store, None, |_| true).await
    }

    /// What is in the namespace, at any depth.
    pub(super) async fn below(
        &self,
        store: &RootStore,
        namespace: &NamespaceIdent,
    ) -> Result<Vec<Row>> {
        let prefix = match namespace.is_root() {
            true => String::new(),
            false => format!("{}$", object_id(namespace.parts())),
        };
        let filter = format!("starts_with(object_id, {})", quoted(&prefix));
        self.select(store, Some(&filter), |raw| raw.id.starts_with(&prefix))
            .await
    }

    /// The tables other than `ident` that are stored at the location, above it or below it.
    pub(super) async fn sharing(
        &self,
        store: &RootStore,
        ident: &TableIdent,
        location: &str,
    ) -> Result<Vec<Row>> {
        let within = |inner: &str, outer: &str| {
            inner == outer
                || inner
                    .strip_prefix(outer)
                    .is_some_and(|rest| rest.starts_with('/'))
        };
        let id = object_id(ident.parts());
        self.select(store, Some("object_type = 'table'"), |raw| {
            let there = raw.location.map(|l| l.trim_matches('/'));
            raw.is_table()
                && raw.id != id
                && there.is_some_and(|l| within(l, location) || within(location, l))
        })
        .await
    }
}

/// Every row; none where there is no manifest.
pub(crate) async fn all(catalog: &Catalog) -> Result<Vec<Row>> {
    let store = catalog.store();
    match catalog.manifest().now(store).await? {
        Some(seen) => seen.all(store).await,
        None => Ok(Vec::new()),
    }
}

/// What is in the namespace, at any depth; nothing where there is no manifest.
pub(super) async fn below(catalog: &Catalog, namespace: &NamespaceIdent) -> Result<Vec<Row>> {
    let store = catalog.store();
    match catalog.manifest().now(store).await? {
        Some(seen) => seen.below(store, namespace).await,
        None => Ok(Vec::new()),
    }
}

/// Waits a little, in growing steps, while a row that others are about to write is not there.
pub(crate) fn patience() -> Patience {
    Patience::new(super::PUT_BACK)
}
