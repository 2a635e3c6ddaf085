//! Declare: reserve the name of a root table for who will write it.

use bytes::Bytes;
use uuid::Uuid;

use crate::catalog::Catalog;
use crate::child;
use crate::error::{Error, Result};
use crate::ident::TableIdent;
use crate::lifecycle::{Marker, tombstone};
use crate::root;
use crate::store::{Created, join};

/// Declares a table without data: reserves the name for who will write it. 5 requests.
pub(crate) async fn declare(catalog: &Catalog, ident: &TableIdent) -> Result<String> {
    if ident.is_child() {
        return Ok(child::create::declare(catalog, ident).await?.uri);
    }
    let store = catalog.store();
    let slot = root::new_slot(store, ident)?;
    let (hidden, marker) = tokio::join!(
        tombstone::read(store, &slot),
        catalog.lifecycle().read_marker(&slot),
    );
    match (hidden?, marker?) {
        (Some(t), _) if t.creating.is_some() => {
            return Err(Error::Conflict {
                ident: ident.clone(),
                message: "it is being created".to_string(),
            });
        }
        (Some(t), _) => {
            return Err(Error::TableDropped {
                dropped: Box::new(t.public(ident)),
            });
        }
        (None, Marker::Foreign) => {
            return Err(Error::TableDeregistered {
                ident: ident.clone(),
            });
        }
        (None, _) => {}
    }
    let exists = || Error::TableAlreadyExists {
        ident: ident.clone(),
    };
    if store.latest_manifest(&slot.table).await?.is_some() {
        return Err(exists());
    }
    let reserved = join(&slot.table, ".lance-reserved")?;
    match store
        .create(&reserved, Bytes::from(Uuid::new_v4().to_string()))
        .await?
    {
        Created::New => match tombstone::read(store, &slot).await? {
            // A drop overtook us.
            Some(t) if t.creating.is_none() => Err(Error::TableDropped {
                dropped: Box::new(t.public(ident)),
            }),
            _ => Ok(slot.uri),
        },
        Created::Exists(_) => Err(exists()),
    }
}
