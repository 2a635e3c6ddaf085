//! Drop: hide a table, keep everything.

use std::time::Duration;

use lance_table::io::commit::ManifestLocation;

use crate::error::{Error, Result};
use crate::lifecycle::restore::keeps_changing;
use crate::lifecycle::{
    Action, Decision, DroppedTable, Lifecycle, Marker, Recovered, Terms, Tombstone, tombstone,
};
use crate::store::{Created, Slot};

/// What a drop found when it looked again.
enum Seen {
    Table,
    /// Its tombstone, over nothing.
    Nothing,
    /// Neither its tombstone nor a table.
    Neither,
}

impl Lifecycle {
    /// Drops a table. 5 requests in 4 round trips, hidden after the second: look for the latest manifest, create the
    /// tombstone, write Lance's marker, then read the tombstone again and look at the manifest again, together.
    /// One more for a table without a manifest.
    pub(crate) async fn drop_table(
        &self,
        slot: &Slot,
        ttl: Option<Duration>,
        reason: Option<String>,
    ) -> Result<DroppedTable> {
        let manifest = self.store.latest_manifest(&slot.table).await?;
        if manifest.is_none() && !self.has_anything(slot).await? {
            return Err(not_found(slot, "nothing is there"));
        }
        let now = self.store.clock.now();
        let dropped = Tombstone::new(now, ttl, manifest.as_ref().map(|m| m.version), reason);
        self.entomb(slot, &dropped).await?;
        // From here on the table is dropped: what fails below is repaired by reconcile, not reported as a failed drop.
        let mut public = dropped.public(&slot.ident);
        let (marked, seen) = self.after_drop(slot, &dropped, manifest).await;
        match seen {
            Ok(Seen::Nothing) if self.take_back(slot, &dropped).await? => {
                return Err(not_found(slot, "it was purged meanwhile"));
            }
            // A purge of this drop, or of an earlier one before it: there is no telling.
            Ok(Seen::Nothing | Seen::Neither) => {
                return Err(Error::Conflict {
                    ident: slot.ident.clone(),
                    message: "another process has purged it meanwhile, or its drop".to_string(),
                });
            }
            Ok(Seen::Table) | Err(_) => {}
        }
        if let Err(error) = marked.and(seen.map(|_| ())) {
            tracing::warn!(table = %slot.ident, %error, "dropped, but stock namespace clients may still list it");
            public.hidden_from_stock_clients = false;
        }
        Ok(public)
    }

    /// Creates the tombstone. Waits while a table of that name is being created, and clears away what a stopped
    /// process left of that.
    async fn entomb(&self, slot: &Slot, dropped: &Tombstone) -> Result<()> {
        let content = dropped.encode(slot)?;
        let mut patience = self.patience();
        loop {
            let other = match self.store.create(&slot.tombstone, content.clone()).await? {
                Created::New => return Ok(()),
                // What stood there is gone again: an undrop, a purge or a create has just ended.
                Created::Exists(None) => {
                    if !patience.wait().await {
                        return Err(keeps_changing(slot));
                    }
                    continue;
                }
                Created::Exists(Some((found, meta))) => Tombstone::decode(&found, &meta),
            };
            let Some(creating) = other.creating else {
                let reason = format!("it was dropped already, at {}", other.deleted_at);
                return Err(not_found(slot, &reason));
            };
            let held = self.creator(slot, &other, creating).await?;
            if matches!(
                self.recover(slot, &other, &held).await?,
                Recovered::Elsewhere
            ) && !patience.wait().await
            {
                return Err(held.error(slot));
            }
        }
    }

    /// Writes the marker, then looks whether we were overtaken: by an undrop, after which the marker must not stay,
    /// or by a purge that had emptied the name between our look and our tombstone.
    async fn after_drop(
        &self,
        slot: &Slot,
        dropped: &Tombstone,
        manifest: Option<ManifestLocation>,
    ) -> (Result<()>, Result<Seen>) {
        let mut marked = self.write_marker(slot, dropped.drop_id).await;
        let look = async {
            match &manifest {
                Some(m) if self.store.head(&m.path).await?.is_some() => Ok(true),
                // Cleaned up under a newer version, or gone: what else is there may be a create's.
                Some(_) => Ok(self.store.latest_manifest(&slot.table).await?.is_some()),
                // Beside our marker an empty local directory looks as a purged one; it has no rows to keep.
                None if self.store.is_dir(&slot.table) => Ok(true),
                _ => self.has_anything(slot).await,
            }
        };
        let (tombstone, still_there) = tokio::join!(tombstone::read(&self.store, slot), look);
        let seen = still_there.map(|there| if there { Seen::Table } else { Seen::Nothing });
        match tombstone {
            Ok(Some(t)) if t.drop_id == dropped.drop_id => (marked, seen),
            Ok(_) => {
                marked = self.sync_marker(slot).await.map(|_| ());
                let seen = match seen {
                    Ok(Seen::Nothing) => Ok(Seen::Neither),
                    // It was there after our tombstone was, or what is there now came later.
                    other => other,
                };
                (marked, seen)
            }
            Err(e) => (marked, Err(e)),
        }
    }

    /// Takes back a tombstone that fell on an empty name: as an undrop, which deletes no data, since a stock client may
    /// have created a table there by now. False when somebody else has decided about it: our marker was there when we saw
    /// the tombstone, so they look at it once more when it is over.
    async fn take_back(&self, slot: &Slot, dropped: &Tombstone) -> Result<bool> {
        let decision = self
            .decide(slot, dropped.drop_id, Action::Restore, Terms::None)
            .await?;
        let Decision::Won(lease) = decision else {
            return Ok(false);
        };
        self.finish_restore(slot, lease).await?;
        self.store.remove_empty_dir(&slot.table).await;
        Ok(true)
    }

    /// Whether anything but Lance's marker is in the table's directory: 1 LIST.
    pub(crate) async fn has_anything(&self, slot: &Slot) -> Result<bool> {
        let (objects, prefixes) = self.store.list_dir(&slot.table).await?;
        if !prefixes.is_empty() || objects.iter().any(|name| name != ".lance-deregistered") {
            return Ok(true);
        }
        // An empty directory exists on local disk only, and counts: an incomplete table can be dropped.
        Ok(objects.is_empty() && self.store.is_dir(&slot.table))
    }

    /// Turns a deregistration by a stock client into a drop that is kept until purged by name, so that restoring and
    /// purging it follow the one protocol. Look again afterwards: it may have been registered again.
    pub(crate) async fn adopt(&self, slot: &Slot) -> Result<()> {
        let Some(marker) = self.store.head(&slot.marker).await? else {
            return Ok(());
        };
        let adopted = Tombstone::new(
            marker.last_modified,
            None,
            None,
            Some("deregistered by another client".to_string()),
        );
        let created = self
            .store
            .create(&slot.tombstone, adopted.encode(slot)?)
            .await?;
        if matches!(created, Created::Exists(_)) || self.read_marker(slot).await? == Marker::Foreign
        {
            return Ok(());
        }
        // Somebody registered it again before our tombstone: it must not stay hidden by us.
        if let Decision::Won(lease) = self
            .decide(slot, adopted.drop_id, Action::Restore, Terms::None)
            .await?
        {
            self.finish_restore(slot, lease).await?;
        }
        Ok(())
    }
}

fn not_found(slot: &Slot, reason: &str) -> Error {
    Error::TableNotFound {
        ident: slot.ident.clone(),
        reason: reason.to_string(),
    }
}
