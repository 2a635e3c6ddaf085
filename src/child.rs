//! Tables in child namespaces, and the namespaces themselves, over a manifest-backed directory namespace.
//!
//! What exists, and where it is stored, is one row each in `<root>/__manifest`, a Lance table of the base's (format:
//! the Lance directory namespace specification, V2); a table's directory is `<root>/<hash>_<id>`, never used again.
//!
//! Promises: a table is registered only when its first version is complete, so a create is there wholly or not at all,
//! and of several creates of one id exactly one wins; a namespace never vanishes from above what was created in it
//! meanwhile; a row is taken out by exactly one drop or deregistration, which alone is told so, and a drop deletes only
//! what its own commit took out; `__manifest` comes into being with the first write, once, and never through a read.
//! Refuses: ids that the manifest cannot hold (with `$`), registering what is outside the root or belongs to another
//! table, and names that are not new ones of the catalog's own rule for whatever is created.
//!
//! Costs: every look goes by the version of `__manifest` that the catalog remembers, 1 LIST while nobody commits to it;
//! after a commit 1 LIST tells that nothing came in between, or what did. What adds a row is a commit of the base's own;
//! what takes a table's row out is Lance's deletion of exactly the row that was seen. So no operation sends more requests
//! than the base's own (`tests/integration/children/costs.rs`).
//! Memory: about 150 bytes for each row, up to 100,000 rows; a larger manifest is scanned with a filter.
//!
//! Not promised: a drop of a table in a namespace cannot be taken back in this version. Stock clients on the same root
//! do not look again after a drop of a namespace, and two of them that use a fresh root for the first time can lose one's
//! first row. A stock client that drops or deregisters a table is not told that somebody else took it out meanwhile: what
//! it then deletes, or believes to have kept, is its own affair.

use std::sync::Arc;

use crate::catalog::Catalog;
use crate::child::manifest::Row;
use crate::child::snapshot::Snapshot;
use crate::error::{Error, Result};
use crate::ident::{self, NamespaceIdent, TableIdent};
use crate::lifecycle::Patience;
use crate::store::{RootStore, Slot, uri_below};

pub(crate) mod create;
mod deletion;
pub(crate) mod drop;
pub(crate) mod list;
pub(crate) mod manifest;
pub(crate) mod namespaces;
pub(crate) mod open;
pub(crate) mod reconcile;
pub(crate) mod register;
mod snapshot;

/// How long a namespace that is missing is waited for: who dropped it may be putting it back.
const PUT_BACK: std::time::Duration = std::time::Duration::from_secs(2);

/// Checks the id of a table that is to be created.
pub(crate) fn check_new(store: &RootStore, ident: &TableIdent) -> Result<()> {
    ident::check_new_parts(ident.parts(), store.max_child_id_len())
}

/// Checks the id of a table that somebody made.
pub(crate) fn check_existing(ident: &TableIdent) -> Result<()> {
    ident::check_existing_parts(ident.parts())
}

/// Where the table is registered, if it is: the look at the manifest.
pub(crate) async fn registered(catalog: &Catalog, ident: &TableIdent) -> Result<Option<Slot>> {
    let store = catalog.store();
    match catalog.manifest().now(store).await? {
        Some(seen) => registered_in(store, &seen, ident).await,
        // Without a manifest there are no namespaces either.
        None => Ok(None),
    }
}

/// Where the table is registered, which it must be.
pub(crate) async fn must_be_registered(catalog: &Catalog, ident: &TableIdent) -> Result<Slot> {
    match registered(catalog, ident).await? {
        Some(slot) => Ok(slot),
        None => Err(not_registered(ident)),
    }
}

/// Where the table is registered as far as was seen, if it is.
async fn registered_in(
    store: &RootStore,
    seen: &Snapshot,
    ident: &TableIdent,
) -> Result<Option<Slot>> {
    let row = seen.table(store, ident).await?;
    row.map(|row| slot_of(store, ident, &row)).transpose()
}

fn slot_of(store: &RootStore, ident: &TableIdent, row: &Row) -> Result<Slot> {
    let recorded = row.location.as_deref().unwrap_or_default();
    let uri = uri_below(&store.root_uri, recorded).unwrap_or_default();
    let Some(location) = store.location_of(&uri) else {
        return Err(Error::CorruptMetadata {
            path: manifest::NAME.to_string(),
            message: format!("{ident} is registered at {recorded:?}, which is not below the root"),
        });
    };
    Slot::at_uri(store, ident, &location, uri)
}

pub(crate) fn not_registered(ident: &TableIdent) -> Error {
    Error::TableNotFound {
        ident: ident.clone(),
        reason: "no such table is registered".to_string(),
    }
}

/// Whether the namespace exists. The root always does.
pub(crate) async fn namespace_exists(catalog: &Catalog, ident: &NamespaceIdent) -> Result<bool> {
    if ident.is_root() {
        return Ok(true);
    }
    let store = catalog.store();
    match catalog.manifest().now(store).await? {
        Some(seen) => exists_in(store, &seen, ident).await,
        None => Ok(false),
    }
}

async fn exists_in(store: &RootStore, seen: &Snapshot, ident: &NamespaceIdent) -> Result<bool> {
    Ok(ident.is_root() || seen.namespace(store, ident).await?.is_some())
}

fn missing(ident: &NamespaceIdent) -> Error {
    Error::NamespaceNotFound {
        ident: ident.clone(),
    }
}

/// The namespace must exist before anything is put into it; finding that it does not writes nothing.
pub(crate) async fn must_exist(catalog: &Catalog, ident: &NamespaceIdent) -> Result<()> {
    match namespace_exists(catalog, ident).await? {
        true => Ok(()),
        false => Err(missing(ident)),
    }
}

/// What the manifest holds before a new table of the id is made: its namespace, and nothing of its own id.
async fn room_for(catalog: &Catalog, ident: &TableIdent) -> Result<Arc<Snapshot>> {
    let (store, parent) = (catalog.store(), ident.namespace());
    let Some(seen) = catalog.manifest().now(store).await? else {
        return Err(missing(&parent));
    };
    must_have_room(store, &seen, ident).await?;
    Ok(seen)
}

async fn must_have_room(store: &RootStore, seen: &Snapshot, ident: &TableIdent) -> Result<()> {
    if seen.holds(store, ident.parts()).await? {
        return Err(Error::TableAlreadyExists {
            ident: ident.clone(),
        });
    }
    for depth in 1..ident.parts().len() {
        let above = NamespaceIdent::from(&ident.parts()[..depth]);
        if !exists_in(store, seen, &above).await? {
            return Err(missing(&ident.namespace()));
        }
    }
    Ok(())
}

/// Whether the namespace is still there after something was put into it: who dropped it meanwhile looks again too,
/// and puts it back if it saw what was put in.
pub(crate) async fn still_exists(catalog: &Catalog, ident: &NamespaceIdent) -> Result<bool> {
    let mut patience = Patience::new(PUT_BACK);
    loop {
        // What was put in is there: a look that fails once does not make that a failure.
        let found = namespace_exists(catalog, ident).await;
        if matches!(found, Ok(true)) || !patience.wait().await {
            return found;
        }
    }
}

/// Where a table is registered after it was written to.
pub(crate) async fn registered_still(
    catalog: &Catalog,
    ident: &TableIdent,
) -> Result<Option<Slot>> {
    let mut patience = Patience::new(PUT_BACK);
    loop {
        let found = registered(catalog, ident).await;
        if found.is_ok() || !patience.wait().await {
            return found;
        }
    }
}

/// A registration that failed.
struct NotRegistered {
    error: Error,
    /// Whether the row is known not to be there, and not to appear yet.
    surely: bool,
}

/// Registers the table of a slot under its id. When the answer is an error, the manifest itself tells what became of
/// it.
async fn register(catalog: &Catalog, slot: &Slot, seen: &Snapshot) -> Result<(), NotRegistered> {
    let (store, manifest) = (catalog.store(), catalog.manifest());
    let Err(error) = manifest.insert(store, seen, slot).await else {
        return Ok(());
    };
    match registered(catalog, &slot.ident).await {
        Ok(Some(found)) if found.location == slot.location => Ok(()),
        Ok(Some(_)) => Err(NotRegistered {
            error: Error::TableAlreadyExists {
                ident: slot.ident.clone(),
            },
            surely: true,
        }),
        // This was refused; after any other failure the row may appear yet.
        Ok(None) => {
            let surely = matches!(error, Error::Conflict { .. });
            Err(NotRegistered { error, surely })
        }
        Err(_) => Err(NotRegistered {
            error,
            surely: false,
        }),
    }
}

/// Registers the slot after `seen`, and looks whether its namespace is still there: it may have been dropped in between.
async fn register_after(
    catalog: &Catalog,
    slot: &Slot,
    seen: &Snapshot,
) -> Result<Registered, NotRegistered> {
    register(catalog, slot, seen).await?;
    let (store, parent) = (catalog.store(), slot.ident.namespace());
    // What failed is looked at again: the table is there.
    if let Ok(now) = catalog.manifest().after_insert(store, seen, slot).await
        && matches!(exists_in(store, &now, &parent).await, Ok(true))
    {
        return Ok(Registered::There);
    }
    let there = match still_exists(catalog, &parent).await {
        Ok(true) => return Ok(Registered::There),
        Ok(false) => withdraw(catalog, slot).await,
        Err(e) => Err(e),
    };
    there.map_err(|error| NotRegistered {
        error,
        surely: false,
    })
}

/// Makes the slot's directory, which nobody else knows yet, the table of its id, for which there was room. Whoever comes
/// second takes away what it wrote.
async fn publish(catalog: &Catalog, slot: &Slot, seen: &Snapshot) -> Result<()> {
    let missing = || missing(&slot.ident.namespace());
    let (error, litter) = match register_after(catalog, slot, seen).await {
        Ok(Registered::There) => return Ok(()),
        Ok(Registered::Withdrawn) => (missing(), true),
        // Whoever took the row out decides what becomes of the directory.
        Ok(Registered::TakenOut) => (missing(), false),
        Err(failed) => (failed.error, failed.surely),
    };
    if litter && matches!(drop::is_used_now(catalog, slot).await, Ok(false)) {
        drop::remove_litter(catalog, slot).await;
    }
    Err(error)
}

/// What became of a row that was put in.
enum Registered {
    There,
    /// Its namespace was dropped meanwhile, and the row is taken away again.
    Withdrawn,
    /// The same, and somebody else took the row out before that.
    TakenOut,
}

/// Takes back a registration that came into a namespace which was dropped.
async fn withdraw(catalog: &Catalog, slot: &Slot) -> Result<Registered> {
    let ours = |found: &Slot| found.location == slot.location;
    let taken = register::deregister(catalog, &slot.ident, ours).await?;
    Ok(match taken {
        Some(_) => Registered::Withdrawn,
        None => Registered::TakenOut,
    })
}
