//! Open tables in child namespaces, and tell their state.

use std::collections::BTreeMap;

use lance::dataset::Dataset;
use lance::dataset::builder::DatasetBuilder;

use crate::catalog::Catalog;
use crate::child::{check_existing, not_registered, registered};
use crate::error::{Error, Result, from_lance};
use crate::ident::TableIdent;
use crate::lifecycle::MAX_ROUNDS;
use crate::root;
use crate::root::open::OpenTable;
use crate::root::status::TableState;
use crate::store::{Slot, uri_below};

/// The URI at which the table is registered, and the properties recorded with it: the look at the manifest.
pub(crate) async fn describe(
    catalog: &Catalog,
    ident: &TableIdent,
) -> Result<(String, BTreeMap<String, String>)> {
    check_existing(ident)?;
    let store = catalog.store();
    let row = match catalog.manifest().now(store).await? {
        Some(seen) => seen.table(store, ident).await?,
        None => None,
    };
    let row = row.ok_or_else(|| not_registered(ident))?;
    let location = row.location.as_deref().unwrap_or_default();
    let uri = uri_below(&store.root_uri, location).unwrap_or_default();
    Ok((uri, row.properties()?))
}

/// Opens the table where it is registered: the look at the manifest, then Lance's own open.
pub(crate) async fn open(request: &OpenTable) -> Result<Dataset> {
    let (catalog, ident) = (&request.catalog, &request.ident);
    check_existing(ident)?;
    let store = catalog.store();
    let mut found = registered(catalog, ident).await?;
    for _ in 0..MAX_ROUNDS {
        let Some(slot) = found else {
            return Err(not_registered(ident));
        };
        let handler = root::Handler::of(catalog, &slot);
        let builder = DatasetBuilder::from_uri(&slot.uri)
            .with_store_params(store.params.clone())
            .with_session(store.session.clone())
            .with_commit_handler(handler.for_lance.clone());
        let error = match request.aim(builder).load().await {
            Ok(dataset) => {
                handler.opened(&dataset, None);
                return Ok(dataset);
            }
            Err(e) => from_lance(e, "open", ident, &store.redactor),
        };
        // Dropped, and perhaps created again elsewhere, between the look-up and the open?
        let now = registered(catalog, ident).await?;
        if now.as_ref().is_some_and(|n| n.location == slot.location) {
            return Err(explain(catalog, request, &slot, error).await?);
        }
        found = now;
    }
    Err(Error::Conflict {
        ident: ident.clone(),
        message: "it keeps changing while it is opened".to_string(),
    })
}

async fn explain(
    catalog: &Catalog,
    request: &OpenTable,
    slot: &Slot,
    error: Error,
) -> Result<Error> {
    if !matches!(error, Error::TableNotFound { .. }) {
        return Ok(error);
    }
    let reason = match state_of(catalog, slot).await? {
        TableState::Live { .. } => {
            return Ok(match request.version_wanted() {
                Some(version) => Error::VersionNotFound {
                    ident: slot.ident.clone(),
                    reason: format!("version {version}"),
                },
                None => error,
            });
        }
        TableState::Declared => "it is declared, but nothing was written to it yet".to_string(),
        _ => format!(
            "it is registered at {:?}, where there is no version of a table; drop_table clears it",
            slot.location
        ),
    };
    Ok(Error::TableNotFound {
        ident: slot.ident.clone(),
        reason,
    })
}

async fn state_of(catalog: &Catalog, slot: &Slot) -> Result<TableState> {
    let store = catalog.store();
    let (dir, latest) = tokio::join!(
        store.list_dir(&slot.table),
        store.latest_manifest(&slot.table)
    );
    let (objects, _) = dir?;
    Ok(match latest? {
        Some(manifest) => TableState::Live {
            version: manifest.version,
        },
        None if objects.iter().any(|o| o == ".lance-reserved") => TableState::Declared,
        None => TableState::Incomplete,
    })
}

/// The state of an id: the look at the manifest, then 2 requests together.
pub(crate) async fn table_state(catalog: &Catalog, ident: &TableIdent) -> Result<TableState> {
    check_existing(ident)?;
    match registered(catalog, ident).await? {
        Some(slot) => state_of(catalog, &slot).await,
        None => Ok(TableState::Absent),
    }
}

/// Whether the table can be opened: the look at the manifest, then 1 request.
pub(crate) async fn exists(catalog: &Catalog, ident: &TableIdent) -> Result<bool> {
    check_existing(ident)?;
    match registered(catalog, ident).await? {
        Some(slot) => Ok(catalog
            .store()
            .latest_manifest(&slot.table)
            .await?
            .is_some()),
        None => Ok(false),
    }
}
