//! Tables in child namespaces, and the namespaces themselves, over a manifest-backed directory namespace.
//!
//! What exists, and where it is stored, is one row each in `<root>/__manifest`, a Lance table of the base's (format:
//! the Lance directory namespace specification, V2); a table's directory is `<root>/<hash>_<id>`, never used again.
//!
//! Promises: a table is registered only when its first version is complete, so a create is there wholly or not at all,
//! and of several creates of one id exactly one wins; a namespace never vanishes from above what was created in it
//! meanwhile; `__manifest` comes into being with the first write, once, and never through a read. Refuses: ids that
//! the manifest cannot hold (with `$`), registering what is outside the root or belongs to another table, and names
//! that are not new ones of the catalog's own rule for whatever is created.
//!
//! Not promised: a drop of a table in a namespace cannot be taken back in this version. Stock clients on the same root
//! do not look again after a drop of a namespace, and two of them that use a fresh root for the first time can lose one's
//! first row.

use lance_namespace::LanceNamespace;
use lance_namespace::models::{
    DeregisterTableRequest, DescribeTableRequest, NamespaceExistsRequest, RegisterTableRequest,
};

use crate::catalog::Catalog;
use crate::error::{Error, Result, Subject, from_base};
use crate::ident::{self, NamespaceIdent, TableIdent};
use crate::lifecycle::Patience;
use crate::store::{RootStore, Slot};

pub(crate) mod create;
pub(crate) mod drop;
pub(crate) mod list;
pub(crate) mod manifest;
pub(crate) mod namespaces;
pub(crate) mod open;
pub(crate) mod reconcile;
pub(crate) mod register;

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

fn id_of(ident: &TableIdent) -> Option<Vec<String>> {
    Some(ident.parts().to_vec())
}

/// Where the table is registered, if it is.
pub(crate) async fn registered(catalog: &Catalog, ident: &TableIdent) -> Result<Option<Slot>> {
    let base = catalog.child_base().await?;
    let mut request = DescribeTableRequest::new();
    request.id = id_of(ident);
    let described = base.describe_table(request).await.map_err(|e| {
        let redactor = &catalog.store().redactor;
        from_base(e, "look up", Subject::Table(ident), redactor)
    });
    let uri = match described {
        Ok(described) => described.location.unwrap_or_default(),
        // Without a manifest there are no namespaces either.
        Err(Error::TableNotFound { .. } | Error::NamespaceNotFound { .. }) => return Ok(None),
        Err(e) => return Err(e),
    };
    let store = catalog.store();
    let Some(location) = store.location_of(&uri) else {
        return Err(Error::CorruptMetadata {
            path: manifest::NAME.to_string(),
            message: format!("{ident} is registered at {uri:?}, which is not below the root"),
        });
    };
    Slot::at_uri(store, ident, &location, uri).map(Some)
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
    let mut request = NamespaceExistsRequest::new();
    request.id = Some(ident.parts().to_vec());
    let found = catalog.child_base().await?.namespace_exists(request).await;
    match found {
        Ok(()) => Ok(true),
        Err(e) => {
            let subject = Subject::Namespace(ident);
            match from_base(e, "look up", subject, &catalog.store().redactor) {
                Error::NamespaceNotFound { .. } => Ok(false),
                e => Err(e),
            }
        }
    }
}

/// The namespace must exist before anything is put into it; finding that it does not writes nothing.
pub(crate) async fn must_exist(catalog: &Catalog, ident: &NamespaceIdent) -> Result<()> {
    match namespace_exists(catalog, ident).await? {
        true => Ok(()),
        false => Err(Error::NamespaceNotFound {
            ident: ident.clone(),
        }),
    }
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
async fn register(catalog: &Catalog, slot: &Slot) -> Result<(), NotRegistered> {
    let open = |error| NotRegistered {
        error,
        surely: true,
    };
    let base = catalog.child_base().await.map_err(open)?;
    let mut request = RegisterTableRequest::new(slot.location.clone());
    request.id = id_of(&slot.ident);
    let Err(e) = base.register_table(request).await else {
        return Ok(());
    };
    let subject = Subject::Table(&slot.ident);
    let error = from_base(e, "register", subject, &catalog.store().redactor);
    match registered(catalog, &slot.ident).await {
        Ok(Some(found)) if found.location == slot.location => Ok(()),
        Ok(Some(_)) => Err(open(Error::TableAlreadyExists {
            ident: slot.ident.clone(),
        })),
        Ok(None) => {
            // These were refused; after any other failure the row may appear yet.
            let surely = matches!(
                error,
                Error::TableAlreadyExists { .. }
                    | Error::NamespaceNotFound { .. }
                    | Error::Conflict { .. }
            );
            Err(NotRegistered { error, surely })
        }
        Err(_) => Err(NotRegistered {
            error,
            surely: false,
        }),
    }
}

/// Takes the table's row away; the data stays. Gives the location that it named just before.
async fn deregister(catalog: &Catalog, ident: &TableIdent) -> Result<Option<String>> {
    let base = catalog.child_base().await?;
    let mut request = DeregisterTableRequest::new();
    request.id = id_of(ident);
    match base.deregister_table(request).await {
        Ok(answer) => Ok(answer
            .location
            .and_then(|uri| catalog.store().location_of(&uri))),
        Err(e) => {
            let subject = Subject::Table(ident);
            Err(from_base(
                e,
                "deregister",
                subject,
                &catalog.store().redactor,
            ))
        }
    }
}

/// Makes the slot's directory, which nobody else knows yet, the table of its id. Whoever comes second takes away what
/// it wrote.
pub(crate) async fn publish(catalog: &Catalog, slot: &Slot) -> Result<()> {
    let parent = slot.ident.namespace();
    if let Err(failed) = register(catalog, slot).await {
        if failed.surely {
            drop::remove_litter(catalog, slot).await;
        }
        return Err(failed.error);
    }
    if !still_exists(catalog, &parent).await? {
        withdraw(catalog, &slot.ident).await?;
        drop::remove_litter(catalog, slot).await;
        return Err(Error::NamespaceNotFound { ident: parent });
    }
    Ok(())
}

/// Takes back a registration that came into a namespace which was dropped.
async fn withdraw(catalog: &Catalog, ident: &TableIdent) -> Result<()> {
    match deregister(catalog, ident).await {
        Ok(_) | Err(Error::TableNotFound { .. }) => Ok(()),
        Err(e) => Err(e),
    }
}
