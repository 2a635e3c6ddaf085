//! Root tables: one directory `<root>/<name>.lance` each, readable by every stock Lance client.
//!
//! Promises: what is dropped is not opened, and a create never shows old rows. Refuses: names that leave the root,
//! and opening what only looks like a table.

use std::sync::Arc;

use lance::dataset::Dataset;
use lance::dataset::builder::DatasetBuilder;
use lance::dataset::transaction::{Operation, Transaction};
use lance_table::io::commit::CommitHandler;
use uuid::Uuid;

use crate::catalog::Catalog;
use crate::error::{Error, Result, from_lance};
use crate::ident::{self, TableIdent};
use crate::lifecycle::Moment;
use crate::managed::ManagedCommitHandler;
use crate::store::{RootStore, Slot};

pub(crate) mod create;
pub(crate) mod data;
pub(crate) mod declare;
pub(crate) mod open;
pub(crate) mod status;

/// The slot of a table that is to be created.
pub(crate) fn new_slot(store: &RootStore, ident: &TableIdent) -> Result<Slot> {
    ident::check_new(root_name(ident)?, store.max_name_len())?;
    Slot::root(store, ident)
}

/// The slot of a table that is to be dropped, restored or purged: its name must leave room for the records of that.
pub(crate) fn dropping_slot(store: &RootStore, ident: &TableIdent) -> Result<Slot> {
    ident::check_existing(root_name(ident)?, store.max_name_len())?;
    Slot::root(store, ident)
}

/// The slot of a table that is only read.
pub(crate) fn reading_slot(store: &RootStore, ident: &TableIdent) -> Result<Slot> {
    ident::check_existing(root_name(ident)?, usize::MAX)?;
    Slot::root(store, ident)
}

fn root_name(ident: &TableIdent) -> Result<&str> {
    match ident.parts() {
        [name] => Ok(name),
        [] => Err(Error::InvalidIdent {
            name: String::new(),
            rule: "a table id has at least one part".to_string(),
        }),
        _ => Err(Error::Unsupported {
            message: format!(
                "table id {ident}: the drop of a table in a namespace is immediate in this version, so there is nothing \
                 to restore or to purge"
            ),
        }),
    }
}

/// Opens what is in the directory of a table, hidden or not: the requests of `Dataset` open.
pub(crate) async fn load(store: &RootStore, slot: &Slot) -> Result<Dataset> {
    load_with(store, slot, store.commit_handler.clone(), None).await
}

/// The same, in one version, with the commit handler that the catalog gives to its users.
pub(crate) async fn load_for(
    catalog: &Catalog,
    slot: &Slot,
    version: Option<u64>,
) -> Result<Dataset> {
    let handler = Handler::of(catalog, slot);
    let dataset = load_with(catalog.store(), slot, handler.for_lance.clone(), version).await?;
    handler.opened(&dataset, None);
    Ok(dataset)
}

/// The commit handler of a dataset that is given to a user.
pub(crate) struct Handler {
    pub(crate) for_lance: Arc<dyn CommitHandler>,
    managed: Option<Arc<ManagedCommitHandler>>,
}

impl Handler {
    pub(crate) fn of(catalog: &Catalog, slot: &Slot) -> Self {
        let managed = catalog
            .is_managed()
            .then(|| Arc::new(ManagedCommitHandler::new(catalog, slot)));
        let for_lance: Arc<dyn CommitHandler> = match &managed {
            Some(managed) => managed.clone(),
            None => catalog.store().commit_handler.clone(),
        };
        Self { for_lance, managed }
    }

    /// The dataset was opened with it; `seen`: from before a look that found its table not hidden.
    pub(crate) fn opened(&self, dataset: &Dataset, seen: Option<Moment>) {
        if let Some(managed) = &self.managed {
            managed.opened(dataset, seen);
        }
    }
}

async fn load_with(
    store: &RootStore,
    slot: &Slot,
    handler: Arc<dyn CommitHandler>,
    version: Option<u64>,
) -> Result<Dataset> {
    let mut builder = DatasetBuilder::from_uri(&slot.uri)
        .with_store_params(store.params.clone())
        .with_session(store.session.clone())
        .with_commit_handler(handler);
    if let Some(version) = version {
        builder = builder.with_version(version);
    }
    builder
        .load()
        .await
        .map_err(|e| from_lance(e, "open", &slot.ident, &store.redactor))
}

/// The version that the transaction made, if it is in the lineage above `base`: opens the table, then 1 to 2 requests a
/// version above it.
pub(crate) async fn committed_version(
    store: &RootStore,
    slot: &Slot,
    base: Option<u64>,
    transaction: Uuid,
) -> Result<Option<u64>> {
    if store.latest_manifest(&slot.table).await?.is_none() {
        return Ok(None);
    }
    let dataset = load(store, slot).await?;
    let wanted = transaction.to_string();
    for version in (base.unwrap_or(0).saturating_add(1)..=dataset.version().version).rev() {
        match dataset.read_transaction_by_version(version).await {
            Ok(Some(found)) if found.uuid == wanted => return Ok(Some(version)),
            Ok(_) => {}
            // Another client's clean-up removed it; ours is younger than any clean-up takes.
            Err(e) if crate::store::is_not_found(&e) => {}
            Err(e) => {
                return Err(from_lance(
                    e,
                    "read the history of",
                    &slot.ident,
                    &store.redactor,
                ));
            }
        }
    }
    Ok(None)
}

/// The data files that a transaction adds to the table's own base, relative to its data directory.
pub(crate) fn data_files(transaction: &Transaction) -> Vec<&str> {
    let Operation::Overwrite { fragments, .. } = &transaction.operation else {
        return Vec::new();
    };
    fragments
        .iter()
        .flat_map(|f| &f.files)
        .filter(|f| f.base_id.is_none())
        .map(|f| f.path.as_str())
        .collect()
}
