//! Purge: give the space of a dropped table back, for good.

use std::time::Duration;

use futures::TryStreamExt;
use lance_table::io::commit::{ManifestLocation, VERSIONS_DIR};
use object_store::ObjectMeta;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::ident::TableIdent;
use crate::lifecycle::claim::{claim_path, granularity};
use crate::lifecycle::restore::keeps_changing;
use crate::lifecycle::{
    Action, Decision, Lease, Lifecycle, MAX_ROUNDS, Marker, Recovered, Terms, Tombstone, tombstone,
};
use crate::store::Slot;

pub(crate) mod local;
mod objects;

use local::count_tree;

/// What one purge deleted, or would delete.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PurgedTable {
    /// The table.
    pub ident: TableIdent,
    /// The drop that was purged. Nil in a dry run on a table that another client deregistered: it has no drop yet.
    pub drop_id: Uuid,
    /// Objects deleted from the table's directory. Fewer than the table had when an earlier purge of it was stopped.
    pub objects: u64,
    /// Their size in bytes. On a store with object versions, old versions still take space until its own rules
    /// remove them.
    pub bytes: u64,
    /// Other places that the table's latest version refers to, which a purge never touches: the other bases of a
    /// multi-base table, the source of a shallow clone.
    pub left: Vec<String>,
}

/// What a purge did, or with `dry_run` would do.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct PurgeReport {
    /// The tables purged.
    pub tables: Vec<PurgedTable>,
    /// The tables whose purge failed, and why. Each can be tried again. Those that somebody else is restoring or
    /// purging at the moment are here with that typed error.
    pub failures: Vec<(TableIdent, Error)>,
    /// Whether nothing was deleted.
    pub dry_run: bool,
}

impl PurgeReport {
    /// Objects of all tables.
    pub fn objects(&self) -> u64 {
        self.tables.iter().map(|t| t.objects).sum()
    }

    /// Bytes of all tables.
    pub fn bytes(&self) -> u64 {
        self.tables.iter().map(|t| t.bytes).sum()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Removed {
    objects: u64,
    bytes: u64,
    left: Vec<String>,
}

impl Removed {
    fn add(&mut self, object: &ObjectMeta) {
        self.objects += 1;
        self.bytes += object.size;
    }
}

impl Lifecycle {
    /// Purges a dropped or deregistered table by name: ⌈K/1000⌉ LIST, ⌈K/1000⌉ bulk deletes each with a GET before
    /// it, and 8 requests more; some more where the latest manifest is larger than 64 KiB, where a marker came late, where
    /// the lease was renewed, and where others write into the table meanwhile; of a table larger than is sorted in memory a
    /// few LIST more, see [`objects`].
    pub(crate) async fn purge_named(
        &self,
        slot: &Slot,
        only: Option<Uuid>,
        dry_run: bool,
    ) -> Result<PurgedTable> {
        if dry_run {
            return self.dry_run(slot, only).await;
        }
        let Some(tombstone) = self.dropped(slot).await? else {
            return Err(self.not_dropped(slot).await?);
        };
        tombstone.must_be(slot, only)?;
        if let Some(purged) = self.purge_due(slot, tombstone, Terms::None).await? {
            return Ok(purged);
        }
        match tombstone::read(&self.store, slot).await? {
            // A later drop of the same name is not the one that was meant.
            Some(later) if later.creating.is_none() => {
                later.must_be(slot, only)?;
                Err(Error::Conflict {
                    ident: slot.ident.clone(),
                    message: format!(
                        "its drop was finished by another process; it was dropped again, as {}",
                        later.drop_id
                    ),
                })
            }
            _ => Err(self.not_dropped(slot).await?),
        }
    }

    async fn dry_run(&self, slot: &Slot, only: Option<Uuid>) -> Result<PurgedTable> {
        match tombstone::read(&self.store, slot).await? {
            Some(t) if t.creating.is_none() => {
                t.must_be(slot, only)?;
                self.measure(slot, t.drop_id).await
            }
            None if self.read_marker(slot).await? == Marker::Foreign => {
                self.measure(slot, Uuid::nil()).await
            }
            _ => Err(self.not_dropped(slot).await?),
        }
    }

    /// Purges a drop that was listed, also when it was re-issued under another id meanwhile; `None` when there is none
    /// by now, or a later one.
    pub(crate) async fn purge_due(
        &self,
        slot: &Slot,
        mut tombstone: Tombstone,
        terms: Terms,
    ) -> Result<Option<PurgedTable>> {
        for _ in 0..MAX_ROUNDS {
            if let Some(purged) = self.purge(slot, &tombstone, terms).await? {
                return Ok(Some(purged));
            }
            match tombstone::read(&self.store, slot).await? {
                Some(t) if t.creating.is_none() && t.first_id() == tombstone.first_id() => {
                    tombstone = t;
                }
                _ => return Ok(None),
            }
        }
        Err(keeps_changing(slot))
    }

    /// Purges one drop; `None` when it is another drop, or none, by now.
    pub(crate) async fn purge(
        &self,
        slot: &Slot,
        tombstone: &Tombstone,
        terms: Terms,
    ) -> Result<Option<PurgedTable>> {
        let purged = |removed: Removed| {
            Some(PurgedTable {
                ident: slot.ident.clone(),
                drop_id: tombstone.drop_id,
                objects: removed.objects,
                bytes: removed.bytes,
                left: removed.left,
            })
        };
        match self
            .decide(slot, tombstone.drop_id, Action::Purge, terms)
            .await?
        {
            Decision::Gone => Ok(None),
            Decision::Won(lease) => match self.finish_purge(slot, tombstone, lease).await? {
                Some(removed) => Ok(purged(removed)),
                None => Err(Error::Conflict {
                    ident: slot.ident.clone(),
                    message: "by the store's own clock its retention is not over".to_string(),
                }),
            },
            Decision::Lost(held) => match self.recover(slot, tombstone, &held).await? {
                Recovered::Purged(removed) => Ok(purged(removed)),
                Recovered::Elsewhere => Err(held.error(slot)),
                _ => Ok(None),
            },
        }
    }

    /// What a purge would delete: ⌈K/1000⌉ LIST and 1 GET; in memory is one page.
    pub(crate) async fn measure(&self, slot: &Slot, drop_id: Uuid) -> Result<PurgedTable> {
        let mut removed = Removed::default();
        if let Some(dir) = self.store.local_path(&slot.table) {
            let counted = tokio::task::spawn_blocking(move || count_tree(dir))
                .await
                .map_err(std::io::Error::other)
                .and_then(|counted| counted);
            (removed.objects, removed.bytes) =
                counted.map_err(|e| self.store.local_failure("measure", &slot.table, e))?;
            removed.left = self.other_bases_local(slot).await;
        } else {
            let mut listing = self.store.list(&slot.table);
            let mut latest: Option<ManifestLocation> = None;
            while let Some(object) = listing.try_next().await? {
                removed.add(&object);
                let found = manifest_of(slot, &object);
                latest = latest.into_iter().chain(found).max_by_key(|m| m.version);
            }
            removed.left = self.other_bases(slot, latest).await;
        }
        Ok(PurgedTable {
            ident: slot.ident.clone(),
            drop_id,
            objects: removed.objects,
            bytes: removed.bytes,
            left: removed.left,
        })
    }

    /// The steps after a purge is decided. `None`: it was to count only for an expired drop, which by the store's own
    /// clock it is not yet; the drop is re-issued, so that the decision is void.
    pub(crate) async fn finish_purge(
        &self,
        slot: &Slot,
        tombstone: &Tombstone,
        mut lease: Lease,
    ) -> Result<Option<Removed>> {
        if lease.claim.if_expired {
            let held = self.held_long_enough(slot, tombstone, &lease).await;
            if !self.resumable_on_error(&lease, held)? {
                self.reissue(slot, tombstone, lease).await?;
                return Ok(None);
            }
        }
        if let Some(window) = self.commit_window {
            self.outwait_commits(slot, tombstone, window, &mut lease)
                .await?;
        }
        let removed = if self.store.local_path(&slot.table).is_some() {
            self.remove_local(slot, &mut lease).await?
        } else {
            self.remove_objects(slot, &mut lease).await?
        };
        self.renew(slot, &mut lease).await?;
        self.delete_tombstone(slot, &lease).await?;
        self.clear_up(slot, &lease.claim).await;
        Ok(Some(removed))
    }

    /// Waits until the drop is a commit window old by the store's own clock: 1 HEAD, and the wait where the claim is younger
    /// than that. A commit that saw no drop has taken effect by then; and none rests on a listing of what is half deleted.
    async fn outwait_commits(
        &self,
        slot: &Slot,
        tombstone: &Tombstone,
        window: Duration,
        lease: &mut Lease,
    ) -> Result<()> {
        let path = claim_path(&self.store, slot, tombstone.drop_id, lease.claim.generation)?;
        let claimed = self.store.head(&path).await;
        let claimed = self.resumable_on_error(lease, claimed)?;
        let age = match (claimed, tombstone.last_modified) {
            (Some(claimed), Some(dropped)) => {
                let age = claimed.last_modified - dropped - granularity(claimed.last_modified);
                age.to_std().unwrap_or_default()
            }
            _ => Duration::ZERO,
        };
        if let Some(wait) = window.checked_sub(age) {
            tokio::time::sleep(wait).await;
            self.renew(slot, lease).await?;
            self.still_ours(slot, lease).await?;
        }
        Ok(())
    }

    /// Whether an expired drop is expired by the store's own clock too: the claim was written when the retention was
    /// over. A wrong clock of one machine never shortens a hold. 1 HEAD.
    async fn held_long_enough(
        &self,
        slot: &Slot,
        tombstone: &Tombstone,
        lease: &Lease,
    ) -> Result<bool> {
        let (Some(ttl), Some(since)) = (tombstone.ttl, tombstone.held_since()) else {
            return Ok(false);
        };
        let path = claim_path(&self.store, slot, tombstone.drop_id, lease.claim.generation)?;
        let Some(claimed) = self.store.head(&path).await? else {
            return Ok(false);
        };
        let held = claimed.last_modified - since - granularity(claimed.last_modified);
        Ok(held.to_std().is_ok_and(|held| held >= ttl))
    }

    /// The claim can outlive the purge that it decided; only the tombstone tells that there is something to delete.
    async fn still_ours(&self, slot: &Slot, lease: &Lease) -> Result<()> {
        let read = tombstone::read(&self.store, slot).await;
        match self.resumable_on_error(lease, read)? {
            Some(t) if t.drop_id == lease.claim.drop_id => Ok(()),
            _ => Err(Error::Conflict {
                ident: slot.ident.clone(),
                message: "its purge was finished by another process".to_string(),
            }),
        }
    }

    /// Base paths of the latest version other than the table itself. Informative: a table that cannot be read can
    /// still be purged.
    async fn other_bases(&self, slot: &Slot, latest: Option<ManifestLocation>) -> Vec<String> {
        let Some(latest) = latest else {
            return Vec::new();
        };
        let read =
            lance_table::io::manifest::read_manifest(&self.store.store, &latest.path, latest.size)
                .await;
        match read {
            Ok(manifest) => {
                let mut bases: Vec<String> = manifest
                    .base_paths
                    .values()
                    .map(|b| b.path.clone())
                    .filter(|p| p.trim_end_matches('/') != slot.uri)
                    .collect();
                bases.sort();
                bases
            }
            Err(error) => {
                let error = self.store.redactor.text(&error.to_string());
                tracing::warn!(table = %slot.ident, %error, "purging a table whose latest manifest cannot be read");
                Vec::new()
            }
        }
    }
}

/// The version whose manifest this object is.
fn manifest_of(slot: &Slot, object: &ObjectMeta) -> Option<ManifestLocation> {
    let mut parts = object.location.prefix_match(&slot.table)?;
    if parts.next()?.as_ref() != VERSIONS_DIR {
        return None;
    }
    ManifestLocation::try_from(object.clone()).ok()
}

fn keeps_writing(slot: &Slot) -> Error {
    Error::Conflict {
        ident: slot.ident.clone(),
        message: "somebody keeps writing into the table while it is purged".to_string(),
    }
}
