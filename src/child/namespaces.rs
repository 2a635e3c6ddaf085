//! Create, describe and drop child namespaces.

use std::collections::{BTreeMap, HashMap};

use futures::FutureExt;
use lance_namespace::LanceNamespace;
use lance_namespace::models::{CreateNamespaceRequest, DropNamespaceRequest};

use crate::catalog::Catalog;
use crate::child::{manifest, missing, must_exist, namespace_exists, still_exists};
use crate::error::{Error, ErrorKind, Result, Subject, from_base};
use crate::ident::{NamespaceIdent, check_existing_parts, check_new_parts};

/// A namespace and what was recorded with it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Namespace {
    /// Its id.
    pub ident: NamespaceIdent,
    /// Its properties, as given when it was created.
    pub properties: BTreeMap<String, String>,
}

fn base_error(
    catalog: &Catalog,
    operation: &'static str,
    ident: &NamespaceIdent,
    e: lance_core::Error,
) -> Error {
    let subject = Subject::Namespace(ident);
    from_base(e, operation, subject, &catalog.store().redactor)
}

pub(crate) async fn describe(catalog: &Catalog, ident: &NamespaceIdent) -> Result<Namespace> {
    check_existing_parts(ident.parts())?;
    let store = catalog.store();
    let found = match catalog.manifest().now(store).await? {
        _ if ident.is_root() => None,
        Some(seen) => Some(
            seen.namespace(store, ident)
                .await?
                .ok_or_else(|| missing(ident))?,
        ),
        None => return Err(missing(ident)),
    };
    let properties = found.map(|row| row.properties()).transpose()?;
    let properties = properties.unwrap_or_default();
    Ok(Namespace {
        ident: ident.clone(),
        properties,
    })
}

pub(crate) async fn create(
    catalog: &Catalog,
    ident: &NamespaceIdent,
    properties: BTreeMap<String, String>,
    exist_ok: bool,
) -> Result<Namespace> {
    check_new_parts(ident.parts(), catalog.store().max_child_id_len())?;
    if ident.is_root() {
        return match exist_ok {
            true => describe(catalog, ident).await,
            false => Err(Error::NamespaceAlreadyExists {
                ident: ident.clone(),
            }),
        };
    }
    let parent = ident.parent();
    if parent.is_root() {
        manifest::ensure(catalog).await?;
    } else {
        must_exist(catalog, &parent).await?;
    }
    match insert(catalog, ident, &properties).await {
        Ok(()) => {}
        Err(taken @ Error::NamespaceAlreadyExists { .. }) if exist_ok => {
            return match describe(catalog, ident).await {
                // The id is a table's.
                Err(Error::NamespaceNotFound { .. }) => Err(taken),
                there => there,
            };
        }
        Err(Error::NamespaceNotFound { .. }) => {
            return Err(Error::NamespaceNotFound { ident: parent });
        }
        Err(e) => return Err(e),
    }
    if !still_exists(catalog, &parent).await? {
        remove(catalog, ident).await?;
        return Err(Error::NamespaceNotFound { ident: parent });
    }
    Ok(Namespace {
        ident: ident.clone(),
        properties,
    })
}

/// Adds the row. A create that lost to another one is told "already exists".
async fn insert(
    catalog: &Catalog,
    ident: &NamespaceIdent,
    properties: &BTreeMap<String, String>,
) -> Result<()> {
    let mut request = CreateNamespaceRequest::new();
    request.id = Some(ident.parts().to_vec());
    let properties: HashMap<_, _> = properties.clone().into_iter().collect();
    request.properties = (!properties.is_empty()).then_some(properties);
    let (store, manifest) = (catalog.store(), catalog.manifest());
    let Some(seen) = manifest.now(store).await? else {
        return Err(missing(&ident.parent()));
    };
    let created = manifest.commit(store, &seen, |base| base.create_namespace(request).boxed());
    let Err(e) = created.await? else {
        return Ok(());
    };
    let error = base_error(catalog, "create", ident, e);
    if matches!(error, Error::Conflict { .. }) && namespace_exists(catalog, ident).await? {
        return Err(Error::NamespaceAlreadyExists {
            ident: ident.clone(),
        });
    }
    Err(error)
}

/// Adds the row of a namespace that is missing above what is in it; its properties are not known any more.
pub(crate) async fn put_back(catalog: &Catalog, ident: &NamespaceIdent) -> Result<()> {
    match insert(catalog, ident, &BTreeMap::new()).await {
        Ok(()) | Err(Error::NamespaceAlreadyExists { .. }) => Ok(()),
        Err(e) => Err(e),
    }
}

async fn remove(catalog: &Catalog, ident: &NamespaceIdent) -> Result<()> {
    let mut request = DropNamespaceRequest::new();
    request.id = Some(ident.parts().to_vec());
    let (store, manifest) = (catalog.store(), catalog.manifest());
    let Some(seen) = manifest.now(store).await? else {
        return Err(missing(ident));
    };
    let dropped = manifest.commit(store, &seen, |base| base.drop_namespace(request).boxed());
    dropped
        .await?
        .map(|_| ())
        .map_err(|e| base_error(catalog, "drop", ident, e))
}

/// Drops an empty namespace. The base looks whether it is empty and then deletes the row; what was created in between
/// is found by a second look, and the namespace put back.
pub(crate) async fn drop(catalog: &Catalog, ident: &NamespaceIdent) -> Result<()> {
    if ident.is_root() {
        return Err(Error::InvalidInput {
            message: "the root namespace cannot be dropped".to_string(),
        });
    }
    // Also finds that it is not there, without writing.
    let namespace = describe(catalog, ident).await?;
    let removed = remove(catalog, ident).await;
    if let Err(e) = removed {
        // What failed may have taken effect all the same; then it is put back below what was created meanwhile.
        let unclear = matches!(
            e.kind(),
            ErrorKind::Storage | ErrorKind::Lance | ErrorKind::Conflict
        );
        if unclear
            && let (Ok(inside), Ok(false)) = tokio::join!(
                manifest::below(catalog, ident),
                namespace_exists(catalog, ident)
            )
            && !inside.is_empty()
            && let Err(error) = insert(catalog, ident, &namespace.properties).await
        {
            tracing::warn!(namespace = %ident, %error, "it is missing above what is in it until reconcile puts it back");
        }
        return Err(e);
    }
    if manifest::below(catalog, ident).await?.is_empty() {
        return Ok(());
    }
    let mut patience = manifest::patience();
    loop {
        match insert(catalog, ident, &namespace.properties).await {
            Ok(()) | Err(Error::NamespaceAlreadyExists { .. }) => {
                return Err(Error::NamespaceNotEmpty {
                    ident: ident.clone(),
                });
            }
            // Contention, or its own parent is being dropped and put back.
            Err(e) => {
                let passing = e.is_retryable() || matches!(e, Error::NamespaceNotFound { .. });
                if !passing || !patience.wait().await {
                    return Err(e);
                }
            }
        }
    }
}
