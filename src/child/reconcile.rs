//! What stopped processes and other clients left in the namespace manifest and beside it.

use std::collections::{BTreeSet, HashSet};

use futures::{StreamExt, TryStreamExt};

use crate::catalog::Catalog;
use crate::child::manifest::{self, Row};
use crate::child::{namespaces, still_exists};
use crate::error::Result;
use crate::ident::{NamespaceIdent, TableIdent};
use crate::lifecycle::{Finding, FindingKind};
use crate::store::Slot;

/// Tables looked at together.
const TOGETHER: usize = 16;

fn finding(ident: TableIdent, kind: FindingKind, outcome: Result<bool>) -> Finding {
    let (mended, error) = match outcome {
        Ok(mended) => (mended, None),
        Err(e) => (false, Some(e)),
    };
    Finding {
        ident,
        kind,
        mended,
        error,
    }
}

/// Looks at every row of the manifest, and at the directories of the root that have names as tables in namespaces have:
/// 1 scan, 1 to 2 requests for each table in a namespace. Gives the number of rows too.
pub(crate) async fn examine(
    catalog: &Catalog,
    dirs: Vec<String>,
    dry_run: bool,
) -> Result<(usize, Vec<Finding>)> {
    let rows = manifest::all(catalog).await?;
    let mut findings = missing_namespaces(catalog, &rows, dry_run).await;
    for row in rows.iter().filter(|r| r.is_table && r.id.len() == 1) {
        let own = format!("{}.lance", row.id[0]);
        if row
            .location
            .as_deref()
            .is_some_and(|l| l.trim_matches('/') != own)
        {
            let ident = TableIdent::from(row.id.as_slice());
            findings.push(finding(ident, FindingKind::RegisteredElsewhere, Ok(false)));
        }
    }
    let is_child = |r: &Row| r.is_table && r.id.len() > 1;
    let tables: Vec<Row> = rows.iter().filter(|r| is_child(r)).cloned().collect();
    let missing: Vec<Finding> = futures::stream::iter(tables)
        .map(|row| missing_location(catalog, row))
        .buffered(TOGETHER)
        .try_filter_map(|found| async move { Ok(found) })
        .try_collect()
        .await?;
    findings.extend(missing);
    findings.extend(unregistered(dirs, &rows));
    Ok((rows.len(), findings))
}

/// Rows whose namespace is not there: a process stopped between dropping it and looking again, or a stock client
/// dropped it while something was created in it.
async fn missing_namespaces(catalog: &Catalog, rows: &[Row], dry_run: bool) -> Vec<Finding> {
    let there: HashSet<&[String]> = rows
        .iter()
        .filter(|r| !r.is_table)
        .map(|r| r.id.as_slice())
        .collect();
    // Sorted, so that parents come before what is in them.
    let missing: BTreeSet<&[String]> = rows
        .iter()
        .flat_map(|r| (1..r.id.len()).map(|n| &r.id[..n]))
        .filter(|id| !there.contains(id))
        .collect();
    let mut findings = Vec::new();
    for id in missing {
        let ident = NamespaceIdent::from(id);
        // Who dropped it may be putting it back, with its properties.
        let outcome = match still_exists(catalog, &ident).await {
            Ok(true) => continue,
            Ok(false) if dry_run => Ok(false),
            Ok(false) => namespaces::put_back(catalog, &ident).await.map(|()| true),
            Err(e) => Err(e),
        };
        let ident = TableIdent::from(id);
        findings.push(finding(ident, FindingKind::MissingNamespace, outcome));
    }
    findings
}

async fn missing_location(catalog: &Catalog, row: Row) -> Result<Option<Finding>> {
    let store = catalog.store();
    let ident = TableIdent::from(row.id.as_slice());
    let location = row.location.as_deref().unwrap_or_default();
    let slot = match Slot::at(store, &ident, location.trim_matches('/')) {
        Ok(slot) => slot,
        Err(e) => return Ok(Some(finding(ident, FindingKind::Unexamined, Err(e)))),
    };
    if store.latest_manifest(&slot.table).await?.is_some() {
        return Ok(None);
    }
    let (objects, _) = store.list_dir(&slot.table).await?;
    if objects.iter().any(|o| o == ".lance-reserved") {
        return Ok(None);
    }
    Ok(Some(finding(
        ident,
        FindingKind::MissingLocation,
        Ok(false),
    )))
}

/// Directories with a name as the base and we draw them that no row names.
fn unregistered(dirs: Vec<String>, rows: &[Row]) -> Vec<Finding> {
    let used: HashSet<&str> = rows
        .iter()
        .filter_map(|r| r.location.as_deref())
        .filter_map(|l| l.trim_matches('/').split('/').next())
        .collect();
    let unused = dirs.into_iter().filter(|dir| !used.contains(dir.as_str()));
    unused
        .map(|dir| {
            let ident = TableIdent::from(dir);
            finding(ident, FindingKind::UnregisteredDirectory, Ok(false))
        })
        .collect()
}
