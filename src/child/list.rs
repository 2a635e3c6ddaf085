//! List tables and namespaces inside child namespaces.

use futures::{StreamExt, TryStreamExt};
use lance_namespace::LanceNamespace;
use lance_namespace::models::{
    ListNamespacesRequest, ListNamespacesResponse, ListTablesRequest, ListTablesResponse,
};

use crate::catalog::Catalog;
use crate::child::{manifest, must_exist};
use crate::error::{Error, Result, Subject, from_base};
use crate::ident::{NamespaceIdent, check_existing_parts};
use crate::store::join;

/// Tables looked at together where a listing looks at each.
const PROBES: usize = 16;

/// The base puts the id into a filter unescaped, and counts its bytes as characters.
fn check_listable(ident: &NamespaceIdent) -> Result<()> {
    check_existing_parts(ident.parts())?;
    match ident
        .parts()
        .iter()
        .find(|p| !p.is_ascii() || p.contains('\''))
    {
        Some(part) => Err(Error::Unsupported {
            message: format!(
                "what is in a namespace with {part:?} in its id cannot be listed: only ASCII without quotes can"
            ),
        }),
        None => Ok(()),
    }
}

/// One page of the tables in a namespace; its id is in the request, and is not the root.
pub(crate) async fn tables(
    catalog: &Catalog,
    request: ListTablesRequest,
) -> Result<ListTablesResponse> {
    let ident = NamespaceIdent::new(request.id.clone().unwrap_or_default());
    check_listable(&ident)?;
    if let Some(limit) = request.limit.filter(|l| *l < 1) {
        return Err(Error::InvalidInput {
            message: format!("a page holds at least 1 table, the limit is {limit}"),
        });
    }
    let first = request.page_token.is_none();
    let page = catalog.child_base().await?.list_tables(request).await;
    let page = match page {
        Ok(page) => page,
        Err(e) => {
            let subject = Subject::Namespace(&ident);
            return Err(from_base(e, "list", subject, &catalog.store().redactor));
        }
    };
    // The base lists a namespace that does not exist as an empty one.
    if first && page.tables.is_empty() {
        must_exist(catalog, &ident).await?;
    }
    Ok(page)
}

/// One page of the namespaces directly in a namespace.
pub(crate) async fn namespaces(
    catalog: &Catalog,
    request: ListNamespacesRequest,
) -> Result<ListNamespacesResponse> {
    let ident = NamespaceIdent::new(request.id.clone().unwrap_or_default());
    check_listable(&ident)?;
    if let Some(limit) = request.limit.filter(|l| *l < 1) {
        return Err(Error::InvalidInput {
            message: format!("a page holds at least 1 namespace, the limit is {limit}"),
        });
    }
    let first = request.page_token.is_none();
    let page = catalog.child_base().await?.list_namespaces(request).await;
    let page = match page {
        Ok(page) => page,
        // Without a manifest there is only the root, with nothing in it.
        Err(e) => {
            let subject = Subject::Namespace(&ident);
            return Err(from_base(e, "list", subject, &catalog.store().redactor));
        }
    };
    if first && page.namespaces.is_empty() {
        must_exist(catalog, &ident).await?;
    }
    Ok(page)
}

/// Every table in every child namespace, by its parts joined with `$`: one scan of the manifest, and where only those
/// that can be opened are wanted 1 request more for each.
pub(crate) async fn all_tables(catalog: &Catalog, include_declared: bool) -> Result<Vec<String>> {
    let store = catalog.store();
    let rows = manifest::all(store).await?;
    let tables = rows.into_iter().filter(|r| r.is_table && r.id.len() > 1);
    futures::stream::iter(tables)
        .map(|row| async move {
            if !include_declared {
                let location = row.location.as_deref().unwrap_or_default();
                // Nothing can be opened at what is no path below the root.
                let Ok(path) = join(&store.base, location.trim_matches('/')) else {
                    return Ok(None);
                };
                if store.latest_manifest(&path).await?.is_none() {
                    return Ok(None);
                }
            }
            Ok(Some(row.id.join("$")))
        })
        .buffered(PROBES)
        .try_filter_map(|found| async move { Ok(found) })
        .try_collect()
        .await
}
