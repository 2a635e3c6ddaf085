//! Delete versions: a clean-up, which spares what is in use, or the whole chain.

use std::collections::HashSet;
use std::ops::Range;

use chrono::TimeDelta;
use lance::dataset::refs::{
    BranchContents, TagContents, base_branches_contents_path, base_tags_path,
};
use object_store::path::Path;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::ident::TableIdent;
use crate::lifecycle::Moment;
use crate::lifecycle::claim::granularity;
use crate::store::DELETE_BATCH;
use crate::versions::fence::same_tag;
use crate::versions::{Chain, TableVersion, all, chain_of, check, no_versions};

/// Which versions to delete.
#[derive(Debug, Clone)]
pub(crate) enum DeleteRange {
    /// Those in the range, but the latest, tagged ones and those where a branch begins.
    CleanUp(Range<u64>),
    /// Those from this one on, with the same exceptions.
    CleanUpFrom(u64),
    /// All of them, without exception: what Lance's manifest stores do when a table's record is deleted.
    Everything,
}

impl DeleteRange {
    fn holds(&self, version: u64) -> bool {
        match self {
            Self::CleanUp(range) => range.contains(&version),
            Self::CleanUpFrom(start) => version >= *start,
            Self::Everything => true,
        }
    }
}

pub(crate) async fn delete(
    catalog: &Catalog,
    ident: &TableIdent,
    branch: Option<&str>,
    ranges: Vec<DeleteRange>,
) -> Result<Vec<u64>> {
    let chain = chain_of(catalog, ident, branch).await?;
    check(catalog, &chain).await?;
    let found = all(catalog, &chain).await?;
    let Some(newest) = found.iter().max_by_key(|v| v.version).cloned() else {
        return match no_versions(catalog, &chain).await? {
            Error::VersionNotFound { .. } => Ok(Vec::new()),
            e => Err(e),
        };
    };
    let everything = ranges.iter().any(|r| matches!(r, DeleteRange::Everything));
    let spared = if everything {
        HashSet::new()
    } else {
        let mut spared = in_use(catalog, &chain).await?;
        spared.insert(newest.version);
        // Of a younger one a writer may still be finding out whether it is its own.
        let window = TimeDelta::from_std(catalog.lifecycle().commit_window());
        let now = catalog
            .lifecycle()
            .store_now(&chain.slot, Uuid::new_v4())
            .await?;
        let since = now - window.unwrap_or_default() - granularity(now);
        let young = |v: &&TableVersion| v.created_at.is_none_or(|at| at > since);
        spared.extend(found.iter().filter(young).map(|v| v.version));
        spared
    };
    let mut doomed: Vec<_> = found
        .into_iter()
        .filter(|v| !spared.contains(&v.version) && ranges.iter().any(|r| r.holds(v.version)))
        .collect();
    // The newest last, so that a table that is being emptied does not go back to older rows on the way.
    doomed.sort_by_key(|v| v.version);
    let store = catalog.store();
    for batch in doomed.chunks(DELETE_BATCH) {
        let paths = batch.iter().map(|v| {
            Path::parse(&v.path).map_err(|e| Error::InvalidInput {
                message: format!("a manifest that cannot be named: {e}"),
            })
        });
        let paths = paths.collect::<Result<Vec<_>>>()?;
        let began = Moment::now();
        // A drop in between keeps what is left, and so does another table that took the name.
        check(catalog, &chain).await?;
        let path = Path::parse(&newest.path).map_err(|e| Error::InvalidInput {
            message: e.to_string(),
        })?;
        let now = store.head(&path).await?;
        let same = now.is_some_and(|now| {
            same_tag(now.e_tag.as_deref(), newest.e_tag.as_deref()) && Some(now.size) == newest.size
        });
        if !same || began.elapsed() > catalog.lifecycle().commit_window() / 2 {
            return Err(Error::Conflict {
                ident: chain.slot.ident.clone(),
                message: "it changed while its versions were deleted; some may be left".to_string(),
            });
        }
        store.delete_batch(&paths).await?;
    }
    let mut versions: Vec<u64> = doomed.into_iter().map(|v| v.version).collect();
    versions.dedup();
    Ok(versions)
}

/// The versions of the chain that a tag names, or with which a branch begins.
async fn in_use(catalog: &Catalog, chain: &Chain) -> Result<HashSet<u64>> {
    let own = |branch: &Option<String>| match branch.as_deref() {
        None | Some("main") => chain.branch.is_none(),
        other => other == chain.branch.as_deref(),
    };
    let table = &chain.slot.table;
    let tags: Vec<TagContents> = read_refs(catalog, &base_tags_path(table)).await?;
    let branches: Vec<BranchContents> =
        read_refs(catalog, &base_branches_contents_path(table)).await?;
    let tagged = tags
        .into_iter()
        .filter(|t| own(&t.branch))
        .map(|t| t.version);
    let begun = branches
        .into_iter()
        .filter(|b| own(&b.parent_branch))
        .map(|b| b.parent_version);
    Ok(tagged.chain(begun).collect())
}

async fn read_refs<T: DeserializeOwned>(catalog: &Catalog, dir: &Path) -> Result<Vec<T>> {
    let store = catalog.store();
    let mut found = Vec::new();
    for object in store.list_all(dir).await? {
        let Some((content, _)) = store.get(&object.location).await? else {
            continue;
        };
        // What cannot be read may name any version.
        let parsed = serde_json::from_slice(&content).map_err(|e| Error::CorruptMetadata {
            path: object.location.to_string(),
            message: e.to_string(),
        })?;
        found.push(parsed);
    }
    Ok(found)
}
