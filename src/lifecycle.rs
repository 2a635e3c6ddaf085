//! The life of a table between its drop and its restore or purge, on any store with atomic create-if-absent.
//!
//! A table is *live*, *dropped* (a tombstone hides it), *restoring* or *purging* (a claim decided the drop's fate), or
//! *absent*. There is no lock server; clocks decide only how soon an expired drop may be purged and how soon the work
//! of a dead process is taken over.
//!
//! # Steps
//!
//! Each step is one request; stopping after any of them leaves a state that somebody else can finish.
//!
//! - **drop**: the table exists → create tombstone *D* if absent (commit point; the loser gets "not found") → write
//!   Lance's own marker → read the tombstone again (take the marker away if an undrop overtook us) and look at the
//!   table again (if a purge overtook us between the first look and the tombstone, take the tombstone back; if somebody
//!   has decided about it by then, say that there is no telling).
//! - **decide**: create the claim on *D* if absent, then read the tombstone again: unless it still carries *D* the
//!   decision is void.
//! - **undrop**: decide *restore* → look whether there is a manifest → remove marker → delete tombstone (commit point)
//!   → delete claim, and remove a marker that a slow drop wrote meanwhile.
//! - **revive** (create over a dropped name): write data files → decide *restore*, recording the transaction's id →
//!   commit an Overwrite while hidden → finish as undrop. When the commit is known to have failed, or its owner dies
//!   before it, the drop is re-issued under a new id: old rows never come back by themselves. An owner that cannot
//!   tell leaves it to who recovers, after the lease.
//! - **create** (over an absent name): write data files → create a `creating` tombstone if absent → check that all
//!   data files are still there and no manifest is → commit version 1 (commit point) → delete the tombstone. While it
//!   stands nobody drops or purges, so a purge of an earlier table of that name cannot take files of the new one;
//!   it hides nothing that has a version, so a late one cannot hide somebody else's new table either.
//! - **commit** (under managed versioning, see [`versions`](crate::versions)): read the tombstone → find the latest version →
//!   create the next one's manifest if absent (commit point), at most half a commit window after the tombstone was asked
//!   for. A purge waits until its drop is a whole window old before it deletes anything, so no commit lands in what it has
//!   emptied, nor builds on what it has half deleted. A handle that saw no tombstone a moment ago asks for both at once, and
//!   its window is open since that look; on object stores the listing with which Lance begins to build a version is the one
//!   that finds the latest.
//! - **purge**: decide *purge* → for an expired drop, compare the store's own times of claim and tombstone (too early:
//!   re-issue the drop under a new id, with the time since when it is held) → remove the data → list again until nothing is there → delete tombstone → delete claim, and remove a marker that came late. On local disk the directory is
//!   renamed away first, in one step; on object stores the names that a later table could use again go first. The
//!   tombstone is read again before every batch.
//!
//! # Invariants
//!
//! 1. A table is never live while a purge of it is decided; after a successful undrop no purge of that drop deletes
//!    anything.
//! 2. Of concurrent restores and purges of one drop exactly one wins; the others learn who did.
//! 3. Whatever request was the last one of a process that stopped, the table is live, dropped or (purge, create)
//!    absent, and recoverable.
//! 4. A purge deletes nothing outside the table's own directory, tombstone and claims.
//! 5. Reads through handles opened before a drop keep working until the purge.
//! 6. A storage error is never "not found"; a lost acknowledgement is recognised by its id.
//!
//! `tests/model/lifecycle.py` checks these steps, with renewals, early purges and markers: every interleaving of two and
//! three actors with crashes, and of four without (with `--deep` also of four with crashes).

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use uuid::Uuid;

use crate::error::Result;
use crate::store::{RootStore, Slot};

pub(crate) mod claim;
mod creating;
mod dropping;
mod lease;
mod moment;
#[cfg(any(test, fuzzing))]
pub(crate) mod properties;
pub(crate) mod purge;
pub(crate) mod reconcile;
mod record;
mod restore;
pub(crate) mod tombstone;

pub use purge::{PurgeReport, PurgedTable};
pub use reconcile::{Finding, FindingKind, ReconcileReport};
pub use tombstone::{DropOutcome, DroppedTable};

pub(crate) use claim::{Action, Claim, Decision, Held, Revive, Terms};
pub(crate) use creating::{CommitFailure, Look};
pub(crate) use lease::Lease;
pub(crate) use moment::Moment;
use restore::keeps_changing;
pub(crate) use tombstone::{Creating, Tombstone};

/// How often an operation starts over because somebody finished another one under it.
pub(crate) const MAX_ROUNDS: usize = 16;

/// The commit window unless the catalog's builder is told another: 10 seconds.
pub(crate) const COMMIT_WINDOW: Duration = Duration::from_secs(10);

/// The state machine over one root.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    pub(crate) store: Arc<RootStore>,
    restore_lease: Duration,
    purge_lease: Duration,
    /// Under managed versioning, how old a drop must be before its data is deleted.
    commit_window: Option<Duration>,
    /// Claims of ours whose work ended in an error with nothing under way: we may go on at once, nobody else may.
    resumable: Mutex<HashSet<(Uuid, Uuid, u32)>>,
}

/// What became of the work of a dead owner.
#[derive(Debug)]
pub(crate) enum Recovered {
    /// The table is live, as it was before its drop.
    Restored,
    /// The table is live, with the rows that a create over the dropped name committed.
    Revived,
    /// A revive had not committed; the table is dropped, under a new drop id.
    DroppedAgain,
    /// A purge of an expired drop came too early by the store's clock; the table is dropped, under a new drop id.
    TooEarly,
    /// The table is gone.
    Purged(purge::Removed),
    /// There was no version to restore or to finish; the name is free.
    Abandoned,
    /// Somebody else has done or is doing it.
    Elsewhere,
}

/// Waits for another process in growing steps, up to a limit.
pub(crate) struct Patience {
    until: Instant,
    pause: Duration,
}

impl Patience {
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            until: Instant::now() + limit,
            pause: Duration::from_millis(20),
        }
    }

    /// Waits a little; false when the limit is reached.
    pub(crate) async fn wait(&mut self) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(Duration::from_millis(500));
        true
    }
}

impl Lifecycle {
    pub(crate) fn new(
        store: Arc<RootStore>,
        restore_lease: Duration,
        purge_lease: Duration,
        commit_window: Option<Duration>,
    ) -> Self {
        Self {
            store,
            restore_lease,
            purge_lease,
            commit_window,
            resumable: Mutex::default(),
        }
    }

    /// How long after its look at the drop state a commit may take effect. Without managed versioning no purge waits for
    /// it; version operations keep to it all the same.
    pub(crate) fn commit_window(&self) -> Duration {
        self.commit_window.unwrap_or(COMMIT_WINDOW)
    }

    /// Patience with another process that creates the table: longer than its lease.
    pub(crate) fn patience(&self) -> Patience {
        Patience::new(self.restore_lease * 2)
    }

    fn lease_ms(&self, action: Action) -> u64 {
        let lease = match action {
            Action::Restore => self.restore_lease,
            Action::Purge => self.purge_lease,
        };
        u64::try_from(lease.as_millis()).unwrap_or(u64::MAX)
    }

    fn keep_resumable(&self, claim: &Claim) {
        self.resumable
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert((claim.drop_id, claim.owner, claim.generation));
    }

    fn take_resumable(&self, claim: &Claim) -> bool {
        self.resumable
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&(claim.drop_id, claim.owner, claim.generation))
    }

    /// Finishes the work of an owner whose lease is over; [`Recovered::Elsewhere`] while it is not.
    pub(crate) async fn recover(
        &self,
        slot: &Slot,
        tombstone: &Tombstone,
        held: &Held,
    ) -> Result<Recovered> {
        match self.take_over(slot, held).await? {
            Some(Decision::Won(lease)) => self.carry_out(slot, tombstone, lease).await,
            Some(Decision::Gone | Decision::Lost(_)) | None => Ok(Recovered::Elsewhere),
        }
    }

    /// Carries out a decision that was taken over.
    async fn carry_out(
        &self,
        slot: &Slot,
        tombstone: &Tombstone,
        lease: Lease,
    ) -> Result<Recovered> {
        tracing::info!(table = %slot.ident, drop_id = %tombstone.drop_id, action = ?lease.claim.action,
            "finishing what a stopped process began");
        match lease.claim.action {
            Action::Purge => Ok(match self.finish_purge(slot, tombstone, lease).await? {
                Some(removed) => Recovered::Purged(removed),
                None => Recovered::TooEarly,
            }),
            Action::Restore => {
                if let Some(revive) = lease.claim.revive {
                    let committed = crate::root::committed_version(
                        &self.store,
                        slot,
                        revive.base_version,
                        revive.transaction,
                    )
                    .await;
                    if self.resumable_on_error(&lease, committed)?.is_none() {
                        self.reissue(slot, tombstone, lease).await?;
                        return Ok(Recovered::DroppedAgain);
                    }
                    self.finish_restore(slot, lease).await?;
                    return Ok(Recovered::Revived);
                }
                let manifest = self.store.latest_manifest(&slot.table).await;
                let manifest = self.resumable_on_error(&lease, manifest)?;
                let creating = lease.claim.creating;
                self.finish_restore(slot, lease).await?;
                let restored = manifest.is_some()
                    || (!creating
                        && tombstone.version.is_none()
                        // It is finished by now; a failure to look must not say otherwise.
                        && self.has_anything(slot).await.unwrap_or(true));
                Ok(if restored {
                    Recovered::Restored
                } else {
                    Recovered::Abandoned
                })
            }
        }
    }

    /// A read failed: nothing of ours is under way, so the same process may resume at once. Not for a request that
    /// changes something: it may take effect after its failure, so everybody, ourselves included, waits for the lease.
    fn resumable_on_error<T>(&self, lease: &Lease, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.keep_resumable(&lease.claim);
        }
        result
    }

    /// Makes Lance's marker agree with the tombstone: present with its drop id, or absent. It is written once: who takes it
    /// away again has decided about the drop. A marker without a drop id
    /// beside no tombstone was written by a stock client and stays. 2 GET, and 2 more requests for each repair.
    pub(crate) async fn sync_marker(&self, slot: &Slot) -> Result<bool> {
        let mut changed = false;
        let mut written = None;
        for _ in 0..MAX_ROUNDS {
            let wanted = tombstone::read(&self.store, slot)
                .await?
                .filter(|t| t.creating.is_none())
                .map(|t| t.drop_id);
            let marker = self.read_marker(slot).await?;
            match (wanted, marker) {
                (None, Marker::Absent | Marker::Foreign) => return Ok(changed),
                (Some(drop_id), Marker::OfDrop(found)) if found == drop_id => return Ok(changed),
                // Who took ours away has decided about the drop, and looks once more when it is over.
                (Some(drop_id), Marker::Absent) if written == Some(drop_id) => return Ok(changed),
                (Some(drop_id), _) => {
                    self.write_marker(slot, drop_id).await?;
                    written = Some(drop_id);
                }
                (None, Marker::OfDrop(_)) => {
                    self.store.delete(&slot.marker).await?;
                    self.store.remove_empty_dir(&slot.table).await;
                }
            }
            changed = true;
        }
        Err(keeps_changing(slot))
    }

    pub(crate) async fn write_marker(&self, slot: &Slot, drop_id: Uuid) -> Result<()> {
        self.store
            .put(&slot.marker, Bytes::from(drop_id.to_string()))
            .await
    }

    /// 1 GET.
    pub(crate) async fn read_marker(&self, slot: &Slot) -> Result<Marker> {
        Ok(match self.store.get(&slot.marker).await? {
            None => Marker::Absent,
            Some((content, _)) => Marker::parse(&content),
        })
    }
}

/// Lance's `.lance-deregistered`, as found in a table's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marker {
    Absent,
    /// Written by a stock client: the table is deregistered.
    Foreign,
    /// Written by a drop; counts only beside the tombstone of that drop.
    OfDrop(Uuid),
}

impl Marker {
    fn parse(content: &[u8]) -> Self {
        std::str::from_utf8(content)
            .ok()
            .and_then(|text| Uuid::try_parse(text.trim()).ok())
            .map_or(Self::Foreign, Self::OfDrop)
    }
}
