//! List tables and namespaces inside child namespaces.

use futures::{StreamExt, TryStreamExt};
use lance_namespace::models::{
    ListNamespacesRequest, ListNamespacesResponse, ListTablesRequest, ListTablesResponse,
};

use crate::catalog::Catalog;
use crate::child::manifest::{self, Row};
use crate::child::{exists_in, missing};
use crate::error::{Error, Result};
use crate::ident::{NamespaceIdent, check_existing_parts};
use crate::store::join;

/// Tables looked at together where a listing looks at each.
const PROBES: usize = 16;

/// What a page holds, from the names of all there is: those after the token, in order.
fn page(
    mut names: Vec<String>,
    after: Option<String>,
    limit: Option<i32>,
) -> (Vec<String>, Option<String>) {
    names.sort_unstable();
    if let Some(after) = after {
        names.retain(|name| *name > after);
    }
    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
    let Some(limit) = limit.filter(|limit| names.len() > *limit) else {
        return (names, None);
    };
    names.truncate(limit);
    let token = names.last().cloned();
    (names, token)
}

/// What is directly in the namespace; that it exists is checked for the first page.
async fn inside(
    catalog: &Catalog,
    ident: &NamespaceIdent,
    what: &str,
    limit: Option<i32>,
    first: bool,
) -> Result<Vec<Row>> {
    check_existing_parts(ident.parts())?;
    if let Some(limit) = limit.filter(|l| *l < 1) {
        return Err(Error::InvalidInput {
            message: format!("a page holds at least 1 {what}, the limit is {limit}"),
        });
    }
    let store = catalog.store();
    let Some(seen) = catalog.manifest().now(store).await? else {
        // Without a manifest there is only the root, with nothing in it.
        return match ident.is_root() {
            true => Ok(Vec::new()),
            false => Err(missing(ident)),
        };
    };
    if first && !exists_in(store, &seen, ident).await? {
        return Err(missing(ident));
    }
    let mut rows = seen.below(store, ident).await?;
    rows.retain(|row| row.id.len() == ident.parts().len() + 1);
    Ok(rows)
}

/// Those of the tables that can be opened, or all, up to so many: their ids joined with `$`, or their own names.
async fn listed(
    catalog: &Catalog,
    rows: impl IntoIterator<Item = Row>,
    include_declared: bool,
    most: usize,
    name_of: impl Fn(Row) -> String,
) -> Result<Vec<String>> {
    let (store, name_of) = (catalog.store(), &name_of);
    futures::stream::iter(rows)
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
            Ok(Some(name_of(row)))
        })
        .buffered(PROBES)
        .try_filter_map(|found| async move { Ok(found) })
        .take(most)
        .try_collect()
        .await
}

fn own_name(row: Row) -> String {
    row.id.into_iter().next_back().unwrap_or_default()
}

/// One page of the tables in a namespace; its id is in the request, and is not the root.
pub(crate) async fn tables(
    catalog: &Catalog,
    request: ListTablesRequest,
) -> Result<ListTablesResponse> {
    let ident = NamespaceIdent::new(request.id.unwrap_or_default());
    let first = request.page_token.is_none();
    let mut rows = inside(catalog, &ident, "table", request.limit, first).await?;
    let after = request.page_token.as_deref();
    // What was on earlier pages is not looked at again.
    rows.retain(|row| {
        row.is_table
            && after.is_none_or(|after| row.id.last().is_some_and(|own| own.as_str() > after))
    });
    let declared = request.include_declared.unwrap_or(true);
    rows.sort_unstable_by(|a, b| a.id.last().cmp(&b.id.last()));
    // The one after the page tells that there is one.
    let limit = request.limit.and_then(|limit| usize::try_from(limit).ok());
    let most = limit.map_or(usize::MAX, |limit| limit.saturating_add(1));
    let names = listed(catalog, rows, declared, most, own_name).await?;
    let (names, token) = page(names, request.page_token, request.limit);
    let mut response = ListTablesResponse::new(names);
    response.page_token = token;
    Ok(response)
}

/// One page of the namespaces directly in a namespace.
pub(crate) async fn namespaces(
    catalog: &Catalog,
    request: ListNamespacesRequest,
) -> Result<ListNamespacesResponse> {
    let ident = NamespaceIdent::new(request.id.unwrap_or_default());
    let first = request.page_token.is_none();
    let mut rows = inside(catalog, &ident, "namespace", request.limit, first).await?;
    rows.retain(|row| !row.is_table);
    let names = rows.into_iter().map(own_name).collect();
    let (names, token) = page(names, request.page_token, request.limit);
    let mut response = ListNamespacesResponse::new(names);
    response.page_token = token;
    Ok(response)
}

/// Every table in every child namespace, by its parts joined with `$`: the look at the manifest, and where only those
/// that can be opened are wanted 1 request more for each.
pub(crate) async fn all_tables(catalog: &Catalog, include_declared: bool) -> Result<Vec<String>> {
    let rows = manifest::all(catalog).await?;
    let tables = rows.into_iter().filter(|r| r.is_table && r.id.len() > 1);
    let name_of = |row: Row| row.id.join("$");
    listed(catalog, tables, include_declared, usize::MAX, name_of).await
}
