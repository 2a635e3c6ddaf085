//! Drop: hide a table, keep everything.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::lifecycle::restore::keeps_changing;
use crate::lifecycle::{
    Action, Decision, DroppedTable, Lifecycle, MAX_ROUNDS, Marker, Recovered, Tombstone, tombstone,
};
use crate::store::{Created, Slot};

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
        if let Err(error) = self
            .after_drop(slot, &dropped, manifest.map(|m| m.path))
            .await
        {
            if matches!(error, Error::TableNotFound { .. }) {
                return Err(error);
            }
            tracing::warn!(table = %slot.ident, %error, "dropped, but stock namespace clients may still list it");
            public.hidden_from_stock_clients = false;
        }
        Ok(public)
    }

    /// Creates the tombstone, past a creating one that a stopped process left.
    async fn entomb(&self, slot: &Slot, dropped: &Tombstone) -> Result<()> {
        let content = dropped.encode(slot)?;
        for _ in 0..MAX_ROUNDS {
            let other = match self.store.create(&slot.tombstone, content.clone()).await? {
                Created::New => return Ok(()),
                Created::Exists(None) => return Err(not_found(slot, "it was dropped already")),
                Created::Exists(Some((found, meta))) => Tombstone::decode(&found, &meta),
            };
            let Some(creating) = other.creating else {
                let reason = format!("it was dropped already, at {}", other.deleted_at);
                return Err(not_found(slot, &reason));
            };
            let held = self.creator(slot, &other, creating).await?;
            if self.recover(slot, &other, &held).await? == Recovered::Elsewhere {
                return Err(held.error(slot));
            }
        }
        Err(keeps_changing(slot))
    }

    async fn after_drop(
        &self,
        slot: &Slot,
        dropped: &Tombstone,
        manifest: Option<object_store::path::Path>,
    ) -> Result<()> {
        self.write_marker(slot, dropped.drop_id).await?;
        let still_there = async {
            if let Some(path) = &manifest
                && self.store.head(path).await?.is_some()
            {
                return Ok(true);
            }
            self.has_anything(slot).await
        };
        let (tombstone, still_there) =
            tokio::join!(tombstone::read(&self.store, slot), still_there);
        if tombstone?.is_none_or(|t| t.drop_id != dropped.drop_id) {
            // An undrop overtook us; the marker must not outlive it.
            self.sync_marker(slot).await?;
            return Ok(());
        }
        if !still_there? {
            return self.take_back(slot, dropped).await;
        }
        Ok(())
    }

    /// Our tombstone fell on a name that a purge had emptied between our look and our write.
    async fn take_back(&self, slot: &Slot, dropped: &Tombstone) -> Result<()> {
        let decision = self
            .decide(slot, dropped.drop_id, Action::Purge, None)
            .await?;
        if let Decision::Won(lease) = decision {
            self.finish_purge(slot, lease).await?;
        }
        Err(not_found(slot, "it was purged meanwhile"))
    }

    /// Whether anything but Lance's marker is in the table's directory: 1 LIST.
    async fn has_anything(&self, slot: &Slot) -> Result<bool> {
        let (objects, prefixes) = self.store.list_dir(&slot.table).await?;
        if !prefixes.is_empty() || objects.iter().any(|name| name != ".lance-deregistered") {
            return Ok(true);
        }
        // An empty directory exists on local disk only, and counts: an incomplete table can be dropped.
        Ok(objects.is_empty()
            && match self.store.local_path(&slot.table) {
                Some(dir) => tokio::fs::metadata(dir).await.is_ok_and(|m| m.is_dir()),
                None => false,
            })
    }

    /// Turns a deregistration by a stock client into a drop that is kept until purged by name, so that restoring and
    /// purging it follow the one protocol. `None` if it is not deregistered any more.
    pub(crate) async fn adopt(&self, slot: &Slot) -> Result<Option<Tombstone>> {
        let Some(marker) = self.store.head(&slot.marker).await? else {
            return Ok(None);
        };
        let adopted = Tombstone::new(
            marker.last_modified,
            None,
            None,
            Some("deregistered by another client".to_string()),
        );
        if let Created::Exists(found) = self
            .store
            .create(&slot.tombstone, adopted.encode(slot)?)
            .await?
        {
            return Ok(found.map(|(content, meta)| Tombstone::decode(&content, &meta)));
        }
        if self.read_marker(slot).await? == Marker::Foreign {
            return tombstone::read(&self.store, slot).await;
        }
        // Somebody registered it again before our tombstone: it must not stay hidden by us.
        if let Decision::Won(lease) = self
            .decide(slot, adopted.drop_id, Action::Restore, None)
            .await?
        {
            self.finish_restore(slot, lease).await?;
        }
        Ok(None)
    }
}

fn not_found(slot: &Slot, reason: &str) -> Error {
    Error::TableNotFound {
        ident: slot.ident.clone(),
        reason: reason.to_string(),
    }
}
