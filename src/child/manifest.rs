//! `<root>/__manifest`: its creation, which has to happen once, and its rows.

use arrow::array::{Array, AsArray};
use futures::TryStreamExt;
use lance::dataset::builder::DatasetBuilder;
use lance_namespace_impls::dir::manifest::ManifestNamespace;

use crate::catalog::Catalog;
use crate::error::{Error, Result, Subject, from_base, from_lance};
use crate::ident::{DELIMITER, NamespaceIdent, TableIdent};
use crate::lifecycle::Patience;
use crate::store::{RootStore, Slot};

/// The name of the manifest's directory.
pub(crate) const NAME: &str = "__manifest";

fn slot(store: &RootStore) -> Result<Slot> {
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
        true,
        None,
    )
    .await;
    let subject = Subject::Namespace(&NamespaceIdent::root());
    made.map(|_| ())
        .map_err(|e| from_base(e, "create the manifest of", subject, &store.redactor))
}

/// One row of the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) id: Vec<String>,
    pub(crate) is_table: bool,
    /// Relative to the root.
    pub(crate) location: Option<String>,
}

/// The rows whose id satisfies the filter, in one scan; none where there is no manifest.
async fn rows(store: &RootStore, filter: &str) -> Result<Vec<Row>> {
    let slot = slot(store)?;
    let failed = |e| from_lance(e, "read", &slot.ident, &store.redactor);
    let opened = DatasetBuilder::from_uri(&slot.uri)
        .with_store_params(store.params.clone())
        .with_session(store.session.clone())
        .load()
        .await;
    let dataset = match opened {
        Ok(dataset) => dataset,
        // Whether there is none is looked at only then: almost always there is one.
        Err(e) => match store.latest_manifest(&slot.table).await? {
            None => return Ok(Vec::new()),
            Some(_) => return Err(failed(e)),
        },
    };
    let mut scanner = dataset.scan();
    scanner
        .project(&["object_id", "object_type", "location"])
        .and_then(|s| s.filter(filter))
        .map_err(failed)?;
    let mut batches = scanner.try_into_stream().await.map_err(failed)?;
    let mut rows = Vec::new();
    while let Some(batch) = batches.try_next().await.map_err(failed)? {
        let column = |name: &str| {
            let column = batch.column_by_name(name);
            column
                .and_then(|c| c.as_string_opt::<i32>())
                .ok_or_else(|| Error::CorruptMetadata {
                    path: slot.table.to_string(),
                    message: format!("no text column {name}"),
                })
        };
        let (ids, kinds, locations) = (
            column("object_id")?,
            column("object_type")?,
            column("location")?,
        );
        for row in 0..batch.num_rows() {
            rows.push(Row {
                id: ids
                    .value(row)
                    .split(DELIMITER)
                    .map(str::to_string)
                    .collect(),
                is_table: kinds.value(row) == "table",
                location: locations
                    .is_valid(row)
                    .then(|| locations.value(row).to_string()),
            });
        }
    }
    Ok(rows)
}

/// Every row: the requests of an open and a scan of the manifest.
pub(crate) async fn all(store: &RootStore) -> Result<Vec<Row>> {
    rows(store, "true").await
}

/// What is in the namespace, at any depth.
pub(crate) async fn below(store: &RootStore, namespace: &NamespaceIdent) -> Result<Vec<Row>> {
    let prefix = namespace.parts().join("$").replace('\'', "''");
    rows(store, &format!("starts_with(object_id, '{prefix}$')")).await
}

/// The tables other than `ident` that are stored at the location, above it or below it.
pub(crate) async fn sharing(
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
    let mut found = rows(store, "object_type = 'table'").await?;
    found.retain(|row| {
        row.id != ident.parts()
            && row.location.as_deref().is_some_and(|l| {
                let l = l.trim_matches('/');
                within(l, location) || within(location, l)
            })
    });
    Ok(found)
}

/// Waits a little, in growing steps, while a row that others are about to write is not there.
pub(crate) fn patience() -> Patience {
    Patience::new(super::PUT_BACK)
}
