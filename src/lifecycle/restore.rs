//! Undrop: make a dropped table live again, and the last steps that a revive and a create share with it.

use std::collections::HashSet;
use std::future::Future;
use std::time::Duration;

use lance::dataset::transaction::Transaction;
use lance_table::io::commit::{ManifestLocation, VERSIONS_DIR};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::lifecycle::claim::{claim_path, granularity};
use crate::lifecycle::{
    Action, Creating, Decision, DroppedTable, Lease, Lifecycle, MAX_ROUNDS, Marker, Recovered,
    Revive, Terms, Tombstone, tombstone,
};
use crate::store::{Created, Slot, join};

/// A commit that did not succeed.
pub(crate) enum CommitFailure {
    /// It is known not to be in the history, and nothing is under way.
    Failed(Error),
    /// It may be in the history, or get there yet.
    Unknown(Error),
}

impl Lifecycle {
    /// Restores a dropped or deregistered table: 8 requests in 6 round trips (read tombstone, create claim, read
    /// tombstone and find the latest version together, delete marker, delete tombstone, delete claim and look for a
    /// marker that came late together).
    pub(crate) async fn undrop(&self, slot: &Slot) -> Result<DroppedTable> {
        for _ in 0..MAX_ROUNDS {
            let Some(tombstone) = self.dropped(slot).await? else {
                return Err(self.not_dropped(slot).await?);
            };
            let (decision, manifest) = self
                .decide_and_look(
                    slot,
                    tombstone.drop_id,
                    Action::Restore,
                    Terms::None,
                    self.store.latest_manifest(&slot.table),
                )
                .await?;
            match decision {
                Decision::Won(lease) => {
                    self.finish_restore(slot, lease).await?;
                    // Only what never had a version is restored without one: an incomplete or declared table.
                    if manifest.flatten().is_none()
                        && (tombstone.version.is_some() || !self.has_anything(slot).await?)
                    {
                        return Err(self.data_is_gone(slot));
                    }
                    return Ok(tombstone.public(&slot.ident));
                }
                Decision::Gone => {}
                Decision::Lost(held) => match self.recover(slot, &tombstone, &held).await? {
                    Recovered::Restored => return Ok(tombstone.public(&slot.ident)),
                    Recovered::Revived => {
                        return Err(Error::TableNotDropped {
                            ident: slot.ident.clone(),
                        });
                    }
                    Recovered::Purged(_) => {
                        return Err(Error::TableNotFound {
                            ident: slot.ident.clone(),
                            reason: "a purge of it had been decided, and is finished now"
                                .to_string(),
                        });
                    }
                    Recovered::Abandoned => return Err(self.data_is_gone(slot)),
                    Recovered::DroppedAgain | Recovered::Withdrawn => {}
                    Recovered::Elsewhere => return Err(held.error(slot)),
                },
            }
        }
        Err(keeps_changing(slot))
    }

    fn data_is_gone(&self, slot: &Slot) -> Error {
        Error::TableNotFound {
            ident: slot.ident.clone(),
            reason: "its data was purged or removed; the record of its drop is cleared now"
                .to_string(),
        }
    }

    /// The drop to restore or to purge; a deregistration by a stock client becomes one. Finishes or clears away a
    /// create that a stopped process left. 1 GET where the table is dropped, 2 where it is not.
    pub(crate) async fn dropped(&self, slot: &Slot) -> Result<Option<Tombstone>> {
        for _ in 0..MAX_ROUNDS {
            match tombstone::read(&self.store, slot).await? {
                Some(t) => match t.creating {
                    None => return Ok(Some(t)),
                    Some(creating) => {
                        let held = self.creator(slot, &t, creating).await?;
                        if let Recovered::Elsewhere = self.recover(slot, &t, &held).await? {
                            return Err(held.error(slot));
                        }
                    }
                },
                None if self.read_marker(slot).await? == Marker::Foreign => {
                    if let Some(adopted) = self.adopt(slot).await? {
                        return Ok(Some(adopted));
                    }
                }
                None => return Ok(None),
            }
        }
        Err(keeps_changing(slot))
    }

    /// The error for restoring or purging what is not dropped: 1 to 2 LIST.
    pub(crate) async fn not_dropped(&self, slot: &Slot) -> Result<Error> {
        let ident = slot.ident.clone();
        Ok(match self.store.latest_manifest(&slot.table).await? {
            Some(_) => Error::TableNotDropped { ident },
            None => Error::TableNotFound {
                ident,
                reason: "neither a table nor a drop of that name is there".to_string(),
            },
        })
    }

    /// The drop that a create would revive, if nobody is deciding about it. Recovers what stopped processes left. 2 GET
    /// where nothing is there.
    pub(crate) async fn hidden(&self, slot: &Slot) -> Result<Option<Tombstone>> {
        for _ in 0..MAX_ROUNDS {
            let Some(tombstone) = self.dropped(slot).await? else {
                return Ok(None);
            };
            let Some(held) = self.holder(slot, tombstone.drop_id).await? else {
                return Ok(Some(tombstone));
            };
            if let Recovered::Elsewhere = self.recover(slot, &tombstone, &held).await? {
                return Err(held.error(slot));
            }
        }
        Err(keeps_changing(slot))
    }

    /// The steps after a restore is decided: the table is live once the tombstone is gone.
    pub(crate) async fn finish_restore(&self, slot: &Slot, lease: Lease) -> Result<()> {
        if !lease.claim.creating {
            self.strike(slot, &lease, self.store.delete(&slot.marker))
                .await?;
        }
        self.delete_tombstone(slot, &lease).await?;
        let drop_id = lease.claim.drop_id;
        let late_marker = async {
            // A slow drop can write its marker after we removed it, and look at the tombstone before we did.
            if !lease.claim.creating && self.read_marker(slot).await? == Marker::OfDrop(drop_id) {
                self.sync_marker(slot).await?;
            }
            Ok::<_, Error>(())
        };
        let ((), late_marker) = tokio::join!(self.delete_claims(slot, &lease.claim), late_marker);
        if let Err(error) = late_marker {
            tracing::warn!(table = %slot.ident, %error, "restored; its marker for stock clients is left for reconcile");
        }
        Ok(())
    }

    /// Deletes the tombstone of the leased drop. When the answer is lost, the tombstone itself tells.
    pub(crate) async fn delete_tombstone(&self, slot: &Slot, lease: &Lease) -> Result<()> {
        let deleted = self
            .strike(slot, lease, self.store.delete(&slot.tombstone))
            .await;
        if let Err(error) = deleted {
            return match tombstone::read(&self.store, slot).await {
                Ok(Some(t)) if t.drop_id == lease.claim.drop_id => Err(error),
                Ok(_) => Ok(()),
                Err(_) => Err(error),
            };
        }
        Ok(())
    }

    /// Ends a revive that did not commit: the same drop under a new id, so that the old decision is void.
    pub(crate) async fn reissue(
        &self,
        slot: &Slot,
        tombstone: &Tombstone,
        lease: Lease,
    ) -> Result<()> {
        let again = tombstone.reissued();
        let content = again.encode(slot)?;
        self.strike(slot, &lease, self.store.put(&slot.tombstone, content))
            .await?;
        self.delete_claims(slot, &lease.claim).await;
        if let Err(error) = self.sync_marker(slot).await {
            tracing::warn!(table = %slot.ident, %error, "its marker for stock clients is left for reconcile");
        }
        Ok(())
    }

    /// Revives a dropped table: decides, commits while hidden, finishes as undrop. `commit` gets the time that the
    /// lease leaves it. The claim records the transaction, so that whoever finds it can tell whether it committed.
    pub(crate) async fn revive<T, C, F>(
        &self,
        slot: &Slot,
        tombstone: &Tombstone,
        base_version: Option<u64>,
        transaction: Uuid,
        commit: C,
    ) -> Result<T>
    where
        C: FnOnce(Duration) -> F,
        F: Future<Output = std::result::Result<T, CommitFailure>>,
    {
        let terms = Terms::Revive(Revive {
            base_version,
            transaction,
        });
        let decision = self
            .decide(slot, tombstone.drop_id, Action::Restore, terms)
            .await?;
        let lease = match decision {
            Decision::Won(lease) => lease,
            Decision::Gone => {
                return Err(Error::Conflict {
                    ident: slot.ident.clone(),
                    message: "its drop was finished by another process meanwhile".to_string(),
                });
            }
            Decision::Lost(held) => return Err(held.error(slot)),
        };
        let left = self.resumable_on_error(&lease, lease.remaining(slot))?;
        match commit(left).await {
            Ok(value) => {
                self.finish_restore(slot, lease).await?;
                Ok(value)
            }
            Err(CommitFailure::Failed(error)) => {
                if let Err(error) = self.reissue(slot, tombstone, lease).await {
                    tracing::warn!(table = %slot.ident, %error, "a revive that failed is left for reconcile");
                }
                Err(error)
            }
            // It may land yet: after the lease, who recovers looks for it.
            Err(CommitFailure::Unknown(error)) => Err(error),
        }
    }

    /// Creates a table over an absent name, or overwrites a live one (`base` is its manifest that was read): takes the
    /// name with a creating tombstone, checks that nobody touched what was written, commits, and gives the name
    /// free. Beside the writing and the commit: 1 PUT, 1 LIST for each 1,000 objects, 1 DELETE.
    pub(crate) async fn commit_alone<T, C, F>(
        &self,
        slot: &Slot,
        transaction: &Transaction,
        base: Option<&ManifestLocation>,
        commit: C,
    ) -> Result<T>
    where
        C: FnOnce(Duration) -> F,
        F: Future<Output = std::result::Result<T, CommitFailure>>,
    {
        let owner = Uuid::new_v4();
        let lease_ms = self.lease_ms(Action::Restore);
        let hide = Tombstone::creating(self.store.clock.now(), Creating { owner, lease_ms });
        let lease = Self::lease_from_now(self.creating_claim(hide.drop_id, owner));
        if let Created::Exists(found) = self
            .store
            .create(&slot.tombstone, hide.encode(slot)?)
            .await?
        {
            return Err(self.taken(slot, found.map(|(c, m)| Tombstone::decode(&c, &m))));
        }
        let outcome = match self.check_untouched(slot, transaction, base, &lease).await {
            Ok(left) => commit(left).await,
            Err(e) => Err(CommitFailure::Failed(e)),
        };
        match outcome {
            Ok(value) => {
                // The table is live since the commit; a tombstone left here only delays its next drop.
                if let Err(error) = self.finish_restore(slot, lease).await {
                    tracing::warn!(table = %slot.ident, %error, "created; its creating tombstone is left for reconcile");
                }
                Ok(value)
            }
            Err(CommitFailure::Failed(error)) => {
                if let Err(error) = self.finish_restore(slot, lease).await {
                    tracing::warn!(table = %slot.ident, %error, "a create that failed is left for reconcile");
                }
                Err(error)
            }
            // It may land yet, and until the lease is over nobody may drop and purge under it.
            Err(CommitFailure::Unknown(error)) => Err(error),
        }
    }

    fn taken(&self, slot: &Slot, other: Option<Tombstone>) -> Error {
        let ident = slot.ident.clone();
        let message = match other {
            Some(t) if t.creating.is_some() => "another process is creating it",
            Some(t) => {
                return Error::TableDropped {
                    dropped: Box::new(t.public(&ident)),
                };
            }
            None => "another process has just created, restored or purged it",
        };
        Error::Conflict {
            ident,
            message: message.to_string(),
        }
    }

    /// Under the creating tombstone nobody deletes; what is missing now was deleted before, by a purge of an earlier
    /// table of that name.
    async fn check_untouched(
        &self,
        slot: &Slot,
        transaction: &Transaction,
        base: Option<&ManifestLocation>,
        lease: &Lease,
    ) -> Result<Duration> {
        let table = slot.table.as_ref();
        let objects = match base {
            None => self.store.list_all(&slot.table).await?,
            Some(base) => {
                let now = self.store.manifest_of(&slot.table, base.version).await?;
                if now.is_none_or(|now| now.path != base.path || now.e_tag != base.e_tag) {
                    return Err(Error::Conflict {
                        ident: slot.ident.clone(),
                        message: "another table has taken its place meanwhile".to_string(),
                    });
                }
                self.store.list_all(&join(&slot.table, "data")?).await?
            }
        };
        let found: HashSet<&str> = objects.iter().map(|o| o.location.as_ref()).collect();
        let versions = format!("{table}/{VERSIONS_DIR}/");
        if base.is_none()
            && found
                .iter()
                .any(|path| path.starts_with(&versions) && path.ends_with(".manifest"))
        {
            return Err(Error::TableAlreadyExists {
                ident: slot.ident.clone(),
            });
        }
        for file in crate::root::data_files(transaction) {
            if !found.contains(format!("{table}/data/{file}").as_str()) {
                return Err(Error::Conflict {
                    ident: slot.ident.clone(),
                    message: "a purge of an earlier table of this name deleted what was written"
                        .to_string(),
                });
            }
        }
        if found.contains(slot.marker.as_ref()) {
            // Litter of an earlier drop: it would hide the new table from stock clients.
            self.strike(slot, lease, self.store.delete(&slot.marker))
                .await?;
        }
        lease.remaining(slot)
    }

    /// Whether an expired drop is expired by the store's own clock too: the claim was written when the retention was
    /// over. A wrong clock of one machine never shortens a hold. 1 HEAD.
    pub(crate) async fn held_long_enough(
        &self,
        slot: &Slot,
        tombstone: &Tombstone,
        lease: &Lease,
    ) -> Result<bool> {
        let (Some(ttl), Some(written)) = (tombstone.ttl, tombstone.last_modified) else {
            return Ok(false);
        };
        let path = claim_path(&self.store, slot, tombstone.drop_id, lease.claim.generation)?;
        let Some(claimed) = self.store.head(&path).await? else {
            return Ok(false);
        };
        let held = claimed.last_modified - written - granularity(claimed.last_modified);
        Ok(held.to_std().is_ok_and(|held| held >= ttl))
    }
}

pub(crate) fn keeps_changing(slot: &Slot) -> Error {
    Error::Conflict {
        ident: slot.ident.clone(),
        message: "its drop state keeps changing".to_string(),
    }
}
