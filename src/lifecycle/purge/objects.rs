//! Purge on object stores: what is listed is deleted in batches as it comes, names that a later table could use again
//! first, and however many objects there are, only a few pages of them are in memory.
//!
//! A table of at most [`HELD`] objects is listed whole and sorted. Of a larger one the places of reusable names are
//! listed and emptied first, and then the rest goes page by page, by a listing that continues behind what is deleted.
//! Whatever a listing has missed, or was written meanwhile, the next one finds: it is over when one finds nothing.

use std::collections::HashSet;

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use lance_io::object_store::ReadDirOptions;
use lance_table::io::commit::VERSIONS_DIR;
use object_store::ObjectMeta;
use object_store::path::Path;

use crate::error::Result;
use crate::lifecycle::purge::{Removed, keeps_writing, manifest_of};
use crate::lifecycle::{Lease, Lifecycle, MAX_ROUNDS};
use crate::store::{DELETE_BATCH, Slot, is_not_found, join};

/// Objects that are held to be sorted: 4 pages. They, the next batch and the page that is being read are all that a
/// purge has in memory.
const HELD: usize = 4 * DELETE_BATCH;

/// Where Lance keeps tags and branches.
const REFS_DIR: &str = "_refs";

/// Where Lance keeps branches' own data, manifests among it.
const BRANCHES_DIR: &str = "tree";

/// Where names are that a later table could use again, beside the table's directory itself.
const PLACES: [&str; 3] = [VERSIONS_DIR, REFS_DIR, BRANCHES_DIR];

type Listing<'a> = futures::stream::Fuse<BoxStream<'a, Result<ObjectMeta>>>;

impl Lifecycle {
    /// Deletes what is below the table's prefix, in batches, names that a later table could use again first; lists
    /// again until nothing is there. Beyond [`HELD`] objects 2 to 4 LIST more than without bounds, and 1 for each 1,000
    /// manifests, refs and objects of branches.
    pub(super) async fn remove_objects(&self, slot: &Slot, lease: &mut Lease) -> Result<Removed> {
        let mut deletion = Deletion {
            lifecycle: self,
            slot,
            lease,
            removed: Removed::default(),
            newest: None,
            batch: Vec::new(),
            listed: 0,
        };
        for _ in 0..MAX_ROUNDS {
            if !deletion.round().await? {
                // On the scheme `file-object-store` what is left are directories; only empty ones go.
                let tidied = self.store.store.remove_empty_dirs(
                    slot.table.clone(),
                    Default::default(),
                    Default::default(),
                    None,
                );
                if let Err(error) = tidied.await {
                    let error = self.store.redactor.text(&error.to_string());
                    tracing::warn!(table = %slot.ident, %error, "empty directories are left");
                }
                return Ok(deletion.removed);
            }
        }
        Err(keeps_writing(slot))
    }
}

/// A purge at work.
struct Deletion<'a> {
    lifecycle: &'a Lifecycle,
    slot: &'a Slot,
    lease: &'a mut Lease,
    removed: Removed,
    /// The newest version seen, which `removed.left` is of.
    newest: Option<u64>,
    /// What is deleted next.
    batch: Vec<ObjectMeta>,
    listed: usize,
}

impl Deletion<'_> {
    /// Lists once and deletes what is there; false when nothing was.
    async fn round(&mut self) -> Result<bool> {
        let (lifecycle, table) = (self.lifecycle, &self.slot.table);
        let mut listing = lifecycle.store.list(table).fuse();
        let held: Result<Vec<_>> = (&mut listing).take(HELD + 1).try_collect().await;
        let mut held = lifecycle.resumable_on_error(self.lease, held)?;
        if held.is_empty() {
            return Ok(false);
        }
        if held.len() <= HELD {
            self.look(&held).await;
            held.sort_by_key(|o| !is_reuse_prone(table, &o.location));
        } else {
            self.delete_reuse_prone().await?;
            // Those are gone already; what was written since is for the next round.
            held.retain(|o| !is_reuse_prone(table, &o.location));
        }
        for object in held {
            self.delete(object).await?;
        }
        while let Some(object) = self.next(&mut listing).await? {
            if !is_reuse_prone(table, &object.location) {
                self.delete(object).await?;
            }
        }
        self.send().await?;
        Ok(true)
    }

    /// Deletes every name for which [`is_reuse_prone`], from where such names are. What does not fill a batch waits for
    /// the next objects: they go together, so none of those goes earlier.
    async fn delete_reuse_prone(&mut self) -> Result<()> {
        let (lifecycle, table) = (self.lifecycle, &self.slot.table);
        let store = &lifecycle.store;
        let mut page_token = None;
        let mut places = HashSet::new();
        loop {
            let options = ReadDirOptions {
                page_token,
                limit: Some(DELETE_BATCH),
            };
            let page = match store.store.read_dir_page(table.clone(), options).await {
                Ok(page) => Ok(page),
                Err(e) if is_not_found(&e) => break,
                Err(e) => Err(store.storage_via_lance("list", table, e)),
            };
            let page = lifecycle.resumable_on_error(self.lease, page)?;
            for object in page.result.objects {
                self.delete(object).await?;
            }
            let dirs = page.result.common_prefixes;
            let there = |place: &&str| dirs.iter().any(|dir| dir.filename() == Some(*place));
            places.extend(PLACES.into_iter().filter(there));
            page_token = page.page_token;
            if page_token.is_none() {
                break;
            }
        }
        for place in PLACES.into_iter().filter(|place| places.contains(place)) {
            let dir = join(table, place)?;
            let mut listing = store.list(&dir).fuse();
            while let Some(object) = self.next(&mut listing).await? {
                if is_reuse_prone(table, &object.location) {
                    self.delete(object).await?;
                }
            }
        }
        Ok(())
    }

    /// The next object of a listing. It may be a long way to the next batch, so the lease is renewed on it.
    async fn next(&mut self, listing: &mut Listing<'_>) -> Result<Option<ObjectMeta>> {
        let next = listing.try_next().await;
        let next = self.lifecycle.resumable_on_error(self.lease, next)?;
        self.listed += 1;
        if self.listed.is_multiple_of(DELETE_BATCH) {
            self.lifecycle.renew(self.slot, self.lease).await?;
        }
        Ok(next)
    }

    async fn delete(&mut self, object: ObjectMeta) -> Result<()> {
        self.batch.push(object);
        match self.batch.len() {
            DELETE_BATCH => self.send().await,
            _ => Ok(()),
        }
    }

    /// Deletes the batch, if the drop is still ours to purge.
    async fn send(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            return Ok(());
        }
        self.look(&batch).await;
        self.lifecycle.renew(self.slot, self.lease).await?;
        self.lifecycle.still_ours(self.slot, self.lease).await?;
        let paths: Vec<Path> = batch.iter().map(|o| o.location.clone()).collect();
        self.lease
            .guard(self.slot, self.lifecycle.store.delete_batch(&paths))
            .await?;
        batch.iter().for_each(|o| self.removed.add(o));
        Ok(())
    }

    /// Reads what the newest version refers to before its manifest goes: 1 GET if it is newer than those before.
    async fn look(&mut self, objects: &[ObjectMeta]) {
        let manifests = objects.iter().filter_map(|o| manifest_of(self.slot, o));
        let Some(newest) = manifests.max_by_key(|m| m.version) else {
            return;
        };
        if self.newest.is_none_or(|known| newest.version > known) {
            self.newest = Some(newest.version);
            self.removed.left = self.lifecycle.other_bases(self.slot, Some(newest)).await;
        }
    }
}

/// Names that another table under the same name would use again: manifests, version hint, refs, markers.
fn is_reuse_prone(table: &Path, object: &Path) -> bool {
    let Some(mut parts) = object.prefix_match(table) else {
        return false;
    };
    let Some(first) = parts.next() else {
        return false;
    };
    let mut rest = parts.peekable();
    if rest.peek().is_none() {
        return true;
    }
    match first.as_ref() {
        VERSIONS_DIR | REFS_DIR => true,
        BRANCHES_DIR => rest.any(|p| matches!(p.as_ref(), VERSIONS_DIR | REFS_DIR)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reuse_prone_names_are_those_without_a_unique_part() {
        let table = Path::from("root/t.lance");
        for name in [
            "_versions/1.manifest",
            "_versions/latest_version_hint.json",
            "_refs/tags/a.json",
            ".lance-reserved",
            "tree/b/_versions/1.manifest",
            "tree/a/b/_versions/1.manifest",
            "tree",
        ] {
            let object = Path::from(format!("root/t.lance/{name}"));
            assert!(is_reuse_prone(&table, &object), "{name}");
        }
        for name in [
            "data/x.lance",
            "_transactions/0-x.txn",
            "_indices/u/index.idx",
            "tree/b/data/x.lance",
        ] {
            let object = Path::from(format!("root/t.lance/{name}"));
            assert!(!is_reuse_prone(&table, &object), "{name}");
        }
        assert!(!is_reuse_prone(&table, &Path::from("root/t.lance2/x")));
        assert!(!is_reuse_prone(&table, &table));
    }
}
