//! Create and declare tables in child namespaces.

use bytes::Bytes;
use lance::dataset::{Dataset, WriteDestination, WriteMode};
use lance_namespace_impls::dir::manifest::ManifestNamespace;
use uuid::Uuid;

use crate::catalog::Catalog;
use crate::child::snapshot::Snapshot;
use crate::child::{
    check_new, drop, missing, must_have_room, publish, registered_in, registered_still, room_for,
};
use crate::error::{Error, Result};
use crate::ident::TableIdent;
use crate::lifecycle::MAX_ROUNDS;
use crate::root::create::{CreateMode, CreateTable, commit_private};
use crate::store::{Created, Slot, join};

/// A directory that nobody else knows. Without dots, so that its name is neither that of a root table or of a record of
/// one, nor one that the base refuses to register.
fn new_slot(catalog: &Catalog, ident: &TableIdent) -> Result<Slot> {
    let location = ManifestNamespace::generate_dir_name(&ident.parts().join("$"));
    Slot::at(catalog.store(), ident, &location.replace('.', "_"))
}

/// Creates the table: new in a directory of its own that is registered when it is complete, at the location of a
/// declared one, or over a live one.
pub(crate) async fn create(request: CreateTable) -> Result<Dataset> {
    let catalog = request.catalog.clone();
    let ident = request.ident.clone();
    check_new(catalog.store(), &ident)?;
    request.check_data()?;
    let store = catalog.store();
    let Some(seen) = catalog.manifest().now(store).await? else {
        return Err(missing(&ident.namespace()));
    };
    match registered_in(store, &seen, &ident).await? {
        Some(slot) => over_registered(request, slot).await,
        None => {
            must_have_room(store, &seen, &ident).await?;
            create_new(request, &seen).await
        }
    }
}

async fn create_new(request: CreateTable, seen: &Snapshot) -> Result<Dataset> {
    let catalog = request.catalog.clone();
    let mode = request.mode;
    let slot = new_slot(&catalog, &request.ident)?;
    let params = request.params(WriteMode::Create);
    let (transaction, dest) = request
        .write(&slot, WriteDestination::Uri(&slot.uri), &params)
        .await?;
    let created = commit_private(&catalog, &slot, dest, &params, transaction).await?;
    match publish(&catalog, &slot, seen).await {
        Ok(()) => Ok(created),
        Err(Error::TableAlreadyExists { .. }) if mode == CreateMode::ExistOk => {
            open_winner(&catalog, slot.ident).await
        }
        Err(Error::TableAlreadyExists { ident }) if mode == CreateMode::Overwrite => {
            Err(just_created(ident))
        }
        Err(e) => Err(e),
    }
}

/// Opens what another process created.
async fn open_winner(catalog: &Catalog, ident: TableIdent) -> Result<Dataset> {
    catalog.open_table(ident).await.map_err(or_conflict)
}

/// For a create that is content with a table being there: that it is not is only a matter of the moment.
fn or_conflict(error: Error) -> Error {
    match error {
        Error::TableNotFound { ident, reason } => Error::Conflict {
            ident,
            message: format!("it was there a moment ago, but {reason}"),
        },
        e => e,
    }
}

fn just_created(ident: TableIdent) -> Error {
    Error::Conflict {
        ident,
        message: "another process has just created it".to_string(),
    }
}

/// The table is registered: by its state and the mode.
async fn over_registered(request: CreateTable, slot: Slot) -> Result<Dataset> {
    let catalog = request.catalog.clone();
    let mode = request.mode;
    let lifecycle = catalog.lifecycle();
    // What another process writes decides what we answer. The seam of the soft drop: a registered table has no tombstone
    // of a drop yet.
    lifecycle
        .hidden_or_wait(&slot, &mut lifecycle.patience())
        .await?;
    let before = catalog.store().latest_manifest(&slot.table).await?;
    let written = match &before {
        Some(latest) if mode == CreateMode::Create => {
            return request.over_live(&slot, latest.version).await;
        }
        Some(latest) => {
            let written = request.over_live(&slot, latest.version).await;
            written.map_err(or_conflict)
        }
        None => request.create_new(&slot).await,
    };
    match written {
        Ok(dataset) => match registered_still(&catalog, &slot.ident).await? {
            Some(now) if now.location == slot.location => Ok(dataset),
            _ => {
                // Dropped, if what was there before is gone; deregistered otherwise, and then it is kept.
                let dropped = match &before {
                    Some(before) => catalog.store().head(&before.path).await?.is_none(),
                    None => true,
                };
                let wrote = before.is_none() || mode == CreateMode::Overwrite;
                if dropped && wrote && matches!(drop::is_used_now(&catalog, &slot).await, Ok(false))
                {
                    drop::remove_litter(&catalog, &slot).await;
                }
                Err(Error::Conflict {
                    ident: slot.ident,
                    message: "it was dropped or deregistered meanwhile".to_string(),
                })
            }
        },
        // Somebody else wrote the first version of a declared table.
        Err(Error::TableAlreadyExists { .. } | Error::Conflict { .. })
            if mode == CreateMode::ExistOk =>
        {
            open_winner(&catalog, slot.ident).await
        }
        Err(Error::TableAlreadyExists { ident }) if mode == CreateMode::Overwrite => {
            Err(just_created(ident))
        }
        Err(e @ Error::Conflict { .. }) if mode == CreateMode::Create => {
            match catalog.store().latest_manifest(&slot.table).await {
                Ok(Some(_)) => Err(Error::TableAlreadyExists { ident: slot.ident }),
                _ => Err(e),
            }
        }
        Err(e) => Err(e),
    }
}

/// Reserves the id without data, for a later create or for a writer of Lance's own; gives the slot to write to.
pub(crate) async fn declare(catalog: &Catalog, ident: &TableIdent) -> Result<Slot> {
    let store = catalog.store();
    check_new(store, ident)?;
    let seen = room_for(catalog, ident).await?;
    for _ in 0..MAX_ROUNDS {
        let slot = new_slot(catalog, ident)?;
        let reserved = join(&slot.table, ".lance-reserved")?;
        let content = Bytes::from(Uuid::new_v4().to_string());
        // A directory that was drawn twice belongs to the first who drew it.
        if let Created::New = store.create(&reserved, content).await? {
            publish(catalog, &slot, &seen).await?;
            return Ok(slot);
        }
    }
    Err(Error::Conflict {
        ident: ident.clone(),
        message: "every directory drawn for it is taken".to_string(),
    })
}
