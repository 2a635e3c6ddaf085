//! What state a table is in, without opening it.

use crate::catalog::Catalog;
use crate::child;
use crate::error::{Error, Result};
use crate::ident::TableIdent;
use crate::lifecycle::{Action, DroppedTable, Marker, tombstone};
use crate::root;

/// The state of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableState {
    /// It can be opened; this is its latest version.
    Live {
        /// The latest version.
        version: u64,
    },
    /// It was dropped and is kept.
    Dropped(DroppedTable),
    /// It was dropped, and somebody decided to restore it (undrop, or create over it).
    Restoring(DroppedTable),
    /// It was dropped, and somebody decided to purge it.
    Purging(DroppedTable),
    /// It is being created.
    Creating,
    /// Another client deregistered it; `undrop_table` brings it back.
    Deregistered,
    /// The name is reserved, nothing was written yet.
    Declared,
    /// A directory without any version: a process was stopped while it created the table. `create_table` and
    /// `drop_table` work on it.
    Incomplete,
    /// Nothing is there.
    Absent,
}

impl TableState {
    /// Whether the table can be opened.
    pub fn is_live(&self) -> bool {
        matches!(self, Self::Live { .. })
    }
}

pub(crate) async fn table_state(catalog: &Catalog, ident: &TableIdent) -> Result<TableState> {
    if ident.is_child() {
        return child::open::table_state(catalog, ident).await;
    }
    let store = catalog.store();
    let slot = root::reading_slot(store, ident)?;
    let (tombstone, dir, latest) = tokio::join!(
        tombstone::read(store, &slot),
        store.list_dir(&slot.table),
        store.latest_manifest(&slot.table),
    );
    let (objects, prefixes) = dir?;
    let latest = latest?;
    let has = |name: &str| objects.iter().any(|o| o == name);
    let tombstone = tombstone?;
    let creating = tombstone.as_ref().is_some_and(|t| t.creating.is_some());
    if let Some(t) = tombstone.filter(|_| !creating) {
        let public = t.public(ident);
        let held = match catalog.lifecycle().holder(&slot, t.drop_id).await {
            // Whatever was decided, nobody can tell; it is dropped for sure.
            Err(Error::CorruptMetadata { .. }) => None,
            held => held?,
        };
        return Ok(match held.map(|h| h.claim.action) {
            None => TableState::Dropped(public),
            Some(Action::Restore) => TableState::Restoring(public),
            Some(Action::Purge) => TableState::Purging(public),
        });
    }
    if has(".lance-deregistered")
        && catalog.lifecycle().read_marker(&slot).await? == Marker::Foreign
    {
        return Ok(TableState::Deregistered);
    }
    Ok(match latest {
        Some(manifest) => TableState::Live {
            version: manifest.version,
        },
        None if has(".lance-reserved") => TableState::Declared,
        None if creating => TableState::Creating,
        // A marker alone is litter of a drop that is over, not a table.
        None if objects.iter().any(|o| o != ".lance-deregistered")
            || !prefixes.is_empty()
            || (objects.is_empty() && store.is_dir(&slot.table)) =>
        {
            TableState::Incomplete
        }
        None => TableState::Absent,
    })
}
