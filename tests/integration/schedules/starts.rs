//! What is there before the actors begin.

use std::sync::Arc;
use std::time::Duration;

use chrono::DateTime;
use futures::TryStreamExt;
use lancekeep::Catalog;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use super::operations::{Table, original};
use super::oracle::State;
use crate::common::{StoreTime, rows};
use crate::support::{Actor, Kind, SharedMemory, StoreClock, When};

/// Longer than any run takes, also by the clock of its waits.
pub(super) const LEASE: Duration = Duration::from_secs(4 * 60 * 60);

/// What a purge of a fresh drop waits, where versions are managed.
const WINDOW: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Start {
    Absent,
    Live,
    Dropped,
    /// Dropped, and its retention is over.
    Expired,
    /// An undrop stopped after it removed the marker, and its lease is over.
    HalfRestored,
    /// A purge stopped when the manifest was gone and the rows were not, and its lease is over.
    HalfPurged,
}

impl Start {
    pub(super) fn state(self) -> State {
        let table = Table::original();
        match self {
            Self::Absent => State::Absent,
            Self::Live => State::Live(table),
            Self::Dropped => State::Dropped {
                table,
                expired: false,
            },
            Self::Expired => State::Dropped {
                table,
                expired: true,
            },
            Self::HalfRestored => State::Restoring(table),
            Self::HalfPurged => State::Purging,
        }
    }

    pub(super) async fn memory(self, managed: bool) -> SharedMemory {
        // Not a whole second: the store's clock must not look coarse.
        let now = DateTime::from_timestamp_millis(1_750_000_000_123).unwrap();
        let memory = SharedMemory::with_clock(StoreClock::new(now));
        if self == Self::Absent {
            return memory;
        }
        let catalog = catalog_on(&memory, &memory.actor(), managed).await;
        catalog.create_table("t", rows(original())).await.unwrap();
        if self == Self::Live {
            return memory;
        }
        let drop = catalog.drop_table("t");
        let drop = match self {
            Self::Expired => drop.retention(Duration::from_secs(60)),
            _ => drop,
        };
        drop.await.unwrap();
        // No purge of it waits for commits.
        pass(&memory, Duration::from_secs(61));
        if let Self::HalfRestored | Self::HalfPurged = self {
            self.stop(&memory, managed).await;
            pass(&memory, LEASE + Duration::from_secs(1));
        }
        memory
    }

    /// Stops an undrop or a purge before it deletes the tombstone or the data.
    async fn stop(self, memory: &SharedMemory, managed: bool) {
        let trial = memory.fork().await;
        let actor = trial.actor();
        self.run(catalog_on(&trial, &actor, managed).await).await;
        let found = actor.counter.log().iter().position(|request| {
            let path = match self {
                Self::HalfRestored => request.path == "root/t.deleted",
                _ => request.path.starts_with("root/t.lance/"),
            };
            path && request.kind == Kind::Delete
        });
        let actor = memory.actor();
        let catalog = catalog_on(memory, &actor, managed).await;
        actor.faults.reset();
        actor.faults.crash_at(found.unwrap(), When::Before);
        self.run(catalog).await;
        assert!(actor.faults.crashed());
        if self == Self::HalfPurged {
            let versions = Path::from("root/t.lance/_versions");
            let raw = memory.raw();
            let found: Vec<_> = raw.list(Some(&versions)).try_collect().await.unwrap();
            assert!(!found.is_empty());
            for meta in found {
                raw.delete(&meta.location).await.unwrap();
            }
        }
    }

    async fn run(self, catalog: Catalog) {
        // Stopped, or on trial: the answer does not matter.
        if self == Self::HalfRestored {
            let _ = catalog.undrop_table("t").await;
        } else {
            let _ = catalog.purge_table("t").await;
        }
    }
}

pub(super) fn pass(memory: &SharedMemory, time: Duration) {
    memory.clock().unwrap().advance(time);
}

pub(super) fn pass_the_lease(memory: &SharedMemory) {
    pass(memory, LEASE + Duration::from_secs(1));
}

pub(super) async fn catalog_on(memory: &SharedMemory, actor: &Actor, managed: bool) -> Catalog {
    let clock = memory.clock().unwrap();
    let builder = Catalog::builder("memory://root")
        .session(actor.session.clone())
        .clock(Arc::new(StoreTime(clock)))
        .leases(LEASE, LEASE);
    let builder = match managed {
        true => builder.managed_versioning(true).commit_window(WINDOW),
        false => builder,
    };
    builder.build().await.unwrap()
}

/// The catalog of a process that waits for nobody.
pub(super) async fn fresh(memory: &SharedMemory, managed: bool) -> Catalog {
    catalog_on(memory, &memory.actor(), managed).await
}
