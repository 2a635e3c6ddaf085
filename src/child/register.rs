//! Register and deregister tables in child namespaces.

use std::sync::Arc;
use std::time::Duration;

use crate::catalog::Catalog;
use crate::child::deletion::Attempt;
use crate::child::drop::{is_anothers, is_root_table};
use crate::child::manifest::Row;
use crate::child::snapshot::Snapshot;
use crate::child::{
    Registered, check_existing, check_new, missing, not_registered, register_after, room_for,
    slot_of,
};
use crate::error::{Error, Result};
use crate::ident::{self, TableIdent};
use crate::lifecycle::Patience;
use crate::store::{RootStore, Slot};

/// How long a deletion of a row goes on while others commit before it each time.
const CONTENTION: Duration = Duration::from_secs(20);

/// Registers the table that is stored at a location: a path relative to the root, or a URI below it.
pub(crate) async fn register_table(
    catalog: &Catalog,
    ident: &TableIdent,
    location: &str,
) -> Result<Slot> {
    let store = catalog.store();
    check_new(store, ident)?;
    let slot = Slot::at(store, ident, &relative(store, location)?)?;
    let seen = room_for(catalog, ident).await?;
    if store.latest_manifest(&slot.table).await?.is_none() {
        return Err(Error::TableNotFound {
            ident: ident.clone(),
            reason: format!("there is no version of a table at {:?}", slot.location),
        });
    }
    let sharing = seen.sharing(store, ident, &slot.location).await?;
    // An id of one part that is registered elsewhere than at its own directory names no table of ours.
    if let Some(other) = sharing.iter().find(|row| row.id.len() > 1) {
        return Err(Error::InvalidInput {
            message: format!(
                "{:?} is, holds or is within the location of table {:?}: dropping one would delete both",
                slot.location, other.id
            ),
        });
    }
    let there = register_after(catalog, &slot, &seen).await;
    match there.map_err(|e| e.error)? {
        Registered::There => Ok(slot),
        Registered::Withdrawn | Registered::TakenOut => Err(missing(&ident.namespace())),
    }
}

/// A location below the root that can be a child table's, relative to the root.
fn relative(store: &RootStore, location: &str) -> Result<String> {
    let refuse = |why: &str| {
        Err(Error::InvalidInput {
            message: format!("a table in a namespace cannot be registered at {location:?}: {why}"),
        })
    };
    let relative = if location.contains("://") || location.starts_with('/') {
        match store.location_of(location) {
            Some(relative) => relative,
            None => return refuse("it is not below the root"),
        }
    } else {
        location.trim_end_matches('/').to_string()
    };
    for segment in relative.split('/') {
        if ident::check_existing(segment, usize::MAX).is_err() {
            return refuse("it is a path of plain names below the root");
        }
    }
    if is_root_table(&relative) {
        return refuse("that is a root table's directory");
    }
    if is_anothers(&relative) {
        return refuse("that is within what belongs to a root table");
    }
    Ok(relative)
}

/// Takes the table out of its namespace; its data stays at the location that is returned.
pub(crate) async fn deregister_table(catalog: &Catalog, ident: &TableIdent) -> Result<Slot> {
    check_existing(ident)?;
    match deregister(catalog, ident, |_| true).await? {
        Some((slot, _)) => Ok(slot),
        None => Err(not_registered(ident)),
    }
}

/// Takes out the row of the id, if there is one and it is wanted: where its table is stored, and the manifest as it was
/// with it. `None` also when somebody else took it out: a row that vanishes under us was not ours to take.
pub(super) async fn deregister(
    catalog: &Catalog,
    ident: &TableIdent,
    wanted: impl Fn(&Slot) -> bool,
) -> Result<Option<(Slot, Arc<Snapshot>)>> {
    let (store, manifest) = (catalog.store(), catalog.manifest());
    let mut patience: Option<Patience> = None;
    let mut patient = true;
    let mut lost: Vec<Lost> = Vec::new();
    loop {
        // Before the look: what this process commits would only come in between.
        let turn = manifest.turn().await;
        let now = manifest.now(store).await?;
        let row = match &now {
            Some(seen) => seen.table(store, ident).await?,
            None => None,
        };
        // What is still there was not deleted.
        for earlier in lost.iter().filter(|lost| row.as_ref() != Some(&lost.row)) {
            if manifest.landed(store, ident, &earlier.attempt).await? {
                let slot = slot_of(store, ident, &earlier.row)?;
                return Ok(Some((slot, earlier.seen.clone())));
            }
        }
        let (Some(seen), Some(row)) = (now, row) else {
            return Ok(None);
        };
        let slot = slot_of(store, ident, &row)?;
        if !wanted(&slot) {
            return Ok(None);
        }
        if !patient {
            return Err(Error::Conflict {
                ident: ident.clone(),
                message: "others keep committing to the manifest".to_string(),
            });
        }
        let Some(attempt) = turn.delete(store, &seen, &row).await? else {
            return Ok(Some((slot, seen)));
        };
        lost.push(Lost { attempt, row, seen });
        drop(turn);
        // Not from before: a turn can be a long time in coming. What the last attempt came to is still looked at.
        let patience = patience.get_or_insert_with(|| Patience::new(CONTENTION));
        patient = patience.wait().await;
    }
}

/// A deletion that another commit came before.
struct Lost {
    attempt: Attempt,
    row: Row,
    seen: Arc<Snapshot>,
}
