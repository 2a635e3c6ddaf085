//! Drop tables in child namespaces: immediate and final in this version.

use std::pin::Pin;

use futures::stream::{BoxStream, Peekable, TryChunks};
use futures::{StreamExt, TryStreamExt};
use object_store::ObjectMeta;
use object_store::path::Path;

use crate::catalog::Catalog;
use crate::child::register::deregister;
use crate::child::snapshot::Snapshot;
use crate::child::{check_existing, manifest, not_registered, registered_in};
use crate::error::{Error, Result};
use crate::ident::TableIdent;
use crate::lifecycle::{DropOutcome, DroppedTable, MAX_ROUNDS};
use crate::listing::Entry;
use crate::store::{DELETE_BATCH, RootStore, Slot};

/// Drops the table: takes its row out of the manifest (commit point), then deletes its directory. Where somebody else takes
/// the row out first there is no such table, and what it left is not touched. A directory that is another table's too, or its
/// own again, stays. When the deletion fails, the table is gone all the same; `reconcile` reports what is left.
pub(crate) async fn drop_table(
    catalog: &Catalog,
    ident: &TableIdent,
    reason: Option<String>,
) -> Result<DroppedTable> {
    check_existing(ident)?;
    let store = catalog.store();
    // The seam of the soft drop: the tombstone `<location>$.deleted` goes here, and the deletion below to the purge.
    let Some((slot, seen)) = deregister(catalog, ident, |_| true).await? else {
        return Err(not_registered(ident));
    };
    // Not before: whoever knows the location may have registered it again until then.
    let now = catalog.manifest().after_delete(store, &seen, ident.parts());
    let mut listing = batches(store, &slot);
    let (now, ()) = tokio::join!(now, begin(&mut listing));
    let now = now?;
    let outcome = if is_used(store, &now, &slot).await? {
        DropOutcome::Deregistered
    } else {
        remove(catalog, &slot, listing).await?;
        DropOutcome::Deleted
    };
    Ok(DroppedTable::immediate(
        ident,
        store.clock.now(),
        reason,
        outcome,
    ))
}

/// Whether a table is stored there: another one, or again that of the id, registered at once by somebody else.
async fn is_used(store: &RootStore, now: &Snapshot, slot: &Slot) -> Result<bool> {
    let again = registered_in(store, now, &slot.ident).await?;
    if is_anothers(&slot.location) || again.is_some_and(|again| again.location == slot.location) {
        return Ok(true);
    }
    let sharing = now.sharing(store, &slot.ident, &slot.location);
    Ok(!sharing.await?.is_empty())
}

/// The same, looked at now.
pub(super) async fn is_used_now(catalog: &Catalog, slot: &Slot) -> Result<bool> {
    let store = catalog.store();
    match catalog.manifest().now(store).await? {
        Some(now) => is_used(store, &now, slot).await,
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

/// What is listed of a directory, in batches; of none on local disk, where the directory is removed.
type Batches<'a> = Option<Peekable<TryChunks<BoxStream<'a, Result<ObjectMeta>>>>>;

fn batches<'a>(store: &'a RootStore, slot: &'a Slot) -> Batches<'a> {
    match store.local_path(&slot.table) {
        Some(_) => None,
        None => Some(store.list(&slot.table).try_chunks(DELETE_BATCH).peekable()),
    }
}

/// Sends for the first batch.
async fn begin(listing: &mut Batches<'_>) {
    if let Some(listing) = listing {
        Pin::new(listing).peek().await;
    }
}

/// Deletes the slot's directory, page by page as it is listed, until nothing is listed.
async fn remove<'a>(catalog: &'a Catalog, slot: &'a Slot, begun: Batches<'a>) -> Result<()> {
    let store = catalog.store();
    let Some(mut listing) = begun else {
        let removed = catalog.lifecycle().remove_dir(&slot.table).await;
        return removed.map(|_| ());
    };
    for _ in 0..MAX_ROUNDS {
        let mut empty = true;
        while let Some(batch) = listing.try_next().await.map_err(|e| e.1)? {
            empty = false;
            let paths: Vec<Path> = batch.into_iter().map(|o| o.location).collect();
            store.delete_batch(&paths).await?;
        }
        if empty {
            return Ok(());
        }
        listing = store.list(&slot.table).try_chunks(DELETE_BATCH).peekable();
    }
    Err(Error::Conflict {
        ident: slot.ident.clone(),
        message: "it is dropped, but somebody keeps writing into its directory".to_string(),
    })
}

/// Takes away a directory that was never registered, or is no longer; what is left on failure is litter.
pub(crate) async fn remove_litter(catalog: &Catalog, slot: &Slot) {
    if let Err(error) = remove(catalog, slot, batches(catalog.store(), slot)).await {
        tracing::warn!(table = %slot.ident, location = slot.location, %error, "a directory that no table uses is left behind");
    }
}
