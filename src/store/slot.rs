//! Where a table lives and where the records of its drops go.

use object_store::path::Path;

use crate::error::Result;
use crate::ident::TableIdent;
use crate::store::uri::names_the_same;
use crate::store::{RootStore, join};

/// Where a table lives and where the records of its drops go.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub(crate) ident: TableIdent,
    /// Name of the table's directory under the root, as recorded in its tombstones.
    pub(crate) location: String,
    /// What tombstone and claim names begin with.
    pub(crate) stem: String,
    pub(crate) table: Path,
    pub(crate) tombstone: Path,
    pub(crate) marker: Path,
    pub(crate) uri: String,
}

impl Slot {
    /// The slot of a root table. The name has been checked.
    pub(crate) fn root(store: &RootStore, ident: &TableIdent) -> Result<Self> {
        let name = ident.name();
        let location = format!("{name}.lance");
        let table = store.child(&location)?;
        Ok(Self {
            ident: ident.clone(),
            uri: store.uri_of(&location, &table)?,
            tombstone: store.child(&format!("{name}.deleted"))?,
            marker: join(&table, ".lance-deregistered")?,
            stem: name.to_string(),
            location,
            table,
        })
    }

    /// The slot of a table in a namespace, or of the namespace manifest itself: any directory below the root, as a
    /// path relative to it.
    pub(crate) fn at(store: &RootStore, ident: &TableIdent, location: &str) -> Result<Self> {
        let uri = store.uri_of(location, &store.child(location)?)?;
        Self::at_uri(store, ident, location, uri)
    }

    /// The same, with the URI that is known to lead there.
    pub(crate) fn at_uri(
        store: &RootStore,
        ident: &TableIdent,
        location: &str,
        uri: String,
    ) -> Result<Self> {
        let table = store.child(location)?;
        let uri = match store.uri_of(location, &table) {
            // Where the store and the URI spell the same name differently.
            Err(_) if names_the_same(location, &uri) => uri,
            own => own?,
        };
        // No name of a root table that a catalog makes holds a `$`, so this is the tombstone of none.
        let stem = format!("{location}$");
        Ok(Self {
            ident: ident.clone(),
            uri,
            tombstone: store.child(&format!("{stem}.deleted"))?,
            marker: join(&table, ".lance-deregistered")?,
            stem,
            location: location.to_string(),
            table,
        })
    }
}
