//! Purge on local disk: the directory is renamed away in one step, and deleted under a name that carries the drop id.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use object_store::path::Path;
use uuid::Uuid;

use crate::error::Result;
use crate::lifecycle::purge::{Removed, keeps_writing, manifest_of};
use crate::lifecycle::{Lease, Lifecycle, MAX_ROUNDS};
use crate::listing::{Entry, scan};
use crate::store::Slot;

impl Lifecycle {
    /// Renames the directory away in one step, so that no name in it can be taken for a later table's, then deletes it.
    pub(super) async fn remove_local(&self, slot: &Slot, lease: &mut Lease) -> Result<Removed> {
        let mut removed = Removed {
            left: self.other_bases_local(slot).await,
            ..Default::default()
        };
        if self
            .store
            .local_path(&slot.table)
            .is_some_and(|p| p.is_symlink())
        {
            // Only the link is ours to remove, and what we wrote through it.
            self.still_ours(slot, lease).await?;
            lease.guard(slot, self.store.delete(&slot.marker)).await?;
        }
        let mut dirs = Vec::new();
        let mut emptied = false;
        for _ in 0..MAX_ROUNDS {
            self.renew(slot, lease).await?;
            self.still_ours(slot, lease).await?;
            let name = purge_dir_name(&slot.stem, lease.claim.drop_id);
            let away = self.store.child(&name)?;
            if !lease
                .guard(
                    slot,
                    self.rename_dir(&slot.table, &away, lease.deadline_check()),
                )
                .await?
            {
                emptied = true;
                break;
            }
            dirs.push(name);
        }
        if !emptied {
            return Err(keeps_writing(slot));
        }
        if lease.claim.generation > 0 {
            // Directories that carry this drop id are ours alone, also those that a stopped purge left.
            let scanned = scan(&self.store).await;
            let ours = |entry| match entry {
                Entry::PurgeDir { drop_id, dir, .. } if drop_id == lease.claim.drop_id => Some(dir),
                _ => None,
            };
            dirs = self
                .resumable_on_error(lease, scanned)?
                .into_iter()
                .filter_map(ours)
                .collect();
        }
        for dir in &dirs {
            let gone = self.remove_dir(&self.store.child(dir)?).await;
            let (objects, bytes) = self.resumable_on_error(lease, gone)?;
            removed.objects += objects;
            removed.bytes += bytes;
        }
        Ok(removed)
    }

    /// Whether there was a directory to rename. `in_time` is asked on the thread that renames, right before: a closure
    /// that waited for a thread must not rename what has come there since.
    async fn rename_dir(
        &self,
        from: &Path,
        to: &Path,
        in_time: impl Fn() -> bool + Send + 'static,
    ) -> Result<bool> {
        let (Some(source), Some(target)) = (self.store.local_path(from), self.store.local_path(to))
        else {
            return Ok(false);
        };
        let abandoned = Abandoned::default();
        let gone = abandoned.flag();
        let renamed = tokio::task::spawn_blocking(move || {
            // A loose file of that name is not a table, and not ours.
            match std::fs::symlink_metadata(&source) {
                Ok(found) if found.is_dir() || found.is_symlink() => {}
                Ok(_) => return Ok(false),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
                Err(e) => return Err(e),
            }
            if gone.load(Ordering::SeqCst) || !in_time() {
                return Err(std::io::ErrorKind::TimedOut.into());
            }
            match std::fs::rename(source, target) {
                Ok(()) => Ok(true),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
                Err(e) => Err(e),
            }
        })
        .await
        .map_err(std::io::Error::other)
        .and_then(|r| r);
        drop(abandoned);
        renamed.map_err(|e| self.store.local_failure("rename", from, e))
    }

    /// Deletes a local directory tree without following links; (files, bytes) in it.
    pub(crate) async fn remove_dir(&self, dir: &Path) -> Result<(u64, u64)> {
        let Some(path) = self.store.local_path(dir) else {
            return Ok((0, 0));
        };
        let removed = tokio::task::spawn_blocking(move || {
            let counted = count_tree(path.clone())?;
            match std::fs::remove_dir_all(&path) {
                Ok(()) => Ok(counted),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(counted),
                // The table's directory was a link: only the link goes, not what it points to.
                Err(_) if path.is_symlink() => std::fs::remove_file(&path).map(|()| counted),
                Err(e) => Err(e),
            }
        })
        .await
        .map_err(std::io::Error::other)
        .and_then(|r| r);
        removed.map_err(|e| self.store.local_failure("delete", dir, e))
    }

    pub(super) async fn other_bases_local(&self, slot: &Slot) -> Vec<String> {
        let latest = match self.store.latest_manifest(&slot.table).await {
            Ok(Some(latest)) => self.store.head(&latest.path).await,
            _ => return Vec::new(),
        };
        let latest = latest.ok().flatten();
        self.other_bases(slot, latest.and_then(|o| manifest_of(slot, &o)))
            .await
    }
}

/// What a purge of this drop renames the directory to; [`Entry::PurgeDir`] reads it.
pub(crate) fn purge_dir_name(stem: &str, drop_id: Uuid) -> String {
    let unique = Uuid::new_v4().simple().to_string();
    format!("{stem}.deleted.{drop_id}.purge.{}", &unique[..8])
}

/// Tells a closure on another thread that nobody waits for it any more.
#[derive(Default)]
struct Abandoned(Arc<AtomicBool>);

impl Abandoned {
    fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Files and bytes below a directory, links not followed; nothing where nothing is.
pub(super) fn count_tree(dir: PathBuf) -> std::io::Result<(u64, u64)> {
    let (mut files, mut bytes) = (0, 0);
    let mut pending = vec![dir];
    while let Some(dir) = pending.pop() {
        if dir.is_symlink() {
            continue;
        }
        let entries = match std::fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            Err(e) => return Err(e),
        };
        for entry in entries {
            let entry = entry?;
            let found = entry.metadata()?;
            if found.is_dir() {
                pending.push(entry.path());
            } else {
                files += 1;
                bytes += found.len();
            }
        }
    }
    Ok((files, bytes))
}
