//! Undrop: make a dropped table live again, and the last steps that every restore shares with it.

use uuid::Uuid;

use crate::error::{Error, Result};
use crate::lifecycle::{
    Action, Claim, Decision, DroppedTable, Lease, Lifecycle, MAX_ROUNDS, Marker, Patience,
    Recovered, Terms, Tombstone, tombstone,
};
use crate::store::Slot;

impl Lifecycle {
    /// Restores a dropped or deregistered table: 8 requests in 6 round trips (read tombstone, create claim, read
    /// tombstone and find the latest version together, delete marker, delete tombstone, delete claim and look for a
    /// marker that came late together).
    pub(crate) async fn undrop(&self, slot: &Slot, only: Option<Uuid>) -> Result<DroppedTable> {
        for _ in 0..MAX_ROUNDS {
            let Some(tombstone) = self.dropped(slot).await? else {
                return Err(self.not_dropped(slot).await?);
            };
            tombstone.must_be(slot, only)?;
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
                        && (tombstone.version.is_some()
                            || !self.has_anything(slot).await.unwrap_or(true))
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
                    Recovered::DroppedAgain | Recovered::TooEarly => {}
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
                    self.adopt(slot).await?;
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

    /// The same, and waits for another process that is creating the table.
    pub(crate) async fn hidden_or_wait(
        &self,
        slot: &Slot,
        patience: &mut Patience,
    ) -> Result<Option<Tombstone>> {
        loop {
            match self.hidden(slot).await {
                Err(Error::Conflict { .. }) if patience.wait().await => {}
                found => return found,
            }
        }
    }

    /// The steps after a restore is decided: the table is live once the tombstone is gone.
    pub(crate) async fn finish_restore(&self, slot: &Slot, lease: Lease) -> Result<()> {
        if !lease.claim.creating {
            lease.guard(slot, self.store.delete(&slot.marker)).await?;
        }
        self.delete_tombstone(slot, &lease).await?;
        self.clear_up(slot, &lease.claim).await;
        Ok(())
    }

    /// When a drop is over: deletes its claims, and its marker if that came late. What fails here is left for reconcile.
    pub(crate) async fn clear_up(&self, slot: &Slot, claim: &Claim) {
        let late_marker = async {
            // A slow drop, or a reconcile, can write the marker after it was removed, and look at the tombstone before
            // that was.
            if !claim.creating && self.read_marker(slot).await? == Marker::OfDrop(claim.drop_id) {
                self.sync_marker(slot).await?;
            }
            Ok::<_, Error>(())
        };
        let ((), late_marker) = tokio::join!(self.delete_claims(slot, claim), late_marker);
        if let Err(error) = late_marker {
            tracing::warn!(table = %slot.ident, %error, "its drop is over; its marker for stock clients is left for reconcile");
        }
    }

    /// Deletes the tombstone of the leased drop. When the answer is lost, the tombstone itself tells.
    pub(crate) async fn delete_tombstone(&self, slot: &Slot, lease: &Lease) -> Result<()> {
        let deleted = lease.guard(slot, self.store.delete(&slot.tombstone)).await;
        if let Err(error) = deleted {
            return match tombstone::read(&self.store, slot).await {
                Ok(Some(t)) if t.drop_id == lease.claim.drop_id => Err(error),
                Ok(_) => Ok(()),
                Err(_) => Err(error),
            };
        }
        Ok(())
    }

    /// Ends a revive that did not commit, or a purge that came too early: the same drop under a new id, so that the
    /// old decision is void.
    pub(crate) async fn reissue(
        &self,
        slot: &Slot,
        tombstone: &Tombstone,
        lease: Lease,
    ) -> Result<()> {
        let again = tombstone.reissued();
        let content = again.encode(slot)?;
        lease
            .guard(slot, self.store.put(&slot.tombstone, content))
            .await?;
        self.delete_claims(slot, &lease.claim).await;
        if let Err(error) = self.sync_marker(slot).await {
            tracing::warn!(table = %slot.ident, %error, "its marker for stock clients is left for reconcile");
        }
        Ok(())
    }
}

pub(crate) fn keeps_changing(slot: &Slot) -> Error {
    Error::Conflict {
        ident: slot.ident.clone(),
        message: "its drop state keeps changing".to_string(),
    }
}
