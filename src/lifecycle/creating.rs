//! Create and revive: commit a table's first, or next, version while nobody else drops or purges it.

use std::collections::HashSet;
use std::future::Future;
use std::time::Duration;

use lance::dataset::transaction::Transaction;
use lance_table::io::commit::{ManifestLocation, VERSIONS_DIR};
use object_store::ObjectMeta;
use object_store::path::Path;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::lifecycle::{
    Action, Creating, Decision, Lease, Lifecycle, Marker, Revive, Terms, Tombstone, tombstone,
};
use crate::store::{Created, Slot, join};

/// Files looked for one by one; more are looked for in a listing.
const FEW: usize = 16;

/// A commit that did not succeed.
pub(crate) enum CommitFailure {
    /// It is known not to be in the history, and nothing is under way.
    Failed(Error),
    /// It may be in the history, or get there yet.
    Unknown(Error),
}

/// What a first look at a name shows.
pub(crate) enum Look {
    /// No tombstone, no version, not deregistered.
    Nothing,
    /// No tombstone, not deregistered, and there was a version. That may have been one of a drop whose tombstone was gone
    /// a moment later: only a listing after this look tells what is live.
    Versions,
    /// A drop, a deregistration, or somebody creating.
    Hidden,
}

impl Lifecycle {
    /// 2 GET and 1 LIST, together.
    pub(crate) async fn look(&self, slot: &Slot) -> Result<Look> {
        let (tombstone, marker, latest) = tokio::join!(
            tombstone::read(&self.store, slot),
            self.read_marker(slot),
            self.store.latest_manifest(&slot.table),
        );
        if tombstone?.is_some() || marker? == Marker::Foreign {
            return Ok(Look::Hidden);
        }
        Ok(match latest? {
            Some(_) => Look::Versions,
            None => Look::Nothing,
        })
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
    /// free. Beside the writing and the commit: 1 PUT, 1 LIST for each 1,000 objects (over a live table 2 HEAD and
    /// more, see `present`), 1 DELETE.
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
        let lease = Lease::from_now(self.creating_claim(hide.drop_id, owner));
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

    /// Does something that only one process may do at a time: holds the name with a creating tombstone meanwhile. 1
    /// PUT and 1 DELETE beside the work. When the work fails, what it sent may take effect yet, so the name stays
    /// held until the lease is over.
    pub(crate) async fn alone<T>(
        &self,
        slot: &Slot,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let owner = Uuid::new_v4();
        let lease_ms = self.lease_ms(Action::Restore);
        let hold = Tombstone::creating(self.store.clock.now(), Creating { owner, lease_ms });
        let lease = Lease::from_now(self.creating_claim(hold.drop_id, owner));
        if let Created::Exists(found) = self
            .store
            .create(&slot.tombstone, hold.encode(slot)?)
            .await?
        {
            return Err(self.taken(slot, found.map(|(c, m)| Tombstone::decode(&c, &m))));
        }
        let value = lease.guard(slot, work).await?;
        if let Err(error) = self.finish_restore(slot, lease).await {
            tracing::warn!(name = %slot.ident, %error, "done; its creating tombstone is left for the next who asks");
        }
        Ok(value)
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
        let written: Vec<String> = crate::root::data_files(transaction)
            .into_iter()
            .map(|file| format!("{}/data/{file}", slot.table))
            .collect();
        let found = match base {
            None => paths(self.store.list_all(&slot.table).await?),
            Some(base) => {
                let now = self.store.manifest_of(&slot.table, base.version).await?;
                if now.is_none_or(|now| now.path != base.path || now.e_tag != base.e_tag) {
                    return Err(Error::Conflict {
                        ident: slot.ident.clone(),
                        message: "another table has taken its place meanwhile".to_string(),
                    });
                }
                self.present(slot, &written).await?
            }
        };
        let versions = format!("{}/{VERSIONS_DIR}/", slot.table);
        if base.is_none()
            && found
                .iter()
                .any(|path| path.starts_with(&versions) && path.ends_with(".manifest"))
        {
            return Err(Error::TableAlreadyExists {
                ident: slot.ident.clone(),
            });
        }
        if written.iter().any(|path| !found.contains(path)) {
            return Err(Error::Conflict {
                ident: slot.ident.clone(),
                message: "a purge of an earlier table of this name deleted what was written"
                    .to_string(),
            });
        }
        if found.contains(slot.marker.as_ref()) {
            // Litter of an earlier drop: it would hide the new table from stock clients.
            lease.guard(slot, self.store.delete(&slot.marker)).await?;
        }
        lease.remaining(slot)
    }

    /// Which of the files written into a table that has others are there: a HEAD for each while they are few, else a
    /// LIST of all.
    async fn present(&self, slot: &Slot, written: &[String]) -> Result<HashSet<String>> {
        if written.len() > FEW {
            return Ok(paths(
                self.store.list_all(&join(&slot.table, "data")?).await?,
            ));
        }
        let found = futures::future::try_join_all(written.iter().map(|path| async move {
            let parsed = Path::parse(path).map_err(|e| Error::InvalidInput {
                message: format!("Lance wrote a file that cannot be named: {e}"),
            })?;
            Ok::<_, Error>(self.store.head(&parsed).await?.map(|_| path.clone()))
        }))
        .await?;
        Ok(found.into_iter().flatten().collect())
    }
}

fn paths(objects: Vec<ObjectMeta>) -> HashSet<String> {
    objects
        .into_iter()
        .map(|o| o.location.to_string())
        .collect()
}
