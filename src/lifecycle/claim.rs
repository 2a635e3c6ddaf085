//! The claim: the write-once decision on one drop id, and who carries it out until when.
//!
//! `<stem>.deleted.<drop id>.claim`, JSON, create-if-absent: the first one decides *restore* or *purge* for ever.
//! Later generations (`.claim.1`, `.claim.2`, …) never change the decision, only who carries it out: the owner
//! renews with the next generation, and after a whole lease without one (by the store's own clock) so may anybody
//! else, create-if-absent again, so exactly one does. Until when the owner may act, its [`Lease`] says.

use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use object_store::path::Path;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::lifecycle::{Lease, Lifecycle, record, tombstone};
use crate::store::{Created, RootStore, Slot};

#[cfg(any(test, fuzzing))]
pub(crate) mod properties;

const FORMAT: u32 = 1;

/// The longest lease: a record that claims more is taken to mean this.
pub(crate) const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// More generations than this are no claim but a loop: a purge renews about every four minutes.
const MAX_GENERATIONS: u32 = 100_000;

/// What was decided about a drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Action {
    Restore,
    Purge,
}

/// A restore that first commits a new version over the kept lineage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Revive {
    /// The latest version before that commit.
    pub(crate) base_version: Option<u64>,
    /// Lance's id of that commit: it took effect if and only if this is in the history.
    pub(crate) transaction: Uuid,
}

/// What a decision depends on, so that whoever carries it out keeps to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Terms {
    /// Nothing.
    None,
    /// A restore that commits first.
    Revive(Revive),
    /// A purge of an expired drop.
    IfExpired,
}

/// One generation of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claim {
    format: u32,
    pub(crate) drop_id: Uuid,
    pub(crate) action: Action,
    pub(crate) owner: Uuid,
    #[serde(default)]
    pub(crate) generation: u32,
    pub(crate) lease_ms: u64,
    #[serde(
        default,
        deserialize_with = "record::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) revive: Option<Revive>,
    /// Keeps others off a name while a table is created, see [`tombstone`](super::tombstone).
    #[serde(default)]
    pub(crate) creating: bool,
    /// A purge that counts only if the drop's retention is over by the store's own clock.
    #[serde(default)]
    pub(crate) if_expired: bool,
}

impl Claim {
    pub(crate) fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms).min(MAX_LEASE)
    }

    fn encode(&self, path: &Path) -> Result<Bytes> {
        serde_json::to_vec(self)
            .map(Bytes::from)
            .map_err(|e| Error::CorruptMetadata {
                path: path.to_string(),
                message: format!("cannot be written: {e}"),
            })
    }

    /// What is read is checked against the name that it was read under.
    fn decode(path: &Path, content: &[u8], drop_id: Uuid, generation: u32) -> Result<Self> {
        let corrupt = |message: String| Error::CorruptMetadata {
            path: path.to_string(),
            message: format!(
                "not a claim that this version can read ({message}); who decided what is unknown, so the drop is \
                 left alone until the object is removed by hand"
            ),
        };
        let claim: Self = record::parse(content).map_err(|e| corrupt(e.to_string()))?;
        if claim.format != FORMAT {
            return Err(corrupt(format!("format {}", claim.format)));
        }
        if (claim.drop_id, claim.generation) != (drop_id, generation) {
            return Err(corrupt("it belongs to another name".to_string()));
        }
        Ok(claim)
    }
}

/// A claim that is somebody else's.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) claim: Claim,
    /// When its newest generation was written, by the store's clock.
    pub(crate) since: DateTime<Utc>,
}

impl Held {
    /// The error for who asked: typed by what was decided, retryable.
    pub(crate) fn error(&self, slot: &Slot) -> Error {
        let (ident, drop_id, owner, since) = (
            slot.ident.clone(),
            self.claim.drop_id,
            self.claim.owner,
            self.since,
        );
        match self.claim.action {
            _ if self.claim.creating => Error::Conflict {
                ident,
                message: format!("it is being created by {owner} since {since}"),
            },
            Action::Restore => Error::RestoreInProgress {
                ident,
                drop_id,
                owner,
                since,
            },
            Action::Purge => Error::PurgeInProgress {
                ident,
                drop_id,
                owner,
                since,
            },
        }
    }
}

/// What came of trying to decide.
pub(crate) enum Decision {
    /// The decision is ours and the tombstone still carries the drop id.
    Won(Lease),
    /// The drop was finished by somebody else before we decided.
    Gone,
    /// Somebody else decided first.
    Lost(Held),
}

/// The name of a generation of the claim on a drop.
pub(crate) fn claim_path(
    store: &RootStore,
    slot: &Slot,
    drop_id: Uuid,
    generation: u32,
) -> Result<Path> {
    let stem = &slot.stem;
    match generation {
        0 => store.child(&format!("{stem}.deleted.{drop_id}.claim")),
        n => store.child(&format!("{stem}.deleted.{drop_id}.claim.{n}")),
    }
}

/// Reads a generation: 1 GET.
async fn read_generation(
    store: &RootStore,
    slot: &Slot,
    drop_id: Uuid,
    generation: u32,
) -> Result<Option<Held>> {
    let path = claim_path(store, slot, drop_id, generation)?;
    let Some((content, meta)) = store.get(&path).await? else {
        return Ok(None);
    };
    Ok(Some(Held {
        claim: Claim::decode(&path, &content, drop_id, generation)?,
        since: meta.last_modified,
    }))
}

impl Lifecycle {
    /// The newest generation from `known` on: 1 GET for each that exists, and one more.
    pub(crate) async fn newest_claim(&self, slot: &Slot, known: Held) -> Result<Held> {
        let mut newest = known;
        for generation in newest.claim.generation + 1..MAX_GENERATIONS {
            match read_generation(&self.store, slot, newest.claim.drop_id, generation).await? {
                Some(next) => newest = next,
                None => return Ok(newest),
            }
        }
        Ok(newest)
    }

    /// Who holds the claim on a drop, if anybody: 1 GET where nobody does.
    pub(crate) async fn holder(&self, slot: &Slot, drop_id: Uuid) -> Result<Option<Held>> {
        match read_generation(&self.store, slot, drop_id, 0).await? {
            Some(first) => self.newest_claim(slot, first).await.map(Some),
            None => Ok(None),
        }
    }

    /// Decides `action` for a drop if nobody has decided: 1 PUT and 1 GET where we win.
    pub(crate) async fn decide(
        &self,
        slot: &Slot,
        drop_id: Uuid,
        action: Action,
        terms: Terms,
    ) -> Result<Decision> {
        let nothing = std::future::ready(Ok(()));
        let decided = self
            .decide_and_look(slot, drop_id, action, terms, nothing)
            .await?;
        Ok(decided.0)
    }

    /// Decides, and where we win looks at something else together with the re-read. Sound for what only a purge of
    /// this drop could change: once the claim is ours there is none.
    pub(crate) async fn decide_and_look<T>(
        &self,
        slot: &Slot,
        drop_id: Uuid,
        action: Action,
        terms: Terms,
        look: impl Future<Output = Result<T>>,
    ) -> Result<(Decision, Option<T>)> {
        let claim = Claim {
            format: FORMAT,
            drop_id,
            action,
            owner: Uuid::new_v4(),
            generation: 0,
            lease_ms: self.lease_ms(action),
            revive: match terms {
                Terms::Revive(revive) => Some(revive),
                _ => None,
            },
            creating: false,
            if_expired: terms == Terms::IfExpired,
        };
        if let Some(lease) = self.post(slot, claim).await? {
            let claim = lease.claim.clone();
            let (decision, seen) = tokio::join!(self.confirm(slot, lease), look);
            let decision = decision?;
            if seen.is_err() && matches!(decision, Decision::Won(_)) {
                self.keep_resumable(&claim);
            }
            return Ok((decision, Some(seen?)));
        }
        Ok(match self.holder(slot, drop_id).await? {
            Some(held) => (Decision::Lost(held), None),
            // The claim vanished: whoever held it has finished the drop or given it up.
            None => (Decision::Gone, None),
        })
    }

    /// Takes over the work of an owner whose lease is over; `None` while it is not, or when somebody else was first.
    pub(crate) async fn take_over(&self, slot: &Slot, held: &Held) -> Result<Option<Decision>> {
        let resumed = self.take_resumable(&held.claim);
        if !resumed && !self.lease_is_over(slot, held).await? {
            return Ok(None);
        }
        let next = Claim {
            owner: Uuid::new_v4(),
            generation: held.claim.generation + 1,
            lease_ms: self.lease_ms(held.claim.action),
            ..held.claim.clone()
        };
        match self.post(slot, next).await? {
            Some(lease) => self.confirm(slot, lease).await.map(Some),
            None => Ok(None),
        }
    }

    /// Renews a lease of which a quarter is used up: 1 PUT and 1 GET then. Whoever finished the drop meanwhile deleted
    /// its claims too, so the next generation may be free: only the tombstone tells.
    pub(crate) async fn renew(&self, slot: &Slot, lease: &mut Lease) -> Result<()> {
        if lease.elapsed() < lease.claim.lease() / 4 {
            return Ok(());
        }
        let next = Claim {
            generation: lease.claim.generation + 1,
            ..lease.claim.clone()
        };
        let taken = || Error::Conflict {
            ident: slot.ident.clone(),
            message: "another process took the work over".to_string(),
        };
        let renewed = self.post(slot, next).await?.ok_or_else(taken)?;
        match self.confirm(slot, renewed).await? {
            Decision::Won(renewed) => {
                *lease = renewed;
                Ok(())
            }
            Decision::Gone | Decision::Lost(_) => Err(taken()),
        }
    }

    /// The lease that a `creating` tombstone of ours gives: it is generation 0 itself.
    pub(crate) fn creating_claim(&self, drop_id: Uuid, owner: Uuid) -> Claim {
        Claim {
            format: FORMAT,
            drop_id,
            action: Action::Restore,
            owner,
            generation: 0,
            lease_ms: self.lease_ms(Action::Restore),
            revive: None,
            creating: true,
            if_expired: false,
        }
    }

    /// The holder of a `creating` tombstone.
    pub(crate) async fn creator(
        &self,
        slot: &Slot,
        tombstone: &tombstone::Tombstone,
        creating: tombstone::Creating,
    ) -> Result<Held> {
        let first = Held {
            claim: Claim {
                lease_ms: creating.lease_ms,
                ..self.creating_claim(tombstone.drop_id, creating.owner)
            },
            since: tombstone
                .last_modified
                .unwrap_or_else(|| self.store.clock.now()),
        };
        self.newest_claim(slot, first).await
    }

    async fn post(&self, slot: &Slot, claim: Claim) -> Result<Option<Lease>> {
        let path = claim_path(&self.store, slot, claim.drop_id, claim.generation)?;
        let content = claim.encode(&path)?;
        let lease = Lease::from_now(claim);
        Ok(match self.store.create(&path, content).await? {
            Created::New => Some(lease),
            Created::Exists(_) => None,
        })
    }

    /// The re-read after winning: only while the tombstone still carries the drop is the decision worth anything.
    async fn confirm(&self, slot: &Slot, lease: Lease) -> Result<Decision> {
        match tombstone::read(&self.store, slot).await {
            Ok(Some(t)) if t.drop_id == lease.claim.drop_id => Ok(Decision::Won(lease)),
            Ok(_) => {
                self.delete_claims(slot, &lease.claim).await;
                Ok(Decision::Gone)
            }
            Err(e) => {
                self.keep_resumable(&lease.claim);
                Err(e)
            }
        }
    }

    /// Deletes all generations of a claim whose drop is over; what is left on failure is garbage for `reconcile`.
    pub(crate) async fn delete_claims(&self, slot: &Slot, claim: &Claim) {
        // A creating tombstone is its own generation 0.
        let first = u32::from(claim.creating);
        for generation in (first..=claim.generation).rev() {
            let deleted = match claim_path(&self.store, slot, claim.drop_id, generation) {
                Ok(path) => self.store.delete(&path).await,
                Err(e) => Err(e),
            };
            if let Err(error) = deleted {
                tracing::warn!(table = %slot.ident, %error, "a finished claim is left for reconcile");
                return;
            }
        }
    }

    /// Whether the newest generation is a whole lease old. Our own clock only saves the question when it cannot be;
    /// the answer compares two times of the store's clock: 1 PUT, 1 HEAD, 1 DELETE.
    async fn lease_is_over(&self, slot: &Slot, held: &Held) -> Result<bool> {
        let lease = TimeDelta::from_std(held.claim.lease()).unwrap_or(TimeDelta::MAX);
        if self.store.clock.now() - held.since < lease / 2 {
            return Ok(false);
        }
        let now = self.store_now(slot, held.claim.drop_id).await?;
        Ok(now - held.since >= lease.checked_add(&granularity(now)).unwrap_or(lease))
    }

    /// The store's clock, read off an object of ours.
    pub(crate) async fn store_now(&self, slot: &Slot, drop_id: Uuid) -> Result<DateTime<Utc>> {
        let probe = self.store.child(&format!(
            "{}.deleted.{drop_id}.clock.{}",
            slot.stem,
            &Uuid::new_v4().simple().to_string()[..8]
        ))?;
        self.store.put(&probe, Bytes::from_static(b"{}")).await?;
        let meta = self.store.head(&probe).await;
        self.store.delete(&probe).await?;
        meta?
            .map(|m| m.last_modified)
            .ok_or_else(|| Error::Conflict {
                ident: slot.ident.clone(),
                message: "an object written to read the store's clock vanished".to_string(),
            })
    }
}

/// How coarse the store's Last-Modified is: whole seconds on HTTP stores.
pub(crate) fn granularity(time: DateTime<Utc>) -> TimeDelta {
    if time.timestamp_subsec_nanos() == 0 {
        TimeDelta::seconds(1)
    } else {
        TimeDelta::zero()
    }
}
