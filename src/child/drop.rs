//! Drop tables in child namespaces: immediate and final in this version.

use futures::TryStreamExt;
use object_store::path::Path;

use crate::catalog::Catalog;
use crate::child::snapshot::Snapshot;
use crate::child::{check_existing, manifest, not_registered, registered_in};
use crate::error::{Error, Result};
use crate::ident::TableIdent;
use crate::lifecycle::{DropOutcome, DroppedTable, MAX_ROUNDS};
use crate::listing::Entry;
use crate::store::{DELETE_BATCH, RootStore, Slot};

/// Drops the table: takes its row out of the manifest (commit point), then deletes its directory. A directory that is
/// another table's too stays. When the deletion fails, the table is gone all the same; `reconcile` reports what is left.
pub(crate) async fn drop_table(
    catalog: &Catalog,
    ident: &TableIdent,
    reason: Option<String>,
) -> Result<DroppedTable> {
    check_existing(ident)?;
    let (store, manifest) = (catalog.store(), catalog.manifest());
    let Some(seen) = manifest.now(store).await? else {
        return Err(not_registered(ident));
    };
    let Some(slot) = registered_in(store, &seen, ident).await? else {
        return Err(not_registered(ident));
    };
    // The seam of the soft drop: the tombstone `<location>$.deleted` goes here, and the deletion below to the purge.
    manifest.delete(store, ident).await?;
    // Not before: whoever knows the location may have registered it again until then.
    let now = manifest.after_delete(store, &seen, ident.parts()).await?;
    let outcome = if is_shared(store, &now, &slot).await? {
        DropOutcome::Deregistered
    } else {
        remove(catalog, &slot).await?;
        DropOutcome::Deleted
    };
    Ok(DroppedTable::immediate(
        ident,
        store.clock.now(),
        reason,
        outcome,
    ))
}

/// Whether another table is stored there too.
pub(super) async fn is_shared(store: &RootStore, now: &Snapshot, slot: &Slot) -> Result<bool> {
    let sharing = now.sharing(store, &slot.ident, &slot.location);
    Ok(is_anothers(&slot.location) || !sharing.await?.is_empty())
}

/// The same, looked at now.
pub(super) async fn is_shared_now(catalog: &Catalog, slot: &Slot) -> Result<bool> {
    let store = catalog.store();
    match catalog.manifest().now(store).await? {
        Some(now) => is_shared(store, &now, slot).await,
        None => Ok(is_anothers(&slot.location)),
    }
}

/// Whether a location is, or is within, the namespace manifest or what belongs to a root table. A stock client may
/// register it under an id all the same.
pub(crate) fn is_anothers(location: &str) -> bool {
    let first = location.split('/').next().unwrap_or_default();
    first == manifest::NAME
        || matches!(Entry::of_prefix(first), Some(Entry::PurgeDir { .. }))
        || location.split('/').any(|s| s.ends_with(".lance"))
}

/// Whether a location is the directory of a root table, which a stock client may register under other ids.
pub(crate) fn is_root_table(location: &str) -> bool {
    !location.contains('/') && location.ends_with(".lance")
}

/// Deletes the slot's directory, page by page as it is listed, until nothing is listed.
async fn remove(catalog: &Catalog, slot: &Slot) -> Result<()> {
    let store = catalog.store();
    if store.local_path(&slot.table).is_some() {
        return catalog
            .lifecycle()
            .remove_dir(&slot.table)
            .await
            .map(|_| ());
    }
    for _ in 0..MAX_ROUNDS {
        let mut listing = store.list(&slot.table).try_chunks(DELETE_BATCH);
        let mut empty = true;
        while let Some(batch) = listing.try_next().await.map_err(|e| e.1)? {
            empty = false;
            let paths: Vec<Path> = batch.into_iter().map(|o| o.location).collect();
            store.delete_batch(&paths).await?;
        }
        if empty {
            return Ok(());
        }
    }
    Err(Error::Conflict {
        ident: slot.ident.clone(),
        message: "it is dropped, but somebody keeps writing into its directory".to_string(),
    })
}

/// Takes away a directory that was never registered, or is no longer; what is left on failure is litter.
pub(crate) async fn remove_litter(catalog: &Catalog, slot: &Slot) {
    if let Err(error) = remove(catalog, slot).await {
        tracing::warn!(table = %slot.ident, location = slot.location, %error, "a directory that no table uses is left behind");
    }
}
